//! How many volumes a node attaches, and a new machine by its type.

use super::{bound, claim, class, csi, ephemeral, using, volume, waiting};
use crate::tests::world::{World, Z, left, reasons, sizes};
use serde_json::{Value, json};
use whittle_api::labels;
use whittle_model::scheduling::{Options, Packing};

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

/// Nothing could mount its volumes there: it would be evicted for nothing, and where kube-scheduler keeps it off, again and again.
#[test]
fn a_pod_that_runs_moves_to_no_foreign_node_without_the_driver_of_its_volumes() {
    let moved = |here: &[&str], there: &[&str]| {
        let mut world = World::new();
        world.node("foreign", 64, json!({labels::ZONE: Z[0]}));
        world.managed("old", "initialized", 64, json!({labels::ZONE: Z[0]}));
        for (node, drivers) in [("old", here), ("foreign", there)] {
            let drivers: Vec<Value> = drivers.iter().map(|name| json!({"name": name, "nodeID": node})).collect();
            let csi_node = json!({"metadata": {"name": node}, "spec": {"drivers": drivers}});
            world.objects.csi_nodes.push(serde_json::from_value(csi_node).unwrap());
        }
        bound(&mut world, "data", Z[0]);
        world.pod("it", using(&["data"]));
        world.bind("it", "old");
        let plan = world.solve(&Options { packing: Packing::Reference, ..Options::simulating(["old".to_owned()].into()) });
        (plan.placements.iter().map(|placement| placement.pods.len()).sum::<usize>(), plan.claims.len())
    };
    let driver = ["ebs.csi.aws.com"];
    assert_eq!(moved(&driver, &[]), (0, 1));
    assert_eq!(moved(&driver, &["efs.csi.aws.com"]), (0, 1));
    assert_eq!(moved(&driver, &driver), (1, 0));
    assert_eq!(moved(&[], &[]), (1, 0), "nothing says that nodes need the driver");
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
