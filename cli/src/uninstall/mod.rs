//! `whittle uninstall`: uninstalls Whittle from a cluster. The sweep function does the work; this command only invokes it,
//! through the `aws` command, so that it needs no credentials of its own.

#[cfg(test)]
mod tests;

use crate::live::account::Account;
use crate::live::deployment::Stack;
use crate::programs::{Program, ProgramError};
use std::io::{self, Write};
use std::process::ExitCode;
use whittle_claims::{LeftNodes, UninstallRequest};
use whittle_units::ClusterName;

/// Arguments of `whittle uninstall`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle uninstall --cluster shop                              (a dry run)
  whittle uninstall --cluster shop --nodes hand-over --yes

Exit code: 0 if it was done or shown, 1 if the function failed or the output cannot be written, 2 if it could not be invoked.")]
pub struct Args {
    /// Name of the EKS cluster to uninstall from
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub cluster: String,
    /// Name of the deployment's stack
    #[arg(long, value_name = "STACK", default_value = "whittle", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub stack: String,
    /// Name of the sweep function, instead of the one that the stack's output SweepFunction names
    #[arg(long, value_name = "NAME", conflicts_with = "stack", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub function: Option<String>,
    /// What happens to the nodes
    #[arg(long, value_enum, default_value_t = Nodes::Drain)]
    pub nodes: Nodes,
    /// The same as `--nodes hand-over`, and not as `--nodes keep`: Karpenter, started again, finds its nodes and NodeClaims as it left them
    #[arg(long, conflicts_with = "nodes")]
    pub keep_nodes: bool,
    /// Execute; without it, only show what would be done
    #[arg(short, long)]
    pub yes: bool,
    /// Only show what would be done, as without --yes
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Print the command that would be run, without running it
    #[arg(long)]
    pub print: bool,
    /// Region of the deployment, if not the default one of the aws command
    #[arg(long, value_parser = crate::place::region)]
    pub region: Option<String>,
    /// Profile of the aws command
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub profile: Option<String>,
}

/// What happens to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Nodes {
    /// Drained and terminated
    Drain,
    /// Left running unmanaged, without NodeClaims (which is not --keep-nodes). Karpenter would terminate them as garbage
    Keep,
    /// Left running with their NodeClaims, for Karpenter to continue with
    HandOver,
}

/// What the function is asked.
fn request(args: &Args) -> String {
    let nodes = match args.nodes {
        _ if args.keep_nodes => LeftNodes::HandOver,
        Nodes::Drain => LeftNodes::Drain,
        Nodes::Keep => LeftNodes::Keep,
        Nodes::HandOver => LeftNodes::HandOver,
    };
    let request = UninstallRequest { cluster: ClusterName::new(&args.cluster), nodes, dry_run: !args.yes };
    serde_json::to_string(&std::collections::BTreeMap::from([("uninstall", request)])).expect("plain data is JSON")
}

/// The arguments of the `aws` command, which reads the request from its input: both its generations take it from there as it is. It waits
/// for as long as the function works; otherwise it would ask once more after a minute.
fn invocation(function: &str) -> [&str; 9] {
    ["lambda", "invoke", "--function-name", function, "--cli-read-timeout", "0", "--payload", "fileb:///dev/stdin", "/dev/stdout"]
}

/// The command line with what it reads, for a shell.
fn shown(aws: &Program, function: &str, request: &str) -> String {
    format!("echo '{}' | {}", request.replace('\'', r"'\''"), aws.shown(&invocation(function)))
}

/// The function's name: the given one, or that of the stack.
fn function(args: &Args, aws: &Program) -> Result<String, String> {
    if let Some(name) = &args.function {
        return Ok(name.clone());
    }
    let stack = Stack::read(&Account(aws), &args.stack)?;
    // The function would refuse it as well. One without the parameter is of something else.
    let served = stack.clusters();
    if !served.is_empty() && !served.contains(&args.cluster) {
        return Err(format!(
            "stack {} does not serve cluster {}, but {}: name one of these by --cluster, or another stack by --stack; to empty a cluster \
             that was taken out of its parameter Clusters, deploy with it again first",
            args.stack,
            args.cluster,
            served.join(", ")
        ));
    }
    let name = stack.output("SweepFunction");
    if name.is_empty() {
        return Err(stack.lacks(&args.stack, "SweepFunction"));
    }
    Ok(name.to_owned())
}

/// Runs the command, or prints it. Exit code 0 when the function answered, 1 when it failed, 2 when it could not be invoked.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &Args, aws: &Program, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let function = match function(args, aws) {
        Ok(name) => name,
        Err(problem) => {
            writeln!(err, "error: {problem}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let request = request(args);
    if args.print {
        writeln!(out, "{}", shown(aws, &function, &request))?;
        return Ok(ExitCode::SUCCESS);
    }
    match aws.clone().unlimited().feed(&invocation(&function), &request) {
        Ok(answer) => answered(args, &answer, out, err),
        Err(error @ ProgramError::Missing { .. }) => {
            writeln!(err, "error: {error}, or run this where it is:\n{}", shown(aws, &function, &request))?;
            Ok(ExitCode::from(2))
        }
        Err(error) => {
            writeln!(err, "error: the function could not be invoked: {error}")?;
            Ok(ExitCode::from(2))
        }
    }
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
