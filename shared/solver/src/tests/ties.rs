//! Of machines with equally many pods, Karpenter tries the one first that reached that number later.

use super::properties::mix::Dice;
use super::world::{World, all, hard, instance_type, near};
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

/// Groups that share a host each: which machine a group begins on decides how many of its pods find room there.
#[test]
fn no_more_pods_are_left_out_than_by_karpenter_however_equals_are_ordered() {
    let mut left_out = 0;
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let mut world = World::new();
        world.types = vec![instance_type("eight", 8, 64, 110)];
        for group in 0..12 {
            let app = format!("app-{group}");
            for _ in 0..=dice.below(8) {
                let asks = json!({"cpu": format!("{}m", 250 * (1 + dice.below(9))), "memory": "1Mi"});
                let together = hard("podAffinity", near(labels::HOSTNAME, &app));
                world.pods(&app, 1, &if group % 3 == 0 { asks } else { all(&[asks, together]) });
            }
        }
        let karpenter = world.solve(&Options { packing: Packing::Reference, ..world.options.clone() });
        let best = world.solve(&world.options.clone());
        assert!(best.left_out.len() <= karpenter.left_out.len(), "seed {seed}: {} of {}", best.left_out.len(), karpenter.left_out.len());
        left_out += karpenter.left_out.len();
    }
    assert!(left_out > 0, "all groups fit");
}
