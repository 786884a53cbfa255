//! Checks that a function may send to exactly the queues of the doorbells that its code sends.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The queue of each doorbell.
const QUEUES: &[(&str, &str)] = &[
    ("Schedule", "PlanQueue"),
    ("Consolidate", "ConsolidateQueue"),
    ("Launch", "LaunchQueue"),
    ("Register", "NodesQueue"),
    ("Deletions", "NodesQueue"),
    ("Terminate", "TerminateQueue"),
    ("Refresh", "RefreshQueue"),
    ("Sweep", "SweepQueue"),
];

/// The file that maps ticks to doorbells.
const EVENTS: &str = "shared/runtime/src/events.rs";
/// The file with the doorbells that the tick of `sweep` sends besides its own.
const TICK: &str = "shared/claims/src/tick.rs";

/// One sentence for each queue that a function sends to without permission, or may send to and does not.
pub(super) fn check(root: &Path, template: &Value, functions: &[&str]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    let read = |file: &str| std::fs::read_to_string(root.join(file)).with_context(|| format!("{file} cannot be read"));
    let (events, tick) = (read(EVENTS)?, read(TICK)?);
    for function in functions {
        let source = source(&root.join("functions").join(function).join("src"))?;
        let own = tick_queue(&events, function);
        if own.is_none() && has_tick(template, function) {
            broken.push(format!("{function} has a schedule, and {EVENTS} names no doorbell that its tick rings"));
        }
        let mut rung_queues = rung_queues(&source);
        rung_queues.extend(own);
        if *function == "sweep" {
            rung_queues.extend(self::rung_queues(without_tests(&tick)));
        }
        broken.extend(compare(function, &rung_queues, &allowed(template, function)));
    }
    Ok(broken)
}

/// The queue of the doorbell that a tick of this function sends, also to forward work for another cluster: it
/// is in the arms of `own_doorbell`.
fn tick_queue(events: &str, function: &str) -> Option<String> {
    let arm = format!("Function::{} => Some(Doorbell::", title(function));
    let (_, rest) = events.split_once(&arm)?;
    let doorbell: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    QUEUES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&doorbell)).map(|(_, queue)| (*queue).to_owned())
}

/// Whether a schedule of the transformed template has the function work.
fn has_tick(template: &Value, function: &str) -> bool {
    let name = title(function);
    let mut schedules = super::promises::of_type(template, "AWS::Scheduler::Schedule").into_iter();
    schedules
        .any(|(_, schedule)| schedule["Properties"]["Target"]["Arn"]["Fn::GetAtt"][0] == name.as_str() && !super::rules::is_wake(schedule))
}

/// A function's logical name.
fn title(function: &str) -> String {
    let mut name = function.to_owned();
    name[..1].make_ascii_uppercase();
    name
}

