//! Consolidation of a running system.

use super::session::{Place, Session};
use futures::FutureExt as _;
use jiff::SignedDuration;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodePool;
use whittle_api::{conditions, labels};
use whittle_claims::{Claim, DeletionReason, Phase, VerdictPage};
use whittle_consolidate::Disruptions;
use whittle_model::disruption::{Method, Proposal};
use whittle_ports::{Adapters, Leases};
use whittle_sim::World;

const POOL: &str = include_str!("demo/pool.yaml");
const INFLATE: &str = include_str!("demo/inflate.yaml");

/// A large machine with ten pods that is scaled down to one pod, for which a small machine suffices.
fn wasteful() -> Session {
    scaled_down(10, 1)
}

/// Large machines for `before` pods, scaled down to `after`.
fn scaled_down(before: i32, after: i32) -> Session {
    let mut session = Session::new(&Place::default());
    let sizes = "{key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"2\", \"16\"]}";
    let pool =
        POOL.replace("spot", "on-demand").replace("{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"2\"]}", sizes);
    let pool = pool.replace("[c, m, r]", "[m]").replace("consolidateAfter: 30s", "consolidateAfter: 30s, budgets: [{nodes: 100%}]");
    session.apply_text("pool.yaml", &pool).unwrap();
    session.apply_text("inflate.yaml", INFLATE).unwrap();
    session.scale("inflate", before).unwrap();
    session.advance(SignedDuration::from_mins(3));
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true).0, usize::try_from(before).unwrap());
    session.scale("inflate", after).unwrap();
    session
}

fn waiting_command(world: &World) -> Option<Proposal> {
    world.store.read::<Disruptions>(&world.name(), "current", world.now()).unwrap().and_then(|record| record.value.resting)
}

fn claims(world: &World) -> Vec<Claim> {
    world.store.claims(&world.name()).map(|stored| stored.value.clone()).collect()
}

fn voluntary(claim: &Claim) -> bool {
    let reason = claim.deletion.as_ref().map(|deletion| deletion.reason);
    matches!(reason, Some(DeletionReason::Empty | DeletionReason::Underutilized | DeletionReason::Drifted))
}

/// Nothing was tainted, terminated or launched.
fn untouched(world: &World) -> bool {
    let tainted = |node: &Node| node.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED_TAINT);
    !claims(world).iter().any(|claim| voluntary(claim) || claim.spec.replaces.is_some())
        && !world.cluster.objects.nodes.values().any(tainted)
}

fn verdicts(world: &World) -> BTreeMap<String, String> {
    let pages = world.store.read_all::<VerdictPage>(&world.name(), world.now());
    pages.into_iter().flat_map(|page| page.value.verdicts).map(|(node, verdict)| (node, verdict.text)).collect()
}

/// Runs for some time and checks every other second.
#[track_caller]
fn watch(session: &mut Session, minutes: i64, mut holds: impl FnMut(&World) -> bool) {
    for _ in 0..minutes * 30 {
        session.advance(SignedDuration::from_secs(2));
        assert!(holds(&session.simulation.world()), "broken at {}", session.now());
    }
}

#[test]
fn an_old_machine_ends_only_when_what_replaces_it_is_initialized() {
    let mut session = wasteful();
    let mut ended = BTreeSet::new();
    let mut replaced = 0;
    watch(&mut session, 5, |world| {
        let claims = claims(world);
        let mut fine = true;
        for claim in claims.iter().filter(|claim| voluntary(claim) && ended.insert(claim.key.name.clone())) {
            let part = claim.deletion.as_ref().map(|deletion| deletion.message.clone()).unwrap_or_default();
            let of_command = |new: &&Claim| new.spec.replaces.as_ref().is_some_and(|id| part.ends_with(id.as_str()));
            let new: Vec<&Claim> = claims.iter().filter(of_command).collect();
            replaced += new.len();
            fine &= new.iter().all(|new| matches!(new.phase, Phase::Initialized { .. }));
        }
        fine
    });
    assert!(replaced > 0, "something was replaced: {ended:?}");
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true), (1, 0, 0), "no pod is left without a place");
}

