//! Metrics about decisions, under Karpenter's names (disruption 22).

use crate::execute::find_claim;
use crate::state::Running;
use std::collections::BTreeMap;
use whittle_api::karpenter::ConsolidationPolicy;
use whittle_claims::Phase;
use whittle_core::disruption::{Command, Decision, LedgerEntry, Method, Reason};
use whittle_ports::{Amount, Report};
use whittle_snapshot::Snapshot;
use whittle_units::{Quantity, SignedDuration};

/// How often state gauges are emitted: passes are more frequent than anybody reads.
pub(crate) const STATES_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// A command was started.
pub(crate) fn command_started(report: &mut Report, snapshot: &Snapshot, command: &Command) {
    let (action, kind) = (command.action().as_str(), command.method.consolidation_type());
    let reason = reason_label(command.method.reason());
    let labels = [("decision", action), ("reason", reason), ("consolidation_type", kind)];
    report.metric("karpenter_voluntary_disruption_decisions_total", labels);
    let mut pools: Vec<&str> = command.removals.iter().map(|removal| removal.node_pool.as_str()).collect();
    pools.sort_unstable();
    pools.dedup();
    for pool in pools {
        let labels = [("decision", action), ("reason", reason), ("consolidation_type", kind), ("nodepool", pool)];
        report.metric("karpenter_voluntary_disruption_decisions_by_nodepool_total", labels);
    }
    for removal in &command.removals {
        let claim = find_claim(snapshot, &removal.node_claim.as_str().into());
        let labels = [
            ("reason", reason),
            ("nodepool", removal.node_pool.as_str()),
            ("capacity_type", removal.capacity_type.as_str()),
            ("consolidation_policy", policy_label(snapshot, command.method, &removal.node_pool)),
            ("termination_mode", claim.map_or("", |claim| claim.value.termination_mode())),
        ];
        report.metric("karpenter_nodeclaims_disrupted_total", labels);
        report.metric_by("karpenter_pods_disruption_initiated_total", labels, u64::try_from(removal.pods.len()).unwrap_or(u64::MAX));
    }
    for new in &command.replacements {
        claim_created(report, reason, &new.node_pool, new.annotations.get(whittle_api::labels::MIN_VALUES_RELAXED));
    }
}

/// A claim was made.
pub(crate) fn claim_created(report: &mut Report, reason: &str, pool: &str, relaxed: Option<&String>) {
    let labels = [("reason", reason), ("nodepool", pool), ("min_values_relaxed", relaxed.map_or("false", String::as_str))];
    report.metric("karpenter_nodeclaims_created_total", labels);
}

/// A command was rolled back: counts the replacements that never initialized.
pub(crate) fn command_failed(report: &mut Report, snapshot: &Snapshot, running: &Running) {
    let ready = |claim: &whittle_claims::Claim| matches!(claim.phase, Phase::Initialized { .. });
    let lost =
        running.replacements.iter().filter(|new| find_claim(snapshot, &new.key.name).is_none_or(|claim| !ready(&claim.value))).count();
    let labels = [
        ("decision", running.ledger.action.as_str()),
        ("reason", reason_label(running.method.reason())),
        ("consolidation_type", running.method.consolidation_type()),
    ];
    report.metric_by("karpenter_voluntary_disruption_queue_failures_total", labels, u64::try_from(lost).unwrap_or(u64::MAX));
}

/// Nodes that are kept although a proposed command included them.
pub(crate) fn validation_failed(report: &mut Report, method: Method, nodes: usize) {
    if nodes > 0 {
        let labels = [("consolidation_type", method.consolidation_type())];
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
        report.metric_by("karpenter_voluntary_disruption_failed_validations_total", labels, nodes);
    }
}

