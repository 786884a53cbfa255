//! Fields of Kubernetes' own kinds that are misspelt: kubectl refuses them, and to read over them would change what is meant.
//!
//! Of these kinds only some fields are read here, and newer versions of Kubernetes have further ones. So a field is refused only where it
//! is nearly one that is read.

use crate::field::{FieldError, FieldPath, Stage};
use serde_json::{Map, Value};

/// The most letters that a long word may differ in, and the letters of a long word.
const TYPING_ERRORS: usize = 2;
const LONG: usize = 6;

const RESOURCES: &[&str] = &["requests", "limits", "claims"];
const SELECTOR: &[&str] = &["matchLabels", "matchExpressions"];
const EXPRESSION: &[&str] = &["key", "operator", "values"];
const WORKLOAD: &[&str] = &["replicas", "selector", "template"];
const STATEFUL_SET: &[&str] = &["replicas", "selector", "template", "volumeClaimTemplates"];
const JOB: &[&str] = &["parallelism", "completions", "suspend", "selector", "template"];
const SCHEDULING: &[&str] = &["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"];
const AFFINITY: &[&str] = &["nodeAffinity", "podAffinity", "podAntiAffinity"];
const TOLERATION: &[&str] = &["key", "operator", "value", "effect", "tolerationSeconds"];
const CONTAINER: &[&str] = &["name", "image", "resources", "ports", "restartPolicy"];
const SPREAD: &[&str] = &[
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "labelSelector",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "matchLabelKeys",
];
const POD_TERM: &[&str] = &[
    "topologyKey",
    "labelSelector",
    "namespaces",
    "namespaceSelector",
    "matchLabelKeys",
    "mismatchLabelKeys",
    "weight",
    "podAffinityTerm",
];
const POD: &[&str] = &[
    "nodeName",
    "schedulerName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "containers",
    "initContainers",
    "resources",
    "overhead",
    "volumes",
    "hostNetwork",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "runtimeClassName",
    "terminationGracePeriodSeconds",
    "schedulingGates",
    "resourceClaims",
    "restartPolicy",
];

/// Fields that are near one that is read, and right.
const OTHERS: &[&str] = &["hostname", "hostnameOverride", "volumeMounts", "volumeDevices"];

/// The misspelt fields of an object of one of Kubernetes' kinds, as it was written.
pub fn misspelt(kind: &str, value: &Value) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let spec = FieldPath::of("spec");
    let template = |at: &Value, path: &FieldPath, faults: &mut Vec<FieldError>| {
        fields(at, &["metadata", "spec"], path, faults);
        pod(&at["spec"], &path.key("spec"), faults);
    };
    match kind {
        "Pod" => pod(&value["spec"], &spec, &mut faults),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "ReplicationController" | "Job" => {
            let written = &value["spec"];
            let known = match kind {
                "Job" => JOB,
                "StatefulSet" => STATEFUL_SET,
                _ => WORKLOAD,
            };
            fields(written, known, &spec, &mut faults);
            if kind != "ReplicationController" {
                selector(&written["selector"], &spec.key("selector"), &mut faults);
            }
            template(&written["template"], &spec.key("template"), &mut faults);
        }
        "PodTemplate" => template(&value["template"], &FieldPath::of("template"), &mut faults),
        "PodDisruptionBudget" => {
            let known = ["selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"];
            fields(&value["spec"], &known, &spec, &mut faults);
            selector(&value["spec"]["selector"], &spec.key("selector"), &mut faults);
        }
        _ => {}
    }
    faults
}

fn pod(spec: &Value, path: &FieldPath, faults: &mut Vec<FieldError>) {
    fields(spec, POD, path, faults);
    for list in ["containers", "initContainers"] {
        each(&spec[list], &path.key(list), |container, path| {
            fields(container, CONTAINER, path, faults);
            fields(&container["resources"], RESOURCES, &path.key("resources"), faults);
        });
    }
    fields(&spec["resources"], RESOURCES, &path.key("resources"), faults);
    each(&spec["tolerations"], &path.key("tolerations"), |one, path| fields(one, TOLERATION, path, faults));
    each(&spec["topologySpreadConstraints"], &path.key("topologySpreadConstraints"), |one, path| {
        fields(one, SPREAD, path, faults);
        selector(&one["labelSelector"], &path.key("labelSelector"), faults);
    });
    affinity(&spec["affinity"], &path.key("affinity"), faults);
}

