//! Kubernetes Events, as `kubectl describe` shows them.

use whittle_api::k8s::{Kind, Node, Pod};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{Unreadable, labels};
use whittle_claims::{Claim, PodKey};

/// A Kubernetes Event about an object. Events of the same key within two minutes are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterEvent {
    /// `v1`/`Pod`, `karpenter.sh/v1`/`NodeClaim`, …
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Involved {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// Empty if unknown: the publisher looks it up.
    pub uid: String,
}

impl Involved {
    fn named<T: Kind>(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            api_version: T::API_VERSION.to_owned(),
            kind: T::KIND.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }
    /// An object as it was read. One that was converted from a kind before v1 is what the cluster has: a Provisioner or AWSNodeTemplate.
    pub fn object<T: Kind>(object: &T) -> Self {
        let meta = object.meta();
        let (api_version, kind) = match meta.annotation(labels::CONVERTED_FROM) {
            Some("Provisioner") => ("karpenter.sh/v1alpha5", "Provisioner"),
            Some("AWSNodeTemplate") => ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
            _ => return Self::named::<T>(&meta.namespace, &meta.name, &meta.uid),
        };
        let name = NodePool::given_name(&meta.name).to_owned();
        Self { api_version: api_version.to_owned(), kind: kind.to_owned(), namespace: String::new(), name, uid: meta.uid.clone() }
    }
    /// The NodeClaim of a claim. Its uid is only known if it is standalone.
    pub fn claim(claim: &Claim) -> Self {
        Self::named::<NodeClaim>("", claim.key.name.as_str(), claim.object_uid())
    }
    /// The owner of a claim: its NodePool, or, if it has none, its NodeClaim.
    pub fn owner(claim: &Claim) -> Self {
        match (claim.spec.owner.kind.as_str(), claim.spec.node_pool.as_str()) {
            ("Provisioner", _) | (_, "") => Self::claim(claim),
            (_, pool) => Self::named::<NodePool>("", pool, &claim.spec.owner.uid),
        }
    }
    /// A Node by its name alone.
    pub fn node(name: &str) -> Self {
        Self::named::<Node>("", name, "")
    }
    /// An object that cannot be read.
    pub fn unreadable(object: &Unreadable) -> Self {
        let meta = &object.metadata;
        let (namespace, name, uid) = (meta.namespace.clone(), meta.name.clone(), meta.uid.clone());
        Self { api_version: object.api_version.clone(), kind: object.kind.clone(), namespace, name, uid }
    }
    /// A pod.
    pub fn pod(pod: &PodKey) -> Self {
        Self::named::<Pod>(&pod.namespace, &pod.name, &pod.uid)
    }
}

impl ClusterEvent {
    /// A warning, which may need user action.
    pub fn warning(about: Involved, reason: &str, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(about, reason, message) }
    }
    /// The Event for an object that cannot be read: it is left alone, with everything that belongs to it.
    pub fn unreadable(object: &Unreadable) -> Self {
        Self::warning(Involved::unreadable(object), "Unreadable", object.remedy())
    }
    /// The Events on a claim, and on its Node, that an interruption ends them.
    pub fn of_interruption(claim: &Claim) -> Vec<Self> {
        let ends = |about: Involved| {
            let message = format!("Interruption triggered termination for the {}", about.kind);
            Self::warning(about, "TerminatingOnInterruption", message)
        };
        let node = claim.node_name().map(Involved::node);
        std::iter::once(Involved::claim(claim)).chain(node).map(ends).collect()
    }
    /// A normal Event.
    pub fn normal(about: Involved, reason: &str, message: impl Into<String>) -> Self {
        let Involved { api_version, kind, namespace, name, uid } = about;
        Self { api_version, kind, namespace, name, uid, warning: false, reason: reason.to_owned(), message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::ObjectMeta;
    use whittle_api::karpenter::Ec2NodeClass;

    fn meta(name: &str, kind: &str) -> ObjectMeta {
        let annotations = [(labels::CONVERTED_FROM.to_owned(), kind.to_owned())].into();
        ObjectMeta { uid: "u".to_owned(), annotations, ..ObjectMeta::named(name) }
    }

    #[test]
    fn an_event_is_about_what_the_cluster_has() {
        let of = |about: Involved| format!("{} {} {} {}", about.api_version, about.kind, about.name, about.uid);
        let pool = |meta| Involved::object(&NodePool { metadata: meta, ..NodePool::default() });
        assert_eq!(of(pool(meta("Provisioner/default", "Provisioner"))), "karpenter.sh/v1alpha5 Provisioner default u");
        assert_eq!(of(pool(ObjectMeta::named("default"))), "karpenter.sh/v1 NodePool default ");
        let class = Ec2NodeClass { metadata: meta("default", "AWSNodeTemplate"), ..Ec2NodeClass::default() };
        assert_eq!(of(Involved::object(&class)), "karpenter.k8s.aws/v1alpha1 AWSNodeTemplate default u");
    }
}
