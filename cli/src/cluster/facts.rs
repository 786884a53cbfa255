//! What `cluster add` and `cluster remove` look at before they plan. Reads that do not depend on each other run at once.

use super::manifests;
use super::step::MARK;
use super::watcher::{AGENT, Watcher, stack_name};
use crate::live::account::{Account, DISCOVERY, Eks, Entry, ROLE_NAME_MAX, Role, SPOT_ROLE, Secret, Tagged, Uninstalled};
use crate::live::deployment::{FUNCTIONS, Stack};
use crate::live::kubernetes::{Kubernetes, Server};
use crate::live::serving;
use crate::programs::ProgramError;
use crate::threads::joined;
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread;

/// What rings for pods without a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Bell {
    Webhook,
    /// The watcher, of this container image.
    Watcher {
        image: String,
    },
    #[default]
    None,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) cluster: String,
    /// The name of the node role.
    pub(super) node_role: String,
    /// Chosen by the user; empty: those of the cluster.
    pub(super) subnets: Vec<String>,
    pub(super) security_groups: Vec<String>,
    pub(super) doorbell: Bell,
    pub(super) sample: bool,
    /// What the stored secret is if there is none yet.
    pub(super) new_secret: String,
    /// Everything is to go.
    pub(super) removes: bool,
    /// The cluster, or the stack, may be deleted already.
    pub(super) gone: bool,
}

/// What is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) stack: Stack,
    pub(super) eks: Eks,
    /// By role; those that are there.
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) node_role: Option<Role>,
    pub(super) has_spot_role: bool,
    /// The cluster's own, or those that the user chose.
    pub(super) subnets: Vec<Tagged>,
    pub(super) security_groups: Vec<Tagged>,
    /// Ids that carry the discovery tag of this cluster.
    pub(super) discovered: [Vec<Tagged>; 2],
    pub(super) secret: Option<Secret>,
    pub(super) watcher: Watcher,
    /// Those of our manifests' objects that the cluster has.
    pub(super) objects: Vec<Value>,
    /// NodePools and EC2NodeClasses, of all versions.
    pub(super) pools: Vec<Value>,
    pub(super) classes: Vec<Value>,
    pub(super) claims: Vec<Value>,
    /// Objects of the other kinds that our CRDs define.
    pub(super) others: Vec<Value>,
    /// Ids of machines that the deployment has in the cluster.
    pub(super) machines: Vec<String>,
    /// What blocks an addition: that Whittle was uninstalled, and how it is taken back; or why that is not known.
    pub(super) uninstalled: Option<Result<[String; 2], String>>,
    /// Other stacks that change things in the cluster.
    pub(super) other_stacks: Option<Result<Vec<String>, String>>,
    /// Other stacks that serve it in shadow mode.
    pub(super) shadow_stacks: Vec<String>,
    /// EKS has no such cluster.
    pub(super) is_cluster_gone: bool,
    /// CloudFormation has no such stack.
    pub(super) is_stack_gone: bool,
    /// Why it is not known whether machines are left.
    pub(super) unread: Option<String>,
}

/// Where to look.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) account: Account<'a>,
    pub(super) kubernetes: Kubernetes<'a>,
    pub(super) trust_context: bool,
}

impl Facts {
    /// The ARN of a function's role; empty if the stack does not tell it.
    pub(super) fn role_of(&self, output: &str) -> &str {
        self.stack.output(output)
    }

    /// The ARN that the node role has, or will have.
    pub(super) fn node_role_arn(&self, name: &str) -> String {
        let made = || format!("arn:{}:iam::{}:role/{name}", self.stack.partition, self.stack.account);
        self.node_role.as_ref().map_or_else(made, |role| role.arn.clone())
    }

    /// The cluster's object of that kind and name.
    pub(super) fn object(&self, wanted: &Value) -> Option<&Value> {
        self.objects.iter().find(|object| manifests::same(object, wanted))
    }
}

/// The answer; of an error, the sentence that says what cannot be read.
fn readable<T>(what: &str, answer: Result<T, ProgramError>) -> Result<T, String> {
    answer.map_err(|error| format!("{what} cannot be read: {error}"))
}

