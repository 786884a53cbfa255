//! The automation of the repository: CI steps and the set-up of their tools.
//!
//! `cargo xtask ci` is the one command; its steps can be chosen with `--only`.

mod advisories;
mod artifacts;
mod bench;
mod ci;
mod circles;
mod citations;
mod deploy;
mod dist;
mod e2e;
mod edges;
mod elf;
mod environment;
mod fuzz;
mod iam;
mod image;
mod installation;
mod licences;
mod metric_alarms;
mod metrics;
mod paths;
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
