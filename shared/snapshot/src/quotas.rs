//! What quotas of the account may have left. EC2 says of a machine that it has too many vCPUs, and not how many are left. Pure.

use crate::{Snapshot, unavailable};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::labels;
use whittle_claims::{Claim, OfferingKey, Phase};
use whittle_ec2::fleet::{MAX_TYPES, is_exotic};
use whittle_ec2::instance_types::quota_of;
use whittle_model::requirements::{Requirements, from_requirements};
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
            let spec = &claim.spec;
            let has_min_values = spec.requirements.iter().any(|wanted| wanted.min_values.is_some());
            let choices = choices(types_of(snapshot, &spec.node_pool, &spec.instance_types), &spec.requirements, has_min_values);
            let kind = kinds_of(&choices).first().copied();
            if let Some((quota, vcpus)) = kind.and_then(|kind| room.needed(&choices, kind))
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
        let has_min_values = |known: &Requirement| known.min_values.is_some();
        let asks_for_several = new.instance_type_min_values.is_some() || new.requirements.iter().any(has_min_values);
        let choices = choices(types_of(snapshot, &new.node_pool, &new.instance_types), &new.requirements, asks_for_several);
        let mut kinds = kinds_of(&choices);
        let Some(first) = kinds.first().copied() else { return QuotaFit::AsPlanned };
        if new.requirements.iter().any(|known| known.key == labels::CAPACITY_TYPE && has_min_values(known)) {
            kinds.truncate(1); // several are asked for, so that it cannot be held to another
        } else if asks_for_several {
            // With fewer types it might have too few values.
            kinds.retain(|kind| *kind == first || choices.iter().all(|choice| choice.kinds.contains(*kind)));
        }
        match kinds.into_iter().find(|kind| self.has_taken(&choices, kind)) {
            Some(kind) if kind == first => QuotaFit::AsPlanned,
            Some(kind) => QuotaFit::As(kind),
            None => QuotaFit::Over(first),
        }
    }

    fn has_taken(&mut self, choices: &[Choice<'_>], kind: &str) -> bool {
        let Some((quota, vcpus)) = self.needed(choices, kind) else { return true };
        let Some(left) = self.left.get_mut(&quota) else { return true };
        let rest = left.checked_sub(vcpus);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }

    /// What the smallest machine of some types takes of a quota; `None` if the launch may do without those of which little is left.
    fn needed(&self, choices: &[Choice<'_>], kind: &str) -> Option<(Quota, u32)> {
        let mut least: Option<(Quota, u32)> = None;
        for choice in choices.iter().filter(|choice| choice.kinds.contains(kind)) {
            let quota = (quota_of(&choice.instance_type.name).to_owned(), kind.to_owned());
            if !self.left.contains_key(&quota) {
                return None;
            }
            let vcpus = vcpus_of(choice.instance_type);
            if least.as_ref().is_none_or(|(_, fewest)| vcpus < *fewest) {
                least = Some((quota, vcpus));
            }
        }
        least
    }
}

/// A type that a launch may take, and the capacity types that it can be had with where the machine may be.
struct Choice<'s> {
    instance_type: &'s InstanceType,
    kinds: BTreeSet<&'s str>,
}

/// What a launch chooses from (aws 7.2, 7.3) among types in the order of their prices: what is available and meets the requirements, as
/// many types as it takes, and exotic ones only where there are no others.
fn choices<'s>(types: impl IntoIterator<Item = &'s InstanceType>, requirements: &[Requirement], has_min_values: bool) -> Vec<Choice<'s>> {
    let wanted = from_requirements(requirements);
    let (mut plain, mut exotic) = (Vec::new(), Vec::new());
    for instance_type in types {
        let usable = instance_type.offerings.iter().filter(|offering| is_usable(offering, &wanted));
        let kinds: BTreeSet<&'s str> = usable.map(Offering::capacity_type).collect();
        if kinds.is_empty() {
            continue;
        }
        let of_kind = if !has_min_values && is_exotic(instance_type) { &mut exotic } else { &mut plain };
        of_kind.push(Choice { instance_type, kinds });
        if plain.len() == MAX_TYPES {
            break;
        }
    }
    if plain.is_empty() {
        exotic.truncate(MAX_TYPES);
        return exotic;
    }
    plain
}

/// Whether a machine of these requirements can be had by an offering. Nothing is built, because a claim may have thousands of them.
#[must_use]
pub fn is_usable(offering: &Offering, wanted: &Requirements) -> bool {
    let meets = |own: &Requirement| {
        wanted.get(own.key.as_str()).is_none_or(|allowed| match own.operator {
            Operator::In => own.values.iter().any(|value| allowed.has(value)),
            _ => allowed.allows_absence(),
        })
    };
    offering.available && offering.requirements.iter().all(meets)
}

/// The capacity types that a machine can be had with, in the order in which its launch takes the first.
fn kinds_of(choices: &[Choice<'_>]) -> Vec<&'static str> {
    let mut kinds = vec![labels::CAPACITY_RESERVED, labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND];
    kinds.retain(|kind| choices.iter().any(|choice| choice.kinds.contains(*kind)));
    kinds
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
fn types_of<'s, 'n>(
    snapshot: &'s Snapshot,
    node_pool: &str,
    names: impl IntoIterator<Item = &'n String>,
) -> impl Iterator<Item = &'s InstanceType> {
    let types = snapshot.catalog.get(node_pool);
    names.into_iter().filter_map(move |name| types.and_then(|types| types.find(name)))
}
