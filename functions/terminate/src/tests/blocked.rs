//! Drains that nothing moves on: how often they are looked at.

use super::over_sim::{Scene, budget, ending, planned, running};
use super::{NODE, attachment, grace, pod, protected, terminating};
use crate::LastPlanned;
use futures::executor::block_on;
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_claims::{Claim, DeletionReason, Event, PodKey, step};
use whittle_ec2::instance::InstanceState;
use whittle_ports::{ClaimStore, ClusterError, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, at};

/// A node whose only pod is held by a budget.
fn held(deadline: Option<i64>) -> Scene {
    let scene = Scene::of(&ending(deadline.map(at)));
    scene.create(budget());
    scene.create(grace(running("web-0"), 60));
    scene
}

/// For how long a run at this second leaves the drain to itself.
fn delay(scene: &mut Scene, second: i64) -> i64 {
    scene.set_time(second);
    scene.run();
    scene.claim().look_again_at.unwrap().duration_since(at(second)).as_secs()
}

#[test]
fn a_drain_that_stays_blocked_is_looked_at_less_often() {
    let mut scene = held(None);
    assert_eq!([0, 5, 299].map(|second| delay(&mut scene, second)), [5, 5, 5]);
    assert_eq!([304, 334, 3600].map(|second| delay(&mut scene, second)), [30, 30, 30]);
    assert_eq!(scene.claim().drain_moved_at, None);
    assert!(!scene.get::<Pod>("default/web-0").unwrap().metadata.is_deleting());
}

/// The one that is due at this moment may be that of this run, after which no other would come.
#[test]
fn a_drain_counts_on_no_doorbell_but_one_that_is_still_to_come_and_not_after_its_own() {
    for (due, rung) in [(-1, 1), (0, 1), (1, 0), (5, 0), (6, 1)] {
        let scene = Scene::of(&Claim { look_again_at: Some(at(due)), ..ending(None) });
        scene.create(budget());
        scene.create(running("web-0"));
        assert_eq!(scene.run().counted("held_by_budget"), 1);
        let next = if rung == 0 { due } else { 5 };
        assert_eq!((scene.doorbells().len(), scene.claim().look_again_at), (rung, Some(at(next))), "due at {due}");
    }
}

#[test]
fn a_pod_that_its_owner_keeps_is_not_asked_for_every_second() {
    let mut scene = Scene::of(&ending(None));
    scene.create(protected(pod("job-0"), labels::DO_NOT_DISRUPT, "true"));
    assert_eq!([0, 5, 400].map(|second| delay(&mut scene, second)), [5, 5, 30]);
}

#[test]
fn a_drain_is_looked_at_often_again_once_a_pod_has_moved() {
    let mut scene = held(None);
    assert_eq!([0, 400].map(|second| delay(&mut scene, second)), [5, 30]);
    scene.create(pod("free-0"));
    // Somebody rings before the next run is due.
    assert_eq!(delay(&mut scene, 410), 1, "it was evicted");
    assert_eq!(scene.claim().drain_moved_at, Some(at(410)));
    assert!(delay(&mut scene, 411) <= 5);
    assert!(delay(&mut scene, 600) <= 5, "the next one may go any time");
    assert_eq!(delay(&mut scene, 2000), 30);
}

/// A pod that was told at second 0 to end within so many seconds.
fn leaving(seconds: i64) -> Pod {
    let mut pod = terminating(grace(running("slow-0"), seconds), seconds);
    pod.metadata.deletion_grace_period_seconds = Some(seconds);
    pod
}

/// It ends before its time.
fn end(scene: &Scene) {
    let mut world = scene.world();
    let now = world.now();
    assert!(world.cluster.objects.delete::<Pod>("default/slow-0", now));
}

#[test]
fn pods_that_take_long_to_end_are_looked_at_less_often() {
    let mut scene = Scene::of(&ending(None));
    scene.create(leaving(3600));
    assert_eq!([0, 20, 60, 100, 3000].map(|second| delay(&mut scene, second)), [1, 1, 3, 5, 5]);
    // Those that a budget holds change nothing.
    let mut scene = held(None);
    scene.create(leaving(3600));
    assert_eq!([0, 20, 60, 1000, 3000].map(|second| delay(&mut scene, second)), [1, 1, 3, 21, 5]);
    // Another one is told to leave: it may end at once.
    scene.create(pod("free-0"));
    assert_eq!(delay(&mut scene, 3010), 1);
}

#[test]
fn pods_that_have_hours_to_end_are_looked_at_each_half_minute_until_the_last_hour() {
    let mut scene = Scene::of(&ending(None));
    scene.create(leaving(6 * 3600));
    assert_eq!([0, 100, 400, 600, 7200, 18_000].map(|second| delay(&mut scene, second)), [1, 5, 20, 30, 30, 30]);
    assert_eq!([19_800, 21_000, 21_590, 21_597, 21_600].map(|second| delay(&mut scene, second)), [15, 5, 5, 4, 1]);
    // It has ended before its time: the machine goes with the next look.
    let mut scene = Scene::of(&ending(None));
    scene.create(leaving(6 * 3600));
    assert_eq!(delay(&mut scene, 7200), 30);
    end(&scene);
    scene.set_time(7230);
    assert_eq!(scene.run().counted("termination_sent"), 1);
}

