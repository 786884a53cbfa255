//! The kubelet document of a node class (aws 13, 3.5): decoded, and resolved for a machine.

pub mod expression;

use crate::facts::InstanceTypeFacts;
use crate::instance_types::default_pods;
use expression::{Expression, ExpressionError, Value, Variables};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use whittle_api::GoDuration;
use whittle_api::karpenter::AmiFamily;
use whittle_api::words;
use whittle_units::Quantity;

/// Amounts or expressions by resource name, as the user wrote them.
pub type TextMap = BTreeMap<String, String>;

/// The fields that Whittle interprets, and the whole document for families that take any field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kubelet {
    pub raw: serde_json::Map<String, serde_json::Value>,
    pub max_pods: Option<MaxPods>,
    pub pods_per_core: Option<u32>,
    pub cluster_dns: Vec<String>,
    pub system_reserved: TextMap,
    pub kube_reserved: TextMap,
    pub eviction_hard: TextMap,
    pub eviction_soft: TextMap,
    pub eviction_soft_grace_period: BTreeMap<String, GoDuration>,
    pub eviction_max_pod_grace_period: Option<i32>,
    pub image_gc_high_threshold_percent: Option<i32>,
    pub image_gc_low_threshold_percent: Option<i32>,
    pub cpu_cfs_quota: Option<bool>,
}

/// `maxPods`: a number, or an expression over the machine's facts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a whole number from 0 to 2147483647, or an expression, is needed here")]
pub enum MaxPods {
    Fixed(u32),
    Expression(String),
}

/// A kubelet document that cannot be used for a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    #[error("spec.kubelet{field}: {reason}")]
    Undecodable {
        /// The field with a dot before it; empty for the document itself.
        field: String,
        reason: String,
    },
    #[error("spec.kubelet.maxPods {expression:?} has no value for {instance_type}")]
    MaxPods { expression: String, instance_type: String, source: Box<ExpressionError> },
    #[error("spec.kubelet.{field} {expression:?} has no value for {instance_type}")]
    Reserved { field: String, expression: String, instance_type: String, source: Box<ExpressionError> },
    #[error("spec.kubelet.{field} {expression:?} gives {amount} for {instance_type}: nothing less than 0 can be reserved")]
    ReservedNegative { field: String, expression: String, instance_type: String, amount: i64 },
    #[error("spec.kubelet.maxPods {expression:?} gives {pods} for {instance_type}: it must lie between 0 and 2147483647")]
    MaxPodsRange { expression: String, instance_type: String, pods: i64 },
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    max_pods: Option<MaxPods>,
    #[serde(deserialize_with = "pods_per_core")]
    pods_per_core: Option<u32>,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Option<Vec<String>>,
    system_reserved: Option<TextMap>,
    kube_reserved: Option<TextMap>,
    eviction_hard: Option<TextMap>,
    eviction_soft: Option<TextMap>,
    eviction_soft_grace_period: Option<BTreeMap<String, GoDuration>>,
    eviction_max_pod_grace_period: Option<i32>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "cpuCFSQuota")]
    cpu_cfs_quota: Option<bool>,
}

impl Kubelet {
    /// Decodes the document; absent and `null` are an empty one.
    pub fn parse(document: Option<&serde_json::Value>) -> Result<Self, KubeletError> {
        let mut raw = match document {
            None | Some(serde_json::Value::Null) => return Ok(Self::default()),
            Some(serde_json::Value::Object(fields)) => fields.clone(),
            Some(_) => return Err(KubeletError::Undecodable { field: String::new(), reason: "it must be an object".to_owned() }),
        };
        raw.values_mut().for_each(make_whole);
        let fields: Document = serde_path_to_error::deserialize(serde_json::Value::Object(raw.clone())).map_err(|error| {
            KubeletError::Undecodable { field: format!(".{}", error.path()), reason: words::plain(&error.inner().to_string()) }
        })?;
        if let Some(MaxPods::Fixed(pods)) = fields.max_pods
            && i32::try_from(pods).is_err()
        {
            let reason = format!("{pods} is too large: at most {}", i32::MAX);
            return Err(KubeletError::Undecodable { field: ".maxPods".to_owned(), reason });
        }
        Ok(Self {
            raw,
            max_pods: fields.max_pods,
            pods_per_core: fields.pods_per_core,
            cluster_dns: fields.cluster_dns.unwrap_or_default(),
            system_reserved: fields.system_reserved.unwrap_or_default(),
            kube_reserved: fields.kube_reserved.unwrap_or_default(),
            eviction_hard: fields.eviction_hard.unwrap_or_default(),
            eviction_soft: fields.eviction_soft.unwrap_or_default(),
            eviction_soft_grace_period: fields.eviction_soft_grace_period.unwrap_or_default(),
            eviction_max_pod_grace_period: fields.eviction_max_pod_grace_period,
            image_gc_high_threshold_percent: fields.image_gc_high_threshold_percent,
            image_gc_low_threshold_percent: fields.image_gc_low_threshold_percent,
            cpu_cfs_quota: fields.cpu_cfs_quota,
        })
    }
}

