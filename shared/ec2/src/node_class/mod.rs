//! The resolution of node classes (aws 11, 14, 17, 18): queries to EC2, and the selection among the results.

mod addresses;
mod images;
mod placement;
mod profile;
mod queries;
mod refusals;
mod remarks;
mod reservations;

pub use images::{AliasError, SsmImage, choose_images, ssm_images};
pub use placement::{PlacementGroupError, PlacementGroups, choose_placement_group};
pub use profile::{InstanceProfile, ProfileError, class_of_profile, cluster_path, instance_profile, profile_path};
pub use queries::{
    Query, capacity_reservation_queries, image_queries, matches_tags, security_group_queries, ssm_parameters, subnet_queries,
};
pub use remarks::remarks;
pub use reservations::{ChosenReservations, ClassMachines, choose_reservations};

use crate::facts::Catalog;
use crate::instance_types::{Settings, usable_interfaces};
use crate::kubelet::expression::Expression;
use crate::kubelet::{Expressions, Kubelet};
use crate::network::{ClusterInfo, Image, SecurityGroup, Subnet};
use crate::user_data::{self, ClusterAccess};
use std::collections::BTreeMap;
use whittle_api::conditions::{self, ConditionValue};
use whittle_api::karpenter::{AmiFamily, Ec2NodeClass, Ec2NodeClassStatus, ResolvedSecurityGroup, ResolvedSubnet};
use whittle_api::meta::{Condition, ConditionStatus};
use whittle_api::runtime::{kubelet_violations, passthrough_fields};
use whittle_units::Timestamp;

/// The results for a class. A failed lookup is not an empty one: see `unanswered`.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub subnets: Vec<Subnet>,
    pub security_groups: Vec<SecurityGroup>,
    pub images: Vec<Image>,
    /// `None` if reservations are not looked up (gate `ReservedCapacity` off): their status stays.
    pub reservations: Option<ChosenReservations>,
    pub placement_groups: PlacementGroups,
    /// Why the alias of the class has no images, if so.
    pub alias_error: Option<AliasError>,
    /// Name of the profile; `None` while it is unknown.
    pub instance_profile: Option<String>,
    /// Why there is no profile, if so.
    pub profile_error: Option<ProfileError>,
    /// The parts that could not be looked up, by the types of their conditions: the fields above have nothing of them.
    pub unanswered: BTreeMap<&'static str, Unanswered>,
}

/// A part of a class that could not be looked up. What the status of the class says of it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Reason and message of the condition of a part that was never resolved: it is Unknown.
    pub reason: &'static str,
    pub message: String,
    /// The condition of the part when it was resolved, which stays.
    pub former: Option<Condition>,
}

impl Unanswered {
    fn condition(&self) -> ConditionValue {
        match &self.former {
            Some(known) => ConditionValue { status: known.status, reason: known.reason.clone().into(), message: known.message.clone() },
            None => ConditionValue::unknown(self.reason, self.message.clone()),
        }
    }
}

/// Subnets by free addresses, most first, then by id.
pub fn choose_subnets(mut subnets: Vec<Subnet>) -> Vec<ResolvedSubnet> {
    subnets.sort_by(|a, b| b.free_addresses.cmp(&a.free_addresses).then_with(|| a.id.cmp(&b.id)));
    subnets.dedup_by(|a, b| a.id == b.id);
    subnets.into_iter().map(|subnet| ResolvedSubnet { id: subnet.id, zone: subnet.zone, zone_id: subnet.zone_id }).collect()
}

/// Security groups by id.
pub fn choose_security_groups(mut groups: Vec<SecurityGroup>) -> Vec<ResolvedSecurityGroup> {
    groups.sort_by(|a, b| a.id.cmp(&b.id));
    groups.dedup_by(|a, b| a.id == b.id);
    groups.into_iter().map(|group| ResolvedSecurityGroup { id: group.id, name: group.name }).collect()
}

/// What a class is validated with, besides what was found for it.
#[derive(Clone, Copy, Debug)]
pub struct Checks<'a> {
    pub settings: &'a Settings,
    pub cluster: &'a ClusterInfo,
    /// The region's types; `None` while they are not known.
    pub catalog: Option<&'a Catalog>,
}