/// A pod that was given longer than there is time has all of it, and is told again then, once. Those that were given less have ended by the
/// deadline.
#[test]
fn a_drain_never_oversleeps_its_deadline_whatever_time_pods_were_given() {
    let mut scene = Scene::of(&ending(Some(at(10_000))));
    scene.create(leaving(6 * 3600));
    assert_eq!([600, 9_990, 10_000].map(|second| delay(&mut scene, second)), [30, 11, 1]);
    let given = |scene: &Scene| scene.get::<Pod>("default/slow-0").unwrap().metadata.deletion_grace_period_seconds;
    assert_eq!((given(&scene), scene.state()), (Some(6 * 3600), InstanceState::Running));
    scene.set_time(10_001);
    assert_eq!([scene.run(), scene.run()].map(|report| report.counted("forced")), [1, 0]);
    assert_eq!(given(&scene), Some(1));
    let mut scene = Scene::of(&ending(Some(at(10_000))));
    scene.create(leaving(10_000));
    assert_eq!([5000, 8200, 9994, 9999].map(|second| delay(&mut scene, second)), [30, 15, 5, 2]);
}

#[test]
fn a_drain_never_oversleeps_the_end_of_pods_that_are_leaving() {
    let mut scene = Scene::of(&ending(None));
    scene.create(leaving(200));
    assert_eq!([150, 197, 199, 200, 230].map(|second| delay(&mut scene, second)), [5, 4, 2, 1, 1]);
    // Nor what has to be done for others meanwhile.
    let mut scene = held(Some(1000));
    scene.create(leaving(990));
    assert_eq!([900, 937, 940].map(|second| delay(&mut scene, second)), [5, 4, 1]);
    scene.set_time(941);
    assert_eq!(scene.run().counted("forced"), 1);
}

#[test]
fn a_pod_whose_time_to_end_is_unknown_is_looked_at_each_second() {
    let mut scene = held(None);
    scene.create(terminating(pod("slow-0"), 3600));
    assert_eq!([0, 400, 1000].map(|second| delay(&mut scene, second)), [1, 1, 1]);
}

#[test]
fn a_blocked_drain_never_oversleeps_the_time_to_delete_a_pod() {
    let mut scene = held(Some(1000));
    assert_eq!([0, 400, 930, 940].map(|second| delay(&mut scene, second)), [5, 30, 11, 1]);
    scene.set_time(941);
    assert_eq!(scene.run().counted("forced"), 1);
}

/// A node without pods, and with a volume that nobody detaches.
fn with_volume(deadline: Option<i64>) -> Scene {
    let scene = Scene::of(&ending(deadline.map(at)));
    scene.create(attachment("va-1", "pv-1", NODE));
    scene
}

#[test]
fn a_volume_that_is_not_detached_is_looked_at_less_often_after_a_while() {
    let mut scene = with_volume(None);
    assert_eq!([0, 5, 6, 304].map(|second| delay(&mut scene, second)), [5, 1, 1, 1], "the first is that of an empty node");
    assert_eq!([305, 335, 3600].map(|second| delay(&mut scene, second)), [30, 30, 30]);
    assert_eq!(scene.claim().phase.name(), "Draining");
}

/// A pod that was bound past the scheduler, and may have mounted another volume.
#[test]
fn volumes_are_looked_at_often_again_after_a_pod_has_left() {
    let mut scene = with_volume(None);
    assert_eq!([0, 5, 400].map(|second| delay(&mut scene, second)), [5, 1, 30]);
    scene.create(leaving(3600));
    assert_eq!([1000, 2000].map(|second| delay(&mut scene, second)), [21, 13], "it is waited for first");
    end(&scene);
    assert_eq!([2013, 2014, 2299, 2301].map(|second| delay(&mut scene, second)), [1, 1, 1, 30]);
}

#[test]
fn a_volume_is_never_waited_for_past_the_deadline() {
    let mut scene = with_volume(Some(1000));
    assert_eq!([0, 5, 400, 980, 1000].map(|second| delay(&mut scene, second)), [5, 1, 30, 21, 1]);
    scene.set_time(1001);
    assert_eq!(scene.run().counted("termination_sent"), 1);
}

/// An API server that has too much to do to delete pods.
struct DeletesNoPods;

impl Interceptor for DeletesNoPods {
    fn delete_pod(&self, pod: &PodKey) -> Result<(), ClusterError> {
        Err(ClusterError::Throttled { what: format!("Pod {}/{}", pod.namespace, pod.name) })
    }
}

/// What is left of the last half minute of a spot machine would pass with a longer delay.
#[test]
fn a_deletion_that_fails_is_soon_repeated_however_long_the_drain_was_blocked() {
    let mut scene = held(Some(1000));
    assert_eq!([0, 400].map(|second| delay(&mut scene, second)), [5, 30]);
    scene.set_time(941);
    let ports = scene.simulation.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: DeletesNoPods };
    let report = block_on(crate::handle(server.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
    assert_eq!((report.counted("forced"), report.counted("evictions_failed")), (0, 1));
    assert_eq!(scene.claim().look_again_at, Some(at(946)));
    scene.set_time(946);
    assert_eq!(scene.run().counted("forced"), 1);
}

#[test]
fn a_notice_that_comes_while_a_drain_is_blocked_is_met_in_time() {
    let mut scene = held(None);
    assert_eq!([0, 400].map(|second| delay(&mut scene, second)), [5, 30]);
    let blocked = scene.claim();
    let notice = blocked.deletion_for(DeletionReason::SpotInterruption, "", at(410));
    let noticed = step(&blocked, &Event::DeletionRequested(notice), at(410)).unwrap();
    let ports = scene.simulation.ports();
    let read = block_on(ports.get(&blocked.key)).unwrap().unwrap();
    block_on(ports.update(&noticed, read.revision)).unwrap();
    assert_eq!(scene.claim().deletion.unwrap().deadline, Some(at(530)));
    // The last half minute begins at second 500, whatever is left of the longer delay before.
    let next = delay(&mut scene, 480) + 480;
    assert!((500..=501).contains(&next), "{next}");
    scene.set_time(501);
    assert_eq!(scene.run().counted("forced"), 1);
}
