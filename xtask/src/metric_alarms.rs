//! Checks that alarms watch metrics that the functions emit, with the same dimensions, according to their code.
//! An alarm on a name or on dimensions that no function emits never fires, and CloudWatch does not report this.

use crate::workspace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// CloudWatch's namespace of our own metrics.
const NAMESPACE: &str = "Whittle";
/// Calls that emit a metric: its name comes first, its labels second.
const CALLS: &[&str] = &[".metric(", ".metric_by(", ".gauge("];
/// The dimension that all of them have.
const CLUSTER: &str = "cluster";

/// The sets of dimensions of each metric.
#[derive(Default)]
pub(crate) struct EmittedMetrics {
    dimensions: BTreeMap<String, BTreeSet<BTreeSet<String>>>,
    /// All text, for the values that dimensions may have.
    code: String,
}

impl EmittedMetrics {
    /// The metrics of the workspace's functions.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let mut metric_alarms = Self::default();
        let is_code = |name: &&String| {
            (name.starts_with("functions/") || name.starts_with("shared/")) && name.ends_with(".rs") && !name.ends_with("tests.rs")
        };
        for name in workspace::files(root)?.iter().filter(is_code) {
            let text = std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"))?;
            metric_alarms.take(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        }
        Ok(metric_alarms)
    }

    fn take(&mut self, code: &str) {
        self.code.push_str(code);
        for call in CALLS {
            for (at, _) in code.match_indices(call) {
                let (before, arguments) = (&code[..at], code[at + call.len()..].trim_start());
                if let Some((name, rest)) = name_in(arguments, before)
                    && let Some(labels) = labels_in(rest, before)
                {
                    self.note(&name, labels.into_iter().chain([CLUSTER.to_owned()]));
                }
            }
        }
        // EMF lines that are written directly.
        for (at, _) in code.match_indices("emf(at, &[") {
            let mut lists = code[at..].split("&[").skip(1).map(|list| quoted(list.split(']').next().unwrap_or_default()));
            let dimensions = lists.next().unwrap_or_default();
            for name in lists.next().unwrap_or_default() {
                self.note(&name, dimensions.clone());
            }
        }
    }

    fn note(&mut self, name: &str, dimensions: impl IntoIterator<Item = String>) {
        self.dimensions.entry(name.to_owned()).or_default().insert(dimensions.into_iter().collect());
    }

    /// One sentence for each alarm of the transformed template on one of our metrics that no function emits like this.
    pub(crate) fn unmatched_alarms(&self, template: &Value) -> Vec<String> {
        let alarms = template["Resources"].as_object().into_iter().flatten();
        let alarms = alarms.filter(|(_, resource)| resource["Type"] == "AWS::CloudWatch::Alarm");
        alarms
            .flat_map(|(name, alarm)| self.check_alarm(&alarm["Properties"]).into_iter().map(move |fault| format!("{name} {fault}")))
            .collect()
    }

    fn check_alarm(&self, properties: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        let parts: Vec<&Value> = properties["Metrics"].as_array().into_iter().flatten().collect();
        let plain = parts.iter().map(|part| &part["MetricStat"]["Metric"]).chain([properties]);
        for metric in plain.filter(|metric| metric["Namespace"] == NAMESPACE) {
            let dimensions = metric["Dimensions"].as_array().into_iter().flatten();
            let dimensions = dimensions.filter_map(|dimension| dimension["Name"].as_str()).map(str::to_owned).collect();
            faults.extend(self.fault(metric["MetricName"].as_str().unwrap_or_default(), &dimensions));
        }
        for part in parts {
            let query = part["Expression"].as_str().unwrap_or_default();
            if query.contains("SELECT") {
                faults.extend(self.check_query(query));
                if part["Period"].as_u64().is_none() {
                    faults.push(format!("asks `{query}` without a Period, which CloudWatch refuses"));
                }
            }
        }
        faults
    }

