//! Evictions and deletions of pods.

use crate::connection::{ApiRequest, Clusters, RequestError};
use crate::errors::Class;
use crate::path;
use serde_json::{Value, json};
use std::time::Duration;
use whittle_api::k8s::Pod;
use whittle_claims::PodKey;
use whittle_ports::{ClusterAccess, ClusterError, Evictions};
use whittle_units::ClusterName;

/// How long a deletion waits for the eviction that it tries first: its deadline is near, and a webhook may keep the API server waiting.
const EVICTION_TRIED_FOR: Duration = Duration::from_secs(2);
/// How long an eviction is waited for. Webhooks have ten seconds by default, after which the API server answers in their place.
const EVICTION_MAX: Duration = Duration::from_secs(11);
/// How the API server reports an admission webhook that does not answer, or not in its words.
const WEBHOOK_FAILED: &str = "failed calling webhook";

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

fn eviction_path(pod: &PodKey) -> String {
    format!("{}/eviction", path::object::<Pod>(&pod.namespace, &pod.name))
}

fn eviction(pod: &PodKey, grace_seconds: Option<i64>) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": options(pod, grace_seconds),
    })
}

/// The pod is gone when it does not exist, and when another one has its name (409). A webhook that fails or hangs is asked about some pods
/// only, and says nothing about the API server: the others need not wait.
fn done_or_gone(answer: Result<Value, RequestError>, cluster: &ClusterName, pod: &PodKey) -> Result<(), ClusterError> {
    match answer {
        Ok(_) => Ok(()),
        Err(failed) if matches!(failed.class(), Some(Class::NotFound | Class::Conflict)) => Err(ClusterError::NotFound { what: what(pod) }),
        Err(RequestError::Server(failure)) if failure.message.contains(WEBHOOK_FAILED) => {
            Err(ClusterError::Invalid { what: what(pod), message: failure.message })
        }
        Err(RequestError::Server(failure)) if failure.is_timeout => Err(ClusterError::Invalid {
            what: what(pod),
            message: "the API server does not answer: does an admission webhook for pods, or for pods/eviction, hang?".to_owned(),
        }),
        Err(failed) => Err(failed.into_error(cluster, &what(pod))),
    }
}

impl<A: ClusterAccess> Evictions for Clusters<A> {
    async fn evict(&self, cluster: &ClusterName, pod: &PodKey) -> Result<(), ClusterError> {
        let eviction = eviction(pod, None);
        let request = ApiRequest::post(eviction_path(pod), &eviction).tried_for(EVICTION_MAX);
        done_or_gone(self.send(cluster, &request).await, cluster, pod)
    }

    async fn delete_pod(&self, cluster: &ClusterName, pod: &PodKey, grace_seconds: i64) -> Result<(), ClusterError> {
        // Only an eviction sets the pod's condition DisruptionTarget, by which a Job's podFailurePolicy tells disruptions from failures.
        let eviction = eviction(pod, Some(grace_seconds));
        let attempt = ApiRequest::post(eviction_path(pod), &eviction).tried_for(EVICTION_TRIED_FOR);
        if self.send::<Value>(cluster, &attempt).await.is_ok() {
            return Ok(());
        }
        let path = path::object::<Pod>(&pod.namespace, &pod.name);
        done_or_gone(self.send(cluster, &ApiRequest::delete(path, &options(pod, Some(grace_seconds)))).await, cluster, pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_is_of_one_pod_and_shortens_its_grace_period_only_if_asked_to() {
        let pod = PodKey { namespace: "a".to_owned(), name: "p".to_owned(), uid: "u".to_owned() };
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": "u" } });
        assert_eq!(eviction(&pod, None)["deleteOptions"], options);
        let mut shortened = options;
        shortened["gracePeriodSeconds"] = json!(7);
        assert_eq!(eviction(&pod, Some(7))["deleteOptions"], shortened);
        assert_eq!(eviction(&pod, None)["metadata"], json!({ "name": "p", "namespace": "a" }));
        assert_eq!(eviction_path(&pod), "/api/v1/namespaces/a/pods/p/eviction");
    }
}
