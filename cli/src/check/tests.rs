use super::*;
use std::path::Path;

struct Ran {
    code: ExitCode,
    out: String,
    err: String,
}

fn seed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/seeds").join(name)
}

fn run_on(args: &Args, environment: &[(&str, &str)]) -> Ran {
    let environment = environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args, &environment, &mut io::empty(), &mut out, &mut err).unwrap();
    Ran { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

fn args(files: &[&str]) -> Args {
    Args { filename: files.iter().map(|file| seed(file)).collect(), ..Args::default() }
}

/// The lines `origin: KEY = value` without their origin.
fn shown(ran: &Ran) -> Vec<&str> {
    ran.out.lines().filter(|line| line.contains(" = ")).map(|line| line.split_once(": ").unwrap().1).collect()
}

#[test]
fn s1_2_all_forms_of_the_settings_are_shown_alike() {
    let map = run_on(&args(&["001-configmap-global-settings.yaml"]), &[]);
    let new = run_on(&Args { values: vec![seed("001-helm-values.yaml")], ..args(&[]) }, &[]);
    let old = run_on(&Args { values: vec![seed("001-helm-values-v0.18.yaml")], ..args(&[]) }, &[]);
    let variables = [("CLUSTER_NAME", "${CLUSTER_NAME}"), ("CLUSTER_ENDPOINT", "${CLUSTER_ENDPOINT}"), ("HOME", "/")];
    let environment = run_on(&Args { environment: true, ..args(&[]) }, &variables);
    assert_eq!(shown(&map).len(), 4);
    assert_eq!(shown(&map), shown(&new));
    assert!(shown(&old).iter().chain(&shown(&environment)).all(|line| shown(&map).contains(line)));
    assert!(new.out.contains("note: ") && new.out.contains("role-arn is not used"), "{}", new.out);
    assert!([map, new, old, environment].iter().all(|ran| ran.code == ExitCode::SUCCESS));
}

#[test]
fn s2_5_nodes_may_join_with_the_corrected_aws_auth_map() {
    let role = Some("KarpenterNodeRole-${CLUSTER_NAME}".to_owned());
    let ran = run_on(&Args { node_role: role, ..args(&["002-aws-auth.yaml"]) }, &[]);
    assert_eq!(ran.code, ExitCode::SUCCESS, "{}", ran.err);
}

#[test]
fn a_role_that_cannot_be_looked_up_is_not_said_to_be_fine() {
    let role = Some("KarpenterNodeRole-shop".to_owned());
    let asked = Args { node_role: role, ..args(&["004-deployment-inflate.yaml"]) };
    let ran = run_on(&asked, &[]);
    assert_eq!(ran.code, ExitCode::from(1), "{}", ran.err);
    assert!(ran.err.contains("error: --node-role KarpenterNodeRole-shop: whether its nodes may join is not checked"), "{}", ran.err);
    assert!(ran.err.contains("kubectl get configmap aws-auth -n kube-system -o yaml"), "{}", ran.err);
    let unasked = run_on(&Args { node_role: None, ..asked.clone() }, &[]);
    let found = run_on(&Args { filename: vec![seed("002-aws-auth.yaml")], ..asked }, &[]);
    assert_eq!(unasked.code, ExitCode::SUCCESS, "{}", unasked.err);
    assert!(!unasked.err.contains("--node-role") && !found.err.contains("--node-role"), "{}{}", unasked.err, found.err);
}

#[test]
fn what_is_no_values_of_a_chart_is_refused() {
    let directory = std::env::temp_dir().join(format!("whittle-values-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let checked = |text: &str| {
        let file = directory.join("values.yaml");
        std::fs::write(&file, text).unwrap();
        run_on(&Args { values: vec![file], ..Args::default() }, &[])
    };
    let wrong =
        [("", "the file is empty"), ("# none\n", "the file is empty"), ("[]", "the file is a list"), ("7", "the file is a single value")];
    let wrong = wrong.into_iter().chain([("apiVersion: v1\nkind: List\nitems: []\n", "the file is a manifest: name it with -f")]);
    let refused: Vec<_> = wrong.map(|(text, why)| (checked(text), why)).collect();
    let (right, none) = (checked("settings: {clusterName: shop}\n"), checked("null\n"));
    std::fs::remove_dir_all(&directory).unwrap();
    for (ran, why) in refused {
        assert!(ran.code == ExitCode::from(2) && ran.err.contains(why) && ran.out.is_empty(), "{why}: {}{}", ran.out, ran.err);
    }
    assert!(right.code == ExitCode::SUCCESS && right.out.contains("CLUSTER_NAME = shop"), "{}{}", right.out, right.err);
    assert!(none.code == ExitCode::SUCCESS && none.out.contains("values.yaml: no setting is in it"), "{}{}", none.out, none.err);
}

#[test]
fn variables_in_other_objects_are_read_from_the_manifests_or_named() {
    let directory = std::env::temp_dir().join(format!("whittle-env-from-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (values, manifests) = (directory.join("values.yaml"), directory.join("manifests.yaml"));
    let text = "controller: {envFrom: [{configMapRef: {name: karpenter-env}}, {secretRef: {name: karpenter-secret}}]}\n";
    std::fs::write(&values, text).unwrap();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: karpenter-env, namespace: karpenter}\ndata: {ISOLATED_VPC: 'true'}\n";
    std::fs::write(&manifests, map).unwrap();
    let with = run_on(&Args { values: vec![values.clone()], filename: vec![manifests.clone()], ..Args::default() }, &[]);
    let without = run_on(&Args { values: vec![values], ..Args::default() }, &[]);
    let alone = run_on(&Args { filename: vec![manifests], ..Args::default() }, &[]);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(shown(&with), ["ISOLATED_VPC = true (the stack's parameter IsolatedVpc)"]);
    assert!(!with.out.contains("karpenter-env"), "{}", with.out);
    assert!(without.out.contains("controller.envFrom.configMapRef.karpenter-env is not used: "), "{}", without.out);
    for ran in [&with, &without] {
        assert!(ran.out.contains("controller.envFrom.secretRef.karpenter-secret is not used: "), "{}", ran.out);
        assert!(ran.code == ExitCode::SUCCESS && ran.err.is_empty(), "{}", ran.err);
    }
    assert!(alone.out.contains("karpenter-env\" is not looked at"), "{}", alone.out);
}

#[test]
fn an_amount_of_bytes_that_is_hardly_meant_is_remarked_and_valid() {
    let text = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {containers: [{name: c, resources: {requests: \
                {memory: 512m}}}]}}}\n";
    let checked = |text: &str| {
        let args = Args { filename: vec!["-".into()], ..Args::default() };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(&args, &BTreeMap::new(), &mut text.as_bytes(), &mut out, &mut err).unwrap();
        (code, String::from_utf8(out).unwrap())
    };
    let (code, out) = checked(text);
    let wanted = "warning: Job \"j\", spec.template.spec.containers[0].resources.requests.memory: 512m is part of a byte";
    assert!(code == ExitCode::SUCCESS && out.contains(wanted), "{out}");
    let (_, huge) = checked(&text.replace("512m", "1e400"));
    assert!(!huge.contains("part of a byte"), "{huge}");
    let (code, bytes) = checked(&text.replace("512m", "512"));
    let wanted =
        "resources.requests.memory: 512 is less than 1Ki, as a number without a suffix counts bytes: write it with one, such as 512Mi";
    assert!(code == ExitCode::SUCCESS && bytes.contains(wanted), "{bytes}");
    for enough in ["0", "1Ki", "1024", "134217728", "1e400"] {
        let (_, out) = checked(&text.replace("512m", enough));
        assert!(!out.contains("warning: "), "{enough}: {out}");
    }
}

/// What `check` prints of manifests on its standard input.
fn printed(text: &str) -> String {
    let args = Args { filename: vec!["-".into()], ..Args::default() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    run(&args, &BTreeMap::new(), &mut text.as_bytes(), &mut out, &mut err).unwrap();
    String::from_utf8(out).unwrap() + &String::from_utf8(err).unwrap()
}

#[test]
fn a_static_pool_that_its_limit_keeps_small_is_remarked() {
    let pool = |fields: &str| {
        printed(&format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: st}}\nspec: {{{fields}template: {{spec: {{requirements: [], \
             nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}}}}}}}\n"
        ))
    };
    let above = pool("replicas: 3, limits: {nodes: 2}, ");
    let wanted = "NodePool \"st\", spec.replicas: 3 machines are to be kept, and spec.limits.nodes lets 2 be launched: raise it, or lower";
    assert!(above.contains(wanted) && !above.contains(": fine"), "{above}");
    for kept in ["replicas: 3, limits: {nodes: 3}, ", "replicas: 3, ", "replicas: 0, limits: {nodes: 0}, ", "limits: {nodes: 2}, "] {
        let out = pool(kept);
        assert!(!out.contains("spec.replicas") && !out.contains("spec.limits.nodes"), "{kept}: {out}");
    }
}

