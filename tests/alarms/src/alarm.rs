//! The alarms of a template, and when each goes off.

use crate::Point;
use crate::expression::Watched;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the template's references stand for in a deployment.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Values of parameters.
    pub parameters: BTreeMap<String, String>,
    /// Physical names by logical ids; of a queue it is the URL.
    pub resources: BTreeMap<String, String>,
    /// Whether the deployment serves one cluster: the template's condition `HasOneCluster`.
    pub has_one_cluster: bool,
}

impl Names {
    /// Those of a deployment with the parameters' defaults, in which each resource is called by its logical id.
    #[must_use]
    pub fn of_template(template: &Value) -> Self {
        let of = |section: &str| template[section].as_object().into_iter().flatten();
        let default = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let parameters = of("Parameters").filter(|(_, parameter)| !parameter["Default"].is_null());
        Self {
            parameters: parameters.map(|(name, parameter)| (name.clone(), default(&parameter["Default"]))).collect(),
            resources: of("Resources").map(|(name, _)| (name.clone(), name.clone())).collect(),
            has_one_cluster: false,
        }
    }

    /// A number of the template, which may depend on how many clusters there are.
    fn number(&self, value: &Value) -> Option<f64> {
        let choice = &value["Fn::If"];
        match choice[0].as_str() {
            Some("HasOneCluster") => choice[if self.has_one_cluster { 1 } else { 2 }].as_f64(),
            _ => value.as_f64(),
        }
    }

    /// A text of the template.
    pub(crate) fn text(&self, value: &Value) -> Result<String> {
        if let Some(text) = value.as_str() {
            return Ok(text.to_owned());
        }
        if let Some(name) = value["Ref"].as_str() {
            let found = self.parameters.get(name).or_else(|| self.resources.get(name));
            return found.cloned().with_context(|| format!("there is no parameter and no resource {name}"));
        }
        if let Some(text) = value["Fn::Sub"].as_str() {
            return Ok(self.parameters.iter().fold(text.to_owned(), |text, (name, given)| text.replace(&format!("${{{name}}}"), given)));
        }
        if let (Some(name), Some("QueueName")) = (value["Fn::GetAtt"][0].as_str(), value["Fn::GetAtt"][1].as_str()) {
            let url = self.resources.get(name).with_context(|| format!("there is no queue {name}"))?;
            return Ok(url.rsplit('/').next().unwrap_or_default().to_owned());
        }
        bail!("{value} is of no form that is known here")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Greater,
    GreaterOrEqual,
    Less,
}

/// An alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// Its logical id.
    pub name: String,
    watched: Watched,
    /// Milliseconds of a period.
    period: i64,
    /// How many periods in a row have to breach.
    periods: i64,
    threshold: f64,
    comparison: Comparison,
    missing_breaches: bool,
}

impl Alarm {
    /// All alarms of a template as SAM transforms it, whatever their conditions.
    ///
    /// # Errors
    ///
    /// If one has a form that is not known here.
    pub fn all(template: &Value, names: &Names) -> Result<Vec<Self>> {
        let resources = template["Resources"].as_object().context("the template has no resources")?;
        let alarms = resources.iter().filter(|(_, resource)| resource["Type"] == "AWS::CloudWatch::Alarm");
        alarms.map(|(name, alarm)| Self::of(name, &alarm["Properties"], names).with_context(|| format!("the alarm {name}"))).collect()
    }

    fn of(name: &str, properties: &Value, names: &Names) -> Result<Self> {
        let (watched, seconds) = Watched::of(properties, names)?;
        ensure!(properties["DatapointsToAlarm"].is_null(), "DatapointsToAlarm is not known here");
        let comparison = match properties["ComparisonOperator"].as_str() {
            Some("GreaterThanThreshold") => Comparison::Greater,
            Some("GreaterThanOrEqualToThreshold") => Comparison::GreaterOrEqual,
            Some("LessThanThreshold") => Comparison::Less,
            other => bail!("ComparisonOperator {other:?} is not known here"),
        };
        let missing_breaches = match properties["TreatMissingData"].as_str() {
            Some("breaching") => true,
            Some("notBreaching") => false,
            other => bail!("TreatMissingData {other:?} is not known here"),
        };
        ensure!(watched.is_single() || !missing_breaches, "a query has no contributor that is missing");
        Ok(Self {
            name: name.to_owned(),
            watched,
            period: seconds * 1_000,
            periods: properties["EvaluationPeriods"].as_i64().context("EvaluationPeriods is no number")?,
            threshold: names.number(&properties["Threshold"]).context("Threshold is no number")?,
            comparison,
            missing_breaches,
        })
    }

