//! Commands that remove nodes, before they are carried out: whether each node may go now by everything that its owners
//! said, and whether every pod that has to move has a place. Nothing here is shared with what decides but types.

use super::{Findings, Violation, claims, kube, lists, machines, pods_by_key, spread, windows};
use crate::disruption::{Command, Input, Method, Removal};
use crate::schedule::{Options, Plan, Simulation};
use crate::state::StateNode;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{IntOrString, Pod, PodDisruptionBudget};
use whittle_api::karpenter::{Budget, ConsolidationPolicy, NodeClaim, NodePool};
use whittle_api::{ConditionStatus, GoDuration, labels};
use whittle_units::{Price, Timestamp};

/// Everything that forbids to carry `command` out now; nothing when it may be.
#[must_use]
pub fn check_command(input: &Input<'_>, command: &Command) -> Vec<Violation> {
    let mut findings = Findings::default();
    findings.expect(!command.removals.is_empty(), "command", "no-node", || "it names no node".into());
    let mut names = BTreeSet::new();
    for removal in &command.removals {
        findings.expect(names.insert(&removal.node), &removal.node, "node-twice", || "the command names it more than once".into());
        node(input, command, removal, &mut findings);
    }
    budgets(input, command, &mut findings);
    money(command, &mut findings);
    places(input, command, &mut findings);
    findings.0.sort();
    findings.0.dedup();
    findings.0
}

/// Drift goes on over pods that must not be evicted when the claim says how long it waits for them.
fn overrides_pods(method: Method, claim: &NodeClaim) -> bool {
    matches!(method, Method::Drift | Method::StaticDrift) && claim.spec.termination_grace_period.is_some()
}

fn node(input: &Input<'_>, command: &Command, removal: &Removal, findings: &mut Findings) {
    let name = removal.node.as_str();
    let objects = input.cluster.objects;
    let nodes: Vec<_> = objects.nodes.iter().filter(|node| node.metadata.name == name).collect();
    let claims: Vec<_> = objects.node_claims.iter().filter(|claim| claim.metadata.name == removal.node_claim).collect();
    let ([node], [claim]) = (&nodes[..], &claims[..]) else {
        findings.add(name, "node-unknown", "there is no such Node with this NodeClaim");
        return;
    };
    let id = node.spec.provider_id.as_str();
    let one = objects.nodes.iter().filter(|other| other.spec.provider_id == id).count() == 1;
    findings.expect(!id.is_empty() && id == claim.status.provider_id && one, name, "provider-id", || {
        format!("its provider id {id:?} is not that of its NodeClaim alone")
    });
    let labelled = |key| node.metadata.labels.get(key).map(String::as_str);
    findings.expect(labelled(labels::INITIALIZED) == Some("true"), name, "not-initialized", || "it has not initialized".into());
    let hidden = objects.unreadable.iter().find(|odd| match odd.kind.as_str() {
        "Pod" | "Node" => odd.node_name == name || !id.is_empty() && odd.provider_id == id,
        other => matches!(other, "NodeOverlay" | "DaemonSet" | "CapacityBuffer"),
    });
    findings.expect(hidden.is_none(), name, "unreadable", || hidden.map(ToString::to_string).unwrap_or_default());
    let going = claim.metadata.deletion_timestamp.is_some() || node.metadata.deletion_timestamp.is_some();
    findings.expect(!going, name, "going", || "it is being deleted already".into());
    let protected = node.metadata.annotations.get(labels::DO_NOT_DISRUPT).is_some_and(|value| value == "true");
    findings.expect(!protected, name, "do-not-disrupt", || "the Node's annotation forbids it".into());
    for state in input.cluster.nodes.iter().filter(|state| state.name() == name) {
        let awaited = state.nominated_until.is_some_and(|until| until > input.cluster.now);
        findings.expect(!awaited, name, "nominated", || "pending pods are expected on it".into());
        findings.expect(!state.marked_for_deletion, name, "going", || "it is marked for deletion".into());
    }
    let busy = input.facts.get(&claim.metadata.name).is_some_and(|facts| facts.in_command);
    findings.expect(!busy, name, "in-command", || "another command names it".into());
    let pool = objects.node_pools.iter().find(|pool| Some(pool.metadata.name.as_str()) == labelled(labels::NODE_POOL));
    match pool {
        Some(pool) => policy(input, command, removal, (claim, pool), findings),
        None => findings.add(name, "pool-unknown", "its NodePool is not there"),
    }
    if !overrides_pods(command.method, claim) {
        for pod in objects.pods.iter().filter(|pod| pod.spec.node_name == name) {
            held(pod, &objects.disruption_budgets, input.cluster.now, name, findings);
        }
    }
}

