//! The workload of a pod.

use whittle_api::k8s::Pod;

/// The owner of a pod, `namespace/kind/name`, or the pod itself if it has none.
pub(super) fn workload_of(pod: &Pod) -> String {
    match pod.metadata.owner_references.first() {
        Some(owner) => format!("{}/{}/{}", pod.metadata.namespace, owner.kind, owner.name),
        None => format!("{}/Pod/{}", pod.metadata.namespace, pod.metadata.name),
    }
}
