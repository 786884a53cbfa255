use super::*;

#[track_caller]
fn refused(text: &str) -> Vec<String> {
    read("f.yaml", text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn objects_of(text: &str) -> Vec<Located<Object>> {
    read("f.yaml", text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[test]
fn lists_are_expanded_and_empty_documents_skipped() {
    let text = "---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n\
                apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: p, namespace: d}}]\n---\n{apiVersion: v1, kind: Service, metadata: {name: s}}\n";
    let objects = read("f.yaml", text).unwrap();
    let keys: Vec<_> = objects.iter().map(|object| (object.value.type_meta().1.to_owned(), object.value.key(), object.document)).collect();
    let expected = [("Node", "a", 2), ("Pod", "d/p", 3), ("Service", "s", 4)];
    assert_eq!(keys, expected.map(|(kind, key, document)| (kind.to_owned(), key.to_owned(), document)));
}

/// Kustomize gives every object of a kind that it does not know a namespace; a server stores those of cluster-wide kinds without it.
#[test]
fn an_object_of_a_cluster_wide_kind_has_no_namespace_whatever_it_says() {
    let spec = "spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}, requirements: []}}}";
    let pool = format!("{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: a, namespace: karpenter}}, {spec}}}");
    let old = "{apiVersion: karpenter.sh/v1alpha5, kind: Provisioner, metadata: {name: a, namespace: karpenter}, \
               spec: {providerRef: {name: a}}}";
    let others = ["v1\nkind: Node", "storage.k8s.io/v1\nkind: StorageClass", "scheduling.k8s.io/v1\nkind: PriorityClass"]
        .map(|kind| format!("apiVersion: {kind}\nmetadata: {{name: a, namespace: karpenter}}\n"));
    for text in [pool.as_str(), old].into_iter().chain(others.iter().map(String::as_str)) {
        assert_eq!(objects_of(text)[0].value.key(), "a", "{text}");
    }
    // What is in a namespace stays there, and so does what nobody knows here.
    for kind in ["v1\nkind: Pod", "autoscaling.x-k8s.io/v1\nkind: ProvisioningRequest", "example.com/v1\nkind: Team"] {
        let objects = objects_of(&format!("apiVersion: {kind}\nmetadata: {{name: a, namespace: b}}\n"));
        assert_eq!(objects[0].value.key(), "b/a", "{kind}");
    }
    // A server does not decode a number in its place.
    assert!(read("f.yaml", &pool.replace("namespace: karpenter", "namespace: 5")).is_err());
}

#[test]
fn s1_27_lost_indentation_is_detected() {
    let errors = refused(include_str!("../../../../tests/seeds/001-provisioner-as-printed.txt"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("f.yaml:17:1: document 1, Provisioner, name:"), "{}", errors[0]);
    assert!(errors[0].contains("indentation was lost"), "{}", errors[0]);
}

#[test]
fn what_is_yaml_and_cannot_be_an_object_is_not_called_a_matter_of_quotes_or_indentation() {
    let told = |text: &str| read("a.yaml", text).unwrap_err()[0].to_string();
    assert!(told("a: .nan\n").ends_with("quote it if text is meant"), "{}", told("a: .nan\n"));
    let recursive = "a: &a\n  b: *a\n";
    assert!(told(recursive).ends_with("write the value out"), "{}", told(recursive));
    assert!(told("a: [1\n").contains("brackets and quotes must be closed"));
}

#[test]
fn what_terraform_is_to_render_is_told_as_such() {
    let told = |file: &str, text: &str| read(file, text).unwrap_err()[0].to_string();
    let template = "apiVersion: karpenter.sh/v1\nkind: NodePool\nspec:\n%{ for size in sizes ~}\n  weight: 1\n%{ endfor ~}\n";
    assert!(told("pool.yaml", template).contains(":4:1: document 1: this is no YAML"), "{}", told("pool.yaml", template));
    assert!(told("pool.yaml", template).contains("looks like Terraform"), "{}", told("pool.yaml", template));
    let configuration = "resource \"kubectl_manifest\" \"pool\" {\n  yaml_body = <<-YAML\n    kind: NodePool\n  YAML\n}\n";
    assert!(told("main.tf", configuration).contains("looks like Terraform"), "{}", told("main.tf", configuration));
    assert!(!told("pool.yaml", "a: [1\n").contains("Terraform"));
}

#[test]
fn json_without_its_end_is_told_as_such_and_not_as_a_matter_of_indentation() {
    let whole = "{\"apiVersion\": \"v1\",\n \"kind\": \"List\",\n \"items\": [\n  {\"apiVersion\": \"v1\", \"kind\": \"Pod\"}\n ]\n}\n";
    let told = |text: &str| read("dump.json", text).unwrap_err()[0].to_string();
    for end in ["Li", "items", "[\n", "{\"api", "\"kind\": \"Pod\"}", "\n ]"] {
        let cut = &whole[..whole.rfind(end).unwrap() + end.len()];
        let told = told(cut);
        assert!(told.contains("this is no JSON: ") && told.ends_with("save the whole of it again, or close its brackets"), "{cut}: {told}");
    }
    // Nor is the end of a line, which a file may have after the place where it was cut off.
    assert!(told("{\"apiVersion\": \"v1\", \"kin\n").ends_with("close its brackets"));
    // What is wrong elsewhere has an end.
    let comma = told(&whole.replace("\"List\",", "\"List\""));
    assert!(comma.contains("this is no JSON: ") && !comma.contains("ndentation") && !comma.contains("whole"), "{comma}");
}

#[test]
fn a_placeholder_in_braces_is_told_to_be_filled_in() {
    let told = |text: &str| read("pool.yaml", text).unwrap_err()[0].to_string();
    for text in ["metadata: {name: ${NAME}}\n", "kind: NodePool\nvalues: [${ZONE}]\n"] {
        assert!(told(text).ends_with("has a placeholder: fill it in first, as with `envsubst`"), "{}", told(text));
    }
    assert!(!told("metadata: {name: a\nspec: {}\n").contains("placeholder"));
}

#[test]
fn s4_11_wrong_indentation_is_reported_at_the_first_key_that_is_too_deep() {
    let errors = refused(include_str!("../../../../tests/seeds/004-provisioner-as-printed.txt"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("f.yaml:10:11: document 1: this is no YAML"), "{}", errors[0]);
    assert!(errors[0].contains("indented deeper") && errors[0].contains("column 8"), "{}", errors[0]);
}

#[test]
fn a_document_that_is_no_object_is_an_error_with_a_remedy() {
    assert!(refused("just text")[0].contains("apiVersion, kind, metadata"));
    assert!(refused("kind: Pod")[0].contains("apiVersion and kind are needed"));
    assert!(refused("apiVersion: karpenter.sh/v1\nkind: Nodepool")[0].contains("no kind Nodepool"));
}

/// `jq '.items'` and `jq '.items[]'` of a dump, and what lies beside manifests in a directory.
#[test]
fn what_people_give_for_a_manifest_is_an_error_that_says_how_to_make_one_of_it() {
    let pod = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}";
    let list = "{apiVersion: \"v1\", kind: \"List\", items: .}";
    let lines = pod.replace("{\"apiVersion", "{\n  \"apiVersion").replace("}}", "}\n}\n");
    for stream in [format!("{pod}\n{pod}\n"), lines.repeat(2)] {
        let errors = refused(&stream);
        assert!(
            errors.len() == 1 && errors[0].contains("this is no JSON") && errors[0].ends_with(&format!("jq -s '{list}'`")),
            "{errors:?}"
        );
    }
    assert!(!refused(&format!("{{\"a\": [{pod}")).join("").contains("jq"), "a dump that ends early has one value");
    let alone = refused(&format!("[{pod}]"));
    assert!(alone[0].ends_with(&format!("jq '{list}'`")), "{alone:?}");
    for patch in ["- {op: remove, path: /spec/limits}\n", "[{\"op\": \"add\", \"path\": \"/spec/weight\", \"value\": 1}]"] {
        let errors = refused(patch);
        assert!(errors.len() == 1 && errors[0].contains("this is a JSON patch (RFC 6902)") && !errors[0].contains("jq"), "{errors:?}");
    }

    let told = |file: &str, text: &str| read(file, text).unwrap_err()[0].to_string();
    assert!(told("base/kustomization.yaml", "resources: [a.yaml]\n").ends_with("give what `kubectl kustomize DIRECTORY` prints"));
    assert!(told("Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n").ends_with("give what `helm template` prints"));
    assert!(told("chart/values.yaml", "replicas: 2\n").ends_with("give what `helm template` prints"));
    assert!(told("values.yaml", "settings: {}\n").contains("whittle check --values"), "those of Karpenter's chart");
    assert!(told("my-values.yaml", "replicas: 2\n").contains("apiVersion and kind are needed"));
    assert!(read("kustomization.yaml", pod).is_ok(), "a manifest is one, whatever its file is called");
}

#[test]
fn what_kubectl_says_to_people_is_told_from_a_manifest() {
    for (text, wanted) in [
        ("NAME   READY   STATUS\nweb-1  0/1     Pending\n", "this is a table for people"),
        ("NAMESPACE   NAME   READY\ndefault     web-1  0/1\n", "give what `kubectl get -o yaml` prints"),
        ("Error from server (NotFound): pods \"web\" not found\n", "this is an error of a command"),
        ("error: the server doesn't have a resource type \"nodepools\"\n", "repeat the command until it succeeds"),
        ("No resources found in default namespace.\n", "kubectl found no object"),
    ] {
        let errors = refused(text);
        assert!(matches!(&errors[..], [one] if one.contains(wanted)), "{errors:?}");
    }
    for other in ["NAMES\n", "name: a\nerror: b\n", "error: b\nname: a\n", "Errors\n"] {
        assert!(!refused(other)[0].contains("kubectl") && !refused(other)[0].contains("an error of"), "{other}");
    }
    assert!(read("f.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: error}\nerror: a\n").is_ok());
}

#[test]
fn an_item_that_is_no_object_is_an_error_that_names_its_list_and_place() {
    let list = |items: &str| refused(&format!("apiVersion: v1\nkind: PodList\nitems: [{items}]\n"));
    let pod = "{metadata: {name: a}, spec: {containers: [{name: c}]}}";
    for (item, at) in [("null", 0), ("5", 1), ("[]", 1)] {
        let errors = list(&if at == 0 { format!("{item}, {pod}") } else { format!("{pod}, {item}") });
        assert!(matches!(&errors[..], [one] if one.contains(&format!("PodList, items[{at}]: {item} is no object"))), "{errors:?}");
    }
    let read = documents("f.yaml", &format!("apiVersion: v1\nkind: PodList\nitems: [null, {pod}]\n"));
    assert!(matches!(&read[..], [Err(_), Ok(pod)] if pod.key() == "a"), "the others are read: {read:?}");
    assert!(objects_of("null\n---\n").is_empty(), "a document without a word is none");
}

#[test]
fn null_is_as_absent_in_every_field() {
    let node = |rest: &str| objects_of(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: a, labels: {{b: null}}}}\n{rest}"));
    let bare = objects_of("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n");
    for rest in ["spec: null\nstatus: null\n", "spec: {unschedulable: null, taints: null}\n", "status: {capacity: {cpu: null}}\n"] {
        assert_eq!(node(rest)[0].value, bare[0].value, "{rest}");
    }
    assert!(refused("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [null]}\n")[0].contains("spec.containers[0]"));
}

#[test]
fn no_word_of_an_object_ends_a_line_of_a_message() {
    let forged = r#""a\nerror: all is lost\u2028\u202e""#;
    let object = |version: &str, kind: &str, metadata: &str| format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{{metadata}}}\n");
    for (text, field) in [
        (object(forged, "Pod", "name: a"), "apiVersion"),
        (object("v1", forged, "name: a"), "kind"),
        (object("karpenter.sh/v1", forged, "name: a"), "kind"),
        (object("batch/v1", "CronJob", &format!("name: {forged}")), "metadata.name"),
        (object("v1", "Pod", &format!("generateName: {forged}")), "metadata.generateName"),
        (object("example.com/v1", "Team", &format!("name: a, namespace: {forged}")), "metadata.namespace"),
    ] {
        let errors = refused(&text);
        let wanted = format!("document 1, {field}: \"a\\nerror: all is lost");
        assert!(matches!(&errors[..], [one] if one.contains(&wanted) && words::is_printable(one)), "{errors:?}");
    }
    let pool = format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a, labels: {{{forged}: {forged}}}}}\nspec: {{{forged}: 1}}\n"
    );
    let errors = refused(&pool);
    assert!(errors.len() > 2 && errors.iter().all(|error| words::is_printable(error)), "{errors:?}");
}

