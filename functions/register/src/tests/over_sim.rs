//! The whole handler over the memory adapters, in a world where only the test acts.

use super::{claim, node, ready};
use crate::turn::Turn;
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use whittle_api::conditions::{self, INITIALIZED, NODE_REGISTRATION_HEALTHY, REGISTERED};
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ConditionStatus, ObjectMeta, labels};
use whittle_claims::{Claim, DeletionReason, Event, MeasuredMemory, Phase, Revision, mirror, step};
use whittle_ec2::instance::Instance;
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{
    Adapters, ClaimStore, Clock, ClusterError, Disposition, HandleError, NodePatch, RecordReader, Records, Report, Scope, Settings,
};
use whittle_sim::SimPorts;
use whittle_testkit::{InterceptedApiServer, Interceptor, NodePolicy, TestWorld, instance_of, pool_named, pool_owner};
use whittle_units::{ClusterName, Quantity, SignedDuration};

/// A world with a pool, at the creation time of the tests' claims.
pub(super) fn still() -> TestWorld {
    let simulation = TestWorld::still(super::now());
    simulation.create(pool_named("default"));
    simulation
}

pub(super) fn owned(mut claim: Claim, name: &str) -> Claim {
    claim.key.name = name.into();
    claim.spec.owner = pool_owner();
    claim
}

fn run(simulation: &TestWorld) -> Report {
    run_over(&simulation.ports())
}

pub(super) fn run_over(ports: &SimPorts) -> Report {
    let adapters = Adapters::all(ports);
    block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c"))).unwrap()
}

/// Status and reason of a condition of the pool.
fn health(simulation: &TestWorld) -> Option<(ConditionStatus, String)> {
    let world = simulation.world();
    let pool = world.cluster.objects.get::<NodePool>("default").unwrap();
    conditions::find(&pool.status.conditions, NODE_REGISTRATION_HEALTHY).map(|shown| (shown.status, shown.reason.clone()))
}

/// What the metric of machines that never joined counts.
fn never_joined(report: &Report) -> u64 {
    report.metrics.iter().filter(|one| one.metric == "whittle_nodeclaims_never_joined_total").map(|one| one.by).sum()
}

fn planned(name: &str) -> Claim {
    let fresh = claim();
    owned(Claim::planned(fresh.key, "uid".into(), fresh.spec, super::now()), name)
}

#[test]
fn two_launch_timeouts_make_the_pool_unhealthy() {
    let mut simulation = still();
    let erred = Event::LaunchErred { reason: "UnauthorizedOperation".into(), message: "no".into() };
    simulation.store(&step(&planned("a"), &erred, super::now()).unwrap());
    simulation.run_for(SignedDuration::from_secs(299));
    assert_eq!(run(&simulation).counted("given_up"), 0);
    simulation.run_for(SignedDuration::from_secs(1));
    let report = run(&simulation);
    assert_eq!((report.counted("given_up"), never_joined(&report)), (1, 0), "there was no machine that could have joined");
    assert_eq!(simulation.claim(&planned("a").key).deletion.unwrap().reason, DeletionReason::LaunchTimeout);
    assert_eq!(health(&simulation), None, "one failure proves nothing, and the class of the pool was never seen");
    run(&simulation);
    simulation.store(&step(&planned("b"), &erred, super::now()).unwrap());
    run(&simulation);
    assert_eq!(health(&simulation).unwrap(), (ConditionStatus::False, "UnauthorizedOperation".into()));
}

#[test]
fn a_claim_that_is_given_up_says_what_its_launch_or_its_node_lacked() {
    let of = |claim: &Claim| {
        let mut simulation = still();
        simulation.store(claim);
        simulation.run_for(SignedDuration::from_mins(15));
        let report = run(&simulation);
        let decided = report.decisions.iter().map(|decision| decision.message.clone()).collect::<Vec<_>>();
        let message = simulation.claim(&claim.key).deletion.unwrap().message;
        assert_eq!(decided, std::slice::from_ref(&message));
        message
    };
    let text = "EC2 refused the launch: InvalidParameterValue: no";
    let erred = Event::LaunchErred { reason: "LaunchFailed".into(), message: text.into() };
    let refused = step(&planned("a"), &erred, super::now()).unwrap();
    assert_eq!(of(&refused), format!("no machine was launched in time: {text}"));
    assert_eq!(of(&planned("a")), "no machine was launched in time");
    assert_eq!(of(&owned(claim(), "a")), "no node joined in time");
    let mut twins = owned(claim(), "a");
    twins.note(REGISTERED, ConditionStatus::False, "MultipleNodesFound", "several Nodes", super::now());
    assert_eq!(of(&twins), "no node joined in time: several Nodes");
}

