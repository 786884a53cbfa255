//! What `cluster remove` would do: the marks in the facts say what `cluster add` made, and nothing else goes.

use super::facts::{Facts, Wanted, is_of_stack};
use super::manifests::{crds, delete, flow, guard, is_made_of_sample, is_marked, rbac, webhook};
use super::step::{Action, MARK, State, Step};
use super::watcher;
use crate::live::account::{DISCOVERY, NODE_POLICIES, Role, Tagged};
use crate::live::deployment::FUNCTIONS;
use crate::live::kubernetes::{is_anothers_claim, name};
use crate::money::counted;
use serde_json::Value;
use whittle_api::labels::NODE_CLASS_FINALIZER;

/// All steps, in the order in which they are done: first what needs the functions' access, then the access.
pub(super) fn remove(facts: &Facts, wanted: &Wanted) -> Vec<Step> {
    let emptied = emptied(facts, wanted);
    let served = served(facts, wanted, &emptied);
    let mut steps = vec![emptied, served];
    steps.extend(gone(facts, wanted));
    steps.push(sample(facts, wanted));
    let webhook = webhook("", "", "");
    steps.push(objects(facts, "webhook", "webhook", "nothing rings the relay for the cluster any more", &webhook));
    steps.extend(watcher::remove(facts, wanted, &THEN));
    steps.extend(crds().into_iter().map(|crd| of_crd(facts, &crd)));
    steps.extend([
        objects(facts, "flow", "flow schema", "it is for the functions alone", &flow()),
        objects(facts, "guard", "admission policy of node classes", "it is for the functions alone", &guard()),
        objects(facts, "rbac", "roles and bindings of the functions", "the functions may do nothing more in the cluster", &rbac()),
    ]);
    steps.extend(entries(facts, wanted));
    steps.extend([node_role(facts, wanted), tags(facts, wanted)]);
    steps.retain(|step| step.id == "emptied" || step.state != State::Exists);
    if let Some(other) = serving_instead(facts, wanted) {
        leave_to(other, &facts.stack.region, wanted, &mut steps);
    } else if let Some(shadow) = facts.shadow_stacks.first() {
        leave_to_shadow(shadow, &mut steps);
    }
    steps
}

/// Another stack that works in the cluster, where this one does not (any more): the cluster's machines are that one's, and it needs most of
/// what `cluster add` made.
fn serving_instead<'a>(facts: &'a Facts, wanted: &Wanted) -> Option<&'a str> {
    let works = serves(facts, wanted) && !facts.stack.is_shadow();
    let others = facts.other_stacks.as_ref()?.as_ref().ok()?;
    others.first().filter(|_| !works).map(String::as_str)
}

/// What stacks of one cluster have in common, besides the CRDs.
const SHARED: [&str; 10] =
    ["sample", "webhook", "watcher", "watcher-namespace", "flow", "guard", "rbac", "access/the nodes", "node-role", "tags"];

/// Those of them that ring one stack.
const RINGS: [&str; 3] = ["webhook", "watcher", "watcher-namespace"];

fn is_shared(step: &Step) -> bool {
    SHARED.contains(&step.id.as_str()) || step.id.starts_with("crd/")
}

/// Takes out what a shadow needs, whose functions may then be the only ones there: it reads what is in the cluster, and is not rung.
fn leave_to_shadow(shadow: &str, steps: &mut [Step]) {
    for step in steps.iter_mut().filter(|step| is_shared(step) && !RINGS.contains(&step.id.as_str())) {
        step.state = State::LeftAlone(format!("stack {shadow}, a shadow, serves the cluster, and needs it"));
        step.actions.clear();
    }
}

/// Takes out what the other stack needs: access entries of this one's functions go, and the stack of its watcher.
fn leave_to(other: &str, region: &str, wanted: &Wanted, steps: &mut [Step]) {
    for step in steps.iter_mut().filter(|step| is_shared(step)) {
        let why = if matches!(step.id.as_str(), "webhook" | "watcher") {
            let (cluster, region) = (&wanted.cluster, if region.is_empty() { String::new() } else { format!(" --region {region}") });
            format!(
                "stack {other} serves the cluster; whittle cluster add {cluster} --stack {other}{region} has it ring that one, if it \
                 does not"
            )
        } else {
            format!("stack {other} serves the cluster, and needs it")
        };
        step.state = State::LeftAlone(why);
        step.actions.clear();
    }
}

/// The state of what has no mark of ours, or does not exist: nothing is done, and nothing printed.
const NOTHING: State = State::Exists;

/// What comes before everything, and before what the sample's objects need.
const FIRST: [&str; 2] = ["emptied", "stack"];
const THEN: [&str; 3] = ["emptied", "stack", "sample"];

