//! What a rig does, as the metrics that CloudWatch would have of it: invocations and queues as the emulator knows them, and what functions
//! print.

use crate::emulator::Emulator;
use anyhow::{Context, Result};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};
use whittle_alarms::Point;

/// All values of metrics from some time on.
pub(crate) struct Observed {
    /// Runs that the emulator has told of.
    told: usize,
    pub points: Vec<Point>,
}

impl Observed {
    pub(crate) async fn from_now_on(emulator: &Emulator) -> Result<Self> {
        Ok(Self { told: runs(emulator, 0).await?.len(), points: Vec::new() })
    }

    /// Adds what has happened since the last look, and how full queues are now.
    pub(crate) async fn look(&mut self, emulator: &Emulator) -> Result<()> {
        let runs = runs(emulator, self.told).await?;
        self.told += runs.len();
        self.points.extend(runs.iter().flat_map(points_of));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        let now = i64::try_from(now.as_millis())?;
        let queues: Value = serde_json::from_str(&emulator.look("/_rig/queues", &[]).await?)?;
        for (name, queue) in queues.as_object().into_iter().flatten() {
            for (metric, field) in [("ApproximateNumberOfMessagesVisible", "visible"), ("ApproximateAgeOfOldestMessage", "oldest")] {
                let value = queue[field].as_f64().with_context(|| format!("the emulator does not say how {field} {name} is"))?;
                self.points.push(Point::of_service(now, "AWS/SQS", metric, ("QueueName", name), value));
            }
        }
        Ok(())
    }

    /// How often a function, by its physical name, was invoked.
    pub(crate) fn invocations(&self, function: &str) -> usize {
        let is_own = |point: &&Point| point.metric == "Invocations" && point.dimensions.values().any(|name| name == function);
        self.points.iter().filter(is_own).count()
    }
}

/// The emulator's runs after the first ones.
async fn runs(emulator: &Emulator, after: usize) -> Result<Vec<Value>> {
    let mut answer: Value = serde_json::from_str(&emulator.look(&format!("/_rig/runs?after={after}"), &[]).await?)?;
    let runs = answer["runs"].as_array_mut().context("the emulator tells of no runs: the rig needs --check-access")?;
    Ok(std::mem::take(runs))
}

/// The metrics that Lambda has of an invocation, and those that the function printed.
fn points_of(run: &Value) -> Vec<Point> {
    let (at, function) = (run["at"].as_i64().unwrap_or_default(), run["function"].as_str().unwrap_or_default());
    let of = |metric: &str, value: f64| Point::of_service(at, "AWS/Lambda", metric, ("FunctionName", function), value);
    match run["kind"].as_str() {
        Some("throttle") => vec![of("Throttles", 1.0)],
        Some("drop") => vec![of("RecursiveInvocationsDropped", 1.0)],
        _ => {
            let errors = if run["error"] == true { 1.0 } else { 0.0 };
            let duration = run["duration"].as_f64().unwrap_or_default();
            let mut points = vec![of("Invocations", 1.0), of("Errors", errors), of("Duration", duration)];
            let lines = run["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let printed = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            points.extend(printed.flat_map(|line| Point::of_line(&line)));
            points
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(run: &Value) -> Vec<(String, f64)> {
        points_of(run).into_iter().map(|point| (point.metric, point.value)).collect()
    }

    #[test]
    fn an_invocation_is_counted_as_lambda_counts_it() {
        let named = |names: &[(&str, f64)]| names.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<Vec<_>>();
        let run = |error: bool| json!({"at": 1, "kind": "run", "function": "f", "error": error, "duration": 2.5, "lines": ["{no json"]});
        assert_eq!(told(&run(false)), named(&[("Invocations", 1.0), ("Errors", 0.0), ("Duration", 2.5)]));
        assert_eq!(told(&run(true)), named(&[("Invocations", 1.0), ("Errors", 1.0), ("Duration", 2.5)]));
        assert_eq!(told(&json!({"at": 1, "kind": "throttle", "function": "f"})), named(&[("Throttles", 1.0)]));
        assert_eq!(told(&json!({"at": 1, "kind": "drop", "function": "f"})), named(&[("RecursiveInvocationsDropped", 1.0)]));
    }

    #[test]
    fn what_a_function_prints_are_metrics_in_its_own_namespace() {
        let directive = json!([{"Namespace": "Whittle", "Dimensions": [["cluster"]], "Metrics": [{"Name": "m"}]}]);
        let line = json!({"_aws": {"Timestamp": 7, "CloudWatchMetrics": directive}, "cluster": "a", "m": 3}).to_string();
        let points = points_of(&json!({"at": 1, "kind": "run", "function": "f", "error": false, "duration": 1, "lines": [line]}));
        let last = points.last().unwrap();
        assert_eq!((last.namespace.as_str(), last.metric.as_str(), last.at, last.value), ("Whittle", "m", 7, 3.0));
    }
}
