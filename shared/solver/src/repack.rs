//! Improves a packing: a few new claims are emptied and filled again, and cheaper results are kept.
//!
//! Only claims of one NodePool with equal requirements exchange pods, so that no count changes except those by hostname. Pods
//! with host ports, volumes or affinity by hostname stay where they are.

use super::few_sizes::{self, Division};
use super::grid::Room;
use super::hash::Map;
use super::ids::{ClaimId, ClassId, GroupId, Id as _, IdVec, Key, PodGroupId, PodId, PoolId, RankId, SetId, SlotId};
use super::intern::LabelsOf;
use super::knapsack::Size;
use super::limits;
use super::objective;
use super::patterns;
use super::pod::{Class, Relaxation};
use super::pools::min_values_met;
use super::price_index::{Amounts, DIMS, RankedPrice, TypePriceIndex, amounts, minus, plus};
use super::problem::Problem;
use super::refill::{Bin, BinPacker, GroupedPod, HostRule, PodGroup, SORT_ORDERS};
use super::state::State;
use super::topology::{Group, GroupKind};
use std::cmp::Reverse;
use std::rc::Rc;
use whittle_api::objective::Objective;

/// The smallest number of claims that are filled again together, and the number of group sizes from there on.
const GROUP_MIN: usize = 2;
const GROUP_SIZES: usize = 5;
/// Groups of claims with more pods than this are left alone: few have that many, and they are well filled.
const PODS_MAX: usize = 400;
/// Up to this many sizes, every way to divide the pods may be tried.
const FEW_SIZES: usize = 6;
/// Comparisons of a pod with a machine per unit of work.
const COMPARISONS_PER_WORK: u64 = 11;
/// After this many rounds without success, the search ends.
const IDLE_ROUNDS_MAX: usize = 4;

/// Repacks within `budget`, with claims charged for `keep` types each; returns the work done.
pub(crate) fn improve(problem: &mut Problem<'_>, state: &mut State, keep: usize, objective: Objective, budget: u64) -> u64 {
    struct Alike {
        pool: PoolId,
        set: SetId,
        claims: Vec<ClaimId>,
    }
    let mut by_set: Map<(PoolId, SetId), usize> = Map::default();
    let mut parts: Vec<Alike> = Vec::new();
    for (at, claim) in state.claims.enumerate() {
        if claim.reservations.is_empty() && claim.ports.is_empty() && !claim.relaxed {
            let part = *by_set.entry((claim.pool, claim.set)).or_insert_with(|| {
                parts.push(Alike { pool: claim.pool, set: claim.set, claims: Vec::new() });
                parts.len() - 1
            });
            parts[part].claims.push(at);
        }
    }
    let total: usize = parts.iter().map(|part| part.claims.len()).sum();
    let mut work = 0;
    for Alike { pool, set, claims } in parts {
        let share = budget * claims.len() as u64 / total.max(1) as u64;
        let part = Part { pool, set, keep, objective };
        work += match problem.dims.len() {
            0..=4 => improve_part::<4>(problem, state, part, claims, share),
            5..=8 => improve_part::<8>(problem, state, part, claims, share),
            9..=DIMS => improve_part::<DIMS>(problem, state, part, claims, share),
            _ => 0,
        };
    }
    if state.claims.iter().any(|c| c.pods.is_empty()) {
        state.claims.retain(|c| !c.pods.is_empty());
    }
    work
}

fn improve_part<const D: usize>(problem: &mut Problem<'_>, state: &mut State, part: Part, claims: Vec<ClaimId>, budget: u64) -> u64 {
    let Part { pool, set, objective, .. } = part;
    let price_index = TypePriceIndex::<D>::open(problem, pool, set);
    let mut builder = GroupBuilder {
        problem,
        price_index: &price_index,
        pool,
        set,
        pod_groups: IdVec::new(),
        of: Map::default(),
        slot_of: Map::default(),
    };
    let open_claims = claims.into_iter().filter_map(|at| builder.movable_claim(state, at)).collect();
    let (pod_groups, slots) = (builder.pod_groups, builder.slot_of.len());
    let packer = BinPacker::new(&price_index, &pod_groups, slots);
    let more = usize::from(problem.pools[pool].node_limit.is_none());
    let mut repacking = Repacking { problem, state, part, open_claims, packer, more };
    let before = repacking.price();
    repacking.deal_pods_by_size();
    repacking.exchange(budget);
    if more > 0 && objective != Objective::Fewest {
        repacking.divide_narrow_claims(before);
    }
    repacking.settle()
}

