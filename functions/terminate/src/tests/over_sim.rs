//! The whole handler over the memory adapters: what a draining claim does, and what it never does.

use super::{NODE, attachment, critical, grace, pod, protected, with};
use crate::LastPlanned;
use futures::executor::block_on;
use std::ops::Deref;
use whittle_api::conditions::{self, DRAINED, INSTANCE_TERMINATING, READY, VOLUMES_DETACHED};
use whittle_api::k8s::{IntOrString, Node, Pod, PodDisruptionBudget, Taint, TaintEffect, VolumeAttachment};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{Condition, ConditionStatus, LabelSelector, ObjectMeta, labels};
use whittle_claims::{Bucket, BucketName, Claim, ClaimKey, Deletion, DeletionReason, Event, Machine, Phase, mirror, step};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{
    Adapters, Amount, ClaimStore, Clock, CloudError, CloudErrorKind, HandleError, Instances, Report, Settings, Terminator,
};
use whittle_sim::SimPorts;
use whittle_testkit::{TestWorld, after, at, default_spec, deletion, instance_of, joined, key, machine};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

pub(super) fn own_machine() -> Machine {
    Machine { launched_at: at(-3600), labels: [(whittle_api::labels::ZONE_ID.to_owned(), "z-id".to_owned())].into(), ..machine("i-1") }
}

pub(crate) fn planned() -> Claim {
    Claim::planned(key("default-1"), "uid".into(), default_spec(), at(-3600))
}

pub(crate) fn serving() -> Claim {
    after(&planned(), &[Event::FleetAnswered(own_machine()), joined(NODE)], at(-3600))
}

/// The serving claim, deleted at second 0.
pub(super) fn ending(deadline: Option<Timestamp>) -> Claim {
    let deletion = Deletion { deadline, ..deletion(DeletionReason::Underutilized, at(0)) };
    step(&serving(), &Event::DeletionRequested(deletion), at(0)).unwrap()
}

fn node() -> Node {
    let mut node = Node { metadata: ObjectMeta::named(NODE), ..Node::default() };
    node.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
    node.spec.provider_id = own_machine().provider_id.as_str().into();
    node.status.conditions = vec![Condition { type_: READY.into(), status: ConditionStatus::True, ..Condition::default() }];
    node
}

pub(super) struct Scene {
    pub(super) simulation: TestWorld,
}

impl Deref for Scene {
    type Target = TestWorld;
    fn deref(&self) -> &TestWorld {
        &self.simulation
    }
}

impl Scene {
    /// A world at second 0 with a claim, its mirror, its Node and its machine, in which only the test acts.
    pub(super) fn of(claim: &Claim) -> Self {
        Self::in_world(TestWorld::still(at(0)), claim)
    }

    /// The same in this world.
    pub(super) fn in_world(simulation: TestWorld, claim: &Claim) -> Self {
        simulation.store(claim);
        simulation.create(node());
        simulation.create(mirror(claim));
        simulation.start_machine(Instance { private_dns_name: NODE.into(), ..instance_of(&own_machine()) });
        Self { simulation }
    }

    pub(super) fn run(&self) -> Report {
        Self::run_over(&self.simulation.ports())
    }

