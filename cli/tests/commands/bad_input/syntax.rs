//! What a file is as YAML or JSON: lists, keys, kinds of values, ends of lines.

use super::*;

#[test]
fn a_list_without_items_is_no_empty_list() {
    for (list, wanted) in [
        (r#"{"kind": "List", "apiVersion": "v1", "items": 5}"#, "items: this is no list"),
        (r#"{"kind": "List", "apiVersion": "v1"}"#, "List, items: missing"),
        (r#"{"kind": "PodList", "apiVersion": "v1", "items": {}}"#, "PodList, items: this is no list"),
    ] {
        refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], list), 2, &[wanted]);
    }
    for (list, wanted) in [
        (r#"{"kind": "List", "apiVersion": "v1"}"#, "List, items: missing: write the objects of the list there"),
        (r#"{"kind": "NodePoolList", "apiVersion": "karpenter.sh/v1"}"#, "NodePoolList, items: missing"),
        (r#"{"kind": "PodList", "apiVersion": "v1", "items": {}}"#, "PodList, items: items is no list"),
    ] {
        for command in ["check", "validate", "convert"] {
            let ended = whittle(&[command, "-f", "-"], list);
            refused(&ended, 2, &[wanted]);
            assert_eq!(out(&ended), "", "{command}");
        }
        refused(&whittle(&["local"], &format!("apply -f -\n{list}\nEOF\n")), 2, &[wanted]);
    }
    // An empty list is nothing to do, as it is for kubectl, and that is said.
    for list in [r#"{"kind": "List", "apiVersion": "v1", "items": null}"#, r#"{"kind": "PodList", "apiVersion": "v1", "items": []}"#] {
        refused(&whittle(&["check", "-f", "-"], list), 2, &["there is nothing to check"]);
        refused(&whittle(&["validate", "-f", "-"], list), 2, &["there is nothing to judge"]);
        refused(
            &whittle(&["plan", "-f", "-", "--region", "us-east-1"], list),
            2,
            &["there is no object in standard input: give manifests"],
        );
    }
    // A kind of somebody else may be called like a list.
    let other = r#"{"kind": "GuestList", "apiVersion": "example.com/v1", "metadata": {"name": "a"}}"#;
    assert!(whittle(&["check", "-f", "-"], other).status.success());
}

#[test]
fn json_beside_the_manifests_of_a_directory_decides_nothing() {
    let golden = tests().join("golden");
    let catalog = golden.join("catalog.json").display().to_string();
    for (command, case, key) in
        [("plan", "scheduling/001-one-pod", "nodeClaims"), ("consolidate", "consolidation/001-empty-delete", "commands")]
    {
        let decided = |path: PathBuf| {
            let ended = whittle(&[command, "-f", &path.display().to_string(), "--instance-types", &catalog, "-o", "json"], "");
            assert!(ended.status.success(), "{command}: {}", err(&ended));
            let answer: serde_json::Value = serde_json::from_str(&out(&ended)).unwrap();
            (answer[key].clone(), err(&ended))
        };
        let (of_file, _) = decided(golden.join(case).join("input.yaml"));
        // The answer of the case stands beside its input.
        let (of_directory, said) = decided(golden.join(case));
        assert_eq!(of_directory, of_file);
        assert!(of_file.as_array().is_some_and(|decisions| decisions.len() == 1), "{of_file}");
        assert!(said.contains("note: ") && said.contains("expected.json has no object: nothing of it is read"), "{said}");
    }
}

#[test]
fn a_file_without_an_object_beside_others_is_named() {
    let folder = Folder::new("without");
    let (web, none) = (folder.file("web.yaml", WEB), folder.file("none.yaml", "# to be written\n"));
    let checked = whittle(&["check", "-f", &web, "-f", &none], "");
    assert!(checked.status.success() && out(&checked).contains("none.yaml has no object: nothing of it is checked"), "{}", out(&checked));
    let validated = whittle(&["validate", "-f", &web, "-f", &none], "");
    assert!(
        validated.status.success() && err(&validated).contains("none.yaml has no object: nothing of it is judged"),
        "{}",
        err(&validated)
    );
    for command in ["plan", "consolidate", "explain"] {
        let words = [command, "web-0", "-f", &web, "-f", &none, "--region", "us-east-1"];
        let words: Vec<&str> = words.into_iter().filter(|word| command == "explain" || *word != "web-0").collect();
        let ended = whittle(&words, "");
        assert!(
            err(&ended).contains("note: ") && err(&ended).contains("none.yaml has no object: nothing of it is read"),
            "{}",
            err(&ended)
        );
    }
}

#[test]
fn a_key_that_stands_twice_in_json_is_refused_as_in_yaml() {
    let folder = Folder::new("twice");
    let pod = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"},\n \"spec\": {\"containers\": [{\"name\": \"c\", \
               \"resources\": {\"requests\": {\"cpu\": 1,\n  \"cpu\": 2}}}]}}";
    let list = format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n{pod}\n]}}");
    for (text, first) in [(pod, "first in line 2"), (&list, "first in line 3")] {
        let wanted = ["Pod \"a\", spec.containers[0].resources.requests.cpu: the key stands twice in one map", first];
        for arguments in [&["plan"][..], &["consolidate"], &["compare"], &["explain", "pod/a"]] {
            refused(&whittle(&[arguments, &["-f", "-", "--region", "us-east-1"]].concat(), text), 2, &wanted);
        }
        refused(&whittle(&["check", "-f", "-"], text), 1, &wanted);
        refused(&whittle(&["convert", "-f", "-"], text), 2, &wanted);
    }
    let types =
        folder.file("types.json", "[{\"name\": \"a\", \"architecture\": \"amd64\", \"resources\": {\"cpu\": \"1\",\n\"cpu\": \"2\"}}]");
    refused(&whittle(&["plan", "-f", "-", "--instance-types", &types], WEB), 2, &["the key \"cpu\" stands twice in one map", "line 2"]);
    let ledger = folder.file("ledger.json", "[{\"id\": \"a\",\n\"id\": \"b\", \"beforeNanos\": 1}]");
    refused(&whittle(&["savings", &ledger], ""), 2, &["the key \"id\" stands twice in one map", "line 2"]);
}

