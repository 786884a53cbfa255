//! Comments cite rules by area and number, such as `disruption` and 8.7; the rules are in `docs/rules`, with a page for each area and
//! a heading for each number. Checks that every citation has its heading, and that every heading is cited.

use crate::workspace;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;

/// The areas, each with a page of its name.
const AREAS: &[&str] = &["api", "scheduling", "aws", "lifecycle", "disruption"];
const FOLDER: &str = "docs/rules/";

/// Endings of files that are searched for citations, without data and generated manifests.
const ENDINGS: &[&str] = &[".rs", ".txt", ".md", ".yaml", ".toml", ".py"];
const DATA: &[&str] = &["tests/golden/", "tests/seeds/", "infra/crds/"];

/// An area and the number of a section, such as `8.7`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Section {
    area: &'static str,
    number: Vec<u32>,
}

impl std::fmt::Display for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.number.iter().map(u32::to_string).collect();
        write!(f, "{} {}", self.area, numbers.join("."))
    }
}

/// Spellings of citations that this check cannot resolve.
const OTHER_SPELLINGS: &[&str] = &["\u{a7}", "spec api ", "spec scheduling ", "spec aws ", "spec lifecycle ", "spec disruption "];

/// A file of the repository.
struct Source {
    name: String,
    text: String,
}

/// One sentence for each citation without a heading, and for each heading that is not cited.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut sources = Vec::new();
    for name in workspace::files(root)? {
        let may_cite = ENDINGS.iter().any(|ending| name.ends_with(ending)) && !DATA.iter().any(|folder| name.starts_with(folder));
        if may_cite {
            let text = std::fs::read_to_string(root.join(&name)).with_context(|| format!("{name} cannot be read"))?;
            sources.push(Source { name, text });
        }
    }
    Ok(compare(&sources))
}

fn compare(sources: &[Source]) -> Vec<String> {
    let pages = sources.iter().filter_map(|source| Some((page_area(&source.name)?, source)));
    let headings: BTreeSet<Section> = pages.flat_map(|(area, page)| headings(area, &page.text)).collect();
    let mut cited = BTreeSet::new();
    let mut found = Vec::new();
    for source in sources {
        for (line, section) in citations(&source.text) {
            if !headings.contains(&section) {
                let page = format!("{FOLDER}{}.md", section.area);
                found.push(format!("{}:{line}: {page} has no section for {section}; write it, or cite another", source.name));
            }
            // References between rules do not count as citations.
            if page_area(&source.name).is_none() {
                cited.insert(section);
            }
        }
    }
    found.extend(sources.iter().flat_map(misspelt));
    let unused = headings.difference(&cited).map(|section| {
        let page = format!("{FOLDER}{}.md", section.area);
        format!("{page}: nothing cites {section}; cite it where the rule is kept, or take it out")
    });
    found.extend(unused);
    found
}

/// Findings for citations in another spelling than area and number.
fn misspelt(source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate();
    let other = lines.filter(|(_, line)| OTHER_SPELLINGS.iter().any(|spelling| line.contains(&format!("({spelling}"))));
    other.map(|(index, _)| format!("{}:{}: cite a rule by its area and number alone", source.name, index + 1)).collect()
}

/// The area whose page the file is.
fn page_area(name: &str) -> Option<&'static str> {
    let page = name.strip_prefix(FOLDER)?.strip_suffix(".md")?;
    AREAS.iter().copied().find(|area| *area == page)
}

/// The sections of a page: second-level headings that begin with a number.
fn headings(area: &'static str, page: &str) -> Vec<Section> {
    let titles = page.lines().filter_map(|line| line.strip_prefix("## "));
    titles.filter_map(|title| Some(Section { area, number: leading_number(title)?.0 })).collect()
}

/// The sections that the text cites, with line numbers.
fn citations(text: &str) -> Vec<(usize, Section)> {
    let lines = text.lines().enumerate();
    lines.flat_map(|(index, line)| in_line(line).into_iter().map(move |section| (index + 1, section))).collect()
}

fn in_line(line: &str) -> Vec<Section> {
    let mut found = Vec::new();
    for &area in AREAS {
        for (at, _) in line.match_indices(area) {
            let starts_a_word = !line[..at].ends_with(|letter: char| letter.is_alphanumeric() || "-_./".contains(letter));
            if let Some(rest) = line[at + area.len()..].strip_prefix(' ').filter(|_| starts_a_word) {
                found.extend(numbers(rest).into_iter().map(|number| Section { area, number }));
            }
        }
    }
    found
}

/// The numbers at the start of what follows an area: one, or several as in `3.3, 3.4` and `7.1 to 7.5`.
fn numbers(text: &str) -> Vec<Vec<u32>> {
    let Some((first, mut rest)) = leading_number(text) else { return Vec::new() };
    let mut numbers = vec![first];
    loop {
        let (is_range, after) = match (rest.strip_prefix(", "), rest.strip_prefix(" to ")) {
            (Some(after), _) => (false, after),
            (_, Some(after)) => (true, after),
            _ => return numbers,
        };
        let Some((number, after)) = leading_number(after) else { return numbers };
        if let Some(last) = numbers.last().filter(|_| is_range) {
            numbers.extend(between(last, &number));
        }
        numbers.push(number);
        rest = after;
    }
}

