//! Compares both statements of a function's rights: the block `rights!` in its `lib.rs`, without which
//! it does not compile, and the policy of its role in `template.yaml`.
//!
//! Both are read as text, so that neither a compiler nor SAM is needed. Which items, queues and resources a statement covers is
//! the step `template`'s to check, on the template that SAM has transformed.

use crate::artifacts::FUNCTIONS;
use crate::template::TEMPLATE;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The calls of each port's adapter.
const CALLS: &[(&str, &[&str])] = &[
    ("ClaimStore", &["dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem"]),
    // Transactions also check the lease.
    ("Leases", &["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:ConditionCheckItem"]),
    ("RecordReader", &["dynamodb:GetItem", "dynamodb:Query"]),
    ("Records", &["dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem"]),
    ("RecordRemoval", &["dynamodb:DeleteItem"]),
    ("RegionStore", &["dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem"]),
    ("TokenBuckets", &["dynamodb:GetItem", "dynamodb:PutItem"]),
    // Parts of a replaced catalog are deleted.
    ("CatalogWriter", &["dynamodb:PutItem", "dynamodb:DeleteItem"]),
    // What a batch leaves out is written alone.
    ("DecisionLog", &["dynamodb:BatchWriteItem", "dynamodb:PutItem"]),
    ("Erase", &["dynamodb:Query", "dynamodb:DeleteItem"]),
    // Templates are tagged on creation, and CreateFleet looks them up with the caller's permissions.
    ("LaunchTemplates", &["ec2:CreateLaunchTemplate", "ec2:CreateTags", "ec2:DescribeLaunchTemplates"]),
    ("LaunchTemplateCleanup", &["ec2:DescribeLaunchTemplates", "ec2:DeleteLaunchTemplate"]),
    // CreateFleet starts instances, and passes them their role, with the caller's permissions.
    ("Fleets", &["ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "ec2:DescribeFleets", "iam:PassRole"]),
    ("DryRuns", &["ec2:CreateLaunchTemplate", "ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"]),
    ("Instances", &["ec2:DescribeInstances"]),
    ("InstanceChecks", &["ec2:DescribeInstanceStatus"]),
    ("ZonalShifts", &["arc-zonal-shift:GetManagedResource"]),
    ("InstanceTags", &["ec2:CreateTags"]),
    ("Terminator", &["ec2:TerminateInstances"]),
    (
        "Discovery",
        &[
            "ec2:DeleteLaunchTemplate",
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeInstances",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribePlacementGroups",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSpotPriceHistory",
            "ec2:DescribeSubnets",
            "eks:DescribeCluster",
            "iam:AddRoleToInstanceProfile",
            "iam:CreateInstanceProfile",
            "iam:DeleteInstanceProfile",
            "iam:GetInstanceProfile",
            "iam:ListInstanceProfiles",
            "iam:PassRole",
            "iam:RemoveRoleFromInstanceProfile",
            "iam:TagInstanceProfile",
            "pricing:GetProducts",
            "ssm:GetParameter",
        ],
    ),
    // Permissions within a cluster are RBAC's; AWS only returns its endpoint.
    ("ClusterReader", &["eks:DescribeCluster"]),
    ("WorkloadReader", &["eks:DescribeCluster"]),
    ("Mirrors", &["eks:DescribeCluster"]),
    ("Nodes", &["eks:DescribeCluster"]),
    ("Evictions", &["eks:DescribeCluster"]),
    ("StatusWriter", &["eks:DescribeCluster"]),
    ("Queues", &["sqs:SendMessage"]),
];

/// Calls that Lambda makes with a function's role before our code runs, of which the runtime makes some itself for messages that it has
/// received, and those that a customer-managed key needs.
const OF_LAMBDA: &[&str] = &[
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ChangeMessageVisibility",
    "kms:Decrypt",
    "kms:GenerateDataKey",
];

/// Calls that the runtime makes for a function before its handler runs.
const OF_RUNTIME: &[(&str, &str)] = &[("relay", "ssm:GetParameter")];

/// One sentence for each right without its action, and for each action without a right.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"));
    let template = read(TEMPLATE)?;
    let mut broken = Vec::new();
    for function in FUNCTIONS {
        broken.extend(compare(function, &read(&format!("functions/{function}/src/lib.rs"))?, &template));
    }
    Ok(broken)
}

fn compare(function: &str, source: &str, template: &str) -> Vec<String> {
    let Some(block) = block(source) else {
        return vec![format!("{function}: no block `rights!` in its lib.rs says what it may do")];
    };
    let Some(allowed) = actions(template, function) else {
        return vec![format!("{function}: {TEMPLATE} has no role for it")];
    };
    let mut broken = Vec::new();
    let mut explained: BTreeSet<&str> = OF_LAMBDA.iter().copied().collect();
    explained.extend(OF_RUNTIME.iter().filter(|(of, _)| *of == function).map(|(_, action)| action));
    for port in block.values().flatten() {
        let Some((_, calls)) = CALLS.iter().find(|(known, _)| known == port) else {
            broken.push(format!("{function}: port {port} is unknown; say in xtask/src/rights.rs what it calls"));
            continue;
        };
        let missing = calls.iter().filter(|call| !allowed.contains(**call));
        broken.extend(missing.map(|call| format!("{function}: it has the right {port}, and its role may not {call}")));
        explained.extend(*calls);
    }
    let idle = allowed.iter().filter(|action| !explained.contains(**action));
    broken.extend(idle.map(|action| format!("{function}: its role may {action}, and no right of its lib.rs explains that")));
    broken
}

/// The ports of a function's block `rights!`, by category.
pub(crate) fn block(source: &str) -> Option<BTreeMap<&str, BTreeSet<&str>>> {
    let (_, rest) = source.split_once("\nrights! {\n")?;
    let (body, _) = rest.split_once("\n}")?;
    let code: Vec<&str> = body.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let lines = code.iter().filter_map(|line| line.trim().trim_end_matches(',').split_once(':'));
    Some(lines.map(|(of, ports)| (of.trim(), ports.split('+').map(str::trim).collect())).collect())
}

/// The actions that a function's role allows, including those that a parameter adds.
fn actions<'t>(template: &'t str, function: &str) -> Option<BTreeSet<&'t str>> {
    let mut head = format!("\n  {function}Role:\n");
    head[3..4].make_ascii_uppercase();
    let (_, rest) = template.split_once(&head)?;
    let of_role = rest.lines().take_while(|line| line.starts_with("   ") || line.trim().is_empty());
    let policies = of_role.skip_while(|line| line.trim() != "Policies:");
    let mut actions = BTreeSet::new();
    let mut allows = true;
    for line in policies.map(|line| line.trim_start_matches([' ', '-'])) {
        if let Some(effect) = line.strip_prefix("Effect: ") {
            allows = effect == "Allow";
        }
        if let Some(listed) = line.strip_prefix("Action: ").filter(|_| allows) {
            actions.extend(listed.trim_matches(['[', ']']).split(',').map(str::trim));
        }
    }
    Some(actions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Ends.\n\nrights! {\n    /// What `ends` may do: nothing else.\n    Store: DecisionLog,\n    \
                          Cloud: Instances + Terminator,\n}\n\nasync fn run() {}\n";

    fn template(of_ec2: &str) -> String {
        format!(
            "Resources:\n  EndsRole:\n    Properties:\n      AssumeRolePolicyDocument:\n        Statement: [{{Action: sts:AssumeRole}}]\n      \
             Policies:\n        - PolicyDocument:\n            Statement:\n              - Effect: Allow\n                \
             Action: [logs:PutLogEvents, dynamodb:BatchWriteItem, dynamodb:PutItem]\n              - Effect: Deny\n                \
             Action: ec2:CreateNetworkInterface\n              - Effect: Allow\n                {of_ec2}\n  \
             EndsLogs:\n    Action: ec2:CreateFleet\n"
        )
    }

    const VALID_EC2: &str = "Action: [ec2:DescribeInstances, ec2:TerminateInstances]";

    #[test]
    fn a_role_that_matches_the_rights_has_no_findings() {
        assert_eq!(compare("ends", SOURCE, &template(VALID_EC2)), Vec::<String>::new());
    }

    #[test]
    fn a_right_without_its_action_is_reported() {
        let found = compare("ends", SOURCE, &template("Action: ec2:DescribeInstances"));
        assert_eq!(found, ["ends: it has the right Terminator, and its role may not ec2:TerminateInstances"]);
    }

    #[test]
    fn an_action_without_a_right_is_reported() {
        let found = compare("ends", SOURCE, &template("Action: [ec2:DescribeInstances, ec2:TerminateInstances, ec2:CreateTags]"));
        assert_eq!(found, ["ends: its role may ec2:CreateTags, and no right of its lib.rs explains that"]);
    }

    #[test]
    fn a_function_without_rights_is_reported() {
        let found = compare("ends", "//! Ends.\n", &template(VALID_EC2));
        assert_eq!(found, ["ends: no block `rights!` in its lib.rs says what it may do"]);
        assert_eq!(compare("starts", SOURCE, &template(VALID_EC2)), ["starts: template.yaml has no role for it"]);
    }

    #[test]
    fn a_port_without_known_calls_is_reported() {
        let found = compare("ends", &SOURCE.replace("DecisionLog", "DecisionLog + Volumes"), &template(VALID_EC2));
        assert_eq!(found, ["ends: port Volumes is unknown; say in xtask/src/rights.rs what it calls"]);
    }

    #[test]
    fn calls_of_the_runtime_need_no_right_of_the_handler() {
        let source = "\nrights! {\n    Queues: Queues,\n}";
        let template = "\n  RelayRole:\n    Policies:\n      Action: [sqs:SendMessage, ssm:GetParameter]\n";
        assert_eq!(compare("relay", source, template), Vec::<String>::new());
        assert_eq!(compare("ends", source, &template.replace("Relay", "Ends")).len(), 1);
    }
}
