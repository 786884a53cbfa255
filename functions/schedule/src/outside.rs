//! What is behind "no instance type": refusals of EC2, and the images of the node class. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_claims::{NodeClassRecord, OfferingKey, StockOut};
use whittle_model::requirements::{Requirements, from_requirements};
use whittle_model::scheduling::{Cause, PoolRejection, Reason};
use whittle_snapshot::{Snapshot, is_over_quota};
use whittle_units::Resources;

/// The texts of reasons. Pods of one workload have the same, and all instance types are looked at for it.
pub(crate) struct Texts<'s> {
    pub(crate) snapshot: &'s Snapshot,
    /// By the reason's own text.
    known: BTreeMap<String, String>,
}

impl<'s> Texts<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        Self { snapshot, known: BTreeMap::new() }
    }

    /// The text of a reason, and what EC2 and the images of the class have to do with it.
    pub(crate) fn of(&mut self, reason: &Reason) -> String {
        let snapshot = self.snapshot;
        self.known.entry(reason.to_string()).or_insert_with(|| text(reason, snapshot)).clone()
    }
}

/// What EC2 refuses comes first: the rest is long, and Events have 1,024 characters.
fn text(reason: &Reason, snapshot: &Snapshot) -> String {
    let (mut refused, mut out) = (Vec::new(), reason.to_string());
    if matches!(reason, Reason::NoNodePools) {
        let _ = write!(out, ": {}", without_pools(snapshot));
    }
    if let Reason::Pools(rejections) | Reason::NoTemplates(rejections) = reason {
        for rejection in rejections {
            let Cause::InstanceTypes { requirements, resources, daemons, .. } = &rejection.cause else { continue };
            let mut needed = resources.clone();
            needed.add(daemons);
            refused.extend(refusals(rejection, requirements, &needed, snapshot).filter(|text| !refused.contains(text)));
            if let Some(part) = images(rejection, requirements, snapshot).filter(|part| !out.contains(part.as_str())) {
                let _ = write!(out, "; {part}");
            }
        }
    }
    refused.into_iter().chain([out]).collect::<Vec<_>>().join("; ")
}

/// Why no NodePool is asked for a machine, and what helps.
fn without_pools(snapshot: &Snapshot) -> String {
    let pools = &snapshot.objects.node_pools;
    let Some(first) = pools.first() else {
        return "the cluster has no NodePool, so that no machine is launched for pods: apply one".to_owned();
    };
    let name = NodePool::given_name(&first.metadata.name);
    let all = if pools.len() == 1 { format!("NodePool {name}") } else { format!("NodePool {name} and {} more", pools.len() - 1) };
    format!("{all} cannot take pods, being deleted, of another provider's class, or of a fixed number of replicas: apply another")
}

/// Whether the pod could be on a machine of the type.
fn suits(known: &InstanceType, requirements: &Requirements, needed: &Resources) -> bool {
    needed.fits(&known.allocatable()) && from_requirements(&known.requirements).intersects(requirements).is_ok()
}

/// Whether it concerns machines of the pool's node class: what EC2 does not support may concern those of one class only.
fn is_of_class(pool: &str, offering: &OfferingKey, snapshot: &Snapshot) -> bool {
    let Some(uid) = &offering.node_class else { return true };
    let record = snapshot.objects.node_pools.iter().find(|known| known.metadata.name == pool).and_then(|known| {
        let name = &known.spec.template.spec.node_class_ref.name;
        NodeClassRecord::referenced(&snapshot.classes, name, known.is_converted_provisioner())
    });
    record.is_some_and(|record| record.class.metadata.uid == *uid)
}

