//! Files that are one YAML mapping, as values of a chart and scenarios are.

use serde_json::Value;

/// What a file is that should be a mapping; `None` if it is one, or no YAML, which its reader explains better.
pub(crate) fn other(text: &str) -> Option<&'static str> {
    let documents = documents(text)?;
    let mut values = documents.iter().filter(|value| !value.is_null()).peekable();
    if values.peek().is_none() {
        return Some("is empty");
    }
    values.find_map(|value| match value {
        Value::Object(_) => None,
        Value::Array(_) => Some("is a list"),
        _ => Some("is a single value"),
    })
}

/// Whether a file can be read as YAML.
pub(crate) fn is_yaml(text: &str) -> bool {
    documents(text).is_some()
}

/// Whether an object of Kubernetes is in a file.
pub(crate) fn is_manifest(text: &str) -> bool {
    let has = |value: &Value, key: &str| value.get(key).is_some_and(Value::is_string);
    documents(text).is_some_and(|documents| documents.iter().any(|value| has(value, "apiVersion") && has(value, "kind")))
}

/// The documents of a file that is YAML.
fn documents(text: &str) -> Option<Vec<Value>> {
    serde_saphyr::from_multiple(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_mapping_is_told_from_one_that_is() {
        for empty in ["", "\n", "# a comment\n", "---\n# nothing\n...\n", "null\n"] {
            assert_eq!(other(empty), Some("is empty"), "{empty:?}");
        }
        assert_eq!([other("[]"), other("- a\n"), other("7")], [Some("is a list"), Some("is a list"), Some("is a single value")]);
        assert_eq!([other("a: 1\n---\n[]\n"), other("---\n---\n7\n")], [Some("is a list"), Some("is a single value")]);
        assert_eq!([other("a: 1\n"), other("# said\na: {b: [1]}\n"), other("---\na: 1\n---\n"), other("a: [")], [None; 4]);
    }

    #[test]
    fn only_what_has_a_version_and_a_kind_is_a_manifest() {
        assert!(is_manifest("apiVersion: v1\nkind: List\nitems: []\n"));
        assert!(is_manifest("a: 1\n---\napiVersion: v1\nkind: Pod\n"));
        for no in ["kind: x\n", "settings: {clusterName: shop}\n", "[]", ""] {
            assert!(!is_manifest(no), "{no}");
        }
    }
}
