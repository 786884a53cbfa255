//! Pods relative to each other: affinity, anti-affinity, spread.

use super::lists::Lists;
use super::{Findings, kube};
use crate::schedule::{Input, Placement, Plan, PodRef};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use whittle_api::k8s::{Namespace, Pod, PodAffinityTerm, TopologySpreadConstraint};
use whittle_api::{LabelSelector, labels};

/// Where a machine may be found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Domain<'a> {
    /// A value of the topology key.
    Of(&'a str),
    /// It has none: the machine with this number is alone.
    Alone(usize),
}

/// A machine, old or new, with all its pods.
struct Place<'a> {
    name: String,
    /// What each topology key that matters may turn out to be; one value: it is settled.
    domains: BTreeMap<&'a str, Vec<Domain<'a>>>,
    bound: Vec<&'a Pod>,
    placed: Vec<&'a Pod>,
    /// It does not exist yet.
    planned: bool,
}

impl<'a> Place<'a> {
    fn settled(&self, key: &str) -> Option<&'a str> {
        match self.domains[key][..] {
            [Domain::Of(value)] => Some(value),
            _ => None,
        }
    }
}

/// Everything that this part of the check looks at, with pods of one namespace and equal labels taken together.
struct Map<'a> {
    places: Vec<Place<'a>>,
    namespaces: &'a [Namespace],
    classes: Classes<'a>,
    /// The classes that any pod's term selects, by the pod's namespace.
    kin: HashMap<(&'a str, &'a PodAffinityTerm), Rc<Kin<'a>>>,
}

#[derive(Clone, Copy)]
struct Member<'a> {
    place: usize,
    pod: &'a Pod,
    /// By this plan.
    placed: bool,
}

/// The pods that a term selects.
struct Kin<'a> {
    domains: BTreeMap<Domain<'a>, Company<'a>>,
    at: HashMap<usize, Vec<&'a Pod>>,
}

/// Those of them that may be in one domain.
#[derive(Default)]
struct Company<'a> {
    all: Vec<&'a Pod>,
    placed: Vec<Member<'a>>,
    settled: Vec<&'a Pod>,
}

/// Of pods that `leans` leaves out nobody asks whether those that they want to be near are there: whoever does not run yet
/// loses nothing.
pub(crate) fn check<'a>(
    input: &Input<'a>,
    plan: &'a Plan,
    lists: &Lists<'a>,
    pods: &BTreeMap<String, &'a Pod>,
    leans: impl Fn(&Pod) -> bool,
    findings: &mut Findings,
) {
    let names: Vec<String> = (0..plan.claims.len()).map(|n| format!("claim {n}")).collect();
    let mut places = inhabited(input, plan, &names, pods);
    let keys = keys_in_use(&places);
    standing(input, &keys, &mut places);
    planned(plan, lists, &names, &keys, &mut places);
    let classes = Classes::of(&places);
    let mut map = Map { places, namespaces: &input.objects.namespaces, classes, kin: HashMap::new() };
    for at in 0..map.places.len() {
        for pod in map.places[at].placed.clone() {
            let Some(affinity) = &pod.spec.affinity else { continue };
            for term in affinity.pod_anti_affinity.iter().flat_map(|a| &a.required) {
                let kin = map.kin(pod, term);
                apart(&map.places[at], pod, term, &kin, findings);
            }
            for term in affinity.pod_affinity.iter().flat_map(|a| &a.required).filter(|_| leans(pod)) {
                let kin = map.kin(pod, term);
                together(&map, at, pod, term, &kin, findings);
            }
        }
        for owner in map.places[at].bound.clone() {
            for term in repelling(owner) {
                let kin = map.kin(owner, term);
                repelled(&map, at, owner, term, &kin, findings);
            }
        }
    }
    skews(input, &map, findings);
}

fn repelling(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    pod.spec.affinity.iter().filter_map(|a| a.pod_anti_affinity.as_ref()).flat_map(|a| &a.required)
}

fn hard(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    pod.spec.topology_spread_constraints.iter().filter(|c| c.when_unsatisfiable != "ScheduleAnyway")
}

