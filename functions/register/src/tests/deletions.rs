//! What users delete.

use super::over_sim::{owned, still};
use super::{claim, node, now, ready};
use futures::executor::block_on;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{KarpenterSign, labels};
use whittle_claims::{Claim, ClaimKey, DeletionReason, Function, LeftNodes, Phase, Revision, Uninstall, mirror};
use whittle_ports::{Adapters, ClaimStore, Clock, ClusterError, Mode, Records, Report, Scope, Settings};
use whittle_sim::SimPorts;
use whittle_testkit::{InterceptedApiServer, Interceptor, TestWorld, after, joined};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// With the finalizer that a Node has once it is registered.
fn guarded(mut node: Node) -> Node {
    node.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.to_owned()];
    node
}

/// A world with a machine that serves, its Node and its NodeClaim.
fn serving() -> (TestWorld, Claim) {
    let world = still();
    let serves = owned(after(&claim(), &[joined("n")], now()), "default-1");
    world.store(&serves);
    world.create(mirror(&serves));
    world.create(guarded(ready(node())));
    (world, serves)
}

fn look(world: &TestWorld, settings: &Settings) -> Report {
    let ports = world.ports();
    block_on(crate::deletions(Adapters::all(&ports), settings, &ClusterName::new("c"))).unwrap()
}

fn delete_node(world: &TestWorld, name: &str) {
    world.change::<Node>(name, |node| node.metadata.deletion_timestamp = Some(now()));
}

fn delete_node_claim(world: &TestWorld) {
    world.change::<NodeClaim>("default-1", |shown| shown.metadata.deletion_timestamp = Some(now()));
}

/// The reason for which the claim is deleted, and the functions that are rung.
fn outcome(world: &TestWorld, claim: &Claim) -> (Option<DeletionReason>, Vec<Function>) {
    let mut rung = world.doorbells();
    rung.sort();
    (world.claim(&claim.key).deletion.map(|deletion| deletion.reason), rung)
}

#[test]
fn a_node_or_nodeclaim_that_a_user_deletes_is_drained_at_once() {
    for by_node in [true, false] {
        let (mut world, claim) = serving();
        world.run_for(SignedDuration::from_mins(1));
        if by_node {
            delete_node(&world, "n")
        } else {
            delete_node_claim(&world)
        }
        let report = look(&world, &Settings::default());
        assert_eq!(report.counted("ended"), 1);
        let mut rung = vec![Function::Schedule, Function::Terminate];
        rung.sort();
        assert_eq!(outcome(&world, &claim), (Some(DeletionReason::Requested), rung), "by its Node: {by_node}");
        assert_eq!(look(&world, &Settings::default()).counted("ended"), 0, "once");
    }
}

/// As `sweep` does it: the deadline that a user has set counts, from when the NodeClaim was deleted.
#[test]
fn a_deadline_that_a_user_states_counts() {
    let (mut world, claim) = serving();
    world.run_for(SignedDuration::from_mins(1));
    let deadline = Timestamp::from_second(now().as_second() + 600).unwrap();
    delete_node_claim(&world);
    world.change::<NodeClaim>("default-1", |shown| {
        shown.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
    });
    look(&world, &Settings::default());
    let deletion = world.claim(&claim.key).deletion.unwrap();
    assert_eq!((deletion.deadline, deletion.at), (Some(deadline), now()));
}

#[test]
fn nothing_else_is_ever_drained() {
    let is_left = |world: &TestWorld, claim: &Claim, settings: &Settings, case: &str| {
        look(world, settings);
        assert_eq!(outcome(world, claim), (None, vec![]), "{case}");
    };
    let (world, claim) = serving();
    is_left(&world, &claim, &Settings::default(), "nobody deleted anything");
    let mut other = guarded(Node { metadata: whittle_api::ObjectMeta::named("other"), ..node() });
    other.spec.provider_id = "aws:///z/i-2".into();
    world.create(other);
    delete_node(&world, "other");
    is_left(&world, &claim, &Settings::default(), "another machine's Node");
    delete_node(&world, "n");
    is_left(&world, &claim, &Settings { mode: Mode::Shadow, ..Settings::default() }, "in shadow mode");
    world.world().cluster.karpenter = vec![KarpenterSign { object: "deployment kube-system/karpenter".to_owned(), renewed_at: None }];
    is_left(&world, &claim, &Settings::default(), "while Karpenter runs");
    world.world().cluster.karpenter.clear();
    let (ports, cluster) = (world.ports(), ClusterName::new("c"));
    let left = Uninstall { asked_at: ports.now(), nodes: LeftNodes::Keep };
    block_on(ports.write(&cluster, &left, Revision::ABSENT)).unwrap();
    is_left(&world, &claim, &Settings::default(), "while its machines are released");
}

