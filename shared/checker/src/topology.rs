//! Checks how pods relate to each other: affinity, anti-affinity and topology spread.

use super::type_lists::TypeLists;
use super::{Findings, kube, pool_domains, shares};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use whittle_api::k8s::{DaemonSet, Namespace, Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint};
use whittle_api::{LabelSelector, ObjectMeta, labels};
use whittle_model::scheduling::{Input, Placement, Plan, PodRef};
use whittle_model::state::StateNode;
use whittle_units::{SignedDuration, Timestamp};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Domain<'a> {
    /// A value of the topology key.
    Of(&'a str),
    /// The machine with this index lacks the label and is in no domain.
    Alone(usize),
}

/// A machine, existing or planned, with all its pods.
struct Machine<'a> {
    name: String,
    /// The domains it may be in, by topology key; it certainly is in a domain if that is the only one.
    domains: BTreeMap<&'a str, Vec<Domain<'a>>>,
    bound: Vec<&'a Pod>,
    placed: Vec<&'a Pod>,
    /// Bound pods that are being deleted, and those of DaemonSets that have just ended: they count for nothing, but that of a DaemonSet has
    /// a successor.
    ending: Vec<&'a Pod>,
    /// It does not exist yet.
    planned: bool,
    /// Pods of DaemonSets may still come: it is initialized a short time ago, or not at all.
    awaits_daemons: bool,
}

impl<'a> Machine<'a> {
    fn certain(&self, key: &str) -> Option<&'a str> {
        match self.domains[key][..] {
            [Domain::Of(value)] => Some(value),
            _ => None,
        }
    }

    /// Whether it has all these labels. Of one that does not exist yet only pods that need them tell.
    fn has_labels(&self, keys: &[&str]) -> bool {
        let has_label = |key: &str| !self.domains[key].iter().any(|domain| matches!(domain, Domain::Alone(_)));
        self.planned || keys.iter().all(|key| has_label(key))
    }

    /// The domains that it may be in because it has, or will have, the label.
    fn labelled_domains(&self, key: &str) -> impl Iterator<Item = &Domain<'a>> {
        self.domains[key].iter().filter(|domain| matches!(domain, Domain::Of(_)))
    }
}

/// All machines, and their pods grouped by namespace and labels.
struct Topology<'a> {
    machines: Vec<Machine<'a>>,
    namespaces: &'a [Namespace],
    /// One of each DaemonSet.
    daemons: Vec<Pod>,
    classes: Classes<'a>,
    /// Those of the pods that this plan places.
    placed: Classes<'a>,
    /// The pods that all of these terms select, by the owner's namespace, in the domains of a key.
    selected: HashMap<(&'a str, &'a str, &'a [PodAffinityTerm]), Rc<SelectedPods<'a>>>,
}

#[derive(Clone, Copy)]
struct PlacedPod<'a> {
    machine: usize,
    pod: &'a Pod,
    /// Placed by this plan, not bound before.
    placed: bool,
}

/// The pods that terms select.
struct SelectedPods<'a> {
    domains: BTreeMap<Domain<'a>, DomainPods<'a>>,
    at: HashMap<usize, Vec<&'a Pod>>,
}

/// Selected pods that may be in one domain.
#[derive(Default)]
struct DomainPods<'a> {
    all: Vec<&'a Pod>,
    certain: Vec<&'a Pod>,
}

/// `checks_affinity` tells for which pods to check required affinity: a disruption ignores pods that are not running
/// yet, because it takes nothing from them.
pub(crate) fn check<'a>(
    input: &Input<'a>,
    plan: &'a Plan,
    lists: &TypeLists<'a>,
    pods: &BTreeMap<String, &'a Pod>,
    checks_affinity: impl Fn(&Pod) -> bool,
    findings: &mut Findings,
) {
    let names = claim_names(plan);
    let mut topology = Topology::of(input, plan, lists, &names, pods);
    for at in 0..topology.machines.len() {
        for pod in topology.machines[at].placed.clone() {
            let Some(affinity) = &pod.spec.affinity else { continue };
            for term in affinity.pod_anti_affinity.iter().flat_map(|a| &a.required) {
                let selected = topology.selected_pods(pod, &term.topology_key, std::slice::from_ref(term));
                check_anti_affinity(&topology.machines[at], pod, term, &selected, findings);
            }
            if checks_affinity(pod) {
                check_affinities(&mut topology, at, pod, findings);
            }
        }
    }
    check_rules_of_bound(input, &topology, findings);
    check_spread(input, &topology, findings);
}

