//! A month's bill, from what the hours of a cluster use.

use super::metered::PLATFORM_LINES;
use super::prices::{self, free};
use super::stretch::{Hourly, Simulated, real};
use super::{Size, durations};
use crate::money::HOURS_A_MONTH;
use whittle_claims::DecisionRecord;
use whittle_sim::Function;

const HOURS_A_DAY: f64 = 24.0;
/// Hours of a day that are busy; the others are quiet.
pub(super) const BUSY_HOURS: f64 = 8.0;
/// Requests a minute of Lambda to a queue in which nothing is: five pollers that wait for twenty seconds each, as AWS documents.
const POLLS: f64 = 15.0;
/// Standard queues that Lambda does not poll where there is one cluster: that of `sweep`, whose tick is the run (ADR 0071).
pub(super) const UNREAD_BY_ONE: f64 = 1.0;
/// Queues of the template, standard and FIFO.
pub(super) const QUEUES: (f64, f64) = (5.0, 2.0);
/// Functions that a schedule invokes once a day although they have nothing to do, so that Lambda keeps them ready (ADR 0070).
pub(super) const WOKEN: [Function; 5] =
    [Function::Launch, Function::Register, Function::Consolidate, Function::Interrupt, Function::Terminate];
/// Metrics that the template's alarms watch: by default, and with all alarms. A query counts as one, although it finds none as long as
/// nothing is wrong.
pub(super) const WATCHED: (f64, f64) = (6.0, 54.0);
/// Days for which logs are kept by default.
const LOGS_KEPT_MONTHS: f64 = 1.0;
const GB: f64 = 1e9;
/// How often spot prices are read, by default. Some differ each time, so that the catalog is written again.
pub(super) const SPOT_PRICE_MINUTES: u32 = 30;
/// Units for each of these writes: spot prices are 35 kB; the new ones are written, and the old ones deleted.
pub(super) const CATALOG_WRITE_UNITS: f64 = 2.0 * 35.0;

/// The processors of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Arm,
    X86,
}

/// A line of a bill.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) quantity: f64,
    pub(super) unit: &'static str,
    /// Dollars a month at list price.
    pub(super) list: f64,
    /// Dollars a month of an account that uses the always-free tier for nothing else.
    pub(super) rest: f64,
}

fn line(name: &'static str, quantity: f64, unit: &'static str, price: f64, free: f64) -> Line {
    Line { name, quantity, unit, list: quantity * price, rest: (quantity - free).max(0.0) * price }
}

/// A month of the whole deployment: what an hour uses, on average.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    gb_seconds: f64,
    invocations: f64,
    standard: f64,
    fifo: f64,
    scheduled: f64,
    reads: f64,
    writes: f64,
    decision_writes: f64,
    log_bytes: f64,
    series: f64,
}