/// Reads everything.
///
/// # Errors
/// A sentence for each thing that cannot be read; then nothing is planned.
pub(super) fn gather(from: Sources<'_>, stack: &str, wanted: &Wanted) -> Result<Facts, Vec<String>> {
    let Sources { account, kubernetes, trust_context } = from;
    let (stack, eks, server) = thread::scope(|threads| {
        let eks = threads.spawn(|| readable(&format!("the cluster {}", wanted.cluster), account.cluster(&wanted.cluster)));
        let server = threads.spawn(|| readable("kubectl's configuration", kubernetes.server()));
        (stack_or_none(account, stack, wanted), joined(eks), joined(server))
    });
    // Without the cluster it does not matter what kubectl reaches.
    let server = if matches!(eks, Ok(None)) { Ok(Server::default()) } else { server };
    let ((stack, is_stack_gone), eks, server) = all3(stack, eks, server)?;
    let is_cluster_gone = eks.is_none();
    if is_cluster_gone && !wanted.gone {
        return Err(vec![no_cluster(&stack, wanted)]);
    }
    let eks = eks.unwrap_or_default();
    if let Some(remedy) = eks.remedy() {
        return Err(vec![format!("the cluster {} is in state {}: {remedy}", wanted.cluster, eks.status)]);
    }
    if !is_cluster_gone && !trust_context && !server.is_of(&eks) {
        return Err(vec![wrong_context(account, &wanted.cluster, &server, &eks)]);
    }
    let (account_side, cluster_side) = thread::scope(|threads| {
        let objects = threads.spawn(|| if is_cluster_gone { Ok(Facts::default()) } else { of_cluster(kubernetes, wanted.removes) });
        let entries = |stack: &Stack| match (is_cluster_gone, is_stack_gone) {
            (true, _) => Ok(BTreeMap::new()),
            (false, true) => marked_entries(account, &wanted.cluster),
            (false, false) => entries(account, stack, wanted),
        };
        (of_account(account, &stack, &eks, wanted, entries), joined(objects))
    });
    match (account_side, cluster_side) {
        (Ok(facts), Ok(objects)) => Ok(Facts { stack, eks, is_stack_gone, is_cluster_gone, ..objects }.with(facts)),
        (account, cluster) => Err(account.err().into_iter().chain(cluster.err()).flatten().collect()),
    }
}

/// The stack, and whether it was deleted, where that may be.
fn stack_or_none(account: Account<'_>, name: &str, wanted: &Wanted) -> Result<(Stack, bool), String> {
    if !wanted.removes {
        return Ok((Stack::read(&account, name)?, false));
    }
    match Stack::find(&account, name)? {
        Ok(stack) => Ok((stack, false)),
        Err(_) if wanted.gone => Ok((Stack::deleted(&account, name)?, true)),
        Err(error) => Err(format!(
            "there is no stack {name}: name another one by --stack, or its region by --region; if it was deleted, add --gone: {error}"
        )),
    }
}

fn no_cluster(stack: &Stack, wanted: &Wanted) -> String {
    let region = if stack.region.is_empty() { "this region" } else { stack.region.as_str() };
    let gone = if wanted.removes { "; if it was deleted, add --gone" } else { "" };
    format!(
        "account {} has no EKS cluster {} in {region}: aws eks list-clusters shows what it has, --region selects another region{gone}",
        stack.account, wanted.cluster
    )
}

/// The facts with what is left in the cluster read again: a machine may have been started since.
pub(super) fn again(from: Sources<'_>, facts: &Facts, wanted: &Wanted) -> Facts {
    let (machines, claims) = thread::scope(|threads| {
        let machines = threads.spawn(|| readable("the cluster's machines", from.account.machines(&wanted.cluster)));
        let claims = threads.spawn(|| {
            let read = || readable("the cluster's NodeClaims", from.kubernetes.get(&["nodeclaims.karpenter.sh"]));
            if facts.is_cluster_gone { Ok(Vec::new()) } else { read() }
        });
        (joined(machines), joined(claims))
    });
    match (machines, claims) {
        (Ok(machines), Ok(claims)) => Facts { machines, claims, ..facts.clone() },
        (Err(fault), _) | (_, Err(fault)) => Facts { unread: Some(fault), ..facts.clone() },
    }
}

