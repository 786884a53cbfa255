//! What kubectl's users type at the prompt of `whittle local`: a dry run, other columns and another order, Events of one namespace, a
//! deletion and an application at once; and that `explain` tells each decision once.

use crate::{err, out, seed, whittle};

fn demo(name: &str) -> String {
    format!("{}/src/local/demo/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[track_caller]
fn answered(lines: &str) -> String {
    let session = whittle(&["local"], lines);
    assert_eq!(session.status.code(), Some(0), "{}{}", out(&session), err(&session));
    out(&session)
}

/// A session with five pods on a machine.
fn running() -> String {
    format!("apply -f {} -f {}\nscale deploy inflate --replicas 5\nadvance 3m\n", demo("pool.yaml"), demo("inflate.yaml"))
}

#[test]
fn a_dry_run_says_what_would_become_of_each_object_and_changes_nothing() {
    let (pool, pods) = (demo("pool.yaml"), demo("inflate.yaml"));
    let text = answered(&format!("apply --dry-run=client -f {pool} -f {pods}\nget nodepools,deploy\nadvance 3m\n"));
    assert!(text.contains("nodepool/default created (dry run)\n") && text.contains("deployment/inflate created (dry run)\n"), "{text}");
    assert!(text.contains("there are no nodepools, deployments"), "{text}");
    let text = answered(&format!("apply -f {pool}\napply -f {pool} -f {pods} --dry-run=server\nget deploy\n"));
    assert!(text.contains("nodepool/default unchanged (server dry run)\n"), "{text}");
    assert!(text.contains("deployment/inflate created (server dry run)\n") && text.contains("there are no deployments"), "{text}");
    let text = answered(&format!("apply --dry-run=none -f {pods}\nget deploy -o name\n"));
    assert!(text.ends_with("deployment/inflate created\ndeployment/inflate\n"), "{text}");
}

#[test]
fn a_dry_run_of_an_old_kind_leaves_no_trace_of_it() {
    let old = seed("004-provisioner-default.yaml");
    let text = answered(&format!("apply -f {old} --dry-run=client\nget provisioners\napply -f {old}\n"));
    assert!(text.starts_with("provisioner/default created (dry run)\n") && text.contains("there are no provisioners"), "{text}");
    assert!(text.contains("\nprovisioner/default created\n"), "{text}");
}

#[test]
fn labels_have_columns_and_fields_an_order() {
    let group = format!("{}apply -f {}\n", running(), seed("004-state-nodes.yaml"));
    let text = answered(&format!("{group}get nodes -L karpenter.sh/nodepool,no-such-label\n"));
    let header = text.lines().find(|line| line.starts_with("NAME")).unwrap_or_else(|| panic!("{text}"));
    assert!(header.trim_end().ends_with("AGE    NODEPOOL  NO-SUCH-LABEL") || header.contains("NODEPOOL  NO-SUCH-LABEL"), "{header}");
    let by = |field: &str| -> Vec<String> {
        let text = answered(&format!("{group}get nodes --no-headers --sort-by {field} -L node.kubernetes.io/instance-type\n"));
        let rows = text.lines().filter(|line| line.starts_with("ip-192-168-"));
        rows.map(|row| row.split_whitespace().last().unwrap_or_default().to_owned()).collect()
    };
    let sizes = by(".status.capacity.memory");
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert!(sizes[0] == "m5.large" && sizes[1] == "m5.large" && sizes[2] != "m5.large", "the largest last: {sizes:?}");
    let wrong = whittle(&["local"], "get pods --sort-by .items[0]\n");
    assert!(err(&wrong).contains("write keys alone"), "{}", err(&wrong));
}

#[test]
fn an_unknown_option_is_not_called_a_name_that_one_could_pass() {
    let wrong = whittle(&["local"], "get pods --no-such-option\n");
    assert!(err(&wrong).contains("--no-such-option") && !err(&wrong).contains("tip:"), "{}", err(&wrong));
}

#[test]
fn events_are_of_the_namespace_that_is_asked_for() {
    let text = answered(&format!("{}get events -n kube-system\nget events -o yaml\n", running()));
    let (other, own) = text.split_once("there are no events in namespace kube-system").unwrap_or_else(|| panic!("{text}"));
    assert!(!other.contains("LAST-SEEN"), "{other}");
    assert!(own.contains("kind: Node") && own.contains("kind: Pod"), "those about nodes are in namespace default: {own}");
}

#[test]
fn s2_6_a_broken_aws_auth_is_applied_with_a_warning() {
    let text = answered(&format!("apply -f {}\n", seed("002-aws-auth-as-printed.yaml")));
    assert!(text.contains("configmap/kube-system/aws-auth created\n"), "{text}");
    assert!(text.contains("warning: ConfigMap \"kube-system/aws-auth\", mapRoles entry 2 is not valid YAML"), "{text}");
    let text = answered(&format!("apply -f {}\n", seed("002-aws-auth.yaml")));
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn s1_15_a_deployment_that_is_deleted_and_applied_at_once_has_other_pods() {
    for how in ["", " --cascade=foreground"] {
        let pods = demo("inflate.yaml");
        let again = format!("advance 1m\napply -f {pods}\nscale deploy inflate --replicas 5\nadvance 1m\n");
        let lines = format!("{}get po -o name\nget ns default -o name\ndelete deploy inflate{how}\n", running());
        let text = answered(&format!("{lines}{}get po -o name\n", if how.is_empty() { &again["advance 1m\n".len()..] } else { &again }));
        let names = |text: &str| text.lines().filter(|line| line.starts_with("pod/inflate-")).map(str::to_owned).collect::<Vec<_>>();
        let (before, after) = text.split_once("namespace/default\n").unwrap_or_else(|| panic!("{text}"));
        let (before, after) = (names(before), names(after));
        assert_eq!((before.len(), after.len()), (5, 5), "{how}: {text}");
        assert!(after.iter().all(|name| !before.contains(name)), "{how}: {before:?} {after:?}");
    }
}

#[test]
fn a_rollout_ends_on_nodes_that_no_nodepool_moves() {
    let files = format!("apply -f {} -f {}\n", seed("004-state-nodes.yaml"), seed("002-deployment-nginx.yaml"));
    let text = answered(&format!("{files}advance 1m\nrollout restart deploy nginx-to-scaleout\nrollout status deploy nginx-to-scaleout\n"));
    assert!(text.ends_with("deployment \"nginx-to-scaleout\" successfully rolled out\n"), "{text}");
}

#[test]
fn a_decision_is_told_once_and_by_one_clock() {
    let text = answered(&format!("{}get nodes -o name\nscale deploy inflate --replicas 0\nadvance 5m\n", running()));
    let node = text.lines().find_map(|line| line.strip_prefix("node/")).unwrap_or_else(|| panic!("{text}"));
    assert!(text.contains("kept: empty, and removed once it has been for 30s (consolidateAfter), not before 00:03:"), "{text}");
    let lines = format!("{}scale deploy inflate --replicas 0\nadvance 5m\nexplain {node}\n", running());
    let text = answered(&lines);
    let (_, told) = text.split_once(&format!("{node} is gone since ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(told.matches("delete via Empty").count(), 1, "{told}");
    assert!(told.contains(", empty for 30s (consolidateAfter) (command/"), "{told}");
    assert!(!told.contains("delete: Empty") && !told.contains("DisruptionBlocked") && !told.contains("2026-01-05T"), "{told}");
}

#[test]
fn a_pod_for_a_gpu_is_told_that_no_type_has_one() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: gpu}\n\
               spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}}]}\nEOF\n";
    let text = answered(&format!("apply -f {}\napply -f -\n{pod}advance 1m\nexplain gpu\n", demo("pool.yaml")));
    let (_, told) = text.rsplit_once("\ngpu\n").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(told.matches("no instance type has enough resources").count(), 1, "{told}");
    assert!(told.contains("has enough resources (needs 1 nvidia.com/gpu, which no allowed type has), requirements="), "{told}");
}

