//! Writes the results of a run to the status of pools, overlays and buffers.

use crate::{RESERVE_FOR_MEMORY, Rights, Run};
use std::collections::BTreeMap;
use whittle_api::ConditionStatus;
use whittle_api::conditions::{self, ConditionValue};
use whittle_api::karpenter::{CapacityBuffer, NodeOverlay, NodePool};
use whittle_claims::DecisionKind;
use whittle_model::scheduling::{Cause, Plan, PoolRejection};
use whittle_ports::{CONCURRENT_REQUESTS, Clock, ClusterEvent, Involved, Report, StatusWriter, concurrently, publish_events};
use whittle_snapshot::Snapshot;
use whittle_solver::overlays::OverlayStatus;
use whittle_solver::{buffers, machine_cost_fault};
use whittle_units::Timestamp;

impl<P: Rights> Run<'_, P> {
    /// Writes the statuses that changed. A failed write is retried by a later run.
    pub(crate) async fn write_statuses(&self, snapshot: &Snapshot, plan: &Plan, report: &mut Report) {
        let mut events = Vec::new();
        for (before, overlay) in changed_overlays(snapshot) {
            match self.ports.cluster().write_node_overlay_status(self.cluster, &overlay).await {
                Ok(()) => events.extend(ClusterEvent::of_change(before, &overlay, |overlay| overlay.status.conditions.as_slice())),
                Err(_) => report.count("statuses_failed"),
            }
        }
        self.write_buffers(&changed_buffers(snapshot, plan), snapshot.now, report).await;
        events.extend(empty_pools(snapshot, plan).into_iter().chain(invalid_costs(snapshot, plan)));
        publish_events(self.ports, self.cluster, &events, report).await;
    }

    /// Writes the statuses of buffers, while there is time.
    async fn write_buffers(&self, changed: &[CapacityBuffer], now: Timestamp, report: &mut Report) {
        let cluster = self.ports.cluster();
        for some in changed.chunks(CONCURRENT_REQUESTS) {
            if !self.ports.clock().has_time_for(RESERVE_FOR_MEMORY) {
                report.count("statuses_postponed");
                return;
            }
            let answers = concurrently(some.iter().map(|buffer| cluster.write_capacity_buffer_status(self.cluster, buffer))).await;
            for (buffer, answer) in some.iter().zip(answers) {
                match answer {
                    Ok(()) => record_buffer(report, buffer, now),
                    Err(_) => report.count("statuses_failed"),
                }
            }
        }
    }
}

/// The most buffers whose status one run writes: whoever may create one may create thousands, and other pods wait for the next run.
const BUFFERS_TOLD_MAX: usize = 200;

/// What a valid overlay without an effect shows; as with Karpenter, it is ready.
const UNMATCHED_OVERLAY: &str = "it changes nothing: no instance type that a NodePool is offered meets spec.requirements";

/// Overlays whose status does not reflect their evaluation yet, as they were read and as they should be (scheduling 11.6). Pure.
pub(crate) fn changed_overlays(snapshot: &Snapshot) -> Vec<(&NodeOverlay, NodeOverlay)> {
    let with_conditions = |overlay: &NodeOverlay| {
        let mut out = overlay.clone();
        let validation = match snapshot.overlaid.statuses.get(&overlay.metadata.name)? {
            OverlayStatus::Used => ConditionValue::yes(),
            OverlayStatus::Unmatched => ConditionValue { message: UNMATCHED_OVERLAY.to_owned(), ..ConditionValue::yes() },
            OverlayStatus::Invalid(what) => ConditionValue::no("RuntimeValidation", what.clone()),
            OverlayStatus::Conflict(with) => ConditionValue::no("Conflict", format!("conflict with another overlay: {with}")),
        };
        let list = &mut out.status.conditions;
        validation.set_on(list, conditions::VALIDATION_SUCCEEDED, snapshot.now);
        conditions::set_ready(list, &[conditions::VALIDATION_SUCCEEDED], snapshot.now);
        for condition in list.iter_mut() {
            condition.observed_generation = overlay.metadata.generation;
        }
        (out != *overlay).then_some(out)
    };
    let kept = snapshot.read.node_overlays.iter().filter(|overlay| !overlay.metadata.is_deleting());
    kept.filter_map(|overlay| Some((overlay, with_conditions(overlay)?))).collect()
}

