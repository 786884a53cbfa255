//! The room of daemons on machines that exist, start, or are still to be launched.

use super::daemons::{daemon, live};
use super::world::{World, Z, all, expr, left, required};
use serde_json::json;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;

/// As on a new machine, which will be both as well: otherwise a pod would take the room before the daemon is there.
#[test]
fn daemons_of_registered_and_initialized_nodes_are_counted_while_these_start() {
    for key in [labels::REGISTERED, labels::INITIALIZED] {
        for state in ["initialized", "registered", "launched"] {
            let with_daemon_for = |value: &str| {
                let mut world = World::new();
                world.types.clear();
                world.managed("n", state, 4, json!({}));
                daemon(&mut world, "agent", all(&[json!({"cpu": "2"}), required(&[&[expr(key, "In", &[value])]])]));
                world.pod("it", json!({"cpu": "3"}));
                left(&world.plan()).is_empty()
            };
            assert!(!with_daemon_for("true"), "{key} on a node that is {state}");
            assert!(with_daemon_for("false"), "{key} on a node that is {state}");
        }
    }
}

/// Which zone it gets is not known, and the machine was planned with the daemon.
#[test]
fn a_daemon_of_one_zone_is_counted_on_a_machine_that_may_be_launched_there() {
    for (zones, fits) in [(&Z[..2], false), (&Z[1..], true)] {
        let mut world = World::new();
        world.types.clear();
        let (_, claim) = world.managed("n", "launched", 4, json!({}));
        claim.spec.requirements = vec![Requirement::is_in(labels::ZONE, zones.iter().copied())];
        world.objects.nodes.clear();
        daemon(&mut world, "agent", json!({"cpu": "2", "nodeSelector": {labels::ZONE: Z[0]}}));
        world.pod("it", json!({"cpu": "3"}));
        assert_eq!(left(&world.plan()).is_empty(), fits, "{zones:?}");
    }
}

/// The requests of its claim count only the daemons of each type that it lists: room for another is not there, and the pod that takes the
/// place of one that was planned would get a second machine.
#[test]
fn a_daemon_of_some_types_is_not_counted_on_a_machine_that_may_be_of_another() {
    for (selected, fits) in [(&["amd64"][..], true), (&["amd64", "arm64"][..], false)] {
        let mut world = World::new();
        world.types.clear();
        let (_, claim) = world.managed("n", "launched", 4, json!({}));
        claim.metadata.labels.remove(labels::ARCH);
        claim.spec.requirements = vec![Requirement::is_in(labels::ARCH, ["amd64", "arm64"])];
        world.objects.nodes.clear();
        daemon(&mut world, "agent", all(&[json!({"cpu": "2"}), required(&[&[expr(labels::ARCH, "In", selected)]])]));
        world.pod("it", json!({"cpu": "3"}));
        assert_eq!(left(&world.plan()).is_empty(), fits, "{selected:?}");
    }
}

/// Once it is launched, its zone is known, whatever the claim allowed.
#[test]
fn a_daemon_of_another_zone_is_not_counted_on_a_machine_that_is_launched() {
    for (zone, fits) in [(Z[0], false), (Z[1], true)] {
        let mut world = World::new();
        world.types.clear();
        let (_, claim) = world.managed("n", "launched", 4, json!({labels::ZONE: zone}));
        claim.spec.requirements = vec![Requirement::is_in(labels::ZONE, Z)];
        world.objects.nodes.clear();
        daemon(&mut world, "agent", json!({"cpu": "2", "nodeSelector": {labels::ZONE: Z[0]}}));
        world.pod("it", json!({"cpu": "3"}));
        assert_eq!(left(&world.plan()).is_empty(), fits, "{zone}");
    }
}

/// A pod of a DaemonSet that has failed is made again: its room stays its own, also where pods of another have more than that one needs.
#[test]
fn what_a_pod_of_one_daemon_has_makes_no_room_for_that_of_another() {
    for (phase, cpu, fits) in [("Running", "8", true), ("Running", "9", false), ("Failed", "8", true), ("Failed", "9", false)] {
        let mut world = World::new();
        world.types.clear();
        world.managed("n", "initialized", 16, json!({}));
        daemon(&mut world, "agent", json!({"cpu": "4"}));
        live(&mut world, "own", json!({"cpu": "4"}), 20);
        world.bind("own", "n");
        world.objects.pods.last_mut().unwrap().status.phase = phase.to_owned();
        // Its DaemonSet no longer exists.
        live(&mut world, "orphan", json!({"cpu": "4"}), 10);
        world.bind("orphan", "n");
        world.objects.pods.last_mut().unwrap().metadata.owner_references[0].name = "gone".into();
        world.pod("it", json!({"cpu": cpu}));
        assert_eq!(left(&world.plan()).is_empty(), fits, "{phase}, {cpu}");
    }
}

/// The daemon's pod tolerates what a node starts with, and has the port before the other is bound: that one would wait there for nothing.
#[test]
fn the_host_ports_of_a_daemon_are_kept_where_its_pod_is_missing() {
    let port = |port: i32| json!({"ports": [{"containerPort": port, "hostPort": port}]});
    for state in ["initialized", "registered", "launched"] {
        let fits = |selects: &str, wanted: i32, live_phase: Option<&str>| {
            let mut world = World::new();
            world.types.clear();
            world.managed("n", state, 4, json!({"role": "edge"}));
            daemon(&mut world, "agent", all(&[port(8080), json!({"nodeSelector": {"role": selects}})]));
            if let Some(phase) = live_phase {
                live(&mut world, "own", port(8080), 20);
                world.bind("own", "n");
                world.objects.pods.last_mut().unwrap().status.phase = phase.to_owned();
            }
            world.pod("it", port(wanted));
            left(&world.plan()).is_empty()
        };
        assert!(!fits("edge", 8080, None), "a node that is {state}");
        assert!(!fits("edge", 8080, Some("Running")) && !fits("edge", 8080, Some("Failed")), "a node that is {state}");
        assert!(fits("edge", 8081, None) && fits("core", 8080, None), "another port, or a daemon of other nodes: {state}");
    }
}
