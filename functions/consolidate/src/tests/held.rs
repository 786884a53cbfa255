//! Commands whose replacements are ready, and that end no node all the same.

use super::{claim, leaving, running};
use crate::state::{Disruptions, NAME, Running};
use futures::executor::block_on;
use whittle_api::KarpenterSign;
use whittle_api::k8s::Node;
use whittle_claims::{Function, mirror};
use whittle_ports::RecordReader;
use whittle_testkit::{TestWorld, at, key};

/// How many commands the record has.
fn commands(world: &TestWorld) -> usize {
    let record = block_on(world.ports().read::<Disruptions>(&key("old").cluster, NAME)).unwrap();
    record.map_or(0, |record| record.value.running.len())
}

fn is_open(world: &TestWorld) -> bool {
    world.get::<Node>("node-old").unwrap().spec.taints.is_empty()
}

/// Nobody knows whether it is being deleted. A command that waited for it for ever would hold its node, and a place in the budgets.
#[test]
fn a_command_waits_for_an_old_claim_that_cannot_be_read_until_it_is_too_old_and_then_ends() {
    for (started, waits) in [(-600, true), (-601, false)] {
        let world = leaving::world(None);
        world.world().store.spoil_claim(&key("old"));
        let report = leaving::pass(&world, Running { started_at: at(started), ..running(vec![claim("new")]) });
        assert_eq!(commands(&world), usize::from(waits), "{started}");
        assert_eq!((report.counted("disrupted"), report.counted("rolled_back")), (0, 0), "{started}");
        assert!(!is_open(&world), "{started}: it may be drained by now");
    }
}

/// As after a restore of the table, until `sweep` has adopted it: what runs on its machine counts nowhere. And a Karpenter would decide
/// about the same nodes.
#[test]
fn a_pass_ends_nothing_while_a_node_claim_has_no_claim_or_karpenter_runs() {
    let object = "lease/karpenter-leader-election in namespace kube-system".to_owned();
    let sign = KarpenterSign { object, renewed_at: None };
    type Hold<'h> = &'h dyn Fn(&TestWorld);
    let reasons: [(&str, Hold<'_>); 2] = [
        ("held_for_adoption", &|world| world.create(mirror(&claim("lost")))),
        ("held_by_karpenter", &|world| world.world().cluster.karpenter = vec![sign.clone()]),
    ];
    for (why, prepare) in reasons {
        let world = leaving::world(None);
        prepare(&world);
        let report = leaving::pass(&world, running(vec![claim("new")]));
        assert_eq!((report.counted(why), report.counted("disrupted")), (1, 0), "{why}");
        assert_eq!(["old", "more"].map(|name| world.claim(&key(name)).deletion.is_some()), [false, false], "{why}");
        assert_eq!((commands(&world), is_open(&world)), (1, false), "{why}: the command goes on later");
        assert!(!world.doorbells().contains(&Function::Terminate), "{why}");
    }
}
