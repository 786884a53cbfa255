//! Calls beside each other: one that EC2 answers late keeps no other waiting.

use super::many::keep_in;
use super::over_sim::{keep_as, run_over};
use super::repeated::{revert_to_launching, two_of_one_call, with_class};
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use whittle_claims::{Bucket, BucketName, Phase};
use whittle_ec2::fleet::{FleetAnswer, FleetRequest, LaunchTemplate};
use whittle_ec2::instance::Instance;
use whittle_ports::{Adapters, Answer, CloudError, CloudErrorKind, DryRuns, Fleets, InstanceRun, Instances, LaunchTemplates, Settings};
use whittle_sim::{Function, SimPorts};
use whittle_testkit::{TestWorld, at};
use whittle_units::{ClusterName, InstanceId, SignedDuration};

/// EC2, whose first fleet is answered once so many others were asked for, or when nothing else happens.
struct LateAnswer {
    inner: SimPorts,
    others: usize,
    asked: AtomicUsize,
    /// How many fleets had been asked for when the first was answered.
    asked_by_then: AtomicUsize,
    /// It has no tokens left for fleets.
    throttles: bool,
    /// The same for launch templates, except for those that are known to be there.
    throttles_templates: bool,
    known: BTreeSet<String>,
    templates_asked: AtomicUsize,
}

impl LateAnswer {
    fn new(inner: &SimPorts, others: usize) -> Self {
        let [asked, asked_by_then, templates_asked] = [0; 3].map(AtomicUsize::new);
        let (inner, known) = (inner.clone(), BTreeSet::new());
        Self { inner, others, asked, asked_by_then, throttles: false, throttles_templates: false, known, templates_asked }
    }
}

fn throttled(call: &'static str) -> CloudError {
    let (code, message) = ("RequestLimitExceeded".to_owned(), "Request limit exceeded.".to_owned());
    CloudError { kind: CloudErrorKind::Throttled, call, code, message }
}

/// Lets everything else go on.
async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Fleets for LateAnswer {
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, CloudError> {
        if self.throttles {
            return Err(throttled("CreateFleet"));
        }
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            for _ in 0..1_000 {
                if self.asked.load(Ordering::Relaxed) > self.others {
                    break;
                }
                yield_once().await;
            }
            self.asked_by_then.store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.inner.create_fleet(request).await
    }
    fn fleet(&self, id: &str, request: &FleetRequest) -> impl Answer<Option<FleetAnswer>, CloudError> {
        self.inner.fleet(id, request)
    }
}

impl LaunchTemplates for LateAnswer {
    async fn ensure_launch_template(&self, template: &LaunchTemplate) -> Result<(), CloudError> {
        if self.has_launch_template(template) {
            return Ok(());
        }
        self.templates_asked.fetch_add(1, Ordering::Relaxed);
        if self.throttles_templates {
            return Err(throttled("CreateLaunchTemplate"));
        }
        self.inner.ensure_launch_template(template).await
    }
    fn has_launch_template(&self, template: &LaunchTemplate) -> bool {
        self.known.contains(&template.name)
    }
}

impl DryRuns for LateAnswer {
    fn ensure_tried_template(&self, template: &LaunchTemplate) -> impl Answer<(), CloudError> {
        self.inner.ensure_tried_template(template)
    }
    fn dry_run_fleet(&self, request: &FleetRequest) -> impl Answer<(), CloudError> {
        self.inner.dry_run_fleet(request)
    }
    fn dry_run_instance(&self, run: &InstanceRun<'_>) -> impl Answer<(), CloudError> {
        self.inner.dry_run_instance(run)
    }
}

impl Instances for LateAnswer {
    fn of_cluster(&self, cluster: &ClusterName) -> impl Answer<Vec<Instance>, CloudError> {
        self.inner.of_cluster(cluster)
    }
    fn instance(&self, id: &InstanceId) -> impl Answer<Option<Instance>, CloudError> {
        self.inner.instance(id)
    }
    fn tagged(&self, key: &str, value: &str) -> impl Answer<Vec<Instance>, CloudError> {
        self.inner.tagged(key, value)
    }
}

#[test]
fn a_call_that_is_answered_late_keeps_no_other_waiting() {
    let simulation = with_class();
    for group in 0..7 {
        keep_in(&simulation, group, group);
    }
    // The time of the calls of four groups: there are tokens for the others by then.
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(100), SignedDuration::from_mins(1));
    let cloud = LateAnswer::new(&ports, 6);
    let adapters = Adapters { store: &ports, cloud: &cloud, cluster: &ports, queues: &ports, clock: &ports };
    let report = block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c"), &[])).unwrap();
    assert_eq!((report.counted("launched"), simulation.world().region.started()), (7, 7));
    assert_eq!(cloud.asked_by_then.load(Ordering::Relaxed), 7, "all others were asked for before it was answered");
    let rung = simulation.doorbells().into_iter().filter(|function| *function == Function::Register).count();
    assert!((1..=2).contains(&rung), "{rung} doorbells for their Nodes, which are sent seconds apart");
}

