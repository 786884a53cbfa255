//! The NodeClaim object that shows a claim in its cluster.

use crate::claim::{Claim, DeletionReason};
use crate::phase::Phase;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{NodeClaim, NodeClaimResources, NodeClaimSpec, NodeClaimStatus};
use whittle_api::{ClusterObjects, ObjectMeta, OwnerReference, Shared, conditions, labels};

impl DeletionReason {
    /// The reason of the `DisruptionReason` condition, and of the event when a pod is evicted.
    pub const fn condition_reason(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Underutilized => "Underutilized",
            Self::Drifted => "Drifted",
            Self::Expired => "Expired",
            Self::Unhealthy => "Unhealthy",
            Self::SpotInterruption => "SpotInterruption",
            Self::ScheduledChange => "ScheduledChange",
            Self::Rebalance => "Rebalance",
            Self::InstanceStopped => "InstanceStopped",
            Self::InstanceGone => "InstanceGone",
            Self::Requested => "Requested",
            Self::NodePoolDeleted => "NodePoolDeleted",
            Self::ScaledDown => "ScaledDown",
            Self::LaunchTimeout => "LaunchTimeout",
            Self::RegistrationTimeout => "RegistrationTimeout",
            Self::InsufficientCapacity => "InsufficientCapacity",
            Self::NodeClassNotReady => "NodeClassNotReady",
            Self::RolledBack => "RolledBack",
        }
    }

    /// The `reason` label of `karpenter_nodeclaims_disrupted_total`; `None` if Karpenter counts nothing (lifecycle 11).
    pub const fn metric_reason(self) -> Option<&'static str> {
        Some(match self {
            Self::Empty => "empty",
            Self::Underutilized => "underutilized",
            Self::Drifted => "drifted",
            Self::Expired => "expired",
            Self::Unhealthy => "unhealthy",
            Self::SpotInterruption => "spot_interrupted",
            Self::ScheduledChange => "scheduled_change",
            Self::Rebalance => "rebalance_recommendation",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceGone => "instance_terminated",
            Self::LaunchTimeout => "launch_timeout",
            Self::RegistrationTimeout => "registration_timeout",
            Self::InsufficientCapacity => "insufficient_capacity",
            Self::NodeClassNotReady => "nodeclass_not_ready",
            Self::Requested | Self::NodePoolDeleted | Self::ScaledDown | Self::RolledBack => return None,
        })
    }

    /// Karpenter's reason of an eviction: that of a voluntary disruption, or a fixed text.
    pub const fn eviction_reason(self) -> &'static str {
        match self {
            Self::Empty | Self::Underutilized | Self::Drifted | Self::SpotInterruption => self.condition_reason(),
            _ => "Forceful Termination",
        }
    }
}

/// The NodeClaim object of `claim`. A claim that has ended has no finalizer, so that its object can be deleted. A requested
/// deletion becomes `deletionTimestamp`, which decisions read and writers ignore: the API server sets its own. A uid means that
/// the object is standalone, so that it is updated and never created.
#[must_use]
pub fn mirror(claim: &Claim) -> NodeClaim {
    let machine = claim.machine().or(match &claim.phase {
        Phase::Gone { machine, .. } => machine.as_ref(),
        _ => None,
    });
    let owner = OwnerReference { block_owner_deletion: Some(true), ..claim.spec.owner.clone() };
    NodeClaim {
        metadata: ObjectMeta {
            name: claim.key.name.as_str().to_owned(),
            uid: claim.object_uid().to_owned(),
            generation: Some(1),
            creation_timestamp: Some(claim.created_at),
            deletion_timestamp: claim.deletion.as_ref().map(|deletion| deletion.at),
            labels: labels_of(claim).into(),
            annotations: annotations_of(claim).into_iter().chain([(labels::MANAGED.to_owned(), "true".to_owned())]).collect(),
            owner_references: if claim.spec.owner.name.is_empty() { Shared::new() } else { vec![owner].into() },
            finalizers: if claim.is_live() { vec![labels::TERMINATION_FINALIZER.to_owned()] } else { Vec::new() },
            ..ObjectMeta::default()
        },
        spec: NodeClaimSpec {
            requirements: claim.spec.requirements.clone(),
            node_class_ref: claim.spec.node_class.clone(),
            resources: NodeClaimResources { requests: claim.spec.requests.clone() },
            taints: claim.spec.taints.clone(),
            startup_taints: claim.spec.startup_taints.clone(),
            expire_after: claim.spec.expire_after.clone(),
            termination_grace_period: claim.spec.termination_grace_period.clone(),
        },
        status: NodeClaimStatus {
            node_name: claim.node_name().unwrap_or_default().to_owned(),
            provider_id: machine.map(|m| m.provider_id.as_str().to_owned()).unwrap_or_default(),
            image_id: machine.map(|m| m.image_id.clone()).unwrap_or_default(),
            capacity: machine.map(|m| m.capacity.clone()).unwrap_or_default(),
            allocatable: machine.map(|m| m.allocatable.clone()).unwrap_or_default(),
            last_pod_event_time: claim.last_pod_event_at,
            conditions: claim.conditions.clone(),
        },
    }
}

