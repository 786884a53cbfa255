//! Instances in capacity reservations: which have left theirs, which have to leave.

use super::{Scene, change, check_ends, check_never_ends, registered, scene};
use whittle_api::karpenter::{CapacityReservationSelectorTerm, Ec2NodeClass, ResolvedCapacityReservation};
use whittle_api::{ObjectMeta, labels};
use whittle_claims::{Claim, DeletionReason, NodeClassRecord, Phase};
use whittle_testkit::{at, resolved_class};

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
    let half = change(left.clone(), |s| machine_of(&mut s.claims[0]).capacity_type = "on-demand".into());
    check(&half, &[], &["n"]);
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

/// A capacity block that ends at `ends`, in a sweep at `input`.
fn block(ends: i64, input: i64) -> Scene {
    change(reserved(), |s| {
        s.classes[0].class.status.capacity_reservations =
            vec![reservation("cr-other", "capacity-block", 100), reservation("cr-1", "capacity-block", ends)];
        s.classes[0].resolved_at = at(input);
    })
}

#[test]
fn a_claim_in_a_capacity_block_is_deleted_before_the_block_ends() {
    check_ends(&block(100 + 2400, 90), DeletionReason::Requested);
    check_never_ends(&block(100 + 2400 + 61, 90));
    check_never_ends(&change(reserved(), |s| s.classes[0].class.status.capacity_reservations = vec![reservation("cr-1", "default", 100)]));
}

#[test]
fn a_stale_end_of_a_capacity_block_deletes_nothing() {
    check_ends(&block(100 + 2400, 100 - 600), DeletionReason::Requested);
    check_never_ends(&block(100 + 2400, 39 - 600));
    // Another class was resolved later, after the block had been extended.
    let extended = change(block(100 + 2400, 60), |s| s.classes.push(block(100_000, 90).classes.remove(0)));
    check_never_ends(&extended);
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