    pub(super) fn run_over(ports: &SimPorts) -> Report {
        let adapters = Adapters::all(ports);
        block_on(crate::handle(adapters, &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap()
    }

    pub(super) fn run_without_ec2(&self, ec2: &Refusing) -> Result<Report, HandleError> {
        let ports = self.simulation.ports();
        let adapters = Adapters { store: &ports, cloud: ec2, cluster: &ports, queues: &ports, clock: &ports };
        block_on(crate::handle(adapters, &Settings::default(), &LastPlanned::default(), &planned().key))
    }

    pub(super) fn claim(&self) -> Claim {
        self.simulation.claim(&planned().key)
    }

    fn condition(&self, type_: &str) -> Option<(ConditionStatus, String)> {
        conditions::find(&self.claim().conditions, type_).map(|found| (found.status, found.reason.clone()))
    }

    pub(super) fn set_time(&mut self, seconds: i64) {
        self.simulation.run_until(at(seconds));
    }

    pub(super) fn state(&self) -> InstanceState {
        self.simulation.world().region.machines[&own_machine().instance_id].instance.state
    }

    pub(super) fn set_state(&self, state: InstanceState) {
        self.simulation.world().region.machines.get_mut(&own_machine().instance_id).unwrap().instance.state = state;
    }

    pub(super) fn events(&self, reason: &str) -> Vec<String> {
        let world = self.simulation.world();
        world.cluster.events.iter().filter(|kept| kept.event.reason == reason).map(|kept| kept.event.message.clone()).collect()
    }

    pub(super) fn is_held(&self) -> bool {
        self.get::<Node>(NODE).is_some_and(|node| node.metadata.finalizers.iter().any(|held| held == labels::TERMINATION_FINALIZER))
    }
}

pub(super) fn running(name: &str) -> Pod {
    with(pod(name), |pod| {
        pod.metadata.labels.insert("app".into(), "web".into());
    })
}

pub(super) fn budget() -> PodDisruptionBudget {
    let mut budget = PodDisruptionBudget { metadata: ObjectMeta::namespaced("default", "web"), ..PodDisruptionBudget::default() };
    budget.spec.selector = Some(LabelSelector { match_labels: [("app".to_owned(), "web".to_owned())].into(), ..LabelSelector::default() });
    budget.spec.max_unavailable = Some(IntOrString::Int(0));
    budget
}

#[test]
fn an_empty_node_is_terminated_after_five_seconds_and_released_after_its_instance() {
    let mut scene = Scene::of(&ending(None));
    scene.run();
    let node = scene.get::<Node>(NODE).unwrap();
    assert!(node.metadata.is_deleting());
    assert_eq!(node.metadata.label(labels::EXCLUDE_BALANCERS), Some("karpenter"));
    assert_eq!(node.spec.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["karpenter.sh/disrupted:NoSchedule"]);
    assert_eq!(scene.condition(DRAINED), Some((ConditionStatus::Unknown, "Draining".into())));
    scene.set_time(4);
    assert_eq!(scene.run().counted("termination_sent"), 0, "a pod may have been bound just before the taint was seen");
    assert_eq!(scene.state(), InstanceState::Running);
    scene.set_time(5);
    let report = scene.run();
    assert_eq!((report.counted("drained"), report.counted("termination_sent")), (1, 1));
    assert_eq!(scene.condition(VOLUMES_DETACHED).unwrap().0, ConditionStatus::True);
    scene.set_state(InstanceState::ShuttingDown);
    assert_eq!(scene.run().counted("terminated"), 0);
    assert!(scene.is_held() && scene.get::<NodeClaim>("default-1").is_some(), "both stay until the instance has terminated");
    assert_eq!(scene.condition(INSTANCE_TERMINATING).unwrap().0, ConditionStatus::True);
    scene.set_state(InstanceState::Terminated);
    scene.set_time(20);
    let report = scene.run();
    assert_eq!(report.counted("terminated"), 1);
    let counted: Vec<(&str, u64)> = report.metrics.iter().map(|metric| (metric.metric, metric.by)).collect();
    assert_eq!(counted, [("karpenter_nodes_terminated_total", 1), ("karpenter_nodeclaims_terminated_total", 1)]);
    let emit_duration: Vec<(&str, Amount)> = report.gauges.iter().map(|gauge| (gauge.metric, gauge.amount)).collect();
    let seconds = |seconds| Amount::Time(SignedDuration::from_secs(seconds));
    // Deleted at second 0, requested from EC2 at second 5; the Node is as old as this world.
    let expected = [
        ("karpenter_nodes_termination_duration_seconds", seconds(20)),
        ("karpenter_nodes_lifetime_duration_seconds", seconds(20)),
        ("karpenter_nodeclaims_termination_duration_seconds", seconds(20)),
        ("karpenter_nodeclaims_instance_termination_duration_seconds", seconds(15)),
    ];
    assert_eq!(emit_duration, expected);
    assert_eq!((scene.get::<Node>(NODE), scene.get::<NodeClaim>("default-1")), (None, None));
    assert_eq!(scene.claim().phase.name(), "Gone");
    assert_eq!(scene.run(), Report::default(), "a repeated doorbell does nothing");
}

#[test]
fn the_nodeclaim_of_a_node_that_a_user_deletes_is_deleted_with_it() {
    let scene = Scene::of(&serving());
    scene.change::<Node>(NODE, |node| node.metadata.deletion_timestamp = Some(at(0)));
    let ports = scene.simulation.ports();
    let read = block_on(ports.get(&planned().key)).unwrap().unwrap();
    block_on(ports.update(&ending(None), read.revision)).unwrap();
    let is_deleting = || scene.get::<NodeClaim>("default-1").unwrap().metadata.is_deleting();
    assert!(!is_deleting());
    scene.run();
    assert!(is_deleting() && scene.is_held(), "and both stay while the machine runs");
}

#[test]
fn a_claim_that_is_not_deleted_is_never_touched() {
    let scene = Scene::of(&serving());
    assert_eq!(scene.run(), Report::default());
    assert_eq!((scene.claim(), scene.state()), (serving(), InstanceState::Running));
    assert!(scene.get::<Node>(NODE).unwrap().spec.taints.is_empty());
}

#[test]
fn a_claim_without_a_machine_only_releases_its_object() {
    let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: String::new() };
    let scene = Scene::of(&step(&planned(), &failed, at(0)).unwrap());
    scene.change::<NodeClaim>("default-1", |shown| shown.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()]);
    scene.run();
    assert_eq!(scene.get::<NodeClaim>("default-1"), None);
    assert_eq!(scene.state(), InstanceState::Running, "the machine belongs to another claim");
    assert!(!scene.get::<Node>(NODE).unwrap().metadata.is_deleting(), "and so does the Node");
}

