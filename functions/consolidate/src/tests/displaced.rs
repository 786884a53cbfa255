//! Commands that could have ended their nodes earlier, while other pods may have taken the places of theirs.

use super::{after, claim, joined, leaving, readiness, running};
use crate::progress::{Readiness, displaced};
use crate::state::{DeletingMachine, Disruptions, NAME, Running};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::k8s::{Container, Node, Pod, ResourceRequirements};
use whittle_api::{ClusterObjects, ConditionStatus, ObjectMeta, OwnerReference, conditions, labels};
use whittle_claims::{Claim, Event, Phase, Revision};
use whittle_model::disruption::Method;
use whittle_ports::{Adapters, ClaimStore, RecordReader, Records, Report, Scheduling, Settings};
use whittle_snapshot::Snapshot;
use whittle_testkit::{TestWorld, at, begun, key, machine, pool_named, stored};
use whittle_units::{Quantity, Resources};

/// A pod that runs on a node and asks for so many cores.
pub(super) fn pod(name: &str, node: &str, cpu: i64) -> Pod {
    let mut pod = Pod { metadata: ObjectMeta::namespaced("default", name), ..Pod::default() };
    pod.metadata.uid = format!("uid-{name}");
    node.clone_into(&mut pod.spec.node_name);
    let requests = Resources::from([("cpu", Quantity::from_units(cpu))]);
    let requirements = ResourceRequirements { requests, ..ResourceRequirements::default() };
    pod.spec.containers.push(Container { name: "app".to_owned(), resources: Some(requirements), ..Container::default() });
    "Running".clone_into(&mut pod.status.phase);
    pod
}

/// The Node of the replacement, which has four cores.
fn new_node(ready: ConditionStatus) -> Node {
    let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    let room = Resources::from([("cpu", Quantity::from_units(4)), ("pods", Quantity::from_units(110))]);
    (node.status.capacity, node.status.allocatable) = (room.clone(), room);
    conditions::set(&mut node.status.conditions, conditions::READY, ready, "", "", at(-60));
    node
}

/// A world in which a pod of two cores is to move to the replacement, of which others have `taken` so many.
pub(super) fn world(taken: i64, ready: ConditionStatus) -> TestWorld {
    let world = leaving::world(None);
    world.create(pool_named("default"));
    world.create(new_node(ready));
    world.create(pod("web", "node-old", 2));
    world.create(pod("other", "n", taken));
    world
}

/// What a pass does with a command of this world: whether the old node goes, and whether it is open to pods.
fn pass(world: &TestWorld, command: Running) -> (bool, bool, Report) {
    let report = leaving::pass(world, command);
    let is_open = world.get::<Node>("node-old").unwrap().spec.taints.is_empty();
    (world.claim(&key("old")).deletion.is_some(), is_open, report)
}

/// Whether the record has the command as one that waited; `None` if it has none.
fn waited(world: &TestWorld) -> Option<bool> {
    let record = block_on(world.ports().read::<Disruptions>(&key("old").cluster, NAME)).unwrap();
    record.and_then(|record| record.value.running.first().map(|command| command.waited))
}

#[test]
fn a_command_that_waited_never_deletes_a_node_whose_pods_have_no_place_any_more() {
    for method in [Method::SingleNode, Method::MultiNode, Method::Drift] {
        let world = world(3, ConditionStatus::True);
        let (is_deleted, is_open, report) = pass(&world, Running { method, waited: true, ..running(vec![claim("new")]) });
        assert_eq!((is_deleted, is_open), (false, true), "{method:?}");
        assert_eq!((report.counted("displaced"), report.counted("rolled_back")), (1, 1), "{method:?}");
        let told = "Kept after all: pod default/web has no place on another node any more";
        assert!(report.decisions.iter().any(|one| one.subject == "node/node-old" && one.message == told), "{:?}", report.decisions);
        assert!(world.claim(&key("new")).deletion.is_none(), "others run there");
        assert_eq!(waited(&world), None, "it has ended");
    }
}

#[test]
fn a_command_that_waited_deletes_its_nodes_while_their_pods_have_places() {
    for (method, taken) in [(Method::SingleNode, 2), (Method::Drift, 1), (Method::StaticDrift, 3)] {
        let world = world(taken, ConditionStatus::True);
        let (is_deleted, is_open, report) = pass(&world, Running { method, waited: true, ..running(vec![claim("new")]) });
        assert_eq!((is_deleted, is_open, report.counted("displaced")), (true, false, 0), "{method:?}");
    }
}

