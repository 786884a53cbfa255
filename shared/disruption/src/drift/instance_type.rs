//! Whether the catalog still offers the machine (disruption 13.4).

use crate::cluster_view::{ClusterView, Machine};
use jiff::SignedDuration;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{NodeClaim, NodePool, ResolvedAmi};
use whittle_api::labels;
use whittle_model::requirements::{from_labels, from_requirements};

/// Younger claims are not checked: the catalog may lag behind a launch.
const TRUSTED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How long a machine that was found is not checked again.
const RECHECK_AFTER: SignedDuration = SignedDuration::from_mins(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CatalogCheck {
    /// Too young, or found recently.
    Skipped,
    Found,
    /// Not among the types of the pool because the class has no image for it. Karpenter's list has such types.
    WithoutImage,
    Missing,
}

pub(super) fn check_catalog(view: &ClusterView<'_>, machine: &Machine<'_>, claim: &NodeClaim, pool: &NodePool) -> CatalogCheck {
    let younger_than = |since: whittle_units::Timestamp, span| view.now().duration_since(since) < span;
    let young = claim.metadata.creation_timestamp.is_none_or(|created| view.now().duration_since(created) <= TRUSTED_FOR);
    let recently_found = machine.facts.type_seen_at.is_some_and(|at| younger_than(at, RECHECK_AFTER));
    if young || recently_found || !view.has_types(&pool.metadata.name) {
        // A pool without any types means an unreadable catalog, which tells nothing about the machine.
        return CatalogCheck::Skipped;
    }
    let instance_type = claim.metadata.label(labels::INSTANCE_TYPE).and_then(|name| view.instance_type(&pool.metadata.name, name));
    let offered = instance_type.is_some_and(|instance_type| is_offered(instance_type, claim));
    if offered {
        CatalogCheck::Found
    } else if lacks_image(view, claim, pool) {
        CatalogCheck::WithoutImage
    } else {
        CatalogCheck::Missing
    }
}

/// Whether the pool's class has images, and all are for other machines.
fn lacks_image(view: &ClusterView<'_>, claim: &NodeClaim, pool: &NodePool) -> bool {
    let Some(class) = pool.class_in(&view.input.cluster.objects.node_classes) else { return false };
    let images = &class.status.amis;
    let machine = from_labels(&claim.metadata.labels);
    let boots = |image: &ResolvedAmi| machine.compatible(&from_requirements(&image.requirements), |_| false).is_ok();
    !images.is_empty() && claim.metadata.label(labels::ARCH).is_some() && !images.iter().any(boots)
}

fn is_offered(instance_type: &InstanceType, claim: &NodeClaim) -> bool {
    let mut claim_labels = claim.metadata.labels.clone();
    let reserved = claim_labels.get(labels::CAPACITY_TYPE).is_some_and(|capacity| capacity == labels::CAPACITY_RESERVED);
    if reserved {
        // When a reservation ends, its instance continues as on-demand.
        for key in [labels::CAPACITY_TYPE, labels::RESERVATION_ID, labels::RESERVATION_TYPE, labels::RESERVATION_INTERRUPTIBLE] {
            claim_labels.remove(key);
        }
    }
    let claim_labels = from_labels(&claim_labels);
    let is_compatible = |offering: &Offering| {
        let capacity_type_fits = !reserved || matches!(offering.capacity_type(), labels::CAPACITY_RESERVED | labels::CAPACITY_ON_DEMAND);
        let may_be_undefined = |key: &String| reserved || labels::WELL_KNOWN.contains(&key.as_str());
        capacity_type_fits && claim_labels.compatible(&from_requirements(&offering.requirements), may_be_undefined).is_ok()
    };
    instance_type.offerings.iter().any(is_compatible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::karpenter::Requirement;

    fn offering(capacity_type: &str, zone: &str) -> Offering {
        let mut requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]), Requirement::is_in(labels::ZONE, [zone])];
        if capacity_type == labels::CAPACITY_RESERVED {
            requirements.push(Requirement::is_in(labels::RESERVATION_ID, ["cr-2"]));
        }
        Offering { requirements, ..Offering::default() }
    }

    #[track_caller]
    fn check(claim_capacity: &str, offerings: &[(&str, &str)], want: bool) {
        let mut claim = NodeClaim::default();
        let mut labels = vec![(labels::CAPACITY_TYPE, claim_capacity), (labels::ZONE, "a")];
        if claim_capacity == labels::CAPACITY_RESERVED {
            labels.push((labels::RESERVATION_ID, "cr-1"));
        }
        claim.metadata.labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let offerings = offerings.iter().map(|(capacity, zone)| offering(capacity, zone)).collect();
        let instance_type = InstanceType { offerings, ..InstanceType::default() };
        assert_eq!(is_offered(&instance_type, &claim), want, "{claim_capacity}");
    }

    #[test]
    fn a_machine_is_found_by_its_zone_and_capacity_type() {
        check("spot", &[("spot", "a")], true);
        check("spot", &[("spot", "b"), ("on-demand", "a")], false);
        check("spot", &[], false);
    }

    #[test]
    fn a_reserved_machine_may_have_become_on_demand() {
        check("reserved", &[("on-demand", "a")], true);
        check("reserved", &[("reserved", "a")], true);
        check("reserved", &[("spot", "a")], false);
        check("reserved", &[("on-demand", "b")], false);
    }
}
