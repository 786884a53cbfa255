//! The instance types of a launch: six filters, each of which may reject the claim (aws 7.2), and the truncation (aws 7.3).

use crate::requirements::Wanted;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_units::{Price, Resources};

/// The maximum number of types in one launch, so that a request can hold them with all their zones.
pub const MAX_TYPES: usize = 60;

pub(super) const DEDICATED: &str = "dedicated";

/// A type with its remaining offerings: available and allowed by the claim.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub instance_type: &'a InstanceType,
    pub offerings: Vec<&'a Offering>,
}

impl Candidate<'_> {
    /// The price of the cheapest remaining offering.
    pub fn price(&self) -> Price {
        self.offerings.iter().map(|offering| offering.price).min().unwrap_or(Price::MAX)
    }
}

/// The handling of `minValues` if sixty types cannot satisfy it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinValuesPolicy {
    Strict,
    BestEffort,
}

/// The filter that left no type; shown to the user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum FilterError {
    #[error("no instance type is available that meets the requirements and holds the requests")]
    NoneCompatible,
    #[error("no type is left that one kind of capacity reservation offers")]
    NoneReserved,
    #[error("no type is left that is cheap enough in the spot market")]
    NoneCheapInSpot,
    #[error("{key} has {found} values among the cheapest types that one launch can hold, minValues asks for {wanted}")]
    MinValues { key: String, found: usize, wanted: u32 },
}

/// The requirements of a launch on a type.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    pub requirements: &'a [Requirement],
    pub requests: &'a Resources,
    pub policy: MinValuesPolicy,
}

/// The types to launch from, cheapest first, at most [`MAX_TYPES`].
pub fn select<'a>(types: &'a [InstanceType], demand: &Demand<'_>) -> Result<Vec<Candidate<'a>>, FilterError> {
    let wanted = Wanted::new(demand.requirements);
    let has_min_values = wanted.min_values().next().is_some();
    let mut left = compatible(types, &wanted, demand.requests);
    if left.is_empty() {
        return Err(FilterError::NoneCompatible);
    }
    if wanted.allows(labels::CAPACITY_TYPE, labels::CAPACITY_RESERVED) {
        left = one_kind_of_reservation(left);
        left = one_capacity_block(left);
        left = largest_reservations(left);
        if left.is_empty() {
            return Err(FilterError::NoneReserved);
        }
    }
    if !has_min_values {
        left = without_exotic(left);
        left = without_expensive_spot(left, &wanted);
        if left.is_empty() {
            return Err(FilterError::NoneCheapInSpot);
        }
    }
    left.sort_by(|a, b| a.price().cmp(&b.price()).then_with(|| a.instance_type.name.cmp(&b.instance_type.name)));
    left.truncate(MAX_TYPES);
    if demand.policy == MinValuesPolicy::Strict {
        keep_min_values(&left, &wanted)?;
    }
    Ok(left)
}

fn compatible<'a>(types: &'a [InstanceType], wanted: &Wanted<'_>, requests: &Resources) -> Vec<Candidate<'a>> {
    let usable = types.iter().filter(|each| wanted.meets(&each.requirements) && requests.fits(&each.allocatable()));
    let names_tenancy = wanted.names(labels::INSTANCE_TENANCY);
    let is_allowed =
        |offering: &&Offering| offering.available && (names_tenancy || !offering.is_dedicated()) && wanted.meets(&offering.requirements);
    let candidates =
        usable.map(|instance_type| Candidate { instance_type, offerings: instance_type.offerings.iter().filter(is_allowed).collect() });
    candidates.filter(|candidate| !candidate.offerings.is_empty()).collect()
}

