//! Voluntary disruption: which nodes may go, in what order, what replaces them, and why the others stay.
//!
//! [`decide`] looks at one moment of a cluster and answers with commands, a verdict for every machine, events, and what
//! the conditions of NodeClaims should be. Nothing here waits, writes or reads a clock.

mod budgets;
mod candidates;
mod command;
mod compute;
mod conditions;
mod cost;
mod cron;
pub mod drift;
mod emptiness;
mod input;
mod notes;
mod pass;
mod pdb;
mod protection;
mod state;
mod validation;
mod verdict;

pub use budgets::{BudgetError, BudgetState};
pub use command::{Action, Command, Method, Proposal, Reason, Removal, Savings, VALIDATION_WAIT};
pub use conditions::ClaimConditions;
pub use cost::{Cost, eviction_cost, reschedule_cost};
pub use cron::{Schedule, ScheduleError};
pub use input::{ClaimFacts, Gate, Input, Memory, Move, Seen, Settings, Shape};
pub use notes::Note;
pub use pass::{Decision, decide};
pub use pdb::PdbBlock;
pub use protection::{Protection, is_evictable, protection};
pub use validation::{Rejection, RejectionCause, validate};
pub use verdict::{Blocker, Keep, Verdict, Why};