#[test]
fn errors_of_all_documents_are_listed_with_their_position() {
    let errors = refused("apiVersion: v1\nkind: Node\nmetadata: {labels: {a: 1}}\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: 5\n");
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("f.yaml:3:21: document 1, Node, metadata.labels.a: "), "{}", errors[0]);
    assert!(errors[1].starts_with("f.yaml:8:3: document 2, Pod, metadata.name: "), "{}", errors[1]);
}

#[test]
fn of_several_documents_none_is_taken_for_the_only_one() {
    assert_eq!(json_of("a: on\n... # end\n"), Some(serde_json::json!({"a": true})));
    assert_eq!(json_of("# nothing\n"), Some(Value::Null));
    for several in ["a: 1\n... # end\nb: 2\n", "a: 1\n---\nb: 2\n"] {
        assert_eq!(json_of(several), None, "{several}");
    }
}

#[test]
fn objects_without_a_line_between_them_are_told_what_is_missing() {
    let node = |name: &str| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n");
    let pool = "kind: NodePool\napiVersion: karpenter.sh/v1\nmetadata: {name: a}\nspec: {}\n";
    for (text, place) in [
        (node("a") + &node("b"), "f.yaml:4:1: document 1, Node \"b\", apiVersion: "),
        (node("a") + &node("b") + &node("c"), "f.yaml:7:1: document 1, Node \"c\", apiVersion: "),
        (format!("# one\n---\n{pool}{}", node("b")), "f.yaml:7:1: document 1, Node \"b\", apiVersion: "),
    ] {
        let wanted = format!("{place}{NEXT_OBJECT}");
        assert_eq!(refused(&text), [wanted], "{text}");
    }
    // Of two lists, as `kubectl get -o yaml >> FILE` joins them, none is left out without a word; nor is what stands before a list.
    let list = |name: &str| {
        let item = format!("- apiVersion: v1\n  kind: Node\n  metadata: {{name: {name}}}\n");
        format!("apiVersion: v1\nitems:\n{item}kind: List\nmetadata: {{resourceVersion: \"\"}}\n")
    };
    for (text, line) in [(list("a") + &list("b"), 8), (node("a") + &list("b"), 4)] {
        let wanted = format!("f.yaml:{line}:1: document 1, List, apiVersion: {NEXT_OBJECT}");
        assert_eq!(refused(&text), std::slice::from_ref(&wanted), "{text}");
        let found = documents("f.yaml", &text);
        assert!(matches!(&found[..], [Err(error)] if error.to_string() == wanted), "{text}");
    }
    let twice = refused(r#"{"kind": "List", "apiVersion": "v1", "items": [], "items": []}"#);
    assert!(matches!(&twice[..], [one] if one.contains("List, items: the key stands twice in one map")), "{twice:?}");
    let twice = refused("apiVersion: v1\nkind: List\nitems: []\nmetadata:\n  a: 1\n  a: 2\n");
    assert!(matches!(&twice[..], [one] if one.starts_with("f.yaml:6:3: document 1, List, metadata.a: the key stands twice")), "{twice:?}");
    assert_eq!(objects_of(&(list("a") + "---\n" + &list("b"))).len(), 2);
    // In braces it is one object, and so it is with one of the two alone.
    for one in [
        "{apiVersion: v1, kind: Node, metadata: {name: a},\n apiVersion: v1, kind: Node}\n",
        "{\napiVersion: v1,\nkind: Node,\nmetadata: {name: a},\napiVersion: v1,\nkind: Node}\n",
        "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nkind: Node\n",
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n  apiVersion: v1\n  kind: Node\n",
    ] {
        let errors = refused(one);
        assert!(errors.iter().all(|error| error.contains("the key stands twice in one map, first in line ")), "{errors:?}");
    }
}

#[test]
fn a_list_that_is_too_long_hides_no_error_inside_it() {
    let pool = |requirements: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\nspec: {{template: {{spec: {{requirements: {requirements}, \
             nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}}}}}}}\n"
        )
    };
    let good = "{key: example.com/a, operator: Exists}";
    let errors =
        refused(&pool(&format!("[{}{{key: b, operator: Near}}, {{key: c, operator: Exists, note: x}}]", format!("{good}, ").repeat(99))));
    for part in
        ["requirements: 101 elements are too many", "requirements[99].operator: \"Near\" is none of", "requirements[100].note: there is no"]
    {
        assert!(errors.iter().any(|error| error.contains(part)), "{part} in {errors:?}");
    }
    // What stands in the place of a list is one error.
    let errors = refused(&pool("{a: 1, b: 2}"));
    assert!(errors.len() == 1 && errors[0].contains("requirements: a list is needed here, not an object"), "{errors:?}");
}

