//! Machines whose time to join passes while the API server does not answer.

use super::over_sim::{owned, run_over, still};
use super::{claim, node};
use futures::executor::block_on;
use whittle_claims::Claim;
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{Adapters, ClusterError, HandleError, Scope, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, TestWorld};
use whittle_units::{ClusterName, SignedDuration};

/// An API server that does not answer.
struct Down;

impl Interceptor for Down {
    async fn read(&self, cluster: &ClusterName, _: Scope) -> Result<(), ClusterError> {
        Err(ClusterError::Unavailable { cluster: cluster.clone(), what: "Nodes".into(), message: "it restarts".into() })
    }
}

/// A machine that is launched at second 0, and what becomes of it.
struct Scene {
    simulation: TestWorld,
    claim: Claim,
}

impl Scene {
    fn new() -> Self {
        let (simulation, claim) = (still(), owned(claim(), "a"));
        simulation.store(&claim);
        Self { simulation, claim }
    }

    /// The next run, at a second of the scene.
    fn look(&mut self, second: i64, answers: bool) {
        let due = super::now().checked_add(SignedDuration::from_secs(second)).unwrap();
        self.simulation.run_until(due);
        let ports = self.simulation.ports();
        if answers {
            run_over(&ports);
            return;
        }
        let server = InterceptedApiServer { ports: &ports, interceptor: Down };
        let outcome = block_on(crate::handle(server.adapters(), &Settings::default(), &ClusterName::new("c")));
        assert!(matches!(outcome, Err(HandleError::Cluster(_))), "{outcome:?}");
    }

    /// Runs each minute between these, in which the API server does not answer.
    fn silent(&mut self, from: i64, until: i64) {
        (from..until).for_each(|minute| self.look(60 * minute, false));
    }

    fn is_given_up(&self) -> bool {
        self.simulation.claim(&self.claim.key).deletion.is_some()
    }
}

#[test]
fn a_machine_that_joins_as_soon_as_the_api_server_answers_is_kept() {
    let mut scene = Scene::new();
    scene.look(30, true);
    scene.silent(1, 40);
    scene.look(2400, true);
    assert!(!scene.is_given_up(), "its kubelet could not join");
    scene.simulation.create(node());
    scene.look(2410, true);
    assert_eq!(scene.simulation.claim(&scene.claim.key).phase.name(), "Registered");
}

#[test]
fn a_machine_that_does_not_join_then_is_given_up_after_two_minutes() {
    let mut scene = Scene::new();
    scene.silent(1, 40);
    scene.look(2400, true);
    scene.look(2519, true);
    assert!(!scene.is_given_up());
    scene.look(2520, true);
    assert!(scene.is_given_up());
}

#[test]
fn a_machine_that_did_not_join_while_the_api_server_answered_is_never_waited_for() {
    // One look that fails, early and late: it had its time before or after.
    for failed in [60, 600, 890] {
        let mut scene = Scene::new();
        scene.look(30, true);
        scene.look(failed, false);
        scene.look(failed + 5, true);
        scene.look(899, true);
        assert!(!scene.is_given_up(), "{failed}");
        scene.look(900, true);
        assert!(scene.is_given_up(), "{failed}");
    }
    // It had six minutes.
    let mut scene = Scene::new();
    scene.look(30, true);
    scene.silent(6, 40);
    scene.look(2400, true);
    assert!(scene.is_given_up());
}

#[test]
fn an_api_server_that_answers_now_and_then_keeps_no_machine_that_never_joins() {
    let mut scene = Scene::new();
    for half_minute in 1..=34 {
        scene.look(30 * half_minute, half_minute % 2 == 0);
    }
    assert!(scene.is_given_up(), "two minutes after its time at the latest");
    // After a silence, two minutes count from the first answer.
    let mut scene = Scene::new();
    scene.silent(1, 40);
    for half_minute in 80..=84 {
        scene.look(30 * half_minute, half_minute % 2 == 0);
    }
    assert!(scene.is_given_up());
}

/// A machine that never joins after a long silence, at second 2400 of which the table fails at one of the calls of a run.
fn failing_at(call: usize) -> Scene {
    let mut scene = Scene::new();
    scene.silent(1, 40);
    let due = super::now().checked_add(SignedDuration::from_secs(2400)).unwrap();
    scene.simulation.run_until(due);
    let ports = scene.simulation.ports();
    let mut script = [None; 5];
    script[call] = Some(Fault::Throttle);
    let store = Faulty::scripted(&ports, script);
    let adapters = Adapters { store: &store, cloud: &ports, cluster: &ports, queues: &ports, clock: &ports };
    let outcome = block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c")));
    assert!(matches!(outcome, Err(HandleError::Store(_))), "{outcome:?}");
    assert!(!scene.is_given_up());
    scene
}

#[test]
fn a_silence_ends_with_the_first_answer_though_the_table_fails_after_it() {
    // The turn is read, the claims are listed, the turn is read and taken; then the API server answers.
    let mut scene = failing_at(4);
    scene.look(2519, true);
    assert!(!scene.is_given_up());
    scene.look(2520, true);
    assert!(scene.is_given_up(), "two minutes after the first answer");
}

#[test]
fn a_silence_never_ends_because_the_table_fails_before_the_api_server_is_asked() {
    let mut scene = failing_at(1);
    scene.look(2519, true);
    scene.look(2520, true);
    assert!(!scene.is_given_up(), "the first answer was a second ago");
}

#[test]
fn an_error_of_the_table_is_no_silence_of_the_api_server() {
    use crate::silence::{Looked, Silence};
    let now = super::now();
    assert_eq!(Silence::after(None, Looked::Unknown, now), None);
    assert_eq!(Silence::after(None, Looked::Answered, now), None);
    let silent = Silence::after(None, Looked::Unanswered, now);
    assert!(silent.is_some());
    assert_eq!(Silence::after(silent, Looked::Unknown, now), silent);
}
