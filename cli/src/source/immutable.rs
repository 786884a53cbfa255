//! Changes of objects that a server refuses, for it keeps some fields as they were created.

use super::documents::ParsedDocuments;
use super::identity::Identity;
use serde_json::Value;
use std::collections::BTreeMap;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::validate;

/// Fields of workloads that stay as they were created.
const KEPT: [(&str, &[&str]); 5] = [
    ("Deployment", &["selector"]),
    ("ReplicaSet", &["selector"]),
    ("DaemonSet", &["selector"]),
    ("StatefulSet", &["selector", "serviceName", "podManagementPolicy"]),
    ("Job", &["selector", "completionMode"]),
];

/// Why a server does not change an object to another of the same name; nothing that is wrong with the new one by itself.
pub(crate) fn refused_change(api_version: &str, kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let workload = KEPT.iter().find(|(of, _)| *of == kind && matches!(api_version, "apps/v1" | "batch/v1"));
    if let Some((_, kept)) = workload {
        return kept.iter().filter_map(|field| changed(field, old, new)).collect();
    }
    let by_itself: Vec<String> = validate::document(api_version, kind, new).iter().map(ToString::to_string).collect();
    let of_change = validate::update(api_version, kind, old, new).into_iter().filter(|error| {
        let error = error.to_string();
        error.starts_with("spec") && !by_itself.contains(&error)
    });
    of_change.collect()
}

/// A field that both have, and differently; one that is left out is the server's to fill in.
fn changed(field: &str, old: &Value, new: &Value) -> Option<FieldError> {
    let [old, new] = [old, new].map(|object| object.get("spec")?.get(field).filter(|value| !value.is_null()));
    let message = "it stays as the object was created: delete the object and create it again";
    old.zip(new).filter(|(old, new)| old != new).map(|_| FieldError::new(FieldPath::of(&format!("spec.{field}")), message))
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
