//! The test map of the disruption rules, area by area.

mod blocking;
mod empty;
mod properties;
mod repairing;
mod scale;
mod statics;
mod underused;
