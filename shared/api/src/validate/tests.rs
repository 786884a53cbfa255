use super::*;
use crate::{manifest, yaml};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/api")
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The errors of a golden case: of an object, or of replacing the first by the second.
fn faults(documents: &[Value]) -> Vec<FieldError> {
    let last = documents.last().unwrap();
    match documents {
        [old, new] => update(word(last, "apiVersion"), word(last, "kind"), old, new),
        _ => document(word(last, "apiVersion"), word(last, "kind"), last),
    }
}

/// The difference to the server's response; `None` if there is none.
fn difference(text: &str, expected: &Value) -> Option<String> {
    let documents: Vec<Value> = yaml::documents(text).unwrap().iter().map(yaml::Node::to_json).collect();
    let last = documents.last().unwrap();
    let errors = faults(&documents);
    let expected = if expected["main"].is_object() { &expected["main"] } else { expected };
    let accepted = errors.is_empty() && (documents.len() == 2 || manifest::read("f", text).is_ok());
    if expected["accepted"] != accepted {
        return Some(format!("accepted: {} expected; {errors:?}", expected["accepted"]));
    }
    if accepted {
        let ours = defaulted(word(last, "apiVersion"), word(last, "kind"), last).unwrap_or(Value::Null);
        return (ours != expected["defaulted"]).then(|| format!("defaulted: {ours}\n  expected {}", expected["defaulted"]));
    }
    let answer = answer(errors);
    let ours: BTreeSet<String> = answer.errors.iter().map(|error| error.path.to_string()).collect();
    let theirs: BTreeSet<String> =
        expected["fields"].as_array().unwrap().iter().map(|field| field.as_str().unwrap().trim_start_matches('.').to_owned()).collect();
    (ours != theirs).then(|| format!("fields: {ours:?}, expected {theirs:?}; {answer:?}"))
}

#[test]
fn manifests_are_validated_as_by_a_real_api_server() {
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(golden().join("expected.json")).unwrap()).unwrap();
    let mut differences = Vec::new();
    for (name, expected) in expected.as_object().unwrap() {
        let text = std::fs::read_to_string(golden().join(format!("{name}.yaml"))).unwrap();
        if let Some(difference) = difference(&text, expected) {
            differences.push(format!("{name}: {difference}"));
        }
    }
    assert_eq!(expected.as_object().unwrap().len(), 316);
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn s3_12_all_errors_of_the_printed_selector_terms_are_reported() {
    let text = include_str!("../../../../tests/seeds/003-ec2nodeclass-selector-terms-as-printed.yaml");
    let errors: Vec<String> = manifest::read("f.yaml", text).unwrap_err().iter().map(ToString::to_string).collect();
    let all = errors.join("\n");
    for part in [
        "amiSelectorTerms[0].owner: text is needed",
        "amiSelectorTerms[1].owner",
        "securityGroupSelectorTerms[0].id: \"abc-123\"",
        "id excludes tags",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    assert!(errors[0].starts_with("f.yaml:16:5: document 1, EC2NodeClass \"default\", spec.amiSelectorTerms[0].owner"), "{all}");
}

#[test]
fn the_error_of_an_unknown_field_suggests_the_intended_one() {
    let pool =
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {"templates": {}, "weigth": 1}});
    let errors = document("karpenter.sh/v1", "NodePool", &pool);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(texts.iter().any(|text| text == "spec.weigth: there is no such field; did you mean weight?"), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("spec.template: missing")), "{texts:?}");
}

#[test]
fn a_name_that_is_no_text_is_not_missing() {
    let errors = document("karpenter.sh/v1", "NodePool", &pool(json!({"name": 1234}), json!({})));
    let of_name = errors.iter().map(ToString::to_string).filter(|text| text.starts_with("metadata.name: "));
    assert_eq!(of_name.collect::<Vec<_>>(), ["metadata.name: text is needed here, not 1234: put it in quotes"]);
}

fn pool(metadata: Value, spec: Value) -> Value {
    let mut pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": {
        "template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []}},
    }});
    for (key, value) in spec.as_object().unwrap() {
        pool["spec"][key] = value.clone();
    }
    pool
}

/// The fields that a server names when the object is created.
fn refused(value: &Value) -> Vec<String> {
    answer(document(word(value, "apiVersion"), word(value, "kind"), value)).errors.iter().map(|error| error.path.to_string()).collect()
}

