//! CreateFleet as a value: what is asked and what comes back (aws 7.4 to 7.6).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{InstanceId, Price};

/// One instant fleet. Identical claims share a request with a target of N.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRequest {
    /// Idempotency token, derived from the claims and all parameters below: a repeat answers with the same machines.
    pub client_token: String,
    pub target_capacity: u32,
    /// on-demand, spot or reserved.
    pub capacity_type: String,
    /// The launch templates to start from; at least one.
    pub configs: Vec<FleetConfig>,
    /// Of instances, volumes and the fleet.
    pub tags: BTreeMap<String, String>,
    /// Offerings' prices are priorities (price overlays in force): `prioritized` strategies.
    pub prioritized: bool,
    /// `spec.context` of the node class.
    pub context: Option<String>,
}

/// A launch template and the pools that it may start in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetConfig {
    pub launch_template: String,
    pub overrides: Vec<FleetOverride>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FleetOverride {
    pub instance_type: String,
    pub zone: String,
    pub subnet_id: String,
    pub image_id: String,
    pub price: Price,
}

/// What CreateFleet answered: machines, errors by pool, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetAnswer {
    pub fleet_id: String,
    pub instances: Vec<FleetInstance>,
    pub errors: Vec<FleetPoolError>,
}

/// One started machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetInstance {
    pub id: InstanceId,
    pub instance_type: String,
    pub zone: String,
    pub subnet_id: String,
    pub image_id: String,
    pub capacity_type: String,
}

/// Why one pool did not deliver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FleetPoolError {
    /// EC2's error code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    pub message: String,
    pub instance_type: String,
    pub zone: String,
}

/// A launch template, complete: the same options have the same name, so that creating it again is harmless (aws 10).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchTemplate {
    pub name: String,
    pub image_id: String,
    /// Not encoded; the adapter encodes it in base64.
    pub user_data: String,
    pub instance_profile: String,
    pub security_group_ids: Vec<String>,
    pub block_device_mappings: Vec<whittle_api::karpenter::BlockDeviceMapping>,
    pub metadata_options: whittle_api::karpenter::MetadataOptions,
    pub detailed_monitoring: bool,
    pub associate_public_ip: Option<bool>,
    pub tags: BTreeMap<String, String>,
}