#[test]
fn a_zone_in_which_the_class_has_no_subnet_is_remarked() {
    let pool = |key: &str, operator: &str, values: &str, status: &str| {
        printed(&format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{template: {{spec: {{requirements: [{{key: {key}, \
             operator: {operator}, values: {values}}}], nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}}}}}}}\n---\n\
             apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: a}}\nspec: {{role: r, amiSelectorTerms: [{{alias: \
             al2023@latest}}], subnetSelectorTerms: [{{tags: {{a: b}}}}], securityGroupSelectorTerms: [{{tags: {{a: b}}}}]}}\n\
             status: {status}\n"
        ))
    };
    let zone = "topology.kubernetes.io/zone";
    let status = "{subnets: [{id: subnet-1, zone: eu-west-1a, zoneID: euw1-az1}, {id: subnet-2, zone: eu-west-1b, zoneID: euw1-az2}]}";
    let both = pool(zone, "In", "[eu-west-1a, eu-west-1c]", status);
    let wanted = "EC2NodeClass \"a\" has no subnet in eu-west-1c, so that nothing is launched there: its status has subnets in eu-west-1a, \
                  eu-west-1b; select one";
    assert!(both.contains("spec.template.spec.requirements[0]") && both.contains(wanted), "{both}");
    assert!(!both.contains("NodePool \"p\": fine"), "{both}");
    let by_id = pool("topology.k8s.aws/zone-id", "In", "[euw1-az3]", status);
    assert!(by_id.contains("has no subnet in euw1-az3") && by_id.contains("subnets in euw1-az1, euw1-az2"), "{by_id}");
    let fine = [("In", "[eu-west-1a]", status), ("NotIn", "[eu-west-1c]", status), ("In", "[eu-west-1c]", "{}")];
    for (operator, values, status) in fine {
        let out = pool(zone, operator, values, status);
        assert!(!out.contains("has no subnet"), "{operator} {values} {status}: {out}");
    }
}

