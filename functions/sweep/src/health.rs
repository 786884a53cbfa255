//! The health of nodes: which are unhealthy for so long that they are replaced (disruption 15), which have less capacity than
//! expected (lifecycle 10), and which lack the label of their class. Pure.

use crate::compare::{Ending, Findings, SweepInput, with_stated_deadline};
use crate::sightings::{SIGHTING_INTERVAL, Sightings};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions::{self, CONSISTENT_STATE_FOUND};
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, Condition, ConditionStatus, labels};
use whittle_claims::{Claim, DeletionReason, Phase, mirror};
use whittle_disruption::repair::{Repair, RepairVerdict, repairs};
use whittle_ec2::interruption;
use whittle_ports::{ClusterEvent, Involved};
use whittle_units::{ClaimName, InstanceId, Quantity, SignedDuration};

/// A node with at least this share of the expected resources is consistent, in percent.
const CONSISTENT_PERCENT: i128 = 90;
/// The outcome of a comparison does not change again before this.
const SCAN_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// The Event that repair is blocked is repeated after this.
const REPEAT_BLOCKED_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// The result of comparing a claim's node with its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consistency {
    pub(crate) claim: ClaimName,
    /// One sentence for each resource that falls short; empty if consistent.
    pub(crate) issues: Vec<String>,
}

/// Unhealthy nodes that are to be replaced, unless so many are unhealthy that the cause must lie elsewhere.
pub(crate) fn repair(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    if !input.repair {
        return;
    }
    // Claims are authoritative; NodeClaims of other controllers still determine the owners of their nodes.
    let ours = input.claims.iter().map(|claim| &claim.value).filter(|claim| claim.is_live());
    let mirrors: Vec<NodeClaim> = ours.map(mirror).collect();
    let named: BTreeSet<&str> = mirrors.iter().map(|mirror| mirror.metadata.name.as_str()).collect();
    let theirs = input.objects.node_claims.iter().filter(|node_claim| !named.contains(node_claim.metadata.name.as_str()));
    let theirs: Vec<NodeClaim> = theirs.cloned().collect();
    let node_claims = theirs.into_iter().chain(mirrors).collect();
    let objects = ClusterObjects { nodes: input.objects.nodes.clone(), node_claims, ..ClusterObjects::default() };
    for found in repairs(&objects, input.now) {
        let Some(claim) = input.index.claim_named(&found.node_claim).map(|claim| &claim.value) else { continue };
        match &found.verdict {
            RepairVerdict::Wait { .. } => {}
            RepairVerdict::TooMany { unhealthy, allowed, pool } => {
                if sightings.is_due(format!("node/{} is not repaired", found.node), REPEAT_BLOCKED_AFTER) {
                    let message = blocked_message(*unhealthy, *allowed, pool.as_deref());
                    out.events.extend(blocked(claim, input.objects, &found, &message));
                }
            }
            RepairVerdict::Replace { condition, .. } => {
                let due = claim.deletion.as_ref().is_some_and(|known| known.deadline.is_some_and(|deadline| deadline <= input.now));
                let subject = format!("node/{} broken: {condition}", found.node);
                let ends_anyway = out.end.iter().any(|end| end.claim == claim.key.name);
                if !due && !ends_anyway && is_serving(claim) && sightings.is_confirmed(subject, SIGHTING_INTERVAL) {
                    let message = format!("its node {} has been unhealthy for too long: {condition}", found.node);
                    let ending = Ending::new(claim, DeletionReason::Unhealthy, message);
                    out.end.push(Ending { condition: Some(condition), ..ending });
                }
            }
        }
    }
}

/// Machines whose checks have failed for so long that they are given up, and those for which EC2 has scheduled an event (aws 22).
pub(crate) fn checks(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    let mut owners: BTreeMap<&InstanceId, &Claim> = BTreeMap::new();
    for claim in input.claims.iter().map(|claim| &claim.value) {
        if let Some(machine) = claim.machine() {
            owners.entry(&machine.instance_id).or_insert(claim);
        }
    }
    for status in input.statuses {
        let Some(claim) = owners.get(&status.instance).copied() else { continue };
        let Some(kind) = interruption::unhealthy(status, input.now).first().copied() else { continue };
        let reason = if kind.ends_at_once() { DeletionReason::Unhealthy } else { DeletionReason::ScheduledChange };
        // A failed machine is not waited for, not even by a drain that has begun.
        let has_deadline = claim.deletion.as_ref().is_some_and(|known| known.deadline.is_some_and(|deadline| deadline <= input.now));
        let is_ending = if kind.ends_at_once() { has_deadline } else { claim.deletion.is_some() };
        let ends_anyway = out.end.iter().any(|end| end.claim == claim.key.name);
        if is_ending || ends_anyway || !is_serving(claim) {
            continue;
        }
        let subject = format!("instance/{} {}", status.instance, kind.as_str());
        if sightings.is_confirmed(subject, SIGHTING_INTERVAL) {
            let message = format!("{} for {}", kind.text(), status.instance);
            let about = [Some(Involved::claim(claim)), claim.node_name().map(Involved::node)];
            out.events.extend(about.into_iter().flatten().map(|about| ClusterEvent::warning(about, kind.event_reason(), message.clone())));
            out.events.extend(ClusterEvent::of_interruption(claim));
            let ending = Ending { check: Some(kind.as_str()), ..Ending::new(claim, reason, message) };
            out.end.push(if kind.ends_at_once() { ending } else { with_stated_deadline(ending, claim, &input.index) });
        }
    }
}

