//! The terminal while it shows a screen that changes: another buffer, no echo, every key at once, and all of it restored at the end.

use crate::printing;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use std::fs::File;
use std::io::{self, Read as _, Write as _};

/// Another buffer, without a cursor and without a second row for what is wider than the terminal: letters of some scripts take two columns.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const TO_END_OF_LINE: &str = "\u{1b}[K";
const TO_END: &str = "\u{1b}[J";

/// A terminal that is used whole. Dropped, it is as it was.
pub(super) struct Terminal {
    tty: File,
    before: Termios,
}

impl Terminal {
    /// Takes the terminal of the process.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn take() -> io::Result<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty")?;
        let before = termios::tcgetattr(&tty)?;
        let mut changed = before.clone();
        // Ctrl-C is a key as any other: so it ends the screen and restores the terminal.
        changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
        termios::tcsetattr(&tty, OptionalActions::Now, &changed)?;
        restore_on_panic(tty.try_clone()?, before.clone());
        let mut terminal = Self { tty, before };
        terminal.write(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(&self.tty) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
            _ => (80, 24),
        }
    }

    /// Replaces what is shown, without flicker: line by line, and what is left below is cleared.
    pub(super) fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{}{TO_END_OF_LINE}", printing::line(line))).collect();
        self.write(&format!("{HOME}{}{TO_END}", lines.join("\r\n")))
    }

    /// The keys, read elsewhere.
    pub(super) fn keys(&self) -> io::Result<Keys> {
        Ok(Keys { tty: self.tty.try_clone()?, pending: Vec::new() })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.tty.write_all(text.as_bytes()).and_then(|()| self.tty.flush())
    }
}

/// A panic ends the process without dropping anything; its message is for a terminal as it was.
fn restore_on_panic(tty: File, before: Termios) {
    let message = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = tty.try_clone().and_then(|mut tty| tty.write_all(LEAVE.as_bytes()));
        let _ = termios::tcsetattr(&tty, OptionalActions::Flush, &before);
        message(panic);
    }));
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Errors do not matter: if the terminal was closed, nobody sees what it shows.
        let _ = self.write(LEAVE);
        let _ = termios::tcsetattr(&self.tty, OptionalActions::Flush, &self.before);
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Sort,
    Read,
    /// Rows to scroll down; negative ones up.
    Scroll(isize),
    /// A screen down or up.
    Page(isize),
    Other,
}

/// The keys of a terminal.
pub(super) struct Keys {
    tty: File,
    pending: Vec<u8>,
}

impl Iterator for Keys {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        if self.pending.is_empty() {
            let mut buffer = [0; 64];
            let count = self.tty.read(&mut buffer).ok().filter(|count| *count > 0)?;
            self.pending.extend(buffer.iter().take(count));
        }
        let (key, length) = key(&self.pending);
        self.pending.drain(..length.min(self.pending.len()));
        Some(key)
    }
}

/// The first key of what a terminal sent, and how many bytes it is.
fn key(bytes: &[u8]) -> (Key, usize) {
    match bytes {
        [0x1b, b'[' | b'O', b'A', ..] => (Key::Scroll(-1), 3),
        [0x1b, b'[' | b'O', b'B', ..] => (Key::Scroll(1), 3),
        [0x1b, b'[', b'5', b'~', ..] => (Key::Page(-1), 4),
        [0x1b, b'[', b'6', b'~', ..] => (Key::Page(1), 4),
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).unwrap_or(rest.len());
            (Key::Other, end + 3)
        }
        // Escape, Ctrl-C, Ctrl-D.
        [0x1b | 3 | 4 | b'q' | b'Q', ..] => (Key::Quit, 1),
        [b'k', ..] => (Key::Scroll(-1), 1),
        [b'j', ..] => (Key::Scroll(1), 1),
        [b' ', ..] => (Key::Page(1), 1),
        [b'b', ..] => (Key::Page(-1), 1),
        [b's', ..] => (Key::Sort, 1),
        [b'r', ..] => (Key::Read, 1),
        _ => (Key::Other, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_on_a_terminal_is_taken_back() {
        for (set, reset) in [("?1049h", "?1049l"), ("?25l", "?25h"), ("?7l", "?7h")] {
            assert!(ENTER.contains(&format!("\u{1b}[{set}")) && LEAVE.contains(&format!("\u{1b}[{reset}")), "{set}");
        }
    }

    #[test]
    fn keys_are_told_apart_in_whatever_pieces_they_come() {
        let mut bytes: &[u8] = b"j\x1b[A\x1b[6~\x1b[1;5Cs\x1bOBq\x03";
        let mut keys = Vec::new();
        while !bytes.is_empty() {
            let (one, length) = key(bytes);
            keys.push(one);
            bytes = bytes.get(length..).unwrap_or_default();
        }
        let expected = [Key::Scroll(1), Key::Scroll(-1), Key::Page(1), Key::Other, Key::Sort, Key::Scroll(1), Key::Quit, Key::Quit];
        assert_eq!(keys, expected);
        assert_eq!(key(b"\x1b"), (Key::Quit, 1));
        assert_eq!(key(b"\x1b[").0, Key::Other, "half of a key is none");
    }
}
