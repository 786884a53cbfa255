//! What a plan launches after EC2 has refused a machine for a quota of vCPUs.

use super::{checked, four, now, pod, snapshot};
use crate::outside::Texts;
use crate::set_aside::over_quota;
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Claim, Event, OfferingKey, StockOut};
use whittle_model::scheduling::{NewClaim, Options, Plan, Reason};
use whittle_ports::{Report, Settings};
use whittle_snapshot::Snapshot;
use whittle_solver::Memory;
use whittle_testkit::{after, begun, default_spec, machine, planned, stored};
use whittle_units::{ClusterName, Price, Quantity, SignedDuration};

fn options() -> Options {
    whittle_snapshot::options(&Settings::default())
}

/// Three pods, each of which needs a machine of four vCPUs.
fn three_pods() -> Snapshot {
    snapshot(["a", "b", "c"].map(|name| pod(name, 3)).to_vec())
}

fn refused(quota: &str, capacity_type: &str, vcpus: u32) -> StockOut {
    StockOut::with_fixed_wait(OfferingKey::of_quota(quota, capacity_type, vcpus), "VcpuLimitExceeded", now())
}

/// What is left of the plan for three pods.
fn left_of_plan(change: impl FnOnce(&mut Snapshot)) -> (Plan, u64) {
    let mut seen = three_pods();
    let mut plan = checked(&seen.input(), &options(), &ClusterName::new("c")).unwrap();
    assert_eq!(plan.claims.len(), 3);
    change(&mut seen);
    let mut report = Report::default();
    over_quota(&mut plan, &seen, &mut report);
    (plan, report.counted("over_quota"))
}

fn waits_for_quota(plan: &Plan) -> usize {
    plan.left_out.iter().filter(|left| matches!(&left.reason, Reason::OverQuota { capacity_type } if capacity_type == "on-demand")).count()
}

#[test]
fn a_plan_takes_no_more_of_a_quota_than_the_refused_machine_would_have() {
    for (vcpus, launched) in [(17, 3), (13, 3), (12, 2), (9, 2), (8, 1), (5, 1)] {
        let (plan, counted) = left_of_plan(|seen| seen.stock_outs = vec![refused("standard", "on-demand", vcpus)]);
        assert_eq!((plan.claims.len(), waits_for_quota(&plan)), (launched, 3 - launched), "{vcpus}");
        assert_eq!(usize::try_from(counted).unwrap(), 3 - launched);
    }
    // The smallest size counts: each is a record of its own.
    let (plan, _) = left_of_plan(|seen| seen.stock_outs = [16, 8, 64].map(|vcpus| refused("standard", "on-demand", vcpus)).to_vec());
    assert_eq!(plan.claims.len(), 1);
}

#[test]
fn other_quotas_and_refusals_that_have_passed_take_nothing_away() {
    let passed = StockOut { until: now(), ..refused("standard", "on-demand", 8) };
    for out in [refused("standard", "spot", 8), refused("g-vt", "on-demand", 8), passed] {
        let (plan, counted) = left_of_plan(|seen| seen.stock_outs = vec![out.clone()]);
        assert_eq!((plan.claims.len(), plan.left_out.len(), counted), (3, 0, 0), "{out:?}");
    }
}

/// How many of three machines are launched that may have these types.
fn launched_of(types: Vec<InstanceType>) -> usize {
    let mut seen = three_pods();
    seen.catalog = [("default".to_owned(), Arc::new(types.into()))].into();
    let mut plan = checked(&seen.input(), &options(), &ClusterName::new("c")).unwrap();
    seen.stock_outs = vec![refused("standard", "on-demand", 5)];
    over_quota(&mut plan, &seen, &mut Report::default());
    plan.claims.len()
}

#[test]
fn a_machine_that_may_count_for_another_quota_is_launched() {
    let mut other = four();
    other.name = "g5.xlarge".into();
    other.requirements.retain(|requirement| requirement.key != labels::INSTANCE_TYPE);
    other.requirements.push(Requirement::is_in(labels::INSTANCE_TYPE, ["g5.xlarge"]));
    assert_eq!(launched_of(vec![four()]), 1);
    assert_eq!(launched_of(vec![four(), other.clone()]), 3);
    other.capacity.set("nvidia.com/gpu", Quantity::from_units(1));
    assert_eq!(launched_of(vec![four(), other]), 1, "launches do without accelerators while others remain");
    assert_eq!(launched_of(vec![of_both_markets()]), 3, "launches take spot first");
}