/// As Karpenter does, which looks at no pod again.
#[test]
fn a_command_that_did_not_wait_deletes_its_nodes_as_soon_as_its_replacement_is_ready() {
    let world = world(3, ConditionStatus::True);
    let (is_deleted, _, report) = pass(&world, running(vec![claim("new")]));
    assert_eq!((is_deleted, report.counted("displaced")), (true, 0));
}

/// Since when the replacement of the world is ready.
fn ready_since(world: &TestWorld, second: i64) {
    let ports = world.ports();
    let read = block_on(ports.get(&key("new"))).unwrap().unwrap();
    let mut new = read.value.clone();
    if let Phase::Initialized { since, .. } = &mut new.phase {
        *since = at(second);
    }
    block_on(ports.update(&new, read.revision)).unwrap();
}

/// As while Karpenter ran beside for hours, or the function did not run: kube-scheduler had all that time to fill the replacement.
#[test]
fn a_command_that_no_pass_came_for_in_time_deletes_nodes_only_while_their_pods_have_places() {
    for (since, taken, deletes) in [(-120, 3, true), (-121, 3, false), (-121, 2, true), (-7_200, 3, false)] {
        let world = world(taken, ConditionStatus::True);
        ready_since(&world, since);
        let (is_deleted, _, report) = pass(&world, Running { started_at: at(-7_300), ..running(vec![claim("new")]) });
        assert_eq!((is_deleted, report.counted("displaced")), (deletes, u64::from(!deletes)), "{since}, {taken}");
    }
    // What has no replacement could have gone at once.
    for (started, deletes) in [(-120, true), (-121, false)] {
        let world = world(3, ConditionStatus::True);
        let (is_deleted, ..) = pass(&world, Running { started_at: at(started), ..running(Vec::new()) });
        assert_eq!(is_deleted, deletes, "{started}");
    }
}

/// As after a run that rolled the command back, for it was too old, and died before it had recorded that: the replacement is ready by now,
/// and the node took pods meanwhile.
#[test]
fn a_node_that_was_opened_is_deleted_only_while_its_pods_have_places() {
    for (taken, deletes) in [(2, true), (3, false)] {
        let world = world(taken, ConditionStatus::True);
        world.change::<Node>("node-old", |node| node.spec.taints.clear());
        let (is_deleted, is_open, report) = pass(&world, running(vec![claim("new")]));
        assert_eq!((is_deleted, is_open, report.counted("displaced")), (deletes, true, u64::from(!deletes)), "{taken}");
    }
}

/// There is room for the pod elsewhere, but the node was to go for having none.
#[test]
fn an_empty_node_whose_command_waited_is_deleted_only_while_it_is_empty() {
    for (is_daemon, deletes) in [(false, false), (true, true)] {
        let world = world(1, ConditionStatus::True);
        if is_daemon {
            let owner = OwnerReference { kind: "DaemonSet".to_owned(), controller: Some(true), ..OwnerReference::default() };
            world.change::<Pod>("default/web", |pod| pod.metadata.owner_references = vec![owner].into());
        }
        let (is_deleted, is_open, report) = pass(&world, Running { method: Method::Emptiness, waited: true, ..running(Vec::new()) });
        assert_eq!((is_deleted, is_open), (deletes, !deletes));
        let told = "Kept after all: pod default/web was bound since";
        assert_eq!(report.decisions.iter().any(|one| one.subject == "node/node-old" && one.message == told), !deletes);
    }
}

#[test]
fn a_command_that_is_held_is_known_to_have_waited_and_one_that_launches_is_not() {
    let held = world(2, ConditionStatus::True);
    let mut job = pod("job", "node-old", 1);
    job.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    held.create(job);
    let (is_deleted, is_open, _) = pass(&held, running(vec![claim("new")]));
    assert_eq!((is_deleted, is_open, waited(&held)), (false, false, Some(true)));
    let launching = world(2, ConditionStatus::True);
    let (is_deleted, ..) = pass(&launching, Running { stored: false, ..running(vec![claim("next")]) });
    assert_eq!((is_deleted, waited(&launching)), (false, Some(false)));
    let command = serde_json::to_value(running(Vec::new())).unwrap();
    assert_eq!(command.get("waited"), None, "as an earlier release stored it");
}

