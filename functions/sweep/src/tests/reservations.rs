//! Instances in capacity reservations: which have left theirs, which have to leave.

use super::over_sim::{kept, start_machine, still, sweep, with_pool};
use super::{Scene, change, check_ends, check_never_ends, registered, scene};
use futures::executor::block_on;
use whittle_api::karpenter::{CapacityReservationSelectorTerm, Ec2NodeClass, ResolvedCapacityReservation};
use whittle_api::{ObjectMeta, labels};
use whittle_claims::{BlockEnds, Claim, DeletionReason, Event, Function, NodeClassRecord, Phase, Revision};
use whittle_ports::{Records, Settings};
use whittle_testkit::{at, resolved_class};
use whittle_units::{ClusterName, Timestamp};

fn machine_of(claim: &mut Claim) -> &mut whittle_claims::Machine {
    match &mut claim.phase {
        Phase::Registered { machine, .. } => machine,
        other => panic!("{other:?}"),
    }
}

/// A registered claim in reservation cr-1, according to claim, Node and instance.
pub(super) fn reserved() -> Scene {
    let mut claim = registered();
    let machine = machine_of(&mut claim);
    machine.capacity_type = "reserved".into();
    let of_machine = [
        (labels::CAPACITY_TYPE, "reserved"),
        (labels::RESERVATION_ID, "cr-1"),
        (labels::RESERVATION_TYPE, "default"),
        (labels::RESERVATION_INTERRUPTIBLE, "false"),
    ];
    machine.labels = of_machine.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    change(scene(claim), |s| {
        s.objects.nodes[0].metadata.labels.insert(labels::CAPACITY_TYPE.into(), "reserved".into());
        s.instances[0].capacity_type = "reserved".into();
        s.instances[0].reservation = Some("cr-1".into());
        s.classes = vec![class()];
    })
}

fn reservation(id: &str, kind: &str, ends: i64) -> ResolvedCapacityReservation {
    ResolvedCapacityReservation {
        id: id.into(),
        reservation_type: kind.into(),
        end_time: Some(at(ends)),
        ..ResolvedCapacityReservation::default()
    }
}

/// The record of the scene's class, as resolved at second 90.
fn class() -> NodeClassRecord {
    let mut class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    class.status.capacity_reservations = vec![reservation("cr-other", "capacity-block", 100), reservation("cr-1", "default", 100_000)];
    NodeClassRecord { class, resolved_at: at(90), ..resolved_class("default") }
}

/// Which claims and Nodes a sweep at second 100 relabels as on-demand.
#[track_caller]
fn check(scene: &Scene, claims: &[&str], nodes: &[&str]) {
    let found = scene.compare(&[], 100);
    assert_eq!(found.demote.iter().map(|name| name.as_str()).collect::<Vec<_>>(), claims);
    assert_eq!(found.demote_nodes, nodes);
    assert!(found.end.is_empty(), "no claim is deleted for it: {:?}", found.end);
}

#[test]
fn an_instance_that_left_its_reservation_becomes_on_demand_in_claim_and_node() {
    check(&reserved(), &[], &[]);
    let left = change(reserved(), |s| {
        s.instances[0].capacity_type = "on-demand".into();
        s.instances[0].reservation = None;
    });
    check(&left, &["default-1"], &["n"]);
    // The claim was changed by an earlier sweep, its Node was not.
    let half = change(left.clone(), |s| s.claims[0] = whittle_claims::step(&s.claims[0], &Event::ReservationLeft, at(20)).unwrap());
    check(&half, &[], &["n"]);
    // It was adopted by EC2's data and by the labels of its NodeClaim, which nobody had changed.
    let adopted = change(left.clone(), |s| machine_of(&mut s.claims[0]).capacity_type = "on-demand".into());
    check(&adopted, &["default-1"], &["n"]);
    let done = change(half, |s| {
        s.objects.nodes[0].metadata.labels.insert(labels::CAPACITY_TYPE.into(), "on-demand".into());
    });
    check(&done, &[], &[]);
}

#[test]
fn unknown_and_terminating_instances_keep_their_labels() {
    let left = |change_more: fn(&mut Scene)| {
        change(reserved(), |s| {
            s.instances[0].capacity_type = "on-demand".into();
            change_more(s);
        })
    };
    check(&left(|s| s.instances[0].id = "i-other".into()), &[], &[]);
    check(&left(|s| s.instances[0].state = whittle_ec2::instance::InstanceState::ShuttingDown), &[], &[]);
    check(&left(|s| s.instances[0].capacity_type = "spot".into()), &[], &[]);
    check(&left(|s| s.objects.nodes[0].spec.provider_id = "aws:///z/i-other".into()), &["default-1"], &[]);
    let ending = left(|s| s.claims[0] = whittle_claims::step(&s.claims[0], &super::deletion_requested(), at(20)).unwrap());
    check(&ending, &[], &[]);
}

/// A machine in a capacity block that ends at `ends`, as `refresh` knew at second `looked_at`. No class names the block.
fn block(ends: i64, looked_at: i64) -> Scene {
    change(reserved(), |s| {
        s.classes.clear();
        of_type(s, "capacity-block");
        let ends = [("cr-other".to_owned(), Some(at(100))), ("cr-1".to_owned(), Some(at(ends)))].into();
        s.blocks = Some(BlockEnds { ends, looked_at: at(looked_at) });
    })
}

