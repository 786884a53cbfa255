//! The domain model of EC2: instance types, offerings, fleet requests, user data, error classes.
//!
//! No SDK type and no I/O: the AWS adapter and the simulator both use these types, so that the same rules apply
//! to both.

// What EC2 has.
pub mod facts; // instance types, zones and prices of a region
pub mod network; // subnets, security groups, images, reservations, and the cluster
pub mod instance; // instances as EC2 describes them

// A node class.
pub mod node_class; // what it selects, and its conditions
pub mod kubelet; // its kubelet settings, decoded and resolved for a machine
pub mod user_data; // by which its machines join
pub mod instance_types; // what its types offer to pods

// A launch.
pub mod requirements; // of a claim, against types and offerings
pub mod fleet; // request and response
pub mod errors; // the only table of error codes

// An end.
pub mod interruption; // notices of EC2, and failed status checks

#[cfg(test)]
mod golden;
