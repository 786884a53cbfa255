//! Newtypes with units: quantities, money, identifiers.
//!
//! Only values, independent of Kubernetes and AWS.

mod fnv;
mod ids;
mod partition;
mod price;
mod quantity;
mod resources;

pub use fnv::{Fnv1a, fnv1, fnv1a};
pub use ids::{ClaimName, ClusterName, InstanceId, ProviderId, ProviderIdError, Region};
pub use partition::Partition;
pub use price::Price;
pub use quantity::{ParseQuantityError, Quantity};
pub use resources::Resources;

/// Time is jiff's: `Timestamp` to the nanosecond for points in time, `SignedDuration` for spans.
pub use jiff::{SignedDuration, Timestamp};

#[cfg(test)]
mod tests;
