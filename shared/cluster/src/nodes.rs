//! Changes of Nodes.

use crate::connection::{ApiRequest, Clusters};
use crate::errors::Class;
use crate::metadata::MetadataOnly;
use crate::path;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use whittle_api::OwnerReference;
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::NodeClaim;
use whittle_ports::{ClusterAccess, ClusterError, NodePatch, Nodes};
use whittle_units::ClusterName;

fn what(name: &str) -> String {
    format!("Node {name:?}")
}

/// Whether a patch is not meant for the Node as it is.
fn is_left_alone(node: &Node, patch: &NodePatch) -> bool {
    let is_another = !patch.uid.is_empty() && node.metadata.uid != patch.uid;
    is_another || patch.unless_deleting && node.metadata.is_deleting()
}

/// The merge patch that applies `patch` to `node`; `None` when nothing changes. A merge patch replaces lists as a
/// whole, so it is bound to the node's resource version.
fn merge_patch(node: &Node, patch: &NodePatch, owner: Option<&OwnerReference>) -> Option<Value> {
    let mut metadata = Map::new();
    let changed = |wanted: &BTreeMap<String, String>, has: &BTreeMap<String, String>| {
        let differs = |(key, value): &(&String, &String)| has.get(*key) != Some(*value);
        wanted.iter().filter(differs).map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>()
    };
    let mut labels = changed(&patch.labels, &node.metadata.labels);
    for key in patch.remove_labels.iter().filter(|key| node.metadata.labels.contains_key(*key)) {
        labels.insert(key.clone(), Value::Null);
    }
    let mut annotations = changed(&patch.annotations, &node.metadata.annotations);
    for key in patch.remove_annotations.iter().filter(|key| node.metadata.annotations.contains_key(*key)) {
        annotations.insert(key.clone(), Value::Null);
    }
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), labels.into());
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations.into());
    }

    let mut finalizers: Vec<&String> =
        node.metadata.finalizers.iter().filter(|held| Some(*held) != patch.remove_finalizer.as_ref()).collect();
    // The API server refuses a new finalizer on an object that is being deleted.
    finalizers
        .extend(patch.add_finalizer.iter().filter(|wanted| !node.metadata.finalizers.contains(wanted) && !node.metadata.is_deleting()));
    if finalizers != node.metadata.finalizers.iter().collect::<Vec<_>>() {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }

    let kept = node.metadata.owner_references.iter().filter(|owner| !patch.disown || owner.kind != NodeClaim::KIND);
    let mut owners: Vec<&OwnerReference> = kept.collect();
    owners.extend(owner.filter(|owner| node.metadata.owner_references.iter().all(|has| has.uid != owner.uid)));
    if owners != node.metadata.owner_references.iter().collect::<Vec<_>>() {
        metadata.insert("ownerReferences".to_owned(), json!(owners));
    }

    let mut taints: Vec<_> =
        node.spec.taints.iter().filter(|taint| !patch.remove_taints.iter().any(|removed| removed.same(taint))).collect();
    for taint in &patch.add_taints {
        if !taints.iter().any(|has| has.same(taint)) {
            taints.push(taint);
        }
    }
    let mut root = Map::new();
    if taints != node.spec.taints.iter().collect::<Vec<_>>() {
        root.insert("spec".to_owned(), json!({ "taints": taints }));
    }
    if !metadata.is_empty() {
        root.insert("metadata".to_owned(), metadata.into());
    }
    (!root.is_empty()).then(|| root.into())
}