#[test]
fn what_stands_in_the_place_of_a_list_is_told_how_it_becomes_one() {
    let refused_pool = |spec: &str| {
        refused(&format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\nspec: {{template: {{spec: {{nodeClassRef: {{group: \
             karpenter.k8s.aws, kind: EC2NodeClass, name: a}}, {spec}}}}}}}\n"
        ))
    };
    let spot = "requirements: [{key: karpenter.sh/capacity-type, operator: In, values: spot}]";
    for (spec, wanted) in [
        (spot, "requirements[0].values: a list is needed here, not \"spot\": write it in brackets, as [\"spot\"]"),
        ("requirements: [{key: a, operator: Gt, values: 2}]", "values: a list is needed here, not 2: write it in brackets, as [\"2\"]"),
        (
            "requirements: [], taints: {key: a, effect: NoSchedule}",
            "taints: a list is needed here, not an object: put a dash before its first field",
        ),
        ("requirements: spot", "requirements: a list is needed here, not \"spot\""),
    ] {
        let errors = refused_pool(spec);
        assert!(errors.iter().any(|error| error.ends_with(wanted)), "{wanted} in {errors:?}");
    }
}

mod any_input {
    use super::super::*;
    use crate::legacy::{ConvertOptions, Purpose, convert};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const SEEDS: &[&str] = &[
        include_str!("../../../../tests/seeds/001-awsnodetemplate-fields.yaml"),
        include_str!("../../../../tests/seeds/003-nodepool-v1beta1.yaml"),
        include_str!("../../../../tests/seeds/003-state-alpha.yaml"),
        include_str!("../../../../tests/golden/api/002-pool-every-field.yaml"),
        include_str!("../../../../tests/golden/api/172-class-every-field.yaml"),
        include_str!("../../../../tests/seeds/002-aws-auth-as-printed.yaml"),
    ];

