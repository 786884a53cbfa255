//! The facts that `whittle doctor` judges. A fact that cannot be read is replaced by the reason; the others are read nevertheless.

use crate::cluster::manifests;
use crate::live::account::{Account, DISCOVERY, Eks, Entry, ROLE_NAME_MAX, Role, SPOT_ROLE, Secret, Tagged, Uninstalled, list, text};
use crate::live::deployment::{Alarm, FUNCTIONS, Stack};
use crate::live::kubernetes::{Kubernetes, Server};
use crate::live::serving;
use crate::programs::ProgramError;
use crate::threads::joined;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::thread;

/// A thing that was read, or why it could not be.
pub(super) type Known<T> = Result<T, String>;

/// How many requests are made at once: each of them is a process.
const AT_ONCE: usize = 8;

/// A function of the deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) update: String,
    /// Why state or update are not as they should be.
    pub(super) reason: String,
    /// The clusters that it is set to serve.
    pub(super) clusters: String,
}

/// A queue of the deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) messages: u64,
}

/// What a deployment has, by name.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) functions: Known<Vec<Function>>,
    pub(super) queues: Known<Vec<Queue>>,
    /// Names of rules, schedules and mappings of queues that are not enabled.
    pub(super) disabled: Known<Vec<String>>,
    /// Functions that Lambda never starts, since their reserved concurrency is zero: by name and id.
    pub(super) stopped: Known<Vec<(String, String)>>,
    pub(super) alarms: Known<Vec<Alarm>>,
}

/// What the account has for the cluster.
#[derive(Clone, Debug)]
pub(super) struct InAccount {
    pub(super) entries: Known<BTreeMap<String, Entry>>,
    pub(super) node_role: Known<Option<Role>>,
    pub(super) has_spot_role: Known<bool>,
    /// Those that carry the discovery tag.
    pub(super) subnets: Known<Vec<Tagged>>,
    pub(super) security_groups: Known<Vec<Tagged>>,
    pub(super) secret: Known<Option<Secret>>,
    /// That Whittle was uninstalled from the cluster, and how it is taken back.
    pub(super) uninstalled: Known<Option<[String; 2]>>,
    /// Other stacks that change things in the cluster.
    pub(super) other_stacks: Known<Vec<String>>,
}

/// What the cluster's API server has.
#[derive(Clone, Debug)]
pub(super) struct InCluster {
    pub(super) crds: Known<Vec<Value>>,
    pub(super) objects: Known<Vec<Value>>,
    pub(super) watchers: Known<Vec<Value>>,
    pub(super) pools: Known<Vec<Value>>,
    pub(super) classes: Known<Vec<Value>>,
    /// The service account of the VPC CNI plugin.
    pub(super) cni_accounts: Known<Vec<Value>>,
    /// Leases and Deployments of Karpenter.
    pub(super) karpenter: Known<Vec<Value>>,
    /// Events that say that EC2 refused a launch.
    pub(super) refusals: Known<Vec<Value>>,
}

/// Everything.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) cluster: String,
    pub(super) node_role_name: String,
    /// The command that puts the cluster's side right.
    pub(super) add: String,
    pub(super) now: jiff::Timestamp,
    pub(super) caller: Known<String>,
    pub(super) stack: Known<Stack>,
    /// CloudFormation knows no stack of this name.
    pub(super) is_stack_missing: bool,
    /// How many functions the account may run at once.
    pub(super) concurrency: Known<u64>,
    /// None if EKS has no such cluster.
    pub(super) eks: Known<Option<Eks>>,
    /// Names of the region's clusters.
    pub(super) names: Known<Vec<String>>,
    pub(super) running: Known<Running>,
    pub(super) account: Known<InAccount>,
    pub(super) inside: Known<InCluster>,
}

/// Where to look, and for what.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) account: Account<'a>,
    pub(super) kubernetes: Kubernetes<'a>,
    pub(super) trust_context: bool,
    pub(super) stack: &'a str,
    pub(super) cluster: &'a str,
    pub(super) node_role: &'a str,
    /// The command that puts a cluster's side right.
    pub(super) add: &'a str,
}

fn known<T, E: Display>(answer: Result<T, E>) -> Known<T> {
    answer.map_err(|error| error.to_string())
}

