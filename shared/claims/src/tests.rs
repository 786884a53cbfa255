use super::*;
use crate::fixtures::{at, default_spec, machine, planned};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeSet;
use whittle_api::conditions;
use whittle_api::{ConditionStatus, GoDuration, NillableDuration, OwnerReference, labels};
use whittle_units::{InstanceId, SignedDuration};

fn claim() -> Claim {
    planned("default-a1", default_spec())
}

fn labelled(id: &str) -> Machine {
    let labels = [("a".to_owned(), "machine".to_owned()), ("b".to_owned(), "machine".to_owned())].into();
    Machine { labels, launched_at: at(5), ..machine(id) }
}

fn begun() -> Event {
    fixtures::begun("t")
}
fn answered() -> Event {
    Event::FleetAnswered(labelled("i-1"))
}
fn joined() -> Event {
    fixtures::joined("n")
}
fn deletion(reason: DeletionReason) -> Deletion {
    Deletion { reason, at: at(50), deadline: None, message: String::new() }
}
fn asked() -> Event {
    Event::DeletionRequested(deletion(DeletionReason::Requested))
}
fn failed() -> Event {
    Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: "none left".into() }
}

fn run(events: &[Event]) -> Result<Claim, IllegalStep> {
    events.iter().enumerate().try_fold(claim(), |claim, (n, event)| step(&claim, event, at(10 * i64::try_from(n).unwrap())))
}

#[track_caller]
fn check(events: &[Event], phase: &str) {
    assert_eq!(run(events).unwrap().phase.name(), phase);
}

#[track_caller]
fn check_refused(events: &[Event]) {
    let (last, before) = events.split_last().unwrap();
    let claim = run(before).unwrap();
    assert!(step(&claim, last, at(1000)).is_err(), "{last:?} in {}", claim.phase.name());
}

#[test]
fn a_claim_goes_its_way() {
    check(&[begun()], "Launching");
    check(&[begun(), answered()], "Launched");
    check(&[begun(), answered(), joined()], "Registered");
    check(&[begun(), answered(), joined(), Event::NodeReady], "Initialized");
    check(&[begun(), answered(), joined(), Event::NodeReady, asked()], "Draining");
    check(&[begun(), answered(), asked(), Event::TerminationSent], "Terminating");
    check(&[begun(), answered(), asked(), Event::TerminationSent, Event::MachineGone], "Gone");
    check(&[begun(), failed()], "Failed");
    check(&[failed()], "Failed");
}

#[test]
fn a_planned_claim_ends_at_once_and_one_being_launched_waits_for_its_answer() {
    check(&[asked()], "Gone");
    check(&[begun(), asked()], "Launching");
    check(&[begun(), asked(), Event::LaunchAbandoned], "Gone");
    check(&[begun(), asked(), answered()], "Draining");
}

#[test]
fn a_late_answer_names_a_running_machine_and_is_drained() {
    check(&[begun(), asked(), Event::LaunchAbandoned, answered()], "Draining");
    check(&[begun(), failed(), answered()], "Draining");
    let ended = [begun(), answered(), asked(), Event::TerminationSent, Event::MachineGone];
    check(&[&ended[..], &[answered()]].concat(), "Gone");
    check(&[&ended[..], &[Event::FleetAnswered(labelled("i-2"))]].concat(), "Draining");
}

#[test]
fn a_second_machine_is_drained_as_if_it_were_the_first() {
    let due = || Event::DeletionRequested(Deletion { deadline: Some(at(5)), ..deletion(DeletionReason::SpotInterruption) });
    let notes = [conditions::DRAINED, conditions::VOLUMES_DETACHED, conditions::INSTANCE_TERMINATING];
    let mut ended = run(&[begun(), answered(), joined(), due(), Event::TerminationSent]).unwrap();
    for type_ in notes {
        ended.note(type_, ConditionStatus::True, type_, "", at(6));
    }
    (ended.node_missing_since, ended.instance_missing_since, ended.look_again_at) = (Some(at(6)), Some(at(6)), Some(at(7)));
    let gone = step(&ended, &Event::MachineGone, at(8)).unwrap();
    let next = step(&gone, &Event::FleetAnswered(labelled("i-2")), at(60)).unwrap();
    assert_eq!((next.phase.name(), next.instance().unwrap().as_str()), ("Draining", "i-2"));
    let asked = next.deletion.unwrap();
    assert_eq!((asked.reason, asked.at, asked.deadline), (DeletionReason::RolledBack, at(60), None), "not by the first one's deadline");
    assert!(next.conditions.iter().all(|known| !notes.contains(&known.type_.as_str())));
    assert_eq!((next.node_missing_since, next.instance_missing_since, next.look_again_at), (None, None, None));
    // One that never had a machine ends as it was asked to.
    let late = run(&[begun(), due(), Event::LaunchAbandoned, answered()]).unwrap();
    assert_eq!(late.deletion.unwrap().deadline, Some(at(5)));
}

