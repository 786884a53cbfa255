use super::super::facts::{Function, InAccount, InCluster, Queue, Running};
use super::super::print;
use super::*;
use crate::cluster::manifests;
use crate::live::account::{Eks, Entry, NODE_POLICIES, Role, Secret, Tagged};
use crate::live::deployment::{Alarm, FUNCTIONS, Stack};
use crate::schema::Document;
use crate::schema::tests::assert_valid;
use crate::{Cli, Command};
use clap::Parser as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NODES: &str = "arn:aws:iam::1:role/KarpenterNodeRole-shop";

fn stack() -> Stack {
    let roles = FUNCTIONS.iter().map(|(name, output, _)| ((*output).to_owned(), format!("arn:aws:iam::1:role/{name}")));
    let more = [("RelayUrl", "https://abc.on.aws/"), ("Version", env!("CARGO_PKG_VERSION"))];
    Stack {
        name: "whittle".into(),
        status: "UPDATE_COMPLETE".into(),
        partition: "aws".into(),
        region: "eu-west-1".into(),
        account: "1".into(),
        parameters: [("Clusters".to_owned(), "shop,dev".to_owned())].into(),
        outputs: roles.chain(more.map(|(key, value)| (key.to_owned(), value.to_owned()))).collect(),
        ..Stack::default()
    }
}

fn ready(mut object: Value) -> Value {
    object["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    object
}

/// An installation in which nothing is wrong.
fn healthy() -> Facts {
    let stack = stack();
    let function = |name: &&str| Function {
        name: (*name).to_owned(),
        state: "Active".into(),
        update: "Successful".into(),
        clusters: "shop,dev".into(),
        ..Function::default()
    };
    let names = ["Relay", "Schedule", "Launch", "Register", "Consolidate", "Interrupt", "Terminate", "Refresh", "Sweep"];
    let queues = ["PlanQueue", "PlanDeadLetters", "LaunchQueue", "LaunchDeadLetters"];
    let entries: BTreeMap<String, Entry> = FUNCTIONS
        .iter()
        .map(|(_, output, groups)| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            (stack.output(output).to_owned(), Entry { groups, kind: "STANDARD".into(), ..Entry::default() })
        })
        .chain([(NODES.to_owned(), Entry { kind: "EC2_LINUX".into(), ..Entry::default() })])
        .collect();
    let tagged = |id: &str| vec![Tagged { id: id.into(), free: 4000, ..Tagged::default() }];
    let [class, pool] = manifests::sample("shop", "KarpenterNodeRole-shop", None, None).try_into().unwrap();
    let hook = manifests::webhook("abc.on.aws", &whittle_relay::cluster_secret("stored", "shop"), "shop");
    Facts {
        cluster: "shop".into(),
        node_role_name: "KarpenterNodeRole-shop".into(),
        add: "whittle cluster add shop".into(),
        now: "2026-01-01T12:00:00Z".parse().unwrap(),
        caller: Ok("arn:aws:iam::1:user/me".into()),
        concurrency: Ok(1000),
        eks: Ok(Some(Eks { status: "ACTIVE".into(), version: "1.34".into(), authentication: "API".into(), ..Eks::default() })),
        names: Ok(vec!["shop".into(), "dev".into()]),
        running: Ok(Running {
            functions: Ok(names.iter().map(function).collect()),
            queues: Ok(queues
                .iter()
                .map(|name| Queue { name: (*name).to_owned(), url: format!("https://sqs/{name}"), messages: 0 })
                .collect()),
            disabled: Ok(Vec::new()),
            stopped: Ok(Vec::new()),
            alarms: Ok(Vec::new()),
        }),
        account: Ok(InAccount {
            entries: Ok(entries),
            node_role: Ok(Some(Role {
                arn: NODES.into(),
                trusts_ec2: true,
                policies: NODE_POLICIES.iter().map(|policy| (*policy).to_owned()).collect(),
                ..Role::default()
            })),
            has_spot_role: Ok(true),
            subnets: Ok(tagged("subnet-1")),
            security_groups: Ok(tagged("sg-1")),
            secret: Ok(Some(Secret("stored".into()))),
            uninstalled: Ok(None),
            other_stacks: Ok(Vec::new()),
        }),
        inside: Ok(InCluster {
            crds: Ok(manifests::crds()),
            objects: Ok([manifests::rbac(), manifests::flow(), hook].concat()),
            watchers: Ok(Vec::new()),
            pools: Ok(vec![ready(pool)]),
            classes: Ok(vec![ready(class)]),
            cni_accounts: Ok(vec![json!({"kind": "ServiceAccount", "metadata": {"name": "aws-node", "namespace": "kube-system"}})]),
            karpenter: Ok(Vec::new()),
            refusals: Ok(Vec::new()),
        }),
        stack: Ok(stack),
        is_stack_missing: false,
    }
}

