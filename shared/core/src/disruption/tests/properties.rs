//! What holds for any cluster. The clusters are drawn from a fixed seed.

use crate::disruption::candidates::candidate;
use crate::disruption::simulate::{Outcome, Simulator, Targets};
use crate::disruption::state::World;
use crate::disruption::testing::{Scene, noon, render};
use crate::disruption::{Decision, Gate, Keep, Reason};
use crate::schedule::Packing;
use std::collections::BTreeMap;
use whittle_api::k8s::{Affinity, IntOrString, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint};
use whittle_api::karpenter::Budget;
use whittle_api::{LabelSelector, labels};
use whittle_units::Quantity;

/// Clusters per property: what a few seconds allow without optimisation.
const DRAWN: u64 = 40;

/// A small linear congruential generator: portable, and the seed is in the failure.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn drawn(seed: u64) -> Scene {
    let mut dice = Dice(seed);
    let mut scene = Scene::new().best();
    scene.settings.spot_to_spot = Gate::On;
    scene.pool("other");
    let budgets = ["1", "2", "50%", "100%"];
    for pool in ["default", "other"] {
        let nodes = IntOrString::Text(budgets[usize::try_from(dice.roll(4)).unwrap()].to_owned());
        scene.the_pool(pool).spec.disruption.budgets = vec![Budget { nodes, ..Budget::default() }];
    }
    if dice.roll(3) == 0 {
        scene.the_pool("other").spec.limits.set("cpu", Quantity::from_units(16));
    }
    for at in 0..3 + dice.roll(5) {
        let name = format!("n{at}");
        let pool = if dice.roll(3) == 0 { "other" } else { "default" };
        scene.node(&name, pool, 1 << (1 + dice.roll(4)));
        for pod in 0..dice.roll(4) {
            let cpu = format!("{}m", 200 + 100 * dice.roll(8));
            company(scene.pod(&format!("p-{name}-{pod}"), &name, &cpu), &mut dice);
        }
        if dice.roll(6) == 0 {
            scene.marks.insert(name, (true, None));
        }
    }
    for pending in 0..dice.roll(2) {
        let cpu = format!("{}m", 500 * (1 + dice.roll(6)));
        company(scene.pod(&format!("pending-{pending}"), "", &cpu), &mut dice);
    }
    scene
}

/// Lets one pod in three look at others: by zone, by host or by a label of the pool.
fn company(pod: &mut Pod, dice: &mut Dice) {
    let app = ["a", "b"][usize::from(dice.roll(2) == 0)];
    pod.metadata.labels.insert("app".to_owned(), app.to_owned());
    let others = LabelSelector { match_labels: BTreeMap::from([("app".to_owned(), app.to_owned())]), ..LabelSelector::default() };
    let topology_key = [labels::ZONE, labels::HOSTNAME, labels::NODE_POOL][usize::try_from(dice.roll(3)).unwrap()].to_owned();
    let term =
        || PodAffinityTerm { label_selector: Some(others.clone()), topology_key: topology_key.clone(), ..PodAffinityTerm::default() };
    let affinity = || PodAffinity { required: vec![term()], ..PodAffinity::default() };
    match dice.roll(9) {
        0 => {
            let when = ["DoNotSchedule", "ScheduleAnyway"][usize::from(dice.roll(2) == 0)].to_owned();
            pod.spec.topology_spread_constraints = vec![TopologySpreadConstraint {
                max_skew: 1,
                label_selector: Some(others.clone()),
                topology_key: topology_key.clone(),
                when_unsatisfiable: when,
                ..TopologySpreadConstraint::default()
            }];
        }
        1 => pod.spec.affinity = Some(Affinity { pod_affinity: Some(affinity()), ..Affinity::default() }),
        2 => pod.spec.affinity = Some(Affinity { pod_anti_affinity: Some(affinity()), ..Affinity::default() }),
        _ => {}
    }
}

#[test]
fn a_prepared_question_answers_as_a_solve_from_scratch() {
    for seed in 0..DRAWN {
        drawn(seed).with(|input| {
            let world = World::new(input);
            let mut prepared = Simulator::new(&world, 100);
            for machine in &world.machines {
                let Ok(node) = candidate(&world, machine) else { continue };
                for targets in [Targets::Quiet, Targets::All] {
                    let anew = Simulator::new(&world, 1).without(&[&node], targets, Packing::Reference);
                    let asked = prepared.without(&[&node], targets, Packing::Reference);
                    let told = |outcome: Result<Outcome, Keep>| {
                        outcome.map(|found| (found.claims, found.destinations)).map_err(|keep| keep.to_string())
                    };
                    assert_eq!(told(asked), told(anew), "seed {seed}, node {}", machine.name());
                }
            }
            let nodes: Vec<_> = world.machines.iter().filter_map(|machine| candidate(&world, machine).ok()).collect();
            let all: Vec<_> = nodes.iter().collect();
            let told = |mut simulator: Simulator<'_>| {
                simulator.without(&all, Targets::Quiet, Packing::Reference).map(|found| found.claims).map_err(|keep| keep.to_string())
            };
            assert_eq!(told(prepared), told(Simulator::new(&world, 1)), "seed {seed}, all nodes at once");
        });
    }
}

fn allowed(decision: &Decision, reason: Reason) -> BTreeMap<String, u32> {
    let states = decision.budgets.iter().filter(|state| state.reason == reason);
    states.map(|state| (state.node_pool.clone(), state.allowed())).collect()
}

#[test]
fn no_decision_exceeds_a_budget_or_raises_the_bill() {
    let mut commands = 0;
    for seed in 0..DRAWN {
        let scene = drawn(seed);
        let decision = scene.decide();
        for command in &decision.commands {
            commands += 1;
            let mut left = allowed(&decision, command.method.reason());
            for removal in &command.removals {
                let left = left.get_mut(&removal.node_pool).unwrap();
                assert!(*left > 0, "seed {seed}: {} exceeds the budget of {}", render(command), removal.node_pool);
                *left -= 1;
            }
            assert!(command.savings.nanos() > 0, "seed {seed}: {} saves nothing", render(command));
        }
        assert_eq!(decision, scene.decide(), "seed {seed}: the same input gives the same decision");
    }
    assert!(commands > 12, "only {commands} commands were drawn");
}

#[test]
fn the_best_search_never_saves_less_than_the_reference() {
    for seed in 0..DRAWN {
        let mut scene = drawn(seed);
        let saved = |decision: &Decision| decision.commands.iter().map(|command| command.savings.nanos()).sum::<i64>();
        let best = scene.decide();
        scene.settings.solve.packing = Packing::Reference;
        let reference = scene.decide();
        assert!(saved(&best) >= saved(&reference), "seed {seed}: {:?} against {:?}", best.commands, reference.commands);
    }
}

#[test]
fn a_decision_at_rest_stays_at_rest() {
    for seed in 0..DRAWN {
        let mut scene = drawn(seed);
        let decision = scene.decide();
        if decision.commands.is_empty() {
            scene.memory = decision.memory;
            scene.now = noon() + jiff::SignedDuration::from_secs(10);
            assert!(scene.decide().commands.is_empty(), "seed {seed}");
        }
    }
}
