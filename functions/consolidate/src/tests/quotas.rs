//! Replacements and replicas after EC2 has refused a machine for a quota of vCPUs.

use super::{after, claim, command, running, snapshot_of};
use crate::progress::is_over_quota;
use crate::quotas::{holds_static_drift, launches_within_quotas, within_quotas};
use crate::state::{Disruptions, Running};
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Claim, DeletionReason, Event, OfferingKey, StockOut};
use whittle_disruption::StaticChange;
use whittle_model::disruption::{Command, Method, Removal};
use whittle_model::scheduling::NewClaim;
use whittle_ports::Report;
use whittle_snapshot::{QuotaRoom, Snapshot};
use whittle_testkit::at;
use whittle_units::{Price, Quantity};

/// A type with some CPUs that is sold as spot and on demand.
fn of_cpus(name: &str, cpus: i64) -> InstanceType {
    let offering = |kind: &str, price: f64| Offering {
        requirements: vec![Requirement::is_in(labels::CAPACITY_TYPE, [kind]), Requirement::is_in(labels::ZONE, ["a"])],
        price: Price::from_dollars(price),
        available: true,
        reservation_capacity: None,
    };
    InstanceType {
        name: name.to_owned(),
        requirements: vec![
            Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"]),
            Requirement::is_in(labels::ZONE, ["a"]),
            Requirement::is_in(labels::INSTANCE_TYPE, [name]),
        ],
        offerings: vec![offering("spot", 0.05), offering("on-demand", 0.2)],
        capacity: [("cpu", Quantity::from_units(cpus))].into(),
        ..InstanceType::default()
    }
}

/// What is known a moment after EC2 has refused machines of so many vCPUs, by capacity type.
fn after_refusals(refused: &[(&str, u32)], claims: Vec<Claim>) -> Snapshot {
    let mut snapshot = snapshot_of(claims, at(0));
    snapshot.catalog = [("fixed".to_owned(), Arc::new(vec![of_cpus("four", 4), of_cpus("sixteen", 16)].into()))].into();
    let out = |(kind, vcpus): &(&str, u32)| {
        StockOut::with_fixed_wait(OfferingKey::of_quota("standard", kind, *vcpus), "VcpuLimitExceeded", at(0))
    };
    snapshot.stock_outs = refused.iter().map(out).collect();
    snapshot
}

/// A machine of four CPUs; of these capacity types, or of any.
fn machine_of_four(kinds: &[&str]) -> NewClaim {
    let mut requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["four"])];
    if !kinds.is_empty() {
        requirements.insert(0, Requirement::is_in(labels::CAPACITY_TYPE, kinds.iter().copied()));
    }
    NewClaim { node_pool: "fixed".to_owned(), requirements, ..NewClaim::default() }
}

fn replacing(method: Method, replacements: Vec<NewClaim>) -> Command {
    let removal = Removal { node: "n".to_owned(), node_claim: "old".to_owned(), ..Removal::default() };
    Command { replacements, ..command(method, vec![removal]) }
}

#[test]
fn a_command_is_not_executed_without_room_for_all_of_its_replacements() {
    let four = || machine_of_four(&["on-demand"]);
    for (refused, replacements, executed) in
        [(None, 5, true), (Some(("on-demand", 9)), 2, true), (Some(("on-demand", 9)), 3, false), (Some(("on-demand", 4)), 1, false)]
    {
        for method in [Method::SingleNode, Method::MultiNode, Method::Drift, Method::StaticDrift] {
            let snapshot = after_refusals(refused.as_slice(), Vec::new());
            let (mut room, mut report) = (QuotaRoom::of(&snapshot), Report::default());
            let command = replacing(method, vec![four(); replacements]);
            let found = within_quotas(&command, &snapshot, &mut room, &mut report);
            assert_eq!(found.is_some(), executed, "{refused:?}, {method:?}");
            assert!(found.is_none_or(|found| found == command), "it is as it was decided");
            assert_eq!((report.decisions.len(), report.counted("over_quota")), if executed { (0, 0) } else { (1, 1) });
            assert!(report.decisions.iter().all(|told| told.message.contains("Service Quotas") && told.subject == "command/n"));
        }
    }
}