fn wrong_context(account: Account<'_>, cluster: &str, server: &Server, eks: &Eks) -> String {
    let reaches = if server.address.is_empty() { "no API server".to_owned() } else { server.address.clone() };
    format!(
        "kubectl's context reaches {reaches}, and the endpoint of {cluster} is {}: run {}, or name the right context by --context; \
         --trust-context if it is a tunnel to it",
        eks.endpoint,
        account.kubeconfig_line(cluster)
    )
}

fn all3<A, B, C>(a: Result<A, String>, b: Result<B, String>, c: Result<C, String>) -> Result<(A, B, C), Vec<String>> {
    match (a, b, c) {
        (Ok(a), Ok(b), Ok(c)) => Ok((a, b, c)),
        (a, b, c) => Err(a.err().into_iter().chain(b.err()).chain(c.err()).collect()),
    }
}

/// What the account knows.
struct AccountSide {
    entries: BTreeMap<String, Entry>,
    node_role: Option<Role>,
    has_spot_role: bool,
    subnets: Vec<Tagged>,
    security_groups: Vec<Tagged>,
    discovered: [Vec<Tagged>; 2],
    secret: Option<Secret>,
    machines: Vec<String>,
    uninstalled: Option<Result<[String; 2], String>>,
    other_stacks: Option<Result<Vec<String>, String>>,
    shadow_stacks: Vec<String>,
    watcher: Watcher,
}

