//! From pods to classes: what each pod requires, and which of them are equivalent.

use super::avoided_daemons::{self, Avoiding, Rank};
use super::builder::ProblemBuilder;
use super::catalog::Dims;
use super::defaults::Defaults;
use super::future_daemons::FutureDaemons;
use super::groups::{self, PodSelection};
use super::hash::{Hashed, Map};
use super::ids::{ClassId, GroupId, Id as _, IdVec, Key, LabelsId, PodId, RelaxationId, SetId};
use super::pod::{Class, Relaxation, VolumePlace};
use super::pods_to_place::PodToPlace;
use super::relaxation;
use super::topology::{Filter, GroupKind};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Affinity, Container, Pod, PodAffinityTerm, PodSpec, Toleration, TopologySpreadConstraint};
use whittle_api::labels;
use whittle_model::pods::{self, HostPort, VolumeUse};
use whittle_model::requirements::{Requirements, from_selector, term_requirements};
use whittle_model::scheduling::{Input, PreferencePolicy};
use whittle_units::Resources;

/// The source of a pod's requests.
#[derive(PartialEq, Eq, Hash)]
enum RequestSource<'a> {
    /// Its only container, whose status does not change its requests; nothing else adds to them.
    OneContainer(&'a Resources),
    Sum(Resources),
}

impl<'a> RequestSource<'a> {
    fn of(pod: &'a Pod) -> Self {
        let PodSpec { containers, init_containers, resources, overhead, .. } = &pod.spec;
        let status = &pod.status;
        let without_status =
            status.container_statuses.is_empty() && status.init_container_statuses.is_empty() && status.resources.is_none();
        let plain = without_status && init_containers.is_empty() && resources.is_none() && overhead.is_empty();
        match &containers[..] {
            [Container { resources: Some(only), .. }] if plain => Self::OneContainer(&only.requests),
            _ => Self::Sum(pods::effective_requests(pod)),
        }
    }
}

/// Everything about a pod that scheduling can see.
#[derive(PartialEq, Eq, Hash)]
struct PodShape<'a> {
    namespace: &'a str,
    labels: &'a BTreeMap<String, String>,
    selector: &'a BTreeMap<String, String>,
    affinity: Option<&'a Affinity>,
    tolerations: &'a [Toleration],
    spread: Cow<'a, [TopologySpreadConstraint]>,
    requests: RequestSource<'a>,
    ports: Vec<HostPort>,
    volumes: Vec<VolumeUse>,
    one_pod_claims: Vec<String>,
    missed_drivers: BTreeSet<String>,
    places: Result<Vec<Requirements>, String>,
    avoids_spared: bool,
    resource_claims: bool,
    /// Of a pod that may have to avoid daemons.
    rank: Option<Rank>,
}

/// The classes while they are built.
pub(crate) struct Classes {
    pub(crate) list: IdVec<ClassId, Class>,
    /// By pod: its class.
    pub(crate) of: IdVec<PodId, ClassId>,
    /// The dimensions of their requests.
    pub(crate) dims: Dims,
}

/// Puts equal pods into one class.
pub(crate) fn build(
    builder: &mut ProblemBuilder<'_>,
    pods: &IdVec<PodId, PodToPlace<'_>>,
    (daemons, future_daemons): (&[Pod], &FutureDaemons),
) -> Classes {
    let mut list: IdVec<ClassId, Class> = IdVec::new();
    let mut of = IdVec::with_capacity(pods.len());
    let mut known: Map<Hashed<PodShape<'_>>, ClassId> = Map::default();
    let mut relaxations = 0;
    let mut defaults = Defaults::new(builder);
    let avoiding = Avoiding::of(daemons, builder.input);
    for candidate in pods {
        let pod = candidate.pod;
        let volumes = builder.volumes.uses(pod);
        let shape = PodShape {
            namespace: &pod.metadata.namespace,
            labels: &pod.metadata.labels,
            selector: &pod.spec.node_selector,
            affinity: pod.spec.affinity.as_ref(),
            tolerations: &pod.spec.tolerations,
            spread: defaults.spread_of(pod),
            requests: RequestSource::of(pod),
            ports: pods::host_ports(pod),
            missed_drivers: missed_drivers(builder, pod, &volumes),
            volumes,
            // The placeholder pods of a buffer, of which none ever runs, take nothing from each other.
            one_pod_claims: if pods::is_virtual(pod) { Vec::new() } else { builder.volumes.one_pod_claims(pod) },
            places: builder.volumes.alternatives(pod),
            avoids_spared: candidate.avoids_spared,
            resource_claims: pods::needs_resource_claims(pod),
            rank: avoiding.rank(pod, builder.input),
        };
        let shape = Hashed::of(shape);
        if let Some(id) = known.get(&shape) {
            list[*id].size += 1;
            of.push(*id);
            continue;
        }
        let id = list.push(class_of(builder, pod, &shape.value, (daemons, future_daemons), &mut relaxations));
        of.push(id);
        known.insert(shape, id);
    }
    let dims = dims(&list, daemons, builder.input);
    for class in &mut list {
        class.requests = dims.vector(&class.resources);
    }
    Classes { list, of, dims }
}