/// A type with four CPUs that is sold as spot as well, for a quarter.
fn of_both_markets() -> InstanceType {
    let mut both = four();
    both.requirements.retain(|requirement| requirement.key != labels::CAPACITY_TYPE);
    both.requirements.push(Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"]));
    let mut offering = both.offerings[0].clone();
    offering.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"]), Requirement::is_in(labels::ZONE, ["a"])];
    offering.price = Price::from_dollars(0.05);
    both.offerings.push(offering);
    both
}

/// The capacity types that the machines of a plan for three pods may have, sorted, with the cheapest price of each machine.
fn markets_of(refused: &[StockOut], change: impl Fn(&mut NewClaim)) -> Vec<(String, Price)> {
    markets_among(vec![of_both_markets()], refused, change)
}

fn markets_among(types: Vec<InstanceType>, refused: &[StockOut], change: impl Fn(&mut NewClaim)) -> Vec<(String, Price)> {
    let mut seen = three_pods();
    seen.catalog = [("default".to_owned(), Arc::new(types.into()))].into();
    let mut plan = checked(&seen.input(), &options(), &ClusterName::new("c")).unwrap();
    assert_eq!(plan.claims.len(), 3);
    plan.claims.iter_mut().for_each(change);
    seen.stock_outs = refused.to_vec();
    over_quota(&mut plan, &seen, &mut Report::default());
    let market = |claim: &NewClaim| {
        let only = claim.requirements.iter().find(|known| known.key == labels::CAPACITY_TYPE && known.values.len() == 1);
        let only = only.map_or_else(|| "any".to_owned(), |known| known.values[0].clone());
        let told = claim.why.cheapest.as_ref().map(|offer| (offer.capacity_type.clone(), offer.price));
        assert!(only != "on-demand" || told == Some((only.clone(), claim.cheapest_price)), "{told:?}");
        (only, claim.cheapest_price)
    };
    let mut markets: Vec<_> = plan.claims.iter().map(market).collect();
    markets.sort();
    markets
}

/// A claim that may be of either market, as that of a NodePool without requirements is.
fn of_any_market(claim: &mut NewClaim) {
    claim.requirements.retain(|known| known.key != labels::CAPACITY_TYPE);
}

#[test]
fn what_a_spot_quota_has_no_room_for_is_launched_on_demand_at_once() {
    let [spot, on_demand] = [0.05, 0.2].map(Price::from_dollars);
    let of = |kind: &str, price| (kind.to_owned(), price);
    let spot_refused = refused("standard", "spot", 5);
    let markets = markets_of(std::slice::from_ref(&spot_refused), of_any_market);
    assert_eq!(markets, [of("any", spot), of("on-demand", on_demand), of("on-demand", on_demand)]);
    // Where that quota is used up too, one of each is tried.
    let markets = markets_of(&[spot_refused.clone(), refused("standard", "on-demand", 5)], of_any_market);
    assert_eq!(markets, [of("any", spot), of("on-demand", on_demand)]);
    // A machine that has to be spot waits, and so does one for which several capacity types are asked.
    let only_spot = |claim: &mut NewClaim| {
        of_any_market(claim);
        claim.requirements.push(Requirement::is_in(labels::CAPACITY_TYPE, ["spot"]));
    };
    assert_eq!(markets_of(std::slice::from_ref(&spot_refused), only_spot).len(), 1);
    let both = |claim: &mut NewClaim| {
        of_any_market(claim);
        let kinds = Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"]);
        claim.requirements.push(Requirement { min_values: Some(2), ..kinds });
    };
    assert_eq!(markets_of(&[spot_refused], both).len(), 1);
}

#[test]
fn what_is_sold_in_other_zones_alone_is_no_way_out() {
    let mut apart = of_both_markets();
    apart.requirements.retain(|requirement| requirement.key != labels::ZONE);
    apart.requirements.push(Requirement::is_in(labels::ZONE, ["a", "b"]));
    apart.offerings[1].requirements[1] = Requirement::is_in(labels::ZONE, ["b"]);
    let launched_in = |zone: &str, kind: &str| {
        let markets = markets_among(vec![apart.clone()], &[refused("standard", kind, 5)], |claim| {
            of_any_market(claim);
            claim.requirements.retain(|known| known.key != labels::ZONE);
            claim.requirements.push(Requirement::is_in(labels::ZONE, [zone]));
        });
        assert!(markets.iter().all(|(market, _)| market == "any"), "{markets:?}");
        markets.len()
    };
    assert_eq!((launched_in("a", "on-demand"), launched_in("a", "spot")), (1, 3), "spot machines are in b");
    assert_eq!((launched_in("b", "on-demand"), launched_in("b", "spot")), (3, 1), "those on demand are in a");
}

#[test]
fn a_machine_is_held_to_no_capacity_type_in_which_it_lacks_values_that_are_asked_for() {
    let mut spot = of_both_markets();
    spot.name = "five".into();
    spot.requirements.retain(|requirement| ![labels::INSTANCE_TYPE, labels::CAPACITY_TYPE].contains(&requirement.key.as_str()));
    spot.requirements.push(Requirement::is_in(labels::INSTANCE_TYPE, ["five"]));
    spot.requirements.push(Requirement::is_in(labels::CAPACITY_TYPE, ["spot"]));
    spot.offerings.remove(0);
    let launched_with = |min_values: Option<u32>| {
        let types = vec![of_both_markets(), spot.clone()];
        let launched = markets_among(types, &[refused("standard", "spot", 5)], |claim| {
            of_any_market(claim);
            claim.instance_type_min_values = min_values;
        });
        launched.len()
    };
    assert_eq!((launched_with(None), launched_with(Some(2))), (3, 1));
}

#[test]
fn claims_that_wait_for_their_machine_take_their_part() {
    let mut claim = planned("earlier", default_spec());
    claim.spec.node_pool = "default".into();
    claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["four"])];
    claim.spec.instance_types = vec!["four".into()];
    let launching: Claim = after(&claim, &[begun("t")], now());
    let launched = after(&launching, &[Event::FleetAnswered(machine("i-1"))], now());
    // That of a static pool names no types; one of a pool that cannot launch these takes nothing.
    let mut of_static_pool = claim.clone();
    of_static_pool.spec.instance_types.clear();
    let mut of_other_types = of_static_pool.clone();
    of_other_types.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["sixteen"])];
    for (claim, expected) in [(claim, 1), (launching, 1), (launched, 2), (of_static_pool, 1), (of_other_types, 2)] {
        let (plan, _) = left_of_plan(|seen| {
            seen.stock_outs = vec![refused("standard", "on-demand", 9)];
            seen.claims = stored([claim.clone()]);
        });
        assert_eq!(plan.claims.len(), expected, "{}", claim.phase.name());
    }
}