/// Which claims exchange pods, and with how many types each is charged.
#[derive(Clone, Copy)]
struct Part {
    pool: PoolId,
    set: SetId,
    keep: usize,
    objective: Objective,
}

/// A claim during repacking.
struct OpenClaim<const D: usize> {
    /// Its number; `None` for one that is yet to be opened.
    claim: Option<ClaimId>,
    pods: Vec<GroupedPod>,
    need: Amounts<D>,
    /// What the NodePool's limits are charged with for it.
    charged: Amounts<D>,
    /// Its cheapest type.
    at: RankId,
    price: u64,
    /// The value of the resources that its pods do not use.
    spare: f64,
    /// It differs from the claim in the state.
    changed: bool,
}

/// The claims of one part while they exchange pods. The state is updated at the end.
struct Repacking<'r, 'a, const D: usize> {
    problem: &'r mut Problem<'a>,
    state: &'r mut State,
    part: Part,
    /// In the order of their claims, then the new ones.
    open_claims: Vec<OpenClaim<D>>,
    packer: BinPacker<'r, D>,
    /// How many more machines than before a group may need.
    more: usize,
}

impl<const D: usize> Repacking<'_, '_, D> {
    fn price(&self) -> u64 {
        self.open_claims.iter().map(|claim| claim.price).sum()
    }

    /// Divides pods of some dozens of sizes among machines at hardly more than the least cost by the objective, unless that raises
    /// their price.
    fn deal_pods_by_size(&mut self) {
        let pods = self.open_claims.iter().flat_map(|claim| claim.pods.iter().copied());
        let Some(by_size) = self.packer.by_size(pods, patterns::SIZES_MAX) else { return };
        let (sizes, pods): (Vec<Size<D>>, Vec<Vec<GroupedPod>>) = by_size.into_iter().unzip();
        let Some(division) = self.division(&sizes) else { return };
        let all: Vec<usize> = (0..self.open_claims.len()).collect();
        let before: u64 = self.open_claims.iter().map(|claim| claim.price.saturating_add(self.risk(claim.price, &claim.need))).sum();
        let (old_price, machine_cost) = (self.price(), self.problem.pools[self.part.pool].machine_cost);
        let Some(price) = self.packer.deal(pods, &division.shares) else { return };
        let bins = self.packer.bins();
        let risk: u64 = bins.iter().map(|bin| self.risk(bin.price, &bin.need)).sum();
        let hourly = |price: u64, machines: usize| price.saturating_sub(machine_cost.saturating_mul(machines as u64));
        let dearer = hourly(old_price, all.len()) < hourly(price, bins.len());
        let too_many = self.more == 0 && all.len() < bins.len();
        if price.saturating_add(risk) < before && !dearer && !too_many {
            // What few types cost is in the sum.
            self.accept_of(&all, true);
        }
    }

    /// How many pods of each size every machine takes. All packings of the same pods have the same division, which is found once.
    fn division(&mut self, sizes: &[Size<D>]) -> Option<Rc<Division>> {
        let key = (self.part.pool, self.part.set, sizes.iter().map(|size| (size.requests.to_vec(), size.together, size.pods)).collect());
        if let Some(known) = self.problem.divisions.get(&key) {
            return known.clone();
        }
        let cost = |counts: &[usize]| self.cost_of(sizes, counts);
        let counts: Vec<usize> = sizes.iter().map(|size| size.pods).collect();
        let steps_max = patterns::STEPS_MAX.saturating_sub(self.problem.division_steps);
        let few = if sizes.len() <= FEW_SIZES { few_sizes::division(&counts, cost) } else { None };
        let room = |(cost, net)| Room { cost, net };
        let found = few.or_else(|| patterns::division(sizes, self.packer.price_index.priced().map(room).collect(), cost, steps_max));
        let steps = found.as_ref().map_or(0, |division| division.steps);
        self.packer.comparisons += steps;
        self.problem.division_steps += steps;
        let found = found.map(Rc::new);
        self.problem.divisions.insert(key, found.clone());
        found
    }

