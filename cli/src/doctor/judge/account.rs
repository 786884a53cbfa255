//! What the account has for the cluster: access, roles, subnets.

use super::super::facts::{Facts, InAccount};
use super::{Finding, add, in_region, known};
use crate::live::account::{CNI_POLICY, Eks, Entry, NODE_POLICIES, Role, SPOT_ROLE, Tagged, ec2_service, give_ipv6_rights};
use crate::live::deployment::{FUNCTIONS, Stack};
use crate::live::serving;
use crate::money::counted;
use serde_json::Value;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = vec![cluster(facts)];
    match &facts.account {
        Err(why) => all.push(Finding::unknown("access", why.clone())),
        Ok(account) => {
            all.extend([uninstalled(account), other_stacks(facts, account)]);
            all.extend([access(facts, account), node_role(facts, account), node_entry(facts, account), spot(account)]);
            all.extend([subnets(facts, account), security_groups(facts, account)]);
        }
    }
    all
}

fn cluster(facts: &Facts) -> Finding {
    known("cluster", &facts.eks, |eks| match eks {
        None => {
            let has = match &facts.names {
                Ok(names) if names.is_empty() => "it has none".to_owned(),
                Ok(names) => format!("it has: {}", names.join(", ")),
                Err(why) => format!("which it has is not known: {why}"),
            };
            let what = format!("EKS has no cluster {} in this account and region; {has}", facts.cluster);
            Finding::problem("cluster", what, "name another cluster, or its region by --region")
        }
        Some(eks) => serving_cluster(facts, eks),
    })
}

/// Whether a cluster that is there can be served.
fn serving_cluster(facts: &Facts, eks: &Eks) -> Finding {
    if let Some(remedy) = eks.remedy() {
        return Finding::problem("cluster", format!("{} is in state {}", facts.cluster, eks.status), remedy);
    }
    if !eks.authentication.contains("API") {
        return Finding::problem(
            "cluster",
            "its authentication mode is CONFIG_MAP, which knows no access entries",
            format!(
                "aws eks update-cluster-config --name {} --access-config authenticationMode=API_AND_CONFIG_MAP{}",
                facts.cluster,
                in_region(facts)
            ),
        );
    }
    let updated = if eks.status == "UPDATING" { ", EKS updates it" } else { "" };
    Finding::ok("cluster", format!("{}, Kubernetes {}, authentication {}{updated}", facts.cluster, eks.version, eks.authentication))
}

fn uninstalled(account: &InAccount) -> Finding {
    let check = "uninstallation";
    known(check, &account.uninstalled, |record| match record {
        Some([what, remedy]) => Finding::problem(check, what.clone(), remedy.clone()),
        None => Finding::ok(check, "the table has no record of one"),
    })
}

fn other_stacks(facts: &Facts, account: &InAccount) -> Finding {
    let check = "other stacks";
    known(check, &account.other_stacks, |others| match others.first() {
        None => Finding::ok(check, "none serves the cluster"),
        // Only the other one changes anything.
        Some(_) if facts.stack.as_ref().is_ok_and(Stack::is_shadow) => {
            Finding::ok(check, format!("{} serves the cluster, and this one is a shadow", others.join(", ")))
        }
        Some(first) => {
            let what = format!(
                "{} serves the cluster, too: both launch for the same pods, and each takes the other's machines for its own",
                others.join(", ")
            );
            let region = facts.stack.as_ref().map_or("REGION", |stack| stack.region.as_str());
            Finding::problem(check, what, serving::remedy(&facts.cluster, first, region))
        }
    })
}

fn access(facts: &Facts, account: &InAccount) -> Finding {
    let check = "access";
    known(check, &account.entries, |entries| {
        let Ok(stack) = &facts.stack else { return Finding::unknown(check, "the stack cannot be read") };
        let fault = |&(function, output, groups): &(&str, &str, [&'static str; 2])| match entries.get(stack.output(output)) {
            None => Some(format!("{function} has no access entry")),
            Some(entry) => {
                let missing: Vec<&str> = groups.iter().copied().filter(|group| !entry.groups.contains(*group)).collect();
                (!missing.is_empty()).then(|| format!("{function} is not in {}", missing.join(", ")))
            }
        };
        let faults: Vec<String> = FUNCTIONS.iter().filter_map(fault).collect();
        if faults.is_empty() {
            return Finding::ok(check, format!("{} functions have access entries with their groups", FUNCTIONS.len()));
        }
        Finding::problem(check, faults.join("; "), add(facts))
    })
}

fn node_role(facts: &Facts, account: &InAccount) -> Finding {
    let name = &facts.node_role_name;
    known("node role", &account.node_role, |role| match role {
        None => Finding::warning(
            "node role",
            format!("there is no role {name}"),
            format!("{}, or name the role that your node classes have by --node-role", add(facts)),
        ),
        Some(role) if !role.trusts_ec2 => Finding::problem(
            "node role",
            format!("EC2 may not assume {name}"),
            format!("let {} assume it: aws iam update-assume-role-policy --role-name {name}", ec2_service(role.partition())),
        ),
        Some(role) => policies(facts, role),
    })
}

/// By which role the VPC CNI plugin assigns addresses, as far as the cluster's API server knows.
#[derive(Clone, Copy)]
enum CniRole<'a> {
    /// The one that its service account names.
    Own(&'a str),
    /// That of the nodes, unless EKS Pod Identity gives it one.
    OfNodes,
    /// It has no service account there, as with another plugin, or that cannot be read.
    Unknown,
}

fn cni_role(facts: &Facts) -> CniRole<'_> {
    let accounts = facts.inside.as_ref().ok().and_then(|inside| inside.cni_accounts.as_ref().ok());
    let Some(account) = accounts.and_then(|accounts| accounts.first()) else { return CniRole::Unknown };
    match account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].as_str() {
        Some(arn) if !arn.is_empty() => CniRole::Own(arn),
        _ => CniRole::OfNodes,
    }
}

