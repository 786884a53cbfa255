//! Events, and the status of the user's objects.

use crate::connection::{ApiRequest, Clusters, RequestError};
use crate::errors::Class;
use crate::metadata::MetadataOnly;
use crate::{json_of, path};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::hash::Hasher;
use std::sync::PoisonError;
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_api::labels;
use whittle_ports::{ClusterAccess, ClusterError, ClusterEvent, StatusWriter};
use whittle_units::{ClusterName, Fnv1a, SignedDuration, Timestamp};

/// Events of the same key within this span are published once.
const EVENT_SPAN: SignedDuration = SignedDuration::from_mins(2);
/// The API server's limit of an event's message, in bytes.
const MESSAGE_MAX: usize = 1024;
/// The reason of events about pods that a plan leaves out.
const FAILED_SCHEDULING: &str = "FailedScheduling";
/// The reason of events about nodes whose pods wait to be evicted, and how they end while nothing keeps these.
const FAILED_DRAINING: &str = "FailedDraining";
const PODS_WAIT: &str = "are waiting to be evicted";
/// The part of an event's name that is its object's.
const NAME_MAX: usize = 236;
/// The namespace of events about cluster-scoped objects, as in Kubernetes itself.
const EVENT_NAMESPACE: &str = "default";
/// Keys kept per execution environment; beyond this all are dropped, and some events may be published twice.
const PUBLISHED_MAX: usize = 10_000;

fn key(event: &ClusterEvent) -> String {
    let message = match event.reason.as_str() {
        // Why a pod is not scheduled is said anew by every plan, in the same words or in others.
        FAILED_SCHEDULING => "",
        // How many pods a drain waits for is another number each second.
        FAILED_DRAINING if event.message.ends_with(PODS_WAIT) => PODS_WAIT,
        _ => event.message.as_str(),
    };
    // Of a StatefulSet, the next pod has the same name.
    format!("{}/{}/{}/{}/{}/{message}", event.kind, event.namespace, event.name, event.uid, event.reason)
}

/// The event's name: the same for repeated events of a span, so that the API server refuses the second.
fn event_name(event: &ClusterEvent, now: Timestamp) -> String {
    let span = now.as_second().div_euclid(EVENT_SPAN.as_secs());
    let mut hash = Fnv1a::default();
    hash.write(key(event).as_bytes());
    hash.write(&span.to_be_bytes());
    // Together with the hash it is a name of at most 253 characters, of which none is a dot at its end.
    let name = event.name.get(..NAME_MAX).unwrap_or(&event.name).trim_end_matches(['.', '-']);
    format!("{name}.{:016x}", hash.finish())
}

fn truncate(message: &str) -> &str {
    let end = (0..=MESSAGE_MAX.min(message.len())).rev().find(|&end| message.is_char_boundary(end));
    &message[..end.unwrap_or(0)]
}

fn event_object(event: &ClusterEvent, namespace: &str, now: Timestamp) -> Value {
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": event_name(event, now), "namespace": namespace },
        "involvedObject": {
            "apiVersion": event.api_version,
            "kind": event.kind,
            "namespace": event.namespace,
            "name": event.name,
            "uid": event.uid,
        },
        "reason": event.reason,
        "message": truncate(&event.message),
        "type": if event.warning { "Warning" } else { "Normal" },
        "source": { "component": crate::FIELD_MANAGER },
        // The same for readers of events.k8s.io.
        "reportingComponent": crate::FIELD_MANAGER,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
    })
}

impl<A: ClusterAccess> Clusters<A> {
    /// Whether an event of this key was published recently; otherwise it is recorded as published.
    fn is_repeated(&self, cluster: &ClusterName, event: &ClusterEvent, now: Timestamp) -> bool {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (cluster.clone(), key(event));
        if published.get(&key).is_some_and(|at| now.duration_since(*at) < EVENT_SPAN) {
            return true;
        }
        if published.len() >= PUBLISHED_MAX {
            published.clear();
        }
        published.insert(key, now);
        false
    }

