//! Workloads whose pods are not among the manifests: `plan` and `explain` plan their pods.

use crate::{err, out, seed, tests, whittle};
use std::process::Output;

fn metadata(name: &str, owner: &str) -> String {
    format!("metadata: {{name: {name}, labels: {{app: web}}{owner}}}\n")
}

const POD_SPEC: &str = "{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}";

fn workload(kind: &str, name: &str, more: &str) -> String {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    format!(
        "apiVersion: {version}\nkind: {kind}\n{}spec: {{{more}selector: {{matchLabels: {{app: web}}}}, \
         template: {{metadata: {{labels: {{app: web}}}}, spec: {POD_SPEC}}}}}\n",
        metadata(name, "")
    )
}

fn owned(pod: &str, kind: &str, owner: &str, more: &str) -> String {
    let owner = format!(", ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: {owner}, controller: true}}]");
    format!("apiVersion: v1\nkind: Pod\n{}spec: {POD_SPEC}\n{more}", metadata(pod, &owner))
}

fn run(command: &[&str], documents: &[String]) -> Output {
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let pool = seed("004-provisioner-default.yaml");
    let words = [command, &["-f", "-", "-f", &pool, "--instance-types", &catalog]].concat();
    whittle(&words, &documents.join("---\n"))
}

/// Checks the number of planned pods, and that standard error contains `says`.
#[track_caller]
fn planned(options: &[&str], documents: &[String], pods: &str, says: &str) -> String {
    let output = run(&[&["plan"], options].concat(), documents);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).starts_with(&format!("{pods} pods placed")), "{}{}", out(&output), err(&output));
    assert!(err(&output).contains(says), "does not say {says:?}: {}", err(&output));
    err(&output)
}

#[test]
fn the_pod_that_is_explained_is_named_among_those_of_its_machine() {
    let (web, pool) = (workload("Deployment", "web", "replicas: 9, "), seed("004-provisioner-default.yaml"));
    for (pod, pods) in [
        ("web-9", "default/web-9, default/web-1, default/web-2, default/web-3, default/web-4, and 4 more"),
        ("web-5", "default/web-1, default/web-2, default/web-3, default/web-4, default/web-5, and 4 more"),
    ] {
        let output = whittle(&["explain", pod, "-f", "-", "-f", &pool, "--region", "us-east-1"], &web);
        assert!(out(&output).contains(&format!("\n  pods: {pods}\n")), "{pod}: {}{}", out(&output), err(&output));
    }
}

#[test]
fn the_pods_of_workloads_are_planned() {
    let deployment = [workload("Deployment", "web", "replicas: 5, ")];
    planned(&[], &deployment, "5 of 5", "Deployment default/web: 5 pods that are not among the manifests, planned as pending");
    planned(&[], &[workload("Deployment", "web", "")], "1 of 1", "1 pod that is");
    planned(&[], &[workload("ReplicaSet", "web", "replicas: 2, ")], "2 of 2", "ReplicaSet default/web");
    planned(&[], &[workload("Job", "web", "parallelism: 4, completions: 3, ")], "3 of 3", "Job default/web");
    planned(&[], &[workload("Job", "web", "suspend: true, ")], "0 of 0", "Job default/web has no replicas");
    let claims = workload("StatefulSet", "db", "replicas: 3, volumeClaimTemplates: [{metadata: {name: data}}], ");
    planned(&[], &[claims], "3 of 3", "without the volumes that it claims for each");
    // A DaemonSet is counted on every machine.
    planned(&[], &[workload("DaemonSet", "agent", "")], "0 of 0", "");
    let says = "warning: no pods are planned for batch/v1 CronJob default/nightly, which is of no kind that is read here";
    let said = planned(&[], &[workload("CronJob", "nightly", "").replace("apps/v1", "batch/v1")], "0 of 0", says);
    assert!(!said.contains("skipped CronJob"), "{said}");
    let old = workload("Deployment", "web", "").replace("apps/v1", "extensions/v1beta1");
    let said = planned(&[], &[old], "0 of 0", "did you mean apps/v1 Deployment?");
    assert!(!said.contains("no pods are planned"), "{said}");
}

