//! Colours of what a decision prints for people: what is launched, what goes, what has no place, and the sums.

use crate::printing;
use std::borrow::Cow;

const BOLD: u8 = 1;
const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;

/// How lines begin, and their colour.
const BEGINNINGS: [(&str, u8); 11] = [
    ("not placed: ", RED),
    ("new machine", GREEN),
    ("  + ", GREEN),
    ("existing node ", GREEN),
    ("Empty: ", YELLOW),
    ("Underutilized: ", YELLOW),
    ("Drifted: ", YELLOW),
    ("shadow: ", YELLOW),
    ("now ", BOLD),
    ("together: ", BOLD),
    ("You pay ", BOLD),
];

/// The text with colours where standard output gets them. What is for programs stays as it is.
pub(crate) fn painted(text: &str) -> Cow<'_, str> {
    if !printing::paints() || text.starts_with(['{', '<', '#']) {
        return Cow::Borrowed(text);
    }
    // What names say about colours counts for nothing.
    let text = printing::harmless(text, false).into_owned();
    Cow::Owned(text.split_inclusive('\n').map(line).collect())
}

fn line(line: &str) -> String {
    let begins = BEGINNINGS.iter().find(|(beginning, _)| line.starts_with(beginning)).map(|(_, colour)| *colour);
    match begins.or_else(|| is_header(line).then_some(BOLD)).or_else(|| goes(line).then_some(YELLOW)) {
        Some(colour) => {
            let (said, end) = line.strip_suffix('\n').map_or((line, ""), |said| (said, "\n"));
            format!("\u{1b}[{colour}m{said}\u{1b}[0m{end}")
        }
        None => line.to_owned(),
    }
}

/// The names of a table's columns.
fn is_header(line: &str) -> bool {
    let mut letters = line.chars().filter(|letter| letter.is_alphabetic());
    line.contains("  ") && line.starts_with(|letter: char| letter.is_ascii_uppercase()) && letters.all(char::is_uppercase)
}

/// The verdict that a node is removed or replaced.
fn goes(line: &str) -> bool {
    [" delete: ", " replace: "].iter().any(|verdict| line.find(verdict).is_some_and(|at| line[..at].trim_end().split(' ').count() == 1))
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn lines_are_painted_by_what_they_say() {
        let paints = |text: &str| line(text).strip_prefix("\u{1b}[").map(|rest| rest.split('m').next().unwrap().to_owned());
        for (text, colour) in [
            ("not placed: default/web\n", Some("31")),
            ("new machine from nodepool default: m5.large at $0.1/h\n", Some("32")),
            ("Empty: delete: [a] (saves $0.1 an hour)\n", Some("33")),
            ("ip-10-0-1-10  delete: Empty (savings: $0.19 an hour)\n", Some("33")),
            ("  replace: Drifted\n", Some("33")),
            ("now $0.1/h (1 node) -> then $0.2/h (2 nodes)\n", Some("1")),
            ("LAUNCH  NODEPOOL  TYPE\n", Some("1")),
            ("ip-10-0-1-10  kept: being deleted already\n", None),
            ("  pods: default/web\n", None),
            ("\n", None),
        ] {
            assert_eq!(paints(text).as_deref(), colour, "{text}");
        }
        assert_eq!(line("now a\n"), "\u{1b}[1mnow a\u{1b}[0m\n");
    }
}
