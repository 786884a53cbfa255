//! Runs the scheduler on Karpenter's own benchmark, each case in its own process, and draws the plot.

use crate::{shell, workspace};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use plotters::prelude::*;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Only cases with up to this number of pods; the plot is drawn only if all are run
    #[arg(long, default_value_t = 100_000)]
    up_to: usize,
    /// Also with ten times the work limit for better packings
    #[arg(long)]
    thorough: bool,
}

/// One case: the arguments of the example.
struct Case {
    name: &'static str,
    kind: &'static str,
    pods: usize,
    /// A point of the plot, compared with Karpenter's packing.
    plotted: bool,
}

const fn mix(name: &'static str, pods: usize) -> Case {
    Case { name, kind: "diverse", pods, plotted: true }
}

const CASES: &[Case] = &[
    mix("mix", 500),
    mix("mix", 2_000),
    mix("mix", 5_000),
    mix("mix", 10_000),
    mix("mix", 20_000),
    mix("mix", 100_000),
    Case { name: "burst of pending pods", kind: "diverse", pods: 14_800, plotted: false },
    Case { name: "preferences (Respect)", kind: "preferring", pods: 4_000, plotted: false },
    Case { name: "mix beside 2,000 machines", kind: "machines", pods: 20_000, plotted: false },
];

/// The output of the example.
#[derive(Debug, Deserialize)]
struct Line {
    cpu_seconds: f64,
    scheduled: usize,
    nodes: usize,
    price: f64,
    lower_bound: Option<f64>,
    memory_mb: u64,
}

/// A measured case.
struct Row {
    name: &'static str,
    pods: usize,
    effort: Option<u32>,
    plotted: bool,
    line: Line,
    /// The price of Karpenter's packing.
    reference: f64,
}

/// Measures, prints a table, draws the plot.
pub(crate) fn run(&Options { up_to, thorough }: &Options) -> Result<()> {
    let root = workspace::root();
    shell::run(shell::command(&root, "cargo", &["build", "--release", "-p", "whittle-solver", "--example", "scheduling"]))?;
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|c| c.pods <= up_to) {
        let reference = measure(&root, case, &["reference"])?.price;
        let efforts: &[Option<u32>] = if thorough && case.plotted { &[None, Some(10)] } else { &[None] };
        for &effort in efforts {
            let text = effort.unwrap_or_default().to_string();
            let more: &[&str] = if effort.is_some() { &["effort", &text] } else { &[] };
            let line = measure(&root, case, more)?;
            rows.push(Row { name: case.name, pods: case.pods, effort, plotted: case.plotted, line, reference });
        }
    }
    print(&rows);
    if up_to >= 100_000 {
        let file = root.join("docs/scheduling.svg");
        plot(&rows, &file).map_err(|error| anyhow!("{} cannot be drawn: {error}", file.display()))?;
        println!("\nwrote {}", file.display());
    }
    Ok(())
}

fn measure(root: &Path, case: &Case, more: &[&str]) -> Result<Line> {
    let mut command = Command::new(workspace::target(root)?.join("release/examples/scheduling"));
    command.arg(case.kind).arg(case.pods.to_string()).args(more);
    let output = shell::read(command)?;
    serde_json::from_str(&output).with_context(|| format!("the example printed something else: {output}"))
}

fn print(rows: &[Row]) {
    println!("\nCPU time of one thread, without parsing; prices in USD per hour.\n");
    println!("| case | pods | placed | time | pods/s | memory | nodes | price | Karpenter's packing | lower bound | gap |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        let line = &row.line;
        let bound = line.lower_bound.unwrap_or(0.0);
        let gap = if bound > 0.0 { format!("{:.0} %", (line.price / bound - 1.0) * 100.0) } else { "–".into() };
        let saved = if row.reference > 0.0 {
            format!("{:.1} ({:+.0} %)", row.reference, (line.price / row.reference - 1.0) * 100.0)
        } else {
            "–".into()
        };
        let name = row.effort.map_or_else(|| row.name.to_owned(), |effort| format!("{}, effort {effort}", row.name));
        println!(
            "| {name} | {} | {} | {:.3} s | {:.0} | {} MB | {} | {:.1} | {saved} | {bound:.1} | {gap} |",
            row.pods,
            line.scheduled,
            line.cpu_seconds,
            row.pods as f64 / line.cpu_seconds.max(1e-9),
            line.memory_mb,
            line.nodes,
            line.price,
        );
    }
}

/// Time over pods, both logarithmic, with the goals.
fn plot(rows: &[Row], file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let points: Vec<(f64, f64)> =
        rows.iter().filter(|r| r.plotted && r.effort.is_none()).map(|r| (r.pods as f64, r.line.cpu_seconds)).collect();
    // The time of Karpenter's code on an idle machine with the same processor and one and a half cores.
    let reference = [(500.0, 1.26), (2_000.0, 5.9), (5_000.0, 14.0), (10_000.0, 35.0), (20_000.0, 87.4)];
    let goals = [(20_000.0, 0.3), (100_000.0, 3.0)];
    let area = SVGBackend::new(file, (840, 520)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("Time to plan the reference's benchmark mix", ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((400.0..130_000.0f64).log_scale(), (0.005..120.0f64).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("pods")
        .y_desc("seconds")
        .x_label_formatter(&|n| format!("{n:.0}"))
        .y_label_formatter(&|n| format!("{n}"))
        .light_line_style(WHITE)
        .draw()?;
    let line = |color: RGBColor| move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2));
    chart.draw_series(LineSeries::new(points.iter().copied(), BLUE.stroke_width(2)))?.label("Whittle, one core").legend(line(BLUE));
    chart.draw_series(points.iter().map(|p| Circle::new(*p, 4, BLUE.filled())))?;
    chart.draw_series(LineSeries::new(reference, RED.stroke_width(2)))?.label("reference, 1.5 cores").legend(line(RED));
    chart.draw_series(reference.iter().map(|p| Circle::new(*p, 4, RED.filled())))?;
    chart
        .draw_series(goals.iter().map(|p| TriangleMarker::new(*p, 6, BLACK.filled())))?
        .label("goal")
        .legend(|(x, y)| TriangleMarker::new((x + 9, y), 5, BLACK.filled()));
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).position(SeriesLabelPosition::UpperLeft).draw()?;
    area.present()?;
    Ok(())
}
