//! Plans for the dump of a running cluster, with a region's tables instead of a catalog.

use super::*;
use crate::plan::decide;
use crate::source::{PackingArg, When, read_text};

/// The output of `kubectl get nodepools,ec2nodeclasses,nodes,pods -A -o yaml`: one list, with fields that the server sets.
const DUMP: &str = r#"
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: karpenter.sh/v1
  kind: NodePool
  metadata: {name: general, uid: u1, resourceVersion: "7", generation: 1, managedFields: [{manager: kubectl, operation: Update}]}
  spec:
    template:
      spec:
        requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}, {key: kubernetes.io/arch, operator: In, values: [amd64]}]
        nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: small-pods}
  status: {conditions: [{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}
- apiVersion: karpenter.k8s.aws/v1
  kind: EC2NodeClass
  metadata: {name: small-pods}
  spec:
    role: r
    amiSelectorTerms: [{alias: al2023@latest}]
    subnetSelectorTerms: [{tags: {a: b}}]
    securityGroupSelectorTerms: [{tags: {a: b}}]
    kubelet: {maxPods: 20}
  status: {subnets: [{id: subnet-1, zone: eu-west-1b, zoneID: euw1-az2}]}
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {topology.kubernetes.io/region: eu-west-1}}
  status: {allocatable: {cpu: 1, memory: 1Gi, pods: 5}}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: shop, uid: u2}
  spec: {containers: [{name: a, image: a, resources: {requests: {cpu: 3, memory: 5Gi}}}]}
"#;

fn manifests(text: &str) -> Manifests {
    read_text("dump.yaml", text).unwrap()
}

#[test]
fn a_dump_of_a_cluster_is_planned_with_the_tables_of_its_region() {
    let read = manifests(DUMP);
    let offered = Offers::default().read(&read).unwrap().types;
    let plan = decide(&read, offered.clone(), PackingArg::Best).plan;
    assert_eq!((plan.claims.len(), plan.left_out.len()), (1, 0));
    let types = &offered["general"];
    let large = types.iter().find(|found| found.name == "m5.xlarge").unwrap();
    assert_eq!(large.capacity.get("pods").units_ceil(), 20, "as the class says");
    let zones = large.offerings.iter().flat_map(|offering| &offering.requirements).filter(|rule| rule.key == labels::ZONE);
    assert!(zones.clone().count() > 0 && zones.clone().all(|rule| rule.values == ["eu-west-1b"]), "where the class has a subnet");
    let named = Offers { region: Some("us-west-2".into()), ..Offers::default() };
    assert!(decide(&read, named.read(&read).unwrap().types, PackingArg::Best).plan.claims.is_empty(), "no subnet of the class is there");
}

#[test]
fn classes_share_their_types_unless_they_differ_in_what_these_depend_on() {
    let pool = |name: &str, class: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {{nodeClassRef: {{group: \
             karpenter.k8s.aws, kind: EC2NodeClass, name: {class}}}, requirements: []}}}}}}\n---\n"
        )
    };
    let class = |name: &str, more: &str| {
        format!(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: {name}}}\nspec: {{role: {name}, \
             amiSelectorTerms: [{{alias: al2023@latest}}], subnetSelectorTerms: [{{tags: {{team: {name}}}}}], \
             securityGroupSelectorTerms: [{{tags: {{a: b}}}}]{more}}}\n---\n"
        )
    };
    let text = [
        pool("one", "a"),
        pool("two", "b"),
        pool("three", "c"),
        pool("four", "a"),
        class("a", ""),
        class("b", ", tags: {team: b}"),
        class("c", ", kubelet: {maxPods: 20}"),
    ];
    let offers = Offers { region: Some("us-east-1".to_owned()), ..Offers::default() };
    let types = offers.read(&manifests(&text.concat())).unwrap().types;
    assert!(Arc::ptr_eq(&types["one"], &types["two"]) && Arc::ptr_eq(&types["one"], &types["four"]));
    let pods = |pool: &str| types[pool].find("m5.xlarge").unwrap().capacity.get("pods").units_ceil();
    assert_eq!((pods("one"), pods("two"), pods("three")), (58, 58, 20));
}

#[test]
fn a_node_class_missing_from_the_manifests_has_all_defaults() {
    let (pool, _) = DUMP.split_once("- apiVersion: karpenter.k8s.aws/v1").unwrap();
    let pod = DUMP.split_once("- apiVersion: v1\n  kind: Pod").unwrap().1;
    let read = manifests(&format!("{pool}- apiVersion: v1\n  kind: Pod{pod}"));
    let error = Offers::default().read(&read).unwrap_err().to_string();
    assert!(error.contains("--region (one of ap-southeast-1, cn-north-1, eu-west-1"), "{error}");
    let offered = Offers { region: Some("us-east-1".into()), ..Offers::default() }.read(&read).unwrap().types;
    assert_eq!(decide(&read, offered, PackingArg::Best).plan.scheduled(), 1);
}

#[test]
fn the_error_of_a_region_without_tables_lists_those_with_tables() {
    let error = Offers::default().read(&manifests(&DUMP.replace("region: eu-west-1", "region: mars-1"))).unwrap_err().to_string();
    assert!(error.contains("no tables of region mars-1") && error.contains("--instance-types"), "{error}");
}

#[test]
fn the_error_of_invalid_kubelet_settings_names_the_class() {
    let mut read = manifests(DUMP);
    read.node_classes[0].spec.kubelet = Some(serde_json::json!({"maxPods": [1]}));
    let error = Offers::default().read(&read).unwrap_err().to_string();
    assert!(error.starts_with("EC2NodeClass \"small-pods\"") && error.contains("spec.kubelet"), "{error}");
}

