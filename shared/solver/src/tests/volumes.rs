//! Volumes: where they pin pods.

mod attachments;
mod in_advance;

use super::world::{World, Z, all, expr, hard, left, near, now, reasons, spread};
use crate::Memory;
use serde_json::{Value, json};
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_model::pods::SELECTED_NODE;
use whittle_model::scheduling::{Options, Packing, Plan};
use whittle_units::SignedDuration;

fn in_zone(zone: &str) -> Value {
    json!({"matchExpressions": [expr(labels::ZONE, "In", &[zone])]})
}

/// A bound claim `name` with a CSI volume in `zone`.
pub(super) fn bound(world: &mut World, name: &str, zone: &str) {
    volume(world, name, csi(json!([in_zone(zone)])));
}

fn csi(terms: Value) -> Value {
    json!({"csi": {"driver": "ebs.csi.aws.com"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}})
}

/// A bound claim and its volume.
fn volume(world: &mut World, name: &str, spec: Value) {
    let volume = format!("pv-{name}");
    claim(world, name, json!({"volumeName": volume})).metadata.annotations.insert("pv.kubernetes.io/bind-completed".into(), "yes".into());
    world.objects.volumes.push(serde_json::from_value(json!({"metadata": {"name": volume}, "spec": spec})).unwrap());
}

fn claim<'w>(world: &'w mut World, name: &str, spec: Value) -> &'w mut whittle_api::k8s::PersistentVolumeClaim {
    let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
    world.objects.volume_claims.push(serde_json::from_value(claim).unwrap());
    world.objects.volume_claims.last_mut().unwrap()
}

fn class(world: &mut World, name: &str, mode: &str, provisioner: &str, topologies: Value) {
    let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, "allowedTopologies": topologies});
    world.objects.storage_classes.push(serde_json::from_value(class).unwrap());
}

fn waiting(world: &mut World, name: &str, zones: &[&str]) {
    let terms: Vec<Value> = zones.iter().map(|z| json!({"matchLabelExpressions": [{"key": labels::ZONE, "values": [z]}]})).collect();
    class(world, name, "WaitForFirstConsumer", "ebs.csi.aws.com", json!(terms));
}

fn using(claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims.iter().map(|c| json!({"name": c, "persistentVolumeClaim": {"claimName": c}})).collect();
    json!({"volumes": volumes})
}

fn ephemeral() -> Value {
    json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]})
}

#[track_caller]
fn zone_of(world: &mut World, expected: Option<&str>) {
    world.pass();
    assert_eq!(world.label_of("it", labels::ZONE), expected);
}

type Make = fn(&mut World);

/// Claims named `data`, and whether a pod that uses one is placed.
const CLAIMS: [(&str, Make, bool); 16] = [
    ("unknown", |_| (), false),
    (
        "unbound without class",
        |w| {
            claim(w, "data", json!({}));
        },
        false,
    ),
    (
        "unbound, unknown class",
        |w| {
            claim(w, "data", json!({"storageClassName": "x"}));
        },
        false,
    ),
    ("bound without class", |w| volume(w, "data", csi(json!([]))), true),
    (
        "bound, empty class",
        |w| {
            volume(w, "data", csi(json!([])));
            w.objects.volume_claims[0].spec.storage_class_name = Some(String::new());
        },
        true,
    ),
    (
        "bound, unknown class",
        |w| {
            volume(w, "data", csi(json!([])));
            w.objects.volume_claims[0].spec.storage_class_name = Some("gone".into());
        },
        true,
    ),
    (
        "unbound, empty class",
        |w| {
            claim(w, "data", json!({"storageClassName": ""}));
        },
        false,
    ),
    (
        "unbound, class that says nothing about when",
        |w| {
            class(w, "silent", "", "ebs.csi.aws.com", json!([]));
            claim(w, "data", json!({"storageClassName": "silent"}));
        },
        false,
    ),
    (
        "unbound, immediate",
        |w| {
            class(w, "now", "Immediate", "ebs.csi.aws.com", json!([]));
            claim(w, "data", json!({"storageClassName": "now"}));
        },
        false,
    ),
    (
        "unbound, waiting",
        |w| {
            waiting(w, "wait", &[]);
            claim(w, "data", json!({"storageClassName": "wait"}));
        },
        true,
    ),
    (
        "no such volume",
        |w| {
            claim(w, "data", json!({"volumeName": "gone"}));
        },
        false,
    ),
    (
        "not bound completely",
        |w| {
            volume(w, "data", csi(json!([])));
            w.objects.volume_claims[0].metadata.annotations.clear();
        },
        false,
    ),
    (
        "claim being deleted",
        |w| {
            volume(w, "data", csi(json!([])));
            w.objects.volume_claims[0].metadata.deletion_timestamp = Some(now());
        },
        false,
    ),
    (
        "volume being deleted",
        |w| {
            volume(w, "data", csi(json!([])));
            w.objects.volumes[0].metadata.deletion_timestamp = Some(now());
        },
        false,
    ),
    (
        "claim lost",
        |w| {
            volume(w, "data", csi(json!([])));
            w.objects.volume_claims[0].status = json!({"phase": "Lost"});
        },
        false,
    ),
    ("network file system", |w| volume(w, "data", json!({"nfs": {"server": "x", "path": "/"}})), true),
];

