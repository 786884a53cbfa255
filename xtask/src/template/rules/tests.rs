use super::broken;
use serde_json::{Value, json};

/// A scheduled function that sends its own doorbell, and one with a queue only.
fn valid_template() -> Value {
    let metric = |name: &str, function: &str| json!({"Id": function.to_lowercase(), "MetricStat": {"Metric": {"MetricName": name, "Dimensions": [{"Value": {"Ref": function}}]}}});
    let alarm = |metrics: Vec<Value>| json!({"Type": "AWS::CloudWatch::Alarm", "Properties": {"Metrics": metrics, "AlarmActions": ["a"], "OKActions": ["a"]}});
    let of_both = |name: &str, expression: &str| {
        alarm(vec![json!({"Id": "all", "Expression": expression}), metric(name, "Sweep"), metric(name, "Interrupt"), metric(name, "Relay")])
    };
    let function = |name: &str, timeout: u64, concurrency: &str| {
        json!({"Type": "AWS::Lambda::Function", "Properties": {"Timeout": timeout, "Role": {"Fn::GetAtt": [format!("{name}Role"), "Arn"]},
            "VpcConfig": {}, "ReservedConcurrentExecutions": {"Fn::If": [concurrency, 1, 2]}}})
    };
    let bounded = || json!({"Fn::If": ["HasPermissionsBoundary", {"Ref": "PermissionsBoundary"}, {"Ref": "AWS::NoValue"}]});
    let role = |statements: Value| json!({"Type": "AWS::IAM::Role", "Properties": {"PermissionsBoundary": bounded(), "ManagedPolicyArns": ["vpc"], "Policies": [{"PolicyDocument": {"Statement": statements}}]}});
    let mapping = |queue: &str, function: &str| {
        json!({"Type": "AWS::Lambda::EventSourceMapping", "Properties": {"EventSourceArn": {"Fn::GetAtt": [queue, "Arn"]},
            "FunctionName": {"Ref": function}, "ScalingConfig": {"MaximumConcurrency": {"Fn::If": ["IsSmall", 2, 50]}}}})
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
        "Parameters": {"RelayConcurrency": {"Default": 10}, "InterruptConcurrency": {"Default": 20}},
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
            "Wake": {"Type": "AWS::Scheduler::Schedule", "Properties": {"Target": {"Arn": {"Fn::GetAtt": ["Interrupt", "Arn"]}, "RoleArn": {"Fn::GetAtt": ["TickRole", "Arn"]}, "Input": "{\"kind\":\"wake\"}"}}},
            "TickRole": {"Type": "AWS::IAM::Role", "Properties": {"PermissionsBoundary": bounded(), "AssumeRolePolicyDocument": {"Condition": {"x": {"aws:SourceAccount": "a", "aws:SourceArn": "b"}}}}},
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
    let mut template = valid_template();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer has a slash");
    match template.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is in the sound template")) {
        Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
        other => other[name] = value,
    }
    let found = broken(&template);
    assert!(found.len() == 1 && found[0].contains(expected), "expected one with `{expected}`, found {found:?}");
}

#[test]
fn a_valid_template_has_no_findings() {
    assert_eq!(broken(&valid_template()), Vec::<String>::new());
}

