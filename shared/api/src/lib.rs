//! The Kubernetes API types that Whittle reads and writes.
//!
//! Built-in kinds are *slim*: only the fields that decisions use are read, everything else is skipped while parsing.
//! Karpenter's kinds are complete in their served version (`karpenter.sh/v1`, `karpenter.k8s.aws/v1`); older versions
//! are converted on read (`legacy`).

// Kinds.
pub mod k8s; // those of Kubernetes, slim
pub mod karpenter; // those of Karpenter, complete
pub mod legacy; // their versions before v1, converted
pub mod meta; // metadata of all of them
mod shared; // values that equal objects share
pub mod objects; // the objects of a cluster, together
pub mod unreadable; // objects that do not fit the types

// Names and values in them.
pub mod labels; // also annotations, taints, finalizers and tags
pub mod conditions; // types and reasons
pub mod duration; // Go's notation
pub mod hashes; // Karpenter's, for static drift
pub mod catalog; // instance types and offerings
pub mod objective; // what plans optimize

// Reading them.
pub mod manifest; // documents as objects
mod yaml;
pub mod protobuf; // Pods and Nodes on the wire
pub mod words; // what parsers say, for people

// Judging them.
pub mod field; // field paths and errors
mod schema; // of our kinds, with the rules of CEL
pub mod crd; // CustomResourceDefinitions, generated from the schemas
pub mod validate; // what an API server refuses
pub mod runtime; // what only controllers find

// Configuration of others.
pub mod aws_auth; // the ConfigMap `aws-auth`
pub mod scheduler_config; // default spread constraints of kube-scheduler
pub mod settings; // of older Karpenter installations

pub use yaml::Mark;

pub use duration::{GoDuration, NillableDuration};
pub use meta::{Condition, ConditionStatus, LabelSelector, ObjectMeta, OwnerReference, SelectorRequirement};
pub use objects::{ClusterObjects, KarpenterSign};
pub use shared::{Pool, Shared};
pub use unreadable::Unreadable;

#[cfg(test)]
mod tests;
