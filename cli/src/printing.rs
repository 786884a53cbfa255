//! Standard output and standard error: the one place where text is written to them.
//!
//! The macros of the standard library panic when a write fails, which on a full disk looks like a crash. Here a failed write ends the
//! command with an error, and a reader that has gone ends it silently. What could steer a terminal is written as an escape: names and words
//! of others come from anywhere.

use crate::wrapping::{COLUMNS_MAX, wrapped};
use clap::ValueEnum;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use whittle_api::words;

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
        self.paints_on(io::stdout().is_terminal())
    }

    /// Whether a stream gets colours.
    fn paints_on(self, is_terminal: bool) -> bool {
        match self {
            Self::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
                is_terminal && !refused && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
            }
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

/// The width of the terminal in columns; `None` if standard output is no terminal, or its width is unknown.
pub(crate) fn columns() -> Option<usize> {
    let stdout = io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| stdout.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|columns| 0 < *columns)
}

/// A text without what steers a terminal: such letters are written as in JSON, but for ends of lines, tabs and, where `colours` are
/// printed, the sequences that set them.
pub(crate) fn harmless(text: &str, colours: bool) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_steering) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let length = if colours { colour(from) } else { 0 };
        if let (Some((sequence, after)), true) = (from.split_at_checked(length), length > 0) {
            shown.push_str(sequence);
            rest = after;
            continue;
        }
        let mut letters = from.chars();
        shown.extend(letters.next().map(|letter| format!("\\u{:04x}", u32::from(letter))));
        rest = letters.as_str();
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// The most letters of one word, and of one line, that standard error shows. Names in Kubernetes have at most 253; anything longer is
/// probably a mistake.
const WORD_MAX: usize = 400;
const LINE_MAX: usize = 4_000;
/// How many letters at the end of a shortened text are kept: the quotes and colons after a word, the remedy at the end of a line.
const WORD_END: usize = 20;
const LINE_END: usize = 1_000;

/// A text without the middle of words and lines that are too long for an error: they quote what somebody wrote, whatever its length.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    // No word and no line can be too long then.
    if text.len() <= WORD_MAX {
        return Cow::Borrowed(text);
    }
    let words = |line: &str| line.split(' ').map(|word| cut(word, WORD_MAX, WORD_END)).collect::<Vec<_>>().join(" ");
    let line = |line: &str| cut(&words(line), LINE_MAX, LINE_END).into_owned();
    Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

/// A text cut to `letters_max` letters, of which the last `end` are the end of the text.
fn cut(text: &str, letters_max: usize, end: usize) -> Cow<'_, str> {
    let letters = text.chars().count();
    if letters <= letters_max {
        return Cow::Borrowed(text);
    }
    let mut cut: String = text.chars().take(letters_max.saturating_sub(end)).collect();
    cut.push('…');
    cut.extend(text.chars().skip(letters - end));
    Cow::Owned(cut)
}

/// A text as part of a line: each control character, such as a new line, is a space.
pub(crate) fn in_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Whether a letter steers a terminal: a control character, or one that is not seen or changes the direction in which letters are shown.
fn is_steering(letter: char) -> bool {
    (letter.is_control() && letter != '\n' && letter != '\t') || words::is_unseen(letter)
}

/// The length of the sequence that sets a colour at the start of a text; 0 if there is none.
fn colour(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else { return 0 };
    let end = numbers.find(|letter: char| !letter.is_ascii_digit() && letter != ';').unwrap_or(numbers.len());
    if numbers[end..].starts_with('m') { "\u{1b}[".len() + end + 1 } else { 0 }
}

/// A line of a screen, as it may be shown.
pub(crate) fn line(text: &str) -> String {
    harmless(text, paints()).replace('\n', "\\n")
}

/// A stream to which nothing is written that steers a terminal, except our colours.
pub(crate) struct Guarded<W> {
    stream: W,
    colours: bool,
    /// Words and lines are cut that are too long for an error.
    cuts: bool,
    /// The start of a letter whose other bytes are still to come.
    begun: Vec<u8>,
}

