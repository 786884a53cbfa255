//! The stack of a deployment: its parameters and what it made.

use super::account::{Account, list, text};
use crate::programs::ProgramError;
use serde_json::Value;
use std::collections::BTreeMap;

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
#[derive(Clone, Debug, Default)]
pub(crate) struct Stack {
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) partition: String,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) outputs: BTreeMap<String, String>,
}

impl Stack {
    /// Reads it.
    pub(crate) fn read(account: &Account<'_>, name: &str) -> Result<Self, String> {
        Self::find(account, name)?.map_err(|error| {
            let hint = "deploy it first (sam build, sam deploy), or name another one by --stack, or its region by --region";
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
        let stack = list(&answer, "/Stacks").first().ok_or_else(|| format!("the stack {name} cannot be read: the answer has none"))?;
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
        })
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
        self.parameter("RelayAuth") != "AWS_IAM"
    }

    /// The host of the relay's URL; none if there is no such output.
    pub(crate) fn relay_host(&self) -> Option<&str> {
        let host = self.output("RelayUrl").trim_start_matches("https://").trim_end_matches('/');
        (!host.is_empty()).then_some(host)
    }

    /// The command that deploys it again with a list of clusters; other parameters keep their values.
    pub(crate) fn deploy_line(&self, clusters: &[String]) -> String {
        let name = if self.name == "whittle" { String::new() } else { format!(" --stack-name {}", self.name) };
        format!("sam deploy{name} --region {} --parameter-overrides Clusters={}", self.region, clusters.join(","))
    }
}
