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

    #[test]
    fn a_claim_that_is_made_for_a_static_pool_has_not_drifted() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let team = |operator, values: &[&str]| Requirement { operator, ..Requirement::is_in("team", values.iter().copied()) };
        let restricted = Requirement::is_in("karpenter.sh/odd", ["a"]);
        for (requirements, expected) in [
            (vec![team(In, &["b", "a"])], Some("a")),
            (vec![team(Exists, &[])], Some("0")),
            (vec![team(NotIn, &["0", "1"])], Some("2")),
            (vec![team(Gt, &["7"])], Some("8")),
            (vec![team(Lt, &["7"])], Some("0")),
            (vec![team(DoesNotExist, &[])], None),
            (vec![team(In, &["a", "b"]), team(NotIn, &["a"])], Some("b")),
            (vec![restricted, Requirement::is_in("karpenter.k8s.aws/instance-cpu", ["4"])], None),
        ] {
            let mut pool = NodePool::default();
            pool.spec.template.spec.requirements = requirements;
            let made = crate::static_pools::claim_from_template(&pool);
            assert_eq!(made.labels.get("team").map(String::as_str), expected);
            assert!(!made.labels.keys().any(|key| key.contains("odd") || key.contains("instance-cpu")), "{:?}", made.labels);
            let mut claim = NodeClaim::default();
            claim.metadata.labels = made.labels.into();
            pool.spec.template.spec.requirements.retain(|requirement| requirement.key == "team");
            assert!(!have_drifted(&claim, &pool), "{:?}", pool.spec.template.spec.requirements);
        }
        let mut pool = NodePool::default();
        pool.spec.template.spec.requirements = vec![team(In, &["a", "b"])];
        pool.spec.template.metadata.labels.insert("team".into(), "b".into());
        assert_eq!(crate::static_pools::claim_from_template(&pool).labels["team"], "b", "the template's own label");
    }
}
