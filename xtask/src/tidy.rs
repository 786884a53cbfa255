//! Rules that the compiler does not check: every file is compiled, short, small and portable, and uses no retired words.

use crate::workspace::matches;
use crate::{citations, metrics, rule_rows, runbook_quotations, vocabulary, workspace};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum lines of a module: longer ones usually have more than one subject.
const LINES_MAX: usize = 800;
/// Maximum length of a comment's line, which rustfmt leaves as it is. Code it breaks itself, except for texts.
const COLUMNS_MAX: usize = 140;
/// Maximum size of a file, because every clone contains it.
const BYTES_MAX: u64 = 256 * 1024;

/// Files that may be large, with the reason; a trailing `*` matches any ending.
const LARGE: &[(&str, &str)] = &[("Cargo.lock", "one entry for each crate of the AWS SDK")];

/// The only file that names each adapter's type.
const ADAPTERS: &str = "shared/ports/src/adapters.rs";

/// Where numbers stand for pods, machines and the like, and the only file that may see what is inside of them.
const SOLVER: &str = "shared/solver/src/";
const IDS: &str = "shared/solver/src/ids.rs";

/// Cases and manifests from elsewhere, which are kept unchanged: only their size and portability are checked.
const DATA: &[&str] = &["tests/golden/", "tests/seeds/"];

/// This mark, on a line or the one before it, states why a rule does not apply: `tidy: allow(sleep), because …`.
const ALLOW: &str = concat!("tidy: ", "allow(");

/// All findings, one sentence each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let files = workspace::files(root)?;
    let mut found = Vec::new();
    for name in &files {
        let path = root.join(name);
        let bytes = path.metadata().with_context(|| format!("{name} cannot be read"))?.len();
        if bytes > BYTES_MAX && !LARGE.iter().any(|(pattern, _)| matches(pattern, name)) {
            found.push(format!("{name}: {bytes} bytes, more than {BYTES_MAX}; shrink it, or give the reason in xtask/src/tidy.rs"));
        }
        // Binary files have no lines to check.
        if let Ok(text) = std::fs::read_to_string(&path) {
            found.extend(in_text(name, &text));
            found.extend(vocabulary::in_text(name, &text));
        }
    }
    found.extend(orphans(root, &files)?);
    found.extend(metrics::check(root, &files)?);
    found.extend(runbook_quotations::check(root)?);
    found.extend(citations::check(root)?);
    found.extend(rule_rows::check(root)?);
    Ok(found)
}

/// The findings in the text of one file.
fn in_text(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if name == "Cargo.lock" {
        return found;
    }
    let is_rust = name.ends_with(".rs");
    if is_rust && text.lines().count() > LINES_MAX {
        found.push(format!("{name}: {} lines, more than {LINES_MAX}; split it by subject", text.lines().count()));
    }
    let is_data = DATA.iter().any(|folder| name.starts_with(folder));
    if name.ends_with(".md") && !is_data {
        found.extend(headings(name, text));
    }
    let mut before = "";
    let mut is_test = name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("tests.rs");
    for (index, text) in text.lines().enumerate() {
        is_test |= is_rust && text.contains("#[cfg(test)]");
        let line = Line { file: name, text, is_test };
        let of_rust = if is_rust { line.broken_rust_rules() } else { Vec::new() };
        for (rule, remedy) in line.broken_rules().into_iter().chain(of_rust) {
            let mark = format!("{ALLOW}{rule})");
            let about_style = is_data && rule != "machine-path";
            if !about_style && !text.contains(&mark) && !before.contains(&mark) {
                found.push(format!("{name}:{}: {rule}: {remedy}", index + 1));
            }
        }
        before = text;
    }
    found
}

/// A rule that a line breaks, and the remedy.
type Broken = (&'static str, &'static str);

/// A line of a file.
#[derive(Clone, Copy)]
struct Line<'a> {
    file: &'a str,
    text: &'a str,
    /// Whether it belongs to tests: of a file with code and tests, every line from the first `#[cfg(test)]` on.
    is_test: bool,
}

