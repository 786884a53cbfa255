//! Messages between functions. They only say "look again"; whoever reads one looks at the state and nothing else.

use serde::{Deserialize, Serialize};
use whittle_units::{ClaimName, ClusterName};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "bell", rename_all = "camelCase")]
pub enum Doorbell {
    /// Pods may be waiting.
    Schedule { cluster: ClusterName },
    /// Nodes may be disrupted.
    Consolidate { cluster: ClusterName },
    /// These claims may want a machine.
    Launch { cluster: ClusterName, claims: Vec<ClaimName> },
    /// Nodes may have joined or changed.
    Register { cluster: ClusterName },
    /// This claim may have to end, or its ending may go on.
    Terminate { cluster: ClusterName, claim: ClaimName },
    /// Node classes, types or prices may have changed.
    Refresh { cluster: ClusterName },
    /// Compare everything with everything.
    Sweep { cluster: ClusterName },
}

impl Doorbell {
    /// The cluster that it rings for: the FIFO group.
    pub const fn cluster(&self) -> &ClusterName {
        match self {
            Self::Schedule { cluster }
            | Self::Consolidate { cluster }
            | Self::Launch { cluster, .. }
            | Self::Register { cluster }
            | Self::Terminate { cluster, .. }
            | Self::Refresh { cluster }
            | Self::Sweep { cluster } => cluster,
        }
    }
}
