//! A better packing of machines that are asked for anyway: a few of them are emptied in thought and filled again, and
//! what is cheaper stays.
//!
//! Only machines of one NodePool with equal requirements exchange pods, so that no count by zone, or by any key but the
//! host name, changes. Pods that name ports, volumes or a neighbour on their machine stay where they are.

use super::bits::Bits;
use super::hash::Map;
use super::intern::SetId;
use super::limits;
use super::pod::{Class, Form};
use super::problem::Problem;
use super::shop::{Bounds, DIMS, Shop};
use super::state::{Claim, State};
use super::topology::{Group, GroupId, Kind};

/// Fewer machines than this are never filled anew together, and at most this many more.
const FEWEST: usize = 2;
const MORE: usize = 5;
/// Machines with more pods than this together are left alone: the few that have so many are well filled.
const MANY_PODS: usize = 400;
/// How many comparisons of a pod with a machine take as long as one unit of work.
const PER_WORK: u64 = 11;
/// After so many rounds without success, there is nothing left to find.
const PATIENCE: usize = 4;

/// What is asked of the count of a host group before a pod may join.
#[derive(Clone, Copy, Debug)]
struct Rule {
    slot: usize,
    /// The largest count that is still welcome.
    most: u32,
}

/// Pods that are alike to a repacking: same class, same wishes left.
#[derive(Debug)]
struct Sort {
    requests: Vec<i64>,
    rules: Vec<Rule>,
    counts: Vec<usize>,
    /// Its place in the price order and price when alone on a machine.
    alone: (usize, u64),
    /// Types that it should leave its machine.
    keep: usize,
    /// By way of sorting, larger first.
    size: [f64; WAYS],
}

/// How many ways of sorting pods are tried in turn.
const WAYS: usize = 4;

/// A machine while it is being filled.
#[derive(Clone, Debug, Default)]
struct Bin {
    need: Vec<i64>,
    spare: Vec<i64>,
    counts: Vec<u32>,
    /// Positions in the list of pods in hand.
    pods: Vec<usize>,
    at: usize,
    price: u64,
    keep: usize,
}

/// One NodePool's machines with equal requirements.
struct Yard<'p> {
    shop: &'p Shop,
    sorts: &'p [Sort],
    slots: usize,
    /// Scratch.
    bins: Vec<Bin>,
    used: usize,
    comparisons: u64,
}

/// Repacks within `budget`, with claims charged for `keep` types each; says how much work that was.
pub(crate) fn improve(p: &mut Problem<'_>, st: &mut State, keep: usize, budget: u64) -> u64 {
    if p.dims.len() > DIMS {
        return 0;
    }
    let mut by_set: Map<(usize, SetId), usize> = Map::default();
    let mut parts: Vec<((usize, SetId), Vec<usize>)> = Vec::new();
    for (at, claim) in st.claims.iter().enumerate() {
        if claim.held.is_empty() && claim.ports.is_empty() && !claim.relaxed {
            let key = (claim.pool, claim.set);
            let part = *by_set.entry(key).or_insert_with(|| {
                parts.push((key, Vec::new()));
                parts.len() - 1
            });
            parts[part].1.push(at);
        }
    }
    let total: usize = parts.iter().map(|(_, claims)| claims.len()).sum();
    let mut work = 0;
    for ((pool, set), claims) in parts {
        let share = budget * claims.len() as u64 / total.max(1) as u64;
        work += improve_part(p, st, Part { pool, set, keep }, claims, share);
    }
    if st.claims.iter().any(|c| c.pods.is_empty()) {
        st.claims.retain(|c| !c.pods.is_empty());
    }
    work
}