/// Standard output for texts.
pub(crate) fn out() -> Guarded<io::Stdout> {
    Guarded { stream: io::stdout(), colours: paints(), cuts: false, begun: Vec::new() }
}

/// Standard error, which quotes what others wrote only so far.
pub(crate) fn err() -> Guarded<io::Stderr> {
    Guarded { stream: io::stderr(), colours: false, cuts: true, begun: Vec::new() }
}

impl<W: Write> Write for Guarded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        for chunk in std::mem::take(&mut self.begun).utf8_chunks() {
            self.stream.write_all(harmless(chunk.valid(), self.colours).as_bytes())?;
            // Four bytes at most are a letter.
            self.begun = chunk.invalid().to_vec();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }

    fn write_fmt(&mut self, text: Arguments<'_>) -> io::Result<()> {
        // As a whole: a sequence may be made of several pieces.
        let text = text.to_string();
        self.write_all(if self.cuts { shortened(&text) } else { Cow::Borrowed(text.as_str()) }.as_bytes())
    }
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
    let mut out = out();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        std::process::exit(i32::from(unwritten(&error)));
    }
}

/// Prints a line on standard error. If it cannot be written there is nobody to tell; the exit code says the same.
pub(crate) fn print_error(text: Arguments<'_>) {
    let _ = writeln!(err(), "{}", without_numbers(&text.to_string()));
}

/// Without the numbers that the operating system has for its errors: their names are there.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|digit| digit.is_ascii_digit()) => shown + rest,
        _ => shown + " (os error " + part,
    })
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
    let _ = write!(err, "\r\u{1b}[K{}", harmless(line, false)).and_then(|()| err.flush());
}

/// The exit code of a command that wrote its output itself.
pub(crate) fn written(done: io::Result<ExitCode>) -> ExitCode {
    let done = done.and_then(|code| io::stdout().flush().map(|()| code));
    done.unwrap_or_else(|error| ExitCode::from(unwritten(&error)))
}

/// An argument, its control characters and those that are not seen escaped.
#[must_use]
pub fn on_one_line(argument: &str) -> String {
    let is_plain = |letter: char| !letter.is_control() && !words::is_unseen(letter);
    let escaped = |letter: char| if !is_plain(letter) { letter.escape_default().to_string() } else { letter.to_string() };
    argument.chars().map(escaped).collect()
}

/// Prints clap's answer to a command line that is wrong or asks for help.
#[must_use]
pub fn usage(answer: &clap::Error, color: Color) -> ExitCode {
    let code = u8::try_from(answer.exit_code()).unwrap_or(2);
    if matches!(answer.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return written(help(answer, color).map(|()| ExitCode::from(code)));
    }
    let text = answer.render().to_string();
    if let Some(ContextValue::String(value)) = answer.get(ContextKind::InvalidValue)
        && value.contains(char::is_control)
    {
        print_error(format_args!("{}", text.replace(value.as_str(), &on_one_line(value)).trim_end()));
        return ExitCode::from(code);
    }
    let code = match shortened(&text) {
        Cow::Owned(short) if answer.use_stderr() && short != text => {
            print_error(format_args!("{}", short.trim_end()));
            ExitCode::from(code)
        }
        _ => written(answer.print().map(|()| ExitCode::from(code))),
    };
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) = (answer.kind(), answer.get(ContextKind::InvalidArg))
        && std::path::Path::new(word).exists()
    {
        print_error(format_args!("note: files are named with -f: -f {word}"));
    }
    if answer.kind() == ErrorKind::UnknownArgument && takes_files_alone(&text, answer.get(ContextKind::InvalidArg)) {
        print_error(format_args!("note: this command takes its files without -f"));
    }
    code
}

/// Whether an argument is `-f`, and the usage in the answer ends with files that no option names.
fn takes_files_alone(answer: &str, argument: Option<&ContextValue>) -> bool {
    let Some(ContextValue::String(word)) = argument else { return false };
    let has_files = answer.lines().any(|line| line.starts_with("Usage: ") && line.ends_with("..."));
    has_files && matches!(word.as_str(), "-f" | "--filename")
}

