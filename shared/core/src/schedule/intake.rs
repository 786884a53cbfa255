//! From pods to classes: who takes part, what each asks, and which of them are alike.

use super::catalog::Dims;
use super::forms;
use super::hash::{Hashed, Map};
use super::pod::{Class, ClassId, Entry, Form, VolumePlace};
use super::problem::{Candidate, Ground, refuse};
use super::reason::OPTED_OUT;
use super::selecting::Selecting;
use super::topology::{Group, GroupId, Kind};
use super::{Input, LeftOut, Options, Packing, PreferencePolicy, Reason};
use crate::pods::{self, HostPort, VolumeUse};
use crate::requirements::{Allowed, Operator, Requirements, from_selector, term_requirements};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use whittle_api::k8s::{Affinity, Container, Pod, PodSpec, Toleration, TopologySpreadConstraint};
use whittle_api::labels;
use whittle_units::Resources;

/// The pods to place, and those refused beforehand with the machine that they leave only in a simulation.
pub(crate) fn pods_of<'a>(ground: &Ground<'a>) -> (Vec<Candidate<'a>>, Vec<(Option<usize>, LeftOut)>) {
    let input = ground.input;
    let objects = input.objects;
    // At once as large as it may become: it would be copied many times.
    let mut out = Vec::with_capacity(objects.pods.len() + input.virtual_pods.len());
    let mut refused = Vec::new();
    for pod in objects.pods.iter().filter(|p| pods::is_provisionable(p)) {
        if let Some(settled) = ground.options.settled.get(&pod.metadata.uid) {
            let reason = Reason::AsBefore { category: settled.category.clone(), message: settled.message.clone() };
            refused.push((None, refuse(pod, reason)));
            continue;
        }
        let faults = faults(ground, pod);
        if faults.is_empty() {
            out.push(Candidate { pod, avoids_resting: false, leaves: None });
        } else {
            refused.push((None, refuse(pod, Reason::Ignored(faults))));
        }
    }
    out.extend(input.virtual_pods.iter().map(|pod| Candidate { pod, avoids_resting: false, leaves: None }));
    let simulation = ground.options.simulation.as_ref();
    for (host, node) in input.nodes.iter().enumerate() {
        let candidate = ground.open || simulation.is_some_and(|s| s.candidates.contains(node.name()));
        if node.node.is_none() || !(node.marked_for_deletion || candidate) {
            continue;
        }
        let leaves = (!node.marked_for_deletion).then_some(host);
        for pod in node.pods.iter().map(|&p| &objects.pods[p]) {
            if !pods::moves_with_its_node(pod, &objects.disruption_budgets, input.now) {
                continue;
            }
            if let Err(fault) = ground.volumes.alternatives(pod) {
                refused.push((leaves, refuse(pod, Reason::Ignored(vec![fault]))));
            } else {
                out.push(Candidate { pod, avoids_resting: leaves.is_some() && pod.status.phase != "Pending", leaves });
            }
        }
    }
    (out, refused)
}

/// All faults of a pending pod, in the order in which they are looked for.
fn faults(ground: &Ground<'_>, pod: &Pod) -> Vec<String> {
    let mut out = Vec::new();
    if opts_out(&pod.spec) {
        out.push(format!("{OPTED_OUT} (requirement={} DoesNotExist)", labels::NODE_POOL));
    }
    out.extend(pods::node_constraint_errors(pod, |key| ground.well_known(key)));
    out.extend(ground.volumes.claim_errors(pod));
    out.extend(overloaded(&pod.spec));
    for (name, amount) in pods::negative_requests(pod) {
        out.push(format!("it requests {amount} of {name}: a request cannot be negative"));
    }
    out
}

/// Terms about other pods, and spread constraints, that one pod may have: each is counted over all pods, and again for
/// every wish that is dropped. Real pods have a handful.
const SOCIAL_MAX: usize = 1000;
/// Terms about nodes that one pod may have.
const NODE_TERMS_MAX: usize = 5000;

