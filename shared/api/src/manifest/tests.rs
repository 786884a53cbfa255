use super::*;

#[track_caller]
fn refused(text: &str) -> Vec<String> {
    read("f.yaml", text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn lists_are_opened_and_empty_documents_skipped() {
    let text = "---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n\
                apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: p, namespace: d}}]\n---\n{apiVersion: v1, kind: Service, metadata: {name: s}}\n";
    let objects = read("f.yaml", text).unwrap();
    let keys: Vec<_> = objects.iter().map(|object| (object.value.type_meta().1.to_owned(), object.value.key(), object.document)).collect();
    let expected = [("Node", "a", 2), ("Pod", "d/p", 3), ("Service", "s", 4)];
    assert_eq!(keys, expected.map(|(kind, key, document)| (kind.to_owned(), key.to_owned(), document)));
}

#[test]
fn s1_27_lost_indentation_is_recognised() {
    let errors = refused(include_str!("../../../../tests/seeds/001-provisioner-as-printed.txt"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("f.yaml:17:1: document 1, Provisioner, name:"), "{}", errors[0]);
    assert!(errors[0].contains("indentation was lost"), "{}", errors[0]);
}

#[test]
fn s4_11_damaged_indentation_is_recognised_at_the_first_key_that_is_too_deep() {
    let errors = refused(include_str!("../../../../tests/seeds/004-provisioner-as-printed.txt"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("f.yaml:10:11: document 1: this is no YAML"), "{}", errors[0]);
    assert!(errors[0].contains("indented deeper") && errors[0].contains("column 8"), "{}", errors[0]);
}

#[test]
fn what_is_no_object_says_what_an_object_is() {
    assert!(refused("just text")[0].contains("apiVersion, kind, metadata"));
    assert!(refused("kind: Pod")[0].contains("apiVersion and kind are needed"));
    assert!(refused("apiVersion: karpenter.sh/v1\nkind: Nodepool")[0].contains("no kind Nodepool"));
}

#[test]
fn errors_of_all_documents_are_listed_with_their_place() {
    let errors = refused("apiVersion: v1\nkind: Node\nmetadata: {labels: {a: 1}}\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: 5\n");
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("f.yaml:3:21: document 1, Node, metadata.labels.a: "), "{}", errors[0]);
    assert!(errors[1].starts_with("f.yaml:8:3: document 2, Pod, metadata.name: "), "{}", errors[1]);
}