    /// What a machine for `counts` pods of each of `sizes` costs by the objective; `None` if no machine is large enough.
    fn cost_of(&self, sizes: &[Size<D>], counts: &[usize]) -> Option<u64> {
        if sizes.iter().zip(counts).any(|(size, count)| *count > size.together) {
            return None;
        }
        let need = sizes.iter().zip(counts).fold([0; D], |need, (size, count)| {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            plus(&need, &size.requests.map(|each| each.saturating_mul(count)))
        });
        let RankedPrice { price, .. } = self.packer.price_index.cheapest_for(&need)?;
        Some(price.saturating_add(self.risk(price, &need)))
    }

    fn budget_spent(&self, budget: u64) -> bool {
        self.packer.comparisons / COMPARISONS_PER_WORK >= budget
    }

    /// Refills group after group, until the budget is spent or no improvement is found.
    fn exchange(&mut self, budget: u64) {
        let mut dice = Dice(0x2545_F491_4F6C_DD1D);
        let mut order: Vec<usize> = (0..self.open_claims.len()).collect();
        let (mut round, mut idle) = (0, 0);
        while idle < IDLE_ROUNDS_MAX && !self.budget_spent(budget) {
            order.retain(|n| !self.open_claims[*n].pods.is_empty());
            if order.len() < GROUP_MIN {
                break;
            }
            if round % 2 == 0 {
                self.sort_by_spare(&mut order);
                dice.shuffle(&mut order, 24);
            } else {
                let all = order.len();
                dice.shuffle(&mut order, all);
            }
            let known = self.open_claims.len();
            let mut better = false;
            for group in order.chunks(GROUP_MIN + round % GROUP_SIZES) {
                if self.budget_spent(budget) {
                    break;
                }
                better |= self.refill(group, round % SORT_ORDERS) && self.accept(group);
            }
            order.extend(known..self.open_claims.len());
            idle = if better { 0 } else { idle + 1 };
            round += 1;
        }
    }

    /// Those with the most to spare first; of equals, the older.
    fn sort_by_spare(&self, order: &mut Vec<usize>) {
        // The spare value is never negative, so its bits sort like the number.
        let mut keyed: Vec<_> = order.iter().map(|n| (Reverse(self.open_claims[*n].spare.to_bits()), *n)).collect();
        keyed.sort_unstable();
        order.clear();
        order.extend(keyed.into_iter().map(|(_, n)| n));
    }

    /// Divides machines that grew so large that few types are left for them: first those whose price does not grow, then
    /// others, as long as all together cost no more than `before`.
    fn divide_narrow_claims(&mut self, before: u64) {
        for n in 0..self.open_claims.len() {
            self.divide(n, 0);
        }
        let mut total = self.price();
        for n in 0..self.open_claims.len() {
            let spare = before.saturating_sub(total);
            if spare == 0 {
                break;
            }
            let old = self.open_claims[n].price;
            let machines = self.open_claims.len();
            if let Some(new) = self.divide(n, spare) {
                let machine_cost =
                    self.problem.pools[self.part.pool].machine_cost.saturating_mul((self.open_claims.len() - machines) as u64);
                total = (total - old).saturating_add(new.saturating_sub(machine_cost));
            }
        }
    }

