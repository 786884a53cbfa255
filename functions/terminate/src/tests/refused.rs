//! Terminations that EC2 refuses.

use super::over_sim::{Refusing, Scene, ending, own_machine, planned, serving};
use super::{NODE, pod};
use crate::LastPlanned;
use futures::executor::block_on;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::karpenter::NodeClaim;
use whittle_api::labels;
use whittle_claims::{Bucket, BucketName, Claim, DecisionKind, Deletion, DeletionReason, Event, Phase, step};
use whittle_ec2::instance::{InstanceState, StateReason};
use whittle_ports::{CloudErrorKind, ClusterError, HandleError, NodePatch, RegionStore, Report, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, NodePolicy, after, at, deletion, joined};

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
    let delays = [no_access, down].map(|error| crate::delay_after(&HandleError::Cluster(error), &draining(), at(900)).as_secs());
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

/// The claim of a machine that joined and never registered, deleted at second 0.
fn unregistered() -> Claim {
    let deleted = Event::DeletionRequested(deletion(DeletionReason::RegistrationTimeout, at(0)));
    after(&planned(), &[Event::FleetAnswered(own_machine()), deleted, joined(NODE)], at(0))
}

/// Whether the machine of a Node that may not be changed is ended; `change` makes the Node another one than one that never registered.
fn ends_unchanged(claim: &Claim, change: fn(&mut Node)) -> bool {
    let scene = Scene::of(claim);
    scene.simulation.change::<Node>(NODE, |node| {
        node.metadata.finalizers.clear();
        node.spec.taints = vec![Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute)];
        change(node);
    });
    let ports = scene.simulation.ports();
    let guarded = InterceptedApiServer { ports: &ports, interceptor: NodePolicy };
    let report = block_on(crate::handle(guarded.adapters(), &Settings::default(), &LastPlanned::default(), &claim.key)).unwrap();
    assert_eq!(report.counted("termination_sent") + report.counted("left_for_later"), 1);
    scene.state() != InstanceState::Running
}

#[test]
fn a_node_that_never_registered_holds_no_machine_though_its_changes_are_refused() {
    assert!(ends_unchanged(&unregistered(), |_| {}));
    let registered = |node: &mut Node| drop(node.metadata.labels.insert(labels::REGISTERED.into(), "true".into()));
    assert!(!ends_unchanged(&unregistered(), registered), "pods run there");
    assert!(!ends_unchanged(&unregistered(), |node| node.spec.taints.clear()), "pods may run there");
    assert!(!ends_unchanged(&draining(), |_| {}), "the Node was read before it registered");
}

/// A machine whose deadline is after a minute, and whose Node has no finalizer of ours.
fn ending_in_a_minute() -> Scene {
    let scene = Scene::of(&ending(Some(at(60))));
    scene.simulation.change::<Node>(NODE, |node| node.metadata.finalizers.clear());
    scene
}

