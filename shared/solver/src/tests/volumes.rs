//! Volumes: where they pin pods, and how many a node attaches. Host ports.

use super::world::{World, Z, all, expr, hard, left, near, now, reasons, sizes, spread};
use serde_json::{Value, json};
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_model::pods::SELECTED_NODE;
use whittle_model::scheduling::{Options, Packing, Plan};

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

/// A free volume in a zone, of the class `manual`, which makes none.
fn made(world: &mut World, name: &str, zone: &str, change: &Value) {
    let own = json!({"storageClassName": "manual", "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"]});
    let spec = all(&[csi(json!([in_zone(zone)])), own, change.clone()]);
    let volume = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec, "status": {"phase": "Available"}});
    world.objects.volumes.push(serde_json::from_value(volume).unwrap());
}

/// A pod `it` whose claim waits for a volume of the class `manual`; without volumes.
fn awaiting(change: &Value) -> World {
    let mut world = World::new();
    class(&mut world, "manual", "WaitForFirstConsumer", "kubernetes.io/no-provisioner", json!([]));
    let wants = json!({"storageClassName": "manual", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}});
    claim(&mut world, "data", all(&[wants, change.clone()]));
    world.pod("it", using(&["data"]));
    world
}

#[test]
fn a_pod_goes_where_a_volume_is_free_that_somebody_has_made() {
    let mut world = awaiting(&json!({}));
    made(&mut world, "a", Z[2], &json!({}));
    zone_of(&mut world, Some(Z[2]));
    let anywhere = json!({"nodeAffinity": null});
    let mut world = awaiting(&json!({}));
    made(&mut world, "a", Z[2], &json!({}));
    made(&mut world, "b", Z[0], &anywhere);
    assert_eq!(world.plan().claims.len(), 1);
    world.objects.pods[0].spec.node_selector.insert(labels::ZONE.into(), Z[1].into());
    zone_of(&mut world, Some(Z[1]));
}

/// Whether a pod goes to the zone of a volume that differs so from what its claim, changed so, asks for; else it gets no machine.
#[track_caller]
fn check_suits(claim: &Value, volume: &Value, suits: bool) {
    let mut world = awaiting(claim);
    made(&mut world, "a", Z[1], volume);
    let plan = world.plan();
    let reason = reasons(&plan);
    assert_eq!((left(&plan).is_empty(), plan.claims.len()), (suits, usize::from(suits)), "{claim} {volume}: {reason:?}");
    let expected = "no persistentvolume of storageclass \"manual\" is free for persistentvolumeclaim \"data\"";
    assert!(suits || reason[0].contains(expected), "{reason:?}");
}

#[test]
fn a_volume_that_suits_no_claim_of_a_pod_launches_nothing_for_it() {
    let nothing = json!({});
    check_suits(&nothing, &nothing, true);
    check_suits(&nothing, &json!({"capacity": {"storage": "9Gi"}}), false);
    check_suits(&nothing, &json!({"capacity": {"storage": "1Ti"}}), true);
    check_suits(&nothing, &json!({"accessModes": ["ReadOnlyMany"]}), false);
    check_suits(&nothing, &json!({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}), true);
    check_suits(&nothing, &json!({"volumeMode": "Block"}), false);
    check_suits(&json!({"volumeMode": "Filesystem"}), &nothing, true);
    check_suits(&json!({"volumeMode": "Block"}), &json!({"volumeMode": "Block"}), true);
    check_suits(&json!({"selector": {"matchLabels": {"app": "other"}}}), &nothing, false);
    check_suits(&json!({"selector": {"matchLabels": {"app": "a"}}}), &nothing, true);
    let kept = |name: &str, uid: &str| json!({"claimRef": {"namespace": "default", "name": name, "uid": uid}});
    check_suits(&nothing, &kept("data", ""), true);
    check_suits(&nothing, &kept("data", "another"), false);
    check_suits(&nothing, &kept("other", ""), false);
    let mut released = awaiting(&nothing);
    made(&mut released, "a", Z[1], &nothing);
    released.objects.volumes[0].status.phase = "Released".into();
    assert_eq!(left(&released.plan()), ["it"]);
    released.objects.volumes[0].status.phase = String::new();
    assert_eq!(left(&released.plan()), [""; 0], "manifests have no phase");
}

