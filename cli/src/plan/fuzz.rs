//! Arbitrary manifests through reading and planning: never a panic, and never a plan that the checker refuses.

use super::{catalog, input};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_core::checker;
use whittle_core::schedule::{self, Input, Memory, Objective, Options, Packing, Plan, Workloads};
use whittle_core::state::ClusterState;
use whittle_units::Price;

/// More work than this for a handful of pods would slow everybody.
const WORK_MAX: u64 = 100_000;

/// Two odd types, and a family each of larger and smaller ones at prices that do not follow their sizes.
fn offered() -> String {
    let offer = |price: f64, capacity_type: &str, zone: &str| {
        json!({"Price": price, "Requirements": [{"key": labels::CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
            {"key": labels::ZONE, "operator": "In", "values": [zone]}]})
    };
    let mut types = vec![
        json!({"name": "small", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2", "memory": "4Gi", "pods": "5"},
            "labels": {"size": "2", "family": "s"}, "offerings": [offer(0.1, "on-demand", "a"), offer(0.03, "spot", "b")]}),
        json!({"name": "large", "architecture": "arm64", "operatingSystems": ["linux", "windows"],
            "resources": {"cpu": "16", "memory": "64Gi", "example.com/gpu": "2"}, "labels": {"size": "16", "family": "l"},
            "offerings": [offer(0.7, "on-demand", "b")]}),
    ];
    for (family, cpus, zones) in [("f", [1, 2, 4, 8], &["a", "b"][..]), ("g", [1, 3, 6, 12], &["a"])] {
        for (n, cpu) in cpus.into_iter().enumerate() {
            let price = [0.07, 0.05, 0.2, 0.15][n];
            let offerings: Vec<Value> = zones.iter().map(|zone| offer(price, "on-demand", zone)).collect();
            types.push(json!({"name": format!("{family}.{cpu}"), "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": cpu.to_string(), "memory": format!("{}Gi", 3 * cpu), "pods": "8"},
                "labels": {"size": cpu.to_string(), "family": family}, "offerings": offerings}));
        }
    }
    Value::from(types).to_string()
}

fn key() -> impl Strategy<Value = &'static str> {
    select(vec![
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "karpenter.sh/capacity-type",
        "karpenter.sh/nodepool",
        "karpenter.sh/registered",
        "size",
        "team",
        "a b",
        "",
        "x/y/z",
    ])
}

fn value() -> impl Strategy<Value = &'static str> {
    select(vec![
        "a",
        "b",
        "amd64",
        "arm64",
        "spot",
        "on-demand",
        "default",
        "n0",
        "2",
        "16",
        "-1",
        "9223372036854775807",
        "",
        "not a value!",
        "true",
    ])
}

fn quantity() -> impl Strategy<Value = &'static str> {
    // Mostly amounts that fit, so that there is something to pack.
    select(vec!["100m", "1", "2", "500m", "1Gi", "0", "-4", "99999999999Ei", "1000000", "1e18", "1n"])
}

fn expression() -> impl Strategy<Value = Value> {
    let operator = select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "Near"]);
    (key(), operator, vec(value(), 0..3)).prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}))
}

fn labels() -> impl Strategy<Value = Value> {
    btree_map(select(vec!["app", "team", "topology.kubernetes.io/zone", "size"]), select(vec!["a", "b", "2"]), 0..3)
        .prop_map(|map| json!(map))
}

fn selector() -> impl Strategy<Value = Value> {
    let matching = labels().prop_map(|labels| json!({"matchLabels": labels}));
    let expressions = vec(expression(), 0..2).prop_map(|list| json!({"matchExpressions": list}));
    prop_oneof![Just(Value::Null), Just(json!({})), matching, expressions]
}

fn near() -> impl Strategy<Value = Value> {
    (key(), selector(), selector())
        .prop_map(|(key, pods, namespaces)| json!({"topologyKey": key, "labelSelector": pods, "namespaceSelector": namespaces}))
}