    /// Divides a machine for which few types are left, if its pods cost at most `more` than now on their new machines, whose
    /// other costs are not counted, and no more by the objective, which counts those and the risk; returns what they cost.
    fn divide(&mut self, n: usize, more: u64) -> Option<u64> {
        let (open_claim, price_index) = (&self.open_claims[n], self.packer.price_index);
        if open_claim.pods.len() <= 1 || price_index.has_enough_types(&open_claim.need, open_claim.at, price_index.keep) {
            return None;
        }
        let (most, machine_cost) = (open_claim.price.saturating_add(more), self.problem.pools[self.part.pool].machine_cost);
        let before = open_claim.price.saturating_add(self.risk(open_claim.price, &open_claim.need));
        let price = self.fill(&[n], 0, usize::MAX, before)?;
        let bins = self.packer.bins();
        let risk: u64 = bins.iter().map(|bin| self.risk(bin.price, &bin.need)).sum();
        let extra = machine_cost.saturating_mul(bins.len() as u64 - 1);
        let within = price <= most.saturating_add(extra) && price.saturating_add(risk) <= before;
        (within && self.accept(&[n])).then_some(price)
    }

    /// What the objective adds to the price of a machine, other costs included, for the types that it lacks.
    fn risk(&self, price: u64, need: &Amounts<D>) -> u64 {
        let Part { pool, objective, .. } = self.part;
        if objective != Objective::Balanced {
            return 0;
        }
        let price_index = self.packer.price_index;
        objective::risk(price.saturating_sub(self.problem.pools[pool].machine_cost), price_index.count(need), price_index.keep)
    }

    fn fill(&mut self, group: &[usize], sort_order: usize, machines: usize, most: u64) -> Option<u64> {
        self.packer.fill(group.iter().map(|n| &self.open_claims[*n].pods[..]), sort_order, machines, most)
    }

    /// Fills the machines of `group` again; returns whether the result is better than the current claims.
    fn refill(&mut self, group: &[usize], sort_order: usize) -> bool {
        let members = || group.iter().map(|n| &self.open_claims[*n]);
        let pods: usize = members().map(|claim| claim.pods.len()).sum();
        let spare: f64 = members().map(|claim| claim.spare).sum();
        let before: u64 = members().map(|claim| claim.price).sum();
        self.packer.comparisons += COMPARISONS_PER_WORK / 4;
        let price_index = self.packer.price_index;
        if group.len() < GROUP_MIN || pods > PODS_MAX || spare < price_index.step {
            return false;
        }
        let Some(price) = self.fill(group, sort_order, group.len() + self.more, before) else { return false };
        let used = self.packer.bins().len();
        if price != before || used != group.len() {
            return price < before || used < group.len();
        }
        // Equally good: better if the spare room is in one place, where it can be used.
        let together = |spare: f64| spare * spare;
        let old: f64 = group.iter().map(|n| together(self.open_claims[*n].spare)).sum();
        let new: f64 = self.packer.bins().iter().map(|b| together(price_index.value(&b.spare))).sum();
        new > old * 1.01
    }

    /// Replaces the claims by the packer's result, unless the NodePool's limits or `minValues` forbid it.
    fn accept(&mut self, group: &[usize]) -> bool {
        self.accept_of(group, false)
    }

    /// The same, of machines that need have no more than one type if `narrow` is set.
    fn accept_of(&mut self, group: &[usize], narrow: bool) -> bool {
        let price_index = self.packer.price_index;
        if !narrow && self.packer.bins().iter().any(|bin| bin.pods.len() > 1 && !price_index.has_enough_types(&bin.need, bin.at, bin.keep))
        {
            return false;
        }
        let Some(charges) = self.charges() else { return false };
        let before = sum(group.iter().map(|n| &self.open_claims[*n].charged));
        if !self.state.swap_charges(self.part.pool, &before, &sum(charges.iter())) {
            return false;
        }
        let bins = self.packer.bins();
        for (n, (bin, charged)) in bins.iter().zip(charges).enumerate() {
            match group.get(n) {
                Some(at) => self.open_claims[*at].become_bin(bin, charged, price_index),
                None => self.open_claims.push(OpenClaim::of(None, bin, charged, price_index)),
            }
        }
        for at in group.get(bins.len()..).unwrap_or_default() {
            let emptied = &mut self.open_claims[*at];
            emptied.pods.clear();
            emptied.price = 0;
            if let Some(claim) = emptied.claim {
                self.state.claims[claim].pods.clear();
                self.state.claims[claim].charged = IdVec::new();
            }
        }
        true
    }

