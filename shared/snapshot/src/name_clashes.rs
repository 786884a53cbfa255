//! A Provisioner and a NodePool of the same name, which a cluster may have.
//!
//! Decisions identify pools by name alone. While a NodePool has a Provisioner's name, the Provisioner is renamed to a name
//! that no object can have; names in plans are mapped back before anything is stored. Pure.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{NodePool, Requirement};
use whittle_api::{ClusterObjects, ObjectMeta, labels};

/// Renames Provisioners whose name a NodePool has as well, for this decision only.
pub fn rename_provisioners(objects: &mut ClusterObjects) {
    let pools = &objects.node_pools;
    let readable = pools.iter().filter(|pool| !pool.is_converted_provisioner()).map(|pool| &pool.metadata);
    let hidden = objects.unreadable_of(NodePool::KIND).map(|unreadable| &unreadable.metadata);
    let taken: BTreeSet<String> = readable.chain(hidden).map(|meta| meta.name.clone()).collect();
    for pool in objects.node_pools.iter_mut().filter(|pool| pool.is_converted_provisioner()) {
        if taken.contains(&pool.metadata.name) {
            pool.metadata.name = format!("{}{}", NodePool::TWIN_PREFIX, pool.metadata.name);
        }
    }
    relabel(objects);
}

/// Labels nodes and NodeClaims of renamed pools with the new name, by which decisions join them.
pub(crate) fn relabel(objects: &mut ClusterObjects) {
    let renamed: BTreeMap<String, String> = objects
        .node_pools
        .iter()
        .filter_map(|pool| Some((pool.metadata.name.strip_prefix(NodePool::TWIN_PREFIX)?.to_owned(), pool.metadata.name.clone())))
        .collect();
    if renamed.is_empty() {
        return;
    }
    let of_pool = |metadata: &mut ObjectMeta| {
        if let Some(name) = metadata.label(labels::PROVISIONER_NAME).and_then(|given| renamed.get(given)) {
            metadata.labels.insert(labels::NODE_POOL.to_owned(), name.clone());
        }
    };
    objects.nodes.iter_mut().for_each(|node| of_pool(&mut node.metadata));
    objects.node_claims.iter_mut().for_each(|claim| of_pool(&mut claim.metadata));
}

/// Labels with the pool's original name.
pub(crate) fn plain_labels(planned: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut out = planned.clone();
    if let Some(pool) = out.get_mut(labels::NODE_POOL) {
        *pool = NodePool::given_name(pool).to_owned();
    }
    out
}

/// Requirements with the pool's original name. That of a Provisioner is a label alone: no server accepts a NodeClaim that requires it.
pub(crate) fn plain_requirements(mut planned: Vec<Requirement>) -> Vec<Requirement> {
    planned.retain(|requirement| requirement.key != labels::PROVISIONER_NAME);
    for requirement in planned.iter_mut().filter(|requirement| requirement.key == labels::NODE_POOL) {
        requirement.values.iter_mut().for_each(|pool| *pool = NodePool::given_name(pool).to_owned());
    }
    planned
}
