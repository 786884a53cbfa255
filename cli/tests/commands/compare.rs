//! `whittle compare`: what is paid today, and what Whittle would pay for the same pods.

use crate::{err, out, tests, whittle};
use serde_json::Value;

const POOL: &str = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: general}\nspec: {template: {spec: {\
    nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, \
    requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}, \
    {key: node.kubernetes.io/instance-type, operator: In, values: [c5.2xlarge]}]}}}\n";

/// A node of a node group.
fn node(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{topology.kubernetes.io/region: us-east-1, \
         topology.kubernetes.io/zone: us-east-1a, {labels}}}}}\nspec: {{providerID: 'aws:///us-east-1a/i-{name}'}}\n\
         status: {{allocatable: {{cpu: 7910m, memory: 14Gi, pods: '58'}}}}\n"
    )
}

const GROUP: &str = "node.kubernetes.io/instance-type: c5.2xlarge, eks.amazonaws.com/nodegroup: workers";

fn pod(name: &str, node: &str, cpu: &str, more: &str) -> String {
    let node = if node.is_empty() { String::new() } else { format!("nodeName: {node}, ") };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{more}}}\nspec: {{{node}containers: \
         [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\n"
    )
}

/// Four nodes with one small pod each.
fn idle() -> Vec<String> {
    let names = ["a", "b", "c", "d"];
    let nodes = names.iter().map(|name| node(name, GROUP));
    nodes.chain(names.iter().map(|name| pod(&format!("on-{name}"), name, "500m", ""))).chain([POOL.to_owned()]).collect()
}

#[track_caller]
fn compare(documents: &[String], format: &str, code: i32) -> (String, String) {
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let compared = whittle(&["compare", "-f", "-", "--instance-types", &catalog, "-o", format], &documents.join("---\n"));
    assert_eq!(compared.status.code(), Some(code), "{}{}", out(&compared), err(&compared));
    (out(&compared), err(&compared))
}

#[track_caller]
fn json(documents: &[String]) -> Value {
    serde_json::from_str(&compare(documents, "json", 0).0).unwrap()
}

#[test]
fn idle_nodes_of_a_group_become_one() {
    let (text, _) = compare(&idle(), "text", 0);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("You pay $1.3600/h for 4 nodes; Whittle would pay $0.3400/h (-75 %) for 1 node, "), "{first}");
    assert!(first.ends_with("which is -$744.60 a month."), "{first}");
    assert!(text.contains("Because of 4 running pods planned afresh:\n  requests fill 6 % of the CPU"), "{text}");
    let value = json(&idle());
    let rows = |key: &str| value[key].as_array().unwrap().clone();
    assert_eq!((&value["total"]["now"]["nodes"], &value["total"]["now"]["price"]), (&4.into(), &1.36.into()));
    let pools: Vec<_> =
        rows("byNodePool").iter().map(|row| (row["nodePool"].clone(), row["now"]["nodes"].clone(), row["then"]["nodes"].clone())).collect();
    assert_eq!(pools, [("general".into(), 0.into(), 1.into()), ("node group workers".into(), 4.into(), 0.into())]);
    let then: f64 = rows("byInstanceType").iter().map(|row| row["then"]["price"].as_f64().unwrap()).sum();
    assert_eq!(Some(then), value["total"]["then"]["price"].as_f64());
    assert_eq!(value["kept"], Value::Array(Vec::new()));
}

/// What the text has, a report has too: above all what the sum does not count.
#[test]
fn a_report_says_what_the_text_says() {
    let mut documents = idle();
    documents.push(node("odd", "node.kubernetes.io/instance-type: x9.huge"));
    let text = compare(&documents, "text", 0).0;
    let report = compare(&documents, "markdown", 0).0;
    let sum = text.lines().next().unwrap();
    assert!(report.starts_with(&format!("# Comparison\n\n{sum}\n")), "{report}");
    for part in [
        "\nBecause of 4 running pods planned afresh:\n",
        "\n| NodePool | Nodes now | Then | Cost now | Then | A month |\n| --- | --- | --- | --- | --- | --- |\n",
        "\n| general | 0 | 1 | - | $0.3400/h | +$248.20 |\n",
        "\n| c5.2xlarge | on-demand | 4 | 1 | $1.3600/h | $0.3400/h | -$744.60 |\n",
        "\n| 1 | odd | its price is not known, so it counts on neither side |\n",
        "\n## Not known, or not counted\n",
        "\nprices are those of the list: ",
    ] {
        assert!(report.contains(part), "{part:?} is missing: {report}");
    }
    let page = compare(&documents, "html", 0).0;
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<h1>Comparison</h1>"), "{page}");
    assert!(page.contains("Not known, or not counted") && page.contains("prices are those of the list: "), "{page}");
    // Nothing to compare is no report that says so.
    assert_eq!(compare(&[POOL.to_owned()], "markdown", 2).0, "");
}