#[test]
fn registration_timeouts_make_the_pool_unhealthy_and_one_success_does_not_heal_it() {
    let mut simulation = still();
    let id = |claim: &mut Claim, id: &str| {
        if let Phase::Launched { machine } = &mut claim.phase {
            machine.instance_id = id.into();
            machine.provider_id = whittle_units::ProviderId::of_instance("z", &machine.instance_id);
        }
    };
    for name in ["a", "b"] {
        let mut silent = owned(claim(), name);
        id(&mut silent, &format!("i-{name}"));
        simulation.store(&silent);
    }
    simulation.run_for(SignedDuration::from_mins(15));
    let report = run(&simulation);
    assert_eq!(never_joined(&report), 2, "an alarm is based on it");
    assert_eq!(simulation.claim(&planned("a").key).deletion.unwrap().reason, DeletionReason::RegistrationTimeout);
    assert_eq!(health(&simulation).unwrap(), (ConditionStatus::False, "RegistrationFailed".into()));
    let mut joins = owned(claim(), "c");
    joins.conditions.iter_mut().for_each(|condition| condition.last_transition_time = Some(simulation.world().now()));
    simulation.store(&joins);
    simulation.create(node());
    run(&simulation);
    assert_eq!(health(&simulation).unwrap().0, ConditionStatus::False, "two of the last four failed");
}

#[test]
fn a_node_that_joins_makes_its_pool_healthy_once() {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    simulation.create(ready(node()));
    let report = run(&simulation);
    assert_eq!((report.counted("registered"), report.counted("initialized")), (1, 0), "its startup taints still exist");
    assert_eq!(health(&simulation).unwrap().0, ConditionStatus::True);
    assert_eq!(run(&simulation).counted("registered"), 0);
}

#[test]
fn claims_of_a_deleted_pool_do_not_change_the_health_of_its_successor() {
    let simulation = still();
    let mut stranger = owned(claim(), "a");
    stranger.spec.owner.uid = "of-the-old-pool".into();
    simulation.store(&stranger);
    simulation.create(node());
    assert_eq!(run(&simulation).counted("registered"), 1);
    assert_eq!(health(&simulation), None);
}

#[test]
fn a_claim_registers_without_its_pool() {
    let simulation = still();
    let now = super::now();
    simulation.world().cluster.objects.delete::<NodePool>("default", now);
    simulation.store(&owned(claim(), "a"));
    simulation.create(node());
    assert_eq!(run(&simulation).counted("registered"), 1);
}

#[test]
fn two_nodes_with_one_provider_id_do_not_register() {
    let (mut simulation, twins) = twins();
    assert_eq!(simulation.claim(&twins.key).phase.name(), "Launched");
    simulation.run_for(SignedDuration::from_mins(15));
    run(&simulation);
    assert_eq!(simulation.claim(&twins.key).deletion.unwrap().reason, DeletionReason::RegistrationTimeout);
    run(&simulation);
    assert_eq!(simulation.claim(&twins.key).node_name(), None, "it is unclear which one is the machine's, so none is drained");
}

/// Two Nodes carry the provider id of one machine, and `register` has seen them.
fn twins() -> (TestWorld, Claim) {
    let simulation = still();
    let twins = owned(claim(), "a");
    simulation.store(&twins);
    let named = |name: &str| Node { metadata: ObjectMeta::named(name), ..node() };
    simulation.create(named("n"));
    simulation.create(named("m"));
    run(&simulation);
    (simulation, twins)
}

#[test]
fn a_duplicate_node_that_is_deleted_before_the_timeout_ends_no_machine() {
    let (mut simulation, twins) = twins();
    let shown = |simulation: &TestWorld| conditions::find(&simulation.claim(&twins.key).conditions, REGISTERED).cloned().unwrap();
    assert_eq!((shown(&simulation).status, shown(&simulation).reason.as_str()), (ConditionStatus::False, "MultipleNodesFound"));
    let now = super::now();
    simulation.world().cluster.objects.delete::<Node>("m", now);
    run(&simulation);
    assert_eq!(shown(&simulation).status, ConditionStatus::False, "not retried before the timeout");
    assert_eq!(simulation.claim(&twins.key).deletion, None);
    simulation.run_for(SignedDuration::from_mins(15));
    run(&simulation);
    let after = simulation.claim(&twins.key);
    assert_eq!((after.deletion.as_ref(), after.node_name()), (None, Some("n")), "the remaining one registers");
    assert_eq!(shown(&simulation).status, ConditionStatus::True);
}