#[test]
fn a_pod_without_any_nodepool_is_told_what_is_missing() {
    let files = format!("apply -f {} -f {}\n", seed("004-state-nodes.yaml"), seed("002-deployment-nginx-sized.yaml"));
    let text = answered(&format!("{files}advance 1m\n"));
    assert!(text.contains("the cluster has no NodePool, so that no machine is launched for pods: apply one"), "{text}");
}

#[test]
fn everything_of_a_namespace_is_deleted_at_once() {
    let text = answered(&format!("{}delete all --all\nadvance 5m\nget deploy,rs,pods,nodes\n", running()));
    assert!(text.contains("deployment/inflate deleted\n") && !text.contains("replicaset/"), "{text}");
    assert!(text.contains("there are no deployments, replicasets, pods, nodes"), "{text}");
    // One that is named, and is not there to be deleted, is refused, and nothing goes.
    let session = whittle(&["local"], &format!("{}delete deploy/inflate deploy/none\n", running()));
    assert!(err(&session).contains("none") && !out(&session).contains("inflate deleted"), "{}{}", out(&session), err(&session));
}

#[test]
fn explain_keeps_to_the_namespace_and_the_kind_it_is_given() {
    let running = running();
    let refused = |line: &str| {
        let session = whittle(&["local"], &format!("{running}{line}\n"));
        assert_ne!(session.status.code(), Some(0), "{line}: {}", out(&session));
        err(&session)
    };
    assert!(refused("explain -n NOPE pod inflate").contains("there is no pod \"inflate\" in namespace NOPE"));
    assert!(refused("explain -n NOPE inflate").contains("in namespace NOPE"));
    assert!(refused("explain -n NOPE deploy/inflate").contains("there is no deployment \"inflate\" in namespace NOPE"));
    assert!(refused("explain job/default").contains("Jobs are not simulated"));
    assert!(refused("explain nope/inflate").contains("holds no \"nope\""));
    let text =
        answered(&format!("{running}explain -n default inflate\nexplain pod -n default inflate\nexplain -n NOPE nodepool default\n"));
    assert!(text.contains("deployment/default/inflate: 5 pods have a node") && text.contains("\nnodepool/default\n"), "{text}");
    assert_eq!(text.matches("  runs on ip-").count(), 2, "{text}");
}