impl Facts {
    fn stack(&mut self) -> &mut Stack {
        self.stack.as_mut().unwrap()
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().unwrap()
    }

    fn account(&mut self) -> &mut InAccount {
        self.account.as_mut().unwrap()
    }

    fn inside(&mut self) -> &mut InCluster {
        self.inside.as_mut().unwrap()
    }
}

#[test]
fn nothing_is_wrong_with_a_healthy_installation() {
    let found = findings(&healthy());
    let bad: Vec<_> = found.iter().filter(|finding| finding.status != Status::Ok || !finding.remedy.is_empty()).collect();
    assert_eq!(bad, Vec::<&Finding>::new());
    assert_eq!(found.len(), 27);
}

/// After a change of the healthy installation one check, and no other, tells these words with this remedy.
#[track_caller]
fn found(status: Status, change: impl FnOnce(&mut Facts), check: &str, what: &str, remedy: &str) {
    let mut facts = healthy();
    change(&mut facts);
    let all = findings(&facts);
    let bad: Vec<&Finding> = all.iter().filter(|finding| finding.status != Status::Ok).collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    let Finding { check: is, status: how, what: told, remedy: by } = bad[0];
    assert_eq!((*is, *how), (check, status), "{told}");
    assert!(told.contains(what) && by.contains(remedy), "{told} / {by}");
}

#[test]
fn each_of_ten_broken_installations_is_named_with_its_remedy() {
    use Status::Problem;
    let add = "whittle cluster add shop";
    let no_entry = |facts: &mut Facts| drop(facts.account().entries.as_mut().unwrap().remove("arn:aws:iam::1:role/launch"));
    found(Problem, no_entry, "access", "launch has no access entry", add);
    let rotated = |facts: &mut Facts| facts.account().secret = Ok(Some(Secret("other".into())));
    found(Problem, rotated, "doorbell", "does not follow from the SSM parameter /whittle/relay-secret", add);
    found(Problem, |facts| facts.account().subnets = Ok(Vec::new()), "subnets", "none has the tag karpenter.sh/discovery=shop", add);
    let no_crd =
        |facts: &mut Facts| facts.inside().crds.as_mut().unwrap().retain(|crd| crd["metadata"]["name"] != "nodepools.karpenter.sh");
    found(Problem, no_crd, "CRDs", "missing: nodepools.karpenter.sh", add);
    let misnamed = |facts: &mut Facts| drop(facts.stack().parameters.insert("Clusters".into(), "shopp,dev".into()));
    let line = "sam deploy --region eu-west-1 --parameter-overrides Clusters=dev,shop";
    found(Problem, misnamed, "clusters", "names shopp, not shop", line);
    let denied = |facts: &mut Facts| {
        let message = "EC2 refuses CreateFleet: UnauthorizedOperation: You are not authorized to perform this operation";
        let about = json!({"kind": "NodePool", "name": "default"});
        let event =
            |at: &str, text: &str| json!({"reason": "LaunchRefused", "involvedObject": about, "lastTimestamp": at, "message": text});
        facts.inside().refusals = Ok(vec![event("2026-01-01T11:50:00Z", message), event("2026-01-01T11:20:00Z", "older")]);
    };
    found(Problem, denied, "launches", "NodePool default: EC2 refuses CreateFleet: UnauthorizedOperation", "service control policy");
    found(
        Problem,
        |facts| facts.account().has_spot_role = Ok(false),
        "spot role",
        "AWSServiceRoleForEC2Spot",
        "aws iam create-service-linked-role",
    );
    let beside = |facts: &mut Facts| {
        let lease = json!({"kind": "Lease", "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
            "spec": {"holderIdentity": "karpenter-1", "renewTime": "2026-01-01T11:59:50.000000Z"}});
        facts.inside().karpenter = Ok(vec![lease]);
    };
    found(Problem, beside, "Karpenter", "in namespace kube-system", "kubectl -n kube-system scale deployment karpenter --replicas=0");
    found(
        Problem,
        |facts| drop(facts.stack().outputs.insert("Version".into(), "0.0.9".into())),
        "version",
        "release 0.0.9",
        "sam build, sam deploy",
    );
    let full = |facts: &mut Facts| facts.running().queues.as_mut().unwrap()[3].messages = 7;
    found(
        Problem,
        full,
        "dead letters",
        "7 messages in LaunchDeadLetters",
        "aws sqs purge-queue --queue-url https://sqs/LaunchDeadLetters --region eu-west-1",
    );
    let notices = |facts: &mut Facts| {
        let queue = &mut facts.running().queues.as_mut().unwrap()[3];
        (queue.name, queue.messages) = ("InterruptionDeadLetters".into(), 1);
    };
    found(Problem, notices, "dead letters", "1 message in InterruptionDeadLetters", "no tick repeats what EC2 told");
}

