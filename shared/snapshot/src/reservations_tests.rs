use crate::Reserved;
use std::collections::BTreeMap;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimSpec, Event, Machine, NodeClassRecord, OfferingKey, StockOut, step};
use whittle_testkit::{after, at, begun, machine, resolved_class, stored};

/// What EC2 said of reservations at a second.
fn class(second: i64, free: &[(&str, u32)]) -> NodeClassRecord {
    let free_reserved = free.iter().map(|(id, free)| ((*id).to_owned(), *free)).collect();
    NodeClassRecord { free_reserved, resolved_at: at(second), ..resolved_class("") }
}

/// A claim that may start in one of these.
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

/// What is free at second 100, for plans and for launches.
#[track_caller]
fn check(classes: &[NodeClassRecord], claims: Vec<Claim>, outs: &[StockOut], plans: &[(&str, u32)], launches: &[(&str, u32)]) {
    let claims = stored(claims);
    assert_eq!(free(&Reserved::for_plans(classes, &claims, outs, at(100))), plans, "for plans");
    assert_eq!(free(&Reserved::for_launches(classes, &claims, outs, at(100))), launches, "for launches");
}

#[test]
fn what_was_started_since_ec2_was_asked_is_taken_off_and_what_it_has_counted_is_not() {
    let classes = [class(50, &[("cr-1", 5)])];
    check(&classes, vec![launched("a", "cr-1", 40)], &[], &[("cr-1", 5)], &[("cr-1", 5)]);
    check(&classes, vec![launched("a", "cr-1", 51), launched("b", "cr-1", 90)], &[], &[("cr-1", 3)], &[("cr-1", 3)]);
    // EC2's own count lags a little.
    check(&classes, vec![launched("a", "cr-1", 46)], &[], &[("cr-1", 4)], &[("cr-1", 4)]);
    check(&classes, vec![launched("a", "cr-2", 90)], &[], &[("cr-1", 5)], &[("cr-1", 5)]);
}

#[test]
fn two_plans_never_spend_the_same_place() {
    let classes = [class(50, &[("cr-1", 2)])];
    let under_way = step(&planned("b", &["cr-1"]), &Event::LaunchBegun { client_token: "t".into() }, at(60)).unwrap();
    check(&classes, vec![planned("a", &["cr-1"]), under_way], &[], &[("cr-1", 0)], &[("cr-1", 2)]);
    check(&classes, vec![planned("a", &["cr-1"]), planned("b", &["cr-1"]), planned("c", &["cr-1"])], &[], &[("cr-1", 0)], &[("cr-1", 2)]);
}

#[test]
fn a_claim_with_a_choice_takes_one_place_after_those_that_have_none() {
    let classes = [class(50, &[("cr-1", 1), ("cr-2", 1)])];
    let claims = vec![planned("a", &["cr-1", "cr-2"]), planned("b", &["cr-2"])];
    check(&classes, claims, &[], &[("cr-1", 0), ("cr-2", 0)], &[("cr-1", 1), ("cr-2", 1)]);
    let classes = [class(50, &[("cr-1", 1), ("cr-2", 3)])];
    check(&classes, vec![planned("a", &["cr-1", "cr-2"])], &[], &[("cr-1", 1), ("cr-2", 2)], &[("cr-1", 1), ("cr-2", 3)]);
}

#[test]
fn claims_that_are_not_reserved_or_have_failed_hold_nothing() {
    let classes = [class(50, &[("cr-1", 1)])];
    let mut on_demand = planned("a", &["cr-1"]);
    on_demand.spec.requirements[0] = Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "reserved"]);
    let mut failed = planned("b", &["cr-1"]);
    failed.phase = whittle_claims::Phase::Failed { reason: String::new(), message: String::new(), since: at(60) };
    let mut left = launched("c", "cr-1", 90);
    if let whittle_claims::Phase::Launched { machine } = &mut left.phase {
        machine.capacity_type = "on-demand".into();
    }
    check(&classes, vec![on_demand, failed, left], &[], &[("cr-1", 1)], &[("cr-1", 1)]);
}

#[test]
fn the_latest_look_of_any_class_counts_and_a_reservation_that_refused_has_nothing() {
    let classes = [class(50, &[("cr-1", 5), ("cr-2", 4)]), class(60, &[("cr-1", 2)]), class(40, &[("cr-1", 9)])];
    let out = StockOut::after_failure(None, OfferingKey::of_reservation("cr-2"), "ReservationCapacityExceeded", at(0));
    check(&classes, Vec::new(), std::slice::from_ref(&out), &[("cr-1", 2), ("cr-2", 0)], &[("cr-1", 2), ("cr-2", 0)]);
    let over = StockOut { until: at(99), ..out };
    check(&classes, Vec::new(), &[over], &[("cr-1", 2), ("cr-2", 4)], &[("cr-1", 2), ("cr-2", 4)]);
}