#[test]
fn a_requirement_that_nothing_meets_is_warned_of_and_an_unknown_type_is_noted() {
    let pool = |key: &str, value: &str| {
        printed(&format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{template: {{spec: {{requirements: [{{key: {key}, \
             operator: In, values: ['{value}']}}], nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}}}}}}}\n---\n\
             apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: a}}\nspec: {{role: r, amiSelectorTerms: [{{alias: \
             al2023@latest}}], subnetSelectorTerms: [{{id: subnet-1}}], securityGroupSelectorTerms: [{{id: sg-1}}]}}\n"
        ))
    };
    let memory = pool("karpenter.k8s.aws/instance-memory", "16");
    let wanted = "warning: NodePool \"p\", spec.template.spec.requirements[0]: no instance type of the built-in tables has \
                  karpenter.k8s.aws/instance-memory In [16]: there are types from ";
    assert!(memory.contains(wanted) && !memory.contains("NodePool \"p\": fine"), "{memory}");
    let new = pool("node.kubernetes.io/instance-type", "m99.large");
    assert!(
        new.contains("note: NodePool \"p\", spec.template.spec.requirements[0]: no instance type") && !new.contains("warning: "),
        "{new}"
    );
    assert!(!pool("karpenter.k8s.aws/instance-memory", "16384").contains("no instance type"));
}

