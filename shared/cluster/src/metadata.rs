//! Changes of metadata that preserve concurrent changes of others.

use crate::connection::{ApiRequest, Clusters, RequestError};
use crate::errors::Class;
use crate::path;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use whittle_api::ObjectMeta;
use whittle_ports::{ClusterAccess, ClusterError};
use whittle_units::ClusterName;

/// Attempts of a change while others write the same object.
const ATTEMPTS_MAX: u32 = 4;

/// An object of which only the metadata is read.
#[derive(Deserialize)]
pub(crate) struct MetadataOnly {
    pub(crate) metadata: ObjectMeta,
}

impl<A: ClusterAccess> Clusters<A> {
    /// Reads an object, computes a merge patch from it and applies it to that resource version; repeats this on a conflict.
    /// `None` from `patch` means that nothing changes. Returns false when the object does not exist.
    pub(crate) async fn patch_metadata<T, F>(&self, cluster: &ClusterName, path: &str, what: &str, patch: F) -> Result<bool, ClusterError>
    where
        T: serde::de::DeserializeOwned + Send,
        F: Fn(&T) -> Option<(String, Value)> + Send + Sync,
    {
        for _ in 0..ATTEMPTS_MAX {
            let object: T = match self.send(cluster, &ApiRequest::get(path.to_owned())).await {
                Ok(object) => object,
                Err(failed) if failed.class() == Some(Class::NotFound) => return Ok(false),
                Err(failed) => return Err(failed.into_error(cluster, what)),
            };
            let Some((resource_version, mut patch)) = patch(&object) else { return Ok(true) };
            patch["metadata"]["resourceVersion"] = Value::from(resource_version);
            match self.merge_as_written(cluster, path, &patch).await {
                Ok(()) => return Ok(true),
                Err(failed) if failed.class() == Some(Class::NotFound) => return Ok(false),
                Err(failed) if failed.class() == Some(Class::Conflict) => {}
                Err(failed) => return Err(failed.into_error(cluster, what)),
            }
        }
        Err(ClusterError::Conflict { what: what.to_owned() })
    }

    /// Sends a merge patch. An API server before 1.33 validates whole objects, and refuses in v1 what was written as v1beta1: that is
    /// patched in its own version.
    async fn merge_as_written(&self, cluster: &ClusterName, path: &str, patch: &Value) -> Result<(), RequestError> {
        let merge = async |path: String| self.send::<IgnoredAny>(cluster, &ApiRequest::merge(path, patch)).await.map(|_| ());
        match (merge(path.to_owned()).await, path::before_v1(path)) {
            (Err(refused), Some(before)) if refused.class() == Some(Class::Invalid) => merge(before).await.map_err(|_| refused),
            (sent, _) => sent,
        }
    }

    /// The same for a server-side apply.
    pub(crate) async fn apply_as_written(&self, cluster: &ClusterName, path: String, mut object: Value) -> Result<(), RequestError> {
        let applied = self.send::<IgnoredAny>(cluster, &ApiRequest::apply(path.clone(), &object)).await.map(|_| ());
        match (applied, path::before_v1(&path)) {
            (Err(refused), Some(before)) if refused.class() == Some(Class::Invalid) => {
                object["apiVersion"] = path::api_version(&before).into();
                self.send::<IgnoredAny>(cluster, &ApiRequest::apply(before, &object)).await.map(|_| ()).map_err(|_| refused)
            }
            (applied, _) => applied,
        }
    }

    /// Removes a finalizer from the object of this uid (of any uid when empty). Succeeds when the object does not exist.
    pub(crate) async fn remove_finalizer(
        &self,
        cluster: &ClusterName,
        path: &str,
        what: &str,
        uid: &str,
        finalizer: &str,
    ) -> Result<(), ClusterError> {
        let without = |object: &MetadataOnly| {
            let metadata = &object.metadata;
            let remaining: Vec<&String> = metadata.finalizers.iter().filter(|held| *held != finalizer).collect();
            let matches = uid.is_empty() || metadata.uid == uid;
            let changed = matches && remaining.len() < metadata.finalizers.len();
            changed.then(|| (metadata.resource_version.clone(), json!({ "metadata": { "finalizers": remaining } })))
        };
        self.patch_metadata(cluster, path, what, without).await.map(|_| ())
    }
}