fn serves(facts: &Facts, wanted: &Wanted) -> bool {
    facts.stack.clusters().contains(&wanted.cluster)
}

/// The node class of the sample, while the functions hold it: they delete its instance profile before they let it go.
fn held(facts: &Facts) -> Option<&str> {
    let is_held = |class: &&Value| {
        let finalizers = class.pointer("/metadata/finalizers").and_then(Value::as_array);
        is_made_of_sample(class) && finalizers.is_some_and(|all| all.iter().any(|one| one == NODE_CLASS_FINALIZER))
    };
    facts.classes.iter().find(is_held).map(name)
}

fn emptied(facts: &Facts, wanted: &Wanted) -> Step {
    // Those of EKS Auto Mode stay, and whittle uninstall leaves them alone.
    let claims = facts.claims.iter().filter(|claim| !is_anothers_claim(claim)).count();
    let machines = facts.machines.len();
    let unknown = facts.unread.as_ref().or_else(|| facts.other_stacks.as_ref()?.as_ref().err());
    let state = if let Some(fault) = unknown {
        State::blocked(fault.clone(), "let aws and kubectl read it, then run this again")
    } else if serving_instead(facts, wanted).is_some() {
        State::Exists
    } else if 0 < claims + machines {
        let what = format!("it has {} and {} of the deployment", counted(claims, "NodeClaim"), counted(machines, "machine"));
        State::blocked(what, emptying(facts, wanted))
    } else if let Some(class) = held(facts).filter(|_| serves(facts, wanted)) {
        let what = format!("node class {class} has an instance profile, and the functions hold the class until they have deleted it");
        State::blocked(what, emptying(facts, wanted))
    } else {
        State::Exists
    };
    Step::new("emptied", "the cluster without machines of the deployment", "without access nobody drains and ends them", state)
}

/// What drains and ends the machines.
fn emptying(facts: &Facts, wanted: &Wanted) -> String {
    let stack = &facts.stack;
    if facts.is_stack_gone || facts.is_cluster_gone {
        let machines = facts.machines.join(" ");
        let end = if machines.is_empty() { String::new() } else { format!("aws ec2 terminate-instances --instance-ids {machines}; ") };
        return format!(
            "{end}without cluster or stack nobody drains them: docs/runbooks.md, \"Uninstall from a cluster\", has what takes off the \
             finalizers; then run this again"
        );
    }
    let uninstall = format!(
        "whittle uninstall --cluster {} --stack {} --region {} --yes, until it says that nothing is left; then run this again",
        wanted.cluster, stack.name, stack.region
    );
    if serves(facts, wanted) {
        return uninstall;
    }
    let clusters: Vec<String> = stack.clusters().into_iter().chain([wanted.cluster.clone()]).collect();
    format!("{} (the functions empty only what they serve); then {uninstall}", stack.deploy_line(&clusters))
}

/// A stack that serves a cluster without access fails at every tick.
fn served(facts: &Facts, wanted: &Wanted, emptied: &Step) -> Step {
    let stack = &facts.stack;
    let others: Vec<String> = stack.clusters().into_iter().filter(|name| *name != wanted.cluster).collect();
    let state = if serves(facts, wanted) {
        let deploy = if others.is_empty() {
            let region = &stack.region;
            format!("it serves no other: sam delete --stack-name {} --region {region}, then run this again with --gone", stack.name)
        } else {
            format!("{}; then run this again", stack.deploy_line(&others))
        };
        let first = if matches!(emptied.state, State::Blocked { .. }) { "once the cluster is empty: " } else { "" };
        State::blocked(format!("the parameter Clusters of stack {} names it", stack.name), format!("{first}{deploy}"))
    } else {
        NOTHING
    };
    // Also if the cluster no longer exists: what the deployment still has of it is removed.
    let id = if facts.is_cluster_gone { "clusters" } else { "stack" };
    Step::new(id, "the cluster out of the stack's parameter Clusters", "without access every tick of the functions fails", state)
}

/// What could not be looked at.
fn gone(facts: &Facts, wanted: &Wanted) -> Vec<Step> {
    let mut steps = Vec::new();
    if facts.is_cluster_gone {
        let why = "EKS does not have it: its access entries and objects are gone with it, and were not looked at";
        let what = format!("cluster {}", wanted.cluster);
        steps.push(Step::new("gone/cluster", what, "it is deleted", State::LeftAlone(why.to_owned())));
    }
    if facts.is_stack_gone {
        let why = "it does not exist: its functions were not looked at, and their access entries go by the tag alone";
        let what = format!("stack {}", facts.stack.name);
        steps.push(Step::new("gone/stack", what, "it is deleted", State::LeftAlone(why.to_owned())));
    }
    steps
}