/// The merge patch of labels and annotations alone, which needs no look at the Node: those of others stay, and with a uid the API server
/// refuses it for another Node. `None` if lists change too.
fn entries(patch: &NodePatch) -> Option<Value> {
    let NodePatch { uid, labels, remove_labels, annotations, remove_annotations, .. } = patch;
    let lists = NodePatch {
        uid: String::new(),
        labels: BTreeMap::default(),
        remove_labels: Vec::new(),
        annotations: BTreeMap::default(),
        remove_annotations: Vec::new(),
        ..patch.clone()
    };
    let object = |set: &BTreeMap<String, String>, removed: &[String]| {
        let set = set.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
        set.chain(removed.iter().map(|key| (key.clone(), Value::Null))).collect::<Map<_, _>>()
    };
    if lists != NodePatch::default() {
        return None;
    }
    let mut metadata = json!({ "labels": object(labels, remove_labels), "annotations": object(annotations, remove_annotations) });
    if !uid.is_empty() {
        metadata["uid"] = json!(uid);
    }
    Some(json!({ "metadata": metadata }))
}

impl<A: ClusterAccess> Clusters<A> {
    /// The owner with the uid that the API server gave it; `None` when it does not exist. A reference with
    /// another uid would make the garbage collector delete the Node.
    async fn owner_as_stored(&self, cluster: &ClusterName, owner: &OwnerReference) -> Result<Option<OwnerReference>, ClusterError> {
        if owner.kind != NodeClaim::KIND {
            return Ok(Some(owner.clone()));
        }
        match self.send::<MetadataOnly>(cluster, &ApiRequest::get(path::object::<NodeClaim>("", &owner.name))).await {
            Ok(claim) => Ok(Some(OwnerReference { uid: claim.metadata.uid, ..owner.clone() })),
            Err(failed) if failed.class() == Some(Class::NotFound) => Ok(None),
            Err(failed) => Err(failed.into_error(cluster, &format!("NodeClaim {:?}", owner.name))),
        }
    }
}

impl<A: ClusterAccess> Clusters<A> {
    /// Patches a Node as it is, again if it changes meanwhile.
    async fn patch_newest(
        &self,
        cluster: &ClusterName,
        name: &str,
        patch: &NodePatch,
        owner: Option<&OwnerReference>,
    ) -> Result<(), ClusterError> {
        let is_left = AtomicBool::new(false);
        let change = |node: &Node| {
            if is_left_alone(node, patch) {
                is_left.store(true, Ordering::Relaxed);
                return None;
            }
            Some((node.metadata.resource_version.clone(), merge_patch(node, patch, owner)?))
        };
        let exists = self.patch_metadata(cluster, &path::object::<Node>("", name), &what(name), change).await?;
        match (exists, is_left.into_inner()) {
            (false, _) => Err(ClusterError::NotFound { what: what(name) }),
            (true, true) => Err(ClusterError::Conflict { what: what(name) }),
            (true, false) => Ok(()),
        }
    }
}

impl<A: ClusterAccess> Nodes for Clusters<A> {
    async fn patch_node(&self, cluster: &ClusterName, name: &str, resource_version: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        let path = path::object::<Node>("", name);
        let owner = match &patch.owner {
            Some(owner) => self.owner_as_stored(cluster, owner).await?,
            None => None,
        };
        if let Some(merge) = entries(patch).filter(|_| resource_version.is_empty()) {
            let patched = self.send::<Value>(cluster, &ApiRequest::merge(path, &merge)).await;
            return patched.map(|_| ()).map_err(|failed| failed.into_error(cluster, &what(name)));
        }
        if resource_version.is_empty() {
            return self.patch_newest(cluster, name, patch, owner.as_ref()).await;
        }
        let node: Node =
            self.send(cluster, &ApiRequest::get(path.clone())).await.map_err(|failed| failed.into_error(cluster, &what(name)))?;
        if node.metadata.resource_version != resource_version || is_left_alone(&node, patch) {
            return Err(ClusterError::Conflict { what: what(name) });
        }
        let Some(mut merge) = merge_patch(&node, patch, owner.as_ref()) else { return Ok(()) };
        merge["metadata"]["resourceVersion"] = Value::from(resource_version);
        match self.send::<Value>(cluster, &ApiRequest::merge(path, &merge)).await {
            Ok(_) => Ok(()),
            Err(failed) => Err(failed.into_error(cluster, &what(name))),
        }
    }