/// A pod with more terms than anybody means is not worth the time of all others.
fn overloaded(spec: &PodSpec) -> Option<String> {
    let affinity = spec.affinity.as_ref();
    let near = affinity.into_iter().flat_map(|a| a.pod_affinity.iter().chain(&a.pod_anti_affinity));
    let social = near.map(|n| n.required.len() + n.preferred.len()).sum::<usize>() + spec.topology_spread_constraints.len();
    let node = affinity.and_then(|a| a.node_affinity.as_ref());
    let terms = node.map_or(0, |n| n.preferred.len() + n.required.as_ref().map_or(0, |r| r.node_selector_terms.len()));
    let over = |count: usize, max: usize, what: &str| (count > max).then(|| format!("it has {count} {what}: at most {max} are looked at"));
    over(social, SOCIAL_MAX, "terms about other pods").or_else(|| over(terms, NODE_TERMS_MAX, "terms of node affinity"))
}

/// Whether the pod wants no node of ours: what it asks of the NodePool's label, its heaviest wish included, comes to
/// `DoesNotExist`, and not only because its demands contradict each other.
fn opts_out(spec: &PodSpec) -> bool {
    let full = requirements_of(spec, PreferencePolicy::Respect);
    if full.get(labels::NODE_POOL).is_none_or(|a| a.operator() != Operator::DoesNotExist) {
        return false;
    }
    let Some(affinity) = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()) else { return false };
    let wish = forms::heaviest(&affinity.preferred, |t| t.weight).map(|at| &affinity.preferred[at].preference);
    let first = affinity.required.as_ref().and_then(|r| r.node_selector_terms.first());
    let shuns = |a: &Allowed<String>| a.operator() == Operator::DoesNotExist && !a.is_contradiction();
    wish.into_iter().chain(first).any(|term| term_requirements(term).get(labels::NODE_POOL).is_some_and(shuns))
}

/// What a pod asks of its node's labels: selector and first required term, with the heaviest preference if wishes count.
pub(crate) fn requirements_of(spec: &PodSpec, policy: PreferencePolicy) -> Requirements {
    let mut reqs = from_selector(&spec.node_selector);
    let Some(affinity) = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()) else { return reqs };
    if policy == PreferencePolicy::Respect
        && let Some(at) = forms::heaviest(&affinity.preferred, |t| t.weight)
    {
        reqs.add_all(&term_requirements(&affinity.preferred[at].preference));
    }
    if let Some(first) = affinity.required.as_ref().and_then(|r| r.node_selector_terms.first()) {
        reqs.add_all(&term_requirements(first));
    }
    reqs
}

/// What says what a pod takes.
#[derive(PartialEq, Eq, Hash)]
enum Asks<'a> {
    /// Its only container, which no status speaks of, and nothing else.
    OneContainer(&'a Resources),
    Sum(Resources),
}

impl<'a> Asks<'a> {
    fn of(pod: &'a Pod) -> Self {
        let PodSpec { containers, init_containers, resources, overhead, .. } = &pod.spec;
        let silent = pod.status.container_statuses.is_empty() && pod.status.init_container_statuses.is_empty();
        let plain = silent && init_containers.is_empty() && resources.is_none() && overhead.is_empty();
        match &containers[..] {
            [Container { resources: Some(only), .. }] if plain => Self::OneContainer(&only.requests),
            _ => Self::Sum(pods::effective_requests(pod)),
        }
    }
}

/// Everything about a pod that scheduling can see.
#[derive(PartialEq, Eq, Hash)]
struct Look<'a> {
    namespace: &'a str,
    labels: &'a BTreeMap<String, String>,
    selector: &'a BTreeMap<String, String>,
    affinity: Option<&'a Affinity>,
    tolerations: &'a [Toleration],
    spread: Cow<'a, [TopologySpreadConstraint]>,
    asks: Asks<'a>,
    ports: Vec<HostPort>,
    volumes: Vec<VolumeUse>,
    places: Result<Vec<Requirements>, String>,
    avoids_resting: bool,
    resource_claims: bool,
}