    /// Errors of a CloudWatch query: one alarm for all clusters needs GROUP BY and ORDER BY, and many words, `cluster`
    /// and `function` among them, are keywords unless quoted.
    fn check_query(&self, query: &str) -> Vec<String> {
        let Some((name, dimensions)) = parse_query(query) else {
            let shape = format!(r#"SELECT F("metric") FROM SCHEMA("{NAMESPACE}", "dimension" …) … GROUP BY "{CLUSTER}" ORDER BY F() DESC"#);
            return vec![format!("asks `{query}`; write {shape}, with every name in quotes")];
        };
        let mut faults: Vec<String> = self.fault(&name, &dimensions).into_iter().collect();
        if !query.contains(&format!(r#" GROUP BY "{CLUSTER}" ORDER BY "#)) {
            faults.push(format!("asks `{query}`, which does not say which {CLUSTER}"));
        }
        let wanted = query.split_once(" WHERE ").and_then(|(_, after)| after.split_once(" GROUP BY ")).map_or("", |(wanted, _)| wanted);
        for term in wanted.split(" AND ").filter(|term| !term.is_empty()) {
            let known = [" = '", " != '"].iter().filter_map(|operator| term.split_once(operator)).any(|(column, value)| {
                let value = value.trim_end_matches('\'');
                unquoted(column).is_some_and(|column| dimensions.contains(&column)) && self.code.contains(&format!("\"{value}\""))
            });
            if !known {
                faults.push(format!("asks for {term}, which no function says, or whose name is not in quotes"));
            }
        }
        faults
    }

    fn fault(&self, name: &str, dimensions: &BTreeSet<String>) -> Option<String> {
        let known = self.dimensions.get(name);
        if known.is_some_and(|known| known.contains(dimensions)) {
            return None;
        }
        let known = known.map_or_else(|| "no function emits it".to_owned(), |known| format!("functions emit it with {known:?}"));
        Some(format!("watches {name} with {dimensions:?}; {known}"))
    }
}

/// The metric and the dimensions of a query.
fn parse_query(query: &str) -> Option<(String, BTreeSet<String>)> {
    let (function, rest) = query.strip_prefix("SELECT ")?.split_once('(')?;
    let (name, rest) = rest.split_once(") FROM SCHEMA(")?;
    let (names, rest) = rest.split_once(')')?;
    let mut names = names.split(", ").map(unquoted);
    let is_ours = names.next()?.is_some_and(|namespace| namespace == NAMESPACE);
    let is_ordered = rest.ends_with(&format!(" ORDER BY {function}() DESC"));
    let dimensions = names.collect::<Option<BTreeSet<String>>>()?;
    (is_ours && is_ordered).then_some((unquoted(name)?, dimensions))
}

/// A quoted name of a query without its quotes; `None` if it is not quoted.
fn unquoted(name: &str) -> Option<String> {
    Some(name.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

/// The metric of a call, as a literal, a constant or a variable, and the rest of the arguments.
fn name_in<'c>(arguments: &'c str, before: &str) -> Option<(String, &'c str)> {
    if let Some(text) = arguments.strip_prefix('"') {
        let (name, rest) = text.split_once('"')?;
        return Some((name.to_owned(), rest));
    }
    let (variable, rest) = arguments.split_once(',')?;
    let (_, value) =
        before.rsplit_once(&format!("let {variable} = \"")).or_else(|| before.rsplit_once(&format!("const {variable}: &str = \"")))?;
    Some((value.split('"').next()?.to_owned(), rest))
}

/// The labels of a call: a list, or a variable that holds one.
fn labels_in(rest: &str, before: &str) -> Option<Vec<String>> {
    let rest = rest.trim_start_matches([',', ' ', '\n']);
    let list = match rest.strip_prefix('[') {
        Some(list) => list,
        None => {
            let variable = rest.split([',', ')']).next()?.trim();
            let (_, value) = before.rsplit_once(&format!("let {variable} ="))?;
            value.trim_start().strip_prefix('[')?
        }
    };
    let mut open = 1;
    let end = list.find(|letter| {
        open += i32::from(letter == '[') - i32::from(letter == ']');
        open == 0
    })?;
    let pairs = list[..end].split("(\"").skip(1).filter_map(|pair| pair.split_once("\","));
    Some(pairs.map(|(label, _)| label.to_owned()).filter(|label| is_name(label)).collect())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The first text of each pair, or each text, of a list.
fn quoted(list: &str) -> Vec<String> {
    if list.contains('(') {
        return list.split("(\"").skip(1).filter_map(|pair| pair.split('"').next()).map(str::to_owned).collect();
    }
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CODE: &str = r#"
        const TIMES: &str = "whittle_times_total";
        report.metric("whittle_a_total", [("nodepool", pool), ("reason", tags.get("x").map_or("", str))]);
        let labels = [("kind", kind)];
        report.gauge("whittle_b", labels, Amount::Count(1));
        report.metric_by(TIMES, [], 0);
        let metric = "whittle_c";
        report.gauge(metric, [("why", "late")], Amount::Count(1));
        emf(at, &["function", "cluster"], &[("duration_ms", "Milliseconds"), ("runs", "Count")], fields)
    "#;

    fn faults(alarm: Value) -> Vec<String> {
        let mut metric_alarms = EmittedMetrics::default();
        metric_alarms.take(CODE);
        metric_alarms.unmatched_alarms(&json!({"Resources": {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": alarm}}}))
    }

    fn asking(query: &str) -> Vec<String> {
        faults(json!({"Metrics": [{"Id": "a", "Period": 300, "Expression": query}]}))
    }

    #[test]
    fn what_functions_emit_may_be_watched() {
        for (head, tail) in [
            (r#"SUM("whittle_a_total") FROM SCHEMA("Whittle", "cluster", "nodepool", "reason")"#, "SUM"),
            (r#"MAX("whittle_b") FROM SCHEMA("Whittle", "cluster", "kind")"#, "MAX"),
            (r#"SUM("whittle_times_total") FROM SCHEMA("Whittle", "cluster")"#, "SUM"),
            (r#"MAX("whittle_c") FROM SCHEMA("Whittle", "cluster", "why") WHERE "why" = 'late'"#, "MAX"),
            (r#"SUM("runs") FROM SCHEMA("Whittle", "cluster", "function") WHERE "function" = 'late' AND "cluster" != 'late'"#, "SUM"),
        ] {
            assert_eq!(asking(&whole(head, tail)), Vec::<String>::new());
        }
        let runs = json!({"Namespace": "Whittle", "MetricName": "runs", "Dimensions": [{"Name": "function"}, {"Name": "cluster"}]});
        assert_eq!(faults(runs), Vec::<String>::new());
        assert_eq!(faults(json!({"Namespace": "AWS/SQS", "MetricName": "x"})), Vec::<String>::new());
    }

    fn whole(head: &str, function: &str) -> String {
        format!(r#"SELECT {head} GROUP BY "cluster" ORDER BY {function}() DESC"#)
    }

    #[test]
    fn an_alarm_on_what_nobody_emits_is_found() {
        let late = r#"MAX("whittle_c") FROM SCHEMA("Whittle", "cluster", "why") WHERE"#;
        for (query, fault) in [
            (whole(r#"SUM("whittle_z_total") FROM SCHEMA("Whittle", "cluster")"#, "SUM"), "no function emits it"),
            (whole(r#"SUM("whittle_a_total") FROM SCHEMA("Whittle", "cluster")"#, "SUM"), "functions emit it with"),
            (r#"SELECT MAX("whittle_b") FROM SCHEMA("Whittle", "cluster", "kind") ORDER BY MAX() DESC"#.to_owned(), "which cluster"),
            (r#"SELECT MAX("whittle_b") FROM SCHEMA("Whittle", "cluster", "kind") GROUP BY "cluster""#.to_owned(), "write SELECT"),
            (whole(&format!("{late} \"why\" = 'never'"), "MAX"), "no function says"),
            (whole(&format!("{late} \"why\" = 'late' AND \"kind\" != 'late'"), "MAX"), "no function says"),
        ] {
            let found = asking(&query);
            assert!(found.len() == 1 && found[0].starts_with("Alarm ") && found[0].contains(fault), "{found:?}");
        }
        let runs = json!({"Namespace": "Whittle", "MetricName": "runs", "Dimensions": [{"Name": "cluster"}]});
        assert_eq!(faults(runs).len(), 1);
        let query = whole(r#"MAX("whittle_b") FROM SCHEMA("Whittle", "cluster", "kind")"#, "MAX");
        assert_eq!(faults(json!({"Metrics": [{"Id": "a", "Expression": query}]})).len(), 1, "without a period");
    }

    /// CloudWatch refuses the alarm, and with it the whole stack.
    #[test]
    fn no_keyword_of_cloudwatch_stands_without_quotes() {
        for query in [
            whole(r#"MAX(whittle_b) FROM SCHEMA("Whittle", "cluster", "kind")"#, "MAX"),
            whole(r#"MAX("whittle_b") FROM SCHEMA("Whittle", cluster, "kind")"#, "MAX"),
            whole(r#"MAX("whittle_c") FROM SCHEMA("Whittle", "cluster", "why") WHERE why = 'late'"#, "MAX"),
            whole(r#"MAX("whittle_b") FROM SCHEMA("Whittle", "cluster", "kind")"#, "MAX").replace(r#"BY "cluster""#, "BY cluster"),
        ] {
            assert_eq!(asking(&query).len(), 1, "{query}");
        }
    }
}
