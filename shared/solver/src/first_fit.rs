//! Karpenter's order of trying: existing machines, open claims, new claims; preferences are dropped one by one.

use super::fit::{self, ClaimRules, ClaimTarget, FitError};
use super::ids::{ClaimId, ClassId, Id as _, IdVec, MachineId, PodId};
use super::limits;
use super::meter;
use super::order;
use super::packing_run::{Choice, Outcome, PackingRun};
use super::pod::{Class, Entry, Relaxation};
use super::state::{Fit, RefusalCache};
use super::topology::TopologyQuery;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

impl PackingRun<'_, '_> {
    /// Tries every pod, again and again, until a whole round places none.
    pub(crate) fn run(mut self, queue: &[Entry]) -> Outcome {
        let mut waiting: VecDeque<Entry> = queue.iter().copied().collect();
        self.place_promised(&mut waiting);
        let mut last_length: IdVec<PodId, usize> = IdVec::filled(usize::MAX, &self.problem.pods);
        let mut refusal: IdVec<ClassId, Option<FitError>> = IdVec::filled(None, &self.problem.classes);
        let mut failed_at: IdVec<ClassId, u64> = IdVec::filled(u64::MAX, &self.problem.classes);
        let mut untried = waiting.len();
        let mut unconsidered = Vec::new();
        while let Some(entry) = waiting.front().copied() {
            if last_length[entry.pod] == waiting.len() {
                break;
            }
            // At least one pod is considered, however small the budget.
            if self.work() >= self.budget && untried < queue.len() {
                unconsidered = waiting.drain(..untried.min(waiting.len())).collect();
                break;
            }
            waiting.pop_front();
            self.meter().spend(meter::POD);
            untried = untried.saturating_sub(1);
            let class = self.problem.classes[entry.class].clone();
            let result = if failed_at[entry.class] == self.state.version {
                // Pods of a class fail alike while nothing is placed.
                Err(refusal[entry.class])
            } else {
                self.place(&class, entry.pod).map_err(Some)
            };
            if let Err(error) = result {
                failed_at[entry.class] = self.state.version;
                refusal[entry.class] = error;
                waiting.push_back(entry);
                last_length[entry.pod] = waiting.len();
            }
        }
        // Needed only while placing, and large.
        self.state.refusals.clear();
        self.state.refusals.shrink_to_fit();
        let unplaced = waiting.into_iter().map(|entry| (entry, refusal[entry.class])).collect();
        Outcome { unplaced, unconsidered, work: self.problem.meter.since(self.started), state: self.state }
    }

    /// Places pods on the starting machines that were launched for them, as far as they fit, and removes them from the queue.
    fn place_promised(&mut self, waiting: &mut VecDeque<Entry>) {
        let options = self.options;
        if options.promised.is_empty() {
            return;
        }
        let claim = |machine| self.problem.node(machine).claim.as_ref().map(|claim| claim.metadata.name.as_str());
        let open = self.problem.machines.ids().filter(|machine| self.open_machines.has(*machine));
        let coming: BTreeMap<&str, MachineId> = open.filter_map(|machine| Some((claim(machine)?, machine))).collect();
        waiting.retain(|entry| {
            let promised = options.promised.get(&self.problem.pods[entry.pod].metadata.uid);
            let machine = promised.and_then(|claim| coming.get(claim.as_str()));
            !machine.is_some_and(|machine| self.place_on_machine(*machine, *entry))
        });
    }

    /// Whether the pod was placed on the machine, with as many of its preferences as possible.
    fn place_on_machine(&mut self, machine: MachineId, entry: Entry) -> bool {
        let class = Rc::clone(&self.problem.classes[entry.class]);
        self.meter().spend(meter::POD);
        let never = class.resource_claims || class.left_aside || self.waits_for_a_claim(&class, entry.pod);
        let relaxations = if never { &[] } else { &class.relaxations[..] };
        for (n, relaxation) in relaxations.iter().enumerate() {
            if let Ok(set) = fit::check_machine(self.problem, &self.state, machine, &class, relaxation) {
                self.state.put_on_machine(self.problem, machine, set, &class, entry.pod);
                self.state.set_relaxation(entry.pod, n);
                return true;
            }
        }
        false
    }

