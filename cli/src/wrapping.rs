//! Help texts in the width of a terminal.
//!
//! clap wraps only with a crate that asks for the width of terminals, and would break the commands of examples, too, which people copy.

/// The most columns of a help text: longer lines are hard to read, and a file has no width.
pub(crate) const COLUMNS_MAX: usize = 100;

/// The fewest columns for a description beside its option. Where there are fewer, the line stays as it is.
const DESCRIPTION_MIN: usize = 24;

/// How deep clap indents the description of an option that has lines of its own.
const DESCRIPTION_INDENT: usize = 10;

/// A help text with lines of at most `columns` columns. Commands in examples are not broken, nor are words that are longer.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    let (mut lines, mut paragraph) = (Vec::new(), Vec::new());
    for line in text.split('\n') {
        if is_prose(line) {
            paragraph.push(line);
            continue;
        }
        end_paragraph(&mut paragraph, columns, &mut lines);
        match description_start(line) {
            _ if line.trim().is_empty() => lines.push(String::new()),
            Some(start) if columns < width(line) && width(&line[..start]) + DESCRIPTION_MIN <= columns => {
                let (head, description) = line.split_at(start);
                fill(head, description.split(' '), columns, &mut lines);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    end_paragraph(&mut paragraph, columns, &mut lines);
    lines.join("\n")
}

/// Whether a line is one of a paragraph: options, commands and examples are indented.
fn is_prose(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with(' ')
}

/// Wraps what was collected of a paragraph, whose lines are those of the source.
fn end_paragraph(paragraph: &mut Vec<&str>, columns: usize, lines: &mut Vec<String>) {
    if !paragraph.is_empty() {
        fill("", paragraph.iter().flat_map(|line| line.split(' ')), columns, lines);
        paragraph.clear();
    }
}

/// Where the description of an option, command, value or example begins in its line: after the first wide gap, if there is one.
fn description_start(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let rest = &line[indent..];
    let after = |at: usize| line.len() - line[at..].trim_start_matches(' ').len();
    if indent == DESCRIPTION_INDENT {
        let value = rest.find(": ").filter(|_| rest.starts_with("- "));
        return Some(value.map_or(indent, |at| after(indent + at + 1)));
    }
    rest.find("  ").map(|at| after(indent + at))
}

/// Adds lines that begin with `head` or are indented as far.
fn fill<'a>(head: &str, words: impl Iterator<Item = &'a str>, columns: usize, lines: &mut Vec<String>) {
    let indent = width(head);
    let (mut line, mut used, mut is_empty) = (head.to_owned(), indent, true);
    for word in words {
        let needed = width(word) + usize::from(!is_empty);
        if !is_empty && columns < used + needed {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            (used, is_empty) = (indent, true);
        }
        let gap = if is_empty { "" } else { " " };
        line.push_str(gap);
        line.push_str(word);
        used += gap.len() + width(word);
        is_empty = false;
    }
    lines.push(line);
}

/// How many columns a text takes: those of its letters, without the sequences that set colours.
fn width(text: &str) -> usize {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().chars().count();
    first + parts.map(|part| part.split_once('m').map_or(0, |(_, shown)| shown.chars().count())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, columns: usize, wanted: &[&str]) {
        assert_eq!(wrapped(text, columns).split('\n').collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn paragraphs_are_filled_whatever_their_lines_were() {
        check("one two\nthree four five\n\nsix", 14, &["one two three", "four five", "", "six"]);
        check("Examples:\n  a b\nmore text", 40, &["Examples:", "  a b", "more text"]);
        check("a-word-that-is-too-long and more", 10, &["a-word-that-is-too-long", "and more"]);
        check("", 10, &[""]);
        check("one\n", 10, &["one", ""]);
    }

    #[test]
    fn descriptions_stay_beside_their_options() {
        let short = "  -f, --file <FILE>  What is read, one two three four five six seven\n  -q                 Quiet";
        check(
            short,
            50,
            &["  -f, --file <FILE>  What is read, one two three", "                     four five six seven", "  -q                 Quiet"],
        );
        let long =
            "      --kind <KIND>\n          One two three four five six seven\n          \n          - none:  One two three four five";
        check(
            long,
            42,
            &[
                "      --kind <KIND>",
                "          One two three four five six",
                "          seven",
                "",
                "          - none:  One two three four five",
            ],
        );
        check(
            "          - none:  One two three four five six",
            43,
            &["          - none:  One two three four five", "                   six"],
        );
    }

    #[test]
    fn commands_of_examples_stay_whole() {
        let command = "  kubectl get -A -o json nodes,pods,daemonsets > cluster.json";
        check(command, 30, &[command]);
        check(
            "  whittle plan -f a     (what is done with it, and why)",
            48,
            &["  whittle plan -f a     (what is done with it,", "                        and why)"],
        );
        // Beside it there is no room.
        let line = "  whittle plan -f a     (what is done with it, and why)";
        check(line, 30, &[line]);
    }

    #[test]
    fn colours_take_no_columns() {
        let bold = "  \u{1b}[1m-q\u{1b}[0m  One two three four five six seven";
        check(bold, 32, &["  \u{1b}[1m-q\u{1b}[0m  One two three four five", "      six seven"]);
        assert_eq!(width("\u{1b}[1;4mé\u{1b}[0m"), 1);
    }
}
