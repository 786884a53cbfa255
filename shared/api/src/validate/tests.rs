use super::*;
use crate::{manifest, yaml};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/api")
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The errors of a golden case: of an object, or of replacing the first by the second.
fn faults(documents: &[Value]) -> Vec<FieldError> {
    let last = documents.last().unwrap();
    match documents {
        [old, new] => update(word(last, "apiVersion"), word(last, "kind"), old, new),
        _ => document(word(last, "apiVersion"), word(last, "kind"), last),
    }
}

/// The difference to the server's response; `None` if there is none.
fn difference(text: &str, expected: &Value) -> Option<String> {
    let documents: Vec<Value> = yaml::documents(text).unwrap().iter().map(yaml::Node::to_json).collect();
    let last = documents.last().unwrap();
    let errors = faults(&documents);
    let expected = if expected["main"].is_object() { &expected["main"] } else { expected };
    let accepted = errors.is_empty() && (documents.len() == 2 || manifest::read("f", text).is_ok());
    if expected["accepted"] != accepted {
        return Some(format!("accepted: {} expected; {errors:?}", expected["accepted"]));
    }
    if accepted {
        let ours = defaulted(word(last, "apiVersion"), word(last, "kind"), last).unwrap_or(Value::Null);
        return (ours != expected["defaulted"]).then(|| format!("defaulted: {ours}\n  expected {}", expected["defaulted"]));
    }
    let ours: BTreeSet<String> = errors.iter().map(|error| error.path.to_string()).collect();
    let theirs: BTreeSet<String> =
        expected["fields"].as_array().unwrap().iter().map(|field| field.as_str().unwrap().trim_start_matches('.').to_owned()).collect();
    // A server with strict decoding stops at unknown fields; we continue, and suggest the nearest known field.
    if expected["message"].as_str().unwrap().contains("strict decoding error") {
        let named = |field: &String| ours.iter().any(|own| field.starts_with(own));
        return (!theirs.iter().all(named)).then(|| format!("fields: {ours:?}, expected {theirs:?}"));
    }
    (ours != theirs).then(|| format!("fields: {ours:?}, expected {theirs:?}; {errors:?}"))
}

#[test]
fn manifests_are_validated_as_by_a_real_api_server() {
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(golden().join("expected.json")).unwrap()).unwrap();
    let mut differences = Vec::new();
    for (name, expected) in expected.as_object().unwrap() {
        let text = std::fs::read_to_string(golden().join(format!("{name}.yaml"))).unwrap();
        if let Some(difference) = difference(&text, expected) {
            differences.push(format!("{name}: {difference}"));
        }
    }
    assert_eq!(expected.as_object().unwrap().len(), 316);
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn s3_12_all_errors_of_the_printed_selector_terms_are_reported() {
    let text = include_str!("../../../../tests/seeds/003-ec2nodeclass-selector-terms-as-printed.yaml");
    let errors: Vec<String> = manifest::read("f.yaml", text).unwrap_err().iter().map(ToString::to_string).collect();
    let all = errors.join("\n");
    for part in [
        "amiSelectorTerms[0].owner: text is needed",
        "amiSelectorTerms[1].owner",
        "securityGroupSelectorTerms[0].id: \"abc-123\"",
        "id excludes tags",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    assert!(errors[0].starts_with("f.yaml:16:5: document 1, EC2NodeClass \"default\", spec.amiSelectorTerms[0].owner"), "{all}");
}

#[test]
fn the_error_of_an_unknown_field_suggests_the_intended_one() {
    let pool =
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {"templates": {}, "weigth": 1}});
    let errors = document("karpenter.sh/v1", "NodePool", &pool);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(texts.iter().any(|text| text == "spec.weigth: there is no such field; did you mean weight?"), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("spec.template: missing")), "{texts:?}");
}
