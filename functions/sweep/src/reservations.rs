//! Instances in capacity reservations: which have left theirs, and which have to leave (lifecycle 10). Pure.

use crate::compare::{Findings, SweepInput, nodes_of};
use std::collections::BTreeSet;
use whittle_api::{ObjectMeta, labels};
use whittle_claims::{Claim, NodeClassRecord};
use whittle_ec2::instance::Instance;
use whittle_units::{SignedDuration, Timestamp};

/// EC2 begins to terminate the instances of a capacity block half an hour before its end; their pods leave earlier.
const BLOCK_END_LEAD: SignedDuration = SignedDuration::from_mins(40);
/// A class's record of its reservations is valid for this long: a block may have been extended since. `refresh` reads them every
/// minute.
const RECORD_VALID_FOR: SignedDuration = SignedDuration::from_mins(10);
/// Reservations are refreshed at this age; the tick of a minute must not miss it by a second.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_secs(50);

/// When the capacity block of the claim's instance ends, if it ends soon and that is known reliably.
pub(crate) fn ending_block(claim: &Claim, input: &SweepInput<'_>) -> Option<Timestamp> {
    let id = claim.machine()?.labels.get(labels::RESERVATION_ID)?;
    let looked = input.classes.iter().filter(|record| input.now.duration_since(record.resolved_at) <= RECORD_VALID_FOR);
    let known = looked.flat_map(|record| {
        let blocks = record.class.status.capacity_reservations.iter().filter(|known| known.reservation_type == "capacity-block");
        blocks.filter(|known| known.id == *id).filter_map(|known| Some((record.resolved_at, known.end_time?)))
    });
    let (_, ends_at) = known.max_by_key(|(looked_at, _)| *looked_at)?;
    (ends_at.duration_since(input.now) <= BLOCK_END_LEAD).then_some(ends_at)
}

/// Whether the reservations of any class have to be refreshed.
pub(crate) fn is_refresh_due(input: &SweepInput<'_>) -> bool {
    let named = |record: &&NodeClassRecord| {
        let terms = record.class.spec.capacity_reservation_selector_terms.as_deref();
        terms.is_some_and(|terms| !terms.is_empty()) && !record.class.metadata.is_deleting()
    };
    input.classes.iter().filter(named).any(|record| input.now.duration_since(record.resolved_at) >= REFRESH_INTERVAL)
}

/// Finds claims and Nodes of instances that are now on-demand, each on its own: one may have been changed before the other.
pub(crate) fn find_left(input: &SweepInput<'_>, out: &mut Findings) {
    let on_demand = |instance: &&Instance| instance.is_alive() && instance.capacity_type == labels::CAPACITY_ON_DEMAND;
    let instances: BTreeSet<&str> = input.instances.iter().filter(on_demand).map(|instance| instance.id.as_str()).collect();
    for claim in input.claims.iter().map(|stored| &stored.value).filter(|claim| claim.deletion.is_none()) {
        let Some(machine) = claim.machine().filter(|machine| instances.contains(machine.instance_id.as_str())) else { continue };
        if machine.capacity_type == labels::CAPACITY_RESERVED {
            out.demote.push(claim.key.name.clone());
        }
        let registered = nodes_of(claim, input.objects).into_iter().filter(|node| claim.node_name() == Some(node.metadata.name.as_str()));
        // A claim of a restored table may have given its Node the one label and not taken the other.
        let is_reserved = |meta: &ObjectMeta| {
            meta.label(labels::CAPACITY_TYPE) == Some(labels::CAPACITY_RESERVED) || meta.label(labels::RESERVATION_ID).is_some()
        };
        let reserved = registered.filter(|node| is_reserved(&node.metadata));
        out.demote_nodes.extend(reserved.map(|node| node.metadata.name.clone()));
    }
}