#[test]
fn what_one_command_takes_the_next_lacks_and_one_that_is_not_executed_takes_nothing() {
    let snapshot = after_refusals(&[("on-demand", 13)], Vec::new());
    let (mut room, mut report) = (QuotaRoom::of(&snapshot), Report::default());
    let is_executed = |replacements: usize| {
        let command = replacing(Method::SingleNode, vec![machine_of_four(&["on-demand"]); replacements]);
        within_quotas(&command, &snapshot, &mut room, &mut report).is_some()
    };
    assert_eq!([1, 3, 2, 1, 0].map(is_executed), [true, false, true, false, true]);
}

#[test]
fn only_a_drifted_node_gets_a_machine_of_another_capacity_type() {
    let kind_after = |method: Method| {
        let snapshot = after_refusals(&[("spot", 4)], Vec::new());
        let command = replacing(method, vec![machine_of_four(&[])]);
        let found = within_quotas(&command, &snapshot, &mut QuotaRoom::of(&snapshot), &mut Report::default())?;
        let mut wanted = found.replacements[0].requirements.iter().filter(|wanted| wanted.key == labels::CAPACITY_TYPE);
        wanted.next().map(|wanted| wanted.values.join(","))
    };
    assert_eq!(kind_after(Method::Drift).as_deref(), Some("on-demand"));
    assert_eq!(kind_after(Method::StaticDrift).as_deref(), Some("on-demand"));
    assert_eq!([Method::SingleNode, Method::MultiNode].map(kind_after), [None, None], "it would cost more than it is to save");
}

/// Each pass finds them first, and would find nothing else while the quota is used up.
#[test]
fn drifted_nodes_of_static_pools_give_way_to_other_methods_while_quotas_have_no_room_for_any() {
    let held = |refused: &[(&str, u32)], methods: &[Method]| {
        let snapshot = after_refusals(refused, Vec::new());
        let commands: Vec<Command> = methods.iter().map(|method| replacing(*method, vec![machine_of_four(&["on-demand"])])).collect();
        let mut report = Report::default();
        (holds_static_drift(&commands, &snapshot, &mut report), report.counted("over_quota"), report.decisions.len())
    };
    let (full, some) = (&[("on-demand", 4)][..], &[("on-demand", 5)][..]);
    assert_eq!(held(full, &[Method::StaticDrift, Method::StaticDrift]), (true, 2, 2));
    assert_eq!(held(some, &[Method::StaticDrift, Method::StaticDrift]), (false, 0, 0), "there is room for one");
    assert_eq!(held(full, &[Method::Drift]), (false, 0, 0));
    assert_eq!(held(&[], &[Method::StaticDrift]), (false, 0, 0));
    assert_eq!(held(full, &[]), (false, 0, 0), "nothing was found");
}

/// How many of its missing replicas a static pool launches, and how many quotas have no room for.
fn launched(refused: &[(&str, u32)], claims: Vec<Claim>, missing: usize) -> (usize, usize) {
    let snapshot = after_refusals(refused, claims);
    let launch = vec![machine_of_four(&["on-demand"]); missing];
    let change = StaticChange { node_pool: "fixed".to_owned(), launch, delete: Vec::new(), at_limit: false, shadow: false };
    let (fitting, left_out) = launches_within_quotas(&change, &snapshot, &mut QuotaRoom::of(&snapshot), &mut Report::default());
    (fitting.launch.len(), left_out)
}

#[test]
fn a_static_pool_launches_no_more_than_the_refused_machine_would_have_had() {
    assert_eq!(launched(&[], Vec::new(), 5), (5, 0));
    assert_eq!(launched(&[("spot", 4)], Vec::new(), 5), (5, 0), "another quota");
    assert_eq!(launched(&[("on-demand", 9)], Vec::new(), 5), (2, 3));
    assert_eq!(launched(&[("on-demand", 4)], Vec::new(), 5), (0, 5));
}