/// Classes while they are being made.
pub(crate) struct Classes {
    pub(crate) list: Vec<Class>,
    /// By pod: its class.
    pub(crate) of: Vec<ClassId>,
}

/// Joins equal pods.
pub(crate) fn classes(ground: &mut Ground<'_>, candidates: &[Candidate<'_>]) -> Classes {
    let mut out = Classes { list: Vec::new(), of: Vec::with_capacity(candidates.len()) };
    let mut known: Map<Hashed<Look<'_>>, ClassId> = Map::default();
    let mut forms = 0;
    let mut defaults = super::defaults::Defaults::new(ground);
    for candidate in candidates {
        let pod = candidate.pod;
        let look = Look {
            namespace: &pod.metadata.namespace,
            labels: &pod.metadata.labels,
            selector: &pod.spec.node_selector,
            affinity: pod.spec.affinity.as_ref(),
            tolerations: &pod.spec.tolerations,
            spread: defaults.spread_of(pod),
            asks: Asks::of(pod),
            ports: pods::host_ports(pod),
            volumes: ground.volumes.uses(pod),
            places: ground.volumes.alternatives(pod),
            avoids_resting: candidate.avoids_resting,
            resource_claims: pods::needs_resource_claims(pod),
        };
        let look = Hashed::of(look);
        if let Some(id) = known.get(&look) {
            out.list[id.0 as usize].size += 1;
            out.of.push(*id);
            continue;
        }
        let id = ClassId(u32::try_from(out.list.len()).expect("fewer than 2^32 classes"));
        let class = class_of(ground, pod, &look.value, &mut forms);
        out.list.push(class);
        out.of.push(id);
        known.insert(look, id);
    }
    out
}

fn class_of(ground: &mut Ground<'_>, pod: &Pod, look: &Look<'_>, next_form: &mut usize) -> Class {
    let labels = ground.groups.labels(look.namespace, look.labels);
    let mut spec = PodSpec {
        node_selector: pod.spec.node_selector.clone(),
        affinity: pod.spec.affinity.clone(),
        tolerations: pod.spec.tolerations.clone(),
        topology_spread_constraints: look.spread.to_vec(),
        ..PodSpec::default()
    };
    let mut forms: Vec<Form> = Vec::new();
    loop {
        let mut form = form_of(ground, &spec, look, labels);
        if forms.last().is_none_or(|last| !same_form(last, &form)) {
            form.id = *next_form;
            *next_form += 1;
            forms.push(form);
        }
        if forms.len() == forms::MAX_FORMS {
            forms::without_wishes(&mut spec, ground.soft_taints);
        } else if forms.len() > forms::MAX_FORMS || !forms::relax(&mut spec, ground.soft_taints) {
            break;
        }
    }
    let anti = pod.spec.affinity.as_ref().and_then(|a| a.pod_anti_affinity.as_ref());
    let repels = anti.map(|a| &a.required[..]).unwrap_or_default();
    let namespaces = &ground.input.objects.namespaces;
    // Where its owner can go does not bound where a pod that it repels may.
    let mut repels: Vec<GroupId> =
        repels.iter().map(|t| ground.groups.term(Kind::Inverse, t, look.namespace, None, namespaces, &mut ground.names)).collect();
    repels.dedup();
    let places = look.places.as_deref().unwrap_or_default();
    let places = places.iter().map(|p| ground.split(p)).map(|(set, host)| VolumePlace { set, host }).collect();
    Class {
        requests: Vec::new(),
        asks: pods::effective_requests(pod),
        forms,
        ports: look.ports.clone(),
        volumes: look.volumes.clone(),
        places,
        repels,
        counted_by: Vec::new(),
        labels,
        size: 1,
        avoids_resting: look.avoids_resting,
        resource_claims: look.resource_claims,
    }
}

