//! The world itself, without Whittle.

mod abandoned;
mod cluster_contracts;
mod messages;
mod workloads;

use crate::cluster::{Eviction, PodCounts};
use crate::region::{ACCOUNT, ALIASES, Allocation, Reservation};
use crate::{Function, Functions, Input, RunFailure, SimPorts, Simulation, World, WorldOptions};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::karpenter::CapacityReservationSelectorTerm;
use whittle_api::{labels, manifest};
use whittle_claims::{Doorbell, Revision, Sighting};
use whittle_ec2::fleet::{FleetConfig, FleetOverride, FleetRequest, LaunchTemplate, ReservationKind, ReservationTarget};
use whittle_ec2::instance::InstanceState;
use whittle_ec2::interruption::InstanceStatus;
use whittle_ec2::network::CapacityReservation;
use whittle_ports::{CloudErrorKind, LaunchTemplateCleanup, Leases, Queues, RecordReader, Records, StoreError, contracts};
use whittle_units::{ClusterName, Price};

/// The strategy of fleets.
const ALLOCATION: Allocation = Allocation::LowestPrice;

/// A record of about as many bytes as its subject.
fn sighting(subject: &str) -> Sighting {
    Sighting { subject: subject.to_owned(), first_seen_at: Timestamp::UNIX_EPOCH, expires_at: Timestamp::MAX }
}

/// A function that writes one.
struct Writer;

impl Functions for Writer {
    fn call(&self, _: Function, ports: SimPorts, _: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        Box::pin(async move {
            let written = ports.write(&ClusterName::from("demo"), &sighting("it"), Revision::ABSENT).await;
            written.map(|_| ()).map_err(RunFailure::passing)
        })
    }
}

/// A function that only waits at a port.
struct Idle;

impl Functions for Idle {
    fn call(&self, function: Function, ports: SimPorts, _: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        Box::pin(async move {
            if function == Function::Terminate {
                return Err(RunFailure::passing("always"));
            }
            ports.launch_templates(&ClusterName::from("demo")).await.map(|_| ()).map_err(RunFailure::passing)
        })
    }
}

fn simulation(seed: u64) -> Simulation {
    simulation_of(seed, Arc::new(Idle))
}

fn simulation_of(seed: u64, functions: Arc<dyn Functions>) -> Simulation {
    let options = WorldOptions {
        seed,
        cluster: "demo".into(),
        region: "us-east-1".to_owned(),
        kubernetes_version: "1.33".to_owned(),
        start: "2026-01-05T09:00:00Z".parse().unwrap(),
    };
    Simulation::new(World::new(&options), functions)
}

fn apply(simulation: &Simulation, yaml: &str) {
    let objects = manifest::read("test.yaml", yaml).unwrap();
    let mut world = simulation.world();
    let now = world.now();
    for object in objects {
        world.cluster.apply(object.value, now);
    }
    world.touch_cluster();
}

const NODES: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: a, labels: {kubernetes.io/hostname: a, topology.kubernetes.io/zone: us-east-1a}}
status: {capacity: {cpu: "4", pods: "20"}, allocatable: {cpu: "4", pods: "20"}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {kubernetes.io/hostname: b, topology.kubernetes.io/zone: us-east-1b}}
status: {capacity: {cpu: "4", pods: "20"}, allocatable: {cpu: "4", pods: "20"}, conditions: [{type: Ready, status: "True"}]}
"#;

fn deployment(replicas: u32, rest: &str) -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      {rest}
      containers: [{{name: web, resources: {{requests: {{cpu: "1"}}}}}}]
"#
    )
}

fn seconds(simulation: &mut Simulation, seconds: i64) {
    simulation.run_for(SignedDuration::from_secs(seconds));
}

fn counts(simulation: &Simulation) -> (usize, usize, usize) {
    let PodCounts { running, starting, pending } = simulation.world().cluster.pod_counts(|_| true);
    (running, starting, pending)
}