    /// What the NodePool's limits would be charged with for each machine of the packer; `None` if one misses `minValues`.
    fn charges(&mut self) -> Option<Vec<Amounts<D>>> {
        let Part { pool, set, keep, .. } = self.part;
        let (problem, price_index) = (&mut *self.problem, self.packer.price_index);
        let view = problem.view(problem.pools[pool].catalog, set);
        let limited = problem.pools[pool].is_limited();
        let catalog = &problem.catalogs[problem.pools[pool].catalog];
        let charge = |bin: &Bin<D>| {
            if view.min_values.is_empty() {
                return Some(if limited { price_index.largest(&bin.need, bin.at, keep) } else { [0; D] });
            }
            let types = price_index.types(&bin.need);
            min_values_met(catalog, &view, &types).then(|| amounts(limits::charge(problem, pool, &view, &types, keep).as_slice()))
        };
        self.packer.bins().iter().map(charge).collect()
    }

    /// Updates the state; returns the total work.
    fn settle(self) -> u64 {
        let (pool, price_index, dims) = (self.part.pool, self.packer.price_index, self.problem.dims.len());
        let charged = if self.problem.pools[pool].is_limited() { dims } else { 0 };
        for open_claim in self.open_claims.into_iter().filter(|claim| claim.changed && !claim.pods.is_empty()) {
            let at = open_claim.claim.unwrap_or_else(|| self.state.open_claim(self.problem, pool));
            let claim = &mut self.state.claims[at];
            claim.set = self.part.set;
            claim.types = price_index.types(&open_claim.need);
            claim.requests = open_claim.need[..dims].to_vec().into();
            claim.charged = open_claim.charged[..charged].to_vec().into();
            claim.pods = open_claim.pods.into_iter().map(|grouped| grouped.pod).collect();
        }
        self.packer.comparisons / COMPARISONS_PER_WORK
    }
}

impl<const D: usize> OpenClaim<D> {
    fn of(claim: Option<ClaimId>, bin: &Bin<D>, charged: Amounts<D>, price_index: &TypePriceIndex<D>) -> Self {
        let spare = price_index.value(&bin.spare);
        Self { claim, pods: bin.pods.clone(), need: bin.need, charged, at: bin.at, price: bin.price, spare, changed: true }
    }

    fn become_bin(&mut self, bin: &Bin<D>, charged: Amounts<D>, price_index: &TypePriceIndex<D>) {
        self.pods.clone_from(&bin.pods);
        (self.need, self.charged, self.at, self.price) = (bin.need, charged, bin.at, bin.price);
        (self.spare, self.changed) = (price_index.value(&bin.spare), true);
    }
}

fn sum<'c, const D: usize>(charges: impl Iterator<Item = &'c Amounts<D>>) -> Amounts<D> {
    charges.fold([0; D], |sum, more| plus(&sum, more))
}

/// Pseudo-random numbers with a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n.max(1) as u64).unwrap_or(0)
    }

    /// Moves each entry by up to about `far` positions.
    fn shuffle<T>(&mut self, list: &mut [T], far: usize) {
        for at in 0..list.len() {
            let to = at + self.below(far.min(list.len() - at));
            list.swap(at, to);
        }
    }
}

/// Groups equal pods.
struct GroupBuilder<'g, 'a, const D: usize> {
    problem: &'g mut Problem<'a>,
    price_index: &'g TypePriceIndex<D>,
    pool: PoolId,
    set: SetId,
    pod_groups: IdVec<PodGroupId, PodGroup<D>>,
    of: Map<(ClassId, usize), Option<PodGroupId>>,
    slot_of: Map<GroupId, SlotId>,
}

impl<const D: usize> GroupBuilder<'_, '_, D> {
    /// The claim, if all of its pods may move.
    fn movable_claim(&mut self, state: &State, claim: ClaimId) -> Option<OpenClaim<D>> {
        let now = &state.claims[claim];
        let mut pods = Vec::with_capacity(now.pods.len());
        for pod in &now.pods {
            pods.push(GroupedPod { pod: *pod, group: self.group_of(*pod, state.relaxation_of(*pod))? });
        }
        let need = amounts(now.requests.as_slice());
        let RankedPrice { at, price } = self.price_index.cheapest_for(&need)?;
        let spare = self.price_index.value(&minus(&self.price_index.net[at], &need));
        Some(OpenClaim { claim: Some(claim), pods, need, charged: amounts(now.charged.as_slice()), at, price, spare, changed: false })
    }

