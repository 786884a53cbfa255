//! What pods request, and how they share machines.

use super::world::{World, assorted, instance_type, left, offering, pod, sizes, with};
use serde_json::{Value, json};
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_units::{Quantity, Resources};

#[track_caller]
fn takes(spec: Value, expected: &[(&str, &str)]) {
    let shown = spec.to_string();
    check_takes(&pod("it", spec), expected, &shown);
}

#[track_caller]
fn check_takes(pod: &Pod, expected: &[(&str, &str)], shown: &str) {
    let mut wanted: Resources = expected.iter().map(|(n, a)| ((*n).to_owned(), a.parse().unwrap())).collect();
    wanted.set("pods", Quantity::from_units(1));
    assert_eq!(whittle_model::pods::effective_requests(pod), wanted, "{shown}");
    assert_eq!(whittle_checker::pod_requests(pod), wanted, "the checker, {shown}");
}

fn container(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

fn sidecar(name: &str, cpu: &str, memory: &str) -> Value {
    let mut out = container(name, cpu, memory);
    out["restartPolicy"] = json!("Always");
    out
}

#[test]
fn containers_and_sidecars_are_summed() {
    takes(
        json!({"containers": [container("a", "1", "1Gi"), container("b", "2", "1Gi")], "initContainers": [sidecar("s", "1", "1Gi")]}),
        &[("cpu", "4"), ("memory", "3Gi")],
    );
}

#[test]
fn a_start_up_peak_counts_per_resource_with_the_sidecars_before_it() {
    let app = || json!([container("a", "1", "1Gi")]);
    takes(json!({"containers": app(), "initContainers": [container("i", "3", "512Mi")]}), &[("cpu", "3"), ("memory", "1Gi")]);
    takes(
        json!({"containers": app(), "initContainers": [sidecar("s", "1", "0"), container("i", "3", "0")]}),
        &[("cpu", "4"), ("memory", "1Gi")],
    );
    takes(
        json!({"containers": app(), "initContainers": [container("i", "3", "0"), sidecar("s", "1", "0")]}),
        &[("cpu", "3"), ("memory", "1Gi")],
    );
    let many = json!([
        sidecar("s1", "1", "1Gi"),
        container("i1", "5", "1Gi"),
        sidecar("s2", "2", "2Gi"),
        container("i2", "1", "9Gi"),
        sidecar("s3", "1", "1Gi")
    ]);
    takes(json!({"containers": app(), "initContainers": many}), &[("cpu", "6"), ("memory", "12Gi")]);
    takes(
        json!({"containers": [container("a", "1", "8Gi")], "initContainers": [container("i", "4", "1Gi")]}),
        &[("cpu", "4"), ("memory", "8Gi")],
    );
}

#[test]
fn overhead_is_added_last_and_pod_level_requests_replace_what_they_name() {
    takes(
        json!({"containers": [container("a", "1", "1Gi")], "initContainers": [container("i", "2", "0")], "overhead": {"cpu": "500m"}}),
        &[("cpu", "2500m"), ("memory", "1Gi")],
    );
    let whole = json!({"containers": [container("a", "1", "1Gi")], "resources": {"requests": {"cpu": "3", "example.com/x": "1"}}});
    takes(whole, &[("cpu", "3"), ("memory", "1Gi")]);
}

#[test]
fn a_container_that_is_resized_takes_the_most_of_spec_and_status() {
    let resizing = |spec: &str, running: Option<&str>, allocated: &str, infeasible: bool| {
        let mut it = pod("it", json!({"containers": [container("a", spec, "1Gi")]}));
        let running = running.map(|cpu| json!({"requests": {"cpu": cpu, "memory": "1Gi"}}));
        let status = json!([{"name": "a", "resources": running, "allocatedResources": {"cpu": allocated, "memory": "1Gi"}}]);
        it.status.container_statuses = serde_json::from_value(status).unwrap();
        if infeasible {
            it.status
                .conditions
                .push(serde_json::from_value(json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"})).unwrap());
        }
        it
    };
    for (it, cpu, what) in [
        (resizing("1", Some("2"), "2", false), "2", "shrinking"),
        (resizing("4", Some("2"), "2", false), "4", "growing"),
        (resizing("4", Some("2"), "2", true), "2", "a growth that is refused"),
        (resizing("1", None, "2", false), "1", "a status without resources"),
        (pod("it", json!({"containers": [container("a", "1", "1Gi")]})), "1", "no status"),
    ] {
        check_takes(&it, &[("cpu", cpu), ("memory", "1Gi")], what);
    }
    let mut init = pod("it", json!({"containers": [], "initContainers": [container("a", "1", "1Gi")]}));
    init.status.init_container_statuses = serde_json::from_value(json!([{"name": "a", "resources": {"requests": {"cpu": "9"}}}])).unwrap();
    check_takes(&init, &[("cpu", "1"), ("memory", "1Gi")], "an init container is never resized");
}

#[test]
fn a_pod_that_is_resized_as_a_whole_takes_the_most_of_spec_and_status() {
    let resizing = |whole: Value, running: Value, allocated: Value, infeasible: bool| {
        let mut it = pod("it", json!({"containers": [container("a", "1", "1Gi")], "resources": {"requests": whole}}));
        if !running.is_null() {
            it.status.resources = serde_json::from_value(json!({"requests": running})).unwrap();
        }
        it.status.allocated_resources = serde_json::from_value(allocated).unwrap();
        if infeasible {
            it.status
                .conditions
                .push(serde_json::from_value(json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"})).unwrap());
        }
        it
    };
    let cpu = |cpu: &str| json!({"cpu": cpu});
    for (it, taken, what) in [
        (resizing(cpu("2"), cpu("4"), cpu("4"), false), "4", "shrinking"),
        (resizing(cpu("2"), cpu("2"), cpu("4"), false), "4", "allocated and not in force yet"),
        (resizing(cpu("6"), cpu("4"), cpu("4"), false), "6", "growing"),
        (resizing(cpu("6"), cpu("4"), cpu("4"), true), "4", "a growth that is refused"),
        (resizing(cpu("2"), Value::Null, cpu("4"), false), "2", "a status without resources"),
        (resizing(cpu("2"), Value::Null, json!({}), true), "2", "no status"),
        (resizing(json!({}), cpu("3"), cpu("4"), false), "4", "a pod without requests as a whole, whose containers are resized"),
    ] {
        check_takes(&it, &[("cpu", taken), ("memory", "1Gi")], what);
    }
    let more = resizing(cpu("2"), json!({"cpu": "2", "memory": "3Gi", "example.com/x": "1"}), json!({}), false);
    check_takes(&more, &[("cpu", "2"), ("memory", "3Gi")], "what a pod cannot request as a whole is that of its containers");
    let mut over = resizing(json!({}), cpu("1"), cpu("1500m"), false);
    over.spec.overhead = Resources::from([("cpu", Quantity::from_milli(500))]);
    check_takes(&over, &[("cpu", "2"), ("memory", "1Gi")], "kube-scheduler counts overhead twice");
}

#[test]
fn lists_are_joined_by_sum_and_maximum() {
    let mut a = Resources::from([("cpu", Quantity::from_units(1)), ("x", Quantity::from_units(5))]);
    a.raise_to(&Resources::from([("cpu", Quantity::from_units(2)), ("y", Quantity::from_units(1))]));
    assert_eq!(a, Resources::from([("cpu", Quantity::from_units(2)), ("x", Quantity::from_units(5)), ("y", Quantity::from_units(1))]));
    assert!(Resources::from([("z", Quantity::ZERO)]).fits(&a), "wanting nothing of what is not there");
    assert!(!Resources::from([("z", Quantity::from_units(1))]).fits(&a));
}

/// The cheapest type of each machine, and how many pods have no place.
#[track_caller]
fn machines(world: &World, expected: &[&str], without: usize) {
    let plan = world.plan();
    let mut types: Vec<&str> = plan.claims.iter().map(|c| c.instance_types[0].as_str()).collect();
    types.sort_unstable();
    assert_eq!((types, left(&plan).len()), (expected.to_vec(), without));
}

#[track_caller]
fn alone(spec: Value, expected: Option<&str>) {
    alone_on(&World::new(), spec, expected);
}

#[track_caller]
fn alone_on(world: &World, spec: Value, expected: Option<&str>) {
    let mut world = world.clone();
    world.pod("it", spec);
    machines(&world, expected.as_slice(), usize::from(expected.is_none()));
}

#[test]
fn a_pod_gets_the_smallest_type_that_holds_it() {
    alone(json!({"requests": {"cpu": "1m"}}), Some("small-instance-type"));
    alone(json!({"containers": []}), Some("small-instance-type"));
    alone(json!({"cpu": "1", "overhead": {"cpu": "2"}}), Some("default-instance-type"));
    alone(json!({"requests": {"cpu": "1", "example.com/nothing": "0"}}), Some("small-instance-type"));
    alone(json!({"resources": {"requests": {"cpu": "9900m", "memory": "3900Mi"}}}), Some("arm-instance-type"));
    alone(
        json!({"containers": [container("a", "1", "1Gi")], "initContainers": [container("i", "3", "1Gi")]}),
        Some("default-instance-type"),
    );
}

#[test]
fn a_pod_that_no_type_holds_has_no_place() {
    alone(json!({"cpu": "100"}), None);
    alone(json!({"containers": [container("a", "1", "1Gi")], "initContainers": [container("i", "10000", "1Gi")]}), None);
    alone(json!({"requests": {"karpenter.sh/super-great-gpu": "1", "karpenter.sh/even-better-gpu": "1"}}), None);
    alone(json!({"requests": {"example.com/unknown": "1"}}), None);
}

#[test]
fn small_pods_share_one_machine() {
    let mut world = World::new();
    world.pods("web", 5, &json!({"requests": {"cpu": "10m"}}));
    machines(&world, &["small-instance-type"], 0);
}

#[test]
fn small_pods_fill_the_gaps_that_large_ones_leave() {
    let mut world = World::new();
    let amd = json!({"memory": "1800M", "nodeSelector": {labels::ARCH: "amd64"}});
    world.pods("large", 40, &amd);
    assert_eq!(world.plan().claims.len(), 20);
    world.pods("small", 20, &json!({"memory": "400M", "nodeSelector": {labels::ARCH: "amd64"}}));
    assert_eq!(world.plan().claims.len(), 20);
}

#[test]
fn a_pod_that_does_not_fit_beside_another_gets_a_smaller_machine_of_its_own() {
    let mut world = World::new();
    world.types = (1..=5).map(|cpu| instance_type(&format!("c{cpu}"), cpu, 8, 10)).collect();
    world.pod("large", json!({"cpu": "4500m"}));
    world.pod("small", json!({"cpu": "1"}));
    machines(&world, &["c2", "c5"], 0);
}

#[test]
fn a_machine_holds_pods_up_to_its_limit() {
    let mut world = World::new();
    world.pods("web", 25, &json!({"requests": {"cpu": "1m"}, "nodeSelector": {labels::INSTANCE_TYPE: "small-instance-type"}}));
    assert_eq!(sizes(&world.plan()), [5; 5]);
    let mut world = World::new();
    world.pods("web", 3, &json!({"requests": {"cpu": "1m"}, "nodeSelector": {labels::INSTANCE_TYPE: "single-pod-instance-type"}}));
    assert_eq!(sizes(&world.plan()), [1; 3]);
}

#[test]
fn a_type_that_does_not_fit_is_never_offered_however_cheap() {
    let mut world = World::new();
    world.types = vec![instance_type("tiny", 1, 1, 10), instance_type("dear", 4, 4, 10), instance_type("cheap", 4, 4, 10)];
    for (t, nanos) in world.types.iter_mut().zip([1, 900, 500]) {
        t.offerings = vec![offering("on-demand", super::world::Z[0], nanos)];
    }
    world.pod("it", json!({"cpu": "2"}));
    assert_eq!(world.plan().claims[0].instance_types, ["cheap", "dear"]);
}

#[test]
fn pods_that_need_different_machines_get_them() {
    for (key, a, b) in [
        (labels::ARCH, "amd64", "arm64"),
        (labels::OS, "linux", "windows"),
        (labels::INSTANCE_TYPE, "small-instance-type", "default-instance-type"),
        (labels::ZONE, super::world::Z[0], super::world::Z[1]),
    ] {
        let mut world = World::new();
        world.pod("a", json!({"nodeSelector": {key: a}}));
        world.pod("b", json!({"nodeSelector": {key: b}}));
        assert_eq!(sizes(&world.plan()), [1, 1], "{key}");
    }
    let mut world = World::new();
    world.pod("a", json!({"requests": {"karpenter.sh/super-great-gpu": "1"}}));
    world.pod("b", json!({"requests": {"karpenter.sh/even-better-gpu": "1"}}));
    machines(&world, &["gpu-vendor-b-instance-type", "gpu-vendor-instance-type"], 0);
}

#[test]
fn excluded_types_are_not_offered() {
    use super::world::{expr, required};
    let mut world = World::new();
    world.pod("name", required(&[&[expr(labels::INSTANCE_TYPE, "NotIn", &["small-instance-type"])]]));
    assert!(!world.plan().claims[0].instance_types.contains(&"small-instance-type".to_owned()));
    let mut world = World::new();
    world.pod("system", required(&[&[expr(labels::OS, "In", &["ios"])]]));
    assert_eq!(world.plan().claims[0].instance_types, ["arm-instance-type"]);
    let mut world = World::new();
    world.pool("default", json!({"requirements": [expr(labels::ARCH, "NotIn", &["amd64"])]}));
    world.pod("it", json!({}));
    assert_eq!(world.plan().claims[0].instance_types, ["arm-instance-type"]);
}

#[test]
fn labels_of_types_choose_among_them_present_or_absent() {
    use super::world::{expr, required};
    alone(json!({"nodeSelector": {"size": "large"}}), Some("arm-instance-type"));
    alone(json!({"nodeSelector": {"size": "small", "special": "optional"}}), None);
    alone(required(&[&[expr("special", "In", &["optional"])]]), Some("arm-instance-type"));
    alone(required(&[&[expr("special", "DoesNotExist", &[])]]), Some("small-instance-type"));
}

#[test]
fn a_type_whose_system_takes_more_than_it_has_is_no_choice_for_pods_that_ask_for_nothing() {
    let mut world = World::new();
    world.types[1].overhead.set("memory", Quantity::from_mebibytes(2 * 1024 + 1));
    alone_on(&world, json!({"cpu": "100m"}), Some("default-instance-type"));
    world.types[1].overhead.set("memory", Quantity::from_mebibytes(2 * 1024));
    alone_on(&world, json!({"cpu": "100m"}), Some("small-instance-type"));
    world.types.iter_mut().for_each(|t| t.overhead.set("memory", Quantity::from_mebibytes(1024 * 1024)));
    alone_on(&world, json!({}), None);
}

#[test]
fn huge_pages_are_taken_from_memory() {
    let mut t = instance_type("huge", 4, 20, 10);
    t.overhead.set("memory", Quantity::from_mebibytes(1024));
    t.capacity.set("hugepages-2Mi", Quantity::from_mebibytes(15 * 1024));
    assert_eq!(t.allocatable().get("memory"), Quantity::from_mebibytes(4 * 1024));
    t.capacity.set("hugepages-2Mi", Quantity::from_mebibytes(25 * 1024));
    assert_eq!(t.allocatable().get("memory"), Quantity::ZERO);
}

#[test]
fn every_request_fits_the_type_it_gets() {
    let types = assorted();
    for cpu in [1, 3, 9, 30, 60] {
        for gib in [1, 7, 30, 100] {
            let mut world = World::new();
            world.types.clone_from(&types);
            world.pod("it", json!({"cpu": (cpu * 1000 - 200).to_string() + "m", "memory": format!("{}Mi", gib * 1024 - 100)}));
            let plan = world.solve(&world.options);
            let t = types.iter().find(|t| t.name == plan.claims[0].instance_types[0]).unwrap();
            let asked = whittle_model::pods::effective_requests(&world.objects.pods[0]);
            assert!(asked.fits(&t.allocatable()), "{cpu} {gib}: {}", t.name);
        }
    }
}

#[test]
fn systems_with_several_values_serve_pods_of_either() {
    let mut world = World::new();
    world.types = vec![with(instance_type("both", 4, 4, 10), labels::ARCH, &["amd64", "arm64"])];
    world.pod("a", json!({"nodeSelector": {labels::ARCH: "amd64"}}));
    world.pod("b", json!({"nodeSelector": {labels::ARCH: "arm64"}}));
    assert_eq!(sizes(&world.plan()), [1, 1], "one machine has one architecture");
}
