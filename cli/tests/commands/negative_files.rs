//! Invalid input: the error names file, line or object, field and remedy; the exit code is 2; nothing is applied.

use crate::{err, out, seed, tests, whittle};
use std::path::Path;

fn catalog() -> String {
    tests().join("golden/catalog.json").display().to_string()
}

/// Every command rejects a file with the same error, and applies nothing.
#[track_caller]
fn check(file: &str, wanted: &[&str]) {
    let plan = whittle(&["plan", "-f", file, "--instance-types", &catalog()], "");
    let convert = whittle(&["convert", "-f", file], "");
    // Tests run concurrently in this process, so each has a scenario file of its own.
    let name = Path::new(file).file_stem().unwrap().display().to_string();
    let scenario = std::env::temp_dir().join(format!("whittle-negative-{}-{name}.yaml", std::process::id()));
    let steps = format!("name: negative\nfiles: /\nsteps:\n  - apply: [{file:?}]\n");
    std::fs::write(&scenario, steps).unwrap();
    let run = whittle(&["local", "run", &scenario.display().to_string()], "");
    std::fs::remove_file(&scenario).unwrap();
    let prompt = whittle(&["local"], &format!("apply -f {file}\nget nodeclaims\n"));
    for (command, output) in [("plan", plan), ("convert", convert), ("local run", run), ("local", prompt)] {
        assert_eq!(output.status.code(), Some(2), "{command}: {}", err(&output));
        let message = err(&output);
        for text in wanted {
            assert!(message.contains(text), "{command} does not print {text:?}:\n{message}");
        }
        assert!(!out(&output).contains("created"), "{command} applied something: {}", out(&output));
    }
}

#[test]
fn s1_27_a_pool_without_indentation_is_rejected_by_every_command() {
    check(&seed("001-provisioner-as-printed.txt"), &["001-provisioner-as-printed.txt:17:1", "document 1", "indentation was lost"]);
}

#[test]
fn s4_11_wrong_indentation_is_rejected_at_line_ten_by_every_command() {
    check(&seed("004-provisioner-as-printed.txt"), &["004-provisioner-as-printed.txt:10:11", "indentation was damaged", "column 8"]);
}

#[test]
fn s3_12_every_command_reports_all_errors_of_the_printed_selector_terms() {
    let faults = [
        "003-ec2nodeclass-selector-terms-as-printed.yaml:16:5",
        "amiSelectorTerms[0].owner: text is needed here, not 123456789: put it in quotes, with the leading zeros of the account id",
        "amiSelectorTerms[1].owner: text is needed",
        "securityGroupSelectorTerms[0].id: \"abc-123\" does not have the form",
        "securityGroupSelectorTerms[1].id: \"abc-123\" does not have the form",
        "an id excludes tags and a name",
    ];
    check(&seed("003-ec2nodeclass-selector-terms-as-printed.yaml"), &faults);
}

/// Checks that a command fails with exit code 2, and with an error that contains `wanted`.
#[track_caller]
fn refused(arguments: &[&str], input: &str, wanted: &[&str]) {
    let output = whittle(arguments, input);
    let message = err(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    for text in wanted {
        assert!(message.contains(text), "{arguments:?} does not say {text:?}:\n{message}");
    }
}

#[test]
fn a_kind_that_karpenter_never_had_is_rejected() {
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePol\nmetadata: {name: a}\n";
    refused(
        &["plan", "-f", "-", "--instance-types", &catalog()],
        text,
        &["there is no kind NodePol in karpenter.sh/v1", "NodePool and NodeClaim"],
    );
    let file = std::env::temp_dir().join(format!("whittle-kind-{}.yaml", std::process::id()));
    std::fs::write(&file, format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: first}}\n---\n{text}")).unwrap();
    let output = whittle(&["local"], &format!("apply -f {}\n", file.display()));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("document 2") && err(&output).contains("NodePol"), "{}", err(&output));
    assert_eq!(out(&output), "", "nothing of the file is applied");
}

#[test]
fn the_error_of_a_missing_file_names_it() {
    refused(&["plan", "-f", "/no/such/pods.yaml", "--instance-types", &catalog()], "", &["/no/such/pods.yaml"]);
    refused(
        &["plan", "-f", &seed("001-provisioner-default.yaml"), "--instance-types", "/no/such/catalog.json"],
        "",
        &["/no/such/catalog.json"],
    );
    refused(&["local", "run", "/no/such/scenario.yaml"], "", &["/no/such/scenario.yaml", "correct its name"]);
    let directory = tests().join("scenarios").display().to_string();
    refused(&["local", "run", &directory], "", &[directory.as_str(), "it is a directory", "as with DIRECTORY/*.yaml"]);
    refused(&["local"], "apply -f /no/such/pool.yaml\n", &["/no/such/pool.yaml"]);
}

