//! The test map of the disruption rules, area by area.

mod arrivals;
mod budgets;
mod bundles;
mod candidates;
mod capacity_types;
mod checker;
mod consolidation;
mod drift;
mod emptiness;
mod places;
mod policies;
mod properties;
mod repair;
mod scale;
mod simulation;
mod static_pools;
mod unready_class;
