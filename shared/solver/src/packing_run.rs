//! The state that one run over the queue shares between first fit and cheapest fit.

use super::aim::{Aim, Aims};
use super::bits::Bits;
use super::fit::{self, ClaimRules, ClaimTarget, FitError, PackingOptions};
use super::hash::Map;
use super::ids::{ClaimId, DimId, GroupId, Id as _, IdVec, MachineId, RelaxationId};
use super::meter::{self, Meter};
use super::pod::{Class, Entry, Relaxation};
use super::problem::Problem;
use super::state::{Claim, ClaimsOfSet, Fit, State};
use super::topology::TopologyQuery;
use whittle_model::scheduling::Options;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) state: State,
    /// Pods without a place, in queue order, with the last error.
    pub(crate) unplaced: Vec<(Entry, Option<FitError>)>,
    /// Pods that the budget did not suffice for.
    pub(crate) unconsidered: Vec<Entry>,
    pub(crate) work: u64,
}

/// With more distinct requirement sets of open claims than this, each claim is checked on its own.
const SETS_MAX: usize = 64;

/// Which open claim takes a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The one with the fewest pods, and of equals the one that Karpenter's sort puts first.
    Karpenter,
    /// The one with the fewest pods, and of equals the oldest, which is found without sorting.
    FewestPods,
    /// The one whose price grows least; a new one if that is cheaper.
    Cheapest,
    /// The same, but the type that a claim is filled up to counts as bought from the start: it is filled before another is
    /// opened.
    Aimed(Aim),
}

/// One run over the queue.
pub(crate) struct PackingRun<'s, 'a> {
    pub(crate) problem: &'s mut Problem<'a>,
    pub(crate) options: &'s Options,
    pub(crate) packing_options: PackingOptions,
    pub(crate) state: State,
    /// The meter's ticks at the start.
    pub(crate) started: u64,
    pub(crate) budget: u64,
    pub(crate) choice: Choice,
    /// Prices of open claims, for [`Choice::Cheapest`].
    pub(crate) prices: PriceCache,
    /// The types that claims are filled up to, for [`Choice::Aimed`].
    pub(crate) aims: Aims,
    /// Existing machines that accept pods.
    pub(crate) open_machines: Bits<MachineId>,
    /// Open claims in the order in which Karpenter tries them, each after its number of pods.
    pub(crate) karpenter_order: Vec<(u64, ClaimId)>,
    /// By open claim: the most that one of its types has left.
    pub(crate) headroom: HeadroomCache,
}

/// Prices of open claims.
#[derive(Debug, Default)]
pub(crate) struct PriceCache {
    /// By claim: the price of its cheapest type.
    pub(crate) price: IdVec<ClaimId, u64>,
    /// By claim: what its cheapest type has left, with all dimensions of a claim in a row.
    pub(crate) spare: Vec<i64>,
    /// Claims with so little left that no pod of the pass fits without a larger type.
    pub(crate) full: Bits<ClaimId>,
    /// The smallest request of any pod of the pass.
    pub(crate) least: IdVec<DimId, i64>,
    /// By relaxation: where the next search starts.
    pub(crate) window: Map<RelaxationId, ClaimId>,
    /// By relaxation: the price of a machine for one pod alone.
    pub(crate) price_alone: Map<RelaxationId, u64>,
}

impl PriceCache {
    /// What the cheapest type of a claim has left, by dimension.
    pub(crate) fn spare_of(&self, claim: ClaimId, dims: usize) -> &[i64] {
        &self.spare[claim.position() * dims..(claim.position() + 1) * dims]
    }
}

/// By open claim: the most that one of its types has left in each dimension, so that a larger request needs no further check.
#[derive(Debug, Default)]
pub(crate) struct HeadroomCache(Vec<i64>);

impl HeadroomCache {
    /// Whether claim `at` certainly has no room.
    pub(crate) fn rules_out(&self, at: ClaimId, requests: &IdVec<DimId, i64>) -> bool {
        let dims = requests.len();
        let left = self.0.get(at.position() * dims..(at.position() + 1) * dims).unwrap_or_default();
        left.iter().zip(requests).any(|(left, want)| *want > 0 && want > left)
    }

    pub(crate) fn note(&mut self, problem: &Problem<'_>, at: ClaimId, claim: &Claim) {
        let dims = claim.requests.len();
        let catalog = &problem.catalogs[problem.pools[claim.pool].catalog];
        self.0.resize(self.0.len().max((at.position() + 1) * dims), i64::MAX);
        for (dim, asked) in claim.requests.enumerate() {
            self.0[at.position() * dims + dim.position()] = catalog.most_allocatable(dim, &claim.types).saturating_sub(*asked);
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
        open_machines.subtract(&problem.excluded);
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

    /// Whether the claim would lose too many types.
    pub(crate) fn leaves_too_few_types(&mut self, at: ClaimId, fit: &Fit) -> bool {
        let pool = self.state.claims[at].pool;
        let view = self.problem.view(self.problem.pools[pool].catalog, fit.set);
        let keep = self.problem.types_to_keep(pool, &view);
        fit.types.count() < keep && self.state.claims[at].types.count() >= keep
    }

    /// The open claims in whose domains topology may allow the pod; `None` if that does not distinguish them.
    pub(crate) fn open_by_topology(&self, relaxation: &Relaxation) -> Option<Bits<ClaimId>> {
        let by_key = |id: &GroupId| !self.problem.groups[*id].by_host;
        if self.state.by_set.len() > SETS_MAX || !relaxation.owned.iter().chain(&relaxation.repelled_by).any(by_key) {
            return None;
        }
        let query = TopologyQuery { groups: &self.problem.groups, counts: &self.state.counts, sets: &self.problem.sets };
        let groups = relaxation.owned.len() + relaxation.repelled_by.len();
        self.meter().spend(self.state.by_set.len() * (groups * 2 * meter::GROUP + self.state.claims.len() / 64 / meter::WORDS));
        let mut out = Bits::default();
        for ClaimsOfSet { set, claims } in &self.state.by_set {
            if !query.is_closed(relaxation, *set) {
                out.absorb(claims);
            }
        }
        Some(out)
    }

    pub(crate) fn fit_open(&mut self, at: ClaimId, class: &Class, relaxation: &Relaxation) -> Result<Fit, FitError> {
        self.meter().spend(meter::QUICK_CHECK);
        if self.headroom.rules_out(at, &class.requests) {
            return Err(FitError::Permanent);
        }
        let types_within_limits =
            if self.packing_options.types_charged > 0 { self.state.types_within_limits(self.problem, at) } else { None };
        let claim = &self.state.claims[at];
        let target = ClaimTarget {
            pool: claim.pool,
            set: claim.set,
            types: types_within_limits.as_ref().unwrap_or(&claim.types),
            requests: &claim.requests,
            ports: &claim.ports,
            ebs_volumes: &claim.ebs_volumes,
            reservations: &claim.reservations,
            host: Some(self.problem.host_of_claim(at)),
        };
        let rules = ClaimRules { state: &self.state, options: self.options, packing: self.packing_options };
        fit::check_claim(self.problem, rules, target, class, relaxation)
    }
}
