//! The whittle command.

pub mod convert;
pub mod input;
pub mod plan;
