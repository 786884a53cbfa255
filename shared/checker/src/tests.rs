//! The checker accepts what the solver plans, and rejects every plan that a test has broken.

mod crowded;
use super::check;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{Pod, Taint, TaintEffect, Workloads};
use whittle_api::karpenter::Requirement;
use whittle_api::{ClusterObjects, labels};
use whittle_model::scheduling::{Input, InstanceTypes, MinValuesPolicy, NewClaim, Options, Plan, PodRef};
use whittle_model::state::{ClusterState, StateNode};
use whittle_solver::solve;
use whittle_units::{Price, Quantity, Resources};

fn instance_type(name: &str, arch: &str, cpu: i64, price: f64) -> InstanceType {
    let offering = |zone: &str, capacity_type: &str, price: f64, available: bool| Offering {
        requirements: vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]), Requirement::is_in(labels::ZONE, [zone])],
        price: Price::from_dollars(price),
        available,
        reservation_capacity: None,
    };
    let mut offerings: Vec<Offering> = ["a", "b", "c"].iter().map(|z| offering(z, "on-demand", price, true)).collect();
    let mut reserved = offering("a", "reserved", price / 1e7, true);
    reserved.requirements.push(Requirement::is_in(labels::RESERVATION_ID, ["cr-1"]));
    reserved.reservation_capacity = Some(1);
    offerings.extend((name == "large").then_some(reserved));
    InstanceType {
        name: name.to_owned(),
        requirements: vec![
            Requirement::is_in(labels::INSTANCE_TYPE, [name]),
            Requirement::is_in(labels::ARCH, [arch]),
            Requirement::is_in(labels::OS, ["linux"]),
            Requirement::is_in(labels::ZONE, ["a", "b", "c"]),
            Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "reserved"]),
        ],
        offerings,
        capacity: Resources::from([
            ("cpu", Quantity::from_units(cpu)),
            ("memory", Quantity::from_mebibytes(4096 * cpu)),
            ("pods", Quantity::from_units(20)),
        ]),
        overhead: Resources::from([("cpu", Quantity::from_milli(100))]),
        ebs_attachments: None,
    }
}

fn pod(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["containers"] =
        json!([{"name": "app", "resources": {"requests": {"cpu": "600m", "memory": "256Mi"}}, "ports": spec["ports"].take()}]);
    if spec["containers"][0]["ports"].is_null() {
        spec["containers"][0]["ports"] = json!([]);
    }
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"app": name.split('-').next()}},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    })
}

fn objects() -> ClusterObjects {
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let amd = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
    let on_demand = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
    let term = |app: &str, key: &str| json!([{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}]);
    let spread = json!([{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "even"}}}]);
    let solo = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term("solo", labels::HOSTNAME)}});
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term("old", labels::ZONE)}});
    let mut old = pod("old-0", json!({"nodeName": "n1", "ports": [{"hostPort": 80}]}));
    old["status"] = json!({"phase": "Running"});
    let taint = json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]);
    let tolerate = json!([{"key": "dedicated", "operator": "Exists"}]);
    serde_json::from_value(json!({
        "nodePools": [
            {"metadata": {"name": "default"}, "spec": {"limits": {"cpu": "64"}, "template": {"metadata": {"labels": {"team": "web"}}, "spec": {"nodeClassRef": class, "requirements": [amd, on_demand]}}}},
            {"metadata": {"name": "db"}, "spec": {"template": {"spec": {"nodeClassRef": class, "taints": taint,
                "requirements": [amd, on_demand, {"key": labels::INSTANCE_TYPE, "operator": "Exists", "minValues": 2}]}}}},
            {"metadata": {"name": "fixed"}, "spec": {"replicas": 1, "template": {"spec": {"nodeClassRef": class, "requirements": []}}}}
        ],
        "nodes": [{"metadata": {"name": "n1", "labels": {(labels::ZONE): "a", (labels::ARCH): "amd64", (labels::OS): "linux"}},
            "status": {"capacity": {"cpu": "2", "memory": "8Gi", "pods": "10"}, "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "10"}}}],
        "pods": [
            old,
            pod("solo-0", json!({"affinity": solo})), pod("solo-1", json!({"affinity": solo})),
            pod("even-0", json!({"topologySpreadConstraints": spread})), pod("even-1", json!({"topologySpreadConstraints": spread})),
            pod("even-2", json!({"topologySpreadConstraints": spread})),
            pod("near-0", json!({"affinity": near})),
            pod("db-0", json!({"tolerations": tolerate, "nodeSelector": {(labels::NODE_POOL): "db"}})),
            pod("port-0", json!({"ports": [{"hostPort": 80}]})), pod("port-1", json!({"ports": [{"hostPort": 80}]})),
            pod("zoned-0", json!({"nodeSelector": {(labels::ZONE): "b"}})),
            pod("arm-0", json!({"nodeSelector": {(labels::ARCH): "arm64"}})),
        ],
        "daemonSets": [{"metadata": {"name": "agent", "namespace": "kube-system"}, "spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}}]}}}}]
    }))
    .unwrap()
}

struct World {
    objects: ClusterObjects,
    nodes: Vec<StateNode>,
    catalog: BTreeMap<String, Arc<InstanceTypes>>,
    workloads: Workloads,
}

impl World {
    fn new() -> Self {
        let objects = objects();
        let types = Arc::new(InstanceTypes::from(vec![
            instance_type("small", "amd64", 2, 0.1),
            instance_type("large", "amd64", 8, 0.4),
            instance_type("arm", "arm64", 4, 0.15),
        ]));
        let catalog = ["default", "db", "fixed"].iter().map(|p| ((*p).to_owned(), Arc::clone(&types))).collect();
        Self { nodes: ClusterState::of(&objects).nodes, objects, catalog, workloads: Workloads::default() }
    }

    /// Has these pods alone, of which the first runs.
    fn has_pods(&mut self, pods: impl IntoIterator<Item = Value>) {
        self.objects.pods = pods.into_iter().map(|pod| serde_json::from_value(pod).unwrap()).collect();
        self.objects.pods[0].status.phase = "Running".into();
        self.read_nodes();
    }

    fn read_nodes(&mut self) {
        self.nodes = ClusterState::of(&self.objects).nodes;
    }

    fn input(&self) -> Input<'_> {
        Input {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            objects: &self.objects,
            nodes: &self.nodes,
            catalog: &self.catalog,
            virtual_pods: &[],
            workloads: &self.workloads,
        }
    }

    fn plan(&self) -> Plan {
        solve(&self.input(), &Options::provisioning())
    }

    /// The rules that a plan violates.
    fn violated_rules(&self, plan: &Plan) -> Vec<&'static str> {
        check(&self.input(), &Options::provisioning(), plan).iter().map(|v| v.rule).collect()
    }
}

fn claim_of<'p>(plan: &'p mut Plan, pod: &str) -> &'p mut NewClaim {
    plan.claims.iter_mut().find(|c| c.pods.iter().any(|p| p.name == pod)).unwrap()
}

