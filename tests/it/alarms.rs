//! The alarms of the template, over what the functions print and how often they are called in the simulator: each cause raises its alarm,
//! and a cluster that is well raises none.

use crate::wire::rendered;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use whittle_alarms::{Alarm, Names, Point};
use whittle_api::KarpenterSign;
use whittle_cli::local::session::{Place, Pool, Session};
use whittle_cli::local::wiring::{self, Cloud, Handlers};
use whittle_ports::metrics::Level;
use whittle_ports::telemetry::{self, Telemetry};
use whittle_ports::{Clock, ClusterError, HandleError, StoreError};
use whittle_sim::region::PoolRefusal;
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts};
use whittle_units::{SignedDuration, Timestamp};

const POOL: &str = include_str!("../../cli/src/local/demo/pool.yaml");
const INFLATE: &str = include_str!("../../cli/src/local/demo/inflate.yaml");

/// The template as CloudFormation gets it; rendered once for all tests here.
fn template() -> Option<&'static Value> {
    static TEMPLATE: OnceLock<Option<Value>> = OnceLock::new();
    TEMPLATE.get_or_init(rendered).as_ref()
}

/// The real functions; what they print becomes metrics.
struct Printing {
    handlers: Arc<Handlers>,
    points: Arc<Mutex<Vec<Point>>>,
    dead: Arc<Mutex<Option<Function>>>,
}

impl Functions for Printing {
    fn call(&self, function: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        let (settings, points) = (self.handlers.settings(), Arc::clone(&self.points));
        if *self.dead.lock().unwrap() == Some(function) {
            return async { Err(RunFailure { reason: "it died".to_owned(), may_pass: false }) }.boxed();
        }
        async move {
            let result = wiring::run(&Cloud { machines: &ports, discovery: &ports }, &ports, &settings, function, input).await;
            let cluster = ports.cluster();
            let namespace = settings.metrics_namespace.as_str();
            let run =
                Telemetry { at: ports.now(), function, cluster: cluster.as_str(), level: settings.metrics, namespace, is_alone: false };
            let lines = telemetry::lines(&run, Duration::from_millis(100), &result);
            points.lock().unwrap().extend(lines.iter().flat_map(Point::of_line));
            wiring::outcome(result)
        }
        .boxed()
    }
}

/// A cluster that Whittle has served for a while, and the alarms on what the simulator knows: our own metrics, and calls of `sweep`.
struct Scene {
    session: Session,
    points: Arc<Mutex<Vec<Point>>>,
    alarms: Vec<Alarm>,
    /// A function that dies at each call, before it has printed anything.
    dead: Arc<Mutex<Option<Function>>>,
    /// Invocations of sweep that are points.
    sweeps: u64,
}

impl Scene {
    fn new() -> Option<Self> {
        let template = template()?;
        let alarms = Alarm::all(template, &Names::of_template(template)).unwrap();
        let alarms: Vec<Alarm> = alarms.into_iter().filter(|alarm| !alarm.is_of_a_service() || alarm.name == "SweepSilentAlarm").collect();
        let names: Vec<&str> = alarms.iter().map(|alarm| alarm.name.as_str()).collect();
        assert_eq!(names, ["FailedRunsAlarm", "ProblemsAlarm", "RefreshFailsAlarm", "SweepSilentAlarm", "WarningsAlarm"]);
        let points: Arc<Mutex<Vec<Point>>> = Arc::default();
        let dead: Arc<Mutex<Option<Function>>> = Arc::default();
        let (kept, died) = (Arc::clone(&points), Arc::clone(&dead));
        let mut session = Session::with_functions(&Place::default(), |handlers| Arc::new(Printing { handlers, points: kept, dead: died }));
        session.apply_text("pool.yaml", POOL).unwrap();
        session.apply_text("inflate.yaml", INFLATE).unwrap();
        session.simulation.world().meter = Some(Box::default());
        let mut scene = Self { session, points, alarms, dead, sweeps: 0 };
        // Until then an alarm looks at a time before there was anything.
        scene.minutes(11);
        Some(scene)
    }

