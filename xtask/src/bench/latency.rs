//! P1: the time from pending pods to the launch of their machine, in the simulator.
//!
//! The simulator delays every half of a call at random: 2 to 6 ms for the table, 5 to 20 ms for the API server, 50 to 200 ms
//! for EC2, 3 to 8 ms for a queue; batching delays (pods, claims) are the template's defaults. Cold starts of
//! functions and kube-scheduler's own retries are not included.

use crate::{shell, workspace};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::Duration;

const SCENARIO: &str = "tests/scenarios/s4_scale_up_and_down.yaml";
/// The line of the step that creates pending pods, and that of the first launched machine after it.
const SCALED: &str = "scale inflate to 5";
const STARTED: &str = "EC2 starts";
const SEEDS: usize = 100;
/// The limit of SPECIFICATION.md.
const P50_MAX: Duration = Duration::from_secs(3);
const P99_MAX: Duration = Duration::from_secs(10);

pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    shell::run(shell::command(&root, "cargo", &["build", "--release", "--locked", "-p", "whittle-cli"]))?;
    let mut taken = (1..=SEEDS).map(|seed| one(&root, seed)).collect::<Result<Vec<Duration>>>()?;
    taken.sort();
    let (p50, p99) = (taken[SEEDS / 2 - 1], taken[SEEDS * 99 / 100 - 1]);
    println!("pods that wait to CreateFleet over {SEEDS} seeds: p50 {p50:?}, p99 {p99:?}, longest {:?}", taken[SEEDS - 1]);
    ensure!(p50 <= P50_MAX && p99 <= P99_MAX, "promised are {P50_MAX:?} and {P99_MAX:?}");
    Ok(())
}

/// The time to launch with one seed.
fn one(root: &std::path::Path, seed: usize) -> Result<Duration> {
    let seed = seed.to_string();
    let arguments = ["run", "--release", "--quiet", "-p", "whittle-cli", "--", "local", "run", SCENARIO, "-o", "json", "--seed", &seed];
    let printed = shell::read(shell::command(root, "cargo", &arguments))?;
    let stories: Value = serde_json::from_str(&printed).context("the simulator's output is no JSON")?;
    time_to_launch(&stories["scenarios"][0]["lines"]).with_context(|| format!("seed {seed}: no machine was started after `{SCALED}`"))
}

fn time_to_launch(lines: &Value) -> Option<Duration> {
    let begins = |line: &Value, text: &str| line["text"].as_str().is_some_and(|text_of_line| text_of_line.starts_with(text));
    let mut lines = lines.as_array()?.iter();
    let requested_at = moment(lines.find(|line| begins(line, SCALED))?)?;
    let started = moment(lines.find(|line| begins(line, STARTED))?)?;
    started.checked_sub(requested_at)
}

/// The time of day of a line; the scenario does not pass midnight.
fn moment(line: &Value) -> Option<Duration> {
    let (_, time) = line["at"].as_str()?.trim_end_matches('Z').split_once('T')?;
    let mut parts = time.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = Duration::from_secs(hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60);
    Some(whole + Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::time_to_launch;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn the_time_ends_with_the_first_machine_after_the_step() {
        let line = |at: &str, text: &str| json!({ "at": format!("2026-01-05T{at}Z"), "text": text });
        let lines = json!([
            line("08:59:00", "EC2 starts i-0"),
            line("08:59:59.5", "scale inflate to 5"),
            line("09:00:02", "EC2 starts i-1"),
            line("09:00:03", "EC2 starts i-2"),
        ]);
        assert_eq!(time_to_launch(&lines), Some(Duration::from_millis(2500)));
        assert_eq!(time_to_launch(&json!([line("08:59:59.5", "scale inflate to 5")])), None);
    }
}
