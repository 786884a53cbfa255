//! CapacityBuffers: the virtual pods of each buffer, and its status after a provisioning pass (disruption 20,
//! scheduling 30). Pure.
//!
//! Virtual pods exist only during a decision: they are never created, bound or evicted.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions::{self, ConditionValue};
use whittle_api::k8s::{Pod, PodSource, PodSourceKind, PodSpec, PodTemplate};
use whittle_api::karpenter::{BufferReference, CapacityBuffer};
use whittle_api::{ConditionStatus, Shared};
use whittle_model::pods::{effective_requests, is_virtual, virtual_pods};
use whittle_model::scheduling::{Plan, PodRef, Reason};
use whittle_units::{Resources, Timestamp};

/// Limit on the virtual pods of one buffer, so that a typing error does not consume the time of the whole pass.
const REPLICAS_MAX: i64 = 5000;
/// Limit on the virtual pods of all buffers of a cluster, which every decision about it has to place.
const PODS_MAX: usize = 10_000;
/// A pod counts as one for so many bytes of its template. Virtual pods cost nobody anything in the API server, and memory here.
const POD_BYTES: usize = 4096;
/// Limit on the objects that define the pods of all buffers of a cluster: each is asked for alone, before every decision.
const SOURCES_MAX: usize = 1000;
/// Resources that a message names. An API server refuses the whole status for a message of more than 32,768 characters.
const NAMED_MAX: usize = 10;
/// Characters of a text of the user's that a message repeats: no name of a resource is longer.
const SHOWN_MAX: usize = 317;
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
        Self { reason, message: format!("there is no {} {:?} in the buffer's namespace", kind.as_str(), shown(name)) }
    }
    /// The API server has refused another object of this kind in the same run, and was not asked for this one.
    #[must_use]
    pub fn refused(kind: PodSourceKind) -> Self {
        Self::failed(format!(
            "the API server refuses to show a {}, so that this one was not asked for: is infra/cluster/rbac.yaml of this release applied?",
            kind.as_str()
        ))
    }
    /// The object is beyond the limit.
    #[must_use]
    pub fn beyond_limit() -> Self {
        Self::failed(format!(
            "all buffers of a cluster together have their pods of no more than {SOURCES_MAX} templates and workloads, which namespaces \
             share evenly; let several buffers name one"
        ))
    }
}

/// The object that defines the pods of buffers, and what follows from it alone: thousands may name one, and it may be long.
#[derive(Clone, Debug)]
pub struct MeasuredSource<'a> {
    source: &'a PodSource,
    /// As how many each of its pods counts.
    weight: usize,
    /// What each of its pods asks for.
    requests: Resources,
    /// That its pods ask for less than real ones.
    understated: String,
}

impl<'a> MeasuredSource<'a> {
    /// Measures an object.
    #[must_use]
    pub fn of(source: &'a PodSource) -> Self {
        let pod = Pod { spec: source.template.spec.clone(), ..Pod::default() };
        let understated = understated(&source.template.spec);
        Self { source, weight: weight(&source.template), requests: effective_requests(&pod), understated }
    }
}

/// A buffer with its virtual pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The buffer with its updated status.
    pub object: CapacityBuffer,
    /// Empty while the buffer is not ready or has no replicas.
    pub pods: Vec<Pod>,
    /// How many pods its spec asks for.
    asked_for: i64,
    /// As how many each of them counts.
    weight: usize,
    /// Why there are fewer pods than that; empty if there are as many.
    pub shortfall: String,
    /// That its pods ask for less than real ones of its template; empty if they ask for as much.
    pub understated: String,
    /// That its limits alone say how many pods it has, and allow none because its pods ask for nothing of them; empty otherwise.
    pub unlimited: String,
}

impl Buffer {
    /// Leaves out the pods whose names real ones have, which a user made: names are unique.
    pub fn omit(&mut self, taken: &BTreeSet<String>, now: Timestamp) {
        let before = self.pods.len();
        self.pods.retain(|pod| taken.is_empty() || !taken.contains(&pod.metadata.key()));
        if self.pods.len() < before {
            self.falls_short("there are pods with the names of the others (capacity-buffer-*); delete those, or rename the buffer", now);
        }
    }

