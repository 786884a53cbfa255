//! The whittle command.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    whittle_cli::run(&whittle_cli::Cli::parse())
}
