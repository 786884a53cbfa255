use super::*;
use crate::{NillableDuration, manifest};
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/convert")
}

fn objects_of(file: &Path) -> Vec<Object> {
    let text = std::fs::read_to_string(file).unwrap();
    let located = manifest::read(&file.display().to_string(), &text).unwrap_or_else(|errors| panic!("{errors:#?}"));
    located.into_iter().map(|located| located.value).collect()
}

fn converted(text: &str, purpose: Purpose) -> Converted {
    let objects = manifest::read("test", text).unwrap().into_iter().map(|located| located.value).collect();
    convert(objects, &ConvertOptions::new(purpose))
}

/// Karpenter's result with our deliberate changes (listed in the notes of the golden cases).
fn adjusted(name: &str, mut expected: Object, ours: &Object) -> Object {
    match (&mut expected, ours) {
        (Object::NodePool(expected), Object::NodePool(ours)) => {
            let reference = &mut expected.spec.template.spec.node_class_ref;
            if reference.kind == "AWSNodeTemplate" {
                "EC2NodeClass".clone_into(&mut reference.kind);
            }
            // 16.4: without a TTL and consolidation, nodes are never removed.
            if ours.spec.disruption.consolidate_after == NillableDuration::Never {
                expected.spec.disruption.consolidate_after = NillableDuration::Never;
                expected.spec.disruption.consolidation_policy = ours.spec.disruption.consolidation_policy;
            }
            reference.name.clone_from(&ours.spec.template.spec.node_class_ref.name);
        }
        (Object::NodeClass(expected), Object::NodeClass(ours)) => {
            // A template's own profile is kept, while Karpenter writes its placeholder.
            if ours.spec.instance_profile.is_some() && expected.spec.role.as_deref() == Some(ROLE_PLACEHOLDER) {
                expected.spec.role = None;
                expected.spec.instance_profile.clone_from(&ours.spec.instance_profile);
            }
            // 16.5: the pool's kubelet block.
            expected.spec.kubelet.clone_from(&ours.spec.kubelet);
        }
        (Object::NodeClaim(_), Object::NodeClaim(_)) => {}
        _ => panic!("{name}: another kind"),
    }
    expected
}

#[test]
fn manifests_are_converted_as_karpenter_does() {
    let mut seen = 0;
    let mut directories: Vec<_> = std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    directories.sort();
    for directory in directories.iter().filter(|path| path.join("expected-v1.yaml").exists()) {
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let converted = convert(objects_of(&directory.join("input.yaml")), &ConvertOptions::new(Purpose::Output));
        assert_eq!(converted.errors, [], "{name}");
        let expected = objects_of(&directory.join("expected-v1.yaml"));
        assert_eq!(converted.objects.len(), expected.len(), "{name}");
        for (ours, expected) in converted.objects.iter().zip(expected) {
            let expected = adjusted(&name, expected, ours);
            assert_eq!(ours.to_json(), expected.to_json(), "{name}");
        }
        seen += 1;
    }
    assert_eq!(seen, 43, "cases under {}", golden().display());
}

const TWO_POOLS: &str = "
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: a, uid: u1}
spec: {providerRef: {name: std}, ttlSecondsAfterEmpty: 30, kubeletConfiguration: {maxPods: 20}}
---
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: b}
spec: {providerRef: {name: std}}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: std}
spec: {subnetSelector: {a: b}, securityGroupSelector: {a: b}, tags: {kubernetes.io/cluster/x: owned, team: t}}
";

