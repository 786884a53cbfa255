//! Validates a command again before it is executed (disruption 8.9).

use super::candidates::Candidate;
use super::cluster_view::{ClusterView, Machine};
use super::events::{CONSOLIDATION_REJECTED, DisruptionEvent, EventCollector};
use super::pass::{Pass, PoolMode};
use super::replacement::Replacement;
use super::simulate::{Simulator, Targets};
use super::{compute, consolidation, drift_execution, emptiness, static_drift};
use std::fmt;
use whittle_model::disruption::{Command, Input, Method, Proposal};
use whittle_model::scheduling::Packing;
use whittle_units::Price;

/// A command that passed validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// Recomputed from the present state.
    pub command: Command,
    /// Empty nodes that are kept because they are nominated or over budget by now, for the metric
    /// `failed_validations_total`.
    pub dropped: usize,
}

/// Why a command is not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub cause: RejectionCause,
    /// How many nodes failed, for the metric `failed_validations_total`; a changed simulation counts for none.
    pub failed: usize,
    /// Events about the rejection.
    pub events: Vec<DisruptionEvent>,
}

/// What changed since the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionCause {
    /// The wait is not over yet.
    TooEarly,
    /// A node is no candidate any more.
    Churn,
    /// A node is nominated, or its budget is exhausted.
    Budget,
    /// The simulation differs, or a pod would not be scheduled.
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

impl RejectionCause {
    /// The same as a sentence.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::TooEarly => "the wait before it is not over",
            Self::Churn => "a node is no candidate any more, since its pods, its NodePool or itself changed",
            Self::Budget => "pods are expected on a node by now, or its disruption budget is used up",
            Self::Scheduling => "the pods would not go where they would have gone when it was decided",
        }
    }
}

/// Recomputes the proposed command from the present state, if it is still valid.
///
/// Of several empty nodes those that are still empty remain; any other command is executed as a whole or not at all. A
/// replacement never has a type that was not proposed.
///
/// # Errors
///
/// What changed since the decision; nothing is to be executed then.
pub fn validate(input: Input<'_>, proposal: &Proposal) -> Result<Validated, Rejection> {
    let view = ClusterView::new(input);
    let mut pass = Pass::new(&view, PoolMode::Active);
    if view.now() < proposal.execute_after {
        return Err(reject(&view, proposal, RejectionCause::TooEarly));
    }
    let complete = |command| Validated { command, dropped: 0 };
    match proposal.method {
        Method::Emptiness => validate_empty(&mut pass, proposal),
        Method::StaticDrift | Method::Drift => validate_drifted(&mut pass, proposal).map(complete),
        Method::MultiNode | Method::SingleNode => validate_underutilized(&mut pass, proposal).map(complete),
    }
}

fn validate_empty(pass: &mut Pass<'_>, proposal: &Proposal) -> Result<Validated, Rejection> {
    let named = |name: &str| proposal.nodes.iter().any(|node| node == name);
    let mut empty: Vec<Candidate<'_>> = pass.candidates.iter().filter(|candidate| named(candidate.name())).cloned().collect();
    empty.retain(|candidate| emptiness::filter(pass, candidate).is_ok());
    if empty.is_empty() {
        return Err(reject(pass.view, proposal, RejectionCause::Churn));
    }
    empty.sort_by(Candidate::by_savings_ratio);
    let mut remaining = pass.budget(proposal.method.reason());
    let empty_count = empty.len();
    empty.retain(|candidate| remaining.take(candidate.pool_name()));
    let nominated = |machine: &&Machine<'_>| named(machine.name()) && machine.nominated_until(pass.view.now()).is_some();
    let dropped = empty_count - empty.len() + pass.view.machines.iter().filter(nominated).count();
    if empty.is_empty() {
        return Err(Rejection { failed: dropped, ..reject(pass.view, proposal, RejectionCause::Budget) });
    }
    let empty = emptiness::spare_nodes_for_pending_pods(pass, empty);
    if empty.is_empty() {
        return Err(reject(pass.view, proposal, RejectionCause::Scheduling));
    }
    Ok(Validated { command: emptiness::command(&empty, pass.view.now()), dropped })
}

