//! Parts of a class that could not be looked up: each stays as it was resolved before. If an image or a subnet were dropped, the nodes that
//! use it would be replaced.

use crate::classes::Lookup;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::meta::Condition;
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::NodeClassRecord;
use whittle_ec2::node_class::Unanswered;
use whittle_ports::{CloudError, CloudErrorKind, ClusterEvent, Involved};

/// A call about a part of a class that failed.
pub(crate) struct FailedCall {
    /// The type of the part's condition.
    pub(crate) part: &'static str,
    pub(crate) error: CloudError,
}

/// Whether the record of a class stays as it is, because it has what the class no longer selects, and what it selects instead could not be
/// looked up. Launches wait meanwhile: the record is of an older generation.
pub(crate) fn keeps_record(class: &Ec2NodeClass, known: &NodeClassRecord, failed: &[FailedCall]) -> bool {
    let is_resolved = |part: &str| conditions::is_true(&known.class.status.conditions, part);
    failed.iter().any(|call| is_resolved(call.part) && !selects_the_same(call.part, &known.class, class))
}

/// Whether two classes select a part alike, by the type of its condition.
pub(crate) fn selects_the_same(part: &str, a: &Ec2NodeClass, b: &Ec2NodeClass) -> bool {
    let (a, b) = (&a.spec, &b.spec);
    match part {
        conditions::SUBNETS_READY => a.subnet_selector_terms == b.subnet_selector_terms,
        conditions::SECURITY_GROUPS_READY => a.security_group_selector_terms == b.security_group_selector_terms,
        conditions::AMIS_READY => (&a.ami_selector_terms, a.family()) == (&b.ami_selector_terms, b.family()),
        conditions::CAPACITY_RESERVATIONS_READY => a.capacity_reservation_selector_terms == b.capacity_reservation_selector_terms,
        conditions::PLACEMENT_GROUP_READY => a.placement_group_selector == b.placement_group_selector,
        conditions::INSTANCE_PROFILE_READY => (&a.role, &a.instance_profile) == (&b.role, &b.instance_profile),
        _ => false,
    }
}

/// The class and what was looked up for it, with the former values and conditions of what could not be.
pub(crate) fn keep(class: &Ec2NodeClass, mut lookup: Lookup, known: Option<&NodeClassRecord>) -> (Ec2NodeClass, Lookup) {
    let mut class = class.clone();
    for FailedCall { part, error } in std::mem::take(&mut lookup.failed) {
        let same = known.filter(|known| selects_the_same(part, &known.class, &class));
        let former = same.and_then(|known| conditions::find(&known.class.status.conditions, part));
        let former = former.filter(|former| former.status != ConditionStatus::Unknown);
        lookup.found.unanswered.insert(part, unanswered(&error, former));
        if let Some(known) = known {
            restore(part, known, &mut class, &mut lookup);
        }
    }
    (class, lookup)
}

/// Takes over what a record says of a part.
fn restore(part: &str, known: &NodeClassRecord, class: &mut Ec2NodeClass, lookup: &mut Lookup) {
    let (status, fence) = (&mut class.status, &mut lookup.fence);
    match part {
        conditions::SUBNETS_READY => {
            status.subnets.clone_from(&known.subnets);
            lookup.free_addresses.clone_from(&known.free_addresses);
        }
        conditions::SECURITY_GROUPS_READY => status.security_groups.clone_from(&known.security_groups),
        conditions::AMIS_READY => status.amis.clone_from(&known.amis),
        conditions::CAPACITY_RESERVATIONS_READY => {
            status.capacity_reservations.clone_from(&known.class.status.capacity_reservations);
        }
        conditions::INSTANCE_PROFILE_READY => {
            status.instance_profile = Some(known.instance_profile.clone()).filter(|name| !name.is_empty());
            if fence.role.is_none() {
                fence.role = known.fence.as_ref().and_then(|known| known.role.clone());
            }
        }
        _ => {}
    }
    if [conditions::SUBNETS_READY, conditions::SECURITY_GROUPS_READY].contains(&part) {
        // Which of them are of this part is not known: more fence a class in, never less.
        fence.vpcs.extend(known.fence.iter().flat_map(|known| known.vpcs.iter().cloned()));
        fence.vpcs.sort_unstable();
        fence.vpcs.dedup();
    }
}

fn unanswered(error: &CloudError, former: Option<&Condition>) -> Unanswered {
    let (reason, message) = match remedy(error) {
        Some(remedy) => (conditions::LOOKUP_REFUSED, format!("{error}: {remedy}")),
        None => (conditions::LOOKUP_FAILED, format!("{error}: it is looked up again within minutes")),
    };
    Unanswered { reason, message, former: former.cloned() }
}

/// The Event for a class whose lookup AWS refuses, for want of a permission or for what it asks; `None` after another error, which may
/// pass.
pub(crate) fn refused_event(class: &Ec2NodeClass, error: &CloudError) -> Option<ClusterEvent> {
    let remedy = remedy(error)?;
    let message = format!("{error}. Until this is fixed, the class keeps its last resolved state: {remedy}");
    Some(ClusterEvent::warning(Involved::object(class), conditions::LOOKUP_REFUSED, message))
}

/// What a user can do about an error; `None` about one that may pass.
fn remedy(error: &CloudError) -> Option<String> {
    match error.kind {
        CloudErrorKind::Unauthorized => Some(
            "allow this call for the role of refresh; list your own SSM parameters in the stack's parameter ImageParameters".to_owned(),
        ),
        CloudErrorKind::Invalid => Some(format!("correct {} of the class, which gave AWS what it refuses", field_of(error.call))),
        _ => None,
    }
}

/// The field of a class from which a call has its parameters.
fn field_of(call: &str) -> &'static str {
    match call {
        "DescribeImages" | "GetParameter" => "spec.amiSelectorTerms",
        "DescribeSubnets" => "spec.subnetSelectorTerms",
        "DescribeSecurityGroups" => "spec.securityGroupSelectorTerms",
        "DescribeCapacityReservations" => "spec.capacityReservationSelectorTerms",
        _ => "the spec",
    }
}
