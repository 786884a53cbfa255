//! Changes of objects that a server refuses, for it keeps some fields as they were created.

use super::documents::ParsedDocuments;
use super::identity::Identity;
use serde_json::Value;
use std::collections::BTreeMap;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::{Kind as _, Pod};
use whittle_api::validate;
use whittle_units::Quantity;

/// Fields of Kubernetes' kinds that stay as they were created, as JSON pointers.
const KEPT: [(&str, &str, &[&str]); 8] = [
    ("apps/v1", "Deployment", &["/spec/selector"]),
    ("apps/v1", "ReplicaSet", &["/spec/selector"]),
    ("apps/v1", "DaemonSet", &["/spec/selector"]),
    ("apps/v1", "StatefulSet", &["/spec/selector", "/spec/serviceName", "/spec/podManagementPolicy", "/spec/volumeClaimTemplates"]),
    ("batch/v1", "Job", &["/spec/selector", "/spec/completionMode", "/spec/completions", "/spec/template"]),
    ("v1", "PersistentVolumeClaim", &["/spec/storageClassName", "/spec/accessModes"]),
    ("storage.k8s.io/v1", "StorageClass", &["/provisioner", "/parameters", "/reclaimPolicy", "/volumeBindingMode"]),
    ("scheduling.k8s.io/v1", "PriorityClass", &["/value"]),
];

/// What a server fills in of them where a file says nothing, as JSON pointers; `None` if that depends on others.
const DEFAULTS: [(&str, Option<&str>); 6] = [
    ("/spec/podManagementPolicy", Some("OrderedReady")),
    ("/spec/completionMode", Some("NonIndexed")),
    ("/spec/completions", None),
    ("/spec/storageClassName", None),
    ("/reclaimPolicy", Some("Delete")),
    ("/volumeBindingMode", Some("Immediate")),
];

/// Those of which a server fills in parts.
const FILLED_IN: [&str; 2] = ["/spec/template", "/spec/volumeClaimTemplates"];

/// Why a server does not change an object to another of the same name; nothing that is wrong with the new one by itself.
pub(crate) fn refused_change(api_version: &str, kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    if let Some((.., kept)) = KEPT.iter().find(|(version, name, _)| *name == kind && *version == api_version) {
        return kept.iter().filter_map(|field| changed(field, old, new)).collect();
    }
    let by_itself: Vec<String> = validate::document(api_version, kind, new).iter().map(ToString::to_string).collect();
    let of_change = validate::update(api_version, kind, old, new).into_iter().filter(|error| {
        let error = error.to_string();
        error.starts_with("spec") && !by_itself.contains(&error)
    });
    of_change.collect()
}

/// A field that the new object has otherwise than the old one, or besides it.
fn changed(field: &str, old: &Value, new: &Value) -> Option<FieldError> {
    let new = new.pointer(field).filter(|value| !value.is_null())?;
    let message = "it stays as the object was created: delete the object and create it again";
    let is_kept = match old.pointer(field).filter(|value| !value.is_null()) {
        Some(old) => keeps(old, new) && (FILLED_IN.contains(&field) || keeps(new, old)),
        None => DEFAULTS.iter().any(|(of, default)| *of == field && default.is_none_or(|default| new == default)),
    };
    (!is_kept).then(|| FieldError::new(FieldPath::of(&field[1..].replace('/', ".")), message))
}

/// Whether the old value has all that the new one says: what this leaves out is the server's to fill in.
fn keeps(old: &Value, new: &Value) -> bool {
    let quantity = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).parse::<Quantity>().ok();
    match (old, new) {
        (_, Value::Null) => true,
        (Value::Object(old), Value::Object(new)) => new.iter().all(|(key, new)| keeps(old.get(key).unwrap_or(&Value::Null), new)),
        (Value::Array(old), Value::Array(new)) => old.len() == new.len() && old.iter().zip(new).all(|(old, new)| keeps(old, new)),
        (Value::Null, Value::Object(new)) => new.is_empty(),
        (Value::Null, Value::Array(new)) => new.is_empty(),
        (old, new) => old == new || quantity(old).is_some_and(|old| Some(old) == quantity(new)),
    }
}