/// Calls `ask` for each of `things`, a few at a time. Returns all answers, or the first failure.
fn each<T: Sync, R: Send>(things: &[T], ask: impl Fn(&T) -> Known<R> + Sync) -> Known<Vec<R>> {
    let ask = &ask;
    let mut all = Vec::new();
    for some in things.chunks(AT_ONCE) {
        let answers: Vec<Known<R>> = thread::scope(|threads| {
            let asked: Vec<_> = some.iter().map(|thing| threads.spawn(move || ask(thing))).collect();
            asked.into_iter().map(joined).collect()
        });
        for answer in answers {
            all.push(answer?);
        }
    }
    Ok(all)
}

/// Who asks, as AWS knows it.
fn caller(account: Account<'_>) -> Known<String> {
    let answer = known(account.ask(&["sts", "get-caller-identity"]))?;
    let name = text(&answer, "/Arn");
    if name.is_empty() { Err("the answer of sts get-caller-identity has no Arn".to_owned()) } else { Ok(name.to_owned()) }
}

/// Reads everything.
pub(super) fn gather(from: Sources<'_>) -> Facts {
    let Sources { account, kubernetes, cluster, .. } = from;
    let (caller, stack, concurrency, eks, names, server) = thread::scope(|threads| {
        let caller = threads.spawn(|| caller(account));
        let stack = threads.spawn(|| Stack::find(&account, from.stack));
        let concurrency = threads.spawn(|| {
            let answer = known(account.ask(&["lambda", "get-account-settings"]))?;
            let limit = answer.pointer("/AccountLimit/ConcurrentExecutions").and_then(Value::as_u64);
            limit.ok_or_else(|| "the answer of lambda get-account-settings has no limit".to_owned())
        });
        let eks = threads.spawn(|| match known(account.cluster(cluster))? {
            Some(eks) if eks.status.is_empty() => Err("the answer of eks describe-cluster has no state of the cluster".to_owned()),
            eks => Ok(eks),
        });
        let names = threads.spawn(|| {
            let answer = known(account.ask(&["eks", "list-clusters"]))?;
            Ok(list(&answer, "/clusters").iter().filter_map(Value::as_str).map(str::to_owned).collect())
        });
        let server = threads.spawn(|| known(kubernetes.server()));
        (joined(caller), joined(stack), joined(concurrency), joined(eks), joined(names), joined(server))
    });
    let is_stack_missing = matches!(stack, Ok(Err(_)));
    let stack = stack.and_then(|stack| stack.map_err(|_| format!("there is no stack {}", from.stack)));
    let unknown = if is_stack_missing { format!("there is no stack {}", from.stack) } else { "the stack cannot be read".to_owned() };
    let (running, in_account, inside) = thread::scope(|threads| {
        let running = threads.spawn(|| running(account, stack.as_ref().map_err(|_| unknown.clone())?));
        let in_account = threads.spawn(|| in_account(from, stack.as_ref().map_err(|_| unknown.clone())?, &eks));
        let inside = threads.spawn(|| inside(from, &server, &eks));
        (joined(running), joined(in_account), joined(inside))
    });
    Facts {
        cluster: cluster.to_owned(),
        node_role_name: from.node_role.to_owned(),
        add: from.add.to_owned(),
        now: jiff::Timestamp::now(),
        caller,
        stack,
        is_stack_missing,
        concurrency,
        eks,
        names,
        running,
        account: in_account,
        inside,
    }
}

