//! The automation of the repository: CI steps and the set-up of their tools.
//!
//! `cargo xtask ci` is the one command; its steps can be chosen with `--only`.

// CI, and what its steps check of the sources.
mod ci; // the steps
mod tidy; // every file; with `citations`, `rule_rows`, `runbook_quotations`, `metrics` and `vocabulary`
mod citations; // rules that comments cite
mod rule_rows; // tests for each row of the rules
mod runbook_quotations; // texts that the runbooks quote
mod vocabulary; // words that do not return
mod edges; // dependencies between crates
mod rights; // ports of a function, and the actions of its role
mod circles; // modules that use each other
mod unused; // dependencies that nobody names
mod licences; // of third-party crates
mod advisories; // their known vulnerabilities

// The template, and what is generated from it and from the sources.
mod template; // our requirements of it
mod metric_alarms; // alarms and the metrics that they use
mod iam; // docs/iam.md
mod metrics; // docs/metrics.md

// Slow runs.
mod sim; // crashes and storms
mod fuzz; // random clusters
mod bench; // the numbers of the specification
mod deploy; // into an emulator
mod e2e; // the rig
mod installation; // of an installation that is broken and repaired

// Artefacts.
mod artifacts; // of functions, as SAM builds them
mod dist; // of a release
mod image; // of the watcher
mod elf; // what a binary says of itself
mod paths; // of this machine, which no binary may have

// Tools.
mod environment; // sets up those that are not in the repository
mod shell; // runs them
mod workspace; // root, files and packages

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
    /// Installs into an emulated account and a real cluster, breaks that in ten ways, repairs and removes it.
    Installation,
    /// Makes the artefacts of a release: functions, commands, templates, the watcher's image, a bill of materials and checksums.
    Dist(dist::Dist),
    /// Makes the watcher's container image as an OCI layout, without a daemon.
    Image(image::Image),
    /// Writes the tables of docs/metrics.md from the catalogue of metrics.
    Metrics,
    /// Writes the tables of docs/iam.md from template.yaml.
    Iam,
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
        Command::Dist(options) => dist::run(&options),
        Command::Image(options) => image::run(&options),
        Command::Metrics => metrics::write(),
        Command::Iam => iam::write(),
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
    let root = workspace::root();
    let environment = environment::set_up(&root)?;
    let browser = environment::browser(&root)?;
    let browser = browser.as_ref().map(|(name, path)| (*name, path.as_path()));
    for (name, path) in environment.variables().into_iter().chain(browser) {
        println!("export {name}='{}'", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    /// Commands of a page: lines of its blocks, and code in its sentences.
    fn commands(page: &str) -> Vec<String> {
        let of_blocks = page.split("```sh").skip(1).filter_map(|rest| rest.split("```").next()).flat_map(str::lines);
        let spans = page.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
        let own = of_blocks.chain(spans).map(str::trim).filter(|line| line.starts_with("cargo xtask "));
        own.map(|line| line.split(" #").next().unwrap_or_default().replace('\n', " ")).collect()
    }

    #[test]
    fn every_command_of_the_documentation_is_accepted() {
        let root = workspace::root();
        let (mut count, mut wrong) = (0, Vec::new());
        for name in workspace::files(&root).unwrap() {
            let is_page = name.ends_with(".md") && !name.contains("/adr/") && name != "CHANGELOG.md";
            let page = if is_page { std::fs::read_to_string(root.join(&name)).unwrap() } else { String::new() };
            for command in commands(&page) {
                count += 1;
                let Err(error) = Arguments::try_parse_from(command.split_whitespace().skip(1)) else { continue };
                // Sentences name steps by a placeholder, and leave out what a command requires.
                let named_only = [
                    ErrorKind::InvalidValue,
                    ErrorKind::MissingRequiredArgument,
                    ErrorKind::MissingSubcommand,
                    ErrorKind::DisplayHelp,
                    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ];
                if !named_only.contains(&error.kind()) {
                    wrong.push(format!("{name}: `{command}`: {error}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(20 < count, "only {count} commands were found");
    }
}
