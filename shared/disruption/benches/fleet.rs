//! A large cluster to consolidate: twenty pools of equal nodes under several policies, with daemons, disruption budgets,
//! and apps with topology spread or anti-affinity. A tenth of the nodes is nearly idle, half is filled to about 80%, the
//! rest completely; a few pods are pending.

use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{
    Affinity, Container, DaemonSet, IntOrString, Node, Pod, PodAffinity, PodAffinityTerm, PodCondition, PodDisruptionBudget,
    ResourceRequirements, TopologySpreadConstraint,
};
use whittle_api::karpenter::{Budget, ConsolidationPolicy, NodeClaim, NodeClassReference, NodePool, Requirement};
use whittle_api::{ClusterObjects, ConditionStatus, LabelSelector, NillableDuration, OwnerReference, conditions, labels};
use whittle_units::{Price, Quantity, Resources, Timestamp};

const POOLS: usize = 20;
const APPS: usize = 200;
const DAEMONS: usize = 2;
const ZONES: [&str; 3] = ["a", "b", "c"];

/// Objects, and the instance types of each pool.
pub(crate) fn cluster<T: FromIterator<InstanceType>>(nodes: usize, pods: usize) -> (ClusterObjects, BTreeMap<String, Arc<T>>) {
    let types: Vec<InstanceType> = (0..400).map(instance_type).collect();
    let offered: Arc<T> = Arc::new(types.iter().cloned().collect());
    let mut objects = ClusterObjects::default();
    let mut catalog = BTreeMap::new();
    for at in 0..POOLS {
        let pool = pool(at);
        catalog.insert(pool.metadata.name.clone(), Arc::clone(&offered));
        objects.node_pools.push(pool);
    }
    objects.daemon_sets = (0..DAEMONS).map(daemon_set).collect();
    objects.disruption_budgets = (0..60).map(disruption_budget).collect();
    // Nearly idle nodes have less than their share of the pods.
    let each = (pods * 100).div_ceil(nodes * 92).saturating_sub(DAEMONS);
    for at in 0..nodes {
        let (node, claim) = machine(at, &types);
        for number in 0..DAEMONS {
            objects.pods.push(daemon(at, number, &node.metadata.name));
        }
        // One node in ten is nearly idle, half are filled to about 80%, the others completely.
        let (count, more) = match at % 10 {
            0 => (each / 5, 0),
            1..=5 => (each, 0),
            _ => (each, 70),
        };
        objects.pods.extend((0..count).map(|number| pod(at, number, more, &node.metadata.name)));
        objects.nodes.push(node);
        objects.node_claims.push(claim);
    }
    objects.pods.extend((0..5).map(|number| pending(nodes, number)));
    (objects, catalog)
}

fn pool(at: usize) -> NodePool {
    let mut pool = NodePool::default();
    pool.metadata.name = format!("pool-{at:02}");
    pool.spec.disruption.budgets = vec![Budget { nodes: IntOrString::Text("10%".to_owned()), ..Budget::default() }];
    pool.spec.disruption.consolidation_policy = match at {
        1 => ConsolidationPolicy::WhenEmpty,
        2 => ConsolidationPolicy::Balanced,
        _ => ConsolidationPolicy::WhenEmptyOrUnderutilized,
    };
    if at == 3 {
        pool.spec.limits.set("cpu", Quantity::from_units(100_000));
    }
    pool.spec.template.spec.node_class_ref = node_class();
    pool.spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"])];
    conditions::set(&mut pool.status.conditions, conditions::READY, ConditionStatus::True, "", "", Timestamp::UNIX_EPOCH);
    pool
}

fn node_class() -> NodeClassReference {
    NodeClassReference { group: "karpenter.k8s.aws".to_owned(), kind: "EC2NodeClass".to_owned(), name: "default".to_owned() }
}

