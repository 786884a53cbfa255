//! A table of invalid inputs. Each breaks one field of one object: nothing panics, only node `bad` or its pool
//! is affected, the reason is reported, and node `used` of another pool is still replaced.

use super::*;
use crate::source::catalog;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How a field is broken.
enum Change {
    Set(Value),
    Removed,
}

use Change::{Removed, Set};

fn labels(pool: &str) -> Value {
    json!({
        "karpenter.sh/nodepool": pool, "node.kubernetes.io/instance-type": "large", "topology.kubernetes.io/zone": "a",
        "karpenter.sh/capacity-type": "on-demand", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
    })
}

/// A NodePool with a node of sixteen cores and a pod: the pool, the NodeClaim, the Node and the Pod.
fn machine(name: &str, pool: &str, cpu: &str) -> [Value; 4] {
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let room = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
    let id = format!("aws:///a/i-{name}");
    [
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool}, "spec": {
            "disruption": {"budgets": [{"nodes": "100%", "schedule": "0 9 * * *", "duration": "1h"}], "consolidateAfter": "0s"},
            "template": {"spec": {"nodeClassRef": class, "requirements": []}}}}),
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("claim-{name}"), "labels": labels(pool), "creationTimestamp": "2025-12-31T00:00:00Z"},
            "spec": {"nodeClassRef": class, "requirements": []}, "status": {"providerID": id, "capacity": room}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels(pool)},
            "spec": {"providerID": id}, "status": {"capacity": room}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p-{name}"), "labels": {"app": name}},
            "spec": {"nodeName": name, "containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": cpu}}}]}}),
    ]
}

/// The catalog: types with two and with sixteen cores.
fn catalog() -> Value {
    let offering = |price: f64| {
        json!([{"Price": price, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}])
    };
    let instance_type = |name: &str, cpu: &str, memory: &str, price: f64| {
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": cpu, "memory": memory},
            "offerings": offering(price)})
    };
    json!([instance_type("small", "2", "8Gi", 0.1), instance_type("large", "16", "64Gi", 0.8), instance_type("odd", "4", "16Gi", 0.2)])
}

/// The objects, by their names in the table.
fn objects() -> BTreeMap<&'static str, Value> {
    let [good, claim, node, pod] = machine("used", "good", "1");
    let mut objects = BTreeMap::from([("good-pool", good), ("good-claim", claim), ("good-node", node), ("good-pod", pod)]);
    // Its pod fits on no node together with another.
    let [pool, claim, node, pod] = machine("bad", "bad", "15500m");
    objects.extend([("pool", pool), ("claim", claim), ("node", node), ("pod", pod)]);
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"},
        "spec": {"selector": {"matchLabels": {"app": "bad"}}}, "status": {"disruptionsAllowed": 1}});
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plan-settings"}, "data": {}});
    objects.extend([("pdb", budget), ("settings", settings), ("catalog", catalog())]);
    objects
}

fn with_change(what: &str, field: &str, to: &Change) -> BTreeMap<&'static str, Value> {
    let mut objects = objects();
    let object = objects.get_mut(what).unwrap_or_else(|| panic!("no {what}"));
    let (parent, key) = field.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/");
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("{what} has no {parent}"));
    match (parent, to) {
        (Value::Array(elements), Set(value)) => elements[key.parse::<usize>().unwrap()] = value.clone(),
        (Value::Object(fields), Set(value)) => drop(fields.insert(key, value.clone())),
        (Value::Object(fields), Removed) => drop(fields.remove(&key)),
        _ => panic!("{what}{field} cannot be spoilt"),
    }
    objects
}

/// The decision as JSON, or the error. The text output is produced as well.
fn decide_json(mut objects: BTreeMap<&'static str, Value>, packing: PackingArg) -> Result<Value, String> {
    let catalog = objects.remove("catalog").unwrap().to_string();
    let text: Vec<String> = objects.values().map(|object| format!("{object:#}\n---\n")).collect();
    let read = source::read_text("input.yaml", &text.concat()).map_err(|error| error.to_string())?;
    if !read.blocks_disruption.is_empty() {
        return Err(format!("{}\n{}", source::ReadError::BlocksDisruption, read.blocks_disruption.join("\n")));
    }
    let types = catalog::parse(&catalog).map_err(|error| error.to_string())?;
    let decision = decide(&read, &catalog::for_all_pools(&read.objects, types), packing);
    let refused = read.refused.join("\n");
    assert!(!output::text(&decision, &Costs::default()).is_empty());
    let mut answer: Value = serde_json::from_str(&output::json(&decision, &Costs::default(), std::time::Duration::ZERO, &[])).unwrap();
    answer["refused"] = json!(refused);
    Ok(answer)
}

