//! Pods that could not be bound without others for which a quota of vCPUs has no room, or whose claim is too large.

use super::over_sim::large_annotation;
use super::{checked, four, now, pod, snapshot};
use crate::oversize::too_large;
use crate::set_aside::over_quota;
use serde_json::json;
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{OfferingKey, StockOut};
use whittle_model::scheduling::{NewClaim, Options, Plan, Reason};
use whittle_ports::{Report, Settings};
use whittle_snapshot::Snapshot;
use whittle_solver::Memory;
use whittle_units::{ClusterName, Price, Quantity};

fn options() -> Options {
    whittle_snapshot::options(&Settings::default())
}

/// A type with so many CPUs in these zones. A large one is dear.
fn of_cpus(name: &str, cpus: i64, zones: &[&str]) -> InstanceType {
    let mut out = four();
    out.name = name.to_owned();
    out.capacity.set("cpu", Quantity::from_units(cpus));
    out.requirements = vec![
        Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]),
        Requirement::is_in(labels::ZONE, zones.iter().copied()),
        Requirement::is_in(labels::INSTANCE_TYPE, [name]),
    ];
    let mut offering = out.offerings.remove(0);
    offering.price = Price::from_dollars(if cpus > 4 { 3.0 } else { 0.2 });
    out.offerings = zones
        .iter()
        .map(|zone| {
            let mut here = offering.clone();
            here.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]), Requirement::is_in(labels::ZONE, [*zone])];
            here
        })
        .collect();
    out
}

/// A pod of an app, in zone `a`.
fn of_app(name: &str, app: &str, cpus: i64) -> Pod {
    let mut pod = pod(name, cpus);
    pod.metadata.labels.insert("app".to_owned(), app.to_owned());
    pod.spec.node_selector.insert(labels::ZONE.to_owned(), "a".to_owned());
    pod
}

/// The same with a required affinity to an app in its zone.
fn near(mut pod: Pod, app: &str) -> Pod {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": labels::ZONE});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    pod.spec.affinity = Some(serde_json::from_value(affinity).unwrap());
    pod
}

/// A pod that is spread over zones with those of its app.
fn spread(name: &str, cpus: i64) -> Pod {
    let mut pod = pod(name, cpus);
    pod.metadata.labels.insert("app".to_owned(), "even".to_owned());
    let constraint = json!({
        "maxSkew": 1,
        "topologyKey": labels::ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    });
    pod.spec.topology_spread_constraints = vec![serde_json::from_value(constraint).unwrap()].into();
    pod
}

/// What is launched of a plan for pods, after a change of it, where EC2 has refused a machine of so many vCPUs. Nobody is forgotten, and
/// whoever is left out is considered again.
fn within(vcpus: u32, pods: Vec<Pod>, zones: &[&str], change: impl FnOnce(&mut Plan)) -> Plan {
    let count = pods.len();
    let mut seen: Snapshot = snapshot(pods);
    let types = vec![of_cpus("four", 4, zones), of_cpus("sixteen", 16, zones)];
    seen.catalog = [("default".to_owned(), Arc::new(types.into()))].into();
    let mut plan = checked(&seen.input(), &options(), &ClusterName::new("c")).unwrap();
    assert!(plan.left_out.is_empty(), "{:?}", plan.left_out);
    change(&mut plan);
    let key = OfferingKey::of_quota("standard", "on-demand", vcpus);
    seen.stock_outs = vec![StockOut::with_fixed_wait(key, "VcpuLimitExceeded", now())];
    over_quota(&mut plan, &seen, &mut Report::default());
    assert_eq!(plan.scheduled() + plan.left_out.len(), count);
    assert!(Memory::after(&seen.input(), &options(), &plan).settled(&seen.input(), &options()).is_empty());
    plan
}

/// The pods of each machine that is launched, and those that wait for others.
fn of(plan: &Plan) -> (Vec<Vec<&str>>, Vec<&str>) {
    let launched = plan.claims.iter().map(|claim| claim.pods.iter().map(|pod| pod.name.as_str()).collect()).collect();
    let waits = plan.left_out.iter().filter(|left| left.reason == Reason::AwaitsOverQuota).map(|left| left.pod.name.as_str()).collect();
    (launched, waits)
}

fn zone_of(claim: &NewClaim) -> String {
    let zone = claim.requirements.iter().find(|known| known.key == labels::ZONE).unwrap();
    assert_eq!(zone.values.len(), 1, "{zone:?}");
    zone.values[0].clone()
}

#[test]
fn a_machine_is_not_launched_for_a_pod_that_requires_one_whose_claim_is_too_large() {
    let seen = snapshot(vec![of_app("big", "big", 4), near(of_app("near", "small", 4), "big"), of_app("other", "other", 4)]);
    let mut plan = checked(&seen.input(), &options(), &ClusterName::new("c")).unwrap();
    assert_eq!(plan.claims.len(), 3);
    let of_big = plan.claims.iter_mut().find(|claim| claim.pods[0].name == "big").unwrap();
    of_big.annotations.insert("example.com/note".into(), large_annotation());
    too_large(&mut plan, &seen, &ClusterName::new("c"), &mut Report::default());
    assert_eq!(of(&plan).0, [["other"]]);
    let [big, near] = &plan.left_out[..] else { panic!("{:?}", plan.left_out) };
    assert!(big.pod.name == "big" && matches!(big.reason, Reason::TooLarge { .. }), "{big:?}");
    assert_eq!((near.pod.name.as_str(), &near.reason), ("near", &Reason::AwaitsTooLarge));
}

