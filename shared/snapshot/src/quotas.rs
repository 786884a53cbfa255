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
            if let Some((quota, vcpus)) = room.needed(&types, &claim.spec.requirements)
                && let Some(left) = room.left.get_mut(&quota)
            {
                *left = left.saturating_sub(vcpus);
            }
        }
        room
    }

    /// Takes what a new machine needs at least. If that is more than what is left, nothing changes, and the capacity type is returned.
    pub fn take(&mut self, new: &NewClaim, snapshot: &Snapshot) -> Result<(), String> {
        if self.left.is_empty() {
            return Ok(());
        }
        let types = types_of(snapshot, &new.node_pool, &new.instance_types);
        let Some((quota, vcpus)) = self.needed(&types, &new.requirements) else { return Ok(()) };
        let Some(left) = self.left.get_mut(&quota) else { return Ok(()) };
        *left = left.checked_sub(vcpus).ok_or(quota.1)?;
        Ok(())
    }

    /// What the smallest machine of some types takes of a quota; `None` if the launch may do without those of which little is left. It
    /// takes the first capacity type that can be had.
    fn needed(&self, types: &[&InstanceType], requirements: &[Requirement]) -> Option<(Quota, u32)> {
        let wanted = from_requirements(requirements);
        let allows = |kind: &str| wanted.get(labels::CAPACITY_TYPE).is_none_or(|set| set.has(&kind.to_owned()));
        let offers = |known: &InstanceType, kind: &str| {
            known.offerings.iter().any(|offering| offering.available && offering.capacity_type() == kind)
        };
        let mut kinds = [labels::CAPACITY_RESERVED, labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND].into_iter();
        let kind = kinds.find(|kind| allows(kind) && types.iter().any(|known| offers(known, kind)))?;
        let mut least: Option<(Quota, u32)> = None;
        for known in types.iter().filter(|known| offers(known, kind)) {
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
    matches!(claim.phase, Phase::Planned { .. } | Phase::Launching { .. })
}

/// The types with these names that a NodePool can launch.
fn types_of<'s, 'n>(snapshot: &'s Snapshot, node_pool: &str, names: impl IntoIterator<Item = &'n String>) -> Vec<&'s InstanceType> {
    let Some(types) = snapshot.catalog.get(node_pool) else { return Vec::new() };
    names.into_iter().filter_map(|name| types.find(name)).collect()
}