#[test]
fn the_deployment_is_judged() {
    use Status::{Problem, Warning};
    found(Problem, |facts| facts.stack().status = "UPDATE_ROLLBACK_FAILED".into(), "stack", "ROLLBACK_FAILED", "continue-update-rollback");
    found(Problem, |facts| facts.stack().status = "ROLLBACK_COMPLETE".into(), "stack", "ROLLBACK_COMPLETE", "delete the stack");
    found(Problem, |facts| facts.stack().status = "UPDATE_IN_PROGRESS".into(), "stack", "IN_PROGRESS", "wait");
    found(Problem, |facts| facts.stack().status = "UPDATE_FAILED".into(), "stack", "UPDATE_FAILED", "rollback-stack --stack-name whittle");
    found(Warning, |facts| facts.stack().status = "UPDATE_ROLLBACK_COMPLETE".into(), "stack", "taken back", "sam deploy");
    found(Problem, |facts| drop(facts.stack().outputs.remove("Version")), "version", "no output Version", "sam build");
    found(Warning, |facts| drop(facts.stack().outputs.insert("Version".into(), "9.0.0".into())), "version", "9.0.0", "9.0.0");
    found(Warning, |facts| facts.names = Ok(vec!["shop".into()]), "clusters", "names dev", "correct the name");
    found(Warning, |facts| drop(facts.stack().parameters.insert("Mode".into(), "shadow".into())), "mode", "shadow", "Mode=active");
    found(Warning, |facts| facts.concurrency = Ok(10), "concurrency", "10 functions", "SmallAccount=true");
    let failed = |facts: &mut Facts| {
        let function = &mut facts.running().functions.as_mut().unwrap()[2];
        (function.update, function.reason) = ("Failed".into(), "the image is gone".into());
    };
    found(Problem, failed, "functions", "Launch is in state Active, its last update Failed: the image is gone", "deploy again");
    let behind = |facts: &mut Facts| facts.running().functions.as_mut().unwrap()[4].clusters = "dev".into();
    found(Problem, behind, "functions", "Consolidate is set to serve \"dev\"", "deploy again");
    found(Problem, |facts| drop(facts.running().functions.as_mut().unwrap().pop()), "functions", "8 functions, not 9", "deploy");
    found(Problem, |facts| facts.running().disabled = Ok(vec!["ScheduleTick".into()]), "rules and ticks", "ScheduleTick", "enable");
    let stop = |name: &str| Ok(vec![(name.to_owned(), format!("whittle-{name}-1"))]);
    let delete = "aws lambda delete-function-concurrency --function-name whittle-Terminate-1 --region eu-west-1";
    let words = "a reserved concurrency of zero, with which Lambda never starts a function: Terminate";
    found(Problem, |facts| facts.running().stopped = stop("Terminate"), "stopped functions", words, delete);
    let interrupt = |facts: &mut Facts| {
        facts.running().stopped = stop("Interrupt");
        facts.stack().parameters.insert("InterruptConcurrency".into(), "20".into());
    };
    let put =
        "aws lambda put-function-concurrency --function-name whittle-Interrupt-1 --reserved-concurrent-executions 20 --region eu-west-1";
    found(Problem, interrupt, "stopped functions", "Interrupt", put);
    let small = |facts: &mut Facts| {
        facts.running().stopped = stop("Terminate");
        facts.stack().parameters.insert("TerminateConcurrency".into(), "5".into());
        facts.stack().parameters.insert("SmallAccount".into(), "true".into());
    };
    found(Problem, small, "stopped functions", words, delete);
    let mapping = |facts: &mut Facts| facts.running().disabled = Ok(vec!["TerminateTerminate".into()]);
    found(Problem, mapping, "rules and ticks", "TerminateTerminate", "aws lambda update-event-source-mapping --enabled");
    let alarm = Alarm { name: "ProblemsAlarm".into(), description: "A pod has waited.".into(), ..Alarm::default() };
    found(Problem, |facts| facts.running().alarms = Ok(vec![alarm]), "alarms", "ProblemsAlarm (A pod has waited)", "docs/runbooks.md");
}

