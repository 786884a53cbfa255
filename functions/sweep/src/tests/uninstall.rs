//! Uninstallation from a cluster.

use super::over_sim::{kept, still, with_pool};
use super::*;
use futures::executor::block_on;
use std::sync::Mutex;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{ConditionStatus, GoDuration, KarpenterSign, conditions};
use whittle_claims::{DecisionKind, Doorbell, LeftNodes, Phase, Uninstall, UninstallRequest};
use whittle_ec2::fleet::LaunchTemplate;
use whittle_ports::{Adapters, ClaimStore, ClusterError, LaunchTemplates, Leases, Mode, NodePatch, RecordReader, Report, Settings};
use whittle_sim::Simulation;
use whittle_testkit::{InterceptedApiServer, Interceptor, TestWorld};
use whittle_units::{ClusterName, InstanceId, SignedDuration};

/// One call of `whittle uninstall --yes`.
fn ask(simulation: &Simulation, nodes: LeftNodes) -> Report {
    answer(simulation, &UninstallRequest { dry_run: false, ..dry_run(nodes) }, &Settings::default())
}

/// What `whittle uninstall` asks for without `--yes`.
fn dry_run(nodes: LeftNodes) -> UninstallRequest {
    UninstallRequest { cluster: ClusterName::new("c"), nodes, dry_run: true }
}

fn answer(simulation: &Simulation, request: &UninstallRequest, settings: &Settings) -> Report {
    let ports = simulation.ports();
    block_on(crate::uninstall(Adapters::all(&ports), settings, request)).unwrap()
}

fn uninstallation(simulation: &Simulation) -> Option<Uninstall> {
    let record = block_on(simulation.ports().read::<Uninstall>(&ClusterName::new("c"), Uninstall::NAME)).unwrap();
    record.map(|stored| stored.value)
}

fn last_line(report: &Report) -> String {
    report.decisions.last().unwrap().message.clone()
}

/// A cluster with one claim, its Node, its mirror and a launch template.
fn served() -> TestWorld {
    let simulation = still();
    let mut node = node(true);
    node.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
    node.metadata.owner_references =
        vec![OwnerReference { kind: "NodeClaim".into(), uid: "mirror".into(), ..OwnerReference::default() }].into();
    with_pool(&simulation, node);
    simulation.store(&registered());
    simulation.create(mirror(&registered()));
    create_template(&simulation);
    simulation
}

/// A machine that serves, with its NodeClaim and a Node with these finalizers; its claim is to be stored.
fn with_machine(simulation: &TestWorld, finalizers: &[&str]) -> (Claim, InstanceId) {
    let mut own = node(true);
    own.metadata.finalizers = finalizers.iter().map(|&finalizer| finalizer.to_owned()).collect();
    own.metadata.owner_references = vec![OwnerReference { kind: "NodeClaim".into(), uid: "m".into(), ..OwnerReference::default() }].into();
    with_pool(simulation, own);
    let running = super::over_sim::start_machine(simulation);
    let mut claim = registered();
    if let Phase::Registered { machine, .. } = &mut claim.phase {
        machine.instance_id = running.clone();
        machine.provider_id = "aws:///z/i-1".into();
    }
    simulation.create(mirror(&claim));
    (claim, running)
}

/// A launch template of the cluster.
pub(super) fn create_template(simulation: &Simulation) {
    let tags = [(labels::TAG_CLUSTER.to_owned(), "c".to_owned())].into();
    let template = LaunchTemplate { name: "t".into(), tags, ..LaunchTemplate::default() };
    block_on(simulation.ports().ensure_launch_template(&template)).unwrap();
}

/// A class with our finalizer.
fn held_class() -> Ec2NodeClass {
    let mut class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    class.metadata.finalizers = vec![labels::NODE_CLASS_FINALIZER.into()];
    class
}

fn templates(simulation: &Simulation) -> usize {
    simulation.world().region.launch_templates.len()
}