/// The status of a class after a lookup of its resources. Of what was not answered, the status that the class has says what stays.
pub fn status(class: &Ec2NodeClass, found: Found, checks: Checks<'_>, now: Timestamp) -> Ec2NodeClassStatus {
    let Found { subnets, security_groups, images, reservations, placement_groups, .. } = found;
    let (unanswered, family) = (found.unanswered, class.spec.family());
    let is_answered = |part: &str| !unanswered.contains_key(part);
    let mut status = class.status.clone();
    let scarce = addresses::remark(class, &subnets, checks.cluster);
    if is_answered(conditions::SUBNETS_READY) {
        status.subnets = choose_subnets(subnets);
    }
    if is_answered(conditions::SECURITY_GROUPS_READY) {
        status.security_groups = choose_security_groups(security_groups);
    }
    if is_answered(conditions::AMIS_READY) {
        status.amis = choose_images(&images, family);
    }
    if is_answered(conditions::INSTANCE_PROFILE_READY) {
        status.instance_profile = found.instance_profile.filter(|name| !name.is_empty());
    }
    let has_reservations = reservations.is_some() || !is_answered(conditions::CAPACITY_RESERVATIONS_READY);
    // Ready even if nothing was found: a class without reservations launches spot and on-demand machines.
    let mut usable = ConditionValue::yes();
    if let Some(chosen) = reservations {
        usable.message = chosen.message();
        status.capacity_reservations = chosen.kept;
    }
    let of = |part: &str, answered: ConditionValue| unanswered.get(part).map_or(answered, Unanswered::condition);
    let amis = of(conditions::AMIS_READY, images_condition(&status, found.alias_error.as_ref()));
    let subnets = of(conditions::SUBNETS_READY, subnets_condition(&status, scarce));
    let groups = "no security group matches spec.securityGroupSelectorTerms";
    let groups = ConditionValue::of(!status.security_groups.is_empty(), "SecurityGroupsNotFound", groups);
    let groups = of(conditions::SECURITY_GROUPS_READY, groups);
    let profile = of(conditions::INSTANCE_PROFILE_READY, profile_condition(&status, found.profile_error.as_ref()));
    let validation = validation(class, checks, &[&amis, &subnets, &groups, &profile]);
    let reservations = || (conditions::CAPACITY_RESERVATIONS_READY, of(conditions::CAPACITY_RESERVATIONS_READY, usable));
    let mut parts = vec![(conditions::AMIS_READY, amis)];
    parts.extend(has_reservations.then(reservations));
    // Without its group a class launches nothing: the machines would silently start outside of it.
    let placement = match choose_placement_group(class.spec.placement_group_selector.as_ref(), &placement_groups) {
        Ok(_) => ConditionValue::yes(),
        Err(error) => ConditionValue::no(error.reason(), error.to_string()),
    };
    parts.push((conditions::PLACEMENT_GROUP_READY, of(conditions::PLACEMENT_GROUP_READY, placement)));
    parts.extend([
        (conditions::SUBNETS_READY, subnets),
        (conditions::SECURITY_GROUPS_READY, groups),
        (conditions::INSTANCE_PROFILE_READY, profile),
        (conditions::VALIDATION_SUCCEEDED, validation),
    ]);
    let ready = ready(&parts);
    for (name, value) in parts.iter().chain([&(conditions::READY, ready)]) {
        value.set_on(&mut status.conditions, name, now);
        if let Some(condition) = status.conditions.iter_mut().find(|condition| condition.type_ == *name) {
            condition.observed_generation = class.metadata.generation;
        }
    }
    status
}

/// What is found is used, however few addresses it has: pods of the host's network need none, and machines end.
fn subnets_condition(status: &Ec2NodeClassStatus, scarce: Option<String>) -> ConditionValue {
    if status.subnets.is_empty() {
        return ConditionValue::no("SubnetsNotFound", "no subnet matches spec.subnetSelectorTerms");
    }
    ConditionValue { message: scarce.unwrap_or_default(), ..ConditionValue::yes() }
}