fn claim_names(plan: &Plan) -> Vec<String> {
    (0..plan.claims.len()).map(|n| format!("claim {n}")).collect()
}

/// Pods of a part of a plan, by key, that kube-scheduler could not bind where they are planned, although it could if the whole plan were
/// executed: a pod that they need near them is missing, or so many pods of their spread are missing elsewhere that the skew is too large.
pub(crate) fn stranded<'a>(input: &Input<'a>, (whole, part): (&'a Plan, &'a Plan), pods: &BTreeMap<String, &'a Pod>) -> BTreeSet<String> {
    let names = [claim_names(whole), claim_names(part)];
    let mut whole = Topology::of(input, whole, &TypeLists::of(input, whole), &names[0], pods);
    let mut part = Topology::of(input, part, &TypeLists::of(input, part), &names[1], pods);
    let keys = |pods: Vec<&Pod>| pods.into_iter().map(|pod| pod.metadata.key()).collect::<BTreeSet<String>>();
    // What would be wrong with the whole plan as well is no matter of what is missing.
    let alone = &keys(lonely(&mut part)) - &keys(lonely(&mut whole));
    let too_many = crowded(input, &part).into_iter().filter(|found| found.later < found.excess).map(|found| found.pod).collect();
    let doubtful = crowded(input, &whole).into_iter().map(|found| found.pod).collect();
    let crowded = &keys(too_many) - &keys(doubtful);
    &alone | &crowded
}

/// Placed pods whose required affinity is not met.
fn lonely<'a>(topology: &mut Topology<'a>) -> Vec<&'a Pod> {
    let mut found = Vec::new();
    for at in 0..topology.machines.len() {
        for pod in topology.machines[at].placed.clone() {
            let mut findings = Findings::default();
            check_affinities(topology, at, pod, &mut findings);
            if !findings.0.is_empty() {
                found.push(pod);
            }
        }
    }
    found
}

/// A hard spread constraint, and which pods it counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Spread<'a> {
    namespace: &'a str,
    constraint: &'a TopologySpreadConstraint,
    /// The labels that a node must have to count, besides that of the constraint.
    others: Vec<&'a str>,
    /// The values of the labels in `matchLabelKeys`.
    values: Vec<Option<&'a str>>,
}

impl<'a> Spread<'a> {
    fn of(pod: &'a Pod, constraint: &'a TopologySpreadConstraint) -> Self {
        let values = constraint.match_label_keys.iter().map(|key| pod.metadata.label(key)).collect();
        Self { namespace: &pod.metadata.namespace, constraint, others: other_keys(pod, constraint), values }
    }

    fn counts(&self, pod: &Pod) -> bool {
        let mut keys = self.constraint.match_label_keys.iter().zip(&self.values);
        // An empty selector counts no pod, unless label keys add to it.
        let has_values = self.values.iter().any(Option::is_some);
        let selector = self.constraint.label_selector.as_ref().filter(|selector| has_values || **selector != LabelSelector::default());
        pod.metadata.namespace == self.namespace
            && selector.is_some_and(|selector| selector.matches(&pod.metadata.labels))
            && keys.all(|(key, value)| value.is_none() || pod.metadata.label(key) == *value)
    }
}

/// A placed pod in a domain that has more pods of its spread than may be.
struct Crowded<'a> {
    pod: &'a Pod,
    /// How many there are too many of.
    excess: usize,
    /// How many pods of this plan with the same constraint come after it in the domain.
    later: usize,
}

