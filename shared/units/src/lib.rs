//! Newtypes with units: quantities, money, identifiers.
//!
//! Only values, independent of Kubernetes and AWS.

mod quantity; // Kubernetes quantities
mod resources; // lists of them
mod price; // money per hour
mod ids; // names that cannot be mixed up
mod partition; // groups of AWS's regions
mod fnv; // hashes that are the same everywhere

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
