//! The whole handler over the memory adapters: when it reads everything, and when one question is enough.

use super::{pod, snapshot};
use futures::executor::block_on;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use whittle_api::k8s::Pod;
use whittle_api::karpenter::{CapacityBuffer, NodeOverlay};
use whittle_api::{ConditionStatus, ObjectMeta, conditions};
use whittle_claims::{
    Claim, Deletion, DeletionReason, Doorbell, Event, Expectation, ExpectedPage, Function, FunctionHealth, OfferingKey, Revision, StockOut,
    step,
};
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{
    Adapters, Batching, CLAIMS_PER_REQUEST, ClaimStore, Clock, Deadline, HandleError, Leases, QueueError, Queues, RecordReader, Records,
    RegionStore, Report, Settings,
};
use whittle_testkit::{TestWorld, after, at, default_spec, joined, key, machine, pool_named};
use whittle_units::{ClaimName, SignedDuration, Timestamp, fnv1a};

/// A world with a pool, in which only the test acts.
pub(super) fn world() -> TestWorld {
    let world = TestWorld::still(at(0));
    world.create(pool_named("default"));
    world
}

fn run(world: &TestWorld) -> Report {
    let ports = world.ports();
    block_on(crate::handle(Adapters::all(&ports), &Settings::default(), &key("a").cluster)).unwrap()
}

fn is_short(world: &TestWorld) -> bool {
    run(world).counted("nothing_pending") == 1
}

fn planned(name: &str) -> Claim {
    Claim::planned(key(name), "uid".into(), default_spec(), at(-600))
}

fn launched() -> Claim {
    after(&planned("serves"), &[Event::FleetAnswered(machine("i-1"))], at(-600))
}

fn serving() -> Claim {
    after(&launched(), &[joined("n"), Event::NodeReady], at(-600))
}

#[test]
fn where_no_pod_waits_one_question_is_enough() {
    let world = world();
    assert!(is_short(&world), "an empty cluster");
    let mut bound = pod("bound", 1);
    bound.spec.node_name = "n".into();
    world.create(bound);
    let mut failed = pod("failed", 1);
    failed.status.phase = "Failed".into();
    world.create(failed);
    let mut deleted_pod = pod("deleted", 1);
    deleted_pod.metadata.deletion_timestamp = Some(at(-60));
    deleted_pod.metadata.finalizers = vec!["a.b/c".into()];
    world.create(deleted_pod);
    world.store(&serving());
    world.store(&step(&planned("gone"), &Event::DeletionRequested(deleted()), at(-500)).unwrap());
    let report = run(&world);
    assert_eq!(report.counted("nothing_pending"), 1);
    assert!(report.decisions.is_empty());
    let depth = report.gauges.iter().find(|gauge| gauge.metric == "karpenter_scheduler_queue_depth");
    assert_eq!(depth.map(|gauge| &gauge.amount), Some(&whittle_ports::Amount::Count(0)), "the gauge does not stay at its last value");
}

/// A run while another one has the cluster's lease.
fn run_beside_another(world: &TestWorld) -> Report {
    let (ports, cluster) = (world.ports(), key("a").cluster);
    let lease = block_on(ports.acquire(&cluster, "another", at(0), SignedDuration::from_secs(30))).unwrap();
    let report = run(world);
    block_on(ports.release(&lease)).unwrap();
    report
}

#[test]
fn a_run_that_decides_and_stores_nothing_takes_no_lease() {
    let world = world();
    assert_eq!(run_beside_another(&world).counted("nothing_pending"), 1);
    assert!(world.doorbells().is_empty(), "it need not come again");
    world.create(pod("waits", 1));
    assert_eq!(run_beside_another(&world).counted("lease_held"), 1, "a plan needs it");
    assert_eq!(world.doorbells(), [Function::Schedule]);
}

