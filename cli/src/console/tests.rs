use super::changes::Known;
use super::looks::left_out;
use super::state::{Place, state_of};
use crate::look::view::View;
use crate::source::{self, Manifests, Market, Offers};
use crate::status::Decided;
use serde_json::{Value, json};

const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A node of a pool with the NodeClaim `default-1`, a NodeClaim without a machine, a node of nobody's.
fn cluster(state_of_a: &str) -> Manifests {
    let text = format!(
        r#"
{{apiVersion: v1, kind: Node, metadata: {{name: a, labels: {{
  topology.kubernetes.io/region: eu-west-1, topology.kubernetes.io/zone: eu-west-1a,
  node.kubernetes.io/instance-type: m5.large, karpenter.sh/capacity-type: on-demand, karpenter.sh/nodepool: default,
  karpenter.sh/initialized: "true"}}}}, spec: {{providerID: "aws:///eu-west-1a/i-1", {state_of_a}}},
  status: {{allocatable: {{cpu: 2, memory: 8Gi, pods: 10}}, conditions: [{{type: Ready, status: "True"}}]}}}}
---
{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: default-1}},
  spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, requirements: []}},
  status: {{providerID: "aws:///eu-west-1a/i-1", nodeName: a}}}}
---
{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: default-2, labels: {{karpenter.sh/nodepool: default}}}},
  spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, requirements: []}}}}
---
{{apiVersion: v1, kind: Node, metadata: {{name: b}}, spec: {{unschedulable: true}}, status: {{allocatable: {{cpu: 4}},
  conditions: [{{type: Ready, status: "True"}}]}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: one}}, spec: {{nodeName: a, containers: [{{name: c, resources: {{requests: {{cpu: 1500m}}}}}}]}},
  status: {{phase: Running}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: done}}, spec: {{nodeName: a, containers: [{{name: c}}]}}, status: {{phase: Succeeded}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: waits}}, spec: {{containers: [{{name: c}}]}}, status: {{phase: Pending}}}}
"#
    );
    source::read_text("cluster.yaml", &text).unwrap()
}

fn view(read: &Manifests) -> View {
    let Market { prices, currency, .. } = Offers::default().prices(read, || None).unwrap();
    View::of(read, &prices, currency)
}

fn shown(read: &Manifests, decided: &[Decided]) -> Value {
    serde_json::to_value(state_of(&Place::default(), read, &view(read), decided)).unwrap()
}

#[test]
fn machines_are_shown_with_their_claims_states_and_pods() {
    let state = shown(&cluster(""), &[]);
    let nodes = state["nodes"].as_array().unwrap();
    let what = |node: &Value| [&node["name"], &node["claim"], &node["pool"], &node["state"]].map(|text| text.as_str().unwrap().to_owned());
    let all: Vec<_> = nodes.iter().map(what).collect();
    assert_eq!(all, [["b", "", "", "cordoned"], ["a", "default-1", "default", "ready"], ["", "default-2", "default", "launching"]]);
    assert_eq!(nodes[1]["pods"], json!([["default/one", 0, "running"]]), "pods that have ended are on no node");
    assert_eq!((&nodes[1]["cpu"], &nodes[1]["price"]), (&json!([1_500, 2_000]), &json!(96_000_000)));
    assert_eq!(state["region"], "eu-west-1");
    assert_eq!(shown(&cluster("taints: [{key: karpenter.sh/disrupted, effect: NoSchedule}]"), &[])["nodes"][1]["state"], "disrupting");
}

#[test]
fn the_last_answer_about_a_waiting_pod_counts() {
    let decided = |about: &str, message: &str| Decided { at: jiff::Timestamp::UNIX_EPOCH, about: about.into(), message: message.into() };
    let all = [decided("pod/default/waits", "first"), decided("pod/default/waits", HOSTILE), decided("pod/default/one", "other")];
    let state = shown(&cluster(""), &all);
    assert_eq!(state["waiting"].as_array().unwrap().len(), 1);
    assert_eq!((&state["waiting"][0]["pod"], &state["waiting"][0]["answer"]), (&json!("default/waits"), &json!(HOSTILE)));
    assert_eq!(state["workloads"][1]["waiting"], 1);
}

#[test]
fn of_many_objects_that_are_left_out_a_few_are_named() {
    let refused: Vec<String> = (0..10_000).map(|number| format!("p{number}: {}", "x".repeat(number))).collect();
    assert_eq!(left_out(&[]), None);
    assert_eq!(left_out(&refused[..2]).as_deref(), Some("objects are left out: p0: ; p1: x"));
    assert!(left_out(&refused[..5]).is_some_and(|text| text.ends_with("; p4: xxxx")));
    let text = left_out(&refused[9_000..]).unwrap();
    assert!(text.contains("p9004: xxx") && text.ends_with("; and 995 more: whittle top names them") && text.len() < 10_000, "{text}");
}

#[test]
fn what_changed_between_two_looks_is_told_once() {
    let mut known = Known::default();
    let first = view(&cluster(""));
    assert_eq!(known.changes(&first), ["the cluster was looked at first: 3 nodes with 1 pod, and 1 waiting"]);
    assert_eq!(known.changes(&first), Vec::<String>::new());
    let mut less = cluster("unschedulable: true");
    less.objects.nodes.retain(|node| node.metadata.name == "a");
    let expected = ["a (m5.large, on-demand, eu-west-1a): ready, now cordoned", "b: gone, was cordoned"];
    assert_eq!(known.changes(&view(&less)), expected);
    let mut none = less.clone();
    none.objects.nodes.clear();
    none.objects.node_claims.clear();
    known.changes(&view(&none));
    let mut many = cluster("");
    let node = many.objects.nodes[0].clone();
    for number in 0..50 {
        let mut another = node.clone();
        another.metadata.name = format!("node-{number}");
        another.spec.provider_id = format!("aws:///eu-west-1a/i-{number}0");
        many.objects.nodes.push(another);
    }
    let lines = known.changes(&view(&many));
    assert_eq!((lines.len(), lines.last().map(String::as_str)), (21, Some("33 more are new")));
}