/// A number of the kubelet's, which has a sign there.
fn pods_per_core<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u32>, D::Error> {
    let Some(number) = Option::<serde_json::Value>::deserialize(input)? else { return Ok(None) };
    let pods = number.as_u64().and_then(|pods| i32::try_from(pods).ok()).and_then(|pods| u32::try_from(pods).ok());
    pods.map(Some).ok_or_else(|| D::Error::custom(format!("a whole number from 0 to {} is needed here, not {number}", i32::MAX)))
}

/// Makes `110.0` the number that an API server makes of it.
fn make_whole(value: &mut serde_json::Value) {
    #[expect(clippy::cast_possible_truncation, reason = "a whole number, and small enough to be one exactly")]
    let whole = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0 && number.abs() < 2f64.powi(53)).map(|n| n as i64);
    if let Some(whole) = whole {
        *value = whole.into();
    }
}

/// An expression of a document, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldExpression<'a> {
    /// Below `spec.kubelet`, such as `kubeReserved.cpu`.
    pub field: String,
    pub text: &'a str,
}

/// How much of an expression a message quotes: a condition has room for 32,768 characters, whatever a field holds.
const QUOTED_MAX: usize = 200;

impl FieldExpression<'_> {
    /// The text in quotation marks, or its beginning.
    #[must_use]
    pub fn quoted(&self) -> String {
        match self.text.char_indices().nth(QUOTED_MAX) {
            Some((end, _)) => format!("{:?}…", &self.text[..end]),
            None => format!("{:?}", self.text),
        }
    }
}

impl Kubelet {
    /// Its expressions: amounts that are no quantities, and `maxPods` that is no number.
    pub fn expressions(&self) -> Vec<FieldExpression<'_>> {
        let mut all = Vec::new();
        if let Some(MaxPods::Expression(text)) = &self.max_pods {
            all.push(FieldExpression { field: "maxPods".to_owned(), text });
        }
        all.extend(self.reserved_expressions());
        all
    }

    fn reserved_expressions(&self) -> impl Iterator<Item = FieldExpression<'_>> {
        let maps = [("kubeReserved", &self.kube_reserved), ("systemReserved", &self.system_reserved)];
        maps.into_iter().flat_map(|(field, map)| {
            let computed = map.iter().filter(|(_, text)| text.parse::<Quantity>().is_err());
            computed.map(move |(name, text)| FieldExpression { field: format!("{field}.{name}"), text })
        })
    }

    /// The first expression that has no valid value on a type. Machines leave out what they cannot compute, so a class is judged
    /// before (aws 18.4).
    pub fn evaluate_on(&self, facts: &InstanceTypeFacts, family: AmiFamily, interfaces: u32) -> Result<(), KubeletError> {
        let pods = resolve(self, facts, family, interfaces, Expressions::Evaluated)?.pods;
        let variables = variables(facts, pods);
        for FieldExpression { field, text } in self.reserved_expressions() {
            let (expression, instance_type) = (text.to_owned(), facts.name.clone());
            match Expression::parse(text).and_then(|parsed| parsed.number(&variables)) {
                Ok(amount) if amount < 0 => return Err(KubeletError::ReservedNegative { field, expression, instance_type, amount }),
                Ok(_) => {}
                Err(source) => return Err(KubeletError::Reserved { field, expression, instance_type, source: source.into() }),
            }
        }
        Ok(())
    }
}

/// The values of a document's expressions on one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The maximum number of pods.
    pub pods: u32,
    /// The kubelet's `maxPods`: the user's own number even if `podsPerCore` limits it further, which the kubelet does itself.
    pub max_pods: u32,
    /// Quantities only.
    pub kube_reserved: TextMap,
    pub system_reserved: TextMap,
}

