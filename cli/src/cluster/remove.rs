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
        leave_to(other, wanted, &mut steps);
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
fn leave_to(other: &str, wanted: &Wanted, steps: &mut [Step]) {
    for step in steps.iter_mut().filter(|step| is_shared(step)) {
        let why = if matches!(step.id.as_str(), "webhook" | "watcher") {
            let cluster = &wanted.cluster;
            format!("stack {other} serves the cluster; whittle cluster add {cluster} --stack {other} has it ring that one, if it does not")
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
    // What is left of a cluster that is gone goes all the same.
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
mod tests {
    use super::*;
    use crate::live::account::{Entry, Role};
    use crate::live::deployment::Stack;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn wanted() -> Wanted {
        Wanted { cluster: "shop".into(), node_role: "KarpenterNodeRole-shop".into(), ..Wanted::default() }
    }

    fn mark(by: Option<&str>) -> BTreeMap<String, String> {
        by.into_iter().map(|cluster| (MARK.to_owned(), cluster.to_owned())).collect()
    }

    /// A cluster with everything, made by `cluster add` or by others.
    fn facts(by: Option<&str>) -> Facts {
        let labels = if by.is_some() { json!({MARK: "true"}) } else { json!({}) };
        let labelled = |mut object: Value| {
            object["metadata"]["labels"] = labels.clone();
            object
        };
        let stack = Stack {
            partition: "aws".into(),
            account: "1".into(),
            region: "eu-west-1".into(),
            outputs: FUNCTIONS.iter().map(|(name, output, _)| ((*output).to_owned(), format!("arn:aws:iam::1:role/{name}"))).collect(),
            ..Stack::default()
        };
        let arns = stack.outputs.values().cloned().chain(["arn:aws:iam::1:role/KarpenterNodeRole-shop".to_owned()]);
        let [class, pool] = super::super::manifests::sample("shop", "KarpenterNodeRole-shop", None, None).try_into().unwrap();
        let tagged = |id: &str| vec![Tagged { id: id.into(), tags: mark(by), ..Tagged::default() }];
        Facts {
            entries: arns.map(|arn| (arn, Entry { tags: mark(by), ..Entry::default() })).collect(),
            node_role: Some(Role {
                arn: "arn:aws:iam::1:role/KarpenterNodeRole-shop".into(),
                attached: vec!["arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy".to_owned()],
                tags: mark(by),
                ..Role::default()
            }),
            discovered: [tagged("subnet-1"), tagged("sg-1")],
            objects: [crds(), rbac(), guard(), flow(), webhook("h", "s", "c")].concat().into_iter().map(labelled).collect(),
            pools: vec![labelled(pool)],
            classes: vec![labelled(class)],
            stack,
            ..Facts::default()
        }
    }

    fn states<'a>(steps: &'a [Step], word: &str) -> Vec<&'a str> {
        steps.iter().filter(|step| step.state.word() == word).map(|step| step.id.as_str()).collect()
    }

    fn blocked<'a>(steps: &'a [Step], id: &str) -> (&'a str, &'a str) {
        match &steps.iter().find(|step| step.id == id).unwrap().state {
            State::Blocked { why, remedy } => (why, remedy),
            other => panic!("{id}: {other:?}"),
        }
    }

    fn commands(steps: &[Step], id: &str) -> Vec<String> {
        steps.iter().filter(|step| step.id == id).flat_map(|step| &step.actions).map(|action| action.arguments.join(" ")).collect()
    }

    #[test]
    fn exactly_what_add_made_goes() {
        let all = remove(&facts(Some("shop")), &wanted());
        assert_eq!(states(&all, "to do").len(), all.len() - 1, "{all:?}");
        let others = remove(&facts(None), &wanted());
        assert_eq!(states(&others, "to do"), Vec::<&str>::new());
        assert!(others.iter().flat_map(|step| &step.actions).count() > 0 && states(&others, "left alone").len() > 15, "{others:?}");
        let none = Facts { stack: facts(None).stack, ..Facts::default() };
        assert_eq!(remove(&none, &wanted()).len(), 1);
    }

    #[test]
    fn a_watcher_goes_with_its_stack_and_its_namespace_only_if_nobody_else_is_in_it() {
        let labelled = |mut object: Value| {
            object["metadata"]["labels"][MARK] = json!("true");
            object
        };
        let mut facts = facts(Some("shop"));
        facts.objects.extend(super::super::manifests::watcher("shop", "u", "r", "i").into_iter().map(labelled));
        let stack = Stack { name: "whittle-watcher-shop".into(), tags: mark(Some("shop")), ..Stack::default() };
        facts.watcher.stack = Some(stack);
        let steps = remove(&facts, &wanted());
        let todo = states(&steps, "to do");
        let at = |id: &str| todo.iter().position(|one| *one == id).unwrap_or_else(|| panic!("{id}: {todo:?}"));
        assert!(at("watcher") < at("watcher-namespace") && at("watcher-namespace") < at("watcher-stack"));
        let objects = commands(&steps, "watcher").concat();
        assert!(objects.contains("--namespace whittle") && objects.contains("deployment.apps/whittle-watcher"), "{objects}");
        assert!(!objects.contains("namespace/whittle"), "{objects}");
        assert!(commands(&steps, "watcher-stack")[0].ends_with("delete-stack --stack-name whittle-watcher-shop"));

        facts.watcher.neighbours = vec!["configmap/mine".into()];
        assert!(states(&remove(&facts, &wanted()), "left alone").contains(&"watcher-namespace"));
        facts.watcher.stack.as_mut().unwrap().tags = mark(Some("other"));
        assert!(states(&remove(&facts, &wanted()), "left alone").contains(&"watcher-stack"));
        facts.objects.iter_mut().for_each(|object| object["metadata"]["labels"] = json!({}));
        let steps = remove(&facts, &wanted());
        assert!(states(&steps, "left alone").contains(&"watcher"), "{steps:?}");
        assert!(!steps.iter().any(|step| step.id == "watcher-namespace"), "{steps:?}");
    }

    #[test]
    fn the_role_of_another_cluster_stays() {
        let steps = remove(&facts(Some("other")), &wanted());
        assert!(states(&steps, "left alone").contains(&"node-role") && !states(&steps, "to do").contains(&"tags"));
    }

    #[test]
    fn machines_and_claims_block_everything() {
        for change in
            [|facts: &mut Facts| facts.machines.push("i-1".into()), |facts: &mut Facts| facts.claims.push(json!({"kind": "NodeClaim"}))]
        {
            let mut facts = facts(Some("shop"));
            change(&mut facts);
            let steps = remove(&facts, &wanted());
            assert_eq!(states(&steps, "blocked"), ["emptied"]);
            assert!(steps.iter().skip(1).all(|step| step.needs.contains(&"emptied")));
            assert!(matches!(&steps[0].state, State::Blocked { remedy, .. } if remedy.contains("Clusters=shop (the")
                && remedy.contains("whittle uninstall --cluster shop")));
            facts.stack.parameters.insert("Clusters".into(), "dev,shop".into());
            let steps = remove(&facts, &wanted());
            assert_eq!(states(&steps, "blocked"), ["emptied", "stack"]);
            assert!(blocked(&steps, "emptied").1.starts_with("whittle uninstall --cluster shop"));
            assert!(blocked(&steps, "stack").1.starts_with("once the cluster is empty: sam deploy"));
        }
    }

    /// Its machines have the same tags, and nothing in the cluster says for which stack it was made.
    #[test]
    fn what_another_stack_needs_stays_and_its_machines_block_nothing() {
        let mut facts = facts(Some("shop"));
        facts.machines.push("i-1".into());
        facts.claims.push(json!({"kind": "NodeClaim"}));
        facts.other_stacks = Some(Ok(vec!["whittle-dev".into()]));
        for (clusters, mode, blocks) in [("dev", "active", vec![]), ("dev,shop", "shadow", vec!["stack"])] {
            facts.stack.parameters = [("Clusters", clusters), ("Mode", mode)].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            let steps = remove(&facts, &wanted());
            assert_eq!(states(&steps, "blocked"), blocks, "{steps:?}");
            let to_do = states(&steps, "to do");
            assert_eq!(to_do.len(), FUNCTIONS.len(), "{to_do:?}");
            assert!(to_do.iter().all(|id| id.starts_with("access/") && *id != "access/the nodes"), "{to_do:?}");
            assert!(steps.iter().all(|step| step.state == State::ToDo || step.actions.is_empty()), "{steps:?}");
            let webhook = steps.iter().find(|step| step.id == "webhook").unwrap();
            assert!(matches!(&webhook.state, State::LeftAlone(why) if why.contains("cluster add shop --stack whittle-dev")), "{webhook:?}");
        }
        // Where both work, this one is uninstalled first, as without another.
        facts.stack.parameters = [("Clusters".to_owned(), "dev,shop".to_owned())].into();
        assert_eq!(states(&remove(&facts, &wanted()), "blocked"), ["emptied", "stack"]);
        facts.other_stacks = Some(Err("AccessDenied".to_owned()));
        facts.stack.parameters = [("Clusters".to_owned(), "dev".to_owned())].into();
        let steps = remove(&facts, &wanted());
        assert_eq!(blocked(&steps, "emptied").0, "AccessDenied", "nothing goes before that is known");
    }

    #[test]
    fn of_a_stack_that_is_gone_the_entries_of_another_stay() {
        let role = |stack: &str, name: &str| format!("arn:aws:iam::1:role/{stack}-{name}-1ABC2DEF3GHI");
        let mut facts = facts(Some("shop"));
        let arns = [("whittle", "ScheduleRole"), ("whittle", "SweepRole"), ("whittle-dev", "ScheduleRole"), ("whittle-dev", "SweepRole")];
        facts.entries = arns.map(|(stack, name)| (role(stack, name), Entry { tags: mark(Some("shop")), ..Entry::default() })).into();
        (facts.stack.name, facts.stack.outputs, facts.is_stack_gone) = ("whittle".into(), BTreeMap::new(), true);
        let count = |facts: &Facts| states(&remove(facts, &wanted()), "to do").iter().filter(|id| id.starts_with("access/")).count();
        assert_eq!(count(&facts), 4, "nobody works there");
        facts.other_stacks = Some(Ok(vec!["whittle-dev".into()]));
        assert_eq!(count(&facts), 2);
        let steps = remove(&facts, &wanted());
        assert!(states(&steps, "to do").iter().all(|id| id.starts_with("access/whittle-S")), "{steps:?}");
        (facts.other_stacks, facts.shadow_stacks) = (Some(Ok(Vec::new())), vec!["whittle-dev".into()]);
        assert_eq!(count(&facts), 2, "a shadow enters as well");
    }

    /// A shadow reads all the same: without roles and CRDs its functions fail at every tick.
    #[test]
    fn what_a_shadow_needs_stays_and_what_rings_this_stack_goes() {
        let mut facts = facts(Some("shop"));
        (facts.other_stacks, facts.shadow_stacks) = (Some(Ok(Vec::new())), vec!["whittle-next".into()]);
        let steps = remove(&facts, &wanted());
        let to_do = states(&steps, "to do");
        assert_eq!(to_do.len(), FUNCTIONS.len() + 1, "{to_do:?}");
        assert!(to_do.iter().all(|id| *id == "webhook" || id.starts_with("access/") && *id != "access/the nodes"), "{to_do:?}");
        let rbac = steps.iter().find(|step| step.id == "rbac").unwrap();
        assert!(matches!(&rbac.state, State::LeftAlone(why) if why.contains("stack whittle-next, a shadow")), "{rbac:?}");
        assert!(rbac.actions.is_empty());
        facts.machines.push("i-1".into());
        assert_eq!(states(&remove(&facts, &wanted()), "blocked"), ["emptied"], "no shadow launched it");
    }

    #[test]
    fn entries_of_earlier_roles_of_the_stack_go_and_nobody_elses() {
        let role = |name: &str| format!("arn:aws:iam::1:role/{name}-1ABC2DEF3GHI");
        let mut facts = facts(Some("shop"));
        facts.stack.name = "whittle".into();
        let entry = |by| Entry { tags: mark(by), ..Entry::default() };
        facts.entries.insert(role("whittle-SweepRole"), entry(Some("shop")));
        facts.entries.insert(role("whittle-LaunchRole"), entry(None));
        facts.entries.insert(role("whittle-dev-SweepRole"), entry(Some("shop")));
        let steps = remove(&facts, &wanted());
        let gone: Vec<&str> = states(&steps, "to do").into_iter().filter(|id| id.contains("whittle")).collect();
        assert_eq!(gone, ["access/whittle-SweepRole-1ABC2DEF3GHI"]);
        let command = commands(&steps, "access/whittle-SweepRole-1ABC2DEF3GHI").concat();
        assert!(command.ends_with("--principal-arn arn:aws:iam::1:role/whittle-SweepRole-1ABC2DEF3GHI"), "{command}");
        assert!(states(&steps, "left alone").contains(&"access/whittle-LaunchRole-1ABC2DEF3GHI"), "cluster add did not make it");
        assert!(!steps.iter().any(|step| step.id.contains("whittle-dev")), "{steps:?}");
    }

    #[test]
    fn claims_of_another_controller_block_nothing_and_keep_their_crd() {
        let claim = |group: &str| json!({"kind": "NodeClaim", "metadata": {"name": "c"}, "spec": {"nodeClassRef": {"group": group}}});
        let mut facts = facts(Some("shop"));
        facts.claims.push(claim("eks.amazonaws.com"));
        let steps = remove(&facts, &wanted());
        assert_eq!(states(&steps, "blocked"), [""; 0]);
        assert_eq!(states(&steps, "left alone"), ["crd/nodeclaims.karpenter.sh"]);
        facts.claims.push(claim("karpenter.k8s.aws"));
        let steps = remove(&facts, &wanted());
        assert!(blocked(&steps, "emptied").0.starts_with("it has 1 NodeClaim and 0 machines"), "{steps:?}");
    }

    #[test]
    fn a_crd_with_objects_of_the_user_stays_and_so_does_a_class_in_use() {
        let mut facts = facts(Some("shop"));
        let mut mine = facts.pools[0].clone();
        mine["metadata"] = json!({"name": "mine"});
        facts.pools.push(mine);
        let steps = remove(&facts, &wanted());
        assert_eq!(states(&steps, "left alone"), ["sample", "crd/nodepools.karpenter.sh"]);
    }

    #[test]
    fn the_crds_that_auto_mode_has_as_well_stay() {
        let mut facts = facts(Some("shop"));
        facts.eks.has_auto_mode = true;
        let steps = remove(&facts, &wanted());
        assert_eq!(states(&steps, "left alone"), ["crd/nodepools.karpenter.sh", "crd/nodeclaims.karpenter.sh"]);
        let crd = steps.iter().find(|step| step.id == "crd/nodepools.karpenter.sh").unwrap();
        assert!(matches!(&crd.state, State::LeftAlone(why) if why.starts_with("EKS Auto Mode is enabled")), "{crd:?}");
        assert!(states(&steps, "to do").contains(&"crd/ec2nodeclasses.karpenter.k8s.aws"), "{steps:?}");
        // Those that add did not make it leaves for that reason.
        facts.objects.iter_mut().for_each(|object| object["metadata"]["labels"] = json!({}));
        assert!(!format!("{:?}", remove(&facts, &wanted())).contains("Auto Mode"));
    }

    #[test]
    fn a_role_in_an_instance_profile_blocks_itself_alone() {
        let mut facts = facts(Some("shop"));
        facts.node_role.as_mut().unwrap().profiles.push("web".into());
        let steps = remove(&facts, &wanted());
        assert_eq!(states(&steps, "blocked"), ["node-role"]);
        assert!(blocked(&steps, "node-role").1.contains("whittle uninstall says that nothing is left"));
    }

    /// There is nobody any more to run an uninstallation.
    #[test]
    fn of_a_cluster_or_stack_that_is_gone_the_profiles_are_deleted_by_their_names() {
        for gone in [|facts: &mut Facts| facts.is_cluster_gone = true, |facts: &mut Facts| facts.is_stack_gone = true] {
            let mut facts = facts(Some("shop"));
            gone(&mut facts);
            facts.node_role.as_mut().unwrap().profiles = vec!["shop_1".into(), "shop_2".into()];
            let steps = remove(&facts, &wanted());
            let remedy = blocked(&steps, "node-role").1;
            for profile in ["shop_1", "shop_2"] {
                let of_role = "remove-role-from-instance-profile --role-name KarpenterNodeRole-shop";
                assert!(remedy.contains(&format!("{of_role} --instance-profile-name {profile};")), "{remedy}");
                assert!(remedy.contains(&format!("delete-instance-profile --instance-profile-name {profile};")), "{remedy}");
            }
            assert!(!remedy.contains("uninstall"), "{remedy}");
            assert_eq!(commands(&steps, "node-role"), [""; 0]);
        }
    }

    #[test]
    fn copies_of_the_sample_are_the_users() {
        let renamed = |object: &Value| {
            let mut copy = object.clone();
            copy["metadata"]["name"] = json!("batch");
            copy
        };
        let mut facts = facts(Some("shop"));
        let (pool, class) = (renamed(&facts.pools[0]), renamed(&facts.classes[0]));
        facts.pools.push(pool);
        facts.classes.push(class);
        facts.pools[1]["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("batch");
        let steps = remove(&facts, &wanted());
        let line = "delete --ignore-not-found --timeout=60s nodepool.karpenter.sh/default ec2nodeclass.karpenter.k8s.aws/default";
        assert_eq!(commands(&steps, "sample"), [line]);
        assert_eq!(states(&steps, "left alone"), ["crd/nodepools.karpenter.sh", "crd/ec2nodeclasses.karpenter.k8s.aws"]);
        assert!(!steps.iter().filter(|step| step.state == State::ToDo).any(|step| format!("{:?}", step.actions).contains("batch")));
        // One that goes by the sample's class keeps it.
        facts.pools[1]["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("default");
        assert!(states(&remove(&facts, &wanted()), "left alone").contains(&"sample"));
    }

    #[test]
    fn a_role_goes_only_with_the_policies_that_add_attached() {
        let ours = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy";
        for (attached, inline, other) in [
            (vec![ours], vec![], None),
            (vec![], vec![], None),
            (vec![ours, "arn:aws:iam::1:policy/mine"], vec![], Some("arn:aws:iam::1:policy/mine")),
            (vec![ours, "arn:aws:iam::1:policy/AmazonEKS_CNI_Policy"], vec![], Some("arn:aws:iam::1:policy/AmazonEKS_CNI_Policy")),
            (vec!["arn:aws:iam::aws:policy/service-role/AmazonX"], vec![], Some("arn:aws:iam::aws:policy/service-role/AmazonX")),
            (vec![ours], vec!["written"], Some("written")),
        ] {
            let mut facts = facts(Some("shop"));
            let role = facts.node_role.as_mut().unwrap();
            role.attached = attached.iter().map(|arn| (*arn).to_owned()).collect();
            role.inline = inline.iter().map(|name| (*name).to_owned()).collect();
            let steps = remove(&facts, &wanted());
            let Some(other) = other else {
                let detached =
                    attached.iter().map(|arn| format!("iam detach-role-policy --role-name KarpenterNodeRole-shop --policy-arn {arn}"));
                let all: Vec<String> = detached.chain(["iam delete-role --role-name KarpenterNodeRole-shop".to_owned()]).collect();
                assert_eq!(commands(&steps, "node-role"), all);
                continue;
            };
            let (why, remedy) = blocked(&steps, "node-role");
            assert!(why.ends_with(other) && remedy.contains("detach-role-policy --role-name KarpenterNodeRole-shop"), "{why} / {remedy}");
            assert_eq!(commands(&steps, "node-role"), [""; 0], "nothing of it is done");
        }
    }

    #[test]
    fn a_cluster_that_the_stack_serves_is_taken_out_of_it_first() {
        for (clusters, remedy) in [
            ("dev, shop", "sam deploy --region eu-west-1 --parameter-overrides Clusters=dev; then run this again"),
            ("shop", "it serves no other: sam delete --stack-name whittle --region eu-west-1, then run this again with --gone"),
        ] {
            let mut facts = facts(Some("shop"));
            facts.stack.name = "whittle".into();
            facts.stack.parameters.insert("Clusters".into(), clusters.into());
            let steps = remove(&facts, &wanted());
            assert_eq!(states(&steps, "blocked"), ["stack"]);
            assert_eq!(blocked(&steps, "stack").1, remedy);
            let todo: Vec<_> = steps.iter().filter(|step| step.state == State::ToDo).collect();
            assert!(20 < todo.len() && todo.iter().all(|step| step.needs.contains(&"stack")));
            assert!(!crate::cluster::step::is_possible(&steps));
        }
    }

    #[test]
    fn a_class_that_the_functions_hold_is_theirs_to_let_go() {
        for (clusters, id, remedy) in
            [("dev,shop", "emptied", "whittle uninstall"), ("dev", "sample", "kubectl patch ec2nodeclass default")]
        {
            let mut facts = facts(Some("shop"));
            facts.stack.parameters.insert("Clusters".into(), clusters.into());
            facts.classes[0]["metadata"]["finalizers"] = json!([NODE_CLASS_FINALIZER]);
            let steps = remove(&facts, &wanted());
            assert!(blocked(&steps, id).1.starts_with(remedy) || blocked(&steps, id).1.contains(remedy), "{steps:?}");
            assert!(!crate::cluster::step::is_possible(&steps));
        }
    }

    #[test]
    fn of_a_stack_that_is_gone_entries_go_by_their_tag() {
        let mut facts = facts(Some("shop"));
        (facts.stack.outputs, facts.is_stack_gone) = (BTreeMap::new(), true);
        let steps = remove(&facts, &wanted());
        assert_eq!(states(&steps, "left alone"), ["gone/stack"]);
        let line = "eks delete-access-entry --cluster-name shop --principal-arn arn:aws:iam::1:role/terminate";
        assert_eq!(commands(&steps, "access/terminate"), [line]);
        assert_eq!(steps.iter().filter(|step| step.id.starts_with("access/") && step.state == State::ToDo).count(), 9);
        facts.machines.push("i-1".into());
        assert!(blocked(&remove(&facts, &wanted()), "emptied").1.contains("terminate-instances --instance-ids i-1"));
    }

    #[test]
    fn of_a_cluster_that_is_gone_role_and_tags_go_even_if_the_stack_names_it() {
        let whole = facts(Some("shop"));
        let mut facts = Facts { stack: whole.stack, node_role: whole.node_role, discovered: whole.discovered, ..Facts::default() };
        facts.is_cluster_gone = true;
        facts.stack.parameters.insert("Clusters".into(), "dev,shop".into());
        let steps = remove(&facts, &wanted());
        assert_eq!(states(&steps, "to do"), ["node-role", "tags"]);
        assert_eq!((states(&steps, "blocked"), states(&steps, "left alone")), (vec!["clusters"], vec!["gone/cluster"]));
        assert!(crate::cluster::step::is_possible(&steps));
    }
}
