//! Everything that is tested through a public surface, in one binary.

mod infra;
mod tools;