#[test]
fn the_pods_that_operators_would_make_are_warned_of_once_for_each_kind() {
    let object =
        |version: &str, kind: &str, name: &str| format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{}}\n");
    let topic = object("kafka.strimzi.io/v1", "KafkaTopic", "orders");
    let all = [object("kafka.strimzi.io/v1", "Kafka", "a"), object("kafka.strimzi.io/v1", "Kafka", "b"), topic.clone()];
    let says = "warning: no pods are planned for kafka.strimzi.io/v1 Kafka default/a, default/b, which is of no kind that is read here";
    let said = planned(&[], &all, "0 of 0", says);
    assert_eq!(said.matches("no pods are planned").count(), 1, "{said}");
    assert!(said.contains("note: skipped kafka.strimzi.io/v1 KafkaTopic orders"), "{said}");
    let document = out(&run(&["plan", "-o", "json"], &all));
    let warned = document.lines().any(|line| line.contains("\"message\": \"no pods are planned for kafka.strimzi.io/v1 Kafka default/a"));
    assert!(warned, "{document}");
    let explained = out(&run(&["explain", "nodepool/default", "-o", "json"], &all));
    assert!(explained.contains("\"message\": \"no pods are planned for kafka.strimzi.io/v1 Kafka default/a"), "{explained}");
    // What a decision about nodes needs are the pods that there are.
    assert!(!err(&run(&["consolidate"], &all)).contains("no pods are planned"));
    assert!(!planned(&[], &[topic], "0 of 0", "").contains("no pods are planned"));
}

/// A dump has many that are scaled to zero, and Jobs that have ended.
#[test]
fn many_workloads_without_replicas_are_one_note() {
    let many: Vec<String> = (0..11).map(|at| workload("Deployment", &format!("web-{at:02}"), "replicas: 0, ")).collect();
    let note = "Deployment default/web-00, Deployment default/web-01, Deployment default/web-02 and 8 more have no replicas";
    let said = planned(&[], &many, "0 of 0", note);
    assert_eq!(said.matches("no replicas").count(), 1, "{said}");
    let said = planned(&[], &many[..2], "0 of 0", "Deployment default/web-01 has no replicas");
    assert_eq!(said.matches("has no replicas").count(), 2, "{said}");
}

#[test]
fn pods_that_ask_for_nothing_are_counted() {
    let with = |resources: &str| workload("Deployment", "web", "replicas: 2, ").replace("{requests: {cpu: 1}}", resources);
    let note = "note: 2 pods of workloads with neither CPU nor memory in resources.requests: no room is kept for what such pods use";
    planned(&[], &[with("{}")], "2 of 2", note);
    planned(&[], &[with("{requests: {ephemeral-storage: 1Gi}}")], "2 of 2", note);
    for resources in ["{requests: {cpu: 1}}", "{requests: {memory: 1Gi}}", "{limits: {cpu: 1}}"] {
        let said = planned(&[], &[with(resources)], "2 of 2", "");
        assert!(!said.contains("no room is kept"), "{resources}: {said}");
    }
}

#[test]
fn pods_that_ask_for_almost_no_memory_are_counted() {
    let with = |memory: &str| workload("Deployment", "web", "replicas: 2, ").replace("{cpu: 1}", &format!("{{cpu: 1, memory: {memory}}}"));
    for memory in ["512m", "512", "1000m"] {
        let said = planned(&[], &[with(memory)], "2 of 2", "note: 2 pods of workloads with less than 1Ki of memory in resources.requests");
        assert!(said.contains("such as 512Mi; m stands for thousandths"), "{said}");
    }
    for memory in ["512Mi", "1Ki", "209715200m", "0"] {
        let said = planned(&[], &[with(memory)], "2 of 2", "");
        assert!(!said.contains("1Ki of memory"), "{memory}: {said}");
    }
}

#[test]
fn pods_that_ask_for_very_many_cpus_are_counted() {
    let with = |cpus: &str| workload("Deployment", "web", "replicas: 2, ").replace("{cpu: 1}", &format!("{{cpu: {cpus}}}"));
    for cpus in ["100", "500", "500000m"] {
        let said = planned(&[], &[with(cpus)], "0 of 2", "note: 2 pods of workloads with 100 CPUs or more in resources.requests");
        assert!(said.contains("such as default/web-1 with ") && said.contains("write m behind the number, as in 500m"), "{said}");
    }
    for cpus in ["99", "500m", "1"] {
        let said = err(&run(&["plan"], &[with(cpus)]));
        assert!(!said.contains("100 CPUs"), "{cpus}: {said}");
    }
}