/// Placed pods in such domains. Each pod counts for itself, so that others of its spread may be of any kind. New hosts are no domains that
/// pods could be missing in.
fn crowded<'a>(input: &Input<'a>, topology: &Topology<'a>) -> Vec<Crowded<'a>> {
    let mut members: BTreeMap<Spread<'a>, BTreeMap<&'a str, Vec<&'a Pod>>> = BTreeMap::new();
    for machine in &topology.machines {
        for pod in machine.placed.iter().copied() {
            // With `nodeTaintsPolicy: Honor` the counted nodes depend on each pod's tolerations, which is not checked here.
            let known = hard_constraints(pod).filter(|known| known.node_taints_policy.as_deref() != Some("Honor"));
            for constraint in known.filter(|known| known.topology_key != labels::HOSTNAME) {
                let Some(domain) = machine.certain(&constraint.topology_key) else { continue };
                members.entry(Spread::of(pod, constraint)).or_default().entry(domain).or_default().push(pod);
            }
        }
    }
    let mut empty: BTreeMap<(&str, &[&str]), BTreeSet<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for (spread, here) in &members {
        let Spread { constraint, others, .. } = spread;
        let key = constraint.topology_key.as_str();
        let known = empty.entry((key, others.as_slice())).or_insert_with(|| known_domains(input, topology, key, others));
        let mut counts: BTreeMap<&str, i32> = known.iter().map(|domain| (*domain, 0)).collect();
        let candidates = topology.classes.candidates(constraint.label_selector.as_ref());
        for member in candidates.into_iter().flatten().filter(|member| spread.counts(member.pod)) {
            let machine = &topology.machines[member.machine];
            if let Some(domain) = machine.certain(key).filter(|_| machine.has_labels(others)) {
                let count = counts.entry(domain).or_default();
                *count = count.saturating_add(1);
            }
        }
        // With `nodeAffinityPolicy: Ignore` every domain with nodes bounds the spread, wherever the pod may go (scheduling 6).
        let counts_all = constraint.node_affinity_policy.as_deref() == Some("Ignore");
        let with_nodes = topology.machines.iter().filter(|machine| counts_all && machine.has_labels(others));
        let with_nodes: BTreeSet<&str> = with_nodes.filter_map(|machine| machine.certain(key)).collect();
        for (domain, pods) in here {
            for (at, pod) in pods.iter().copied().enumerate() {
                let bounds = |other: &str| other == *domain || with_nodes.contains(other) || kube::may_be_in(pod, key, other);
                let reachable = counts.iter().filter(|(other, _)| bounds(other));
                let least = reachable.map(|(_, count)| *count).min().unwrap_or_default();
                let count = counts.get(domain).copied().unwrap_or_default();
                let excess = usize::try_from(count - least - constraint.max_skew).unwrap_or_default();
                if excess > 0 {
                    found.push(Crowded { pod, excess, later: pods.len() - at - 1 });
                }
            }
        }
    }
    found
}

fn anti_affinity_terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    pod.spec.affinity.iter().filter_map(|a| a.pod_anti_affinity.as_ref()).flat_map(|a| &a.required)
}

fn hard_constraints(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    pod.spec.topology_spread_constraints.iter().filter(|c| c.when_unsatisfiable != "ScheduleAnyway")
}

/// The labels that a node must have to count for a hard constraint of the pod: those of its other hard constraints (scheduling 23). Every
/// node has a hostname.
fn other_keys<'a>(pod: &'a Pod, constraint: &TopologySpreadConstraint) -> Vec<&'a str> {
    let keys = hard_constraints(pod).map(|other| other.topology_key.as_str());
    let others: BTreeSet<&str> = keys.filter(|key| *key != constraint.topology_key && *key != labels::HOSTNAME).collect();
    others.into_iter().collect()
}

/// All machines with their pods, still without domains: existing ones in the order of the input, then the claims.
fn machines_with_pods<'a>(input: &Input<'a>, plan: &Plan, names: &[String], pods: &BTreeMap<String, &'a Pod>) -> Vec<Machine<'a>> {
    let placed = plan.claims.iter().flat_map(|c| &c.pods).chain(plan.placements.iter().flat_map(|p| &p.pods));
    let moved: BTreeSet<String> = placed.map(PodRef::key).collect();
    let placements: BTreeMap<&str, &Placement> = plan.placements.iter().rev().map(|p| (p.node.as_str(), p)).collect();
    let find = |list: &[PodRef]| list.iter().filter_map(|p| pods.get(&p.key()).copied()).collect::<Vec<_>>();
    let ended = ended_daemons(input);
    let nodes = input.nodes.iter().map(|node| {
        let all = node.pods.iter().map(|p| &input.objects.pods[*p]);
        let (mut ending, bound): (Vec<&Pod>, Vec<&Pod>) = all.partition(|p| p.metadata.deletion_timestamp.is_some());
        ending.extend(node.node.as_ref().and_then(|own| ended.get(own.metadata.name.as_str())).into_iter().flatten().copied());
        Machine {
            name: node.name().to_owned(),
            domains: BTreeMap::new(),
            bound: bound.into_iter().filter(|p| !moved.contains(&p.metadata.key())).collect(),
            placed: placements.get(node.name()).map(|p| find(&p.pods)).unwrap_or_default(),
            ending,
            planned: false,
            awaits_daemons: !node.initialized()
                || initialized_since(node).is_some_and(|since| input.now.duration_since(since) < DAEMONS_COME),
        }
    });
    let claims = plan.claims.iter().zip(names).map(|(claim, name)| Machine {
        name: name.clone(),
        domains: BTreeMap::new(),
        bound: Vec::new(),
        placed: find(&claim.pods),
        ending: Vec::new(),
        planned: true,
        awaits_daemons: true,
    });
    nodes.chain(claims).collect()
}