/// That a node role lacks policies, and what attaches them.
fn lacking(facts: &Facts, role: &Role, missing: &[&str], cni: CniRole<'_>) -> Finding {
    let name = &facts.node_role_name;
    let attach = |policy: &&str| {
        format!("aws iam attach-role-policy --role-name {name} --policy-arn arn:{}:iam::aws:policy/{policy}", role.partition())
    };
    let mut what = format!("{name} lacks {}, unless other policies allow the same", missing.join(", "));
    let mut remedy = missing.iter().map(attach).collect::<Vec<_>>().join("; ");
    if missing.contains(&CNI_POLICY) && matches!(cni, CniRole::OfNodes) {
        what.push_str(
            ". The service account aws-node in kube-system, the VPC CNI plugin's, names no role of its own: if EKS Pod Identity gives it \
             none either, nodes join and never get ready",
        );
        let show = format!(
            "aws eks list-pod-identity-associations --cluster-name {} --namespace kube-system --service-account aws-node{}",
            facts.cluster,
            in_region(facts)
        );
        remedy.push_str(&format!("; {CNI_POLICY} is not needed if this shows a role for the plugin: {show}"));
    }
    Finding::warning("node role", what, remedy)
}

/// Whether a node role that EC2 may assume has the policies that nodes need.
fn policies(facts: &Facts, role: &Role) -> Finding {
    let name = &facts.node_role_name;
    let is_ipv6 = facts.eks.as_ref().ok().and_then(Option::as_ref).is_some_and(|eks| eks.ipv6);
    let cni = cni_role(facts);
    let has_own_cni_role = matches!(cni, CniRole::Own(_));
    let older = role.policies.contains("AmazonEC2ContainerRegistryReadOnly");
    let has = |policy: &str| role.policies.contains(policy) || (older && policy == "AmazonEC2ContainerRegistryPullOnly");
    let is_needed = |policy: &str| policy != CNI_POLICY || !(is_ipv6 || has_own_cni_role);
    let missing: Vec<&str> = NODE_POLICIES.iter().copied().filter(|policy| is_needed(policy) && !has(policy)).collect();
    if !missing.is_empty() {
        return lacking(facts, role, &missing, cni);
    }
    if is_ipv6 && !has_own_cni_role && !role.has_own_policies() {
        let what = format!(
            "the cluster's pods have IPv6 addresses, for which {CNI_POLICY} has no rights, and {name} has AWS's policies alone: unless \
             the VPC CNI plugin has a role of its own, its nodes never get ready"
        );
        return Finding::warning("node role", what, give_ipv6_rights(name, role.partition()));
    }
    match cni {
        CniRole::Own(arn) => Finding::ok("node role", format!("{name} with its policies; the VPC CNI plugin has {arn}")),
        CniRole::OfNodes | CniRole::Unknown => Finding::ok("node role", format!("{name} with its policies")),
    }
}

fn node_entry(facts: &Facts, account: &InAccount) -> Finding {
    let check = "node access";
    known(check, &account.entries, |entries| {
        let Some(arn) = account.node_role.as_ref().ok().and_then(Option::as_ref).map(|role| &role.arn) else {
            return Finding::unknown(check, format!("the role {} was not found", facts.node_role_name));
        };
        match (entries.get(arn), windows_class(facts)) {
            (Some(entry), Some(class)) if entry.kind == "EC2_LINUX" => Finding::warning(
                check,
                format!(
                    "EC2NodeClass {class} is for Windows, and the access entry of its role {} is of type EC2_LINUX: its nodes join, and \
                     their pods reach no Service",
                    facts.node_role_name
                ),
                format!(
                    "a role of their own for Windows nodes: aws eks create-access-entry --cluster-name {} --principal-arn ROLE-ARN --type \
                     EC2_WINDOWS{}",
                    facts.cluster,
                    in_region(facts)
                ),
            ),
            (entry, _) => joins(facts, arn, entry),
        }
    })
}

