//! A deployment, read with `aws`: its stack, its alarms, and the decisions that it keeps in its table (ADR 0051).

use super::waiting;
use crate::programs::{Program, ProgramError};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_claims::DecisionRecord;

/// Partitions of a cluster's decisions (`shared/dynamo/src/keys.rs`).
const SHARDS: u32 = 8;
/// How many decisions about one thing are read of each partition.
const ABOUT_MAX: usize = 500;

/// Which deployment to look at.
#[derive(Args, Clone, Debug, Default)]
pub struct StackArgs {
    /// The CloudFormation stack of a deployment: what it decided, and its alarms. It is read with aws and your own rights
    #[arg(long, value_name = "NAME")]
    pub stack: Option<String>,
    /// The profile of the AWS command line
    #[arg(long, value_name = "NAME", requires = "stack")]
    pub profile: Option<String>,
}

/// Why a deployment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// `aws` cannot be run, or has no answer.
    #[error("{what} of stack {stack} cannot be read: {error}")]
    Program { what: &'static str, stack: String, error: ProgramError },
    /// A stack of something else.
    #[error("stack {0} has no output TableName: name the stack that template.yaml was deployed as")]
    NotOurs(String),
}

/// A stack.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    aws: Program,
    pub(crate) stack: String,
    /// As CloudFormation calls it, such as `UPDATE_COMPLETE`.
    pub(crate) status: String,
    /// `active` or `shadow`.
    pub(crate) mode: String,
    pub(crate) clusters: Vec<String>,
    table: String,
}

/// An alarm that is in the state ALARM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Its name in the template, by which `docs/runbooks.md` has it.
    pub(crate) name: String,
    /// What it means.
    pub(crate) description: String,
    pub(crate) since: String,
}

/// Which decisions to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    /// The last ones.
    Last(usize),
    /// All that name one of these.
    About(&'a [String]),
}

impl StackArgs {
    /// Reads the stack that is asked for, if one is.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be read.
    pub(crate) fn deployment(&self, region: Option<&str>) -> Result<Option<Deployment>, DeploymentError> {
        let Some(stack) = &self.stack else { return Ok(None) };
        let aws = Program::aws(region, self.profile.as_deref());
        let answer = aws.json(&["cloudformation", "describe-stacks", "--stack-name", stack]);
        let answer = answer.map_err(|error| DeploymentError::Program { what: "the description", stack: stack.clone(), error })?;
        let found = answer.pointer("/Stacks/0").unwrap_or(&Value::Null);
        let pair = |list: &str, key: &str, name: &str, value: &str| {
            let mut pairs = found.get(list).and_then(Value::as_array).into_iter().flatten();
            let pair = pairs.find(|pair| pair.get(key).and_then(Value::as_str) == Some(name))?;
            pair.get(value)?.as_str().map(str::to_owned)
        };
        let parameter = |name: &str| pair("Parameters", "ParameterKey", name, "ParameterValue").unwrap_or_default();
        let table = pair("Outputs", "OutputKey", "TableName", "OutputValue").ok_or_else(|| DeploymentError::NotOurs(stack.clone()))?;
        let clusters = parameter("Clusters").split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let status = found.get("StackStatus").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Some(Deployment { aws, stack: stack.clone(), status, mode: parameter("Mode"), clusters, table }))
    }
}

