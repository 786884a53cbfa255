//! `whittle cost`: what a month of Whittle costs, from a simulation that meters what AWS bills.

mod bill;
mod durations;
mod metered;
mod prices;
mod stretch;
#[cfg(test)]
mod tests;

use crate::local::Output;
use crate::local::session::SessionError;
use crate::numbers;
use crate::printing;
use crate::schema::Document;
use crate::table::table;
use bill::{Architecture, Line, sum};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use stretch::Simulated;
use whittle_sim::Function;

/// Show what a month of Whittle costs: AWS's prices of what a simulated cluster makes the functions use
///
/// The functions run in a simulated region and cluster, for a quiet and a busy stretch; what AWS bills is counted and extrapolated to a
/// month of 730 hours, eight of each day busy. It needs no access to an account.
#[derive(Debug, Args)]
#[command(after_help = "\
Without arguments: an idle deployment, and clusters of 10 and 100 nodes. 1,000 nodes take some minutes.
Prices are list prices; what the always-free tier leaves is printed as well, for an account that uses it for nothing else.
docs/cost.md says how everything is counted, and what is left out.

Examples:
  whittle cost --nodes 100
  whittle cost --nodes 40 --pods 900 --pools 3 --launches-per-hour 12 --clusters 4

Exit code: 0 if the costs are printed, 1 if the output cannot be written, 2 if there are none.")]
pub struct CostArgs {
    /// Nodes of each cluster; 0 for an idle one
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::within::<u32>(0..=5_000))]
    pub nodes: Option<u32>,
    /// Pods of each cluster, one for each node at least; ten for each node unless given
    #[arg(long, value_name = "N", requires = "nodes", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::within::<u32>(0..=200_000))]
    pub pods: Option<u32>,
    /// NodePools of each cluster; five from 50 nodes on unless given, one below
    #[arg(long, value_name = "N", requires = "nodes", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::within::<u32>(1..=100))]
    pub pools: Option<u32>,
    /// Nodes that come and go in a busy hour; a fifth of the nodes unless given
    #[arg(long, value_name = "N", requires = "nodes", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::within::<u32>(0..=2_000))]
    pub launches_per_hour: Option<u32>,
    /// Clusters like this one that the deployment serves
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    #[arg(value_parser = numbers::within::<u32>(1..=100))]
    pub clusters: u32,
    /// The region whose prices count
    #[arg(long, value_name = "REGION", default_value = "us-east-1", value_parser = crate::place::region)]
    pub region: String,
    /// With every metric: the template's parameter Metrics is full
    #[arg(long)]
    pub all_metrics: bool,
    /// With every alarm: the template's parameter Alarms is full
    #[arg(long)]
    pub all_alarms: bool,
    /// Also print the processor time of a run of each function in this process, as the table of durations has it
    #[arg(long, hide = true)]
    pub measure: bool,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Nodes of the clusters whose costs are printed unless others are asked for.
const USUAL: [u32; 3] = [0, 10, 100];

/// A cluster whose costs are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    nodes: u32,
    pods: u32,
    pools: u32,
    launches: u32,
    clusters: u32,
    region: String,
    all_metrics: bool,
    all_alarms: bool,
}

/// Why there is no bill.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupted {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("--nodes {nodes}: not all nodes and pods of the simulated cluster run after {minutes} minutes; ask for fewer")]
    NotFilled { nodes: u32, minutes: u32 },
    #[error("--pods {pods}: each of the {nodes} nodes needs one at least; leave --pods out, or ask for fewer nodes")]
    FewPods { nodes: u32, pods: u32 },
    #[error("--region {region}: AWS's prices there are not built in; name one of {}", prices::REGIONS.join(", "))]
    Region { region: String },
    #[error("the simulation broke an invariant, so its figures mean nothing: {0}")]
    Violated(String),
}

