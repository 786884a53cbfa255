//! What a command says in the cluster while it is carried out.

use super::leaving::{handle, pass, world};
use super::{claim, running};
use crate::publish::terminating;
use crate::state::{DeletingMachine, Running};
use whittle_claims::LeftNodes;
use whittle_model::disruption::Method;
use whittle_testkit::TestWorld;

/// The Events of commands, sorted.
fn told(world: &TestWorld) -> Vec<String> {
    const REASONS: [&str; 3] = ["DisruptionLaunching", "DisruptionWaitingReadiness", "DisruptionTerminating"];
    let world = world.world();
    let events = world.cluster.events.iter().map(|kept| &kept.event).filter(|event| REASONS.contains(&event.reason.as_str()));
    let mut told: Vec<String> = events.map(|event| format!("{} {}: {}: {}", event.kind, event.name, event.reason, event.message)).collect();
    told.sort();
    told
}

#[test]
fn nodes_that_a_command_ends_say_so_once_and_why() {
    let world = world(None);
    pass(&world, running(vec![claim("new")]));
    let both = [
        "Node node-old: DisruptionTerminating: Disrupting Node: Underutilized",
        "NodeClaim old: DisruptionTerminating: Disrupting NodeClaim: Underutilized",
    ];
    assert_eq!(told(&world), both);
    handle(&world);
    assert_eq!(told(&world), both);
}

#[test]
fn machines_that_a_command_launches_say_what_for() {
    let world = world(None);
    pass(&world, Running { stored: false, ..running(vec![claim("next")]) });
    assert_eq!(
        told(&world),
        [
            "NodeClaim next: DisruptionLaunching: Launching NodeClaim: Underutilized",
            "NodeClaim next: DisruptionWaitingReadiness: Waiting on readiness to continue disruption",
        ],
        "and nothing of the node that waits for it"
    );
}

#[test]
fn a_command_that_is_rolled_back_disrupts_nothing_and_says_nothing() {
    for left in [LeftNodes::Keep, LeftNodes::HandOver] {
        let world = world(Some(left));
        pass(&world, running(vec![claim("new")]));
        assert_eq!(told(&world), [] as [String; 0], "{left:?}");
    }
}

#[test]
fn a_machine_without_a_node_has_an_event_on_its_nodeclaim_alone() {
    let objects = |node: &str| {
        let machine = DeletingMachine { claim: "old".into(), node: node.to_owned() };
        terminating(Method::StaticDrift, &machine).into_iter().map(|note| (note.object, note.message)).collect::<Vec<_>>()
    };
    let on_claim = ("nodeclaim/old".to_owned(), "Disrupting NodeClaim: Drifted".to_owned());
    let on_node = ("node/n".to_owned(), "Disrupting Node: Drifted".to_owned());
    assert_eq!(objects("n"), [on_node, on_claim.clone()]);
    assert_eq!(objects(""), [on_claim]);
}
