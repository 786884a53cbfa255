//! The whittle command.

pub mod convert;
pub mod input;
