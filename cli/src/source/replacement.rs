//! Objects of files over those of a cluster, and changed ones over both.

use super::documents::{Document, ParsedDocuments};
use super::drift;
use super::identity::Identity;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Kind as _, PodDisruptionBudget};

/// Which objects count instead of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// Those of -f, over a cluster.
    Files,
    /// Those of --changed, over a dump or a cluster.
    Changed,
}

impl Layer {
    fn replaced(self, shown: &str) -> String {
        match self {
            Self::Files => format!("{shown} is that of the files, instead of the cluster's"),
            Self::Changed => format!("{shown} is that of --changed"),
        }
    }

    const fn below(self) -> &'static str {
        match self {
            Self::Files => "in the cluster",
            Self::Changed => "before the change",
        }
    }
}

/// Puts the objects of a cluster beside those of files, but for those that the files have too. Returns notes.
///
/// What `kubectl apply` leaves alone an object of a file has from the cluster: its status, its identity, and annotations that the file does
/// not name.
pub(super) fn replace(mut cluster: ParsedDocuments, files: &mut ParsedDocuments, layer: Layer) -> Vec<String> {
    let mut given: BTreeMap<Identity, Option<&mut Document>> = BTreeMap::new();
    given.extend(files.legacy.iter().filter_map(|document| Some((document.identity()?, None))));
    for document in &mut files.documents {
        if let Some(identity) = document.identity() {
            given.insert(identity, Some(document));
        }
    }
    let mut new: BTreeSet<Identity> = given.keys().cloned().collect();
    let (mut notes, mut classes) = (Vec::new(), Vec::new());
    cluster.documents.retain(|live| {
        let Some(identity) = live.identity() else { return true };
        let Some(file) = given.get_mut(&identity) else { return true };
        new.remove(&identity);
        notes.push(layer.replaced(&identity.shown()));
        if let Some(file) = file {
            file.before = (layer == Layer::Changed && drift::differs(live, file)).then(|| Box::new(live.value.clone()));
            notes.extend(keep_replicas(&mut file.value, &live.value).map(|kept| {
                format!(
                    "{}: the file has no spec.replicas, so that the {kept} {} stay, as with kubectl apply",
                    identity.shown(),
                    layer.below()
                )
            }));
            inherit(&mut file.value, &live.value);
            if file.kind() == "EC2NodeClass" {
                classes.push(file.name());
            }
        }
        false
    });
    cluster.legacy.retain(|live| {
        let Some(identity) = live.identity().filter(|identity| given.contains_key(identity)) else { return true };
        if new.remove(&identity) {
            notes.push(layer.replaced(&identity.shown()));
        }
        false
    });
    // A change under another name would go unnoticed.
    notes.extend(new.iter().filter(|_| layer == Layer::Changed).map(|new| format!("{} of --changed is new", new.shown())));
    notes.extend(classes.iter().map(|name| {
        format!(
            "EC2NodeClass {name}: its subnets, security groups and images are those of its status {}; only AWS knows those of the file",
            layer.below()
        )
    }));
    files.append(cluster);
    notes
}

/// Copies the live replicas of a workload into a file that has none, because applying it does not change them; except if the file that was
/// applied last had replicas. Returns them if they were copied.
fn keep_replicas(file: &mut Value, live: &Value) -> Option<u64> {
    const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
    let replicas = live.pointer("/spec/replicas").and_then(Value::as_u64)?;
    let applied = live.pointer(LAST_APPLIED).and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let spec = file.get_mut("spec").and_then(Value::as_object_mut).filter(|spec| !spec.contains_key("replicas"))?;
    if applied.is_some_and(|applied| applied.pointer("/spec/replicas").is_some()) {
        return None;
    }
    spec.insert("replicas".to_owned(), Value::from(replicas));
    Some(replicas)
}

