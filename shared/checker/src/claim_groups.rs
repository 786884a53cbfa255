//! Groups claims that differ only in their pods, so that their instance types are checked once.

use super::Findings;
use super::kube::{self, PossibleLabels};
use super::launchable::{TYPES_MAX, is_compatible, launchable, possible_labels, runs_on, type_requirements};
use super::type_lists::TypeList;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{NodeSelector, Pod, Taint};
use whittle_api::karpenter::{NodePool, Requirement};
use whittle_api::labels;
use whittle_model::scheduling::NewClaim;
use whittle_units::{Price, Resources};

/// The part of a claim that determines which types suit it, apart from its type list and pods.
type ClaimSpec<'a> = (&'a str, &'a BTreeMap<String, String>, &'a [Taint], &'a [Requirement]);

/// The part of a pod that constrains the labels of its machine ([`kube::node_fits`]).
type NodeConstraints<'a> = (&'a BTreeMap<String, String>, Option<&'a NodeSelector>);

/// The groups found so far.
#[derive(Default)]
pub(crate) struct ClaimGroups<'a> {
    /// Label keys that pods and daemons refer to; others are ignored.
    label_keys: BTreeSet<String>,
    specs: HashMap<ClaimSpec<'a>, usize>,
    candidates: HashMap<(usize, &'a str), Rc<PossibleType>>,
    groups: HashMap<(usize, usize), ClaimGroup<'a>>,
}

/// An instance type that claims with the same spec may be launched with.
struct PossibleType {
    name: String,
    is_compatible: bool,
    allowed: bool,
    /// Price of the cheapest offering that can be launched.
    price: Option<Price>,
    possible: PossibleLabels,
    /// Requests of the daemons that certainly run there.
    daemons: Resources,
    allocatable: Resources,
}

/// Claims with the same spec and the same type list.
pub(crate) struct ClaimGroup<'a> {
    candidates: Vec<Rc<PossibleType>>,
    /// Candidates by the requests of their daemons, with the resources that each of them has at least.
    groups: BTreeMap<Resources, (Resources, Vec<Rc<PossibleType>>)>,
    refusing_types: HashMap<NodeConstraints<'a>, Vec<String>>,
    violations: Findings,
    pub(crate) cheapest: Option<Price>,
}

impl<'a> ClaimGroups<'a> {
    /// No groups yet; only these label keys matter.
    pub(crate) fn new(label_keys: BTreeSet<String>) -> Self {
        Self { label_keys, ..Self::default() }
    }

    /// The group of `claim`, whose types are `list`, at `index` among the type lists of the plan. `check_group` runs
    /// once per group.
    pub(crate) fn of(
        &mut self,
        claim: &'a NewClaim,
        pool: &NodePool,
        (index, list): (usize, &TypeList<'a>),
        daemons: &[Pod],
        check_group: impl FnOnce(&mut Findings),
    ) -> &mut ClaimGroup<'a> {
        let next = self.specs.len();
        let spec_id = *self.specs.entry((&claim.node_pool, &claim.labels, &claim.taints, &claim.requirements)).or_insert(next);
        let (candidates, label_keys) = (&mut self.candidates, &self.label_keys);
        self.groups.entry((index, spec_id)).or_insert_with(|| {
            let mut of = |instance_type: &'a InstanceType| {
                let known = candidates
                    .entry((spec_id, instance_type.name.as_str()))
                    .or_insert_with(|| Rc::new(PossibleType::new(claim, pool, instance_type, daemons, label_keys)));
                Rc::clone(known)
            };
            let mut group = ClaimGroup::new(list, &mut of);
            check_group(&mut group.violations);
            group
        })
    }
}

