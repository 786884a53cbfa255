//! Everything that is tested through a public surface, in one binary.

mod dynamo_store;
mod infra;
mod tools;