#[track_caller]
fn check_metadata(metadata: Value, fields: &[&str]) {
    assert_eq!(refused(&pool(metadata.clone(), json!({}))), fields, "{metadata}");
}

#[test]
fn metadata_is_validated_as_for_every_kind() {
    let long = |length| "a".repeat(length);
    for (metadata, fields) in [
        (json!({"name": "a", "labels": {"a/b": "c", "A": "", "a": null}}), &[] as &[&str]),
        (json!({"name": "a", "labels": {"a/b/c": "d"}}), &["metadata.labels"]),
        (json!({"name": "a", "labels": {"a": "-b"}}), &["metadata.labels"]),
        (json!({"name": "a", "labels": {"a": long(64)}}), &["metadata.labels"]),
        (json!({"name": "a", "annotations": {"EXAMPLE.com/Note": "anything at all"}}), &[]),
        (json!({"name": "a", "annotations": {"a b": ""}}), &["metadata.annotations"]),
        (json!({"name": "a", "annotations": {"a": long(256 * 1024 - 1)}}), &[]),
        (json!({"name": "a", "annotations": {"a": long(256 * 1024)}}), &["metadata.annotations"]),
        (json!({"name": "a", "finalizers": ["example.com/a", "b"]}), &[]),
        (json!({"name": "a", "finalizers": ["a/b/c"]}), &["metadata.finalizers"]),
        (json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}), &["metadata.finalizers"]),
        (json!({"name": long(253)}), &[]),
        (json!({"name": long(254)}), &["metadata.name"]),
        (json!({"name": "", "generateName": "a-"}), &[]),
        (json!({"generateName": "a_"}), &["metadata.generateName", "metadata.name"]),
        (json!({"generateName": ""}), &["metadata.name"]),
        (Value::Null, &["metadata.name"]),
    ] {
        check_metadata(metadata, fields);
    }
}

#[test]
fn owners_need_version_kind_name_and_uid_and_one_controller() {
    let owner =
        |uid: &str, version: &str| json!({"apiVersion": version, "kind": "Deployment", "name": "web", "uid": uid, "controller": true});
    let with = |owners: Value| json!({"name": "a", "ownerReferences": owners});
    check_metadata(with(json!([owner("1", "apps/v1")])), &[]);
    check_metadata(with(json!([owner("1", "apps/v1"), owner("2", "v1")])), &["metadata.ownerReferences"]);
    // A server keeps one owner of each uid.
    check_metadata(with(json!([owner("1", "apps/v1"), owner("1", "a/b/c")])), &[]);
    check_metadata(with(json!([owner("1", "a/b/c")])), &["metadata.ownerReferences[0].apiVersion"]);
    check_metadata(with(json!([owner("", "v1")])), &["metadata.ownerReferences[0].uid"]);
    check_metadata(with(json!([{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}])), &["metadata.ownerReferences[0]"]);
}

#[test]
fn metadata_of_the_wrong_type_is_all_that_a_server_tells() {
    let spec = json!({"weight": 0, "nothing": 1});
    for (field, value) in [
        ("labels", json!({"a": 1})),
        ("finalizers", json!("a")),
        ("creationTimestamp", json!("2026-01-31 10:00:00Z")),
        ("deletionGracePeriodSeconds", json!("1")),
    ] {
        let named = refused(&pool(json!({"name": "A", field: value}), spec.clone()));
        assert!(!named.is_empty() && named.iter().all(|name| name.starts_with(&format!("metadata.{field}"))), "{named:?}");
    }
    assert_eq!(refused(&pool(json!({"name": "A", "nothing": 1}), spec)), ["metadata.nothing", "spec.nothing"]);
}

#[test]
fn a_status_is_not_stored_but_its_unknown_fields_are_refused() {
    let mut pool = pool(json!({"name": "a"}), json!({}));
    for (status, fields) in [(json!("x"), &[] as &[&str]), (json!({"nodes": "many"}), &[]), (json!({"nothing": 1}), &["status.nothing"])] {
        pool["status"] = status;
        assert_eq!(refused(&pool), fields);
    }
}

