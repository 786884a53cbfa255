//! The Kubernetes API, one trait per right.

use crate::{Answer, CloudError, CloudErrorKind, ClusterEvent};
use std::collections::BTreeMap;
use whittle_api::k8s::{PodSource, PodSourceKind, Taint, Workloads};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_api::{ClusterObjects, OwnerReference};
use whittle_claims::PodKey;
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// A failed call to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("{what} does not exist")]
    NotFound { what: String },
    /// Changed since it was read.
    #[error("{what} was changed concurrently")]
    Conflict { what: String },
    /// An eviction that a PodDisruptionBudget forbids (429; 403 and 409 where it cannot be counted in it), or two budgets on one pod (500).
    #[error("{what} may not be evicted now: {message}")]
    EvictionForbidden { what: String, message: String },
    /// The API server throttles us.
    #[error("the API server throttles {what}")]
    Throttled { what: String },
    /// The request can never be accepted.
    #[error("{what} was refused: {message}")]
    Invalid { what: String, message: String },
    /// The cluster cannot be accessed as configured: it needs user action.
    #[error("cluster {cluster} cannot be used: {message}")]
    NoAccess { cluster: ClusterName, message: String },
    /// Unreachable, or it is unknown whether the call happened.
    #[error("the API server of {cluster} did not respond for {what}: {message}")]
    Unavailable { cluster: ClusterName, what: String, message: String },
}

impl ClusterError {
    /// The error when EKS does not return a cluster's endpoint, or there is no token for it.
    pub fn of_access(cluster: &ClusterName, error: &CloudError) -> Self {
        let remedy = match error.kind {
            CloudErrorKind::NotFound => {
                "there is no cluster of that name in this account and region: correct the stack's parameter Clusters"
            }
            CloudErrorKind::Unauthorized => {
                "the function's role may not call eks:DescribeCluster: check for a service control policy or a permissions boundary"
            }
            CloudErrorKind::Invalid => "EKS refuses the name: correct the stack's parameter Clusters",
            _ => {
                let (cluster, what) = (cluster.clone(), "its address".to_owned());
                return Self::Unavailable { cluster, what, message: error.to_string() };
            }
        };
        Self::NoAccess { cluster: cluster.clone(), message: format!("{remedy} ({error})") }
    }
}

/// Which objects of a cluster to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everything that a decision needs. Which volumes are attached matters to drains alone.
    All,
    /// Nodes, NodeClaims, NodePools and node classes.
    Nodes,
    /// NodePools, node classes and NodeClaims.
    Karpenter,
    /// Nodes and NodeClaims, which is what changes while machines join.
    NodesAndClaims,
    /// What draining one node needs: its Node, and the pods on it. Budgets are the eviction API's to know.
    Drain,
    /// The volumes that are attached to one node and, while there are any, the volume claims of the pods that are on it. Claims of other
    /// pods may be among them.
    Volumes,
    /// The pods on one node.
    Pods,
    /// What a plan can be for: pods that are bound to no node, and capacity buffers; with the overlays, whose status a plan writes.
    Unbound,
}

/// A kind whose objects can be looked up by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    NodePool,
    Provisioner,
    NodeClaim,
    NodeClass,
    NodeTemplate,
    Node,
}

/// The API server's response to a request for one object by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Readable or not.
    Exists {
        uid: String,
        /// `metadata.generation`: it differs if the spec has changed, or the object is being deleted.
        generation: Option<i64>,
        /// `status.providerID` of a NodeClaim, empty before it has a machine; `spec.providerID` of a Node; empty for other kinds.
        provider_id: String,
    },
    /// There is no object of that name.
    NotFound,
    /// The kind is not served, so nothing is known about its objects.
    KindNotServed,
}

/// How long a Node is kept for each that there is, in milliseconds: each of two functions reads five hundred in an hour, so that a thousand
/// are read once. Kubelets write every Node once in five minutes though nothing about it changes, and a watch tells all of it.
const KEPT_FOR_EACH_MS: i64 = 7_200;
/// The longest that anything is kept.
const KEPT_FOR_MAX: SignedDuration = SignedDuration::from_hours(2);

