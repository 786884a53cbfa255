use super::*;
use crate::network::{ClusterInfo, ImageVariant, PlacementGroup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use whittle_api::karpenter::AmiFamily;
use whittle_api::karpenter::{AmiSelectorTerm, ResolvedAmi, SecurityGroupSelectorTerm, SubnetSelectorTerm};

fn subnet(id: &str, free: u32) -> Subnet {
    Subnet { id: id.into(), zone: "us-east-1a".into(), zone_id: "use1-az1".into(), free_addresses: free, ..Subnet::default() }
}

fn image(id: &str, architecture: &str, created: &str, variant: ImageVariant) -> Image {
    Image {
        id: id.into(),
        name: id.into(),
        owner: "amazon".into(),
        architecture: architecture.into(),
        created_at: created.parse().unwrap(),
        deprecated: false,
        variant,
        tags: BTreeMap::new(),
    }
}

const OLD: &str = "2026-01-01T00:00:00Z";
const NEW: &str = "2026-02-01T00:00:00Z";

fn ids(amis: &[ResolvedAmi]) -> Vec<&str> {
    amis.iter().map(|ami| ami.id.as_str()).collect()
}

#[test]
fn subnets_are_sorted_by_free_addresses_and_security_groups_by_id() {
    let chosen = choose_subnets(vec![subnet("b", 5), subnet("c", 9), subnet("a", 5), subnet("a", 5)]);
    assert_eq!(chosen.iter().map(|subnet| subnet.id.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
    let group = |id: &str| SecurityGroup { id: id.into(), ..SecurityGroup::default() };
    let chosen = choose_security_groups(vec![group("sg-2"), group("sg-1"), group("sg-2")]);
    assert_eq!(chosen.iter().map(|group| group.id.as_str()).collect::<Vec<_>>(), ["sg-1", "sg-2"]);
}

#[test]
fn of_images_for_the_same_machines_one_not_deprecated_then_the_newest_is_chosen() {
    let arm = |id: &str, created| image(id, "arm64", created, ImageVariant::Any);
    assert_eq!(ids(&choose_images(&[arm("a", OLD), arm("b", NEW)], AmiFamily::Custom)), ["b"]);
    assert_eq!(ids(&choose_images(&[arm("a", OLD), Image { deprecated: true, ..arm("b", NEW) }], AmiFamily::Custom)), ["a"]);
    assert_eq!(ids(&choose_images(&[arm("a", NEW), arm("b", NEW)], AmiFamily::Custom)), ["b"], "then the larger name");
    let deprecated = |id: &str, created| Image { deprecated: true, ..arm(id, created) };
    assert_eq!(ids(&choose_images(&[deprecated("a", OLD), deprecated("b", NEW)], AmiFamily::Custom)), ["b"]);
    assert_eq!(ids(&choose_images(&[image("x", "i386", NEW, ImageVariant::Any)], AmiFamily::Custom)), [""; 0]);
}

#[test]
fn images_for_different_machines_are_all_kept_newest_first() {
    let images = [
        image("std", "x86_64", OLD, ImageVariant::Standard),
        image("gpu", "x86_64", NEW, ImageVariant::Accelerated),
        image("arm", "arm64", OLD, ImageVariant::Standard),
    ];
    let chosen = choose_images(&images, AmiFamily::Al2);
    assert_eq!(ids(&chosen), ["gpu", "gpu", "arm", "std"]);
    let keys: Vec<&str> = chosen[3].requirements.iter().map(|requirement| requirement.key.as_str()).collect();
    assert_eq!(keys, ["kubernetes.io/arch", "karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-accelerator-count"]);
    let windows = choose_images(&[image("win", "x86_64", NEW, ImageVariant::Any)], AmiFamily::Windows2022);
    assert_eq!(windows[0].requirements.len(), 3);
}

#[test]
fn aliases_resolve_to_the_ssm_parameters_of_their_family() {
    let paths =
        |alias: &str, version: &str| ssm_images(alias, version).map(|all| all.into_iter().map(|each| each.parameter).collect::<Vec<_>>());
    assert_eq!(
        paths("al2@latest", "1.32").unwrap(),
        [
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id",
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-arm64/recommended/image_id",
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id",
        ]
    );
    assert!(paths("al2@v20240807", "1.30").unwrap()[1].ends_with("/amazon-eks-arm64-node-1.30-v20240807/image_id"));
    assert!(matches!(paths("al2@latest", "1.33"), Err(AliasError::TooNew { .. })));
    let al2023 = paths("al2023@v20250101", "1.33").unwrap();
    assert_eq!(al2023.len(), 5);
    assert_eq!(
        al2023[1],
        "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/amazon-eks-node-al2023-x86_64-nvidia-1.33-v20250101/image_id"
    );
    assert_eq!(paths("bottlerocket@v1.46.0", "1.33").unwrap()[0], "/aws/service/bottlerocket/aws-k8s-1.33/x86_64/1.46.0/image_id");
    assert!(matches!(paths("windows2025@latest", "1.34"), Err(AliasError::TooOld { .. })));
    assert_eq!(
        paths("windows2025@latest", "1.35").unwrap(),
        ["/aws/service/ami-windows-latest/Windows_Server-2025-English-Core-EKS_Optimized-1.35/image_id"]
    );
    assert!(matches!(paths("ubuntu@latest", "1.33"), Err(AliasError::Unknown(_))));
}

fn terms<T: serde::de::DeserializeOwned>(value: Value) -> Vec<T> {
    serde_json::from_value(value).unwrap()
}

fn shown(queries: &[Query]) -> Vec<String> {
    let filters =
        |query: &Query| query.filters.iter().map(|(name, values)| format!("{name}={}", values.join("|"))).collect::<Vec<_>>().join("&");
    queries
        .iter()
        .map(|query| if query.owners.is_empty() { filters(query) } else { format!("{}@{}", filters(query), query.owners.join("|")) })
        .collect()
}

#[test]
fn terms_are_separate_queries_and_the_tags_of_one_term_are_combined() {
    let subnets: Vec<SubnetSelectorTerm> =
        terms(json!([{"id": "subnet-2"}, {"tags": {"a": "1", "b": "*"}}, {"id": "subnet-1"}, {"tags": {"c": "2"}}]));
    assert_eq!(shown(&subnet_queries(&subnets)), ["subnet-id=subnet-1|subnet-2", "tag-key=b&tag:a=1", "tag:c=2"]);
    let groups: Vec<SecurityGroupSelectorTerm> = terms(json!([{"name": "n"}, {"id": "sg-1"}, {"tags": {"a": "1"}}]));
    assert_eq!(shown(&security_group_queries(&groups)), ["group-id=sg-1", "group-name=n", "tag:a=1"]);
    let images: Vec<AmiSelectorTerm> = terms(
        json!([{"alias": "al2@latest"}, {"id": "ami-1"}, {"name": "x*"}, {"name": "y", "owner": "1"}, {"tags": {"a": "*"}}, {"ssmParameter": "/p"}]),
    );
    assert_eq!(
        shown(&image_queries(&images, &["ami-0".to_owned()])),
        ["image-id=ami-0|ami-1", "name=x*@self|amazon", "name=y@1", "tag-key=a"]
    );
    assert_eq!(ssm_parameters(&images), ["/p"]);
    assert_eq!(subnet_queries(&[]), []);
}

/// An API server accepts both. The image of the parameter was looked up as well, and used where it was the newer one.
#[test]
fn a_parameter_beside_an_id_or_an_alias_selects_nothing() {
    let both: Vec<AmiSelectorTerm> = terms(json!([{"id": "ami-1", "ssmParameter": "/a"}, {"name": "x", "ssmParameter": "/b"}]));
    assert_eq!(ssm_parameters(&both), ["/b"]);
    assert_eq!(shown(&image_queries(&both, &["ami-0".to_owned()])), ["image-id=ami-0|ami-1"], "of a name the parameter takes the place");
    let with_alias: Vec<AmiSelectorTerm> = terms(json!([{"alias": "al2023@latest", "ssmParameter": "/a"}]));
    assert_eq!(ssm_parameters(&with_alias), [""; 0]);
}

/// EC2 was asked for images and groups of an empty name, of which there are none, or of no owner, which is an error.
#[test]
fn an_empty_text_of_a_term_is_none() {
    let images: Vec<AmiSelectorTerm> = terms(json!([
        {"tags": {"a": "1"}, "name": "", "owner": "", "ssmParameter": ""},
        {"name": "x", "owner": ""},
        {"id": "ami-1", "ssmParameter": ""},
        {"name": ""},
    ]));
    assert_eq!(shown(&image_queries(&images, &[])), ["image-id=ami-1", "tag:a=1", "name=x@self|amazon"], "the last selects nothing");
    assert_eq!(ssm_parameters(&images), [""; 0]);
    let groups: Vec<SecurityGroupSelectorTerm> = terms(json!([{"tags": {"a": "1"}, "name": ""}, {"name": ""}]));
    assert_eq!(shown(&security_group_queries(&groups)), ["tag:a=1"]);
}

#[test]
fn all_wildcard_tags_of_a_term_must_exist() {
    let query = subnet_queries(&terms::<SubnetSelectorTerm>(json!([{"tags": {"a": "*", "b": "*"}}]))).remove(0);
    assert!(!matches_tags(&query, &BTreeMap::from([("a".to_owned(), String::new())])));
    assert!(matches_tags(&query, &BTreeMap::from([("a".to_owned(), String::new()), ("b".to_owned(), "x".to_owned())])));
}

/// As Karpenter's own suites select everything that has a tag at all.
#[test]
fn keys_of_wildcard_tags_may_have_wildcards() {
    let with = |tags: Value| subnet_queries(&[SubnetSelectorTerm { tags: Some(terms_of(tags)), id: None }]).remove(0);
    let has = |wanted: Value, key: &str| matches_tags(&with(wanted), &BTreeMap::from([(key.to_owned(), "x".to_owned())]));
    for (pattern, key, expected) in [
        ("*", "Name", true),
        ("kubernetes.io/cluster/*", "kubernetes.io/cluster/demo", true),
        ("kubernetes.io/cluster/*", "karpenter.sh/discovery", false),
        ("*/cluster/*", "kubernetes.io/cluster/demo", true),
        ("te?m", "team", true),
        ("te?m", "tem", false),
        ("team", "Team", false),
        (r"a\*", "a*", true),
        (r"a\*", "ab", false),
        (r"a\b", r"a\b", true),
        ("ä?*", "äöü", true),
        ("", "a", false),
    ] {
        assert_eq!(has(json!({pattern: "*"}), key), expected, "{pattern} {key}");
    }
    assert!(!matches_tags(&with(json!({"*": "*"})), &BTreeMap::new()), "nothing without a tag");
    let hard = "*a".repeat(60);
    assert!(!has(json!({hard: "*"}), &"a".repeat(59)), "it takes no longer than others");
    assert!(!has(json!({"a*": "*", "b*": "*"}), "ab"), "each key is needed");
}

fn terms_of(tags: Value) -> BTreeMap<String, String> {
    serde_json::from_value(tags).unwrap()
}

#[test]
fn an_instance_profile_has_one_name_per_class_and_role() {
    let profile = instance_profile("demo", "us-east-1", "default", "team/NodeRole");
    assert_eq!(profile, instance_profile("demo", "us-east-1", "default", "NodeRole"));
    assert_ne!(profile.name, instance_profile("demo", "us-east-1", "default", "OtherRole").name);
    assert_eq!((profile.role.as_str(), profile.path.as_str()), ("NodeRole", "/karpenter/us-east-1/demo/default/"));
    assert!(profile.name.len() <= 128 && profile.tags.len() == 4);
}

fn cluster(service_cidr: &str, certificate_authority: &str) -> ClusterInfo {
    ClusterInfo {
        name: "demo".into(),
        endpoint: "https://demo".into(),
        certificate_authority: certificate_authority.into(),
        version: "1.33".into(),
        service_cidr: service_cidr.into(),
        ipv6: false,
        vpc: String::new(),
        arn: String::new(),
    }
}

/// Checks of the default settings.
fn standard() -> Checks<'static> {
    const STANDARD: &Settings = &Settings::standard();
    static CLUSTER: LazyLock<ClusterInfo> = LazyLock::new(|| cluster("172.20.0.0/16", "Yw=="));
    Checks { settings: STANDARD, cluster: &CLUSTER, catalog: None }
}

/// One of everything that a class needs, and nothing else.
fn found() -> Found {
    Found {
        subnets: vec![subnet("subnet-a", 5)],
        security_groups: vec![SecurityGroup { id: "sg-1".into(), ..SecurityGroup::default() }],
        images: vec![image("ami-1", "x86_64", OLD, ImageVariant::Standard)],
        instance_profile: Some("profile".into()),
        ..Found::default()
    }
}

fn ready_status(spec: Value, checks: Checks<'_>, change: impl FnOnce(&mut Found)) -> Vec<(String, String, String)> {
    let class: Ec2NodeClass = serde_json::from_value(json!({"metadata": {"name": "default", "generation": 3}, "spec": spec})).unwrap();
    let mut found = found();
    change(&mut found);
    let status = status(&class, found, checks, OLD.parse().unwrap());
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(3) && !condition.reason.is_empty()));
    status
        .conditions
        .iter()
        .map(|condition| (condition.type_.clone(), format!("{:?}", condition.status), condition.reason.clone()))
        .collect()
}

