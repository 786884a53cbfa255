//! The Kubernetes API types that Whittle reads and writes.
//!
//! Built-in kinds are *slim*: only the fields that decisions use are read, everything else is skipped while parsing.
//! Karpenter's kinds are complete in their served version (`karpenter.sh/v1`, `karpenter.k8s.aws/v1`); older versions
//! are converted on read (`legacy`).

pub mod aws_auth;
pub mod catalog;
pub mod conditions;
pub mod crd;
pub mod duration;
pub mod field;
pub mod hashes;
pub mod k8s;
pub mod karpenter;
pub mod labels;
pub mod legacy;
pub mod manifest;
pub mod meta;
pub mod objective;
pub mod objects;
pub mod protobuf;
pub mod runtime;
pub mod scheduler_config;
mod schema;
pub mod settings;
mod shared;
pub mod unreadable;
pub mod validate;
pub mod words;
mod yaml;

pub use yaml::Mark;

pub use duration::{GoDuration, NillableDuration};
pub use meta::{Condition, ConditionStatus, LabelSelector, ObjectMeta, OwnerReference, SelectorRequirement};
pub use objects::{ClusterObjects, KarpenterSign};
pub use shared::{Pool, Shared};
pub use unreadable::Unreadable;

#[cfg(test)]
mod tests;