/// Sizes of 2 to 64 cores in three shapes of memory, and a few generations of each.
fn instance_type(at: usize) -> InstanceType {
    let cpu = 2i64 << (at % 6);
    let memory_per_cpu = [2048, 4096, 8192][at / 6 % 3];
    let generation = i64::try_from(at / 18).expect("a small number");
    let name = format!("g{generation}m{memory_per_cpu}.{cpu}");
    let dollars = (0.02 * cpu as f64 + 0.000_005 * (memory_per_cpu * cpu) as f64) * (1.0 + generation as f64 * 0.01);
    let mut offerings = Vec::new();
    for (capacity, factor) in [("on-demand", 1.0), ("spot", 0.35)] {
        for zone in ZONES {
            let requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity]), Requirement::is_in(labels::ZONE, [zone])];
            offerings.push(Offering {
                requirements,
                price: Price::from_dollars(dollars * factor),
                available: true,
                reservation_capacity: None,
            });
        }
    }
    InstanceType {
        requirements: vec![
            Requirement::is_in(labels::INSTANCE_TYPE, [name.clone()]),
            Requirement::is_in(labels::ARCH, ["amd64"]),
            Requirement::is_in(labels::OS, ["linux"]),
            Requirement::is_in(labels::ZONE, ZONES),
            Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"]),
        ],
        name,
        offerings,
        capacity: room(cpu, memory_per_cpu),
        overhead: Resources::from([("cpu", Quantity::from_milli(100))]),
        ebs_attachments: None,
    }
}

fn room(cpu: i64, memory_per_cpu: i64) -> Resources {
    let memory = Quantity::from_mebibytes(cpu * memory_per_cpu);
    Resources::from([("cpu", Quantity::from_units(cpu)), ("memory", memory), ("pods", Quantity::from_units(110))])
}

fn machine(at: usize, types: &[InstanceType]) -> (Node, NodeClaim) {
    // Sixteen cores with 4 GiB each: thirty pods of 400m fill twelve of them.
    let kind = types.iter().find(|kind| kind.name == "g0m4096.16").expect("the catalog has it");
    let name = format!("node-{at:05}");
    let created: Timestamp = "2025-12-31T12:00:00Z".parse().expect("a literal time");
    let own: BTreeMap<String, String> = [
        (labels::NODE_POOL, format!("pool-{:02}", at % POOLS)),
        (labels::INSTANCE_TYPE, kind.name.clone()),
        (labels::ZONE, ZONES[at % 3].to_owned()),
        (labels::CAPACITY_TYPE, "on-demand".to_owned()),
        (labels::ARCH, "amd64".to_owned()),
        (labels::OS, "linux".to_owned()),
        (labels::REGISTERED, "true".to_owned()),
        (labels::INITIALIZED, "true".to_owned()),
        (labels::HOSTNAME, name.clone()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    let mut claim = NodeClaim::default();
    claim.metadata.name = format!("claim-{at:05}");
    claim.metadata.labels = own.clone().into();
    claim.metadata.creation_timestamp = Some(created);
    claim.spec.node_class_ref = node_class();
    claim.spec.expire_after = NillableDuration::Never;
    claim.status.provider_id = format!("aws:///a/i-{at:05}");
    for type_ in [conditions::LAUNCHED, conditions::REGISTERED, conditions::INITIALIZED] {
        conditions::set(&mut claim.status.conditions, type_, ConditionStatus::True, "", "", created);
    }
    let mut node = Node::default();
    node.metadata.name = name;
    node.metadata.labels = own.into();
    node.spec.provider_id.clone_from(&claim.status.provider_id);
    (node.status.capacity, node.status.allocatable) = (kind.capacity.clone(), kind.allocatable());
    (claim.status.capacity, claim.status.allocatable) = (kind.capacity.clone(), kind.allocatable());
    conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::True, "", "", created);
    (node, claim)
}

fn pod(node: usize, number: usize, more: i64, node_name: &str) -> Pod {
    let at = (node * 7 + number) % APPS;
    let mut pod = Pod::default();
    pod.metadata.name = format!("web-{node:05}-{number:03}");
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.uid = format!("uid-{node}-{number}");
    let app = format!("app-{at}");
    pod.metadata.labels.insert("app".to_owned(), app.clone());
    pod.metadata.owner_references.push(owner("ReplicaSet", &app));
    node_name.clone_into(&mut pod.spec.node_name);
    // The average is 430m and 1.2 GiB.
    let step = i64::try_from((node + number) % 5).expect("a small number");
    pod.spec.containers.push(container(350 + more + 40 * step, 1_024 + 96 * step));
    let others = || Some(LabelSelector { match_labels: BTreeMap::from([("app".to_owned(), app.clone())]), ..LabelSelector::default() });
    let spread = |key: &str, when: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: when.to_owned(),
        label_selector: others(),
        ..TopologySpreadConstraint::default()
    };
    match at {
        0..10 => pod.spec.topology_spread_constraints = vec![spread(labels::ZONE, "DoNotSchedule")].into(),
        10..20 => pod.spec.topology_spread_constraints = vec![spread(labels::HOSTNAME, "ScheduleAnyway")].into(),
        20..30 => {
            let apart =
                PodAffinityTerm { label_selector: others(), topology_key: labels::HOSTNAME.to_owned(), ..PodAffinityTerm::default() };
            let apart = PodAffinity { required: vec![apart], ..PodAffinity::default() };
            pod.spec.affinity = Some(Affinity { pod_anti_affinity: Some(apart), ..Affinity::default() });
        }
        _ => {}
    }
    "Running".clone_into(&mut pod.status.phase);
    pod.status.conditions.push(scheduled("True", ""));
    pod
}

