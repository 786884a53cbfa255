use super::*;
use crate::schema::tests::assert_valid;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use whittle_api::ClusterObjects;
use whittle_units::{Quantity, Resources};

const CATALOG: &str = r#"[{"name": "small", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2", "memory": "4Gi"},
    "offerings": [{"Price": 0.1, "Requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                                                  {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}]"#;

const CLUSTER: &str = r"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: default-x, labels: {karpenter.sh/nodepool: default, node.kubernetes.io/instance-type: small, karpenter.sh/capacity-type: on-demand, topology.kubernetes.io/zone: a}}
spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}
status: {providerID: 'aws:///a/i-1', capacity: {cpu: '2', memory: 4Gi, pods: '110'}}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {karpenter.sh/nodepool: default, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true', node.kubernetes.io/instance-type: small, karpenter.sh/capacity-type: on-demand, topology.kubernetes.io/zone: a}}
spec: {providerID: 'aws:///a/i-1'}
status: {capacity: {cpu: '2', memory: 4Gi, pods: '110'}}
---
apiVersion: v1
kind: Pod
metadata: {name: runs}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: '1'}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: fits}
spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: fresh}
spec: {containers: [{name: c, resources: {requests: {cpu: 1500m}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/1 nodes are available: 1 Insufficient cpu.'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec: {containers: [{name: c, resources: {requests: {cpu: '65'}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: huge, namespace: other}
spec: {containers: [{name: c, resources: {requests: {cpu: '66'}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec: {containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}
";

/// Manifests and a catalog in files, for as long as it lives.
pub(super) struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        Self::of(name, CLUSTER, CATALOG)
    }

    pub(super) fn of(name: &str, cluster: &str, catalog: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("whittle-explain-{}-{name}-{count}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("cluster.yaml"), cluster).unwrap();
        std::fs::write(dir.join("catalog.json"), catalog).unwrap();
        Self(dir)
    }

    /// With a name of one word, or of kubectl's two.
    pub(super) fn explain(&self, name: &str, output: Format) -> Result<String, ExplainError> {
        let at = |file: &str| Path::new(&self.0).join(file);
        let (name, of_kind) = name.split_once(' ').map_or((name, None), |(kind, name)| (kind, Some(name)));
        render(&ExplainArgs {
            name: name.into(),
            name_of_kind: of_kind.map(str::to_owned),
            namespace: None,
            stack: StackArgs::default(),
            source: Source::of_case(at("cluster.yaml"), at("catalog.json")),
            output,
            packing: PackingArg::Best,
        })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_kind_and_a_name_may_be_two_words_as_for_kubectl() {
    let files = Files::new("words");
    let output = |name: &str| files.explain(name, Format::Text).unwrap();
    for (two, one) in [
        ("pod fits", "pod/fits"),
        ("po default/huge", "pod/default/huge"),
        ("nodes n1", "node/n1"),
        ("NodePool default", "nodepool/default"),
    ] {
        assert_eq!(output(two), output(one), "{two}");
    }
    for two in ["fits huge", "job fits", "pod/fits cluster.yaml"] {
        let (kind, name) = two.split_once(' ').unwrap();
        let error = files.explain(two, Format::Text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{kind:?} is not a kind that `explain` knows, so that {name:?} after it is ")), "{error}");
        assert!(error.ends_with("files are named with -f"), "{error}");
    }
}

#[test]
fn a_pod_is_explained_with_its_node_and_the_reason() {
    let files = Files::new("pods");
    let output = |name: &str| files.explain(name, Format::Text).unwrap();
    assert_eq!(output("fits"), "default/fits goes to the existing node n1\n");
    let fresh = output("pod/fresh");
    assert!(fresh.starts_with("default/fresh needs a new machine\n\nnew machine from nodepool default: small at $0.1"), "{fresh}");
    let huge = output("default/huge");
    assert!(huge.starts_with("not placed: default/huge\n") && huge.contains("has enough resources"), "{huge}");
    assert!(output("other/huge").contains("needs 66"), "{}", output("other/huge"));
    assert!(fresh.ends_with("\n  Kubernetes' scheduler says: 0/1 nodes are available: 1 Insufficient cpu.\n"), "{fresh}");
    assert!(!huge.contains("scheduler says"), "{huge}");
    assert_eq!(output("runs"), "default/runs is not to be placed: it runs on n1, and stays there\n");
    assert!(output("gated").contains("has not marked it unschedulable"));
}

#[test]
fn a_pod_is_explained_as_json() {
    let files = Files::new("json");
    let output = |name: &str| {
        let value = serde_json::from_str::<Value>(&files.explain(name, Format::Json).unwrap()).unwrap();
        assert_valid(Document::Explain, &value);
        value
    };
    let outcome = |name: &str| output(name)["outcome"].as_str().unwrap().to_owned();
    assert_eq!(["fits", "fresh", "other/huge", "runs"].map(outcome), ["existingNode", "newMachine", "unschedulable", "notToBePlaced"]);
    assert_eq!(output("fresh")["nodeClaim"]["instanceTypes"], json!(["small"]));
    assert_eq!(output("fresh")["scheduler"], "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(output("fits").get("scheduler"), None);
    assert_eq!(output("other/huge")["nodePools"][0]["nearest"]["needed"], json!("66"));
    let remedy = &output("other/huge")["remedies"][0];
    assert_eq!(remedy["nodePool"], "default");
    assert!(remedy["remedy"].as_str().unwrap().starts_with("requests of at most 1900m cpu"), "{remedy}");
}

#[test]
fn a_node_is_explained_with_its_pods_and_verdict() {
    let files = Files::new("nodes");
    for name in ["n1", "node/n1"] {
        let text = files.explain(name, Format::Text).unwrap();
        assert!(text.starts_with("n1\n") && text.contains("takes pending pods: default/fits"), "{text}");
        assert!(text.lines().count() >= 3, "{text}");
    }
    let value: Value = serde_json::from_str(&files.explain("nodeclaim/default-x", Format::Json).unwrap()).unwrap();
    assert_valid(Document::Explain, &value);
    assert_eq!((&value["machine"], &value["verdict"]["node"]), (&json!("default-x"), &json!("n1")));
}

#[test]
fn an_empty_node_that_pods_of_a_workload_take_is_said_to_be_kept_for_them() {
    let (nodes, _) = CLUSTER.split_once("---\napiVersion: v1\nkind: Pod\n").unwrap();
    let workload = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {selector: {matchLabels: {app: web}}, template: \
                    {metadata: {labels: {app: web}}, spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}}\n";
    let of = |cluster: &str| Files::of("empty", cluster, CATALOG).explain("n1", Format::Text).unwrap();
    let taken = of(&(nodes.to_owned() + workload));
    assert!(taken.contains("takes pending pods: default/web-1; while they are expected on it, it is kept"), "{taken}");
    let empty = of(nodes);
    assert!(empty.contains("delete: Empty") && !empty.contains("it is kept"), "{empty}");
}

#[test]
fn an_unknown_or_ambiguous_name_is_an_error_with_a_suggestion() {
    let files = Files::new("names");
    let error = |name: &str| files.explain(name, Format::Text).unwrap_err().to_string();
    assert_eq!(error("huge"), "\"huge\" may be any of pod/default/huge, pod/other/huge; write it as here");
    let unknown = "is no pod, node, nodeclaim, nodepool or workload of those that are given";
    assert_eq!(error("absent"), format!("\"absent\" {unknown}; name one of them, or add its file with -f"));
    assert_eq!(
        error("huges"),
        format!("\"huges\" {unknown} (there is pod/default/huge, pod/other/huge); name one of them, or add its file with -f")
    );
    assert_eq!(error("fres"), format!("\"fres\" {unknown} (there is pod/default/fresh); name one of them, or add its file with -f"));
}

#[test]
fn a_machine_may_be_named_by_its_id() {
    let files = Files::new("ids");
    assert_eq!(files.explain("i-1", Format::Text).unwrap(), files.explain("node/n1", Format::Text).unwrap());
    assert!(files.explain("i-11", Format::Text).is_err());
}

/// The cluster with a second node of the same kind, which holds nothing but one small pod.
fn with_an_underutilized_node() -> Files {
    let files = Files::new("moves");
    let pods = CLUSTER.find("apiVersion: v1\nkind: Pod").unwrap();
    let (machines, small) = (&CLUSTER[CLUSTER.find("---").unwrap()..pods], "containers: [{name: c, resources: {requests: {cpu: 100m}}}]}");
    let second = machines.replace("default-x", "default-y").replace("name: n1", "name: n2").replace("i-1", "i-2");
    let pod = |name: &str, node: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: web, controller: true}}]}}\nspec: {{nodeName: {node}, {small}\n---\n"
        )
    };
    let text = CLUSTER[..pods].trim_end().trim_end_matches("---").to_owned()
        + &second
        + &pod("first", "n1")
        + &pod("second", "n2")
        + &pod("third", "n1");
    std::fs::write(files.0.join("cluster.yaml"), text).unwrap();
    files
}

#[test]
fn a_pod_and_its_node_are_explained_alike() {
    let files = with_an_underutilized_node();
    let node = files.explain("n2", Format::Text).unwrap();
    assert!(node.contains("delete") && node.contains("moves to n1: default/second"), "{node}");
    assert_eq!(files.explain("nodeclaim/default-y", Format::Text).unwrap().replace("default-y\n", "n2\n"), node);
    let pod = files.explain("second", Format::Text).unwrap();
    assert_eq!(pod, "default/second is not to be placed: it runs on n2, which is to be removed (Underutilized), and it moves to n1\n");
    assert!(files.explain("first", Format::Text).unwrap().contains("it runs on n1, and stays there"));
    let value: Value = serde_json::from_str(&files.explain("second", Format::Json).unwrap()).unwrap();
    assert_valid(Document::Explain, &value);
    assert_eq!((&value["outcome"], &value["move"]["to"]["node"]), (&json!("notToBePlaced"), &json!("n1")));
}

#[test]
fn a_machine_goes_once_what_it_takes_is_done() {
    let kept = |change: &dyn Fn(String) -> String, remedy: &str| {
        let files = with_an_underutilized_node();
        let path = files.0.join("cluster.yaml");
        std::fs::write(&path, change(std::fs::read_to_string(&path).unwrap())).unwrap();
        let node = files.explain("n2", Format::Text).unwrap();
        assert!(node.contains("\n  kept: ") && node.contains(&format!("\n  what it would take: {remedy}")), "{node}");
        let value: Value = serde_json::from_str(&files.explain("n2", Format::Json).unwrap()).unwrap();
        assert_valid(Document::Explain, &value);
        assert!(value["remedy"].as_str().unwrap().starts_with(remedy), "{value}");
    };
    // Without the changes, it goes.
    let node = with_an_underutilized_node().explain("n2", Format::Text).unwrap();
    assert!(node.contains("delete") && !node.contains("what it would take"), "{node}");
    let disruption = |fields: &str| {
        let fields = fields.to_owned();
        move |text: String| text.replacen("  template:\n", &format!("  disruption: {{{fields}}}\n  template:\n"), 1)
    };
    kept(&disruption("consolidateAfter: Never"), "a time such as 1m as spec.disruption.consolidateAfter of NodePool default");
    kept(
        &disruption("consolidationPolicy: WhenEmpty, consolidateAfter: 0s"),
        "WhenEmptyOrUnderutilized as spec.disruption.consolidationPolicy",
    );
    kept(&disruption("budgets: [{nodes: '0'}]"), "more nodes for Underutilized in spec.disruption.budgets of NodePool default");
    let annotated = |text: String| {
        text.replace("metadata: {name: second,", "metadata: {name: second, annotations: {karpenter.sh/do-not-disrupt: 'true'},")
    };
    kept(&annotated, "pod default/second without the annotation karpenter.sh/do-not-disrupt");
    let node =
        |text: String| text.replace("metadata: {name: n2,", "metadata: {name: n2, annotations: {karpenter.sh/do-not-disrupt: 'true'},");
    kept(&node, "the node without the annotation karpenter.sh/do-not-disrupt");
}

#[test]
fn workloads_and_pools_are_told_as_a_whole() {
    let owned = "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop, ownerReferences: [{kind: StatefulSet, name: web, uid: u, \
                 apiVersion: apps/v1, controller: true}]}, spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}";
    let read = crate::source::read_text("cluster.yaml", &format!("{CLUSTER}{owned}")).unwrap();
    for name in ["web", "shop/web", "statefulset/web", "statefulset/shop/web"] {
        let found = subject(&read, name, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(matches!(found, Subject::Workload(name, pods) if name == "statefulset/shop/web" && pods.len() == 1), "{name}");
    }
    assert!(matches!(subject(&read, "nodepool/default", None), Ok(Subject::NodePool(_))));
    assert!(matches!(subject(&read, "deployment/web", None), Err(ExplainError::Unknown(..))));
    let Ok(Subject::Workload(name, pods)) = subject(&read, "web", None) else { panic!("no workload") };
    let text = groups::workload_text(&name, &pods, &Plan::default(), &Known::of(&ClusterObjects::default()));
    assert!(text.starts_with("statefulset/shop/web: 1 pod\n\n1 pod: shop/web-1\neach is not to be placed"), "{text}");
    let text = groups::pool_text(&read.objects.node_pools[0], &read, &Plan::default());
    assert!(text.starts_with("nodepool default\n  ready\n  1 node\n") && text.contains("0 machines would be launched"), "{text}");
    let mut pool = read.objects.node_pools[0].clone();
    pool.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
    let text = groups::pool_text(&pool, &read, &Plan::default());
    assert!(text.contains("being deleted, so that nothing is launched from it") && !text.contains("  ready\n"), "{text}");
}

/// Or a limit looks as if it had room, beside pods that it keeps out.
#[test]
fn limits_are_told_as_plans_count_them() {
    let limited = CLUSTER.replacen("spec:\n  template:", "spec:\n  limits: {cpu: 10, nodes: 2}\n  template:", 1);
    let told = |text: &str, status: &[(&str, i64)]| {
        let mut read = crate::source::read_text("cluster.yaml", text).unwrap();
        let amounts = status.iter().map(|(name, units)| ((*name).to_owned(), Quantity::from_units(*units)));
        read.objects.node_pools[0].status.resources = Resources(amounts.collect());
        groups::pool_text(&read.objects.node_pools[0], &read, &Plan::default())
    };
    let one = "  limit of cpu: 2 of 10\n  limit of nodes: 1 of 2\n";
    assert!(told(&limited, &[]).contains(one), "{}", told(&limited, &[]));
    // A status may be older than a machine, or count one that has gone.
    let old = told(&limited, &[("cpu", 0), ("nodes", 0)]);
    assert!(old.contains(one), "{old}");
    // A kubelet does not make a machine larger than it is, nor free its limits by another label (ADR 0083).
    let larger = limited.replace(
        "spec: {providerID: 'aws:///a/i-1'}\nstatus: {capacity: {cpu: '2'",
        "spec: {providerID: 'aws:///a/i-1'}\nstatus: {capacity: {cpu: '64'",
    );
    assert!(larger != limited && told(&larger, &[]).contains(one), "{}", told(&larger, &[]));
    let moved = limited.replace(
        "metadata: {name: n1, labels: {karpenter.sh/nodepool: default,",
        "metadata: {name: n1, labels: {karpenter.sh/nodepool: other,",
    );
    assert!(moved != limited && told(&moved, &[]).contains(one), "{}", told(&moved, &[]));
    // What is being deleted makes room.
    let named = "metadata: {name: default-x,";
    let going =
        limited.replace(named, &format!("{named} deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [karpenter.sh/termination],"));
    let free = told(&going, &[("cpu", 2), ("nodes", 1)]);
    assert!(free.contains("limit of cpu: 0 of 10\n  limit of nodes: 0 of 2\n"), "{free}");
    let alone = limited.split("---").next().unwrap();
    let of_status = told(alone, &[("cpu", 4), ("nodes", 1)]);
    assert!(of_status.contains("limit of cpu: 4 of 10\n  limit of nodes: 1 of 2\n"), "{of_status}");
}
