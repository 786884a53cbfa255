//! What the API server answers to a drain: what one pod has to wait for, or the whole run.

use super::over_sim::{Scene, ending, planned};
use super::{NODE, pod};
use crate::LastPlanned;
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::Mutex;
use whittle_api::k8s::{Node, Pod};
use whittle_claims::PodKey;
use whittle_ec2::instance::InstanceState;
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{Adapters, ClusterError, HandleError, NodePatch, Report, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, at};

const PODS: [&str; 4] = ["a", "b", "c", "d"];

/// An API server that answers evictions with an error, but for one pod.
struct Answers {
    error: ClusterError,
    spared: &'static str,
    asked: Mutex<BTreeSet<String>>,
}

impl Interceptor for Answers {
    fn evict(&self, pod: &PodKey) -> Result<(), ClusterError> {
        self.asked.lock().unwrap().insert(pod.name.clone());
        if pod.name == self.spared { Ok(()) } else { Err(self.error.clone()) }
    }
}

/// A drain of four pods whose evictions are answered so, and for how many of them it asked.
fn evicting(error: ClusterError, spared: &'static str) -> (Scene, Report, usize) {
    let scene = Scene::of(&ending(None));
    PODS.iter().for_each(|name| scene.create(pod(name)));
    let ports = scene.simulation.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: Answers { error, spared, asked: Mutex::default() } };
    let report = block_on(crate::handle(server.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
    let asked = server.interceptor.asked.lock().unwrap().len();
    (scene, report, asked)
}

fn counts(report: &Report) -> [u64; 3] {
    ["evicted", "evictions_failed", "left_for_later"].map(|name| report.counted(name))
}

fn what() -> String {
    "Pod default/a".to_owned()
}

fn unavailable() -> ClusterError {
    ClusterError::Unavailable { cluster: "c".into(), what: what(), message: "reset".to_owned() }
}

fn no_access() -> ClusterError {
    ClusterError::NoAccess { cluster: "c".into(), message: "401".to_owned() }
}

#[test]
fn a_throttled_eviction_ends_those_of_its_run_and_fails_nothing() {
    let (scene, report, asked) = evicting(ClusterError::Throttled { what: what() }, "");
    assert_eq!((asked, counts(&report)), (1, [0, 0, 0]), "the others would be throttled as well");
    assert_eq!(scene.claim().look_again_at, Some(at(5)));
}

/// It is the pod that has to go that is gone: nobody is told of it, and no other has to wait for the next run.
#[test]
fn a_pod_that_is_gone_or_another_by_now_keeps_no_other_from_its_eviction() {
    for error in [ClusterError::NotFound { what: what() }, ClusterError::Conflict { what: what() }] {
        let (_, report, asked) = evicting(error.clone(), "d");
        assert_eq!((asked, counts(&report)), (4, [1, 0, 0]), "{error}");
    }
}

#[test]
fn an_api_server_that_does_not_answer_is_asked_for_one_eviction_and_again_later() {
    for (error, delay) in [(unavailable(), 5), (no_access(), 30)] {
        let (scene, report, asked) = evicting(error.clone(), "");
        assert_eq!((asked, counts(&report)), (1, [0, 0, 1]), "{error}");
        assert_eq!((scene.claim().look_again_at, scene.doorbells().len()), (Some(at(delay)), 1), "{error}");
    }
}

/// An API server that answers deletions of pods with an error.
struct RefusesDeletions(ClusterError);

impl Interceptor for RefusesDeletions {
    fn delete_pod(&self, _: &PodKey) -> Result<(), ClusterError> {
        Err(self.0.clone())
    }
}

/// Each of them is tried, whatever becomes of the others: all have as little time left.
#[test]
fn a_deletion_before_the_deadline_that_fails_is_told_and_one_of_a_pod_that_is_gone_is_not() {
    let gone = [ClusterError::NotFound { what: what() }, ClusterError::Conflict { what: what() }].map(|error| (error, 0));
    let failing = [ClusterError::Throttled { what: what() }, unavailable(), no_access()].map(|error| (error, 1));
    for (error, failed) in gone.into_iter().chain(failing) {
        let mut scene = Scene::of(&ending(Some(at(60))));
        PODS.iter().for_each(|name| scene.create(pod(name)));
        scene.set_time(31);
        let ports = scene.simulation.ports();
        let server = InterceptedApiServer { ports: &ports, interceptor: RefusesDeletions(error.clone()) };
        let report = block_on(crate::handle(server.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
        assert_eq!((report.counted("forced"), counts(&report)), (0, [0, failed, 0]), "{error}");
        let told = scene.events("FailedDraining");
        assert_eq!(told.iter().any(|text| text.contains(&error.to_string())), failed == 1, "{told:?}");
        assert_eq!((scene.state(), scene.claim().look_again_at), (InstanceState::Running, Some(at(36))), "{error}: it is tried again");
    }
}

/// An API server that answers every change of a Node with an error.
struct RefusesChanges(ClusterError);

impl Interceptor for RefusesChanges {
    fn patch_node(&self, _: &str, _: &str, _: &NodePatch) -> Result<(), ClusterError> {
        Err(self.0.clone())
    }
}

/// The pods' successors could come back to it.
#[test]
fn no_pod_is_evicted_from_a_node_that_could_not_be_closed_whatever_the_error() {
    let errors = [
        (ClusterError::Conflict { what: what() }, 5),
        (ClusterError::NotFound { what: what() }, 5),
        (ClusterError::Throttled { what: what() }, 5),
        (unavailable(), 5),
        (no_access(), 30),
    ];
    for (error, delay) in errors {
        let scene = Scene::of(&ending(None));
        scene.create(pod("a"));
        let ports = scene.simulation.ports();
        let server = InterceptedApiServer { ports: &ports, interceptor: RefusesChanges(error.clone()) };
        let report = block_on(crate::handle(server.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
        assert_eq!(counts(&report), [0, 0, 1], "{error}");
        assert!(!scene.get::<Pod>("default/a").unwrap().metadata.is_deleting(), "{error}");
        assert!(!scene.get::<Node>(NODE).unwrap().metadata.is_deleting(), "{error}");
        assert_eq!((scene.state(), scene.claim().phase.name()), (InstanceState::Running, "Draining"), "{error}");
        assert_eq!((scene.claim().look_again_at, scene.doorbells().len()), (Some(at(delay)), 1), "{error}");
    }
}

/// The nodes of a cluster share the rate of its evictions: whoever does not know what is left of it has none.
#[test]
fn without_an_answer_about_the_shared_rate_nothing_is_evicted_and_the_run_comes_again_in_a_second() {
    let scene = Scene::of(&ending(None));
    scene.create(pod("a"));
    let ports = scene.simulation.ports();
    // The claim is read, and that its drain has begun is stored, before tokens are taken.
    let table = Faulty::scripted(&ports, [None, None, Some(Fault::Throttle)]);
    let adapters = Adapters { store: &table, cloud: &ports, cluster: &ports, queues: &ports, clock: &ports };
    let report = block_on(crate::handle(adapters, &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
    assert_eq!((counts(&report), report.counted("evictions_shared")), ([0, 0, 0], 1));
    assert!(!scene.get::<Pod>("default/a").unwrap().metadata.is_deleting());
    assert_eq!(scene.claim().look_again_at, Some(at(1)));
}

/// Its queue delivers the message again. A doorbell whose time is not stored would be one more each time.
#[test]
fn a_run_that_the_table_stops_fails_and_rings_for_no_other() {
    let scene = Scene::of(&ending(None));
    scene.create(pod("a"));
    let ports = scene.simulation.ports();
    let mut script = [Some(Fault::Throttle); 20];
    script[0] = None; // the claim is read
    let table = Faulty::scripted(&ports, script);
    let adapters = Adapters { store: &table, cloud: &ports, cluster: &ports, queues: &ports, clock: &ports };
    let outcome = block_on(crate::handle(adapters, &Settings::default(), &LastPlanned::default(), &planned().key));
    assert!(matches!(outcome, Err(HandleError::Store(_))), "{outcome:?}");
    assert!(scene.doorbells().is_empty());
    assert!(!scene.get::<Pod>("default/a").unwrap().metadata.is_deleting(), "it is not stored that its drain has begun");
}
