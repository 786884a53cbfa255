//! Standard output and standard error: the one place where text is written to them.
//!
//! The macros of the standard library panic when a write fails, which on a full disk looks like a crash. Here a failed write ends the
//! command with an error, and a reader that has gone ends it silently.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

/// The status of a command whose output could not be written.
const UNWRITTEN: u8 = 1;

/// What a shell reports of a command that SIGPIPE ended; used where that signal is ignored and the write fails instead.
const READER_GONE: u8 = 141;

/// Prints on standard output, as `print!` does.
macro_rules! say {
    ($($text:tt)*) => { $crate::printing::print(format_args!($($text)*)) };
}

/// Prints a line on standard error, as `eprintln!` does.
macro_rules! complain {
    ($($text:tt)*) => { $crate::printing::print_error(format_args!($($text)*)) };
}

pub(crate) use {complain, say};

/// Prints on standard output. If it cannot be written, the command ends here: whatever else it does would not be seen.
pub(crate) fn print(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        std::process::exit(i32::from(unwritten(&error)));
    }
}

/// Prints a line on standard error. If it cannot be written there is nobody to tell; the exit code says the same.
pub(crate) fn print_error(text: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Replaces the last line of a terminal's standard error by another, or by nothing.
pub(crate) fn draw(line: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\u{1b}[K{line}").and_then(|()| err.flush());
}

/// The exit code of a command that wrote its output itself.
pub(crate) fn written(done: io::Result<ExitCode>) -> ExitCode {
    let done = done.and_then(|code| io::stdout().flush().map(|()| code));
    done.unwrap_or_else(|error| ExitCode::from(unwritten(&error)))
}

/// Prints clap's answer to a command line that is wrong or asks for help.
#[must_use]
pub fn usage(answer: &clap::Error) -> ExitCode {
    let code = u8::try_from(answer.exit_code()).unwrap_or(2);
    written(answer.print().map(|()| ExitCode::from(code)))
}

/// Reports a failed write; returns the status to end with.
fn unwritten(error: &io::Error) -> u8 {
    if error.kind() == ErrorKind::BrokenPipe {
        return READER_GONE;
    }
    print_error(format_args!("whittle: the output cannot be written: {error}"));
    UNWRITTEN
}
