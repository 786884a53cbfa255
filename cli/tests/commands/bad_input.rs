//! Input that no cluster and no program would give on purpose: it is refused as a whole, with what is wrong, and reaches no terminal raw.

use super::{err, out, whittle};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3, selector: {matchLabels: {app: web}}, \
                   template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}\n";

/// A folder of its own, which goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("whittle-bad-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// A program that runs these lines of a shell script.
    fn program(&self, name: &str, script: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.file(name, &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn refused(output: &Output, code: i32, wanted: &[&str]) {
    let message = err(output);
    assert_eq!(output.status.code(), Some(code), "{}{message}", out(output));
    for text in wanted {
        assert!(message.contains(text), "it does not say {text:?}:\n{message}");
    }
}

#[test]
fn what_is_a_megabyte_long_is_not_echoed_whole() {
    let folder = Folder::new("long");
    let long = "x".repeat(1_000_000);
    let session = |lines: &str| whittle(&["local"], lines);
    let manifest = |name: &str, text: &str| folder.file(name, text);
    let named = manifest("name.yaml", &WEB.replace("name: web", &format!("name: {long}")));
    let kind = manifest("kind.yaml", &format!("apiVersion: v1\nkind: {long}\nmetadata: {{name: a}}\n"));
    let value = manifest("value.yaml", &WEB.replace("replicas: 3", &format!("replicas: {long}")));
    let region = ["--region", "us-east-1"];
    let mut answers = vec![
        session(&format!("{long}\n")),
        session(&format!("scale deployment {long} --replicas 3\n")),
        session(&format!("get pods --{long}\n")),
        session(&format!("{}\n", "get pods ".repeat(100_000))),
        // The longest that Linux takes as one argument is shorter.
        whittle(&["plan", &long[..100_000]], ""),
    ];
    for file in [&named, &kind, &value] {
        answers.push(session(&format!("apply -f {file}\n")));
        for words in [&["plan", "-f", file][..], &["check", "-f", file], &["validate", "-f", file], &["convert", file]] {
            answers.push(whittle(&[words, if words[0] == "plan" { &region[..] } else { &[] }].concat(), ""));
        }
    }
    for answer in &answers {
        let (out, err) = (out(answer), err(answer));
        assert!(out.len() + err.len() < 20_000, "{} and {} bytes: {}", out.len(), err.len(), &format!("{out}{err}")[..300]);
    }
    for answer in answers.iter().filter(|answer| !answer.status.success()) {
        assert!(err(answer).contains("error: "), "{}", err(answer));
    }
    refused(&answers[0], 2, &["error: \"xxx", "x…x", "is no command; `help` lists them"]);
    refused(&answers[1], 2, &["there is no Deployment \"default/xxx", "x…x", "there are: none"]);
}

#[test]
fn a_prompt_scales_and_deletes_all_that_is_named_or_nothing() {
    let folder = Folder::new("prompt");
    let (web, other) = (folder.file("web.yaml", WEB), folder.file("other.yaml", &WEB.replace("name: web}", "name: other}")));
    let begun = format!("apply -f {web}\n");
    // Commands of a pipe end at the first error, so what is left is looked at by a web of its own.
    for (command, wanted) in [
        ("scale deployment web nope --replicas 5", "there is no Deployment \"default/nope\""),
        ("delete deployment web nope", "there is no deployment \"nope\""),
        (&*format!("delete -f {web} -f {other}"), "there is no Deployment \"default/other\""),
        (&*format!("delete deployment nope -f {web}"), "there is no deployment \"nope\""),
    ] {
        let ended = whittle(&["local"], &format!("{begun}{command}\n"));
        refused(&ended, 2, &[wanted]);
        assert_eq!(out(&ended), "deployment/web created\n", "{command}");
    }
    for command in ["delete deployment web web".to_owned(), format!("delete -f {web} -f {web}")] {
        let ended = whittle(&["local"], &format!("{begun}{command}\nget deployments -A\n"));
        assert_eq!(err(&ended), "", "{command}");
        assert_eq!(out(&ended).matches("deleted").count(), 1, "{command}: {}", out(&ended));
        assert!(out(&ended).contains("there are no deployments"), "{command}: {}", out(&ended));
    }
}

#[test]
fn what_steers_a_terminal_is_printed_as_an_escape() {
    let folder = Folder::new("escapes");
    let hostile = "apiVersion: \"apps/v1\\e]0;x\\a\\e[31m\"\nkind: \"Thing\\u202e\"\nmetadata: {name: web}\n";
    let file = folder.file("a\u{1b}[2Jb.yaml", hostile);
    for arguments in [&["plan", "-f", &file, "--region", "us-east-1"][..], &["check", "-f", &file], &["validate", "-f", &file]] {
        for colour in ["never", "always"] {
            let ended = whittle(&[arguments, &["--color", colour]].concat(), "");
            let all = out(&ended) + &err(&ended);
            assert!(all.contains("\\u001b]0;x\\u0007") || all.contains("\\u{1b}"), "{arguments:?}: {all}");
            assert!(!all.contains("\u{1b}]") && !all.contains("\u{1b}[2J") && !all.contains('\u{202e}'), "{arguments:?}: {all:?}");
        }
    }
    let ended = whittle(&["plan", "-f", "/no/such\u{1b}[2J", "--region", "us-east-1"], "");
    assert!(err(&ended).contains("\"/no/such\\u{1b}[2J\": cannot be read"), "{}", err(&ended));
    let aws = folder.program("aws", "printf 'An error\\033]0;x\\007\\n' >&2; exit 254");
    let ended = Command::new(env!("CARGO_BIN_EXE_whittle")).args(["doctor", "shop"]).env("WHITTLE_AWS", aws).output().unwrap();
    assert!(out(&ended).contains("An error\\u001b]0;x\\u0007") && !out(&ended).contains('\u{1b}'), "{}", out(&ended));
}

#[test]
fn a_budget_that_no_server_has_is_refused_by_every_command() {
    let of = |fields: &str| {
        format!("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: b}}\nspec: {{selector: {{}}, {fields}}}\n")
    };
    let cases = [
        ("minAvailable: zz zz", "spec.minAvailable: \"zz zz\" is no number of pods"),
        ("minAvailable: -5", "spec.minAvailable: -5 is no number of pods"),
        ("maxUnavailable: 500%", "spec.maxUnavailable: \"500%\" is no number of pods"),
        ("minAvailable: 1, maxUnavailable: 1", "leave one of them out"),
        ("minAvailable: 1, unhealthyPodEvictionPolicy: Never", "write IfHealthyBudget or AlwaysAllow"),
    ];
    for (fields, wanted) in cases {
        let wanted = ["PodDisruptionBudget \"b\"", wanted];
        refused(&whittle(&["check", "-f", "-"], &of(fields)), 1, &wanted);
        refused(&whittle(&["consolidate", "-f", "-", "--region", "us-east-1"], &of(fields)), 2, &wanted);
        refused(&whittle(&["local"], &format!("apply -f -\n{}EOF\n", of(fields))), 2, &wanted);
    }
    for fields in ["minAvailable: 0", "maxUnavailable: 100%", "minAvailable: 50%, unhealthyPodEvictionPolicy: AlwaysAllow"] {
        let checked = whittle(&["check", "-f", "-"], &of(fields));
        assert!(checked.status.success(), "{fields}: {}", err(&checked));
    }
}

#[test]
fn check_says_what_is_wrong_with_every_object() {
    let folder = Folder::new("every");
    let claim = "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: A}\nspec: {requirements: [], nodeClassRef: \
                 {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}\n";
    let negative = WEB.replace("replicas: 3", "replicas: -3").replace("name: web}", "name: negative}");
    let file = folder.file("all.yaml", &[claim, &negative, WEB].join("---\n"));
    let other = folder.file("other.yaml", &WEB.replace("name: web}", "name: other}"));
    let words = ["check", "-f", &file, "-f", &other];
    let wanted = ["all.yaml:3:", "NodeClaim \"A\", metadata.name: \"A\" is no name", "Deployment \"negative\", spec.replicas: -3 replicas"];
    let checked = whittle(&words, "");
    refused(&checked, 1, &wanted);
    for fine in ["Deployment \"web\": fine", "Deployment \"other\": fine", "2 objects fine, 0 warnings, 2 errors"] {
        assert!(out(&checked).contains(fine), "{fine}: {}", out(&checked));
    }
    let json: serde_json::Value = serde_json::from_str(&out(&whittle(&[&words[..], &["-o", "json"]].concat(), ""))).unwrap();
    assert_eq!((&json["summary"]["fine"], &json["summary"]["errors"]), (&2.into(), &2.into()), "{json}");
    // What is no object at all is another matter: nobody knows what it was to be.
    let none = folder.file("none.yaml", "a: [\n");
    let unread = whittle(&["check", "-f", &file, "-f", &none], "");
    refused(&unread, 2, &["none.yaml", "NodeClaim \"A\", metadata.name"]);
    assert_eq!(out(&unread), "");
}

#[test]
fn a_namespace_that_cannot_be_is_refused_by_every_command() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: A B}\nspec: {containers: [{name: c, image: i}]}\n";
    let wanted = ["Pod \"a\", metadata.namespace: \"A B\" is no namespace"];
    refused(&whittle(&["check", "-f", "-"], pod), 1, &wanted);
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], pod), 2, &wanted);
    refused(&whittle(&["local"], &format!("apply -f -\n{pod}EOF\n")), 2, &wanted);
}

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
        refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], list), 2, &["there is no object in -"]);
    }
    // A kind of somebody else may be called like a list.
    let other = r#"{"kind": "GuestList", "apiVersion": "example.com/v1", "metadata": {"name": "a"}}"#;
    assert!(whittle(&["check", "-f", "-"], other).status.success());
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
fn a_report_says_what_is_refused() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {containers: [{name: c, resources: {requests: {cpu: -1}}}]}\n";
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec: {weight: 500, template: {spec: {nodeClassRef: \
                {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}\n";
    let said = "resources.requests.cpu: -1 is less than nothing";
    let invalid = "spec.weight";
    for (command, text, wanted) in [
        ("plan", format!("{WEB}---\n{pod}"), said),
        ("plan", format!("{WEB}---\n{pool}"), invalid),
        ("consolidate", pool.to_owned(), invalid),
    ] {
        for form in ["text", "markdown", "html", "json"] {
            let ended = whittle(&[command, "-f", "-", "--region", "us-east-1", "-o", form], &text);
            refused(&ended, 1, &[wanted]);
            let printed = out(&ended).replace('\\', "");
            assert_eq!(printed.contains(wanted), form != "text", "{command} {form}: {printed}");
        }
    }
    // Nothing is said of an input with which nothing is wrong.
    let fine = out(&whittle(&["plan", "-f", "-", "--region", "us-east-1", "-o", "markdown"], &pool.replace("500", "5")));
    assert!(!fine.contains("| error |"), "{fine}");
}

#[test]
fn check_and_plan_say_the_same_of_an_object_that_no_server_has() {
    let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: c}}], {spec}}}\n");
    let cases = [
        ("tolerations: [{key: a, operator: Is}]", "Pod \"a\", spec.tolerations[0].operator: \"Is\" is none of its values"),
        ("nodeSelector: {a/b/c: d}", "Pod \"a\", spec.nodeSelector: \"a/b/c\" is no label key"),
        (
            "topologySpreadConstraints: [{maxSkew: 0, whenUnsatisfiable: Never}]",
            "Pod \"a\", spec.topologySpreadConstraints[0].topologyKey: missing",
        ),
        ("resources: {requests: {cpu: -1}}", "Pod \"a\", spec.resources.requests.cpu: -1 is less than nothing"),
    ];
    for (spec, wanted) in cases {
        let text = pod(spec);
        let checked = whittle(&["check", "-f", "-"], &text);
        refused(&checked, 1, &[wanted]);
        refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], &text), 2, &[wanted]);
        refused(&whittle(&["local"], &format!("apply -f -\n{text}EOF\n")), 2, &[wanted]);
        let lines = |output: &Output| -> Vec<String> {
            err(output).lines().filter_map(|line| line.find("Pod \"a\"").map(|at| line[at..].to_owned())).collect()
        };
        let planned = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &format!("{text}---\n{WEB}"));
        refused(&planned, 1, &[wanted]);
        assert_eq!(lines(&checked), lines(&planned), "all that is wrong with it");
    }
    let many = WEB
        .replace("replicas: 3", "replicas: -1")
        .replace("name: web", "name: a/b")
        .replace("{app: web}}, template", "{app: b}}, template");
    for (command, code) in [(&["check", "-f", "-"][..], 1), (&["plan", "-f", "-", "--region", "us-east-1"], 2)] {
        let wanted =
            ["spec.replicas: -1 replicas cannot be", "metadata.name: \"a/b\" is no name", "spec.selector: the labels of the template"];
        refused(&whittle(command, &many), code, &wanted);
    }
}

