//! The whittle command: see `whittle help`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use whittle_cli::plan;

#[derive(Parser)]
#[command(name = "whittle", version, about = "Plans and runs the nodes of EKS clusters")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plan machines for the pending pods of some manifests
    Plan(plan::PlanArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Plan(args) => plan::run(&args),
    }
}