fn types_of<'p>(plan: &'p mut Plan, pod: &str) -> &'p mut Vec<String> {
    &mut claim_of(plan, pod).instance_types
}

fn take(plan: &mut Plan, name: &str) -> PodRef {
    for list in plan.claims.iter_mut().map(|c| &mut c.pods).chain(plan.placements.iter_mut().map(|p| &mut p.pods)) {
        if let Some(at) = list.iter().position(|p| p.name == name) {
            return list.remove(at);
        }
    }
    panic!("{name} is not placed");
}

fn move_to(plan: &mut Plan, name: &str, target: &str) {
    let pod = take(plan, name);
    claim_of(plan, target).pods.push(pod);
}

fn narrow(claim: &mut NewClaim, key: &str, values: &[&str]) {
    claim.requirements.retain(|r| r.key != key);
    claim.requirements.push(Requirement::is_in(key, values.iter().copied()));
}

/// As in kube-scheduler, a pod on a machine without the label is in no domain and does not stop another from being the
/// first of its group.
#[test]
fn pod_affinity_needs_the_topology_label() {
    let app = |name: &str| json!([{"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "rack"}]);
    let wants = |name: &str| json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": app(name)}});
    let mut world = World::new();
    world.objects.node_pools[0].spec.template.metadata.labels.insert("rack".into(), "r1".into());
    world.has_pods([pod("old-0", json!({"nodeName": "n1"})), pod("old-1", json!({"affinity": wants("old")}))]);
    let plan = world.plan();
    assert_eq!(plan.claims.iter().map(|c| c.pods.len()).collect::<Vec<_>>(), [1], "{plan:?}");
    assert_eq!(world.violated_rules(&plan), [""; 0]);
    let mut beside = plan.clone();
    let pods = beside.claims.remove(0).pods;
    beside.placements.push(whittle_model::scheduling::Placement { node: "n1".into(), initialized: true, pods });
    assert_eq!(world.violated_rules(&beside), ["affinity"], "its node has no such label");
}

/// As in kube-scheduler, one pod has to match all terms: two pods of which each matches one are no company.
#[test]
fn terms_of_pod_affinity_are_met_by_one_pod() {
    let term = |app: &str| json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": labels::ZONE});
    let beside_both = |first: &str, second: &str| {
        let wants = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(first), term(second)]}});
        let mut world = World::new();
        world.objects.pods =
            [pod("old-0", json!({"nodeName": "n1"})), pod("kin-0", json!({"nodeName": "n1"})), pod("it-0", json!({"affinity": wants}))]
                .into_iter()
                .map(|pod| serde_json::from_value(pod).unwrap())
                .collect();
        for bound in world.objects.pods.iter_mut().take(2) {
            bound.status.phase = "Running".into();
        }
        world.read_nodes();
        world
    };
    let world = beside_both("old", "kin");
    let mut plan = world.plan();
    assert_eq!((plan.scheduled(), world.violated_rules(&plan)), (0, Vec::new()));
    let pods = vec![plan.left_out.remove(0).pod];
    plan.placements.push(whittle_model::scheduling::Placement { node: "n1".into(), initialized: true, pods });
    assert_eq!(world.violated_rules(&plan), ["affinity"]);
    let world = beside_both("old", "old");
    let plan = world.plan();
    assert_eq!((plan.placements.len(), world.violated_rules(&plan)), (1, Vec::new()));
}