#[test]
fn a_name_that_no_server_has_is_refused_by_every_command_and_ends_no_line() {
    let plan = ["plan", "-f", "-", "--region", "us-east-1"];
    for (kind, rest) in [("Pod", "spec: {containers: [{name: c}]}"), ("Node", "spec: {}")] {
        let text = format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a/b}}\n{rest}\n");
        let wanted = format!("{kind} \"a/b\", metadata.name: \"a/b\" is no name");
        refused(&whittle(&["check", "-f", "-"], &text), 1, &[&wanted]);
        refused(&whittle(&plan, &text), 2, &[&wanted]);
    }
    let claim = "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: A}\nspec: {requirements: [], nodeClassRef: \
                 {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}\n";
    refused(&whittle(&plan, claim), 2, &["NodeClaim \"A\", metadata.name: \"A\" is no name"]);
    refused(&whittle(&["check", "-f", "-"], claim), 1, &["NodeClaim \"A\", metadata.name: \"A\" is no name"]);
    for forged in [
        r#"{"apiVersion": "v1", "kind": "Pod\nerror: forged", "metadata": {"name": "a"}}"#,
        r#"{"apiVersion": "batch/v1\nerror: forged", "kind": "CronJob", "metadata": {"name": "a"}}"#,
        r#"{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a\nerror: forged"}}"#,
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b\nerror: forged": "c\nerror: forged"}}}"#,
    ] {
        for command in [&["check", "-f", "-"][..], &["validate", "-f", "-"], &["convert", "-f", "-"], &plan] {
            let ended = whittle(command, forged);
            let printed = format!("{}{}", out(&ended), err(&ended));
            assert!(!printed.lines().any(|line| line.starts_with("error: forged")), "{command:?}: {printed}");
            // Validate judges no pods.
            assert!(!ended.status.success() || (command[0] != "check" && command[0] != "plan"), "{command:?}: {printed}");
        }
    }
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
fn an_answer_of_kubectl_that_is_no_list_is_no_empty_cluster() {
    let folder = Folder::new("answers");
    let answers = [
        ("exit 0", Some("the answer is empty")),
        (r#"echo '{"kind": "List", "apiVersion": "v1", "items": 5}'"#, Some("the answer is no list of objects")),
        (r#"echo '{"kind": "List", "apiVersion": "v1"}'"#, Some("the answer is no list of objects")),
        (r#"echo '[]'"#, Some("the answer is no list of objects")),
        (r#"echo '{"kind": "List", "apiVersion": "v1", "items": null}'"#, None),
    ];
    let commands: [&[&str]; 5] = [
        &["status", "--context"],
        &["top", "--context"],
        &["consolidate", "--region", "us-east-1", "--context"],
        &["plan", "--region", "us-east-1", "--context"],
        &["explain", "node/a", "--region", "us-east-1", "--context"],
    ];
    for (answer, wanted) in answers {
        let kubectl = folder.program("kubectl", &format!("[ \"$1\" = api-resources ] && printf '%s\\n' pods nodes && exit 0\n{answer}"));
        for command in commands {
            let ended = Command::new(env!("CARGO_BIN_EXE_whittle")).args(command).env("WHITTLE_KUBECTL", &kubectl).output().unwrap();
            match wanted {
                Some(wanted) => refused(&ended, 2, &["the cluster cannot be read", wanted, "from: kubectl"]),
                None => assert!(!err(&ended).contains("cannot be read"), "{command:?}: {}", err(&ended)),
            }
        }
    }
}

#[test]
fn the_answer_to_a_request_that_failed_is_no_cluster_without_objects() {
    let failure = r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "nodes is forbidden\nFORGED: y", "code": 403}"#;
    let wanted = ["this is the answer to a request that failed: \"nodes is forbidden", "save that answer"];
    for command in [&["check", "-f", "-"][..], &["plan", "-f", "-", "--region", "us-east-1"]] {
        let ended = whittle(command, failure);
        refused(&ended, 2, &wanted);
        assert!(!err(&ended).contains("\nFORGED"), "{}", err(&ended));
    }
    refused(&whittle(&["local"], &format!("apply -f -\n{failure}\nEOF\n")), 2, &wanted);
    let success = whittle(&["check", "-f", "-"], &failure.replace("Failure", "Success"));
    assert!(success.status.success(), "{}", err(&success));
}

#[test]
fn values_that_are_no_yaml_are_unreadable() {
    let file = std::env::temp_dir().join(format!("whittle-values-{}.yaml", std::process::id()));
    std::fs::write(&file, "settings: [a\n").unwrap();
    let checked = whittle(&["check", "--values", &file.display().to_string()], "");
    std::fs::remove_file(&file).unwrap();
    refused(&checked, 2, &["--values ", "this is no YAML"]);
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
fn an_account_that_says_nothing_is_not_known() {
    let folder = Folder::new("silent");
    let program = folder.program("aws", "exit 0");
    let ended = Command::new(env!("CARGO_BIN_EXE_whittle"))
        .args(["doctor", "shop"])
        .envs([("WHITTLE_AWS", &program), ("WHITTLE_KUBECTL", &program)])
        .output()
        .unwrap();
    let text = out(&ended);
    assert_eq!(ended.status.code(), Some(2), "{text}");
    assert!(text.contains("unknown  account") && text.contains("unknown  cluster") && text.contains("0 ok"), "{text}");
}

#[test]
fn an_option_without_a_value_is_not_its_default() {
    for arguments in [
        &["status", "--context", ""][..],
        &["plan", "--context="],
        &["plan", "--kubeconfig", ""],
        &["plan", "--region", ""],
        &["doctor", "shop", "--context", ""],
        &["doctor", "shop", "--region", ""],
        &["doctor", "shop", "--profile", ""],
        &["savings", "--stack", ""],
        &["savings", "--stack", "a", "--cluster", ""],
        &["uninstall", "--cluster", "", "--function", "a"],
        &["uninstall", "--cluster", "a", "--function", ""],
    ] {
        let ended = whittle(arguments, "");
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", err(&ended));
        let option = arguments.iter().rev().find(|word| word.starts_with("--")).unwrap().trim_end_matches('=');
        let named = arguments.windows(2).find(|pair| pair[1].is_empty()).map_or(option, |pair| pair[0]);
        assert!(err(&ended).contains(named) && err(&ended).contains("value"), "{arguments:?}: {}", err(&ended));
    }
}

#[test]
fn no_scenario_goes_back_in_time_and_no_run_is_of_nothing() {
    let folder = Folder::new("scenario");
    for step in ["advance: -5m", "ticks: -1s", "stays: {state: {}, for: -1m}", "faults: {api-server-down: -1m}"] {
        let file = folder.file("back.yaml", &format!("name: back\nsteps:\n  - say: hello\n  - {step}\n"));
        let ended = whittle(&["local", "run", &file], "");
        assert_eq!(ended.status.code(), Some(2), "{step}: {}{}", out(&ended), err(&ended));
        assert!(out(&ended).is_empty() && !err(&ended).is_empty(), "{step}: {}{}", out(&ended), err(&ended));
    }
    let file = folder.file("back.yaml", "name: back\nsteps:\n  - advance: -5m\n");
    refused(&whittle(&["local", "run", &file], ""), 2, &["back.yaml:3: -5m: time only goes forward"]);
    let forged = whittle(&["plan", "-f", "-", "--replicas", "db\nnote: forged\n=3"], "");
    refused(&forged, 2, &["invalid value 'db\\nnote: forged\\n=3' for '--replicas"]);
    for (text, said) in [
        ("name: a\nsteps:\n  - advance: 9999999h\n", ":3: 9999999h is too long: at most 8784 hours, 366 days"),
        ("name: \"a\\n  forged\"\nsteps: []\n", "would be printed in one line"),
        ("name: a\nsteps:\n  - say: \"\\e[2J\"\n", "would be printed in one line"),
        ("name: a\ncluster: {region: mars}\nsteps: []\n", "cluster.region mars: no region has this name"),
        ("name: a\ncluster: {version: '9.9'}\nsteps: []\n", "cluster.version 9.9: EKS has no such version"),
        ("name: a\nsteps:\n  - notice: {kind: spot, times: 200000}\n", ":3: times 200000: at most 10000"),
        ("name: a\nsteps:\n  - stock-out: {capacity-type: spto}\n", ":3: capacity-type \"spto\": write spot, on-demand or reserved"),
        ("name: a\nsteps:\n  - end-reservation: \"a\\n00:00:09  ec2\"\n", "would be printed in one line"),
        ("name: a\nsteps:\n  - expect: {nodes: {labels: {\"k\\n   a: passed\": \"1\"}}}\n", "would be printed in one line"),
        ("name: a\nsteps:\n- {advance: 1m\n", "unclosed bracket"),
    ] {
        let file = folder.file("odd.yaml", text);
        let ended = whittle(&["local", "run", &file], "");
        refused(&ended, 2, &[said]);
        assert!(err(&ended).lines().count() == 1 && !err(&ended).contains("error: error"), "{}", err(&ended));
    }
    for arguments in
        [["sim", "crash", "--every", "0", &file], ["sim", "storm", "--seeds", "0", &file], ["sim", "mutants", "--seeds", "0", &file]]
    {
        refused(&whittle(&arguments, ""), 2, &["write a whole number from 1 to 18446744073709551615"]);
    }
    for (text, is) in [("", "is empty"), ("# nothing\n", "is empty"), ("[]", "is a list")] {
        let wanted = format!("other.yaml: the file {is}, and no scenario, which is a mapping: write the keys name and steps");
        let ended = whittle(&["local", "run", &folder.file("other.yaml", text)], "");
        refused(&ended, 2, &[&wanted]);
        assert_eq!(err(&ended).matches("error").count(), 1, "{}", err(&ended));
    }
}

#[test]
fn a_number_out_of_its_range_is_told_the_range_also_if_it_is_negative() {
    let all = "18446744073709551615";
    for (arguments, least, most) in [
        (&["cost", "--nodes", "1", "--launches-per-hour", "1e9"][..], 0, "2000"),
        (&["cost", "--clusters", all], 1, "100"),
        (&["cost", "--nodes", "-1"], 0, "5000"),
        (&["local", "--seed", "-1"], 0, all),
        (&["local", "--web", "--web-port", "70000"], 0, "65535"),
        (&["local", "run", "--seed", "-1", "some.yaml"], 0, all),
        (&["sim", "storm", "--from", "-1", "some.yaml"], 0, all),
        (&["sim", "day", "--hours", "x"], 1, "10000"),
        (&["top", "--watch", "--every", "-1"], 1, "3600"),
        (&["console", "--port", "-1"], 0, "65535"),
    ] {
        refused(&whittle(arguments, ""), 2, &[&format!("write a whole number from {least} to {most}, in digits")]);
    }
}

#[test]
fn standard_input_named_twice_is_refused_by_every_command() {
    for command in [&["plan", "--region", "us-east-1"][..], &["check"], &["validate"], &["convert"]] {
        let ended = whittle(&[command, &["-f", "-", "-f", "-"]].concat(), WEB);
        refused(&ended, 2, &["standard input: it is named more than once with -"]);
    }
}

#[test]
fn a_program_without_an_answer_is_named_with_what_it_was_asked_for() {
    let folder = Folder::new("answers-of-aws");
    let aws = |script: &str| {
        let program = folder.program("aws", script);
        Command::new(env!("CARGO_BIN_EXE_whittle")).args(["savings", "--stack", "a"]).env("WHITTLE_AWS", program).output().unwrap()
    };
    for (script, came) in [("echo '{}'", "{}"), ("echo '{\"Stacks\": []}'", "{\"Stacks\":[]}")] {
        let wanted = format!("`aws cloudformation describe-stacks` printed {came}, without a stack in a list Stacks");
        refused(&aws(script), 2, &[&wanted]);
    }
}

#[test]
fn a_ledger_that_is_empty_has_saved_nothing_that_is_known() {
    let folder = Folder::new("ledger");
    refused(&whittle(&["savings", &folder.file("ledger.json", "")], ""), 2, &["ledger.json is empty"]);
    let none = folder.file("none.json", "[]");
    let ended = whittle(&["savings", &none, "--report", "/no/such/report.html"], "");
    refused(&ended, 1, &["/no/such/report.html: the report cannot be written"]);
    assert!(out(&ended).contains("nothing was saved"), "what is known is printed: {}", out(&ended));
    assert!(!Path::new("/no/such").exists());
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
fn a_misspelt_kind_of_kubernetes_is_told_by_every_command() {
    for (version, kind) in [("app/v1", "Deployment"), ("apps/v1", "Deploymnet"), ("apps/v1beta1", "Deployment")] {
        let text = WEB.replace("apps/v1", version).replace("kind: Deployment", &format!("kind: {kind}"));
        let wanted = format!(
            "warning: {kind} \"web\": no server has {kind} of {version}, so that it has no effect; did you mean apps/v1 Deployment?"
        );
        let checked = whittle(&["check", "-f", "-"], &text);
        assert!(checked.status.success() && out(&checked).contains(&wanted), "{}{}", out(&checked), err(&checked));
        refused(&whittle(&["check", "--strict", "-f", "-"], &text), 1, &["did you mean apps/v1 Deployment?"]);
        let planned = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &text);
        assert!(planned.status.success() && err(&planned).contains(&wanted), "{}", err(&planned));
        let applied = whittle(&["local"], &format!("apply -f -\n{text}EOF\n"));
        assert!(out(&applied).contains(&wanted), "{}{}", out(&applied), err(&applied));
    }
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
fn a_file_without_its_option_is_told_how_it_is_named() {
    let folder = Folder::new("named");
    let file = folder.file("pool.yaml", WEB);
    for command in ["plan", "consolidate", "compare", "explain"] {
        refused(&whittle(&[command, &file], ""), 2, &[&format!("note: files are named with -f: -f {file}")]);
    }
}

#[test]
fn numbers_that_cannot_be_are_refused_for_what_they_are() {
    let folder = Folder::new("numbers");
    let none = folder.file("none.yaml", WEB);
    for (arguments, wanted) in [
        (&["plan", "-f", &none, "--machine-cost", "-1"][..], "\"-1\" is no cost of a machine"),
        (&["cost", "--nodes", "-1"], "write a whole number from 0 to 5000"),
        (&["savings", "--since", "-1d"], "write numbers with units"),
        (&["plan", "-f", &none, "--now", "9999-12-31T23:59:59Z"], "write one up to 9999-12-30T22:00:00Z"),
        (&["plan", "-f", &none, "--now", "yesterday"], "write date, time and zone"),
        (&["cost", "--region", ""], "no region has this name: write it as in us-east-1"),
    ] {
        refused(&whittle(arguments, ""), 2, &[wanted]);
    }
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 2000000000, template: {spec: {containers: [{name: c, \
               image: i}]}}}\n";
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], job), 2, &["spec.parallelism: 2000000000 pods at a time are too many"]);
    let ended = whittle(&["local"], "advance\n");
    assert_eq!(err(&ended).matches("error: ").count(), 1, "{}", err(&ended));
    refused(&ended, 2, &["<TIME>", "usage: advance <TIME>"]);
}

#[test]
fn a_misspelt_field_that_would_count_is_refused_by_every_command() {
    for (from, to, wanted) in [
        (
            "replicas: 3",
            "replica: 3",
            "Deployment \"web\", spec.replica: there is no such field, and it would not count: did you mean replicas?",
        ),
        ("{containers:", "{nodeSelecter: {a: b}, containers:", "spec.template.spec.nodeSelecter: there is no such field"),
        ("image: i", "image: i, resource: {requests: {cpu: 1}}", "spec.template.spec.containers[0].resource: there is no such field"),
    ] {
        let text = WEB.replacen(from, to, 1);
        refused(&whittle(&["check", "-f", "-"], &text), 1, &[wanted]);
        refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], &text), 2, &[wanted]);
        refused(&whittle(&["local"], &format!("apply -f -\n{text}EOF\n")), 2, &[wanted]);
    }
}