    async fn delete_node(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.delete_of_uid(cluster, path::object::<Node>("", name), &what(name), uid).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::ObjectMeta;
    use whittle_api::k8s::{NodeSpec, Taint, TaintEffect};

    fn node() -> Node {
        let metadata = ObjectMeta {
            labels: [("a".to_owned(), "1".to_owned()), ("gone".to_owned(), "1".to_owned())].into(),
            annotations: [("old".to_owned(), "x".to_owned())].into(),
            finalizers: vec!["other/finalizer".to_owned()],
            ..ObjectMeta::named("n")
        };
        let taints = vec![Taint::new("boot", TaintEffect::NoExecute), Taint::new("keep", TaintEffect::NoSchedule)];
        Node { metadata, spec: NodeSpec { taints, ..NodeSpec::default() }, ..Node::default() }
    }

    #[track_caller]
    fn check(patch: &NodePatch, expected: Value) {
        assert_eq!(merge_patch(&node(), patch, patch.owner.as_ref()).unwrap_or(Value::Null), expected);
    }

    #[test]
    fn a_patch_that_changes_nothing_is_none() {
        check(&NodePatch::default(), Value::Null);
        let patch = NodePatch {
            labels: [("a".to_owned(), "1".to_owned())].into(),
            remove_annotations: vec!["absent".to_owned()],
            add_taints: vec![Taint::new("keep", TaintEffect::NoSchedule)],
            remove_taints: vec![Taint::new("keep", TaintEffect::NoExecute)],
            add_finalizer: Some("other/finalizer".to_owned()),
            remove_finalizer: Some("absent/finalizer".to_owned()),
            ..NodePatch::default()
        };
        check(&patch, Value::Null);
    }

    #[test]
    fn labels_and_annotations_alone_need_no_look() {
        let labelled = NodePatch {
            labels: [("a".to_owned(), "2".to_owned())].into(),
            remove_annotations: vec!["old".to_owned()],
            ..NodePatch::default()
        };
        assert_eq!(entries(&labelled), Some(json!({ "metadata": { "labels": { "a": "2" }, "annotations": { "old": null } } })));
        let of_uid = entries(&NodePatch { uid: "u".to_owned(), ..labelled.clone() });
        assert_eq!(of_uid, Some(json!({ "metadata": { "uid": "u", "labels": { "a": "2" }, "annotations": { "old": null } } })));
        let with_more = [
            NodePatch { unless_deleting: true, ..labelled.clone() },
            NodePatch { add_taints: vec![Taint::new("t", TaintEffect::NoSchedule)], ..labelled.clone() },
            NodePatch { remove_finalizer: Some("f".to_owned()), ..labelled.clone() },
            NodePatch { disown: true, ..labelled },
        ];
        assert!(with_more.iter().all(|patch| entries(patch).is_none()));
    }

    #[test]
    fn entries_of_other_controllers_are_kept_in_lists() {
        let owner = OwnerReference {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodeClaim".to_owned(),
            name: "c".to_owned(),
            uid: "u".to_owned(),
            ..OwnerReference::default()
        };
        let patch = NodePatch {
            labels: [("a".to_owned(), "2".to_owned())].into(),
            remove_labels: vec!["gone".to_owned(), "never-there".to_owned()],
            remove_annotations: vec!["old".to_owned()],
            add_taints: vec![Taint::new("new", TaintEffect::NoSchedule)],
            remove_taints: vec![Taint::new("boot", TaintEffect::NoExecute)],
            add_finalizer: Some("ours/finalizer".to_owned()),
            owner: Some(owner),
            ..NodePatch::default()
        };
        check(
            &patch,
            json!({
                "metadata": {
                    "labels": { "a": "2", "gone": null },
                    "annotations": { "old": null },
                    "finalizers": ["other/finalizer", "ours/finalizer"],
                    "ownerReferences": [{ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "u" }],
                },
                "spec": { "taints": [{ "key": "keep", "effect": "NoSchedule" }, { "key": "new", "effect": "NoSchedule" }] },
            }),
        );
    }
}
