//! What machines of one NodePool with given requirements cost, by how much must fit on them.

use super::bits::Bits;
use super::intern::SetId;
use super::limits;
use super::problem::Problem;
use whittle_api::labels;

/// More resources than this are not looked at: such problems are left as they are.
pub(crate) const DIMS: usize = 12;
/// CPU and memory come first, and nothing else has a price.
const VALUED: usize = 2;

/// Which types are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// No type before this place in the price order has the room.
    pub(crate) from: usize,
    /// What the type may cost.
    pub(crate) most: u64,
    /// How many types must have the room.
    pub(crate) keep: usize,
}

/// Types in the order of their prices, with what they have for pods.
#[derive(Debug)]
pub(crate) struct Shop {
    /// By place in the price order: number of the type.
    ranked: Vec<usize>,
    price: Vec<u64>,
    /// By place: what is left for pods after daemons.
    pub(crate) net: Vec<Vec<i64>>,
    /// By dimension: amounts, ascending, and the places with at least so much.
    steps: Vec<(Vec<i64>, Vec<Bits>)>,
    /// By dimension, of those that are worth anything: what one unit is worth, in billionths of a dollar per hour.
    pub(crate) unit: Vec<f64>,
    /// The smallest difference between two prices.
    pub(crate) step: f64,
    /// How many types a machine should keep.
    pub(crate) keep: usize,
    size: usize,
}

impl Shop {
    /// The types that `set` leaves of the pool's, with their prices.
    pub(crate) fn open(p: &mut Problem<'_>, pool: usize, set: SetId) -> Self {
        let view = p.view(p.pools[pool].catalog, set);
        let pool = &p.pools[pool];
        let catalog = &p.catalogs[pool.catalog];
        let mut types = pool.types.clone();
        types.keep(&view.usable);
        let left = |t: usize| -> Vec<i64> {
            let daemons = pool.daemons.iter().find(|g| g.types.has(t));
            let taken = |d: usize| daemons.map_or(0, |g| g.overhead[d]);
            catalog.allocatable[t].iter().enumerate().map(|(d, n)| n.saturating_sub(taken(d))).collect()
        };
        // A type that cannot even hold its daemons holds nobody.
        let holding = view.by_price(&types).map(|t| (t, left(t))).filter(|(_, net)| net.iter().all(|n| *n >= 0));
        let (ranked, net): (Vec<usize>, Vec<Vec<i64>>) = holding.unzip();
        let price: Vec<u64> = ranked.iter().map(|t| view.price[*t]).collect();
        let steps = (0..p.dims.len()).map(|d| steps(&net, d)).collect();
        let mut gaps: Vec<u64> = price.windows(2).map(|w| w[1] - w[0]).filter(|gap| *gap > 0).collect();
        gaps.sort_unstable();
        let keep = limits::kept_types(p, pool.catalog, &view);
        let unit = units(&price, &net, p.dims.len().min(VALUED));
        let step = gaps.first().map_or(1.0, |gap| *gap as f64);
        Self { size: catalog.len(), ranked, price, net, steps, unit, step, keep }
    }

    /// The place in the price order, and the price, of the cheapest type with room for `need`.
    pub(crate) fn place(&self, need: &[i64]) -> Option<(usize, u64)> {
        self.place_with(need, &[], &Bounds { from: 0, most: u64::MAX, keep: 1 })
    }

    /// The same for `need` and `more` together, within bounds.
    pub(crate) fn place_with(&self, need: &[i64], more: &[i64], bounds: &Bounds) -> Option<(usize, u64)> {
        let (mut found, mut count) = (None, 0);
        for (word, bits) in self.fitting(need, more, bounds.from / 64) {
            if found.is_none() {
                if self.price[word * 64] > bounds.most {
                    return None;
                }
                if bits != 0 {
                    found = Some(word * 64 + bits.trailing_zeros() as usize);
                }
            }
            count += bits.count_ones() as usize;
            if count >= bounds.keep {
                break;
            }
        }
        found.filter(|at| count >= bounds.keep && self.price[*at] <= bounds.most).map(|at| (at, self.price[at]))
    }

