//! Objects that are given twice, that have one name, that cannot be, or that refer to nothing: none is counted silently.

use crate::{err, out, seed, tests, whittle};
use std::path::PathBuf;
use std::process::Output;

/// Files that are removed in the end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("whittle-same-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, documents: &[String]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, documents.join("---\n")).unwrap();
        path.display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pod(name: &str, cpu: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\n"
    )
}

fn run(command: &[&str], files: &[&str]) -> Output {
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let files = files.iter().flat_map(|file| ["-f", file]);
    let words: Vec<&str> = command.iter().copied().chain(files).chain(["--instance-types", &catalog]).collect();
    whittle(&words, "")
}

#[test]
fn an_object_that_is_given_twice_and_equally_counts_once() {
    let files = Files::new("equal");
    let dump = files.write("dump.yaml", &[pod("a", "1"), pod("b", "1")]);
    let json = files.write("dump.json", &["{\"kind\": \"Pod\", \"apiVersion\": \"v1\", \"metadata\": {\"namespace\": \"default\", \"name\": \"a\"}, \"spec\": {\"containers\": [{\"resources\": {\"requests\": {\"cpu\": 1}}, \"name\": \"c\", \"image\": \"i\"}]}}".to_owned()]);
    let pool = seed("004-provisioner-default.yaml");
    let planned = run(&["plan"], &[&dump, &dump, &pool, &pool]);
    assert_eq!(planned.status.code(), Some(0), "{}", err(&planned));
    assert!(out(&planned).contains("2 of 2 pods placed"), "{}", out(&planned));
    assert!(err(&planned).contains("documents that repeat an object"), "{}", err(&planned));
    let explained = run(&["explain", "a"], &[&dump, &dump, &pool]);
    assert!(out(&explained).contains("default/a needs a new machine"), "{} {}", out(&explained), err(&explained));
    let once = run(&["plan"], &[&dump, &pool]);
    assert!(!err(&once).contains("repeat"), "{}", err(&once));
    // A namespace that is left out is the default one.
    let both = run(&["plan"], &[&dump, &json, &pool]);
    assert!(out(&both).contains("2 of 2 pods placed"), "{} {}", out(&both), err(&both));
    assert!(err(&both).contains("skipped 1 document that repeats an object"), "{}", err(&both));
}

#[test]
fn an_object_that_is_given_twice_and_differently_is_refused_with_both_places() {
    let files = Files::new("different");
    let (one, other) = (files.write("one.yaml", &[pod("b", "1"), pod("a", "1")]), files.write("other.yaml", &[pod("a", "2")]));
    let pool = seed("004-provisioner-default.yaml");
    let mut texts = Vec::new();
    for order in [[&one, &other], [&other, &one]] {
        let planned = run(&["plan"], &[order[0], order[1], &pool]);
        let message = err(&planned);
        assert_eq!(planned.status.code(), Some(1), "{message}");
        assert!(message.contains("Pod \"a\" is given twice, and differently"), "{message}");
        assert!(message.contains("one.yaml, document 2") && message.contains("other.yaml, document 1"), "{message}");
        assert!(message.contains("leave one of them out, or name the file that is to count with --changed instead of -f"), "{message}");
        texts.push(out(&planned));
    }
    assert!(texts[0].contains("1 of 1 pods placed"), "the other pod is planned, and this one in neither form: {}", texts[0]);
    assert_eq!(texts[0], texts[1], "the order of the files decides nothing");
    let consolidated = run(&["consolidate"], &[&one, &other, &pool]);
    assert_eq!(consolidated.status.code(), Some(2), "it might protect a node: {}", err(&consolidated));
}

/// What a changed autoscaler keeps, its controller makes of a workload that is not changed itself.
#[test]
fn a_changed_autoscaler_scales_the_workload_of_the_dump() {
    let files = Files::new("autoscaler");
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {matchLabels: {app: web}}, template: \
               {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}\n";
    let scaler = |least: usize| {
        format!(
            "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: web}}\nspec: {{minReplicas: {least}, maxReplicas: \
             9, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}}}\n"
        )
    };
    let (dump, changed) = (files.write("dump.yaml", &[web.to_owned(), scaler(2)]), files.write("changed.yaml", &[scaler(4)]));
    let planned = run(&["plan", "--changed", &changed], &[&dump, &seed("004-provisioner-default.yaml")]);
    assert!(out(&planned).starts_with("4 of 4 pods placed"), "{}{}", out(&planned), err(&planned));
    assert!(out(&planned).contains("\nwithout --changed: 2 of 2 pods placed"), "{}", out(&planned));
    let said = err(&planned);
    assert!(said.contains("Deployment default/web counts with 4 replicas instead of 2") && !said.contains("changes nothing"), "{said}");
}

