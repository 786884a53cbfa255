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

/// Commands after which the workload of seed 003 runs on nodes of its Provisioner, whose names are printed last.
fn with_rolling_workload() -> String {
    format!(
        "apply -f {} -f {} -f {}\nadvance 3m\nget no -o name\n",
        seed("001-state-daemonsets.yaml"),
        seed("003-state-alpha.yaml"),
        seed("003-workload-rolling.yaml")
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
    let start = with_rolling_workload();
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

/// S3.20: the first line says when and why a node went; what was said often stands there once.
#[test]
fn s3_20_explain_says_when_and_why_a_node_went() {
    let start = with_rolling_workload();
    let text = session(&start);
    let mut nodes = text.lines().filter_map(|line| line.strip_prefix("node/"));
    let (first, second) = (nodes.next().unwrap(), nodes.next().unwrap());
    let text = session(&format!(
        "{start}delete node {first}\nadvance 3h\nexplain node/{second}\ndelete deploy rolling\nadvance 30m\nexplain {first}\nexplain {second}\n"
    ));
    let line = |begins: &str| text.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {text}"));
    let deleted = line(&format!("{first} is gone since 00:03:"));
    assert!(deleted.ends_with(": the Node was deleted (decided at 00:03:00)"), "{deleted}");
    assert!(line(&format!("{second} is gone since 03:")).contains("Empty"), "{text}");
    let (_, alive) = text.rsplit_once(&format!("\n{second}\n")).unwrap();
    let (alive, gone) = alive.split_once("deployment/rolling deleted").unwrap();
    let said: Vec<&str> = alive.lines().filter_map(|line| line.split_once("Unconsolidatable: ")).map(|(_, said)| said).collect();
    assert_eq!(said.len(), 1, "{alive}");
    assert!(said[0].contains(" times, the last at 0"), "{said:?}");
    assert!(gone.contains("joined (nodeclaim/default-"), "what is told of its NodeClaim is told of the node: {gone}");
}

/// S2.10: a node of a node group was no node of Whittle's, but it was there.
#[test]
fn s2_10_explain_knows_a_node_that_was_none_of_whittles() {
    let file = std::fs::read_to_string(seed("002-state-eksctl-cluster.yaml")).unwrap();
    let start = format!("apply -f -\n{file}EOF\nadvance 10s\nget no -o name\n");
    let run = |commands: &str| {
        let arguments = ["local", "--cluster", "prd-eks", "--region", "ap-southeast-1", "--kubernetes-version", "1.26"];
        whittle(&arguments, commands)
    };
    let text = out(&run(&start));
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("node/")).collect();
    let smaller = file.replace("desiredCapacity: 3", "desiredCapacity: 2");
    let asked: String = names.iter().map(|name| format!("explain {name}\n")).collect();
    let text = out(&run(&format!("{start}apply -f -\n{smaller}EOF\nadvance 1m\n{asked}explain ip-1-2-3-4\n")));
    let ended = " is gone since 00:00:10: given up by its node group worknode; it was no node of Whittle's";
    assert_eq!(text.lines().filter(|line| line.ends_with(ended)).count(), 1, "{text}");
    assert!(err(&run("explain ip-1-2-3-4\n")).contains("and there was none"));
}

#[test]
fn explain_of_a_workload_prefers_a_pod_that_waits_and_a_pool_is_a_pool() {
    let start = format!("apply -f {} -f {}\n", seed("003-ec2nodeclass-v1beta1.yaml"), seed("003-nodepool-v1beta1.yaml"));
    let web = deployment("web", 2, "1", "");
    let limited = "limits: {cpu: 2}";
    let pool = std::fs::read_to_string(seed("003-nodepool-v1beta1.yaml")).unwrap() + "  " + limited + "\n";
    let text = session(&format!(
        "{start}apply -f -\n{pool}EOF\n{web}advance 5m\nscale deploy/web --replicas 4\nadvance 5m\nexplain deployment/web\nexplain deploy web\n\
         explain web\nexplain nodepool/default\nexplain default\n"
    ));
    let heading = "deployment/default/web: ";
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with(heading)).collect();
    assert_eq!(headings.len(), 3, "{text}");
    assert!(headings.iter().all(|line| line.ends_with("for one; one of them:")), "{headings:?}");
    let (_, last) = text.rsplit_once(heading).unwrap();
    assert!(last.contains("pending and waits for a node"), "{last}");
    let (_, pool) = last.split_once("nodepool/default\n").unwrap();
    let (pool, by_name) = pool.split_once("nodepool/default\n").expect("machines of that pool, whose names begin so, come later");
    assert_eq!(pool, by_name);
    assert!(pool.contains("limits      cpu=2") && !pool.contains("allocatable"), "{pool}");
    for (kind, name) in [("deployment", "none"), ("nodepool", "none")] {
        let refused = err(&whittle(&["local"], &format!("explain {kind}/{name}\n")));
        assert!(refused.contains(&format!("there is no {kind} \"{name}\"")), "{refused}");
    }
}