#[test]
fn nothing_is_touched_while_somebody_else_decides() {
    let mut session = wasteful();
    let ports = session.simulation.ports();
    let now = session.now();
    let cluster = session.simulation.world().name();
    let lease = ports.acquire(&cluster, "somebody else", now, SignedDuration::from_mins(30)).now_or_never().unwrap().unwrap();
    watch(&mut session, 4, untouched);
    ports.release(&lease).now_or_never().unwrap().unwrap();
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(session.simulation.run_while_not(limit, |world| !untouched(world)), "then it goes on");
}

#[test]
fn what_is_found_rests_and_is_looked_at_again() {
    let mut session = wasteful();
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(session.simulation.run_while_not(limit, |world| waiting_command(world).is_some()));
    // A single direct call: it is too early, and nothing happens.
    let ports = session.simulation.ports();
    let cluster = session.simulation.world().name();
    let settings = session.settings();
    let adapters = Adapters::all(&ports);
    let report = whittle_consolidate::handle(adapters, &settings, &cluster).now_or_never().expect("ports answer at once");
    assert!(!report.unwrap().counts.contains_key("commands"));
    assert!(untouched(&session.simulation.world()));
    // The pods return during the wait: the command is no longer valid.
    session.scale("inflate", 10).unwrap();
    watch(&mut session, 3, untouched);
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true).0, 10);
}

#[test]
fn a_command_for_many_that_no_longer_holds_makes_way_for_one_node_in_the_same_look() {
    let mut session = scaled_down(42, 6);
    let limit = session.now() + SignedDuration::from_mins(10);
    let many = |world: &World| waiting_command(world).is_some_and(|found| found.method == Method::MultiNode);
    assert!(session.simulation.run_while_not(limit, many));
    let free = waiting_command(&session.simulation.world()).unwrap().nodes[0].clone();
    let protect = |node: &mut Node| {
        node.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    };
    let nodes: Vec<String> = session.simulation.world().cluster.objects.nodes.keys().cloned().collect();
    for name in nodes.iter().filter(|name| **name != free) {
        session.simulation.world().cluster.objects.change::<Node>(name, protect);
    }
    assert!(session.simulation.run_while_not(limit, |world| !many(world)));
    let world = session.simulation.world();
    let next = waiting_command(&world).expect("one record ends the first and begins the second");
    assert_eq!((next.method, next.nodes), (Method::SingleNode, vec![free]));
    assert!(untouched(&world));
}

/// A cluster in which a command is about to be executed.
fn about_to_go(before: i32, after: i32) -> Session {
    let mut session = scaled_down(before, after);
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(
        session.simulation.run_while_not(limit, |world| waiting_command(world).is_some_and(|found| found.execute_after <= world.now()))
    );
    session
}

/// For how many milliseconds the nodes of that command are still untouched.
fn milliseconds_left(before: i32, after: i32) -> i64 {
    let mut session = about_to_go(before, after);
    let began = session.now();
    assert!(session.simulation.run_while_not(began + SignedDuration::from_mins(1), |world| !untouched(world)));
    i64::try_from(session.now().duration_since(began).as_millis()).unwrap()
}