impl Deployment {
    fn failed(&self, what: &'static str) -> impl Fn(ProgramError) -> DeploymentError + '_ {
        move |error| DeploymentError::Program { what, stack: self.stack.clone(), error }
    }

    /// The alarms of the stack that are in the state ALARM. CloudFormation begins their names with the stack's.
    pub(crate) fn alarms(&self) -> Result<Vec<Alarm>, DeploymentError> {
        let prefix = format!("{}-", self.stack);
        let arguments = ["cloudwatch", "describe-alarms", "--state-value", "ALARM", "--alarm-name-prefix", &prefix];
        let answer = self.aws.json(&arguments).map_err(self.failed("the alarms"))?;
        let text = |alarm: &Value, key: &str| alarm.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let alarms = answer.get("MetricAlarms").and_then(Value::as_array).into_iter().flatten();
        let own = self.alarm_names()?;
        // The names of another stack may begin with the name of this one.
        let alarms = alarms.filter(|alarm| own.contains(&text(alarm, "AlarmName")));
        let alarm = |alarm: &Value| {
            let full = text(alarm, "AlarmName");
            let name = full.strip_prefix(&prefix).unwrap_or(&full);
            let (name, _) = name.rsplit_once('-').unwrap_or((name, ""));
            Alarm { name: name.to_owned(), description: text(alarm, "AlarmDescription"), since: text(alarm, "StateTransitionedTimestamp") }
        };
        Ok(alarms.map(alarm).collect())
    }

    /// The names of the stack's alarms.
    fn alarm_names(&self) -> Result<BTreeSet<String>, DeploymentError> {
        let answer = self.aws.json(&["cloudformation", "list-stack-resources", "--stack-name", &self.stack]);
        let answer = answer.map_err(self.failed("the resources"))?;
        let resources = answer.get("StackResourceSummaries").and_then(Value::as_array).into_iter().flatten();
        let text = |resource: &Value, key: &str| resource.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let alarms = resources.filter(|resource| text(resource, "ResourceType") == "AWS::CloudWatch::Alarm");
        Ok(alarms.map(|alarm| text(alarm, "PhysicalResourceId")).collect())
    }

    /// Decisions of some clusters, the oldest first; all partitions at once. Those that cannot be read are left out and counted.
    pub(crate) fn decisions(&self, clusters: &[String], asked: Asked<'_>) -> Result<(Vec<DecisionRecord>, usize), DeploymentError> {
        let partitions: Vec<String> =
            clusters.iter().flat_map(|cluster| (0..SHARDS).map(move |shard| format!("DECISION#{cluster}#{shard}"))).collect();
        let answers = waiting::at_once(Some("reading the decisions"), &partitions, |partition| self.partition(partition, asked));
        let (mut found, mut unreadable, mut seen) = (Vec::new(), 0, BTreeSet::new());
        for answer in answers {
            for item in answer?.get("Items").and_then(Value::as_array).into_iter().flatten() {
                let text = |name: &str| item.pointer(&format!("/{name}/S")).and_then(Value::as_str).unwrap_or_default();
                match serde_json::from_str::<DecisionRecord>(text("data")) {
                    Ok(decision) if seen.insert((text("pk").to_owned(), text("sk").to_owned())) => found.push(decision),
                    Ok(_) => {}
                    Err(_) => unreadable += 1,
                }
            }
        }
        found.sort_by_key(|one: &DecisionRecord| one.at);
        if let Asked::Last(most) = asked {
            found.drain(..found.len().saturating_sub(most));
        }
        Ok((found, unreadable))
    }

    /// The newest decisions of a partition.
    fn partition(&self, partition: &str, asked: Asked<'_>) -> Result<Value, DeploymentError> {
        let mut values = json!({":pk": {"S": partition}});
        let (most, filter) = match asked {
            Asked::Last(most) => (most, None),
            Asked::About(names) => {
                names.iter().enumerate().for_each(|(at, name)| values[format!(":n{at}")] = json!({"S": name}));
                let parts: Vec<String> = (0..names.len()).map(|at| format!("contains(#data, :n{at})")).collect();
                (ABOUT_MAX, Some(parts.join(" OR ")))
            }
        };
        let (values, most) = (values.to_string(), most.to_string());
        let mut arguments = vec!["dynamodb", "query", "--table-name", &self.table, "--key-condition-expression", "pk = :pk"];
        arguments.extend(["--expression-attribute-values", &values, "--no-scan-index-forward", "--max-items", &most]);
        if let Some(filter) = &filter {
            arguments.extend(["--filter-expression", filter, "--expression-attribute-names", r##"{"#data": "data"}"##]);
        }
        self.aws.json(&arguments).map_err(self.failed("the decisions"))
    }

    /// Which of its clusters a context of a kubeconfig is for: the one whose name the context's cluster ends with, or all.
    pub(crate) fn clusters_of(&self, entry: Option<&str>) -> Vec<String> {
        let is_meant = |cluster: &&String| {
            let named = entry.map(|entry| entry.rsplit(['/', '@']).next().unwrap_or(entry));
            named.is_some_and(|name| name == cluster.as_str() || name.split('.').next() == Some(cluster.as_str()))
        };
        let meant: Vec<String> = self.clusters.iter().filter(is_meant).cloned().collect();
        if meant.is_empty() { self.clusters.clone() } else { meant }
    }
}

/// A time as `2026-01-01 09:30:12`, in UTC.
pub(crate) fn shown(at: Timestamp) -> String {
    at.strftime("%F %T").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_says_which_cluster_is_meant() {
        let deployment = Deployment {
            aws: Program::aws(None, None),
            stack: "whittle".to_owned(),
            status: String::new(),
            mode: String::new(),
            clusters: vec!["prod".to_owned(), "test".to_owned()],
            table: String::new(),
        };
        let of = |entry| deployment.clusters_of(entry);
        for entry in ["prod", "arn:aws:eks:eu-west-1:111122223333:cluster/prod", "prod.eu-west-1.eksctl.io", "me@prod"] {
            assert_eq!(of(Some(entry)), ["prod"], "{entry}");
        }
        assert_eq!(of(Some("other")), ["prod", "test"]);
        assert_eq!(of(None), ["prod", "test"]);
    }
}