#[test]
fn a_node_without_a_provider_id_is_ignored() {
    let simulation = still();
    let waiting = owned(claim(), "a");
    simulation.store(&waiting);
    let mut nameless = node();
    nameless.spec.provider_id.clear();
    simulation.create(nameless.clone());
    run(&simulation);
    assert_eq!(simulation.claim(&waiting.key).phase.name(), "Launched");
    let world = simulation.world();
    let there = world.cluster.objects.get::<Node>("n").unwrap();
    assert_eq!((&there.spec, &there.metadata.labels), (&nameless.spec, &nameless.metadata.labels), "it is unchanged");
}

#[test]
fn removed_labels_and_taints_of_a_registered_node_are_not_restored() {
    let simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(mirror(&own));
    simulation.create(ready(node()));
    run(&simulation);
    simulation.world().cluster.objects.change::<Node>("n", |node| {
        assert_eq!(node.metadata.owner_references.len(), 1);
        assert_eq!(node.spec.taints.len(), 2);
        node.spec.taints.clear();
        node.metadata.labels.remove("team");
    });
    let report = run(&simulation);
    assert_eq!(report.counted("initialized"), 1);
    let world = simulation.world();
    let node = world.cluster.objects.get::<Node>("n").unwrap();
    assert!(node.spec.taints.is_empty(), "a removed startup taint is not restored");
    assert_eq!((node.metadata.label("team"), node.metadata.label(labels::INITIALIZED)), (None, Some("true")));
    let shown = world.cluster.objects.get::<NodeClaim>("a").unwrap();
    assert!(conditions::is_true(&shown.status.conditions, INITIALIZED));
    assert_eq!(shown.status.node_name, "n");
}

/// The run that registered the Node died before it stored that, or the table was restored to a time before.
#[test]
fn a_node_that_serves_already_gets_no_startup_taint_again() {
    let simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(ready(node()));
    run(&simulation);
    simulation.change::<Node>("n", |node| node.spec.taints.clear());
    let stored = block_on(simulation.ports().get(&own.key)).unwrap().unwrap();
    block_on(simulation.ports().update(&own, stored.revision)).unwrap();
    let report = run(&simulation);
    assert_eq!((report.counted("registered"), report.counted("initialized")), (1, 1));
    assert!(simulation.get::<Node>("n").unwrap().spec.taints.is_empty(), "one with NoExecute would evict its pods");
    assert_eq!(simulation.claim(&own.key).phase.name(), "Initialized");
}

#[test]
fn a_node_that_becomes_unready_stays_initialized() {
    let simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(ready(node()));
    run(&simulation);
    simulation.world().cluster.objects.change::<Node>("n", |node| node.spec.taints.clear());
    run(&simulation);
    simulation.world().cluster.objects.change::<Node>("n", |node| node.status.conditions[0].status = ConditionStatus::False);
    run(&simulation);
    assert!(conditions::is_true(&simulation.claim(&own.key).conditions, INITIALIZED));
}

#[test]
fn a_startup_taint_that_is_never_removed_ends_no_machine() {
    let mut simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(ready(node()));
    run(&simulation);
    simulation.run_for(SignedDuration::from_hours(24));
    run(&simulation);
    let after = simulation.claim(&own.key);
    assert_eq!((after.phase.name(), after.deletion), ("Registered", None));
    let reason = conditions::find(&after.conditions, INITIALIZED).unwrap().reason.clone();
    assert_eq!(reason, "StartupTaintsExist");
}

#[test]
fn a_run_out_of_time_leaves_the_rest_to_the_next() {
    let simulation = still();
    for number in 0..40 {
        let mut one = owned(claim(), &format!("c-{number}"));
        if let Phase::Launched { machine } = &mut one.phase {
            machine.instance_id = format!("i-{number}").as_str().into();
            machine.provider_id = format!("aws:///z/i-{number}").as_str().into();
        }
        simulation.store(&one);
        let mut joined = Node { metadata: ObjectMeta::named(format!("n-{number}")), ..node() };
        joined.spec.provider_id = format!("aws:///z/i-{number}");
        simulation.create(joined);
    }
    let mut registered = 0;
    for _ in 0..4 {
        let ports = simulation.ports().with_time_left(SignedDuration::from_millis(50), SignedDuration::from_secs(4));
        let report = run_over(&ports);
        let done = report.counted("registered");
        assert!(done > 0 && ports.is_in_time(), "{done} of them until {}", ports.now());
        registered += done;
        if registered == 40 {
            return;
        }
        assert_eq!(report.counted("handed_over"), 1);
        assert_eq!(simulation.world().queues.waiting().count(), 1, "another run is scheduled");
    }
    panic!("only {registered} of 40 registered");
}