    /// Forgets that an event was published, so that the next run does it.
    fn forget_published(&self, cluster: &ClusterName, event: &ClusterEvent) {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).remove(&(cluster.clone(), key(event)));
    }

    async fn create_event(&self, cluster: &ClusterName, event: &ClusterEvent, now: Timestamp) -> Result<(), ClusterError> {
        let event = ClusterEvent { uid: self.uid_of(cluster, event).await, ..event.clone() };
        let namespace = if event.namespace.is_empty() { EVENT_NAMESPACE } else { &event.namespace };
        let object = event_object(&event, namespace, now);
        match self.send::<Value>(cluster, &ApiRequest::post(path::of("v1", namespace, "events"), &object)).await {
            Ok(_) => Ok(()),
            // Another execution environment was first, or the namespace is deleted or being deleted, with all that the event is about.
            Err(failed) if matches!(failed.class(), Some(Class::AlreadyExists | Class::NotFound)) || failed.is_of_deleted_namespace() => {
                Ok(())
            }
            Err(failed) => Err(failed.into_error(cluster, &format!("an event of {} {:?}", event.kind, event.name))),
        }
    }

    /// The uid of the involved object. `kubectl describe` finds events by it, so a uid that the caller does not know is looked
    /// up; if that fails, the event has none.
    async fn uid_of(&self, cluster: &ClusterName, event: &ClusterEvent) -> String {
        let path = match event.kind.as_str() {
            _ if !event.uid.is_empty() => None,
            NodeClaim::KIND => Some(path::object::<NodeClaim>("", &event.name)),
            Node::KIND => Some(path::object::<Node>("", &event.name)),
            NodePool::KIND => Some(path::object::<NodePool>("", &event.name)),
            _ => None,
        };
        let Some(path) = path else { return event.uid.clone() };
        self.send::<MetadataOnly>(cluster, &ApiRequest::get(path)).await.map(|found| found.metadata.uid).unwrap_or_default()
    }

    /// Makes `status` the status of an object, without what others left in it.
    async fn write_status<K, S>(&self, cluster: &ClusterName, object: &K, status: &S) -> Result<(), ClusterError>
    where
        K: Kind,
        S: Serialize + DeserializeOwned,
    {
        let (namespace, name) = (&object.meta().namespace, &object.meta().name);
        let path = format!("{}/status", path::object::<K>(namespace, name));
        match self.apply_status::<S>(cluster, path, status_object(object, json_of(status))).await {
            Ok(()) => Ok(()),
            // Deleted meanwhile, or an object of an old version without such a status.
            Err(failed) if failed.class() == Some(Class::NotFound) => Ok(()),
            Err(failed) => Err(failed.into_error(cluster, &format!("{} {name:?}", K::KIND))),
        }
    }

    /// Applies an object with a status of type `S`, then removes what is left over in it.
    async fn apply_status<S: Serialize + DeserializeOwned>(
        &self,
        cluster: &ClusterName,
        path: String,
        object: Value,
    ) -> Result<(), RequestError> {
        let wanted = object["status"].clone();
        let stored = self.apply_status_as_written(cluster, path.clone(), object).await?;
        self.remove_left_over::<S>(cluster, &path, &stored, &wanted).await
    }
}

/// An object that says its status alone.
fn status_object<K: Kind>(object: &K, status: Value) -> Value {
    let mut metadata = json!({ "name": object.meta().name });
    if K::NAMESPACED {
        metadata["namespace"] = json!(object.meta().namespace);
    }
    json!({ "apiVersion": K::API_VERSION, "kind": K::KIND, "metadata": metadata, "status": status })
}

/// Whether the object was converted from a Provisioner or an AWSNodeTemplate. An object of its name and kind in the cluster is
/// another one, which must not get its status. We write no status to the old kinds.
fn is_of_another_kind(object: &impl Kind) -> bool {
    matches!(object.meta().annotation(labels::CONVERTED_FROM), Some("Provisioner" | "AWSNodeTemplate"))
}