/// Computes and prints the costs.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &CostArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let is_terminal = io::stderr().is_terminal();
    let computed = sizes(args).and_then(|sizes| computed(&sizes, is_terminal));
    if is_terminal {
        printing::draw("");
    }
    match computed {
        Ok(computed) => {
            match args.output {
                Output::Text => out.write_all(text(&computed).as_bytes())?,
                Output::Json => writeln!(out, "{:#}", document(&computed))?,
            }
            if args.measure {
                // Nothing stands behind a JSON document.
                match args.output {
                    Output::Text => out.write_all(measured(&computed).as_bytes())?,
                    Output::Json => err.write_all(measured(&computed).as_bytes())?,
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            writeln!(err, "error: {error}")?;
            Ok(ExitCode::from(2))
        }
    }
}

/// The clusters that are asked for.
fn sizes(args: &CostArgs) -> Result<Vec<Size>, Interrupted> {
    if !prices::REGIONS.contains(&args.region.as_str()) {
        return Err(Interrupted::Region { region: args.region.clone() });
    }
    let size = |nodes: u32| {
        let pods = args.pods.unwrap_or(nodes * 10);
        if pods < nodes {
            return Err(Interrupted::FewPods { nodes, pods });
        }
        Ok(Size {
            nodes,
            pods,
            pools: args.pools.unwrap_or(if nodes < 50 { 1 } else { 5 }),
            launches: args.launches_per_hour.unwrap_or(nodes / 5),
            clusters: args.clusters,
            region: args.region.clone(),
            all_metrics: args.all_metrics,
            all_alarms: args.all_alarms,
        })
    };
    args.nodes.map_or_else(|| USUAL.to_vec(), |nodes| vec![nodes]).into_iter().map(size).collect()
}

/// A cluster with what it makes the functions do.
struct Computed {
    size: Size,
    simulated: Simulated,
}

impl Computed {
    fn bill(&self, architecture: Architecture) -> Vec<Line> {
        bill::month(&self.simulated, &self.size, architecture)
    }
}

fn computed(sizes: &[Size], is_terminal: bool) -> Result<Vec<Computed>, Interrupted> {
    let one = |size: &Size| {
        let mut progress = |what: &str| {
            if is_terminal {
                printing::draw(&format!("{}: {what}", title(size)));
            }
        };
        let simulated = stretch::simulate(size, &mut progress)?;
        match simulated.busy.violations.first() {
            Some(violation) => Err(Interrupted::Violated(violation.clone())),
            None => Ok(Computed { size: size.clone(), simulated }),
        }
    };
    sizes.iter().map(one).collect()
}

fn title(size: &Size) -> String {
    match size.nodes {
        0 => "idle".to_owned(),
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    }
}

fn dollars(amount: f64) -> String {
    format!("{amount:.2}")
}

/// The costs as tables: of one cluster with quantities, of several beside each other.
fn text(computed: &[Computed]) -> String {
    let mut out = String::from("US dollars a month of 730 hours, list price, arm64\n\n");
    out.push_str(&if let [one] = computed { quantities(one) } else { beside(computed) });
    out.push('\n');
    let mut sums = Vec::new();
    for (name, architecture) in [("arm64", Architecture::Arm), ("x86_64", Architecture::X86)] {
        let row = |what: &str, of: fn(&Line) -> f64| {
            let cells = computed.iter().map(|one| dollars(sum(&one.bill(architecture), of)));
            std::iter::once(format!("{name}, {what}")).chain(cells).collect::<Vec<String>>()
        };
        sums.push(row("list price", |line| line.list));
        sums.push(row("after the always-free tier", |line| line.rest));
    }
    let titles: Vec<String> = std::iter::once("sum".to_owned()).chain(computed.iter().map(|one| title(&one.size))).collect();
    out.push_str(&table(&titles.iter().map(String::as_str).collect::<Vec<&str>>(), sums));
    out.push('\n');
    for one in computed {
        let Size { pods, pools, launches, clusters, .. } = one.size;
        let _ = writeln!(
            out,
            "{}: {pods} pods; NodePools: {pools}; {launches} nodes come and go in each of {} busy hours a day{}",
            title(&one.size),
            bill::BUSY_HOURS,
            if clusters > 1 { format!("; {clusters} such clusters") } else { String::new() }
        );
    }
    let region = computed.first().map_or("", |one| one.size.region.as_str());
    let _ = writeln!(out, "Prices of {region}, {}. Simulated, not measured in an account; docs/cost.md says how.", prices::DATE);
    let _ = writeln!(
        out,
        "Not included: a dashboard (${:.2} beyond three), customer keys, a VPC's endpoints or NAT, data transfer, audit trails, the nodes.",
        prices::DASHBOARD
    );
    out
}

/// The lines of one bill.
fn quantities(one: &Computed) -> String {
    let rows = one.bill(Architecture::Arm).into_iter().map(|line| {
        vec![
            line.name.to_owned(),
            format!("{:.*}", if line.quantity < 100.0 { 2 } else { 0 }, line.quantity),
            line.unit.to_owned(),
            dollars(line.list),
            dollars(line.rest),
        ]
    });
    table(&["", "quantity", "unit", "list price", "after the free tier"], rows)
}

/// The lines of several bills.
fn beside(computed: &[Computed]) -> String {
    let bills: Vec<Vec<Line>> = computed.iter().map(|one| one.bill(Architecture::Arm)).collect();
    let names = bills.first().into_iter().flatten().map(|line| line.name);
    let rows = names.enumerate().map(|(at, name)| {
        let cells = bills.iter().map(|lines| lines.get(at).map_or_else(String::new, |line| dollars(line.list)));
        std::iter::once(name.to_owned()).chain(cells).collect()
    });
    let titles: Vec<String> = std::iter::once(String::new()).chain(computed.iter().map(|one| title(&one.size))).collect();
    table(&titles.iter().map(String::as_str).collect::<Vec<&str>>(), rows)
}

/// The costs as JSON.
fn document(computed: &[Computed]) -> Value {
    let bill = |one: &Computed, architecture| {
        let lines = one.bill(architecture);
        let rows: Vec<Value> = lines
            .iter()
            .map(|line| {
                let Line { name, quantity, unit, list, rest } = line;
                json!({ "name": name, "quantity": quantity, "unit": unit, "list": list, "afterFreeTier": rest })
            })
            .collect();
        json!({ "lines": rows, "list": sum(&lines, |line| line.list), "afterFreeTier": sum(&lines, |line| line.rest) })
    };
    let cluster = |one: &Computed| {
        let Size { nodes, pods, pools, launches, clusters, region, .. } = &one.size;
        json!({
            "nodes": nodes, "pods": pods, "nodePools": pools, "launchesPerBusyHour": launches, "clusters": clusters, "region": region,
            "arm64": bill(one, Architecture::Arm), "x86_64": bill(one, Architecture::X86), "hours": hours(one),
            "simulated": { "nodes": one.simulated.left.0, "pods": one.simulated.left.1, "tableBytes": one.simulated.table_bytes },
        })
    };
    Document::Cost.versioned(json!({
        "currency": "USD",
        "pricesOf": prices::DATE,
        "months": computed.iter().map(cluster).collect::<Vec<Value>>(),
    }))
}

/// What the functions of a cluster do in a quiet and in a busy hour.
fn hours(one: &Computed) -> Value {
    let of = |hourly: &stretch::Hourly| {
        let function = |(function, rates): (&Function, &stretch::Rates)| {
            let units: serde_json::Map<String, Value> = hourly
                .table
                .iter()
                .filter(|((of, _), _)| of == function)
                .map(|((_, kind), (reads, writes))| ((*kind).to_owned(), json!({ "reads": reads, "writes": writes })))
                .collect();
            let value = json!({
                "invocations": rates.invocations, "runs": rates.runs, "waitedSeconds": rates.waited_seconds, "messages": rates.messages,
                "logBytes": rates.log_bytes, "units": units,
            });
            (function.name().to_owned(), value)
        };
        json!({ "functions": hourly.functions.iter().map(function).collect::<serde_json::Map<String, Value>>(), "metrics": hourly.series })
    };
    json!({ "quiet": of(&one.simulated.quiet), "busy": of(&one.simulated.busy) })
}

/// Processor time of a run in this process, by function and cluster, in milliseconds.
fn measured(computed: &[Computed]) -> String {
    let row = |function: &Function| {
        let of = |one: &Computed| {
            let [quiet, busy] =
                [&one.simulated.quiet, &one.simulated.busy].map(|hourly| hourly.functions.get(function).copied().unwrap_or_default());
            let (times, runs) = (quiet.processor_ms * quiet.runs * 2.0 + busy.processor_ms * busy.runs, quiet.runs * 2.0 + busy.runs);
            format!("{:.2}", if runs > 0.0 { times / runs } else { 0.0 })
        };
        std::iter::once(function.name().to_owned()).chain(computed.iter().map(of)).collect::<Vec<String>>()
    };
    format!("\n{}", table(&[], Function::ALL.iter().map(row)))
}
