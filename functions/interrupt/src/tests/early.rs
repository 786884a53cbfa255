//! A notice that is tried again: it arrives before the response of the launch, or while the cluster does not answer.

use super::contended::{Busy, SUBJECT, key, serving};
use futures::executor::block_on;
use futures::future::join_all;
use std::sync::atomic::Ordering;
use whittle_claims::{Claim, ClaimSpec, DeletionReason, Event, Function, step};
use whittle_ports::{Adapters, ClaimStore, Clock, ClusterError, Disposition, HandleError, Measured, Once, Report, Scope, Settings};
use whittle_sim::SimPorts;
use whittle_testkit::{InterceptedApiServer, Interceptor, TestWorld, after, at, begun};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

fn planned() -> Claim {
    Claim::planned(key(), "uid".into(), ClaimSpec::default(), at(-10))
}

fn launching() -> Claim {
    after(&planned(), &[begun("t")], at(-5))
}

fn holding(claim: &Claim) -> TestWorld {
    let simulation = TestWorld::still(at(0));
    simulation.store(claim);
    simulation
}

fn notice(ports: &SimPorts, sent_at: Timestamp) -> Result<Report, HandleError> {
    let adapters = Adapters { store: ports, cloud: &(), cluster: ports, queues: ports, clock: ports };
    let settings = Settings { clusters: vec![key().cluster], ..Settings::default() };
    block_on(crate::handle(adapters, &settings, &Once::default(), &SUBJECT.spot_interruption(sent_at)))
}

#[test]
fn a_notice_during_the_launch_reaches_the_claim_when_redelivered() {
    let mut simulation = holding(&launching());
    let ports = simulation.ports();
    let sent_at = ports.now();
    assert_eq!(notice(&ports, sent_at).unwrap_err().disposition(), Disposition::RetryLater);
    let known = serving().machine().unwrap().clone();
    block_on(async {
        let read = ports.get(&key()).await.unwrap().unwrap();
        let launched = step(&read.value, &Event::FleetAnswered(known), at(1)).unwrap();
        ports.update(&launched, read.revision).await.unwrap();
    });
    simulation.run_for(SignedDuration::from_secs(60));
    let report = notice(&ports, sent_at).unwrap();
    assert_eq!(report.counted("ended"), 1);
    assert_eq!(report.metrics.iter().filter(|metric| metric.metric == "karpenter_interruption_deleted_messages_total").count(), 1);
    let of_delay = |value: &&Measured| value.metric == "karpenter_interruption_message_queue_duration_seconds";
    let waited = report.observations.iter().find(of_delay).unwrap();
    assert_eq!(waited.amount, whittle_ports::Amount::Time(SignedDuration::from_secs(60)), "since EC2 sent it");
    let deletion = simulation.claim(&key()).deletion.unwrap();
    assert_eq!((deletion.reason, deletion.deadline), (DeletionReason::SpotInterruption, Some(at(120))), "it counts from when it was sent");
}

#[test]
fn the_last_delivery_of_a_notice_comes_when_it_is_no_longer_too_early() {
    let again = (1..).map_while(|failures| Function::Interrupt.invoked_again(failures)).map(|wait| wait.as_secs());
    assert!(again.sum::<i64>() > crate::REDELIVER_FOR.as_secs(), "a notice of a foreign machine would be a dead letter");
}

#[test]
fn a_notice_of_a_foreign_machine_is_dropped() {
    for (claim, age) in [(launching(), 90), (planned(), 0), (serving(), 0)] {
        let serves = claim.machine().is_some();
        let mut claim = claim;
        if let whittle_claims::Phase::Registered { machine, .. } = &mut claim.phase {
            machine.instance_id = "i-2".into();
        }
        let simulation = holding(&claim);
        let ports = simulation.ports();
        let report = notice(&ports, at(-age)).unwrap();
        assert_eq!((report.counted("unknown_instances"), report.counted("ended")), (1, 0), "{serves}");
        assert_eq!(simulation.claim(&key()), claim);
        assert_eq!(simulation.doorbells(), []);
    }
    let simulation = holding(&launching());
    assert!(notice(&simulation.ports(), at(0)).is_err());
    assert_eq!(simulation.claim(&key()), launching(), "a waiting claim is not deleted for a machine that may not be its own");
}

