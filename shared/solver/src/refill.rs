//! Fills a few machines with given pods, each pod where it adds least to the price.

use super::ids::{Id as _, IdVec, PodGroupId, PodId, RankId, SlotId};
use super::knapsack::Size;
use super::price_index::{Amounts, Bounds, RankedPrice, TypePriceIndex, fits_in, minus, plus};

/// How many orders of pods are tried in turn.
pub(crate) const SORT_ORDERS: usize = 4;

/// The maximum count of a host group that allows a pod to join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRule {
    pub(crate) slot: SlotId,
    /// The largest allowed count.
    pub(crate) most: u32,
}

/// Pods that repacking does not distinguish: same class, same relaxation.
#[derive(Debug)]
pub(crate) struct PodGroup<const D: usize> {
    pub(crate) requests: Amounts<D>,
    pub(crate) rules: Vec<HostRule>,
    pub(crate) counts: Vec<SlotId>,
    /// The cheapest machine for one such pod.
    pub(crate) alone: RankedPrice,
    /// How many types its machine should keep.
    pub(crate) keep: usize,
    /// By order: the size that is sorted by, larger first.
    pub(crate) size: [f64; SORT_ORDERS],
}

/// A pod with its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupedPod {
    pub(crate) pod: PodId,
    pub(crate) group: PodGroupId,
}

/// Which groups' pods count in a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountedHere {
    None,
    Only(PodGroupId),
    Several,
}

/// A machine while it is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Bin<const D: usize> {
    pub(crate) need: Amounts<D>,
    pub(crate) spare: Amounts<D>,
    counts: IdVec<SlotId, u32>,
    pub(crate) pods: Vec<GroupedPod>,
    pub(crate) at: RankId,
    pub(crate) price: u64,
    pub(crate) keep: usize,
}

/// Packs pods of one NodePool onto machines with equal requirements.
pub(crate) struct BinPacker<'p, const D: usize> {
    pub(crate) price_index: &'p TypePriceIndex<D>,
    pod_groups: &'p IdVec<PodGroupId, PodGroup<D>>,
    /// By order and pod group: its rank, the largest first.
    size_ranks: [IdVec<PodGroupId, u32>; SORT_ORDERS],
    slots: usize,
    pub(crate) comparisons: u64,
    /// Scratch space.
    bins: Vec<Bin<D>>,
    used: usize,
    pods: Vec<GroupedPod>,
    order: Vec<u64>,
}

/// The best machine so far for a pod.
struct Best {
    /// What it adds to the price.
    added_price: u64,
    /// The value of the resources that would remain unused on it.
    left: f64,
    bin: usize,
    at: RankId,
}

impl<'p, const D: usize> BinPacker<'p, D> {
    /// A packer for pods of `pod_groups`, which count in this many `slots`.
    pub(crate) fn new(price_index: &'p TypePriceIndex<D>, pod_groups: &'p IdVec<PodGroupId, PodGroup<D>>, slots: usize) -> Self {
        let size_ranks = std::array::from_fn(|sort_order| size_ranks(pod_groups, sort_order));
        Self { price_index, pod_groups, size_ranks, slots, comparisons: 0, bins: Vec::new(), used: 0, pods: Vec::new(), order: Vec::new() }
    }

    /// Pods by size, the largest first; `None` if there are more than `most` sizes, or if pods may not share machines with others than
    /// those of their own group.
    pub(crate) fn by_size(&self, pods: impl Iterator<Item = GroupedPod>, most: usize) -> Option<Vec<(Size<D>, Vec<GroupedPod>)>> {
        let selected = self.groups_by_slot();
        let mut out: Vec<(Size<D>, Vec<GroupedPod>)> = Vec::new();
        let mut of: IdVec<PodGroupId, usize> = IdVec::new();
        for (id, group) in self.pod_groups.enumerate() {
            let mut size = Size { requests: group.requests, together: usize::MAX, pods: 0 };
            for rule in &group.rules {
                match selected[rule.slot] {
                    CountedHere::None => {}
                    CountedHere::Only(other) if other == id => size.together = size.together.min(rule.most as usize + 1),
                    CountedHere::Only(_) | CountedHere::Several => return None,
                }
            }
            let known = out.iter().position(|(known, _)| size.together == usize::MAX && *known == size);
            of.push(known.unwrap_or(out.len()));
            if known.is_none() {
                out.push((size, Vec::new()));
            }
            if out.len() > most {
                return None;
            }
        }
        pods.for_each(|pod| out[of[pod.group]].1.push(pod));
        out.iter_mut().for_each(|(size, pods)| size.pods = pods.len());
        out.retain(|(size, _)| size.pods > 0);
        // Whichever way found the pods: equal sizes are divided equally.
        out.sort_by(|(a, _), (b, _)| b.cmp(a));
        Some(out)
    }

    /// By slot: which groups' pods count there.
    fn groups_by_slot(&self) -> IdVec<SlotId, CountedHere> {
        let mut out = IdVec::new();
        out.reset(self.slots, CountedHere::None);
        for (id, group) in self.pod_groups.enumerate() {
            for slot in &group.counts {
                out[*slot] = if out[*slot] == CountedHere::None { CountedHere::Only(id) } else { CountedHere::Several };
            }
        }
        out
    }

