//! What the owners of pools, overlays and buffers are shown of a run.

use crate::{Rights, Run};
use whittle_api::karpenter::{CapacityBuffer, NodeOverlay, NodePool};
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::DecisionKind;
use whittle_core::buffers;
use whittle_core::overlays::Verdict;
use whittle_core::schedule::{Cause, Plan, PoolSays, machine_cost_fault};
use whittle_ports::{ClusterEvent, Involved, Report, StatusWriter};
use whittle_snapshot::Snapshot;
use whittle_units::Timestamp;

impl<P: Rights> Run<'_, P> {
    /// Writes the statuses that changed. What cannot be written now is written by a later run.
    pub(crate) async fn statuses(&self, seen: &Snapshot, plan: &Plan, report: &mut Report) {
        for overlay in overlays(seen) {
            if self.ports.cluster().write_node_overlay_status(self.cluster, &overlay).await.is_err() {
                report.count("statuses_failed");
            }
        }
        for buffer in buffers(seen, plan) {
            match self.ports.cluster().write_capacity_buffer_status(self.cluster, &buffer).await {
                Ok(()) => explain(report, &buffer, seen.now),
                Err(_) => report.count("statuses_failed"),
            }
        }
        for event in empty_pools(seen, plan).into_iter().chain(odd_costs(seen, plan)) {
            if self.ports.cluster().publish(self.cluster, &event).await.is_err() {
                report.count("events_failed");
            }
        }
    }
}

/// Overlays whose status does not say yet what became of them (scheduling 11.6). Pure.
pub(crate) fn overlays(seen: &Snapshot) -> Vec<NodeOverlay> {
    let told = |overlay: &NodeOverlay| {
        let mut out = overlay.clone();
        let (status, reason, message) = match seen.overlaid.verdicts.get(&overlay.metadata.name)? {
            Verdict::Used => (ConditionStatus::True, conditions::VALIDATION_SUCCEEDED, String::new()),
            Verdict::Invalid(what) => (ConditionStatus::False, "RuntimeValidation", what.clone()),
            Verdict::Conflict(with) => (ConditionStatus::False, "Conflict", format!("conflict with another overlay: {with}")),
        };
        let ready =
            if status == ConditionStatus::True { (conditions::READY, "") } else { ("UnhealthyDependents", "ValidationSucceeded=False") };
        let list = &mut out.status.conditions;
        conditions::set(list, conditions::VALIDATION_SUCCEEDED, status, reason, &message, seen.now);
        conditions::set(list, conditions::READY, status, ready.0, ready.1, seen.now);
        for condition in list.iter_mut() {
            condition.observed_generation = overlay.metadata.generation;
        }
        (out != *overlay).then_some(out)
    };
    seen.read.node_overlays.iter().filter(|overlay| !overlay.metadata.is_deleting()).filter_map(told).collect()
}

/// Buffers whose status does not say yet what this run found. Pure.
pub(crate) fn buffers(seen: &Snapshot, plan: &Plan) -> Vec<CapacityBuffer> {
    let told = buffers::after(&seen.buffers.list, plan, &seen.buffers.on_the_way, seen.now);
    let is_news = |buffer: &CapacityBuffer| {
        let known = seen.read.capacity_buffers.iter().find(|known| known.metadata.uid == buffer.metadata.uid);
        known.is_none_or(|known| known.status != buffer.status)
    };
    told.into_iter().filter(is_news).collect()
}

fn explain(report: &mut Report, buffer: &CapacityBuffer, now: Timestamp) {
    let list = &buffer.status.conditions;
    let unresolved = conditions::find(list, conditions::READY_FOR_PROVISIONING).filter(|c| c.status != ConditionStatus::True);
    let Some(condition) = unresolved.or_else(|| conditions::find(list, conditions::PROVISIONING)) else { return };
    let message =
        if condition.message.is_empty() { condition.reason.clone() } else { format!("{}: {}", condition.reason, condition.message) };
    report.decide(now, DecisionKind::Planned, format!("capacitybuffer/{}", buffer.metadata.key()), message);
    report.count("buffers_told");
}

/// Events for pools that nothing can be bought for, while there are pods to place (scheduling 27.2). Pure.
pub(crate) fn empty_pools(seen: &Snapshot, plan: &Plan) -> Vec<ClusterEvent> {
    if plan.pods == 0 {
        return Vec::new();
    }
    plan.empty_pools.iter().filter_map(|says| empty_pool(seen, says)).collect()
}

fn empty_pool(seen: &Snapshot, says: &PoolSays) -> Option<ClusterEvent> {
    let pool = seen.objects.node_pools.iter().find(|pool| pool.metadata.name == says.node_pool)?;
    let message = match &says.cause {
        Cause::MinValues { .. } => {
            format!("NodePool requirements filtered out all compatible available instance types due to minValues: {}", says.cause)
        }
        cause => format!("NodePool requirements filtered out all compatible available instance types: {cause}"),
    };
    Some(ClusterEvent::warning(owner(pool), "NoCompatibleInstanceTypes", message))
}

/// Events for pools whose annotation says nothing of what their machines cost that can be understood, while there are pods to
/// place: a quiet cluster hears nothing. Pure.
pub(crate) fn odd_costs(seen: &Snapshot, plan: &Plan) -> Vec<ClusterEvent> {
    if plan.pods == 0 {
        return Vec::new();
    }
    let odd = |pool: &NodePool| Some(ClusterEvent::warning(owner(pool), "MachineCostInvalid", machine_cost_fault(pool)?));
    seen.objects.node_pools.iter().filter_map(odd).collect()
}

/// The pool as its owner knows it.
fn owner(pool: &NodePool) -> Involved {
    let (api_version, kind) =
        if pool.is_converted_provisioner() { ("karpenter.sh/v1alpha5", "Provisioner") } else { ("karpenter.sh/v1", "NodePool") };
    Involved {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: NodePool::given_name(&pool.metadata.name).to_owned(),
        ..Involved::object(pool)
    }
}
