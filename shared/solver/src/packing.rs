//! Several packings compete; Karpenter's own is always among them, so that no plan is worse than that.

use super::affinity_check;
use super::aim::Aim;
use super::bound::{BoundOf, fewest_machines, lower_bound};
use super::catalog::SPOT_TYPES_KEPT;
use super::catalog_index::NO_PRICE;
use super::finish;
use super::fit::PackingOptions;
use super::ids::{ClassId, IdVec, PodId, SetId};
use super::intern::LabelsOf;
use super::objective::risk;
use super::packing_run::{Choice, Outcome, PackingRun};
use super::pod::{Class, Entry};
use super::problem::Problem;
use super::queue::rivals_in_turn;
use super::repack;
use super::state::Claim;
use super::topology::GroupKind;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use whittle_api::objective::Objective;
use whittle_model::pods::is_virtual;
use whittle_model::scheduling::{Cursor, MachineCosts, NarrowerPlan, Options, Packing, Plan};
use whittle_units::Price;

/// With an effort of one, improving a packing may take this much work, plus the packing's own work divided by this.
const WORK_MIN: u64 = 70_000;
const WORK_DIVISOR: u64 = 2;
/// With more pods than this, other strategies are only tried until all pods have a place, except one that fills machines up
/// where that could save many: the work is better spent on improving.
const STRATEGY_PODS_MAX: usize = 4_000;

/// Up to this many pods, the strategies are tried a second time, with other costs of a machine besides its price.
const SECOND_LOOK_PODS_MAX: usize = 2_000;

/// The name of Karpenter's packing.
const KARPENTER: &str = "first fit";

/// A packing that competes.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    /// Its claims were opened with the smallest types alone.
    smallest_types: bool,
    shortfall: Shortfall,
    /// The pods that it misplaces. Improving it may misplace no others.
    pub(crate) misplaced: BTreeSet<PodId>,
    pub(crate) outcome: Outcome,
}

/// What a packing fails to do, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shortfall {
    /// Existing pods without a place, or misplaced.
    real: usize,
    /// The same, with the placeholder pods of buffers.
    all: usize,
    /// Those that are placed where their required affinity does not hold.
    misplaced: usize,
}

impl Shortfall {
    fn of(problem: &Problem<'_>, outcome: &Outcome, misplaced: &BTreeSet<PodId>) -> Self {
        let wrong = misplaced.iter().copied().chain(outcome.unplaced.iter().map(|(entry, _)| entry.pod));
        let real = wrong.filter(|pod| !is_virtual(problem.pods[*pod])).count();
        Self { real, all: outcome.unplaced.len() + misplaced.len(), misplaced: misplaced.len() }
    }
}

/// The cheapest plan among those that leave out the fewest pods.
pub(crate) fn best(problem: &mut Problem<'_>, options: &Options) -> Plan {
    let queue = queue_from_cursor(problem, &options.cursor);
    let budget = options.work_budget.unwrap_or(u64::MAX);
    let mut outcome = karpenter_packing(problem, options, &queue, budget);
    let mut work = outcome.work;
    let (mut packing, mut narrower) = (KARPENTER, None);
    // A packing that does not finish within one run is not improved in that run.
    if options.packing == Packing::Best && outcome.unconsidered.is_empty() {
        let candidates = candidates(problem, options, &queue, outcome, &mut work);
        (packing, outcome, narrower) = match winner(problem, options, candidates, &mut work) {
            Some(Winner { candidate, narrower }) => (candidate.name, candidate.outcome, narrower),
            None => (KARPENTER, karpenter_packing(problem, options, &queue, budget), None),
        };
    }
    // Simulations are frequent and do not need a bound.
    let bound = options.simulation.is_none().then(|| lower_bound(problem, &outcome, BoundOf::Prices));
    let machine_costs = bound.and_then(|_| machine_costs(problem, options, &outcome));
    let mut plan = finish::plan(problem, options, &outcome);
    plan.packing = packing;
    plan.work = work;
    plan.lower_bound = bound;
    plan.machine_costs = machine_costs;
    plan.narrower = narrower;
    if !outcome.unconsidered.is_empty() {
        let unconsidered: BTreeSet<PodId> = outcome.unconsidered.iter().map(|entry| entry.pod).collect();
        let uid = |entry: &Entry| problem.pods[entry.pod].metadata.uid.clone();
        let before = &options.cursor.considered;
        let considered: BTreeSet<String> =
            queue.iter().filter(|entry| !unconsidered.contains(&entry.pod) || before.contains(&uid(entry))).map(uid).collect();
        // The round ends when every pod has been considered; the next one starts from the beginning.
        plan.cursor = (considered.len() < queue.len()).then_some(Cursor { considered });
    }
    plan
}

