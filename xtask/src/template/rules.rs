//! Rules that only a real account enforces: loops of doorbells, repeated ticks, names that must
//! be unique in a region, small quotas, functions that cannot reach a private endpoint.

use super::promises::{functions, of_type, one_or_many, resources, statements, target};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum age of a tick, in seconds: older ones are dropped, because the next is due.
const TICK_AGE_MAX: u64 = 60;
/// What a schedule sends to a function that is to do nothing. `events.rs` of the runtime knows it.
const WAKE: &str = r#"{"kind":"wake"}"#;
/// The function that need not be woken: where its first caller is refused, the tick does as much within a minute.
const MAY_SLEEP: &str = "Relay";
/// The concurrency limit of the public endpoint, and the reserved concurrency for notices.
const RELAY_CEILING: std::ops::RangeInclusive<u64> = 1..=20;
const INTERRUPT_FLOOR: std::ops::RangeInclusive<u64> = 10..=20;
/// The functions that look at one cluster for up to a minute, each minute, and the clusters that a deployment may have (IAM's limits of
/// policies allow no more): none waits until others have been looked at.
const EACH_MINUTE: [&str; 2] = ["Consolidate", "Sweep"];
const CLUSTERS_MAX: u64 = 50;

/// One sentence for each rule that is broken.
pub(super) fn broken(template: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    loops(template, &mut broken);
    ticks(template, &mut broken);
    called(template, &mut broken);
    names(template, &mut broken);
    concurrency(template, &mut broken);
    network(template, &mut broken);
    encrypted(template, &mut broken);
    own_key(template, &mut broken);
    bounded(template, &mut broken);
    alarms(template, &mut broken);
    broken
}

/// The functions that each function may invoke, through the queues that its role may send to.
fn starts(template: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut feeds: BTreeMap<&str, &str> = BTreeMap::new();
    for (_, mapping) in of_type(template, "AWS::Lambda::EventSourceMapping") {
        let properties = &mapping["Properties"];
        if let (Some(queue), Some(function)) = (target(&properties["EventSourceArn"]), target(&properties["FunctionName"])) {
            feeds.insert(queue, function);
        }
    }
    let mut starts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for statement in statements(template).iter().filter(|statement| statement.actions.contains(&"sqs:SendMessage")) {
        let queues = match &statement.whole["Resource"] {
            Value::Array(many) => many.iter().filter_map(target).collect(),
            one => Vec::from_iter(target(one)),
        };
        starts.entry(statement.function).or_default().extend(queues.into_iter().filter_map(|queue| feeds.get(queue)));
    }
    starts
}

/// Whether a chain of messages that begins with the function can return to it.
fn reaches_itself(function: &str, starts: &BTreeMap<&str, BTreeSet<&str>>) -> bool {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut open = vec![function];
    while let Some(next) = open.pop() {
        open.extend(starts.get(next).into_iter().flatten().filter(|reached| seen.insert(reached)));
    }
    seen.contains(function)
}

/// Lambda drops the seventeenth message of a chain that returns to a function, unless the function allows recursion. Functions without
/// an intended chain keep that protection.
fn loops(template: &Value, broken: &mut Vec<String>) {
    let starts = starts(template);
    for (name, function) in functions(template) {
        let allowed = function["Properties"]["RecursiveLoop"] == "Allow";
        match (reaches_itself(name, &starts), allowed) {
            (true, false) => {
                broken.push(format!("{name} can ring for itself, and Lambda would take that for a loop; set RecursiveLoop: Allow"));
            }
            (false, true) => broken.push(format!("{name} cannot ring for itself; take RecursiveLoop: Allow away")),
            _ => {}
        }
    }
}

/// A failed tick is not retried: the next tick is the retry, and three runs for each would overload the functions.
fn ticks(template: &Value, broken: &mut Vec<String>) {
    let configured: BTreeMap<&str, &Value> = of_type(template, "AWS::Lambda::EventInvokeConfig")
        .into_iter()
        .filter_map(|(_, config)| Some((target(&config["Properties"]["FunctionName"])?, &config["Properties"])))
        .collect();
    for (name, schedule) in of_type(template, "AWS::Scheduler::Schedule") {
        let function = target(&schedule["Properties"]["Target"]["Arn"]).unwrap_or_default();
        let once = configured.get(function).is_some_and(|config| {
            config["MaximumRetryAttempts"] == 0 && config["MaximumEventAgeInSeconds"].as_u64().is_some_and(|age| age <= TICK_AGE_MAX)
        });
        if !once && !is_wake(schedule) {
            broken.push(format!(
                "Lambda repeats a tick of {name} that failed; set EventInvokeConfig of {function} to no retries, {TICK_AGE_MAX} s"
            ));
        }
        let role = target(&schedule["Properties"]["Target"]["RoleArn"]).unwrap_or_default();
        let trust = template["Resources"][role]["Properties"]["AssumeRolePolicyDocument"].to_string();
        if !trust.contains("aws:SourceAccount") || !trust.contains("aws:SourceArn") {
            broken.push(format!("the role {role} of {name} can be used for schedules of other accounts"));
        }
    }
}

