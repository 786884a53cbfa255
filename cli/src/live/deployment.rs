//! A deployment, read with `aws`: its stack with what it made, its alarms, and the decisions that it keeps in its table (ADR 0051).

use super::account::{Account, list, text};
use crate::look::waiting;
use crate::programs::{Program, ProgramError};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use whittle_claims::{DecisionRecord, SHARDS, shard_of};

/// How many decisions about one thing are read of each partition.
const ABOUT_MAX: usize = 500;

/// The functions that call clusters, with the groups of their access entries (`infra/cluster/rbac.yaml`).
pub(crate) const FUNCTIONS: [(&str, &str, [&str; 2]); 8] = [
    ("schedule", "ScheduleRoleArn", ["whittle:read", "whittle:plan"]),
    ("launch", "LaunchRoleArn", ["whittle:read", "whittle:plan"]),
    ("interrupt", "InterruptRoleArn", ["whittle:read", "whittle:plan"]),
    ("consolidate", "ConsolidateRoleArn", ["whittle:read", "whittle:nodes"]),
    ("register", "RegisterRoleArn", ["whittle:read", "whittle:nodes"]),
    ("sweep", "SweepRoleArn", ["whittle:read", "whittle:nodes"]),
    ("terminate", "TerminateRoleArn", ["whittle:read", "whittle:terminate"]),
    ("refresh", "RefreshRoleArn", ["whittle:read", "whittle:refresh"]),
];

/// A stack as `describe-stacks` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) partition: String,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) outputs: BTreeMap<String, String>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// How many letters are shown of an answer that was not expected.
const SHOWN: usize = 60;

/// What the names of clusters' own node roles begin with.
const NODE_ROLE: &str = "KarpenterNodeRole-";

/// Whether a pattern of roles may cover those of several clusters, as the default of `NodeRoles` does: no single cluster gets that.
fn may_cover_others(pattern: &str) -> bool {
    let bare = pattern.rsplit('/').next().unwrap_or(pattern);
    let begins = bare.split(['*', '?']).next().unwrap_or_default();
    begins.len() < bare.len() && (begins.starts_with(NODE_ROLE) || NODE_ROLE.starts_with(begins))
}

impl Stack {
    /// Whether it decides and logs, and changes nothing.
    pub(crate) fn is_shadow(&self) -> bool {
        self.parameter("Mode") == "shadow"
    }

    /// Reads it.
    pub(crate) fn read(account: &Account<'_>, name: &str) -> Result<Self, String> {
        Self::find(account, name)?.map_err(|error| {
            let hint = "deploy it first (sam build, sam deploy), or name another one by --stack, or its region by --region, or its account \
                        by --profile";
            format!("the stack {name} cannot be read: {hint}: {error}")
        })
    }

    /// Reads it; inside, what CloudFormation says of a stack that does not exist.
    pub(crate) fn find(account: &Account<'_>, name: &str) -> Result<Result<Self, ProgramError>, String> {
        let answer = match account.ask(&["cloudformation", "describe-stacks", "--stack-name", name]) {
            Ok(answer) => answer,
            Err(error) if error.says("does not exist") => return Ok(Err(error)),
            Err(error) => return Err(format!("the stack {name} cannot be read: {error}")),
        };
        let stack = list(&answer, "/Stacks").first().ok_or_else(|| {
            let came = answer.to_string();
            let came: String = if came.chars().count() <= SHOWN { came } else { came.chars().take(SHOWN).chain(['…']).collect() };
            format!(
                "the stack {name} cannot be read: `aws cloudformation describe-stacks` printed {came}, without a stack in a list Stacks: is \
                 `aws` AWS's own command?"
            )
        })?;
        let read = Self::of(stack).ok_or_else(|| format!("the stack {name} cannot be read: its ARN is {:?}", text(stack, "/StackId")));
        read.map(Ok)
    }

