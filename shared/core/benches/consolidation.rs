//! A full consolidation pass with a verdict for every node: `cargo bench -p whittle-core --bench consolidation [NODES PODS]`.
//!
//! The cluster is twenty pools of equal nodes. Each node carries thirty pods (of the default sizes) that fill about four
//! fifths of it; one node in ten is nearly idle, so that there is something to find.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{Container, IntOrString, Node, Pod, PodCondition, ResourceRequirements};
use whittle_api::karpenter::{Budget, NodeClaim, NodeClassReference, NodePool, Requirement};
use whittle_api::{ClusterObjects, ConditionStatus, NillableDuration, OwnerReference, conditions, labels};
use whittle_core::disruption::{Input, Memory, Settings, decide};
use whittle_core::schedule::{self, Workloads};
use whittle_core::state::ClusterState;
use whittle_units::{Price, Quantity, Resources, Timestamp};

const POOLS: usize = 20;
const ZONES: [&str; 3] = ["a", "b", "c"];

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (nodes, pods) = match arguments[..] {
        [nodes, pods] => (nodes, pods),
        _ => (1_000, 30_000),
    };
    let (objects, catalog) = cluster(nodes, pods);
    let state = ClusterState::of(&objects);
    let settings = Settings::standard();
    let (facts, memory) = (BTreeMap::new(), Memory::default());
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a literal time");
    let workloads = Workloads::default();
    let input =
        schedule::Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let started = Instant::now();
    let decision = decide(Input { cluster: input, facts: &facts, memory: &memory, settings: &settings });
    let elapsed = started.elapsed();
    let fresh = decision.verdicts.iter().filter(|verdict| !verdict.why.is_stale()).count();
    println!("nodes {nodes}, pods {pods}: {:.2} s, {fresh} fresh verdicts, {} commands", elapsed.as_secs_f64(), decision.commands.len());
    let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in &decision.verdicts {
        *codes.entry(verdict.why.code()).or_default() += 1;
    }
    println!("{codes:?}");
}

fn cluster(nodes: usize, pods: usize) -> (ClusterObjects, BTreeMap<String, Arc<Vec<InstanceType>>>) {
    let types: Arc<Vec<InstanceType>> = Arc::new((0..400).map(instance_type).collect());
    let mut objects = ClusterObjects::default();
    let mut catalog = BTreeMap::new();
    for at in 0..POOLS {
        let pool = pool(at);
        catalog.insert(pool.metadata.name.clone(), Arc::clone(&types));
        objects.node_pools.push(pool);
    }
    let each = pods / nodes;
    for at in 0..nodes {
        let (node, claim) = machine(at, &types);
        let idle = at % 10 == 0;
        for number in 0..(if idle { each / 5 } else { each }) {
            objects.pods.push(pod(at, number, &node.metadata.name));
        }
        objects.nodes.push(node);
        objects.node_claims.push(claim);
    }
    (objects, catalog)
}

fn pool(at: usize) -> NodePool {
    let mut pool = NodePool::default();
    pool.metadata.name = format!("pool-{at:02}");
    pool.spec.disruption.budgets = vec![Budget { nodes: IntOrString::Text("10%".to_owned()), ..Budget::default() }];
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
    }
}

fn room(cpu: i64, memory_per_cpu: i64) -> Resources {
    let memory = Quantity::from_mebibytes(cpu * memory_per_cpu);
    Resources::from([("cpu", Quantity::from_units(cpu)), ("memory", memory), ("pods", Quantity::from_units(110))])
}

fn machine(at: usize, types: &[InstanceType]) -> (Node, NodeClaim) {
    // Sixteen cores, four gibibytes each: thirty pods of 400m fill twelve of them.
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
    claim.metadata.labels.clone_from(&own);
    claim.metadata.creation_timestamp = Some(created);
    claim.spec.node_class_ref = node_class();
    claim.spec.expire_after = NillableDuration::Never;
    claim.status.provider_id = format!("aws:///a/i-{at:05}");
    for type_ in [conditions::LAUNCHED, conditions::REGISTERED, conditions::INITIALIZED] {
        conditions::set(&mut claim.status.conditions, type_, ConditionStatus::True, "", "", created);
    }
    let mut node = Node::default();
    node.metadata.name = name;
    node.metadata.labels = own;
    node.spec.provider_id.clone_from(&claim.status.provider_id);
    (node.status.capacity, node.status.allocatable) = (kind.capacity.clone(), kind.allocatable());
    (claim.status.capacity, claim.status.allocatable) = (kind.capacity.clone(), kind.allocatable());
    conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::True, "", "", created);
    (node, claim)
}

fn pod(node: usize, number: usize, node_name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = format!("web-{node:05}-{number:03}");
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.uid = format!("uid-{node}-{number}");
    let app = format!("app-{}", (node * 7 + number) % 200);
    pod.metadata.labels.insert("app".to_owned(), app.clone());
    pod.metadata.owner_references.push(OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: app,
        controller: Some(true),
        ..OwnerReference::default()
    });
    node_name.clone_into(&mut pod.spec.node_name);
    // Sizes vary a little, as they do; the average is 430m and 1.2 GiB.
    let step = i64::try_from((node + number) % 5).expect("a small number");
    let requests =
        Resources::from([("cpu", Quantity::from_milli(350 + 40 * step)), ("memory", Quantity::from_mebibytes(1_024 + 96 * step))]);
    let asked = ResourceRequirements { requests, ..ResourceRequirements::default() };
    pod.spec.containers.push(Container { name: "app".to_owned(), resources: Some(asked), ..Container::default() });
    "Running".clone_into(&mut pod.status.phase);
    let scheduled = PodCondition { type_: "PodScheduled".to_owned(), status: "True".to_owned(), ..PodCondition::default() };
    pod.status.conditions.push(scheduled);
    pod
}
