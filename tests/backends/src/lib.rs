//! The tools that `cargo xtask env` sets up, started on loopback.

pub mod control_plane;
pub mod groups;
pub mod ministack;
pub mod moto;
pub mod tools;
