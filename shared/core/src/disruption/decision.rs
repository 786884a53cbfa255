//! What one pass of disruption answers.

use super::balanced::Weighed;
use super::budgets::BudgetState;
use super::command::{Command, Method};
use super::conditions::ClaimConditions;
use super::events::Note;
use super::input::Memory;
use super::verdict::Verdict;
use std::collections::{BTreeMap, BTreeSet};

/// What is to be done now, and why not more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// At most one, save for static pools. Nothing of them has been executed.
    pub commands: Vec<Command>,
    /// What would be done with pools in shadow mode.
    pub shadow: Vec<Command>,
    /// One for every machine, by name.
    pub verdicts: Vec<Verdict>,
    /// Events to publish, sorted.
    pub notes: Vec<Note>,
    /// What the conditions of the claims should be, by claim.
    pub conditions: Vec<ClaimConditions>,
    /// By pool, for each reason whose budgets were looked at.
    pub budgets: Vec<BudgetState>,
    /// Nodes that each method could have taken, for the gauge `eligible_nodes`.
    pub eligible: BTreeMap<Method, usize>,
    /// Methods that ran out of simulations and found nothing until then, for `consolidation_timeouts_total`.
    pub timeouts: BTreeSet<Method>,
    /// Commands of consolidation as their pools weighed them.
    pub weighed: Vec<Weighed>,
    /// To be given to the next pass.
    pub memory: Memory,
}
