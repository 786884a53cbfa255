//! When EC2 is asked for a cluster that has nothing.

use super::over_sim::{start_machine, still};
use super::uninstall::create_template;
use super::without_ec2::{Failing, INSTANCES, TEMPLATES, sweep_without};
use super::{node, planned};
use crate::Looks;
use futures::executor::block_on;
use whittle_api::ObjectMeta;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_claims::{LeftNodes, Revision, Sighting, Uninstall};
use whittle_ports::{Adapters, CloudErrorKind, HandleError, Records, Report, Settings};
use whittle_testkit::{TestWorld, at, pool_named};
use whittle_units::{ClusterName, SignedDuration};

fn cluster() -> ClusterName {
    ClusterName::new("c")
}

/// A tick during which this call of EC2 fails.
fn tick_without(call: &'static str, world: &TestWorld, looks: &Looks) -> Result<Report, HandleError> {
    let ports = world.ports();
    let cloud = Failing { ports: &ports, call, kind: CloudErrorKind::Throttled };
    let adapters = Adapters { store: &ports, cloud: &cloud, cluster: &ports, queues: &ports, clock: &ports };
    // So that no Node is one that was read before.
    let settings = Settings { node_repair: true, ..Settings::default() };
    block_on(crate::tick(adapters, &settings, looks, &cluster()))
}

fn tick(world: &TestWorld, looks: &Looks) -> Report {
    tick_without("none", world, looks).expect("nothing is in its way")
}

/// Whether a tick asks EC2 for machines: then it fails.
fn asks(world: &TestWorld, looks: &Looks) -> bool {
    tick_without(INSTANCES, world, looks).is_err()
}

fn minutes(world: &mut TestWorld, minutes: i64) {
    world.run_for(SignedDuration::from_mins(minutes));
}

/// A cluster with a NodePool and nothing else, a minute after a tick.
fn quiet() -> (TestWorld, Looks) {
    let (mut world, looks) = (still(), Looks::new());
    world.create(pool_named("default"));
    tick(&world, &looks);
    minutes(&mut world, 1);
    (world, looks)
}

#[test]
fn where_nothing_is_ec2_is_asked_by_each_fifth_tick() {
    let (mut world, looks) = quiet();
    for _ in 1..=4 {
        assert!(!asks(&world, &looks));
        minutes(&mut world, 1);
    }
    assert!(asks(&world, &looks), "after five minutes");
    assert!(asks(&world, &looks), "and again while it does not answer");
    tick(&world, &looks);
    minutes(&mut world, 1);
    assert!(!asks(&world, &looks));
}

#[test]
fn another_environment_a_bell_and_an_uninstallation_always_ask_ec2() {
    let (world, looks) = quiet();
    assert!(asks(&world, &Looks::new()));
    assert!(sweep_without(INSTANCES, CloudErrorKind::Throttled, &world).is_err(), "somebody knows of something");
    assert!(!asks(&world, &looks));
    let asked = Uninstall { asked_at: at(0), nodes: LeftNodes::Keep };
    block_on(world.ports().write(&cluster(), &asked, Revision::ABSENT)).unwrap();
    assert!(asks(&world, &looks));
}

/// Each of these may be of a machine that only EC2 shows.
#[test]
fn where_anything_is_ec2_is_asked_at_once() {
    let check = |case: &str, expected: bool, change: &dyn Fn(&TestWorld)| {
        let (world, looks) = quiet();
        change(&world);
        assert_eq!(asks(&world, &looks), expected, "{case}");
    };
    check("a claim", true, &|world| world.store(&planned()));
    check("a NodeClaim", true, &|world| world.create(NodeClaim { metadata: ObjectMeta::named("theirs"), ..NodeClaim::default() }));
    check("a Node of a NodePool", true, &|world| world.create(node(true)));
    check("a Node of somebody else", false, &|world| world.create(Node { metadata: ObjectMeta::named("theirs"), ..Node::default() }));
    check("what cannot be read", true, &|world| world.world().hide_always("NodePool", "default", true));
    check("a contradiction that was seen", true, &|world| {
        let seen = Sighting { subject: "instance/i-1 without claim".to_owned(), first_seen_at: at(0), expires_at: at(3_600) };
        block_on(world.ports().write(&cluster(), &seen, Revision::ABSENT)).unwrap();
    });
}

#[test]
fn what_the_last_look_showed_is_looked_at_each_minute() {
    let check = |case: &str, call: &'static str, change: &dyn Fn(&TestWorld)| {
        let (mut world, looks) = (still(), Looks::new());
        change(&world);
        tick_without(call, &world, &looks).expect("the tick goes on");
        minutes(&mut world, 1);
        assert!(asks(&world, &looks), "{case}");
    };
    check("a machine", "none", &|world| drop(start_machine(world)));
    check("a launch template", "none", &|world| create_template(world));
    check("launch templates that EC2 did not list", TEMPLATES, &|_| ());
    // Its machine may be all that is left of it a minute later.
    check("a claim", "none", &|world| world.store(&planned()));
}

/// The table was emptied while a machine ran that has neither a NodeClaim nor a Node.
#[test]
fn a_machine_that_everybody_has_forgotten_is_found_within_five_minutes() {
    let (mut world, looks) = quiet();
    start_machine(&world);
    let mut collected = Vec::new();
    for minute in 1..=7 {
        if tick(&world, &looks).counted("collected") > 0 {
            collected.push(minute);
        }
        minutes(&mut world, 1);
    }
    // Seen by the fifth tick after the one that saw nothing, and again a minute later.
    assert_eq!(collected, [6]);
}