    /// Fragments of YAML that are inserted or replace something.
    fn scrap() -> impl Strategy<Value = String> {
        let words = [
            "",
            "null",
            "- ",
            "  ",
            "\n",
            ": ",
            "[",
            "}",
            "&a ",
            "*a",
            "<<: *a",
            "-1",
            "9223372036854775808",
            "1e400",
            "!!int x",
            "'",
            "\t",
            "---\n",
            "%",
            "\u{0}",
            "é",
        ];
        prop_oneof![proptest::sample::select(words.to_vec()).prop_map(ToOwned::to_owned), ".{0,8}"]
    }

    fn mangled() -> impl Strategy<Value = String> {
        let edits = proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), scrap()), 0..4);
        (proptest::sample::select(SEEDS), edits).prop_map(|(text, edits)| {
            let mut letters: Vec<char> = text.chars().collect();
            for (at, length, scrap) in edits {
                let at = at.index(letters.len() + 1);
                let end = (at + length.index(12)).min(letters.len());
                letters.splice(at..end, scrap.chars());
            }
            letters.into_iter().collect()
        })
    }

    fn read_without_panic(text: &str) {
        match read("any.yaml", text) {
            Err(errors) => assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty())),
            Ok(objects) => {
                let objects: Vec<Object> = objects.into_iter().map(|located| located.value).collect();
                for purpose in [Purpose::OnRead, Purpose::Output] {
                    for object in convert(objects.clone(), &ConvertOptions::new(purpose)).objects {
                        let _ = crate::validate::validate(&object);
                        if let Object::ConfigMap(map) = &object {
                            let _ = (crate::aws_auth::diagnose(map), crate::settings::from_config_map(map));
                        }
                        if let Object::NodePool(pool) = &object {
                            let _ = (crate::runtime::node_pool(pool), crate::hashes::node_pool(pool));
                        }
                        if let Object::NodeClass(class) = &object {
                            let _ = (crate::runtime::kubelet_violations(class.spec.kubelet.as_ref()), crate::hashes::node_class(class, ""));
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, rng_seed: RngSeed::Fixed(42), failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn mangled_manifests_are_objects_or_errors(text in mangled()) {
            read_without_panic(&text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, rng_seed: RngSeed::Fixed(42), failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_text_is_objects_or_errors(text in "(?s).{0,200}") {
            read_without_panic(&text);
        }
    }
}

#[test]
fn an_object_of_a_dump_is_read_in_the_version_in_which_it_was_written() {
    let pool = |uid: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a{uid}}}\nspec:\n  disruption: {{consolidationPolicy: \
             WhenUnderutilized, consolidateAfter: 0s, expireAfter: 360h}}\n  template: {{spec: {{expireAfter: 720h, requirements: [], \
             nodeClassRef: {{name: a}}}}}}\n"
        )
    };
    let read_pool = read("dump.yaml", &pool(", uid: u")).unwrap();
    let Object::Legacy(LegacyObject::NodePool(read_pool)) = &read_pool[0].value else { panic!("{read_pool:?}") };
    assert_eq!(read_pool.spec.disruption.expire_after, crate::duration::NillableDuration::from_secs(360 * 3600));
    // In a manifest it is a mistake.
    let errors = read("pool.yaml", &pool("")).unwrap_err();
    assert!(errors.iter().any(|error| error.field.to_string() == "spec.template.spec.nodeClassRef.group"), "{errors:?}");
}

#[test]
fn a_kind_of_ours_in_a_misspelt_group_is_refused_and_kinds_of_others_are_not() {
    let errors = refused("apiVersion: karpentr.sh/v1\nkind: NodePool\nmetadata: {name: a}\n");
    assert_eq!(
        errors,
        ["f.yaml:1:1: document 1, NodePool \"a\", apiVersion: no server has NodePool of karpentr.sh/v1; did you mean karpenter.sh/v1?"]
    );
    for other in
        ["eks.amazonaws.com/v1\nkind: NodePool", "autoscaling.x-k8s.io/v1\nkind: ProvisioningRequest", "karpentr.sh/v1\nkind: Team"]
    {
        let objects = read("f.yaml", &format!("apiVersion: {other}\nmetadata: {{name: a}}\n")).unwrap();
        assert!(matches!(objects[0].value, Object::Unknown { .. }), "{other}");
    }
}
