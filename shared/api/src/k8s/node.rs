//! Nodes and taints.

use crate::meta::{Condition, ObjectMeta};
use crate::{conditions, labels};
use serde::{Deserialize, Serialize};
use std::fmt;
use whittle_units::{Resources, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: ObjectMeta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}
super::kind!(Node, "v1", "Node", "nodes", false, crate::protobuf::NODE);

impl Node {
    /// Whether its condition Ready is True.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        conditions::is_true(&self.status.conditions, conditions::READY)
    }
    /// Whether it is ready for pods and is to stay.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.is_ready() && !self.metadata.is_deleting()
    }
    /// Whether it has the taint of nodes that are being disrupted, with whatever effect.
    #[must_use]
    pub fn has_disrupted_taint(&self) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED_TAINT)
    }
}

/// What a server answers that is asked for the metadata of Nodes alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeMetadata {
    pub metadata: ObjectMeta,
}
super::kind!(NodeMetadata, "v1", "PartialObjectMetadata", "nodes", false, crate::protobuf::NODE_METADATA);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::meta::null_as_default")]
    pub taints: Vec<Taint>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    pub capacity: Resources,
    pub allocatable: Resources,
    #[serde(deserialize_with = "crate::meta::null_as_default")]
    pub conditions: Vec<Condition>,
    pub node_info: NodeSystemInfo,
    /// Volumes that the attach/detach controller reports.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::meta::null_as_default")]
    pub volumes_attached: Vec<serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSystemInfo {
    pub kubelet_version: String,
    pub architecture: String,
    pub operating_system: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: TaintEffect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    #[default]
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Taint {
    /// A taint without value.
    pub fn new(key: &str, effect: TaintEffect) -> Self {
        Self { key: key.to_owned(), value: String::new(), effect, time_added: None }
    }
    /// The taint that keeps new pods off a node that is being disrupted.
    pub fn disrupted() -> Self {
        Self::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule)
    }
    /// Whether key and effect are equal, which makes two taints the same.
    pub fn same(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl fmt::Display for TaintEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}
impl fmt::Display for Taint {
    /// `key=value:Effect`, or `key:Effect` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConditionStatus;

    #[test]
    fn a_node_is_ready_by_its_condition_and_serves_while_it_is_to_stay() {
        let mut node = Node::default();
        assert!(!node.is_ready(), "nothing is known of it");
        for (status, is_ready) in [(ConditionStatus::False, false), (ConditionStatus::Unknown, false), (ConditionStatus::True, true)] {
            conditions::set(&mut node.status.conditions, conditions::READY, status, "KubeletReady", "", Timestamp::UNIX_EPOCH);
            assert_eq!((node.is_ready(), node.serves()), (is_ready, is_ready), "{status:?}");
        }
        node.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        assert!(node.is_ready() && !node.serves());
    }

    #[test]
    fn a_node_is_disrupted_by_the_key_of_its_taint_alone() {
        let with = |taint: Taint| Node { spec: NodeSpec { taints: vec![taint], ..NodeSpec::default() }, ..Node::default() };
        assert!(with(Taint::disrupted()).has_disrupted_taint());
        assert!(with(Taint { effect: TaintEffect::NoExecute, ..Taint::disrupted() }).has_disrupted_taint());
        assert!(!with(Taint::new("karpenter.sh/unregistered", TaintEffect::NoExecute)).has_disrupted_taint());
        assert!(!Node::default().has_disrupted_taint());
    }
}
