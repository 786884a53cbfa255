//! What `cluster add` would do: facts in, steps out.

use super::facts::{Bell, Facts, Wanted};
use super::manifests::{self, apply, contains, is_applied_by_us, is_marked, marked, reference};
use super::step::{Action, MARK, State, Step};
use super::watcher;
use crate::live::account::{CNI_POLICY, DISCOVERY, EC2_SERVICE, NODE_POLICIES, ROLE_NAME_MAX, Role, Tagged, ec2_service, give_ipv6_rights};
use crate::live::deployment::FUNCTIONS;
use crate::live::kubernetes::is_anothers_pool;
use crate::live::serving;
use serde_json::{Value, json};
use whittle_ports::{NamePatterns, Settings, names_of};
use whittle_units::ClusterName;

/// All steps, in the order in which they are done.
pub(super) fn add(facts: &Facts, wanted: &Wanted) -> Vec<Step> {
    let mut steps = vec![in_stack(facts, wanted), authentication(facts, wanted)];
    steps.extend(uninstalled(facts));
    steps.extend(other_stacks(facts, wanted));
    steps.extend(access(facts, wanted));
    steps.extend([node_role(facts, wanted), node_entry(facts, wanted), spot_role(facts)]);
    steps.extend(cni_rights(facts, wanted));
    steps.extend([discovery(facts, wanted, &SUBNETS), discovery(facts, wanted, &GROUPS)]);
    steps.extend(crds(facts));
    steps.push(ours(facts, "rbac", "roles and bindings of the functions", "what the functions may do in the cluster", manifests::rbac()));
    steps.push(guard(facts));
    steps.push(ours(facts, "flow", "flow schema", "room at the API server, also when others keep it busy", manifests::flow()));
    match &wanted.doorbell {
        Bell::Webhook => steps.extend([secret(facts, wanted), webhook(facts, wanted)]),
        Bell::Watcher { image } => steps.extend(watcher::add(facts, wanted, image)),
        Bell::None => {}
    }
    if wanted.sample {
        steps.push(sample(facts, wanted));
    }
    if let Some(other) = acting_beside(facts) {
        leave_doorbell_to(other, &mut steps);
    }
    // Nothing is made for a second deployment: its webhook, for one, would take the place of the other's.
    if steps.iter().any(|step| step.id == OTHER_STACKS && matches!(step.state, State::Blocked { .. })) {
        steps.iter_mut().filter(|step| step.id != OTHER_STACKS).for_each(|step| step.needs.push(OTHER_STACKS));
    }
    steps
}

/// The step of [`other_stacks`].
const OTHER_STACKS: &str = "other-stacks";

fn in_stack(facts: &Facts, wanted: &Wanted) -> Step {
    let stack = &facts.stack;
    let mut clusters = stack.clusters();
    let state = if let Some(repair) = stack.repair() {
        State::blocked(format!("stack {} is in state {}", stack.name, stack.status), repair)
    } else if clusters.contains(&wanted.cluster) {
        State::Exists
    } else {
        clusters.push(wanted.cluster.clone());
        State::blocked(
            format!("the parameter Clusters of stack {} is {:?}", stack.name, stack.parameter("Clusters")),
            stack.deploy_line(&clusters),
        )
    };
    Step::new("stack", "the cluster in the stack's parameter Clusters", "the functions work on no other", state)
}

/// Something is to say of it only if there is a record, or if that is not known.
fn uninstalled(facts: &Facts) -> Option<Step> {
    let state = match facts.uninstalled.clone()? {
        Ok([why, remedy]) => State::blocked(why, remedy),
        Err(fault) => State::LeftAlone(fault),
    };
    Some(Step::new("uninstalled", "no record of an uninstallation", "while it is there, nothing is launched for the cluster", state))
}

/// The stack that acts in a cluster of which this one is a shadow.
fn acting_beside(facts: &Facts) -> Option<&str> {
    let others = facts.other_stacks.as_ref()?.as_ref().ok()?;
    others.first().filter(|_| facts.stack.is_shadow()).map(String::as_str)
}

