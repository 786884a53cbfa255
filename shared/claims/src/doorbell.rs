//! Messages between functions. They only say "look again"; whoever reads one looks at the state and nothing else.

use serde::{Deserialize, Serialize};
use whittle_units::{ClaimName, ClusterName, SignedDuration};

/// The queue of plans collects for a second, so that the pods of one burst are one plan.
pub const PLAN_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// The queue of `consolidate` lets ten seconds pass, which is how often a cluster with machines is looked at.
pub const CONSOLIDATE_DELAY: SignedDuration = SignedDuration::from_secs(10);
/// A bell that is due so soon after its queue's own delay is sent all the same: too early costs a look, the tick up to a minute.
const TOO_EARLY_MAX: SignedDuration = SignedDuration::from_secs(3);

/// How a doorbell that is due in some time is put on its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Each message of a standard queue has its own delay.
    Delayed(SignedDuration),
    /// A FIFO queue delays all its messages alike.
    InTurn,
    /// It would come far too early, find nothing due and ring again, over and over: the tick rings it.
    LeftToTick,
}

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
    /// The delay of the FIFO queue that it belongs to; `None` for a standard queue.
    pub const fn queue_delay(&self) -> Option<SignedDuration> {
        match self {
            Self::Schedule { .. } => Some(PLAN_DELAY),
            Self::Consolidate { .. } => Some(CONSOLIDATE_DELAY),
            _ => None,
        }
    }
    /// How it is sent when it is due in `delay`.
    #[must_use]
    pub fn sending(&self, delay: SignedDuration) -> Sending {
        match self.queue_delay() {
            None => Sending::Delayed(delay),
            Some(own) if delay <= own + TOO_EARLY_MAX => Sending::InTurn,
            Some(_) => Sending::LeftToTick,
        }
    }
}
