//! Claims that differ in nothing but their pods are of one kind: what may be said of their machines is said once.

use super::Findings;
use super::claims::{TYPES_MAX, agrees, launchable, of_the_type, possible_labels, runs_on};
use super::kube::{self, Possible};
use super::lists::List;
use crate::schedule::NewClaim;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{NodeSelector, Pod, Taint};
use whittle_api::karpenter::{NodePool, Requirement};
use whittle_api::labels;
use whittle_units::{Price, Resources};

/// Everything of a claim that decides about a type, apart from the list and the pods.
type Shape<'a> = (&'a str, &'a BTreeMap<String, String>, &'a [Taint], &'a [Requirement]);

/// Everything of a pod that decides about the labels of a machine ([`kube::node_fits`]).
type Wish<'a> = (&'a BTreeMap<String, String>, Option<&'a NodeSelector>);

/// What is known so far.
#[derive(Default)]
pub(crate) struct Kinds<'a> {
    /// Label keys that pods and daemons ask about: no others are looked at.
    asked: BTreeSet<String>,
    shapes: HashMap<Shape<'a>, usize>,
    candidates: HashMap<(usize, &'a str), Rc<Candidate>>,
    kinds: HashMap<(usize, usize), Kind<'a>>,
}

/// A type that claims of one shape may become.
struct Candidate {
    name: String,
    agrees: bool,
    allowed: bool,
    /// Of the cheapest offering that can be launched.
    price: Option<Price>,
    possible: Possible,
    /// What the daemons take that would certainly run there.
    daemons: Resources,
    room: Resources,
}

/// Claims of one shape with one list.
pub(crate) struct Kind<'a> {
    candidates: Vec<Rc<Candidate>>,
    /// Candidates by what their daemons take, with what every one of them has room for.
    groups: BTreeMap<Resources, (Resources, Vec<Rc<Candidate>>)>,
    refusals: HashMap<Wish<'a>, Vec<String>>,
    wrong: Findings,
    pub(crate) cheapest: Option<Price>,
}

impl<'a> Kinds<'a> {
    /// Nothing is known yet; pods and daemons ask about these label keys.
    pub(crate) fn asking(asked: BTreeSet<String>) -> Self {
        Self { asked, ..Self::default() }
    }

    /// The kind of `claim`, whose list is `list` at `place` among the lists of the plan. What `also` finds
    /// wrong with a kind it is asked about once.
    pub(crate) fn of(
        &mut self,
        claim: &'a NewClaim,
        pool: &NodePool,
        (place, list): (usize, &List<'a>),
        daemons: &[Pod],
        also: impl FnOnce(&mut Findings),
    ) -> &mut Kind<'a> {
        let next = self.shapes.len();
        let shape = *self.shapes.entry((&claim.node_pool, &claim.labels, &claim.taints, &claim.requirements)).or_insert(next);
        let (candidates, asked) = (&mut self.candidates, &self.asked);
        self.kinds.entry((place, shape)).or_insert_with(|| {
            let mut of = |t: &'a InstanceType| {
                let made =
                    candidates.entry((shape, t.name.as_str())).or_insert_with(|| Rc::new(Candidate::new(claim, pool, t, daemons, asked)));
                Rc::clone(made)
            };
            let mut kind = Kind::new(list, &mut of);
            also(&mut kind.wrong);
            kind
        })
    }
}

