//! Consolidation in a simulated cluster.

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
use whittle_sim::cluster::PodCounts;

const POOL: &str = include_str!("demo/pool.yaml");
const INFLATE: &str = include_str!("demo/inflate.yaml");

/// A large machine with ten pods that is scaled down to one pod, for which a small machine suffices.
fn underutilized() -> Session {
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
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true).running, usize::try_from(before).unwrap());
    session.scale("inflate", after).unwrap();
    session
}

fn waiting_command(world: &World) -> Option<Proposal> {
    world.store.read::<Disruptions>(&world.name(), "current", world.now()).unwrap().and_then(|record| record.value.resting)
}

fn claims(world: &World) -> Vec<Claim> {
    world.store.claims(&world.name()).map(|stored| stored.value.clone()).collect()
}

fn is_disrupted(claim: &Claim) -> bool {
    let reason = claim.deletion.as_ref().map(|deletion| deletion.reason);
    matches!(reason, Some(DeletionReason::Empty | DeletionReason::Underutilized | DeletionReason::Drifted))
}

/// Nothing was tainted, terminated or launched.
fn is_undisrupted(world: &World) -> bool {
    let tainted = |node: &Node| node.has_disrupted_taint();
    !claims(world).iter().any(|claim| is_disrupted(claim) || claim.spec.replaces.is_some())
        && !world.cluster.objects.nodes.values().any(tainted)
}

fn verdicts(world: &World) -> BTreeMap<String, String> {
    let pages = world.store.read_all::<VerdictPage>(&world.name(), world.now());
    pages.into_iter().flat_map(|page| page.value.verdicts).map(|(node, verdict)| (node, verdict.text)).collect()
}

/// Runs for some time and checks the condition every other second.
#[track_caller]
fn check_throughout(session: &mut Session, minutes: i64, mut holds: impl FnMut(&World) -> bool) {
    for _ in 0..minutes * 30 {
        session.advance(SignedDuration::from_secs(2));
        assert!(holds(&session.simulation.world()), "broken at {}", session.now());
    }
}

#[test]
fn a_machine_is_terminated_only_after_its_replacement_is_initialized() {
    let mut session = underutilized();
    let mut ended = BTreeSet::new();
    let mut replaced = 0;
    check_throughout(&mut session, 5, |world| {
        let claims = claims(world);
        let mut fine = true;
        for claim in claims.iter().filter(|claim| is_disrupted(claim) && ended.insert(claim.key.name.clone())) {
            let part = claim.deletion.as_ref().map(|deletion| deletion.message.clone()).unwrap_or_default();
            let of_command = |new: &&Claim| new.spec.replaces.as_ref().is_some_and(|id| part.ends_with(id.as_str()));
            let new: Vec<&Claim> = claims.iter().filter(of_command).collect();
            replaced += new.len();
            fine &= new.iter().all(|new| matches!(new.phase, Phase::Initialized { .. }));
        }
        fine
    });
    assert!(replaced > 0, "at least one machine was replaced: {ended:?}");
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true), PodCounts::all_running(1), "the pod runs");
}

#[test]
fn nothing_is_disrupted_while_another_owner_holds_the_lease() {
    let mut session = underutilized();
    let ports = session.simulation.ports();
    let now = session.now();
    let cluster = session.simulation.world().name();
    let lease = ports.acquire(&cluster, "another owner", now, SignedDuration::from_mins(30)).now_or_never().unwrap().unwrap();
    check_throughout(&mut session, 4, is_undisrupted);
    ports.release(&lease).now_or_never().unwrap().unwrap();
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(session.simulation.run_while_not(limit, |world| !is_undisrupted(world)), "disruption resumes after the lease is released");
}