#[test]
fn a_run_that_ends_well_notes_it_and_one_that_fails_does_not() {
    let world = world();
    let (ports, cluster) = (world.ports(), key("a").cluster);
    let well_at = || {
        let known = block_on(ports.read::<FunctionHealth>(&cluster, Function::Schedule.name())).unwrap();
        known.map(|known| known.value.well_at)
    };
    let throttled = Faulty::scripted(&ports, [Some(Fault::Throttle); 40]);
    let adapters = Adapters { store: &throttled, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    assert!(block_on(crate::handle(adapters, &Settings::default(), &cluster)).is_err());
    assert_eq!(well_at(), None);
    run(&world);
    let first = well_at();
    assert!(first.is_some());
    run(&world);
    assert_eq!(well_at(), first, "it is written every few minutes");
}

#[test]
fn what_earlier_runs_stored_is_forgotten_under_the_lease() {
    let world = world();
    let expected = Expectation { nominated_until: None, buffer_pods: 2 };
    let page = ExpectedPage { page: 0, machines: [("serves".to_owned(), expected)].into() };
    let (ports, cluster) = (world.ports(), key("a").cluster);
    block_on(ports.write(&cluster, &page, Revision::ABSENT)).unwrap();
    let pages = || block_on(ports.read_all::<ExpectedPage>(&cluster)).unwrap().len();
    assert_eq!((run_beside_another(&world).counted("lease_held"), pages()), (1, 1));
    assert_eq!((run(&world).counted("nothing_pending"), pages()), (1, 0));
}

#[test]
fn unreadable_objects_of_a_cluster_without_claims_ring_for_whoever_tells_of_them() {
    let rings = |world: &TestWorld| {
        assert!(!is_short(world), "it may need a machine");
        world.doorbells().contains(&Function::Consolidate)
    };
    let world = world();
    world.create(pod("odd", 1));
    assert!(!rings(&world), "one that can be read");
    world.world().hide_always("Pod", "default/odd", true);
    assert!(rings(&world));
    let with_claim = self::world();
    with_claim.create(pod("odd", 1));
    with_claim.world().hide_always("Pod", "default/odd", true);
    with_claim.store(&serving());
    assert!(!rings(&with_claim), "ticks ring there");
}

fn deleted() -> Deletion {
    Deletion::without_deadline(DeletionReason::Underutilized, at(-500), "")
}

#[test]
fn whatever_a_plan_may_be_for_is_looked_at() {
    let draining = step(&serving(), &Event::DeletionRequested(deleted()), at(0)).unwrap();
    let mut marked = serving();
    conditions::set(&mut marked.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Drifted", "", at(0));
    for claim in [planned("new"), launched(), draining, marked] {
        let world = world();
        world.store(&claim);
        assert!(!is_short(&world), "{:?}", claim.phase);
    }
    let waits = world();
    waits.create(pod("waits", 1));
    assert!(!is_short(&waits), "a pending pod");
    let buffered = world();
    buffered.create(CapacityBuffer { metadata: ObjectMeta::namespaced("default", "spare"), ..CapacityBuffer::default() });
    assert!(!is_short(&buffered), "a capacity buffer");
    let overlaid = world();
    overlaid.create(NodeOverlay { metadata: ObjectMeta::named("cheaper"), ..NodeOverlay::default() });
    assert!(!is_short(&overlaid), "an overlay, whose status a plan writes");
}

#[test]
fn an_overlay_that_cannot_be_used_says_so_once() {
    let world = world();
    let mut overlay = NodeOverlay { metadata: ObjectMeta::named("cheaper"), ..NodeOverlay::default() };
    overlay.spec.price = Some("much".into());
    world.create(overlay);
    for _ in 0..2 {
        run(&world);
        let events: Vec<(String, u32)> = {
            let world = world.world();
            let events = world.cluster.events.iter().filter(|kept| kept.event.kind == "NodeOverlay");
            events.map(|kept| (kept.event.reason.clone(), kept.count)).collect()
        };
        assert_eq!(events, [("ValidationSucceeded".to_owned(), 1), ("Ready".to_owned(), 1)]);
    }
}

#[test]
fn nothing_is_planned_for_the_pool_of_another_controller() {
    let world = world();
    let mut theirs = pool_named("theirs");
    let reference = &mut theirs.spec.template.spec.node_class_ref;
    (reference.group, reference.kind) = ("eks.amazonaws.com".into(), "NodeClass".into());
    world.create(theirs);
    let ports = world.ports();
    let (settings, cluster) = (Settings::default(), key("a").cluster);
    let objects = block_on(whittle_snapshot::load(Adapters::all(&ports), &settings, &cluster)).unwrap().objects;
    let pools: Vec<&str> = objects.node_pools.iter().map(|pool| pool.metadata.name.as_str()).collect();
    assert_eq!(pools, ["default"]);
}

/// After its third failure, twenty seconds ago, an offering is left aside for twelve minutes by what replaces nodes.
#[test]
fn pods_try_what_was_out_of_stock_again_sooner_than_others() {
    let world = world();
    let offering =
        OfferingKey { instance_type: "m5.large".into(), zone: "z".into(), capacity_type: "on-demand".into(), ..OfferingKey::default() };
    let third = StockOut { offering, code: "InsufficientInstanceCapacity".into(), until: at(700), strikes: 3 };
    let (ports, settings, cluster) = (world.ports(), Settings::default(), key("a").cluster);
    block_on(ports.put_stock_outs(std::slice::from_ref(&third))).unwrap();
    let of_pods = block_on(whittle_snapshot::load_for_pods(Adapters::all(&ports), &settings, &cluster)).unwrap().stock_outs;
    assert_eq!(of_pods, [StockOut { until: at(160), ..third.clone() }]);
    let others = block_on(whittle_snapshot::load(Adapters::all(&ports), &settings, &cluster)).unwrap().stock_outs;
    assert_eq!(others, [third]);
}

#[test]
fn what_earlier_runs_expected_ends_without_a_plan() {
    let mut world = world();
    let cluster = key("a").cluster;
    let until = at(0) + SignedDuration::from_secs(60);
    let nominated = Expectation { nominated_until: Some(until), buffer_pods: 2 };
    let pages = ExpectedPage::of([("serves".to_owned(), nominated)].into());
    for page in &pages {
        block_on(world.ports().write(&cluster, page, Revision::ABSENT)).unwrap();
    }
    let kept = |world: &TestWorld| {
        let pages = block_on(world.ports().read_all::<ExpectedPage>(&cluster)).unwrap();
        ExpectedPage::joined(pages.into_iter().map(|page| page.value)).get("serves").cloned()
    };
    assert!(is_short(&world));
    assert_eq!(kept(&world), Some(Expectation { nominated_until: Some(until), buffer_pods: 0 }), "no buffer is left");
    world.run_for(SignedDuration::from_secs(61));
    assert!(is_short(&world));
    assert_eq!(kept(&world), None);
}

fn batching(world: &TestWorld) -> Report {
    let (ports, settings) = (world.ports(), Settings { batching: Batching::STANDARD, ..Settings::default() });
    block_on(crate::handle(Adapters::all(&ports), &settings, &key("a").cluster)).unwrap()
}

fn failed_at(name: &str, seconds: i64) -> Pod {
    let mut out = pod(name, 1);
    out.status.conditions[0].last_transition_time = Some(at(seconds));
    out
}

#[test]
fn a_plan_waits_while_pods_arrive_and_rings_for_the_next_look() {
    let world = world();
    world.create(failed_at("first", -3));
    world.create(failed_at("latest", 0));
    let report = batching(&world);
    assert_eq!((report.counted("pods_arriving"), report.gauges.len()), (1, 0), "nothing was planned, and no gauge says that nothing waits");
    assert_eq!(world.doorbells(), [Function::Schedule], "the next look comes by itself");
}

#[test]
fn a_plan_does_not_wait_where_nobody_has_arrived_lately() {
    let world = world();
    world.create(failed_at("waits", -1));
    assert_eq!(batching(&world).counted("pods_arriving"), 0);
    assert!(world.doorbells().is_empty());
    let at_once = self::world();
    at_once.create(failed_at("waits", 0));
    assert_eq!(run(&at_once).counted("pods_arriving"), 0, "PlanDelayMaxSeconds is 0");
}

#[test]
fn pods_that_never_stop_arriving_are_planned_for_by_the_longest_wait() {
    let mut world = world();
    let mut planned = Vec::new();
    for second in 0..30 {
        world.create(failed_at(&format!("pod-{second}"), second));
        if batching(&world).counted("pods_arriving") == 0 {
            planned.push(second);
        }
        world.run_for(SignedDuration::from_secs(1));
    }
    assert_eq!(planned, [10, 20]);
}

/// The clock of a run that names the claims of each request as those of the request before: the table refuses the second one.
struct Repeating<'a, C> {
    clock: &'a C,
    named: AtomicUsize,
}

impl<C: Clock> Clock for Repeating<'_, C> {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
    fn deadline(&self) -> Deadline {
        self.clock.deadline()
    }
    fn unique(&self) -> String {
        // A claim takes two: its name, and the uid of its NodeClaim.
        format!("u{}", self.named.fetch_add(1, Ordering::Relaxed) % (2 * CLAIMS_PER_REQUEST))
    }
}

