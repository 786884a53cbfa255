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
    for (clusters, id, remedy) in [("dev,shop", "emptied", "whittle uninstall"), ("dev", "sample", "kubectl patch ec2nodeclass default")] {
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
