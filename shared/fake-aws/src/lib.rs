//! The simulated region behind AWS's protocols: EC2 and IAM in query form and XML, SSM, EKS and Pricing in JSON.
//!
//! The region is [`whittle_sim::region::Region`], the one that scenarios play in; this crate only speaks for it. It knows what the
//! adapters call and refuses everything else: an unknown action, parameter or filter is an error, as it is in AWS. Bodies come
//! and go as values, so that the same code answers an SDK in a test and a socket.

mod api;
mod ec2;
mod eks;
mod errors;
mod iam;
mod journal;
mod limits;
mod params;
mod place;
mod pricing;
mod ssm;
mod xml;

pub use api::{Api, Request, Response};
pub use journal::Entry;
pub use limits::Limits;
pub use place::{Lone, Place};

#[cfg(test)]
mod tests;
