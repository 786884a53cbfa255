//! Karpenter's own scheduling benchmark: 400 instance types and a mix of five kinds of pods.

#![allow(clippy::field_reassign_with_default, reason = "objects with a few fields set read better as assignments")]

use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{
    Affinity, Container, Node, NodeAffinity, NodeSelectorTerm, Pod, PodAffinity, PodAffinityTerm, PodCondition, PreferredSchedulingTerm,
    ResourceRequirements, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use whittle_api::karpenter::{NodePool, Operator, Requirement};
use whittle_api::{ClusterObjects, LabelSelector, ObjectMeta, SelectorRequirement, labels};
use whittle_units::{Price, Quantity, Resources};

/// Numbers that look random and are the same everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ z >> 31) % n as u64).unwrap_or(0)
    }
}

const CPU: [i64; 5] = [100, 250, 500, 1000, 1500];
const MEMORY: [i64; 6] = [100, 256, 512, 1024, 2048, 4096];
const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// The 400 types: one CPU and 2 Gi more each, spot in two zones, on demand in three.
pub(crate) fn instance_types(count: i64) -> Vec<InstanceType> {
    (0..count).map(instance_type).collect()
}

fn instance_type(i: i64) -> InstanceType {
    let cpu = i + 1;
    let memory = Quantity::from_mebibytes(2048 * cpu);
    let nanos = u64::try_from(cpu * 100_000_000 + memory.units_floor() / 10).unwrap_or(0);
    let offer = |capacity_type: &str, zone: &str| Offering {
        requirements: vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]), Requirement::is_in(labels::ZONE, [zone])],
        price: Price::from_nanos(nanos),
        available: true,
        reservation_capacity: None,
    };
    let zones = ["test-zone-1", "test-zone-2", "test-zone-3"];
    let large = cpu > 4;
    let mut requirements = vec![
        Requirement::is_in(labels::INSTANCE_TYPE, [format!("fake-it-{i}")]),
        Requirement::is_in(labels::ARCH, ["amd64"]),
        Requirement::is_in(labels::OS, ["linux", "windows", "darwin"]),
        Requirement::is_in(labels::ZONE, zones),
        Requirement::is_in(labels::CAPACITY_TYPE, ["spot", "on-demand"]),
        Requirement::is_in("integer", [cpu.to_string()]),
        Requirement::is_in("size", [if large { "large" } else { "small" }]),
    ];
    requirements.push(if large {
        Requirement::is_in("special", ["optional"])
    } else {
        Requirement { key: "special".into(), operator: Operator::DoesNotExist, values: Vec::new(), min_values: None }
    });
    let mut offerings: Vec<Offering> = zones[..2].iter().map(|z| offer("spot", z)).collect();
    offerings.extend(zones.iter().map(|z| offer("on-demand", z)));
    InstanceType {
        name: format!("fake-it-{i}"),
        requirements,
        offerings,
        capacity: Resources::from([("cpu", Quantity::from_units(cpu)), ("memory", memory), ("pods", Quantity::from_units(10 * cpu))]),
        overhead: Resources::from([("cpu", Quantity::from_milli(100)), ("memory", Quantity::from_mebibytes(10))]),
        ebs_attachments: None,
    }
}

fn pod(n: usize, label: (&str, &str), dice: &mut Dice) -> Pod {
    let asks = Resources::from([
        ("cpu", Quantity::from_milli(CPU[dice.below(CPU.len())])),
        ("memory", Quantity::from_mebibytes(MEMORY[dice.below(MEMORY.len())])),
    ]);
    let mut pod = Pod::default();
    pod.metadata = ObjectMeta::namespaced("default", format!("pod-{n}"));
    pod.metadata.uid = format!("{n:08}");
    pod.metadata.labels.insert(label.0.to_owned(), label.1.to_owned());
    let resources = ResourceRequirements { requests: asks, ..ResourceRequirements::default() };
    pod.spec.containers = vec![Container { name: "c".into(), resources: Some(resources), ..Container::default() }].into();
    pod.status.phase = "Pending".into();
    pod.status.conditions = vec![PodCondition {
        type_: "PodScheduled".into(),
        status: "False".into(),
        reason: "Unschedulable".into(),
        ..PodCondition::default()
    }];
    pod
}

fn selector(key: &str, value: &str) -> Option<LabelSelector> {
    Some(LabelSelector { match_labels: BTreeMap::from([(key.to_owned(), value.to_owned())]), ..LabelSelector::default() })
}

/// Pods that ask for nothing but room.
pub(crate) fn plain(count: usize, dice: &mut Dice) -> Vec<Pod> {
    (0..count).map(|n| pod(n, ("my-label", LETTERS[n % 7]), dice)).collect()
}

/// Spreads a pod over `key` among those labelled `label` = `value`.
pub(crate) fn spread(mut pod: Pod, key: &str, label: &str, value: &str) -> Pod {
    pod.spec.topology_spread_constraints = vec![TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "DoNotSchedule".into(),
        label_selector: selector(label, value),
        ..TopologySpreadConstraint::default()
    }]
    .into();
    pod
}