#[test]
fn a_buffer_that_asks_for_more_than_it_gets_is_remarked() {
    let buffer = |fields: &str| {
        printed(&format!(
            "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{name: spare}}\nspec: {{podTemplateRef: \
             {{name: shape}}, {fields}}}\n"
        ))
    };
    let large = buffer("replicas: 6000");
    assert!(large.contains("spec.replicas: 5000 of its 6000 pods are kept free: a buffer has no more than 5000"), "{large}");
    assert!(!large.contains(": fine"), "{large}");
    // Its limits may be what keeps it small.
    for kept in ["replicas: 5000", "replicas: 6000, limits: {cpu: '4'}", "limits: {cpu: '4'}"] {
        let out = buffer(kept);
        assert!(out.contains(": fine"), "{kept}: {out}");
    }
}

#[test]
fn an_annotation_that_protects_nothing_is_remarked() {
    let deployment = |own: &str, of_pods: &str| {
        printed(&format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, annotations: {{{own}}}}}\nspec: {{selector: {{matchLabels: \
             {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}, {of_pods}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}\n"
        ))
    };
    for odd in ["True", "yes", "1", "5x", "0s", "-5m", ""] {
        let out = deployment("", &format!("annotations: {{karpenter.sh/do-not-disrupt: {odd:?}}}"));
        let wanted = format!("spec.template.metadata.annotations: karpenter.sh/do-not-disrupt with the value {odd:?} protects nothing");
        assert!(out.contains(&wanted) && !out.contains(": fine"), "{odd:?}: {out}");
    }
    for good in ["true", "4h", "1h30m", "false"] {
        let out = deployment("", &format!("annotations: {{karpenter.sh/do-not-disrupt: {good:?}}}"));
        assert!(out.contains("Deployment \"d\": fine"), "{good}: {out}");
    }
    let misplaced = deployment("karpenter.sh/do-not-disrupt: 'true'", "annotations: {}");
    assert!(misplaced.contains("metadata.annotations: karpenter.sh/do-not-disrupt protects none of its pods here"), "{misplaced}");
    let both = deployment("karpenter.sh/do-not-disrupt: 'true'", "annotations: {karpenter.sh/do-not-disrupt: 'true'}");
    assert!(both.contains("Deployment \"d\": fine"), "{both}");
    let label = printed(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {karpenter.sh/do-not-disrupt: 'true'}}\nspec: {containers: [{name: c}]}\n",
    );
    assert!(label.contains("metadata.labels: karpenter.sh/do-not-disrupt protects nothing as a label"), "{label}");
}

#[test]
fn an_old_annotation_is_said_to_protect_where_it_does() {
    let pod = |annotation: &str| {
        printed(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{annotation}}}}}\nspec: {{containers: [{{name: c}}]}}\n"
        ))
    };
    assert!(pod("karpenter.sh/do-not-evict: 'true'").contains("do-not-evict is deprecated, though it still protects"));
    for odd in ["karpenter.sh/do-not-evict: 'yes'", "karpenter.sh/do-not-consolidate: 'true'"] {
        assert!(pod(odd).contains("is deprecated, and protects nothing here: write karpenter.sh/do-not-disrupt instead"), "{}", pod(odd));
    }
}

/// Nodes have what the template of their NodePool says, and durations do not protect them.
#[test]
fn a_duration_protects_no_node() {
    let node = |value: &str| {
        printed(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: node-1, annotations: {{karpenter.sh/do-not-disrupt: {value:?}}}}}\n"
        ))
    };
    assert!(node("4h").contains("karpenter.sh/do-not-disrupt with the value \"4h\" protects nothing: write \"true\""), "{}", node("4h"));
    assert!(node("true").contains("Node \"node-1\": fine"), "{}", node("true"));
    let pool = printed(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec: {template: {metadata: {annotations: \
         {karpenter.sh/do-not-disrupt: 4h}}, spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}, \
         requirements: []}}}\n",
    );
    assert!(pool.contains("spec.template.metadata.annotations: karpenter.sh/do-not-disrupt with the value \"4h\""), "{pool}");
}

