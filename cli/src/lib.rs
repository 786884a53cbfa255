//! The whittle command.
