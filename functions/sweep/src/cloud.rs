//! Machines compared with what EC2 and their node class say of them: reservations that were left, blocks that end, drift that
//! only the cloud can see (lifecycle 10, disruption 13.5). Pure.

use crate::judge::{Findings, Seen, nodes_of};
use std::collections::BTreeMap;
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::{conditions, hashes, labels};
use whittle_claims::{Claim, Machine, NodeClassRecord, mirror};
use whittle_core::disruption::drift::{CloudDrift, MachineFacts, NodeClassFacts, cloud_drift};
use whittle_ec2::instance::Instance;
use whittle_ec2::requirements::Wanted;
use whittle_units::{ClaimName, SignedDuration, Timestamp};

/// EC2 begins to end the machines of a capacity block half an hour before its end; their pods leave earlier.
const BEFORE_BLOCK_ENDS: SignedDuration = SignedDuration::from_mins(40);
/// What a class's record says of its reservations is believed for so long: a block may have been extended since. `refresh`
/// looks every minute.
const BELIEVED: SignedDuration = SignedDuration::from_mins(10);
/// Reservations are looked at again when the last look is so old; the tick of a minute must not miss it by a second.
const LOOKED_AT_EVERY: SignedDuration = SignedDuration::from_secs(50);

/// What changes on a claim because of what the cloud says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloudNote {
    /// The machine has left its reservation: it is on-demand.
    Demoted,
    /// The machine is not what its class asks for, and why; `None` when it is again.
    Drifted(Option<&'static str>),
}

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
pub(crate) fn reservations_are_due(seen: &Seen<'_>) -> bool {
    let named = |record: &&NodeClassRecord| {
        let terms = record.class.spec.capacity_reservation_selector_terms.as_deref();
        terms.is_some_and(|terms| !terms.is_empty()) && !record.class.metadata.is_deleting()
    };
    seen.classes.iter().filter(named).any(|record| seen.now.duration_since(record.resolved_at) >= LOOKED_AT_EVERY)
}

/// What EC2 says of machines that serve.
pub(crate) fn compare(seen: &Seen<'_>, out: &mut Findings) {
    let instances: BTreeMap<&str, &Instance> =
        seen.instances.iter().filter(|instance| instance.is_alive()).map(|instance| (instance.id.as_str(), instance)).collect();
    for claim in seen.claims.iter().map(|stored| &stored.value).filter(|claim| claim.deletion.is_none()) {
        let Some(machine) = claim.machine() else { continue };
        let Some(instance) = instances.get(machine.instance_id.as_str()) else { continue };
        reservation_left(claim, machine, instance, seen, out);
        if let Some(drift) = drift(claim, machine, instance, seen.classes).filter(|drift| !shows(claim, *drift)) {
            out.cloud.push((claim.key.name.clone(), CloudNote::Drifted(drift)));
        }
    }
}

/// Claim and Node of a machine that EC2 calls on-demand are not reserved any more, each on its own: one may have been changed
/// before the other.
fn reservation_left(claim: &Claim, machine: &Machine, instance: &Instance, seen: &Seen<'_>, out: &mut Findings) {
    if instance.capacity_type != labels::CAPACITY_ON_DEMAND {
        return;
    }
    if machine.capacity_type == labels::CAPACITY_RESERVED {
        out.cloud.push((claim.key.name.clone(), CloudNote::Demoted));
    }
    let registered = nodes_of(claim, seen.objects).into_iter().filter(|node| claim.node_name() == Some(node.metadata.name.as_str()));
    let reserved = registered.filter(|node| node.metadata.label(labels::CAPACITY_TYPE) == Some(labels::CAPACITY_RESERVED));
    out.demote_nodes.extend(reserved.map(|node| node.metadata.name.clone()));
}

/// Why the machine is not what its class asks for, `Some(None)` when it is; `None` when that cannot be told.
fn drift(claim: &Claim, machine: &Machine, instance: &Instance, classes: &[NodeClassRecord]) -> Option<Option<&'static str>> {
    let class = NodeClassRecord::meant(classes, &claim.spec.node_class.name, claim.spec.owner.kind == "Provisioner")?;
    // Without a pool nobody replaces it, and a class that goes is no measure any more.
    if claim.spec.owner.name.is_empty() || class.class.metadata.is_deleting() || !machine.labels.contains_key(labels::ARCH) {
        return None;
    }
    let reserved = instance.capacity_type == labels::CAPACITY_RESERVED;
    let facts = NodeClassFacts {
        hash: class.hash.clone(),
        hash_version: hashes::NODE_CLASS_VERSION.to_owned(),
        images: image_of(class, machine).into_iter().collect(),
        security_groups: class.security_groups.iter().map(|group| group.id.clone()).collect(),
        subnets: class.subnets.iter().map(|subnet| subnet.id.clone()).collect(),
        capacity_reservations: class.class.status.capacity_reservations.iter().map(|known| known.id.clone()).collect(),
        placement_group: String::new(),
    };
    let is = MachineFacts {
        security_groups: instance.security_groups.iter().cloned().collect(),
        subnet: instance.subnet_id.clone(),
        capacity_reservation: instance.reservation.clone().filter(|_| reserved).unwrap_or_default(),
    };
    cloud_drift(&mirror(claim), &facts, &is).map(CloudDrift::reason)
}

/// The image that the class would start a machine of this kind with.
fn image_of(class: &NodeClassRecord, machine: &Machine) -> Option<String> {
    let fits = |ami: &&whittle_api::karpenter::ResolvedAmi| {
        let of_machine: Vec<Requirement> = ami.requirements.iter().map(|asked| fact(machine, &asked.key)).collect();
        Wanted::new(&ami.requirements).meets(&of_machine)
    };
    class.amis.iter().find(fits).map(|ami| ami.id.clone())
}

/// What the machine's labels say of a key.
fn fact(machine: &Machine, key: &str) -> Requirement {
    let key = labels::normalized(key);
    match machine.labels.get(key) {
        Some(value) => Requirement::is_in(key, [value.as_str()]),
        None => Requirement { key: key.to_owned(), operator: Operator::DoesNotExist, ..Requirement::default() },
    }
}

/// Whether the claim says so already. A drift that the pool is to blame for is not ours to take back: its reason goes first.
fn shows(claim: &Claim, drift: Option<&str>) -> bool {
    let standing =
        conditions::find(&claim.conditions, conditions::DRIFTED).filter(|_| conditions::is_true(&claim.conditions, conditions::DRIFTED));
    match (standing, drift) {
        (None, drift) => drift.is_none(),
        (Some(standing), drift) => !is_ours(&standing.reason) || drift == Some(standing.reason.as_str()),
    }
}

/// Whether a reason of the Drifted condition is one that only the cloud can see.
pub(crate) fn is_ours(reason: &str) -> bool {
    use CloudDrift::{Ami, CapacityReservation, NodeClass, PlacementGroup, SecurityGroup, Subnet};
    [NodeClass, Ami, SecurityGroup, Subnet, CapacityReservation, PlacementGroup].into_iter().any(|drift| drift.reason() == Some(reason))
}

/// One claim's notes.
pub(crate) type Noted = (ClaimName, CloudNote);
