//! Machines at the end of their lifetime: they go whatever consolidation decides.

use crate::source::Manifests;
use crate::source::remarks::Remark;
use whittle_api::karpenter::NodeClaim;
use whittle_disruption::{Expiry, expiry};

/// A note for each machine that has expired.
pub(super) fn remarks(read: &Manifests) -> Vec<Remark> {
    let due = |claim: &&NodeClaim| expiry(claim, read.settings.now) == Expiry::Due;
    let told = |claim: &NodeClaim| Remark::note(format!("NodeClaim {} {EXPIRED}", claim.metadata.name));
    read.objects.node_claims.iter().filter(due).map(told).collect()
}

const EXPIRED: &str =
    "has expired (spec.expireAfter): its node is drained whatever budgets and verdicts say, and replaced once its pods wait";

/// When the machine of this Node or NodeClaim expires; empty if it never does.
pub(crate) fn line(name: &str, read: &Manifests) -> String {
    let is_meant = |claim: &&NodeClaim| claim.metadata.name == name || claim.status.node_name == name;
    match read.objects.node_claims.iter().find(is_meant).map(|claim| expiry(claim, read.settings.now)) {
        Some(Expiry::Due) => format!("  it {EXPIRED}\n"),
        Some(Expiry::At(at)) => format!("  it expires at {at:.0} (spec.expireAfter of its NodeClaim)\n"),
        Some(Expiry::None) | None => String::new(),
    }
}