impl Facts {
    fn with(self, account: AccountSide) -> Self {
        Self {
            entries: account.entries,
            node_role: account.node_role,
            has_spot_role: account.has_spot_role,
            subnets: account.subnets,
            security_groups: account.security_groups,
            discovered: account.discovered,
            secret: account.secret,
            machines: account.machines,
            uninstalled: account.uninstalled,
            other_stacks: account.other_stacks,
            shadow_stacks: account.shadow_stacks,
            watcher: Watcher { neighbours: self.watcher.neighbours, ..account.watcher },
            ..self
        }
    }
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// The node role. Its inline policies matter only if they are to be removed, and for IPv6. A user without the right to read them can
/// otherwise add a cluster nevertheless.
fn role(account: Account<'_>, eks: &Eks, wanted: &Wanted) -> Result<Option<Role>, String> {
    let what = format!("the role {}", wanted.node_role);
    let Some(role) = readable(&what, account.role(&wanted.node_role))? else { return Ok(None) };
    let inline = match (wanted.removes, eks.ipv6) {
        (true, _) => readable(&what, account.inline_policies(&wanted.node_role))?,
        (false, true) => account.inline_policies(&wanted.node_role).unwrap_or_default(),
        (false, false) => Vec::new(),
    };
    Ok(Some(Role { inline, ..role }))
}

/// Whether Whittle was uninstalled from the cluster. A user without the right to read the deployment's table can add a
/// cluster nevertheless.
fn uninstalled(account: Account<'_>, stack: &Stack, wanted: &Wanted) -> Option<Result<[String; 2], String>> {
    if wanted.removes {
        return None;
    }
    let (table, cluster) = (stack.output("TableName"), wanted.cluster.as_str());
    let record = match account.uninstalled(table, cluster) {
        Ok(record) => record?,
        Err(error) => return Some(Err(format!("the table {table} cannot be read: {error}"))),
    };
    Some(Ok([record.sentence(cluster), Uninstalled::remedy(account.0, table, cluster)]))
}

/// What the account has of the watcher. Nothing is asked where it is neither made nor taken away.
fn watcher(account: Account<'_>, stack: &Stack, eks: &Eks, wanted: &Wanted) -> Result<Watcher, String> {
    let is_wanted = matches!(wanted.doorbell, Bell::Watcher { .. });
    if !is_wanted && !wanted.removes {
        return Ok(Watcher::default());
    }
    let own = Stack::find(&account, &stack_name(&stack.name, &wanted.cluster))?.ok();
    let asks = is_wanted && own.is_none();
    let has_provider = asks && readable("the OIDC providers", account.has_oidc_provider(&eks.issuer))?;
    // A user without the right to read add-ons can add a cluster nevertheless.
    let has_agent = if asks && !has_provider { account.has_addon(&wanted.cluster, AGENT).ok() } else { None };
    Ok(Watcher { stack: own, has_provider, has_agent, neighbours: Vec::new() })
}

fn of_account(
    account: Account<'_>,
    stack: &Stack,
    eks: &Eks,
    wanted: &Wanted,
    entries: impl FnOnce(&Stack) -> Result<BTreeMap<String, Entry>, String> + Send,
) -> Result<AccountSide, Vec<String>> {
    let groups = if wanted.security_groups.is_empty() { vec![eks.security_group.clone()] } else { wanted.security_groups.clone() };
    let groups: Vec<String> = groups.into_iter().filter(|id| !id.is_empty()).collect();
    let subnets = if wanted.subnets.is_empty() { &eks.subnets } else { &wanted.subnets };
    let discovery = [format!("Name=tag:{DISCOVERY},Values={}", wanted.cluster), format!("Name=vpc-id,Values={}", eks.vpc)];
    let filters =
        [&["--filters"], words(&discovery).into_iter().take(if eks.vpc.is_empty() { 1 } else { 2 }).collect::<Vec<_>>().as_slice()]
            .concat();
    thread::scope(|threads| {
        let entries = threads.spawn(move || entries(stack));
        let role = threads.spawn(|| role(account, eks, wanted));
        let spot = threads.spawn(|| readable(&format!("the role {SPOT_ROLE}"), account.has_role(SPOT_ROLE)));
        let by_id = threads.spawn(|| {
            let ids = [&["--subnet-ids"], words(subnets).as_slice()].concat();
            if subnets.is_empty() { Ok(Vec::new()) } else { readable("the cluster's subnets", account.subnets(&ids)) }
        });
        let of_groups = threads.spawn(|| {
            let ids = [&["--group-ids"], words(&groups).as_slice()].concat();
            if groups.is_empty() { Ok(Vec::new()) } else { readable("the cluster's security group", account.security_groups(&ids)) }
        });
        let found = threads.spawn(|| readable("subnets with the discovery tag", account.subnets(&filters)));
        let found_groups = threads.spawn(|| readable("security groups with the discovery tag", account.security_groups(&filters)));
        let parameter = stack.secret_parameter();
        let secret = threads.spawn(move || {
            let read = wanted.doorbell == Bell::Webhook && stack.takes_webhooks();
            if read { readable(&format!("the SSM parameter {parameter}"), account.secret(parameter)) } else { Ok(None) }
        });
        let machines = threads.spawn(|| readable("the cluster's machines", account.machines(&wanted.cluster)));
        let uninstalled = threads.spawn(|| uninstalled(account, stack, wanted));
        let others = threads.spawn(|| serving::others(account, stack, &wanted.cluster));
        let watcher = threads.spawn(|| watcher(account, stack, eks, wanted));
        let mut faults = Vec::new();
        let (other_stacks, shadow_stacks) = match joined(others) {
            Ok(others) => (Ok(others.acting), others.shadows),
            Err(fault) => (Err(fault), Vec::new()),
        };
        let side = AccountSide {
            entries: kept(joined(entries), &mut faults),
            node_role: kept(joined(role), &mut faults),
            has_spot_role: kept(joined(spot), &mut faults),
            subnets: kept(joined(by_id), &mut faults),
            security_groups: kept(joined(of_groups), &mut faults),
            discovered: [kept(joined(found), &mut faults), kept(joined(found_groups), &mut faults)],
            secret: kept(joined(secret), &mut faults),
            machines: kept(joined(machines), &mut faults),
            uninstalled: joined(uninstalled),
            other_stacks: Some(other_stacks),
            shadow_stacks,
            watcher: kept(joined(watcher), &mut faults),
        };
        if faults.is_empty() { Ok(side) } else { Err(faults) }
    })
}

fn kept<T: Default>(answer: Result<T, String>, faults: &mut Vec<String>) -> T {
    answer.unwrap_or_else(|fault| {
        faults.push(fault);
        T::default()
    })
}

fn entries(account: Account<'_>, stack: &Stack, wanted: &Wanted) -> Result<BTreeMap<String, Entry>, String> {
    let nodes = format!("arn:{}:iam::{}:role/{}", stack.partition, stack.account, wanted.node_role);
    let functions = FUNCTIONS.iter().map(|(_, output, _)| stack.output(output).to_owned());
    let nodes = Some(nodes).filter(|_| wanted.node_role.len() <= ROLE_NAME_MAX);
    let mut arns: Vec<String> = functions.chain(nodes).filter(|arn| !arn.is_empty()).collect();
    let earlier: Vec<String> = earlier_roles(account, stack, wanted).into_iter().filter(|arn| !arns.contains(arn)).collect();
    arns.extend(earlier);
    let cluster = wanted.cluster.as_str();
    let answers: Vec<_> = thread::scope(|threads| {
        let asked: Vec<_> = arns.iter().map(|arn| threads.spawn(move || account.entry(cluster, arn))).collect();
        asked.into_iter().map(joined).collect()
    });
    let mut entries = BTreeMap::new();
    for (arn, answer) in arns.into_iter().zip(answers) {
        match answer {
            // A cluster in mode CONFIG_MAP has no access entries.
            Err(error) if error.says("authentication mode") => {}
            answer => entries.extend(readable(&format!("the access entry of {arn}"), answer)?.map(|entry| (arn, entry))),
        }
    }
    Ok(entries)
}

/// Roles with an access entry that a stack of this name had, now or before it was deleted and deployed again. That they cannot be listed is
/// told where other stacks are looked for.
fn earlier_roles(account: Account<'_>, stack: &Stack, wanted: &Wanted) -> Vec<String> {
    if !wanted.removes {
        return Vec::new();
    }
    let mut arns = account.principals(&wanted.cluster).unwrap_or_default();
    arns.retain(|arn| is_of_stack(&stack.name, arn));
    arns
}

/// Whether CloudFormation named a role for a function of a stack of this name.
pub(super) fn is_of_stack(stack: &str, arn: &str) -> bool {
    let role = arn.rsplit('/').next().unwrap_or_default();
    let rest = role.strip_prefix(stack).and_then(|rest| rest.strip_prefix('-'));
    let is_named = |(_, output, _): &(&str, &str, [&str; 2])| {
        let name = output.trim_end_matches("Arn");
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|end| end.starts_with('-'))
    };
    FUNCTIONS.iter().any(is_named)
}