/// Whether a pool could launch the offering, or one that counts for the quota, and the pod could be on it.
fn concerns(pool: &str, offering: &OfferingKey, requirements: &Requirements, needed: &Resources, snapshot: &Snapshot) -> bool {
    let Some(types) = snapshot.catalog.get(pool).filter(|_| is_of_class(pool, offering, snapshot)) else { return false };
    if offering.quota().is_some() {
        let allowed = requirements.get(labels::CAPACITY_TYPE).is_none_or(|allowed| allowed.has(&offering.capacity_type));
        return allowed && types.iter().any(|known| is_over_quota(known, offering) && suits(known, requirements, needed));
    }
    let Some(found) = types.find(&offering.instance_type) else { return false };
    let place = [(labels::ZONE, &offering.zone), (labels::CAPACITY_TYPE, &offering.capacity_type)];
    let is_it = |requirements: &Requirements| place.iter().all(|(key, value)| requirements.get(*key).is_none_or(|set| set.has(value)));
    suits(found, requirements, needed)
        && is_it(requirements)
        && found.offerings.iter().any(|offered| is_it(&from_requirements(&offered.requirements)))
}

/// The offerings that EC2 could not deliver, of those that the pod could be on: the first to be tried again with the zones in which it
/// is refused, and its error code.
fn refusals(rejection: &PoolRejection, requirements: &Requirements, needed: &Resources, snapshot: &Snapshot) -> Option<String> {
    let pool = rejection.node_pool.as_str();
    let is_refused = |known: &&StockOut| known.holds(snapshot.now) && concerns(pool, &known.offering, requirements, needed, snapshot);
    let mut refused: Vec<&StockOut> = snapshot.stock_outs.iter().filter(is_refused).collect();
    refused.sort_by_key(|known| (known.until, &known.offering));
    let first = refused.first()?;
    let elsewhere = |known: &&&StockOut| {
        let moved = OfferingKey { zone: known.offering.zone.clone(), ..first.offering.clone() };
        known.code == first.code && known.offering == moved && moved != first.offering
    };
    let zones: BTreeSet<&str> = refused.iter().filter(elsewhere).map(|known| known.offering.zone.as_str()).collect();
    let also: String = zones.iter().map(|zone| format!(", {zone}")).collect();
    let more = match refused.len() - 1 - zones.len() {
        0 => String::new(),
        1 => ", and refuses 1 other offering".to_owned(),
        others => format!(", and refuses {others} other offerings"),
    };
    // The text is about pods of this class anyway.
    let shown = OfferingKey { node_class: None, ..first.offering.clone() };
    Some(format!("EC2 answered {} for {shown}{also}{more}; tried again from {:.0} on", first.code, first.until))
}

/// The architecture of the class's images, if none of the types that they can boot meets the requirements.
fn images(rejection: &PoolRejection, requirements: &Requirements, snapshot: &Snapshot) -> Option<String> {
    let pool = snapshot.objects.node_pools.iter().find(|pool| pool.metadata.name == rejection.node_pool)?;
    let class = &pool.spec.template.spec.node_class_ref.name;
    let record = NodeClassRecord::referenced(&snapshot.classes, class, pool.is_converted_provisioner())?;
    let of_image = |ami: &whittle_api::karpenter::ResolvedAmi| from_requirements(&ami.requirements).get(labels::ARCH)?.single().cloned();
    let architectures: BTreeSet<Option<String>> = record.amis.iter().map(of_image).collect();
    let [Some(only)] = architectures.into_iter().collect::<Vec<_>>().try_into().unwrap_or([None]) else { return None };
    let types = snapshot.catalog.get(&rejection.node_pool)?;
    let fits = types.iter().any(|known| from_requirements(&known.requirements).intersects(requirements).is_ok());
    // Of a pod that asks for this architecture, something else rules the types out.
    let asked = requirements.get(labels::ARCH).and_then(|allowed| allowed.single());
    (!fits && asked != Some(&only)).then(|| format!("the images of {} are for {only}", class_of(pool)))
}

fn class_of(pool: &NodePool) -> String {
    let kind = if pool.is_converted_provisioner() { "AWSNodeTemplate" } else { "EC2NodeClass" };
    format!("{kind} {}", pool.spec.template.spec.node_class_ref.name)
}
