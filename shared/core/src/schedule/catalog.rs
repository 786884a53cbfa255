//! Instance types and offerings as bit sets: "which types satisfy this" is an AND.

use super::bits::Bits;
use super::hash::Map;
use super::intern::{Key, Names, Set, Vals};
use crate::requirements;
use whittle_api::catalog::InstanceType;
use whittle_api::labels;

/// What cannot be had costs this.
pub(crate) const NO_PRICE: u64 = u64::MAX;

/// The resource names of a problem, as dimensions of vectors.
#[derive(Debug, Default)]
pub(crate) struct Dims {
    pub(crate) names: Vec<String>,
}

impl Dims {
    pub(crate) fn of(&mut self, name: &str) -> usize {
        self.known(name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }

    pub(crate) fn known(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n == name)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Milli amounts by dimension; names without a dimension are dropped.
    pub(crate) fn vector(&self, resources: &whittle_units::Resources) -> Vec<i64> {
        self.names.iter().map(|name| resources.get(name).milli()).collect()
    }
}

/// Offerings with equal requirements, over all types.
#[derive(Debug)]
pub(crate) struct OfferKind {
    pub(crate) set: Set,
    pub(crate) capacity_type: String,
    pub(crate) zone: String,
    /// Number of the reservation.
    pub(crate) reservation: Option<usize>,
    /// Types with an available offering of the kind.
    pub(crate) available: Bits,
    /// By type, billionths of a dollar per hour; [`NO_PRICE`] where not available.
    pub(crate) price: Vec<u64>,
}

/// For one dimension: the amounts that occur, ascending, and which types have at least (or at most) so much.
#[derive(Debug)]
struct Steps {
    at: Vec<i64>,
    types: Vec<Bits>,
}

impl Steps {
    /// By ascending amount, the types from there up.
    fn at_least(amounts: &[i64]) -> Self {
        let mut out = Self::gather(amounts, amounts.len(), true);
        out.at.reverse();
        out.types.reverse();
        out
    }

    /// By ascending amount, the types from there down.
    fn at_most(amounts: &[i64]) -> Self {
        Self::gather(amounts, amounts.len(), false)
    }

    fn gather(amounts: &[i64], size: usize, descending: bool) -> Self {
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by_key(|n| amounts[*n]);
        if descending {
            order.reverse();
        }
        let (mut out, mut sofar) = (Self { at: Vec::new(), types: Vec::new() }, Bits::none(size));
        for run in order.chunk_by(|a, b| amounts[*a] == amounts[*b]) {
            run.iter().for_each(|n| sofar.insert(*n));
            out.at.push(amounts[run[0]]);
            out.types.push(sofar.clone());
        }
        out
    }
}

/// One list of instance types.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// By ascending base price, then name.
    pub(crate) names: Vec<String>,
    /// By type: its place in the list that it came from.
    pub(crate) place: Vec<usize>,
    pub(crate) sets: Vec<Set>,
    pub(crate) kinds: Vec<OfferKind>,
    pub(crate) allocatable: Vec<Vec<i64>>,
    pub(crate) capacity: Vec<Vec<i64>>,
    /// By dimension of what pods can use.
    room: Vec<Steps>,
    /// By dimension of the whole machine, which limits count.
    bulk: Vec<Steps>,
    by_value: Map<(Key, Vals), Bits>,
}

/// What a requirement set leaves of a catalog.
#[derive(Debug)]
pub(crate) struct View {
    /// Types whose own requirements agree.
    pub(crate) met: Bits,
    /// Types with an available offering that agrees.
    pub(crate) offered: Bits,
    /// Both.
    pub(crate) usable: Bits,
    /// By type: the cheapest available offering that agrees.
    pub(crate) price: Vec<u64>,
    /// The usable types by price, then number.
    order: Vec<usize>,
    /// That is by their numbers.
    ascending: bool,
    /// Kinds of offerings that agree.
    pub(crate) kinds: Vec<usize>,
    /// Keys that demand distinct values, and how many.
    pub(crate) min_values: Vec<(Key, u32)>,
}

