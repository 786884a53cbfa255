//! Filling a few machines with the pods in hand, each pod where it costs least.

use super::shop::{Amounts, Bounds, Shop, less, plus, within};

/// How many ways of sorting pods are tried in turn.
pub(crate) const WAYS: usize = 4;

/// What is asked of the count of a host group before a pod may join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) slot: usize,
    /// The largest count that is still welcome.
    pub(crate) most: u32,
}

/// Pods that are alike to a repacking: same class, same wishes left.
#[derive(Debug)]
pub(crate) struct Sort<const D: usize> {
    pub(crate) requests: Amounts<D>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) counts: Vec<usize>,
    /// Its place in the price order and price when alone on a machine.
    pub(crate) alone: (usize, u64),
    /// Types that it should leave its machine.
    pub(crate) keep: usize,
    /// By way of sorting, larger first.
    pub(crate) size: [f64; WAYS],
}

/// A pod, with the number of its sort.
pub(crate) type Sorted = (u32, u32);

/// A machine while it is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Bin<const D: usize> {
    pub(crate) need: Amounts<D>,
    pub(crate) spare: Amounts<D>,
    counts: Vec<u32>,
    pub(crate) pods: Vec<Sorted>,
    pub(crate) at: usize,
    pub(crate) price: u64,
    pub(crate) keep: usize,
}

/// One NodePool's machines with equal requirements.
pub(crate) struct Yard<'p, const D: usize> {
    pub(crate) shop: &'p Shop<D>,
    sorts: &'p [Sort<D>],
    /// By way of sorting and sort: its rank among all, the largest first.
    ranks: [Vec<u32>; WAYS],
    slots: usize,
    pub(crate) comparisons: u64,
    /// Scratch.
    bins: Vec<Bin<D>>,
    used: usize,
    hand: Vec<Sorted>,
    order: Vec<u64>,
}

/// The best machine so far for a pod.
struct Best {
    /// What it adds to the price.
    dearer: u64,
    /// What is left beside it.
    left: f64,
    bin: usize,
    at: usize,
}

impl<'p, const D: usize> Yard<'p, D> {
    /// A yard for pods of `sorts`, which count in so many `slots`.
    pub(crate) fn new(shop: &'p Shop<D>, sorts: &'p [Sort<D>], slots: usize) -> Self {
        let ranks = std::array::from_fn(|way| ranks(sorts, way));
        Self { shop, sorts, ranks, slots, comparisons: 0, bins: Vec::new(), used: 0, hand: Vec::new(), order: Vec::new() }
    }

    /// The machines as they were filled last.
    pub(crate) fn bins(&self) -> &[Bin<D>] {
        &self.bins[..self.used]
    }

    /// Fills at most `machines` for at most `most` with the pods in `hands`; returns the price.
    pub(crate) fn fill<'h>(&mut self, hands: impl Iterator<Item = &'h [Sorted]>, way: usize, machines: usize, most: u64) -> Option<u64> {
        self.hand.clear();
        hands.for_each(|pods| self.hand.extend_from_slice(pods));
        self.order.clear();
        let ranks = &self.ranks[way];
        self.order.extend(self.hand.iter().enumerate().map(|(n, (_, sort))| u64::from(ranks[*sort as usize]) << 32 | n as u64));
        self.order.sort_unstable();
        self.used = 0;
        let mut price = 0;
        for at in 0..self.order.len() {
            let n = self.order[at] & u64::from(u32::MAX);
            price += self.put(self.hand[n as usize]);
            if price > most || self.used > machines {
                return None;
            }
        }
        Some(price)
    }

    /// Puts a pod where it costs least; returns what it adds to the price.
    fn put(&mut self, pod: Sorted) -> u64 {
        let sort = &self.sorts[pod.1 as usize];
        self.comparisons += self.used as u64;
        let mut best = Best { dearer: sort.alone.1, left: f64::MAX, bin: self.used, at: sort.alone.0 };
        for (n, bin) in self.bins[..self.used].iter().enumerate() {
            if sort.rules.iter().any(|r| bin.counts[r.slot] > r.most) {
                continue;
            }
            let (dearer, at) = if within(&sort.requests, &bin.spare) {
                (0, bin.at)
            } else if best.dearer > 0 {
                let most = bin.price.saturating_add(best.dearer);
                let bounds = Bounds { from: bin.at.max(sort.alone.0), most, keep: bin.keep.min(sort.keep) };
                match self.shop.place_within(&plus(&bin.need, &sort.requests), &bounds) {
                    Some((at, price)) => (price - bin.price, at),
                    None => continue,
                }
            } else {
                continue;
            };
            let left = self.shop.value(&less(&less(&self.shop.net[at], &bin.need), &sort.requests));
            if dearer < best.dearer || left < best.left {
                best = Best { dearer, left, bin: n, at };
            }
        }
        self.add(pod, &best);
        best.dearer
    }

    fn add(&mut self, pod: Sorted, to: &Best) {
        if to.bin == self.used {
            self.open();
        }
        let (sort, bin) = (&self.sorts[pod.1 as usize], &mut self.bins[to.bin]);
        bin.need = plus(&bin.need, &sort.requests);
        bin.spare = less(&self.shop.net[to.at], &bin.need);
        sort.counts.iter().for_each(|slot| bin.counts[*slot] += 1);
        bin.at = to.at;
        bin.price += to.dearer;
        bin.keep = bin.keep.min(sort.keep);
        bin.pods.push(pod);
    }

    fn open(&mut self) {
        if self.used == self.bins.len() {
            self.bins.push(Bin { need: [0; D], spare: [0; D], counts: Vec::new(), pods: Vec::new(), at: 0, price: 0, keep: 0 });
        }
        let bin = &mut self.bins[self.used];
        (bin.need, bin.spare) = ([0; D], [0; D]);
        bin.counts.clear();
        bin.counts.resize(self.slots, 0);
        bin.pods.clear();
        (bin.price, bin.keep) = (0, self.shop.keep);
        self.used += 1;
    }
}

/// By sort: its rank by one way of sorting, the largest first; equals have the same.
fn ranks<const D: usize>(sorts: &[Sort<D>], way: usize) -> Vec<u32> {
    let size = |n: &usize| sorts[*n].size[way];
    let mut order: Vec<usize> = (0..sorts.len()).collect();
    order.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut out = vec![0; sorts.len()];
    for (rank, equals) in order.chunk_by(|a, b| size(a).total_cmp(&size(b)).is_eq()).enumerate() {
        equals.iter().for_each(|n| out[*n] = u32::try_from(rank).expect("fewer than 2^32 sorts"));
    }
    out
}