fn verdict<'v>(answer: &'v Value, node: &str) -> &'v Value {
    let all = answer["verdicts"].as_array().unwrap();
    all.iter().find(|verdict| verdict["node"] == node).unwrap_or_else(|| panic!("no verdict on {node}: {answer:#}"))
}

/// Node `bad` gets a verdict with this code and text (or an object is refused with this text), and `used` is replaced.
#[track_caller]
fn check(what: &str, field: &str, to: Change, code: &str, words: &str) {
    for packing in [PackingArg::Best, PackingArg::Reference] {
        let answer = decide_json(with_change(what, field, &to), packing).unwrap_or_else(|error| panic!("{what}{field}: {error}"));
        let used = verdict(&answer, "used");
        assert_eq!(used["code"], "Underutilized", "{what}{field}, {packing:?}: {answer:#}");
        let bad = verdict(&answer, "bad");
        // Karpenter's search stops at the first command.
        if packing == PackingArg::Best || bad["code"] != "NotReached" {
            assert_eq!(bad["code"], code, "{what}{field}, {packing:?}: {answer:#}");
            let message = format!("{}\n{}", bad["why"].as_str().unwrap(), answer["refused"].as_str().unwrap());
            assert!(message.contains(words), "{what}{field}, {packing:?}: {words:?} is not in {message:?}");
        }
    }
}

/// Nothing is decided, and the error contains `words`.
#[track_caller]
fn check_refused(what: &str, field: &str, to: Change, words: &[&str]) {
    let error = decide_json(with_change(what, field, &to), PackingArg::Best).map(|answer| format!("{answer:#}")).unwrap_err();
    for word in words {
        assert!(error.contains(word), "{what}{field}: {word:?} is not in {error:?}");
    }
}

#[test]
fn the_valid_input_is_the_baseline() {
    check("pool", "/metadata/name", Set(json!("bad")), "NothingCheaper", "cheapest already");
}

#[test]
fn budgets_with_invalid_node_counts_keep_the_nodes_of_their_pool() {
    let nodes = |value: Value, words: &str| check("pool", "/spec/disruption/budgets/0/nodes", Set(value), "BudgetInvalid", words);
    for text in ["", " 10%", "10 %", "1e", "+5", "5.5", "10%%", "%", "101%", "-3", "-3%", "99999999999999999999", "ten"] {
        nodes(json!(text), &format!("budget nodes {text:?} is neither a count nor a percentage such as 10%"));
    }
    nodes(json!(-3), "\"-3\" is neither");
    for other in [json!([]), json!({}), json!(true), json!(3.5), json!(1e300)] {
        nodes(other, "spec.disruption.budgets[0].nodes: a whole number, or text such as 10%, is needed");
    }
    check("pool", "/spec/disruption/budgets/0/nodes", Set(Value::Null), "NothingCheaper", "");
}

#[test]
fn budgets_with_invalid_schedules_keep_the_nodes_of_their_pool() {
    let schedule = |value: Value, words: &str| check("pool", "/spec/disruption/budgets/0/schedule", Set(value), "BudgetInvalid", words);
    for (text, words) in [
        ("", "0 fields"),
        (" ", "0 fields"),
        ("9", "1 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields: write minute, hour, day of month, month and day of week"),
        ("CRON_TZ=UTC 0 0 * * *", "6 fields"),
        ("@every 1h", "is not one of @yearly"),
        ("@reboot", "is not one of @yearly"),
        ("@DAILY", "is not one of @yearly"),
        ("60 * * * *", "\"60\" does not fit 0 to 59"),
        ("0 24 * * *", "\"24\" does not fit 0 to 23"),
        ("0 0 0 * *", "\"0\" does not fit 1 to 31"),
        ("0 0 1-32 * *", "\"1-32\" does not fit 1 to 31"),
        ("0 0 L * *", "\"L\" does not fit"),
        ("0 0 * 13 *", "\"13\" does not fit 1 to 12"),
        ("0 0 * JANUARY *", "\"JANUARY\" does not fit"),
        ("0 0 * * 7", "\"7\" does not fit 0 to 6"),
        ("*/0 * * * *", "\"*/0\" does not fit"),
        ("*/-1 * * * *", "\"*/-1\" does not fit"),
        ("5-1 * * * *", "\"5-1\" does not fit"),
        ("9999999999999999999 * * * *", "does not fit 0 to 59"),
    ] {
        schedule(json!(text), words);
    }
    schedule(json!("1,".repeat(5_000) + "x * * * *"), "does not fit 0 to 59");
    for other in [json!(5), json!(["@daily"]), json!({})] {
        schedule(other, "spec.disruption.budgets[0].schedule: text is needed here");
    }
    check("pool", "/spec/disruption/budgets/0/schedule", Removed, "BudgetInvalid", "has no schedule: give both or neither");
}

