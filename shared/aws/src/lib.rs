//! The AWS adapter: EC2, SSM, pricing, IAM, EKS and SQS behind the ports.
//!
//! One struct per right, each with only the clients that its role may call. Calls are bounded by the invocation's
//! deadline; what errors mean is decided by `whittle_ec2::errors`; nothing here chooses, sorts or renders.

mod access;
mod budget;
mod catalog;
mod describe;
mod discovery;
mod errors;
mod facts;
mod looks;
mod machines;
mod queues;
mod secret;
mod template;

pub use access::EksAccess;
pub use discovery::{Explorer, Isolation};
pub use looks::Looks;
pub use machines::Machines;
pub use queues::{QueueUrls, SqsQueues};
pub use secret::{SecretVersion, read_secret};

#[cfg(test)]
mod tests;
