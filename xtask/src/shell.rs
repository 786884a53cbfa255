//! Child processes, with their command line printed and in errors.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program with its arguments, to be run in `directory`.
pub(crate) fn command(directory: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).args(arguments).stdin(Stdio::null());
    command
}

/// The command line for display.
fn typed(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Runs a command with its output on the terminal.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let text = typed(&command);
    println!("$ {text}");
    let status = command.status().with_context(|| format!("`{text}` could not be started"))?;
    if !status.success() {
        bail!("`{text}` failed: {status}");
    }
    Ok(())
}

/// Runs a command and returns its stdout; its stderr is part of the error.
pub(crate) fn read(mut command: Command) -> Result<String> {
    let text = typed(&command);
    let output = command.output().with_context(|| format!("`{text}` could not be started"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{text}` failed: {}\n{}", output.status, stderr.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{text}` printed bytes that are not UTF-8"))
}