#[test]
fn pods_run_where_they_fit_and_others_are_pending() {
    let mut simulation = simulation(1);
    apply(&simulation, NODES);
    apply(&simulation, &deployment(10, ""));
    seconds(&mut simulation, 10);
    assert_eq!(counts(&simulation), (8, 0, 2));
    let world = simulation.world();
    let waiting = world.cluster.objects.pods.values().find(|pod| !pod.is_bound()).unwrap();
    assert!(waiting.is_marked_unschedulable());
    assert_eq!(waiting.condition("PodScheduled").unwrap().message, "0/2 nodes are available: 2 Insufficient cpu.");
}

/// Every start is a step of all controllers, over all pods: with a time of its own for each of many pods, steps and pods multiply.
#[test]
fn pods_that_are_bound_together_start_at_few_times() {
    let mut simulation = simulation(1);
    apply(&simulation, NODES);
    apply(&simulation, &deployment(8, ""));
    seconds(&mut simulation, 10);
    let world = simulation.world();
    let waited = |pod: &whittle_api::k8s::Pod| {
        let bound = pod.condition("PodScheduled")?.last_transition_time?;
        Some(pod.status.start_time?.duration_since(bound).as_millis())
    };
    let waited: Vec<i128> = world.cluster.objects.pods.values().filter_map(waited).collect();
    assert_eq!(waited.len(), 8);
    assert!(waited.iter().all(|waited| (1_000..=3_000).contains(waited) && waited % 100 == 0), "{waited:?}");
    assert!(waited.iter().any(|one| *one != waited[0]), "not all at one: {waited:?}");
}

#[test]
fn a_cordon_is_tainted_and_only_closes_the_node_for_pods_that_do_not_tolerate_it() {
    let mut simulation = simulation(1);
    apply(&simulation, NODES);
    apply(&simulation, &deployment(2, ""));
    seconds(&mut simulation, 10);
    let cordon = |simulation: &Simulation, cordoned: bool| {
        let mut world = simulation.world();
        for name in ["a", "b"] {
            world.cluster.objects.change::<Node>(name, |node| node.spec.unschedulable = cordoned);
        }
        world.touch_cluster();
    };
    let taints = |simulation: &Simulation| simulation.world().cluster.objects.nodes["a"].spec.taints.clone();
    cordon(&simulation, true);
    apply(&simulation, &deployment(4, ""));
    seconds(&mut simulation, 60);
    assert_eq!(taints(&simulation), [Taint::new(labels::UNSCHEDULABLE_TAINT, TaintEffect::NoSchedule)]);
    assert_eq!(counts(&simulation), (2, 0, 2), "nothing is evicted, and nothing new is bound");
    apply(
        &simulation,
        &deployment(4, "")
            .replace("{name: web}", "{name: keen}")
            .replace("app: web", "app: keen")
            .replace("containers:", "tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}]\n      containers:"),
    );
    seconds(&mut simulation, 60);
    assert_eq!(counts(&simulation), (6, 0, 2), "those that tolerate it run");
    cordon(&simulation, false);
    seconds(&mut simulation, 60);
    assert!(taints(&simulation).is_empty());
    assert_eq!(counts(&simulation), (8, 0, 0));
}

#[test]
fn hard_spread_and_anti_affinity_hold() {
    let spread = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]";
    let mut one = simulation(1);
    apply(&one, NODES);
    apply(&one, &deployment(4, spread));
    seconds(&mut one, 10);
    assert_eq!(one.world().cluster.objects.pods_on("a").count(), 2);
    let apart = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}";
    let mut two = simulation(1);
    apply(&two, NODES);
    apply(&two, &deployment(3, apart));
    seconds(&mut two, 10);
    assert_eq!(counts(&two), (2, 0, 1));
}

/// As for kube-scheduler: a port on all addresses is the same port on each.
#[test]
fn a_host_port_on_one_address_is_taken_by_one_on_all() {
    let named = |name: &str, port: &str| {
        let deployment = deployment(1, "nodeSelector: {topology.kubernetes.io/zone: us-east-1b}").replace("web", name);
        deployment.replace("resources:", &format!("ports: [{port}], resources:"))
    };
    for (port, expected) in [(80, (1, 0, 1)), (81, (2, 0, 0))] {
        let mut simulation = simulation(1);
        apply(&simulation, NODES);
        apply(&simulation, &named("one", "{containerPort: 80, hostPort: 80}"));
        seconds(&mut simulation, 10);
        apply(&simulation, &named("two", &format!("{{containerPort: {port}, hostPort: {port}, hostIP: 10.0.0.1}}")));
        seconds(&mut simulation, 10);
        assert_eq!(counts(&simulation), expected, "{port}");
    }
}

