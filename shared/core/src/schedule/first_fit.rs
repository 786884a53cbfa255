//! The reference's order of trying: existing machines, machines already asked for, new ones; wishes dropped one by one.

use super::aim::{Aim, Aims};
use super::bits::Bits;
use super::cheapest_fit::PriceCache;
use super::fit::{self, ClaimTarget, FitError, PackingOptions};
use super::meter::{self, Meter};
use super::pod::{Class, Entry, Relaxation};
use super::problem::Problem;
use super::state::{RefusalCache, State};
use super::topology::TopologyQuery;
use super::{Options, Packing, order};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// How a solve ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) state: State,
    /// Pods without a place, in queue order, with whether it was reserved capacity that they wait for.
    pub(crate) unplaced: Vec<(Entry, Option<FitError>)>,
    /// Pods that the budget left no time for.
    pub(crate) unconsidered: Vec<Entry>,
    pub(crate) work: u64,
}

/// With more kinds of open machines than this, each machine is asked on its own.
const SETS_MAX: usize = 64;

/// Which open machine takes a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one with the fewest pods, as the reference has it.
    FewestPods,
    /// The one that becomes least dearer; a new one if that is cheaper still.
    Cheapest,
    /// The same, but what a machine is aimed at counts as bought from the start: it is filled before another is opened.
    Aimed(Aim),
}

/// One run over the queue.
pub(crate) struct FirstFit<'s, 'a> {
    pub(crate) problem: &'s mut Problem<'a>,
    pub(crate) options: &'s Options,
    pub(crate) packing_options: PackingOptions,
    pub(crate) state: State,
    /// What the meter had counted before.
    started: u64,
    pub(crate) budget: u64,
    pub(crate) choice: Choice,
    /// What is known of the prices of open machines, for [`Choice::Cheapest`].
    pub(crate) prices: PriceCache,
    /// What types machines are filled up to, for [`Choice::Aimed`].
    pub(crate) aims: Aims,
    /// Machines that exist and take pods.
    open_machines: Bits,
    /// Machines already asked for in the order in which the reference tries them, each after the pods that it has.
    karpenter_order: Vec<(u64, usize)>,
    /// By machine to be asked for: the most that one of its types has left.
    headroom: HeadroomCache,
}

/// By machine to be asked for, the most that one of its types has left in each dimension: who asks for more need not look.
#[derive(Debug, Default)]
pub(crate) struct HeadroomCache(Vec<i64>);

impl HeadroomCache {
    /// Whether there is certainly no room on machine `at`.
    fn rules_out(&self, at: usize, requests: &[i64]) -> bool {
        let dims = requests.len();
        let left = self.0.get(at * dims..(at + 1) * dims).unwrap_or_default();
        left.iter().zip(requests).any(|(left, want)| *want > 0 && want > left)
    }

    fn note(&mut self, problem: &Problem<'_>, at: usize, claim: &super::state::Claim) {
        let dims = claim.requests.len();
        let catalog = &problem.catalogs[problem.pools[claim.pool].catalog];
        self.0.resize(self.0.len().max((at + 1) * dims), i64::MAX);
        for (dim, asked) in claim.requests.iter().enumerate() {
            self.0[at * dims + dim] = catalog.most_allocatable(dim, &claim.types).saturating_sub(*asked);
        }
    }
}

impl<'s, 'a> FirstFit<'s, 'a> {
    pub(crate) fn new(
        problem: &'s mut Problem<'a>,
        options: &'s Options,
        packing_options: PackingOptions,
        choice: Choice,
        budget: u64,
    ) -> Self {
        let state = State::start(problem);
        let mut open_machines = Bits::all(problem.machines.len());
        open_machines.drop_all(&problem.excluded);
        let started = problem.meter.ticks();
        problem.meter.spend(meter::MACHINE * problem.machines.len());
        Self {
            problem,
            options,
            packing_options,
            state,
            started,
            budget,
            choice,
            prices: PriceCache::default(),
            aims: Aims::default(),
            open_machines,
            karpenter_order: Vec::new(),
            headroom: HeadroomCache::default(),
        }
    }

    fn meter(&self) -> &Meter {
        &self.problem.meter
    }

    /// Units of work so far.
    fn work(&self) -> u64 {
        self.meter().since(self.started)
    }

