//! EC2's own checks of machines, and the events that it has scheduled for them.

use super::{Scene, change, registered, scene, to_end};
use whittle_claims::{DeletionReason, step};
use whittle_ec2::interruption::InstanceStatus;
use whittle_testkit::at;

/// A scene in which EC2 says this of a machine.
fn told(status: InstanceStatus) -> Scene {
    change(scene(registered()), |scene| scene.statuses.push(status))
}

/// The machine of the claim, whose system check has failed since then.
fn failed_since(second: i64) -> InstanceStatus {
    InstanceStatus { instance: "i-1".into(), system_impaired_since: Some(at(second)), ..InstanceStatus::default() }
}

fn scheduled() -> InstanceStatus {
    InstanceStatus { instance: "i-1".into(), has_scheduled_event: true, ..InstanceStatus::default() }
}

/// Why two sweeps, so many seconds apart, end claims.
fn ends(scene: &Scene, later: i64) -> (Vec<DeletionReason>, Vec<DeletionReason>) {
    let (first, second) = scene.twice(later);
    let reasons = |findings: &crate::compare::Findings| findings.end.iter().map(|end| end.reason).collect();
    (reasons(&first), reasons(&second))
}

#[test]
fn a_machine_whose_check_fails_for_two_minutes_is_given_up_when_two_sweeps_see_it() {
    let scene = told(failed_since(-20));
    assert_eq!(ends(&scene, 30), (vec![], vec![DeletionReason::Unhealthy]));
    let events: Vec<_> = scene.twice(30).1.events.into_iter().map(|event| (event.reason, event.kind)).collect();
    let about = |kind: &str| ("InstanceUnhealthy".to_owned(), kind.to_owned());
    assert_eq!(events, [about("NodeClaim"), about("Node")]);
}

#[test]
fn a_scheduled_event_replaces_the_machine_with_a_drain_and_a_failed_check_beside_it_without() {
    assert_eq!(ends(&told(scheduled()), 30), (vec![], vec![DeletionReason::ScheduledChange]));
    let both = InstanceStatus { has_scheduled_event: true, ..failed_since(-20) };
    assert_eq!(ends(&told(both), 30), (vec![], vec![DeletionReason::Unhealthy]));
}

#[test]
fn no_machine_ends_for_a_check_that_failed_just_now_that_one_sweep_saw_or_that_is_of_another_machine() {
    assert_eq!(ends(&told(failed_since(95)), 30), (vec![], vec![]), "two minutes have not passed");
    assert_eq!(ends(&told(failed_since(-20)), 29), (vec![], vec![]), "too soon for a second look");
    let (first, _) = told(failed_since(-20)).twice(30);
    let passed = scene(registered()).compare(&first.note, 130);
    assert!(passed.end.is_empty() && passed.forget == ["instance/i-1 system_status"], "it recovered: {:?}", passed.forget);
    let other = InstanceStatus { instance: "i-2".into(), ..failed_since(-20) };
    assert_eq!(ends(&told(other), 30), (vec![], vec![]));
    assert_eq!(ends(&told(InstanceStatus { instance: "i-1".into(), ..InstanceStatus::default() }), 30), (vec![], vec![]));
}

#[test]
fn a_claim_that_ends_anyway_is_hurried_by_a_failed_check_and_not_by_an_event() {
    let ending = step(&registered(), &to_end(), at(10)).unwrap();
    let told = |status| change(scene(ending.clone()), |scene| scene.statuses.push(status));
    assert_eq!(ends(&told(scheduled()), 30), (vec![], vec![]));
    assert_eq!(ends(&told(failed_since(-20)), 30), (vec![], vec![DeletionReason::Unhealthy]));
}
