//! What a run of a function prints: lines of JSON. Metrics are lines in CloudWatch's embedded metric format, which need no API call.

use crate::metrics::{self, CLUSTER, Level, Metric, Unit};
use crate::problems::{self, Problem, Urgency};
use crate::{Amount, Counted, Disposition, HandleError, Measured, Report, error_chain};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use whittle_claims::Function;
use whittle_units::Timestamp;

/// CloudWatch's limit for the length of a dimension's value.
const DIMENSION_MAX: usize = 1024;

/// CloudWatch's limit for the values of one metric in a line.
const VALUES_MAX: usize = 100;

/// What a failed run counts that needs a person. Its message waits for its queue's visibility timeout, 90 s for `consolidate`: three in
/// five minutes have to be enough for `FailedRunsAlarm`, which asks for five that may pass (ADR 0069). And what a failed run counts that
/// nothing repeats within its minute: elsewhere each minute has two of them, and five ticks may come in a little more than five minutes
/// (ADR 0071).
const WEIGHT_OF_FAIL: u64 = 2;

/// A run whose lines are printed.
#[derive(Clone, Copy, Debug)]
pub struct Telemetry<'a> {
    pub at: Timestamp,
    pub function: Function,
    pub cluster: &'a str,
    pub level: Level,
    /// CloudWatch's namespace of the metrics.
    pub namespace: &'a str,
    /// Whether nothing repeats the run before the next tick, if it fails.
    pub is_alone: bool,
}

impl Telemetry<'_> {
    /// A line of the embedded metric format: `metrics` with these dimensions. The other fields are only logged, and so are metrics that are
    /// not of the level.
    fn emf(&self, dimensions: &[&str], metrics: &[(&str, &str)], mut fields: Map<String, Value>) -> Value {
        let of_level = metrics.iter().filter(|(name, _)| self.level.has(name));
        let metrics: Vec<Value> = of_level.map(|(name, unit)| json!({ "Name": name, "Unit": unit })).collect();
        if !metrics.is_empty() {
            let directive = json!({ "Namespace": self.namespace, "Dimensions": [dimensions], "Metrics": metrics });
            fields.insert("_aws".to_owned(), json!({ "Timestamp": self.at.as_millisecond(), "CloudWatchMetrics": [directive] }));
        }
        fields.into()
    }
}

/// A label's value within CloudWatch's limits. With an empty value CloudWatch drops all dimensions of the metric, and no alarm
/// matches it any more; with a value that is too long it drops the metric.
fn dimension(value: &str) -> String {
    match value.trim() {
        "" => "none".to_owned(),
        value => value.chars().take(DIMENSION_MAX).collect(),
    }
}

