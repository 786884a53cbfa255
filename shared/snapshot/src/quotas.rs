//! What quotas of the account may have left. EC2 says that a machine has too many vCPUs, but not how many are left. Pure.

use crate::{Snapshot, unavailable};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::{conditions, labels};
use whittle_claims::{Claim, ClaimSpec, OfferingKey, Phase};
use whittle_ec2::errors::CreateReason;
use whittle_ec2::fleet::{MAX_TYPES, is_exotic};
use whittle_ec2::instance_types::quota_of;
use whittle_model::requirements::{Requirements, from_requirements};
use whittle_model::scheduling::{NewClaim, Offer};
use whittle_units::{Price, SignedDuration, Timestamp};

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
    /// What is left for a plan: claims that are about to have a machine take their part of it.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let refused = unavailable(&snapshot.stock_outs, snapshot.now).quotas;
        let mut room = Self { left: refused.into_iter().map(|(quota, vcpus)| (quota, vcpus.saturating_sub(1))).collect() };
        if room.is_ample() {
            return room;
        }
        // Claims that were made together may have equal machines, and those of a static pool have: all of its types are looked at for one.
        let mut before: Option<(&ClaimSpec, Option<(Quota, u32)>)> = None;
        for claim in snapshot.claims.iter().map(|claim| &claim.value).filter(|claim| is_in_flight(claim, snapshot.now)) {
            let spec = &claim.spec;
            let known = before.take().filter(|(other, _)| is_equal_launch(other, spec));
            let needed = known.map_or_else(|| room.needed_by(spec, snapshot), |(_, needed)| needed);
            if let Some((quota, vcpus)) = &needed
                && let Some(left) = room.left.get_mut(quota)
            {
                *left = left.saturating_sub(*vcpus);
            }
            before = Some((spec, needed));
        }
        room
    }

    /// Whether no quota is known to have little left.
    #[must_use]
    pub fn is_ample(&self) -> bool {
        self.left.is_empty()
    }

    /// What a claim in flight takes of a quota of which little is left.
    fn needed_by(&self, spec: &ClaimSpec, snapshot: &Snapshot) -> Option<(Quota, u32)> {
        let has_min_values = spec.requirements.iter().any(|wanted| wanted.min_values.is_some());
        let types = types_of(snapshot, &spec.node_pool, &spec.instance_types, &spec.requirements);
        let choices = choices(types, &spec.requirements, has_min_values);
        let kind = kinds_of(&choices).first().copied()?;
        self.needed(&choices, kind)
    }

    /// Takes what a new machine needs at least. Where there is no room nothing changes.
    pub fn take(&mut self, new: &NewClaim, snapshot: &Snapshot) -> QuotaFit {
        if self.is_ample() {
            return QuotaFit::AsPlanned;
        }
        let has_min_values = |known: &Requirement| known.min_values.is_some();
        let asks_for_several = new.instance_type_min_values.is_some() || new.requirements.iter().any(has_min_values);
        let types = types_of(snapshot, &new.node_pool, &new.instance_types, &new.requirements);
        let choices = choices(types, &new.requirements, asks_for_several);
        let mut kinds = kinds_of(&choices);
        let Some(first) = kinds.first().copied() else {
            // Those of a static pool are planned whatever can be had.
            let closed = if new.instance_types.is_empty() { self.closed_to(new, snapshot) } else { None };
            return closed.map_or(QuotaFit::AsPlanned, QuotaFit::Over);
        };
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

    /// The capacity type of a quota that has no room for any machine that a NodePool allows; `None` if quotas have nothing to do with it.
    fn closed_to(&self, new: &NewClaim, snapshot: &Snapshot) -> Option<&'static str> {
        let types = snapshot.catalog.get(&new.node_pool)?;
        let wanted = from_requirements(&new.requirements);
        let is_closed = |known: &InstanceType, kind: &str| {
            let is_sold = |offering: &Offering| offering.capacity_type() == kind && is_met(&offering.requirements, &wanted);
            let left = self.left.get(&(quota_of(&known.name).to_owned(), kind.to_owned()));
            left.is_some_and(|left| *left < vcpus_of(known)) && known.offerings.iter().any(is_sold)
        };
        let allowed = || types.iter().filter(|known| is_met(&known.requirements, &wanted));
        KINDS.into_iter().find(|kind| allowed().any(|known| is_closed(known, kind)))
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
fn is_usable(offering: &Offering, wanted: &Requirements) -> bool {
    let is_asked_for = || wanted.get(labels::INSTANCE_TENANCY).is_some();
    offering.available && (!offering.is_dedicated() || is_asked_for()) && is_met(&offering.requirements, wanted)
}

/// Whether what a type or an offering is meets what is wanted.
fn is_met(own: &[Requirement], wanted: &Requirements) -> bool {
    let meets = |own: &Requirement| {
        wanted.get(own.key.as_str()).is_none_or(|allowed| match own.operator {
            Operator::In => own.values.iter().any(|value| allowed.has(value)),
            _ => allowed.allows_absence(),
        })
    };
    own.iter().all(meets)
}

/// Capacity types in the order in which a launch takes the first that it may.
const KINDS: [&str; 3] = [labels::CAPACITY_RESERVED, labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND];

/// The capacity types that a machine can be had with.
fn kinds_of(choices: &[Choice<'_>]) -> Vec<&'static str> {
    KINDS.into_iter().filter(|kind| choices.iter().any(|choice| choice.kinds.contains(*kind))).collect()
}

/// Whether machines of a type count against an exhausted quota, and are as large as what was refused.
#[must_use]
pub fn is_over_quota(known: &InstanceType, offering: &OfferingKey) -> bool {
    offering.quota() == Some(quota_of(&known.name)) && vcpus_of(known) >= offering.vcpus.unwrap_or_default()
}

fn vcpus_of(known: &InstanceType) -> u32 {
    u32::try_from(known.capacity.get("cpu").units_floor()).unwrap_or_default()
}

/// Reasons of a failed attempt of which some pass within seconds and others with a person's help.
const UNCLEAR: [CreateReason; 4] = [
    CreateReason::LaunchFailed,
    CreateReason::InstanceProfileNameInvalid,
    CreateReason::LaunchTemplateNotFound,
    CreateReason::NodeClassReadinessUnknown,
];
/// What passes does so earlier.
const UNCLEAR_FOR: SignedDuration = SignedDuration::from_mins(1);

/// Whether a claim is going to have a machine and has none yet.
fn is_in_flight(claim: &Claim, now: Timestamp) -> bool {
    matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) && !waits_for_person(claim, now)
}

/// Whether no attempt to launch a claim succeeds until a person changes something. As long as a NodePool is that wrong there is such a
/// claim: after the launch timeout its pods get another. It would keep others from machines that they could have.
fn waits_for_person(claim: &Claim, now: Timestamp) -> bool {
    conditions::find(&claim.conditions, conditions::LAUNCHED).is_some_and(|launched| {
        let is_unclear = UNCLEAR.iter().any(|reason| reason.as_str() == launched.reason);
        CreateReason::tells_of_user_action(&launched.reason) || is_unclear && now.duration_since(claim.created_at) >= UNCLEAR_FOR
    })
}

/// Whether two claims have the same to choose from.
fn is_equal_launch(one: &ClaimSpec, other: &ClaimSpec) -> bool {
    one.node_pool == other.node_pool && one.instance_types == other.instance_types && one.requirements == other.requirements
}

/// The types with these names that a NodePool can launch. Without names, as of a static pool: those that meet the requirements, cheapest
/// first.
fn types_of<'s, 'n>(
    snapshot: &'s Snapshot,
    node_pool: &str,
    names: impl IntoIterator<Item = &'n String>,
    requirements: &[Requirement],
) -> Vec<&'s InstanceType> {
    let Some(types) = snapshot.catalog.get(node_pool) else { return Vec::new() };
    let mut names = names.into_iter().peekable();
    if names.peek().is_some() {
        return names.filter_map(|name| types.find(name)).collect();
    }
    let wanted = from_requirements(requirements);
    let price = |known: &InstanceType| {
        let usable = known.offerings.iter().filter(|offering| is_usable(offering, &wanted));
        usable.map(|offering| offering.price).min()
    };
    let allowed = types.iter().filter(|known| is_met(&known.requirements, &wanted));
    let mut found: Vec<(Price, &InstanceType)> = allowed.filter_map(|known| Some((price(known)?, known))).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name)));
    found.into_iter().map(|(_, known)| known).collect()
}