/// The table was restored to a time before the machine: the claim does not know it, the NodeClaim names it.
#[test]
fn a_nodeclaim_is_never_released_before_the_machine_that_it_names_has_terminated() {
    let is_released = |state: InstanceState| {
        let deletion = deletion(DeletionReason::Requested, at(0));
        let gone = step(&planned(), &Event::DeletionRequested(deletion), at(0)).unwrap();
        let scene = Scene::of(&gone);
        scene.change::<NodeClaim>("default-1", |shown| {
            shown.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
            shown.status.provider_id = own_machine().provider_id.as_str().into();
        });
        scene.set_state(state);
        scene.run();
        scene.get::<NodeClaim>("default-1").is_none()
    };
    assert!(!is_released(InstanceState::Running), "sweep restores its claim");
    assert!(!is_released(InstanceState::ShuttingDown));
    assert!(is_released(InstanceState::Terminated));
}

#[test]
fn a_taint_of_the_same_key_and_another_effect_is_replaced() {
    let scene = Scene::of(&ending(None));
    scene.change::<Node>(NODE, |node| node.spec.taints = vec![Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoExecute)]);
    scene.run();
    let taints: Vec<String> = scene.get::<Node>(NODE).unwrap().spec.taints.iter().map(ToString::to_string).collect();
    assert_eq!(taints, ["karpenter.sh/disrupted:NoSchedule"]);
}

#[test]
fn a_blocking_budget_keeps_pod_and_node_and_is_reported() {
    let mut scene = Scene::of(&ending(None));
    scene.create(budget());
    scene.create(running("web-0"));
    for seconds in [0, 60, 3600] {
        scene.set_time(seconds);
        let report = scene.run();
        assert_eq!((report.counted("evicted"), report.counted("forced"), report.counted("held_by_budget")), (0, 0, 1));
        assert!(!scene.get::<Pod>("default/web-0").unwrap().metadata.is_deleting());
    }
    assert_eq!(scene.state(), InstanceState::Running);
    assert!(scene.events("FailedDraining").iter().any(|text| text.contains("default/web-0")), "{:?}", scene.events("FailedDraining"));
}

#[test]
fn a_pod_that_its_owner_keeps_is_named_unless_a_budget_holds_another() {
    let scene = Scene::of(&ending(None));
    scene.create(protected(pod("job-0"), labels::DO_NOT_DISRUPT, "true"));
    assert_eq!(scene.run().counted("evicted"), 0);
    let events = scene.events("FailedDraining");
    assert!(events.len() == 1 && events[0].contains(labels::DO_NOT_DISRUPT) && events[0].ends_with(": default/job-0"), "{events:?}");
    scene.create(budget());
    scene.create(running("web-0"));
    scene.run();
    assert!(scene.events("FailedDraining")[1].contains("default/web-0"), "a budget may change any time, and is told first");
}

#[test]
fn a_budget_blocks_only_until_the_grace_period_before_the_deadline() {
    let mut scene = Scene::of(&ending(Some(at(300))));
    scene.create(budget());
    scene.create(grace(running("web-0"), 60));
    scene.set_time(239);
    assert_eq!(scene.run().counted("forced"), 0);
    scene.set_time(241);
    assert_eq!(scene.run().counted("forced"), 1);
    let pod = scene.get::<Pod>("default/web-0").unwrap();
    assert_eq!(pod.metadata.deletion_grace_period_seconds.unwrap_or(59), 59);
    assert!(scene.events("Disrupted")[0].contains("59 s"));
    let world = scene.simulation.world();
    let expiring = world.cluster.events.iter().filter(|kept| kept.event.reason == "TerminationGracePeriodExpiring" && kept.event.warning);
    let kinds: std::collections::BTreeSet<&str> = expiring.map(|kept| kept.event.kind.as_str()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["Node", "NodeClaim"]);
}