/// How old the Nodes of [`ClusterReader::read_kept`] may be, by their number: a tick of a small cluster sees all that is new.
#[must_use]
pub fn kept_for(nodes: usize) -> SignedDuration {
    let milliseconds = i64::try_from(nodes).unwrap_or(i64::MAX).saturating_mul(KEPT_FOR_EACH_MS);
    SignedDuration::from_millis(milliseconds).min(KEPT_FOR_MAX)
}

/// How long their metadata are taken for granted, in which a deletion shows, or that a user forbids a disruption.
#[must_use]
pub fn confirmed_for(nodes: usize) -> SignedDuration {
    kept_for(nodes) / 8
}

/// Reads a cluster.
pub trait ClusterReader: Sync {
    /// `node` narrows `Scope::Drain`, `Scope::Volumes` and `Scope::Pods` to one node's name. Unreadable objects are listed as such,
    /// never left out.
    fn read(&self, cluster: &ClusterName, scope: Scope, node: Option<&str>) -> impl Answer<ClusterObjects, ClusterError>;
    /// The same of `Scope::All` and `Scope::Nodes` at little cost: Nodes, and objects that seldom change, are as this execution environment
    /// saw them, up to [`kept_for`] ago. `None` where that is not enough: nothing is kept, the number of
    /// Nodes is another or their metadata after [`confirmed_for`], or pods or their budgets have changed. What is to be done about such a
    /// look has to be decided again on a newest one (ADR 0059).
    fn read_kept(&self, cluster: &ClusterName, scope: Scope) -> impl Answer<Option<ClusterObjects>, ClusterError> {
        let _ = (cluster, scope);
        std::future::ready(Ok(None))
    }
    /// For each node, when a pod on it that is gone now was last bound, ended or asked to end, if this execution environment saw that in a
    /// watch: such a pod may appear in no list. Pods of DaemonSets and static pods do not count.
    fn departures(&self, cluster: &ClusterName) -> impl Future<Output = BTreeMap<String, Timestamp>> + Send {
        let _ = cluster;
        std::future::ready(BTreeMap::new())
    }
    /// Reads one object by name, in its newest state. Its absence from a list proves nothing; this does.
    fn look_up(&self, cluster: &ClusterName, kind: ObjectKind, name: &str) -> impl Answer<Presence, ClusterError>;
}

/// Reads workloads. Only called if something needs it: cluster-default spread constraints and capacity buffers.
pub trait WorkloadReader: Sync {
    /// Selectors of all Services, ReplicaSets, StatefulSets and ReplicationControllers.
    fn selectors(&self, cluster: &ClusterName) -> impl Answer<Workloads, ClusterError>;
    /// The object that defines the pods of a capacity buffer; `None` if there is no such object, and what is wrong with it if it cannot
    /// be read. An error is not about this object alone.
    fn pod_source(
        &self,
        cluster: &ClusterName,
        kind: PodSourceKind,
        namespace: &str,
        name: &str,
    ) -> impl Answer<Option<Result<PodSource, String>>, ClusterError>;
}

/// Writes NodeClaim mirrors.
pub trait Mirrors: Sync {
    /// Creates or updates metadata and status of a mirror; the spec of an existing one is never touched, nor are labels and
    /// annotations of others. An empty status leaves that of the object as it is. A mirror with a uid is the object of that uid: it is
    /// never created, and the error is `NotFound` if that is gone.
    fn apply_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim) -> impl Answer<(), ClusterError>;
    /// Requests the deletion of a mirror (its finalizer keeps it until `release_mirror`), but only one of this uid (empty:
    /// whichever has the name). Success if it is gone, or another has its name.
    fn delete_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> impl Answer<(), ClusterError>;
    /// Removes our finalizer from a mirror of this uid (empty: whichever has the name); success if it is gone.
    fn release_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> impl Answer<(), ClusterError>;
    /// Makes a mirror an ordinary NodeClaim, as Karpenter has them: only the annotation that marks it as Whittle's is removed. Success
    /// if it is gone.
    fn hand_over_mirror(&self, cluster: &ClusterName, name: &str) -> impl Answer<(), ClusterError>;
}