/// The table may be older than the cluster: only EC2 shows whether there is a machine.
#[test]
fn a_claim_whose_node_is_not_known_is_left_to_sweep() {
    let world = still();
    let launched = owned(claim(), "default-1");
    world.store(&launched);
    world.create(mirror(&launched));
    world.create(guarded(ready(node())));
    delete_node_claim(&world);
    delete_node(&world, "n");
    look(&world, &Settings::default());
    assert_eq!(outcome(&world, &launched), (None, vec![]));
}

/// An API server: while it is read, somebody else writes a claim that was listed before.
struct Meanwhile<'a> {
    ports: &'a SimPorts,
    key: ClaimKey,
}

impl Interceptor for Meanwhile<'_> {
    async fn read(&self, _: &ClusterName, _: Scope) -> Result<(), ClusterError> {
        let there = self.ports.get(&self.key).await.expect("the table answers").expect("it is stored");
        self.ports.update(&there.value, there.revision).await.expect("nobody else writes it");
        Ok(())
    }
}

/// Ticks of `sweep` may look at Nodes that were read long before.
#[test]
fn a_claim_that_was_changed_meanwhile_is_looked_at_again() {
    let (mut world, claim) = serving();
    world.run_for(SignedDuration::from_mins(1));
    delete_node(&world, "n");
    let ports = world.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: Meanwhile { ports: &ports, key: claim.key.clone() } };
    let report = block_on(crate::deletions(server.adapters(), &Settings::default(), &ClusterName::new("c"))).unwrap();
    assert_eq!((report.counted("ended"), outcome(&world, &claim)), (0, (None, vec![Function::Register])));
    assert_eq!(look(&world, &Settings::default()).counted("ended"), 1);
    assert_eq!(world.doorbells().iter().filter(|rung| **rung == Function::Register).count(), 1, "nothing is left");
}

/// A world with so many machines that serve, whose NodeClaims a user has deleted.
fn all_deleted(machines: usize) -> TestWorld {
    let world = still();
    for number in 0..machines {
        let name = format!("c-{number}");
        let mut launched = owned(claim(), &name);
        if let Phase::Launched { machine } = &mut launched.phase {
            machine.instance_id = format!("i-{number}").as_str().into();
            machine.provider_id = format!("aws:///z/i-{number}").as_str().into();
        }
        let serves = after(&launched, &[joined(&format!("n-{number}"))], now());
        world.store(&serves);
        world.create(mirror(&serves));
        world.change::<NodeClaim>(&name, |shown| shown.metadata.deletion_timestamp = Some(now()));
    }
    world
}

#[test]
fn what_a_look_has_no_time_for_is_looked_at_again_unless_it_could_begin_nothing() {
    let look_within = |world: &TestWorld, cost_ms: i64, left_ms: i64| {
        let ports = world.ports().with_time_left(SignedDuration::from_millis(cost_ms), SignedDuration::from_millis(left_ms));
        let report = block_on(crate::deletions(Adapters::all(&ports), &Settings::default(), &ClusterName::new("c"))).unwrap();
        let again = world.doorbells().iter().filter(|rung| **rung == Function::Register).count();
        (report.counted("ended"), report.counted("handed_over"), again)
    };
    let world = all_deleted(20);
    assert_eq!(look_within(&world, 0, 900), (0, 1, 0), "it would never come further");
    // Sixteen at once, with three calls each, take more than the second that has to be left.
    assert_eq!(look_within(&world, 50, 2_400), (16, 1, 1));
    assert_eq!(look(&world, &Settings::default()).counted("ended"), 4);
}
