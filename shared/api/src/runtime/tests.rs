use super::*;
use serde_json::{Value, json};

fn pool(template: Value) -> NodePool {
    let mut template = template;
    template["spec"]["nodeClassRef"] = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"});
    serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"template": template}})).unwrap()
}

/// Checks the fields that are reported.
#[track_caller]
fn check(template: Value, fields: &[&str]) {
    let found = node_pool(&pool(template.clone()));
    let paths: Vec<String> = found.errors.iter().map(|error| error.path.to_string().replace("spec.template.", "")).collect();
    assert_eq!(paths, fields, "{template}: {:?}", found.errors);
}

#[track_caller]
fn check_key(key: &str, fine: bool) {
    let requirement = json!({"spec": {"requirements": [{"key": key, "operator": "Exists"}]}});
    check(requirement, if fine { &[] } else { &["spec.requirements[0].key"] });
}

#[test]
fn restricted_and_malformed_label_keys_are_errors() {
    check_key("team", true);
    check_key("kubernetes.io/arch", true);
    check_key("foo.kops.k8s.io/x", true);
    check_key("beta.kubernetes.io/arch", true);
    check_key("karpenter.k8s.aws/instance-cpu", true);
    check_key("mykarpenter.sh/x", true);
    check_key("karpenter.k8s.aws/ec2nodeclass", false);
    check_key("sub.karpenter.sh/x", false);
    check_key("karpenter.sh/x", false);
    check_key("kubernetes.io/hostname", false);
    check_key("two words", false);
    check_key(&"a".repeat(64), false);
    check_key(&format!("{}/x", "a".repeat(254)), false);
    check_key("karpenter.sh/nodepool", false);
}

#[test]
fn keys_and_values_of_labels_are_checked() {
    check(json!({"metadata": {"labels": {"a": "b", "karpenter.sh/capacity-type": "spot"}}, "spec": {}}), &[]);
    check(json!({"metadata": {"labels": {"a": "b c"}}, "spec": {}}), &["metadata.labels.a"]);
    check(json!({"metadata": {"labels": {"karpenter.sh/nodepool": "x"}}, "spec": {}}), &["metadata.labels[karpenter.sh/nodepool]"]);
}

#[test]
fn a_label_value_is_up_to_63_letters_digits_and_marks_between_them() {
    for fine in ["", "a", "0", "A-b_c.d", "a--b", "x".repeat(63).as_str()] {
        assert!(is_label_value(fine), "{fine:?}");
    }
    for odd in [" ", "-", "-a", "a.", "_a", "a b", "a,b", "a/b", "a\n", "é", "a\u{301}", "x".repeat(64).as_str()] {
        assert!(!is_label_value(odd), "{odd:?}");
    }
}

#[test]
fn keys_of_annotations_are_checked_and_their_values_are_not() {
    check(json!({"metadata": {"annotations": {"Example.COM/Note": "any text, \n even this", "note": ""}}, "spec": {}}), &[]);
    for odd in ["two words", "", "a,b", "example.com/", "example_com/x", &"a".repeat(64)] {
        let found = node_pool(&pool(json!({"metadata": {"annotations": {odd: "x"}}, "spec": {}})));
        let [error] = &found.errors[..] else { panic!("{odd:?}: {:?}", found.errors) };
        let text = error.to_string();
        assert!(text.starts_with("spec.template.metadata.annotations") && text.contains("is no annotation key"), "{text}");
    }
}

#[test]
fn names_that_are_too_long_for_a_label_are_errors() {
    let named = |pool_name: &str, class: &str| {
        let mut pool = pool(json!({"spec": {}}));
        pool.metadata.name = pool_name.to_owned();
        pool.spec.template.spec.node_class_ref.name = class.to_owned();
        node_pool(&pool).errors.iter().map(|error| error.path.to_string()).collect::<Vec<_>>()
    };
    let (fits, long) = ("a".repeat(63), "a".repeat(64));
    assert!(named(&fits, &fits).is_empty());
    assert!(named(&format!("{}{fits}", NodePool::TWIN_PREFIX), "a").is_empty(), "the prefix is not part of the label");
    assert_eq!(named(&long, &fits), ["metadata.name"]);
    assert_eq!(named(&fits, &long), ["spec.template.spec.nodeClassRef.name"]);
    let mut named_long = pool(json!({"spec": {}}));
    named_long.metadata.name = long;
    let message = node_pool(&named_long).errors[0].to_string();
    assert_eq!(message, "metadata.name: 64 characters are too many for the label karpenter.sh/nodepool of its nodes: at most 63");
}

