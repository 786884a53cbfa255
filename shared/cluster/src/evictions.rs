//! Evictions and deletions of pods.

use crate::connection::{ApiRequest, Clusters, RequestError};
use crate::errors::Class;
use crate::path;
use serde_json::{Value, json};
use whittle_api::k8s::Pod;
use whittle_claims::PodKey;
use whittle_ports::{ClusterAccess, ClusterError, Evictions};
use whittle_units::ClusterName;

fn what(pod: &PodKey) -> String {
    format!("Pod {}/{}", pod.namespace, pod.name)
}

/// Binds a deletion to one pod by its uid, so that its successor of the same name (a StatefulSet's) is not deleted.
fn options(pod: &PodKey, grace_seconds: Option<i64>) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    if !pod.uid.is_empty() {
        options["preconditions"] = json!({ "uid": pod.uid });
    }
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    options
}

/// Succeeds when the pod does not exist, or another one has its name.
fn ignore_deleted(answer: Result<Value, RequestError>, cluster: &ClusterName, pod: &PodKey) -> Result<(), ClusterError> {
    match answer {
        Ok(_) => Ok(()),
        Err(failed) if matches!(failed.class(), Some(Class::NotFound | Class::Conflict)) => Ok(()),
        Err(failed) => Err(failed.into_error(cluster, &what(pod))),
    }
}

impl<A: ClusterAccess> Evictions for Clusters<A> {
    async fn evict(&self, cluster: &ClusterName, pod: &PodKey) -> Result<(), ClusterError> {
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": pod.name, "namespace": pod.namespace },
            "deleteOptions": options(pod, None),
        });
        let path = format!("{}/eviction", path::object::<Pod>(&pod.namespace, &pod.name));
        ignore_deleted(self.send(cluster, &ApiRequest::post(path, &eviction)).await, cluster, pod)
    }

    async fn delete_pod(&self, cluster: &ClusterName, pod: &PodKey, grace_seconds: i64) -> Result<(), ClusterError> {
        let path = path::object::<Pod>(&pod.namespace, &pod.name);
        ignore_deleted(self.send(cluster, &ApiRequest::delete(path, &options(pod, Some(grace_seconds)))).await, cluster, pod)
    }
}
