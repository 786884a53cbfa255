//! Times the scheduler on the reference's benchmark: `scheduling [diverse|preferring|machines] PODS [reference]` prints
//! one line of JSON per run. `cargo xtask bench scheduling` calls it.

#[path = "../benches/mix.rs"]
mod mix;

use std::time::Instant;
use whittle_core::schedule::{Input, Options, Packing, Workloads, solve};
use whittle_core::state::ClusterState;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let case = args.first().map_or("diverse", String::as_str);
    let count: usize = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(500);
    let mut dice = mix::Dice::new(42);
    let (pods, nodes) = match case {
        "preferring" => (mix::preferring(count, &mut dice), Vec::new()),
        "machines" => (mix::diverse(count, &mut dice), mix::machines(2000)),
        _ => (mix::diverse(count, &mut dice), Vec::new()),
    };
    let (objects, catalog) = mix::cluster(pods, nodes);
    let mut options = Options::provisioning();
    if args.get(2).is_some_and(|a| a == "reference") {
        options.packing = Packing::Reference;
    }
    let state = ClusterState::of(&objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().expect("a literal time");
    let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let start = Instant::now();
    let plan = solve(&input, &options);
    let seconds = start.elapsed().as_secs_f64();
    let bound = plan.lower_bound.map_or(0.0, whittle_units::Price::dollars);
    println!(
        "{{\"case\":\"{case}\",\"pods\":{count},\"seconds\":{seconds:.4},\"scheduled\":{},\"nodes\":{},\"price\":{:.4},\"lower_bound\":{bound:.4},\"peak_rss_mb\":{},\"packing\":\"{}\",\"work\":{}}}",
        plan.scheduled(),
        plan.claims.len(),
        plan.price().dollars(),
        peak_rss_mb(),
        plan.packing,
        plan.work,
    );
}

/// The most memory the process has used, in MB; 0 where the system does not say.
fn peak_rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    line.and_then(|l| l.split_whitespace().nth(1)).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1000
}
