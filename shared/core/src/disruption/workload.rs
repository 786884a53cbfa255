//! Which workload a pod belongs to.

use whittle_api::k8s::Pod;

/// The workload that a pod belongs to, `namespace/kind/name`; the pod itself when nothing owns it.
pub(super) fn workload_of(pod: &Pod) -> String {
    match pod.metadata.owner_references.first() {
        Some(owner) => format!("{}/{}/{}", pod.metadata.namespace, owner.kind, owner.name),
        None => format!("{}/Pod/{}", pod.metadata.namespace, pod.metadata.name),
    }
}