#[test]
fn a_changed_object_counts_instead_of_that_of_the_dump_and_a_new_one_is_named() {
    let files = Files::new("changed");
    let (dump, changed) = (files.write("dump.yaml", &[pod("a", "1"), pod("b", "1")]), files.write("changed.yaml", &[pod("a", "900")]));
    let pool = seed("004-provisioner-default.yaml");
    let planned = run(&["plan", "--changed", &changed], &[&dump, &pool]);
    assert_eq!(planned.status.code(), Some(0), "{}", err(&planned));
    assert!(out(&planned).contains("1 of 2 pods placed"), "no type has 900 cores: {}", out(&planned));
    assert!(err(&planned).contains("Pod \"a\" is that of --changed") && !err(&planned).contains("is new"), "{}", err(&planned));
    assert!(out(&planned).contains("\nwithout --changed: 2 of 2 pods placed, 1 new machine, $"), "{}", out(&planned));
    let new = files.write("new.yaml", &[pod("c", "1")]);
    let planned = run(&["plan", "--changed", &new, "--changed", &changed], &[&dump, &pool]);
    assert!(out(&planned).contains("2 of 3 pods placed"), "{}", out(&planned));
    assert!(err(&planned).contains("Pod \"c\" of --changed is new"), "a misspelt name would change nothing: {}", err(&planned));
    // A change needs something that it changes, and standard input is read once.
    assert_eq!(run(&["plan", "--changed", &changed], &[]).status.code(), Some(2));
    let twice = run(&["plan", "--changed", "-"], &["-"]);
    assert!(err(&twice).contains("can be read only once"), "{}", err(&twice));
    // What is given twice in one file cannot be changed that way.
    let both = files.write("both.yaml", &[pod("a", "1"), pod("a", "2")]);
    let planned = run(&["plan"], &[&both, &pool]);
    assert!(err(&planned).contains("given twice") && !err(&planned).contains("--changed"), "{}", err(&planned));
}

#[test]
fn a_change_is_told_from_what_there_is_without_it() {
    let files = Files::new("difference");
    let (dump, more) = (files.write("dump.yaml", &[pod("a", "1")]), files.write("more.yaml", &[pod("b", "20")]));
    let pool = seed("004-provisioner-default.yaml");
    let json = |planned: &std::process::Output| serde_json::from_slice::<serde_json::Value>(&planned.stdout).unwrap();
    let [without, with] =
        [&["plan", "-o", "json"][..], &["plan", "-o", "json", "--changed", &more]].map(|words| json(&run(words, &[&dump, &pool])));
    assert!(without["unchanged"].is_null());
    let (unchanged, before, after) = (&with["unchanged"], &without["totals"], &with["totals"]);
    for key in ["pods", "scheduled", "nodes", "price"] {
        assert_eq!(unchanged[key], before[key], "{key}: {unchanged}");
    }
    let monthly = (after["price"].as_f64().unwrap() - before["price"].as_f64().unwrap()) * 730.0;
    assert!(0.0 < monthly && (unchanged["monthly"].as_f64().unwrap() - monthly).abs() < 0.01, "{unchanged} {monthly}");
    for output in ["text", "markdown", "html"] {
        let planned = run(&["plan", "-o", output, "--changed", &more], &[&dump, &pool]);
        assert!(out(&planned).contains("the change makes +0 machines, +$"), "{}", out(&planned));
    }
    let same = run(&["plan", "--changed", &dump], &[&dump, &pool]);
    assert!(out(&same).contains("the change makes no difference in machines or price\n"), "{}", out(&same));
    // Replicas of a workload that only the change has.
    let workload = files.write(
        "web.yaml",
        &["{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, \
        selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}}}"
            .to_owned()],
    );
    let planned = run(&["plan", "--replicas", "web=3", "--changed", &workload], &[&dump, &pool]);
    assert!(
        out(&planned).contains("4 of 4 pods placed") && out(&planned).contains("without --changed: 1 of 1 pods placed"),
        "{}",
        out(&planned)
    );
}

