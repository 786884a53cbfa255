//! Namespaces that are deleted and recreated.

use super::Cluster;
use jiff::Timestamp;

impl Cluster {
    /// Deletes a namespace with its pods; nothing is created in it meanwhile. False if it has pods without a controller
    /// to recreate them.
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

    /// Whether a namespace is terminating, so that nothing can be created in it, not even an eviction.
    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.terminating.contains_key(namespace)
    }

    /// Recreates namespaces that are due.
    pub(super) fn step_namespaces(&mut self, now: Timestamp) {
        let before = self.terminating.len();
        self.terminating.retain(|_, until| *until > now);
        if self.terminating.len() < before {
            self.settled_at = None;
        }
    }
}
