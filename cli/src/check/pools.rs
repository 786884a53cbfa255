//! NodePools that probably do not do what was intended: above all those for which no instance type that their class can boot meets all
//! requirements.

use super::protection;
use crate::listing::first_named;
use crate::source::Offers;
use crate::source::requirements::{self, is_known};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::ClusterObjects;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::Workloads;
use whittle_api::karpenter::{Ec2NodeClass, NodePool, Operator, Requirement};
use whittle_api::labels;
use whittle_ec2::facts::offline;
use whittle_ec2::instance_types::Settings;
use whittle_ec2::node_class;
use whittle_model::requirements::canonical_key;
use whittle_model::scheduling::{Cause, Finding, Input, InstanceTypes, Options, PoolRejection, RuledOut};
use whittle_units::Timestamp;

/// The beginning of labels that say what a type is.
pub(super) const INSTANCE: &str = "karpenter.k8s.aws/instance-";

/// How many requirements, of which those that rule out most types are first, or zones a remark names.
const NAMED_MAX: usize = 4;

/// What there is to warn of in a NodePool that an API server accepts. `all`: the NodePools beside it; `without_types`: the answer of
/// [`without_types`] for them.
pub(super) fn remarks(pool: &NodePool, all: &[&NodePool], without_types: &BTreeMap<String, String>) -> Vec<String> {
    let mut remarks: Vec<String> = requirements::faults(pool).iter().map(ToString::to_string).collect();
    // What is wrong with single ones says more.
    remarks.extend(without_types.get(&pool.metadata.name).filter(|_| remarks.is_empty()).cloned());
    remarks.extend(of_two_kinds(pool, all).into_iter().chain(above_limit(pool)));
    let protects = pool.spec.template.metadata.annotations.get(labels::DO_NOT_DISRUPT);
    remarks.extend(protection::of_nodes("spec.template.", protects.map(String::as_str)));
    remarks
}

/// The zones that a NodePool names and its class has no subnet in, as far as the class's status shows which it has.
pub(super) fn without_subnet(pool: &NodePool, classes: &[Ec2NodeClass]) -> Vec<String> {
    let Some(class) = pool.class_in(classes) else { return Vec::new() };
    let subnets = &class.status.subnets;
    let requirements = pool.spec.template.spec.requirements.iter().enumerate();
    let remark = |(index, requirement): (usize, &Requirement)| {
        let mut has: BTreeSet<&str> = match canonical_key(&requirement.key) {
            labels::ZONE => subnets.iter().map(|subnet| subnet.zone.as_str()).collect(),
            labels::ZONE_ID => subnets.iter().map(|subnet| subnet.zone_id.as_str()).collect(),
            _ => return None,
        };
        has.remove("");
        let missing: Vec<&str> = requirement.values.iter().map(String::as_str).filter(|zone| !has.contains(zone)).collect();
        if has.is_empty() || missing.is_empty() || requirement.operator != Operator::In {
            return None;
        }
        let has: Vec<&str> = has.into_iter().collect();
        let message = format!(
            "EC2NodeClass {:?} has no subnet in {}, so that nothing is launched there: its status has subnets in {}; select one of the zone \
             in its spec.subnetSelectorTerms, or leave the zone out",
            class.metadata.name,
            first_named(&missing, NAMED_MAX),
            first_named(&has, NAMED_MAX)
        );
        Some(FieldError::new(FieldPath::of("spec.template.spec.requirements").index(index), message).to_string())
    };
    requirements.filter_map(remark).collect()
}

/// By name of the NodePool: the remark about it. What its class may launch the tables of a region say; pools that name what the tables do
/// not know are left out, for types are newer than tables.
pub(super) fn without_types(pools: &[&NodePool], classes: &[Ec2NodeClass]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut by_region: BTreeMap<&str, Vec<(NodePool, &Ec2NodeClass)>> = BTreeMap::new();
    for pool in pools {
        let mut of_types = (*pool).clone();
        of_types.spec.template.spec.requirements.retain(is_of_type);
        let requirements = &of_types.spec.template.spec.requirements;
        let usable = |class: &&Ec2NodeClass| node_class::refusal(class, &Settings::standard()).is_none();
        if let Some(class) = pool.class_in(classes).filter(usable)
            && !requirements.is_empty()
            && requirements.iter().all(is_known)
        {
            by_region.entry(region_of(pool)).or_default().push((of_types, class));
        }
    }
    for (region, pools) in by_region {
        found.extend(rejections(region, &pools).into_iter().filter_map(|rejection| remark(region, &rejection)));
    }
    found
}

