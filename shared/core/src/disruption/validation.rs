//! Before a command that rested is executed, everything is looked at again (disruption 8.9).

use super::candidates::Candidate;
use super::command::{Command, Method, Proposal};
use super::input::Input;
use super::notes::{CONSOLIDATION_REJECTED, Note, Notes};
use super::options::Replacement;
use super::pass::{Pass, Side};
use super::simulate::{Simulator, Targets};
use super::state::World;
use super::{compute, consolidation, drift_execution, emptiness, static_drift};
use crate::schedule::Packing;
use std::fmt;
use whittle_api::labels;
use whittle_units::Price;

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
    let mut pass = Pass::new(&world, Side::Live);
    if world.now() < proposal.execute_after {
        return Err(reject(proposal, RejectionCause::TooEarly));
    }
    match proposal.method {
        Method::Emptiness => still_empty(&mut pass, proposal),
        Method::StaticDrift | Method::Drift => still_drifted(&mut pass, proposal),
        Method::MultiNode | Method::SingleNode => still_underused(&mut pass, proposal),
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
    if empty.is_empty() {
        return Err(reject(proposal, RejectionCause::Budget));
    }
    let empty = emptiness::spare_wanted(pass, empty);
    if empty.is_empty() { Err(reject(proposal, RejectionCause::Scheduling)) } else { Ok(emptiness::command(&empty, pass.world.now())) }
}

/// Drift does not rest; a stored command of it is decided anew.
fn still_drifted(pass: &mut Pass<'_>, proposal: &Proposal) -> Result<Command, Rejection> {
    let commands = if proposal.method == Method::Drift { drift_execution::commands(pass) } else { static_drift::commands(pass) };
    let same = |command: &Command| command.proposal(proposal.decided_at).nodes == proposal.nodes;
    commands.into_iter().find(same).ok_or_else(|| reject(proposal, RejectionCause::Churn))
}

fn still_underused(pass: &mut Pass<'_>, proposal: &Proposal) -> Result<Command, Rejection> {
    let fail = |cause| Err(reject(proposal, cause));
    let named = |node: &Candidate<'_>| proposal.nodes.iter().any(|name| name == node.name());
    let may_go = |node: &Candidate<'_>| node.may_be_taken_by(proposal.method) && consolidation::filter(pass, node).is_ok();
    let nodes: Vec<Candidate<'_>> = pass.candidates.iter().filter(|node| named(node) && may_go(node)).cloned().collect();
    if nodes.len() != proposal.nodes.len() {
        return fail(RejectionCause::Churn);
    }
    let mut left = pass.budget(proposal.method.reason());
    if !nodes.iter().all(|node| left.take(node.pool_name())) {
        return fail(RejectionCause::Budget);
    }
    let nodes: Vec<&Candidate<'_>> = nodes.iter().collect();
    let mut simulator = Simulator::new(pass.world, 1);
    let Ok(mut outcome) = simulator.without(&nodes, Targets::Quiet, Packing::Reference) else {
        return fail(RejectionCause::Scheduling);
    };
    let replacement = match (outcome.claims.len(), proposal.replacements.as_slice()) {
        (0, []) => None,
        (1, [proposed]) => {
            let mut replacement = Replacement::new(pass.world, outcome.claims.swap_remove(0));
            replacement.retain(|instance_type| proposed.contains(&instance_type.name));
            if replacement.len() < proposed.len() {
                return fail(RejectionCause::Scheduling);
            }
            let ceiling: Price = nodes.iter().map(|node| node.price).sum();
            if replacement.below(ceiling).is_err() || replacement.len() < proposed.len() {
                // Prices moved meanwhile: the bill must not grow.
                return fail(RejectionCause::Scheduling);
            }
            if replacement.allows(labels::CAPACITY_SPOT) && replacement.allows(labels::CAPACITY_ON_DEMAND) {
                replacement.narrow_to(labels::CAPACITY_SPOT);
            }
            Some(replacement)
        }
        _ => return fail(RejectionCause::Scheduling),
    };
    Ok(compute::command(pass.world, proposal.method, &nodes, replacement, (outcome.destinations, outcome.placements)))
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