/// The terms are not in the file: the selector is what can be changed.
#[test]
fn ids_beside_other_conditions_are_refused_where_they_are_written() {
    let template = |selectors: &str| {
        format!("apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {{name: std}}\nspec: {{{selectors}}}\n")
    };
    for (selectors, field, said) in [
        (
            "subnetSelector: {aws-ids: subnet-1, team: a}, securityGroupSelector: {a: b}",
            "spec.subnetSelector",
            "aws-ids stands beside team",
        ),
        (
            "subnetSelector: {a: b}, securityGroupSelector: {'aws::ids': sg-1, a: b}",
            "spec.securityGroupSelector",
            "aws::ids stands beside a,",
        ),
        (
            "subnetSelector: {a: b}, securityGroupSelector: {a: b}, amiSelector: {aws-ids: ami-1, 'aws::owners': self}",
            "spec.amiSelector",
            "aws-ids stands beside aws::owners",
        ),
    ] {
        let found = converted(&template(selectors), Purpose::Output);
        let [error] = &found.errors[..] else { panic!("{selectors}: {found:?}") };
        assert_eq!((error.object.as_str(), error.field.as_str()), ("AWSNodeTemplate \"std\"", field));
        assert!(error.message.starts_with(said) && !error.message.contains("split"), "{}", error.message);
        assert!(found.objects.is_empty(), "{found:?}");
        // What is decided by it selects by both, as it did.
        let read = converted(&template(selectors), Purpose::OnRead);
        assert_eq!((read.errors.len(), read.objects.len()), (0, 1), "{selectors}");
    }
    let inline = "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec: {provider: {subnetSelector: {aws-ids: \
                  subnet-1, team: a}, securityGroupSelector: {a: b}}}\n";
    let errors = converted(inline, Purpose::Output).errors;
    assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), ["spec.provider.subnetSelector"]);
    // Whoever corrects one of them is not told of the next one only then.
    let mixed = "subnetSelector: {aws-ids: s, a: b}, securityGroupSelector: {aws-ids: sg, a: b}, amiSelector: {aws-ids: ami, a: b}";
    let errors = converted(&template(mixed), Purpose::Output).errors;
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["spec.subnetSelector", "spec.securityGroupSelector", "spec.amiSelector"]);
    assert!(errors.iter().all(|error| error.object == "AWSNodeTemplate \"std\""), "{errors:?}");
    let alone = template("subnetSelector: {aws-ids: 'subnet-1,subnet-2'}, securityGroupSelector: {a: b}");
    assert_eq!(converted(&alone, Purpose::Output).errors, []);
}

#[test]
fn pools_with_different_kubelet_blocks_get_a_class_each() {
    let objects = converted(TWO_POOLS, Purpose::Output).objects;
    let classes: Vec<_> = objects
        .iter()
        .filter_map(|object| match object {
            Object::NodeClass(class) => Some((class.metadata.name.as_str(), class.spec.kubelet.clone())),
            _ => None,
        })
        .collect();
    let references: Vec<_> = objects
        .iter()
        .filter_map(|object| match object {
            Object::NodePool(pool) => Some(pool.spec.template.spec.node_class_ref.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(classes[0], ("std", None), "the pool without a block keeps the class");
    assert_eq!(classes[1].1, Some(serde_json::json!({"maxPods": 20})));
    assert_eq!(references, [classes[1].0, "std"]);
    let warnings = converted(TWO_POOLS, Purpose::Output).warnings;
    assert!(!warnings.iter().any(|note| note.text.contains("not among the files")), "{warnings:?}");
}

#[test]
fn a_pool_that_is_added_later_changes_the_class_of_no_other() {
    let one = TWO_POOLS.replacen("name: b}", "name: b, creationTimestamp: 2026-01-02T00:00:00Z}", 1);
    let both = one.replacen("name: a, uid: u1}", "name: a, uid: u1, creationTimestamp: 2026-01-01T00:00:00Z}", 1);
    let objects = converted(&both, Purpose::OnRead).objects;
    let Object::NodePool(old) = &objects[0] else { panic!("a pool") };
    let Object::NodePool(added) = &objects[1] else { panic!("a pool") };
    let Object::NodeClass(class) = &objects[2] else { panic!("a class") };
    assert_eq!((old.spec.template.spec.node_class_ref.name.as_str(), class.metadata.name.as_str()), ("std", "std"));
    assert_eq!(class.spec.kubelet, Some(serde_json::json!({"maxPods": 20})));
    assert_ne!(added.spec.template.spec.node_class_ref.name, "std");
}

/// Pools and classes of v1beta1 in such an order that each pool refers past another one's class.
const CROSSING: &str = "
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: one}
spec: {template: {spec: {nodeClassRef: {name: b}, requirements: [], kubelet: {maxPods: 11}}}}
---
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
metadata: {name: a}
spec: {amiFamily: Bottlerocket, role: nodes, subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{id: sg-1}]}
---
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: two}
spec: {template: {spec: {nodeClassRef: {name: a}, requirements: [], kubelet: {maxPods: 22}}}}
---
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
metadata: {name: b}
spec: {amiFamily: Bottlerocket, role: nodes, subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{id: sg-2}]}
---
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: three}
spec: {template: {spec: {nodeClassRef: {name: b}, requirements: [], kubelet: {maxPods: 33}}}}
---
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: four}
spec: {template: {spec: {nodeClassRef: {name: a}, requirements: []}}}
---
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: five}
spec: {template: {spec: {nodeClassRef: {name: b}, requirements: [], kubelet: {maxPods: 11}}}}
";

