//! The uninstallation of Whittle from a cluster.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// How long the record is kept after the request: by then the deployment does not serve the cluster any more.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What happens to the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LeftNodes {
    /// Drained and terminated, as when their NodeClaims are deleted.
    #[default]
    Drain,
    /// Left running as unmanaged nodes, without NodeClaims.
    Keep,
    /// Left running with their NodeClaims and finalizers, for Karpenter to continue with.
    HandOver,
}

impl LeftNodes {
    /// Whether the machines go on running.
    pub const fn keep_running(self) -> bool {
        matches!(self, Self::Keep | Self::HandOver)
    }
}

/// The event that requests it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UninstallRequest {
    pub cluster: ClusterName,
    #[serde(default)]
    pub nodes: LeftNodes,
    /// Only report what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Whittle is being, or has been, uninstalled from the cluster: nothing new is launched, and a machine that goes on running is not
/// disrupted any more. Written by `sweep` alone; removing it reactivates Whittle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uninstall {
    pub asked_at: Timestamp,
    pub nodes: LeftNodes,
}

impl Uninstall {
    /// There is one for each cluster.
    pub const NAME: &'static str = "uninstall";
}

impl Record for Uninstall {
    const KIND: &'static str = "uninstall";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.asked_at.checked_add(RETENTION).ok()
    }
}