#[test]
fn a_change_of_a_kind_that_is_not_read_changes_nothing() {
    let files = Files::new("odd-kind");
    let (dump, pool) = (files.write("dump.yaml", &[pod("a", "1")]), seed("004-provisioner-default.yaml"));
    let odd =
        files.write("odd.yaml", &["{apiVersion: example.com/v1, kind: Gadget, metadata: {name: it}}\n---\n".to_owned(), pod("b", "1")]);
    let planned = run(&["plan", "--changed", &odd], &[&dump, &pool]);
    let said = err(&planned);
    assert!(said.contains("note: example.com/v1 Gadget it of --changed is of a kind that changes nothing here\n"), "{said}");
    assert!(!said.contains("Gadget \"it\" of --changed is new") && !said.contains("skipped example"), "{said}");
    assert!(said.contains("Pod \"b\" of --changed is new") && out(&planned).starts_with("2 of 2 pods placed"), "{said}");
}

/// A node of the default Provisioner with pods of a Deployment, as a dump has them.
fn running(replicas: u32, cpu: &str) -> String {
    let pod = |number: u32| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web-1a2b3c4d5e-{number}, ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, \
             name: web-1a2b3c4d5e, uid: r, controller: true}}]}}, spec: {{nodeName: n1, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}, \
             status: {{phase: Running}}}}\n"
        )
    };
    let objects: Vec<String> = [deployment(replicas, cpu)].into_iter().chain((0..replicas).map(pod)).collect();
    objects.join("---\n")
}

fn deployment(replicas: u32, cpu: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: {replicas}, selector: {{matchLabels: {{a: b}}}}, \
         template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}}}\n"
    )
}

#[test]
fn a_changed_workload_has_the_pods_of_after_its_rollout() {
    let files = Files::new("rollout");
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {node.kubernetes.io/instance-type: m5.xlarge, kubernetes.io/os: linux}}, \
                spec: {}, status: {allocatable: {cpu: 4, memory: 15Gi, pods: 58}, conditions: [{type: Ready, status: 'True'}]}}\n";
    let (dump, node) = (files.write("dump.yaml", &[running(3, "1")]), files.write("node.yaml", &[node.to_owned()]));
    let pool = seed("004-provisioner-default.yaml");
    let changed = |command: &str, replicas: u32, cpu: &str| {
        let file = files.write("changed.yaml", &[deployment(replicas, cpu)]);
        run(&[command, "--changed", &file], &[&dump, &node, &pool])
    };
    for (replicas, cpu, taken, placed) in [
        (3, "1", None, "0 of 0 pods placed"),
        (1, "1", Some("2 pods of before are taken away"), "0 of 0 pods placed"),
        (3, "2", Some("3 pods of before are taken away"), "3 of 3 pods placed"),
        (5, "1", None, "2 of 2 pods placed"),
    ] {
        let planned = changed("plan", replicas, cpu);
        assert!(out(&planned).starts_with(placed), "{replicas} of {cpu}: {}{}", out(&planned), err(&planned));
        for of in [planned, changed("consolidate", replicas, cpu)] {
            let said = err(&of).contains("as after its rollout: ");
            assert_eq!(said, taken.is_some(), "{replicas} of {cpu}: {}", err(&of));
            assert!(err(&of).contains(taken.unwrap_or_default()), "{replicas} of {cpu}: {}", err(&of));
        }
    }
    // What is not changed runs on as it is.
    let dumped = run(&["plan"], &[&dump, &node, &pool]);
    assert!(!err(&dumped).contains("rollout"), "{}", err(&dumped));
}

