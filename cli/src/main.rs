//! The whittle command.

use clap::Parser;
use std::process::ExitCode;

/// A faster allocator: a simulated day copies the objects of a cluster millions of times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `whittle … | head` ends as other commands do when the reader closes the pipe.
    sigpipe::reset();
    match whittle_cli::Cli::try_parse() {
        Ok(cli) => whittle_cli::run(&cli),
        Err(answer) => whittle_cli::printing::usage(&answer),
    }
}