#[test]
fn what_may_not_move_keeps_its_node() {
    let mut documents = idle();
    documents.push(node("own", &GROUP.replace("nodegroup: workers", "nodegroup: workers, team: data")));
    documents.push(pod("bound", "own", "1", "").replace("spec: {", "spec: {nodeSelector: {team: data}, "));
    documents.push(node("fargate", "eks.amazonaws.com/compute-type: fargate"));
    documents.push(node("odd", "node.kubernetes.io/instance-type: x9.huge"));
    let value = json(&documents);
    let kept: Vec<&str> = value["kept"].as_array().unwrap().iter().map(|kept| kept["node"].as_str().unwrap()).collect();
    assert_eq!(kept, ["fargate", "odd", "own"]);
    // The node of the pod that no pool takes has room for the others; what Fargate and a node without a price have is not counted.
    assert_eq!((&value["total"]["now"]["price"], &value["total"]["then"]["price"]), (&1.7.into(), &0.34.into()));
    assert_eq!((&value["total"]["now"]["nodes"], &value["total"]["then"]["nodes"]), (&7.into(), &3.into()));

    documents.retain(|document| !document.contains("team: data"));
    let value = json(&documents);
    assert_eq!(value["total"]["then"]["nodes"], 3, "free room without a price is no room: {value:#}");
}

#[test]
fn daemons_and_waiting_pods_are_not_planned_and_said_so() {
    let owner = ", ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, controller: true}]";
    let mut documents = idle();
    documents.push(pod("agent-a", "a", "3", owner));
    documents.push(pod("waits", "", "7", ""));
    let (text, _) = compare(&documents, "text", 0);
    for line in
        ["1 pending pod left out on both sides", "DaemonSets that are not among the objects: agent", "there is no PodDisruptionBudget"]
    {
        assert!(text.contains(line), "{text}");
    }
    let images = "some new nodes are amd64, as no node is today: unless all images are built for it";
    assert!(text.contains(images), "the label of the nodes is missing: {text}");
    let value = json(&documents);
    assert_eq!((&value["podsPlanned"], &value["total"]["then"]["nodes"]), (&4.into(), &1.into()));
}

#[test]
fn without_nodes_or_pools_there_is_nothing_to_compare() {
    assert!(compare(&[POOL.to_owned()], "text", 2).1.contains("there are no nodes, so nothing is paid today"));
    assert!(compare(&idle()[..8], "text", 2).1.contains("there is no NodePool, so nothing could be bought"));
}

#[test]
fn without_the_pods_of_the_nodes_nothing_is_promised() {
    let wanted = "no pod that runs on these nodes is among the objects, so that any saving would be all they cost: add the pods";
    let without: Vec<String> = idle().into_iter().filter(|document| !document.contains("kind: Pod\n")).collect();
    let waiting = [without.clone(), vec![pod("waits", "", "1", "")]].concat();
    for documents in [without, waiting] {
        for format in ["text", "json"] {
            let (printed, told) = compare(&documents, format, 2);
            assert!(printed.is_empty() && told.contains(wanted), "{printed}{told}");
        }
    }
}

#[test]
fn pods_of_a_change_are_planned_and_those_of_unknown_nodes_are_not() {
    let owner = ", labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5c9, uid: u, controller: true}]";
    let web = |replicas: u32, cpu: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec: {{replicas: {replicas}, selector: {{matchLabels: {{app: web}}}}, \
             template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}\n"
        )
    };
    let set = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-5c9, uid: u, labels: {app: web}, ownerReferences: [\
               {apiVersion: apps/v1, kind: Deployment, name: web, uid: d, controller: true}]}\nspec: {replicas: 1, selector: {matchLabels: {app: web}}, \
               template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}\n";
    let mut documents = idle();
    documents.extend([web(1, "1").replace("name: web}", "name: web, uid: d}"), set.to_owned(), pod("web-5c9-x", "a", "1", owner)]);
    let before = json(&documents);
    assert_eq!((&before["total"]["then"]["nodes"], &before["podsPlanned"]), (&1.into(), &5.into()));
    let file = std::env::temp_dir().join(format!("whittle-compare-{}.yaml", std::process::id()));
    std::fs::write(&file, web(3, "5")).unwrap();
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let changed =
        whittle(&["compare", "-f", "-", "--changed", &file.display().to_string(), "--instance-types", &catalog], &documents.join("---\n"));
    std::fs::remove_file(&file).unwrap();
    let text = out(&changed);
    assert!(text.contains("Because of 4 running pods and 3 pods of the change planned afresh"), "{text}{}", err(&changed));
    assert!(text.starts_with("You pay $1.3600/h for 4 nodes; Whittle would pay $1.0200/h (-25 %) for 3 nodes"), "{text}");
    assert!(!text.contains("left out on both sides"), "{text}");

    let mut odd = idle();
    odd.push("apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\n".to_owned());
    let findings = json(&odd)["findings"].clone();
    let is_told = |finding: &Value| finding["level"] == "note" && finding["message"] == "skipped example.com/v1 Gadget g";
    assert!(findings.as_array().unwrap().iter().any(is_told), "{findings}");

    let mut ghost = idle();
    ghost.push(pod("elsewhere", "ghost", "7", ""));
    let value = json(&ghost);
    assert_eq!((&value["total"]["then"]["nodes"], &value["podsPlanned"]), (&1.into(), &4.into()), "its node is on neither side");
}