/// The other costs of a plan's machines, and the bound with them, under the objective that counts both.
fn machine_costs(problem: &mut Problem<'_>, options: &Options, outcome: &Outcome) -> Option<MachineCosts> {
    if options.objective != Objective::Balanced || options.packing == Packing::Reference {
        return None;
    }
    let each = outcome.state.claims.iter().map(|claim| Price::from_nanos(problem.pools[claim.pool].machine_cost));
    Some(MachineCosts { cost: each.sum(), lower_bound: lower_bound(problem, outcome, BoundOf::AllCosts) })
}

/// Karpenter's own packing. Among equally full machines its order is one of two that are tried when pods are left out; for many pods the
/// other one, which needs no sorting, comes first.
fn karpenter_packing(problem: &mut Problem<'_>, options: &Options, queue: &[Entry], budget: u64) -> Outcome {
    let run =
        |problem: &mut Problem<'_>, choice, budget| PackingRun::new(problem, options, PackingOptions::KARPENTER, choice, budget).run(queue);
    if options.packing == Packing::Reference {
        return run(problem, Choice::Karpenter, budget);
    }
    let mut orders = [Choice::Karpenter, Choice::FewestPods];
    if queue.len() > STRATEGY_PODS_MAX {
        orders.reverse();
    }
    let first = run(problem, orders[0], budget);
    if first.unplaced.is_empty() || !first.unconsidered.is_empty() || first.work >= budget {
        return first;
    }
    let second = run(problem, orders[1], budget - first.work);
    let work = first.work + second.work;
    let none = BTreeSet::new();
    let is_better = second.unconsidered.is_empty() && Shortfall::of(problem, &second, &none) < Shortfall::of(problem, &first, &none);
    Outcome { work, ..if is_better { second } else { first } }
}

/// Karpenter's packing and its competitors, as far as they finish within the budget.
fn candidates(problem: &mut Problem<'_>, options: &Options, queue: &[Entry], karpenter: Outcome, work: &mut u64) -> Vec<Candidate> {
    let budget = options.work_budget.unwrap_or(u64::MAX);
    // Where Karpenter's rules leave open which pod comes first, every plan may do as Karpenter does (ADR 0019).
    let tolerated = affinity_check::misplaced(problem, &karpenter.state);
    let least = Shortfall::of(problem, &karpenter, &tolerated);
    let none = BTreeSet::new();
    let (mut fewest, left) = (least, Shortfall::of(problem, &karpenter, &none));
    let strategies = strategies(&karpenter);
    // Where pods with anti-affinity need most of the machines anyway, there is little to fill up.
    let fills = fewest_machines(problem, &karpenter) * 2 < karpenter.state.claims.len();
    let mut out =
        vec![Candidate { name: KARPENTER, smallest_types: false, shortfall: least, misplaced: tolerated.clone(), outcome: karpenter }];
    let looks = if queue.len() <= SECOND_LOOK_PODS_MAX && options.simulation.is_none() { 2 } else { 1 };
    for look in 0..looks {
        // These costs only guide the search; plans are compared by the real ones. Now and then the wrong costs lead to the better plan.
        let real_costs = (look == 1).then(|| misjudge_machines(problem));
        for strategy in &strategies {
            if *work >= budget {
                break;
            }
            if queue.len() > STRATEGY_PODS_MAX
                && fewest.all == 0
                && !(strategy.order == Order::Blended && strategy.choice == Choice::Aimed(Aim::Any) && fills)
            {
                continue;
            }
            let mut order = strategy.order.sort(problem, queue);
            real_first(problem, &mut order);
            rivals_in_turn(problem, &mut order);
            let mut outcome = PackingRun::new(problem, options, strategy.packing_options, strategy.choice, budget - *work).run(&order);
            *work += outcome.work;
            let misplaced = affinity_check::unplace_misplaced(problem, &mut outcome, &tolerated);
            let shortfall = Shortfall::of(problem, &outcome, &misplaced);
            if outcome.unconsidered.is_empty() && shortfall <= fewest && Shortfall::of(problem, &outcome, &none) <= left {
                fewest = shortfall;
                let smallest_types = strategy.packing_options.smallest_types;
                out.push(Candidate { name: strategy.name, smallest_types, shortfall, misplaced, outcome });
            }
        }
        if let Some(real_costs) = real_costs {
            problem.pools.iter_mut().zip(real_costs).for_each(|(pool, cost)| pool.machine_cost = cost);
        }
    }
    out.retain(|candidate| candidate.shortfall == fewest);
    out
}

