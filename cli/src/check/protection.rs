//! Annotations that are meant to keep pods and nodes from being disrupted, and do not (disruption 3.5).

use crate::source::protections;
use jiff::Timestamp;
use whittle_api::k8s::Pod;
use whittle_api::manifest::Object;
use whittle_api::{ObjectMeta, labels};
use whittle_disruption::Protection;

const KEY: &str = labels::DO_NOT_DISRUPT;

/// What is wrong with the protection of a pod, or of those of a template at this place.
pub(super) fn of_pods(at: &str, metadata: &ObjectMeta) -> Option<String> {
    let pod = Pod { metadata: metadata.clone(), ..Pod::default() };
    if let Some(fault) = protections::fault(&pod, Timestamp::UNIX_EPOCH) {
        return Some(format!("{at}{fault}"));
    }
    let is_unprotected = whittle_disruption::protection(&pod, Timestamp::UNIX_EPOCH) == Protection::None;
    let is_label = is_unprotected && metadata.label(KEY).is_some_and(|value| value != "false");
    is_label.then(|| format!("{at}metadata.labels: {KEY} protects nothing as a label: make it an annotation"))
}

/// What is wrong with the annotation of a node, or of those of a template at this place, which durations do not protect.
pub(super) fn of_nodes(at: &str, annotation: Option<&str>) -> Option<String> {
    let value = annotation.filter(|value| !["true", "false"].contains(value))?;
    Some(format!("{at}metadata.annotations: {KEY} with the value {value:?} protects nothing: write \"true\""))
}

/// An annotation of a workload that its pods lack. What a Deployment has its controller writes on ReplicaSets, too.
pub(super) fn misplaced(object: &Object, template: &ObjectMeta) -> Option<String> {
    let own = match object {
        Object::Deployment(object) => &object.metadata,
        Object::ReplicaSet(object) => &object.metadata,
        Object::StatefulSet(object) => &object.metadata,
        Object::DaemonSet(object) => &object.metadata,
        Object::ReplicationController(object) => &object.metadata,
        Object::Job(object) => &object.metadata,
        _ => return None,
    };
    let is_meant = own.annotation(KEY).is_some_and(|value| value != "false") && own.controller().is_none();
    let is_missing = [KEY, labels::DO_NOT_EVICT].iter().all(|key| template.annotation(key).is_none());
    (is_meant && is_missing)
        .then(|| format!("metadata.annotations: {KEY} protects none of its pods here: write it in spec.template.metadata.annotations"))
}