/// The lines of one run: one with its outcome, and one per set of labels.
pub fn lines(run: &Telemetry<'_>, took: Duration, outcome: &Result<Report, HandleError>) -> Vec<Value> {
    let Telemetry { function, cluster, .. } = *run;
    let outcome_label = match outcome {
        Ok(_) => "ok",
        Err(error) => error.disposition().as_str(),
    };
    let (duration, runs) = (metrics::RunDuration::ENTRY, metrics::Runs::ENTRY);
    let mut fields = Map::new();
    fields.insert("function".to_owned(), function.name().into());
    fields.insert(CLUSTER.to_owned(), cluster.into());
    fields.insert("outcome".to_owned(), outcome_label.into());
    fields.insert(duration.name.to_owned(), json!(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
    fields.insert(runs.name.to_owned(), json!(1));
    match outcome {
        Ok(report) => {
            fields.insert("counts".to_owned(), json!(report.counts));
            fields.insert("decisions".to_owned(), json!(report.decisions.len()));
        }
        Err(error) => {
            fields.insert("error".to_owned(), error_chain(error).into());
        }
    }
    let measured = [duration, runs].map(|entry| (entry.name, entry.unit.cloudwatch()));
    let mut lines = vec![run.emf(&["function", CLUSTER, "outcome"], &measured, fields)];
    if let Err(error) = outcome
        && error.disposition() != Disposition::Replan
    {
        lines.push(failed_line(run, error));
    }
    if let Ok(report) = outcome {
        lines.extend(problems::found(report).map(|problem| problem_line(run, problem)));
        lines.extend(counted_lines(run, &report.metrics));
        lines.extend(gauge_lines(run, &report.gauges));
        lines.extend(distribution_lines(run, &report.observations));
    }
    lines
}

/// The line of a failed run, for alarms. A conflict with newer state is not a failure.
fn failed_line(run: &Telemetry<'_>, error: &HandleError) -> Value {
    let failed = metrics::FailedRuns::ENTRY;
    let weight = if run.is_alone || error.disposition() == Disposition::Fail { WEIGHT_OF_FAIL } else { 1 };
    let fields = [
        ("function", json!(run.function.name())),
        (CLUSTER, json!(run.cluster)),
        ("error", json!(error_chain(error))),
        (failed.name, json!(weight)),
    ];
    let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    run.emf(&[CLUSTER, "function"], &[(failed.name, failed.unit.cloudwatch())], fields)
}

/// The line of a problem, for alarms.
fn problem_line(run: &Telemetry<'_>, problem: &Problem) -> Value {
    let entry = match problem.urgency {
        Urgency::Now => metrics::Problems::ENTRY,
        Urgency::Later => metrics::Warnings::ENTRY,
    };
    let fields =
        [("function", json!(run.function.name())), (CLUSTER, json!(run.cluster)), ("problem", json!(problem.name)), (entry.name, json!(1))];
    let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    run.emf(&[CLUSTER, "problem"], &[(entry.name, entry.unit.cloudwatch())], fields)
}

/// One line per counter and labels: increments of the same counter are summed.
fn counted_lines(run: &Telemetry<'_>, counted: &[Counted]) -> Vec<Value> {
    let mut sums: BTreeMap<(&str, &BTreeMap<&str, String>), u64> = BTreeMap::new();
    for one in counted {
        *sums.entry((one.metric, &one.labels)).or_default() += one.by;
    }
    let line = |((metric, labels), sum): ((&str, &BTreeMap<&str, String>), u64)| {
        let mut fields: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), dimension(value).into())).collect();
        fields.insert(CLUSTER.to_owned(), run.cluster.into());
        fields.insert(metric.to_owned(), sum.into());
        let dimensions: Vec<&str> = std::iter::once(CLUSTER).chain(labels.keys().copied()).collect();
        run.emf(&dimensions, &[(metric, Unit::Count.cloudwatch())], fields)
    };
    sums.into_iter().map(line).collect()
}

/// Gauges of the same labels share a line. The last value of a gauge wins.
fn gauge_lines(run: &Telemetry<'_>, gauges: &[Measured]) -> Vec<Value> {
    let mut by_labels: BTreeMap<&BTreeMap<&str, String>, BTreeMap<&str, Amount>> = BTreeMap::new();
    for gauge in gauges {
        by_labels.entry(&gauge.labels).or_default().insert(gauge.metric, gauge.amount);
    }
    let line = |(labels, amounts): (&BTreeMap<&str, String>, BTreeMap<&str, Amount>)| {
        let mut fields: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), dimension(value).into())).collect();
        fields.insert(CLUSTER.to_owned(), run.cluster.into());
        let mut metrics = Vec::new();
        for (metric, amount) in amounts {
            let (value, unit) = metric_value(amount);
            fields.insert(metric.to_owned(), value);
            metrics.push((metric, unit));
        }
        let dimensions: Vec<&str> = std::iter::once(CLUSTER).chain(labels.keys().copied()).collect();
        run.emf(&dimensions, &metrics, fields)
    };
    by_labels.into_iter().map(line).collect()
}