#[test]
fn a_stack_that_is_not_there_is_a_problem_and_one_that_cannot_be_read_is_unknown() {
    let of = |is_stack_missing: bool| {
        let facts = Facts { stack: Err("there is no stack whittle".into()), is_stack_missing, ..healthy() };
        findings(&facts).into_iter().find(|finding| finding.check == "stack").unwrap()
    };
    let Finding { status, what, remedy, .. } = of(true);
    assert_eq!((status, what.as_str()), (Status::Problem, "there is no stack whittle in this account and region"));
    assert!(remedy.contains("sam deploy --parameter-overrides Clusters=shop") && remedy.contains("--region or --profile"), "{remedy}");
    assert_eq!(of(false).status, Status::Unknown);
}

#[test]
fn a_cluster_that_is_not_there_is_told_with_those_that_are() {
    let told = |names: Result<Vec<String>, String>| {
        let facts = Facts { eks: Ok(None), names, ..healthy() };
        findings(&facts).into_iter().find(|finding| finding.check == "cluster").unwrap().what
    };
    let begins = "EKS has no cluster shop in this account and region; ";
    assert_eq!(told(Ok(vec!["a".into(), "b".into()])), format!("{begins}it has: a, b"));
    assert_eq!(told(Ok(Vec::new())), format!("{begins}it has none"));
    assert_eq!(told(Err("AccessDenied".into())), format!("{begins}which it has is not known: AccessDenied"));
}

#[test]
fn the_account_is_judged() {
    use Status::{Problem, Warning};
    let mode = |facts: &mut Facts| facts.eks.as_mut().unwrap().as_mut().unwrap().authentication = "CONFIG_MAP".into();
    found(Problem, mode, "cluster", "CONFIG_MAP", "update-cluster-config");
    let state = |facts: &mut Facts, state: &str| facts.eks.as_mut().unwrap().as_mut().unwrap().status = state.into();
    found(Problem, |facts| state(facts, "CREATING"), "cluster", "shop is in state CREATING", "wait cluster-active");
    found(Problem, |facts| state(facts, "FAILED"), "cluster", "shop is in state FAILED", "create it again");
    let mut updated = healthy();
    state(&mut updated, "UPDATING");
    assert!(findings(&updated).iter().all(|finding| finding.status == Status::Ok), "it serves meanwhile");
    let record = |facts: &mut Facts| facts.account().uninstalled = Ok(Some(["nothing is launched".into(), "delete-item".into()]));
    found(Problem, record, "uninstallation", "nothing is launched", "delete-item");
    let served = |facts: &mut Facts| facts.account().other_stacks = Ok(vec!["whittle-dev".into()]);
    let uninstall = "whittle uninstall --cluster shop --stack whittle-dev --region eu-west-1 --yes";
    found(Problem, served, "other stacks", "whittle-dev serves the cluster, too", uninstall);
    let shadow_beside = |facts: &mut Facts| {
        served(facts);
        facts.stack().parameters.insert("Mode".into(), "shadow".into());
    };
    found(Warning, shadow_beside, "mode", "shadow", "Mode=active");
    let groups = |facts: &mut Facts| {
        let entry = facts.account().entries.as_mut().unwrap().get_mut("arn:aws:iam::1:role/terminate").unwrap();
        entry.groups.remove("whittle:terminate");
    };
    found(Problem, groups, "access", "terminate is not in whittle:terminate", "cluster add");
    found(Problem, |facts| drop(facts.account().entries.as_mut().unwrap().remove(NODES)), "node access", "never join", "cluster add");
    let standard = |facts: &mut Facts| facts.account().entries.as_mut().unwrap().get_mut(NODES).unwrap().kind = "STANDARD".into();
    found(Problem, standard, "node access", "type STANDARD", &format!("--principal-arn {NODES} --region eu-west-1, then"));
    let auto = |facts: &mut Facts| facts.account().entries.as_mut().unwrap().get_mut(NODES).unwrap().kind = "EC2".into();
    found(Problem, auto, "node access", "EKS Auto Mode's", "another role");
    let windows = |facts: &mut Facts| facts.account().entries.as_mut().unwrap().get_mut(NODES).unwrap().kind = "EC2_WINDOWS".into();
    let mut healthy = healthy();
    windows(&mut healthy);
    assert!(findings(&healthy).iter().all(|finding| finding.status == Status::Ok));
    let lacking = |facts: &mut Facts| {
        let role = facts.account().node_role.as_mut().unwrap().as_mut().unwrap();
        role.policies.remove("AmazonEKS_CNI_Policy");
    };
    found(Warning, lacking, "node role", "AmazonEKS_CNI_Policy", "attach-role-policy");
    let closed = |facts: &mut Facts| facts.account().node_role.as_mut().unwrap().as_mut().unwrap().trusts_ec2 = false;
    found(Problem, closed, "node role", "may not assume", "ec2.amazonaws.com");
    let full = |facts: &mut Facts| facts.account().subnets.as_mut().unwrap()[0].free = 3;
    found(Problem, full, "subnets", "subnet-1 has 3 free addresses", "larger subnet");
    found(Problem, |facts| facts.account().security_groups = Ok(Vec::new()), "security groups", "none has the tag", "cluster add");
}