/// Those that `cluster add` made for a stack that is gone, with the roles of its functions.
fn marked_entries(account: Account<'_>, cluster: &str) -> Result<BTreeMap<String, Entry>, String> {
    let arns = match account.principals(cluster) {
        // A cluster in mode CONFIG_MAP has no access entries.
        Err(error) if error.says("authentication mode") => Vec::new(),
        answer => readable("the access entries", answer)?,
    };
    let mut entries = BTreeMap::new();
    for arn in arns {
        let entry = readable(&format!("the access entry of {arn}"), account.entry(cluster, &arn))?;
        entries.extend(entry.filter(|entry| entry.tags.get(MARK).is_some_and(|of| of == cluster)).map(|entry| (arn, entry)));
    }
    Ok(entries)
}

/// What others have in the watcher's namespace, of every kind that the API server lists; of secrets no more than the names is read. What
/// cannot be listed counts as theirs.
fn neighbours(kubernetes: Kubernetes<'_>) -> Vec<String> {
    let listed = kubernetes.kinds_in_namespaces().and_then(|kinds| {
        // They tell of other objects.
        let kinds: Vec<String> = kinds.into_iter().filter(|kind| !kind.starts_with("events")).collect();
        kubernetes.names(&[&kinds.join(","), "-n", manifests::WATCHER_NAMESPACE])
    });
    listed.map_or_else(|error| vec![format!("it cannot be listed: {error}")], |all| others(&all))
}

/// Those that neither Kubernetes nor the watcher's manifests make.
fn others(all: &[String]) -> Vec<String> {
    let ours: Vec<String> = manifests::watcher("", "", "", "").iter().map(manifests::reference).collect();
    let of_kubernetes = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    let of_deployment = ["pod/whittle-watcher-", "replicaset.apps/whittle-watcher-", "podmetrics.metrics.k8s.io/whittle-watcher-"];
    let is_made = |one: &str| {
        ours.iter().any(|own| own == one) || of_kubernetes.contains(&one) || of_deployment.iter().any(|name| one.starts_with(name))
    };
    all.iter().filter(|one| !is_made(one)).cloned().collect()
}