fn pending(nodes: usize, number: usize) -> Pod {
    let mut pod = pod(nodes, number + 40, 0, "");
    "Pending".clone_into(&mut pod.status.phase);
    pod.status.conditions = vec![scheduled("False", "Unschedulable")];
    pod
}

fn scheduled(status: &str, reason: &str) -> PodCondition {
    let (status, reason) = (status.to_owned(), reason.to_owned());
    PodCondition { type_: "PodScheduled".to_owned(), status, reason, ..PodCondition::default() }
}

fn owner(kind: &str, name: &str) -> OwnerReference {
    let (kind, name) = (kind.to_owned(), name.to_owned());
    OwnerReference { api_version: "apps/v1".to_owned(), kind, name, controller: Some(true), ..OwnerReference::default() }
}

fn container(cpu: i64, memory: i64) -> Container {
    let requests = Resources::from([("cpu", Quantity::from_milli(cpu)), ("memory", Quantity::from_mebibytes(memory))]);
    let resources = ResourceRequirements { requests, ..ResourceRequirements::default() };
    Container { name: "app".to_owned(), resources: Some(resources), ..Container::default() }
}

fn daemon_set(at: usize) -> DaemonSet {
    let mut set = DaemonSet::default();
    set.metadata.name = format!("agent-{at}");
    set.metadata.namespace = "kube-system".to_owned();
    set.spec.template.spec.containers.push(container(50, 64));
    set
}

fn daemon(node: usize, number: usize, node_name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = format!("agent-{number}-{node:05}");
    pod.metadata.namespace = "kube-system".to_owned();
    pod.metadata.uid = format!("uid-agent-{node}-{number}");
    pod.metadata.owner_references.push(owner("DaemonSet", &format!("agent-{number}")));
    node_name.clone_into(&mut pod.spec.node_name);
    pod.spec.containers.push(container(50, 64));
    "Running".clone_into(&mut pod.status.phase);
    pod.status.conditions.push(scheduled("True", ""));
    pod
}

/// The budget of an app; a few allow no disruption now.
fn disruption_budget(at: usize) -> PodDisruptionBudget {
    let mut budget = PodDisruptionBudget::default();
    budget.metadata.name = format!("app-{at}");
    budget.metadata.namespace = "default".to_owned();
    let match_labels = BTreeMap::from([("app".to_owned(), format!("app-{at}"))]);
    budget.spec.selector = Some(LabelSelector { match_labels, ..LabelSelector::default() });
    budget.status.disruptions_allowed = i32::from(!(40..45).contains(&at));
    budget
}