#[test]
fn budgets_with_invalid_durations_or_reasons_keep_the_nodes_of_their_pool() {
    let spoil = |field: &str, value: Value, words: &str| {
        check("pool", &format!("/spec/disruption/budgets/0/{field}"), Set(value), "BudgetInvalid", words);
    };
    for text in ["", "1h30", "1d", "1h 30m", "h"] {
        spoil("duration", json!(text), &format!("budgets[0].duration: {text:?} is not a duration: write numbers with units"));
    }
    // The longest duration that can be written: the window is always open.
    for text in ["99999999h", "9223372036854775807h", "99999999999999999999999h"] {
        check("pool", "/spec/disruption/budgets/0/duration", Set(json!(text)), "NothingCheaper", "");
    }
    spoil("duration", json!("-1h"), "budget duration -1h is negative: write one such as 1h30m");
    spoil("duration", json!(3600), "spec.disruption.budgets[0].duration");
    check("pool", "/spec/disruption/budgets/0/duration", Removed, "BudgetInvalid", "has no duration: give both or neither");
    for text in ["", "empty", "Expired", "Underutilised"] {
        spoil("reasons", json!([text]), &format!("budget reason {text:?} is not one of Underutilized, Empty, Drifted"));
    }
    spoil("reasons", json!("Empty"), "spec.disruption.budgets[0].reasons");
    spoil("reasons", json!([1]), "spec.disruption.budgets[0].reasons[0]");
    check("pool", "/spec/disruption/budgets/0/reasons", Set(json!([])), "NothingCheaper", "");
}

#[test]
fn invalid_disruption_settings_keep_the_nodes_of_their_pool() {
    let closed = |field: &str, value: Value, words: &str| check("pool", field, Set(value), "BudgetInvalid", words);
    closed("/spec/disruption", json!([]), "spec.disruption: it is no object");
    closed("/spec/disruption", json!("x"), "spec.disruption: it is no object");
    closed("/spec/disruption/budgets", json!({}), "spec.disruption.budgets: a list is needed here");
    closed("/spec/disruption/budgets", json!("x"), "spec.disruption.budgets: a list is needed here");
    closed("/spec/disruption/budgets/0", json!("x"), "spec.disruption.budgets[0]: a map of fields is needed here");
    for text in ["", "5", "never", "Never ", "1d", "1hr"] {
        closed("/spec/disruption/consolidateAfter", json!(text), &format!("spec.disruption.consolidateAfter: {text:?} is not a duration"));
    }
    closed("/spec/disruption/consolidateAfter", json!(5), "spec.disruption.consolidateAfter");
    closed("/spec/disruption/consolidateAfter", json!("-1s"), "consolidateAfter -1s is negative: write 0s or more, or Never");
    for other in [json!(""), json!(5), json!("whenempty"), json!("WhenUnderutilized")] {
        closed("/spec/disruption/consolidationPolicy", other, "spec.disruption.consolidationPolicy");
    }
    let many: Vec<Value> = vec![json!({"nodes": "0"}); 51];
    check("pool", "/spec/disruption/budgets", Set(json!(many)), "Budget", "allow no more disruptions");
    for (field, value) in [("disruption", json!(null)), ("weight", json!(-1)), ("weight", json!(0)), ("limits", json!({"cpu": "-1"}))] {
        check("pool", &format!("/spec/{field}"), Set(value), "NothingCheaper", "cheapest already");
    }
    check("pool", "/spec/replicas", Set(json!(-1)), "StaticNodePool", "static");
}

