//! The automation of the repository: CI steps and the set-up of their tools.
//!
//! `cargo xtask ci` is the one command; its steps can be chosen with `--only`.

mod artifacts;
mod bench;
mod ci;
mod circles;
mod citations;
mod deploy;
mod e2e;
mod edges;
mod environment;
mod fuzz;
mod image;
mod installation;
mod licences;
mod metric_alarms;
mod metrics;
mod rights;
mod rule_rows;
mod runbook_quotations;
mod shell;
mod sim;
mod template;
mod tidy;
mod unused;
mod vocabulary;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, tests and builds of this repository")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs every check and test, as CI does.
    Ci(ci::Options),
    /// Measures the numbers of SPECIFICATION.md.
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
    },
    /// The deployed application on loopback, beside a real control plane.
    E2e {
        #[command(subcommand)]
        what: e2e::E2e,
    },
    /// Plans and consolidates random clusters, and checks the properties of the results.
    Fuzz(fuzz::Fuzz),
    /// Installs into an emulated account and a real cluster, breaks that in ten ways, mends and removes it.
    Installation,
    /// Makes the watcher's container image as an OCI layout, without a daemon.
    Image(image::Image),
    /// Writes the tables of docs/metrics.md from the catalogue of metrics.
    Metrics,
    /// Sets up the tools of the slow tests and prints the variables with their paths.
    Env,
    /// Injects faults in the simulator: `sim crash`, `sim storm --seeds N --from S`.
    Sim {
        /// Passed on to `whittle sim`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Ci(options) => ci::run(&options),
        Command::Bench { what } => bench::run(&what),
        Command::E2e { what } => e2e::run(&what),
        Command::Fuzz(fuzz) => fuzz::run(&fuzz),
        Command::Installation => installation::run(),
        Command::Image(options) => image::run(&options),
        Command::Metrics => metrics::write(),
        Command::Env => print_environment(),
        Command::Sim { arguments } => sim::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// For `eval "$(cargo xtask env)"`.
fn print_environment() -> anyhow::Result<()> {
    let environment = environment::set_up(&workspace::root())?;
    for (name, path) in environment.variables() {
        println!("export {name}='{}'", path.display());
    }
    Ok(())
}
