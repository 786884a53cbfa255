//! The whole handler over the memory adapters.

use super::uninstall::create_template;
use crate::compare::Findings;
use crate::execute::Executor;
use crate::index::Index;
use futures::executor::block_on;
use whittle_api::k8s::{Kind as _, Node};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ClusterObjects, ConditionStatus, GoDuration, NillableDuration, ObjectMeta, conditions, labels};
use whittle_claims::{Claim, DeletionReason, Event, Function, FunctionHealth, Revision, Sighting, Stored, step};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{Adapters, Clock, ClusterError, Mode, RecordReader, Records, Scope, Settings};
use whittle_sim::{SimPorts, Simulation};
use whittle_testkit::{InterceptedApiServer, Interceptor, NodePolicy, TestWorld, at, key, pool_named};
use whittle_units::{ClusterName, SignedDuration};

pub(super) fn still() -> TestWorld {
    TestWorld::still(at(0))
}

pub(super) fn sweep(simulation: &Simulation, settings: &Settings) -> whittle_ports::Report {
    sweep_over(&simulation.ports(), settings)
}

fn sweep_over(ports: &SimPorts, settings: &Settings) -> whittle_ports::Report {
    let adapters = Adapters::all(ports);
    block_on(crate::handle(adapters, settings, &ClusterName::new("c"))).unwrap()
}

pub(super) fn kept(simulation: &TestWorld) -> Claim {
    simulation.claim(&key("default-1"))
}

pub(super) fn with_pool(simulation: &TestWorld, node: Node) {
    simulation.create(pool_named("default"));
    simulation.create(node);
}

/// What a sweep tells of other functions.
fn told(simulation: &TestWorld, settings: &Settings) -> Vec<&'static str> {
    let report = sweep(simulation, settings);
    let others = ["whittle_schedule_silent", "whittle_refresh_fails"];
    report.gauges.iter().map(|gauge| gauge.metric).filter(|metric| others.contains(metric)).collect()
}

/// What sweeps tell of other functions, each a minute after the one before.
fn told_each_minute(simulation: &mut TestWorld, settings: &Settings, minutes: usize) -> Vec<Vec<&'static str>> {
    let minute = |_| {
        simulation.run_for(SignedDuration::from_mins(1));
        told(simulation, settings)
    };
    (0..minutes).map(minute).collect()
}

/// A run of `schedule` ends well.
fn renew(simulation: &TestWorld) {
    let (ports, cluster) = (simulation.ports(), ClusterName::new("c"));
    let known = block_on(ports.read::<FunctionHealth>(&cluster, Function::Schedule.name())).unwrap().unwrap();
    let next = FunctionHealth::renewed(Some(&known.value), Function::Schedule, ports.now()).unwrap();
    block_on(ports.write(&cluster, &next, known.revision)).unwrap();
}

const SILENT: &str = "whittle_schedule_silent";

#[test]
fn functions_that_do_not_go_on_are_told_also_in_shadow_mode() {
    for mode in [Mode::Active, Mode::Shadow] {
        let settings = Settings { mode, ..Settings::default() };
        let mut simulation = still();
        assert!(told(&simulation, &settings).is_empty(), "from now on schedule is waited for");
        assert_eq!(told_each_minute(&mut simulation, &settings, 9).concat(), Vec::<&str>::new());
        assert_eq!(told_each_minute(&mut simulation, &settings, 2), [[SILENT], [SILENT]], "{mode:?}");
        renew(&simulation);
        let (ports, cluster) = (simulation.ports(), ClusterName::new("c"));
        let failing = FunctionHealth { failing_since: Some(ports.now()), ..FunctionHealth::well(Function::Refresh, ports.now()) };
        block_on(ports.write(&cluster, &failing, Revision::ABSENT)).unwrap();
        assert!(told(&simulation, &settings).is_empty(), "both may be well soon");
        let last = told_each_minute(&mut simulation, &settings, 30).pop().unwrap();
        assert_eq!(last, [SILENT, "whittle_refresh_fails"], "{mode:?}");
    }
}

