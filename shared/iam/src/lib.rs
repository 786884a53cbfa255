//! IAM policies: what they decide about a request, and those of a rendered template.
//!
//! One evaluator for all who ask: the checks of `template.yaml`, and the simulated AWS that refuses calls by its roles.

mod policy;
mod resolve;

pub use policy::{Condition, Decision, Names, Operator, Request, Statement, arn, decide, glob};
pub use resolve::{Deployment, Resolver, statements_of_roles};