/// A run beside a policy that refuses changes of Nodes.
fn run_refused(scene: &Scene) -> Report {
    let ports = scene.simulation.ports();
    let guarded = InterceptedApiServer { ports: &ports, interceptor: NodePolicy };
    block_on(crate::handle(guarded.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap()
}

#[test]
fn a_node_whose_changes_are_refused_says_so_and_holds_no_machine_past_its_deadline() {
    let mut scene = ending_in_a_minute();
    let report = run_refused(&scene);
    assert_eq!((report.counted("left_for_later"), scene.state()), (1, InstanceState::Running), "its pods would come back");
    let events = scene.events("FailedDraining");
    assert!(events.len() == 2 && events.iter().all(|text| text.contains("denied the request")), "on Node and NodeClaim: {events:?}");
    scene.set_time(61);
    assert_eq!(run_refused(&scene).counted("left_for_later"), 0);
    scene.set_time(67);
    let report = run_refused(&scene);
    assert_eq!((report.counted("termination_sent"), scene.state() == InstanceState::Running), (1, false));
    assert!(report.metrics.iter().any(|one| one.metric == "whittle_failed_runs"), "the policy is still in the way");
}

/// A DaemonSet whose pods do not tolerate the taint has the next one there when the last is gone, as a ReplicaSet may.
#[test]
fn pods_that_come_back_to_a_node_that_cannot_be_closed_hold_no_machine_past_its_deadline() {
    let mut scene = ending_in_a_minute();
    scene.create(pod("old"));
    let report = run_refused(&scene);
    assert_eq!((report.counted("forced"), scene.state()), (0, InstanceState::Running), "it has until the deadline");
    scene.set_time(61);
    let report = run_refused(&scene);
    assert_eq!((report.counted("forced"), report.counted("termination_sent")), (1, 0), "it is waited for");
    scene.set_time(64);
    scene.create(pod("next"));
    scene.set_time(67);
    let report = run_refused(&scene);
    assert_eq!((report.counted("forced"), report.counted("termination_sent")), (1, 1));
    assert_ne!(scene.state(), InstanceState::Running);
}

/// A policy that keeps finalizers alone.
struct KeepsFinalizers;

impl Interceptor for KeepsFinalizers {
    fn patch_node(&self, name: &str, _: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        if patch.remove_finalizer.is_some() { Err(NodePolicy::refusal(name)) } else { Ok(()) }
    }
}

/// It would be counted as being disrupted, and against its pool's budgets, for ever.
#[test]
fn a_claim_ends_with_its_machine_though_its_node_is_not_let_go() {
    let sent = step(&draining(), &Event::TerminationSent, at(0)).unwrap();
    let mut scene = Scene::of(&sent);
    let run = |scene: &Scene| {
        let ports = scene.simulation.ports();
        let guarded = InterceptedApiServer { ports: &ports, interceptor: KeepsFinalizers };
        block_on(crate::handle(guarded.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap()
    };
    for state in [InstanceState::Running, InstanceState::ShuttingDown] {
        scene.set_state(state);
        run(&scene);
        assert!(matches!(scene.claim().phase, Phase::Terminating { .. }), "{state:?}: its machine is there");
        assert!(scene.events("FailedReleasing").is_empty() && scene.get::<NodeClaim>("default-1").is_some());
    }
    scene.set_state(InstanceState::Terminated);
    scene.set_time(10);
    let report = run(&scene);
    assert_eq!((report.counted("terminated"), report.counted("node_kept")), (1, 1));
    assert!(matches!(scene.claim().phase, Phase::Gone { .. }), "{:?}", scene.claim().phase);
    assert!(report.metrics.iter().any(|one| one.metric == "whittle_failed_runs"), "the policy is still in the way");
    let events = scene.events("FailedReleasing");
    assert!(events.len() == 1 && events[0].contains("i-1") && events[0].contains("denied the request"), "{events:?}");
    assert!(scene.is_held(), "`sweep` lets the Node go once it may");
    assert!(scene.get::<NodeClaim>("default-1").is_none(), "its NodeClaim goes with its machine");
}

/// A webhook that does not answer for the removal of a Node's finalizer.
struct FailsFinalizers;

impl Interceptor for FailsFinalizers {
    fn patch_node(&self, name: &str, _: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        if patch.remove_finalizer.is_none() {
            return Ok(());
        }
        let (what, message) = (format!("Node {name}"), "failed calling webhook \"policy.example.com\"".to_owned());
        Err(ClusterError::Unavailable { cluster: "c".into(), what, message })
    }
}

#[test]
fn a_claim_waits_for_a_webhook_that_fails_until_its_deadline_or_for_five_minutes() {
    for (deadline, waits_at, ends_at) in [(None, 299, 300), (Some(at(60)), 60, 61), (Some(at(3600)), 299, 300)] {
        let due = Deletion { deadline, ..deletion(DeletionReason::Underutilized, at(0)) };
        let claim = after(&serving(), &[Event::DeletionRequested(due), Event::TerminationSent], at(0));
        let mut scene = Scene::of(&claim);
        scene.set_state(InstanceState::Terminated);
        let run = |scene: &Scene| {
            let ports = scene.simulation.ports();
            let guarded = InterceptedApiServer { ports: &ports, interceptor: FailsFinalizers };
            block_on(crate::handle(guarded.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap()
        };
        scene.set_time(waits_at);
        let report = run(&scene);
        assert_eq!((report.counted("left_for_later"), report.counted("node_kept")), (1, 0), "{deadline:?}: it may pass");
        assert!(matches!(scene.claim().phase, Phase::Terminating { .. }), "{deadline:?}");
        scene.set_time(ends_at);
        let report = run(&scene);
        assert_eq!((report.counted("terminated"), report.counted("node_kept")), (1, 1), "{deadline:?}");
        assert!(matches!(scene.claim().phase, Phase::Gone { .. }) && scene.is_held(), "{deadline:?}: `sweep` lets the Node go");
        let events = scene.events("FailedReleasing");
        assert!(events.len() == 1 && events[0].contains("failed calling webhook"), "{events:?}");
    }
}

/// A policy that keeps NodeClaims.
struct KeepsNodeClaims;

impl Interceptor for KeepsNodeClaims {
    fn release_mirror(&self, name: &str) -> Result<(), ClusterError> {
        let message = "admission webhook \"policy.example.com\" denied the request".to_owned();
        Err(ClusterError::Invalid { what: format!("NodeClaim {name}"), message })
    }
}

#[test]
fn a_policy_that_keeps_the_node_claim_of_an_ended_claim_is_asked_less_and_less_often() {
    let sent = step(&draining(), &Event::TerminationSent, at(0)).unwrap();
    let mut scene = Scene::of(&sent);
    scene.set_state(InstanceState::Terminated);
    let next_run = |scene: &Scene| {
        let ports = scene.simulation.ports();
        let guarded = InterceptedApiServer { ports: &ports, interceptor: KeepsNodeClaims };
        block_on(crate::handle(guarded.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
        assert!(scene.get::<NodeClaim>("default-1").is_some());
        scene.claim().look_again_at
    };
    for (time, next) in [(10, 15), (15, 20), (40, 70), (100, 160), (4000, 4060)] {
        scene.set_time(time);
        assert_eq!(next_run(&scene), Some(at(next)), "at second {time}");
        assert!(matches!(scene.claim().phase, Phase::Gone { .. }));
    }
    let events = scene.events("FailedReleasing");
    assert!(events[0].contains("denied the request") && events[0].contains("finalizer"), "{events:?}");
    scene.set_time(4060);
    scene.run();
    assert!(scene.get::<NodeClaim>("default-1").is_none(), "once the policy lets it go");
}

/// What EC2 says of an instance that has ended, of a claim whose Node never joined or did.
fn ended(code: &str, joined: bool) -> (Scene, Report) {
    let launched = Event::FleetAnswered(super::over_sim::own_machine());
    let deleted = Event::DeletionRequested(deletion(DeletionReason::InstanceGone, at(0)));
    let claim = if joined { draining() } else { after(&super::over_sim::planned(), &[launched, deleted], at(0)) };
    let scene = Scene::of(&step(&claim, &Event::TerminationSent, at(0)).unwrap());
    scene.set_state(InstanceState::Terminated);
    let message = format!("{code}: words of EC2");
    let reason = StateReason { code: code.to_owned(), message };
    let id = super::over_sim::own_machine().instance_id;
    scene.simulation.world().region.machines.get_mut(&id).unwrap().instance.state_reason = Some(reason);
    let report = scene.run();
    assert_eq!(report.counted("terminated"), 1);
    (scene, report)
}

#[test]
fn an_instance_that_ec2_ends_at_its_launch_is_reported_with_a_remedy() {
    let (scene, report) = ended("Client.VolumeLimitExceeded", false);
    let counted = report.metrics.iter().find(|metric| metric.metric == "whittle_launches_refused_total").unwrap();
    assert_eq!((counted.labels["nodepool"].as_str(), counted.labels["reason"].as_str()), ("default", "LaunchFailed"));
    let events = scene.events("LaunchRefused");
    assert!(events[0].contains("i-1") && events[0].contains("Service Quotas") && events[0].contains("words of EC2"), "{events:?}");
    let kinds: Vec<String> = scene.simulation.world().cluster.events.iter().map(|kept| kept.event.kind.clone()).collect();
    assert_eq!(kinds, ["NodePool"]);
    assert_eq!(decided(&report), "instance i-1 has terminated: Client.VolumeLimitExceeded: words of EC2");
}

#[test]
fn what_was_asked_for_or_passes_or_ends_a_node_later_needs_nobody() {
    for (code, joined, decision) in [
        ("Client.UserInitiatedShutdown", false, "instance i-1 has terminated"),
        ("Server.InternalError", false, "instance i-1 has terminated: Server.InternalError: words of EC2"),
        ("Client.InstanceInitiatedShutdown", true, "instance i-1 has terminated: Client.InstanceInitiatedShutdown: words of EC2"),
    ] {
        let (scene, report) = ended(code, joined);
        assert_eq!(scene.events("LaunchRefused"), Vec::<String>::new(), "{code}");
        assert!(report.metrics.iter().all(|metric| metric.metric != "whittle_launches_refused_total"), "{code}");
        assert_eq!(decided(&report), decision);
    }
}

/// `launch` was told that it runs, so that nobody else learns of it.
#[test]
fn an_instance_that_ec2_ends_for_lack_of_capacity_is_a_stock_out() {
    for (code, expected) in [("Server.InsufficientInstanceCapacity", &["spot m5.large in z"][..]), ("Server.InternalError", &[][..])] {
        let (scene, _) = ended(code, false);
        let known = block_on(scene.simulation.ports().stock_outs(at(0))).unwrap();
        assert_eq!(known.iter().map(|out| out.offering.to_string()).collect::<Vec<_>>(), expected, "{code}");
        assert!(known.iter().all(|out| out.until == at(180)));
    }
}

/// The decision that ends a claim.
fn decided(report: &Report) -> &str {
    let mut ends = report.decisions.iter().filter(|decision| decision.kind == DecisionKind::Terminated);
    ends.next().map_or("", |decision| decision.message.as_str())
}
