use super::broken;
use serde_json::{Value, json};

/// A scheduled function that rings its own doorbell, and one with a queue only.
fn sound() -> Value {
    let metric = |name: &str, function: &str| json!({"Id": function.to_lowercase(), "MetricStat": {"Metric": {"MetricName": name, "Dimensions": [{"Value": {"Ref": function}}]}}});
    let alarm = |metrics: Vec<Value>| json!({"Type": "AWS::CloudWatch::Alarm", "Properties": {"Metrics": metrics, "AlarmActions": ["a"], "OKActions": ["a"]}});
    let of_both = |name: &str, expression: &str| {
        alarm(vec![json!({"Id": "all", "Expression": expression}), metric(name, "Sweep"), metric(name, "Interrupt"), metric(name, "Relay")])
    };
    let function = |name: &str, timeout: u64, concurrency: &str| {
        json!({"Type": "AWS::Lambda::Function", "Properties": {"Timeout": timeout, "Role": {"Fn::GetAtt": [format!("{name}Role"), "Arn"]},
            "VpcConfig": {}, "ReservedConcurrentExecutions": {"Fn::If": [concurrency, 1, 2]}}})
    };
    let role = |statements: Value| json!({"Type": "AWS::IAM::Role", "Properties": {"ManagedPolicyArns": ["vpc"], "Policies": [{"PolicyDocument": {"Statement": statements}}]}});
    let mapping = |queue: &str, function: &str| {
        json!({"Type": "AWS::Lambda::EventSourceMapping", "Properties": {"EventSourceArn": {"Fn::GetAtt": [queue, "Arn"]},
            "FunctionName": {"Ref": function}, "ScalingConfig": {"MaximumConcurrency": 2}}})
    };
    let age = |queue: &str| {
        json!({"Type": "AWS::CloudWatch::Alarm", "Properties": {"MetricName": "ApproximateAgeOfOldestMessage",
            "Dimensions": [{"Value": {"Fn::GetAtt": [queue, "QueueName"]}}], "AlarmActions": ["a"], "OKActions": ["a"]}})
    };
    let by_key = |with: Value, without: Value| json!({"Fn::If": ["HasDataKey", with, without]});
    let none = || json!({"Ref": "AWS::NoValue"});
    let key = || by_key(json!({"Ref": "DataKey"}), none());
    let queue = || json!({"Type": "AWS::SQS::Queue", "Properties": {"KmsMasterKeyId": key(), "SqsManagedSseEnabled": by_key(json!(false), json!(true))}});
    let mut sweep = function("Sweep", 60, "ReserveSweep");
    sweep["Properties"]["RecursiveLoop"] = json!("Allow");
    let small = json!({"Fn::And": [{"Fn::Not": [{"Condition": "IsSmall"}]}]});
    json!({
        "Parameters": {"RelayConcurrency": {"Default": 10}, "InterruptConcurrency": {"Default": 5}},
        "Conditions": {"ReserveSweep": small, "ReserveInterrupt": small, "ReserveRelay": small},
        "Resources": {
            "Sweep": sweep, "Interrupt": function("Interrupt", 10, "ReserveInterrupt"), "Relay": function("Relay", 5, "ReserveRelay"),
            "SweepRole": role(json!([
                {"Action": "sqs:SendMessage", "Resource": {"Fn::GetAtt": ["SweepQueue", "Arn"]}},
                {"Action": "eks:DescribeCluster", "Resource": "x"}])),
            "InterruptRole": role(json!([{"Action": "sqs:SendMessage", "Resource": [{"Fn::GetAtt": ["SweepQueue", "Arn"]}]}])),
            "RelayRole": role(json!([])),
            "SweepMapping": mapping("SweepQueue", "Sweep"), "InterruptMapping": mapping("InterruptQueue", "Interrupt"),
            "SweepQueue": queue(), "InterruptQueue": queue(),
            "Table": {"Type": "AWS::DynamoDB::Table", "Properties": {"SSESpecification": by_key(json!({"KMSMasterKeyId": {"Ref": "DataKey"}}), none())}},
            "Policy": {"Type": "AWS::SQS::QueuePolicy", "Properties": {"Queues": [{"Ref": "SweepQueue"}, {"Ref": "InterruptQueue"}],
                "PolicyDocument": {"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*",
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}}},
            "Once": {"Type": "AWS::Lambda::EventInvokeConfig", "Properties": {"FunctionName": {"Ref": "Sweep"}, "MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}},
            "Tick": {"Type": "AWS::Scheduler::Schedule", "Properties": {"Target": {"Arn": {"Fn::GetAtt": ["Sweep", "Arn"]}, "RoleArn": {"Fn::GetAtt": ["TickRole", "Arn"]}}}},
            "TickRole": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {"Condition": {"x": {"aws:SourceAccount": "a", "aws:SourceArn": "b"}}}}},
            "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": {"Fn::Sub": "/w/${AWS::StackName}"}, "KmsKeyId": key()}},
            "SweepAge": age("SweepQueue"), "InterruptAge": age("InterruptQueue"),
            "Throttles": of_both("Throttles", "SUM(METRICS())"),
            "Recursion": of_both("RecursiveInvocationsDropped", "SUM(METRICS())"),
            "DurationAlarm": of_both("Duration", "MAX([sweep / 600, interrupt / 100, relay / 50])")
        }
    })
}