/// As for kube-scheduler: a key of `matchLabelKeys` that the pod itself lacks selects nothing.
#[test]
fn label_keys_that_a_pod_lacks_do_not_divide_its_spread() {
    let pinned = "nodeSelector: {topology.kubernetes.io/zone: us-east-1b}";
    for (key, pending) in [("revision", 1), ("app", 0)] {
        let spread = format!(
            "topologySpreadConstraints: [{{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, \
             nodeAffinityPolicy: Ignore, labelSelector: {{matchLabels: {{kin: \"yes\"}}}}, matchLabelKeys: [{key}]}}]"
        );
        let others = deployment(2, pinned).replace("{name: web}", "{name: old}");
        let others = others.replace("app: web", "app: old, kin: \"yes\", revision: old");
        let mut simulation = simulation(1);
        apply(&simulation, NODES);
        apply(&simulation, &others);
        seconds(&mut simulation, 10);
        apply(&simulation, &deployment(1, &format!("{pinned}\n      {spread}")));
        seconds(&mut simulation, 10);
        assert_eq!(counts(&simulation), (3 - pending, 0, pending), "{key}");
    }
}

/// As for kube-scheduler: one pod that all required terms select counts, and none that only some select.
#[test]
fn terms_of_affinity_are_met_by_one_pod_together() {
    let term = |label: &str| format!("{{topologyKey: topology.kubernetes.io/zone, labelSelector: {{matchLabels: {{{label}: \"yes\"}}}}}}");
    let near =
        format!("affinity: {{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{}, {}]}}}}", term("cache"), term("db"));
    let named = |name: &str, own: &str| {
        let deployment = deployment(1, "nodeSelector: {topology.kubernetes.io/zone: us-east-1b}");
        deployment.replace("{name: web}", &format!("{{name: {name}}}")).replace("app: web", &format!("app: {name}, {own}"))
    };
    let mut simulation = simulation(1);
    apply(&simulation, NODES);
    apply(&simulation, &named("one", "cache: \"yes\""));
    apply(&simulation, &named("two", "db: \"yes\""));
    apply(&simulation, &deployment(1, &near));
    seconds(&mut simulation, 10);
    assert_eq!(counts(&simulation), (2, 0, 1));
    apply(&simulation, &named("both", "cache: \"yes\", db: \"yes\""));
    seconds(&mut simulation, 10);
    // Another pod for which the scheduler looks at all that wait.
    apply(&simulation, &named("third", "cache: \"yes\"").replace("us-east-1b", "us-east-1a"));
    seconds(&mut simulation, 10);
    assert_eq!(counts(&simulation), (5, 0, 0));
    assert_eq!(simulation.world().cluster.objects.pods_on("b").count(), 4);
}

#[test]
fn budgets_are_enforced_exactly() {
    let mut simulation = simulation(1);
    apply(&simulation, NODES);
    apply(&simulation, &deployment(4, "terminationGracePeriodSeconds: 20"));
    apply(
        &simulation,
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {maxUnavailable: 50%, selector: {matchLabels: {app: web}}}",
    );
    seconds(&mut simulation, 10);
    let mut world = simulation.world();
    let now = world.now();
    let budget = world.cluster.objects.budgets.values().next().unwrap().clone();
    assert_eq!(budget.status.disruptions_allowed, 2);
    let keys: Vec<String> = world.cluster.objects.pods.keys().cloned().collect();
    let verdicts: Vec<bool> = keys.iter().map(|key| world.evict(key, "", now) == Eviction::Granted).collect();
    assert_eq!(verdicts, [true, true, false, false]);
    assert_eq!(world.violations, Vec::<String>::new());
    world.cluster.skip_budgets = true;
    assert_eq!(world.evict(&keys[2], "", now), Eviction::Granted);
    assert_eq!(world.violations.len(), 1, "an eviction past the budget is noticed");
}

