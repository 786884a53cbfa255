//! Runs all scenarios in the simulator with the real functions.

use std::path::{Path, PathBuf};
use whittle_cli::local::scenario;

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
