//! What users delete.

use super::over_sim::{owned, still};
use super::{claim, node, now, ready};
use futures::executor::block_on;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{KarpenterSign, labels};
use whittle_claims::{Claim, DeletionReason, Function, LeftNodes, Revision, Uninstall, mirror};
use whittle_ports::{Adapters, Clock, Mode, Records, Report, Settings};
use whittle_testkit::{TestWorld, after, joined};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// A world with a machine that serves, its Node and its NodeClaim.
fn serving() -> (TestWorld, Claim) {
    let world = still();
    let serves = owned(after(&claim(), &[joined("n")], now()), "default-1");
    world.store(&serves);
    world.create(mirror(&serves));
    world.create(ready(node()));
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
    let mut other = Node { metadata: whittle_api::ObjectMeta::named("other"), ..node() };
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
    world.create(ready(node()));
    delete_node_claim(&world);
    delete_node(&world, "n");
    look(&world, &Settings::default());
    assert_eq!(outcome(&world, &launched), (None, vec![]));
}