/// The turn of `owner` until `seconds` after the start of the tests.
fn turn(simulation: &TestWorld) -> Option<serde_json::Value> {
    let stored = block_on(RecordReader::read::<Turn>(&simulation.ports(), &ClusterName::new("c"), "turn")).unwrap();
    stored.map(|stored| serde_json::to_value(stored.value).unwrap())
}

pub(super) fn set_turn(simulation: &TestWorld, owner: &str, seconds: i64) {
    let value = serde_json::json!({"owner": owner, "until": super::now() + SignedDuration::from_secs(seconds), "again": false});
    let turn: Turn = serde_json::from_value(value).unwrap();
    block_on(Records::write(&simulation.ports(), &ClusterName::new("c"), &turn, Revision::ABSENT)).unwrap();
}

#[test]
fn a_run_leaves_its_work_to_one_that_works_already_and_tells_it_to_look_again() {
    let mut simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(node());
    set_turn(&simulation, "another", 10);
    for _ in 0..2 {
        let report = run(&simulation);
        assert_eq!((report.counted("left_to_another_run"), report.counted("registered")), (1, 0));
    }
    let left = turn(&simulation).unwrap();
    assert_eq!((left["owner"].as_str(), left["again"].as_bool()), (Some("another"), Some(true)));
    // The other one died: nothing waits for it longer than its turn.
    simulation.run_for(SignedDuration::from_secs(10));
    assert_eq!(run(&simulation).counted("registered"), 1);
    let ended = turn(&simulation).unwrap();
    assert_eq!((ended["again"].as_bool(), ended["owner"].as_str()), (Some(false), Some("")));
}

#[test]
fn a_run_that_fails_before_it_looks_keeps_nobody_waiting() {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    simulation.create(node());
    set_turn(&simulation, "one that died", 0);
    let ports = simulation.ports();
    // The turn is read, the claims are listed, the turn is read and taken over, and what was rung for meanwhile is to be listed.
    let store = Faulty::scripted(&ports, [None, None, None, None, Some(Fault::Throttle)]);
    let adapters = Adapters { store: &store, cloud: &ports, cluster: &ports, queues: &ports, clock: &ports };
    let run = || block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c")));
    assert_eq!(run().unwrap_err().disposition(), Disposition::RetryLater);
    assert_eq!(turn(&simulation).unwrap()["owner"], "");
    assert_eq!(run().unwrap().counted("registered"), 1, "its message comes again within seconds");
}

#[test]
fn a_run_without_work_takes_no_turn() {
    let simulation = still();
    run(&simulation);
    assert_eq!(turn(&simulation), None);
}

/// The memory that is stored after a node has reported `reported` instead of `estimated`, in MiB.
fn measured(estimated: i64, reported: i64) -> Option<MeasuredMemory> {
    let simulation = still();
    let mut own = owned(claim(), "a");
    own.spec.startup_taints.clear();
    let Phase::Launched { machine } = &mut own.phase else { panic!("{:?}", own.phase) };
    machine.capacity.set("memory", Quantity::from_mebibytes(estimated));
    simulation.store(&own);
    let mut node = ready(node());
    node.status.capacity.set("memory", Quantity::from_mebibytes(reported));
    simulation.create(node);
    assert_eq!(run(&simulation).counted("initialized"), 1);
    block_on(RecordReader::read::<MeasuredMemory>(&simulation.ports(), &own.key.cluster, "ami")).unwrap().map(|stored| stored.value)
}

#[test]
fn reported_memory_is_stored_by_type_and_image() {
    let known = measured(7577, 7690).unwrap();
    assert_eq!(known.by_type, [("m5.large".to_owned(), Quantity::from_mebibytes(7690))].into());
}

#[test]
fn much_less_memory_of_one_node_is_stored_beside_what_types_are_planned_with() {
    let known = measured(7577, 5000).unwrap();
    assert_eq!((known.by_type.len(), known.small_memory["m5.large"].amount), (0, Quantity::from_mebibytes(5000)));
}

#[test]
fn implausible_reported_memory_is_ignored() {
    for reported in [0, 1, 3788, 15_155] {
        assert_eq!(measured(7577, reported), None, "{reported}");
    }
}