#[test]
fn pods_are_evicted_and_counted_with_the_disruption_reason() {
    let scene = Scene::of(&ending(None));
    scene.create(running("web-0"));
    let report = scene.run();
    assert_eq!(report.counted("evicted"), 1);
    assert!(scene.get::<Pod>("default/web-0").is_none_or(|pod| pod.metadata.is_deleting()));
    assert_eq!(scene.events("Evicted"), ["Evicted pod: Underutilized"]);
    let drained = report.metrics.iter().find(|metric| metric.metric == "karpenter_pods_drained_total").unwrap();
    assert_eq!(drained.labels["reason"], "Underutilized");
}

#[test]
fn a_terminated_machine_with_a_silent_kubelet_is_not_drained() {
    let scene = Scene::of(&ending(None));
    scene.create(budget());
    scene.create(running("web-0"));
    scene.set_state(InstanceState::Terminated);
    scene.change::<Node>(NODE, |node| node.status.conditions[0].status = ConditionStatus::Unknown);
    scene.run();
    scene.run();
    assert_eq!(scene.claim().phase.name(), "Gone");
    assert!(!scene.is_held());
}

#[test]
fn a_node_is_drained_while_its_kubelet_or_ec2_reports_it_alive() {
    let contradictions = [(InstanceState::Terminated, ConditionStatus::True), (InstanceState::Running, ConditionStatus::Unknown)];
    for (state, ready) in contradictions {
        let mut scene = Scene::of(&ending(None));
        scene.create(budget());
        scene.create(running("web-0"));
        scene.set_state(state);
        scene.change::<Node>(NODE, |node| node.status.conditions[0].status = ready);
        scene.run();
        scene.set_time(30);
        scene.run();
        assert_eq!(scene.claim().phase.name(), "Draining", "{state:?} {ready:?}");
        assert!(scene.is_held() && scene.get::<Pod>("default/web-0").is_some());
    }
}

#[test]
fn a_machine_missing_in_ec2_is_drained_until_its_kubelet_counts_as_dead() {
    let silent_for = |seconds: i64| {
        let mut scene = Scene::of(&ending(None));
        scene.create(budget());
        scene.create(running("web-0"));
        scene.simulation.world().region.machines.clear();
        scene.change::<Node>(NODE, |node| {
            node.status.conditions[0].status = ConditionStatus::Unknown;
            node.status.conditions[0].last_transition_time = Some(at(1000 - seconds));
        });
        scene.set_time(1000);
        scene.run();
        scene.claim().phase.name()
    };
    assert_eq!(silent_for(299), "Draining");
    assert_eq!(silent_for(300), "Terminating");
}

#[test]
fn volumes_are_waited_for_until_the_deadline() {
    let attached = || attachment("va-1", "pv-1", NODE);
    let mut scene = Scene::of(&ending(None));
    scene.create(attached());
    scene.run();
    scene.set_time(3600);
    scene.run();
    assert_eq!(scene.condition(VOLUMES_DETACHED), Some((ConditionStatus::Unknown, "AwaitingVolumeDetachment".into())));
    assert_eq!(scene.state(), InstanceState::Running);
    assert!(scene.events("AwaitingVolumeDetachment")[0].contains("va-1"));
    scene.simulation.world().cluster.objects.delete::<VolumeAttachment>("va-1", at(3600));
    assert_eq!(scene.run().counted("termination_sent"), 1);

    let mut late = Scene::of(&ending(Some(at(60))));
    late.create(attached());
    late.run();
    late.set_time(60);
    assert_eq!(late.run().counted("termination_sent"), 0);
    late.set_time(61);
    assert_eq!(late.run().counted("termination_sent"), 1);
    assert_eq!(late.condition(VOLUMES_DETACHED), Some((ConditionStatus::False, "TerminationGracePeriodElapsed".into())));
}