/// A cluster has one doorbell, which would ring a shadow in place of the stack that launches.
fn leave_doorbell_to(other: &str, steps: &mut [Step]) {
    let is_doorbell = |step: &&mut Step| ["webhook", "watcher", watcher::STACK_STEP].contains(&step.id.as_str());
    for step in steps.iter_mut().filter(is_doorbell).filter(|step| step.state != State::Exists) {
        step.state = State::LeftAlone(format!("it is for stack {other}, which serves the cluster; a shadow looks once a minute"));
        step.actions.clear();
    }
}

/// Something is to say of them only if there are some, or if that is not known.
fn other_stacks(facts: &Facts, wanted: &Wanted) -> Option<Step> {
    let state = match facts.other_stacks.as_ref()? {
        Err(fault) => State::LeftAlone(fault.clone()),
        Ok(others) => {
            let first = others.first()?;
            let why = format!("stack {} serves the cluster, too", others.join(", "));
            if facts.stack.is_shadow() {
                State::LeftAlone(format!("{why}; stack {} changes nothing, since its Mode is shadow", facts.stack.name))
            } else {
                State::blocked(why, serving::remedy(&wanted.cluster, first, &facts.stack.region))
            }
        }
    };
    let why = "two launch for the same pods, and each takes the other's machines for its own";
    Some(Step::new(OTHER_STACKS, "no other stack that serves the cluster", why, state))
}

fn authentication(facts: &Facts, wanted: &Wanted) -> Step {
    let mode = facts.eks.authentication.as_str();
    let state = if mode.contains("API") {
        State::Exists
    } else {
        let change = format!(
            "aws eks update-cluster-config --name {} --access-config authenticationMode=API_AND_CONFIG_MAP --region {} (it cannot \
             be undone; aws-auth stays valid)",
            wanted.cluster, facts.stack.region
        );
        State::blocked("the cluster knows no access entries (authentication mode CONFIG_MAP)", change)
    };
    Step::new("authentication", "authentication by access entries", "they let the functions and the nodes in", state)
}

fn access(facts: &Facts, wanted: &Wanted) -> impl Iterator<Item = Step> {
    FUNCTIONS.iter().map(|&(function, output, groups)| {
        let arn = facts.role_of(output);
        let at = ["--cluster-name", &wanted.cluster, "--principal-arn", arn];
        let mut change = None;
        let state = match facts.entries.get(arn) {
            _ if arn.is_empty() => {
                State::blocked(format!("stack {} has no output {output}", facts.stack.name), "deploy this release of Whittle again")
            }
            None => {
                let tags = json!({MARK: wanted.cluster}).to_string();
                let new = [&["eks", "create-access-entry"], &at[..], &["--tags", &tags, "--kubernetes-groups"], &groups].concat();
                change = Some(Action::aws(&new).done_if("ResourceInUseException").again_if("principalArn"));
                State::ToDo
            }
            Some(entry) if groups.iter().all(|group| entry.groups.contains(*group)) => State::Exists,
            Some(entry) if entry.kind != "STANDARD" && !entry.kind.is_empty() => State::blocked(
                format!("it is of type {}", entry.kind),
                format!("aws eks delete-access-entry {} --region {}; then run this again", at.join(" "), facts.stack.region),
            ),
            Some(entry) => {
                let more = groups.iter().copied().filter(|group| !entry.groups.contains(*group));
                let all: Vec<&str> = entry.groups.iter().map(String::as_str).chain(more).collect();
                change = Some(Action::aws(&[&["eks", "update-access-entry"], &at[..], &["--kubernetes-groups"], &all].concat()));
                State::ToDo
            }
        };
        let what = format!("access entry of {function}");
        Step::new(format!("access/{function}"), what, "lets the function into the cluster, in its groups", state)
            .needs(&["authentication"])
            .by(change)
    })
}

