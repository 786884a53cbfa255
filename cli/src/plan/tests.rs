//! Planning from files: only invalid objects are ignored, and everything that the functions would read is used.

use super::{daemons, decide, output, report};
use crate::report::markdown;
use crate::source::{self, PackingArg, catalog};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_model::scheduling::Plan;

const POOL: &str = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}\n";
const CLASS: &str = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec: {role: nodes, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}]}\n";

/// An instance type with `cpu` CPUs, offered on demand in two zones.
fn instance_type(name: &str, cpu: usize, dollars: f64) -> Value {
    let offering = |zone: &str| {
        json!({"Price": dollars, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]})
    };
    json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": cpu.to_string(), "memory": format!("{}Gi", 4 * cpu), "pods": "110"},
        "offerings": [offering("a"), offering("b")]})
}

fn decided(read: &source::Manifests, types: &Value, packing: PackingArg) -> Plan {
    let offered = catalog::for_all_pools(&read.objects, catalog::parse(&types.to_string()).unwrap());
    decide(read, offered, packing).plan
}

fn plan_of(text: &str, types: &Value) -> Plan {
    let read = source::read_text("in.yaml", text).unwrap();
    decided(&read, types, PackingArg::Reference)
}

fn plan(text: &str) -> Plan {
    plan_of(text, &json!([instance_type("small", 2, 0.1), instance_type("large", 16, 0.8)]))
}

fn pod(name: &str, cpu: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: web}}{more}}}\nspec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\n"
    )
}

fn joined(parts: &[&str]) -> String {
    parts.join("---\n")
}

fn placed(plan: &Plan) -> Vec<String> {
    let mut out: Vec<String> = plan.claims.iter().flat_map(|c| &c.pods).map(|p| p.name.clone()).collect();
    out.sort();
    out
}

/// The invalid object is reported with `words`; the others are planned as if it were absent.
#[track_caller]
fn check_only_this_is_refused(broken: &str, words: &[&str]) {
    for beside in ["", CLASS] {
        let parts: Vec<&str> = [POOL, beside, broken].into_iter().filter(|part| !part.is_empty()).collect();
        let good = pod("good", "1", "");
        let read = source::read_text("in.yaml", &joined(&[&joined(&parts), &good])).unwrap();
        for word in words {
            assert!(read.refused.iter().any(|line| line.contains(word)), "{word:?} is not in {:?}", read.refused);
        }
        assert_eq!(placed(&decided(&read, &json!([instance_type("small", 2, 0.1)]), PackingArg::Best)), ["good"]);
    }
    // With no other object there is nothing to plan.
    let error = source::read_text("in.yaml", broken).unwrap_err().to_string();
    assert!(error.contains(words[0]), "{error}");
}

#[test]
fn an_invalid_object_is_refused_and_the_others_are_planned() {
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: odd}\nspec: {weight: many, template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}\n";
    check_only_this_is_refused(pool, &["NodePool \"odd\"", "spec.weight", "document"]);
    check_only_this_is_refused(&pod("odd", "[1]", ""), &["Pod \"odd\"", "requests"]);
    let class = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: odd}\nspec: {role: [1]}\n";
    check_only_this_is_refused(class, &["EC2NodeClass \"odd\"", "role"]);
    check_only_this_is_refused(
        "apiVersion: karpenter.sh/v1\nkind: NodePol\nmetadata: {name: odd}\n",
        &["NodePol \"odd\"", "there is no kind NodePol"],
    );
    check_only_this_is_refused("kind: Pod\nmetadata: {name: odd}\n", &["apiVersion and kind"]);
}

#[test]
fn a_document_that_is_not_yaml_is_refused_with_its_position_and_the_others_are_planned() {
    let torn = "apiVersion: v1\nkind: Pod\nmetadata: {name: torn\nspec: {}\n";
    let tab = "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: torn\n";
    let twice = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, name: b}\n";
    for (broken, remedy) in [(torn, "correct"), (tab, "use blanks"), (twice, "name")] {
        for (parts, line, number) in [([POOL, broken, &pod("good", "1", "")], 6..10, 2), ([broken, POOL, &pod("good", "1", "")], 1..5, 1)] {
            let read = source::read_text("in.yaml", &joined(&parts)).unwrap();
            let [fault] = &read.refused[..] else { panic!("{:?}", read.refused) };
            let place = fault.strip_prefix("in.yaml:").and_then(|rest| rest.split(':').next()).and_then(|line| line.parse().ok());
            assert!(place.is_some_and(|at: usize| line.contains(&at)), "{line:?}: {fault}");
            assert!(fault.contains(&format!(": document {number}")) && fault.contains(remedy), "{fault}");
            assert_eq!(placed(&decided(&read, &json!([instance_type("small", 2, 0.1)]), PackingArg::Best)), ["good"]);
        }
        // With no other object there is nothing to plan.
        assert!(source::read_text("in.yaml", broken).unwrap_err().to_string().starts_with("in.yaml:"));
    }
}

