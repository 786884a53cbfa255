//! Virtual pods of capacity buffers.

use whittle_api::k8s::{Pod, PodCondition, PodStatus, PodTemplate};
use whittle_api::karpenter::CapacityBuffer;
use whittle_api::{ObjectMeta, conditions};

/// The annotation that marks a virtual pod; only pods with all three of these are virtual.
pub const FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
/// The annotation with the name of its buffer.
pub const BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
/// The annotation with the namespace of its buffer.
pub const BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";

/// The virtual pods of `buffer`; none while it is not ready.
#[must_use]
pub fn virtual_pods(buffer: &CapacityBuffer, template: &PodTemplate) -> Vec<Pod> {
    let count = buffer.status.replicas.unwrap_or(0).max(0);
    if !conditions::is_true(&buffer.status.conditions, conditions::READY_FOR_PROVISIONING) {
        return Vec::new();
    }
    (1..=count).map(|n| virtual_pod(buffer, template, n)).collect()
}

fn virtual_pod(buffer: &CapacityBuffer, template: &PodTemplate, n: i32) -> Pod {
    let meta = &buffer.metadata;
    let mut spec = template.spec.clone();
    spec.node_name.clear();
    spec.priority = Some(i32::MIN);
    spec.volumes.retain(|v| v.persistent_volume_claim.is_none() && v.ephemeral.is_none());
    let marks = [(FAKE_POD, "true"), (BUFFER_NAME, &meta.name), (BUFFER_NAMESPACE, &meta.namespace)];
    let condition =
        PodCondition { type_: "PodScheduled".into(), status: "False".into(), reason: "Unschedulable".into(), ..PodCondition::default() };
    Pod {
        metadata: ObjectMeta {
            name: format!("capacity-buffer-{}-{n}", meta.name),
            namespace: meta.namespace.clone(),
            uid: format!("{}-{n}", meta.uid),
            labels: template.metadata.labels.clone(),
            annotations: marks.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..ObjectMeta::default()
        },
        spec,
        status: PodStatus { conditions: vec![condition], ..PodStatus::default() },
    }
}

/// Whether the pod is a virtual pod of a buffer.
#[must_use]
pub fn is_virtual(pod: &Pod) -> bool {
    let has_annotation = |key| pod.metadata.annotation(key).is_some_and(|value| !value.is_empty());
    pod.metadata.annotation(FAKE_POD) == Some("true") && has_annotation(BUFFER_NAME) && has_annotation(BUFFER_NAMESPACE)
}