    /// Lets minutes pass. Which alarms went off, with their contributors, and after how many minutes.
    fn minutes(&mut self, minutes: u32) -> BTreeMap<String, u32> {
        let mut raised = BTreeMap::new();
        for minute in 1..=minutes {
            self.session.advance(SignedDuration::from_mins(1));
            self.note_sweeps();
            let (points, now) = (self.points.lock().unwrap(), self.session.now().as_millisecond());
            for alarm in &self.alarms {
                for contributor in alarm.breaches(&points, now) {
                    raised.entry(format!("{} {contributor}", alarm.name).trim_end().to_owned()).or_insert(minute);
                }
            }
        }
        raised
    }

    fn note_sweeps(&mut self) {
        let now = self.session.now().as_millisecond();
        let world = self.session.simulation.world();
        let invoked = world.meter.as_ref().and_then(|meter| meter.functions().get(&Function::Sweep)).map_or(0, |sweep| sweep.invocations);
        // That of the minute that ends now.
        let more = Point::of_service(now - 1, "AWS/Lambda", "Invocations", ("FunctionName", "Sweep"), (invoked - self.sweeps) as f64);
        self.points.lock().unwrap().push(more);
        self.sweeps = invoked;
    }

    fn later(&self, minutes: i64) -> Timestamp {
        self.session.now().checked_add(SignedDuration::from_mins(minutes)).unwrap()
    }

    /// Pods that ask for machines, and time for these to join.
    fn with_pods(mut self, pods: i32) -> Self {
        self.session.scale("inflate", pods).unwrap();
        self.session.advance(SignedDuration::from_mins(4));
        assert_eq!(self.session.simulation.world().cluster.pod_counts(|_| true).running, usize::try_from(pods).unwrap());
        self
    }

    /// An alarm goes off for a cause within minutes.
    #[track_caller]
    fn raises(&mut self, alarm: &str, within: u32) {
        let raised = self.minutes(within);
        assert!(raised.contains_key(alarm), "not within {within} minutes: {alarm}; but {raised:?}");
    }
}

/// Pods come, a machine is taken back, pods go, and the API server is away for a minute and a half.
#[test]
fn a_cluster_that_is_well_raises_no_alarm() {
    let Some(scene) = Scene::new() else { return };
    let mut scene = scene.with_pods(3);
    assert_eq!(scene.minutes(10), BTreeMap::new(), "pods run");
    let node = scene.session.simulation.world().cluster.objects.nodes.keys().next().cloned().unwrap();
    scene.session.interrupt(&node).unwrap();
    assert_eq!(scene.minutes(10), BTreeMap::new(), "a machine is taken back");
    let down = scene.session.now().checked_add(SignedDuration::from_secs(90)).unwrap();
    scene.session.simulation.world().faults.api_server_down_until = Some(down);
    assert_eq!(scene.minutes(12), BTreeMap::new(), "the API server is away for a while");
    scene.session.scale("inflate", 0).unwrap();
    assert_eq!(scene.minutes(15), BTreeMap::new(), "pods go");
}

#[test]
fn an_api_server_that_does_not_answer_is_told_within_eleven_minutes() {
    let Some(mut scene) = Scene::new() else { return };
    let down = scene.later(60);
    scene.session.simulation.world().faults.api_server_down_until = Some(down);
    let raised = scene.minutes(40);
    assert!(raised.get("FailedRunsAlarm demo").is_some_and(|minute| *minute <= 11), "{raised:?}");
    assert!(raised.get("RefreshFailsAlarm demo").is_some_and(|minute| *minute <= 35), "{raised:?}");
}

/// Of one cluster a tick is the run itself, of several there are runs besides.
#[test]
fn half_of_the_calls_of_sweep_are_too_few_however_many_clusters_there_are() {
    let Some(template) = template() else { return };
    for (has_one_cluster, calls) in [(true, 5), (false, 10)] {
        let names = Names { has_one_cluster, ..Names::of_template(template) };
        let alarm = Alarm::all(template, &names).unwrap().into_iter().find(|alarm| alarm.name == "SweepSilentAlarm").unwrap();
        let is_on = |calls_in_five_minutes: i64| {
            let at = |n: i64| n * 300_000 / calls_in_five_minutes;
            let call = |n| Point::of_service(at(n), "AWS/Lambda", "Invocations", ("FunctionName", "Sweep"), 1.0);
            let points: Vec<Point> = (0..2 * calls_in_five_minutes).map(call).collect();
            !alarm.breaches(&points, 600_000).is_empty()
        };
        assert_eq!((is_on(calls), is_on(calls / 2)), (false, true), "one cluster: {has_one_cluster}");
    }
}

