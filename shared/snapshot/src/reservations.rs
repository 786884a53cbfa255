//! The free instances of capacity reservations: EC2's count, less those launched or planned since. Pure.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::labels;
use whittle_claims::{Claim, Machine, NodeClassRecord, Phase, StockOut, Stored};
use whittle_units::{SignedDuration, Timestamp};

/// How much EC2's count may lag behind launches.
const EC2_COUNT_LAG: SignedDuration = SignedDuration::from_secs(5);

/// The reserved capacity for one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Instances that can still be launched, by reservation id.
    pub(crate) free: BTreeMap<String, u32>,
}

impl Reserved {
    /// For planning: planned launches are subtracted as well.
    #[must_use]
    pub fn for_plans(classes: &[NodeClassRecord], claims: &[Stored<Claim>], stock_outs: &[StockOut], now: Timestamp) -> Self {
        let mut out = Self::for_launches(classes, claims, stock_outs, now);
        let mut planned: Vec<BTreeSet<&str>> = claims.iter().filter_map(|claim| candidate_reservations(&claim.value)).collect();
        // Claims bound to one reservation first; the others take from the one with the most free instances.
        planned.sort();
        planned.sort_by_key(BTreeSet::len);
        for ids in planned {
            let most = out.free.iter_mut().filter(|(id, _)| ids.contains(id.as_str())).max_by_key(|(_, free)| **free);
            if let Some((_, free)) = most {
                *free = free.saturating_sub(1);
            }
        }
        out
    }

    /// For launching: each planned machine was subtracted when it was planned.
    #[must_use]
    pub fn for_launches(classes: &[NodeClassRecord], claims: &[Stored<Claim>], stock_outs: &[StockOut], now: Timestamp) -> Self {
        let mut counts: BTreeMap<&str, (Timestamp, u32)> = BTreeMap::new();
        for class in classes {
            for (id, free) in &class.free_reserved {
                let latest = counts.entry(id).or_insert((class.resolved_at, *free));
                if class.resolved_at > latest.0 {
                    *latest = (class.resolved_at, *free);
                }
            }
        }
        for machine in claims.iter().filter_map(|claim| claim.value.machine()) {
            let Some(known) = used_reservation(machine).and_then(|id| counts.get_mut(id)) else { continue };
            if known.0.duration_since(machine.launched_at) < EC2_COUNT_LAG {
                known.1 = known.1.saturating_sub(1);
            }
        }
        for out in stock_outs.iter().filter(|out| out.holds(now)) {
            if let Some(known) = out.offering.reservation().and_then(|id| counts.get_mut(id)) {
                known.1 = 0;
            }
        }
        Self { free: counts.into_iter().map(|(id, (_, free))| (id.to_owned(), free)).collect() }
    }
}

fn used_reservation(machine: &Machine) -> Option<&str> {
    let reserved = machine.capacity_type == labels::CAPACITY_RESERVED;
    machine.labels.get(labels::RESERVATION_ID).map(String::as_str).filter(|_| reserved)
}

/// The reservations of which a claim without a machine will use one.
fn candidate_reservations(claim: &Claim) -> Option<BTreeSet<&str>> {
    let may_start = matches!(claim.phase, Phase::Planned | Phase::Launching { .. });
    let values = |key: &str| {
        let named = |requirement: &&Requirement| requirement.key == key && requirement.operator == Operator::In;
        claim.spec.requirements.iter().find(named).map(|requirement| requirement.values.as_slice())
    };
    let pinned = may_start && values(labels::CAPACITY_TYPE).is_some_and(|kinds| kinds == [labels::CAPACITY_RESERVED]);
    let ids = values(labels::RESERVATION_ID).filter(|_| pinned)?;
    Some(ids.iter().map(String::as_str).collect())
}
