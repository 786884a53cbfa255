//! Pods that their owners protect after a command about their nodes was decided.

use super::{after, claim, command, joined, leaving, readiness, running, snapshot_of};
use crate::Run;
use crate::progress::Readiness;
use crate::state::{Disruptions, Running};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Pod};
use whittle_api::{ClusterObjects, ConditionStatus, GoDuration, ObjectMeta, Unreadable, conditions, labels};
use whittle_claims::{Claim, Deletion, DeletionReason, Event, Revision, Stored};
use whittle_model::disruption::{Method, Removal};
use whittle_ports::{Adapters, Leases, Report, Settings};
use whittle_snapshot::Snapshot;
use whittle_testkit::{TestWorld, at, begun, key, machine, stored};
use whittle_units::SignedDuration;

/// A pod on a node, with this value of the annotation, that started at 0.
fn job(node: &str, value: &str) -> Pod {
    let mut pod = Pod { metadata: ObjectMeta::namespaced("default", "job-0"), ..Pod::default() };
    node.clone_into(&mut pod.spec.node_name);
    pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
    pod.status.start_time = Some(at(0));
    pod
}

/// The claim that the command of [`running`] removes.
fn old() -> Claim {
    after(&claim("old"), &[begun("o"), Event::FleetAnswered(machine("i-0")), whittle_testkit::joined("node-old"), Event::NodeReady])
}

fn with_grace(mut claim: Claim) -> Claim {
    claim.spec.termination_grace_period = Some(GoDuration::from_secs(60));
    claim
}

fn is_held(readiness: Readiness) -> bool {
    matches!(readiness, Readiness::Held(_))
}

/// How a command stands whose replacement is ready.
fn stands(method: Method, old: Claim, pods: Vec<Pod>, second: i64) -> Readiness {
    let young = claim("new");
    let ready = after(&after(&young, &joined()), &[Event::NodeReady]);
    let read = ClusterObjects { pods: pods.into(), ..ClusterObjects::default() };
    let snapshot = Snapshot::of(at(second), read, stored(vec![old, ready]), Vec::new(), BTreeMap::new());
    readiness(&snapshot, &Running { method, ..running(vec![young]) })
}

#[test]
fn a_command_waits_for_a_pod_that_is_protected_since_and_is_rolled_back_when_it_is_too_old() {
    let why = |readiness| if let Readiness::Lost(why) = readiness { why } else { String::new() };
    for method in [Method::SingleNode, Method::MultiNode, Method::Emptiness, Method::Drift, Method::StaticDrift] {
        let stands = |value: &str, second| stands(method, old(), vec![job("node-old", value)], second);
        assert!(is_held(stands("true", 600)), "{method:?}");
        assert_eq!(why(stands("true", 601)), "pod default/job-0 has the annotation karpenter.sh/do-not-disrupt by now", "{method:?}");
        assert!(is_held(stands("5m", 299)), "{method:?}");
        assert_eq!(stands("5m", 300), Readiness::Ready, "{method:?}");
        assert_eq!(stands("false", 601), Readiness::Ready, "{method:?}");
    }
}

#[test]
fn only_protected_pods_of_nodes_that_the_command_still_ends_are_waited_for() {
    let mut ended = job("node-old", "true");
    "Succeeded".clone_into(&mut ended.status.phase);
    for pod in [job("n", "true"), job("elsewhere", "true"), ended] {
        assert_eq!(stands(Method::SingleNode, old(), vec![pod], 5), Readiness::Ready);
    }
    let protected = || vec![job("node-old", "true")];
    let deletion = Deletion::without_deadline(DeletionReason::SpotInterruption, at(3), "");
    let reclaimed = after(&old(), &[Event::DeletionRequested(deletion)]);
    assert_eq!(stands(Method::SingleNode, reclaimed, protected(), 5), Readiness::Ready, "nothing keeps it any more");
}

#[test]
fn only_drift_goes_despite_protected_pods_and_only_with_a_termination_grace_period() {
    let stands = |method| stands(method, with_grace(old()), vec![job("node-old", "true")], 5);
    assert_eq!([Method::Drift, Method::StaticDrift].map(stands), [Readiness::Ready, Readiness::Ready]);
    assert_eq!([Method::SingleNode, Method::MultiNode].map(|method| is_held(stands(method))), [true, true]);
}

/// As a user does who sees that it is about to go.
#[test]
fn a_command_waits_while_one_of_its_nodes_is_protected_itself() {
    let stands = |method, name: &str, key: &str, value: &str| {
        let young = claim("new");
        let ready = after(&after(&young, &joined()), &[Event::NodeReady]);
        let mut node = Node { metadata: ObjectMeta::named(name), ..Node::default() };
        node.metadata.annotations.insert(key.to_owned(), value.to_owned());
        conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::True, "", "", at(2));
        let read = ClusterObjects { nodes: vec![node], ..ClusterObjects::default() };
        let snapshot = Snapshot::of(at(601), read, stored(vec![with_grace(old()), ready]), Vec::new(), BTreeMap::new());
        readiness(&snapshot, &Running { method, ..running(vec![young]) })
    };
    for method in [Method::SingleNode, Method::MultiNode, Method::Emptiness, Method::Drift, Method::StaticDrift] {
        for key in [labels::DO_NOT_DISRUPT, labels::DO_NOT_CONSOLIDATE, labels::DO_NOT_EVICT] {
            let why = format!("node node-old has the annotation {key} by now");
            assert_eq!(stands(method, "node-old", key, "true"), Readiness::Lost(why), "{method:?}");
            assert_eq!(stands(method, "node-old", key, "1h"), Readiness::Ready, "{method:?}: nodes know no durations");
            assert_eq!(stands(method, "n", key, "true"), Readiness::Ready, "{method:?}: it is that of the replacement");
        }
    }
}

