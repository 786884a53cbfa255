//! Claims whose launch rings for pods that wait to know where they are.

use super::over_sim::world;
use super::{four, now, pod, snapshot};
use crate::awaited_launches::{awaited_labels, decides};
use futures::executor::block_on;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::labels;
use whittle_claims::{Claim, ClaimSpec, Event, Function};
use whittle_model::scheduling::{Cause, LeftOut, Options, Packing, Plan, PodRef, PoolRejection, Reason};
use whittle_ports::{Adapters, ClaimStore, Leases, Report, Settings};
use whittle_snapshot::Snapshot;
use whittle_testkit::{TestWorld, after, begun, default_spec, key, machine, planned};
use whittle_units::SignedDuration;

const TEAM: &str = "example.com/team";

fn topology(key: &str) -> Cause {
    let (counts, pod_domains, node_domains) = Default::default();
    Cause::Topology { kind: "pod anti-affinity", of_others: false, key: key.into(), counts, pod_domains, node_domains, follows: None }
}

fn pools(causes: impl IntoIterator<Item = Cause>) -> Reason {
    Reason::Pools(causes.into_iter().map(|cause| PoolRejection::of_name("default", cause)).collect())
}

#[test]
fn pods_wait_for_launches_only_where_their_reason_is_about_other_pods() {
    let labels_of = |reason: Reason| {
        let plan = Plan { left_out: vec![LeftOut { pod: PodRef::of(&pod("left", 1)), reason }], ..Plan::default() };
        awaited_labels(&plan).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(labels_of(pools([topology(labels::ZONE)])), [labels::ZONE]);
    assert_eq!(labels_of(pools([Cause::Taints(Vec::new()), topology(TEAM)])), [TEAM], "of any pool");
    assert_eq!(labels_of(pools([Cause::Volumes(Box::new(topology(labels::ZONE)))])), [labels::ZONE]);
    assert_eq!(labels_of(Reason::RejectedByChecker("it may start apart".into())), [labels::ZONE]);
    let others = [
        pools([topology(labels::HOSTNAME)]),
        pools([Cause::Taints(Vec::new()), Cause::TransientDuringPass]),
        Reason::NoNodePools,
        Reason::Unchanged { category: "topology".into(), message: "as before".into(), depends_on_others: true },
    ];
    for reason in others {
        assert_eq!(labels_of(reason.clone()), Vec::<String>::new(), "{reason:?}");
    }
}

#[test]
fn a_launch_decides_what_its_claim_leaves_open() {
    let spec = |requirements: &[Requirement]| ClaimSpec { requirements: requirements.to_vec(), ..ClaimSpec::default() };
    let decided = |spec: &ClaimSpec, key: &str| decides(spec, &BTreeSet::from([key]));
    let several = spec(&[Requirement::is_in(labels::ZONE, ["a", "b"]), Requirement::is_in(TEAM, ["x", "y"])]);
    assert!(decided(&several, labels::ZONE) && decided(&several, TEAM));
    assert!(decided(&spec(&[]), labels::ZONE), "any zone");
    assert!(!decided(&spec(&[]), TEAM), "no launch gives it that label");
    assert!(!decided(&spec(&[Requirement::is_in(labels::ZONE, ["a"])]), labels::ZONE));
    let excluded = Requirement { operator: Operator::NotIn, ..Requirement::is_in(labels::ZONE, ["a"]) };
    assert!(decided(&spec(&[excluded]), labels::ZONE), "one value that is excluded leaves the others");
    let labelled = ClaimSpec { labels: [(TEAM.to_owned(), "x".to_owned())].into(), ..several };
    assert!(!decided(&labelled, TEAM));
    assert!(!decides(&labelled, &BTreeSet::new()), "nobody waits");
}

/// A pod that has to be in another zone than its kind.
fn apart(name: &str) -> Pod {
    let mut pod = pod(name, 3);
    pod.metadata.labels.insert("app".to_owned(), "web".to_owned());
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": labels::ZONE});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    pod.spec.affinity = Some(serde_json::from_value(affinity).unwrap());
    pod
}

/// A type that is sold in two zones.
fn in_two_zones() -> InstanceType {
    let mut out = four();
    let zone = |offering: &mut whittle_api::catalog::Offering, zone: &str| {
        offering.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]), Requirement::is_in(labels::ZONE, [zone])];
    };
    let mut second = out.offerings[0].clone();
    zone(&mut second, "b");
    out.offerings.push(second);
    out.requirements = vec![
        Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]),
        Requirement::is_in(labels::ZONE, ["a", "b"]),
        Requirement::is_in(labels::INSTANCE_TYPE, ["four"]),
    ];
    out
}

/// Karpenter's packing, which leaves the zone of the first pod open.
fn plan_of(pods: Vec<Pod>) -> (Snapshot, Plan) {
    let mut seen = snapshot(pods);
    seen.catalog = [("default".to_owned(), Arc::new(vec![in_two_zones()].into()))].into();
    let options = Options { packing: Packing::Reference, ..whittle_snapshot::options(&Settings::default()) };
    let plan = crate::checked(&seen.input(), &options, &key("a").cluster).unwrap();
    (seen, plan)
}

