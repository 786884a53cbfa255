//! The functions with what they print: the bytes of their logs, and the metrics that CloudWatch makes of them.

use crate::local::wiring::{self, Cloud, Handlers};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use whittle_ports::metrics::Level;
use whittle_ports::telemetry::{self, Telemetry};
use whittle_ports::{Clock, HandleError, Report};
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts};
use whittle_sweep::Looks;

/// Bytes of the lines START, END and REPORT that Lambda adds to each invocation.
pub(super) const PLATFORM_LINES: u64 = 262;

/// What was printed.
#[derive(Clone, Debug, Default)]
pub(super) struct Printed {
    /// Bytes, without Lambda's own lines.
    pub(super) bytes: BTreeMap<Function, u64>,
    /// Metrics with their dimensions.
    pub(super) series: BTreeSet<String>,
}

/// Functions that remember what they print.
pub(super) struct Metered {
    handlers: Arc<Handlers>,
    printed: Arc<Mutex<Printed>>,
    /// Ticks that follow each other meet in one environment.
    looks: Arc<Looks>,
}

impl Metered {
    pub(super) fn new(handlers: Arc<Handlers>, printed: Arc<Mutex<Printed>>) -> Self {
        Self { handlers, printed, looks: Arc::default() }
    }
}

impl Functions for Metered {
    fn call(&self, function: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        let (settings, printed, looks) = (self.handlers.settings(), Arc::clone(&self.printed), Arc::clone(&self.looks));
        async move {
            let cloud = Cloud { machines: &ports, discovery: &ports };
            let result = wiring::run_warm(&looks, &cloud, &ports, &settings, (function, input)).await;
            let cluster = ports.cluster();
            let namespace = settings.metrics_namespace.as_str();
            let run =
                Telemetry { at: ports.now(), function, cluster: cluster.as_str(), level: settings.metrics, namespace, is_alone: false };
            printed.lock().unwrap_or_else(PoisonError::into_inner).add(&run, &result);
            wiring::outcome(result)
        }
        .boxed()
    }
}

impl Printed {
    fn add(&mut self, run: &Telemetry<'_>, result: &Result<Report, HandleError>) {
        let lines = telemetry::lines(run, Duration::from_millis(100), result);
        let mut bytes = 0;
        for line in &lines {
            bytes += length(line);
            self.series.extend(series(line));
        }
        if let Ok(report) = result {
            bytes += report.decisions.iter().map(|decision| length(&logged(&decision.subject, &decision.message))).sum::<u64>();
        }
        *self.bytes.entry(run.function).or_default() += bytes;
    }
}

/// A decision as the functions log it.
fn logged(subject: &str, message: &str) -> Value {
    let fields = json!({ "message": message, "subject": subject, "kind": "Consolidated" });
    json!({ "level": "INFO", "fields": fields, "target": "whittle_runtime::serve" })
}

/// The length of a line with its end.
fn length(line: &Value) -> u64 {
    u64::try_from(line.to_string().len()).unwrap_or(u64::MAX).saturating_add(1)
}

/// The metrics of a line, each with the values of its dimensions.
fn series(line: &Value) -> Vec<String> {
    let directive = &line["_aws"]["CloudWatchMetrics"][0];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let values: Vec<String> =
        list(&directive["Dimensions"][0]).iter().map(|name| format!("{name}={}", line[name.as_str().unwrap_or_default()])).collect();
    list(&directive["Metrics"]).iter().map(|metric| format!("{} {}", metric["Name"], values.join(","))).collect()
}

/// The level of a word of the command line.
pub(super) fn level(all: bool) -> Level {
    if all { Level::Full } else { Level::Basic }
}