fn same_form(a: &Form, b: &Form) -> bool {
    (a.full, a.strict, &a.host, a.tolerations, &a.owned) == (b.full, b.strict, &b.host, b.tolerations, &b.owned)
}

fn form_of(ground: &mut Ground<'_>, spec: &PodSpec, look: &Look<'_>, labels: super::pod::LabelsId) -> Form {
    let policy = ground.options.preferences;
    let (full, host) = ground.split(&requirements_of(spec, policy));
    let (strict, _) = ground.split(&requirements_of(spec, PreferencePolicy::Ignore));
    let tolerations = ground.marks.tolerations(&spec.tolerations);
    let mut owned = Vec::new();
    let filter = node_filter(ground, spec);
    for constraint in &spec.topology_spread_constraints {
        if policy == PreferencePolicy::Respect || constraint.when_unsatisfiable != "ScheduleAnyway" {
            let id = ground.groups.spread(constraint, look.namespace, look.labels, filter.clone(), tolerations, &mut ground.names);
            owned.push(id);
        }
    }
    let reach = ground.pool_taints.then_some(tolerations);
    let namespaces = &ground.input.objects.namespaces;
    if let Some(affinity) = &spec.affinity {
        for (kind, terms) in [(Kind::Affinity, &affinity.pod_affinity), (Kind::Anti, &affinity.pod_anti_affinity)] {
            let Some(terms) = terms else { continue };
            let wishes = terms.preferred.iter().filter(|_| policy == PreferencePolicy::Respect).map(|t| &t.pod_affinity_term);
            for term in terms.required.iter().chain(wishes) {
                owned.push(ground.groups.term(kind, term, look.namespace, reach, namespaces, &mut ground.names));
            }
        }
    }
    let mut seen = BTreeSet::new();
    owned.retain(|g| seen.insert(*g));
    Form { id: 0, full, strict, host, labels, tolerations, owned, repelled_by: Vec::new(), volatile: false }
}

/// The alternatives of which a node must satisfy one to count for the pod's spread: its selector with each required term.
fn node_filter(ground: &mut Ground<'_>, spec: &PodSpec) -> Vec<super::intern::SetId> {
    if spec.topology_spread_constraints.is_empty() {
        return Vec::new();
    }
    let base = from_selector(&spec.node_selector);
    let required = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    let terms = required.map(|r| &r.node_selector_terms[..]).unwrap_or_default();
    if terms.is_empty() {
        return if base.is_empty() { Vec::new() } else { vec![ground.split(&base).0] };
    }
    terms
        .iter()
        .map(|term| {
            let mut reqs = base.clone();
            reqs.add_all(&term_requirements(term));
            ground.split(&reqs).0
        })
        .collect()
}

/// The resources that anything asks for or limits, as dimensions.
pub(crate) fn dims(classes: &[Class], daemons: &[Pod], input: &Input<'_>) -> Dims {
    let mut dims = Dims::default();
    for name in ["cpu", "memory", "pods"] {
        dims.of(name);
    }
    for class in classes {
        for (name, amount) in class.asks.iter() {
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

/// A class, compared by all that placing its pods sees. What selects its labels, and what these repel, says all of them.
struct Alike<'c>(&'c Class);

impl Alike<'_> {
    fn seen(&self) -> impl Hash + Eq + '_ {
        let Class { requests, asks, ports, volumes, repels, counted_by, avoids_resting, resource_claims, .. } = self.0;
        (requests, asks, ports, volumes, repels, counted_by, avoids_resting, resource_claims)
    }

    fn forms(&self) -> impl Iterator<Item = impl Hash + Eq + '_> + '_ {
        self.0.forms.iter().map(|f| (f.full, f.strict, &f.host, f.tolerations, &f.owned, &f.repelled_by))
    }

    fn places(&self) -> impl Iterator<Item = impl Hash + Eq + '_> + '_ {
        self.0.places.iter().map(|p| (p.set, &p.host))
    }
}

