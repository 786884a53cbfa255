use super::*;
use crate::fixtures::{at, default_spec, machine, planned};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::{ConditionStatus, GoDuration, NillableDuration, ObjectMeta, OwnerReference, labels};
use whittle_units::{InstanceId, SignedDuration, Timestamp};

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
fn launched() -> Event {
    Event::FleetAnswered(labelled("i-1"))
}
fn joined() -> Event {
    fixtures::joined("n")
}
fn deletion(reason: DeletionReason) -> Deletion {
    fixtures::deletion(reason, at(50))
}
fn deleted() -> Event {
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
fn a_claim_passes_through_all_phases() {
    check(&[begun()], "Launching");
    check(&[begun(), launched()], "Launched");
    check(&[begun(), launched(), joined()], "Registered");
    check(&[begun(), launched(), joined(), Event::NodeReady], "Initialized");
    check(&[begun(), launched(), joined(), Event::NodeReady, deleted()], "Draining");
    check(&[begun(), launched(), deleted(), Event::TerminationSent], "Terminating");
    check(&[begun(), launched(), deleted(), Event::TerminationSent, Event::MachineGone], "Gone");
    check(&[begun(), failed()], "Failed");
    check(&[failed()], "Failed");
}

#[test]
fn a_deleted_planned_claim_ends_at_once_and_a_launching_one_awaits_its_response() {
    check(&[deleted()], "Gone");
    check(&[begun(), deleted()], "Launching");
    check(&[begun(), deleted(), Event::LaunchAbandoned], "Gone");
    check(&[begun(), deleted(), launched()], "Draining");
}

#[test]
fn a_machine_of_a_late_response_is_drained() {
    check(&[begun(), deleted(), Event::LaunchAbandoned, launched()], "Draining");
    check(&[begun(), failed(), launched()], "Draining");
    let ended = [begun(), launched(), deleted(), Event::TerminationSent, Event::MachineGone];
    check(&[&ended[..], &[launched()]].concat(), "Gone");
    check(&[&ended[..], &[Event::FleetAnswered(labelled("i-2"))]].concat(), "Draining");
}

#[test]
fn a_second_machine_of_an_ended_claim_is_drained() {
    let due = || Event::DeletionRequested(Deletion { deadline: Some(at(5)), ..deletion(DeletionReason::SpotInterruption) });
    let notes = [conditions::DRAINED, conditions::VOLUMES_DETACHED, conditions::INSTANCE_TERMINATING];
    let mut ended = run(&[begun(), launched(), joined(), due(), Event::TerminationSent]).unwrap();
    for type_ in notes {
        ended.note(type_, ConditionStatus::True, type_, "", at(6));
    }
    (ended.node_missing_since, ended.instance_missing_since, ended.look_again_at) = (Some(at(6)), Some(at(6)), Some(at(7)));
    ended.drain_moved_at = Some(at(5));
    let gone = step(&ended, &Event::MachineGone, at(8)).unwrap();
    let next = step(&gone, &Event::FleetAnswered(labelled("i-2")), at(60)).unwrap();
    assert_eq!((next.phase.name(), next.instance().unwrap().as_str()), ("Draining", "i-2"));
    let deletion = next.deletion.unwrap();
    assert_eq!(
        (deletion.reason, deletion.at, deletion.deadline),
        (DeletionReason::RolledBack, at(60), None),
        "without the deadline of the first machine"
    );
    assert!(next.conditions.iter().all(|known| !notes.contains(&known.type_.as_str())));
    assert_eq!((next.node_missing_since, next.instance_missing_since, next.look_again_at), (None, None, None));
    assert_eq!(next.drain_moved_at, None, "the drain of this machine has not begun");
    // One that never had a machine keeps its own deletion.
    let late = run(&[begun(), due(), Event::LaunchAbandoned, launched()]).unwrap();
    assert_eq!(late.deletion.unwrap().deadline, Some(at(5)));
}

#[test]
fn a_claim_never_gets_a_second_machine_or_node() {
    check_refused(&[begun(), launched(), Event::FleetAnswered(labelled("i-2"))]);
    check_refused(&[begun(), launched(), deleted(), Event::FleetAnswered(labelled("i-2"))]);
    check_refused(&[begun(), launched(), joined(), Event::NodeJoined { node_name: "m".into() }]);
}

#[test]
fn a_deleted_claim_gets_no_machine() {
    check_refused(&[begun(), deleted(), begun()]);
    check_refused(&[deleted(), begun()]);
    check_refused(&[begun(), deleted(), Event::TokenReplaced { from: "t".into(), to: "u".into() }]);
}

#[test]
fn a_machine_is_terminated_only_after_draining() {
    check_refused(&[begun(), launched(), joined(), Event::TerminationSent]);
    check_refused(&[begun(), launched(), joined(), Event::MachineGone]);
    check_refused(&[begun(), Event::LaunchAbandoned]);
    check_refused(&[begun(), launched(), Event::NodeReady]);
    check_refused(&[joined()]);
}

#[test]
fn a_launch_is_repeated_only_with_its_own_token() {
    let again = run(&[begun(), begun()]).unwrap();
    assert_eq!(again.phase, Phase::Launching { client_token: "t".into(), since: at(0), attempts: 2 });
    check_refused(&[begun(), Event::LaunchBegun { client_token: "u".into() }]);
    let moved = run(&[begun(), Event::TokenReplaced { from: "t".into(), to: "u".into() }]).unwrap();
    assert!(matches!(moved.phase, Phase::Launching { ref client_token, .. } if client_token == "u"));
    check_refused(&[begun(), Event::TokenReplaced { from: "x".into(), to: "u".into() }]);
}

/// Whoever deletes it then waits for as long as a call of now may start machines.
#[test]
fn a_replaced_token_begins_its_launch_anew_and_keeps_the_attempts() {
    let replaced = || Event::TokenReplaced { from: "t".into(), to: "u".into() };
    let anew = Phase::Launching { client_token: "u".into(), since: at(20), attempts: 2 };
    assert_eq!(run(&[begun(), begun(), replaced()]).unwrap().phase, anew);
    assert_eq!(run(&[begun(), begun(), replaced(), replaced()]).unwrap().phase, anew, "once");
}

#[test]
fn a_node_that_joins_a_deleted_claim_is_drained() {
    let claim = run(&[begun(), launched(), deleted(), joined()]).unwrap();
    assert_eq!(claim.node_name(), Some("n"));
    assert_eq!(claim.phase.name(), "Draining");
}

#[test]
fn the_first_deletion_reason_and_the_earlier_deadline_are_kept() {
    let spot = Deletion { deadline: Some(at(180)), ..fixtures::deletion(DeletionReason::SpotInterruption, at(60)) };
    let late = Deletion { deadline: Some(at(900)), ..spot.clone() };
    let claim = run(&[begun(), launched(), deleted(), Event::DeletionRequested(spot), Event::DeletionRequested(late)]).unwrap();
    let deletion = claim.deletion.unwrap();
    assert_eq!((deletion.reason, deletion.deadline), (DeletionReason::Requested, Some(at(180))));
}

/// The second at which a claim is due after a user's request and a notice, in either order, and whether that is the notice's.
#[track_caller]
fn check_due(requested: Option<i64>, noticed: Option<i64>, expected: (i64, bool)) {
    let request = |reason, due: Option<i64>, deadline_is_notice| {
        Event::DeletionRequested(Deletion { deadline: due.map(at), deadline_is_notice, ..deletion(reason) })
    };
    let of_user = request(DeletionReason::Requested, requested, false);
    let of_notice = request(DeletionReason::SpotInterruption, noticed, noticed.is_some());
    for both in [[&of_user, &of_notice], [&of_notice, &of_user]] {
        let events = [&begun(), &launched(), both[0], both[1]].map(Clone::clone);
        let deletion = run(&events).unwrap().deletion.unwrap();
        assert_eq!((deletion.deadline, deletion.is_due_by_notice()), (Some(at(expected.0)), expected.1), "{both:?}");
    }
}

#[test]
fn a_deadline_is_that_of_a_notice_while_no_earlier_one_is_known() {
    check_due(None, Some(180), (180, true));
    check_due(Some(900), Some(180), (180, true));
    check_due(Some(181), Some(180), (180, true));
    check_due(Some(179), Some(180), (179, false));
    check_due(Some(50), Some(180), (50, false));
    check_due(Some(900), None, (900, false));
}

#[test]
fn a_deletion_is_read_by_earlier_releases_and_theirs_by_this_one() {
    /// What earlier releases store of a deletion.
    #[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    struct Earlier {
        reason: DeletionReason,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    }
    let of_spot = |due: i64| Earlier { reason: DeletionReason::SpotInterruption, at: at(10), deadline: Some(at(due)) };
    let notice = serde_json::to_value(claim().deletion_for(DeletionReason::SpotInterruption, "", at(10))).unwrap();
    assert_eq!(notice["deadline_is_notice"], true);
    assert_eq!(serde_json::from_value::<Earlier>(notice).unwrap(), of_spot(130));
    let requested = serde_json::to_value(deletion(DeletionReason::Requested)).unwrap();
    assert_eq!(requested.get("deadline_is_notice"), None, "most records have what they had");
    let read = |earlier: Earlier| serde_json::from_value::<Deletion>(serde_json::to_value(earlier).unwrap()).unwrap().is_due_by_notice();
    assert!(read(of_spot(130)));
    assert!(!read(of_spot(100)), "the user's grace period is shorter");
    assert!(!read(Earlier { deadline: None, ..of_spot(130) }));
    assert!(!read(Earlier { reason: DeletionReason::Requested, ..of_spot(130) }));
}