#[test]
fn a_pod_that_comes_before_the_nodes_are_closed_is_left_where_it_is() {
    for (before, after) in [(10, 0), (10, 1)] {
        let left = milliseconds_left(before, after);
        let mut overtaken = 0;
        for moment in (0..left).rev().step_by(15).take(8) {
            let mut session = about_to_go(before, after);
            session.advance(SignedDuration::from_millis(moment));
            let mut world = session.simulation.world();
            assert!(untouched(&world));
            let node = waiting_command(&world).unwrap().nodes[0].clone();
            let mut pod = whittle_api::k8s::Pod { metadata: whittle_api::ObjectMeta::namespaced("default", "late"), ..Default::default() };
            pod.spec.node_name.clone_from(&node);
            let now = world.now();
            world.cluster.create_pod(pod, now);
            drop(world);
            session.advance(SignedDuration::from_secs(10));
            let world = session.simulation.world();
            let pod = world.cluster.objects.pods.get("default/late").expect("it was not evicted");
            assert!(!pod.metadata.is_deleting() && pod.spec.node_name == node, "{moment} ms");
            assert!(untouched(&world), "{moment} ms");
            let recorded = |kept: &whittle_claims::DecisionRecord| kept.message.contains("default/late has come since");
            overtaken += usize::from(world.store.decisions(&world.name()).iter().any(recorded));
        }
        assert!(overtaken > 0, "some came after the decision: {left} ms");
    }
}

#[test]
fn a_protected_node_stays_and_its_verdict_says_why() {
    let mut session = wasteful();
    let nodes: Vec<String> = session.simulation.world().cluster.objects.nodes.keys().cloned().collect();
    for name in nodes {
        let protect = |node: &mut Node| {
            node.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        };
        session.simulation.world().cluster.objects.change::<Node>(&name, protect);
    }
    watch(&mut session, 4, untouched);
    let world = session.simulation.world();
    assert!(!verdicts(&world).is_empty());
    for (node, text) in verdicts(&world) {
        assert_eq!(text, "kept: its annotation karpenter.sh/do-not-disrupt is \"true\"", "{node}");
    }
}

#[test]
fn a_replacement_that_never_comes_leaves_the_old_machine_as_it_was() {
    let mut session = wasteful();
    let limit = session.now() + SignedDuration::from_mins(10);
    let asked = |world: &World| claims(world).iter().any(|claim| claim.spec.replaces.is_some());
    assert!(session.simulation.run_while_not(limit, asked));
    let name = claims(&session.simulation.world()).into_iter().find(|claim| claim.spec.replaces.is_some()).unwrap().key.name;
    // Somebody deletes the replacement; then the pool's budget is set to zero, so that nothing else is tried.
    let removed = session.simulation.run_while_not(limit, |world| world.cluster.objects.node_claims.contains_key(name.as_str()));
    assert!(removed);
    session.delete("nodeclaim", name.as_str()).unwrap();
    let mut world = session.simulation.world();
    let pools: Vec<String> = world.cluster.objects.node_pools.keys().cloned().collect();
    for pool in pools {
        let close = |pool: &mut NodePool| {
            pool.spec.disruption.budgets =
                vec![whittle_api::karpenter::Budget { nodes: whittle_api::k8s::IntOrString::Int(0), ..Default::default() }];
        };
        world.cluster.objects.change::<NodePool>(&pool, close);
    }
    drop(world);
    session.advance(SignedDuration::from_mins(5));
    let world = session.simulation.world();
    let marked = |node: &Node| node.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED_TAINT);
    assert!(!world.cluster.objects.nodes.values().any(marked), "no mark is left");
    let recorded = |claim: &Claim| conditions::find(&claim.conditions, conditions::DISRUPTION_REASON).is_some() && !claim.is_ending();
    assert!(!claims(&world).iter().any(recorded), "nor a condition");
    assert!(!claims(&world).iter().any(|claim| voluntary(claim) && claim.deletion.is_some() && claim.spec.replaces.is_none()));
    assert_eq!(world.cluster.pod_counts(|_| true), (1, 0, 0));
}

#[test]
fn after_it_has_settled_nothing_more_is_done_and_the_price_stays() {
    let mut session = wasteful();
    session.advance(SignedDuration::from_mins(6));
    let (price, started) = {
        let world = session.simulation.world();
        (world.cost(), world.region.started())
    };
    watch(&mut session, 7, |world| world.cost() == price && world.region.started() == started);
}
