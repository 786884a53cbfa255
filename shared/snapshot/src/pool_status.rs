//! NodePool status: readiness and resources (disruption 17). Pure.

use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{ClusterObjects, ConditionStatus, conditions, runtime};
use whittle_claims::{Claim, NodeClassRecord, PoolHealth, Stored, update_health};
use whittle_units::{Quantity, Resources, Timestamp};

/// What the status of pools depends on.
#[derive(Clone, Copy, Debug)]
pub struct PoolFacts<'a> {
    /// As they are in the cluster.
    pub objects: &'a ClusterObjects,
    pub classes: &'a [NodeClassRecord],
    pub claims: &'a [Stored<Claim>],
    pub health: &'a [PoolHealth],
}

/// The pool with its computed status; equal to the old one when nothing changed.
#[must_use]
pub fn pool_status(pool: &NodePool, facts: PoolFacts<'_>, now: Timestamp) -> NodePool {
    let mut out = pool.clone();
    let PoolFacts { classes, claims, .. } = facts;
    let (valid, valid_reason, valid_message) = validation(pool);
    let (class, class_reason, class_message) = match pool.class_in(&facts.objects.node_classes) {
        Some(class) => node_class(pool, class, classes),
        None => no_such_class(pool, facts.objects),
    };
    let generation = pool.metadata.generation;
    let list = &mut out.status.conditions;
    conditions::set(list, conditions::VALIDATION_SUCCEEDED, valid, valid_reason, &valid_message, now);
    conditions::set(list, conditions::NODE_CLASS_READY, class, class_reason, &class_message, now);
    let of_ready = [conditions::VALIDATION_SUCCEEDED, conditions::NODE_CLASS_READY];
    conditions::set_ready(list, &of_ready, now);
    let is_set = |type_: &str| type_ == conditions::READY || of_ready.contains(&type_);
    for condition in list.iter_mut().filter(|condition| is_set(&condition.type_)) {
        condition.observed_generation = generation;
    }
    let health = facts.health.iter().find(|health| health.pool_uid == pool.metadata.uid);
    update_health(&mut out, class_generation(pool, facts.objects), health, now);
    let (resources, nodes) = usage(pool, claims);
    out.status.resources = resources;
    out.status.nodes = nodes;
    out
}

pub fn class_generation(pool: &NodePool, objects: &ClusterObjects) -> Option<i64> {
    pool.class_in(&objects.node_classes)?.metadata.generation
}

fn validation(pool: &NodePool) -> (ConditionStatus, &'static str, String) {
    let errors = runtime::node_pool(pool).errors;
    if errors.is_empty() {
        return (ConditionStatus::True, conditions::VALIDATION_SUCCEEDED, String::new());
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    (ConditionStatus::False, conditions::POOL_INVALID, texts.join("; "))
}

fn no_such_class(pool: &NodePool, objects: &ClusterObjects) -> (ConditionStatus, &'static str, String) {
    let name = &pool.spec.template.spec.node_class_ref.name;
    let kind = if pool.is_converted_provisioner() { "AWSNodeTemplate" } else { Ec2NodeClass::KIND };
    if let Some(unreadable) = objects.unreadable_of(kind).find(|unreadable| unreadable.metadata.name == *name) {
        return (ConditionStatus::Unknown, "NodeClassUnreadable", format!("{unreadable}: {}", unreadable.remedy()));
    }
    if objects.lacks_kind(kind) {
        return (ConditionStatus::Unknown, "NodeClassUnknown", format!("the API server does not serve {kind}"));
    }
    (ConditionStatus::False, "NodeClassNotFound", format!("EC2NodeClass {name} does not exist"))
}

fn node_class(pool: &NodePool, class: &Ec2NodeClass, classes: &[NodeClassRecord]) -> (ConditionStatus, &'static str, String) {
    let name = &pool.spec.template.spec.node_class_ref.name;
    let record = NodeClassRecord::referenced(classes, name, pool.is_converted_provisioner()).filter(|record| record.is_of(class));
    let Some(record) = record else {
        return (ConditionStatus::False, "NodeClassReadinessUnknown", format!("EC2NodeClass {name} has not been resolved yet"));
    };
    if record.class.metadata.is_deleting() {
        return (ConditionStatus::False, "NodeClassTerminating", format!("EC2NodeClass {name} is being deleted"));
    }
    if record.is_ready() {
        return (ConditionStatus::True, conditions::NODE_CLASS_READY, String::new());
    }
    (ConditionStatus::False, "UnhealthyDependents", record.problems.join("; "))
}

/// Total capacity and number of the pool's machines that are not being deleted.
fn usage(pool: &NodePool, claims: &[Stored<Claim>]) -> (Resources, i64) {
    let mut total: Resources = ["cpu", "memory", "pods", "ephemeral-storage", "nodes"].map(|name| (name, Quantity::ZERO)).into();
    let serving = claims.iter().map(|stored| &stored.value).filter(|claim| {
        claim.spec.node_pool == pool.metadata.name
            && !claim.is_ending()
            && (claim.spec.owner.kind == "Provisioner") == pool.is_converted_provisioner()
    });
    let mut nodes = 0;
    for machine in serving.filter_map(Claim::machine) {
        total.add(&machine.capacity);
        nodes += 1;
    }
    total.set("nodes", Quantity::from_units(nodes));
    (total, nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::{Condition, ObjectMeta, Unreadable};
    use whittle_testkit::{at, pool_named};

    fn ready(objects: &ClusterObjects) -> Condition {
        let mut pool = pool_named("default");
        "main".clone_into(&mut pool.spec.template.spec.node_class_ref.name);
        pool.metadata.generation = Some(3);
        let facts = PoolFacts { objects, classes: &[], claims: &[], health: &[] };
        let shown = pool_status(&pool, facts, at(0));
        assert!(shown.status.conditions.iter().all(|condition| condition.observed_generation == Some(3)));
        conditions::find(&shown.status.conditions, conditions::READY).unwrap().clone()
    }

    #[track_caller]
    fn check(objects: &ClusterObjects, status: ConditionStatus, reason: &str, message: &str) {
        let ready = ready(objects);
        assert_eq!((ready.status, ready.reason.as_str(), ready.message.as_str()), (status, reason, message));
    }

    #[test]
    fn a_pool_is_not_ready_without_its_class_and_unknown_while_the_class_cannot_be_seen() {
        check(&ClusterObjects::default(), ConditionStatus::False, "UnhealthyDependents", "NodeClassReady=False");
        let not_served = ClusterObjects { absent_kinds: vec![Ec2NodeClass::KIND.to_owned()], ..ClusterObjects::default() };
        check(&not_served, ConditionStatus::Unknown, "ReconcilingDependents", "NodeClassReady=Unknown");
        let odd = Unreadable { kind: Ec2NodeClass::KIND.to_owned(), metadata: ObjectMeta::named("main"), ..Unreadable::default() };
        let unreadable = ClusterObjects { unreadable: vec![odd], ..ClusterObjects::default() };
        check(&unreadable, ConditionStatus::Unknown, "ReconcilingDependents", "NodeClassReady=Unknown");
    }
}