#[test]
fn claims_of_a_static_pool_on_their_way_take_their_part_of_a_quota() {
    let on_the_way = |name: &str| {
        let mut claim = claim(name);
        claim.spec.node_pool = "fixed".to_owned();
        claim.spec.requirements = machine_of_four(&["on-demand"]).requirements;
        claim
    };
    let elsewhere = Claim { spec: whittle_claims::ClaimSpec { node_pool: "other".to_owned(), ..on_the_way("c").spec }, ..claim("c") };
    assert_eq!(launched(&[("on-demand", 13)], vec![on_the_way("a"), on_the_way("b"), elsewhere], 3), (1, 2));
}

/// While a quota refuses all of its types none of them can be had, whoever was refused.
#[test]
fn a_static_pool_all_of_whose_types_are_refused_launches_nothing() {
    let mut snapshot = after_refusals(&[("on-demand", 4)], Vec::new());
    let mut types = vec![of_cpus("four", 4)];
    for offering in &mut types[0].offerings {
        offering.available = offering.capacity_type() == "spot";
    }
    snapshot.catalog = [("fixed".to_owned(), Arc::new(types.into()))].into();
    let fits = |kinds: &[&str], snapshot: &Snapshot| {
        let change = StaticChange {
            node_pool: "fixed".to_owned(),
            launch: vec![machine_of_four(kinds)],
            delete: Vec::new(),
            at_limit: false,
            shadow: false,
        };
        launches_within_quotas(&change, snapshot, &mut QuotaRoom::of(snapshot), &mut Report::default()).1 == 0
    };
    assert!(!fits(&["on-demand"], &snapshot));
    assert!(fits(&["spot"], &snapshot) && fits(&[], &snapshot), "spot machines can be had");
    // What is out of stock is launched nevertheless, and says so.
    snapshot.stock_outs.clear();
    assert!(fits(&["on-demand"], &snapshot));
}

/// A command whose replacement EC2 refused for this reason, at second 0.
fn refused_replacement(method: Method, reason: DeletionReason) -> (Claim, Running) {
    let new = claim("new");
    let failed = after(&new, &[Event::LaunchFailed { reason, message: "EC2 reports an error".to_owned() }]);
    (failed, Running { method, ..running(vec![new]) })
}

#[test]
fn only_a_replacement_of_consolidation_that_a_quota_has_no_room_for_keeps_its_node() {
    let over = |method, reason, refused: &[(&str, u32)]| {
        let (failed, command) = refused_replacement(method, reason);
        is_over_quota(&after_refusals(refused, vec![failed]), &command)
    };
    let full: &[(&str, u32)] = &[("spot", 4)];
    for (method, expected) in [(Method::SingleNode, true), (Method::MultiNode, true), (Method::Drift, false), (Method::StaticDrift, false)]
    {
        assert_eq!(over(method, DeletionReason::InsufficientCapacity, full), expected, "{method:?}");
    }
    assert!(!over(Method::SingleNode, DeletionReason::InsufficientCapacity, &[]), "another type may be had at once");
    assert!(!over(Method::SingleNode, DeletionReason::LaunchTimeout, full));
    let (_, command) = refused_replacement(Method::SingleNode, DeletionReason::InsufficientCapacity);
    assert!(!is_over_quota(&after_refusals(full, Vec::new()), &command), "a user has deleted it");
}

#[test]
fn a_node_whose_replacement_is_refused_again_is_left_alone_for_longer_each_time() {
    let (_, command) = refused_replacement(Method::SingleNode, DeletionReason::InsufficientCapacity);
    let mut known = Disruptions::default();
    let until = |known: &Disruptions, now| {
        let facts = known.facts(&snapshot_of(Vec::new(), at(now)));
        facts.get("old").and_then(|facts| facts.replacement_refused.clone()).map(|refused| refused.until)
    };
    let mut now = 0;
    for minutes in [5, 10, 20, 40, 60, 60] {
        known.record_replacement_refusal(&command, at(now));
        let next = now + minutes * 60;
        assert_eq!((until(&known, now), until(&known, next - 1), until(&known, next)), (Some(at(next)), Some(at(next)), None), "{minutes}");
        known.forget_refusals(at(next));
        now = next;
    }
    known.forget_refusals(at(now + 3600));
    assert_eq!(known, Disruptions::default(), "after an hour without one it is forgotten");
    assert_eq!(serde_json::to_value(&known).unwrap().get("replacementRefused"), None, "nothing is stored for none");
}
