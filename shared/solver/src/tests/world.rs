//! A small cluster in a few words, and the result of a pass.

use crate::solve;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{Node, Pod, Workloads};
use whittle_api::karpenter::{NodeClaim, NodePool, Operator, Requirement};
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_model::scheduling::{Input, InstanceTypes, Options, Packing, Plan};
use whittle_model::state::ClusterState;
use whittle_units::{Price, Quantity, Resources, Timestamp};

pub(super) const Z: [&str; 3] = ["test-zone-1", "test-zone-2", "test-zone-3"];

/// A cluster under construction: one NodePool `default` without requirements, and the small catalogue.
#[derive(Clone)]
pub(super) struct World {
    pub(super) objects: ClusterObjects,
    pub(super) types: Vec<InstanceType>,
    /// Types of individual NodePools; others get `types`.
    pub(super) types_of: BTreeMap<String, Vec<InstanceType>>,
    pub(super) options: Options,
    pub(super) virtual_pods: Vec<Pod>,
    pub(super) workloads: Workloads,
    launched: usize,
}

/// A type as in Karpenter's tests: spot in two zones, on-demand in three, 100m and 10 Mi of overhead.
pub(super) fn instance_type(name: &str, cpu: i64, gib: i64, pods: i64) -> InstanceType {
    let memory = Quantity::from_mebibytes(1024 * gib);
    let nanos = u64::try_from(cpu * 100_000_000 + memory.units_floor() / 10).unwrap();
    let mut offerings: Vec<Offering> = Z[..2].iter().map(|z| offering("spot", z, nanos)).collect();
    offerings.extend(Z.iter().map(|z| offering("on-demand", z, nanos)));
    let large = cpu > 4 && gib > 8;
    let mut requirements = vec![
        Requirement::is_in(labels::INSTANCE_TYPE, [name]),
        Requirement::is_in(labels::ARCH, ["amd64"]),
        Requirement::is_in(labels::OS, ["linux", "windows", "darwin"]),
        Requirement::is_in(labels::ZONE, Z),
        Requirement::is_in(labels::CAPACITY_TYPE, ["spot", "on-demand"]),
        Requirement::is_in("integer", [cpu.to_string()]),
        Requirement::is_in("size", [if large { "large" } else { "small" }]),
    ];
    requirements.push(if large { Requirement::is_in("special", ["optional"]) } else { absent("special") });
    InstanceType {
        name: name.into(),
        requirements,
        offerings,
        capacity: Resources::from([("cpu", Quantity::from_units(cpu)), ("memory", memory), ("pods", Quantity::from_units(pods))]),
        overhead: Resources::from([("cpu", Quantity::from_milli(100)), ("memory", Quantity::from_mebibytes(10))]),
        ebs_attachments: None,
    }
}

pub(super) fn absent(key: &str) -> Requirement {
    Requirement { key: key.into(), operator: Operator::DoesNotExist, values: Vec::new(), min_values: None }
}

pub(super) fn offering(capacity_type: &str, zone: &str, nanos: u64) -> Offering {
    Offering {
        requirements: vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]), Requirement::is_in(labels::ZONE, [zone])],
        price: Price::from_nanos(nanos),
        available: true,
        reservation_capacity: None,
    }
}

/// Replaces what a type requires of `key`.
pub(super) fn with(mut t: InstanceType, key: &str, values: &[&str]) -> InstanceType {
    t.requirements.retain(|r| r.key != key);
    t.requirements.push(Requirement::is_in(key, values.iter().copied()));
    t
}

/// The small catalogue.
pub(super) fn catalogue() -> Vec<InstanceType> {
    let gpu = |name: &str, resource: &str| {
        let mut t = instance_type(name, 4, 4, 5);
        t.capacity.set(resource, Quantity::from_units(2));
        t.offerings.iter_mut().for_each(|o| o.price = Price::from_nanos(o.price.nanos() + 1_000_000_000));
        t
    };
    let arm = with(
        with(instance_type("arm-instance-type", 16, 128, 5), labels::ARCH, &["arm64"]),
        labels::OS,
        &["ios", "linux", "windows", "darwin"],
    );
    vec![
        instance_type("default-instance-type", 4, 4, 5),
        instance_type("small-instance-type", 2, 2, 5),
        gpu("gpu-vendor-instance-type", "karpenter.sh/super-great-gpu"),
        gpu("gpu-vendor-b-instance-type", "karpenter.sh/even-better-gpu"),
        arm,
        instance_type("single-pod-instance-type", 4, 4, 1),
    ]
}

