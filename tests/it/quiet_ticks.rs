//! Ticks of a quiet cluster, decided with the Nodes of an earlier look: they find what there is to do, and do nothing that only old
//! Nodes show (ADR 0059).

use crate::wire::run;
use std::sync::Arc;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{Condition, ConditionStatus, ObjectMeta, conditions, labels};
use whittle_claims::{Claim, DeletionReason, Event, Machine, mirror};
use whittle_consolidate::Disruptions;
use whittle_ec2::instance::Instance;
use whittle_ports::contracts::POOL_AND_CLASS;
use whittle_ports::{Adapters, ClusterReader, RecordReader, Report, Scope, Settings};
use whittle_testkit::{NoFunctions, TestWorld, after, default_spec, instance_of, machine, node_class_reference, planned};
use whittle_tests::clock::FixedClock;
use whittle_units::{ClusterName, SignedDuration};

/// A world with an empty node, whose `consolidateAfter` is six minutes. Nodes are kept for two hours, their metadata for a quarter of an
/// hour.
struct Scene {
    world: TestWorld,
    cluster: ClusterName,
    claim: Claim,
}

impl Scene {
    fn new() -> Self {
        let start = FixedClock::new().now;
        let world = TestWorld::with_functions("test", start, Arc::new(NoFunctions));
        world.world().faults.old_nodes = true;
        let (pool, class) = POOL_AND_CLASS.split_once("---\n").expect("a NodePool and its class");
        let mut pool: NodePool = serde_saphyr::from_str(pool).expect("a NodePool");
        pool.spec.disruption.consolidate_after = serde_json::from_value("6m".into()).unwrap();
        world.create(pool);
        world.create(serde_saphyr::from_str::<Ec2NodeClass>(class).expect("an EC2NodeClass"));
        let mut scene = Self { world, cluster: ClusterName::new("test"), claim: planned("default-a", default_spec()) };
        for _ in 0..2 {
            let ports = scene.world.ports();
            run(whittle_refresh::handle(Adapters::all(&ports), &Settings::default(), &scene.cluster)).expect("the region answers");
        }
        scene.add_machine();
        scene
    }

    fn add_machine(&mut self) {
        let pool = self.world.get::<NodePool>("default").expect("it is there");
        let mut machine = Machine { zone: "us-west-2a".into(), ..machine("i-1") };
        let tags = [(labels::NODE_POOL, "default"), (labels::EC2_NODE_CLASS, "default"), (labels::TAG_CLUSTER, "test")];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        machine.instance_id = self.world.start_machine(Instance { tags, ..instance_of(&machine) });
        machine.labels.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
        machine.provider_id = format!("aws:///us-west-2a/{}", machine.instance_id.as_str()).as_str().into();
        let mut claim = self.claim.clone();
        claim.key.cluster = self.cluster.clone();
        claim.spec.node_pool = "default".to_owned();
        claim.spec.node_class = node_class_reference("default");
        claim.spec.owner.uid.clone_from(&pool.metadata.uid);
        let events = [
            whittle_testkit::begun("batch"),
            Event::FleetAnswered(machine.clone()),
            Event::NodeJoined { node_name: "n".to_owned() },
            Event::NodeReady,
        ];
        self.claim = after(&claim, &events, self.world.world().now());
        self.world.store(&self.claim);
        self.world.create(mirror(&self.claim));
        let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
        let of_machine = [
            (labels::NODE_POOL, "default"),
            (labels::EC2_NODE_CLASS, "default"),
            (labels::REGISTERED, "true"),
            (labels::INITIALIZED, "true"),
            (labels::INSTANCE_TYPE, machine.instance_type.as_str()),
            (labels::CAPACITY_TYPE, "spot"),
            (labels::ZONE, "us-west-2a"),
        ];
        node.metadata.labels = of_machine.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        node.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.to_owned()];
        node.spec.provider_id = machine.provider_id.as_str().into();
        node.status.conditions = vec![Condition { type_: conditions::READY.into(), status: ConditionStatus::True, ..Condition::default() }];
        self.world.create(node);
    }

    /// A tick of `consolidate`, a minute after the last.
    fn consolidates(&mut self) -> Report {
        self.world.run_for(SignedDuration::from_mins(1));
        let ports = self.world.ports();
        run(whittle_consolidate::handle(Adapters::all(&ports), &Settings::default(), &self.cluster)).expect("nothing is in its way")
    }

    fn rests(&mut self) -> bool {
        self.consolidates().counted("rested") == 1
    }

    fn proposes(&self) -> bool {
        let ports = self.world.ports();
        let known = run(RecordReader::read::<Disruptions>(&ports, &self.cluster, "current")).expect("the table answers");
        known.is_some_and(|known| !known.value.is_idle())
    }

    /// A tick of `sweep`, a minute after the last.
    fn sweeps(&mut self) -> Report {
        self.world.run_for(SignedDuration::from_mins(1));
        let ports = self.world.ports();
        let looks = whittle_sweep::Looks::new();
        run(whittle_sweep::tick(Adapters::all(&ports), &Settings::default(), &looks, &self.cluster)).expect("nothing is in its way")
    }

    fn deletion(&self) -> Option<DeletionReason> {
        self.world.claim(&self.claim.key).deletion.map(|deletion| deletion.reason)
    }
}

