//! What holds for any cluster. The clusters are drawn from a fixed seed.

use crate::disruption::candidates::candidate;
use crate::disruption::simulate::{Simulator, Targets};
use crate::disruption::state::World;
use crate::disruption::testing::{Scene, noon, render};
use crate::disruption::{Decision, Gate, Reason};
use crate::schedule::Packing;
use std::collections::BTreeMap;
use whittle_api::k8s::IntOrString;
use whittle_api::karpenter::Budget;
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
            scene.pod(&format!("p-{name}-{pod}"), &name, &format!("{}m", 200 + 100 * dice.roll(8)));
        }
        if dice.roll(6) == 0 {
            scene.marks.insert(name, (true, None));
        }
    }
    for pending in 0..dice.roll(2) {
        scene.pod(&format!("pending-{pending}"), "", &format!("{}m", 500 * (1 + dice.roll(6))));
    }
    scene
}

#[test]
fn a_smaller_cluster_answers_as_the_whole_one() {
    for seed in 0..DRAWN {
        drawn(seed).with(|input| {
            let world = World::new(input);
            for machine in &world.machines {
                let Ok(node) = candidate(&world, machine) else { continue };
                let ask = |simulations| {
                    let outcome = Simulator::new(&world, simulations).without(&[&node], Targets::Quiet, Packing::Reference);
                    outcome.map(|outcome| (outcome.claims, outcome.destinations)).map_err(|keep| match keep {
                        crate::disruption::Keep::PodsStay { listed, .. } => listed.into_iter().map(|(pod, _)| pod).collect::<Vec<_>>(),
                        other => vec![other.to_string()],
                    })
                };
                assert_eq!(ask(100), ask(1), "seed {seed}, node {}", machine.name());
            }
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