#[test]
fn claims_that_cannot_be_served_refuse_their_pod_alone() {
    for (what, make, placed) in CLAIMS {
        let mut world = World::new();
        make(&mut world);
        world.pod("it", using(&["data"]));
        world.pod("good", json!({}));
        let plan = world.plan();
        assert_eq!(left(&plan), if placed { vec![] } else { vec!["it"] }, "{what}: {:?}", reasons(&plan));
        assert!(reasons(&plan).iter().all(|r| r.starts_with("ignoring pod, ")), "{what}: {:?}", reasons(&plan));
        // The same for the claim of an ephemeral volume, which has the pod's name in its own.
        let mut world = World::new();
        make(&mut world);
        world.objects.volume_claims.iter_mut().for_each(|c| c.metadata.name = "it-scratch".into());
        world.pod("it", ephemeral());
        assert_eq!(left(&world.plan()).is_empty(), placed, "{what}, ephemeral");
    }
}

#[test]
fn ephemeral_volumes_have_claims_named_after_their_pod() {
    let mut world = World::new();
    world.pod("it", ephemeral());
    assert_eq!(left(&world.plan()), ["it"], "its claim has not been made yet");
    waiting(&mut world, "wait", &[Z[2]]);
    claim(&mut world, "it-scratch", json!({"storageClassName": "wait"}));
    zone_of(&mut world, Some(Z[2]));
    let mut world = World::new();
    bound(&mut world, "it-scratch", Z[1]);
    world.pod("it", ephemeral());
    zone_of(&mut world, Some(Z[1]));
}

#[test]
fn zones_of_classes_and_volumes_pin_the_pod() {
    let mut world = World::new();
    waiting(&mut world, "wait", &[Z[2]]);
    claim(&mut world, "data", json!({"storageClassName": "wait"}));
    world.pod("it", using(&["data"]));
    zone_of(&mut world.clone(), Some(Z[2]));
    world.objects.pods[0].spec.node_selector.insert(labels::ZONE.into(), Z[0].into());
    zone_of(&mut world, None);
    let mut world = World::new();
    bound(&mut world, "data", Z[1]);
    world.pod("it", using(&["data"]));
    zone_of(&mut world.clone(), Some(Z[1]));
    world.objects.pods[0].spec.node_selector.insert(labels::ZONE.into(), Z[0].into());
    let plan = world.plan();
    assert!(reasons(&plan)[0].contains("incompatible volume requirements"), "{:?}", reasons(&plan));
}

#[test]
fn a_pod_whose_volume_is_where_no_type_is_sold_is_told_of_its_volume() {
    let mut world = World::new();
    bound(&mut world, "data", "nowhere");
    world.pod("it", using(&["data"]));
    let plan = world.plan();
    let remedies: Vec<String> = plan.left_out.iter().flat_map(|left| left.reason.remedies()).map(|remedy| remedy.text).collect();
    let [remedy] = &remedies[..] else { panic!("{remedies:?}") };
    assert_eq!(remedy, "another volume");
}

