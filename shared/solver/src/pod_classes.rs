//! From pods to classes: which pods take part, what each requires, and which of them are equivalent.

use super::builder::{Candidate, ProblemBuilder, Questions};
use super::catalog::Dims;
use super::defaults::Defaults;
use super::groups::SelectingGroups;
use super::hash::{Hashed, Map};
use super::ids::{ClassId, DimId, GroupId, HostId, Id as _, IdVec, LabelsId, PodId, RelaxationId, SetId};
use super::pod::{Class, Entry, Relaxation, VolumePlace};
use super::relaxation;
use super::topology::{Group, GroupKind};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use whittle_api::k8s::{Affinity, Container, Pod, PodSpec, Toleration, TopologySpreadConstraint};
use whittle_api::labels;
use whittle_model::pods::{self, HostPort, VolumeUse};
use whittle_model::requirements::{Allowed, Operator, Requirements, from_selector, term_requirements};
use whittle_model::scheduling::{Input, LeftOut, Options, Packing, PodRef, PreferencePolicy, Reason, opt_out_fault};
use whittle_units::Resources;

/// Pods that are rejected before anything is placed, each with the machine that it leaves only in a simulation.
pub(crate) type Rejected = Vec<(Option<HostId>, LeftOut)>;

/// The pods to place, and the others.
pub(crate) fn pods_of<'a>(builder: &ProblemBuilder<'a>) -> (IdVec<PodId, Candidate<'a>>, Rejected) {
    let input = builder.input;
    let objects = input.objects;
    // Allocated at full size, to avoid copying it as it grows.
    let mut out = IdVec::with_capacity(objects.pods.len() + input.virtual_pods.len());
    let mut refused = Vec::new();
    for pod in objects.pods.iter().filter(|p| pods::is_provisionable(p)) {
        if let Some(settled) = builder.options.settled.get(&pod.metadata.uid) {
            let (category, message) = (settled.category.clone(), settled.message.clone());
            let reason = Reason::Unchanged { category, message, depends_on_others: settled.depends_on_others };
            refused.push((None, refuse(pod, reason)));
            continue;
        }
        let faults = faults(builder, pod);
        if faults.is_empty() {
            out.push(Candidate { pod, avoids_spared: false, simulated_from: None });
        } else {
            let only_opts_out = faults.len() == 1 && opts_out(&pod.spec);
            refused.push((None, refuse(pod, if only_opts_out { Reason::OptedOut } else { Reason::Ignored(faults) })));
        }
    }
    for pod in input.virtual_pods {
        out.push(Candidate { pod, avoids_spared: false, simulated_from: None });
    }
    let simulation = builder.options.simulation.as_ref();
    for (host, node) in input.nodes.iter().enumerate() {
        let candidate = builder.questions == Questions::Many || simulation.is_some_and(|s| s.candidates.contains(node.name()));
        if node.node.is_none() || !(node.marked_for_deletion || candidate) {
            continue;
        }
        let simulated_from = (!node.marked_for_deletion).then_some(HostId::at(host));
        for pod in node.pods.iter().map(|&p| &objects.pods[p]) {
            if !pods::moves_with_its_node(pod, &objects.disruption_budgets, input.now) {
                continue;
            }
            if let Err(fault) = builder.volumes.alternatives(pod) {
                refused.push((simulated_from, refuse(pod, Reason::Ignored(vec![fault]))));
            } else {
                out.push(Candidate { pod, avoids_spared: simulated_from.is_some() && pod.status.phase != "Pending", simulated_from });
            }
        }
    }
    (out, refused)
}

/// A pod that is rejected before solving.
fn refuse(pod: &Pod, reason: Reason) -> LeftOut {
    LeftOut { pod: PodRef::of(pod), reason }
}

/// All faults of a pending pod, in a fixed order.
fn faults(builder: &ProblemBuilder<'_>, pod: &Pod) -> Vec<String> {
    let mut out = Vec::new();
    if opts_out(&pod.spec) {
        out.push(opt_out_fault());
    }
    out.extend(pods::node_constraint_errors(pod, |key| builder.well_known(key)));
    out.extend(builder.volumes.claim_errors(pod));
    out.extend(overloaded(&pod.spec));
    for (name, amount) in pods::negative_requests(pod) {
        out.push(format!("it requests {amount} of {name}: a request cannot be negative"));
    }
    out
}

/// The maximum of terms about other pods and spread constraints of one pod: each is counted over all pods, and again for every
/// relaxation. Real pods have a handful.
const POD_TERMS_MAX: usize = 1000;
/// The maximum of node affinity terms of one pod.
const NODE_TERMS_MAX: usize = 5000;