    /// Shows in its status that it has only the pods that are left, and why.
    fn falls_short(&mut self, why: &str, now: Timestamp) {
        self.shortfall = format!("{} of its {} pods are kept free: {why}", self.pods.len(), self.asked_for);
        let status = &mut self.object.status;
        status.replicas = Some(i32::try_from(self.pods.len()).unwrap_or(i32::MAX));
        let messages = [self.shortfall.as_str(), &self.understated];
        let message: Vec<&str> = messages.into_iter().filter(|message| !message.is_empty()).collect();
        let list = &mut status.conditions;
        conditions::set(list, conditions::READY_FOR_PROVISIONING, ConditionStatus::True, "Resolved", &message.join("; "), now);
    }
}

/// That no room is kept for resources that the pods of a template have as limits alone: an API server takes limits for requests in pods,
/// and not in templates, of which the pods of a buffer are made, as by Karpenter. Accelerators are mostly written as limits.
fn understated(spec: &PodSpec) -> String {
    let limited = || spec.containers.iter().chain(spec.init_containers.iter()).filter_map(|container| container.resources.as_ref());
    let of_whole: BTreeSet<&String> = spec.resources.iter().flat_map(|whole| whole.requests.0.keys()).collect();
    let alone = limited().flat_map(|resources| resources.limits.0.keys().filter(move |name| !resources.requests.0.contains_key(*name)));
    // A limit of the pod as a whole is its request where no container asks for any.
    let asked_for: BTreeSet<&String> = limited().flat_map(|resources| resources.requests.0.keys()).collect();
    let alone_as_whole = spec.resources.iter().flat_map(|whole| whole.limits.0.keys()).filter(|name| !asked_for.contains(name));
    let names: BTreeSet<&str> = alone.chain(alone_as_whole).filter(|name| !of_whole.contains(name)).map(String::as_str).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "no room is kept for {}, which the template of its pods has in resources.limits alone: write it into resources.requests as well",
        named(&names)
    )
}

/// That a buffer has no pods because its limits alone say how many, and are of nothing that its pods ask for; empty otherwise.
fn unlimited(buffer: &CapacityBuffer, source: &MeasuredSource<'_>) -> String {
    let names: BTreeSet<&str> = buffer.spec.limits.iter().map(|(name, _)| name).collect();
    if names.is_empty() || wanted(buffer, source).is_some() || allowed(buffer, source).is_some() {
        return String::new();
    }
    format!(
        "it has no pods, for the template requests nothing of what spec.limits has ({}): give spec.replicas, or a limit on a resource that \
         the template has in resources.requests",
        named(&names)
    )
}

/// The first of these names, and how many more there are.
fn named(names: &BTreeSet<&str>) -> String {
    let first: Vec<String> = names.iter().take(NAMED_MAX).map(|name| shown(name)).collect();
    let more = if names.len() > NAMED_MAX { format!(" and {} more", names.len() - NAMED_MAX) } else { String::new() };
    format!("{}{more}", first.join(", "))
}

/// A text of the user's, or its beginning.
fn shown(text: &str) -> String {
    text.char_indices().nth(SHOWN_MAX).map_or_else(|| text.to_owned(), |(end, _)| format!("{}...", &text[..end]))
}

/// Keeps the pods of all buffers of a cluster within the limit. Namespaces share it evenly, and so do the buffers within a namespace: one
/// that asks for little gets that, whatever others ask for. A buffer that gets fewer pods than it asks for has a note about it.
pub fn limit_pods(buffers: &mut [Buffer], now: Timestamp) {
    let wanted = |buffer: &Buffer| buffer.pods.len() * buffer.weight;
    let wanted: Vec<(String, usize)> = buffers.iter().map(|buffer| (buffer.object.metadata.namespace.clone(), wanted(buffer))).collect();
    for (buffer, share) in buffers.iter_mut().zip(shares(&wanted, PODS_MAX)) {
        let most = share / buffer.weight;
        if buffer.pods.len() > most {
            buffer.pods.truncate(most);
            buffer.falls_short(&beyond_share(buffer.weight), now);
        }
    }
}