fn improve_part(p: &mut Problem<'_>, st: &mut State, part: Part, claims: Vec<usize>, budget: u64) -> u64 {
    let Part { pool, set, .. } = part;
    let shop = Shop::open(p, pool, set);
    let mut gather = Gather { p, shop: &shop, pool, set, sorts: Vec::new(), of: Map::default(), slot_of: Map::default() };
    let mut held: Vec<Held> = Vec::with_capacity(claims.len());
    for at in claims {
        let pods = st.claims[at].pods.iter().map(|pod| gather.sort_of(*pod, st.form_of[*pod as usize]).map(|s| (*pod, s)));
        let Some(pods) = pods.collect::<Option<Vec<_>>>() else { continue };
        if let Some((place, price)) = shop.place(&st.claims[at].requests) {
            let spare = shop.spare_value(place, &st.claims[at].requests);
            held.push(Held { claim: at, pods, price, spare });
        }
    }
    let (sorts, slots) = (gather.sorts, gather.slot_of.len());
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let mut yard = Yard { shop: &shop, sorts: &sorts, slots, bins: Vec::new(), used: 0, comparisons: 0 };
    let more = usize::from(p.pools[pool].node_limit.is_none());
    let before: u64 = held.iter().map(|h| h.price).sum();
    let (mut round, mut idle) = (0, 0);
    while idle < PATIENCE && yard.comparisons / PER_WORK < budget {
        held.retain(|h| !h.pods.is_empty());
        if held.len() < FEWEST {
            break;
        }
        if round % 2 == 0 {
            held.sort_by(|a, b| b.spare.total_cmp(&a.spare).then(a.claim.cmp(&b.claim)));
            dice.stir(&mut held, 24);
        } else {
            let all = held.len();
            dice.stir(&mut held, all);
        }
        let mut fresh = Vec::new();
        let mut better = false;
        for group in held.chunks_mut(FEWEST + round % MORE) {
            if yard.comparisons / PER_WORK >= budget {
                break;
            }
            if yard.refill(group, round % WAYS, more) && accept(p, st, part, group, &yard, &mut fresh) {
                better = true;
            }
        }
        held.append(&mut fresh);
        idle = if better { 0 } else { idle + 1 };
        round += 1;
    }
    if more > 0 {
        spread_out(p, st, part, held, &mut yard, before);
    }
    yard.comparisons / PER_WORK
}

/// Divides machines that grew so large that few types are left for them, as long as all together cost no more than before.
fn spread_out(p: &mut Problem<'_>, st: &mut State, part: Part, mut held: Vec<Held>, yard: &mut Yard<'_>, before: u64) {
    let mut total: u64 = held.iter().map(|h| h.price).sum();
    let few = |h: &Held| h.pods.len() > 1 && yard.shop.count(&st.claims[h.claim].requests) < yard.shop.keep;
    let large: Vec<usize> = (0..held.len()).filter(|n| few(&held[*n])).collect();
    for n in large {
        let (group, mut fresh) = (&mut held[n..=n], Vec::new());
        let old = group[0].price;
        let Some(new) = yard.fill(group, 0, usize::MAX, before.saturating_sub(total).saturating_add(old)) else { continue };
        if accept(p, st, part, group, yard, &mut fresh) {
            total = (total - old).saturating_add(new);
        }
    }
}

/// Which claims exchange pods, and with how many types each is charged.
#[derive(Clone, Copy)]
struct Part {
    pool: usize,
    set: SetId,
    keep: usize,
}

/// A claim as a repacking sees it.
struct Held {
    claim: usize,
    /// With the number of their sort.
    pods: Vec<(u32, usize)>,
    price: u64,
    /// Value of what it does not use.
    spare: f64,
}

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n.max(1) as u64).unwrap_or(0)
    }

    /// Moves each entry by up to `far` places or so.
    fn stir<T>(&mut self, list: &mut [T], far: usize) {
        for at in 0..list.len() {
            let to = at + self.below(far.min(list.len() - at));
            list.swap(at, to);
        }
    }
}

/// Finds out which pods are alike.
struct Gather<'g, 'a> {
    p: &'g mut Problem<'a>,
    shop: &'g Shop,
    pool: usize,
    set: SetId,
    sorts: Vec<Sort>,
    of: Map<(u32, u16), Option<usize>>,
    slot_of: Map<u32, usize>,
}

impl Gather<'_, '_> {
    /// The number of the pod's sort; nothing if it must stay where it is.
    fn sort_of(&mut self, pod: u32, form: u16) -> Option<usize> {
        let class = self.p.class_of[pod as usize].0;
        if let Some(known) = self.of.get(&(class, form)) {
            return *known;
        }
        let found = self.sort(class, form).map(|sort| {
            self.sorts.push(sort);
            self.sorts.len() - 1
        });
        self.of.insert((class, form), found);
        found
    }