/// A metric and its labels.
type Series<'a> = (&'a str, &'a BTreeMap<&'static str, String>);

/// One line per distribution and labels, and more where there are more values than CloudWatch takes in one.
fn distribution_lines(run: &Telemetry<'_>, observations: &[Measured]) -> Vec<Value> {
    let mut by_labels: BTreeMap<Series<'_>, Vec<(Value, &str)>> = BTreeMap::new();
    for one in observations {
        by_labels.entry((one.metric, &one.labels)).or_default().push(metric_value(one.amount));
    }
    let line = |metric: &str, labels: &BTreeMap<&str, String>, values: &[(Value, &str)]| {
        let mut fields: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), dimension(value).into())).collect();
        fields.insert(CLUSTER.to_owned(), run.cluster.into());
        fields.insert(metric.to_owned(), values.iter().map(|(value, _)| value.clone()).collect());
        let dimensions: Vec<&str> = std::iter::once(CLUSTER).chain(labels.keys().copied()).collect();
        run.emf(&dimensions, &[(metric, values.first().map_or("None", |(_, unit)| unit))], fields)
    };
    let lines = |((metric, labels), values): (Series<'_>, Vec<(Value, &str)>)| {
        values.chunks(VALUES_MAX).map(|values| line(metric, labels, values)).collect::<Vec<_>>()
    };
    by_labels.into_iter().flat_map(lines).collect()
}