/// The labels of a claim and of its node: those that the launch resolved, overridden by the planned ones.
#[must_use]
pub fn labels_of(claim: &Claim) -> std::collections::BTreeMap<String, String> {
    let mut all = claim.machine().map(|machine| machine.labels.clone()).unwrap_or_default();
    all.extend(claim.spec.labels.clone());
    if !claim.spec.node_pool.is_empty() {
        all.insert(labels::NODE_POOL.to_owned(), claim.spec.node_pool.clone());
    }
    if !claim.spec.node_class.name.is_empty() {
        all.insert(labels::EC2_NODE_CLASS.to_owned(), claim.spec.node_class.name.clone());
    }
    // Legacy workloads select by the alpha key, so nodes of a Provisioner carry both.
    if claim.spec.owner.kind == "Provisioner" {
        all.insert(labels::PROVISIONER_NAME.to_owned(), claim.spec.owner.name.clone());
    }
    all
}

/// The annotations of a claim and of its node: the planned ones, overridden by those of the launch.
#[must_use]
pub fn annotations_of(claim: &Claim) -> std::collections::BTreeMap<String, String> {
    let mut all = claim.spec.annotations.clone();
    all.extend(claim.annotations.clone());
    all.remove(labels::HANDED_OVER);
    if let Some(deadline) = claim.deletion.as_ref().and_then(|deletion| deletion.deadline) {
        all.insert(labels::TERMINATION_TIMESTAMP.to_owned(), rfc3339_seconds(deadline));
    }
    all
}

/// The deadline that a NodeClaim states for its deletion, by its metadata; `None` without one, or if it is no time (lifecycle 16).
#[must_use]
pub fn stated_deadline(meta: &ObjectMeta) -> Option<whittle_units::Timestamp> {
    meta.annotation(labels::TERMINATION_TIMESTAMP).and_then(|text| text.parse().ok())
}

/// The deadline that the NodeClaim of a claim states, among these objects of its cluster; also that of one that cannot be read as a whole.
#[must_use]
pub fn stated_deadline_of(claim: &Claim, objects: &ClusterObjects) -> Option<whittle_units::Timestamp> {
    object_of(claim, objects).and_then(stated_deadline)
}

/// The metadata of the NodeClaim that shows a claim, which may be all of it that can be read.
pub(crate) fn object_of<'a>(claim: &Claim, objects: &'a ClusterObjects) -> Option<&'a ObjectMeta> {
    let readable = objects.node_claims.iter().map(|shown| &shown.metadata);
    let mut all = readable.chain(objects.unreadable_of(NodeClaim::KIND).map(|odd| &odd.metadata));
    all.find(|meta| claim.is_mirrored_in(meta))
}

/// Whole seconds in UTC, as Kubernetes writes times.
fn rfc3339_seconds(at: whittle_units::Timestamp) -> String {
    whittle_units::Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// Whether a condition of the claim is True.
#[must_use]
pub fn holds(claim: &Claim, condition: &str) -> bool {
    conditions::is_true(&claim.conditions, condition)
}
