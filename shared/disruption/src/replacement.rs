//! The instance types that a replacement may have, and their prices under its requirements.

use super::cluster_view::ClusterView;
use super::offerings::Offerings;
use std::collections::BTreeSet;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::labels;
use whittle_model::requirements::{Allowed, Requirements, from_requirements};
use whittle_model::scheduling::NewClaim;
use whittle_solver::order;
use whittle_units::Price;

/// A replacement claim with its instance types.
#[derive(Clone)]
pub(super) struct Replacement<'w> {
    index: &'w Offerings,
    claim: NewClaim,
    requirements: Requirements,
    /// For each kind of offering, whether the requirements admit it.
    admitted: Vec<bool>,
    /// Cheapest first; ties in Karpenter's order.
    types: Vec<&'w InstanceType>,
}

/// Keys whose `minValues` the remaining types do not satisfy.
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
    /// Whether a type has an available offering of this capacity type.
    pub(super) fn is_sold_as(&self, capacity_type: &str) -> bool {
        self.types.iter().any(|instance_type| self.offerings(instance_type).any(|offering| offering.capacity_type() == capacity_type))
    }

    /// Restricts the capacity type. Types without such an offering stay listed, since the launch selects among
    /// offerings.
    pub(super) fn restrict_to(&mut self, capacity_type: &str) {
        self.requirements.add(labels::CAPACITY_TYPE.to_owned(), Allowed::one(capacity_type.to_owned()));
        self.admitted = self.index.admitted(&self.requirements);
        self.sort();
    }
    /// Keeps types with an available offering under the requirements.
    pub(super) fn keep_launchable(&mut self) {
        self.keep(|this, instance_type| this.cheapest(instance_type).is_some());
    }
    pub(super) fn retain(&mut self, keep: impl Fn(&InstanceType) -> bool) {
        self.types.retain(|instance_type| keep(instance_type));
    }

    /// Keeps types whose launch costs less than `ceiling` in the worst case.
    pub(super) fn keep_cheaper_than(&mut self, ceiling: Price) -> Result<(), UnmetMinValues> {
        self.keep(|this, instance_type| this.worst_launch_price(instance_type).is_some_and(|price| price < ceiling));
        self.has_min_values()
    }

    /// Whether the remaining types satisfy `minValues`.
    pub(super) fn has_min_values(&self) -> Result<(), UnmetMinValues> {
        let unmet = unmet_min_values(&self.requirements, &self.types);
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    /// Keeps the cheapest types: `count`, or more if `minValues` require it.
    pub(super) fn keep_cheapest(&mut self, count: usize) {
        let mut keep = count.min(self.types.len());
        while keep < self.types.len() && !unmet_min_values(&self.requirements, &self.types[..keep]).is_empty() {
            keep += 1;
        }
        self.types.truncate(keep);
    }

    /// Price of the cheapest type; zero when none can be launched.
    pub(super) fn expected_price(&self) -> Price {
        self.types.first().and_then(|first| self.cheapest(first)).unwrap_or(Price::ZERO)
    }

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
        order::with_ties(&mut priced);
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

    /// The highest price that a launch may pay: capacity types are tried in the order reserved, spot, on-demand, and
    /// any zone may be chosen.
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
        // A price of zero is unknown, so there is no upper bound.
        found.filter(|(_, known)| *known).map(|(most, _)| most)
    }
}

/// Keys that require more distinct values than the types have.
fn unmet_min_values(requirements: &Requirements, types: &[&InstanceType]) -> UnmetMinValues {
    let required = requirements.iter().filter_map(|(key, allowed)| Some((key, usize::try_from(allowed.min_values()?).ok()?)));
    required.filter(|(key, wanted)| distinct_values(key, types) < *wanted).map(|(key, _)| key.clone()).collect()
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
