//! The prompt of `whittle local`: it takes kubectl's lines as the walkthroughs print them, applies files together or not at all, and
//! explains what is gone.

use crate::{err, out, seed, whittle};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn demo(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/local/demo").join(name).display().to_string()
}

#[test]
fn several_files_are_applied_together_or_not_at_all() {
    let wrong = std::env::temp_dir().join(format!("whittle-half-{}.yaml", std::process::id()));
    std::fs::write(
        &wrong,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {requests: {cpu: abc}}}]}\n",
    )
    .unwrap();
    let session = whittle(&["local"], &format!("apply -f {} {} /no/such/file.yaml\n", demo("pool.yaml"), wrong.display()));
    assert_eq!(session.status.code(), Some(2));
    assert_eq!(out(&session), "", "nothing of the first file is applied");
    assert!(
        err(&session).contains("abc") && err(&session).contains("/no/such/file.yaml: cannot be read: No such file"),
        "{}",
        err(&session)
    );
    std::fs::remove_file(&wrong).unwrap();
    let session = whittle(&["local"], &format!("apply -f {} {}\n", demo("inflate.yaml"), demo("pool.yaml")));
    let text = out(&session);
    for created in ["nodepool/default created", "ec2nodeclass/default created", "deployment/inflate created"] {
        assert!(text.contains(created), "{text}{}", err(&session));
    }
}

#[test]
fn explain_knows_what_is_gone_and_names_what_it_chose() {
    let steps =
        format!("apply -f {} {}\nscale deploy/inflate --replicas 3\nadvance 3m\nget nodes\n", demo("pool.yaml"), demo("inflate.yaml"));
    let text = out(&whittle(&["local"], &steps));
    let node =
        text.lines().find(|line| line.contains(" Ready ")).and_then(|line| line.split(' ').next()).unwrap_or_else(|| panic!("{text}"));
    let asked = format!(
        "{steps}explain {node}\nexplain infl\nscale deploy/inflate --replicas 0\nadvance 10m\nget nodes\nexplain node/{node}\nexplain \n"
    );
    let session = whittle(&["local"], &asked);
    let text = out(&session);
    let gone = format!("\n{node} is gone since 00:");
    let (before, after) = text.rsplit_once(&gone).unwrap_or_else(|| panic!("{text}{}", err(&session)));
    assert!(before.contains("of nodepool default\n"), "{before}");
    assert!(before.contains("the first of 3 whose names begin with \"infl\"; others are inflate-"), "{before}");
    assert!(after.lines().next().is_some_and(|first| first.contains("Empty")), "why it went: {after}");
    let absent = whittle(&["local"], "explain ip-10-0-0-1\n");
    assert!(err(&absent).contains("and there was none"), "{}", err(&absent));
}

/// Output of commands at the prompt of a cluster of version 1.24; all of them are accepted.
#[track_caller]
fn session(commands: &str) -> String {
    let ended = whittle(&["local", "--kubernetes-version", "1.24"], commands);
    assert!(ended.status.success(), "{}{}", out(&ended), err(&ended));
    out(&ended)
}

#[track_caller]
fn check_refused(command: &str, expected: &[&str]) {
    let ended = whittle(&["local"], &format!("{command}\n"));
    assert_eq!(ended.status.code(), Some(2), "{command}: {}", out(&ended));
    let error = err(&ended);
    assert!(expected.iter().all(|part| error.contains(part)), "{command}: {error}");
    assert!(error.lines().count() < 12, "{command}: {error}");
}