fn sample(facts: &Facts, wanted: &Wanted) -> Step {
    let marked: Vec<&Value> = facts.pools.iter().chain(&facts.classes).filter(|object| is_made_of_sample(object)).collect();
    let used = facts.pools.iter().filter(|pool| !is_made_of_sample(pool)).any(|pool| {
        let class = pool.pointer("/spec/template/spec/nodeClassRef/name").and_then(Value::as_str);
        marked.iter().any(|object| object["kind"] == "EC2NodeClass" && class == Some(name(object)))
    });
    let state = if marked.is_empty() {
        NOTHING
    } else if used {
        State::LeftAlone("another NodePool names the node class".to_owned())
    } else if let Some(class) = held(facts).filter(|_| !serves(facts, wanted)) {
        State::blocked(
            format!("a finalizer holds node class {class}, and the functions, which take it off, do not serve the cluster"),
            format!(
                "kubectl delete ec2nodeclass {class} if Karpenter runs there; otherwise kubectl patch ec2nodeclass {class} --type=json -p \
                 '[{{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}}]'; then run this again"
            ),
        )
    } else {
        State::ToDo
    };
    let what = "node class and NodePool that cluster add made";
    Step::new("sample", what, "nothing answers to them any more", state).needs(&FIRST).by([delete(&marked)])
}

fn objects(facts: &Facts, id: &str, what: &str, why: &'static str, wanted: &[Value]) -> Step {
    let there: Vec<&Value> = wanted.iter().filter_map(|object| facts.object(object)).collect();
    let marked: Vec<&Value> = there.iter().copied().filter(|object| is_marked(object)).collect();
    let state = if !marked.is_empty() {
        State::ToDo
    } else if there.is_empty() {
        NOTHING
    } else {
        State::LeftAlone("cluster add did not make it".to_owned())
    };
    Step::new(id, what, why, state).needs(&THEN).by([delete(&marked)])
}

/// The CRDs that are EKS Auto Mode's as well. It finds them there if it is enabled after `cluster add`, and does not mark them.
const OF_AUTO_MODE: [&str; 2] = ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh"];

/// A CRD takes all objects of its kind with it.
fn of_crd(facts: &Facts, crd: &Value) -> Step {
    let kind = crd.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or_default();
    let all = facts.pools.iter().chain(&facts.classes).chain(&facts.claims).chain(&facts.others);
    let of_user = all.filter(|object| object["kind"] == kind && !is_made_of_sample(object)).count();
    let state = match facts.object(crd) {
        None => NOTHING,
        Some(has) if !is_marked(has) => State::LeftAlone("cluster add did not make it".to_owned()),
        Some(_) if facts.eks.has_auto_mode && OF_AUTO_MODE.contains(&name(crd)) => {
            State::LeftAlone("EKS Auto Mode is enabled, and the kind is its own as well".to_owned())
        }
        Some(_) if 0 < of_user => {
            State::LeftAlone(format!("it would take {} with it; delete them first if they are not needed", counted(of_user, "object")))
        }
        Some(_) => State::ToDo,
    };
    let file = name(crd);
    Step::new(format!("crd/{file}"), format!("CRD {file}"), "no object of the kind is left", state).needs(&THEN).by([delete(&[crd])])
}

/// The access entries of the functions and of the nodes; those that are there by the tag if nothing says which are the functions'. A stack
/// that was deleted and deployed again has other roles, and the entries of its earlier ones stay until they are taken away.
fn entries(facts: &Facts, wanted: &Wanted) -> Vec<Step> {
    let nodes = facts.node_role_arn(&wanted.node_role);
    let named: Vec<(&str, &str)> = FUNCTIONS.iter().map(|(function, output, _)| (*function, facts.role_of(output))).collect();
    let has_other = serving_instead(facts, wanted).is_some() || !facts.shadow_stacks.is_empty();
    let found = facts.entries.keys().map(|arn| (arn.rsplit('/').next().unwrap_or_default(), arn.as_str()));
    let found = found.filter(|(_, arn)| *arn != nodes);
    let functions: Vec<(&str, &str)> = if facts.is_stack_gone {
        found.filter(|(_, arn)| !has_other || is_of_stack(&facts.stack.name, arn)).collect()
    } else {
        let is_earlier = |(_, arn): &(&str, &str)| is_of_stack(&facts.stack.name, arn) && named.iter().all(|(_, now)| now != arn);
        named.iter().copied().chain(found.filter(is_earlier)).collect()
    };
    functions.into_iter().chain([("the nodes", nodes.as_str())]).map(|(of, arn)| entry(facts, wanted, of, arn)).collect()
}