#[test]
fn explain_knows_a_pod_that_is_gone_by_its_namespace() {
    let pod = "apply -f -\n{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {nodeSelector: {team: a}, containers: [{name: c}]}}\nEOF\n";
    let text = answered(&format!("apply -f {}\n{pod}advance 1m\ndelete pod p -n shop\nadvance 1m\nexplain shop/p\n", demo("pool.yaml")));
    assert!(text.contains("\np is gone") && text.contains("label \"team\" does not have known values"), "{text}");
}

#[test]
fn a_label_is_not_added_and_removed_at_once() {
    let session = whittle(&["local"], &format!("{}label deploy inflate a=b a-\n", running()));
    assert!(err(&session).contains("\"a\" is changed twice"), "{}", err(&session));
}

#[test]
fn explain_says_what_a_waiting_pod_takes_until_it_has_a_node() {
    let pod = |more: &str| {
        format!("apply -f -\n{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{more}containers: [{{name: c}}]}}}}\nEOF\n")
    };
    let waiting = format!("apply -f {}\n{}advance 1m\nexplain p\n", demo("pool.yaml"), pod("nodeSelector: {team: a}, "));
    let text = answered(&waiting);
    let remedy =
        "  what it would take (nodepool default): the label team in its spec.template.metadata.labels or spec.template.spec.requirements, ";
    assert!(text.lines().last().is_some_and(|line| line.starts_with(remedy)), "{text}");
    let text = answered(&format!("{waiting}delete pod p\n{}advance 3m\nexplain p\n", pod("")));
    assert_eq!(text.matches("what it would take").count(), 1, "of the second there is nothing to say: {text}");
}

