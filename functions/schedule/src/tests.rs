mod awaited;
mod awaited_launches;
mod buffers;
mod expected;
mod held;
mod lost_machines;
mod outside;
mod over_sim;
mod quotas;
mod requests;

use crate::state::{Round, RoundPage, Unplaced};
use crate::{checked, status_writes, write};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{Container, Pod, PodCondition, ResourceRequirements};
use whittle_api::karpenter::{NodeOverlay, NodePool, Requirement};
use whittle_api::{ClusterObjects, ConditionStatus, ObjectMeta, conditions, labels};
use whittle_claims::Record;
use whittle_model::scheduling::{Cursor, LeftOut, Options, Plan, PodRef, Reason};
use whittle_ports::{Report, Settings};
use whittle_snapshot::Snapshot;
use whittle_solver::Memory;
use whittle_units::{ClusterName, Price, Quantity, Resources, Timestamp};

fn now() -> Timestamp {
    whittle_testkit::at(0)
}

pub(crate) fn pod(name: &str, cpu: i64) -> Pod {
    let requests = Resources::from([("cpu", Quantity::from_units(cpu))]);
    let mut pod = Pod { metadata: ObjectMeta { uid: name.into(), ..ObjectMeta::namespaced("default", name) }, ..Pod::default() };
    let resources = ResourceRequirements { requests, ..ResourceRequirements::default() };
    pod.spec.containers = vec![Container { name: "c".into(), resources: Some(resources), ..Container::default() }].into();
    let given_up =
        PodCondition { type_: "PodScheduled".into(), status: "False".into(), reason: "Unschedulable".into(), ..PodCondition::default() };
    pod.status.conditions = vec![given_up];
    pod
}

/// A type with four CPUs in one zone.
fn four() -> InstanceType {
    let place = [Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]), Requirement::is_in(labels::ZONE, ["a"])];
    let capacity = Resources::from([("cpu", Quantity::from_units(4)), ("pods", Quantity::from_units(10))]);
    let offering = Offering { requirements: place.to_vec(), price: Price::from_dollars(0.2), available: true, reservation_capacity: None };
    let requirements = [&place[..], &[Requirement::is_in(labels::INSTANCE_TYPE, ["four"])]].concat();
    InstanceType { name: "four".into(), requirements, offerings: vec![offering], capacity, ..InstanceType::default() }
}

/// A pool that can buy machines of four CPUs, and these pods.
fn snapshot(pods: Vec<Pod>) -> Snapshot {
    let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    let objects = ClusterObjects { node_pools: vec![pool], pods: pods.into(), ..ClusterObjects::default() };
    Snapshot::of(now(), objects, Vec::new(), Vec::new(), BTreeMap::from([("default".to_owned(), Arc::new(vec![four()].into()))]))
}

/// One run of the function, with the state of earlier ones.
fn run(pods: &[Pod], unplaced: &mut Unplaced, round: &mut Round, budget: u64) -> Plan {
    let snapshot = snapshot(pods.to_vec());
    let input = snapshot.input();
    let mut options: Options = whittle_snapshot::options(&Settings::default());
    options.work_budget = Some(budget);
    options.cursor = round.cursor(pods);
    options.settled = unplaced.0.settled(&input, &options);
    let plan = checked(&input, &options, &ClusterName::new("c")).unwrap();
    *unplaced = Unplaced(Memory::after(&input, &options, &plan));
    *round = Round::after(&plan);
    // Between two runs everything passes through the store.
    *unplaced = serde_json::from_str(&serde_json::to_string(unplaced).unwrap()).unwrap();
    let pages: Vec<RoundPage> = serde_json::from_str(&serde_json::to_string(&round.pages()).unwrap()).unwrap();
    *round = Round::joined(&pages);
    plan
}