#[test]
fn a_node_of_another_machine_with_the_same_name_is_not_touched() {
    let scene = Scene::of(&ending(None));
    scene.change::<Node>(NODE, |node| node.spec.provider_id = "aws:///z/i-another".into());
    scene.create(running("web-0"));
    scene.run();
    scene.set_state(InstanceState::Terminated);
    scene.run();
    let other = scene.get::<Node>(NODE).unwrap();
    assert!(!other.metadata.is_deleting() && other.spec.taints.is_empty() && scene.is_held());
    assert!(!scene.get::<Pod>("default/web-0").unwrap().metadata.is_deleting());
    assert_eq!(scene.claim().phase.name(), "Gone");
}

/// Its doorbell may come after Karpenter continued with it.
#[test]
fn the_node_claim_of_a_machine_that_was_handed_over_is_never_touched() {
    let mut claim = step(&serving(), &Event::LetGo, at(0)).unwrap();
    let released = Scene::of(&claim);
    released.run();
    assert!(released.get::<NodeClaim>(claim.key.name.as_str()).is_none(), "one that was only released is deleted");
    claim.annotations.insert(labels::HANDED_OVER.into(), "true".into());
    let scene = Scene::of(&claim);
    let before = scene.get::<NodeClaim>(claim.key.name.as_str());
    scene.run();
    assert!(before.is_some() && scene.get::<NodeClaim>(claim.key.name.as_str()) == before);
    assert_eq!(scene.state(), InstanceState::Running);
}

#[test]
fn a_deleted_node_does_not_leak_its_instance() {
    let mut scene = Scene::of(&ending(None));
    scene.change::<Node>(NODE, |node| node.metadata.finalizers.clear());
    scene.simulation.world().cluster.objects.delete::<Node>(NODE, at(0));
    for (seconds, sent) in [(0, 0), (5, 0), (10, 1)] {
        scene.set_time(seconds);
        assert_eq!(scene.run().counted("termination_sent"), sent, "at {seconds}");
    }
    assert_ne!(scene.state(), InstanceState::Running);
}

/// A machine that was found without a claim, or launched after its claim had ended: the claim does not know a Node.
pub(super) fn unnamed() -> Claim {
    let claim = ending(None);
    Claim { phase: Phase::Draining { machine: own_machine(), node_name: None, since: at(0) }, ..claim }
}

#[test]
fn one_response_without_its_node_ends_no_machine() {
    for claim in [unnamed(), ending(None)] {
        let mut scene = Scene::of(&claim);
        scene.create(running("web-0"));
        let there = scene.get::<Node>(NODE).unwrap();
        scene.simulation.world().cluster.objects.nodes.clear();
        let report = scene.run();
        assert_eq!((report.counted("node_not_seen"), report.counted("termination_sent")), (1, 0));
        assert_eq!(scene.state(), InstanceState::Running);
        // The next response contains it again, which resets the sighting.
        scene.simulation.world().cluster.objects.nodes.insert(NODE.into(), there);
        scene.set_time(20);
        scene.run();
        scene.run();
        assert_eq!(scene.claim().node_missing_since, None);
        assert_eq!((scene.claim().node_name(), scene.state()), (Some(NODE), InstanceState::Running));
    }
}

#[test]
fn a_machine_without_a_node_is_terminated_after_several_reads() {
    let mut scene = Scene::of(&unnamed());
    scene.simulation.world().cluster.objects.nodes.clear();
    for (seconds, sent) in [(0, 0), (5, 0), (10, 1)] {
        scene.set_time(seconds);
        assert_eq!(scene.run().counted("termination_sent"), sent, "at {seconds}");
    }
}

#[test]
fn an_unresponsive_ec2_blocks_no_eviction() {
    let scene = Scene::of(&ending(None));
    scene.create(running("web-0"));
    scene.change::<Node>(NODE, |node| node.status.conditions[0].status = ConditionStatus::Unknown);
    let report = scene.run_without_ec2(&Refusing::UNAVAILABLE).unwrap();
    assert_eq!((report.counted("evicted"), report.counted("termination_sent")), (1, 0));
    assert_eq!(scene.state(), InstanceState::Running, "no response does not mean that the machine is lost");
}

#[test]
fn a_run_without_a_response_from_ec2_is_retried_soon() {
    let sent = step(&ending(None), &Event::TerminationSent, at(0)).unwrap();
    let scene = Scene::of(&sent);
    let report = scene.run_without_ec2(&Refusing::UNAVAILABLE).unwrap();
    assert_eq!((report.counted("cloud_unanswered"), report.counted("terminated")), (1, 0));
    assert_eq!(scene.claim().look_again_at, Some(at(5)));
    assert_eq!(scene.simulation.world().queues.waiting().count(), 1);
}