#[test]
fn containers_without_requests_have_those_of_their_namespace() {
    let web = workload("Deployment", "web", "replicas: 2, ").replace("{requests: {cpu: 1}}", "{}");
    let range = |amount: &str| {
        format!(
            "apiVersion: v1\nkind: LimitRange\nmetadata: {{name: defaults}}\nspec: {{limits: [{{type: Container, defaultRequest: {{cpu: \
             {amount}}}}}]}}\n"
        )
    };
    let said = planned(&[], &[web.clone(), range("700m")], "2 of 2", "2 pods that are not among the manifests");
    assert!(!said.contains("no room is kept") && !said.contains("skipped LimitRange"), "{said}");
    let none = range("700m").replace("name: defaults", "name: defaults, namespace: other");
    planned(&[], &[web.clone(), none], "2 of 2", "no room is kept for what such pods use");
    let refused = err(&run(&["plan"], &[web, range("much")]));
    assert!(refused.contains("LimitRange \"defaults\", spec.limits[0].defaultRequest.cpu: "), "{refused}");
    // So have pods of a file, but not those that a cluster has admitted already, maybe before there was a LimitRange.
    let pod = |name: &str, more: &str| {
        format!("apiVersion: v1\nkind: Pod\n{}spec: {{containers: [{{name: c, image: i}}]}}\n", metadata(name, more))
    };
    let requests = |documents: &[String]| {
        let output = run(&["plan", "-o", "json"], documents);
        let plan: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        plan["nodeClaims"][0]["requests"]["cpu"].as_str().unwrap_or("0").to_owned()
    };
    let with = |pod: &str| requests(&[pod.to_owned(), range("900m")]);
    let without = requests(&[pod("a", "")]);
    let written = with(&pod("a", ""));
    assert_ne!(written, without);
    assert_eq!(with(&pod("a", ", namespace: default")), written);
    assert_eq!(with(&pod("a", ", uid: u1")), without);
    assert_eq!(with(&(pod("a", "") + "status: {phase: Pending}\n")), without);
    let own = pod("a", "").replace("image: i", "image: i, resources: {requests: {cpu: 900m}}");
    assert_eq!(requests(&[own]), written, "as if it had been written");
}

/// Its pods have them on each machine. Of a DaemonSet that a cluster has, the newest pod counts, or else the template as it is.
#[test]
fn daemon_sets_of_files_take_what_a_limit_range_gives_their_pods() {
    let range =
        "{apiVersion: v1, kind: LimitRange, metadata: {name: d}, spec: {limits: [{type: Container, defaultRequest: {cpu: 700m}}]}}\n";
    let agent = workload("DaemonSet", "agent", "").replace("{requests: {cpu: 1}}", "{}");
    let requests = |agent: &str, range: &str| {
        let output = run(&["plan", "-o", "json"], &[workload("Deployment", "web", ""), agent.to_owned(), range.to_owned()]);
        let plan: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        plan["nodeClaims"][0]["requests"]["cpu"].as_str().unwrap().to_owned()
    };
    assert_eq!((requests(&agent, range), requests(&agent, "")), ("1700m".to_owned(), "1".to_owned()));
    assert_eq!(requests(&agent, &range.replace("name: d", "name: d, namespace: other")), "1");
    let own = agent.replace("resources: {}", "resources: {requests: {cpu: 200m}}");
    assert_eq!(requests(&own, range), "1200m");
    assert_eq!(requests(&agent.replace("metadata: {name: agent,", "metadata: {name: agent, uid: u1,"), range), "1");
}

/// Of a rendered chart that is planned which an installation creates.
#[test]
fn what_helm_creates_for_tests_alone_is_not_planned() {
    let hook = |events: &str| {
        let annotated = format!("name: probe, annotations: {{helm.sh/hook: {events}}},");
        [workload("Deployment", "web", "replicas: 2, "), workload("Job", "probe", "").replace("name: probe,", &annotated)]
    };
    let aside = "note: Job \"probe\" left aside: by the annotation helm.sh/hook Helm creates this for a test";
    let said = planned(&[], &hook("test"), "2 of 2", aside);
    assert!(!said.contains("Job default/probe"), "{said}");
    planned(&[], &hook("'pre-install,pre-upgrade'"), "3 of 3", "note: Job \"probe\" planned as if it stayed: ");
}