#[test]
fn a_dry_run_lists_the_steps_and_changes_nothing() {
    let request = dry_run(LeftNodes::Drain);
    let (active, shadow) = (Settings::default(), Settings { mode: Mode::Shadow, ..Settings::default() });
    for (is_dry_run, settings) in [(true, &active), (false, &shadow), (true, &shadow)] {
        let simulation = served();
        let report = answer(&simulation, &UninstallRequest { dry_run: is_dry_run, ..request.clone() }, settings);
        let lines: Vec<&str> = report.decisions.iter().map(|decision| decision.message.as_str()).collect();
        assert_eq!(lines, ["would drain and end NodeClaim default-1 (n)", "would delete launch template t"]);
        assert!(report.decisions.iter().all(|decision| decision.kind == DecisionKind::Kept));
        assert_eq!((kept(&simulation), uninstallation(&simulation), templates(&simulation)), (registered(), None, 1));
    }
    assert_eq!(last_line(&answer(&still(), &request, &active)), "nothing is left");
}

#[test]
fn nodes_are_drained_before_anything_else_is_deleted() {
    let simulation = served();
    ask(&simulation, LeftNodes::Drain);
    let claim = kept(&simulation);
    assert_eq!((claim.phase.name(), claim.deletion.unwrap().reason), ("Draining", DeletionReason::Requested));
    assert_eq!(templates(&simulation), 1, "an instance may still need it");
    assert_eq!(uninstallation(&simulation).unwrap().nodes, LeftNodes::Drain);
    let again = ask(&simulation, LeftNodes::Drain);
    assert!(last_line(&again).starts_with("still there: 1 claims"), "{}", last_line(&again));
    assert_eq!(again.counted("ended"), 0, "once");
}

#[test]
fn nodes_are_drained_until_the_deadline_that_their_nodeclaim_states_or_else_that_of_the_grace_period() {
    for (stated, due) in [(Some(5000), 5000), (Some(30), 30), (None, 60)] {
        let simulation = still();
        with_pool(&simulation, node(true));
        let mut claim = registered();
        claim.spec.termination_grace_period = Some(GoDuration::from_secs(60));
        simulation.store(&claim);
        let mut shown = mirror(&claim);
        shown.metadata.annotations.extend(stated.map(|second| (labels::TERMINATION_TIMESTAMP.to_owned(), at(second).to_string())));
        simulation.create(shown);
        ask(&simulation, LeftNodes::Drain);
        assert_eq!(kept(&simulation).deletion.unwrap().deadline, Some(at(due)), "{stated:?}");
    }
}

#[test]
fn kept_nodes_lose_finalizer_and_owner_and_their_instance_is_no_orphan() {
    let simulation = still();
    let (claim, running) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER, "other/finalizer"]);
    simulation.store(&claim);
    let report = ask(&simulation, LeftNodes::Keep);
    assert_eq!(report.counted("let_go"), 1);
    {
        let world = simulation.world();
        let node = world.cluster.objects.get::<Node>("n").unwrap();
        assert_eq!((node.metadata.finalizers.as_slice(), node.metadata.owner_references.len()), (&["other/finalizer".to_owned()][..], 0));
        assert!(!node.metadata.is_deleting() && node.spec.taints.is_empty(), "its pods are unaffected");
        assert!(world.cluster.objects.get::<NodeClaim>("default-1").is_none());
        let instance = &world.region.machines[&running].instance;
        assert!(instance.is_alive() && instance.tags.contains_key(labels::TAG_LET_GO));
    }
    assert_eq!(kept(&simulation).phase.name(), "Gone");
    let done = ask(&simulation, LeftNodes::Keep);
    assert!(last_line(&done).starts_with("nothing is left"), "{}", last_line(&done));
    let spared = change(scene(registered()), |s| {
        s.instances.push(instance("i-9"));
        s.instances[1].tags.insert(labels::TAG_LET_GO.into(), "since".into());
    });
    let (first, second) = spared.twice(60);
    assert!(first.orphans.is_empty() && second.orphans.is_empty());
}

