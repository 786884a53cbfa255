//! Walkthroughs and faults, played in the simulator over the real functions.

use std::path::{Path, PathBuf};
use whittle_cli::local::scenario;
use whittle_cli::sim;

fn files(directory: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no scenario", path.display());
    files
}

#[test]
fn every_scenario_passes() {
    let mut failures = Vec::new();
    for file in files("scenarios") {
        let scenario = scenario::read(&file).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(file.file_stem().unwrap().to_str().unwrap(), scenario.name, "a scenario is named as its file");
        let outcome = scenario::run(&scenario, None).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
        failures.extend(outcome.failures.iter().map(|failure| format!("{} ({}): {failure}", scenario.name, scenario.shows.join(" "))));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn one_seed_is_one_timeline() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/s4_out_and_in.yaml");
    let scenario = scenario::read(&file).unwrap();
    let play = || serde_json::to_string(&scenario::run(&scenario, Some(42)).unwrap()).unwrap();
    assert_eq!(play(), play());
}

#[test]
fn a_run_killed_anywhere_in_the_scale_up_leaves_nothing_behind() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/faults/scale_up.yaml");
    let scenario = scenario::read(&file).unwrap();
    let points = sim::await_points(&scenario).unwrap();
    assert!(points > 50, "the scenario has {points} await points");
    // Spread over the whole run; `whittle sim crash` takes every point.
    let chosen: Vec<u64> = (0..40).map(|number| 1 + number * (points - 1) / 39).collect();
    let tally = sim::crash(&scenario, &chosen).unwrap();
    assert_eq!((tally.plays, tally.violations), (40, Vec::new()));
}

#[test]
fn a_typo_in_a_scenario_is_named_with_its_line() {
    let path = std::env::temp_dir().join(format!("whittle-typo-{}.yaml", std::process::id()));
    std::fs::write(&path, "name: typo\nsteps:\n  - sclae: {deployment: x, replicas: 1}\n").unwrap();
    let error = scenario::read(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("sclae") && error.contains("line 3"), "{error}");
}