#[test]
fn a_machine_is_not_launched_for_a_pod_that_requires_one_whose_machine_is_over_the_quota() {
    let big = || of_app("big", "big", 16);
    let pods = vec![big(), near(of_app("near", "small", 3), "big")];
    assert_eq!(of(&within(32, pods.clone(), &["a"], |_| ())), (vec![vec!["big"], vec!["near"]], vec![]), "there is room for both");
    assert_eq!(of(&within(9, pods, &["a"], |_| ())), (vec![], vec!["near"]));
    let apart = vec![big(), of_app("other", "small", 3)];
    assert_eq!(of(&within(9, apart, &["a"], |_| ())), (vec![vec!["other"]], vec![]), "it needs nobody");
    // Whoever requires one of its own app may be the first.
    let own = vec![near(of_app("own-0", "own", 16), "own"), near(of_app("own-1", "own", 3), "own")];
    assert_eq!(of(&within(9, own, &["a"], |_| ())), (vec![vec!["own-1"]], vec![]));
}

#[test]
fn pods_that_require_each_other_in_a_row_wait_together() {
    let pods = vec![
        of_app("big", "big", 16),
        near(of_app("near", "small", 3), "big"),
        near(of_app("nearer", "smaller", 3), "small"),
        of_app("other", "other", 3),
    ];
    assert_eq!(of(&within(13, pods, &["a"], |_| ())), (vec![vec!["other"]], vec!["near", "nearer"]));
}

#[test]
fn what_a_pod_that_waits_would_take_of_a_quota_is_left_to_whom_it_waits_for() {
    let pods = vec![near(of_app("a-near", "small", 3), "late"), of_app("late", "late", 3)];
    assert_eq!(of(&within(5, pods, &["a"], |_| ())), (vec![vec!["late"]], vec!["a-near"]));
}

#[test]
fn a_machine_that_others_need_is_launched_without_the_pod_that_waits() {
    let pods = vec![of_app("big", "big", 16), near(of_app("near", "small", 1), "big"), of_app("other", "other", 2)];
    let together = |plan: &mut Plan| assert_eq!(plan.claims.len(), 2, "{:?}", plan.claims);
    assert_eq!(of(&within(9, pods, &["a"], together)), (vec![vec!["other"]], vec!["near"]));
}

#[test]
fn machines_of_a_spread_are_launched_where_their_pods_can_be_bound() {
    let pods: Vec<Pod> = (0..6).map(|n| spread(&format!("even-{n}"), 3)).collect();
    // A plan may begin with all machines of one zone.
    let by_zone = |plan: &mut Plan| plan.claims.sort_by_key(zone_of);
    for (vcpus, launched) in [(5, 1), (9, 2), (13, 3), (17, 4), (21, 5), (25, 6)] {
        let plan = within(vcpus, pods.clone(), &["a", "b", "c"], by_zone);
        let zones: Vec<String> = plan.claims.iter().map(zone_of).collect();
        let of_zone = |name: &str| zones.iter().filter(|zone| *zone == name).count();
        let counts = ["a", "b", "c"].map(of_zone);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1, "{vcpus}: {zones:?}");
        assert_eq!(zones.len(), launched, "{vcpus}: {zones:?}");
    }
}

/// A spread counts pods that are not spread themselves.
#[test]
fn a_pod_of_a_spread_waits_for_pods_that_it_counts_where_it_may_be_there_too() {
    let waiting = |zone: Option<&str>| {
        let big = |name: &str| {
            let mut pod = of_app(name, "even", 16);
            pod.spec.node_selector.insert(labels::ZONE.to_owned(), "b".to_owned());
            pod
        };
        let next = |name: &str| {
            let mut pod = spread(name, 3);
            pod.spec.node_selector.extend(zone.map(|zone| (labels::ZONE.to_owned(), zone.to_owned())));
            pod
        };
        let pods = vec![big("big-0"), big("big-1"), next("next-0"), next("next-1")];
        let all_in_a = |plan: &mut Plan| {
            let in_a = plan.claims.iter().filter(|claim| zone_of(claim) == "a").count();
            assert_eq!((plan.claims.len(), in_a), (4, 2));
        };
        let plan = within(13, pods, &["a", "b"], all_in_a);
        let (launched, waits) = of(&plan);
        (launched.len(), waits.len())
    };
    assert_eq!(waiting(None), (1, 1), "two in one zone are too many while none is in the other");
    assert_eq!(waiting(Some("a")), (2, 0), "zones that it may not be in do not count");
}
