//! That Whittle is to leave a cluster.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// So long a cluster is left alone after it was asked for: by then the deployment does not serve it any more.
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What becomes of the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LeftNodes {
    /// Drained and ended, as when their NodeClaims are deleted.
    #[default]
    Drain,
    /// Left running as they are, as nodes that nobody manages.
    Keep,
}

/// The event that asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UninstallRequest {
    pub cluster: ClusterName,
    #[serde(default)]
    pub nodes: LeftNodes,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Whittle leaves, or has left, the cluster: nothing new is launched. Written by `sweep` alone; removing it lets Whittle
/// come back.
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
        self.asked_at.checked_add(KEPT).ok()
    }
}