/// Pods labelled so, by `key`.
pub(crate) fn term(key: &str, label: (&str, &str)) -> PodAffinityTerm {
    PodAffinityTerm { label_selector: selector(label.0, label.1), topology_key: key.to_owned(), ..PodAffinityTerm::default() }
}

/// Plain, zone spread, hostname spread, zone affinity and hostname anti-affinity pods in equal numbers.
pub(crate) fn diverse(count: usize, dice: &mut Dice) -> Vec<Pod> {
    let kind = count / 5;
    let mut out = Vec::with_capacity(count);
    for n in 0..count {
        let made = match n.checked_div(kind).unwrap_or(0).min(5) {
            1 | 2 => {
                let (own, of) = (LETTERS[dice.below(7)], LETTERS[dice.below(7)]);
                spread(pod(n, ("my-label", own), dice), if n / kind == 1 { labels::ZONE } else { labels::HOSTNAME }, "my-label", of)
            }
            3 => {
                let own = ("my-affininity", LETTERS[dice.below(7)]);
                let mut pod = pod(n, own, dice);
                let required = vec![term(labels::ZONE, own)];
                let affinity = PodAffinity { required, ..PodAffinity::default() };
                pod.spec.affinity = Some(Affinity { pod_affinity: Some(affinity), ..Affinity::default() });
                pod
            }
            4 => {
                let own = ("app", "nginx");
                let mut pod = pod(n, own, dice);
                let anti = PodAffinity { required: vec![term(labels::HOSTNAME, own)], ..PodAffinity::default() };
                pod.spec.affinity = Some(Affinity { pod_anti_affinity: Some(anti), ..Affinity::default() });
                pod
            }
            _ => {
                let own = LETTERS[dice.below(7)];
                pod(n, ("my-label", own), dice)
            }
        };
        out.push(made);
    }
    out
}

/// Equal pods with preferences: a zone, and no other pod like them in the zone or on the machine.
pub(crate) fn preferring(count: usize, dice: &mut Dice) -> Vec<Pod> {
    let own = ("app", "nginx");
    let mut first = pod(0, own, dice);
    let preferred = |weight, key| WeightedPodAffinityTerm { weight, pod_affinity_term: term(key, own) };
    let zone = SelectorRequirement { key: labels::ZONE.into(), operator: "In".into(), values: vec!["test-zone-1".into()] };
    let preference = NodeSelectorTerm { match_expressions: vec![zone], ..NodeSelectorTerm::default() };
    first.spec.affinity = Some(Affinity {
        node_affinity: Some(NodeAffinity { preferred: vec![PreferredSchedulingTerm { weight: 1, preference }], ..NodeAffinity::default() }),
        pod_anti_affinity: Some(PodAffinity {
            preferred: vec![preferred(10, labels::ZONE), preferred(1, labels::HOSTNAME)],
            ..PodAffinity::default()
        }),
        ..Affinity::default()
    });
    (0..count)
        .map(|n| {
            let mut pod = first.clone();
            pod.metadata.name = format!("pod-{n}");
            pod.metadata.uid = format!("{n:08}");
            pod
        })
        .collect()
}

/// Initialized machines of no NodePool, 16 CPUs each, half full.
pub(crate) fn machines(count: usize) -> Vec<Node> {
    (0..count)
        .map(|n| {
            let mut node = Node::default();
            node.metadata = ObjectMeta::named(format!("node-{n:05}"));
            let zone = format!("test-zone-{}", n % 3 + 1);
            for (key, value) in
                [(labels::ZONE, zone.as_str()), (labels::CAPACITY_TYPE, "on-demand"), (labels::ARCH, "amd64"), (labels::OS, "linux")]
            {
                node.metadata.labels.insert(key.to_owned(), value.to_owned());
            }
            let name = node.metadata.name.clone();
            node.metadata.labels.insert(labels::HOSTNAME.to_owned(), name);
            node.status.capacity = Resources::from([
                ("cpu", Quantity::from_units(4)),
                ("memory", Quantity::from_mebibytes(8192)),
                ("pods", Quantity::from_units(40)),
            ]);
            node.status.allocatable = node.status.capacity.clone();
            node
        })
        .collect()
}

/// One NodePool without requirements, and what it can buy.
pub(crate) fn cluster<T: From<Vec<InstanceType>>>(pods: Vec<Pod>, nodes: Vec<Node>) -> (ClusterObjects, BTreeMap<String, Arc<T>>) {
    let mut pool = NodePool::default();
    pool.metadata = ObjectMeta::named("default");
    pool.spec.limits =
        Resources::from([("cpu", Quantity::from_units(10_000_000)), ("memory", Quantity::from_mebibytes(10_000_000 * 1024))]);
    let catalog = BTreeMap::from([("default".to_owned(), Arc::new(instance_types(400).into()))]);
    (ClusterObjects { node_pools: vec![pool], pods: pods.into(), nodes, ..ClusterObjects::default() }, catalog)
}