/// A NodePool that nothing can be launched for has such claims again and again, each for the five minutes of the launch timeout.
#[test]
fn claims_that_wait_for_a_person_leave_a_quota_to_others() {
    let mut claim = planned("broken", default_spec());
    claim.spec.node_pool = "default".into();
    claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["four"])];
    claim.spec.instance_types = vec!["four".into()];
    let launched_beside = |claim: &Claim, reason: &str, age: i64| {
        let erred = Event::LaunchErred { reason: reason.to_owned(), message: "no".to_owned() };
        let claim = Claim { created_at: now() - SignedDuration::from_secs(age), ..after(claim, &[erred], now()) };
        let (plan, _) = left_of_plan(|seen| {
            seen.stock_outs = vec![refused("standard", "on-demand", 9)];
            seen.claims = stored([claim]);
        });
        plan.claims.len()
    };
    for claim in [claim.clone(), after(&claim, &[begun("t")], now())] {
        for (reason, age, launched) in [
            ("Unauthorized", 0, 2),
            ("AMINotFound", 0, 2),
            ("SubnetResolutionFailed", 0, 2),
            // What may pass takes its part, for as long as that would take.
            ("LaunchFailed", 59, 1),
            ("LaunchFailed", 60, 2),
            ("NodeClassReadinessUnknown", 60, 2),
            // A claim that EC2 is busy for, or that waits for a quota itself, takes it always.
            ("RequestLimitExceeded", 299, 1),
            ("VCPULimitExceeded", 299, 1),
        ] {
            assert_eq!(launched_beside(&claim, reason, age), launched, "{} {reason} {age} s", claim.phase.name());
        }
    }
}

#[test]
fn pods_that_wait_for_a_quota_are_considered_again_by_the_next_plan() {
    let seen = three_pods();
    let (plan, _) = left_of_plan(|seen| seen.stock_outs = vec![refused("standard", "on-demand", 5)]);
    assert_eq!(waits_for_quota(&plan), 2);
    let memory = Memory::after(&seen.input(), &options(), &plan);
    assert!(memory.settled(&seen.input(), &options()).is_empty());
    let left = &plan.left_out[0].reason;
    assert!(left.to_string().contains("quota of vCPUs") && left.remedies()[0].text.contains("Service Quotas"), "{left}");
}

#[test]
fn a_pod_is_told_of_an_exhausted_quota_if_its_machines_are_as_large_as_what_was_refused() {
    let said = |vcpus: u32, quota: &str| {
        let mut seen = snapshot(vec![pod("web", 3)]);
        let mut gone = four();
        gone.offerings.iter_mut().for_each(|offering| offering.available = false);
        seen.catalog = [("default".to_owned(), Arc::new(vec![gone].into()))].into();
        seen.stock_outs = vec![refused(quota, "on-demand", vcpus)];
        let plan = checked(&seen.input(), &options(), &ClusterName::new("c")).unwrap();
        let [left] = plan.left_out.as_slice() else { panic!("{plan:?}") };
        Texts::new(&seen).of(&left.reason)
    };
    let text = said(4, "standard");
    let expected = "EC2 answered VcpuLimitExceeded for on-demand quota:standard in *, of 4 vCPUs or more; tried again from ";
    assert!(text.starts_with(expected), "{text}");
    for (vcpus, quota) in [(8, "standard"), (4, "p")] {
        let text = said(vcpus, quota);
        assert!(!text.contains("EC2 answered"), "{text}");
    }
}

#[test]
fn a_quota_is_asked_again_after_a_minute() {
    let out = refused("standard", "on-demand", 8);
    let (plan, _) = left_of_plan(|seen| {
        seen.stock_outs = vec![out];
        seen.now = now() + SignedDuration::from_secs(60);
    });
    assert_eq!(plan.claims.len(), 3);
}