/// Where a volume is, or may be, there the pod of its StatefulSet goes; with a cluster's own claims, too.
#[test]
fn the_pods_of_a_statefulset_go_where_their_volumes_are() {
    let class = "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: gp3}, provisioner: ebs.csi.aws.com, \
                 volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, \
                 values: [us-east-1b]}]}]}\n"
        .to_owned();
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-1, annotations: {pv.kubernetes.io/bind-completed: \
                 'yes'}}, spec: {storageClassName: gp3, volumeName: pv1}}\n"
        .to_owned();
    let volume = "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv1}, spec: {csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}, \
                  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: \
                  [us-east-1c]}]}]}}}}\n"
        .to_owned();
    let templates = "volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: gp3}}], ";
    let db = |replicas: usize| workload("StatefulSet", "db", &format!("replicas: {replicas}, {templates}"));
    let zones = |replicas: usize, more: &[String]| {
        let output = run(&["plan"], &[vec![db(replicas)], more.to_vec()].concat());
        let (said, answer) = (err(&output), out(&output));
        assert!(answer.starts_with(&format!("{replicas} of {replicas} pods placed")), "{answer}{said}");
        assert_eq!(said.contains("without the volumes that it claims"), more.is_empty(), "{said}");
        ["us-east-1b", "us-east-1c"].map(|zone| answer.contains(&format!("narrowed by its pods: topology.kubernetes.io/zone In [{zone}]")))
    };
    assert_eq!(zones(1, std::slice::from_ref(&class)), [true, false]);
    // One that is ending leaves its volume to the pod that takes its place.
    let ending = owned("db-0", "StatefulSet", "db", "")
        .replace("labels: {app: web}", "labels: {app: web}, deletionTimestamp: '2030-01-01T00:00:00Z'")
        .replace("spec: {containers", "spec: {nodeName: node-1, containers");
    let own_claim = claim.replace("data-db-1", "data-db-0");
    assert_eq!(zones(1, &[class.clone(), own_claim, volume.clone(), ending]), [false, true]);
    assert_eq!(zones(2, &[class, claim, volume]), [true, true]);
    assert_eq!(zones(2, &[]), [false, false]);
    // What the template says of a volume that is claimed does not count: no cluster has a claim of that name.
    let own = db(1).replace("containers: [", "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}], containers: [");
    planned(&[], &[own], "1 of 1", "without the volumes that it claims for each");
    let large = db(1).replace("storageClassName: gp3", "resources: {requests: {storage: much}}");
    let refused = err(&run(&["plan"], &[large]));
    assert!(refused.contains("StatefulSet \"db\", spec.volumeClaimTemplates[0].spec.resources.requests.storage: "), "{refused}");
}

fn autoscaler(target: &str, least: usize, most: usize) -> String {
    format!(
        "{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: {target}}}, spec: {{minReplicas: {least}, \
         maxReplicas: {most}, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {target}}}}}}}\n"
    )
}

