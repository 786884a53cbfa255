//! Everything that is tested through a public surface, in one binary.

mod cluster_api;
mod dynamo_store;
mod golden_consolidation;
mod golden_scheduling;
mod infra;
mod real_admission;
mod scenarios;
mod tools;
