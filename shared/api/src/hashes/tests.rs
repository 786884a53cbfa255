use super::*;
use serde_json::json;
use std::path::Path;

#[test]
fn hashes_of_golden_manifests_equal_those_of_karpenter() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/cloud/hashes");
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(directory.join("expected.json")).unwrap()).unwrap();
    let mut differences = Vec::new();
    for (name, expected) in expected.as_object().unwrap() {
        let text = std::fs::read_to_string(directory.join(format!("{name}.yaml"))).unwrap();
        // Hashed as written, without a server's defaults.
        let object = crate::yaml::documents(&text).unwrap().iter().find(|document| !document.is_null()).unwrap().to_json();
        let (hash, version) = if object["kind"] == "NodePool" {
            (node_pool(&serde_json::from_value(object).unwrap()), NODE_POOL_VERSION)
        } else {
            let class = serde_json::from_value(object).unwrap();
            (node_class(&class, expected["caBundle"].as_str().unwrap_or_default()), NODE_CLASS_VERSION)
        };
        let wanted = if expected["main"].is_object() { &expected["main"] } else { expected };
        if wanted["hash"] != hash.as_str() || wanted["version"] != version {
            differences.push(format!("{name}: {hash} {version}, expected {wanted}"));
        }
    }
    assert_eq!(expected.as_object().unwrap().len(), 59);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn base() -> Value {
    json!({
        "role": "role-1",
        "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
        "context": "fake-context",
        "detailedMonitoring": false,
        "associatePublicIPAddress": false,
        "metadataOptions":
            {"httpEndpoint": "disabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "optional"},
        "blockDeviceMappings": [
            {"deviceName": "map-device-1", "rootVolume": false, "ebs": {"deleteOnTermination": false, "encrypted": false, "iops": 0,
             "kmsKeyID": "fakeKMSKeyID", "snapshotID": "fakeSnapshot", "throughput": 0, "volumeSize": "2G", "volumeType": "standard"}},
            {"deviceName": "map-device-2"}
        ],
        "userData": "userdata-test-1",
        "amiFamily": "Custom"
    })
}

#[track_caller]
fn check(changes: &[(&str, Value)], expected: &str) {
    let mut spec = base();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = spec.pointer_mut(parent).unwrap();
        if value.is_null() {
            parent.as_object_mut().unwrap().remove(key);
        } else {
            parent[key] = value.clone();
        }
    }
    let class = Ec2NodeClass { spec: serde_json::from_value(spec).unwrap(), ..Ec2NodeClass::default() };
    assert_eq!(node_class(&class, "test-ca-bundle"), expected, "{changes:?}");
}

#[test]
fn hashes_of_node_classes_match_karpenters_test_vectors() {
    check(&[], "11148166120438674859");
    check(&[("/userData", json!("userdata-test-2"))], "11774429238106843388");
    check(&[("/tags/keyTag-test-3", json!("valueTag-test-3"))], "9327338697296909506");
    check(&[("/context", json!("context-2"))], "2279761750428738028");
    check(&[("/detailedMonitoring", json!(true))], "1936848126751988570");
    check(&[("/instanceStorePolicy", json!("RAID0"))], "16697988646989909967");
    check(&[("/associatePublicIPAddress", json!(true))], "16141801171825097963");
    check(&[("/metadataOptions/httpEndpoint", json!("enabled"))], "14969742554812447671");
    check(&[("/metadataOptions/httpProtocolIPv6", json!("enabled"))], "1581716956216772561");
    check(&[("/metadataOptions/httpPutResponseHopLimit", json!(10))], "14046948658064232764");
    check(&[("/metadataOptions/httpTokens", json!("required"))], "1346719102507290084");
    check(&[("/blockDeviceMappings/0/ebs/volumeSize", json!("10G"))], "10372902467896351912");
    check(&[("/role", Value::Null), ("/instanceProfile", json!("test-instance-profile"))], "10323991363677716244");
    check(&[("/connectionTracking", json!({"tcpEstablishedTimeout": 300}))], "1619669030802245540");
    check(&[("/connectionTracking", json!({"udpStreamTimeout": 120}))], "13743705849402595405");
    check(&[("/connectionTracking", json!({"udpTimeout": 45}))], "17941926745862994490");
    check(&[("/cpuOptions", json!({"nestedVirtualization": "enabled"}))], "6157846767212910604");
    check(&[("/subnetSelectorTerms", json!([{"id": "subnet-1"}]))], "11148166120438674859");
}

#[track_caller]
fn check_pool(taints: Value, expected: &str) {
    let pool: NodePool = serde_json::from_value(json!({"metadata": {"name": "general-purpose"}, "spec": {"template": {"spec": {
        "requirements": [], "taints": taints, "expireAfter": "336h", "terminationGracePeriod": "24h",
        "nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}}}}}))
    .unwrap();
    assert_eq!(node_pool(&pool), expected);
}

#[test]
fn hashes_of_node_pools_match_karpenters_test_vectors() {
    check_pool(json!([]), "4012513481623584108");
    check_pool(json!([{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}]), "4982684901400657622");
}

#[test]
fn the_hash_of_a_changed_class_needs_no_certificates() {
    let class = |role: &str| Ec2NodeClass {
        spec: Ec2NodeClassSpec { role: Some(role.to_owned()), ..Ec2NodeClassSpec::default() },
        ..Ec2NodeClass::default()
    };
    let (before, after) = (class("a"), class("b"));
    let hash = |class: &Ec2NodeClass| node_class(class, "Y2VydGlmaWNhdGVz");
    assert_ne!(hash(&before), hash(&after));
    assert_eq!(changed_node_class(&hash(&before), &before, &after), Some(hash(&after)));
    assert_eq!(changed_node_class("no number", &before, &after), None);
}