    /// A stack that was deleted: what is known of it is the account that it was in.
    pub(crate) fn deleted(account: &Account<'_>, name: &str) -> Result<Self, String> {
        let caller = account.ask(&["sts", "get-caller-identity"]).map_err(|error| format!("the account cannot be read: {error}"))?;
        let partition = text(&caller, "/Arn").split(':').nth(1).unwrap_or("aws").to_owned();
        Ok(Self { name: name.to_owned(), partition, account: text(&caller, "/Account").to_owned(), ..Self::default() })
    }

    fn of(stack: &Value) -> Option<Self> {
        let arn = text(stack, "/StackId");
        let parts: Vec<&str> = arn.split(':').collect();
        let &["arn", partition, _, region, account, ..] = parts.as_slice() else { return None };
        let pairs = |at: &str, key: &str, value: &str| {
            list(stack, at).iter().map(|pair| (text(pair, key).to_owned(), text(pair, value).to_owned())).collect()
        };
        Some(Self {
            name: text(stack, "/StackName").to_owned(),
            status: text(stack, "/StackStatus").to_owned(),
            partition: partition.to_owned(),
            region: region.to_owned(),
            account: account.to_owned(),
            parameters: pairs("/Parameters", "/ParameterKey", "/ParameterValue"),
            outputs: pairs("/Outputs", "/OutputKey", "/OutputValue"),
            tags: pairs("/Tags", "/Key", "/Value"),
        })
    }

    /// What is to be done before its functions can be relied on. None if it is as it was deployed, or as before a deployment that failed
    /// and was taken back.
    pub(crate) fn repair(&self) -> Option<String> {
        let by = |verb: &str| format!("aws cloudformation {verb} --stack-name {} --region {}", self.name, self.region);
        let events = format!("its events say what failed: {}", by("describe-stack-events"));
        let first = match self.status.as_str() {
            "CREATE_COMPLETE" | "UPDATE_COMPLETE" | "UPDATE_ROLLBACK_COMPLETE" | "IMPORT_COMPLETE" | "IMPORT_ROLLBACK_COMPLETE" => {
                return None;
            }
            "REVIEW_IN_PROGRESS" => {
                let why = "nothing of it was made, since its change set was not executed";
                return Some(format!("{why}: deploy it again (sam build, sam deploy), and confirm the changes"));
            }
            status if status.ends_with("_IN_PROGRESS") => "wait for it to end, then run this again".to_owned(),
            // They never ran, so that no machine and no record is lost.
            "CREATE_FAILED" | "ROLLBACK_COMPLETE" | "ROLLBACK_FAILED" => {
                format!("delete the stack and deploy it again: {}; sam build, sam deploy", by("delete-stack"))
            }
            "UPDATE_FAILED" => {
                let back = by("rollback-stack");
                format!("correct what failed and deploy again (sam build, sam deploy), or take the deployment back: {back}")
            }
            "UPDATE_ROLLBACK_FAILED" => by("continue-update-rollback"),
            "DELETE_FAILED" => format!("delete it again, once nothing keeps what is left of it: {}", by("delete-stack")),
            _ => return Some(events),
        };
        Some(format!("{first}; {events}"))
    }

    /// Why it lacks an output that every stack of ours has. `called`: the name by which it was asked for.
    pub(crate) fn lacks(&self, called: &str, output: &str) -> String {
        match self.repair().filter(|_| !self.status.is_empty()) {
            Some(repair) => format!("stack {called} is in state {}, and has no output {output}: {repair}", self.status),
            None => format!("stack {called} has no output {output}: name the stack that template.yaml was deployed as"),
        }
    }

    /// A parameter's value; empty if it has none.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }

    /// An output's value; empty if it has none.
    pub(crate) fn output(&self, name: &str) -> &str {
        self.outputs.get(name).map_or("", String::as_str)
    }