    /// The value that the metric is compared with.
    #[must_use]
    pub const fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Whether it watches a service of AWS, and not what our functions print.
    #[must_use]
    pub fn is_of_a_service(&self) -> bool {
        self.watched.namespaces().iter().all(|namespace| namespace.starts_with("AWS/"))
    }

    /// What is in alarm at a time, in milliseconds since 1970: contributors by name, and an alarm without contributors by an empty one.
    #[must_use]
    pub fn breaches(&self, points: &[Point], at: i64) -> BTreeSet<String> {
        let period = |n: i64| {
            let end = at - n * self.period;
            let within: Vec<&Point> = points.iter().filter(|point| (end - self.period..end).contains(&point.at)).collect();
            self.watched.values(&within)
        };
        self.breaching_in_all(&(0..self.periods).map(period).collect::<Vec<_>>())
    }

    /// The same if what was observed went on: all points are of one period, and every period is like it.
    #[must_use]
    pub fn breaches_if_it_goes_on(&self, points: &[Point]) -> BTreeSet<String> {
        self.breaching_in_all(&[self.watched.values(&points.iter().collect::<Vec<_>>())])
    }

    fn breaching_in_all(&self, periods: &[BTreeMap<String, f64>]) -> BTreeSet<String> {
        let mut contributors: BTreeSet<String> = periods.iter().flat_map(|values| values.keys().cloned()).collect();
        if self.watched.is_single() {
            contributors.insert(String::new());
        }
        contributors.retain(|one| periods.iter().all(|values| self.is_breach(values.get(one).copied())));
        contributors
    }

