//! `whittle sim mutants`: switches off one safeguard at a time, and counts the storms until a checker notices.

use super::{Tally, crashing, random_faults, read};
use crate::local::scenario::{self, Play, Scenario};
use crate::numbers;
use crate::printing::say;
use clap::Args;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use whittle_api::words;
use whittle_sim::{Function, Mutant};

/// `whittle sim mutants`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim mutants tests/scenarios/faults/*.yaml

Exit code: 0 if every safeguard that was switched off was noticed, 1 if one was not or the output cannot
be written, 2 if the input is invalid.")]
pub struct MutantsArgs {
    /// Scenario files, played in turn
    #[arg(required = true)]
    pub scenarios: Vec<PathBuf>,
    /// The maximum number of storms per mutant
    #[arg(long, default_value_t = 1000, value_parser = numbers::within::<u64>(1..=u64::MAX), allow_negative_numbers = true)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = numbers::within::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub from: u64,
    /// Only mutants whose sentence or name contains this; may be given several times
    #[arg(long)]
    pub only: Vec<String>,
}

/// How a mutant was detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// The number of the storm, from one, and the violation.
    Storm(u64, String),
    /// Where an invocation was killed.
    Crash(u64, String),
    Never,
}

/// The table, with a violation for each undetected mutant.
pub(super) fn run(args: &MutantsArgs) -> Result<(String, Tally), String> {
    let scenarios = read(&args.scenarios)?;
    let named = |mutant: &Mutant, part: &String| mutant.text().contains(part.as_str()) || format!("{mutant:?}").contains(part.as_str());
    let wanted = |mutant: &Mutant| args.only.is_empty() || args.only.iter().any(|part| named(mutant, part));
    let mutants: Vec<Mutant> = Mutant::all().filter(wanted).collect();
    if mutants.is_empty() {
        return Err(format!("--only {}: no mutant is called so", words::printable(&args.only.join(", "))));
    }
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let noticed = notice(&scenarios, *mutant, args.from, args.seeds);
                    say!("{}\n", line(*mutant, &noticed));
                    found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*mutant, noticed));
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let unnoticed = found.iter().filter(|(_, noticed)| *noticed == Noticed::Never);
    let violations: Vec<String> = unnoticed.map(|(mutant, _)| format!("no check detected {mutant:?}: {}", mutant.text().trim())).collect();
    let line = format!("mutants: {}, noticed: {}", found.len(), found.len() - violations.len());
    Ok((line, Tally { violations, ..Tally::default() }))
}

fn line(mutant: Mutant, noticed: &Noticed) -> String {
    let (when, what) = match noticed {
        Noticed::Storm(count, what) => (format!("storm {count}"), what.as_str()),
        Noticed::Crash(point, what) => (format!("crash {point}"), what.as_str()),
        Noticed::Never => ("never".to_owned(), ""),
    };
    format!("{:<90} {mutant:<34?} {when:<12} {what}", mutant.text().trim())
}

/// The maximum number of invocations of a function that are killed in each scenario to detect its mutant.
const KILLED_MAX: usize = 40;

/// Plays storms until one fails with the mutant and not without it, then kills invocations of its function: some
/// safeguards matter only for a crash at one point that no storm hits.
fn notice(scenarios: &[Scenario], mutant: Mutant, from: u64, seeds: u64) -> Noticed {
    for seed in from..from.saturating_add(seeds) {
        let Some(scenario) = scenarios.get(usize::try_from(seed).unwrap_or(0) % scenarios.len().max(1)) else { continue };
        let whole = Play::lenient(seed, random_faults(seed));
        if let Some(what) = differs(scenario, mutant, &whole) {
            return Noticed::Storm(seed - from + 1, what);
        }
    }
    let function = mutant.text().split([':', ',']).next().unwrap_or_default();
    let function = if function == "queue" { Function::Interrupt.name() } else { function };
    for scenario in scenarios {
        let calm = Play::lenient(scenario.seed, crashing(None));
        let Ok(calm) = scenario::play(scenario, &calm) else { continue };
        let points = calm.gates.iter().enumerate().filter(|(_, gate)| gate.name() == function).map(|(at, _)| at + 1);
        let points: Vec<usize> = points.collect();
        for point in points.iter().step_by(points.len().div_ceil(KILLED_MAX).max(1)) {
            let point = u64::try_from(*point).unwrap_or(0);
            let whole = Play::lenient(scenario.seed, crashing(Some(point)));
            if let Some(what) = differs(scenario, mutant, &whole) {
                return Noticed::Crash(point, what);
            }
        }
    }
    Noticed::Never
}

/// Failures with the mutant that do not occur without it.
fn differs(scenario: &Scenario, mutant: Mutant, whole: &Play) -> Option<String> {
    let broken = scenario::play(scenario, &Play { mutant: Some(mutant), ..whole.clone() }).ok()?;
    let what = broken.failures.first()?.clone();
    let kept = scenario::play(scenario, whole).ok()?;
    kept.failures.is_empty().then_some(what)
}
