//! Namespaces that somebody deletes, and makes again with what they had.

use super::Cluster;
use jiff::Timestamp;

impl Cluster {
    /// Deletes a namespace: its pods go, and until then nothing is created in it. False where pods would be lost that nobody
    /// makes again.
    pub(crate) fn delete_namespace(&mut self, namespace: &str, until: Timestamp, now: Timestamp) -> bool {
        let in_it = self.objects.pods.values().filter(|pod| pod.metadata.namespace == namespace);
        if in_it.clone().any(|pod| pod.metadata.controller().is_none()) {
            return false;
        }
        let keys: Vec<String> = in_it.map(|pod| pod.metadata.key()).collect();
        self.terminating.insert(namespace.to_owned(), until);
        for key in keys {
            self.delete_pod(&key, None, now);
        }
        true
    }

    /// Whether the API server creates nothing in a namespace, evictions among it.
    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.terminating.contains_key(namespace)
    }

    /// Namespaces are there again.
    pub(super) fn step_namespaces(&mut self, now: Timestamp) {
        let before = self.terminating.len();
        self.terminating.retain(|_, until| *until > now);
        if self.terminating.len() < before {
            self.calm_at = None;
        }
    }
}