/// Whether a requirement is about what a type is, and where it is sold. Which reservations there are, and which labels nodes get besides,
/// no table says.
fn is_of_type(requirement: &Requirement) -> bool {
    let key = canonical_key(&requirement.key);
    let of_type = || key.starts_with(INSTANCE) && key != labels::INSTANCE_TENANCY;
    [labels::ARCH, labels::OS, labels::INSTANCE_TYPE, labels::ZONE].contains(&key) || of_type()
}

/// What a plan without pods says of these NodePools.
fn rejections(region: &str, pools: &[(NodePool, &Ec2NodeClass)]) -> Vec<PoolRejection> {
    let mut catalog = BTreeMap::new();
    for (pool, class) in pools {
        // A region with tables has types, and expressions of the class, which may have no value on some, are not evaluated.
        let Ok(types) = Offers::of_class(region, class) else { continue };
        catalog.insert(pool.metadata.name.clone(), Arc::new(InstanceTypes::from(types)));
    }
    let node_pools = pools.iter().map(|(pool, _)| pool.clone()).collect();
    let objects = ClusterObjects { node_pools, ..ClusterObjects::default() };
    let (now, workloads) = (Timestamp::UNIX_EPOCH, Workloads::default());
    let input = Input { now, objects: &objects, nodes: &[], catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    whittle_solver::solve(&input, &Options::provisioning()).unusable_pools
}

fn remark(region: &str, rejection: &PoolRejection) -> Option<(String, String)> {
    let Cause::InstanceTypes { finding: Finding::NoRequirements | Finding::NoRequirementsNoOffering, .. } = rejection.cause else {
        return None;
    };
    // What no type of the region meets by itself another region may sell, or the tables may not know; architecture and system are the
    // class's.
    let of_class = |ruled: &RuledOut| [labels::ARCH, labels::OS].iter().any(|key| ruled.constraint.starts_with(&format!("{key} ")));
    if rejection.ruled_out.iter().any(|ruled| ruled.types == ruled.of && !of_class(ruled)) {
        return None;
    }
    let named = rejection.ruled_out.iter().filter(|ruled| !ruled.constraint.contains("offerings")).take(NAMED_MAX);
    let ruled: Vec<String> = named.map(|ruled| format!("{} rules out {} of {}", ruled.constraint, ruled.types, ruled.of)).collect();
    let message = format!(
        "spec.template.spec.requirements: no instance type of {region} meets all of them, and the NodePool launches nothing: {}; keep those \
         that are meant",
        ruled.join(", ")
    );
    Some((rejection.node_pool.clone(), message))
}

/// The region that is named by zones, or one that sells most types.
fn region_of(pool: &NodePool) -> &'static str {
    let mut values = pool.spec.template.spec.requirements.iter().flat_map(|requirement| &requirement.values);
    let named = |value: &String| offline::REGIONS.iter().copied().find(|region| value.starts_with(region));
    values.find_map(named).unwrap_or("us-east-1")
}

/// That a static NodePool is to keep more machines than its limit lets it have.
fn above_limit(pool: &NodePool) -> Option<String> {
    let keeps = pool.spec.replicas?;
    let limit = pool.spec.limits.0.get("nodes")?.units_floor();
    (limit < keeps).then(|| {
        format!(
            "spec.replicas: {keeps} machines are to be kept, and spec.limits.nodes lets {limit} be launched: raise it, or lower \
             spec.replicas"
        )
    })
}

/// That a Provisioner has the name of a NodePool.
fn of_two_kinds(pool: &NodePool, all: &[&NodePool]) -> Option<String> {
    let is_other = |other: &&&NodePool| other.is_converted_provisioner() && other.metadata.name == pool.metadata.name;
    let other = all.iter().find(is_other).filter(|_| !pool.is_converted_provisioner())?;
    Some(format!(
        "Provisioner {:?} has its name: both launch nodes, each its own; delete the Provisioner once the NodePool is to have all",
        other.metadata.name
    ))
}
