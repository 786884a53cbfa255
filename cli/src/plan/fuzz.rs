//! Reads and plans arbitrary manifests: never a panic, never a plan that the checker rejects, and properties that must hold between
//! plans for similar manifests.

mod generators;

use crate::source::InstanceTypesByPool;
use crate::source::{self, PackingArg, buffers_with_pods, catalog, options};
use generators::{manifests, offered};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;
use std::collections::BTreeSet;
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_api::objective::Objective;
use whittle_model::pods;
use whittle_model::scheduling::{Input, Options, Packing, Plan, PodRef};
use whittle_model::state::ClusterState;
use whittle_solver::Memory;
use whittle_units::Price;

/// The maximum work of a plan for a handful of pods: more would make every plan slow.
const WORK_MAX: u64 = 100_000;

/// The pods whose affinity the plan violates.
fn affinity_violations<'p>(pods: &'p [Pod], wrong: &[whittle_checker::Violation]) -> BTreeSet<&'p str> {
    let about = |pod: &Pod| wrong.iter().any(|v| v.rule == "affinity" && v.detail.starts_with(&format!("{} ", pod.metadata.key())));
    pods.iter().filter(|pod| about(pod)).map(|pod| pod.metadata.name.as_str()).collect()
}

/// The objectives, each with a machine cost.
const OBJECTIVES: [(Objective, f64); 4] =
    [(Objective::Balanced, 0.05), (Objective::Cheapest, 0.0), (Objective::Balanced, 2.0), (Objective::Fewest, 0.0)];

/// A number from the environment.
fn from_environment<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs the same `cases` each time; more with `WHITTLE_FUZZ_CASES=10000`, others with `WHITTLE_FUZZ_SEED=7`.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: from_environment("WHITTLE_FUZZ_CASES").unwrap_or(cases),
        rng_seed: RngSeed::Fixed(from_environment("WHITTLE_FUZZ_SEED").unwrap_or(42)),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    }
}

/// The generated input of a plan.
struct PlanInput {
    read: source::Manifests,
    offered: InstanceTypesByPool,
    virtual_pods: Vec<Pod>,
}

impl PlanInput {
    /// `None` if the command would reject the manifests.
    fn read(text: &str, offers: Vec<Value>) -> Option<Self> {
        let read = source::read_stored(text).ok()?;
        let offers = catalog::parse(&Value::from(offers).to_string()).expect("a literal catalog");
        let offered = catalog::for_all_pools(&read.objects, offers);
        let (_, mut virtual_pods) = buffers_with_pods(&read);
        // No API server has validated the generated pods.
        virtual_pods.retain(|pod| {
            pods::node_constraint_errors(pod, |key| key != labels::HOSTNAME).is_empty() && pods::negative_requests(pod).is_empty()
        });
        Some(Self { read, offered, virtual_pods })
    }

    fn input<'a>(&'a self, state: &'a ClusterState) -> Input<'a> {
        Input {
            now: self.read.settings.now,
            objects: &self.read.objects,
            nodes: &state.nodes,
            catalog: &self.offered,
            virtual_pods: &self.virtual_pods,
            workloads: &self.read.workloads.selectors,
        }
    }

    /// The number of real pods that are not placed.
    fn unplaced(&self, plan: &Plan) -> usize {
        let is_virtual = |pod: &PodRef| self.virtual_pods.iter().any(|one| one.metadata.uid == pod.uid);
        plan.left_out.iter().filter(|left| !is_virtual(&left.pod)).count()
    }

    fn options(&self, objective: usize, packing: Packing) -> Options {
        let (objective, dollars) = OBJECTIVES[objective];
        Options { packing, objective, machine_cost: Price::from_dollars(dollars), ..options(&self.read, PackingArg::Best) }
    }
}

/// The number of instances in each reservation; mostly none.
fn reserved() -> impl Strategy<Value = u32> {
    prop_oneof![2 => Just(0), 1 => 1..4_u32]
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn every_pod_of_generated_manifests_is_planned_or_explained(text in manifests(), objective in 0..OBJECTIVES.len(), reserved in reserved()) {
        let Some(generated) = PlanInput::read(&text, offered(reserved)) else { return Ok(()) };
        let state = ClusterState::of(&generated.read.objects);
        let input = generated.input(&state);
        let pods: Vec<Pod> = input.objects.pods.iter().chain(input.virtual_pods).cloned().collect();
        let depends_on_others = ["\"podAffinity\":{", "\"podAntiAffinity\":{", "\"topologySpreadConstraints\":[{"].iter().any(|part| text.contains(part));
        let mut plans: Vec<(Plan, BTreeSet<&str>)> = Vec::new();
        for packing in [Packing::Reference, Packing::Best] {
            let options = generated.options(objective, packing);
            let plan = whittle_solver::solve(&input, &options);
            let wrong = whittle_checker::check(&input, &options, &plan);
            // Karpenter may place the first pod of an affinity apart from the others (ADR 0019); other packings do so only if it does,
            // as long as they start with the same pods.
            let violating = affinity_violations(&pods, &wrong);
            let plain = plans.first().filter(|_| input.virtual_pods.is_empty());
            let own = plain.map_or(0, |(_, plain)| violating.difference(plain).count());
            let faults: Vec<String> = wrong.iter().filter(|v| v.rule != "affinity" || own > 0).map(ToString::to_string).collect();
            prop_assert!(faults.is_empty(), "{packing:?} ({}): {}", plan.packing, faults.join("; "));
            let (_, wrong) = whittle_checker::without_violations(&input, &options, plan.clone());
            prop_assert!(wrong.is_empty(), "{packing:?}: {wrong:?}");
            prop_assert!(plan.work < WORK_MAX, "{} units of work", plan.work);
            prop_assert!(plan.left_out.iter().all(|left| !left.reason.to_string().is_empty()));
            // If pods depend on each other or on the order of all pods, one pod fewer may change every placement.
            if packing == Packing::Reference && !depends_on_others {
                let settled = Memory::after(&input, &options, &plan).settled(&input, &options);
                let again = whittle_solver::solve(&input, &Options { settled, ..options });
                prop_assert_eq!(again.scheduled(), plan.scheduled(), "no settled pod could have been placed");
            }
            plans.push((plan, violating));
        }
        let [(plain, violating), (best, fewer)] = &plans[..] else { unreachable!("two packings") };
        // Virtual pods of buffers come last in every packing but Karpenter's.
        if !input.virtual_pods.is_empty() {
            let unplaced = (generated.unplaced(plain), generated.unplaced(best));
            prop_assert!(unplaced.1 <= unplaced.0, "{unplaced:?}");
            return Ok(());
        }
        let placed = (plain.scheduled(), best.scheduled());
        prop_assert!(placed.1 >= placed.0, "{placed:?}");
        let (right, cheaper) = (placed.1 - fewer.len() > placed.0 - violating.len(), best.price() <= plain.price());
        prop_assert!(right || cheaper, "{} instead of {} for {placed:?}", best.price(), plain.price());
        let machines = (plain.claims.len(), best.claims.len());
        let fewer = right || OBJECTIVES[objective].0 != Objective::Fewest || machines.1 <= machines.0;
        prop_assert!(fewer, "{} machines instead of {} for {placed:?}", machines.1, machines.0);
    }
}