#[test]
fn lists_are_expanded_and_typed_lists_define_the_kind() {
    let read = manifests(
        "{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}, spec: &s {containers: [{name: c}]}}, {metadata: {name: b}, spec: *s}]}\n",
    );
    assert_eq!(read.objects.pods.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(manifests("{apiVersion: v1, kind: List, items: []}").objects.pods.is_empty());
}

#[test]
fn the_time_of_the_caller_takes_precedence() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {now: '2026-03-01T00:00:00Z'}\n";
    let file = std::env::temp_dir().join(format!("whittle-when-{}.yaml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let at = |when| crate::source::read(std::slice::from_ref(&file), when, crate::source::Expansion::Off).unwrap().settings.now.to_string();
    let then = "2026-05-01T00:00:00Z".parse().unwrap();
    assert_eq!((at(When::At(then)), at(When::Default(then))), ("2026-05-01T00:00:00Z".into(), "2026-03-01T00:00:00Z".into()));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_document_may_be_as_large_as_the_dump_of_a_large_cluster() {
    let many = "a, ".repeat(260_000);
    for (kind, quote) in [("yaml", ""), ("json", "\"")] {
        let many = many.replace('a', &format!("{quote}a{quote}"));
        let text = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "args": [MANY]}]}}]}"#;
        let read = read_text(kind, &text.replace("MANY", many.trim_end_matches(", ")));
        assert_eq!(read.unwrap().objects.pods.len(), 1, "{kind}");
    }
}

/// As the functions do: what no image of the class boots is not launched.
#[test]
fn types_are_those_that_the_images_of_the_class_boot() {
    let architectures = |class: &Ec2NodeClass| -> BTreeSet<String> {
        let types = Offers::of_class("eu-west-1", class).unwrap();
        let of = |one: &InstanceType| one.requirements.iter().find(|one| one.key == labels::ARCH).map(|one| one.values.join(" "));
        types.iter().filter_map(of).collect()
    };
    let both = BTreeSet::from(["amd64".to_owned(), "arm64".to_owned()]);
    let mut class = Ec2NodeClass::default();
    assert_eq!(architectures(&class), both);
    let requirement = whittle_api::karpenter::Requirement::is_in(labels::ARCH, ["amd64"]);
    class.status.amis =
        vec![whittle_api::karpenter::ResolvedAmi { id: "ami-1".into(), requirements: vec![requirement], ..Default::default() }];
    assert_eq!(architectures(&class), BTreeSet::from(["amd64".to_owned()]));
    let windows: Ec2NodeClass = serde_json::from_value(
        serde_json::json!({"metadata": {"name": "w"}, "spec": {"amiSelectorTerms": [{"alias": "windows2022@latest"}]}}),
    )
    .unwrap();
    assert_eq!(architectures(&windows), BTreeSet::from(["amd64".to_owned()]));
}

#[test]
fn types_that_the_tables_of_a_region_lack_are_told() {
    let pool = |types: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: gpu}}\nspec: {{template: {{spec: {{nodeClassRef: {{group: \
             karpenter.k8s.aws, kind: EC2NodeClass, name: a}}, requirements: [{{key: node.kubernetes.io/instance-type, operator: In, \
             values: [{types}]}}]}}}}}}\n"
        )
    };
    let offers = Offers { region: Some("us-east-1".to_owned()), ..Offers::default() };
    let told = |types: &str| offers.read(&manifests(&pool(types))).unwrap().assumptions.join("\n");
    let unsold =
        "NodePool \"gpu\" names types that the built-in tables of us-east-1 do not have: p3.8xlarge; `whittle catalog --help` says how";
    assert!(told("m5.large, p3.8xlarge").contains(unsold), "{}", told("m5.large, p3.8xlarge"));
    assert!(!told("m5.large").contains("names types"));
    // What is misspelt is told elsewhere.
    assert!(!told("m5.larg").contains("names types"), "{}", told("m5.larg"));
}

#[test]
fn nodes_of_another_region_are_told_from_those_whose_prices_count() {
    let offers = Offers { region: Some("us-east-1".to_owned()), ..Offers::default() };
    let told = |offers: &Offers| offers.read(&manifests(DUMP)).unwrap().assumptions.join("\n");
    assert!(told(&offers).contains("there are nodes in eu-west-1: the prices of us-east-1 count for them"), "{}", told(&offers));
    assert!(!told(&Offers::default()).contains("there are nodes in"));
}

#[test]
fn prices_that_stand_for_others_are_told_with_them() {
    let read = manifests(DUMP);
    let told = |region: &str| Offers { region: Some(region.to_owned()), ..Offers::default() }.prices(&read, || None).unwrap().assumptions;
    assert_eq!(told("us-east-1"), ["there are nodes in eu-west-1: the prices of us-east-1 count for them, and may differ"]);
    let of_another = told("ap-southeast-1");
    assert_eq!(of_another.len(), 2, "{of_another:?}");
    assert!(of_another[0].starts_with("the tables have no on-demand prices of ap-southeast-1: those of us-east-1"), "{of_another:?}");
    assert_eq!(of_another[1], "there are nodes in eu-west-1: the prices of ap-southeast-1 count for them, and may differ");
    let decided = Offers { region: Some("us-west-2".into()), ..Offers::default() }.read(&read).unwrap().assumptions;
    assert!(decided.iter().any(|one| one.ends_with("may differ; whether something cheaper is sold there is not known")), "{decided:?}");
}
