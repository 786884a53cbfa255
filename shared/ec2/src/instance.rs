//! Instances as EC2 describes them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use whittle_units::{InstanceId, ProviderId, Timestamp};

/// The states of an instance, in the order of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum InstanceState {
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    Terminated,
}

impl InstanceState {
    /// EC2's word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }
}

/// Why an instance is in its state, as EC2 says of those that were stopped or have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReason {
    /// Such as `Client.VolumeLimitExceeded`.
    pub code: String,
    pub message: String,
}

impl fmt::Display for StateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => f.write_str(&self.code),
            // EC2's own messages begin with the code.
            message if message.starts_with(&self.code) => f.write_str(message),
            message => write!(f, "{}: {message}", self.code),
        }
    }
}

impl StateReason {
    /// Whether somebody asked for it, be it Whittle.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.code.starts_with("Client.UserInitiated")
    }
    /// Whether EC2 ended the instance because it had no capacity for it after all.
    #[must_use]
    pub fn is_stock_out(&self) -> bool {
        self.code == "Server.InsufficientInstanceCapacity"
    }
    /// What to do about it if it ended an instance right after its start: another one would end alike. `None` if it is EC2's own affair,
    /// which passes, or was asked for.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        let code = self.code.strip_prefix("Client.").filter(|_| !self.is_requested())?;
        Some(match code {
            "VolumeLimitExceeded" => "the quota of EBS volumes is used up: request an increase in Service Quotas",
            "InstanceInitiatedShutdown" => "its operating system shut it down: see its console output, and spec.userData of the node class",
            "InternalError" => {
                "most often the KMS key of a volume is disabled, or its policy does not let those use it who start instances: the role of \
                 launch and, for spot, AWSServiceRoleForEC2Spot"
            }
            code if code.starts_with("InvalidKMSKey") => {
                "the KMS key of a volume cannot be used: enable it, or name another in spec.blockDeviceMappings of the node class"
            }
            code if code.starts_with("InvalidSnapshot") => {
                "the snapshot of a volume is gone: select another AMI, or correct spec.blockDeviceMappings"
            }
            _ => "correct what EC2 names in the node class",
        })
    }
}

/// A machine with our tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub id: InstanceId,
    pub state: InstanceState,
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    pub image_id: String,
    pub subnet_id: String,
    /// Ids, in their order.
    #[serde(default)]
    pub security_groups: Vec<String>,
    /// Its capacity reservation, whatever its capacity type.
    #[serde(default)]
    pub reservation: Option<String>,
    /// Id of its placement group.
    #[serde(default)]
    pub placement_group: Option<String>,
    /// Its partition of the placement group; `None` while EC2 has not chosen it.
    #[serde(default)]
    pub partition: Option<u32>,
    pub private_dns_name: String,
    /// Of one that was stopped or has ended.
    #[serde(default)]
    pub state_reason: Option<StateReason>,
    pub launched_at: Timestamp,
    pub tags: BTreeMap<String, String>,
}

impl Instance {
    /// The provider id of the machine's Node.
    pub fn provider_id(&self) -> ProviderId {
        ProviderId::of_instance(&self.zone, &self.id)
    }
    /// Whether it is not terminated or terminating: pending, running, or stopped.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, InstanceState::ShuttingDown | InstanceState::Terminated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(code: &str, message: &str) -> StateReason {
        StateReason { code: code.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn a_reason_names_its_code_once() {
        let of_ec2 = reason("Client.VolumeLimitExceeded", "Client.VolumeLimitExceeded: Volume limit exceeded");
        assert_eq!(of_ec2.to_string(), "Client.VolumeLimitExceeded: Volume limit exceeded");
        assert_eq!(reason("Server.InternalError", "An error").to_string(), "Server.InternalError: An error");
        assert_eq!(reason("Server.InternalError", "").to_string(), "Server.InternalError");
    }

    #[test]
    fn only_what_would_end_the_next_instance_too_has_a_remedy() {
        for (code, words) in [
            ("Client.VolumeLimitExceeded", "Service Quotas"),
            ("Client.InternalError", "KMS key"),
            ("Client.InvalidKMSKey.InvalidState", "spec.blockDeviceMappings"),
            ("Client.InvalidSnapshot.NotFound", "snapshot"),
            ("Client.InstanceInitiatedShutdown", "spec.userData"),
            ("Client.SomethingNew", "node class"),
        ] {
            assert!(reason(code, "").remedy().is_some_and(|remedy| remedy.contains(words)), "{code}");
        }
        let passing = ["Server.InternalError", "Server.InsufficientInstanceCapacity", "Server.SpotInstanceTermination", ""];
        for code in passing.into_iter().chain(["Client.UserInitiatedShutdown", "Client.UserInitiatedHibernate"]) {
            assert_eq!(reason(code, "").remedy(), None, "{code}");
            assert_eq!(reason(code, "").is_stock_out(), code == "Server.InsufficientInstanceCapacity", "{code}");
        }
    }
}