/// A pod with an absurd number of terms must not take the time of all others.
fn overloaded(spec: &PodSpec) -> Option<String> {
    let affinity = spec.affinity.as_ref();
    let near = affinity.into_iter().flat_map(|a| a.pod_affinity.iter().chain(&a.pod_anti_affinity));
    let about_pods = near.map(|n| n.required.len() + n.preferred.len()).sum::<usize>() + spec.topology_spread_constraints.len();
    let node = affinity.and_then(|a| a.node_affinity.as_ref());
    let terms = node.map_or(0, |n| n.preferred.len() + n.required.as_ref().map_or(0, |r| r.node_selector_terms.len()));
    let over = |count: usize, max: usize, what: &str| (count > max).then(|| format!("it has {count} {what}: at most {max} are looked at"));
    over(about_pods, POD_TERMS_MAX, "terms about other pods").or_else(|| over(terms, NODE_TERMS_MAX, "terms of node affinity"))
}

/// Whether the pod excludes all NodePools: its requirement on the NodePool label, including its heaviest preference, is
/// `DoesNotExist`, and not merely because its requirements contradict each other.
fn opts_out(spec: &PodSpec) -> bool {
    let full = requirements_of(spec, PreferencePolicy::Respect);
    if full.get(labels::NODE_POOL).is_none_or(|a| a.operator() != Operator::DoesNotExist) {
        return false;
    }
    let Some(affinity) = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()) else { return false };
    let preferred = relaxation::heaviest(&affinity.preferred, |t| t.weight).map(|at| &affinity.preferred[at].preference);
    let first = affinity.required.as_ref().and_then(|r| r.node_selector_terms.first());
    let is_excluding = |a: &Allowed<String>| a.operator() == Operator::DoesNotExist && !a.is_contradiction();
    preferred.into_iter().chain(first).any(|term| term_requirements(term).get(labels::NODE_POOL).is_some_and(is_excluding))
}

/// The pod's requirements on node labels: its node selector and first required term, with the heaviest preference if
/// preferences count.
pub(crate) fn requirements_of(spec: &PodSpec, policy: PreferencePolicy) -> Requirements {
    let mut reqs = from_selector(&spec.node_selector);
    let Some(affinity) = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()) else { return reqs };
    if policy == PreferencePolicy::Respect
        && let Some(at) = relaxation::heaviest(&affinity.preferred, |t| t.weight)
    {
        reqs.add_all(&term_requirements(&affinity.preferred[at].preference));
    }
    if let Some(first) = affinity.required.as_ref().and_then(|r| r.node_selector_terms.first()) {
        reqs.add_all(&term_requirements(first));
    }
    reqs
}

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
        let without_status = pod.status.container_statuses.is_empty() && pod.status.init_container_statuses.is_empty();
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
    places: Result<Vec<Requirements>, String>,
    avoids_spared: bool,
    resource_claims: bool,
}

/// The classes while they are built.
pub(crate) struct Classes {
    pub(crate) list: IdVec<ClassId, Class>,
    /// By pod: its class.
    pub(crate) of: IdVec<PodId, ClassId>,
}

/// Puts equal pods into one class.
pub(crate) fn classes(builder: &mut ProblemBuilder<'_>, candidates: &IdVec<PodId, Candidate<'_>>) -> Classes {
    let mut out = Classes { list: IdVec::new(), of: IdVec::with_capacity(candidates.len()) };
    let mut known: Map<Hashed<PodShape<'_>>, ClassId> = Map::default();
    let mut relaxations = 0;
    let mut defaults = Defaults::new(builder);
    for candidate in candidates {
        let pod = candidate.pod;
        let shape = PodShape {
            namespace: &pod.metadata.namespace,
            labels: &pod.metadata.labels,
            selector: &pod.spec.node_selector,
            affinity: pod.spec.affinity.as_ref(),
            tolerations: &pod.spec.tolerations,
            spread: defaults.spread_of(pod),
            requests: RequestSource::of(pod),
            ports: pods::host_ports(pod),
            volumes: builder.volumes.uses(pod),
            places: builder.volumes.alternatives(pod),
            avoids_spared: candidate.avoids_spared,
            resource_claims: pods::needs_resource_claims(pod),
        };
        let shape = Hashed::of(shape);
        if let Some(id) = known.get(&shape) {
            out.list[*id].size += 1;
            out.of.push(*id);
            continue;
        }
        let id = out.list.push(class_of(builder, pod, &shape.value, &mut relaxations));
        out.of.push(id);
        known.insert(shape, id);
    }
    out
}

