//! Voluntary disruption: which nodes may go, in what order, what replaces them, and why the others stay.
//!
//! [`decide`] looks at one moment of a cluster and answers with commands, a verdict for every machine, events, and what
//! the conditions of NodeClaims should be. Nothing here waits, writes or reads a clock.

mod arrivals;
mod balanced;
mod budgets;
mod bundles;
mod candidates;
mod command;
mod compute;
mod conditions;
mod consolidation;
mod cost;
mod cron;
pub mod drift;
mod drift_execution;
mod emptiness;
mod expiration;
mod input;
mod ledger;
mod memory;
mod multi;
mod notes;
mod offers;
mod options;
mod outlook;
mod pass;
mod pdb;
mod protection;
pub mod repair;
mod simulate;
mod single;
mod state;
mod static_drift;
mod static_pools;
mod validation;
mod verdict;
mod words;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub(crate) use offers::Asked;

pub use arrivals::{Arrival, without_arrivals};
pub use balanced::Weighed;
pub use budgets::{BudgetError, BudgetState, limit as budget_limit};
pub use command::{Action, Command, Method, Proposal, Reason, Removal, Savings, VALIDATION_WAIT};
pub use conditions::ClaimConditions;
pub use cost::{Cost, eviction_cost, reschedule_cost};
pub use cron::{Schedule, ScheduleError};
pub use expiration::{Expiry, expiry, termination_mode};
pub use input::{ClaimFacts, Gate, Input, Memory, Move, Seen, Settings, Shape};
pub use ledger::{LedgerEntry, SavingsReport, savings};
pub use notes::Note;
pub use pass::{Decision, decide, decide_watched};
pub use pdb::PdbBlock;
pub use protection::{Protection, is_evictable, protection};
pub use static_pools::{StaticChange, static_changes};
pub use validation::{Rejection, RejectionCause, Validated, validate};
pub use verdict::{Blocker, Keep, Verdict, Why};
