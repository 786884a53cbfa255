//! Where commands come from: a terminal with an editor, or a pipe.

use super::completion::{Completion, Names};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config};
use std::io::{BufRead, Read as _};
use std::path::PathBuf;

/// The most that is read of one line, and of the lines that belong to a command.
const TEXT_MAX: usize = 64 << 20;

/// What came instead of a line, or the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Line(String),
    /// Ctrl-C while it was written.
    Dropped,
    Unreadable(String),
    End,
}

/// The source of commands.
pub(super) trait Lines {
    /// The next line. `first` is whether it begins a command.
    fn next(&mut self, first: bool) -> Entered;
    /// Tells what can be completed.
    fn offer(&mut self, _names: &dyn Fn() -> Names) {}
}

/// The lines that belong to a command: up to `until`, which is `EOF` unless the command names another word, or to the end.
pub(super) fn body(lines: &mut dyn Lines, until: Option<&str>) -> Result<String, String> {
    let until = until.unwrap_or("EOF");
    let mut text = String::new();
    loop {
        match lines.next(false) {
            Entered::Line(line) if line.trim_end() == until => return Ok(text),
            Entered::Line(line) => {
                if text.len() + line.len() > TEXT_MAX {
                    return Err(too_long("what follows the command"));
                }
                text.push_str(&line);
                text.push('\n');
            }
            Entered::Dropped => return Err("nothing was read: Ctrl-C".to_owned()),
            Entered::Unreadable(error) => return Err(error),
            Entered::End => return Ok(text),
        }
    }
}

fn too_long(what: &str) -> String {
    format!("{what} is larger than {} MiB: write manifests to a file, and apply it with -f FILE", TEXT_MAX >> 20)
}

/// Lines of standard input that is no terminal.
pub(super) struct Piped<R> {
    input: R,
    number: usize,
    /// Nothing more can be read.
    ended: bool,
}

impl<R: BufRead> Piped<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, number: 0, ended: false }
    }
}

impl<R: BufRead> Lines for Piped<R> {
    fn next(&mut self, first: bool) -> Entered {
        let mut command = String::new();
        loop {
            if self.ended {
                return Entered::End;
            }
            let mut bytes = Vec::new();
            match self.input.by_ref().take(TEXT_MAX as u64 + 1).read_until(b'\n', &mut bytes) {
                Ok(0) if command.is_empty() => return Entered::End,
                Ok(0) => return Entered::Line(command),
                Ok(_) => self.number += 1,
                Err(error) => {
                    self.ended = true;
                    return Entered::Unreadable(format!("standard input cannot be read: {error}"));
                }
            }
            if command.len() + bytes.len() > TEXT_MAX {
                self.ended = true;
                return Entered::Unreadable(too_long(&format!("line {}", self.number)));
            }
            let line = match String::from_utf8(bytes) {
                Ok(line) => line,
                Err(error) => {
                    let byte = error.utf8_error().valid_up_to() + 1;
                    return Entered::Unreadable(format!("line {} is no UTF-8 text, at its byte {byte}: it is passed over", self.number));
                }
            };
            let line = line.strip_suffix('\n').unwrap_or(&line);
            let line = line.strip_suffix('\r').unwrap_or(line);
            // The mark that editors of Windows begin a text with.
            let line = if self.number == 1 { line.strip_prefix('\u{feff}').unwrap_or(line) } else { line };
            match line.strip_suffix('\\').filter(|_| first) {
                Some(begun) => command.push_str(begun),
                None => return Entered::Line(command + line),
            }
        }
    }
}

/// A terminal, with history and completion.
pub(super) struct Editor {
    editor: rustyline::Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
}

impl Editor {
    pub(super) fn new() -> rustyline::Result<Self> {
        let config = Config::builder().max_history_size(2_000)?.completion_type(CompletionType::List).build();
        let mut editor = rustyline::Editor::with_config(config)?;
        editor.set_helper(Some(Completion::default()));
        let history = history_file();
        if let Some(path) = &history {
            // There is none at first, and a session works without.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }

    fn remember(&mut self, line: &str) {
        let added = self.editor.add_history_entry(line).unwrap_or(false);
        if let (true, Some(path)) = (added, &self.history) {
            let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            if folder.is_ok() {
                // A history that cannot be written is no reason to end the session.
                let _ = self.editor.append_history(path);
            }
        }
    }
}

/// The history of all sessions, among the user's other state: `$XDG_STATE_HOME/whittle/local-history`.
fn history_file() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = named.or_else(|| Some(std::env::home_dir()?.join(".local/state")))?;
    Some(state.join("whittle/local-history"))
}

impl Lines for Editor {
    fn next(&mut self, first: bool) -> Entered {
        let mut command = String::new();
        loop {
            let prompt = if first && command.is_empty() { "whittle> " } else { "> " };
            let line = match self.editor.readline(prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => return Entered::Dropped,
                Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Entered::Unreadable(format!("this line is no UTF-8 text: {error}"));
                }
                Err(_) => return Entered::End,
            };
            match line.strip_suffix('\\').filter(|_| first) {
                Some(begun) => command.push_str(begun),
                None => {
                    command.push_str(&line);
                    if first && !command.trim().is_empty() {
                        self.remember(&command);
                    }
                    return Entered::Line(command);
                }
            }
        }
    }

    fn offer(&mut self, names: &dyn Fn() -> Names) {
        if let Some(completion) = self.editor.helper_mut() {
            completion.names = names();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, BufReader, Read};

    #[test]
    fn an_endless_line_ends_the_input() {
        for start in ["", "apply -f - \\\n"] {
            let mut lines = Piped::new(BufReader::new(start.as_bytes().chain(io::repeat(0))));
            let Entered::Unreadable(error) = lines.next(true) else { panic!("a line") };
            assert!(error.contains("is larger than 64 MiB") && error.contains("-f FILE"), "{error}");
            assert_eq!(lines.next(true), Entered::End);
        }
    }

    #[test]
    fn the_mark_at_the_start_of_a_text_belongs_to_no_command() {
        let mut lines = Piped::new("\u{feff}get nodes\r\n\u{feff}x".as_bytes());
        assert_eq!(lines.next(true), Entered::Line("get nodes".to_owned()));
        assert_eq!(lines.next(true), Entered::Line("\u{feff}x".to_owned()), "nowhere else is it one");
    }

    #[test]
    fn the_word_that_ends_a_text_is_not_indented() {
        let mut lines = Piped::new("userData: |\n  cat <<EOF\n  EOF\n  more\nEOF \nget nodes\n".as_bytes());
        assert_eq!(body(&mut lines, None).unwrap(), "userData: |\n  cat <<EOF\n  EOF\n  more\n");
        assert_eq!(lines.next(true), Entered::Line("get nodes".to_owned()));
    }

    #[test]
    fn endless_lines_of_a_command_are_refused() {
        struct Same;
        impl Lines for Same {
            fn next(&mut self, _: bool) -> Entered {
                Entered::Line("a".repeat(1 << 20))
            }
        }
        assert!(body(&mut Same, None).unwrap_err().contains("is larger than 64 MiB"));
    }

    #[test]
    fn what_cannot_be_read_is_told_once() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::IsADirectory.into())
            }
        }
        let mut lines = Piped::new(BufReader::new(Broken));
        assert!(matches!(lines.next(true), Entered::Unreadable(error) if error.starts_with("standard input cannot be read")));
        assert_eq!(lines.next(true), Entered::End);
    }
}
