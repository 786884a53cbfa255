//! Which pods take part in a pass, and which are rejected before anything is placed.

use super::builder::{ProblemBuilder, Questions};
use super::ids::{HostId, Id as _, IdVec, PodId};
use super::intern::{LABELS_MAX, VALUES_MAX};
use super::relaxation;
use whittle_api::k8s::{NodeSelectorTerm, Pod, PodSpec};
use whittle_api::labels;
use whittle_model::pods;
use whittle_model::requirements::{Allowed, Operator, term_requirements};
use whittle_model::scheduling::{LeftOut, PodRef, PreferencePolicy, Reason, opt_out_fault};

/// A pod of the pass, before it is put into a class.
pub(crate) struct PodToPlace<'a> {
    pub(crate) pod: &'a Pod,
    /// Whether it comes from a simulated candidate and is not pending.
    pub(crate) avoids_spared: bool,
    /// The machine that it leaves only in a simulation; `None` for pods that must be placed anyway.
    pub(crate) simulated_from: Option<HostId>,
}

/// A pod that is rejected before anything is placed.
pub(crate) struct Rejected {
    /// As for [`PodToPlace`].
    pub(crate) simulated_from: Option<HostId>,
    pub(crate) left_out: LeftOut,
}

impl Rejected {
    fn new(pod: &Pod, reason: Reason, simulated_from: Option<HostId>) -> Self {
        Self { simulated_from, left_out: LeftOut { pod: PodRef::of(pod), reason } }
    }
}

/// All pods that a pass has to decide about.
pub(crate) struct Selection<'a> {
    pub(crate) pods: IdVec<PodId, PodToPlace<'a>>,
    pub(crate) rejected: Vec<Rejected>,
}

/// Separates the pods to place from those that cannot be placed whatever machines there are.
pub(crate) fn select<'a>(builder: &ProblemBuilder<'a>) -> Selection<'a> {
    let input = builder.input;
    let objects = input.objects;
    // Allocated at full size, to avoid copying it as it grows.
    let mut selected = IdVec::with_capacity(objects.pods.len() + input.virtual_pods.len());
    let mut rejected = Vec::new();
    for pod in objects.pods.iter().filter(|p| pods::is_provisionable(p)) {
        if let Some(settled) = builder.options.settled.get(&pod.metadata.uid) {
            let (category, message) = (settled.category.clone(), settled.message.clone());
            let reason = Reason::Unchanged { category, message, depends_on_others: settled.depends_on_others };
            rejected.push(Rejected::new(pod, reason, None));
            continue;
        }
        let faults = faults(builder, pod);
        if faults.is_empty() {
            selected.push(PodToPlace { pod, avoids_spared: false, simulated_from: None });
        } else {
            let only_opts_out = faults.len() == 1 && opts_out(&pod.spec);
            let reason = if only_opts_out { Reason::OptedOut } else { Reason::Ignored(faults) };
            rejected.push(Rejected::new(pod, reason, None));
        }
    }
    for pod in input.virtual_pods {
        selected.push(PodToPlace { pod, avoids_spared: false, simulated_from: None });
    }
    let simulation = builder.options.simulation.as_ref();
    for (host, node) in input.nodes.iter().enumerate() {
        let candidate = builder.questions == Questions::Many || simulation.is_some_and(|s| s.candidates.contains(node.name()));
        if node.node.is_none() || !(node.marked_for_deletion || candidate) {
            continue;
        }
        let simulated_from = (!node.marked_for_deletion).then_some(HostId::at(host));
        // What a simulation removes has no deadline: whoever may not be evicted stays there.
        let deadline = node.forced_at().filter(|_| node.marked_for_deletion);
        for pod in node.pods.iter().map(|&p| &objects.pods[p]) {
            if !pods::moves_with_its_node(pod, &objects.disruption_budgets, deadline, input.now) {
                continue;
            }
            let fault = builder.volumes.alternatives(pod).err().or_else(|| pods::empty_affinity(pod)).or_else(|| overloaded(&pod.spec));
            if let Some(fault) = fault {
                rejected.push(Rejected::new(pod, Reason::Ignored(vec![fault]), simulated_from));
            } else {
                selected.push(PodToPlace { pod, avoids_spared: simulated_from.is_some() && pod.status.phase != "Pending", simulated_from });
            }
        }
    }
    Selection { pods: selected, rejected }
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
        out.push(format!("it requests {} of {name}: a request cannot be negative", amount.text_of(name)));
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
    let (labels, values) = constrained(spec);
    over(about_pods, POD_TERMS_MAX, "terms about other pods")
        .or_else(|| over(terms, NODE_TERMS_MAX, "terms of node affinity"))
        .or_else(|| over(labels, LABELS_MAX, "constraints on labels in its node selector and a term of node affinity"))
        .or_else(|| over(values, VALUES_MAX, "values in its node selector and a term of node affinity"))
}

/// How many labels the pod constrains at once, and with how many values: by its node selector, one required and one preferred term. All of
/// them become requirements of its machine's claim.
fn constrained(spec: &PodSpec) -> (usize, usize) {
    let node = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = node.and_then(|n| n.required.as_ref()).into_iter().flat_map(|r| &r.node_selector_terms);
    let preferred = node.into_iter().flat_map(|n| &n.preferred).map(|p| &p.preference);
    let (required, preferred): (Vec<_>, Vec<_>) = (required.collect(), preferred.collect());
    let most = |count: fn(&NodeSelectorTerm) -> usize| {
        let of = |terms: &[&NodeSelectorTerm]| terms.iter().map(|term| count(term)).max().unwrap_or_default();
        spec.node_selector.len() + of(&required) + of(&preferred)
    };
    (most(|term| term.match_expressions.len()), most(|term| term.match_expressions.iter().map(|one| one.values.len()).sum()))
}

/// Whether the pod excludes all NodePools: its requirement on the NodePool label, including its heaviest preference, is
/// `DoesNotExist`, and not merely because its requirements contradict each other.
fn opts_out(spec: &PodSpec) -> bool {
    let full = relaxation::requirements_of(spec, PreferencePolicy::Respect);
    if full.get(labels::NODE_POOL).is_none_or(|a| a.operator() != Operator::DoesNotExist) {
        return false;
    }
    let Some(affinity) = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()) else { return false };
    let preferred = relaxation::heaviest(&affinity.preferred, |t| t.weight).map(|at| &affinity.preferred[at].preference);
    let first = affinity.required.as_ref().and_then(|r| r.node_selector_terms.first());
    let is_excluding = |a: &Allowed<String>| a.operator() == Operator::DoesNotExist && !a.is_contradiction();
    preferred.into_iter().chain(first).any(|term| term_requirements(term).get(labels::NODE_POOL).is_some_and(is_excluding))
}