#[test]
fn gauges_distinguish_ignored_waiting_and_unschedulable_pods() {
    use whittle_model::scheduling::Cause;
    use whittle_ports::{Amount, Report};
    let left = |name: &str, reason: Reason| LeftOut { pod: PodRef::of(&pod(name, 1)), reason };
    let before = |category: &str| Reason::Unchanged { category: category.into(), message: "as before".into(), depends_on_others: false };
    let plan = Plan {
        pods: 9,
        left_out: vec![
            left("odd", Reason::Ignored(vec!["odd".into()])),
            left("odd-before", before("ignored")),
            left("large", before("instance-types")),
            left("nowhere", Reason::NoNodePools),
            left("waits", Reason::Reserved(Cause::ReservedUnavailable)),
            left("later", Reason::OutOfBudget),
            left("claims", Reason::ResourceClaims),
        ],
        ..Plan::default()
    };
    let mut report = Report::default();
    write::gauges(&mut report, &plan, whittle_units::SignedDuration::from_secs(1));
    let shown: BTreeMap<&str, &Amount> = report.gauges.iter().map(|gauge| (gauge.metric, &gauge.amount)).collect();
    for (name, expected) in [("queue_depth", 9), ("ignored_pods_count", 2), ("unschedulable_pods_count", 3)] {
        assert_eq!(shown[format!("karpenter_scheduler_{name}").as_str()], &Amount::Count(expected), "{name}");
    }
}

#[test]
fn an_overlay_that_no_type_meets_is_ready_and_says_that_it_changes_nothing() {
    let shown = |value: &str| {
        let mut overlay = NodeOverlay { metadata: ObjectMeta::named("cheaper"), ..NodeOverlay::default() };
        overlay.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, [value])];
        overlay.spec.price = Some("0.1".into());
        let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
        let objects = ClusterObjects { node_pools: vec![pool], node_overlays: vec![overlay], ..ClusterObjects::default() };
        let catalog = BTreeMap::from([("default".to_owned(), Arc::new(vec![four()].into()))]);
        let mut snapshot = Snapshot::of(now(), objects, Vec::new(), Vec::new(), catalog);
        let written = status_writes::changed_overlays(&snapshot).remove(0).1;
        let conditions = written.status.conditions.clone();
        snapshot.read.node_overlays = vec![written];
        assert!(status_writes::changed_overlays(&snapshot).is_empty(), "it is written once");
        assert!(conditions.iter().all(|condition| condition.status == ConditionStatus::True), "{conditions:?}");
        conditions::find(&conditions, conditions::VALIDATION_SUCCEEDED).unwrap().message.clone()
    };
    assert_eq!(shown("four"), "");
    assert!(shown("fuor").contains("no instance type that a NodePool is offered meets spec.requirements"), "{}", shown("fuor"));
}

/// The gauge of the longest wait, in seconds.
fn longest_wait(pods: Vec<Pod>) -> Option<i64> {
    use whittle_ports::{Amount, Report};
    let snapshot = snapshot(pods);
    let plan = checked(&snapshot.input(), &whittle_snapshot::options(&Settings::default()), &ClusterName::new("c")).unwrap();
    let mut report = Report::default();
    write::longest_wait(&mut report, &snapshot, &plan);
    report.gauges.iter().find(|gauge| gauge.metric == "whittle_pods_longest_wait_seconds").map(|gauge| match gauge.amount {
        Amount::Time(waited) => waited.as_secs(),
        ref other => panic!("{other:?}"),
    })
}

#[test]
fn the_longest_wait_includes_planned_and_unschedulable_pods() {
    let waiting = |name: &str, cpu: i64, seconds: i64| {
        let mut pod = pod(name, cpu);
        pod.status.conditions[0].last_transition_time = Some(now() - whittle_units::SignedDuration::from_secs(seconds));
        pod.metadata.creation_timestamp = Some(now() - whittle_units::SignedDuration::from_secs(9_000));
        pod
    };
    assert_eq!(longest_wait(vec![waiting("large", 40, 1_000), waiting("small", 1, 30)]), Some(1_000), "one is unschedulable");
    assert_eq!(longest_wait(vec![waiting("small", 1, 2_000), waiting("other", 1, 30)]), Some(2_000), "planned repeatedly");
    assert_eq!(longest_wait(vec![]), None);
    let mut bound = waiting("bound", 1, 5_000);
    bound.spec.node_name = "n".into();
    assert_eq!(longest_wait(vec![bound]), None);
}

