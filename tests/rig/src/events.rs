//! EventBridge for the events of AWS's own services, which the emulator takes from nobody: its rules and targets are used, and each
//! event that a rule's pattern matches goes to the queue that is the rule's target.

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
    /// URLs of queues.
    targets: Vec<String>,
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
            let queues = targets["Targets"].as_array().into_iter().flatten().filter_map(|target| target["Arn"].as_str());
            let url = |arn: &str| Some(format!("{}/{}/{}", emulator.endpoint(), arn.split(':').nth(4)?, arn.rsplit(':').next()?));
            let pattern = serde_json::from_str(pattern).with_context(|| format!("{pattern} is no pattern"))?;
            rules.push(Rule { pattern, targets: queues.filter_map(url).collect() });
        }
        anyhow::ensure!(!rules.is_empty(), "the stack has no rules with patterns");
        Ok(Self { emulator: emulator.clone(), rules })
    }

    /// Delivers the region's events as long as the rig runs.
    pub(crate) async fn deliver(self, region: Shared) {
        let mut interval = tokio::time::interval(LOOK_EVERY);
        loop {
            interval.tick().await;
            for text in region.look(|lone| std::mem::take(&mut lone.events)) {
                let Ok(mut event) = serde_json::from_str::<Value>(&text) else { continue };
                event["region"] = json!(Ministack::REGION);
                for target in self.rules.iter().filter(|rule| matches(&rule.pattern, &event)).flat_map(|rule| &rule.targets) {
                    if let Err(error) = self.emulator.enqueue(target, &event.to_string()).await {
                        eprintln!("an event is lost: {error:#}");
                    }
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
    fn patterns_ask_for_values_at_any_depth() {
        let event = json!({"source": "aws.ec2", "detail-type": "State", "detail": {"state": "running"}});
        assert!(matches(&json!({"source": ["aws.ec2"], "detail": {"state": ["pending", "running"]}}), &event));
        for other in [json!({"source": ["aws.health"]}), json!({"detail": {"state": ["stopped"]}}), json!({"detail": {"zone": ["a"]}})] {
            assert!(!matches(&other, &event), "{other}");
        }
    }
}
