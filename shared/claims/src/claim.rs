//! A NodeClaim as Whittle stores it. The object in the cluster is only a mirror of it.

use crate::phase::Phase;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use whittle_api::k8s::Taint;
use whittle_api::karpenter::{NodeClaim, NodeClaimSpec, NodeClassReference, Requirement};
use whittle_api::{Condition, GoDuration, NillableDuration, ObjectMeta, OwnerReference, labels};
use whittle_units::{ClaimName, ClusterName, InstanceId, Price, ProviderId, Resources, Timestamp};

/// The key of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimKey {
    pub cluster: ClusterName,
    pub name: ClaimName,
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.name)
    }
}

/// Counts the writes of one stored value. A write names the revision that it replaces, and fails if another came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// The expected revision of a value that must not exist yet.
    pub const ABSENT: Self = Self(0);
    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A value as read, with the revision that a write of it must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    pub value: T,
    pub revision: Revision,
}

/// A pod, by namespace and name; the uid distinguishes it from a successor of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
    #[serde(default)]
    pub uid: String,
}

/// What was planned; never changes after the claim's creation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimSpec {
    pub node_pool: String,
    /// The object that owns the mirror: the NodePool, or the Provisioner that it was converted from.
    pub owner: OwnerReference,
    pub node_class: NodeClassReference,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// The requirements of the NodeClaim object, including the instance types.
    pub requirements: Vec<Requirement>,
    /// Candidate types, cheapest first.
    pub instance_types: Vec<String>,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    pub requests: Resources,
    pub expire_after: NillableDuration,
    pub termination_grace_period: Option<GoDuration>,
    /// Pods planned for; informative after their binding.
    pub pods: Vec<PodKey>,
    /// Of the cheapest candidate when planned.
    pub price: Price,
    /// The disruption that this claim replaces nodes for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The uid of the standalone NodeClaim that this claim belongs to: only that object is its mirror, and no other is created in
    /// its place. `None` for a planned claim, whose object is ours.
    #[serde(rename = "made_by_hand", default, skip_serializing_if = "Option::is_none")]
    pub standalone_uid: Option<String>,
    /// Extra capacity of the candidate types by NodeOverlays: plan and launch rely on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_capacity: Vec<ExtraCapacity>,
    /// Prices of the candidate types by NodeOverlays, which plan and launch order offerings by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlaid_prices: Vec<OverlaidPrice>,
    /// Whether pods without a place wait to know where it is launched, as in which zone: its launch rings `schedule`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_awaited: bool,
}

/// Resources that types have in addition to, or instead of, those that EC2 reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraCapacity {
    /// By name.
    pub instance_types: Vec<String>,
    pub resources: Resources,
}

/// A price that offerings have instead of EC2's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlaidPrice {
    /// As in a NodeOverlay: `0.5` replaces EC2's price, `+0.1` and `-10%` change it.
    pub price: String,
    /// By name.
    pub instance_types: Vec<String>,
    /// Capacity type and zone of the offerings; empty for all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub offerings: BTreeSet<(String, String)>,
}

impl ClaimSpec {
    /// What a NodeClaim object asks for.
    #[must_use]
    pub fn of_object(asked: &NodeClaimSpec) -> Self {
        Self {
            node_class: asked.node_class_ref.clone(),
            requirements: asked.requirements.clone(),
            taints: asked.taints.clone(),
            startup_taints: asked.startup_taints.clone(),
            requests: asked.resources.requests.clone(),
            expire_after: asked.expire_after.clone(),
            termination_grace_period: asked.termination_grace_period.clone(),
            ..Self::default()
        }
    }

    /// The price of an offering by NodeOverlays, as they write it.
    pub fn overlaid_price(&self, instance_type: &str, capacity_type: &str, zone: &str) -> Option<&str> {
        let offered =
            |each: &OverlaidPrice| each.offerings.is_empty() || each.offerings.contains(&(capacity_type.to_owned(), zone.to_owned()));
        let named = |each: &&OverlaidPrice| each.instance_types.iter().any(|name| name == instance_type) && offered(each);
        self.overlaid_prices.iter().find(named).map(|each| each.price.as_str())
    }

    /// The extra capacity of a type.
    pub fn extra_of(&self, instance_type: &str) -> Option<&Resources> {
        let named = |extra: &&ExtraCapacity| extra.instance_types.iter().any(|name| name == instance_type);
        self.extra_capacity.iter().find(named).map(|extra| &extra.resources)
    }
}

/// The machine of a claim, from the moment that EC2 returned the instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub instance_id: InstanceId,
    pub provider_id: ProviderId,
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    pub image_id: String,
    pub price: Price,
    pub capacity: Resources,
    pub allocatable: Resources,
    /// Labels that the launch resolved (instance type, zone, capacity type, …).
    pub labels: BTreeMap<String, String>,
    pub launched_at: Timestamp,
}

impl Machine {
    /// Whether it counts as running in a capacity reservation. Sometimes only its labels say so: they are those of the Node or NodeClaim
    /// that it was adopted with, and were not updated when it left the reservation.
    pub fn is_reserved(&self) -> bool {
        let label = self.labels.get(labels::CAPACITY_TYPE);
        self.capacity_type == labels::CAPACITY_RESERVED || label.is_some_and(|label| label == labels::CAPACITY_RESERVED)
    }
}

