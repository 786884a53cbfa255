//! CapacityBuffers: the virtual pods of each buffer, and its status after a provisioning pass (disruption 20,
//! scheduling 30). Pure.
//!
//! Virtual pods exist only during a decision: they are never created, bound or evicted.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use whittle_api::k8s::{Pod, PodSource, PodSourceKind};
use whittle_api::karpenter::{BufferReference, CapacityBuffer};
use whittle_api::{ConditionStatus, conditions};
use whittle_model::pods::{effective_requests, is_virtual, virtual_pods};
use whittle_model::scheduling::{Plan, PodRef, Reason};
use whittle_units::Timestamp;

/// Limit on the virtual pods of one buffer, so that a typing error does not consume the time of the whole pass.
const REPLICAS_MAX: i64 = 5000;
/// The default provisioning strategy.
const DEFAULT_STRATEGY: &str = "buffer.x-k8s.io/active-capacity";

/// Why a buffer has no virtual pods: reason and message of its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    pub reason: &'static str,
    pub message: String,
}

impl Unresolved {
    /// A failure that a retry may resolve.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { reason: "ResolutionFailed", message: message.into() }
    }
    /// The object that defines the pods does not exist.
    #[must_use]
    pub fn missing(kind: PodSourceKind, name: &str) -> Self {
        let reason = if kind == PodSourceKind::PodTemplate { "PodTemplateNotFound" } else { "ScalableRefNotFound" };
        Self { reason, message: format!("there is no {} {name:?} in the buffer's namespace", kind.as_str()) }
    }
}

/// A buffer with its virtual pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The buffer with its updated status.
    pub object: CapacityBuffer,
    /// Empty while the buffer is not ready or has no replicas.
    pub pods: Vec<Pod>,
}

/// Kind and name of the object that defines a buffer's pods, in the buffer's namespace.
///
/// # Errors
///
/// The reference is missing or of an unsupported kind.
pub fn source_of(buffer: &CapacityBuffer) -> Result<(PodSourceKind, &str), Unresolved> {
    if let Some(template) = &buffer.spec.pod_template_ref {
        return Ok((PodSourceKind::PodTemplate, &template.name));
    }
    let Some(scalable) = &buffer.spec.scalable_ref else {
        return Err(Unresolved::failed("name the pods' shape: spec.podTemplateRef or spec.scalableRef"));
    };
    if !matches!(scalable.api_group.as_str(), "" | "apps") {
        let group = &scalable.api_group;
        return Err(Unresolved::failed(format!("spec.scalableRef.apiGroup {group:?} is not supported: use apps")));
    }
    let kinds = [PodSourceKind::Deployment, PodSourceKind::StatefulSet, PodSourceKind::ReplicaSet];
    let Some(kind) = kinds.into_iter().find(|kind| kind.as_str() == scalable.kind) else {
        let kind = &scalable.kind;
        return Err(Unresolved::failed(format!(
            "spec.scalableRef.kind {kind:?} is not supported: use Deployment, StatefulSet or ReplicaSet"
        )));
    };
    Ok((kind, &scalable.name))
}

/// Computes the buffer's status and virtual pods from its source.
#[must_use]
pub fn resolve(buffer: &CapacityBuffer, source: Result<&PodSource, &Unresolved>, now: Timestamp) -> Buffer {
    let mut object = buffer.clone();
    object.status.provisioning_strategy = Some(buffer.spec.provisioning_strategy.clone().unwrap_or_else(|| DEFAULT_STRATEGY.to_owned()));
    let source = match source {
        Ok(source) => source,
        Err(unresolved) => {
            let list = &mut object.status.conditions;
            conditions::set(list, conditions::READY_FOR_PROVISIONING, ConditionStatus::False, unresolved.reason, &unresolved.message, now);
            return Buffer { object, pods: Vec::new() };
        }
    };
    let wanted = replicas(buffer, source);
    let capped = wanted.min(REPLICAS_MAX);
    let message = if capped < wanted { format!("{wanted} pods are asked for, of which {capped} are looked after") } else { String::new() };
    let status = &mut object.status;
    status.replicas = Some(i32::try_from(capped).unwrap_or(i32::MAX));
    let template = buffer.spec.pod_template_ref.as_ref();
    status.pod_template_ref = template.map(|template| BufferReference { name: template.name.clone(), ..BufferReference::default() });
    status.pod_template_generation = template.and(source.generation);
    conditions::set(&mut status.conditions, conditions::READY_FOR_PROVISIONING, ConditionStatus::True, "Resolved", &message, now);
    let pods = virtual_pods(&object, &source.template);
    Buffer { object, pods }
}

