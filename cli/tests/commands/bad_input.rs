//! Input that no cluster and no program would give on purpose: it is refused as a whole, with what is wrong, and reaches no terminal raw.

mod answers;
mod arguments;
mod scenarios;
mod syntax;

use super::{err, out, tests, whittle};
use std::path::PathBuf;
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
        // It is compared with each option.
        session(&format!("get pods --{}\n", &long[..100_000])),
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
fn a_report_says_what_is_refused() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {containers: [{name: c, resources: {requests: {cpu: -1}}}]}\n";
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec: {weight: 500, template: {spec: {nodeClassRef: \
                {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}\n";
    let said = "resources.requests.cpu: -1 is less than nothing";
    let invalid = "spec.weight";
    // A debug build takes half a second for the tables of a region.
    let catalog = tests().join("golden/catalog.json").display().to_string();
    for (command, text, wanted) in [
        ("plan", format!("{WEB}---\n{pod}"), said),
        ("plan", format!("{WEB}---\n{pool}"), invalid),
        ("consolidate", pool.to_owned(), invalid),
    ] {
        for form in ["text", "markdown", "html", "json"] {
            let ended = whittle(&[command, "-f", "-", "--instance-types", &catalog, "-o", form], &text);
            refused(&ended, 1, &[wanted]);
            let printed = out(&ended).replace('\\', "");
            assert_eq!(printed.contains(wanted), form != "text", "{command} {form}: {printed}");
        }
    }
    // Nothing is said of an input with which nothing is wrong.
    let fine = out(&whittle(&["plan", "-f", "-", "--instance-types", &catalog, "-o", "markdown"], &pool.replace("500", "5")));
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

/// kubectl's `-k` builds it, and its `-f` finds no such kind.
#[test]
fn a_directory_of_kustomize_is_told_what_makes_manifests_of_it() {
    let folder = Folder::new("kustomize");
    folder.file("kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [web.yaml]\n");
    folder.file("web.yaml", WEB);
    let path = folder.0.display().to_string();
    let wanted = "warning: Kustomization of kustomize.config.k8s.io: Kustomize makes manifests of it";
    let checked = whittle(&["check", "-f", &path], "");
    assert!(checked.status.success() && out(&checked).contains(wanted), "{}{}", out(&checked), err(&checked));
    let planned = whittle(&["plan", "-f", &path, "--region", "us-east-1"], "");
    assert!(planned.status.success() && err(&planned).contains(wanted), "{}", err(&planned));
    assert!(!err(&planned).contains("skipped"), "{}", err(&planned));
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
    let items =
        "- {apiVersion: v1, kind: Node, metadata: {name: a}}\n- {apiVersion: v1, kind: Node, metadata: {name: a, labels: {b: c}}}\n";
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{items}");
    let wanted = "Node \"a\" is given twice, and differently: two items of the list in standard input, document 1";
    refused(&whittle(&["check", "-f", "-"], &list), 1, &[&format!("{wanted}, lines 4 and 5; leave one of them out")]);
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], &list), 2, &[&format!("{wanted}; leave one of them out")]);
}