/// A claim in a partitioned placement group whose partition EC2 chooses, with its machine and its Node.
fn placed(simulation: &TestWorld, partition: Option<u32>) -> Claim {
    let mut own = owned(claim(), "a");
    let Phase::Launched { machine } = &mut own.phase else { panic!("{:?}", own.phase) };
    machine.labels.insert(labels::PLACEMENT_GROUP_ID.into(), "pg-1".into());
    machine.labels.insert(labels::PLACEMENT_GROUP_PARTITION.into(), String::new());
    simulation.store(&own);
    simulation.create(node());
    set_partition(simulation, &own, partition);
    own
}

/// Sets the partition that EC2 reports for the instance.
fn set_partition(simulation: &TestWorld, claim: &Claim, partition: Option<u32>) {
    let placed = Instance { placement_group: Some("pg-1".into()), partition, ..instance_of(claim.machine().unwrap()) };
    simulation.start_machine(placed);
}

#[test]
fn a_node_gets_the_partition_that_ec2_chose_with_its_other_labels() {
    let simulation = still();
    let own = placed(&simulation, Some(2));
    assert_eq!(run(&simulation).counted("registered"), 1);
    assert_eq!(simulation.claim(&own.key).machine().unwrap().labels[labels::PLACEMENT_GROUP_PARTITION], "2");
    let world = simulation.world();
    let node = world.cluster.objects.get::<Node>("n").unwrap();
    assert_eq!(node.metadata.label(labels::PLACEMENT_GROUP_PARTITION), Some("2"));
    assert_eq!(node.metadata.label(labels::REGISTERED), Some("true"));
}

#[test]
fn a_node_is_never_registered_without_its_partition() {
    let mut simulation = still();
    let own = placed(&simulation, None);
    assert_eq!(run(&simulation).counted("registered"), 0);
    let waiting = simulation.claim(&own.key);
    assert!(matches!(waiting.phase, Phase::Launched { .. }) && waiting.awaits_partition());
    let condition = conditions::find(&waiting.conditions, REGISTERED).unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::Unknown, "PlacementGroupPartitionUnknown"));
    let labels_of_node = simulation.world().cluster.objects.get::<Node>("n").unwrap().metadata.labels.clone();
    assert_eq!(labels_of_node.get(labels::REGISTERED), None, "no pod is bound before the label is set");
    assert!(simulation.doorbells().contains(&whittle_sim::Function::Register), "another run is scheduled");
    set_partition(&simulation, &own, Some(1));
    simulation.run_for(SignedDuration::from_secs(5));
    assert_eq!(run(&simulation).counted("registered"), 1);
}

#[test]
fn missing_tags_are_added_to_an_instance_once() {
    let simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(ready(node()));
    let launched = own.machine().unwrap();
    let tags = [(labels::TAG_NAME.to_owned(), "the user's".to_owned())].into();
    simulation.start_machine(Instance { tags, ..instance_of(launched) });
    assert_eq!(run(&simulation).counted("tagged"), 1);
    let tags = simulation.world().region.machines[&launched.instance_id].instance.tags.clone();
    let of = |key| tags.get(key).map(String::as_str);
    assert_eq!((of(labels::TAG_NAME), of(labels::TAG_NODE_CLAIM), of(labels::TAG_CLUSTER)), (Some("the user's"), Some("a"), Some("c")));
    let kept = simulation.claim(&own.key);
    assert_eq!(kept.annotations[labels::INSTANCE_TAGGED], "true");
    assert_eq!(run(&simulation).counted("tagged"), 0);
}

/// A machine with this many tags of its class, and two of AWS's, after a run that tags it: its tags, and what Events say of them.
fn tagged_beside(count: usize) -> (TestWorld, BTreeMap<String, String>, Vec<String>) {
    let simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(ready(node()));
    let launched = own.machine().unwrap();
    let of_class = (0..count).map(|number| format!("k{number:02}"));
    let all = of_class.chain(["aws:ec2:fleet-id".to_owned(), "aws:ec2launchtemplate:id".to_owned()]);
    simulation.start_machine(Instance { tags: all.map(|key| (key, String::new())).collect(), ..instance_of(launched) });
    assert_eq!(run(&simulation).counted("tagged"), 1);
    let tags = simulation.world().region.machines[&launched.instance_id].instance.tags.clone();
    let events = simulation.world().cluster.events.clone();
    let told = events.into_iter().filter(|kept| kept.event.reason == "TagsLeftOut").map(|kept| kept.event.message).collect();
    (simulation, tags, told)
}