#[test]
fn finalizers_keep_nodes_until_they_are_removed() {
    let mut simulation = simulation(1);
    apply(&simulation, NODES);
    let mut world = simulation.world();
    let now = world.now();
    world.cluster.objects.change::<Node>("a", |node| node.metadata.finalizers.push("karpenter.sh/termination".to_owned()));
    assert!(world.cluster.objects.delete::<Node>("a", now));
    assert!(world.cluster.objects.nodes["a"].metadata.is_deleting());
    world.cluster.objects.change::<Node>("a", |node| node.metadata.finalizers.clear());
    assert!(!world.cluster.objects.nodes.contains_key("a"));
    drop(world);
    seconds(&mut simulation, 1);
}

#[test]
fn deployments_roll_and_shrink_without_losing_more_than_a_quarter() {
    let mut simulation = simulation(1);
    apply(&simulation, NODES);
    apply(&simulation, &deployment(6, ""));
    seconds(&mut simulation, 10);
    apply(&simulation, &deployment(6, "priority: 7"));
    let end = simulation.world().now().checked_add(SignedDuration::from_secs(60)).unwrap();
    let mut least = usize::MAX;
    simulation.run_while_not(end, |world| {
        least = least.min(world.cluster.pod_counts(|_| true).running);
        false
    });
    assert_eq!(counts(&simulation), (6, 0, 0));
    assert!(least >= 5, "{least} of 6 ran");
    assert!(simulation.world().cluster.objects.pods.values().all(|pod| pod.spec.priority == Some(7)));
    simulation.world().cluster.scale("default/web", 0).unwrap();
    simulation.world().touch_cluster();
    seconds(&mut simulation, 40);
    assert_eq!(counts(&simulation), (0, 0, 0));
}

fn request(token: &str, types: &[(&str, f64)]) -> FleetRequest {
    let pool = |(name, dollars): &(&str, f64)| FleetOverride {
        instance_type: (*name).to_owned(),
        zone: "us-east-1a".to_owned(),
        subnet_id: "subnet-1".to_owned(),
        image_id: "ami-00000000000000004".to_owned(),
        price: Price::from_dollars(*dollars),
    };
    FleetRequest {
        client_token: token.to_owned(),
        target_capacity: 1,
        capacity_type: "on-demand".to_owned(),
        reservation: None,
        configs: vec![FleetConfig { launch_template: "lt".to_owned(), overrides: types.iter().map(pool).collect() }],
        tags: BTreeMap::new(),
        prioritized: false,
        context: None,
    }
}

fn with_template(simulation: &Simulation) {
    let user_data = "/etc/eks/bootstrap.sh demo --kubelet-extra-args '--node-labels=\"team=a\" --register-with-taints=\"karpenter.sh/unregistered:NoExecute\"'";
    let template = LaunchTemplate { name: "lt".to_owned(), user_data: user_data.to_owned(), ..LaunchTemplate::default() };
    simulation.world().region.launch_templates.insert("lt".to_owned(), template);
}

#[test]
fn the_same_token_returns_the_same_machines() {
    let simulation = simulation(1);
    with_template(&simulation);
    let mut world = simulation.world();
    let first = world.create_fleet(&request("t", &[("m5.large", 0.096)]), ALLOCATION).unwrap();
    assert_eq!(world.create_fleet(&request("t", &[("m5.large", 0.096)]), ALLOCATION).unwrap(), first);
    assert_eq!(world.region.machines.len(), 1);
    let other = world.create_fleet(&request("t", &[("m5.xlarge", 0.096)]), ALLOCATION).unwrap_err();
    assert_eq!(other.kind, CloudErrorKind::IdempotencyMismatch);
}

#[test]
fn a_client_token_expires_after_two_days() {
    let mut simulation = simulation(1);
    with_template(&simulation);
    let buy = |simulation: &Simulation| {
        let mut world = simulation.world();
        world.create_fleet(&request("t", &[("m5.large", 0.096)]), ALLOCATION).unwrap();
        world.region.machines.len()
    };
    assert_eq!(buy(&simulation), 1);
    simulation.run_for(SignedDuration::from_hours(47));
    assert_eq!(buy(&simulation), 1);
    simulation.run_for(SignedDuration::from_hours(2));
    assert_eq!(buy(&simulation), 2);
}