/// How many launch templates sweeps delete, each a minute after the one before.
fn templates_deleted(simulation: &mut TestWorld, minutes: usize) -> u64 {
    let minute = |_| {
        simulation.run_for(SignedDuration::from_mins(1));
        sweep(simulation, &Settings::default()).counted("templates_deleted")
    };
    (0..minutes).map(minute).sum()
}

/// `launch` takes one that it has just made to be there for some minutes. A second one was deleted in the first minute.
#[test]
fn a_launch_template_stays_for_ten_minutes_also_if_one_of_its_name_was_deleted_before() {
    let mut simulation = still();
    for _ in 0..3 {
        create_template(&simulation);
        assert_eq!((templates_deleted(&mut simulation, 10), templates_deleted(&mut simulation, 1)), (0, 1));
    }
}

#[test]
fn in_shadow_mode_a_sweep_ends_nothing_and_sends_no_doorbell() {
    let mut simulation = still();
    with_pool(&simulation, super::node(true));
    start_machine(&simulation);
    let mut claim = super::registered();
    claim.spec.expire_after = NillableDuration::from_secs(1);
    simulation.store(&claim);
    for _ in 0..3 {
        simulation.run_for(SignedDuration::from_mins(1));
        sweep(&simulation, &Settings { mode: Mode::Shadow, ..Settings::default() });
        assert_eq!(kept(&simulation), claim);
        assert!(simulation.doorbells().is_empty());
    }
    assert_eq!(sweep(&simulation, &Settings::default()).counted("ended"), 1, "it has expired");
}

/// The NodeClaim of another controller may be missing from a list.
#[test]
fn a_machine_whose_nodeclaim_a_request_by_name_finds_is_never_collected() {
    let collected = |owner: &str| {
        let simulation = still();
        simulation.create(NodeClaim { metadata: ObjectMeta::named("theirs"), ..NodeClaim::default() });
        let mut orphan = super::instance("i-9");
        orphan.tags.insert(labels::TAG_NODE_CLAIM.into(), owner.into());
        simulation.start_machine(orphan.clone());
        let findings = Findings { orphans: vec![orphan], ..Findings::default() };
        let (ports, cluster, objects) = (simulation.ports(), ClusterName::new("c"), ClusterObjects::default());
        let adapters = Adapters::all(&ports);
        let index = Index::of(&[], &[], &objects, &[]);
        let executor = Executor { ports: adapters, cluster: &cluster, index: &index, sightings: &[], failure: None };
        let mut report = whittle_ports::Report::default();
        block_on(executor.run(findings, &mut report)).unwrap();
        report.counted("collected")
    };
    assert_eq!((collected("theirs"), collected("another")), (0, 1));
}

/// After a rollback and another upgrade, or while schedules were disabled, the first sweep comes before the first run of `schedule`.
#[test]
fn a_schedule_that_nobody_called_for_a_while_is_told_only_if_later_sweeps_find_it_silent_too() {
    let settings = Settings::default();
    for goes_on in [true, false] {
        let mut simulation = still();
        assert!(told(&simulation, &settings).is_empty());
        // It was watched, and overdue, until nobody looked any more.
        assert_eq!(told_each_minute(&mut simulation, &settings, 9).concat(), Vec::<&str>::new());
        simulation.run_for(SignedDuration::from_mins(60));
        assert!(told(&simulation, &settings).is_empty(), "it is about to be called");
        if goes_on {
            renew(&simulation);
        }
        let told = told_each_minute(&mut simulation, &settings, 6);
        let first = told.iter().position(|told| !told.is_empty());
        assert_eq!(first, if goes_on { None } else { Some(3) }, "{told:?}");
    }
}

#[test]
fn an_unhealthy_and_lost_node_is_deleted_once_at_the_second_sweep() {
    let mut simulation = still();
    let mut node = super::node(false);
    node.status.conditions[0].last_transition_time = Some(at(0));
    with_pool(&simulation, node);
    simulation.store(&super::registered());
    let settings = Settings { node_repair: true, ..Settings::default() };
    simulation.run_for(SignedDuration::from_mins(31));
    sweep(&simulation, &settings);
    assert_eq!(kept(&simulation).deletion, None);
    simulation.run_for(SignedDuration::from_mins(1));
    let report = sweep(&simulation, &settings);
    let deletion = kept(&simulation).deletion.unwrap();
    // EC2 does not know the instance either, which takes precedence.
    assert_eq!((deletion.reason, report.counted("ended")), (DeletionReason::InstanceGone, 1));
}