#[test]
fn a_pass_deletes_no_node_while_its_replacement_is_not_ready_any_more() {
    for ready in [ConditionStatus::False, ConditionStatus::Unknown] {
        let world = world(1, ready);
        let (is_deleted, is_open, report) = pass(&world, running(vec![claim("new")]));
        assert_eq!((is_deleted, is_open, waited(&world)), (false, false, Some(true)), "{ready:?}");
        assert_eq!(report.counted("rolled_back"), 0, "{ready:?}: it may be ready again");
    }
}

/// As EKS does in a zone that traffic is shifted away from: the pods would have to go there.
#[test]
fn a_pass_deletes_no_node_while_its_replacement_is_cordoned() {
    let world = world(1, ConditionStatus::True);
    world.change::<Node>("n", |node| node.spec.unschedulable = true);
    let (is_deleted, is_open, report) = pass(&world, running(vec![claim("new")]));
    assert_eq!((is_deleted, is_open, waited(&world), report.counted("rolled_back")), (false, false, Some(true), 0));
    let other = self::world(1, ConditionStatus::True);
    other.change::<Node>("node-old", |node| node.spec.unschedulable = true);
    let (is_deleted, ..) = pass(&other, running(vec![claim("new")]));
    assert!(is_deleted, "the node that goes may be cordoned");
}

/// Something may cordon each new node.
#[test]
fn after_a_replacement_that_took_no_pods_no_other_is_launched_at_once() {
    for (cordoned, started, counted) in [(true, -601, (1, 1)), (true, -600, (0, 0)), (false, -601, (0, 0))] {
        let world = world(1, ConditionStatus::True);
        world.change::<Node>("n", |node| node.spec.unschedulable = cordoned);
        let (is_deleted, _, report) = pass(&world, Running { started_at: at(started), ..running(vec![claim("new")]) });
        assert_eq!((report.counted("rolled_back"), report.counted("replacements_refused")), counted, "{cordoned}, {started}");
        assert_eq!(is_deleted, !cordoned, "{started}");
    }
}

#[test]
fn a_command_waits_for_a_replacement_that_is_not_ready_any_more_until_it_is_too_old() {
    let young = claim("new");
    let ready = after(&after(&young, &joined()), &[Event::NodeReady]);
    let stands = |status: ConditionStatus, name: &str, second: i64| {
        let mut node = new_node(status);
        node.metadata.name = name.to_owned();
        let read = ClusterObjects { nodes: vec![node], ..ClusterObjects::default() };
        let snapshot = Snapshot::of(at(second), read, stored(vec![ready.clone()]), Vec::new(), BTreeMap::new());
        readiness(&snapshot, &running(vec![young.clone()]))
    };
    for status in [ConditionStatus::False, ConditionStatus::Unknown] {
        assert_eq!(stands(status, "n", 600), Readiness::Waiting, "{status:?}");
        assert_eq!(stands(status, "n", 601), Readiness::Lost("the replacements were not ready in time".to_owned()), "{status:?}");
        assert_eq!(stands(status, "another", 601), Readiness::Ready, "{status:?}");
    }
    assert_eq!(stands(ConditionStatus::True, "n", 601), Readiness::Ready);
}

/// Others of its pool need not wait for it, whereas nobody knows what comes of a replacement that is not ready.
#[test]
fn only_a_static_node_that_waits_for_a_protected_pod_is_held() {
    let started = [begun("o"), Event::FleetAnswered(machine("i-0")), whittle_testkit::joined("node-old"), Event::NodeReady];
    let (old, young) = (after(&claim("old"), &started), claim("new"));
    let ready = after(&after(&young, &joined()), &[Event::NodeReady]);
    let is_held = |command: &Running, value: &str, status: ConditionStatus| {
        let mut job = pod("job", "node-old", 1);
        job.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
        let read = ClusterObjects { pods: vec![job].into(), nodes: vec![new_node(status)], ..ClusterObjects::default() };
        let snapshot = Snapshot::of(at(5), read, stored(vec![old.clone(), ready.clone()]), Vec::new(), BTreeMap::new());
        let known = Disruptions { running: vec![command.clone()], ..Disruptions::default() };
        let facts = known.facts(&snapshot);
        assert!(facts["old"].in_command);
        facts["old"].is_held
    };
    let replaced = Running { method: Method::StaticDrift, waited: true, ..running(vec![young.clone()]) };
    assert!(is_held(&replaced, "true", ConditionStatus::True));
    assert!(!is_held(&replaced, "false", ConditionStatus::True), "it goes in this pass");
    assert!(!is_held(&replaced, "true", ConditionStatus::Unknown), "its replacement is not ready any more");
    assert!(!is_held(&Running { method: Method::Drift, ..replaced.clone() }, "true", ConditionStatus::True));
    assert!(!is_held(&Running { waited: false, ..replaced }, "true", ConditionStatus::True));
}