fn class_of(
    builder: &mut ProblemBuilder<'_>,
    pod: &Pod,
    shape: &PodShape<'_>,
    (daemons, future_daemons): (&[Pod], &FutureDaemons),
    next_relaxation: &mut usize,
) -> Class {
    let labels = builder.groups.labels(shape.namespace, shape.labels);
    let mut spec = PodSpec {
        node_selector: pod.spec.node_selector.clone(),
        affinity: pod.spec.affinity.clone(),
        tolerations: pod.spec.tolerations.clone(),
        topology_spread_constraints: shape.spread.to_vec().into(),
        ..PodSpec::default()
    };
    relaxation::drop_empty_terms(&mut spec);
    let input = builder.input;
    let namespaces = &input.objects.namespaces;
    let near = pod.spec.affinity.as_ref().and_then(|a| a.pod_affinity.as_ref());
    let near = near.and_then(|near| PodSelection::of_all(&near.required, shape.namespace, namespaces));
    let places = shape.places.as_deref().unwrap_or_default();
    let company = near.as_ref().and_then(|near| future_daemons.place_beside(builder, (pod, places), near));
    let kept = Kept { near, company, nodes: node_filter(builder, &spec) };
    let relaxations = relaxations(builder, &spec, shape, labels, &kept, next_relaxation);
    let anti = pod.spec.affinity.as_ref().and_then(|a| a.pod_anti_affinity.as_ref());
    let repels = anti.map(|a| &a.required[..]).unwrap_or_default();
    // The domains that the owner can reach do not restrict where a pod that it repels may go.
    let repelling = |term: &PodAffinityTerm| {
        let selects = PodSelection::of(term, shape.namespace, namespaces);
        builder.groups.term(GroupKind::Inverse, (shape.namespace, term.topology_key.as_str()), selects, None, &mut builder.names)
    };
    let mut repels: Vec<GroupId> = repels.iter().map(repelling).collect();
    repels.dedup();
    let places = places.iter().map(|p| builder.split(p)).map(|(set, host)| VolumePlace { set, host }).collect();
    Class {
        requests: IdVec::new(),
        resources: pods::effective_requests(pod),
        relaxations,
        ports: shape.ports.clone(),
        volumes: shape.volumes.clone(),
        one_pod_claims: shape.one_pod_claims.clone(),
        missed_drivers: shape.missed_drivers.clone(),
        places,
        avoids: avoided_daemons::avoided_by((pod, shape.rank), builder, (daemons, future_daemons)),
        repels,
        counted_by: Vec::new(),
        labels,
        size: 1,
        avoids_spared: shape.avoids_spared,
        resource_claims: shape.resource_claims,
        left_aside: false,
    }
}

