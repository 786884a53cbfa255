//! Nodes that the API server does not let be tainted, or untainted, as a policy may.

use super::{after, claim, command, snapshot_of};
use crate::Run;
use crate::observe::Step;
use crate::progress::Outcome;
use crate::state::{DeletingMachine, Disruptions, Running};
use crate::strays::untaint_strays;
use futures::executor::block_on;
use whittle_api::k8s::{Node, Taint};
use whittle_api::{ConditionStatus, ObjectMeta, conditions};
use whittle_claims::{Event, Revision, Stored};
use whittle_model::disruption::{Method, Removal};
use whittle_ports::{ClaimStore, ClusterError, Leases, NodePatch, Report, Settings};
use whittle_snapshot::Snapshot;
use whittle_testkit::{InterceptedApiServer, Interceptor, NodePolicy, TestWorld, at, begun, key, machine};
use whittle_units::SignedDuration;

/// The empty nodes of the world, whose claims have their names.
const NODES: [&str; 3] = ["n0", "n1", "n2"];

/// A policy that refuses the changes of these Nodes.
struct Policy(&'static [&'static str]);

impl Interceptor for Policy {
    fn patch_node(&self, name: &str, _: &str, _: &NodePatch) -> Result<(), ClusterError> {
        if self.0.contains(&name) { Err(NodePolicy::refusal(name)) } else { Ok(()) }
    }
}

/// One that refuses the changes of one Node, and lets nobody remove a taint of the others.
struct KeepsTaints(&'static str);

impl Interceptor for KeepsTaints {
    fn patch_node(&self, name: &str, _: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        if name == self.0 || !patch.remove_taints.is_empty() { Err(NodePolicy::refusal(name)) } else { Ok(()) }
    }
}

/// A world in which nodes serve; `is_left` if each still has what a command gave it.
fn world(is_left: bool) -> TestWorld {
    let world = TestWorld::still(at(0));
    for name in NODES {
        let joined = whittle_testkit::joined(name);
        let mut one = after(&claim(name), &[begun(name), Event::FleetAnswered(machine(&format!("i-{name}"))), joined, Event::NodeReady]);
        let mut node = Node { metadata: ObjectMeta::named(name), ..Node::default() };
        if is_left {
            conditions::set(&mut one.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Empty", "", at(1));
            node.spec.taints.push(Taint::disrupted());
        }
        world.store(&one);
        world.create(node);
    }
    world
}

fn snapshot(world: &TestWorld) -> Snapshot {
    let claims = NODES.iter().map(|name| world.claim(&key(name))).collect();
    let mut snapshot = snapshot_of(claims, at(1));
    snapshot.read.nodes = NODES.iter().map(|name| world.get::<Node>(name).unwrap()).collect();
    snapshot
}

/// The nodes that are tainted.
fn tainted(world: &TestWorld) -> Vec<&'static str> {
    NODES.into_iter().filter(|name| !world.get::<Node>(name).unwrap().spec.taints.is_empty()).collect()
}

/// The nodes whose machine goes.
fn ending(world: &TestWorld) -> Vec<&'static str> {
    NODES.into_iter().filter(|name| world.claim(&key(name)).is_ending()).collect()
}