/// Whether a schedule only keeps its function from being put away.
pub(super) fn is_wake(schedule: &Value) -> bool {
    schedule["Properties"]["Target"]["Input"] == WAKE
}

/// Lambda makes a function inactive that nobody has called for weeks, and refuses the call that would have used it: a spot notice leaves
/// two minutes, and the function comes back after one or two.
fn called(template: &Value, broken: &mut Vec<String>) {
    let schedules = of_type(template, "AWS::Scheduler::Schedule").into_iter();
    let called: BTreeSet<&str> = schedules.filter_map(|(_, schedule)| target(&schedule["Properties"]["Target"]["Arn"])).collect();
    for (name, _) in functions(template).into_iter().filter(|(name, _)| *name != MAY_SLEEP && !called.contains(name)) {
        broken.push(format!("no schedule calls {name}: after some idle weeks Lambda refuses the first call; send it {WAKE} once a day"));
    }
}

/// Two stacks fit into one account and region: no resource has a fixed name.
fn names(template: &Value, broken: &mut Vec<String>) {
    for (name, resource) in resources(template) {
        for (property, value) in resource["Properties"].as_object().into_iter().flatten() {
            let names_itself = property.ends_with("Name") && property != "MetricName";
            if names_itself && target(value).is_none() && !value.to_string().contains("${AWS::StackName}") {
                broken.push(format!("{name} has the fixed {property} {value}; a second stack in the region would fail"));
            }
        }
    }
}

/// No queue uses all of the account's concurrency; the public endpoint has a limit, notices a reservation, and one parameter removes both.
fn concurrency(template: &Value, broken: &mut Vec<String>) {
    for (name, mapping) in of_type(template, "AWS::Lambda::EventSourceMapping") {
        if mapping["Properties"]["ScalingConfig"]["MaximumConcurrency"].is_null() {
            broken.push(format!("{name} may take all of the account's concurrency; set ScalingConfig.MaximumConcurrency"));
        }
        let function = target(&mapping["Properties"]["FunctionName"]).unwrap_or_default();
        let usual = &mapping["Properties"]["ScalingConfig"]["MaximumConcurrency"]["Fn::If"][2];
        if EACH_MINUTE.contains(&function) && usual.as_u64().is_none_or(|usual| usual < CLUSTERS_MAX) {
            broken.push(format!("{name} starts {usual} at once, so that of {CLUSTERS_MAX} clusters some wait for others"));
        }
    }
    for (function, range) in [("Relay", RELAY_CEILING), ("Interrupt", INTERRUPT_FLOOR)] {
        let default = &template["Parameters"][format!("{function}Concurrency")]["Default"];
        if !default.as_u64().is_some_and(|default| range.contains(&default)) {
            broken.push(format!("{function} has the reserved concurrency {default}; it must be {range:?}"));
        }
    }
    for (name, function) in functions(template) {
        let condition = function["Properties"]["ReservedConcurrentExecutions"]["Fn::If"][0].as_str().unwrap_or_default();
        if !template["Conditions"][condition].to_string().contains("\"IsSmall\"") {
            broken.push(format!("{name} reserves concurrency in an account that has none to spare; ask for IsSmall"));
        }
    }
}

/// A function that looks up a cluster's endpoint calls it, and needs network access to a private one.
fn network(template: &Value, broken: &mut Vec<String>) {
    let calls: BTreeSet<&str> = statements(template)
        .iter()
        .filter(|statement| statement.actions.contains(&"eks:DescribeCluster"))
        .map(|statement| statement.function)
        .collect();
    for (name, function) in functions(template).into_iter().filter(|(name, _)| calls.contains(name)) {
        let properties = &function["Properties"];
        let role = target(&properties["Role"]).unwrap_or_default();
        if properties["VpcConfig"].is_null() {
            broken.push(format!("{name} calls clusters and cannot stand in their VPC; it needs VpcConfig"));
        }
        if template["Resources"][role]["Properties"]["ManagedPolicyArns"].is_null() {
            broken.push(format!("{name} may not make the network interface that it needs in a VPC"));
        }
    }
}

/// Every queue denies unencrypted transport.
fn encrypted(template: &Value, broken: &mut Vec<String>) {
    let refuses = |policy: &Value| {
        policy["PolicyDocument"]["Statement"].as_array().into_iter().flatten().any(|statement| {
            let everything =
                statement["Effect"] == "Deny" && statement["Principal"] == "*" && one_or_many(&statement["Action"]) == ["sqs:*"];
            everything && statement["Condition"]["Bool"]["aws:SecureTransport"] == "false"
        })
    };
    let safe: BTreeSet<&str> = of_type(template, "AWS::SQS::QueuePolicy")
        .into_iter()
        .filter(|(_, policy)| refuses(&policy["Properties"]))
        .flat_map(|(_, policy)| policy["Properties"]["Queues"].as_array().into_iter().flatten())
        .filter_map(target)
        .collect();
    for (name, _) in of_type(template, "AWS::SQS::Queue") {
        if !safe.contains(name) {
            broken.push(format!("{name} takes messages that are not encrypted on their way"));
        }
    }
}