/// Whether a claim has a machine that is not terminating yet.
fn is_serving(claim: &Claim) -> bool {
    matches!(claim.phase, Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. } | Phase::Draining { .. })
}

fn blocked_message(unhealthy: usize, allowed: usize, pool: Option<&str>) -> String {
    let scope = pool.map_or_else(|| "the cluster".to_owned(), |pool| format!("NodePool {pool}"));
    format!("{unhealthy} nodes of {scope} are unhealthy, more than the {allowed} (20%) up to which nodes are replaced automatically")
}

/// Events on Node, NodeClaim and NodePool.
fn blocked(claim: &Claim, objects: &ClusterObjects, found: &Repair, message: &str) -> Vec<ClusterEvent> {
    let warn = |about| ClusterEvent::warning(about, "NodeRepairBlocked", message);
    let node = objects.nodes.iter().find(|node| node.metadata.name == found.node);
    let mut events = vec![warn(node.map_or_else(|| Involved::node(&found.node), Involved::object)), warn(Involved::claim(claim))];
    if let Some(pool) = crate::compare::owner_of(claim, objects) {
        events.push(warn(Involved::object(pool)));
    }
    events
}

/// Compares every claim's node with its machine; unchanged results are left out.
pub(crate) fn consistency(input: &SweepInput<'_>, out: &mut Findings) {
    for claim in input.claims.iter().map(|claim| &claim.value).filter(|claim| claim.deletion.is_none()) {
        let Some(machine) = claim.machine() else { continue };
        let &[node] = input.index.nodes_of(claim) else { continue };
        let issues = if matches!(claim.phase, Phase::Initialized { .. }) && !node.metadata.is_deleting() {
            shortfalls(claim, &machine.capacity, node)
        } else {
            Vec::new()
        };
        let known = conditions::find(&claim.conditions, CONSISTENT_STATE_FOUND);
        if !is_recorded(known, &issues) && known.is_none_or(|known| scanned_before(known, input)) {
            out.consistency.push(Consistency { claim: claim.key.name.clone(), issues });
        }
    }
}

fn is_recorded(known: Option<&Condition>, issues: &[String]) -> bool {
    known.is_some_and(|known| match known.status {
        ConditionStatus::True => issues.is_empty(),
        _ => !issues.is_empty() && known.message == issues.join("; "),
    })
}

fn scanned_before(known: &Condition, input: &SweepInput<'_>) -> bool {
    known.last_transition_time.is_none_or(|at| input.now.duration_since(at) >= SCAN_INTERVAL)
}

/// Requested resources of which the node has less than nine tenths of its machine's capacity.
fn shortfalls(claim: &Claim, expected: &whittle_units::Resources, node: &Node) -> Vec<String> {
    let requested = claim.spec.requests.iter().filter(|(name, amount)| !amount.is_zero() && !expected.get(name).is_zero());
    requested
        .filter_map(|(name, _)| {
            let (wanted, found) = (expected.get(name), node.status.capacity.get(name));
            let permille = permille(found, wanted);
            let short = i128::from(found.milli()) * 100 < i128::from(wanted.milli()) * CONSISTENT_PERCENT;
            short.then(|| {
                let (whole, tenth) = (permille / 10, permille % 10);
                format!("expected {wanted} of resource {name}, but found {found} ({whole}.{tenth}% of expected)")
            })
        })
        .collect()
}

fn permille(found: Quantity, wanted: Quantity) -> i128 {
    i128::from(found.milli()) * 1000 / i128::from(wanted.milli()).max(1)
}

/// Nodes that joined under an older release lack the label of their node class.
pub(crate) fn hydration(input: &SweepInput<'_>, out: &mut Findings) {
    for node in &input.objects.nodes {
        let id = node.spec.provider_id.as_str();
        if id.is_empty() || node.metadata.labels.contains_key(labels::EC2_NODE_CLASS) {
            continue;
        }
        // A node that has not registered gets all its labels then.
        if let &[claim] = input.index.claims_at(id)
            && claim.value.node_name() == Some(node.metadata.name.as_str())
            && !claim.value.spec.node_class.name.is_empty()
        {
            out.hydrate.push((node.metadata.name.clone(), claim.value.spec.node_class.name.clone()));
        }
    }
}
