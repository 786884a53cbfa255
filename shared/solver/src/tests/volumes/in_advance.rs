//! Volumes that somebody created in advance, of a class that makes none.

use super::{claim, class, csi, in_zone, using, zone_of};
use crate::tests::world::{World, Z, all, expr, hard, left, near, reasons};
use serde_json::{Value, json};
use whittle_api::labels;

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
