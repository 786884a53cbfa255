//! The fields of a claim that follow from its machine (aws 7.7).

use crate::instance_types::Context;
use std::collections::BTreeMap;
use whittle_api::catalog::InstanceType;
use whittle_api::labels;
use whittle_units::{InstanceId, ProviderId, Resources};

/// The purchase options of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purchase {
    /// on-demand, spot or reserved.
    pub capacity_type: String,
    /// Id of the reservation, for reserved capacity.
    pub reservation: Option<String>,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// `None` if EC2 chose it and has not reported it yet.
    pub partition: Option<u32>,
    /// Whether the claim or the class requests EFA interfaces.
    pub efa: bool,
}

/// What is written to the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    pub provider_id: ProviderId,
    pub labels: BTreeMap<String, String>,
    pub capacity: Resources,
    pub allocatable: Resources,
}

/// Labels and resources of a machine of a type in a zone.
pub fn machine_facts(
    instance_type: &InstanceType,
    id: &InstanceId,
    zone: &str,
    purchase: &Purchase,
    context: &Context<'_>,
) -> MachineFacts {
    let efa = purchase.efa || context.class.spec.network_interfaces.as_ref().is_some_and(|interfaces| !interfaces.is_empty());
    let cleaned = |mut resources: Resources| {
        resources.0.retain(|name, amount| !amount.is_zero() && (efa || name != "vpc.amazonaws.com/efa"));
        resources
    };
    MachineFacts {
        provider_id: ProviderId::of_instance(zone, id),
        labels: machine_labels(instance_type, zone, purchase, context),
        capacity: cleaned(instance_type.capacity.clone()),
        allocatable: cleaned(instance_type.allocatable()),
    }
}

fn machine_labels(instance_type: &InstanceType, zone: &str, purchase: &Purchase, context: &Context<'_>) -> BTreeMap<String, String> {
    const FROM_PURCHASE: &[&str] = &[labels::RESERVATION_ID, labels::RESERVATION_TYPE, labels::RESERVATION_INTERRUPTIBLE, labels::ZONE_ID];
    let single = instance_type.requirements.iter().filter_map(|requirement| match requirement.values.as_slice() {
        [value] if !FROM_PURCHASE.contains(&requirement.key.as_str()) => Some((requirement.key.clone(), value.clone())),
        _ => None,
    });
    let mut all: BTreeMap<String, String> = single.collect();
    let mut set = |key: &str, value: &str| all.insert(key.to_owned(), value.to_owned());
    set(labels::ZONE, zone);
    set(labels::CAPACITY_TYPE, &purchase.capacity_type);
    set(labels::INSTANCE_TENANCY, &purchase.tenancy);
    if let Some(id) = context.zone_id(zone) {
        set(labels::ZONE_ID, id);
    }
    let reservations = &context.class.status.capacity_reservations;
    if let Some(reservation) = reservations.iter().find(|reservation| purchase.reservation.as_ref() == Some(&reservation.id)) {
        set(labels::RESERVATION_ID, &reservation.id);
        set(labels::RESERVATION_TYPE, &reservation.reservation_type);
        set(labels::RESERVATION_INTERRUPTIBLE, if reservation.interruptible { "true" } else { "false" });
    }
    if let Some(group) = context.placement_group {
        set(labels::PLACEMENT_GROUP_ID, &group.id);
        if group.partitions() > 0 {
            // The empty label delays registration until EC2 reports the partition (aws 7.8).
            set(labels::PLACEMENT_GROUP_PARTITION, &purchase.partition.map(|number| number.to_string()).unwrap_or_default());
        }
    }
    all
}