/// The value of a plan: placed pods, machines, and the objective.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlanValue {
    placed: usize,
    machines: usize,
    cost: Price,
}

/// Plans the manifests with these instance types. Returns the value, and the machines as text.
fn plan_value(text: &str, offers: Vec<Value>, objective: usize, packing: Packing) -> Option<(PlanValue, String)> {
    let generated = PlanInput::read(text, offers)?;
    let state = ClusterState::of(&generated.read.objects);
    let options = generated.options(objective, packing);
    let plan = whittle_solver::solve(&generated.input(&state), &options);
    let machines = plan.claims.len();
    let cost = (0..machines).fold(plan.price(), |sum, _| sum + options.machine_cost);
    Some((PlanValue { placed: plan.scheduled(), machines, cost }, format!("{:?}", plan.claims)))
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn renaming_pods_only_renames_them_in_the_plan(text in manifests(), objective in 0..OBJECTIVES.len()) {
        for packing in [Packing::Reference, Packing::Best] {
            let Some(first) = plan_value(&text, offered(0), objective, packing) else { return Ok(()) };
            let renamed = text.replace("\"pod-", "\"web-");
            let other = plan_value(&renamed, offered(0), objective, packing).expect("read before");
            prop_assert_eq!(&first.0, &other.0, "{:?}", packing);
            // Apart from the names, the plans have the same bytes.
            let back = other.1.replace("web-", "pod-");
            prop_assert_eq!(&first.1, &back, "{:?}", packing);
        }
    }

    #[test]
    fn an_additional_instance_type_makes_no_plan_worse(text in manifests(), objective in 0..OBJECTIVES.len(), last in any::<bool>()) {
        // Fewer types mean fewer domains of keys that only types define, and BestEffort lowers minValues: smaller machines then fit a
        // limit.
        let domains = ["size", labels::CAPACITY_TYPE, labels::ARCH].map(|key| format!("\"topologyKey\":\"{key}\""));
        if text.contains("CapacityBuffer") || text.contains("\"minValues\":") || domains.iter().any(|domain| text.contains(domain)) {
            return Ok(());
        }
        let Some((more, _)) = plan_value(&text, offered(0), objective, Packing::Best) else { return Ok(()) };
        let mut types: Vec<Value> = offered(0);
        types.remove(if last { types.len() - 1 } else { 0 });
        let (fewer, _) = plan_value(&text, types, objective, Packing::Best).expect("read before");
        prop_assert!(more.placed >= fewer.placed, "{more:?} {fewer:?}");
        prop_assert!(more.placed > fewer.placed || more.cost <= fewer.cost, "{more:?} {fewer:?}");
    }

    #[test]
    fn an_additional_pool_or_node_makes_no_plan_worse(text in manifests(), objective in 0..OBJECTIVES.len(), node in any::<bool>()) {
        // Pools and nodes are topology domains, the first pod of an affinity decides the domain of the others,
        // nodes are used first, and virtual pods of buffers are placed in any order.
        let catalog = ["CapacityBuffer", "\"topologySpreadConstraints\":[{", "\"podAffinity\":{"];
        if catalog.iter().any(|part| text.contains(part)) {
            return Ok(());
        }
        let (kind, kept) = if node { ("Node", "n0") } else { ("NodePool", "p0") };
        let is_extra = |document: &&str| {
            let object: Value = serde_json::from_str(document).expect("it was generated as JSON");
            object["kind"] == kind && object["metadata"]["name"] != kept
        };
        let documents: Vec<&str> = text.split("\n---\n").collect();
        let without: Vec<&str> = documents.iter().filter(|document| !is_extra(document)).copied().collect();
        let Some((more, _)) = plan_value(&text, offered(0), objective, Packing::Best) else { return Ok(()) };
        let Some((fewer, _)) = plan_value(&without.join("\n---\n"), offered(0), objective, Packing::Best) else { return Ok(()) };
        prop_assert!(more.placed >= fewer.placed, "{more:?} {fewer:?}");
        // A pool with more weight is used first, whatever it costs.
        prop_assert!(!node || more.placed > fewer.placed || more.cost <= fewer.cost, "{more:?} {fewer:?}");
    }
}
