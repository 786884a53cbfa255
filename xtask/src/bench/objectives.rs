//! Compares the objectives for the same pods, for the table of `docs/objectives.md`: price over number of machines.

use crate::{shell, workspace};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pods, the instance types for them, and the daemons of every node.
struct Workload {
    name: &'static str,
    pods: fn() -> Vec<Value>,
    capacity_type: &'static str,
    /// Only categories c, m and r from generation 5 on; otherwise all types of the region.
    usual_types: bool,
    /// aws-node, kube-proxy, a CSI driver and a monitoring agent.
    daemons: bool,
}

const fn usual(name: &'static str, pods: fn() -> Vec<Value>, capacity_type: &'static str) -> Workload {
    Workload { name, pods, capacity_type, usual_types: true, daemons: true }
}

const fn bare(name: &'static str, pods: fn() -> Vec<Value>, capacity_type: &'static str) -> Workload {
    Workload { name, pods, capacity_type, usual_types: false, daemons: false }
}

const WORKLOADS: &[Workload] = &[
    usual("2,000 loose pods", || unconstrained(2_000), "on-demand"),
    usual("2,000 loose pods", || unconstrained(2_000), "spot"),
    bare("2,000 loose pods, any type, no daemons", || unconstrained(2_000), "on-demand"),
    bare("2,000 loose pods, any type, no daemons", || unconstrained(2_000), "spot"),
    usual("500 deployments of 4, spread over zones, one per node", || deployments(500), "on-demand"),
    usual("500 deployments of 4, spread over zones, one per node", || deployments(500), "spot"),
    bare("3,000 pods with ten preferences, any type, no daemons", || preferring(3_000), "spot"),
    usual("1,000 pods of 100m and 128Mi", || equal(1_000, 100, 128), "spot"),
    usual("300 pods of 500m and 6,000Mi", || equal(300, 500, 6_000), "on-demand"),
    usual("60 pods of 7 cores and 12,000Mi", || equal(60, 7_000, 12_000), "spot"),
    usual("30 loose pods", || unconstrained(30), "on-demand"),
    usual("30 loose pods", || unconstrained(30), "spot"),
    usual("10,000 loose pods", || unconstrained(10_000), "spot"),
];

/// The compared plans: the options of `whittle plan`, and whether the plan is a column of the table.
const PLANS: &[(&str, &[&str])] = &[
    ("Karpenter's", &["--packing", "reference"]),
    ("cheapest", &["--objective", "cheapest"]),
    ("balanced", &[]),
    ("fewest", &["--objective", "fewest"]),
];

/// Machine costs between those of `cheapest` and of `fewest`, for the curve.
const COSTS: &[&str] = &["0.002", "0.005", "0.01", "0.02", "0.1", "0.3"];

/// The parsed fields of a plan.
#[derive(Deserialize)]
struct Plan {
    totals: Totals,
    #[serde(rename = "nodeClaims")]
    claims: Vec<Claim>,
}

#[derive(Clone, Copy, Deserialize)]
struct Totals {
    scheduled: usize,
    nodes: usize,
    price: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    instance_types: Vec<String>,
}

/// Plans each workload by each objective, and prints the table.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    shell::run(shell::command(&root, "cargo", &["build", "--release", "-p", "whittle-cli"]))?;
    let target = workspace::target(&root)?;
    let (whittle, folder) = (target.join("release/whittle"), target.join("objectives"));
    std::fs::create_dir_all(&folder)?;
    println!("\nMachines and USD per hour in us-east-1; in brackets the fewest instance types of a claim.\n");
    println!("| workload | Karpenter's packing | cheapest | balanced | fewest | price over machines, what no other plan beats in both |");
    println!("|---|---|---|---|---|---|");
    for (n, workload) in WORKLOADS.iter().enumerate() {
        let file = folder.join(format!("{n}.yaml"));
        std::fs::write(&file, manifests(workload).to_string()).with_context(|| format!("{} cannot be written", file.display()))?;
        row(&whittle, workload, &file)?;
    }
    Ok(())
}

fn row(whittle: &Path, workload: &Workload, file: &PathBuf) -> Result<()> {
    let mut cells = Vec::new();
    let mut points = Vec::new();
    for (name, arguments) in PLANS {
        let plan = plan(whittle, file, arguments)?;
        if plan.totals.scheduled < points.iter().map(|one: &Totals| one.scheduled).max().unwrap_or(0) {
            bail!("{}: {name} places {} pods, another plan more", workload.name, plan.totals.scheduled);
        }
        let fewest = plan.claims.iter().map(|claim| claim.instance_types.len()).min().unwrap_or(0);
        cells.push(format!("{} for {:.2} ({fewest})", plan.totals.nodes, plan.totals.price));
        points.push(plan.totals);
    }
    for cost in COSTS {
        points.push(plan(whittle, file, &["--machine-cost", cost])?.totals);
    }
    println!("| {}, {} | {} | {} |", workload.name, workload.capacity_type, cells.join(" | "), curve(points));
    Ok(())
}