/// Charts leave `spec.replicas` out where an autoscaler sets it.
#[test]
fn workloads_have_the_replicas_that_their_autoscalers_keep() {
    let web = |replicas: &str| workload("Deployment", "web", replicas);
    let raised = "Deployment default/web counts with 3 replicas instead of 1: HorizontalPodAutoscaler default/web keeps 3 to 9";
    let said = planned(&[], &[web(""), autoscaler("web", 3, 9)], "3 of 3", raised);
    assert!(!said.contains("skipped autoscaling"), "{said}");
    planned(&[], &[autoscaler("web", 3, 9), web("replicas: 12, ")], "9 of 9", "counts with 9 replicas instead of 12");
    planned(&[], &[autoscaler("web", 1, 1), web("replicas: 2, ")], "1 of 1", "counts with 1 replica instead of 2: ");
    let said = planned(&[], &[web("replicas: 5, "), autoscaler("web", 3, 9), autoscaler("other", 3, 9)], "5 of 5", "");
    assert!(!said.contains("counts with"), "{said}");
    // One without replicas is switched off, and who names a number means it.
    planned(&[], &[web("replicas: 0, "), autoscaler("web", 3, 9)], "0 of 0", "has no replicas");
    let said = planned(&["--replicas", "web=2"], &[web(""), autoscaler("web", 3, 9)], "2 of 2", "2 pods");
    assert!(!said.contains("counts with"), "{said}");
    let keda = autoscaler("web", 3, 9)
        .replace("autoscaling/v2", "keda.sh/v1alpha1")
        .replace("HorizontalPodAutoscaler", "ScaledObject")
        .replace("Replicas", "ReplicaCount");
    planned(&[], &[web("replicas: 0, "), keda], "3 of 3", "ScaledObject default/web keeps 3 to 9");
    // No server has it any more, and nothing scales by it.
    let old = autoscaler("web", 3, 9).replace("autoscaling/v2", "autoscaling/v2beta2");
    planned(&[], &[web(""), old], "1 of 1", "did you mean autoscaling/v2 HorizontalPodAutoscaler?");
    // Pods that there are, are none of those that it adds.
    let there = [web("replicas: 1, "), autoscaler("web", 3, 9), owned("web-5d9-a", "ReplicaSet", "web-5d9", "")];
    planned(&[], &there, "3 of 3", "2 pods that are not among the manifests besides the 1 that is");
    let more = [
        web("replicas: 2, "),
        autoscaler("web", 1, 1),
        owned("web-5d9-a", "ReplicaSet", "web-5d9", ""),
        owned("web-5d9-b", "ReplicaSet", "web-5d9", ""),
    ];
    planned(&[], &more, "2 of 2", "has 2 pods among the manifests: 1 replica takes none of them away");
    let many: Vec<String> = (0..11).map(|at| workload("Deployment", &format!("web-{at:02}"), "")).collect();
    let scaled: Vec<String> = (0..11).map(|at| autoscaler(&format!("web-{at:02}"), 2, 9)).collect();
    let note = "Deployment default/web-00, Deployment default/web-01, Deployment default/web-02 and 8 more count with the replicas that";
    planned(&[], &[many, scaled].concat(), "22 of 22", note);
}

#[test]
fn many_workloads_are_told_together() {
    let of =
        |number: usize| -> Vec<String> { (0..number).map(|at| workload("Deployment", &format!("web-{at:02}"), "replicas: 2, ")).collect() };
    let each = planned(&[], &of(10), "20 of 20", "Deployment default/web-09: 2 pods that are not among the manifests");
    assert_eq!(each.matches("planned as pending").count(), 10, "{each}");
    let mut many = of(11);
    many.push(workload("StatefulSet", "db", "replicas: 3, volumeClaimTemplates: [{metadata: {name: data}}], "));
    many.push(workload("Deployment", "none", "replicas: 0, "));
    let says = "note: StatefulSet default/db, Deployment default/web-00, Deployment default/web-01 and 9 more: 25 pods that are not among \
                the manifests, planned as pending; those of StatefulSets without the volumes that these claim for each";
    let said = planned(&[], &many, "25 of 25", says);
    assert_eq!(said.matches("planned as pending").count(), 1, "{said}");
    assert!(said.contains("Deployment default/none has no replicas"), "{said}");
}