#[test]
fn opted_out_pods_get_no_warning() {
    let opted_out = |name: &str| {
        let mut pod = pod(name, 1);
        let never = whittle_api::SelectorRequirement { key: labels::NODE_POOL.into(), operator: "DoesNotExist".into(), values: Vec::new() };
        let term = whittle_api::k8s::NodeSelectorTerm { match_expressions: vec![never], ..Default::default() };
        let required = Some(whittle_api::k8s::NodeSelector { node_selector_terms: vec![term] });
        let node_affinity = Some(whittle_api::k8s::NodeAffinity { required, ..Default::default() });
        pod.spec.affinity = Some(whittle_api::k8s::Affinity { node_affinity, ..Default::default() });
        pod
    };
    let mut also_odd = opted_out("odd");
    also_odd.spec.node_selector.insert(labels::HOSTNAME.into(), "there".into());
    let snapshot = snapshot(vec![opted_out("shuns"), also_odd, pod("large", 40)]);
    let input = snapshot.input();
    let plan = checked(&input, &whittle_snapshot::options(&Settings::default()), &ClusterName::new("c")).unwrap();
    let warned: Vec<String> = write::events(&plan, &[], &snapshot).into_iter().map(|event| event.name).collect();
    assert_eq!((plan.left_out.len(), warned), (3, vec!["large".to_owned(), "odd".to_owned()]));
}

#[test]
fn an_invalid_machine_cost_is_an_event_on_the_pool() {
    let events = |text: &str, pods: usize| {
        let mut snapshot = snapshot(Vec::new());
        snapshot.objects.node_pools[0].metadata.annotations.insert(labels::MACHINE_COST.to_owned(), text.to_owned());
        status_writes::invalid_costs(&snapshot, &Plan { pods, ..Plan::default() })
    };
    assert_eq!((events("0.2", 1).len(), events("cheap", 0).len()), (0, 0), "no error, or no pods");
    let [event] = &events("cheap", 1)[..] else { panic!("one event") };
    assert_eq!((event.name.as_str(), event.reason.as_str()), ("default", "MachineCostInvalid"));
    assert!(event.message.contains("whittle.dev/machine-cost") && event.message.contains("\"cheap\""), "{}", event.message);
}

/// ADR 0019: a rejected part does not affect the rest of the plan.
#[test]
fn a_rejected_part_is_dropped_and_the_rest_stays_as_cheap() {
    use whittle_api::k8s::{Affinity, PodAffinity, PodAffinityTerm};
    let large = |name: &str, affinity: Option<Affinity>| {
        let mut pod = pod(name, 15);
        pod.metadata.labels.insert("app".into(), "web".into());
        pod.spec.affinity = affinity;
        pod
    };
    let selector = whittle_api::LabelSelector { match_labels: BTreeMap::from([("app".into(), "web".into())]), ..Default::default() };
    let term = PodAffinityTerm { label_selector: Some(selector), topology_key: labels::ZONE.into(), ..Default::default() };
    let near = Affinity { pod_affinity: Some(PodAffinity { required: vec![term], ..Default::default() }), ..Default::default() };
    let mut pods = vec![large("a-first", None), large("b-starts", Some(near))];
    pods.extend((0..4).map(|n| pod(&format!("small-{n}"), 3)));
    let mut snapshot = snapshot(pods);
    let mut small = four();
    let mut elsewhere = small.offerings[0].clone();
    elsewhere.requirements[1] = Requirement::is_in(labels::ZONE, ["b"]);
    small.offerings.push(elsewhere);
    small.requirements[1] = Requirement::is_in(labels::ZONE, ["a", "b"]);
    // Twice the price of four small ones: only first fit decreasing uses it.
    let mut sixteen = InstanceType { name: "sixteen".into(), ..small.clone() };
    sixteen.requirements[2] = Requirement::is_in(labels::INSTANCE_TYPE, ["sixteen"]);
    sixteen.capacity = Resources::from([("cpu", Quantity::from_units(16)), ("pods", Quantity::from_units(10))]);
    sixteen.offerings.iter_mut().for_each(|offering| offering.price = Price::from_dollars(1.6));
    snapshot.catalog.insert("default".to_owned(), Arc::new(vec![small, sixteen].into()));
    let input = snapshot.input();
    let plan = checked(&input, &whittle_snapshot::options(&Settings::default()), &ClusterName::new("c")).unwrap();
    let left: Vec<&str> = plan.left_out.iter().map(|left| left.pod.name.as_str()).collect();
    assert_eq!((left, plan.scheduled()), (vec!["b-starts"], 5));
    assert_eq!(plan.price(), Price::from_dollars(1.6 + 4.0 * 0.2), "one large machine, and small ones for the rest");
    assert!(plan.left_out[0].reason.to_string().contains("requires a pod that is not in its domain"), "{}", plan.left_out[0].reason);
    assert!(whittle_checker::check(&input, &whittle_snapshot::options(&Settings::default()), &plan).is_empty());
}

