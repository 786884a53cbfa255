//! Pods that keep the nodes of a command after it was decided: they were bound to them since, or are protected by now.

use super::protection::protected_by;
use std::fmt;
use whittle_api::k8s::Pod;
use whittle_model::disruption::{Command, Reason, Removal, Savings};
use whittle_model::pods::is_reschedulable;
use whittle_units::{Price, Timestamp};

/// A pod that the command did not know, or not as a protected one, and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub node: String,
    /// `namespace/name`
    pub pod: String,
    /// The annotation that protects it; `None` where it has only been bound.
    pub protected_by: Option<&'static str>,
}

impl Arrival {
    fn of(pod: &Pod, removal: &Removal, now: Timestamp) -> Option<Self> {
        let protected_by = protected_by(pod, now);
        let is_new = is_reschedulable(pod) && !removal.pods.contains(&pod.metadata.key());
        let keeps = pod.spec.node_name == removal.node && (protected_by.is_some() || is_new);
        keeps.then(|| Self { node: removal.node.clone(), pod: pod.metadata.key(), protected_by })
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protected_by {
            Some(annotation) => write!(f, "pod {} has the annotation {annotation} by now", self.pod),
            None => write!(f, "pod {} was bound since", self.pod),
        }
    }
}

/// What remains of a command once its nodes have been read again, with every pod bound to them since.
///
/// An empty node that has received a pod is kept and the other empty nodes are still removed. Any other command is
/// dropped as a whole, because no simulation has placed the new pod. So it is with a pod that its owner has protected
/// since, of whichever kind: it would block the drain, and be deleted by force at the deadline of a NodeClaim that has
/// one. Drifted nodes are removed whatever is bound to them. `pods` are the pods on the nodes, bound before or after
/// the decision.
pub fn without_arrivals(command: &Command, pods: &[Pod], now: Timestamp) -> (Option<Command>, Vec<Arrival>) {
    let reason = command.method.reason();
    if reason == Reason::Drifted {
        return (Some(command.clone()), Vec::new());
    }
    let arrival = |removal: &Removal| pods.iter().find_map(|pod| Arrival::of(pod, removal, now));
    let arrivals: Vec<Arrival> = command.removals.iter().filter_map(arrival).collect();
    if arrivals.is_empty() {
        return (Some(command.clone()), arrivals);
    }
    let nodes: Vec<&str> = arrivals.iter().map(|arrival| arrival.node.as_str()).collect();
    let remaining = without_nodes(command, &nodes);
    (remaining, arrivals)
}

/// For each of these nodes, which were to be removed for being empty, a pod that keeps it, if there is one: bound to it since, or protected
/// by now. `pods` are those on the nodes.
pub fn arrivals_on<'a>(nodes: impl IntoIterator<Item = &'a str>, pods: &[Pod], now: Timestamp) -> Vec<Arrival> {
    let empty = nodes.into_iter().map(|node| Removal { node: node.to_owned(), ..Removal::default() });
    empty.filter_map(|removal| pods.iter().find_map(|pod| Arrival::of(pod, &removal, now))).collect()
}

/// What remains of a command without these of its nodes: of empty ones the others, since they go independently of each other; of any other
/// command nothing.
pub fn without_nodes(command: &Command, nodes: &[&str]) -> Option<Command> {
    let mut remaining = command.clone();
    remaining.removals.retain(|removal| !nodes.contains(&removal.node.as_str()));
    remaining.savings = Savings::between(remaining.removals.iter().map(|removal| removal.price).sum(), Price::ZERO);
    let remains = command.method.reason() == Reason::Empty && !remaining.removals.is_empty();
    remains.then_some(remaining)
}