/// A machine that serves as this Node.
fn serving(name: &str, instance: &str, node: &str) -> Claim {
    after(&claim(name), &[begun(name), Event::FleetAnswered(machine(instance)), whittle_testkit::joined(node), Event::NodeReady])
}

/// They stay until it is ready: in a fleet that drifts, with hundreds of such commands, they would take the room of every replacement.
#[test]
fn pods_of_a_command_whose_replacement_is_starting_displace_no_others() {
    let settings = Settings { scheduling: Scheduling { reference_packing: true, ..Scheduling::default() }, ..Settings::default() };
    let first = Running { waited: true, ..running(vec![claim("new")]) };
    let removals = vec![DeletingMachine { claim: "b".into(), node: "node-b".to_owned() }];
    let second = Running { id: "c2".to_owned(), removals, ..running(vec![claim("young")]) };
    let known = Disruptions { running: vec![first.clone(), second], ..Disruptions::default() };
    let why = |young: Claim| {
        let nodes = ["node-old", "node-b"].map(|name| Node { metadata: ObjectMeta::named(name), ..Node::default() });
        let read = ClusterObjects {
            nodes: [nodes.to_vec(), vec![new_node(ConditionStatus::True)]].concat(),
            node_pools: vec![pool_named("default")],
            pods: vec![pod("web", "node-old", 2), pod("large", "node-b", 3), pod("other", "n", 1)].into(),
            ..ClusterObjects::default()
        };
        let claims = vec![serving("old", "i-0", "node-old"), serving("new", "i-1", "n"), serving("b", "i-2", "node-b"), young];
        displaced(&settings, &Snapshot::of(at(5), read, stored(claims), Vec::new(), BTreeMap::new()), &first, &known)
    };
    assert_eq!(why(claim("young")), None);
    let ready = why(serving("young", "i-3", "node-y"));
    assert_eq!(ready.as_deref(), Some("pod default/web has no place on another node any more"), "both go now");
}

/// Its pods stay where they are.
#[test]
fn a_command_that_is_rolled_back_takes_no_room_from_another_of_the_same_pass() {
    let world = world(2, ConditionStatus::True);
    world.store(&serving("b", "i-3", "node-b"));
    world.create(Node { metadata: ObjectMeta::named("node-b"), ..Node::default() });
    world.create(pod("huge", "node-old", 5));
    world.create(pod("small", "node-b", 1));
    let first = Running { waited: true, ..running(vec![claim("new")]) };
    let removals = vec![DeletingMachine { claim: "b".into(), node: "node-b".to_owned() }];
    let second = Running { id: "c2".to_owned(), removals, replacements: Vec::new(), ..first.clone() };
    let record = Disruptions { running: vec![first, second], ..Disruptions::default() };
    let (ports, cluster) = (world.ports(), key("old").cluster);
    block_on(ports.write(&cluster, &record, Revision::ABSENT)).unwrap();
    let settings = Settings { scheduling: Scheduling { reference_packing: true, ..Scheduling::default() }, ..Settings::default() };
    let report = block_on(crate::handle(Adapters::all(&ports), &settings, &cluster)).unwrap();
    assert_eq!((report.counted("displaced"), report.counted("rolled_back")), (1, 1));
    assert_eq!(["old", "b"].map(|name| world.claim(&key(name)).deletion.is_some()), [false, true]);
}

/// Hundreds may have waited for the same.
#[test]
fn a_command_that_waited_is_left_to_the_next_pass_where_there_is_no_time_to_look_again() {
    for command_waited in [true, false] {
        let world = world(3, ConditionStatus::True);
        let command = Running { waited: command_waited, ..running(vec![claim("new")]) };
        let report = leaving::pass_over(&leaving::without_time(&world), command);
        assert_eq!((report.counted("displaced"), report.counted("rolled_back")), (0, 0));
        assert_eq!(world.claim(&key("old")).deletion.is_none(), command_waited, "one that did not wait needs no such time");
        assert_eq!(waited(&world), command_waited.then_some(true));
    }
}