#[test]
fn the_host_of_a_local_volume_is_not_required_again() {
    let host = || expr(labels::HOSTNAME, "In", &["gone"]);
    for (kind, hosts_count) in [("local", false), ("hostPath", false), ("csi", true)] {
        let source = if kind == "csi" { json!({"driver": "x"}) } else { json!({"path": "/data"}) };
        let spec = |terms: Value| json!({kind: source, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
        let mut world = World::new();
        volume(&mut world, "data", spec(json!([{"matchExpressions": [host()]}])));
        world.pod("it", using(&["data"]));
        assert_eq!(left(&world.plan()).is_empty(), !hosts_count, "{kind}");
        let mut world = World::new();
        volume(
            &mut world,
            "data",
            spec(json!([{"matchExpressions": [host(), expr(labels::ZONE, "In", &["nowhere"])]}, {"matchExpressions": [host()]}])),
        );
        world.pod("it", using(&["data"]));
        assert_eq!(left(&world.plan()).is_empty(), !hosts_count, "{kind}, with an alternative");
    }
}

#[test]
fn the_zone_label_of_a_volume_pins_its_pod_like_its_node_affinity() {
    for key in [labels::ZONE, "failure-domain.beta.kubernetes.io/zone"] {
        let mut world = World::new();
        volume(&mut world, "data", csi(json!([])));
        world.objects.volumes[0].metadata.labels.insert(key.into(), Z[2].into());
        world.pod("it", using(&["data"]));
        zone_of(&mut world, Some(Z[2]));
    }
    let mut world = World::new();
    volume(&mut world, "data", csi(json!([in_zone(Z[1]), in_zone(Z[2])])));
    world.objects.volumes[0].metadata.labels.insert(labels::ZONE.into(), format!("{}__{}", Z[0], Z[2]));
    world.pod("it", using(&["data"]));
    zone_of(&mut world, Some(Z[2]));
}

/// The plan for a pod of 2 CPUs with an unbound claim whose volume is to be made for a node. There are `n1`, which is large, and `n2`.
fn selected(node: &str, change: fn(&mut World)) -> Plan {
    let mut world = World::new();
    world.node("n1", 8, json!({labels::ZONE: Z[0]}));
    world.node("n2", 4, json!({labels::ZONE: Z[1]}));
    waiting(&mut world, "wait", &[]);
    claim(&mut world, "data", json!({"storageClassName": "wait"})).metadata.annotations.insert(SELECTED_NODE.into(), node.into());
    world.pod("it", all(&[json!({"cpu": "2"}), using(&["data"])]));
    change(&mut world);
    world.plan()
}

#[test]
fn a_pod_goes_only_to_the_node_that_its_volume_is_to_be_made_for() {
    for node in ["n1", "n2"] {
        let plan = selected(node, |_| ());
        assert_eq!((plan.placements[0].node.as_str(), plan.claims.len()), (node, 0));
    }
    let full = selected("n2", |world| {
        world.pod("other", json!({"cpu": "3"}));
        world.bind("other", "n2");
    });
    assert_eq!((left(&full), full.claims.len()), (vec!["it"], 0), "no other node would do");
    let leaving = selected("n2", |world| world.objects.nodes[1].metadata.deletion_timestamp = Some(now()));
    assert_eq!(leaving.placements[0].node, "n1", "its pod needs another node soon");
}

#[test]
fn a_pod_whose_volume_is_to_be_made_for_a_node_that_is_gone_gets_no_machine() {
    let plan = selected("gone", |_| ());
    assert_eq!((left(&plan), plan.placements.len(), plan.claims.len()), (vec!["it"], 0, 0));
    let reason = &reasons(&plan)[0];
    assert!(reason.contains("node \"gone\", which is gone") && reason.contains("ebs.csi.aws.com removes"), "{reason}");
    let without_nodes = selected("gone", |world| world.objects.nodes.clear());
    assert_eq!(without_nodes.claims.len(), 1, "nothing is known of nodes");
    let made = selected("gone", |world| {
        let claim = &mut world.objects.volume_claims[0];
        claim.spec.volume_name = "pv-data".into();
        claim.metadata.annotations.insert("pv.kubernetes.io/bind-completed".into(), "yes".into());
        world.objects.volumes.push(serde_json::from_value(json!({"metadata": {"name": "pv-data"}, "spec": csi(json!([]))})).unwrap());
    });
    assert_eq!(made.placements.len(), 1, "the volume is there");
}

/// The plan for a second pod with the claim of a pod that runs, which leaves no room on its node.
fn second(mode: &str, change: fn(&mut Pod)) -> Plan {
    let mut world = World::new();
    world.node("n", 1, json!({labels::ZONE: Z[0]}));
    bound(&mut world, "data", Z[0]);
    world.objects.volume_claims[0].spec.access_modes = vec![mode.into()];
    world.pod("first", using(&["data"]));
    world.bind("first", "n");
    change(&mut world.objects.pods[0]);
    world.pod("it", all(&[json!({"cpu": "2"}), using(&["data"])]));
    world.plan()
}

#[test]
fn a_claim_of_one_pod_at_a_time_launches_nothing_for_a_second_pod() {
    let plan = second("ReadWriteOncePod", |_| ());
    assert_eq!((left(&plan), plan.claims.len()), (vec!["it"], 0));
    assert!(reasons(&plan)[0].contains("\"data\" is ReadWriteOncePod and used by default/first"), "{:?}", reasons(&plan));
    assert_eq!(second("ReadWriteOnce", |_| ()).claims.len(), 1);
    let ending = second("ReadWriteOncePod", |pod| pod.metadata.deletion_timestamp = Some(now()));
    assert_eq!(ending.claims.len(), 1, "the machine is there when the first pod has ended");
    assert_eq!(second("ReadWriteOncePod", |pod| pod.status.phase = "Succeeded".into()).claims.len(), 1);
}

/// Pods that wait for one claim with this access mode, for which a volume is made where they run.
fn rivals(mode: &str, pods: &[(&str, Value)]) -> World {
    let mut world = World::new();
    waiting(&mut world, "wait", &[]);
    claim(&mut world, "data", json!({"storageClassName": "wait"})).spec.access_modes = vec![mode.into()];
    for (name, spec) in pods {
        world.pod(name, all(&[spec.clone(), using(&["data"])]));
    }
    world
}

/// The pods that get a machine, those that wait, and why the first of them does, with either packing.
#[track_caller]
fn check_rivals(world: &World, machines: usize, placed: &[&str], waits: &[&str], why: &str) {
    for packing in [Packing::Reference, Packing::Best] {
        let plan = world.solve(&Options { packing, ..world.options.clone() });
        let new: Vec<&str> = plan.claims.iter().flat_map(|claim| &claim.pods).map(|pod| pod.name.as_str()).collect();
        assert_eq!((plan.claims.len(), new, left(&plan)), (machines, placed.to_vec(), waits.to_vec()), "{packing:?}");
        assert!(waits.is_empty() || reasons(&plan)[0].contains(why), "{packing:?}: {:?}", reasons(&plan));
    }
}

#[test]
fn of_pods_that_wait_for_a_claim_of_one_pod_at_a_time_one_gets_a_machine() {
    let cpus = |first: &str, second: &str| [("a", json!({"cpu": first})), ("b", json!({"cpu": second}))];
    let why = "persistentvolumeclaim \"data\" is ReadWriteOncePod and planned for default/a: no other pod can run";
    for second in ["3", "500m"] {
        check_rivals(&rivals("ReadWriteOncePod", &cpus("3", second)), 1, &["a"], &["b"], why);
    }
    check_rivals(&rivals("ReadWriteOncePod", &cpus("1", "1")), 1, &["a"], &["b"], why);
    check_rivals(&rivals("ReadWriteOnce", &cpus("1", "1")), 1, &["a", "b"], &[], "");
}

#[test]
fn a_claim_of_one_pod_at_a_time_goes_to_the_pod_that_kube_scheduler_tries_first() {
    let important = || json!({"cpu": "1", "priority": 10});
    let world = rivals("ReadWriteOncePod", &[("a", json!({"cpu": "3"})), ("b", important())]);
    check_rivals(&world, 1, &["b"], &["a"], "planned for default/b");
    let mut world = rivals("ReadWriteOncePod", &[("a", json!({"cpu": "3"})), ("b", json!({"cpu": "1"}))]);
    world.objects.pods[0].metadata.creation_timestamp = Some(now());
    world.objects.pods[1].metadata.creation_timestamp = Some(now() - SignedDuration::from_mins(1));
    check_rivals(&world, 1, &["b"], &["a"], "planned for default/b");
}

#[test]
fn a_pod_that_fits_nowhere_keeps_no_claim_from_others() {
    let huge = json!({"cpu": "1000", "priority": 10});
    check_rivals(&rivals("ReadWriteOncePod", &[("a", huge), ("b", json!({"cpu": "1"}))]), 1, &["b"], &["a"], "planned for default/b");
}

#[test]
fn a_claim_of_one_pod_at_a_time_has_one_user_on_nodes_that_are_there() {
    let pods = [("a", json!({"cpu": "1"})), ("b", json!({"cpu": "1"}))];
    let mut world = rivals("ReadWriteOncePod", &pods);
    world.node("n", 4, json!({}));
    check_rivals(&world, 0, &[], &["b"], "planned for default/a");
    assert_eq!(world.plan().placements[0].pods.len(), 1);
    // Each was promised a machine before it was known.
    let mut world = rivals("ReadWriteOncePod", &pods);
    world.managed("one", "launched", 2, json!({}));
    world.managed("two", "launched", 2, json!({}));
    let promises = [("uid-a", "claim-one"), ("uid-b", "claim-two")];
    world.options.promised = promises.iter().map(|(pod, claim)| ((*pod).to_owned(), (*claim).to_owned())).collect();
    check_rivals(&world, 0, &[], &["b"], "planned for default/a");
    assert_eq!(world.plan().placements.len(), 1);
}

/// They have run together, however that came.
#[test]
fn pods_that_leave_their_node_are_placed_whoever_uses_their_claim() {
    let mut world = rivals("ReadWriteOncePod", &[("a", json!({"cpu": "1"})), ("b", json!({"cpu": "1"}))]);
    world.node("n", 4, json!({})).metadata.deletion_timestamp = Some(now());
    ["a", "b"].into_iter().for_each(|pod| world.bind(pod, "n"));
    check_rivals(&world, 1, &["a", "b"], &[], "");
}

#[test]
fn who_waits_for_the_user_of_a_claim_is_looked_at_again_when_that_one_is_gone() {
    let mut world = rivals("ReadWriteOncePod", &[("a", json!({"cpu": "1"})), ("b", json!({"cpu": "1"}))]);
    let first = world.solve(&world.options);
    let memory = world.ask(|input| Memory::after(input, &world.options, &first));
    let settled = |world: &World| world.ask(|input| memory.settled(input, &world.options).into_keys().collect::<Vec<String>>());
    assert_eq!(settled(&world), ["uid-b"]);
    world.objects.pods.retain(|pod| pod.metadata.name != "a");
    assert!(settled(&world).is_empty());
    check_rivals(&world, 1, &["b"], &[], "");
}

#[test]
fn alternatives_of_a_volume_are_tried_in_turn() {
    let apart = all(&[json!({"labels": {"app": "web"}}), hard("podAntiAffinity", near(labels::ZONE, "web"))]);
    for by_class in [false, true] {
        let mut world = World::new();
        for name in ["a", "b"] {
            if by_class {
                if name == "a" {
                    waiting(&mut world, "wait", &Z[..2]);
                }
                claim(&mut world, name, json!({"storageClassName": "wait"}));
            } else {
                volume(&mut world, name, csi(json!([in_zone(Z[0]), in_zone(Z[1])])));
            }
            world.pod(name, all(&[apart.clone(), using(&[name])]));
        }
        world.pass();
        assert_eq!(world.counts(labels::ZONE, "web"), [1, 1], "by class: {by_class}");
    }
}

#[test]
fn several_volumes_leave_the_combinations_that_agree() {
    let mut world = World::new();
    world.pool("default", json!({"labels": {"rack": "r1"}}));
    volume(&mut world, "a", csi(json!([in_zone(Z[0]), in_zone(Z[1])])));
    volume(
        &mut world,
        "b",
        csi(json!([in_zone(Z[2]), {"matchExpressions": [expr(labels::ZONE, "In", &[Z[1]]), expr("rack", "In", &["r1"])]}])),
    );
    world.pod("it", using(&["a", "b"]));
    zone_of(&mut world, Some(Z[1]));
    let mut world = World::new();
    bound(&mut world, "a", Z[0]);
    bound(&mut world, "b", Z[1]);
    world.pod("it", using(&["a", "b"]));
    zone_of(&mut world, None);
}

#[test]
fn a_volumes_zone_does_not_shrink_the_domains_of_a_spread() {
    let mut world = World::new();
    let mut over = spread(labels::ZONE, "web", 1);
    over["minDomains"] = json!(3);
    for (n, zone) in Z.iter().enumerate() {
        world.node(&format!("n{n}"), 1, json!({labels::ZONE: zone}));
        world.pod(&format!("old{n}"), json!({"cpu": "1", "labels": {"app": "web"}, "nodeName": format!("n{n}")})).status =
            serde_json::from_value(json!({"phase": "Running"})).unwrap();
    }
    bound(&mut world, "data", Z[0]);
    world.pod("it", all(&[json!({"labels": {"app": "web"}, "topologySpreadConstraints": [over]}), using(&["data"])]));
    world.pass();
    assert_eq!(world.counts(labels::ZONE, "web"), [1, 1, 2]);
}

/// Its driver runs on no machine of ours, which would stay empty (scheduling 8.3).
#[test]
fn a_volume_of_eks_auto_mode_is_mounted_on_no_machine_of_ours() {
    const AUTO: &str = "ebs.csi.eks.amazonaws.com";
    let terms = |key: &str, value: &str| json!([{"matchLabelExpressions": [{"key": key, "values": [value]}]}]);
    let unbound = |topologies: Value| {
        let mut world = World::new();
        class(&mut world, "auto", "WaitForFirstConsumer", AUTO, topologies);
        claim(&mut world, "data", json!({"storageClassName": "auto"}));
        world
    };
    let made = || {
        let mut world = World::new();
        volume(&mut world, "data", json!({"csi": {"driver": AUTO}, "nodeAffinity": {"required": {"nodeSelectorTerms": [in_zone(Z[0])]}}}));
        world
    };
    let worlds = [unbound(json!([])), unbound(terms(labels::ZONE, Z[0])), unbound(terms(labels::COMPUTE_TYPE, "auto")), made()];
    for (at, mut world) in worlds.into_iter().enumerate() {
        world.pod("it", using(&["data"]));
        world.node("group", 4, json!({labels::ZONE: Z[0]}));
        let plan = world.plan();
        assert_eq!((left(&plan), plan.claims.len()), (vec!["it"], 0), "{at}");
        let told = reasons(&plan).join("");
        assert!(told.contains("incompatible volume requirements") && told.contains(labels::COMPUTE_TYPE), "{at}: {told}");
        let remedies: Vec<String> = plan.left_out[0].reason.remedies().iter().map(ToString::to_string).collect();
        assert!(remedies.len() == 1 && remedies[0].contains("a StorageClass of ebs.csi.aws.com"), "{at}: {remedies:?}");
        world.node("auto", 4, json!({labels::ZONE: Z[0], labels::COMPUTE_TYPE: "auto"}));
        let plan = world.plan();
        assert_eq!((plan.placements.len(), plan.claims.len()), (1, 0), "{at}");
        assert_eq!(plan.placements[0].node, "auto", "{at}");
    }
}

#[test]
fn volumes_of_other_drivers_need_no_node_of_eks_auto_mode() {
    for driver in ["ebs.csi.aws.com", "efs.csi.aws.com", "kubernetes.io/aws-ebs"] {
        let mut world = World::new();
        class(&mut world, "own", "WaitForFirstConsumer", driver, json!([]));
        claim(&mut world, "data", json!({"storageClassName": "own"}));
        world.pod("it", using(&["data"]));
        assert_eq!(world.plan().claims.len(), 1, "{driver}");
    }
}
