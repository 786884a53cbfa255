//! Multi-node consolidation (disruption 8.4): replaces several nodes by one, or by none.

use super::balanced::{PoolScore, Totals};
use super::budgets::RemainingBudget;
use super::bundles::find_bundles;
use super::candidates::Candidate;
use super::compute::compute_consolidation;
use super::consolidation::{approve, eligible};
use super::pass::Pass;
use super::simulate::Simulator;
use super::verdict::KeepReason;
use whittle_model::disruption::{Command, Method, Reason};
use whittle_model::scheduling::Packing;

/// Largest number of nodes in one command, as in Karpenter.
const NODES_MAX: usize = 100;
/// How many sets are tried beyond Karpenter's own search.
const TRIES_MAX: usize = 60;

pub(super) fn commands<'w>(pass: &mut Pass<'w>) -> Vec<Command> {
    let nodes = eligible(pass, Method::MultiNode);
    let remaining = pass.budget(Reason::Underutilized);
    let (mut nodes, others) = split_by_budget(nodes, remaining.clone());
    let best = pass.view.input.settings.solve.packing == Packing::Best;
    let within_budget = nodes.len();
    if best {
        // The budgets limit how many nodes are removed, not which ones.
        nodes.extend(others);
    }
    // The fingerprint covers all these nodes, since the budgets may admit others another time.
    if within_budget < 2 || pass.found_nothing_recently(Method::MultiNode, &nodes) {
        return Vec::new();
    }
    let totals = Totals::new(pass.view, &pass.candidates);
    let mut simulator = pass.simulator();
    let mut search = Search { pass, totals: &totals, simulator: &mut simulator, rejected: Vec::new() };
    let mut found = search.longest_prefix(&nodes[..within_budget], best);
    if best {
        found = search.grow(&nodes[..within_budget], found);
        found = search.try_bundles(&nodes, &remaining, found);
    }
    let rejected = search.rejected;
    let exhausted = simulator.is_exhausted();
    pass.put_back(simulator);
    match found {
        Some((set, command)) => {
            pass.events.chosen(&command);
            let chosen: Vec<&Candidate<'_>> = set.iter().filter_map(|at| nodes.get(*at)).collect();
            pass.scores.extend(if_any_scored(totals.score_by_pool(&chosen, &command, true)));
            totals.note_approval(&mut pass.events, &chosen, &command);
            vec![command]
        }
        None => {
            pass.scores.extend(rejected);
            if exhausted {
                pass.timeouts.insert(Method::MultiNode);
            } else {
                pass.remember_found_nothing(Method::MultiNode, &nodes);
            }
            Vec::new()
        }
    }
}

/// Splits off as many nodes of each pool as its budget allows.
fn split_by_budget<'w>(nodes: Vec<Candidate<'w>>, mut remaining: RemainingBudget) -> (Vec<Candidate<'w>>, Vec<Candidate<'w>>) {
    nodes.into_iter().partition(|node| remaining.take(node.pool_name()))
}

/// The scores, if at least one pool scores.
fn if_any_scored(scores: Vec<PoolScore>) -> Vec<PoolScore> {
    if scores.iter().any(|score| score.score.is_some()) { scores } else { Vec::new() }
}

/// A set of nodes, by position in the sorted list, with its command.
type Found = Option<(Vec<usize>, Command)>;

struct Search<'s, 'w> {
    pass: &'s Pass<'w>,
    totals: &'s Totals,
    simulator: &'s mut Simulator<'w>,
    /// Scores of the last set that its pools rejected.
    rejected: Vec<PoolScore>,
}

impl<'w> Search<'_, 'w> {
    fn attempt(&mut self, nodes: &[Candidate<'w>], set: &[usize]) -> Option<Command> {
        let chosen: Vec<&Candidate<'_>> = set.iter().filter_map(|at| nodes.get(*at)).collect();
        let command = compute_consolidation(self.pass.view, self.simulator, &chosen, Method::MultiNode).ok()?;
        let mut scores = Vec::new();
        let approval = approve(self.pass, self.totals, &chosen, &command, &mut scores);
        if matches!(approval, Err(KeepReason::PoorScore { .. })) {
            self.rejected = scores;
        }
        approval.ok().map(|()| command)
    }

    /// The longest prefix that can be consolidated, by binary search: if N nodes cannot, neither can N + 1. With
    /// `best`, a shorter prefix that saves more is preferred.
    fn longest_prefix(&mut self, nodes: &[Candidate<'w>], best: bool) -> Found {
        let (mut low, mut high) = (1, NODES_MAX.min(nodes.len() - 1));
        let mut found: Found = None;
        while low <= high && !self.simulator.is_exhausted() {
            let middle = usize::midpoint(low, high);
            let set: Vec<usize> = (0..=middle).collect();
            match self.attempt(nodes, &set) {
                Some(command) => {
                    let saves_less = found.as_ref().is_some_and(|(_, known)| command.savings < known.savings);
                    if !(best && saves_less) {
                        found = Some((set, command));
                    }
                    low = middle + 1;
                }
                None => high = middle - 1,
            }
        }
        found
    }

    /// Extends sets node by node where the prefix ended, so that one node that cannot be removed does not block the
    /// others. A set replaces the best one only if it saves more.
    fn grow(&mut self, nodes: &[Candidate<'w>], found: Found) -> Found {
        let mut best = found;
        let mut tries = 0;
        let starts: Vec<Vec<usize>> = match &best {
            Some((set, _)) => vec![set.clone()],
            // Without a prefix, every node is a starting point, in order of their savings ratio.
            None => (0..nodes.len()).map(|first| vec![first]).collect(),
        };
        for start in starts {
            let mut set = start;
            for next in 0..nodes.len() {
                if set.contains(&next) || set.len() >= NODES_MAX {
                    continue;
                }
                if tries >= TRIES_MAX || self.simulator.is_exhausted() {
                    return best;
                }
                tries += 1;
                let mut larger = set.clone();
                larger.push(next);
                let Some(command) = self.attempt(nodes, &larger) else { continue };
                if best.as_ref().is_none_or(|(_, known)| command.savings > known.savings) {
                    set.clone_from(&larger);
                    best = Some((larger, command));
                }
            }
            if best.is_some() {
                return best;
            }
        }
        best
    }

    /// Simulates the bundles whose expected savings exceed those of the best command.
    fn try_bundles(&mut self, nodes: &[Candidate<'w>], remaining: &RemainingBudget, found: Found) -> Found {
        let mut best = found;
        for bundle in find_bundles(self.pass.view, nodes, remaining, NODES_MAX) {
            let known = best.as_ref().map_or(0, |(_, command)| command.savings.nanos());
            if self.simulator.is_exhausted() || i128::from(bundle.expected_savings.nanos()) <= i128::from(known) {
                break;
            }
            let Some(command) = self.attempt(nodes, &bundle.nodes) else { continue };
            if best.as_ref().is_none_or(|(_, known)| command.savings > known.savings) {
                best = Some((bundle.nodes, command));
            }
        }
        best
    }
}