fn running(account: Account<'_>, stack: &Stack) -> Known<Running> {
    let made = known(stack.resources(account))?;
    let of = |kind: &str| -> Vec<(String, String)> {
        made.iter().filter(|one| one.kind == kind).map(|one| (one.name.clone(), one.id.clone())).collect()
    };
    let all = of("AWS::Lambda::Function");
    let functions = each(&all, |(name, id)| {
        let answer = known(account.ask(&["lambda", "get-function-configuration", "--function-name", id]))?;
        let at = |place: &str| text(&answer, place).to_owned();
        let reasons = [at("/StateReason"), at("/LastUpdateStatusReason")];
        Ok(Function {
            name: name.clone(),
            state: at("/State"),
            update: at("/LastUpdateStatus"),
            reason: reasons.into_iter().find(|reason| !reason.is_empty()).unwrap_or_default(),
            clusters: at("/Environment/Variables/WHITTLE_CLUSTERS"),
        })
    });
    let queues = each(&of("AWS::SQS::Queue"), |(name, url)| {
        let asked = ["sqs", "get-queue-attributes", "--queue-url", url, "--attribute-names", "ApproximateNumberOfMessages"];
        let answer = known(account.ask(&asked))?;
        let messages = text(&answer, "/Attributes/ApproximateNumberOfMessages").parse().unwrap_or_default();
        Ok(Queue { name: name.clone(), url: url.clone(), messages })
    });
    let stopped = each(&all, |(name, id)| {
        let answer = known(account.ask(&["lambda", "get-function-concurrency", "--function-name", id]))?;
        Ok(is_stopped(&answer).then(|| (name.clone(), id.clone())))
    });
    let (rules, schedules) = (of("AWS::Events::Rule"), of("AWS::Scheduler::Schedule"));
    let mappings = of("AWS::Lambda::EventSourceMapping");
    let prefix = format!("{}-", stack.name);
    let disabled = (|| {
        let found = known(account.ask(&["events", "list-rules", "--name-prefix", &prefix]))?;
        let ticks = known(account.ask(&["scheduler", "list-schedules", "--name-prefix", &prefix]))?;
        let off = list(&found, "/Rules").iter().chain(list(&ticks, "/Schedules")).filter(|one| text(one, "/State") != "ENABLED");
        let off: Vec<&str> = off.map(|one| text(one, "/Name")).collect();
        let ours = rules.iter().chain(&schedules);
        let off = ours.filter(|(_, id)| off.iter().any(|name| id == name || id.ends_with(&format!("|{name}"))));
        let off: Vec<String> = off.map(|(name, _)| name.clone()).collect();
        let answer = known(account.ask(&["lambda", "list-event-source-mappings"]))?;
        Ok([off, disabled_mappings(&mappings, &answer, stack.clusters().len())].concat())
    })();
    let alarms = known(Alarm::raised(account, stack, &made));
    let stopped = stopped.map(|all| all.into_iter().flatten().collect());
    Ok(Running { functions, queues, disabled, stopped, alarms })
}

/// Whether no concurrency is reserved for a function but zero: Lambda starts it for nobody. Without a reservation nothing is answered.
fn is_stopped(answer: &Value) -> bool {
    answer.get("ReservedConcurrentExecutions").and_then(Value::as_u64) == Some(0)
}

/// The function whose queue nobody reads where one cluster is served (ADR 0071).
const RUN_BY_TICKS: &str = "Sweep";

/// Names of mappings, given with their ids, by which their functions do not read their queues and should.
fn disabled_mappings(ours: &[(String, String)], answer: &Value, clusters: usize) -> Vec<String> {
    let off = |id: &str| {
        let found = list(answer, "/EventSourceMappings").iter().find(|one| text(one, "/UUID") == id);
        found.is_some_and(|one| matches!(text(one, "/State"), "Disabled" | "Disabling"))
    };
    let is_idle = |name: &str| clusters <= 1 && name.starts_with(RUN_BY_TICKS);
    ours.iter().filter(|(name, id)| off(id) && !is_idle(name)).map(|(name, _)| name.clone()).collect()
}

/// The node role. What is written into it matters only for IPv6.
fn node_role(from: Sources<'_>, is_ipv6: bool) -> Known<Option<Role>> {
    let Some(role) = known(from.account.role(from.node_role))? else { return Ok(None) };
    let inline = if is_ipv6 { known(from.account.inline_policies(from.node_role))? } else { Vec::new() };
    Ok(Some(Role { inline, ..role }))
}

/// An access entry. A cluster in mode `CONFIG_MAP` has none, and EKS refuses to look for them.
fn entry_or_none(answer: Result<Option<Entry>, ProgramError>) -> Known<Option<Entry>> {
    match answer {
        Err(error) if error.says("authentication mode") => Ok(None),
        answer => known(answer),
    }
}