pub(super) fn spot_loss() -> Claim {
    let deletion = serving().deletion_for(DeletionReason::SpotInterruption, "", at(0));
    step(&serving(), &Event::DeletionRequested(deletion), at(0)).unwrap()
}

impl Scene {
    pub(super) fn plan_another(&self, created_at: i64) -> ClaimKey {
        let key = ClaimKey { name: "default-2".into(), ..planned().key };
        let claim = Claim { key: key.clone(), created_at: at(created_at), ..planned() };
        self.store(&claim);
        key
    }

    pub(super) fn mark_ready(&self, key: &ClaimKey, now: i64) {
        let ports = self.simulation.ports();
        block_on(async {
            let stored = ports.get(key).await.unwrap().unwrap();
            let events = [Event::FleetAnswered(machine("i-2")), joined("node-2"), Event::NodeReady];
            ports.update(&after(&stored.value, &events, at(now)), stored.revision).await.unwrap();
        });
    }
}

#[test]
fn pods_of_a_spot_machine_are_evicted_when_the_replacement_is_ready() {
    let mut scene = Scene::of(&spot_loss());
    scene.create(running("a"));
    assert_eq!(scene.run().counted("evicted"), 0, "no replacement is planned yet");
    assert_eq!(scene.get::<Node>(NODE).unwrap().spec.taints.len(), 1, "but new pods are kept off");
    let next = scene.plan_another(3);
    scene.set_time(30);
    let report = scene.run();
    assert_eq!((report.counted("held_for_replacement"), report.counted("evicted")), (1, 0));
    scene.mark_ready(&next, 41);
    scene.set_time(42);
    assert_eq!(scene.run().counted("evicted"), 1);
    assert_eq!(scene.state(), InstanceState::Running);
}

#[test]
fn pods_of_a_spot_machine_never_wait_for_a_late_replacement() {
    let mut scene = Scene::of(&spot_loss());
    scene.create(running("a"));
    scene.plan_another(3);
    scene.set_time(64);
    assert_eq!(scene.run().counted("evicted"), 0);
    scene.set_time(65);
    assert_eq!(scene.run().counted("evicted"), 1, "its grace period of 30 s and time to evict remain");
}

pub(super) fn expired() -> Claim {
    let deletion = serving().deletion_for(DeletionReason::Expired, "", at(0));
    step(&serving(), &Event::DeletionRequested(deletion), at(0)).unwrap()
}

#[test]
fn pods_of_an_expired_machine_are_evicted_together_after_a_plan() {
    let mut scene = Scene::of(&expired());
    scene.create(running("a"));
    assert_eq!(scene.run().counted("evicted"), 0, "their successors would be planned one by one");
    assert_eq!(scene.get::<Node>(NODE).unwrap().spec.taints.len(), 1, "but new pods are kept off");
    scene.plan_another(1);
    scene.set_time(2);
    assert_eq!(scene.run().counted("evicted"), 1);
}

#[test]
fn pods_of_an_expired_machine_never_wait_longer_than_a_plan_takes() {
    let mut scene = Scene::of(&expired());
    scene.create(running("a"));
    scene.plan_another(-60);
    scene.set_time(7);
    assert_eq!(scene.run().counted("evicted"), 0);
    scene.set_time(8);
    assert_eq!(scene.run().counted("evicted"), 1, "they fit on existing nodes, or nowhere");
}

#[test]
fn pods_that_fit_elsewhere_are_evicted_once_a_plan_would_exist() {
    let mut scene = Scene::of(&spot_loss());
    scene.create(running("a"));
    scene.plan_another(-60);
    scene.set_time(8);
    assert_eq!(scene.run().counted("evicted"), 1);
}

#[test]
fn a_drain_out_of_time_continues_in_the_next_run() {
    let scene = Scene::of(&ending(None));
    for number in 0..20 {
        scene.create(running(&format!("p-{number:02}")));
    }
    let ports = scene.simulation.ports().with_time_left(SignedDuration::from_millis(100), SignedDuration::from_secs(3));
    let evicted = Scene::run_over(&ports).counted("evicted");
    assert!(evicted > 0 && evicted < 20, "{evicted}");
    assert!(ports.is_in_time(), "until {}", ports.now());
    assert_eq!(scene.simulation.world().queues.waiting().count(), 1, "another run is scheduled");
    assert_eq!(scene.run().counted("evicted"), 20 - evicted);
}

