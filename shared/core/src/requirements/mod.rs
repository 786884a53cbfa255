//! The requirement algebra: what values a label may take, and whether two sides can agree.
//!
//! One implementation serves two spellings: `Requirements` over strings, for everybody, and the solver's
//! own over interned numbers. Source of truth: the reference's requirement semantics, legacy label aliases included.

mod allowed;
mod build;
mod set;
#[cfg(test)]
mod tests;

pub use allowed::{Allowed, Operator, Value};
pub use build::{canonical_key, from_labels, from_requirements, from_selector, term_requirements};
pub use set::{Conflict, Reqs};

/// Requirements as users write them: label key to allowed values, one entry per key.
pub type Requirements = Reqs<String, String>;
