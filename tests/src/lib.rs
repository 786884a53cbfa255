//! Support for end-to-end tests: the tools that `cargo xtask env` sets up, started on loopback.
//!
//! The tests themselves are in `it/`.

pub mod account;
pub mod clock;
pub mod dynamo;
pub mod etcd;
pub mod fake_aws;
pub mod kubernetes;
pub mod wire;

pub use whittle_backends::{control_plane, groups, ministack, moto, tools};