fn affinity(affinity: &Value, path: &FieldPath, faults: &mut Vec<FieldError>) {
    fields(affinity, AFFINITY, path, faults);
    let [required, preferred] = SCHEDULING else { return };
    let of_nodes = (&affinity["nodeAffinity"], path.key("nodeAffinity"));
    fields(of_nodes.0, SCHEDULING, &of_nodes.1, faults);
    let term = |term: &Value, path: &FieldPath, faults: &mut Vec<FieldError>| {
        fields(term, &["matchExpressions", "matchFields"], path, faults);
        each(&term["matchExpressions"], &path.key("matchExpressions"), |one, path| fields(one, EXPRESSION, path, faults));
    };
    let at = of_nodes.1.key(required);
    fields(&of_nodes.0[required], &["nodeSelectorTerms"], &at, faults);
    each(&of_nodes.0[required]["nodeSelectorTerms"], &at.key("nodeSelectorTerms"), |one, path| term(one, path, faults));
    each(&of_nodes.0[preferred], &of_nodes.1.key(preferred), |one, path| {
        fields(one, &["weight", "preference"], path, faults);
        term(&one["preference"], &path.key("preference"), faults);
    });
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (value, path) = (&affinity[kind], path.key(kind));
        fields(value, SCHEDULING, &path, faults);
        for scheduling in SCHEDULING {
            each(&value[scheduling], &path.key(scheduling), |one, path| {
                fields(one, POD_TERM, path, faults);
                let inner = &one["podAffinityTerm"];
                fields(inner, POD_TERM, &path.key("podAffinityTerm"), faults);
                selector(&one["labelSelector"], &path.key("labelSelector"), faults);
                selector(&inner["labelSelector"], &path.key("podAffinityTerm").key("labelSelector"), faults);
            });
        }
    }
}

fn selector(value: &Value, path: &FieldPath, faults: &mut Vec<FieldError>) {
    fields(value, SELECTOR, path, faults);
    each(&value["matchExpressions"], &path.key("matchExpressions"), |one, path| fields(one, EXPRESSION, path, faults));
}

/// Calls `with` for the elements of a list; for nothing, if it is none.
fn each(list: &Value, path: &FieldPath, mut with: impl FnMut(&Value, &FieldPath)) {
    list.as_array().into_iter().flatten().enumerate().for_each(|(at, one)| with(one, &path.index(at)));
}

/// Adds the fields of a map that are nearly one of the known ones.
fn fields(value: &Value, known: &[&str], path: &FieldPath, faults: &mut Vec<FieldError>) {
    let empty = Map::new();
    for written in value.as_object().unwrap_or(&empty).keys() {
        if known.contains(&written.as_str()) || OTHERS.contains(&written.as_str()) {
            continue;
        }
        if let Some(meant) = known.iter().find(|known| is_near(known, written)) {
            let message = format!("there is no such field, and it would not count: did you mean {meant}?");
            faults.push(FieldError::new(path.key(written), message).at(Stage::Unknown));
        }
    }
}

/// Which fields of something that lacks `apiVersion` or `kind` were probably meant as these: the end of a message, empty if none is near.
pub fn meant_as_type(written: &[&str]) -> String {
    let missing = ["apiVersion", "kind"].into_iter().filter(|known| !written.contains(known));
    let meant = missing.filter_map(|known| Some((known, *written.iter().find(|written| is_near(known, written))?)));
    meant.map(|(known, written)| format!("; there is no field {written:?}: did you mean {known}?")).collect::<Vec<_>>().concat()
}

