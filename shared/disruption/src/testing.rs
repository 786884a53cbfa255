//! Builds small clusters for tests.

use super::decide::decide;
use super::decision::Decision;
use super::validation::{Rejection, Validated, validate};
use super::verdict::VerdictReason;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{Container, IntOrString, Node, Pod, PodCondition, ResourceRequirements, Workloads};
use whittle_api::karpenter::{Budget, NodeClaim, NodeClassReference, NodePool, Requirement};
use whittle_api::{ClusterObjects, ConditionStatus, NillableDuration, OwnerReference, conditions, labels};
use whittle_model::disruption::{ClaimFacts, Command, Gate, Input, Memory, Proposal, Settings};
use whittle_model::scheduling::{self, InstanceTypes, Packing};
use whittle_model::state::ClusterState;
use whittle_units::{Price, Quantity, Resources, Timestamp};

/// A cluster under construction, at noon of 1 January 2026.
pub(crate) struct Scene {
    pub(crate) objects: ClusterObjects,
    pub(crate) catalog: BTreeMap<String, Arc<InstanceTypes>>,
    pub(crate) facts: BTreeMap<String, ClaimFacts>,
    pub(crate) marks: BTreeMap<String, (bool, Option<Timestamp>)>,
    pub(crate) memory: Memory,
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
}

pub(crate) fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A budget of so many nodes, or of a percentage of them, at all times and for every reason.
pub(crate) fn budget(nodes: &str) -> Budget {
    Budget { nodes: IntOrString::Text(nodes.to_owned()), ..Budget::default() }
}

impl Scene {
    /// Empty nodes of two cores, `n0` and so on.
    pub(crate) fn of_nodes(count: usize) -> Self {
        let mut scene = Self::new();
        for at in 0..count {
            scene.node(&format!("n{at}"), "default", 2);
        }
        scene
    }

    /// A pool `default` without budgets, and types `xN` of N cpu at N × 0.05 dollars in zones a and b: on-demand, and
    /// spot at a third of it.
    pub(crate) fn new() -> Self {
        let settings =
            Settings { solve: scheduling::Options { packing: Packing::Reference, ..Settings::standard().solve }, ..Settings::standard() };
        let mut scene = Self {
            objects: ClusterObjects::default(),
            catalog: BTreeMap::new(),
            facts: BTreeMap::new(),
            marks: BTreeMap::new(),
            memory: Memory::default(),
            settings,
            now: noon(),
        };
        scene.pool("default");
        scene
    }

    pub(crate) fn best(mut self) -> Self {
        self.settings.solve.packing = Packing::Best;
        self
    }

    pub(crate) fn pool(&mut self, name: &str) -> &mut NodePool {
        let mut pool = NodePool::default();
        pool.metadata.name = name.to_owned();
        pool.spec.disruption.budgets.clear();
        pool.spec.template.spec.node_class_ref = node_class();
        pool.spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"])];
        conditions::set(&mut pool.status.conditions, conditions::READY, ConditionStatus::True, "", "", noon());
        self.catalog.insert(name.to_owned(), Arc::new([1, 2, 4, 8, 16].map(instance_type).into_iter().collect()));
        self.objects.node_pools.push(pool);
        self.objects.node_pools.last_mut().unwrap()
    }

    pub(crate) fn the_pool(&mut self, name: &str) -> &mut NodePool {
        self.objects.node_pools.iter_mut().find(|pool| pool.metadata.name == name).unwrap()
    }

    /// An initialized on-demand node of `cpu` cores in zone a, a day old.
    pub(crate) fn node(&mut self, name: &str, pool: &str, cpu: i64) -> (&mut Node, &mut NodeClaim) {
        let provider = format!("aws:///a/i-{name}");
        let node_labels: BTreeMap<String, String> = [
            (labels::NODE_POOL, pool),
            (labels::INSTANCE_TYPE, &format!("x{cpu}")),
            (labels::ZONE, "a"),
            (labels::CAPACITY_TYPE, "on-demand"),
            (labels::REGISTERED, "true"),
            (labels::INITIALIZED, "true"),
            (labels::HOSTNAME, name),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        let created: Timestamp = "2025-12-31T12:00:00Z".parse().unwrap();
        let room = resources(cpu);
        let mut claim = NodeClaim::default();
        claim.metadata.name = format!("claim-{name}");
        claim.metadata.labels = node_labels.clone().into();
        claim.metadata.creation_timestamp = Some(created);
        claim.spec.node_class_ref = node_class();
        claim.spec.expire_after = NillableDuration::Never;
        claim.status.provider_id.clone_from(&provider);
        (claim.status.capacity, claim.status.allocatable) = (room.clone(), room.clone());
        for type_ in [conditions::LAUNCHED, conditions::REGISTERED, conditions::INITIALIZED] {
            conditions::set(&mut claim.status.conditions, type_, ConditionStatus::True, "", "", created);
        }
        let mut node = Node::default();
        node.metadata.name = name.to_owned();
        node.metadata.labels = node_labels.into();
        node.spec.provider_id = provider;
        (node.status.capacity, node.status.allocatable) = (room.clone(), room);
        conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::True, "", "", created);
        self.objects.nodes.push(node);
        self.objects.node_claims.push(claim);
        (self.objects.nodes.last_mut().unwrap(), self.objects.node_claims.last_mut().unwrap())
    }

    pub(crate) fn parts(&mut self, name: &str) -> (&mut Node, &mut NodeClaim) {
        let node = self.objects.nodes.iter_mut().find(|node| node.metadata.name == name).unwrap();
        let claim = format!("claim-{name}");
        (node, self.objects.node_claims.iter_mut().find(|found| found.metadata.name == claim).unwrap())
    }

