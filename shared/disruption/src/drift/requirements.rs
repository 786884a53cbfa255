//! Whether the labels of the claim satisfy the NodePool's requirements (disruption 13.3).

use whittle_api::karpenter::{NodeClaim, NodePool, Operator, Requirement};
use whittle_model::requirements::{from_labels, from_requirements};

/// Requirements that nothing can satisfy, which the API server would have rejected, are ignored.
pub(super) fn have_drifted(claim: &NodeClaim, pool: &NodePool) -> bool {
    let satisfiable: Vec<Requirement> =
        pool.spec.template.spec.requirements.iter().filter(|requirement| is_satisfiable(requirement)).cloned().collect();
    let required = from_requirements(&satisfiable);
    from_labels(&claim.metadata.labels).compatible(&required, |_| false).is_err()
}

fn is_satisfiable(requirement: &Requirement) -> bool {
    let number = |text: &String| text.parse::<u64>().is_ok();
    let values = match requirement.operator {
        Operator::In => !requirement.values.is_empty(),
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            requirement.values.len() == 1 && requirement.values.iter().all(number)
        }
        Operator::NotIn | Operator::Exists | Operator::DoesNotExist => true,
    };
    !requirement.key.is_empty() && values
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // A requirement that nothing can satisfy is a mistake and causes no drift.
        check(&spot, cpu, Gt, &["many"], false);
        check(&spot, cpu, Lt, &["1", "2"], false);
        check(&spot, cpu, Lt, &["-1"], false);
        check(&spot, key, In, &[], false);
        check(&spot, "", In, &["spot"], false);
    }
}