/// The sections of a range within one parent.
fn between(first: &[u32], last: &[u32]) -> Vec<Vec<u32>> {
    match (first.split_last(), last.split_last()) {
        (Some((low, parent)), Some((high, other))) if parent == other => {
            (low + 1..*high).map(|number| [parent, &[number]].concat()).collect()
        }
        _ => Vec::new(),
    }
}

/// A number such as `8` or `8.7` at the start of a text, and the rest. Amounts such as `4.4%`, `30s`, `2x` do not count.
fn leading_number(text: &str) -> Option<(Vec<u32>, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number = text[..end].trim_end_matches('.');
    let rest = &text[number.len()..];
    if rest.starts_with(|letter: char| letter.is_alphanumeric() || "%-_".contains(letter)) {
        return None;
    }
    let parts = number.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>().ok()?;
    Some((parts, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Composes a citation, so that this file contains none itself.
    fn cite(area: &str, numbers: &str) -> String {
        format!("/// Why it is so ({area} {numbers}).")
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = citations(text).into_iter().map(|(_, section)| section.to_string().replace(' ', "=")).collect();
        assert_eq!(found, expected, "{text}");
    }

    fn source(name: &str, text: impl Into<String>) -> Source {
        Source { name: name.to_owned(), text: text.into() }
    }

    #[test]
    fn lists_and_ranges_cite_each_section() {
        check(&cite("disruption", "8.7"), &["disruption=8.7"]);
        check(&cite("aws", "3.3, 3.4"), &["aws=3.3", "aws=3.4"]);
        check(&cite("aws", "7.1 to 7.4, 9.4"), &["aws=7.1", "aws=7.2", "aws=7.3", "aws=7.4", "aws=9.4"]);
        check(&cite("lifecycle", "14 to 16"), &["lifecycle=14", "lifecycle=15", "lifecycle=16"]);
        check(&cite("api", "5.2, quirk 3"), &["api=5.2"]);
        check("the end of a sentence, aws 10.\nand another line: lifecycle  2", &["aws=10"]);
    }

    #[test]
    fn similar_texts_are_no_citations() {
        for text in ["whittle-aws 3.1", "k8s.aws 2", "savings 12.5%, disruption 4.4%", "aws 20s", "the api is 5", "aws v0.1.0", "map 1"] {
            check(text, &[]);
        }
    }

    #[test]
    fn a_citation_of_a_missing_section_is_reported() {
        let page = source("docs/rules/aws.md", "# Rules\n\n## 3.1 Types\n\nText.\n");
        let code = source("a/src/lib.rs", format!("//! A module.\n{}\n{}\n", cite("aws", "3.1"), cite("aws", "3.2")));
        let found = compare(&[code, page]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a/src/lib.rs:3: docs/rules/aws.md has no section for "), "{found:?}");
    }

    #[test]
    fn another_spelling_is_reported() {
        let page = source("docs/rules/aws.md", "# Rules\n\n## 3.1 Types\n");
        let code = source("a/src/lib.rs", format!("{}\n{}\n{}\n", cite("aws", "3.1"), cite("spec aws", "3.1"), "// (\u{a7}18)"));
        let found = compare(&[code, page]);
        let remedy = "cite a rule by its area and number alone";
        assert_eq!(found, [format!("a/src/lib.rs:2: {remedy}"), format!("a/src/lib.rs:3: {remedy}")]);
    }

    #[test]
    fn a_section_is_not_a_citation_of_its_parent() {
        let page = source("docs/rules/aws.md", "# Rules\n\n## 3 Types\n");
        let code = source("a/src/lib.rs", cite("aws", "3.1"));
        assert_eq!(compare(&[code, page]).len(), 2);
    }

    #[test]
    fn an_uncited_heading_is_reported() {
        let page = |text: String| source("docs/rules/api.md", format!("# Rules\n\n## 5 Pools\n\n{text}\n\n## 5.2 Checks\n\nText.\n"));
        let code = source("a/src/lib.rs", cite("api", "5"));
        let found = compare(&[code, page("Text.".to_owned())]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/rules/api.md: nothing cites "), "{found:?}");
        let code = source("a/src/lib.rs", cite("api", "5"));
        assert_eq!(compare(&[code, page(cite("api", "5.2"))]), found, "another rule's reference does not count");
    }

    #[test]
    fn a_rule_that_refers_to_a_missing_one_is_reported() {
        let page = source("docs/rules/api.md", format!("# Rules\n\n## 5 Pools\n\n{}\n", cite("aws", "99")));
        let found = compare(&[source("a/src/lib.rs", cite("api", "5")), page]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
