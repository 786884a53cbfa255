//! Requirements on the transformed template: which role may terminate machines, no lost messages, no lost state.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The only function whose role may terminate instances.
const TERMINATOR: &str = "Terminate";
/// The only functions that pass a role to EC2.
const PASSES_ROLE: &[&str] = &["Launch", "Refresh"];
/// The services whose calls are compared with Karpenter's own role.
const COMPARED: &[&str] = &["ec2", "eks", "iam", "pricing", "ssm"];
/// Additional calls: for capacity reservations and placement groups, which are newer than that walkthrough, and for roles, for
/// which Whittle creates the instance profiles.
const BEYOND: &[&str] = &[
    SEES_RESERVATIONS,
    "iam:AddRoleToInstanceProfile",
    "iam:CreateInstanceProfile",
    "iam:DeleteInstanceProfile",
    "iam:GetInstanceProfile",
    "iam:ListInstanceProfiles",
    "iam:RemoveRoleFromInstanceProfile",
    "iam:TagInstanceProfile",
    // A class may start its machines in a placement group.
    "ec2:DescribePlacementGroups",
    // EC2's own checks of machines.
    "ec2:DescribeInstanceStatus",
    // Restricted by the condition key of the resource instead.
    "arc-zonal-shift:GetManagedResource",
    // To find a fleet whose response was lost, before machines are launched again.
    "ec2:DescribeFleets",
];
/// The call that returns the free capacity of a reservation.
const SEES_RESERVATIONS: &str = "ec2:DescribeCapacityReservations";
/// Deliveries before the dead-letter queue: one failure may be throttling; a message that failed this often will fail again.
const RECEIVES: std::ops::RangeInclusive<u64> = 2..=10;
/// The dead-letter queues whose alarm every deployment has, whatever `Alarms` says: no tick repeats what their messages say.
const ALWAYS_WATCHED: &[&str] = &["InterruptionDeadLetters"];
/// How long Lambda must keep an event, in seconds: it repeats the invocation after one minute, and again after two.
const EVENT_AGE_MIN: u64 = 300;
/// AWS's recommendation for event source queues: a slow run must not be duplicated.
const VISIBILITY_PER_TIMEOUT: u64 = 6;
/// The maximum for a FIFO queue.
const FIFO_VISIBILITY_PER_TIMEOUT_MAX: u64 = 2;

/// A statement of a function's role.
pub(super) struct Statement<'a> {
    pub(super) function: &'a str,
    pub(super) actions: Vec<&'a str>,
    pub(super) whole: &'a Value,
}

/// One sentence for each violated requirement.
pub(super) fn broken(template: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    roles(template, &mut broken);
    statements_are_narrow(template, &mut broken);
    queues(template, &mut broken);
    mappings(template, &mut broken);
    invoked_by_rules(template, &mut broken);
    table(template, &mut broken);
    alarms(template, &mut broken);
    if let Some(found) = fixed_partition(template) {
        broken.push(format!("`{found}` names one partition; write arn:${{AWS::Partition}}"));
    }
    broken
}

/// A summary in one line.
pub(super) fn summary(template: &Value) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, resource) in resources(template) {
        let kind = resource["Type"].as_str().unwrap_or_default();
        *counts.entry(kind.rsplit("::").next().unwrap_or(kind)).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    parts.join(", ")
}

pub(super) fn resources(template: &Value) -> impl Iterator<Item = (&str, &Value)> {
    template["Resources"].as_object().into_iter().flatten().map(|(name, resource)| (name.as_str(), resource))
}

pub(super) fn of_type<'a>(template: &'a Value, kind: &str) -> Vec<(&'a str, &'a Value)> {
    resources(template).filter(|(_, resource)| resource["Type"] == kind).collect()
}

/// The logical name in `{"Ref": …}` or `{"Fn::GetAtt": [name, …]}`.
pub(super) fn target(value: &Value) -> Option<&str> {
    value["Ref"].as_str().or_else(|| value["Fn::GetAtt"][0].as_str())
}

