use super::*;
use serde_json::json;

#[track_caller]
fn check(text: &str, expected: Value) {
    let documents = documents(text).unwrap();
    assert_eq!(documents[0].to_json(), expected, "{text}");
    assert_eq!(documents[0].clone().into_json(), Some(expected), "{text}");
}

#[test]
fn a_key_twice_in_one_map_is_no_json_that_is_sent() {
    for text in ["a: 1\na: 1", "[{b: {a: 1, a: 2}}]", "{on: 1, true: 2}", "x: &x {a: 1}\ny: {a: 1, <<: *x, a: 2}"] {
        let document = documents(text).unwrap().remove(0);
        assert_eq!(document.into_json(), None, "{text}");
    }
    let twice = documents("{a: 1, b: 2, a: 3}").unwrap().remove(0);
    assert_eq!(twice.to_json(), json!({"a": 3, "b": 2}), "the last one wins where errors are told");
}

#[test]
fn plain_scalars_follow_yaml_1_1() {
    check("[on, yes, y, no, off, 'on', true]", json!([true, true, true, false, false, "on", true]));
    check("[010, 0o10, 0x1F, 1_0, 1e1, 10.0, 1.5, -3, +5]", json!([8, 8, 31, 10, 10, 10, 1.5, -3, 5]));
    check("[2026-01-01, 1.2.3, 0x, 09, 10Gi, ~, null, '']", json!(["2026-01-01", "1.2.3", "0x", 9, "10Gi", null, null, ""]));
    check("[!!str 5, !!int '7', \"5\"]", json!(["5", 7, "5"]));
    check("{on: 1, 5: x}", json!({"true": 1, "5": "x"}));
}

#[test]
fn anchors_and_merge_keys_are_resolved_and_own_keys_take_precedence() {
    check("a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, k: 3}", json!({"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 2}, "c": {"k": 3, "l": 2}}));
}

#[test]
fn a_merge_key_without_fields_to_merge_is_an_error_and_one_in_quotes_is_a_key() {
    for text in ["a: {<<: foo}", "a: {<<: [{b: 1}, c]}", "x: &x 1\ny:\n  <<: *x\n"] {
        let error = documents(text).unwrap_err();
        assert!(error.message.starts_with("a merge key (<<) needs a map") && !error.of_syntax, "{text}: {error}");
    }
    check("a: 1\n<<:\n", json!({"a": 1}));
    check("{<<: [{a: 1}, {a: 2, b: 3}], c: <<}", json!({"a": 1, "b": 3, "c": "<<"}));
    check(r#"{"<<": {a: 1}, b: {'<<': c}}"#, json!({"<<": {"a": 1}, "b": {"<<": "c"}}));
}

#[test]
fn what_has_a_tag_that_json_does_not_know_is_text() {
    check("[!foo 5, ! yes, !!timestamp 2026, !!str ~]", json!(["5", "yes", "2026", "~"]));
}

/// By sigs.k8s.io/yaml, which kubectl reads manifests with.
#[test]
fn what_is_tagged_as_binary_is_decoded_and_other_base64_is_not() {
    check("- !!binary aGk=\n- !!binary 'aGk='\n- !<tag:yaml.org,2002:binary> aGk=\n- aGk=", json!(["hi", "hi", "hi", "aGk="]));
    check("a: !!binary |\n  aG\n  k=\n!!binary aGk=: 1", json!({"a": "hi", "hi": 1}));
    check("[!!binary aGl=, !!binary '', !!binary 0x10, !!binary 4oJh]", json!(["hi", "", "\u{fffd}\u{1d}t", "\u{fffd}\u{fffd}a"]));
    for text in ["a: !!binary aGk", "a: !!binary aGk==", "a: !!binary a b="] {
        let error = documents(text).unwrap_err();
        assert!(error.message.contains("is no base64") && !error.of_syntax, "{text}: {error}");
    }
}

#[test]
fn infinities_are_no_numbers_however_they_are_written() {
    for word in [".inf", ".INF", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF", ".NaN"] {
        assert!(documents(&format!("a: {word}")).is_err(), "{word}");
    }
}

#[test]
fn each_document_may_begin_with_a_byte_order_mark() {
    let all = documents("\u{feff}a: 1\n---\n\u{feff}b: 2\n\u{feff}---\nc: 3\n").unwrap();
    assert_eq!(all.iter().map(Node::to_json).collect::<Vec<_>>(), [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})]);
}

#[test]
fn every_node_has_its_position() {
    let document = documents("# top\na:\n  - b: 1\n    c: 2\n").unwrap().remove(0);
    let item = document.get("a").unwrap().item(0).unwrap();
    assert_eq!(item.key_mark("c"), Some(Mark { line: 4, column: 5 }));
}

#[test]
fn documents_are_separated_and_empty_ones_kept() {
    let all = documents("a: 1\n---\n---\n# nothing\n---\nb: 2\n").unwrap();
    assert_eq!(all.iter().map(Node::to_json).collect::<Vec<_>>(), [json!({"a": 1}), json!(null), json!(null), json!({"b": 2})]);
}

#[test]
fn excessive_nesting_and_aliases_are_rejected_and_not_expanded() {
    let deep = "[".repeat(5000);
    assert!(documents(&deep).is_err());
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let refs = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
    }
    assert!(documents(&bomb).unwrap_err().message.contains("aliases"));
    assert!(documents("a: *nowhere").is_err());
    // Of each anchored value there is a copy, with all that is in it.
    let anchored = |depth: usize| format!("{}[{}]{}", "[&a ".repeat(depth), "x, ".repeat(20_000), "]".repeat(depth));
    assert!(documents(&anchored(60)).unwrap_err().message.contains("anchors (&) stand before more than"));
    assert!(documents(&format!("{}\n---\n{}", anchored(30), anchored(30))).is_ok());
}
