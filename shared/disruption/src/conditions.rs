//! The NodeClaim conditions that disruption writes (disruption 12): `Consolidatable` and `Drifted`.

use super::cluster_view::{ClusterView, Machine};
use super::drift;
use super::verdict::KeepReason;
use whittle_api::conditions;
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_units::Timestamp;

/// The desired conditions of a NodeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimConditions {
    pub node_claim: String,
    /// When false, the condition is to be removed.
    pub consolidatable: bool,
    /// The reason of the condition; `None` when the claim has not drifted.
    pub drifted: Option<String>,
    /// Whether the claim's stored conditions differ.
    pub changed: bool,
}

/// Evaluates the conditions of one claim. `None` for claims that are unmanaged, being deleted, or of an unknown pool.
pub(crate) fn evaluate(view: &ClusterView<'_>, machine: &Machine<'_>) -> Option<ClaimConditions> {
    let claim = machine.claim()?;
    let pool = view.pool(claim.node_pool()?)?;
    if !machine.is_managed() || claim.metadata.is_deleting() {
        return None;
    }
    let drifted = drift::reason(view, machine, claim, pool);
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
        changed: drift_changed || consolidatable_changed,
    })
}

/// Checks that `consolidateAfter` has passed since the last pod event.
pub(crate) fn check_consolidate_after(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Result<(), KeepReason> {
    let Some(wait) = pool.spec.disruption.consolidate_after.span() else {
        return Err(KeepReason::ConsolidationDisabled { pool: pool.metadata.name.clone() });
    };
    if !conditions::is_true(&claim.status.conditions, conditions::INITIALIZED) {
        return Err(KeepReason::ConsolidateAfter { until: None, empty_for: None });
    }
    if !wait.is_positive() {
        return Ok(());
    }
    let since = last_pod_activity(claim).ok_or(KeepReason::ConsolidateAfter { until: None, empty_for: None })?;
    match since.checked_add(wait) {
        Ok(until) if until <= now => Ok(()),
        Ok(until) => Err(KeepReason::ConsolidateAfter { until: Some(until), empty_for: None }),
        Err(_) => Err(KeepReason::ConsolidateAfter { until: None, empty_for: None }),
    }
}

/// Time of the last pod event, or of initialization.
pub(crate) fn last_pod_activity(claim: &NodeClaim) -> Option<Timestamp> {
    let initialized = || conditions::find(&claim.status.conditions, conditions::INITIALIZED)?.last_transition_time;
    claim.status.last_pod_event_time.or_else(initialized)
}
