//! Single-node consolidation (disruption 8.5): replaces one node by a cheaper one, or by none.

use super::balanced::{PoolScore, Totals};
use super::candidates::Candidate;
use super::compute::compute_consolidation;
use super::consolidation::{approve, eligible};
use super::pass::Pass;
use super::quick_check::QuickCheck;
use super::simulate::Simulator;
use super::verdict::KeepReason;
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::disruption::{Command, Method, Reason, Savings};
use whittle_model::scheduling::Packing;
use whittle_units::Price;

/// What to do with the commands found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Command,
    /// Another method has found a command: only verdicts are wanted.
    Verdicts,
}

pub(super) fn commands<'w>(pass: &mut Pass<'w>, aim: Aim) -> Vec<Command> {
    let nodes = interleave_pools(eligible(pass, Method::SingleNode), &pass.memory.unreached);
    if nodes.is_empty() {
        // Nobody waits for a turn: who is waited for keeps passes following each other.
        pass.memory.unreached.clear();
        return Vec::new();
    }
    // Nodes over budget are not part of the fingerprint; the set changes when a budget admits them.
    let nodes = within_budget(pass, nodes);
    if aim == Aim::Command && pass.found_nothing_recently(Method::SingleNode, &nodes) {
        return Vec::new();
    }
    let totals = Totals::new(pass.view, &pass.candidates);
    let mut simulator = pass.simulator();
    let first_wins = pass.view.input.settings.solve.packing == Packing::Reference;
    // Karpenter always simulates, and so reports other reasons.
    let quick_check = (!first_wins).then(|| QuickCheck::new(pass.view, nodes.iter().map(|node| node.price).max().unwrap_or_default()));
    let mut best: Option<(&Candidate<'w>, Command)> = None;
    let mut unreached = BTreeSet::new();
    for node in &nodes {
        if simulator.is_exhausted() || first_wins && best.is_some() {
            unreached.insert(node.name().to_owned());
            pass.keep(node, KeepReason::NotReached);
            continue;
        }
        let mut scores = Vec::new();
        let found = evaluate(pass, &totals, quick_check.as_ref(), &mut simulator, node, &mut scores);
        pass.scores.append(&mut scores);
        match found {
            Err(keep) => pass.keep(node, keep),
            // Only the best command is executed; other nodes are evaluated again after that.
            Ok(command) => {
                pass.keep_for_later(node, command.savings);
                if best.as_ref().is_none_or(|(other, known)| rank(node, &command) > rank(other, known)) {
                    best = Some((node, command));
                }
            }
        }
    }
    pass.put_back(simulator);
    // Nodes not reached because a command was found are not starved: the cluster changes with that command.
    pass.memory.unreached = if first_wins && best.is_some() { BTreeSet::new() } else { unreached };
    if aim == Aim::Verdicts {
        return Vec::new();
    }
    match best {
        Some((node, command)) => {
            pass.events.chosen(&command);
            totals.note_approval(&mut pass.events, &[node], &command);
            vec![command]
        }
        None => {
            if pass.memory.unreached.is_empty() {
                pass.remember_found_nothing(Method::SingleNode, &nodes);
            } else {
                pass.timeouts.insert(Method::SingleNode);
            }
            Vec::new()
        }
    }
}

/// The best command saves most. One whose machine EC2 may refuse again comes after the others: it would hold them up each time.
fn rank(node: &Candidate<'_>, command: &Command) -> (bool, Savings) {
    let may_be_refused = node.machine.facts.was_refused_replacement && !command.replacements.is_empty();
    (!may_be_refused, command.savings)
}

/// The nodes that a budget admits; the others are kept for it.
fn within_budget<'w>(pass: &mut Pass<'w>, nodes: Vec<Candidate<'w>>) -> Vec<Candidate<'w>> {
    let remaining = pass.budget(Reason::Underutilized);
    let (within, over): (Vec<Candidate<'w>>, Vec<Candidate<'w>>) = nodes.into_iter().partition(|node| remaining.of(node.pool_name()) > 0);
    for node in &over {
        pass.keep_for_budget(node, Reason::Underutilized);
    }
    within
}

fn evaluate(
    pass: &Pass<'_>,
    totals: &Totals,
    quick_check: Option<&QuickCheck<'_>>,
    simulator: &mut Simulator<'_>,
    node: &Candidate<'_>,
    scores: &mut Vec<PoolScore>,
) -> Result<Command, KeepReason> {
    totals.check_deletion_score(node).map_err(|thousandths| KeepReason::PoorScore { thousandths })?;
    let unpriced = |keep| if keep == KeepReason::NothingCheaper && node.price == Price::ZERO { KeepReason::PriceUnknown } else { keep };
    if let Some(keep) = quick_check.and_then(|quick_check| quick_check.rules_out(node)) {
        return Err(unpriced(keep));
    }
    let command = compute_consolidation(pass.view, simulator, &[node], Method::SingleNode).map_err(unpriced)?;
    approve(pass, totals, &[node], &command, scores)?;
    Ok(command)
}

/// Nodes that the last pass did not reach come first; within both groups the pools alternate.
fn interleave_pools<'w>(sorted: Vec<Candidate<'w>>, unreached: &BTreeSet<String>) -> Vec<Candidate<'w>> {
    let mut next_turn: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    let mut keyed: Vec<((bool, usize, &str), Candidate<'w>)> = Vec::with_capacity(sorted.len());
    for node in sorted {
        let reached = !unreached.contains(node.name());
        let pool: &'w str = node.pool_name();
        let turn = next_turn.entry((reached, pool)).or_default();
        keyed.push(((reached, *turn, pool), node));
        *turn += 1;
    }
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, node)| node).collect()
}