    /// Tries every pod, again and again, until a whole round places nothing.
    pub(crate) fn run(mut self, queue: &[Entry]) -> Outcome {
        let mut waiting: VecDeque<Entry> = queue.iter().copied().collect();
        self.place_promised(&mut waiting);
        let mut last_length = vec![usize::MAX; self.problem.pods.len()];
        let mut refusal: Vec<Option<FitError>> = vec![None; self.problem.classes.len()];
        let mut failed_at = vec![u64::MAX; self.problem.classes.len()];
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
            let class = self.problem.classes[entry.class.0 as usize].clone();
            let result = if failed_at[entry.class.0 as usize] == self.state.version {
                // Pods of a class fail alike while nothing is placed.
                Err(refusal[entry.class.0 as usize])
            } else {
                self.place(&class, u32::try_from(entry.pod).expect("fewer than 2^32 pods")).map_err(Some)
            };
            if let Err(error) = result {
                failed_at[entry.class.0 as usize] = self.state.version;
                refusal[entry.class.0 as usize] = error;
                waiting.push_back(entry);
                last_length[entry.pod] = waiting.len();
            }
        }
        // Only of use while placing, and large.
        self.state.refusals.clear();
        self.state.refusals.shrink_to_fit();
        let unplaced = waiting.into_iter().map(|entry| (entry, refusal[entry.class.0 as usize])).collect();
        Outcome { unplaced, unconsidered, work: self.problem.meter.since(self.started), state: self.state }
    }

    /// Places the pods for which a machine is on its way there, as far as they fit, and takes them out of the queue.
    fn place_promised(&mut self, waiting: &mut VecDeque<Entry>) {
        let (nodes, options) = (self.problem.state_nodes, self.options);
        if options.promised.is_empty() {
            return;
        }
        let claim = |host: usize| nodes[host].claim.as_ref().map(|claim| claim.metadata.name.as_str());
        let open = (0..self.problem.machines.len()).filter(|machine| self.open_machines.has(*machine));
        let coming: BTreeMap<&str, usize> =
            open.filter_map(|machine| Some((claim(self.problem.machines[machine].host)?, machine))).collect();
        waiting.retain(|entry| {
            let promised = options.promised.get(&self.problem.pods[entry.pod].metadata.uid);
            let machine = promised.and_then(|claim| coming.get(claim.as_str()));
            !machine.is_some_and(|machine| self.place_on_machine(*machine, *entry))
        });
    }

    /// Whether the machine takes the pod, with as many of its wishes as it can.
    fn place_on_machine(&mut self, machine: usize, entry: Entry) -> bool {
        let class = Rc::clone(&self.problem.classes[entry.class.0 as usize]);
        let pod = u32::try_from(entry.pod).expect("fewer than 2^32 pods");
        self.meter().spend(meter::POD);
        let relaxations = if class.resource_claims { &[] } else { &class.relaxations[..] };
        for (n, relaxation) in relaxations.iter().enumerate() {
            if let Ok(set) = fit::check_machine(self.problem, &self.state, machine, &class, relaxation) {
                self.state.put_on_machine(self.problem, machine, set, &class, pod);
                self.state.set_relaxation(pod, n);
                return true;
            }
        }
        false
    }

    /// Places one pod, dropping its wishes one by one.
    pub(crate) fn place(&mut self, class: &Class, pod: u32) -> Result<(), FitError> {
        if class.resource_claims {
            return Err(FitError::Permanent);
        }
        let mut last = FitError::Permanent;
        for (n, relaxation) in class.relaxations.iter().enumerate() {
            let asked = TopologyQuery { groups: &self.problem.groups, counts: &self.state.counts, sets: &self.problem.sets };
            self.problem.meter.spend(meter::GROUP * (relaxation.owned.len() + 1));
            if asked.is_impossible(relaxation) {
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

    fn place_relaxed(&mut self, class: &Class, relaxation: &Relaxation, pod: u32) -> Result<(), FitError> {
        let mut refusals = self.state.refusals.remove(&relaxation.id).unwrap_or_default();
        let result = self.try_all(class, relaxation, pod, &mut refusals);
        if class.size > 1 || result.is_err() {
            self.state.refusals.insert(relaxation.id, refusals);
        }
        result
    }

    fn try_all(&mut self, class: &Class, relaxation: &Relaxation, pod: u32, refusals: &mut RefusalCache) -> Result<(), FitError> {
        refusals.machines.grow(self.problem.machines.len());
        let mut from = 0;
        self.meter().spend(self.problem.machines.len() / 64 / meter::WORDS);
        while let Some(machine) = self.open_machines.next_without(&refusals.machines, None, from) {
            from = machine + 1;
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
            Choice::FewestPods if self.options.packing == Packing::Reference => self.find_in_karpenter_order(class, relaxation, refusals),
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

    /// The first machine already asked for that takes the pod: fewest pods first, then the oldest.
    fn find_fewest_pods(&mut self, class: &Class, relaxation: &Relaxation, refusals: &mut RefusalCache) -> Option<(usize, fit::Fit)> {
        let open_by_topology = self.open_by_topology(relaxation);
        for count in 1..self.state.by_pods.len() {
            let mut from = 0;
            self.meter().spend(1 + self.state.claims.len() / 64 / meter::WORDS);
            while self.state.by_pods[count].0 > 0
                && let Some(at) = self.state.by_pods[count].1.next_without(&refusals.claims, open_by_topology.as_ref(), from)
            {
                from = at + 1;
                match self.fit_open(at, class, relaxation) {
                    Ok(fit) if self.packing_options.keep > 0 && self.leaves_too_few_types(at, &fit) => {}
                    Ok(fit) => return Some((at, fit)),
                    Err(FitError::Permanent) => refusals.claims.insert(at),
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// The same with the reference's ties: it sorts one list again and again, so that of two machines with as many pods the one
    /// that came to them later is ahead.
    fn find_in_karpenter_order(
        &mut self,
        class: &Class,
        relaxation: &Relaxation,
        refusals: &mut RefusalCache,
    ) -> Option<(usize, fit::Fit)> {
        let open_by_topology = self.open_by_topology(relaxation);
        self.karpenter_order.extend((self.karpenter_order.len()..self.state.claims.len()).map(|at| (0, at)));
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

    /// Whether a claim would lose so many types that it becomes brittle.
    pub(crate) fn leaves_too_few_types(&mut self, at: usize, fit: &fit::Fit) -> bool {
        let catalog = self.problem.pools[self.state.claims[at].pool].catalog;
        let view = self.problem.view(catalog, fit.set);
        let keep = super::limits::types_to_keep(self.problem, catalog, &view);
        fit.types.count() < keep && self.state.claims[at].types.count() >= keep
    }

    /// The open machines in whose domains topology may let the pod; nothing where that does not tell them apart.
    pub(crate) fn open_by_topology(&self, relaxation: &Relaxation) -> Option<Bits> {
        let by_key = |id: &super::topology::GroupId| !self.problem.groups[id.0 as usize].by_host;
        if self.state.by_set.len() > SETS_MAX || !relaxation.owned.iter().chain(&relaxation.repelled_by).any(by_key) {
            return None;
        }
        let asked = TopologyQuery { groups: &self.problem.groups, counts: &self.state.counts, sets: &self.problem.sets };
        let groups = relaxation.owned.len() + relaxation.repelled_by.len();
        self.meter().spend(self.state.by_set.len() * (groups * 2 * meter::GROUP + self.state.claims.len() / 64 / meter::WORDS));
        let mut out = Bits::default();
        for (set, claims) in &self.state.by_set {
            if !asked.is_closed(relaxation, *set) {
                out.absorb(claims);
            }
        }
        Some(out)
    }

    pub(crate) fn fit_open(&mut self, at: usize, class: &Class, relaxation: &Relaxation) -> Result<fit::Fit, FitError> {
        self.meter().spend(meter::QUICK_CHECK);
        if self.headroom.rules_out(at, &class.requests) {
            return Err(FitError::Permanent);
        }
        let types_within_limits = if self.packing_options.keep > 0 { self.state.types_within_limits(self.problem, at) } else { None };
        let claim = &self.state.claims[at];
        let target = ClaimTarget {
            pool: claim.pool,
            set: claim.set,
            types: types_within_limits.as_ref().unwrap_or(&claim.types),
            requests: &claim.requests,
            ports: &claim.ports,
            reservations: &claim.reservations,
            host: Some(self.problem.first_new_host + at),
        };
        fit::check_claim(self.problem, &self.state, self.options, self.packing_options, target, class, relaxation)
    }

    /// Charges a claim anew where charges follow what claims become.
    fn recharge(&mut self, at: usize) {
        if self.packing_options.keep > 0 {
            self.state.recharge(self.problem, at, self.packing_options.keep);
        }
    }

    /// Types of a pool that its limits still allow; nothing when no more machines are allowed.
    pub(crate) fn within_limits(problem: &Problem<'_>, state: &State, pool: usize) -> Option<Bits> {
        if state.node_limits[pool].is_some_and(|left| left < 1000) {
            return None;
        }
        let mut types = problem.pools[pool].types.clone();
        let catalog = &problem.catalogs[problem.pools[pool].catalog];
        for (dim, left) in state.limits[pool].iter().enumerate() {
            if let Some(left) = left {
                catalog.keep_no_larger(dim, *left, &mut types);
            }
        }
        (!types.is_empty()).then_some(types)
    }

    fn open_new(&mut self, class: &Class, relaxation: &Relaxation, pod: u32, refusals: &mut RefusalCache) -> Result<(), FitError> {
        refusals.pools.grow(self.problem.pools.len());
        let mut last = FitError::Permanent;
        for pool in 0..self.problem.pools.len() {
            if refusals.pools.has(pool) {
                continue;
            }
            let Some(types) = Self::within_limits(self.problem, &self.state, pool) else { continue };
            let zeros = vec![0; self.problem.dims.len()];
            let target = ClaimTarget {
                pool,
                set: self.problem.pools[pool].set,
                types: &types,
                requests: &zeros,
                ports: &[],
                reservations: &[],
                host: None,
            };
            match fit::check_claim(self.problem, &self.state, self.options, self.packing_options, target, class, relaxation) {
                Ok(fit) => {
                    let at = self.state.open_claim(self.problem, pool);
                    self.state.put_on_claim(self.problem, at, fit, class, pod);
                    self.headroom.note(self.problem, at, &self.state.claims[at]);
                    self.state.count_node(pool);
                    if self.packing_options.keep == 0 {
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