/// The uids of the Nodes that are changed.
#[derive(Default)]
struct Uids(Mutex<Vec<String>>);

impl Interceptor for Uids {
    fn patch_node(&self, _: &str, _: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        self.0.lock().unwrap().push(patch.uid.clone());
        Ok(())
    }
}

#[test]
fn the_node_that_was_read_is_let_go_and_no_other_of_its_name() {
    let simulation = still();
    let (claim, _) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
    simulation.store(&claim);
    let uid = simulation.get::<Node>("n").unwrap().metadata.uid;
    let ports = simulation.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: Uids::default() };
    let request = UninstallRequest { dry_run: false, ..dry_run(LeftNodes::Keep) };
    let report = block_on(crate::uninstall(server.adapters(), &Settings::default(), &request)).unwrap();
    assert_eq!((report.counted("let_go"), server.interceptor.0.into_inner().unwrap()), (1, vec![uid]));
}

/// The Node of which the claim knows is gone, and another machine has joined under its name.
#[test]
fn the_node_of_another_machine_keeps_finalizer_and_owner() {
    let simulation = still();
    let (claim, running) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
    simulation.store(&claim);
    simulation.change::<Node>("n", |node| node.spec.provider_id = "aws:///z/i-other".into());
    assert_eq!(ask(&simulation, LeftNodes::Keep).counted("let_go"), 1);
    let meta = simulation.get::<Node>("n").unwrap().metadata;
    assert_eq!((meta.finalizers.len(), meta.owner_references.len()), (1, 1));
    assert!(simulation.world().region.machines[&running].instance.is_alive());
}