#[test]
fn a_changed_daemon_set_takes_of_its_nodes_what_it_takes_after_its_rollout() {
    let files = Files::new("daemons");
    let daemons = |cpu: u32| {
        format!(
            "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: agent}}, spec: {{selector: {{matchLabels: {{c: d}}}}, template: {{metadata: \
             {{labels: {{c: d}}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}}}}}\n"
        )
    };
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {node.kubernetes.io/instance-type: m5.xlarge, kubernetes.io/os: linux}}, \
                spec: {}, status: {allocatable: {cpu: 4, memory: 15Gi, pods: 58}, conditions: [{type: Ready, status: 'True'}]}}\n";
    let running = "{apiVersion: v1, kind: Pod, metadata: {name: agent-1, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: d, \
                   controller: true}]}, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Running}}\n";
    let dump = files.write("dump.yaml", &[daemons(1), node.to_owned(), running.to_owned(), pod("a", "2")]);
    let planned = |cpu: u32| {
        let file = files.write("changed.yaml", &[daemons(cpu)]);
        run(&["plan", "--changed", &file], &[&dump, &seed("004-provisioner-default.yaml")])
    };
    let (same, more) = (planned(1), planned(3));
    assert!(out(&same).contains("0 new machines") && !err(&same).contains("rollout"), "{}{}", out(&same), err(&same));
    assert!(out(&more).contains("1 new machine,"), "{}{}", out(&more), err(&more));
    assert!(err(&more).contains("DaemonSet default/agent: as after its rollout: 1 of its pods has its new template"), "{}", err(&more));
    // New pods request what a LimitRange gives them.
    let range = "{apiVersion: v1, kind: LimitRange, metadata: {name: defaults}, spec: {limits: [{type: Container, defaultRequest: {cpu: 3000m}}]}}\n";
    let ranges = files.write("ranges.yaml", &[range.to_owned()]);
    let unsaid = files.write("unsaid.yaml", &[daemons(1).replace("{cpu: 1}", "{memory: 1Gi}")]);
    let given = run(&["plan", "--changed", &unsaid], &[&dump, &ranges, &seed("004-provisioner-default.yaml")]);
    assert!(out(&given).contains("1 new machine,"), "{}{}", out(&given), err(&given));
    let none = run(&["plan", "--changed", &unsaid], &[&dump, &seed("004-provisioner-default.yaml")]);
    assert!(out(&none).contains("0 new machines"), "{}{}", out(&none), err(&none));
}

/// The controller ends pods that share their node with others of their kind first; one with fewer replicas leaves a node with one pod
/// alone.
#[test]
fn a_smaller_workload_loses_the_pods_that_its_controller_would_end() {
    let files = Files::new("fewer");
    let pod = |number: u32, node: &str, cost: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web-1a2b3c4d5e-{number}, annotations: {{controller.kubernetes.io/pod-deletion-cost: '{cost}'}}, \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web-1a2b3c4d5e, uid: r, controller: true}}]}}, spec: {{nodeName: {node}, \
             containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}, status: {{phase: Running}}}}\n"
        )
    };
    let gone = |cost: &str| {
        let pods = [deployment(3, "1"), pod(1, "n1", cost), pod(2, "n2", "0"), pod(3, "n2", "0")].join("---\n");
        let (dump, changed) = (files.write("dump.yaml", &[pods]), files.write("changed.yaml", &[deployment(2, "1")]));
        let left = |number: u32| {
            let words = ["explain", &format!("pod/web-1a2b3c4d5e-{number}"), "--changed", &changed];
            run(&words, &[&dump, &seed("004-provisioner-default.yaml")]).status.success()
        };
        (1..4).filter(|number| !left(*number)).collect::<Vec<u32>>()
    };
    assert!([[2], [3]].contains(&gone("0").try_into().unwrap()), "one of the two that are together");
    assert_eq!(gone("-5"), [1], "the one that is said to cost least");
}