    /// The clusters that it serves.
    pub(crate) fn clusters(&self) -> Vec<String> {
        whittle_ports::names_of(self.parameter("Clusters"))
    }

    /// Where the relay's secret is stored.
    pub(crate) fn secret_parameter(&self) -> &str {
        Some(self.parameter("RelaySecret")).filter(|name| !name.is_empty()).unwrap_or("/whittle/relay-secret")
    }

    /// Whether webhooks may call the relay.
    pub(crate) fn takes_webhooks(&self) -> bool {
        !matches!(self.parameter("RelayAuth"), "AWS_IAM" | "OFF")
    }

    /// Whether nothing can call the relay: there are regions in which Lambda has no Function URLs.
    pub(crate) fn has_no_relay(&self) -> bool {
        self.parameter("RelayAuth") == "OFF"
    }

    /// The host of the relay's URL; none if there is no such output.
    pub(crate) fn relay_host(&self) -> Option<&str> {
        let host = self.output("RelayUrl").trim_start_matches("https://").trim_end_matches('/');
        (!host.is_empty()).then_some(host)
    }

    /// The command that deploys it again with a list of clusters; other parameters keep their values, and nodes their roles.
    pub(crate) fn deploy_line(&self, clusters: &[String]) -> String {
        let name = if self.name == "whittle" { String::new() } else { format!(" --stack-name {}", self.name) };
        let roles = self.roles_to_keep(clusters).map_or_else(String::new, |entry| format!(" ClusterNodeRoles=\"{entry}\""));
        format!("sam deploy{name} --region {} --parameter-overrides Clusters={}{roles}", self.region, clusters.join(","))
    }

    /// The entry of `ClusterNodeRoles` that a cluster needs which is the only one until now. Alone it may have all of `NodeRoles`; beside
    /// another it may have `KarpenterNodeRole-CLUSTER`, and nothing is launched with a node class that names another role (ADR 0023).
    fn roles_to_keep(&self, clusters: &[String]) -> Option<String> {
        let until_now = self.clusters();
        let [alone] = until_now.as_slice() else { return None };
        let gets_company = clusters.len() > 1 && clusters.contains(alone);
        if !gets_company || !self.parameter("ClusterNodeRoles").trim().is_empty() {
            return None;
        }
        let all = whittle_ports::names_of(self.parameter("NodeRoles"));
        let others: Vec<&str> = all.iter().map(String::as_str).filter(|role| !may_cover_others(role)).collect();
        (!others.is_empty()).then(|| format!("{alone}={NODE_ROLE}{alone},{}", others.join(",")))
    }

    /// What it made.
    pub(crate) fn resources(&self, account: Account<'_>) -> Result<Vec<Resource>, ProgramError> {
        let answer = account.ask(&["cloudformation", "list-stack-resources", "--stack-name", &self.name])?;
        let resource = |one: &Value| Resource {
            kind: text(one, "/ResourceType").to_owned(),
            name: text(one, "/LogicalResourceId").to_owned(),
            id: text(one, "/PhysicalResourceId").to_owned(),
        };
        Ok(list(&answer, "/StackResourceSummaries").iter().map(resource).collect())
    }
}

/// Something that a stack made.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// Its type, such as `AWS::SQS::Queue`.
    pub(crate) kind: String,
    /// Its name in the template.
    pub(crate) name: String,
    pub(crate) id: String,
}

/// An alarm that is in the state ALARM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Its name in the template, by which `docs/runbooks.md` has it.
    pub(crate) name: String,
    /// What it means.
    pub(crate) description: String,
    pub(crate) since: String,
}