#[track_caller]
fn check_shown(text: &str, expected: &[&str]) {
    for part in expected {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

fn block(name: &str) -> String {
    std::fs::read_to_string(seed(name)).unwrap()
}

/// S4.6, S4.7, S4.9: the getting-started page, with its manifests as here documents, and `kubectl` in front or not.
#[test]
fn s4_7_the_lines_of_the_getting_started_page_work_as_printed() {
    let text = session(&format!(
        "cat <<EOF | kubectl apply -f -\n{}EOF\nkubectl apply -f - <<'END'\n{}END\n\
         kubectl scale deployment inflate --replicas 5\nrollout status deploy/inflate\nget node\n\
         kubectl delete deployment inflate\nadvance 3m\nkubectl get node,po\n",
        block("004-provisioner-default.yaml"),
        block("004-deployment-inflate.yaml"),
    ));
    check_shown(
        &text,
        &[
            "provisioner/default created\nawsnodetemplate/default created\ndeployment/inflate created\ndeployment/inflate scaled\n",
            "Waiting for deployment \"inflate\" rollout to finish: 0 of 5 updated replicas are available...\n",
            "deployment \"inflate\" successfully rolled out\n",
            "PODS  PRICE      AGE\n",
            "deployment/inflate deleted\n",
            "there are no nodes, pods in namespace default\n",
        ],
    );
}

/// S2.9, S2.14: replicas of a Deployment in another namespace, in each of kubectl's spellings.
#[test]
fn s2_9_a_deployment_is_scaled_in_its_namespace() {
    let apply = format!("apply -f {}\n", seed("002-state-cluster-autoscaler.yaml"));
    for spelling in [
        "kubectl scale deploy/cluster-autoscaler -n kube-system --replicas=0",
        "scale -n kube-system deployment cluster-autoscaler --replicas 0",
        "scale deploy/kube-system/cluster-autoscaler --replicas=0",
        "scale kube-system/cluster-autoscaler --replicas 0",
    ] {
        let text = session(&format!("{apply}{spelling}\nadvance 5s\nget deploy -n kube-system\n"));
        check_shown(&text, &["deployment/cluster-autoscaler scaled\n", "cluster-autoscaler  0/0 "]);
    }
}

/// S2.9: in shadow mode Whittle decides and reports, and launches nothing; switched to active, it does.
#[test]
fn s2_9_shadow_mode_only_decides_until_it_ends() {
    let lines = "mode\nscale deploy inflate --replicas 2\nadvance 3m\nget nodes\nget nodeclaims\nec2 show instances\nmode active\nadvance 3m\n\
         get deploy\nmode shadow\nscale deploy inflate --replicas 0\nadvance 10m\nget nodes\n";
    let (pool, pods) = (demo("pool.yaml"), demo("inflate.yaml"));
    let ended = whittle(&["local", "--mode", "shadow", "-f", &pool, "-f", &pods], lines);
    assert!(ended.status.success(), "{}", err(&ended));
    let text = out(&ended);
    let (before, after) = text.split_once("active: Whittle acts").unwrap_or_else(|| panic!("{text}"));
    check_shown(
        before,
        &[
            "shadow: Whittle decides and reports, and changes nothing",
            "would launch a machine (shadow mode) for 2 pods from nodepool default",
        ],
    );
    assert!(before.ends_with("there are no nodes\nthere are no nodeclaims\nthere are no instances\n"), "{before}");
    let (after, empty) = after.split_once("shadow: ").unwrap();
    check_shown(after, &["EC2 starts", "2/2"]);
    check_shown(empty, &["would (shadow mode) delete via Empty, 1 machine: ", " Ready "]);
    assert!(!empty.contains("has ended"), "{empty}");
}

/// S3.19, S3.20: a pool deleted in the foreground, and a node deleted by name.
#[test]
fn s3_19_pools_and_nodes_are_deleted_as_printed() {
    let start = format!(
        "apply -f {} -f {}\nscale deployment inflate --replicas 2\nadvance 2m\n",
        seed("004-provisioner-default.yaml"),
        seed("004-deployment-inflate.yaml")
    );
    let pool = session(&format!(
        "{start}kubectl delete provisioner default --cascade=foreground\nget provisioners\nadvance 5m\nget provisioners\n"
    ));
    let (before, after) = pool.split_once("provisioner/default deleted\n").unwrap();
    assert!(before.contains("is ready for pods"), "{before}");
    assert!(after.contains("default  default    "), "it stays until its node has gone: {after}");
    assert!(after.ends_with("there are no provisioners\n"), "{after}");
    let listed = session(&format!("{start}get node -o name\n"));
    let node = listed.lines().last().unwrap().strip_prefix("node/").unwrap().to_owned();
    let text = session(&format!("{start}kubectl delete node {node}\nadvance 3m\nget nodes\n"));
    let (_, after) = text.split_once(&format!("node/{node} deleted\n")).unwrap();
    assert!(after.contains(&format!("cluster   node {node} is gone")), "{after}");
}

/// The relay rings for it, as in a real cluster; the next tick is fifty seconds away.
#[test]
fn a_node_that_is_deleted_waits_for_no_tick() {
    let start = format!(
        "apply -f {} -f {}\nscale deployment inflate --replicas 2\nadvance 130s\n",
        seed("004-provisioner-default.yaml"),
        seed("004-deployment-inflate.yaml")
    );
    let listed = session(&format!("{start}get node -o name\n"));
    let node = listed.lines().last().unwrap().strip_prefix("node/").unwrap().to_owned();
    let text = session(&format!("{start}delete node {node}\nadvance 20s\n"));
    let (_, after) = text.split_once(&format!("node/{node} deleted\n")).unwrap();
    assert!(after.contains(": the Node was deleted"), "{after}");
    let kept = session(&format!("{start}advance 20s\n"));
    assert!(!kept.contains("was deleted"), "nobody deletes it: {kept}");
}

/// S2.1, S0.18 and others whose objects could not be looked at.
#[test]
fn every_kind_is_listed_by_all_its_names_and_as_yaml() {
    let apply = format!(
        "apply -f {} {} {} {} {}\n",
        seed("002-deployment-nginx.yaml"),
        seed("002-pdb-nginx.yaml"),
        seed("002-service-nginx.yaml"),
        seed("001-state-daemonsets.yaml"),
        seed("003-ec2nodeclass-v1beta1.yaml")
    );
    let shown = [
        ("po", "STATUS"),
        ("deployments.apps", "READY"),
        ("pdb", "ALLOWED-DISRUPTIONS"),
        ("poddisruptionbudgets", "ALLOWED-DISRUPTIONS"),
        ("svc", "SELECTOR"),
        ("ec2nodeclasses", "False (SubnetsNotFound)"),
        ("ec2nc.karpenter.k8s.aws", "SubnetsNotFound"),
        ("ds -A", "aws-node"),
        ("ns", "kube-system  "),
        ("rs", "DESIRED"),
        ("sts", "there are no statefulsets in namespace default\n"),
        ("nodeclaims", "there are no nodeclaims\n"),
        ("np", "there are no nodepools\n"),
        ("events -A", "LAST-SEEN"),
        ("all", "deployment/nginx-to-scaleout"),
        ("po -A --no-headers --show-labels", "pod-template-hash="),
        ("po -l app!=none,pod-template-hash -o wide", "REASON"),
        ("deploy nginx-to-scaleout -o json", "\"kind\": \"Deployment\""),
        ("pdb -o yaml", "kind: List"),
    ];
    // Each answer ends with what `get ns default -o name` prints.
    let asked: String = shown.iter().map(|(word, _)| format!("get {word}\nget ns default -o name\n")).collect();
    let text = session(&format!("{apply}advance 5s\nget ns default -o name\n{asked}"));
    let mut answers = text.split("namespace/default\n").skip(1);
    for (word, expected) in shown {
        let answer = answers.next().unwrap_or_default();
        assert!(answer.contains(expected), "get {word}: {answer}");
    }
    let text = session(&format!("{apply}advance 5s\ndescribe ec2nodeclass default\ndescribe deploy/nginx-to-scaleout\nget po -w\n"));
    check_shown(&text, &["ec2nodeclass/default\n", "SubnetsReady", "deployment/nginx-to-scaleout\n", "the clock stands still"]);
}

#[test]
fn objects_that_are_named_are_found_or_the_nearest_is_named() {
    let apply = format!("apply -f {}\n", seed("002-state-cluster-autoscaler.yaml"));
    let ended = whittle(&["local"], &format!("{apply}get deploy cluster-autoscaler\n"));
    assert!(err(&ended).contains("there is one in namespace kube-system: add -n kube-system"), "{}", err(&ended));
    for command in ["get deploy", "rollout status deployment", "explain", "explain deploy"] {
        let ended = whittle(&["local"], &format!("{apply}{command} cluster-autoscalr -n kube-system\n"));
        assert!(err(&ended).contains("did you mean cluster-autoscaler?"), "{command}: {}", err(&ended));
    }
    let text = session(&format!("{apply}delete deploy nothing --ignore-not-found\ndelete deploy --all -n kube-system\nget deploy -A\n"));
    check_shown(&text, &["deployment/kube-system/cluster-autoscaler deleted\nthere are no deployments\n"]);
}

#[test]
fn what_cannot_work_names_what_does() {
    check_refused("kubectl logs -f -n karpenter -l app.kubernetes.io/name=karpenter -c controller", &["`explain NAME`"]);
    check_refused("kubectl exec -it curl -- sh", &["no containers run here"]);
    check_refused("kubectl edit configmap aws-auth -n kube-system", &["`apply` it again"]);
    check_refused("kubectl expose deployment nginx --port=80 --target-port=80", &["`apply -f` stores one"]);
    check_refused("eksctl create cluster -f -", &["node groups"]);
    check_refused("kubectl get pods | grep x", &["no pipes"]);
    check_refused("get job", &["whittle plan"]);
    check_refused("gte pods", &["did you mean `get`?"]);
    check_refused("get deploymnets", &["did you mean deployments?"]);
    check_refused("get pods -o yml", &["yaml"]);
    check_refused("scale deploy/x --replicas three", &["no number of replicas"]);
    check_refused("scale deploy/x --replicas -3", &["-3 replicas cannot be"]);
    check_refused("scale sts/x --replicas 3", &["name a deployment"]);
    check_refused("delete pods", &["--all"]);
    check_refused("delete ns default", &["cannot be deleted"]);
    check_refused("rollout status deploy/none", &["there is no deployment"]);
    check_refused("apply -f https://example.com/x.yaml", &["nothing is fetched"]);
    check_refused("advance 99999999h", &["too long"]);
    check_refused("explain 'x", &["left open"]);
}

/// S0.2, S4.3: an eksctl file makes node groups; what else it describes is chosen at the start.
#[test]
fn s4_3_an_eksctl_file_for_another_cluster_says_how_to_start_that_one() {
    let file = seed("004-eksctl-cluster.yaml");
    let text = out(&whittle(&["local"], &format!("apply -f {file}\nadvance 5s\nget nodes\n")));
    let stays = "warning: its node groups are applied; the cluster stays demo in us-east-1 with Kubernetes 1.33";
    check_shown(&text, &[stays, "--kubernetes-version 1.24`", " Ready "]);
    assert!(!session(&format!("apply -f {file}\n")).contains("warning"), "it is the one that it describes");
}

#[test]
fn applying_an_old_kind_again_says_what_changed() {
    let again = block("004-provisioner-default.yaml").replace("1000", "100");
    let file = seed("004-provisioner-default.yaml");
    let text = session(&format!("apply -f {file}\napply -f {file}\napply -f -\n{again}EOF\n"));
    let words: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("provisioner/default ")).collect();
    assert_eq!(words, ["created", "unchanged", "configured"]);
}

#[test]
fn a_restart_replaces_every_pod() {
    let text = session(&format!(
        "apply -f {} -f {}\nscale deploy/inflate --replicas 2\nrollout status deploy inflate\nget po -o name\nrollout restart deploy inflate\n\
         rollout status deploy inflate\nget po -o name\n",
        seed("004-provisioner-default.yaml"),
        seed("004-deployment-inflate.yaml")
    ));
    let pods: std::collections::BTreeSet<&str> = text.lines().filter(|line| line.starts_with("pod/inflate-")).collect();
    assert!(4 <= pods.len(), "{text}");
    check_shown(&text, &["old replicas are pending termination", "deployment/inflate restarted\n"]);
}

/// Standard input may have any bytes: a line of it that is no text is an error for itself.
#[test]
fn a_line_that_is_no_text_is_passed_over() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_whittle"))
        .arg("local")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"get nodes\nget \xff\xfe\nget nodepools\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(out(&ended), "there are no nodes\nthere are no nodepools\n");
    assert_eq!(ended.status.code(), Some(2));
    assert!(err(&ended).contains("line 2 is no UTF-8 text, at its byte 5"), "{}", err(&ended));
}