/// All machines with their pods, without their domains: first those that exist, in the order of the input, then the claims.
fn inhabited<'a>(input: &Input<'a>, plan: &Plan, names: &[String], pods: &BTreeMap<String, &'a Pod>) -> Vec<Place<'a>> {
    let placed = plan.claims.iter().flat_map(|c| &c.pods).chain(plan.placements.iter().flat_map(|p| &p.pods));
    let moved: BTreeSet<String> = placed.map(PodRef::key).collect();
    let placements: BTreeMap<&str, &Placement> = plan.placements.iter().rev().map(|p| (p.node.as_str(), p)).collect();
    let find = |list: &[PodRef]| list.iter().filter_map(|p| pods.get(&p.key()).copied()).collect::<Vec<_>>();
    let nodes = input.nodes.iter().map(|node| {
        let bound = node.pods.iter().map(|p| &input.objects.pods[*p]);
        Place {
            name: node.name().to_owned(),
            domains: BTreeMap::new(),
            bound: bound.filter(|p| p.metadata.deletion_timestamp.is_none() && !moved.contains(&p.metadata.key())).collect(),
            placed: placements.get(node.name()).map(|p| find(&p.pods)).unwrap_or_default(),
            planned: false,
        }
    });
    let claims = plan.claims.iter().zip(names).map(|(claim, name)| Place {
        name: name.clone(),
        domains: BTreeMap::new(),
        bound: Vec::new(),
        placed: find(&claim.pods),
        planned: true,
    });
    nodes.chain(claims).collect()
}

/// The topology keys that any rule about these pods names.
fn keys_in_use<'a>(places: &[Place<'a>]) -> BTreeSet<&'a str> {
    let mut out = BTreeSet::new();
    for place in places {
        for pod in &place.placed {
            let near = pod.spec.affinity.iter().filter_map(|a| a.pod_affinity.as_ref()).flat_map(|a| &a.required);
            out.extend(near.map(|t| t.topology_key.as_str()));
            out.extend(hard(pod).map(|c| c.topology_key.as_str()));
        }
        for pod in place.placed.iter().chain(&place.bound) {
            out.extend(repelling(pod).map(|t| t.topology_key.as_str()));
        }
    }
    out
}

fn standing<'a>(input: &Input<'a>, keys: &BTreeSet<&'a str>, places: &mut [Place<'a>]) {
    for (at, (node, place)) in input.nodes.iter().zip(places).enumerate() {
        let domain = |key: &str| match node.labels().get(key) {
            _ if key == labels::HOSTNAME => Domain::Of(node.hostname()),
            Some(value) => Domain::Of(value),
            None => Domain::Alone(at),
        };
        place.domains = keys.iter().map(|key| (*key, vec![domain(key)])).collect();
    }
}

fn planned<'a>(plan: &'a Plan, lists: &Lists<'a>, names: &'a [String], keys: &BTreeSet<&'a str>, places: &mut [Place<'a>]) {
    let of_list = |at: usize, key: &str| -> Option<BTreeSet<&'a str>> {
        let stated = lists.all[at].known().flat_map(|t| &t.requirements);
        let mut stated = stated.filter(|r| r.operator.as_str() == "In" && labels::normalized(&r.key) == key).peekable();
        stated.peek().is_some().then(|| stated.flat_map(|r| r.values.iter().map(String::as_str)).collect())
    };
    let offered: Vec<BTreeMap<&str, Option<BTreeSet<&str>>>> =
        (0..lists.all.len()).map(|at| keys.iter().map(|key| (*key, of_list(at, key))).collect()).collect();
    let first = places.len() - names.len();
    for (n, (claim, name)) in plan.claims.iter().zip(names).enumerate() {
        let at = first + n;
        for &key in keys {
            // A machine gets these while it starts, although its claim does not say so.
            let given = [labels::REGISTERED, labels::INITIALIZED].contains(&key).then_some("true");
            let label = given.or(claim.labels.get(key).map(String::as_str));
            let listed = offered[lists.index(n)][key].as_ref();
            let domains = if key == labels::HOSTNAME {
                vec![Domain::Of(name)]
            } else if label.is_none() && listed.is_none() {
                vec![Domain::Alone(at)]
            } else {
                let values: BTreeSet<&str> = label.into_iter().chain(listed.into_iter().flatten().copied()).collect();
                let asked: Vec<_> = claim.requirements.iter().filter(|r| r.key == key && r.operator.as_str() == "In").collect();
                let allowed = |v: &&str| asked.iter().all(|r| r.values.iter().any(|x| x == v));
                values.into_iter().filter(allowed).map(Domain::Of).collect()
            };
            places[at].domains.insert(key, domains);
        }
    }
}

/// Pods of one namespace and equal labels taken together.
#[derive(Default)]
struct Classes<'a> {
    all: Vec<Vec<Member<'a>>>,
    /// By label: most selectors name one, and few classes have it.
    with: HashMap<(&'a str, &'a str), Vec<usize>>,
}