impl Alarm {
    /// The alarms of a stack that are in the state ALARM.
    pub(crate) fn raised(account: Account<'_>, stack: &Stack, made: &[Resource]) -> Result<Vec<Self>, ProgramError> {
        // CloudFormation begins their names with the stack's. Those of another stack may begin so, too.
        let prefix = format!("{}-", stack.name);
        let answer = account.ask(&["cloudwatch", "describe-alarms", "--state-value", "ALARM", "--alarm-name-prefix", &prefix])?;
        let alarm = |one: &Value| {
            let own = made.iter().find(|of| of.kind == "AWS::CloudWatch::Alarm" && of.id == text(one, "/AlarmName"))?;
            let at = |place: &str| text(one, place).to_owned();
            let is_grouped = list(one, "/Metrics").iter().any(|metric| text(metric, "/Expression").contains(" GROUP BY "));
            let raisers = if is_grouped { Self::raisers(account, &own.id) } else { Vec::new() };
            let description = described(text(one, "/AlarmDescription"), &raisers);
            Some(Self { name: own.name.clone(), description, since: at("/StateTransitionedTimestamp") })
        };
        Ok(list(&answer, "/MetricAlarms").iter().filter_map(alarm).collect())
    }

    /// The metrics that raise an alarm which is based on a query, by their labels. Empty if the call is denied, or if `aws` is too old to
    /// know it: the alarm is reported either way.
    fn raisers(account: Account<'_>, name: &str) -> Vec<String> {
        let answer = account.ask(&["cloudwatch", "describe-alarm-contributors", "--alarm-name", name]);
        let raisers =
            |answer: Value| list(&answer, "/AlarmContributors").iter().map(labels_of).filter(|labels| !labels.is_empty()).collect();
        answer.map(raisers).unwrap_or_default()
    }
}

/// The labels of one that raises an alarm: `cluster prod, problem pods_wait`.
fn labels_of(raiser: &Value) -> String {
    let labels = raiser["ContributorAttributes"].as_object().into_iter().flatten();
    let labels: BTreeMap<&str, &str> = labels.filter_map(|(label, value)| Some((label.as_str(), value.as_str()?))).collect();
    labels.iter().map(|(label, value)| format!("{label} {value}")).collect::<Vec<_>>().join(", ")
}

/// What an alarm means, and who raises it where that is known.
fn described(meaning: &str, raisers: &[String]) -> String {
    if raisers.is_empty() { meaning.to_owned() } else { format!("{}: {}", meaning.trim_end_matches('.'), raisers.join("; ")) }
}

/// Which deployment to look at.
#[derive(Args, Clone, Debug, Default)]
pub struct StackArgs {
    /// The CloudFormation stack of a deployment: what it decided, and its alarms. It is read with aws and your own rights
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub stack: Option<String>,
    /// The profile of the AWS command line
    #[arg(long, value_name = "NAME", requires = "stack", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub profile: Option<String>,
}

/// Why a deployment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// The stack cannot be read, or is of something else, or was never deployed as a whole.
    #[error("{0}")]
    Stack(String),
    /// `aws` cannot be run, or has no answer.
    #[error("{what} of stack {stack} cannot be read: {error}")]
    Program { what: &'static str, stack: String, error: ProgramError },
}

/// Which decisions to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    /// The last ones.
    Last(usize),
    /// All that name one of these.
    About(&'a [String]),
    /// All with one of these subjects, from a time on.
    Of { subjects: &'a [&'a str], from: Timestamp },
}

