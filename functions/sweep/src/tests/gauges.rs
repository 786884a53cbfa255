//! The metrics of a sweep: what pools use and cost, and what nobody gets further with.

use super::*;
use std::collections::BTreeMap;
use whittle_ports::{Amount, Measured, Report};
use whittle_units::{Price, Quantity};

/// The gauges of a report, each as its metric, the values of its labels and its amount.
fn lines(report: &Report) -> Vec<String> {
    let line = |gauge: &Measured| format!("{} {:?} {:?}", gauge.metric, gauge.labels.values().collect::<Vec<_>>(), gauge.amount);
    report.gauges.iter().map(line).collect()
}

#[test]
fn a_sweep_emits_usage_and_cost_of_pools() {
    let mut report = Report::default();
    let mut dear = registered();
    if let whittle_claims::Phase::Registered { machine, .. } = &mut dear.phase {
        machine.price = Price::from_nanos(96_000_000);
    }
    let mut pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    pool.status.resources.set("cpu", Quantity::from_units(2));
    pool.spec.limits.set("cpu", Quantity::from_units(10));
    crate::gauges::pools(&mut report, &[pool], &stored(vec![dear, planned()]));
    assert_eq!(
        lines(&report),
        [
            "karpenter_nodepools_usage [\"default\", \"cpu\"] Quantity(Quantity(2000))",
            "karpenter_nodepools_limit [\"default\", \"cpu\"] Quantity(Quantity(10000))",
            "karpenter_nodepools_cost_total [\"default\"] Dollars(Price(96000000))",
            "whittle_nodes_dollars_per_hour [] Dollars(Price(96000000))",
            "whittle_nodeclaims [\"default\", \"Planned\"] Count(1)",
            "whittle_nodeclaims [\"default\", \"Registered\"] Count(1)",
        ]
    );
}

#[test]
fn a_cluster_without_machines_has_no_series_of_its_cost() {
    let mut report = Report::default();
    crate::gauges::pools(&mut report, &[], &stored(vec![planned()]));
    assert_eq!(lines(&report), ["whittle_nodeclaims [\"default\", \"Planned\"] Count(1)"]);
}

/// The gauges of claims that are stuck at a time.
fn stuck(claims: Vec<Claim>, shifted: &ShiftedZones, now: i64) -> Vec<String> {
    let mut report = Report::default();
    crate::gauges::stuck(&mut report, &stored(claims), shifted, at(now));
    lines(&report)
}

#[test]
fn claims_that_are_too_long_in_a_phase_are_counted_by_pool_and_phase() {
    let nameless = Claim { spec: ClaimSpec { node_pool: String::new(), ..planned().spec }, ..planned() };
    let claims = vec![planned(), registered(), nameless];
    let nowhere = ShiftedZones::default();
    // A launch may take five minutes, and ten more before it is remarkable.
    assert_eq!(stuck(claims.clone(), &nowhere, 899), [""; 0]);
    assert_eq!(
        stuck(claims, &nowhere, 3_600),
        [
            "whittle_nodeclaims_stuck [\"\", \"Planned\"] Count(1)",
            "whittle_nodeclaims_stuck [\"default\", \"Planned\"] Count(1)",
            "whittle_nodeclaims_stuck [\"default\", \"Registered\"] Count(1)",
        ]
    );
    assert_eq!(stuck(vec![registered()], &zone_of(&registered()), 3_600), [""; 0], "a zonal shift may hold it");
}

#[test]
fn claims_in_the_table_that_cannot_be_read_are_counted() {
    let mut report = Report::default();
    crate::gauges::unreadable(&mut report, &ClusterObjects::default(), 2, &BTreeMap::new());
    assert_eq!(lines(&report), ["whittle_objects_unreadable [\"stored NodeClaim\"] Count(2)"]);
}

/// While one of them is not served, machines are kept for it that nobody needs.
#[test]
fn a_kind_that_is_not_served_is_reported_and_one_of_older_releases_is_not() {
    for (kind, is_needed) in [("NodePool", true), ("NodeClaim", true), ("EC2NodeClass", true), ("Node", true), ("Provisioner", false)] {
        let objects = ClusterObjects { absent_kinds: vec![kind.to_owned()], ..ClusterObjects::default() };
        let mut report = Report::default();
        crate::gauges::unreadable(&mut report, &objects, 0, &BTreeMap::new());
        let expected = is_needed.then(|| format!("whittle_kinds_absent [{kind:?}] Count(1)"));
        assert_eq!(lines(&report), Vec::from_iter(expected), "{kind}");
    }
}

/// A zonal shift away from the zone of the claim's machine.
fn zone_of(claim: &Claim) -> ShiftedZones {
    ShiftedZones { names: [claim.machine().unwrap().zone.clone()].into(), ..ShiftedZones::default() }
}

/// The gauges of a claim that nobody works on although a sweep with these findings rings for it.
fn stalled(claim: &Claim, findings: &Findings, shifted: &ShiftedZones, now: i64) -> Vec<(&'static str, Amount)> {
    let mut report = Report::default();
    crate::gauges::stalled(&mut report, &stored(vec![claim.clone()]), findings, shifted, at(now));
    report.gauges.iter().map(|gauge| (gauge.metric, gauge.amount)).collect()
}

#[test]
fn launches_and_terminations_that_are_rung_for_and_not_worked_on_are_counted() {
    let nowhere = ShiftedZones::default();
    let found = |claim: &Claim, now| scene(claim.clone()).compare(&[], now);
    let stalled_at = |claim: &Claim, now| stalled(claim, &found(claim, now), &nowhere, now);

    // Two minutes after the claim was stored.
    let due = 120;
    assert_eq!(stalled_at(&planned(), due - 1), []);
    assert_eq!(stalled_at(&planned(), due), [("whittle_launches_stalled", Amount::Count(1))]);
    assert_eq!(stalled(&planned(), &Findings::default(), &nowhere, due), [], "one that is not to be launched is not rung for");

    // Five minutes after its deletion was requested, at 10 s.
    let ending = after(&[begun(), Event::FleetAnswered(machine("i-1")), deletion_requested()]);
    let due = 10 + 300;
    assert_eq!(stalled_at(&ending, due - 1), []);
    assert_eq!(stalled_at(&ending, due), [("whittle_terminations_stalled", Amount::Count(1))]);
    assert_eq!(stalled(&ending, &found(&ending, due), &zone_of(&ending), due), [], "a zonal shift may hold it");
}