/// Drift commands do not wait; a stored one is recomputed.
fn validate_drifted(pass: &mut Pass<'_>, proposal: &Proposal) -> Result<Command, Rejection> {
    let commands = if proposal.method == Method::Drift { drift_execution::commands(pass) } else { static_drift::commands(pass) };
    let same = |command: &Command| command.proposal(proposal.decided_at).nodes == proposal.nodes;
    commands.into_iter().find(same).ok_or_else(|| reject(pass.view, proposal, RejectionCause::Churn))
}

fn validate_underutilized(pass: &mut Pass<'_>, proposal: &Proposal) -> Result<Command, Rejection> {
    let view = pass.view;
    let fail = |cause| Err(reject(view, proposal, cause));
    let named = |node: &Candidate<'_>| proposal.nodes.iter().any(|name| name == node.name());
    let may_be_removed = |node: &Candidate<'_>| node.may_be_disrupted_by(proposal.method) && consolidation::filter(pass, node).is_ok();
    let nodes: Vec<Candidate<'_>> = pass.candidates.iter().filter(|node| named(node) && may_be_removed(node)).cloned().collect();
    if nodes.len() != proposal.nodes.len() {
        return fail(RejectionCause::Churn);
    }
    let mut remaining = pass.budget(proposal.method.reason());
    if !nodes.iter().all(|node| remaining.take(node.pool_name())) {
        return fail(RejectionCause::Budget);
    }
    let nodes: Vec<&Candidate<'_>> = nodes.iter().collect();
    let mut simulator = Simulator::new(pass.view, 1);
    let Ok(mut result) = simulator.without(&nodes, Targets::Stable, Packing::Reference) else {
        return fail(RejectionCause::Scheduling);
    };
    let replacement = match (result.claims.len(), proposal.replacements.as_slice()) {
        (0, []) => None,
        (1, [proposed]) => {
            let mut replacement = Replacement::new(pass.view, result.claims.swap_remove(0));
            replacement.retain(|instance_type| proposed.contains(&instance_type.name));
            if replacement.len() < proposed.len() {
                return fail(RejectionCause::Scheduling);
            }
            let ceiling: Price = nodes.iter().map(|node| node.price).sum();
            let is_dearer = replacement.keep_cheaper_than(ceiling).is_err()
                || compute::restrict_capacity_type(&mut replacement, &nodes, ceiling).is_err()
                || replacement.len() < proposed.len();
            if is_dearer {
                // Prices have changed: the replacement must still be cheaper.
                return fail(RejectionCause::Scheduling);
            }
            Some(replacement)
        }
        _ => return fail(RejectionCause::Scheduling),
    };
    Ok(compute::command(pass.view, proposal.method, &nodes, replacement, (result.destinations, result.placements)))
}

fn reject(view: &ClusterView<'_>, proposal: &Proposal, cause: RejectionCause) -> Rejection {
    let mut events = EventCollector::default();
    if matches!(proposal.method, Method::MultiNode | Method::SingleNode) {
        for node in &proposal.nodes {
            let message = format!("Consolidation rejected: {}", proposal.text_for(node, &cause.to_string()));
            match view.machines.iter().find(|machine| machine.name() == node) {
                Some(machine) => events.on_machine(machine, CONSOLIDATION_REJECTED, &message),
                None => events.about(format!("node/{node}"), CONSOLIDATION_REJECTED, message),
            }
        }
    }
    let counts = matches!(cause, RejectionCause::Churn | RejectionCause::Budget);
    Rejection { cause, failed: if counts { proposal.nodes.len() } else { 0 }, events: events.into_sorted() }
}