/// What CloudWatch gets of runs of a function that fail for a cluster, each so many seconds from a first minute to a last.
fn failures(function: Function, cluster: &str, error: &HandleError, minutes: (i64, i64, usize)) -> Vec<Point> {
    failing_runs((function, false), cluster, error, minutes)
}

/// The same of runs that may be alone: nothing repeats them before the next tick.
fn failing_runs(
    (function, is_alone): (Function, bool),
    cluster: &str,
    error: &HandleError,
    (from, until, every): (i64, i64, usize),
) -> Vec<Point> {
    let outcome = Err(error.clone());
    let runs = (from * 60..until * 60).step_by(every);
    let lines = runs.flat_map(|second| {
        let at = Timestamp::from_second(second).unwrap();
        let run = Telemetry { at, function, cluster, level: Level::Basic, namespace: "Whittle", is_alone };
        telemetry::lines(&run, Duration::from_millis(100), &outcome)
    });
    lines.flat_map(|line| Point::of_line(&line)).collect()
}

fn no_access(cluster: &str) -> HandleError {
    HandleError::Cluster(ClusterError::NoAccess { cluster: cluster.into(), message: "does the cluster have an access entry?".to_owned() })
}

/// The clusters for which an alarm is on at these minutes.
fn on_at<const N: usize>(alarm: &str, points: &[Point], minutes: [i64; N]) -> Option<[Vec<String>; N]> {
    let template = template()?;
    let alarms = Alarm::all(template, &Names::of_template(template)).unwrap();
    let alarm = alarms.into_iter().find(|one| one.name == alarm).expect("an alarm of the template");
    Some(minutes.map(|minute| alarm.breaches(points, minute * 60_000).into_iter().collect()))
}

/// Each cluster goes into alarm, and out of it, by itself, whatever the others do; CloudWatch notifies of each.
#[test]
fn a_cluster_without_access_hides_no_other_and_is_well_again_as_soon_as_it_has_access() {
    let mut points = failures(Function::Sweep, "dead", &no_access("dead"), (0, 60, 60));
    points.extend(failures(Function::Schedule, "dead", &no_access("dead"), (0, 60, 45)));
    points.extend(failures(Function::Schedule, "prod", &no_access("prod"), (30, 50, 45)));
    let Some(on) = on_at("FailedRunsAlarm", &points, [5, 10, 30, 40, 55, 60, 65]) else { return };
    let (none, dead, both): (&[&str], &[&str], &[&str]) = (&[], &["dead"], &["dead", "prod"]);
    assert_eq!(on, [none, dead, dead, both, dead, dead, none]);
}

/// A message of `consolidate` that needs a person comes again after 90 s, and no other of its cluster comes meanwhile.
#[test]
fn what_needs_a_person_is_told_of_the_function_whose_failures_come_most_seldom() {
    let every = usize::try_from(Function::Consolidate.limits().visibility.as_secs()).unwrap();
    let points = failures(Function::Consolidate, "prod", &no_access("prod"), (0, 30, every));
    let Some(on) = on_at("FailedRunsAlarm", &points, [10, 15, 20, 25, 30]) else { return };
    assert!(on.iter().all(|clusters| *clusters == ["prod"]), "{on:?}");
    let may_pass = HandleError::Store(StoreError::Throttled { what: "the claims".to_owned() });
    let points = failures(Function::Consolidate, "prod", &may_pass, (0, 30, every));
    let Some(on) = on_at("FailedRunsAlarm", &points, [10, 20, 30]) else { return };
    assert!(on.iter().all(Vec::is_empty), "as long as it may pass: {on:?}");
}