fn images_condition(status: &Ec2NodeClassStatus, alias_error: Option<&AliasError>) -> ConditionValue {
    match alias_error {
        Some(error) => ConditionValue::no("UnsupportedAlias", error.to_string()),
        None => ConditionValue::of(!status.amis.is_empty(), "AMINotFound", "no image matches spec.amiSelectorTerms"),
    }
}

fn profile_condition(status: &Ec2NodeClassStatus, error: Option<&ProfileError>) -> ConditionValue {
    match (&status.instance_profile, error) {
        (Some(_), _) => ConditionValue::yes(),
        (None, Some(error)) => ConditionValue::no(error.reason(), error.to_string()),
        (None, None) => ConditionValue::unknown("InstanceProfileUnknown", "the instance profile is not known yet"),
    }
}

/// Why a class launches nothing whatever is found for it; `None` if that depends on what is found.
pub fn refusal(class: &Ec2NodeClass, settings: &Settings) -> Option<String> {
    // A certificate of the cluster takes the place of the user's, and its names only make user data longer.
    let cluster = ClusterAccess { ca_bundle: Some(String::new()), service_cidr: Some(String::new()), ..ClusterAccess::default() };
    let of_node = || match kubelet(class, settings) {
        Ok(kubelet) => refused_user_data(class, &kubelet, &cluster),
        Err(refused) => Some(refused),
    };
    let refused = unusable_family(class).or_else(of_node).or_else(|| refusals::of_ec2(class));
    refused.map(|refused| refused.message)
}

fn refused_user_data(class: &Ec2NodeClass, kubelet: &Kubelet, cluster: &ClusterAccess) -> Option<ConditionValue> {
    let error = user_data::check(class, kubelet, cluster).err()?;
    Some(ConditionValue::no(error.reason(), error.to_string()))
}

/// The checks of aws 18.4 that need no call of EC2, in their order.
fn validation(class: &Ec2NodeClass, checks: Checks<'_>, dependencies: &[&ConditionValue]) -> ConditionValue {
    if let Some(refused) = unusable_family(class) {
        return refused;
    }
    if class.spec.family() == AmiFamily::Al2023 && checks.cluster.service_cidr.is_empty() {
        return ConditionValue::no("ClusterCIDRResolutionFailed", "the service address range of the cluster is not known");
    }
    let kubelet = match kubelet(class, checks.settings) {
        Ok(kubelet) => kubelet,
        Err(refused) => return refused,
    };
    if let Some(refused) = refused_user_data(class, &kubelet, &checks.cluster.into()) {
        return refused;
    }
    if dependencies.iter().any(|each| each.status == ConditionStatus::False) {
        return ConditionValue::no("DependenciesNotReady", "images, subnets, security groups or the instance profile are not ready");
    }
    if dependencies.iter().any(|each| each.status == ConditionStatus::Unknown) {
        return ConditionValue::unknown("DependenciesNotReady", "it is not known yet whether everything the class names is ready");
    }
    if !kubelet.expressions().is_empty()
        && let Some(refused) = evaluated(class, &kubelet, checks)
    {
        return refused;
    }
    refusals::of_ec2(class).unwrap_or_else(|| {
        let told: Vec<String> = remarks(class).into_iter().chain(remarks::in_cluster(class, checks.cluster)).collect();
        ConditionValue { message: told.join("; "), ..ConditionValue::yes() }
    })
}

/// Why the family of a class is none, or not that of its images: nodes of Custom are planned with Linux, whatever an alias selects.
fn unusable_family(class: &Ec2NodeClass) -> Option<ConditionValue> {
    if let Some(name) = class.spec.unknown_family() {
        let message = format!("spec.amiFamily {name:?} is none of {}", AmiFamily::NAMES.join(", "));
        return Some(ConditionValue::no("UnknownAMIFamily", message));
    }
    let (alias, _) = class.spec.alias()?;
    let windows = AmiFamily::of_alias(alias).filter(|family| family.is_windows() && class.spec.family() == AmiFamily::Custom)?;
    let message = format!(
        "spec.amiFamily: nodes of Custom are planned with Linux, and the alias in spec.amiSelectorTerms selects images of Windows: leave \
         spec.amiFamily out, or write {}",
        windows.name()
    );
    Some(ConditionValue::no("UnsupportedAMIFamily", message))
}