#[test]
fn a_tag_that_an_instance_has_no_room_for_is_left_out_and_said_once() {
    let (simulation, tags, told) = tagged_beside(48);
    assert!(tags.contains_key(labels::TAG_CLUSTER) && tags.contains_key(labels::TAG_NODE_CLAIM) && !tags.contains_key(labels::TAG_NAME));
    assert!(told.len() == 1 && told[0].contains("no tag Name") && told[0].contains("spec.tags"), "{told:?}");
    let report = run(&simulation);
    assert_eq!((report.counted("tagged"), report.counted("tags_failed")), (0, 0), "it is not tried again");
    let (_, tags, told) = tagged_beside(47);
    assert!(tags.contains_key(labels::TAG_NAME) && told.is_empty(), "tags of AWS do not count: {told:?}");
}

#[test]
fn an_instance_that_may_not_be_tagged_is_tried_again() {
    let simulation = unnamed(2, true);
    simulation.world().region.denied.insert("CreateTags");
    assert_eq!(run(&simulation).counted("tags_failed"), 2);
    simulation.world().region.denied.clear();
    assert_eq!(run(&simulation).counted("tagged"), 2);
}

/// A world with this many initialized claims whose instances lack tags; EC2 shows them or does not.
fn unnamed(count: usize, shown: bool) -> TestWorld {
    let simulation = still();
    for number in 0..count {
        let mut own = owned(claim(), &format!("claim-{number:02}"));
        let id = format!("i-{number:02}");
        if let Phase::Launched { machine } = &mut own.phase {
            machine.instance_id = id.as_str().into();
        }
        let joined = step(&own, &Event::NodeJoined { node_name: format!("n-{number:02}") }, super::now()).unwrap();
        let own = step(&joined, &Event::NodeReady, super::now()).unwrap();
        simulation.store(&own);
        if shown {
            simulation.start_machine(instance_of(own.machine().unwrap()));
        }
    }
    simulation
}

#[test]
fn machines_that_wait_for_tags_get_them_in_runs_that_follow_each_other() {
    let mut simulation = unnamed(60, true);
    assert_eq!(run(&simulation).counted("tagged"), 50);
    assert!(simulation.doorbells().contains(&whittle_sim::Function::Register), "the others need not wait for a tick");
    simulation.run_for(SignedDuration::from_secs(5));
    assert_eq!(run(&simulation).counted("tagged"), 10);
}

#[test]
fn tags_wait_while_other_clusters_use_the_accounts_limit() {
    let mut simulation = unnamed(60, true);
    let now = simulation.world().now();
    let bucket = whittle_claims::BucketName("CreateTags".to_owned());
    assert!(simulation.world().store.take_tokens(&bucket, &whittle_claims::Bucket::full(100, 10, now), 80, now));
    let report = run(&simulation);
    assert_eq!((report.counted("tagged"), report.counted("tags_postponed")), (0, 1));
    assert!(simulation.doorbells().contains(&whittle_sim::Function::Register), "they are not forgotten");
    simulation.run_for(SignedDuration::from_secs(5));
    assert_eq!(run(&simulation).counted("tagged"), 50);
}

#[test]
fn instances_that_can_never_be_tagged_do_not_keep_others_from_it() {
    let mut simulation = unnamed(120, false);
    let last = simulation.world().store.claims(&"c".into()).last().unwrap().value.machine().unwrap().clone();
    simulation.start_machine(instance_of(&last));
    let mut tagged = 0;
    for _ in 0..40 {
        tagged += run(&simulation).counted("tagged");
        simulation.run_for(SignedDuration::from_secs(7));
    }
    assert_eq!(tagged, 1);
}

#[test]
fn tags_that_cannot_be_written_cause_no_further_run() {
    let simulation = unnamed(60, false);
    assert_eq!(run(&simulation).counted("tagged"), 0);
    assert!(!simulation.doorbells().contains(&whittle_sim::Function::Register), "it would fail every five seconds");
}

#[test]
fn a_machine_whose_node_cannot_be_read_does_not_time_out() {
    let overdue = |hidden: bool| {
        let mut simulation = still();
        let claim = owned(claim(), "a");
        simulation.store(&claim);
        let mut node = Node { metadata: whittle_api::ObjectMeta::named("n"), ..Node::default() };
        node.spec.provider_id = claim.machine().unwrap().provider_id.as_str().into();
        if hidden {
            simulation.create(node);
            simulation.world().hide_always("Node", "n", true);
        }
        simulation.run_for(SignedDuration::from_mins(20));
        run(&simulation);
        simulation.claim(&planned("a").key).deletion
    };
    assert!(overdue(false).is_some());
    assert_eq!(overdue(true), None);
}