#[test]
fn an_item_beyond_400_kilobytes_is_never_stored() {
    let ports = simulation(1).ports();
    let cluster = ClusterName::from("demo");
    let write = |bytes: usize| ports.write(&cluster, &sighting(&"a".repeat(bytes)), Revision::ABSENT).now_or_never().unwrap();
    assert!(matches!(write(400 << 10), Err(StoreError::Unavailable { .. })));
    write(399 << 10).expect("nothing was stored before");
}

#[test]
fn a_pool_without_capacity_is_skipped_or_reported() {
    let simulation = simulation(1);
    with_template(&simulation);
    let mut world = simulation.world();
    world.region.out_of_stock.insert(("m5.large".to_owned(), "us-east-1a".to_owned(), "*".to_owned()));
    let both = world.create_fleet(&request("t", &[("m5.large", 0.096), ("m5.xlarge", 0.192)]), ALLOCATION).unwrap();
    assert_eq!(both.instances[0].instance_type, "m5.xlarge");
    let none = world.create_fleet(&request("u", &[("m5.large", 0.096)]), ALLOCATION).unwrap();
    assert!(none.instances.is_empty());
    assert_eq!((none.errors[0].code.as_str(), none.errors[0].zone.as_str()), ("InsufficientInstanceCapacity", "us-east-1a"));
}

/// A reservation of two m5.large, with a template that launches only into it.
fn with_reservation(simulation: &Simulation, kind: &str, ends_at: Option<&str>) {
    with_template(simulation);
    let mut world = simulation.world();
    let mut template = world.region.launch_templates["lt"].clone();
    template.reservation = Some(ReservationTarget::Only("cr-1".to_owned()));
    world.region.launch_templates.insert("lt".to_owned(), template);
    let described = CapacityReservation {
        id: "cr-1".to_owned(),
        zone: "us-east-1a".to_owned(),
        instance_type: "m5.large".to_owned(),
        match_criteria: "targeted".to_owned(),
        kind: kind.to_owned(),
        state: "active".to_owned(),
        ends_at: ends_at.map(|text| text.parse().unwrap()),
        tags: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
        ..CapacityReservation::default()
    };
    world.region.reserve(Reservation { described, total: 2 });
    world.touch_region();
}

fn reserved(token: &str, count: u32) -> FleetRequest {
    let reservation = Some(ReservationKind::Ordinary);
    FleetRequest { target_capacity: count, capacity_type: "reserved".to_owned(), reservation, ..request(token, &[("m5.large", 0.1)]) }
}

#[test]
fn a_reservation_starts_machines_of_its_own_tenancy_only() {
    for (tenancy, started) in [("default", 1), ("dedicated", 0)] {
        let simulation = simulation(1);
        with_reservation(&simulation, "default", None);
        let mut world = simulation.world();
        let mut own = world.region.reservations["cr-1"].clone();
        own.described.tenancy = "default".to_owned();
        world.region.reserve(own);
        let mut template = world.region.launch_templates["lt"].clone();
        template.tenancy = tenancy.to_owned();
        world.region.launch_templates.insert("lt".to_owned(), template);
        let answer = world.create_fleet(&reserved("t", 1), ALLOCATION).unwrap();
        assert_eq!((answer.instances.len(), answer.errors.is_empty()), (started, started == 1), "{tenancy}");
    }
}