/// Replaces each NodePool's fixed cost of a machine by a wrong one: zero where it is not zero, otherwise the default. Returns the real
/// costs, by NodePool.
fn misjudge_machines(problem: &mut Problem<'_>) -> Vec<u64> {
    let usual = Options::provisioning().machine_cost.nanos();
    let misjudged = |cost: &mut u64| std::mem::replace(cost, if *cost == 0 { usual } else { 0 });
    problem.pools.iter_mut().map(|pool| misjudged(&mut pool.machine_cost)).collect()
}

/// All packings that compete for the whole queue.
#[cfg(test)]
pub(crate) fn all_candidates(problem: &mut Problem<'_>, options: &Options) -> Vec<Candidate> {
    let queue = problem.queue.clone();
    let karpenter = karpenter_packing(problem, options, &queue, u64::MAX);
    candidates(problem, options, &queue, karpenter, &mut 0)
}

/// The candidate that wins, and what it wins against.
pub(crate) struct Winner {
    pub(crate) candidate: Candidate,
    pub(crate) narrower: Option<NarrowerPlan>,
}

/// The cheapest candidate, improved, that is still valid; the next best if it is not.
pub(crate) fn winner(problem: &mut Problem<'_>, options: &Options, candidates: Vec<Candidate>, work: &mut u64) -> Option<Winner> {
    let budget = options.work_budget.unwrap_or(u64::MAX);
    // If Karpenter's packing competes, nothing with a higher hourly price wins.
    let karpenter = candidates.iter().find(|candidate| candidate.name == KARPENTER);
    let karpenter = karpenter.map(|karpenter| (cost(problem, options.objective, &karpenter.outcome), &karpenter.outcome));
    let most = karpenter.map(|(cost, _)| cost.price);
    let as_packed = karpenter.map(|(cost, outcome)| cost.narrower(outcome));
    let mut priced = Vec::with_capacity(candidates.len());
    for mut candidate in candidates {
        *work += improve(problem, options, &mut candidate.outcome, budget.saturating_sub(*work));
        let cost = cost(problem, options.objective, &candidate.outcome);
        if most.is_none_or(|most| cost.price <= most) {
            priced.push((cost, candidate));
        }
    }
    // Stable: of equals the first strategy, which is Karpenter's if it competes.
    priced.sort_by_key(|(cost, _)| cost.all());
    let mut valid = priced.into_iter().filter_map(|(cost, candidate)| settled(problem, candidate).map(|candidate| (cost, candidate)));
    let (won, candidate) = valid.next()?;
    if options.simulation.is_some() {
        return Some(Winner { candidate, narrower: None });
    }
    let won = won.narrower(&candidate.outcome).with_machines();
    let others = as_packed.into_iter().chain(valid.map(|(cost, candidate)| cost.narrower(&candidate.outcome)));
    let narrower = others.filter(|other| other.with_machines() < won).min_by_key(NarrowerPlan::with_machines);
    Some(Winner { candidate, narrower })
}

