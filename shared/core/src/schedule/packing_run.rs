//! One run over the queue: what its parts share.

use super::aim::{Aim, Aims};
use super::bits::Bits;
use super::fit::{self, ClaimTarget, FitError, PackingOptions};
use super::hash::Map;
use super::ids::GroupId;
use super::input::Options;
use super::meter::{self, Meter};
use super::pod::{Class, Entry, Relaxation};
use super::problem::Problem;
use super::state::{Claim, Fit, State};
use super::topology::TopologyQuery;

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
pub(crate) struct PackingRun<'s, 'a> {
    pub(crate) problem: &'s mut Problem<'a>,
    pub(crate) options: &'s Options,
    pub(crate) packing_options: PackingOptions,
    pub(crate) state: State,
    /// What the meter had counted before.
    pub(crate) started: u64,
    pub(crate) budget: u64,
    pub(crate) choice: Choice,
    /// What is known of the prices of open machines, for [`Choice::Cheapest`].
    pub(crate) prices: PriceCache,
    /// What types machines are filled up to, for [`Choice::Aimed`].
    pub(crate) aims: Aims,
    /// Machines that exist and take pods.
    pub(crate) open_machines: Bits,
    /// Machines already asked for in the order in which the reference tries them, each after the pods that it has.
    pub(crate) karpenter_order: Vec<(u64, usize)>,
    /// By machine to be asked for: the most that one of its types has left.
    pub(crate) headroom: HeadroomCache,
}

/// What is known of the prices of open machines.
#[derive(Debug, Default)]
pub(crate) struct PriceCache {
    /// By claim: the price of its cheapest type.
    pub(crate) price: Vec<u64>,
    /// By claim: what its cheapest type has left, one stretch of dimensions after the other.
    pub(crate) spare: Vec<i64>,
    /// Claims with so little left that no pod of the pass fits without a larger type.
    pub(crate) full: Bits,
    /// By dimension: the least that any pod of the pass asks for.
    pub(crate) least: Vec<i64>,
    /// By form: where to go on looking.
    pub(crate) window: Map<usize, usize>,
    /// By form: the price of a machine of its own.
    pub(crate) price_alone: Map<usize, u64>,
}

/// By machine to be asked for, the most that one of its types has left in each dimension: who asks for more need not look.
#[derive(Debug, Default)]
pub(crate) struct HeadroomCache(Vec<i64>);

impl HeadroomCache {
    /// Whether there is certainly no room on machine `at`.
    pub(crate) fn rules_out(&self, at: usize, requests: &[i64]) -> bool {
        let dims = requests.len();
        let left = self.0.get(at * dims..(at + 1) * dims).unwrap_or_default();
        left.iter().zip(requests).any(|(left, want)| *want > 0 && want > left)
    }

    pub(crate) fn note(&mut self, problem: &Problem<'_>, at: usize, claim: &Claim) {
        let dims = claim.requests.len();
        let catalog = &problem.catalogs[problem.pools[claim.pool].catalog];
        self.0.resize(self.0.len().max((at + 1) * dims), i64::MAX);
        for (dim, asked) in claim.requests.iter().enumerate() {
            self.0[at * dims + dim] = catalog.most_allocatable(dim, &claim.types).saturating_sub(*asked);
        }
    }
}

impl<'s, 'a> PackingRun<'s, 'a> {
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

    pub(crate) fn meter(&self) -> &Meter {
        &self.problem.meter
    }

    /// Units of work so far.
    pub(crate) fn work(&self) -> u64 {
        self.meter().since(self.started)
    }

    /// Whether a claim would lose so many types that it becomes brittle.
    pub(crate) fn leaves_too_few_types(&mut self, at: usize, fit: &Fit) -> bool {
        let catalog = self.problem.pools[self.state.claims[at].pool].catalog;
        let view = self.problem.view(catalog, fit.set);
        let keep = self.problem.catalogs[catalog].types_to_keep(&view);
        fit.types.count() < keep && self.state.claims[at].types.count() >= keep
    }

    /// The open machines in whose domains topology may let the pod; nothing where that does not tell them apart.
    pub(crate) fn open_by_topology(&self, relaxation: &Relaxation) -> Option<Bits> {
        let by_key = |id: &GroupId| !self.problem.groups[id.0 as usize].by_host;
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

    pub(crate) fn fit_open(&mut self, at: usize, class: &Class, relaxation: &Relaxation) -> Result<Fit, FitError> {
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
}