/// Whether nodes join by the access entry of their role.
fn joins(facts: &Facts, arn: &str, entry: Option<&Entry>) -> Finding {
    let check = "node access";
    match entry {
        Some(entry) if entry.lets_nodes_join() => Finding::ok(check, format!("{} may join ({})", facts.node_role_name, entry.kind)),
        Some(entry) if entry.kind == "EC2" => Finding::problem(
            check,
            format!("the access entry of {} is of type EC2, EKS Auto Mode's, with which other nodes cannot join", facts.node_role_name),
            "give the node classes another role, or, if Auto Mode does not use it, aws eks delete-access-entry and whittle cluster add",
        ),
        Some(entry) => Finding::problem(
            check,
            format!("the access entry of {} is of type {}, with which nodes cannot join", facts.node_role_name, entry.kind),
            format!(
                "aws eks delete-access-entry --cluster-name {} --principal-arn {arn}{}, then {}",
                facts.cluster,
                in_region(facts),
                add(facts)
            ),
        ),
        None => {
            let only_entries = facts.eks.as_ref().ok().and_then(Option::as_ref).is_none_or(|eks| eks.authentication == "API");
            let what = format!("{} has no access entry: nodes with it start and never join", facts.node_role_name);
            if only_entries {
                Finding::problem(check, what, add(facts))
            } else {
                Finding::warning(check, format!("{what}, unless the ConfigMap aws-auth has it"), add(facts))
            }
        }
    }
}

/// The name of a node class for Windows that has the nodes' role.
fn windows_class(facts: &Facts) -> Option<&str> {
    let classes = facts.inside.as_ref().ok()?.classes.as_ref().ok()?;
    let is_windows = |class: &Value| {
        let terms = class["spec"]["amiSelectorTerms"].as_array().into_iter().flatten();
        let names = terms.map(|term| &term["alias"]).chain([&class["spec"]["amiFamily"]]);
        names.filter_map(Value::as_str).any(|name| name.to_ascii_lowercase().starts_with("windows"))
    };
    let has_role = |class: &Value| {
        let role = class["spec"]["role"].as_str().unwrap_or_default();
        role.rsplit('/').next() == Some(facts.node_role_name.as_str())
    };
    classes.iter().find(|class| is_windows(class) && has_role(class))?["metadata"]["name"].as_str()
}

fn spot(account: &InAccount) -> Finding {
    known("spot role", &account.has_spot_role, |has| {
        if *has {
            return Finding::ok("spot role", SPOT_ROLE);
        }
        let what = format!("the account has no role {SPOT_ROLE}: EC2 refuses every spot instance");
        Finding::problem("spot role", what, "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com")
    })
}

/// Whether node classes of the cluster go by the discovery tag; so do those to come, if there are none.
fn go_by_tag(facts: &Facts, terms: &str) -> bool {
    let Some(classes) = facts.inside.as_ref().ok().and_then(|inside| inside.classes.as_ref().ok()) else { return true };
    let by_tag = |class: &Value| {
        let terms = class.pointer(&format!("/spec/{terms}")).map(ToString::to_string).unwrap_or_default();
        terms.contains(crate::live::account::DISCOVERY)
    };
    classes.is_empty() || classes.iter().any(by_tag)
}

fn untagged(facts: &Facts, check: &'static str, what: &str, terms: &str) -> Finding {
    let tag = format!("karpenter.sh/discovery={}", facts.cluster);
    if go_by_tag(facts, terms) {
        return Finding::problem(check, format!("none has the tag {tag}, by which node classes find {what}"), add(facts));
    }
    Finding::ok(check, format!("none has the tag {tag}, and no node class goes by it"))
}

fn subnets(facts: &Facts, account: &InAccount) -> Finding {
    let check = "subnets";
    known(check, &account.subnets, |subnets| {
        if subnets.is_empty() {
            return untagged(facts, check, "subnets", "subnetSelectorTerms");
        }
        let shown = |one: &Tagged| format!("{} has {} free {}", one.id, one.free, if one.free == 1 { "address" } else { "addresses" });
        let short: Vec<String> = subnets.iter().filter(|one| one.free < 16).map(shown).collect();
        if short.is_empty() {
            let free: u64 = subnets.iter().map(|one| one.free).sum();
            return Finding::ok(check, format!("{} with the discovery tag, {free} free addresses", counted(subnets.len(), "subnet")));
        }
        let remedy = "tag a larger subnet as well, or free addresses: each pod takes one";
        if short.len() == subnets.len() {
            Finding::problem(check, short.join("; "), remedy)
        } else {
            Finding::warning(check, short.join("; "), remedy)
        }
    })
}

fn security_groups(facts: &Facts, account: &InAccount) -> Finding {
    let check = "security groups";
    known(check, &account.security_groups, |groups| match groups.len() {
        0 => untagged(facts, check, "security groups", "securityGroupSelectorTerms"),
        some => Finding::ok(check, format!("{} with the discovery tag", counted(some, "security group"))),
    })
}