/// Its annotations can be read though another field of it cannot.
#[test]
fn a_command_waits_for_a_protected_node_that_cannot_be_read() {
    let stands = |name: &str, value: &str| {
        let young = claim("new");
        let ready = after(&after(&young, &joined()), &[Event::NodeReady]);
        let mut metadata = ObjectMeta::named(name);
        metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
        let odd = Unreadable { kind: "Node".to_owned(), metadata, ..Unreadable::default() };
        let read = ClusterObjects { unreadable: vec![odd], ..ClusterObjects::default() };
        let snapshot = Snapshot::of(at(5), read, stored(vec![old(), ready]), Vec::new(), BTreeMap::new());
        readiness(&snapshot, &running(vec![young]))
    };
    assert!(is_held(stands("node-old", "true")));
    assert_eq!([stands("node-old", "false"), stands("elsewhere", "true")], [Readiness::Ready, Readiness::Ready]);
}

#[test]
fn a_pass_does_not_delete_the_node_of_a_pod_that_is_protected_since() {
    for (value, is_deleted) in [("true", false), ("false", true)] {
        let world = leaving::world(None);
        world.create(job("node-old", value));
        leaving::pass(&world, running(vec![claim("new")]));
        assert_eq!(world.claim(&key("old")).deletion.is_some(), is_deleted, "{value}");
        assert!(!world.get::<Node>("node-old").unwrap().spec.taints.is_empty(), "{value}: the command goes on");
        let told = if is_deleted { Vec::new() } else { vec![("Node", "node-old"), ("NodeClaim", "old")] };
        assert_eq!(waits(&world), told.into_iter().map(|(kind, name)| format!("{kind} {name}: {WAITS}")).collect::<Vec<_>>());
    }
}

const WAITS: &str = "Disruption waits: pod default/job-0 has the annotation karpenter.sh/do-not-disrupt by now";

/// Which objects say that a command waits for a pod, sorted.
fn waits(world: &TestWorld) -> Vec<String> {
    let world = world.world();
    let events = world.cluster.events.iter().map(|kept| &kept.event).filter(|event| event.message.starts_with("Disruption waits"));
    let mut told: Vec<String> = events.map(|event| format!("{} {}: {}", event.kind, event.name, event.message)).collect();
    told.sort();
    told
}

#[test]
fn a_command_that_waits_for_no_protected_pod_says_nothing() {
    let world = leaving::world(None);
    world.create(job("elsewhere", "true"));
    leaving::pass(&world, running(vec![claim("new")]));
    assert_eq!(waits(&world), [] as [String; 0]);
    let world = leaving::world(None);
    world.create(job("node-old", "true"));
    leaving::pass(&world, Running { started_at: at(-601), ..running(vec![claim("new")]) });
    assert_eq!(waits(&world), [] as [String; 0], "it is rolled back, and the node's verdict says why it is kept");
}

/// The nodes that go after a command for `n0` and `n1` has begun, on the first of which is this pod; with those that are tainted.
fn begin(method: Method, pod: Pod) -> (Vec<&'static str>, Vec<&'static str>, Report) {
    const NODES: [&str; 2] = ["n0", "n1"];
    let world = TestWorld::still(at(0));
    for name in NODES {
        let fleet = Event::FleetAnswered(machine(&format!("i-{name}")));
        world.store(&after(&claim(name), &[begun(name), fleet, whittle_testkit::joined(name), Event::NodeReady]));
        world.create(Node { metadata: ObjectMeta::named(name), ..Node::default() });
    }
    let pods = vec![pod.metadata.key()];
    world.create(pod);
    let removal = |name: &&str| Removal { node: (*name).to_owned(), node_claim: (*name).to_owned(), ..Removal::default() };
    let mut removals: Vec<Removal> = NODES.iter().map(removal).collect();
    removals[0].pods = pods; // the decision knew it
    let ports = world.ports();
    let lease = block_on(ports.acquire(&key("n0").cluster, "run", at(0), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: Adapters::all(&ports), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let mut record = Stored { value: Disruptions::default(), revision: Revision::ABSENT };
    let snapshot = snapshot_of(NODES.iter().map(|name| world.claim(&key(name))).collect(), at(1));
    block_on(run.start(&snapshot, &command(method, removals), &mut record)).unwrap();
    let go = NODES.into_iter().filter(|name| world.claim(&key(name)).is_ending()).collect();
    let tainted = NODES.into_iter().filter(|name| !world.get::<Node>(name).unwrap().spec.taints.is_empty()).collect();
    (go, tainted, run.report)
}

#[test]
fn a_command_begins_without_a_node_whose_pod_is_protected_since_the_decision() {
    let (go, tainted, report) = begin(Method::Emptiness, job("n0", "true"));
    assert_eq!((go, tainted), (vec!["n1"], vec!["n1"]));
    let told = "Kept after all: pod default/job-0 has the annotation karpenter.sh/do-not-disrupt by now";
    assert!(report.decisions.iter().any(|one| one.subject == "node/n0" && one.message == told));
    let (go, tainted, _) = begin(Method::MultiNode, job("n0", "true"));
    assert_eq!((go, tainted), (Vec::new(), Vec::new()), "its places are valid for all of its nodes together");
    let (go, tainted, _) = begin(Method::MultiNode, job("n0", "false"));
    assert_eq!((go, tainted), (vec!["n0", "n1"], vec!["n0", "n1"]));
}
