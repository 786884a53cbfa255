//! Changes of metadata that preserve concurrent changes of others.

use crate::connection::{ApiRequest, Clusters};
use crate::errors::Class;
use serde::Deserialize;
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
            match self.send::<Value>(cluster, &ApiRequest::merge(path.to_owned(), &patch)).await {
                Ok(_) => return Ok(true),
                Err(failed) if failed.class() == Some(Class::NotFound) => return Ok(false),
                Err(failed) if failed.class() == Some(Class::Conflict) => {}
                Err(failed) => return Err(failed.into_error(cluster, what)),
            }
        }
        Err(ClusterError::Conflict { what: what.to_owned() })
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
