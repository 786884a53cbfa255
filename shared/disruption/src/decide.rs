//! The driver of a pass: tries the methods in order until one finds a command.

use super::cluster_view::ClusterView;
use super::decision::Decision;
use super::pass::{Pass, PoolMode};
use super::{drift_execution, emptiness, multi, single, static_drift};
use whittle_api::karpenter::NodePool;
use whittle_model::disruption::{Command, Input, Method};
use whittle_model::scheduling::Packing;

/// Decides one pass. Pure: the same input gives the same decision.
///
/// Pools in shadow mode are decided in a second pass, as if only their nodes could be disrupted. Its commands are
/// returned in [`Decision::shadow`] and never executed.
#[must_use]
pub fn decide(input: Input<'_>) -> Decision {
    decide_observed(input, &mut |_| ())
}

/// Like [`decide`], and calls `watch` after each method, so that a caller with a clock can measure it.
#[must_use]
pub fn decide_observed(input: Input<'_>, watch: &mut dyn FnMut(Method)) -> Decision {
    let view = ClusterView::new(input);
    let mut decision = run(&view, PoolMode::Active, watch);
    if view.pools().any(NodePool::is_shadow) {
        let shadow = run(&view, PoolMode::Shadow, watch);
        decision.shadow = shadow.commands;
        for (verdict, verdict_in_shadow) in decision.verdicts.iter_mut().zip(shadow.verdicts) {
            if view.pool(&verdict_in_shadow.node_pool).is_some_and(NodePool::is_shadow) {
                *verdict = verdict_in_shadow;
            }
        }
    }
    decision
}

fn run(view: &ClusterView<'_>, mode: PoolMode, watch: &mut dyn FnMut(Method)) -> Decision {
    let mut pass = Pass::new(view, mode);
    let mut commands = Vec::new();
    let mut last_method = Method::SingleNode;
    for method in Method::ALL {
        commands = run_method(&mut pass, method);
        watch(method);
        if !commands.is_empty() {
            last_method = method;
            break;
        }
    }
    let best = view.input.settings.solve.packing == Packing::Best;
    if best && last_method == Method::MultiNode && !commands.is_empty() {
        // A single node may save more than the best set of nodes.
        let best_savings = |commands: &[Command]| commands.iter().map(|command| command.savings).max();
        let single_node = single::commands(&mut pass, single::Aim::Command);
        watch(Method::SingleNode);
        if best_savings(&single_node) > best_savings(&commands) {
            commands = single_node;
        }
    } else if best && last_method != Method::SingleNode {
        // Earlier methods may find commands in every pass; the verdicts of single-node consolidation are computed all
        // the same.
        single::commands(&mut pass, single::Aim::Verdicts);
        watch(Method::SingleNode);
    }
    pass.finish(commands)
}

fn run_method(pass: &mut Pass<'_>, method: Method) -> Vec<Command> {
    match method {
        Method::Emptiness => emptiness::commands(pass),
        Method::StaticDrift => static_drift::commands(pass),
        Method::Drift => drift_execution::commands(pass),
        Method::MultiNode => multi::commands(pass),
        Method::SingleNode => single::commands(pass, single::Aim::Command),
    }
}