fn neighbours() -> impl Strategy<Value = Value> {
    (vec(near(), 0..2), vec(near(), 0..2)).prop_map(|(required, preferred)| {
        let preferred: Vec<Value> = preferred.into_iter().map(|term| json!({"weight": 3, "podAffinityTerm": term})).collect();
        json!({"requiredDuringSchedulingIgnoredDuringExecution": required, "preferredDuringSchedulingIgnoredDuringExecution": preferred})
    })
}

fn spread() -> impl Strategy<Value = Value> {
    let action = select(vec!["DoNotSchedule", "ScheduleAnyway", "", "Perhaps"]);
    let policy = select(vec!["Honor", "Ignore"]);
    (-1..4, key(), action, selector(), 0..4, policy.clone(), policy).prop_map(|(skew, key, action, selector, min, affinity, taints)| {
        json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector,
            "minDomains": if min == 0 { Value::Null } else { json!(min) }, "nodeAffinityPolicy": affinity, "nodeTaintsPolicy": taints, "matchLabelKeys": ["team"]})
    })
}

fn taint() -> impl Strategy<Value = Value> {
    (select(vec!["k", "node.kubernetes.io/not-ready"]), value(), select(vec!["NoSchedule", "NoExecute", "PreferNoSchedule"]))
        .prop_map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
}

fn toleration() -> impl Strategy<Value = Value> {
    (select(vec!["k", ""]), select(vec!["Exists", "Equal", "Lt", "Odd"]), value())
        .prop_map(|(key, operator, value)| json!({"key": key, "operator": operator, "value": value}))
}

fn requests() -> impl Strategy<Value = Value> {
    btree_map(select(vec!["cpu", "memory", "example.com/gpu", "pods"]), quantity(), 0..3).prop_map(|map| json!(map))
}

fn pod_spec() -> impl Strategy<Value = Value> {
    let node = (vec(vec(expression(), 0..3), 0..3), vec(expression(), 0..2)).prop_map(|(terms, wishes)| {
        let terms: Vec<Value> = terms.into_iter().map(|list| json!({"matchExpressions": list})).collect();
        let wishes: Vec<Value> = wishes.into_iter().map(|e| json!({"weight": 1, "preference": {"matchExpressions": [e]}})).collect();
        let required = if terms.is_empty() { Value::Null } else { json!({"nodeSelectorTerms": terms}) };
        json!({"requiredDuringSchedulingIgnoredDuringExecution": required, "preferredDuringSchedulingIgnoredDuringExecution": wishes})
    });
    let affinity = (proptest::option::of(node), proptest::option::of(neighbours()), proptest::option::of(neighbours()))
        .prop_map(|(node, near, far)| json!({"nodeAffinity": node, "podAffinity": near, "podAntiAffinity": far}));
    let selector = btree_map(key(), value(), 0..2).prop_map(|map| json!(map));
    let port = select(vec![0, 80, -1, 70_000]);
    let volume = select(vec![Value::Null, json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])]);
    (
        requests(),
        requests(),
        proptest::option::weighted(0.4, affinity),
        proptest::option::weighted(0.2, selector),
        vec(toleration(), 0..2),
        vec(spread(), 0..2),
        port,
        volume,
    )
        .prop_map(|(requests, init, affinity, selector, tolerations, spread, port, volumes)| {
            json!({
                "containers": [{"name": "c", "resources": {"requests": requests}, "ports": [{"containerPort": 80, "hostPort": port}]}],
                "initContainers": [{"name": "i", "resources": {"requests": init}}],
                "affinity": affinity, "nodeSelector": selector.unwrap_or(json!({})), "tolerations": tolerations,
                "topologySpreadConstraints": spread, "volumes": volumes,
            })
        })
}

/// A term about pods like the one that has it, or about all.
fn kin(labels: &Value, key: &str, all: bool) -> Value {
    let selector = if all { json!({}) } else { json!({"matchLabels": labels}) };
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": selector}]})
}

fn pod() -> impl Strategy<Value = Value> {
    let place = select(vec!["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    let seeks = proptest::option::weighted(0.3, (select(vec!["podAffinity", "podAntiAffinity"]), place, any::<bool>()));
    (labels(), pod_spec(), seeks, prop::bool::weighted(0.25), 1..4_usize).prop_map(|(labels, mut spec, seeks, bound, copies)| {
        if let Some((kind, key, all)) = seeks {
            spec["affinity"][kind] = kin(&labels, key, all);
        }
        if bound {
            spec["nodeName"] = json!("n0");
        }
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"labels": labels}, "spec": spec, "copies": copies})
    })
}

