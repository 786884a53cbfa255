//! Pods that were bound to the nodes of a command after it was decided.

use whittle_api::k8s::Pod;
use whittle_model::disruption::{Command, Reason, Removal, Savings};
use whittle_model::pods::is_reschedulable;
use whittle_units::Price;

/// A pod that the command does not list, and the node it was bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub node: String,
    /// `namespace/name`
    pub pod: String,
}

/// What remains of a command once its nodes have been read again, with every pod bound to them since.
///
/// An empty node that has received a pod is kept and the other empty nodes are still removed. Any other command is
/// dropped as a whole, because no simulation has placed the new pod. Drifted nodes are removed whatever is bound to
/// them. `pods` are the pods on the nodes, bound before or after the decision.
pub fn without_arrivals(command: &Command, pods: &[Pod]) -> (Option<Command>, Vec<Arrival>) {
    let reason = command.method.reason();
    if reason == Reason::Drifted {
        return (Some(command.clone()), Vec::new());
    }
    let is_new = |removal: &Removal, pod: &&Pod| {
        pod.spec.node_name == removal.node && is_reschedulable(pod) && !removal.pods.contains(&pod.metadata.key())
    };
    let arrival = |removal: &Removal| {
        let pod = pods.iter().find(|pod| is_new(removal, pod))?;
        Some(Arrival { node: removal.node.clone(), pod: pod.metadata.key() })
    };
    let arrivals: Vec<Arrival> = command.removals.iter().filter_map(arrival).collect();
    if arrivals.is_empty() {
        return (Some(command.clone()), arrivals);
    }
    let nodes: Vec<&str> = arrivals.iter().map(|arrival| arrival.node.as_str()).collect();
    let remaining = without_nodes(command, &nodes);
    (remaining, arrivals)
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