#[test]
fn of_objects_joined_without_a_line_between_them_none_is_left_out_without_a_word() {
    let list = |name: &str| {
        format!("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {{name: {name}}}\nkind: List\nmetadata: {{}}\n")
    };
    for (joined, code, object) in
        [(list("a") + &list("b"), 2, "List"), (format!("{WEB}{}", WEB.replace("web", "api")), 1, "Deployment \"api\"")]
    {
        let told =
            format!("{object}, apiVersion: another object begins here, in the document of the one before it: put a line `---` between");
        refused(&whittle(&["check", "-f", "-"], &joined), code, &[&told]);
        refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], &joined), 2, &[&told]);
        refused(&whittle(&["local"], &format!("apply -f -\n{joined}EOF\n")), 2, &[&told]);
        assert!(!err(&whittle(&["check", "-f", "-"], &joined)).contains("stands twice"), "one error for each file that was joined");
    }
    refused(&whittle(&["validate", "-f", "-"], &(list("a") + &list("b"))), 2, &["List, apiVersion: another object begins here"]);
}

#[test]
fn what_kubectl_prints_for_people_is_told_by_every_command() {
    for (text, wanted) in [
        ("NAME   READY\nweb-1  0/1\n", "this is a table for people, and no manifest: give what `kubectl get -o yaml` prints"),
        ("error: the server doesn't have a resource type \"nodepools\"\n", "this is an error of a command, and no manifest"),
        ("No resources found\n", "kubectl found no object: name other kinds"),
        ("Error from server (NotFound): pods a\nError from server (Forbidden): pods b\n", "this is an error of a command, and no manifest"),
    ] {
        for command in [&["plan", "--region", "us-east-1"][..], &["consolidate"], &["compare"], &["check"], &["validate"]] {
            refused(&whittle(&[command, &["-f", "-"]].concat(), text), 2, &[wanted]);
        }
    }
    // Within a list it is an item like any other that is no object.
    let item = "apiVersion: v1\nkind: List\nitems:\n- error: a\n";
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], item), 2, &["List, items[0]: an object needs apiVersion and kind"]);
}

#[test]
fn null_among_the_items_of_a_list_is_the_same_error_to_every_command() {
    let list = |kind: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "{kind}", "items": [null, {{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "a"}}, "spec": null}}]}}"#
        )
    };
    for kind in ["List", "NodeList"] {
        let wanted = format!("document 1, {kind}, items[0]: null is no object: write a map");
        refused(&whittle(&["check", "-f", "-"], &list(kind)), 2, &[&wanted]);
        let validated = whittle(&["validate", "-f", "-"], &list(kind));
        refused(&validated, 2, &[&wanted]);
        assert!(out(&validated).contains("Node \"a\"") || err(&validated).contains("Node \"a\""), "the others are judged");
        let planned = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &list(kind));
        refused(&planned, 1, &[&wanted.replace("1,", "1:")]);
    }
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": null, "status": {"capacity": null}}"#;
    for command in [&["check", "-f", "-"][..], &["plan", "-f", "-", "--region", "us-east-1"]] {
        let ended = whittle(command, node);
        assert!(ended.status.success(), "{command:?}: {}", err(&ended));
    }
}

#[test]
fn values_that_are_no_yaml_are_unreadable() {
    let folder = Folder::new("values");
    let file = folder.file("values.yaml", "settings: [a\n");
    refused(&whittle(&["check", "--values", &file], ""), 2, &["--values ", "this is no YAML"]);
}