/// The budget of a dump is about as many pods as the changed workload is to have.
#[test]
fn the_budget_of_a_changed_workload_is_computed_again() {
    let files = Files::new("budget");
    let budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 2, selector: {matchLabels: {a: b}}}, \
                  status: {disruptionsAllowed: 1, currentHealthy: 3, desiredHealthy: 2, expectedPods: 3}}\n";
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {karpenter.sh/nodepool: default, node.kubernetes.io/instance-type: m5.xlarge, \
                karpenter.sh/capacity-type: on-demand, topology.kubernetes.io/zone: us-east-1a, karpenter.sh/registered: 'true', \
                karpenter.sh/initialized: 'true'}}, spec: {providerID: 'aws:///us-east-1a/i-1'}, status: {capacity: {cpu: 4, memory: 16Gi, pods: 58}, \
                allocatable: {cpu: 4, memory: 15Gi, pods: 58}, conditions: [{type: Ready, status: 'True'}]}}\n";
    let claim = "{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: c1, labels: {karpenter.sh/nodepool: default, \
                 node.kubernetes.io/instance-type: m5.xlarge, karpenter.sh/capacity-type: on-demand, topology.kubernetes.io/zone: us-east-1a}}, spec: \
                 {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}, status: {nodeName: n1, providerID: \
                 'aws:///us-east-1a/i-1', capacity: {cpu: 4, memory: 16Gi, pods: 58}}}\n";
    let pool = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default}, spec: {template: {spec: {nodeClassRef: {group: \
                karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}}\n";
    let labelled = running(3, "1").replace("ownerReferences:", "labels: {a: b}, ownerReferences:");
    let dump = files.write("dump.yaml", &[budget.to_owned(), node.to_owned(), claim.to_owned(), pool.to_owned(), labelled]);
    let decided = |replicas: u32| {
        let changed = files.write("changed.yaml", &[deployment(replicas, "1")]);
        out(&whittle(&["consolidate", "-f", &dump, "--changed", &changed, "--region", "us-east-1"], ""))
    };
    for (replicas, held) in [(3, false), (2, true), (5, false)] {
        let text = decided(replicas);
        assert_eq!(text.contains("PDB default/b allows 0 disruptions"), held, "{replicas}: {text}");
    }
}

#[test]
fn a_workload_may_be_named_with_its_kind() {
    let files = Files::new("kinds");
    let (web, pool) = (files.write("web.yaml", &[deployment(1, "1")]), seed("004-provisioner-default.yaml"));
    for name in ["web", "default/web", "deployment/web", "deploy/web", "deployments.apps/web", "Deployment/default/web"] {
        let planned = run(&["plan", "--replicas", &format!("{name}=4")], &[&web, &pool]);
        assert!(out(&planned).starts_with("4 of 4 pods placed"), "{name}: {}{}", out(&planned), err(&planned));
    }
    assert_eq!(run(&["plan", "--replicas", "statefulset/web=4"], &[&web, &pool]).status.code(), Some(2));
    let explained = run(&["explain", "deploy/web"], &[&web, &pool]);
    assert!(out(&explained).starts_with("deployment/default/web: 1 pod\n"), "{}{}", out(&explained), err(&explained));
    let none = files.write("none.yaml", &[deployment(0, "1")]);
    let explained = run(&["explain", "web"], &[&none, &pool]);
    assert!(
        out(&explained).starts_with("deployment/default/web: 0 pods\n  none of its pods is among"),
        "{}{}",
        out(&explained),
        err(&explained)
    );
}

/// Applied, it would change nothing.
#[test]
fn a_change_that_a_server_refuses_or_does_not_serve_leaves_the_object_as_it_is() {
    let files = Files::new("refused-change");
    let (dump, pool) = (files.write("dump.yaml", &[deployment(3, "1")]), seed("004-provisioner-default.yaml"));
    for (changed, code, says) in [
        (deployment(3, "1").replace("apps/v1", "apps/v1beta1"), 0, "no server has Deployment of apps/v1beta1"),
        (deployment(3, "1").replace("replicas: 3", "replicas: -3"), 2, "Deployment \"web\" of --changed is refused, and changes nothing"),
        (deployment(2, "1") + "---\n" + &deployment(1, "1"), 2, "is given twice, and differently"),
        (deployment(1, "1") + "---\na: [\n", 2, "changed.yaml:"),
    ] {
        let file = files.write("changed.yaml", &[changed]);
        let planned = run(&["plan", "--changed", &file], &[&dump, &pool]);
        assert_eq!(planned.status.code(), Some(code), "{}{}", out(&planned), err(&planned));
        assert!(err(&planned).contains(says), "{says}: {}", err(&planned));
        if code == 2 {
            let unread = "error: nothing is compared, because the change was not read as a whole: fix what is refused of --changed";
            assert!(err(&planned).contains(unread) && out(&planned).is_empty(), "{says}: {}{}", out(&planned), err(&planned));
            continue;
        }
        assert!(!err(&planned).contains("is that of --changed"), "{says}: {}", err(&planned));
        assert!(out(&planned).starts_with("3 of 3 pods placed"), "{says}: {}", out(&planned));
        assert!(out(&planned).contains("the change makes no difference in machines or price"), "{says}: {}", out(&planned));
    }
    let file = files.write("changed.yaml", &["a: [\n".to_owned()]);
    for form in ["text", "markdown", "html", "json"] {
        let planned = run(&["plan", "-o", form, "--changed", &file], &[&dump, &pool]);
        assert_eq!((planned.status.code(), out(&planned).as_str()), (Some(2), ""), "{form}: {}", err(&planned));
    }
    let detailed = run(&["plan", "--detailed-exitcode", "--changed", &file], &[&dump, &pool]);
    assert_eq!(detailed.status.code(), Some(1), "two is for machines to launch: {}", err(&detailed));
}

#[test]
fn a_dumped_pool_that_was_a_provisioner_is_changed_by_one() {
    let files = Files::new("legacy-dump");
    let text = std::fs::read_to_string(seed("004-provisioner-default.yaml")).unwrap();
    let converted = whittle(&["convert", "-f", &seed("004-provisioner-default.yaml")], "");
    let stored = out(&converted)
        .replace("kind: NodePool\nmetadata:\n", "kind: NodePool\nmetadata:\n  annotations: {whittle.dev/converted-from: Provisioner}\n");
    let stored = stored.replace(
        "metadata:\n  annotations: {whittle.dev/converted-from: Provisioner}\n  annotations:\n",
        "metadata:\n  annotations:\n    whittle.dev/converted-from: Provisioner\n",
    );
    assert!(stored.contains("converted-from: Provisioner"), "{stored}");
    let (dump, changed) = (files.write("dump.yaml", &[pod("a", "1"), stored]), files.write("changed.yaml", &[text]));
    let planned = run(&["plan", "--changed", &changed], &[&dump]);
    assert!(
        err(&planned).contains("Provisioner \"default\" is that of --changed")
            && !err(&planned).contains("Provisioner \"default\" of --changed is new"),
        "{}",
        err(&planned)
    );
    assert!(out(&planned).starts_with("1 of 1 pods placed"), "{}", out(&planned));
}

#[test]
fn converted_pools_that_conflict_name_their_files() {
    let files = Files::new("legacy");
    let text = std::fs::read_to_string(seed("004-provisioner-default.yaml")).unwrap();
    assert!(text.contains("ttlSecondsAfterEmpty"), "{text}");
    let changed = files.write("changed.yaml", &[text.replace("ttlSecondsAfterEmpty: 30", "ttlSecondsAfterEmpty: 60")]);
    let planned = run(&["plan"], &[&seed("004-provisioner-default.yaml"), &changed]);
    let message = err(&planned);
    assert!(
        message.contains("given twice") && message.contains("changed.yaml") && message.contains("004-provisioner-default.yaml"),
        "{message}"
    );
}

#[test]
fn objects_without_a_possible_name_are_refused_by_every_command() {
    let files = Files::new("names");
    for (name, says) in
        [("Web_0!", "\"Web_0!\" is no name"), ("''", "missing: give the object a name"), ("a..b", "is no name"), ("-a", "is no name")]
    {
        let file = files.write("pod.yaml", &[pod(name, "1")]);
        let planned = run(&["plan"], &[&file, &seed("004-provisioner-default.yaml")]);
        let checked = whittle(&["check", "-f", &file], "");
        let prompt = whittle(&["local"], &format!("apply -f {file}\n"));
        for (command, output, code) in [("plan", planned, 1), ("check", checked, 1), ("local", prompt, 2)] {
            let message = err(&output);
            assert_eq!(output.status.code(), Some(code), "{command} {name}: {message}");
            assert!(
                message.contains(says) && message.contains("pod.yaml") && message.contains("metadata.name"),
                "{command} {name}: {message}"
            );
            assert!(!out(&output).contains("created") && !out(&output).contains("fine"), "{command} {name}: {}", out(&output));
        }
    }
    let fine = files.write("fine.yaml", &[pod("web-0.a", "1")]);
    assert_eq!(run(&["plan"], &[&fine, &seed("004-provisioner-default.yaml")]).status.code(), Some(0));
}

#[test]
fn impossible_numbers_of_replicas_are_refused() {
    let files = Files::new("replicas");
    let deployment = |replicas: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec: {{replicas: {replicas}, selector: {{matchLabels: {{app: web}}}}, \
             template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}\n"
        )
    };
    let fine = files.write("fine.yaml", &[deployment("1")]);
    for (replicas, says) in [("-3", "-3 replicas cannot be"), ("2000000000", "too many")] {
        let scaled = whittle(&["local"], &format!("apply -f {fine}\nscale deploy/web --replicas {replicas}\n"));
        let file = files.write("wrong.yaml", &[deployment(replicas)]);
        let applied = whittle(&["local"], &format!("apply -f {file}\n"));
        let checked = whittle(&["check", "-f", &file], "");
        for (output, code) in [(scaled, 2), (applied, 2), (checked, 1)] {
            assert_eq!(output.status.code(), Some(code), "{}", err(&output));
            assert!(err(&output).contains(says) && err(&output).contains("web"), "{}", err(&output));
        }
    }
}