#[test]
fn unknown_fields_are_found_wherever_an_object_stands() {
    let named = refused(&pool(json!({"name": "a"}), json!({"limits": {"cpu": {"a": 1}}, "weight": [{"b": 1}]})));
    assert_eq!(named, ["spec.limits.cpu.a", "spec.weight[0].b"]);
}

#[test]
fn rules_wait_for_values_of_the_right_type() {
    let spec = |weight: Value| pool(json!({"name": "a"}), json!({"replicas": 1, "weight": weight}));
    assert_eq!(refused(&spec(json!("x"))), ["spec.weight"]);
    assert_eq!(refused(&spec(json!(101))), ["spec.weight", "spec"]);
}

#[test]
fn a_time_is_one_that_exists_and_a_list_in_its_place_passes() {
    let taint = |time: Value| {
        let mut pool = pool(json!({"name": "a"}), json!({}));
        pool["spec"]["template"]["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule", "timeAdded": time}]);
        refused(&pool)
    };
    let path = ["spec.template.spec.taints[0].timeAdded"];
    for time in ["2026-01-31T10:00:00Z", "2026-01-31t10:00:00.5+02:00"] {
        assert!(taint(json!(time)).is_empty(), "{time}");
    }
    for time in ["2026-02-30T10:00:00Z", "2026-01-31T10:00:60Z", "2026-01-31 10:00:00Z", "2026-01-31T10:00Z", ""] {
        assert_eq!(taint(json!(time)), path, "{time}");
    }
    // The server's check of formats passes lists by; whoever reads the object finds it.
    assert!(taint(json!([])).is_empty());
    assert_eq!(taint(json!(1)), path);
}

#[test]
fn a_whole_number_may_be_written_with_a_point() {
    let spec = json!({"weight": 10.0, "limits": {"cpu": 1e3}});
    let pool = pool(json!({"name": "a"}), spec);
    assert!(refused(&pool).is_empty());
    let stored = defaulted("karpenter.sh/v1", "NodePool", &pool).unwrap();
    assert_eq!((&stored["weight"], &stored["limits"]["cpu"]), (&json!(10), &json!(1000)));
    let named = |weight: Value| refused(&self::pool(json!({"name": "a"}), json!({"weight": weight})));
    assert_eq!((named(json!(1.5)), named(json!(1e30))), (vec!["spec.weight".to_owned()], vec!["spec.weight".to_owned()]));
}

#[test]
fn a_value_that_a_set_has_three_times_is_one_error() {
    let budget = json!({"budgets": [{"nodes": "1", "reasons": ["Empty", "Drifted", "Empty", "Empty"]}]});
    assert_eq!(refused(&pool(json!({"name": "a"}), json!({"disruption": budget}))), ["spec.disruption.budgets[0].reasons[2]"]);
}

#[test]
fn a_change_may_not_name_another_object_nor_delete_this_one() {
    let changed = |old: Value, new: Value| -> Vec<String> {
        let (old, new) = (pool(old, json!({})), pool(new, json!({})));
        update("karpenter.sh/v1", "NodePool", &old, &new).iter().map(|error| error.path.to_string()).collect()
    };
    let stored = json!({"name": "a", "uid": "1"});
    assert!(changed(stored.clone(), json!({"name": "a"})).is_empty());
    assert!(changed(stored.clone(), stored.clone()).is_empty());
    assert_eq!(changed(stored.clone(), json!({"name": "a", "uid": "2"})), ["metadata.uid"]);
    assert_eq!(changed(stored.clone(), json!({"name": "a", "deletionTimestamp": "2026-01-31T10:00:00Z"})), ["metadata.deletionTimestamp"]);
    assert_eq!(changed(stored, json!({"name": "a", "finalizers": ["a/b/c"]})), ["metadata.finalizers"]);
    assert_eq!(changed(json!({"name": "a"}), json!({"name": "a", "uid": "2"})), ["metadata.uid"], "no object has a uid that was chosen");
    let deleted = |grace: i64| json!({"name": "a", "deletionTimestamp": "2026-01-31T10:00:00Z", "deletionGracePeriodSeconds": grace});
    assert!(changed(deleted(0), deleted(0)).is_empty());
    assert!(changed(deleted(0), json!({"name": "a"})).is_empty());
    assert_eq!(changed(deleted(0), deleted(30)), ["metadata.deletionGracePeriodSeconds"]);
    assert_eq!(changed(json!({"name": "a"}), deleted(0)), ["metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds"]);
}

