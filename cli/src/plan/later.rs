//! What later passes add: pods that are to be near pods of this plan have no place before it is known where the machines of those are.

use super::decide;
use crate::money::{self, Bill, counted};
use crate::source::{InstanceTypesByPool, Manifests, PackingArg};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::ObjectMeta;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::{NodeClaim, NodeClaimSpec, NodeClaimStatus};
use whittle_api::labels;
use whittle_model::scheduling::{Cause, LeftOut, NewClaim, Plan, PodRef, Reason};
use whittle_units::Price;

/// How many later passes are simulated at most: each places pods that had to wait for pods of the pass before.
const PASSES_MAX: usize = 8;

/// What later passes place and launch, if each machine of this plan is the cheapest of its types.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later {
    /// In the order in which they are placed.
    pub(crate) pods: Vec<PodRef>,
    pub(crate) machines: usize,
    /// Of those machines, per hour.
    pub(crate) price: Price,
}

impl Later {
    /// What passes after that of `plan` add; `None` if no pod waits for one.
    pub(super) fn of(read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg, plan: &Plan) -> Option<Self> {
        if !plan.left_out.iter().any(follows) {
            return None;
        }
        let (mut out, mut read) = (Self::default(), read.clone());
        let mut waiting: BTreeSet<PodRef> = plan.left_out.iter().map(|left| left.pod.clone()).collect();
        let mut last = plan.clone();
        for _ in 0..PASSES_MAX {
            launch(&mut read.objects, &last.claims, offered);
            last = decide(&read, offered.clone(), packing).plan;
            let placed = last.claims.iter().flat_map(|claim| &claim.pods).chain(last.placements.iter().flat_map(|placed| &placed.pods));
            out.pods.extend(placed.filter_map(|pod| waiting.take(pod)));
            out.machines += last.claims.len();
            out.price += last.price();
            if last.claims.is_empty() || !last.left_out.iter().any(follows) {
                break;
            }
        }
        (!out.pods.is_empty()).then_some(out)
    }

    /// A bill after these passes.
    pub(super) fn after(&self, then: &Bill) -> Bill {
        then.plus(self.machines, self.price)
    }

    /// A line, and what is paid then.
    pub(crate) fn text(&self, now: &Bill, then: &Bill) -> String {
        let (pods, machines) = (counted(self.pods.len(), "pod"), counted(self.machines, "new machine"));
        format!(
            "later passes: {pods} more placed, which are to be near pods of this plan, {machines}, {}\n{}",
            self.price,
            money::change(now, &self.after(then))
        )
    }

    /// For programs.
    pub(crate) fn json(&self, then: &Bill) -> Value {
        let after = self.after(then);
        json!({
            "pods": self.pods.iter().map(PodRef::key).collect::<Vec<_>>(),
            "launched": self.machines,
            "nodes": after.nodes,
            "price": super::output::dollars(after.price),
        })
    }
}

/// Whether a pod waits for the machine of another.
fn follows(left: &LeftOut) -> bool {
    let waits = |cause: &Cause| matches!(cause, Cause::Topology { follows: Some(_), .. });
    matches!(&left.reason, Reason::Pools(rejections) if rejections.iter().any(|rejection| waits(&rejection.cause)))
}

/// Adds the machines of a plan to the objects, as NodeClaims that are launched and have no Node yet.
fn launch(objects: &mut ClusterObjects, claims: &[NewClaim], offered: &InstanceTypesByPool) {
    for claim in claims {
        let name = format!("later-{}", objects.node_claims.len() + 1);
        objects.node_claims.extend(launched(&name, claim, offered));
    }
}

/// The labels and the type of a machine of a claim, if it becomes the cheapest that it may be.
pub(super) fn cheapest<'o>(claim: &NewClaim, offered: &'o InstanceTypesByPool) -> Option<(BTreeMap<String, String>, &'o InstanceType)> {
    let offer = claim.why.cheapest.as_ref()?;
    let found = offered.get(&claim.node_pool)?.find(&offer.instance_type)?;
    let offering = found.offerings.iter().filter(|one| one.zone() == offer.zone && one.capacity_type() == offer.capacity_type);
    let offering = offering.min_by_key(|one| (!one.available, one.price))?;
    let keys = found.requirements.iter().chain(&offering.requirements).map(|requirement| &requirement.key);
    let value = |key: &String| Some((key.clone(), offering.label(key).or_else(|| found.label(key))?.to_owned()));
    let mut all: BTreeMap<String, String> = keys.filter_map(value).collect();
    all.extend(claim.labels.clone());
    all.insert(labels::NODE_POOL.to_owned(), claim.node_pool.clone());
    Some((all, found))
}

fn launched(name: &str, claim: &NewClaim, offered: &InstanceTypesByPool) -> Option<NodeClaim> {
    let (all, found) = cheapest(claim, offered)?;
    let zone = &claim.why.cheapest.as_ref()?.zone;
    Some(NodeClaim {
        metadata: ObjectMeta { name: name.to_owned(), uid: name.to_owned(), labels: all.into(), ..ObjectMeta::default() },
        spec: NodeClaimSpec {
            requirements: claim.requirements_with_types(),
            node_class_ref: claim.node_class_ref.clone(),
            taints: claim.taints.clone(),
            startup_taints: claim.startup_taints.clone(),
            ..NodeClaimSpec::default()
        },
        status: NodeClaimStatus {
            provider_id: format!("aws:///{zone}/{name}"),
            capacity: found.capacity.clone(),
            allocatable: found.allocatable(),
            ..NodeClaimStatus::default()
        },
    })
}
