//! Node classes: what they name is looked up, and what became of it is kept and shown.

use std::collections::BTreeMap;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::{ConditionStatus, conditions, hashes, labels};
use whittle_claims::NodeClassRecord;
use whittle_ec2::network::ClusterInfo;
use whittle_ec2::node_class::{Found, choose_reservations, ssm_images, status};
use whittle_ports::{CloudError, CloudErrorKind, Discovery, Settings};
use whittle_units::{ClusterName, Timestamp};

/// The class as it is resolved: one that names neither role nor profile gets the operator's, if there is one.
pub(crate) fn with_defaults(class: &Ec2NodeClass, settings: &Settings) -> Ec2NodeClass {
    let mut class = class.clone();
    if class.spec.role.is_none() && class.spec.instance_profile.is_none() {
        class.spec.instance_profile.clone_from(&settings.default_instance_profile);
        if class.spec.instance_profile.is_none() {
            class.spec.role.clone_from(&settings.default_node_role);
        }
    }
    class
}

/// Looks up everything that a class names. A failed lookup fails the whole: what is known from before stays.
pub(crate) async fn find<C: Discovery>(
    cloud: &C,
    cluster: &ClusterName,
    info: &ClusterInfo,
    class: &Ec2NodeClass,
    settings: &Settings,
) -> Result<(Found, BTreeMap<String, u32>), CloudError> {
    let spec = &class.spec;
    let subnets = cloud.subnets(&spec.subnet_selector_terms).await?;
    let security_groups = cloud.security_groups(&spec.security_group_selector_terms).await?;
    let aliases = spec.ami_selector_terms.iter().filter_map(|term| term.alias.as_deref());
    let alias_error = aliases.filter_map(|alias| ssm_images(alias, &info.version).err()).next();
    let images = if alias_error.is_some() { Vec::new() } else { cloud.images(&spec.ami_selector_terms, &info.version).await? };
    let terms = spec.capacity_reservation_selector_terms.as_deref().unwrap_or_default();
    let reservations = if settings.scheduling.reserved_capacity { Some(cloud.capacity_reservations(terms).await?) } else { None };
    let instance_profile = match (&spec.instance_profile, &spec.role) {
        (Some(name), _) => Some(name.clone()),
        (None, Some(role)) => match cloud.ensure_instance_profile(cluster, &class.metadata.name, role).await {
            Ok(name) => Some(name),
            // The class waits for its profile, and says so; everything else of it is known.
            Err(error) if matches!(error.kind, CloudErrorKind::NotFound | CloudErrorKind::Invalid | CloudErrorKind::Unauthorized) => {
                tracing::warn!(%error, class = %class.metadata.name, "no instance profile");
                None
            }
            Err(error) => return Err(error),
        },
        (None, None) => None,
    };
    let free = subnets.iter().map(|subnet| (subnet.id.clone(), subnet.free_addresses)).collect();
    let has_service_cidr = !info.service_cidr.is_empty();
    Ok((Found { subnets, security_groups, images, reservations, alias_error, instance_profile, has_service_cidr }, free))
}

/// The class with its new status and hash, and the record that launches go by. `now` is when the look began.
pub(crate) fn resolved(
    class: &Ec2NodeClass,
    info: &ClusterInfo,
    found: Found,
    free_addresses: BTreeMap<String, u32>,
    now: Timestamp,
) -> (Ec2NodeClass, NodeClassRecord) {
    let chosen = choose_reservations(found.reservations.as_deref().unwrap_or_default(), now);
    for sentence in &chosen.unknown {
        tracing::error!(class = %class.metadata.name, "capacity reservation {sentence}");
    }
    let mut shown = class.clone();
    shown.status = status(class, found, now);
    let hash = hashes::node_class(class, &info.certificate_authority);
    shown.metadata.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), hash.clone());
    shown.metadata.annotations.insert(labels::NODE_CLASS_HASH_VERSION.to_owned(), hashes::NODE_CLASS_VERSION.to_owned());
    let record = NodeClassRecord {
        subnets: shown.status.subnets.clone(),
        security_groups: shown.status.security_groups.clone(),
        amis: shown.status.amis.clone(),
        instance_profile: shown.status.instance_profile.clone().unwrap_or_default(),
        hash,
        problems: problems(&shown, class),
        free_addresses,
        free_reserved: chosen.free,
        resolved_at: now,
        class: shown.clone(),
    };
    (shown, record)
}

/// One sentence per thing that keeps the class from being used.
fn problems(shown: &Ec2NodeClass, class: &Ec2NodeClass) -> Vec<String> {
    if class.metadata.is_deleting() {
        return vec!["the class is being deleted".to_owned()];
    }
    if conditions::is_true(&shown.status.conditions, conditions::READY) {
        return Vec::new();
    }
    let mut all: Vec<String> = shown
        .status
        .conditions
        .iter()
        .filter(|condition| condition.type_ != conditions::READY && condition.status != ConditionStatus::True)
        .filter(|condition| condition.type_ != conditions::VALIDATION_SUCCEEDED || condition.reason != "DependenciesNotReady")
        .map(|condition| format!("{}: {}", condition.type_, condition.message))
        .collect();
    let spec = &class.spec;
    if spec.role.is_none() && spec.instance_profile.is_none() {
        all.push("spec.role and spec.instanceProfile are both unset: set one, or the default node role of the installation".to_owned());
    }
    if all.is_empty() { vec!["the class is not ready".to_owned()] } else { all }
}
