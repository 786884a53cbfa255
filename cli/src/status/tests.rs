use super::*;
use crate::live::deployment::Stack;
use crate::money::Currency;
use crate::programs::Program;
use crate::schema::Document;
use crate::schema::tests::assert_valid;
use crate::source::PriceList;

const NOW: &str = "2026-01-02T00:00:00Z";

const CLUSTER: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {}, status: {conditions: [{type: Ready, status: "False", reason: KubeletNotReady}]}}
---
{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: default-2, creationTimestamp: "2026-01-01T00:00:00Z"},
  spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []},
  status: {conditions: [{type: Launched, status: Unknown}]}}
---
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default},
  spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}},
  status: {conditions: [{type: Ready, status: "False", reason: NodeClassNotFound, message: "no EC2NodeClass default"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, creationTimestamp: "2026-01-01T23:00:00Z"}, spec: {containers: [{name: c}]},
  status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/1\e[2J nodes"}]}}
"#;

fn status_of(text: &str, deployed: Option<Deployed>) -> Status {
    let now = NOW.parse().unwrap();
    let read = source::read_text("cluster.yaml", text).unwrap();
    let view = View::of(&read, &PriceList::default(), Currency::default());
    let attention = attention::of(&read, &view, deployed.as_ref(), &ClusterArgs::default(), now);
    let decisions = deployed.as_ref().map(|deployed| deployed.decisions.clone()).unwrap_or_default();
    Status { now, view, deployed, decisions, attention }
}

#[test]
fn what_does_not_get_on_needs_a_person_and_says_what_to_do() {
    let status = status_of(CLUSTER, None);
    let expected = [
        "NodePool default is not ready (no EC2NodeClass default): `kubectl describe nodepool` and its EC2NodeClass say more",
        "1 pod waited for more than 10 minutes: `whittle explain default/web --context` says why",
        "1 machine did not join for more than 15 minutes: default-2; `kubectl describe nodeclaim` says how far they are",
        "1 node is not ready: a; `kubectl describe node` says why",
    ];
    assert_eq!(status.attention, expected);
    let text = output::text(&status, false);
    assert!(text.contains("nodes: 1 launching, 1 not ready\n  1 pod waits\n    1 of Pod default/web: 0/1 [2J nodes"), "{text}");
    assert!(text.contains("4 things need attention") && !text.contains('\u{1b}'), "{text:?}");
    let json = output::json(&status);
    assert_eq!(json["cluster"]["states"]["launching"], 1);
    assert_eq!(json["attention"].as_array().unwrap().len(), 4);
    assert!(json["deployment"].is_null());
    assert_valid(Document::Status, &json);
}

/// A node that joined an hour before midnight, with the condition Initialized of its NodeClaim.
fn joined(name: &str, initialized: &str) -> String {
    let node = r#"
---
{apiVersion: v1, kind: Node, metadata: {name: NAME, labels: {}, creationTimestamp: "2026-01-01T23:00:00Z"},
  spec: {providerID: "aws:///a/i-NAME"}, status: {conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: c-NAME, creationTimestamp: "2026-01-01T23:00:00Z"},
  spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []},
  status: {providerID: "aws:///a/i-NAME", nodeName: NAME, conditions: [INITIALIZED,
    {type: Registered, status: "True", lastTransitionTime: "2026-01-01T23:00:30Z"}]}}
"#;
    node.replace("NAME", name).replace("INITIALIZED", initialized)
}

/// That condition of a node that lacks something.
fn lacking(reason: &str, message: &str) -> String {
    format!("{{type: Initialized, status: Unknown, reason: {reason}, message: {message:?}}}")
}

#[test]
fn nodes_that_are_never_initialized_say_what_they_lack_since_when_and_what_helps() {
    let gpu = lacking("ResourceNotRegistered", "Resource \"nvidia.com/gpu\" was requested but not registered");
    let taint = lacking("StartupTaintsExist", "StartupTaint cni still exists");
    let attention = status_of(&(joined("a", &gpu) + &joined("b", &gpu) + &joined("c", &taint)), None).attention;
    assert_eq!(attention.len(), 2, "{attention:?}");
    for part in ["2 nodes have", "since 2026-01-01T23:00:30Z", "(Resource \"nvidia.com/gpu\" was requested", "a, b; ", "device plugin"] {
        assert!(attention[0].contains(part), "{part}: {attention:?}");
    }
    for part in ["1 node has", "(StartupTaint cni still exists)", ": c; ", "spec.template.spec.taints"] {
        assert!(attention[1].contains(part), "{part}: {attention:?}");
    }
    assert!(!attention.iter().any(|line| line.contains("did not join")), "they did");
}

#[test]
fn nodes_that_are_never_registered_are_not_told_to_lack_what_initializes_them() {
    let waits = lacking("AwaitingReconciliation", "");
    let not_registered = |name: &str, reason: &str, message: &str| {
        let condition = format!("{{type: Registered, status: Unknown, reason: {reason}, message: {message:?}, ");
        joined(name, &waits).replace("{type: Registered, status: \"True\", ", &condition)
    };
    let world = [
        not_registered("a", "NodeRefused", "no labels here"),
        not_registered("b", "NodeRefused", "no labels here"),
        not_registered("c", "MultipleNodesFound", "several Nodes"),
        not_registered("d", "NodeRefused", "no labels here").replace("T23:00", "T23:50"),
        joined("e", &lacking("NodeNotReady", "Node status is NotReady")),
    ];
    let attention = status_of(&world.concat(), None).attention;
    assert_eq!(attention.len(), 3, "{attention:?}");
    let line = |start: &str| attention.iter().find(|line| line.contains(start)).unwrap();
    for part in ["2 nodes have", "since 2026-01-01T23:00:00Z", ": a, b; until then pods stay away", "webhook or policy that refuses"] {
        assert!(line("not been registered since 2026-01-01T23:00:00Z (no labels here)").contains(part), "{part}: {attention:?}");
    }
    assert!(line("not been registered since 2026-01-01T23:00:00Z (several Nodes)").ends_with("`kubectl delete node`"), "{attention:?}");
    assert!(line("1 node has joined and not been initialized").contains(": e; until then they are neither"), "{attention:?}");
}

#[test]
fn machines_that_are_to_go_and_stay_need_a_person() {
    let serving =
        joined("a", "{type: Initialized, status: \"True\"}").replace("labels: {}", "labels: {karpenter.sh/initialized: \"true\"}");
    let deleted = |name: &str, more: &str| {
        let metadata = format!("name: c-{name}, {more}, creationTimestamp");
        serving
            .replace("name: c-a, creationTimestamp", &metadata)
            .replace("name: a,", &format!("name: {name},"))
            .replace("nodeName: a,", &format!("nodeName: {name},"))
            .replace("i-a", &format!("i-{name}"))
    };
    let told = |text: &str| status_of(text, None).attention;
    let by = |deadline: &str| {
        format!(
            "annotations: {{karpenter.sh/nodeclaim-termination-timestamp: \"{deadline}\"}}, deletionTimestamp: \"2026-01-01T12:00:00Z\""
        )
    };
    let long = deleted("b", "deletionTimestamp: \"2026-01-01T22:59:59Z\"");
    let overdue = deleted("c", &by("2026-01-01T23:49:59Z"));
    let expected = "2 machines are to go, and are still there after an hour or past the deadline: b, c; the Events of `kubectl describe \
                    node` and `kubectl describe nodeclaim` say what keeps pods or machine";
    assert_eq!(told(&format!("{serving}{long}{overdue}")), [expected]);
    let short = deleted("b", "deletionTimestamp: \"2026-01-01T23:00:01Z\"");
    let in_time = deleted("c", &by("2026-01-01T23:50:01Z"));
    assert_eq!(told(&format!("{serving}{short}{in_time}")), Vec::<String>::new());
}

#[test]
fn nodes_that_start_or_serve_need_nobody() {
    let young = joined("a", &lacking("NodeNotReady", "Node status is NotReady")).replace("T23:00", "T23:50");
    let label = "labels: {karpenter.sh/initialized: \"true\"}";
    let serving = joined("b", "{type: Initialized, status: \"True\"}").replace("labels: {}", label);
    assert_eq!(status_of(&(young + &serving), None).attention, Vec::<String>::new());
}

#[test]
fn a_command_that_is_suggested_is_about_the_same_cluster() {
    let suggested = |context: Option<&str>, kubeconfig: Option<&str>| {
        let read = source::read_text("cluster.yaml", CLUSTER).unwrap();
        let view = View::of(&read, &PriceList::default(), Currency::default());
        let cluster = ClusterArgs { context: context.map(str::to_owned), kubeconfig: kubeconfig.map(Into::into) };
        let attention = attention::of(&read, &view, None, &cluster, NOW.parse().unwrap());
        attention.iter().find_map(|line| Some(line.split_once("`whittle explain default/web ")?.1.split_once('`')?.0.to_owned())).unwrap()
    };
    assert_eq!(suggested(None, None), "--context");
    assert_eq!(suggested(Some(""), None), "--context", "the current one");
    assert_eq!(suggested(Some("prod"), None), "--context prod");
    assert_eq!(suggested(Some("my prod"), Some("/tmp/a b")), "--context 'my prod' --kubeconfig '/tmp/a b'");
    assert_eq!(suggested(None, Some("/tmp/a")), "--context --kubeconfig /tmp/a");
}

#[test]
fn a_deployment_is_part_of_the_document() {
    let parameters = [("Clusters", "shop, dev"), ("Mode", "shadow")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let (name, status) = ("whittle".to_owned(), "UPDATE_FAILED".to_owned());
    let stack = Stack { name, status, region: "eu-west-1".into(), parameters: parameters.into(), ..Stack::default() };
    let alarm = Alarm { name: "Dead".into(), description: "messages were given up".into(), since: NOW.into() };
    let decided = Decided { at: NOW.parse().unwrap(), about: "node/a".into(), message: "kept: a budget".into() };
    let deployment = Deployment::new(Program::aws(None, None), stack);
    let status = status_of(CLUSTER, Some(Deployed { deployment, alarms: vec![alarm], decisions: vec![decided], misses: None }));
    assert_eq!(status.attention[0], "alarm Dead: messages were given up (docs/runbooks.md)");
    assert!(status.attention[1].starts_with("stack whittle is UPDATE_FAILED: correct what failed"), "{:?}", status.attention);
    assert!(status.attention[1].contains("rollback-stack --stack-name whittle --region eu-west-1"), "{:?}", status.attention);
    assert!(!status.attention.iter().any(|one| one.contains("NodePool")), "its conditions are of before: {:?}", status.attention);
    let json = output::json(&status);
    assert_valid(Document::Status, &json);
    let expected = serde_json::json!({
        "stack": "whittle", "status": "UPDATE_FAILED", "mode": "shadow", "clusters": ["shop", "dev"],
        "alarms": [{"name": "Dead", "description": "messages were given up", "since": NOW}],
    });
    assert_eq!(json["deployment"], expected);
}

#[test]
fn a_nodepool_in_shadow_mode_needs_attention_unless_all_is_a_shadow() {
    let pool = |name: &str, group: &str, annotation: &str| {
        format!(
            "---\n{{apiVersion: karpenter.sh/v1, kind: NodePool,\n  \
             metadata: {{name: {name}, annotations: {{whittle.dev/shadow: \"{annotation}\"}}}},\n  \
             spec: {{template: {{spec: {{nodeClassRef: {{group: {group}, kind: EC2NodeClass, name: default}}, requirements: []}}}}}}}}\n"
        )
    };
    let ours = "karpenter.k8s.aws";
    let text = pool("a", ours, "true") + &pool("b", ours, "false") + &pool("c", ours, "true") + &pool("d", "eks.amazonaws.com", "true");
    let expected = "2 NodePools with the annotation whittle.dev/shadow: a, c; disruptions of their nodes are recorded and not carried out \
                    until `kubectl annotate nodepool a whittle.dev/shadow-`";
    assert_eq!(status_of(&text, None).attention, [expected]);
    let stack = |mode: &str| {
        let parameters = [("Mode".to_owned(), mode.to_owned())].into();
        let stack = Stack { status: "UPDATE_COMPLETE".into(), parameters, ..Stack::default() };
        Deployed { deployment: Deployment::new(Program::aws(None, None), stack), alarms: Vec::new(), decisions: Vec::new(), misses: None }
    };
    assert_eq!(status_of(&text, Some(stack("active"))).attention, [expected]);
    assert_eq!(status_of(&text, Some(stack("shadow"))).attention, Vec::<String>::new());
}

#[test]
fn a_deployment_that_does_not_serve_the_cluster_is_told() {
    let quiet = CLUSTER.split("---").next().unwrap().replace("\"False\"", "\"True\"");
    let told = |misses: Option<&str>| {
        let parameters = [("Clusters".to_owned(), "shop, dev".to_owned())].into();
        let stack = Stack { name: "whittle".into(), status: "UPDATE_COMPLETE".into(), parameters, ..Stack::default() };
        let deployment = Deployment::new(Program::aws(None, None), stack);
        let deployed = Deployed { deployment, alarms: Vec::new(), decisions: Vec::new(), misses: misses.map(str::to_owned) };
        status_of(&quiet, Some(deployed)).attention
    };
    assert_eq!(told(None), Vec::<String>::new());
    let begins = "stack whittle does not serve cluster prod, which the context is for: alarms and decisions are of shop, dev; ";
    let found = told(Some("prod"));
    assert!(found.len() == 1 && found[0].starts_with(begins), "{found:?}");
}

#[test]
fn a_quiet_cluster_needs_nobody() {
    let quiet = CLUSTER.split("---").next().unwrap().replace("\"False\"", "\"True\"");
    let status = status_of(&quiet, None);
    assert_eq!(status.attention, Vec::<String>::new());
    assert!(output::text(&status, false).ends_with("nothing needs attention\n"));
}

#[test]
fn an_event_is_a_decision_about_its_object() {
    let event = serde_json::json!({
        "lastTimestamp": "2026-01-01T00:00:00Z", "reason": "Nominated", "message": "Pod should schedule on: a",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"}, "metadata": {"namespace": "default"},
    });
    let found = decided(&event).unwrap();
    assert_eq!((&*found.about, &*found.message), ("pod/default/web", "Nominated: Pod should schedule on: a"));
    let about_a_node = serde_json::json!({"eventTime": NOW, "involvedObject": {"kind": "Node", "name": "a", "namespace": "default"}});
    assert_eq!(decided(&about_a_node).unwrap().about, "node/a");
    assert!(decided(&serde_json::json!({"reason": "Nominated"})).is_none(), "without a time");
}
