//! The Kubernetes adapter: snapshots and changes of EKS clusters through their API servers.
//!
//! Requests are made by hand over `kube`'s client: answers are parsed into our slim types, so that a snapshot holds only
//! what decisions look at. All writes carry the field manager `whittle`.

mod connection;
mod errors;
mod evictions;
mod karpenter;
mod metadata;
mod mirrors;
mod nodes;
mod path;
mod read;
mod status;
#[cfg(test)]
mod tests;
mod workloads;

pub use connection::Clusters;

/// Who writes, in managed fields and events.
pub(crate) const FIELD_MANAGER: &str = "whittle";