#[test]
fn an_on_demand_machine_is_not_taken_back() {
    let files = Files::new("on-demand");
    let demo = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/local/demo/pool.yaml")).unwrap();
    let pool = files.write("pool.yaml", &[demo.replace("values: [spot]", "values: [on-demand]")]);
    let pod = files.write("pod.yaml", &[pod("a", "1")]);
    let steps = format!("apply -f {pool} {pod}\nadvance 3m\nget nodes\n");
    let text = out(&whittle(&["local"], &steps));
    let node = text.lines().find(|line| line.contains("Ready") && line.contains("on-demand")).and_then(|line| line.split(' ').next());
    let node = node.unwrap_or_else(|| panic!("no node: {text}"));
    let answered = whittle(&["local"], &format!("{steps}interrupt {node}\n"));
    assert_eq!(answered.status.code(), Some(2));
    assert!(err(&answered).contains("spot machines only") && err(&answered).contains(node), "{}", err(&answered));
}

fn node_pool(class: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: default}}\nspec: {{template: {{spec: {{\
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: {class}}}, \
         requirements: [{{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}]}}}}}}\n"
    )
}

fn node_class(name: &str) -> String {
    format!(
        "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: {name}}}\nspec: {{role: KarpenterNodeRole-demo, \
         amiSelectorTerms: [{{alias: al2023@latest}}], subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: demo}}}}], \
         securityGroupSelectorTerms: [{{tags: {{karpenter.sh/discovery: demo}}}}]}}\n"
    )
}