#[test]
fn a_claim_never_names_a_second_machine_nor_a_second_node() {
    check_refused(&[begun(), answered(), Event::FleetAnswered(labelled("i-2"))]);
    check_refused(&[begun(), answered(), asked(), Event::FleetAnswered(labelled("i-2"))]);
    check_refused(&[begun(), answered(), joined(), Event::NodeJoined { node_name: "m".into() }]);
}

#[test]
fn what_is_to_end_gets_no_machine() {
    check_refused(&[begun(), asked(), begun()]);
    check_refused(&[asked(), begun()]);
    check_refused(&[begun(), asked(), Event::TokenReplaced { from: "t".into(), to: "u".into() }]);
}

#[test]
fn a_machine_ends_only_after_draining() {
    check_refused(&[begun(), answered(), joined(), Event::TerminationSent]);
    check_refused(&[begun(), answered(), joined(), Event::MachineGone]);
    check_refused(&[begun(), Event::LaunchAbandoned]);
    check_refused(&[begun(), answered(), Event::NodeReady]);
    check_refused(&[joined()]);
}

#[test]
fn a_launch_is_repeated_only_under_its_own_token() {
    let again = run(&[begun(), begun()]).unwrap();
    assert_eq!(again.phase, Phase::Launching { client_token: "t".into(), since: at(0), attempts: 2 });
    check_refused(&[begun(), Event::LaunchBegun { client_token: "u".into() }]);
    let moved = run(&[begun(), Event::TokenReplaced { from: "t".into(), to: "u".into() }]).unwrap();
    assert!(matches!(moved.phase, Phase::Launching { ref client_token, .. } if client_token == "u"));
    check_refused(&[begun(), Event::TokenReplaced { from: "x".into(), to: "u".into() }]);
}

#[test]
fn a_node_that_joins_while_its_claim_ends_is_drained_too() {
    let claim = run(&[begun(), answered(), asked(), joined()]).unwrap();
    assert_eq!(claim.node_name(), Some("n"));
    assert_eq!(claim.phase.name(), "Draining");
}

#[test]
fn the_first_reason_of_an_end_stays_and_the_earlier_deadline_holds() {
    let spot = Deletion { reason: DeletionReason::SpotInterruption, at: at(60), deadline: Some(at(180)), message: String::new() };
    let late = Deletion { deadline: Some(at(900)), ..spot.clone() };
    let claim = run(&[begun(), answered(), asked(), Event::DeletionRequested(spot), Event::DeletionRequested(late)]).unwrap();
    let deletion = claim.deletion.unwrap();
    assert_eq!((deletion.reason, deletion.deadline), (DeletionReason::Requested, Some(at(180))));
}

#[test]
fn conditions_start_unknown_since_creation_and_follow_the_phases() {
    let new = claim();
    for type_ in [conditions::LAUNCHED, conditions::REGISTERED, conditions::INITIALIZED, conditions::READY] {
        let condition = conditions::find(&new.conditions, type_).unwrap();
        assert_eq!(condition.reason, "AwaitingReconciliation");
        assert_eq!((condition.status, condition.last_transition_time), (ConditionStatus::Unknown, Some(at(0))));
    }
    let launched = run(&[begun(), answered()]).unwrap();
    let ready = conditions::find(&launched.conditions, conditions::READY).unwrap();
    assert_eq!(ready.reason, "ReconcilingDependents");
    assert_eq!(ready.message, "Registered=Unknown, Initialized=Unknown");
    assert_eq!(ready.last_transition_time, Some(at(0)), "a new reason does not move the transition time");
    let full = run(&[begun(), answered(), joined(), Event::NodeReady]).unwrap();
    assert!(conditions::is_true(&full.conditions, conditions::READY));
}