/// The pod with ever fewer of its preferences, in the order in which this is tried: as Karpenter relaxes it, and then by each alternative
/// of its required node affinity that Karpenter tries with preferences alone (scheduling 6). `next` is the number of the next relaxation.
fn relaxations(
    builder: &mut ProblemBuilder<'_>,
    spec: &PodSpec,
    shape: &PodShape<'_>,
    labels: LabelsId,
    kept: &Kept,
    next: &mut usize,
) -> Vec<Relaxation> {
    let mut number = |relaxation: &mut Relaxation| {
        relaxation.id = RelaxationId::at(*next);
        *next += 1;
    };
    let mut relaxed = spec.clone();
    let mut out: Vec<Relaxation> = Vec::new();
    let mut is_last = false;
    loop {
        let mut relaxation = relaxation_of(builder, &relaxed, shape, labels, kept);
        if out.last().is_none_or(|last| !same_relaxation(last, &relaxation)) {
            number(&mut relaxation);
            out.push(relaxation);
        }
        if is_last || !relaxation::relax(&mut relaxed, builder.soft_taints) {
            break;
        }
        is_last = out.len() >= relaxation::RELAXATIONS_MAX;
        if is_last {
            relaxation::drop_preferences(&mut relaxed, builder.soft_taints);
        }
    }
    let of_karpenter = out.len();
    for alternative in relaxation::earlier_alternatives(spec, builder.soft_taints) {
        if out.len() >= relaxation::RELAXATIONS_MAX {
            break;
        }
        let mut relaxation = relaxation_of(builder, &alternative, shape, labels, kept);
        if !out.iter().any(|known| same_relaxation(known, &relaxation)) {
            number(&mut relaxation);
            out.push(relaxation);
        }
    }
    if out.len() > of_karpenter {
        // What is said of a pod without a place is about its last alternative.
        let last = out[of_karpenter - 1].clone();
        out.push(last);
    }
    out
}

fn same_relaxation(a: &Relaxation, b: &Relaxation) -> bool {
    (a.full, a.strict, &a.host, a.tolerations, &a.owned) == (b.full, b.strict, &b.host, b.tolerations, &b.owned)
}

/// What kube-scheduler counts for a pod whatever its relaxation.
struct Kept {
    /// The pods that count for all required terms of pod affinity.
    near: Option<PodSelection>,
    /// Where the daemon goes that meets all of these terms on each of its nodes, if there is one: the terms restrict nothing else then.
    company: Option<Requirements>,
    /// The nodes that count for its spread: those of every alternative of its node affinity, whichever is tried (scheduling 6).
    nodes: Vec<SetId>,
}

fn relaxation_of(builder: &mut ProblemBuilder<'_>, spec: &PodSpec, shape: &PodShape<'_>, labels: LabelsId, kept: &Kept) -> Relaxation {
    let policy = builder.options.preferences;
    let requirements_of = |policy| {
        let mut reqs = relaxation::requirements_of(spec, policy);
        if let Some(company) = &kept.company {
            reqs.add_all(company);
        }
        reqs
    };
    let (full, host) = builder.split(&requirements_of(policy));
    let (strict, _) = builder.split(&requirements_of(PreferencePolicy::Ignore));
    let tolerations = builder.taint_table.tolerations(&spec.tolerations);
    let (mut owned, mut near) = (Vec::new(), Vec::new());
    for constraint in &spec.topology_spread_constraints {
        if policy == PreferencePolicy::Respect || !is_soft(constraint) {
            let others = other_labels(builder, spec, constraint);
            // To kube-scheduler a taint that is only preferred does not matter here (scheduling 23).
            let counted = if groups::honors_taints(constraint) {
                builder.taint_table.tolerations(&relaxation::with_soft_taints(&spec.tolerations))
            } else {
                tolerations
            };
            let honored = Filter { any_of: kept.nodes.clone(), labels: others, tolerations: Some(counted) };
            let honored = (honored, tolerations);
            owned.push(builder.groups.spread(constraint, shape.namespace, shape.labels, honored, &mut builder.names));
        }
    }
    let reach = builder.pool_taints.then_some(tolerations);
    let namespaces = &builder.input.objects.namespaces;
    if let Some(affinity) = &spec.affinity {
        for (kind, terms) in [(GroupKind::Affinity, &affinity.pod_affinity), (GroupKind::Anti, &affinity.pod_anti_affinity)] {
            let Some(terms) = terms else { continue };
            let of_term = |term: &PodAffinityTerm| PodSelection::of(term, shape.namespace, namespaces);
            // What is met beside a daemon is among the pod's requirements.
            let is_left = kind != GroupKind::Affinity || kept.company.is_none();
            let required = terms.required.iter().filter(|_| is_left).map(|term| match &kept.near {
                Some(joint) if kind == GroupKind::Affinity => (term, joint.clone()),
                _ => (term, of_term(term).with_terminating()),
            });
            let preferred = terms.preferred.iter().filter(|_| policy == PreferencePolicy::Respect).map(|t| &t.pod_affinity_term);
            for (term, selects) in required {
                let place = (shape.namespace, term.topology_key.as_str());
                let group = builder.groups.term(kind, place, selects, reach, &mut builder.names);
                owned.push(group);
                if kind == GroupKind::Affinity {
                    near.push(group);
                }
            }
            for term in preferred {
                let place = (shape.namespace, term.topology_key.as_str());
                owned.push(builder.groups.term(kind, place, of_term(term), reach, &mut builder.names));
            }
        }
    }
    let mut seen = BTreeSet::new();
    owned.retain(|g| seen.insert(*g));
    Relaxation { id: RelaxationId::at(0), full, strict, host, labels, tolerations, owned, near, repelled_by: Vec::new(), volatile: false }
}