#[test]
fn a_tick_that_finds_something_on_old_nodes_looks_again_and_acts() {
    let mut scene = Scene::new();
    let rested = (0..12).filter(|_| !scene.proposes() && scene.rests()).count();
    assert!((2..6).contains(&rested), "{rested} ticks before the node is due");
    assert!(scene.proposes(), "the empty node, once it was due");
}

#[test]
fn no_command_follows_from_what_only_old_nodes_show() {
    let mut scene = Scene::new();
    assert!((0..5).any(|_| scene.rests()));
    scene.world.change::<Node>("n", |node| {
        node.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    });
    let rested = (0..20).filter(|_| scene.rests()).count();
    assert!(rested > 0 && !scene.proposes(), "{rested}");
    scene.world.change::<Node>("n", |node| {
        node.metadata.annotations.remove(labels::DO_NOT_DISRUPT);
    });
    assert!((0..17).any(|_| !scene.rests() && scene.proposes()), "what is new shows within a quarter of an hour");
}

#[test]
fn a_node_that_a_rollback_left_closed_is_opened_by_the_next_tick_though_nothing_has_changed() {
    let mut scene = Scene::new();
    assert!((0..5).any(|_| scene.rests()));
    scene.world.change::<Node>("n", |node| node.spec.taints.push(Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule)));
    // As a pass saw it that was refused to remove the taint: the Node was written meanwhile.
    let ports = scene.world.ports();
    let seen = run(ClusterReader::read(&ports, &scene.cluster, Scope::All, None)).expect("it answers");
    assert_eq!(seen.nodes[0].spec.taints.len(), 1, "which is kept now");
    let report = scene.consolidates();
    let node = scene.world.get::<Node>("n").expect("it is there");
    assert_eq!((report.counted("rested"), report.counted("unmarked"), node.spec.taints.len()), (0, 1, 0), "{report}");
}

#[test]
fn a_node_that_a_user_deletes_is_found_by_a_bell_at_once_and_by_ticks_in_a_quarter_of_an_hour() {
    let delete = |scene: &mut Scene| {
        (0..3).for_each(|_| drop(scene.sweeps()));
        let now = scene.world.world().now();
        scene.world.change::<Node>("n", |node| node.metadata.deletion_timestamp = Some(now));
    };
    let mut by_ticks = Scene::new();
    delete(&mut by_ticks);
    let ticks = (0..17).take_while(|_| by_ticks.sweeps().decisions.is_empty() && by_ticks.deletion().is_none()).count();
    assert!((1..=15).contains(&ticks), "{ticks}");
    assert_eq!(by_ticks.deletion(), Some(DeletionReason::Requested));

    let mut by_bell = Scene::new();
    delete(&mut by_bell);
    by_bell.world.run_for(SignedDuration::from_secs(20));
    let ports = by_bell.world.ports();
    run(whittle_sweep::handle(Adapters::all(&ports), &Settings::default(), &by_bell.cluster)).expect("nothing is in its way");
    assert_eq!(by_bell.deletion(), Some(DeletionReason::Requested), "which is no tick, so that Nodes are read");
}

#[test]
fn a_sweep_ends_nothing_that_only_old_nodes_show() {
    let mut scene = Scene::new();
    let now = scene.world.world().now();
    // Kept with a deletion that is none any more: as if another Node of the name had come in its place.
    scene.world.change::<Node>("n", |node| node.metadata.deletion_timestamp = Some(now));
    let ports = scene.world.ports();
    let seen = run(ClusterReader::read(&ports, &scene.cluster, Scope::Nodes, None)).expect("it answers");
    assert!(seen.nodes[0].metadata.is_deleting(), "which is kept now");
    scene.world.change::<Node>("n", |node| node.metadata.deletion_timestamp = None);
    (0..5).for_each(|_| drop(scene.sweeps()));
    assert_eq!(scene.deletion(), None);
}

#[test]
fn a_lost_instance_is_found_though_its_kept_node_was_ready() {
    let mut scene = Scene::new();
    (0..3).for_each(|_| drop(scene.sweeps()));
    let id = scene.claim.machine().expect("it has one").instance_id.clone();
    {
        let world = &mut *scene.world.world();
        let now = world.now();
        let (known, _) = world.region.terminate(&id, now, &mut world.dice);
        assert!(known);
    }
    scene.sweeps();
    assert_eq!(scene.deletion(), None, "its Node still serves");
    scene.world.change::<Node>("n", |node| node.status.conditions[0].status = ConditionStatus::Unknown);
    assert!((0..3).any(|_| {
        scene.sweeps();
        scene.deletion() == Some(DeletionReason::InstanceGone)
    }));
}
