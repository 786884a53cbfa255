//! What nodes say about themselves: which are broken for so long that they are replaced (disruption 15), which are not
//! what was paid for (lifecycle 10), and which lack the label of their class. Pure.

use crate::judge::{Ending, Findings, Seen, Sights};
use whittle_api::conditions::{self, CONSISTENT_STATE_FOUND};
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, Condition, ConditionStatus, labels};
use whittle_claims::{Claim, DeletionReason, Phase, Stored, mirror};
use whittle_core::disruption::repair::{Repair, RepairVerdict, repairs};
use whittle_ports::{ClusterEvent, Involved};
use whittle_units::{ClaimName, Quantity, SignedDuration};

/// A node may have so much of what was expected of it and still be as expected, in hundredths.
const EXPECTED_PERCENT: i128 = 90;
/// The outcome of a comparison is not changed again before this long.
const SCAN_EVERY: SignedDuration = SignedDuration::from_mins(10);
/// That repair has stopped is said again after this long.
const BLOCKED_EVERY: SignedDuration = SignedDuration::from_mins(15);

/// What the comparison of a claim's node with its machine came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consistency {
    pub(crate) claim: ClaimName,
    /// One sentence for each resource that falls short; empty where all is as expected.
    pub(crate) issues: Vec<String>,
}

/// Broken nodes that are to be replaced, unless so many are broken that the cause must lie elsewhere.
pub(crate) fn repair(seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    if !seen.repair {
        return;
    }
    // Claims are the truth; mirrors of another controller's claims still say whose their nodes are.
    let ours = seen.claims.iter().map(|claim| &claim.value).filter(|claim| claim.is_live());
    let mirrors: Vec<NodeClaim> = ours.map(mirror).collect();
    let theirs = seen.objects.node_claims.iter().filter(|shown| !mirrors.iter().any(|ours| ours.metadata.name == shown.metadata.name));
    let node_claims = theirs.cloned().chain(mirrors.iter().cloned()).collect();
    let objects = ClusterObjects { nodes: seen.objects.nodes.clone(), node_claims, ..ClusterObjects::default() };
    for found in repairs(&objects, seen.now) {
        let Some(claim) = seen.claims.iter().map(|claim| &claim.value).find(|claim| claim.key.name.as_str() == found.node_claim) else {
            continue;
        };
        match &found.verdict {
            RepairVerdict::Wait { .. } => {}
            RepairVerdict::TooMany { unhealthy, allowed, pool } => {
                if sights.reminds(format!("node/{} is not repaired", found.node), BLOCKED_EVERY) {
                    let message = blocked_message(*unhealthy, *allowed, pool.as_deref());
                    out.events.extend(blocked(claim, seen.objects, &found, &message));
                }
            }
            RepairVerdict::Replace { condition, .. } => {
                let due = claim.deletion.as_ref().is_some_and(|known| known.deadline.is_some_and(|deadline| deadline <= seen.now));
                let subject = format!("node/{} broken: {condition}", found.node);
                let ends_anyway = out.end.iter().any(|end| end.claim == claim.key.name);
                if !due && !ends_anyway && is_serving(claim) && sights.confirmed(subject, crate::judge::BETWEEN_SIGHTINGS) {
                    let message = format!("its node {} has been unhealthy for too long: {condition}", found.node);
                    let ending = Ending::new(claim, DeletionReason::Unhealthy, message);
                    out.end.push(Ending { condition: Some(condition), ..ending });
                }
            }
        }
    }
}

/// A machine that has a Node and has not been told to end.
fn is_serving(claim: &Claim) -> bool {
    matches!(claim.phase, Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. } | Phase::Draining { .. })
}

fn blocked_message(unhealthy: usize, allowed: usize, pool: Option<&str>) -> String {
    let scope = pool.map_or_else(|| "the cluster".to_owned(), |pool| format!("NodePool {pool}"));
    format!("{unhealthy} nodes of {scope} are unhealthy, more than the {allowed} (20%) up to which nodes are replaced automatically")
}

/// Node, NodeClaim and NodePool are told.
fn blocked(claim: &Claim, objects: &ClusterObjects, found: &Repair, message: &str) -> Vec<ClusterEvent> {
    let warn = |about| ClusterEvent::warning(about, "NodeRepairBlocked", message);
    let node = objects.nodes.iter().find(|node| node.metadata.name == found.node);
    let mut events = vec![warn(node.map_or_else(|| Involved::node(&found.node), Involved::object)), warn(Involved::claim(claim))];
    if let Some(pool) = crate::judge::owner_of(claim, objects) {
        events.push(warn(Involved::object(pool)));
    }
    events
}

/// Compares every claim's node with its machine; what is unchanged is left out.
pub(crate) fn consistency(seen: &Seen<'_>, out: &mut Findings) {
    for claim in seen.claims.iter().map(|claim| &claim.value).filter(|claim| claim.deletion.is_none()) {
        let Some(machine) = claim.machine() else { continue };
        let [node] = crate::judge::nodes_of(claim, seen.objects)[..] else { continue };
        let issues = if matches!(claim.phase, Phase::Initialized { .. }) && !node.metadata.is_deleting() {
            shortfalls(claim, &machine.capacity, node)
        } else {
            Vec::new()
        };
        let known = conditions::find(&claim.conditions, CONSISTENT_STATE_FOUND);
        if !says(known, &issues) && known.is_none_or(|known| scanned_before(known, seen)) {
            out.consistency.push(Consistency { claim: claim.key.name.clone(), issues });
        }
    }
}

fn says(known: Option<&Condition>, issues: &[String]) -> bool {
    known.is_some_and(|known| match known.status {
        ConditionStatus::True => issues.is_empty(),
        _ => !issues.is_empty() && known.message == issues.join("; "),
    })
}

fn scanned_before(known: &Condition, seen: &Seen<'_>) -> bool {
    known.last_transition_time.is_none_or(|at| seen.now.duration_since(at) >= SCAN_EVERY)
}

/// Requested resources of which the node has less than nine tenths of what its machine should have.
fn shortfalls(claim: &Claim, expected: &whittle_units::Resources, node: &Node) -> Vec<String> {
    let requested = claim.spec.requests.iter().filter(|(name, amount)| !amount.is_zero() && !expected.get(name).is_zero());
    requested
        .filter_map(|(name, _)| {
            let (wanted, found) = (expected.get(name), node.status.capacity.get(name));
            let permille = permille(found, wanted);
            let short = i128::from(found.milli()) * 100 < i128::from(wanted.milli()) * EXPECTED_PERCENT;
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

/// Nodes that joined under an older version lack the label that says that we manage them.
pub(crate) fn hydration(seen: &Seen<'_>, out: &mut Findings) {
    for node in &seen.objects.nodes {
        let id = node.spec.provider_id.as_str();
        if id.is_empty() || node.metadata.labels.contains_key(labels::EC2_NODE_CLASS) {
            continue;
        }
        let of_node = |claim: &&Stored<Claim>| claim.value.machine().is_some_and(|machine| machine.provider_id.as_str() == id);
        let owners: Vec<&Stored<Claim>> = seen.claims.iter().filter(of_node).collect();
        // A node that has not registered gets all its labels then.
        if let [claim] = owners[..]
            && claim.value.node_name() == Some(node.metadata.name.as_str())
            && !claim.value.spec.node_class.name.is_empty()
        {
            out.hydrate.push((node.metadata.name.clone(), claim.value.spec.node_class.name.clone()));
        }
    }
}