#[test]
fn a_machine_whose_node_is_gone_ends_once_at_the_second_sweep() {
    let mut simulation = still();
    with_pool(&simulation, Node { metadata: ObjectMeta::named("other"), ..Node::default() });
    start_machine(&simulation);
    simulation.store(&super::registered());
    for ended in [0, 1, 0] {
        assert_eq!(sweep(&simulation, &Settings::default()).counted("ended"), ended);
        simulation.run_for(SignedDuration::from_mins(1));
    }
    assert_eq!(kept(&simulation).deletion.unwrap().reason, DeletionReason::Requested);
}

#[test]
fn a_machine_whose_node_lists_lack_and_a_request_by_name_finds_does_not_end() {
    let mut simulation = still();
    with_pool(&simulation, super::node(true));
    simulation.create(Node { metadata: ObjectMeta::named("other"), ..Node::default() });
    simulation.world().hide_always(Node::KIND, "n", false);
    start_machine(&simulation);
    simulation.store(&super::registered());
    for doubted in [0, 1, 1] {
        let report = sweep(&simulation, &Settings::default());
        assert_eq!((report.counted("ended"), report.counted("endings_doubted")), (0, doubted));
        simulation.run_for(SignedDuration::from_mins(1));
    }
    assert_eq!(kept(&simulation).deletion, None);
}

/// A Node that is left of a machine that has ended, as its claim has.
fn left_node() -> TestWorld {
    let simulation = still();
    let mut node = super::node(false);
    node.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
    with_pool(&simulation, node);
    simulation.store(&super::release::ended());
    simulation
}

#[test]
fn a_node_that_nobody_could_delete_is_deleted_once_ec2_has_denied_its_machine_twice() {
    let mut simulation = left_node();
    for released in [0, 0, 1, 0] {
        assert!(released == 0 || simulation.get::<Node>("n").is_some_and(|node| !node.metadata.is_deleting()));
        assert_eq!(sweep(&simulation, &Settings::default()).counted("nodes_released"), released);
        simulation.run_for(SignedDuration::from_mins(1));
    }
    assert!(simulation.get::<Node>("n").is_none());
}

/// What lets nobody delete Nodes: a policy, or a webhook that fails.
struct KeepsNodes {
    answers: bool,
}

impl Interceptor for KeepsNodes {
    fn delete_node(&self, name: &str, _: &str) -> Result<(), ClusterError> {
        let (cluster, what, message) = (ClusterName::new("c"), name.to_owned(), "failed calling webhook".to_owned());
        Err(if self.answers { NodePolicy::refusal(name) } else { ClusterError::Unavailable { cluster, what, message } })
    }
}

/// It may keep the Node for as long as the claim is remembered. A sweep that fails loses its report, and raises an alarm.
#[test]
fn a_policy_or_webhook_that_keeps_the_node_of_an_ended_machine_fails_no_sweep() {
    for answers in [true, false] {
        let mut simulation = left_node();
        for refused in [0, 0, 1, 1] {
            let ports = simulation.ports();
            let guarded = InterceptedApiServer { ports: &ports, interceptor: KeepsNodes { answers } };
            let report = block_on(crate::handle(guarded.adapters(), &Settings::default(), &ClusterName::new("c"))).unwrap();
            assert_eq!((report.counted("releases_refused"), report.counted("nodes_released")), (refused, 0));
            simulation.run_for(SignedDuration::from_mins(1));
        }
        assert!(simulation.get::<Node>("n").is_some_and(|node| !node.metadata.is_deleting()));
    }
}

fn nodes_of(simulation: &TestWorld) -> ClusterObjects {
    block_on(whittle_ports::ClusterReader::read(&simulation.ports(), &ClusterName::new("c"), Scope::Nodes, None)).unwrap()
}