/// By Node, the pods of DaemonSets that have ended there a short time ago: their controllers make others.
fn ended_daemons<'a>(input: &Input<'a>) -> BTreeMap<&'a str, Vec<&'a Pod>> {
    let mut out: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in input.objects.pods.iter().filter(|pod| pod.is_terminal()) {
        let is_recent = pod.last_event().is_some_and(|at| input.now.duration_since(at) < DAEMONS_COME);
        if is_recent && pod.metadata.owner_references.iter().any(|owner| owner.kind == "DaemonSet") {
            out.entry(&pod.spec.node_name).or_default().push(pod);
        }
    }
    out
}

/// How long an initialized node may lack pods of DaemonSets that will come.
const DAEMONS_COME: SignedDuration = SignedDuration::from_mins(5);

/// When a node became one that pods are bound to: without a NodeClaim, when it was created.
fn initialized_since(node: &StateNode) -> Option<Timestamp> {
    let Some(claim) = &node.claim else { return node.node.as_ref()?.metadata.creation_timestamp };
    claim.status.conditions.iter().find(|condition| condition.type_ == "Initialized")?.last_transition_time
}

/// Topology keys of all rules that apply to these pods.
fn keys_in_use<'a>(machines: &[Machine<'a>]) -> BTreeSet<&'a str> {
    let mut out = BTreeSet::new();
    for machine in machines {
        for pod in &machine.placed {
            let near = pod.spec.affinity.iter().filter_map(|a| a.pod_affinity.as_ref()).flat_map(|a| &a.required);
            out.extend(near.map(|t| t.topology_key.as_str()));
            out.extend(hard_constraints(pod).map(|c| c.topology_key.as_str()));
        }
        for pod in machine.placed.iter().chain(&machine.bound) {
            out.extend(anti_affinity_terms(pod).map(|t| t.topology_key.as_str()));
        }
    }
    out
}

fn set_existing_domains<'a>(input: &Input<'a>, keys: &BTreeSet<&'a str>, machines: &mut [Machine<'a>]) {
    for (at, (node, machine)) in input.nodes.iter().zip(machines).enumerate() {
        let domain = |key: &str| match node.labels().get(key) {
            _ if key == labels::HOSTNAME => Domain::Of(node.hostname()),
            Some(value) => Domain::Of(value),
            None => Domain::Alone(at),
        };
        machine.domains = keys.iter().map(|key| (*key, vec![domain(key)])).collect();
    }
}

fn set_planned_domains<'a>(
    plan: &'a Plan,
    lists: &TypeLists<'a>,
    names: &'a [String],
    keys: &BTreeSet<&'a str>,
    machines: &mut [Machine<'a>],
) {
    let of_list = |at: usize, key: &str| -> Option<BTreeSet<&'a str>> {
        let stated = lists.all[at].known().flat_map(|t| &t.requirements);
        let mut stated = stated.filter(|r| r.operator.as_str() == "In" && labels::normalized(&r.key) == key).peekable();
        stated.peek().is_some().then(|| stated.flat_map(|r| r.values.iter().map(String::as_str)).collect())
    };
    let offered: Vec<BTreeMap<&str, Option<BTreeSet<&str>>>> =
        (0..lists.all.len()).map(|at| keys.iter().map(|key| (*key, of_list(at, key))).collect()).collect();
    let first = machines.len() - names.len();
    for (n, (claim, name)) in plan.claims.iter().zip(names).enumerate() {
        let at = first + n;
        for &key in keys {
            // Machines receive these labels at startup, although their claims do not have them.
            let startup_label = [labels::REGISTERED, labels::INITIALIZED].contains(&key).then_some("true");
            let label = startup_label.or(claim.labels.get(key).map(String::as_str));
            let listed = offered[lists.index(n)][key].as_ref();
            let domains = if key == labels::HOSTNAME {
                vec![Domain::Of(name)]
            } else if label.is_none() && listed.is_none() {
                vec![Domain::Alone(at)]
            } else {
                let values: BTreeSet<&str> = label.into_iter().chain(listed.into_iter().flatten().copied()).collect();
                let required: Vec<_> = claim.requirements.iter().filter(|r| r.key == key && r.operator.as_str() == "In").collect();
                let allowed = |v: &&str| required.iter().all(|r| r.values.iter().any(|x| x == v));
                values.into_iter().filter(allowed).map(Domain::Of).collect()
            };
            machines[at].domains.insert(key, domains);
        }
    }
}