/// Prints a help text.
fn help(answer: &clap::Error, color: Color) -> io::Result<()> {
    let is_terminal = if answer.use_stderr() { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    let mut stream: Box<dyn Write> = if answer.use_stderr() { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
    let styled = answer.render();
    let text = if color.paints_on(is_terminal) { styled.ansi().to_string() } else { styled.to_string() };
    stream.write_all(fitted(&text).as_bytes()).and_then(|()| stream.flush())
}

/// A help text in the width of the terminal.
pub(crate) fn fitted(text: &str) -> String {
    wrapped(text, columns().unwrap_or(COLUMNS_MAX).min(COLUMNS_MAX))
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
    fn a_text_in_a_line_begins_no_other_and_steers_nothing() {
        assert_eq!(in_line("plain, ä and …"), "plain, ä and …");
        assert_eq!(in_line("one\ntwo\tthree\u{1b}[2J"), "one two three [2J");
    }

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

    #[test]
    fn errors_of_the_system_have_no_numbers() {
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(
            without_numbers(&format!("a: {missing}; b: {missing} (os error x) (os error ")),
            "a: No such file or directory; b: No such file or directory (os error x) (os error "
        );
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_and_colours_pass_where_they_are_printed() {
        let hostile = "a\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}1m\u{202e}\u{2066}\u{200f}\r\u{7f}b";
        let escaped = "a\\u001b]0;title\\u0007\\u001b[2J\\u009b1m\\u202e\\u2066\\u200f\\u000d\\u007fb";
        assert_eq!([harmless(hostile, true), harmless(hostile, false)], [escaped, escaped]);
        let coloured = "\u{1b}[1;32mgreen\u{1b}[0m\tß→\n";
        assert_eq!(harmless(coloured, true), coloured);
        assert_eq!(harmless(coloured, false), "\\u001b[1;32mgreen\\u001b[0m\tß→\n");
        for unfinished in ["\u{1b}", "\u{1b}[", "\u{1b}[31", "\u{1b}[31K"] {
            assert!(harmless(unfinished, true).starts_with("\\u001b"), "{unfinished:?}");
        }
    }

    #[test]
    fn words_and_lines_of_errors_are_cut_in_their_middle() {
        for whole in ["", "deployment \"web\" is wrong", &"a".repeat(WORD_MAX), &"ä ".repeat(LINE_MAX / 2)] {
            assert_eq!(shortened(whole), whole);
        }
        let word = format!("file.yaml:1: there is no \"{}\": write another\nnext", "ß".repeat(1_000_000));
        let short = shortened(&word).into_owned();
        assert!(short.starts_with("file.yaml:1: there is no \"ßß") && short.ends_with("ßß\": write another\nnext"), "{short}");
        assert!(short.contains("ß…ß") && short.chars().count() < WORD_MAX + 60, "{short}");
        let line = format!("begins {}ends: write less", "so many words ".repeat(100_000));
        let short = shortened(&line).into_owned();
        assert!(short.starts_with("begins so many") && short.contains('…') && short.ends_with("ends: write less"), "{short}");
        assert_eq!(short.chars().count(), LINE_MAX + 1);
    }

    #[test]
    fn letters_are_judged_whole_however_they_are_written() {
        let mut all = Guarded { stream: Vec::new(), colours: true, cuts: false, begun: Vec::new() };
        for byte in "é\u{202e}x\n".bytes() {
            all.write_all(&[byte]).unwrap();
        }
        let (escape, number, word) = ('\u{1b}', 31, "red");
        write!(all, "{escape}[{number}m{word}").unwrap();
        assert_eq!(String::from_utf8(all.stream).unwrap(), "é\\u202ex\n\u{1b}[31mred");
        // What JSON says is the same after it.
        assert_eq!(serde_json::from_str::<String>(&harmless("\"\u{202e}\"", false)).unwrap(), "\u{202e}");
    }
}