/// Releases the Node of a look whose machine EC2 has denied before. How many are released.
fn release(simulation: &TestWorld, objects: &ClusterObjects) -> u64 {
    let (ports, cluster) = (simulation.ports(), ClusterName::new("c"));
    let denied = Sighting { subject: "node/n without machine in EC2".to_owned(), first_seen_at: at(0), expires_at: at(600) };
    let sightings = [Stored { value: denied, revision: Revision(1) }];
    let adapters = Adapters::all(&ports);
    let index = Index::of(&[], &[], objects, &[]);
    let executor = Executor { ports: adapters, cluster: &cluster, index: &index, sightings: &sightings, failure: None };
    let findings = Findings { release_nodes: vec!["n".to_owned()], ..Findings::default() };
    let mut report = whittle_ports::Report::default();
    block_on(executor.run(findings, &mut report)).unwrap();
    report.counted("nodes_released")
}

/// The name of a machine that has ended is given to a later one.
#[test]
fn a_node_that_nobody_has_deleted_goes_only_if_it_is_the_one_that_was_seen() {
    for (seen, released) in [("aws:///z/i-0", 0), ("aws:///z/i-1", 1)] {
        let mut simulation = left_node();
        simulation.run_until(at(60));
        let mut objects = nodes_of(&simulation);
        objects.nodes.iter_mut().filter(|node| node.metadata.name == "n").for_each(|node| node.spec.provider_id = seen.into());
        assert_eq!(release(&simulation, &objects), released);
        assert_eq!(simulation.get::<Node>("n").is_none(), released == 1);
    }
}

/// A single denial may be stale, and nothing is known of the time since one of long ago.
#[test]
fn a_node_is_let_go_by_a_second_denial_that_follows_neither_at_once_nor_much_later() {
    for (second, released) in [(29, 0), (30, 1), (599, 1), (600, 0)] {
        let mut simulation = left_node();
        simulation.run_until(at(second));
        let objects = nodes_of(&simulation);
        assert_eq!(release(&simulation, &objects), released, "at {second}");
        assert_eq!(simulation.get::<Node>("n").is_none(), released == 1, "at {second}");
    }
}

/// Labels the Node of a look as one on demand, and with its class: how often either was done, and how often it failed.
fn relabel(simulation: &TestWorld, objects: &ClusterObjects) -> [u64; 4] {
    let (ports, cluster) = (simulation.ports(), ClusterName::new("c"));
    let adapters = Adapters::all(&ports);
    let index = Index::of(&[], &[], objects, &[]);
    let executor = Executor { ports: adapters, cluster: &cluster, index: &index, sightings: &[], failure: None };
    let findings =
        Findings { demote_nodes: vec!["n".to_owned()], hydrate: vec![("n".to_owned(), "another-class".to_owned())], ..Findings::default() };
    let mut report = whittle_ports::Report::default();
    block_on(executor.run(findings, &mut report)).unwrap();
    ["nodes_demoted", "nodes_hydrated", "demotions_failed", "hydrations_failed"].map(|word| report.counted(word))
}

/// The Node that was read is gone, and another machine's has its name.
#[test]
fn a_node_is_relabelled_only_if_it_is_the_one_that_was_read() {
    for (is_another, counts, class) in [(false, [1, 1, 0, 0], "another-class"), (true, [0, 0, 1, 1], "default")] {
        let simulation = still();
        simulation.create(super::node(true));
        let mut objects = nodes_of(&simulation);
        objects.nodes.iter_mut().filter(|_| is_another).for_each(|node| node.metadata.uid = "another".into());
        assert_eq!(relabel(&simulation, &objects), counts);
        let meta = simulation.get::<Node>("n").unwrap().metadata;
        assert_eq!(meta.label(labels::EC2_NODE_CLASS), Some(class));
        assert_eq!(meta.label(labels::CAPACITY_TYPE), (!is_another).then_some(labels::CAPACITY_ON_DEMAND));
    }
}