impl PossibleType {
    fn new(claim: &NewClaim, pool: &NodePool, instance_type: &InstanceType, daemons: &[Pod], label_keys: &BTreeSet<String>) -> Self {
        let offerings = launchable(claim, instance_type);
        let possible = possible_labels(claim, pool, instance_type, &offerings, label_keys);
        let mut requests = Resources::new();
        // A type that cannot be launched has no zone or capacity type that a daemon could reject.
        let launched = daemons.iter().filter(|d| !offerings.is_empty() && runs_on(d, claim, &possible));
        launched.for_each(|d| requests.add(&kube::requests(d)));
        let mut named = pool.spec.template.spec.requirements.iter().filter(|r| labels::normalized(&r.key) == labels::INSTANCE_TYPE);
        Self {
            name: instance_type.name.clone(),
            is_compatible: is_compatible(&type_requirements(claim), &instance_type.requirements),
            allowed: named.all(|r| kube::admits(r.operator.as_str(), &r.values, Some(&instance_type.name))),
            price: offerings.iter().map(|o| o.price).min(),
            possible,
            daemons: requests,
            allocatable: instance_type.allocatable(),
        }
    }
}

impl<'a> ClaimGroup<'a> {
    fn new(list: &TypeList<'a>, make_candidate: &mut impl FnMut(&'a InstanceType) -> Rc<PossibleType>) -> Self {
        let mut violations = Findings::default();
        violations.expect(!list.types.is_empty(), "", "types-none", || "it lists no instance type".into());
        violations.expect(list.types.len() <= TYPES_MAX, "", "types-many", || format!("it lists more than {TYPES_MAX} instance types"));
        violations.expect(list.distinct, "", "types-twice", || "it lists an instance type twice".into());
        let mut out = Self {
            candidates: Vec::with_capacity(list.types.len()),
            groups: BTreeMap::new(),
            refusing_types: HashMap::new(),
            violations,
            cheapest: None,
        };
        let mut last = None;
        for (name, instance_type) in &list.types {
            match instance_type {
                None => out.violations.add("", "type-unknown", format!("NodePool {} cannot buy {name}", list.pool)),
                Some(instance_type) => out.add(make_candidate(instance_type), &mut last),
            }
        }
        out
    }

    fn add(&mut self, candidate: Rc<PossibleType>, last: &mut Option<Price>) {
        let (violations, name) = (&mut self.violations, &candidate.name);
        violations.expect(candidate.is_compatible, "", "type-requirements", || format!("{name} contradicts its requirements"));
        violations.expect(candidate.allowed, "", "template", || format!("its NodePool does not allow {name}"));
        violations.expect(candidate.price.is_none() || last.is_none_or(|l| candidate.price >= Some(l)), "", "types-order", || {
            format!("{name} is cheaper than one before it")
        });
        *last = candidate.price.or(*last);
        self.cheapest = self.cheapest.into_iter().chain(candidate.price).min();
        let (floor, group) = self.groups.entry(candidate.daemons.clone()).or_insert_with(|| (candidate.allocatable.clone(), Vec::new()));
        // A resource that one candidate lacks is not available on all of them.
        floor.0.retain(|resource, _| candidate.allocatable.0.contains_key(resource));
        floor.0.iter_mut().for_each(|(resource, amount)| *amount = (*amount).min(candidate.allocatable.get(resource)));
        group.push(Rc::clone(&candidate));
        self.candidates.push(candidate);
    }

    /// Reports the violations that do not depend on pods.
    pub(crate) fn report(&self, object: &str, findings: &mut Findings) {
        self.violations.0.iter().for_each(|v| findings.add(object, v.rule, v.detail.clone()));
    }

    /// Names of the types on which the pod must not run.
    pub(crate) fn types_refusing(&mut self, pod: &'a Pod) -> &[String] {
        let required = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
        if pod.spec.node_selector.is_empty() && required.is_none() {
            return &[];
        }
        let candidates = &self.candidates;
        self.refusing_types
            .entry((&pod.spec.node_selector, required))
            .or_insert_with(|| candidates.iter().filter(|c| !kube::node_fits(pod, &c.possible)).map(|c| c.name.clone()).collect())
    }

    /// Names of the types that are too small for requests of `sum`.
    pub(crate) fn types_too_small(&self, sum: &Resources) -> Vec<&str> {
        let mut out = Vec::new();
        for (daemons, (floor, group)) in &self.groups {
            let mut requests = sum.clone();
            requests.add(daemons);
            if !requests.fits(floor) {
                out.extend(group.iter().filter(|c| !requests.fits(&c.allocatable)).map(|c| c.name.as_str()));
            }
        }
        out
    }
}
