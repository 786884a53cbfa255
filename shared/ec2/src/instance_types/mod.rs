//! The instance types of a node class, from the region's catalog (aws 3, 4).

mod attachments;
mod compatibility;
mod labels;
mod offerings;
mod resources;

pub use compatibility::Incompatibility;
pub use offerings::{Pool, Unavailable, quota_of, takes_prefixes};
pub use resources::{TypeResources, default_pods, usable_interfaces};

use crate::facts::{Catalog, InstanceTypeFacts};
use crate::kubelet::{self, Expressions, Kubelet, KubeletError, Resolved};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::{
    AmiFamily, Ec2NodeClass, Ec2NodeClassSpec, Ec2NodeClassStatus, ResolvedCapacityReservation, ResolvedPlacementGroup,
};
use whittle_units::{Quantity, Resources};

/// Settings of the whole installation (aws 1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Interfaces withheld from the pod density formula.
    pub reserved_enis: u32,
    /// The expected memory overhead of the hypervisor, in millionths.
    pub vm_memory_overhead_ppm: u32,
    /// Gate `ReservedCapacity`: reservations of a class are used.
    pub reserved_capacity: bool,
    /// Gate `NodeClassCEL`.
    pub expressions: Expressions,
}

impl Settings {
    /// The default settings.
    pub const fn standard() -> Self {
        Self { reserved_enis: 0, vm_memory_overhead_ppm: 75_000, reserved_capacity: true, expressions: Expressions::Ignored }
    }
}

/// All inputs besides the catalog that determine the types of a class. Subnets, images and reservations are those of the
/// class's status.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub class: &'a Ec2NodeClass,
    pub family: AmiFamily,
    pub kubelet: &'a Kubelet,
    pub settings: &'a Settings,
    pub unavailable: &'a Unavailable,
    /// Free instances by reservation id; unlisted ones have none.
    pub reservation_capacity: &'a BTreeMap<String, u32>,
    /// The tenancy that machines need to start in a reservation, by its id; unlisted ones are for either.
    pub reservation_tenancies: &'a BTreeMap<String, String>,
    pub placement_group: Option<&'a ResolvedPlacementGroup>,
    /// Whether pods of the cluster have IPv6 addresses.
    pub ipv6: bool,
    /// The memory that nodes of a type reported with the class's current image (aws 3.8).
    pub measured_memory: &'a BTreeMap<String, Quantity>,
    /// What is allocatable at most, by type, where nodes had too little for their pods with the class's settings and image (aws 3.8).
    pub measured_allocatable: &'a BTreeMap<String, Resources>,
}

impl<'a> Context<'a> {
    /// Reservations of the class for a type; none while the gate is off.
    pub(crate) fn reservations_of(&self, instance_type: &str) -> impl Iterator<Item = &'a ResolvedCapacityReservation> {
        let all: &'a [ResolvedCapacityReservation] =
            if self.settings.reserved_capacity { &self.class.status.capacity_reservations } else { &[] };
        all.iter().filter(move |reservation| reservation.instance_type == instance_type)
    }
    /// The id of a zone from the class's subnets; `None` if it is unknown.
    pub(crate) fn zone_id(&self, zone: &str) -> Option<&'a str> {
        let subnet = self.class.status.subnets.iter().find(|subnet| subnet.zone == zone && !subnet.zone_id.is_empty());
        subnet.map(|subnet| subnet.zone_id.as_str())
    }
    /// Whether the class's spread placement group holds as many machines in the zone as EC2 allows.
    fn is_group_full(&self, zone: &str) -> bool {
        let full = |group: &ResolvedPlacementGroup| self.unavailable.full_groups.contains(&(group.id.clone(), zone.to_owned()));
        self.placement_group.is_some_and(full)
    }
    fn is_shifted(&self, zone: &str) -> bool {
        self.zone_id(zone).is_some_and(|id| self.unavailable.shifted_zone_ids.contains(id))
    }
    /// Each partition; a single `None` without partitions.
    fn partitions(&self) -> Vec<Option<u32>> {
        match self.placement_group.map_or(0, ResolvedPlacementGroup::partitions) {
            0 => vec![None],
            count => (1..=count).map(Some).collect(),
        }
    }
}