#[test]
fn new_machines_may_bring_volumes_of_a_class_that_makes_none() {
    let local = |host: &str| {
        json!({"csi": null, "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expr(labels::HOSTNAME, "In", &[host])]}]}}})
    };
    let mut world = awaiting(&json!({}));
    assert_eq!(world.plan().claims.len(), 1, "the first machine brings the first volume");
    made(&mut world, "a", Z[1], &local("gone"));
    world.objects.volumes[0].spec.claim_ref = Some(serde_json::from_value(json!({"namespace": "default", "name": "other"})).unwrap());
    assert_eq!(world.plan().claims.len(), 1, "all are used");
    made(&mut world, "b", Z[1], &all(&[local("gone"), json!({"local": null, "csi": {"driver": "lvm"}})]));
    assert_eq!(world.plan().claims.len(), 1);
}

#[test]
fn pods_that_wait_for_volumes_which_somebody_has_made_begin_with_different_ones() {
    let mut world = awaiting(&json!({}));
    world.objects.pods.clear();
    world.objects.volume_claims.clear();
    let apart = all(&[json!({"labels": {"app": "db"}}), hard("podAntiAffinity", near(labels::HOSTNAME, "db"))]);
    for (n, zone) in Z.into_iter().enumerate() {
        made(&mut world, &format!("pv-{n}"), zone, &json!({}));
        claim(&mut world, &format!("data-{n}"), json!({"storageClassName": "manual"}));
        world.pod(&format!("db-{n}"), all(&[apart.clone(), using(&[&format!("data-{n}")])]));
    }
    world.pass();
    assert_eq!(world.counts(labels::ZONE, "db"), [1, 1, 1]);
}

#[test]
fn claims_of_one_pod_need_a_volume_each_where_it_runs() {
    let with = |zones: &[&str], claims: &[&str]| {
        let mut world = awaiting(&json!({}));
        world.objects.pods.clear();
        claim(&mut world, "wal", json!({"storageClassName": "manual"}));
        world.pod("it", using(claims));
        zones.iter().enumerate().for_each(|(n, zone)| made(&mut world, &format!("pv-{n}"), zone, &json!({})));
        world
    };
    zone_of(&mut with(&[Z[0], Z[1], Z[1]], &["data", "wal"]), Some(Z[1]));
    zone_of(&mut with(&[Z[0]], &["data", "data"]), Some(Z[0]));
    for zones in [&[Z[0]][..], &[Z[0], Z[1]][..]] {
        let plan = with(zones, &["data", "wal"]).plan();
        assert_eq!((left(&plan), plan.claims.len()), (vec!["it"], 0));
        assert!(reasons(&plan)[0].contains("of its own for each of 2 persistentvolumeclaims"), "{:?}", reasons(&plan));
    }
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

/// A node with an attach limit of `limit` volumes of `driver`.
fn attaching(world: &mut World, limit: i64, driver: &str) {
    world.managed("old", "initialized", 64, json!({labels::ZONE: Z[0]}));
    let csi =
        json!({"metadata": {"name": "old"}, "spec": {"drivers": [{"name": driver, "nodeID": "old", "allocatable": {"count": limit}}]}});
    world.objects.csi_nodes.push(serde_json::from_value(csi).unwrap());
}

#[test]
fn a_node_attaches_volumes_up_to_its_limit_and_shared_ones_once() {
    let mut world = World::new();
    attaching(&mut world, 10, "ebs.csi.aws.com");
    waiting(&mut world, "wait", &[]);
    for n in 0..6 {
        let names = [format!("a{n}"), format!("b{n}")];
        for c in &names {
            claim(&mut world, c, json!({"storageClassName": "wait"}));
        }
        world.pod(&format!("p{n}"), using(&[&names[0], &names[1]]));
    }
    let plan = world.plan();
    assert_eq!((plan.placements[0].pods.len(), plan.claims.len()), (5, 1));
    let mut world = World::new();
    attaching(&mut world, 10, "ebs.csi.aws.com");
    waiting(&mut world, "wait", &[]);
    claim(&mut world, "shared", json!({"storageClassName": "wait"}));
    world.pods("web", 100, &using(&["shared"]));
    assert_eq!(world.plan().claims.len(), 0);
}

/// Since Kubernetes 1.37 a CSIDriver with `preventPodSchedulingIfMissing` keeps pods off nodes on which it does not run (scheduling 8.5).
#[test]
fn a_pod_goes_to_no_foreign_node_on_which_kube_scheduler_misses_its_driver() {
    let planned = |is_foreign: bool, drivers: &[&str], message: &str| {
        let mut world = World::new();
        if is_foreign {
            world.node("old", 64, json!({labels::ZONE: Z[0]}));
        } else {
            world.managed("old", "initialized", 64, json!({labels::ZONE: Z[0]}));
        }
        let drivers: Vec<Value> = drivers.iter().map(|name| json!({"name": name, "nodeID": "old"})).collect();
        let csi_node = json!({"metadata": {"name": "old"}, "spec": {"drivers": drivers}});
        world.objects.csi_nodes.push(serde_json::from_value(csi_node).unwrap());
        waiting(&mut world, "wait", &[]);
        claim(&mut world, "data", json!({"storageClassName": "wait"}));
        world.pod("it", using(&["data"])).status.conditions[0].message = message.into();
        let plan = world.plan();
        (plan.placements.iter().map(|placement| placement.pods.len()).sum::<usize>(), plan.claims.len())
    };
    let missed = "0/1 nodes are available: 1 ebs.csi.aws.com CSI driver is not installed on the node.";
    assert_eq!(planned(true, &[], missed), (0, 1));
    assert_eq!(planned(true, &["efs.csi.aws.com"], missed), (0, 1));
    assert_eq!(planned(true, &["ebs.csi.aws.com"], missed), (1, 0), "it runs there now");
    assert_eq!(planned(true, &[], "0/1 nodes are available: 1 Insufficient cpu."), (1, 0), "the driver keeps no pod off");
    assert_eq!(planned(true, &[], &missed.replace("ebs", "efs")), (1, 0), "another pod's driver");
    assert_eq!(planned(false, &[], missed), (1, 0), "machine after machine would be launched while the driver does not start");
}

#[test]
fn the_driver_is_found_through_class_volume_and_migration() {
    let counted = |make: fn(&mut World, &str), driver: &str| {
        let mut world = World::new();
        attaching(&mut world, 1, driver);
        for name in ["a", "b"] {
            make(&mut world, name);
            world.pod(name, using(&[name]));
        }
        let plan = world.plan();
        (plan.placements.iter().map(|p| p.pods.len()).sum::<usize>(), plan.claims.len())
    };
    let in_tree = |w: &mut World, name: &str| {
        class(w, &format!("class-{name}"), "WaitForFirstConsumer", "kubernetes.io/aws-ebs", json!([]));
        claim(w, name, json!({"storageClassName": format!("class-{name}")}));
    };
    assert_eq!(counted(in_tree, "ebs.csi.aws.com"), (1, 1));
    let disk: fn(&mut World, &str) = |w, name| volume(w, name, json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}));
    assert_eq!(counted(disk, "ebs.csi.aws.com"), (1, 1));
    let own: fn(&mut World, &str) = |w, name| volume(w, name, csi(json!([])));
    assert_eq!(counted(own, "ebs.csi.aws.com"), (1, 1));
    assert_eq!(counted(own, "other.driver"), (2, 0), "the limit is another driver's");
    let files: fn(&mut World, &str) = |w, name| volume(w, name, json!({"nfs": {"server": "x", "path": "/"}}));
    assert_eq!(counted(files, "ebs.csi.aws.com"), (2, 0), "what has no driver is not limited");
}

#[test]
fn ephemeral_volumes_count_by_the_class_of_their_claim() {
    let mut world = World::new();
    attaching(&mut world, 1, "ebs.csi.aws.com");
    waiting(&mut world, "wait", &[]);
    for name in ["a", "b"] {
        claim(&mut world, &format!("{name}-scratch"), json!({"storageClassName": "wait"}));
        world.pod(name, ephemeral());
    }
    let plan = world.plan();
    assert_eq!((plan.placements[0].pods.len(), plan.claims.len()), (1, 1));
}

/// Two pods, each with two volumes of `driver` that are still to be made; each type attaches as many EBS volumes as `most` says.
fn two_by_two(driver: &str, most: fn(&str) -> Option<u32>) -> World {
    let mut world = World::new();
    world.types.iter_mut().for_each(|t| t.ebs_attachments = most(&t.name));
    class(&mut world, "wait", "WaitForFirstConsumer", driver, json!([]));
    for name in ["a", "b"] {
        let claims = [format!("{name}-0"), format!("{name}-1")];
        for one in &claims {
            claim(&mut world, one, json!({"storageClassName": "wait"}));
        }
        world.pod(name, using(&[&claims[0], &claims[1]]));
    }
    world
}

#[test]
fn a_new_machine_gets_no_more_volumes_than_its_type_attaches() {
    let machines = |driver: &str, most: fn(&str) -> Option<u32>| sizes(&two_by_two(driver, most).plan());
    let ebs = "ebs.csi.aws.com";
    assert_eq!(machines(ebs, |_| Some(3)), [1, 1]);
    assert_eq!(machines("kubernetes.io/aws-ebs", |_| Some(3)), [1, 1]);
    assert_eq!(machines(ebs, |_| Some(4)), [2]);
    assert_eq!(machines(ebs, |_| None), [2], "a catalog that does not tell limits nothing");
    assert_eq!(machines("efs.csi.aws.com", |_| Some(1)), [2], "volumes of other drivers do not count");
}

#[test]
fn a_volume_that_pods_share_counts_once_and_pods_without_one_join_them() {
    let mut world = World::new();
    world.types.iter_mut().for_each(|t| t.ebs_attachments = Some(1));
    waiting(&mut world, "wait", &[]);
    claim(&mut world, "shared", json!({"storageClassName": "wait"}));
    world.pods("web", 3, &using(&["shared"]));
    world.pods("plain", 2, &json!({"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "own", "csi": {"driver": "ebs.csi.aws.com"}}]}));
    assert_eq!(sizes(&world.plan()), [5]);
}

#[test]
fn claims_of_ephemeral_volumes_count_on_new_machines() {
    let mut world = World::new();
    world.types.iter_mut().for_each(|t| t.ebs_attachments = Some(1));
    waiting(&mut world, "wait", &[]);
    for name in ["a", "b"] {
        claim(&mut world, &format!("{name}-scratch"), json!({"storageClassName": "wait"}));
        world.pod(name, ephemeral());
    }
    assert_eq!(sizes(&world.plan()), [1, 1]);
}

#[test]
fn a_machine_becomes_only_types_that_attach_all_volumes_of_its_pods() {
    let most: fn(&str) -> Option<u32> = |name| Some(if name == "small-instance-type" { 3 } else { 4 });
    for limits in [json!({}), json!({"limits": {"cpu": "1000"}})] {
        let mut world = two_by_two("ebs.csi.aws.com", most);
        world.pool("default", limits);
        for options in [world.options.clone(), Options::provisioning()] {
            let plan = world.solve(&options);
            let kept = |name: &str| plan.claims.iter().any(|claim| claim.pods.len() == 2 && claim.instance_types.iter().any(|t| t == name));
            assert!(plan.scheduled() == 2 && !kept("small-instance-type"), "{plan:?}");
        }
        assert_eq!(sizes(&world.plan()), [2]);
    }
}

#[test]
fn a_pod_with_more_volumes_than_any_type_attaches_is_told_so() {
    let mut world = two_by_two("ebs.csi.aws.com", |_| Some(1));
    world.objects.pods.truncate(1);
    let plan = world.plan();
    assert_eq!((left(&plan), plan.claims.len()), (vec!["a"], 0));
    assert!(reasons(&plan)[0].contains("needs 2 EBS volumes, the largest allowed type, "), "{:?}", reasons(&plan));
    let remedies: Vec<String> = plan.left_out.iter().flat_map(|left| left.reason.remedies()).map(|remedy| remedy.text).collect();
    assert!(remedies.iter().any(|text| text.contains("at most 1 EBS volumes in one pod")), "{remedies:?}");
}

/// The pods that go to a machine whose type attaches three volumes, and the sizes of new ones, with these drivers in its CSINode.
fn beside_one_that_starts(drivers: Value) -> (usize, Vec<usize>) {
    let mut world = two_by_two("ebs.csi.aws.com", |_| Some(3));
    world.managed("old", "registered", 64, json!({labels::ZONE: Z[0]}));
    let csi = json!({"metadata": {"name": "old"}, "spec": {"drivers": drivers}});
    world.objects.csi_nodes.push(serde_json::from_value(csi).unwrap());
    let plan = world.plan();
    (plan.placements.iter().map(|placement| placement.pods.len()).sum(), sizes(&plan))
}

#[test]
fn until_its_driver_runs_a_machine_attaches_what_its_type_is_expected_to() {
    let driver = |name: &str, allocatable: Value| json!([{"name": name, "nodeID": "old", "allocatable": allocatable}]);
    assert_eq!(beside_one_that_starts(json!([])), (1, vec![1]));
    assert_eq!(beside_one_that_starts(driver("efs.csi.aws.com", Value::Null)), (1, vec![1]));
    assert_eq!(beside_one_that_starts(driver("ebs.csi.aws.com", json!({"count": 4}))), (2, vec![]), "what the driver says counts");
    assert_eq!(beside_one_that_starts(driver("ebs.csi.aws.com", Value::Null)), (2, vec![]), "it says that it has no limit");
}

#[test]
fn the_replacement_of_a_node_has_a_type_that_attaches_its_volumes() {
    let mut world = two_by_two("ebs.csi.aws.com", |name| Some(if name == "small-instance-type" { 3 } else { 4 }));
    world.managed("old", "initialized", 64, json!({labels::ZONE: Z[0]}));
    ["a", "b"].iter().for_each(|name| world.bind(name, "old"));
    let plan = world.solve(&Options { packing: Packing::Reference, ..Options::simulating(["old".to_owned()].into()) });
    assert_eq!(sizes(&plan), [2]);
    assert!(plan.claims[0].instance_types.iter().all(|name| name != "small-instance-type"), "{:?}", plan.claims[0].instance_types);
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

#[test]
fn host_ports_clash_by_port_protocol_and_address() {
    let clash = |a: Value, b: Value| {
        let mut world = World::new();
        world.pod("a", json!({"ports": [a]}));
        world.pod("b", json!({"ports": [b]}));
        world.plan().claims.len() == 2
    };
    let port = |port: i32, protocol: &str, ip: &str| json!({"containerPort": 80, "hostPort": port, "protocol": protocol, "hostIP": ip});
    assert!(clash(port(80, "TCP", ""), port(80, "TCP", "")));
    assert!(clash(port(80, "TCP", "1.1.1.1"), port(80, "TCP", "1.1.1.1")));
    assert!(clash(port(80, "TCP", "0.0.0.0"), port(80, "TCP", "1.1.1.1")));
    assert!(clash(port(80, "TCP", "fd00::1"), port(80, "TCP", "::")));
    assert!(!clash(port(80, "TCP", ""), port(80, "UDP", "")));
    assert!(!clash(port(80, "TCP", ""), port(81, "TCP", "")));
    assert!(!clash(port(80, "TCP", "1.1.1.1"), port(80, "TCP", "2.2.2.2")));
    let mut world = World::new();
    world.pod("own", json!({"ports": [port(80, "TCP", ""), port(80, "TCP", "1.1.1.1")]}));
    assert!(left(&world.plan()).is_empty(), "a pod does not clash with itself");
}

#[test]
fn host_ports_of_sidecars_clash_and_those_of_other_init_containers_do_not() {
    let machines = |restart_policy: &str| {
        let mut world = World::new();
        let ports = json!([{"containerPort": 9100, "hostPort": 9100}]);
        let init = json!({"initContainers": [{"name": "s", "restartPolicy": restart_policy, "ports": ports}]});
        world.pods("web", 2, &all(&[json!({"cpu": "100m"}), init]));
        world.plan().claims.len()
    };
    assert_eq!((machines("Always"), machines("")), (2, 1));
}
