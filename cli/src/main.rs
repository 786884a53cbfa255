//! The whittle command.

use clap::{CommandFactory as _, FromArgMatches as _};
use std::process::ExitCode;

/// A faster allocator: a simulated day copies the objects of a cluster millions of times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `whittle … | head` ends as other commands do when the reader closes the pipe.
    sigpipe::reset();
    // What is wrong with the arguments is printed in the colours that they ask for.
    let color = whittle_cli::printing::Color::asked(std::env::args_os());
    let matches = whittle_cli::Cli::command().color(color.of_usage()).try_get_matches();
    match matches.and_then(|matches| whittle_cli::Cli::from_arg_matches(&matches)) {
        Ok(cli) => whittle_cli::run(&cli),
        Err(answer) => {
            // What is wrong is quoted, and must not look like more lines than it is.
            let quoted = std::env::args_os().map(|argument| whittle_cli::printing::on_one_line(&argument.to_string_lossy()));
            let again = whittle_cli::Cli::command().color(color.of_usage()).try_get_matches_from(quoted);
            whittle_cli::printing::usage(&again.err().unwrap_or(answer), color)
        }
    }
}