impl Catalog {
    pub(crate) fn build(types: &[InstanceType], names: &mut Names, dims: &Dims, reservations: &mut Reservations) -> Self {
        let base = |t: &InstanceType| t.offerings.iter().filter(|o| o.available).map(|o| o.price).min();
        let mut place: Vec<usize> = (0..types.len()).collect();
        place.sort_by_key(|at| (base(&types[*at]).is_none(), base(&types[*at]), &types[*at].name));
        let order: Vec<&InstanceType> = place.iter().map(|at| &types[*at]).collect();
        let mut out = Self {
            place,
            names: order.iter().map(|t| t.name.clone()).collect(),
            sets: order.iter().map(|t| names.set(&requirements::from_requirements(&t.requirements))).collect(),
            kinds: Vec::new(),
            allocatable: order.iter().map(|t| dims.vector(&t.allocatable())).collect(),
            capacity: order.iter().map(|t| dims.vector(&t.capacity)).collect(),
            room: Vec::new(),
            bulk: Vec::new(),
            by_value: Map::default(),
        };
        let mut kind_of: Map<Set, usize> = Map::default();
        for (n, t) in order.iter().enumerate() {
            for offering in &t.offerings {
                let reqs = requirements::from_requirements(&offering.requirements);
                let set = names.set(&reqs);
                let at = *kind_of.entry(set.clone()).or_insert_with(|| {
                    out.kinds.push(OfferKind {
                        set,
                        capacity_type: offering.capacity_type().to_owned(),
                        zone: offering.zone().to_owned(),
                        reservation: reservations.of(offering),
                        available: Bits::none(order.len()),
                        price: vec![NO_PRICE; order.len()],
                    });
                    out.kinds.len() - 1
                });
                reservations.note(offering);
                if offering.available {
                    let kind = &mut out.kinds[at];
                    kind.available.insert(n);
                    kind.price[n] = kind.price[n].min(offering.price.nanos());
                }
            }
        }
        let of = |amounts: &[Vec<i64>], d: usize| amounts.iter().map(|a| a[d]).collect::<Vec<_>>();
        out.room = (0..dims.len()).map(|d| Steps::at_least(&of(&out.allocatable, d))).collect();
        out.bulk = (0..dims.len()).map(|d| Steps::at_most(&of(&out.capacity, d))).collect();
        out
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Keeps in `types` those with room for `need`.
    pub(crate) fn keep_fitting(&self, need: &[i64], types: &mut Bits) {
        for (steps, &amount) in self.room.iter().zip(need) {
            if amount <= 0 {
                continue;
            }
            match steps.at.partition_point(|step| *step < amount) {
                0 => {}
                at if at == steps.at.len() => return types.clear(),
                at => types.keep(&steps.types[at]),
            }
        }
    }

    /// Keeps in `types` those whose machines are no larger than `most` in dimension `d`.
    pub(crate) fn keep_no_larger(&self, d: usize, most: i64, types: &mut Bits) {
        let steps = &self.bulk[d];
        match steps.at.partition_point(|step| *step <= most) {
            0 => types.clear(),
            at if at == steps.at.len() => {}
            at => types.keep(&steps.types[at - 1]),
        }
    }

    /// The largest machine of all, in dimension `d`.
    pub(crate) fn top(&self, d: usize) -> i64 {
        self.bulk[d].at.last().copied().unwrap_or(0)
    }

    /// The largest machine that one of `types` is, in dimension `d`.
    pub(crate) fn largest(&self, d: usize, types: &Bits) -> i64 {
        let steps = &self.bulk[d];
        // The first step that holds all of them.
        let at = steps.types.partition_point(|upto| !types.within(upto));
        steps.at.get(at).copied().filter(|_| !types.is_empty()).unwrap_or(0)
    }

    /// Types whose own requirement on `key` agrees with `allowed`.
    fn agreeing(&mut self, key: Key, allowed: &Vals) -> &Bits {
        let sets = &self.sets;
        self.by_value.entry((key, allowed.clone())).or_insert_with(|| {
            let asked: Set = [(key, allowed.clone())].into_iter().collect();
            let mut bits = Bits::none(sets.len());
            for (n, set) in sets.iter().enumerate() {
                if set.intersects(&asked).is_ok() {
                    bits.insert(n);
                }
            }
            bits
        })
    }

    /// How many types each requirement of `set` leaves on its own.
    pub(crate) fn agreeing_count(&mut self, key: Key, allowed: &Vals) -> usize {
        self.agreeing(key, allowed).count()
    }

    pub(crate) fn view(&mut self, set: &Set, well_known: impl Fn(&Key) -> bool) -> View {
        let n = self.len();
        let mut met = Bits::all(n);
        for (key, allowed) in set.iter() {
            let plain = allowed.clone().with_min_values(None);
            let bits = self.agreeing(*key, &plain);
            met.keep(bits);
        }
        let mut offered = Bits::none(n);
        let mut price = vec![NO_PRICE; n];
        let mut kinds = Vec::new();
        for (at, kind) in self.kinds.iter().enumerate() {
            if set.compatible(&kind.set, &well_known).is_ok() {
                kinds.push(at);
                offered.unite(&kind.available);
                for (best, offer) in price.iter_mut().zip(&kind.price) {
                    *best = (*best).min(*offer);
                }
            }
        }
        let mut usable = met.clone();
        usable.keep(&offered);
        let mut order: Vec<usize> = usable.iter().collect();
        order.sort_by_key(|t| price[*t]);
        let ascending = order.is_sorted();
        let min_values = set.iter().filter_map(|(key, allowed)| Some((*key, allowed.min_values()?))).collect();
        View { met, offered, usable, price, order, ascending, kinds, min_values }
    }

    /// How many distinct values of `key` the types have, whatever is asked of it.
    pub(crate) fn distinct(&self, key: Key, types: &Bits) -> u32 {
        let mut seen: Vec<u32> =
            types.iter().filter_map(|t| self.sets[t].get(&key)).flat_map(|a| a.listed().iter().map(|v| v.id)).collect();
        seen.sort_unstable();
        seen.dedup();
        u32::try_from(seen.len()).unwrap_or(u32::MAX)
    }
}

impl View {
    /// The cheapest of `types` and its price.
    pub(crate) fn cheapest(&self, types: &Bits) -> Option<(usize, u64)> {
        if self.ascending {
            return types.first().map(|t| (t, self.price[t]));
        }
        self.by_price(types).next().map(|t| (t, self.price[t]))
    }

    /// Those of `types` that are usable, cheapest first, then by number.
    pub(crate) fn by_price<'v>(&'v self, types: &'v Bits) -> impl Iterator<Item = usize> + 'v {
        self.order.iter().copied().filter(|t| types.has(*t))
    }
}

/// Capacity reservations: how many machines each still has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    pub(crate) ids: Vec<String>,
    pub(crate) left: Vec<i64>,
}

impl Reservations {
    fn of(&mut self, offering: &whittle_api::catalog::Offering) -> Option<usize> {
        let id = offering.label(labels::RESERVATION_ID).filter(|_| offering.capacity_type() == labels::CAPACITY_RESERVED)?;
        Some(self.ids.iter().position(|known| known == id).unwrap_or_else(|| {
            self.ids.push(id.to_owned());
            self.left.push(i64::MAX);
            self.ids.len() - 1
        }))
    }

    /// A reservation has as many machines as the offering that says the least.
    fn note(&mut self, offering: &whittle_api::catalog::Offering) {
        if let Some(at) = self.of(offering) {
            self.left[at] = self.left[at].min(i64::from(offering.reservation_capacity.unwrap_or(0)));
        }
    }
}
