//! Runs the built command on the seeds' files.
#![allow(clippy::unwrap_used, reason = "everything here is a test, its helpers too")]

mod bad_input;
mod compare;
mod console;
mod demo;
mod documented;
mod endings;
mod legacy_pools;
mod local_kubectl;
mod live;
mod money;
mod negative_files;
mod order;
mod page;
mod prompt;
mod prompt_ec2;
mod prompt_mistakes;
mod prompt_nodes;
mod same_objects;
mod scale_up_crash;
mod unused_objects;
mod walkthroughs;
mod workloads;

use std::path::PathBuf;
use std::process::{Command, Output};

/// The directory of the integration tests, which holds scenarios, seeds and golden files.
fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests")
}

fn seed(name: &str) -> String {
    tests().join("seeds").join(name).display().to_string()
}

/// Runs the built command; `input` goes to its standard input.
fn whittle(arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_whittle"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let written = child.stdin.take().unwrap().write_all(input.as_bytes());
    // A command that refuses its arguments ends without reading.
    assert!(written.is_ok() || written.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe));
    child.wait_with_output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_closed_output_pipe_ends_the_command_silently() {
    let scenario = tests().join("scenarios/faults/scale_up.yaml").display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_whittle"))
        .args(["sim", "storm", "--seeds", "1", "--story", &scenario])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(!ended.status.success() && ended.stderr.is_empty(), "{}", err(&ended));
}
