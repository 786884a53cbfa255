//! The ends of the capacity blocks that claims run in.

use super::{Counting, class, cluster, delete_class, later, now, over, reference, reserve, run, world};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::labels;
use whittle_claims::{BlockEnds, ClaimSpec, Event, LeftNodes, Revision, Uninstall};
use whittle_ports::{RecordReader, Records, Settings};
use whittle_testkit::{TestWorld, after, begun, machine, planned};
use whittle_units::Timestamp;

/// Stores a claim whose machine has these labels.
fn launched(simulation: &TestWorld, name: &str, of_machine: &[(&str, &str)]) {
    let mut reserved = machine(&format!("i-{name}"));
    reserved.labels = of_machine.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let claim = planned(name, ClaimSpec { node_class: reference(), ..ClaimSpec::default() });
    simulation.store(&after(&claim, &[begun(name), Event::FleetAnswered(reserved)], now()));
}

/// A world in which a claim runs in a reservation that ends in two hours and that its class does not select any more.
fn moved_on(kind: &str, of_machine: &[(&str, &str)]) -> TestWorld {
    let simulation = world();
    reserve(&simulation, kind, 1, later(120));
    select_none(&simulation);
    launched(&simulation, "default-1", of_machine);
    simulation
}

fn select_none(simulation: &TestWorld) {
    simulation.change::<Ec2NodeClass>("default", |class| class.spec.capacity_reservation_selector_terms = None);
}

const IN_BLOCK: &[(&str, &str)] = &[(labels::RESERVATION_ID, "cr-1"), (labels::RESERVATION_TYPE, "capacity-block")];

fn stored(simulation: &TestWorld) -> Option<BlockEnds> {
    block_on(simulation.ports().read::<BlockEnds>(&cluster(), BlockEnds::NAME)).unwrap().map(|stored| stored.value)
}

fn one(end: Option<Timestamp>) -> BTreeMap<String, Option<Timestamp>> {
    [("cr-1".to_owned(), end)].into()
}

/// Changes the end of the block in EC2.
fn extend(simulation: &TestWorld, ends_at: Timestamp) {
    simulation.world().region.reservations.get_mut("cr-1").unwrap().described.ends_at = Some(ends_at);
}

#[test]
fn the_end_of_a_block_is_known_after_its_class_selects_another_or_is_deleted() {
    for deleted in [false, true] {
        let simulation = world();
        reserve(&simulation, "capacity-block", 1, later(120));
        run(&simulation);
        assert_eq!(stored(&simulation), None, "no claim runs in it");
        launched(&simulation, "default-1", IN_BLOCK);
        if deleted {
            delete_class(&simulation);
        } else {
            select_none(&simulation);
        }
        run(&simulation);
        assert_eq!(stored(&simulation).unwrap(), BlockEnds { ends: one(Some(later(120))), looked_at: now() });
        assert!(class(&simulation).is_some(), "the claim holds it");
        extend(&simulation, later(400));
        run(&simulation);
        assert_eq!(stored(&simulation).unwrap().ends, one(Some(later(400))), "it is extended while no class selects it");
    }
}

#[test]
fn the_block_of_an_adopted_claim_needs_no_label_of_its_type() {
    let id = &[(labels::RESERVATION_ID, "cr-1")];
    let block = moved_on("capacity-block", id);
    run(&block);
    assert_eq!(stored(&block).unwrap().ends, one(Some(later(120))));
    let ordinary = moved_on("default", id);
    run(&ordinary);
    assert_eq!(stored(&ordinary).unwrap().ends, one(None), "an ordinary reservation ends no machine");
}

#[test]
fn what_ec2_does_not_show_keeps_its_last_known_end() {
    let mut simulation = moved_on("capacity-block", IN_BLOCK);
    run(&simulation);
    simulation.run_for(whittle_units::SignedDuration::from_mins(11));
    let ports = simulation.ports();
    let ec2 = Counting { refuses_reservations: true, ..Counting::over(&ports) };
    assert!(block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).is_err(), "the next run asks again");
    let known = stored(&simulation).unwrap();
    assert_eq!((known.ends, known.looked_at), (one(Some(later(120))), later(11)));
    simulation.world().region.end_reservation("cr-1", "cancelled");
    run(&simulation);
    assert_eq!(stored(&simulation).unwrap().ends, one(Some(later(120))));
}

#[test]
fn nothing_is_asked_or_stored_without_a_claim_in_a_block() {
    let asked = |of_machine: &[(&str, &str)]| {
        let simulation = moved_on("capacity-block", of_machine);
        let ports = simulation.ports();
        let ec2 = Counting::over(&ports);
        block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).unwrap();
        (ec2.counts()[2], stored(&simulation).is_some())
    };
    // The class asks once.
    assert_eq!(asked(&[]), (1, false));
    assert_eq!(asked(&[(labels::RESERVATION_ID, "cr-1"), (labels::RESERVATION_TYPE, "default")]), (1, false));
    assert_eq!(asked(IN_BLOCK), (2, true));
}

#[test]
fn nothing_is_stored_after_an_uninstallation() {
    let simulation = moved_on("capacity-block", IN_BLOCK);
    let left = Uninstall { asked_at: now(), nodes: LeftNodes::Keep };
    block_on(simulation.ports().write(&cluster(), &left, Revision::ABSENT)).unwrap();
    run(&simulation);
    assert_eq!(stored(&simulation), None);
}