#[test]
fn a_kind_of_ours_in_a_misspelt_group_was_meant_to_be_in_ours() {
    for (written, kind, intended) in [
        ("karpentr.sh/v1", "NodePool", "karpenter.sh/v1"),
        ("Karpenter.sh/v1", "NodeClaim", "karpenter.sh/v1"),
        ("karpenter.io/v1beta1", "NodePool", "karpenter.sh/v1beta1"),
        ("karpenter.k8s.io/v1", "EC2NodeClass", "karpenter.k8s.aws/v1"),
        ("karpenter.k8s.aw/v1", "NodePool", "karpenter.sh/v1"),
        ("karpenter/v1", "NodePool", "karpenter.sh/v1"),
        ("autoscaling.k8s.io/v1beta1", "CapacityBuffer", "autoscaling.x-k8s.io/v1beta1"),
        ("v1", "NodePool", "karpenter.sh/v1"),
        ("karpenter.sh", "NodeOverlay", "karpenter.sh/v1alpha1"),
        ("v1alpha5", "Provisioner", "karpenter.sh/v1alpha5"),
    ] {
        assert_eq!(served(written, kind), Served::Nowhere, "{kind} of {written}");
        let error = unserved(written, kind);
        assert_eq!(error.path, FieldPath::of("apiVersion"));
        assert!(error.message.ends_with(&format!("did you mean {intended}?")), "{error}");
    }
    for (written, kind, version) in [
        ("karpenter.sh/v2", "NodePool", "karpenter.sh/v1"),
        ("karpenter.sh/v1", "Provisioner", "karpenter.sh/v1alpha5"),
        ("autoscaling.x-k8s.io/v1alpha1", "CapacityBuffer", "autoscaling.x-k8s.io/v1beta1"),
    ] {
        let error = unserved(written, kind);
        assert_eq!((served(written, kind), &error.path), (Served::Nowhere, &FieldPath::of("apiVersion")));
        assert!(error.message.starts_with(&format!("{kind} is in {version}, and not in {written}: ")), "{error}");
    }
    assert_eq!(unserved("karpenter.sh/v1", "NodePol").path, FieldPath::of("kind"));
}

#[test]
fn kinds_of_other_projects_are_never_taken_for_ours() {
    for (api_version, kind) in [
        ("eks.amazonaws.com/v1", "NodePool"),
        ("cloud.google.com/v1", "NodePool"),
        ("hypershift.openshift.io/v1beta1", "NodePool"),
        ("cluster.x-k8s.io/v1beta1", "Machine"),
        ("machine.openshift.io/v1beta1", "Machine"),
        ("karpenter.azure.com/v1beta1", "AKSNodeClass"),
        ("karpenter.k8s.gcp/v1alpha1", "GCENodeClass"),
        ("autoscaling.x-k8s.io/v1", "ProvisioningRequest"),
        ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler"),
        ("v1", "Pod"),
        ("apps/v1", "Deployment"),
    ] {
        assert_eq!(served(api_version, kind), Served::Elsewhere, "{kind} of {api_version}");
    }
}

#[test]
fn an_object_may_be_as_large_as_a_request_and_is_stored_up_to_half_of_it() {
    let sized = |bytes: usize| json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())});
    assert_eq!(size(&sized(3 * 512 * 1024)), Size::Fits);
    assert!(matches!(size(&sized(3 * 512 * 1024 + 1)), Size::BeyondEtcd(_)));
    assert!(matches!(size(&sized(3 * 1024 * 1024)), Size::BeyondEtcd(_)));
    assert!(matches!(size(&sized(3 * 1024 * 1024 + 1)), Size::BeyondRequest(_)));
}

#[test]
fn a_rate_of_initialization_needs_the_name_of_a_snapshot() {
    let errors = |snapshot: &str| {
        let ebs = json!({"volumeSize": "10Gi", "volumeInitializationRate": 100, "snapshotID": snapshot});
        let spec = json!({
            "role": "r",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": ebs}],
        });
        document("karpenter.k8s.aws/v1", "EC2NodeClass", &json!({"metadata": {"name": "a"}, "spec": spec})).len()
    };
    assert_eq!((errors("snap-1"), errors("")), (0, 1));
}