#[test]
fn helm_values_in_the_place_of_a_manifest_are_told_their_option() {
    for values in ["settings:\n  clusterName: shop\n", "serviceAccount:\n  annotations: {}\n"] {
        let hint = ["these look like Helm values", "`whittle check --values FILE`"];
        refused(&whittle(&["check", "-f", "-"], values), 2, &hint);
        refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], values), 2, &hint);
    }
    let pod = whittle(&["check", "-f", "-"], "kind: Pod\nserviceAccount: x\n");
    refused(&pod, 2, &["apiVersion and kind are needed"]);
    let (misspelt, meant) = ("appVersion: apps/v1\nkind: Deployment\n", "there is no field \"appVersion\": did you mean apiVersion?");
    refused(&whittle(&["check", "-f", "-"], misspelt), 2, &[meant]);
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], misspelt), 2, &[meant]);
    assert!(!err(&pod).contains("Helm"), "{}", err(&pod));
}

#[test]
fn a_key_that_stands_twice_is_refused_in_every_kind_by_every_command() {
    let twice = WEB.replace("spec: {replicas: 3,", "spec: {replicas: 3, replicas: 30,");
    let wanted = ["Deployment \"web\", spec.replicas: the key stands twice in one map, first in line 4"];
    refused(&whittle(&["check", "-f", "-"], &twice), 1, &wanted);
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], &twice), 2, &wanted);
    refused(&whittle(&["local"], &format!("apply -f -\n{twice}EOF\n")), 2, &wanted);
    let unknown = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a, name: b}\n";
    refused(&whittle(&["check", "-f", "-"], unknown), 1, &["metadata.name: the key stands twice"]);
}

#[test]
fn what_does_not_fit_is_told_in_words_of_manifests() {
    let folder = Folder::new("words");
    for (from, to, wanted) in [
        ("metadata: {name: web}", "metadata: 5", "metadata: a map of fields is needed here, not 5"),
        ("replicas: 3", "replicas: three", "spec.replicas: a whole number is needed here, not the text \"three\""),
        (
            "replicas: 3",
            "replicas: 5000000000",
            "spec.replicas: a whole number from -2147483648 to 2147483647 is needed here, not 5000000000",
        ),
        ("[{name: c, image: i}]", "{}", "containers: a list is needed here, not a map of fields"),
    ] {
        let text = WEB.replacen(from, to, 1);
        for (arguments, input, code) in [
            (&["check", "-f", "-"][..], text.clone(), 1),
            (&["plan", "-f", "-", "--region", "us-east-1"], text.clone(), 2),
            (&["local"], format!("apply -f -\n{text}EOF\n"), 2),
        ] {
            let ended = whittle(arguments, &input);
            assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", err(&ended));
            assert!(err(&ended).contains(wanted), "{arguments:?}: {}", err(&ended));
        }
    }
    let ledger = folder.file("ledger.json", r#"{"beforeNanos": "x", "id": "a"}"#);
    let ended = whittle(&["savings", &ledger], "");
    refused(&ended, 2, &["is no ledger entry: "]);
    assert!(!err(&ended).contains("expected") && !err(&ended).contains("u64"), "{}", err(&ended));
}

#[test]
fn lines_may_end_with_a_carriage_return_alone() {
    let text = format!("{WEB}---\n{}", WEB.replace("name: web}", "name: other}"));
    for ends in ["\r", "\r\n"] {
        let planned = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &text.replace('\n', ends));
        assert!(planned.status.success() && out(&planned).contains("0 of 6 pods placed"), "{ends:?}: {}{}", out(&planned), err(&planned));
    }
}

/// As kubectl reads them: by YAML 1.1.
#[test]
fn numbers_and_words_mean_in_plans_what_they_mean_to_kubectl() {
    let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/src/local/demo/pool.yaml");
    let plan = |pod: &str| {
        let pod = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {pod}}}");
        whittle(&["plan", "-f", pool, "-f", "-", "--region", "us-east-1"], &pod)
    };
    let octal = plan("{containers: [{name: c, resources: {requests: {cpu: 016}}}]}");
    assert!(out(&octal).contains("cpu 14"), "{}", out(&octal));
    let word = plan("{nodeSelector: {team: yes}, containers: [{name: c}]}");
    assert_eq!(word.status.code(), Some(1), "{}", out(&word));
    assert!(err(&word).contains("spec.nodeSelector.team: text is needed here, not true"), "{}", err(&word));
    let twice = plan("{nodeSelector: {yes: a, on: b}, containers: [{name: c}]}");
    assert!(twice.status.code() != Some(0) && err(&twice).contains("stands twice"), "{}", err(&twice));
    let quoted = plan("{terminationGracePeriodSeconds: 0x1E, containers: [{name: c, env: [{name: a, value: 'yes'}]}]}");
    assert_eq!(quoted.status.code(), Some(0), "{}{}", out(&quoted), err(&quoted));
    // A text, since no number is as large, and a quantity as it is one.
    let large = plan("{containers: [{name: c, resources: {requests: {memory: 1e400}}}]}");
    assert!(large.status.success() && out(&large).starts_with("0 of 1 pods placed"), "{}{}", out(&large), err(&large));
    let infinite = plan("{containers: [{name: c, resources: {requests: {memory: .inf}}}]}");
    assert!(err(&infinite).contains(".inf is no number that an object can hold"), "{}", err(&infinite));
}