#[test]
fn pods_among_the_manifests_are_not_planned_twice() {
    let running = "status: {phase: Running}\n";
    let deployment = workload("Deployment", "web", "replicas: 2, ");
    let pods = [owned("web-5d9-a", "ReplicaSet", "web-5d9", ""), owned("web-5d9-b", "ReplicaSet", "web-5d9", "")];
    let all = [vec![deployment.clone()], pods.to_vec()].concat();
    let said = planned(&[], &all, "2 of 2", "");
    assert!(!said.contains("not among the manifests"), "{said}");
    // The same with the ReplicaSet, and with one of an older version, which has none.
    let set = |name: &str, replicas: &str| {
        workload("ReplicaSet", name, replicas).replace(
            "labels: {app: web}}\nspec",
            "labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web}]}\nspec",
        )
    };
    let with_sets = [all.clone(), vec![set("web-5d9", "replicas: 2, "), set("web-old", "replicas: 0, ")]].concat();
    let said = planned(&[], &with_sets, "2 of 2", "");
    assert!(!said.contains("ReplicaSet"), "{said}");
    // Only the missing ones are added. Pods that have ended are none of them.
    let ended = owned("web-5d9-b", "ReplicaSet", "web-5d9", "status: {phase: Failed}\n");
    planned(&[], &[deployment.clone(), pods[0].clone(), ended], "2 of 2", "1 pod that is not among the manifests besides the 1");
    // A ReplicaSet of its own, and a Deployment whose name is the beginning of its name.
    let own = [workload("ReplicaSet", "web-own", "replicas: 1, "), owned("web-own-a", "ReplicaSet", "web-own", ""), deployment];
    planned(&[], &own, "3 of 3", "Deployment default/web: 2 pods");
    let stateful = [workload("StatefulSet", "db", "replicas: 2, "), owned("db-0", "StatefulSet", "db", running)];
    let output = run(&["explain", "db-1"], &stateful);
    assert!(out(&output).contains("default/db-1 needs a new machine"), "{}{}", out(&output), err(&output));
}

#[test]
fn another_number_of_replicas_may_be_asked_for() {
    let web = [workload("Deployment", "web", "replicas: 0, ")];
    planned(&[], &web, "0 of 0", "Deployment default/web has no replicas");
    planned(&["--replicas", "web=20"], &web, "20 of 20", "20 pods");
    planned(&["--replicas", "default/web=2"], &web, "2 of 2", "2 pods");
    for name in ["deploy/web", "deployments/web", "Deployment/default/web"] {
        planned(&["--replicas", &format!("{name}=2")], &web, "2 of 2", "2 pods");
    }
    let two = [workload("Deployment", "web", "replicas: 3, "), workload("Deployment", "api", "replicas: 1, ")];
    planned(&["--replicas", "web=1", "--replicas", "api=0"], &two, "1 of 1", "Deployment default/api has no replicas");
    let with_pods = [web[0].clone(), owned("web-1", "ReplicaSet", "web-5d9", "")];
    planned(&["--replicas", "web=3"], &with_pods, "3 of 3", "2 pods that are not among the manifests besides the 1 that is");
    planned(&["--replicas", "web=0"], &with_pods, "1 of 1", "has 1 pod among the manifests: 0 replicas take none of them away");

    let refused = |options: &[&str], documents: &[String], says: &[&str]| {
        let output = run(options, documents);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", err(&output));
        says.iter().for_each(|text| assert!(err(&output).contains(text), "{options:?} does not say {text:?}: {}", err(&output)));
    };
    let job = [workload("Job", "sums", "parallelism: 1, ")];
    refused(&["plan", "--replicas", "jobs/sums=3"], &job, &["Job default/sums has no replicas: change its spec.parallelism"]);
    for other in ["web=3", "default/web=3"] {
        let both = ["plan", "--replicas", "web=2", "--replicas", other];
        refused(&both, &web, &[&format!("--replicas {other}: Deployment default/web is to have 2 replicas already: write one number")]);
    }
    planned(&["--replicas", "web=2", "--replicas", "default/web=2"], &web, "2 of 2", "2 pods");
    refused(&["plan", "--replicas", "wbe=3"], &web, &["--replicas wbe=3", "no workload", "Deployment default/web"]);
    let twins = [web[0].clone(), workload("StatefulSet", "web", "")];
    refused(&["plan", "--replicas", "web=3"], &twins, &["Deployment default/web, StatefulSet default/web"]);
    refused(&["consolidate", "--replicas", "web=3"], &web, &["use plan or explain"]);
    for wrong in ["web=-3", "web=many", "web", "=3", "web=2000000000"] {
        refused(&["plan", &format!("--replicas={wrong}")], &web, &["--replicas"]);
    }
    let negative = run(&["plan"], &[workload("Deployment", "web", "replicas: -3, ")]);
    assert_eq!(negative.status.code(), Some(1));
    assert!(err(&negative).contains("spec.replicas: -3 replicas cannot be"), "{}", err(&negative));
}