/// The conditions other than `Ready` that are not True, and the status of `Ready`.
fn unready_conditions(spec: Value, change: impl FnOnce(&mut Found)) -> (Vec<String>, String) {
    unready_conditions_under(spec, standard(), change)
}

fn unready_conditions_under(spec: Value, checks: Checks<'_>, change: impl FnOnce(&mut Found)) -> (Vec<String>, String) {
    let all = ready_status(spec, checks, change);
    let ready = all.iter().find(|(name, _, _)| name == "Ready").unwrap().1.clone();
    let others = all.iter().filter(|(name, status, _)| name != "Ready" && status != "True");
    (others.map(|(name, status, reason)| format!("{name}={status} {reason}")).collect(), ready)
}

#[test]
fn a_class_is_ready_when_all_its_resources_exist() {
    let al2023 = || json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]});
    let none: Vec<String> = Vec::new();
    assert_eq!(unready_conditions(al2023(), |_| {}), (none, "True".into()));
    let dependent = "ValidationSucceeded=False DependenciesNotReady";
    let check = |change: fn(&mut Found), expected: &str| {
        assert_eq!(unready_conditions(al2023(), change), (vec![expected.to_owned(), dependent.to_owned()], "False".into()))
    };
    check(|found| found.images.clear(), "AMIsReady=False AMINotFound");
    check(|found| found.alias_error = Some(AliasError::Unknown("x".into())), "AMIsReady=False UnsupportedAlias");
    check(|found| found.subnets.clear(), "SubnetsReady=False SubnetsNotFound");
    check(|found| found.security_groups.clear(), "SecurityGroupsReady=False SecurityGroupsNotFound");
    assert_eq!(unready_conditions(al2023(), |found| found.instance_profile = None).1, "Unknown");
    let nameless =
        |error: ProfileError| unready_conditions(al2023(), |found| (found.instance_profile, found.profile_error) = (None, Some(error))).0;
    for (error, reason) in [
        (ProfileError::NotSet, "NodeRoleNotSet"),
        (ProfileError::ProfileNotFound("a".into()), "InstanceProfileNotFound"),
        (ProfileError::ProfileNameInvalid { name: "a/b".into(), problem: String::new() }, "InstanceProfileNotFound"),
        (ProfileError::ProfileWithoutRole("a".into()), "InstanceProfileWithoutRole"),
        (ProfileError::RoleNotFound("a".into()), "NodeRoleNotFound"),
        (ProfileError::Refused { role: "a".into(), problem: String::new() }, "InstanceProfileCreationFailed"),
    ] {
        assert_eq!(nameless(error), [format!("InstanceProfileReady=False {reason}"), dependent.to_owned()]);
    }
}

