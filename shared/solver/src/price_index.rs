//! Prices of machines of one NodePool with given requirements, by the amounts that must fit on them.

use super::bits::Bits;
use super::ids::{DimId, Id as _, IdVec, PoolId, RankId, SetId, TypeId};
use super::problem::Problem;

/// The maximum number of resources: problems with more are not improved.
pub(crate) const DIMS: usize = 12;
/// CPU and memory come first; other resources have no price.
const PRICED_DIMS: usize = 2;
/// This many types are checked one by one before the bit sets are used.
const LINEAR_SCAN_MAX: usize = 16;
/// How far behind a type to look for types that have at least as much of everything.
const COMMON_SCAN_MAX: usize = 64;

/// Amounts by dimension, padded with zeros. The length is known at compile time, since an improvement spends most of its time
/// comparing them.
pub(crate) type Amounts<const D: usize> = [i64; D];

/// A list of at most `D` amounts.
pub(crate) fn amounts<const D: usize>(list: &[i64]) -> Amounts<D> {
    let mut out = [0; D];
    out.iter_mut().zip(list).for_each(|(to, from)| *to = *from);
    out
}

/// Whether there is enough of everything.
pub(crate) fn fits_in<const D: usize>(want: &Amounts<D>, have: &Amounts<D>) -> bool {
    // Without branches: which dimension is short is unpredictable.
    want.iter().zip(have).fold(true, |fits, (want, have)| fits & (want <= have))
}

/// What remains of `have` without `taken`.
pub(crate) fn minus<const D: usize>(have: &Amounts<D>, taken: &Amounts<D>) -> Amounts<D> {
    std::array::from_fn(|dim| have[dim] - taken[dim])
}

/// The sum of both.
pub(crate) fn plus<const D: usize>(a: &Amounts<D>, b: &Amounts<D>) -> Amounts<D> {
    std::array::from_fn(|dim| a[dim].saturating_add(b[dim]))
}

/// Which types are considered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// No type before this one has room.
    pub(crate) from: RankId,
    /// The maximum price.
    pub(crate) most: u64,
    /// How many types must have room; at most [`TypePriceIndex::keep`].
    pub(crate) keep: usize,
}

/// A type and its price, with the other costs of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankedPrice {
    pub(crate) at: RankId,
    pub(crate) price: u64,
}

/// Types in the order of their prices, with the amounts that they have for pods.
#[derive(Debug)]
pub(crate) struct TypePriceIndex<const D: usize> {
    ranked: IdVec<RankId, TypeId>,
    /// With the other costs of a machine.
    price: IdVec<RankId, u64>,
    /// What is left for pods after daemons.
    pub(crate) net: IdVec<RankId, Amounts<D>>,
    /// The capacity of the machine.
    bulk: IdVec<RankId, Amounts<D>>,
    /// Whether as many types as a claim should keep are known to have at least as much of everything.
    common: IdVec<RankId, bool>,
    steps: [Steps; D],
    /// The value of a unit of CPU and of memory, in billionths of a dollar per hour.
    pub(crate) unit: [f64; PRICED_DIMS],
    /// The smallest difference between two prices.
    pub(crate) step: f64,
    /// How many types a claim should keep.
    pub(crate) keep: usize,
    size: usize,
}

/// The distinct amounts of one dimension, ascending, with the types that have at least that much.
#[derive(Debug, Default)]
struct Steps {
    at: Vec<i64>,
    places: Vec<Bits<RankId>>,
}

impl<const D: usize> TypePriceIndex<D> {
    /// The types of the NodePool that `set` allows, with their prices.
    pub(crate) fn open(problem: &mut Problem<'_>, pool: PoolId, set: SetId) -> Self {
        let view = problem.view(problem.pools[pool].catalog, set);
        let keep = problem.types_to_keep(pool, &view);
        let pool = &problem.pools[pool];
        let catalog = &problem.catalogs[pool.catalog];
        let mut types = pool.types.clone();
        types.intersect_with(&view.usable);
        let left = |t: TypeId| -> Amounts<D> {
            let daemons = pool.daemons.iter().find(|g| g.types.has(t));
            let taken = |dim: DimId| daemons.map_or(0, |g| g.overhead[dim]);
            let net: Vec<i64> = catalog.allocatable[t].enumerate().map(|(dim, n)| n.saturating_sub(taken(dim))).collect();
            amounts(&net)
        };
        // A type that cannot even hold its daemons holds no pods.
        let holding = view.by_price(&types).map(|t| (t, left(t))).filter(|(_, net)| net.iter().all(|n| *n >= 0));
        let (ranked, net): (Vec<TypeId>, Vec<Amounts<D>>) = holding.unzip();
        let price = ranked.iter().map(|t| view.price[*t].saturating_add(pool.machine_cost)).collect();
        let bulk = ranked.iter().map(|t| amounts(catalog.capacity[*t].as_slice())).collect();
        Self::of(ranked, price, net, bulk, keep, catalog.len())
    }