/// Takes away the documents of --changed that would change what stays as it was created: applied, they would change nothing. Returns notes.
pub(super) fn set_aside(unchanged: &ParsedDocuments, over: &mut ParsedDocuments) -> Vec<String> {
    let before: BTreeMap<Identity, &Value> =
        unchanged.documents.iter().filter_map(|document| Some((document.identity()?, &document.value))).collect();
    let mut notes = Vec::new();
    let refused = &mut over.refused;
    over.documents.retain(|document| {
        let Some(identity) = document.identity() else { return true };
        let Some(old) = before.get(&identity) else { return true };
        if document.kind() == Pod::KIND && !old.get("spec").zip(document.value.get("spec")).is_none_or(|(old, new)| keeps(old, new)) {
            notes.push(format!("{}: a server changes little of a pod; it counts as deleted and created again", identity.shown()));
        }
        let errors = refused_change(document.version(), document.kind(), old, &document.value);
        if !errors.is_empty() {
            notes.push(format!("{} of --changed is refused, and changes nothing", identity.shown()));
        }
        refused.extend(errors.iter().map(|error| format!("{}, {}, {error}", document.place(), identity.shown())));
        errors.is_empty()
    });
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_fills_in_is_no_change() {
        let live = r#"{"completions": 3, "template": {"metadata": {"labels": {"job-name": "a"}}, "spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "imagePullPolicy": "Always", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}}"#;
        let file = r#"{"parallelism": 9, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": 1, "memory": "1024Mi"}}}]}}}"#;
        assert!(of_change("batch/v1", "Job", live, file).is_empty());
        let larger =
            of_change("batch/v1", "Job", live, &file.replace("1024Mi", "2Gi").replace("\"parallelism\": 9", "\"completions\": 30"));
        assert!(larger.len() == 2 && larger[0].starts_with("spec.completions: ") && larger[1].starts_with("spec.template: "), "{larger:?}");
        let claims = r#"{"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}"#;
        assert!(of_change("apps/v1", "StatefulSet", "{}", claims)[0].starts_with("spec.volumeClaimTemplates: "));
        assert!(of_change("apps/v1", "StatefulSet", claims, "{}").is_empty());
        let policy = |policy: &str| of_change("apps/v1", "StatefulSet", "{}", &format!(r#"{{"podManagementPolicy": "{policy}"}}"#)).len();
        assert_eq!((policy("OrderedReady"), policy("Parallel")), (0, 1), "what it is by default is no change");
    }

    fn of_change(api_version: &str, kind: &str, old: &str, new: &str) -> Vec<String> {
        let [old, new] =
            [old, new].map(|spec| serde_json::from_str(&format!(r#"{{"metadata": {{"name": "a"}}, "spec": {spec}}}"#)).unwrap());
        refused_change(api_version, kind, &old, &new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_selector_stays_and_replicas_may_change() {
        let old = r#"{"replicas": 1, "selector": {"matchLabels": {"app": "web"}}}"#;
        assert!(of_change("apps/v1", "Deployment", old, &old.replace('1', "20")).is_empty());
        assert!(of_change("apps/v1", "Deployment", old, r#"{"replicas": 2}"#).is_empty());
        let other = of_change("apps/v1", "Deployment", old, &old.replace("web", "shop"));
        let narrower = old.replace("\"web\"}", "\"web\", \"tier\": \"a\"}");
        assert_eq!(of_change("apps/v1", "Deployment", &narrower, old), other, "a part of a selector is another one");
        assert_eq!(other, ["spec.selector: it stays as the object was created: delete the object and create it again"]);
    }

    #[test]
    fn a_node_pool_stays_static_or_not() {
        let class = r#""template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"},
            "requirements": []}}"#;
        let (old, new) = (format!("{{{class}}}"), format!("{{{class}, \"replicas\": 2}}"));
        let errors = of_change("karpenter.sh/v1", "NodePool", &old, &new);
        assert!(errors.len() == 1 && errors[0].starts_with("spec"), "{errors:?}");
        assert!(of_change("karpenter.sh/v1", "NodePool", &old, &format!("{{{class}, \"weight\": 2}}")).is_empty());
    }
}