#[test]
fn a_class_that_its_cluster_gives_nodes_no_access_to_is_not_ready() {
    let of = |family: &str, cluster: &ClusterInfo| {
        unready_conditions_under(json!({"amiFamily": family}), Checks { cluster, ..standard() }, |_| {}).0
    };
    let without_range = cluster("", "Yw==");
    assert_eq!(of("AL2023", &without_range), ["ValidationSucceeded=False ClusterCIDRResolutionFailed"]);
    assert_eq!(of("AL2", &without_range), [""; 0]);
    let without_base64 = cluster("172.20.0.0/16", "-----BEGIN CERTIFICATE-----");
    for family in AmiFamily::all() {
        let seen = of(family.name(), &without_base64);
        // A custom class takes nothing of it.
        let expected: &[&str] = if family == AmiFamily::Custom { &[] } else { &["ValidationSucceeded=False ClusterCAInvalid"] };
        assert_eq!(seen, expected, "{family:?}");
    }
    assert_eq!(of("AL2", &cluster("172.20.0.0/16", "YWJj\nZGV=\n")), [""; 0], "hosts take line breaks and spare bits");
    assert_eq!(of("AL2", &cluster("172.20.0.0/16", "")), [""; 0], "the image finds it out by itself");
}

#[test]
fn user_data_with_which_nodes_would_not_start_make_a_class_not_ready() {
    let of = |family: &str, user_data: &str| unready_conditions(json!({"amiFamily": family, "userData": user_data}), |_| {}).0;
    let large = "x".repeat(user_data::LARGEST + 1);
    for family in ["AL2", "AL2023", "Custom", "Windows2022"] {
        assert_eq!(of(family, &large), ["ValidationSucceeded=False UserDataSizeLimitExceeded"], "{family}");
    }
    let large = format!("# {large}\n[settings.motd]\n");
    assert_eq!(of("Bottlerocket", &large), [""; 0], "comments are left out");
    for family in ["AL2", "AL2023"] {
        assert_eq!(of(family, "MIME-Version: 1.0\n\nx"), ["ValidationSucceeded=False UserDataInvalid"], "{family}");
    }
    assert_eq!(of("AL2023", "#cloud-config\nruncmd: [ls]\n"), ["ValidationSucceeded=False UserDataInvalid"]);
    assert_eq!(of("Custom", "#cloud-config\nruncmd: [ls]\n"), [""; 0], "its own images read it");
    assert_eq!(of("Windows2022", "<powershell>\nls\n</powershell>"), ["ValidationSucceeded=False UserDataInvalid"]);
    assert_eq!(of("Bottlerocket", "settings = 3"), ["ValidationSucceeded=False UserDataInvalid"]);
    assert_eq!(of("Bottlerocket", "#!/bin/sh\necho"), ["ValidationSucceeded=False UserDataInvalid"]);
    assert_eq!(of("AL2", "settings = 3"), [""; 0], "a script");
    assert_eq!(of("Ubuntu2404", ""), ["ValidationSucceeded=False UnknownAMIFamily"]);
}