#[test]
fn a_command_waits_and_is_validated_again_before_it_is_executed() {
    let mut session = underutilized();
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(session.simulation.run_while_not(limit, |world| waiting_command(world).is_some()));
    // A single direct call: it is too early, and nothing happens.
    let ports = session.simulation.ports();
    let cluster = session.simulation.world().name();
    let settings = session.settings();
    let adapters = Adapters::all(&ports);
    let report = whittle_consolidate::handle(adapters, &settings, &cluster).now_or_never().expect("ports answer at once");
    assert!(!report.unwrap().counts.contains_key("commands"));
    assert!(is_undisrupted(&session.simulation.world()));
    // The pods return during the wait: the command is no longer valid.
    session.scale("inflate", 10).unwrap();
    check_throughout(&mut session, 3, is_undisrupted);
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true).running, 10);
}

#[test]
fn an_invalidated_multi_node_command_is_replaced_by_a_single_node_command_in_the_same_run() {
    let many = |world: &World| waiting_command(world).is_some_and(|found| found.method == Method::MultiNode);
    // How much is left on each node decides which command comes first.
    let found = (14..20).find_map(|after| {
        let mut session = scaled_down(42, after);
        let limit = session.now() + SignedDuration::from_mins(10);
        session.simulation.run_while_not(limit, many).then_some(session)
    });
    let mut session = found.expect("several nodes are removed together in one of them");
    let limit = session.now() + SignedDuration::from_mins(10);
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
    let next = waiting_command(&world).expect("the same record drops the first and holds the second");
    assert_eq!((next.method, next.nodes), (Method::SingleNode, vec![free]));
    assert!(is_undisrupted(&world));
}

/// A cluster in which a command is about to be executed.
fn about_to_execute(before: i32, after: i32) -> Session {
    let mut session = scaled_down(before, after);
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(
        session.simulation.run_while_not(limit, |world| waiting_command(world).is_some_and(|found| found.execute_after <= world.now()))
    );
    session
}

/// Milliseconds until the nodes of that command are tainted.
fn milliseconds_until_taint(before: i32, after: i32) -> i64 {
    let mut session = about_to_execute(before, after);
    let began = session.now();
    assert!(session.simulation.run_while_not(began + SignedDuration::from_mins(1), |world| !is_undisrupted(world)));
    i64::try_from(session.now().duration_since(began).as_millis()).unwrap()
}

#[test]
fn a_pod_bound_before_the_nodes_are_tainted_is_not_evicted() {
    for (before, after) in [(10, 0), (10, 1)] {
        let left = milliseconds_until_taint(before, after);
        let mut kept_after_decision = 0;
        for moment in (0..left).rev().step_by(15).take(8) {
            let mut session = about_to_execute(before, after);
            session.advance(SignedDuration::from_millis(moment));
            let mut world = session.simulation.world();
            assert!(is_undisrupted(&world));
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
            assert!(is_undisrupted(&world), "{moment} ms");
            let recorded = |kept: &whittle_claims::DecisionRecord| kept.message.contains("default/late was bound since");
            kept_after_decision += usize::from(world.store.decisions(&world.name()).iter().any(recorded));
        }
        assert!(kept_after_decision > 0, "some pods arrived after the decision: {left} ms");
    }
}

/// A drifted machine with three pods, in a pool whose empty nodes go at once: its replacement is about to be launched.
fn drifted() -> Session {
    let mut session = Session::new(&Place::default());
    let pool = POOL.replace("spot", "on-demand").replace("consolidateAfter: 30s", "consolidateAfter: 0s, budgets: [{nodes: 100%}]");
    session.apply_text("pool.yaml", &pool).unwrap();
    session.apply_text("inflate.yaml", INFLATE).unwrap();
    session.scale("inflate", 3).unwrap();
    session.advance(SignedDuration::from_mins(4));
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true).running, 3);
    let changed = pool.replacen("  template:\n", "  template:\n    metadata: {labels: {team: a}}\n", 1);
    session.apply_text("pool.yaml", &changed).unwrap();
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(session.simulation.run_while_not(limit, |world| claims(world).iter().any(|claim| claim.spec.replaces.is_some())));
    session
}

/// The claims that replace others.
fn replacements(world: &World) -> Vec<Claim> {
    claims(world).into_iter().filter(|claim| claim.spec.replaces.is_some()).collect()
}

