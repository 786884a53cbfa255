//! What is behind "no instance type": refusals of EC2, and the images of the node class. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_claims::{NodeClassRecord, OfferingKey, StockOut};
use whittle_model::requirements::{Requirements, from_requirements};
use whittle_model::scheduling::{Cause, Finding, PoolRejection, Reason};
use whittle_snapshot::Snapshot;

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

fn text(reason: &Reason, snapshot: &Snapshot) -> String {
    let mut out = reason.to_string();
    if let Reason::Pools(rejections) | Reason::NoTemplates(rejections) = reason {
        for rejection in rejections {
            let Cause::InstanceTypes { finding, requirements, .. } = &rejection.cause else { continue };
            let parts = [refusals(rejection, *finding, requirements, snapshot), images(rejection, requirements, snapshot)];
            for part in parts.into_iter().flatten().filter(|part| !out.contains(part.as_str())).collect::<Vec<_>>() {
                let _ = write!(out, "; {part}");
            }
        }
    }
    out
}

/// Whether a pool could launch the offering, and requirements allow it.
fn meets(pool: &str, offering: &OfferingKey, requirements: &Requirements, snapshot: &Snapshot) -> bool {
    let Some(found) = snapshot.catalog.get(pool).and_then(|types| types.find(&offering.instance_type)) else { return false };
    let place = [(labels::ZONE, &offering.zone), (labels::CAPACITY_TYPE, &offering.capacity_type)];
    let is_it = |requirements: &Requirements| place.iter().all(|(key, value)| requirements.get(*key).is_none_or(|set| set.has(value)));
    from_requirements(&found.requirements).intersects(requirements).is_ok()
        && is_it(requirements)
        && found.offerings.iter().any(|offered| is_it(&from_requirements(&offered.requirements)))
}

/// The offerings that EC2 could not deliver, of those that the requirements allow: the first to be tried again, and its error code.
fn refusals(rejection: &PoolRejection, finding: Finding, requirements: &Requirements, snapshot: &Snapshot) -> Option<String> {
    let has_offerings = [Finding::NoRequirements, Finding::NoRequirementsNoResources, Finding::OfferedWithoutFit].contains(&finding)
        || matches!(finding, Finding::NoResources { .. });
    if has_offerings {
        return None;
    }
    let concerns = |known: &&StockOut| {
        let offering = &known.offering;
        let quota = || requirements.get(labels::CAPACITY_TYPE).is_none_or(|allowed| allowed.has(&offering.capacity_type));
        let is_concerned = if offering.quota().is_some() { quota() } else { meets(&rejection.node_pool, offering, requirements, snapshot) };
        known.holds(snapshot.now) && is_concerned
    };
    let mut refused: Vec<&StockOut> = snapshot.stock_outs.iter().filter(concerns).collect();
    refused.sort_by_key(|known| (known.until, &known.offering));
    let first = refused.first()?;
    let more = match refused.len() {
        1 => String::new(),
        2 => ", and refuses 1 other offering".to_owned(),
        all => format!(", and refuses {} other offerings", all - 1),
    };
    Some(format!("EC2 answered {} for {}{more}; tried again from {:.0} on", first.code, first.offering, first.until))
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