pub(super) fn one_or_many(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn functions(template: &Value) -> Vec<(&str, &Value)> {
    of_type(template, "AWS::Lambda::Function")
}

/// Each function has its own role.
fn roles(template: &Value, broken: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (name, function) in functions(template) {
        let role = target(&function["Properties"]["Role"]).unwrap_or_default();
        if !seen.insert(role) {
            broken.push(format!("{name} shares its role {role} with another function"));
        }
        if function["Properties"]["Runtime"] != "provided.al2023" {
            broken.push(format!("{name} does not run on provided.al2023"));
        }
    }
    if seen.is_empty() {
        broken.push("there is no function".into());
    }
}

/// What the functions' roles allow.
pub(super) fn statements(template: &Value) -> Vec<Statement<'_>> {
    let mut found = Vec::new();
    for (name, function) in functions(template) {
        let role = target(&function["Properties"]["Role"]).unwrap_or_default();
        let policies = template["Resources"][role]["Properties"]["Policies"].as_array();
        for policy in policies.into_iter().flatten() {
            for given in policy["PolicyDocument"]["Statement"].as_array().into_iter().flatten() {
                // A statement that a parameter adds counts as present.
                let whole = given["Fn::If"].get(1).unwrap_or(given);
                if whole["Effect"] == "Deny" {
                    continue;
                }
                found.push(Statement { function: name, actions: one_or_many(&whole["Action"]), whole });
            }
        }
    }
    found
}

fn statements_are_narrow(template: &Value, broken: &mut Vec<String>) {
    let mut terminators = 0;
    for statement in statements(template) {
        let Statement { function, actions, whole } = &statement;
        for action in actions {
            let verb = action.split(':').nth(1).unwrap_or("*");
            if verb.contains('*') {
                broken.push(format!("{function} may {action}; name the calls"));
            }
            if *action == "ec2:TerminateInstances" {
                terminators += 1;
                if *function != TERMINATOR {
                    broken.push(format!("{function} may terminate instances; only {TERMINATOR} may"));
                }
                let condition = &whole["Condition"];
                if condition["StringEquals"]["aws:ResourceTag/eks:eks-cluster-name"].is_null()
                    || condition["StringLike"]["aws:ResourceTag/karpenter.sh/nodepool"].is_null()
                {
                    broken.push(format!("{function} may terminate instances that are not ours"));
                }
            }
            if *action == "iam:PassRole"
                && (!PASSES_ROLE.contains(function) || whole["Condition"]["StringEquals"]["iam:PassedToService"].is_null())
            {
                broken.push(format!("{function} may pass roles, or to other services than EC2"));
            }
            if action.starts_with("lambda:") {
                broken.push(format!("{function} may {action}; functions meet in the table and the queues"));
            }
        }
    }
    if terminators != 1 {
        broken.push(format!("{terminators} statements allow ec2:TerminateInstances; there must be one"));
    }
}

/// S2.3: together the functions' roles are no wider than the one role of Karpenter's walkthrough, whose policy is `reference`.
pub(super) fn wider_than(template: &Value, reference: &str) -> Vec<String> {
    let theirs: BTreeSet<&str> = reference.split_whitespace().filter(|word| word.contains(':')).collect();
    let mut broken = Vec::new();
    for Statement { function, actions, whole } in statements(template) {
        for action in actions.iter().filter(|action| action.split_once(':').is_some_and(|(service, _)| COMPARED.contains(&service))) {
            if !theirs.contains(action) && !BEYOND.contains(action) {
                broken.push(format!("{function} may {action}, which Karpenter's own role may not"));
            }
            let verb = action.split(':').nth(1).unwrap_or_default();
            let reads = ["Describe", "Get", "List"].iter().any(|word| verb.starts_with(word));
            if !reads && whole["Resource"] == "*" && whole["Condition"].is_null() {
                broken.push(format!("{function} may {action} on everything in the account"));
            }
        }
    }
    broken
}

/// Capacity reservations, whoever owns them, are described by one function and used by another.
pub(super) fn without_reservations(template: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    let may = |function: &str, wanted: &str, on: &str| {
        statements(template).iter().any(|statement| {
            let resource = statement.whole["Resource"].to_string();
            statement.function == function && statement.actions.contains(&wanted) && resource.contains(on)
        })
    };
    if !may("Refresh", SEES_RESERVATIONS, "*") {
        broken.push(format!("Refresh lacks {SEES_RESERVATIONS}: node classes that name capacity reservations would never be ready"));
    }
    for action in ["ec2:RunInstances", "ec2:CreateFleet"] {
        // The ARN of a shared reservation contains its owner's account.
        if !may("Launch", action, ":*:capacity-reservation/*") {
            broken.push(format!("Launch may not {action} in capacity reservations"));
        }
    }
    broken
}

