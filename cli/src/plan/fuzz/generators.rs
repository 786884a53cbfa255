//! Generators of catalogs with a few types, and of valid and invalid manifests of every kind that a plan reads.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use whittle_api::labels;

/// Two unusual types, and a family each of larger and smaller ones at prices that do not follow their sizes. Two of these have
/// reservations with `reserved` instances.
pub(super) fn offered(reserved: u32) -> Vec<Value> {
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
            let mut offerings: Vec<Value> = zones.iter().map(|zone| offer(price, "on-demand", zone)).collect();
            if cpu > 6 && reserved > 0 {
                offerings.push(reservation(price / 1e7, &format!("cr-{family}"), reserved));
            }
            types.push(json!({"name": format!("{family}.{cpu}"), "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": cpu.to_string(), "memory": format!("{}Gi", 3 * cpu), "pods": "8"},
                "labels": {"size": cpu.to_string(), "family": family}, "offerings": offerings}));
        }
    }
    types
}

fn reservation(price: f64, id: &str, machines: u32) -> Value {
    let requirement = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let requirements = [
        requirement(labels::CAPACITY_TYPE, labels::CAPACITY_RESERVED),
        requirement(labels::ZONE, "a"),
        requirement(labels::RESERVATION_ID, id),
    ];
    json!({"Price": price, "ReservationCapacity": machines, "Requirements": requirements})
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
    // Mostly amounts that fit, so that pods are packed.
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

fn affinity_term() -> impl Strategy<Value = Value> {
    (key(), selector(), selector())
        .prop_map(|(key, pods, namespaces)| json!({"topologyKey": key, "labelSelector": pods, "namespaceSelector": namespaces}))
}

fn pod_affinity() -> impl Strategy<Value = Value> {
    (vec(affinity_term(), 0..2), vec(affinity_term(), 0..2)).prop_map(|(required, preferred)| {
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
    let node = (vec(vec(expression(), 0..3), 0..3), vec(expression(), 0..2)).prop_map(|(terms, preferences)| {
        let terms: Vec<Value> = terms.into_iter().map(|list| json!({"matchExpressions": list})).collect();
        let preferences: Vec<Value> =
            preferences.into_iter().map(|e| json!({"weight": 1, "preference": {"matchExpressions": [e]}})).collect();
        let required = if terms.is_empty() { Value::Null } else { json!({"nodeSelectorTerms": terms}) };
        json!({"requiredDuringSchedulingIgnoredDuringExecution": required, "preferredDuringSchedulingIgnoredDuringExecution": preferences})
    });
    let affinity = (proptest::option::of(node), proptest::option::of(pod_affinity()), proptest::option::of(pod_affinity()))
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

/// A term that selects pods with the same labels, or all pods.
fn self_affinity(labels: &Value, key: &str, all: bool) -> Value {
    let selector = if all { json!({}) } else { json!({"matchLabels": labels}) };
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": selector}]})
}

fn pod() -> impl Strategy<Value = Value> {
    let place = select(vec!["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    let seeks = proptest::option::weighted(0.3, (select(vec!["podAffinity", "podAntiAffinity"]), place, any::<bool>()));
    (labels(), pod_spec(), seeks, prop::bool::weighted(0.25), 1..4_usize).prop_map(|(labels, mut spec, seeks, bound, copies)| {
        if let Some((kind, key, all)) = seeks {
            spec["affinity"][kind] = self_affinity(&labels, key, all);
        }
        if bound {
            spec["nodeName"] = json!("n0");
        }
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"labels": labels}, "spec": spec, "copies": copies})
    })
}

/// A CPU limit, and a requirement with minValues that may conflict with it.
fn limit_and_min_values() -> impl Strategy<Value = (Value, Value)> {
    let min_values_requirement = (select(vec!["size", "family", "node.kubernetes.io/instance-type"]), 1..6);
    (min_values_requirement, select(vec!["2", "4", "7", "12", "30"]))
        .prop_map(|((key, min), cpu)| (json!({"key": key, "operator": "Exists", "values": [], "minValues": min}), json!({"cpu": cpu})))
}

fn pool() -> impl Strategy<Value = Value> {
    let requirement = (expression(), proptest::option::weighted(0.2, 0..4)).prop_map(|(mut e, min)| {
        // Requirements that the API server rejects in a NodePool are not generated.
        if e["key"] == "kubernetes.io/hostname" || e["key"] == labels::REGISTERED {
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
    let varied = proptest::option::weighted(0.4, limit_and_min_values());
    let taints = prop_oneof![3 => Just(Vec::new()), 1 => vec(taint(), 1..2)];
    (vec(requirement, 0..2), varied, labels(), taints, limits, 0..3).prop_map(
        |(mut requirements, varied, labels, taints, mut limits, weight)| {
            if let Some((min_values_requirement, within)) = varied {
                requirements.push(min_values_requirement);
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

/// A capacity buffer with its PodTemplate.
fn buffer() -> impl Strategy<Value = Vec<Value>> {
    let template = (labels(), pod_spec()).prop_map(
        |(labels, spec)| json!({"kind": "PodTemplate", "apiVersion": "v1", "metadata": {"name": "shape"}, "template": {"metadata": {"labels": labels}, "spec": spec}}),
    );
    let limits = prop_oneof![2 => Just(Value::Null), 1 => requests()];
    (template, 0..4, limits).prop_map(|(template, replicas, limits)| {
        let buffer = json!({"kind": "CapacityBuffer", "apiVersion": "autoscaling.x-k8s.io/v1beta1", "metadata": {"name": "room"},
            "spec": {"podTemplateRef": {"name": "shape"}, "replicas": replicas, "limits": limits}});
        vec![template, buffer]
    })
}

/// Documents with names, each pod several times.
pub(super) fn manifests() -> impl Strategy<Value = String> {
    let daemon = pod_spec().prop_map(
        |spec| json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {}, "spec": {"template": {"metadata": {}, "spec": spec}}}),
    );
    let settings = (select(vec!["Respect", "Ignore"]), select(vec!["Strict", "BestEffort"])).prop_map(|(preferences, min_values)| {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "plan-settings"}, "data": {"preferencePolicy": preferences, "minValuesPolicy": min_values}})
    });
    let room = proptest::option::weighted(0.25, buffer());
    (vec(pool(), 1..3), vec(node(), 0..3), vec(pod(), 0..6), vec(daemon, 0..2), settings, room).prop_map(
    |(pools, nodes, pods, daemons, settings, room)| {
        let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "data"}, "spec": {"storageClassName": "late"}});
        let late = json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer",
            "provisioner": "ebs.csi.aws.com", "allowedTopologies": [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a", "b"]}]}]});
        let mut documents = vec![claim, late, settings];
        documents.extend(room.into_iter().flatten());
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
