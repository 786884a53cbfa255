//! Terminations that EC2 refuses.

use super::over_sim::{Refusing, Scene, serving};
use whittle_claims::{Bucket, BucketName, Claim, DeletionReason, Event, step};
use whittle_ec2::instance::InstanceState;
use whittle_ports::{CloudErrorKind, ClusterError, HandleError, Report};
use whittle_testkit::{after, at, deletion};

fn draining() -> Claim {
    after(&serving(), &[Event::DeletionRequested(deletion(DeletionReason::Underutilized, at(0)))], at(0))
}

/// A drained claim whose instance EC2 refuses to terminate.
fn refused(by: &Refusing) -> (Scene, Report) {
    let mut scene = Scene::of(&draining());
    scene.run();
    scene.set_time(6);
    let report = scene.run_without_ec2(by).unwrap();
    (scene, report)
}

#[test]
fn a_protected_instance_is_reported_and_retried() {
    let (scene, report) = refused(&Refusing(CloudErrorKind::Invalid, "OperationNotPermitted"));
    assert_eq!((report.counted("refused"), scene.state()), (1, InstanceState::Running));
    let events = scene.events("FailedTermination");
    assert!(events[0].contains("EC2 refuses") && events[0].contains("termination protection"), "{events:?}");
    let next_run = scene.simulation.world().queues.waiting().map(|message| message.visible_at).max();
    assert_eq!(next_run, Some(at(36)), "half a minute later, without failing");
    assert!(scene.is_held());
}

#[test]
fn every_refused_termination_is_reported() {
    for (kind, code, reason, words) in [
        (CloudErrorKind::Invalid, "OperationNotPermitted", "TerminationProtection", "termination protection"),
        (CloudErrorKind::Unauthorized, "UnauthorizedOperation", "Unauthorized", "no identity policy allows the call"),
        (CloudErrorKind::Unauthorized, "UnauthorizedOperation", "Unauthorized", "restore them"),
        (CloudErrorKind::Invalid, "SomethingNew", "Refused", "SomethingNew"),
    ] {
        let (scene, report) = refused(&Refusing(kind, code));
        let counted = report.metrics.iter().find(|metric| metric.metric == "whittle_terminations_refused_total").unwrap();
        assert_eq!((counted.labels["nodepool"].as_str(), counted.labels["reason"].as_str()), ("default", reason));
        let failed = report.metrics.iter().find(|metric| metric.metric.ends_with("instance_termination_failures_total")).unwrap();
        let machine = super::over_sim::own_machine();
        assert_eq!(failed.labels["zone"], machine.zone);
        assert_eq!(failed.labels["zone_id"], machine.labels[whittle_api::labels::ZONE_ID]);
        let events = scene.events("FailedTermination");
        assert!(events.iter().all(|message| message.contains("i-1") && message.contains(words)) && !events.is_empty(), "{events:?}");
    }
}

/// A missing permission to describe instances has nothing to do with their tags.
#[test]
fn a_refused_describe_names_the_call_and_not_the_tags() {
    let sent = step(&draining(), &Event::TerminationSent, at(0)).unwrap();
    let scene = Scene::of(&sent);
    let report = scene.run_without_ec2(&Refusing(CloudErrorKind::Unauthorized, "UnauthorizedOperation")).unwrap();
    assert!(report.metrics.iter().any(|metric| metric.metric == "whittle_terminations_refused_total"));
    assert!(report.metrics.iter().all(|metric| !metric.metric.ends_with("instance_termination_failures_total")), "nothing was terminated");
    let events = scene.events("FailedTermination");
    assert!(events[0].contains("DescribeInstances") && !events[0].contains("restore them"), "{events:?}");
    assert!(scene.is_held() && scene.claim().phase == sent.phase);
}

#[test]
fn transient_errors_are_not_reported() {
    for kind in [CloudErrorKind::Throttled, CloudErrorKind::Unknown] {
        let (scene, report) = refused(&Refusing(kind, "RequestLimitExceeded"));
        assert!(report.metrics.iter().all(|metric| metric.metric != "whittle_terminations_refused_total"), "{:?}", report.metrics);
        assert_eq!(scene.events("FailedTermination"), Vec::<String>::new());
    }
}

#[test]
fn an_api_server_that_blocks_a_drain_is_reported() {
    let (what, message) = (|| "Node n".to_owned(), || "no".to_owned());
    let failed = |error: &ClusterError| {
        let mut report = Report::default();
        crate::refused::report_cluster_error(&draining(), error, &mut report);
        report.metrics.iter().filter(|metric| metric.metric == "whittle_failed_runs").count()
    };
    for error in [
        ClusterError::NoAccess { cluster: "c".into(), message: message() },
        ClusterError::Invalid { what: what(), message: message() },
        ClusterError::Unavailable { cluster: "c".into(), what: what(), message: message() },
        ClusterError::Throttled { what: what() },
    ] {
        assert_eq!(failed(&error), 1, "{error}");
    }
    // Conflicts and blocking budgets are part of every drain.
    for error in [
        ClusterError::Conflict { what: what() },
        ClusterError::NotFound { what: what() },
        ClusterError::EvictionForbidden { what: what(), message: message() },
    ] {
        assert_eq!(failed(&error), 0, "{error}");
    }
}

#[test]
fn a_cluster_that_lets_nobody_in_is_asked_less_often_than_one_that_is_down() {
    let no_access = ClusterError::NoAccess { cluster: "c".into(), message: "401".to_owned() };
    let down = ClusterError::Unavailable { cluster: "c".into(), what: "Node n".to_owned(), message: "reset".to_owned() };
    let delays = [no_access, down].map(|error| crate::delay_after(&HandleError::Cluster(error)).as_secs());
    assert_eq!(delays, [30, 5]);
}

/// Instances that other runs terminate count against the same limit.
#[test]
fn a_termination_waits_while_other_clusters_use_up_the_accounts_limit() {
    let mut scene = Scene::of(&draining());
    scene.run();
    scene.set_time(6);
    let full = Bucket::full(1000, 20, at(6));
    assert!(scene.simulation.world().store.take_tokens(&BucketName("TerminateInstances".into()), &full, 1000, at(6)));
    let report = scene.run();
    assert_eq!((report.counted("termination_postponed"), report.counted("termination_sent")), (1, 0));
    assert_eq!((scene.state(), scene.claim().phase), (InstanceState::Running, draining().phase));
    assert!(scene.claim().look_again_at.is_some_and(|look| look <= at(11)), "the limit allows twenty a second");
    scene.set_time(11);
    assert_eq!(scene.run().counted("termination_sent"), 1);
}
