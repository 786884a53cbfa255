//! Everything that is tested through a public surface, in one binary.
#![allow(clippy::unwrap_used, reason = "everything here is a test, its helpers too")]

mod alarms;
mod api_requests;
mod burst;
mod cases;
mod cluster_api;
mod cluster_place;
mod cluster_rights;
mod doorbells;
mod dynamo_decisions;
mod dynamo_faults;
mod dynamo_store;
mod encodings;
mod functions_in_a_cluster;
mod golden_consolidation;
mod golden_scheduling;
mod infra;
mod kept;
mod legacy_kinds;
mod objects_without_claim;
mod plans;
mod quiet;
mod quiet_ticks;
mod real_admission;
mod real_validation;
mod scenarios;
mod tools;
mod uninstall;
mod unreadable;
mod watcher;
mod wire;
