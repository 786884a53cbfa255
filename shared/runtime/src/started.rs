//! Whose machine EC2 has started: its notice names no cluster.
//!
//! Every instance of the account has such a notice. One that belongs to no claim is somebody else's, or its launch has not stored it yet
//! and rings for it then.

use crate::Function;
use crate::events::{self, Decoded};
use futures::stream::{self, StreamExt};
use std::collections::BTreeMap;
use whittle_ports::StoreError;
use whittle_units::{ClusterName, InstanceId};

/// Instances that are looked up at once.
const CONCURRENT_LOOK_UPS: usize = 10;

/// Adds the work for started machines to a batch. `cluster_of` says whose an instance is. The messages of machines that could not be
/// looked up are returned.
pub(crate) async fn assign(
    function: Function,
    served: &[ClusterName],
    cluster_of: impl AsyncFn(&InstanceId) -> Result<Option<ClusterName>, StoreError>,
    decoded: &mut Decoded,
) -> Vec<(String, StoreError)> {
    let mut messages: BTreeMap<InstanceId, Vec<String>> = BTreeMap::new();
    for started in std::mem::take(&mut decoded.started) {
        messages.entry(started.instance).or_default().push(started.message_id);
    }
    let look_ups = stream::iter(messages).map(async |(instance, messages)| (cluster_of(&instance).await, messages));
    let mut failed = Vec::new();
    for (cluster, messages) in look_ups.buffered(CONCURRENT_LOOK_UPS).collect::<Vec<_>>().await {
        match cluster {
            Ok(Some(cluster)) if served.contains(&cluster) => decoded.add_cluster(&cluster, messages),
            Ok(_) => {}
            Err(error) => failed.extend(messages.into_iter().map(|message| (message, error.clone()))),
        }
    }
    events::forward_other_clusters(function, decoded);
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{DoorbellToSend, StartedMessage, WorkItem};
    use crate::{Work, decode};
    use futures::executor::block_on;
    use whittle_claims::Doorbell;

    fn started(instance: &str, message_id: &str) -> StartedMessage {
        StartedMessage { instance: InstanceId::new(instance), message_id: message_id.to_owned() }
    }

    /// Of `i-a…` the cluster is a, of `i-b…` b, of `i-c…` c; `i-lost` cannot be looked up, and all others are nobody's.
    async fn cluster_of(instance: &InstanceId) -> Result<Option<ClusterName>, StoreError> {
        match instance.as_str() {
            "i-lost" => Err(StoreError::Throttled { what: "the claim".to_owned() }),
            other => Ok(["a", "b", "c"].into_iter().find(|name| other.starts_with(&format!("i-{name}"))).map(ClusterName::new)),
        }
    }

    fn assigned(messages: &[(&str, &str)]) -> (Decoded, Vec<String>) {
        let started = messages.iter().map(|(instance, id)| started(instance, id)).collect();
        let mut decoded = Decoded { started, ..Decoded::default() };
        let failed = block_on(assign(Function::Register, &["a".into(), "b".into()], cluster_of, &mut decoded));
        (decoded, failed.into_iter().map(|(message, _)| message).collect())
    }

    #[test]
    fn machines_of_claims_ring_for_their_cluster_once() {
        let (decoded, failed) = assigned(&[("i-a1", "m0"), ("i-b1", "m1"), ("i-a2", "m2"), ("i-a1", "m3")]);
        let own = WorkItem { work: Work::Cluster("a".into()), message_ids: ["m0", "m3", "m2"].map(str::to_owned).to_vec() };
        let other = DoorbellToSend { doorbell: Doorbell::register("b".into()), message_ids: vec!["m1".to_owned()] };
        assert_eq!((decoded.work, decoded.doorbells, failed), (vec![own], vec![other], vec![]));
    }

    #[test]
    fn machines_of_nobody_and_of_clusters_that_are_not_served_are_no_work() {
        let (decoded, failed) = assigned(&[("i-x", "m0"), ("i-c1", "m1")]);
        assert_eq!((decoded, failed), (Decoded::default(), vec![]));
    }

    #[test]
    fn a_look_up_that_fails_fails_its_own_messages_alone() {
        let (decoded, failed) = assigned(&[("i-lost", "m0"), ("i-a1", "m1")]);
        assert_eq!((decoded.work.len(), failed), (1, vec!["m0".to_owned()]));
        let none = decode(Function::Register, &serde_json::json!({"kind": "tick"}), &["a".into()]).expect("a tick");
        assert!(none.started.is_empty(), "a tick has nothing to look up");
    }
}
