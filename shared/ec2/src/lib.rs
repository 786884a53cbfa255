//! The domain model of EC2: instance types, offerings, fleet requests, user data, error classes.
//!
//! No SDK type and no I/O: the AWS adapter and the simulator both use these types, so that the same rules apply
//! to both.

pub mod errors;
pub mod facts;
pub mod fleet;
pub mod instance;
pub mod instance_types;
pub mod interruption;
pub mod kubelet;
pub mod network;
pub mod node_class;
pub mod requirements;
pub mod user_data;

#[cfg(test)]
mod golden;
