//! What one fleet call was, is or will be: stored before the call, so that a repeat is the same call.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_claims::Record;
use whittle_ec2::fleet::{FleetRequest, Launch, LaunchTemplate};
use whittle_units::{ClaimName, SignedDuration, Timestamp};

/// Longer than EC2 remembers tokens, and than any claim waits for its machine.
const KEPT: SignedDuration = SignedDuration::from_hours(48);

/// A fleet call with everything that it says. Written by `launch` alone; only `fleet_id`, `open_since` and
/// `looked_at` are written later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// The name that claims in `Launching` carry, and the machines in a tag.
    pub(crate) id: String,
    /// The claims that the machines are for.
    pub(crate) members: Vec<ClaimName>,
    pub(crate) node_class: String,
    pub(crate) request: FleetRequest,
    pub(crate) templates: Vec<LaunchTemplate>,
    pub(crate) tenancy: String,
    pub(crate) partition: Option<u32>,
    /// Type, zone and id of the reservations that it may use.
    pub(crate) reservations: Vec<(String, String, String)>,
    pub(crate) created_at: Timestamp,
    /// What each machine takes of its subnet.
    #[serde(default)]
    pub(crate) addresses: u32,
    /// The fleet that EC2 made of it, where its answer left machines open. Empty before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) fleet_id: String,
    /// When an answer left machines open for the first time. The call itself may have been made long after it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open_since: Option<Timestamp>,
    /// When EC2 showed no machine of a call that may have been lost. The call has not been made since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) looked_at: Option<Timestamp>,
}

impl Record for Batch {
    const KIND: &'static str = "launch";
    fn name(&self) -> String {
        self.id.clone()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.created_at.checked_add(KEPT).ok()
    }
}

impl Batch {
    /// Whether its machines start with the EFA interfaces that its claims ask for.
    pub(crate) fn has_efa(&self) -> bool {
        let interfaces = self.templates.iter().flat_map(|template| &template.interfaces);
        interfaces.filter_map(|interface| interface.interface_type.as_deref()).any(|kind| kind.starts_with("efa"))
    }
    /// The launch, as the rules about its outcome take it.
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
