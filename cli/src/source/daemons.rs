//! DaemonSets whose pods have no room on nodes that run: these wait, and launch nothing.

use super::remarks::{NAMED_MAX, Remark};
use crate::listing::first_named;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Pod, Taint, TaintEffect};
use whittle_model::pods;
use whittle_model::requirements::from_labels;
use whittle_model::state::{ClusterState, StateNode};
use whittle_units::Resources;

/// Taints of this domain are tolerated by what a DaemonSet's controller adds.
const OF_NODES: &str = "node.kubernetes.io/";

/// A remark for each DaemonSet whose pod some node has no room for.
pub(super) fn remarks(objects: &ClusterObjects) -> Vec<Remark> {
    let daemons = pods::daemon_pods(&objects.daemon_sets, &objects.pods);
    if daemons.is_empty() {
        return Vec::new();
    }
    let mut without_room: BTreeMap<String, (Vec<&str>, BTreeSet<String>)> = BTreeMap::new();
    let state = ClusterState::of(objects);
    for node in state.nodes.iter().filter(|node| node.node.is_some() && !node.marked_for_deletion) {
        let mut left = node.allocatable();
        on(node, objects).for_each(|pod| left.subtract(&pods::effective_requests(pod)));
        for daemon in daemons.iter().filter(|daemon| runs_on(daemon, node)) {
            let short = short_of(daemon, node, objects, left.clone());
            if !short.is_empty() {
                let (nodes, resources) = without_room.entry(key(daemon)).or_default();
                nodes.push(node.name());
                resources.extend(short);
            }
        }
    }
    without_room.into_iter().map(|(set, (nodes, resources))| remark(&set, &nodes, &resources)).collect()
}

/// The pods that are bound to a node.
fn on<'o>(node: &StateNode, objects: &'o ClusterObjects) -> impl Iterator<Item = &'o Pod> {
    node.pods.iter().filter_map(|at| objects.pods.get(*at))
}

fn remark(set: &str, nodes: &[&str], resources: &BTreeSet<String>) -> Remark {
    let named = first_named(nodes, NAMED_MAX);
    let resources = resources.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Remark::warning(format!(
        "DaemonSet {set}: no room for its pod on {named} ({resources}): it waits there, and nothing is launched for it"
    ))
}

/// Namespace and name of the DaemonSet that a representative pod is of.
pub(crate) fn key(daemon: &Pod) -> String {
    format!("{}/{}", daemon.metadata.namespace, name_of(daemon))
}

/// The name of the DaemonSet that a representative pod is of.
fn name_of(daemon: &Pod) -> &str {
    daemon.metadata.owner_references.first().map_or(daemon.metadata.name.as_str(), |owner| owner.name.as_str())
}

/// Whether the DaemonSet's controller makes a pod for the node.
fn runs_on(daemon: &Pod, node: &StateNode) -> bool {
    suits(daemon, node.labels(), node.node.as_ref().map(|node| node.spec.taints.as_slice()).unwrap_or_default())
}

/// The same for a node with these labels and taints.
pub(crate) fn suits(daemon: &Pod, labels: &BTreeMap<String, String>, taints: &[Taint]) -> bool {
    let is_hard = |taint: &&Taint| taint.effect != TaintEffect::PreferNoSchedule && !taint.key.starts_with(OF_NODES);
    let hard: Vec<_> = taints.iter().filter(is_hard).cloned().collect();
    let labels = from_labels(labels);
    let tolerated = pods::untolerated(&daemon.spec.tolerations, &hard).is_empty();
    tolerated && pods::daemon_terms(daemon).iter().any(|term| labels.compatible(term, |_| false).is_ok())
}

/// Of which resources the node has too little for the daemon's pod; `left` is what all its pods leave, those of the DaemonSet included.
fn short_of(daemon: &Pod, node: &StateNode, objects: &ClusterObjects, mut left: Resources) -> Vec<String> {
    let of_set = |owner: &whittle_api::OwnerReference| owner.kind == "DaemonSet" && owner.name == name_of(daemon);
    let is_own = |pod: &&Pod| pod.metadata.namespace == daemon.metadata.namespace && pod.metadata.owner_references.iter().any(of_set);
    on(node, objects).filter(is_own).for_each(|pod| left.add(&pods::effective_requests(pod)));
    let known = node.allocatable();
    let is_short = |(name, amount): &(&str, whittle_units::Quantity)| known.0.contains_key(*name) && left.get(name) < *amount;
    pods::effective_requests(daemon).iter().filter(is_short).map(|(name, _)| name.to_owned()).collect()
}