#[test]
fn images_of_windows_are_never_launched_as_custom() {
    let spec = |family: &str, alias: &str| json!({"amiFamily": family, "amiSelectorTerms": [{"alias": alias}]});
    let of = |family: &str, alias: &str| unready_conditions(spec(family, alias), |_| {}).0;
    for alias in ["windows2019@latest", "windows2022@latest", "windows2025@latest"] {
        assert_eq!(of("Custom", alias), ["ValidationSucceeded=False UnsupportedAMIFamily"], "{alias}");
    }
    assert_eq!(of("Windows2022", "windows2022@latest"), [""; 0]);
    assert_eq!(of("Custom", "al2023@latest"), [""; 0], "Linux, with user data of the user's own");
    let refused = |family: &str| {
        let class: Ec2NodeClass =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec(family, "windows2022@latest")})).unwrap();
        refusal(&class, standard().settings)
    };
    assert!(refused("Custom").unwrap().ends_with("leave spec.amiFamily out, or write Windows2022"));
    assert_eq!(refused("Windows2022"), None);
}

/// The status of the condition about validation, and its message.
fn validation_of(spec: Value) -> (whittle_api::ConditionStatus, String) {
    let class: Ec2NodeClass = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    let status = super::status(&class, found(), standard(), OLD.parse().unwrap());
    let condition = status.conditions.iter().find(|condition| condition.type_ == conditions::VALIDATION_SUCCEEDED).unwrap();
    assert_eq!(condition.message.is_empty(), remarks(&class).is_empty());
    (condition.status, condition.message.clone())
}

