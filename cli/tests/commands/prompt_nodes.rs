//! The prompt of `whittle local`: nodes that are closed, classes that change, and what `explain` says of what went.

use crate::{err, out, seed, whittle};
use serde_json::Value;

/// Output of commands at the prompt of seed 003's cluster; all of them are accepted.
#[track_caller]
fn session(commands: &str) -> String {
    let ended = whittle(&["local", "--cluster", "karpenter-demo", "--kubernetes-version", "1.28"], commands);
    assert!(ended.status.success(), "{}{}", out(&ended), err(&ended));
    out(&ended)
}

/// A Deployment of one container per pod.
fn deployment(name: &str, replicas: u32, cpu: &str, more: &str) -> String {
    format!(
        "apply -f -\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec: {{replicas: {replicas}, selector: {{matchLabels: \
         {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{{more}containers: [{{name: c, image: i, resources: \
         {{requests: {{cpu: {cpu}}}}}}}]}}}}}}\nEOF\n"
    )
}

/// The last JSON document of some output, from the line that only opens it.
fn last_json(text: &str) -> Value {
    let at = text.rfind("\n{\n").unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(&text[at..]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// S2.10: a node that its group drains takes no pods, and none are planned onto it.
#[test]
fn s2_10_no_pod_is_planned_onto_a_cordoned_node() {
    let groups = |size: usize| {
        let file = std::fs::read_to_string(seed("002-state-eksctl-cluster.yaml")).unwrap();
        file.replace("desiredCapacity: 3", &format!("desiredCapacity: {size}"))
    };
    assert_ne!(groups(2), groups(3), "the seed has a group of three");
    // Its budget keeps the node from being drained.
    let budget = "apply -f -\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\n\
                  spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}\nEOF\n";
    let web = deployment("web", 3, "1200m", "");
    let text = whittle(
        &["local", "--cluster", "prd-eks", "--region", "ap-southeast-1", "--kubernetes-version", "1.26"],
        &format!(
            "apply -f -\n{}EOF\n{web}{budget}advance 30s\napply -f {}\napply -f -\n{}EOF\nadvance 5m\n{}advance 10m\nget no -o json\nget po -o wide\n",
            groups(3),
            seed("002-provisioner-default.yaml"),
            groups(2),
            deployment("late", 1, "100m", ""),
        ),
    );
    let text = out(&text);
    let (before, pods) = text.rsplit_once("\n}\n").unwrap_or_else(|| panic!("{text}"));
    assert!(pods.lines().any(|line| line.starts_with("late-") && line.contains("Running")), "{pods}");
    let nodes = last_json(&format!("{before}\n}}\n"));
    let closed: Vec<&Value> = nodes["items"].as_array().unwrap().iter().filter(|node| node["spec"]["unschedulable"] == true).collect();
    assert_eq!(closed.len(), 1, "{text}");
    assert_eq!(closed[0]["spec"]["taints"][0]["key"], "node.kubernetes.io/unschedulable");
    let name = closed[0]["metadata"]["name"].as_str().unwrap();
    assert_eq!(pods.lines().filter(|line| line.contains(name)).count(), 1, "nothing is evicted, and nothing comes: {pods}");
}

/// S3.4: the kubelet block of the pool decides what pods can use of the Node, as it does on the NodeClaim.
#[test]
fn s3_4_a_node_has_what_its_nodeclaim_says() {
    let commands = format!(
        "apply -f {} -f {}\n{}advance 10m\nget nodeclaims -o json\n",
        seed("003-ec2nodeclass-v1beta1.yaml"),
        seed("003-nodepool-v1beta1.yaml"),
        deployment("mem", 1, "100m, memory: 6700Mi", "nodeSelector: {node.kubernetes.io/instance-type: c6g.xlarge}, ")
    );
    let claims = session(&commands);
    let nodes = session(&commands.replace("get nodeclaims -o json", "get nodes -o json\nget po"));
    let (document, pods) = nodes.rsplit_once("\n}\n").unwrap();
    assert!(pods.contains("Running"), "{pods}");
    let (claims, nodes) = (last_json(&claims), last_json(&format!("{document}\n}}\n")));
    let of = |list: &Value| list["items"].as_array().map_or_else(|| vec![list.clone()], Clone::clone);
    let (claims, nodes) = (of(&claims), of(&nodes));
    assert_eq!((claims.len(), nodes.len()), (1, 1));
    for resource in ["cpu", "memory", "pods"] {
        assert_eq!(nodes[0]["status"]["allocatable"][resource], claims[0]["status"]["allocatable"][resource], "{resource}");
    }
    assert_eq!(nodes[0]["status"]["allocatable"]["pods"], "20");
}

/// S3.20: a pool of the new kind waits until its own class was looked up, whatever an AWSNodeTemplate of that name resolved to.
#[test]
fn s3_20_a_pool_takes_nothing_from_the_old_template_of_the_same_name() {
    let start = format!(
        "apply -f {} -f {} -f {}\nadvance 3m\nget no -o name\n",
        seed("001-state-daemonsets.yaml"),
        seed("003-state-alpha.yaml"),
        seed("003-workload-rolling.yaml")
    );
    let text = session(&start);
    let node = text.lines().find_map(|line| line.strip_prefix("node/")).unwrap();
    let text = session(&format!(
        "{start}apply -f {} -f {}\ndelete node {node}\nadvance 10m\nget nodeclaims -o yaml\n",
        seed("003-ec2nodeclass-v1beta1.yaml"),
        seed("003-nodepool-v1beta1.yaml")
    ));
    let (_, after) = text.rsplit_once(&format!("node/{node} deleted\n")).unwrap();
    assert!(!after.contains("Drifted"), "{after}");
    assert!(after.contains("ip-"), "{after}");
}
