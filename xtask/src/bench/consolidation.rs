//! The time and memory of a consolidation pass with a verdict for every node, on one core.

use crate::shell;
use crate::workspace;
use anyhow::{Context, ensure};

/// A cluster size, and the limits of a pass over it.
struct Size {
    nodes: u64,
    pods: u64,
    seconds: f64,
    megabytes: Option<u64>,
}

const SIZES: [Size; 3] = [
    Size { nodes: 1_000, pods: 30_000, seconds: 5.0, megabytes: Some(512) },
    Size { nodes: 5_000, pods: 100_000, seconds: 60.0, megabytes: None },
    Size { nodes: 20_000, pods: 400_000, seconds: 25.0, megabytes: Some(2_000) },
];

pub(crate) fn run() -> anyhow::Result<()> {
    let root = workspace::root();
    for size in SIZES {
        let (nodes, pods) = (size.nodes.to_string(), size.pods.to_string());
        let arguments = ["bench", "--quiet", "-p", "whittle-disruption", "--bench", "consolidation", "--", &nodes, &pods];
        let printed = shell::read(shell::command(&root, "cargo", &arguments))?;
        let line = printed.lines().find(|line| line.starts_with('{')).context("the benchmark printed no result")?;
        println!("{line}");
        let result: serde_json::Value = serde_json::from_str(line).context("the benchmark's result is not JSON")?;
        let seconds = result["decisionSeconds"].as_f64().unwrap_or(f64::MAX);
        ensure!(seconds <= size.seconds, "{nodes} nodes took {seconds} s of one core, more than {} s", size.seconds);
        let megabytes = result["peakMegabytes"].as_u64().unwrap_or(u64::MAX);
        ensure!(size.megabytes.is_none_or(|most| megabytes <= most), "{nodes} nodes took {megabytes} MB");
        ensure!(result["freshVerdicts"].as_u64() == Some(size.nodes), "not every one of {nodes} nodes has a verdict of this pass");
    }
    Ok(())
}