fn class_named<'a>(objects: &'a [Object], name: &str) -> &'a crate::karpenter::Ec2NodeClass {
    let named = objects.iter().find_map(|object| match object {
        Object::NodeClass(class) if class.metadata.name == name => Some(class.as_ref()),
        _ => None,
    });
    named.unwrap_or_else(|| panic!("no class {name}"))
}

/// Each pool with the class that it was written for, and with the pods and the security group of the class that it has now.
fn joined(objects: &[Object]) -> Vec<String> {
    let pools = objects.iter().filter_map(|object| if let Object::NodePool(pool) = object { Some(pool) } else { None });
    let joined = pools.map(|pool| {
        let class = class_named(objects, &pool.spec.template.spec.node_class_ref.name);
        let pods = class.spec.kubelet.as_ref().map_or_else(|| "no".to_owned(), |kubelet| kubelet["maxPods"].to_string());
        let written_for = class.metadata.name.split('-').next().unwrap_or_default();
        let group = class.spec.security_group_selector_terms[0].id.as_deref().unwrap_or_default();
        format!("{} {written_for} {pods} {group}", pool.metadata.name)
    });
    joined.collect()
}

#[test]
fn each_pool_keeps_its_own_class_and_block_whatever_the_order() {
    let expected = ["one b 11 sg-2", "two a 22 sg-1", "three b 33 sg-2", "four a no sg-1", "five b 11 sg-2"];
    for purpose in [Purpose::Output, Purpose::OnRead] {
        assert_eq!(joined(&converted(CROSSING, purpose).objects), expected, "{purpose:?}");
    }
    let printed = converted(CROSSING, Purpose::Output);
    let names: Vec<String> = printed.objects.iter().map(|object| object.key().split('-').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(names, ["one", "a", "a", "two", "b", "b", "b", "three", "four", "five"], "a derived class stands behind its own");
    let made: Vec<&str> = printed.warnings.iter().filter_map(|note| note.text.strip_prefix("made from ")).collect();
    assert_eq!(
        made,
        [
            r#""a" for the kubelet settings of NodePool "two""#,
            r#""b" for the kubelet settings of NodePool "one", "five""#,
            r#""b" for the kubelet settings of NodePool "three""#
        ]
    );
}

/// What a conversion printed is converted together with more: the name of a derived class is there already.
#[test]
fn a_derived_class_that_is_there_already_gets_the_block_of_its_pool() {
    let printed = converted(CROSSING, Purpose::Output).objects;
    let derived = printed.iter().map(Object::key).find(|name| name.starts_with("a-")).unwrap();
    let text = "apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: NAME}\n\
                spec: {amiFamily: Bottlerocket, role: nodes, subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{id: sg-3}]}\n";
    let objects = converted(&format!("{CROSSING}---\n{}", text.replace("NAME", &derived)), Purpose::Output).objects;
    let last = objects.last().unwrap();
    let Object::NodeClass(class) = last else { panic!("a class: {last:?}") };
    assert_eq!((class.metadata.name.as_str(), &class.spec.kubelet), (derived.as_str(), &Some(serde_json::json!({"maxPods": 22}))));
}

#[test]
fn claims_expire_with_the_pool_of_their_own_kind_and_name() {
    let text = "
apiVersion: karpenter.sh/v1beta1
kind: NodeClaim
metadata: {name: of-pool, labels: {karpenter.sh/nodepool: x}}
spec: {nodeClassRef: {name: std}, requirements: []}
---
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: x}
spec: {providerRef: {name: std}, ttlSecondsUntilExpired: 3600}
---
apiVersion: karpenter.sh/v1alpha5
kind: Machine
metadata: {name: of-provisioner, labels: {karpenter.sh/provisioner-name: x}}
spec: {machineTemplateRef: {name: std}, requirements: []}
---
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: x}
spec: {template: {spec: {nodeClassRef: {name: std}, requirements: []}}, disruption: {expireAfter: 48h}}
---
apiVersion: karpenter.sh/v1beta1
kind: NodeClaim
metadata: {name: of-none, labels: {karpenter.sh/nodepool: other}}
spec: {nodeClassRef: {name: std}, requirements: []}
";
    let objects = converted(text, Purpose::OnRead).objects;
    let claims = objects.iter().filter_map(|object| match object {
        Object::NodeClaim(claim) => Some((claim.metadata.name.as_str(), claim.spec.expire_after.span().map(|span| span.as_hours()))),
        _ => None,
    });
    assert_eq!(claims.collect::<Vec<_>>(), [("of-pool", Some(48)), ("of-provisioner", Some(1)), ("of-none", None)]);
}