#[test]
fn nodes_of_unreadable_pools_are_kept() {
    let lost = |field: &str, value: Value, words: &str| check("pool", field, Set(value), "NodePoolUnknown", words);
    lost("/spec/weight", json!("x"), "NodePool \"bad\", spec.weight: a whole number is needed here");
    lost("/spec/replicas", json!("two"), "NodePool \"bad\", spec.replicas");
    lost("/spec/limits", json!({"cpu": "abc"}), "NodePool \"bad\", spec.limits.cpu: \"abc\" is no quantity: write a number");
    lost("/spec/template", json!(null), "NodePool \"bad\", spec.template: missing");
    lost("/spec/template/spec/expireAfter", json!("x"), "spec.template.spec.expireAfter: \"x\" does not have the form");
    lost("/spec/template/spec/terminationGracePeriod", json!("Never"), "spec.template.spec.terminationGracePeriod");
    lost("/spec/template/spec/nodeClassRef", json!(null), "spec.template.spec.nodeClassRef: missing");
    let unknown = json!([{"key": "a", "operator": "Foo", "values": ["x"]}]);
    lost("/spec/template/spec/requirements", unknown, "requirements[0].operator: \"Foo\" is none of In, NotIn");
    lost("/spec/template/spec/taints", json!([{"key": "a", "effect": "Foo"}]), "spec.template.spec.taints[0].effect");
    // An invalid requirement that only an API server rejects is no reason to disrupt anything.
    for requirement in [
        json!({"key": "", "operator": "In", "values": ["x"]}),
        json!({"key": "a", "operator": "In", "values": []}),
        json!({"key": "a", "operator": "Gt", "values": ["x"]}),
        json!({"key": "a", "operator": "Lt", "values": ["1", "2"]}),
    ] {
        let kept = ["NothingCheaper", "PodsWouldNotSchedule"];
        let answer =
            decide_json(with_change("pool", "/spec/template/spec/requirements", &Set(json!([requirement]))), PackingArg::Best).unwrap();
        let code = verdict(&answer, "bad")["code"].as_str().unwrap();
        assert!(kept.contains(&code), "{requirement}: {answer:#}");
    }
}

#[test]
fn odd_times_and_clock_jumps_disturb_no_other_node() {
    for time in ["0001-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "9999-12-30T22:00:00Z"] {
        check("claim", "/metadata/creationTimestamp", Set(json!(time)), "NothingCheaper", "cheapest already");
        check("node", "/metadata/creationTimestamp", Set(json!(time)), "NothingCheaper", "cheapest already");
        check("pod", "/metadata/creationTimestamp", Set(json!(time)), "NothingCheaper", "cheapest already");
    }
    for time in ["yesterday", "", "2025-02-30T00:00:00Z", "9999-12-31T23:59:59Z"] {
        let words = "NodeClaim \"claim-bad\", metadata.creationTimestamp";
        check("claim", "/metadata/creationTimestamp", Set(json!(time)), "NotManaged", words);
        let words = ["Pod \"p-bad\", status.startTime", "such as 2026-01-01T00:00:00Z", "nothing is decided"];
        check_refused("pod", "/status", Set(json!({"startTime": time})), &words);
    }
    check("claim", "/metadata/creationTimestamp", Set(json!(5)), "NotManaged", "metadata.creationTimestamp");
    for (time, words) in [("9999-12-30T22:00:00Z", "cheapest already"), ("0000-01-01T00:00:00Z", "cheapest already")] {
        check("settings", "/data/now", Set(json!(time)), "NothingCheaper", words);
    }
    check_refused("settings", "/data/now", Set(json!("x")), &["plan-settings: now cannot be \"x\": write a time such as"]);
}

