//! CapacityBuffers: how much room each keeps, and what became of it in a planning run (disruption 20, scheduling 30). Pure.
//!
//! A buffer's pods exist only while a decision is made: nobody creates, binds or evicts them.

#[cfg(test)]
mod tests;

use crate::pods::{effective_requests, is_virtual, virtual_pods};
use crate::schedule::{Plan, PodRef, Reason};
use std::collections::BTreeMap;
use whittle_api::k8s::{Pod, PodSource, PodSourceKind};
use whittle_api::karpenter::{BufferReference, CapacityBuffer};
use whittle_api::{ConditionStatus, conditions};
use whittle_units::Timestamp;

/// Pods that one buffer can stand for: a slip of the keyboard must not take the time of everybody's planning.
const REPLICAS_MAX: i64 = 5000;
/// What a strategy is when none is given.
const ACTIVE: &str = "buffer.x-k8s.io/active-capacity";

/// Why a buffer stands for no pods: reason and message of its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    pub reason: &'static str,
    pub message: String,
}

impl Unresolved {
    /// Something that asking again may cure.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { reason: "ResolutionFailed", message: message.into() }
    }
    /// The object that gives the pods their shape is not there.
    #[must_use]
    pub fn missing(kind: PodSourceKind, name: &str) -> Self {
        let reason = if kind == PodSourceKind::PodTemplate { "PodTemplateNotFound" } else { "ScalableRefNotFound" };
        Self { reason, message: format!("there is no {} {name:?} in the buffer's namespace", kind.as_str()) }
    }
}

/// A buffer and the pods that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// With the status that follows from what was read.
    pub object: CapacityBuffer,
    /// None while it is not ready, or keeps no room.
    pub pods: Vec<Pod>,
}

/// What gives a buffer's pods their shape: kind and name, in the buffer's namespace.
///
/// # Errors
/// The references name nothing that could.
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

/// The buffer as its source has it now.
#[must_use]
pub fn resolve(buffer: &CapacityBuffer, source: Result<&PodSource, &Unresolved>, now: Timestamp) -> Buffer {
    let mut object = buffer.clone();
    object.status.provisioning_strategy = Some(buffer.spec.provisioning_strategy.clone().unwrap_or_else(|| ACTIVE.to_owned()));
    let source = match source {
        Ok(source) => source,
        Err(unresolved) => {
            let list = &mut object.status.conditions;
            conditions::set(list, conditions::READY_FOR_PROVISIONING, ConditionStatus::False, unresolved.reason, &unresolved.message, now);
            return Buffer { object, pods: Vec::new() };
        }
    };
    let wanted = replicas(buffer, source);
    let held = wanted.min(REPLICAS_MAX);
    let message = if held < wanted { format!("{wanted} pods are asked for, of which {held} are looked after") } else { String::new() };
    let status = &mut object.status;
    status.replicas = Some(i32::try_from(held).unwrap_or(i32::MAX));
    let template = buffer.spec.pod_template_ref.as_ref();
    status.pod_template_ref = template.map(|template| BufferReference { name: template.name.clone(), ..BufferReference::default() });
    status.pod_template_generation = template.and(source.generation);
    conditions::set(&mut status.conditions, conditions::READY_FOR_PROVISIONING, ConditionStatus::True, "Resolved", &message, now);
    let pods = virtual_pods(&object, &source.template);
    Buffer { object, pods }
}