#[test]
fn small_things_at_the_prompt_are_as_in_a_cluster() {
    let groups = std::fs::read_to_string(seed("002-state-eksctl-cluster.yaml")).unwrap();
    let more = groups.replace("maxSize: 4", "maxSize: 5");
    let text = session(&format!(
        "advance 90s\nget ns\napply -f {}\nadvance 1m\nget ec2nodeclass -o yaml\napply -f -\n{groups}EOF\napply -f -\n{more}EOF\n\
         apply -f -\n{more}EOF\n",
        seed("003-ec2nodeclass-v1beta1.yaml")
    ));
    assert!(text.contains("default      90s") || text.contains("default      1m"), "{text}");
    assert!(text.contains("-1.28-") && !text.contains("-1.33-"), "images are for the cluster's version: {text}");
    let words: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("clusterconfig/prd-eks ")).collect();
    assert_eq!(words, ["created", "configured", "unchanged"], "{text}");
    let torn = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:name: banana\nspec: {}\n";
    let refused = whittle(&["local"], &format!("apply -f -\n{torn}EOF\n"));
    assert!(err(&refused).contains("a line break is missing after \"metadata:\""), "{}", err(&refused));
}

/// Seed 002, steps 1 to 10, as printed.
fn migration() -> String {
    let group = std::fs::read_to_string(seed("002-state-eksctl-cluster.yaml")).unwrap();
    let smaller = group.replace("desiredCapacity: 3", "desiredCapacity: 2").replace("maxSize: 4", "maxSize: 2");
    assert!(smaller.contains("minSize: 2"), "{smaller}");
    let files = |names: &[&str]| format!("apply{}\n", names.iter().map(|name| format!(" -f {}", seed(name))).collect::<String>());
    let state = ["002-state-eksctl-cluster.yaml", "001-state-daemonsets.yaml", "002-state-nodes.yaml", "002-state-cluster-autoscaler.yaml"];
    [
        &files(&state),
        "advance 10s\n",
        &files(&["002-deployment-nginx.yaml", "002-service-nginx.yaml", "002-workload-curl.yaml"]),
        "advance 30s\n",
        &files(&["002-pdb-nginx.yaml", "002-provisioner-default.yaml"]),
        "advance 6m\nscale deployment cluster-autoscaler -n kube-system --replicas=0\nadvance 1m\n",
        &format!("apply -f -\n{smaller}EOF\nadvance 5m\nget no\nget pods -o wide\n"),
    ]
    .concat()
}