/// A queue that keeps its doorbells.
#[derive(Default)]
struct Kept(Mutex<Vec<Doorbell>>);

impl Queues for Kept {
    async fn send(&self, doorbell: Doorbell, _: SignedDuration) -> Result<(), QueueError> {
        self.0.lock().unwrap().push(doorbell);
        Ok(())
    }
}

#[test]
fn claims_that_were_stored_before_a_request_failed_are_launched_and_recorded() {
    let (world, settings, cluster) = (world(), Settings::default(), key("a").cluster);
    let (ports, queue) = (world.ports(), Kept::default());
    let clock = Repeating { clock: &ports, named: AtomicUsize::new(0) };
    let adapters = Adapters { store: &ports, cloud: &(), cluster: &ports, queues: &queue, clock: &clock };
    let snapshot = snapshot((0..60).map(|number| pod(&format!("pod-{number}"), 3)).collect());
    let plan = crate::checked(&snapshot.input(), &whittle_snapshot::options(&settings), &cluster).unwrap();
    assert_eq!(plan.claims.len(), 60, "more than one request creates");
    let run = crate::Run { ports: adapters, settings: &settings, cluster: &cluster };
    let outcome = block_on(async {
        let lease = ports.acquire(&cluster, "test", at(0), SignedDuration::from_secs(30)).await?;
        run.create_claims(&lease, &snapshot, &plan, &mut Report::default()).await
    });
    assert!(matches!(outcome, Err(HandleError::Store(_))), "{outcome:?}");
    let doorbells = queue.0.lock().unwrap();
    let [Doorbell::Launch { claims, .. }] = doorbells.as_slice() else { panic!("{doorbells:?}") };
    let stored = block_on(ports.list(&cluster)).unwrap();
    let mut rung: Vec<&ClaimName> = claims.iter().collect();
    let mut there: Vec<&ClaimName> = stored.iter().map(|claim| &claim.value.key.name).collect();
    rung.sort();
    there.sort();
    assert_eq!((there.len(), rung), (CLAIMS_PER_REQUEST, there));
    assert_eq!(world.world().store.decisions(&cluster).len(), CLAIMS_PER_REQUEST);
}

