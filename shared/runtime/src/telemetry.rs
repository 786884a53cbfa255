//! Logs and metrics. A log line is JSON; a metric is a line in CloudWatch's embedded format, so that no call is made
//! for it.

use crate::Function;
use crate::events::Work;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use whittle_ports::{Counted, HandleError, Report};
use whittle_units::Timestamp;

/// CloudWatch's namespace of all our metrics.
const NAMESPACE: &str = "Whittle";

/// Logs as JSON lines on standard output, at the level of `RUST_LOG` (`info` when unset).
pub fn init_logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A second call (tests) keeps the first subscriber.
    let _ = tracing_subscriber::fmt().json().with_env_filter(filter).with_current_span(false).with_ansi(false).without_time().try_init();
}

/// An error with all its causes, outermost first.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text += ": ";
            text += &cause_text;
        }
        source = cause.source();
    }
    text
}

/// A line of the embedded metric format: `metrics` with these dimensions; the other fields are only logged.
fn emf(at: Timestamp, dimensions: &[&str], metrics: &[(&str, &str)], mut fields: Map<String, Value>) -> Value {
    let metrics: Vec<Value> = metrics.iter().map(|(name, unit)| json!({ "Name": name, "Unit": unit })).collect();
    fields.insert(
        "_aws".to_owned(),
        json!({
            "Timestamp": at.as_millisecond(),
            "CloudWatchMetrics": [{ "Namespace": NAMESPACE, "Dimensions": [dimensions], "Metrics": metrics }],
        }),
    );
    fields.into()
}

/// The lines of one piece of work: one that tells how it went, and one per set of labels that was counted.
pub fn lines(at: Timestamp, function: Function, work: &Work, took: Duration, outcome: &Result<Report, HandleError>) -> Vec<Value> {
    let cluster = work.cluster().map_or("all", |cluster| cluster.as_str());
    let word = match outcome {
        Ok(_) => "ok",
        Err(error) => error.disposition().as_str(),
    };
    let mut fields = Map::new();
    fields.insert("function".to_owned(), function.name().into());
    fields.insert("cluster".to_owned(), cluster.into());
    fields.insert("outcome".to_owned(), word.into());
    fields.insert("duration_ms".to_owned(), json!(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
    fields.insert("runs".to_owned(), json!(1));
    match outcome {
        Ok(report) => {
            fields.insert("counts".to_owned(), json!(report.counts));
            fields.insert("decisions".to_owned(), json!(report.decisions.len()));
        }
        Err(error) => {
            fields.insert("error".to_owned(), chain(error).into());
        }
    }
    let mut lines = vec![emf(at, &["function", "cluster", "outcome"], &[("duration_ms", "Milliseconds"), ("runs", "Count")], fields)];
    if let Ok(report) = outcome {
        lines.extend(counted_lines(at, cluster, &report.metrics));
    }
    lines
}

/// Counters of the same name and labels are added up.
fn counted_lines(at: Timestamp, cluster: &str, counted: &[Counted]) -> Vec<Value> {
    let mut sums: BTreeMap<(&str, &BTreeMap<&str, String>), u64> = BTreeMap::new();
    for one in counted {
        *sums.entry((one.metric, &one.labels)).or_default() += one.by;
    }
    let line = |((metric, labels), sum): ((&str, &BTreeMap<&str, String>), u64)| {
        let mut fields: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), value.as_str().into())).collect();
        fields.insert("cluster".to_owned(), cluster.into());
        fields.insert(metric.to_owned(), sum.into());
        let dimensions: Vec<&str> = std::iter::once("cluster").chain(labels.keys().copied()).collect();
        emf(at, &dimensions, &[(metric, "Count")], fields)
    };
    sums.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_ports::{QueueError, StoreError};

    #[test]
    fn a_run_is_one_line_and_each_set_of_labels_another() {
        let mut report = Report::default();
        report.count("created");
        report.metric("karpenter_nodeclaims_created_total", [("nodepool", "a")]);
        report.metric("karpenter_nodeclaims_created_total", [("nodepool", "a")]);
        report.metric("karpenter_nodeclaims_created_total", [("nodepool", "b")]);
        let lines = lines(Timestamp::UNIX_EPOCH, Function::Schedule, &Work::Cluster("prod".into()), Duration::from_millis(12), &Ok(report));
        assert_eq!(
            lines[0],
            json!({
                "_aws": { "Timestamp": 0, "CloudWatchMetrics": [{
                    "Namespace": "Whittle",
                    "Dimensions": [["function", "cluster", "outcome"]],
                    "Metrics": [{ "Name": "duration_ms", "Unit": "Milliseconds" }, { "Name": "runs", "Unit": "Count" }],
                }] },
                "function": "schedule", "cluster": "prod", "outcome": "ok", "duration_ms": 12, "runs": 1,
                "counts": { "created": 1 }, "decisions": 0,
            })
        );
        let counts: Vec<&Value> = lines[1..].iter().map(|line| &line["karpenter_nodeclaims_created_total"]).collect();
        assert_eq!(counts, [2, 1]);
        assert_eq!(lines[1]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["cluster", "nodepool"]]));
    }

    #[test]
    fn a_failure_is_told_with_its_disposition_and_causes() {
        let error = HandleError::Store(StoreError::Throttled { what: "claim prod/x".to_owned() });
        let lines = lines(Timestamp::UNIX_EPOCH, Function::Launch, &Work::Notice(String::new()), Duration::ZERO, &Err(error));
        assert_eq!((&lines[0]["outcome"], &lines[0]["cluster"]), (&json!("retry_later"), &json!("all")));
        assert_eq!(lines[0]["error"], "the store stopped the work: the table throttles claim prod/x");
        assert_eq!(chain(&QueueError { cluster: "c".to_owned(), reason: "r".to_owned() }), "the doorbell for c could not be rung: r");
    }
}
