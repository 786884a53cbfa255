//! In which domains machines of NodePools could be that do not exist yet.

use super::kube;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{NodePool, Requirement};
use whittle_api::labels;
use whittle_model::scheduling::Input;

/// The domains of `key` in which NodePools without taints and requirements on it could create machines with the labels `others`, of one of
/// their types as it is sold.
pub(super) fn of_pools<'a>(input: &Input<'a>, key: &str, others: &[&str]) -> BTreeSet<&'a str> {
    let plain = |p: &&NodePool| p.serves_pods() && is_unrestricted(p, key);
    let has_others = |pool: &NodePool, t: &InstanceType| others.iter().all(|other| gets_label(pool, t, other));
    let mut out: BTreeSet<&'a str> = BTreeSet::new();
    for pool in input.objects.node_pools.iter().filter(plain) {
        let wanted = Wanted::by(pool);
        let types = input.catalog.get(&pool.metadata.name).map(|types| &types[..]).unwrap_or_default();
        for t in types.iter().filter(|t| wanted.admit(&t.requirements) && has_others(pool, t)) {
            out.extend(values_when_launched(&wanted, t, key));
        }
    }
    out
}

/// The values of `key` on machines of a type that a NodePool could launch, whatever EC2 has of it now. What has no price was never sold.
fn values_when_launched<'a>(wanted: &Wanted<'_>, instance_type: &'a InstanceType, key: &str) -> Vec<&'a str> {
    if !instance_type.holds_its_overhead() {
        return Vec::new();
    }
    let offerings = instance_type.offerings.iter();
    let sold: Vec<&Offering> = offerings.filter(|offering| offering.is_sold() && wanted.allow(offering)).collect();
    let is_stated = |r: &&Requirement| labels::normalized(&r.key) == key && r.operator.as_str() == "In";
    let of_type = instance_type.requirements.iter().filter(is_stated).flat_map(|r| &r.values).map(String::as_str);
    let is_offered = |value: &str| {
        sold.iter().any(|offering| offering.requirements.iter().filter(is_stated).all(|r| r.values.iter().any(|own| own == value)))
    };
    of_type.filter(|value| is_offered(value)).collect()
}

/// The requirements and labels of a NodePool, by key: operators and values.
struct Wanted<'a>(BTreeMap<&'a str, Vec<(&'a str, &'a [String])>>);

impl<'a> Wanted<'a> {
    fn by(pool: &'a NodePool) -> Self {
        let template = &pool.spec.template;
        let required = template.spec.requirements.iter().map(|r| (r.key.as_str(), r.operator.as_str(), &r.values[..]));
        let labelled = template.metadata.labels.iter().map(|(key, value)| (key.as_str(), "In", std::slice::from_ref(value)));
        let mut wanted: BTreeMap<&str, Vec<(&str, &[String])>> = BTreeMap::new();
        for (key, operator, values) in required.chain(labelled) {
            wanted.entry(labels::normalized(key)).or_default().push((operator, values));
        }
        Self(wanted)
    }

    /// Whether the NodePool allows an offering. Nothing is dedicated that does not ask for it.
    fn allow(&self, offering: &Offering) -> bool {
        let names_tenancy = self.0.contains_key(labels::INSTANCE_TENANCY);
        (names_tenancy || !offering.is_dedicated()) && self.admit(&offering.requirements)
    }

    /// Whether the NodePool allows an instance type or offering with these requirements.
    fn admit(&self, requirements: &[Requirement]) -> bool {
        requirements.iter().all(|own| {
            let Some(wanted) = self.0.get(labels::normalized(&own.key)) else { return true };
            let admits = |value: Option<&str>| wanted.iter().all(|(operator, values)| kube::admits(operator, values, value));
            match own.operator.as_str() {
                "In" => own.values.iter().any(|value| admits(Some(value.as_str()))),
                "DoesNotExist" => admits(None),
                _ => true,
            }
        })
    }
}

/// Whether a node of the NodePool and type certainly has the label.
fn gets_label(pool: &NodePool, instance_type: &InstanceType, key: &str) -> bool {
    let template = &pool.spec.template;
    let is_given = |r: &Requirement| labels::normalized(&r.key) == labels::normalized(key) && r.operator.as_str() == "In";
    template.metadata.labels.contains_key(key)
        || template.spec.requirements.iter().any(is_given)
        || instance_type.requirements.iter().any(is_given)
}

/// With `minValues` no machine is launched in a domain with too few types, which are not counted here.
fn is_unrestricted(pool: &NodePool, key: &str) -> bool {
    let template = &pool.spec.template;
    template.spec.requirements.iter().all(|r| r.min_values.is_none())
        && template.spec.taints.is_empty()
        && !template.metadata.labels.contains_key(key)
        && !template.spec.requirements.iter().any(|r| r.key == key)
}