/// How many pods a buffer stands for: the larger of its number and its share, no more than its limits hold; what they hold
/// when they are all that it says.
fn replicas(buffer: &CapacityBuffer, source: &PodSource) -> i64 {
    let spec = &buffer.spec;
    let number = spec.replicas.map(i64::from);
    let share = spec.percentage.filter(|_| spec.scalable_ref.is_some()).map(|percent| {
        let (percent, of) = (i64::from(percent.max(0)), i64::from(source.replicas.max(0)));
        (percent * of + 99) / 100
    });
    let wanted = number.max(share);
    let pod = Pod { spec: source.template.spec.clone(), ..Pod::default() };
    let asks = effective_requests(&pod);
    let each = |(name, amount): (&str, whittle_units::Quantity)| {
        let request = asks.get(name).milli();
        (request > 0).then(|| amount.milli().max(0) / request)
    };
    let most = spec.limits.iter().filter_map(each).min();
    let count = match (wanted, most) {
        (Some(wanted), Some(most)) => wanted.min(most),
        (Some(wanted), None) => wanted,
        (None, Some(most)) => most,
        (None, None) => 0,
    };
    count.max(0)
}

/// How a run dealt with the pods of one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    fit: usize,
    new: usize,
    failed: usize,
}

/// The status of each buffer after a run. `on_the_way` are pods that a machine without an instance was asked for already.
#[must_use]
pub fn after(buffers: &[Buffer], plan: &Plan, on_the_way: &[PodRef], now: Timestamp) -> Vec<CapacityBuffer> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let owners: BTreeMap<&str, &str> = buffers
        .iter()
        .flat_map(|buffer| buffer.pods.iter().map(|pod| (pod.metadata.uid.as_str(), buffer.object.metadata.uid.as_str())))
        .collect();
    let mut count = |pod: &PodRef, field: fn(&mut Tally) -> &mut usize| {
        if let Some(owner) = owners.get(pod.uid.as_str()) {
            *field(tallies.entry(owner).or_default()) += 1;
        }
    };
    plan.placements.iter().flat_map(|placement| &placement.pods).for_each(|pod| count(pod, |tally| &mut tally.fit));
    plan.claims.iter().flat_map(|claim| &claim.pods).chain(on_the_way).for_each(|pod| count(pod, |tally| &mut tally.new));
    let failed = plan.left_out.iter().filter(|left| left.reason != Reason::OutOfBudget);
    failed.for_each(|left| count(&left.pod, |tally| &mut tally.failed));
    buffers.iter().map(|buffer| told(buffer, tallies.get(buffer.object.metadata.uid.as_str()).copied(), now)).collect()
}

fn told(buffer: &Buffer, tally: Option<Tally>, now: Timestamp) -> CapacityBuffer {
    let mut object = buffer.object.clone();
    let status = &mut object.status;
    let (held, reason, message) = if !conditions::is_true(&status.conditions, conditions::READY_FOR_PROVISIONING) {
        (ConditionStatus::False, "NotReadyForProvisioning", String::new())
    } else if status.replicas.unwrap_or(0) <= 0 {
        (ConditionStatus::False, "BufferEmpty", String::new())
    } else {
        // A run that did not get to any of its pods says nothing new.
        let Some(Tally { fit, new, failed }) = tally else { return object };
        if new + failed > 0 {
            let message = format!("{}/{} virtual pods required new capacity, {failed} failed", new + failed, fit + new + failed);
            (ConditionStatus::False, "RequiresNewCapacity", message)
        } else {
            (ConditionStatus::True, "FitsExistingCapacity", String::new())
        }
    };
    conditions::set(&mut status.conditions, conditions::PROVISIONING, held, reason, &message, now);
    object
}

/// How many pods of buffers a run placed on each machine that exists, by the name that the plan gives it.
#[must_use]
pub fn per_machine(plan: &Plan, buffers: &[Buffer]) -> BTreeMap<String, u32> {
    let pods = buffers.iter().flat_map(|buffer| &buffer.pods).filter(|pod| is_virtual(pod));
    let uids: std::collections::BTreeSet<&str> = pods.map(|pod| pod.metadata.uid.as_str()).collect();
    let on = |pods: &[PodRef]| u32::try_from(pods.iter().filter(|pod| uids.contains(pod.uid.as_str())).count()).unwrap_or(u32::MAX);
    plan.placements.iter().map(|placement| (placement.node.clone(), on(&placement.pods))).filter(|(_, count)| *count > 0).collect()
}
