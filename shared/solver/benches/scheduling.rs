//! One solve and one check of Karpenter's own scheduling benchmark, 2,000 pods of five kinds:
//! `cargo bench -p whittle-solver --bench scheduling`. Larger sizes, memory and prices: `cargo xtask bench scheduling`.

#[allow(dead_code, reason = "shared with the example, which uses all of it")]
mod mix;

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use whittle_api::k8s::Workloads;
use whittle_model::scheduling::{Input, Options, Packing};
use whittle_model::state::ClusterState;
use whittle_solver::solve;

fn scheduling(bench: &mut Criterion) {
    let pods = mix::diverse(2000, &mut mix::Dice::new(42));
    let (objects, catalog) = mix::cluster(pods, Vec::new());
    let state = ClusterState::of(&objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().expect("a literal time");
    let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let best = Options::provisioning();
    let reference = Options { packing: Packing::Reference, ..Options::provisioning() };
    let mut group = bench.benchmark_group("2000 pods");
    group.sample_size(10);
    group.bench_function("solve", |b| b.iter(|| solve(black_box(&input), &best)));
    group.bench_function("solve as the reference", |b| b.iter(|| solve(black_box(&input), &reference)));
    let plan = solve(&input, &best);
    group.bench_function("check", |b| b.iter(|| whittle_checker::check(black_box(&input), &best, black_box(&plan))));
    group.finish();
}

criterion_group!(benches, scheduling);
criterion_main!(benches);