impl Candidate {
    fn new(claim: &NewClaim, pool: &NodePool, t: &InstanceType, daemons: &[Pod], asked: &BTreeSet<String>) -> Self {
        let offerings = launchable(claim, t);
        let possible = possible_labels(claim, pool, t, &offerings, asked);
        let mut need = Resources::new();
        // A type that cannot be launched has no zone and no capacity type that a daemon could refuse.
        let launched = daemons.iter().filter(|d| !offerings.is_empty() && runs_on(d, claim, &possible));
        launched.for_each(|d| need.add(&kube::requests(d)));
        let mut named = pool.spec.template.spec.requirements.iter().filter(|r| labels::normalized(&r.key) == labels::INSTANCE_TYPE);
        Self {
            name: t.name.clone(),
            agrees: agrees(&of_the_type(claim), &t.requirements),
            allowed: named.all(|r| kube::admits(r.operator.as_str(), &r.values, Some(&t.name))),
            price: offerings.iter().map(|o| o.price).min(),
            possible,
            daemons: need,
            room: t.allocatable(),
        }
    }
}

impl<'a> Kind<'a> {
    fn new(list: &List<'a>, candidate: &mut impl FnMut(&'a InstanceType) -> Rc<Candidate>) -> Self {
        let mut wrong = Findings::default();
        wrong.expect(!list.types.is_empty(), "", "types-none", || "it lists no instance type".into());
        wrong.expect(list.types.len() <= TYPES_MAX, "", "types-many", || format!("it lists more than {TYPES_MAX} instance types"));
        wrong.expect(list.distinct, "", "types-twice", || "it lists an instance type twice".into());
        let mut out = Self {
            candidates: Vec::with_capacity(list.types.len()),
            groups: BTreeMap::new(),
            refusals: HashMap::new(),
            wrong,
            cheapest: None,
        };
        let mut last = None;
        for (name, t) in &list.types {
            match t {
                None => out.wrong.add("", "type-unknown", format!("NodePool {} cannot buy {name}", list.pool)),
                Some(t) => out.add(candidate(t), &mut last),
            }
        }
        out
    }

    fn add(&mut self, one: Rc<Candidate>, last: &mut Option<Price>) {
        let (wrong, name) = (&mut self.wrong, &one.name);
        wrong.expect(one.agrees, "", "type-requirements", || format!("{name} contradicts its requirements"));
        wrong.expect(one.allowed, "", "template", || format!("its NodePool does not allow {name}"));
        wrong.expect(one.price.is_none() || last.is_none_or(|l| one.price >= Some(l)), "", "types-order", || {
            format!("{name} is cheaper than one before it")
        });
        *last = one.price.or(*last);
        self.cheapest = self.cheapest.into_iter().chain(one.price).min();
        let (floor, group) = self.groups.entry(one.daemons.clone()).or_insert_with(|| (one.room.clone(), Vec::new()));
        // What one of them lacks none of them has for certain.
        floor.0.retain(|resource, _| one.room.0.contains_key(resource));
        floor.0.iter_mut().for_each(|(resource, amount)| *amount = (*amount).min(one.room.get(resource)));
        group.push(Rc::clone(&one));
        self.candidates.push(one);
    }

    /// What is wrong whatever the pods are.
    pub(crate) fn repeat(&self, object: &str, findings: &mut Findings) {
        self.wrong.0.iter().for_each(|v| findings.add(object, v.rule, v.detail.clone()));
    }

    /// The names of the types on which the pod may not run.
    pub(crate) fn refused(&mut self, pod: &'a Pod) -> &[String] {
        let required = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
        if pod.spec.node_selector.is_empty() && required.is_none() {
            return &[];
        }
        let candidates = &self.candidates;
        self.refusals
            .entry((&pod.spec.node_selector, required))
            .or_insert_with(|| candidates.iter().filter(|c| !kube::node_fits(pod, &c.possible)).map(|c| c.name.clone()).collect())
    }

    /// The names of the types that pods which take `sum` do not fit.
    pub(crate) fn too_small(&self, sum: &Resources) -> Vec<&str> {
        let mut out = Vec::new();
        for (daemons, (floor, group)) in &self.groups {
            let mut need = sum.clone();
            need.add(daemons);
            if !need.fits(floor) {
                out.extend(group.iter().filter(|c| !need.fits(&c.room)).map(|c| c.name.as_str()));
            }
        }
        out
    }
}