/// Pods grouped by namespace and labels.
#[derive(Default)]
struct Classes<'a> {
    all: Vec<Vec<PlacedPod<'a>>>,
    /// By label: most selectors name one, and few classes have it.
    with: HashMap<(&'a str, &'a str), Vec<usize>>,
}

impl<'a> Classes<'a> {
    fn of(pods: impl Iterator<Item = PlacedPod<'a>>) -> Self {
        let mut known: HashMap<(&str, &BTreeMap<String, String>), usize> = HashMap::new();
        let mut out = Self::default();
        for member in pods {
            let pod = member.pod;
            let class = *known.entry((&pod.metadata.namespace, &pod.metadata.labels)).or_insert_with(|| {
                out.all.push(Vec::new());
                let label = |(key, value): (&'a String, &'a String)| (key.as_str(), value.as_str());
                pod.metadata.labels.iter().map(label).for_each(|l| out.with.entry(l).or_default().push(out.all.len() - 1));
                out.all.len() - 1
            });
            out.all[class].push(member);
        }
        out
    }

    /// The classes with the rarest label that a selector requires; `None` if it requires none.
    fn rarest<'c>(&'c self, selector: &'c LabelSelector) -> Option<&'c [usize]> {
        let with = |key: &'c str, value: &'c str| self.with.get(&(key, value)).map(Vec::as_slice).unwrap_or_default();
        let labels = selector.match_labels.iter().map(|(key, value)| with(key, value));
        let rows = selector.match_expressions.iter().filter(|e| e.operator == "In" && e.values.len() == 1);
        labels.chain(rows.map(|e| with(&e.key, &e.values[0]))).min_by_key(|classes| classes.len())
    }

    /// Classes that a selector may select: those with the rarest label that it requires, or all. No selector selects nothing.
    fn candidates<'c>(&'c self, selector: Option<&'c LabelSelector>) -> Vec<&'c Vec<PlacedPod<'a>>> {
        let Some(selector) = selector else { return Vec::new() };
        match self.rarest(selector) {
            Some(classes) => classes.iter().map(|class| &self.all[*class]).collect(),
            None => self.all.iter().collect(),
        }
    }

    /// How many candidates a selector has.
    fn matches(&self, selector: Option<&LabelSelector>) -> usize {
        selector.map_or(0, |selector| self.rarest(selector).map_or(self.all.len(), <[usize]>::len))
    }
}

/// All pods on machines, by machine.
fn members<'a>(machines: &[Machine<'a>]) -> impl Iterator<Item = PlacedPod<'a>> {
    machines.iter().enumerate().flat_map(|(machine, own)| {
        let bound = own.bound.iter().copied().map(move |pod| PlacedPod { machine, pod, placed: false });
        bound.chain(own.placed.iter().copied().map(move |pod| PlacedPod { machine, pod, placed: true }))
    })
}

impl<'a> Topology<'a> {
    fn of(input: &Input<'a>, plan: &'a Plan, lists: &TypeLists<'a>, names: &'a [String], pods: &BTreeMap<String, &'a Pod>) -> Self {
        let mut machines = machines_with_pods(input, plan, names, pods);
        let keys = keys_in_use(&machines);
        set_existing_domains(input, &keys, &mut machines);
        set_planned_domains(plan, lists, names, &keys, &mut machines);
        let classes = Classes::of(members(&machines));
        let placed = Classes::of(members(&machines).filter(|member| member.placed));
        let daemons = future_daemons(input);
        Self { machines, namespaces: &input.objects.namespaces, daemons, classes, placed, selected: HashMap::new() }
    }