#[test]
fn one_malformed_document_among_thousands_is_refused_with_its_position() {
    let torn = "apiVersion: v1\nkind: Pod\nmetadata: {name: torn\nspec: {}\n";
    let pods: Vec<String> = (0..3_000).map(|n| if n == 2_000 { torn.to_owned() } else { pod(&format!("p-{n}"), "1", "") }).collect();
    let text = pods.join("---\n");
    let before = pods[..2_000].iter().map(|pod| pod.lines().count() + 1).sum::<usize>();
    let read = source::read_text("in.yaml", &text).unwrap();
    let [fault] = &read.refused[..] else { panic!("{:?}", read.refused) };
    let line: usize = fault.split(':').nth(1).unwrap().parse().unwrap();
    assert!((before + 1..before + 5).contains(&line) && fault.contains("document 2001"), "{before}: {fault}");
    let names: BTreeSet<&str> = read.objects.pods.iter().map(|pod| pod.metadata.name.as_str()).collect();
    assert_eq!((names.len(), names.contains("p-1999"), names.contains("p-2001")), (2_999, true, true));
}

#[test]
fn leading_separators_and_end_markers_are_no_documents() {
    let text = format!("\u{feff}%YAML 1.2\n---\n# first\n{POOL}...\n---\n{}...\n---\nkind: Pod\n", pod("good", "1", ""));
    let read = source::read_text("in.yaml", &text).unwrap();
    assert_eq!((read.objects.node_pools.len(), read.objects.pods.len()), (1, 1));
    assert!(read.refused[0].starts_with("in.yaml, document 3: "), "{:?}", read.refused);
}

#[test]
fn what_follows_the_end_of_a_document_is_another_one() {
    let with = |between: &str| [pod("first", "1", ""), pod("second", "1", "")].join(between) + "---\nkind: Pod\n";
    let ends = ["...\n", "... \n", "...\t# end\n", "...\n# next\n...\n", "...\n%YAML 1.2\n---\n", "... # end\n---\n"];
    for between in ends.into_iter().chain(["---\n\u{feff}", "\u{feff}---\n"]) {
        let read = source::read_text("in.yaml", &with(between)).unwrap();
        assert_eq!(read.objects.pods.len(), 2, "{between:?}: {:?}", read.refused);
        assert!(matches!(&read.refused[..], [one] if one.starts_with("in.yaml, document 3: ")), "{between:?}: {:?}", read.refused);
    }
    // A byte order mark alone is no document either.
    let read = source::read_text("in.yaml", &with("---\n\u{feff}\n---\n")).unwrap();
    assert_eq!((read.objects.pods.len(), read.refused.len()), (2, 1), "{:?}", read.refused);
    // What stands behind the end in its line is an error, and is not left out without a word.
    let read = source::read_text("in.yaml", &format!("{POOL}---\n{}", with("... kind: Node\n"))).unwrap();
    assert!(read.refused.iter().any(|fault| fault.starts_with("in.yaml:")), "{:?}", read.refused);
}

#[test]
fn what_is_refused_of_a_workload_is_told_at_its_line() {
    let web = "# a comment\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: -1\n  \
               selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      \
               containers:\n      - name: c\n        resources: {requests: {cpu: -1}}\n";
    let read = source::read_text("in.yaml", &format!("{POOL}---\n{web}")).unwrap();
    // The separator is the first line behind those of the pool.
    let separator = POOL.lines().count() + 1;
    for (line, column, said) in
        [(6, 3, "spec.replicas: -1 replicas"), (13, 32, "spec.template.spec.containers[0].resources.requests.cpu: -1 is less than nothing")]
    {
        let wanted = format!("in.yaml:{}:{column}: document 2, Deployment \"web\", {said}", separator + line);
        assert!(read.refused.iter().any(|fault| fault.starts_with(&wanted)), "{wanted}: {:#?}", read.refused);
    }
    // Nobody knows the lines of what a list has, so that its place in the list is told.
    let list = format!("{POOL}---\napiVersion: v1\nkind: List\nitems: [{{}}, {{kind: Pod}}]\n");
    let read = source::read_text("in.yaml", &list).unwrap();
    let wanted = [0, 1].map(|at| format!("in.yaml, document 2: List, items[{at}]: an object needs apiVersion and kind"));
    assert!(wanted.iter().all(|wanted| read.refused.iter().any(|fault| fault.starts_with(wanted))), "{:#?}", read.refused);
    assert_eq!(read.refused.len(), wanted.len());
}