/// Changes one value of the valid application and expects exactly this finding.
#[track_caller]
fn check(pointer: &str, value: Value, expected: &str) {
    let mut template = sound();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer has a slash");
    match template.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is in the sound template")) {
        Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
        other => other[name] = value,
    }
    let found = broken(&template);
    assert!(found.len() == 1 && found[0].contains(expected), "expected one with `{expected}`, found {found:?}");
}

#[test]
fn a_sound_template_breaks_no_rule() {
    assert_eq!(broken(&sound()), Vec::<String>::new());
}

#[test]
fn a_chain_of_doorbells_that_comes_back_is_never_taken_for_a_loop() {
    check("/Resources/Sweep/Properties/RecursiveLoop", json!("Terminate"), "Sweep can ring for itself");
    check("/Resources/Interrupt/Properties/RecursiveLoop", json!("Allow"), "Interrupt cannot ring for itself");
    // Through another function.
    let mut template = sound();
    template["Resources"]["SweepRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0]["Resource"] =
        json!({"Fn::GetAtt": ["InterruptQueue", "Arn"]});
    let found = broken(&template);
    assert!(found.len() == 1 && found[0].contains("Interrupt can ring for itself"), "{found:?}");
}

#[test]
fn nothing_that_is_kept_escapes_the_customers_key() {
    check("/Resources/SweepQueue/Properties/KmsMasterKeyId", Value::Null, "SweepQueue is not encrypted with DataKey");
    check("/Resources/Table/Properties/SSESpecification", json!({"SSEEnabled": true}), "Table is not encrypted with DataKey");
    check("/Resources/Logs/Properties/KmsKeyId", json!({"Ref": "DataKey"}), "Logs is not encrypted with DataKey");
    check("/Resources/SweepQueue/Properties/SqsManagedSseEnabled", json!(true), "SweepQueue is not encrypted with SQS's own key");
}

#[test]
fn a_tick_that_fails_is_never_repeated() {
    check("/Resources/Once/Properties/MaximumRetryAttempts", json!(2), "repeats a tick of Tick");
    check("/Resources/Once/Properties/MaximumEventAgeInSeconds", json!(21600), "repeats a tick of Tick");
    check("/Resources/Once/Properties/FunctionName", json!({"Ref": "Relay"}), "repeats a tick of Tick");
}

#[test]
fn schedules_of_another_account_never_use_our_role() {
    check("/Resources/TickRole/Properties/AssumeRolePolicyDocument", json!({}), "schedules of other accounts");
}

#[test]
fn a_second_stack_never_meets_the_names_of_the_first() {
    check("/Resources/Tick/Properties/Name", json!("ScheduleTick"), "fixed Name");
    check("/Resources/Logs/Properties/LogGroupName", json!("/w/sweep"), "fixed LogGroupName");
    check("/Resources/SweepQueue/Properties/QueueName", json!({"Fn::Sub": "${Clusters}"}), "fixed QueueName");
}

#[test]
fn nobody_takes_all_of_the_concurrency() {
    check("/Resources/SweepMapping/Properties/ScalingConfig", json!({}), "MaximumConcurrency");
    check("/Parameters/RelayConcurrency/Default", json!(0), "Relay has the reserved concurrency 0");
    check("/Parameters/InterruptConcurrency/Default", json!(0), "Interrupt has the reserved concurrency 0");
    check("/Conditions/ReserveSweep", json!({"Fn::Equals": [1, 1]}), "none to spare");
}

#[test]
fn who_calls_a_cluster_can_stand_in_its_vpc() {
    check("/Resources/Sweep/Properties/VpcConfig", json!(null), "cannot stand in their VPC");
    check("/Resources/SweepRole/Properties/ManagedPolicyArns", json!(null), "network interface");
}

#[test]
fn no_queue_takes_what_is_not_encrypted() {
    check("/Resources/Policy/Properties/Queues", json!([{"Ref": "SweepQueue"}]), "InterruptQueue takes messages");
    let mut template = sound();
    template["Resources"]["Policy"]["Properties"]["PolicyDocument"]["Statement"][0]["Effect"] = json!("Allow");
    assert_eq!(broken(&template).len(), 2);
}

#[test]
fn somebody_is_told_when_it_begins_and_when_it_is_over() {
    check("/Resources/SweepAge/Properties/MetricName", json!("Other"), "SweepQueue is not worked off");
    check("/Resources/Throttles/Properties/Metrics/1", json!({}), "Sweep may not start");
    check("/Resources/Recursion/Properties/Metrics/2", json!({}), "doorbells of Interrupt for a loop");
    check("/Resources/SweepAge/Properties/OKActions", json!(null), "when it is over");
    check("/Resources/Relay/Properties/Timeout", json!(9), "`relay / 90`");
}