/// As in kube-scheduler, a pod is the first of its kind for all its terms or for none.
#[test]
fn terms_of_pod_affinity_have_one_first_pod() {
    let term = |key: &str| json!({"labelSelector": {"matchLabels": {"app": "kin"}}, "topologyKey": key});
    let wants = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(labels::ZONE), term("rack")]}});
    let mut world = World::new();
    world.objects.node_pools[0].spec.template.metadata.labels.insert("rack".into(), "r1".into());
    world.has_pods([pod("old-0", json!({"nodeName": "n1"})), pod("kin-0", json!({"affinity": wants}))]);
    let plan = world.plan();
    assert_eq!((plan.claims.len(), world.violated_rules(&plan)), (1, Vec::new()), "it is the first");
    world.objects.pods[0].metadata.labels.insert("app".into(), "kin".into());
    world.read_nodes();
    let found = world.violated_rules(&plan);
    assert!(found.contains(&"affinity"), "its kind is in the zone a, and in no rack: {found:?}");
    assert_eq!(world.plan().claims.len(), 0);
}

/// As in kube-scheduler, pods on a machine without the label do not repel each other; a pod that mentions the label may be placed
/// there beside one that repels it.
#[test]
fn pod_anti_affinity_needs_the_topology_label() {
    let repels = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": "new"}}, "topologyKey": labels::ZONE}]}});
    let prefers = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
        "preference": {"matchExpressions": [{"key": labels::ZONE, "operator": "NotIn", "values": ["c"]}]}}]}});
    let mut world = World::new();
    world.objects.nodes[0].metadata.labels.remove(labels::ZONE);
    world.has_pods([pod("old-0", json!({"nodeName": "n1", "affinity": repels})), pod("new-0", json!({"affinity": prefers}))]);
    let plan = world.plan();
    assert_eq!(plan.placements.iter().map(|placement| placement.node.as_str()).collect::<Vec<_>>(), ["n1"], "{plan:?}");
    assert_eq!(world.violated_rules(&plan), [""; 0]);
    world.objects.nodes[0].metadata.labels.insert(labels::ZONE.to_owned(), "a".to_owned());
    world.read_nodes();
    assert_eq!(world.violated_rules(&plan), ["anti-affinity"], "in a zone it repels");
}

#[test]
fn host_ports_of_sidecars_are_checked() {
    let init = json!({"initContainers": [{"name": "s", "ports": [{"containerPort": 9100, "hostPort": 9100}]}]});
    let mut world = World::new();
    world.objects.pods = ["one-0", "two-0"].into_iter().map(|name| serde_json::from_value(pod(name, init.clone())).unwrap()).collect();
    world.nodes.clear();
    let plan = world.plan();
    assert_eq!(plan.claims.iter().map(|c| c.pods.len()).collect::<Vec<_>>(), [2], "{plan:?}");
    assert_eq!(world.violated_rules(&plan), [""; 0]);
    for pod in world.objects.pods.iter_mut() {
        pod.spec.init_containers[0].restart_policy = "Always".into();
    }
    assert_eq!(world.violated_rules(&plan), ["host-port"]);
}

/// A pod that may be the first of its group anywhere must not be separated from the group once all are placed.
#[test]
fn the_first_pod_of_a_group_is_not_separated_from_the_second() {
    let term = json!([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["kin", "mate"]}]}, "topologyKey": labels::HOSTNAME}]);
    let mut world = World::new();
    let kin = pod("kin-0", json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}));
    world.objects.pods = [kin, pod("mate-0", json!({}))].into_iter().map(|pod| serde_json::from_value(pod).unwrap()).collect();
    world.nodes.clear();
    let plan = world.plan();
    assert_eq!(plan.claims.iter().map(|c| c.pods.len()).collect::<Vec<_>>(), [2], "{plan:?}");
    assert_eq!(world.violated_rules(&plan), [""; 0]);
    let mut apart = plan.clone();
    let mut second = apart.claims[0].clone();
    second.pods = vec![take(&mut apart, "mate-0")];
    apart.claims.push(second);
    assert_eq!(world.violated_rules(&apart), ["affinity"]);
    let mut alone = plan;
    let pod = take(&mut alone, "mate-0");
    alone.left_out.push(whittle_model::scheduling::LeftOut { pod, reason: whittle_model::scheduling::Reason::OutOfBudget });
    assert_eq!(world.violated_rules(&alone), [""; 0], "while the other is pending it is the first");
}

/// As in kube-scheduler, a pod whose kind is where it may not go is not the first of it.
#[test]
fn no_pod_starts_anew_where_its_kind_is_out_of_reach() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "kin"}}, "topologyKey": labels::ZONE}]);
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    let mut world = World::new();
    world.has_pods([
        pod("old-0", json!({"nodeName": "n1"})),
        pod("kin-0", json!({"affinity": near, "nodeSelector": {(labels::ZONE): "b"}})),
    ]);
    let plan = world.plan();
    assert_eq!((plan.claims.len(), world.violated_rules(&plan)), (1, Vec::new()), "it is the first");
    world.objects.pods[0].metadata.labels.insert("app".into(), "kin".into());
    world.read_nodes();
    assert_eq!(world.violated_rules(&plan), ["affinity"], "its kind is in the zone a");
}