/// S4.4 on the default version, where AL2 has no images: pods that wait say so, and nothing frightens before the class was looked up.
#[test]
fn pods_that_wait_for_a_class_quote_its_condition() {
    let apply = format!(
        "apply -f {} -f {}\nscale deploy/inflate --replicas 2\nadvance 5m\n",
        seed("004-provisioner-default.yaml"),
        seed("004-deployment-inflate.yaml")
    );
    let ended = whittle(&["local"], &format!("{apply}explain inflate\nget awsnodetemplates\n"));
    let text = out(&ended);
    assert!(!text.contains("no dynamic nodepools found") && !text.contains("NoCompatibleInstanceTypes"), "{text}");
    check_shown(&text, &["nodepool default: AWSNodeTemplate \"default\" is not ready: ", "False ("]);
    let text = session(&apply);
    assert!(!text.contains("no dynamic nodepools found") && !text.contains("NoCompatibleInstanceTypes"), "{text}");
    check_shown(&text, &["2 of 2 running"]);
}

/// What is wrong only because the session is for another cluster says how to start that one, once.
#[test]
fn classes_for_another_cluster_say_how_to_start_it() {
    let (pool, class) = (seed("004-provisioner-default.yaml"), seed("003-ec2nodeclass-v1beta1.yaml"));
    let ended = whittle(&["local"], &format!("apply -f {pool} -f {class}\nadvance 1m\nadvance 6m\n"));
    let text = out(&ended);
    for hint in
        ["AL2 has images up to 1.32: start `whittle local --kubernetes-version 1.32`", "start `whittle local --cluster karpenter-demo`"]
    {
        assert_eq!(text.matches(hint).count(), 1, "{hint}: {text}");
    }
    assert!(!session(&format!("apply -f {pool}\nadvance 1m\n")).contains("hint"), "it is ready");
}

