//! The whole handler over the memory adapters: when it reads everything, and when one question is enough.

use super::pod;
use futures::executor::block_on;
use whittle_api::karpenter::{CapacityBuffer, NodeOverlay};
use whittle_api::{ConditionStatus, ObjectMeta, conditions};
use whittle_claims::{Claim, Deletion, DeletionReason, Event, Expectation, ExpectedPage, step};
use whittle_ports::{Adapters, RecordReader, Records, Report, Settings};
use whittle_testkit::{TestWorld, after, at, default_spec, joined, key, machine, pool_named};
use whittle_units::SignedDuration;

/// A world with a pool, in which only the test acts.
fn world() -> TestWorld {
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
    world.store(&serving());
    world.store(&step(&planned("gone"), &Event::DeletionRequested(deleted()), at(-500)).unwrap());
    let report = run(&world);
    assert_eq!(report.counted("nothing_pending"), 1);
    assert!(report.decisions.is_empty());
    let depth = report.gauges.iter().find(|gauge| gauge.metric == "karpenter_scheduler_queue_depth");
    assert_eq!(depth.map(|gauge| &gauge.amount), Some(&whittle_ports::Amount::Count(0)), "the gauge does not stay at its last value");
}

fn deleted() -> Deletion {
    Deletion { reason: DeletionReason::Underutilized, at: at(-500), deadline: None, message: String::new() }
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
fn what_earlier_runs_expected_ends_without_a_plan() {
    let mut world = world();
    let cluster = key("a").cluster;
    let until = at(0) + SignedDuration::from_secs(60);
    let nominated = Expectation { nominated_until: Some(until), buffer_pods: 2 };
    let pages = ExpectedPage::of([("serves".to_owned(), nominated)].into());
    for page in &pages {
        block_on(world.ports().write(&cluster, page, whittle_claims::Revision::ABSENT)).unwrap();
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
