//! Why a NodePool that is there creates no nodes: what the conditions of its node class and its own say.

use std::fmt::{self, Display};
use whittle_api::k8s::Kind as _;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{ClusterObjects, Condition, ConditionStatus, conditions};

/// What keeps a NodePool from creating nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Its node class does not exist.
    ClassMissing { class: String },
    /// Its node class was not looked up yet: that takes seconds, and is nobody's fault.
    ClassNew { class: String },
    /// A condition of the node class, or of the pool itself, is not met.
    Condition { object: String, reason: String, message: String },
}

impl Unready {
    /// What keeps a pool from creating nodes, as far as conditions say it.
    #[must_use]
    pub fn of(pool: &NodePool, objects: &ClusterObjects) -> Option<Self> {
        let reference = &pool.spec.template.spec.node_class_ref;
        let kind = if pool.is_converted_provisioner() { "AWSNodeTemplate" } else { reference.kind.as_str() };
        let class = format!("{kind} {:?}", reference.name);
        let own = &pool.status.conditions;
        let of_pool = || {
            let unmet = unmet(own)?;
            let object =
                if unmet.type_ == conditions::NODE_CLASS_READY { class.clone() } else { format!("NodePool {:?}", pool.metadata.name) };
            Some(Self::of_condition(object, unmet))
        };
        let invalid = conditions::find(own, conditions::VALIDATION_SUCCEEDED).is_some_and(|one| one.status == ConditionStatus::False);
        if reference.kind != Ec2NodeClass::KIND || invalid {
            return of_pool();
        }
        let Some(found) = pool.class_in(&objects.node_classes) else {
            let missing =
                conditions::find(own, conditions::NODE_CLASS_READY).is_none_or(|condition| condition.reason == "NodeClassNotFound");
            return if missing { Some(Self::ClassMissing { class }) } else { of_pool() };
        };
        if found.metadata.is_deleting() {
            return Some(Self::Condition { object: class, reason: "NodeClassTerminating".to_owned(), message: String::new() });
        }
        match unmet(&found.status.conditions) {
            Some(unmet) => Some(Self::of_condition(class, unmet)),
            None if conditions::find(&found.status.conditions, conditions::READY).is_some() => of_pool(),
            // Of a class that is new, what is wrong with the pool itself tells more.
            None => of_pool().filter(|_| unmet(own).is_some_and(is_of_pool)).or(Some(Self::ClassNew { class })),
        }
    }

    fn of_condition(object: String, condition: &Condition) -> Self {
        Self::Condition { object, reason: condition.reason.clone(), message: condition.message.clone() }
    }

    /// Whether it will pass by itself within seconds.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        matches!(self, Self::ClassNew { .. })
    }
}

impl Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClassMissing { class } => write!(f, "{class} does not exist"),
            Self::ClassNew { class } => write!(f, "{class} is being looked up, which takes some seconds"),
            Self::Condition { object, reason, message } if reason.is_empty() && message.is_empty() => write!(f, "{object} is not ready"),
            Self::Condition { object, reason, message } if message.is_empty() => write!(f, "{object} is not ready: {reason}"),
            Self::Condition { object, reason, message } => write!(f, "{object} is not ready: {reason}: {message}"),
        }
    }
}

/// Whether a pool's condition denies its readiness for another reason than its node class.
fn is_of_pool(condition: &Condition) -> bool {
    condition.status == ConditionStatus::False && condition.type_ != conditions::NODE_CLASS_READY
}

/// The condition that explains why an object is not ready: the first that is False for a reason of its own, else the first that is not
/// True.
#[must_use]
pub fn unmet(all: &[Condition]) -> Option<&Condition> {
    let parts = || all.iter().filter(|condition| condition.type_ != conditions::READY && condition.status != ConditionStatus::True);
    let own = |condition: &&Condition| condition.status == ConditionStatus::False && condition.reason != "DependenciesNotReady";
    let ready = || conditions::find(all, conditions::READY).filter(|condition| condition.status == ConditionStatus::False);
    parts().find(own).or_else(ready).or_else(|| parts().next().filter(|_| !conditions::is_true(all, conditions::READY)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::ObjectMeta;

    /// Conditions by type, status, reason and message.
    fn conditions(all: &[(&str, ConditionStatus, &str, &str)]) -> Vec<Condition> {
        let condition = |(type_, status, reason, message): &(&str, ConditionStatus, &str, &str)| Condition {
            type_: (*type_).to_owned(),
            status: *status,
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            ..Condition::default()
        };
        all.iter().map(condition).collect()
    }

    fn pool(all: &[(&str, ConditionStatus, &str, &str)]) -> NodePool {
        let mut pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
        let reference = &mut pool.spec.template.spec.node_class_ref;
        (reference.kind, reference.name) = (Ec2NodeClass::KIND.to_owned(), "main".to_owned());
        pool.status.conditions = conditions(all);
        pool
    }

    fn class(all: &[(&str, ConditionStatus, &str, &str)]) -> ClusterObjects {
        let mut class = Ec2NodeClass { metadata: ObjectMeta::named("main"), ..Ec2NodeClass::default() };
        class.status.conditions = conditions(all);
        ClusterObjects { node_classes: vec![class], ..ClusterObjects::default() }
    }

    #[track_caller]
    fn check(pool: &NodePool, objects: &ClusterObjects, expected: Option<&str>) {
        assert_eq!(Unready::of(pool, objects).map(|why| why.to_string()).as_deref(), expected);
    }

    #[test]
    fn an_invalid_pool_says_so_else_the_class_is_asked_first_and_the_pool_then() {
        use ConditionStatus::{False, True, Unknown};
        let met = class(&[("SubnetsReady", True, "SubnetsReady", ""), ("Ready", True, "Ready", "")]);
        let unmet = class(&[
            ("ValidationSucceeded", Unknown, "DependenciesNotReady", ""),
            ("SubnetsReady", False, "SubnetsNotFound", "no subnet matches"),
            ("Ready", False, "UnhealthyDependents", "SubnetsReady=False"),
        ]);
        let (fine, nothing) = (pool(&[]), ClusterObjects::default());
        check(&fine, &met, None);
        check(&fine, &unmet, Some("EC2NodeClass \"main\" is not ready: SubnetsNotFound: no subnet matches"));
        check(&fine, &class(&[]), Some("EC2NodeClass \"main\" is being looked up, which takes some seconds"));
        check(&fine, &nothing, Some("EC2NodeClass \"main\" does not exist"));
        let invalid = pool(&[("ValidationSucceeded", False, "NodePoolValidationFailed", "spec.x")]);
        for class in [&met, &class(&[]), &nothing] {
            check(&invalid, class, Some("NodePool \"default\" is not ready: NodePoolValidationFailed: spec.x"));
        }
        let off = pool(&[("Ready", False, "Paused", "by hand")]);
        check(&off, &class(&[]), Some("NodePool \"default\" is not ready: Paused: by hand"));
        let waits = pool(&[("NodeClassReady", False, "NodeClassNotReady", "m"), ("Ready", False, "UnhealthyDependents", "m")]);
        check(&waits, &class(&[]), Some("EC2NodeClass \"main\" is being looked up, which takes some seconds"));
        let unreadable = pool(&[("NodeClassReady", Unknown, "NodeClassUnreadable", "it is broken")]);
        check(&unreadable, &nothing, Some("EC2NodeClass \"main\" is not ready: NodeClassUnreadable: it is broken"));
    }
}