/// Resources with state or logs use the customer-managed key if there is one.
fn own_key(template: &Value, broken: &mut Vec<String>) {
    for (kind, property) in
        [("AWS::DynamoDB::Table", "SSESpecification"), ("AWS::SQS::Queue", "KmsMasterKeyId"), ("AWS::Logs::LogGroup", "KmsKeyId")]
    {
        for (name, resource) in of_type(template, kind) {
            let choice = &resource["Properties"][property]["Fn::If"];
            let taken = choice[0] == "HasDataKey" && choice[1].to_string().contains(r#"{"Ref":"DataKey"}"#);
            if !taken || choice[2] != json!({"Ref": "AWS::NoValue"}) {
                broken.push(format!("{name} is not encrypted with DataKey where that is given; set {property}"));
            }
            // SQS refuses a queue with both kinds of keys, and without either its messages are not encrypted.
            let own = &resource["Properties"]["SqsManagedSseEnabled"]["Fn::If"];
            if kind == "AWS::SQS::Queue" && *own != json!(["HasDataKey", false, true]) {
                broken.push(format!("{name} is not encrypted with SQS's own key where there is no DataKey"));
            }
        }
    }
}

/// Every role has the permissions boundary if there is one: accounts that require it refuse a role without it, and so the whole stack.
fn bounded(template: &Value, broken: &mut Vec<String>) {
    let expected = json!({"Fn::If": ["HasPermissionsBoundary", {"Ref": "PermissionsBoundary"}, {"Ref": "AWS::NoValue"}]});
    for (name, role) in of_type(template, "AWS::IAM::Role") {
        if role["Properties"]["PermissionsBoundary"] != expected {
            broken.push(format!("{name} has no PermissionsBoundary where that is given"));
        }
    }
}

/// The metrics of an alarm, each with its function or queue.
fn watched(template: &Value) -> BTreeSet<(&str, &str)> {
    let mut watched = BTreeSet::new();
    for (_, alarm) in of_type(template, "AWS::CloudWatch::Alarm") {
        let of_expression = alarm["Properties"]["Metrics"].as_array().into_iter().flatten().map(|metric| &metric["MetricStat"]["Metric"]);
        for metric in of_expression.chain([&alarm["Properties"]]) {
            let name = metric["MetricName"].as_str().unwrap_or_default();
            let dimensions = metric["Dimensions"].as_array().into_iter().flatten();
            watched.extend(dimensions.filter_map(|dimension| Some((name, target(&dimension["Value"])?))));
        }
    }
    watched
}

/// Alarms cover functions that are throttled or close to their timeout, stalled queues, and recovery.
fn alarms(template: &Value, broken: &mut Vec<String>) {
    let watched = watched(template);
    let mut fed = BTreeSet::new();
    for (_, mapping) in of_type(template, "AWS::Lambda::EventSourceMapping") {
        fed.extend(target(&mapping["Properties"]["FunctionName"]));
        let queue = target(&mapping["Properties"]["EventSourceArn"]).unwrap_or_default();
        if !watched.contains(&("ApproximateAgeOfOldestMessage", queue)) {
            broken.push(format!("no alarm reports that {queue} is not processed"));
        }
    }
    for (name, function) in functions(template) {
        for (metric, when) in [("Throttles", "is throttled"), ("Duration", "is close to its timeout")] {
            if !watched.contains(&(metric, name)) {
                broken.push(format!("no alarm reports that {name} {when}"));
            }
        }
        if fed.contains(name) && !watched.contains(&("RecursiveInvocationsDropped", name)) {
            broken.push(format!("no alarm reports that Lambda treats doorbells of {name} as a loop"));
        }
        // Percent of the timeout, in milliseconds.
        let share = format!("{} / {}", name.to_lowercase(), function["Properties"]["Timeout"].as_u64().unwrap_or_default() * 10);
        if !template["Resources"]["DurationAlarm"]["Properties"]["Metrics"][0]["Expression"].to_string().contains(&share) {
            broken.push(format!("DurationAlarm does not compare {name} with its timeout: `{share}`"));
        }
    }
    for (name, alarm) in of_type(template, "AWS::CloudWatch::Alarm") {
        let properties = &alarm["Properties"];
        if properties["AlarmActions"].is_null() || properties["AlarmActions"] != properties["OKActions"] {
            broken.push(format!("{name} does not notify both when it begins and when it is over"));
        }
    }
}

#[cfg(test)]
mod tests;