#[test]
fn claims_and_nodes_without_identity_are_kept() {
    check("claim", "/metadata/labels", Removed, "ConsolidateAfter", "last pod event is not known");
    check("claim", "/status/providerID", Removed, "NotManaged", "no NodeClaim of ours");
    check("claim", "/status/providerID", Set(json!("")), "NotManaged", "no NodeClaim of ours");
    check("claim", "/status/conditions", Set(json!("x")), "NotManaged", "NodeClaim \"claim-bad\", status.conditions");
    let maybe = json!([{"type": "Initialized", "status": "Maybe"}]);
    check("claim", "/status/conditions", Set(maybe), "NotManaged", "status.conditions[0].status: \"Maybe\" is no value for this");
    check("claim", "/status/conditions", Set(json!([{"type": "Initialized", "status": "False"}])), "ConsolidateAfter", "last pod event");
    let other = json!({"group": "a", "kind": "Other", "name": "b"});
    check("claim", "/spec/nodeClassRef", Set(other), "NotManaged", "no NodeClaim of ours");
    check("claim", "/spec/nodeClassRef", Removed, "NotManaged", "NodeClaim \"claim-bad\", spec: the field \"nodeClassRef\" is missing");
    // The claim then counts as a machine that has not joined, and the pod of `used` would fit on it.
    for (id, code) in [(json!(null), "NoProviderId"), (json!("aws:///x/i-other"), "NotManaged")] {
        let answer = decide_json(with_change("node", "/spec/providerID", &Set(id)), PackingArg::Best).unwrap();
        assert_eq!((verdict(&answer, "bad")["code"].as_str(), &answer["commands"]), (Some(code), &json!([])), "{answer:#}");
    }
    check("node", "/metadata/labels/karpenter.sh~1nodepool", Removed, "NoNodePoolLabel", "no label karpenter.sh/nodepool");
    check("node", "/metadata/labels/karpenter.sh~1nodepool", Set(json!("")), "NodePoolUnknown", "NodePool");
    check("node", "/metadata/labels/karpenter.sh~1nodepool", Set(json!("gone")), "NodePoolUnknown", "NodePool gone does not exist");
    check("node", "/metadata/labels/karpenter.sh~1initialized", Set(json!("yes")), "NotInitialized", "not initialized");
    for label in ["node.kubernetes.io~1instance-type", "karpenter.sh~1capacity-type", "topology.kubernetes.io~1zone"] {
        let code = if label.starts_with("node") { "InstanceTypeUnknown" } else { "LabelMissing" };
        check("node", &format!("/metadata/labels/{label}"), Removed, code, "");
    }
    check("node", "/metadata/labels/karpenter.sh~1capacity-type", Set(json!("borrowed")), "PriceUnknown", "price is not known");
    check("node", "/metadata/labels/topology.kubernetes.io~1zone", Set(json!("z")), "PriceUnknown", "price is not known");
    check("node", "/status/conditions", Set(json!([])), "NothingCheaper", "");
    for cpu in ["-4", "0", "1e30", "999999999999999999999"] {
        check("node", "/status/capacity/cpu", Set(json!(cpu)), "NothingCheaper", "");
    }
    check_refused("node", "/status/capacity/cpu", Set(json!("abc")), &["Node \"bad\", status.capacity.cpu: \"abc\" is not a quantity"]);
    check_refused("node", "/spec/taints", Set(json!([{"key": "a", "effect": "Foo"}])), &["Node \"bad\", spec.taints[0].effect"]);
}

#[test]
fn pods_with_impossible_values_keep_their_node_or_are_refused() {
    for cpu in ["1e30", "999999999999999999999"] {
        let answer =
            decide_json(with_change("pod", "/spec/containers/0/resources/requests/cpu", &Set(json!(cpu))), PackingArg::Best).unwrap();
        assert!(["NothingCheaper", "PodsWouldNotSchedule"].contains(&verdict(&answer, "bad")["code"].as_str().unwrap()), "{answer:#}");
        assert_eq!(verdict(&answer, "used")["code"], "Underutilized");
    }
    let wrong = ["Pod \"p-bad\"", "requests.cpu: \"abc\" is not a quantity: write a number", "nothing is decided"];
    check_refused("pod", "/spec/containers/0/resources/requests/cpu", Set(json!("abc")), &wrong);
    check_refused("pod", "/spec/priority", Set(json!(99_999_999_999_i64)), &["Pod \"p-bad\", spec.priority"]);
    check_refused("pod", "/spec/priority", Set(json!("x")), &["Pod \"p-bad\", spec.priority"]);
    for value in [json!(i32::MAX), json!(0)] {
        check("pod", "/spec/priority", Set(value), "NothingCheaper", "");
    }
    let annotation = |key: &str, value: &str| Set(json!({ key: value }));
    for value in ["abc", "NaN", "1e400", "99999999999999999999", ""] {
        let cost = annotation("controller.kubernetes.io/pod-deletion-cost", value);
        check("pod", "/metadata/annotations", cost, "NothingCheaper", "");
    }
    for value in ["true ", "TRUE", "0s", "-1h", "1x", ""] {
        check("pod", "/metadata/annotations", annotation("karpenter.sh/do-not-disrupt", value), "NothingCheaper", "");
    }
    for value in ["true", "99999999h"] {
        check("pod", "/metadata/annotations", annotation("karpenter.sh/do-not-disrupt", value), "PodAnnotation", "p-bad protects it");
    }
    check_refused("good-pod", "/spec/tolerations", Set(json!([{"operator": "Odd"}])), &["spec.tolerations[0].operator: \"Odd\" is none"]);
}

