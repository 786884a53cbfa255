//! Voluntary disruption: which nodes can be removed, in what order, what replaces them, and why the others are kept.
//!
//! [`decide`] takes the state of a cluster at one moment and returns commands, a verdict for every machine, events, and
//! the desired conditions of NodeClaims. Nothing here waits, writes or reads a clock.
//!
//! Input and commands are the values of [`whittle_model::disruption`]. Modules do not depend on each other in cycles. Start with
//! `decision`, `candidates`, `pass` and `decide`, then read the method that interests you.

// The result of a decision.
mod decision;
mod events;
mod descriptions;
mod remedies;
mod verdict;

// The cluster, indexed for one decision.
mod cluster_view;
mod offering_index;
mod offerings;
mod workload;

// What blocks a disruption: protected pods, PodDisruptionBudgets, NodePool budgets, recent moves.
mod budgets;
mod cron;
mod memory;
mod pdb;
mod protection;

// The NodeClaim conditions `Drifted` and `Consolidatable`.
mod conditions;
pub mod drift;

// Candidates, their disruption cost, and what can be decided without a simulation.
mod balanced;
mod bundles;
mod candidates;
mod cost;
mod quick_check;

// Replacements: simulations with the provisioning solver, and their prices.
mod compute;
mod replacement;
mod simulate;

// The driver of a pass (`decide`), and the state that its methods share.
mod decide;
mod pass;

// The methods of a pass, tried in this order: emptiness, static drift, drift, multi-node, single-node.
mod consolidation;
mod drift_execution;
mod emptiness;
mod multi;
mod single;
mod static_drift;

// From decision to execution: validation after the wait, pods bound or protected meanwhile, places after a wait, and the savings ledger.
mod arrivals;
mod ledger;
mod places;
mod validation;

// Disruption outside of passes: expiration, node repair, and the size of static pools.
mod expiration;
pub mod repair;
mod static_pools;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use arrivals::{Arrival, arrivals_on, without_arrivals, without_nodes};
pub use balanced::PoolScore;
pub use budgets::{BudgetError, BudgetState, limit as budget_limit};
pub use conditions::ClaimConditions;
pub use cost::{Cost, eviction_cost, reschedule_cost};
pub use cron::{Schedule, ScheduleError};
pub use decide::{decide, decide_observed};
pub use decision::Decision;
pub use events::{
    COMMAND_EVENTS, DISRUPTION_BLOCKED, DISRUPTION_LAUNCHING, DISRUPTION_TERMINATING, DISRUPTION_WAITING_READINESS, DisruptionEvent,
    VERDICT_EVENTS,
};
pub use expiration::{Expiry, expiry, termination_mode};
pub use ledger::{LedgerEntry, SavingsReport, savings, within};
pub use memory::{leave_out, record_drained, record_move, undo_moves};
pub use pdb::PdbBlock;
pub use places::without_place;
pub use protection::{NODE_PROTECTIONS, Protection, is_evictable, protected_by, protection};
pub use static_pools::{StaticChange, static_changes};
pub use validation::{Rejection, RejectionCause, Validated, validate};
pub use verdict::{Blocker, KeepReason, Verdict, VerdictReason};