    fn sort(&mut self, class: u32, form: u16) -> Option<Sort> {
        let class = std::rc::Rc::clone(&self.p.classes[class as usize]);
        let form = class.forms.get(form as usize)?;
        let fixed = !class.ports.is_empty() || !class.volumes.is_empty() || !class.places.is_empty();
        if fixed || self.clings(&class, form) || self.p.merge(self.set, form.full, true) != Some(self.set) {
            return None;
        }
        let rules = form.owned.iter().chain(&form.repelled_by).filter_map(|g| self.rule(*g, form)).collect::<Vec<_>>();
        let counted: Vec<GroupId> = class.counted_by.iter().chain(&class.repels).copied().collect();
        let counted: Vec<GroupId> = counted.into_iter().filter(|g| self.counts_here(*g)).collect();
        let counts = counted.into_iter().map(|g| self.slot(g)).collect();
        let (at, price) = self.shop.place(&class.requests)?;
        let keep = self.shop.keep.min(self.shop.count(&class.requests));
        let value = self.shop.value(&class.requests);
        let picky = if rules.iter().any(|r: &Rule| r.most == 0) { 1e12 } else { 0.0 };
        let share = |d: usize| class.requests.get(d).zip(self.shop.unit.get(d)).map_or(0.0, |(n, unit)| unit * *n as f64);
        let size = [picky + value, picky + share(0) + value / 1e3, picky + share(1) + value / 1e3, value];
        Some(Sort { requests: class.requests.clone(), rules, counts, alone: (at, price), keep, size })
    }

    /// Whether some pod wants to be on one machine with this one, or this one with another.
    fn clings(&self, class: &Class, form: &Form) -> bool {
        let attracts = |g: &GroupId| {
            let group = &self.p.groups[g.0 as usize];
            group.by_host && group.kind == Kind::Affinity
        };
        form.owned.iter().any(attracts) || class.counted_by.iter().any(attracts)
    }

    fn rule(&mut self, id: GroupId, form: &Form) -> Option<Rule> {
        let group: &Group = &self.p.groups[id.0 as usize];
        if !group.by_host {
            return None;
        }
        let selects = i64::from(group.selects.has(form.labels.0 as usize));
        let most = match group.kind {
            Kind::Spread { max_skew, .. } => u32::try_from(max_skew - selects).unwrap_or(0),
            Kind::Affinity | Kind::Anti | Kind::Inverse => 0,
        };
        Some(Rule { slot: self.slot(id), most })
    }

    fn slot(&mut self, id: GroupId) -> usize {
        let next = self.slot_of.len();
        *self.slot_of.entry(id.0).or_insert(next)
    }

    /// Whether a pod on these machines counts in the group, and the group counts by machine.
    fn counts_here(&self, id: GroupId) -> bool {
        let group = &self.p.groups[id.0 as usize];
        group.by_host && group.filter.counts(self.p, self.set, self.p.pools[self.pool].taints)
    }
}

