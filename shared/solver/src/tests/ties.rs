//! Of machines with equally many pods, Karpenter tries the one first that reached that number later.

use super::world::{World, instance_type};
use serde_json::json;
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