/// One type per CPU, memory, zone, capacity type, operating system and architecture, each with one offering.
pub(super) fn assorted() -> Vec<InstanceType> {
    let mut out = Vec::new();
    for cpu in [1, 2, 4, 8, 16, 32, 64] {
        for gib in [1, 2, 4, 8, 16, 32, 64, 128] {
            for zone in Z {
                for capacity_type in ["spot", "on-demand"] {
                    for os in ["linux", "windows"] {
                        for arch in ["amd64", "arm64"] {
                            let name = format!("{cpu}-cpu-{gib}-mem-{arch}-{os}-{zone}-{capacity_type}");
                            let t = with(with(instance_type(&name, cpu, gib, 5), labels::ARCH, &[arch]), labels::OS, &[os]);
                            let mut t = with(with(t, labels::ZONE, &[zone]), labels::CAPACITY_TYPE, &[capacity_type]);
                            t.offerings.retain(|o| o.zone() == zone && o.capacity_type() == capacity_type);
                            if t.offerings.is_empty() {
                                // The small constructor has no spot offering in the third zone; this catalogue does.
                                t.offerings.push(offering(capacity_type, zone, instance_type("", cpu, gib, 5).offerings[0].price.nanos()));
                            }
                            out.push(t);
                        }
                    }
                }
            }
        }
    }
    out
}

