//! The rules of scheduling as tables, on the catalogue of Karpenter's own tests, and properties of whole solves.

mod absurd;
mod better;
mod comparing;
mod daemons;
mod daemons_on_nodes;
mod defaults;
mod dividing;
mod existing;
mod following;
mod growing;
mod host_ports;
mod many;
mod neighbours;
mod objectives;
mod pools;
pub(super) mod properties;
mod relaxing;
mod remembering;
mod resources;
mod selection;
mod settled;
mod spreading;
mod ties;
mod volumes;
mod world;
