//! Times one solve of Karpenter's scheduling benchmark and prints one line of JSON:
//! `scheduling CASE PODS [reference] [effort N] [budget N] [digest]`, with CASE `diverse` (the mix of five kinds), `preferring`
//! (equal pods with preferences), `machines` (the mix, with 2,000 machines that exist) or one of `benches/odd.rs`. One solve per
//! process, so that the peak of the memory belongs to it. `check_seconds` is what the independent check of the plan takes afterwards.
//! `cargo xtask bench scheduling` runs all cases and draws the plot.

#[path = "../benches/mix.rs"]
mod mix;
#[path = "../benches/odd.rs"]
mod odd;

use mimalloc::MiMalloc;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::time::Instant;
use whittle_api::k8s::Workloads;
use whittle_model::scheduling::{Input, Options, Packing, Plan};
use whittle_model::state::ClusterState;
use whittle_solver::solve;

/// As in `whittle`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let case = args.first().map_or("diverse", String::as_str);
    let count: usize = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(500);
    let mut dice = mix::Dice::new(42);
    let (objects, catalog) = odd::case(case, count).unwrap_or_else(|| {
        let (pods, nodes) = match case {
            "preferring" => (mix::preferring(count, &mut dice), Vec::new()),
            "machines" => (mix::diverse(count, &mut dice), mix::machines(2000)),
            "diverse" => (mix::diverse(count, &mut dice), Vec::new()),
            other => panic!("{other:?} is none of diverse, preferring, machines and the cases of benches/odd.rs"),
        };
        mix::cluster(pods, nodes)
    });
    let options = options(args.get(2..).unwrap_or_default());
    let state = ClusterState::of(&objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().expect("a literal time");
    let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let before = peak_memory();
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    let plan = solve(&input, &options);
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let peak = peak_memory();
    let checking = cpu_seconds();
    let wrong = whittle_checker::check(&input, &options, &plan).len();
    let check = cpu_seconds() - checking;
    let digest = args.iter().any(|a| a == "digest").then(|| digest(&plan));
    print(case, count, &plan, &Measured { wall, cpu, check, wrong, before, peak, digest });
}

fn options(args: &[String]) -> Options {
    let number = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1)?.parse().ok());
    let mut options = Options { work_budget: number("budget"), ..Options::provisioning() };
    if let Some(effort) = number("effort") {
        options.effort = u32::try_from(effort).unwrap_or(u32::MAX);
    }
    if args.iter().any(|a| a == "reference") {
        options.packing = Packing::Reference;
    }
    options
}

struct Measured {
    wall: f64,
    cpu: f64,
    /// Processor time of the check, and what it found wrong.
    check: f64,
    wrong: usize,
    before: u64,
    peak: u64,
    digest: Option<String>,
}

/// Of all that a plan decides and says, but not of the work that it took: whether two builds plan alike.
fn digest(plan: &Plan) -> String {
    struct Sink(DefaultHasher);
    impl fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut sink = Sink(DefaultHasher::new());
    let plan = Plan { work: 0, ..plan.clone() };
    fmt::write(&mut sink, format_args!("{plan:?}")).expect("hashing does not fail");
    format!("{:016x}", sink.0.finish())
}

fn print(case: &str, pods: usize, plan: &Plan, measured: &Measured) {
    let line = serde_json::json!({
        "case": case,
        "pods": pods,
        "cpu_seconds": measured.cpu,
        "wall_seconds": measured.wall,
        "check_seconds": measured.check,
        "violations": measured.wrong,
        "scheduled": plan.scheduled(),
        "placements": plan.placements.len(),
        "nodes": plan.claims.len(),
        "price": plan.price().dollars(),
        "lower_bound": plan.lower_bound.map(whittle_units::Price::dollars),
        "fewest_types": plan.claims.iter().map(|c| c.instance_types.len()).min(),
        "memory_before_mb": measured.before,
        "memory_mb": measured.peak,
        "packing": plan.packing,
        "left_out": plan.left_out.len(),
        "work": plan.work,
        "finished": plan.cursor.is_none(),
        "digest": measured.digest,
    });
    println!("{line}");
}

/// What the process's thread has spent on a processor; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// The most memory the process has used, in MB; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    line.and_then(|l| l.split_whitespace().nth(1)).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1000
}
