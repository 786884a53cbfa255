//! What `cluster remove` would do: the marks in the facts say what `cluster add` made, and nothing else goes.

use super::facts::{Facts, Wanted};
use super::manifests::{crds, flow, guard, is_marked, rbac, reference, webhook};
use super::step::{Action, MARK, State, Step};
use crate::live::account::{DISCOVERY, Tagged};
use crate::live::deployment::FUNCTIONS;
use crate::live::kubernetes::name;
use crate::money::counted;
use serde_json::Value;

/// All steps, in the order in which they are done: first what needs the functions' access, then the access.
pub(super) fn remove(facts: &Facts, wanted: &Wanted) -> Vec<Step> {
    let mut steps = vec![emptied(facts, wanted), sample(facts)];
    let webhook = webhook("", "", "");
    steps.push(objects(facts, "webhook", "webhook", "nothing rings the relay for the cluster any more", &webhook));
    steps.extend(crds().into_iter().map(|crd| of_crd(facts, &crd)));
    steps.extend([
        objects(facts, "flow", "flow schema", "it is for the functions alone", &flow()),
        objects(facts, "guard", "admission policy of node classes", "it is for the functions alone", &guard()),
        objects(facts, "rbac", "roles and bindings of the functions", "the functions may do nothing more in the cluster", &rbac()),
    ]);
    let functions = FUNCTIONS.iter().map(|(function, output, _)| (*function, facts.role_of(output).to_owned()));
    let arn = facts.node_role_arn(&wanted.node_role);
    let entries = functions.chain([("the nodes", arn)]).map(|(of, arn)| entry(facts, wanted, of, &arn));
    steps.extend(entries.collect::<Vec<_>>());
    steps.extend([node_role(facts, wanted), tags(facts, wanted)]);
    steps.retain(|step| step.id == "emptied" || step.state != State::Exists);
    steps
}

/// What is there and has no mark, or is not there: nothing is to do, and nothing to be said of it.
const NOTHING: State = State::Exists;

fn emptied(facts: &Facts, wanted: &Wanted) -> Step {
    let (claims, machines) = (facts.claims.len(), facts.machines.len());
    let state = if claims + machines == 0 {
        State::Exists
    } else {
        State::blocked(
            format!("it has {} and {} of the deployment", counted(claims, "NodeClaim"), counted(machines, "machine")),
            format!(
                "whittle uninstall --cluster {} --function {} --region {} --yes, until it says that nothing is left; then run this again",
                wanted.cluster,
                facts.stack.output("SweepFunction"),
                facts.stack.region
            ),
        )
    };
    Step::new("emptied", "the cluster without machines of the deployment", "without access nobody drains and ends them", state)
}

/// `kubectl delete` of what has our label.
fn delete(of: &[&Value]) -> Action {
    let references: Vec<String> = of.iter().map(|object| reference(object)).collect();
    let words: Vec<&str> = references.iter().map(String::as_str).collect();
    Action::kubectl(&[&["delete", "--ignore-not-found", "--timeout=60s"], words.as_slice()].concat())
}

fn sample(facts: &Facts) -> Step {
    let marked: Vec<&Value> = facts.pools.iter().chain(&facts.classes).filter(|object| is_marked(object)).collect();
    let used = facts.pools.iter().filter(|pool| !is_marked(pool)).any(|pool| {
        let class = pool.pointer("/spec/template/spec/nodeClassRef/name").and_then(Value::as_str);
        marked.iter().any(|object| object["kind"] == "EC2NodeClass" && class == Some(name(object)))
    });
    let state = if marked.is_empty() {
        NOTHING
    } else if used {
        State::LeftAlone("another NodePool names the node class".to_owned())
    } else {
        State::ToDo
    };
    let what = "node class and NodePool that cluster add made";
    Step::new("sample", what, "nothing answers to them any more", state).needs(&["emptied"]).by([delete(&marked)])
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
    Step::new(id, what, why, state).needs(&["emptied", "sample"]).by([delete(&marked)])
}