#[test]
fn a_run_that_is_throttled_when_it_repeats_a_call_makes_no_other_and_all_claims_get_a_machine_later() {
    let mut simulation = with_class();
    for group in 0..3 {
        keep_in(&simulation, group, group);
    }
    let throttled = |simulation: &TestWorld| {
        let ports = simulation.ports();
        let cloud = LateAnswer { throttles: true, ..LateAnswer::new(&ports, 0) };
        let adapters = Adapters { store: &ports, cloud: &cloud, cluster: &ports, queues: &ports, clock: &ports };
        let report = block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c"), &[])).unwrap();
        (report.counted("throttled"), report.counted("no_token"))
    };
    assert_eq!(throttled(&simulation), (3, 0), "they were under way at once");
    keep_in(&simulation, 3, 3);
    simulation.run_until(at(10));
    assert_eq!(throttled(&simulation), (1, 3), "two are not repeated, and one is not begun");
    let (bucket, full) = (BucketName("CreateFleet".to_owned()), Bucket::full(50, 5, at(10)));
    assert!(!simulation.world().store.take_tokens(&bucket, &full, 10, at(10)), "EC2 has none for other clusters either");
    simulation.run_until(at(60));
    assert_eq!((run_over(&simulation.ports(), &[]).counted("launched"), simulation.world().region.started()), (4, 4));
}

/// What a run does while EC2 throttles the creation of launch templates: how many claims are launched, calls throttled, and templates asked
/// for.
fn without_template_tokens(simulation: &TestWorld, known: BTreeSet<String>) -> (u64, u64, usize) {
    let ports = simulation.ports();
    let cloud = LateAnswer { throttles_templates: true, known, ..LateAnswer::new(&ports, 0) };
    let adapters = Adapters { store: &ports, cloud: &cloud, cluster: &ports, queues: &ports, clock: &ports };
    let report = block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c"), &[])).unwrap();
    (report.counted("launched"), report.counted("throttled"), cloud.templates_asked.load(Ordering::Relaxed))
}

/// As many calls as are under way at once lack their templates, and are of larger groups.
#[test]
fn a_fleet_whose_templates_are_there_is_started_after_ec2_has_throttled_the_creation_of_others() {
    let mut simulation = with_class();
    keep_in(&simulation, 0, 0);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    let known: BTreeSet<String> = simulation.world().region.launch_templates.keys().cloned().collect();
    keep_in(&simulation, 1, 0);
    for number in 0..40 {
        keep_as(&simulation, 10 + number, |claim| {
            claim.spec.labels.insert("team".to_owned(), format!("team-{}", number / 2));
        });
    }
    let (launched, throttled, _) = without_template_tokens(&simulation, known);
    assert_eq!((launched, throttled, simulation.world().region.started()), (1, 20, 2));
    simulation.run_until(at(60));
    assert_eq!((run_over(&simulation.ports(), &[]).counted("launched"), simulation.world().region.started()), (40, 42));
}

#[test]
fn a_throttled_launch_template_is_not_asked_for_by_every_group_and_takes_no_tokens_of_fleets() {
    let mut simulation = with_class();
    for group in 0..3 {
        keep_in(&simulation, group, group);
    }
    let (launched, _, asked) = without_template_tokens(&simulation, BTreeSet::new());
    assert_eq!((launched, simulation.world().region.started()), (0, 0));
    assert!((1..=3).contains(&asked), "{asked}");
    let (bucket, full) = (BucketName("CreateFleet".to_owned()), Bucket::full(50, 5, at(0)));
    assert!(simulation.world().store.take_tokens(&bucket, &full, 40, at(0)), "those of other clusters are there");
    simulation.run_until(at(60));
    assert_eq!((run_over(&simulation.ports(), &[]).counted("launched"), simulation.world().region.started()), (3, 3));
}

/// Each has a launch template of its own.
#[test]
fn calls_whose_templates_were_throttled_are_not_repeated_one_after_the_other_and_take_no_tokens_for_it() {
    let mut simulation = with_class();
    for number in 0..4 {
        keep_as(&simulation, 10 + number, |claim| {
            claim.spec.labels.insert("team".to_owned(), format!("team-{number}"));
        });
    }
    let (launched, throttled, _) = without_template_tokens(&simulation, BTreeSet::new());
    assert_eq!((launched, throttled), (0, 4), "they were under way at once");
    simulation.run_until(at(10));
    let (launched, throttled, asked) = without_template_tokens(&simulation, BTreeSet::new());
    assert_eq!((launched, throttled), (0, 1), "EC2 was asked for {asked} templates");
    let (bucket, full) = (BucketName("CreateFleet".to_owned()), Bucket::full(50, 5, at(10)));
    assert!(simulation.world().store.take_tokens(&bucket, &full, 47, at(10)), "but for the one that was repeated");
    simulation.run_until(at(60));
    assert_eq!((run_over(&simulation.ports(), &[]).counted("launched"), simulation.world().region.started()), (4, 4));
}

/// They need no template. Nobody else gives them to their claims, and EC2 may go on throttling the first call for minutes.
#[test]
fn the_machines_of_a_call_get_their_claims_while_the_creation_of_launch_templates_is_throttled() {
    let (mut simulation, claims, _) = two_of_one_call();
    claims.iter().for_each(|claim| revert_to_launching(&simulation, claim));
    // Calls are looked at in the order of their tokens.
    keep_as(&simulation, 10, |claim| {
        claim.spec.labels.insert("team".to_owned(), "other".to_owned());
        claim.phase = Phase::Launching { client_token: "0".to_owned(), since: at(0), attempts: 1 };
    });
    simulation.run_until(at(60));
    let (launched, throttled, _) = without_template_tokens(&simulation, BTreeSet::new());
    assert_eq!((launched, throttled), (2, 1), "the first call alone asks for a template");
    assert!(claims.iter().all(|claim| simulation.claim(&claim.key).machine().is_some()));
    assert_eq!(simulation.world().region.started(), 2);
}
