//! Pools whose nodes cannot be counted, because a claim cannot be read: their budgets allow nothing.

use crate::{rules, uncountable_pools};
use std::collections::BTreeMap;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_ports::Settings;
use whittle_snapshot::Snapshot;
use whittle_testkit::at;

/// A cluster with a Node of pool `lost`, which no NodeClaim shows, and one of pool `shown`; these claims cannot be read.
fn snapshot(hidden: &[&str]) -> Snapshot {
    let node = |pool: &str| {
        let mut node = Node { metadata: ObjectMeta::named(pool), ..Node::default() };
        node.metadata.labels.insert(labels::NODE_POOL.to_owned(), pool.to_owned());
        node.spec.provider_id = format!("aws:///z/i-{pool}");
        node
    };
    let mut of_shown = NodeClaim { metadata: ObjectMeta::named("shown-1"), ..NodeClaim::default() };
    of_shown.status.provider_id = "aws:///z/i-shown".to_owned();
    let read = ClusterObjects { nodes: vec![node("lost"), node("shown")], node_claims: vec![of_shown], ..ClusterObjects::default() };
    let hidden = hidden.iter().map(|&name| name.to_owned()).collect();
    Snapshot::of(at(0), read, Vec::new(), Vec::new(), BTreeMap::new()).hiding(hidden)
}

#[test]
fn a_pool_with_a_node_that_no_claim_shows_allows_nothing_while_a_claim_cannot_be_read() {
    let text = "its nodes cannot be counted: NodeClaim shown-1 cannot be read";
    let closed = BTreeMap::from([("lost".to_owned(), text.to_owned())]);
    assert_eq!(uncountable_pools(&snapshot(&["shown-1"])), closed);
    assert_eq!(rules(&Settings::default(), &snapshot(&["shown-1"])).unreadable_pools, closed, "no decision disrupts any of its nodes");
}

#[test]
fn no_pool_is_closed_while_all_claims_can_be_read() {
    assert!(uncountable_pools(&snapshot(&[])).is_empty());
}
