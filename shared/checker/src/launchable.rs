//! What a NodeClaim may be launched as: types, offerings, and the labels that its machine may get.

use super::kube::{self, PossibleLabels};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::Pod;
use whittle_api::karpenter::{NodePool, Requirement};
use whittle_api::labels;
use whittle_model::scheduling::NewClaim;

/// Limit on the instance types that a claim may list.
pub(super) const TYPES_MAX: usize = 600;

/// Whether an instance type or offering with requirements `has` satisfies `required`.
pub(super) fn is_compatible(required: &[Requirement], has: &[Requirement]) -> bool {
    required.iter().all(|a| {
        let with_key: Vec<&Requirement> = has.iter().filter(|h| labels::normalized(&h.key) == a.key).collect();
        with_key.iter().all(|h| match h.operator.as_str() {
            "In" => h.values.iter().any(|v| kube::admits(a.operator.as_str(), &a.values, Some(v))),
            "DoesNotExist" => kube::admits(a.operator.as_str(), &a.values, None),
            _ => true,
        })
    })
}

/// Whether the claim may launch only into reservations.
pub(super) fn is_reserved(claim: &NewClaim) -> bool {
    claim.requirements.iter().any(|r| r.key == labels::CAPACITY_TYPE && r.values == [labels::CAPACITY_RESERVED])
}

/// The claim's requirements on its instance types. A claim for reservations also lists types without one;
/// [`launchable`] excludes their offerings.
pub(super) fn type_requirements(claim: &NewClaim) -> Vec<Requirement> {
    let of_offering = |r: &&Requirement| is_reserved(claim) && [labels::CAPACITY_TYPE, labels::RESERVATION_ID].contains(&r.key.as_str());
    claim.requirements.iter().filter(|r| !of_offering(r)).cloned().collect()
}

pub(super) fn launchable<'c>(claim: &NewClaim, instance_type: &'c InstanceType) -> Vec<&'c Offering> {
    if !is_compatible(&claim.requirements, &instance_type.requirements) {
        return Vec::new();
    }
    // Nothing is dedicated that does not ask for it.
    let names_tenancy = claim.requirements.iter().any(|r| r.key == labels::INSTANCE_TENANCY);
    let is_open = |o: &&Offering| o.available && (names_tenancy || !o.is_dedicated());
    instance_type.offerings.iter().filter(|o| is_open(o) && is_compatible(&claim.requirements, &o.requirements)).collect()
}

/// Whether the daemon certainly runs on the machine. For daemons that only may run, the solver decides.
pub(super) fn runs_on(daemon: &Pod, claim: &NewClaim, possible: &PossibleLabels) -> bool {
    claim.taints.iter().all(|t| kube::tolerates(daemon, t)) && kube::node_fits(daemon, possible)
}

/// All values that the machine's labels may have, for the keys in `label_keys`.
pub(super) fn possible_labels(
    claim: &NewClaim,
    pool: &NodePool,
    instance_type: &InstanceType,
    offerings: &[&Offering],
    label_keys: &BTreeSet<String>,
) -> PossibleLabels {
    let mut out: PossibleLabels = BTreeMap::new();
    for (key, value) in claim.labels.iter().chain(&pool.spec.template.metadata.labels).filter(|(key, _)| label_keys.contains(*key)) {
        out.entry(key.clone()).or_default().insert(Some(value.clone()));
    }
    if label_keys.contains(labels::HOSTNAME) {
        // The hostname is not known before launch, so no selector may match it.
        out.insert(labels::HOSTNAME.to_owned(), BTreeSet::from([Some("?".to_owned())]));
    }
    for key in [labels::REGISTERED, labels::INITIALIZED].into_iter().filter(|key| label_keys.contains(*key)) {
        out.entry(key.to_owned()).or_default().insert(Some("true".to_owned()));
    }
    let narrowed = |key: &str, value: &str| {
        claim.requirements.iter().filter(|r| r.key == key).all(|r| kube::admits(r.operator.as_str(), &r.values, Some(value)))
    };
    for r in &instance_type.requirements {
        let key = labels::normalized(&r.key);
        if !label_keys.contains(key) {
            continue;
        }
        // An offering that says nothing of it may have any value of the type: of tenancies those in reservations have one, and no others.
        let says = |o: &&Offering| o.requirements.iter().any(|x| labels::normalized(&x.key) == key);
        let by_offering = !offerings.is_empty() && offerings.iter().all(says);
        if r.operator.as_str() == "In" && !by_offering {
            let values = r.values.iter().filter(|v| narrowed(key, v)).cloned().map(Some);
            out.entry(key.to_owned()).or_default().extend(values);
        }
    }
    for o in offerings {
        for r in o.requirements.iter().filter(|r| r.operator.as_str() == "In" && label_keys.contains(labels::normalized(&r.key))) {
            let values = r.values.iter().cloned().map(Some);
            out.entry(labels::normalized(&r.key).to_owned()).or_default().extend(values);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_names_no_tenancy_is_not_launched_in_a_reservation_for_dedicated_machines() {
        let of_tenancy = |tenancies: &[&str]| vec![Requirement::is_in(labels::INSTANCE_TENANCY, tenancies.iter().copied())];
        let offering = |tenancy: &str| Offering { requirements: of_tenancy(&[tenancy]), available: true, ..Offering::default() };
        let offerings = vec![offering("dedicated"), offering("default")];
        let instance_type = InstanceType { requirements: of_tenancy(&["dedicated", "default"]), offerings, ..InstanceType::default() };
        let launched = |requirements: Vec<Requirement>| -> Vec<String> {
            let claim = NewClaim { requirements, ..NewClaim::default() };
            let found = launchable(&claim, &instance_type);
            found.into_iter().filter_map(|offering| offering.label(labels::INSTANCE_TENANCY)).map(str::to_owned).collect()
        };
        assert_eq!(launched(Vec::new()), ["default"]);
        assert_eq!(launched(of_tenancy(&["dedicated"])), ["dedicated"]);
        assert_eq!(launched(of_tenancy(&["default"])), ["default"]);
        assert_eq!(launched(of_tenancy(&["dedicated", "default"])), ["dedicated", "default"]);
    }

    /// A machine on demand may have either tenancy, whichever a reservation is for.
    #[test]
    fn a_label_that_only_some_offerings_name_may_have_any_value_of_the_type() {
        let of_tenancy = |tenancies: &[&str]| vec![Requirement::is_in(labels::INSTANCE_TENANCY, tenancies.iter().copied())];
        let reserved = Offering { requirements: of_tenancy(&["dedicated"]), ..Offering::default() };
        let on_demand = Offering::default();
        let instance_type = InstanceType { requirements: of_tenancy(&["dedicated", "default"]), ..InstanceType::default() };
        let keys = BTreeSet::from([labels::INSTANCE_TENANCY.to_owned()]);
        let values = |claim: &NewClaim, offerings: &[&Offering]| -> Vec<String> {
            let found = possible_labels(claim, &NodePool::default(), &instance_type, offerings, &keys);
            found[labels::INSTANCE_TENANCY].iter().flatten().cloned().collect()
        };
        let any = NewClaim::default();
        assert_eq!(values(&any, &[&reserved]), ["dedicated"]);
        assert_eq!(values(&any, &[&reserved, &on_demand]), ["dedicated", "default"]);
        assert_eq!(values(&any, &[]), ["dedicated", "default"]);
        let narrowed = NewClaim { requirements: of_tenancy(&["default"]), ..NewClaim::default() };
        assert_eq!(values(&narrowed, &[&on_demand]), ["default"]);
    }
}