/// An amount as a number with CloudWatch's unit. Nothing is computed from it, so a float is precise enough.
#[expect(clippy::cast_precision_loss, reason = "a metric has fewer digits anyway")]
fn metric_value(amount: Amount) -> (Value, &'static str) {
    let (value, unit): (Value, Unit) = match amount {
        Amount::Count(count) => (count.into(), Unit::Count),
        Amount::Quantity(quantity) => (json!(quantity.milli() as f64 / 1e3), Unit::Resource),
        Amount::Time(span) => (json!(span.as_secs_f64()), Unit::Seconds),
        Amount::Dollars(price) => (json!(price.nanos() as f64 / 1e9), Unit::DollarsPerHour),
    };
    (value, unit.cloudwatch())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QueueError, StoreError};
    use whittle_units::{Price, SignedDuration};

    fn lines_of(function: Function, outcome: &Result<Report, HandleError>) -> Vec<Value> {
        lines(&run(function, Level::Full), Duration::from_millis(12), outcome)
    }

    fn run(function: Function, level: Level) -> Telemetry<'static> {
        Telemetry { at: Timestamp::UNIX_EPOCH, function, cluster: "prod", level, namespace: metrics::NAMESPACE, is_alone: false }
    }

    fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> BTreeMap<&'static str, String> {
        labels.map(|(key, value)| (key, value.to_owned())).into()
    }

    fn counter<const N: usize>(metric: &'static str, of: [(&'static str, &str); N]) -> Counted {
        Counted { metric, labels: labels(of), by: 1 }
    }

    fn gauge<const N: usize>(metric: &'static str, of: [(&'static str, &str); N], amount: Amount) -> Measured {
        Measured { metric, labels: labels(of), amount }
    }

    #[test]
    fn a_run_is_one_line_and_each_set_of_labels_one_more() {
        let mut report = Report::default();
        report.count("created");
        report.metrics.push(counter("karpenter_nodeclaims_created_total", [("nodepool", "a")]));
        report.metrics.push(counter("karpenter_nodeclaims_created_total", [("nodepool", "a")]));
        report.metrics.push(counter("karpenter_nodeclaims_created_total", [("nodepool", "b")]));
        let lines = lines_of(Function::Schedule, &Ok(report));
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
    fn every_metric_of_a_run_is_in_the_namespace_of_its_stack() {
        let mut report = Report::default();
        report.metrics.push(counter("whittle_launches_refused_total", [("nodepool", "a"), ("reason", "Unauthorized")]));
        report.gauges.push(gauge("whittle_nodes_dollars_per_hour", [], Amount::Count(1)));
        report.observe(metrics::BatchSize { batcher: "create_fleet" }, 7);
        let failed = HandleError::Store(StoreError::Throttled { what: "claim".to_owned() });
        let stack = Telemetry { namespace: "Whittle/dev", ..run(Function::Sweep, Level::Full) };
        for (outcome, least) in [(Ok(report), 5), (Err(failed), 2)] {
            let lines = lines(&stack, Duration::ZERO, &outcome);
            assert!(least <= lines.len(), "{lines:?}");
            assert!(lines.iter().all(|line| line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Whittle/dev"), "{lines:?}");
        }
    }

    #[test]
    fn the_line_of_a_run_has_the_dimensions_of_the_metric_catalogue() {
        let lines = lines_of(Function::Sweep, &Ok(Report::default()));
        for entry in [metrics::Runs::ENTRY, metrics::RunDuration::ENTRY] {
            let labels: Vec<&str> = entry.labels.iter().map(|label| label.name).collect();
            assert_eq!(lines[0]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([[labels[0], CLUSTER, labels[1]]]));
        }
    }

    #[test]
    fn empty_labels_become_none_and_long_ones_are_truncated() {
        let mut report = Report::default();
        report.metrics.push(counter("whittle_launches_refused_total", [("nodepool", ""), ("reason", "Unauthorized")]));
        report.gauges.push(gauge("whittle_saved_dollars_per_hour", [("nodepool", &"pool,".repeat(1_000))], Amount::Count(1)));
        let lines = lines_of(Function::Launch, &Ok(report));
        assert_eq!((&lines[1]["problem"], &lines[1]["whittle_problems"]), (&json!("launches_refused"), &json!(1)));
        assert_eq!(lines[1]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["cluster", "problem"]]));
        assert_eq!((&lines[2]["nodepool"], &lines[2]["reason"]), (&json!("none"), &json!("Unauthorized")));
        assert_eq!(lines[3]["nodepool"].as_str().map(str::len), Some(1024));
    }

    #[test]
    fn gauges_with_the_same_labels_share_a_line() {
        let mut report = Report::default();
        report.gauges.push(gauge("karpenter_nodepools_cost_total", [("nodepool", "a")], Amount::Dollars(Price::from_nanos(96_000_000))));
        report.gauges.push(gauge("whittle_nodepools_nodes", [("nodepool", "a")], Amount::Count(1)));
        report.gauges.push(gauge("whittle_nodepools_nodes", [("nodepool", "a")], Amount::Count(2)));
        report.gauges.push(gauge("karpenter_scheduler_scheduling_duration_seconds", [], Amount::Time(SignedDuration::from_millis(1_500))));
        let lines = lines_of(Function::Sweep, &Ok(report));
        let [_, run_line, pool_line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(run_line["karpenter_scheduler_scheduling_duration_seconds"], json!(1.5));
        assert_eq!((&pool_line["karpenter_nodepools_cost_total"], &pool_line["whittle_nodepools_nodes"]), (&json!(0.096), &json!(2)));
        assert_eq!(pool_line["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["cluster", "nodepool"]]));
        let metrics = &pool_line["_aws"]["CloudWatchMetrics"][0]["Metrics"];
        let expected =
            json!([{ "Name": "karpenter_nodepools_cost_total", "Unit": "None" }, { "Name": "whittle_nodepools_nodes", "Unit": "Count" }]);
        assert_eq!(*metrics, expected);
    }

    #[test]
    fn of_the_basic_level_alarms_and_costs_are_metrics_and_everything_else_is_logged_the_same() {
        let mut report = Report::default();
        report.metrics.push(counter("karpenter_nodeclaims_created_total", [("nodepool", "a")]));
        report.metrics.push(counter("whittle_launches_refused_total", [("nodepool", "a"), ("reason", "Unauthorized")]));
        report.gauges.push(gauge("karpenter_nodepools_cost_total", [("nodepool", "a")], Amount::Dollars(Price::from_nanos(96_000_000))));
        report.gauges.push(gauge("whittle_nodes_dollars_per_hour", [], Amount::Dollars(Price::from_nanos(96_000_000))));
        report.gauges.push(gauge("whittle_nodeclaims_stuck", [("nodepool", "a"), ("phase", "Launched")], Amount::Count(1)));
        let of = |level| lines(&run(Function::Sweep, level), Duration::ZERO, &Ok(report.clone()));
        let (mut full, mut basic) = (of(Level::Full), of(Level::Basic));
        assert!(full.iter().all(|line| line["_aws"].is_object()), "{full:?}");
        let names = |lines: &[Value]| -> Vec<Value> {
            let metrics =
                lines.iter().flat_map(|line| line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().cloned().unwrap_or_default());
            metrics.map(|metric| metric["Name"].clone()).collect()
        };
        assert_eq!(names(&basic), ["whittle_problems", "whittle_warnings", "whittle_nodes_dollars_per_hour"]);
        for line in basic.iter_mut().chain(&mut full) {
            line.as_object_mut().unwrap().remove("_aws");
        }
        assert_eq!(basic, full);
        let failed = HandleError::Store(StoreError::Throttled { what: "claim".to_owned() });
        assert_eq!(names(&lines(&run(Function::Launch, Level::Basic), Duration::ZERO, &Err(failed))), ["whittle_failed_runs"]);
    }

    #[test]
    fn every_value_of_a_distribution_is_emitted_a_hundred_to_a_line() {
        let mut report = Report::default();
        for size in 1..=101 {
            report.observe(metrics::BatchSize { batcher: "terminate_instances" }, size);
        }
        report.observe(metrics::BatchSize { batcher: "create_fleet" }, 7);
        let lines = lines_of(Function::Sweep, &Ok(report));
        let [_, of_fleets, first, second] = &lines[..] else { panic!("{lines:?}") };
        let name = metrics::BatchSize::ENTRY.name;
        assert_eq!((&of_fleets[name], &of_fleets["batcher"]), (&json!([7]), &json!("create_fleet")));
        assert_eq!((first[name].as_array().map(Vec::len), &second[name]), (Some(100), &json!([101])));
        assert_eq!(first["_aws"]["CloudWatchMetrics"][0]["Metrics"], json!([{ "Name": name, "Unit": "Count" }]));
        assert_eq!(first["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["cluster", "batcher"]]));
    }

    #[test]
    fn a_failed_run_is_logged_with_disposition_and_causes_and_a_conflict_raises_no_alarm() {
        let error = HandleError::Store(StoreError::Throttled { what: "claim prod/x".to_owned() });
        let lines = lines_of(Function::Launch, &Err(error));
        assert_eq!((&lines[0]["outcome"], &lines[0]["cluster"]), (&json!("retry_later"), &json!("prod")));
        assert_eq!((&lines[1]["whittle_failed_runs"], &lines[1]["cluster"]), (&json!(1), &json!("prod")));
        assert_eq!(lines[1]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["cluster", "function"]]));
        assert_eq!(lines[0]["error"], "the store stopped the work: the table throttles claim prod/x");
        let refused = HandleError::PlanRefused { cluster: "prod".to_owned(), reason: "r".to_owned() };
        assert_eq!(lines_of(Function::Schedule, &Err(refused))[1]["whittle_failed_runs"], json!(2), "it needs a person");
        let conflict = HandleError::Store(StoreError::Conflict { what: "claim prod/x".to_owned() });
        assert_eq!(lines_of(Function::Launch, &Err(conflict)).len(), 1);
        assert_eq!(error_chain(&QueueError { cluster: "c".to_owned(), reason: "r".to_owned() }), "the doorbell for c could not be sent: r");
    }
}
