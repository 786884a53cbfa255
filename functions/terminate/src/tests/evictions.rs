//! Evictions that an admission webhook keeps waiting.

use super::over_sim::{Scene, ending, planned};
use super::pod;
use crate::LastPlanned;
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::Mutex;
use whittle_claims::PodKey;
use whittle_ports::{Adapters, Clock, ClusterError, Deadline, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, at};
use whittle_units::{SignedDuration, Timestamp};

/// How long the webhook keeps the API server waiting.
const HANGS_FOR: SignedDuration = SignedDuration::from_secs(11);

/// A clock that only moves when something takes time.
struct Hands(Mutex<Timestamp>);

impl Hands {
    fn turn(&self, span: SignedDuration) {
        let mut now = self.0.lock().unwrap();
        *now = now.checked_add(span).unwrap();
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
    fn deadline(&self) -> Deadline {
        Deadline(at(1_000_000))
    }
    fn unique(&self) -> String {
        "unique".to_owned()
    }
}

/// A webhook that hangs at the eviction of each pod but one.
struct Webhook<'a> {
    hands: &'a Hands,
    passes: &'static str,
    hangs_for: SignedDuration,
    asked: Mutex<BTreeSet<String>>,
}

impl Interceptor for Webhook<'_> {
    fn evict(&self, pod: &PodKey) -> Result<(), ClusterError> {
        self.asked.lock().unwrap().insert(pod.name.clone());
        if pod.name == self.passes {
            return Ok(());
        }
        self.hands.turn(self.hangs_for);
        Err(ClusterError::Invalid { what: format!("Pod {}", pod.name), message: "does a webhook hang?".to_owned() })
    }
}

#[test]
fn a_webhook_that_hangs_costs_a_run_one_eviction_and_no_other_pod_its_turn() {
    let scene = Scene::of(&ending(None));
    let names = ["a", "b", "c", "d", "quick"];
    names.iter().for_each(|name| scene.create(pod(name)));
    let ports = scene.simulation.ports();
    let hands = Hands(Mutex::new(at(0)));
    let webhook = Webhook { hands: &hands, passes: "quick", hangs_for: HANGS_FOR, asked: Mutex::default() };
    let server = InterceptedApiServer { ports: &ports, interceptor: webhook };
    let mut evicted = 0;
    for _ in 0..20 {
        let begun = hands.now();
        let adapters = Adapters { store: &ports, cloud: &ports, cluster: &server, queues: &ports, clock: &hands };
        let report = block_on(crate::handle(adapters, &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
        assert_eq!((report.counted("left_for_later"), report.counted("evictions_failed")), (0, 1), "the API server responds");
        assert_eq!(hands.now().duration_since(begun), HANGS_FOR, "others of this cluster wait for the run");
        evicted += report.counted("evicted");
        hands.turn(SignedDuration::from_secs(5));
    }
    assert_eq!(evicted, 1);
    assert_eq!(server.interceptor.asked.lock().unwrap().iter().map(String::as_str).collect::<Vec<_>>(), names);
    assert!(scene.events("FailedDraining").iter().any(|text| text.contains("does a webhook hang?")));
}

#[test]
fn a_webhook_that_hangs_keeps_no_pod_from_its_deletion_before_the_deadline() {
    let scene = Scene::of(&ending(Some(at(60))));
    ["a", "b", "c"].iter().for_each(|name| scene.create(pod(name)));
    let ports = scene.simulation.ports();
    let hands = Hands(Mutex::new(at(28)));
    let webhook = Webhook { hands: &hands, passes: "", hangs_for: SignedDuration::from_secs(4), asked: Mutex::default() };
    let server = InterceptedApiServer { ports: &ports, interceptor: webhook };
    let run = || {
        let adapters = Adapters { store: &ports, cloud: &ports, cluster: &server, queues: &ports, clock: &hands };
        block_on(crate::handle(adapters, &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap()
    };
    let report = run();
    assert_eq!((report.counted("evictions_failed"), report.counted("forced")), (1, 0), "their half minute begins meanwhile");
    assert_eq!(run().counted("forced"), 3);
}
