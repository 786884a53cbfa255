//! Requirements on labels: which values a label may have, and whether two sides are compatible.
//!
//! One implementation serves two representations: `Requirements` over strings, and the solver's over interned numbers.
//! The semantics are Karpenter's, including its deprecated label aliases.

mod allowed;
mod build;
mod custom_labels;
mod set;
#[cfg(test)]
mod tests;

pub use allowed::{Allowed, Operator, Value};
pub use build::{canonical_key, from_labels, from_requirements, from_selector, term_requirements};
pub use custom_labels::custom_labels;
pub use set::{Conflict, Reqs};

/// Requirements as users write them: label key to allowed values, one entry per key.
pub type Requirements = Reqs<String, String>;