/// Keeps offerings that satisfy the condition and drops types without offerings.
fn retain(mut candidates: Vec<Candidate<'_>>, keep: impl Fn(&InstanceType, &Offering) -> bool) -> Vec<Candidate<'_>> {
    for candidate in &mut candidates {
        let instance_type = candidate.instance_type;
        candidate.offerings.retain(|offering| keep(instance_type, offering));
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    candidates
}

fn is_reserved(offering: &Offering) -> bool {
    offering.capacity_type() == labels::CAPACITY_RESERVED
}

/// Kind of a reservation, in the order in which equal prices are decided.
fn kind(offering: &Offering) -> u8 {
    match (offering.label(labels::RESERVATION_TYPE), offering.label(labels::RESERVATION_INTERRUPTIBLE)) {
        (Some("capacity-block"), _) => 1,
        (_, Some("true")) => 2,
        _ => 0,
    }
}

/// Keeps the kind of reservation with the cheapest offering: one fleet can use one kind only.
fn one_kind_of_reservation(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let offerings = candidates.iter().flat_map(|candidate| &candidate.offerings).filter(|offering| is_reserved(offering));
    match offerings.map(|offering| (offering.price, kind(offering))).min() {
        Some((_, chosen)) => retain(candidates, |_, offering| is_reserved(offering) && kind(offering) == chosen),
        None => candidates,
    }
}

/// Keeps only the cheapest capacity block, which cannot be mixed with anything.
fn one_capacity_block(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let all = candidates.iter().flat_map(|candidate| candidate.offerings.iter().map(|offering| (&candidate.instance_type.name, *offering)));
    let blocks = all.filter(|(_, offering)| is_reserved(offering) && kind(offering) == 1);
    let id = |offering: &Offering| offering.label(labels::RESERVATION_ID).map(str::to_owned);
    match blocks.map(|(name, offering)| (offering.price, name.clone(), id(offering))).min() {
        Some((_, name, chosen)) => retain(candidates, |each, offering| each.name == name && id(offering) == chosen),
        None => candidates,
    }
}

/// Of several reservations for a type in a zone, keeps the one with the most free instances: one for dedicated machines only if a claim can
/// use no other (ours), since others may need it, and the first dedicated machine of a region costs a fee.
fn largest_reservations(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    /// Whether it is for machines of default tenancy, and how many instances are free.
    type Room = (bool, u32);
    let mut largest: BTreeMap<(&str, &str), (Room, &str)> = BTreeMap::new();
    for candidate in &candidates {
        for offering in candidate.offerings.iter().filter(|offering| is_reserved(offering)) {
            let key = (candidate.instance_type.name.as_str(), offering.zone());
            let id = offering.label(labels::RESERVATION_ID).unwrap_or_default();
            let room = (!offering.is_dedicated(), offering.reservation_capacity.unwrap_or_default());
            let entry = largest.entry(key).or_insert((room, id));
            // On a tie the smaller id, so that the choice does not depend on the order in the status.
            if room > entry.0 || room == entry.0 && id < entry.1 {
                *entry = (room, id);
            }
        }
    }
    if largest.is_empty() {
        return candidates;
    }
    retain(candidates.clone(), |each, offering| {
        is_reserved(offering)
            && largest.get(&(each.name.as_str(), offering.zone())).is_some_and(|(_, id)| offering.label(labels::RESERVATION_ID) == Some(id))
    })
}

/// Resources of special types, which are avoided for pods that do not request them.
const EXOTIC: &[&str] = &["nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "habana.ai/gaudi"];

/// Whether a type is metal or accelerated: a launch without `minValues` does without it while others remain.
#[must_use]
pub fn is_exotic(instance_type: &InstanceType) -> bool {
    instance_type.label(labels::INSTANCE_SIZE).is_some_and(|size| size.contains("metal"))
        || EXOTIC.iter().any(|name| !instance_type.capacity.get(name).is_zero())
}

/// Keeps metal and accelerated types only if nothing else remains.
fn without_exotic(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    if candidates.iter().all(|candidate| is_exotic(candidate.instance_type)) {
        return candidates;
    }
    retain(candidates, |each, _| !is_exotic(each))
}

/// Removes spot offerings that cost more than the cheapest on-demand one.
fn without_expensive_spot<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted<'_>) -> Vec<Candidate<'a>> {
    let allowed = |kind: &str| wanted.allows(labels::CAPACITY_TYPE, kind);
    if !allowed(labels::CAPACITY_SPOT) || !allowed(labels::CAPACITY_ON_DEMAND) {
        return candidates;
    }
    let of = |kind: &'static str| {
        let all = candidates.iter().flat_map(|candidate| &candidate.offerings);
        all.filter(move |offering| offering.capacity_type() == kind).map(|offering| offering.price).min()
    };
    let (Some(limit), Some(_)) = (of(labels::CAPACITY_ON_DEMAND), of(labels::CAPACITY_SPOT)) else { return candidates };
    retain(candidates, |_, offering| offering.capacity_type() != labels::CAPACITY_SPOT || offering.price <= limit)
}

/// An error if the types have fewer values of a key than `minValues` asks for.
pub(super) fn keep_min_values(candidates: &[Candidate<'_>], wanted: &Wanted<'_>) -> Result<(), FilterError> {
    for (key, least) in wanted.min_values() {
        let all = candidates.iter().flat_map(|candidate| &candidate.instance_type.requirements);
        let values: BTreeSet<&String> =
            all.filter(|requirement| requirement.key == key).flat_map(|requirement| &requirement.values).collect();
        if u32::try_from(values.len()).is_ok_and(|found| found < least) {
            return Err(FilterError::MinValues { key: key.to_owned(), found: values.len(), wanted: least });
        }
    }
    Ok(())
}
