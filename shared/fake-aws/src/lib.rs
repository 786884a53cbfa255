//! The simulated region behind AWS's protocols: EC2 and IAM in query form and XML, SSM, EKS and Pricing in JSON.
//!
//! The region is [`whittle_sim::region::Region`], which scenarios use as well; this crate only implements its protocols. It supports
//! what the adapters call and rejects everything else: an unknown action, parameter or filter is an error, as in AWS. Requests and
//! responses are values, so the same code serves an SDK in a test and a socket.

mod access;
mod api;
mod control;
mod ec2;
mod eks;
mod errors;
mod iam;
mod journal;
mod limits;
mod params;
mod place;
mod pricing;
#[cfg(feature = "server")]
pub mod server;
mod ssm;
mod xml;
mod zonal_shift;

pub use access::{Access, Need, Stage};
pub use api::{Api, NextError, Request, Response};
pub use control::{CONTROL_PATH, Change, ChangeError, State, control, is_control};
pub use journal::Entry;
pub use limits::Limits;
pub use place::{Lone, Place};

#[cfg(test)]
mod tests;