#[test]
fn a_false_dependent_makes_ready_false_and_draining_does_not() {
    let mut claim = run(&[begun(), answered(), joined(), Event::NodeReady]).unwrap();
    claim.note(conditions::DRAINED, ConditionStatus::Unknown, "Draining", "", at(100));
    assert!(conditions::is_true(&claim.conditions, conditions::READY));
    claim.note(conditions::REGISTERED, ConditionStatus::False, "MultipleNodesFound", "", at(100));
    let ready = conditions::find(&claim.conditions, conditions::READY).unwrap();
    assert_eq!(
        (ready.status, ready.reason.as_str(), ready.message.as_str()),
        (ConditionStatus::False, "UnhealthyDependents", "Registered=False")
    );
}

#[test]
fn another_reason_does_not_move_the_time_of_a_condition() {
    let mut claim = claim();
    let said = |claim: &mut Claim, reason: &str, at| {
        claim.note(conditions::LAUNCHED, ConditionStatus::Unknown, reason, "", at);
        let shown = conditions::find(&claim.conditions, conditions::LAUNCHED).unwrap();
        (shown.reason.clone(), shown.last_transition_time)
    };
    let born = claim.created_at;
    assert_eq!(said(&mut claim, "LaunchFailed", at(50)), ("LaunchFailed".to_owned(), Some(born)));
    claim.note(conditions::LAUNCHED, ConditionStatus::True, conditions::LAUNCHED, "", at(60));
    assert_eq!(said(&mut claim, "Again", at(70)), ("Again".to_owned(), Some(at(70))), "another status does");
}