/// What the pool says of consolidation.
fn policy(input: &Input<'_>, command: &Command, removal: &Removal, (claim, pool): (&NodeClaim, &NodePool), findings: &mut Findings) {
    let name = removal.node.as_str();
    let is_static = pool.spec.replicas.is_some();
    let fitting = is_static == (command.method == Method::StaticDrift);
    findings.expect(fitting, name, "static-pool", || "static pools are drifted one for one, and others are not".into());
    if !matches!(command.method, Method::Emptiness | Method::MultiNode | Method::SingleNode) {
        return;
    }
    let disruption = &pool.spec.disruption;
    let Some(wait) = disruption.consolidate_after.span() else {
        findings.add(name, "consolidation-off", "consolidateAfter is Never");
        return;
    };
    let conditions = claim.status.conditions.iter();
    let mut initialized = conditions.filter(|c| c.type_ == "Initialized" && c.status == ConditionStatus::True);
    let since = claim.status.last_pod_event_time.or_else(|| initialized.next().and_then(|condition| condition.last_transition_time));
    let quiet = wait.is_zero() || since.is_some_and(|since| input.cluster.now.duration_since(since) >= wait);
    findings.expect(quiet, name, "not-quiet", || "consolidateAfter has not passed".into());
    let moving = input.cluster.objects.pods.iter().filter(|pod| pod.spec.node_name == name && has_to_move(pod));
    if command.method == Method::Emptiness {
        // A pod that says itself that it is worth nothing does not fill a node.
        let of_worth = |pod: &&Pod| {
            let cost = pod.metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost");
            !cost.is_some_and(|cost| cost.starts_with('-')) && pod.spec.priority.is_none_or(|priority| priority >= 0)
        };
        let full = moving.filter(of_worth).map(|pod| pod.metadata.key()).next();
        findings.expect(full.is_none(), name, "not-empty", || format!("{} is on it", full.unwrap_or_default()));
    } else {
        let only_empty = disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty;
        findings.expect(!only_empty, name, "only-when-empty", || "consolidationPolicy is WhenEmpty".into());
    }
}

/// Whether a pod comes back somewhere else when its node goes.
fn has_to_move(pod: &Pod) -> bool {
    let owned = |kind: &str| pod.metadata.owner_references.iter().any(|owner| owner.kind == kind);
    let finished = ["Succeeded", "Failed"].contains(&pod.status.phase.as_str());
    let going = pod.metadata.deletion_timestamp.is_some() && !owned("StatefulSet");
    !finished && !going && !owned("DaemonSet") && !owned("Node")
}

/// What holds a pod where it is.
fn held(pod: &Pod, budgets: &[PodDisruptionBudget], now: Timestamp, node: &str, findings: &mut Findings) {
    let finished = ["Succeeded", "Failed"].contains(&pod.status.phase.as_str()) || pod.metadata.deletion_timestamp.is_some();
    if finished {
        return;
    }
    let key = pod.metadata.key();
    let annotation = pod.metadata.annotations.get(labels::DO_NOT_DISRUPT).map(String::as_str);
    let span =
        annotation.and_then(|text| text.parse::<GoDuration>().ok()).map(|duration| duration.span()).filter(|span| span.is_positive());
    let running = span.is_some_and(|span| pod.status.start_time.is_none_or(|start| now.duration_since(start) < span));
    findings.expect(annotation != Some("true") && !running, node, "pod-do-not-disrupt", || format!("{key} must not be disrupted"));
    let stays = pod.metadata.owner_references.iter().any(|owner| owner.kind == "Node");
    let tainted = whittle_api::k8s::Taint::new(labels::DISRUPTED_TAINT, whittle_api::k8s::TaintEffect::NoSchedule);
    if stays || kube::tolerates(pod, &tainted) {
        return;
    }
    let selects = |budget: &&PodDisruptionBudget| {
        let selector = budget.spec.selector.as_ref();
        budget.metadata.namespace == pod.metadata.namespace && selector.is_some_and(|selector| selector.matches(&pod.metadata.labels))
    };
    let own: Vec<&PodDisruptionBudget> = budgets.iter().filter(selects).collect();
    findings.expect(own.len() < 2, node, "pod-several-budgets", || format!("{} budgets select {key}", own.len()));
    let unready = pod.status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "False");
    for budget in own.iter().filter(|budget| budget.status.disruptions_allowed <= 0) {
        let lenient = unready && budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow";
        findings.expect(lenient, node, "pod-budget-spent", || format!("{} allows no disruption of {key}", budget.metadata.key()));
    }
}