/// Has a machine launched with one capacity type, at its prices.
pub fn hold_to(new: &mut NewClaim, capacity_type: &str, snapshot: &Snapshot) {
    let only = Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]);
    match new.requirements.iter().position(|known| known.key == only.key) {
        Some(at) => new.requirements[at] = only,
        None => {
            let at = new.requirements.partition_point(|known| known.key < only.key);
            new.requirements.insert(at, only);
        }
    }
    let Some(types) = snapshot.catalog.get(&new.node_pool) else { return };
    let wanted = from_requirements(&new.requirements);
    let mut offers: Vec<(Price, &str, &str)> = Vec::new();
    for known in new.instance_types.iter().filter_map(|name| types.find(name)) {
        let usable = known.offerings.iter().filter(|offering| is_usable(offering, &wanted));
        offers.extend(usable.map(|offering| (offering.price, known.name.as_str(), offering.zone())));
    }
    offers.sort_unstable();
    new.offerings = offers.len();
    let Some((cheapest, best, _)) = offers.first().copied() else { return };
    new.cheapest_price = cheapest;
    let offer = |(price, instance_type, zone): &(Price, &str, &str)| Offer {
        instance_type: (*instance_type).to_owned(),
        zone: (*zone).to_owned(),
        capacity_type: capacity_type.to_owned(),
        price: *price,
    };
    new.why.cheapest = offers.first().map(offer);
    new.why.next_offer = offers.get(1).map(offer);
    let other = offers.iter().find(|(_, instance_type, _)| *instance_type != best);
    new.why.next_best = other.map(|(price, instance_type, _)| ((*instance_type).to_owned(), *price));
}
