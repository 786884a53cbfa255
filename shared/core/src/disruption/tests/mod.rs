//! The test map of the disruption rules, area by area.

mod arriving;
mod blocking;
mod bundling;
mod counting;
mod drifting;
mod empty;
mod map;
mod places;
mod policies;
mod properties;
mod repairing;
mod scale;
mod second;
mod statics;
mod underused;