/// Every queue has a dead-letter queue with an alarm, which a parameter may leave out where ticks do the work again.
fn queues(template: &Value, broken: &mut Vec<String>) {
    let queues = of_type(template, "AWS::SQS::Queue");
    let depths = of_type(template, "AWS::CloudWatch::Alarm")
        .into_iter()
        .filter(|(_, alarm)| alarm["Properties"]["MetricName"] == "ApproximateNumberOfMessagesVisible");
    let mut watched: BTreeSet<&str> = BTreeSet::new();
    let mut always_watched: BTreeSet<&str> = BTreeSet::new();
    for (_, alarm) in depths {
        let dimensions = alarm["Properties"]["Dimensions"].as_array().into_iter().flatten();
        for name in dimensions.filter_map(|dimension| target(&dimension["Value"])) {
            watched.insert(name);
            if alarm["Condition"].is_null() {
                always_watched.insert(name);
            }
        }
    }
    let of_queues = queues.iter().filter_map(|(_, queue)| target(&queue["Properties"]["RedrivePolicy"]["deadLetterTargetArn"]));
    let of_functions = of_type(template, "AWS::Lambda::EventInvokeConfig").into_iter().filter_map(|(_, config)| gives_up_to(config));
    let dead: BTreeSet<&str> = of_queues.chain(of_functions).collect();
    for (name, queue) in queues {
        let has_dead_letters = !queue["Properties"]["RedrivePolicy"].is_null();
        if !dead.contains(name) && !has_dead_letters {
            broken.push(format!("{name} has no dead-letter queue"));
        }
        let receives = queue["Properties"]["RedrivePolicy"]["maxReceiveCount"].as_u64();
        if has_dead_letters && !receives.is_some_and(|receives| RECEIVES.contains(&receives)) {
            broken.push(format!("{name} gives a message up after {receives:?} deliveries; it must be {RECEIVES:?}"));
        }
        if dead.contains(name) && !watched.contains(name) {
            broken.push(format!("no alarm reports messages in {name}"));
        } else if ALWAYS_WATCHED.contains(&name) && !always_watched.contains(name) {
            broken.push(format!("the alarm that reports messages in {name} has a condition; nothing else tells that they were lost"));
        }
    }
}

/// The queue that gets the events for which all invocations of a function failed.
pub(super) fn gives_up_to(config: &Value) -> Option<&str> {
    target(&config["Properties"]["DestinationConfig"]["OnFailure"]["Destination"])
}

/// A function that rules invoke gets each event: each rule may invoke it, what cannot be delivered and what fails is kept, and Lambda
/// repeats what failed.
fn invoked_by_rules(template: &Value, broken: &mut Vec<String>) {
    let functions: BTreeSet<&str> = functions(template).into_iter().map(|(name, _)| name).collect();
    let (permissions, configs) = (of_type(template, "AWS::Lambda::Permission"), of_type(template, "AWS::Lambda::EventInvokeConfig"));
    for (rule, resource) in of_type(template, "AWS::Events::Rule") {
        for to in resource["Properties"]["Targets"].as_array().into_iter().flatten() {
            let Some(function) = target(&to["Arn"]).filter(|name| functions.contains(name)) else { continue };
            let may = permissions.iter().any(|(_, permission)| {
                let given = &permission["Properties"];
                let (invoked, by) = (target(&given["FunctionName"]), target(&given["SourceArn"]));
                given["Principal"] == "events.amazonaws.com" && invoked == Some(function) && by == Some(rule)
            });
            if !may {
                broken.push(format!("{rule} may not invoke {function}; its events would only be counted as failed"));
            }
            if target(&to["DeadLetterConfig"]["Arn"]).is_none() {
                broken.push(format!("{rule} loses the events that it cannot deliver to {function}; set DeadLetterConfig"));
            }
            let config = configs.iter().find(|(_, config)| target(&config["Properties"]["FunctionName"]) == Some(function));
            let keeps = config.is_some_and(|(_, config)| {
                let (tries, age) = (&config["Properties"]["MaximumRetryAttempts"], &config["Properties"]["MaximumEventAgeInSeconds"]);
                *tries == 2 && age.as_u64().is_some_and(|age| age >= EVENT_AGE_MIN) && gives_up_to(config).is_some()
            });
            if !keeps {
                broken.push(format!(
                    "{function} loses events of {rule} that fail; set EventInvokeConfig to two retries, {EVENT_AGE_MIN} s, and OnFailure"
                ));
            }
        }
    }
}