    fn is_breach(&self, value: Option<f64>) -> bool {
        value.map_or(self.missing_breaches, |value| match self.comparison {
            Comparison::Greater => value > self.threshold,
            Comparison::GreaterOrEqual => value >= self.threshold,
            Comparison::Less => value < self.threshold,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MINUTE: i64 = 60_000;

    fn template(properties: &Value) -> Value {
        let alarm = json!({"Type": "AWS::CloudWatch::Alarm", "Properties": properties});
        json!({"Resources": {"Alarm": alarm, "Sweep": {"Type": "AWS::Lambda::Function"}}})
    }

    fn alarm(properties: &Value) -> Alarm {
        let names = Names {
            parameters: BTreeMap::from([("MetricsNamespace".to_owned(), "Whittle".to_owned())]),
            resources: BTreeMap::from([
                ("Sweep".to_owned(), "whittle-Sweep-1".to_owned()),
                ("PlanQueue".to_owned(), "http://host/1/plan.fifo".to_owned()),
            ]),
            has_one_cluster: false,
        };
        let mut alarms = Alarm::all(&template(properties), &names).unwrap();
        assert_eq!(alarms.len(), 1);
        alarms.remove(0)
    }

    /// An alarm on errors: more than two in five minutes, twice in a row.
    fn errors() -> Value {
        json!({"Namespace": "AWS/Lambda", "MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": {"Ref": "Sweep"}}],
            "Statistic": "Sum", "Period": 300, "EvaluationPeriods": 2, "Threshold": 2, "ComparisonOperator": "GreaterThanThreshold",
            "TreatMissingData": "notBreaching"})
    }

    fn error_at(minute: i64) -> Point {
        Point::of_service(minute * MINUTE, "AWS/Lambda", "Errors", ("FunctionName", "whittle-Sweep-1"), 1.0)
    }

    fn is_on(alarm: &Alarm, points: &[Point], minute: i64) -> bool {
        !alarm.breaches(points, minute * MINUTE).is_empty()
    }

    #[test]
    fn every_period_has_to_breach() {
        let alarm = alarm(&errors());
        let minutely: Vec<Point> = (0..10).map(error_at).collect();
        assert!(is_on(&alarm, &minutely, 10));
        assert!(!is_on(&alarm, &minutely, 7), "the earlier period has two only");
        assert!(!is_on(&alarm, &minutely[..7], 10), "the later period has two only");
        assert!(!is_on(&alarm, &[], 10), "nothing is missing that breaches");
        let of_another = minutely.iter().map(|point| Point { namespace: "AWS/Other".to_owned(), ..point.clone() }).collect::<Vec<_>>();
        assert!(!is_on(&alarm, &of_another, 10));
        assert!(!alarm.breaches_if_it_goes_on(&minutely[..3]).is_empty());
        assert!(alarm.breaches_if_it_goes_on(&minutely[..2]).is_empty());
    }

    #[test]
    fn missing_data_breach_where_the_alarm_says_so() {
        let mut silent = errors();
        silent["ComparisonOperator"] = json!("LessThanThreshold");
        silent["TreatMissingData"] = json!("breaching");
        let alarm = alarm(&silent);
        assert!(is_on(&alarm, &[], 10));
        assert!(is_on(&alarm, &[error_at(1), error_at(6)], 10));
        assert!(!is_on(&alarm, &[error_at(6), error_at(7)], 10));
    }

    #[test]
    fn the_name_of_a_queue_is_the_end_of_its_url() {
        let age = json!({"Namespace": "AWS/SQS", "MetricName": "ApproximateAgeOfOldestMessage",
            "Dimensions": [{"Name": "QueueName", "Value": {"Fn::GetAtt": ["PlanQueue", "QueueName"]}}],
            "Statistic": "Maximum", "Period": 60, "EvaluationPeriods": 3, "Threshold": 120,
            "ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "notBreaching"});
        let alarm = alarm(&age);
        let aged = |minute: i64, age: f64| {
            Point::of_service(minute * MINUTE, "AWS/SQS", "ApproximateAgeOfOldestMessage", ("QueueName", "plan.fifo"), age)
        };
        assert!(is_on(&alarm, &[aged(0, 121.0), aged(1, 181.0), aged(2, 241.0)], 3));
        assert!(!is_on(&alarm, &[aged(0, 120.0), aged(1, 180.0), aged(2, 240.0)], 3));
        assert!(alarm.is_of_a_service());
    }

    #[test]
    fn each_contributor_of_a_query_breaches_by_itself() {
        let head = r#"SELECT SUM("whittle_problems") FROM SCHEMA("${MetricsNamespace}", "cluster", "problem")"#;
        let expression = format!(r#"{head} GROUP BY "cluster", "problem" ORDER BY SUM() DESC"#);
        let problems = json!({"Metrics": [{"Id": "p", "Period": 300, "Expression": {"Fn::Sub": expression}}], "EvaluationPeriods": 1,
            "Threshold": 2, "ComparisonOperator": "GreaterThanOrEqualToThreshold", "TreatMissingData": "notBreaching"});
        let alarm = alarm(&problems);
        let found = |cluster: &str, problem: &str| Point {
            at: MINUTE,
            namespace: "Whittle".to_owned(),
            metric: "whittle_problems".to_owned(),
            dimensions: BTreeMap::from([("cluster".to_owned(), cluster.to_owned()), ("problem".to_owned(), problem.to_owned())]),
            value: 1.0,
        };
        let mut wider = found("c", "pods_wait");
        wider.dimensions.insert("function".to_owned(), "schedule".to_owned());
        let a = found("a", "pods_wait");
        let points = [a.clone(), a, found("b", "pods_wait"), found("b", "never_joined"), wider.clone(), wider];
        assert_eq!(alarm.breaches(&points, 5 * MINUTE), BTreeSet::from(["a, pods_wait".to_owned()]));
        assert!(alarm.breaches(&points, 7 * MINUTE).is_empty() && !alarm.is_of_a_service());
    }

    #[test]
    fn metrics_of_an_expression_are_added_or_compared_by_their_own_measure() {
        let part = |id: &str, function: &str| {
            json!({"Id": id, "ReturnData": false, "MetricStat": {"Stat": "Sum", "Period": 300, "Metric": {"Namespace": "AWS/Lambda",
                "MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": function}]}}})
        };
        let of = |expression: &str, threshold: f64| {
            let metrics = [json!({"Id": "all", "Expression": expression}), part("one", "whittle-Sweep-1"), part("two", "other")];
            alarm(&json!({"Metrics": metrics, "EvaluationPeriods": 1, "Threshold": threshold,
                "ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "notBreaching"}))
        };
        let points = [error_at(1), error_at(2)];
        assert!(is_on(&of("SUM(METRICS())", 1.0), &points, 5) && !is_on(&of("SUM(METRICS())", 2.0), &points, 5));
        assert!(is_on(&of("MAX([one / 2, two / 1])", 0.9), &points, 5) && !is_on(&of("MAX([one / 2, two / 1])", 1.0), &points, 5));
    }

    #[test]
    fn a_form_that_is_not_known_is_an_error_and_never_a_quiet_alarm() {
        for (field, value) in [
            ("Statistic", json!("Average")),
            ("TreatMissingData", json!("missing")),
            ("TreatMissingData", Value::Null),
            ("ComparisonOperator", json!("LessThanLowerThreshold")),
            ("DatapointsToAlarm", json!(1)),
            ("Namespace", json!({"Fn::If": ["A", "b", "c"]})),
        ] {
            let mut properties = errors();
            properties[field] = value;
            let template = template(&properties);
            let error = Alarm::all(&template, &Names::of_template(&template)).unwrap_err();
            assert!(error.to_string().contains("the alarm Alarm"), "{field}: {error}");
        }
    }
}
