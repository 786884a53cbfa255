//! Kills one invocation at one await point of a scale-up, for two hundred seeds.

use crate::tests;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use whittle_cli::local::scenario::{self, Play, Scenario};
use whittle_cli::sim;
use whittle_sim::Faults;

const SEEDS: u64 = 200;

/// The await point of a seed, distributed evenly over all points.
fn point(seed: u64, points: u64) -> u64 {
    1 + (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) % points
}

fn faults_of(scenario: &Scenario, seed: u64, points: u64) -> Vec<String> {
    let gate = point(seed, points);
    let faults = Faults { crash_at_gate: Some(gate), ..Faults::default() };
    let outcome = scenario::play(scenario, &Play::lenient(seed, faults)).unwrap();
    let mut wrong = outcome.failures;
    if (outcome.summary.pods_running, outcome.summary.pods_pending) != (5, 0) {
        wrong.push(format!("{} pods run, {} wait", outcome.summary.pods_running, outcome.summary.pods_pending));
    }
    wrong.into_iter().map(|text| format!("seed {seed}, killed at await point {gate}: {text}")).collect()
}

#[test]
fn killing_one_invocation_of_the_scale_up_leaves_all_pods_running_and_no_orphan() {
    let scenario = scenario::read(&tests().join("scenarios/faults/scale_up.yaml")).unwrap();
    let points = sim::await_points(&scenario).unwrap();
    let next = AtomicU64::new(1);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > SEEDS {
                        break;
                    }
                    let found = faults_of(&scenario, seed, points);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
