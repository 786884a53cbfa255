//! The conditions of NodeClaims that disruption writes (disruption 12): when a node is quiet long enough, and whether it
//! has drifted.

use super::cluster_view::{ClusterView, Machine};
use super::drift;
use super::verdict::Keep;
use whittle_api::conditions;
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_units::Timestamp;

/// What the conditions of a claim should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimConditions {
    pub node_claim: String,
    /// `None`: the condition is to be absent.
    pub consolidatable: bool,
    /// The reason, when it has drifted.
    pub drifted: Option<String>,
    /// The instance type was found in the catalog in this pass: to be remembered as `type_seen_at`.
    pub type_seen: bool,
    /// Something of it differs from what the claim says now.
    pub changed: bool,
}

/// Evaluates the conditions of one claim. `None` for claims that are not ours, going, or of an unknown pool.
pub(crate) fn evaluate(view: &ClusterView<'_>, machine: &Machine<'_>) -> Option<ClaimConditions> {
    let claim = machine.claim()?;
    let pool = view.pool(claim.node_pool()?)?;
    if !machine.is_managed() || claim.metadata.is_deleting() {
        return None;
    }
    let (drifted, type_seen) = drift::reason(view, machine, claim, pool);
    let consolidatable = !pool.is_static() && check_consolidate_after(claim, pool, view.now()).is_ok();
    let stored = |type_| conditions::find(&claim.status.conditions, type_);
    let drift_changed = match (stored(conditions::DRIFTED), &drifted) {
        (Some(condition), Some(reason)) => {
            condition.reason != *reason || !conditions::is_true(&claim.status.conditions, conditions::DRIFTED)
        }
        (None, None) => false,
        _ => true,
    };
    let consolidatable_changed = match stored(conditions::CONSOLIDATABLE) {
        Some(_) => consolidatable != conditions::is_true(&claim.status.conditions, conditions::CONSOLIDATABLE) || !consolidatable,
        None => consolidatable,
    };
    Some(ClaimConditions {
        node_claim: claim.metadata.name.clone(),
        consolidatable,
        drifted,
        type_seen,
        changed: drift_changed || consolidatable_changed,
    })
}

/// Whether no pod came or went for as long as the pool asks.
pub(crate) fn check_consolidate_after(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Result<(), Keep> {
    let Some(wait) = pool.spec.disruption.consolidate_after.span() else {
        return Err(Keep::ConsolidationOff { pool: pool.metadata.name.clone() });
    };
    if !conditions::is_true(&claim.status.conditions, conditions::INITIALIZED) {
        return Err(Keep::NotQuiet { until: None });
    }
    if !wait.is_positive() {
        return Ok(());
    }
    let since = last_pod_activity(claim).ok_or(Keep::NotQuiet { until: None })?;
    match since.checked_add(wait) {
        Ok(until) if until <= now => Ok(()),
        Ok(until) => Err(Keep::NotQuiet { until: Some(until) }),
        Err(_) => Err(Keep::NotQuiet { until: None }),
    }
}

/// The last pod event, or when the node was initialized.
pub(crate) fn last_pod_activity(claim: &NodeClaim) -> Option<Timestamp> {
    let initialized = || conditions::find(&claim.status.conditions, conditions::INITIALIZED)?.last_transition_time;
    claim.status.last_pod_event_time.or_else(initialized)
}