/// On a node that has been initialized for long, a daemon that is not there is not expected any more (scheduling 21).
#[test]
fn a_pod_beside_a_daemon_needs_one_that_is_there_or_will_come() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "agent"}}, "namespaceSelector": {}, "topologyKey": labels::HOSTNAME}]);
    let beside = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    let agent = |name: &str, node: &str| {
        let mut agent = pod(name, json!({"nodeName": node}));
        agent["metadata"]["namespace"] = json!("kube-system");
        agent["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]);
        agent
    };
    let mut world = World::new();
    world.objects.daemon_sets[0].spec.template.metadata.labels.insert("app".into(), "agent".into());
    let created = |world: &mut World, time: &str| {
        world.objects.nodes[0].metadata.creation_timestamp = Some(time.parse().unwrap());
        world.read_nodes();
    };
    created(&mut world, "2025-12-31T23:56:00Z");
    let pods = [pod("old-0", json!({"nodeName": "n1"})), agent("agent-0", "gone"), pod("it-0", json!({"affinity": beside}))];
    world.has_pods(pods.clone());
    let plan = world.plan();
    assert_eq!((plan.placements.len(), world.violated_rules(&plan)), (1, Vec::new()), "{plan:?}");
    created(&mut world, "2025-12-31T23:54:00Z");
    assert_eq!(world.violated_rules(&plan), ["affinity"]);
    for (state, minute, wrong) in [("Running", 59, 0), ("Terminating", 59, 0), ("Failed", 56, 0), ("Failed", 54, 1)] {
        let (mut here, since) = (agent("agent-1", "n1"), format!("2025-12-31T23:{minute}:00Z"));
        here["status"] = json!({"phase": state, "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]});
        here["metadata"]["deletionTimestamp"] = json!((state == "Terminating").then_some(since));
        world.has_pods(pods.iter().cloned().chain([here]));
        assert_eq!(world.violated_rules(&plan).len(), wrong, "{state}, {minute}");
    }
}

/// In the zone of a new machine there is a daemon if there is one on it; in its rack there need not be.
#[test]
fn a_pod_in_the_zone_of_a_daemon_may_be_the_first_there() {
    let beside = |key: &str| {
        let term = json!([{"labelSelector": {"matchLabels": {"app": "agent"}}, "namespaceSelector": {}, "topologyKey": key}]);
        pod("it-0", json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}))
    };
    let mut world = World::new();
    world.objects.daemon_sets[0].spec.template.metadata.labels.insert("app".into(), "agent".into());
    world.objects.node_pools[0].spec.template.metadata.labels.insert("rack".into(), "r1".into());
    world.objects.nodes.clear();
    world.has_pods([pod("old-0", json!({"nodeName": "gone"})), beside(labels::ZONE)]);
    let plan = world.plan();
    assert_eq!((plan.scheduled(), world.violated_rules(&plan)), (1, Vec::new()));
    world.has_pods([pod("old-0", json!({"nodeName": "gone"})), beside("rack")]);
    assert_eq!(world.violated_rules(&plan), ["affinity"]);
}

/// Kube-scheduler would not bind it there, so that machine after machine would be launched (scheduling 21).
#[test]
fn no_new_machine_takes_a_pod_beside_a_daemon_that_is_there_first() {
    let apart = |app: &str, key: &str| {
        let term = json!([{"labelSelector": {"matchLabels": {"app": app}}, "namespaceSelector": {}, "topologyKey": key}]);
        serde_json::from_value(json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}})).unwrap()
    };
    let violated = |by_pod: bool, key: &str, change: fn(&mut ClusterObjects)| {
        let mut world = World::new();
        world.objects.daemon_sets[0].spec.template.metadata.labels.insert("app".into(), "agent".into());
        world.objects.nodes.clear();
        world.has_pods([pod("old-0", json!({"nodeName": "gone"})), pod("it-0", json!({}))]);
        let plan = world.plan();
        assert_eq!((plan.scheduled(), world.violated_rules(&plan)), (1, Vec::new()));
        if by_pod {
            world.objects.pods[1].spec.affinity = Some(apart("agent", key));
        } else {
            world.objects.daemon_sets[0].spec.template.spec.affinity = Some(apart("it", key));
        }
        change(&mut world.objects);
        // What the solver plans for it is accepted.
        let own = world.plan();
        assert_eq!(world.violated_rules(&own), [""; 0]);
        (world.violated_rules(&plan), own.scheduled())
    };
    for by_pod in [true, false] {
        assert_eq!(violated(by_pod, labels::HOSTNAME, |_| {}), (vec!["anti-affinity"], 0), "{by_pod}");
        let allowed: [fn(&mut ClusterObjects); 4] = [
            |objects| objects.pods[1].spec.priority = Some(10),
            |objects| objects.pods[1].metadata.labels.clear(),
            |objects| objects.daemon_sets[0].metadata.deletion_timestamp = Some("2025-12-31T23:59:00Z".parse().unwrap()),
            |objects| {
                objects.daemon_sets[0].spec.template.spec.node_selector.insert(labels::ZONE.into(), "a".into());
            },
        ];
        for (at, change) in allowed.into_iter().enumerate().filter(|(at, _)| !by_pod || *at != 1) {
            assert_eq!(violated(by_pod, labels::HOSTNAME, change), (Vec::new(), 1), "{by_pod} {at}");
        }
    }
    // Which of both comes first is not certain.
    let uncertain: [fn(&mut ClusterObjects); 2] = [
        |objects| objects.daemon_sets[0].spec.template.spec.tolerations.clear(),
        |objects| objects.pods[1].spec.tolerations.clone_from(&objects.daemon_sets[0].spec.template.spec.tolerations),
    ];
    for (by_pod, change) in uncertain.into_iter().flat_map(|change| [(true, change), (false, change)]) {
        assert_eq!(violated(by_pod, labels::HOSTNAME, change), (Vec::new(), 1), "{by_pod}");
    }
}