/// Why the stack's fences keep this role from nodes of the cluster, if they do.
fn role_is_refused(facts: &Facts, wanted: &Wanted) -> Option<State> {
    let mut clusters: Vec<ClusterName> = facts.stack.clusters().iter().map(ClusterName::new).collect();
    if !clusters.iter().any(|name| name.as_str() == wanted.cluster) {
        clusters.push(ClusterName::new(&wanted.cluster));
    }
    let settings = Settings {
        node_roles: names_of(facts.stack.parameter("NodeRoles")),
        cluster_node_roles: NamePatterns::parse(facts.stack.parameter("ClusterNodeRoles")).ok()?,
        default_node_role: Some(facts.stack.parameter("DefaultNodeRole").to_owned()).filter(|name| !name.is_empty()),
        clusters,
        ..Settings::default()
    };
    let permitted = settings.permits_node_role(&ClusterName::new(&wanted.cluster), &wanted.node_role);
    (!permitted).then(|| {
        State::blocked(
            format!("the stack's NodeRoles and ClusterNodeRoles do not let nodes of this cluster have role {}", wanted.node_role),
            format!(
                "deploy with NodeRoles={},{} and the role for this cluster in ClusterNodeRoles (infra/README.md), or leave --node-role out",
                facts.stack.parameter("NodeRoles"),
                wanted.node_role
            ),
        )
    })
}

fn node_role(facts: &Facts, wanted: &Wanted) -> Step {
    let name = wanted.node_role.as_str();
    let partition = facts.stack.partition.as_str();
    let service = ec2_service(partition);
    let attach = |policy: &str| {
        let arn = format!("arn:{partition}:iam::aws:policy/{policy}");
        Action::aws(&["iam", "attach-role-policy", "--role-name", name, "--policy-arn", &arn])
    };
    let is_needed = |policy: &str| policy != CNI_POLICY || !facts.eks.ipv6;
    let lacks = |role: &Role, policy: &str| is_needed(policy) && !has_policy(role, policy);
    let missing = |role: &Role| NODE_POLICIES.iter().copied().filter(|policy| lacks(role, policy)).collect::<Vec<_>>();
    let mut actions = Vec::new();
    let state = match &facts.node_role {
        _ if ROLE_NAME_MAX < name.len() => {
            State::blocked("a role's name has at most 64 letters", "name a role by --node-role, and let the stack's NodeRoles have it")
        }
        None => {
            let services = if service == EC2_SERVICE { json!(service) } else { json!([EC2_SERVICE, service]) };
            let trust = json!({"Version": "2012-10-17", "Statement": [{
                "Effect": "Allow", "Principal": {"Service": services}, "Action": "sts:AssumeRole"
            }]});
            let tag = format!("Key={MARK},Value={}", wanted.cluster);
            let new = ["iam", "create-role", "--role-name", name, "--assume-role-policy-document", &trust.to_string(), "--tags", &tag];
            // Who refuses roles without a boundary refuses those of nodes too.
            let bounded = ["--permissions-boundary", facts.stack.parameter("PermissionsBoundary")];
            let bounded: &[&str] = if bounded[1].is_empty() { &[] } else { &bounded };
            actions.push(Action::aws(&[&new[..], bounded].concat()));
            actions.extend(NODE_POLICIES.iter().map(|policy| attach(policy)));
            actions.push(Action::aws(&["iam", "wait", "role-exists", "--role-name", name]));
            State::ToDo
        }
        Some(role) if !role.trusts_ec2 => State::blocked(
            format!("EC2 may not assume role {name}"),
            format!("let {service} assume it, or name another role by --node-role"),
        ),
        Some(role) if missing(role).is_empty() => State::Exists,
        // One that a run before this one began.
        Some(role) if role.tags.contains_key(MARK) => {
            actions.extend(missing(role).into_iter().map(attach));
            State::ToDo
        }
        Some(role) => State::LeftAlone(format!(
            "role {name} was there before and lacks the policies {}; nodes need what these allow",
            missing(role).join(", ")
        )),
    };
    let state = role_is_refused(facts, wanted).unwrap_or(state);
    let actions = if state == State::ToDo { actions } else { Vec::new() };
    Step::new("node-role", format!("node role {name} with its policies"), "nodes join, get addresses and pull images by it", state)
        .by(actions)
}

/// A role may have the older policy, which allows more, for the one that pulls images.
fn has_policy(role: &Role, policy: &str) -> bool {
    let older = policy == "AmazonEC2ContainerRegistryPullOnly" && role.policies.contains("AmazonEC2ContainerRegistryReadOnly");
    older || role.policies.contains(policy)
}