/// The kubelet settings of a class, if a kubelet would start with them and its family has them.
fn kubelet(class: &Ec2NodeClass, settings: &Settings) -> Result<Kubelet, ConditionValue> {
    let document = class.spec.kubelet.as_ref();
    let violations: Vec<String> = kubelet_violations(document).iter().map(ToString::to_string).collect();
    if !violations.is_empty() {
        return Err(ConditionValue::no("InvalidKubeletConfiguration", violations.join("; ")));
    }
    let kubelet = Kubelet::parse(document).map_err(|error| ConditionValue::no("InvalidKubeletConfiguration", error.to_string()))?;
    let expressions = kubelet.expressions();
    if let Some(first) = expressions.first().filter(|_| settings.expressions == Expressions::Ignored) {
        let remedy = "write a number or a quantity, or set the stack's parameter NodeClassExpressions=true";
        let message = format!("spec.kubelet.{} holds an expression, and expressions are switched off: {remedy}", first.field);
        return Err(ConditionValue::no("KubeletExpressionsDisabled", message));
    }
    for expression in &expressions {
        if let Err(error) = Expression::parse(expression.text) {
            let message = format!("spec.kubelet.{} {} cannot be used: {error}", expression.field, expression.quoted());
            return Err(ConditionValue::no("KubeletExpressionInvalid", message));
        }
    }
    let unsupported = unsupported(&kubelet, class.spec.family());
    drop(expressions);
    unsupported.map_or(Ok(kubelet), Err)
}

/// Why the expressions of a class have no value on some type of the region; `None` if they have one on each.
fn evaluated(class: &Ec2NodeClass, kubelet: &Kubelet, checks: Checks<'_>) -> Option<ConditionValue> {
    let Some(catalog) = checks.catalog.filter(|catalog| !catalog.types.is_empty()) else {
        let message = "the region's instance types are not known yet, on which spec.kubelet's expressions have to be evaluated";
        return Some(ConditionValue::unknown("InstanceTypesUnknown", message));
    };
    let failing = catalog.types.iter().find_map(|facts| {
        let interfaces = usable_interfaces(facts, &class.spec, checks.settings.reserved_enis);
        kubelet.evaluate_on(facts, class.spec.family(), interfaces).err()
    })?;
    let cause = std::error::Error::source(&failing).map(|source| format!(": {source}")).unwrap_or_default();
    Some(ConditionValue::no("KubeletExpressionEvaluationFailed", format!("{failing}{cause}")))
}

/// Settings that the family does not support.
fn unsupported(kubelet: &Kubelet, family: AmiFamily) -> Option<ConditionValue> {
    if matches!(family, AmiFamily::Al2023 | AmiFamily::Custom) {
        return None;
    }
    let mut fields = passthrough_fields(&kubelet.raw);
    if family == AmiFamily::Bottlerocket && kubelet.pods_per_core.is_some() {
        fields.push("podsPerCore");
    }
    fields.sort_unstable();
    let family = family.name();
    let message = if !fields.is_empty() {
        format!(
            "spec.kubelet: nodes of family {family} cannot be given {}: leave it out, or set it in spec.userData as far as the \
             image can; AL2023 takes every field",
            fields.join(", ")
        )
    } else if kubelet.cluster_dns.len() > 1 {
        format!("spec.kubelet.clusterDNS: nodes of family {family} take one address: leave the others out")
    } else {
        return None;
    };
    Some(ConditionValue::no("UnsupportedKubeletConfiguration", message))
}

/// True when all are; False when one is; else Unknown.
fn ready(parts: &[(&str, ConditionValue)]) -> ConditionValue {
    let with = |status| parts.iter().find(move |(_, value)| value.status == status);
    if let Some((name, value)) = with(ConditionStatus::False) {
        return ConditionValue::no("UnhealthyDependents", format!("{name}: {}", value.message));
    }
    match with(ConditionStatus::Unknown) {
        Some((name, value)) => ConditionValue::unknown("ReconcilingDependents", format!("{name}: {}", value.message)),
        None => ConditionValue { reason: "Ready".into(), ..ConditionValue::yes() },
    }
}

#[cfg(test)]
mod tests;
