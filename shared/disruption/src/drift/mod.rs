//! Whether a machine still matches its NodePool and node class (disruption 13). One file per reason.

mod cloud;
mod instance_type;
mod requirements;
mod static_hash;

pub use cloud::{MachineFacts, NodeClassFacts, cloud_drift};

use super::cluster_view::{ClusterView, Machine};
use instance_type::CatalogCheck;
use whittle_api::conditions;
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_model::disruption::CloudDrift;

/// The NodePool's template has changed.
const NODE_POOL_DRIFTED: &str = "NodePoolDrifted";
/// The labels of the claim no longer satisfy the NodePool's requirements.
const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
/// The catalog no longer offers the machine.
const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";

/// The first reason that applies.
pub(crate) fn reason(view: &ClusterView<'_>, machine: &Machine<'_>, claim: &NodeClaim, pool: &NodePool) -> Option<String> {
    if !conditions::is_true(&claim.status.conditions, conditions::LAUNCHED) {
        return None;
    }
    if static_hash::has_drifted(claim, pool) {
        return Some(NODE_POOL_DRIFTED.to_owned());
    }
    if requirements::have_drifted(claim, pool) {
        return Some(REQUIREMENTS_DRIFTED.to_owned());
    }
    let cloud_reason = match &machine.facts.cloud_drift {
        Some(drift) => drift.reason().map(str::to_owned),
        None => stored_cloud_reason(claim),
    };
    match instance_type::check_catalog(view, machine, claim, pool) {
        CatalogCheck::Found | CatalogCheck::Skipped => cloud_reason,
        CatalogCheck::WithoutImage => cloud_reason.or_else(|| CloudDrift::Ami.reason().map(str::to_owned)),
        CatalogCheck::Missing => Some(INSTANCE_TYPE_NOT_FOUND.to_owned()),
    }
}

/// The reason of an earlier `Drifted` condition, if only the cloud can have found it.
fn stored_cloud_reason(claim: &NodeClaim) -> Option<String> {
    let pool_reasons = [NODE_POOL_DRIFTED, REQUIREMENTS_DRIFTED, INSTANCE_TYPE_NOT_FOUND];
    let condition = conditions::find(&claim.status.conditions, conditions::DRIFTED)?;
    let is_cloud_reason = condition.status == whittle_api::ConditionStatus::True && !pool_reasons.contains(&condition.reason.as_str());
    is_cloud_reason.then(|| condition.reason.clone())
}