#[test]
fn a_recursive_chain_without_recursion_allowed_is_reported() {
    check("/Resources/Sweep/Properties/RecursiveLoop", json!("Terminate"), "Sweep can ring for itself");
    check("/Resources/Interrupt/Properties/RecursiveLoop", json!("Allow"), "Interrupt cannot ring for itself");
    // The chain returns through another function.
    let mut template = valid_template();
    template["Resources"]["SweepRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0]["Resource"] =
        json!({"Fn::GetAtt": ["InterruptQueue", "Arn"]});
    let found = broken(&template);
    assert!(found.len() == 1 && found[0].contains("Interrupt can ring for itself"), "{found:?}");
}

#[test]
fn a_resource_without_the_customer_managed_key_is_reported() {
    check("/Resources/SweepQueue/Properties/KmsMasterKeyId", Value::Null, "SweepQueue is not encrypted with DataKey");
    check("/Resources/Table/Properties/SSESpecification", json!({"SSEEnabled": true}), "Table is not encrypted with DataKey");
    check("/Resources/Logs/Properties/KmsKeyId", json!({"Ref": "DataKey"}), "Logs is not encrypted with DataKey");
    check("/Resources/SweepQueue/Properties/SqsManagedSseEnabled", json!(true), "SweepQueue is not encrypted with SQS's own key");
}

#[test]
fn a_role_without_the_permissions_boundary_is_reported() {
    for (role, value) in [("TickRole", Value::Null), ("SweepRole", json!({"Ref": "PermissionsBoundary"}))] {
        check(&format!("/Resources/{role}/Properties/PermissionsBoundary"), value, &format!("{role} has no PermissionsBoundary"));
    }
}

#[test]
fn a_tick_with_retries_is_reported() {
    check("/Resources/Once/Properties/MaximumRetryAttempts", json!(2), "repeats a tick of Tick");
    check("/Resources/Once/Properties/MaximumEventAgeInSeconds", json!(21600), "repeats a tick of Tick");
    check("/Resources/Once/Properties/FunctionName", json!({"Ref": "Relay"}), "repeats a tick of Tick");
}

/// Sweep has its tick, and the relay may sleep.
#[test]
fn a_function_that_may_be_called_by_nobody_for_weeks_is_reported() {
    check("/Resources/Wake", Value::Null, "no schedule calls Interrupt");
    check("/Resources/Wake/Properties/Target/Arn", json!({"Fn::GetAtt": ["Sweep", "Arn"]}), "no schedule calls Interrupt");
    check("/Resources/Wake/Properties/Target/Input", json!("{\"kind\":\"tick\"}"), "repeats a tick of Wake");
}

#[test]
fn a_schedule_role_open_to_other_accounts_is_reported() {
    let mut template = valid_template();
    template["Resources"]["TickRole"]["Properties"]["AssumeRolePolicyDocument"] = json!({});
    let found = broken(&template);
    assert!(found.len() == 2 && found.iter().all(|found| found.contains("schedules of other accounts")), "{found:?}");
}

#[test]
fn a_fixed_resource_name_is_reported() {
    check("/Resources/Tick/Properties/Name", json!("ScheduleTick"), "fixed Name");
    check("/Resources/Logs/Properties/LogGroupName", json!("/w/sweep"), "fixed LogGroupName");
    check("/Resources/SweepQueue/Properties/QueueName", json!({"Fn::Sub": "${Clusters}"}), "fixed QueueName");
}

#[test]
fn unlimited_concurrency_is_reported() {
    check("/Resources/InterruptMapping/Properties/ScalingConfig", json!({}), "MaximumConcurrency");
    check("/Parameters/RelayConcurrency/Default", json!(0), "Relay has the reserved concurrency 0");
    check("/Parameters/InterruptConcurrency/Default", json!(0), "Interrupt has the reserved concurrency 0");
    check("/Conditions/ReserveSweep", json!({"Fn::Equals": [1, 1]}), "none to spare");
}

#[test]
fn a_queue_that_lets_clusters_wait_for_one_another_is_reported() {
    check(
        "/Resources/SweepMapping/Properties/ScalingConfig/MaximumConcurrency",
        json!({"Fn::If": ["IsSmall", 2, 49]}),
        "some wait for others",
    );
    check("/Resources/SweepMapping/Properties/ScalingConfig/MaximumConcurrency", json!(10), "some wait for others");
}

#[test]
fn a_function_that_calls_clusters_without_vpc_access_is_reported() {
    check("/Resources/Sweep/Properties/VpcConfig", json!(null), "cannot stand in their VPC");
    check("/Resources/SweepRole/Properties/ManagedPolicyArns", json!(null), "network interface");
}

#[test]
fn a_queue_that_accepts_unencrypted_transport_is_reported() {
    check("/Resources/Policy/Properties/Queues", json!([{"Ref": "SweepQueue"}]), "InterruptQueue takes messages");
    let mut template = valid_template();
    template["Resources"]["Policy"]["Properties"]["PolicyDocument"]["Statement"][0]["Effect"] = json!("Allow");
    assert_eq!(broken(&template).len(), 2);
}

#[test]
fn missing_alarms_and_missing_ok_actions_are_reported() {
    check("/Resources/SweepAge/Properties/MetricName", json!("Other"), "SweepQueue is not processed");
    check("/Resources/Throttles/Properties/Metrics/1", json!({}), "Sweep is throttled");
    check("/Resources/Recursion/Properties/Metrics/2", json!({}), "doorbells of Interrupt as a loop");
    check("/Resources/SweepAge/Properties/OKActions", json!(null), "when it is over");
    check("/Resources/Relay/Properties/Timeout", json!(9), "`relay / 90`");
}
