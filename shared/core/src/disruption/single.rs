//! Single-node consolidation (disruption 8.5): one node goes for a cheaper one, or for none.

use super::balanced::{Totals, Weighed};
use super::candidates::Candidate;
use super::command::{Command, Method, Reason};
use super::compute::compute;
use super::consolidation::{approve, eligible};
use super::outlook::Outlook;
use super::pass::Pass;
use super::simulate::Simulator;
use super::verdict::Keep;
use crate::schedule::Packing;
use std::collections::{BTreeMap, BTreeSet};
use whittle_units::Price;

/// What to do with what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Command,
    /// Another method has decided already: only the verdicts are wanted.
    Verdicts,
}

pub(super) fn commands<'w>(pass: &mut Pass<'w>, aim: Aim) -> Vec<Command> {
    let nodes = in_turn(eligible(pass, Method::SingleNode), &pass.memory.unreached);
    if nodes.is_empty() {
        return Vec::new();
    }
    let left = pass.budget(Reason::Underutilized);
    let (free, bound): (Vec<Candidate<'w>>, Vec<Candidate<'w>>) = nodes.into_iter().partition(|node| left.of(node.pool_name()) > 0);
    for node in &bound {
        pass.keep_for_budget(node, Reason::Underutilized);
    }
    // Nodes that a budget holds back are not looked at; once it lets them go, these are other nodes.
    let nodes = free;
    if aim == Aim::Command && pass.found_nothing_before(Method::SingleNode, &nodes) {
        return Vec::new();
    }
    let totals = Totals::new(pass.world, &pass.candidates);
    let mut simulator = pass.simulator();
    let first_wins = pass.world.input.settings.solve.packing == Packing::Reference;
    // The reference simulates always, and so tells other reasons.
    let outlook = (!first_wins).then(|| Outlook::new(pass.world));
    let mut best: Option<(&Candidate<'w>, Command)> = None;
    let mut unreached = BTreeSet::new();
    for node in &nodes {
        if simulator.is_spent() || first_wins && best.is_some() {
            unreached.insert(node.name().to_owned());
            pass.keep(node, Keep::NotReached);
            continue;
        }
        let mut weighed = Vec::new();
        let found = consider(pass, &totals, outlook.as_ref(), &mut simulator, node, &mut weighed);
        pass.weighed.append(&mut weighed);
        match found {
            Err(keep) => pass.keep(node, keep),
            // Another node's move comes first; this one's is looked at again once that is done.
            Ok(command) => {
                pass.wait_turn(node, command.savings);
                if best.as_ref().is_none_or(|(_, known)| command.savings > known.savings) {
                    best = Some((node, command));
                }
            }
        }
    }
    pass.put_back(simulator);
    // What a finished pass did not reach because of a find is not starved: the find changes everything anyway.
    pass.memory.unreached = if first_wins && best.is_some() { BTreeSet::new() } else { unreached };
    if aim == Aim::Verdicts {
        return Vec::new();
    }
    match best {
        Some((node, command)) => {
            pass.notes.chosen(&command);
            totals.note_approval(&mut pass.notes, &[node], &command);
            vec![command]
        }
        None => {
            if pass.memory.unreached.is_empty() {
                pass.remember_nothing(Method::SingleNode, &nodes);
            } else {
                pass.timeouts.insert(Method::SingleNode);
            }
            Vec::new()
        }
    }
}

fn consider(
    pass: &Pass<'_>,
    totals: &Totals,
    outlook: Option<&Outlook<'_>>,
    simulator: &mut Simulator<'_>,
    node: &Candidate<'_>,
    weighed: &mut Vec<Weighed>,
) -> Result<Command, Keep> {
    totals.can_pass(node).map_err(|thousandths| Keep::PoorScore { thousandths })?;
    let unpriced = |keep| if keep == Keep::NothingCheaper && node.price == Price::ZERO { Keep::PriceUnknown } else { keep };
    if let Some(keep) = outlook.and_then(|outlook| outlook.hopeless(node)) {
        return Err(unpriced(keep));
    }
    let command = compute(pass.world, simulator, &[node], Method::SingleNode).map_err(unpriced)?;
    approve(pass, totals, &[node], &command, weighed)?;
    Ok(command)
}

/// Nodes that the last pass did not reach come first; within both parts the pools take turns.
fn in_turn<'w>(sorted: Vec<Candidate<'w>>, unreached: &BTreeSet<String>) -> Vec<Candidate<'w>> {
    let mut turn_of: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    let mut keyed: Vec<(bool, usize, &str, Candidate<'w>)> = Vec::with_capacity(sorted.len());
    for node in sorted {
        let reached = !unreached.contains(node.name());
        let pool: &'w str = node.pool_name();
        let turn = turn_of.entry((reached, pool)).or_default();
        keyed.push((reached, *turn, pool, node));
        *turn += 1;
    }
    keyed.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    keyed.into_iter().map(|(.., node)| node).collect()
}
