//! NodeClaim mirrors.

mod applies;

use crate::connection::{ApiRequest, Clusters, RequestError};
use crate::errors::Class;
use crate::metadata::MetadataOnly;
use crate::{json_of, path};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus};
use whittle_api::{conditions, labels};
use whittle_ports::{ClusterAccess, ClusterError, Mirrors};
use whittle_units::ClusterName;

fn what(name: &str) -> String {
    format!("NodeClaim {name:?}")
}

/// The object for server-side apply: our metadata, and the existing spec, because an omitted field would be removed.
fn applied(mirror: &NodeClaim, existing: Option<&Value>) -> Value {
    let metadata = &mirror.metadata;
    let mut object = json!({
        "apiVersion": NodeClaim::API_VERSION,
        "kind": NodeClaim::KIND,
        "metadata": {
            "name": metadata.name,
            "labels": metadata.labels,
            "annotations": metadata.annotations,
            "finalizers": metadata.finalizers,
        },
    });
    // Owners without uid cannot be stored; the garbage collector would take a wrong one for a deleted owner.
    let owners: Vec<_> = metadata.owner_references.iter().filter(|owner| !owner.uid.is_empty()).collect();
    if !owners.is_empty() {
        object["metadata"]["ownerReferences"] = json_of(&owners);
    }
    match existing {
        None => object["spec"] = json_of(&mirror.spec),
        Some(existing) => {
            object["spec"] = existing["spec"].clone();
            // With a uid, an object that has been deleted meanwhile is not created again.
            object["metadata"]["uid"] = existing["metadata"]["uid"].clone();
            // The API server refuses a new finalizer on an object that is being deleted.
            if !existing["metadata"]["deletionTimestamp"].is_null() {
                let held =
                    |finalizer: &&String| existing["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(finalizer)));
                object["metadata"]["finalizers"] = json!(metadata.finalizers.iter().filter(held).collect::<Vec<_>>());
            }
        }
    }
    object
}

/// The status for server-side apply to an object of this generation, which a deletion increments.
fn applied_status(mirror: &NodeClaim, generation: Option<i64>) -> Value {
    let mut status = mirror.status.clone();
    conditions::observe(&mut status.conditions, generation);
    let mut object = json!({
        "apiVersion": NodeClaim::API_VERSION,
        "kind": NodeClaim::KIND,
        "metadata": { "name": mirror.metadata.name },
        "status": status,
    });
    if !mirror.metadata.uid.is_empty() {
        object["metadata"]["uid"] = json!(mirror.metadata.uid);
    }
    object
}

/// The generation of an object that nobody has deleted: the API server accepts no change of its spec.
const NEVER_DELETED: i64 = 1;

/// Whether it is likely that only the status of a mirror has changed: its Node has joined, and it has not been told to go. Labels and
/// annotations come with the plan and with the launch, and a deletion is a new generation.
fn is_settled(mirror: &NodeClaim) -> bool {
    let status = &mirror.status;
    !status.node_name.is_empty()
        && !mirror.metadata.finalizers.is_empty()
        && mirror.metadata.uid.is_empty()
        && conditions::find(&status.conditions, conditions::DRAINED).is_none()
}

/// Whether a mirror may be written over the existing object: the mirror of a user's NodeClaim must be that very object.
fn may_write(mirror: &NodeClaim, existing: Option<&Value>) -> bool {
    let uid = mirror.metadata.uid.as_str();
    uid.is_empty() || existing.is_some_and(|existing| existing["metadata"]["uid"] == uid)
}

impl<A: ClusterAccess> Clusters<A> {
    /// Creates the mirror of a claim that has nothing to say in its status yet; returns whether it is there. A plain creation costs the
    /// API server a third of a server-side apply of the same object. What it writes stays where a later apply omits it: labels and
    /// annotations of a plan, which a claim keeps, and the finalizer (see `release_if_ended`).
    async fn create_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<bool, RequestError> {
        let object = applied(mirror, None);
        match self.send::<IgnoredAny>(cluster, &ApiRequest::post(path::collection::<NodeClaim>(""), &object)).await {
            Ok(_) => Ok(true),
            Err(failed) if matches!(failed.class(), Some(Class::AlreadyExists | Class::NotFound)) => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    /// Removes the finalizer from the mirror of a claim that has ended: an apply does not remove what came with the creation.
    async fn release_if_ended(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<(), ClusterError> {
        if mirror.metadata.finalizers.is_empty() {
            self.release_mirror(cluster, &mirror.metadata.name, &mirror.metadata.uid).await?;
        }
        Ok(())
    }

    /// Writes the status alone, and returns whether that was all: the answer shows the metadata. A server-side apply of the object costs
    /// the API server more than anything else that is done for a machine.
    async fn write_mirrored_status(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<bool, RequestError> {
        let status = applied_status(mirror, Some(NEVER_DELETED));
        let path = format!("{}/status", path::object::<NodeClaim>("", &mirror.metadata.name));
        let stored: Value = match self.send(cluster, &ApiRequest::apply(path.clone(), &status)).await {
            Ok(stored) => stored,
            Err(failed) if matches!(failed.class(), Some(Class::NotFound | Class::Invalid)) => return Ok(false),
            Err(failed) => return Err(failed),
        };
        if stored["metadata"]["generation"] != NEVER_DELETED || !applies::changes_nothing(&applied(mirror, None), &stored) {
            return Ok(false);
        }
        self.remove_left_over::<NodeClaimStatus>(cluster, &path, &stored, &status["status"]).await?;
        Ok(true)
    }

    /// Writes metadata and spec, then the status if there is one: a request for each.
    async fn write_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim, existing: Option<&Value>) -> Result<(), RequestError> {
        let path = path::object::<NodeClaim>("", &mirror.metadata.name);
        let generation = match self.send::<Value>(cluster, &ApiRequest::apply(path.clone(), &applied(mirror, existing))).await {
            Ok(stored) => stored["metadata"]["generation"].as_i64(),
            // Server-side apply creates a missing object, so this means that the kind is not served, and claims cannot be mirrored.
            Err(failed) if failed.class() == Some(Class::NotFound) => {
                tracing::warn!(%cluster, "the cluster has no NodeClaim kind of karpenter.sh/v1; claims are not mirrored");
                return Ok(());
            }
            Err(failed) => return Err(failed),
        };
        if mirror.status == NodeClaimStatus::default() {
            return Ok(());
        }
        let status = applied_status(mirror, generation);
        let path = format!("{path}/status");
        match self.send::<Value>(cluster, &ApiRequest::apply(path.clone(), &status)).await {
            // What Karpenter wrote before the machine was adopted.
            Ok(stored) => self.remove_left_over::<NodeClaimStatus>(cluster, &path, &stored, &status["status"]).await,
            // Deleted in between, or the kind has no status.
            Err(failed) if failed.class() == Some(Class::NotFound) => Ok(()),
            Err(failed) => Err(failed),
        }
    }
}

impl<A: ClusterAccess> Mirrors for Clusters<A> {
    async fn apply_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<(), ClusterError> {
        let name = &mirror.metadata.name;
        let error = |failed: RequestError| failed.into_error(cluster, &what(name));
        // As a rule the object has our spec. One that was adopted may have another: specs are immutable, so it refuses ours. So does one
        // that is being deleted, from which somebody has taken our finalizer.
        if mirror.metadata.uid.is_empty() {
            if !mirror.metadata.finalizers.is_empty()
                && mirror.status == NodeClaimStatus::default()
                && self.create_mirror(cluster, mirror).await.map_err(error)?
            {
                return Ok(());
            }
            if is_settled(mirror) && self.write_mirrored_status(cluster, mirror).await.map_err(error)? {
                return Ok(());
            }
            match self.write_mirror(cluster, mirror, None).await {
                Err(failed) if failed.class() == Some(Class::Invalid) => {}
                Err(failed) => return Err(error(failed)),
                Ok(()) => return self.release_if_ended(cluster, mirror).await,
            }
        }
        let existing: Option<Value> = match self.send(cluster, &ApiRequest::get(path::object::<NodeClaim>("", name))).await {
            Ok(existing) => Some(existing),
            Err(failed) if failed.class() == Some(Class::NotFound) => None,
            Err(failed) => return Err(error(failed)),
        };
        if !may_write(mirror, existing.as_ref()) {
            return Err(ClusterError::NotFound { what: what(name) });
        }
        self.write_mirror(cluster, mirror, existing.as_ref()).await.map_err(error)?;
        self.release_if_ended(cluster, mirror).await
    }

    async fn delete_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.delete_of_uid(cluster, path::object::<NodeClaim>("", name), &what(name), uid).await
    }

    async fn release_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        let path = path::object::<NodeClaim>("", name);
        self.remove_finalizer(cluster, &path, &what(name), uid, labels::TERMINATION_FINALIZER).await
    }

    async fn hand_over_mirror(&self, cluster: &ClusterName, name: &str) -> Result<(), ClusterError> {
        let unmarked = |object: &MetadataOnly| {
            let metadata = &object.metadata;
            let patch = json!({ "metadata": { "annotations": { labels::MANAGED: null } } });
            metadata.annotations.contains_key(labels::MANAGED).then(|| (metadata.resource_version.clone(), patch))
        };
        self.patch_metadata(cluster, &path::object::<NodeClaim>("", name), &what(name), unmarked).await.map(|_| ())
    }
}
