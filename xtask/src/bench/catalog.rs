//! P18: what each cold start pays for the region's catalog.

use crate::{shell, workspace};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The limit of SPECIFICATION.md.
const READ_MILLISECONDS_MAX: f64 = 20.0;
/// The largest item of the table.
const BYTES_MAX: u64 = 400 << 10;

pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    let arguments = ["run", "--release", "--locked", "--quiet", "-p", "whittle-ec2", "--features", "offline", "--example", "catalog"];
    let printed = shell::read(shell::command(&root, "cargo", &arguments))?;
    print!("{printed}");
    let measured: Value = serde_json::from_str(&printed).context("the example's output is no JSON")?;
    let read = measured["read_milliseconds"].as_f64().context("no time")?;
    let bytes = measured["bytes"].as_u64().context("no size")?;
    ensure!(read <= READ_MILLISECONDS_MAX, "reading takes {read} ms, and {READ_MILLISECONDS_MAX} ms are promised");
    ensure!(bytes <= BYTES_MAX, "{bytes} bytes do not fit into one item of the table");
    Ok(())
}
