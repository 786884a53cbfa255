//! Replaces drifted nodes of dynamic pools, one at a time and at any price (disruption 10.1).

use super::candidates::Candidate;
use super::cluster_view::{ClusterView, Machine};
use super::pass::Pass;
use super::simulate::{SimulationResult, Simulator, Targets};
use super::verdict::KeepReason;
use whittle_api::karpenter::NodePool;
use whittle_api::{ConditionStatus, conditions};
use whittle_model::disruption::{Command, Method, Reason, Savings};
use whittle_model::scheduling::Packing;
use whittle_units::{Price, Timestamp};

pub(super) fn commands<'w>(pass: &mut Pass<'w>) -> Vec<Command> {
    let mut drifted: Vec<Candidate<'w>> =
        pass.candidates.iter().filter(|node| !node.pool.is_static() && node.may_be_disrupted_by(Method::Drift)).cloned().collect();
    drifted.retain(|node| pass.drift_reason(node).is_some());
    pass.count_eligible(Method::Drift, drifted.len());
    if drifted.is_empty() {
        return Vec::new();
    }
    let now = pass.view.now();
    // Nodes without pods to reschedule come first, then those that drifted first. Where EC2 refused the replacement of one, that of
    // another may be of other types.
    drifted.sort_by_key(|node| (!node.pods.is_empty(), node.machine.facts.was_refused_replacement, drifted_since(node, now), node.name()));
    let remaining = pass.budget(Reason::Drifted);
    let mut simulator = pass.simulator();
    let mut command = None;
    for node in &drifted {
        if command.is_some() || simulator.is_exhausted() {
            pass.keep(node, KeepReason::DriftWaits);
        } else if remaining.of(node.pool_name()) == 0 {
            pass.keep_for_budget(node, Reason::Drifted);
        } else if awaits_join(pass.view, node) {
            pass.keep(node, KeepReason::DriftAwaitsJoin { pool: node.pool_name().to_owned() });
        } else {
            let found = match KeepReason::of_refused_drift(node.machine.facts).filter(|_| !node.pods.is_empty()) {
                Some(keep) => without_machine(&mut simulator, node).ok_or(keep),
                None => simulate_drift(&mut simulator, node, pass.view.input.settings.solve.packing),
            };
            match found {
                Ok(result) => command = Some(replace(node, result, now)),
                Err(keep) => pass.keep_drifted(node, keep),
            }
        }
        pass.keep_drift_verdict(node);
    }
    pass.put_back(simulator);
    command.into_iter().collect()
}

/// Where the pods of a drifted node would go. When [`Packing::Best`] finds no place without a node that has not
/// initialized, Karpenter's packing is tried. If that depends on such a node too, none may be needed that is just starting: in a
/// cluster that launches nodes all the time, drift would otherwise wait forever. Those that take longer are waited for, and all where the
/// latest machines of the pool did not join, since their replacements might never initialize either (ADR 0031).
fn simulate_drift(simulator: &mut Simulator<'_>, node: &Candidate<'_>, packing: Packing) -> Result<SimulationResult, KeepReason> {
    let first = simulator.without(&[node], Targets::All, packing);
    if packing == Packing::Reference || !matches!(first, Err(KeepReason::PodsWouldNotSchedule { .. })) {
        return first;
    }
    let starting = (!machines_do_not_join(node.pool)).then_some(Targets::Initialized);
    let mut retries = [Some(Targets::All), starting].into_iter().flatten();
    retries.find_map(|targets| simulator.without(&[node], targets, Packing::Reference).ok()).map_or(first, Ok)
}

/// Where the pods of a drifted node would go without a machine for them: EC2 refuses it. In the packing that answers for many nodes at
/// once, since all of the pool may wait.
fn without_machine(simulator: &mut Simulator<'_>, node: &Candidate<'_>) -> Option<SimulationResult> {
    let found = simulator.without(&[node], Targets::All, Packing::Reference).ok()?;
    found.claims.is_empty().then_some(found)
}

/// Whether a drifted node waits until it is known what becomes of another one of its pool, because the replacement of neither might join:
/// there would be a machine for each node that the budget allows, again every quarter of an hour (ADR 0031). Nodes without pods need none.
fn awaits_join(view: &ClusterView<'_>, node: &Candidate<'_>) -> bool {
    !node.pods.is_empty() && is_one_at_a_time(view, node.pool) && is_one_under_way(view, node)
}

/// Whether one drifted node of a pool is replaced after the other, whatever the budget allows.
pub(super) fn is_one_at_a_time(view: &ClusterView<'_>, pool: &NodePool) -> bool {
    view.input.settings.solve.packing != Packing::Reference && machines_do_not_join(pool)
}

/// Whether a command in progress removes a node of the same pool.
pub(super) fn is_one_under_way(view: &ClusterView<'_>, node: &Candidate<'_>) -> bool {
    let is_under_way = |machine: &Machine<'_>| machine.facts.in_command && machine.pool() == node.machine.pool();
    view.machines.iter().any(is_under_way)
}

/// Whether the latest launches of a pool have failed (disruption 17.5), as with an image that no node starts with.
fn machines_do_not_join(pool: &NodePool) -> bool {
    let health = conditions::find(&pool.status.conditions, conditions::NODE_REGISTRATION_HEALTHY);
    health.is_some_and(|health| health.status == ConditionStatus::False)
}

fn drifted_since(node: &Candidate<'_>, now: Timestamp) -> Timestamp {
    let condition = node.machine.claim().and_then(|claim| conditions::find(&claim.status.conditions, conditions::DRIFTED));
    let drifted = condition.filter(|condition| condition.status == ConditionStatus::True);
    drifted.and_then(|condition| condition.last_transition_time).unwrap_or(now)
}

fn replace(node: &Candidate<'_>, result: SimulationResult, now: Timestamp) -> Command {
    let after: Price = result.claims.iter().map(|claim| claim.cheapest_price).sum();
    Command {
        method: Method::Drift,
        removals: vec![node.removal()],
        replacements: result.claims,
        destinations: result.destinations,
        placements: result.placements,
        savings: Savings::between(node.paid(), after),
        execute_after: now,
    }
}