/// Why a buffer has no more pods than its share.
fn beyond_share(weight: usize) -> String {
    let of_long_template = if weight == 1 {
        String::new()
    } else {
        format!(" (a pod of this template counts as {weight}, for its affinity, node selector or volumes are as long as those of so many)")
    };
    format!(
        "all buffers of a cluster together have no more than {PODS_MAX}{of_long_template}, which namespaces share evenly, and buffers \
         within one; ask for fewer and larger pods"
    )
}

/// What each of some has of a total, by its namespace and what it wants.
fn shares(wanted: &[(String, usize)], total: usize) -> Vec<usize> {
    let mut by_namespace: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, (namespace, _)) in wanted.iter().enumerate() {
        by_namespace.entry(namespace).or_default().push(at);
    }
    let of = |places: &[usize]| -> Vec<usize> { places.iter().map(|at| wanted[*at].1).collect() };
    let totals: Vec<usize> = by_namespace.values().map(|places| of(places).iter().sum()).collect();
    let mut shares = vec![0; wanted.len()];
    for (places, share) in by_namespace.values().zip(fair_shares(&totals, total)) {
        for (at, share) in places.iter().zip(fair_shares(&of(places), share)) {
            shares[*at] = share;
        }
    }
    shares
}

/// What each has of a total: what it wants, or an even part of what those that want less leave.
fn fair_shares(wanted: &[usize], total: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| wanted[*at]);
    let (mut shares, mut left) = (vec![0; wanted.len()], total);
    for (before, at) in order.iter().enumerate() {
        shares[*at] = wanted[*at].min(left / (wanted.len() - before));
        left -= shares[*at];
    }
    shares
}

/// The objects to ask for, each by its namespace, kind and name: all of them, or as many as are allowed.
#[must_use]
pub fn limit_sources<'a>(named: BTreeSet<(&'a str, PodSourceKind, &'a str)>) -> Vec<(&'a str, PodSourceKind, &'a str)> {
    let mut by_namespace: BTreeMap<&str, usize> = BTreeMap::new();
    for (namespace, ..) in &named {
        *by_namespace.entry(*namespace).or_default() += 1;
    }
    let wanted: Vec<usize> = by_namespace.values().copied().collect();
    let mut left: BTreeMap<&str, usize> = by_namespace.into_keys().zip(fair_shares(&wanted, SOURCES_MAX)).collect();
    let mut is_within = |namespace: &str| {
        let Some(left) = left.get_mut(namespace).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    };
    named.into_iter().filter(|(namespace, ..)| is_within(namespace)).collect()
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
        let group = shown(&scalable.api_group);
        return Err(Unresolved::failed(format!("spec.scalableRef.apiGroup {group:?} is not supported: use apps")));
    }
    let kinds = [PodSourceKind::Deployment, PodSourceKind::StatefulSet, PodSourceKind::ReplicaSet];
    let Some(kind) = kinds.into_iter().find(|kind| kind.as_str() == scalable.kind) else {
        let kind = shown(&scalable.kind);
        return Err(Unresolved::failed(format!(
            "spec.scalableRef.kind {kind:?} is not supported: use Deployment, StatefulSet or ReplicaSet"
        )));
    };
    Ok((kind, &scalable.name))
}