/// The text is read once for all of them: a few thousand took minutes.
#[test]
fn each_of_many_faults_of_a_workload_is_told_at_its_line() {
    const CONTAINERS: usize = 1000;
    let mut web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  \
                   template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n"
        .to_owned();
    let before = POOL.lines().count() + 1 + web.lines().count();
    (0..CONTAINERS).for_each(|n| web.push_str(&format!("      - {{name: c{n}, resources: {{requests: {{cpu: -1}}}}}}\n")));
    let read = source::read_text("in.yaml", &format!("{POOL}---\n{web}")).unwrap();
    let is_told = |n: usize| {
        let (line, field) = (format!("in.yaml:{}:", before + n + 1), format!("containers[{n}].resources.requests.cpu: -1 is less"));
        read.refused.iter().any(|fault| fault.starts_with(&line) && fault.contains(&field))
    };
    let missing: Vec<usize> = (0..CONTAINERS).filter(|n| !is_told(*n)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_tab_after_the_dashes_of_a_separator_ends_a_document_too() {
    for separator in ["---\t\n", "---\t\t# next\n", "--- \t\n", "---\t\r\n"] {
        let text = [POOL, &pod("first", "1", ""), &pod("second", "1", "")].join(separator);
        let read = source::read_text("in.yaml", &text).unwrap();
        assert!(read.refused.is_empty(), "{separator:?}: {:?}", read.refused);
        assert_eq!((read.objects.node_pools.len(), read.objects.pods.len()), (1, 2), "{separator:?}");
    }
    // Four dashes are text.
    assert!(source::read_text("in.yaml", &[POOL, &pod("first", "1", "")].join("----\n")).is_err());
}

#[test]
fn an_owner_without_a_template_gives_its_pods_its_uid_and_makes_none() {
    let owned = pod("web-1", "1", ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, controller: true}]");
    let owner = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web, uid: u-web}\n";
    let read = source::read_text("in.yaml", &joined(&[POOL, owner, &owned])).unwrap();
    assert!(read.refused.is_empty(), "{:?}", read.refused);
    let owners = read.objects.pods.iter().flat_map(|pod| pod.metadata.owner_references.iter());
    let uids: Vec<&str> = owners.map(|owner| owner.uid.as_str()).collect();
    assert_eq!(uids, ["u-web"]);
    assert_eq!(placed(&plan(&joined(&[POOL, owner, &owned]))), ["web-1"]);
}

#[test]
fn validation_errors_of_a_readable_pool_are_warnings() {
    let text = POOL.replace("requirements: []", "requirements: [], nodeClas: x");
    let read = source::read_text("in.yaml", &text).unwrap();
    assert!(
        read.warnings.iter().any(|warning| warning.contains("nodeClas") && warning.contains("NodePool \"default\"")),
        "{:?}",
        read.warnings
    );
    assert!(read.refused.is_empty());
    assert!(source::read_text("in.yaml", POOL).unwrap().warnings.is_empty());
}

#[test]
fn positions_are_those_in_the_file() {
    let broken = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: odd}\nspec:\n  role: [1]\n";
    let read = source::read_text("in.yaml", &joined(&[POOL, broken])).unwrap();
    assert!(read.refused.iter().any(|line| line.starts_with("in.yaml:10:3: document 2, ")), "{:?}", read.refused);
}

#[test]
fn pods_whose_labels_differ_do_not_repel_each_other_where_their_terms_compare_them() {
    let pod = |name: &str, version: &str, keys: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: web, v: '{version}'}}}}\nspec: {{containers: [{{name: c, \
             resources: {{requests: {{cpu: 500m}}}}}}], affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             [{{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: {{app: web}}}}{keys}}}]}}}}}}\n"
        )
    };
    let machines = |keys: &str| plan(&joined(&[POOL, &pod("a", "1", keys), &pod("b", "2", keys)])).claims.len();
    let keys = ["", ", matchLabelKeys: [v]", ", mismatchLabelKeys: [v]"];
    assert_eq!(keys.map(machines), [2, 1, 2]);
}

#[test]
fn pods_with_ephemeral_volumes_are_placed_where_their_class_has_volumes() {
    let class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: late}\nprovisioner: ebs.csi.aws.com\n\
                 volumeBindingMode: WaitForFirstConsumer\nallowedTopologies: [{matchLabelExpressions: [{key: \
                 topology.ebs.csi.aws.com/zone, values: [b]}]}]\n";
    let volume = "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: late, accessModes: [ReadWriteOnce]}}}}]";
    let text = pod("it", "1", "").replace("spec: {", &format!("spec: {{{volume}, "));
    let plan = plan(&joined(&[POOL, class, &text]));
    assert_eq!(placed(&plan), ["it"]);
    let zones = plan.claims[0].requirements.iter().find(|required| required.key == "topology.kubernetes.io/zone");
    assert_eq!(zones.map(|zones| zones.values.as_slice()), Some(&["b".to_owned()][..]));
}

