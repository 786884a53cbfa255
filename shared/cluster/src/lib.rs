//! The Kubernetes adapter: reads and writes objects of EKS clusters through their API servers.
//!
//! Requests use `kube`'s client without its typed API: responses are parsed into our own slim types, so that a snapshot holds
//! only the fields that decisions read. Lists of Pods and Nodes, the longest, are asked for in protobuf. All writes carry the field manager `whittle`.

mod catch_up;
mod connection;
mod errors;
mod evictions;
mod karpenter;
mod keeper;
mod kept;
mod left_over;
mod metadata;
mod mirrors;
mod nodes;
mod path;
mod quiet;
mod read;
mod response;
mod status;
#[cfg(test)]
mod tests;
mod watch;
mod workloads;

pub use connection::Clusters;

/// The field manager of our writes, and the source of our events.
pub(crate) const FIELD_MANAGER: &str = "whittle";