/// Whether kubelet settings may hold expressions (gate `NodeClassCEL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expressions {
    Evaluated,
    Ignored,
}

/// Resolves pods and reserved resources of a machine. `interfaces` are those that pods may use.
pub fn resolve(
    kubelet: &Kubelet,
    facts: &InstanceTypeFacts,
    family: AmiFamily,
    interfaces: u32,
    gate: Expressions,
) -> Result<Resolved, KubeletError> {
    let default = default_pods(facts, family, interfaces);
    let per_core = |pods: u32| match kubelet.pods_per_core {
        Some(each) if each > 0 && family.honours_pods_per_core() => pods.min(each.saturating_mul(facts.vcpus)),
        _ => pods,
    };
    let pods = per_core(match (&kubelet.max_pods, gate) {
        (Some(MaxPods::Fixed(pods)), _) => *pods,
        (Some(MaxPods::Expression(text)), Expressions::Evaluated) => max_pods(text, facts, per_core(default))?,
        _ => default,
    });
    let reserved = |map: &TextMap| reserved(map, facts, pods, gate);
    let max_pods = match &kubelet.max_pods {
        Some(MaxPods::Fixed(pods)) => *pods,
        _ => pods,
    };
    Ok(Resolved { pods, max_pods, kube_reserved: reserved(&kubelet.kube_reserved), system_reserved: reserved(&kubelet.system_reserved) })
}

fn variables(facts: &InstanceTypeFacts, pods: u32) -> Variables {
    BTreeMap::from([
        ("vcpus", Value::Int(i64::from(facts.vcpus))),
        ("memory_mib", Value::Int(i64::try_from(facts.memory_mib).unwrap_or(i64::MAX))),
        ("default_enis", Value::Int(i64::from(facts.default_interfaces()))),
        ("ips_per_eni", Value::Int(i64::from(facts.ipv4_per_interface))),
        ("max_pods", Value::Int(i64::from(pods))),
        ("instance_type", Value::Text(facts.name.clone())),
    ])
}

fn max_pods(text: &str, facts: &InstanceTypeFacts, default: u32) -> Result<u32, KubeletError> {
    let value = Expression::parse(text).and_then(|expression| expression.number(&variables(facts, default)));
    let pods = value.map_err(|source| {
        let (expression, instance_type) = (text.to_owned(), facts.name.clone());
        KubeletError::MaxPods { expression, instance_type, source: source.into() }
    })?;
    match u32::try_from(pods) {
        Ok(count) if i32::try_from(count).is_ok() => Ok(count),
        _ => Err(KubeletError::MaxPodsRange { expression: text.to_owned(), instance_type: facts.name.clone(), pods }),
    }
}

/// Static entries unchanged, expressions evaluated and rounded up; negative entries and those without a valid value are omitted (aws 3.5).
fn reserved(map: &TextMap, facts: &InstanceTypeFacts, pods: u32, gate: Expressions) -> TextMap {
    let known = LazyLock::new(|| variables(facts, pods));
    map.iter()
        .filter_map(|(name, text)| {
            if let Ok(amount) = text.parse::<Quantity>() {
                return (Quantity::ZERO <= amount).then(|| (name.clone(), text.clone()));
            }
            if gate == Expressions::Ignored {
                return None;
            }
            let number = Expression::parse(text).and_then(|expression| expression.number(&known)).ok()?;
            (number >= 0).then(|| (name.clone(), in_unit(name, number)))
        })
        .collect()
}

/// A computed amount in the unit of its resource (aws 3.5).
fn in_unit(resource: &str, number: i64) -> String {
    match resource {
        "cpu" => format!("{}m", rounded_up(number, 10)),
        "memory" => format!("{}Mi", rounded_up(number, 16)),
        "ephemeral-storage" => format!("{number}Gi"),
        _ => number.to_string(),
    }
}

/// The next multiple, or the largest one if that would overflow.
fn rounded_up(number: i64, multiple: i64) -> i64 {
    match number.rem_euclid(multiple) {
        0 => number,
        rest => number.checked_add(multiple - rest).unwrap_or(i64::MAX - i64::MAX.rem_euclid(multiple)),
    }
}

#[cfg(test)]
mod tests;