    /// The machines as they were last filled.
    pub(crate) fn bins(&self) -> &[Bin<D>] {
        &self.bins[..self.used]
    }

    /// Fills at most `machines`, for at most `most`, with the pods of `pod_lists`; returns the price.
    pub(crate) fn fill<'h>(
        &mut self,
        pod_lists: impl Iterator<Item = &'h [GroupedPod]>,
        sort_order: usize,
        machines: usize,
        most: u64,
    ) -> Option<u64> {
        self.pods.clear();
        pod_lists.for_each(|pods| self.pods.extend_from_slice(pods));
        self.order.clear();
        let size_ranks = &self.size_ranks[sort_order];
        self.order.extend(self.pods.iter().enumerate().map(|(n, pod)| u64::from(size_ranks[pod.group]) << 32 | n as u64));
        self.order.sort_unstable();
        self.used = 0;
        let mut price = 0;
        for at in 0..self.order.len() {
            let n = self.order[at] & u64::from(u32::MAX);
            price += self.place(self.pods[n as usize]);
            if price > most || self.used > machines {
                return None;
            }
        }
        Some(price)
    }

    /// Fills a machine for each of `shares`, which says how many pods of each size it takes; returns the price of all.
    pub(crate) fn deal(&mut self, pods: Vec<Vec<GroupedPod>>, shares: &[Vec<usize>]) -> Option<u64> {
        self.used = 0;
        let mut pods: Vec<_> = pods.into_iter().map(Vec::into_iter).collect();
        for share in shares {
            self.open();
            let bin = self.used - 1;
            for (count, pods) in share.iter().zip(&mut pods) {
                for pod in pods.take(*count) {
                    let need = plus(&self.bins[bin].need, &self.pod_groups[pod.group].requests);
                    let RankedPrice { at, price } = self.price_index.cheapest_for(&need)?;
                    self.add(pod, &Best { added_price: price - self.bins[bin].price, left: 0.0, bin, at });
                }
            }
        }
        Some(self.bins().iter().map(|bin| bin.price).sum())
    }

    /// Places a pod where it adds least to the price; returns what it adds.
    fn place(&mut self, pod: GroupedPod) -> u64 {
        let pod_group = &self.pod_groups[pod.group];
        self.comparisons += self.used as u64;
        let mut best = Best { added_price: pod_group.alone.price, left: f64::MAX, bin: self.used, at: pod_group.alone.at };
        for (n, bin) in self.bins[..self.used].iter().enumerate() {
            if pod_group.rules.iter().any(|r| bin.counts[r.slot] > r.most) {
                continue;
            }
            let (added_price, at) = if fits_in(&pod_group.requests, &bin.spare) {
                (0, bin.at)
            } else if best.added_price > 0 {
                let most = bin.price.saturating_add(best.added_price);
                let bounds = Bounds { from: bin.at.max(pod_group.alone.at), most, keep: bin.keep.min(pod_group.keep) };
                match self.price_index.cheapest_within(&plus(&bin.need, &pod_group.requests), &bounds) {
                    Some(RankedPrice { at, price }) => (price - bin.price, at),
                    None => continue,
                }
            } else {
                continue;
            };
            let left = self.price_index.value(&minus(&minus(&self.price_index.net[at], &bin.need), &pod_group.requests));
            if added_price < best.added_price || left < best.left {
                best = Best { added_price, left, bin: n, at };
            }
        }
        self.add(pod, &best);
        best.added_price
    }

    fn add(&mut self, pod: GroupedPod, to: &Best) {
        if to.bin == self.used {
            self.open();
        }
        let (pod_group, bin) = (&self.pod_groups[pod.group], &mut self.bins[to.bin]);
        bin.need = plus(&bin.need, &pod_group.requests);
        bin.spare = minus(&self.price_index.net[to.at], &bin.need);
        pod_group.counts.iter().for_each(|slot| bin.counts[*slot] += 1);
        bin.at = to.at;
        bin.price += to.added_price;
        bin.keep = bin.keep.min(pod_group.keep);
        bin.pods.push(pod);
    }

    fn open(&mut self) {
        if self.used == self.bins.len() {
            self.bins.push(Bin {
                need: [0; D],
                spare: [0; D],
                counts: IdVec::new(),
                pods: Vec::new(),
                at: RankId::at(0),
                price: 0,
                keep: 0,
            });
        }
        let bin = &mut self.bins[self.used];
        (bin.need, bin.spare) = ([0; D], [0; D]);
        bin.counts.reset(self.slots, 0);
        bin.pods.clear();
        (bin.price, bin.keep) = (0, self.price_index.keep);
        self.used += 1;
    }
}

/// By pod group: its rank in one order, the largest first; equals have the same rank.
fn size_ranks<const D: usize>(pod_groups: &IdVec<PodGroupId, PodGroup<D>>, sort_order: usize) -> IdVec<PodGroupId, u32> {
    let size = |group: &PodGroupId| pod_groups[*group].size[sort_order];
    let mut order: Vec<PodGroupId> = pod_groups.ids().collect();
    order.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut out = IdVec::filled(0, pod_groups);
    for (rank, equals) in order.chunk_by(|a, b| size(a).total_cmp(&size(b)).is_eq()).enumerate() {
        equals.iter().for_each(|group| out[*group] = u32::try_from(rank).expect("fewer than 2^32 groups of pods"));
    }
    out
}
