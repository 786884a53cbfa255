//! Settings of workloads about nodes that use names of older versions (seeds 12.1, 12.8), are misspelt, or are probably not intended.

use super::protection;
use crate::source::requirements;
use whittle_api::k8s::{Kind, Node, NodeSelectorTerm, PodSpec};
use whittle_api::manifest::Object;
use whittle_api::{ObjectMeta, SelectorRequirement, labels};
use whittle_units::Quantity;

/// Remarks about an object, each of which a user should act on.
pub(super) fn remarks(object: &Object) -> Vec<String> {
    let (at, metadata, spec) = match object {
        Object::Pod(pod) => ("", &pod.metadata, Some(&pod.spec)),
        Object::Node(node) => ("", &node.metadata, None),
        Object::Deployment(object) => ("spec.template.", &object.spec.template.metadata, Some(&object.spec.template.spec)),
        Object::ReplicaSet(object) => ("spec.template.", &object.spec.template.metadata, Some(&object.spec.template.spec)),
        Object::StatefulSet(object) => ("spec.template.", &object.spec.template.metadata, Some(&object.spec.template.spec)),
        Object::DaemonSet(object) => ("spec.template.", &object.spec.template.metadata, Some(&object.spec.template.spec)),
        Object::ReplicationController(object) => ("spec.template.", &object.spec.template.metadata, Some(&object.spec.template.spec)),
        Object::Job(object) => ("spec.template.", &object.spec.template.metadata, Some(&object.spec.template.spec)),
        Object::PodTemplate(object) => ("template.", &object.template.metadata, Some(&object.template.spec)),
        _ => return Vec::new(),
    };
    let kind = object.type_meta().1;
    let of_affinity = |spec| old_nodes_only(at, spec).into_iter().chain(empty_terms(at, spec)).chain(comparisons(at, spec));
    let of_spec = spec.into_iter().flat_map(|spec| of_affinity(spec).chain(few_bytes(at, spec)).chain(misspelt_values(at, spec)));
    let unprotected = match kind {
        Node::KIND => protection::of_nodes(at, metadata.annotation(labels::DO_NOT_DISRUPT)),
        _ => protection::of_pods(at, metadata),
    };
    let misplaced = protection::misplaced(object, metadata);
    old_annotations(kind, at, metadata).into_iter().chain(unprotected).chain(misplaced).chain(of_spec).collect()
}

/// Annotations that have a new name, of which most are honoured still.
fn old_annotations(kind: &str, at: &str, metadata: &ObjectMeta) -> Vec<String> {
    let old: &[&str] = if kind == Node::KIND { &[labels::DO_NOT_CONSOLIDATE] } else { &[labels::DO_NOT_EVICT, labels::DO_NOT_CONSOLIDATE] };
    let told = |key: &&str| {
        let (value, new) = (metadata.annotation(key)?, labels::DO_NOT_DISRUPT);
        // That one was for nodes alone.
        let is_heeded = value == "true" && (kind == Node::KIND || *key != labels::DO_NOT_CONSOLIDATE);
        let effect = if is_heeded { "though it still protects from disruption" } else { "and protects nothing here" };
        Some(format!("{at}metadata.annotations: {key} is deprecated, {effect}: write {new} instead"))
    };
    old.iter().filter_map(told).collect()
}

/// A pod that avoids the nodes of Provisioners and not those of NodePools, which do not have the label that it looks at.
fn old_nodes_only(at: &str, spec: &PodSpec) -> Option<String> {
    let required = spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let avoids = |key: &str| {
        let mut terms = required.node_selector_terms.iter().map(|term| &term.match_expressions);
        terms.any(|expressions| expressions.iter().any(|each| each.key == key && each.operator == "DoesNotExist"))
    };
    (avoids(labels::PROVISIONER_NAME) && !avoids(labels::NODE_POOL)).then(|| {
        format!(
            "{at}spec.affinity.nodeAffinity: {} DoesNotExist keeps its pods off nodes of Provisioners only: add {} DoesNotExist, which nodes of \
             NodePools have",
            labels::PROVISIONER_NAME,
            labels::NODE_POOL
        )
    })
}

/// Required terms without expressions, which read like "any node" and match none.
fn empty_terms(at: &str, spec: &PodSpec) -> Option<String> {
    let required = spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let terms = &required.node_selector_terms;
    let number = terms.iter().position(NodeSelectorTerm::is_empty)?;
    let effect = if terms.iter().all(NodeSelectorTerm::is_empty) { "its pods never run" } else { "only the other terms count" };
    Some(format!(
        "{at}spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{number}]: an empty term matches no \
         node, so that {effect}: give it an expression, or remove it"
    ))
}

