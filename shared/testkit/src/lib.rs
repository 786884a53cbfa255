//! What several crates' tests build their cases from: times, claims, machines, objects, and a simulated world.
//!
//! Only a dev-dependency. The tests inside `claims` take its `fixtures` directly, because to them the types of this crate's
//! `claims` are other types.

#[cfg(feature = "sim")]
mod api_server;
mod objects;
#[cfg(feature = "sim")]
mod world;

#[cfg(feature = "sim")]
pub use api_server::{InterceptedApiServer, Interceptor, NodePolicy};
pub use objects::{instance_of, node_class_reference, pool_named, pool_owner, resolved_class, stored};
pub use whittle_claims::fixtures::{after, at, begun, default_spec, deletion, joined, key, machine, out_of_capacity, planned};
#[cfg(feature = "sim")]
pub use world::{NoFunctions, TestWorld};