impl Yard<'_> {
    /// Fills the machines of `group` anew; whether that is better than what they are.
    fn refill(&mut self, group: &[Held], way: usize, more: usize) -> bool {
        let pods: usize = group.iter().map(|h| h.pods.len()).sum();
        let spare: f64 = group.iter().map(|h| h.spare).sum();
        self.comparisons += PER_WORK / 4;
        if group.len() < FEWEST || pods > MANY_PODS || spare < self.shop.step {
            return false;
        }
        let before: u64 = group.iter().map(|h| h.price).sum();
        let Some(price) = self.fill(group, way, group.len() + more, before) else { return false };
        if price != before || self.used != group.len() {
            return price < before || self.used < group.len();
        }
        // As good: better if what is spare is together, where it can be of use.
        let together = |spare: f64| spare * spare;
        let old: f64 = group.iter().map(|h| together(h.spare)).sum();
        let new: f64 = self.bins[..self.used].iter().map(|b| together(self.shop.value(&b.spare))).sum();
        new > old * 1.01
    }

    /// Fills at most `machines` for at most `most` with the pods of `group`; returns the price.
    fn fill(&mut self, group: &[Held], way: usize, machines: usize, most: u64) -> Option<u64> {
        // By size, largest first: sizes are no less than nothing, so their bits stand in their order.
        let size = |s: usize| std::cmp::Reverse(self.sorts[s].size[way].to_bits());
        let pods = group.iter().flat_map(|h| &h.pods).enumerate();
        let mut order: Vec<_> = pods.map(|(n, (_, sort))| (size(*sort), n, *sort)).collect();
        order.sort_unstable();
        self.used = 0;
        let mut price = 0;
        for (_, pod, sort) in order {
            price += self.put(pod, sort);
            if price > most || self.used > machines {
                return None;
            }
        }
        Some(price)
    }

    /// Puts a pod where it costs least; returns what it adds to the price.
    fn put(&mut self, pod: usize, number: usize) -> u64 {
        let sort = &self.sorts[number];
        let mut best = (sort.alone.1, f64::MAX, self.used, sort.alone.0);
        for (n, bin) in self.bins[..self.used].iter().enumerate() {
            self.comparisons += 1;
            if sort.rules.iter().any(|r| bin.counts[r.slot] > r.most) {
                continue;
            }
            let (dearer, at) = if sort.requests.iter().zip(&bin.spare).all(|(want, have)| want <= have) {
                (0, bin.at)
            } else if best.0 > 0 {
                let most = bin.price.saturating_add(best.0);
                let bounds = Bounds { from: bin.at.max(sort.alone.0), most, keep: bin.keep.min(sort.keep) };
                match self.shop.place_with(&bin.need, &sort.requests, &bounds) {
                    Some((at, price)) => (price - bin.price, at),
                    None => continue,
                }
            } else {
                continue;
            };
            if dearer > best.0 {
                continue;
            }
            let left = self.shop.left_value(at, &bin.need, &sort.requests);
            if dearer < best.0 || left < best.1 {
                best = (dearer, left, n, at);
            }
        }
        let (dearer, _, to, at) = best;
        if to == self.used {
            self.open();
        }
        let bin = &mut self.bins[to];
        for (sum, more) in bin.need.iter_mut().zip(&sort.requests) {
            *sum += more;
        }
        for ((spare, net), need) in bin.spare.iter_mut().zip(&self.shop.net[at]).zip(&bin.need) {
            *spare = net - need;
        }
        sort.counts.iter().for_each(|slot| bin.counts[*slot] += 1);
        bin.at = at;
        bin.price += dearer;
        bin.keep = bin.keep.min(sort.keep);
        bin.pods.push(pod);
        dearer
    }

    fn open(&mut self) {
        if self.used == self.bins.len() {
            self.bins.push(Bin::default());
        }
        let dims = self.shop.dims();
        let bin = &mut self.bins[self.used];
        for list in [&mut bin.need, &mut bin.spare] {
            list.clear();
            list.resize(dims, 0);
        }
        bin.counts.clear();
        bin.counts.resize(self.slots, 0);
        bin.pods.clear();
        (bin.price, bin.keep) = (0, self.shop.keep);
        self.used += 1;
    }
}

/// Makes the claims what the yard found, unless the NodePool's limits or `minValues` are against it.
fn accept(
    p: &mut Problem<'_>,
    st: &mut State,
    Part { pool, set, keep }: Part,
    group: &mut [Held],
    yard: &Yard<'_>,
    fresh: &mut Vec<Held>,
) -> bool {
    let pods: Vec<(u32, usize)> = group.iter().flat_map(|h| &h.pods).copied().collect();
    let bins = &yard.bins[..yard.used];
    let types: Vec<Bits> = bins.iter().map(|b| yard.shop.types(&b.need)).collect();
    if bins.iter().zip(&types).any(|(bin, types)| bin.pods.len() > 1 && types.count() < bin.keep) {
        return false;
    }
    let view = p.view(p.pools[pool].catalog, set);
    let few = |t: &Bits| !super::pools::min_values_met(&p.catalogs[p.pools[pool].catalog], &view, t);
    if !view.min_values.is_empty() && types.iter().any(few) {
        return false;
    }
    let charges: Vec<Vec<i64>> = types.iter().map(|t| limits::charge(p, pool, &view, t, keep)).collect();
    let before = limits::sum(group.iter().map(|h| &st.claims[h.claim].charged));
    if !st.afford(pool, &before, &limits::sum(charges.iter())) {
        return false;
    }
    let own = group.len();
    for _ in own..bins.len() {
        let at = st.open(p, pool);
        st.claims[at].set = set;
        fresh.push(Held { claim: at, pods: Vec::new(), price: 0, spare: 0.0 });
    }
    let new = fresh.len() - bins.len().saturating_sub(own);
    for (n, held) in group.iter_mut().chain(&mut fresh[new..]).enumerate() {
        let claim: &mut Claim = &mut st.claims[held.claim];
        let Some(bin) = bins.get(n) else {
            held.pods.clear();
            claim.pods.clear();
            claim.charged.clear();
            continue;
        };
        held.pods = bin.pods.iter().map(|at| pods[*at]).collect();
        held.price = bin.price;
        held.spare = yard.shop.value(&bin.spare);
        claim.pods = held.pods.iter().map(|(pod, _)| *pod).collect();
        claim.requests.clone_from(&bin.need);
        claim.types.clone_from(&types[n]);
        claim.charged.clone_from(&charges[n]);
    }
    true
}