#[test]
fn a_removal_is_told_once_and_nothing_fails_in_it() {
    let text = session(&format!(
        "apply -f {} -f {}\nscale deploy inflate --replicas 2\nadvance 2m\nscale deploy inflate --replicas 0\nadvance 5m\nget no\n",
        seed("004-provisioner-default.yaml"),
        seed("004-deployment-inflate.yaml")
    ));
    let (_, removal) = text.rsplit_once("0 of 0 running\n").unwrap();
    let told = |part: &str| removal.lines().filter(|line| line.contains(part)).count();
    assert_eq!((told("command/"), told(": delete: "), told("ledger"), told("being deleted")), (1, 1, 0, 0), "{removal}");
    assert!(removal.contains("is gone") && !text.contains("FailedDraining"), "{text}");
    let (pool, pods) = (demo("pool.yaml"), demo("inflate.yaml"));
    let begun = format!("apply -f {pool} -f {pods}\nscale deploy inflate --replicas 2\nadvance 2m\nget no -o name\n");
    let node = session(&begun).lines().rev().find_map(|line| line.strip_prefix("node/")).map(str::to_owned).unwrap();
    let text = session(&format!("{begun}ec2 announce scheduled-change {node}\nadvance 4m\nget events\n"));
    let (timeline, events) = text.rsplit_once("LAST-SEEN").unwrap();
    assert!(!timeline.contains("FailedDraining") && events.contains("FailedDraining"), "it is published as by Karpenter: {text}");
    check_shown(timeline, &["AWS Health announced a scheduled change for i-"]);
    assert!(!text.contains("scheduled_change"), "{text}");
}