    /// The number of the pod's group; `None` if it must stay where it is.
    fn group_of(&mut self, pod: PodId, relaxation: usize) -> Option<PodGroupId> {
        let class = self.problem.class_of[pod];
        if let Some(known) = self.of.get(&(class, relaxation)) {
            return *known;
        }
        let found = self.build_group(class, relaxation).map(|pod_group| self.pod_groups.push(pod_group));
        self.of.insert((class, relaxation), found);
        found
    }

    fn build_group(&mut self, class: ClassId, relaxation: usize) -> Option<PodGroup<D>> {
        let class = Rc::clone(&self.problem.classes[class]);
        let relaxation = class.relaxations.get(relaxation)?;
        let fixed = !class.ports.is_empty() || !class.volumes.is_empty() || !class.places.is_empty() || !class.avoids.is_empty();
        if fixed || self.is_pinned(&class, relaxation) || self.problem.merge(self.set, relaxation.full, LabelsOf::NewNode) != Some(self.set)
        {
            return None;
        }
        let rules = relaxation.owned.iter().chain(&relaxation.repelled_by).filter_map(|g| self.rule(*g, relaxation)).collect::<Vec<_>>();
        let counted: Vec<GroupId> = class.counted_by.iter().chain(&class.repels).copied().collect();
        let counted: Vec<GroupId> = counted.into_iter().filter(|g| self.counts_here(*g)).collect();
        let counts = counted.into_iter().map(|g| self.slot(g)).collect();
        let requests = amounts(class.requests.as_slice());
        let alone = self.price_index.cheapest_for(&requests)?;
        let keep = self.price_index.keep.min(self.price_index.count(&requests));
        let value = self.price_index.value(&requests);
        let exclusive = if rules.iter().any(|r: &HostRule| r.most == 0) { 1e12 } else { 0.0 };
        let share = |dim: usize| self.price_index.unit[dim] * requests[dim] as f64;
        let size = [exclusive + value, exclusive + share(0) + value / 1e3, exclusive + share(1) + value / 1e3, value];
        Some(PodGroup { requests, rules, counts, alone, keep, size })
    }

    /// Whether some pod requires or prefers to share a host with this one, or this one with another.
    fn is_pinned(&self, class: &Class, relaxation: &Relaxation) -> bool {
        let attracts = |g: &GroupId| {
            let group = &self.problem.groups[*g];
            group.by_host && group.kind == GroupKind::Affinity
        };
        relaxation.owned.iter().any(attracts) || class.counted_by.iter().any(attracts)
    }

    fn rule(&mut self, id: GroupId, relaxation: &Relaxation) -> Option<HostRule> {
        let group: &Group = &self.problem.groups[id];
        if !group.by_host {
            return None;
        }
        let selects = i64::from(group.selects.has(relaxation.labels));
        let most = match group.kind {
            GroupKind::Spread { max_skew, .. } => u32::try_from(max_skew - selects).unwrap_or(0),
            GroupKind::Affinity | GroupKind::Anti | GroupKind::Inverse => 0,
        };
        Some(HostRule { slot: self.slot(id), most })
    }

    fn slot(&mut self, id: GroupId) -> SlotId {
        let next = SlotId::at(self.slot_of.len());
        *self.slot_of.entry(id).or_insert(next)
    }

    /// Whether the group counts by host and counts a pod on these machines.
    fn counts_here(&self, id: GroupId) -> bool {
        let group = &self.problem.groups[id];
        let on = (self.set, self.problem.pools[self.pool].taints);
        let gets_label = |key: &Key| self.problem.well_known.contains(key);
        group.by_host && group.filter.counts(&self.problem.sets, &self.problem.tolerance, on, gets_label)
    }
}
