//! The result of one pass of disruption.

use super::balanced::PoolScore;
use super::budgets::BudgetState;
use super::conditions::ClaimConditions;
use super::events::DisruptionEvent;
use super::verdict::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::disruption::{Command, Memory, Method};

/// The commands of a pass, and for every machine why it is not part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// At most one, except for static pools. None has been executed.
    pub commands: Vec<Command>,
    /// The commands for pools in shadow mode.
    pub shadow: Vec<Command>,
    /// One per machine, sorted by name.
    pub verdicts: Vec<Verdict>,
    /// Events to publish, sorted.
    pub events: Vec<DisruptionEvent>,
    /// The desired conditions of the claims, sorted by claim.
    pub conditions: Vec<ClaimConditions>,
    /// Per pool, for each reason whose budgets were evaluated.
    pub budgets: Vec<BudgetState>,
    /// How many nodes each method could have removed, for the gauge `eligible_nodes`.
    pub eligible: BTreeMap<Method, usize>,
    /// Methods that exhausted their simulations without a command, for `consolidation_timeouts_total`.
    pub timeouts: BTreeSet<Method>,
    /// How the pools scored the commands of consolidation.
    pub scores: Vec<PoolScore>,
    /// Input of the next pass.
    pub memory: Memory,
}
