//! Checks disruption commands before they are executed: whether each node may be removed now, and whether every pod has
//! a place to go. Shares only types with the decision.

use super::{Findings, Violation, claims, kube, machines, pods_by_key, topology, type_lists, windows};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{IntOrString, Pod, PodDisruptionBudget};
use whittle_api::karpenter::{Budget, ConsolidationPolicy, NodeClaim, NodePool};
use whittle_api::{ConditionStatus, GoDuration, labels};
use whittle_model::disruption::{Command, Input, Method, Removal};
use whittle_model::scheduling::{Options, Plan, Simulation};
use whittle_model::state::StateNode;
use whittle_units::{Price, Timestamp};

/// Everything that forbids executing `command` now; empty when it may be executed.
#[must_use]
pub fn check_command(input: &Input<'_>, command: &Command) -> Vec<Violation> {
    let mut findings = Findings::default();
    findings.expect(!command.removals.is_empty(), "command", "no-node", || "it names no node".into());
    let mut names = BTreeSet::new();
    for removal in &command.removals {
        findings.expect(names.insert(&removal.node), &removal.node, "node-twice", || "the command names it more than once".into());
        check_node(input, command, removal, &mut findings);
    }
    check_budgets(input, command, &mut findings);
    check_price(command, &mut findings);
    check_places(input, command, &mut findings);
    findings.0.sort();
    findings.0.dedup();
    findings.0
}

/// Drift may evict protected pods if the claim has a termination grace period.
fn overrides_pods(method: Method, claim: &NodeClaim) -> bool {
    matches!(method, Method::Drift | Method::StaticDrift) && claim.spec.termination_grace_period.is_some()
}

fn check_node(input: &Input<'_>, command: &Command, removal: &Removal, findings: &mut Findings) {
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
    let label = |key| node.metadata.labels.get(key).map(String::as_str);
    findings.expect(label(labels::INITIALIZED) == Some("true"), name, "not-initialized", || "it has not initialized".into());
    let unreadable = objects.unreadable.iter().find(|object| match object.kind.as_str() {
        "Pod" | "Node" => object.node_name == name || !id.is_empty() && object.provider_id == id,
        other => matches!(other, "NodeOverlay" | "DaemonSet"),
    });
    findings.expect(unreadable.is_none(), name, "unreadable", || unreadable.map(ToString::to_string).unwrap_or_default());
    let deleting = claim.metadata.deletion_timestamp.is_some() || node.metadata.deletion_timestamp.is_some();
    findings.expect(!deleting, name, "going", || "it is being deleted already".into());
    let protected = node.metadata.annotations.get(labels::DO_NOT_DISRUPT).is_some_and(|value| value == "true");
    findings.expect(!protected, name, "do-not-disrupt", || "the Node's annotation forbids it".into());
    for state in input.cluster.nodes.iter().filter(|state| state.name() == name) {
        let nominated = state.nominated_until.is_some_and(|until| until > input.cluster.now);
        findings.expect(!nominated, name, "nominated", || "pending pods are expected on it".into());
        findings.expect(!state.marked_for_deletion, name, "going", || "it is marked for deletion".into());
    }
    let in_command = input.facts.get(&claim.metadata.name).is_some_and(|facts| facts.in_command);
    findings.expect(!in_command, name, "in-command", || "another command names it".into());
    let pool = objects.node_pools.iter().find(|pool| Some(pool.metadata.name.as_str()) == label(labels::NODE_POOL));
    match pool {
        Some(pool) => check_policy(input, command, removal, (claim, pool), findings),
        None => findings.add(name, "pool-unknown", "its NodePool does not exist"),
    }
    if !overrides_pods(command.method, claim) {
        for pod in objects.pods.iter().filter(|pod| pod.spec.node_name == name) {
            check_pod(pod, &objects.disruption_budgets, input.cluster.now, name, findings);
        }
    }
}

