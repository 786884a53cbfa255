//! `whittle savings`: the effect of consolidation and drift on the bill, from the ledger.
//!
//! Every executed command leaves one record among the decisions, under the subject `ledger`. This command sums such
//! records: of a deployment, whose table it reads with `aws`, or of files, which need no access to an account: exports of the
//! table, and what a simulation prints as JSON. In shadow mode nothing is executed: commands are recorded under the subject
//! `shadow` and summed separately.

mod read;
mod report;
mod shadow;
#[cfg(test)]
mod tests;

use crate::live::deployment::{Asked, DeploymentError, StackArgs};
use crate::local::Output;
use crate::money::{Currency, counted};
use crate::printing::{self, say};
use crate::report::Kind;
use crate::schema::Document;
use crate::source::files;
use crate::wait_notice::WaitNotice;
use clap::Args;
use jiff::Timestamp;
use read::Ledger;
use shadow::Shadow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use whittle_api::GoDuration;
use whittle_claims::DecisionRecord;
use whittle_consolidate::SHADOW;
use whittle_disruption::{LedgerEntry, SavingsReport, savings, within};

/// Show what disruptions have saved: dollars per hour before and after, by reason and NodePool, and the pods that were moved
///
/// Whittle records every command that it executes in a ledger, a part of its DynamoDB table, which keeps it for thirty days. This
/// command sums the ledger of a deployment, or exports of it, which need no access to the account. In shadow mode nothing is
/// executed, and the sum is of potential savings.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --stack the table of a deployment is read with aws and your own rights, which must allow dynamodb:Query; nothing is changed.
Files are JSON, one entry or many, in arrays or line by line: exports of the table, or what `whittle local run -o json` prints.

Examples:
  whittle savings --stack whittle --since 7d
  whittle savings --stack whittle --report savings.html
  whittle savings --stack whittle --region eu-west-1 --cluster prod -o json
  aws dynamodb scan --table-name TABLE --filter-expression 'subject = :s' \\
    --expression-attribute-values '{\":s\": {\"S\": \"ledger\"}}' > ledger.json  (shadow mode: \"shadow\")
  whittle savings ledger.json --since 24h

Exit code: 0 if everything was read, 1 if some records could not be read and are left out, or the report or the output
cannot be written, 2 if nothing could be read, or --report names no format.")]
pub struct SavingsArgs {
    /// Exports of the ledger, or - for standard input, which is read if there is neither a file nor --stack
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub stack: StackArgs,
    /// Region of the deployment, if not the default one of the aws command
    #[arg(long, requires = "stack", value_parser = crate::place::region)]
    pub region: Option<String>,
    /// Only of this cluster of the deployment; of all unless given
    #[arg(long, value_name = "NAME", requires = "stack", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub cluster: Option<String>,
    /// Only commands within this time before --until, such as 24h or 7d; all unless given
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub since: Option<GoDuration>,
    /// The time up to which savings are counted, such as 2026-01-01T00:00:00Z; now unless given, and for what
    /// `whittle local run` printed the end of the simulation
    #[arg(long, value_name = "TIME", value_parser = crate::source::time)]
    pub until: Option<Timestamp>,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Write a report as well: what was saved over time, and every command. Markdown if the name ends in .md, one page for a browser
    /// if it ends in .html
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// What nobody can know, and the sum up to a time depends on.
const ASSUMPTION: &str = "without these commands every removed node would still run: what has scaled down since would have gone anyway, \
                          and saves less";

/// A duration of the command line: days too, which the fields of manifests do not have.
fn duration(text: &str) -> Result<GoDuration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let read = match days {
        Some(days) => format!("{}h", u64::from(days) * 24).parse::<GoDuration>(),
        None => text.parse(),
    };
    read.ok().filter(|read| !read.span().is_negative()).ok_or_else(|| "write numbers with units, as in 90m, 24h or 7d".to_owned())
}

/// The output, the errors and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    pub text: String,
    pub faults: Vec<String>,
    pub status: u8,
}

/// Runs `whittle savings`.
pub fn run(args: &SavingsArgs) -> ExitCode {
    let summary = summarize(args, args.until.unwrap_or_else(Timestamp::now), &mut std::io::stdin());
    for fault in &summary.faults {
        printing::errors(&fault);
    }
    say!("{}", summary.text);
    ExitCode::from(summary.status)
}

