//! Instances in capacity reservations: which have left theirs, and which have to leave (lifecycle 10).

use crate::Rights;
use crate::compare::{Findings, SweepInput};
use std::collections::BTreeSet;
use whittle_api::{ObjectMeta, labels};
use whittle_claims::{BlockEnds, Claim, NodeClassRecord, Stored};
use whittle_ec2::instance::Instance;
use whittle_ports::{HandleError, RecordReader};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// EC2 begins to terminate the instances of a capacity block half an hour before its end; their pods leave earlier.
const BLOCK_END_LEAD: SignedDuration = SignedDuration::from_mins(40);
/// A block that ends within this time is looked up every minute: it may have been extended. Before that, what the regular runs of
/// `refresh` find is enough, since no block ends earlier than EC2 once said.
const BLOCK_ENDS_SOON: SignedDuration = SignedDuration::from_mins(60);
/// Reservations are refreshed at this age; the tick of a minute must not miss it by a second.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_secs(50);

/// What is known of the blocks that claims run in; read only if there may be one.
pub(crate) async fn known_ends<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    claims: &[Stored<Claim>],
) -> Result<Option<BlockEnds>, HandleError> {
    if !claims.iter().any(|claim| BlockEnds::block_of(&claim.value).is_some()) {
        return Ok(None);
    }
    Ok(ports.store().read::<BlockEnds>(cluster, BlockEnds::NAME).await?.map(|known| known.value))
}

/// When the capacity block of the claim's instance ends, if it ends soon. Its last known end counts, however old: EC2 terminates
/// instances without waiting for pods, and a machine that leaves a block too early is only started again.
pub(crate) fn ending_block(claim: &Claim, input: &SweepInput<'_>) -> Option<Timestamp> {
    let ends_at = input.blocks?.end_of(BlockEnds::block_of(claim)?)?;
    (ends_at.duration_since(input.now) <= BLOCK_END_LEAD).then_some(ends_at)
}

/// Whether `refresh` has to look at the blocks of claims: one is unknown to it, or ends soon.
fn is_look_due(input: &SweepInput<'_>) -> bool {
    let is_recent = input.blocks.is_some_and(|known| input.now.duration_since(known.looked_at) < REFRESH_INTERVAL);
    let is_open = |block: &str| match input.blocks.and_then(|known| known.ends.get(block)) {
        None => true,
        Some(end) => end.is_some_and(|end| end.duration_since(input.now) <= BLOCK_ENDS_SOON),
    };
    !is_recent && input.claims.iter().filter_map(|claim| BlockEnds::block_of(&claim.value)).any(is_open)
}

/// Whether the reservations of any class, or the blocks of claims, have to be refreshed.
pub(crate) fn is_refresh_due(input: &SweepInput<'_>) -> bool {
    let named = |record: &&NodeClassRecord| {
        let terms = record.class.spec.capacity_reservation_selector_terms.as_deref();
        terms.is_some_and(|terms| !terms.is_empty()) && !record.class.metadata.is_deleting()
    };
    let is_old = |record: &NodeClassRecord| input.now.duration_since(record.resolved_at) >= REFRESH_INTERVAL;
    input.classes.iter().filter(named).any(is_old) || is_look_due(input)
}

/// Finds claims and Nodes of instances that are now on-demand, each on its own: one may have been changed before the other.
pub(crate) fn find_left(input: &SweepInput<'_>, out: &mut Findings) {
    let on_demand = |instance: &&Instance| instance.is_alive() && instance.capacity_type == labels::CAPACITY_ON_DEMAND;
    let instances: BTreeSet<&str> = input.instances.iter().filter(on_demand).map(|instance| instance.id.as_str()).collect();
    for claim in input.claims.iter().map(|stored| &stored.value).filter(|claim| claim.deletion.is_none()) {
        let Some(machine) = claim.machine().filter(|machine| instances.contains(machine.instance_id.as_str())) else { continue };
        if machine.is_reserved() {
            out.demote.push(claim.key.name.clone());
        }
        let registered = input.index.nodes_of(claim).iter().filter(|node| claim.node_name() == Some(node.metadata.name.as_str()));
        // A claim of a restored table may have given its Node the one label and not taken the other.
        let is_reserved = |meta: &ObjectMeta| {
            meta.label(labels::CAPACITY_TYPE) == Some(labels::CAPACITY_RESERVED) || meta.label(labels::RESERVATION_ID).is_some()
        };
        let reserved = registered.filter(|node| is_reserved(&node.metadata));
        out.demote_nodes.extend(reserved.map(|node| node.metadata.name.clone()));
    }
}