/// S2.10, S2.11 and S2.12: at the prompt, too, it is seen that the drain of a group's node waits for the budget.
#[test]
fn s2_11_evictions_that_a_budget_refuses_are_seen_and_tried_again() {
    let ended = whittle(&["local", "--cluster", "prd-eks", "--region", "ap-southeast-1", "--kubernetes-version", "1.26"], &migration());
    assert!(ended.status.success(), "{}", err(&ended));
    let all = out(&ended);
    let (_, text) = all.split_once("clusterconfig/prd-eks configured\n").unwrap_or_else(|| panic!("{all}"));
    let at = |words: &[&str]| {
        let found = text.lines().position(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("no line has {words:?}:\n{text}"))
    };
    let given_up = at(&["node group worknode gives up", "cordoned, draining"]);
    let refused = at(&["the eviction of default/nginx", "is refused", "nginx-pdb needs 2 healthy pods and has 2 currently"]);
    assert!(given_up < refused, "{text}");
    let evicted: Vec<&str> = text.lines().filter(|line| line.contains("is drained: ")).collect();
    assert_eq!(evicted.len(), 2, "once before and once after the refusal: {text}");
    assert!(evicted[1].contains("nginx") && refused < at(&[evicted[1]]) && at(&[evicted[1]]) < at(&["is gone"]), "{text}");
    // What runs is counted in every line about the Deployment.
    for line in text.lines().filter(|line| line.contains("deployment default/nginx-to-scaleout: ")) {
        let running = line.split("nginx-to-scaleout: ").nth(1).unwrap().split(' ').next().unwrap().parse::<u32>().unwrap();
        assert!((2..=4).contains(&running), "{text}");
    }
    let pods: Vec<&str> = text.lines().filter(|line| line.starts_with("nginx-to-scaleout-") && line.contains("Running")).collect();
    assert_eq!(pods.len(), 4, "{text}");
    let nodes = text.lines().filter(|line| line.contains("t3.medium") && line.contains("Ready")).count();
    assert_eq!(nodes, 2, "no node is made: {text}");
    assert!(!text.contains("EC2 starts"), "{text}");
}

/// A pool of one type with local disks, whose class says `policy` of them.
fn with_local_disks(family: &str, policy: &str) -> String {
    format!(
        "apply -f -\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: disks}}\nspec: {{template: {{spec: {{nodeClassRef: {{group: \
         karpenter.k8s.aws, kind: EC2NodeClass, name: disks}}, requirements: [{{key: node.kubernetes.io/instance-type, operator: In, values: \
         [m5d.xlarge]}}]}}}}}}\n---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: disks}}\nspec: {{role: r, {policy}\
         amiSelectorTerms: [{{alias: {family}@latest}}], subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: karpenter-demo}}}}], \
         securityGroupSelectorTerms: [{{tags: {{karpenter.sh/discovery: karpenter-demo}}}}]}}\nEOF\n"
    )
}

/// What a machine is planned with, its Node has: all of it, for every family, with and without local disks.
#[test]
fn a_node_registers_with_the_size_that_was_planned() {
    for family in ["al2023", "al2", "bottlerocket"] {
        let mut storage = Vec::new();
        for policy in ["", "instanceStorePolicy: RAID0, "] {
            let begun = format!("{}{}advance 5m\n", with_local_disks(family, policy), deployment("web", 1, "1", ""));
            let (claim, node) = (session(&format!("{begun}get nodeclaims -o json\n")), session(&format!("{begun}get nodes -o json\n")));
            let (claim, node) = (last_json(&claim), last_json(&node));
            for list in [&claim, &node] {
                assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{family} {policy}: {list}");
            }
            let status = |list: &Value, part: &str| list["items"][0]["status"][part].clone();
            for part in ["capacity", "allocatable"] {
                assert_eq!(status(&node, part), status(&claim, part), "{family} {policy}");
            }
            storage.push(status(&node, "capacity")["ephemeral-storage"].to_string());
        }
        assert_eq!(storage[1], "\"150G\"", "{family}: the disk of an m5d.xlarge");
        assert_ne!(storage[0], storage[1], "{family}");
    }
}

/// The nodes that some commands lead to, by name.
#[track_caller]
fn nodes_after(commands: &str) -> Vec<String> {
    session(&format!("{commands}get no -o name\n"))
        .lines()
        .filter_map(|line| line.strip_prefix("node/"))
        .filter(|name| !name.contains(' '))
        .map(str::to_owned)
        .collect()
}