/// Checks the NodePool's consolidation settings.
fn check_policy(input: &Input<'_>, command: &Command, removal: &Removal, (claim, pool): (&NodeClaim, &NodePool), findings: &mut Findings) {
    let name = removal.node.as_str();
    let is_static = pool.spec.replicas.is_some();
    let matches_method = is_static == (command.method == Method::StaticDrift);
    findings.expect(matches_method, name, "static-pool", || "static pools are drifted one for one, and others are not".into());
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
    let past_consolidate_after = wait.is_zero() || since.is_some_and(|since| input.cluster.now.duration_since(since) >= wait);
    findings.expect(past_consolidate_after, name, "not-quiet", || "consolidateAfter has not passed".into());
    let moving = input.cluster.objects.pods.iter().filter(|pod| pod.spec.node_name == name && is_reschedulable(pod));
    if command.method == Method::Emptiness {
        // Pods with a negative deletion cost or priority do not make a node non-empty.
        let has_eviction_cost = |pod: &&Pod| {
            let cost = pod.metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost");
            !cost.is_some_and(|cost| cost.starts_with('-')) && pod.spec.priority.is_none_or(|priority| priority >= 0)
        };
        let blocking_pod = moving.filter(has_eviction_cost).map(|pod| pod.metadata.key()).next();
        findings.expect(blocking_pod.is_none(), name, "not-empty", || format!("{} is on it", blocking_pod.unwrap_or_default()));
    } else {
        let only_empty = disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty;
        findings.expect(!only_empty, name, "only-when-empty", || "consolidationPolicy is WhenEmpty".into());
    }
}

/// Whether the pod will be scheduled elsewhere when its node is removed.
fn is_reschedulable(pod: &Pod) -> bool {
    let owned = |kind: &str| pod.metadata.owner_references.iter().any(|owner| owner.kind == kind);
    let finished = ["Succeeded", "Failed"].contains(&pod.status.phase.as_str());
    let deleting = pod.metadata.deletion_timestamp.is_some() && !owned("StatefulSet");
    !finished && !deleting && !owned("DaemonSet") && !owned("Node")
}

/// Checks that the pod may be evicted.
fn check_pod(pod: &Pod, budgets: &[PodDisruptionBudget], now: Timestamp, node: &str, findings: &mut Findings) {
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
    let is_mirror = pod.metadata.owner_references.iter().any(|owner| owner.kind == "Node");
    let tainted = whittle_api::k8s::Taint::new(labels::DISRUPTED_TAINT, whittle_api::k8s::TaintEffect::NoSchedule);
    if is_mirror || kube::tolerates(pod, &tainted) {
        return;
    }
    let selects = |budget: &&PodDisruptionBudget| {
        let selector = budget.spec.selector.as_ref();
        budget.metadata.namespace == pod.metadata.namespace && selector.is_some_and(|selector| selector.matches(&pod.metadata.labels))
    };
    let selecting: Vec<&PodDisruptionBudget> = budgets.iter().filter(selects).collect();
    findings.expect(selecting.len() < 2, node, "pod-several-budgets", || format!("{} budgets select {key}", selecting.len()));
    let unready = pod.status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "False");
    for budget in selecting.iter().filter(|budget| budget.status.disruptions_allowed <= 0) {
        let lenient = unready && budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow";
        findings.expect(lenient, node, "pod-budget-spent", || format!("{} allows no disruption of {key}", budget.metadata.key()));
    }
}

