//! The `whittle` command: one module per subcommand, which tests call as the command line does.
#![warn(clippy::print_stdout, clippy::print_stderr, reason = "what cannot be written is an error and no panic: print with `printing`")]

// Commands about a cluster, from files or from itself.
pub mod plan;
pub mod consolidate;
pub mod compare;
pub mod explain;
pub mod check;
pub mod validate;
pub mod convert;

// Commands about a cluster and the deployment that serves it.
pub mod status;
pub mod top;
pub mod console;
pub mod savings;

// Commands that install and remove.
pub mod cluster;
pub mod doctor;
pub mod uninstall;

// Commands without a cluster.
pub mod local; // also `demo`
pub mod sim;
pub mod cost;
pub mod catalog;
pub mod schema;
pub mod shell; // `completion` and `man`

// What goes in.
pub mod source; // manifests, catalogs and settings
pub mod look; // a running cluster, through `kubectl`
mod live; // a running deployment, through `aws`
pub mod programs; // the only module that starts these
mod mapping; // files that are one YAML mapping
mod place; // a cluster's name, region and version
mod numbers; // of the command line
mod similar; // what was meant by a misspelt word
mod threads; // several questions at once

// What comes out.
pub mod printing; // the only module that writes
mod colours;
mod wrapping; // help texts in the width of a terminal
mod table;
mod listing; // lists of names
mod money;
mod report; // Markdown and HTML
mod page; // pages for a browser
mod wait_notice; // what the command is waiting for

use clap::{Parser, Subcommand};
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// A node autoscaler for Amazon EKS that runs as functions
///
/// Exit code of every command, unless its help says more: 0 if all is well, 1 if there is an answer and something is wrong, or it cannot
/// be written, 2 if there is none.
#[derive(Debug, Parser)]
#[command(name = "whittle", version, arg_required_else_help = true)]
pub struct Cli {
    /// When to print colours: auto (on a terminal, unless the variable NO_COLOR is set), always or never
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t, hide_possible_values = true)]
    pub color: printing::Color,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show which machines would be launched for the pending pods of a cluster or of manifests, and where each pod would go
    Plan(plan::PlanArgs),
    /// Show which nodes of a cluster or of its dump would be removed or replaced now, what that saves, and why the others are kept
    Consolidate(consolidate::ConsolidateArgs),
    /// Compare what the nodes of a cluster cost with what Whittle would pay for their pods
    Compare(compare::CompareArgs),
    /// Explain where a pod would go, or what would happen to a node, and why
    Explain(explain::ExplainArgs),
    /// Show a cluster and the deployment that serves it at a glance, and what needs a person
    Status(status::StatusArgs),
    /// Show the nodes of a cluster: what is requested of them, what they cost, in which state they are, and which pods wait
    Top(top::TopArgs),
    /// Serve a page of a cluster that runs, for a browser: nodes and pods, costs, decisions and their reasons; nothing can be changed there
    Console(console::ConsoleArgs),
    Savings(savings::SavingsArgs),
    /// Convert manifests of versions before v1
    Convert(convert::Args),
    /// Judge manifests as an API server with the CRDs would, without one
    Validate(validate::Args),
    /// Check manifests and settings for what would not work
    Check(check::Args),
    /// The getting-started walkthrough in a simulated region, from pending pods to nodes and back
    #[command(after_help = "\
Examples:
  whittle demo
  whittle demo | less -R

Exit code: 0 if everything came as expected, 1 if not, or the output cannot be written.")]
    Demo,
    /// The whole system in one process against a simulated region: a prompt, or scenarios
    Local(local::LocalArgs),
    /// Crash the functions at every await point, or inject random faults, and check the invariants
    Sim(sim::SimArgs),
    /// Give a deployment access to a cluster, take it away again, or list the clusters of a deployment
    Cluster(cluster::Args),
    /// Look at an installation, from the account to the pods: what is wrong, and what fixes it
    Doctor(doctor::Args),
    /// Uninstall Whittle from a cluster: drain or keep its nodes, release its objects, delete the resources created for them
    Uninstall(uninstall::Args),
    /// Print what a region sells, in the form of --instance-types
    Catalog(catalog::CatalogArgs),
    Cost(cost::CostArgs),
    /// Print the JSON Schema of what a command prints with -o json
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell
    Completion(shell::CompletionArgs),
    /// Write manual pages into a directory
    Man(shell::ManArgs),
}

/// Runs a parsed command line.
pub fn run(cli: &Cli) -> ExitCode {
    printing::choose(cli.color);
    match &cli.command {
        Command::Plan(args) => plan::run(args),
        Command::Consolidate(args) => consolidate::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Status(args) => printing::written(status::run(args, &mut printing::out(), &mut printing::err())),
        Command::Top(args) => top::run(args),
        Command::Console(args) => console::run(args),
        Command::Savings(args) => savings::run(args),
        Command::Convert(args) => {
            // What is converted stays as it is, but on a terminal.
            let mut out: Box<dyn std::io::Write> =
                if std::io::stdout().is_terminal() { Box::new(printing::out()) } else { Box::new(std::io::stdout()) };
            let (mut stdin, mut err) = (std::io::stdin(), printing::err());
            printing::written(convert::run(args, &mut stdin, &mut *out, &mut err))
        }
        Command::Validate(args) => {
            let (mut stdin, mut out, mut err) = (std::io::stdin(), printing::out(), printing::err());
            printing::written(validate::run(args, &mut stdin, &mut out, &mut err))
        }
        Command::Check(args) => {
            let (mut stdin, mut out, mut err) = (std::io::stdin(), printing::out(), printing::err());
            // None of our variables is non-Unicode.
            let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| Some((key.into_string().ok()?, value.into_string().ok()?));
            let environment = std::env::vars_os().filter_map(text).collect();
            printing::written(check::run(args, &environment, &mut stdin, &mut out, &mut err))
        }
        Command::Demo => local::demo::main(),
        Command::Local(args) => local::main(args),
        Command::Sim(args) => sim::main(args),
        Command::Cluster(args) => {
            let (mut stdin, mut out, mut err) = (std::io::stdin().lock(), printing::out(), printing::err());
            let asked: Option<&mut dyn std::io::BufRead> = if std::io::stdin().is_terminal() { Some(&mut stdin) } else { None };
            printing::written(cluster::run(args, asked, &mut out, &mut err))
        }
        Command::Doctor(args) => printing::written(doctor::run(args, &mut printing::out())),
        Command::Uninstall(args) => {
            let (mut out, mut err) = (printing::out(), printing::err());
            let aws = programs::Program::aws(args.region.as_deref(), args.profile.as_deref());
            printing::written(uninstall::run(args, &aws, &mut out, &mut err))
        }
        Command::Catalog(args) => printing::written(catalog::run(args, &mut printing::out(), &mut printing::err())),
        Command::Cost(args) => printing::written(cost::run(args, &mut printing::out(), &mut printing::err())),
        Command::Schema(args) => printing::written(schema::run(args, &mut printing::out())),
        Command::Completion(args) => printing::written(shell::completion(args, &mut std::io::stdout())),
        Command::Man(args) => printing::written(shell::man(args, &mut printing::out(), &mut printing::err())),
    }
}