/// The candidate with what its claims may become, if it is valid.
fn settled(problem: &mut Problem<'_>, mut candidate: Candidate) -> Option<Candidate> {
    let state = &mut candidate.outcome.state;
    if candidate.smallest_types {
        state.widen_types(problem);
    }
    let within = state.keep_within_limits(problem);
    let misplaced = affinity_check::misplaced(problem, state);
    let valid = within && state.is_launchable(problem) && misplaced.is_subset(&candidate.misplaced);
    valid.then_some(candidate)
}

/// Moves the placeholder pods of buffers to the end, as they are in the queue.
fn real_first(problem: &Problem<'_>, order: &mut [Entry]) {
    if problem.queue.last().is_some_and(|entry| is_virtual(problem.pods[entry.pod])) {
        order.sort_by_key(|entry| is_virtual(problem.pods[entry.pod]));
    }
}

/// Spends some work on improving the packing, within the budget.
fn improve(problem: &mut Problem<'_>, options: &Options, outcome: &mut Outcome, budget: u64) -> u64 {
    if options.simulation.is_some() || options.effort == 0 {
        return 0;
    }
    let share = u64::from(options.effort).saturating_mul(WORK_MIN + outcome.work / WORK_DIVISOR);
    let state = &mut outcome.state;
    let keep = [SPOT_TYPES_KEPT, 1].into_iter().find(|keep| state.charge_all(problem, *keep));
    keep.map_or(0, |keep| repack::improve(problem, state, keep, options.objective, share.min(budget)))
}

/// The queue, with the pods that were considered in this round at the end.
fn queue_from_cursor(problem: &Problem<'_>, cursor: &Cursor) -> Vec<Entry> {
    let mut queue = problem.queue.clone();
    rivals_in_turn(problem, &mut queue);
    if !cursor.considered.is_empty() {
        queue.sort_by_key(|entry| cursor.considered.contains(&problem.pods[entry.pod].metadata.uid));
    }
    queue
}

/// A way of packing.
struct Strategy {
    name: &'static str,
    packing_options: PackingOptions,
    choice: Choice,
    order: Order,
}

/// The order in which pods are placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Queue,
    /// By the largest share of the total requests of all pods.
    Largest,
    /// Pods that fit on the fewest instance types first, and of equals those with the fewest offerings: less constrained pods find
    /// others.
    FewestTypes,
    /// Pods with anti-affinity by host first: they need a machine each, which other pods may fill.
    Repelling,
    /// Pods with any anti-affinity first, which need an empty domain; then pods with other topology constraints; pods without
    /// constraints fit next to them.
    Constrained,
    /// Largest first, but balanced so that the pods placed so far request about the same share of each resource: together they
    /// fill a machine.
    Blended,
}

fn strategies(karpenter: &Outcome) -> Vec<Strategy> {
    let strategy = |name, packing_options, choice, order| Strategy { name, packing_options, choice, order };
    let mut out = vec![
        strategy("repelling first, cheapest fit", PackingOptions::UNRESTRICTED, Choice::Cheapest, Order::Repelling),
        strategy("largest first, cheapest fit", PackingOptions::UNRESTRICTED, Choice::Cheapest, Order::Largest),
        strategy("largest first, filled up", PackingOptions::UNRESTRICTED, Choice::Aimed(Aim::Any), Order::Largest),
        strategy("blended, filled up", PackingOptions::UNRESTRICTED, Choice::Aimed(Aim::Any), Order::Blended),
        strategy("blended, filled up by price", PackingOptions::UNRESTRICTED, Choice::Aimed(Aim::ByPrice), Order::Blended),
        strategy("blended, smaller ones filled up", PackingOptions::UNRESTRICTED, Choice::Aimed(Aim::Smaller), Order::Blended),
    ];
    if !karpenter.unplaced.is_empty() {
        out.insert(0, strategy("first fit, pinned", PackingOptions::UNRESTRICTED, Choice::FewestPods, Order::Queue));
        let scarce = PackingOptions { scarce_domains_first: true, ..PackingOptions::UNRESTRICTED };
        out.insert(1, strategy("first fit, scarcest domains first", scarce, Choice::FewestPods, Order::Queue));
        out.insert(2, strategy("choosiest first", PackingOptions::UNRESTRICTED, Choice::FewestPods, Order::FewestTypes));
        let lean = PackingOptions { types_charged: 1, ..PackingOptions::UNRESTRICTED };
        out.push(strategy("first fit, constrained first", PackingOptions::UNRESTRICTED, Choice::FewestPods, Order::Constrained));
        out.push(strategy("first fit, one type charged", lean, Choice::FewestPods, Order::Queue));
        out.push(strategy("repelling first, one type charged", lean, Choice::Cheapest, Order::Repelling));
        let smallest = PackingOptions { smallest_types: true, ..lean };
        out.push(strategy("smallest types, cheapest fit", smallest, Choice::Cheapest, Order::Queue));
    }
    out
}