impl Line<'_> {
    /// The rules for every file that the line breaks.
    fn broken_rules(self) -> Vec<Broken> {
        let mut broken = Vec::new();
        for mark in [concat!("TO", "DO"), concat!("FIX", "ME")] {
            if words(self.text).any(|word| word == mark) && !self.text.contains(&format!("{mark}(#")) {
                broken.push(("todo", "name the issue, as in TO\u{44}O(#12), or do it"));
            }
        }
        for path in [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/fa", "rm/")] {
            if machine_path(self.text, path) {
                broken.push(("machine-path", "a path of one machine has no meaning on another"));
            }
        }
        broken
    }

    /// The rules for Rust that the line breaks.
    fn broken_rust_rules(self) -> Vec<Broken> {
        let Self { file, text, is_test } = self;
        let decides = file.starts_with("functions/") || file.starts_with("shared/");
        let mut broken = Vec::new();
        if text.trim_start().starts_with(concat!("#[ig", "nore")) {
            broken.push(("ignore", "a test that does not run proves nothing; assert today's answer instead"));
        }
        if text.trim_start().starts_with("//") && text.chars().count() > COLUMNS_MAX {
            broken.push(("columns", "a comment has at most 140 columns: go on in the next line"));
        }
        if has_port_type_parameters(file, text) {
            broken.push(("rights", "take `P: Rights` and state them in the block `rights!` of the function's lib.rs"));
        }
        if decides && !is_test && text.contains(concat!(".coun", "ted(")) {
            broken.push(("counter", "a counter only tells: let the step return what it did, or set a field of the run"));
        }
        if (decides || file.starts_with("watcher/")) && has_message_field(text) {
            broken.push(("log-field", "the sentence of the line is its `message`, and JSON would have two: give the field another name"));
        }
        if file.starts_with(SOLVER) && file != IDS && text.contains(concat!(".0 as ", "usize")) {
            broken.push(("ids", "index an `IdVec` by the id itself, so that no number of another kind gets in"));
        }
        if is_test && builds_fixture(file, text) {
            broken.push(("fixture", "take it from whittle-testkit, and change the fields that the test is about"));
        }
        if is_test && calls_sleep(text) && !file.starts_with("xtask/") {
            broken.push(("sleep", "wait for the condition, or move the virtual clock"));
        }
        broken
    }
}

/// Where the fixtures are.
const FIXTURES: &str = "shared/claims/src/fixtures.rs";
/// Whose tests build claims and machines.
const OF_CLAIMS: &[&str] = &["functions/", "shared/claims/", "shared/ports/", "shared/sim/", "shared/snapshot/", "tests/"];

/// A time or a machine of one's own, in place of those that all tests share.
fn builds_fixture(name: &str, line: &str) -> bool {
    let governed = OF_CLAIMS.iter().any(|folder| name.starts_with(folder));
    let code = line.trim_start().trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ").trim_start_matches("pub ");
    let shared = ["fn at(seconds", "fn at(second:", "fn machine()", "fn machine(id: &str) -> Machine"];
    governed && name != FIXTURES && shared.iter().any(|start| code.starts_with(start))
}

/// Whether the line has type parameters for single ports: a function states its rights once, in `rights!`.
fn has_port_type_parameters(name: &str, line: &str) -> bool {
    let governed = name.starts_with("functions/") || name.starts_with("shared/ports/") && name != ADAPTERS;
    governed && line.contains("S, C, K, Q, T")
}

/// Whether the line logs a field of the name that its sentence has in JSON.
fn has_message_field(line: &str) -> bool {
    let Some((_, arguments)) = line.split_once("tracing::").and_then(|(_, rest)| rest.split_once("!(")) else { return false };
    let fields = arguments.split('"').next().unwrap_or_default();
    let is_message = |field: &str| field.split('=').next().unwrap_or_default().trim().trim_start_matches(['%', '?']) == "message";
    fields.split(',').any(is_message)
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
}