/// The merge patch that sets our hash annotations and our finalizer as in `wanted`; `None` when nothing changes.
fn class_patch(has: &Ec2NodeClass, wanted: &Ec2NodeClass) -> Option<(String, Value)> {
    let mut metadata = serde_json::Map::new();
    let ours = [labels::NODE_CLASS_HASH, labels::NODE_CLASS_HASH_VERSION];
    let differs =
        |key: &&&str| wanted.metadata.annotation(key).is_some() && wanted.metadata.annotation(key) != has.metadata.annotation(key);
    let annotations: serde_json::Map<String, Value> =
        ours.iter().filter(differs).map(|key| ((*key).to_owned(), json!(wanted.metadata.annotation(key)))).collect();
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    let is_ours = |finalizer: &&String| *finalizer == labels::NODE_CLASS_FINALIZER;
    let wants = wanted.metadata.finalizers.iter().find(is_ours);
    if wants.is_some() != has.metadata.finalizers.iter().any(|held| is_ours(&held)) && !(wants.is_some() && has.metadata.is_deleting()) {
        let finalizers: Vec<&String> = has.metadata.finalizers.iter().filter(|held| !is_ours(held)).chain(wants).collect();
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    (!metadata.is_empty()).then(|| (has.metadata.resource_version.clone(), json!({ "metadata": metadata })))
}

impl<A: ClusterAccess> StatusWriter for Clusters<A> {
    async fn publish(&self, cluster: &ClusterName, event: &ClusterEvent) -> Result<(), ClusterError> {
        let now = self.clock.now();
        if self.is_repeated(cluster, event, now) {
            return Ok(());
        }
        let created = self.create_event(cluster, event, now).await;
        if matches!(created, Err(ClusterError::Unavailable { .. } | ClusterError::Throttled { .. })) {
            self.forget_published(cluster, event);
        }
        created
    }

    async fn write_node_pool_status(&self, cluster: &ClusterName, pool: &NodePool) -> Result<(), ClusterError> {
        if is_of_another_kind(pool) {
            return Ok(());
        }
        self.write_status(cluster, pool, &pool.status).await
    }

    async fn write_node_class_status(&self, cluster: &ClusterName, class: &Ec2NodeClass) -> Result<(), ClusterError> {
        if is_of_another_kind(class) {
            return Ok(());
        }
        let name = &class.metadata.name;
        let path = path::object::<Ec2NodeClass>("", name);
        let exists = self.patch_metadata(cluster, &path, &format!("EC2NodeClass {name:?}"), |has| class_patch(has, class)).await?;
        if exists { self.write_status(cluster, class, &class.status).await } else { Ok(()) }
    }

    async fn write_node_overlay_status(&self, cluster: &ClusterName, overlay: &NodeOverlay) -> Result<(), ClusterError> {
        self.write_status(cluster, overlay, &overlay.status).await
    }

    async fn write_capacity_buffer_status(&self, cluster: &ClusterName, buffer: &CapacityBuffer) -> Result<(), ClusterError> {
        self.write_status(cluster, buffer, &buffer.status).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str) -> ClusterEvent {
        ClusterEvent {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
            warning: false,
            reason: reason.to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn a_repeated_event_has_the_same_name_for_two_minutes() {
        let at = |seconds| Timestamp::from_second(seconds).expect("in range");
        assert_eq!(event_name(&event("Evicted"), at(1200)), event_name(&event("Evicted"), at(1319)));
        assert_ne!(event_name(&event("Evicted"), at(1200)), event_name(&event("Evicted"), at(1320)));
        assert_ne!(event_name(&event("Evicted"), at(1200)), event_name(&event("Nominated"), at(1200)));
        let another = ClusterEvent { message: "for another reason".to_owned(), ..event("Evicted") };
        assert_ne!(event_name(&event("Evicted"), at(1200)), event_name(&another, at(1200)), "which is news");
        let next = ClusterEvent { uid: "u-2".to_owned(), ..event("Evicted") };
        assert_ne!(event_name(&event("Evicted"), at(1200)), event_name(&next, at(1200)), "the next pod of a StatefulSet");
        let long = ClusterEvent { name: format!("{}.tail", "a".repeat(235)), ..event("Evicted") };
        let name = event_name(&long, at(1200));
        assert!(name.len() <= 253 && !name.contains(".."), "{name}");
    }

    #[test]
    fn a_drain_says_once_in_two_minutes_that_pods_wait_and_at_once_what_keeps_them() {
        let at = Timestamp::from_second(1200).expect("in range");
        let named = |message: &str| event_name(&ClusterEvent { message: message.to_owned(), ..event("FailedDraining") }, at);
        let waiting = named("Failed to drain node, 9 pods are waiting to be evicted");
        assert_eq!(waiting, named("Failed to drain node, 8 pods are waiting to be evicted"));
        let kept = named("Failed to drain node, evicting pod default/web-0 violates a PDB (web)");
        assert_ne!(waiting, kept);
        assert_ne!(kept, named("Failed to drain node, evicting pod default/web-1 violates a PDB (web)"), "which is news");
    }

    #[test]
    fn an_event_names_who_published_it_in_both_versions_of_the_kind() {
        let at = Timestamp::from_second(1200).expect("in range");
        let object = event_object(&event("Evicted"), "default", at);
        assert_eq!((&object["source"]["component"], &object["reportingComponent"]), (&json!("whittle"), &json!("whittle")));
    }

    #[test]
    fn only_an_object_converted_from_another_kind_gets_no_status() {
        let mut pool = NodePool { metadata: whittle_api::ObjectMeta::named("default"), ..NodePool::default() };
        assert!(!is_of_another_kind(&pool));
        pool.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "Provisioner".to_owned());
        assert!(is_of_another_kind(&pool));
        // The same object in an older version.
        pool.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "karpenter.sh/v1beta1".to_owned());
        assert!(!is_of_another_kind(&pool));
    }

    #[test]
    fn a_long_message_is_truncated_at_a_character_boundary() {
        assert_eq!(truncate("short"), "short");
        assert_eq!(truncate(&"é".repeat(600)).len(), 1024);
        assert_eq!(truncate(&format!("x{}", "é".repeat(600))).len(), 1023);
    }
}
