//! The simulated region behind AWS's protocols: EC2 and IAM in query form and XML, SSM, EKS and Pricing in JSON.
//!
//! The region is [`whittle_sim::region::Region`], which scenarios use as well; this crate only implements its protocols. It supports
//! what the adapters call and rejects everything else: an unknown action, parameter or filter is an error, as in AWS. Requests and
//! responses are values, so the same code serves an SDK in a test and a socket.

// A request and its response.
mod api; // to any service
mod params; // in query form
mod xml; // responses
mod errors; // AWS's codes and texts
mod limits; // of requests
mod access; // who may call what

// The services.
mod ec2;
mod iam; // instance profiles
mod ssm; // public parameters of images
mod eks;
mod pricing;
mod zonal_shift;

// Around them.
mod place; // the region, its cluster and its clock
mod journal; // of calls
mod control; // what the owner sees and changes
#[cfg(feature = "server")]
pub mod server; // on loopback

pub use access::{Access, Need, Stage};
pub use api::{Api, NextError, Request, Response};
pub use control::{CONTROL_PATH, Change, ChangeError, State, control, is_control};
pub use journal::Entry;
pub use limits::Limits;
pub use place::{Lone, Place};

#[cfg(test)]
mod tests;
