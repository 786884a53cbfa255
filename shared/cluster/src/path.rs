//! REST paths of objects.

use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::legacy::{BetaNodeClaim, BetaNodeClass, BetaNodePool};

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

/// The same path in the version before v1 of a kind that has one.
pub(crate) fn before_v1(path: &str) -> Option<String> {
    let rest_of = |api_version: &str| path.strip_prefix("/apis/")?.strip_prefix(api_version)?.strip_prefix('/');
    let versions = [
        (NodePool::API_VERSION, NodePool::PLURAL, BetaNodePool::API_VERSION),
        (NodeClaim::API_VERSION, NodeClaim::PLURAL, BetaNodeClaim::API_VERSION),
        (Ec2NodeClass::API_VERSION, Ec2NodeClass::PLURAL, BetaNodeClass::API_VERSION),
    ];
    versions.into_iter().find_map(|(now, plural, before)| {
        let rest = rest_of(now).filter(|rest| rest.split('/').next() == Some(plural))?;
        Some(format!("/apis/{before}/{rest}"))
    })
}

/// The API version in a path of a group.
pub(crate) fn api_version(path: &str) -> String {
    path.split('/').skip(2).take(2).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::k8s::{Node, Pod, PodDisruptionBudget};

    #[test]
    fn kinds_of_v1_have_a_path_of_before() {
        let class = before_v1(&format!("{}/status", object::<Ec2NodeClass>("", "c"))).expect("it has one");
        assert_eq!(
            (class.as_str(), api_version(&class).as_str()),
            ("/apis/karpenter.k8s.aws/v1beta1/ec2nodeclasses/c/status", "karpenter.k8s.aws/v1beta1")
        );
        assert_eq!(before_v1(&object::<NodePool>("", "p")).as_deref(), Some("/apis/karpenter.sh/v1beta1/nodepools/p"));
        assert_eq!(before_v1("/apis/karpenter.sh/v1/others/p"), None);
        assert_eq!(before_v1(&object::<Node>("", "n")), None);
    }

    #[test]
    fn paths_follow_group_and_namespace() {
        assert_eq!(collection::<Pod>(""), "/api/v1/pods");
        assert_eq!(object::<Pod>("a", "b"), "/api/v1/namespaces/a/pods/b");
        assert_eq!(object::<Node>("", "n"), "/api/v1/nodes/n");
        assert_eq!(collection::<PodDisruptionBudget>(""), "/apis/policy/v1/poddisruptionbudgets");
        assert_eq!(object::<NodePool>("", "p"), "/apis/karpenter.sh/v1/nodepools/p");
    }
}