/// Buffers whose status does not reflect this run yet, as many as one run writes: the first of each namespace, then the second, and so on.
/// Which namespace and which of its buffers is the first is another one each second: where more than that change in every run, each has its
/// turn. Pure.
pub(crate) fn changed_buffers(snapshot: &Snapshot, plan: &Plan) -> Vec<CapacityBuffer> {
    let updated = buffers::updated_statuses(&snapshot.buffers.list, plan, &snapshot.buffers.on_the_way, snapshot.now);
    let read = snapshot.read.capacity_buffers.iter();
    let known: BTreeMap<&str, &CapacityBuffer> = read.map(|buffer| (buffer.metadata.uid.as_str(), buffer)).collect();
    let is_changed = |buffer: &CapacityBuffer| known.get(buffer.metadata.uid.as_str()).is_none_or(|known| known.status != buffer.status);
    let mut by_namespace: BTreeMap<String, Vec<CapacityBuffer>> = BTreeMap::new();
    for buffer in updated {
        by_namespace.entry(buffer.metadata.namespace.clone()).or_default().push(buffer);
    }
    let namespaces = by_namespace.len();
    let first = first_of(namespaces, OF_NAMESPACES, snapshot.now);
    let mut changed: Vec<(usize, usize, CapacityBuffer)> = Vec::new();
    for (at, mut of_namespace) in by_namespace.into_values().enumerate() {
        let turn = (at + namespaces - first) % namespaces;
        // Of all of them: which others have changed makes no difference to whose turn it is.
        let first = first_of(of_namespace.len(), OF_BUFFERS, snapshot.now);
        of_namespace.rotate_left(first);
        changed.extend(of_namespace.into_iter().filter(is_changed).enumerate().map(|(place, buffer)| (place, turn, buffer)));
    }
    changed.sort_by_key(|(place, turn, _)| (*place, *turn));
    changed.into_iter().map(|(.., buffer)| buffer).take(BUFFERS_TOLD_MAX).collect()
}

/// 2^64 by the fractions of the golden ratio and of the square root of two. Multiples of either are spread evenly, whatever the interval of
/// the runs, and those of one independently of those of the other: each buffer of each namespace has its turn.
pub(crate) const OF_BUFFERS: u64 = 0x9e37_79b9_7f4a_7c15;
pub(crate) const OF_NAMESPACES: u64 = 0x6a09_e667_f3bc_c908;

/// Which of so many is the first now. Pure.
pub(crate) fn first_of(count: usize, stride: u64, now: Timestamp) -> usize {
    let share = u128::from(now.as_second().unsigned_abs().wrapping_mul(stride));
    usize::try_from((share * count as u128) >> u64::BITS).unwrap_or_default()
}

fn record_buffer(report: &mut Report, buffer: &CapacityBuffer, now: Timestamp) {
    let list = &buffer.status.conditions;
    let unresolved = conditions::find(list, conditions::READY_FOR_PROVISIONING).filter(|c| c.status != ConditionStatus::True);
    let Some(condition) = unresolved.or_else(|| conditions::find(list, conditions::PROVISIONING)) else { return };
    let message =
        if condition.message.is_empty() { condition.reason.clone() } else { format!("{}: {}", condition.reason, condition.message) };
    report.decide(now, DecisionKind::Planned, format!("capacitybuffer/{}", buffer.metadata.key()), message);
    report.count("buffers_told");
}

/// Events for pools without any compatible instance type, while there are pods to schedule (scheduling 27.2). Pure.
pub(crate) fn empty_pools(snapshot: &Snapshot, plan: &Plan) -> Vec<ClusterEvent> {
    if plan.pods == 0 {
        return Vec::new();
    }
    plan.unusable_pools.iter().filter_map(|rejection| empty_pool(snapshot, rejection)).collect()
}

fn empty_pool(snapshot: &Snapshot, rejection: &PoolRejection) -> Option<ClusterEvent> {
    let pool = snapshot.objects.node_pools.iter().find(|pool| pool.metadata.name == rejection.node_pool)?;
    if rejection.cause.unready().is_some() {
        return None; // its conditions say why, or it was applied just now; Karpenter leaves such a pool out as well
    }
    let message = match &rejection.cause {
        Cause::MinValues { .. } => {
            format!("NodePool requirements filtered out all compatible available instance types due to minValues: {}", rejection.cause)
        }
        cause => format!("NodePool requirements filtered out all compatible available instance types: {cause}"),
    };
    Some(ClusterEvent::warning(Involved::object(pool), "NoCompatibleInstanceTypes", message))
}

/// Events for pools whose machine cost annotation is invalid, while there are pods to schedule. Pure.
pub(crate) fn invalid_costs(snapshot: &Snapshot, plan: &Plan) -> Vec<ClusterEvent> {
    if plan.pods == 0 {
        return Vec::new();
    }
    let warning = |pool: &NodePool| Some(ClusterEvent::warning(Involved::object(pool), "MachineCostInvalid", machine_cost_fault(pool)?));
    snapshot.objects.node_pools.iter().filter_map(warning).collect()
}
