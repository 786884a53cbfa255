//! The requests of daemons on machines, and what a claim states.

use super::world::{World, Z, all, asks, expr, hard, left, near, now, preferred, reasons, required};
use serde_json::{Value, json};
use whittle_api::labels;
use whittle_model::scheduling::Packing;

/// A DaemonSet; fields as of [`super::world::pod`].
pub(super) fn daemon(world: &mut World, name: &str, spec: Value) {
    let pod = super::world::pod(name, spec);
    let set =
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"template": {"metadata": pod.metadata, "spec": pod.spec}}});
    world.objects.daemon_sets.push(serde_json::from_value(set).unwrap());
}

/// The cheapest type for one pod of this size next to one daemon.
#[track_caller]
fn beside(daemon_spec: Value, pool: Value, cpu: &str, expected: Option<&str>) {
    let shown = daemon_spec.to_string();
    let mut world = World::new();
    world.pool("default", pool);
    daemon(&mut world, "agent", daemon_spec);
    world.pod("it", json!({"cpu": cpu, "memory": "1Gi"}));
    let plan = world.plan();
    assert_eq!(plan.claims.first().map(|c| c.instance_types[0].as_str()), expected, "{shown}");
}

const SMALL: Option<&str> = Some("small-instance-type");
const DEFAULT: Option<&str> = Some("default-instance-type");

fn large() -> Value {
    json!({"cpu": "1", "memory": "1Gi"})
}

#[test]
fn daemons_are_counted_where_they_will_run() {
    beside(json!({"cpu": "2", "memory": "2Gi"}), json!({}), "1", DEFAULT);
    beside(json!({}), json!({}), "1", SMALL);
    let taint = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    beside(large(), json!({"startupTaints": taint["taints"]}), "1", DEFAULT);
    beside(large(), json!({"taints": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]}), "1", DEFAULT);
    beside(all(&[large(), json!({"nodeSelector": {"k": "v"}})]), json!({"labels": {"k": "v"}}), "1", DEFAULT);
    beside(all(&[large(), required(&[&[expr("foo", "NotIn", &["bar"])]])]), json!({}), "1", DEFAULT);
    beside(
        all(&[large(), required(&[&[expr("foo", "In", &["x"])], &[expr("foo", "In", &["bar"])]])]),
        json!({"labels": {"foo": "bar"}}),
        "1",
        DEFAULT,
    );
    beside(all(&[large(), preferred(&[(1, expr("foo", "In", &["x"]))])]), json!({}), "1", DEFAULT);
    for key in [labels::REGISTERED, labels::INITIALIZED] {
        beside(all(&[large(), required(&[&[expr(key, "In", &["true"])]])]), json!({}), "1", DEFAULT);
    }
}

#[test]
fn daemons_that_will_not_run_there_are_not_counted() {
    let mut world = World::new();
    world.pool("default", json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}));
    daemon(&mut world, "agent", large());
    world.pod("it", json!({"cpu": "1", "memory": "1Gi", "tolerations": [{"operator": "Exists"}]}));
    assert_eq!(world.plan().claims[0].instance_types[0], "small-instance-type");
    beside(all(&[large(), json!({"nodeSelector": {"nobody": "v"}})]), json!({}), "1", SMALL);
    beside(all(&[large(), json!({"nodeSelector": {labels::HOSTNAME: "that-one"}})]), json!({}), "1", SMALL);
    beside(all(&[large(), required(&[&[expr(labels::HOSTNAME, "NotIn", &["that-one"])]])]), json!({}), "1", DEFAULT);
    beside(all(&[large(), required(&[&[expr(labels::INSTANCE_TYPE, "In", &["unknown"])]])]), json!({}), "1", SMALL);
}

#[test]
fn daemons_that_no_type_holds_leave_no_room_for_pods() {
    let container = |part: &str| json!({"containers": [{"name": "a", "resources": {part: {"cpu": "10000", "memory": "10000Gi"}}}]});
    beside(container("requests"), json!({}), "1", None);
    beside(container("limits"), json!({}), "1", None);
    let init = json!({"containers": [], "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "10000"}}}]});
    beside(init, json!({}), "1", None);
    let started = json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "10000"}}}]});
    beside(started, json!({}), "1", DEFAULT);
    let started = json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3", "memory": "3Gi"}, "limits": {"cpu": "10000", "memory": "10000Gi"}}}]});
    let mut world = World::new();
    daemon(&mut world, "agent", started);
    world.pod("it", json!({}));
    assert_eq!(world.plan().claims[0].instance_types[0], "default-instance-type");
}

#[test]
fn a_taint_that_is_only_preferred_keeps_no_daemon_from_a_machine_that_exists() {
    for (effect, fits) in [("PreferNoSchedule", false), ("NoSchedule", true)] {
        let mut world = World::new();
        world.types.clear();
        let (node, _) = world.managed("n", "initialized", 4, json!({}));
        node.spec.taints = serde_json::from_value(json!([{"key": "k", "effect": effect}])).unwrap();
        daemon(&mut world, "agent", json!({"cpu": "2"}));
        world.pod("it", json!({"cpu": "3", "tolerations": [{"operator": "Exists"}]}));
        assert_eq!(left(&world.plan()).is_empty(), fits, "{effect}");
    }
}