#[test]
fn settings_that_plan_refuses_and_objects_that_differ_are_told_by_check() {
    let settings = |line: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: plan-settings}}\ndata: {{{line}}}\n");
    for (line, wanted) in [
        ("now: tomorrow", "plan-settings: now cannot be \"tomorrow\""),
        (
            "preferencePolic: Ignore",
            "plan-settings: \"preferencePolic\" is no setting, and would not count: known are now, preferencePolicy",
        ),
    ] {
        refused(&whittle(&["check", "-f", "-"], &settings(line)), 1, &[wanted]);
        refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], &settings(line)), 2, &[wanted]);
    }
    assert!(whittle(&["check", "-f", "-"], &settings("preferencePolicy: Ignore")).status.success());
    let twice = format!("{WEB}---\n{}", WEB.replace("replicas: 3", "replicas: 4").replace("name: web}", "name: web, namespace: default}"));
    let wanted = ["is given twice, and differently: in standard input, document 1 and in standard input, document 2"];
    refused(&whittle(&["check", "-f", "-"], &twice), 1, &wanted);
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], &twice), 2, &wanted);
    assert!(!out(&whittle(&["check", "-f", "-"], &format!("{WEB}---\n{WEB}"))).contains("given twice"));
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
}

#[test]
fn an_answer_that_failed_a_cluster_without_a_name_and_a_region_that_is_none_are_refused() {
    let status = r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "nodepools is forbidden"}"#;
    refused(&whittle(&["validate", "-f", "-"], status), 1, &["this is the answer to a request that failed: nodepools is forbidden"]);
    let config = "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata:\nname: shop\nregion: us-east-1\n";
    let wanted = ["metadata.name: missing: eksctl needs it, indented below metadata", "metadata.region: missing"];
    refused(&whittle(&["check", "-f", "-"], config), 1, &wanted);
    assert_eq!(
        whittle(&["check", "-f", "-"], &config.replace("\nname", "\n  name").replace("\nregion", "\n  region")).status.code(),
        Some(0)
    );
    for region in ["", "US-EAST-1", "us-east-1a", "us-\u{1b}[31mx\n1"] {
        for command in [&["plan", "-f", "-", "--region", region][..], &["catalog", "--region", region], &["cost", "--region", region]] {
            let output = whittle(command, WEB);
            refused(&output, 2, &["no region has this name: write it as in us-east-1"]);
            assert!(!err(&output).contains('\u{1b}'), "{}", err(&output));
        }
    }
}

#[test]
fn a_wrong_argument_is_quoted_on_one_line() {
    for words in [
        &["plan", "--now", "a\nFORGED: x"][..],
        &["plan", "--replicas", "a\nFORGED: x"],
        &["pl\nFORGED: x"],
        &["check", "--node-role", "a\nFORGED: x", "-f", "-"],
    ] {
        let output = whittle(words, WEB);
        assert!(!output.status.success(), "{words:?}: {}", out(&output));
        let said = format!("{}{}", out(&output), err(&output));
        assert!(said.contains("FORGED") && !said.lines().any(|line| line.starts_with("FORGED")), "{words:?}: {said}");
    }
}