/// An instance without the tag of the cluster is in no list of it.
#[test]
fn a_node_that_nobody_has_deleted_stays_while_its_machine_runs_under_other_tags() {
    let mut simulation = left_node();
    let mut instance = super::instance("i-1");
    instance.tags.clear();
    simulation.start_machine(instance);
    simulation.run_until(at(60));
    assert_eq!(release(&simulation, &nodes_of(&simulation)), 0);
    assert!(simulation.get::<Node>("n").is_some_and(|node| !node.metadata.is_deleting()));
}

/// Second 100 of a drain whose NodeClaim states this deadline.
fn stating(draining: &Claim, deadline: i64) -> TestWorld {
    let mut simulation = still();
    with_pool(&simulation, super::node(true));
    start_machine(&simulation);
    simulation.store(draining);
    let mut object = super::shown(draining);
    super::release::held(&mut object.metadata);
    object.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.into(), at(deadline).to_string());
    simulation.create(object);
    simulation.run_until(at(100));
    simulation
}

#[test]
fn a_deadline_that_a_user_brings_forward_is_no_notice_any_more() {
    let notice = super::registered().deletion_for(DeletionReason::SpotInterruption, "", at(40));
    let draining = step(&super::registered(), &Event::DeletionRequested(notice), at(40)).unwrap();
    for (stated, due, by_notice) in [(150, 150, false), (160, 160, true), (170, 160, true)] {
        let simulation = stating(&draining, stated);
        sweep(&simulation, &Settings::default());
        let deletion = kept(&simulation).deletion.unwrap();
        assert_eq!((deletion.deadline, deletion.is_due_by_notice()), (Some(at(due)), by_notice), "{stated}");
    }
}

#[test]
fn a_deadline_that_is_brought_forward_during_the_drain_is_stored_once() {
    let draining = step(&super::registered(), &super::deletion_requested(), at(20)).unwrap();
    let simulation = stating(&draining, 500);
    for ended in [1, 0] {
        assert_eq!(sweep(&simulation, &Settings::default()).counted("ended"), ended);
        let deletion = kept(&simulation).deletion.unwrap();
        assert_eq!((deletion.at, deletion.deadline), (at(10), Some(at(500))));
    }
}

/// It may be earlier or later than that of the terminationGracePeriod of a minute.
#[test]
fn an_expired_claim_keeps_the_deadline_that_its_nodeclaim_states() {
    for (stated, due) in [(Some(5000), 5000), (Some(110), 110), (None, 160)] {
        let mut simulation = still();
        with_pool(&simulation, super::node(true));
        start_machine(&simulation);
        let mut claim = super::registered();
        claim.spec.expire_after = NillableDuration::from_secs(50);
        claim.spec.termination_grace_period = Some(GoDuration::from_secs(60));
        simulation.store(&claim);
        let mut object = super::shown(&claim);
        object.metadata.annotations.extend(stated.map(|second| (labels::TERMINATION_TIMESTAMP.to_owned(), at(second).to_string())));
        simulation.create(object);
        simulation.run_until(at(100));
        sweep(&simulation, &Settings::default());
        let deletion = kept(&simulation).deletion.unwrap();
        assert_eq!((deletion.reason, deletion.deadline), (DeletionReason::Expired, Some(at(due))));
    }
}

/// A machine that runs with our tags; its id.
pub(super) fn start_machine(simulation: &TestWorld) -> whittle_units::InstanceId {
    simulation.start_machine(super::instance("i-1"))
}

#[test]
fn a_sweep_out_of_time_leaves_the_rest_to_the_next() {
    let mut simulation = still();
    with_pool(&simulation, Node::default());
    for number in 0..12 {
        let mut one = super::registered();
        one.key.name = format!("default-{number}").as_str().into();
        one.spec.expire_after = "1s".parse().unwrap();
        if let whittle_claims::Phase::Registered { machine, .. } = &mut one.phase {
            machine.instance_id = format!("i-{number}").as_str().into();
        }
        simulation.store(&one);
    }
    let ending = |simulation: &Simulation| {
        let world = simulation.world();
        let name = world.name();
        world.store.claims(&name).filter(|claim| claim.value.deletion.is_some()).count()
    };
    simulation.run_until(at(100));
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(100), SignedDuration::from_secs(5));
    sweep_over(&ports, &Settings::default());
    let first = ending(&simulation);
    assert!(first > 0 && first < 12, "{first}");
    assert!(ports.is_in_time(), "until {}", ports.now());
    sweep(&simulation, &Settings::default());
    assert_eq!(ending(&simulation), 12);
}

