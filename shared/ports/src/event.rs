//! Kubernetes Events, as `kubectl describe` shows them.

use whittle_api::k8s::{Kind, Node, Pod};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{Condition, ConditionStatus, Unreadable, conditions, labels};
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
    /// The Events of a written change of an object: one for each condition whose status is another, with its type as reason, and one for
    /// each finalizer that was removed (lifecycle 20). A condition that is new is only news if it is False. None of an object that was
    /// converted from one of an old kind: it keeps no status, so that every write would be news. Pure.
    pub fn of_change<T: Kind>(before: &T, after: &T, conditions_of: impl Fn(&T) -> &[Condition]) -> Vec<Self> {
        let meta = after.meta();
        if matches!(meta.annotation(labels::CONVERTED_FROM), Some("Provisioner" | "AWSNodeTemplate")) {
            return Vec::new();
        }
        let normal = |reason: &str, message: String| Self::normal(Involved::object(after), reason, message);
        let transition = |condition: &Condition| {
            let known = conditions::find(conditions_of(before), &condition.type_);
            let was = known.map_or(ConditionStatus::Unknown, |known| known.status);
            let is_news = was != condition.status && (known.is_some() || condition.status == ConditionStatus::False);
            is_news.then(|| normal(&condition.type_, transition_message(was, condition)))
        };
        let is_removed = |finalizer: &&String| !meta.finalizers.iter().any(|held| held == *finalizer);
        let removed = before.meta().finalizers.iter().filter(is_removed);
        let finalized = removed.map(|finalizer| normal("Finalized", format!("Finalized {finalizer}")));
        conditions_of(after).iter().filter_map(transition).chain(finalized).collect()
    }
    /// A normal Event.
    pub fn normal(about: Involved, reason: &str, message: impl Into<String>) -> Self {
        let Involved { api_version, kind, namespace, name, uid } = about;
        Self { api_version, kind, namespace, name, uid, warning: false, reason: reason.to_owned(), message: message.into() }
    }
}

/// The words of Karpenter's Event.
fn transition_message(was: ConditionStatus, condition: &Condition) -> String {
    let Condition { type_, status, reason, message, .. } = condition;
    let message = if message.is_empty() { String::new() } else { format!(", Message: {message}") };
    format!("Status condition transitioned, Type: {type_}, Status: {was:?} -> {status:?}, Reason: {reason}{message}")
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

    fn conditions_of(all: &[(&str, ConditionStatus, &str, &str)]) -> Vec<Condition> {
        let condition = |(type_, status, reason, message): &(&str, ConditionStatus, &str, &str)| Condition {
            type_: (*type_).to_owned(),
            status: *status,
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            ..Condition::default()
        };
        all.iter().map(condition).collect()
    }

    /// Reasons and messages of the Events when conditions of a pool become others.
    fn events_of(before: &[(&str, ConditionStatus, &str, &str)], after: &[(&str, ConditionStatus, &str, &str)]) -> Vec<(String, String)> {
        let metadata = ObjectMeta { uid: "u".to_owned(), ..ObjectMeta::named("default") };
        let pool = |all| {
            let mut pool = NodePool { metadata: metadata.clone(), ..NodePool::default() };
            pool.status.conditions = conditions_of(all);
            pool
        };
        let events = ClusterEvent::of_change(&pool(before), &pool(after), |pool| pool.status.conditions.as_slice());
        let of_pool = Involved::object(&pool(after));
        assert!(events.iter().all(|event| *event == ClusterEvent::normal(of_pool.clone(), &event.reason, event.message.clone())));
        events.into_iter().map(|event| (event.reason, event.message)).collect()
    }

    #[test]
    fn a_condition_with_another_status_is_an_event() {
        use ConditionStatus::{False, True, Unknown};
        let ready = ("Ready", True, "Ready", "");
        let denied = ("Ready", False, "UnhealthyDependents", "NodeClassReady=False");
        let became =
            |was: &str, is: &str| ("Ready".to_owned(), format!("Status condition transitioned, Type: Ready, Status: {was} -> {is}"));
        let (reason, text) = became("True", "False");
        let stopped = (reason, format!("{text}, Reason: UnhealthyDependents, Message: NodeClassReady=False"));
        assert_eq!(events_of(&[ready], &[denied]), [stopped]);
        let (reason, text) = became("False", "True");
        assert_eq!(events_of(&[denied], &[ready]), [(reason, format!("{text}, Reason: Ready"))]);
        let (reason, text) = became("True", "Unknown");
        let waits = ("Ready", Unknown, "ReconcilingDependents", "");
        assert_eq!(events_of(&[ready], &[waits]), [(reason, format!("{text}, Reason: ReconcilingDependents"))]);
    }

    #[test]
    fn only_another_status_is_news_and_of_a_new_condition_only_that_it_is_false() {
        use ConditionStatus::{False, True, Unknown};
        let denied = |reason, message| ("Ready", False, reason, message);
        assert_eq!(events_of(&[denied("A", "a")], &[denied("B", "b")]), []);
        assert_eq!(events_of(&[denied("A", "a")], &[]), []);
        assert_eq!(events_of(&[], &[("Ready", True, "Ready", ""), ("NodeRegistrationHealthy", Unknown, "", "")]), []);
        let text = "Status condition transitioned, Type: Ready, Status: Unknown -> False, Reason: A, Message: a";
        assert_eq!(events_of(&[], &[denied("A", "a")]), [("Ready".to_owned(), text.to_owned())]);
    }

    #[test]
    fn a_converted_object_keeps_no_status_and_has_no_events_of_it() {
        let of = |kind: &str, conditions: Vec<Condition>| {
            let mut pool = NodePool { metadata: meta("default", kind), ..NodePool::default() };
            pool.status.conditions = conditions;
            pool
        };
        let denied = conditions_of(&[("Ready", ConditionStatus::False, "A", "a")]);
        let events = |kind: &str| {
            ClusterEvent::of_change(&of(kind, Vec::new()), &of(kind, denied.clone()), |pool| pool.status.conditions.as_slice())
        };
        assert_eq!((events("Provisioner").len(), events("karpenter.sh/v1beta1").len()), (0, 1), "an older version of the kind keeps one");
    }

    #[test]
    fn a_removed_finalizer_is_an_event_and_an_added_one_is_none() {
        let of = |finalizers: &[&str]| {
            let mut class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
            class.metadata.finalizers = finalizers.iter().map(|&one| one.to_owned()).collect();
            class
        };
        let events = |before: &[&str], after: &[&str]| {
            let events = ClusterEvent::of_change(&of(before), &of(after), |class| class.status.conditions.as_slice());
            events.into_iter().map(|event| (event.reason, event.message)).collect::<Vec<_>>()
        };
        let gone = ("Finalized".to_owned(), "Finalized karpenter.k8s.aws/termination".to_owned());
        assert_eq!(events(&["theirs", labels::NODE_CLASS_FINALIZER], &["theirs"]), [gone]);
        assert_eq!(events(&[], &[labels::NODE_CLASS_FINALIZER]), []);
    }
}
