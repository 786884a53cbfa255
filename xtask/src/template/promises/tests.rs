use super::{broken, wider_than, without_reservations};
use serde_json::{Value, json};

/// A small application that meets every requirement.
fn valid_template() -> Value {
    let alarm = |metric: &str, value: Value| {
        json!({"Type": "AWS::CloudWatch::Alarm",
            "Properties": {"MetricName": metric, "Dimensions": [{"Name": "n", "Value": value}]}})
    };
    json!({"Resources": {
        "Terminate": {"Type": "AWS::Lambda::Function", "Properties": {
            "Runtime": "provided.al2023", "Timeout": 30, "Role": {"Fn::GetAtt": ["TerminateRole", "Arn"]}}},
        "TerminateRole": {"Type": "AWS::IAM::Role", "Properties": {"Policies": [{"PolicyDocument": {"Statement": [
            {"Action": "ec2:TerminateInstances", "Condition": {
                "StringEquals": {"aws:ResourceTag/eks:eks-cluster-name": {"Ref": "Clusters"}},
                "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"}}},
            {"Action": ["ec2:DescribeInstances"]}]}}]}},
        "Queue": {"Type": "AWS::SQS::Queue", "Properties": {
            "VisibilityTimeout": 180, "RedrivePolicy": {"deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}, "maxReceiveCount": 3}}},
        "Dead": {"Type": "AWS::SQS::Queue", "Properties": {}},
        "DeadAlarm": alarm("ApproximateNumberOfMessagesVisible", json!({"Fn::GetAtt": ["Dead", "QueueName"]})),
        "ErrorAlarm": alarm("Errors", json!({"Ref": "Terminate"})),
        "Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": {
            "EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]}, "FunctionName": {"Ref": "Terminate"},
            "FunctionResponseTypes": ["ReportBatchItemFailures"]}},
        "Table": {"Type": "AWS::DynamoDB::Table", "DeletionPolicy": "Retain", "Properties": {
            "BillingMode": "PAY_PER_REQUEST", "DeletionProtectionEnabled": true,
            "KeySchema": [{"AttributeName": "pk"}, {"AttributeName": "sk"}],
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true},
            "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true}}}
    }})
}

/// Changes one value of the valid application and expects exactly this finding.
#[track_caller]
fn check(pointer: &str, value: Value, expected: &str) {
    let mut template = valid_template();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer has a slash");
    let place = template.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is in the sound template"));
    match place {
        Value::Array(items) => items.push(value),
        other => other[name] = value,
    }
    let found = broken(&template);
    assert!(found.len() == 1 && found[0].contains(expected), "expected one with `{expected}`, found {found:?}");
}

#[test]
fn a_valid_template_has_no_findings() {
    assert_eq!(broken(&valid_template()), Vec::<String>::new());
}

/// That of `sweep` may be off where there is one cluster, and no other.
#[test]
fn a_queue_that_is_not_read_is_reported() {
    let enabled = "/Resources/Mapping/Properties/Enabled";
    let by_clusters = json!({"Fn::If": ["HasOneCluster", false, true]});
    check(enabled, json!(false), "is switched off");
    check(enabled, by_clusters.clone(), "is switched off");
    let of_sweep = |value: &Value| {
        let mut template = valid_template();
        template["Resources"]["Sweep"] = template["Resources"]["Terminate"].clone();
        template["Resources"]["Mapping"]["Properties"]["FunctionName"] = json!({"Ref": "Sweep"});
        template["Resources"]["Mapping"]["Properties"]["Enabled"] = value.clone();
        broken(&template).iter().any(|one| one.contains("is switched off"))
    };
    assert!(!of_sweep(&by_clusters) && !of_sweep(&json!(true)));
    assert!(of_sweep(&json!({"Fn::If": ["HasOneCluster", true, false]})) && of_sweep(&json!(false)));
}

const STATEMENTS: &str = "/Resources/TerminateRole/Properties/Policies/0/PolicyDocument/Statement/-";

#[test]
fn wide_permissions_are_reported() {
    check(STATEMENTS, json!({"Action": "ec2:*"}), "name the calls");
    check(STATEMENTS, json!({"Action": ["s3:Get*"]}), "name the calls");
    check(STATEMENTS, json!({"Action": "iam:PassRole"}), "pass roles");
    check(STATEMENTS, json!({"Action": "lambda:InvokeFunction"}), "meet in the table");
}

#[test]
fn termination_without_tag_conditions_is_reported() {
    let condition = "/Resources/TerminateRole/Properties/Policies/0/PolicyDocument/Statement/0/Condition";
    check(condition, json!({}), "not ours");
}

#[test]
fn another_function_that_terminates_is_reported() {
    let mut template = valid_template();
    let function = json!({"Type": "AWS::Lambda::Function", "Properties": {
        "Runtime": "provided.al2023", "Role": {"Fn::GetAtt": ["SweepRole", "Arn"]}}});
    template["Resources"]["Sweep"] = function;
    template["Resources"]["SweepRole"] = template["Resources"]["TerminateRole"].clone();
    let found = broken(&template);
    assert!(found.contains(&"Sweep may terminate instances; only Terminate may".to_owned()), "{found:?}");
}

#[test]
fn configurations_that_lose_messages_are_reported() {
    check("/Resources/Queue/Properties/VisibilityTimeout", json!(179), "6 times");
    check("/Resources/Mapping/Properties/FunctionResponseTypes", json!([]), "one by one");
    check("/Resources/Other", json!({"Type": "AWS::SQS::Queue", "Properties": {}}), "no dead-letter queue");
    check("/Resources/DeadAlarm/Properties/MetricName", json!("Other"), "messages in Dead");
    check("/Resources/ErrorAlarm/Properties/MetricName", json!("Other"), "failures of Terminate");
    let mut template = valid_template();
    template["Resources"]["Second"] = template["Resources"]["Mapping"].clone();
    assert!(broken(&template)[0].contains("feeds two functions"));
}

/// The valid application with a rule that invokes a function, and what that takes.
fn with_rule() -> Value {
    let mut template = valid_template();
    let added = json!({
        "Rule": {"Type": "AWS::Events::Rule", "Properties": {"Targets": [
            {"Arn": {"Fn::GetAtt": ["Terminate", "Arn"]}, "DeadLetterConfig": {"Arn": {"Fn::GetAtt": ["Lost", "Arn"]}}}]}},
        "Permission": {"Type": "AWS::Lambda::Permission", "Properties": {"FunctionName": {"Ref": "Terminate"},
            "Principal": "events.amazonaws.com", "SourceArn": {"Fn::GetAtt": ["Rule", "Arn"]}}},
        "Config": {"Type": "AWS::Lambda::EventInvokeConfig", "Properties": {"FunctionName": {"Ref": "Terminate"},
            "MaximumRetryAttempts": 2, "MaximumEventAgeInSeconds": 3600,
            "DestinationConfig": {"OnFailure": {"Destination": {"Fn::GetAtt": ["Lost", "Arn"]}}}}},
        "Lost": {"Type": "AWS::SQS::Queue", "Properties": {}},
        "LostAlarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": {"MetricName": "ApproximateNumberOfMessagesVisible",
            "Dimensions": [{"Name": "n", "Value": {"Fn::GetAtt": ["Lost", "QueueName"]}}]}}
    });
    for (name, resource) in added.as_object().unwrap() {
        template["Resources"][name] = resource.clone();
    }
    template
}

#[test]
fn a_rule_that_loses_events_of_the_function_that_it_invokes_is_reported() {
    assert_eq!(broken(&with_rule()), Vec::<String>::new());
    for (pointer, value, expected) in [
        ("Permission/Properties/SourceArn", json!({"Fn::GetAtt": ["Other", "Arn"]}), "Rule may not invoke Terminate"),
        ("Permission/Properties/Principal", json!("sns.amazonaws.com"), "Rule may not invoke Terminate"),
        ("Rule/Properties/Targets/0/DeadLetterConfig", json!({}), "cannot deliver to Terminate"),
        ("Config/Properties/MaximumRetryAttempts", json!(0), "Terminate loses events of Rule"),
        ("Config/Properties/MaximumEventAgeInSeconds", json!(60), "Terminate loses events of Rule"),
        ("LostAlarm/Properties/MetricName", json!("Other"), "no alarm reports messages in Lost"),
    ] {
        let mut template = with_rule();
        *template.pointer_mut(&format!("/Resources/{pointer}")).unwrap() = value;
        let found = broken(&template);
        assert!(found.len() == 1 && found[0].contains(expected), "expected one with `{expected}`, found {found:?}");
    }
    let mut template = with_rule();
    template["Resources"]["Config"]["Properties"]["DestinationConfig"] = json!({});
    let found = broken(&template);
    assert!(found.iter().any(|one| one.contains("Terminate loses events of Rule")), "{found:?}");
    assert!(found.contains(&"Lost has no dead-letter queue".to_owned()), "nothing feeds it: {found:?}");
}

/// The valid application with another name for its dead-letter queue, whose alarm not every deployment has.
fn with_conditional_alarm(dead_letters: &str) -> Value {
    let mut template = valid_template();
    template["Resources"]["DeadAlarm"]["Condition"] = json!("WantsAllAlarms");
    let text = template.to_string().replace("\"Dead\"", &format!("\"{dead_letters}\""));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn an_alarm_on_what_nothing_repeats_that_only_some_deployments_have_is_reported() {
    assert_eq!(broken(&with_conditional_alarm("LaunchDeadLetters")), Vec::<String>::new(), "a tick does their work");
    let found = broken(&with_conditional_alarm("InterruptionDeadLetters"));
    assert!(found.len() == 1 && found[0].contains("InterruptionDeadLetters has a condition"), "{found:?}");
}

#[test]
fn a_queue_with_too_few_or_too_many_deliveries_is_reported() {
    check("/Resources/Queue/Properties/RedrivePolicy/maxReceiveCount", json!(1), "gives a message up after Some(1)");
    check("/Resources/Queue/Properties/RedrivePolicy/maxReceiveCount", json!(1000), "gives a message up after Some(1000)");
}

#[test]
fn s2_3_a_permission_that_karpenter_does_not_need_is_reported() {
    let reference = "Action:\n- ec2:TerminateInstances\n- ec2:DescribeInstances\n- ec2:CreateFleet\n";
    assert_eq!(wider_than(&valid_template(), reference), Vec::<String>::new());
    let mut template = valid_template();
    let statements = template.pointer_mut(STATEMENTS.trim_end_matches("/-")).and_then(Value::as_array_mut).unwrap();
    statements.push(json!({"Action": ["ec2:StopInstances", "dynamodb:PutItem"], "Resource": "x"}));
    statements.push(json!({"Action": "ec2:CreateFleet", "Resource": "*"}));
    assert_eq!(
        wider_than(&template, reference),
        [
            "Terminate may ec2:StopInstances, which Karpenter's own role may not",
            "Terminate may ec2:CreateFleet on everything in the account"
        ]
    );
}

#[test]
fn configurations_that_lose_state_are_reported() {
    check("/Resources/Table/DeletionPolicy", json!("Delete"), "outlives the stack");
    check("/Resources/Table/Properties/DeletionProtectionEnabled", json!(false), "slip of the hand");
    check("/Resources/Table/Properties/PointInTimeRecoverySpecification", json!({}), "point in time");
    check("/Resources/Table/Properties/TimeToLiveSpecification", json!({"AttributeName": "x", "Enabled": true}), "ttl");
    check("/Resources/Table/Properties/GlobalSecondaryIndexes", json!([]), "no index");
}

#[test]
fn a_fixed_partition_is_reported() {
    check("/Resources/Note", json!({"Type": "X", "Arn": "arn:aws:s3:::x"}), "names one partition");
}

#[test]
fn missing_permissions_for_reservations_are_reported() {
    let role =
        |statements: Value| json!({"Type": "AWS::IAM::Role", "Properties": {"Policies": [{"PolicyDocument": {"Statement": statements}}]}});
    let function = |role: &str| json!({"Type": "AWS::Lambda::Function", "Properties": {"Role": {"Fn::GetAtt": [role, "Arn"]}}});
    let starts = |resource: &str| json!([{"Action": ["ec2:RunInstances", "ec2:CreateFleet"], "Resource": [{"Fn::Sub": resource}]}]);
    let of = |sees: Value, starts: Value| json!({"Resources": {"Refresh": function("RefreshRole"), "Launch": function("LaunchRole"), "RefreshRole": role(sees), "LaunchRole": role(starts)}});
    let sees = json!([{"Action": "ec2:DescribeCapacityReservations", "Resource": "*"}]);
    let any = "arn:aws:ec2:${AWS::Region}:*:capacity-reservation/*";
    assert_eq!(without_reservations(&of(sees.clone(), starts(any))), Vec::<String>::new());
    assert_eq!(without_reservations(&of(json!([]), starts(any))).len(), 1);
    let own = "arn:aws:ec2:${AWS::Region}:${AWS::AccountId}:capacity-reservation/*";
    assert_eq!(without_reservations(&of(sees, starts(own))).len(), 2);
}
