//! Over random small clusters: the default packing is never worse than Karpenter's.

use super::world::{World, all, hard, instance_type, near, spread, with};
use crate::solve;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use serde_json::{Value, json};
use whittle_api::labels;
use whittle_model::scheduling::{Options, Packing};
use whittle_units::Price;

/// Equal pods.
#[derive(Clone, Debug)]
struct Batch {
    count: usize,
    milli: i64,
    mebibytes: i64,
    /// Their app: batches of one app attract, repel and spread with each other.
    app: usize,
    zone: Option<usize>,
    rule: Rule,
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    None,
    SpreadOverZones,
    SpreadOverHosts,
    OwnHost,
    OneZone,
}

#[derive(Clone, Debug)]
struct Cluster {
    batches: Vec<Batch>,
    /// Which types are offered, and their price relative to their size, in tenths.
    types: Vec<(usize, u64)>,
    /// Limit of the pool in CPUs.
    limit: Option<i64>,
    /// CPUs of existing machines.
    nodes: Vec<i64>,
}

const SIZES: [(i64, i64); 8] = [(2, 4), (2, 16), (4, 8), (4, 32), (8, 16), (8, 64), (16, 32), (32, 128)];

fn batch() -> impl Strategy<Value = Batch> {
    let rule =
        prop_oneof![Just(Rule::None), Just(Rule::SpreadOverZones), Just(Rule::SpreadOverHosts), Just(Rule::OwnHost), Just(Rule::OneZone)];
    (1..7_usize, 1..50_i64, 1..40_i64, 0..3_usize, proptest::option::weighted(0.3, 0..3_usize), rule)
        .prop_map(|(count, cpu, memory, app, zone, rule)| Batch { count, milli: cpu * 100, mebibytes: memory * 200, app, zone, rule })
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let types = proptest::collection::vec((0..SIZES.len(), 5..20_u64), 1..8);
    let nodes = proptest::collection::vec(1..9_i64, 0..3);
    (proptest::collection::vec(batch(), 1..6), types, proptest::option::weighted(0.3, 4..80_i64), nodes)
        .prop_map(|(batches, types, limit, nodes)| Cluster { batches, types, limit, nodes })
}

fn spec(batch: &Batch) -> Value {
    let app = format!("app-{}", batch.app);
    let zone = |at: usize| super::world::Z[at];
    let selector = batch.zone.map_or(json!({}), |at| json!({"nodeSelector": {labels::ZONE: zone(at)}}));
    let rule = match batch.rule {
        Rule::None => json!({}),
        Rule::SpreadOverZones => json!({"topologySpreadConstraints": [spread(labels::ZONE, &app, 1)]}),
        Rule::SpreadOverHosts => json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, &app, 1)]}),
        Rule::OwnHost => hard("podAntiAffinity", near(labels::HOSTNAME, &app)),
        Rule::OneZone => hard("podAffinity", near(labels::ZONE, &app)),
    };
    let size = json!({"cpu": format!("{}m", batch.milli), "memory": format!("{}Mi", batch.mebibytes), "labels": {"app": app}});
    all(&[size, selector, rule])
}

fn world(cluster: &Cluster) -> World {
    let mut world = World::new();
    let sold = cluster.types.iter().enumerate().map(|(at, &(size, tenths))| {
        let (cpu, gib) = SIZES[size];
        let mut t = instance_type(&format!("type-{at}"), cpu, gib, 20);
        t.offerings.iter_mut().for_each(|o| o.price = Price::from_nanos(o.price.nanos() / 10 * tenths));
        with(t, labels::OS, &["linux"])
    });
    world.types = sold.collect();
    if let Some(cpu) = cluster.limit {
        world.pool("default", json!({"limits": {"cpu": cpu.to_string()}}));
    }
    for (n, cpu) in cluster.nodes.iter().enumerate() {
        world.node(&format!("node-{n}"), *cpu, json!({labels::ZONE: super::world::Z[n]}));
    }
    for (n, batch) in cluster.batches.iter().enumerate() {
        world.pods(&format!("batch-{n}"), batch.count, &spec(batch));
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        rng_seed: RngSeed::Fixed(42),
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_default_packing_leaves_no_more_out_and_costs_no_more_than_karpenters(cluster in cluster()) {
        let world = world(&cluster);
        let reference = world.ask(|input| solve(input, &world.options));
        let best = world.ask(|input| solve(input, &Options { packing: Packing::Best, ..world.options.clone() }));
        prop_assert!(
            best.left_out.len() <= reference.left_out.len(),
            "{} are left out, by Karpenter {}", best.left_out.len(), reference.left_out.len()
        );
        // Placing more pods may cost more.
        prop_assert!(
            best.scheduled() > reference.scheduled() || best.price() <= reference.price(),
            "{} instead of {}", best.price(), reference.price()
        );
    }
}