#[test]
fn conditions_start_as_unknown_and_follow_the_phases() {
    let new = claim();
    for type_ in [conditions::LAUNCHED, conditions::REGISTERED, conditions::INITIALIZED, conditions::READY] {
        let condition = conditions::find(&new.conditions, type_).unwrap();
        assert_eq!(condition.reason, "AwaitingReconciliation");
        assert_eq!((condition.status, condition.last_transition_time), (ConditionStatus::Unknown, Some(at(0))));
    }
    let after_launch = run(&[begun(), launched()]).unwrap();
    let ready = conditions::find(&after_launch.conditions, conditions::READY).unwrap();
    assert_eq!(ready.reason, "ReconcilingDependents");
    assert_eq!(ready.message, "Registered=Unknown, Initialized=Unknown");
    assert_eq!(ready.last_transition_time, Some(at(0)), "a new reason does not change the transition time");
    let registered = conditions::find(&after_launch.conditions, conditions::REGISTERED).unwrap();
    assert_eq!((registered.status, registered.reason.as_str()), (ConditionStatus::Unknown, "NodeNotFound"), "no run has to say so");
    assert_eq!(registered.last_transition_time, Some(at(0)), "the registration's timeout goes on");
    let full = run(&[begun(), launched(), joined(), Event::NodeReady]).unwrap();
    assert!(conditions::is_true(&full.conditions, conditions::READY));
}