fn entry(facts: &Facts, wanted: &Wanted, of: &str, arn: &str) -> Step {
    let state = match facts.entries.get(arn) {
        None => NOTHING,
        Some(entry) if entry.tags.contains_key(MARK) => State::ToDo,
        Some(_) => State::LeftAlone("cluster add did not make it".to_owned()),
    };
    let away = Action::aws(&["eks", "delete-access-entry", "--cluster-name", &wanted.cluster, "--principal-arn", arn]);
    Step::new(format!("access/{of}"), format!("access entry of {of}"), "the cluster lets them in no more", state)
        .needs(&THEN)
        .by([away.done_if("ResourceNotFoundException")])
}

/// The role's policies that `cluster add` does not attach: attached ones by ARN, others by name.
fn others_policies(role: &Role) -> Vec<&str> {
    let partition = role.arn.split(':').nth(1).unwrap_or("aws");
    let ours = NODE_POLICIES.map(|policy| format!("arn:{partition}:iam::aws:policy/{policy}"));
    role.attached.iter().filter(|arn| !ours.contains(arn)).chain(&role.inline).map(String::as_str).collect()
}

/// What takes the role out of its instance profiles. Without the cluster, or without the stack, no function deletes Whittle's own any more.
fn out_of_profiles(facts: &Facts, role: &str, profiles: &[String]) -> String {
    if facts.is_stack_gone || facts.is_cluster_gone {
        let delete = |name: &String| {
            format!(
                "aws iam remove-role-from-instance-profile --role-name {role} --instance-profile-name {name}; aws iam \
                 delete-instance-profile --instance-profile-name {name}"
            )
        };
        let all = profiles.iter().map(delete).collect::<Vec<_>>().join("; ");
        return format!("unless machines of something else have them: {all}; then run this again");
    }
    format!(
        "those of Whittle go with their node classes, before whittle uninstall says that nothing is left: run it first; \
         delete others by aws iam remove-role-from-instance-profile --role-name \
         {role} --instance-profile-name NAME and aws iam delete-instance-profile"
    )
}

fn node_role(facts: &Facts, wanted: &Wanted) -> Step {
    let role_name = wanted.node_role.as_str();
    let mut actions = Vec::new();
    let state = match &facts.node_role {
        None => NOTHING,
        Some(role) if role.tags.get(MARK) != Some(&wanted.cluster) => {
            State::LeftAlone("cluster add did not make it for this cluster".to_owned())
        }
        Some(role) if !role.profiles.is_empty() => State::blocked(
            format!("instance profiles contain it: {}", role.profiles.join(", ")),
            out_of_profiles(facts, role_name, &role.profiles),
        ),
        Some(role) if !others_policies(role).is_empty() => State::blocked(
            format!("it has policies that cluster add did not give it: {}", others_policies(role).join(", ")),
            format!(
                "aws iam detach-role-policy --role-name {role_name} --policy-arn ARN, or delete-role-policy --policy-name NAME for one \
                 that is written into it, then run this again; or keep the role"
            ),
        ),
        Some(role) => {
            let detach = |arn: &String| Action::aws(&["iam", "detach-role-policy", "--role-name", role_name, "--policy-arn", arn]);
            actions.extend(role.attached.iter().map(detach));
            actions.push(Action::aws(&["iam", "delete-role", "--role-name", role_name]).done_if("NoSuchEntity"));
            State::ToDo
        }
    };
    Step::new("node-role", format!("node role {role_name}"), "no node needs it", state).needs(&THEN).by(actions)
}

fn tags(facts: &Facts, wanted: &Wanted) -> Step {
    let [subnets, groups] = &facts.discovered;
    let ours = |one: &&Tagged| one.tags.get(MARK) == Some(&wanted.cluster);
    let ids: Vec<&str> = subnets.iter().chain(groups).filter(ours).map(|one| one.id.as_str()).collect();
    let keys = [format!("Key={DISCOVERY},Value={}", wanted.cluster), format!("Key={MARK},Value={}", wanted.cluster)];
    let away = Action::aws(&[&["ec2", "delete-tags", "--resources"], ids.as_slice(), &["--tags", &keys[0], &keys[1]]].concat());
    let state = if ids.is_empty() { NOTHING } else { State::ToDo };
    let what = format!("{DISCOVERY}={} on {}", wanted.cluster, ids.join(" "));
    Step::new("tags", what, "no node class goes by them", state).needs(&THEN).by([away])
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