#[test]
fn a_claim_asks_for_the_least_that_daemons_take_on_one_of_its_types() {
    let mut world = World::new();
    daemon(&mut world, "small", json!({"cpu": "200m", "memory": "10Mi", "nodeSelector": {"size": "small"}}));
    daemon(&mut world, "large", json!({"cpu": "100m", "memory": "50Mi", "nodeSelector": {"size": "large"}}));
    world.pod("it", json!({"cpu": "1", "memory": "1Gi"}));
    let plan = world.plan();
    let asked = &plan.claims[0].requests;
    assert_eq!((asked.get("cpu").to_string(), asked.get("memory").to_string()), ("1100m".into(), "1034Mi".into()), "per resource");
    assert_eq!(asked.get("pods").to_string(), "2");
}

#[test]
fn a_type_that_cannot_hold_its_daemons_is_no_choice_for_pods_that_ask_for_nothing() {
    for packing in [Packing::Reference, Packing::Best] {
        let mut world = World::new();
        world.options.packing = packing;
        daemon(&mut world, "agent", json!({"requests": {"karpenter.sh/super-great-gpu": "1"}}));
        world.pods("it", 2, &json!({}));
        let plan = world.plan();
        assert_eq!(plan.claims.iter().map(|c| &c.instance_types[..]).collect::<Vec<_>>(), [["gpu-vendor-instance-type"]], "{packing:?}");
    }
}

/// What a DaemonSet without pods takes of CPU and memory.
#[track_caller]
fn check_template(spec: Value, cpu: &str, memory: &str) {
    let mut world = World::new();
    daemon(&mut world, "agent", spec);
    let pods = whittle_model::pods::daemon_pods(&world.objects.daemon_sets, &[]);
    assert_eq!((pods[0].metadata.name.as_str(), pods[0].metadata.namespace.as_str()), ("agent", "default"));
    let takes = whittle_model::pods::effective_requests(&pods[0]);
    assert_eq!((takes.get("cpu").to_string(), takes.get("memory").to_string()), (cpu.into(), memory.into()));
}

#[test]
fn limits_become_requests_of_a_template() {
    let container =
        json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "200m"}}}]});
    check_template(container, "200m", "1Gi");
    let whole = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
    check_template(whole.clone(), "1", "1Gi");
    check_template(all(&[whole.clone(), json!({"cpu": "200m"})]), "200m", "1Gi");
    check_template(all(&[whole, json!({"resources": {"requests": {"cpu": "300m"}}})]), "300m", "1Gi");
}

pub(super) fn live(world: &mut World, name: &str, spec: Value, age: i64) {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]);
    let pinned = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["somewhere"]}]}]}}}});
    let pod = world.pod(name, all(&[pinned, json!({"owners": owner, "nodeName": "somewhere"}), spec]));
    pod.status.phase = "Running".into();
    pod.metadata.creation_timestamp = Some(now() - whittle_units::SignedDuration::from_secs(age));
}

#[test]
fn the_newest_live_pod_shows_what_a_daemon_takes_and_the_template_where_it_runs() {
    let mut world = World::new();
    daemon(&mut world, "agent", json!({"cpu": "10000"}));
    live(&mut world, "old", json!({"cpu": "9000"}), 100);
    live(&mut world, "new", json!({"cpu": "500m"}), 10);
    world.pod("it", json!({"cpu": "1"}));
    assert_eq!(world.plan().claims[0].instance_types[0], "small-instance-type");
    // Pods of other owners are ignored, and a live pod without its DaemonSet does not count.
    live(&mut world, "other", json!({"cpu": "8000"}), 1);
    world.objects.pods.last_mut().unwrap().metadata.owner_references[0].name = "somebody".into();
    assert_eq!(world.plan().claims[0].instance_types[0], "small-instance-type");
    world.objects.daemon_sets.clear();
    world.objects.pods.iter_mut().filter(|p| p.metadata.name == "it").for_each(|p| p.spec.containers[0].resources = None);
    assert_eq!(world.plan().claims[0].requests.get("cpu").to_string(), "0");
    let mut world = World::new();
    world.pool("default", json!({"labels": {"foo": "bar"}}));
    daemon(&mut world, "agent", all(&[json!({"cpu": "10000"}), required(&[&[expr("foo", "In", &["bar"])]])]));
    live(&mut world, "pinned", json!({"cpu": "2"}), 10);
    world.pod("it", json!({"cpu": "1"}));
    assert_eq!(world.plan().claims[0].instance_types[0], "default-instance-type", "counted, with the size of the live pod");
}

#[test]
fn each_type_counts_the_daemons_that_run_on_it() {
    let mut world = World::new();
    daemon(&mut world, "small", json!({"cpu": "1", "nodeSelector": {"size": "small"}}));
    daemon(&mut world, "huge", json!({"cpu": "15", "nodeSelector": {"size": "large"}}));
    world.pod("it", json!({"cpu": "2", "requests": {}}));
    let plan = world.plan();
    assert!(!plan.claims[0].instance_types.contains(&"arm-instance-type".to_owned()), "{:?}", plan.claims[0].instance_types);
    assert_eq!(plan.claims[0].instance_types[0], "default-instance-type");
}

