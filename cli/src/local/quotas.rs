//! An account with a small quota of vCPUs, as new ones have it.

use super::session::{Place, Session};
use jiff::SignedDuration;
use whittle_sim::World;

const POOL: &str = include_str!("demo/pool.yaml");
const INFLATE: &str = include_str!("demo/inflate.yaml");

/// A session with a quota of `vcpus` on-demand vCPUs, in which `pods` pods of one CPU are pending.
fn waiting(vcpus: u32, pods: i32) -> Session {
    let mut session = Session::new(&Place::default());
    session.apply_text("pool.yaml", &POOL.replace("spot", "on-demand")).unwrap();
    session.apply_text("inflate.yaml", INFLATE).unwrap();
    session.simulation.world().region.supply.vcpus.insert(("standard".to_owned(), "on-demand".to_owned()), vcpus);
    session.advance(SignedDuration::from_mins(1));
    session.scale("inflate", pods).unwrap();
    session
}

fn vcpus(world: &World) -> u32 {
    let alive = world.region.machines.values().map(|machine| &machine.instance).filter(|instance| instance.is_alive());
    alive.filter_map(|instance| world.region.catalog.facts(&instance.instance_type)).map(|facts| facts.vcpus).sum()
}

#[test]
fn pods_get_what_a_small_quota_has_left_although_one_large_machine_would_be_cheaper() {
    let mut session = waiting(5, 60);
    session.advance(SignedDuration::from_secs(90));
    let world = session.simulation.world();
    assert!((4..=5).contains(&vcpus(&world)), "{} vCPUs run", vcpus(&world));
    // Without a bound there would be dozens of small machines for the pods of each one that was refused.
    let claims = world.store.claims(&world.name()).count();
    assert!(claims <= 30, "{claims} claims");
    drop(world);
    session.advance(SignedDuration::from_mins(2));
    let world = session.simulation.world();
    let running = world.cluster.pod_counts(|_| true).running;
    assert!(running >= 3, "{running} pods run");
}

#[test]
fn a_quota_that_is_raised_serves_all_pods() {
    let mut session = waiting(5, 60);
    session.advance(SignedDuration::from_mins(3));
    session.simulation.world().region.supply.vcpus.clear();
    let limit = session.now() + SignedDuration::from_mins(6);
    assert!(session.simulation.run_while_not(limit, |world| world.cluster.pod_counts(|_| true).running == 60));
}
