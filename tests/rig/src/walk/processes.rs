//! The processes of functions, which are the emulator's children.

use anyhow::{Context, Result};
use std::process::Command;

/// Ends all processes of a function at once, as a lost host would. How many there were.
pub(crate) fn kill(group: u32, function: &str) -> Result<usize> {
    signal(group, function, "KILL")
}

/// Sends a signal to all processes of a function: those in the emulator's group whose function has this in its name. How many there were.
pub(crate) fn signal(group: u32, function: &str, signal: &str) -> Result<usize> {
    let mut reached = 0;
    for entry in std::fs::read_dir("/proc").context("/proc cannot be read")?.flatten() {
        let Ok(process) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        if process != group && is_of(process, group, function) {
            let status = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status()?;
            reached += usize::from(status.success());
        }
    }
    Ok(reached)
}

/// Whether a process belongs to a group, and runs a function.
fn is_of(process: u32, group: u32, function: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may contain anything: state, parent, group.
    let of_group = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(2)?.parse().ok()) == Some(group);
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let name = environment.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(b"AWS_LAMBDA_FUNCTION_NAME="));
    of_group && name.is_some_and(|name| String::from_utf8_lossy(name).contains(function))
}