#[test]
fn an_unlisted_instance_that_ec2_shows_by_id_is_not_lost() {
    for runs in [true, false] {
        let mut simulation = still();
        with_pool(&simulation, super::node(false));
        let id = start_machine(&simulation);
        {
            // Without its tags the cluster's listing does not contain it.
            let mut world = simulation.world();
            let instance = &mut world.region.machines.get_mut(&id).unwrap().instance;
            instance.tags.clear();
            if !runs {
                instance.state = whittle_ec2::instance::InstanceState::Terminated;
            }
        }
        simulation.store(&super::registered());
        for _ in 0..3 {
            simulation.run_for(SignedDuration::from_mins(1));
            sweep(&simulation, &Settings::default());
        }
        let reason = kept(&simulation).deletion.map(|deletion| deletion.reason);
        assert_eq!(reason, (!runs).then_some(DeletionReason::InstanceGone));
    }
}

#[test]
fn an_instance_that_ended_before_its_node_joined_ends_its_claim_if_ec2_says_so_by_id() {
    let ended = Some((3, DeletionReason::InstanceGone));
    for (state, expected) in [(Some(InstanceState::Terminated), ended), (Some(InstanceState::Running), None), (None, None)] {
        let mut simulation = still();
        simulation.create(pool_named("default"));
        if let Some(state) = state {
            let id = start_machine(&simulation);
            let mut world = simulation.world();
            let instance = &mut world.region.machines.get_mut(&id).unwrap().instance;
            instance.tags.clear();
            instance.state = state;
        }
        simulation.store(&super::launched());
        let mut found = None;
        for minute in 1..10 {
            simulation.run_for(SignedDuration::from_mins(1));
            sweep(&simulation, &Settings::default());
            found = found.or_else(|| kept(&simulation).deletion.map(|deletion| (minute, deletion.reason)));
        }
        assert_eq!(found, expected, "{state:?}");
    }
}

#[test]
fn an_instance_is_not_lost_while_its_unlisted_node_exists() {
    for is_there in [true, false] {
        let mut simulation = still();
        with_pool(&simulation, super::node(true));
        simulation.store(&super::registered());
        let name = super::node(true).metadata.name;
        if is_there {
            simulation.world().hide_always(Node::KIND, &name, false);
        } else {
            let mut world = simulation.world();
            let now = world.now();
            assert!(world.cluster.objects.delete::<Node>(&name, now));
        }
        for _ in 0..3 {
            simulation.run_for(SignedDuration::from_mins(1));
            sweep(&simulation, &Settings::default());
        }
        let reason = kept(&simulation).deletion.map(|deletion| deletion.reason);
        assert_eq!(reason, (!is_there).then_some(DeletionReason::InstanceGone));
    }
}

#[test]
fn a_node_of_another_machine_with_the_same_name_keeps_no_claim() {
    let mut simulation = still();
    let mut another = super::node(true);
    another.spec.provider_id = "aws:///z/i-2".into();
    with_pool(&simulation, another);
    simulation.store(&super::registered());
    for _ in 0..3 {
        simulation.run_for(SignedDuration::from_mins(1));
        sweep(&simulation, &Settings::default());
    }
    assert_eq!(kept(&simulation).deletion.map(|deletion| deletion.reason), Some(DeletionReason::InstanceGone));
}