fn class_of(builder: &mut ProblemBuilder<'_>, pod: &Pod, shape: &PodShape<'_>, next_relaxation: &mut usize) -> Class {
    let labels = builder.groups.labels(shape.namespace, shape.labels);
    let mut spec = PodSpec {
        node_selector: pod.spec.node_selector.clone(),
        affinity: pod.spec.affinity.clone(),
        tolerations: pod.spec.tolerations.clone(),
        topology_spread_constraints: shape.spread.to_vec(),
        ..PodSpec::default()
    };
    let mut relaxations: Vec<Relaxation> = Vec::new();
    loop {
        let mut relaxation = relaxation_of(builder, &spec, shape, labels);
        if relaxations.last().is_none_or(|last| !same_relaxation(last, &relaxation)) {
            relaxation.id = RelaxationId::at(*next_relaxation);
            *next_relaxation += 1;
            relaxations.push(relaxation);
        }
        if relaxations.len() == relaxation::RELAXATIONS_MAX {
            relaxation::drop_preferences(&mut spec, builder.soft_taints);
        } else if relaxations.len() > relaxation::RELAXATIONS_MAX || !relaxation::relax(&mut spec, builder.soft_taints) {
            break;
        }
    }
    let anti = pod.spec.affinity.as_ref().and_then(|a| a.pod_anti_affinity.as_ref());
    let repels = anti.map(|a| &a.required[..]).unwrap_or_default();
    let namespaces = &builder.input.objects.namespaces;
    // The domains that the owner can reach do not restrict where a pod that it repels may go.
    let mut repels: Vec<GroupId> =
        repels.iter().map(|t| builder.groups.term(GroupKind::Inverse, t, shape.namespace, None, namespaces, &mut builder.names)).collect();
    repels.dedup();
    let places = shape.places.as_deref().unwrap_or_default();
    let places = places.iter().map(|p| builder.split(p)).map(|(set, host)| VolumePlace { set, host }).collect();
    Class {
        requests: IdVec::new(),
        resources: pods::effective_requests(pod),
        relaxations,
        ports: shape.ports.clone(),
        volumes: shape.volumes.clone(),
        places,
        repels,
        counted_by: Vec::new(),
        labels,
        size: 1,
        avoids_spared: shape.avoids_spared,
        resource_claims: shape.resource_claims,
    }
}

fn same_relaxation(a: &Relaxation, b: &Relaxation) -> bool {
    (a.full, a.strict, &a.host, a.tolerations, &a.owned) == (b.full, b.strict, &b.host, b.tolerations, &b.owned)
}

fn relaxation_of(builder: &mut ProblemBuilder<'_>, spec: &PodSpec, shape: &PodShape<'_>, labels: LabelsId) -> Relaxation {
    let policy = builder.options.preferences;
    let (full, host) = builder.split(&requirements_of(spec, policy));
    let (strict, _) = builder.split(&requirements_of(spec, PreferencePolicy::Ignore));
    let tolerations = builder.taint_table.tolerations(&spec.tolerations);
    let mut owned = Vec::new();
    let filter = node_filter(builder, spec);
    for constraint in &spec.topology_spread_constraints {
        if policy == PreferencePolicy::Respect || constraint.when_unsatisfiable != "ScheduleAnyway" {
            let id = builder.groups.spread(constraint, shape.namespace, shape.labels, filter.clone(), tolerations, &mut builder.names);
            owned.push(id);
        }
    }
    let reach = builder.pool_taints.then_some(tolerations);
    let namespaces = &builder.input.objects.namespaces;
    if let Some(affinity) = &spec.affinity {
        for (kind, terms) in [(GroupKind::Affinity, &affinity.pod_affinity), (GroupKind::Anti, &affinity.pod_anti_affinity)] {
            let Some(terms) = terms else { continue };
            let preferred = terms.preferred.iter().filter(|_| policy == PreferencePolicy::Respect).map(|t| &t.pod_affinity_term);
            for term in terms.required.iter().chain(preferred) {
                owned.push(builder.groups.term(kind, term, shape.namespace, reach, namespaces, &mut builder.names));
            }
        }
    }
    let mut seen = BTreeSet::new();
    owned.retain(|g| seen.insert(*g));
    Relaxation { id: RelaxationId::at(0), full, strict, host, labels, tolerations, owned, repelled_by: Vec::new(), volatile: false }
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
pub(crate) fn dims(classes: &IdVec<ClassId, Class>, daemons: &[Pod], input: &Input<'_>) -> Dims {
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

/// A class, compared by everything that placing its pods depends on. Its labels matter only through the groups that select
/// them.
struct ClassIdentity<'c>(&'c Class);

impl ClassIdentity<'_> {
    fn seen(&self) -> impl Hash + Eq + '_ {
        let Class { requests, resources, ports, volumes, repels, counted_by, avoids_spared, resource_claims, .. } = self.0;
        (requests, resources, ports, volumes, repels, counted_by, avoids_spared, resource_claims)
    }

    fn relaxations(&self) -> impl Iterator<Item = impl Hash + Eq + '_> + '_ {
        self.0.relaxations.iter().map(|f| (f.full, f.strict, &f.host, f.tolerations, &f.owned, &f.repelled_by))
    }

    fn places(&self) -> impl Iterator<Item = impl Hash + Eq + '_> + '_ {
        self.0.places.iter().map(|p| (p.set, &p.host))
    }
}

