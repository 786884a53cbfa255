//! Whether some nodes can go, and what has to come for them (disruption 8.6).

/// A spot node is only replaced by spot when so many cheaper types are possible: the machine that is launched is then
/// among the cheapest, and not up for consolidation again at once.
pub(super) const SPOT_TYPES_MIN: usize = 15;