/// Number of virtual pods: the larger of `replicas` and the percentage, at most what the limits allow; or what the
/// limits allow if nothing else is given.
fn replicas(buffer: &CapacityBuffer, source: &PodSource) -> i64 {
    let spec = &buffer.spec;
    let number = spec.replicas.map(i64::from);
    let share = spec.percentage.filter(|_| spec.scalable_ref.is_some()).map(|percent| {
        let (percent, of) = (i64::from(percent.max(0)), i64::from(source.replicas.max(0)));
        (percent * of + 99) / 100
    });
    let wanted = number.max(share);
    let pod = Pod { spec: source.template.spec.clone(), ..Pod::default() };
    let requests = effective_requests(&pod);
    let each = |(name, amount): (&str, whittle_units::Quantity)| {
        let request = requests.get(name).milli();
        (request > 0).then(|| amount.milli().max(0) / request)
    };
    let limit = spec.limits.iter().filter_map(each).min();
    let count = match (wanted, limit) {
        (Some(wanted), Some(limit)) => wanted.min(limit),
        (Some(wanted), None) => wanted,
        (None, Some(limit)) => limit,
        (None, None) => 0,
    };
    count.max(0)
}

/// Where a pass placed the pods of one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PlacementCounts {
    fit: usize,
    new: usize,
    failed: usize,
}

/// The status of each buffer after a pass. `on_the_way` are pods planned on machines that are being launched.
#[must_use]
pub fn updated_statuses(buffers: &[Buffer], plan: &Plan, on_the_way: &[PodRef], now: Timestamp) -> Vec<CapacityBuffer> {
    let mut counts_by_buffer: BTreeMap<&str, PlacementCounts> = BTreeMap::new();
    let owners: BTreeMap<&str, &str> = buffers
        .iter()
        .flat_map(|buffer| buffer.pods.iter().map(|pod| (pod.metadata.uid.as_str(), buffer.object.metadata.uid.as_str())))
        .collect();
    let mut count = |pod: &PodRef, field: fn(&mut PlacementCounts) -> &mut usize| {
        if let Some(owner) = owners.get(pod.uid.as_str()) {
            *field(counts_by_buffer.entry(owner).or_default()) += 1;
        }
    };
    plan.placements.iter().flat_map(|placement| &placement.pods).for_each(|pod| count(pod, |counts| &mut counts.fit));
    plan.claims.iter().flat_map(|claim| &claim.pods).chain(on_the_way).for_each(|pod| count(pod, |counts| &mut counts.new));
    let failed = plan.left_out.iter().filter(|left| left.reason != Reason::OutOfBudget);
    failed.for_each(|left| count(&left.pod, |counts| &mut counts.failed));
    buffers
        .iter()
        .map(|buffer| with_provisioning_condition(buffer, counts_by_buffer.get(buffer.object.metadata.uid.as_str()).copied(), now))
        .collect()
}

fn with_provisioning_condition(buffer: &Buffer, counts: Option<PlacementCounts>, now: Timestamp) -> CapacityBuffer {
    let mut object = buffer.object.clone();
    let status = &mut object.status;
    let (status_value, reason, message) = if !conditions::is_true(&status.conditions, conditions::READY_FOR_PROVISIONING) {
        (ConditionStatus::False, "NotReadyForProvisioning", String::new())
    } else if status.replicas.unwrap_or(0) <= 0 {
        (ConditionStatus::False, "BufferEmpty", String::new())
    } else {
        // A pass that reached none of its pods changes nothing.
        let Some(PlacementCounts { fit, new, failed }) = counts else { return object };
        if new + failed > 0 {
            let message = format!("{}/{} virtual pods required new capacity, {failed} failed", new + failed, fit + new + failed);
            (ConditionStatus::False, "RequiresNewCapacity", message)
        } else {
            (ConditionStatus::True, "FitsExistingCapacity", String::new())
        }
    };
    conditions::set(&mut status.conditions, conditions::PROVISIONING, status_value, reason, &message, now);
    object
}

/// How many virtual pods a pass placed on each existing machine, by the name that the plan uses.
#[must_use]
pub fn virtual_pods_by_machine(plan: &Plan, buffers: &[Buffer]) -> BTreeMap<String, u32> {
    let pods = buffers.iter().flat_map(|buffer| &buffer.pods).filter(|pod| is_virtual(pod));
    let uids: std::collections::BTreeSet<&str> = pods.map(|pod| pod.metadata.uid.as_str()).collect();
    let on = |pods: &[PodRef]| u32::try_from(pods.iter().filter(|pod| uids.contains(pod.uid.as_str())).count()).unwrap_or(u32::MAX);
    plan.placements.iter().map(|placement| (placement.node.clone(), on(&placement.pods))).filter(|(_, count)| *count > 0).collect()
}