/// The command with its clock and standard input as arguments.
pub fn summarize(args: &SavingsArgs, until: Timestamp, stdin: &mut dyn Read) -> Summary {
    // Before a deployment or standard input is read, which takes its time.
    if let Some(fault) = args.report.as_deref().and_then(|path| Kind::of_file(path).err()) {
        return Summary { text: String::new(), faults: vec![fault], status: 2 };
    }
    let mut ledger = Ledger::default();
    if let Err(error) = read_deployment(args, until, &mut ledger) {
        ledger.fail(error.to_string());
    }
    read_files(args, stdin, &mut ledger);
    let until = if args.until.is_some() { until } else { ledger.ended().unwrap_or(until) };
    let nothing = ledger.entries.is_empty() && ledger.shadow_records.is_empty() && !ledger.faults.is_empty();
    let currency = match ledger.currency() {
        Ok(currency) if !nothing => currency,
        Ok(_) => return Summary { text: String::new(), faults: ledger.faults, status: 2 },
        Err(several) => {
            ledger.fail(several);
            return Summary { text: String::new(), faults: ledger.faults, status: 2 };
        }
    };
    let from = begin(args, until);
    let report = if args.until.is_some() { savings(&ledger.entries, from, until) } else { ledger.sums(from, until) };
    let shadow_records = shadow::sum(&ledger.shadow_records, from, until);
    let mut unwritten = None;
    if let Some(path) = &args.report {
        let entries = within(&ledger.entries, from, until).collect();
        let shadow = shadow_records.text();
        let written = report::write(path, &report::Ledger { all: ledger.entries.len(), report: &report, entries, shadow, until, currency });
        unwritten = written.err();
    }
    ledger.faults.extend(unwritten);
    let status = u8::from(!ledger.faults.is_empty());
    let text = match args.output {
        Output::Json => json(&report, &shadow_records, until, currency),
        Output::Text => currency.shown(text(&report, until, ledger.entries.len()) + &shadow_records.text()),
    };
    Summary { text, faults: ledger.faults, status }
}

/// The error of an input that says nothing: whatever should have printed it has failed.
fn empty(name: &str) -> String {
    format!("{name} is empty: name an export of the table, or what `whittle local run -o json` printed")
}

/// The first moment of what is summed up to a time.
fn begin(args: &SavingsArgs, until: Timestamp) -> Timestamp {
    args.since.as_ref().map_or(Timestamp::MIN, |since| until.checked_sub(since.span()).unwrap_or(Timestamp::MIN))
}

/// Adds the ledgers of files, or that of standard input if nothing is named.
fn read_files(args: &SavingsArgs, stdin: &mut dyn Read, ledger: &mut Ledger) {
    let standard_input = [PathBuf::from("-")];
    let nothing_named = args.files.is_empty() && args.stack.stack.is_none();
    let mut is_read = false;
    for path in if nothing_named { standard_input.as_slice() } else { &args.files } {
        let name = files::shown(path);
        if name == "-" && std::mem::replace(&mut is_read, true) {
            ledger.fail("standard input is named more than once, and can be read only once: leave the others out".to_owned());
            continue;
        }
        if name == "-" {
            let _notice = WaitNotice::with("reading standard input".to_owned());
            if ledger.read("standard input", &mut *stdin) {
                ledger.fail(empty("standard input"));
            }
            continue;
        }
        if path.is_dir() {
            ledger.fail(format!("{name} is a directory: name the files in it"));
            continue;
        }
        match std::fs::File::open(path) {
            Ok(file) => {
                if ledger.read(&name, std::io::BufReader::new(file)) {
                    ledger.fail(empty(&name));
                }
            }
            Err(error) => ledger.fail(files::unreadable(path, error).to_string()),
        }
    }
}

/// Adds the ledger of the deployment that is named, if one is.
fn read_deployment(args: &SavingsArgs, until: Timestamp, ledger: &mut Ledger) -> Result<(), SavingsError> {
    let Some(deployment) = args.stack.deployment(args.region.as_deref())? else { return Ok(()) };
    let mut clusters = deployment.stack.clusters();
    if let Some(name) = &args.cluster {
        if !clusters.contains(name) {
            return Err(SavingsError::OtherCluster {
                name: name.clone(),
                stack: deployment.stack.name.clone(),
                clusters: clusters.join(", "),
            });
        }
        clusters = vec![name.clone()];
    }
    let asked = Asked::Of { subjects: &[LedgerEntry::KEY, SHADOW], from: begin(args, until) };
    let (decisions, unreadable) = deployment.decisions(&clusters, asked)?;
    ledger.add_decisions(&format!("stack {}", deployment.stack.name), decisions);
    if unreadable > 0 {
        ledger.fail(format!(
            "{} of stack {} cannot be read: use the version that is deployed",
            counted(unreadable, "record"),
            deployment.stack.name
        ));
    }
    Ok(())
}