/// How long each method with eligible nodes took, and which methods did not evaluate all of them.
pub(crate) fn evaluation(report: &mut Report, decision: &Decision, took: &BTreeMap<Method, SignedDuration>) {
    let mut shown: BTreeMap<(&str, &str), SignedDuration> = BTreeMap::new();
    for (method, span) in took.iter().filter(|(method, _)| decision.eligible.get(method).is_some_and(|nodes| *nodes > 0)) {
        // Both kinds of drift share one label.
        *shown.entry((reason_label(method.reason()), method.consolidation_type())).or_default() += *span;
    }
    for ((reason, kind), span) in shown {
        let metric = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds";
        report.gauge(metric, [("reason", reason), ("consolidation_type", kind)], Amount::Time(span));
    }
    for pool_score in &decision.scores {
        let decided = if pool_score.approved { "approved" } else { "rejected" };
        let labels = [("decision", decided), ("nodepool", pool_score.node_pool.as_str()), ("policy", policy_name(pool_score.policy))];
        report.metric("karpenter_consolidation_moves_total", labels);
        if let Some(score) = pool_score.score {
            let score = Quantity::from_milli(i64::try_from(score).unwrap_or(i64::MAX));
            report.gauge("karpenter_consolidation_score", labels, Amount::Quantity(score));
        }
    }
    for method in &decision.timeouts {
        report.metric(TIMEOUTS, [("consolidation_type", method.consolidation_type())]);
    }
}

const TIMEOUTS: &str = "karpenter_voluntary_disruption_consolidation_timeouts_total";

/// Savings of a command in dollars per hour; zero if it costs more.
pub(crate) fn savings(report: &mut Report, entry: &LedgerEntry) {
    let saved = entry.before_nanos.nanos().saturating_sub(entry.after_nanos.nanos());
    let amount = Amount::Dollars(whittle_units::Price::from_nanos(saved));
    report.gauge("whittle_saved_dollars_per_hour", [("nodepool", entry.node_pools.join(",").as_str())], amount);
}

/// Eligible nodes by reason, and the disruptions that budgets allow.
pub(crate) fn states(report: &mut Report, decision: &Decision) {
    for method in [Method::MultiNode, Method::SingleNode] {
        // So that the metric exists before the first timeout.
        report.metric_by(TIMEOUTS, [("consolidation_type", method.consolidation_type())], 0);
    }
    for reason in [Reason::Empty, Reason::Drifted, Reason::Underutilized] {
        // Both kinds of drift are summed; of the two searches for underutilized nodes the larger count is used.
        let of_reason = decision.eligible.iter().filter(|(method, _)| method.reason() == reason).map(|(_, count)| *count);
        let eligible = if reason == Reason::Drifted { of_reason.sum() } else { of_reason.max().unwrap_or(0) };
        let amount = Amount::Count(u64::try_from(eligible).unwrap_or(u64::MAX));
        report.gauge("karpenter_voluntary_disruption_eligible_nodes", [("reason", reason_label(reason))], amount);
    }
    for state in &decision.budgets {
        let labels = [("nodepool", state.node_pool.as_str()), ("reason", state.reason.as_str())];
        report.gauge("karpenter_nodepools_allowed_disruptions", labels, Amount::Count(state.allowed().into()));
        report.gauge("karpenter_nodepools_nodes_consuming_budgets", labels, Amount::Count(state.disrupting.into()));
    }
}

const fn reason_label(reason: Reason) -> &'static str {
    match reason {
        Reason::Empty => "empty",
        Reason::Drifted => "drifted",
        Reason::Underutilized => "underutilized",
    }
}

/// The policy that allowed a node's consolidation; empty for drift.
fn policy_label(snapshot: &Snapshot, method: Method, pool: &str) -> &'static str {
    if method.reason() == Reason::Drifted {
        return "";
    }
    let pool = snapshot.objects.node_pools.iter().find(|known| known.metadata.name == pool);
    pool.map_or("", |pool| policy_name(pool.spec.disruption.consolidation_policy))
}

const fn policy_name(policy: ConsolidationPolicy) -> &'static str {
    match policy {
        ConsolidationPolicy::WhenEmpty => "when_empty",
        ConsolidationPolicy::WhenEmptyOrUnderutilized => "when_empty_or_underutilized",
        ConsolidationPolicy::Balanced => "balanced",
    }
}
