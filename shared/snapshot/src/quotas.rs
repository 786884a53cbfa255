//! What quotas of the account may have left. EC2 says of a machine that it has too many vCPUs, and not how many are left. Pure.

use crate::{Snapshot, unavailable};
use std::collections::BTreeMap;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::labels;
use whittle_claims::{Claim, OfferingKey, Phase};
use whittle_ec2::instance_types::quota_of;
use whittle_model::requirements::from_requirements;
use whittle_model::scheduling::NewClaim;

/// A quota, and the capacity type that it is of.
type Quota = (String, String);

/// Whether quotas have room for a new machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaFit {
    AsPlanned,
    /// The capacity type that its launch would take has no room for it, and this one has.
    As(&'static str),
    /// There is none; its launch would take this capacity type.
    Over(&'static str),
}

/// The vCPUs that quotas may have left where EC2 has refused a machine: fewer than that one has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaRoom {
    left: BTreeMap<Quota, u32>,
}

impl QuotaRoom {
    /// What is left for a plan: claims that have no machine yet take their part of it.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let refused = unavailable(&snapshot.stock_outs, snapshot.now).quotas;
        let mut room = Self { left: refused.into_iter().map(|(quota, vcpus)| (quota, vcpus.saturating_sub(1))).collect() };
        if room.left.is_empty() {
            return room;
        }
        for claim in snapshot.claims.iter().map(|claim| &claim.value).filter(|claim| is_in_flight(claim)) {
            let lists = |wanted: &&Requirement| wanted.key == labels::INSTANCE_TYPE && wanted.operator == Operator::In;
            let names = claim.spec.requirements.iter().filter(lists).flat_map(|wanted| &wanted.values);
            let types = types_of(snapshot, &claim.spec.node_pool, names);
            let kind = kinds_of(&types, &claim.spec.requirements).first().copied();
            if let Some((quota, vcpus)) = kind.and_then(|kind| room.needed(&types, kind))
                && let Some(left) = room.left.get_mut(&quota)
            {
                *left = left.saturating_sub(vcpus);
            }
        }
        room
    }

    /// Takes what a new machine needs at least. Where there is no room nothing changes.
    pub fn take(&mut self, new: &NewClaim, snapshot: &Snapshot) -> QuotaFit {
        if self.left.is_empty() {
            return QuotaFit::AsPlanned;
        }
        let types = types_of(snapshot, &new.node_pool, &new.instance_types);
        let mut kinds = kinds_of(&types, &new.requirements);
        let Some(first) = kinds.first().copied() else { return QuotaFit::AsPlanned };
        if new.requirements.iter().any(|known| known.key == labels::CAPACITY_TYPE && known.min_values.is_some()) {
            kinds.truncate(1); // several are asked for, so that it cannot be held to another
        }
        match kinds.into_iter().find(|kind| self.has_taken(&types, kind)) {
            Some(kind) if kind == first => QuotaFit::AsPlanned,
            Some(kind) => QuotaFit::As(kind),
            None => QuotaFit::Over(first),
        }
    }

    fn has_taken(&mut self, types: &[&InstanceType], kind: &str) -> bool {
        let Some((quota, vcpus)) = self.needed(types, kind) else { return true };
        let Some(left) = self.left.get_mut(&quota) else { return true };
        let rest = left.checked_sub(vcpus);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }

    /// What the smallest machine of some types takes of a quota; `None` if the launch may do without those of which little is left.
    fn needed(&self, types: &[&InstanceType], kind: &str) -> Option<(Quota, u32)> {
        let mut least: Option<(Quota, u32)> = None;
        for known in types.iter().filter(|known| is_offered(known, kind)) {
            let quota = (quota_of(&known.name).to_owned(), kind.to_owned());
            if !self.left.contains_key(&quota) {
                return None;
            }
            let vcpus = vcpus_of(known);
            if least.as_ref().is_none_or(|(_, fewest)| vcpus < *fewest) {
                least = Some((quota, vcpus));
            }
        }
        least
    }
}

/// The capacity types that a machine can be had with, in the order in which its launch takes the first.
fn kinds_of(types: &[&InstanceType], requirements: &[Requirement]) -> Vec<&'static str> {
    let wanted = from_requirements(requirements);
    let allows = |kind: &str| wanted.get(labels::CAPACITY_TYPE).is_none_or(|set| set.has(&kind.to_owned()));
    let mut kinds = vec![labels::CAPACITY_RESERVED, labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND];
    kinds.retain(|kind| allows(kind) && types.iter().any(|known| is_offered(known, kind)));
    kinds
}

fn is_offered(known: &InstanceType, kind: &str) -> bool {
    known.offerings.iter().any(|offering| offering.available && offering.capacity_type() == kind)
}

/// Whether machines of a type count against an exhausted quota, and are as large as what was refused.
#[must_use]
pub fn is_over_quota(known: &InstanceType, offering: &OfferingKey) -> bool {
    offering.quota() == Some(quota_of(&known.name)) && vcpus_of(known) >= offering.vcpus.unwrap_or_default()
}

fn vcpus_of(known: &InstanceType) -> u32 {
    u32::try_from(known.capacity.get("cpu").units_floor()).unwrap_or_default()
}

/// Whether a claim is going to have a machine and has none yet.
fn is_in_flight(claim: &Claim) -> bool {
    matches!(claim.phase, Phase::Planned | Phase::Launching { .. })
}

/// The types with these names that a NodePool can launch.
fn types_of<'s, 'n>(snapshot: &'s Snapshot, node_pool: &str, names: impl IntoIterator<Item = &'n String>) -> Vec<&'s InstanceType> {
    let Some(types) = snapshot.catalog.get(node_pool) else { return Vec::new() };
    names.into_iter().filter_map(|name| types.find(name)).collect()
}