/// As pages print them, for envsubst; a server takes the text as it is.
#[test]
fn a_placeholder_that_nothing_has_filled_in_is_noted() {
    let class = |role: &str, key: &str, value: &str| {
        printed(&format!(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: c}}\nspec:\n  role: {role:?}\n  \
             tags: {{a: \"${{A}}\"}}\n  userData: \"#!/bin/bash\\necho ${{HOME}}\\n\"\n  amiSelectorTerms: \
             [{{alias: al2023@latest}}]\n  subnetSelectorTerms: [{{tags: {{{key:?}: {value:?}}}}}]\n  \
             securityGroupSelectorTerms: [{{tags: {{a: b}}}}]\n"
        ))
    };
    let noted = [
        ("nodes-${CLUSTER_NAME}", "a", "shop", "spec.role: \"nodes-${CLUSTER_NAME}\" has a placeholder: fill it in"),
        ("nodes", "kubernetes.io/cluster/$NAME", "owned", "\"kubernetes.io/cluster/$NAME\" has a placeholder: fill it in"),
        ("nodes", "a", "<<CLUSTER_NAME>>", "spec.subnetSelectorTerms[0].tags.a: \"<<CLUSTER_NAME>>\" has a placeholder: fill it in"),
        ("nodes", "a", "{{ cluster }}", "\"{{ cluster }}\" has a placeholder: fill it in"),
        ("$(ROLE)", "a", "${NAME}", "spec.role: \"$(ROLE)\" has a placeholder, one of 2 in this class: fill it in"),
    ];
    for (role, key, value, wanted) in noted {
        let out = class(role, key, value);
        assert!(out.contains("note: EC2NodeClass \"c\", spec.") && out.contains(wanted), "{wanted}: {out}");
        // Whoever applies it may fill it in.
        assert!(out.contains("EC2NodeClass \"c\": fine"), "{out}");
    }
    for value in ["*", "shop", "a$1", "a > b", "100%"] {
        let out = class("nodes", "a", value);
        assert!(!out.contains("placeholder"), "{value}: {out}");
    }
}

/// A server takes it.
#[test]
fn a_class_without_a_spec_is_not_fine() {
    let class = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: c}\n";
    for text in [class.to_owned(), format!("{class}spec: null\n")] {
        let said = printed(&text);
        assert!(said.contains("error: EC2NodeClass \"c\", spec: missing: it selects no subnet"), "{said}");
        assert!(!said.contains("\"c\": fine"), "{said}");
    }
}

#[test]
fn s2_6_the_printed_aws_auth_map_is_diagnosed() {
    let ran = run_on(&args(&["002-aws-auth-as-printed.yaml"]), &[]);
    assert_eq!(ran.code, ExitCode::from(1));
    assert!(ran.err.contains("entry 2 is not valid YAML") && ran.err.contains("instance profile, a role is needed"), "{}", ran.err);
    assert!(!ran.out.contains(" joins as ") && ran.out.contains("would join, were the list read, as system:node:"), "{}", ran.out);
}

#[test]
fn unreadable_files_and_invalid_pools_have_different_exit_codes() {
    let ran = run_on(&args(&["004-provisioner-as-printed.txt"]), &[]);
    assert_eq!(ran.code, ExitCode::from(2));
    assert!(ran.out.is_empty());
    let ran = run_on(&args(&["004-provisioner-default.yaml"]), &[]);
    assert_eq!((ran.code, ran.err.as_str()), (ExitCode::SUCCESS, ""));
    assert!(ran.out.contains("NodePool \"default\": fine"), "{}", ran.out);
}

