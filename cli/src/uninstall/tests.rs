use super::*;

fn args(change: impl FnOnce(&mut Args)) -> Args {
    let mut args = Args {
        cluster: "prod".into(),
        stack: "whittle".into(),
        function: Some("whittle-Sweep".into()),
        nodes: Nodes::Drain,
        keep_nodes: false,
        yes: false,
        dry_run: false,
        print: false,
        region: None,
        profile: None,
    };
    change(&mut args);
    args
}

fn missing() -> Program {
    Program::aws(Some("eu-west-1"), None).at("/nonexistent/aws")
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("whittle-uninstall-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// An `aws` that is a shell script.
fn aws(folder: &std::path::Path, script: &str) -> Program {
    use std::os::unix::fs::PermissionsExt;
    let file = folder.join("aws");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    Program::aws(None, None).at(file)
}

fn ran(args: &Args, aws: &Program) -> (ExitCode, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args, aws, &mut out, &mut err).unwrap();
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn a_dry_run_may_be_asked_for_as_of_other_commands() {
    use clap::Parser as _;
    let parse = |words: &[&str]| crate::Cli::try_parse_from([&["whittle", "uninstall", "--cluster", "shop"][..], words].concat());
    for words in [&[][..], &["--dry-run"], &["-y"], &["--yes"]] {
        assert!(parse(words).is_ok(), "{words:?}");
    }
    assert!(parse(&["--dry-run", "--yes"]).is_err());
}

#[test]
fn without_yes_it_is_a_dry_run() {
    assert_eq!(request(&args(|_| {})), r#"{"uninstall":{"cluster":"prod","nodes":"drain","dryRun":true}}"#);
    let sure = args(|args| {
        args.yes = true;
        args.nodes = Nodes::Keep;
    });
    assert_eq!(request(&sure), r#"{"uninstall":{"cluster":"prod","nodes":"keep","dryRun":false}}"#);
    for back in [args(|args| args.nodes = Nodes::HandOver), args(|args| args.keep_nodes = true)] {
        assert_eq!(request(&back), r#"{"uninstall":{"cluster":"prod","nodes":"handOver","dryRun":true}}"#);
    }
}

#[test]
fn keep_nodes_stands_for_hand_over_and_beside_no_other_choice() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let parse = |line: &str| <Line as clap::Parser>::try_parse_from(line.split(' ')).map(|line| request(&line.args));
    let handed_over = parse("uninstall --cluster prod --nodes hand-over").unwrap();
    assert_eq!(parse("uninstall --cluster prod --keep-nodes").unwrap(), handed_over);
    for other in ["drain", "keep", "hand-over"] {
        let error = parse(&format!("uninstall --cluster prod --keep-nodes --nodes {other}")).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{other}");
    }
}

#[test]
fn the_printed_command_can_be_run_in_a_shell() {
    let expected = "echo '{\"uninstall\":{\"cluster\":\"prod\",\"nodes\":\"drain\",\"dryRun\":true}}' | aws lambda invoke --function-name \
                    whittle-Sweep --cli-read-timeout 0 --payload fileb:///dev/stdin /dev/stdout --region eu-west-1 --output json\n";
    let (_, out, err) = ran(&args(|args| args.print = true), &missing());
    assert_eq!((out.as_str(), err.as_str()), (expected, ""));
}

#[test]
fn without_the_aws_command_the_error_shows_the_invocation() {
    let (_, out, err) = ran(&args(|_| {}), &missing());
    assert!(err.contains("cannot be run") && err.contains("| aws lambda invoke"), "{err}");
    assert!(out.is_empty());
}

#[test]
fn the_stack_names_the_function_which_reads_the_request() {
    let folder = folder("stack");
    let stack = r#"{"Stacks": [{"StackId": "arn:aws:cloudformation:eu-west-1:1:stack/whittle/x", "Outputs":
        [{"OutputKey": "SweepFunction", "OutputValue": "whittle-Sweep-X"}]}]}"#;
    let asked = folder.join("asked");
    let script = format!(
        "case \"$*\" in\n*describe-stacks*) echo '{stack}' ;;\n*) echo \"$*\" > {0}; cat >> {0}; echo '{{\"told\": [\"would drain a\"]}}' ;;\nesac",
        asked.display()
    );
    let (code, out, err) = ran(&args(|args| args.function = None), &aws(&folder, &script));
    assert_eq!((code, err.as_str()), (ExitCode::SUCCESS, ""));
    assert_eq!(out, "would drain a\nNothing was changed. Add --yes to do it.\n");
    let asked = std::fs::read_to_string(asked).unwrap();
    assert!(asked.contains("--function-name whittle-Sweep-X"), "{asked}");
    assert!(asked.ends_with(r#"{"uninstall":{"cluster":"prod","nodes":"drain","dryRun":true}}"#), "{asked}");
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_stack_that_is_no_deployment_of_ours_is_named_and_nothing_is_invoked() {
    let folder = folder("other");
    let stack = r#"{"Stacks": [{"StackId": "arn:aws:cloudformation:eu-west-1:1:stack/whittle/x"}]}"#;
    let script = format!("case \"$*\" in\n*describe-stacks*) echo '{stack}' ;;\n*) touch {}/invoked ;;\nesac", folder.display());
    let (code, _, err) = ran(&args(|args| args.function = None), &aws(&folder, &script));
    assert_eq!(code, ExitCode::from(2));
    assert!(err.contains("stack whittle has no output SweepFunction"), "{err}");
    assert!(!folder.join("invoked").exists());
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_cluster_that_the_stack_does_not_serve_is_told_and_nothing_is_invoked() {
    let folder = folder("unserved");
    let stack = |clusters: &str| {
        format!(
            r#"{{"Stacks": [{{"StackId": "arn:aws:cloudformation:eu-west-1:1:stack/whittle/x", "StackName": "whittle",
                "Parameters": [{{"ParameterKey": "Clusters", "ParameterValue": "{clusters}"}}],
                "Outputs": [{{"OutputKey": "SweepFunction", "OutputValue": "whittle-Sweep-X"}}]}}]}}"#
        )
    };
    let run_on = |clusters: &str| {
        let stack = stack(clusters);
        let invoked = format!("touch {}/invoked; echo '{{\"told\": [\"nothing is left\"]}}'", folder.display());
        let script = format!("case \"$*\" in\n*describe-stacks*) echo '{stack}' ;;\n*) {invoked} ;;\nesac");
        ran(&args(|args| args.function = None), &aws(&folder, &script))
    };
    let (code, _, err) = run_on("dev, prod-2");
    assert_eq!(code, ExitCode::from(2));
    assert!(err.starts_with("error: stack whittle does not serve cluster prod, but dev, prod-2: name one of these by --cluster"), "{err}");
    assert!(!folder.join("invoked").exists());
    let (code, out, err) = run_on("dev, prod");
    assert!(code == ExitCode::SUCCESS && out.starts_with("nothing is left\n") && folder.join("invoked").exists(), "{out}{err}");
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_stack_that_was_never_whole_is_told_with_what_to_do_and_nothing_is_invoked() {
    let folder = folder("rolled-back");
    let stack = r#"{"Stacks": [{"StackId": "arn:aws:cloudformation:eu-west-1:1:stack/whittle/x", "StackName": "whittle",
        "StackStatus": "ROLLBACK_COMPLETE"}]}"#;
    let script = format!("case \"$*\" in\n*describe-stacks*) echo '{stack}' ;;\n*) touch {}/invoked ;;\nesac", folder.display());
    let (code, _, err) = ran(&args(|args| args.function = None), &aws(&folder, &script));
    assert_eq!(code, ExitCode::from(2));
    assert!(err.contains("is in state ROLLBACK_COMPLETE") && err.contains("delete-stack --stack-name whittle"), "{err}");
    assert!(!folder.join("invoked").exists());
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn the_answer_of_the_function_is_parsed_as_lines_and_an_error_as_none() {
    let answer = br#"{"told":["would drain a","would drain b"]}{"StatusCode": 200}"#;
    assert_eq!(parse_answer(answer).unwrap(), ["would drain a", "would drain b"]);
    assert_eq!(parse_answer(br#"{"errorMessage":"no"}"#), None);
    assert_eq!(parse_answer(b""), None);
}

#[test]
fn an_uninstallation_that_did_not_start_is_reported_as_an_error() {
    for (answer, begun) in [
        (r#"{"told":["still there: 2 claims"]}{"StatusCode": 200}"#, true),
        (r#"{"told":[]}"#, false),
        (r#"{"errorMessage":"the store stopped the work: the table throttles uninstall","errorType":"Failed"}"#, false),
        ("null", false),
    ] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = answered(&args(|args| args.yes = true), answer.as_bytes(), &mut out, &mut err).unwrap();
        let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
        assert_eq!(code == ExitCode::SUCCESS, begun, "{answer}: {out}{err}");
        assert_eq!(out.contains("goes on with it"), begun, "{answer}: {out}");
        assert_eq!(err.contains("run this again"), !begun, "{answer}: {err}");
    }
}
