//! Pods that are neither planned nor on a node that is known, and why.

use super::remarks::{NAMED_MAX, Remark};
use crate::listing::first_named;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::Pod;
use whittle_model::pods;

/// The objects that the reasons depend on, besides the pod.
pub(crate) struct Known<'o> {
    nodes: BTreeSet<&'o str>,
    /// Nodes that are being deleted.
    going: BTreeSet<&'o str>,
    /// Namespace and name.
    daemon_sets: BTreeSet<(&'o str, &'o str)>,
}

impl<'o> Known<'o> {
    pub(crate) fn of(objects: &'o ClusterObjects) -> Self {
        let name = |metadata: &'o whittle_api::ObjectMeta| (metadata.namespace.as_str(), metadata.name.as_str());
        Self {
            nodes: objects.nodes.iter().map(|node| node.metadata.name.as_str()).collect(),
            going: objects.nodes.iter().filter(|node| node.metadata.is_deleting()).map(|node| node.metadata.name.as_str()).collect(),
            daemon_sets: objects.daemon_sets.iter().map(|set| name(&set.metadata)).collect(),
        }
    }

    /// Why a pod that has no place in a plan has none, as the end of a sentence about it.
    pub(crate) fn why(&self, pod: &Pod) -> String {
        if pod.is_bound() && self.nodes.contains(pod.spec.node_name.as_str()) {
            return format!("it runs on {}, and stays there", pod.spec.node_name);
        }
        if pod.is_bound() {
            return format!("it runs on {}, a node that is not among the objects: nothing is planned for it", pod.spec.node_name);
        }
        if let Some(why) = bound_no_more(pod) {
            return why;
        }
        if pods::is_daemon_owned(pod) {
            return match self.has_daemon_set_of(pod) {
                true => "a DaemonSet owns it: it is counted on every machine that it would run on",
                false => "a DaemonSet owns it that is not among the objects: it is counted on no machine",
            }
            .to_owned();
        }
        if let Some(owner) = pod.metadata.owner_references.iter().find(|owner| owner.kind == "DaemonSet") {
            return format!("a DaemonSet of {} owns it, whose controller places it: it is counted on no machine", owner.api_version);
        }
        let nominated = &pod.status.nominated_node_name;
        if self.going.contains(nominated.as_str()) {
            return format!(
                "kube-scheduler has chosen {nominated} for it (status.nominatedNodeName), which is being deleted: nothing is planned for it \
                 until that is taken back"
            );
        }
        if self.nodes.contains(nominated.as_str()) {
            return format!(
                "kube-scheduler has chosen {nominated} for it (status.nominatedNodeName), where it counts: it is bound once its volumes are \
                 made, or others have made room"
            );
        }
        if !nominated.is_empty() && self.nodes.is_empty() {
            return format!("it waits for room on {nominated} (status.nominatedNodeName), a node that is not among the objects");
        }
        if !pod.spec.scheduling_gates.is_empty() {
            return "its spec.schedulingGates hold it back: the scheduler looks at it once they are removed".to_owned();
        }
        "the scheduler has not marked it unschedulable (condition PodScheduled, reason Unschedulable)".to_owned()
    }

    fn has_daemon_set_of(&self, pod: &Pod) -> bool {
        let owners = pod.metadata.owner_references.iter().filter(|owner| owner.kind == "DaemonSet");
        owners.into_iter().any(|owner| self.daemon_sets.contains(&(pod.metadata.namespace.as_str(), owner.name.as_str())))
    }

    /// Whether the pod is planned for although `status.nominatedNodeName` names a node: there is none of that name (scheduling 4.1).
    fn lost_its_node(&self, pod: &Pod) -> bool {
        let nominated = pod.status.nominated_node_name.as_str();
        if nominated.is_empty() || self.nodes.is_empty() || self.nodes.contains(nominated) {
            return false;
        }
        let mut free = pod.clone();
        free.status.nominated_node_name.clear();
        pods::is_provisionable(&free)
    }

    /// Whether no other part of the output mentions the pod: it is not pending for a reason that is shown, and runs on no known node.
    fn is_left_aside(&self, pod: &Pod) -> bool {
        let of_node = pod.metadata.owner_references.iter().any(|owner| owner.kind == "Node");
        let runs = pod.is_bound() && self.nodes.contains(pod.spec.node_name.as_str());
        let is_daemon = pods::is_daemon_owned(pod) && self.has_daemon_set_of(pod);
        let nominated = pod.status.nominated_node_name.as_str();
        let is_counted = !pod.is_bound() && (is_daemon || (self.nodes.contains(nominated) && !self.going.contains(nominated)));
        let is_told = pods::is_provisionable(pod) || self.lost_its_node(pod) || !pod.spec.scheduling_gates.is_empty();
        pods::is_active(pod) && !of_node && !runs && !is_counted && !is_told
    }
}

/// Why kube-scheduler binds a pod without a node no more.
fn bound_no_more(pod: &Pod) -> Option<String> {
    if pod.is_terminal() {
        return Some(format!("it has ended (status.phase {}): nothing binds it to a node any more", pod.status.phase));
    }
    let is_deleting = pod.metadata.is_deleting();
    is_deleting
        .then(|| "it is being deleted: nothing binds it to a node any more, and it is gone once its metadata.finalizers are".to_owned())
}

/// Of pods that nothing else tells of, by reason.
pub(super) fn remarks(objects: &ClusterObjects) -> Vec<Remark> {
    let known = Known::of(objects);
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in objects.pods.iter().filter(|pod| known.is_left_aside(pod)) {
        by_reason.entry(known.why(pod)).or_default().push(pod.metadata.key());
    }
    // A node each would be a remark each.
    let (on_nodes, others): (Vec<_>, Vec<_>) = by_reason.into_iter().partition(|(why, _)| why.starts_with("it runs on "));
    let nodes = on_nodes.len();
    let pods: Vec<String> = on_nodes.into_iter().flat_map(|(_, pods)| pods).collect();
    let of_nodes = if nodes == 1 { "a node that is" } else { "nodes that are" };
    let on_nodes = (0 < nodes).then(|| (format!("on {of_nodes} not among the objects"), pods));
    let remark = |(why, pods): (String, Vec<String>)| {
        let named = first_named(&pods, NAMED_MAX);
        Remark::note(format!("left aside: {named}: {why}"))
    };
    on_nodes.into_iter().chain(others).map(remark).collect()
}