    fn selected_pods(&mut self, owner: &'a Pod, key: &'a str, terms: &'a [PodAffinityTerm]) -> Rc<SelectedPods<'a>> {
        let (machines, classes, namespaces) = (&self.machines, &self.classes, self.namespaces);
        let known = self.selected.entry((&owner.metadata.namespace, key, terms)).or_insert_with(|| {
            let mut selected = SelectedPods { domains: BTreeMap::new(), at: HashMap::new() };
            // Whether a term selects a pod depends only on namespace and labels, which are equal within a class.
            let candidates = classes.candidates(terms.first().and_then(|term| term.label_selector.as_ref())).into_iter();
            let select = |pod: &Pod| kube::all_select(terms, owner, pod, namespaces);
            for member in candidates.filter(|c| c.first().is_some_and(|m| select(m.pod))).flatten() {
                let machine = &machines[member.machine];
                selected.at.entry(member.machine).or_default().push(member.pod);
                for domain in &machine.domains[key] {
                    let domain_pods = selected.domains.entry(*domain).or_default();
                    domain_pods.all.push(member.pod);
                    domain_pods.certain.extend(machine.certain(key).map(|_| member.pod));
                }
            }
            Rc::new(selected)
        });
        Rc::clone(known)
    }
}

fn other<'a>(pods: &[&'a Pod], than: &Pod) -> Option<&'a Pod> {
    pods.iter().copied().find(|p| !std::ptr::eq(*p, than))
}

/// No pod that the term selects may share a domain with `pod`; the first that does is reported. As in kube-scheduler, a machine
/// without the label is in no domain, so pods on it do not repel each other.
fn check_anti_affinity(machine: &Machine<'_>, pod: &Pod, term: &PodAffinityTerm, selected: &SelectedPods<'_>, findings: &mut Findings) {
    let shared = machine.labelled_domains(&term.topology_key).filter_map(|domain| selected.domains.get(domain));
    if let Some(other_pod) = shared.filter_map(|domain_pods| other(&domain_pods.all, pod)).next() {
        let detail = format!("{} repels {} in {}", pod.metadata.key(), other_pod.metadata.key(), term.topology_key);
        findings.add(&machine.name, "anti-affinity", detail);
    }
}

/// The anti-affinity of bound pods applies to pods placed now. Where all of it would take too long, the rules of some namespaces are left
/// to kube-scheduler, as in the solver.
fn check_rules_of_bound(input: &Input<'_>, topology: &Topology<'_>, findings: &mut Findings) {
    // By namespace and term: who has it, and on which machine.
    let mut rules: BTreeMap<(&str, &PodAffinityTerm), Vec<(usize, &Pod)>> = BTreeMap::new();
    for (at, machine) in topology.machines.iter().enumerate() {
        for owner in machine.bound.iter().copied() {
            for term in anti_affinity_terms(owner) {
                rules.entry((owner.metadata.namespace.as_str(), term)).or_default().push((at, owner));
            }
        }
    }
    let matches = rules.keys().map(|(namespace, term)| (*namespace, topology.classes.matches(term.label_selector.as_ref())));
    let all = input.objects.pods.iter().chain(input.virtual_pods);
    let namespaces: BTreeSet<&str> = all.map(|pod| pod.metadata.namespace.as_str()).collect();
    let beyond = shares::beyond(matches, namespaces.len(), topology.classes.all.len());
    for ((_, term), owners) in rules.iter().filter(|((namespace, _), _)| !beyond.contains(namespace)) {
        check_rule_of_bound(topology, term, owners, findings);
    }
}

/// `owners` are the pods of one namespace that have the term, each with its machine.
fn check_rule_of_bound(topology: &Topology<'_>, term: &PodAffinityTerm, owners: &[(usize, &Pod)], findings: &mut Findings) {
    let Some((_, first)) = owners.first() else { return };
    let mut by_domain: BTreeMap<Domain<'_>, Vec<&Pod>> = BTreeMap::new();
    for (at, owner) in owners {
        for domain in topology.machines[*at].labelled_domains(&term.topology_key) {
            by_domain.entry(*domain).or_default().push(*owner);
        }
    }
    let is_selected = |pod: &Pod| kube::all_select(std::slice::from_ref(term), first, pod, topology.namespaces);
    let classes = topology.placed.candidates(term.label_selector.as_ref()).into_iter();
    for member in classes.filter(|class| class.first().is_some_and(|member| is_selected(member.pod))).flatten() {
        let machine = &topology.machines[member.machine];
        for owner in machine.domains[term.topology_key.as_str()].iter().filter_map(|domain| by_domain.get(domain)).flatten() {
            let detail = format!("{} repels {} in {}", owner.metadata.key(), member.pod.metadata.key(), term.topology_key);
            findings.add(&machine.name, "anti-affinity", detail);
        }
    }
}