#[test]
fn a_full_reservation_is_reported() {
    let simulation = simulation(1);
    with_reservation(&simulation, "default", None);
    let mut world = simulation.world();
    let terms: Vec<CapacityReservationSelectorTerm> = serde_json::from_str(r#"[{"tags": {"team": "a"}}, {"id": "cr-9"}]"#).unwrap();
    assert_eq!(world.region.reservations_of(&terms)[0].free, 2);
    let three = world.create_fleet(&reserved("t", 3), ALLOCATION).unwrap();
    assert_eq!((three.instances.len(), three.errors[0].code.as_str()), (2, "ReservationCapacityExceeded"));
    assert_eq!((world.region.reservations_of(&terms)[0].free, world.region.users_of("cr-1").len()), (0, 2));
    assert!(world.create_fleet(&reserved("u", 1), ALLOCATION).unwrap().instances.is_empty());
    let other: Vec<CapacityReservationSelectorTerm> = serde_json::from_str(r#"[{"tags": {"team": "b"}}]"#).unwrap();
    assert!(world.region.reservations_of(&other).is_empty());
}

#[test]
fn machines_of_an_ended_reservation_become_on_demand_and_those_of_a_block_are_terminated() {
    for (kind, left) in [("default", 2), ("capacity-block", 0)] {
        let mut simulation = simulation(1);
        with_reservation(&simulation, kind, Some("2026-01-05T10:00:00Z"));
        simulation.world().create_fleet(&reserved("t", 2), ALLOCATION).unwrap();
        simulation.run_for(SignedDuration::from_mins(29));
        assert_eq!(simulation.world().region.users_of("cr-1").len(), 2, "{kind}");
        simulation.run_for(SignedDuration::from_mins(32));
        let world = simulation.world();
        let alive: Vec<_> = world.region.machines.values().map(|machine| &machine.instance).filter(|one| one.is_alive()).collect();
        assert_eq!(alive.len(), left, "{kind}");
        assert!(alive.iter().all(|one| one.capacity_type == "on-demand" && one.reservation.is_none()));
        assert!(world.region.machines.values().filter(|one| one.instance.is_alive()).all(|one| one.price > Price::from_dollars(0.05)));
    }
}

#[test]
fn a_machine_boots_joins_and_is_removed() {
    let mut simulation = simulation(1);
    with_template(&simulation);
    let id = simulation.world().create_fleet(&request("t", &[("m5.large", 0.096)]), ALLOCATION).unwrap().instances[0].id.clone();
    seconds(&mut simulation, 70);
    {
        let world = simulation.world();
        let node = world.cluster.objects.nodes.values().next().expect("the machine joined");
        assert_eq!(node.metadata.label("team"), Some("a"));
        assert_eq!(node.metadata.label("node.kubernetes.io/instance-type"), Some("m5.large"));
        assert!(node.spec.taints.iter().any(|taint| taint.key == "karpenter.sh/unregistered"));
        assert!(node.status.allocatable.get("cpu").milli() > 1900);
    }
    simulation.world().terminate(&id);
    seconds(&mut simulation, 60);
    let world = simulation.world();
    assert_eq!(world.region.machines[&id].instance.state, InstanceState::Terminated);
    assert!(world.cluster.objects.nodes.is_empty(), "the cloud's node controller deletes the Node");
}

#[test]
fn a_newer_lease_fences_the_older() {
    let simulation = simulation(1);
    let ports = simulation.ports();
    let cluster = ClusterName::from("demo");
    let (now, ttl) = (simulation.world().now(), SignedDuration::from_secs(30));
    let acquire = |owner: &'static str, now: Timestamp| ports.acquire(&cluster, owner, now, ttl).now_or_never().unwrap();
    let first = acquire("a", now).unwrap();
    assert!(matches!(acquire("b", now), Err(StoreError::Held { .. })));
    let later = now.checked_add(SignedDuration::from_secs(31)).unwrap();
    assert!(acquire("b", later).unwrap().token > first.token);
}

#[test]
fn one_seed_gives_one_timeline() {
    let log = |seed| {
        let mut simulation = simulation(seed);
        apply(&simulation, NODES);
        apply(&simulation, &deployment(5, ""));
        simulation.world().switch_on();
        seconds(&mut simulation, 300);
        format!("{:?}", simulation.world().story)
    };
    assert_eq!(log(7), log(7));
}

/// Where the contracts of the cloud's ports start their machines.
fn place_in(world: &World) -> contracts::CloudPlace {
    let network = &world.region.network;
    contracts::CloudPlace {
        cluster: world.name(),
        subnets: network.subnets.clone(),
        group: network.groups[0].clone(),
        image_id: network.images[3].id.clone(),
        instance_type: "m5.large".to_owned(),
    }
}

#[test]
fn the_simulated_ports_keep_the_contracts_of_the_cloud() {
    let mut simulation = simulation(1);
    let place = place_in(&simulation.world());
    let ports = simulation.ports();
    let world = ports.clone();
    let mut wait = || simulation.run_for(SignedDuration::from_secs(60));
    let mut set = |status: InstanceStatus| world.inspect(|world| _ = world.region.statuses.insert(status.instance.clone(), status.clone()));
    let suites = async {
        contracts::machinery(&ports, &place, &mut wait).await;
        contracts::fleet_tokens(&ports, &place).await;
        contracts::dry_runs(&ports, &place).await;
        contracts::network(&ports, &place).await;
        contracts::instance_profiles(&ports, &place.cluster).await;
        let now = ports.inspect(|world| world.now());
        contracts::instance_checks(&ports, &place, now, &mut wait, &mut set).await;
    };
    assert!(suites.now_or_never().is_some());
    let arn = simulation.world().region.cluster_arn(&place.cluster);
    let now = simulation.world().now();
    let mut shift = |shifts| simulation.world().region.zone_shifts = shifts;
    assert!(contracts::zonal_shifts(&ports, &arn, now, &mut shift).now_or_never().is_some());
}

#[test]
fn the_simulated_ports_keep_the_contracts_of_discovery() {
    let simulation = simulation(1);
    let ports = simulation.ports();
    let own = contracts::OwnImage::of_account(ACCOUNT, "ami-0fedcba9876543210");
    let (reservation, group) = (contracts::reservation_of_account(ACCOUNT, "us-east-1a"), contracts::partition_group());
    let info = {
        let mut world = simulation.world();
        let network = &mut world.region.network;
        network.images.push(own.image.clone());
        network.parameters.insert(own.parameter.clone(), own.image.id.clone());
        network.parameters.insert(own.text_parameter.clone(), "no image".to_owned());
        world.region.reserve(Reservation { described: reservation.clone(), total: reservation.free });
        world.region.place(group.clone());
        world.cluster_info(&world.name()).expect("the cluster is described")
    };
    let suites = async {
        contracts::cluster_info(&ports, &info).await;
        contracts::images(&ports, &own).await;
        contracts::aliases(&ports, ALIASES).await;
        contracts::capacity_reservations(&ports, &reservation).await;
        contracts::placement_groups(&ports, &group).await;
        contracts::catalog(&ports).await
    };
    let read = suites.now_or_never().expect("ports outside of any function never wait");
    assert_eq!(read, *simulation.world().region.catalog);
}

#[test]
fn the_memory_store_keeps_the_contracts_of_the_table() {
    // Ports outside of any function never wait, so one poll runs a whole suite.
    let simulation = simulation(1);
    let (ports, now) = (simulation.ports(), simulation.world().now());
    let suites = async {
        contracts::claim_store(&ports, &ClusterName::from("claims"), now).await;
        contracts::many_claims(&ports, &ClusterName::from("many"), now, 1000).await;
        contracts::leases(&ports, &ClusterName::from("leases"), now).await;
        contracts::records(&ports, &ClusterName::from("records"), now).await;
        contracts::decision_log(&ports, &ClusterName::from("decisions"), now).await;
        contracts::erase(&ports, &ClusterName::from("erased"), now).await;
        contracts::region_store(&ports, now).await;
        contracts::lost_replies(&ports, &ClusterName::from("lost"), now).await;
    };
    assert!(suites.now_or_never().is_some());
}

#[test]
fn a_hundred_thousand_claims_are_listed_once_in_the_order_of_their_names() {
    // The table alone: the simulation's checkers look at every claim whenever one changes.
    let mut store = crate::world::store::Store::default();
    let (cluster, now) = (ClusterName::from("many"), simulation(1).world().now());
    let lease = store.acquire(&cluster, "many", now, SignedDuration::from_mins(1)).unwrap();
    for number in 0..100_000 {
        let claim = contracts::planned_claim(&cluster, &format!("pool-{:05}", number * 7919 % 100_000), now);
        store.create(&lease, std::slice::from_ref(&claim)).unwrap();
    }
    let listed = store.claims(&cluster).map(|stored| stored.value.key.name.to_string());
    assert!(listed.eq((0..100_000).map(|number| format!("pool-{number:05}"))));
}

#[test]
fn the_memory_store_keeps_the_contracts_while_half_of_its_calls_fail() {
    for seed in 1..=50 {
        let simulation = simulation(1);
        let (ports, now) = (simulation.ports(), simulation.world().now());
        let injected = futures::executor::block_on(contracts::suites_under_faults(&ports, "faulty", now, seed));
        assert_eq!(injected.len(), 4, "every kind of fault occurred: {injected:?}");
    }
}