    /// From the types of a list of `size`, cheapest first: their numbers, prices, amounts for pods and capacities.
    fn of(ranked: Vec<TypeId>, price: Vec<u64>, net: Vec<Amounts<D>>, bulk: Vec<Amounts<D>>, keep: usize, size: usize) -> Self {
        let gaps = price.windows(2).map(|w| w[1] - w[0]).filter(|gap| *gap > 0);
        Self {
            step: gaps.min().map_or(1.0, |gap| gap as f64),
            common: (0..net.len()).map(|at| common(&net[at..], keep)).collect(),
            steps: std::array::from_fn(|dim| Steps::of(&net, dim)),
            unit: units(&price, &net),
            ranked: ranked.into(),
            price: price.into(),
            net: net.into(),
            bulk: bulk.into(),
            keep,
            size,
        }
    }

    /// By type: its price, and what it has for pods.
    pub(crate) fn priced(&self) -> impl Iterator<Item = (u64, Amounts<D>)> {
        self.price.iter().copied().zip(self.net.iter().copied())
    }

    /// The cheapest type with room for `need`.
    pub(crate) fn cheapest_for(&self, need: &Amounts<D>) -> Option<RankedPrice> {
        self.cheapest_within(need, &Bounds { from: RankId::at(0), most: u64::MAX, keep: 1 })
    }

    /// The same, within bounds.
    pub(crate) fn cheapest_within(&self, need: &Amounts<D>, bounds: &Bounds) -> Option<RankedPrice> {
        let at = self.cheapest(need, bounds)?;
        self.has_enough_types(need, at, bounds.keep).then(|| RankedPrice { at, price: self.price[at] })
    }

    /// The first with room.
    fn cheapest(&self, need: &Amounts<D>, bounds: &Bounds) -> Option<RankId> {
        let far = self.net.len().min(bounds.from.position() + LINEAR_SCAN_MAX);
        for at in (bounds.from.position()..far).map(RankId::at) {
            if self.price[at] > bounds.most {
                return None;
            }
            if fits_in(need, &self.net[at]) {
                return Some(at);
            }
        }
        let (word, bits) =
            self.fitting(need, far / 64).find(|(word, bits)| *bits != 0 || self.price[RankId::at(word * 64)] > bounds.most)?;
        let at = RankId::at(word * 64 + bits.trailing_zeros() as usize);
        (bits != 0 && self.price[at] <= bounds.most).then_some(at)
    }

    /// Whether at least `types` types have room for `need`, where the cheapest of them is `at`.
    pub(crate) fn has_enough_types(&self, need: &Amounts<D>, at: RankId, types: usize) -> bool {
        if types <= 1 || (self.common[at] && types <= self.keep) {
            return true;
        }
        let mut count = 0;
        self.fitting(need, at.position() / 64).any(|(_, bits)| {
            count += bits.count_ones() as usize;
            count >= types
        })
    }

    /// How many types have room for `need`.
    pub(crate) fn count(&self, need: &Amounts<D>) -> usize {
        self.fitting(need, 0).map(|(_, bits)| bits.count_ones() as usize).sum()
    }

    /// The types with room for `need`, by their numbers.
    pub(crate) fn types(&self, need: &Amounts<D>) -> Bits {
        let mut out = Bits::none(self.size);
        self.each_place(need, 0, |at| {
            out.insert(self.ranked[at]);
            true
        });
        out
    }

    /// By dimension: the largest capacity among the cheapest `keep` types with room for `need`, the first of them
    /// `at`.
    pub(crate) fn largest(&self, need: &Amounts<D>, at: RankId, keep: usize) -> Amounts<D> {
        let (mut most, mut left) = ([0; D], keep);
        self.each_place(need, at.position() / 64, |at| {
            if left > 0 {
                most = std::array::from_fn(|dim| most[dim].max(self.bulk[at][dim]));
                left -= 1;
            }
            left > 0
        });
        most
    }

    /// Calls `more` with each type with room for `need`, from word `from` on, until it returns false.
    fn each_place(&self, need: &Amounts<D>, from: usize, mut more: impl FnMut(RankId) -> bool) {
        for (word, mut bits) in self.fitting(need, from) {
            while bits != 0 {
                if !more(RankId::at(word * 64 + bits.trailing_zeros() as usize)) {
                    return;
                }
                bits &= bits - 1;
            }
        }
    }