#[test]
fn a_typo_in_a_scenario_is_reported_with_its_line_before_anything_is_played() {
    let file = std::env::temp_dir().join(format!("whittle-typo-{}.yaml", std::process::id()));
    std::fs::write(&file, "name: typo\nsteps:\n  - say: hello\n  - sclae: {deployment: x, replicas: 1}\n").unwrap();
    let good = tests().join("scenarios/s2_budget.yaml").display().to_string();
    let output = whittle(&["local", "run", &good, &file.display().to_string()], "");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("sclae") && err(&output).contains("line 4"), "{}", err(&output));
    assert_eq!(out(&output), "");
}

#[test]
fn what_is_wrong_in_a_scenario_is_said_in_the_words_of_its_files() {
    for (text, says) in [
        ("name: a", "line 1 column 1: the field \"steps\" is missing: write it"),
        ("name: a\nsteps: [{apply: a}]", "line 2 column 17: a list is needed here"),
        ("name: a\nsteps: [{interrupt: 3}]", "line 2 column 21: a map of fields is needed here"),
        ("name: a\nsteps: [{say: a, apply: [b]}]", "line 2 column 18: a step has one key: write an item of the list for each"),
        ("name: a\nseed: x\nsteps: []", "line 2 column 7: a whole number from 0 on is needed here"),
        ("name: a\nsteps: [{scale: {deployment: web, replicas: 1.5}}]", "line 2 column 45: a whole number is needed here"),
        ("name: a\nfoo: b\nsteps: []", "line 2 column 1: there is no field \"foo\" here; there are name, shows, "),
    ] {
        let file = std::env::temp_dir().join(format!("whittle-words-{}.yaml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        refused(&["local", "run", &file.display().to_string()], "", &[says]);
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn an_unknown_instance_type_or_zone_is_reported_before_anything_is_played() {
    for (stock, named) in [("{type: m5.nonsense}", "m5.nonsense"), ("{type: m5.large, zone: mars-1a}", "mars-1a")] {
        let file = std::env::temp_dir().join(format!("whittle-stock-{}.yaml", std::process::id()));
        std::fs::write(&file, format!("name: stock\nsteps:\n  - say: hello\n  - stock-out: {stock}\n")).unwrap();
        refused(&["local", "run", &file.display().to_string()], "", &[named, "line 4"]);
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_file_that_a_scenario_names_must_exist() {
    let file = std::env::temp_dir().join(format!("whittle-names-{}.yaml", std::process::id()));
    std::fs::write(&file, "name: names\nsteps:\n  - apply: [no-such-manifest]\n").unwrap();
    refused(&["local", "run", &file.display().to_string()], "", &["no-such-manifest", ":3:"]);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_session_rejects_unknown_commands_and_arguments() {
    refused(&["local"], "fly to the moon\n", &["\"fly\" is no command", "help"]);
    refused(&["local"], "scale deploy/none --replicas 3\n", &["none"]);
    refused(&["local"], "scale deploy/none --replicas many\n", &["many"]);
    refused(&["local"], "interrupt no-such-node\n", &["no-such-node"]);
    refused(&["local"], "get secrets\n", &["Secrets are not simulated"]);
    refused(&["local"], "advance soon\n", &["soon"]);
    refused(&["local"], "explain absent\n", &["absent"]);
}

#[test]
fn a_pool_of_a_misspelt_group_is_rejected_by_every_command() {
    let pool = "apiVersion: karpentr.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec: {}\n";
    let wanted = ["NodePool \"default\"", "no server has NodePool of karpentr.sh/v1; did you mean karpenter.sh/v1?"];
    let file = std::env::temp_dir().join(format!("whittle-misspelt-{}.yaml", std::process::id()));
    std::fs::write(&file, pool).unwrap();
    check(&file.display().to_string(), &wanted);
    std::fs::remove_file(&file).unwrap();
    refused(&["consolidate", "-f", "-", "--instance-types", &catalog()], pool, &wanted);
    refused(&["explain", "pod/a", "-f", "-", "--instance-types", &catalog()], pool, &wanted);
    let checked = whittle(&["check", "-f", "-"], pool);
    assert!(checked.status.code() == Some(1) && err(&checked).contains(wanted[1]), "it would not work: {}", err(&checked));

    // Beside other objects it is left out as every unreadable object is, and never without a word.
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n---\n";
    let planned = whittle(&["plan", "-f", "-", "--instance-types", &catalog()], &format!("{pod}{pool}"));
    assert!(err(&planned).contains(wanted[1]), "{}{}", out(&planned), err(&planned));
}

#[test]
fn a_schedule_that_never_comes_is_told_by_every_command() {
    let schedule = "spec.disruption.budgets[0].schedule: schedule field \"61\" does not fit 0 to 59";
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec: {disruption: {budgets: \
                [{nodes: 10%, schedule: '61 25 * * *', duration: 1h}]}, template: {spec: {requirements: [], nodeClassRef: \
                {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}\n";
    let checked = whittle(&["check", "-f", "-"], text);
    assert_eq!(checked.status.code(), Some(1), "it would not work");
    assert!(err(&checked).contains(schedule), "{}", err(&checked));
    for command in ["plan", "consolidate"] {
        let decided = whittle(&[command, "-f", "-", "--instance-types", &catalog()], text);
        assert_eq!(decided.status.code(), Some(0), "a server accepts it");
        assert!(err(&decided).contains(&format!("warning: NodePool \"default\", {schedule}")), "{command}: {}", err(&decided));
    }
    let file = std::env::temp_dir().join(format!("whittle-schedule-{}.yaml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let applied = whittle(&["local"], &format!("apply -f {}\n", file.display()));
    std::fs::remove_file(&file).unwrap();
    assert!(out(&applied).contains(schedule), "{}{}", out(&applied), err(&applied));
}

#[test]
fn nonsense_is_refused_at_once() {
    let deployment = seed("004-deployment-inflate.yaml");
    refused(&["local"], &format!("apply -f {deployment}\nscale deploy/inflate --replicas 2000000000\n"), &["at most 10000"]);
    refused(&["local"], &format!("apply -f {deployment}\nscale deploy/inflate --replicas -3\n"), &["write 0 or more"]);
    refused(&["local", "--region", "mars-1"], "", &["no region has this name", "us-east-1"]);
    refused(&["local", "--kubernetes-version", "banana"], "", &["EKS has no such version", "1.33"]);
    refused(&["local", "--cluster", "a b"], "", &["no cluster has this name"]);
}

/// Runs a command on a file of these bytes.
#[track_caller]
fn refused_file(name: &str, bytes: &[u8], wanted: &[&str]) {
    let folder = std::env::temp_dir().join(format!("whittle-odd-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("in.yaml");
    std::fs::write(&file, bytes).unwrap();
    refused(&["plan", "-f", &file.display().to_string(), "--instance-types", &catalog()], "", wanted);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_no_manifest_is_called_what_it_is() {
    refused_file("utf16", &[0xff, 0xfe, b'a', 0, b':', 0], &["in.yaml: this is text in UTF-16", "UTF-8"]);
    refused_file("bytes", &[b'a', 0xff], &["no text in UTF-8"]);
    refused_file("empty", b"# nothing\n", &["there is no object in ", "in.yaml"]);
    refused_file(
        "template",
        b"kind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n",
        &["in.yaml:3:", "looks like a template", "helm template"],
    );
    refused_file("json", b"{\"apiVersion\": \"v1\", \"kind\": \"Pod\"", &["this is no JSON"]);
    let pool = b"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec: {weight: heavy}\n";
    refused_file("words", pool, &["spec.weight: a whole number is needed here, not \"heavy\"\n"]);
    let list = br#"{"apiVersion": "v1", "kind": "List", "items": [null, 5, {"apiVersion": "v1", "kind": "Pod"}]}"#;
    refused_file("list", list, &["List, items[0]: null is no object", "List, items[1]: 5 is no object"]);
}

#[test]
fn a_wrong_argument_is_told_the_right_form() {
    let pool = seed("001-provisioner-default.yaml");
    refused(&["plan", &pool], "", &[&format!("note: files are named with -f: -f {pool}")]);
    refused(&["plan", "-f", &pool, "--instance-types", &catalog(), "--now", "yesterday"], "", &["as in 2026-01-01T00:00:00Z"]);
    refused(&["savings", "--since", "soon"], "", &["as in 90m, 24h or 7d"]);
    assert_eq!(whittle(&["savings", "--since", "7d", "-"], "[]").status.code(), Some(0));
    refused(&["plan", "-f", &pool, "--region", "eu-central-1"], "", &["no tables of region eu-central-1", "--rename eu-central-1"]);
    let file = std::env::temp_dir().join(format!("whittle-catalog-{}.json", std::process::id()));
    for (text, wanted) in [("{}", "no JSON list of instance types"), ("[]", "it has no instance type")] {
        std::fs::write(&file, text).unwrap();
        refused(&["plan", "-f", &pool, "--instance-types", &file.display().to_string()], "", &[wanted, "whittle catalog"]);
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_region_without_tables_is_planned_with_the_catalog_of_another() {
    let words = ["catalog", "--region", "eu-west-1", "--rename", "eu-central-1", "--type", "m7i.large", "--type", "m7i.xlarge"];
    let printed = whittle(&words, "");
    assert_eq!(printed.status.code(), Some(0), "{}", err(&printed));
    let file = std::env::temp_dir().join(format!("whittle-renamed-{}.json", std::process::id()));
    std::fs::write(&file, out(&printed)).unwrap();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {nodeSelector: {topology.kubernetes.io/zone: eu-central-1b}, containers: \
               [{name: c, image: i, resources: {requests: {cpu: 3}}}]}\n";
    let words = ["plan", "-f", "-", "-f", &seed("004-provisioner-default.yaml"), "--instance-types", &file.display().to_string()];
    let planned = whittle(&words, pod);
    std::fs::remove_file(&file).unwrap();
    assert!(out(&planned).contains("m7i.xlarge") && out(&planned).contains("eu-central-1b"), "{}{}", out(&planned), err(&planned));
    refused(&["catalog", "--region", "eu-west-1", "--type", "x9.huge"], "", &["--type x9.huge"]);
    refused(&["catalog", "--region", "mars-north-1"], "", &["no tables of region mars-north-1"]);
}