impl PartialEq for Alike<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.seen() == other.seen() && self.forms().eq(other.forms()) && self.places().eq(other.places())
    }
}

impl Eq for Alike<'_> {}

impl Hash for Alike<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen().hash(state);
        self.forms().for_each(|form| form.hash(state));
    }
}

impl Classes {
    /// Turns the classes' requests into vectors.
    pub(crate) fn measure(&mut self, dims: &Dims) {
        for class in &mut self.list {
            class.requests = dims.vector(&class.asks);
        }
    }

    /// Tells each class which groups count it and which repel it.
    pub(crate) fn join(&mut self, groups: &[Group], selecting: &Selecting) {
        for class in &mut self.list {
            if let Some(by) = selecting.by(class.labels) {
                class.counted_by.clone_from(&by.counting);
                class.forms.iter_mut().for_each(|form| form.repelled_by.clone_from(&by.repelling));
            }
            for form in &mut class.forms {
                form.volatile = form.owned.iter().any(|g| {
                    let group = &groups[g.0 as usize];
                    matches!((group.kind, group.by_host), (Kind::Spread { .. }, false) | (Kind::Affinity, _))
                });
            }
        }
    }

    /// Makes one class of those that only their labels told apart, where no selector tells these apart. Jobs and stateful
    /// sets label each of their pods differently.
    pub(crate) fn merge(&mut self) {
        let mut first: Map<Hashed<Alike<'_>>, usize> = Map::default();
        let mut now: Vec<usize> = Vec::with_capacity(self.list.len());
        for (n, class) in self.list.iter().enumerate() {
            now.push(*first.entry(Hashed::of(Alike(class))).or_insert(n));
        }
        if first.len() == self.list.len() {
            return;
        }
        drop(first);
        let mut place = vec![usize::MAX; self.list.len()];
        let mut list: Vec<Class> = Vec::new();
        for (n, class) in std::mem::take(&mut self.list).into_iter().enumerate() {
            if now[n] == n {
                place[n] = list.len();
                list.push(class);
            } else {
                list[place[now[n]]].size += class.size;
            }
        }
        for of in &mut self.of {
            let at = place[now[of.0 as usize]];
            *of = ClassId(u32::try_from(at).expect("fewer than 2^32 classes"));
        }
        self.list = list;
    }

    /// The pods in the order in which they are tried: large before small, old before young. What a buffer only keeps room
    /// for comes after all pods that there are, but not where the reference's own packing is asked for.
    pub(crate) fn queue(&self, candidates: &[Candidate<'_>], options: &Options) -> Vec<Entry> {
        let pretend: Vec<bool> = if options.packing == Packing::Reference {
            vec![false; candidates.len()]
        } else {
            candidates.iter().map(|c| pods::is_virtual(c.pod)).collect()
        };
        let key = |e: &Entry| {
            let (asks, meta) = (&self.list[e.class.0 as usize].requests, &candidates[e.pod].pod.metadata);
            (pretend[e.pod], Reverse(asks[0]), Reverse(asks[1]), meta.creation_timestamp, beginning(&meta.uid))
        };
        let name = |e: &Entry| {
            let meta = &candidates[e.pod].pod.metadata;
            (&meta.uid, &meta.namespace, &meta.name)
        };
        let entries = self.of.iter().enumerate().map(|(pod, &class)| Entry { class, pod });
        let mut keyed: Vec<_> = entries.map(|e| (key(&e), e)).collect();
        keyed.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| name(x).cmp(&name(y))));
        keyed.into_iter().map(|(_, e)| e).collect()
    }
}

/// A number for the beginning of a text: of two texts, the one with the smaller number comes first.
fn beginning(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    u64::from_be_bytes(bytes)
}