#[test]
fn consolidation_sees_only_the_pods_that_there_are() {
    let output = run(&["consolidate"], &[workload("Deployment", "web", "replicas: 5, ")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(!err(&output).contains("planned as pending"), "{}", err(&output));
}

#[test]
fn a_replicaset_without_owner_belongs_to_the_deployment_of_its_name_and_hash() {
    let hashed = |owner: &str| format!("labels: {{app: web, pod-template-hash: 5d9}}{owner}}}\nspec");
    let set = |owner: &str| workload("ReplicaSet", "web-5d9", "replicas: 2, ").replace("labels: {app: web}}\nspec", &hashed(owner));
    let pods = [owned("web-5d9-a", "ReplicaSet", "web-5d9", ""), owned("web-5d9-b", "ReplicaSet", "web-5d9", "")];
    let with = |set: String| [vec![workload("Deployment", "web", "replicas: 2, "), set], pods.to_vec()].concat();
    let said = planned(&[], &with(set("")), "2 of 2", "");
    assert!(!said.contains("not among the manifests"), "{said}");
    // One that says that another owns it, and one without the hash, are others.
    planned(
        &[],
        &with(set(", ownerReferences: [{apiVersion: x/v1, kind: Rollout, name: web}]")),
        "4 of 4",
        "Deployment default/web: 2 pods",
    );
    planned(&[], &with(workload("ReplicaSet", "web-5d9", "replicas: 2, ")), "4 of 4", "Deployment default/web: 2 pods");
}

/// What a prompt lists of a Deployment is planned as its cluster has it.
#[test]
fn a_dump_of_the_prompt_counts_pods_once() {
    let (pool, web) = (seed("004-provisioner-default.yaml"), seed("004-deployment-inflate.yaml"));
    let commands = format!("apply -f {pool} -f {web}\nscale deploy inflate --replicas 3\nadvance 5m\nget deploy,rs,po,no -o yaml\n");
    let text = out(&whittle(&["local", "--kubernetes-version", "1.24"], &commands));
    let dump = text.split_once("apiVersion: v1\n").map(|(_, rest)| format!("apiVersion: v1\n{rest}")).unwrap_or_else(|| panic!("{text}"));
    assert!(dump.contains("kind: ReplicaSet") && dump.contains("kind: Deployment"), "{dump}");
    let said = planned(&[], &[dump], "0 of 0", "");
    assert!(!said.contains("not among the manifests"), "{said}");
}

#[test]
fn pods_of_another_template_are_named() {
    let running = |name: &str, requests: &str, more: &str| {
        let pod = owned(name, "ReplicaSet", "web-5d9", "status: {phase: Running}\n");
        pod.replace("spec: {", &format!("spec: {{nodeName: n1, {more}")).replace("{cpu: 1}", requests)
    };
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {node.kubernetes.io/instance-type: c5.2xlarge, \
                topology.kubernetes.io/zone: us-west-2a, karpenter.sh/capacity-type: on-demand}}\n\
                status: {allocatable: {cpu: 8, memory: 15Gi, pods: 58}}\n"
        .to_owned();
    let web = |replicas: usize, cpu: &str| workload("Deployment", "web", &format!("replicas: {replicas}, ")).replace("{cpu: 1}", cpu);
    let old = |count: usize| (0..count).map(|number| running(&format!("web-5d9-{number}"), "{cpu: 1}", "")).collect::<Vec<_>>();
    let all = [vec![node.clone(), web(6, "{cpu: 3}")], old(5)].concat();
    let note = "Deployment default/web: 5 of its pods have another template than it has now; planned as if only 1 of its 6 were new";
    planned(&[], &all, "1 of 1", note);
    let compared = run(&["compare"], &all);
    let note = "Deployment default/web: 5 of its pods have another template than it has now; they count as they are";
    assert!(err(&compared).contains(note), "{}{}", out(&compared), err(&compared));
    planned(&[], &[vec![node.clone(), web(1, "{cpu: 3}")], old(1)].concat(), "0 of 0", "1 of its pods has another template");
    // What admission adds is no other template: tolerations, selectors, containers, requests by default.
    let admitted = [
        running("web-5d9-a", "{cpu: 1}", "nodeSelector: {a: b}, tolerations: [{operator: Exists}], "),
        running("web-5d9-b", "{cpu: 1}", "").replace("containers: [", "containers: [{name: proxy, resources: {requests: {cpu: 100m}}}, "),
    ];
    let said = planned(&[], &[vec![node.clone(), web(2, "{cpu: 1000m}")], admitted.to_vec()].concat(), "0 of 0", "");
    assert!(!said.contains("another template"), "{said}");
    let said = planned(&[], &[vec![node.clone(), web(1, "{}")], vec![running("web-5d9-c", "{cpu: 100m}", "")]].concat(), "0 of 0", "");
    assert!(!said.contains("another template"), "{said}");
    // Nor is what a LimitRange gives beside the template's own, whatever that was when the pod was made.
    let range = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: defaults}\nspec: {limits: [{type: Container, defaultRequest: \
                 {memory: 1Gi}}]}\n";
    let with =
        |cpu: &str, range: &str| vec![node.clone(), web(1, cpu), running("web-5d9-d", "{cpu: 1, memory: 512Mi}", ""), range.to_owned()];
    let said = planned(&[], &with("{cpu: 1}", range), "0 of 0", "");
    assert!(!said.contains("another template"), "{said}");
    let elsewhere = range.replace("name: defaults", "name: defaults, namespace: other");
    for documents in [with("{cpu: 2}", range), with("{cpu: 1}", &elsewhere)] {
        planned(&[], &documents, "0 of 0", "1 of its pods has another template");
    }
}