/// Changes the label of the type of the claim's reservation.
fn of_type(scene: &mut Scene, kind: &str) {
    machine_of(&mut scene.claims[0]).labels.insert(labels::RESERVATION_TYPE.into(), kind.into());
}

/// What `refresh` knows of the block: nothing (`None`), or what EC2 showed of it.
fn know(scene: &mut Scene, shown: Option<Option<Timestamp>>) {
    scene.blocks.as_mut().unwrap().ends = shown.map(|end| ("cr-1".to_owned(), end)).into_iter().collect();
}

#[test]
fn a_claim_in_a_capacity_block_is_deleted_before_the_block_ends() {
    check_ends(&block(100 + 2400, 90), DeletionReason::Requested);
    check_ends(&block(50, 90), DeletionReason::Requested);
    check_never_ends(&block(100 + 2400 + 61, 90));
    // Karpenter's NodeClaim lacked the label of the type when it was adopted.
    let adopted = |s: &mut Scene| {
        machine_of(&mut s.claims[0]).labels.remove(labels::RESERVATION_TYPE);
    };
    check_ends(&change(block(100 + 2400, 90), adopted), DeletionReason::Requested);
    check_never_ends(&change(block(100 + 2400 + 61, 90), adopted));
}

#[test]
fn only_the_known_end_of_a_capacity_block_deletes_a_claim() {
    check_never_ends(&change(block(100, 90), |s| s.blocks = None));
    check_never_ends(&change(block(100, 90), |s| know(s, None)));
    check_never_ends(&change(block(100, 90), |s| know(s, Some(None))));
    check_never_ends(&change(block(100, 90), |s| of_type(s, "default")));
    check_never_ends(&change(block(100, 90), |s| machine_of(&mut s.claims[0]).labels.clear()));
    // An ordinary reservation with an end, in the record of its class.
    check_never_ends(&change(reserved(), |s| s.classes[0].class.status.capacity_reservations = vec![reservation("cr-1", "default", 100)]));
}

/// A class selects another block, is being deleted, or cannot be looked up: EC2 terminates the instances all the same.
#[test]
fn the_last_known_end_of_a_capacity_block_counts_whatever_the_classes_select() {
    let old = || block(100 + 2400, 100 - 86_400);
    check_ends(&old(), DeletionReason::Requested);
    let moved_on = |s: &mut Scene| {
        s.classes = vec![class()];
        s.classes[0].class.status.capacity_reservations = vec![reservation("cr-next", "capacity-block", 1_000_000)];
    };
    check_ends(&change(old(), moved_on), DeletionReason::Requested);
    let deleted = |s: &mut Scene| {
        s.classes = vec![class()];
        s.classes[0].class.metadata.deletion_timestamp = Some(at(50));
    };
    check_ends(&change(old(), deleted), DeletionReason::Requested);
}

#[test]
fn blocks_of_claims_are_looked_up_every_minute_while_they_are_unknown_or_end_soon() {
    let due = |scene: Scene| scene.compare(&[], 100).refresh;
    assert!(due(block(100 + 3600, 50)) && !due(block(100 + 3600, 51)), "once a minute");
    assert!(!due(block(100 + 3601, 0)), "the regular runs of refresh are enough");
    let unknown = |looked_at| change(block(1_000_000, looked_at), |s| know(s, None));
    assert!(due(unknown(50)) && !due(unknown(51)));
    assert!(due(change(block(1_000_000, 90), |s| s.blocks = None)), "after an update, or the first launch");
    assert!(!due(change(block(1_000_000, 0), |s| know(s, Some(None)))), "no capacity block");
    assert!(!due(change(block(0, 0), |s| of_type(s, "default"))), "an ordinary reservation");
    let ending = |s: &mut Scene| s.claims[0] = whittle_claims::step(&s.claims[0], &super::deletion_requested(), at(20)).unwrap();
    assert!(!due(change(block(0, 0), ending)), "its claim goes already");
}

#[test]
fn a_sweep_asks_for_the_end_of_a_block_and_deletes_by_what_refresh_stored() {
    let mut simulation = still();
    with_pool(&simulation, super::node(true));
    start_machine(&simulation);
    let scene = block(100 + 2400, 100);
    simulation.store(&scene.claims[0]);
    simulation.run_until(at(100));
    sweep(&simulation, &Settings::default());
    assert_eq!((kept(&simulation).deletion, simulation.doorbells().contains(&Function::Refresh)), (None, true));
    block_on(simulation.ports().write(&ClusterName::new("c"), &scene.blocks.unwrap(), Revision::ABSENT)).unwrap();
    sweep(&simulation, &Settings::default());
    let deletion = kept(&simulation).deletion.unwrap();
    assert_eq!((deletion.reason, deletion.message), (DeletionReason::Requested, format!("its capacity block ends at {}", at(100 + 2400))));
}

#[test]
fn reservations_are_refreshed_every_minute_if_a_class_selects_some() {
    let due = |names: bool, input: i64| {
        change(reserved(), |s| {
            let term = CapacityReservationSelectorTerm { id: Some("cr-1".into()), ..CapacityReservationSelectorTerm::default() };
            s.classes[0].class.spec.capacity_reservation_selector_terms = names.then(|| vec![term]);
            s.classes[0].resolved_at = at(input);
        })
        .compare(&[], 100)
        .refresh
    };
    assert!(due(true, 50) && !due(true, 51) && !due(false, 0));
}