/// Something is to say of them only where pods get IPv6 addresses, and the node role has no policy that might let the VPC CNI plugin assign
/// them.
fn cni_rights(facts: &Facts, wanted: &Wanted) -> Option<Step> {
    if !facts.eks.ipv6 || facts.node_role.as_ref().is_some_and(Role::has_own_policies) {
        return None;
    }
    let command = give_ipv6_rights(&wanted.node_role, &facts.stack.partition);
    let why = format!(
        "{CNI_POLICY} has no rights for IPv6; unless the VPC CNI plugin has a role of its own, nodes never get ready until: {command}"
    );
    let what = "rights to assign IPv6 addresses, which the cluster's pods have";
    Some(Step::new("cni-rights", what, "pods get addresses by them", State::LeftAlone(why)))
}

fn node_entry(facts: &Facts, wanted: &Wanted) -> Step {
    let arn = facts.node_role_arn(&wanted.node_role);
    let at = ["--cluster-name", &wanted.cluster, "--principal-arn", &arn];
    let mut change = None;
    let state = match facts.entries.get(&arn) {
        Some(entry) if entry.lets_nodes_join() => State::Exists,
        Some(entry) if entry.kind == "EC2" => State::blocked(
            format!("the access entry of {} is of type EC2, EKS Auto Mode's, with which nodes of others cannot join", wanted.node_role),
            format!(
                "name another role by --node-role; or, if Auto Mode does not use it, aws eks delete-access-entry {} --region {}, then \
                 run this again",
                at.join(" "),
                facts.stack.region
            ),
        ),
        Some(entry) => State::blocked(
            format!("the access entry of {} is of type {}, with which nodes cannot join", wanted.node_role, entry.kind),
            format!("aws eks delete-access-entry {} --region {}; then run this again", at.join(" "), facts.stack.region),
        ),
        None => {
            let tags = json!({MARK: wanted.cluster}).to_string();
            let new = [&["eks", "create-access-entry"], &at[..], &["--type", "EC2_LINUX", "--tags", &tags]].concat();
            change = Some(Action::aws(&new).done_if("ResourceInUseException").again_if("principalArn"));
            State::ToDo
        }
    };
    let what = format!("access entry EC2_LINUX of {}", wanted.node_role);
    Step::new("node-entry", what, "lets nodes join", state).needs(&["authentication", "node-role"]).by(change)
}

fn spot_role(facts: &Facts) -> Step {
    let make = Action::aws(&["iam", "create-service-linked-role", "--aws-service-name", "spot.amazonaws.com"]).done_if("has been taken");
    let state = if facts.has_spot_role { State::Exists } else { State::ToDo };
    let why = "EC2 starts spot instances by it; one for the account, and cluster remove leaves it";
    Step::new("spot-role", "service-linked role of EC2 Spot", why, state).by([make])
}

/// What is found by tags.
struct Found {
    id: &'static str,
    what: &'static str,
    option: &'static str,
    of: for<'a> fn(&'a Facts) -> (&'a [Tagged], &'a [Tagged]),
    /// Those that the user named.
    asked: fn(&Wanted) -> &[String],
}

const SUBNETS: Found = Found {
    id: "subnets",
    what: "subnets",
    option: "--subnets",
    of: |facts| (&facts.subnets, facts.discovered.first().map_or(&[], Vec::as_slice)),
    asked: |wanted| &wanted.subnets,
};
const GROUPS: Found = Found {
    id: "security-groups",
    what: "security groups",
    option: "--security-groups",
    of: |facts| (&facts.security_groups, facts.discovered.last().map_or(&[], Vec::as_slice)),
    asked: |wanted| &wanted.security_groups,
};

impl Found {
    /// Those that nodes are to get: the ones that the user named, or else private subnets, if there are some.
    fn chosen<'a>(&self, facts: &'a Facts, wanted: &Wanted) -> Vec<&'a Tagged> {
        let (all, _) = (self.of)(facts);
        let private: Vec<&Tagged> = all.iter().filter(|one| !one.public || !(self.asked)(wanted).is_empty()).collect();
        if private.is_empty() { all.iter().collect() } else { private }
    }

    /// Whether they carry the tag for another cluster, or cannot be found by it for other reasons.
    fn is_anothers(&self, facts: &Facts, wanted: &Wanted) -> bool {
        self.chosen(facts, wanted).iter().any(|one| one.tags.get(DISCOVERY).is_some_and(|other| *other != wanted.cluster))
    }

    /// The ids for a node class that cannot go by tags.
    fn ids(&self, facts: &Facts, wanted: &Wanted) -> Option<Vec<String>> {
        let (_, found) = (self.of)(facts);
        let by_id = (found.is_empty() || !(self.asked)(wanted).is_empty()) && self.is_anothers(facts, wanted);
        by_id.then(|| self.chosen(facts, wanted).iter().map(|one| one.id.clone()).collect())
    }
}