impl<'a> Classes<'a> {
    fn of(places: &[Place<'a>]) -> Self {
        let mut known: HashMap<(&str, &BTreeMap<String, String>), usize> = HashMap::new();
        let mut out = Self::default();
        for (at, place) in places.iter().enumerate() {
            for (pod, placed) in place.bound.iter().map(|p| (*p, false)).chain(place.placed.iter().map(|p| (*p, true))) {
                let class = *known.entry((&pod.metadata.namespace, &pod.metadata.labels)).or_insert_with(|| {
                    out.all.push(Vec::new());
                    let label = |(key, value): (&'a String, &'a String)| (key.as_str(), value.as_str());
                    pod.metadata.labels.iter().map(label).for_each(|l| out.with.entry(l).or_default().push(out.all.len() - 1));
                    out.all.len() - 1
                });
                out.all[class].push(Member { place: at, pod, placed });
            }
        }
        out
    }

    /// The classes that a selector may select: those with the rarest of the labels that it names, or all.
    fn asked<'c>(&'c self, selector: Option<&'c LabelSelector>) -> Vec<&'c Vec<Member<'a>>> {
        let with = |key: &'c str, value: &'c str| self.with.get(&(key, value)).map(Vec::as_slice).unwrap_or_default();
        let labels = selector.into_iter().flat_map(|s| &s.match_labels).map(|(key, value)| with(key, value));
        let rows = selector.into_iter().flat_map(|s| &s.match_expressions).filter(|e| e.operator == "In" && e.values.len() == 1);
        match labels.chain(rows.map(|e| with(&e.key, &e.values[0]))).min_by_key(|classes| classes.len()) {
            Some(classes) => classes.iter().map(|class| &self.all[*class]).collect(),
            None => self.all.iter().collect(),
        }
    }
}

impl<'a> Map<'a> {
    fn kin(&mut self, owner: &'a Pod, term: &'a PodAffinityTerm) -> Rc<Kin<'a>> {
        let (places, classes, namespaces) = (&self.places, &self.classes, self.namespaces);
        let made = self.kin.entry((&owner.metadata.namespace, term)).or_insert_with(|| {
            let mut kin = Kin { domains: BTreeMap::new(), at: HashMap::new() };
            // What a term says of a pod depends on its namespace and labels only, which a class shares.
            let asked = classes.asked(term.label_selector.as_ref()).into_iter();
            for one in asked.filter(|c| c.first().is_some_and(|m| kube::selects(term, owner, m.pod, namespaces))).flatten() {
                let place = &places[one.place];
                kin.at.entry(one.place).or_default().push(one.pod);
                for domain in &place.domains[term.topology_key.as_str()] {
                    let company = kin.domains.entry(*domain).or_default();
                    company.all.push(one.pod);
                    company.placed.extend(one.placed.then_some(*one));
                    company.settled.extend(place.settled(&term.topology_key).map(|_| one.pod));
                }
            }
            Rc::new(kin)
        });
        Rc::clone(made)
    }
}

fn other<'a>(pods: &[&'a Pod], than: &Pod) -> Option<&'a Pod> {
    pods.iter().copied().find(|p| !std::ptr::eq(*p, than))
}

/// No pod that the term selects may share a domain with its pod; the first that does is named.
fn apart(place: &Place<'_>, pod: &Pod, term: &PodAffinityTerm, kin: &Kin<'_>, findings: &mut Findings) {
    let shared = place.domains[term.topology_key.as_str()].iter().filter_map(|domain| kin.domains.get(domain));
    if let Some(neighbour) = shared.filter_map(|company| other(&company.all, pod)).next() {
        let detail = format!("{} repels {} in {}", pod.metadata.key(), neighbour.metadata.key(), term.topology_key);
        findings.add(&place.name, "anti-affinity", detail);
    }
}

/// A running pod repels pods that are placed now.
fn repelled(map: &Map<'_>, at: usize, owner: &Pod, term: &PodAffinityTerm, kin: &Kin<'_>, findings: &mut Findings) {
    let shared = map.places[at].domains[term.topology_key.as_str()].iter().filter_map(|domain| kin.domains.get(domain));
    for one in shared.flat_map(|company| &company.placed) {
        let detail = format!("{} repels {} in {}", owner.metadata.key(), one.pod.metadata.key(), term.topology_key);
        findings.add(&map.places[one.place].name, "anti-affinity", detail);
    }
}

fn together(map: &Map<'_>, at: usize, pod: &Pod, term: &PodAffinityTerm, kin: &Kin<'_>, findings: &mut Findings) {
    let (place, key) = (&map.places[at], term.topology_key.as_str());
    // A machine without the label is in no domain: nobody is near it, and it holds no pod that wants company.
    let labelled = place.domains[key].iter().all(|domain| matches!(domain, Domain::Of(_)));
    let within_reach = |domain: &Domain<'_>| match domain {
        Domain::Of(value) => kube::may_be_in(pod, key, value),
        Domain::Alone(_) => false,
    };
    let elsewhere = kin.domains.iter().any(|(domain, company)| other(&company.all, pod).is_some() && within_reach(domain));
    // The first of a kind that attracts itself may go anywhere, and so may one that cannot go where its kind is.
    let first = || !elsewhere && kube::selects(term, pod, pod, map.namespaces);
    let here = || !place.domains[key].is_empty() && kin.at.get(&at).is_some_and(|pods| other(pods, pod).is_some());
    // Wherever the machine turns up, one of them is certainly there.
    let near = || {
        let settled = |domain| kin.domains.get(domain).is_some_and(|company| other(&company.settled, pod).is_some());
        !place.domains[key].is_empty() && place.domains[key].iter().all(settled)
    };
    let holds = labelled && (first() || here() || near());
    findings.expect(holds, &place.name, "affinity", || format!("{} wants a pod that is not near in {key}", pod.metadata.key()));
}