#[test]
fn concurrently_drained_nodes_share_the_eviction_rate() {
    let scene = Scene::of(&ending(None));
    for number in 0..60 {
        scene.create(running(&format!("p-{number:02}")));
    }
    // Other nodes have used nearly all of this second's evictions.
    let full = Bucket::full(100, 100, at(0));
    assert!(scene.simulation.world().store.take_tokens(&BucketName("Evictions/c".into()), &full, 95, at(0)));
    let report = scene.run();
    assert_eq!((report.counted("evicted"), report.counted("evictions_shared")), (3, 1));
    assert_eq!(scene.run().counted("evicted"), 0, "this second's evictions are used up");
    assert!(scene.claim().look_again_at.is_some_and(|look| look <= at(1)), "it continues as soon as there are tokens");
}

#[test]
fn pods_that_a_budget_holds_keep_no_other_pod_from_its_eviction() {
    let mut scene = Scene::of(&ending(None));
    scene.create(budget());
    for number in 0..60 {
        scene.create(running(&format!("p-{number:02}")));
    }
    scene.create(pod("z-free"));
    scene.create(critical(pod("critical")));
    let mut evicted = 0;
    for seconds in [0, 5, 10, 15] {
        scene.set_time(seconds);
        let report = scene.run();
        evicted += report.counted("evicted");
        assert!(report.counted("held_by_budget") >= 49, "a run tries no more than 50");
    }
    assert_eq!(evicted, 1);
    assert!(scene.get::<Pod>("default/z-free").is_none_or(|pod| pod.metadata.is_deleting()));
    assert!(!scene.get::<Pod>("default/critical").unwrap().metadata.is_deleting(), "it waits for all others");
    let causes: std::collections::BTreeSet<String> = scene.events("FailedDraining").into_iter().collect();
    assert!(causes.len() <= 4 && causes.iter().all(|cause| cause.contains("default/p-")), "{causes:?}");
}

/// EC2 with this answer to every call, and its code.
pub(super) struct Refusing(pub(super) CloudErrorKind, pub(super) &'static str);

impl Refusing {
    const UNAVAILABLE: Self = Self(CloudErrorKind::Unknown, "InternalError");

    fn error<A>(&self, call: &'static str) -> Result<A, CloudError> {
        Err(CloudError { kind: self.0, call, code: self.1.to_owned(), message: "denied".to_owned() })
    }
}

impl Instances for Refusing {
    async fn of_cluster(&self, _: &ClusterName) -> Result<Vec<Instance>, CloudError> {
        self.error("DescribeInstances")
    }
    async fn instance(&self, _: &InstanceId) -> Result<Option<Instance>, CloudError> {
        self.error("DescribeInstances")
    }
    async fn tagged(&self, _: &str, _: &str) -> Result<Vec<Instance>, CloudError> {
        self.error("DescribeInstances")
    }
}

impl Terminator for Refusing {
    async fn terminate(&self, _: &InstanceId) -> Result<(), CloudError> {
        self.error("TerminateInstances")
    }
}

#[test]
fn while_ec2_refuses_every_call_nothing_is_released() {
    let sent = step(&ending(None), &Event::TerminationSent, at(0)).unwrap();
    for claim in [ending(None), sent] {
        let mut scene = Scene::of(&claim);
        // Its Node is drained and has been empty for long enough; or its kubelet is silent, so that EC2 is checked first.
        for ready in [ConditionStatus::True, ConditionStatus::Unknown] {
            scene.change::<Node>(NODE, |node| node.status.conditions[0].status = ready);
            for seconds in [0, 6, 12] {
                scene.set_time(seconds);
                let outcome = scene.run_without_ec2(&Refusing::UNAVAILABLE);
                let waits = matches!(&outcome, Ok(report) if report.counted("terminated") + report.counted("termination_sent") == 0);
                assert!(waits || matches!(outcome, Err(HandleError::Cloud(_))), "{outcome:?}");
            }
        }
        assert!(scene.is_held() && scene.get::<NodeClaim>("default-1").is_some());
        assert_eq!(scene.claim().phase, claim.phase);
        assert_eq!(scene.state(), InstanceState::Running);
    }
}

#[test]
fn terminating_a_standalone_claim_keeps_a_later_object_of_its_name() {
    let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: String::new() };
    let mut claim = step(&planned(), &failed, at(0)).unwrap();
    claim.spec.standalone_uid = Some("uid-1".into());
    for (uid, left) in [("uid-1", false), ("uid-2", true)] {
        let scene = Scene::of(&claim);
        scene.change::<NodeClaim>("default-1", |shown| {
            shown.metadata.uid = uid.into();
            shown.metadata.deletion_timestamp = None;
        });
        scene.run();
        assert_eq!(scene.get::<NodeClaim>("default-1").is_some_and(|shown| !shown.metadata.is_deleting()), left, "{uid}");
    }
}

