//! What EC2 says of machines in capacity reservations: which have left theirs, and which have to leave (lifecycle 10). Pure.

use crate::judge::{Findings, Seen, nodes_of};
use std::collections::BTreeSet;
use whittle_api::labels;
use whittle_claims::{Claim, NodeClassRecord};
use whittle_ec2::instance::Instance;
use whittle_units::{SignedDuration, Timestamp};

/// EC2 begins to end the machines of a capacity block half an hour before its end; their pods leave earlier.
const BEFORE_BLOCK_ENDS: SignedDuration = SignedDuration::from_mins(40);
/// What a class's record says of its reservations is believed for so long: a block may have been extended since. `refresh`
/// looks every minute.
const BELIEVED: SignedDuration = SignedDuration::from_mins(10);
/// Reservations are looked at again when the last look is so old; the tick of a minute must not miss it by a second.
const LOOKED_AT_EVERY: SignedDuration = SignedDuration::from_secs(50);

/// When EC2 takes back the capacity block that the claim's machine runs in, if that is known well enough to act on it.
pub(crate) fn block_to_leave(claim: &Claim, seen: &Seen<'_>) -> Option<Timestamp> {
    let id = claim.machine()?.labels.get(labels::RESERVATION_ID)?;
    let looked = seen.classes.iter().filter(|record| seen.now.duration_since(record.resolved_at) <= BELIEVED);
    let known = looked.flat_map(|record| {
        let blocks = record.class.status.capacity_reservations.iter().filter(|known| known.reservation_type == "capacity-block");
        blocks.filter(|known| known.id == *id).filter_map(|known| Some((record.resolved_at, known.end_time?)))
    });
    let (_, ends_at) = known.max_by_key(|(looked_at, _)| *looked_at)?;
    (ends_at.duration_since(seen.now) <= BEFORE_BLOCK_ENDS).then_some(ends_at)
}

/// Whether the reservations of some class have to be looked at.
pub(crate) fn are_due(seen: &Seen<'_>) -> bool {
    let named = |record: &&NodeClassRecord| {
        let terms = record.class.spec.capacity_reservation_selector_terms.as_deref();
        terms.is_some_and(|terms| !terms.is_empty()) && !record.class.metadata.is_deleting()
    };
    seen.classes.iter().filter(named).any(|record| seen.now.duration_since(record.resolved_at) >= LOOKED_AT_EVERY)
}

/// Claims and Nodes of machines that EC2 calls on-demand are not reserved any more, each on its own: one may have been changed
/// before the other.
pub(crate) fn left(seen: &Seen<'_>, out: &mut Findings) {
    let on_demand = |instance: &&Instance| instance.is_alive() && instance.capacity_type == labels::CAPACITY_ON_DEMAND;
    let instances: BTreeSet<&str> = seen.instances.iter().filter(on_demand).map(|instance| instance.id.as_str()).collect();
    for claim in seen.claims.iter().map(|stored| &stored.value).filter(|claim| claim.deletion.is_none()) {
        let Some(machine) = claim.machine().filter(|machine| instances.contains(machine.instance_id.as_str())) else { continue };
        if machine.capacity_type == labels::CAPACITY_RESERVED {
            out.demote.push(claim.key.name.clone());
        }
        let registered = nodes_of(claim, seen.objects).into_iter().filter(|node| claim.node_name() == Some(node.metadata.name.as_str()));
        let reserved = registered.filter(|node| node.metadata.label(labels::CAPACITY_TYPE) == Some(labels::CAPACITY_RESERVED));
        out.demote_nodes.extend(reserved.map(|node| node.metadata.name.clone()));
    }
}
