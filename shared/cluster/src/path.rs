//! REST paths of objects.

use std::fmt::Write;
use whittle_api::k8s::Kind;

/// `/api/v1/…` or `/apis/<group>/<version>/…` of a kind's collection.
pub(crate) fn collection<K: Kind>(namespace: &str) -> String {
    of(K::API_VERSION, namespace, K::PLURAL)
}

/// Path of one object.
pub(crate) fn object<K: Kind>(namespace: &str, name: &str) -> String {
    format!("{}/{}", collection::<K>(namespace), segment(name))
}

/// The longest name that an object has.
const NAME_MAX: usize = 253;

/// Whether an object can have this name. Users may refer to objects by any text: a pod to its claims of volumes, a buffer to its template.
/// As part of a path such a name would be no address, or that of something else, or longer than a request may be.
pub(crate) fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%']) && text.len() <= NAME_MAX
}

/// A name as part of a path.
fn segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            segment.push(char::from(byte));
        } else {
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
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
        assert_eq!(object::<Node>("", "ip-10-0-0-1.eu-west-1.compute.internal"), "/api/v1/nodes/ip-10-0-0-1.eu-west-1.compute.internal");
    }

    #[test]
    fn whatever_users_refer_to_is_one_part_of_a_path() {
        assert_eq!(object::<Pod>("a", "my pod?watch=1#é"), "/api/v1/namespaces/a/pods/my%20pod%3Fwatch%3D1%23%C3%A9");
        for name in ["p", "a.b-c", "..a", "my pod", "x?limit=1"] {
            assert!(is_name(name), "{name}: the API server is asked");
        }
        for text in ["", ".", "..", "p/eviction", "../../b/pods/p", "a%2Fb"] {
            assert!(!is_name(text), "{text:?} would be something else, or nothing");
        }
        assert!(is_name(&"a".repeat(253)) && !is_name(&"a".repeat(254)), "no name is longer");
    }
}
