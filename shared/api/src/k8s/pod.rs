//! Pods: the fields that scheduling, disruption and draining use.

use crate::meta::{LabelSelector, ObjectMeta, SelectorRequirement, null_as_default};
use crate::shared::Shared;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{Resources, SignedDuration, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}
super::kind!(Pod, "v1", "Pod", "pods", true, crate::protobuf::POD);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Empty while unbound.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub tolerations: Shared<Vec<Toleration>>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub topology_spread_constraints: Shared<Vec<TopologySpreadConstraint>>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub containers: Shared<Vec<Container>>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub init_containers: Shared<Vec<Container>>,
    /// Pod-level requests (they replace the sum over containers for the resources that they name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub overhead: Resources,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub volumes: Vec<Volume>,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "null_as_default")]
    pub host_network: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub priority_class_name: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub preemption_policy: String,
    /// The RuntimeClass of which the API server has added what such pods need.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub runtime_class_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub scheduling_gates: Vec<serde_json::Value>,
    /// Dynamic resource claims: detected, but not supported.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub resource_claims: Vec<serde_json::Value>,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub restart_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub phase: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<PodCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub nominated_node_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub container_statuses: Shared<Vec<ContainerStatus>>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub init_container_statuses: Shared<Vec<ContainerStatus>>,
    /// The resources of the pod as a whole that are in force; absent on kubelets that do not resize them in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The resources that the node has allocated to the pod as a whole.
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub allocated_resources: Resources,
    /// The ResourceClaim that kube-scheduler has made for the extended resources that come from a DRA driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedResourceClaimStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub request_mappings: Vec<ExtendedResourceRequest>,
}

/// The extended resource of a container that a request of the claim stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedResourceRequest {
    pub resource_name: String,
}

/// The status of a container: its resources while it is resized in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// The resources in force; absent on kubelets without in-place resize.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The resources that the node has allocated to the container.
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub allocated_resources: Resources,
}

/// A pod's condition; the status is text because controllers add their own types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

impl Pod {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }
    /// Succeeded or Failed.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
    /// Bound to a node.
    pub fn is_bound(&self) -> bool {
        !self.spec.node_name.is_empty()
    }
    /// Controlled by a DaemonSet.
    pub fn is_daemon(&self) -> bool {
        self.metadata.controller().is_some_and(|owner| owner.kind == "DaemonSet")
    }
    /// A static pod, owned by its Node.
    pub fn is_static(&self) -> bool {
        self.metadata.owner_references.iter().any(|owner| owner.kind == "Node")
    }
    /// Names of the PersistentVolumeClaims that it uses, those that are made for it included; all are in its namespace.
    pub fn volume_claim_names(&self) -> impl Iterator<Item = String> {
        self.spec.volumes.iter().filter_map(move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", self.metadata.name, volume.name)),
            (None, None) => None,
        })
    }
    /// The extended resources that it has from a DRA driver: its node need not report them.
    pub fn claimed_resources(&self) -> impl Iterator<Item = &str> {
        let claimed = self.status.extended_resource_claim_status.as_ref();
        claimed.into_iter().flat_map(|claimed| &claimed.request_mappings).map(|request| request.resource_name.as_str())
    }
    /// When it was bound to its node, ended or was told to end, whichever came last; `None` while it is bound to none. In whole seconds,
    /// by the clocks of the API server and of the kubelet.
    pub fn last_event(&self) -> Option<Timestamp> {
        if !self.is_bound() {
            return None;
        }
        let is_finished = self.is_terminal();
        let tells = |condition: &&PodCondition| match condition.type_.as_str() {
            "PodScheduled" => condition.status == "True",
            // A pod that has ended is not ready since then; of one that runs, this may be at any time.
            "Ready" | "ContainersReady" | "PodReadyToStartContainers" => is_finished && condition.status == "False",
            _ => false,
        };
        let told = self.status.conditions.iter().filter(tells).filter_map(|condition| condition.last_transition_time).max();
        // The API server writes when the pod has to be gone.
        let grace = SignedDuration::from_secs(self.metadata.deletion_grace_period_seconds.unwrap_or_default());
        let deleted = self.metadata.deletion_timestamp.map(|at| at.checked_sub(grace).unwrap_or(at));
        told.max(deleted)
    }
    /// Whether the scheduler has marked the pod as unschedulable.
    pub fn is_marked_unschedulable(&self) -> bool {
        self.condition("PodScheduled").is_some_and(|condition| condition.status == "False" && condition.reason == "Unschedulable")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub ports: Vec<ContainerPort>,
    /// `Always` on an init container makes it a sidecar.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub restart_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub requests: Resources,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub limits: Resources,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub claims: Vec<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    pub container_port: i32,
    pub host_port: i32,
    #[serde(rename = "hostIP", deserialize_with = "null_as_default")]
    pub host_ip: String,
    /// TCP when empty.
    #[serde(deserialize_with = "null_as_default")]
    pub protocol: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    #[serde(deserialize_with = "null_as_default")]
    pub key: String,
    /// Equal when empty, or Exists.
    #[serde(deserialize_with = "null_as_default")]
    pub operator: String,
    #[serde(deserialize_with = "null_as_default")]
    pub value: String,
    /// All effects when empty.
    #[serde(deserialize_with = "null_as_default")]
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Option::is_none")]
    pub required: Option<NodeSelector>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// One of the terms must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    #[serde(deserialize_with = "null_as_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All expressions of a term must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub match_expressions: Vec<SelectorRequirement>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub match_fields: Vec<SelectorRequirement>,
}

impl NodeSelectorTerm {
    /// Whether the term asks for nothing. As a required term it matches no node; as a preference it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PreferredSchedulingTerm {
    pub weight: i32,
    pub preference: NodeSelectorTerm,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub required: Vec<PodAffinityTerm>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    pub topology_key: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub match_label_keys: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub mismatch_label_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    pub weight: i32,
    pub pod_affinity_term: PodAffinityTerm,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    pub max_skew: i32,
    pub topology_key: String,
    /// DoNotSchedule when empty, or ScheduleAnyway.
    pub when_unsatisfiable: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    /// Honor when absent, or Ignore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    /// Ignore when absent, or Honor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub match_label_keys: Vec<String>,
}

/// A volume of a pod: only the references to a claim or a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralSource>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSource {
    pub claim_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<EphemeralTemplate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralTemplate {
    pub spec: super::PersistentVolumeClaimSpec,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_uses_the_claims_that_it_names_and_those_that_are_made_for_it() {
        let volumes = json!([
            {"name": "token"}, {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}, {"name": "scratch", "ephemeral": {}}
        ]);
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web-0"}, "spec": {"volumes": volumes}})).unwrap();
        assert_eq!(pod.volume_claim_names().collect::<Vec<_>>(), ["shared", "web-0-scratch"]);
    }

    #[test]
    fn a_pod_tells_which_extended_resources_it_has_from_dra_drivers() {
        let mappings = json!([{"containerName": "a", "resourceName": "nvidia.com/gpu", "requestName": "r"}]);
        let status = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mappings}});
        let pod: Pod = serde_json::from_value(json!({"status": status})).unwrap();
        assert_eq!(pod.claimed_resources().collect::<Vec<_>>(), ["nvidia.com/gpu"]);
        assert_eq!(Pod::default().claimed_resources().count(), 0);
    }
}
