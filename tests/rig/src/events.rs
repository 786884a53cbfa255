//! EventBridge for the events of AWS's own services, which the emulator takes from nobody: its rules and targets are used, and each
//! event that a rule's pattern matches goes to the queue or the function that is the rule's target.

use crate::emulator::Emulator;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::time::Duration;
use whittle_backends::ministack::Ministack;
use whittle_fake_aws::server::Shared;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A rule of the default bus.
struct Rule {
    pattern: Value,
    targets: Vec<Target>,
}

/// Who gets a rule's events.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// A queue, by its URL.
    Queue(String),
    /// A function, by its name.
    Function(String),
}

impl Target {
    /// That of an ARN; `None` for a service that no rule of ours has as target.
    fn of(arn: &str, endpoint: &str) -> Option<Self> {
        match *arn.split(':').collect::<Vec<_>>().as_slice() {
            ["arn", _, "sqs", _, account, name] => Some(Self::Queue(format!("{endpoint}/{account}/{name}"))),
            ["arn", _, "lambda", _, _, "function", name] => Some(Self::Function(name.to_owned())),
            _ => None,
        }
    }
}

/// The rules that are deployed.
pub(crate) struct Bus {
    emulator: Emulator,
    rules: Vec<Rule>,
}

impl Bus {
    /// Reads the rules with event patterns.
    pub(crate) async fn read(emulator: &Emulator) -> Result<Self> {
        let listed = emulator.json("events", "AWSEvents.ListRules", &json!({})).await?;
        let mut rules = Vec::new();
        for rule in listed["Rules"].as_array().into_iter().flatten() {
            let Some(pattern) = rule["EventPattern"].as_str() else { continue };
            let targets = emulator.json("events", "AWSEvents.ListTargetsByRule", &json!({"Rule": rule["Name"]})).await?;
            let arns = targets["Targets"].as_array().into_iter().flatten().filter_map(|target| target["Arn"].as_str());
            let pattern = serde_json::from_str(pattern).with_context(|| format!("{pattern} is no pattern"))?;
            rules.push(Rule { pattern, targets: arns.filter_map(|arn| Target::of(arn, emulator.endpoint())).collect() });
        }
        anyhow::ensure!(!rules.is_empty(), "the stack has no rules with patterns");
        Ok(Self { emulator: emulator.clone(), rules })
    }

    /// Delivers the region's events as long as the rig runs.
    pub(crate) async fn deliver(mut self, region: Shared) {
        let mut interval = tokio::time::interval(LOOK_EVERY);
        loop {
            interval.tick().await;
            for text in region.look(|lone| std::mem::take(&mut lone.events)) {
                let Ok(mut event) = serde_json::from_str::<Value>(&text) else { continue };
                event["region"] = json!(Ministack::REGION);
                let mut is_lost = false;
                for target in self.rules.iter().filter(|rule| matches(&rule.pattern, &event)).flat_map(|rule| &rule.targets) {
                    let delivered = match target {
                        Target::Queue(url) => self.emulator.enqueue(url, &event.to_string()).await,
                        Target::Function(name) => self.emulator.invoke_with_event(name, &event).await,
                    };
                    if let Err(error) = delivered {
                        eprintln!("an event is lost: {error:#}");
                        is_lost = true;
                    }
                }
                // Another release may have other targets.
                if is_lost {
                    let deployed = Self::read(&self.emulator).await;
                    self = deployed.unwrap_or(self);
                }
            }
        }
    }
}

/// Whether an event has what a pattern asks for: fields with one of the listed values.
fn matches(pattern: &Value, event: &Value) -> bool {
    let Some(fields) = pattern.as_object() else { return false };
    fields.iter().all(|(name, wanted)| match wanted.as_array() {
        Some(values) => match &event[name] {
            Value::Array(own) => own.iter().any(|one| values.contains(one)),
            own => values.contains(own),
        },
        None => matches(wanted, &event[name]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_queue_or_a_function() {
        let of = |arn| Target::of(arn, "http://127.0.0.1:4566");
        let queue = "http://127.0.0.1:4566/111122223333/whittle-NodesQueue-1".to_owned();
        assert_eq!(of("arn:aws:sqs:us-west-2:111122223333:whittle-NodesQueue-1"), Some(Target::Queue(queue)));
        let function = Target::Function("whittle-Interrupt-1".to_owned());
        assert_eq!(of("arn:aws:lambda:us-west-2:111122223333:function:whittle-Interrupt-1"), Some(function));
        for other in ["arn:aws:sns:us-west-2:111122223333:topic", "arn:aws:lambda:us-west-2:111122223333:layer:x", "whittle-Interrupt-1"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn patterns_ask_for_values_at_any_depth() {
        let event = json!({"source": "aws.ec2", "detail-type": "State", "detail": {"state": "running"}});
        assert!(matches(&json!({"source": ["aws.ec2"], "detail": {"state": ["pending", "running"]}}), &event));
        for other in [json!({"source": ["aws.health"]}), json!({"detail": {"state": ["stopped"]}}), json!({"detail": {"zone": ["a"]}})] {
            assert!(!matches(&other, &event), "{other}");
        }
    }
}