#[test]
fn a_class_says_which_of_its_settings_has_no_effect_and_is_ready_all_the_same() {
    for family in AmiFamily::all() {
        let of = |policy: Value| validation_of(json!({"amiFamily": family.name(), "instanceStorePolicy": policy}));
        let (status, message) = of(json!("RAID0"));
        assert_eq!(status, ConditionStatus::True, "{family:?}: {message}");
        assert_eq!(message.contains("spec.instanceStorePolicy: RAID0"), family.is_windows(), "{family:?}: {message}");
        assert_eq!(of(Value::Null), (ConditionStatus::True, String::new()), "{family:?}");
    }
}

/// Nothing else says so: the node joins, and the VPC CNI has no address for its pods.
#[test]
fn zones_with_too_few_addresses_for_the_pods_of_a_machine_are_named() {
    let in_zone = |id: &str, zone: &str, free: u32| Subnet { zone: zone.into(), ..subnet(id, free) };
    let ipv4 = cluster("172.20.0.0/16", "Yw==");
    let ipv6 = ClusterInfo { ipv6: true, ..cluster("fd00::/108", "Yw==") };
    let told = |cluster: &ClusterInfo, spec: Value, subnets: Vec<Subnet>| {
        let class: Ec2NodeClass = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        let found = Found { subnets, ..Found::default() };
        let status = super::status(&class, found, Checks { cluster, ..standard() }, OLD.parse().unwrap());
        let condition = conditions::find(&status.conditions, conditions::SUBNETS_READY).unwrap().clone();
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::True, conditions::SUBNETS_READY));
        condition.message
    };
    let message = told(&ipv4, json!({}), vec![in_zone("small", "a", 15), in_zone("roomy", "b", 16)]);
    assert!(message.starts_with("fewer than the 16 free addresses that a machine and its pods need: small in a; nodes join"), "{message}");
    assert!(message.contains("spec.subnetSelectorTerms") && !message.contains("roomy"), "{message}");
    let same_zone = || vec![in_zone("small", "a", 0), in_zone("large", "a", 4000)];
    assert_eq!(told(&ipv4, json!({}), same_zone()), "", "machines start in the larger one");
    assert_eq!(told(&ipv6, json!({}), vec![in_zone("small", "a", 2)]), "", "pods have IPv6 addresses");
    let prefixes = told(&ipv4, json!({"ipPrefixCount": 2}), vec![in_zone("small", "a", 32)]);
    assert!(prefixes.starts_with("fewer than the 33 free addresses"), "{prefixes}");
    assert_eq!(told(&ipv4, json!({"ipPrefixCount": 2}), vec![in_zone("small", "a", 33)]), "");
    let many = (0..8).map(|n| in_zone(&format!("subnet-{n}"), &format!("zone-{n}"), 1)).collect();
    let message = told(&ipv4, json!({}), many);
    assert!(message.contains("subnet-4 in zone-4 and 3 more; ") && !message.contains("subnet-5"), "{message}");
}

#[test]
fn prefixes_that_no_node_of_an_ipv6_cluster_gets_are_named() {
    let ipv4 = cluster("172.20.0.0/16", "Yw==");
    let ipv6 = ClusterInfo { ipv6: true, ..cluster("fd00::/108", "Yw==") };
    let message = |cluster: &ClusterInfo, count: Option<i32>| {
        let checks = Checks { cluster, ..standard() };
        let class: Ec2NodeClass =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"amiFamily": "AL2023", "ipPrefixCount": count}})).unwrap();
        let status = super::status(&class, found(), checks, OLD.parse().unwrap());
        let condition = status.conditions.iter().find(|condition| condition.type_ == conditions::VALIDATION_SUCCEEDED).unwrap();
        assert_eq!(condition.status, ConditionStatus::True, "{}", condition.message);
        condition.message.clone()
    };
    let told = message(&ipv6, Some(2));
    assert!(told.starts_with("spec.ipPrefixCount: 2 does nothing in an IPv6 cluster") && told.contains("leave it out"), "{told}");
    for (cluster, count) in [(&ipv6, Some(0)), (&ipv6, None), (&ipv4, Some(2))] {
        assert_eq!(message(cluster, count), "", "{count:?}");
    }
}

