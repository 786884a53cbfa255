//! REST paths of objects.

use whittle_api::k8s::Kind;

/// `/api/v1/…` or `/apis/<group>/<version>/…` of a kind's collection.
pub(crate) fn collection<K: Kind>(namespace: &str) -> String {
    of(K::API_VERSION, namespace, K::PLURAL)
}

/// Path of one object.
pub(crate) fn object<K: Kind>(namespace: &str, name: &str) -> String {
    format!("{}/{name}", collection::<K>(namespace))
}

/// Path of a collection; an empty namespace means all of them, or none for cluster-scoped kinds.
pub(crate) fn of(api_version: &str, namespace: &str, plural: &str) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    match namespace {
        "" => format!("/{root}/{api_version}/{plural}"),
        namespace => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::k8s::{Node, Pod, PodDisruptionBudget};
    use whittle_api::karpenter::NodePool;

    #[test]
    fn paths_follow_group_and_namespace() {
        assert_eq!(collection::<Pod>(""), "/api/v1/pods");
        assert_eq!(object::<Pod>("a", "b"), "/api/v1/namespaces/a/pods/b");
        assert_eq!(object::<Node>("", "n"), "/api/v1/nodes/n");
        assert_eq!(collection::<PodDisruptionBudget>(""), "/apis/policy/v1/poddisruptionbudgets");
        assert_eq!(object::<NodePool>("", "p"), "/apis/karpenter.sh/v1/nodepools/p");
    }
}
