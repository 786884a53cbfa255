//! The watcher: a pod in the cluster that watches pods without a node, nodes, NodeClaims, NodePools and node classes, and tells the relay
//! when there is something to look at. It decides nothing and writes nothing in the cluster.
//!
//! Pure: [`changes`] says which change rings, [`bells`] when the relay is told. Around them: [`post`] signs and sends, [`settings`] reads
//! the command line, [`run`](run()) ties all to the watches.

pub mod objects; // what is watched, slim
pub mod changes; // which change rings
pub mod bells; // when the relay is told
pub mod post; // how
mod run; // the loop
pub mod settings; // the command line
mod health; // the kubelet's probes

pub use run::{Stop, client, run};
