//! The requests of launches.

use super::root;
use crate::cases::{Case, Stage, launched};
use std::path::PathBuf;
use whittle_claims::Claim;
use whittle_fake_aws::Limits;
use whittle_ports::Clock;
use whittle_tests::fake_aws::Sent;
use whittle_units::SignedDuration;

fn golden() -> PathBuf {
    root().join("tests/golden/cloud/launch")
}

/// What the launches of a golden case send.
pub(super) fn sent_for(name: &str) -> Vec<Sent> {
    launched(&golden().join(format!("{name}.yaml"))).unwrap().sent
}

/// The figures of a large scale-up, with EC2's documented request limits in force.
#[test]
fn five_hundred_equal_claims_are_launched_by_five_fleets() {
    let case = Case::read(&golden().join("001-on-demand.yaml")).unwrap();
    let (mut stage, _) = Stage::refreshed(&case).unwrap();
    stage.aws.api.lock().unwrap().limits = Limits::documented();
    let claims: Vec<Claim> = (0..500).map(|number| case.planned(number, stage.ports.now())).collect();
    stage.store(&claims);
    let started = |stage: &Stage| stage.simulation.world().region.machines.len();
    let mut seconds = 0;
    while started(&stage) < claims.len() && seconds < 60 {
        stage.launch(&[]).unwrap();
        stage.simulation.run_for(SignedDuration::from_secs(1));
        seconds += 1;
    }
    let api = stage.aws.api.lock().unwrap();
    let (fleets, templates) = (api.calls("CreateFleet"), api.calls("CreateLaunchTemplate"));
    let throttled = api.journal.iter().filter(|entry| entry.refused.as_deref() == Some("RequestLimitExceeded")).count();
    println!(
        "500 equal claims: {fleets} CreateFleet, {templates} CreateLaunchTemplate, {throttled} throttled, {seconds} rounds of a second"
    );
    assert_eq!((started(&stage), fleets, throttled), (claims.len(), 5, 0));
    assert!(templates <= 10 && seconds <= 15, "{templates} CreateLaunchTemplate in {seconds} s");
}