#[test]
fn invalid_pod_disruption_budgets_allow_no_disruption_or_are_refused() {
    for allowed in [json!(0), json!(-1), json!(i32::MIN)] {
        check("pdb", "/status/disruptionsAllowed", Set(allowed), "PodDisruptionBudget", "PDB default/pdb allows 0 disruptions");
    }
    check("pdb", "/status", Removed, "PodDisruptionBudget", "allows 0 disruptions");
    for other in [json!("x"), json!(99_999_999_999_i64)] {
        check_refused("pdb", "/status/disruptionsAllowed", Set(other), &["PodDisruptionBudget \"pdb\", status.disruptionsAllowed"]);
    }
    for value in [json!("150%"), json!("abc"), json!(-5)] {
        check_refused(
            "pdb",
            "/spec/maxUnavailable",
            Set(value),
            &["PodDisruptionBudget \"pdb\", spec.maxUnavailable", "no number of pods"],
        );
    }
    check("pdb", "/spec/selector", Removed, "NothingCheaper", "");
    check_refused("pdb", "/spec/selector", Set(json!("x")), &["PodDisruptionBudget \"pdb\", spec.selector"]);
    check_refused("pdb", "/spec/selector", Set(json!({"matchLabels": {"a": 5}})), &["spec.selector.matchLabels.a", "needs quotes"]);
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Like"}]});
    check_refused("pdb", "/spec/selector", Set(odd), &["PodDisruptionBudget \"pdb\", spec.selector.matchExpressions[0].operator"]);
}

#[test]
fn catalogs_with_impossible_prices_or_names_are_refused() {
    check("catalog", "/2/offerings/0/Price", Set(json!(null)), "NothingCheaper", "cheapest already");
    for price in [json!(0), json!(1e-30)] {
        check_refused("catalog", "/2/offerings/0/Price", Set(price), &["odd, offerings[0]: Price is 0", "leave Price out"]);
    }
    check("catalog", "/2/offerings/0/Price", Removed, "NothingCheaper", "cheapest already");
    for (price, words) in [(json!(-1), "Price is -1"), (json!(1e300), "no machine costs that much")] {
        check_refused("catalog", "/2/offerings/0/Price", Set(price), &["odd, offerings[0]", words]);
    }
    let answer = decide_json(with_change("catalog", "/2/offerings", &Set(json!([]))), PackingArg::Best).unwrap();
    assert_eq!(verdict(&answer, "used")["code"], "Underutilized", "{answer:#}");
    for offerings in [json!([{"Price": 0.01}]), json!([{"Price": 0.01, "Requirements": [{"key": "", "operator": "In"}]}])] {
        check_refused("catalog", "/2/offerings", Set(offerings), &["odd, offerings[0]: Requirements lack karpenter.sh/capacity-type"]);
    }
    for (field, value) in [("/2/overhead", json!({"cpu": "999"})), ("/2/resources", json!({}))] {
        check("catalog", field, Set(value), "NothingCheaper", "");
    }
    check_refused("catalog", "/2/name", Set(json!("")), &["an instance type has no name"]);
    check_refused(
        "catalog",
        "/2/offerings/0/Price",
        Set(json!("x")),
        &["[2].offerings[0].Price: a number is needed here, not the text \"x\" (line 1, column"],
    );
    check_refused("catalog", "/2/resources/cpu", Set(json!("-1")), &["resources.cpu: -1 is less than nothing"]);
    check_refused("catalog", "/2/name", Set(json!("small")), &["small is there twice"]);
    check_refused("catalog", "/2/resources/cpu", Set(json!("x")), &["\"x\" is not a quantity: write a number"]);
}

#[test]
fn settings_with_unknown_values_are_refused() {
    for (key, value, words) in [
        ("featureGates", "X", "write Name=true or Name=false"),
        ("featureGates", "X=maybe", "featureGates cannot be \"X=maybe\""),
        ("preferencePolicy", "x", "use Respect or Ignore"),
        ("minValuesPolicy", "x", "use Strict or BestEffort"),
    ] {
        check_refused("settings", &format!("/data/{key}"), Set(json!(value)), &["plan-settings", words]);
    }
    check("settings", "/data/featureGates", Set(json!("NobodyKnows=true")), "NothingCheaper", "");
}