/// The Pareto-optimal plans in machines and price, the fewest machines first.
fn curve(mut points: Vec<Totals>) -> String {
    points.sort_by(|a, b| a.nodes.cmp(&b.nodes).then(a.price.total_cmp(&b.price)));
    let mut kept: Vec<Totals> = Vec::new();
    for point in points {
        if kept.last().is_none_or(|last| point.price < last.price - 0.005) {
            kept.push(point);
        }
    }
    kept.iter().map(|point| format!("{}: {:.2}", point.nodes, point.price)).collect::<Vec<_>>().join(", ")
}

fn plan(whittle: &Path, file: &PathBuf, arguments: &[&str]) -> Result<Plan> {
    let mut command = Command::new(whittle);
    command.args(["plan", "--region", "us-east-1", "-o", "json", "-f"]).arg(file).args(arguments);
    let output = shell::read(command)?;
    serde_json::from_str(&output).with_context(|| format!("whittle plan printed something else: {output:.300}"))
}

fn manifests(workload: &Workload) -> Value {
    let mut items = (workload.pods)();
    let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let mut requirements = vec![
        requirement("karpenter.sh/capacity-type", "In", &[workload.capacity_type]),
        requirement("kubernetes.io/arch", "In", &["amd64"]),
    ];
    if workload.usual_types {
        requirements.push(requirement("karpenter.k8s.aws/instance-category", "In", &["c", "m", "r"]));
        requirements.push(requirement("karpenter.k8s.aws/instance-generation", "Gt", &["4"]));
    }
    items.push(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "requirements": requirements,
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        }}},
    }));
    if workload.daemons {
        items.extend([("aws-node", 50, 64), ("kube-proxy", 100, 64), ("ebs-csi-node", 30, 120), ("agent", 200, 256)].map(daemon));
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn container(cpu: usize, memory: usize) -> Value {
    json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}])
}

fn daemon((name, cpu, memory): (&str, usize, usize)) -> Value {
    let labels = json!({"app": name});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"tolerations": [{"operator": "Exists"}], "containers": container(cpu, memory)}});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    })
}

/// A pending pod; `more` are further fields of its spec.
fn pod(n: usize, app: usize, cpu: usize, memory: usize, more: &Value) -> Value {
    let mut spec = json!({"containers": container(cpu, memory)});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p-{n}"), "namespace": "default", "uid": format!("u{n:06}"), "labels": {"app": format!("a{app}")}},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    })
}

const CPU: [usize; 5] = [100, 250, 500, 1_000, 1_500];
const MEMORY: [usize; 6] = [100, 256, 512, 1_024, 2_048, 4_096];

/// Pseudo-random sizes that are the same in every run.
fn size(n: usize) -> (usize, usize) {
    let mixed = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let draw = |bits: u32, of: usize| usize::try_from((mixed >> bits) % of as u64).unwrap_or(0);
    (CPU[draw(20, CPU.len())], MEMORY[draw(40, MEMORY.len())])
}

fn unconstrained(count: usize) -> Vec<Value> {
    let one = |n| (n, size(n));
    (0..count).map(one).map(|(n, (cpu, memory))| pod(n, n % 7, cpu, memory, &Value::Null)).collect()
}

fn equal(count: usize, cpu: usize, memory: usize) -> Vec<Value> {
    (0..count).map(|n| pod(n, 0, cpu, memory, &Value::Null)).collect()
}

/// Deployments of four replicas, spread over zones with at most one per node.
fn deployments(count: usize) -> Vec<Value> {
    let replica = |n: usize| {
        let (app, (cpu, memory)) = (n / 4, size(n / 4));
        let selector = json!({"matchLabels": {"app": format!("a{app}")}});
        let more = json!({
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector,
            }],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector},
            ]}},
        });
        pod(n, app, cpu, memory, &more)
    };
    (0..count * 4).map(replica).collect()
}

/// Pods that prefer nodes with one of ten labels, which no node has.
fn preferring(count: usize) -> Vec<Value> {
    let term = |team: usize| {
        let requirement = json!({"key": "team", "operator": "In", "values": [format!("t{team}")]});
        json!({"weight": 1, "preference": {"matchExpressions": [requirement]}})
    };
    let preferred: Vec<Value> = (0..10).map(term).collect();
    let more = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
    (0..count).map(|n| pod(n, 0, 100, 128, &more)).collect()
}