/// The drivers of the pod's volumes of which kube-scheduler says that nodes lack them (scheduling 8.5). It says so only of those whose
/// CSIDriver keeps pods off such nodes. Of a pod that runs it says nothing: its drivers are those that run on its node.
fn missed_drivers(builder: &ProblemBuilder<'_>, pod: &Pod, volumes: &[VolumeUse]) -> BTreeSet<String> {
    let message = pod.condition("PodScheduled").map(|condition| condition.message.as_str()).unwrap_or_default();
    let is_missed = |driver: &&String| {
        let runs_with = pod.is_bound() && builder.volumes.has_driver(&pod.spec.node_name, driver);
        runs_with || message.contains(&format!("{driver} CSI driver is not installed on the node"))
    };
    volumes.iter().map(|volume| &volume.driver).filter(is_missed).cloned().collect()
}

fn is_soft(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable == "ScheduleAnyway"
}

/// The labels that a node must have to count for a hard constraint of the pod: those of its other hard constraints (scheduling 23).
fn other_labels(builder: &mut ProblemBuilder<'_>, spec: &PodSpec, constraint: &TopologySpreadConstraint) -> Vec<Key> {
    if is_soft(constraint) {
        return Vec::new();
    }
    let own = constraint.topology_key.as_str();
    let others = spec.topology_spread_constraints.iter().filter(|other| !is_soft(other)).map(|other| other.topology_key.as_str());
    let others: BTreeSet<&str> = others.filter(|key| *key != own && *key != labels::HOSTNAME).collect();
    others.into_iter().map(|key| builder.names.key(key)).collect()
}

/// The alternatives of which a node must satisfy one to count for the pod's spread constraints: its node selector with each
/// required term.
fn node_filter(builder: &mut ProblemBuilder<'_>, spec: &PodSpec) -> Vec<SetId> {
    if spec.topology_spread_constraints.is_empty() {
        return Vec::new();
    }
    let base = from_selector(&spec.node_selector);
    let required = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    let terms = required.map(|r| &r.node_selector_terms[..]).unwrap_or_default();
    if terms.is_empty() {
        return if base.is_empty() { Vec::new() } else { vec![builder.split(&base).0] };
    }
    terms
        .iter()
        .map(|term| {
            let mut reqs = base.clone();
            reqs.add_all(&term_requirements(term));
            builder.split(&reqs).0
        })
        .collect()
}

/// All resources that are requested or limited, as dimensions.
fn dims(classes: &IdVec<ClassId, Class>, daemons: &[Pod], input: &Input<'_>) -> Dims {
    let mut dims = Dims::default();
    for name in ["cpu", "memory", "pods"] {
        dims.of(name);
    }
    for class in classes {
        for (name, amount) in class.resources.iter() {
            if !amount.is_zero() {
                dims.of(name);
            }
        }
    }
    for pod in daemons {
        for (name, _) in pods::effective_requests(pod).iter() {
            dims.of(name);
        }
    }
    for pool in &input.objects.node_pools {
        for (name, _) in pool.spec.limits.iter() {
            dims.of(name);
        }
    }
    dims
}