/// Decisions 12.1 and 12.8 of the seeds: what older versions call it is reported where it is written.
#[test]
fn s1_24_words_of_older_versions_are_reported() {
    let ran = run_on(&args(&["001-workload-karpenter-self.yaml"]), &[]);
    let expected =
        "Deployment \"karpenter/karpenter\", spec.template.spec.affinity.nodeAffinity: karpenter.sh/provisioner-name DoesNotExist";
    assert!(ran.out.contains(expected) && ran.out.contains("add karpenter.sh/nodepool DoesNotExist"), "{}", ran.out);
    let ran = run_on(&args(&["003-workload-do-not-disrupt.yaml"]), &[]);
    let warnings: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert!(warnings.iter().any(|line| line.contains("karpenter.sh/do-not-evict is deprecated")), "{}", ran.out);
    assert!(!ran.out.lines().any(|line| line.starts_with("warning: ") && line.contains("on-protected-node")), "{}", ran.out);
    assert_eq!(ran.code, ExitCode::SUCCESS);
    let ran = run_on(&args(&["004-deployment-inflate.yaml"]), &[]);
    assert!(!ran.out.contains("warning") && ran.out.contains(": fine"), "{}", ran.out);
}

#[test]
fn s3_12_an_owner_of_nine_digits_is_remarked_and_valid() {
    let ran = run_on(&args(&["003-ec2nodeclass-selector-terms.yaml"]), &[]);
    assert!(!ran.out.contains("warning"), "{}", ran.out);
    let text = std::fs::read_to_string(seed("003-ec2nodeclass-selector-terms.yaml")).unwrap().replace("\"000123456789\"", "\"123456789\"");
    let args = Args { filename: vec!["-".into()], ..Args::default() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&args, &BTreeMap::new(), &mut text.as_bytes(), &mut out, &mut err).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!((code, out.matches("has 9 digits and an account id 12").count()), (ExitCode::SUCCESS, 2), "{out}");
    assert!(out.contains("spec.amiSelectorTerms[0].owner") && out.contains("leading zeros"), "{out}");
}

#[test]
fn quiet_prints_what_a_user_should_act_on_and_strict_refuses_it() {
    let files = args(&["003-workload-do-not-disrupt.yaml", "004-provisioner-default.yaml"]);
    let all = run_on(&files, &[]);
    assert!(all.out.lines().last().unwrap().ends_with("fine, 1 warning, 0 errors"), "{}", all.out);
    let quiet = run_on(&Args { quiet: true, ..files.clone() }, &[]);
    assert!(quiet.out.starts_with("warning: ") && quiet.out.lines().count() == 1, "{}", quiet.out);
    let strict = run_on(&Args { quiet: true, strict: true, ..files.clone() }, &[]);
    assert_eq!((all.code, quiet.code, strict.code), (ExitCode::SUCCESS, ExitCode::SUCCESS, ExitCode::from(1)));
    assert!(strict.err.starts_with("error: ") && strict.out.is_empty(), "{}{}", strict.out, strict.err);

    let json = run_on(&Args { output: Output::Json, ..files }, &[]);
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&value["summary"]["warnings"], &value["summary"]["errors"]), (&1.into(), &0.into()));
    let levels: Vec<&str> = value["findings"].as_array().unwrap().iter().map(|found| found["level"].as_str().unwrap()).collect();
    assert!(levels.contains(&"fine") && levels.contains(&"warning"), "{levels:?}");
}