/// No pool loses more nodes at once than its budgets allow.
fn check_budgets(input: &Input<'_>, command: &Command, findings: &mut Findings) {
    let objects = input.cluster.objects;
    let reason = command.method.reason().as_str();
    for removal in command.removals.iter().filter(|removal| input.settings.shifted_zones.contains(&removal.zone)) {
        findings.add(&removal.node, "zonal-shift", format!("traffic is shifted away from its zone {}", removal.zone));
    }
    for pool in &objects.node_pools {
        let name = pool.metadata.name.as_str();
        let removals = command.removals.iter().filter(|removal| removal.node_pool == name).count();
        if removals == 0 {
            continue;
        }
        if let Some(why) = input.settings.unreadable_pools.get(name) {
            findings.add(name, "pool-closed", why.clone());
        }
        let is_counted = |state: &&StateNode| state.node_pool() == Some(name) && state.claim.is_some() && state.node.is_some();
        let counted: Vec<&StateNode> =
            input.cluster.nodes.iter().filter(is_counted).filter(|state| state.initialized() && !is_terminating(state)).collect();
        let disrupting = counted.iter().filter(|state| is_disrupting(state)).count();
        let unlimited = reason == "Empty" && pool.is_converted_provisioner();
        for budget in pool.spec.disruption.budgets.iter().filter(|_| !unlimited) {
            let applies = budget.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|own| own == reason));
            let allowed = allowed_disruptions(budget, counted.len(), input.cluster.now, applies);
            findings.expect(allowed.is_none_or(|allowed| removals + disrupting <= allowed), name, "budget", || {
                format!("{removals} nodes would be disrupted and {disrupting} are already, a budget allows {}", allowed.unwrap_or(0))
            });
        }
    }
}

fn is_terminating(state: &StateNode) -> bool {
    let conditions = state.claim.iter().flat_map(|claim| &claim.status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "InstanceTerminating" && condition.status == ConditionStatus::True)
}

fn is_disrupting(state: &StateNode) -> bool {
    let conditions = state.node.iter().flat_map(|node| &node.status.conditions);
    let ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == ConditionStatus::True);
    let deleting = state.claim.as_ref().is_some_and(|claim| claim.metadata.deletion_timestamp.is_some());
    !ready || deleting || state.marked_for_deletion
}

/// How many nodes a budget allows to be disrupted; `None` when it does not apply now. An invalid budget allows none.
fn allowed_disruptions(budget: &Budget, nodes: usize, now: Timestamp, applies: bool) -> Option<usize> {
    let is_active = match (&budget.schedule, &budget.duration) {
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
    match is_active.zip(value) {
        Some((is_active, value)) => (is_active && applies).then_some(value),
        None => Some(0),
    }
}

/// Consolidation must reduce the price, with at most one replacement.
fn check_price(command: &Command, findings: &mut Findings) {
    if !matches!(command.method, Method::Emptiness | Method::MultiNode | Method::SingleNode) {
        return;
    }
    let before: Price = command.removals.iter().map(|removal| removal.price).sum();
    let after: Price = command.replacements.iter().map(|claim| claim.cheapest_price).sum();
    let one = command.replacements.len() <= usize::from(command.method != Method::Emptiness);
    findings.expect(one, "command", "several-replacements", || format!("{} machines would be launched", command.replacements.len()));
    findings.expect(command.replacements.is_empty() || after < before, "command", "dearer", || format!("{after} would follow {before}"));
}

/// Every pod that has to be rescheduled has exactly one place, and all machines can run the pods they receive.
fn check_places(input: &Input<'_>, command: &Command, findings: &mut Findings) {
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
        // The drain waits for such pods until the grace period ends.
        let may_stay = claim.is_some_and(|claim| overrides_pods(command.method, claim));
        for pod in pods.values().filter(|pod| pod.spec.node_name == removal.node && is_reschedulable(pod)) {
            let key = pod.metadata.key();
            let times = count.get(&key).copied().unwrap_or(0);
            findings.expect(times == 1 || may_stay && times == 0, &key, "pod-without-a-place", || format!("it has {times} places"));
        }
    }
    let simulation =
        Simulation { candidates: command.removals.iter().map(|removal| removal.node.clone()).collect(), ..Simulation::default() };
    let options = Options { simulation: Some(simulation), ..input.settings.solve.clone() };
    let plan = Plan { claims: command.replacements.clone(), placements: command.placements.clone(), ..Plan::default() };
    let type_lists = type_lists::TypeLists::of(&input.cluster, &plan);
    claims::check(&input.cluster, &options, &plan, &type_lists, &pods, findings);
    machines::check(&input.cluster, &options, &plan, &pods, findings);
    topology::check(&input.cluster, &plan, &type_lists, &pods, |pod| !pod.spec.node_name.is_empty(), findings);
}
