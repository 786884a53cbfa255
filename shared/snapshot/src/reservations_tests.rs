use crate::Reserved;
use std::collections::BTreeMap;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimSpec, Event, Machine, NodeClassRecord, OfferingKey, StockOut, step};
use whittle_testkit::{after, at, begun, machine, resolved_class, stored};

/// A class whose reservations had these free instances at a second.
fn class(second: i64, free: &[(&str, u32)]) -> NodeClassRecord {
    let free_reserved = free.iter().map(|(id, free)| ((*id).to_owned(), *free)).collect();
    NodeClassRecord { free_reserved, resolved_at: at(second), ..resolved_class("") }
}

/// A claim that may launch into one of these reservations.
fn planned(name: &str, ids: &[&str]) -> Claim {
    let requirements =
        vec![Requirement::is_in(labels::CAPACITY_TYPE, ["reserved"]), Requirement::is_in(labels::RESERVATION_ID, ids.iter().copied())];
    let spec = ClaimSpec { requirements, ..ClaimSpec::default() };
    whittle_testkit::planned(name, spec)
}

fn launched(name: &str, id: &str, second: i64) -> Claim {
    let labels = BTreeMap::from([(labels::RESERVATION_ID.to_owned(), id.to_owned())]);
    let machine = Machine { capacity_type: "reserved".into(), labels, launched_at: at(second), ..machine(&format!("i-{name}")) };
    let begun = after(&planned(name, &[id]), &[begun("t")], at(0));
    after(&begun, &[Event::FleetAnswered(machine)], at(second))
}

fn free(reserved: &Reserved) -> Vec<(&str, u32)> {
    reserved.free.iter().map(|(id, free)| (id.as_str(), *free)).collect()
}

/// Compares the free instances at second 100, for plans and for launches.
#[track_caller]
fn check(classes: &[NodeClassRecord], claims: Vec<Claim>, outs: &[StockOut], plans: &[(&str, u32)], launches: &[(&str, u32)]) {
    let claims = stored(claims);
    assert_eq!(free(&Reserved::for_plans(classes, &claims, outs, at(100))), plans, "for plans");
    assert_eq!(free(&Reserved::for_launches(classes, &claims, outs, at(100))), launches, "for launches");
}

#[test]
fn launches_since_ec2s_count_are_subtracted_and_earlier_ones_are_not() {
    let classes = [class(50, &[("cr-1", 5)])];
    check(&classes, vec![launched("a", "cr-1", 40)], &[], &[("cr-1", 5)], &[("cr-1", 5)]);
    check(&classes, vec![launched("a", "cr-1", 51), launched("b", "cr-1", 90)], &[], &[("cr-1", 3)], &[("cr-1", 3)]);
    // EC2's own count lags a few seconds.
    check(&classes, vec![launched("a", "cr-1", 46)], &[], &[("cr-1", 4)], &[("cr-1", 4)]);
    check(&classes, vec![launched("a", "cr-1", 45)], &[], &[("cr-1", 5)], &[("cr-1", 5)]);
    check(&classes, vec![launched("a", "cr-2", 90)], &[], &[("cr-1", 5)], &[("cr-1", 5)]);
}

#[test]
fn two_plans_never_use_the_same_reserved_instance() {
    let classes = [class(50, &[("cr-1", 2)])];
    let under_way = step(&planned("b", &["cr-1"]), &Event::LaunchBegun { client_token: "t".into() }, at(60)).unwrap();
    check(&classes, vec![planned("a", &["cr-1"]), under_way], &[], &[("cr-1", 0)], &[("cr-1", 2)]);
    check(&classes, vec![planned("a", &["cr-1"]), planned("b", &["cr-1"]), planned("c", &["cr-1"])], &[], &[("cr-1", 0)], &[("cr-1", 2)]);
}

#[test]
fn claims_bound_to_one_reservation_are_subtracted_before_those_with_a_choice() {
    let classes = [class(50, &[("cr-1", 1), ("cr-2", 1)])];
    let claims = vec![planned("a", &["cr-1", "cr-2"]), planned("b", &["cr-2"])];
    check(&classes, claims, &[], &[("cr-1", 0), ("cr-2", 0)], &[("cr-1", 1), ("cr-2", 1)]);
    let classes = [class(50, &[("cr-1", 1), ("cr-2", 3)])];
    check(&classes, vec![planned("a", &["cr-1", "cr-2"])], &[], &[("cr-1", 1), ("cr-2", 2)], &[("cr-1", 1), ("cr-2", 3)]);
}

#[test]
fn failed_and_unreserved_claims_use_no_reservation() {
    let classes = [class(50, &[("cr-1", 1)])];
    let mut on_demand = planned("a", &["cr-1"]);
    on_demand.spec.requirements[0] = Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "reserved"]);
    let mut failed = planned("b", &["cr-1"]);
    failed.phase = whittle_claims::Phase::Failed { reason: String::new(), message: String::new(), since: at(60) };
    let mut demoted = launched("c", "cr-1", 90);
    if let whittle_claims::Phase::Launched { machine } = &mut demoted.phase {
        machine.capacity_type = "on-demand".into();
    }
    check(&classes, vec![on_demand, failed, demoted], &[], &[("cr-1", 1)], &[("cr-1", 1)]);
}

#[test]
fn the_latest_count_of_any_class_is_used_and_a_full_reservation_has_none_free() {
    let classes = [class(50, &[("cr-1", 5), ("cr-2", 4)]), class(60, &[("cr-1", 2)]), class(40, &[("cr-1", 9)])];
    let out = StockOut::after_failure(None, OfferingKey::of_reservation("cr-2"), "ReservationCapacityExceeded", at(0));
    check(&classes, Vec::new(), std::slice::from_ref(&out), &[("cr-1", 2), ("cr-2", 0)], &[("cr-1", 2), ("cr-2", 0)]);
    let over = StockOut { until: at(99), ..out };
    check(&classes, Vec::new(), &[over], &[("cr-1", 2), ("cr-2", 4)], &[("cr-1", 2), ("cr-2", 4)]);
}
