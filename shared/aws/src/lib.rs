//! The AWS adapter: EC2, SSM, pricing, IAM, EKS and SQS behind the ports.
//!
//! One struct per set of permissions, each with only the clients that its role may call. Calls are bounded by the
//! invocation's deadline, and errors are classified by `whittle_ec2::errors`. No decision is made here.

mod access;
mod batches;
mod budget;
mod catalog;
mod describe;
mod discovery;
mod dry_runs;
mod errors;
mod facts;
mod machines;
mod queues;
mod secret;
mod template;

pub use access::EksAccess;
pub use batches::{BegunBatch, InstanceCalls};
pub use discovery::{Ec2Discovery, Isolation};
pub use machines::Machines;
pub use queues::{Accepted, QueueUrls, SqsQueues};
pub use secret::{SecretVersion, read_secret};

#[cfg(test)]
mod tests;
