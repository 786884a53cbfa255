//! Metrics about decisions, under Karpenter's names (disruption 22).

use crate::execute::find_claim;
use crate::state::Running;
use std::collections::BTreeMap;
use whittle_api::karpenter::ConsolidationPolicy;
use whittle_claims::Phase;
use whittle_disruption::{Decision, LedgerEntry};
use whittle_model::disruption::{Command, Method, Reason};
use whittle_ports::{Report, metrics};
use whittle_snapshot::Snapshot;
use whittle_units::{Price, Quantity, SignedDuration};

/// How often state gauges are emitted: passes are more frequent than useful.
pub(crate) const STATES_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// A command was started.
pub(crate) fn command_started(report: &mut Report, snapshot: &Snapshot, command: &Command) {
    let (action, kind) = (command.action().as_str(), command.method.consolidation_type());
    let reason = reason_label(command.method.reason());
    report.metric(metrics::Decisions { decision: action, reason, consolidation_type: kind });
    let mut pools: Vec<&str> = command.removals.iter().map(|removal| removal.node_pool.as_str()).collect();
    pools.sort_unstable();
    pools.dedup();
    for pool in pools {
        report.metric(metrics::DecisionsByNodePool { decision: action, reason, consolidation_type: kind, nodepool: pool });
    }
    for removal in &command.removals {
        let claim = find_claim(snapshot, &removal.node_claim.as_str().into());
        let (nodepool, capacity_type) = (removal.node_pool.as_str(), removal.capacity_type.as_str());
        let consolidation_policy = policy_label(snapshot, command.method, nodepool);
        let termination_mode = claim.map_or("", |claim| claim.value.termination_mode());
        report.metric(metrics::NodeClaimsDisrupted { reason, nodepool, capacity_type, consolidation_policy, termination_mode });
        let pods = metrics::PodsDisruptionInitiated { reason, nodepool, capacity_type, consolidation_policy, termination_mode };
        report.metric_by(pods, u64::try_from(removal.pods.len()).unwrap_or(u64::MAX));
    }
    for new in &command.replacements {
        claim_created(report, reason, &new.node_pool, new.annotations.get(whittle_api::labels::MIN_VALUES_RELAXED));
    }
}

/// A claim was created.
pub(crate) fn claim_created(report: &mut Report, reason: &str, pool: &str, relaxed: Option<&String>) {
    let min_values_relaxed = relaxed.map_or("false", String::as_str);
    report.metric(metrics::NodeClaimsCreated { reason, nodepool: pool, min_values_relaxed });
}

/// A command was rolled back: counts the replacements that never initialized.
pub(crate) fn command_failed(report: &mut Report, snapshot: &Snapshot, running: &Running) {
    let ready = |claim: &whittle_claims::Claim| matches!(claim.phase, Phase::Initialized { .. });
    let lost =
        running.replacements.iter().filter(|new| find_claim(snapshot, &new.key.name).is_none_or(|claim| !ready(&claim.value))).count();
    let failures = metrics::QueueFailures {
        decision: running.ledger.action.as_str(),
        reason: reason_label(running.method.reason()),
        consolidation_type: running.method.consolidation_type(),
    };
    report.metric_by(failures, u64::try_from(lost).unwrap_or(u64::MAX));
}

/// Nodes that are kept although a proposed command included them.
pub(crate) fn validation_failed(report: &mut Report, method: Method, nodes: usize) {
    if nodes > 0 {
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
        report.metric_by(metrics::FailedValidations { consolidation_type: method.consolidation_type() }, nodes);
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
        report.gauge(metrics::DecisionEvaluationDuration { reason, consolidation_type: kind }, span);
    }
    for pool_score in &decision.scores {
        let decision = if pool_score.approved { "approved" } else { "rejected" };
        let (nodepool, policy) = (pool_score.node_pool.as_str(), policy_name(pool_score.policy));
        report.metric(metrics::ConsolidationMoves { decision, nodepool, policy });
        if let Some(score) = pool_score.score {
            let score = Quantity::from_milli(i64::try_from(score).unwrap_or(i64::MAX));
            report.gauge(metrics::ConsolidationScore { decision, nodepool, policy }, score);
        }
    }
    for method in &decision.timeouts {
        report.metric(metrics::ConsolidationTimeouts { consolidation_type: method.consolidation_type() });
    }
}

/// Savings of a command in dollars per hour; zero if it costs more.
pub(crate) fn savings(report: &mut Report, entry: &LedgerEntry) {
    let saved = entry.before_nanos.nanos().saturating_sub(entry.after_nanos.nanos());
    report.gauge(metrics::SavedDollarsPerHour { nodepool: &entry.node_pools.join(",") }, Price::from_nanos(saved));
}

/// Eligible nodes by reason, and the disruptions that budgets allow.
pub(crate) fn states(report: &mut Report, decision: &Decision) {
    for method in [Method::MultiNode, Method::SingleNode] {
        // So that the metric exists before the first timeout.
        report.metric_by(metrics::ConsolidationTimeouts { consolidation_type: method.consolidation_type() }, 0);
    }
    for reason in [Reason::Empty, Reason::Drifted, Reason::Underutilized] {
        // Both kinds of drift are summed; of the two searches for underutilized nodes the larger count is used.
        let of_reason = decision.eligible.iter().filter(|(method, _)| method.reason() == reason).map(|(_, count)| *count);
        let eligible = if reason == Reason::Drifted { of_reason.sum() } else { of_reason.max().unwrap_or(0) };
        report.gauge(metrics::EligibleNodes { reason: reason_label(reason) }, u64::try_from(eligible).unwrap_or(u64::MAX));
    }
    for state in &decision.budgets {
        let (nodepool, reason) = (state.node_pool.as_str(), state.reason.as_str());
        report.gauge(metrics::NodePoolsAllowedDisruptions { nodepool, reason }, state.allowed().into());
        report.gauge(metrics::NodePoolsNodesConsumingBudgets { nodepool, reason }, state.disrupting.into());
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
