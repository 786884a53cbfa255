//! A Provisioner and a NodePool of one name.

use crate::name_clashes::{plain_labels, plain_requirements, relabel, rename_provisioners};
use std::collections::BTreeMap;
use whittle_api::k8s::Node;
use whittle_api::karpenter::{NodePool, Requirement};
use whittle_api::{ClusterObjects, ObjectMeta, labels};

fn pool(name: &str, converted: bool) -> NodePool {
    let mut pool = NodePool { metadata: ObjectMeta::named(name), ..NodePool::default() };
    if converted {
        pool.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "Provisioner".to_owned());
    }
    pool
}

fn node(name: &str, pool: &str, converted: bool) -> Node {
    let mut node = Node { metadata: ObjectMeta::named(name), ..Node::default() };
    node.metadata.labels.insert(labels::NODE_POOL.to_owned(), pool.to_owned());
    if converted {
        node.metadata.labels.insert(labels::PROVISIONER_NAME.to_owned(), pool.to_owned());
    }
    node
}

#[track_caller]
fn check(pools: Vec<NodePool>, want: &[&str]) {
    let nodes = vec![node("new", "default", false), node("old", "default", true), node("other", "other", true)];
    let mut objects = ClusterObjects { node_pools: pools, nodes, ..ClusterObjects::default() };
    rename_provisioners(&mut objects);
    relabel(&mut objects);
    let found: Vec<&str> = objects.nodes.iter().filter_map(|node| node.metadata.label(labels::NODE_POOL)).collect();
    assert_eq!(found, want);
}

#[test]
fn s3_17_nodes_of_two_pools_with_one_name_are_distinguished() {
    check(vec![pool("default", false), pool("default", true), pool("other", true)], &["default", "Provisioner/default", "other"]);
}

#[test]
fn a_pool_with_a_unique_name_keeps_it() {
    check(vec![pool("default", true), pool("other", true)], &["default", "default", "other"]);
    check(vec![pool("default", false), pool("third", false)], &["default", "default", "other"]);
}

#[test]
fn stored_labels_and_requirements_have_the_original_name() {
    let planned = BTreeMap::from([(labels::NODE_POOL.to_owned(), "Provisioner/default".to_owned()), ("a".to_owned(), "b".to_owned())]);
    assert_eq!(plain_labels(&planned).get(labels::NODE_POOL).map(String::as_str), Some("default"));
    assert_eq!(plain_labels(&planned).get("a").map(String::as_str), Some("b"));
    let required = plain_requirements(vec![
        Requirement::is_in(labels::NODE_POOL, ["Provisioner/default"]),
        Requirement::is_in("a", ["Provisioner/x"]),
    ]);
    assert_eq!(required[0].values, ["default"]);
    assert_eq!(required[1].values, ["Provisioner/x"]);
}