#[test]
fn a_template_that_no_claim_has_room_for_is_an_error_of_its_largest_field() {
    let long = |bytes: usize| "x".repeat(bytes);
    let annotated = |bytes: usize| json!({"metadata": {"labels": {"a": "b"}, "annotations": {"k": long(bytes)}}, "spec": {}});
    check(annotated(128 * 1024 - 3), &[]);
    check(annotated(128 * 1024 - 2), &["metadata.annotations"]);
    let labels: serde_json::Map<String, Value> = (0..3_000).map(|n| (format!("key-{n}"), json!(long(40)))).collect();
    check(json!({"metadata": {"labels": labels}, "spec": {}}), &["metadata.labels"]);
    let values: Vec<String> = (0..3_000).map(|n| format!("{}{n}", long(50))).collect();
    check(json!({"spec": {"requirements": [{"key": "team", "operator": "In", "values": values}]}}), &["spec.requirements"]);
    let message = node_pool(&pool(annotated(1_000_000))).errors[0].to_string();
    assert!(message.contains("a NodeClaim can have 128: leave some out") && message.len() < 300, "{message}");
}

#[test]
fn a_taint_may_occur_only_once_in_both_lists() {
    let taint = |effect: &str| json!({"key": "a", "effect": effect});
    check(json!({"spec": {"taints": [taint("NoSchedule"), taint("NoExecute")]}}), &[]);
    check(json!({"spec": {"taints": [taint("NoSchedule")], "startupTaints": [taint("NoSchedule")]}}), &["spec.startupTaints[0]"]);
    check(json!({"spec": {"taints": [{"key": "b".repeat(64), "effect": "NoSchedule"}]}}), &["spec.taints[0].key"]);
}

/// No kubelet starts with others, though the schema takes them.
#[test]
fn the_value_of_a_taint_is_a_label_value() {
    let taint = |value: &str| json!({"key": "team.io/a", "value": value, "effect": "NoSchedule"});
    for fine in ["", "a", "A-b_c.d", "x".repeat(63).as_str()] {
        check(json!({"spec": {"taints": [taint(fine)], "startupTaints": []}}), &[]);
    }
    for odd in ["team/a", "team.io/a", "a b", "-a", "a:b", "x".repeat(64).as_str()] {
        check(json!({"spec": {"taints": [taint(odd)]}}), &["spec.taints[0].value"]);
        check(json!({"spec": {"startupTaints": [taint(odd)]}}), &["spec.startupTaints[0].value"]);
    }
    let message = node_pool(&pool(json!({"spec": {"taints": [taint("team/a")]}}))).errors[0].to_string();
    assert_eq!(
        message,
        "spec.template.spec.taints[0].value: \"team/a\" is no value of a taint, and a Node with it never joins: write at most 63 letters, \
         digits, -, _ and ., letters or digits at both ends"
    );
}

#[test]
fn keys_with_known_values_need_one_of_them_and_unknown_values_are_noted() {
    let values = |values: Value, least: Value| json!({"spec": {"requirements": [{"key": labels::CAPACITY_TYPE, "operator": "In", "values": values, "minValues": least}]}});
    check(values(json!(["cheap"]), Value::Null), &["spec.requirements[0].values"]);
    check(values(json!(["spot", "cheap"]), json!(2)), &["spec.requirements[0].values"]);
    check(values(json!(["spot", "cheap"]), Value::Null), &[]);
    assert_eq!(node_pool(&pool(values(json!(["spot", "cheap"]), Value::Null))).notes.len(), 1);
}

