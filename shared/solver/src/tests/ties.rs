//! Of machines with equally many pods, Karpenter tries the one first that reached that number later.

use super::properties::mix::Dice;
use super::world::{World, all, hard, instance_type, near};
use crate::solve;
use serde_json::json;
use whittle_api::labels;
use whittle_model::scheduling::{Options, Packing};

/// The pods of each machine, for pods of these milli-CPUs on machines of four CPUs.
fn shared_by(cpus: &[i64]) -> Vec<Vec<String>> {
    let mut world = World::new();
    world.types = vec![instance_type("four", 4, 64, 110)];
    for (n, cpu) in cpus.iter().enumerate() {
        world.pod(&format!("p{n}"), json!({"cpu": format!("{cpu}m"), "memory": "1Mi"}));
    }
    let plan = world.solve(&Options { packing: Packing::Reference, ..world.options.clone() });
    assert_eq!(plan.scheduled(), cpus.len());
    plan.claims.iter().map(|claim| claim.pods.iter().map(|pod| pod.name.clone()).collect()).collect()
}

#[test]
fn a_machine_that_came_to_as_many_pods_later_is_tried_first() {
    // The third goes to the first machine, which then has two pods; the fourth to the second; the fifth fits both.
    assert_eq!(shared_by(&[2_900, 2_800, 400, 300, 100]), [vec!["p0", "p2"], vec!["p1", "p3", "p4"]]);
    // And the sixth goes to the one with fewer.
    assert_eq!(shared_by(&[2_900, 2_800, 400, 300, 100, 90]), [vec!["p0", "p2", "p5"], vec!["p1", "p3", "p4"]]);
}

#[test]
fn of_new_machines_with_one_pod_each_the_oldest_is_tried_first() {
    assert_eq!(shared_by(&[2_900, 2_800, 2_700, 100]), [vec!["p0", "p3"], vec!["p1"], vec!["p2"]]);
}

/// Groups, some of which share a host, others have a host for each pod: which machine a group begins on decides how many of its
/// pods find room there.
fn groups_on_few_hosts(seed: u64) -> World {
    let mut dice = Dice::new(seed);
    let mut world = World::new();
    world.types = vec![instance_type("eight", 8, 32, 110)];
    for group in 0..40 {
        // Half of them have their name, and so their hosts, in common with others.
        let app = format!("app-{}", if dice.below(2) == 0 { group } else { group % 10 });
        let kind = dice.below(3);
        for _ in 0..=2 + dice.below(12) {
            let cpu = format!("{}m", 250 * (1 + dice.below(12)));
            let asks = json!({"cpu": cpu, "memory": format!("{}Mi", 128 << dice.below(6))});
            let more = match kind {
                0 => json!({}),
                1 => hard("podAffinity", near(labels::HOSTNAME, &app)),
                _ => hard("podAntiAffinity", near(labels::HOSTNAME, &app)),
            };
            world.pods(&app, 1, &all(&[asks, more]));
        }
    }
    world
}

#[test]
fn no_more_pods_are_left_out_than_by_karpenter_however_equals_are_ordered() {
    let mut fewer = 0;
    for seed in 0..12 {
        let world = groups_on_few_hosts(seed);
        let left_out = |packing| world.ask(|input| solve(input, &Options { packing, ..world.options.clone() })).left_out.len();
        let (karpenter, best) = (left_out(Packing::Reference), left_out(Packing::Best));
        assert!(best <= karpenter, "seed {seed}: {best} instead of {karpenter}");
        fewer += usize::from(best < karpenter);
    }
    assert!(fewer > 0, "nothing is gained anywhere: both are the same packing");
}