#[test]
fn runs_out_of_budget_continue_where_the_last_one_stopped() {
    let mut pods: Vec<Pod> = (0..4).map(|n| pod(&format!("giant-{n}"), 100 + n)).collect();
    pods.extend((0..40).map(|n| pod(&format!("small-{n:02}"), 3)));
    let (mut unplaced, mut round) = (Unplaced::default(), Round::default());
    let mut placed: BTreeSet<String> = BTreeSet::new();
    for runs in 1.. {
        assert!(runs < 60, "{} of 40 placed", placed.len());
        let plan = run(&pods, &mut unplaced, &mut round, 5);
        placed.extend(plan.claims.iter().flat_map(|claim| &claim.pods).map(|pod| pod.name.clone()));
        pods.retain(|pod| !placed.contains(&pod.metadata.name));
        if plan.cursor.is_none() && !plan.left_out.iter().any(|left| left.reason == Reason::OutOfBudget) {
            assert!(runs > 3, "the budget was not limiting");
            break;
        }
    }
    assert_eq!((placed.len(), pods.len()), (40, 4));
}

#[test]
fn unchanged_reasons_are_not_published_again() {
    let pods = [pod("giant", 100)];
    let (mut unplaced, mut round) = (Unplaced::default(), Round::default());
    let events = |plan: &Plan| write::events(plan, &[], &snapshot(Vec::new())).len();
    let first = run(&pods, &mut unplaced, &mut round, 1000);
    assert_eq!((events(&first), first.work > 0), (1, true));
    let second = run(&pods, &mut unplaced, &mut round, 1000);
    assert_eq!((events(&second), second.work), (0, 0), "no work is done for it");
    assert_eq!(second.left_out[0].reason.to_string(), first.left_out[0].reason.to_string());
    let changed = [pod("giant", 101)];
    assert_eq!(events(&run(&changed, &mut unplaced, &mut round, 1000)), 1);
}

/// A plan that ran out of budget after `considered` unschedulable pods.
fn cut_off(considered: usize) -> Plan {
    let pod = |n: usize| PodRef { namespace: "default".into(), name: format!("p-{n}"), uid: format!("6f1c9e1e-0000-4000-8000-{n:012}") };
    let left = |n: usize, reason: Reason| LeftOut { pod: pod(n), reason };
    let mut left_out: Vec<LeftOut> = (0..considered).map(|n| left(n, Reason::NoNodePools)).collect();
    left_out.push(left(considered, Reason::OutOfBudget));
    let cursor = Cursor { considered: (0..considered).map(|n| pod(n).uid).collect() };
    Plan { left_out, cursor: Some(cursor), ..Plan::default() }
}

#[test]
fn a_round_records_any_number_of_pods() {
    let plan = cut_off(50_000);
    let round = Round::after(&plan);
    let pages = round.pages();
    assert_eq!(pages.iter().map(Record::name).collect::<Vec<_>>(), ["page-00", "page-01", "page-02", "page-03"]);
    assert!(pages.iter().all(|page| serde_json::to_string(page).unwrap().len() < 300_000), "each fits into one item");
    let pods: Vec<Pod> = plan.left_out.iter().map(|left| pod(&left.pod.uid, 1)).collect();
    assert_eq!(Round::joined(&pages).cursor(&pods), plan.cursor.unwrap());
    assert_eq!(Round::after(&Plan::default()).pages(), [], "a finished round has no pages");
}

