//! The labels of the claim no longer satisfy the NodePool's requirements (disruption 13.3).

use crate::requirements::{from_labels, from_requirements};
use whittle_api::karpenter::{NodeClaim, NodePool};

pub(super) fn have_drifted(claim: &NodeClaim, pool: &NodePool) -> bool {
    let asked = from_requirements(&pool.spec.template.spec.requirements);
    from_labels(&claim.metadata.labels).compatible(&asked, |_| false).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::karpenter::{Operator, Requirement};

    #[track_caller]
    fn check(labels: &[(&str, &str)], key: &str, operator: Operator, values: &[&str], want: bool) {
        let (mut claim, mut pool) = (NodeClaim::default(), NodePool::default());
        claim.metadata.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        pool.spec.template.spec.requirements =
            vec![Requirement { operator, min_values: Some(9), ..Requirement::is_in(key, values.iter().copied()) }];
        assert_eq!(have_drifted(&claim, &pool), want, "{labels:?} under {key} {operator:?} {values:?}");
    }

    #[test]
    fn a_claim_drifts_when_its_labels_stop_fitting() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let spot = [("karpenter.sh/capacity-type", "spot")];
        let key = "karpenter.sh/capacity-type";
        check(&spot, key, In, &["spot", "on-demand"], false);
        check(&spot, key, In, &["on-demand"], true);
        check(&spot, key, NotIn, &["spot"], true);
        check(&spot, key, Exists, &[], false);
        check(&spot, key, DoesNotExist, &[], true);
        check(&spot, "kubernetes.io/arch", In, &["amd64"], true);
        check(&spot, "kubernetes.io/arch", Exists, &[], true);
        check(&spot, "kubernetes.io/arch", NotIn, &["amd64"], false);
        check(&spot, "kubernetes.io/arch", DoesNotExist, &[], false);
        let cpu = "karpenter.k8s.aws/instance-cpu";
        check(&[(cpu, "5")], cpu, Gt, &["2"], false);
        check(&[(cpu, "5")], cpu, Gt, &["10"], true);
        check(&[(cpu, "2")], cpu, Lt, &["5"], false);
        check(&[(cpu, "2")], cpu, Lt, &["1"], true);
        check(&spot, cpu, Gt, &["2"], true);
    }
}
