//! What others left in a status that we write as a whole.
//!
//! A server-side apply removes only what we applied before. Karpenter replaces its statuses: what it wrote before a migration (resources
//! of other machines, conditions of its own) would stay for good, and a status that never becomes the wanted one is written at every look.

use crate::connection::{Clusters, RequestError};
use crate::errors::Class;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use whittle_ports::ClusterAccess;
use whittle_units::ClusterName;

impl<A: ClusterAccess> Clusters<A> {
    /// Removes what a stored object has in its status and `wanted` lacks; fields that `S` does not have stay. `stored` is what the API
    /// server answered to an apply of `wanted`, and a change in between is left alone: who looks next tries again.
    pub(crate) async fn remove_left_over<S: Serialize + DeserializeOwned>(
        &self,
        cluster: &ClusterName,
        path: &str,
        stored: &Value,
        wanted: &Value,
    ) -> Result<(), RequestError> {
        let Some(status) = left_over::<S>(stored, wanted) else { return Ok(()) };
        let patch = serde_json::json!({
            "metadata": { "resourceVersion": stored["metadata"]["resourceVersion"] },
            "status": status,
        });
        match self.merge_as_written(cluster, path, &patch).await {
            Err(failed) if matches!(failed.class(), Some(Class::Conflict | Class::NotFound)) => Ok(()),
            sent => sent,
        }
    }
}

/// The merge patch for the status of a stored object, if something is to be removed.
fn left_over<S: Serialize + DeserializeOwned>(stored: &Value, wanted: &Value) -> Option<Value> {
    let known: S = serde_json::from_value(stored["status"].clone()).ok()?;
    removal(&serde_json::to_value(known).ok()?, wanted)
}

/// The merge patch that removes from `there` what `wanted` lacks.
fn removal(there: &Value, wanted: &Value) -> Option<Value> {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            let change = |(key, there): (&String, &Value)| match wanted.get(key) {
                None => Some((key.clone(), Value::Null)),
                Some(wanted) => Some((key.clone(), removal(there, wanted)?)),
            };
            let patch: Map<String, Value> = there.iter().filter_map(change).collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        // A merge patch replaces lists.
        (Value::Array(there), Value::Array(all)) if all.len() < there.len() => Some(wanted.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use whittle_api::karpenter::{NodeClaimStatus, NodePoolStatus};

    #[test]
    fn resources_and_conditions_that_karpenter_left_are_removed() {
        let since = "2026-01-01T00:00:00Z";
        let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": since});
        let wanted = json!({"resources": {"cpu": "4", "nodes": "1"}, "nodes": 1, "conditions": [condition("Ready")]});
        let stored = json!({"status": {
            "resources": {"cpu": "4", "nodes": "1", "hugepages-2Mi": "0", "example.com/fuse": "10"},
            "nodes": 1,
            "nodeClassObservedGeneration": 2,
            "conditions": [condition("Ready"), condition("Stale")],
        }});
        let patch = left_over::<NodePoolStatus>(&stored, &wanted).expect("something is left over");
        assert_eq!(
            patch,
            json!({
                "resources": {"hugepages-2Mi": null, "example.com/fuse": null},
                "nodeClassObservedGeneration": null,
                "conditions": [condition("Ready")],
            })
        );
        let claim = json!({"status": {"nodeName": "n", "lastPodEventTime": since, "capacity": {"cpu": "4", "pods": "9"}}});
        let patch = left_over::<NodeClaimStatus>(&claim, &json!({"nodeName": "n", "capacity": {"cpu": "4"}}));
        assert_eq!(patch, Some(json!({"lastPodEventTime": null, "capacity": {"pods": null}})));
    }

    #[test]
    fn nothing_is_removed_of_a_status_as_wanted_nor_of_fields_that_we_do_not_know() {
        let wanted = json!({"resources": {"cpu": "4"}, "nodes": 1});
        let status = |status: Value| left_over::<NodePoolStatus>(&json!({ "status": status }), &wanted);
        assert_eq!(status(json!({"resources": {"cpu": "4"}, "nodes": 1})), None);
        assert_eq!(status(json!({"resources": {"cpu": "4"}, "nodes": 1, "laterField": {"a": "b"}})), None);
        assert_eq!(status(json!({})), None, "what is missing there is not removed");
        assert_eq!(left_over::<NodePoolStatus>(&json!({"kind": "Status"}), &wanted), None, "it has none");
    }
}