#[test]
fn windows_nodes_need_an_access_entry_of_their_type() {
    let of_windows = |facts: &mut Facts, role: &str| {
        let class = &mut facts.inside().classes.as_mut().unwrap()[0];
        class["spec"]["role"] = json!(role);
        class["spec"]["amiSelectorTerms"] = json!([{"alias": "windows2022@latest"}]);
    };
    let shared = |facts: &mut Facts| of_windows(facts, "KarpenterNodeRole-shop");
    found(Status::Warning, shared, "node access", "is for Windows", "--type EC2_WINDOWS");
    let kind = |facts: &mut Facts, kind: &str| facts.account().entries.as_mut().unwrap().get_mut(NODES).unwrap().kind = kind.into();
    for (role, kept) in [("KarpenterNodeRole-shop", "EC2_WINDOWS"), ("windows-nodes", "EC2_LINUX")] {
        let mut facts = healthy();
        of_windows(&mut facts, role);
        kind(&mut facts, kept);
        assert!(findings(&facts).iter().all(|finding| finding.check != "node access" || finding.status == Status::Ok), "{role} {kept}");
    }
}

#[test]
fn the_node_role_of_a_cluster_of_ipv6_needs_a_policy_besides_awss() {
    let of_ipv6 = |facts: &mut Facts| facts.eks.as_mut().unwrap().as_mut().unwrap().ipv6 = true;
    found(Status::Warning, of_ipv6, "node role", "IPv6 addresses, for which AmazonEKS_CNI_Policy has no rights", "ec2:AssignIpv6Addresses");
    let role = |facts: &mut Facts, change: &dyn Fn(&mut Role)| change(facts.account().node_role.as_mut().unwrap().as_mut().unwrap());
    let is_well = |facts: &Facts| findings(facts).iter().all(|finding| finding.status == Status::Ok);
    for attached in [true, false] {
        let mut facts = healthy();
        of_ipv6(&mut facts);
        role(&mut facts, &|role| {
            role.policies.remove("AmazonEKS_CNI_Policy");
            let own = "arn:aws:iam::1:policy/cni".to_owned();
            if attached { role.attached.push(own) } else { role.inline.push("cni".into()) }
        });
        assert!(is_well(&facts), "which need not be AmazonEKS_CNI_Policy");
    }
    let mut of_ipv4 = healthy();
    role(&mut of_ipv4, &|role| role.attached = vec!["arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy".into()]);
    assert!(is_well(&of_ipv4));
}

/// The annotation is all that the API server knows of it.
#[test]
fn a_vpc_cni_with_a_role_of_its_own_needs_no_policy_of_the_nodes() {
    let lacking = |facts: &mut Facts| {
        facts.account().node_role.as_mut().unwrap().as_mut().unwrap().policies.remove("AmazonEKS_CNI_Policy");
    };
    found(Status::Warning, lacking, "node role", "names no role of its own", "list-pod-identity-associations --cluster-name shop");
    let annotated = |facts: &mut Facts, arn: &str| {
        let metadata = json!({"name": "aws-node", "annotations": {"eks.amazonaws.com/role-arn": arn}});
        facts.inside().cni_accounts = Ok(vec![json!({"kind": "ServiceAccount", "metadata": metadata})]);
    };
    let arn = "arn:aws:iam::1:role/cni";
    let of_role = |facts: &Facts| findings(facts).into_iter().find(|finding| finding.check == "node role").unwrap();
    for is_ipv6 in [false, true] {
        let mut facts = healthy();
        facts.eks.as_mut().unwrap().as_mut().unwrap().ipv6 = is_ipv6;
        lacking(&mut facts);
        annotated(&mut facts, arn);
        let finding = of_role(&facts);
        assert!(finding.status == Status::Ok && finding.what.contains(arn), "{finding:?}");
    }
    let empty = |facts: &mut Facts| {
        lacking(facts);
        annotated(facts, "");
    };
    found(Status::Warning, empty, "node role", "names no role of its own", "attach-role-policy");
    // Another policy is needed all the same, and nothing is said of a plugin that is not known.
    let mut facts = healthy();
    annotated(&mut facts, arn);
    facts.account().node_role.as_mut().unwrap().as_mut().unwrap().policies.clear();
    let finding = of_role(&facts);
    assert!(finding.what.contains("lacks AmazonEKSWorkerNodePolicy") && !finding.what.contains("CNI"), "{finding:?}");
    assert_eq!(finding.remedy.matches("attach-role-policy").count(), NODE_POLICIES.len() - 1, "each by its own command");
    let other_plugin = |facts: &mut Facts| {
        lacking(facts);
        facts.inside().cni_accounts = Ok(Vec::new());
    };
    found(Status::Warning, other_plugin, "node role", "unless other policies allow the same", "AmazonEKS_CNI_Policy");
    let mut facts = healthy();
    other_plugin(&mut facts);
    assert!(!of_role(&facts).what.contains("aws-node"));
}

