//! `whittle sim`: crashes the functions at every await point, or injects random faults, and checks the invariants.

pub mod burst;
pub mod day;
pub mod drain;
mod manifests;
pub mod mutants;
#[cfg(test)]
mod tests;
pub mod verdicts;

use crate::local::report;
use crate::local::scenario::{self, LONGEST, Play, Scenario};
use crate::local::session::SessionError;
use crate::numbers;
use crate::printing::{self, complain, say};
use crate::wait_notice::WaitNotice;
use clap::{Args, Subcommand};
use jiff::SignedDuration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use whittle_api::GoDuration;
use whittle_sim::{Faults, TableLoss};

/// How many of a thousand claim writes conflict with another writer, in plays where an invocation is killed.
const BUSY_WRITERS: u32 = 30;

/// `whittle sim`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim crash tests/scenarios/faults/scale_up.yaml
  whittle sim storm --seeds 100 tests/scenarios/*.yaml

Exit code: 0 if every invariant held, 1 if one was violated or the output cannot be written, 2 if the input is invalid.")]
pub struct SimArgs {
    #[command(subcommand)]
    pub command: SimCommand,
}

#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Kill one invocation at each of its await points in turn
    Crash(CrashArgs),
    /// Random faults of every kind, then calm
    Storm(StormArgs),
    /// Storms with one safeguard after the other switched off: how many pass before a checker notices
    Mutants(mutants::MutantsArgs),
    /// A day of a workload, compared with Karpenter's packing
    Day(day::DayArgs),
    /// Many pods at once in a cluster without a node
    Burst(burst::BurstArgs),
    /// Drain all nodes of a cluster at once, under disruption budgets
    Drain(drain::DrainArgs),
    /// The age of the oldest verdict on any node of a large, quiet cluster
    Verdicts(verdicts::VerdictsArgs),
}

/// `whittle sim crash`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim crash tests/scenarios/faults/scale_up.yaml
  whittle sim crash --every 31 tests/scenarios/faults/*.yaml

Exit code: 0 if every invariant held, 1 if one was violated or the output cannot be written, 2 if the input is invalid.")]
pub struct CrashArgs {
    /// Scenario files
    #[arg(required = true)]
    pub scenarios: Vec<PathBuf>,
    /// Only each n-th await point
    #[arg(long, default_value_t = 1, value_parser = numbers::within::<u64>(1..=u64::MAX), allow_negative_numbers = true)]
    pub every: u64,
}

/// `whittle sim storm`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim storm --seeds 1000 tests/scenarios/faults/*.yaml
  whittle sim storm --seeds 1 --from 457 --story tests/scenarios/faults/consolidation.yaml

Exit code: 0 if every invariant held, 1 if one was violated or the output cannot be written, 2 if the input is invalid.")]
pub struct StormArgs {
    /// Scenario files, played in turn
    #[arg(required = true)]
    pub scenarios: Vec<PathBuf>,
    /// How many storms
    #[arg(long, default_value_t = 100, value_parser = numbers::within::<u64>(1..=u64::MAX), allow_negative_numbers = true)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = numbers::within::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub from: u64,
    /// Print what happened in each storm
    #[arg(long)]
    pub story: bool,
    /// How long each storm continues after its scenario: `2h`, `48h`
    #[arg(long)]
    pub span: Option<GoDuration>,
}

/// The results of many plays.
#[derive(Debug, Default)]
pub struct Tally {
    pub plays: u64,
    pub virtual_seconds: i64,
    pub faults: u64,
    pub busiest: u64,
    pub longest_chain: u64,
    /// Violations, each with the play that reproduces it.
    pub violations: Vec<String>,
}

/// Runs `whittle sim`. Exit status 1: an invariant was violated; 2: the input is invalid.
pub fn main(args: &SimArgs) -> ExitCode {
    name_panics();
    let notice = WaitNotice::with("simulating, which takes minutes with many nodes, hours or seeds".to_owned());
    let done = match &args.command {
        SimCommand::Crash(args) => crash_files(args),
        SimCommand::Storm(args) => storm_files(args),
        SimCommand::Mutants(args) => mutants::run(args),
        SimCommand::Burst(args) => printable(burst::run(args)),
        SimCommand::Day(args) => printable(day::run(args)),
        SimCommand::Drain(args) => printable(drain::run(args)),
        SimCommand::Verdicts(args) => printable(verdicts::run(args)),
    };
    drop(notice);
    match done {
        Ok((line, tally)) => {
            tally.violations.iter().for_each(|violation| say!("{violation}\n"));
            say!("{line}\n");
            if tally.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            printing::errors(&error);
            ExitCode::from(2)
        }
    }
}

/// Statistics and violations, as `main` prints them.
fn printable(done: Result<(String, Vec<String>), SessionError>) -> Result<(String, Tally), String> {
    done.map(|(text, violations)| (text, Tally { violations, ..Tally::default() })).map_err(|error| error.to_string())
}

fn read(paths: &[PathBuf]) -> Result<Vec<Scenario>, String> {
    paths.iter().map(|path| scenario::read(path).map_err(|error| error.to_string())).collect()
}

fn crash_files(args: &CrashArgs) -> Result<(String, Tally), String> {
    let mut all = Tally::default();
    for scenario in read(&args.scenarios)? {
        let points = await_points(&scenario).map_err(|error| error.to_string())?;
        let chosen: Vec<u64> = (1..=points).step_by(usize::try_from(args.every.max(1)).unwrap_or(1)).collect();
        let begun = Instant::now();
        let tally = crash(&scenario, &chosen).map_err(|error| error.to_string())?;
        let (seconds, broken) = (begun.elapsed().as_secs_f64(), tally.violations.len());
        say!("{}: {} of {points} await points, {broken} violations, {seconds:.1} s\n", scenario.name, tally.plays);
        all.add(tally);
    }
    Ok((format!("crash points: {}, violations: {}", all.plays, all.violations.len()), all))
}

fn storm_files(args: &StormArgs) -> Result<(String, Tally), String> {
    let scenarios = read(&args.scenarios)?;
    let last = args
        .from
        .checked_add(args.seeds)
        .ok_or_else(|| format!("--from {}: there are no {} seeds from there on", args.from, args.seeds))?;
    if let Some(span) = args.span.as_ref().filter(|span| LONGEST < span.span()) {
        return Err(format!("--span {span} is too long: at most {} hours, 366 days", LONGEST.as_hours()));
    }
    let seeds: Vec<u64> = (args.from..last).collect();
    let span = args.span.as_ref().map(GoDuration::span);
    if args.story {
        print_stories(&scenarios, &seeds, span).map_err(|error| error.to_string())?;
    }
    let all = storm_for(&scenarios, &seeds, span).map_err(|error| error.to_string())?;
    let days = all.virtual_seconds / 864;
    let line = format!(
        "storms: {}, simulated days: {}.{:02}, faults: {}, doorbells a minute: {}, longest chain: {}, violations: {}",
        all.plays,
        days / 100,
        days % 100,
        all.faults,
        all.busiest,
        all.longest_chain,
        all.violations.len()
    );
    Ok((line, all))
}

/// The number of await points of a scenario without faults.
///
/// # Errors
/// The scenario has an impossible step.
pub fn await_points(scenario: &Scenario) -> Result<u64, SessionError> {
    Ok(scenario::play(scenario, &Play::lenient(scenario.seed, crashing(None)))?.summary.await_points)
}

/// The faults of a play in which one invocation is killed, with concurrent writers.
fn crashing(point: Option<u64>) -> Faults {
    Faults { crash_at_gate: point, busy_writers: BUSY_WRITERS, ..Faults::default() }
}

/// Plays a scenario once for each await point, and kills the invocation that reaches it.
///
/// # Errors
/// The scenario has an impossible step.
pub fn crash(scenario: &Scenario, points: &[u64]) -> Result<Tally, SessionError> {
    let plays: Vec<(&Scenario, Play, String)> = points
        .iter()
        .map(|point| {
            let faults = crashing(Some(*point));
            (scenario, Play::lenient(scenario.seed, faults), format!("{} killed at await point {point}", scenario.name))
        })
        .collect();
    play_all(&plays)
}

/// Plays scenarios in turn under random faults, one seed each.
///
/// # Errors
/// A scenario has an impossible step.
pub fn storm(scenarios: &[Scenario], seeds: &[u64]) -> Result<Tally, SessionError> {
    storm_for(scenarios, seeds, None)
}

/// The same, where each continues for `span` after its last step.
///
/// # Errors
/// A scenario has an impossible step.
pub fn storm_for(scenarios: &[Scenario], seeds: &[u64], span: Option<SignedDuration>) -> Result<Tally, SessionError> {
    play_all(&storms(scenarios, seeds, span))
}

/// The play of each seed, with its name.
fn storms<'s>(scenarios: &'s [Scenario], seeds: &[u64], span: Option<SignedDuration>) -> Vec<(&'s Scenario, Play, String)> {
    let storm = |seed: &u64| {
        let scenario = scenarios.get(usize::try_from(*seed).unwrap_or(0) % scenarios.len().max(1))?;
        Some((scenario, Play { span, ..Play::lenient(*seed, random_faults(*seed)) }, format!("{} in storm {seed}", scenario.name)))
    };
    seeds.iter().filter_map(storm).collect()
}

/// Prints the timelines of storms.
fn print_stories(scenarios: &[Scenario], seeds: &[u64], span: Option<SignedDuration>) -> Result<(), SessionError> {
    for (scenario, play, name) in storms(scenarios, seeds, span) {
        say!("{name}, {:?}\n", play.faults);
        let outcome = scenario::play(scenario, &play)?;
        let begun = outcome.lines.first().map_or(jiff::Timestamp::UNIX_EPOCH, |line| line.at);
        say!("{}", report::timeline(&outcome.lines, begun, whittle_units::Price::ZERO, printing::paints()));
    }
    Ok(())
}

/// The faults of a storm: each seed has its own mixture.
fn random_faults(seed: u64) -> Faults {
    // Each kind of fault is drawn independently, and a third of them are off, because a mixture can hide the effect of one.
    let part = |kind: u64, most: u32| {
        let mixed = (seed ^ kind.wrapping_mul(0xbf58_476d_1ce4_e5b9)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let drawn = (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16;
        if drawn.is_multiple_of(3) { 0 } else { u32::try_from(drawn / 3 % u64::from(most)).unwrap_or(0) }
    };
    Faults {
        crashes: part(0, 6),
        throttles: part(1, 20),
        lost_replies: part(2, 15),
        slow_replies: part(3, 15),
        conflicts: part(4, 40),
        stale_reads: part(5, 150),
        partial_reads: part(6, 30),
        partial_fleets: part(7, 300),
        lost_messages: part(8, 200),
        repeated_messages: part(9, 200),
        late_messages: part(10, 300),
        doubled_runs: part(11, 150),
        clock_skew_ms: part(12, 2001),
        table_loss: table_loss(u64::from(part(40, 30_000))),
        busy_writers: part(13, 100),
        empty_repeats: part(14, 1001),
        unreadable: part(15, 8),
        vanished: part(16, 3),
        batched_messages: part(31, 400),
        loop_stop: if part(32, 1000).is_multiple_of(4) { 16 } else { 0 },
        lost_ticks: part(33, 200),
        ec2_lag: part(34, 120),
        ec2_rates: part(35, 1000).is_multiple_of(2),
        old_nodes: part(51, 1000).is_multiple_of(2),
        ticks_work: part(52, 1000).is_multiple_of(2),
        protected_machines: part(36, 60),
        silent_kubelets: part(37, 300),
        unreadable_claims: part(38, 60),
        foreign_finalizers: part(39, 200),
        webhook_refusals: part(41, 30),
        late_claims: part(42, 40),
        scheduler_lag_ms: part(43, 4001),
        neighbours: part(44, 700),
        deleted_namespaces: part(45, 60),
        reused_names: part(46, 1001),
        short_runs: part(47, 60),
        dead_connections: part(49, 12),
        large_items: part(50, 30),
        concurrency: [0, 0, 3, 4, 6, 8, 10].get(part(48, 7) as usize).copied().unwrap_or(0),
        ..Faults::default()
    }
}

/// In one storm of three the table is lost at some time, or restored to an earlier state.
fn table_loss(drawn: u64) -> Option<TableLoss> {
    let (kind, drawn) = (drawn % 6, i64::try_from(drawn / 6).unwrap_or(0));
    let after = SignedDuration::from_secs(60 + drawn % 420);
    let ago = SignedDuration::from_secs(20 + drawn % 380);
    match kind {
        1 => Some(TableLoss { after, as_of: None }),
        2 | 3 => Some(TableLoss { after, as_of: Some((after - ago).max(SignedDuration::ZERO)) }),
        _ => None,
    }
}

thread_local! {
    /// The play of this thread, for the panic message.
    static PLAYED: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// A panic of a function aborts the program in a release build: this hook prints the play first.
fn name_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        complain!("while playing {}:", PLAYED.with_borrow(String::clone));
        before(info);
    }));
}

/// Plays on all processors; the order of the results is that of the plays.
fn play_all(plays: &[(&Scenario, Play, String)]) -> Result<Tally, SessionError> {
    let next = AtomicU64::new(0);
    let results: Mutex<Vec<(usize, Result<scenario::Outcome, SessionError>)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let number = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                    let Some((scenario, play, _)) = plays.get(number) else { break };
                    PLAYED.set(format!("{}, seed {}, {:?}", scenario.name, play.seed, play.faults));
                    let outcome = scenario::play(scenario, play);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, outcome));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    let mut tally = Tally::default();
    for (number, outcome) in results {
        let outcome = outcome?;
        tally.plays += 1;
        tally.virtual_seconds += outcome.summary.virtual_seconds;
        tally.faults += outcome.summary.faults;
        tally.busiest = tally.busiest.max(outcome.summary.busiest);
        tally.longest_chain = tally.longest_chain.max(outcome.summary.longest_chain);
        let what = plays.get(number).map_or("", |(_, _, what)| what.as_str());
        tally.violations.extend(outcome.failures.iter().map(|failure| format!("{what}: {failure}")));
    }
    Ok(tally)
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.plays += other.plays;
        self.virtual_seconds += other.virtual_seconds;
        self.faults += other.faults;
        self.busiest = self.busiest.max(other.busiest);
        self.longest_chain = self.longest_chain.max(other.longest_chain);
        self.violations.extend(other.violations);
    }
}