    /// How many types have room for `need`.
    pub(crate) fn count(&self, need: &[i64]) -> usize {
        self.fitting(need, &[], 0).map(|(_, bits)| bits.count_ones() as usize).sum()
    }

    /// The types with room for `need`, by their numbers.
    pub(crate) fn types(&self, need: &[i64]) -> Bits {
        let mut out = Bits::none(self.size);
        for (word, mut bits) in self.fitting(need, &[], 0) {
            while bits != 0 {
                out.insert(self.ranked[word * 64 + bits.trailing_zeros() as usize]);
                bits &= bits - 1;
            }
        }
        out
    }

    /// The places with room for `need` and `more`, as words of bits from word `from` on.
    fn fitting(&self, need: &[i64], more: &[i64], from: usize) -> impl Iterator<Item = (usize, u64)> {
        let mut sets: [&[u64]; DIMS] = [&[]; DIMS];
        let (mut bounded, mut none) = (0, false);
        for (d, (at, types)) in self.steps.iter().enumerate() {
            let amount = need[d].saturating_add(more.get(d).copied().unwrap_or(0));
            if amount <= at.first().copied().unwrap_or(i64::MIN).max(0) {
                continue; // every type has that much
            }
            match types.get(at.partition_point(|step| *step < amount)) {
                Some(types) => {
                    sets[bounded] = types.words();
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

    /// How many resources there are.
    pub(crate) fn dims(&self) -> usize {
        self.steps.len()
    }

    /// What amounts are worth.
    pub(crate) fn value(&self, amounts: &[i64]) -> f64 {
        amounts.iter().zip(&self.unit).map(|(n, unit)| *n as f64 * unit).sum()
    }

    /// The value of what a machine has left.
    pub(crate) fn spare_value(&self, at: usize, need: &[i64]) -> f64 {
        self.left_value(at, need, &[])
    }

    /// The value of what a machine has left with `more` on it.
    pub(crate) fn left_value(&self, at: usize, need: &[i64], more: &[i64]) -> f64 {
        let more = more.iter().copied().chain(std::iter::repeat(0));
        self.net[at].iter().zip(need).zip(more).zip(&self.unit).map(|(((net, need), more), unit)| (net - need - more) as f64 * unit).sum()
    }
}

fn steps(net: &[Vec<i64>], d: usize) -> (Vec<i64>, Vec<Bits>) {
    let mut order: Vec<usize> = (0..net.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(net[*n][d]));
    let (mut at, mut types, mut sofar) = (Vec::new(), Vec::new(), Bits::none(net.len()));
    for run in order.chunk_by(|a, b| net[*a][d] == net[*b][d]) {
        run.iter().for_each(|n| sofar.insert(*n));
        at.push(net[run[0]][d]);
        types.push(sofar.clone());
    }
    at.reverse();
    types.reverse();
    (at, types)
}

/// What a unit of each dimension is worth: half of the CPU's price by CPU alone, and likewise for memory; others nothing,
/// since what is scarce there rules types out rather than making them dearer by degrees.
fn units(price: &[u64], net: &[Vec<i64>], dims: usize) -> Vec<f64> {
    (0..dims)
        .map(|d| {
            let each = price.iter().zip(net).filter(|(_, net)| net[d] > 0).map(|(price, net)| *price as f64 / net[d] as f64);
            each.min_by(f64::total_cmp).unwrap_or(0.0) / 2.0
        })
        .collect()
}

/// Whether machines of these kinds of offerings may be spot machines.
pub(crate) fn may_be_spot(kinds: &[super::catalog::OfferKind], at: &[usize]) -> bool {
    at.iter().any(|k| kinds[*k].capacity_type == labels::CAPACITY_SPOT)
}
