//! `whittle doctor`: looks at an installation, from the account to the pods, and says what is wrong and what fixes it. It changes nothing.

mod facts;
mod judge;

use crate::live::TargetArgs;
use crate::live::account::Account;
use crate::live::kubernetes::Kubernetes;
use crate::local::Output;
use crate::schema::Document;
use facts::{Sources, gather};
use judge::{Finding, Status, findings};
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;

/// Arguments of `whittle doctor`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle doctor shop
  whittle doctor shop --context shop-admin -o json

It only reads, by the commands aws and kubectl, with your rights.

Exit code: 0 if nothing is wrong (there may be warnings), 1 if there is a problem or the output cannot be written, 2 if there is none and
something could not be looked at.")]
pub struct Args {
    #[command(flatten)]
    pub of: TargetArgs,
    /// Print what is not as it should be only
    #[arg(short, long)]
    pub quiet: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Looks, and prints what it finds to `out`.
///
/// # Errors
/// Only when `out` cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> io::Result<ExitCode> {
    let TargetArgs { name, deployment, reach, .. } = &args.of;
    let (aws, kubectl) = (deployment.program(), reach.program());
    let facts = gather(Sources {
        account: Account(&aws),
        kubernetes: Kubernetes(&kubectl),
        trust_context: reach.trust_context,
        stack: &deployment.stack,
        cluster: name,
        node_role: &args.of.node_role(),
        add: &args.of.add_line(),
    });
    let found = findings(&facts);
    print(args, &found, out)?;
    Ok(code(&found))
}

fn count(found: &[Finding], status: Status) -> usize {
    found.iter().filter(|finding| finding.status == status).count()
}

fn code(found: &[Finding]) -> ExitCode {
    match (count(found, Status::Problem), count(found, Status::Unknown)) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(2),
        _ => ExitCode::from(1),
    }
}

fn print(args: &Args, found: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let shown: Vec<&Finding> = found.iter().filter(|finding| !args.quiet || finding.status != Status::Ok).collect();
    let [ok, warnings, problems, unknown] =
        [Status::Ok, Status::Warning, Status::Problem, Status::Unknown].map(|status| count(found, status));
    if args.output == Output::Json {
        let summary = json!({"ok": ok, "warnings": warnings, "problems": problems, "unknown": unknown});
        let document = Document::Doctor.versioned(json!({"cluster": args.of.name, "findings": shown, "summary": summary}));
        return writeln!(out, "{:#}", document);
    }
    let width = shown.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
    for finding in shown {
        let word = match finding.status {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Problem => "problem",
            Status::Unknown => "unknown",
        };
        writeln!(out, "{word:<8} {:<width$}  {}", finding.check, finding.what.replace('\n', "\n           "))?;
        if !finding.remedy.is_empty() {
            writeln!(out, "{:<8} {:<width$}  remedy: {}", "", "", finding.remedy)?;
        }
    }
    writeln!(out, "{ok} ok, {warnings} to note, {problems} wrong, {unknown} unknown")
}