/// Of one cluster the tick of `sweep` is the run, and nothing repeats it (ADR 0071): one failure a minute, four in some five minutes.
#[test]
fn ticks_of_sweep_that_fail_for_the_only_cluster_are_told_and_an_outage_of_a_minute_and_a_half_is_not() {
    let may_pass = HandleError::Store(StoreError::Throttled { what: "the claims".to_owned() });
    let of_sweep = |is_alone, minutes| failing_runs((Function::Sweep, is_alone), "prod", &may_pass, minutes);
    let on = |points: &[Point]| on_at("FailedRunsAlarm", points, [5, 10, 20, 25, 40]);
    let Some(told) = on(&of_sweep(true, (0, 35, 63))) else { return };
    let (none, prod): (&[&str], &[&str]) = (&[], &["prod"]);
    assert_eq!(told, [none, prod, prod, prod, none], "each counts two");
    let once = on(&of_sweep(false, (0, 35, 63))).expect("there is a template");
    assert_eq!(once[3], none, "the four from minute 20 to 25 would be too few");
    // Ticks at its begin and a minute later, across the border of two periods.
    let short = on(&of_sweep(true, (4, 6, 60))).expect("there is a template");
    assert!(short.iter().all(Vec::is_empty), "{short:?}");
}

#[test]
fn ticks_that_stop_are_told_within_ten_minutes() {
    let Some(mut scene) = Scene::new() else { return };
    scene.session.simulation.world().set_tick(SignedDuration::from_hours(24));
    scene.raises("SweepSilentAlarm", 10);
}

#[test]
fn launches_that_ec2_refuses_are_told_within_minutes() {
    let Some(mut scene) = Scene::new() else { return };
    let refusal = PoolRefusal {
        code: "UnauthorizedOperation".to_owned(),
        message: "You are not authorized to perform this operation.".to_owned(),
        ..PoolRefusal::default()
    };
    scene.session.simulation.world().region.supply.refusals.push(refusal);
    scene.session.scale("inflate", 1).unwrap();
    scene.raises("ProblemsAlarm demo, launches_refused", 5);
}

#[test]
fn machines_that_never_join_are_told_after_their_timeout() {
    let Some(mut scene) = Scene::new() else { return };
    scene.session.simulation.world().region.launches_never_join = true;
    scene.session.scale("inflate", 1).unwrap();
    scene.raises("ProblemsAlarm demo, never_joined", 20);
}

#[test]
fn pods_that_wait_are_told_after_a_quarter_of_an_hour() {
    let Some(mut scene) = Scene::new() else { return };
    scene.session.set_stock(&Pool::default(), false).unwrap();
    scene.session.scale("inflate", 1).unwrap();
    let raised = scene.minutes(20);
    let first = raised.get("ProblemsAlarm demo, pods_wait");
    assert!(first.is_some_and(|minute| (15..=18).contains(minute)), "{raised:?}");
}

/// Each of these is found again at each tick, as its alarm expects.
#[test]
fn what_is_left_as_it_is_is_told_within_minutes() {
    let Some(mut scene) = Scene::new() else { return };
    scene.session.simulation.world().cluster.karpenter =
        vec![KarpenterSign { object: "deployment kube-system/karpenter".to_owned(), renewed_at: None }];
    scene.raises("WarningsAlarm demo, karpenter_runs", 5);
    let Some(mut scene) = Scene::new() else { return };
    scene.session.simulation.world().hide_always("NodePool", "default", true);
    scene.raises("WarningsAlarm demo, objects_unreadable", 5);
}

#[test]
fn a_machine_that_ec2_does_not_terminate_is_told_within_minutes() {
    let Some(scene) = Scene::new() else { return };
    scene.session.simulation.world().faults.protected_machines = 1_000;
    let mut scene = scene.with_pods(1);
    scene.session.scale("inflate", 0).unwrap();
    scene.raises("WarningsAlarm demo, terminations_refused", 8);
}

#[test]
fn a_drain_without_end_is_told_after_an_hour() {
    let Some(scene) = Scene::new() else { return };
    let mut scene = scene.with_pods(1);
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: inflate}\n\
                  spec: {minAvailable: 1, selector: {matchLabels: {app: inflate}}}\n";
    scene.session.apply_text("budget.yaml", budget).unwrap();
    let claim = scene.session.simulation.world().cluster.objects.node_claims.keys().next().cloned().unwrap();
    scene.session.delete("nodeclaim", &claim).unwrap();
    let raised = scene.minutes(70);
    assert!(raised.get("WarningsAlarm demo, nodeclaims_stuck").is_some_and(|minute| 60 < *minute), "{raised:?}");
}

