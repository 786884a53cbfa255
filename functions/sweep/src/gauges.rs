//! Gauges about pools and claims, emitted once per sweep. Pure.

use crate::compare::Findings;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, conditions};
use whittle_claims::{Claim, Phase, ShiftedZones, Stored};
use whittle_ports::{Report, metrics};
use whittle_units::{ClaimName, Price, Timestamp};

/// The kind label of a claim in the table that cannot be read.
const STORED: &str = "stored NodeClaim";

/// Emits each pool's usage, limits, cost and machines, and the number of claims by phase. `pools` carry their current status.
pub(crate) fn pools(report: &mut Report, pools: &[NodePool], claims: &[Stored<Claim>]) {
    for pool in pools {
        let name = pool.metadata.name.as_str();
        for (resource, amount) in pool.status.resources.iter() {
            report.gauge(metrics::NodePoolsUsage { nodepool: name, resource_type: resource }, amount);
        }
        for (resource, amount) in pool.spec.limits.iter() {
            report.gauge(metrics::NodePoolsLimit { nodepool: name, resource_type: resource }, amount);
        }
        let of_pool = claims.iter().map(|stored| &stored.value).filter(|claim| claim.spec.node_pool == name);
        let cost: Price = of_pool.filter_map(|claim| claim.machine().map(|machine| machine.price)).sum();
        report.gauge(metrics::NodePoolsCost { nodepool: name }, cost);
    }
    let mut prices = claims.iter().filter_map(|stored| stored.value.machine()).map(|machine| machine.price).peekable();
    if prices.peek().is_some() {
        report.gauge(metrics::NodesDollarsPerHour, prices.sum::<Price>());
    }
    let mut phases: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for claim in claims.iter().map(|stored| &stored.value).filter(|claim| claim.is_live()) {
        *phases.entry((claim.spec.node_pool.as_str(), claim.phase.name())).or_default() += 1;
    }
    for ((pool, phase), count) in phases {
        report.gauge(metrics::NodeClaims { nodepool: pool, phase }, count);
    }
}

/// Emits claims that stay in one phase for too long, without those that a zonal shift may hold.
pub(crate) fn stuck(report: &mut Report, claims: &[Stored<Claim>], shifted: &ShiftedZones, now: Timestamp) {
    let mut stuck: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let held = |claim: &Claim| claim.machine().is_some_and(|machine| shifted.have(machine));
    for claim in claims.iter().map(|stored| &stored.value).filter(|claim| claim.is_stuck(now) && !held(claim)) {
        *stuck.entry((claim.spec.node_pool.as_str(), claim.phase.name())).or_default() += 1;
        tracing::warn!(claim = %claim.key, phase = claim.phase.name(), lacks = lack_of(claim), "a NodeClaim is stuck");
    }
    for ((pool, phase), count) in stuck {
        report.gauge(metrics::NodeClaimsStuck { nodepool: pool, phase }, count);
    }
}

/// What the machine of a claim lacks whose Node has joined and is not initialized, such as a resource or the removal of a taint; empty for
/// others.
fn lack_of(claim: &Claim) -> &str {
    let has_joined = matches!(claim.phase, Phase::Registered { .. });
    conditions::find(&claim.conditions, conditions::INITIALIZED).filter(|_| has_joined).map_or("", |known| known.message.as_str())
}

/// Emits launches and terminations that `sweep` rings for again and again, and that nobody works on, without those that a zonal shift may
/// hold. No metric of `launch` and `terminate` shows that they end before they have printed anything, or are not invoked.
pub(crate) fn stalled(report: &mut Report, claims: &[Stored<Claim>], findings: &Findings, shifted: &ShiftedZones, now: Timestamp) {
    let launch: BTreeSet<&ClaimName> = findings.launch.iter().collect();
    let terminate: BTreeSet<&ClaimName> = findings.terminate.iter().collect();
    let (mut launches, mut terminations) = (0_u64, 0_u64);
    for claim in claims.iter().map(|stored| &stored.value) {
        launches += u64::from(launch.contains(&claim.key.name) && claim.is_launch_stalled(now));
        let held = claim.machine().is_some_and(|machine| shifted.have(machine));
        terminations += u64::from(terminate.contains(&claim.key.name) && claim.is_termination_stalled(now) && !held);
    }
    if launches > 0 {
        report.gauge(metrics::LaunchesStalled, launches);
    }
    if terminations > 0 {
        report.gauge(metrics::TerminationsStalled, terminations);
    }
}

/// Emits objects that cannot be read, the number of `stored` claims that cannot be read, required kinds that are not served, and
/// claims whose pool is missing.
pub(crate) fn unreadable(report: &mut Report, objects: &ClusterObjects, stored: usize, missing_pool: &BTreeMap<String, u64>) {
    let mut unreadable: BTreeMap<&str, u64> = BTreeMap::new();
    for odd in &objects.unreadable {
        *unreadable.entry(odd.kind.as_str()).or_default() += 1;
    }
    if stored > 0 {
        unreadable.insert(STORED, u64::try_from(stored).unwrap_or(u64::MAX));
    }
    for (kind, count) in unreadable {
        report.gauge(metrics::ObjectsUnreadable { kind }, count);
    }
    // Legacy kinds are absent from every current cluster.
    for kind in ["NodePool", "NodeClaim", "EC2NodeClass", "Node"].into_iter().filter(|kind| objects.lacks_kind(kind)) {
        report.gauge(metrics::KindsAbsent { kind }, 1);
    }
    for (pool, count) in missing_pool {
        report.gauge(metrics::NodeClaimsWithoutNodePool { nodepool: pool }, *count);
    }
}