#[test]
fn a_pool_without_its_class_is_named_by_plan_check_and_local_alike() {
    let files = Files::new("class");
    let (pool, class, pod) = (
        files.write("pool.yaml", &[node_pool("nope")]),
        files.write("class.yaml", &[node_class("nope")]),
        files.write("pod.yaml", &[pod("a", "1")]),
    );
    let says = "NodePool \"default\", spec.template.spec.nodeClassRef: EC2NodeClass \"nope\" is missing";
    let plan = |files: &[&str]| {
        let words: Vec<&str> = ["plan", "--region", "us-east-1"].into_iter().chain(files.iter().flat_map(|file| ["-f", file])).collect();
        let planned = whittle(&words, "");
        assert_eq!(planned.status.code(), Some(0), "{}", err(&planned));
        err(&planned)
    };
    assert!(plan(&[&pool, &pod]).contains(says), "{}", plan(&[&pool, &pod]));
    assert!(!plan(&[&pool, &pod, &class]).contains("is missing"));
    let checked = whittle(&["check", "-f", &pool], "");
    assert_eq!(checked.status.code(), Some(0), "the class may be in the cluster: {}", err(&checked));
    assert!(out(&checked).contains(says) && !out(&checked).contains("fine"), "{}", out(&checked));
    let checked = out(&whittle(&["check", "-f", &pool, "-f", &class], ""));
    assert!(!checked.contains("is missing") && checked.contains("NodePool \"default\": fine"), "{checked}");
    let applied = out(&whittle(&["local"], &format!("apply -f {pool}\n")));
    assert!(applied.contains(says), "{applied}");
    let applied = out(&whittle(&["local"], &format!("apply -f {pool} {class}\n")));
    assert!(!applied.contains("is missing"), "{applied}");
    // The catalog has what a class admits.
    assert!(!err(&run(&["plan"], &[&pool, &pod])).contains("is missing"));
    let old = std::fs::read_to_string(seed("004-provisioner-default.yaml")).unwrap();
    let old = files.write("old.yaml", &[old.split("---\n").next().unwrap().to_owned()]);
    let checked = out(&whittle(&["check", "-f", &old], ""));
    assert!(checked.contains("Provisioner \"default\", spec.providerRef: AWSNodeTemplate \"default\" is missing"), "{checked}");
}

