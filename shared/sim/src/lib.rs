//! A deterministic simulated region and cluster on a virtual clock.
//!
//! The functions run unchanged as futures over memory adapters of every port. Each call yields before and after its
//! effect, so that a run can die at any of its await points, be repeated, or overlap with another. One seed gives one
//! run, byte for byte.

// The world.
pub mod world; // everything except the functions, and the order of events
pub mod region; // EC2 and its neighbours
pub mod cluster; // objects, controllers, scheduler, kubelets
mod dice; // chance, from one seed

// The functions in it.
mod exec; // runs as futures
mod function; // how they are called
mod ports; // what they reach the world by
mod mutants; // variants that lack a safeguard

// What is observed.
mod check; // what must hold once all is quiet
mod monitor; // what must hold at all times
mod allowance; // disruption budgets at the moment of a disruption
mod meter; // what would be billed
mod story; // the timeline

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