#[test]
fn an_unreadable_pod_is_evicted_like_any_other() {
    let mut scene = Scene::of(&ending(None));
    scene.create(budget());
    scene.create(running("web-0"));
    scene.simulation.world().hide_always("Pod", "default/web-0", true);
    for seconds in [0, 60, 3600] {
        scene.set_time(seconds);
        let report = scene.run();
        assert_eq!((report.counted("held_by_budget"), report.counted("termination_sent")), (1, 0), "the eviction API decides");
    }
    scene.simulation.world().cluster.objects.budgets.clear();
    assert_eq!(scene.run().counted("evicted"), 1);
    assert_eq!(scene.state(), InstanceState::Running);
}

#[test]
fn an_unreadable_node_is_waited_for_until_the_deadline() {
    let node = |deadline| {
        let scene = Scene::of(&ending(deadline));
        scene.simulation.world().hide_always("Node", NODE, true);
        scene
    };
    let mut patient = node(None);
    patient.set_time(7_200);
    assert_eq!(patient.run().counted("termination_sent"), 0);
    assert_eq!(patient.claim().phase.name(), "Draining");
    let mut due = node(Some(at(60)));
    due.set_time(59);
    assert_eq!(due.run().counted("termination_sent"), 0);
    due.set_time(61);
    assert_eq!(due.run().counted("termination_sent"), 1);
}

/// A claim that is being deleted while its call, which has settled, started the machine of [`own_machine`]; `other` was of the same call.
pub(super) fn abandoned_beside(other: Option<Claim>, tags: &[&str]) -> (TestWorld, Report) {
    let begun = after(&planned(), &[Event::LaunchBegun { client_token: "batch".into() }], at(-3600));
    let claim = step(&begun, &Event::DeletionRequested(deletion(DeletionReason::LaunchTimeout, at(-1800))), at(-1800)).unwrap();
    let simulation = TestWorld::still(at(0));
    simulation.store(&claim);
    other.iter().for_each(|other| simulation.store(other));
    let mut instance = instance_of(&own_machine());
    instance.tags.insert(labels::TAG_LAUNCH.to_owned(), "batch".to_owned());
    instance.tags.extend(tags.iter().map(|&tag| (tag.to_owned(), String::new())));
    simulation.start_machine(instance);
    let report = Scene::run_over(&simulation.ports());
    (simulation, report)
}

#[test]
fn a_machine_that_came_too_late_is_drained_by_its_claim() {
    let (simulation, report) = abandoned_beside(None, &[]);
    let claim = simulation.claim(&planned().key);
    assert_eq!((report.counted("late_machines"), claim.instance().map(InstanceId::as_str)), (1, Some("i-1")));
}

#[test]
fn a_machine_that_an_ended_claim_let_go_is_nobody_elses() {
    let mut other = serving();
    other.key.name = "default-2".into();
    let other = after(&other, &[Event::LetGo], at(-1));
    // The table may be older than the end of that claim.
    for (other, tags) in [(Some(other), &[][..]), (None, &[labels::TAG_LET_GO][..])] {
        let (simulation, report) = abandoned_beside(other, tags);
        let claim = simulation.claim(&planned().key);
        assert_eq!((report.counted("late_machines"), report.counted("abandoned"), claim.instance()), (0, 1, None), "{tags:?}");
        assert!(!simulation.world().violations.iter().any(|text| text.contains("was abandoned")), "it is the user's");
    }
}

#[test]
fn an_instance_that_ec2_does_not_show_has_ended_once_that_lasts() {
    let check = |looks: &[i64], has_ended: bool| {
        let mut scene = Scene::of(&step(&ending(None), &Event::TerminationSent, at(0)).unwrap());
        scene.world().region.machines.clear();
        for seconds in looks {
            scene.set_time(*seconds);
            scene.run();
        }
        assert_eq!(scene.claim().phase.name() == "Gone", has_ended, "{looks:?}");
    };
    check(&[100, 120], false);
    check(&[100, 131], true);
    // Two responses that are far apart say nothing of the time between.
    check(&[100, 191], false);
    check(&[100, 191, 200], false);
    check(&[100, 191, 222], true);
}
