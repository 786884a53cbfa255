//! The entry point: from the input to the plan.

use super::assemble;
use super::packing;
use super::problem::Problem;
use whittle_model::scheduling::{Input, LeftOut, Options, Plan, PodRef};

/// Decides where the pods of `input` go. Pure and deterministic: the same input gives the same plan, whatever the order
/// of its objects.
#[must_use]
pub fn solve(input: &Input<'_>, options: &Options) -> Plan {
    let mut problem = assemble::build(input, options);
    if !problem.any_pool {
        // As in Karpenter, nothing is decided without NodePools: that is the reason of every pod.
        return plan_without_pools(&problem);
    }
    packing::best(&mut problem, options)
}

pub(crate) fn plan_without_pools(problem: &Problem<'_>) -> Plan {
    let mut left_out = problem.refused.clone();
    let pods = problem.queue.iter().map(|entry| problem.pods[entry.pod]);
    let reason = super::explain::no_node_pools(problem);
    left_out.extend(pods.map(|p| LeftOut { pod: PodRef::of(p), reason: reason.clone() }));
    left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
    Plan { pods: left_out.len(), left_out, ..Plan::default() }
}