    /// The types with room for `need`, as words of bits from word `from` on.
    fn fitting(&self, need: &Amounts<D>, from: usize) -> impl Iterator<Item = (usize, u64)> {
        let mut sets: [&[u64]; D] = [&[]; D];
        let (mut bounded, mut none) = (0, false);
        for (steps, amount) in self.steps.iter().zip(need) {
            if *amount <= steps.at.first().copied().unwrap_or(i64::MIN).max(0) {
                continue; // every type has that much
            }
            match steps.places.get(steps.at.partition_point(|step| step < amount)) {
                Some(places) => {
                    sets[bounded] = places.words();
                    bounded += 1;
                }
                None => none = true,
            }
        }
        let words = if none { 0 } else { self.ranked.len().div_ceil(64) };
        (from..words).map(move |word| {
            let last = self.ranked.len() - word * 64;
            let all = if last >= 64 { u64::MAX } else { (1 << last) - 1 };
            (word, sets[..bounded].iter().fold(all, |bits, set| bits & set.get(word).copied().unwrap_or(0)))
        })
    }

    /// The value of amounts.
    pub(crate) fn value(&self, amounts: &Amounts<D>) -> f64 {
        amounts.iter().zip(&self.unit).map(|(n, unit)| *n as f64 * unit).sum()
    }
}

impl Steps {
    fn of<const D: usize>(net: &[Amounts<D>], dim: usize) -> Self {
        let mut order: Vec<usize> = (0..net.len()).collect();
        order.sort_by_key(|n| std::cmp::Reverse(net[*n][dim]));
        let (mut out, mut so_far) = (Self::default(), Bits::none(net.len()));
        for run in order.chunk_by(|a, b| net[*a][dim] == net[*b][dim]) {
            run.iter().for_each(|n| so_far.insert(RankId::at(*n)));
            out.at.push(net[run[0]][dim]);
            out.places.push(so_far.clone());
        }
        out.at.reverse();
        out.places.reverse();
        out
    }
}

/// Whether `keep` of these types, the cheapest first, have at least as much of everything as the first.
fn common<const D: usize>(net: &[Amounts<D>], keep: usize) -> bool {
    let behind = net.iter().take(COMMON_SCAN_MAX);
    behind.filter(|more| fits_in(&net[0], more)).take(keep).count() == keep
}

/// The value of a unit of each dimension: half of the lowest price per CPU, and likewise for memory. Other resources have no
/// value, since a shortage of them rules types out rather than making them gradually more expensive.
fn units<const D: usize>(price: &[u64], net: &[Amounts<D>]) -> [f64; PRICED_DIMS] {
    std::array::from_fn(|dim| {
        let each = price.iter().zip(net).filter(|(_, net)| net[dim] > 0).map(|(price, net)| *price as f64 / net[dim] as f64);
        each.min_by(f64::total_cmp).unwrap_or(0.0) / 2.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Types with these amounts, three of each price; the number of each is its position counted from the end.
    fn price_index(net: &[Amounts<4>], keep: usize) -> TypePriceIndex<4> {
        let ranked = (0..net.len()).rev().map(TypeId::at).collect();
        let price = (0..net.len() as u64).map(|n| 100 + n / 3 * 10).collect();
        let bulk = net.iter().map(|net| net.map(|n| n + 1)).collect();
        TypePriceIndex::of(ranked, price, net.to_vec(), bulk, keep, net.len())
    }

    fn some(most: i64) -> impl Strategy<Value = Amounts<4>> {
        [0..most, 0..most, 0..most, 0..1].prop_map(|amounts| amounts.map(|n| n * 1000))
    }

    proptest! {
        #[test]
        fn the_cheapest_type_with_room_is_the_one_that_a_look_at_all_of_them_finds(
            net in prop::collection::vec(some(12), 0..150),
            need in some(13),
            keep in 1_usize..16,
            asked in 1_usize..16,
            most in 0_u64..800,
        ) {
            let price_index = price_index(&net, keep);
            let room: Vec<usize> = (0..net.len()).filter(|at| fits_in(&need, &net[*at])).collect();
            let first = room.first().copied();
            let (from, asked) = (first.unwrap_or(0), asked.min(keep));
            for from in [0, from / 2, from] {
                let found = price_index.cheapest_within(&need, &Bounds { from: RankId::at(from), most, keep: asked });
                let expected = first.map(|at| RankedPrice { at: RankId::at(at), price: 100 + at as u64 / 3 * 10 });
                let expected = expected.filter(|found| found.price <= most && room.len() >= asked);
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(price_index.count(&need), room.len());
            prop_assert_eq!(price_index.types(&need).iter().collect::<Vec<_>>(), room.iter().rev().map(|at| TypeId::at(net.len() - 1 - at)).collect::<Vec<_>>());
            if let Some(at) = first.map(RankId::at) {
                let largest = |dim: usize| room.iter().take(asked).map(|at| net[*at][dim] + 1).max().unwrap_or(0);
                prop_assert_eq!(price_index.largest(&need, at, asked), std::array::from_fn(largest));
                prop_assert_eq!(price_index.has_enough_types(&need, at, asked), room.len() >= asked);
            }
        }
    }
}
