//! The phases of a claim; data lives in the phase that has it.

use crate::claim::Machine;
use serde::{Deserialize, Serialize};
use whittle_units::Timestamp;

/// The phase of a claim. The transitions are in `machine`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "camelCase")]
pub enum Phase {
    /// Decided and stored; no call to EC2 yet.
    Planned,
    /// The intent is stored; the fleet call may have happened.
    Launching { client_token: String, since: Timestamp, attempts: u32 },
    /// EC2 has returned the instance.
    Launched { machine: Machine },
    /// The Node joined and carries our labels and taints.
    Registered { machine: Machine, node_name: String, since: Timestamp },
    /// The Node is initialized and ready for pods.
    Initialized { machine: Machine, node_name: String, since: Timestamp },
    /// Pods are being drained. The Node may never have joined.
    Draining { machine: Machine, node_name: Option<String>, since: Timestamp },
    /// The termination of the instance was requested from EC2, but is not confirmed yet.
    Terminating { machine: Machine, node_name: Option<String>, since: Timestamp },
    /// It never had a machine, and will not get one.
    Failed { reason: String, message: String, since: Timestamp },
    /// The machine has ended. The record is kept for a while, so that late responses find it.
    Gone { machine: Option<Machine>, since: Timestamp },
}

impl Phase {
    /// The machine, if there is one that may still run.
    pub fn machine(&self) -> Option<&Machine> {
        match self {
            Self::Launched { machine }
            | Self::Registered { machine, .. }
            | Self::Initialized { machine, .. }
            | Self::Draining { machine, .. }
            | Self::Terminating { machine, .. } => Some(machine),
            Self::Planned | Self::Launching { .. } | Self::Failed { .. } | Self::Gone { .. } => None,
        }
    }
    pub(crate) fn machine_mut(&mut self) -> Option<&mut Machine> {
        match self {
            Self::Launched { machine }
            | Self::Registered { machine, .. }
            | Self::Initialized { machine, .. }
            | Self::Draining { machine, .. }
            | Self::Terminating { machine, .. } => Some(machine),
            Self::Planned | Self::Launching { .. } | Self::Failed { .. } | Self::Gone { .. } => None,
        }
    }
    /// The Node's name, once it joined.
    pub fn node_name(&self) -> Option<&str> {
        match self {
            Self::Registered { node_name, .. } | Self::Initialized { node_name, .. } => Some(node_name),
            Self::Draining { node_name, .. } | Self::Terminating { node_name, .. } => node_name.as_deref(),
            Self::Planned | Self::Launching { .. } | Self::Launched { .. } | Self::Failed { .. } | Self::Gone { .. } => None,
        }
    }
    /// The phase's name, as logs and tables print it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Planned => "Planned",
            Self::Launching { .. } => "Launching",
            Self::Launched { .. } => "Launched",
            Self::Registered { .. } => "Registered",
            Self::Initialized { .. } => "Initialized",
            Self::Draining { .. } => "Draining",
            Self::Terminating { .. } => "Terminating",
            Self::Failed { .. } => "Failed",
            Self::Gone { .. } => "Gone",
        }
    }
}