#[test]
fn objects_converted_on_read_are_marked_and_have_no_placeholder() {
    let objects = converted(TWO_POOLS, Purpose::OnRead).objects;
    let Object::NodePool(pool) = &objects[0] else { panic!("a pool") };
    assert!(pool.is_converted_provisioner());
    assert_eq!(pool.metadata.uid, "u1", "claims are owned by the Provisioner");
    assert_eq!(pool.spec.disruption.budgets[0].reasons.as_deref(), Some(["Drifted".to_owned(), "Underutilized".to_owned()].as_slice()));
    let Object::NodeClass(class) = &objects[2] else { panic!("a class") };
    assert_eq!((&class.spec.role, &class.spec.instance_profile), (&None, &None));
    assert_eq!(class.metadata.annotation(crate::labels::CONVERTED_FROM), Some("AWSNodeTemplate"));
    assert_eq!(class.spec.tags.as_ref().unwrap().len(), 1, "restricted tags go");
}

#[test]
fn a_default_profile_takes_precedence_over_a_default_role() {
    let objects = manifest::read("test", TWO_POOLS).unwrap().into_iter().map(|located| located.value).collect();
    let options = ConvertOptions {
        default_instance_profile: Some("profile".to_owned()),
        default_role: Some("role".to_owned()),
        al2023: true,
        ..ConvertOptions::new(Purpose::Output)
    };
    let converted = convert(objects, &options);
    let Object::NodeClass(class) = &converted.objects[2] else { panic!("a class") };
    assert_eq!((class.spec.role.as_deref(), class.spec.instance_profile.as_deref()), (None, Some("profile")));
    assert_eq!(class.spec.ami_selector_terms[0].alias.as_deref(), Some("al2023@latest"));
}

#[test]
fn s3_15_the_output_notes_that_a_pool_never_removed_nodes() {
    let converted = converted(TWO_POOLS, Purpose::Output);
    assert!(converted.warnings.iter().any(|note| note.in_output && note.object == "NodePool \"b\"" && note.text.contains("Never")));
    assert!(converted.warnings.iter().any(|note| note.text.contains(ROLE_PLACEHOLDER)));
}

/// The class of v1beta1 in the golden case, with the version under another key.
fn class_with_version(key: &str, rest: &str) -> crate::karpenter::Ec2NodeClass {
    let text = std::fs::read_to_string(golden().join("045-class-alias-version/input.yaml")).unwrap();
    let text = text.replace("compatibility.karpenter.k8s.aws/v1beta1-alias-version", key) + rest;
    let objects = converted(&text, Purpose::Output).objects;
    let [Object::NodeClass(class)] = objects.as_slice() else { panic!("a class: {objects:?}") };
    class.as_ref().clone()
}

