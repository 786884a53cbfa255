//! Nodes that are too small for the pods that their machines were launched for (ADR 0078).

use super::over_sim::{owned, run_over, still};
use super::{claim, node, now, ready};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_claims::{MeasuredMemory, Phase, Revision, Shortfall, SmallNode};
use whittle_ports::{RecordReader, Records, Report};
use whittle_units::{Quantity, Resources};

/// Pods that need so much of the four cores that were planned get a node that has this much. What the type is planned with by then, and
/// what is told.
fn joined_with(requested: i64, found: i64) -> (Option<i64>, Vec<String>) {
    joined_after(None, requested, found)
}

/// The same after another node of the type had this much.
fn joined_after(other: Option<i64>, requested: i64, found: i64) -> (Option<i64>, Vec<String>) {
    let simulation = still();
    if let Some(other) = other {
        let node = SmallNode { instance: "i-other".into(), amount: Quantity::from_milli(other), at: now() };
        let by_resource = BTreeMap::from([("cpu".to_owned(), vec![node])]);
        let small_nodes = [("7".to_owned(), BTreeMap::from([("m5.large".to_owned(), by_resource)]))].into();
        let (by_type, small_memory) = (BTreeMap::new(), BTreeMap::new());
        let known = MeasuredMemory { image_id: "ami".into(), by_type, small_memory, small_nodes, updated_at: now() };
        block_on(simulation.ports().write(&claim().key.cluster, &known, Revision::ABSENT)).unwrap();
    }
    let mut own = owned(claim(), "a");
    own.spec.startup_taints.clear();
    own.spec.requests.set("cpu", Quantity::from_milli(requested));
    own.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), "7".to_owned());
    let Phase::Launched { machine } = &mut own.phase else { panic!("{:?}", own.phase) };
    machine.allocatable.set("cpu", Quantity::from_milli(4_000));
    simulation.store(&own);
    let mut node = ready(node());
    node.status.allocatable.set("cpu", Quantity::from_milli(found));
    simulation.create(node);
    let report = run_over(&simulation.ports());
    assert_eq!(report.counted("initialized"), 1);
    let stored = block_on(RecordReader::read::<MeasuredMemory>(&simulation.ports(), &own.key.cluster, "ami")).unwrap();
    let known = stored.and_then(|stored| Some(stored.value.too_little_of("7", now()).get("m5.large")?.get("cpu").milli()));
    let events = simulation.world().cluster.events.clone();
    let told = events.into_iter().filter(|kept| kept.event.reason == "NodeTooSmall").map(|kept| kept.event.message).collect();
    (known, told)
}

#[test]
fn a_node_on_which_its_own_pods_do_not_fit_is_told_and_planned_with_once_a_second_one_confirms_it() {
    let (known, told) = joined_with(3_500, 3_200);
    assert_eq!(known, None);
    assert_eq!(told.len(), 2, "on NodeClaim and NodePool: {told:?}");
    let text = &told[0];
    let amounts = "cpu 3200m allocatable instead of 4, of which its pods need 3500m";
    for part in ["Node n (m5.large)", amounts, "spec.kubelet", "If a second node of this type is as small within two days"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (known, told) = joined_after(Some(3_100), 3_500, 3_200);
    assert_eq!((known, told.len()), (Some(3_200), 2));
    assert!(told[0].contains("it is planned with at most cpu 3200m from now on, for a day"), "{told:?}");
}

#[test]
fn one_odd_node_beside_one_that_is_large_enough_is_told_as_such() {
    let (known, told) = joined_after(Some(4_000), 3_500, 3_200);
    assert_eq!(known, Some(4_000), "which changes nothing");
    assert!(told[0].contains("If a second node of this type") && !told[0].contains("from now on"), "{told:?}");
}

/// Their Events are published together, and hold up nothing else that the run stores.
#[test]
fn of_many_small_nodes_at_once_each_claim_tells_and_the_pool_once_for_each_type() {
    let short = |name: &str, instance_type: &str| {
        let mut own = owned(claim(), name);
        own.spec.requests.set("cpu", Quantity::from_milli(3_500));
        let Phase::Launched { machine } = &mut own.phase else { panic!("{:?}", own.phase) };
        machine.allocatable.set("cpu", Quantity::from_units(4));
        machine.instance_type = instance_type.into();
        let found = Resources::from([("cpu", Quantity::from_milli(3_200))]);
        let short = Shortfall::of(&own, &found).unwrap();
        (own, short)
    };
    let all = [short("a", "m5.large"), short("b", "m5.large"), short("c", "c5.large")];
    let mut report = Report::default();
    let events = crate::measured::events_of(&all, &[], now(), &mut report);
    let about = |kind: &str| events.iter().filter(|event| event.kind == kind).map(|event| event.name.clone()).collect::<Vec<_>>();
    assert_eq!((about("NodeClaim").join(" "), about("NodePool").join(" ")), ("a b c".to_owned(), "default default".to_owned()));
    assert_eq!((report.counted("too_small"), report.decisions.len()), (3, 3));
}

#[test]
fn less_than_half_is_told_and_not_planned_with() {
    let (known, told) = joined_with(3_500, 1_900);
    assert_eq!((known, told.len()), (None, 2));
    assert!(told[0].contains("not used for plans"), "{told:?}");
}

#[test]
fn nothing_is_told_or_stored_of_a_node_on_which_its_pods_fit() {
    for (requested, found) in [(3_000, 3_200), (3_200, 3_200), (5_000, 4_000)] {
        assert_eq!(joined_with(requested, found), (None, Vec::new()), "{requested} of {found}");
    }
}