/// A CRD takes all objects of its kind with it.
fn of_crd(facts: &Facts, crd: &Value) -> Step {
    let kind = crd.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or_default();
    let all = facts.pools.iter().chain(&facts.classes).chain(&facts.claims).chain(&facts.others);
    let of_user = all.filter(|object| object["kind"] == kind && !is_marked(object)).count();
    let state = match facts.object(crd) {
        None => NOTHING,
        Some(has) if !is_marked(has) => State::LeftAlone("cluster add did not make it".to_owned()),
        Some(_) if 0 < of_user => {
            State::LeftAlone(format!("it would take {} with it; delete them first if they are not needed", counted(of_user, "object")))
        }
        Some(_) => State::ToDo,
    };
    let file = name(crd);
    Step::new(format!("crd/{file}"), format!("CRD {file}"), "no object of the kind is left", state)
        .needs(&["emptied", "sample"])
        .by([delete(&[crd])])
}

fn entry(facts: &Facts, wanted: &Wanted, of: &str, arn: &str) -> Step {
    let state = match facts.entries.get(arn) {
        None => NOTHING,
        Some(entry) if entry.tags.contains_key(MARK) => State::ToDo,
        Some(_) => State::LeftAlone("cluster add did not make it".to_owned()),
    };
    let away = Action::aws(&["eks", "delete-access-entry", "--cluster-name", &wanted.cluster, "--principal-arn", arn]);
    Step::new(format!("access/{of}"), format!("access entry of {of}"), "the cluster lets them in no more", state)
        .needs(&["emptied", "sample"])
        .by([away.done_if("ResourceNotFoundException")])
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
            format!(
                "whittle uninstall deletes those of Whittle; delete others by aws iam remove-role-from-instance-profile --role-name \
                 {role_name} --instance-profile-name NAME and aws iam delete-instance-profile"
            ),
        ),
        Some(role) => {
            let partition = &facts.stack.partition;
            actions.extend(role.policies.iter().map(|policy| {
                let arn = format!("arn:{partition}:iam::aws:policy/{policy}");
                Action::aws(&["iam", "detach-role-policy", "--role-name", role_name, "--policy-arn", &arn])
            }));
            actions.push(Action::aws(&["iam", "delete-role", "--role-name", role_name]).done_if("NoSuchEntity"));
            State::ToDo
        }
    };
    Step::new("node-role", format!("node role {role_name}"), "no node needs it", state).needs(&["emptied", "sample"]).by(actions)
}

fn tags(facts: &Facts, wanted: &Wanted) -> Step {
    let [subnets, groups] = &facts.discovered;
    let ours = |one: &&Tagged| one.tags.get(MARK) == Some(&wanted.cluster);
    let ids: Vec<&str> = subnets.iter().chain(groups).filter(ours).map(|one| one.id.as_str()).collect();
    let keys = [format!("Key={DISCOVERY},Value={}", wanted.cluster), format!("Key={MARK},Value={}", wanted.cluster)];
    let away = Action::aws(&[&["ec2", "delete-tags", "--resources"], ids.as_slice(), &["--tags", &keys[0], &keys[1]]].concat());
    let state = if ids.is_empty() { NOTHING } else { State::ToDo };
    let what = format!("{DISCOVERY}={} on {}", wanted.cluster, ids.join(" "));
    Step::new("tags", what, "no node class goes by them", state).needs(&["emptied", "sample"]).by([away])
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
                policies: ["AmazonEKS_CNI_Policy".to_owned()].into(),
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
            assert!(matches!(&steps[0].state, State::Blocked { remedy, .. } if remedy.contains("whittle uninstall --cluster shop")));
        }
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
    fn a_role_in_an_instance_profile_blocks_itself_alone() {
        let mut facts = facts(Some("shop"));
        facts.node_role.as_mut().unwrap().profiles.push("web".into());
        let steps = remove(&facts, &wanted());
        assert_eq!(states(&steps, "blocked"), ["node-role"]);
    }
}