/// Whether the NodeClaim and the Node of an unlisted machine, held only by our finalizer, still exist
/// after `sweeps`. A NodeClaim that names no machine is matched by the instance's tag.
fn held_after(sweeps: u32, names_machine: bool, change: fn(&mut Instance)) -> (bool, bool) {
    let mut simulation = still();
    let id = start_machine(&simulation);
    {
        let mut world = simulation.world();
        let instance = &mut world.region.machines.get_mut(&id).unwrap().instance;
        instance.tags.insert(labels::TAG_NODE_CLAIM.into(), "default-1".into());
        change(instance);
        world.faults.ec2_lag = 1;
        world.unlist(&id, SignedDuration::from_hours(1));
    }
    let mut object = super::shown(&super::registered());
    if !names_machine {
        object.status.provider_id.clear();
    }
    let mut node = super::node(false);
    super::release::held(&mut object.metadata);
    super::release::held(&mut node.metadata);
    simulation.create(object);
    simulation.create(node);
    for _ in 0..sweeps {
        sweep(&simulation, &Settings::default());
        simulation.run_for(SignedDuration::from_mins(1));
    }
    let world = simulation.world();
    let objects = &world.cluster.objects;
    (objects.get::<NodeClaim>("default-1").is_some(), objects.get::<Node>("n").is_some())
}

#[test]
fn no_finalizer_is_removed_while_ec2_shows_the_instance_by_id() {
    assert_eq!(held_after(9, true, |_| ()), (true, true));
    assert_eq!(held_after(9, false, |_| ()), (true, true));
    assert_eq!(held_after(9, true, |instance| instance.state = InstanceState::ShuttingDown), (true, true));
}

#[test]
fn deletion_does_not_wait_for_terminated_or_foreign_instances() {
    let ended = |instance: &mut whittle_ec2::instance::Instance| instance.state = InstanceState::Terminated;
    let anothers = |instance: &mut whittle_ec2::instance::Instance| {
        instance.tags.insert(labels::TAG_CLUSTER.into(), "another".into());
    };
    let untagged = |instance: &mut whittle_ec2::instance::Instance| instance.tags.clear();
    for names_machine in [true, false] {
        for change in [ended, anothers, untagged] as [fn(&mut Instance); 3] {
            assert_eq!(held_after(2, names_machine, change), (true, true), "one response of EC2 may be stale");
            assert_eq!(held_after(3, names_machine, change), (false, false));
        }
    }
}

/// What the Events on a pool say of its readiness.
fn readiness_events(simulation: &TestWorld) -> Vec<String> {
    let world = simulation.world();
    let events = world.cluster.events.iter().map(|kept| &kept.event);
    let ready = events.filter(|event| event.kind == NodePool::KIND && event.reason == conditions::READY);
    ready.map(|event| event.message.clone()).collect()
}

#[test]
fn a_pool_that_is_not_ready_says_so_once() {
    let mut simulation = still();
    with_pool(&simulation, super::node(true));
    for _ in 0..3 {
        sweep(&simulation, &Settings::default());
        let events = readiness_events(&simulation);
        let [only] = &events[..] else { panic!("{events:?}") };
        assert!(only.starts_with("Status condition transitioned, Type: Ready, Status: Unknown -> False, Reason: Unhealthy"), "{only}");
        assert!(only.ends_with("NodeClassReady=False"), "{only}");
        simulation.run_for(SignedDuration::from_mins(1));
    }
}

#[test]
fn a_pool_that_stops_being_ready_says_so() {
    let simulation = still();
    with_pool(&simulation, super::node(true));
    simulation.change::<NodePool>("default", |pool| {
        conditions::set(&mut pool.status.conditions, conditions::READY, ConditionStatus::True, conditions::READY, "", at(0));
    });
    sweep(&simulation, &Settings::default());
    let events = readiness_events(&simulation);
    assert!(matches!(&events[..], [only] if only.contains("Status: True -> False")), "{events:?}");
}

#[test]
fn a_provisioner_keeps_no_status_and_has_no_events_of_it() {
    let simulation = still();
    let mut provisioner = pool_named("Provisioner/default");
    provisioner.metadata.annotations.insert(labels::CONVERTED_FROM.into(), "Provisioner".into());
    simulation.create(provisioner);
    sweep(&simulation, &Settings::default());
    let world = simulation.world();
    let said = world.cluster.events.iter().filter(|kept| kept.event.message.starts_with("Status condition transitioned")).count();
    assert_eq!(said, 0);
}
