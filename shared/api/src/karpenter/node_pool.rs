//! NodePool `karpenter.sh/v1` (api 5).

use crate::conditions;
use crate::duration::{GoDuration, NillableDuration};
use crate::k8s::{IntOrString, Kind, Taint};
use crate::meta::{Condition, ConditionStatus, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::Resources;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePool {
    pub metadata: ObjectMeta,
    pub spec: NodePoolSpec,
    #[serde(default)]
    pub status: NodePoolStatus,
}
crate::k8s::kind!(NodePool, "karpenter.sh/v1", "NodePool", "nodepools", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    pub template: NodeClaimTemplate,
    #[serde(default, deserialize_with = "null_as_default")]
    pub disruption: Disruption,
    /// Resources that are not listed are unlimited; `nodes` limits the number of nodes.
    #[serde(default, skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub limits: Resources,
    /// 1 to 100; absent acts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Its presence makes the pool static.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClaimTemplate {
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: TemplateMeta,
    pub spec: NodeClaimTemplateSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    pub node_class_ref: NodeClassReference,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub taints: Vec<Taint>,
    /// Set on new nodes and removed by others; scheduling ignores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub startup_taints: Vec<Taint>,
    /// 720h when absent.
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
    /// Absent: no limit for draining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
}

pub(crate) fn default_expire_after() -> NillableDuration {
    NillableDuration::After("720h".parse().expect("a literal duration"))
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeClassReference {
    pub group: String,
    pub kind: String,
    pub name: String,
}

impl NodeClassReference {
    /// Whether it means an EC2NodeClass. What was written before v1 may have neither group nor kind; any other group is that of another
    /// controller, as `eks.amazonaws.com` is that of EKS Auto Mode, whose classes may have the same names.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        let is = |given: &str, own: &str| given.is_empty() || given == own;
        is(&self.group, crate::labels::AWS_DOMAIN) && is(&self.kind, crate::karpenter::Ec2NodeClass::KIND)
    }
}

/// A constraint on one label of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub values: Vec<String>,
    /// The minimum number of possible values (1 to 50).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}

impl Requirement {
    /// `key In values`.
    pub fn is_in<I: IntoIterator<Item = S>, S: Into<String>>(key: &str, values: I) -> Self {
        Self { key: key.to_owned(), operator: Operator::In, values: values.into_iter().map(Into::into).collect(), min_values: None }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    #[default]
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

impl Operator {
    /// Parses an operator; `None` if it is unknown.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            "Gte" => Self::Gte,
            "Lte" => Self::Lte,
            _ => return None,
        })
    }
    /// The value in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    pub consolidate_after: NillableDuration,
    pub consolidation_policy: ConsolidationPolicy,
    /// An empty list means no limit; an absent one the default of 10%.
    pub budgets: Vec<Budget>,
}

impl Disruption {
    /// The settings that older versions have. Fields that came later keep their defaults.
    pub(crate) fn of_older_version(
        consolidate_after: NillableDuration,
        consolidation_policy: ConsolidationPolicy,
        budgets: Vec<Budget>,
    ) -> Self {
        Self { consolidate_after, consolidation_policy, budgets }
    }
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidate_after: NillableDuration::After("0s".parse().expect("a literal duration")),
            consolidation_policy: ConsolidationPolicy::default(),
            budgets: vec![Budget { nodes: IntOrString::Text("10%".to_owned()), ..Budget::default() }],
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConsolidationPolicy {
    WhenEmpty,
    #[default]
    WhenEmptyOrUnderutilized,
    Balanced,
}

/// How many nodes of a pool may be disrupted at once, optionally limited to certain times and reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// A count or a percentage, as text (`"5"`, `"10%"`).
    pub nodes: IntOrString,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<GoDuration>,
    /// Underutilized, Empty, Drifted; absent: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<String>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: IntOrString::Text("10%".to_owned()), schedule: None, duration: None, reasons: None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    pub nodes: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl NodePool {
    /// Static pools keep a fixed number of nodes and are not scaled by pending pods.
    pub fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }
    /// Whether it gets new nodes for pods: it is dynamic, not being deleted, and no status says that it is not ready.
    pub fn serves_pods(&self) -> bool {
        let ready = conditions::find(&self.status.conditions, conditions::READY);
        !self.is_static() && !self.metadata.is_deleting() && ready.is_none_or(|ready| ready.status == ConditionStatus::True)
    }
    /// The weight, 0 when absent.
    pub fn weight(&self) -> i32 {
        self.spec.weight.unwrap_or(0)
    }
    /// Shadow mode: disruptions of the pool's nodes are decided and recorded, never executed.
    pub fn is_shadow(&self) -> bool {
        self.metadata.annotation(crate::labels::SHADOW) == Some("true")
    }
    /// Whether machines of the pool are ours to launch: the pools of another controller are planned for by it, and it writes their status.
    pub fn is_managed(&self) -> bool {
        self.spec.template.spec.node_class_ref.is_managed()
    }
    /// Whether the pool was converted from a Provisioner.
    pub fn is_converted_provisioner(&self) -> bool {
        self.metadata.annotation(crate::labels::CONVERTED_FROM) == Some("Provisioner")
    }

    /// The name that the user gave: in decisions a converted Provisioner is named `Provisioner/<name>` where a NodePool
    /// has the same name.
    pub fn given_name(name: &str) -> &str {
        name.strip_prefix(Self::TWIN_PREFIX).unwrap_or(name)
    }
    /// Prefix of the name of a converted Provisioner if a NodePool has the same name.
    pub const TWIN_PREFIX: &'static str = "Provisioner/";

    /// The class that the pool refers to. Old and new kinds may have the same name: a pool that was converted from a
    /// Provisioner refers to a class that was converted from an AWSNodeTemplate, every other pool to one that was not. The pool of another
    /// controller refers to none of ours, whatever their names.
    pub fn class_in<'a>(&self, classes: &'a [crate::karpenter::Ec2NodeClass]) -> Option<&'a crate::karpenter::Ec2NodeClass> {
        let reference = &self.spec.template.spec.node_class_ref;
        let from_template = |class: &&crate::karpenter::Ec2NodeClass| class.is_converted_template() == self.is_converted_provisioner();
        classes.iter().filter(|class| reference.is_managed() && class.metadata.name == reference.name).find(from_template)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pools_of_ec2_node_classes_are_managed() {
        let is_managed = |group: &str, kind: &str| {
            let mut pool = NodePool::default();
            pool.spec.template.spec.node_class_ref = NodeClassReference { group: group.into(), kind: kind.into(), name: "default".into() };
            pool.is_managed()
        };
        assert!(is_managed("karpenter.k8s.aws", "EC2NodeClass"));
        assert!(is_managed("", "EC2NodeClass") && is_managed("karpenter.k8s.aws", "") && is_managed("", ""), "of before v1");
        assert!(!is_managed("eks.amazonaws.com", "NodeClass"), "EKS Auto Mode");
        assert!(!is_managed("eks.amazonaws.com", "EC2NodeClass") && !is_managed("karpenter.k8s.aws", "NodeClass"));
        assert!(!is_managed("karpenter.azure.com", "AKSNodeClass") && !is_managed("", "NodeClass"));
    }
}
