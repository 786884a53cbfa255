//! Events as EventBridge delivers them.

use super::ACCOUNT;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The instance that events are about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub partition: &'a str,
    pub region: &'a str,
    pub zone: &'a str,
    pub instance: &'a str,
}

impl Subject<'_> {
    fn event(&self, source: &str, kind: &str, resource: &str, detail: &Value, now: Timestamp) -> String {
        json!({
            "version": "0",
            "id": format!("{source}-{}-{}", self.instance, now.as_millisecond()),
            "detail-type": kind,
            "source": source,
            "account": ACCOUNT,
            "time": now.to_string(),
            "region": self.region,
            "resources": [resource],
            "detail": detail,
        })
        .to_string()
    }

    /// Events about spot capacity name an instance by its zone, without an account.
    fn arn_in_zone(&self) -> String {
        format!("arn:{}:ec2:{}:instance/{}", self.partition, self.zone, self.instance)
    }

    /// The two-minute warning before a spot machine is reclaimed.
    pub fn spot_interruption(&self, now: Timestamp) -> String {
        let detail = json!({"instance-id": self.instance, "instance-action": "terminate"});
        self.event("aws.ec2", "EC2 Spot Instance Interruption Warning", &self.arn_in_zone(), &detail, now)
    }

    /// The recommendation to replace a spot machine at risk.
    pub fn rebalance(&self, now: Timestamp) -> String {
        let detail = json!({"instance-id": self.instance});
        self.event("aws.ec2", "EC2 Instance Rebalance Recommendation", &self.arn_in_zone(), &detail, now)
    }

    /// The ARN of the instance.
    pub fn arn(&self) -> String {
        format!("arn:{}:ec2:{}:{ACCOUNT}:instance/{}", self.partition, self.region, self.instance)
    }

    /// A state change of a machine.
    pub fn state_change(&self, state: &str, now: Timestamp) -> String {
        let arn = self.arn();
        let detail = json!({"instance-id": self.instance, "state": state});
        self.event("aws.ec2", "EC2 Instance State-change Notification", &arn, &detail, now)
    }

    /// A scheduled change of the machine's host. AWS Health names instances by their ids.
    pub fn scheduled_change(&self, now: Timestamp) -> String {
        let detail = json!({
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "affectedEntities": [{"entityValue": self.instance}],
        });
        self.event("aws.health", "AWS Health Event", self.instance, &detail, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_instance_as_aws_does() {
        let subject = Subject { partition: "aws-cn", region: "cn-north-1", zone: "cn-north-1a", instance: "i-1" };
        let now = Timestamp::UNIX_EPOCH;
        let resources = |event: String| serde_json::from_str::<Value>(&event).expect("an event is JSON")["resources"].clone();
        for event in [subject.spot_interruption(now), subject.rebalance(now)] {
            assert_eq!(resources(event), json!(["arn:aws-cn:ec2:cn-north-1a:instance/i-1"]));
        }
        let changed = subject.state_change("running", now);
        assert_eq!(resources(changed), json!([format!("arn:aws-cn:ec2:cn-north-1:{ACCOUNT}:instance/i-1")]));
        assert_eq!(resources(subject.scheduled_change(now)), json!(["i-1"]));
    }
}