pub(super) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// `{"key": .., "operator": .., "values": [..]}`.
pub(super) fn expr(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

/// Required node affinity with these alternatives.
pub(super) fn required(terms: &[&[Value]]) -> Value {
    let terms: Vec<Value> = terms.iter().map(|t| json!({"matchExpressions": t})).collect();
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

/// Preferred node affinity: weight and expression.
pub(super) fn preferred(terms: &[(i32, Value)]) -> Value {
    let terms: Vec<Value> = terms.iter().map(|(w, e)| json!({"weight": w, "preference": {"matchExpressions": [e]}})).collect();
    json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
}

/// A hard spread over `key` of pods labelled `app`.
pub(super) fn spread(key: &str, app: &str, skew: i32) -> Value {
    json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": app}}})
}

/// A term of pod affinity or anti-affinity against pods labelled `app`.
pub(super) fn near(key: &str, app: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

/// Merges objects, deeply.
pub(super) fn all(parts: &[Value]) -> Value {
    fn join(into: &mut Map<String, Value>, more: &Map<String, Value>) {
        for (key, value) in more {
            match (into.get_mut(key), value) {
                (Some(Value::Object(old)), Value::Object(new)) => join(old, new),
                _ => {
                    into.insert(key.clone(), value.clone());
                }
            }
        }
    }
    let mut out = Map::new();
    parts.iter().for_each(|p| join(&mut out, p.as_object().unwrap()));
    Value::Object(out)
}

pub(super) fn hard(kind: &str, term: Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

pub(super) fn soft(kind: &str, term: Value) -> Value {
    json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}})
}

/// A pending pod. `cpu`, `memory`, `requests`, `labels`, `annotations` and `owners` are put in their places, the rest is its
/// spec.
pub(super) fn pod(name: &str, spec: Value) -> Pod {
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    let mut requests = spec.remove("requests").unwrap_or(json!({}));
    for resource in ["cpu", "memory"] {
        if let Some(amount) = spec.remove(resource) {
            requests[resource] = amount;
        }
    }
    let mut metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}")});
    for (key, field) in [("labels", "labels"), ("annotations", "annotations"), ("owners", "ownerReferences"), ("namespace", "namespace")] {
        if let Some(value) = spec.remove(key) {
            metadata[field] = value;
        }
    }
    let ports = spec.remove("ports").unwrap_or(json!([]));
    let containers = json!([{"name": "app", "resources": {"requests": requests}, "ports": ports}]);
    spec.entry("containers").or_insert(containers);
    serde_json::from_value(json!({
        "metadata": metadata, "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    }))
    .unwrap()
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self {
            objects: ClusterObjects::default(),
            types: catalogue(),
            types_of: BTreeMap::new(),
            options: Options { packing: Packing::Reference, ..Options::provisioning() },
            virtual_pods: Vec::new(),
            workloads: Workloads::default(),
            launched: 0,
        };
        world.pool("default", json!({}));
        world
    }

    /// Adds or replaces a NodePool. `labels`, `annotations`, `requirements`, `taints` and `startupTaints` belong to its template.
    pub(super) fn pool(&mut self, name: &str, spec: Value) -> &mut NodePool {
        let mut spec = spec.as_object().cloned().unwrap_or_default();
        let mut template = json!({"metadata": {}, "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []}});
        for (key, place) in [
            ("labels", "metadata"),
            ("annotations", "metadata"),
            ("requirements", "spec"),
            ("taints", "spec"),
            ("startupTaints", "spec"),
            ("terminationGracePeriod", "spec"),
        ] {
            if let Some(value) = spec.remove(key) {
                template[place][key] = value;
            }
        }
        spec.insert("template".into(), template);
        let pool: NodePool =
            serde_json::from_value(json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec})).unwrap();
        self.objects.node_pools.retain(|p| p.metadata.name != name);
        self.objects.node_pools.push(pool);
        self.objects.node_pools.last_mut().unwrap()
    }

    pub(super) fn pod(&mut self, name: &str, spec: Value) -> &mut Pod {
        self.objects.pods.push(pod(name, spec));
        self.objects.pods.last_mut().unwrap()
    }

    /// Pods `name-0`, `name-1`, …, labelled `app: name` by default.
    pub(super) fn pods(&mut self, name: &str, count: usize, spec: &Value) {
        let spec = all(&[json!({"labels": {"app": name}}), spec.clone()]);
        // Names stay unique over several batches.
        let first = self.objects.pods.len();
        for n in first..first + count {
            self.pod(&format!("{name}-{n}"), spec.clone());
        }
    }

    /// A node without a NodePool.
    pub(super) fn node(&mut self, name: &str, cpu: i64, labels: Value) -> &mut Node {
        let mut node: Node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        node.metadata.labels.insert(labels::HOSTNAME.into(), name.into());
        node.status.capacity = Resources::from([
            ("cpu", Quantity::from_units(cpu)),
            ("memory", Quantity::from_mebibytes(1024 * cpu)),
            ("pods", Quantity::from_units(110)),
        ]);
        node.status.allocatable = node.status.capacity.clone();
        self.objects.nodes.push(node);
        self.objects.nodes.last_mut().unwrap()
    }

    /// A node of a NodePool with its claim; `state` is `launched`, `registered` or `initialized`.
    pub(super) fn managed(&mut self, name: &str, state: &str, cpu: i64, labels: Value) -> (&mut Node, &mut NodeClaim) {
        let own = json!({labels::NODE_POOL: "default", labels::INSTANCE_TYPE: "default-instance-type", labels::ARCH: "amd64", labels::OS: "linux"});
        let mut labels = all(&[own, labels]);
        let mut claim = NodeClaim { metadata: ObjectMeta::named(format!("claim-{name}")), ..NodeClaim::default() };
        claim.metadata.labels = serde_json::from_value(labels.clone()).unwrap();
        claim.status.provider_id = format!("aws:///{name}");
        if state != "launched" {
            labels[labels::REGISTERED] = json!("true");
        }
        if state == "initialized" {
            labels[labels::INITIALIZED] = json!("true");
        }
        self.node(name, cpu, labels).spec.provider_id = format!("aws:///{name}");
        let node = self.objects.nodes.last_mut().unwrap();
        claim.status.capacity = node.status.capacity.clone();
        claim.status.allocatable = node.status.capacity.clone();
        claim.status.node_name = name.to_owned();
        self.objects.node_claims.push(claim);
        (node, self.objects.node_claims.last_mut().unwrap())
    }

    /// Puts the pods of that name, or with that name and a number, on a node.
    pub(super) fn bind(&mut self, name: &str, node: &str) {
        for pod in self
            .objects
            .pods
            .iter_mut()
            .filter(|p| p.metadata.name == name || p.metadata.name.rsplit_once('-').is_some_and(|(n, _)| n == name))
        {
            pod.spec.node_name = node.to_owned();
            pod.status.phase = "Running".into();
            pod.status.conditions.clear();
        }
    }

    /// Calls a function with the cluster as a decision sees it.
    pub(super) fn ask<R>(&self, question: impl FnOnce(&Input<'_>) -> R) -> R {
        let catalog = self.catalog();
        let state = ClusterState::of(&self.objects);
        let input = Input {
            now: now(),
            objects: &self.objects,
            nodes: &state.nodes,
            catalog: &catalog,
            virtual_pods: &self.virtual_pods,
            workloads: &self.workloads,
        };
        question(&input)
    }

    pub(super) fn solve(&self, options: &Options) -> Plan {
        self.ask(|input| {
            let plan = solve(input, options);
            let wrong = whittle_checker::check(input, options, &plan);
            assert!(wrong.is_empty(), "{}", wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
            plan
        })
    }

    pub(super) fn catalog(&self) -> BTreeMap<String, Arc<InstanceTypes>> {
        let shared: Arc<InstanceTypes> = Arc::new(self.types.clone().into());
        let of = |name: &String| self.types_of.get(name).map_or_else(|| Arc::clone(&shared), |own| Arc::new(own.clone().into()));
        self.objects.node_pools.iter().map(|p| (p.metadata.name.clone(), of(&p.metadata.name))).collect()
    }

    /// Karpenter's plan. The default plan is made as well and must not be worse.
    #[track_caller]
    pub(super) fn plan(&self) -> Plan {
        let plan = self.solve(&self.options);
        let best = self.solve(&Options { packing: Packing::Best, ..self.options.clone() });
        assert!(best.scheduled() >= plan.scheduled(), "{} placed instead of {}", best.scheduled(), plan.scheduled());
        assert!(best.scheduled() > plan.scheduled() || best.price() <= plan.price(), "{} instead of {}", best.price(), plan.price());
        plan
    }

    /// Plans, launches the cheapest type of each claim, and lets its pods run there.
    #[track_caller]
    pub(super) fn pass(&mut self) -> Plan {
        let plan = self.plan();
        for claim in &plan.claims {
            self.launched += 1;
            let name = format!("node-{:03}", self.launched);
            let types = self.types_of.get(&claim.node_pool).unwrap_or(&self.types);
            let t = types.iter().find(|t| t.name == claim.instance_types[0]).unwrap().clone();
            let admits = |key: &str, value: &str| {
                let asked = claim.requirements.iter().filter(|r| r.key == key);
                asked.clone().all(|r| {
                    whittle_model::requirements::from_requirements(std::slice::from_ref(r)).get(key).unwrap().has(&value.to_owned())
                })
            };
            let offers = t
                .offerings
                .iter()
                .filter(|o| o.available && admits(labels::ZONE, o.zone()) && admits(labels::CAPACITY_TYPE, o.capacity_type()));
            let offer = offers.min_by_key(|o| (o.price, o.zone().to_owned())).unwrap();
            let mut own = json!(claim.labels);
            for r in t.requirements.iter().chain(&offer.requirements) {
                if let Some(value) = r.values.iter().find(|v| r.operator == Operator::In && admits(&r.key, v)) {
                    own[&r.key] = json!(value);
                }
            }
            own[labels::ZONE] = json!(offer.zone());
            own[labels::CAPACITY_TYPE] = json!(offer.capacity_type());
            let taints = claim.taints.clone();
            let (node, launched) = self.managed(&name, "initialized", 1, own);
            node.status.capacity = t.capacity.clone();
            node.status.allocatable = t.allocatable();
            node.spec.taints = taints;
            launched.status.capacity = t.capacity.clone();
            let on: BTreeSet<String> = claim.pods.iter().map(|p| p.name.clone()).collect();
            on.iter().for_each(|p| self.bind(p, &name));
        }
        for placement in &plan.placements {
            placement.pods.iter().for_each(|p| self.bind(&p.name, &placement.node));
        }
        plan
    }

    /// The number of running pods labelled `app` by value of a node label, sorted by count.
    pub(super) fn counts(&self, key: &str, app: &str) -> Vec<usize> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self.objects.pods.iter().filter(|p| p.is_bound() && !p.is_terminal() && p.metadata.label("app") == Some(app)) {
            let node = self.objects.nodes.iter().find(|n| n.metadata.name == pod.spec.node_name);
            if let Some(value) = node.and_then(|n| n.metadata.label(key)) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let mut out: Vec<usize> = counts.into_values().collect();
        out.sort_unstable();
        out
    }

    /// The label of the node that a pod runs on.
    pub(super) fn label_of(&self, pod: &str, key: &str) -> Option<&str> {
        let pod = self.objects.pods.iter().find(|p| p.metadata.name == pod)?;
        self.objects.nodes.iter().find(|n| n.metadata.name == pod.spec.node_name)?.metadata.label(key)
    }
}

/// Names of the pods without a place.
pub(super) fn left(plan: &Plan) -> Vec<&str> {
    plan.left_out.iter().map(|l| l.pod.name.as_str()).collect()
}

/// The reasons, as users read them.
pub(super) fn reasons(plan: &Plan) -> Vec<String> {
    plan.left_out.iter().map(|l| l.reason.to_string()).collect()
}

/// The values that a claim may have for a label: the text of its requirement.
pub(super) fn asks(plan: &Plan, claim: usize, key: &str) -> String {
    let reqs = whittle_model::requirements::from_requirements(&plan.claims[claim].requirements);
    reqs.get(key).map_or_else(|| "-".into(), |a| a.text())
}

/// Pods on each new machine, largest first.
pub(super) fn sizes(plan: &Plan) -> Vec<usize> {
    let mut out: Vec<usize> = plan.claims.iter().map(|c| c.pods.len()).collect();
    out.sort_unstable_by(|a, b| b.cmp(a));
    out
}

/// Plans one pod against one NodePool: `Some(values)` of `key` on its machine, `None` if it has no place.
#[track_caller]
pub(super) fn one(pool: Value, spec: Value, key: &str) -> Option<String> {
    let mut world = World::new();
    world.pool("default", pool);
    world.pod("it", spec);
    world.pass();
    world.objects.pods[0].is_bound().then(|| world.label_of("it", key).unwrap_or("-").to_owned())
}
