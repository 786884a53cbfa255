//! Reasons why a pod has no place that the answers of the NodePools do not contain: pools that were not asked, and volumes.

use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Pod, Taint};
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, labels, words};
use whittle_model::pods::{Volumes, untolerated};
use whittle_model::requirements::Requirements;
use whittle_model::scheduling::Unready;

/// A line for each NodePool that was not asked because it is not ready, unless `told` contains that, or because it is being deleted; for a
/// NodePool that the pod requires and that does not exist, or is one of the `others`; and for volumes that exclude each other.
pub(crate) fn lines(pod: &Pod, objects: &ClusterObjects, others: &BTreeMap<String, String>, told: &str) -> String {
    let aside = objects.node_pools.iter().filter_map(|pool| {
        let unready @ Unready::Condition { .. } = Unready::of(pool, objects)? else { return None };
        let name = NodePool::given_name(&pool.metadata.name);
        let why = unready.to_string();
        (!told.contains(&why)).then(|| format!("nodepool {name} is left aside: {}", words::printable(&why)))
    });
    let leaving = objects.node_pools.iter().filter(|pool| pool.metadata.is_deleting());
    let leaving =
        leaving.map(|pool| format!("nodepool {} is being deleted, and launches nothing", NodePool::given_name(&pool.metadata.name)));
    aside
        .chain(leaving)
        .chain(unknown_pool(pod, objects, others))
        .chain(volumes_apart(pod, objects))
        .map(|line| format!("  {line}\n"))
        .collect()
}

/// That no node reaches all volumes of a pod.
fn volumes_apart(pod: &Pod, objects: &ClusterObjects) -> Option<String> {
    let [(one, here), (other, there)] = Volumes::of(objects).apart(pod)?;
    let place = |requirements: &Requirements| {
        let all: Vec<String> = requirements.iter().map(|(key, allowed)| format!("{key} {allowed}")).collect();
        words::printable(&all.join(", ")).into_owned()
    };
    let (here, there) = (place(&here), place(&there));
    Some(format!("no node reaches both its volumes: that of persistentvolumeclaim {one} ({here}) and that of {other} ({there})"))
}

/// That no NodePool has a name that a pod asks for, or only one of another controller.
fn unknown_pool(pod: &Pod, objects: &ClusterObjects, others: &BTreeMap<String, String>) -> Option<String> {
    let (wanted, asks) = pools_asked_for(pod)?;
    let names: Vec<&str> = objects.node_pools.iter().map(|pool| NodePool::given_name(&pool.metadata.name)).collect();
    if wanted.iter().any(|name| names.contains(name)) {
        return None;
    }
    if let Some(told) = wanted.iter().find_map(|name| others.get(*name)) {
        return Some(format!("{told}, and its {asks} asks for it"));
    }
    let wanted: Vec<String> = wanted.iter().map(|name| format!("{name:?}")).collect();
    let there = if names.is_empty() { "there is none".to_owned() } else { format!("there is {}", names.join(", ")) };
    Some(format!("no NodePool is called {}, which its {asks} asks for: {there}", wanted.join(" or ")))
}

/// The names of NodePools one of which a pod asks for, and where it does.
fn pools_asked_for(pod: &Pod) -> Option<(Vec<&str>, &'static str)> {
    if let Some(name) = pod.spec.node_selector.get(labels::NODE_POOL) {
        return Some((vec![name.as_str()], "node selector"));
    }
    let required = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let mut names = Vec::new();
    for term in &required.node_selector_terms {
        // A term without names is met by nodes of any.
        let asks = term.match_expressions.iter().find(|each| each.key == labels::NODE_POOL && each.operator == "In")?;
        names.extend(asks.values.iter().map(String::as_str));
    }
    (!names.is_empty()).then_some((names, "node affinity"))
}

/// A line for each node that a pod waits for because of startup taints, which something in the cluster has to remove: of those that are
/// `told` of already.
pub(crate) fn startup_taints(pod: &Pod, objects: &ClusterObjects, told: &str) -> String {
    let waited_for = objects.nodes.iter().filter(|node| !pod.is_bound() && told.contains(&node.metadata.name));
    let held = waited_for.filter_map(|node| {
        let taints = untolerated(&pod.spec.tolerations, &startup_taints_of(node, objects));
        (!taints.is_empty()).then(|| format!("  node {} has the {}\n", node.metadata.name, waiting_for_removal(&taints)))
    });
    held.take(NODES_MAX).collect()
}

/// The same of a node itself; empty if it has none.
pub(crate) fn startup_taints_line(node: &Node, objects: &ClusterObjects) -> String {
    let taints = startup_taints_of(node, objects);
    if taints.is_empty() { String::new() } else { format!("  it has the {}\n", waiting_for_removal(&taints)) }
}

/// What Kubernetes' scheduler says of the nodes that there are, where it found none for a pod.
pub(crate) fn scheduler_says(pod: &Pod) -> Option<&str> {
    let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False" && !pod.is_bound())?;
    Some(condition.message.trim()).filter(|message| !message.is_empty())
}

/// A line with it; empty if it says nothing.
pub(crate) fn scheduler_line(pod: &Pod) -> String {
    let Some(message) = scheduler_says(pod) else { return String::new() };
    let shown: String = message.chars().take(MESSAGE_MAX).collect();
    let more = if shown.len() < message.len() { " …" } else { "" };
    format!("  Kubernetes' scheduler says: {}{more}\n", words::printable(&shown))
}

/// How many characters of the scheduler's message are shown: it has a clause for each reason, and names no nodes.
const MESSAGE_MAX: usize = 600;

/// How many nodes are named.
const NODES_MAX: usize = 3;

/// The startup taints of its NodeClaim that a node still has.
fn startup_taints_of(node: &Node, objects: &ClusterObjects) -> Vec<Taint> {
    let claim = objects.node_claims.iter().find(|claim| claim.status.node_name == node.metadata.name);
    let is_startup = |taint: &&Taint| claim.is_some_and(|claim| claim.spec.startup_taints.iter().any(|one| one.key == taint.key));
    node.spec.taints.iter().filter(is_startup).cloned().collect()
}

fn waiting_for_removal(taints: &[Taint]) -> String {
    let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
    format!("startup taint {}, which something in the cluster has to remove", taints.join(", "))
}