/// The text of a function's modules, without tests.
pub(super) fn source(folder: &Path) -> Result<String> {
    let mut text = String::new();
    let listing = std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in listing.flatten() {
        let path = entry.path();
        let is_test = path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains("test"));
        if path.is_dir() && !is_test {
            text.push_str(&source(&path)?);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !is_test {
            text.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(text)
}

/// A module without the tests at its end.
fn without_tests(module: &str) -> &str {
    module.split_once("#[cfg(test)]").map_or(module, |(code, _)| code)
}

/// The queues of the doorbells that the code constructs, by their fields or by a function such as `Doorbell::sweep`.
fn rung_queues(source: &str) -> BTreeSet<String> {
    let constructs = |doorbell: &str| {
        source.contains(&format!("Doorbell::{doorbell} ")) || source.contains(&format!("Doorbell::{}(", doorbell.to_ascii_lowercase()))
    };
    QUEUES.iter().filter(|(doorbell, _)| constructs(doorbell)).map(|(_, queue)| (*queue).to_owned()).collect()
}

/// The queues of doorbells that the function's role may send to: Lambda itself sends to that of the events that the function failed for.
fn allowed(template: &Value, function: &str) -> BTreeSet<String> {
    let configs = super::promises::of_type(template, "AWS::Lambda::EventInvokeConfig").into_iter();
    let mut own = configs.filter(|(_, config)| config["Properties"]["FunctionName"]["Ref"] == title(function).as_str());
    let given_up_to = own.find_map(|(_, config)| super::promises::gives_up_to(config));
    let policies = template["Resources"][format!("{}Role", title(function))]["Properties"]["Policies"].as_array();
    policies
        .into_iter()
        .flatten()
        .flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().into_iter().flatten())
        .filter(|statement| statement["Action"] == "sqs:SendMessage")
        .flat_map(|statement| match &statement["Resource"] {
            Value::Array(many) => many.clone(),
            one => vec![one.clone()],
        })
        .filter_map(|resource| resource["Fn::GetAtt"][0].as_str().filter(|queue| Some(*queue) != given_up_to).map(str::to_owned))
        .collect()
}

fn compare(function: &str, rung_queues: &BTreeSet<String>, allowed: &BTreeSet<String>) -> Vec<String> {
    let missing = rung_queues.difference(allowed).map(|queue| format!("{function} rings {queue}, and its role may not"));
    let idle = allowed.difference(rung_queues).map(|queue| format!("{function} may send to {queue}, and never rings it"));
    missing.chain(idle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tick_sends_to_the_functions_own_queue() {
        let events = "Function::Sweep => Some(Doorbell::Sweep { cluster, is_tick: true }),\nFunction::Relay => None,";
        assert_eq!(tick_queue(events, "sweep").as_deref(), Some("SweepQueue"));
        assert_eq!(tick_queue(events, "relay"), None);
        assert_eq!(tick_queue("if function == Function::Sweep => Some(Doorbell::sweep(cluster)),", "sweep").as_deref(), Some("SweepQueue"));
        let schedule = |function: &str, kind: &str| {
            let input = json!({ "kind": kind }).to_string();
            json!({"Type": "AWS::Scheduler::Schedule",
                "Properties": {"Target": {"Arn": {"Fn::GetAtt": [function, "Arn"]}, "Input": input}}})
        };
        let template = json!({"Resources": {"SweepTick": schedule("Sweep", "tick"), "InterruptWake": schedule("Interrupt", "wake")}});
        assert!(has_tick(&template, "sweep") && !has_tick(&template, "relay"));
        assert!(!has_tick(&template, "interrupt"), "it is only woken");
    }

    #[test]
    fn what_a_tick_rings_besides_is_read_without_its_tests() {
        let module = "ring(Doorbell::Register { cluster });\n#[cfg(test)]\nmod tests { Doorbell::Launch { cluster } }";
        assert_eq!(rung_queues(without_tests(module)), BTreeSet::from(["NodesQueue".to_owned()]));
        assert_eq!(rung_queues("ring(Doorbell::register(cluster))"), BTreeSet::from(["NodesQueue".to_owned()]));
    }

    #[test]
    fn missing_and_unused_permissions_for_queues_are_reported() {
        let template = json!({"Resources": {"LaunchRole": {"Properties": {"Policies": [{"PolicyDocument": {"Statement": [
            {"Action": "sqs:SendMessage", "Resource": [{"Fn::GetAtt": ["PlanQueue", "Arn"]}, {"Fn::GetAtt": ["NodesQueue", "Arn"]}]}
        ]}}]}}}});
        let rung_queues = rung_queues("ring(Doorbell::Schedule { cluster }); ring(Doorbell::Terminate { cluster, claim })");
        assert_eq!(
            compare("launch", &rung_queues, &allowed(&template, "launch")),
            ["launch rings TerminateQueue, and its role may not", "launch may send to NodesQueue, and never rings it"]
        );
    }

    #[test]
    fn the_queue_of_events_that_failed_is_rung_by_nobody() {
        let given_up_to = |function: &str| {
            json!({"Resources": {
                "InterruptRole": {"Properties": {"Policies": [{"PolicyDocument": {"Statement": [
                    {"Action": "sqs:SendMessage", "Resource": {"Fn::GetAtt": ["Lost", "Arn"]}}]}}]}},
                "Config": {"Type": "AWS::Lambda::EventInvokeConfig", "Properties": {"FunctionName": {"Ref": function},
                    "DestinationConfig": {"OnFailure": {"Destination": {"Fn::GetAtt": ["Lost", "Arn"]}}}}}
            }})
        };
        assert!(allowed(&given_up_to("Interrupt"), "interrupt").is_empty());
        assert_eq!(allowed(&given_up_to("Launch"), "interrupt"), BTreeSet::from(["Lost".to_owned()]), "it is another function's");
    }
}