fn discovery(facts: &Facts, wanted: &Wanted, kind: &Found) -> Step {
    let (_, found) = (kind.of)(facts);
    let chosen = kind.chosen(facts, wanted);
    let asked = (kind.asked)(wanted);
    let untagged: Vec<&str> = chosen.iter().filter(|one| !one.tags.contains_key(DISCOVERY)).map(|one| one.id.as_str()).collect();
    let mut change = None;
    let state = if chosen.is_empty() && found.is_empty() {
        State::blocked(format!("EKS names no {} of the cluster", kind.what), format!("name them by {}", kind.option))
    } else if (asked.is_empty() && !found.is_empty()) || untagged.is_empty() && !kind.is_anothers(facts, wanted) {
        State::Exists
    } else if kind.is_anothers(facts, wanted) {
        State::LeftAlone(format!("some carry {DISCOVERY} of another cluster; the sample node class names them by id, and so should yours"))
    } else {
        let tags = [format!("Key={DISCOVERY},Value={}", wanted.cluster), format!("Key={MARK},Value={}", wanted.cluster)];
        let new = [&["ec2", "create-tags", "--resources"], untagged.as_slice(), &["--tags", &tags[0], &tags[1]]].concat();
        change = Some(Action::aws(&new));
        State::ToDo
    };
    let ids = chosen.iter().map(|one| one.id.as_str()).collect::<Vec<_>>().join(" ");
    let what = format!("{DISCOVERY}={} on {} {ids}", wanted.cluster, kind.what);
    Step::new(kind.id, what, "node classes find them by it", state).by(change)
}

fn crds(facts: &Facts) -> impl Iterator<Item = Step> {
    manifests::crds().into_iter().map(|crd| {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (state, wanted) = match facts.object(&crd) {
            None => (State::ToDo, marked(crd)),
            Some(has) if contains(has, &crd) => (State::Exists, crd),
            Some(has) if is_marked(has) => (State::ToDo, marked(crd)),
            Some(has) if is_applied_by_us(has) => (State::ToDo, crd),
            Some(_) => (State::LeftAlone("it was there before, as Karpenter's are, and is not overwritten".to_owned()), crd),
        };
        let file = format!("infra/crds, {name}");
        Step::new(format!("crd/{name}"), format!("CRD {name}"), "a kind that Whittle serves", state).by([apply(&[wanted], &file, false)])
    })
}

/// Objects that only we have names for.
fn ours(facts: &Facts, id: &str, what: &str, why: &'static str, objects: Vec<Value>) -> Step {
    let differ: Vec<Value> = objects
        .into_iter()
        .filter_map(|object| match facts.object(&object) {
            None => Some(marked(object)),
            Some(has) if contains(has, &object) => None,
            Some(has) if is_marked(has) => Some(marked(object)),
            Some(_) => Some(object),
        })
        .collect();
    let state = if differ.is_empty() { State::Exists } else { State::ToDo };
    Step::new(id, what, why, state).by([apply(&differ, &format!("infra/cluster/{id}.yaml"), true)])
}

fn guard(facts: &Facts) -> Step {
    let step =
        ours(facts, "guard", "admission policy of node classes", "refresh may not write the spec of a node class", manifests::guard());
    let minor = facts.eks.version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_none_or(|minor| 30 <= minor) {
        return step;
    }
    let why = format!("version {} of Kubernetes has no ValidatingAdmissionPolicy", facts.eks.version);
    Step { state: State::LeftAlone(why), actions: Vec::new(), ..step }
}