/// The lines of a month, in the order in which they are printed.
pub(super) fn month(simulated: &Simulated, size: &Size, architecture: Architecture) -> Vec<Line> {
    let (quiet, busy) = (used(&simulated.quiet, size), used(&simulated.busy, size));
    let share = BUSY_HOURS / HOURS_A_DAY;
    let of = |part: fn(&Use) -> f64| (part(&quiet) * (1.0 - share) + part(&busy) * share) * HOURS_A_MONTH;
    let average = |part: fn(&Use) -> f64| of(part) / HOURS_A_MONTH;
    let gb_second = if architecture == Architecture::Arm { prices::GB_SECOND_ARM } else { prices::GB_SECOND_X86 };
    let polls = |queues: f64| POLLS * 60.0 * HOURS_A_MONTH * queues;
    let standard = if size.clusters == 1 { QUEUES.0 - UNREAD_BY_ONE } else { QUEUES.0 };
    let requests = [polls(standard), polls(QUEUES.1), of(|used| used.standard), of(|used| used.fifo)];
    // The tier is used up by all requests alike.
    let free_share = (free::SQS / requests.iter().sum::<f64>().max(1.0)).min(1.0);
    let queue = |name, quantity: f64, price| line(name, quantity, "requests", price, quantity * free_share);
    // Only messages of several clusters name theirs (ADR 0067).
    let message = if size.clusters > 1 { prices::SQS_STANDARD + prices::SQS_FAIR } else { prices::SQS_STANDARD };
    let clusters = f64::from(size.clusters);
    let stored = (real(simulated.table_bytes) * clusters
        + average(|used| used.decision_writes) * DecisionRecord::RETENTION.as_secs_f64() / 3_600.0 * 1_024.0)
        / GB;
    let log_gb = of(|used| used.log_bytes) / GB;
    let watched = if size.all_alarms { WATCHED.1 } else { WATCHED.0 };
    vec![
        line("Lambda, compute", of(|used| used.gb_seconds), "GB-seconds", gb_second, free::GB_SECONDS),
        line("Lambda, invocations", of(|used| used.invocations), "invocations", prices::INVOCATION, free::INVOCATIONS),
        queue("SQS, polls of empty standard queues", requests[0], prices::SQS_STANDARD),
        queue("SQS, polls of empty FIFO queues", requests[1], prices::SQS_FIFO),
        queue("SQS, messages of standard queues", requests[2], message),
        queue("SQS, messages of FIFO queues", requests[3], prices::SQS_FIFO),
        line("Scheduler", of(|used| used.scheduled), "invocations", prices::SCHEDULED, free::SCHEDULED),
        line("DynamoDB, reads", of(|used| used.reads), "units", prices::READ_UNIT, 0.0),
        line("DynamoDB, writes", of(|used| used.writes), "units", prices::WRITE_UNIT, 0.0),
        line("DynamoDB, storage", stored, "GB", prices::TABLE_GB, free::TABLE_GB),
        line("DynamoDB, recovery", stored, "GB", prices::RECOVERY_GB, 0.0),
        line("CloudWatch, logs taken in", log_gb, "GB", prices::LOG_GB, free::LOG_GB),
        line("CloudWatch, logs kept", log_gb * LOGS_KEPT_MONTHS, "GB", prices::LOG_KEPT_GB, free::LOG_GB),
        line("CloudWatch, custom metrics", average(|used| used.series), "metrics", prices::METRIC, free::METRICS),
        line("CloudWatch, alarms", watched, "metrics", prices::ALARM, free::ALARMS),
    ]
}

/// What an hour of a stretch uses, for all clusters of the deployment.
fn used(hourly: &Hourly, size: &Size) -> Use {
    let clusters = f64::from(size.clusters);
    let mut out = Use::default();
    for (function, rates) in &hourly.functions {
        let runs_ms = rates.runs * durations::stretched(*function, durations::processor_ms(*function, size.nodes));
        let seconds = (rates.waited_seconds + runs_ms / 1e3) * clusters + rates.ticks * tick_seconds(*function);
        out.gb_seconds += seconds * memory_gb(*function);
        // A tick is one invocation for all clusters.
        let invocations = (rates.invocations - rates.ticks) * clusters + rates.ticks;
        out.invocations += invocations;
        out.scheduled += rates.ticks;
        // Sent, received and deleted.
        let requests = (rates.messages + 2.0 * rates.batches) * clusters;
        *(if function.has_fifo_queue() { &mut out.fifo } else { &mut out.standard }) += requests;
        out.log_bytes += rates.log_bytes * clusters + invocations * real(PLATFORM_LINES);
    }
    for ((function, kind), (reads, writes)) in &hourly.table {
        // The catalog is read from EC2 once for all clusters.
        let times = if *kind == "catalog" && *function == Function::Refresh { 1.0 } else { clusters };
        out.reads += reads * times;
        out.writes += writes * times;
        if *kind == "decision" {
            out.decision_writes += writes * times;
        }
    }
    // No schedule of the simulation wakes a function. Each serves all clusters.
    for function in WOKEN {
        let times = 1.0 / HOURS_A_DAY;
        out.gb_seconds += tick_seconds(function) * memory_gb(function) * times;
        out.invocations += times;
        out.scheduled += times;
        out.log_bytes += real(PLATFORM_LINES) * times;
    }
    // Prices of the simulated region never change.
    out.writes += 60.0 / f64::from(SPOT_PRICE_MINUTES) * CATALOG_WRITE_UNITS;
    out.series = hourly.series * clusters;
    out
}

/// How long the invocation of a schedule lasts that does no work itself.
fn tick_seconds(function: Function) -> f64 {
    durations::stretched(function, durations::TICK_MS) / 1e3
}

fn memory_gb(function: Function) -> f64 {
    f64::from(durations::memory(function)) / 1_024.0
}

/// The sum of a bill.
pub(super) fn sum(lines: &[Line], of: fn(&Line) -> f64) -> f64 {
    lines.iter().map(of).sum()
}