#[test]
fn a_foreign_machine_that_ends_has_no_claim_read() {
    let simulation = holding(&launching());
    let ports = simulation.ports();
    let store = Busy::new(ports.clone(), 0, Claim::clone);
    let adapters = Adapters { store: &store, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let settings = Settings { clusters: vec![key().cluster], ..Settings::default() };
    for state in ["shutting-down", "terminated"] {
        let report = block_on(crate::handle(adapters, &settings, &Once::default(), &SUBJECT.state_change(state, ports.now()))).unwrap();
        assert_eq!(report.counted("unknown_instances"), 1, "{state}");
    }
    assert_eq!(store.listings.load(Ordering::Relaxed), 0);
    assert_eq!(simulation.claim(&key()), launching());
}

#[test]
fn the_messages_of_one_invocation_read_the_claims_of_a_cluster_once() {
    for (claim, waits) in [(planned(), false), (launching(), true)] {
        let simulation = holding(&claim);
        let ports = simulation.ports();
        let store = Busy::new(ports.clone(), 0, Claim::clone);
        let adapters = Adapters { store: &store, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
        let settings = Settings { clusters: vec![key().cluster], ..Settings::default() };
        let (of_invocation, body) = (Once::default(), SUBJECT.state_change("stopped", ports.now()));
        let outcomes = block_on(join_all((0..10).map(|_| crate::handle(adapters, &settings, &of_invocation, &body))));
        assert!(outcomes.iter().all(|outcome| outcome.is_err() == waits), "{outcomes:?}");
        assert_eq!(store.listings.load(Ordering::Relaxed), 1, "one read for ten messages");
        let again = block_on(crate::handle(adapters, &settings, &Once::default(), &body));
        assert_eq!((again.is_err(), store.listings.load(Ordering::Relaxed)), (waits, 2), "the next invocation reads anew");
    }
}

/// Nobody has the instance when the notice arrives, and nobody launches when that is looked at.
#[test]
fn a_notice_is_not_lost_when_its_launch_is_answered_meanwhile() {
    let simulation = holding(&launching());
    let ports = simulation.ports();
    let store = Busy::answering(ports.clone());
    let adapters = Adapters { store: &store, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let settings = Settings { clusters: vec![key().cluster], ..Settings::default() };
    let report = block_on(crate::handle(adapters, &settings, &Once::default(), &SUBJECT.spot_interruption(at(0)))).unwrap();
    assert_eq!((report.counted("ended"), report.counted("unknown_instances")), (1, 0));
    assert_eq!(simulation.claim(&key()).deletion.unwrap().reason, DeletionReason::SpotInterruption);
    assert_eq!(store.listings.load(Ordering::Relaxed), 1);
}

/// Its last cluster is asked too, and none of them for claims that have a machine.
#[test]
fn a_notice_waits_for_a_launch_of_any_cluster() {
    for (claim, waits) in [(serving(), false), (launching(), true)] {
        let mut claim = claim;
        if let whittle_claims::Phase::Registered { machine, .. } = &mut claim.phase {
            machine.instance_id = "i-2".into();
        }
        let simulation = holding(&claim);
        let ports = simulation.ports();
        let adapters = Adapters { store: &ports, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
        let others = (0..40).map(|number| ClusterName::new(format!("other-{number}")));
        let settings = Settings { clusters: others.chain([key().cluster]).collect(), ..Settings::default() };
        let outcome = block_on(crate::handle(adapters, &settings, &Once::default(), &SUBJECT.spot_interruption(at(0))));
        assert_eq!(matches!(outcome, Err(HandleError::NotYet { .. })), waits, "{outcome:?}");
        assert_eq!(block_on(ports.without_instance(&key().cluster)).unwrap().len(), usize::from(waits));
    }
}

/// Whether a notice of this age is done with while the table does not answer.
fn is_deleted_in_outage(body: &str) -> bool {
    let simulation = holding(&serving());
    let ports = simulation.ports();
    let store = Busy::down(ports.clone());
    let adapters = Adapters { store: &store, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let settings = Settings { clusters: vec![key().cluster], ..Settings::default() };
    let outcome = block_on(crate::handle(adapters, &settings, &Once::default(), body));
    assert_eq!(simulation.claim(&key()), serving());
    match outcome {
        Ok(report) => report.counted("left_to_others") == 1,
        Err(error) => {
            assert_eq!(error.disposition(), Disposition::RetryLater);
            false
        }
    }
}

#[test]
fn what_others_tell_as_well_is_no_dead_letter_of_an_outage_of_the_table() {
    for (age, is_deleted) in [(0, false), (89, false), (90, true), (3600, true)] {
        for state in ["shutting-down", "terminated"] {
            assert_eq!(is_deleted_in_outage(&SUBJECT.state_change(state, at(-age))), is_deleted, "{state} after {age} s");
        }
        assert_eq!(is_deleted_in_outage(&SUBJECT.rebalance(at(-age))), is_deleted, "after {age} s");
    }
}

#[test]
fn what_only_a_notice_tells_is_never_dropped_in_an_outage_of_the_table() {
    for age in [0, 90, 3600] {
        assert!(!is_deleted_in_outage(&SUBJECT.spot_interruption(at(-age))), "after {age} s");
        assert!(!is_deleted_in_outage(&SUBJECT.state_change("stopped", at(-age))), "after {age} s");
    }
}

/// An API server that does not answer.
struct Silent;

impl Interceptor for Silent {
    async fn read(&self, cluster: &ClusterName, _: Scope) -> Result<(), ClusterError> {
        let (what, message) = ("NodePools".to_owned(), "it timed out".to_owned());
        Err(ClusterError::Unavailable { cluster: cluster.clone(), what, message })
    }
}

#[test]
fn a_recommendation_for_a_cluster_that_does_not_answer_is_dropped_before_it_is_given_up() {
    for (age, is_dropped) in [(0, false), (89, false), (90, true)] {
        let simulation = holding(&serving());
        let ports = simulation.ports();
        let silent = InterceptedApiServer { ports: &ports, interceptor: Silent };
        let settings = Settings { clusters: vec![key().cluster], act_on_rebalance: true, ..Settings::default() };
        let outcome = block_on(crate::handle(silent.adapters(), &settings, &Once::default(), &SUBJECT.rebalance(at(-age))));
        assert_eq!(outcome.is_ok_and(|report| report.counted("left_to_others") == 1), is_dropped, "after {age} s");
        assert_eq!(simulation.claim(&key()).deletion, None);
    }
}