impl PartialEq for ClassIdentity<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.seen() == other.seen() && self.relaxations().eq(other.relaxations()) && self.places().eq(other.places())
    }
}

impl Eq for ClassIdentity<'_> {}

impl Hash for ClassIdentity<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen().hash(state);
        self.relaxations().for_each(|relaxation| relaxation.hash(state));
    }
}

impl Classes {
    /// Converts the classes' requests into vectors.
    pub(crate) fn measure(&mut self, dims: &Dims) {
        for class in &mut self.list {
            class.requests = dims.vector(&class.resources);
        }
    }

    /// Sets the groups that count each class and those that repel it.
    pub(crate) fn join(&mut self, groups: &IdVec<GroupId, Group>, selecting: &SelectingGroups) {
        for class in &mut self.list {
            if let Some(by) = selecting.by(class.labels) {
                class.counted_by.clone_from(&by.counting);
                class.relaxations.iter_mut().for_each(|relaxation| relaxation.repelled_by.clone_from(&by.repelling));
            }
            for relaxation in &mut class.relaxations {
                relaxation.volatile = relaxation.owned.iter().any(|g| {
                    let group = &groups[*g];
                    matches!((group.kind, group.by_host), (GroupKind::Spread { .. }, false) | (GroupKind::Affinity, _))
                });
            }
        }
    }

    /// Merges classes that differ only in labels, where no selector distinguishes them. Jobs and StatefulSets label each of
    /// their pods differently.
    pub(crate) fn merge(&mut self) {
        let mut first_of: Map<Hashed<ClassIdentity<'_>>, ClassId> = Map::default();
        let first: IdVec<ClassId, ClassId> =
            self.list.enumerate().map(|(id, class)| *first_of.entry(Hashed::of(ClassIdentity(class))).or_insert(id)).collect();
        if first_of.len() == self.list.len() {
            return;
        }
        drop(first_of);
        let mut merged: IdVec<ClassId, ClassId> = IdVec::new();
        let mut list: IdVec<ClassId, Class> = IdVec::new();
        for (id, class) in std::mem::take(&mut self.list).into_enumerate() {
            if first[id] == id {
                merged.push(list.push(class));
            } else {
                // The first of its kind came earlier.
                let kept = merged[first[id]];
                list[kept].size += class.size;
                merged.push(kept);
            }
        }
        for of in &mut self.of {
            *of = merged[*of];
        }
        self.list = list;
    }

    /// The pods in the order in which they are tried: large before small, old before young. The placeholder pods of buffers
    /// come last, except in Karpenter's own packing.
    pub(crate) fn queue(&self, candidates: &IdVec<PodId, Candidate<'_>>, options: &Options) -> Vec<Entry> {
        let is_placeholder: IdVec<PodId, bool> = if options.packing == Packing::Reference {
            IdVec::filled(false, candidates)
        } else {
            candidates.iter().map(|c| pods::is_virtual(c.pod)).collect()
        };
        // As `dims` has them.
        let (cpu, memory) = (DimId::at(0), DimId::at(1));
        let key = |entry: &Entry| {
            let (requests, meta) = (&self.list[entry.class].requests, &candidates[entry.pod].pod.metadata);
            (is_placeholder[entry.pod], Reverse(requests[cpu]), Reverse(requests[memory]), meta.creation_timestamp, first_bytes(&meta.uid))
        };
        let name = |entry: &Entry| {
            let meta = &candidates[entry.pod].pod.metadata;
            (&meta.uid, &meta.namespace, &meta.name)
        };
        let entries = self.of.enumerate().map(|(pod, &class)| Entry { class, pod });
        let mut keyed: Vec<_> = entries.map(|entry| (key(&entry), entry)).collect();
        keyed.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| name(x).cmp(&name(y))));
        keyed.into_iter().map(|(_, entry)| entry).collect()
    }
}

/// The first eight bytes of a text as a number that sorts like the text.
fn first_bytes(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    u64::from_be_bytes(bytes)
}
