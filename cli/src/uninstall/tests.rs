use super::*;

fn args(change: impl FnOnce(&mut Args)) -> Args {
    let mut args =
        Args { cluster: "prod".into(), function: "whittle-Sweep".into(), nodes: Nodes::Drain, yes: false, print: false, region: None };
    change(&mut args);
    args
}

fn payload(args: &Args) -> String {
    let all = invocation(args);
    let at = all.iter().position(|word| word == "--payload").unwrap();
    all[at + 1].clone()
}

#[test]
fn without_yes_it_is_a_dry_run() {
    assert_eq!(payload(&args(|_| {})), r#"{"uninstall":{"cluster":"prod","nodes":"drain","dryRun":true}}"#);
    let sure = args(|args| {
        args.yes = true;
        args.nodes = Nodes::Keep;
    });
    assert_eq!(payload(&sure), r#"{"uninstall":{"cluster":"prod","nodes":"keep","dryRun":false}}"#);
    let back = args(|args| args.nodes = Nodes::HandOver);
    assert_eq!(payload(&back), r#"{"uninstall":{"cluster":"prod","nodes":"handOver","dryRun":true}}"#);
}

#[test]
fn the_printed_command_can_be_run_in_a_shell() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let print_only = args(|args| {
        args.print = true;
        args.region = Some("eu-west-1".into());
    });
    run(&print_only, &"/nonexistent/aws".into(), &mut out, &mut err).unwrap();
    let expected = "aws lambda invoke --function-name whittle-Sweep --cli-binary-format raw-in-base64-out --payload \
                    '{\"uninstall\":{\"cluster\":\"prod\",\"nodes\":\"drain\",\"dryRun\":true}}' --region eu-west-1 /dev/stdout\n";
    assert_eq!((String::from_utf8(out).unwrap().as_str(), err.as_slice()), (expected, &[][..]));
}

#[test]
fn without_the_aws_command_the_error_shows_the_invocation() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    run(&args(|_| {}), &"/nonexistent/aws".into(), &mut out, &mut err).unwrap();
    let err = String::from_utf8(err).unwrap();
    assert!(err.contains("cannot be run") && err.contains("aws lambda invoke"), "{err}");
    assert!(out.is_empty());
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