/// As kustomize writes them, and many charts.
#[test]
fn a_pool_with_a_namespace_is_the_pool_of_its_name_to_every_command() {
    let files = Files::new("namespace");
    let placed = |text: &str| text.replace("{name: default}", "{name: default, namespace: karpenter}");
    let (pool, class) = (node_pool("default"), node_class("default"));
    let new = [placed(&pool).replace("[on-demand]", "[spot]"), placed(&class)];
    let dump = files.write("dump.yaml", &[pool.clone(), class.clone(), pod("a", "1")]);
    let changed = files.write("changed.yaml", &new);
    let planned = whittle(&["plan", "--region", "us-east-1", "-f", &dump, "--changed", &changed], "");
    assert!(err(&planned).contains("NodePool \"default\" is that of --changed"), "{}", err(&planned));
    assert!(out(&planned).contains("1 of 1 pods placed") && !out(&planned).contains("on-demand in"), "{}", out(&planned));
    // Beside the one without a namespace it would be applied over it.
    let twice = whittle(&["plan", "--region", "us-east-1", "-f", &dump, "-f", &changed], "");
    assert!(err(&twice).contains("NodePool \"default\" is given twice, and differently"), "{}", err(&twice));
    let checked = whittle(&["check", "-f", &dump, "-f", &changed], "");
    assert!(err(&checked).contains("NodePool \"default\" is given twice, and differently"), "{}", err(&checked));
    // In the simulated cluster it launches what it should, and is found again.
    let same = files.write("same.yaml", &[placed(&pool), placed(&class)]);
    let plain = files.write("plain.yaml", &[pool, class]);
    let web = files.write("web.yaml", &[pod("a", "1")]);
    let local = out(&whittle(&["local"], &format!("apply -f {same}\napply -f {plain}\napply -f {web}\nadvance 3m\nget nodes\n")));
    assert!(local.contains("nodepool/default created") && local.contains("nodepool/default unchanged"), "{local}");
    assert!(!local.contains("there are no nodes"), "{local}");
    let converted = out(&whittle(&["convert", "-f", &same], ""));
    assert!(converted.contains("name: default") && !converted.contains("namespace"), "{converted}");
}

#[test]
fn a_node_pool_and_a_provisioner_of_one_name_are_shown_apart() {
    let files = Files::new("twins");
    let old = std::fs::read_to_string(seed("004-provisioner-default.yaml")).unwrap();
    let old = files.write("old.yaml", &[old.replace("${CLUSTER_NAME}", "demo")]);
    let new = files.write("new.yaml", &[node_pool("default"), node_class("default")]);
    let picky = |name: &str, capacity_type: &str| {
        pod(name, "1").replace("spec: {", &format!("spec: {{nodeSelector: {{karpenter.sh/capacity-type: {capacity_type}}}, "))
    };
    let pods = files.write("pods.yaml", &[picky("for-new", "on-demand"), picky("for-old", "spot")]);
    let planned = run(&["plan"], &[&old, &new, &pods]);
    assert_eq!(planned.status.code(), Some(0), "{}", err(&planned));
    let text = out(&planned);
    assert!(text.contains("new machine from nodepool default:"), "{text}");
    assert!(text.contains("new machine from nodepool Provisioner/default:"), "{text}");
    let steps = format!("apply -f {old} {new} {pods}\nadvance 4m\nget nodes\nget nodeclaims\n");
    let session = whittle(&["local", "--kubernetes-version", "1.32"], &steps);
    let text = out(&session);
    let of_pool = |pool: &str, capacity_type: &str| {
        let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.any(|row| row.get(2) == Some(&pool) && row.get(4) == Some(&capacity_type))
    };
    assert!(of_pool("default", "on-demand") && of_pool("Provisioner/default", "spot"), "{text}{}", err(&session));
    assert!(!of_pool("default", "spot"), "{text}");
    let claims: Vec<&str> = text.lines().filter(|line| line.contains(" i-")).filter(|line| line.contains("Provisioner/default")).collect();
    assert_eq!(claims.len(), 1, "{text}");
}
