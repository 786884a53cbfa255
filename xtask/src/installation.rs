//! `cargo xtask installation`: `whittle cluster` and `whittle doctor` with AWS's own command line, an emulated account, and a real API
//! server: installed, broken in ten ways, repaired and removed.

use crate::{environment, shell, workspace};
use anyhow::Result;

/// Runs it; what does not hold is printed and an error.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    let (python, control_plane) = environment::installation(&root)?;
    shell::run(shell::command(&root, "cargo", &["build", "--locked", "-p", "whittle-cli"]))?;
    let whittle = workspace::target(&root)?.join("debug/whittle");
    let arguments = ["tests/install/run.py", &whittle.to_string_lossy(), &control_plane.to_string_lossy()];
    shell::run(shell::command(&root, &python.join("bin/python").to_string_lossy(), &arguments))
}
