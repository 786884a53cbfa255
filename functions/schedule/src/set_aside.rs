//! Machines of a plan that are launched in another way, or not at all. Pure.

use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_model::requirements::from_requirements;
use whittle_model::scheduling::{LeftOut, NewClaim, Offer, Plan, Reason};
use whittle_ports::Report;
use whittle_snapshot::{QuotaFit, QuotaRoom, Snapshot, is_usable};
use whittle_units::Price;

/// Takes the machines out of a plan for which there is a reason. Their pods are left out.
pub(crate) fn set_aside(plan: &mut Plan, mut why: impl FnMut(&mut NewClaim) -> Option<Reason>) {
    let mut left_out = Vec::new();
    plan.claims.retain_mut(|new| {
        let Some(reason) = why(new) else { return true };
        left_out.extend(new.pods.iter().map(|pod| LeftOut { pod: pod.clone(), reason: reason.clone() }));
        false
    });
    if !left_out.is_empty() {
        plan.left_out.append(&mut left_out);
        plan.left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
    }
}

/// Takes the machines out that are more than what a quota of the account may have left. After EC2 has refused a large machine smaller ones
/// are planned for all of its pods, where hardly one can start. Those that may be launched with another capacity type are: their pods need
/// not wait until the quota has refused the smallest.
pub(crate) fn over_quota(plan: &mut Plan, snapshot: &Snapshot, report: &mut Report) {
    let mut room = QuotaRoom::of(snapshot);
    set_aside(plan, |new| match room.take(new, snapshot) {
        QuotaFit::AsPlanned => None,
        QuotaFit::As(capacity_type) => {
            report.count("beside_quota");
            narrow(new, capacity_type, snapshot);
            None
        }
        QuotaFit::Over(capacity_type) => {
            report.count("over_quota");
            Some(Reason::OverQuota { capacity_type: capacity_type.to_owned() })
        }
    });
}

/// Has a machine launched with one capacity type, at its prices.
fn narrow(new: &mut NewClaim, capacity_type: &str, snapshot: &Snapshot) {
    let only = Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]);
    match new.requirements.iter().position(|known| known.key == only.key) {
        Some(at) => new.requirements[at] = only,
        None => {
            let at = new.requirements.partition_point(|known| known.key < only.key);
            new.requirements.insert(at, only);
        }
    }
    let Some(types) = snapshot.catalog.get(&new.node_pool) else { return };
    let wanted = from_requirements(&new.requirements);
    let mut offers: Vec<(Price, &str, &str)> = Vec::new();
    for known in new.instance_types.iter().filter_map(|name| types.find(name)) {
        let usable = known.offerings.iter().filter(|offering| is_usable(offering, &wanted));
        offers.extend(usable.map(|offering| (offering.price, known.name.as_str(), offering.zone())));
    }
    offers.sort_unstable();
    new.offerings = offers.len();
    let Some((cheapest, best, _)) = offers.first().copied() else { return };
    new.cheapest_price = cheapest;
    let offer = |(price, instance_type, zone): &(Price, &str, &str)| Offer {
        instance_type: (*instance_type).to_owned(),
        zone: (*zone).to_owned(),
        capacity_type: capacity_type.to_owned(),
        price: *price,
    };
    new.why.cheapest = offers.first().map(offer);
    new.why.next_offer = offers.get(1).map(offer);
    let other = offers.iter().find(|(_, instance_type, _)| *instance_type != best);
    new.why.next_best = other.map(|(price, instance_type, _)| ((*instance_type).to_owned(), *price));
}