    /// A running pod of a ReplicaSet on a node; pending with an empty node name.
    pub(crate) fn pod(&mut self, name: &str, node: &str, cpu: &str) -> &mut Pod {
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.metadata.namespace = "default".to_owned();
        pod.metadata.uid = format!("uid-{name}");
        pod.metadata.creation_timestamp = Some(noon());
        pod.metadata.owner_references.push(owner("apps/v1", "ReplicaSet", "web"));
        node.clone_into(&mut pod.spec.node_name);
        let requests = Resources::from([("cpu", cpu.parse::<Quantity>().unwrap())]);
        let requirements = ResourceRequirements { requests, ..ResourceRequirements::default() };
        pod.spec.containers.push(Container { name: "app".to_owned(), resources: Some(requirements), ..Container::default() });
        let (phase, scheduled, reason) = if node.is_empty() { ("Pending", "False", "Unschedulable") } else { ("Running", "True", "") };
        phase.clone_into(&mut pod.status.phase);
        pod.status.conditions.push(PodCondition {
            type_: "PodScheduled".to_owned(),
            status: scheduled.to_owned(),
            reason: reason.to_owned(),
            ..PodCondition::default()
        });
        self.objects.pods.push(pod);
        self.objects.pods.last_mut().unwrap()
    }

    pub(crate) fn with<T>(&self, decide: impl FnOnce(Input<'_>) -> T) -> T {
        let mut state = ClusterState::of(&self.objects);
        for node in &mut state.nodes {
            if let Some((marked, nominated)) = self.marks.get(node.name()) {
                node.marked_for_deletion |= *marked;
                node.nominated_until = *nominated;
            }
        }
        decide(Input {
            cluster: scheduling::Input {
                now: self.now,
                objects: &self.objects,
                nodes: &state.nodes,
                catalog: &self.catalog,
                virtual_pods: &[],
                workloads: &Workloads::default(),
            },
            facts: &self.facts,
            memory: &self.memory,
            settings: &self.settings,
        })
    }

    pub(crate) fn decide(&self) -> Decision {
        self.with(decide)
    }
    pub(crate) fn validate(&self, proposal: &Proposal) -> Result<Command, Rejection> {
        self.validated(proposal).map(|valid| valid.command)
    }
    pub(crate) fn validated(&self, proposal: &Proposal) -> Result<Validated, Rejection> {
        self.with(|input| validate(input, proposal))
    }

    /// The decision in one line per command: `empty delete [a b]`.
    #[track_caller]
    pub(crate) fn expect(&self, want: &[&str]) -> Decision {
        let decision = self.decide();
        let got: Vec<String> = decision.commands.iter().map(render).collect();
        assert_eq!(got, want, "verdicts: {:#?}", decision.verdicts);
        decision
    }

    /// The code of a node's verdict.
    #[track_caller]
    pub(crate) fn expect_reason(&self, node: &str, want: &str) {
        let decision = self.decide();
        assert_eq!(
            reason_of(&decision, node).code(),
            want,
            "for {node}, commands: {:?}",
            decision.commands.iter().map(render).collect::<Vec<_>>()
        );
    }
}

pub(crate) fn reason_of<'d>(decision: &'d Decision, node: &str) -> &'d VerdictReason {
    &decision.verdicts.iter().find(|verdict| verdict.node == node).unwrap().reason
}

pub(crate) fn render(command: &Command) -> String {
    let nodes: Vec<&str> = command.removals.iter().map(|removal| removal.node.as_str()).collect();
    let claims: Vec<String> = command.replacements.iter().map(|claim| claim.instance_types.join("|")).collect();
    let method = match command.method.consolidation_type() {
        "" => "drift",
        name => name,
    };
    let tail = if claims.is_empty() { String::new() } else { format!(" -> {}", claims.join(" + ")) };
    format!("{method} {} [{}]{tail}", command.action().as_str(), nodes.join(" "))
}

pub(crate) fn owner(api_version: &str, kind: &str, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

fn node_class() -> NodeClassReference {
    NodeClassReference { group: "karpenter.k8s.aws".to_owned(), kind: "EC2NodeClass".to_owned(), name: "default".to_owned() }
}

fn resources(cpu: i64) -> Resources {
    Resources::from([
        ("cpu", Quantity::from_units(cpu)),
        ("memory", Quantity::from_mebibytes(cpu * 4096)),
        ("pods", Quantity::from_units(110)),
    ])
}

pub(crate) fn instance_type(cpu: i64) -> InstanceType {
    let price = |spot: bool| Price::from_nanos(u64::try_from(cpu).unwrap() * if spot { 16_000_000 } else { 50_000_000 });
    let offering = |capacity: &str, zone: &str| Offering {
        requirements: vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity]), Requirement::is_in(labels::ZONE, [zone])],
        price: price(capacity == "spot"),
        available: true,
        reservation_capacity: None,
    };
    let name = format!("x{cpu}");
    InstanceType {
        requirements: vec![
            Requirement::is_in(labels::INSTANCE_TYPE, [name.clone()]),
            Requirement::is_in(labels::ARCH, ["amd64"]),
            Requirement::is_in(labels::OS, ["linux"]),
            Requirement::is_in(labels::ZONE, ["a", "b"]),
            Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"]),
        ],
        name,
        offerings: vec![offering("on-demand", "a"), offering("on-demand", "b"), offering("spot", "a"), offering("spot", "b")],
        capacity: resources(cpu),
        overhead: Resources::new(),
        ebs_attachments: None,
    }
}

/// Turns on the gate for static pools.
pub(crate) fn enable_static_capacity(scene: &mut Scene) {
    scene.settings.static_capacity = Gate::On;
}