/// The claims that a run stores for a plan.
fn stored(seen: &Snapshot, plan: &Plan) -> Vec<Claim> {
    let (world, settings, cluster) = (world(), Settings::default(), key("a").cluster);
    let ports = world.ports();
    let run = crate::Run { ports: Adapters::all(&ports), settings: &settings, cluster: &cluster };
    let lease = block_on(ports.acquire(&cluster, "test", now(), SignedDuration::from_secs(30))).unwrap();
    block_on(run.create_claims(&lease, seen, plan, &mut Report::default())).unwrap();
    block_on(ports.list(&cluster)).unwrap().into_iter().map(|claim| claim.value).collect()
}

#[test]
fn the_claim_of_a_pod_tells_whether_the_next_of_its_kind_waits_for_its_zone() {
    let (seen, plan) = plan_of(vec![apart("first"), apart("second")]);
    assert_eq!((plan.claims.len(), plan.left_out.len()), (1, 1), "{:?}", plan.left_out);
    assert!(stored(&seen, &plan)[0].spec.is_awaited);
    let (seen, plan) = plan_of(vec![pod("first", 3), pod("second", 3), pod("large", 40)]);
    assert_eq!((plan.claims.len(), plan.left_out.len()), (2, 1));
    assert!(stored(&seen, &plan).iter().all(|claim| !claim.spec.is_awaited), "no machine is large enough, wherever the others are");
}

/// A plan with a pod that waits for a zone.
fn waiting() -> Plan {
    let left = LeftOut { pod: PodRef::of(&pod("waits", 1)), reason: pools([topology(labels::ZONE)]) };
    Plan { left_out: vec![left], ..Plan::default() }
}

/// What a run sees of the claims in the table.
fn seen(world: &TestWorld) -> Snapshot {
    let mut seen = snapshot(Vec::new());
    seen.claims = block_on(world.ports().list(&key("a").cluster)).unwrap();
    seen
}

/// A run with this plan; the doorbells that wait then.
fn mark(world: &TestWorld, seen: &Snapshot, plan: &Plan) -> Vec<Function> {
    let (ports, settings, cluster) = (world.ports(), Settings::default(), key("a").cluster);
    let run = crate::Run { ports: Adapters::all(&ports), settings: &settings, cluster: &cluster };
    block_on(run.mark_awaited(seen, plan));
    world.doorbells()
}

/// Replaces a claim, as `launch` does.
fn put(world: &TestWorld, claim: &Claim) {
    let ports = world.ports();
    let stored = block_on(ports.get(&claim.key)).unwrap().unwrap();
    block_on(ports.update(claim, stored.revision)).unwrap();
}

#[test]
fn claims_of_earlier_plans_are_marked_for_pods_that_came_since() {
    let fixed = ClaimSpec { requirements: vec![Requirement::is_in(labels::ZONE, ["a"])], ..default_spec() };
    let launched = [begun("t"), Event::FleetAnswered(machine("i-1"))];
    let world = world();
    world.store(&after(&planned("begun", default_spec()), &[begun("u")], now()));
    world.store(&planned("fixed", fixed));
    world.store(&after(&planned("launched", default_spec()), &launched, now()));
    let marked = || ["begun", "fixed", "launched", "new"].map(|name| world.claim(&key(name)).spec.is_awaited);
    world.store(&planned("new", default_spec()));
    let nobody = Plan { left_out: vec![LeftOut { reason: Reason::NoNodePools, ..waiting().left_out.remove(0) }], ..Plan::default() };
    assert_eq!((mark(&world, &seen(&world), &nobody), marked()), (Vec::new(), [false; 4]), "who waits for no launch marks none");
    assert_eq!(mark(&world, &seen(&world), &waiting()), [Function::Launch], "a launch that has read it before loses it");
    assert_eq!(marked(), [true, false, false, true]);
    assert_eq!(mark(&world, &seen(&world), &waiting()), [Function::Launch], "they are marked once");
}

/// Its NodeClaim may lack our finalizer, and could vanish while its machine runs.
#[test]
fn the_claim_of_a_users_nodeclaim_is_marked_and_its_launch_left_to_sweep() {
    let of_user = ClaimSpec { standalone_uid: Some("uid-1".into()), ..default_spec() };
    let world = world();
    world.store(&planned("a", of_user));
    assert_eq!((mark(&world, &seen(&world), &waiting()), world.claim(&key("a")).spec.is_awaited), (Vec::new(), true));
}

/// A launch that ends while the plan is made rings for nobody, and one that has begun by then does once it ends.
#[test]
fn a_plan_that_is_late_for_a_launch_rings_for_the_next() {
    let begun_first = after(&planned("a", default_spec()), &[begun("t")], now());
    let world = world();
    world.store(&planned("a", default_spec()));
    let stale = seen(&world);
    put(&world, &begun_first);
    assert!(mark(&world, &stale, &waiting()).is_empty(), "its launch will ring");
    assert!(world.claim(&key("a")).spec.is_awaited);
    let mut stale = seen(&world);
    let launched = after(&begun_first, &[Event::FleetAnswered(machine("i-1"))], now());
    put(&world, &launched);
    stale.claims[0].value.spec.is_awaited = false;
    assert_eq!(mark(&world, &stale, &waiting()), [Function::Schedule]);
    assert_eq!(world.claim(&key("a")), launched, "it is as its launch has left it");
}