#[test]
fn every_machine_will_be_registered() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "kin"}}, "topologyKey": labels::REGISTERED}]);
    let mut world = World::new();
    let kin = pod("kin-0", json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}));
    world.objects.pods = vec![serde_json::from_value(kin).unwrap()].into();
    world.read_nodes();
    let plan = world.plan();
    assert_eq!((plan.scheduled(), world.violated_rules(&plan)), (1, Vec::new()));
}

/// Where no type that a NodePool allows is sold, no pod of a spread could be missing.
#[test]
fn pods_are_spread_over_the_zones_of_the_types_that_a_pool_allows() {
    let mut world = World::new();
    world.objects.node_pools.retain(|pool| pool.metadata.name == "default");
    let small = Requirement::is_in(labels::INSTANCE_TYPE, ["small"]);
    world.objects.node_pools[0].spec.template.spec.requirements.push(small);
    world.objects.pods.retain(|pod| pod.metadata.name.starts_with("even-"));
    world.objects.nodes.clear();
    world.nodes.clear();
    let mut types = InstanceTypes::clone(&world.catalog["default"]);
    for t in types.change().iter_mut().filter(|t| t.name == "small") {
        t.requirements.retain(|own| own.key != labels::ZONE);
        t.requirements.push(Requirement::is_in(labels::ZONE, ["a", "b"]));
        t.offerings.retain(|offering| offering.zone() != "c");
    }
    world.catalog.insert("default".into(), Arc::new(types));
    let plan = world.plan();
    assert_eq!((plan.scheduled(), world.violated_rules(&plan)), (3, Vec::new()));
    world.objects.node_pools[0].spec.template.spec.requirements.pop();
    assert_eq!(world.violated_rules(&plan), ["spread"], "other types are sold in the zone c");
}

/// Nor where they are only sold of a capacity type that the NodePool does not allow, or without a price, which is not at all.
#[test]
fn pods_are_spread_over_the_zones_in_which_the_types_are_sold_as_a_pool_asks() {
    let mut world = World::new();
    world.objects.node_pools.retain(|pool| pool.metadata.name == "default");
    world.objects.pods.retain(|pod| pod.metadata.name.starts_with("even-"));
    world.objects.nodes.clear();
    world.nodes.clear();
    let change = |world: &mut World, change: fn(&mut Offering)| {
        let mut types = InstanceTypes::clone(&world.catalog["default"]);
        let offerings = types.change().iter_mut().flat_map(|t| &mut t.offerings);
        offerings.filter(|offering| offering.zone() == "c").for_each(change);
        world.catalog.insert("default".into(), Arc::new(types));
    };
    change(&mut world, |offering| {
        offering.requirements.retain(|own| own.key != labels::CAPACITY_TYPE);
        offering.requirements.push(Requirement::is_in(labels::CAPACITY_TYPE, ["spot"]));
    });
    let plan = world.plan();
    assert_eq!((plan.scheduled(), world.violated_rules(&plan)), (3, Vec::new()));
    change(&mut world, |offering| offering.requirements.retain(|own| own.key != labels::CAPACITY_TYPE));
    assert_eq!(world.violated_rules(&plan), ["spread"], "they are sold in the zone c");
    change(&mut world, |offering| offering.available = false);
    assert_eq!(world.violated_rules(&plan), ["spread"], "EC2 is out of them");
    change(&mut world, |offering| offering.price = Price::ZERO);
    assert_eq!(world.violated_rules(&plan), [""; 0], "they have no price there");
}

