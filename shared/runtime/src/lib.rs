//! Lambda glue: a function's `main.rs` names its handler and nothing else.
//!
//! [`serve`] reads the environment, creates the clients once, and then for each event: decodes it into work, calls the
//! handler for each piece within the invocation's deadline, writes logs and metrics, and reports the SQS messages that
//! have to be redelivered.

mod serve; // the invocation loop
mod serve_url; // that of a function behind a Function URL
mod events; // what an event asks for
mod started; // whose machine a notice of EC2 is about
mod in_flight; // messages that an invocation holds
mod tries; // of an event that no queue delivers again
mod environment; // what a deployment sets
mod wiring; // the adapters of a function
mod clock; // time, and the deadline of an invocation
mod secrets; // of the relay, read again from time to time
mod telemetry; // logs and metrics

pub use clock::InvocationClock;
pub use environment::{
    ACT_ON_REBALANCE, CLUSTERS, DEFAULT_INSTANCE_PROFILE, DEFAULT_NODE_ROLE, Environment, EnvironmentError, MIN_VALUES_POLICY, MODE,
    NODE_REPAIR, PREFERENCE_POLICY, QUEUE_CONSOLIDATE, QUEUE_LAUNCH, QUEUE_NODES, QUEUE_PLAN, QUEUE_REFRESH, QUEUE_SWEEP, QUEUE_TERMINATE,
    RELAY_SECRET, SPOT_TO_SPOT, TABLE,
};
pub use events::{Decoded, PoisonMessage, Work, WorkItem, batch_response, decode};
pub use serve::serve;
pub use serve_url::{UrlAnswer, UrlRequest, serve_url};
pub use telemetry::{init_logs, lines};
pub use whittle_aws::QueueUrls;
pub use whittle_claims::Function;
pub use wiring::{Shell, ShellPorts, StartError};