/// A change of a Node; empty fields change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePatch {
    /// Only the Node of this uid is changed, and another one is a conflict; empty: whichever has the name.
    pub uid: String,
    /// A Node that is being deleted is left as it is, and is a conflict.
    pub unless_deleting: bool,
    pub labels: BTreeMap<String, String>,
    pub remove_labels: Vec<String>,
    pub annotations: BTreeMap<String, String>,
    pub remove_annotations: Vec<String>,
    /// Added unless a taint of the same key and effect exists.
    pub add_taints: Vec<Taint>,
    /// Removed by key and effect.
    pub remove_taints: Vec<Taint>,
    pub add_finalizer: Option<String>,
    pub remove_finalizer: Option<String>,
    /// Added unless an owner of the same uid exists.
    pub owner: Option<OwnerReference>,
    /// Removes all NodeClaims from the owners, so that the Node outlives them.
    pub disown: bool,
}

/// Changes Nodes.
pub trait Nodes: Sync {
    /// Applies a patch against the read resource version (empty: any); a conflict is an error.
    fn patch_node(&self, cluster: &ClusterName, name: &str, resource_version: &str, patch: &NodePatch) -> impl Answer<(), ClusterError>;
    /// Requests the deletion of the Node of this uid (empty: whichever has the name); success if it is gone, or another has its name.
    fn delete_node(&self, cluster: &ClusterName, name: &str, uid: &str) -> impl Answer<(), ClusterError>;
}

/// Evicts and deletes pods. Only `terminate` has this right. A pod that is gone (by uid) is `NotFound`.
pub trait Evictions: Sync {
    /// Evicts through the eviction API, which respects disruption budgets.
    fn evict(&self, cluster: &ClusterName, pod: &PodKey) -> impl Answer<(), ClusterError>;
    /// Deletes regardless of budgets, with this grace period in seconds: only past a deadline that the user set, or when the
    /// machine is lost anyway. An eviction is tried first, because only that sets the pod's condition `DisruptionTarget`.
    fn delete_pod(&self, cluster: &ClusterName, pod: &PodKey, grace_seconds: i64) -> impl Answer<(), ClusterError>;
}

/// Publishes events and the status of the user's objects. The status of an object that is gone, or that was converted from one of an old
/// kind, is dropped: that is a success.
pub trait StatusWriter: Sync {
    /// An event without the uid of its NodeClaim, Node or NodePool gets that of the object of its name, if there is one.
    /// One in a namespace that is being deleted is dropped: that is a success.
    fn publish(&self, cluster: &ClusterName, event: &ClusterEvent) -> impl Answer<(), ClusterError>;
    fn write_node_pool_status(&self, cluster: &ClusterName, pool: &NodePool) -> impl Answer<(), ClusterError>;
    /// Writes the status, our hash annotations and our finalizer.
    fn write_node_class_status(&self, cluster: &ClusterName, class: &Ec2NodeClass) -> impl Answer<(), ClusterError>;
    fn write_node_overlay_status(&self, cluster: &ClusterName, overlay: &NodeOverlay) -> impl Answer<(), ClusterError>;
    fn write_capacity_buffer_status(&self, cluster: &ClusterName, buffer: &CapacityBuffer) -> impl Answer<(), ClusterError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_kept_for_longer_where_there_are_more() {
        let minutes = SignedDuration::from_mins;
        assert!(kept_for(8) < minutes(1) && kept_for(9) > minutes(1), "each tick of a small cluster reads all");
        assert_eq!([kept_for(0), kept_for(500), kept_for(1_000), kept_for(usize::MAX)], [0, 60, 120, 120].map(minutes));
        assert_eq!([confirmed_for(200), confirmed_for(1_000), confirmed_for(usize::MAX)], [3, 15, 15].map(minutes));
    }
}