/// The next run has to make those for which there was no time, and nothing rings for it otherwise until the next tick.
#[test]
fn claims_for_which_there_is_no_time_are_left_to_the_next_run_which_is_rung_for() {
    let (settings, cluster) = (Settings::default(), key("a").cluster);
    let snapshot = snapshot((0..60).map(|number| pod(&format!("pod-{number}"), 3)).collect());
    let plan = crate::checked(&snapshot.input(), &whittle_snapshot::options(&settings), &cluster).unwrap();
    let reserve = crate::RESERVE_FOR_ANNOUNCE;
    for (left, stored) in [(reserve - SignedDuration::from_secs(1), 0), (reserve + SignedDuration::from_mins(1), 60)] {
        let world = world();
        let ports = world.ports().with_time_left(SignedDuration::ZERO, left);
        let run = crate::Run { ports: Adapters::all(&ports), settings: &settings, cluster: &cluster };
        let lease = block_on(ports.acquire(&cluster, "test", at(0), SignedDuration::from_secs(30))).unwrap();
        let mut report = Report::default();
        let created = block_on(run.create_claims(&lease, &snapshot, &plan, &mut report)).unwrap();
        assert_eq!((created.len(), block_on(ports.list(&cluster)).unwrap().len()), (stored, stored));
        assert_eq!(report.counted("handed_over"), u64::from(stored == 0));
        block_on(run.announce(&plan, &created)).unwrap();
        assert_eq!(world.doorbells(), [if stored == 0 { Function::Schedule } else { Function::Launch }]);
    }
}

