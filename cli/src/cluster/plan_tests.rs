use super::*;
use crate::cluster::step::{Tool, Tools};
use crate::live::account::{Eks, Entry, Secret};
use crate::live::deployment::Stack;
use crate::programs::Program;
use std::collections::BTreeMap;

fn wanted() -> Wanted {
    Wanted {
        cluster: "shop".into(),
        node_role: "KarpenterNodeRole-shop".into(),
        doorbell: Bell::Webhook,
        sample: true,
        new_secret: "5ec7e7".into(),
        ..Wanted::default()
    }
}

fn pairs(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// An account with a deployment for the cluster, in which nothing else is.
fn bare() -> Facts {
    let mut outputs: BTreeMap<String, String> =
        FUNCTIONS.iter().map(|(name, output, _)| ((*output).to_owned(), format!("arn:aws:iam::1:role/{name}"))).collect();
    outputs.insert("RelayUrl".into(), "https://abc.lambda-url.on.aws/".into());
    Facts {
        stack: Stack {
            name: "whittle".into(),
            status: "CREATE_COMPLETE".into(),
            partition: "aws".into(),
            region: "eu-west-1".into(),
            account: "1".into(),
            parameters: pairs(&[("Clusters", "shop"), ("NodeRoles", "KarpenterNodeRole-*")]),
            outputs,
            ..Stack::default()
        },
        eks: Eks { version: "1.34".into(), authentication: "API".into(), ..Eks::default() },
        subnets: vec![subnet("subnet-1", false, &[]), subnet("subnet-2", true, &[])],
        security_groups: vec![subnet("sg-1", false, &[])],
        ..Facts::default()
    }
}

fn subnet(id: &str, public: bool, tags: &[(&str, &str)]) -> Tagged {
    Tagged { id: id.into(), tags: pairs(tags), public, free: 100 }
}

fn role(policies: &[&str], tags: &[(&str, &str)]) -> Role {
    Role {
        arn: "arn:aws:iam::1:role/KarpenterNodeRole-shop".into(),
        trusts_ec2: true,
        policies: policies.iter().map(|name| (*name).to_owned()).collect(),
        tags: pairs(tags),
        ..Role::default()
    }
}

/// What the plan's actions would have made of the facts.
fn complete() -> Facts {
    let mut facts = bare();
    for (_, output, groups) in FUNCTIONS {
        let entry = Entry { groups: groups.iter().map(|group| (*group).to_owned()).collect(), kind: "STANDARD".into(), ..Entry::default() };
        facts.entries.insert(facts.stack.output(output).to_owned(), entry);
    }
    facts.entries.insert("arn:aws:iam::1:role/KarpenterNodeRole-shop".into(), Entry { kind: "EC2_LINUX".into(), ..Entry::default() });
    facts.node_role = Some(role(&NODE_POLICIES, &[(MARK, "shop")]));
    facts.has_spot_role = true;
    facts.discovered = [vec![facts.subnets[0].clone()], vec![facts.security_groups[0].clone()]];
    facts.secret = Some(Secret("stored".into()));
    for action in add(&bare(), &Wanted { new_secret: "stored".into(), ..wanted() }).iter().flat_map(|step| &step.actions) {
        let Some(input) = action.input.as_ref().filter(|_| action.tool == Tool::Kubectl) else { continue };
        let list: Value = serde_json::from_str(&input.text).unwrap();
        let objects = list["items"].as_array().unwrap().clone();
        for object in objects {
            match object["kind"].as_str().unwrap() {
                "NodePool" => facts.pools.push(object),
                "EC2NodeClass" => facts.classes.push(object),
                _ => facts.objects.push(object),
            }
        }
    }
    facts
}

fn state(steps: &[Step], id: &str) -> State {
    steps.iter().find(|step| step.id == id).unwrap_or_else(|| panic!("no step {id}")).state.clone()
}

fn commands(steps: &[Step], id: &str) -> String {
    let step = steps.iter().find(|step| step.id == id).unwrap();
    step.actions.iter().map(|action| action.arguments.join(" ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_bare_cluster_needs_everything_and_a_complete_one_nothing() {
    let steps = add(&bare(), &wanted());
    let there: Vec<&str> = steps.iter().filter(|step| step.state != State::ToDo).map(|step| step.id.as_str()).collect();
    assert_eq!(there, ["stack", "authentication"]);
    assert_eq!(steps.len(), 28);
    let done = add(&complete(), &wanted());
    let open: Vec<_> = done.iter().filter(|step| step.state != State::Exists).map(|step| (&step.id, &step.state)).collect();
    assert_eq!(open, []);
}

#[test]
fn what_is_needed_comes_first() {
    let steps = add(&bare(), &wanted());
    for (at, step) in steps.iter().enumerate() {
        for need in &step.needs {
            assert!(steps[..at].iter().any(|earlier| earlier.id == *need), "{} needs {need}", step.id);
        }
    }
}

/// S1.3, S4.2: the role is one for the account, and IAM's word that it is there already is success.
#[test]
fn a_spot_role_that_is_there_already_is_success() {
    let steps = add(&bare(), &wanted());
    let step = steps.iter().find(|step| step.id == "spot-role").unwrap();
    let [make] = &step.actions[..] else { panic!("{} actions", step.actions.len()) };
    assert_eq!(make.arguments.join(" "), "iam create-service-linked-role --aws-service-name spot.amazonaws.com");
    let shell = Program::aws(None, None).at("/bin/sh");
    let answered = |said: &str| {
        let said = format!("echo 'An error occurred {said}' >&2; exit 254");
        let action = Action { arguments: vec!["-c".to_owned(), said], ..make.clone() };
        action.run(Tools { aws: &shell, kubectl: &shell })
    };
    let taken = "(InvalidInput) when calling the CreateServiceLinkedRole operation: Service role name AWSServiceRoleForEC2Spot has been \
                 taken in this account, please try a different suffix.";
    assert!(answered(taken).is_ok());
    let denied = answered("(AccessDenied) when calling the CreateServiceLinkedRole operation: not authorized").unwrap_err();
    assert!(denied.says("(AccessDenied)"), "{denied}");
    assert_eq!(state(&add(&complete(), &wanted()), "spot-role"), State::Exists, "one that was seen is not made");
}

/// A change of the complete installation, and what becomes of one step.
#[track_caller]
fn after(change: impl FnOnce(&mut Facts, &mut Wanted), id: &str) -> (State, String) {
    let (mut facts, mut wanted) = (complete(), wanted());
    change(&mut facts, &mut wanted);
    let steps = add(&facts, &wanted);
    (state(&steps, id), commands(&steps, id))
}

#[track_caller]
fn blocked(change: impl FnOnce(&mut Facts, &mut Wanted), id: &str, why: &str, remedy: &str) {
    match after(change, id).0 {
        State::Blocked { why: is, remedy: by } => assert!(is.contains(why) && by.contains(remedy), "{is} / {by}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn left_alone(change: impl FnOnce(&mut Facts, &mut Wanted), id: &str, words: &str) {
    match after(change, id).0 {
        State::LeftAlone(why) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_user_has_to_do_blocks_with_the_remedy() {
    let no_cluster = |facts: &mut Facts, _: &mut Wanted| drop(facts.stack.parameters.insert("Clusters".into(), "a, b".into()));
    blocked(no_cluster, "stack", "a, b", "sam deploy --region eu-west-1 --parameter-overrides Clusters=a,b,shop");
    blocked(|facts, _| facts.stack.status = "ROLLBACK_COMPLETE".into(), "stack", "ROLLBACK_COMPLETE", "delete-stack");
    blocked(|facts, _| facts.stack.status = "UPDATE_IN_PROGRESS".into(), "stack", "IN_PROGRESS", "wait");
    blocked(
        |facts, _| facts.eks.authentication = "CONFIG_MAP".into(),
        "authentication",
        "CONFIG_MAP",
        "authenticationMode=API_AND_CONFIG_MAP",
    );
    let uninstalled = |facts: &mut Facts, _: &mut Wanted| facts.uninstalled = Some(Ok(["it was uninstalled".into(), "delete-item".into()]));
    blocked(uninstalled, "uninstalled", "it was uninstalled", "delete-item");
    let served = |facts: &mut Facts, _: &mut Wanted| facts.other_stacks = Some(Ok(vec!["whittle-dev".into(), "old".into()]));
    blocked(served, "other-stacks", "stack whittle-dev, old", "whittle uninstall --cluster shop --stack whittle-dev --region eu-west-1");
    blocked(|facts, _| facts.eks.authentication.clear(), "authentication", "CONFIG_MAP", "update-cluster-config");
    blocked(|facts, _| drop(facts.stack.outputs.remove("SweepRoleArn")), "access/sweep", "SweepRoleArn", "deploy");
    blocked(|facts, _| drop(facts.stack.outputs.remove("RelayUrl")), "webhook", "RelayUrl", "deploy");
    blocked(|facts, _| facts.node_role.as_mut().unwrap().trusts_ec2 = false, "node-role", "may not assume", "ec2.amazonaws.com");
    blocked(|_, wanted| wanted.node_role = "web".into(), "node-role", "NodeRoles", "NodeRoles=KarpenterNodeRole-*,web");
    let standard = |facts: &mut Facts, _: &mut Wanted| facts.entries.values_mut().for_each(|entry| entry.kind = "STANDARD".into());
    blocked(standard, "node-entry", "STANDARD", "KarpenterNodeRole-shop --region eu-west-1; then run this again");
    let auto = |facts: &mut Facts, _: &mut Wanted| facts.entries.values_mut().for_each(|entry| entry.kind = "EC2".into());
    blocked(auto, "node-entry", "Auto Mode", "--node-role");
    let long = |facts: &mut Facts, wanted: &mut Wanted| (facts.node_role, wanted.node_role) = (None, "r".repeat(65));
    blocked(long, "node-role", "", "NodeRoles");
    blocked(|facts, _| (facts.subnets, facts.discovered) = Default::default(), "subnets", "no subnets", "--subnets");
}

#[test]
fn nothing_is_made_for_a_second_deployment() {
    let of = |others: &[&str]| Facts { other_stacks: Some(Ok(others.iter().map(|name| (*name).to_owned()).collect())), ..bare() };
    assert!(!crate::cluster::step::is_possible(&add(&of(&["whittle-dev"]), &wanted())));
    let alone = add(&of(&[]), &wanted());
    assert_eq!(alone, add(&bare(), &wanted()));
    assert!(crate::cluster::step::is_possible(&alone));
}

#[test]
fn a_new_node_role_trusts_ec2_by_all_its_names_in_the_partition() {
    for (partition, services) in [("aws", r#""ec2.amazonaws.com""#), ("aws-cn", r#"["ec2.amazonaws.com","ec2.amazonaws.com.cn"]"#)] {
        let new = |facts: &mut Facts, _: &mut Wanted| (facts.stack.partition, facts.node_role) = (partition.into(), None);
        let (is, command) = after(new, "node-role");
        assert_eq!(is, State::ToDo);
        assert!(command.contains(&format!(r#""Principal":{{"Service":{services}}}"#)), "{command}");
        assert!(command.contains(&format!("arn:{partition}:iam::aws:policy/AmazonEKSWorkerNodePolicy")), "{command}");
    }
    let chinese = |facts: &mut Facts, _: &mut Wanted| {
        facts.stack.partition = "aws-cn".into();
        facts.node_role.as_mut().unwrap().trusts_ec2 = false;
    };
    blocked(chinese, "node-role", "may not assume", "let ec2.amazonaws.com.cn assume it");
}

#[test]
fn new_roles_have_the_boundary_of_the_stack() {
    const BOUNDARY: &str = "arn:aws:iam::1:policy/boundary";
    let with = |mut facts: Facts| {
        facts.stack.parameters.insert("PermissionsBoundary".into(), BOUNDARY.into());
        facts
    };
    let made = commands(&add(&with(bare()), &wanted()), "node-role");
    assert!(made.lines().next().unwrap().ends_with(&format!("--permissions-boundary {BOUNDARY}")), "{made}");
    let made = commands(&add(&with(ready_for_watcher()), &with_watcher()), "watcher-stack");
    assert!(made.contains(&format!("ParameterKey=PermissionsBoundary,ParameterValue={BOUNDARY}")), "{made}");
    for steps in [add(&bare(), &wanted()), add(&ready_for_watcher(), &with_watcher())] {
        let made: String = steps.iter().map(|step| commands(&steps, &step.id)).collect();
        assert!(!made.to_lowercase().contains("boundary"), "{made}");
    }
}

#[test]
fn what_was_there_before_is_left_alone() {
    let unmark = |facts: &mut Facts| facts.objects.iter_mut().for_each(|object| object["metadata"]["labels"] = json!({}));
    let karpenters = |facts: &mut Facts, _: &mut Wanted| {
        unmark(facts);
        facts.objects.iter_mut().for_each(|object| object["spec"]["names"] = json!({}));
    };
    left_alone(karpenters, "crd/nodepools.karpenter.sh", "not overwritten");
    let by_us = |facts: &mut Facts, _: &mut Wanted| {
        unmark(facts);
        for object in &mut facts.objects {
            object["spec"]["names"] = json!({});
            object["metadata"]["managedFields"] = json!([{"manager": "whittle", "operation": "Apply"}]);
        }
    };
    let (is, command) = after(by_us, "crd/nodepools.karpenter.sh");
    assert_eq!(is, State::ToDo);
    assert!(!command.contains("force"), "CRDs are never forced: {command}");
    left_alone(|facts, _| facts.node_role = Some(role(&NODE_POLICIES[1..], &[])), "node-role", "AmazonEKSWorkerNodePolicy");
    left_alone(|facts, _| facts.pools.iter_mut().for_each(|pool| pool["metadata"] = json!({"name": "mine"})), "sample", "already");
    left_alone(|facts, _| facts.uninstalled = Some(Err("AccessDenied".into())), "uninstalled", "AccessDenied");
    left_alone(|facts, _| facts.other_stacks = Some(Err("AccessDenied".into())), "other-stacks", "AccessDenied");
    let shadow = |facts: &mut Facts, _: &mut Wanted| {
        facts.other_stacks = Some(Ok(vec!["whittle-dev".into()]));
        facts.stack.parameters.insert("Mode".into(), "shadow".into());
    };
    left_alone(shadow, "other-stacks", "its Mode is shadow");
    let auto = |facts: &mut Facts, _: &mut Wanted| {
        facts.classes.clear();
        facts.pools = vec![json!({"kind": "NodePool", "metadata": {"name": "general-purpose"},
            "spec": {"template": {"spec": {"nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}}}}})];
    };
    left_alone(auto, "sample", "EKS Auto Mode");
    left_alone(|facts, _| facts.eks.version = "1.29".into(), "guard", "1.29");
    left_alone(|facts, _| drop(facts.stack.parameters.insert("RelayAuth".into(), "AWS_IAM".into())), "webhook", "watcher");
    left_alone(|facts, _| drop(facts.stack.parameters.insert("RelayAuth".into(), "OFF".into())), "webhook", "wait for the tick");
    left_alone(|facts, _| drop(facts.stack.parameters.insert("RelayAuth".into(), "OFF".into())), "secret", "RelayAuth OFF");
    let tags = |facts: &mut Facts, _: &mut Wanted| {
        facts.discovered = Default::default();
        facts.subnets = vec![subnet("subnet-1", false, &[(DISCOVERY, "other")])];
    };
    left_alone(tags, "subnets", "another cluster");
}

#[test]
fn a_shadow_leaves_the_doorbell_to_the_stack_that_acts() {
    let elsewhere =
        |facts: &mut Facts, _: &mut Wanted| drop(facts.stack.outputs.insert("RelayUrl".into(), "https://shadow.on.aws/".into()));
    let (is, command) = after(elsewhere, "webhook");
    assert!(is == State::ToDo && !command.is_empty(), "the only stack's own address is put right");
    let beside = |facts: &mut Facts, wanted: &mut Wanted| {
        elsewhere(facts, wanted);
        facts.other_stacks = Some(Ok(vec!["whittle-prod".into()]));
        facts.stack.parameters.insert("Mode".into(), "shadow".into());
    };
    left_alone(beside, "webhook", "for stack whittle-prod");
    assert_eq!(after(beside, "webhook").1, "");
    let by_watcher = |facts: &mut Facts, wanted: &mut Wanted| {
        beside(facts, wanted);
        wanted.doorbell = Bell::Watcher { image: "registry/whittle-watcher@sha256:1".into() };
    };
    for id in ["watcher", "watcher-stack"] {
        left_alone(by_watcher, id, "for stack whittle-prod");
        assert_eq!(after(by_watcher, id).1, "");
    }
}

#[test]
fn the_node_role_of_a_cluster_of_ipv6_needs_a_policy_besides_awss() {
    let of_ipv6 = |facts: &mut Facts, _: &mut Wanted| facts.eks.ipv6 = true;
    left_alone(of_ipv6, "cni-rights", "until: aws iam put-role-policy --role-name KarpenterNodeRole-shop");
    let new = |facts: &mut Facts, _: &mut Wanted| (facts.eks.ipv6, facts.node_role) = (true, None);
    left_alone(new, "cni-rights", "AmazonEKS_CNI_Policy has no rights for IPv6");
    let steps_of = |change: &dyn Fn(&mut Facts)| {
        let mut facts = complete();
        change(&mut facts);
        add(&facts, &wanted()).into_iter().map(|step| (step.id, step.state)).collect::<Vec<_>>()
    };
    let says_nothing = |steps: &[(String, State)]| steps.iter().all(|(id, _)| id != "cni-rights");
    assert!(says_nothing(&steps_of(&|_| {})), "of IPv4");
    let own = steps_of(&|facts| {
        facts.eks.ipv6 = true;
        let role = facts.node_role.as_mut().unwrap();
        role.inline = vec!["cni".into()];
        role.policies.remove("AmazonEKS_CNI_Policy");
    });
    assert!(says_nothing(&own), "{own:?}");
    assert!(own.contains(&("node-role".to_owned(), State::Exists)), "it needs no rights for IPv4: {own:?}");
}

#[test]
fn what_is_not_as_it_should_be_is_done_again() {
    let no_groups = |facts: &mut Facts, _: &mut Wanted| facts.entries.values_mut().for_each(|entry| entry.groups = ["x".to_owned()].into());
    let (is, command) = after(no_groups, "access/terminate");
    assert_eq!(is, State::ToDo);
    let expected = "eks update-access-entry --cluster-name shop --principal-arn arn:aws:iam::1:role/terminate \
                    --kubernetes-groups x whittle:read whittle:terminate";
    assert_eq!(command, expected, "other groups stay");
    let half = |facts: &mut Facts, _: &mut Wanted| facts.node_role = Some(role(&NODE_POLICIES[1..], &[(MARK, "shop")]));
    let (is, command) = after(half, "node-role");
    assert_eq!(is, State::ToDo);
    assert_eq!(
        command,
        "iam attach-role-policy --role-name KarpenterNodeRole-shop --policy-arn arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
    );
    let rotated = |facts: &mut Facts, _: &mut Wanted| facts.secret = Some(Secret("other".into()));
    assert_eq!(after(rotated, "webhook").0, State::ToDo);
    let moved = |facts: &mut Facts, _: &mut Wanted| drop(facts.stack.outputs.insert("RelayUrl".into(), "https://new/".into()));
    assert_eq!(after(moved, "webhook").0, State::ToDo);
    let lost = |facts: &mut Facts, _: &mut Wanted| facts.objects.retain(|object| object["metadata"]["name"] != "whittle-evict");
    let (mut facts, wanted) = (complete(), wanted());
    lost(&mut facts, &mut Wanted::default());
    let steps = add(&facts, &wanted);
    let rbac = steps.iter().find(|step| step.id == "rbac").unwrap();
    assert_eq!(
        rbac.actions[0].input.as_ref().unwrap().text.matches("\"name\":\"whittle-evict\"").count(),
        3,
        "only what is missing is applied"
    );
}

#[test]
fn private_subnets_are_tagged_unless_there_are_none() {
    let steps = add(&bare(), &wanted());
    let tags = "--tags Key=karpenter.sh/discovery,Value=shop Key=whittle.dev/cluster-add,Value=shop";
    assert_eq!(commands(&steps, "subnets"), format!("ec2 create-tags --resources subnet-1 {tags}"));
    let mut public = bare();
    public.subnets[0].public = true;
    assert_eq!(commands(&add(&public, &wanted()), "subnets"), format!("ec2 create-tags --resources subnet-1 subnet-2 {tags}"));
}

#[test]
fn with_tags_of_another_cluster_the_sample_class_names_ids() {
    let mut facts = bare();
    facts.subnets[0] = subnet("subnet-1", false, &[(DISCOVERY, "other")]);
    let steps = add(&facts, &wanted());
    let text = &steps.iter().find(|step| step.id == "sample").unwrap().actions[1].input.as_ref().unwrap().text;
    assert!(text.contains(r#""subnetSelectorTerms":[{"id":"subnet-1"}]"#), "{text}");
    assert!(text.contains(r#""securityGroupSelectorTerms":[{"tags":{"karpenter.sh/discovery":"shop"}}]"#), "{text}");
}

#[test]
fn subnets_that_were_named_are_named_by_id_if_one_is_of_another_cluster() {
    let of = |id: &str, cluster: &str| subnet(id, true, &[(DISCOVERY, cluster)]);
    for (asked, of_first, by_id) in [(true, "other", true), (true, "shop", false), (false, "other", false)] {
        let mut facts = bare();
        facts.subnets = vec![of("subnet-1", of_first), subnet("subnet-2", false, &[])];
        facts.discovered = [vec![of("subnet-3", "shop")], Vec::new()];
        let wanted = Wanted { subnets: if asked { vec!["subnet-1".into(), "subnet-2".into()] } else { Vec::new() }, ..wanted() };
        let steps = add(&facts, &wanted);
        let text = &steps.iter().find(|step| step.id == "sample").unwrap().actions[1].input.as_ref().unwrap().text;
        let named = text.contains(r#""subnetSelectorTerms":[{"id":"subnet-1"},{"id":"subnet-2"}]"#);
        assert_eq!(named, by_id, "{asked} {of_first}: {text}");
    }
}

#[test]
fn no_secret_is_in_a_command_line_or_a_debug_text() {
    let facts = Facts { secret: Some(Secret("5ec7e7".into())), ..bare() };
    for steps in [add(&bare(), &wanted()), add(&facts, &wanted())] {
        let own = whittle_relay::cluster_secret("5ec7e7", "shop");
        let shown = format!("{steps:?} {facts:?}");
        assert!(!shown.contains("5ec7e7") && !shown.contains(&own));
        let hook = steps.iter().find(|step| step.id == "webhook").unwrap();
        let text = &hook.actions[0].input.as_ref().unwrap().text;
        assert_eq!(text.matches(&format!("https://abc.lambda-url.on.aws/{own}/shop")).count(), 5, "for each of the webhooks");
    }
}

fn with_watcher() -> Wanted {
    Wanted { doorbell: Bell::Watcher { image: "r.example/w@sha256:0a".into() }, ..wanted() }
}

/// The account in which a watcher can be made.
fn ready_for_watcher() -> Facts {
    let mut facts = bare();
    facts.stack.outputs.insert("RelayFunction".into(), "whittle-relay".into());
    facts.eks.issuer = "https://oidc.eks.eu-west-1.amazonaws.com/id/ABC".into();
    facts.watcher.has_provider = true;
    facts
}

/// The watcher's stack as it is once it is made.
fn watcher_stack(status: &str) -> Stack {
    let outputs = pairs(&[("Url", "https://xyz.lambda-url.eu-west-1.on.aws/"), ("RoleArn", "arn:aws:iam::1:role/w")]);
    Stack { name: "whittle-watcher-shop".into(), status: status.into(), outputs, ..Stack::default() }
}

#[test]
fn a_watcher_is_made_instead_of_a_webhook() {
    let steps = add(&ready_for_watcher(), &with_watcher());
    assert!(!steps.iter().any(|step| ["secret", "webhook"].contains(&step.id.as_str())));
    assert_eq!([state(&steps, "watcher-stack"), state(&steps, "watcher")], [State::ToDo, State::ToDo]);
    let made = commands(&steps, "watcher-stack");
    for part in [
        "create-stack --stack-name whittle-watcher-shop --template-body file:///dev/stdin --capabilities CAPABILITY_IAM",
        "--tags Key=whittle.dev/cluster-add,Value=shop",
        "ParameterKey=RelayFunction,ParameterValue=whittle-relay",
        "ParameterKey=OidcIssuer,ParameterValue=oidc.eks.eu-west-1.amazonaws.com/id/ABC",
        "wait stack-create-complete --stack-name whittle-watcher-shop",
    ] {
        assert!(made.contains(part), "{part}: {made}");
    }
    let mut by_agent = ready_for_watcher();
    (by_agent.watcher.has_provider, by_agent.watcher.has_agent) = (false, Some(true));
    assert!(!commands(&add(&by_agent, &with_watcher()), "watcher-stack").contains("OidcIssuer"));
    assert!(add(&bare(), &wanted()).iter().all(|step| !step.id.starts_with("watcher")));
}

#[test]
fn a_watcher_that_is_as_it_should_be_is_left_and_another_image_is_applied() {
    let mut facts = ready_for_watcher();
    facts.watcher.stack = Some(watcher_stack("CREATE_COMPLETE"));
    let steps = add(&facts, &with_watcher());
    assert_eq!(state(&steps, "watcher-stack"), State::Exists);
    let apply = steps.iter().find(|step| step.id == "watcher").unwrap().actions[0].input.clone().unwrap();
    assert!(apply.text.contains("https://xyz.lambda-url.eu-west-1.on.aws/") && apply.outputs.is_none());
    facts.objects = serde_json::from_str::<Value>(&apply.text).unwrap()["items"].as_array().unwrap().clone();
    assert_eq!(state(&add(&facts, &with_watcher()), "watcher"), State::Exists);
    let newer = Wanted { doorbell: Bell::Watcher { image: "r.example/w@sha256:0b".into() }, ..wanted() };
    let steps = add(&facts, &newer);
    assert_eq!(state(&steps, "watcher"), State::ToDo);
    let apply = steps.iter().find(|step| step.id == "watcher").unwrap().actions[0].input.clone().unwrap();
    let items = serde_json::from_str::<Value>(&apply.text).unwrap()["items"].as_array().unwrap().clone();
    assert_eq!(items.iter().map(|one| one["kind"].as_str().unwrap()).collect::<Vec<_>>(), ["Deployment"], "nothing but what differs");
}

#[test]
fn what_keeps_a_watcher_from_its_work_is_said_before_anything_is_made() {
    let blocked = |change: &dyn Fn(&mut Facts, &mut Wanted), why: &str, remedy: &str| {
        let (mut facts, mut wanted) = (ready_for_watcher(), with_watcher());
        change(&mut facts, &mut wanted);
        let steps = add(&facts, &wanted);
        match state(&steps, "watcher-stack") {
            State::Blocked { why: is, remedy: by } => assert!(is.contains(why) && by.contains(remedy), "{is} / {by}"),
            other => panic!("{why}: {other:?}"),
        }
        assert_eq!(commands(&steps, "watcher-stack"), "");
    };
    let no_way = |facts: &mut Facts, _: &mut Wanted| (facts.watcher.has_provider, facts.watcher.has_agent) = (false, Some(false));
    blocked(&no_way, "its pods would get no role", "--addon-name eks-pod-identity-agent");
    let off = |facts: &mut Facts, _: &mut Wanted| drop(facts.stack.parameters.insert("RelayAuth".into(), "OFF".into()));
    blocked(&off, "RelayAuth is OFF", "wait for the tick");
    blocked(&|facts, _| drop(facts.stack.outputs.remove("RelayFunction")), "no output RelayFunction", "deploy this release");
    let other_caller = |facts: &mut Facts, _: &mut Wanted| {
        facts.stack.parameters.insert("RelayCallers".into(), "shop=mine".into());
    };
    blocked(&other_caller, "RelayCallers", "shop=whittle-watcher-shop-Role-*");
    blocked(&|facts, _| facts.watcher.stack = Some(watcher_stack("ROLLBACK_COMPLETE")), "ROLLBACK_COMPLETE", "delete-stack");
    blocked(&|facts, _| facts.watcher.stack = Some(watcher_stack("CREATE_IN_PROGRESS")), "CREATE_IN_PROGRESS", "wait");
    let digits = |facts: &mut Facts, wanted: &mut Wanted| {
        facts.stack.parameters.insert("Clusters".into(), "2026".into());
        wanted.cluster = "2026".into();
    };
    blocked(&digits, "digits alone", "webhook");
    let mut facts = ready_for_watcher();
    facts.stack.parameters.insert("RelayCallers".into(), "shop=whittle-watcher-shop-*".into());
    assert_eq!(state(&add(&facts, &with_watcher()), "watcher-stack"), State::ToDo);
}
