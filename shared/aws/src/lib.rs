//! The AWS adapter: EC2, SSM, pricing, IAM, EKS and SQS behind the ports.
//!
//! One struct per set of permissions, each with only the clients that its role may call. Calls are bounded by the
//! invocation's deadline, and errors are classified by `whittle_ec2::errors`. No decision is made here.

// What is asked of AWS, an adapter for each set of permissions.
mod clusters; // what EKS says about one
mod access; // the endpoint of a cluster, and a bearer token for it
mod discovery; // what node classes select
mod catalog; // instance types, zones and prices
mod machines; // launches, descriptions, tags and terminations
mod batches; // calls about single instances, joined
mod made_templates; // launch templates that are not made again
mod dry_runs; // whether a launch would be permitted
mod queues; // doorbells
mod secret; // of the relay

// Every call.
mod budget; // its timeouts
mod errors; // from the SDK's to the port's

// From and to the SDK's types.
mod describe; // resources
mod facts; // instance types
mod template; // launch templates and fleets

pub use access::EksAccess;
pub use batches::{BegunBatch, InstanceCalls};
pub use discovery::{Ec2Discovery, Isolation};
pub use machines::Machines;
pub use made_templates::MadeTemplates;
pub use queues::{Accepted, QueueUrls, SqsQueues};
pub use secret::{SecretVersion, read_secret};

#[cfg(test)]
mod tests;