#[test]
fn explain_says_what_lets_a_node_go_until_it_may() {
    let text = answered(&format!("{}get nodes -o name\n", running()));
    let node = text.lines().find_map(|line| line.strip_prefix("node/")).expect(&text).trim();
    let held = format!("{}annotate node {node} karpenter.sh/do-not-disrupt=true\nadvance 6m\nexplain {node}\n", running());
    let remedy = "  what it would take: the node without the annotation karpenter.sh/do-not-disrupt";
    let text = answered(&held);
    assert_eq!(text.lines().last(), Some(remedy), "{text}");
    let text = answered(&format!("{held}annotate node {node} karpenter.sh/do-not-disrupt-\nadvance 6m\nexplain {node}\n"));
    assert_eq!(text.matches(remedy).count(), 1, "it holds no more: {text}");
}

#[test]
fn explain_says_which_node_a_machine_replaces() {
    let pool = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: steady}, spec: {weight: 9, template: {spec: {requirements: [{key: \
                karpenter.sh/capacity-type, operator: In, values: [on-demand]}], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, \
                name: default}}}}}";
    let web = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {a: b}}, template: \
               {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 3}}}]}}}}";
    let begin = format!(
        "apply -f {}/src/local/demo/pool.yaml\napply -f -\n{pool}\n---\n{web}\nEOF\nadvance 3m\nget nodes -o name\n",
        env!("CARGO_MANIFEST_DIR")
    );
    let node = |text: &str| text.lines().rev().find_map(|line| line.strip_prefix("node/")).expect(text).trim().to_owned();
    let before = node(&answered(&begin));
    let scaled = format!("{begin}scale deployment web --replicas=1\nadvance 10m\nget nodes -o name\n");
    let after = node(&answered(&scaled));
    assert_ne!(before, after);
    let text = answered(&format!("{scaled}explain {after}\n"));
    assert!(text.contains(&format!("  replaces {before} (Underutilized): 1 pod moves to it, from nodepool steady; cheapest ")), "{text}");
    let text = answered(&format!("{scaled}explain {before}\n"));
    let end = text.lines().find(|line| line.starts_with(&format!("{before} is gone"))).expect(&text);
    assert!(end.contains("; nodeclaim/steady-") && end.ends_with(" takes its place"), "{text}");
}

/// S1.15: a pool of more weight comes first, unless it does not take the pods.
#[test]
fn explain_says_which_pools_were_passed_over() {
    let heavy = "apply -f -\n{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: heavy}, spec: {weight: 10, template: {spec: {taints: [{key: a, \
                 effect: NoSchedule}], requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}\nEOF\n";
    let begin = format!("{heavy}{}get nodes -o name\n", running());
    let text = answered(&begin);
    let node = text.lines().find_map(|line| line.strip_prefix("node/")).expect(&text).trim();
    let text = answered(&format!("{begin}explain {node}\n"));
    let passed = text.lines().filter(|line| line.starts_with("  passed over: nodepool heavy: did not tolerate taint")).count();
    assert_eq!(passed, 1, "{text}");
}

/// What the prompt prints as YAML is read by every command, Events and NodeClaims too.
#[test]
fn a_dump_of_everything_is_planned_explained_and_checked() {
    let text = answered(&format!("{}get nodepools,ec2nodeclasses,nodeclaims,nodes,deployments,pods,events -A -o yaml\n", running()));
    let (_, dump) = text.split_once("\napiVersion: ").unwrap();
    let dump = format!("apiVersion: {dump}");
    let node = text.split_whitespace().find(|word| word.starts_with("ip-192-168-") && word.ends_with(".ec2.internal")).unwrap();
    for command in
        [&["plan", "-f", "-"][..], &["consolidate", "-f", "-"], &["explain", &format!("node/{node}"), "-f", "-"], &["check", "-f", "-"]]
    {
        let read = whittle(command, &dump);
        assert_eq!(read.status.code(), Some(0), "{command:?}: {}{}", out(&read), err(&read));
        assert!(!err(&read).contains("given twice"), "{command:?}: {}", err(&read));
    }
}

