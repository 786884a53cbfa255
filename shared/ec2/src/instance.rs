//! Instances as EC2 describes them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{InstanceId, ProviderId, Timestamp};

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
