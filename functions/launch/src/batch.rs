//! One fleet call with its parameters and outcome: stored before the call, so that a retry is the same call.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::{NodeClassRecord, Record};
use whittle_ec2::fleet::{FleetRequest, Launch, LaunchTemplate};
use whittle_units::{ClaimName, SignedDuration, Timestamp};

/// Longer than EC2 remembers client tokens, and than any claim waits for its instance.
const RETENTION: SignedDuration = SignedDuration::from_hours(48);

/// A fleet call with all its parameters. Written by `launch` alone; only `fleet_id`, `open_since`, `looks_first`, `looked_at` and
/// `refused_since` change after it is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// The client token: stored on claims in `Launching`, and in a tag of the instances.
    pub(crate) id: String,
    /// The claims that the instances are for.
    pub(crate) members: Vec<ClaimName>,
    pub(crate) node_class: String,
    pub(crate) request: FleetRequest,
    pub(crate) templates: Vec<LaunchTemplate>,
    pub(crate) tenancy: String,
    pub(crate) partition: Option<u32>,
    /// Instance type, zone and id of the capacity reservations that the call may use.
    pub(crate) reservations: Vec<(String, String, String)>,
    pub(crate) created_at: Timestamp,
    /// Addresses that each instance uses of its subnet.
    #[serde(default)]
    pub(crate) addresses: u32,
    /// The id of the fleet, if its response did not account for all instances. Empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) fleet_id: String,
    /// When a response first left instances unaccounted for. The call itself may have been made long after it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open_since: Option<Timestamp>,
    /// Whether instances of another call with its token are looked up before it is made: one may have been lost with the table.
    /// While this is set, the call has not been made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) looks_first: bool,
    /// When EC2 showed no instance of a call that may have been lost. The call has not been made since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) looked_at: Option<Timestamp>,
    /// Since when EC2 has refused repetitions of the call. What earlier calls started is unknown; calls since this time have
    /// started nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused_since: Option<Timestamp>,
    /// What its machines are made from. `None` if the class was deleted, and in records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made_from: Option<MadeFrom>,
}

/// A node class as it was when a call was stored: the call's machines are of that one, however late a claim gets them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MadeFrom {
    pub(crate) hash: String,
    pub(crate) hash_version: String,
    pub(crate) instance_profile: String,
}

impl MadeFrom {
    pub(crate) fn of(record: &NodeClassRecord) -> Self {
        let hash_version = record.hash_version().to_owned();
        Self { hash: record.hash.clone(), hash_version, instance_profile: record.instance_profile.clone() }
    }
}

impl Record for Batch {
    const KIND: &'static str = "launch";
    fn name(&self) -> String {
        self.id.clone()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.created_at.checked_add(RETENTION).ok()
    }
}

impl Batch {
    /// Whether its instances start with the EFA interfaces that its claims request.
    pub(crate) fn has_efa(&self) -> bool {
        let interfaces = self.templates.iter().flat_map(|template| &template.interfaces);
        interfaces.filter_map(|interface| interface.interface_type.as_deref()).any(|kind| kind.starts_with("efa"))
    }
    /// Whether its instances start with prefixes of their subnet, besides an address.
    pub(crate) fn takes_prefixes(&self) -> bool {
        let interfaces = self.templates.iter().flat_map(|template| &template.interfaces);
        interfaces.filter_map(|interface| interface.ipv4_prefix_count).any(|count| 0 < count)
    }
    /// The id of the placement group that its instances start in: all templates of a call name the same.
    pub(crate) fn placement_group(&self) -> Option<&str> {
        self.templates.iter().find_map(|template| template.placement_group_id.as_deref())
    }
    /// What the call asks for, in words: types and zones of which a few are named.
    pub(crate) fn asked(&self) -> String {
        let overrides = || self.request.configs.iter().flat_map(|config| &config.overrides);
        let types = some(overrides().map(|one| one.instance_type.as_str()));
        let zones = some(overrides().map(|one| one.zone.as_str()));
        let images = some(overrides().map(|one| one.image_id.as_str()));
        let FleetRequest { target_capacity, capacity_type, .. } = &self.request;
        let class = NodeClassRecord::class_name(&self.node_class);
        format!("{target_capacity} of {types} ({capacity_type}) in {zones} with {images}, by node class {class}")
    }
    /// The launch in the form that the rules about its outcome expect.
    pub(crate) fn launch(&self) -> Launch {
        let reservations = self.reservations.iter().map(|(name, zone, id)| ((name.clone(), zone.clone()), id.clone()));
        Launch {
            templates: self.templates.clone(),
            request: self.request.clone(),
            tenancy: self.tenancy.clone(),
            partition: self.partition,
            reservations: reservations.collect::<BTreeMap<_, _>>(),
            addresses_in_flight: self.addresses,
        }
    }
}

/// A few of the names, and how many more there are.
fn some<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const NAMED: usize = 3;
    let names: BTreeSet<&str> = names.collect();
    let named = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