/// Hard spread constraints that only count pods which have them: no domain may be fuller than the emptiest known one by
/// more than the skew, as far as pods of this plan made it so.
fn skews(input: &Input<'_>, map: &Map<'_>, findings: &mut Findings) {
    let mut done: BTreeSet<(&str, &TopologySpreadConstraint)> = BTreeSet::new();
    let mut empty: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for pod in map.places.iter().flat_map(|p| &p.placed) {
        for constraint in hard(pod) {
            if done.insert((&pod.metadata.namespace, constraint)) {
                let key = constraint.topology_key.as_str();
                let known = empty.entry(key).or_insert_with(|| known_domains(input, map, key));
                skew(map, known, &pod.metadata.namespace, constraint, findings);
            }
        }
    }
}

/// The domains of `key` that count even when they are empty: those of machines that exist, and what untainted NodePools
/// without wishes of their own could open. No host is ever the last one.
fn known_domains<'a>(input: &Input<'a>, map: &Map<'a>, key: &str) -> BTreeSet<&'a str> {
    if key == labels::HOSTNAME {
        return BTreeSet::new();
    }
    let plain = |p: &&whittle_api::karpenter::NodePool| p.spec.replicas.is_none() && !p.metadata.is_deleting() && asks_nothing(p, key);
    let pools = input.objects.node_pools.iter().filter(plain).filter_map(|p| input.catalog.get(&p.metadata.name));
    let stated = pools.flat_map(|types| types.iter()).flat_map(|t| &t.requirements).filter(|r| labels::normalized(&r.key) == key);
    let offered = stated.filter(|r| r.operator.as_str() == "In").flat_map(|r| &r.values).map(String::as_str);
    offered.chain(map.places.iter().filter(|p| !p.planned).filter_map(|p| p.settled(key))).collect()
}

fn skew(map: &Map<'_>, known: &BTreeSet<&str>, namespace: &str, constraint: &TopologySpreadConstraint, findings: &mut Findings) {
    // Which nodes count is then a matter of each pod's tolerations, which is more than is checked here.
    let by_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
    let plain = constraint.match_label_keys.is_empty() && !by_taints;
    let Some(selector) = constraint.label_selector.as_ref().filter(|_| plain) else { return };
    let of = |class: &&Vec<Member<'_>>| {
        class.first().is_some_and(|m| m.pod.metadata.namespace == namespace && selector.matches(&m.pod.metadata.labels))
    };
    let selected: Vec<&Member<'_>> = map.classes.asked(Some(selector)).into_iter().filter(of).flatten().collect();
    let mixed = selected.iter().filter(|m| m.placed).map(|m| m.pod).any(|p| {
        let plain = p.spec.node_selector.is_empty() && p.spec.affinity.is_none();
        !plain || !p.spec.topology_spread_constraints.contains(constraint)
    });
    if mixed {
        return;
    }
    let by_host = constraint.topology_key == labels::HOSTNAME;
    let mut counts: BTreeMap<&str, (i32, bool)> = known.iter().map(|domain| (*domain, (0, false))).collect();
    // A machine that is only asked for opens no domain to pods that do not go there.
    for one in selected {
        let Some(domain) = map.places[one.place].settled(&constraint.topology_key) else { continue };
        let entry = counts.entry(domain).or_default();
        entry.0 = entry.0.saturating_add(1);
        entry.1 |= one.placed;
    }
    let least = if by_host { 0 } else { counts.values().map(|(n, _)| *n).min().unwrap_or(0) };
    for (domain, (count, new)) in counts {
        findings.expect(!new || count - least <= constraint.max_skew, domain, "spread", || {
            format!("{count} pods of a spread over {}, elsewhere {least}", constraint.topology_key)
        });
    }
}

fn asks_nothing(pool: &whittle_api::karpenter::NodePool, key: &str) -> bool {
    let template = &pool.spec.template;
    template.spec.taints.is_empty()
        && !template.metadata.labels.contains_key(key)
        && !template.spec.requirements.iter().any(|r| r.key == key)
}