#[test]
fn a_round_considers_no_pod_twice_before_all_others() {
    // All pods differ: equal ones are rejected together.
    let pods: Vec<Pod> = (0..9000).map(|n| pod(&format!("giant-{n:05}"), 100 + n)).collect();
    let (mut unplaced, mut round) = (Unplaced::default(), Round::default());
    let first = run(&pods, &mut unplaced, &mut round, 5900);
    let had = |plan: &Plan| -> BTreeSet<String> {
        plan.left_out.iter().filter(|left| left.reason != Reason::OutOfBudget).map(|left| left.pod.uid.clone()).collect()
    };
    let (before, waiting) = (had(&first), 9000 - had(&first).len());
    assert!(before.len() > 8000 && waiting > 0, "{} were considered", before.len());
    let second = run(&pods, &mut Unplaced::default(), &mut round, u64::try_from(waiting / 2).unwrap());
    assert!(!had(&second).is_empty());
    assert!(had(&second).is_disjoint(&before), "{} were considered again", had(&second).intersection(&before).count());
}

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

#[test]
fn stored_state_of_every_release_stays_readable() {
    use crate::arrivals::Burst;
    use crate::state::{RoundPage, ShadowPlan, Unplaced};
    use whittle_claims::Record;
    golden::check::<Unplaced>(Unplaced::KIND, Unplaced::VERSION);
    golden::check::<RoundPage>(RoundPage::KIND, RoundPage::VERSION);
    golden::check::<Burst>(Burst::KIND, Burst::VERSION);
    golden::check::<ShadowPlan>(ShadowPlan::KIND, ShadowPlan::VERSION);
}

#[test]
fn with_many_unscheduled_pods_each_is_told_its_reason_in_its_turn() {
    let pods: Vec<Pod> = (0..450).map(|at| pod(&format!("p{at:03}"), 8)).collect();
    let (mut told, mut recorded) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..5 {
        let mut snapshot = snapshot(pods.clone());
        snapshot.now = now() + whittle_solver::VALID_FOR * round;
        let plan = whittle_solver::solve(&snapshot.input(), &whittle_snapshot::options(&Settings::default()));
        let events = crate::write::events(&plan, &[], &snapshot);
        assert_eq!(events.len(), 200);
        told.extend(events.into_iter().map(|event| event.name));
        let mut report = Report::default();
        crate::write::record_all_left_out(&mut report, &plan, &snapshot, &Memory::default());
        assert_eq!(report.decisions.len(), 100);
        recorded.extend(report.decisions.into_iter().map(|decision| decision.subject));
        assert_eq!(told.len() == pods.len(), 2 <= round, "{} after round {round}", told.len());
    }
    assert_eq!(recorded.len(), pods.len());
}

/// In a large cluster some node has more room before every run, so that all pods are evaluated in each.
#[test]
fn a_reason_that_is_no_news_is_recorded_once_in_five_minutes() {
    // How many reasons a run records, in which so many pods from the first on have another one, and what the next run knows.
    let recorded = |pods: &[Pod], changed: usize, known: &Memory, later: bool| {
        let mut snapshot = snapshot(pods.to_vec());
        snapshot.now = now() + whittle_solver::VALID_FOR * i32::from(later);
        let options = whittle_snapshot::options(&Settings::default());
        let mut plan = whittle_solver::solve(&snapshot.input(), &options);
        assert_eq!(plan.left_out.len(), pods.len());
        plan.left_out.iter_mut().take(changed).for_each(|left| left.reason = Reason::OptedOut);
        let mut report = Report::default();
        crate::write::record_all_left_out(&mut report, &plan, &snapshot, known);
        (report.decisions.len(), Memory::after(&snapshot.input(), &options, &plan))
    };
    let mut pods: Vec<Pod> = (0..3).map(|at| pod(&format!("p{at}"), 8)).collect();
    let (first, known) = recorded(&pods, 0, &Memory::default(), false);
    assert_eq!(first, 3);
    assert_eq!(recorded(&pods, 0, &known, false).0, 0, "the next run finds the same");
    assert_eq!(recorded(&pods, 1, &known, false).0, 1, "another reason is recorded at once");
    pods.push(pod("another", 8));
    assert_eq!(recorded(&pods, 0, &known, false).0, 1, "and so is a pod that is new");
    assert_eq!(recorded(&pods, 0, &known, true).0, 4, "all are recorded again after five minutes");
}