/// What the API server knows.
fn of_cluster(kubernetes: Kubernetes<'_>, removes: bool) -> Result<Facts, Vec<String>> {
    let references = |objects: Vec<Value>| objects.iter().map(manifests::reference).collect::<Vec<_>>();
    let crds = references(manifests::crds());
    let named = references([manifests::rbac(), manifests::flow(), manifests::webhook("", "", "")].concat());
    let guard = references(manifests::guard());
    let (namespaced, plain): (Vec<Value>, Vec<Value>) =
        manifests::watcher("", "", "", "").into_iter().partition(|object| object["metadata"].get("namespace").is_some());
    let in_namespace = [vec!["-n".to_owned(), manifests::WATCHER_NAMESPACE.to_owned()], references(namespaced)].concat();
    let watcher = references(plain);
    let get = |arguments: &[&str], what: &str| readable(&format!("{what} of the cluster"), kubernetes.get(arguments));
    thread::scope(|threads| {
        let by_name = |references: Vec<String>, what: &'static str| {
            threads.spawn(move || get(&[&["--show-managed-fields"], words(&references).as_slice()].concat(), what))
        };
        let objects = [
            by_name(crds, "the CRDs"),
            by_name(named, "roles, flow schema and webhook"),
            by_name(guard, "admission policies"),
            by_name(watcher, "the watcher's role and namespace"),
            by_name(in_namespace, "the watcher"),
        ];
        let beside = threads.spawn(move || if removes { neighbours(kubernetes) } else { Vec::new() });
        let every = |kind: &'static str| threads.spawn(move || get(&[kind], kind));
        let pools = [every("nodepools.karpenter.sh"), every("provisioners.karpenter.sh")];
        let classes = [every("ec2nodeclasses.karpenter.k8s.aws"), every("awsnodetemplates.karpenter.k8s.aws")];
        let claims = every("nodeclaims.karpenter.sh");
        let others = [
            every("nodeoverlays.karpenter.sh"),
            threads.spawn(move || get(&["capacitybuffers.autoscaling.x-k8s.io", "-A"], "capacitybuffers")),
        ];
        let mut faults = Vec::new();
        let facts = Facts {
            objects: objects.map(|thread| kept(joined(thread), &mut faults)).concat(),
            pools: pools.map(|thread| kept(joined(thread), &mut faults)).concat(),
            classes: classes.map(|thread| kept(joined(thread), &mut faults)).concat(),
            claims: kept(joined(claims), &mut faults),
            others: others.map(|thread| kept(joined(thread), &mut faults)).concat(),
            watcher: Watcher { neighbours: joined(beside), ..Watcher::default() },
            ..Facts::default()
        };
        // A server that cannot be reached says so for each of them.
        faults.sort_by_key(String::len);
        faults.truncate(1);
        if faults.is_empty() { Ok(facts) } else { Err(faults) }
    })
}

#[cfg(test)]
mod tests {
    use super::{is_of_stack, others};

    #[test]
    fn the_roles_of_a_stack_have_its_name() {
        let arn = |role: &str| format!("arn:aws:iam::1:role/{role}");
        assert!(is_of_stack("whittle-dev", &arn("whittle-dev-SweepRole-1")));
        for other in ["whittle-dev-SweepRole-1", "whittle-Other-SweepRole-1", "whittle-SweepRoles-1", "SweepRole-1", "whittle"] {
            assert!(!is_of_stack("whittle", &arn(other)), "{other}");
        }
    }

    #[test]
    fn what_others_have_in_the_watchers_namespace_is_of_any_kind() {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let made = [
            "configmap/kube-root-ca.crt",
            "serviceaccount/default",
            "serviceaccount/whittle-watcher",
            "deployment.apps/whittle-watcher",
            "poddisruptionbudget.policy/whittle-watcher",
            "networkpolicy.networking.k8s.io/whittle-watcher",
            "replicaset.apps/whittle-watcher-6d4f",
            "pod/whittle-watcher-6d4f-x2x4b",
        ];
        assert_eq!(others(&all(&made)), [""; 0]);
        let theirs = ["secret/registry", "role.rbac.authorization.k8s.io/mine", "widget.example.com/a", "configmap/whittle-watcher-mine"];
        assert_eq!(others(&all(&[&made[..], &theirs].concat())), theirs);
    }
}
