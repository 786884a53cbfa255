//! Requirements and preferences of pods on their node, against what NodePools offer.

use super::world::{World, Z, asks, expr, left, one, preferred, reasons, required, sizes};
use serde_json::json;
use whittle_api::labels;

#[track_caller]
fn check(pool: serde_json::Value, spec: serde_json::Value, key: &str, expected: Option<&str>) {
    let shown = format!("{spec} on {pool}");
    assert_eq!(one(pool, spec, key).as_deref(), expected, "{shown}");
}

#[test]
fn custom_labels_of_a_pool_are_on_its_nodes_and_only_their_values_can_be_required() {
    let pool = || json!({"labels": {"k": "v"}});
    check(pool(), json!({}), "k", Some("v"));
    check(pool(), json!({"nodeSelector": {"k": "other"}}), "k", None);
    check(pool(), json!({"nodeSelector": {"undefined": "v"}}), "k", None);
    check(pool(), required(&[&[expr("k", "In", &["v", "x"])]]), "k", Some("v"));
    check(pool(), required(&[&[expr("k", "In", &["x"])]]), "k", None);
}

#[test]
fn zones_of_pool_and_pod_are_intersected() {
    let in_zones = |zones: &[&str]| json!({"requirements": [expr(labels::ZONE, "In", zones)]});
    check(in_zones(&[Z[1]]), json!({}), labels::ZONE, Some(Z[1]));
    check(in_zones(&Z[..2]), json!({"nodeSelector": {labels::ZONE: Z[1]}}), labels::ZONE, Some(Z[1]));
    check(in_zones(&Z[..2]), json!({"nodeSelector": {labels::ZONE: Z[2]}}), labels::ZONE, None);
    check(in_zones(&Z[..2]), json!({"nodeSelector": {labels::ZONE: "unknown"}}), labels::ZONE, None);
    check(in_zones(&Z[..2]), required(&[&[expr(labels::ZONE, "In", &Z[1..])]]), labels::ZONE, Some(Z[1]));
    check(in_zones(&Z[..2]), required(&[&[expr(labels::ZONE, "NotIn", &[Z[0]])]]), labels::ZONE, Some(Z[1]));
    check(in_zones(&Z[..2]), required(&[&[expr(labels::ZONE, "NotIn", &Z[..2])]]), labels::ZONE, None);
    check(in_zones(&Z[..2]), required(&[&[expr(labels::ZONE, "In", &[Z[2]])]]), labels::ZONE, None);
}

#[test]
fn a_pod_that_names_a_host_is_refused() {
    check(json!({}), json!({"nodeSelector": {labels::HOSTNAME: "red"}}), labels::ZONE, None);
}

#[test]
fn numbers_are_compared_with_gt_lt_gte_and_lte() {
    let at = |operator, n: &str| required(&[&[expr("integer", operator, &[n])]]);
    check(json!({}), at("Gt", "8"), "integer", Some("16"));
    check(json!({}), at("Lt", "4"), "integer", Some("2"));
    check(json!({}), at("Gte", "16"), "integer", Some("16"));
    check(json!({}), at("Lte", "2"), "integer", Some("2"));
    check(json!({}), at("Gt", "16"), "integer", None);
    check(json!({}), at("Lte", "1"), "integer", None);
}

#[test]
fn a_preference_that_agrees_is_honoured_and_one_that_does_not_is_dropped() {
    let zone = |operator, zones: &[&str]| expr(labels::ZONE, operator, zones);
    let both = |preference, need| super::world::all(&[required(&[&[need]]), preferred(&[(1, preference)])]);
    check(json!({}), both(zone("In", &[Z[1]]), zone("In", &Z[..2])), labels::ZONE, Some(Z[1]));
    check(json!({}), both(zone("NotIn", &[Z[0]]), zone("In", &Z[..2])), labels::ZONE, Some(Z[1]));
    check(json!({}), both(zone("In", &[Z[2]]), zone("In", &Z[..2])), labels::ZONE, Some(Z[0]));
    let pool = json!({"requirements": [zone("In", &[Z[0]])]});
    check(pool, preferred(&[(1, zone("In", &[Z[2]]))]), labels::ZONE, Some(Z[0]));
}

