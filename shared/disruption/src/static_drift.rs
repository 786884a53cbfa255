//! Replaces drifted nodes of static pools one for one (disruption 10.2).

use super::candidates::Candidate;
use super::cluster_view::ClusterView;
use super::drift_execution::{is_one_at_a_time, is_one_under_way};
use super::events::DISRUPTION_BLOCKED;
use super::pass::Pass;
use super::static_pools::{PoolCounts, claim_from_template};
use super::verdict::KeepReason;
use std::collections::BTreeMap;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::NodePool;
use whittle_model::disruption::{Command, Gate, Method, Reason, Savings};
use whittle_model::requirements::from_requirements;

pub(super) fn commands<'w>(pass: &mut Pass<'w>) -> Vec<Command> {
    let mut by_pool: BTreeMap<&'w str, Vec<Candidate<'w>>> = BTreeMap::new();
    let on = pass.view.input.settings.static_capacity == Gate::On;
    for node in pass.candidates.iter().filter(|node| on && node.pool.is_static() && node.may_be_disrupted_by(Method::StaticDrift)) {
        if pass.drift_reason(node).is_some() {
            by_pool.entry(node.pool_name()).or_default().push(node.clone());
        }
    }
    pass.count_eligible(Method::StaticDrift, by_pool.values().map(Vec::len).sum());
    if by_pool.is_empty() {
        return Vec::new();
    }
    let remaining = pass.budget(Reason::Drifted);
    let mut commands = Vec::new();
    for (pool, nodes) in by_pool {
        let allowed = usize::try_from(remaining.of(pool)).unwrap_or(usize::MAX).min(nodes.len());
        let available = replacements_available(pass, pool, &nodes, allowed);
        let is_sold_out = nodes.first().is_some_and(|node| is_sold_out(pass.view, node.pool));
        let joining = replacements_at_once(pass.view, &nodes);
        // One finds out whether EC2 still refuses what it refused; all are made from one template.
        let trying = if nodes.iter().any(|node| node.machine.facts.was_refused_replacement) { 1 } else { usize::MAX };
        if let (0, Some(message)) = (available, nodes.first().and_then(|node| no_room_ever(node.pool))) {
            pass.events.about(format!("nodepool/{pool}"), DISRUPTION_BLOCKED, message);
        }
        for (at, node) in nodes.iter().enumerate() {
            if at < available && is_sold_out {
                pass.keep(node, KeepReason::SoldOut { pool: pool.to_owned() });
            } else if at < available
                && let Some(keep) = KeepReason::of_refused_drift(node.machine.facts)
            {
                pass.keep_drifted(node, keep);
            } else if at < available.min(joining).min(trying) {
                commands.push(replace(node, pass.view.now()));
            } else if at < available.min(joining) {
                pass.keep(node, KeepReason::DriftWaits);
            } else if at < available {
                pass.keep(node, KeepReason::DriftAwaitsJoin { pool: pool.to_owned() });
            } else if at < allowed {
                pass.keep(node, KeepReason::NoRoomToReplace { pool: pool.to_owned() });
            } else {
                pass.keep_for_budget(node, Reason::Drifted);
            }
            pass.keep_drift_verdict(node);
        }
    }
    commands
}

/// How many replacements the pool may launch now.
fn replacements_available(pass: &Pass<'_>, pool: &str, nodes: &[Candidate<'_>], allowed: usize) -> usize {
    let Some(spec) = nodes.first().map(|node| node.pool) else { return 0 };
    let counts = PoolCounts::of(pass.view, pool);
    let replicas = usize::try_from(spec.spec.replicas.unwrap_or(0)).unwrap_or(0);
    // A machine that is held has its replacement: it keeps no other node of the pool waiting, but counts in its budget and limit.
    if counts.active + counts.pending_disruption > replicas + counts.held {
        // Scaling down comes first.
        return 0;
    }
    counts.available_nodes(spec).min(allowed)
}

/// Whether nothing that the pool's template allows can be launched now, as while EC2 has none of its types. Karpenter closes the node all
/// the same, and opens it again once the launch has failed: as often as it looks, and no node of another pool has its turn meanwhile.
fn is_sold_out(view: &ClusterView<'_>, pool: &NodePool) -> bool {
    let wanted = from_requirements(&claim_from_template(pool).requirements);
    let admitted = view.offerings.admitted(&wanted);
    let is_sold = |instance_type: &InstanceType| {
        view.offerings.kinds_of(instance_type).any(|(kind, offering)| offering.available && admitted[kind])
            && wanted.intersects(&from_requirements(&instance_type.requirements)).is_ok()
    };
    let types = view.input.cluster.catalog.get(&pool.metadata.name);
    types.is_none_or(|types| !types.iter().any(is_sold))
}

/// How many machines may be started at once in place of drifted ones: one where the latest of the pool did not join, and no other while it
/// is not known what becomes of it (ADR 0031). An image that no node starts with would have a machine for each node that the budget allows.
fn replacements_at_once(view: &ClusterView<'_>, nodes: &[Candidate<'_>]) -> usize {
    match nodes.first() {
        Some(node) if is_one_at_a_time(view, node.pool) => usize::from(!is_one_under_way(view, node)),
        _ => usize::MAX,
    }
}

/// Why no drifted node of the pool can be replaced, however long it waits: its replicas take all that its limit allows.
fn no_room_ever(pool: &NodePool) -> Option<String> {
    let (limit, replicas) = (pool.spec.limits.0.get("nodes")?.units_floor(), pool.spec.replicas?);
    (replicas > 0 && limit <= replicas).then(|| {
        let why = "leaves no room for a replacement, which is launched first: raise it, or delete the nodes";
        format!("Drifted nodes are not replaced: limits.nodes {limit} beside replicas {replicas} {why}")
    })
}

fn replace(node: &Candidate<'_>, now: whittle_units::Timestamp) -> Command {
    Command {
        method: Method::StaticDrift,
        removals: vec![node.removal()],
        replacements: vec![claim_from_template(node.pool)],
        destinations: Vec::new(),
        placements: Vec::new(),
        // The replacement is assumed to cost the same: its type is chosen at launch.
        savings: Savings::default(),
        execute_after: now,
    }
}