#[test]
fn settings_that_bottlerocket_nodes_are_not_given_are_named() {
    let of = |family: &str, user_data: &str| validation_of(json!({"amiFamily": family, "userData": user_data}));
    let text = "[settings.kubernetes]\nmax-pod = 4\nlog-level = 3\n[settings.kubernetes.static-pods.a]\nenable = true\n[kubernetes]\na = 1\n\
                [settings.anything.else]\nb = 1\n";
    let (status, message) = of("Bottlerocket", text);
    let named = "spec.userData: kubernetes, settings.kubernetes.max-pod, settings.kubernetes.static-pods.a.enable are left out";
    assert!(status == ConditionStatus::True && message.starts_with(named), "{message}");
    for family in ["AL2", "Custom"] {
        assert_eq!(of(family, text), (ConditionStatus::True, String::new()), "{family} gives its nodes all of it");
    }
    let known = "[settings.kubernetes]\nlog-level = 3\nimage-gc-high-threshold-percent = 80\ncluster-dns-ip = [\"10.0.0.10\"]\n\
                 [settings.kubernetes.node-labels]\na = \"b\"\n[settings.kubernetes.node-taints]\na = [\"b:NoSchedule\"]\n\
                 [settings.kubernetes.eviction-hard]\n\"memory.available\" = \"5%\"\n[settings.motd]\n";
    assert_eq!(of("Bottlerocket", known), (ConditionStatus::True, String::new()));
    let many: String = (0..30).map(|number| format!("key-{number} = 1\n")).collect();
    let (_, message) = of("Bottlerocket", &format!("[settings.kubernetes]\n{many}"));
    assert!(message.contains("and 20 more are left out"), "{message}");
}

#[test]
fn settings_that_a_family_does_not_take_are_told_with_the_field_and_a_remedy() {
    let of = |family, fields: Value| unsupported(&Kubelet::parse(Some(&fields)).unwrap(), family).map(|verdict| verdict.message);
    let told = of(AmiFamily::Bottlerocket, json!({"podPidsLimit": 100, "podsPerCore": 2, "maxPods": 9})).unwrap();
    assert!(
        told.starts_with("spec.kubelet: nodes of family Bottlerocket cannot be given podPidsLimit, podsPerCore: leave it out"),
        "{told}"
    );
    let told = of(AmiFamily::Al2, json!({"clusterDNS": ["10.0.0.1", "10.0.0.2"]})).unwrap();
    assert_eq!(told, "spec.kubelet.clusterDNS: nodes of family AL2 take one address: leave the others out");
    assert_eq!(of(AmiFamily::Al2023, json!({"podPidsLimit": 100})), None);
}

#[test]
fn invalid_settings_make_a_class_not_ready() {
    let of = |family: &str, kubelet: Value| unready_conditions(json!({"amiFamily": family, "kubelet": kubelet}), |_| {}).0;
    assert_eq!(of("AL2", json!({"maxPods": 1.5})), ["ValidationSucceeded=False InvalidKubeletConfiguration"]);
    // No kubelet starts with these, and a field that it does not know is a typing error.
    for refused in [
        json!({"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 80}),
        json!({"evictionSoft": {"memory.available": "500Mi"}}),
        json!({"evictionHard": {"memory.avail": "500Mi"}}),
        json!({"evictionHard": {"memory.available": "150%"}}),
        json!({"evictionHrad": {"memory.available": "500Mi"}}),
        json!({"registerWithTaints": [{"key": "a", "effect": "NoSchedule"}]}),
    ] {
        for family in ["AL2", "AL2023", "Custom"] {
            assert_eq!(of(family, refused.clone()), ["ValidationSucceeded=False InvalidKubeletConfiguration"], "{family} {refused}");
        }
    }
    assert_eq!(of("AL2", json!({"maxPods": "vcpus * 2"})), ["ValidationSucceeded=False KubeletExpressionsDisabled"]);
    assert_eq!(of("AL2", json!({"cpuManagerPolicy": "static"})), ["ValidationSucceeded=False UnsupportedKubeletConfiguration"]);
    assert_eq!(of("AL2023", json!({"cpuManagerPolicy": "static"})), [""; 0]);
    assert_eq!(of("Bottlerocket", json!({"podsPerCore": 2})), ["ValidationSucceeded=False UnsupportedKubeletConfiguration"]);
    assert_eq!(of("AL2", json!({"podsPerCore": 2})), [""; 0]);
    assert_eq!(of("AL2", json!({"clusterDNS": ["10.0.0.1", "10.0.0.2"]})), ["ValidationSucceeded=False UnsupportedKubeletConfiguration"]);
    // The user must not override tags that identify machines and their claims.
    for tag in ["karpenter.sh/nodepool", "Karpenter.sh/NodePool", "EKS:eks-cluster-name", "whittle.dev/launch", "whittle.dev/let-go"] {
        let tags = json!({"amiFamily": "AL2", "tags": {tag: "x"}});
        assert_eq!(unready_conditions(tags, |_| {}).0, ["ValidationSucceeded=False TagValidationFailed"], "{tag}");
    }
}

#[test]
fn tags_that_ec2_would_not_take_make_a_class_not_ready() {
    let of = |tags: &BTreeMap<String, String>| {
        let class = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"amiFamily": "AL2", "tags": tags}})).unwrap();
        let refusal = super::refusal(&class, &Settings::standard()).unwrap_or_default();
        let unready = unready_conditions(json!({"amiFamily": "AL2", "tags": tags}), |_| {}).0;
        assert_eq!(unready.is_empty(), refusal.is_empty());
        assert!(unready.iter().all(|condition| condition == "ValidationSucceeded=False TagValidationFailed"), "{unready:?}");
        refusal
    };
    let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let many = |count: usize| (0..count).map(|number| (format!("k{number:02}"), String::new())).collect::<BTreeMap<_, _>>();
    for taken in [one("Name", "ä b/c"), one(&"k".repeat(128), &"ä".repeat(256)), one("awsome", ""), many(44)] {
        assert_eq!(of(&taken), "");
    }
    for (refused, word) in [
        (one("aws:team", "a"), "aws:team"),
        (one("AWS:team", "a"), "AWS:team"),
        (one(&"k".repeat(129), ""), "128"),
        (one("team", &"a".repeat(257)), "value of team"),
        (many(45), "45 tags, at most 44"),
    ] {
        assert!(of(&refused).contains(word), "{}", of(&refused));
    }
    let of_template = |count: usize| {
        let origin = json!({(whittle_api::labels::CONVERTED_FROM): "AWSNodeTemplate"});
        let spec = json!({"amiFamily": "AL2", "tags": many(count)});
        let class = serde_json::from_value(json!({"metadata": {"name": "a", "annotations": origin}, "spec": spec})).unwrap();
        super::refusal(&class, &Settings::standard()).unwrap_or_default()
    };
    assert_eq!(of_template(43), "");
    assert!(of_template(44).contains("44 tags, at most 43"), "machines of a Provisioner have its name as well: {}", of_template(44));
}