#[test]
fn a_false_dependent_makes_ready_false_and_draining_does_not() {
    let mut claim = run(&[begun(), launched(), joined(), Event::NodeReady]).unwrap();
    claim.note(conditions::DRAINED, ConditionStatus::Unknown, "Draining", "", at(100));
    assert!(conditions::is_true(&claim.conditions, conditions::READY));
    claim.note(conditions::REGISTERED, ConditionStatus::False, "MultipleNodesFound", "", at(100));
    let ready = conditions::find(&claim.conditions, conditions::READY).unwrap();
    assert_eq!(
        (ready.status, ready.reason.as_str(), ready.message.as_str()),
        (ConditionStatus::False, "UnhealthyDependents", "Registered=False")
    );
    claim.note(conditions::INITIALIZED, ConditionStatus::Unknown, "NodeNotReady", "", at(100));
    assert_eq!(conditions::find(&claim.conditions, conditions::READY).unwrap().message, "Registered=False, Initialized=Unknown");
}

#[test]
fn a_new_reason_does_not_change_the_transition_time() {
    let mut claim = claim();
    let condition_after = |claim: &mut Claim, reason: &str, at| {
        claim.note(conditions::LAUNCHED, ConditionStatus::Unknown, reason, "", at);
        let shown = conditions::find(&claim.conditions, conditions::LAUNCHED).unwrap();
        (shown.reason.clone(), shown.last_transition_time)
    };
    let born = claim.created_at;
    assert_eq!(condition_after(&mut claim, "LaunchFailed", at(50)), ("LaunchFailed".to_owned(), Some(born)));
    claim.note(conditions::LAUNCHED, ConditionStatus::True, conditions::LAUNCHED, "", at(60));
    assert_eq!(condition_after(&mut claim, "Again", at(70)), ("Again".to_owned(), Some(at(70))), "another status does");
}