#[test]
fn remedies_for_a_node_role_are_those_of_its_partition() {
    let chinese = |facts: &mut Facts| {
        let arn = "arn:aws-cn:iam::1:role/KarpenterNodeRole-shop";
        let entries = facts.account().entries.as_mut().unwrap();
        let entry = entries.remove(NODES).unwrap();
        entries.insert(arn.into(), entry);
        facts.account().node_role.as_mut().unwrap().as_mut().unwrap().arn = arn.into();
    };
    let lacking = |facts: &mut Facts| {
        chinese(facts);
        facts.account().node_role.as_mut().unwrap().as_mut().unwrap().policies.remove("AmazonEKS_CNI_Policy");
    };
    found(Status::Warning, lacking, "node role", "AmazonEKS_CNI_Policy", "arn:aws-cn:iam::aws:policy/AmazonEKS_CNI_Policy");
    let closed = |facts: &mut Facts| {
        chinese(facts);
        facts.account().node_role.as_mut().unwrap().as_mut().unwrap().trusts_ec2 = false;
    };
    found(Status::Problem, closed, "node role", "may not assume", "let ec2.amazonaws.com.cn assume it");
}

#[test]
fn the_cluster_is_judged() {
    use Status::{Problem, Warning};
    let old =
        |facts: &mut Facts| facts.inside().crds.as_mut().unwrap()[0]["spec"]["versions"] = json!([{"name": "v1beta1", "served": true}]);
    found(Problem, old, "CRDs", "nodepools.karpenter.sh does not serve v1", "upgrade");
    let fewer = |facts: &mut Facts| drop(facts.inside().crds.as_mut().unwrap().pop());
    found(Warning, fewer, "CRDs", "awsnodetemplates", "cluster add");
    let auto = || {
        json!({"kind": "NodePool", "metadata": {"name": "general-purpose"},
            "spec": {"template": {"spec": {"nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}}}}})
    };
    let both = |facts: &mut Facts| facts.inside().pools.as_mut().unwrap().push(auto());
    found(Warning, both, "NodePools", "neither default nor general-purpose", "taints");
    found(Warning, |facts| facts.inside().pools = Ok(vec![auto()]), "NodePools", "none but 1 of another controller", "beside-others.md");
    let mut apart = healthy();
    let mut tainted = auto();
    tainted["spec"]["template"]["spec"]["taints"] = json!([{"key": "auto", "effect": "NoSchedule"}]);
    apart.inside().pools.as_mut().unwrap().push(tainted);
    assert!(findings(&apart).iter().all(|finding| finding.status == Status::Ok), "its conditions are not Whittle's");
    let changed = |facts: &mut Facts| facts.inside().objects.as_mut().unwrap()[0]["rules"] = json!([]);
    found(Problem, changed, "rights in the cluster", "ClusterRole whittle-read", "cluster add");
    let hookless = |facts: &mut Facts| drop(facts.inside().objects.as_mut().unwrap().pop());
    found(Warning, hookless, "doorbell", "neither a webhook nor a watcher", "cluster add");
    let without_relay = |facts: &mut Facts| {
        hookless(facts);
        facts.stack().parameters.insert("RelayAuth".into(), "OFF".into());
    };
    let mut off = healthy();
    without_relay(&mut off);
    let doorbell = findings(&off).into_iter().find(|finding| finding.check == "doorbell").unwrap();
    assert!(doorbell.status == Status::Ok && doorbell.what.contains("RelayAuth=OFF"), "{}", doorbell.what);
    let earlier = |facts: &mut Facts| {
        let hook = facts.inside().objects.as_mut().unwrap().last_mut().unwrap();
        hook["webhooks"].as_array_mut().unwrap().retain(|one| one["name"] != "claims.doorbell.whittle.dev");
    };
    found(Warning, earlier, "doorbell", "of an earlier release: it lacks claims.doorbell.whittle.dev", "cluster add");
    let host = |facts: &mut Facts| drop(facts.stack().outputs.insert("RelayUrl".into(), "https://new.on.aws/".into()));
    found(Problem, host, "doorbell", "calls abc.on.aws, and the host of the relay is new.on.aws", "cluster add");
    found(Problem, |facts| facts.account().secret = Ok(None), "doorbell", "relay cannot start", "cluster add");
    let down = |facts: &mut Facts| {
        hookless(facts);
        facts.inside().watchers = Ok(vec![json!({"status": {"replicas": 2}})]);
    };
    found(Problem, down, "doorbell", "no pod of the watcher is ready", "describe deployment");
    let unready = |facts: &mut Facts| {
        let conditions = json!([{"type": "Ready", "status": "False", "message": ""},
            {"type": "SubnetsReady", "status": "False", "message": "no subnet matches"}]);
        facts.inside().classes.as_mut().unwrap()[0]["status"]["conditions"] = conditions;
    };
    found(Problem, unready, "node classes", "default is not ready: SubnetsReady no subnet matches", "message");
    let scarce = |facts: &mut Facts| {
        let conditions = json!([{"type": "Ready", "status": "True", "message": ""},
            {"type": "SubnetsReady", "status": "True", "message": "fewer than the 16 free addresses: subnet-1"}]);
        facts.inside().classes.as_mut().unwrap()[0]["status"]["conditions"] = conditions;
    };
    found(Warning, scarce, "node classes", "default: fewer than the 16 free addresses: subnet-1", "describe-subnets");
    found(Warning, |facts| facts.inside().pools = Ok(Vec::new()), "NodePools", "none", "cluster add");
}

#[test]
fn the_doorbell_of_a_shadow_is_that_of_the_stack_beside_it() {
    let elsewhere = |facts: &mut Facts| {
        facts.account().other_stacks = Ok(vec!["whittle-prod".into()]);
        facts.stack().parameters.insert("Mode".into(), "shadow".into());
        facts.stack().outputs.insert("RelayUrl".into(), "https://shadow.on.aws/".into());
    };
    found(Status::Warning, elsewhere, "mode", "shadow", "Mode=active");
    let mut facts = healthy();
    elsewhere(&mut facts);
    let doorbell = findings(&facts).into_iter().find(|finding| finding.check == "doorbell").unwrap();
    assert!(doorbell.what.contains("for stack whittle-prod"), "{}", doorbell.what);
    facts.account().other_stacks = Ok(Vec::new());
    let doorbell = findings(&facts).into_iter().find(|finding| finding.check == "doorbell").unwrap();
    assert_eq!(doorbell.status, Status::Problem, "a shadow that is alone has one of its own: {}", doorbell.what);
}

#[test]
fn a_nodepool_in_shadow_mode_is_a_warning_and_one_that_is_not_ready_comes_first() {
    let annotate = |facts: &mut Facts, value: &str| {
        facts.inside().pools.as_mut().unwrap()[0]["metadata"]["annotations"] = json!({"whittle.dev/shadow": value});
    };
    let remedy = "kubectl annotate nodepool default whittle.dev/shadow-";
    found(Status::Warning, |facts| annotate(facts, "true"), "NodePools", "in shadow mode: default (annotation", remedy);
    let mut facts = healthy();
    annotate(&mut facts, "false");
    assert!(findings(&facts).iter().all(|finding| finding.status == Status::Ok), "only this value counts");
    let unready = |facts: &mut Facts| {
        annotate(facts, "true");
        facts.inside().pools.as_mut().unwrap()[0]["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "message": "no class"}]);
    };
    found(Status::Problem, unready, "NodePools", "default is not ready", "node class");
}

#[test]
fn shadow_mode_writes_no_conditions_and_goes_by_none_but_karpenters() {
    let mut facts = healthy();
    facts.stack().parameters.insert("Mode".into(), "shadow".into());
    facts.inside().pools.as_mut().unwrap()[0].as_object_mut().unwrap().remove("status");
    facts.inside().classes.as_mut().unwrap()[0]["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    let of = |facts: &Facts| {
        let chosen = findings(facts).into_iter().filter(|finding| ["node classes", "NodePools"].contains(&finding.check));
        chosen.map(|finding| (finding.status, finding.what)).collect::<Vec<_>>()
    };
    let [classes, pools] = of(&facts).try_into().unwrap();
    assert_eq!((classes.0, pools.0), (Status::Ok, Status::Ok));
    assert!(pools.1.starts_with("1 there; shadow mode writes no conditions"), "{}", pools.1);

    // Karpenter's conditions are of now.
    let runs = json!({"kind": "Deployment", "metadata": {"name": "karpenter"}, "status": {"readyReplicas": 1}});
    facts.inside().karpenter = Ok(vec![runs]);
    let [classes, pools] = of(&facts).try_into().unwrap();
    assert_eq!((classes.0, pools.0), (Status::Problem, Status::Problem));

    // None at all is a warning in any mode.
    facts.inside().karpenter = Ok(Vec::new());
    facts.inside().pools = Ok(Vec::new());
    assert_eq!(of(&facts)[1].0, Status::Warning);
}

#[test]
fn an_exhausted_quota_is_a_warning_and_what_has_to_be_changed_comes_first() {
    let event = |reason: &str, at: &str, text: &str| {
        let about = json!({"kind": "NodePool", "name": "default"});
        json!({"reason": reason, "involvedObject": about, "lastTimestamp": at, "message": text})
    };
    let quota = |at: &str| event("QuotaExceeded", at, "the quota of vCPUs is used up");
    let full = |facts: &mut Facts| facts.inside().refusals = Ok(vec![quota("2026-01-01T11:50:00Z")]);
    found(Status::Warning, full, "launches", "NodePool default: the quota of vCPUs is used up", "Service Quotas");
    let both = |facts: &mut Facts| {
        let refused = event("LaunchRefused", "2026-01-01T11:10:00Z", "EC2 refused the launch");
        facts.inside().refusals = Ok(vec![quota("2026-01-01T11:50:00Z"), refused]);
    };
    found(Status::Problem, both, "launches", "EC2 refused the launch", "EC2 refuses launches");
    let mut facts = healthy();
    facts.inside().refusals = Ok(vec![quota("2026-01-01T10:50:00Z")]);
    assert!(findings(&facts).iter().all(|finding| finding.status == Status::Ok), "it is past");
}

#[test]
fn what_is_past_or_elsewhere_is_no_fault() {
    let mut facts = healthy();
    let event = json!({"lastTimestamp": "2026-01-01T10:00:00Z", "message": "UnauthorizedOperation"});
    facts.inside().refusals = Ok(vec![event]);
    let lease = |holder: &str, at: &str| json!({"kind": "Lease", "metadata": {}, "spec": {"holderIdentity": holder, "renewTime": at}});
    let stopped = json!({"kind": "Deployment", "metadata": {"name": "karpenter"}, "status": {}});
    facts.inside().karpenter = Ok(vec![lease("a", "2026-01-01T11:57:00Z"), lease("", "2026-01-01T12:00:00Z"), stopped]);
    facts.account().subnets = Ok(Vec::new());
    facts.inside().classes.as_mut().unwrap()[0]["spec"]["subnetSelectorTerms"] = json!([{"id": "subnet-1"}]);
    let bad: Vec<Finding> = findings(&facts).into_iter().filter(|finding| finding.status != Status::Ok).collect();
    assert_eq!(bad, []);
}

#[test]
fn what_cannot_be_read_is_unknown_with_the_reason() {
    let mut facts = healthy();
    facts.running().queues = Err("AccessDenied: sqs:GetQueueAttributes".into());
    facts.account().has_spot_role = Err("AccessDenied: iam:GetRole".into());
    facts.inside = Err("the server cannot be reached".into());
    let bad: Vec<Finding> = findings(&facts).into_iter().filter(|finding| finding.status != Status::Ok).collect();
    let told: Vec<_> = bad.iter().map(|finding| (finding.check, finding.what.as_str())).collect();
    let expected = [
        ("dead letters", "AccessDenied: sqs:GetQueueAttributes"),
        ("spot role", "AccessDenied: iam:GetRole"),
        ("inside the cluster", "the server cannot be reached"),
    ];
    assert_eq!(told, expected);
    assert!(bad.iter().all(|finding| finding.status == Status::Unknown && !finding.remedy.is_empty()));
}

#[test]
fn findings_for_programs_are_as_the_schema_says() {
    let mut facts = healthy();
    facts.running().queues = Err("AccessDenied: sqs:GetQueueAttributes".into());
    let cli = Cli::try_parse_from(["whittle", "doctor", "shop", "-o", "json"]).unwrap();
    let Command::Doctor(args) = cli.command else { panic!("another command") };
    let mut out = Vec::new();
    print(&args, &findings(&facts), &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    assert_valid(Document::Doctor, &document);
    assert_eq!((&document["cluster"], &document["summary"]["unknown"]), (&json!("shop"), &json!(1)));
}

#[test]
fn the_template_says_the_version_of_this_command() {
    let template = include_str!("../../../../template.yaml");
    let outputs = template.split("\nOutputs:\n").nth(1).unwrap();
    let value = outputs.split("  Version:\n").nth(1).and_then(|rest| rest.lines().find_map(|line| line.trim().strip_prefix("Value: ")));
    assert_eq!(value, Some(env!("CARGO_PKG_VERSION")), "template.yaml, output Version");
}
