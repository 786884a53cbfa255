//! The contracts of the ports of a cluster.
//!
//! A suite has one port, held by one function: its calls are made with that function's rights, and everything else, such as what a user or
//! a controller does, with those of the [`ClusterPlace`]. Names of its objects contain the suite's `tag`, so that suites of several
//! functions share a cluster.

mod evictions;
mod mirrors;
mod nodes;
mod read;
mod status;

pub use evictions::evictions;
pub use mirrors::mirrors;
pub use nodes::nodes;
pub use read::{cluster_reader, workload_reader};
pub use status::{class_status, events, plan_status, pool_status};

use crate::{ClusterEvent, ClusterReader, NodePatch, Scope};
use serde_json::Value;
use whittle_api::karpenter::{NodeClaim, NodeClassReference};
use whittle_api::{ClusterObjects, OwnerReference, labels};
use whittle_claims::{Claim, ClaimSpec, Phase};
use whittle_units::{ClusterName, InstanceId, Timestamp};

/// The NodePool and the EC2NodeClass of a [`ClusterPlace`], as two documents of YAML.
pub const POOL_AND_CLASS: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node-role
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: test}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: test}}]
";

/// For how many moments something is waited for.
const MOMENTS_MAX: usize = 600;

/// A cluster as its users and controllers see it, with a scheduler and kubelets. It has the objects of [`POOL_AND_CLASS`].
pub trait ClusterPlace {
    fn cluster(&self) -> &ClusterName;
    fn now(&self) -> Timestamp;
    /// A user creates an object.
    fn create(&self, object: Value) -> impl Future<Output = ()>;
    /// A user deletes an object of this kind.
    fn delete(&self, kind: &'static str, namespace: &str, name: &str) -> impl Future<Output = ()>;
    /// A user merges this into a NodeClaim.
    fn change_claim(&self, name: &str, change: Value) -> impl Future<Output = ()>;
    /// Another controller merges this into the status of a NodePool or NodeClaim.
    fn change_status(&self, kind: &'static str, name: &str, status: Value) -> impl Future<Output = ()>;
    /// The published events of a reason.
    fn events(&self, reason: &str) -> impl Future<Output = Vec<ClusterEvent>>;
    /// A Karpenter begins to run here, or ends.
    fn run_karpenter(&self, runs: bool) -> impl Future<Output = ()>;
    /// Lets a moment pass, in which controllers, scheduler and kubelets work.
    fn pass(&self) -> impl Future<Output = ()>;
}

/// What `look` finds, as soon as it does.
async fn until<T>(place: &impl ClusterPlace, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..MOMENTS_MAX {
        if let Some(found) = look().await {
            return found;
        }
        place.pass().await;
    }
    panic!("waited in vain for {what}");
}

async fn read(place: &impl ClusterPlace, reader: &impl ClusterReader, scope: Scope) -> ClusterObjects {
    reader.read(place.cluster(), scope, None).await.expect("the API server answers")
}

async fn claim_object(place: &impl ClusterPlace, reader: &impl ClusterReader, name: &str) -> Option<NodeClaim> {
    read(place, reader, Scope::Nodes).await.node_claims.into_iter().find(|claim| claim.metadata.name == name)
}

/// A claim of NodePool `default` whose machine was launched.
fn launched_claim(place: &impl ClusterPlace, name: &str) -> Claim {
    let now = place.now();
    let machine = super::machine_launched_at(&InstanceId::new(format!("i-0{name}")), now);
    let spec = ClaimSpec {
        node_pool: "default".to_owned(),
        node_class: NodeClassReference {
            group: "karpenter.k8s.aws".to_owned(),
            kind: "EC2NodeClass".to_owned(),
            name: "default".to_owned(),
        },
        labels: [(labels::NODE_POOL.to_owned(), "default".to_owned())].into(),
        ..ClaimSpec::default()
    };
    Claim { spec, phase: Phase::Launched { machine }, ..super::planned_claim(place.cluster(), name, now) }
}

/// An owner by kind, name and uid.
fn owner(kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "karpenter.sh/v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// A ready Node with room for pods that select it by label `for`.
fn node(name: &str) -> Value {
    let resources = serde_json::json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "for": name}},
        "spec": {"providerID": format!("aws:///us-west-2a/i-0{name}")},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

/// A patch that changes nothing, as a base of others.
fn no_change() -> NodePatch {
    NodePatch::default()
}