/// Why a claim is deleted. The texts are the `reason` of metrics and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletionReason {
    Empty,
    Underutilized,
    Drifted,
    Expired,
    Unhealthy,
    SpotInterruption,
    ScheduledChange,
    Rebalance,
    InstanceStopped,
    InstanceGone,
    /// A user deleted the mirror or the Node.
    Requested,
    NodePoolDeleted,
    /// A static NodePool was scaled down.
    ScaledDown,
    LaunchTimeout,
    RegistrationTimeout,
    InsufficientCapacity,
    NodeClassNotReady,
    /// A replacement that is not needed any more.
    RolledBack,
}

impl DeletionReason {
    /// Whether the instance is lost at a time that we do not choose, so that its pods are moved regardless of budgets.
    pub const fn is_involuntary(self) -> bool {
        matches!(self, Self::SpotInterruption | Self::InstanceStopped | Self::InstanceGone)
    }
}

/// The deletion of a claim: why, since when, and until when draining may wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    pub reason: DeletionReason,
    pub at: Timestamp,
    /// After this moment draining is forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Whether the deadline was not set by the user: EC2 has announced that it takes the machine at that time. Records of earlier
    /// releases lack it, so use [`Self::is_due_by_notice`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deadline_is_notice: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Deletion {
    /// A deletion without a time at which draining is forced.
    #[must_use]
    pub fn without_deadline(reason: DeletionReason, at: Timestamp, message: impl Into<String>) -> Self {
        Self { reason, at, deadline: None, deadline_is_notice: false, message: message.into() }
    }
}

/// A claim: spec, phase, conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub key: ClaimKey,
    /// We generate it, because it is needed before the mirror exists. The API server gives the mirror another one. The claim of a
    /// standalone NodeClaim has the uid of that object.
    pub uid: String,
    pub created_at: Timestamp,
    pub spec: ClaimSpec,
    pub phase: Phase,
    /// Set once, never reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Annotations that were added after creation (launch, tagging).
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pod_event_at: Option<Timestamp>,
    /// A hash of the workload pods on the node at the last pass of `consolidate`; a change is a pod event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_fingerprint: Option<u64>,
    /// When the delayed doorbell for this claim is due. While it is in the future no other has to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_again_at: Option<Timestamp>,
    /// Since when the Node of a terminating machine has been missing in the reads of `terminate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_missing_since: Option<Timestamp>,
    /// Since when EC2 has not shown the instance of a terminating machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_missing_since: Option<Timestamp>,
    /// When pods last left the node that `terminate` drains, or were told to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_moved_at: Option<Timestamp>,
}

impl Claim {
    /// The machine, if there is one.
    pub fn machine(&self) -> Option<&Machine> {
        self.phase.machine()
    }
    /// The machine of a claim that has ended; `None` if the machine runs on, because an uninstallation left it to the user or it was handed
    /// over to another controller: such claims are not being deleted.
    pub fn ended_machine(&self) -> Option<&Machine> {
        let is_handed_over = self.annotations.get(labels::HANDED_OVER).is_some_and(|told| told == "true");
        match &self.phase {
            Phase::Gone { machine, .. } if self.deletion.is_some() && !is_handed_over => machine.as_ref(),
            _ => None,
        }
    }
    /// The instance of the claim, even after it has ended.
    pub fn instance(&self) -> Option<&InstanceId> {
        match &self.phase {
            Phase::Gone { machine, .. } => machine.as_ref(),
            phase => phase.machine(),
        }
        .map(|machine| &machine.instance_id)
    }
    /// Whether EC2 chooses its machine's partition of a placement group and has not reported yet: the Node waits for the label
    /// (aws 7.8).
    pub fn awaits_partition(&self) -> bool {
        let is_empty = |machine: &Machine| machine.labels.get(labels::PLACEMENT_GROUP_PARTITION).is_some_and(String::is_empty);
        self.machine().is_some_and(is_empty)
    }
    /// Labels its machine with the partition that EC2 chose; a known one is kept.
    pub fn set_partition(&mut self, partition: u32) {
        if self.awaits_partition()
            && let Some(machine) = self.phase.machine_mut()
        {
            machine.labels.insert(labels::PLACEMENT_GROUP_PARTITION.to_owned(), partition.to_string());
        }
    }
    /// The Node's name, once registered.
    pub fn node_name(&self) -> Option<&str> {
        self.phase.node_name()
    }
    /// Whether an object of the cluster is the mirror of this claim. A standalone one may have a successor of the same name,
    /// which is not.
    pub fn is_mirrored_by(&self, shown: &NodeClaim) -> bool {
        self.is_mirrored_in(&shown.metadata)
    }
    /// The same by the metadata of a NodeClaim, which may be all of it that can be read.
    pub fn is_mirrored_in(&self, meta: &ObjectMeta) -> bool {
        let same_name = meta.name == self.key.name.as_str();
        same_name && self.spec.standalone_uid.as_ref().is_none_or(|uid| *uid == meta.uid)
    }
    /// The uid that the claim's object must have; empty if any object of its name is ours.
    pub fn object_uid(&self) -> &str {
        self.spec.standalone_uid.as_deref().unwrap_or_default()
    }
    /// True while the claim may still have a machine or get one.
    pub fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Gone { .. } | Phase::Failed { .. })
    }
    /// True when the claim is being deleted or has ended.
    pub fn is_ending(&self) -> bool {
        self.deletion.is_some() || !self.is_live()
    }
}