#[test]
fn a_class_whose_alias_was_pinned_stays_pinned() {
    let key = "compatibility.karpenter.k8s.aws/v1-alias-version";
    let class = class_with_version(key, "");
    assert_eq!(class.spec.ami_selector_terms[0].alias.as_deref(), Some("bottlerocket@v1.20.0"));
    assert_eq!((class.metadata.annotation(key), class.metadata.annotation("own")), (None, Some("note")));
    let with_terms = class_with_version(key, "  amiSelectorTerms:\n  - id: ami-1\n");
    assert_eq!(with_terms.spec.ami_selector_terms[0].alias, None);
    assert_eq!(with_terms.metadata.annotation(key), None, "it is nothing of v1");
    let unknown = "compatibility.karpenter.k8s.aws/v1beta1-alias-version";
    let other = class_with_version(unknown, "");
    assert_eq!(other.spec.ami_selector_terms[0].alias.as_deref(), Some("bottlerocket@latest"));
    assert_eq!(other.metadata.annotation(unknown), Some("v1.20.0"), "other annotations are the owner's");
}

#[test]
fn an_unmanaged_launch_template_cannot_be_converted() {
    for case in ["036-template-launch-template", "028-provisioner-inline-launch-template"] {
        let converted = convert(objects_of(&golden().join(case).join("input.yaml")), &ConvertOptions::new(Purpose::Output));
        assert_eq!(converted.objects, []);
        assert!(converted.errors[0].field.ends_with("launchTemplate"), "{}", converted.errors[0]);
    }
}

#[test]
fn s3_1_a_pool_refers_to_the_class_of_its_own_api_version() {
    let old = converted(TWO_POOLS, Purpose::OnRead).objects;
    let Object::NodePool(provisioner) = &old[0] else { panic!("a pool") };
    let classes: Vec<crate::karpenter::Ec2NodeClass> = old
        .iter()
        .filter_map(|object| match object {
            Object::NodeClass(class) if class.metadata.name == "std" => Some(class.as_ref().clone()),
            _ => None,
        })
        .collect();
    let new = crate::karpenter::Ec2NodeClass { metadata: ObjectMeta::named("std"), ..Default::default() };
    let all = [new.clone(), classes[0].clone()];
    assert_eq!(provisioner.class_in(&all), Some(&classes[0]));
    let mut pool = provisioner.clone();
    pool.metadata.annotations.clear();
    assert_eq!(pool.class_in(&all), Some(&new));
    assert_eq!(pool.class_in(&classes), None, "an AWSNodeTemplate is no EC2NodeClass, whatever its name");
    "eks.amazonaws.com".clone_into(&mut pool.spec.template.spec.node_class_ref.group);
    assert_eq!(pool.class_in(&all), None, "nor is the class of another controller");
}

#[test]
fn limits_are_printed_in_their_canonical_form_as_by_karpenter() {
    let text = "
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: a}
spec: {providerRef: {name: std}, limits: {resources: {cpu: 1000, memory: 1024Mi, nvidia.com/gpu: '1.5', ephemeral-storage: 1000M, pods: 1024}}}
";
    let json = converted(text, Purpose::Output).objects[0].to_json().unwrap();
    let shown = serde_json::json!({"cpu": "1k", "memory": "1Gi", "nvidia.com/gpu": "1500m", "ephemeral-storage": "1G", "pods": "1024"});
    assert_eq!(json["spec"]["limits"], shown);
    // Of every golden case, letter by letter.
    for directory in
        std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.join("expected-v1.yaml").exists())
    {
        let converted = convert(objects_of(&directory.join("input.yaml")), &ConvertOptions::new(Purpose::Output));
        let text = std::fs::read_to_string(directory.join("expected-v1.yaml")).unwrap();
        let expected: Vec<_> = manifest::documents("expected", &text).into_iter().map(|document| document.unwrap()).collect();
        for (ours, expected) in converted.objects.iter().zip(expected) {
            assert_eq!(ours.to_json().unwrap()["spec"]["limits"], expected.value()["spec"]["limits"], "{}", directory.display());
        }
    }
}
