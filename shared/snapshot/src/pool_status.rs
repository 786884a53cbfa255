//! NodePool status: readiness and resources (disruption 17). Pure.

use std::collections::BTreeMap;
use whittle_api::conditions::{self, ConditionValue};
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{ClusterObjects, labels, runtime};
use whittle_claims::{Claim, Machine, NodeClassRecord, PoolHealth, Stored, update_health};
use whittle_model::state::counted_capacity;
use whittle_units::{Quantity, Resources, Timestamp};

/// What the status of pools depends on.
#[derive(Clone, Copy, Debug)]
pub struct PoolFacts<'a> {
    /// As they are in the cluster.
    pub objects: &'a ClusterObjects,
    pub classes: &'a [NodeClassRecord],
    pub claims: &'a [Stored<Claim>],
    pub health: &'a [PoolHealth],
    /// `None` if they were not read.
    pub nodes: Option<&'a NodesByMachine<'a>>,
}

/// Nodes by the provider id of their machine.
pub type NodesByMachine<'a> = BTreeMap<&'a str, &'a Node>;

/// The Nodes among some objects, for [`PoolFacts::nodes`].
#[must_use]
pub fn nodes_by_machine(objects: &ClusterObjects) -> NodesByMachine<'_> {
    objects.nodes.iter().map(|node| (node.spec.provider_id.as_str(), node)).collect()
}

/// The pool with its computed status; equal to the old one when nothing changed.
#[must_use]
pub fn pool_status(pool: &NodePool, facts: PoolFacts<'_>, now: Timestamp) -> NodePool {
    let mut out = pool.clone();
    let PoolFacts { classes, claims, .. } = facts;
    let class_ready = match pool.class_in(&facts.objects.node_classes) {
        Some(class) => node_class(pool, class, classes),
        None => no_such_class(pool, facts.objects),
    };
    let generation = pool.metadata.generation;
    let list = &mut out.status.conditions;
    validation(pool).set_on(list, conditions::VALIDATION_SUCCEEDED, now);
    class_ready.set_on(list, conditions::NODE_CLASS_READY, now);
    let of_ready = [conditions::VALIDATION_SUCCEEDED, conditions::NODE_CLASS_READY];
    conditions::set_ready(list, &of_ready, now);
    let is_set = |type_: &str| type_ == conditions::READY || of_ready.contains(&type_);
    for condition in list.iter_mut().filter(|condition| is_set(&condition.type_)) {
        condition.observed_generation = generation;
    }
    let health = facts.health.iter().find(|health| health.pool_uid == pool.metadata.uid);
    update_health(&mut out, class_generation(pool, facts.objects), health, now);
    let counted = match facts.nodes {
        Some(nodes) => Some(usage(pool, claims, nodes)),
        // What was counted by the Nodes is left as it is; a pool that nobody has counted yet gets a first count.
        None => pool.status.resources.is_empty().then(|| usage(pool, claims, &NodesByMachine::new())),
    };
    if let Some((resources, nodes)) = counted {
        (out.status.resources, out.status.nodes) = (resources, nodes);
    }
    out
}

/// The generation of a pool's node class; `None` while that is missing or cannot be read.
pub fn class_generation(pool: &NodePool, objects: &ClusterObjects) -> Option<i64> {
    pool.class_in(&objects.node_classes)?.metadata.generation
}