#[test]
fn a_claim_without_a_node_has_a_condition() {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    run(&simulation);
    let claim = simulation.claim(&planned("a").key);
    let registered = conditions::find(&claim.conditions, REGISTERED).unwrap();
    assert_eq!((registered.status, registered.reason.as_str()), (ConditionStatus::Unknown, "NodeNotFound"));
    assert_eq!((claim.phase.name(), claim.deletion), ("Launched", None));
}

/// A Node whose changes a policy refuses.
const REFUSED: &str = "refused";

/// An API server that reports a conflict for the first writes of Nodes, and remembers of which uid and version the Nodes should be.
struct Contention<'a> {
    ports: &'a SimPorts,
    /// Writes that are yet to meet a conflict.
    conflicts: AtomicU32,
    patches: Mutex<Vec<(String, String)>>,
    /// Reads during which another run is yet to be rung for.
    rung: AtomicU32,
    reads: AtomicU32,
    /// Those beyond fail.
    reads_max: u32,
}

/// Whether one is left, which is then used up.
fn is_left(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

impl Interceptor for Contention<'_> {
    async fn read(&self, cluster: &ClusterName, scope: Scope) -> Result<(), ClusterError> {
        if scope != Scope::NodesAndClaims {
            return Ok(());
        }
        if self.reads.fetch_add(1, Ordering::Relaxed) >= self.reads_max {
            return Err(ClusterError::Unavailable { cluster: cluster.clone(), what: "Nodes".into(), message: "it restarts".into() });
        }
        if is_left(&self.rung) {
            assert!(Turn::take(Adapters::all(self.ports), cluster).await.is_none(), "this run has the turn");
        }
        Ok(())
    }
    fn patch_node(&self, name: &str, resource_version: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        self.patches.lock().unwrap().push((patch.uid.clone(), resource_version.to_owned()));
        if name == REFUSED {
            return Err(NodePolicy::refusal(name));
        }
        if is_left(&self.conflicts) {
            return Err(ClusterError::Conflict { what: format!("Node {name}") });
        }
        Ok(())
    }
}

type Contended<'a> = InterceptedApiServer<'a, Contention<'a>>;

/// `conflicts` is how many writes of Nodes meet one, `rung` during how many reads another run is rung for.
fn contended(ports: &SimPorts, conflicts: u32, rung: u32) -> Contended<'_> {
    let (conflicts, rung, reads) = (AtomicU32::new(conflicts), AtomicU32::new(rung), AtomicU32::new(0));
    let interceptor = Contention { ports, conflicts, patches: Mutex::default(), rung, reads, reads_max: u32::MAX };
    InterceptedApiServer { ports, interceptor }
}

/// The report of a run, and of which uid and version the Nodes that it patched should have been.
fn patches(simulation: &TestWorld, conflicts: u32) -> (Report, Vec<(String, String)>) {
    let ports = simulation.ports();
    let contended = contended(&ports, conflicts, 0);
    (run_against(&contended), contended.interceptor.patches.into_inner().unwrap())
}

fn run_against(contended: &Contended<'_>) -> Report {
    try_run_against(contended).unwrap()
}

fn try_run_against(contended: &Contended<'_>) -> Result<Report, HandleError> {
    block_on(crate::handle(contended.adapters(), &Settings::default(), &ClusterName::new("c")))
}

#[test]
fn what_a_run_did_is_stored_although_it_fails_later() {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    simulation.create(node());
    let ports = simulation.ports();
    let mut contended = contended(&ports, 0, 1);
    contended.interceptor.reads_max = 1;
    assert!(try_run_against(&contended).is_err(), "the message is tried again");
    assert_eq!(simulation.claim(&planned("a").key).phase.name(), "Registered");
    assert_eq!(health(&simulation).unwrap().0, ConditionStatus::True, "nobody would tell the pool later");
    assert_eq!(turn(&simulation).unwrap()["owner"], "", "nobody waits for the run that failed");
}

/// How often a run looks that is rung for during its first looks, and how many doorbells it sends.
fn looks(rung: u32) -> (u32, usize) {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    let ports = simulation.ports();
    let contended = contended(&ports, 0, rung);
    run_against(&contended);
    let again = turn(&simulation).unwrap()["again"].as_bool();
    assert!(again == Some(false) || rung >= 8, "no doorbell is lost");
    let waiting = simulation.world().queues.waiting().count();
    (contended.interceptor.reads.into_inner(), waiting)
}