#[test]
fn words_are_booleans_unless_they_are_quoted() {
    for name in ["n", "y", "on", "no"] {
        let error = source::read_text("in.yaml", &pod(name, "1", "")).unwrap_err().to_string();
        assert!(error.contains("metadata.name") && error.contains("needs quotes"), "{error}");
        assert_eq!(placed(&plan(&joined(&[POOL, &pod(&format!("'{name}'"), "1", "")]))), [name]);
    }
    let text =
        pod("it", "1", "").replace("spec: {", "spec: {hostNetwork: yes, ").replace("name: c,", "name: c, ports: [{containerPort: 80}],");
    let read = source::read_text("in.yaml", &text).unwrap();
    assert_eq!((read.objects.pods[0].spec.host_network, read.objects.pods[0].spec.containers[0].ports[0].host_port), (true, 80));
    // In lists such as `kubectl get -o yaml` prints, too.
    let item = |text: &str| format!("- {}", text.trim_end().replace('\n', "\n  "));
    let items = [item(&text), item(&pod("off", "1", ""))];
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}\n", items.join("\n"));
    let read = source::read_text("in.yaml", &list).unwrap();
    assert!(read.refused.len() == 1 && read.refused[0].contains("metadata.name"), "{:?}", read.refused);
    assert!(read.objects.pods.len() == 1 && read.objects.pods[0].spec.host_network);
    // A quoted boolean is a string, as it is to an API server.
    let quoted = joined(&[&text.replace("hostNetwork: yes", "hostNetwork: 'yes'"), POOL]);
    let read = source::read_text("in.yaml", &quoted).unwrap();
    assert!(read.refused[0].contains("spec.hostNetwork") && read.objects.pods.is_empty(), "{:?}", read.refused);
    // Anything else is an error with its position and a remedy.
    let error = source::read_text("in.yaml", &pod("12", "1", "")).unwrap_err().to_string();
    assert!(error.contains("Pod \"12\", metadata.name") && error.contains("needs quotes"), "{error}");
}

#[test]
fn limits_default_requests_as_in_an_api_server() {
    let asks = |spec: &str| {
        let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: it}}\nspec: {spec}\n");
        let read = source::read_text("in.yaml", &text).unwrap();
        let requests = whittle_model::pods::effective_requests(&read.objects.pods[0]);
        (requests.get("cpu").to_string(), requests.get("memory").to_string())
    };
    let container = "containers: [{name: c, resources: {requests: {cpu: '1'}, limits: {cpu: '2', memory: 1Gi}}}]";
    let both = |cpu: &str, memory: &str| (cpu.to_owned(), memory.to_owned());
    assert_eq!(asks(&format!("{{{container}}}")), both("1", "1Gi"));
    // Pod-level limits count for what no container requests.
    assert_eq!(asks(&format!("{{resources: {{limits: {{cpu: '9', memory: 9Gi}}}}, {container}}}")), both("1", "1Gi"));
    assert_eq!(asks("{resources: {limits: {cpu: '9', memory: 9Gi}}, containers: [{name: c}]}"), both("9", "9Gi"));
    assert_eq!(asks("{resources: {limits: {cpu: '9'}, requests: {cpu: '8'}}, containers: [{name: c}]}"), both("8", "0"));
    let init = "initContainers: [{name: i, resources: {requests: {cpu: '3'}}}]";
    assert_eq!(asks(&format!("{{resources: {{limits: {{cpu: '9', memory: 9Gi}}}}, {init}, containers: [{{name: c}}]}}")), both("3", "9Gi"));
}

/// Two pods of `web`, and a default spread over zones.
fn spread_by(workloads: &str, owner: &str) -> usize {
    let config = r#"{"podTopologySpread": {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}}"#;
    let settings = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: plan-settings}}\ndata: {{schedulerConfig: '{config}'}}\n");
    plan(&joined(&[POOL, &settings, workloads, &pod("web-0", "100m", owner), &pod("web-1", "100m", owner)])).claims.len()
}

#[test]
fn default_spread_uses_the_selectors_of_services_and_workloads() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}}\n";
    assert_eq!(spread_by(service, ""), 2);
    assert_eq!(spread_by(&service.replace("app: web", "app: other"), ""), 1, "it selects others");
    assert_eq!(spread_by(&service.replace("name: web}", "name: web, namespace: elsewhere}"), ""), 1);
    let owned =
        |kind: &str, version: &str| format!(", ownerReferences: [{{apiVersion: {version}, kind: {kind}, name: web, controller: true}}]");
    for (kind, version) in [("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1")] {
        let workload = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web}}\nspec: {{replicas: 0, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c}}]}}}}}}\n"
        );
        assert_eq!(spread_by(&workload, &owned(kind, version)), 2, "{kind}");
        assert_eq!(spread_by(&workload, ""), 1, "the pods have no owner");
    }
    let controller = "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web}\nspec: {replicas: 0, selector: {app: web}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}\n";
    assert_eq!(spread_by(controller, &owned("ReplicationController", "v1")), 2);
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}\n";
    assert_eq!(spread_by(deployment, &owned("Deployment", "apps/v1")), 1, "its ReplicaSets own pods, it does not");
}

#[test]
fn an_invalid_default_spread_constraint_is_an_error() {
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {schedulerConfig: '{podTopologySpread: {defaultConstraints: [{maxSkew: 0}]}}'}\n";
    let error = source::read_text("in.yaml", settings).unwrap_err().to_string();
    assert!(error.starts_with("plan-settings: schedulerConfig: podTopologySpread.defaultConstraints"), "{error}");
}

const BUFFER: &str = "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {name: spare}\nspec: {replicas: 2, podTemplateRef: {name: shape}}\n";
const SHAPE: &str = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: shape}\ntemplate: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}\n";

