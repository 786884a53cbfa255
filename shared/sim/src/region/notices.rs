//! Events as EventBridge delivers them.

use jiff::Timestamp;
use serde_json::{Value, json};

fn event(source: &str, kind: &str, instance: &str, detail: &Value, now: Timestamp) -> String {
    json!({
        "version": "0",
        "id": format!("{source}-{instance}-{}", now.as_millisecond()),
        "detail-type": kind,
        "source": source,
        "account": super::ACCOUNT,
        "time": now.to_string(),
        "resources": [instance],
        "detail": detail,
    })
    .to_string()
}

/// The two-minute warning before a spot machine is reclaimed.
pub fn spot_interruption(instance: &str, now: Timestamp) -> String {
    event(
        "aws.ec2",
        "EC2 Spot Instance Interruption Warning",
        instance,
        &json!({"instance-id": instance, "instance-action": "terminate"}),
        now,
    )
}

/// The recommendation to replace a spot machine at risk.
pub fn rebalance(instance: &str, now: Timestamp) -> String {
    event("aws.ec2", "EC2 Instance Rebalance Recommendation", instance, &json!({"instance-id": instance}), now)
}

/// A state change of a machine.
pub fn state_change(instance: &str, state: &str, now: Timestamp) -> String {
    event("aws.ec2", "EC2 Instance State-change Notification", instance, &json!({"instance-id": instance, "state": state}), now)
}

/// A scheduled change of the machine's host.
pub fn scheduled_change(instance: &str, now: Timestamp) -> String {
    let detail = json!({
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "affectedEntities": [{"entityValue": instance}],
    });
    event("aws.health", "AWS Health Event", instance, &detail, now)
}
