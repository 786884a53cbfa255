//! Voluntary disruption: which nodes can be removed, in what order, what replaces them, and why the others are kept.
//!
//! [`decide`] looks at one moment of a cluster and answers with commands, a verdict for every machine, events, and what
//! the conditions of NodeClaims should be. Nothing here waits, writes or reads a clock.
//!
//! The modules import each other without a cycle. To find your way, read `input`, `decision`, `candidates`, `pass` and
//! `decide`, then the method that interests you.

// What a decision is made from, and what it answers.
mod command;
mod decision;
mod events;
mod explain;
mod input;
mod verdict;

// The cluster indexed for one decision: machines, pools, offerings.
mod cluster_view;
mod offerings;
mod workload;

// What holds a node back: protected pods, PodDisruptionBudgets, budgets of the NodePool, recent moves.
mod budgets;
mod cron;
mod memory;
mod pdb;
mod protection;

// The conditions of NodeClaims: whether a node has drifted, and whether it is consolidatable.
mod conditions;
pub mod drift;

// Candidates, what their disruption costs, and what can be said of them without a simulation.
mod balanced;
mod bundles;
mod candidates;
mod cost;
mod quick_check;

// What replaces some nodes: simulations with the scheduler, and the price of what they ask for.
mod compute;
mod replacement;
mod simulate;

// The driver of a pass, and what its methods share.
mod decide;
mod pass;

// The methods, in the order in which a pass tries them.
mod consolidation;
mod drift_execution;
mod emptiness;
mod multi;
mod single;
mod static_drift;

// From a decision to its execution: checks after the wait, and the record of savings.
mod arrivals;
mod ledger;
mod validation;

// Disruption that is no part of a pass: expired and unhealthy nodes, the size of static pools.
mod expiration;
pub mod repair;
mod static_pools;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub(crate) use offerings::OfferingIndex;

pub use arrivals::{Arrival, without_arrivals};
pub use balanced::PoolScore;
pub use budgets::{BudgetError, BudgetState, limit as budget_limit};
pub use command::{Action, Command, Method, Proposal, Reason, Removal, Savings, VALIDATION_WAIT};
pub use conditions::ClaimConditions;
pub use cost::{Cost, eviction_cost, reschedule_cost};
pub use cron::{Schedule, ScheduleError};
pub use decide::{decide, decide_observed};
pub use decision::Decision;
pub use events::DisruptionEvent;
pub use expiration::{Expiry, expiry, termination_mode};
pub use input::{ClaimFacts, Gate, Input, Memory, Move, PassFingerprint, RemovedNode, Settings};
pub use ledger::{LedgerEntry, SavingsReport, savings};
pub use pdb::PdbBlock;
pub use protection::{Protection, is_evictable, protection};
pub use static_pools::{StaticChange, static_changes};
pub use validation::{Rejection, RejectionCause, Validated, validate};
pub use verdict::{Blocker, KeepReason, Verdict, VerdictReason};