impl Order {
    fn sort(self, problem: &mut Problem<'_>, queue: &[Entry]) -> Vec<Entry> {
        let mut out = queue.to_vec();
        let mut total = vec![0i128; problem.dims.len()];
        for entry in queue {
            for (sum, amount) in total.iter_mut().zip(&problem.classes[entry.class].requests) {
                *sum += i128::from(*amount);
            }
        }
        let shares: IdVec<ClassId, i128> = problem
            .classes
            .iter()
            .map(|class| {
                class.requests.iter().zip(&total).map(|(n, t)| i128::from(*n) * 1_000_000_000_000 / (*t).max(1)).max().unwrap_or(0)
            })
            .collect();
        let repelling: IdVec<ClassId, bool> = problem
            .classes
            .iter()
            .map(|class| {
                let groups = class.relaxations[0].owned.iter().map(|g| &problem.groups[*g]);
                groups.filter(|g| g.kind == GroupKind::Anti && g.by_host).any(|g| g.selects.has(class.labels))
            })
            .collect();
        match self {
            Order::Queue => {}
            Order::FewestTypes => {
                let choices: IdVec<ClassId, (usize, usize)> = problem.classes.ids().map(|class| choices(problem, class)).collect();
                out.sort_by_key(|entry| (choices[entry.class], Reverse(shares[entry.class])));
            }
            Order::Constrained => out.sort_by_key(|entry| Reverse(constraint_rank(problem, &problem.classes[entry.class]))),
            Order::Largest => out.sort_by_key(|entry| Reverse(shares[entry.class])),
            Order::Blended => out = blended(problem, &out, &total, &shares),
            Order::Repelling => out.sort_by_key(|entry| {
                let class = entry.class;
                (Reverse(repelling[class]), Reverse(shares[class]))
            }),
        }
        out
    }
}

/// How a pod of the class is constrained by other pods without its preferences: 2 by anti-affinity, 1 by another rule, 0 not at
/// all.
fn constraint_rank(problem: &Problem<'_>, class: &Class) -> u8 {
    let owned = class.relaxations.last().map(|relaxation| &relaxation.owned[..]).unwrap_or_default();
    let repels = owned.iter().any(|g| problem.groups[*g].kind == GroupKind::Anti);
    if repels { 2 } else { u8::from(!owned.is_empty()) }
}

/// The queue, alternating between pods that request most of one resource and pods that request most of another.
fn blended(problem: &Problem<'_>, queue: &[Entry], total: &[i128], shares: &IdVec<ClassId, i128>) -> Vec<Entry> {
    let parts = |entry: &Entry| {
        let requests = &problem.classes[entry.class].requests;
        requests.iter().zip(total).map(|(n, sum)| *n as f64 / (*sum).max(1) as f64).collect::<Vec<f64>>()
    };
    let mut lists: Vec<Vec<Entry>> = vec![Vec::new(); total.len()];
    for entry in queue {
        let parts = parts(entry);
        let most = (0..parts.len()).rev().max_by(|a, b| parts[*a].total_cmp(&parts[*b])).unwrap_or(0);
        lists[most].push(*entry);
    }
    for list in &mut lists {
        list.sort_by_key(|entry| shares[entry.class]);
    }
    let (mut out, mut taken) = (Vec::with_capacity(queue.len()), vec![0.0_f64; total.len()]);
    while out.len() < queue.len() {
        let open = (0..lists.len()).filter(|dim| !lists[*dim].is_empty());
        let Some(entry) = open.min_by(|a, b| taken[*a].total_cmp(&taken[*b])).and_then(|dim: usize| lists[dim].pop()) else { break };
        taken.iter_mut().zip(parts(&entry)).for_each(|(sum, more)| *sum += more);
        out.push(entry);
    }
    out
}