/// Copies what a server keeps when a file is applied.
fn inherit(file: &mut Value, live: &Value) {
    let Some(object) = file.as_object_mut() else { return };
    // The status of a budget follows from its spec.
    let is_budget = live.get("kind").and_then(Value::as_str) == Some(PodDisruptionBudget::KIND);
    if let Some(status) = live.get("status").filter(|_| !is_budget) {
        object.entry("status").or_insert_with(|| status.clone());
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for field in ["uid", "creationTimestamp", "annotations", "labels"] {
        let Some(kept) = live.pointer(&format!("/metadata/{field}")) else { continue };
        match (metadata.get_mut(field), kept) {
            (Some(Value::Object(own)), Value::Object(kept)) => merge(own, kept),
            (Some(_), _) => {}
            (None, kept) => {
                metadata.insert(field.to_owned(), kept.clone());
            }
        }
    }
}

fn merge(own: &mut Map<String, Value>, kept: &Map<String, Value>) {
    for (key, value) in kept {
        own.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, live: bool) -> ParsedDocuments {
        let mut found = ParsedDocuments::default();
        if live {
            found.add_live("the cluster", serde_json::from_str(text).unwrap());
        } else {
            found.add_text("new.yaml", text);
        }
        found
    }

    #[test]
    fn a_file_counts_instead_of_the_cluster_and_keeps_what_the_server_keeps() {
        let pool = r#"{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "uid": "u-1",
            "annotations": {"a": "live", "b": "live"}}, "spec": {"weight": 1}, "status": {"nodes": 3}}"#;
        let other = pool.replace("default", "other");
        let live = of(&format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{pool}, {other}]}}"#), true);
        let text = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default, annotations: {a: file}}, spec: {weight: 2}}";
        let mut files = of(text, false);
        let notes = replace(live, &mut files, Layer::Files);
        assert_eq!(notes, ["NodePool \"default\" is that of the files, instead of the cluster's"]);
        let names: Vec<(String, bool)> = files.documents.iter().map(|one| (one.name(), one.live)).collect();
        assert_eq!(names, [("default".to_owned(), false), ("other".to_owned(), true)]);
        let merged = &files.documents[0].value;
        assert_eq!(merged["spec"]["weight"], 2);
        assert_eq!(merged["status"]["nodes"], 3);
        assert_eq!(merged["metadata"]["uid"], "u-1");
        assert_eq!(merged["metadata"]["annotations"], serde_json::json!({"a": "file", "b": "live"}));
    }

    #[test]
    fn replicas_that_the_file_does_not_name_stay_unless_they_were_applied() {
        let deployment = |annotations: &str| {
            format!(
                r#"{{"kind": "List", "apiVersion": "v1", "items": [{{"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {{"name": "web", "annotations": {annotations}}}, "spec": {{"replicas": 8}}}}]}}"#
            )
        };
        let replicas = |annotations: &str, spec: &str| {
            let mut files = of(&format!("{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {spec}}}"), false);
            let notes = replace(of(&deployment(annotations), true), &mut files, Layer::Changed);
            (files.documents[0].value["spec"]["replicas"].as_u64(), notes.len())
        };
        let last = |spec: &str| serde_json::json!({"kubectl.kubernetes.io/last-applied-configuration": spec}).to_string();
        assert_eq!(replicas("{}", "{paused: false}"), (Some(8), 2));
        assert_eq!(replicas(&last(r#"{"spec": {"paused": false}}"#), "{}"), (Some(8), 2));
        assert_eq!(replicas(&last(r#"{"spec": {"replicas": 3}}"#), "{}"), (None, 1));
        assert_eq!(replicas("{}", "{replicas: 2}"), (Some(2), 1));
    }

    #[test]
    fn a_pod_of_a_file_replaces_that_of_its_namespace_only() {
        let pod = |namespace: &str| {
            format!(r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "web", "namespace": "{namespace}"}}, "spec": {{}}}}"#)
        };
        let live = of(&format!(r#"{{"kind": "List", "apiVersion": "v1", "items": [{}, {}]}}"#, pod("default"), pod("shop")), true);
        let mut files = of("{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {}}", false);
        let notes = replace(live, &mut files, Layer::Files);
        assert_eq!(notes, ["Pod \"shop/web\" is that of the files, instead of the cluster's"]);
        assert_eq!(files.documents.len(), 2);
    }
}