#[test]
fn a_replacement_is_not_empty_while_pods_of_the_old_node_are_on_their_way() {
    let mut session = drifted();
    let mut seen_empty = false;
    check_throughout(&mut session, 5, |world| {
        let ready = |claim: &Claim| matches!(claim.phase, Phase::Initialized { .. });
        seen_empty |= replacements(world).iter().any(ready) && claims(world).iter().any(|claim| claim.deletion.is_some());
        waiting_command(world).is_none_or(|command| command.method != Method::Emptiness) && !replacements(world).iter().any(is_disrupted)
    });
    assert!(seen_empty, "it was ready while the old machine was drained");
    let world = session.simulation.world();
    assert!(!world.store.decisions(&world.name()).iter().any(|one| one.message.contains("via Empty")), "nobody even decided it");
    assert_eq!((world.cluster.pod_counts(|_| true), world.cluster.objects.nodes.len()), (PodCounts::all_running(3), 1));
}

#[test]
fn a_replacement_that_no_pod_needs_any_more_is_removed_like_any_empty_node() {
    let mut session = drifted();
    let limit = session.now() + SignedDuration::from_mins(10);
    assert!(session.simulation.run_while_not(limit, |world| claims(world).iter().any(is_disrupted)), "the old machine is drained");
    session.scale("inflate", 0).unwrap();
    session.advance(SignedDuration::from_mins(5));
    let world = session.simulation.world();
    assert!(replacements(&world).iter().all(|claim| claim.deletion.as_ref().is_some_and(|it| it.reason == DeletionReason::Empty)));
    assert_eq!(world.cluster.objects.nodes.len(), 0);
}

#[test]
fn a_node_with_do_not_disrupt_is_kept_and_its_verdict_names_the_annotation() {
    let mut session = underutilized();
    let nodes: Vec<String> = session.simulation.world().cluster.objects.nodes.keys().cloned().collect();
    for name in nodes {
        let protect = |node: &mut Node| {
            node.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        };
        session.simulation.world().cluster.objects.change::<Node>(&name, protect);
    }
    check_throughout(&mut session, 4, is_undisrupted);
    let world = session.simulation.world();
    assert!(!verdicts(&world).is_empty());
    for (node, text) in verdicts(&world) {
        assert_eq!(text, "kept: its annotation karpenter.sh/do-not-disrupt is \"true\"", "{node}");
    }
}

#[test]
fn a_failed_replacement_leaves_the_old_machine_undisrupted() {
    let mut session = underutilized();
    let limit = session.now() + SignedDuration::from_mins(10);
    let replacement_planned = |world: &World| claims(world).iter().any(|claim| claim.spec.replaces.is_some());
    assert!(session.simulation.run_while_not(limit, replacement_planned));
    let name = claims(&session.simulation.world()).into_iter().find(|claim| claim.spec.replaces.is_some()).unwrap().key.name;
    // The replacement is deleted by a user; then the pool's budget is set to zero, so that nothing else is tried.
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
    let tainted = |node: &Node| node.has_disrupted_taint();
    assert!(!world.cluster.objects.nodes.values().any(tainted), "no taint is left");
    let recorded = |claim: &Claim| conditions::find(&claim.conditions, conditions::DISRUPTION_REASON).is_some() && !claim.is_ending();
    assert!(!claims(&world).iter().any(recorded), "no condition is left");
    assert!(!claims(&world).iter().any(|claim| is_disrupted(claim) && claim.deletion.is_some() && claim.spec.replaces.is_none()));
    assert_eq!(world.cluster.pod_counts(|_| true), PodCounts::all_running(1));
}

#[test]
fn a_consolidated_cluster_stays_unchanged() {
    let mut session = underutilized();
    session.advance(SignedDuration::from_mins(6));
    let (price, started) = {
        let world = session.simulation.world();
        (world.cost(), world.region.started())
    };
    check_throughout(&mut session, 7, |world| world.cost() == price && world.region.started() == started);
}