#[test]
fn a_buffer_reserves_capacity_for_pods_of_its_template() {
    let wanted = ["capacity-buffer-spare-1", "capacity-buffer-spare-2"];
    let by_template = plan(&joined(&[POOL, BUFFER, SHAPE]));
    assert_eq!(placed(&by_template), wanted);
    assert_eq!(by_template.pods, 2);
    let scalable = BUFFER.replace("podTemplateRef: {name: shape}", "scalableRef: {apiGroup: apps, kind: Deployment, name: web}");
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 4, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, resources: {requests: {cpu: 15}}}]}}}\n";
    let large = plan(&joined(&[POOL, &scalable, deployment]));
    assert_eq!((placed(&large), large.claims.len()), (wanted.map(str::to_owned).to_vec(), 2));
    let share = plan(&joined(&[POOL, &scalable.replace("replicas: 2", "percentage: 75"), deployment]));
    assert_eq!(share.pods, 3);
    // Free capacity of an existing node suffices.
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus: {capacity: {cpu: '4', memory: 16Gi, pods: '10'}}\n";
    let fitting = plan(&joined(&[POOL, BUFFER, SHAPE, node]));
    assert_eq!((fitting.claims.len(), fitting.placements[0].pods.len()), (0, 2));
}

#[test]
fn a_buffer_without_a_template_or_with_its_gate_off_has_no_pods() {
    let text = joined(&[POOL, BUFFER]);
    assert_eq!(plan(&text).pods, 0);
    let read = source::read_text("in.yaml", &text).unwrap();
    let (buffers, unresolved) = read.workloads.resolved(read.settings.now);
    let pods: Vec<_> = buffers.iter().flat_map(|buffer| &buffer.pods).collect();
    assert!(
        pods.is_empty() && unresolved[0].contains("default/spare") && unresolved[0].contains("PodTemplate \"shape\""),
        "{unresolved:?}"
    );
    let off = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {featureGates: CapacityBuffer=false}\n";
    assert_eq!(plan(&joined(&[POOL, BUFFER, SHAPE, off])).pods, 0);
}

#[test]
fn a_buffer_that_asks_for_too_many_pods_is_warned_of() {
    let text = joined(&[POOL, &BUFFER.replace("replicas: 2", "replicas: 6000"), SHAPE]);
    let read = source::read_text("in.yaml", &text).unwrap();
    let (buffers, told) = read.workloads.resolved(read.settings.now);
    assert_eq!(buffers[0].pods.len(), 5000);
    let expected = "CapacityBuffer default/spare: 5000 of its 6000 pods are kept free: a buffer has no more than 5000";
    assert!(matches!(told.as_slice(), [only] if only.starts_with(expected)), "{told:?}");
}

/// Real pods of the same template ask for the accelerator: an API server takes their limits for requests.
#[test]
fn a_buffer_whose_template_has_limits_alone_is_warned_of() {
    let told = |resources: &str| {
        let shape = SHAPE.replace("resources: {requests: {cpu: '1'}}", &format!("resources: {resources}"));
        let read = source::read_text("in.yaml", &joined(&[POOL, BUFFER, &shape])).unwrap();
        read.workloads.resolved(read.settings.now).1
    };
    let wanted = "CapacityBuffer default/spare: no room is kept for memory, nvidia.com/gpu, which the template of its pods has in \
                  resources.limits alone: write it into resources.requests as well";
    assert_eq!(told("{requests: {cpu: '1'}, limits: {cpu: '2', nvidia.com/gpu: 1, memory: 1Gi}}"), [wanted]);
    assert!(told("{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}").is_empty());
}

#[test]
fn a_buffer_whose_limits_are_of_nothing_that_its_template_requests_is_warned_of() {
    let limited = BUFFER.replace("replicas: 2", "limits: {nvidia.com/gpu: 4}");
    let read = source::read_text("in.yaml", &joined(&[POOL, &limited, SHAPE])).unwrap();
    let (buffers, told) = read.workloads.resolved(read.settings.now);
    assert!(buffers[0].pods.is_empty());
    let expected =
        "CapacityBuffer default/spare: it has no pods, for the template requests nothing of what spec.limits has (nvidia.com/gpu)";
    assert!(matches!(told.as_slice(), [only] if only.starts_with(expected)), "{told:?}");
}

/// No pod of a buffer is created, so that no LimitRange completes it.
#[test]
fn a_buffer_keeps_no_room_for_what_a_limit_range_gives_and_says_so() {
    let range = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: d}\nspec: {limits: [{type: Container, defaultRequest: {cpu: 2, memory: 1Gi}}]}\n";
    let kept = |range: &str| {
        let read = source::read_text("in.yaml", &joined(&[POOL, BUFFER, SHAPE, range])).unwrap();
        read.workloads.resolved(read.settings.now)
    };
    let (buffers, told) = kept(range);
    let wanted = "CapacityBuffer default/spare: no room is kept for memory, which a LimitRange gives to the pods of its template once they \
                  are created: write it into the template's resources.requests";
    assert_eq!(told, [wanted]);
    let (others, untold) = kept(&range.replace("name: d", "name: d, namespace: other"));
    assert_eq!((&buffers[0].pods, untold), (&others[0].pods, Vec::new()));
}

