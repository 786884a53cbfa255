//! Checks that alarms use metrics that the functions emit, with the same dimensions, according to the catalogue, and in the stack's own
//! namespace. An alarm on a name or on dimensions that no function emits never fires, and CloudWatch does not report this; one in a fixed
//! namespace fires for the clusters of other stacks.

use crate::workspace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use whittle_ports::metrics::{self, CLUSTER, NAMESPACE};

/// The parameter of the stack that names CloudWatch's namespace of our own metrics.
const PARAMETER: &str = "MetricsNamespace";
/// Its value, in the texts of `Fn::Sub`: the transform resolves neither.
const OWN: &str = "${MetricsNamespace}";

/// The dimensions of each metric.
#[derive(Default)]
pub(crate) struct EmittedMetrics {
    dimensions: BTreeMap<String, BTreeSet<String>>,
    /// All code, to look up values of dimensions.
    code: String,
}

impl EmittedMetrics {
    /// The metrics of the workspace's functions.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let mut emitted = Self::default();
        for entry in metrics::ALL {
            emitted.record(entry.name, entry.labels.iter().map(|label| label.name));
        }
        let is_code = |name: &&String| {
            (name.starts_with("functions/") || name.starts_with("shared/")) && name.ends_with(".rs") && !name.ends_with("tests.rs")
        };
        for name in workspace::files(root)?.iter().filter(is_code) {
            let text = std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"))?;
            emitted.code.push_str(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        }
        Ok(emitted)
    }