/// A limit of processors, and a demand for different types that it may be in the way of.
fn variety() -> impl Strategy<Value = (Value, Value)> {
    let asked = (select(vec!["size", "family", "node.kubernetes.io/instance-type"]), 1..6);
    (asked, select(vec!["2", "4", "7", "12", "30"]))
        .prop_map(|((key, min), cpu)| (json!({"key": key, "operator": "Exists", "values": [], "minValues": min}), json!({"cpu": cpu})))
}

fn pool() -> impl Strategy<Value = Value> {
    let requirement = (expression(), proptest::option::weighted(0.2, 0..4)).prop_map(|(mut e, min)| {
        // What the API server refuses in a NodePool never gets here.
        if e["key"] == "kubernetes.io/hostname" {
            e["key"] = json!("topology.kubernetes.io/zone");
        }
        match e["operator"].as_str() {
            Some("Gt" | "Lt" | "Gte" | "Lte") => e["values"] = json!(["2"]),
            Some("Near") => e["operator"] = json!("Exists"),
            _ => {}
        }
        if let Some(min) = min {
            e["minValues"] = json!(min);
        }
        e
    });
    let limits = prop_oneof![3 => Just(json!({})), 1 => requests(), 1 => Just(json!({"nodes": "1"}))];
    let varied = proptest::option::weighted(0.4, variety());
    let taints = prop_oneof![3 => Just(Vec::new()), 1 => vec(taint(), 1..2)];
    (vec(requirement, 0..2), varied, labels(), taints, limits, 0..3).prop_map(
        |(mut requirements, varied, labels, taints, mut limits, weight)| {
            if let Some((asked, within)) = varied {
                requirements.push(asked);
                limits = within;
            }
            let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
            json!({"kind": "NodePool", "apiVersion": "karpenter.sh/v1", "metadata": {}, "spec": {"weight": weight, "limits": limits,
            "template": {"metadata": {"labels": labels}, "spec": {"nodeClassRef": class, "requirements": requirements, "taints": taints}}}})
        },
    )
}

fn node() -> impl Strategy<Value = Value> {
    (labels(), vec(taint(), 0..2)).prop_map(|(labels, taints)| {
        json!({"kind": "Node", "apiVersion": "v1", "metadata": {"labels": labels}, "spec": {"taints": taints}, "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "20"}}})
    })
}

/// Documents with their names, pods several times.
fn manifests() -> impl Strategy<Value = String> {
    let daemon = pod_spec().prop_map(
        |spec| json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {}, "spec": {"template": {"metadata": {}, "spec": spec}}}),
    );
    let settings = (select(vec!["Respect", "Ignore"]), select(vec!["Strict", "BestEffort"])).prop_map(|(preferences, min_values)| {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "plan-settings"}, "data": {"preferencePolicy": preferences, "minValuesPolicy": min_values}})
    });
    (vec(pool(), 1..3), vec(node(), 0..3), vec(pod(), 0..6), vec(daemon, 0..2), settings).prop_map(|(pools, nodes, pods, daemons, settings)| {
        let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "data"}, "spec": {"storageClassName": "late"}});
        let late = json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer",
            "provisioner": "ebs.csi.aws.com", "allowedTopologies": [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}]});
        let mut documents = vec![claim, late, settings];
        for (prefix, list) in [("p", pools), ("n", nodes), ("d", daemons)] {
            for (n, mut object) in list.into_iter().enumerate() {
                object["metadata"]["name"] = json!(format!("{prefix}{n}"));
                documents.push(object);
            }
        }
        for (n, mut pod) in pods.into_iter().enumerate() {
            for copy in 0..pod["copies"].as_u64().unwrap_or(1) {
                pod["metadata"]["name"] = json!(format!("pod-{n}-{copy}"));
                documents.push(pod.clone());
            }
        }
        let texts: Vec<String> = documents.iter().map(ToString::to_string).collect();
        texts.join("\n---\n")
    })
}