#[test]
fn a_claim_lists_the_six_hundred_cheapest_types_which_must_satisfy_min_values() {
    // The hundred most expensive types are the only ones of family x.
    let types: Vec<Value> = (0..700)
        .map(|n| {
            let mut t = instance_type(&format!("t{n:03}"), 2, 0.1 + n as f64 / 1000.0);
            t["labels"] = json!({"karpenter.k8s.aws/instance-family": if n < 650 { "a" } else { "x" }});
            t
        })
        .collect();
    let types = json!(types);
    for packing in [PackingArg::Reference, PackingArg::Best] {
        let planned = |text: &str| {
            let read = source::read_text("in.yaml", text).unwrap();
            decided(&read, &types, packing)
        };
        let plan = planned(&joined(&[POOL, &pod("it", "1", "")]));
        let listed = &plan.claims[0].instance_types;
        assert_eq!((listed.len(), listed[0].as_str(), listed[599].as_str()), (600, "t000", "t599"));
        let families = "requirements: [{key: karpenter.k8s.aws/instance-family, operator: Exists, minValues: 2}]";
        let demanding = POOL.replace("requirements: []", families);
        let plan = planned(&joined(&[&demanding, &pod("it", "1", "")]));
        assert!(plan.claims.is_empty(), "{:?}", plan.claims);
        let text = plan.left_out[0].reason.to_string();
        assert!(text.contains("karpenter.k8s.aws/instance-family") && text.contains("nodepool default"), "{text}");
        let best_effort = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {minValuesPolicy: BestEffort}\n";
        let plan = planned(&joined(&[&demanding, &pod("it", "1", ""), best_effort]));
        assert_eq!(plan.claims[0].instance_types.len(), 600, "what is kept is not held against it again");
    }
}

#[test]
fn a_report_names_every_machine_and_every_pod_that_is_left_out_with_its_reason() {
    let plan = plan(&joined(&[POOL, &pod("one", "12", ""), &pod("other", "12", ""), &pod("giant", "500", "")]));
    let text = markdown(&report::report(&plan, None, &output::Costs::default(), &[]));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(text.starts_with("# Plan\n\n2 of 3 pods placed, 2 new machines, $1.6000/h"), "{text}");
    assert!(rows.iter().any(|row| row.starts_with("| 1: default/giant | ") && row.contains("resources")), "{text}");
    assert!(rows.iter().any(|row| row.starts_with("| 2 | default | large | on-demand | ")), "{text}");
    let machines = rows.iter().find(|row| row.contains("default/one")).unwrap();
    assert!(machines.starts_with("| 2 | default | large on-demand in ") && machines.contains("default/other"), "{text}");
}

/// A pod that is to be in the zone of those with `app: near`.
fn following(name: &str, app: &str, near: &str) -> String {
    let term = format!("{{topologyKey: topology.kubernetes.io/zone, labelSelector: {{matchLabels: {{app: {near}}}}}}}");
    pod(name, "12", "").replace("app: web", &format!("app: {app}")).replace(
        "{containers",
        &format!("{{affinity: {{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}}}, containers"),
    )
}

#[test]
fn what_later_passes_launch_for_pods_near_pods_of_this_plan_is_told() {
    let types = json!([instance_type("small", 2, 0.1), instance_type("large", 16, 0.8)]);
    let later = |parts: &[&str]| {
        let read = source::read_text("in.yaml", &joined(parts)).unwrap();
        let offered = catalog::for_all_pools(&read.objects, catalog::parse(&types.to_string()).unwrap());
        let plan = decide(&read, offered.clone(), PackingArg::Best).plan;
        (super::Later::of(&read, &offered, PackingArg::Best, &plan), plan)
    };
    let (first, second, third) = (pod("first", "1", ""), following("second", "middle", "web"), following("third", "end", "middle"));
    let (after, plan) = later(&[POOL, &first, &second, &third]);
    let after = after.expect("pods follow pods");
    assert_eq!(placed(&plan), ["first"]);
    let names: Vec<&str> = after.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!((names, after.machines, after.price.to_string()), (vec!["second", "third"], 2, "$1.6000/h".to_owned()));
    let remedies = plan.left_out[0].reason.remedies();
    assert!(
        remedies[0].text.starts_with("only time: the affinity selects default/first, whose machine this pass launches"),
        "{remedies:?}"
    );
    let costs = output::Costs { then: crate::money::Bill::default().plus(1, plan.price()), later: Some(after), ..output::Costs::default() };
    let wanted = "now $0.0000/h (0 nodes) -> then $0.1000/h (1 node): +$73.00 a month\n\
                  later passes: 2 pods more placed, which are to be near pods of this plan, 2 new machines, $1.6000/h\n\
                  now $0.0000/h (0 nodes) -> then $1.7000/h (3 nodes): +$1241.00 a month\n";
    assert_eq!(costs.text(), wanted);
    let told = costs.later.as_ref().map(|later| later.json(&costs.then));
    assert_eq!(told, Some(json!({"pods": ["default/second", "default/third"], "launched": 2, "nodes": 3, "price": 1.7})));
    // Whom no pod of this plan is near waits for something else.
    assert!(later(&[POOL, &first, &following("alone", "end", "absent")]).0.is_none());
}

