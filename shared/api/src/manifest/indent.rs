//! Likely causes of text that is not YAML, or only by accident: manifests pasted from a page whose
//! indentation is lost.

use super::ManifestError;
use crate::field::{FieldError, FieldPath};
use crate::yaml::{Mark, Node, YamlError};
use serde::de::IgnoredAny;
use std::path::Path;

/// The remedy if no cause is likely.
const UNKNOWN: &str = ": correct this line or the one above; brackets and quotes must be closed, and text with `: ` or ` #` in it, or that \
                       begins with one of `*&!|>%@[{`, needs quotes";

/// The remedy for what a program is to make manifests of.
const TEMPLATE: &str = ": the line looks like a template: render it first, as with `helm template`";

/// The same for what Terraform makes manifests of.
const TERRAFORM: &str = ": this looks like Terraform: give what it renders, as `templatefile` prints it in `terraform console`";

/// The remedy for JSON of several values, as jq prints what it selects.
const STREAM: &str = ": one value follows another: put them into a list, as with `jq -s '{apiVersion: \"v1\", kind: \"List\", items: .}'`";

/// The remedy for JSON without its end, as a command that was interrupted leaves it.
const CUT_OFF: &str = ": the text ends before this value does: save the whole of it again, or close its brackets";

/// The remedy for a line of YAML's braces or brackets that a program is to fill in.
const VARIABLE: &str = ": the line has a placeholder: fill it in first, as with `envsubst`";

/// The error for a text that cannot be parsed, with its likely cause.
pub(super) fn explain(file: &str, text: &str, error: &YamlError) -> ManifestError {
    let lines: Vec<&str> = text.lines().collect();
    // A map of YAML in braces has no quotes.
    let is_json = text.trim_start().strip_prefix('{').is_some_and(|inside| inside.trim_start().starts_with('"'));
    // To JSON its indentation means nothing.
    let (mark, cause) = if error.of_syntax && !is_json { cause(&lines, error.mark) } else { (error.mark, String::new()) };
    let at = mark.line.checked_sub(1).and_then(|index| lines.get(index));
    let is_template = at.is_some_and(|line| line.contains("{{"));
    let is_named_so = Path::new(file).extension().is_some_and(|extension| extension == "tf");
    let is_terraform = is_named_so || at.is_some_and(|line| line.trim_start().starts_with("%{"));
    let is_stream = is_json && error.message.contains("document start") && at.is_some_and(|line| line.trim_start().starts_with('{'));
    // The end of the last line is none of what was cut off, also within quotes.
    let is_cut_off = is_json && error.of_syntax && serde_json::from_str::<IgnoredAny>(text.trim_end()).is_err_and(|error| error.is_eof());
    // Outside of braces and brackets it is text like any other.
    let is_variable = error.message.contains("flow ") && at.is_some_and(|line| line.contains("${"));
    // What is too deep or too large has no line to correct.
    let is_told = !error.of_syntax || error.message.contains("limit");
    let cause = match cause.as_str() {
        "" if is_template => TEMPLATE,
        "" if is_terraform => TERRAFORM,
        "" if is_stream => STREAM,
        "" if is_cut_off => CUT_OFF,
        "" if is_variable => VARIABLE,
        "" if is_told || is_json => "",
        "" => UNKNOWN,
        cause => cause,
    };
    let message = format!("this is no {}: {}{cause}", if is_json { "JSON" } else { "YAML" }, error.message);
    ManifestError { file: file.to_owned(), document: error.document, mark: Some(mark), object: None, field: FieldPath::root(), message }
}

fn cause(lines: &[&str], mark: Mark) -> (Mark, String) {
    let Some(line) = mark.line.checked_sub(1).and_then(|index| lines.get(index)) else {
        return (mark, String::new());
    };
    let column = indent_of(line) + 1;
    if line[..line.len() - line.trim_start().len()].contains('\t') {
        return (mark, ": the line is indented with a tab; use blanks".to_owned());
    }
    let above = lines[..mark.line - 1].iter().rev().find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let Some(above) = above.filter(|_| is_entry(line)) else {
        return (mark, String::new());
    };
    let above_column = key_column(above);
    if above_column < column && is_entry(above) && !above.trim_end().ends_with(':') {
        let cause = format!(
            ": the line is indented deeper than {:?} above it, which has a value already. Likely the indentation was damaged when the text \
             was copied: put it below the first letter of that key (column {above_column})",
            above.trim()
        );
        return (Mark { line: mark.line, column }, cause);
    }
    (mark, String::new())
}

fn indent_of(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

/// Column of the first key of a line, dashes of list items skipped.
fn key_column(line: &str) -> usize {
    line.chars().take_while(|c| matches!(c, ' ' | '-')).count() + 1
}

/// Looks like `key: value` or `key:`.
fn is_entry(line: &str) -> bool {
    let line = line.trim().trim_start_matches("- ");
    line.ends_with(':') || line.contains(": ")
}

/// Detects an object whose fields are all at the top level: metadata or spec are empty, and their fields
/// follow.
pub(super) fn lost(node: &Node, repeated: &[FieldError]) -> Option<FieldError> {
    let hollow: Vec<&str> = ["metadata", "spec"].into_iter().filter(|key| node.get(key).is_some_and(Node::is_null)).collect();
    let strays = ["name", "requirements", "limits", "template", "subnetSelector", "subnetSelectorTerms", "providerRef"];
    let stray = strays.into_iter().find(|key| node.get(key).is_some())?;
    if hollow.is_empty() {
        return None;
    }
    let path = repeated.first().map_or_else(|| FieldPath::root().key(stray), |error| error.path.clone());
    let message = format!(
        "{} {} empty and fields such as {stray} stand at the top of the object. Likely the indentation was lost when the text was copied: \
         indent what belongs to metadata and to spec by two blanks",
        hollow.join(" and "),
        if hollow.len() == 1 { "is" } else { "are" }
    );
    Some(FieldError::new(path, message))
}