fn secret(facts: &Facts, wanted: &Wanted) -> Step {
    let parameter = facts.stack.secret_parameter();
    let state = if !facts.stack.takes_webhooks() {
        State::LeftAlone(format!("with the stack's RelayAuth {} there is none", facts.stack.parameter("RelayAuth")))
    } else if facts.secret.is_some() {
        State::Exists
    } else {
        State::ToDo
    };
    let key = facts.stack.parameter("SecretKey");
    let key: &[&str] = if key.is_empty() { &[] } else { &["--key-id", key] };
    // By standard input: other users of the machine see command lines.
    let value = ["--type", "SecureString", "--value", "file:///dev/stdin"];
    let put = Action::aws(&[&["ssm", "put-parameter", "--name", parameter], &value[..], key].concat());
    let put = put.reads(wanted.new_secret.clone(), "32 random bytes in hexadecimal");
    let why = "the webhooks' paths follow from it; one for the stack, and cluster remove leaves it";
    Step::new("secret", format!("the relay's secret, SSM parameter {parameter}"), why, state).by([put])
}

/// The doorbell as it should be; none if the stack does not tell its address.
pub(super) fn doorbell(facts: &Facts, stored: &str, cluster: &str) -> Option<Vec<Value>> {
    let host = facts.stack.relay_host()?;
    Some(manifests::webhook(host, &whittle_relay::cluster_secret(stored, cluster), cluster))
}

fn webhook(facts: &Facts, wanted: &Wanted) -> Step {
    let (what, why) = ("webhook", "the API server rings the relay for pods without a node; without it they wait for the tick, a minute");
    let stored = facts.secret.as_ref().map_or(wanted.new_secret.as_str(), |secret| secret.0.as_str());
    let step = match doorbell(facts, stored, &wanted.cluster) {
        _ if facts.stack.has_no_relay() => {
            let why_not = "the stack's RelayAuth is OFF: there is no URL, and pods without a node wait for the tick, up to a minute";
            Step::new("webhook", what, why, State::LeftAlone(why_not.to_owned()))
        }
        _ if !facts.stack.takes_webhooks() => {
            let why_not = "the stack's RelayAuth is AWS_IAM, which takes signed calls only: add --relay watcher";
            Step::new("webhook", what, why, State::LeftAlone(why_not.to_owned()))
        }
        None => {
            let remedy = "deploy this release of Whittle again";
            Step::new("webhook", what, why, State::blocked(format!("stack {} has no output RelayUrl", facts.stack.name), remedy))
        }
        Some(objects) => ours(facts, "webhook", what, why, objects),
    };
    step.needs(&["secret"])
}

fn sample(facts: &Facts, wanted: &Wanted) -> Step {
    let (what, why) = ("node class and NodePool \"default\"", "a beginning: without any, no pod gets a node");
    let [subnets, groups] = [&SUBNETS, &GROUPS].map(|kind| kind.ids(facts, wanted));
    let objects = manifests::sample(&wanted.cluster, &wanted.node_role, subnets.as_deref(), groups.as_deref());
    let is_there = |object: &Value| facts.pools.iter().chain(&facts.classes).any(|one| reference(one) == reference(object));
    let missing: Vec<Value> = objects.iter().filter(|object| !is_there(object)).cloned().map(marked).collect();
    let (others, pools): (Vec<&Value>, Vec<&Value>) = facts.pools.iter().partition(|pool| is_anothers_pool(pool));
    let of_user = pools.into_iter().chain(&facts.classes).filter(|one| !is_marked(one)).count();
    let state = if of_user == 0 && !others.is_empty() && !missing.is_empty() {
        // It takes all pods, and so do most pools of others.
        State::LeftAlone(
            "the cluster has NodePools of another controller, such as EKS Auto Mode, and both would launch for the same pods: make one \
             with taints of its own (docs/guide/beside-others.md)"
                .to_owned(),
        )
    } else if 0 < of_user {
        State::LeftAlone("the cluster has NodePools or node classes already".to_owned())
    } else if missing.is_empty() {
        State::Exists
    } else {
        State::ToDo
    };
    let served = ["crd/nodepools.karpenter.sh", "crd/ec2nodeclasses.karpenter.k8s.aws"];
    let wait = [&["wait", "--for=condition=Established", "--timeout=60s"], &served.map(|crd| crd)[..]].concat();
    let step = Step::new("sample", what, why, state).needs(&[served[0], served[1], "node-role"]);
    step.by([Action::kubectl(&wait), apply(&missing, "infra/sample.yaml", false)])
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
