//! Sets fields that the API server or a controller would have set.

use super::settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Container, Namespace, Node, Pod, PodAffinity, PodAffinityTerm, PodCondition};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ClusterObjects, Condition, ConditionStatus, ObjectMeta, SelectorRequirement, conditions, labels};
use whittle_model::pods::limits_of_whole_become_requests;
use whittle_sim::cluster::admission::{request_windows_address, switches_windows_addresses_on};
use whittle_units::Timestamp;

/// PriorityClasses that every cluster has, and their values.
pub(super) const BUILT_IN_PRIORITIES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Sets fields that depend on other objects.
pub(super) fn complete(objects: &mut ClusterObjects, settings: &Settings) {
    let built_in = BUILT_IN_PRIORITIES.map(|(name, value)| (name.to_owned(), value));
    let own = objects.priority_classes.iter().map(|c| (c.metadata.name.clone(), c.value));
    let priorities: BTreeMap<String, i32> = built_in.into_iter().chain(own).collect();
    let default_priority = objects.priority_classes.iter().find(|c| c.global_default).map(|c| c.value);
    let has_windows_addresses = objects.config_maps.iter().any(switches_windows_addresses_on);
    for pod in &mut objects.pods {
        if has_windows_addresses && !pod.is_bound() {
            request_windows_address(&mut pod.spec);
        }
        complete_pod(pod);
        if pod.spec.priority.is_none() {
            pod.spec.priority = priorities.get(&pod.spec.priority_class_name).copied().or(default_priority).or(Some(0));
        }
    }
    let given: BTreeSet<String> = objects.namespaces.iter().map(|n| n.metadata.name.clone()).collect();
    let used: BTreeSet<String> = objects.pods.iter().map(|p| p.metadata.namespace.clone()).chain(["default".to_owned()]).collect();
    objects.namespaces.extend(used.difference(&given).map(|name| Namespace { metadata: ObjectMeta::named(name.as_str()) }));
    for namespace in &mut objects.namespaces {
        let name = namespace.metadata.name.clone();
        namespace.metadata.labels.entry(labels::NAMESPACE_NAME.to_owned()).or_insert(name);
    }
    for pool in &mut objects.node_pools {
        complete_pool(pool, settings.now);
        if pool.class_in(&objects.node_classes).is_some_and(|class| class.metadata.is_deleting()) {
            terminating(pool);
        }
    }
    for node in &mut objects.nodes {
        complete_node(node, settings.now);
    }
    let nodes: BTreeMap<String, Node> =
        objects.nodes.iter().filter(|n| !n.spec.provider_id.is_empty()).map(|n| (n.spec.provider_id.clone(), n.clone())).collect();
    for claim in &mut objects.node_claims {
        complete_claim(claim, nodes.get(&claim.status.provider_id.clone()));
    }
    for class in &mut objects.storage_classes {
        if class.volume_binding_mode.is_empty() {
            class.volume_binding_mode = "Immediate".to_owned();
        }
    }
}

fn complete_pod(pod: &mut Pod) {
    let host_network = pod.spec.host_network;
    for container in pod.spec.containers.iter_mut().chain(&mut pod.spec.init_containers) {
        complete_container(container, host_network);
    }
    limits_of_whole_become_requests(&mut pod.spec);
    complete_pod_affinity(pod);
    for constraint in &mut pod.spec.topology_spread_constraints {
        if constraint.when_unsatisfiable.is_empty() {
            constraint.when_unsatisfiable = "DoNotSchedule".to_owned();
        }
    }
    let bound = pod.is_bound();
    if pod.status.phase.is_empty() {
        pod.status.phase = if bound { "Running" } else { "Pending" }.to_owned();
    }
    if bound && pod.status.start_time.is_none() {
        // A kubelet accepts a pod as soon as it is bound.
        pod.status.start_time = pod.metadata.creation_timestamp;
    }
    if pod.status.conditions.is_empty() {
        let condition = |type_: &str, status: &str, reason: &str| PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            ..PodCondition::default()
        };
        if bound {
            pod.status.conditions = vec![condition("PodScheduled", "True", ""), condition("Ready", "True", "")];
        } else if pod.status.phase == "Pending" {
            // The scheduler looks at no pod with gates.
            let reason = if pod.spec.scheduling_gates.is_empty() { "Unschedulable" } else { "SchedulingGated" };
            pod.status.conditions = vec![condition("PodScheduled", "False", reason)];
        }
    }
}

/// The labels of the pod itself that its terms compare become part of their selectors. Those of a pod from a cluster are so already.
fn complete_pod_affinity(pod: &mut Pod) {
    let Some(affinity) = &mut pod.spec.affinity else { return };
    for PodAffinity { required, preferred } in affinity.pod_affinity.iter_mut().chain(&mut affinity.pod_anti_affinity) {
        for term in required.iter_mut().chain(preferred.iter_mut().map(|weighted| &mut weighted.pod_affinity_term)) {
            complete_term(term, &pod.metadata);
        }
    }
}

