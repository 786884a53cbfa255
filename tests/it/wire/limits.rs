//! Large scale-ups and scale-downs, with EC2's documented request limits in force and calls that take 300 ms.

use super::root;
use crate::cases::{Case, Stage};
use whittle_api::karpenter::Requirement;
use whittle_claims::{Claim, Phase};
use whittle_fake_aws::Limits;
use whittle_ports::Clock;
use whittle_units::{ClaimName, SignedDuration};

/// How long a call of EC2 takes.
const CALL: SignedDuration = SignedDuration::from_millis(300);
/// Messages of one invocation of `terminate`, and its concurrent invocations: as in the template.
const MESSAGES: usize = 10;
const INVOCATIONS: usize = 20;

fn stage() -> (Case, Stage) {
    let case = Case::read(&root().join("tests/golden/cloud/launch/001-on-demand.yaml")).unwrap();
    let (stage, _) = Stage::refreshed(&case).unwrap();
    // The dry run that `refresh` has asked for.
    stage.launch(&[]).unwrap();
    let mut api = stage.aws.api.lock().unwrap();
    (api.limits, api.journal) = (Limits::documented(), Vec::new());
    drop(api);
    (case, stage)
}

/// Claims of this many shapes; those of one shape share a fleet.
fn claims(case: &Case, stage: &Stage, count: usize, shapes: usize) -> Vec<Claim> {
    let shaped = |number: usize| {
        let mut claim = case.planned(number, stage.ports.now());
        if shapes > 1 {
            claim.spec.requirements.push(Requirement::is_in("example.com/shape", [format!("shape-{}", number % shapes).as_str()]));
            claim.spec.labels.insert("example.com/shape".to_owned(), format!("shape-{}", number % shapes));
        }
        claim
    };
    (0..count).map(shaped).collect()
}

fn running(stage: &Stage) -> usize {
    stage.simulation.world().region.machines.values().filter(|machine| machine.instance.is_alive()).count()
}

/// Calls of an action, and how many calls of any action were throttled.
fn calls(stage: &Stage, action: &str) -> (usize, usize) {
    let made = stage.aws.api.lock().unwrap().calls(action);
    (made, throttled(stage, |_| true))
}

/// How many calls of some actions were throttled.
fn throttled(stage: &Stage, counts: impl Fn(&str) -> bool) -> usize {
    let api = stage.aws.api.lock().unwrap();
    let refused = api.journal.iter().filter(|entry| entry.refused.as_deref() == Some("RequestLimitExceeded"));
    refused.filter(|entry| counts(&entry.action)).count()
}

/// Runs `round` until `done`, and lets as much time pass as its calls take, `lanes` at a time, at least a second. The seconds that passed.
fn seconds_until(stage: &mut Stage, lanes: usize, done: impl Fn(&Stage) -> bool, round: impl Fn(&Stage)) -> i64 {
    let start = stage.ports.now();
    for _ in 0..200 {
        if done(stage) {
            return stage.ports.now().duration_since(start).as_secs();
        }
        let before = stage.aws.api.lock().unwrap().journal.len();
        round(stage);
        let made = stage.aws.api.lock().unwrap().journal.len() - before;
        let took = CALL * i32::try_from(made.div_ceil(lanes)).unwrap();
        stage.simulation.run_for(took.max(SignedDuration::from_secs(1)));
    }
    panic!("it never ends");
}

/// Claims whose next message has arrived.
fn due(stage: &Stage) -> Vec<ClaimName> {
    let now = stage.ports.now();
    let claims = stage.claims().into_iter().filter(|claim| claim.is_live() && claim.look_again_at.is_none_or(|at| at <= now));
    claims.map(|claim| claim.key.name).collect()
}

fn launched(stage: &Stage, count: usize) -> bool {
    let stored = stage.claims().iter().filter(|claim| matches!(claim.phase, Phase::Launched { .. })).count();
    stored == count && running(stage) == count
}

