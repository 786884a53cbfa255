//! `whittle uninstall`: uninstalls Whittle from a cluster. The sweep function does the work; this command only invokes it,
//! through the `aws` command, so that it needs no credentials of its own.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use whittle_claims::{LeftNodes, UninstallRequest};
use whittle_units::ClusterName;

/// Arguments of `whittle uninstall`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle uninstall --cluster shop --function whittle-sweep                              (a dry run)
  whittle uninstall --cluster shop --function whittle-sweep --nodes hand-over --yes

Exit code: 0 if it was done or shown, 1 if the function failed, 2 if it could not be invoked.")]
pub struct Args {
    /// Name of the EKS cluster to uninstall from
    #[arg(long)]
    pub cluster: String,
    /// Name of the sweep function: the stack's output SweepFunction
    #[arg(long, value_name = "NAME")]
    pub function: String,
    /// What happens to the nodes
    #[arg(long, value_enum, default_value_t = Nodes::Drain)]
    pub nodes: Nodes,
    /// Execute; without it, only show what would be done
    #[arg(long)]
    pub yes: bool,
    /// Print the command that would be run, without running it
    #[arg(long)]
    pub print: bool,
    /// Region of the function, if not the default one of the aws command
    #[arg(long)]
    pub region: Option<String>,
}

/// What happens to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Nodes {
    /// Drained and terminated
    Drain,
    /// Left running unmanaged, without NodeClaims. Karpenter would terminate them as garbage
    Keep,
    /// Left running with their NodeClaims, for Karpenter to continue with
    HandOver,
}

/// The arguments of the `aws` command.
fn invocation(args: &Args) -> Vec<String> {
    let nodes = match args.nodes {
        Nodes::Drain => LeftNodes::Drain,
        Nodes::Keep => LeftNodes::Keep,
        Nodes::HandOver => LeftNodes::HandOver,
    };
    let request = UninstallRequest { cluster: ClusterName::new(&args.cluster), nodes, dry_run: !args.yes };
    let payload = serde_json::to_string(&std::collections::BTreeMap::from([("uninstall", request)])).expect("plain data is JSON");
    let mut all =
        ["lambda", "invoke", "--function-name", &args.function, "--cli-binary-format", "raw-in-base64-out"].map(str::to_owned).to_vec();
    all.extend(["--payload".to_owned(), payload]);
    all.extend(args.region.iter().flat_map(|region| ["--region".to_owned(), region.clone()]));
    all.push("/dev/stdout".to_owned());
    all
}

/// A shell-quoted word.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=".contains(letter);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn shown(arguments: &[String]) -> String {
    std::iter::once("aws".to_owned()).chain(arguments.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
}

/// Runs the command, or prints it. Exit code 0 when the function answered, 1 when it failed, 2 when it could not be invoked.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &Args, aws: &OsString, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let arguments = invocation(args);
    if args.print {
        writeln!(out, "{}", shown(&arguments))?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = match Command::new(aws).args(&arguments).output() {
        Ok(answer) => answer,
        Err(error) => {
            writeln!(err, "error: the aws command cannot be run ({error}): install it, or run this where it is:\n{}", shown(&arguments))?;
            return Ok(ExitCode::from(2));
        }
    };
    if !answer.status.success() {
        writeln!(err, "error: the function could not be invoked: {}", String::from_utf8_lossy(&answer.stderr).trim())?;
        return Ok(ExitCode::from(2));
    }
    answered(args, &answer.stdout, out, err)
}

/// Prints the answer of the function.
fn answered(args: &Args, stdout: &[u8], out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    // A successful run, or a dry run, always reports what is left.
    let Some(lines) = parse_answer(stdout).filter(|lines| !lines.is_empty()) else {
        let output = String::from_utf8_lossy(stdout);
        writeln!(err, "error: the function failed, and nothing may have been begun: run this again. It said: {}", output.trim())?;
        return Ok(ExitCode::from(1));
    };
    for line in &lines {
        writeln!(out, "{line}")?;
    }
    if args.yes {
        writeln!(out, "Whittle goes on with it every minute; run this again to see what is left.")?;
    } else {
        writeln!(out, "Nothing was changed. Add --yes to do it.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of the answer: it is the first JSON value, followed by the metadata of the `aws` command.
fn parse_answer(stdout: &[u8]) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Answer {
        told: Vec<String>,
    }
    let first = serde_json::Deserializer::from_slice(stdout).into_iter::<serde_json::Value>().next()?.ok()?;
    serde_json::from_value::<Answer>(first).ok().map(|answer| answer.told)
}
