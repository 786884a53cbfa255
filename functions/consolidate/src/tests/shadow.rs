//! Shadow mode that is switched on while something is under way.

use super::leaving::world;
use super::{claim, running};
use crate::state::{Disruptions, NAME, Running, SurplusClaim};
use futures::executor::block_on;
use whittle_api::k8s::Node;
use whittle_claims::{Function, Revision};
use whittle_model::disruption::{Method, Proposal};
use whittle_ports::{Adapters, ClaimStore, Mode, RecordReader, Records, Report, Settings};
use whittle_testkit::{TestWorld, at, key};

/// A pass in this mode that finds a command running, `more` chosen as surplus, and the removal of `n` proposed; and what it leaves.
fn pass(world: &TestWorld, mode: Mode, command: Running) -> (Report, Disruptions) {
    let (ports, cluster) = (world.ports(), key("old").cluster);
    let surplus = SurplusClaim { claim: "more".into(), node_pool: "fixed".to_owned(), message: String::new() };
    let proposal = Proposal {
        method: Method::Emptiness,
        decided_at: at(-20),
        execute_after: at(-5),
        nodes: vec!["n".to_owned()],
        replacements: Vec::new(),
        savings_nanos: 0,
    };
    let known = Disruptions { resting: Some(proposal), running: vec![command], surplus: vec![surplus], ..Disruptions::default() };
    block_on(ports.write(&cluster, &known, Revision::ABSENT)).unwrap();
    let settings = Settings { mode, ..Settings::default() };
    let report = block_on(crate::handle(Adapters::all(&ports), &settings, &cluster)).unwrap();
    let left = block_on(ports.read::<Disruptions>(&cluster, NAME)).unwrap().unwrap();
    (report, left.value)
}

#[test]
fn in_shadow_mode_commands_are_rolled_back_and_nothing_is_deleted_or_launched() {
    for command in [running(vec![claim("new")]), Running { stored: false, ..running(vec![claim("next")]) }] {
        let world = world(None);
        let (report, left) = pass(&world, Mode::Shadow, command);
        assert_eq!(report.counted("rolled_back"), 1);
        assert!(left.is_idle(), "nothing goes on later: {left:?}");
        assert!(["old", "more", "new"].iter().all(|name| world.claim(&key(name)).deletion.is_none()));
        assert_eq!(block_on(world.ports().get(&key("next"))).unwrap(), None);
        assert!(world.get::<Node>("node-old").unwrap().spec.taints.is_empty(), "it takes pods again");
        let doorbells = world.doorbells();
        assert!(!doorbells.contains(&Function::Terminate) && !doorbells.contains(&Function::Launch), "{doorbells:?}");
    }
}

#[test]
fn what_shadow_mode_rolls_back_goes_on_in_active_mode() {
    let world = world(None);
    let (report, _) = pass(&world, Mode::Active, running(vec![claim("new")]));
    assert_eq!((report.counted("rolled_back"), report.counted("disrupted"), report.counted("scaled_down")), (0, 1, 1));
    assert!(["old", "more"].iter().all(|name| world.claim(&key(name)).deletion.is_some()));
}