/// A server refuses a NodeClaim that requires what only the system may name.
#[test]
fn nodeclaims_of_a_provisioner_are_such_as_a_server_accepts() {
    let begin = format!("apply -f {} -f {}\n", seed("004-provisioner-default.yaml"), seed("004-deployment-inflate.yaml"));
    let session = whittle(
        &["local", "--cluster", "eksworkshop", "--kubernetes-version", "1.32"],
        &format!("{begin}scale deploy inflate --replicas 5\nadvance 3m\nget nodeclaims -o yaml\n"),
    );
    let text = out(&session);
    let (_, dump) = text.split_once("\napiVersion: ").unwrap_or_else(|| panic!("{text}{}", err(&session)));
    // Nobody creates an object with the version of a stored one.
    let dump: String =
        dump.lines().filter(|line| !line.trim_start().starts_with("resourceVersion:")).map(|line| format!("{line}\n")).collect();
    for command in ["validate", "check"] {
        let judged = whittle(&[command, "-f", "-"], &format!("apiVersion: {dump}"));
        assert_eq!(judged.status.code(), Some(0), "{command}: {}{}", out(&judged), err(&judged));
        assert!(out(&judged).contains("NodeClaim"), "{command}: {}", out(&judged));
    }
    assert!(dump.contains("karpenter.sh/provisioner-name: default"), "it stays a label: {dump}");
}

/// Beside a pool that is ready, one that is not would go unnoticed; so would a name that no pool has.
#[test]
fn explain_names_pools_that_were_not_asked() {
    let lost = "apply -f -\n{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: lost}, spec: {role: r, amiSelectorTerms: [{alias: \
                al2023@latest}], subnetSelectorTerms: [{tags: {none: such}}], securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: \
                demo}}]}}\n---\n{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: lost}, spec: {template: {spec: {requirements: [], \
                nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: lost}}}}}\nEOF\n";
    let pod = |name: &str, selector: &str| {
        format!(
            "apply -f -\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeSelector: {{{selector}}}, containers: [{{name: c, image: i}}]}}}}\nEOF\n"
        )
    };
    let (odd, unknown) = (pod("odd", "team: a"), pod("unknown", "karpenter.sh/nodepool: nonexistent"));
    let text = answered(&format!(
        "{}{lost}{odd}{unknown}advance 2m\nexplain odd\nexplain unknown\nget ec2nodeclasses,nodepools,pods -o yaml\n",
        running()
    ));
    let aside = "  nodepool lost is left aside: EC2NodeClass \"lost\" is not ready: SubnetsNotFound";
    assert_eq!(text.matches(aside).count(), 2, "{text}");
    let missing = "  no NodePool is called \"nonexistent\", which its node selector asks for: there is default, lost";
    assert_eq!(text.matches(missing).count(), 1, "{text}");
    let (_, dump) = text.rsplit_once("\napiVersion: v1\n").unwrap();
    let explained = whittle(&["explain", "unknown", "-f", "-", "--region", "us-east-1"], &format!("apiVersion: v1\n{dump}"));
    assert!(out(&explained).contains(aside) && out(&explained).contains(missing), "{}{}", out(&explained), err(&explained));
}

#[test]
fn who_waits_for_a_startup_taint_to_go_is_told_of_it() {
    let pool = std::fs::read_to_string(demo("pool.yaml")).unwrap();
    let tainted =
        pool.replacen("      requirements:", "      startupTaints: [{key: example.com/agent, effect: NoSchedule}]\n      requirements:", 1);
    let begin = format!("apply -f -\n{tainted}\nEOF\napply -f {}\nscale deploy inflate --replicas 2\nadvance 6m\n", demo("inflate.yaml"));
    let text = answered(&format!("{begin}explain inflate\nget nodepools,ec2nodeclasses,nodeclaims,nodes,pods -o yaml\n"));
    let says = "has the startup taint example.com/agent:NoSchedule, which something in the cluster has to remove\n";
    let (explained, dump) = text.split_once("\napiVersion: ").unwrap();
    assert!(format!("{explained}\n").contains(says), "{text}");
    let pod = explained.split_whitespace().find(|word| word.starts_with("inflate-")).unwrap();
    let node = explained.split_whitespace().find(|word| word.starts_with("ip-192-168-") && word.ends_with(".ec2.internal")).unwrap();
    for name in [format!("pod/{pod}"), format!("node/{node}")] {
        let told = whittle(&["explain", &name, "-f", "-"], &format!("apiVersion: {dump}"));
        assert!(out(&told).contains(says), "{name}: {}{}", out(&told), err(&told));
    }
}