#[test]
fn annotations_of_the_launch_override_those_of_the_plan() {
    let mut claim = claim();
    claim.spec.annotations = [("both", "plan"), ("planned", "plan")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    claim.annotations = [("both", "launch")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let shown = mirror(&claim).metadata.annotations;
    assert_eq!((shown["both"].as_str(), shown["planned"].as_str()), ("launch", "plan"));
}

#[test]
fn a_long_launch_error_is_truncated() {
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
fn launches_and_registrations_time_out() {
    check_liveness(&[], 299, Liveness::Waiting(SignedDuration::from_secs(1)));
    check_liveness(&[begun()], 300, Liveness::Overdue(DeletionReason::LaunchTimeout));
    check_liveness(&[begun(), launched()], 899, Liveness::Waiting(SignedDuration::from_secs(1)));
    check_liveness(&[begun(), launched()], 900, Liveness::Overdue(DeletionReason::RegistrationTimeout));
    check_liveness(&[begun(), launched(), joined()], 90_000, Liveness::Settled);
    check_liveness(&[begun(), launched(), deleted()], 90_000, Liveness::Settled);
}

#[test]
fn a_registration_that_became_false_restarts_its_timeout() {
    let mut claim = run(&[begun(), launched()]).unwrap();
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
fn a_claim_that_stays_too_long_in_a_phase_is_stuck() {
    let sent = || Event::TerminationSent;
    check_stuck(&[], None, Some(300 + 600));
    check_stuck(&[begun()], None, Some(300 + 600));
    check_stuck(&[begun(), deleted()], None, Some(50 + 600));
    check_stuck(&[begun(), launched()], None, Some(900 + 600));
    check_stuck(&[begun(), launched(), joined()], None, Some(20 + 900 + 600));
    // In that phase since second 20 and 30.
    check_stuck(&[begun(), launched(), deleted()], None, Some(20 + 3_600));
    check_stuck(&[begun(), launched(), deleted()], Some(7_200), Some(7_200 + 600));
    check_stuck(&[begun(), launched(), deleted(), sent()], Some(40), Some(30 + 1_800));
    check_stuck(&[failed()], None, None);
    check_stuck(&[begun(), launched(), joined(), Event::NodeReady], None, None);
}

/// From which second on a launch, and a termination, is stalled; `None` for never.
#[track_caller]
fn check_stalled(claim: &Claim, launch: Option<i64>, termination: Option<i64>) {
    let first = |is_stalled: fn(&Claim, Timestamp) -> bool| (0..20_000).find(|second| is_stalled(claim, at(*second)));
    let found = (first(Claim::is_launch_stalled), first(Claim::is_termination_stalled));
    assert_eq!(found, (launch, termination), "{:?}", claim.phase);
}

#[test]
fn work_that_is_due_and_that_nobody_does_is_stalled() {
    let of = |events: &[Event]| run(events).unwrap();
    check_stalled(&of(&[]), Some(120), None);
    // The last event is of second 0, 10, 20 and so on; deletions are of second 50.
    check_stalled(&of(&[begun()]), Some(120), None);
    check_stalled(&of(&[begun(), launched()]), None, None);
    check_stalled(&of(&[begun(), launched(), joined(), Event::NodeReady]), None, None);
    check_stalled(&of(&[begun(), deleted()]), None, Some(50 + 300));
    check_stalled(&of(&[begun(), launched(), joined(), deleted()]), None, Some(50 + 300));
    check_stalled(&of(&[failed()]), None, None);
    // Whoever works on it has said when it is due again.
    let later = |mut claim: Claim, seconds| {
        claim.look_again_at = Some(at(seconds));
        claim
    };
    check_stalled(&later(of(&[begun()]), 400), Some(400 + 120), None);
    check_stalled(&later(of(&[begun(), launched(), deleted()]), 9_000), None, Some(9_000 + 300));
    // A drain of hours ends: the next step is due from then on, not since the deletion.
    let mut drained = of(&[begun(), launched(), deleted(), Event::TerminationSent]);
    if let Phase::Terminating { since, .. } = &mut drained.phase {
        *since = at(7_200);
    }
    check_stalled(&drained, None, Some(7_200 + 300));
}

/// The deadline of a deletion at second 10, which is a notice's if `by_notice`.
#[track_caller]
fn check_deadline(grace: Option<i64>, reason: DeletionReason, expected: Option<i64>, by_notice: bool) {
    let mut claim = claim();
    claim.spec.termination_grace_period = grace.map(GoDuration::from_secs);
    let deletion = claim.deletion_for(reason, "", at(10));
    assert_eq!((deletion.deadline, deletion.deadline_is_notice), (expected.map(at), by_notice), "{reason:?}");
}

#[test]
fn the_deadline_is_that_of_the_grace_period_or_the_spot_interruption() {
    check_deadline(None, DeletionReason::Requested, None, false);
    check_deadline(Some(300), DeletionReason::Drifted, Some(310), false);
    check_deadline(Some(120), DeletionReason::Drifted, Some(130), false);
    check_deadline(None, DeletionReason::SpotInterruption, Some(130), true);
    check_deadline(Some(60), DeletionReason::SpotInterruption, Some(70), false);
    check_deadline(Some(300), DeletionReason::SpotInterruption, Some(130), true);
    check_deadline(Some(300), DeletionReason::Unhealthy, Some(10), false);
    check_deadline(Some(0), DeletionReason::Requested, Some(10), false);
}

#[test]
fn expiry_counts_from_creation() {
    let mut claim = claim();
    assert_eq!(claim.expires_at(), None);
    claim.spec.expire_after = NillableDuration::from_secs(3600);
    assert_eq!(claim.expires_at(), Some(at(3600)));
}

#[test]
fn a_mirror_has_labels_of_plan_and_machine_and_the_plan_wins() {
    let mut claim = run(&[begun(), launched(), joined()]).unwrap();
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
fn the_mirror_of_an_ended_claim_has_no_finalizer() {
    let mut claim = run(&[begun(), launched()]).unwrap();
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
        Just(deleted()),
        Just(Event::TerminationSent),
        Just(Event::MachineGone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, rng_seed: RngSeed::Fixed(42), failure_persistence: None, ..ProptestConfig::default() })]

    /// Running machines are named by the claim, or their response was rejected (and so reported).
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
                prop_assert!(!(claim.deletion.is_some() && next.deletion.is_none()), "a deletion is never reverted");
                claim = next;
            }
            let named: BTreeSet<InstanceId> = claim.machine().map(|m| m.instance_id.clone()).into_iter().collect();
            prop_assert_eq!(&named, &running, "after {:?}", &events[..=n]);
        }
    }

    /// Delivering every event twice has the same result as delivering it once (except for attempts).
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
    fn a_deleted_claim_never_serves_again(events in prop::collection::vec(any_event(), 0..14)) {
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
fn a_machine_is_released_only_on_request_and_not_while_terminating() {
    check(&[begun(), launched(), Event::LetGo], "Gone");
    check(&[begun(), launched(), joined(), Event::LetGo], "Gone");
    check(&[begun(), launched(), joined(), deleted(), Event::LetGo], "Gone");
    check(&[begun(), launched(), Event::LetGo, Event::LetGo, launched()], "Gone");
    check_refused(&[Event::LetGo]);
    check_refused(&[begun(), Event::LetGo]);
    check_refused(&[begun(), launched(), deleted(), Event::TerminationSent, Event::LetGo]);
}

#[test]
fn a_machine_that_was_let_go_is_never_deleted_by_a_request_that_comes_later() {
    for before in [vec![begun(), launched()], vec![begun(), launched(), joined(), Event::NodeReady]] {
        let left = run(&[before, vec![Event::LetGo]].concat()).unwrap();
        assert_eq!((&left.deletion, left.ended_machine()), (&None, None), "it runs on");
        for late in [deleted(), failed(), joined(), Event::NodeReady, Event::TerminationSent, Event::MachineGone] {
            assert_eq!(step(&left, &late, at(1000)), Ok(left.clone()), "{late:?}");
        }
    }
}

#[test]
fn a_claim_that_has_ended_keeps_the_deletion_that_it_ended_with() {
    let gone = run(&[begun(), launched(), deleted(), Event::TerminationSent, Event::MachineGone]).unwrap();
    assert!(gone.ended_machine().is_some());
    for ended in [gone, run(&[begun(), failed()]).unwrap()] {
        let notice = Event::DeletionRequested(Deletion { deadline: Some(at(180)), ..deletion(DeletionReason::SpotInterruption) });
        assert_eq!(step(&ended, &notice, at(1000)), Ok(ended.clone()), "{}", ended.phase.name());
    }
}

#[test]
fn only_a_reserved_machine_becomes_on_demand_when_its_reservation_ends() {
    let own = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let reserved = Machine {
        capacity_type: labels::CAPACITY_RESERVED.into(),
        labels: own(&[(labels::CAPACITY_TYPE, labels::CAPACITY_RESERVED), (labels::RESERVATION_ID, "cr-1"), ("team", "a")]),
        ..machine("i-1")
    };
    // As it is adopted by the labels of its Node, after it has left.
    let adopted = Machine { capacity_type: labels::CAPACITY_ON_DEMAND.into(), ..reserved.clone() };
    for machine in [reserved, adopted] {
        let left = run(&[begun(), Event::FleetAnswered(machine), joined(), Event::ReservationLeft]).unwrap();
        let on_demand = left.machine().unwrap();
        assert_eq!(on_demand.capacity_type, labels::CAPACITY_ON_DEMAND);
        assert_eq!(on_demand.labels, own(&[(labels::CAPACITY_TYPE, labels::CAPACITY_ON_DEMAND), ("team", "a")]));
        assert!(!on_demand.is_reserved());
    }
    let spot = run(&[begun(), launched(), joined()]).unwrap();
    assert_eq!(step(&spot, &Event::ReservationLeft, at(1000)), Ok(spot.clone()), "a spot machine has none");
}

#[test]
fn only_a_partition_that_ec2_has_yet_to_report_is_set() {
    for (known, expected) in [(None, None), (Some(""), Some("7")), (Some("3"), Some("3"))] {
        let placed = known.map(|number: &str| (labels::PLACEMENT_GROUP_PARTITION.to_owned(), number.to_owned()));
        let machine = Machine { labels: placed.into_iter().collect(), ..machine("i-1") };
        let mut claim = run(&[begun(), Event::FleetAnswered(machine)]).unwrap();
        assert_eq!(claim.awaits_partition(), known == Some(""));
        claim.set_partition(7);
        let shown = claim.machine().unwrap().labels.get(labels::PLACEMENT_GROUP_PARTITION).map(String::as_str);
        assert_eq!(shown, expected);
        assert!(!claim.awaits_partition());
    }
}

#[test]
fn a_record_is_that_of_its_own_object_alone() {
    let class = |uid: &str, from: Option<&str>| {
        let mut metadata = ObjectMeta { uid: uid.to_owned(), ..ObjectMeta::named("default") };
        metadata.annotations.extend(from.map(|from| (labels::CONVERTED_FROM.to_owned(), from.to_owned())));
        Ec2NodeClass { metadata, ..Ec2NodeClass::default() }
    };
    let record = |class: Ec2NodeClass| {
        let record = serde_json::json!({"class": class, "subnets": [], "security_groups": [], "amis": [], "instance_profile": "", "hash": "",
            "problems": [], "resolved_at": "2026-01-05T09:00:00Z"});
        serde_json::from_value::<NodeClassRecord>(record).unwrap()
    };
    let (new, old) = (class("a", None), class("b", Some("AWSNodeTemplate")));
    let records = [record(old.clone())];
    assert_eq!(NodeClassRecord::referenced(&records, "default", false), None, "an AWSNodeTemplate is no EC2NodeClass");
    assert_eq!(NodeClassRecord::referenced(&records, "default", true), Some(&records[0]));
    let records = [record(old.clone()), record(new.clone())];
    assert_eq!(NodeClassRecord::referenced(&records, "default", false), Some(&records[1]));
    let (again, unknown) = (class("c", None), class("", None));
    for (object, of_it) in [(&new, true), (&again, false), (&old, false), (&unknown, true)] {
        assert_eq!(records[1].is_of(object), of_it, "{object:?}");
    }
    // A class that was deleted, or that cannot be read, is none that took its place.
    for (classes, replaced) in [(vec![], false), (vec![new.clone(), old.clone()], false), (vec![again, old], true)] {
        assert_eq!(records[1].is_replaced(&classes), replaced);
    }
}