fn in_account(from: Sources<'_>, stack: &Stack, eks: &Known<Option<Eks>>) -> Known<InAccount> {
    let Sources { account, cluster, .. } = from;
    let vpc = eks.as_ref().ok().and_then(Option::as_ref).map(|eks| eks.vpc.clone()).filter(|vpc| !vpc.is_empty());
    let filters: Vec<String> = std::iter::once(format!("Name=tag:{DISCOVERY},Values={cluster}"))
        .chain(vpc.map(|vpc| format!("Name=vpc-id,Values={vpc}")))
        .collect();
    let select: Vec<&str> = std::iter::once("--filters").chain(filters.iter().map(String::as_str)).collect();
    let nodes = format!("arn:{}:iam::{}:role/{}", stack.partition, stack.account, from.node_role);
    let is_ipv6 = eks.as_ref().ok().and_then(Option::as_ref).is_some_and(|eks| eks.ipv6);
    let node_role = node_role(from, is_ipv6);
    let nodes = node_role.as_ref().ok().and_then(Option::as_ref).map_or(nodes, |role| role.arn.clone());
    let nodes = Some(nodes).filter(|_| from.node_role.len() <= ROLE_NAME_MAX);
    let arns: Vec<String> =
        FUNCTIONS.iter().map(|(_, output, _)| stack.output(output).to_owned()).chain(nodes).filter(|arn| !arn.is_empty()).collect();
    let entries = each(&arns, |arn| Ok(entry_or_none(account.entry(cluster, arn))?.map(|entry| (arn.clone(), entry))));
    Ok(thread::scope(|threads| {
        let spot = threads.spawn(|| known(account.has_role(SPOT_ROLE)));
        let subnets = threads.spawn(|| known(account.subnets(&select)));
        let groups = threads.spawn(|| known(account.security_groups(&select)));
        let secret = threads.spawn(|| if stack.takes_webhooks() { known(account.secret(stack.secret_parameter())) } else { Ok(None) });
        let others = threads.spawn(|| serving::other_stacks(account, stack, cluster));
        let table = stack.output("TableName");
        let uninstalled = threads.spawn(|| {
            let record = known(account.uninstalled(table, cluster))?;
            Ok(record.map(|record| [record.sentence(cluster), Uninstalled::remedy(account.0, table, cluster)]))
        });
        InAccount {
            entries: entries.map(|all| all.into_iter().flatten().collect()),
            node_role,
            has_spot_role: joined(spot),
            subnets: joined(subnets),
            security_groups: joined(groups),
            secret: joined(secret),
            uninstalled: joined(uninstalled),
            other_stacks: joined(others),
        }
    }))
}

/// Why what kubectl's context reaches may be another cluster. `line` has kubectl reach the right one.
fn elsewhere(server: &Server, eks: &Known<Option<Eks>>, line: &str) -> Option<String> {
    let reaches = format!("kubectl's context reaches {:?}, ", server.address);
    match eks {
        Ok(Some(eks)) if server.is_of(eks) => None,
        Ok(Some(_)) => Some(format!(
            "{reaches}which is not known to be the cluster's endpoint: run {line}, or name the right context by --context; \
             --trust-context if it is a tunnel to it"
        )),
        Ok(None) => Some(format!("{reaches}and EKS has no such cluster to compare it with")),
        Err(_) => Some(format!("{reaches}and EKS does not say where the cluster is; --trust-context looks there all the same")),
    }
}

