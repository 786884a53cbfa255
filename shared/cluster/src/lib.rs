//! The Kubernetes adapter: reads and writes objects of EKS clusters through their API servers.
//!
//! Requests use `kube`'s client without its typed API: responses are parsed into our own slim types, so that a snapshot holds
//! only the fields that decisions read. Lists of Pods and Nodes, the longest, are asked for in protobuf. All writes carry the field manager
//! `whittle`.

// Connections and requests.
mod connection; // endpoint, token, time limits
mod path; // of objects
mod response; // bodies, and what failed requests answer
mod errors; // the only module that reads status codes

// Reading a cluster.
mod read; // what each scope has
mod pages; // whole lists, page by page
mod kept; // lists that are kept between looks
mod catch_up; // brings them up to date by a watch
mod watch; // what a watch tells
mod keeper; // the bound on what is kept
mod quiet; // what is read of a cluster in which nothing happens
mod workloads; // selectors of all, pod templates of single ones
mod karpenter; // whether Karpenter runs

// Writing to it.
mod metadata; // changes that preserve those of others
mod nodes;
mod mirrors; // NodeClaims
mod evictions; // and deletions of pods
mod status; // Events, and the status of users' objects
mod left_over; // what others left in a status

#[cfg(test)]
mod tests;

pub use catch_up::ListsRead;
pub use connection::Clusters;

/// The field manager of our writes, and the source of our events.
pub(crate) const FIELD_MANAGER: &str = "whittle";

/// One of our kinds, or a part of it, as JSON.
pub(crate) fn json_of(part: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(part).expect("our kinds are plain data, which JSON can always express")
}