    /// Places one pod, dropping its preferences one by one.
    pub(crate) fn place(&mut self, class: &Class, pod: PodId) -> Result<(), FitError> {
        if class.resource_claims || class.left_aside {
            return Err(FitError::Permanent);
        }
        if self.waits_for_a_claim(class, pod) {
            return Err(FitError::Transient);
        }
        let mut last = FitError::Permanent;
        for (n, relaxation) in class.relaxations.iter().enumerate() {
            let query = TopologyQuery { groups: &self.problem.groups, counts: &self.state.counts, sets: &self.problem.sets };
            self.problem.meter.spend(meter::GROUP * (relaxation.owned.len() + 1));
            if query.is_impossible(relaxation) {
                last = FitError::Transient;
                continue;
            }
            match self.place_relaxed(class, relaxation, pod) {
                Ok(()) => {
                    self.state.set_relaxation(pod, n);
                    return Ok(());
                }
                Err(error @ FitError::Reserved { .. }) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether another pod is to use a claim of the pod that is for one pod at a time. Who has a node already uses it.
    fn waits_for_a_claim(&self, class: &Class, pod: PodId) -> bool {
        !self.problem.pods[pod].is_bound() && self.state.claim_user(class).is_some()
    }

    fn place_relaxed(&mut self, class: &Class, relaxation: &Relaxation, pod: PodId) -> Result<(), FitError> {
        let mut refusals = self.state.refusals.remove(&relaxation.id).unwrap_or_default();
        let result = self.try_all(class, relaxation, pod, &mut refusals);
        if class.size > 1 || result.is_err() {
            self.state.refusals.insert(relaxation.id, refusals);
        }
        result
    }

    fn try_all(&mut self, class: &Class, relaxation: &Relaxation, pod: PodId, refusals: &mut RefusalCache) -> Result<(), FitError> {
        refusals.machines.grow(self.problem.machines.len());
        let mut from = 0;
        self.meter().spend(self.problem.machines.len() / 64 / meter::WORDS);
        while let Some(machine) = self.open_machines.next_without(&refusals.machines, None, from) {
            from = machine.position() + 1;
            match fit::check_machine(self.problem, &self.state, machine, class, relaxation) {
                Ok(set) => {
                    self.state.put_on_machine(self.problem, machine, set, class, pod);
                    return Ok(());
                }
                Err(FitError::Permanent) => refusals.machines.insert(machine),
                Err(_) => {}
            }
        }
        refusals.claims.grow(self.state.claims.len());
        let open = match self.choice {
            Choice::Karpenter => self.find_in_karpenter_order(class, relaxation, refusals),
            Choice::FewestPods => self.find_fewest_pods(class, relaxation, refusals),
            Choice::Cheapest | Choice::Aimed(_) => self.find_cheapest(class, relaxation, refusals),
        };
        if let Some((at, fit)) = open {
            self.state.put_on_claim(self.problem, at, fit, class, pod);
            self.headroom.note(self.problem, at, &self.state.claims[at]);
            self.recharge(at);
            self.remember_price(at);
            return Ok(());
        }
        self.open_new(class, relaxation, pod, refusals)
    }

    /// The first open claim that the pod fits: fewest pods first, then the oldest.
    fn find_fewest_pods(&mut self, class: &Class, relaxation: &Relaxation, refusals: &mut RefusalCache) -> Option<(ClaimId, Fit)> {
        let open_by_topology = self.open_by_topology(relaxation);
        for count in 1..self.state.by_pod_count.len() {
            let mut from = 0;
            self.meter().spend(1 + self.state.claims.len() / 64 / meter::WORDS);
            while self.state.by_pod_count[count].count > 0
                && let Some(at) = self.state.by_pod_count[count].claims.next_without(&refusals.claims, open_by_topology.as_ref(), from)
            {
                from = at.position() + 1;
                match self.fit_open(at, class, relaxation) {
                    Ok(fit) if self.packing_options.types_charged > 0 && self.leaves_too_few_types(at, &fit) => {}
                    Ok(fit) => return Some((at, fit)),
                    Err(FitError::Permanent) => refusals.claims.insert(at),
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// The same with Karpenter's order of equals: it sorts one list again and again, so that of two claims with equally many
    /// pods the one that reached that number later comes first.
    fn find_in_karpenter_order(&mut self, class: &Class, relaxation: &Relaxation, refusals: &mut RefusalCache) -> Option<(ClaimId, Fit)> {
        let open_by_topology = self.open_by_topology(relaxation);
        self.karpenter_order.extend(self.state.claims.ids().skip(self.karpenter_order.len()).map(|at| (0, at)));
        for (pods, at) in &mut self.karpenter_order {
            *pods = self.state.claims[*at].pods.len() as u64;
        }
        order::with_ties(&mut self.karpenter_order);
        self.meter().spend(1 + self.karpenter_order.len() / meter::WORDS);
        for nth in 0..self.karpenter_order.len() {
            let at = self.karpenter_order[nth].1;
            if refusals.claims.has(at) || open_by_topology.as_ref().is_some_and(|open| !open.has(at)) {
                continue;
            }
            match self.fit_open(at, class, relaxation) {
                Ok(fit) => return Some((at, fit)),
                Err(FitError::Permanent) => refusals.claims.insert(at),
                Err(_) => {}
            }
        }
        None
    }

    /// Updates the charges of a claim, if charges follow what claims become.
    fn recharge(&mut self, at: ClaimId) {
        if self.packing_options.types_charged > 0 {
            self.state.recharge(self.problem, at, self.packing_options.types_charged);
        }
    }

    fn open_new(&mut self, class: &Class, relaxation: &Relaxation, pod: PodId, refusals: &mut RefusalCache) -> Result<(), FitError> {
        refusals.pools.grow(self.problem.pools.len());
        let mut last = FitError::Permanent;
        for pool in self.problem.pools.ids() {
            if refusals.pools.has(pool) {
                continue;
            }
            let Some(types) = limits::allowed_types(self.problem, &self.state, pool) else { continue };
            let zeros = IdVec::filled(0, &self.problem.dims.names);
            let target = ClaimTarget {
                pool,
                set: self.problem.pools[pool].set,
                types: &types,
                requests: &zeros,
                ports: &[],
                ebs_volumes: &BTreeSet::new(),
                reservations: &[],
                host: None,
            };
            let rules = ClaimRules { state: &self.state, options: self.options, packing: self.packing_options };
            match fit::check_claim(self.problem, rules, target, class, relaxation) {
                Ok(fit) => {
                    let at = self.state.open_claim(self.problem, pool);
                    self.state.put_on_claim(self.problem, at, fit, class, pod);
                    self.headroom.note(self.problem, at, &self.state.claims[at]);
                    self.state.count_node(pool);
                    if self.packing_options.types_charged == 0 {
                        self.state.charge(self.problem, at);
                    }
                    self.recharge(at);
                    self.remember_price(at);
                    return Ok(());
                }
                Err(FitError::Permanent) => refusals.pools.insert(pool),
                Err(error @ FitError::Reserved { .. }) => return Err(error),
                Err(FitError::Transient) => last = FitError::Transient,
            }
        }
        Err(last)
    }
}
