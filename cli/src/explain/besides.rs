//! What else keeps a pod without a place, besides what the NodePools that were asked answer.

use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, labels, words};
use whittle_model::scheduling::Unready;

/// A line for each NodePool that was not asked because it is not ready, unless `told` names it, and for one that the pod asks for and that
/// there is not.
pub(crate) fn lines(pod: &Pod, objects: &ClusterObjects, told: &str) -> String {
    let aside = objects.node_pools.iter().filter_map(|pool| {
        let unready @ Unready::Condition { .. } = Unready::of(pool, objects)? else { return None };
        let name = NodePool::given_name(&pool.metadata.name);
        let why = unready.to_string();
        (!told.contains(&why)).then(|| format!("nodepool {name} is left aside: {}", words::printable(&why)))
    });
    aside.chain(unknown_pool(pod, objects)).map(|line| format!("  {line}\n")).collect()
}

/// That no NodePool has the name that a pod asks for.
fn unknown_pool(pod: &Pod, objects: &ClusterObjects) -> Option<String> {
    let wanted = pod.spec.node_selector.get(labels::NODE_POOL)?;
    let names: Vec<&str> = objects.node_pools.iter().map(|pool| NodePool::given_name(&pool.metadata.name)).collect();
    let there = if names.is_empty() { "there is none".to_owned() } else { format!("there is {}", names.join(", ")) };
    (!names.contains(&wanted.as_str())).then(|| format!("no NodePool is called {wanted:?}, which its node selector asks for: {there}"))
}