/// No pool loses more nodes at once than its budgets allow.
fn budgets(input: &Input<'_>, command: &Command, findings: &mut Findings) {
    let objects = input.cluster.objects;
    let reason = command.method.reason().as_str();
    for pool in &objects.node_pools {
        let name = pool.metadata.name.as_str();
        let wanted = command.removals.iter().filter(|removal| removal.node_pool == name).count();
        if wanted == 0 {
            continue;
        }
        if let Some(why) = input.settings.closed.get(name) {
            findings.add(name, "pool-closed", why.clone());
        }
        let own = |state: &&StateNode| state.node_pool() == Some(name) && state.claim.is_some() && state.node.is_some();
        let counted: Vec<&StateNode> =
            input.cluster.nodes.iter().filter(own).filter(|state| state.initialized() && !is_terminating(state)).collect();
        let busy = counted.iter().filter(|state| is_busy(state)).count();
        let unlimited = reason == "Empty" && pool.is_converted_provisioner();
        for budget in pool.spec.disruption.budgets.iter().filter(|_| !unlimited) {
            let applies = budget.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|own| own == reason));
            let allowed = allowance(budget, counted.len(), input.cluster.now, applies);
            findings.expect(allowed.is_none_or(|allowed| wanted + busy <= allowed), name, "budget", || {
                format!("{wanted} nodes would go and {busy} are out already, a budget allows {}", allowed.unwrap_or(0))
            });
        }
    }
}

fn is_terminating(state: &StateNode) -> bool {
    let conditions = state.claim.iter().flat_map(|claim| &claim.status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "InstanceTerminating" && condition.status == ConditionStatus::True)
}

fn is_busy(state: &StateNode) -> bool {
    let conditions = state.node.iter().flat_map(|node| &node.status.conditions);
    let ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == ConditionStatus::True);
    let going = state.claim.as_ref().is_some_and(|claim| claim.metadata.deletion_timestamp.is_some());
    !ready || going || state.marked_for_deletion
}

/// How many nodes may be out by one budget; `None` when it does not bind now. One that cannot be read allows none.
fn allowance(budget: &Budget, nodes: usize, now: Timestamp, applies: bool) -> Option<usize> {
    let open = match (&budget.schedule, &budget.duration) {
        (None, None) => Some(true),
        (Some(schedule), Some(length)) => windows::is_open(schedule, length.span(), now),
        _ => None,
    };
    let value = match &budget.nodes {
        IntOrString::Int(count) => usize::try_from(*count).ok(),
        IntOrString::Text(text) => match text.strip_suffix('%') {
            Some(percent) => percent.parse::<usize>().ok().map(|percent| (nodes * percent).div_ceil(100)),
            None => text.parse().ok(),
        },
    };
    match open.zip(value) {
        Some((open, value)) => (open && applies).then_some(value),
        None => Some(0),
    }
}

/// Consolidation makes the bill smaller, and takes one machine at most for those that go.
fn money(command: &Command, findings: &mut Findings) {
    if !matches!(command.method, Method::Emptiness | Method::MultiNode | Method::SingleNode) {
        return;
    }
    let before: Price = command.removals.iter().map(|removal| removal.price).sum();
    let after: Price = command.replacements.iter().map(|claim| claim.cheapest_price).sum();
    let one = command.replacements.len() <= usize::from(command.method != Method::Emptiness);
    findings.expect(one, "command", "several-replacements", || format!("{} machines would come", command.replacements.len()));
    findings.expect(command.replacements.is_empty() || after < before, "command", "dearer", || format!("{after} would follow {before}"));
}

/// Every pod that has to move has one place, and all places hold what they get.
fn places(input: &Input<'_>, command: &Command, findings: &mut Findings) {
    if matches!(command.method, Method::Emptiness | Method::StaticDrift) {
        return;
    }
    let pods = pods_by_key(&input.cluster);
    let placed = command.replacements.iter().flat_map(|claim| &claim.pods);
    let placed = placed.chain(command.placements.iter().flat_map(|placement| &placement.pods));
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    placed.for_each(|pod| *count.entry(pod.key()).or_default() += 1);
    for removal in &command.removals {
        let claim = input.cluster.objects.node_claims.iter().find(|claim| claim.metadata.name == removal.node_claim);
        // Their drain waits for them, until the grace period ends.
        let may_stay = claim.is_some_and(|claim| overrides_pods(command.method, claim));
        for pod in pods.values().filter(|pod| pod.spec.node_name == removal.node && has_to_move(pod)) {
            let key = pod.metadata.key();
            let times = count.get(&key).copied().unwrap_or(0);
            findings.expect(times == 1 || may_stay && times == 0, &key, "pod-without-a-place", || format!("it has {times} places"));
        }
    }
    let simulation =
        Simulation { candidates: command.removals.iter().map(|removal| removal.node.clone()).collect(), ..Simulation::default() };
    let options = Options { simulation: Some(simulation), ..input.settings.solve.clone() };
    let plan = Plan { claims: command.replacements.clone(), placements: command.placements.clone(), ..Plan::default() };
    let lists = lists::Lists::of(&input.cluster, &plan);
    claims::check(&input.cluster, &options, &plan, &lists, &pods, findings);
    machines::check(&input.cluster, &options, &plan, &pods, findings);
    spread::check(&input.cluster, &plan, &lists, &pods, |pod| !pod.spec.node_name.is_empty(), findings);
}