/// Comparisons of node affinity with what is no whole number, which an API server accepts and its scheduler cannot read.
fn comparisons(at: &str, spec: &PodSpec) -> Vec<String> {
    let Some(affinity) = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()) else { return Vec::new() };
    let required = affinity.required.iter().flat_map(|required| &required.node_selector_terms).enumerate().map(|(number, term)| {
        let field = format!("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{number}]");
        (field, term, "the term matches no node, and nothing is launched for its pods, whatever other terms say")
    });
    let preferred = affinity.preferred.iter().enumerate().map(|(number, term)| {
        let field = format!("preferredDuringSchedulingIgnoredDuringExecution[{number}].preference");
        (field, &term.preference, "the scheduler fails for its pods once there are two nodes to choose from")
    });
    let mut found = Vec::new();
    for (field, term, effect) in required.chain(preferred) {
        for (number, SelectorRequirement { operator, values, .. }) in term.match_expressions.iter().enumerate() {
            let ([value], "Gt" | "Lt") = (values.as_slice(), operator.as_str()) else { continue };
            if !is_whole_number(value) {
                found.push(format!(
                    "{at}spec.affinity.nodeAffinity.{field}.matchExpressions[{number}].values: {operator} compares whole numbers, and \
                     {value:?} is none, so that {effect}: write one in digits, such as \"4\", or list values with In"
                ));
            }
        }
    }
    found
}

/// Values of well-known labels that no node can have, and that are near to others: nothing is launched for the pods, or a preference has no
/// effect. Keys are not judged, since nodes may have labels of their own.
fn misspelt_values(at: &str, spec: &PodSpec) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in &spec.node_selector {
        found.extend(requirements::meant(key, value).map(|meant| format!("{at}spec.nodeSelector[{key}]: {meant}")));
    }
    let Some(affinity) = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()) else { return found };
    let required = affinity.required.iter().flat_map(|required| &required.node_selector_terms).enumerate();
    let required =
        required.map(|(number, term)| (format!("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{number}]"), term));
    let preferred = affinity.preferred.iter().enumerate().map(|(number, term)| {
        let field = format!("preferredDuringSchedulingIgnoredDuringExecution[{number}].preference");
        (field, &term.preference)
    });
    for (field, term) in required.chain(preferred) {
        for (number, SelectorRequirement { key, operator, values }) in term.match_expressions.iter().enumerate() {
            // What excludes a value that no node has says nothing.
            for meant in values.iter().filter(|_| operator == "In").filter_map(|value| requirements::meant(key, value)) {
                found.push(format!("{at}spec.affinity.nodeAffinity.{field}.matchExpressions[{number}].values: {meant}"));
            }
        }
    }
    found
}

/// Whether it is a number to the scheduler, and the value of a label at all, which begins with no sign.
fn is_whole_number(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit()) && value.parse::<i64>().is_ok()
}

/// Fewer bytes than anything needs.
const BYTES_MIN: Quantity = Quantity::from_units(1024);

/// Amounts of bytes that are probably mistakes: `512m` is less than one byte and `512` is 512 bytes, where `512Mi` was meant.
fn few_bytes(at: &str, spec: &PodSpec) -> Vec<String> {
    let lists = [("containers", &spec.containers), ("initContainers", &spec.init_containers)];
    let containers = lists.into_iter().flat_map(|(field, list)| list.iter().enumerate().map(move |(number, one)| (field, number, one)));
    let mut found = Vec::new();
    for (field, number, container) in containers {
        let Some(resources) = &container.resources else { continue };
        for (part, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
            for (name, amount) in amounts.iter().filter(|(name, _)| ["memory", "ephemeral-storage"].contains(name)) {
                // The largest amount stands for everything above it.
                let wrong = if amount < Quantity::MAX && amount.milli() % 1000 != 0 {
                    Some("is part of a byte, as m stands for thousandths: write a whole number, such as 512Mi")
                } else {
                    let few = !amount.is_zero() && amount < BYTES_MIN;
                    few.then_some("is less than 1Ki, as a number without a suffix counts bytes: write it with one, such as 512Mi")
                };
                let told = |wrong: &str| format!("{at}spec.{field}[{number}].resources.{part}.{name}: {} {wrong}", amount.text_of(name));
                found.extend(wrong.map(told));
            }
        }
    }
    found
}