/// Whether the line calls a function named `sleep`.
fn calls_sleep(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(concat!("sleep", "("))
        .any(|(at, _)| !code[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_'))
}

/// Whether the line has an absolute path in a folder that exists only on a developer's machine; the same name inside a longer path
/// does not count.
fn machine_path(line: &str, path: &str) -> bool {
    line.match_indices(path)
        .any(|(at, _)| !line[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric() || "._-}*)>/".contains(letter)))
}

/// A document has one title, which for a decision record begins with its number, as the name of its file does.
fn headings(name: &str, text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut titles = 0;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && line.starts_with("# ") {
            titles += 1;
        }
    }
    let mut found = Vec::new();
    if titles != 1 {
        found.push(format!("{name}: {titles} first-level headings; a document has one"));
    }
    if let Some(number) = name.strip_prefix("docs/adr/").and_then(|file| file.get(..4))
        && !text.starts_with(&format!("# ADR {number}: "))
    {
        found.push(format!("{name}: its title does not begin with ADR {number} and a colon"));
    }
    found
}

/// Rust files that no target compiles: nothing in them is checked.
fn orphans(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<(PathBuf, bool)> = Vec::new();
    for package in workspace::members(root)?.packages {
        open.extend(package.targets.into_iter().filter_map(|target| Some((target.src_path.canonicalize().ok()?, true))));
    }
    while let Some((path, is_root)) = open.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        // In canonical form, as in git's list: a `path` attribute may contain `..`.
        let existing = children(&path, is_root, &text).into_iter().filter_map(|child| child.canonicalize().ok());
        open.extend(existing.map(|child| (child, false)));
    }
    Ok(files
        .iter()
        .filter(|name| name.ends_with(".rs"))
        .filter(|name| root.join(name).canonicalize().is_ok_and(|path| !reached.contains(&path)))
        .map(|name| format!("{name}: no `mod` leads here, so it is never compiled; declare it or delete it"))
        .collect())
}

/// The files that the module declarations in `text` may refer to.
fn children(path: &Path, is_root: bool, text: &str) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().unwrap_or_default();
    let below = if is_root || stem == "mod" { folder.to_path_buf() } else { folder.join(stem) };
    let mut children = Vec::new();
    let mut given: Option<&str> = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            given = rest.split('"').next();
        } else if let Some(name) = declared(line) {
            match given.take() {
                Some(name) => children.push(folder.join(name)),
                None => {
                    children.push(below.join(format!("{name}.rs")));
                    children.push(below.join(name).join("mod.rs"));
                }
            }
        }
        if let Some((_, rest)) = line.split_once("include!(\"") {
            children.extend(rest.split('"').next().map(|name| folder.join(name)));
        }
    }
    children
}