#[test]
fn a_disk_without_a_name_or_a_volume_makes_a_class_not_ready() {
    let of = |mapping: Value| {
        let spec = json!({"amiFamily": "Custom", "blockDeviceMappings": [mapping]});
        let class = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        (unready_conditions(spec, |_| {}).0, super::refusal(&class, &Settings::standard()).unwrap_or_default())
    };
    let (unready, refusal) = of(json!({"deviceName": "/dev/sda1"}));
    assert_eq!(unready, ["ValidationSucceeded=False BlockDeviceMappingsInvalid"]);
    assert!(refusal.starts_with("spec.blockDeviceMappings[0].ebs") && refusal.contains("volumeSize"), "{refusal}");
    assert!(of(json!({"ebs": {"volumeSize": "20Gi"}})).1.starts_with("spec.blockDeviceMappings[0].deviceName"));
    assert_eq!(of(json!({"deviceName": "/dev/sda1", "ebs": {"volumeSize": "20Gi"}})), (Vec::new(), String::new()));
}

#[test]
fn a_public_address_for_several_interfaces_makes_a_class_not_ready() {
    let primary = json!({"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"});
    let second = json!({"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"});
    let of = |public: Value, interfaces: &[&Value]| {
        let spec = json!({"amiFamily": "AL2", "associatePublicIPAddress": public, "networkInterfaces": interfaces});
        let class = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        let (refusal, unready) = (super::refusal(&class, &Settings::standard()), unready_conditions(spec, |_| {}).0);
        assert_eq!(refusal.is_none(), unready.is_empty());
        assert!(refusal.is_none_or(|why| why.contains("spec.associatePublicIPAddress") && why.contains("spec.networkInterfaces")));
        unready
    };
    assert_eq!(of(json!(true), &[&primary, &second]), ["ValidationSucceeded=False PublicAddressRefused"]);
    assert_eq!(of(json!(true), &[&primary]), [""; 0]);
    assert_eq!(of(json!(true), &[]), [""; 0], "how many there are depends on what a launch asks for");
    for public in [json!(false), Value::Null] {
        assert_eq!(of(public, &[&primary, &second]), [""; 0]);
    }
}

#[test]
fn user_data_that_no_cluster_could_launch_with_are_a_refusal_and_others_are_none() {
    let of = |family: &str, user_data: &str| {
        let spec = json!({"amiFamily": family, "userData": user_data});
        super::refusal(&serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap(), &Settings::standard())
    };
    for (family, user_data) in [("AL2", "MIME-Version: 1.0\n\nx"), ("AL2023", "#cloud-config\na: b"), ("Bottlerocket", "settings = 3")] {
        assert!(of(family, user_data).is_some_and(|why| why.contains("spec.userData")), "{family}");
    }
    // The cluster's service range and certificate are not known here, and are in a cluster.
    for family in AmiFamily::all() {
        assert_eq!(of(family.name(), ""), None, "{family:?}");
    }
    let certificate = "[settings.kubernetes]\ncluster-certificate = \"-\"\n";
    assert_eq!(of("Bottlerocket", certificate), None, "that of the cluster takes its place");
}

