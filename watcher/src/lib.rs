//! The watcher: a pod in the cluster that watches pods without a node, nodes, NodeClaims, NodePools and node classes, and tells the relay
//! when there is something to look at. It decides nothing and writes nothing in the cluster.
//!
//! Pure: [`changes`] says which change rings, [`bells`] when the relay is told. Around them: [`post`] signs and sends, [`settings`] reads
//! the command line, [`run`](run()) ties all to the watches.

pub mod bells;
pub mod changes;
mod health;
pub mod objects;
pub mod post;
mod run;
pub mod settings;

pub use run::{Stop, run};