/// Computes the status and the virtual pods of all buffers of a cluster from their sources. No pod is made beyond the limit.
#[must_use]
pub fn resolve_all(buffers: &[(&CapacityBuffer, Result<&MeasuredSource<'_>, Unresolved>)], now: Timestamp) -> Vec<Buffer> {
    let wanted = |buffer: &CapacityBuffer, source: &MeasuredSource<'_>| {
        let pods = replicas(buffer, source).min(REPLICAS_MAX);
        usize::try_from(pods).unwrap_or_default() * source.weight
    };
    let wanted: Vec<(String, usize)> = buffers
        .iter()
        .map(|(buffer, source)| (buffer.metadata.namespace.clone(), source.as_ref().map_or(0, |source| wanted(buffer, source))))
        .collect();
    let shared = buffers.iter().zip(shares(&wanted, PODS_MAX));
    shared.map(|((buffer, source), share)| resolve_within(buffer, source.as_ref().copied(), share, now)).collect()
}

/// Computes the buffer's status and virtual pods from its source.
#[must_use]
pub fn resolve(buffer: &CapacityBuffer, source: Result<&PodSource, &Unresolved>, now: Timestamp) -> Buffer {
    let measured = source.map(MeasuredSource::of);
    resolve_within(buffer, measured.as_ref().map_err(|unresolved| *unresolved), usize::MAX, now)
}

/// The same of a buffer with this share of the limit.
fn resolve_within(buffer: &CapacityBuffer, source: Result<&MeasuredSource<'_>, &Unresolved>, share: usize, now: Timestamp) -> Buffer {
    let mut object = buffer.clone();
    object.status.provisioning_strategy = Some(buffer.spec.provisioning_strategy.clone().unwrap_or_else(|| DEFAULT_STRATEGY.to_owned()));
    let source = match source {
        Ok(source) => source,
        Err(unresolved) => {
            let list = &mut object.status.conditions;
            conditions::set(list, conditions::READY_FOR_PROVISIONING, ConditionStatus::False, unresolved.reason, &unresolved.message, now);
            let (shortfall, understated, unlimited) = Default::default();
            return Buffer { object, pods: Vec::new(), asked_for: 0, weight: 1, shortfall, understated, unlimited };
        }
    };
    let (asked_for, weight) = (replicas(buffer, source), source.weight);
    let shared = i64::try_from(share / weight).unwrap_or(i64::MAX);
    let kept = asked_for.min(REPLICAS_MAX).min(shared);
    let status = &mut object.status;
    status.replicas = Some(i32::try_from(kept).unwrap_or(i32::MAX));
    let template = buffer.spec.pod_template_ref.as_ref();
    status.pod_template_ref = template.map(|template| BufferReference { name: template.name.clone(), ..BufferReference::default() });
    status.pod_template_generation = template.and(source.source.generation);
    let understated = if kept == 0 { String::new() } else { source.understated.clone() };
    let unlimited = unlimited(buffer, source);
    // Of these, one at most has a text.
    let note = if kept == 0 { &unlimited } else { &understated };
    conditions::set(&mut status.conditions, conditions::READY_FOR_PROVISIONING, ConditionStatus::True, "Resolved", note, now);
    let pods = virtual_pods(&object, &source.source.template);
    let mut resolved = Buffer { object, pods, asked_for, weight, shortfall: String::new(), understated, unlimited };
    if kept < asked_for.min(REPLICAS_MAX) {
        resolved.falls_short(&beyond_share(weight), now);
    } else if kept < asked_for {
        let why = format!("a buffer has no more than {REPLICAS_MAX}; ask for fewer and larger pods, or for the others in another buffer");
        resolved.falls_short(&why, now);
    }
    resolved
}

/// As how many a pod of the template counts. Equal pods share their containers, tolerations and spread constraints, and have the rest each.
fn weight(template: &PodTemplate) -> usize {
    let own = PodSpec {
        containers: Shared::new(),
        init_containers: Shared::new(),
        tolerations: Shared::new(),
        topology_spread_constraints: Shared::new(),
        ..template.spec.clone()
    };
    serde_json::to_string(&own).map_or(0, |json| json.len()) / POD_BYTES + 1
}

/// Number of virtual pods: the larger of `replicas` and the percentage, at most what the limits allow; or what the
/// limits allow if nothing else is given.
fn replicas(buffer: &CapacityBuffer, source: &MeasuredSource<'_>) -> i64 {
    let count = match (wanted(buffer, source), allowed(buffer, source)) {
        (Some(wanted), Some(limit)) => wanted.min(limit),
        (Some(wanted), None) => wanted,
        (None, Some(limit)) => limit,
        (None, None) => 0,
    };
    count.max(0)
}

/// The larger of `replicas` and the percentage; `None` if neither is given.
fn wanted(buffer: &CapacityBuffer, source: &MeasuredSource<'_>) -> Option<i64> {
    let spec = &buffer.spec;
    let share = spec.percentage.filter(|_| spec.scalable_ref.is_some()).map(|percent| {
        let (percent, of) = (i64::from(percent.max(0)), i64::from(source.source.replicas.max(0)));
        (percent * of + 99) / 100
    });
    spec.replicas.map(i64::from).max(share)
}

/// What the limits allow; `None` if they are of nothing that the pods ask for.
fn allowed(buffer: &CapacityBuffer, source: &MeasuredSource<'_>) -> Option<i64> {
    let each = |(name, amount): (&str, whittle_units::Quantity)| {
        let request = source.requests.get(name).milli();
        (request > 0).then(|| amount.milli().max(0) / request)
    };
    buffer.spec.limits.iter().filter_map(each).min()
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
    let list = &mut object.status.conditions;
    let told = provisioning(buffer, counts);
    if let Some(value) = &told {
        value.set_on(list, conditions::PROVISIONING, now);
    }
    // A condition that the pass says nothing about is still that of an earlier generation; others' conditions are theirs.
    let is_of_pass = |type_: &str| type_ == conditions::READY_FOR_PROVISIONING || told.is_some() && type_ == conditions::PROVISIONING;
    for condition in list.iter_mut().filter(|condition| is_of_pass(&condition.type_)) {
        condition.observed_generation = buffer.object.metadata.generation;
    }
    object
}

/// The condition Provisioning; `None` if the pass says nothing about the buffer. It is True only when all
/// pods that are asked for fit: that fewer are kept, and that some were not planned, are not among Karpenter's reasons.
fn provisioning(buffer: &Buffer, counts: Option<PlacementCounts>) -> Option<ConditionValue> {
    let kept = buffer.pods.len();
    if !conditions::is_true(&buffer.object.status.conditions, conditions::READY_FOR_PROVISIONING) {
        return Some(ConditionValue::no("NotReadyForProvisioning", ""));
    }
    if let Some(PlacementCounts { new, failed, .. }) = counts.filter(|counts| counts.new + counts.failed > 0) {
        let required = format!("{new}/{kept} virtual pods required new capacity, {failed} failed");
        let message = if buffer.shortfall.is_empty() { required } else { format!("{required}; {}", buffer.shortfall) };
        return Some(ConditionValue::no("RequiresNewCapacity", message));
    }
    if !buffer.shortfall.is_empty() {
        return Some(ConditionValue::no("ReplicasReduced", buffer.shortfall.clone()));
    }
    if kept == 0 {
        return Some(ConditionValue::no("BufferEmpty", ""));
    }
    // A pass that reached none of its pods changes nothing.
    let fit = counts?.fit;
    if fit < kept {
        let message = format!("{fit}/{kept} virtual pods fit on existing capacity, the others were not planned in this pass");
        return Some(ConditionValue::unknown("NotAllPlanned", message));
    }
    let message = format!("All {kept} virtual pods fit on existing capacity");
    Some(ConditionValue { reason: "FitsExistingCapacity".into(), message, ..ConditionValue::yes() })
}

/// How many virtual pods a pass placed on each existing machine, by the name that the plan uses.
#[must_use]
pub fn virtual_pods_by_machine(plan: &Plan, buffers: &[Buffer]) -> BTreeMap<String, u32> {
    let pods = buffers.iter().flat_map(|buffer| &buffer.pods).filter(|pod| is_virtual(pod));
    let uids: BTreeSet<&str> = pods.map(|pod| pod.metadata.uid.as_str()).collect();
    let on = |pods: &[PodRef]| u32::try_from(pods.iter().filter(|pod| uids.contains(pod.uid.as_str())).count()).unwrap_or(u32::MAX);
    plan.placements.iter().map(|placement| (placement.node.clone(), on(&placement.pods))).filter(|(_, count)| *count > 0).collect()
}