#[test]
fn selector_requirement_and_preference_on_one_key_are_intersected_and_so_are_several_keys() {
    let spec = super::world::all(&[
        json!({"nodeSelector": {labels::ZONE: Z[2], labels::CAPACITY_TYPE: "on-demand"}}),
        required(&[&[expr(labels::ZONE, "In", &Z), expr(labels::ARCH, "In", &["arm64", "amd64"])]]),
        preferred(&[(1, expr(labels::ZONE, "In", &Z[1..]))]),
    ]);
    check(json!({}), spec.clone(), labels::ZONE, Some(Z[2]));
    check(json!({}), spec, labels::CAPACITY_TYPE, Some("on-demand"));
    // Several keys, each mentioned by every kind of requirement.
    let keys = [(labels::ZONE, Z[1], Z[0]), (labels::CAPACITY_TYPE, "spot", "on-demand"), (labels::ARCH, "arm64", "amd64")];
    let each = |operator: &str, both: bool| -> Vec<serde_json::Value> {
        keys.iter().map(|(key, v, other)| expr(key, operator, &[*v, *other][usize::from(!both)..])).collect()
    };
    let selector: serde_json::Map<String, serde_json::Value> = keys.iter().map(|(key, v, _)| ((*key).to_owned(), json!(v))).collect();
    let preference = |list: Vec<serde_json::Value>| {
        let term = json!({"weight": 1, "preference": {"matchExpressions": list}});
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    for preferences in [each("In", true), each("NotIn", false), each("In", false)] {
        let need = required(&[&each("In", true)]);
        let spec = super::world::all(&[json!({"nodeSelector": selector}), need, preference(preferences)]);
        keys.iter().for_each(|(key, v, _)| check(json!({}), spec.clone(), key, Some(*v)));
    }
    let never = super::world::all(&[json!({"nodeSelector": selector}), required(&[&each("NotIn", true)])]);
    check(json!({}), never, labels::ZONE, None);
}

#[test]
fn restricted_labels_cannot_be_required() {
    for key in ["karpenter.sh/whatever", "sub.karpenter.sh/x", "karpenter.k8s.aws/unknown", labels::REGISTERED, labels::EC2_NODE_CLASS] {
        let mut world = World::new();
        world.pod("selector", json!({"nodeSelector": {key: "x"}}));
        world.pod("affinity", required(&[&[expr(key, "In", &["x"])]]));
        let plan = world.plan();
        assert_eq!(left(&plan), ["affinity", "selector"], "{key}");
        assert!(reasons(&plan).iter().all(|r| r.starts_with("ignoring pod, ")), "{:?}", reasons(&plan));
    }
}

#[test]
fn kubernetes_domains_are_open_when_the_pool_defines_the_label() {
    for key in ["node.kubernetes.io/x", "sub.node.kubernetes.io/x", "kops.k8s.io/x", "kubernetes.io/x"] {
        check(json!({"labels": {key: "v"}}), json!({"nodeSelector": {key: "v"}}), key, Some("v"));
        check(json!({"requirements": [expr(key, "In", &["v"])]}), json!({"nodeSelector": {key: "v"}}), key, Some("v"));
    }
}

#[test]
fn well_known_labels_can_be_required_by_their_values() {
    for (key, known) in [
        (labels::NODE_POOL, "default"),
        (labels::ZONE, Z[2]),
        (labels::INSTANCE_TYPE, "default-instance-type"),
        (labels::ARCH, "arm64"),
        (labels::OS, "linux"),
        (labels::CAPACITY_TYPE, "spot"),
    ] {
        check(json!({}), json!({"nodeSelector": {key: known}}), key, Some(known));
        check(json!({}), required(&[&[expr(key, "In", &[known])]]), key, Some(known));
        check(json!({}), json!({"nodeSelector": {key: "unknown"}}), key, None);
        check(json!({}), required(&[&[expr(key, "In", &["unknown"])]]), key, None);
    }
}

#[test]
fn every_label_that_types_define_chooses_among_them() {
    let own = [labels::NODE_POOL, labels::ZONE, labels::INSTANCE_TYPE, labels::ARCH, labels::OS, labels::CAPACITY_TYPE];
    let others: Vec<&str> = labels::WELL_KNOWN.iter().copied().filter(|key| !own.contains(key)).collect();
    assert!(others.len() > 25, "{others:?}");
    for key in others {
        let value = if key == labels::INSTANCE_TENANCY { "dedicated" } else { "7" };
        for (asked, placed) in [(value, true), ("default", false)] {
            for spec in [json!({"nodeSelector": {key: asked}}), required(&[&[expr(key, "In", &[asked])]])] {
                let mut world = World::new();
                world.types[1] = super::world::with(world.types[1].clone(), key, &[value]);
                for (n, t) in world.types.iter_mut().enumerate() {
                    if n != 1 {
                        t.requirements.push(super::world::absent(key));
                    }
                }
                world.pod("it", spec);
                let plan = world.pass();
                assert_eq!(
                    plan.claims.iter().map(|c| &c.instance_types[..]).collect::<Vec<_>>(),
                    [["small-instance-type"]; 1][..usize::from(placed)],
                    "{key}"
                );
                assert_eq!(world.label_of("it", key), placed.then_some(value), "{key}");
            }
        }
    }
}

#[test]
fn legacy_labels_mean_their_successors() {
    for (old, new) in [("failure-domain.beta.kubernetes.io/zone", labels::ZONE), ("topology.ebs.csi.aws.com/zone", labels::ZONE)] {
        check(json!({}), json!({"nodeSelector": {old: Z[1]}}), new, Some(Z[1]));
        check(json!({"requirements": [expr(old, "In", &[Z[2]])]}), json!({}), new, Some(Z[2]));
    }
    check(json!({}), json!({"nodeSelector": {"beta.kubernetes.io/arch": "arm64"}}), labels::ARCH, Some("arm64"));
    check(
        json!({}),
        json!({"nodeSelector": {"beta.kubernetes.io/instance-type": "small-instance-type"}}),
        labels::INSTANCE_TYPE,
        Some("small-instance-type"),
    );
}

#[test]
fn a_key_that_no_pool_defines_can_only_be_excluded() {
    for (operator, values, placed) in
        [("In", &["a"][..], false), ("Exists", &[], false), ("NotIn", &["a"], true), ("DoesNotExist", &[], true), ("Gt", &["1"], false)]
    {
        let spec = required(&[&[expr("undefined", operator, values)]]);
        let got = one(json!({}), spec, "undefined");
        assert_eq!(got.is_some(), placed, "{operator}");
        // A pod that excludes the value gets a node without the label, or at least without that value.
        assert!(got.as_deref() != Some("a") && (operator != "DoesNotExist" || got.as_deref() == Some("-")), "{operator}: {got:?}");
    }
}

#[test]
fn a_key_that_the_pool_defines_is_matched_by_every_operator() {
    for (operator, values, placed) in [
        ("In", &["v"][..], true),
        ("Exists", &[], true),
        ("NotIn", &["x"], true),
        ("NotIn", &["v"], false),
        ("DoesNotExist", &[], false),
        ("In", &["x"], false),
    ] {
        let spec = required(&[&[expr("k", operator, values)]]);
        check(json!({"labels": {"k": "v"}}), spec, "k", placed.then_some("v"));
    }
}

#[test]
fn contradictions_have_no_place_even_on_keys_that_no_pool_defines() {
    let never = |a, b| required(&[&[a, b]]);
    for spec in [
        never(expr("k", "In", &["a"]), expr("k", "In", &["b"])),
        never(expr("k", "Exists", &[]), expr("k", "DoesNotExist", &[])),
        never(expr("k", "In", &["a"]), expr("k", "DoesNotExist", &[])),
        never(expr("k", "Gt", &["5"]), expr("k", "Lt", &["5"])),
        never(expr("k", "Gt", &["9223372036854775807"]), expr("k", "NotIn", &["a"])),
    ] {
        assert_eq!(one(json!({}), spec.clone(), labels::ZONE), None, "{spec}");
    }
}

#[test]
fn who_wants_any_value_but_some_gets_a_machine_with_one_and_others_may_join() {
    // The claim gets a label, since some pod requires one.
    let some = required(&[&[expr("k", "Exists", &[]), expr("k", "NotIn", &["0"])]]);
    check(json!({}), some, "k", Some("1"));
    // A pod that requires a value which is not excluded can join, even if it came first and waited.
    let shuns = required(&[&[expr("k", "NotIn", &["b"])]]);
    for (value, cpu, expected) in [("a", "1", vec![2]), ("a", "3", vec![2]), ("b", "1", vec![1]), ("b", "3", vec![1])] {
        let mut world = World::new();
        world.pool("default", json!({"requirements": [expr(labels::ARCH, "In", &["arm64"])]}));
        world.pod("shuns", super::world::all(&[json!({"cpu": "2"}), shuns.clone()]));
        world.pod("asks", json!({"cpu": cpu, "nodeSelector": {"k": value}}));
        let plan = world.plan();
        assert_eq!(sizes(&plan), expected, "{value} {cpu}");
        assert_eq!(plan.claims[0].labels.get("k").map(String::as_str), Some(if value == "a" { "a" } else { "0" }), "{value} {cpu}");
        // The labels of an existing node are fixed.
        world.node("n", 8, json!({}));
        let plan = world.plan();
        assert_eq!((plan.placements[0].pods.len(), left(&plan)), (1, vec!["asks"]), "{value} {cpu}");
    }
}

#[test]
fn pods_share_a_machine_when_their_values_overlap() {
    let pool = json!({"requirements": [expr("k", "In", &["a", "b", "c"])]});
    let on = |first: serde_json::Value, second: serde_json::Value| {
        let mut world = World::new();
        world.pool("default", pool.clone());
        world.pod("first", super::world::all(&[json!({"cpu": "200m"}), first]));
        world.pod("second", super::world::all(&[json!({"cpu": "100m"}), second]));
        world.plan()
    };
    let in_values = |values: &[&str]| required(&[&[expr("k", "In", values)]]);
    let together = on(in_values(&["a", "b"]), in_values(&["b", "c"]));
    assert_eq!((sizes(&together), asks(&together, 0, "k")), (vec![2], "In [b]".into()));
    assert_eq!(together.claims[0].labels["k"], "b");
    assert_eq!(sizes(&on(in_values(&["a"]), in_values(&["b"]))), [1, 1]);
    let kept = on(in_values(&["c"]), required(&[&[expr("k", "Exists", &[])]]));
    assert_eq!((sizes(&kept), kept.claims[0].labels["k"].as_str()), (vec![2], "c"));
}

#[test]
fn a_value_that_no_type_has_hints_at_one_that_there_is() {
    let remedies = |pool: serde_json::Value, pod: serde_json::Value| {
        let mut world = World::new();
        world.pool("default", pool);
        world.pod("it", pod);
        let plan = world.plan();
        plan.left_out.iter().flat_map(|left| left.reason.remedies()).map(|remedy| remedy.text).collect::<Vec<_>>()
    };
    let in_arch = |value: &str| json!({"requirements": [expr(labels::ARCH, "In", &[value])]});
    let said = ["kubernetes.io/arch amd64 instead of x86_64 in the pod's node selector or affinity"];
    for pool in [json!({}), in_arch("amd64")] {
        assert_eq!(remedies(pool, json!({"nodeSelector": {labels::ARCH: "x86_64"}})), said);
    }
    let nothing = remedies(in_arch("arm64"), json!({"nodeSelector": {labels::ARCH: "x86_64"}}));
    assert!(nothing.iter().all(|text| !text.contains("instead of")), "the NodePool would still have no machine for it: {nothing:?}");
    let in_one_zone = json!({"requirements": [expr(labels::ZONE, "In", &["test-zone-2"])]});
    let zone = remedies(in_one_zone, json!({"nodeSelector": {labels::ZONE: "test-zone-9"}}));
    assert_eq!(zone, ["topology.kubernetes.io/zone test-zone-2 instead of test-zone-9 in the pod's node selector or affinity"]);
    let of_pool = remedies(in_arch("x86_64"), json!({}));
    assert_eq!(of_pool, ["kubernetes.io/arch amd64 instead of x86_64 in its spec.template"]);
    let other = remedies(json!({}), json!({"nodeSelector": {labels::ARCH: "arm64"}}));
    assert!(other.iter().all(|text| !text.contains("instead of")), "another architecture is no typing error: {other:?}");
    let one_of_two =
        remedies(in_arch("amd64"), required(&[&[expr(labels::ARCH, "In", &["x86_64", "amd64"]), expr(labels::ZONE, "In", &["nowhere"])]]));
    assert!(one_of_two.iter().all(|text| !text.contains("x86_64 in")), "one of the values is there: {one_of_two:?}");
}

#[test]
fn an_unknown_key_hints_at_the_label_that_was_meant() {
    for (asked, meant) in [
        ("zone", Some("topology.kubernetes.io/zone")),
        ("region", Some("topology.kubernetes.io/region")),
        ("nodepool", Some("karpenter.sh/nodepool")),
        ("instance-type", Some("node.kubernetes.io/instance-type")),
        ("arch", Some("kubernetes.io/arch")),
        ("capacity-type", Some("karpenter.sh/capacity-type")),
        ("topology.kubernetesio/zone", Some("topology.kubernetes.io/zone")),
        ("node.io/zone", Some("topology.kubernetes.io/zone")),
        ("topology.kubernetes.io/regio", Some("topology.kubernetes.io/region")),
        ("node.kubernetes.io/region", Some("topology.kubernetes.io/region")),
        ("karpenter/nodepool", Some("karpenter.sh/nodepool")),
        ("topology.kubernetes.io/zones", Some("topology.kubernetes.io/zone")),
        ("kubernetes.io/acrh", Some("kubernetes.io/arch")),
        ("deployment", None),
    ] {
        let mut world = World::new();
        world.pod("it", json!({"nodeSelector": {asked: "x"}}));
        let text = reasons(&world.plan()).remove(0);
        assert!(text.contains(&format!("label \"{asked}\" does not have known values")), "{text}");
        match meant {
            Some(meant) => assert!(text.contains(&format!("(typo of \"{meant}\"?)")), "{text}"),
            None => assert!(!text.contains("typo"), "{text}"),
        }
    }
}