/// The name in `mod name;`, with any visibility before it.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line;
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => after,
        };
    }
    rest.trim_start().strip_prefix("mod ")?.split(';').next().filter(|_| line.contains(';')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, text: &str, expected: &[&str]) {
        let found = in_text(name, text);
        let rules: Vec<String> = found.iter().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect();
        assert_eq!(rules, expected);
    }

    #[test]
    fn long_files_are_reported() {
        check("a/src/lib.rs", &"x\n".repeat(800), &[]);
        check("a/src/lib.rs", &"x\n".repeat(801), &["a/src/lib.rs: 801 lines, more than 800; split it by subject"]);
        check("a/data.csv", &"x\n".repeat(801), &[]);
    }

    #[test]
    fn long_lines_of_comments_are_reported() {
        for start in ["// ", "    /// ", "//! "] {
            let full = format!("{start}{}", "ä".repeat(140 - start.len()));
            check("a/src/lib.rs", &full, &[]);
            check("a/src/lib.rs", &format!("{full}x"), &["a/src/lib.rs:1: columns"]);
        }
        let long = "x".repeat(150);
        check("a/src/lib.rs", &format!("const TEXT: &str = \"{long}\";"), &[]);
        check("a/notes.txt", &format!("// {long}"), &[]);
        check("tests/golden/a.rs", &format!("// {long}"), &[]);
    }

    #[test]
    fn an_id_is_no_position_outside_of_its_module() {
        let line = concat!("let class = &classes[id.0 as ", "usize];");
        check("shared/solver/src/fit.rs", line, &["shared/solver/src/fit.rs:1: ids"]);
        check("shared/solver/src/ids.rs", line, &[]);
        check("shared/ec2/src/lib.rs", line, &[]);
    }

    #[test]
    fn log_fields_with_the_name_of_the_sentence_are_reported() {
        let wrong = |line: &str| check("shared/runtime/src/serve.rs", line, &["shared/runtime/src/serve.rs:1: log-field"]);
        wrong("tracing::warn!(%claim, message, \"it is refused\");");
        wrong("tracing::error!(message = %id, \"it is left\");");
        wrong("tracing::error!(%message, \"it is left\");");
        let fine = |line: &str| check("shared/runtime/src/serve.rs", line, &[]);
        fine("tracing::error!(message_id = %id, text = message, \"a message, message\");");
        fine("let answer = answer(message, \"it is left\");");
    }

    #[test]
    fn decisions_based_on_counters_are_reported() {
        let line = concat!("if report.coun", "ted(\"changed\") > 0 {");
        check("functions/a/src/lib.rs", line, &["functions/a/src/lib.rs:1: counter"]);
        check("functions/a/src/tests.rs", line, &[]);
        check("functions/a/src/lib.rs", &format!("#[cfg(test)]\n{line}"), &[]);
    }

    #[test]
    fn todo_marks_without_an_issue_are_reported() {
        check("a.rs", concat!("// TO", "DO later"), &["a.rs:1: todo"]);
        check("a.rs", concat!("// FIX", "ME(#12): wrong on leap days"), &[]);
    }

    #[test]
    fn machine_paths_are_reported() {
        check("a.toml", concat!("path = \"/wo", "rk/x\""), &["a.toml:1: machine-path"]);
        check("a.md", concat!("# t\nsee /ro", "ot/x"), &["a.md:2: machine-path"]);
        check("a.sh", concat!("cd $HOME/wo", "rk/x; cat src/wo", "rk/x"), &[]);
    }

    #[test]
    fn sleeping_and_ignored_tests_are_reported() {
        check("a/tests.rs", concat!("  std::thread::sleep", "(x);"), &["a/tests.rs:1: sleep"]);
        check("a/lib.rs", concat!("sleep", "(x);\n#[cfg(test)]\nsleep", "(x);"), &["a/lib.rs:3: sleep"]);
        check("a/lib.rs", concat!("  #[ig", "nore]"), &["a/lib.rs:1: ignore"]);
        check("a/tests.rs", concat!("// tidy: ", "allow(sleep), because kwok has no event\nsleep", "(x);"), &[]);
    }

    #[test]
    fn port_type_parameters_are_reported() {
        let five = "async fn run<S, C, K, Q, T>(world: World<'_, S, C, K, Q, T>)";
        check("functions/a/src/lib.rs", five, &["functions/a/src/lib.rs:1: rights"]);
        check("shared/ports/src/leasing.rs", five, &["shared/ports/src/leasing.rs:1: rights"]);
        check("functions/a/src/lib.rs", "async fn run<P: Rights>(ports: P)", &[]);
        check(ADAPTERS, five, &[]);
    }

    #[test]
    fn fixtures_are_written_once() {
        let own = "    fn at(seconds: i64) -> Timestamp {";
        check("functions/a/src/tests.rs", own, &["functions/a/src/tests.rs:1: fixture"]);
        check("functions/a/src/tests/b.rs", "pub(super) fn machine() -> Machine {", &["functions/a/src/tests/b.rs:1: fixture"]);
        check("functions/a/src/lib.rs", own, &[]);
        check(FIXTURES, own, &[]);
        check("shared/sim/src/tests.rs", "fn machines_are_asked_for() {", &[]);
    }

    #[test]
    fn a_second_title_is_reported() {
        check("a.md", "# one\n```\n# a comment\n```\n## two\n", &[]);
        check("tests/golden/a/note.md", "no title\n", &[]);
        check("a.md", "# one\n# two\n", &["a.md: 2 first-level headings; a document has one"]);
    }

    #[test]
    fn a_decision_record_whose_title_lacks_its_number_is_reported() {
        let name = "docs/adr/0051-live-reads.md";
        let finding = "docs/adr/0051-live-reads.md: its title does not begin with ADR 0051 and a colon";
        check(name, "# ADR 0051: Live reads\n\nContext: ADR 0010.\n", &[]);
        check(name, "# 51. Live reads\n", &[finding]);
        check(name, "# ADR 0052: Live reads\n", &[finding]);
        check("docs/guide/README.md", "# Guide\n", &[]);
    }

    #[test]
    fn module_declarations_are_resolved_to_files() {
        assert_eq!(declared("pub(crate) mod tests;"), Some("tests"));
        assert_eq!(declared("pub mod a;"), Some("a"));
        assert_eq!(declared("mod a {"), None);
        let found = children(Path::new("s/a.rs"), false, "mod b;\n#[path = \"z.rs\"]\nmod c;");
        assert_eq!(found, ["s/a/b.rs", "s/a/b/mod.rs", "s/z.rs"].map(PathBuf::from));
    }
}
