//! Pods that came to nodes after a command about them was decided.

use super::command::{Command, Reason, Removal, Savings};
use crate::pods::is_reschedulable;
use whittle_api::k8s::Pod;
use whittle_units::Price;

/// A pod that a command does not know, and the node that it has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub node: String,
    /// `namespace/name`
    pub pod: String,
}

/// What is left of a command when its nodes were looked at once more, with everything that came to them since.
///
/// An empty node that has got a pod stays, and the others go; any other command goes whole or not at all, since nobody has
/// looked for a place for what came. Drifted nodes go whatever comes. `pods` are those on the nodes, bound since the decision or
/// before.
pub fn without_arrivals(command: &Command, pods: &[Pod]) -> (Option<Command>, Vec<Arrival>) {
    let reason = command.method.reason();
    if reason == Reason::Drifted {
        return (Some(command.clone()), Vec::new());
    }
    let unknown = |removal: &Removal, pod: &&Pod| {
        pod.spec.node_name == removal.node && is_reschedulable(pod) && !removal.pods.contains(&pod.metadata.key())
    };
    let arrival = |removal: &Removal| {
        let pod = pods.iter().find(|pod| unknown(removal, pod))?;
        Some(Arrival { node: removal.node.clone(), pod: pod.metadata.key() })
    };
    let arrivals: Vec<Arrival> = command.removals.iter().filter_map(arrival).collect();
    if arrivals.is_empty() {
        return (Some(command.clone()), arrivals);
    }
    let mut left = command.clone();
    left.removals.retain(|removal| arrivals.iter().all(|arrival| arrival.node != removal.node));
    left.savings = Savings::between(left.removals.iter().map(|removal| removal.price).sum(), Price::ZERO);
    let goes = reason == Reason::Empty && !left.removals.is_empty();
    (goes.then_some(left), arrivals)
}