#[test]
fn a_value_that_no_node_has_and_that_is_near_to_another_is_warned_of() {
    let of =
        |spec: &str| printed(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c}}], {spec}}}\n"));
    for (key, value, meant) in [
        ("karpenter.sh/capacity-type", "ondemand", "on-demand"),
        ("node.kubernetes.io/instance-type", "m5.larg", "m5.large"),
        ("kubernetes.io/arch", "x86_64", "amd64"),
        ("topology.kubernetes.io/zone", "us-east1a", "us-east-1a"),
    ] {
        let out = of(&format!("nodeSelector: {{{key}: {value}}}"));
        let wanted = format!("Pod \"p\", spec.nodeSelector[{key}]: no instance type has {key} {value:?}: did you mean {meant}?");
        assert!(out.contains(&format!("warning: {wanted}")) && !out.contains(": fine"), "{out}");
    }
    let old = of("nodeSelector: {beta.kubernetes.io/arch: aarch64}");
    assert!(old.contains("spec.nodeSelector[beta.kubernetes.io/arch]: no instance type has kubernetes.io/arch \"aarch64\""), "{old}");
    for fine in [
        "karpenter.sh/capacity-type: reserved",
        "node.kubernetes.io/instance-type: m99.large",
        "topology.kubernetes.io/zone: eu-central-1b",
        "kubernetes.io/os: windows",
        "team: ondemand",
        "topology.kubernetes.io/zones: us-east-1a",
    ] {
        let out = of(&format!("nodeSelector: {{{fine}}}"));
        assert!(out.contains("Pod \"p\": fine"), "{fine}: {out}");
    }
    let terms =
        |operator: &str| format!("[{{matchExpressions: [{{key: kubernetes.io/arch, operator: {operator}, values: [amd64, arm]}}]}}]");
    let required = |operator: &str| {
        let required = format!("{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {}}}}}", terms(operator));
        of(&format!("affinity: {{nodeAffinity: {required}}}"))
    };
    let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values";
    assert!(required("In").contains(&format!("{field}: no instance type has kubernetes.io/arch \"arm\"")), "{}", required("In"));
    assert!(required("NotIn").contains(": fine"), "it excludes nothing: {}", required("NotIn"));
    let expression = "{key: kubernetes.io/arch, operator: In, values: [arm]}";
    let preferred = format!("[{{weight: 1, preference: {{matchExpressions: [{expression}]}}}}]");
    let out = of(&format!("affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: {preferred}}}}}"));
    assert!(out.contains("Execution[0].preference.matchExpressions[0].values: no instance type has"), "{out}");
}

/// For each value, as `plan` tells it.
#[test]
fn what_is_wrong_with_many_pods_is_one_line_for_each_cause() {
    let of = |name: &str, count: usize, spec: &str| -> String {
        let pod = |number: usize| {
            format!("---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-{number}}}\nspec: {{containers: [{{name: c}}], {spec}}}\n")
        };
        (0..count).map(pod).collect()
    };
    let many = of("spelt", 11, "nodeSelector: {karpenter.sh/capacity-type: ondemand}");
    let few = of("few", 10, "nodeSelector: {node.kubernetes.io/instance-type: m5.larg}");
    let refused = of("refused", 12, "tolerations: [{operator: Foo}]");
    let out = printed(&(many.clone() + &few + &refused));
    let line = "warning: Pod \"spelt-0\" and 10 more, spec.nodeSelector[karpenter.sh/capacity-type]: no instance type has \
                karpenter.sh/capacity-type \"ondemand\": did you mean on-demand?\n";
    assert!(out.contains(line) && out.matches("\"ondemand\"").count() == 1, "{out}");
    assert_eq!(out.matches("\"m5.larg\"").count(), 10, "{out}");
    let error = "Pod \"refused-0\" and 11 more, spec.tolerations[0].operator: \"Foo\" is none of its values";
    assert!(out.contains(error) && out.matches("\"Foo\"").count() == 1, "{out}");
    assert!(out.contains("0 objects fine, 21 warnings, 12 errors"), "{out}");
    // Each of these is to be edited.
    let deployment = |number: usize| {
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d-{number}}}\nspec: {{selector: {{matchLabels: {{a: b}}}}, \
             template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: i}}], nodeSelector: {{kubernetes.io/arch: \
             arm}}}}}}}}\n"
        )
    };
    let workloads = printed(&(0..11).map(deployment).collect::<String>());
    assert_eq!(workloads.matches(", spec.template.spec.nodeSelector[kubernetes.io/arch]: no instance type").count(), 11, "{workloads}");
    // As errors, with --strict, and each by itself for programs.
    let run_with = |output: Output| {
        let args = Args { filename: vec!["-".into()], strict: true, output, ..Args::default() };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(&args, &BTreeMap::new(), &mut many.as_bytes(), &mut out, &mut err).unwrap();
        assert_eq!(code, ExitCode::from(1));
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    let (_, strict) = run_with(Output::Text);
    assert_eq!(strict, line.replacen("warning", "error", 1));
    let (json, _) = run_with(Output::Json);
    assert_eq!(json.matches("did you mean on-demand?").count(), 11, "{json}");
}