fn inside(from: Sources<'_>, server: &Known<Server>, eks: &Known<Option<Eks>>) -> Known<InCluster> {
    let server = server.clone()?;
    if let Some(why) = elsewhere(&server, eks, &from.account.kubeconfig_line(from.cluster)).filter(|_| !from.trust_context) {
        return Err(why);
    }
    let get = |arguments: &[&str]| known(from.kubernetes.get(arguments));
    let named = |objects: Vec<Value>| {
        let references: Vec<String> = objects.iter().map(manifests::reference).collect();
        get(&references.iter().map(String::as_str).collect::<Vec<_>>())
    };
    Ok(thread::scope(|threads| {
        let crds = threads.spawn(|| named(manifests::crds()));
        let objects = threads.spawn(|| named([manifests::rbac(), manifests::flow(), manifests::webhook("", "", "")].concat()));
        let watchers = threads.spawn(|| get(&["deployments.apps", "whittle-watcher", "-n", "whittle"]));
        let pools = threads.spawn(|| get(&["nodepools.karpenter.sh"]));
        let classes = threads.spawn(|| get(&["ec2nodeclasses.karpenter.k8s.aws"]));
        let cni_accounts = threads.spawn(|| get(&["serviceaccounts", "aws-node", "-n", "kube-system"]));
        let leases =
            threads.spawn(|| get(&["leases.coordination.k8s.io", "-A", "--field-selector", "metadata.name=karpenter-leader-election"]));
        let deployments = threads.spawn(|| get(&["deployments.apps", "-A", "-l", "app.kubernetes.io/name=karpenter"]));
        let refusals = threads.spawn(|| get(&["events", "-A", "--field-selector", "reason=LaunchRefused"]));
        let quotas = threads.spawn(|| get(&["events", "-A", "--field-selector", "reason=QuotaExceeded"]));
        let (leases, deployments) = (joined(leases), joined(deployments));
        let (refusals, quotas) = (joined(refusals), joined(quotas));
        InCluster {
            crds: joined(crds),
            objects: joined(objects),
            watchers: joined(watchers),
            pools: joined(pools),
            classes: joined(classes),
            cni_accounts: joined(cni_accounts),
            karpenter: leases.and_then(|leases| Ok([leases, deployments?].concat())),
            refusals: refusals.and_then(|refusals| Ok([refusals, quotas?].concat())),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn another_context_is_advised_only_where_the_clusters_endpoint_is_known() {
        let server = Server { address: "https://a".into(), ..Server::default() };
        let of = |eks: Known<Option<Eks>>| elsewhere(&server, &eks, "aws eks update-kubeconfig --name shop");
        let at = |endpoint: &str| Ok(Some(Eks { endpoint: endpoint.into(), ..Eks::default() }));
        assert_eq!(of(at("https://a")), None);
        assert!(of(at("https://b")).is_some_and(|why| why.contains("run aws eks update-kubeconfig --name shop, or")));
        for (eks, words) in [(Ok(None), "EKS has no such cluster"), (Err("ExpiredToken".to_owned()), "--trust-context looks there")] {
            let why = of(eks).unwrap();
            assert!(why.contains(words) && !why.contains("update-kubeconfig"), "{why}");
        }
    }

    #[test]
    fn only_a_reservation_of_zero_stops_a_function() {
        for (answer, expected) in [
            (json!({"ReservedConcurrentExecutions": 0}), true),
            (json!({"ReservedConcurrentExecutions": 20}), false),
            (json!({}), false),
            (Value::Null, false),
        ] {
            assert_eq!(is_stopped(&answer), expected, "{answer}");
        }
    }

    #[test]
    fn mappings_that_are_off_are_told_but_that_of_sweep_with_one_cluster() {
        let ours = ["TerminateTerminate", "LaunchLaunch", "SweepSweep"].map(|name| (name.to_owned(), format!("id-{name}")));
        let one = |name: &str, state: &str| json!({"UUID": format!("id-{name}"), "State": state});
        let answer = json!({"EventSourceMappings": [
            one("TerminateTerminate", "Disabled"), one("LaunchLaunch", "Enabled"), one("SweepSweep", "Disabled"), one("Other", "Disabled"),
        ]});
        assert_eq!(disabled_mappings(&ours, &answer, 1), ["TerminateTerminate"]);
        assert_eq!(disabled_mappings(&ours, &answer, 2), ["TerminateTerminate", "SweepSweep"]);
        for (state, is_told) in [("Disabling", true), ("Enabling", false), ("Updating", false), ("Creating", false)] {
            let answer = json!({"EventSourceMappings": [one("LaunchLaunch", state)]});
            assert_eq!(disabled_mappings(&ours, &answer, 2).is_empty(), !is_told, "{state}");
        }
        assert_eq!(disabled_mappings(&ours, &Value::Null, 2), [""; 0]);
    }

    #[test]
    fn the_template_turns_off_no_other_mapping() {
        let template = include_str!("../../../template.yaml");
        let switch = "\n            Enabled: ";
        let (before, after) = template.split_once(switch).unwrap();
        assert!(before.lines().rev().take(2).any(|line| line.trim() == "Queue: !GetAtt SweepQueue.Arn"), "of another queue");
        assert!(after.starts_with("!If [HasOneCluster, false, true]\n") && !after.contains(switch));
    }

    #[test]
    fn a_cluster_without_access_entries_has_none_and_others_are_unreadable() {
        let failed = |said: &str| Err(ProgramError::Failed { command: "aws eks describe-access-entry".into(), said: said.into() });
        let mode = "An error occurred (InvalidRequestException): The cluster's authentication mode must be set to one of [API]";
        assert_eq!(entry_or_none(failed(mode)), Ok(None));
        assert!(entry_or_none(failed("AccessDeniedException")).is_err_and(|why| why.contains("AccessDeniedException")));
        let entry = Entry { kind: "STANDARD".into(), ..Entry::default() };
        assert_eq!(entry_or_none(Ok(Some(entry.clone()))), Ok(Some(entry)));
    }
}
