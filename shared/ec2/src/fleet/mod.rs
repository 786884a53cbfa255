//! CreateFleet as values: the request, the response, and what follows from it (aws 7, 10).

mod filters;
mod machine;
mod outcome;
mod request;
mod template;

pub use filters::{Candidate, Demand, FilterError, MAX_TYPES, MinValuesPolicy, is_exotic, select};
pub use machine::{MachineFacts, Purchase, machine_facts};
pub use outcome::{FleetFailure, Marks, failure, marks};
pub use request::{
    Launch, LaunchDisposition, LaunchError, LaunchInput, MAX_CONFIGS, batch_id, batched, image_for, is_reserved_tag, prepare, subnets,
    tags, tenancy,
};
pub use template::{LaunchTemplate, ReservationTarget, TemplateInterface, volume_gibibytes};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{InstanceId, Price};

/// One instant fleet. Identical claims share a request with a target of N.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRequest {
    /// Idempotency token, derived from the claims and all parameters below: a repeated request returns the same machines.
    pub client_token: String,
    pub target_capacity: u32,
    /// on-demand, spot or reserved.
    pub capacity_type: String,
    /// The kind of reservation, for reserved capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationKind>,
    /// The launch templates to start from; at least one.
    pub configs: Vec<FleetConfig>,
    /// Of instances, volumes and the fleet.
    pub tags: BTreeMap<String, String>,
    /// Prices become priorities for the `prioritized` strategies, because price overlays apply.
    pub prioritized: bool,
    /// `spec.context` of the node class.
    pub context: Option<String>,
}

/// Kinds of capacity reservations, which one fleet cannot mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReservationKind {
    Ordinary,
    CapacityBlock,
    Interruptible,
}

impl FleetRequest {
    /// `DefaultTargetCapacityType` (aws 7.4).
    pub fn target_type(&self) -> &'static str {
        match (self.reservation, self.capacity_type.as_str()) {
            (Some(ReservationKind::CapacityBlock), _) => "capacity-block",
            (Some(ReservationKind::Interruptible), _) => "reserved-capacity",
            (None, whittle_api::labels::CAPACITY_SPOT) => "spot",
            _ => "on-demand",
        }
    }
    /// `SpotOptions.AllocationStrategy`; `None` if the block is omitted.
    pub fn spot_strategy(&self) -> Option<&'static str> {
        let strategy = if self.prioritized { "capacity-optimized-prioritized" } else { "price-capacity-optimized" };
        (self.target_type() == "spot").then_some(strategy)
    }
    /// `OnDemandOptions.AllocationStrategy`; `None` if the block is omitted.
    pub fn on_demand_strategy(&self) -> Option<&'static str> {
        (self.target_type() == "on-demand").then_some(if self.prioritized { "prioritized" } else { "lowest-price" })
    }
}

/// A launch template and the pools that it may start in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetConfig {
    pub launch_template: String,
    pub overrides: Vec<FleetOverride>,
}

/// One pool of a fleet request: a type in a subnet, with its price an hour after overlays.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FleetOverride {
    pub instance_type: String,
    pub zone: String,
    pub subnet_id: String,
    pub image_id: String,
    pub price: Price,
}

/// The response of CreateFleet: machines, errors by pool, or both.
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

/// The error of one pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FleetPoolError {
    /// EC2's error code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    pub message: String,
    pub instance_type: String,
    pub zone: String,
}

#[cfg(test)]
mod tests;
