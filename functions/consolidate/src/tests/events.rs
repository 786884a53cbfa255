//! What a command says in the cluster while it is carried out.

use super::leaving::{handle, pass, world};
use super::{claim, decision, running, snapshot_of};
use crate::publish::{EVENTS_MAX, store_verdicts, terminating};
use crate::state::{DeletingMachine, Running};
use futures::executor::block_on;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex};
use whittle_claims::{Doorbell, LeftNodes};
use whittle_disruption::KeepReason;
use whittle_model::disruption::Method;
use whittle_ports::{Adapters, Clock, Mode, Queues, Report};
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts};
use whittle_testkit::{TestWorld, at};
use whittle_units::{ClusterName, SignedDuration};

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

/// Stores and publishes what a pass has found about many pods. How long that took.
struct Publishes(Arc<Mutex<Option<SignedDuration>>>);

impl Functions for Publishes {
    fn call(&self, function: Function, ports: SimPorts, _: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        let took = Arc::clone(&self.0);
        Box::pin(async move {
            if function != Function::Consolidate {
                return Ok(());
            }
            let pods: Vec<String> = (0..EVENTS_MAX).map(|number| format!("pod/default/p-{number}")).collect();
            let decision = decision(KeepReason::NothingCheaper, &pods.iter().map(String::as_str).collect::<Vec<_>>());
            let (snapshot, mut report, begun) = (snapshot_of(Vec::new(), at(0)), Report::default(), ports.now());
            let (adapters, cluster) = (Adapters::all(&ports), ClusterName::new("c"));
            let stored = store_verdicts(adapters, &cluster, &snapshot, &decision, Mode::Active, &mut report).await;
            *took.lock().unwrap() = Some(ports.now().duration_since(begun));
            stored.map_err(RunFailure::passing)
        })
    }
}

#[test]
fn events_of_a_pass_are_published_many_at_once_since_planning_waits_for_the_lease() {
    let took = Arc::default();
    let mut world = TestWorld::with_functions("c", at(0), Arc::new(Publishes(Arc::clone(&took))));
    block_on(world.ports().send_now(Doorbell::Consolidate { cluster: ClusterName::new("c") })).unwrap();
    world.run_for(SignedDuration::from_secs(20));
    assert_eq!(world.world().cluster.events.len(), EVENTS_MAX);
    let took = took.lock().unwrap().expect("the pass has ended");
    // A request to the API server takes ten milliseconds at least.
    assert!(took < SignedDuration::from_millis(600), "{took:?}");
}