/// The beginning of a name is enough, and a pod that waits is meant before one that runs.
#[test]
fn names_may_be_begun_and_old_kinds_are_pointed_at() {
    let limited = block("004-provisioner-default.yaml").replace("1000", "4");
    let begun = format!(
        "apply -f -\n{limited}EOF\napply -f {}\nscale deploy inflate --replicas 9\nadvance 3m\n",
        seed("004-deployment-inflate.yaml")
    );
    let text = session(&format!(
        "{begun}explain pod infl\nget po\nget nodepools\nget ec2nodeclasses\nget provisioners\ndescribe provisioner def\n"
    ));
    let (_, explained) =
        text.split_once("one that waits of 9 whose names begin with \"infl\"; others are inflate-").unwrap_or_else(|| panic!("{text}"));
    assert!(explained.lines().nth(1).is_some_and(|line| line.contains("pending and waits")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("inflate-") && line.contains("Running")), "some run: {text}");
    check_shown(
        &text,
        &[
            "there are no nodepools; there is 1 in `get provisioners`\n",
            "there are no ec2nodeclasses; there is 1 in `get awsnodetemplates`\n",
            "provisioner/default\n",
        ],
    );
    let several = whittle(&["local", "--kubernetes-version", "1.24"], &format!("{begun}describe pod infl\n"));
    assert!(err(&several).contains("9 pods begin with \"infl\": name one of inflate-"), "{}", err(&several));
    let none = whittle(&["local", "--kubernetes-version", "1.24"], &format!("{begun}explain node infl\n"));
    assert!(err(&none).contains("there is no"), "{}", err(&none));
}