/// The names that users write, for a Deployment that is only in a file, too.
#[test]
fn a_workload_of_a_file_is_explained_by_its_name() {
    let web = workload("Deployment", "web", "replicas: 2, ");
    for name in ["deployment/web", "web", "deployment/default/web"] {
        let output = run(&["explain", name], std::slice::from_ref(&web));
        assert!(out(&output).starts_with("deployment/default/web: 2 pods\n"), "{name}: {}{}", out(&output), err(&output));
    }
    let elsewhere = web.replace("name: web, labels", "name: web, namespace: shop, labels");
    let both = [web, elsewhere];
    let output = run(&["explain", "deployment/web"], &both);
    assert!(err(&output).contains("may be any of deployment/default/web, deployment/shop/web"), "{}{}", out(&output), err(&output));
    for name in ["deployment/web", "web"] {
        let output = run(&["explain", name, "-n", "shop"], &both);
        assert!(out(&output).starts_with("deployment/shop/web: 2 pods\n"), "{name}: {}{}", out(&output), err(&output));
    }
}

/// S0.3: with EKS' switch among the manifests a pod of Windows takes an address of its machine, in a plan as in a cluster.
#[test]
fn pods_of_windows_request_addresses_once_these_are_switched_on() {
    let [pods, pool, switch] =
        ["000-deployment-iis-2022.yaml", "000-provisioner-windows2022.yaml", "000-configmap-amazon-vpc-cni.yaml"].map(seed);
    let replicas = "--replicas=windows-server-iis-simple-2022=10";
    let usual = ["plan", "-f", &pods, "-f", &pool, "--region", "us-east-1", replicas];
    for (arguments, expected) in [(usual.to_vec(), false), ([&usual[..], &["-f", &switch]].concat(), true)] {
        let output = whittle(&arguments, "");
        assert!(out(&output).starts_with("10 of 10 pods placed"), "{}{}", out(&output), err(&output));
        assert_eq!(out(&output).contains("vpc.amazonaws.com/PrivateIPv4Address 10"), expected, "{}", out(&output));
    }
}

#[test]
fn explain_says_how_many_new_machines_the_pods_of_a_workload_share() {
    let explained = |cpu: &str| {
        let web = workload("Deployment", "web", "replicas: 4, ").replace("{cpu: 1}", cpu);
        out(&run(&["explain", "deployment/web"], &[web]))
    };
    let small = explained("{cpu: 100m}");
    assert!(small.contains("\n4 pods: default/web-1, default/web-2, default/web-3, default/web-4\nall go to one new machine\n"), "{small}");
    assert!(!small.contains("each needs") && !small.contains("new machines"), "{small}");
    let large = explained("{cpu: 7}");
    let machines = large.matches("\nnew machine from nodepool default: ").count();
    assert!(1 < machines && large.contains(&format!("\n  4 pods go to {machines} new machines\n")), "{large}");
}