fn complete_term(term: &mut PodAffinityTerm, own: &ObjectMeta) {
    let Some(selector) = &mut term.label_selector else { return };
    for (keys, operator) in [(&term.match_label_keys, "In"), (&term.mismatch_label_keys, "NotIn")] {
        for (key, value) in keys.iter().filter_map(|key| Some((key, own.label(key)?))) {
            if selector.match_expressions.iter().all(|known| known.key != *key || known.operator != operator) {
                let (key, operator, values) = (key.clone(), operator.to_owned(), vec![value.to_owned()]);
                selector.match_expressions.push(SelectorRequirement { key, operator, values });
            }
        }
    }
}

fn complete_container(container: &mut Container, host_network: bool) {
    if let Some(resources) = &mut container.resources {
        for (name, amount) in &resources.limits.0 {
            resources.requests.0.entry(name.clone()).or_insert(*amount);
        }
    }
    for port in &mut container.ports {
        if port.protocol.is_empty() {
            port.protocol = "TCP".to_owned();
        }
        if host_network && port.host_port == 0 {
            port.host_port = port.container_port;
        }
    }
}

fn is_true(type_: &str, since: Option<Timestamp>) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: ConditionStatus::True,
        reason: type_.to_owned(),
        last_transition_time: since,
        ..Condition::default()
    }
}

fn complete_pool(pool: &mut NodePool, now: Timestamp) {
    if pool.status.conditions.is_empty() {
        pool.status.conditions.push(is_true(conditions::READY, Some(now)));
    }
}

/// As the controller of node classes says it: nothing is launched of a class that is being deleted.
fn terminating(pool: &mut NodePool) {
    for type_ in [conditions::NODE_CLASS_READY, conditions::READY] {
        pool.status.conditions.retain(|condition| condition.type_ != type_);
        let reason = "NodeClassTerminating".to_owned();
        pool.status.conditions.push(Condition { type_: type_.to_owned(), status: ConditionStatus::False, reason, ..Condition::default() });
    }
}

fn complete_node(node: &mut Node, now: Timestamp) {
    if node.status.allocatable.is_empty() {
        node.status.allocatable = node.status.capacity.clone();
    }
    let name = node.metadata.name.clone();
    node.metadata.labels.entry(labels::HOSTNAME.to_owned()).or_insert(name);
    if node.status.conditions.is_empty() {
        node.status.conditions.push(is_true(conditions::READY, Some(now)));
    }
}

fn complete_claim(claim: &mut NodeClaim, node: Option<&Node>) {
    if claim.status.allocatable.is_empty() {
        claim.status.allocatable = claim.status.capacity.clone();
    }
    if let Some(node) = node
        && claim.status.node_name.is_empty()
    {
        claim.status.node_name.clone_from(&node.metadata.name);
    }
    if claim.status.conditions.is_empty() {
        let since = claim.metadata.creation_timestamp;
        claim.status.conditions.push(is_true(conditions::LAUNCHED, since));
        for (label, type_) in [(labels::REGISTERED, conditions::REGISTERED), (labels::INITIALIZED, conditions::INITIALIZED)] {
            if node.is_some_and(|n| n.metadata.label(label) == Some("true")) {
                claim.status.conditions.push(is_true(type_, since));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(affinity: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "labels": {"app": "web", "v": "1"}}, "spec": {"affinity": affinity}}))
            .unwrap()
    }

    /// The expressions of a term with these fields, required and preferred, of affinity and of anti-affinity.
    #[track_caller]
    fn check(fields: &Value, expected: &[&str]) {
        let mut term = json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}});
        term.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let both = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]});
        let mut pod = pod(&json!({"podAffinity": both, "podAntiAffinity": both}));
        complete_pod(&mut pod);
        let once = pod.clone();
        complete_pod(&mut pod);
        assert_eq!(pod, once, "what is there already is not added");
        let affinity = pod.spec.affinity.unwrap();
        for PodAffinity { required, preferred } in [affinity.pod_affinity.unwrap(), affinity.pod_anti_affinity.unwrap()] {
            for term in [&required[0], &preferred[0].pod_affinity_term] {
                let all = term.label_selector.iter().flat_map(|selector| &selector.match_expressions);
                let all: Vec<String> = all.map(|one| format!("{} {} {}", one.key, one.operator, one.values.join(","))).collect();
                assert_eq!(all, expected);
            }
        }
    }

    #[test]
    fn own_labels_that_an_affinity_compares_join_its_selector() {
        check(&json!({}), &[]);
        check(&json!({"matchLabelKeys": ["v"]}), &["v In 1"]);
        check(&json!({"mismatchLabelKeys": ["v"]}), &["v NotIn 1"]);
        check(&json!({"matchLabelKeys": ["v", "absent"], "mismatchLabelKeys": ["app"]}), &["v In 1", "app NotIn web"]);
        check(&json!({"matchLabelKeys": ["v"], "labelSelector": null}), &[]);
        let merged = json!({"matchExpressions": [{"key": "v", "operator": "In", "values": ["0"]}]});
        check(&json!({"matchLabelKeys": ["v"], "labelSelector": merged}), &["v In 0"]);
    }
}