/// Pods are made of what decisions read; an image is nothing of that, and a Deployment with another one is rolled out all the same.
#[test]
fn a_deployment_with_another_image_is_rolled_out() {
    let inflate = std::fs::read_to_string(demo("inflate.yaml")).unwrap().replace("replicas: 0", "replicas: 2");
    let other = inflate.replace("pause:3.7", "pause:3.8");
    assert_ne!(inflate, other);
    let apply = |text: &str| format!("apply -f -\n{text}\nEOF\n");
    let begin = format!("apply -f {}\n{}advance 3m\nget pods -o name\n", demo("pool.yaml"), apply(&inflate));
    let dry = format!("apply --dry-run=server -f -\n{other}\nEOF\n");
    let text =
        answered(&format!("{begin}{}{dry}{}{}advance 2m\nget pods -o name\nget deploy\n", apply(&inflate), apply(&other), apply(&other)));
    let said: Vec<&str> = text.lines().filter(|line| line.starts_with("deployment/inflate ")).collect();
    let words = ["created", "unchanged", "configured (server dry run)", "configured", "unchanged"];
    assert_eq!(said, words.map(|word| format!("deployment/inflate {word}")), "{text}");
    let pods: Vec<&str> = text.lines().filter(|line| line.starts_with("pod/inflate-")).collect();
    assert!(pods.len() == 4 && pods[..2].iter().all(|pod| !pods[2..].contains(pod)) && text.contains("2/2"), "{text}");
}

#[test]
fn a_disruption_budget_has_its_status_at_once_and_keeps_it() {
    let budget = "apply -f -\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {maxUnavailable: 1, selector: \
                  {matchLabels: {app: inflate}}}}\nEOF\n";
    let (pool, inflate) = (demo("pool.yaml"), demo("inflate.yaml"));
    let begin = format!("apply -f {pool}\napply -f {inflate}\nscale deploy inflate --replicas 2\nadvance 5m\n");
    let text = answered(&format!("{begin}{budget}get pdb\n{budget}advance 10s\n{budget}"));
    assert!(text.contains("web   N/A            1                1                    0s"), "{text}");
    assert_eq!(text.matches("poddisruptionbudget/web unchanged").count(), 2, "{text}");
}