/// None of them has an alarm on its errors by default.
#[test]
fn functions_that_die_at_each_call_are_told_by_what_they_leave_undone() {
    let Some(mut scene) = Scene::new() else { return };
    *scene.dead.lock().unwrap() = Some(Function::Launch);
    scene.session.scale("inflate", 1).unwrap();
    let raised = scene.minutes(20);
    assert!(raised.get("WarningsAlarm demo, launches_stalled").is_some_and(|minute| *minute <= 8), "{raised:?}");
    assert!(raised.get("ProblemsAlarm demo, pods_wait").is_some_and(|minute| *minute <= 20), "{raised:?}");
    let Some(scene) = Scene::new() else { return };
    let mut scene = scene.with_pods(1);
    *scene.dead.lock().unwrap() = Some(Function::Terminate);
    let claim = scene.session.simulation.world().cluster.objects.node_claims.keys().next().cloned().unwrap();
    scene.session.delete("nodeclaim", &claim).unwrap();
    scene.raises("ProblemsAlarm demo, terminations_stalled", 10);
    let Some(mut scene) = Scene::new() else { return };
    *scene.dead.lock().unwrap() = Some(Function::Schedule);
    scene.raises("ProblemsAlarm demo, schedule_silent", 12);
}

/// A function that a schedule calls, and that fails each time before it has printed anything, shows in no metric of ours.
#[test]
fn a_function_that_fails_at_every_call_of_its_schedule_raises_its_alarm() {
    let Some(template) = template() else { return };
    let names = Names::of_template(template);
    let alarms = Alarm::all(template, &names).unwrap();
    let resources = template["Resources"].as_object().unwrap();
    let mut every: BTreeMap<String, i64> = BTreeMap::new();
    // One that only wakes a function, once a day, is no tick: what the function does is asked of it by messages.
    let ticks = resources.values().filter(|resource| {
        resource["Type"] == "AWS::Scheduler::Schedule" && resource["Properties"]["Target"]["Input"] != r#"{"kind":"wake"}"#
    });
    for schedule in ticks {
        let properties = &schedule["Properties"];
        let function = properties["Target"]["Arn"]["Fn::GetAtt"][0].as_str().expect("a function of the template").to_owned();
        let minutes = minutes_of(&properties["ScheduleExpression"], &names);
        every.entry(function).and_modify(|least| *least = minutes.min(*least)).or_insert(minutes);
    }
    assert_eq!(every.keys().collect::<Vec<_>>(), ["Refresh", "Schedule", "Sweep"]);
    for (function, minutes) in every {
        let alarm = alarms.iter().find(|alarm| alarm.name == format!("{function}ErrorsAlarm")).expect("each function has its alarm");
        let error = |minute: i64| Point::of_service(minute * 60_000, "AWS/Lambda", "Errors", ("FunctionName", function.as_str()), 1.0);
        let errors: Vec<Point> = (0_i64..120).filter(|minute| *minute % minutes == 0).map(error).collect();
        let is_on = (30_i64..120).all(|minute| !alarm.breaches(&errors, minute * 60_000).is_empty());
        assert!(is_on, "{} does not stay on while {function} fails every {minutes} minutes", alarm.name);
        let once = |minute: i64| !alarm.breaches(&errors[..1], minute * 60_000).is_empty();
        assert!(!(0_i64..60).any(once), "{} goes off for a single failure", alarm.name);
    }
}

/// The minutes of a rate.
fn minutes_of(expression: &Value, names: &Names) -> i64 {
    let text = expression.as_str().or_else(|| expression["Fn::Sub"].as_str()).expect("an expression");
    let text = names.parameters.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value));
    let (number, unit) = text.strip_prefix("rate(").and_then(|rest| rest.strip_suffix(')')?.split_once(' ')).expect("a rate");
    let number: i64 = number.parse().unwrap();
    if unit.starts_with("hour") { number * 60 } else { number }
}