/// Whether a word may have been meant as a known one.
fn is_near(known: &str, written: &str) -> bool {
    let most = if known.len() < LONG { 0 } else { TYPING_ERRORS.min(known.len() / LONG) };
    // What somebody wrote may be of any length.
    let is_as_long = written.len().abs_diff(known.len()) <= most;
    known.eq_ignore_ascii_case(written) || (0 < most && is_as_long && strsim::osa_distance(known, written) <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(kind: &str, spec: Value, wanted: &[(&str, &str)]) {
        let found = misspelt(kind, &json!({ "spec": spec }));
        let found: Vec<(String, String)> = found.into_iter().map(|fault| (fault.path.to_string(), fault.message)).collect();
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        for ((path, message), (field, meant)) in found.iter().zip(wanted) {
            assert!(path == field && message.ends_with(&format!("did you mean {meant}?")), "{found:?}");
        }
    }

    #[test]
    fn what_is_nearly_a_field_that_counts_is_named_with_it() {
        check(
            "Pod",
            json!({"nodeSelecter": {}, "toleration": []}),
            &[("spec.nodeSelecter", "nodeSelector"), ("spec.toleration", "tolerations")],
        );
        check("Pod", json!({"nodeselector": {}}), &[("spec.nodeselector", "nodeSelector")]);
        let container = json!({"containers": [{"name": "c", "resource": {}}, {"name": "d", "resources": {"request": {}, "limit": {}}}]});
        check(
            "Pod",
            container,
            &[
                ("spec.containers[0].resource", "resources"),
                ("spec.containers[1].resources.limit", "limits"),
                ("spec.containers[1].resources.request", "requests"),
            ],
        );
        check(
            "Deployment",
            json!({"replica": 3, "template": {"spec": {"afinity": {}}}}),
            &[("spec.replica", "replicas"), ("spec.template.spec.afinity", "affinity")],
        );
        check("StatefulSet", json!({"volumeClaimTemplate": []}), &[("spec.volumeClaimTemplate", "volumeClaimTemplates")]);
        check("StatefulSet", json!({"volumeClaimTemplates": [], "serviceName": "a", "updateStrategy": {}}), &[]);
        let spread = json!({"topologySpreadConstraints": [{"topologyKeys": "z", "labelSelector": {"matchLabel": {}}}]});
        check(
            "Pod",
            spread,
            &[
                ("spec.topologySpreadConstraints[0].topologyKeys", "topologyKey"),
                ("spec.topologySpreadConstraints[0].labelSelector.matchLabel", "matchLabels"),
            ],
        );
        let affinity = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologykey": "z"}]}}});
        let at = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologykey";
        check("Pod", affinity, &[(at, "topologyKey")]);
        check("PodDisruptionBudget", json!({"minAvailabe": 1}), &[("spec.minAvailabe", "minAvailable")]);
    }

    #[test]
    fn what_newer_versions_have_and_other_fields_are_none_of_our_business() {
        check(
            "Pod",
            json!({"hostname": "a", "subdomain": "b", "os": {}, "hostUsers": true, "somethingNew": 1, "containers": [
            {"name": "c", "image": "i", "env": [], "args": [], "volumeMounts": [], "resizePolicy": [], "restartPolicyRules": []}]}),
            &[],
        );
        check("Deployment", json!({"replicas": 1, "strategy": {}, "paused": true, "minReadySeconds": 1}), &[]);
        check("StatefulSet", json!({"serviceName": "a", "volumeClaimTemplates": [], "ordinals": {}, "updateStrategy": {}}), &[]);
        check("DaemonSet", json!({"updateStrategy": {}, "revisionHistoryLimit": 1}), &[]);
        check("Job", json!({"backoffLimit": 1, "completionMode": "Indexed", "ttlSecondsAfterFinished": 1, "manualSelector": true}), &[]);
        check("ConfigMap", json!({"replica": 1}), &[]);
        check("Pod", json!("text"), &[]);
    }

    #[test]
    fn what_is_nearly_a_version_or_a_kind_is_named_where_that_is_missing() {
        let of_version = |written: &str| format!("; there is no field {written:?}: did you mean apiVersion?");
        for written in ["appVersion", "apiversion", "apiVerison"] {
            assert_eq!(meant_as_type(&[written, "kind"]), of_version(written));
        }
        assert_eq!(meant_as_type(&["appVersion", "Kind"]), of_version("appVersion") + "; there is no field \"Kind\": did you mean kind?");
        // Those of a chart are both right.
        assert_eq!(meant_as_type(&["apiVersion", "appVersion", "version", "name"]), "");
        assert_eq!(meant_as_type(&["kind", "version", "find"]), "");
    }

    #[test]
    fn a_field_as_long_as_a_book_is_no_misspelt_one() {
        check("Pod", json!({ "nodeSelectors".repeat(80_000): {} }), &[]);
    }
}
