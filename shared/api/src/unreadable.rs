//! Existing objects that our types cannot parse, with their metadata.

use crate::k8s::{Kind, Node, Pod, PodSpec, PodStatus};
use crate::karpenter::NodeClaim;
use crate::meta::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// An existing object that cannot be parsed. Decisions do not affect its machine or pods: nothing is terminated because of it,
/// and nothing is launched twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Unreadable {
    pub api_version: String,
    /// The kind that was requested, such as `NodePool`, or `Provisioner` for an old object.
    pub kind: String,
    /// Parsed field by field, as far as possible.
    pub metadata: ObjectMeta,
    /// `spec.providerID` of a Node, `status.providerID` of a NodeClaim; empty if unknown.
    pub provider_id: String,
    /// `spec.nodeName` of a pod or a volume attachment, `status.nodeName` of a NodeClaim, the name of a Node.
    pub node_name: String,
    /// The field that cannot be parsed.
    pub field: String,
    pub problem: String,
    /// A pod, parsed field by field: enough to drain it and to see that it occupies its node, not to plan for it.
    pub pod: Option<Box<Pod>>,
}

impl Unreadable {
    /// Parses an object, or keeps its identifying fields.
    ///
    /// # Errors
    /// The object cannot be parsed.
    pub fn read<K: Kind + DeserializeOwned>(object: &Value) -> Result<K, Box<Self>> {
        serde_path_to_error::deserialize(object).map_err(|error| {
            let (field, problem) = (error.path().to_string(), error.inner().to_string());
            Box::new(Self::of::<K>(object, field, problem))
        })
    }

    /// The identifying fields of an unreadable `object` of a kind.
    pub fn of<K: Kind>(object: &Value, field: impl Into<String>, problem: impl Into<String>) -> Self {
        let (api_version, kind) = (K::API_VERSION.to_owned(), K::KIND.to_owned());
        let metadata = metadata(&object["metadata"]);
        let (spec, status) = (&object["spec"], &object["status"]);
        let pod = (K::KIND == Pod::KIND).then(|| Box::new(outline(object, &metadata)));
        let provider_id = if K::KIND == NodeClaim::KIND { text(status, "providerID") } else { text(spec, "providerID") };
        let node_name = match K::KIND {
            kind if kind == Node::KIND => metadata.name.clone(),
            kind if kind == NodeClaim::KIND => text(status, "nodeName"),
            _ => text(spec, "nodeName"),
        };
        Self { api_version, kind, metadata, provider_id, node_name, field: field.into(), problem: problem.into(), pod }
    }

    /// The same for an object that was parsed and is invalid.
    pub fn refused(api_version: &str, kind: &str, metadata: ObjectMeta, field: impl Into<String>, problem: impl Into<String>) -> Self {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        Self { api_version, kind, metadata, field: field.into(), problem: problem.into(), ..Self::default() }
    }

    /// The problem and its remedy.
    pub fn remedy(&self) -> String {
        let field = if self.field.is_empty() || self.field == "." { String::new() } else { format!("{}: ", self.field) };
        format!("{field}{}; change the field, or deploy a version of Whittle that knows it", self.problem)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} cannot be read", self.kind, self.metadata.key())
    }
}

fn text(of: &Value, key: &str) -> String {
    of[key].as_str().unwrap_or_default().to_owned()
}

fn parsed<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// The elements of a list that can be parsed.
fn each<T: DeserializeOwned>(list: &Value) -> Vec<T> {
    list.as_array().into_iter().flatten().filter_map(parsed).collect()
}

/// The entries of a map that are strings.
fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn metadata(meta: &Value) -> ObjectMeta {
    ObjectMeta {
        name: text(meta, "name"),
        generate_name: text(meta, "generateName"),
        namespace: text(meta, "namespace"),
        uid: text(meta, "uid"),
        resource_version: text(meta, "resourceVersion"),
        generation: meta["generation"].as_i64(),
        creation_timestamp: parsed(&meta["creationTimestamp"]),
        deletion_timestamp: parsed(&meta["deletionTimestamp"]),
        deletion_grace_period_seconds: meta["deletionGracePeriodSeconds"].as_i64(),
        labels: texts(&meta["labels"]).into(),
        annotations: texts(&meta["annotations"]).into(),
        owner_references: each(&meta["ownerReferences"]).into(),
        finalizers: each(&meta["finalizers"]),
    }
}

fn outline(object: &Value, metadata: &ObjectMeta) -> Pod {
    let (spec, status) = (&object["spec"], &object["status"]);
    Pod {
        metadata: metadata.clone(),
        spec: PodSpec {
            node_name: text(spec, "nodeName"),
            tolerations: each(&spec["tolerations"]).into(),
            containers: each(&spec["containers"]).into(),
            init_containers: each(&spec["initContainers"]).into(),
            volumes: each(&spec["volumes"]),
            priority_class_name: text(spec, "priorityClassName"),
            termination_grace_period_seconds: spec["terminationGracePeriodSeconds"].as_i64(),
            ..PodSpec::default()
        },
        status: PodStatus { phase: text(status, "phase"), start_time: parsed(&status["startTime"]), ..PodStatus::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::karpenter::NodePool;
    use serde_json::json;

    #[test]
    fn an_unreadable_object_keeps_its_identifying_fields() {
        let claim = json!({
            "metadata": {"name": "a", "uid": "u", "labels": [], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f", 3]},
            "spec": {"requirements": 7},
            "status": {"providerID": "aws:///z/i-1", "nodeName": "n"},
        });
        let odd = *Unreadable::read::<NodeClaim>(&claim).unwrap_err();
        assert_eq!(odd.field, "metadata.finalizers[1]");
        assert!(odd.remedy().starts_with("metadata.finalizers[1]: invalid type"), "{}", odd.remedy());
        assert_eq!((odd.kind.as_str(), odd.metadata.name.as_str(), odd.metadata.uid.as_str()), ("NodeClaim", "a", "u"));
        assert_eq!((odd.provider_id.as_str(), odd.node_name.as_str()), ("aws:///z/i-1", "n"));
        assert!(odd.metadata.is_deleting());
        assert_eq!(odd.metadata.finalizers, ["f"]);
        let node = json!({"metadata": {"name": "n"}, "spec": {"providerID": "aws:///z/i-2"}});
        let odd = Unreadable::of::<Node>(&node, "", "");
        assert_eq!((odd.provider_id.as_str(), odd.node_name.as_str()), ("aws:///z/i-2", "n"));
        assert_eq!(Unreadable::of::<NodePool>(&json!("nonsense"), "", "").metadata, ObjectMeta::default());
    }

    #[test]
    fn an_unreadable_pod_keeps_the_fields_that_draining_needs() {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": true}]},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 45, "containers": 1, "tolerations": [{"operator": "Exists"}, 4]},
            "status": {"phase": "Running"},
        });
        let odd = Unreadable::of::<Pod>(&pod, "spec.containers", "invalid type");
        let outline = odd.pod.expect("a pod");
        assert_eq!(outline.spec.termination_grace_period_seconds, Some(45));
        assert_eq!(outline.spec.tolerations.len(), 1);
        assert!(outline.is_bound() && outline.is_daemon() && !outline.is_terminal());
        assert_eq!(odd.node_name, "n");
    }
}
