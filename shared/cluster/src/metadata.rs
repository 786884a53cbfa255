//! Changes of metadata that preserve concurrent changes of others.

use crate::connection::{ApiRequest, Clusters, RequestError};
use crate::errors::Class;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use whittle_api::{ObjectMeta, legacy};
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

    /// Sends a merge patch. API servers up to 1.32 at least validate whole objects, and refuse in v1 what was written as v1beta1: that is
    /// patched in its own version.
    pub(crate) async fn merge_as_written(&self, cluster: &ClusterName, path: &str, patch: &Value) -> Result<(), RequestError> {
        let merge = async |path: &str| self.send::<IgnoredAny>(cluster, &ApiRequest::merge(path.to_owned(), patch)).await.map(|_| ());
        match merge(path).await {
            Err(refused) if refused.is_of_validation() => match self.as_written(cluster, path).await {
                Some((path, _)) => merge(&path).await,
                None => Err(refused),
            },
            sent => sent,
        }
    }

    /// The same for a server-side apply to an object's status; returns the object as it is stored then. Definitions of an older Karpenter
    /// lack fields of ours: an apply with one of these is refused as a whole, while a merge patch leaves them out.
    pub(crate) async fn apply_status_as_written(
        &self,
        cluster: &ClusterName,
        path: String,
        mut object: Value,
    ) -> Result<Value, RequestError> {
        match self.send(cluster, &ApiRequest::apply(path.clone(), &object)).await {
            Err(refused) if refused.is_of_validation() => match self.as_written(cluster, &path).await {
                Some((path, api_version)) => {
                    object["apiVersion"] = api_version.into();
                    self.send(cluster, &ApiRequest::apply(path, &object)).await
                }
                None => Err(refused),
            },
            Err(refused) if refused.is_of_definition() => {
                tracing::info!(%cluster, path, "the definition of this kind lacks fields of its status, which are left out");
                let patch = json!({ "status": object["status"] });
                self.send(cluster, &ApiRequest::merge(path, &patch)).await
            }
            sent => sent,
        }
    }

    /// The path of an object of v1, or of its status, in the version in which it was written, with that, if it is an older one.
    async fn as_written(&self, cluster: &ClusterName, path: &str) -> Option<(String, &'static str)> {
        // Whoever may change a status may not therefore read it alone.
        let of_object = path.strip_suffix("/status").unwrap_or(path);
        let object: Value = self.send(cluster, &ApiRequest::get(of_object.to_owned())).await.ok()?;
        let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        let before = legacy::version_before(api_version, kind, &object)?;
        Some((path.replacen(api_version, before, 1), before))
    }

    /// Requests the deletion of the object of this uid (of any uid when empty). Succeeds when it does not exist, or another has its name.
    pub(crate) async fn delete_of_uid(&self, cluster: &ClusterName, path: String, what: &str, uid: &str) -> Result<(), ClusterError> {
        let options = if uid.is_empty() { json!({}) } else { json!({ "preconditions": { "uid": uid } }) };
        match self.send::<IgnoredAny>(cluster, &ApiRequest::delete(path, &options)).await {
            Ok(_) => Ok(()),
            Err(failed) if failed.class() == Some(Class::NotFound) => Ok(()),
            // The name belongs to another object now.
            Err(failed) if failed.class() == Some(Class::Conflict) && !uid.is_empty() => Ok(()),
            Err(failed) => Err(failed.into_error(cluster, what)),
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
