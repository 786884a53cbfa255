//! Machines at the end of their lifetime: they go whatever consolidation decides.

use crate::listing::first_named;
use crate::source::Manifests;
use crate::source::remarks::{NAMED_MAX, Remark, TOLD_EACH_MAX};
use whittle_api::karpenter::NodeClaim;
use whittle_disruption::{Expiry, expiry};

/// A note for each machine that has expired, or one for all if these are many.
pub(super) fn remarks(read: &Manifests) -> Vec<Remark> {
    let due = |claim: &&NodeClaim| expiry(claim, read.settings.now) == Expiry::Due;
    let expired: Vec<&str> = read.objects.node_claims.iter().filter(due).map(|claim| claim.metadata.name.as_str()).collect();
    if expired.len() <= TOLD_EACH_MAX {
        return expired.iter().map(|name| Remark::note(format!("NodeClaim {name} {EXPIRED}"))).collect();
    }
    vec![Remark::note(format!("NodeClaims {} {ALL_EXPIRED}", first_named(&expired, NAMED_MAX)))]
}

const EXPIRED: &str =
    "has expired (spec.expireAfter): its node is drained whatever budgets and verdicts say, and replaced once its pods wait";

const ALL_EXPIRED: &str =
    "have expired (spec.expireAfter): their nodes are drained whatever budgets and verdicts say, and replaced once their pods wait";

/// When the machine of this Node or NodeClaim expires; empty if it never does.
pub(crate) fn line(name: &str, read: &Manifests) -> String {
    let is_meant = |claim: &&NodeClaim| claim.metadata.name == name || claim.status.node_name == name;
    match read.objects.node_claims.iter().find(is_meant).map(|claim| expiry(claim, read.settings.now)) {
        Some(Expiry::Due) => format!("  it {EXPIRED}\n"),
        Some(Expiry::At(at)) => format!("  it expires at {at:.0} (spec.expireAfter of its NodeClaim)\n"),
        Some(Expiry::None) | None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read_text;

    /// What is said of so many machines that have expired, beside one that has not and one that never does.
    fn told(expired: usize) -> Vec<String> {
        let claim = |name: &str, after: &str| {
            format!(
                "---\n{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: {name}, creationTimestamp: \
                 '2000-01-01T00:00:00Z'}}, spec: {{expireAfter: {after}, requirements: [], nodeClassRef: {{group: karpenter.k8s.aws, \
                 kind: EC2NodeClass, name: a}}}}}}\n"
            )
        };
        let due: String = (0..expired).map(|at| claim(&format!("c-{at:02}"), "1h")).collect();
        let read = read_text("claims.yaml", &(due + &claim("later", "2000000h") + &claim("never", "Never"))).unwrap();
        remarks(&read).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn many_machines_that_have_expired_are_told_together() {
        assert_eq!(told(0), [""; 0]);
        assert_eq!(told(1), [format!("note: NodeClaim c-00 {EXPIRED}")]);
        assert_eq!(told(10).len(), 10);
        assert_eq!(told(11), [format!("note: NodeClaims c-00, c-01, c-02 and 8 more {ALL_EXPIRED}")]);
        assert_eq!(told(30), [format!("note: NodeClaims c-00, c-01, c-02 and 27 more {ALL_EXPIRED}")]);
    }
}