impl Asked<'_> {
    /// The shards that such decisions are in.
    fn shards(self) -> BTreeSet<u32> {
        match self {
            Self::Of { subjects, .. } => subjects.iter().map(|subject| shard_of(subject)).collect(),
            Self::Last(_) | Self::About(_) => (0..SHARDS).collect(),
        }
    }

    /// What is asked of a partition, as arguments of `aws dynamodb query`.
    fn query(self, partition: &str) -> Vec<String> {
        let mut values = json!({":pk": {"S": partition}});
        let (mut condition, mut options) = ("pk = :pk".to_owned(), Vec::new());
        let mut filter = |text: String, names: &str| {
            options.extend(["--filter-expression", &text, "--expression-attribute-names", names].map(str::to_owned))
        };
        let most = match self {
            Self::Last(most) => Some(most),
            Self::About(names) => {
                names.iter().enumerate().for_each(|(at, name)| values[format!(":n{at}")] = json!({"S": name}));
                let parts: Vec<String> = (0..names.len()).map(|at| format!("contains(#data, :n{at})")).collect();
                filter(parts.join(" OR "), r##"{"#data": "data"}"##);
                Some(ABOUT_MAX)
            }
            Self::Of { subjects, from } => {
                subjects.iter().enumerate().for_each(|(at, subject)| values[format!(":n{at}")] = json!({"S": subject}));
                let parts: Vec<String> = (0..subjects.len()).map(|at| format!(":n{at}")).collect();
                filter(format!("#subject IN ({})", parts.join(", ")), r##"{"#subject": "subject"}"##);
                // Sort keys begin with the microseconds of the decision (`shared/dynamo/src/keys.rs`).
                values[":from"] = json!({"S": format!("{:020}", from.as_microsecond().max(0))});
                condition.push_str(" AND sk >= :from");
                None
            }
        };
        options.extend(most.map(|most| ["--max-items".to_owned(), most.to_string()]).into_iter().flatten());
        let begin =
            ["--key-condition-expression", &condition, "--expression-attribute-values", &values.to_string(), "--no-scan-index-forward"];
        begin.map(str::to_owned).into_iter().chain(options).collect()
    }
}

impl StackArgs {
    /// Reads the stack that is asked for, if one is.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be read.
    pub(crate) fn deployment(&self, region: Option<&str>) -> Result<Option<Deployment>, DeploymentError> {
        let Some(name) = &self.stack else { return Ok(None) };
        let aws = Program::aws(region, self.profile.as_deref());
        let stack = Stack::read(&Account(&aws), name).map_err(DeploymentError::Stack)?;
        if stack.output("TableName").is_empty() {
            return Err(DeploymentError::Stack(stack.lacks(name, "TableName")));
        }
        Ok(Some(Deployment::new(aws, stack)))
    }
}

/// A stack that can be asked further.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    pub(crate) aws: Program,
    pub(crate) stack: Stack,
    /// Whether nothing is said on standard error about how far it is.
    quiet: bool,
}

impl Deployment {
    pub(crate) fn new(aws: Program, stack: Stack) -> Self {
        Self { aws, stack, quiet: false }
    }

    /// The same, silent; what gives no answer for longer is ended.
    pub(crate) fn quiet_within(self, limit: Duration) -> Self {
        Self { aws: self.aws.within(limit), quiet: true, ..self }
    }

    fn failed(&self, what: &'static str, error: ProgramError) -> DeploymentError {
        DeploymentError::Program { what, stack: self.stack.name.clone(), error }
    }

    /// `active` or `shadow`.
    pub(crate) fn mode(&self) -> &str {
        self.stack.parameter("Mode")
    }

    /// The alarms of the stack that are in the state ALARM.
    pub(crate) fn alarms(&self) -> Result<Vec<Alarm>, DeploymentError> {
        let account = Account(&self.aws);
        let made = self.stack.resources(account).map_err(|error| self.failed("the resources", error))?;
        Alarm::raised(account, &self.stack, &made).map_err(|error| self.failed("the alarms", error))
    }