/// Starts a command that removes all nodes, under this policy: whether it runs, and what is remembered.
fn start(world: &TestWorld, method: Method, policy: impl Interceptor) -> (bool, Disruptions, Report) {
    let removal = |name: &&str| Removal { node: (*name).to_owned(), node_claim: (*name).to_owned(), ..Removal::default() };
    let command = command(method, NODES.iter().map(removal).collect());
    let ports = world.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: policy };
    let lease = block_on(ports.acquire(&key("n0").cluster, "run", at(0), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: server.adapters(), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let mut stored = Stored { value: Disruptions::default(), revision: Revision::ABSENT };
    let runs = block_on(run.start(&snapshot(world), &command, &mut stored)).unwrap();
    (runs, stored.value, run.report)
}

#[test]
fn an_empty_node_whose_taint_is_refused_is_kept_and_the_others_go() {
    let world = world(false);
    let (runs, known, report) = start(&world, Method::Emptiness, Policy(&["n1"]));
    assert_eq!((runs, tainted(&world), ending(&world)), (true, vec!["n0", "n2"], vec!["n0", "n2"]));
    assert_eq!(report.counted("taints_refused"), 1);
    assert!(report.decisions.iter().any(|told| told.subject == "node/n1" && told.message.contains("denied the request")));
    assert!(report.metrics.iter().any(|one| one.metric == "whittle_failed_runs"), "an alarm is raised if that happens all the time");
    let facts = |now| known.facts(&snapshot_of(Vec::new(), at(now)));
    assert!(facts(2)["n1"].taint_refused.is_some() && !facts(2).contains_key("n0"));
    assert!(!facts(301).contains_key("n1"), "it is tried again");
}

#[test]
fn a_command_that_cannot_taint_one_of_its_nodes_taints_none() {
    for method in [Method::MultiNode, Method::Drift] {
        let world = world(false);
        let (runs, known, _) = start(&world, method, Policy(&["n1"]));
        assert_eq!((runs, tainted(&world), ending(&world)), (false, Vec::new(), Vec::new()), "{method:?}");
        assert!(known.is_idle() && known.refused.keys().eq(["n1"]), "{method:?}");
    }
}

#[test]
fn what_was_refused_is_remembered_though_the_other_nodes_cannot_be_untainted_again() {
    let world = world(false);
    let (runs, known, _) = start(&world, Method::MultiNode, KeepsTaints("n1"));
    assert_eq!((runs, tainted(&world), ending(&world)), (false, vec!["n0", "n2"], Vec::new()));
    assert!(known.is_idle() && known.refused.keys().eq(["n1"]), "the next pass begins with another command");
}

/// The run that began the command died before its machines were requested. Otherwise each pass would fail at it, and do nothing else.
#[test]
fn a_command_that_is_resumed_under_a_policy_is_rolled_back() {
    let world = world(false);
    let ports = world.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: Policy(&["n1"]) };
    let lease = block_on(ports.acquire(&key("n0").cluster, "run", at(0), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: server.adapters(), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let removals = NODES.map(|name| DeletingMachine { claim: name.into(), node: name.to_owned() }).to_vec();
    let mut command = Running { removals, stored: false, ..super::running(vec![claim("next")]) };
    let outcome = block_on(run.step(&snapshot(&world), &mut command, &Disruptions::default())).unwrap();
    assert_eq!((outcome, tainted(&world), ending(&world)), (Outcome::RolledBack, Vec::new(), Vec::new()));
    assert_eq!(run.report.counted("rolled_back"), 1);
    assert!(run.report.decisions.iter().any(|told| told.subject == "node/n1" && told.message.contains("denied the request")));
    let has_reason = |name: &str| conditions::find(&world.claim(&key(name)).conditions, conditions::DISRUPTION_REASON).is_some();
    assert!(!NODES.into_iter().any(has_reason), "their NodeClaims say nothing of it any more");
    assert!(block_on(ports.get(&key("next"))).unwrap().is_none(), "nothing is launched for it");
}

#[test]
fn what_is_remembered_of_refusals_is_bounded() {
    let mut known = Disruptions::default();
    for number in 0..1_000 {
        known.record_refusal(&format!("claim-{number}"), &"long ".repeat(1_000), at(0));
    }
    assert!(serde_json::to_string(&known).unwrap().len() < 80_000, "the record is one item of the table");
}

#[test]
fn however_many_nodes_are_refused_others_have_their_turn() {
    let names: Vec<String> = (0..100).map(|number| format!("claim-{number:02}")).collect();
    let (mut known, mut left_to_others) = (Disruptions::default(), 0);
    // Two hours of passes that try the first of them that may be tried.
    for now in (0..7_200).step_by(10).map(at) {
        known.refused.retain(|_, refusal| now < refusal.until);
        match names.iter().find(|name| !known.refused.contains_key(*name)) {
            Some(name) => known.record_refusal(name, "a policy denied the request", now),
            None => left_to_others += 1,
        }
    }
    assert!(left_to_others > 360, "{left_to_others} of 720 passes");
}

#[test]
fn a_node_that_cannot_be_untainted_fails_no_pass_and_keeps_no_other_tainted() {
    let world = world(true);
    let ports = world.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: Policy(&["n1"]) };
    let mut report = Report::default();
    let step = block_on(untaint_strays(server.adapters(), &snapshot(&world), &Disruptions::default(), &mut report));
    assert_eq!((step, tainted(&world)), (Ok(Step::Done), vec!["n1"]));
    assert_eq!((report.counted("unmarked"), report.counted("untaints_refused")), (2, 1));
    assert!(report.decisions.iter().any(|told| told.subject == "node/n1" && told.message.contains("denied the request")));
}
