//! Matching of instance types and offerings with a claim's requirements.
//!
//! One side here is always concrete: a type or an offering has a set of values per key, or the key does not exist. The
//! full algebra of two open sides belongs to the solver.

use std::collections::BTreeMap;
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::labels::normalized;

/// The requirements of a claim, by key.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a>(BTreeMap<&'a str, Vec<&'a Requirement>>);

impl<'a> Wanted<'a> {
    /// Groups requirements; deprecated keys are normalized.
    pub fn new(requirements: &'a [Requirement]) -> Self {
        let mut by_key: BTreeMap<&str, Vec<&Requirement>> = BTreeMap::new();
        for requirement in requirements {
            by_key.entry(normalized(&requirement.key)).or_default().push(requirement);
        }
        Self(by_key)
    }
    /// Whether a value of a key is allowed; unconstrained keys allow all.
    pub fn allows(&self, key: &str, value: &str) -> bool {
        self.0.get(key).is_none_or(|all| all.iter().all(|requirement| accepts(requirement, Some(value))))
    }
    /// Whether a key is constrained at all.
    pub fn names(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
    /// Whether each key on both sides has a common value. Keys on one side only do not matter: EC2
    /// does not define the user's own labels.
    pub fn meets(&self, offered: &[Requirement]) -> bool {
        offered.iter().all(|requirement| {
            let Some(wanted) = self.0.get(requirement.key.as_str()) else { return true };
            match requirement.operator {
                Operator::In => requirement.values.iter().any(|value| wanted.iter().all(|each| accepts(each, Some(value)))),
                Operator::DoesNotExist => wanted.iter().all(|each| accepts(each, None)),
                _ => false,
            }
        })
    }
    /// Whether a requirement of a key excludes some of its values.
    pub fn restricts(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|all| all.iter().any(|requirement| requirement.operator != Operator::Exists))
    }
    /// Keys with `minValues`.
    pub fn min_values(&self) -> impl Iterator<Item = (&'a str, u32)> {
        self.0.iter().filter_map(|(key, all)| Some((*key, all.iter().filter_map(|requirement| requirement.min_values).max()?)))
    }
}

/// Whether one requirement accepts a value, or the absence of the label.
fn accepts(requirement: &Requirement, value: Option<&str>) -> bool {
    let Some(value) = value else { return matches!(requirement.operator, Operator::NotIn | Operator::DoesNotExist) };
    let bound = || requirement.values.first()?.parse::<i64>().ok().zip(value.parse::<i64>().ok());
    match requirement.operator {
        Operator::In => requirement.values.iter().any(|each| each == value),
        Operator::NotIn => requirement.values.iter().all(|each| each != value),
        Operator::Exists => true,
        Operator::DoesNotExist => false,
        Operator::Gt => bound().is_some_and(|(bound, value)| value > bound),
        Operator::Lt => bound().is_some_and(|(bound, value)| value < bound),
        Operator::Gte => bound().is_some_and(|(bound, value)| value >= bound),
        Operator::Lte => bound().is_some_and(|(bound, value)| value <= bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: key.into(), operator, values: values.iter().map(|value| (*value).into()).collect(), min_values: None }
    }

    #[test]
    fn a_common_value_must_satisfy_every_requirement_of_its_key() {
        let offered = [of("zone", Operator::In, &["a", "b"]), of("cpu", Operator::In, &["8"]), of("gpu", Operator::DoesNotExist, &[])];
        #[track_caller]
        fn check(offered: &[Requirement], wanted: &[Requirement], meets: bool) {
            assert_eq!(Wanted::new(wanted).meets(offered), meets, "{wanted:?}");
        }
        check(&offered, &[], true);
        check(&offered, &[of("zone", Operator::In, &["b", "c"])], true);
        check(&offered, &[of("zone", Operator::In, &["b", "c"]), of("zone", Operator::NotIn, &["b"])], false);
        check(&offered, &[of("zone", Operator::Exists, &[])], true);
        check(&offered, &[of("zone", Operator::DoesNotExist, &[])], false);
        check(&offered, &[of("cpu", Operator::Gt, &["4"]), of("cpu", Operator::Lt, &["9"])], true);
        check(&offered, &[of("cpu", Operator::Gte, &["9"])], false);
        check(&offered, &[of("cpu", Operator::Lte, &["8"])], true);
        check(&offered, &[of("gpu", Operator::Exists, &[])], false);
        check(&offered, &[of("gpu", Operator::NotIn, &["t4"])], true);
        check(&offered, &[of("team", Operator::In, &["blue"])], true);
        check(
            &[of("topology.kubernetes.io/zone", Operator::In, &["a"])],
            &[of("failure-domain.beta.kubernetes.io/zone", Operator::In, &["b"])],
            false,
        );
    }
}