    /// Decisions of some clusters, the oldest first; all partitions at once. Those that cannot be read are left out and counted.
    pub(crate) fn decisions(&self, clusters: &[String], asked: Asked<'_>) -> Result<(Vec<DecisionRecord>, usize), DeploymentError> {
        let partitions: Vec<String> = clusters
            .iter()
            .flat_map(|cluster| asked.shards().into_iter().map(move |shard| format!("DECISION#{cluster}#{shard}")))
            .collect();
        let what = (!self.quiet).then_some("reading the decisions");
        let answers = waiting::at_once(what, &partitions, |partition| self.partition(partition, asked));
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

    /// The decisions of a partition that are asked for.
    fn partition(&self, partition: &str, asked: Asked<'_>) -> Result<Value, DeploymentError> {
        let query = asked.query(partition);
        let mut arguments = vec!["dynamodb", "query", "--table-name", self.stack.output("TableName")];
        arguments.extend(query.iter().map(String::as_str));
        self.aws.json(&arguments).map_err(|error| self.failed("the decisions", error))
    }

    /// The cluster that a kubeconfig names by its ARN, as EKS writes it there, if the deployment does not serve it. One of the same name in
    /// another region or account is another one.
    pub(crate) fn misses(&self, entry: Option<&str>) -> Option<String> {
        let (place, name) = entry?.strip_prefix("arn:")?.split_once(":cluster/")?;
        let mut parts = place.split(':').skip(2);
        let (region, account) = (parts.next()?, parts.next()?);
        let differs = |is: &str, of_stack: &str| !of_stack.is_empty() && is != of_stack;
        if differs(region, &self.stack.region) || differs(account, &self.stack.account) {
            return Some(format!("{name} in {region} of account {account}"));
        }
        (!self.stack.clusters().iter().any(|served| served == name)).then(|| name.to_owned())
    }

    /// Which of its clusters a context of a kubeconfig is for: the one whose name the context's cluster ends with, or all.
    pub(crate) fn clusters_of(&self, entry: Option<&str>) -> Vec<String> {
        let is_meant = |cluster: &&String| {
            let named = entry.map(|entry| entry.rsplit(['/', '@']).next().unwrap_or(entry));
            named.is_some_and(|name| name == cluster.as_str() || name.split('.').next() == Some(cluster.as_str()))
        };
        let all = self.stack.clusters();
        let meant: Vec<String> = all.iter().filter(is_meant).cloned().collect();
        if meant.is_empty() { all } else { meant }
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
    fn an_alarm_says_which_cluster_and_problem_raise_it_where_that_is_known() {
        let of = |raiser: Value| labels_of(&raiser);
        let raiser =
            of(json!({"ContributorId": "1", "ContributorAttributes": {"problem": "pods_wait", "cluster": "prod"}, "StateReason": "r"}));
        assert_eq!(raiser, "cluster prod, problem pods_wait");
        assert_eq!((of(json!({})), of(json!({"ContributorAttributes": {"cluster": 1}}))), (String::new(), String::new()));
        assert_eq!(
            described("Pods get no nodes.", &[raiser, "cluster dev".into()]),
            "Pods get no nodes: cluster prod, problem pods_wait; cluster dev"
        );
        assert_eq!(described("Pods get no nodes.", &[]), "Pods get no nodes.");
    }

    #[test]
    fn a_partition_is_asked_for_no_more_than_is_needed() {
        let begin = ["--key-condition-expression", "pk = :pk", "--expression-attribute-values"];
        let last = Asked::Last(20);
        assert_eq!(last.shards().len(), 8);
        assert_eq!(last.query("DECISION#c#1")[..3], begin);
        assert_eq!(last.query("DECISION#c#1")[3..], [r#"{":pk":{"S":"DECISION#c#1"}}"#, "--no-scan-index-forward", "--max-items", "20"]);

        let from = Timestamp::from_second(1).unwrap();
        let of = Asked::Of { subjects: &["ledger", "shadow"], from };
        assert_eq!(of.shards(), [shard_of("ledger"), shard_of("shadow")].into());
        let query = of.query("DECISION#c#1");
        assert_eq!(query[1], "pk = :pk AND sk >= :from");
        let values: Value = serde_json::from_str(&query[3]).unwrap();
        let expected = json!({
            ":pk": {"S": "DECISION#c#1"}, ":n0": {"S": "ledger"}, ":n1": {"S": "shadow"}, ":from": {"S": "00000000000001000000"},
        });
        assert_eq!(values, expected);
        let filter = ["--filter-expression", "#subject IN (:n0, :n1)", "--expression-attribute-names", r##"{"#subject": "subject"}"##];
        assert_eq!(query[5..], filter, "all of them, not only the newest");
        let ever = Asked::Of { subjects: &["ledger"], from: Timestamp::MIN }.query("p");
        assert!(ever[3].contains(r#"{"S":"00000000000000000000"}"#), "{ever:?}");
    }

    #[test]
    fn each_state_of_a_stack_has_a_remedy_that_loses_nothing() {
        let of = |status: &str| Stack { name: "w".into(), region: "eu-west-1".into(), status: status.into(), ..Stack::default() };
        let place = "--stack-name w --region eu-west-1";
        for (status, remedy) in [
            ("REVIEW_IN_PROGRESS", "nothing of it was made, since its change set was not executed".to_owned()),
            ("CREATE_IN_PROGRESS", "wait for it to end".to_owned()),
            ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "wait for it to end".to_owned()),
            ("CREATE_FAILED", format!("delete the stack and deploy it again: aws cloudformation delete-stack {place}")),
            ("ROLLBACK_COMPLETE", format!("delete the stack and deploy it again: aws cloudformation delete-stack {place}")),
            ("ROLLBACK_FAILED", format!("delete the stack and deploy it again: aws cloudformation delete-stack {place}")),
            ("UPDATE_FAILED", "correct what failed and deploy again".to_owned()),
            ("UPDATE_ROLLBACK_FAILED", format!("aws cloudformation continue-update-rollback {place}")),
            ("DELETE_FAILED", "delete it again".to_owned()),
            ("IMPORT_ROLLBACK_FAILED", "its events say what failed".to_owned()),
        ] {
            let told = of(status).repair().unwrap();
            assert!(told.starts_with(&remedy), "{status}: {told}");
            // The table and the machines of a stack that ran go with it.
            assert!(!status.starts_with("UPDATE") || !told.contains("delete"), "{status}: {told}");
        }
        for fine in ["CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_COMPLETE"] {
            assert_eq!(of(fine).repair(), None, "{fine}");
        }
    }

    #[test]
    fn a_stack_that_was_never_whole_is_not_taken_for_another_ones() {
        let lacks = |status: &str| Stack { name: "w".into(), status: status.into(), ..Stack::default() }.lacks("w", "TableName");
        for status in ["UPDATE_COMPLETE", ""] {
            assert_eq!(lacks(status), "stack w has no output TableName: name the stack that template.yaml was deployed as", "{status}");
        }
        let told = lacks("ROLLBACK_COMPLETE");
        assert!(told.starts_with("stack w is in state ROLLBACK_COMPLETE, and has no output TableName: delete the stack"), "{told}");
    }

    /// A stack of one cluster or more, with node roles.
    fn stack_with(clusters: &str, all: &str, own: &str) -> Stack {
        let parameters = [("Clusters", clusters), ("NodeRoles", all), ("ClusterNodeRoles", own)];
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Stack { name: "whittle".into(), region: "eu-west-1".into(), parameters, ..Stack::default() }
    }

    #[test]
    fn a_cluster_that_gets_company_keeps_its_node_roles_and_gets_no_other() {
        use whittle_ports::{NamePatterns, Settings, names_of};
        for (all, entry) in [
            ("KarpenterNodeRole-*", None),
            ("KarpenterNodeRole-*,shop-nodes", Some("shop=KarpenterNodeRole-shop,shop-nodes")),
            ("nodes/web-*, batch", Some("shop=KarpenterNodeRole-shop,nodes/web-*,batch")),
            ("KarpenterNodeRole-*,KarpenterNodeRole-old", Some("shop=KarpenterNodeRole-shop,KarpenterNodeRole-old")),
            ("Kar*", None),
            ("", None),
        ] {
            let stack = stack_with("shop", all, "");
            let line = stack.deploy_line(&["shop".to_owned(), "web".to_owned()]);
            let roles = entry.map_or_else(String::new, |entry| format!(" ClusterNodeRoles=\"{entry}\""));
            assert_eq!(line, format!("sam deploy --region eu-west-1 --parameter-overrides Clusters=shop,web{roles}"));
            let Some(entry) = entry else { continue };
            let before = Settings { clusters: vec!["shop".into()], node_roles: names_of(all), ..Settings::default() };
            let cluster_node_roles = NamePatterns::parse(entry).unwrap();
            let after = Settings { clusters: vec!["shop".into(), "web".into()], cluster_node_roles, ..before.clone() };
            for role in ["KarpenterNodeRole-shop", "KarpenterNodeRole-web", "KarpenterNodeRole-old", "shop-nodes", "web-1", "batch", "x"] {
                let of = |settings: &Settings| settings.permits_node_role(&"shop".into(), role);
                assert_eq!(of(&before), of(&after), "{all} {role}");
            }
            assert!(!after.permits_node_role(&"web".into(), "shop-nodes"), "the entry is of one cluster");
        }
    }

    #[test]
    fn node_roles_are_written_only_for_a_cluster_that_was_alone_without_an_entry() {
        for (clusters, own, wanted) in [
            ("shop", "shop=shop-nodes", "shop,web"),
            ("shop", "web=web-nodes", "shop,web"),
            ("shop,web", "", "shop,web,dev"),
            ("shop,web", "", "shop"),
            ("shop", "", "shop"),
            ("shop", "", "web"),
            ("shop", "", "dev,web"),
        ] {
            let wanted: Vec<String> = wanted.split(',').map(str::to_owned).collect();
            let line = stack_with(clusters, "KarpenterNodeRole-*,shop-nodes", own).deploy_line(&wanted);
            assert!(!line.contains("ClusterNodeRoles"), "{clusters} {own}: {line}");
        }
    }

    #[test]
    fn the_context_says_which_cluster_is_meant() {
        let parameters = [("Clusters".to_owned(), "prod,test".to_owned())].into();
        let deployment = Deployment::new(Program::aws(None, None), Stack { parameters, ..Stack::default() });
        let of = |entry| deployment.clusters_of(entry);
        for entry in ["prod", "arn:aws:eks:eu-west-1:111122223333:cluster/prod", "prod.eu-west-1.eksctl.io", "me@prod"] {
            assert_eq!(of(Some(entry)), ["prod"], "{entry}");
        }
        assert_eq!(of(Some("other")), ["prod", "test"]);
        assert_eq!(of(None), ["prod", "test"]);
        // Only by an ARN is it known what EKS calls the cluster.
        assert_eq!(deployment.misses(Some("arn:aws:eks:eu-west-1:111122223333:cluster/other")).as_deref(), Some("other"));
        for entry in [None, Some("other"), Some("other.eu-west-1.eksctl.io"), Some("arn:aws:eks:eu-west-1:111122223333:cluster/prod")] {
            assert_eq!(deployment.misses(entry), None, "{entry:?}");
        }
    }

    #[test]
    fn a_cluster_of_the_same_name_in_another_region_or_account_is_another_one() {
        let stack = Stack { account: "111122223333".into(), ..stack_with("prod", "", "") };
        let deployment = Deployment::new(Program::aws(None, None), stack);
        let misses = |place: &str| deployment.misses(Some(&format!("arn:aws:eks:{place}:cluster/prod")));
        assert_eq!(misses("eu-west-1:111122223333"), None);
        assert_eq!(misses("us-east-1:111122223333").as_deref(), Some("prod in us-east-1 of account 111122223333"));
        assert_eq!(misses("eu-west-1:444455556666").as_deref(), Some("prod in eu-west-1 of account 444455556666"));
    }
}
