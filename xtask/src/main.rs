//! The automation of the repository: everything that CI runs, and what sets it up.
//!
//! `cargo xtask ci` is the one command; its steps can be chosen with `--only`.

mod ci;
mod edges;
mod licences;
mod shell;
mod tidy;
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
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Ci(options) => ci::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
