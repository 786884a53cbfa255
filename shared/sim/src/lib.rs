//! A deterministic simulated region and cluster on a virtual clock.
//!
//! The functions run unchanged as futures over memory adapters of every port. Each call yields before and after its
//! effect, so that a run can die at any of its await points, be repeated, or overlap with another. One seed gives one
//! run, byte for byte.

mod allowance;
mod check;
pub mod cluster;
mod dice;
mod exec;
mod function;
mod meter;
mod monitor;
mod mutants;
mod ports;
pub mod region;
mod story;
pub mod world;

pub use dice::{Dice, Stream};
pub use exec::Simulation;
pub use function::{Functions, Input, RunFailure, TaskId};
pub use meter::{Invoked, Meter, Units};
pub use mutants::Mutant;
pub use ports::SimPorts;
pub use story::{Line, LineKind, Story};
pub use whittle_claims::Function;
pub use world::{Faults, TableLoss, World, WorldOptions};

#[cfg(test)]
mod tests;
