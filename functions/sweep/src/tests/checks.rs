//! EC2's status checks of instances, and the events that it has scheduled for them.

use super::over_sim::still;
use super::{Scene, change, deletion_requested, registered, scene};
use crate::compare::{Ending, Findings};
use crate::execute::Executor;
use crate::index::Index;
use futures::executor::block_on;
use whittle_api::ClusterObjects;
use whittle_claims::{DeletionReason, step};
use whittle_ec2::interruption::InstanceStatus;
use whittle_ports::{Adapters, ClaimStore, Report};
use whittle_testkit::at;
use whittle_units::ClusterName;

/// A scene in which EC2 reports this status.
fn with_status(status: InstanceStatus) -> Scene {
    change(scene(registered()), |scene| scene.statuses.push(status))
}

/// The machine of the claim, whose system check has failed since then.
fn failed_since(second: i64) -> InstanceStatus {
    InstanceStatus { instance: "i-1".into(), system_impaired_since: Some(at(second)), ..InstanceStatus::default() }
}

fn scheduled() -> InstanceStatus {
    InstanceStatus { instance: "i-1".into(), has_scheduled_event: true, ..InstanceStatus::default() }
}

/// The reasons for which two sweeps, `later` seconds apart, delete claims.
fn ends(scene: &Scene, later: i64) -> (Vec<DeletionReason>, Vec<DeletionReason>) {
    let (first, second) = scene.twice(later);
    let reasons = |findings: &crate::compare::Findings| findings.end.iter().map(|end| end.reason).collect();
    (reasons(&first), reasons(&second))
}

#[test]
fn a_status_check_failed_for_two_minutes_deletes_the_claim_at_the_second_sighting() {
    let scene = with_status(failed_since(-20));
    assert_eq!(ends(&scene, 30), (vec![], vec![DeletionReason::Unhealthy]));
    let events = scene.twice(30).1.events;
    let about: Vec<(&str, &str)> = events.iter().map(|event| (event.reason.as_str(), event.kind.as_str())).collect();
    let reasons = ["InstanceUnhealthy", "TerminatingOnInterruption"];
    assert_eq!(about, reasons.map(|reason| [(reason, "NodeClaim"), (reason, "Node")]).concat());
    let ends: Vec<&str> = events[2..].iter().map(|event| event.message.as_str()).collect();
    assert_eq!(ends, ["NodeClaim", "Node"].map(|kind| format!("Interruption triggered termination for the {kind}")));
    let end = scene.twice(30).1.end[0].clone();
    assert_eq!((end.check, end.message.as_str()), (Some("system_status"), "the system status check failed for i-1"), "as by `interrupt`");
    assert!(events[..2].iter().all(|event| event.message == end.message));
}

#[test]
fn a_scheduled_event_drains_the_machine_and_a_failed_check_does_not_wait() {
    assert_eq!(ends(&with_status(scheduled()), 30), (vec![], vec![DeletionReason::ScheduledChange]));
    assert_eq!(with_status(scheduled()).twice(30).1.end[0].message, "EC2 has scheduled an event for i-1");
    let both = InstanceStatus { has_scheduled_event: true, ..failed_since(-20) };
    assert_eq!(ends(&with_status(both), 30), (vec![], vec![DeletionReason::Unhealthy]));
}

#[test]
fn recent_unconfirmed_or_foreign_check_failures_delete_nothing() {
    assert_eq!(ends(&with_status(failed_since(95)), 30), (vec![], vec![]), "two minutes have not passed");
    assert_eq!(ends(&with_status(failed_since(-20)), 29), (vec![], vec![]), "too soon for a second sighting");
    let (first, _) = with_status(failed_since(-20)).twice(30);
    let passed = scene(registered()).compare(&first.note, 130);
    assert!(passed.end.is_empty() && passed.forget == ["instance/i-1 system_status"], "it recovered: {:?}", passed.forget);
    let other = InstanceStatus { instance: "i-2".into(), ..failed_since(-20) };
    assert_eq!(ends(&with_status(other), 30), (vec![], vec![]));
    assert_eq!(ends(&with_status(InstanceStatus { instance: "i-1".into(), ..InstanceStatus::default() }), 30), (vec![], vec![]));
}

#[test]
fn a_deleted_claim_is_expedited_by_a_failed_check_only() {
    let ending = step(&registered(), &deletion_requested(), at(10)).unwrap();
    let with_status = |status| change(scene(ending.clone()), |scene| scene.statuses.push(status));
    assert_eq!(ends(&with_status(scheduled()), 30), (vec![], vec![]));
    assert_eq!(ends(&with_status(failed_since(-20)), 30), (vec![], vec![DeletionReason::Unhealthy]));
}

/// The reasons for which the disruption of a claim is counted that ends for this reason, and for this check of EC2.
fn counted(reason: DeletionReason, check: Option<&'static str>) -> Vec<String> {
    let simulation = still();
    simulation.store(&registered());
    let (ports, cluster, objects) = (simulation.ports(), ClusterName::new("c"), ClusterObjects::default());
    let claims = [block_on(ports.get(&registered().key)).unwrap().unwrap()];
    let ending = Ending { check, ..Ending::new(&claims[0].value, reason, "") };
    let index = Index::of(&claims, &[], &objects, &[]);
    let adapters = Adapters::all(&ports);
    let executor = Executor { ports: adapters, cluster: &cluster, index: &index, sightings: &[], failure: None };
    let mut report = Report::default();
    block_on(executor.run(Findings { end: vec![ending], ..Findings::default() }, &mut report)).unwrap();
    let disrupted = report.metrics.iter().filter(|metric| metric.metric == "karpenter_nodeclaims_disrupted_total");
    disrupted.map(|metric| metric.labels["reason"].clone()).collect()
}

#[test]
fn a_claim_that_a_check_ends_is_counted_by_the_check_and_others_by_their_reason() {
    for (reason, check, expected) in [
        (DeletionReason::Unhealthy, Some("system_status"), "system_status"),
        (DeletionReason::Unhealthy, Some("instance_status"), "instance_status"),
        (DeletionReason::ScheduledChange, Some("event_status"), "event_status"),
        (DeletionReason::Unhealthy, None, "unhealthy"),
        (DeletionReason::Expired, None, "expired"),
    ] {
        assert_eq!(counted(reason, check), [expected]);
    }
    assert_eq!(counted(DeletionReason::Requested, None), [""; 0], "users know what they delete");
}
