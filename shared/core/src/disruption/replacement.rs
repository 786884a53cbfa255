//! The instance types that a replacement may become, and their prices under its requirements.

use super::cluster_view::ClusterView;
use super::offerings::Offerings;
use crate::requirements::{Allowed, Requirements, from_requirements};
use crate::schedule::{NewClaim, with_ties};
use std::collections::BTreeSet;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::labels;
use whittle_units::Price;

/// A replacement with its types at hand.
#[derive(Clone)]
pub(super) struct Replacement<'w> {
    index: &'w Offerings,
    claim: NewClaim,
    requirements: Requirements,
    /// By kind of offering: whether the requirements admit it.
    admitted: Vec<bool>,
    /// Cheapest first; equal prices as the reference leaves them.
    types: Vec<&'w InstanceType>,
}

/// Labels whose `minValues` the remaining types do not reach.
pub(super) type UnmetMinValues = Vec<String>;

impl<'w> Replacement<'w> {
    pub(super) fn new(view: &'w ClusterView<'w>, claim: NewClaim) -> Self {
        let types = claim.instance_types.iter().filter_map(|name| view.instance_type(&claim.node_pool, name)).collect();
        let mut requirements = from_requirements(&claim.requirements);
        if claim.instance_type_min_values.is_some() {
            let names = Allowed::one_of(claim.instance_types.iter().cloned());
            requirements.add(labels::INSTANCE_TYPE.to_owned(), names.with_min_values(claim.instance_type_min_values));
        }
        let index = &view.offerings;
        let admitted = index.admitted(&requirements);
        let mut replacement = Self { index, claim, requirements, admitted, types };
        replacement.sort();
        replacement
    }

    pub(super) fn len(&self) -> usize {
        self.types.len()
    }
    pub(super) fn type_names(&self) -> impl Iterator<Item = &'w str> + '_ {
        self.types.iter().map(|instance_type| instance_type.name.as_str())
    }
    pub(super) fn allows(&self, capacity_type: &str) -> bool {
        self.requirements.get(labels::CAPACITY_TYPE).is_none_or(|allowed| allowed.has(&capacity_type.to_owned()))
    }

    /// Leaves one capacity type. Types that do not offer it stay listed, as the launch decides among offerings.
    pub(super) fn restrict_to(&mut self, capacity_type: &str) {
        self.requirements.add(labels::CAPACITY_TYPE.to_owned(), Allowed::one(capacity_type.to_owned()));
        self.admitted = self.index.admitted(&self.requirements);
        self.sort();
    }
    /// Keeps types that have something to launch under the requirements.
    pub(super) fn keep_launchable(&mut self) {
        self.keep(|this, instance_type| this.cheapest(instance_type).is_some());
    }
    pub(super) fn retain(&mut self, keep: impl Fn(&InstanceType) -> bool) {
        self.types.retain(|instance_type| keep(instance_type));
    }

    /// Keeps types whose launch costs less than `ceiling` even at its worst.
    pub(super) fn keep_cheaper_than(&mut self, ceiling: Price) -> Result<(), UnmetMinValues> {
        self.keep(|this, instance_type| this.worst_launch_price(instance_type).is_some_and(|price| price < ceiling));
        self.has_min_values()
    }

    /// Whether the types that are left are as many, and as different, as is asked for.
    pub(super) fn has_min_values(&self) -> Result<(), UnmetMinValues> {
        let unmet = unmet_min_values(&self.requirements, &self.types);
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    /// Keeps the cheapest types: `count`, or as many as `minValues` need.
    pub(super) fn keep_cheapest(&mut self, count: usize) {
        let mut keep = count.min(self.types.len());
        while keep < self.types.len() && !unmet_min_values(&self.requirements, &self.types[..keep]).is_empty() {
            keep += 1;
        }
        self.types.truncate(keep);
    }

    /// Of the first type: what the replacement is expected to cost. Nothing when it cannot be launched.
    pub(super) fn expected_price(&self) -> Price {
        self.types.first().and_then(|first| self.cheapest(first)).unwrap_or(Price::ZERO)
    }

    /// As it is to be asked for.
    pub(super) fn into_claim(self) -> NewClaim {
        let mut written = self.requirements.clone();
        if self.claim.instance_type_min_values.is_some() {
            written.remove(labels::INSTANCE_TYPE);
        }
        let offerings = self.types.iter().map(|instance_type| self.offerings(instance_type).count()).sum();
        NewClaim {
            cheapest_price: self.expected_price(),
            instance_types: self.types.iter().map(|instance_type| instance_type.name.clone()).collect(),
            requirements: written.to_api(),
            offerings,
            ..self.claim
        }
    }

    fn sort(&mut self) {
        let price = |instance_type: &InstanceType| self.cheapest(instance_type).map_or(u64::MAX, Price::nanos);
        let mut priced: Vec<(u64, usize)> = self.types.iter().map(|instance_type| price(instance_type)).zip(0..).collect();
        with_ties(&mut priced);
        self.types = priced.into_iter().map(|(_, at)| self.types[at]).collect();
    }

    fn keep(&mut self, keep: impl Fn(&Self, &InstanceType) -> bool) {
        let kept = self.types.iter().copied().filter(|instance_type| keep(self, instance_type)).collect();
        self.types = kept;
    }

    /// Available offerings that the requirements admit.
    fn offerings<'t>(&self, instance_type: &'t InstanceType) -> impl Iterator<Item = &'t Offering> {
        let available = self.index.kinds_of(instance_type).filter(|(kind, offering)| offering.available && self.admitted[*kind]);
        available.map(|(_, offering)| offering)
    }

    fn cheapest(&self, instance_type: &InstanceType) -> Option<Price> {
        self.offerings(instance_type).map(|offering| offering.price).min()
    }

    /// What a launch may cost: capacity types are taken in the order reserved, spot, on-demand, zones as they come.
    fn worst_launch_price(&self, instance_type: &InstanceType) -> Option<Price> {
        let found = [labels::CAPACITY_RESERVED, labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND].into_iter().find_map(|capacity_type| {
            let of_kind = self.offerings(instance_type).filter(|offering| offering.capacity_type() == capacity_type);
            let prices = of_kind.map(|offering| offering.price);
            let worst = prices.fold(None, |worst: Option<(Price, bool)>, price| {
                let (most, known) = worst.unwrap_or((price, true));
                Some((most.max(price), known && price > Price::ZERO))
            });
            worst.map(|(most, known)| (most, known || capacity_type == labels::CAPACITY_RESERVED))
        });
        // What seems to be free has a price that nobody knows: it may be any.
        found.filter(|(_, known)| *known).map(|(most, _)| most)
    }
}

/// Keys that ask for more distinct values than the types have.
fn unmet_min_values(requirements: &Requirements, types: &[&InstanceType]) -> UnmetMinValues {
    let asking = requirements.iter().filter_map(|(key, allowed)| Some((key, usize::try_from(allowed.min_values()?).ok()?)));
    asking.filter(|(key, wanted)| distinct_values(key, types) < *wanted).map(|(key, _)| key.clone()).collect()
}

fn distinct_values(key: &str, types: &[&InstanceType]) -> usize {
    if key == labels::INSTANCE_TYPE {
        return types.len();
    }
    let values: BTreeSet<&String> = types
        .iter()
        .flat_map(|instance_type| &instance_type.requirements)
        .filter(|requirement| labels::normalized(&requirement.key) == key && requirement.operator == whittle_api::karpenter::Operator::In)
        .flat_map(|requirement| &requirement.values)
        .collect();
    values.len()
}
