//! `whittle local`: all functions in one process, against a simulated region and cluster.

#[cfg(test)]
mod deadlines;
pub mod demo;
#[cfg(test)]
mod disrupting;
pub(crate) mod kinds;
pub mod prompt;
#[cfg(test)]
mod quotas;
pub mod report;
mod rows;
pub mod scenario;
pub mod session;
#[cfg(test)]
mod shadow;
mod web;
pub mod wiring;

use crate::numbers;
use crate::printing::{self, complain, say};
use crate::report::Kind;
use crate::schema::Document;
use crate::source::{self, files};
use clap::{Args, Subcommand, ValueEnum};
pub use prompt::command_line::Mode;
use std::path::PathBuf;
use std::process::ExitCode;
pub use web::PageArgs;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Text,
    Json,
}

/// `whittle local`
#[derive(Debug, Args)]
#[command(after_help = "\
Without a command it is a prompt that takes kubectl's lines, or reads them from standard input; `help` lists them.

Examples:
  whittle local --cluster shop --region eu-west-1 --kubernetes-version 1.33
  whittle local --mode shadow -f pools.yaml -f web.yaml
  printf 'apply -f pools.yaml -f web.yaml\\nadvance 10m\\nget nodes\\n' | whittle local

Exit code: 0 if every line was carried out, 1 if the output cannot be written, 2 if one of standard input was not; the rest
is not read then.")]
pub struct LocalArgs {
    #[command(subcommand)]
    pub command: Option<LocalCommand>,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Whether Whittle acts, or only decides and reports; the command `mode` of the prompt changes it
    #[arg(long, value_enum, default_value_t)]
    pub mode: Mode,
    /// Apply these files or directories first
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub page: PageArgs,
}

/// The cluster of an interactive session.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Name of the simulated cluster
    #[arg(long, default_value = "demo", value_parser = crate::place::cluster)]
    pub cluster: String,
    /// Region, whose instance types, zones and prices are used, as far as the tables have them (`whittle catalog --help`)
    #[arg(long, default_value = "us-east-1", value_parser = crate::place::region)]
    pub region: String,
    /// Kubernetes version
    #[arg(long, default_value = "1.33", value_parser = crate::place::kubernetes_version)]
    pub kubernetes_version: String,
    /// Determines everything random
    #[arg(long, default_value_t = 1, value_parser = numbers::within::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub seed: u64,
}

#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Play scenarios and check what they expect
    Run(RunArgs),
}

/// `whittle local run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle local run tests/scenarios/*.yaml
  whittle local run -o json scenario.yaml | whittle savings -
  whittle local run --report scenario.html scenario.yaml

Exit code: 0 if all expectations were met, 1 if one was not or the output cannot be written, 2 if a scenario cannot be read or played.")]
pub struct RunArgs {
    /// Scenario files
    #[arg(required = true, value_name = "SCENARIO.yaml")]
    pub scenarios: Vec<PathBuf>,
    /// Replaces the scenarios' own seeds
    #[arg(long, value_parser = numbers::within::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub seed: Option<u64>,
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Write a report as well: the cost over time, the machines, and every decision with its reason. Markdown if the name ends in .md,
    /// one page for a browser if it ends in .html
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs `whittle local`. Exit status 1: an expectation failed; 2: the input is wrong.
pub fn main(args: &LocalArgs) -> ExitCode {
    match &args.command {
        Some(LocalCommand::Run(_)) if args.page.web.is_some() || !args.files.is_empty() || args.mode != Mode::default() => {
            printing::errors(&"`local run` plays scenarios: leave out --web, --mode and -f, which are for a session at a prompt");
            ExitCode::from(2)
        }
        Some(LocalCommand::Run(run)) => run_scenarios(run),
        None => {
            let place = session::Place {
                cluster: args.place.cluster.clone(),
                region: args.place.region.clone(),
                kubernetes_version: args.place.kubernetes_version.clone(),
                seed: args.place.seed,
            };
            if let Some(missing) = source::prices_missing(&place.region) {
                complain!("note: {missing}");
            }
            prompt::main(&place, args.mode, &args.files, &args.page)
        }
    }
}

/// Outcomes as JSON.
pub(crate) fn document(outcomes: &[scenario::Outcome]) -> serde_json::Value {
    Document::LocalRun.versioned(serde_json::json!({ "scenarios": outcomes }))
}

fn run_scenarios(args: &RunArgs) -> ExitCode {
    // All files are read before the first is played, so that a typo in the last one is reported at once.
    let read: Result<Vec<_>, _> = args.scenarios.iter().map(|path| scenario::read(path)).collect();
    let scenarios = match read {
        Ok(scenarios) => scenarios,
        Err(error) => {
            printing::errors(&error);
            return ExitCode::from(2);
        }
    };
    let kind = match args.report.as_deref().map(Kind::of_file).transpose() {
        Ok(kind) => kind,
        Err(error) => {
            printing::errors(&error);
            return ExitCode::from(2);
        }
    };
    let mut outcomes = Vec::new();
    for scenario in &scenarios {
        match scenario::run(scenario, args.seed) {
            Ok(outcome) => {
                if args.output == Output::Text {
                    say!("{}", report::text(&outcome, printing::paints()));
                }
                outcomes.push(outcome);
            }
            Err(error) => {
                printing::errors(&format!("{}: {error}", scenario.name));
                return ExitCode::from(2);
            }
        }
    }
    if args.output == Output::Text && outcomes.len() > 1 {
        say!("{}\n", report::summary(&outcomes));
    }
    if args.output == Output::Json {
        say!("{:#}\n", document(&outcomes));
    }
    if let (Some(kind), Some(path)) = (kind, &args.report)
        && let Err(error) = std::fs::write(path, report::file(kind, &outcomes))
    {
        printing::errors(&format!("{}: the report cannot be written: {error}", files::shown(path)));
        return ExitCode::from(1);
    }
    if outcomes.iter().all(|outcome| outcome.failures.is_empty()) { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