/// S3.13, S3.14: pods come to nodes of their own, and each protection by annotation works by hand, and ends.
#[test]
fn s3_13_annotations_at_the_prompt_protect_nodes_and_no_longer_when_they_go() {
    let file = std::fs::read_to_string(seed("003-workload-do-not-disrupt.yaml")).unwrap();
    let pool = std::fs::read_to_string(seed("003-state-alpha.yaml")).unwrap();
    let mut commands = format!("apply -f {}\n", seed("003-state-alpha.yaml"));
    let mut nodes: Vec<String> = Vec::new();
    for part in file.split("\n---\n") {
        commands.push_str(&format!("apply -f -\n{part}\nEOF\nadvance 3m\n"));
        let there = nodes_after(&commands);
        let new = there.into_iter().find(|name| !nodes.contains(name)).expect("the others are closed");
        commands.push_str(&format!("kubectl cordon {new}\n"));
        nodes.push(new);
    }
    let [evict, disrupt, by_hand] = nodes.as_slice() else { panic!("{nodes:?}") };
    commands.push_str(&format!("kubectl uncordon {evict} {disrupt} node/{by_hand}\n"));
    commands.push_str(&format!("kubectl annotate node {by_hand} karpenter.sh/do-not-disrupt=true\napply -f -\n"));
    commands.push_str(&format!("{}\nEOF\nadvance 10m\n", pool.replace("team-a", "team-b")));
    let explained = session(&format!("{commands}explain {evict}\nexplain {disrupt}\nexplain {by_hand}\nget no -o name\n"));
    for says in [
        "kept: annotation karpenter.sh/do-not-evict of pod default/old-do-not-evict",
        "kept: annotation karpenter.sh/do-not-disrupt of pod default/new-do-not-disrupt",
        "kept: its annotation karpenter.sh/do-not-disrupt is \"true\"",
    ] {
        assert!(explained.contains(says), "{says}: {explained}");
    }
    assert!(nodes.iter().all(|name| explained.contains(&format!("\nnode/{name}\n"))), "{explained}");
    assert!(!explained.contains("Drifted"), "nothing is disrupted: {explained}");
    let text = session(&format!("{commands}kubectl annotate node/{by_hand} karpenter.sh/do-not-disrupt-\nadvance 10m\nget no\n"));
    let (_, after) = text.rsplit_once("STATUS").unwrap();
    assert!(after.contains(evict.as_str()) && after.contains(disrupt.as_str()) && !after.contains(by_hand.as_str()), "{text}");
    assert!(text.contains("Drifted: replace: "), "{text}");
}

#[test]
fn labels_and_taints_are_changed_as_with_kubectl_or_not_at_all() {
    let begun = format!("apply -f {}\nadvance 5s\n", seed("001-state-nodes.yaml"));
    let node = nodes_after(&begun).into_iter().next().unwrap();
    let text = session(&format!(
        "{begun}label node {node} team=a tier=x\nlabel node/{node} team=a\nlabel no --all team=b --overwrite\nlabel node {node} tier-\n\
         get no -l team=b,!tier -o name\ntaint node {node} team=a:NoSchedule\ntaint nodes {node} team=b:NoSchedule --overwrite\n\
         get no -o wide\ntaint node {node} team:NoSchedule-\nget no -o wide\ncordon {node}\ncordon node/{node}\nuncordon {node}\n"
    ));
    let said: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&format!("node/{node}"))).collect();
    let words = [" created", " labeled", " unchanged", " labeled", " unlabeled", "", " tainted", " tainted", " untainted"];
    assert_eq!(said, [&words[..], &[" cordoned", " already cordoned", " uncordoned"]].concat(), "{text}");
    assert_eq!(text.matches("team=b:NoSchedule").count(), 1, "once, before it was removed: {text}");
    for (command, says) in [
        (format!("label node {node} kubernetes.io/os=windows"), "has kubernetes.io/os=linux already: add --overwrite"),
        (format!("label node {node} a/b/c=d"), "is no label key"),
        (format!("label node {node} a=?"), "is no label value"),
        (format!("label node {node}"), "say what to change"),
        ("label nodes a=b".to_owned(), "name what to label"),
        ("annotate node nothing a=b".to_owned(), "there is no node \"nothing\""),
        (format!("taint node {node} a=b"), "has no effect: write a=b:NoSchedule"),
        (format!("taint node {node} a=b:NoExecute"), "delete the pods"),
        (format!("taint node {node} a:No"), "is no effect of a taint"),
        (format!("taint node {node} a-"), "it has no taint a"),
        ("taint pods/x a:NoSchedule".to_owned(), "there is no pod"),
        ("cordon nothing".to_owned(), "there is no node \"nothing\""),
    ] {
        let refused = whittle(&["local"], &format!("{begun}{command}\n"));
        assert_eq!(refused.status.code(), Some(2), "{command}: {}", out(&refused));
        assert!(err(&refused).contains(says), "{command}: {}", err(&refused));
    }
    let old = format!("apply -f {}\nannotate provisioner default a=b\n", seed("004-provisioner-default.yaml"));
    assert!(err(&whittle(&["local"], &old)).contains("provisioners are not changed in place"), "{}", err(&whittle(&["local"], &old)));
}