#[test]
fn host_ports_of_daemons_are_taken_on_the_types_that_run_them() {
    let port = json!({"ports": [{"containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}]});
    let mut world = World::new();
    daemon(&mut world, "agent", port.clone());
    world.pod("it", port.clone());
    assert_eq!(left(&world.plan()), ["it"]);
    let mut world = World::new();
    daemon(&mut world, "agent", all(&[port.clone(), json!({"nodeSelector": {"size": "large"}})]));
    world.pod("it", all(&[port, json!({"nodeSelector": {"size": "small"}})]));
    assert!(left(&world.plan()).is_empty());
}

#[test]
fn the_ports_of_a_daemon_in_the_hosts_network_are_taken_before_it_has_pods() {
    let open = json!({"ports": [{"containerPort": 8080, "protocol": "TCP"}]});
    let port = json!({"ports": [{"containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}]});
    let sidecar = json!({"initContainers": [{"name": "s", "restartPolicy": "Always", "ports": open["ports"]}]});
    let host_network = json!({"hostNetwork": true});
    let on_host = |spec: &Value| all(&[spec.clone(), host_network.clone()]);
    for (spec, waiting) in [(on_host(&open), 1), (on_host(&sidecar), 1), (open, 0), (sidecar, 0)] {
        let mut world = World::new();
        daemon(&mut world, "agent", spec.clone());
        world.pod("it", port.clone());
        assert_eq!(left(&world.plan()).len(), waiting, "{spec}");
    }
}

#[test]
fn a_port_that_daemons_have_is_named_among_what_the_types_lack() {
    let port = json!({"ports": [{"containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}]});
    let mut world = World::new();
    daemon(&mut world, "agent", port.clone());
    world.pod("it", port.clone());
    let plan = world.plan();
    let text = &reasons(&plan)[0];
    // As in Karpenter: types whose daemons conflict are ignored, so that no finding applies to any of them.
    assert!(text.contains("no instance type met the scheduling requirements or had enough resources or had a required offering"), "{text}");
    assert!(text.contains("listen on IP=0.0.0.0 Port=8080 Proto=TCP of the host already"), "{text}");
    assert_eq!(plan.left_out[0].reason.category(), "instance-types");
    // Daemons on some types only: the findings are about the others.
    let mut world = World::new();
    daemon(&mut world, "agent", all(&[port.clone(), json!({"nodeSelector": {"size": "large"}})]));
    world.pod("it", all(&[port, json!({"nodeSelector": {"size": "large"}})]));
    let plan = world.plan();
    let text = &reasons(&plan)[0];
    assert!(text.contains("no instance type met all requirements"), "{text}");
    assert!(text.contains("of the host already"), "{text}");
    assert_eq!(plan.left_out[0].reason.category(), "instance-types");
}

#[test]
fn a_claim_asks_for_its_daemons_once() {
    let mut world = World::new();
    daemon(&mut world, "agent", json!({"cpu": "1"}));
    world.pods("web", 2, &json!({"cpu": "1"}));
    let plan = world.plan();
    let asked = &plan.claims[0].requests;
    assert_eq!((plan.claims.len(), asked.get("cpu").to_string(), asked.get("pods").to_string()), (1, "3".into(), "3".into()));
}

#[test]
fn a_bound_daemon_is_not_reserved_for_again_and_an_unexpected_one_frees_nothing() {
    let on_node = |selector: Value, cpu: &str| {
        let mut world = World::new();
        world.types.clear();
        world.managed("n", "initialized", 16, json!({}));
        daemon(&mut world, "agent", json!({"cpu": "1", "nodeSelector": selector}));
        live(&mut world, "bound", json!({"cpu": "1"}), 10);
        world.bind("bound", "n");
        world.pod("it", json!({"cpu": cpu}));
        left(&world.plan()).is_empty()
    };
    assert!(on_node(json!({}), "14900m"));
    assert!(on_node(json!({"absent": "x"}), "15"));
    assert!(!on_node(json!({"absent": "x"}), "15500m"));
}

#[test]
fn a_daemon_that_cannot_run_on_an_existing_node_is_reserved_for_on_new_ones_only() {
    let mut world = World::new();
    world.managed("n", "initialized", 4, json!({"foo": "old"}));
    world.pool("default", json!({"labels": {"foo": "new"}}));
    daemon(&mut world, "agent", json!({"cpu": "3", "nodeSelector": {"foo": "new"}}));
    world.pod("first", json!({"cpu": "3500m"}));
    let plan = world.plan();
    assert_eq!((plan.placements.len(), plan.claims.len()), (1, 0));
    world.pod("second", json!({"cpu": "3500m"}));
    assert_eq!(world.plan().claims[0].instance_types, ["arm-instance-type"]);
}

#[test]
fn a_claim_carries_what_its_template_says() {
    let mut world = World::new();
    world.pool("default", json!({
        "labels": {"team": "web", "sub.kubernetes.io/x": "1", "kops.k8s.io/y": "2"}, "annotations": {"note": "kept"},
        "requirements": [expr("one", "In", &["v"]), expr("not", "NotIn", &["v"]), expr("low", "Lt", &["10"]), expr("high", "Gt", &["100"]),
            expr("any", "Exists", &[]), expr("none", "DoesNotExist", &[]), expr(labels::ZONE, "In", &[Z[0], Z[1]])],
    }));
    world.pod("it", json!({}));
    let plan = world.plan();
    let claim = &plan.claims[0];
    let label = |key: &str| claim.labels.get(key).map(String::as_str);
    assert_eq!((label("team"), label("sub.kubernetes.io/x"), label("kops.k8s.io/y")), (Some("web"), Some("1"), Some("2")));
    assert_eq!((label("one"), label("none"), label(labels::ZONE)), (Some("v"), None, None));
    assert!(label("not").is_some_and(|v| v != "v") && label("any").is_some());
    assert!(label("low").unwrap().parse::<i64>().unwrap() < 10 && label("high").unwrap().parse::<i64>().unwrap() > 100);
    assert_eq!(label(labels::NODE_POOL), Some("default"));
    assert_eq!(claim.annotations["note"], "kept");
    assert_eq!(claim.annotations[labels::NODE_POOL_HASH], whittle_api::hashes::node_pool(&world.objects.node_pools[0]));
    assert_eq!(claim.node_class_ref.name, "default");
    assert_eq!(asks(&plan, 0, labels::ZONE), "In [test-zone-1 test-zone-2]");
    assert_eq!(asks(&plan, 0, labels::REGISTERED), "-");
}

#[test]
fn a_plain_claim_asks_for_its_pool_class_types_and_capacity_types() {
    let mut world = World::new();
    world.types.iter_mut().for_each(|t| t.offerings.iter_mut().filter(|o| o.capacity_type() == "spot").for_each(|o| o.available = false));
    world.pod("it", json!({}));
    let plan = world.plan();
    let keys: Vec<&str> = plan.claims[0].requirements.iter().map(|r| r.key.as_str()).collect();
    assert_eq!(keys, [labels::EC2_NODE_CLASS, labels::CAPACITY_TYPE, labels::NODE_POOL]);
    assert_eq!(asks(&plan, 0, labels::CAPACITY_TYPE), "In [on-demand]", "only what can be had");
    let with_types = plan.claims[0].requirements_with_types();
    assert!(with_types.iter().any(|r| r.key == labels::INSTANCE_TYPE && r.values.len() == 6));
}

#[test]
fn restrictions_narrow_the_types_of_a_claim() {
    let types = |pool: Value, spec: Value| {
        let mut world = World::new();
        world.pool("default", pool);
        world.pod("it", spec);
        world.plan().claims[0].instance_types.clone()
    };
    assert_eq!(types(json!({"requirements": [expr(labels::ARCH, "In", &["arm64"])]}), json!({})), ["arm-instance-type"]);
    assert_eq!(types(json!({"requirements": [expr(labels::OS, "In", &["ios"])]}), json!({})), ["arm-instance-type"]);
    assert_eq!(types(json!({}), json!({"memory": "10Gi"})), ["arm-instance-type"]);
    assert_eq!(types(json!({}), json!({"requests": {"karpenter.sh/super-great-gpu": "1"}})), ["gpu-vendor-instance-type"]);
}

#[test]
fn a_claim_asks_for_what_its_pods_ask_for() {
    let mut world = World::new();
    world.pods("web", 2, &json!({"requests": {"cpu": "1", "memory": "1Mi", "karpenter.sh/super-great-gpu": "1"}}));
    let plan = world.plan();
    let shown: Vec<String> = plan.claims[0].requests.iter().map(|(n, a)| format!("{n}={a}")).collect();
    assert_eq!(shown, ["cpu=2", "karpenter.sh/super-great-gpu=2", "memory=2Mi", "pods=2"]);
}

#[test]
fn the_grace_period_is_that_of_the_pool() {
    let mut world = World::new();
    world.pool("default", json!({"terminationGracePeriod": "30s"}));
    world.pod("it", json!({}));
    assert_eq!(
        world.plan().claims[0].termination_grace_period.as_ref().map(|d| d.span()),
        Some(whittle_units::SignedDuration::from_secs(30))
    );
    world.pool("default", json!({}));
    assert_eq!(world.plan().claims[0].termination_grace_period, None);
}

/// A DaemonSet `agent` on arm64, and a pod that has to be on the host of one of its pods.
fn beside_an_agent(agent: Value, pod: Value) -> World {
    let mut world = World::new();
    daemon(&mut world, "agent", all(&[json!({"labels": {"app": "agent"}, "nodeSelector": {labels::ARCH: "arm64"}}), agent]));
    world.pod("it", all(&[json!({"cpu": "1"}), hard("podAffinity", near(labels::HOSTNAME, "agent")), pod]));
    world
}

/// As for kube-scheduler, once the daemon is there (scheduling 21). For Karpenter no new machine has one: Hubble's relay, which has to be
/// beside Cilium's agent, gets none, and no node with it is replaced for drift.
#[test]
fn a_pod_beside_a_daemon_goes_where_the_daemon_will_be() {
    let everywhere = json!({"tolerations": [{"operator": "Exists"}]});
    for agent in [json!({}), everywhere.clone()] {
        let mut world = beside_an_agent(agent, json!({}));
        let plan = world.plan();
        assert_eq!(plan.claims.iter().map(|claim| &claim.instance_types[..]).collect::<Vec<_>>(), [["arm-instance-type"]]);
        // Nor does it get a second one while the daemon is not there yet.
        world.managed("young", "launched", 4, json!({labels::ARCH: "arm64"}));
        let plan = world.plan();
        assert_eq!((plan.claims.len(), plan.placements.len(), left(&plan).len()), (0, 1, 0));
    }
    let tainted = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let tolerating = json!({"tolerations": [{"key": "k", "operator": "Exists"}]});
    let mut world = beside_an_agent(everywhere, tolerating.clone());
    world.pool("default", tainted.clone());
    assert_eq!(world.plan().claims.len(), 1);
    // The daemon does not tolerate what the pod does.
    let mut world = beside_an_agent(json!({}), tolerating);
    world.pool("default", tainted);
    assert_eq!(left(&world.plan()), ["it"]);
}

#[test]
fn a_pod_beside_a_daemon_waits_where_the_daemon_may_not_be() {
    let far = hard("podAffinity", near("rack", "agent"));
    let other = hard("podAffinity", near(labels::HOSTNAME, "somebody-else"));
    for pod in [far, other, json!({"nodeSelector": {labels::ARCH: "amd64"}}), json!({"namespace": "elsewhere"})] {
        let shown = pod.to_string();
        assert_eq!(left(&beside_an_agent(json!({}), pod).plan()), ["it"], "{shown}");
    }
    // On an empty node the daemon is not bound itself.
    let waits_for_web = hard("podAffinity", near(labels::HOSTNAME, "web"));
    assert_eq!(left(&beside_an_agent(waits_for_web, json!({})).plan()), ["it"]);
    // One of two alternatives: which nodes have it is not known.
    let either = required(&[&[expr("size", "In", &["small"])], &[expr("size", "In", &["large"])]]);
    assert_eq!(left(&beside_an_agent(either, json!({})).plan()), ["it"]);
}

/// On the machine that it gets there is a daemon, in the same zone (scheduling 21). For Karpenter there is none until another pod has a
/// machine launched.
#[test]
fn a_pod_in_the_zone_of_a_daemon_starts_beside_one_where_none_runs() {
    let in_zone = |more: Value| beside_an_agent(json!({}), all(&[hard("podAffinity", near(labels::ZONE, "agent")), more]));
    let with_one = |more: Value| {
        let mut world = in_zone(more);
        full_with_agent(&mut world, "agent");
        world.objects.nodes[0].metadata.labels.insert(labels::ZONE.into(), Z[1].into());
        // It is in no zone.
        world.node("hybrid", 4, json!({labels::ARCH: "arm64"})).metadata.creation_timestamp = Some(now());
        world
    };
    let types = |world: &World| world.plan().claims.iter().map(|claim| claim.instance_types.to_vec()).collect::<Vec<_>>();
    assert_eq!(types(&in_zone(json!({}))), [["arm-instance-type"]]);
    // One of several alike may start anywhere.
    assert!(types(&in_zone(json!({"labels": {"app": "agent"}})))[0].len() > 1);
    // Where one runs, the pod goes to its zone, to a machine without the daemon as well.
    let world = with_one(json!({}));
    let plan = world.plan();
    assert_eq!((asks(&plan, 0, labels::ZONE), made(&world)), ("In [test-zone-2]".to_owned(), (1, 0)));
    assert!(plan.claims[0].instance_types.len() > 1);
    // And if it may not go there, to one with the daemon.
    let world = with_one(json!({"nodeSelector": {labels::ZONE: Z[0]}}));
    assert_eq!(
        (asks(&world.plan(), 0, labels::ZONE), types(&world)),
        ("In [test-zone-1]".to_owned(), vec![vec!["arm-instance-type".to_owned()]])
    );
}

/// Its volume says where it may go, as its own requirements do (scheduling 21).
#[test]
fn a_pod_whose_volume_is_in_a_zone_without_the_daemon_starts_beside_one() {
    let types = |volume_in: &str, is_leaving: bool| {
        let data = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
        let mut world = beside_an_agent(json!({}), all(&[hard("podAffinity", near(labels::ZONE, "agent")), data]));
        super::volumes::bound(&mut world, "data", volume_in);
        full_with_agent(&mut world, "agent");
        let node = &mut world.objects.nodes[0].metadata;
        node.labels.insert(labels::ZONE.into(), Z[1].into());
        node.deletion_timestamp = is_leaving.then(now);
        let plan = world.plan();
        assert_eq!((asks(&plan, 0, labels::ZONE), plan.claims.len()), (format!("In [{volume_in}]"), 1));
        plan.claims[0].instance_types.to_vec()
    };
    assert_eq!(types(Z[0], false), ["arm-instance-type"], "the daemon runs in the second zone alone");
    assert!(types(Z[1], false).len() > 1, "it is there already");
    assert_eq!(types(Z[1], true), ["arm-instance-type"], "with its node it will be gone");
}

/// Adds a node that the agent of [`beside_an_agent`] fills, with a pod that has this label.
fn full_with_agent(world: &mut World, app: &str) {
    world.node("full", 1, json!({labels::ARCH: "arm64"}));
    let owner = json!({"owners": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]});
    let agent = world.pod("agent-1", all(&[owner, json!({"cpu": "1", "nodeName": "full", "labels": {"app": app}})]));
    agent.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
}

/// As the DaemonSets of a driver for Linux and for Windows, whose pods have the same labels.
#[test]
fn of_daemons_for_different_nodes_the_one_counts_that_the_pod_can_be_beside() {
    let with_twin = |pod: Value| {
        let mut world = beside_an_agent(json!({}), pod);
        daemon(&mut world, "a-twin", json!({"labels": {"app": "agent"}, "nodeSelector": {labels::ARCH: "amd64"}}));
        world
    };
    let types = |world: &World| world.plan().claims.iter().map(|claim| claim.instance_types.to_vec()).collect::<Vec<_>>();
    assert_eq!(types(&with_twin(json!({"nodeSelector": {labels::ARCH: "arm64"}}))), [["arm-instance-type"]]);
    let mut world = with_twin(json!({}));
    assert_eq!(left(&world.plan()), ["it"], "it may be beside either, and no machine would have both");
    full_with_agent(&mut world, "agent");
    assert_eq!(types(&world), [["arm-instance-type"]], "the other has no pods");
}

/// A machine that is launched for such a pod would be removed as empty, and launched again.
#[test]
fn no_machine_is_launched_beside_a_daemon_that_will_not_be_there() {
    let mut world = beside_an_agent(json!({}), json!({}));
    assert_eq!(world.plan().claims.len(), 1);
    world.node("lacks-it", 4, json!({labels::ARCH: "amd64"}));
    assert_eq!(world.plan().claims.len(), 1, "there it need not be");
    world.node("lacks-it-too", 4, json!({labels::ARCH: "arm64"}));
    assert_eq!((world.plan().claims.len(), left(&world.plan())), (0, vec!["it"]), "nobody makes its pods");
    full_with_agent(&mut world, "agent");
    assert_eq!((made(&world), left(&world.plan())), ((0, 0), vec!["it"]), "somebody does, but not for that node");
    let mut made_for_it = world.clone();
    pending_agent(&mut made_for_it, "lacks-it-too");
    assert_eq!(made(&made_for_it), (1, 0), "there it has no room");
    world.objects.nodes[1].metadata.creation_timestamp = Some(now());
    assert_eq!(made(&world), (0, 1), "it will be there");
    world.objects.nodes.retain(|node| node.metadata.name == "full");
    assert_eq!(world.plan().claims.len(), 1);
    world.objects.daemon_sets[0].metadata.deletion_timestamp = Some(now());
    assert_eq!(left(&world.plan()), ["it"], "it is being deleted");
}

/// Adds a pod of the agent of [`beside_an_agent`] that its controller has made for a node on which it has no room.
fn pending_agent(world: &mut World, node: &str) {
    let owner = json!({"owners": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]});
    let pinned = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchFields": [expr("metadata.name", "In", &[node])]}]}}}});
    world.pod(&format!("agent-of-{node}"), all(&[owner, pinned, json!({"labels": {"app": "agent"}})]));
}

/// The new machines of a plan, and the existing ones that it fills.
fn made(world: &World) -> (usize, usize) {
    let plan = world.plan();
    (plan.claims.len(), plan.placements.len())
}

/// Where the daemon's own pod has no room, the pod would wait for good, and get no machine (scheduling 21).
#[test]
fn a_node_that_has_lacked_the_daemon_for_long_is_no_place_beside_it() {
    let beside = |state: &str, minutes: i64| {
        let mut world = beside_an_agent(json!({}), json!({}));
        full_with_agent(&mut world, "agent");
        pending_agent(&mut world, "other");
        let since = (now() - whittle_units::SignedDuration::from_mins(minutes)).to_string();
        let initialized = json!([{"type": "Initialized", "status": "True", "reason": "Initialized", "lastTransitionTime": since}]);
        let (_, claim) = world.managed("other", state, 4, json!({labels::ARCH: "arm64"}));
        claim.status.conditions = serde_json::from_value(initialized).unwrap();
        world
    };
    for (state, minutes, expected) in
        [("launched", 60, (0, 1)), ("registered", 60, (0, 1)), ("initialized", 4, (0, 1)), ("initialized", 6, (1, 0))]
    {
        assert_eq!(made(&beside(state, minutes)), expected, "{state}, {minutes}");
    }
    // It is there, or a successor of it will be, or another pod of the kind.
    for (app, is_ending, expected) in [("agent", false, (0, 1)), ("agent", true, (0, 1)), ("older", false, (1, 0))] {
        let mut world = beside("initialized", 6);
        let other = world.pod("other-agent", json!({"nodeName": "other", "labels": {"app": app}}));
        other.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
        other.metadata.deletion_timestamp = is_ending.then(now);
        assert_eq!(made(&world), expected, "{app}, {is_ending}");
    }
    // One that has just failed is made again, at first within seconds.
    for (minutes, expected) in [(4, (0, 1)), (6, (1, 0))] {
        let mut world = beside("initialized", 60);
        live(&mut world, "failed", json!({"nodeName": "other", "labels": {"app": "agent"}}), 3600);
        let since = (now() - whittle_units::SignedDuration::from_mins(minutes)).to_string();
        let ended = json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]});
        world.objects.pods.last_mut().unwrap().status = serde_json::from_value(ended).unwrap();
        assert_eq!(made(&world), expected, "{minutes} minutes ago");
    }
    // A node that has not been there for long, and whose taint the daemon does not tolerate.
    let mut world = beside_an_agent(json!({}), json!({"tolerations": [{"key": "node.kubernetes.io/odd", "operator": "Exists"}]}));
    full_with_agent(&mut world, "agent");
    let node = world.node("odd", 4, json!({labels::ARCH: "arm64"}));
    node.metadata.creation_timestamp = Some(now());
    node.spec.taints = serde_json::from_value(json!([{"key": "node.kubernetes.io/odd", "effect": "NoSchedule"}])).unwrap();
    assert_eq!(made(&world), (1, 0), "nor is it made for that node");
}

/// The pods that run may be of an older template.
#[test]
fn what_a_daemon_will_be_is_said_by_its_template() {
    for (template, running, expected) in [("agent", "agent", 1), ("agent", "older", 1), ("newer", "agent", 0)] {
        let mut world = beside_an_agent(json!({"labels": {"app": template}}), json!({}));
        full_with_agent(&mut world, running);
        assert_eq!(world.plan().claims.len(), expected, "{template}, {running}");
    }
}

/// A world with a DaemonSet whose pods are labelled `app: agent` and tolerate everything, and a pod that must not be on the host of one of
/// these.
fn apart_from_an_agent(pool: Value, agent: &Value, pod: &Value) -> World {
    let mut world = World::new();
    world.pool("default", pool);
    let everything = json!([{"operator": "Exists"}]);
    daemon(&mut world, "agent", all(&[json!({"labels": {"app": "agent"}, "tolerations": everything}), agent.clone()]));
    world.pod("it", all(&[json!({"cpu": "1"}), hard("podAntiAffinity", near(labels::HOSTNAME, "agent")), pod.clone()]));
    world
}

/// Kube-scheduler binds it nowhere beside the daemon, so that Karpenter launches machine after machine for it (scheduling 21).
#[test]
fn no_machine_is_launched_for_a_pod_that_must_not_be_beside_a_daemon_that_runs_there() {
    let check = |pool: Value, agent: Value, pod: Value, waiting: usize| {
        let world = apart_from_an_agent(pool.clone(), &agent, &pod);
        for packing in [Packing::Reference, Packing::Best] {
            let plan = world.solve(&whittle_model::scheduling::Options { packing, ..world.options.clone() });
            assert_eq!((left(&plan).len(), plan.claims.len()), (waiting, 1 - waiting), "{pool} {agent} {pod} {packing:?}");
        }
    };
    let none = || json!({});
    check(none(), none(), none(), 1);
    check(none(), required(&[&[expr("compute", "NotIn", &["fargate"])]]), none(), 1);
    check(none(), json!({"nodeSelector": {labels::OS: "linux"}}), none(), 0);
    check(none(), json!({"nodeSelector": {"nobody": "v"}}), none(), 0);
    check(none(), none(), json!({"namespace": "elsewhere"}), 0);
    // Whether the daemon runs there depends on the zone that EC2 launches the machine in.
    let zone = json!({"nodeSelector": {labels::ZONE: Z[0]}});
    check(none(), zone.clone(), none(), 0);
    check(json!({"requirements": [expr(labels::ZONE, "In", &[Z[0]])]}), zone, none(), 1);
    let taint = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let tolerating = json!({"tolerations": [{"key": "k", "operator": "Exists"}]});
    // One of higher priority is placed first, or has the pod evicted, whatever it tolerates.
    let higher = |tolerations: Value| json!({"priority": 10, "tolerations": tolerations});
    check(taint.clone(), none(), tolerating.clone(), 1);
    check(taint.clone(), higher(json!([])), tolerating.clone(), 0);
    check(taint, higher(tolerating["tolerations"].clone()), tolerating.clone(), 1);
    // It comes when the taint is gone, as the pod does.
    let startup = json!({"startupTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    check(startup.clone(), higher(json!([])), none(), 0);
    check(startup.clone(), higher(tolerating["tolerations"].clone()), none(), 1);
    check(startup, none(), none(), 1);
    // On an empty node it may be bound nowhere itself.
    check(none(), hard("podAffinity", near(labels::HOSTNAME, "web")), none(), 0);
    check(none(), hard("podAntiAffinity", near(labels::ZONE, "agent")), none(), 0);
    check(none(), hard("podAntiAffinity", near(labels::HOSTNAME, "agent")), none(), 1);
}

/// A daemon that tolerates everything is on a node before it is ready, and so before the pod that it must not be beside (scheduling 21).
#[test]
fn no_machine_is_launched_for_a_pod_that_a_daemon_keeps_away() {
    let everything = || json!({"tolerations": [{"operator": "Exists"}]});
    let not_beside_it = || hard("podAntiAffinity", near(labels::HOSTNAME, "it"));
    let world_with = |agent: Value, pod: Value| {
        let mut world = World::new();
        daemon(&mut world, "agent", agent);
        world.pod("it", all(&[json!({"cpu": "1", "labels": {"app": "it"}}), pod]));
        world
    };
    let strict = || all(&[everything(), not_beside_it()]);
    let small = json!({"nodeSelector": {"size": "small"}});
    for (agent, pod, waiting) in [
        (strict(), json!({}), 1),
        (everything(), json!({}), 0),
        // They may come in any order.
        (not_beside_it(), json!({}), 0),
        (strict(), json!({"labels": {"app": "other"}}), 0),
        (strict(), json!({"namespace": "elsewhere"}), 0),
        (strict(), json!({"priority": 10}), 0),
        // It may be bound before the daemon is made, if it tolerates all that a node joins with.
        (strict(), everything(), 0),
        (strict(), json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}), 1),
        (all(&[strict(), small.clone()]), json!({}), 0),
        (all(&[strict(), small.clone()]), small, 1),
    ] {
        let world = world_with(agent.clone(), pod.clone());
        for packing in [Packing::Reference, Packing::Best] {
            let plan = world.solve(&whittle_model::scheduling::Options { packing, ..world.options.clone() });
            assert_eq!((left(&plan).len(), plan.claims.len()), (waiting, 1 - waiting), "{agent} {pod} {packing:?}");
        }
    }
    let plan = world_with(strict(), json!({})).plan();
    let told = reasons(&plan).join("");
    assert!(told.contains("it is selected by that of the pods of daemonset default/agent, which runs on new machines of 6 of 6"), "{told}");
    let remedies: Vec<String> = plan.left_out[0].reason.remedies().iter().map(ToString::to_string).collect();
    assert!(remedies.len() == 1 && remedies[0].contains("the required anti-affinity of daemonset default/agent not"), "{remedies:?}");
}

/// Nobody makes the pods of a DaemonSet that is being deleted, or that has none although a node should have one.
#[test]
fn a_pod_need_not_avoid_a_daemon_that_will_not_be_there() {
    let mut world = apart_from_an_agent(json!({}), &json!({}), &json!({}));
    assert_eq!(left(&world.plan()), ["it"]);
    world.node("other", 1, json!({}));
    world.pod("fills-it", json!({"cpu": "1", "nodeName": "other"}));
    assert_eq!((left(&world.plan()).len(), world.plan().claims.len()), (0, 1), "the node has none");
    full_with_agent(&mut world, "agent");
    assert_eq!(left(&world.plan()), ["it"], "another has one");
    world.objects.daemon_sets[0].metadata.deletion_timestamp = Some(now());
    assert_eq!((left(&world.plan()).len(), world.plan().claims.len()), (0, 1), "it is being deleted");
}

/// The pods that run may be of an older template.
#[test]
fn what_a_daemon_to_avoid_will_be_is_said_by_its_template() {
    for (template, running, waiting) in [("agent", "agent", 1), ("agent", "older", 1), ("newer", "agent", 0)] {
        let mut world = apart_from_an_agent(json!({}), &json!({"labels": {"app": template}}), &json!({}));
        full_with_agent(&mut world, running);
        assert_eq!(left(&world.plan()).len(), waiting, "{template}, {running}");
    }
}

/// Its controller makes the pods of a DaemonSet that does not tolerate what a node joins with when that is gone: kube-scheduler may have
/// bound the other pod by then, which keeps them away (scheduling 21).
#[test]
fn a_pod_gets_its_machine_if_it_may_be_bound_before_the_daemon_that_it_must_not_be_beside() {
    let waiting = |agent: Value, pod: Value| left(&apart_from_an_agent(json!({}), &agent, &pod).plan()).len();
    let late = |tolerations: Value| json!({"tolerations": tolerations});
    for tolerations in [json!([]), json!([{"operator": "Exists", "effect": "NoSchedule"}]), json!([{"key": "k", "operator": "Exists"}])] {
        assert_eq!(waiting(late(tolerations.clone()), json!({})), 0, "{tolerations}");
    }
    // The pod does not wait for the node to be ready.
    assert_eq!(waiting(json!({}), late(json!([{"operator": "Exists"}]))), 0);
    // Of a higher priority, it has the pod evicted.
    let higher = || all(&[late(json!([])), json!({"priority": 10})]);
    assert_eq!(waiting(higher(), json!({})), 1);
    assert_eq!(waiting(higher(), json!({"priority": 10})), 0);
    assert_eq!(waiting(higher(), json!({"priority": 10, "preemptionPolicy": "Never"})), 0);
    assert_eq!(waiting(all(&[higher(), json!({"preemptionPolicy": "Never"})]), json!({})), 0);
}

/// Kube-scheduler places it first, or evicts the daemon for it.
#[test]
fn a_pod_of_higher_priority_need_not_avoid_a_daemon() {
    let waiting = |agent: Value, pod: Value| left(&apart_from_an_agent(json!({}), &agent, &pod).plan()).len();
    assert_eq!(waiting(json!({}), json!({"priority": 10})), 0);
    assert_eq!(waiting(json!({"priority": 10}), json!({"priority": 10})), 1);
    assert_eq!(waiting(json!({"priorityClassName": "system-node-critical"}), json!({"priority": 10})), 1);
    assert_eq!(waiting(json!({}), json!({"priority": 10, "preemptionPolicy": "PreemptLowerPriority"})), 0);
    assert_eq!(waiting(json!({}), json!({"priority": 10, "preemptionPolicy": "Never"})), 1, "it evicts nobody");
}

#[test]
fn a_preference_to_be_apart_from_a_daemon_keeps_no_pod_waiting() {
    let mut world = World::new();
    daemon(&mut world, "agent", json!({"labels": {"app": "agent"}}));
    world.pod("it", super::world::soft("podAntiAffinity", near(labels::HOSTNAME, "agent")));
    assert!(left(&world.plan()).is_empty());
}

#[test]
fn a_pod_that_avoids_a_daemon_takes_the_types_on_which_that_does_not_run() {
    for packing in [Packing::Reference, Packing::Best] {
        let mut world = apart_from_an_agent(json!({"limits": {"cpu": "100"}}), &json!({"nodeSelector": {"size": "small"}}), &json!({}));
        world.pods("other", 3, &json!({"cpu": "1"}));
        let plan = world.solve(&whittle_model::scheduling::Options { packing, ..world.options.clone() });
        assert_eq!(left(&plan), [""; 0]);
        let its = plan.claims.iter().find(|claim| claim.pods.iter().any(|pod| pod.name == "it")).unwrap();
        assert_eq!(its.instance_types[..], ["arm-instance-type"], "{packing:?}");
    }
}

#[test]
fn a_pod_that_no_machine_takes_for_a_daemon_is_told_which_and_what_would_help() {
    let world = apart_from_an_agent(json!({}), &json!({}), &json!({}));
    let plan = world.plan();
    let told = reasons(&plan).join("");
    assert!(told.contains("pod anti-affinity, key=kubernetes.io/hostname: it selects the pods of daemonset default/agent"), "{told}");
    assert!(told.ends_with("runs on new machines of 6 of 6 instance types"), "{told}");
    let remedies: Vec<String> = plan.left_out[0].reason.remedies().iter().map(ToString::to_string).collect();
    assert!(remedies.len() == 1 && remedies[0].contains("not selecting the pods of daemonset default/agent"), "{remedies:?}");
    assert_eq!(plan.left_out[0].reason.category(), "topology");
}