/// A NodePool with these requirements, and with more fields of its spec and of its machines.
fn pool(name: &str, requirements: &str, spec: &str, template: &str) -> String {
    POOL.replace("metadata: {name: default}", &format!("metadata: {{name: {name}}}"))
        .replace("requirements: []", &format!("requirements: [{requirements}]{template}"))
        .replace("spec: {template", &format!("spec: {{{spec}template"))
}

/// The remedies of all pods that have no place.
fn remedies(parts: &[&str], types: &Value) -> Vec<String> {
    let plan = plan_of(&joined(parts), types);
    plan.left_out.iter().flat_map(|left| left.reason.remedies()).map(|remedy| remedy.text).collect()
}

#[test]
fn the_remedies_of_a_spread_name_the_zone_to_exclude_and_what_other_types_would_cost() {
    let mut rare = instance_type("rare", 64, 5.0);
    rare["architecture"] = json!("arm64");
    rare["offerings"].as_array_mut().unwrap().truncate(1);
    rare["offerings"][0]["Requirements"][1]["values"] = json!(["c"]);
    // Of what is sold out in a zone there may be some later: the zone counts.
    let mut small = instance_type("small", 2, 0.1);
    let mut sold_out = rare["offerings"][0].clone();
    sold_out["Available"] = json!(false);
    small["offerings"].as_array_mut().unwrap().push(sold_out);
    let types = json!([small, rare]);
    let spread = "{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}";
    let pods: Vec<String> = ["a", "b", "c"]
        .map(|name| pod(name, "1", "").replace("spec: {", &format!("spec: {{topologySpreadConstraints: [{spread}], ")))
        .into();
    let of = |own: &str| joined(&[&pool("default", own, "", ""), &pods[0], &pods[1], &pods[2]]);
    let amd64 = "{key: kubernetes.io/arch, operator: In, values: [amd64]}";
    let told = remedies(&[&of(amd64)], &types);
    let wanted = "topology.kubernetes.io/zone NotIn [c] in its requirements, or a larger maxSkew, or whenUnsatisfiable: ScheduleAnyway, or \
                  its spec.template not requiring kubernetes.io/arch In [amd64] (then from $5.0000/h on), or time until EC2 has one again";
    assert_eq!(told, [wanted]);
    let excluded = format!("{amd64}, {{key: topology.kubernetes.io/zone, operator: NotIn, values: [c]}}");
    assert!(plan_of(&of(&excluded), &types).left_out.is_empty(), "the remedy helps");
    // Where one of several empty zones has a type, nothing else is asked for than what is in the way.
    let first = of(&format!("{amd64}, {{key: topology.kubernetes.io/zone, operator: In, values: [a]}}"));
    let second = pool("other", amd64, "", ", taints: [{key: t, effect: NoSchedule}]");
    let told = remedies(&[&first, &second], &types);
    assert!(told.contains(&"a pod that tolerates t:NoSchedule, or its spec.template.spec.taints without it".to_owned()), "{told:?}");
}

#[test]
fn limits_that_are_in_the_way_of_a_remedy_are_named_with_it() {
    let types = json!([instance_type("small", 2, 0.1), instance_type("large", 16, 0.8)]);
    let small = "{key: node.kubernetes.io/instance-type, operator: In, values: [small]}";
    let limited = pool("default", small, "limits: {cpu: 8}, ", "");
    let large = pod("large", "4", "").replace("spec: {", "spec: {nodeSelector: {node.kubernetes.io/instance-type: large}, ");
    let told = remedies(&[&limited, &large], &types);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("; and besides a higher spec.limits.cpu"), "{told:?}");
    let told = remedies(&[&limited, &pod("huge", "12", "")], &types);
    assert!(told[0].ends_with("or requirements that larger types meet, with a higher spec.limits.cpu"), "{told:?}");
}

#[test]
fn a_remedy_asks_for_nothing_that_does_not_help() {
    let mut gpu = instance_type("gpu", 8, 1.0);
    gpu["resources"]["nvidia.com/gpu"] = json!("1");
    let types = json!([instance_type("small", 2, 0.1), instance_type("large", 16, 0.8), gpu]);
    let check = |parts: &[&str], wanted: &[&str]| assert_eq!(remedies(parts, &types), wanted, "{parts:?}");
    // The limit that is in the way, and no other.
    let limited = pool("default", "", "limits: {cpu: 100, memory: 10Gi}, ", "");
    let memory = pod("p", "1", "").replace("cpu: 1", "cpu: 1, memory: 12Gi");
    check(&[&limited, &memory], &["a higher spec.limits.memory, of which a machine takes all that it has"]);
    // Another NodePool is not what the pod wants, tolerated or not.
    let tainted = pool("batch", "", "", ", taints: [{key: batch, effect: NoSchedule}]");
    let small = pool("web", "{key: node.kubernetes.io/instance-type, operator: In, values: [small]}", "", "");
    let of_web = pod("p", "12", "").replace("spec: {", "spec: {nodeSelector: {karpenter.sh/nodepool: web}, ");
    let larger = "requests of at most 1900m cpu, those of daemons included, or requirements that larger types meet";
    check(&[&tainted, &small, &of_web], &[larger]);
    // A label that no NodePool may give.
    let by_provisioner = pod("p", "1", "").replace("spec: {", "spec: {nodeSelector: {karpenter.sh/provisioner-name: default}, ");
    let told =
        "karpenter.sh/nodepool in the pod's node selector or affinity: only nodes of a Provisioner have karpenter.sh/provisioner-name";
    check(&[POOL, &by_provisioner], &[told]);
    // All that no type has together.
    let both = pod("p", "12", "").replace("cpu: 12}", "cpu: 12}, limits: {nvidia.com/gpu: 1}");
    let told = remedies(&[POOL, &both], &types);
    assert_eq!(told, ["requests of at most 7900m cpu, those of daemons included"]);
}