#[test]
fn annotations_of_the_launch_go_over_those_of_the_plan() {
    let mut claim = claim();
    claim.spec.annotations = [("both", "plan"), ("planned", "plan")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    claim.annotations = [("both", "launch")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let shown = mirror(&claim).metadata.annotations;
    assert_eq!((shown["both"].as_str(), shown["planned"].as_str()), ("launch", "plan"));
}

#[test]
fn a_long_launch_error_is_cut() {
    let error = Event::LaunchErred { reason: "LaunchFailed".into(), message: "x".repeat(400) };
    let claim = run(&[begun(), error]).unwrap();
    let launched = conditions::find(&claim.conditions, conditions::LAUNCHED).unwrap();
    assert_eq!((launched.status, launched.message.len()), (ConditionStatus::Unknown, 303));
    assert!(launched.message.ends_with("..."));
    assert_eq!(claim.phase.name(), "Launching");
}

#[track_caller]
fn check_liveness(events: &[Event], now: i64, expected: Liveness) {
    assert_eq!(run(events).unwrap().liveness(at(now)), expected);
}

#[test]
fn launches_and_registrations_have_their_time() {
    check_liveness(&[], 299, Liveness::Waiting(SignedDuration::from_secs(1)));
    check_liveness(&[begun()], 300, Liveness::Overdue(DeletionReason::LaunchTimeout));
    check_liveness(&[begun(), answered()], 899, Liveness::Waiting(SignedDuration::from_secs(1)));
    check_liveness(&[begun(), answered()], 900, Liveness::Overdue(DeletionReason::RegistrationTimeout));
    check_liveness(&[begun(), answered(), joined()], 90_000, Liveness::Settled);
    check_liveness(&[begun(), answered(), asked()], 90_000, Liveness::Settled);
}

#[test]
fn a_registration_that_turned_false_restarts_its_clock() {
    let mut claim = run(&[begun(), answered()]).unwrap();
    claim.note(conditions::REGISTERED, ConditionStatus::False, "MultipleNodesFound", "", at(600));
    assert_eq!(claim.liveness(at(1499)), Liveness::Waiting(SignedDuration::from_secs(1)));
    assert_eq!(claim.liveness(at(1500)), Liveness::Overdue(DeletionReason::RegistrationTimeout));
}

#[track_caller]
fn check_stuck(events: &[Event], deadline: Option<i64>, from: Option<i64>) {
    let mut claim = run(events).unwrap();
    if let Some(deletion) = &mut claim.deletion {
        deletion.deadline = deadline.map(at);
    }
    match from {
        Some(from) => assert_eq!((claim.is_stuck(at(from - 1)), claim.is_stuck(at(from))), (false, true), "{:?}", claim.phase),
        None => assert!(!claim.is_stuck(at(90_000)), "{:?}", claim.phase),
    }
}

#[test]
fn no_claim_stands_for_ever_in_a_phase_that_should_end() {
    let sent = || Event::TerminationSent;
    check_stuck(&[], None, Some(300 + 600));
    check_stuck(&[begun()], None, Some(300 + 600));
    check_stuck(&[begun(), asked()], None, Some(50 + 600));
    check_stuck(&[begun(), answered()], None, Some(900 + 600));
    check_stuck(&[begun(), answered(), joined()], None, Some(20 + 900 + 600));
    // In that phase since second 20 and 30.
    check_stuck(&[begun(), answered(), asked()], None, Some(20 + 3_600));
    check_stuck(&[begun(), answered(), asked()], Some(7_200), Some(7_200 + 600));
    check_stuck(&[begun(), answered(), asked(), sent()], Some(40), Some(30 + 1_800));
    check_stuck(&[failed()], None, None);
    check_stuck(&[begun(), answered(), joined(), Event::NodeReady], None, None);
}

#[track_caller]
fn check_deadline(grace: Option<i64>, reason: DeletionReason, expected: Option<i64>) {
    let mut claim = claim();
    claim.spec.termination_grace_period = grace.map(GoDuration::from_secs);
    assert_eq!(claim.deletion_for(reason, "", at(10)).deadline, expected.map(at), "{reason:?}");
}

#[test]
fn a_deadline_comes_from_the_grace_period_or_from_the_loss_of_the_machine() {
    check_deadline(None, DeletionReason::Requested, None);
    check_deadline(Some(300), DeletionReason::Drifted, Some(310));
    check_deadline(None, DeletionReason::SpotInterruption, Some(130));
    check_deadline(Some(60), DeletionReason::SpotInterruption, Some(70));
    check_deadline(Some(300), DeletionReason::SpotInterruption, Some(130));
    check_deadline(Some(300), DeletionReason::Unhealthy, Some(10));
    check_deadline(Some(0), DeletionReason::Requested, Some(10));
}

#[test]
fn expiry_counts_from_creation() {
    let mut claim = claim();
    assert_eq!(claim.expires_at(), None);
    claim.spec.expire_after = NillableDuration::from_secs(3600);
    assert_eq!(claim.expires_at(), Some(at(3600)));
}

#[test]
fn a_mirror_shows_plan_and_machine_and_the_plan_wins() {
    let mut claim = run(&[begun(), answered(), joined()]).unwrap();
    claim.spec.labels = [("a".to_owned(), "plan".to_owned())].into();
    claim.spec.owner = OwnerReference { kind: "NodePool".into(), name: "default".into(), uid: "u".into(), ..OwnerReference::default() };
    let mirror = mirror(&claim);
    assert_eq!(mirror.metadata.label("a"), Some("plan"));
    assert_eq!(mirror.metadata.label("b"), Some("machine"));
    assert_eq!(mirror.metadata.label(labels::NODE_POOL), Some("default"));
    assert_eq!(mirror.metadata.label(labels::PROVISIONER_NAME), None);
    assert_eq!(mirror.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    assert_eq!(mirror.metadata.owner_references[0].block_owner_deletion, Some(true));
    assert_eq!(mirror.status.provider_id, "aws:///z/i-1");
    assert_eq!(mirror.status.node_name, "n");
}

#[test]
fn nodes_of_a_provisioner_carry_both_labels() {
    let mut claim = claim();
    claim.spec.owner = OwnerReference { kind: "Provisioner".into(), name: "old".into(), ..OwnerReference::default() };
    claim.spec.node_pool = "old".into();
    let labels = labels_of(&claim);
    assert_eq!(labels[labels::NODE_POOL], "old");
    assert_eq!(labels[labels::PROVISIONER_NAME], "old");
}

#[test]
fn the_mirror_of_a_claim_that_ended_can_go_and_one_that_ends_shows_its_deadline() {
    let mut claim = run(&[begun(), answered()]).unwrap();
    claim.spec.termination_grace_period = Some(GoDuration::from_secs(60));
    let deletion = claim.deletion_for(DeletionReason::Requested, "", at(100));
    let draining = step(&claim, &Event::DeletionRequested(deletion), at(100)).unwrap();
    let shown = mirror(&draining);
    assert_eq!(shown.metadata.deletion_timestamp, Some(at(100)));
    assert_eq!(shown.metadata.annotation(labels::TERMINATION_TIMESTAMP), Some("2027-01-15T08:02:40Z"));
    let gone = step(&draining, &Event::MachineGone, at(200)).unwrap();
    assert!(mirror(&gone).metadata.finalizers.is_empty());
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        prop_oneof![Just("t"), Just("u")].prop_map(|t| Event::LaunchBegun { client_token: t.to_owned() }),
        Just(Event::TokenReplaced { from: "t".to_owned(), to: "u".to_owned() }),
        prop_oneof![Just("i-1"), Just("i-2")].prop_map(|id| Event::FleetAnswered(machine(id))),
        Just(failed()),
        Just(Event::LaunchErred { reason: "LaunchFailed".to_owned(), message: String::new() }),
        Just(Event::LaunchAbandoned),
        prop_oneof![Just("n"), Just("m")].prop_map(|n| Event::NodeJoined { node_name: n.to_owned() }),
        Just(Event::NodeReady),
        Just(asked()),
        Just(Event::TerminationSent),
        Just(Event::MachineGone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, rng_seed: RngSeed::Fixed(42), failure_persistence: None, ..ProptestConfig::default() })]

    /// Machines that EC2 named and did not end are named by the claim, or their answer was refused (and so reported).
    #[test]
    fn no_sequence_of_events_forgets_a_running_machine(events in prop::collection::vec(any_event(), 0..14)) {
        let mut claim = claim();
        let mut running: BTreeSet<InstanceId> = BTreeSet::new();
        for (n, event) in events.iter().enumerate() {
            let before = claim.machine().cloned();
            if let Ok(next) = step(&claim, event, at(i64::try_from(n).unwrap())) {
                match event {
                    Event::FleetAnswered(machine) if next.machine().is_some() => { running.insert(machine.instance_id.clone()); }
                    Event::MachineGone if next.machine().is_none() => { before.map(|m| running.remove(&m.instance_id)); }
                    _ => {}
                }
                prop_assert!(!(claim.deletion.is_some() && next.deletion.is_none()), "a deletion is never taken back");
                claim = next;
            }
            let named: BTreeSet<InstanceId> = claim.machine().map(|m| m.instance_id.clone()).into_iter().collect();
            prop_assert_eq!(&named, &running, "after {:?}", &events[..=n]);
        }
    }

    /// Delivering every event twice ends where delivering it once does (attempts aside).
    #[test]
    fn repeated_events_are_harmless(events in prop::collection::vec(any_event(), 0..14)) {
        let (mut once, mut twice) = (claim(), claim());
        for (n, event) in events.iter().enumerate() {
            let now = at(i64::try_from(n).unwrap());
            once = step(&once, event, now).unwrap_or(once);
            twice = step(&twice, event, now).unwrap_or(twice);
            twice = step(&twice, event, now).unwrap_or(twice);
            for claim in [&mut once, &mut twice] {
                if let Phase::Launching { attempts, .. } = &mut claim.phase { *attempts = 0; }
            }
            prop_assert_eq!(&once, &twice);
        }
    }

    /// A claim in a phase with a deletion never goes back to a phase without.
    #[test]
    fn an_ending_claim_never_serves_again(events in prop::collection::vec(any_event(), 0..14)) {
        let mut claim = claim();
        for (n, event) in events.iter().enumerate() {
            let was_ending = claim.is_ending();
            claim = step(&claim, event, at(i64::try_from(n).unwrap())).unwrap_or(claim);
            prop_assert!(!was_ending || claim.is_ending());
            if claim.is_ending() {
                let serves = matches!(claim.phase, Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. });
                prop_assert!(!serves, "{}", claim.phase.name());
            }
        }
    }
}

#[test]
fn a_machine_is_let_go_by_the_users_word_alone_and_not_once_it_ends() {
    check(&[begun(), answered(), Event::LetGo], "Gone");
    check(&[begun(), answered(), joined(), Event::LetGo], "Gone");
    check(&[begun(), answered(), joined(), asked(), Event::LetGo], "Gone");
    check(&[begun(), answered(), Event::LetGo, Event::LetGo, answered()], "Gone");
    check_refused(&[Event::LetGo]);
    check_refused(&[begun(), Event::LetGo]);
    check_refused(&[begun(), answered(), asked(), Event::TerminationSent, Event::LetGo]);
}