/// S1.25: what was dropped before a pod was given up, in a plan of files and at the prompt.
#[test]
fn s1_25_explain_names_the_dropped_preferences() {
    let dropped = "which were dropped first: spec.topologySpreadConstraints on topology.kubernetes.io/zone (ScheduleAnyway)";
    let files = ["001-state-nodes.yaml", "001-provisioner-default.yaml", "001-workload-karpenter-self.yaml"].map(seed).join(" ");
    let text = session(&format!("apply -f {files}\nadvance 1m\n"));
    let (_, rest) = text.split_once("pod/karpenter/").unwrap_or_else(|| panic!("{text}"));
    let (waiting, _) = rest.split_once(':').unwrap();
    let text = session(&format!("apply -f {files}\nadvance 1m\nexplain {waiting}\n"));
    check_shown(&text, &[dropped]);
    let arguments =
        ["explain", "karpenter-2", "-f", &seed("001-provisioner-default.yaml"), "-f", &seed("001-workload-karpenter-self.yaml")];
    let arguments: Vec<&str> = arguments.into_iter().chain(["--region", "us-east-1"]).collect();
    let ended = whittle(&arguments, "");
    check_shown(&format!("{}{}", out(&ended), err(&ended)), &[dropped]);
}

#[test]
fn a_change_that_a_server_refuses_is_refused_and_changes_nothing() {
    let pool = |spec: &str, expire: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: fixed}}\nspec: {{{spec}template: {{spec: {{expireAfter: {expire}, requirements: [], \
             nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}}}}\nEOF\n"
        )
    };
    let commands = format!("apply -f -\n{}apply -f -\n{}apply -f -\n{}", pool("", "720h"), pool("", "600h"), pool("replicas: 3, ", "600h"));
    let done = whittle(&["local"], &commands);
    assert_eq!(done.status.code(), Some(2), "{}", out(&done));
    assert_eq!(out(&done).lines().filter(|line| line.starts_with("nodepool/")).count(), 2, "created and configured: {}", out(&done));
    let refused = "error: NodePool \"fixed\", spec: a pool stays static or dynamic: make a new pool instead of adding or removing replicas";
    assert!(err(&done).contains(refused), "{}", err(&done));
    for (kind, name) in [("Deployment", "deployment"), ("DaemonSet", "daemonset"), ("StatefulSet", "statefulset")] {
        let set = |app: &str, cpu: u32| {
            format!(
                "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec: {{selector: {{matchLabels: {{app: {app}}}}}, template: \
                 {{metadata: {{labels: {{app: {app}}}}}, spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}\nEOF\n"
            )
        };
        let done = whittle(&["local"], &format!("apply -f -\n{}apply -f -\n{}apply -f -\n{}", set("a", 1), set("a", 2), set("b", 2)));
        let (out, err) = (out(&done), err(&done));
        assert!(out.contains(&format!("{name}/web created")) && out.contains(&format!("{name}/web configured")), "{out}{err}");
        assert!(err.contains(&format!("error: {kind} \"web\", spec.selector: it stays as the object was created")), "{out}{err}");
    }
}