#[test]
fn a_pod_near_one_on_a_full_node_needs_room_there_and_pods_apart_by_zone_fewer_rules() {
    let types = json!([instance_type("small", 2, 0.1), instance_type("large", 16, 0.8)]);
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: own}\nspec: {providerID: 'aws:///a/i-1'}\nstatus: {allocatable: {cpu: 2, pods: 10}}\n";
    let there = pod("there", "1900m", "").replace("spec: {", "spec: {nodeName: own, ");
    let near = following("near", "near", "web").replace("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    let told = remedies(&[POOL, node, &there, &near], &types);
    assert!(told[0].starts_with("room on own, and tolerations of its taints: a pod that the affinity selects runs there"), "{told:?}");
    let apart = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, \
                 labelSelector: {matchLabels: {app: web}}}]}}";
    let pods: Vec<String> = ["a", "b", "c", "d"].map(|name| pod(name, "1", "").replace("spec: {", &format!("spec: {{{apart}, "))).into();
    let mut rare = instance_type("rare", 64, 5.0);
    rare["architecture"] = json!("arm64");
    rare["offerings"].as_array_mut().unwrap().truncate(1);
    rare["offerings"][0]["Requirements"][1]["values"] = json!(["c"]);
    let amd64 = pool("default", "{key: kubernetes.io/arch, operator: In, values: [amd64]}", "", "");
    let told = remedies(&[&amd64, &pods[0], &pods[1], &pods[2], &pods[3]], &json!([instance_type("small", 2, 0.1), rare]));
    assert!(2 <= told.len(), "{told:?}");
    assert!(told.iter().all(|text| text.contains("preferredDuringScheduling in the pod's anti-affinity")), "{told:?}");
    assert!(!told.iter().any(|text| text.contains("kubernetes.io/arch")), "it would help one of them: {told:?}");
}

#[test]
fn nothing_is_launched_of_a_node_class_that_is_being_deleted() {
    let deleting = CLASS.replace(
        "metadata: {name: default}",
        "metadata: {name: default, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [karpenter.k8s.aws/termination]}",
    );
    let plan = plan(&joined(&[POOL, &deleting, &pod("p", "1", "")]));
    assert!(plan.claims.is_empty(), "{plan:?}");
    assert!(plan.left_out[0].reason.to_string().contains("NodeClassTerminating"), "{}", plan.left_out[0].reason);
}

/// A DaemonSet whose pod requests this, on nodes of these labels.
fn daemon_set(cpu: &str, selector: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: agent, namespace: kube-system}}\nspec: {{selector: {{matchLabels: \
         {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{nodeSelector: {{{selector}}}, containers: [{{name: c, image: i, \
         resources: {{requests: {{cpu: {cpu:?}, memory: 1Gi}}}}}}]}}}}}}\n"
    )
}

#[test]
fn a_daemon_set_that_decides_how_large_machines_are_is_named() {
    let told = |documents: &[&str]| -> Vec<String> {
        let read = source::read_text("in.yaml", &joined(&[&[POOL, CLASS][..], documents].concat())).unwrap();
        let types = json!([instance_type("small", 2, 0.1), instance_type("large", 16, 0.8)]);
        let offered = catalog::for_all_pools(&read.objects, catalog::parse(&types.to_string()).unwrap());
        let plan = decide(&read, offered.clone(), PackingArg::Reference).plan;
        daemons::remarks(&read, &offered, &plan).iter().map(ToString::to_string).collect()
    };
    let (small, large) = (pod("web", "1", ""), pod("large", "10", ""));
    let most = "note: DaemonSet kube-system/agent has a pod with requests of cpu 9, memory 1Gi on 1 new machine, more than half of the cpu \
                of each: it decides how large these are, and most of their price; lower its requests, or keep it off them by its \
                nodeSelector or affinity, if that is not meant";
    assert_eq!(told(&[&small, &daemon_set("9", "")]), [most]);
    assert_eq!(told(&[&small, &daemon_set("9", "karpenter.sh/nodepool: default")]), [most]);
    // It takes less than the pods, runs on none of the machines, or there is none.
    for (pod, set) in [(&large, daemon_set("4", "")), (&small, daemon_set("100m", "")), (&small, daemon_set("9", "a: b"))] {
        assert_eq!(told(&[pod, &set]), [""; 0], "{set}");
    }
    assert_eq!(told(&[&daemon_set("9", "")]), [""; 0]);
    assert_eq!(told(&[&small]), [""; 0]);
}