/// What of a class its types depend on, as text: two classes that differ in nothing else have equal types in equal contexts, unless EC2
/// refuses machines to one of them ([`Unavailable::refused`]). Of what a class selects, that is what its status says was found.
pub fn relevant_settings(class: &Ec2NodeClass) -> String {
    // All fields are named, so that a new one is not overlooked.
    let Ec2NodeClassSpec {
        subnet_selector_terms: _,
        security_group_selector_terms: _,
        capacity_reservation_selector_terms: _,
        placement_group_selector: _,
        associate_public_ip_address,
        ami_selector_terms,
        ami_family,
        user_data: _,
        role: _,
        instance_profile: _,
        tags: _,
        kubelet,
        block_device_mappings,
        instance_store_policy,
        network_interfaces,
        ip_prefix_count,
        detailed_monitoring: _,
        metadata_options: _,
        connection_tracking,
        context: _,
        cpu_options,
    } = &class.spec;
    let Ec2NodeClassStatus { subnets, security_groups: _, capacity_reservations, amis, instance_profile: _, conditions: _ } = &class.status;
    let images = (ami_family, ami_selector_terms, amis);
    let network = (associate_public_ip_address, network_interfaces, ip_prefix_count, connection_tracking);
    let machine = (kubelet, block_device_mappings, instance_store_policy, cpu_options);
    format!("{images:?} {network:?} {machine:?} {subnets:?} {capacity_reservations:?}")
}

/// Why the types of a class cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the catalog of {region} holds no instance types yet")]
    EmptyCatalog { region: String },
    #[error("node class {class} has no subnets in its status")]
    NoSubnets { class: String },
    #[error("the instance types of node class {class} cannot be resolved")]
    Kubelet { class: String, source: Box<KubeletError> },
}

/// All types of the region as a node class sees them, in the order of their names. One type that cannot be resolved fails
/// the listing, so that no decision is based on a partial one.
pub fn resolve(catalog: &Catalog, context: &Context<'_>) -> Result<Vec<InstanceType>, ResolveError> {
    resolve_some(catalog, context, |_| true)
}

/// The `wanted` types of the region, as [`resolve`] returns them.
pub fn resolve_some(catalog: &Catalog, context: &Context<'_>, wanted: impl Fn(&str) -> bool) -> Result<Vec<InstanceType>, ResolveError> {
    let class = &context.class.metadata.name;
    if catalog.types.is_empty() || catalog.offered.is_empty() {
        return Err(ResolveError::EmptyCatalog { region: catalog.region.to_string() });
    }
    if context.class.status.subnets.is_empty() {
        return Err(ResolveError::NoSubnets { class: class.clone() });
    }
    let failed = |source| ResolveError::Kubelet { class: class.clone(), source: Box::new(source) };
    let named = catalog.types.iter().filter(|facts| wanted(&facts.name));
    named.map(|facts| instance_type(facts, catalog, context).map_err(failed)).collect()
}

/// One type as a node class sees it.
pub fn instance_type(facts: &InstanceTypeFacts, catalog: &Catalog, context: &Context<'_>) -> Result<InstanceType, KubeletError> {
    let resources = type_resources(facts, context)?;
    let mut overhead = resources.overhead();
    if let Some(measured) = context.measured_allocatable.get(&facts.name) {
        resources::leave_at_most(&mut overhead, &resources.capacity, measured);
    }
    let usable = compatibility::check(facts, context).is_none();
    Ok(InstanceType {
        name: facts.name.clone(),
        requirements: labels::requirements(facts, catalog, context),
        offerings: offerings::offerings(facts, catalog, context, usable),
        overhead,
        capacity: resources.capacity,
        ebs_attachments: attachments::of_pods(facts, context),
    })
}

/// Capacity and overhead of a type for a node class.
pub fn type_resources(facts: &InstanceTypeFacts, context: &Context<'_>) -> Result<TypeResources, KubeletError> {
    Ok(resources::resources(facts, context, &kubelet_of(facts, context)?))
}

/// Why a type can never be launched for a class; `None` when it can.
pub fn incompatibility(facts: &InstanceTypeFacts, context: &Context<'_>) -> Option<Incompatibility> {
    compatibility::check(facts, context)
}

/// The kubelet settings that a node of this type will run with: the launch path uses them too (aws 3.5).
pub fn kubelet_of(facts: &InstanceTypeFacts, context: &Context<'_>) -> Result<Resolved, KubeletError> {
    let interfaces = usable_interfaces(facts, &context.class.spec, context.settings.reserved_enis);
    kubelet::resolve(context.kubelet, facts, context.family, interfaces, context.settings.expressions)
}

/// Zones that offer the type and in which the class has a subnet.
fn zones_of(instance_type: &str, catalog: &Catalog, context: &Context<'_>) -> BTreeSet<String> {
    let offered = catalog.offered.get(instance_type).map(Vec::as_slice).unwrap_or_default();
    let has_subnet = |zone: &&String| context.class.status.subnets.iter().any(|subnet| subnet.zone == **zone);
    offered.iter().filter(has_subnet).cloned().collect()
}

#[cfg(test)]
mod tests;