/// A plan that rings for the next one without need does so for ever.
#[test]
fn a_plan_rings_for_the_next_only_if_that_may_find_more() {
    use whittle_model::scheduling::{Cause, Cursor, LeftOut, Plan, PodRef, Reason};
    let (settings, cluster) = (Settings::default(), key("a").cluster);
    let snapshot = snapshot(vec![pod("planned", 3)]);
    let whole = crate::checked(&snapshot.input(), &whittle_snapshot::options(&settings), &cluster).unwrap();
    let rung = |change: &dyn Fn(&mut Plan)| {
        let (world, mut plan) = (world(), whole.clone());
        change(&mut plan);
        let ports = world.ports();
        let run = crate::Run { ports: Adapters::all(&ports), settings: &settings, cluster: &cluster };
        let created: Vec<Claim> = plan.claims.iter().map(|_| planned("new")).collect();
        block_on(run.announce(&plan, &created)).unwrap();
        let doorbells = world.doorbells();
        [Function::Launch, Function::Schedule].map(|function| doorbells.contains(&function))
    };
    let left = |reason: Reason| vec![LeftOut { pod: PodRef::of(&pod("left", 1)), reason }];
    assert_eq!(rung(&|_| ()), [true, false]);
    assert_eq!(rung(&|plan| plan.left_out = left(Reason::NoNodePools)), [true, false], "what it lacks is a person's to make");
    assert_eq!(rung(&|plan| plan.left_out = left(Reason::Reserved(Cause::ReservedUnavailable))), [true, true], "it may be used up soon");
    assert_eq!(rung(&|plan| plan.cursor = Some(Cursor::default())), [true, true], "others were not considered");
    let none = |plan: &mut Plan| {
        plan.claims.clear();
        plan.left_out = left(Reason::Reserved(Cause::ReservedUnavailable));
    };
    assert_eq!(rung(&none), [false, false], "nothing that this plan does changes it");
}

/// An annotation of almost a megabyte that cannot be compressed to the size of an item.
pub(super) fn large_annotation() -> String {
    (0..60_000).map(|n| format!("{:016x}", fnv1a(format!("{n} of many")))).collect()
}

#[test]
fn a_claim_that_is_too_large_would_have_the_table_refuse_all_and_is_set_aside_before() {
    let (world, settings, cluster) = (world(), Settings::default(), key("a").cluster);
    let ports = world.ports();
    let snapshot = snapshot(vec![pod("first", 4), pod("second", 4)]);
    let (input, options) = (snapshot.input(), whittle_snapshot::options(&settings));
    let mut plan = crate::checked(&input, &options, &cluster).unwrap();
    plan.claims[0].annotations.insert("example.com/note".into(), large_annotation());
    let large = plan.claims[0].pods[0].clone();
    let run = crate::Run { ports: Adapters::all(&ports), settings: &settings, cluster: &cluster };
    let lease = block_on(ports.acquire(&cluster, "test", at(0), SignedDuration::from_secs(30))).unwrap();
    let refused = block_on(run.create_claims(&lease, &snapshot, &plan, &mut Report::default()));
    assert!(refused.is_err() && block_on(ports.list(&cluster)).unwrap().is_empty(), "all are refused together");
    let mut report = Report::default();
    crate::oversize::too_large(&mut plan, &snapshot, &cluster, &mut report);
    let created = block_on(run.create_claims(&lease, &snapshot, &plan, &mut report)).unwrap();
    let stored = block_on(ports.list(&cluster)).unwrap();
    assert_eq!((report.counted("claims_too_large"), created.len(), stored.len()), (1, 1, 1));
    block_on(run.announce(&plan, &created)).unwrap();
    assert_eq!(world.doorbells(), [Function::Launch], "it does not ring for what it set aside");
    let [told] = &plan.left_out[..] else { panic!("{:?}", plan.left_out) };
    let (text, remedies) = (told.reason.to_string(), told.reason.remedies());
    assert!(text.contains("nodepool default") && text.contains("most of them in metadata.annotations"), "{text}");
    assert_eq!((&told.pod, remedies[0].text.as_str()), (&large, "less in spec.template.metadata.annotations"));
    let events = crate::write::events(&plan, &created, &snapshot);
    assert!(events.iter().any(|event| event.name == large.name && event.reason == "FailedScheduling"), "{events:?}");
}

#[test]
fn a_plan_of_claims_that_can_be_stored_stays_as_it_is() {
    let (snapshot, cluster) = (snapshot(vec![pod("one", 1), pod("large", 40)]), key("a").cluster);
    let plan = crate::checked(&snapshot.input(), &whittle_snapshot::options(&Settings::default()), &cluster).unwrap();
    let (mut after, mut report) = (plan.clone(), Report::default());
    crate::oversize::too_large(&mut after, &snapshot, &cluster, &mut report);
    assert_eq!((after, report.counted("claims_too_large")), (plan, 0));
}