fn validation(pool: &NodePool) -> ConditionValue {
    let errors = runtime::node_pool(pool).errors;
    if errors.is_empty() {
        return ConditionValue::yes();
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    ConditionValue::no(conditions::POOL_INVALID, texts.join("; "))
}

fn no_such_class(pool: &NodePool, objects: &ClusterObjects) -> ConditionValue {
    let name = &pool.spec.template.spec.node_class_ref.name;
    let kind = if pool.is_converted_provisioner() { "AWSNodeTemplate" } else { Ec2NodeClass::KIND };
    if let Some(unreadable) = objects.unreadable_of(kind).find(|unreadable| unreadable.metadata.name == *name) {
        return ConditionValue::unknown("NodeClassUnreadable", format!("{unreadable}: {}", unreadable.remedy()));
    }
    if objects.lacks_kind(kind) {
        return ConditionValue::unknown("NodeClassUnknown", format!("the API server does not serve {kind}"));
    }
    ConditionValue::no("NodeClassNotFound", format!("EC2NodeClass {name} does not exist"))
}

fn node_class(pool: &NodePool, class: &Ec2NodeClass, classes: &[NodeClassRecord]) -> ConditionValue {
    let name = &pool.spec.template.spec.node_class_ref.name;
    let record = NodeClassRecord::referenced(classes, name, pool.is_converted_provisioner()).filter(|record| record.is_of(class));
    let Some(record) = record else {
        return ConditionValue::no("NodeClassReadinessUnknown", format!("EC2NodeClass {name} has not been resolved yet"));
    };
    if record.class.metadata.is_deleting() {
        return ConditionValue::no("NodeClassTerminating", format!("EC2NodeClass {name} is being deleted"));
    }
    if record.is_ready() {
        return ConditionValue::yes();
    }
    ConditionValue::no("UnhealthyDependents", record.problems.join("; "))
}

/// Total capacity and number of the pool's machines that are not being deleted.
fn usage(pool: &NodePool, claims: &[Stored<Claim>], known: &NodesByMachine<'_>) -> (Resources, i64) {
    let mut total: Resources = ["cpu", "memory", "pods", "ephemeral-storage", "nodes"].map(|name| (name, Quantity::ZERO)).into();
    let serving = claims.iter().map(|stored| &stored.value).filter(|claim| {
        claim.spec.node_pool == pool.metadata.name
            && !claim.is_ending()
            && (claim.spec.owner.kind == "Provisioner") == pool.is_converted_provisioner()
    });
    let mut nodes = 0;
    for (claim, machine) in serving.filter_map(|claim| Some((claim, claim.machine()?))) {
        add_capacity(&mut total, claim, machine, known.get(machine.provider_id.as_str()).copied());
        nodes += 1;
    }
    total.set("nodes", Quantity::from_units(nodes));
    (total, nodes)
}

/// Adds what a claim's machine has: by its Node, and what that does not report yet, until it has initialized, as the claim expects it.
/// Karpenter's limits and status count so, and so do the solver's limits. What has initialized once does not start again (ADR 0079), and
/// what the machine cannot have does not count (ADR 0083). Amounts of zero are left out: a kubelet reports some for each size of huge
/// pages.
fn add_capacity(total: &mut Resources, claim: &Claim, machine: &Machine, node: Option<&Node>) {
    let reported = node.map(|node| &node.status.capacity);
    let has_initialized = conditions::is_true(&claim.conditions, conditions::INITIALIZED);
    let is_expected = node.is_none_or(|node| !has_initialized && node.metadata.label(labels::INITIALIZED) != Some("true"));
    let unreported = |name: &str| reported.is_none_or(|reported| reported.get(name).is_zero());
    let counted = reported.into_iter().flat_map(Resources::iter).filter(|(_, amount)| !amount.is_zero());
    let counted = counted.map(|(name, amount)| (name, counted_capacity(name, amount, machine.capacity.get(name))));
    let expected = machine.capacity.iter().filter(|(name, _)| unreported(name));
    let expected = expected.map(|(name, amount)| (name, if is_expected { amount } else { counted_capacity(name, Quantity::ZERO, amount) }));
    for (name, amount) in counted.chain(expected).filter(|(_, amount)| !amount.is_zero()) {
        total.set(name, total.get(name).plus(amount));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::{Condition, ConditionStatus, ObjectMeta, Unreadable};
    use whittle_claims::{ClaimSpec, DeletionReason, Event};
    use whittle_testkit::{after, at, begun, deletion, joined, machine, planned, pool_named, stored};

    fn amounts(cpu: i64, memory: i64, gpus: i64) -> Resources {
        [("cpu", cpu), ("memory", memory), ("nvidia.com/gpu", gpus)].map(|(name, units)| (name, Quantity::from_units(units))).into()
    }

    /// A claim of the pool whose machine is to have 4 cores, 16 bytes and a GPU.
    fn launched(name: &str) -> Claim {
        let spec = ClaimSpec { node_pool: "default".into(), ..ClaimSpec::default() };
        let machine = Machine { capacity: amounts(4, 16, 1), ..machine(&format!("i-{name}")) };
        after(&planned(name, spec), &[begun("t"), Event::FleetAnswered(machine)], at(0))
    }

    /// The Node of such a claim, which has less memory, and whose device plugin has told of no GPU yet.
    fn node_of(claim: &Claim, is_initialized: bool) -> Node {
        let mut node = Node { metadata: ObjectMeta::named(claim.key.name.as_str()), ..Node::default() };
        node.spec.provider_id = claim.machine().unwrap().provider_id.as_str().to_owned();
        node.status.capacity = amounts(4, 15, 0);
        node.status.capacity.set("hugepages-2Mi", Quantity::ZERO);
        if is_initialized {
            node.metadata.labels.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
        }
        node
    }

    fn used(pool: &NodePool, claims: &[Claim], nodes: Option<Vec<Node>>) -> ([i64; 3], i64, usize) {
        let objects = ClusterObjects { nodes: nodes.clone().unwrap_or_default(), ..ClusterObjects::default() };
        let (claims, by_machine) = (stored(claims.iter().cloned()), nodes_by_machine(&objects));
        let facts = PoolFacts { objects: &objects, classes: &[], claims: &claims, health: &[], nodes: nodes.as_ref().map(|_| &by_machine) };
        let NodePool { status, .. } = pool_status(pool, facts, at(0));
        let of = |name| status.resources.get(name).units_floor();
        (["cpu", "memory", "nvidia.com/gpu"].map(of), status.nodes, status.resources.iter().count())
    }

    #[test]
    fn usage_is_what_nodes_report_and_until_they_have_initialized_what_is_expected_besides() {
        let (pool, claim) = (pool_named("default"), launched("a"));
        let one = std::slice::from_ref(&claim);
        // cpu, memory, pods, ephemeral-storage and nodes are always named.
        assert_eq!(used(&pool, &[], Some(Vec::new())), ([0, 0, 0], 0, 5));
        assert_eq!(used(&pool, one, Some(Vec::new())), ([4, 16, 1], 1, 6), "it has no Node yet");
        assert_eq!(used(&pool, one, Some(vec![node_of(&claim, false)])), ([4, 15, 1], 1, 6));
        assert_eq!(used(&pool, one, Some(vec![node_of(&claim, true)])), ([4, 15, 0], 1, 5));
        let both = [claim.clone(), launched("b")];
        assert_eq!(used(&pool, &both, Some(vec![node_of(&claim, true)])), ([8, 31, 1], 2, 6));
        let ending = after(&claim, &[Event::DeletionRequested(deletion(DeletionReason::Requested, at(0)))], at(0));
        assert_eq!(used(&pool, &[ending], Some(vec![node_of(&claim, true)])), ([0, 0, 0], 0, 5));
        assert_eq!(used(&pool_named("other"), one, Some(vec![node_of(&claim, true)])), ([0, 0, 0], 0, 5));
    }

    #[test]
    fn usage_of_what_has_initialized_is_what_its_node_reports_without_the_label_as_well() {
        let (pool, launched) = (pool_named("default"), launched("a"));
        let ready = after(&launched, &[joined("a"), Event::NodeReady], at(0));
        for (claim, expected) in [(launched, ([4, 15, 1], 1, 6)), (ready, ([4, 15, 0], 1, 5))] {
            let node = node_of(&claim, false);
            assert_eq!(used(&pool, std::slice::from_ref(&claim), Some(vec![node])), expected);
        }
    }

    #[test]
    fn usage_is_what_a_machine_can_have_whatever_its_node_reports() {
        let (pool, claim) = (pool_named("default"), launched("a"));
        let reporting = |capacity: Resources, is_initialized: bool| {
            let mut node = node_of(&claim, is_initialized);
            node.status.capacity = capacity;
            used(&pool, std::slice::from_ref(&claim), Some(vec![node]))
        };
        for is_initialized in [false, true] {
            assert_eq!(reporting(amounts(1_000_000, 16, 1), is_initialized), ([4, 16, 1], 1, 6), "cpu that it cannot have");
            assert_eq!(reporting(amounts(4, 1_000_000, 1), is_initialized), ([4, 16, 1], 1, 6), "nor that much memory");
            assert_eq!(reporting(amounts(0, 1, 1), is_initialized), ([4, 16, 1], 1, 6), "nor can it have none");
            assert_eq!(reporting(amounts(8, 8, 1), is_initialized), ([8, 8, 1], 1, 6), "twice as much, and half");
            assert_eq!(reporting(amounts(4, 16, 50), is_initialized), ([4, 16, 50], 1, 6), "a plugin may share each device");
        }
    }

    #[test]
    fn usage_that_was_counted_by_nodes_is_never_overwritten_without_them() {
        let (mut pool, claim) = (pool_named("default"), launched("a"));
        let one = std::slice::from_ref(&claim);
        assert_eq!(used(&pool, one, None), ([4, 16, 1], 1, 6), "nobody has counted it yet");
        (pool.status.resources, pool.status.nodes) = (amounts(4, 15, 0), 1);
        assert_eq!(used(&pool, &[claim.clone(), launched("b")], None), ([4, 15, 0], 1, 3));
    }

    fn ready(objects: &ClusterObjects) -> Condition {
        let mut pool = pool_named("default");
        "main".clone_into(&mut pool.spec.template.spec.node_class_ref.name);
        pool.metadata.generation = Some(3);
        let facts = PoolFacts { objects, classes: &[], claims: &[], health: &[], nodes: None };
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
