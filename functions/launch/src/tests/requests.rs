//! How many calls a run makes: of ports whose every call takes a millisecond.

use super::many::keep_in;
use super::over_sim::{keep, run_over};
use super::repeated::with_class;
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::task::{Context, Poll, Waker};
use whittle_claims::{Bucket, BucketName};
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{Adapters, Clock, NamePatterns, RegionStore, Report, Settings};
use whittle_sim::{Function, SimPorts};
use whittle_testkit::TestWorld;
use whittle_units::{ClaimName, ClusterName, SignedDuration};

/// The calls of a run that launches so many equal claims.
fn calls(claims: usize) -> i128 {
    let simulation = with_class();
    let named: Vec<ClaimName> = (0..claims).map(|number| keep(&simulation, number).key.name).collect();
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(1), SignedDuration::from_hours(1));
    let begun = ports.now();
    let report = run_over(&ports, &named);
    let calls = ports.now().duration_since(begun).as_millis();
    assert_eq!(report.counted("launched"), u64::try_from(claims).unwrap());
    calls
}

#[test]
fn a_claim_is_read_stored_before_and_after_its_call_and_shown() {
    assert_eq!(calls(30) - calls(10), 4 * 20);
}

/// A world with a claim for each of so many calls.
fn groups(count: usize) -> TestWorld {
    let simulation = with_class();
    for number in 0..count {
        keep_in(&simulation, number, number);
    }
    simulation
}

#[test]
fn calls_that_are_made_at_once_ring_for_their_nodes_once() {
    let simulation = groups(5);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 5);
    let rung = simulation.doorbells().into_iter().filter(|function| *function == Function::Register).count();
    assert_eq!(rung, 1);
}

/// Others have used up the rate of CreateFleet, but for so many calls.
pub(super) fn leave_tokens(simulation: &TestWorld, left: u32) {
    let now = simulation.world().now();
    let (bucket, full) = (BucketName("CreateFleet".to_owned()), Bucket::full(50, 5, now));
    assert!(simulation.world().store.take_tokens(&bucket, &full, 50 - left, now));
}

#[test]
fn as_many_calls_are_made_as_there_are_tokens() {
    for (left, launched) in [(5, 4), (3, 3), (2, 2), (0, 0)] {
        let simulation = groups(4);
        leave_tokens(&simulation, left);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), launched);
        let again = simulation.doorbells().contains(&Function::Launch);
        assert_eq!(again, launched < 4, "the others are tried again");
    }
}

/// Settings of a deployment that serves these.
fn serving(clusters: &[&str]) -> Settings {
    let clusters: Vec<ClusterName> = clusters.iter().map(|&name| name.into()).collect();
    let cluster_node_roles = NamePatterns::parse("c=*").unwrap();
    Settings { clusters, cluster_node_roles, ..Settings::default() }
}

#[test]
fn calls_after_the_first_leave_tokens_to_the_other_clusters_of_a_deployment() {
    let cluster = ClusterName::new("c");
    for (served, later) in [(&["c"][..], 50), (&["c", "other"][..], 45)] {
        let simulation = with_class();
        let ports = simulation.ports();
        let facts = block_on(crate::load(Adapters::all(&ports), &serving(served), &cluster)).unwrap().expect("they are stored");
        let run = crate::Run {
            ports: Adapters::all(&ports),
            cluster: &cluster,
            facts: Arc::new(facts),
            templates: BTreeSet::new(),
            register_rung_at: Arc::new(AtomicI64::new(i64::MIN)),
            is_throttled: false,
            templates_throttled: None,
            report: Report::default(),
        };
        let all = |reserve| -> usize {
            let taken = std::iter::from_fn(|| Some(block_on(run.take_tokens(50, reserve)).unwrap()));
            taken.take_while(|count| *count > 0).sum()
        };
        assert_eq!(all(run.facts.left_to_others), later, "{served:?}");
        assert_eq!(all(0), 50 - later, "the first calls of another's run");
    }
}

#[test]
fn a_run_beside_other_clusters_begins_with_as_many_calls_and_ends_with_all() {
    let simulation = groups(5);
    leave_tokens(&simulation, 5);
    let ports = simulation.ports();
    let launched = |ports: &SimPorts| {
        let (settings, cluster) = (serving(&["c", "other"]), ClusterName::new("c"));
        block_on(crate::handle(Adapters::all(ports), &settings, &cluster, &[])).unwrap().counted("launched")
    };
    assert_eq!(launched(&ports), 5, "at one moment, by the tokens that were there");
    let simulation = groups(7);
    leave_tokens(&simulation, 5);
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(100), SignedDuration::from_mins(1));
    let first = launched(&ports);
    assert!((5..=7).contains(&first), "{first}");
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(100), SignedDuration::from_mins(1));
    assert_eq!((first + launched(&ports), simulation.world().region.started()), (7, 7));
}

/// A future's output, and how often it was polled until then.
fn polled<T>(future: impl Future<Output = T>) -> (T, usize) {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = 0;
    loop {
        polls += 1;
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, polls);
        }
    }
}

#[test]
fn the_facts_of_a_run_take_no_longer_than_one_of_them() {
    let simulation = with_class();
    let ports = simulation.ports();
    let slow = || Faulty::scripted(&ports, [Some(Fault::SlowReply); 10]);
    let (one, all) = (slow(), slow());
    let adapters = Adapters { store: &all, cloud: &ports, cluster: &ports, queues: &ports, clock: &ports };
    let (facts, polls) = polled(crate::load(adapters, &Settings::default(), &ClusterName::new("c")));
    assert!(facts.is_ok_and(|facts| facts.is_some()));
    assert_eq!(polls, polled(RegionStore::catalog(&one)).1);
}