/// Messages are neither duplicated during a slow run nor lost together if one of a batch fails.
fn mappings(template: &Value, broken: &mut Vec<String>) {
    let mut fed = BTreeSet::new();
    for (name, mapping) in of_type(template, "AWS::Lambda::EventSourceMapping") {
        let properties = &mapping["Properties"];
        let queue = target(&properties["EventSourceArn"]).unwrap_or_default();
        let function = target(&properties["FunctionName"]).unwrap_or_default();
        if !fed.insert(queue) {
            broken.push(format!("{queue} feeds two functions; each would delete the other's messages"));
        }
        let visibility = template["Resources"][queue]["Properties"]["VisibilityTimeout"].as_u64();
        let timeout = template["Resources"][function]["Properties"]["Timeout"].as_u64();
        let is_fifo = template["Resources"][queue]["Properties"]["FifoQueue"] == true;
        // A message whose run died blocks its whole FIFO group until it is redelivered.
        let (least, most) = if is_fifo { (1, FIFO_VISIBILITY_PER_TIMEOUT_MAX) } else { (VISIBILITY_PER_TIMEOUT, u64::MAX) };
        let fits = matches!((visibility, timeout), (Some(visibility), Some(timeout))
            if visibility >= least * timeout && visibility <= most.saturating_mul(timeout));
        if !fits {
            broken.push(format!(
                "{queue} is invisible for {visibility:?} s, {function} may run for {timeout:?} s; \
                 the first must be {} times the second",
                if is_fifo { format!("{least} to {most}") } else { format!("at least {least}") }
            ));
        }
        if !one_or_many(&properties["FunctionResponseTypes"]).contains(&"ReportBatchItemFailures") {
            broken.push(format!("{name} does not report failures one by one"));
        }
        // Nobody sends to `sweep` where there is one cluster: its tick is the run (ADR 0071).
        let may_be_off = function == "Sweep" && properties["Enabled"] == json!({"Fn::If": ["HasOneCluster", false, true]});
        if !(properties["Enabled"].is_null() || properties["Enabled"] == true || may_be_off) {
            broken.push(format!("{name} is switched off: what is sent to {queue} is never read"));
        }
    }
}

/// The claims survive operator errors.
fn table(template: &Value, broken: &mut Vec<String>) {
    let tables = of_type(template, "AWS::DynamoDB::Table");
    let [(name, table)] = tables.as_slice() else {
        broken.push(format!("{} tables; there must be one", tables.len()));
        return;
    };
    let properties = &table["Properties"];
    let keys: Vec<&str> =
        properties["KeySchema"].as_array().into_iter().flatten().filter_map(|key| key["AttributeName"].as_str()).collect();
    for (holds, promise) in [
        (keys == ["pk", "sk"], "has the keys pk and sk"),
        (properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] == true, "can be restored to a point in time"),
        (properties["TimeToLiveSpecification"]["AttributeName"] == "ttl", "forgets by the attribute ttl"),
        (properties["TimeToLiveSpecification"]["Enabled"] == true, "forgets"),
        (properties["BillingMode"] == "PAY_PER_REQUEST", "is paid for by request"),
        (properties["DeletionProtectionEnabled"] == true, "cannot be deleted by a slip of the hand"),
        (properties["GlobalSecondaryIndexes"].is_null(), "has no index that a decision could read"),
        (table["DeletionPolicy"] == "Retain", "outlives the stack"),
    ] {
        if !holds {
            broken.push(format!("it is not so that {name} {promise}"));
        }
    }
}

/// Every function's errors raise an alarm.
fn alarms(template: &Value, broken: &mut Vec<String>) {
    let watched: BTreeSet<&str> = of_type(template, "AWS::CloudWatch::Alarm")
        .into_iter()
        .filter(|(_, alarm)| alarm["Properties"]["MetricName"] == "Errors")
        .flat_map(|(_, alarm)| alarm["Properties"]["Dimensions"].as_array().into_iter().flatten())
        .filter_map(|dimension| target(&dimension["Value"]))
        .collect();
    for (name, _) in functions(template) {
        if !watched.contains(name) {
            broken.push(format!("no alarm reports failures of {name}"));
        }
    }
}

/// The first string that contains the commercial partition.
fn fixed_partition(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => (text.contains("arn:aws:") || text.contains("arn:aws-")).then_some(text),
        Value::Array(items) => items.iter().find_map(fixed_partition),
        Value::Object(fields) => fields.values().find_map(fixed_partition),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
