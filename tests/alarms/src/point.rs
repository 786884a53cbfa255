//! Values of metrics, and those that CloudWatch finds in logs.

use serde_json::Value;
use std::collections::BTreeMap;

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Milliseconds since 1970.
    pub at: i64,
    pub namespace: String,
    pub metric: String,
    pub dimensions: BTreeMap<String, String>,
    pub value: f64,
}

impl Point {
    /// A value of a metric with one dimension, as AWS's services report them.
    #[must_use]
    pub fn of_service(at: i64, namespace: &str, metric: &str, (dimension, of): (&str, &str), value: f64) -> Self {
        let dimensions = BTreeMap::from([(dimension.to_owned(), of.to_owned())]);
        Self { at, namespace: namespace.to_owned(), metric: metric.to_owned(), dimensions, value }
    }

    /// What CloudWatch finds in a line of a log: nothing, unless it is in the embedded metric format.
    #[must_use]
    pub fn of_line(line: &Value) -> Vec<Self> {
        let Some(at) = line["_aws"]["Timestamp"].as_i64() else { return Vec::new() };
        list(&line["_aws"]["CloudWatchMetrics"]).flat_map(|directive| of_directive(line, at, directive)).collect()
    }
}

fn of_directive(line: &Value, at: i64, directive: &Value) -> Vec<Point> {
    let namespace = directive["Namespace"].as_str().unwrap_or_default();
    let mut points = Vec::new();
    for set in list(&directive["Dimensions"]) {
        let named = |name: &Value| {
            let name = name.as_str()?;
            Some((name.to_owned(), line[name].as_str()?.to_owned()))
        };
        // CloudWatch reports nothing for a set of which a dimension has no value.
        let Some(dimensions) = list(set).map(named).collect::<Option<BTreeMap<String, String>>>() else { continue };
        for metric in list(&directive["Metrics"]).filter_map(|metric| metric["Name"].as_str()) {
            points.extend(numbers(&line[metric]).into_iter().map(|value| Point {
                at,
                namespace: namespace.to_owned(),
                metric: metric.to_owned(),
                dimensions: dimensions.clone(),
                value,
            }));
        }
    }
    points
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A number, or the numbers of a list.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().filter_map(Value::as_f64).collect(),
        single => single.as_f64().into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_a_point_for_each_set_of_dimensions_metric_and_value() {
        let line = json!({
            "_aws": {"Timestamp": 5, "CloudWatchMetrics": [{
                "Namespace": "Whittle", "Dimensions": [["cluster"], ["cluster", "function"]],
                "Metrics": [{"Name": "runs", "Unit": "Count"}, {"Name": "sizes", "Unit": "Count"}],
            }]},
            "cluster": "a", "function": "sweep", "runs": 1, "sizes": [2, 3], "other": 9,
        });
        let points = Point::of_line(&line);
        let told: Vec<(&str, usize, f64)> =
            points.iter().map(|point| (point.metric.as_str(), point.dimensions.len(), point.value)).collect();
        let expected = [("runs", 1, 1.0), ("sizes", 1, 2.0), ("sizes", 1, 3.0), ("runs", 2, 1.0), ("sizes", 2, 2.0), ("sizes", 2, 3.0)];
        assert_eq!(told, expected);
        assert!(points.iter().all(|point| point.at == 5 && point.namespace == "Whittle"));
    }

    #[test]
    fn what_is_only_logged_or_lacks_a_dimension_is_no_point() {
        assert!(Point::of_line(&json!({"cluster": "a", "runs": 1})).is_empty());
        let directive = json!([{"Namespace": "Whittle", "Dimensions": [["cluster"]], "Metrics": [{"Name": "runs"}]}]);
        let without = json!({"_aws": {"Timestamp": 5, "CloudWatchMetrics": directive}, "runs": 1});
        assert!(Point::of_line(&without).is_empty());
    }
}
