//! Deletes empty nodes, as many at once as the budgets allow (disruption 8.4).

use super::candidates::Candidate;
use super::pass::Pass;
use super::verdict::KeepReason;
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::disruption::{Command, Method, Reason, Savings, VALIDATION_WAIT};
use whittle_model::scheduling::{Packing, Placement, PodRef};
use whittle_units::{Price, SignedDuration, Timestamp};

pub(super) fn commands(pass: &mut Pass<'_>) -> Vec<Command> {
    let mut empty: Vec<Candidate<'_>> = Vec::new();
    for candidate in pass.candidates.clone() {
        match filter(pass, &candidate) {
            Ok(()) => empty.push(candidate),
            Err(Some(keep)) => pass.keep(&candidate, keep),
            Err(None) => {}
        }
    }
    pass.count_eligible(Method::Emptiness, empty.len());
    if empty.is_empty() {
        return Vec::new();
    }
    empty.sort_by(Candidate::by_savings_ratio);
    let mut remaining = pass.budget(Reason::Empty);
    let (allowed, closed): (Vec<_>, Vec<_>) = empty.into_iter().partition(|candidate| remaining.of(candidate.pool_name()) > 0);
    // Before budgets are spent: a node that stays would have the turn of another one, and have it again in each pass.
    let may_go = spare_nodes_for_pending_pods(pass, allowed);
    let (taken, skipped): (Vec<_>, Vec<_>) = may_go.into_iter().partition(|candidate| remaining.take(candidate.pool_name()));
    for candidate in closed.iter().chain(&skipped) {
        pass.keep_for_budget(candidate, Reason::Empty);
    }
    if taken.is_empty() { Vec::new() } else { vec![command(&taken, pass.view.now())] }
}

/// Keeps nodes that pending pods need, and pods of nodes that go, since equal nodes would be launched at once. Karpenter deletes them.
pub(super) fn spare_nodes_for_pending_pods<'w>(pass: &mut Pass<'w>, mut empty: Vec<Candidate<'w>>) -> Vec<Candidate<'w>> {
    if pass.view.input.settings.solve.packing == Packing::Reference || empty.is_empty() {
        return empty;
    }
    let mut simulator = pass.simulator();
    let mut needed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if simulator.has_waiting_pods() {
        let names: BTreeSet<&str> = empty.iter().map(Candidate::name).collect();
        let pod_count = |placements: &[Placement]| placements.iter().map(|placement| placement.pods.len()).sum::<usize>();
        let with = simulator.placements(&[]);
        let hosts: Vec<&Placement> = with.iter().filter(|placement| names.contains(placement.node.as_str())).collect();
        if !hosts.is_empty() {
            let without = simulator.placements(&empty.iter().collect::<Vec<_>>());
            if pod_count(&without) < pod_count(&with) {
                needed.extend(hosts.iter().map(|host| (host.node.clone(), host.pods.iter().map(PodRef::key).collect())));
            }
        }
    }
    pass.put_back(simulator);
    empty.retain(|candidate| {
        let pods = needed.remove(candidate.name());
        let is_deleted = pods.is_none();
        if let Some(pods) = pods {
            pass.keep(candidate, KeepReason::PendingPods { pods });
        }
        is_deleted
    });
    empty
}

/// Whether a candidate is empty and may be deleted. `Err(None)`: it is not empty, so other methods decide about it.
pub(super) fn filter(pass: &Pass<'_>, candidate: &Candidate<'_>) -> Result<(), Option<KeepReason>> {
    if candidate.pool.is_static() {
        return Err(Some(KeepReason::StaticPool));
    }
    if !candidate.may_be_disrupted_by(Method::Emptiness) {
        return Err(None);
    }
    if candidate.pool.spec.disruption.consolidate_after.span().is_none() {
        return Err(Some(KeepReason::ConsolidationDisabled { pool: candidate.pool_name().to_owned() }));
    }
    if candidate.machine.facts.buffer_pods > 0 {
        return Err(Some(KeepReason::BufferPods { node: candidate.name().to_owned() }));
    }
    if !candidate.is_empty() {
        return Err(None);
    }
    if pass.is_consolidatable(candidate) { Ok(()) } else { Err(Some(pass.consolidate_after_reason(candidate))) }
}

pub(super) fn command(taken: &[Candidate<'_>], now: Timestamp) -> Command {
    let mut removals: Vec<_> = taken.iter().map(Candidate::removal).collect();
    removals.sort_by(|a, b| a.node.cmp(&b.node));
    let before: Price = taken.iter().map(Candidate::paid).sum();
    let wait = taken.iter().map(wait).max().unwrap_or(VALIDATION_WAIT);
    Command {
        method: Method::Emptiness,
        removals,
        replacements: Vec::new(),
        destinations: Vec::new(),
        placements: Vec::new(),
        savings: Savings::between(before, Price::ZERO),
        execute_after: now.checked_add(wait).unwrap_or(now),
    }
}

/// Provisioners delete an empty node `ttlSecondsAfterEmpty` after it became empty: the wait for validation is part of
/// that.
fn wait(candidate: &Candidate<'_>) -> SignedDuration {
    let quiet = candidate.pool.spec.disruption.consolidate_after.span().unwrap_or_default();
    if candidate.pool.is_converted_provisioner() && quiet >= VALIDATION_WAIT { SignedDuration::ZERO } else { VALIDATION_WAIT }
}
