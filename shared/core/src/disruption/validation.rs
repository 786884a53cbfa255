//! Before a command that rested is executed, everything is looked at again (disruption 8.9).

use super::candidates::Candidate;
use super::command::{Command, Method, Proposal};
use super::emptiness;
use super::input::Input;
use super::notes::{CONSOLIDATION_REJECTED, Note, Notes};
use super::pass::Pass;
use super::state::World;
use std::fmt;

/// Why a command that rested is not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub cause: RejectionCause,
    /// How many nodes failed, for the metric `failed_validations_total`.
    pub failed: usize,
    /// Events about it.
    pub notes: Vec<Note>,
}

/// What changed while the command rested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionCause {
    /// It has not rested long enough.
    TooEarly,
    /// A node is no candidate any more.
    Churn,
    /// A node is nominated, or its budget is used up.
    Budget,
    /// The pods would go elsewhere, or nowhere.
    Scheduling,
}

impl fmt::Display for RejectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooEarly => "too early",
            Self::Churn => "churn",
            Self::Budget => "budget",
            Self::Scheduling => "scheduling",
        })
    }
}

/// The command to execute now, decided anew from the present state, if what was proposed still holds.
///
/// Of empty nodes those that are still empty go; any other command goes whole or not at all. A replacement is never a
/// type that was not proposed.
///
/// # Errors
/// What changed in the meantime; nothing is to be executed then.
pub fn validate(input: Input<'_>, proposal: &Proposal) -> Result<Command, Rejection> {
    let world = World::new(input);
    let mut pass = Pass::new(&world);
    if world.now() < proposal.execute_after {
        return Err(reject(proposal, RejectionCause::TooEarly));
    }
    match proposal.method {
        Method::Emptiness => still_empty(&mut pass, proposal),
        Method::StaticDrift | Method::Drift | Method::MultiNode | Method::SingleNode => Err(reject(proposal, RejectionCause::Churn)),
    }
}

fn still_empty(pass: &mut Pass<'_>, proposal: &Proposal) -> Result<Command, Rejection> {
    let named = |candidate: &Candidate<'_>| proposal.nodes.iter().any(|node| node == candidate.name());
    let mut empty: Vec<Candidate<'_>> = pass.candidates.iter().filter(|candidate| named(candidate)).cloned().collect();
    empty.retain(|candidate| emptiness::filter(pass, candidate).is_ok());
    if empty.is_empty() {
        return Err(reject(proposal, RejectionCause::Churn));
    }
    empty.sort_by(Candidate::by_savings_ratio);
    let mut left = pass.budget(proposal.method.reason());
    empty.retain(|candidate| left.take(candidate.pool_name()));
    if empty.is_empty() { Err(reject(proposal, RejectionCause::Budget)) } else { Ok(emptiness::command(&empty, pass.world.now())) }
}

fn reject(proposal: &Proposal, cause: RejectionCause) -> Rejection {
    let mut notes = Notes::default();
    if matches!(proposal.method, Method::MultiNode | Method::SingleNode) {
        let action = if proposal.replacements.is_empty() { "delete" } else { "replace" };
        let (whole, cents) = (proposal.savings_nanos / 1_000_000_000, proposal.savings_nanos / 10_000_000 % 100);
        let text = format!("{action}: [{}], reason: {cause} (savings: ${whole}.{cents:02})", proposal.nodes.join(", "));
        for node in &proposal.nodes {
            notes.about(format!("node/{node}"), CONSOLIDATION_REJECTED, format!("Consolidation rejected: {text}"));
        }
    }
    Rejection { cause, failed: proposal.nodes.len(), notes: notes.into_sorted() }
}