/// The pods that want company and have none where the plan puts them.
fn doubted<'p>(pods: &'p [Pod], wrong: &[checker::Violation]) -> BTreeSet<&'p str> {
    let about = |pod: &Pod| wrong.iter().any(|v| v.rule == "affinity" && v.detail.starts_with(&format!("{} ", pod.metadata.key())));
    pods.iter().filter(|pod| about(pod)).map(|pod| pod.metadata.name.as_str()).collect()
}

/// What plans may be measured by, with what a machine costs besides.
const OBJECTIVES: [(Objective, f64); 4] =
    [(Objective::Balanced, 0.05), (Objective::Cheapest, 0.0), (Objective::Balanced, 2.0), (Objective::Fewest, 0.0)];

/// A number from the environment.
fn told<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// The same thousand in every run of the tests; more with `WHITTLE_FUZZ_CASES=10000`, others with
/// `WHITTLE_FUZZ_SEED=7`.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: told("WHITTLE_FUZZ_CASES").unwrap_or(1000),
        rng_seed: RngSeed::Fixed(told("WHITTLE_FUZZ_SEED").unwrap_or(42)),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_stands_in_manifests_is_planned_or_explained(text in manifests(), objective in 0..OBJECTIVES.len()) {
        let Ok(read) = input::read_text("drawn", &text) else { return Ok(()) };
        let offered = catalog::for_all_pools(&read.objects, catalog::parse(&offered()).expect("a literal catalog"));
        let state = ClusterState::of(&read.objects);
        let workloads = Workloads::default();
        let input =
            Input { now: read.settings.now, objects: &read.objects, nodes: &state.nodes, catalog: &offered, virtual_pods: &[], workloads: &workloads };
        let mut judged: Vec<(Plan, BTreeSet<&str>)> = Vec::new();
        for packing in [Packing::Reference, Packing::Best] {
            let (objective, dollars) = OBJECTIVES[objective];
            let options = Options {
                packing,
                objective,
                machine_cost: Price::from_dollars(dollars),
                preferences: read.settings.preferences,
                min_values: read.settings.min_values,
                ..Options::provisioning()
            };
            let plan = schedule::solve(&input, &options);
            let wrong = checker::check(&input, &options, &plan);
            // The reference may start a pod apart from its like (ADR 0019); no other packing starts one that it does not.
            let doubted = doubted(&read.objects.pods, &wrong);
            let own = judged.first().map_or(0, |(_, plain)| doubted.difference(plain).count());
            let faults: Vec<String> = wrong.iter().filter(|v| v.rule != "affinity" || own > 0).map(ToString::to_string).collect();
            prop_assert!(faults.is_empty(), "{packing:?} ({}): {}", plan.packing, faults.join("; "));
            let (_, wrong) = checker::without_faults(&input, &options, plan.clone());
            prop_assert!(wrong.is_empty(), "{packing:?}: {wrong:?}");
            prop_assert!(plan.work < WORK_MAX, "{} units of work", plan.work);
            prop_assert!(plan.left_out.iter().all(|left| !left.reason.to_string().is_empty()));
            let settled = Memory::after(&input, &options, &plan).settled(&input, &options);
            let again = schedule::solve(&input, &Options { settled, ..options });
            prop_assert_eq!(again.scheduled(), plan.scheduled(), "what was settled had no place ({:?})", packing);
            judged.push((plan, doubted));
        }
        let [(plain, doubted), (best, fewer)] = &judged[..] else { unreachable!("two packings") };
        let placed = (plain.scheduled(), best.scheduled());
        prop_assert!(placed.1 >= placed.0, "{placed:?}");
        let (right, cheaper) = (placed.1 - fewer.len() > placed.0 - doubted.len(), best.price() <= plain.price());
        prop_assert!(right || cheaper, "{} instead of {} for {placed:?}", best.price(), plain.price());
        let machines = (plain.claims.len(), best.claims.len());
        let fewer = right || OBJECTIVES[objective].0 != Objective::Fewest || machines.1 <= machines.0;
        prop_assert!(fewer, "{} machines instead of {} for {placed:?}", machines.1, machines.0);
    }
}
