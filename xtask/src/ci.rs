//! The steps of CI, in order, with their times.

use crate::{artifacts, circles, deploy, dist, e2e, edges, environment, licences, shell, sim, template, tidy, unused, workspace};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::path::Path;
use std::time::{Duration, Instant};

/// Which steps to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these steps, comma separated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Step>,
    /// Not these steps, comma separated.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<Step>,
    /// Goes on after a failure, expensive steps included.
    #[arg(long)]
    keep_going: bool,
}

/// One step of CI; the order here is the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Files are formatted by rustfmt.
    Fmt,
    /// No crate has a forbidden or an unused dependency.
    Edges,
    /// No orphan, oversized, unportable or unfinished file; metrics and runbooks match the code.
    Tidy,
    /// Third-party crates come from one registry, under licences that we can ship, without known vulnerabilities; the bill of materials is
    /// valid.
    Licences,
    /// The SAM application is valid and meets our requirements; docs/iam.md matches it.
    Template,
    /// No warnings.
    Clippy,
    /// All tests.
    Test,
    /// Functions killed at a sample of await points, and a thousand storms.
    Sim,
    /// Every function's artifact builds and meets its size limit.
    Lambda,
    /// The application deploys into an emulator, and every function handles its events.
    Deploy,
    /// The documented commands lead from an empty account to running pods, to Karpenter and back, and to nothing.
    Docs,
}

const STEPS: &[Step] = &[
    Step::Fmt,
    Step::Edges,
    Step::Tidy,
    Step::Licences,
    Step::Template,
    Step::Clippy,
    Step::Test,
    Step::Sim,
    Step::Lambda,
    Step::Deploy,
    Step::Docs,
];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Fmt => "fmt",
            Step::Edges => "edges",
            Step::Tidy => "tidy",
            Step::Licences => "licences",
            Step::Template => "template",
            Step::Clippy => "clippy",
            Step::Test => "test",
            Step::Sim => "sim",
            Step::Lambda => "lambda",
            Step::Deploy => "deploy",
            Step::Docs => "docs",
        }
    }

    /// Cheap steps run even if another has failed, to report more in the same run.
    fn is_cheap(self) -> bool {
        matches!(self, Step::Fmt | Step::Edges | Step::Tidy | Step::Licences)
    }

    fn run(self, root: &Path) -> Result<()> {
        match self {
            Step::Fmt => cargo(root, &["fmt", "--all", "--check"]),
            Step::Edges => report([edges::check(root)?, circles::check(root)?, unused::check(root)?].concat()),
            Step::Tidy => report(tidy::check(root)?),
            Step::Licences => {
                dist::check_bill(root)?;
                report(licences::check(root)?)
            }
            Step::Template => template::check(root),
            Step::Clippy => cargo(root, &["clippy", "--locked", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]),
            Step::Test => test(root),
            Step::Sim => sim::check(),
            Step::Lambda => artifacts::check(root),
            Step::Deploy => deploy::check(root),
            Step::Docs => e2e::check(root),
        }
    }
}

/// The outcome of a step.
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// Runs the chosen steps and prints a table of their outcomes.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root();
    let mut outcomes: Vec<(Step, Outcome, Duration)> = Vec::new();
    let mut failed = false;
    for &step in STEPS {
        let chosen = options.only.is_empty() || options.only.contains(&step);
        if !chosen || options.skip.contains(&step) {
            continue;
        }
        if failed && !step.is_cheap() && !options.keep_going {
            outcomes.push((step, Outcome::Skipped, Duration::ZERO));
            continue;
        }
        println!("\n== {} ==", step.name());
        let start = Instant::now();
        let outcome = match step.run(&root) {
            Ok(()) => Outcome::Passed,
            Err(error) => {
                println!("error: {error:#}");
                failed = true;
                Outcome::Failed
            }
        };
        println!("-- {}: {:.1} s", step.name(), start.elapsed().as_secs_f64());
        outcomes.push((step, outcome, start.elapsed()));
    }
    table(&outcomes);
    if failed {
        bail!("CI failed; `cargo xtask ci --only STEP` runs one step again");
    }
    Ok(())
}

fn table(outcomes: &[(Step, Outcome, Duration)]) {
    println!("\nstep       result      time");
    for (step, outcome, time) in outcomes {
        let result = match outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "not run",
        };
        println!("{:<10} {result:<8} {:>6.1} s", step.name(), time.as_secs_f64());
    }
    let total: f64 = outcomes.iter().map(|(_, _, time)| time.as_secs_f64()).sum();
    println!("{:<19} {total:>6.1} s", "all");
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    shell::run(shell::command(root, "cargo", arguments))
}

/// All tests, including the slow ones.
fn test(root: &Path) -> Result<()> {
    let environment = environment::set_up(root)?;
    let mut command = shell::command(root, "cargo", &["test", "--locked", "--workspace"]);
    command.env("WHITTLE_SLOW", "1").envs(environment.variables()).envs(environment::browser(root)?);
    shell::run(command)
}

/// Prints findings; succeeds if there are none.
fn report(found: Vec<String>) -> Result<()> {
    for line in &found {
        println!("{line}");
    }
    if found.is_empty() { Ok(()) } else { bail!("{} to fix", found.len()) }
}