#[test]
fn what_many_objects_of_a_kind_have_in_common_is_one_line() {
    let of = |kind: &str, count: usize, rest: &str| -> String {
        let object = |n: usize| format!("---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: a-{n}}}\n{rest}");
        (0..count).map(object).collect()
    };
    let spec = "spec: {containers: [{name: c, image: i}]}\n";
    let odd = "---\napiVersion: v1\nkind: Node\nmetadata: {name: odd, annotations: {karpenter.sh/do-not-disrupt: 4h}}\n";
    let few = printed(&(of("Pod", 10, spec) + &of("Secret", 3, "")));
    assert_eq!((few.matches(": fine\n").count(), few.matches("is not looked at").count()), (10, 3), "{few}");
    let many = printed(&(of("Pod", 11, spec) + odd + &of("Node", 2, "") + &of("Secret", 4, "")));
    let lines: Vec<&str> = many.lines().collect();
    assert_eq!((lines[0], lines.len()), ("11 objects of kind Pod: fine", 6), "{many}");
    assert!(lines[1].starts_with("warning: Node \"odd\""), "{many}");
    assert_eq!(lines[2..4], ["Node \"a-0\": fine", "Node \"a-1\": fine"], "{many}");
    assert_eq!(lines[4..], ["note: 4 objects of kind Secret are not looked at: Secret of v1", "13 objects fine, 1 warning, 0 errors"]);
}

#[test]
fn nothing_to_check_and_a_missing_file_are_no_answer() {
    let ran = run_on(&args(&[]), &[]);
    assert_eq!(ran.code, ExitCode::from(2));
    assert!(ran.err.contains("name manifests with -f"), "{}", ran.err);
    let ran = run_on(&Args { values: vec!["/no/such/values.yaml".into()], ..args(&[]) }, &[]);
    assert_eq!(ran.code, ExitCode::from(2), "as for a missing manifest");
    assert!(ran.err.contains("/no/such/values.yaml"), "{}", ran.err);
}

#[test]
fn a_comparison_with_what_is_no_number_is_warned_of_and_others_are_not() {
    let of = |affinity: &str| {
        let spec = format!("{{containers: [{{name: c, image: i}}], affinity: {{nodeAffinity: {{{affinity}}}}}}}");
        printed(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n"))
    };
    let required = |operator: &str, value: &str| {
        let expressions = format!("[{{key: b, operator: Exists}}, {{key: a, operator: {operator}, values: ['{value}']}}]");
        of(&format!("requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: {expressions}}}]}}"))
    };
    let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values";
    for (operator, value) in [("Gt", "four"), ("Lt", "1.5"), ("Gt", "9223372036854775808")] {
        let wanted = format!("warning: Pod \"p\", {field}: {operator} compares whole numbers, and {value:?} is none, so that the term");
        assert!(required(operator, value).contains(&wanted), "{}", required(operator, value));
    }
    for (operator, value) in [("Gt", "4"), ("Lt", "0"), ("In", "four")] {
        assert!(!required(operator, value).contains("whole numbers"), "{}", required(operator, value));
    }
    let preferred = |value: &str| {
        let preference = format!("{{weight: 1, preference: {{matchExpressions: [{{key: a, operator: Gt, values: ['{value}']}}]}}}}");
        of(&format!("preferredDuringSchedulingIgnoredDuringExecution: [{preference}]"))
    };
    assert!(preferred("x").contains("[0].preference.matchExpressions[0].values: Gt compares whole numbers"), "{}", preferred("x"));
    assert!(preferred("x").contains("the scheduler fails for its pods"), "{}", preferred("x"));
    assert!(!preferred("7").contains("whole numbers"), "{}", preferred("7"));
}