#[test]
fn whoever_rings_during_a_run_makes_it_look_again() {
    let (quiet, polls) = looks(0);
    assert_eq!(quiet, 1);
    assert_eq!(looks(1), (2, polls));
    assert_eq!(looks(3), (4, polls));
    assert_eq!(looks(100), (8, polls + 1), "a doorbell takes it from there");
}

fn run_contended(simulation: &TestWorld, conflicts: u32) -> Report {
    patches(simulation, conflicts).0
}

#[test]
fn only_taints_need_the_node_as_it_was_read() {
    let first_patch = |startup: Vec<Taint>| {
        let simulation = still();
        let mut claim = owned(claim(), "a");
        (claim.spec.taints, claim.spec.startup_taints) = (Vec::new(), startup);
        simulation.store(&claim);
        simulation.create(node());
        let read = simulation.world().cluster.objects.get::<Node>("n").unwrap().metadata.clone();
        let (report, patches) = patches(&simulation, 0);
        assert_eq!(report.counted("registered"), 1);
        (patches[0].clone(), read)
    };
    let (patch, read) = first_patch(Vec::new());
    assert_eq!(patch, (read.uid, String::new()), "others may write a Node that joins");
    let (patch, read) = first_patch(vec![Taint::new("boot", TaintEffect::NoExecute)]);
    assert_eq!(patch, (read.uid, read.resource_version), "a taint that was removed meanwhile must not come back");
}

#[test]
fn a_node_that_changes_while_it_is_registered_is_read_again_by_the_same_run() {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    simulation.create(node());
    let report = run_contended(&simulation, 3);
    assert_eq!((report.counted("left_for_later"), report.counted("registered")), (0, 1));
    let registered = simulation.world().cluster.objects.get::<Node>("n").unwrap().metadata.labels.get(labels::REGISTERED).cloned();
    assert_eq!(registered.as_deref(), Some("true"));
    assert_eq!(health(&simulation).unwrap().0, ConditionStatus::True, "what became of it counts once, for its pool");
}

#[test]
fn a_machine_whose_node_a_policy_refuses_says_so_and_times_out() {
    let mut simulation = still();
    simulation.store(&owned(claim(), "a"));
    simulation.create(Node { metadata: ObjectMeta::named(REFUSED), ..node() });
    assert_eq!(run_contended(&simulation, 0).counted("registered"), 0);
    let shown = simulation.claim(&planned("a").key);
    let registered = conditions::find(&shown.conditions, REGISTERED).unwrap();
    assert_eq!((registered.status, registered.reason.as_str()), (ConditionStatus::Unknown, "NodeRefused"));
    assert!(registered.message.contains("policy.example.com"), "{}", registered.message);
    assert_eq!((shown.phase.name(), shown.deletion), ("Launched", None));
    simulation.run_for(SignedDuration::from_mins(15));
    run_contended(&simulation, 0);
    assert_eq!(simulation.claim(&planned("a").key).deletion.unwrap().reason, DeletionReason::RegistrationTimeout, "pods wait for it");
}

#[test]
fn a_node_that_always_changes_is_left_to_the_next_run_without_an_error() {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    simulation.create(node());
    let report = run_contended(&simulation, u32::MAX);
    assert_eq!((report.counted("left_for_later"), report.counted("registered")), (1, 0));
    assert_eq!(simulation.claim(&planned("a").key).phase.name(), "Launched", "a claim is not ahead of its Node");
    assert_eq!(run(&simulation).counted("registered"), 1);
}

/// The Node may be gone, and its name that of another machine's, on which nothing is known to be ready.
#[test]
fn a_node_is_initialized_by_its_uid() {
    let simulation = still();
    simulation.store(&owned(claim(), "a"));
    simulation.create(node());
    assert_eq!(run(&simulation).counted("registered"), 1);
    simulation.change::<Node>("n", |known| {
        known.spec.taints.clear();
        known.status = ready(node()).status;
    });
    let uid = simulation.get::<Node>("n").unwrap().metadata.uid;
    let (report, sent) = patches(&simulation, u32::MAX);
    assert_eq!((report.counted("initialized"), simulation.claim(&planned("a").key).phase.name()), (0, "Registered"));
    assert!(!sent.is_empty() && sent.iter().all(|patch| *patch == (uid.clone(), String::new())), "{sent:?}");
    assert_eq!(simulation.get::<Node>("n").unwrap().metadata.label(labels::INITIALIZED), None);
    assert_eq!(run(&simulation).counted("initialized"), 1);
    assert_eq!(simulation.get::<Node>("n").unwrap().metadata.label(labels::INITIALIZED), Some("true"));
}
