//! What kubectl and the AWS CLI answered, and what was saved of it in files.

use super::*;
use std::path::Path;

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
fn validate_gives_the_message_of_a_request_that_failed() {
    let status = r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "nodepools is forbidden"}"#;
    refused(&whittle(&["validate", "-f", "-"], status), 1, &["this is the answer to a request that failed: nodepools is forbidden"]);
}

#[test]
fn an_eksctl_file_needs_the_name_and_region_of_its_cluster() {
    let config = "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata:\nname: shop\nregion: us-east-1\n";
    let wanted = ["metadata.name: missing: eksctl needs it, indented below metadata", "metadata.region: missing"];
    refused(&whittle(&["check", "-f", "-"], config), 1, &wanted);
    assert_eq!(
        whittle(&["check", "-f", "-"], &config.replace("\nname", "\n  name").replace("\nregion", "\n  region")).status.code(),
        Some(0)
    );
}

#[test]
fn a_region_that_none_can_be_is_refused_by_every_command() {
    for region in ["", "US-EAST-1", "us-east-1a", "us-\u{1b}[31mx\n1"] {
        for command in [&["plan", "-f", "-", "--region", region][..], &["catalog", "--region", region], &["cost", "--region", region]] {
            let output = whittle(command, WEB);
            refused(&output, 2, &["no region has this name: write it as in us-east-1"]);
            assert!(!err(&output).contains('\u{1b}'), "{}", err(&output));
        }
    }
}