#[test]
fn disks_without_a_name_a_volume_or_a_size_are_errors() {
    let of = |mappings: Value| {
        let mappings: Vec<crate::karpenter::BlockDeviceMapping> = serde_json::from_value(mappings).unwrap();
        disk_violations(Some(&mappings)).iter().map(|error| error.path.to_string()).collect::<Vec<_>>()
    };
    let whole = json!({"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}});
    assert_eq!(of(json!([whole, {"deviceName": "/dev/xvdb", "ebs": {"snapshotID": "snap-1"}}])), [""; 0]);
    assert_eq!(of(json!([whole, {"deviceName": "/dev/xvdb"}])), ["spec.blockDeviceMappings[1].ebs"]);
    assert_eq!(of(json!([{"ebs": {"volumeSize": "1Gi"}, "rootVolume": true}])), ["spec.blockDeviceMappings[0].deviceName"]);
    assert_eq!(of(json!([{"deviceName": ""}])), ["spec.blockDeviceMappings[0].ebs", "spec.blockDeviceMappings[0].deviceName"]);
    for size in ["Ti", "T", ""] {
        let named = json!({"deviceName": "/dev/xvda", "ebs": {"volumeSize": size, "snapshotID": "snap-1"}});
        assert_eq!(of(json!([named])), ["spec.blockDeviceMappings[0].ebs.volumeSize"], "{size:?}");
    }
    assert_eq!(disk_violations(None), []);
}

#[track_caller]
fn check_kubelet(document: Value, fields: &[&str]) {
    let paths: Vec<String> =
        kubelet_violations(Some(&document)).iter().map(|error| error.path.to_string().replace("spec.kubelet.", "")).collect();
    assert_eq!(paths, fields, "{document}");
}

#[test]
fn all_errors_of_a_kubelet_document_are_reported() {
    check_kubelet(json!({}), &[]);
    check_kubelet(json!({"maxPods": 0, "registryPullQPS": 10, "logging": {"options": {"json": {"infoBufferSize": "0"}}}}), &[]);
    check_kubelet(
        json!({"evictionHard": {"memory.available": "5.5%", "nodefs.available": "10Gi"}, "systemReserved": {"cpu": "100m"}}),
        &[],
    );
    check_kubelet(json!({"evictionSoft": {"pid.available": "5%"}, "evictionSoftGracePeriod": {"pid.available": "1m30s"}}), &[]);
    check_kubelet(json!({"maxPods": "vcpus * 8", "kubeReserved": {"memory": "11 * max_pods + 255"}}), &[]);
    check_kubelet(json!({"tlsCurvePreferences": [29, 4588], "memoryReservationPolicy": "TieredReservation"}), &[]);
    check_kubelet(json!({"tlsCurvePreferences": ["X25519"]}), &["tlsCurvePreferences[0]"]);
    check_kubelet(json!({"nope": 1}), &["nope"]);
    check_kubelet(json!({"logging": {"nope": 1}}), &["logging.nope"]);
    check_kubelet(json!({"authentication": {"x509": {"nope": 1}}}), &["authentication.x509.nope"]);
    check_kubelet(json!({"podsPerCore": "two"}), &["podsPerCore"]);
    check_kubelet(
        json!({"maxPods": -1, "podsPerCore": -1, "evictionMaxPodGracePeriod": -1}),
        &["evictionMaxPodGracePeriod", "maxPods", "podsPerCore"],
    );
    check_kubelet(json!({"imageGCHighThresholdPercent": 101}), &["imageGCHighThresholdPercent"]);
    check_kubelet(json!({"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 80}), &["imageGCHighThresholdPercent"]);
    check_kubelet(json!({"systemReserved": {"gpu": "1", "cpu": "-1"}}), &["systemReserved.cpu", "systemReserved.gpu"]);
    check_kubelet(json!({"evictionHard": {"cpu.available": "5%"}}), &["evictionHard[cpu.available]"]);
    check_kubelet(json!({"evictionHard": {"memory.available": "101%"}}), &["evictionHard[memory.available]"]);
    check_kubelet(json!({"evictionSoft": {"memory.available": "5%"}}), &["evictionSoft[memory.available]"]);
    check_kubelet(json!({"evictionSoftGracePeriod": {"memory.available": "soon"}}), &["evictionSoftGracePeriod[memory.available]"]);
    check_kubelet(json!({"registerWithTaints": [{"key": "a", "effect": "NoSchedule"}]}), &["registerWithTaints"]);
}

#[test]
fn expressions_and_passed_through_fields_are_detected() {
    assert!(has_expressions(Some(&json!({"maxPods": "vcpus"}))));
    assert!(has_expressions(Some(&json!({"kubeReserved": {"cpu": "vcpus * 2"}}))));
    assert!(!has_expressions(Some(&json!({"kubeReserved": {"cpu": "100m"}, "maxPods": 5}))));
    let document = json!({"maxPods": 5, "z": 1, "cpuCFSQuotaPeriod": "1s"});
    assert_eq!(passthrough_fields(document.as_object().unwrap()), ["cpuCFSQuotaPeriod", "z"]);
}