/// Nor is one missing in the zones of a NodePool that gets no nodes now.
#[test]
fn pods_are_not_spread_over_the_zones_of_a_pool_that_is_not_ready() {
    let mut world = World::new();
    world.objects.node_pools.retain(|pool| pool.metadata.name == "default");
    let mut other = world.objects.node_pools[0].clone();
    other.metadata.name = "other".into();
    let unready =
        json!([{"type": "Ready", "status": "False", "reason": "NodeClassNotReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    other.status.conditions = serde_json::from_value(unready).unwrap();
    world.objects.node_pools[0].spec.template.spec.requirements.push(Requirement::is_in(labels::ZONE, ["a", "b"]));
    world.objects.node_pools.push(other);
    let types = Arc::clone(&world.catalog["default"]);
    world.catalog.insert("other".into(), types);
    world.objects.pods.retain(|pod| pod.metadata.name.starts_with("even-"));
    world.objects.nodes.clear();
    world.nodes.clear();
    let plan = world.plan();
    assert_eq!((plan.scheduled(), world.violated_rules(&plan)), (3, Vec::new()));
    world.objects.node_pools[1].status.conditions.clear();
    assert_eq!(world.violated_rules(&plan), ["spread"], "it has the zone c");
}

#[test]
fn violations_are_removed_and_the_rest_remains() {
    let world = World::new();
    let mut plan = world.plan();
    let (placed, claims) = (plan.scheduled(), plan.claims.len());
    types_of(&mut plan, "zoned-0").push("huge".into());
    let lost = claim_of(&mut plan, "zoned-0").pods.len();
    let (plan, wrong) = super::without_violations(&world.input(), &Options::provisioning(), plan);
    assert_eq!((wrong, plan.scheduled(), plan.claims.len()), (Vec::new(), placed - lost, claims - 1));
    let left_out = plan.left_out.iter().find(|l| l.pod.name == "zoned-0").unwrap();
    assert!(left_out.reason.to_string().contains("type-unknown"), "{}", left_out.reason);
    let mut plan = world.plan();
    plan.left_out.clear();
    let (_, wrong) = super::without_violations(&world.input(), &Options::provisioning(), plan);
    assert_eq!(wrong.iter().map(|v| v.rule).collect::<Vec<_>>(), ["pod-forgotten"], "only what the plan contains can be removed");
}

#[test]
fn nobody_is_stranded_by_a_plan_that_is_carried_out_or_by_one_without_machines() {
    let world = World::new();
    let plan = world.plan();
    assert_eq!(super::stranded(&world.input(), &plan, &plan), BTreeSet::new());
    let none = Plan { claims: Vec::new(), placements: Vec::new(), ..plan.clone() };
    assert_eq!(super::stranded(&world.input(), &plan, &none), BTreeSet::new(), "only pods that are placed can be");
}

/// As for kube-scheduler (scheduling 6): a spread that ignores where its pod may go is bounded by all domains with nodes.
#[test]
fn a_pod_is_stranded_by_who_is_missing_where_only_its_spread_looks() {
    let even = || json!({"matchLabels": {"app": "even"}});
    // An empty selector counts no pod.
    let cases = [("Ignore", even(), vec!["default/even-2"]), ("Honor", even(), Vec::new()), ("Ignore", json!({}), Vec::new())];
    for (policy, selector, expected) in cases {
        let spread = json!([{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": policy,
            "labelSelector": selector}]);
        let mut world = World::new();
        let mut second = world.objects.nodes[0].clone();
        second.metadata.name = "n2".into();
        second.metadata.labels.insert(labels::ZONE.into(), "b".into());
        world.objects.nodes.push(second);
        let zone = |zone: &str| json!({"nodeSelector": {(labels::ZONE): zone}});
        let mut held = zone("b");
        held["topologySpreadConstraints"] = spread;
        world.objects.pods = [pod("even-0", json!({"nodeName": "n2"})), pod("even-1", zone("a")), pod("even-2", held)]
            .into_iter()
            .map(|pod| serde_json::from_value(pod).unwrap())
            .collect();
        world.objects.pods[0].status.phase = "Running".into();
        world.read_nodes();
        let whole = world.plan();
        assert_eq!((whole.scheduled(), world.violated_rules(&whole)), (2, Vec::new()), "{policy}");
        let mut part = whole.clone();
        take(&mut part, "even-1");
        let stranded = super::stranded(&world.input(), &whole, &part);
        assert_eq!(stranded.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{policy}");
    }
}

#[test]
fn plans_of_the_solver_are_accepted() {
    let world = World::new();
    let plan = world.plan();
    let found = check(&world.input(), &Options::provisioning(), &plan);
    assert!(found.is_empty(), "{found:#?}\n{plan:#?}");
    assert_eq!(plan.left_out.iter().map(|l| l.pod.name.as_str()).collect::<Vec<_>>(), ["arm-0"]);
}

/// The rules that a plan violates once a pod has changed, and those that its rest violates, with how many pods of it are placed.
fn after_change(plan: Plan, name: &str, change: impl FnOnce(&mut Pod)) -> (Vec<&'static str>, Vec<&'static str>, usize) {
    let mut world = World::new();
    change(world.objects.pods.iter_mut().find(|pod| pod.metadata.name == name).unwrap());
    let before = world.violated_rules(&plan);
    let (rest, wrong) = super::without_violations(&world.input(), &Options::provisioning(), plan);
    (before, wrong.iter().map(|v| v.rule).collect(), rest.scheduled())
}

#[test]
fn a_pod_that_must_not_be_planned_costs_others_nothing_but_its_machine() {
    let mut plan = World::new().plan();
    let (placed, beside) = (plan.scheduled(), claim_of(&mut plan, "db-0").pods.len());
    let ended = |pod: &mut Pod| pod.status.phase = "Failed".into();
    let owned = |pod: &mut Pod| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "other", "uid": "u", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
    };
    assert_eq!(after_change(plan.clone(), "db-0", ended), (vec!["pod-finished"], vec![], placed - beside));
    assert_eq!(after_change(plan.clone(), "db-0", owned), (vec!["pod-of-daemonset"], vec![], placed - beside));
    for nothing in [after_change(plan.clone(), "arm-0", ended), after_change(plan, "arm-0", owned)] {
        assert_eq!(nothing, (vec![], vec![], placed), "it is left out");
    }
}

#[test]
fn a_pod_that_the_scheduler_does_not_bind_any_more_need_not_be_planned() {
    let changes: [fn(&mut Pod); 2] =
        [|pod| pod.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap()), |pod| pod.status.phase = "Failed".into()];
    for change in changes {
        let mut plan = World::new().plan();
        plan.left_out.clear();
        let placed = plan.scheduled();
        assert_eq!(after_change(plan, "arm-0", change), (vec![], vec![], placed));
    }
}

#[track_caller]
fn check_rejected(rule: &'static str, break_plan: impl FnOnce(&mut Plan)) {
    let world = World::new();
    let mut plan = world.plan();
    break_plan(&mut plan);
    let violated_rules = world.violated_rules(&plan);
    assert!(violated_rules.contains(&rule), "expected {rule}, found {violated_rules:?}");
}

#[test]
fn pods_are_neither_lost_nor_duplicated() {
    check_rejected("pod-forgotten", |p| {
        take(p, "db-0");
    });
    check_rejected("pod-forgotten", |p| p.left_out.clear());
    check_rejected("pod-twice", |p| {
        let again = claim_of(p, "db-0").pods[0].clone();
        claim_of(p, "zoned-0").pods.push(again);
    });
    check_rejected("pod-twice", |p| {
        let again = p.left_out[0].clone();
        p.left_out.push(again);
    });
    check_rejected("pod-unknown", |p| claim_of(p, "db-0").pods[0].name = "ghost".into());
    check_rejected("pod-unknown", |p| claim_of(p, "db-0").pods[0].uid = "another".into());
    check_rejected("claim-empty", |p| {
        take(p, "db-0");
    });
}

#[test]
fn claims_keep_to_their_node_pool() {
    check_rejected("pool-unknown", |p| claim_of(p, "db-0").node_pool = "nobody".into());
    check_rejected("pool-not-dynamic", |p| claim_of(p, "db-0").node_pool = "fixed".into());
    check_rejected("template", |p| claim_of(p, "db-0").taints.clear());
    check_rejected("template", |p| claim_of(p, "zoned-0").startup_taints.push(Taint::new("x", TaintEffect::NoSchedule)));
    check_rejected("template", |p| claim_of(p, "zoned-0").node_class_ref.name = "other".into());
    check_rejected("template", |p| claim_of(p, "zoned-0").labels.clear());
    check_rejected("template", |p| narrow(claim_of(p, "zoned-0"), labels::CAPACITY_TYPE, &["spot"]));
    check_rejected("taint", |p| move_to(p, "zoned-0", "db-0"));
    check_rejected("limit", |p| {
        for n in 0..9 {
            let mut more = claim_of(p, "zoned-0").clone();
            more.pods.clear();
            more.node_pool = if n < 9 { "default".into() } else { String::new() };
            p.claims.push(more);
        }
    });
}

/// The `minValues` of a claim hold under either policy, and equal those of its NodePool unless relaxed.
#[test]
fn claims_satisfy_their_min_values() {
    let lowered = |claim: &mut NewClaim| {
        claim.instance_type_min_values = Some(1);
        claim.instance_types = claim.instance_types.iter().take(1).cloned().collect();
    };
    let say = |claim: &mut NewClaim| claim.annotations.insert(labels::MIN_VALUES_RELAXED.into(), "true".into());
    for policy in [MinValuesPolicy::Strict, MinValuesPolicy::BestEffort] {
        let options = Options { min_values: policy, ..Options::provisioning() };
        let world = World::new();
        let refused = |break_plan: &dyn Fn(&mut NewClaim)| {
            let mut plan = solve(&world.input(), &options);
            break_plan(claim_of(&mut plan, "db-0"));
            check(&world.input(), &options, &plan).iter().any(|v| v.rule == "min-values")
        };
        assert!(!refused(&|_| ()), "{policy:?}: as planned");
        assert!(refused(&|c| c.instance_types.truncate(1)), "{policy:?}: fewer types than stated");
        assert!(refused(&|c| {
            c.instance_types.truncate(1);
            say(c);
        }));
        assert!(refused(&|c| c.instance_type_min_values = None), "{policy:?}: forgotten");
        assert!(refused(&lowered), "{policy:?}: lowered without an annotation");
        let openly = refused(&|c| {
            lowered(c);
            say(c);
        });
        assert_eq!(openly, policy == MinValuesPolicy::Strict, "{policy:?}: lowered openly");
    }
}

#[test]
fn claims_can_be_launched_and_hold_their_pods() {
    check_rejected("types-none", |p| types_of(p, "zoned-0").clear());
    check_rejected("types-twice", |p| {
        let claim = claim_of(p, "zoned-0");
        let first = claim.instance_types[0].clone();
        claim.instance_types.insert(0, first);
    });
    check_rejected("type-unknown", |p| types_of(p, "zoned-0").push("huge".into()));
    check_rejected("type-requirements", |p| types_of(p, "zoned-0").push("arm".into()));
    check_rejected("types-order", |p| types_of(p, "db-0").reverse());
    check_rejected("no-offering", |p| narrow(claim_of(p, "zoned-0"), labels::ZONE, &["z"]));
    check_rejected("price", |p| claim_of(p, "zoned-0").cheapest_price = Price::from_dollars(0.01));
    check_rejected("requests", |p| claim_of(p, "zoned-0").requests.set("cpu", Quantity::from_milli(1)));
    check_rejected("overfull", |p| {
        for pod in ["solo-0", "even-0", "even-1", "even-2"] {
            move_to(p, pod, "zoned-0");
        }
        types_of(p, "zoned-0").insert(0, "small".into());
    });
    check_rejected("node-selector", |p| narrow(claim_of(p, "zoned-0"), labels::ZONE, &["a"]));
    check_rejected("node-selector", |p| claim_of(p, "zoned-0").requirements.retain(|r| r.key != labels::ZONE));
    check_rejected("node-selector", |p| {
        let arm = p.left_out.remove(0).pod;
        claim_of(p, "zoned-0").pods.push(arm);
    });
    check_rejected("reservation", |p| {
        for pod in ["zoned-0", "db-0"] {
            narrow(claim_of(p, pod), labels::CAPACITY_TYPE, &["reserved"]);
            narrow(claim_of(p, pod), labels::RESERVATION_ID, &["cr-1"]);
            let mut twin = claim_of(p, pod).clone();
            twin.pods.clear();
            p.claims.push(twin);
        }
    });
}

#[test]
fn existing_nodes_are_respected() {
    let place = |plan: &mut Plan, name: &str, node: &str| {
        let pod = take(plan, name);
        let at = plan.placements.iter().position(|p| p.node == node);
        match at {
            Some(at) => plan.placements[at].pods.push(pod),
            None => plan.placements.push(whittle_model::scheduling::Placement { node: node.into(), initialized: true, pods: vec![pod] }),
        }
    };
    check_rejected("node-unknown", |p| place(p, "even-0", "nowhere"));
    check_rejected("overfull", |p| ["even-0", "even-1", "solo-0", "solo-1"].into_iter().for_each(|pod| place(p, pod, "n1")));
    check_rejected("node-selector", |p| place(p, "zoned-0", "n1"));
    check_rejected("host-port", |p| place(p, "port-0", "n1"));
    check_rejected("node-selector", |p| place(p, "db-0", "n1"));
}

#[test]
fn pod_affinity_and_anti_affinity_are_checked() {
    check_rejected("anti-affinity", |p| {
        if !claim_of_or_node(p, "solo-0") || !claim_of_or_node(p, "solo-1") {
            let other = take(p, "solo-0");
            claim_of(p, "zoned-0").pods.push(other);
            move_to(p, "solo-1", "zoned-0");
        } else {
            move_to(p, "solo-0", "solo-1");
        }
    });
    check_rejected("host-port", |p| {
        let other = take(p, "port-0");
        claim_of(p, "db-0").pods.push(other);
        move_to(p, "port-1", "db-0");
    });
    check_rejected("affinity", |p| {
        let near = take(p, "near-0");
        let mut far = claim_of(p, "zoned-0").clone();
        narrow(&mut far, labels::ZONE, &["c"]);
        far.pods = vec![near];
        p.claims.push(far);
    });
    check_rejected("spread", |p| {
        for pod in ["even-0", "even-1", "even-2"] {
            let even = take(p, pod);
            claim_of(p, "zoned-0").pods.push(even);
        }
    });
}

/// Whether the pod is placed on a new machine.
fn claim_of_or_node(plan: &Plan, pod: &str) -> bool {
    plan.claims.iter().any(|c| c.pods.iter().any(|p| p.name == pod))
}

#[test]
fn a_new_machine_is_one_that_is_expected_to_attach_the_volumes_of_its_pods() {
    let mut world = World::new();
    world.objects.pods.clear();
    world.objects.nodes.clear();
    world.nodes.clear();
    let class = json!({"metadata": {"name": "wait"}, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"});
    world.objects.storage_classes.push(serde_json::from_value(class).unwrap());
    for name in ["a", "b"] {
        let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": "wait"}});
        world.objects.volume_claims.push(serde_json::from_value(claim).unwrap());
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        world.objects.pods.push(serde_json::from_value(pod(&format!("{name}-0"), json!({"volumes": volumes}))).unwrap());
    }
    let unlimited = world.plan();
    assert_eq!((unlimited.claims.len(), world.violated_rules(&unlimited)), (1, Vec::new()));
    let mut types = InstanceTypes::clone(&world.catalog["default"]);
    types.change().iter_mut().for_each(|t| t.ebs_attachments = Some(1));
    world.catalog.insert("default".into(), Arc::new(types));
    let violated = world.violated_rules(&unlimited);
    assert!(!violated.is_empty() && violated.iter().all(|rule| *rule == "attach-limit"), "{violated:?}");
    let limited = world.plan();
    assert_eq!((limited.claims.len(), world.violated_rules(&limited)), (2, Vec::new()));
}
