//! Every decision, as pure functions.

pub mod buffers;
pub mod checker;
pub mod disruption;
pub mod overlays;
pub mod pods;
pub mod requirements;
pub mod schedule;
pub mod state;
