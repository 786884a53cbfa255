//! Checks that texts quoted in the runbooks occur in the sources, so that they can be found in a log, and that every alarm
//! has a heading.

use crate::workspace;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = "docs/runbooks.md";
const TEMPLATE: &str = "template.yaml";

/// Sources of quoted texts.
const SOURCES: &[&str] = &["functions/", "shared/", "watcher/", "cli/", "infra/", TEMPLATE];

/// Beginnings of commands that the reader runs.
const COMMANDS: &[&str] = &["aws ", "kubectl", "whittle ", "sam ", "openssl "];

/// Texts of other programs, with their origin.
const FOREIGN: &[(&str, &str)] = &[
    ("/whittle/STACK/FUNCTION", "a log group with placeholders"),
    ("Task timed out", "Lambda's own line"),
    ("Throttles", "Lambda's metric"),
    ("Duration", "Lambda's metric"),
    ("Max Memory Used", "Lambda's own line"),
    ("Url4xxCount", "Lambda's metric"),
    ("requestPayload", "a field of Lambda's records of failed events"),
    ("responsePayload", "a field of Lambda's records of failed events"),
    ("requestContext.condition", "a field of Lambda's records of failed events"),
    ("EventAgeExceeded", "Lambda's condition"),
    ("ERROR_CODE", "an attribute of EventBridge's messages"),
    ("Runtime.InvalidEntrypoint", "Lambda's own line"),
    ("exec format error", "Linux"),
    ("ApproximateNumberOfNoisyGroups", "SQS' metric"),
    ("ApproximateAgeOfOldestMessageInQuietGroups", "SQS' metric"),
    ("RequestLimitExceeded", "EC2's code"),
    ("UnauthorizedOperation", "EC2's code"),
    ("encoded authorization failure message", "EC2's message"),
    ("invalid peer certificate", "the TLS library"),
    ("failed calling webhook", "the API server's message"),
    ("L-B99A9384", "the number of a quota"),
    ("EC2_LINUX", "a type of EKS access entries"),
    ("SWEEP_FUNCTION", "a variable of the page's own commands"),
];

/// One sentence for each quotation that occurs in no source, and for each alarm without a heading.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("{PAGE} cannot be read"))?;
    let mut sources = Vec::new();
    for name in workspace::files(root)?.iter().filter(|name| SOURCES.iter().any(|start| name.starts_with(start)) && !is_test(name)) {
        if let Ok(text) = std::fs::read_to_string(root.join(name)) {
            sources.push(normal(name, &text));
        }
    }
    let template = std::fs::read_to_string(root.join(TEMPLATE)).with_context(|| format!("{TEMPLATE} cannot be read"))?;
    let mut found = missing(&page, &sources, |path| root.join(path).exists());
    found.extend(alarms_without_heading(&page, &template));
    Ok(found)
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("tests.rs") || name.ends_with(".md")
}

/// A source without its tests, and with continued string literals joined.
fn normal(name: &str, text: &str) -> String {
    let text = if name.ends_with(".rs") { text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default() } else { text };
    let mut whole = String::new();
    for line in text.lines() {
        match line.strip_suffix('\\') {
            Some(start) if whole.ends_with('\u{0}') => replace_end(&mut whole, start.trim_start()),
            Some(start) => whole.push_str(start),
            None if whole.ends_with('\u{0}') => replace_end(&mut whole, line.trim_start()),
            None => whole.push_str(line),
        }
        // Marks a string literal that continues.
        whole.push(if line.ends_with('\\') { '\u{0}' } else { '\n' });
    }
    whole
}

fn replace_end(whole: &mut String, line: &str) {
    whole.pop();
    whole.push_str(line);
}

/// Inline code outside of fences; a span does not cross lines.
fn quotations(page: &str) -> BTreeSet<&str> {
    let outside = page.split("```").step_by(2);
    outside.flat_map(str::lines).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Quotations that occur in no source. `…` matches any text.
fn missing(page: &str, sources: &[String], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let in_order = |source: &String, quoted: &str| {
        let mut rest = source.as_str();
        quoted.split('…').map(str::trim).filter(|piece| !piece.is_empty()).all(|piece| match rest.split_once(piece) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    };
    let known = |quoted: &str| {
        COMMANDS.iter().any(|command| quoted.starts_with(command))
            || FOREIGN.iter().any(|(text, _)| *text == quoted)
            || exists(quoted)
            || sources.iter().any(|source| in_order(source, quoted))
    };
    let unknown = quotations(page).into_iter().filter(|quoted| !known(quoted));
    unknown
        .map(|quoted| {
            format!(
                "{PAGE}: nothing says `{quoted}`; quote what is logged (… for what differs), or name who says it in xtask/src/runbook_quotations.rs"
            )
        })
        .collect()
}

/// Alarms of the template without a heading; `…Alarm` in a heading matches all alarms with this ending.
fn alarms_without_heading(page: &str, template: &str) -> Vec<String> {
    let headings: BTreeSet<&str> = page.lines().filter(|line| line.starts_with('#')).flat_map(quotations).collect();
    let alarms = template.lines().filter_map(|line| line.strip_prefix("  ")?.strip_suffix("Alarm:")).filter(|name| !name.starts_with(' '));
    let has_heading =
        |alarm: &str| headings.iter().any(|heading| heading.strip_prefix('…').map_or(*heading == alarm, |end| alarm.ends_with(end)));
    let names = alarms.map(|name| format!("{name}Alarm")).filter(|alarm| !has_heading(alarm));
    names.map(|alarm| format!("{PAGE}: no heading names {alarm}; say what it means and what to do")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str, source: &str) -> Vec<String> {
        missing(page, &[normal("a.rs", source)], |path| path == "infra/cluster").into_iter().collect()
    }

    #[test]
    fn a_quotation_that_occurs_in_no_source_is_reported() {
        let source = "warn!(\"the work stopped\");\n#[cfg(test)]\nmod tests {\n\"only a test says this\"";
        assert_eq!(found("`the work stopped`, `infra/cluster` and `aws sqs x`", source), Vec::<String>::new());
        assert_eq!(found("`Task timed out`", source), Vec::<String>::new());
        for page in ["`no cluster of that name`", "`only a test says this`"] {
            assert_eq!(found(page, source).len(), 1, "{page}");
        }
        assert_eq!(found("```sh\n`of no interest`\n```\n", source), Vec::<String>::new());
    }

    #[test]
    fn variable_parts_of_quotations_are_ignored() {
        let source = "#[error(\"cluster {0} is not served here: add it to \\\n      the parameter {1}\")]";
        assert_eq!(found("`cluster … is not served here: add it to the parameter …`", source), Vec::<String>::new());
        assert_eq!(found("`is not served here … cluster`", source).len(), 1, "the order counts");
    }

    #[test]
    fn an_alarm_without_a_heading_is_reported() {
        let template = "Resources:\n  PlanAgeAlarm:\n    Type: x\n  SweepSilentAlarm:\n    NestedAlarm:\n";
        assert_eq!(alarms_without_heading("## Queue (`…AgeAlarm`)\n## Tick (`SweepSilentAlarm`)\n", template), Vec::<String>::new());
        let found = alarms_without_heading("## Queue (`…AgeAlarm`)\ntext with `SweepSilentAlarm`\n", template);
        assert!(found.len() == 1 && found[0].contains("SweepSilentAlarm"), "{found:?}");
    }
}