/// Karpenter terminates machines with its tags that no NodeClaim names, and owns finalizers of that name.
#[test]
fn what_is_handed_over_is_left_as_karpenter_has_it() {
    let simulation = still();
    let (claim, running) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
    simulation.store(&claim);
    let own = simulation.world().cluster.objects.get::<Node>("n").unwrap().clone();
    let report = ask(&simulation, LeftNodes::HandOver);
    assert_eq!((report.counted("handed_over_to_karpenter"), kept(&simulation).phase.name()), (1, "Gone"));
    let check = |simulation: &Simulation| {
        let world = simulation.world();
        let found = world.cluster.objects.get::<Node>("n").unwrap();
        assert_eq!(found.metadata.finalizers, own.metadata.finalizers);
        assert_eq!((&found.metadata.owner_references, &found.spec.taints), (&own.metadata.owner_references, &own.spec.taints));
        let object = world.cluster.objects.get::<NodeClaim>("default-1").unwrap();
        assert!(!object.metadata.is_deleting() && object.metadata.annotation(labels::MANAGED).is_none(), "{:?}", object.metadata);
        assert_eq!(object.metadata.annotation(labels::HANDED_OVER), None);
        assert_eq!(object.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
        assert_eq!((object.status.provider_id.as_str(), object.status.node_name.as_str()), ("aws:///z/i-1", "n"));
        let instance = &world.region.machines[&running].instance;
        assert!(instance.is_alive() && instance.tags[labels::TAG_LAUNCH].is_empty() && !instance.tags.contains_key(labels::TAG_LET_GO));
    };
    check(&simulation);
    assert!(last_line(&ask(&simulation, LeftNodes::HandOver)).starts_with("nothing is left"));
    check(&simulation);
}

/// Whatever the request says by then: a deletion would reach a machine that Karpenter may continue with already.
#[test]
fn an_interrupted_hand_over_is_finished() {
    for nodes in [LeftNodes::HandOver, LeftNodes::Keep, LeftNodes::Drain] {
        let simulation = still();
        let (claim, running) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
        let mut ended = step(&claim, &Event::LetGo, at(10)).unwrap();
        ended.annotations.insert(labels::HANDED_OVER.into(), "true".into());
        simulation.store(&ended);
        ask(&simulation, nodes);
        {
            let world = simulation.world();
            let object = world.cluster.objects.get::<NodeClaim>("default-1").unwrap();
            assert!(object.metadata.annotation(labels::MANAGED).is_none() && !object.metadata.is_deleting(), "{nodes:?}");
            assert_eq!(object.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
            let instance = &world.region.machines[&running].instance;
            assert!(instance.is_alive() && instance.tags[labels::TAG_LAUNCH].is_empty(), "{nodes:?}");
        }
        assert!(last_line(&ask(&simulation, nodes)).starts_with("nothing is left"), "{nodes:?}");
    }
}

#[test]
fn a_machine_that_is_being_drained_is_not_handed_over() {
    let simulation = still();
    with_pool(&simulation, node(true));
    simulation.store(&step(&registered(), &deletion_requested(), at(10)).unwrap());
    let report = ask(&simulation, LeftNodes::HandOver);
    assert_eq!((report.counted("handed_over_to_karpenter"), kept(&simulation).phase.name()), (0, "Draining"));
    assert!(simulation.doorbells().contains(&whittle_claims::Function::Terminate), "its drain goes on");
}

/// They have the same tag and finalizer as ours.
#[test]
fn templates_and_classes_of_a_running_karpenter_are_left() {
    let simulation = still();
    create_template(&simulation);
    simulation.create(held_class());
    let sign = KarpenterSign { object: "lease/karpenter-leader-election in namespace kube-system".into(), renewed_at: None };
    simulation.world().cluster.karpenter = vec![sign];
    for nodes in [LeftNodes::HandOver, LeftNodes::Keep, LeftNodes::Drain] {
        assert!(last_line(&ask(&simulation, nodes)).starts_with("nothing is left"), "{nodes:?}");
        assert_eq!(templates(&simulation), 1);
    }
}

#[test]
fn a_terminating_machine_is_not_kept() {
    let simulation = still();
    let mut ending = step(&registered(), &deletion_requested(), at(10)).unwrap();
    ending = step(&ending, &Event::TerminationSent, at(10)).unwrap();
    simulation.store(&ending);
    ask(&simulation, LeftNodes::Keep);
    assert_eq!(kept(&simulation).phase.name(), "Terminating");
}

#[test]
fn a_machine_whose_node_is_being_deleted_is_drained() {
    let simulation = still();
    let mut own = node(true);
    own.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
    own.metadata.deletion_timestamp = Some(at(10));
    with_pool(&simulation, own);
    simulation.store(&registered());
    let report = ask(&simulation, LeftNodes::Keep);
    assert_eq!((report.counted("let_go"), report.counted("ended")), (0, 1));
    assert_eq!(kept(&simulation).phase.name(), "Draining");
    let world = simulation.world();
    assert_eq!(world.cluster.objects.get::<Node>("n").unwrap().metadata.finalizers, [labels::TERMINATION_FINALIZER]);
}

/// A Node without a provider id is as one that the list lacks: only its claim knows of it.
#[test]
fn a_node_that_is_being_deleted_unseen_is_never_released() {
    let simulation = still();
    let (claim, _) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
    simulation.store(&claim);
    simulation.change::<Node>("n", |node| {
        node.spec.provider_id.clear();
        node.metadata.deletion_timestamp = Some(at(10));
    });
    let report = ask(&simulation, LeftNodes::Keep);
    assert_eq!((report.counted("let_go"), report.counted("nodes_leaving"), kept(&simulation)), (0, 1, claim));
    assert_eq!(simulation.get::<Node>("n").unwrap().metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    simulation.change::<Node>("n", |node| node.spec.provider_id = "aws:///z/i-1".into());
    assert_eq!(ask(&simulation, LeftNodes::Keep).counted("ended"), 1);
    assert_eq!(kept(&simulation).phase.name(), "Draining");
}

/// It would vanish with its finalizer, while its machine runs on.
#[test]
fn a_machine_without_a_claim_whose_node_is_being_deleted_is_drained_and_never_released() {
    drained_without_a_claim(false);
}

/// The list lacked its Node when its release began, so that it has the tag already. Then the table lost its claim.
#[test]
fn a_machine_without_a_claim_whose_release_met_a_node_that_is_being_deleted_is_drained() {
    drained_without_a_claim(true);
}

/// A machine whose Node is being deleted is drained, whether it is tagged as released or not.
#[track_caller]
fn drained_without_a_claim(is_tagged: bool) {
    let mut simulation = still();
    let running = super::over_sim::start_machine(&simulation);
    if is_tagged {
        tag_let_go(&simulation, &running);
    }
    let id = simulation.world().region.machines[&running].instance.provider_id();
    let mut own = node(true);
    own.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
    own.metadata.labels.insert(labels::REGISTERED.into(), "true".into());
    own.metadata.deletion_timestamp = Some(at(10));
    own.spec.provider_id = id.as_str().into();
    with_pool(&simulation, own);
    let mut shown = mirror(&registered());
    shown.status.provider_id = id.as_str().into();
    simulation.create(shown);
    ask(&simulation, LeftNodes::Keep);
    for _ in 0..4 {
        simulation.run_for(SignedDuration::from_mins(1));
        tick(&simulation);
    }
    assert_eq!(is_let_go(&simulation, &running), is_tagged);
    let claims = block_on(simulation.ports().list(&ClusterName::new("c"))).unwrap();
    let [claim] = &claims[..] else { panic!("one for the machine: {claims:?}") };
    assert_eq!((claim.value.phase.name(), claim.value.instance()), ("Draining", Some(&running)));
    assert_eq!(simulation.get::<Node>("n").unwrap().metadata.finalizers, [labels::TERMINATION_FINALIZER]);
}

#[test]
fn after_the_last_machine_templates_classes_and_records_are_deleted() {
    let simulation = still();
    simulation.create(held_class());
    create_template(&simulation);
    let gone = after(&[begun(), Event::FleetAnswered(machine("i-1")), deletion_requested(), Event::TerminationSent, Event::MachineGone]);
    simulation.store(&gone);
    ask(&simulation, LeftNodes::Drain);
    assert_eq!(templates(&simulation), 0);
    assert_eq!(kept(&simulation), gone, "records are deleted last");
    simulation.world().cluster.objects.change::<Ec2NodeClass>("default", |class| class.metadata.finalizers.clear());
    let done = ask(&simulation, LeftNodes::Drain);
    assert!(last_line(&done).starts_with("nothing is left"), "{}", last_line(&done));
    assert!(block_on(whittle_ports::ClaimStore::list(&simulation.ports(), &ClusterName::new("c"))).unwrap().is_empty());
    assert!(uninstallation(&simulation).is_some(), "the record stays until the cluster is no longer configured");
}

/// Karpenter launches nothing for a pool that is not ready, and continues with what was left to it.
#[test]
fn pools_stay_ready_after_an_ended_uninstallation() {
    let simulation = still();
    let (claim, _) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
    simulation.store(&claim);
    simulation.world().cluster.objects.change::<NodePool>("default", |pool| {
        for type_ in [conditions::READY, conditions::NODE_CLASS_READY] {
            conditions::set(&mut pool.status.conditions, type_, ConditionStatus::True, type_, "", at(0));
        }
    });
    let pool = || simulation.world().cluster.objects.get::<NodePool>("default").unwrap().clone();
    let before = pool();
    ask(&simulation, LeftNodes::HandOver);
    assert!(last_line(&ask(&simulation, LeftNodes::HandOver)).starts_with("nothing is left"));
    tick(&simulation);
    assert_eq!(pool(), before);
}

#[test]
fn an_unreadable_claim_blocks_the_deletion_of_records() {
    let simulation = served();
    simulation.world().store.spoil_claim(&registered().key);
    let report = ask(&simulation, LeftNodes::Drain);
    assert!(last_line(&report).contains("1 unreadable"), "{}", last_line(&report));
    assert_eq!(templates(&simulation), 1);
}

/// A sweep after the uninstallation was requested with kept machines.
fn tick(simulation: &Simulation) -> Report {
    super::over_sim::sweep(simulation, &Settings::default())
}

fn doorbells(simulation: &Simulation) -> Vec<Doorbell> {
    let world = simulation.world();
    let doorbells_sent = world.queues.waiting().filter_map(|message| match &message.input {
        whittle_sim::Input::Doorbell(doorbell) => Some(doorbell.clone()),
        _ => None,
    });
    doorbells_sent.collect()
}

#[test]
fn a_launch_in_progress_is_awaited_and_then_given_up() {
    let mut simulation = still();
    simulation.store(&step(&planned(), &begun(), at(0)).unwrap());
    ask(&simulation, LeftNodes::Keep);
    let launch = Doorbell::Launch { cluster: ClusterName::new("c"), claims: vec!["default-1".into()] };
    assert!(doorbells(&simulation).contains(&launch), "{:?}", doorbells(&simulation));
    assert_eq!(kept(&simulation).deletion, None);
    simulation.run_for(SignedDuration::from_mins(16));
    tick(&simulation);
    assert_eq!(kept(&simulation).deletion.map(|deletion| deletion.reason), Some(DeletionReason::Requested));
}

#[test]
fn a_machine_without_a_claim_is_released_and_its_nodeclaim_deleted() {
    released_without_a_claim(false);
}

/// A run ended after the tag, before the Node. Then the table lost its claim.
#[test]
fn a_machine_without_a_claim_whose_release_ended_at_its_tag_is_released_with_its_node() {
    released_without_a_claim(true);
}

/// A machine is released with its Node and its NodeClaim, whether it is tagged as released or not.
#[track_caller]
fn released_without_a_claim(is_tagged: bool) {
    let simulation = still();
    let mut own = node(true);
    own.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
    own.metadata.labels.insert(labels::REGISTERED.into(), "true".into());
    own.spec.taints = vec![Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule)];
    with_pool(&simulation, own);
    let running = super::over_sim::start_machine(&simulation);
    if is_tagged {
        tag_let_go(&simulation, &running);
    }
    let mut shown = mirror(&registered());
    shown.status.provider_id = simulation.world().region.machines[&running].instance.provider_id().as_str().into();
    simulation.world().cluster.objects.change::<Node>("n", |node| node.spec.provider_id.clone_from(&shown.status.provider_id));
    simulation.create(shown);
    let first = ask(&simulation, LeftNodes::Keep);
    assert!(last_line(&first).starts_with("still there: 0 claims, 1 machines, 1 NodeClaims without a claim"), "{}", last_line(&first));
    tick(&simulation);
    let world = simulation.world();
    let instance = &world.region.machines[&running].instance;
    assert!(instance.is_alive() && instance.tags.contains_key(labels::TAG_LET_GO));
    assert!(world.cluster.objects.get::<NodeClaim>("default-1").is_none());
    let node = world.cluster.objects.get::<Node>("n").unwrap();
    assert!(!node.metadata.is_deleting() && node.metadata.finalizers.is_empty() && node.spec.taints.is_empty());
}

#[test]
fn machines_of_another_controller_are_never_released() {
    let simulation = still();
    with_pool(&simulation, node(true));
    let running = super::over_sim::start_machine(&simulation);
    let mut shown = mirror(&registered());
    shown.metadata.annotations.remove(labels::MANAGED);
    shown.status.provider_id = simulation.world().region.machines[&running].instance.provider_id().as_str().into();
    simulation.create(shown);
    ask(&simulation, LeftNodes::Keep);
    tick(&simulation);
    let world = simulation.world();
    assert!(!world.region.machines[&running].instance.tags.contains_key(labels::TAG_LET_GO));
    assert!(world.cluster.objects.get::<NodeClaim>("default-1").is_some());
}

#[test]
fn the_result_of_an_uninstallation_is_in_the_decision_log() {
    let simulation = still();
    ask(&simulation, LeftNodes::Keep);
    tick(&simulation);
    let world = simulation.world();
    let decisions = world.store.decisions(&ClusterName::new("c"));
    assert!(decisions.iter().any(|decision| decision.message.starts_with("nothing is left")));
}

#[test]
fn a_claim_whose_machine_is_gone_is_deleted_and_a_young_one_awaited() {
    for (minutes, ends) in [(1, false), (16, true)] {
        let mut simulation = served();
        simulation.run_for(SignedDuration::from_mins(minutes));
        // EC2 does not know the instance.
        let ports = simulation.ports();
        let adapters = Adapters::all(&ports);
        let request = UninstallRequest { cluster: ClusterName::new("c"), nodes: LeftNodes::Keep, dry_run: false };
        let outcome = block_on(crate::uninstall(adapters, &Settings::default(), &request));
        assert_eq!((outcome.is_ok(), kept(&simulation).deletion.is_some()), (ends, ends), "after {minutes} minutes");
    }
}

/// Whether a machine is tagged as released.
fn is_let_go(simulation: &TestWorld, machine: &InstanceId) -> bool {
    simulation.world().region.machines[machine].instance.tags.contains_key(labels::TAG_LET_GO)
}

/// Tags a machine as released.
fn tag_let_go(simulation: &TestWorld, machine: &InstanceId) {
    let mut world = simulation.world();
    let machine = world.region.machines.get_mut(machine).unwrap();
    machine.instance.tags.insert(labels::TAG_LET_GO.to_owned(), "since".to_owned());
}

/// Stores what became of a claim.
fn change_claim(simulation: &TestWorld, event: &Event) {
    let ports = simulation.ports();
    let read = block_on(ports.get(&registered().key)).unwrap().unwrap();
    block_on(ports.update(&step(&read.value, event, at(20)).unwrap(), read.revision)).unwrap();
}

/// Its Node would keep the taint that `register` removes.
#[test]
fn a_launched_machine_is_released_only_after_it_has_registered() {
    let simulation = still();
    let running = super::over_sim::start_machine(&simulation);
    let launched = after(&[begun(), Event::FleetAnswered(machine("i-1"))]);
    simulation.store(&launched);
    for _ in 0..2 {
        let report = ask(&simulation, LeftNodes::Keep);
        assert_eq!((report.counted("let_go"), report.counted("ended")), (0, 0));
        assert!(last_line(&report).starts_with("still there: 1 claims"), "{}", last_line(&report));
        assert_eq!(kept(&simulation), launched, "`register` goes on with it");
        assert!(!is_let_go(&simulation, &running));
    }
    with_pool(&simulation, node(true));
    change_claim(&simulation, &joined("n"));
    assert_eq!(ask(&simulation, LeftNodes::Keep).counted("let_go"), 1);
    assert!(is_let_go(&simulation, &running));
}

/// Nobody would own it, and no Node would ever belong to it.
#[test]
fn a_machine_that_never_registered_is_ended_and_never_released() {
    let late = || Event::DeletionRequested(deletion(DeletionReason::RegistrationTimeout, at(15)));
    let found_late = after(&[begun(), Event::FleetAnswered(machine("i-1")), late(), joined("n")]);
    for overdue in [after(&[begun(), Event::FleetAnswered(machine("i-1")), late()]), found_late] {
        let simulation = still();
        let running = super::over_sim::start_machine(&simulation);
        simulation.store(&overdue);
        let report = ask(&simulation, LeftNodes::Keep);
        assert_eq!((report.counted("let_go"), kept(&simulation)), (0, overdue));
        assert!(!is_let_go(&simulation, &running));
        assert!(simulation.doorbells().contains(&whittle_claims::Function::Terminate));
    }
}

#[test]
fn a_machine_whose_deletion_had_begun_is_ended_and_never_released() {
    let simulation = still();
    let (claim, running) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
    let draining = step(&claim, &Event::DeletionRequested(deletion(DeletionReason::Drifted, at(10))), at(10)).unwrap();
    simulation.store(&draining);
    let report = ask(&simulation, LeftNodes::Keep);
    assert_eq!((report.counted("let_go"), kept(&simulation)), (0, draining), "`terminate` may be about to delete its Node");
    assert!(!is_let_go(&simulation, &running));
    assert!(simulation.doorbells().contains(&whittle_claims::Function::Terminate));
}

#[test]
fn a_claim_whose_launch_has_not_begun_is_given_up() {
    let simulation = still();
    simulation.store(&planned());
    ask(&simulation, LeftNodes::Keep);
    let ended = kept(&simulation);
    assert_eq!((ended.phase.name(), ended.machine()), ("Gone", None));
    assert!(step(&ended, &begun(), at(20)).is_err(), "nothing launches it any more");
    assert!(!doorbells(&simulation).iter().any(|doorbell| matches!(doorbell, Doorbell::Launch { .. })));
}

#[test]
fn a_kept_node_loses_the_taint_of_a_command_and_no_other() {
    let simulation = still();
    let (claim, _) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
    simulation.store(&claim);
    let other = Taint::new("team", TaintEffect::NoSchedule);
    simulation.change::<Node>("n", |node| {
        node.spec.taints = vec![Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule), other.clone()];
    });
    assert_eq!(ask(&simulation, LeftNodes::Keep).counted("let_go"), 1);
    assert_eq!(simulation.get::<Node>("n").unwrap().spec.taints, [other]);
}

/// A decision that began earlier does not know that the nodes are kept.
#[test]
fn no_machine_is_released_while_an_earlier_decision_may_be_under_way() {
    for nodes in [LeftNodes::Keep, LeftNodes::HandOver] {
        let mut simulation = still();
        let (claim, running) = with_machine(&simulation, &[labels::TERMINATION_FINALIZER]);
        simulation.store(&claim);
        let now = simulation.world().now();
        let hour = SignedDuration::from_hours(1);
        block_on(simulation.ports().acquire(&ClusterName::new("c"), "consolidate", now, hour)).unwrap();
        let report = ask(&simulation, nodes);
        assert_eq!((report.counted("decisions_awaited"), kept(&simulation)), (1, claim));
        assert!(last_line(&report).starts_with("still there: 1 claims"), "{}", last_line(&report));
        assert!(!is_let_go(&simulation, &running));
        simulation.run_for(SignedDuration::from_mins(1));
        assert_eq!(ask(&simulation, nodes).counted("decisions_awaited"), 0, "it sees the record, whoever holds the lease");
        assert_eq!(kept(&simulation).phase.name(), "Gone");
    }
}

/// It may still register, or never.
#[test]
fn a_machine_without_claim_and_node_is_collected_and_never_released() {
    let mut simulation = still();
    let running = super::over_sim::start_machine(&simulation);
    simulation.run_for(SignedDuration::from_mins(1));
    ask(&simulation, LeftNodes::Keep);
    for _ in 0..2 {
        assert!(!is_let_go(&simulation, &running));
        tick(&simulation);
        simulation.run_for(SignedDuration::from_mins(1));
    }
    let claims = block_on(simulation.ports().list(&ClusterName::new("c"))).unwrap();
    let [claim] = &claims[..] else { panic!("one for the machine: {claims:?}") };
    assert_eq!((claim.value.phase.name(), claim.value.instance()), ("Draining", Some(&running)));
    ask(&simulation, LeftNodes::Keep);
    assert!(!is_let_go(&simulation, &running), "it is drained");
}

#[test]
fn a_dry_run_says_what_becomes_of_each_kept_claim() {
    let check = |claim: &Claim, want: &str| {
        let simulation = still();
        simulation.store(claim);
        assert_eq!(last_line(&answer(&simulation, &dry_run(LeftNodes::Keep), &Settings::default())), want);
    };
    check(&planned(), "would end NodeClaim default-1, which has no instance");
    let launched = after(&[begun(), Event::FleetAnswered(machine("i-1"))]);
    check(&launched, "would release NodeClaim default-1 once its node has joined");
    check(&registered(), "would release NodeClaim default-1 (n), its instance keeps running");
    let draining = step(&registered(), &deletion_requested(), at(10)).unwrap();
    check(&draining, "would end NodeClaim default-1 (n), which is being deleted");
}