    fn record<'l>(&mut self, name: &str, labels: impl IntoIterator<Item = &'l str>) {
        self.dimensions.insert(name.to_owned(), labels.into_iter().chain([CLUSTER]).map(str::to_owned).collect());
    }

    /// One sentence for each alarm of the transformed template on a metric of ours that no function emits with these dimensions, and for
    /// alarms and dashboards on metrics of another namespace than the stack's.
    pub(crate) fn unmatched(&self, template: &Value) -> Vec<String> {
        let faults = |resource: &Value| match resource["Type"].as_str() {
            Some("AWS::CloudWatch::Alarm") => self.check_alarm(&resource["Properties"]),
            Some("AWS::CloudWatch::Dashboard") => check_dashboard(&resource["Properties"]["DashboardBody"]),
            _ => Vec::new(),
        };
        let resources = template["Resources"].as_object().into_iter().flatten();
        resources.flat_map(|(name, resource)| faults(resource).into_iter().map(move |fault| format!("{name} {fault}"))).collect()
    }

    fn check_alarm(&self, properties: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        let parts: Vec<&Value> = properties["Metrics"].as_array().into_iter().flatten().collect();
        let plain = parts.iter().map(|part| &part["MetricStat"]["Metric"]).chain([properties]);
        for metric in plain.filter(|metric| !is_of_a_service(&metric["Namespace"])) {
            let namespace = &metric["Namespace"];
            if namespace["Ref"] != PARAMETER && namespace["Fn::Sub"] != OWN {
                faults.push(format!("watches {} in {namespace}; write !Ref {PARAMETER}, the stack's own namespace", metric["MetricName"]));
                continue;
            }
            let dimensions = metric["Dimensions"].as_array().into_iter().flatten();
            let dimensions = dimensions.filter_map(|dimension| dimension["Name"].as_str()).map(str::to_owned).collect();
            faults.extend(self.fault(metric["MetricName"].as_str().unwrap_or_default(), &dimensions));
        }
        for part in parts {
            let query = substituted(&part["Expression"]);
            if query.contains("SELECT") {
                faults.extend(self.check_query(query));
                if part["Expression"].is_string() && query.contains(OWN) {
                    faults.push(format!("asks `{query}` without !Sub, so that {OWN} stays as it is"));
                }
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
            let shape = format!(r#"SELECT F("metric") FROM SCHEMA("{OWN}", "dimension" …) … GROUP BY "{CLUSTER}" ORDER BY F() DESC"#);
            return vec![format!("asks `{query}`; write {shape}, with every name in quotes, by !Sub")];
        };
        let mut faults: Vec<String> = self.fault(&name, &dimensions).into_iter().collect();
        if ![r#" ORDER BY "#, r#", "problem" ORDER BY "#].iter().any(|end| query.contains(&format!(r#" GROUP BY "{CLUSTER}"{end}"#))) {
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
        if known == Some(dimensions) {
            return None;
        }
        let known = known.map_or_else(|| "no function emits it".to_owned(), |known| format!("functions emit it with {known:?}"));
        Some(format!("watches {name} with {dimensions:?}; {known}"))
    }
}

/// Whether a metric is one of AWS's own services, or there is none.
fn is_of_a_service(namespace: &Value) -> bool {
    namespace.is_null() || namespace.as_str().is_some_and(|name| name.starts_with("AWS/"))
}

/// A text with parameters or without, as it is in the template.
fn substituted(value: &Value) -> &str {
    let text = &value["Fn::Sub"];
    text.as_str().or_else(|| text[0].as_str()).or_else(|| value.as_str()).unwrap_or_default()
}

/// Errors of a dashboard: a search's schema, or a list of namespace, metric and dimensions, with a fixed namespace; and searches that find
/// metrics of others, or none.
fn check_dashboard(body: &Value) -> Vec<String> {
    let text = substituted(body).replace('\\', "");
    let fixed = [format!("{{{NAMESPACE},"), format!("\"{NAMESPACE}\"")].into_iter().filter(|fixed| text.contains(fixed));
    let fixed = fixed.map(|fixed| format!("shows metrics of `{fixed}`; write {OWN}, in quotes, the stack's own namespace"));
    let searches = text.split("SEARCH('").skip(1).filter_map(inexact);
    let searches = searches.map(|terms| format!("searches for `{terms}`; write {CLUSTER}=\"…\", with a whole name, or name the metrics"));
    fixed.chain(searches).collect()
}

/// The terms of a search that does not compare each dimension with a whole value: CloudWatch finds a term without a dimension in all of
/// them, and one without quotes in parts of values. In quotes it is a whole value, and no function has the name of the stack alone.
fn inexact(search: &str) -> Option<&str> {
    let (search, _) = search.split_once('\'')?;
    let terms = search.split_once("} ").map_or(search, |(_, terms)| terms);
    let is_exact = |term: &str| {
        let value = term.split_once('=').and_then(|(_, value)| unquoted(value));
        value.is_some_and(|value| !value.contains("${AWS::StackName}"))
    };
    (!terms.split_whitespace().all(is_exact)).then_some(terms)
}

/// The metric and the dimensions of a query.
fn parse_query(query: &str) -> Option<(String, BTreeSet<String>)> {
    let (function, rest) = query.strip_prefix("SELECT ")?.split_once('(')?;
    let (name, rest) = rest.split_once(") FROM SCHEMA(")?;
    let (names, rest) = rest.split_once(')')?;
    let mut names = names.split(", ").map(unquoted);
    let is_ours = names.next()?.is_some_and(|namespace| namespace == OWN);
    let is_ordered = rest.ends_with(&format!(" ORDER BY {function}() DESC"));
    let dimensions = names.collect::<Option<BTreeSet<String>>>()?;
    (is_ours && is_ordered).then_some((unquoted(name)?, dimensions))
}

/// A quoted name of a query without its quotes; `None` if it is not quoted.
fn unquoted(name: &str) -> Option<String> {
    Some(name.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(alarm: Value) -> Vec<String> {
        let mut emitted = EmittedMetrics { code: "\"late\"".to_owned(), ..EmittedMetrics::default() };
        emitted.record("whittle_a_total", ["nodepool", "reason"]);
        emitted.record("whittle_b", ["kind"]);
        emitted.record("whittle_times_total", []);
        emitted.record("whittle_c", ["why"]);
        emitted.record("runs", ["function"]);
        emitted.unmatched(&json!({"Resources": {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": alarm}}}))
    }

    /// A query with `OWN` in place of the stack's own namespace, as the transformed template has it.
    fn expression(query: &str) -> Value {
        json!({"Fn::Sub": query.replace("SCHEMA(OWN,", &format!("SCHEMA(\"{OWN}\","))})
    }

    fn faults_of_query(query: &str) -> Vec<String> {
        faults(json!({"Metrics": [{"Id": "a", "Period": 300, "Expression": expression(query)}]}))
    }

    #[test]
    fn alarms_on_emitted_metrics_are_valid() {
        for (head, tail) in [
            (r#"SUM("whittle_a_total") FROM SCHEMA(OWN, "cluster", "nodepool", "reason")"#, "SUM"),
            (r#"MAX("whittle_b") FROM SCHEMA(OWN, "cluster", "kind")"#, "MAX"),
            (r#"SUM("whittle_times_total") FROM SCHEMA(OWN, "cluster")"#, "SUM"),
            (r#"MAX("whittle_c") FROM SCHEMA(OWN, "cluster", "why") WHERE "why" = 'late'"#, "MAX"),
            (r#"SUM("runs") FROM SCHEMA(OWN, "cluster", "function") WHERE "function" = 'late' AND "cluster" != 'late'"#, "SUM"),
        ] {
            assert_eq!(faults_of_query(&whole(head, tail)), Vec::<String>::new());
        }
        for namespace in [json!({"Ref": "MetricsNamespace"}), json!({"Fn::Sub": "${MetricsNamespace}"})] {
            let runs = json!({"Namespace": namespace, "MetricName": "runs", "Dimensions": [{"Name": "function"}, {"Name": "cluster"}]});
            assert_eq!(faults(runs), Vec::<String>::new());
        }
        assert_eq!(faults(json!({"Namespace": "AWS/SQS", "MetricName": "x"})), Vec::<String>::new());
    }

    fn whole(head: &str, function: &str) -> String {
        format!(r#"SELECT {head} GROUP BY "cluster" ORDER BY {function}() DESC"#)
    }

    #[test]
    fn an_alarm_on_a_metric_that_is_not_emitted_is_reported() {
        let late = r#"MAX("whittle_c") FROM SCHEMA(OWN, "cluster", "why") WHERE"#;
        for (query, fault) in [
            (whole(r#"SUM("whittle_z_total") FROM SCHEMA(OWN, "cluster")"#, "SUM"), "no function emits it"),
            (whole(r#"SUM("whittle_a_total") FROM SCHEMA(OWN, "cluster")"#, "SUM"), "functions emit it with"),
            (r#"SELECT MAX("whittle_b") FROM SCHEMA(OWN, "cluster", "kind") ORDER BY MAX() DESC"#.to_owned(), "which cluster"),
            (r#"SELECT MAX("whittle_b") FROM SCHEMA(OWN, "cluster", "kind") GROUP BY "cluster""#.to_owned(), "write SELECT"),
            (whole(&format!("{late} \"why\" = 'never'"), "MAX"), "no function says"),
            (whole(&format!("{late} \"why\" = 'late' AND \"kind\" != 'late'"), "MAX"), "no function says"),
        ] {
            let found = faults_of_query(&query);
            assert!(found.len() == 1 && found[0].starts_with("Alarm ") && found[0].contains(fault), "{found:?}");
        }
        let runs = json!({"Namespace": {"Ref": "MetricsNamespace"}, "MetricName": "runs", "Dimensions": [{"Name": "cluster"}]});
        assert_eq!(faults(runs).len(), 1);
        let query = whole(r#"MAX("whittle_b") FROM SCHEMA(OWN, "cluster", "kind")"#, "MAX");
        assert_eq!(faults(json!({"Metrics": [{"Id": "a", "Expression": expression(&query)}]})).len(), 1, "without a period");
    }

    /// Two stacks of an account and region would raise each other's alarms.
    #[test]
    fn an_alarm_or_a_dashboard_on_another_namespace_is_reported() {
        let query = |namespace: &str| whole(&format!(r#"MAX("whittle_b") FROM SCHEMA("{namespace}", "cluster", "kind")"#), "MAX");
        let of = |expression: Value| faults(json!({"Metrics": [{"Id": "a", "Period": 300, "Expression": expression}]}));
        assert_eq!(of(json!({"Fn::Sub": query(OWN)})), Vec::<String>::new());
        for fixed in [json!(query("Whittle")), json!({"Fn::Sub": query("Whittle")}), json!({"Fn::Sub": query("${Metrics}")})] {
            let found = of(fixed);
            assert!(found.len() == 1 && found[0].contains(OWN), "{found:?}");
        }
        let literal = of(json!(query(OWN)));
        assert!(literal.len() == 1 && literal[0].contains("without !Sub"), "{literal:?}");
        let runs = json!({"Namespace": "Whittle", "MetricName": "runs", "Dimensions": [{"Name": "function"}, {"Name": "cluster"}]});
        let found = faults(runs);
        assert!(found.len() == 1 && found[0].contains("!Ref MetricsNamespace"), "{found:?}");
        let shown = |text: &str| {
            let dashboard = json!({"Type": "AWS::CloudWatch::Dashboard", "Properties": {"DashboardBody": {"Fn::Sub": text}}});
            EmittedMetrics::default().unmatched(&json!({"Resources": {"Overview": dashboard}}))
        };
        for text in [r#"["Whittle", "x"]"#, r#""{Whittle,cluster} y""#, r#""{\"Whittle\",cluster} y""#] {
            let found = shown(text);
            assert!(found.len() == 1 && found[0].starts_with("Overview ") && found[0].contains(OWN), "{text}: {found:?}");
        }
        assert_eq!(shown(r#"["${MetricsNamespace}", "x"], "{\"${MetricsNamespace}\",cluster} y""#), Vec::<String>::new());
    }

    /// Two stacks may be named `whittle` and `whittle-dev`, and a cluster like a function.
    #[test]
    fn a_search_for_anything_but_whole_values_of_dimensions_is_reported() {
        let shown = |terms: &str| {
            let text = format!(r#""SEARCH('{{AWS/Lambda,FunctionName}} {terms}', 'Sum', 60)""#).replace('"', "\\\"");
            check_dashboard(&json!({"Fn::Sub": [text, {"TableName": {"Ref": "Table"}}]}))
        };
        assert_eq!(shown(r#"MetricName="Errors" FunctionName="${Sweep}""#), Vec::<String>::new());
        for terms in [
            r#"MetricName="Errors" whittle"#,
            r#"MetricName="Errors" "whittle-dev-Sweep""#,
            r#"MetricName="Errors" FunctionName=whittle"#,
            r#"FunctionName="${AWS::StackName}""#,
        ] {
            let found = shown(terms);
            assert!(found.len() == 1 && found[0].contains(terms), "{terms}: {found:?}");
        }
    }

    #[test]
    fn the_dashboard_shows_every_function_and_queue() {
        let template = std::fs::read_to_string(workspace::root().join("template.yaml")).expect("it exists");
        let (_, dashboard) = template.split_once("DashboardBody:").expect("it has a dashboard");
        let lines: Vec<&str> = template.lines().collect();
        let mut shown = 0;
        for pair in lines.windows(2) {
            let attribute = match pair[1] {
                "    Type: AWS::Serverless::Function" => "",
                "    Type: AWS::SQS::Queue" => ".QueueName",
                _ => continue,
            };
            let name = pair[0].trim().trim_end_matches(':');
            assert!(dashboard.contains(&format!("\"${{{name}{attribute}}}\"")), "{name} is not on the dashboard");
            shown += 1;
        }
        assert!(shown > 20, "{shown}");
    }

    #[test]
    fn the_templates_default_is_the_namespace_of_functions_that_are_told_none() {
        let template = std::fs::read_to_string(workspace::root().join("template.yaml")).expect("it exists");
        assert!(template.contains(&format!("\n  {PARAMETER}:\n    Type: String\n    Default: {NAMESPACE}\n")));
        assert!(template.contains(&format!("_NAMESPACE: !Ref {PARAMETER}\n")), "the functions are told what the alarms ask");
        assert_eq!(OWN, format!("${{{PARAMETER}}}"));
    }

    /// CloudWatch rejects such an alarm, and the deployment fails.
    #[test]
    fn an_unquoted_keyword_in_a_query_is_reported() {
        for query in [
            whole(r#"MAX(whittle_b) FROM SCHEMA(OWN, "cluster", "kind")"#, "MAX"),
            whole(r#"MAX("whittle_b") FROM SCHEMA(OWN, cluster, "kind")"#, "MAX"),
            whole(r#"MAX("whittle_c") FROM SCHEMA(OWN, "cluster", "why") WHERE why = 'late'"#, "MAX"),
            whole(r#"MAX("whittle_b") FROM SCHEMA(OWN, "cluster", "kind")"#, "MAX").replace(r#"BY "cluster""#, "BY cluster"),
        ] {
            assert_eq!(faults_of_query(&query).len(), 1, "{query}");
        }
    }
}
