//! Standard output and standard error: the one place where text is written to them.
//!
//! The macros of the standard library panic when a write fails, which on a full disk looks like a crash. Here a failed write ends the
//! command with an error, and a reader that has gone ends it silently.

use clap::ValueEnum;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The status of a command whose output could not be written.
const UNWRITTEN: u8 = 1;

/// What a shell reports of a command that SIGPIPE ended; used where that signal is ignored and the write fails instead.
const READER_GONE: u8 = 141;

/// When to print colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless the variable `NO_COLOR` is set
    #[default]
    Auto,
    /// Into files and pipes, too
    Always,
    /// Nowhere
    Never,
}

/// The choice of this process; a command that is run in a test has none.
static CHOSEN: OnceLock<Color> = OnceLock::new();

impl Color {
    /// What arguments ask for that are not parsed yet.
    pub fn asked(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = arguments.into_iter().collect();
        let value = |(at, word): (usize, &OsString)| match word.to_str()?.split_once('=') {
            Some(("--color", value)) => Some(value.to_owned()),
            None if word == "--color" => words.get(at + 1)?.to_str().map(str::to_owned),
            _ => None,
        };
        let found = words.iter().enumerate().find_map(value);
        found.and_then(|word| <Self as ValueEnum>::from_str(&word, false).ok()).unwrap_or_default()
    }

    /// The same for the messages about arguments.
    #[must_use]
    pub const fn of_usage(self) -> clap::ColorChoice {
        match self {
            Self::Auto => clap::ColorChoice::Auto,
            Self::Always => clap::ColorChoice::Always,
            Self::Never => clap::ColorChoice::Never,
        }
    }

    /// Whether standard output gets colours.
    fn paints(self) -> bool {
        match self {
            Self::Auto => io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Keeps the choice for the rest of the process.
pub(crate) fn choose(color: Color) {
    let _ = CHOSEN.set(color);
}

/// Whether standard output gets colours.
pub(crate) fn paints() -> bool {
    CHOSEN.get().copied().unwrap_or_default().paints()
}

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

/// Prints an error on standard error. Each of its lines is one, except those that are indented: they belong to the line before.
pub(crate) fn errors(error: &dyn Display) {
    for line in error.to_string().lines() {
        let continues = line.is_empty() || line.starts_with(char::is_whitespace);
        print_error(format_args!("{}{line}", if continues { "" } else { "error: " }));
    }
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
    let code = written(answer.print().map(|()| ExitCode::from(code)));
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) = (answer.kind(), answer.get(ContextKind::InvalidArg))
        && std::path::Path::new(word).exists()
    {
        print_error(format_args!("note: files are named with -f: -f {word}"));
    }
    code
}

/// Reports a failed write; returns the status to end with.
fn unwritten(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return READER_GONE;
    }
    print_error(format_args!("error: the output cannot be written: {error}"));
    UNWRITTEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colour_that_is_asked_for_is_known_before_the_arguments_are_parsed() {
        let asked = |words: &[&str]| Color::asked(words.iter().map(OsString::from));
        assert_eq!(asked(&["whittle", "plan", "--color", "never", "-f", "a"]), Color::Never);
        assert_eq!(asked(&["whittle", "--color=always", "demo"]), Color::Always);
        for words in [&["whittle", "demo"][..], &["whittle", "--color"], &["whittle", "--color", "blue"]] {
            assert_eq!(asked(words), Color::Auto, "{words:?}");
        }
        assert!(Color::Always.paints() && !Color::Never.paints());
    }
}
