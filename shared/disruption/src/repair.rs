//! Node repair (disruption 15): replaces unhealthy nodes, unless there are so many that the cause must lie elsewhere.

use super::cluster_view::is_managed_class;
use std::collections::BTreeMap;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, ConditionStatus, labels};
use whittle_units::{SignedDuration, Timestamp};

/// A node is unhealthy when its condition has had this status for longer than `toleration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    pub condition: &'static str,
    pub status: ConditionStatus,
    pub toleration: SignedDuration,
}

const THIRTY_MINUTES: SignedDuration = SignedDuration::from_mins(30);

/// The policies of the AWS provider; all but `Ready` are reported by the EKS node monitoring agent.
pub const AWS_POLICIES: [RepairPolicy; 7] = [
    RepairPolicy { condition: "Ready", status: ConditionStatus::False, toleration: THIRTY_MINUTES },
    RepairPolicy { condition: "Ready", status: ConditionStatus::Unknown, toleration: THIRTY_MINUTES },
    RepairPolicy { condition: "AcceleratedHardwareReady", status: ConditionStatus::False, toleration: SignedDuration::from_mins(10) },
    RepairPolicy { condition: "StorageReady", status: ConditionStatus::False, toleration: THIRTY_MINUTES },
    RepairPolicy { condition: "NetworkingReady", status: ConditionStatus::False, toleration: THIRTY_MINUTES },
    RepairPolicy { condition: "KernelReady", status: ConditionStatus::False, toleration: THIRTY_MINUTES },
    RepairPolicy { condition: "ContainerRuntimeReady", status: ConditionStatus::False, toleration: THIRTY_MINUTES },
];

/// Percentage of nodes that may be unhealthy, rounded up; repair stops above it.
const UNHEALTHY_PERCENT_MAX: usize = 20;

/// What to do about an unhealthy node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    pub node: String,
    pub node_claim: String,
    pub verdict: RepairVerdict,
}

/// Whether and when an unhealthy node is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairVerdict {
    /// It may still recover; evaluate again then.
    Wait { until: Timestamp },
    /// Too many other nodes are unhealthy.
    TooMany { unhealthy: usize, allowed: usize, pool: Option<String> },
    /// Its NodeClaim is to be deleted, without waiting for its drain.
    Replace {
        condition: &'static str,
        /// Value to set in the claim's termination timestamp annotation; `None` when an earlier one is set.
        deadline: Option<Timestamp>,
    },
}

/// All unhealthy nodes with a managed NodeClaim, by name.
#[must_use]
pub fn repairs(objects: &ClusterObjects, now: Timestamp) -> Vec<Repair> {
    let mut claims: BTreeMap<&str, Vec<&NodeClaim>> = BTreeMap::new();
    for claim in &objects.node_claims {
        claims.entry(claim.status.provider_id.as_str()).or_default().push(claim);
    }
    let (mut found, mut scopes) = (Vec::new(), BTreeMap::new());
    for node in &objects.nodes {
        // With no claim or several for the instance, it is not clear what to delete.
        let Some([claim]) = claims.get(node.spec.provider_id.as_str()).map(Vec::as_slice) else { continue };
        if node.spec.provider_id.is_empty() || !is_managed_class(&claim.spec.node_class_ref) {
            continue;
        }
        if let Some(verdict) = evaluate(objects, node, claim, &mut scopes, now) {
            found.push(Repair { node: node.metadata.name.clone(), node_claim: claim.metadata.name.clone(), verdict });
        }
    }
    found.sort_by(|a, b| a.node.cmp(&b.node));
    found
}

/// The nodes of a pool, or of none, whether it is a Provisioner, and how many of them are unhealthy.
type Scopes<'o> = BTreeMap<(Option<&'o str>, bool), (usize, usize)>;

/// `scopes` are those that were counted before.
fn evaluate<'o>(
    objects: &'o ClusterObjects,
    node: &Node,
    claim: &'o NodeClaim,
    scopes: &mut Scopes<'o>,
    now: Timestamp,
) -> Option<RepairVerdict> {
    let (ends, policy) = matching_policies(node).min_by_key(|(ends, _)| *ends)?;
    if now < ends {
        return Some(RepairVerdict::Wait { until: ends });
    }
    let pool = claim.metadata.label(labels::NODE_POOL);
    // A Provisioner and a NodePool may share a name; nodes of a Provisioner have its label.
    let old = claim.metadata.label(labels::PROVISIONER_NAME).is_some();
    let same = |other: &&Node| {
        let meta = &other.metadata;
        meta.label(labels::NODE_POOL) == pool && meta.label(labels::PROVISIONER_NAME).is_some() == old
    };
    let (all, unhealthy) = *scopes.entry((pool, old)).or_insert_with(|| {
        let scope = objects.nodes.iter().filter(|other| pool.is_none() || same(other));
        scope.fold((0, 0), |(all, unhealthy), other| (all + 1, unhealthy + usize::from(matching_policies(other).next().is_some())))
    });
    let allowed = (all * UNHEALTHY_PERCENT_MAX).div_ceil(100);
    if unhealthy > allowed {
        return Some(RepairVerdict::TooMany { unhealthy, allowed, pool: pool.map(str::to_owned) });
    }
    let annotated = claim.metadata.annotation(labels::TERMINATION_TIMESTAMP).and_then(|text| text.parse::<Timestamp>().ok());
    let deadline = if annotated.is_some_and(|annotated| annotated <= now) { None } else { Some(now) };
    Some(RepairVerdict::Replace { condition: policy.condition, deadline })
}

/// Policies that the node's conditions match, with the time when their toleration ends.
fn matching_policies(node: &Node) -> impl Iterator<Item = (Timestamp, &'static RepairPolicy)> + '_ {
    AWS_POLICIES.iter().filter_map(|policy| {
        let met =
            node.status.conditions.iter().find(|condition| condition.type_ == policy.condition && condition.status == policy.status)?;
        Some((met.last_transition_time?.checked_add(policy.toleration).ok()?, policy))
    })
}