/// Why the ledger of a deployment cannot be read.
#[derive(Debug, thiserror::Error)]
enum SavingsError {
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    #[error("--cluster {name:?} is none of stack {stack}, whose clusters are: {clusters}")]
    OtherCluster { name: String, stack: String, clusters: String },
}

/// The ledger's entries among decisions.
pub fn ledger_of(decisions: &[DecisionRecord]) -> Vec<LedgerEntry> {
    let entries = decisions.iter().filter_map(|decision| decision.detail.get(LedgerEntry::KEY));
    entries.filter_map(|entry| serde_json::from_value(entry.clone()).ok()).collect()
}

/// The sums over a simulation's decisions until now, as text.
pub fn of_decisions(decisions: &[DecisionRecord], until: Timestamp) -> String {
    let shadow_records: Vec<shadow::ShadowRecord> = decisions.iter().filter_map(shadow::ShadowRecord::of).collect();
    let done = text(&savings(&ledger_of(decisions), Timestamp::MIN, until), until, 0);
    done + &shadow::sum(&shadow_records, Timestamp::MIN, until).text()
}

/// Billionths of a dollar as dollars.
#[expect(clippy::cast_precision_loss, reason = "output; sums are made of integers")]
fn dollars(nanos: i128) -> f64 {
    nanos as f64 / 1e9
}

/// An amount of money, with so many decimals.
fn amount(nanos: i128, decimals: usize) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    format!("{sign}${:.decimals$}", dollars(nanos.abs()))
}

/// For programs: dollars per hour, and dollars.
fn json(report: &SavingsReport, shadow_records: &Shadow, until: Timestamp, currency: Currency) -> String {
    let shares = |by: &BTreeMap<String, i128>| by.iter().map(|(name, rate)| (name.clone(), dollars(*rate))).collect::<BTreeMap<_, _>>();
    let mut value = serde_json::json!({
        "currency": currency.code(),
        "until": until,
        "assumption": ASSUMPTION,
        "commands": report.commands,
        "nodesRemoved": report.nodes_removed,
        "podsMoved": report.pods_moved,
        "dollarsPerHour": {
            "before": dollars(report.before_nanos), "after": dollars(report.after_nanos), "saved": dollars(report.rate_nanos()),
        },
        "dollarsSaved": dollars(report.total_nanos),
        "byReason": shares(&report.by_reason),
        "byNodePool": shares(&report.by_pool),
    });
    if shadow_records.known {
        value["shadow"] = shadow_records.json();
    }
    format!("{:#}\n", Document::Savings.versioned(value))
}

/// For people.
fn text(report: &SavingsReport, until: Timestamp, other_times: usize) -> String {
    if report.commands == 0 {
        return match other_times {
            0 => "No disruption command was executed: nothing was saved.\n".to_owned(),
            1 => "No disruption command was executed in this time: one was at another.\n".to_owned(),
            others => format!("No disruption command was executed in this time: {others} were at others.\n"),
        };
    }
    let mut out = format!(
        "{} removed {} and moved {}.\n{} an hour became {}: {} an hour saved, {} until {}.\n\
         That assumes that {ASSUMPTION}.\n",
        counted(report.commands, "command"),
        counted(report.nodes_removed, "node"),
        counted(usize::try_from(report.pods_moved).unwrap_or(usize::MAX), "pod"),
        amount(report.before_nanos, 4),
        amount(report.after_nanos, 4),
        amount(report.rate_nanos(), 4),
        amount(report.total_nanos, 2),
        until.strftime("%Y-%m-%d %H:%M UTC"),
    );
    for (what, by) in [("reason", &report.by_reason), ("NodePool", &report.by_pool)] {
        for (name, rate) in by {
            let _ = writeln!(out, "  {what} {name}: {} an hour", amount(*rate, 4));
        }
    }
    out
}