#[test]
fn five_hundred_equal_claims_are_launched_by_five_fleets() {
    let (case, mut stage) = stage();
    stage.store(&claims(&case, &stage, 500, 1));
    let seconds = seconds_until(&mut stage, 1, |stage| launched(stage, 500), |stage| stage.launch(&[]).unwrap());
    let ((fleets, throttled), (templates, _)) = (calls(&stage, "CreateFleet"), calls(&stage, "CreateLaunchTemplate"));
    println!("500 equal claims: {fleets} CreateFleet, {templates} CreateLaunchTemplate, {throttled} throttled, stored after {seconds} s");
    assert_eq!((fleets, throttled), (5, 0));
    assert!(templates <= 10 && seconds <= 15, "{templates} CreateLaunchTemplate in {seconds} s");
}

/// Each has an execution environment of its own, and needs the templates of all.
#[test]
fn ten_launchers_of_a_thousand_claims_stay_within_the_bucket_and_take_no_throttle_for_a_stock_out() {
    let (case, mut stage) = stage();
    stage.store(&claims(&case, &stage, 1000, 20));
    let seconds = seconds_until(&mut stage, 1, |stage| launched(stage, 1000), |stage| stage.launch_concurrently(10));
    let ((fleets, _), (templates, _)) = (calls(&stage, "CreateFleet"), calls(&stage, "CreateLaunchTemplate"));
    let refused = ["CreateFleet", "CreateLaunchTemplate"].map(|action| throttled(&stage, |one| one == action));
    println!(
        "10 launchers, 1,000 claims of 20 shapes: {fleets} CreateFleet, {templates} CreateLaunchTemplate, {refused:?} of them throttled, \
         stored after {seconds} s"
    );
    assert_eq!((refused[0], stage.stock_outs().len(), running(&stage)), (0, 0, 1000), "each claim has one machine");
    assert!(i64::try_from(fleets).unwrap() <= 50 + 5 * seconds, "{fleets} CreateFleet in {seconds} s");
}

#[test]
fn five_hundred_machines_are_terminated_without_a_throttled_call() {
    let (case, mut stage) = stage();
    stage.store(&claims(&case, &stage, 500, 1));
    seconds_until(&mut stage, 1, |stage| launched(stage, 500), |stage| stage.launch(&[]).unwrap());
    stage.delete_claims();
    let seconds = seconds_until(
        &mut stage,
        INVOCATIONS,
        |stage| running(stage) == 0,
        |stage| due(stage).chunks(MESSAGES).for_each(|some| stage.terminate(some)),
    );
    let ((terminations, throttled), (lookups, _)) = (calls(&stage, "TerminateInstances"), calls(&stage, "DescribeInstances"));
    println!(
        "500 machines: {terminations} TerminateInstances, {lookups} DescribeInstances, {throttled} throttled, all terminated after {seconds} s"
    );
    assert_eq!(throttled, 0);
}

#[test]
fn five_hundred_machines_are_named_without_a_throttled_call() {
    let (case, mut stage) = stage();
    stage.store(&claims(&case, &stage, 500, 1));
    seconds_until(&mut stage, 1, |stage| launched(stage, 500), |stage| stage.launch(&[]).unwrap());
    stage.join_nodes();
    let named = |stage: &Stage| {
        let world = stage.simulation.world();
        world.region.machines.values().filter(|machine| machine.instance.tags.contains_key("Name")).count()
    };
    stage.aws.api.lock().unwrap().journal.clear();
    let start = stage.ports.now();
    while named(&stage) < 500 && stage.ports.now().duration_since(start) < SignedDuration::from_mins(5) {
        assert_eq!(stage.register().counted("tags_failed"), 0);
        // The next run, which this one asked for.
        stage.simulation.run_for(SignedDuration::from_secs(5));
    }
    let seconds = stage.ports.now().duration_since(start).as_secs();
    assert_eq!(named(&stage), 500);
    let ((tags, throttled), (lookups, _)) = (calls(&stage, "CreateTags"), calls(&stage, "DescribeInstances"));
    println!("500 machines: {tags} CreateTags, {lookups} DescribeInstances, {throttled} throttled, all named after {seconds} s");
    assert_eq!((tags, throttled), (500, 0));
    assert!(lookups <= 60, "lookups share calls");
}
