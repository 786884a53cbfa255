//! The test map of the disruption rules, area by area.

mod blocking;
mod empty;
mod properties;
mod repairing;
mod statics;
mod underused;