/// Checks the required affinity of a pod that is placed on a machine.
fn check_affinities<'a>(topology: &mut Topology<'a>, at: usize, pod: &'a Pod, findings: &mut Findings) {
    let Some(near) = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref()) else { return };
    let keys: BTreeSet<&str> = near.required.iter().map(|term| term.topology_key.as_str()).collect();
    let by_key: Vec<(&str, Rc<SelectedPods<'_>>)> =
        keys.into_iter().map(|key| (key, topology.selected_pods(pod, key, &near.required))).collect();
    // The first pod of a group with affinity to itself may be placed anywhere; one that cannot reach its group, nowhere.
    let mut domains = by_key.iter().flat_map(|(_, selected)| &selected.domains);
    let exists = domains.any(|(domain, domain_pods)| matches!(domain, Domain::Of(_)) && other(&domain_pods.all, pod).is_some());
    let is_first = !exists && kube::all_select(&near.required, pod, pod, topology.namespaces);
    let topology = &*topology;
    let needs_no_other = || is_first || is_met_by_daemon(topology, &topology.machines[at], pod, &near.required);
    for (key, selected) in by_key {
        check_affinity(&topology.machines[at], (at, pod), key, &selected, needs_no_other, findings);
    }
}

/// A pod that all required terms select, as kube-scheduler counts them, shares the domain of `key` with `pod`, which is on the machine with
/// the index `at`, unless it needs none: the first of them, or one that a daemon is beside.
fn check_affinity(
    machine: &Machine<'_>,
    (at, pod): (usize, &Pod),
    key: &str,
    selected: &SelectedPods<'_>,
    needs_no_other: impl Fn() -> bool,
    findings: &mut Findings,
) {
    // A machine without the label is in no domain, and so cannot satisfy a pod affinity.
    let labelled = machine.domains[key].iter().all(|domain| matches!(domain, Domain::Of(_)));
    let here = || !machine.domains[key].is_empty() && selected.at.get(&at).is_some_and(|pods| other(pods, pod).is_some());
    // A selected pod is certainly in every domain that the machine may be in.
    let near = || {
        let certain = |domain| selected.domains.get(domain).is_some_and(|domain_pods| other(&domain_pods.certain, pod).is_some());
        !machine.domains[key].is_empty() && machine.domains[key].iter().all(certain)
    };
    let holds = labelled && (here() || near() || needs_no_other());
    findings
        .expect(holds, &machine.name, "affinity", || format!("{} requires a pod that is not in its domain of {key}", pod.metadata.key()));
}

/// Whether some DaemonSet has a pod that all terms select on every node of the right labels whose taints the pod tolerates, and one may
/// still come to this machine. That the labels are right is for the solver to see to, as with daemons that only may run.
fn is_met_by_daemon(topology: &Topology<'_>, machine: &Machine<'_>, pod: &Pod, terms: &[PodAffinityTerm]) -> bool {
    let is_replaced = || machine.ending.iter().any(|ending| kube::all_select(terms, pod, ending, topology.namespaces));
    if !machine.awaits_daemons && !is_replaced() {
        return false;
    }
    let meets = |daemon: &Pod| {
        let tolerations = &daemon.spec.tolerations;
        let for_all = |effect: &str| {
            let mut all = tolerations.iter().filter(|t| t.operator == "Exists" && t.key.is_empty());
            all.any(|t| ["", effect].contains(&t.effect.as_str()))
        };
        let mut own = pod.spec.tolerations.iter().filter(|t| !t.key.starts_with("node.kubernetes.io/"));
        let tolerant = for_all("NoSchedule") && for_all("NoExecute") || own.all(|t| tolerations.contains(t));
        tolerant && kube::all_select(terms, pod, daemon, topology.namespaces)
    };
    // Its pod will be on the machine, and so in its zone.
    terms.iter().all(|term| [labels::HOSTNAME, labels::ZONE].contains(&term.topology_key.as_str())) && topology.daemons.iter().any(meets)
}