#[test]
fn expressions_are_judged_on_every_type_of_the_region_where_they_are_switched_on() {
    let settings = Settings { expressions: Expressions::Evaluated, ..Settings::standard() };
    let catalog = Catalog { types: crate::facts::offline::types(), ..Catalog::default() };
    let on = Checks { settings: &settings, catalog: Some(&catalog), ..standard() };
    let of = |kubelet: Value| unready_conditions_under(json!({"amiFamily": "AL2023", "kubelet": kubelet}), on, |_| {}).0;
    assert_eq!(of(json!({"maxPods": "min(110, max_pods * 2)", "kubeReserved": {"cpu": "60 + vcpus", "memory": "1Gi"}})), [""; 0]);
    let endless = "1+".repeat(100_000) + "1";
    for invalid in [
        json!({"maxPods": "vcpus > 2"}),
        json!({"maxPods": "cores"}),
        json!({"kubeReserved": {"cpu": "vcpus +"}}),
        // Never evaluated, and refused all the same.
        json!({"maxPods": "true ? 1 : 2.0"}),
        json!({"systemReserved": {"memory": endless}}),
    ] {
        assert_eq!(of(invalid.clone()), ["ValidationSucceeded=False KubeletExpressionInvalid"], "{invalid}");
    }
    // One type is enough: m5.large has two vCPUs.
    for failing in [json!({"maxPods": "1 / (vcpus - 2)"}), json!({"kubeReserved": {"cpu": "vcpus - 3"}}), json!({"maxPods": "vcpus - 3"})] {
        assert_eq!(of(failing.clone()), ["ValidationSucceeded=False KubeletExpressionEvaluationFailed"], "{failing}");
    }
    let unknown = Checks { catalog: None, ..on };
    let seen = unready_conditions_under(json!({"amiFamily": "AL2023", "kubelet": {"maxPods": "vcpus"}}), unknown, |_| {});
    assert_eq!(seen, (vec!["ValidationSucceeded=Unknown InstanceTypesUnknown".to_owned()], "Unknown".to_owned()));
    assert_eq!(unready_conditions_under(json!({"amiFamily": "AL2023", "kubelet": {"maxPods": 9}}), unknown, |_| {}).0, [""; 0]);
}

#[test]
fn a_reserved_amount_below_nothing_names_its_field_and_the_type() {
    let kubelet = Kubelet::parse(Some(&json!({"systemReserved": {"memory": "0 - vcpus"}}))).unwrap();
    let facts = crate::facts::offline::types().into_iter().find(|facts| facts.name == "m5.large").unwrap();
    let error = kubelet.evaluate_on(&facts, AmiFamily::Al2023, 3).unwrap_err().to_string();
    assert!(error.contains("spec.kubelet.systemReserved.memory") && error.contains("-2 for m5.large"), "{error}");
}

fn group(id: &str, state: &str) -> PlacementGroup {
    PlacementGroup { id: id.into(), name: "p".into(), strategy: "partition".into(), partition_count: 3, state: state.into() }
}

/// Reason and message of the condition of a class with this selector, and its group.
fn placed(selector: Value, groups: PlacementGroups) -> (String, String, Option<String>) {
    let mut class: whittle_api::karpenter::Ec2NodeClass =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"placementGroupSelector": selector}})).unwrap();
    let chosen = choose_placement_group(class.spec.placement_group_selector.as_ref(), &groups);
    let found = Found { placement_groups: groups, ..Found::default() };
    class.status = super::status(&class, found, standard(), "2026-03-01T12:00:00Z".parse().unwrap());
    let condition = class.status.conditions.iter().find(|condition| condition.type_ == "PlacementGroupReady").unwrap();
    assert_eq!(condition.status == whittle_api::ConditionStatus::True, chosen.is_ok());
    (condition.reason.clone(), condition.message.clone(), chosen.ok().flatten().map(|group| group.id))
}

#[test]
fn a_class_is_placed_in_the_one_available_group_that_it_selects() {
    let found = PlacementGroups::Found(vec![group("pg-2", "deleting"), group("pg-1", "available")]);
    assert_eq!(placed(json!({"name": "p"}), found).2, Some("pg-1".into()), "one of that name is on its way out");
    let (reason, _, group) = placed(Value::Null, PlacementGroups::NotSelected);
    assert_eq!((reason.as_str(), group), ("PlacementGroupReady", None), "a class without a selector needs none");
}

#[test]
fn a_class_is_never_placed_where_its_selector_finds_no_group_or_several() {
    let check = |selector: Value, groups: PlacementGroups, reason: &str, words: &[&str]| {
        let (known, message, group) = placed(selector, groups);
        assert_eq!((known.as_str(), group), (reason, None));
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    let none = || PlacementGroups::Found(Vec::new());
    check(json!({"name": "web"}), none(), "PlacementGroupNotFound", &["name \"web\"", "spec.placementGroupSelector", "create it"]);
    check(json!({"id": "pg-9"}), none(), "PlacementGroupNotFound", &["id \"pg-9\""]);
    for state in ["deleting", "deleted", "pending"] {
        let groups = PlacementGroups::Found(vec![group("pg-1", state)]);
        check(json!({"id": "pg-1"}), groups, "PlacementGroupNotFound", &["p (pg-1)", state, "name one that is available"]);
    }
    let two = PlacementGroups::Found(vec![group("pg-2", "available"), group("pg-1", "available")]);
    check(json!({"name": "p"}), two, "PlacementGroupResolutionFailed", &["pg-1, pg-2", "by its id"]);
    let refused = PlacementGroups::Refused("UnauthorizedOperation: no".into());
    check(json!({"name": "p"}), refused, "PlacementGroupResolutionFailed", &["UnauthorizedOperation"]);
    check(json!({"name": "p"}), PlacementGroups::NotSelected, "PlacementGroupNotFound", &["\"p\""]);
}