/// How many instance types, over all NodePools, fit one pod of the class alone, and how many offerings they have where its volumes can
/// be attached.
fn choices(problem: &mut Problem<'_>, class: ClassId) -> (usize, usize) {
    let class = std::rc::Rc::clone(&problem.classes[class]);
    let relaxation = class.relaxations.last().expect("a class has at least one relaxation");
    let (mut fitting, mut offerings) = (0, 0);
    for pool in problem.pools.ids() {
        let Some(set) = problem.merge(problem.pools[pool].set, relaxation.full, LabelsOf::NewNode) else { continue };
        let catalog = problem.pools[pool].catalog;
        let view = problem.view(catalog, set);
        let mut types = problem.pools[pool].types.clone();
        types.intersect_with(&view.usable);
        problem.catalogs[catalog].keep_fitting(class.requests.as_slice(), &mut types);
        problem.catalogs[catalog].keep_attaching(class.ebs_volumes(), &mut types);
        fitting += types.count();
        for set in sets_with_volumes(problem, set, &class) {
            let view = problem.view(catalog, set);
            let kinds = view.kinds.iter().map(|k| &problem.catalogs[catalog].kinds[*k]);
            offerings += kinds.map(|kind| kind.available.intersection_count(&types)).sum::<usize>();
        }
    }
    (fitting, offerings)
}

/// `set` with each of the places where the volumes of the class can be attached; alone if it has none.
fn sets_with_volumes(problem: &mut Problem<'_>, set: SetId, class: &Class) -> Vec<SetId> {
    if class.places.is_empty() {
        return vec![set];
    }
    class.places.iter().filter_map(|place| problem.merge(set, place.set, LabelsOf::NewNode)).collect()
}

/// What the new machines cost per hour.
#[derive(Clone, Copy)]
struct Cost {
    price: u128,
    /// Their other costs.
    machine_cost: u128,
    /// What the objective adds for claims with too few types.
    risk: u128,
}

impl Cost {
    /// What the objective compares.
    fn all(&self) -> u128 {
        self.price + self.machine_cost + self.risk
    }

    fn narrower(&self, outcome: &Outcome) -> NarrowerPlan {
        let nanos = |sum: u128| Price::from_nanos(u64::try_from(sum).unwrap_or(u64::MAX));
        let claims = &outcome.state.claims;
        let types = claims.iter().map(|claim| claim.types.count()).min().unwrap_or(0);
        NarrowerPlan { machines: claims.len(), price: nanos(self.price), machine_cost: nanos(self.machine_cost), types }
    }
}

fn cost(problem: &mut Problem<'_>, objective: Objective, outcome: &Outcome) -> Cost {
    let mut out = Cost { price: 0, machine_cost: 0, risk: 0 };
    for claim in &outcome.state.claims {
        let catalog = problem.pools[claim.pool].catalog;
        let view = problem.view(catalog, claim.set);
        let reserved = if claim.reservations.is_empty() { None } else { reserved_price(problem, claim) };
        let price = reserved.or_else(|| view.cheapest(&claim.types).map(|(_, n)| n)).unwrap_or(NO_PRICE);
        let keep = problem.types_to_keep(claim.pool, &view);
        let risky = objective == Objective::Balanced && reserved.is_none();
        out.price += u128::from(price);
        out.machine_cost += u128::from(problem.pools[claim.pool].machine_cost);
        out.risk += if risky { u128::from(risk(price, claim.types.count(), keep)) } else { 0 };
    }
    out
}

/// The price of a claim that holds reservations and is pinned to them.
fn reserved_price(problem: &Problem<'_>, claim: &Claim) -> Option<u64> {
    let kinds = problem.catalogs[problem.pools[claim.pool].catalog]
        .kinds
        .iter()
        .filter(|k| k.reservation.is_some_and(|r| claim.reservations.contains(&r)));
    kinds.flat_map(|k| claim.types.iter().map(|t| k.price[t])).min()
}