/// A pod of each DaemonSet that stays, as its controller will make it, with what others heed of it.
fn future_daemons(input: &Input<'_>) -> Vec<Pod> {
    let of = |set: &DaemonSet| {
        let template = &set.spec.template;
        let named = ObjectMeta::namespaced(set.metadata.namespace.clone(), set.metadata.name.clone());
        let spec = PodSpec { tolerations: template.spec.tolerations.clone(), ..PodSpec::default() };
        Pod { metadata: ObjectMeta { labels: template.metadata.labels.clone(), ..named }, spec, ..Pod::default() }
    };
    input.objects.daemon_sets.iter().filter(|set| !set.metadata.is_deleting()).map(of).collect()
}

/// Hard spread constraints whose selected pods all have the constraint: a domain in which this plan places pods may
/// exceed the least populated known domain by at most `maxSkew`.
fn check_spread(input: &Input<'_>, topology: &Topology<'_>, findings: &mut Findings) {
    let mut done: BTreeSet<(&str, &TopologySpreadConstraint, Vec<&str>)> = BTreeSet::new();
    let mut empty: BTreeMap<(&str, Vec<&str>), BTreeSet<&str>> = BTreeMap::new();
    for pod in topology.machines.iter().flat_map(|p| &p.placed) {
        for constraint in hard_constraints(pod) {
            let others = other_keys(pod, constraint);
            if done.insert((&pod.metadata.namespace, constraint, others.clone())) {
                let key = constraint.topology_key.as_str();
                let known = empty.entry((key, others.clone())).or_insert_with(|| known_domains(input, topology, key, &others));
                check_skew(topology, known, &pod.metadata.namespace, (constraint, others.as_slice()), findings);
            }
        }
    }
}

/// The domains of `key` that count even when they are empty: those of existing machines with the labels `others`, and those that NodePools
/// without taints and requirements on it could create, with these labels and one of their types as it is sold. For hostnames there are
/// none, because a new host can always be added.
fn known_domains<'a>(input: &Input<'a>, topology: &Topology<'a>, key: &str, others: &[&str]) -> BTreeSet<&'a str> {
    if key == labels::HOSTNAME {
        return BTreeSet::new();
    }
    let mut out = pool_domains::of_pools(input, key, others);
    let existing = topology.machines.iter().filter(|machine| !machine.planned && machine.has_labels(others));
    out.extend(existing.filter_map(|machine| machine.certain(key)));
    out
}

fn check_skew(
    topology: &Topology<'_>,
    known: &BTreeSet<&str>,
    namespace: &str,
    (constraint, others): (&TopologySpreadConstraint, &[&str]),
    findings: &mut Findings,
) {
    // With `nodeTaintsPolicy: Honor` the counted nodes depend on each pod's tolerations, which is not checked here.
    let by_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
    let plain = constraint.match_label_keys.is_empty() && !by_taints;
    // An empty selector counts no pod.
    let counting = constraint.label_selector.as_ref().filter(|selector| plain && **selector != LabelSelector::default());
    let Some(selector) = counting else { return };
    let of = |class: &&Vec<PlacedPod<'_>>| {
        class.first().is_some_and(|m| m.pod.metadata.namespace == namespace && selector.matches(&m.pod.metadata.labels))
    };
    let selected: Vec<&PlacedPod<'_>> = topology.classes.candidates(Some(selector)).into_iter().filter(of).flatten().collect();
    let mixed = selected.iter().filter(|m| m.placed).map(|m| m.pod).any(|p| {
        let plain = p.spec.node_selector.is_empty() && p.spec.affinity.is_none();
        !plain || !p.spec.topology_spread_constraints.contains(constraint) || other_keys(p, constraint) != others
    });
    if mixed {
        return;
    }
    let by_host = constraint.topology_key == labels::HOSTNAME;
    let mut counts: BTreeMap<&str, (i32, bool)> = known.iter().map(|domain| (*domain, (0, false))).collect();
    // A planned machine only counts as a domain if it certainly is in it.
    for member in selected {
        let machine = &topology.machines[member.machine];
        let Some(domain) = machine.certain(&constraint.topology_key).filter(|_| machine.has_labels(others)) else { continue };
        let entry = counts.entry(domain).or_default();
        entry.0 = entry.0.saturating_add(1);
        entry.1 |= member.placed;
    }
    let least = if by_host { 0 } else { counts.values().map(|(n, _)| *n).min().unwrap_or(0) };
    for (domain, (count, new)) in counts {
        findings.expect(!new || count - least <= constraint.max_skew, domain, "spread", || {
            format!("{count} pods of a spread over {}, elsewhere {least}", constraint.topology_key)
        });
    }
}