/// As the scheduler does: a volume is in one zone, and a claim has to be there.
#[test]
fn a_pod_waits_for_its_claim_and_runs_where_its_volume_is() {
    let start = format!("apply -f {} -f {}\n", seed("003-ec2nodeclass-v1beta1.yaml"), seed("003-nodepool-v1beta1.yaml"));
    let web = deployment("web", 2, "1", "");
    let pod = "apply -f -\n{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: \
               data}}], containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}}\nEOF\n";
    let missing = session(&format!("{start}{web}{pod}advance 5m\nget pods\nexplain db\n"));
    let shown = missing.lines().find(|line| line.starts_with("db ")).unwrap();
    assert!(shown.contains("Pending"), "{missing}");
    assert!(missing.contains("persistentvolumeclaim \"data\" not found"), "{missing}");
    let claim = "apply -f -\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: now}, provisioner: ebs.csi.aws.com, \
                 volumeBindingMode: Immediate}\n---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {storageClassName: \
                 now, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}\nEOF\n";
    let unbound = session(&format!("{start}{web}{claim}{pod}advance 5m\nget pods\nexplain db\n"));
    assert!(unbound.lines().any(|line| line.starts_with("db ") && line.contains("Pending")), "{unbound}");
    assert!(unbound.contains("pod has unbound immediate PersistentVolumeClaims"), "{unbound}");
    let volume = |zone: &str| {
        format!(
            "apply -f -\n{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: v}}, spec: {{csi: {{driver: ebs.csi.aws.com}}, nodeAffinity: {{required: \
             {{nodeSelectorTerms: [{{matchExpressions: [{{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}]}}]}}}}}}}}\n---\n{{apiVersion: v1, kind: \
             PersistentVolumeClaim, metadata: {{name: data, annotations: {{pv.kubernetes.io/bind-completed: 'yes'}}}}, spec: {{volumeName: v}}, status: {{phase: Bound}}}}\nEOF\n"
        )
    };
    let text = session(&format!("{start}{web}advance 5m\nget nodes\n"));
    let zone = text.split_whitespace().rfind(|word| word.starts_with("us-east-1")).unwrap().to_owned();
    let other = ["us-east-1a", "us-east-1b"].into_iter().find(|one| *one != zone).unwrap();
    for zone in [zone.as_str(), other] {
        let text = session(&format!("{start}{web}{}{pod}advance 8m\nget pods -o wide\nget nodes\n", volume(zone)));
        let (_, listed) = text.rsplit_once("NAME ").unwrap();
        let row = text.lines().rev().find(|line| line.starts_with("db ")).unwrap();
        let node = row.split_whitespace().find(|word| word.starts_with("ip-")).unwrap_or_else(|| panic!("{text}"));
        let node = listed.lines().find(|line| line.starts_with(node)).unwrap_or_else(|| panic!("{text}"));
        assert!(node.contains(zone), "{text}");
    }
}
