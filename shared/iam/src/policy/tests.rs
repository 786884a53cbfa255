use super::*;
use serde_json::json;

fn request(action: &str, resource: &str, context: &[(&str, &[&str])]) -> Request {
    let context = context.iter().map(|(key, values)| (key.to_ascii_lowercase(), values.iter().map(|&value| value.to_owned()).collect()));
    Request { service: String::new(), action: action.to_owned(), resource: resource.to_owned(), context: context.collect() }
}

fn statement(value: &Value) -> Statement {
    Statement::parse(value).expect("the statement is sound")
}

/// Whether a condition holds in a context.
#[track_caller]
fn check(condition: Value, context: &[(&str, &[&str])], expected: bool) {
    let statement = statement(&json!({"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": condition}));
    assert_eq!(statement.applies(&request("a:b", "x", context)), expected, "{condition} of {context:?}");
}

#[test]
fn wildcards_match_any_text_or_one_letter() {
    for (pattern, text, expected) in [
        ("*", "", true),
        ("", "", true),
        ("a*c", "abbc", true),
        ("a*c", "abbcd", false),
        ("a*b*c", "aXbYbZc", true),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*x", "xx", true),
        ("CLAIM#*", "CLAIM#prod#1", true),
        ("CLAIM#*", "LEASE#CLAIM#", false),
        ("OFFERING", "OFFERINGS", false),
    ] {
        assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn a_wildcard_matches_within_one_part_of_an_arn() {
    assert!(arn("arn:*:eks:*:*:cluster/prod", "arn:aws:eks:us-west-2:111122223333:cluster/prod"));
    assert!(arn("arn:aws:ssm:us-west-2::parameter/aws/*", "arn:aws:ssm:us-west-2::parameter/aws/service/x"));
    assert!(arn("*", "arn:aws:sqs:r:a:q"));
    assert!(!arn("arn:aws:sqs:*:q", "arn:aws:sqs:r:a:q"), "a pattern of five parts");
    assert!(!arn("arn:aws:*:q:*:x", "arn:aws:s:r:q:y:x"));
    assert!(!arn("arn:*:eks:*:*:cluster/prod", "arn:aws:eks:us-west-2:111122223333:cluster/prod2"));
}

#[test]
fn not_action_and_not_resource_match_all_others() {
    let named = statement(&json!({"Effect": "Allow", "Action": ["ec2:Describe*", "s3:GetObject"], "Resource": "*"}));
    assert!(named.applies(&request("EC2:describeSubnets", "x", &[])), "actions have no case");
    assert!(!named.applies(&request("ec2:RunInstances", "x", &[])));
    let but = statement(&json!({"Effect": "Allow", "NotAction": "iam:*", "NotResource": "arn:aws:sqs:r:a:secret"}));
    assert!(but.applies(&request("sqs:SendMessage", "arn:aws:sqs:r:a:q", &[])));
    assert!(!but.applies(&request("iam:PassRole", "arn:aws:sqs:r:a:q", &[])));
    assert!(!but.applies(&request("sqs:SendMessage", "arn:aws:sqs:r:a:secret", &[])));
}

#[test]
fn an_absent_key_fails_all_operators_but_negated_and_if_exists_ones() {
    check(json!({"StringEquals": {"k": "v"}}), &[], false);
    check(json!({"StringLike": {"k": "*"}}), &[], false);
    check(json!({"Bool": {"k": "false"}}), &[], false);
    check(json!({"ArnEquals": {"k": "*"}}), &[], false);
    check(json!({"StringEqualsIfExists": {"k": "v"}}), &[], true);
    check(json!({"StringNotEquals": {"k": "v"}}), &[], true);
    check(json!({"StringNotLike": {"k": "v"}}), &[], true);
    check(json!({"ForAllValues:StringEquals": {"k": "v"}}), &[], true);
    check(json!({"ForAnyValue:StringEquals": {"k": "v"}}), &[], false);
    check(json!({"Null": {"k": "true"}}), &[], true);
    check(json!({"Null": {"k": "false"}}), &[], false);
}

#[test]
fn a_present_key_is_compared() {
    check(json!({"StringEquals": {"K": ["v", "w"]}}), &[("k", &["w"])], true);
    check(json!({"StringEquals": {"k": "v*"}}), &[("k", &["vx"])], false);
    check(json!({"StringEqualsIfExists": {"k": "v"}}), &[("k", &["w"])], false);
    check(json!({"StringLike": {"k": "v*"}}), &[("k", &["vx"])], true);
    check(json!({"StringNotEquals": {"k": ["v", "w"]}}), &[("k", &["w"])], false);
    check(json!({"StringNotLike": {"k": "v*"}}), &[("k", &["w"])], true);
    check(json!({"Bool": {"k": "false"}}), &[("k", &["False"])], true);
    check(json!({"Null": {"k": "false"}}), &[("k", &["v"])], true);
    check(json!({"ArnLike": {"k": "arn:aws:events:*:1:rule/a*"}}), &[("k", &["arn:aws:events:r:1:rule/ab"])], true);
    check(json!({"ArnEquals": {"k": "arn:aws:events:*:1:rule/a"}}), &[("k", &["arn:aws:events:r:2:rule/a"])], false);
}

#[test]
fn for_all_values_and_for_any_value_are_evaluated() {
    let all = json!({"ForAllValues:StringLike": {"k": ["a*", "b"]}});
    check(all.clone(), &[("k", &["a1", "b"])], true);
    check(all, &[("k", &["a1", "c"])], false);
    let any = json!({"ForAnyValue:StringEquals": {"k": ["a", "b"]}});
    check(any.clone(), &[("k", &["c", "b"])], true);
    check(any, &[("k", &["c", "d"])], false);
}

#[test]
fn all_keys_and_operators_of_a_condition_must_match() {
    let both = json!({"StringEquals": {"k": "v", "l": "w"}, "StringLike": {"m": "*"}});
    check(both.clone(), &[("k", &["v"]), ("l", &["w"]), ("m", &["x"])], true);
    check(both.clone(), &[("k", &["v"]), ("l", &["x"]), ("m", &["x"])], false);
    check(both, &[("k", &["v"]), ("l", &["w"])], false);
}

#[test]
fn an_explicit_deny_wins_and_the_default_is_deny() {
    let allow = statement(&json!({"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}));
    let deny = statement(&json!({"Effect": "Deny", "Principal": "*", "Action": "sqs:DeleteQueue", "Resource": "*"}));
    assert_eq!(decide([&allow, &deny], &request("sqs:SendMessage", "q", &[])), Decision::Allowed);
    assert_eq!(decide([&allow, &deny], &request("sqs:DeleteQueue", "q", &[])), Decision::Denied);
    assert_eq!(decide([&allow, &deny], &request("sns:Publish", "q", &[])), Decision::NotAllowed);
}

#[test]
fn a_resource_policy_applies_to_its_principals() {
    let trust = statement(&json!({"Effect": "Allow", "Principal": {"Service": ["lambda.amazonaws.com"]}, "Action": "sts:AssumeRole"}));
    let of = |service: &str| Request { service: service.to_owned(), ..request("sts:AssumeRole", "arn:aws:iam::1:role/r", &[]) };
    assert!(trust.applies(&of("lambda.amazonaws.com")));
    assert!(!trust.applies(&of("ec2.amazonaws.com")));
    assert!(!trust.applies(&of("")));
}

#[test]
fn unknown_operators_and_fields_are_errors() {
    for wrong in [
        json!({"Effect": "Maybe", "Action": "*"}),
        json!({"Effect": "Allow"}),
        json!({"Effect": "Allow", "Action": "*", "Condition": {"DateLessThan": {"k": "v"}}}),
        json!({"Effect": "Allow", "Action": "*", "Condition": {"ForSomeValues:StringLike": {"k": "v"}}}),
        json!({"Effect": "Allow", "Action": "*", "Resource": {"Ref": "Table"}}),
        json!({"Effect": "Allow", "Action": "*", "NotAction": "*"}),
    ] {
        assert!(Statement::parse(&wrong).is_err(), "{wrong}");
    }
}