/// What a cluster's controllers make of a change: hashes, drift and the status of budgets.
#[test]
fn a_changed_pool_class_or_budget_counts_as_its_controllers_would_see_it() {
    let text = answered(&format!("{}get nodepools,ec2nodeclasses,nodeclaims,nodes,deployments,pods -o yaml\n", running()));
    let (_, dump) = text.split_once("\napiVersion: ").unwrap();
    let file = std::env::temp_dir().join(format!("whittle-changed-{}.yaml", std::process::id()));
    let decided = |changed: &str| {
        std::fs::write(&file, changed).unwrap();
        let words = ["consolidate", "-f", "-", "--now", "2026-01-05T09:06:00Z", "--changed", &file.display().to_string()];
        let decided = whittle(&words, &format!("apiVersion: {dump}"));
        assert_eq!(decided.status.code(), Some(0), "{}", err(&decided));
        decided
    };
    let consolidated = |changed: &str| out(&decided(changed));
    let pool = std::fs::read_to_string(demo("pool.yaml")).unwrap();
    let labelled = pool.replacen("  template:\n", "  template:\n    metadata: {labels: {team: a}}\n", 1);
    let monitored = pool.replacen("  role: Karp", "  detailedMonitoring: true\n  role: Karp", 1);
    let budget = |field: &str| {
        format!(
            "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b}}, spec: {{{field}, selector: {{matchLabels: {{app: inflate}}}}}}}}"
        )
    };
    let same = consolidated(&pool);
    assert!(!same.contains("rifted") && same.contains("the change makes no difference"), "{same}");
    assert!(consolidated(&labelled).contains("(drifted: NodePoolDrifted)"));
    assert!(consolidated(&monitored).contains("(drifted: NodeClassDrift)"));
    assert!(consolidated(&budget("minAvailable: 5")).contains("PDB default/b allows 0 disruptions"));
    let applied = budget("maxUnavailable: 0").replace("}}}}", "}}}, status: {disruptionsAllowed: 3}}");
    assert!(consolidated(&applied).contains("PDB default/b allows 0 disruptions"), "who applies a budget does not write its status");
    for field in ["minAvailable: 4", "maxUnavailable: 20%"] {
        let open = consolidated(&budget(field));
        assert!(!open.contains("allows 0 disruptions"), "{field}: {open}");
    }
    let volumes = "  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 120Gi, volumeType: gp3, deleteOnTermination: true}}]\n  role: Karp";
    let noted = err(&decided(&pool.replacen("  role: Karp", volumes, 1)));
    let cost = "EC2NodeClass default: the volumes of each machine cost $0.0132/h instead of $0.0022/h, +$8.00 a month: no price has them";
    assert!(noted.contains(cost), "{noted}");
    assert!(!err(&decided(&monitored)).contains("volumes"), "they cost as before");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn machines_of_a_dump_say_when_they_expire() {
    let pool = std::fs::read_to_string(demo("pool.yaml")).unwrap();
    let short = pool.replacen("expireAfter: 720h", "expireAfter: 30m", 1);
    assert_ne!(pool, short);
    let begin = format!("apply -f -\n{short}\nEOF\napply -f {}\nscale deploy inflate --replicas 2\nadvance 5m\n", demo("inflate.yaml"));
    let text = answered(&format!("{begin}get nodepools,ec2nodeclasses,nodeclaims,nodes,pods -o yaml\n"));
    let (_, dump) = text.split_once("\napiVersion: ").unwrap();
    let dump = format!("apiVersion: {dump}");
    let node = text.split_whitespace().find(|word| word.starts_with("ip-192-168-") && word.ends_with(".ec2.internal")).unwrap();
    for (now, explained, noted) in [
        ("2026-01-05T09:10:00Z", "  it expires at 2026-01-05T09:30:0", false),
        ("2026-01-05T10:00:00Z", "  it has expired (spec.expireAfter)", true),
    ] {
        let node = whittle(&["explain", &format!("node/{node}"), "-f", "-", "--now", now], &dump);
        assert!(out(&node).contains(explained), "{}{}", out(&node), err(&node));
        let all = whittle(&["consolidate", "-f", "-", "--now", now], &dump);
        assert_eq!(err(&all).contains("has expired (spec.expireAfter): its node is drained"), noted, "{}", err(&all));
    }
}

/// While a machine starts, its claim tells by a label whose it is: nothing is launched twice.
#[test]
fn pods_that_name_their_provisioner_get_one_machine() {
    let pods = "apply -f -\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: w}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: \
                {metadata: {labels: {a: b}}, spec: {nodeSelector: {karpenter.sh/provisioner-name: default}, containers: [{name: c, image: i, \
                resources: {requests: {cpu: 1}}}]}}}}\nEOF\nadvance 6m\nget deploy\n";
    let lines = format!("apply -f {}\n{pods}", seed("004-provisioner-default.yaml"));
    let text = out(&whittle(&["local", "--cluster", "eksworkshop", "--kubernetes-version", "1.32"], &lines));
    assert!(text.contains("3/3"), "{text}");
    assert_eq!(text.matches("EC2 starts").count(), 1, "{text}");
}
