//! What existing machines and their pods contribute to topology.

use super::builder::ProblemBuilder;
use super::groups::PodSelection;
use super::ids::{GroupId, HostId, IdVec, LabelsId, PodId, SetId, TaintsId};
use super::pods_to_place::PodToPlace;
use super::topology::GroupKind;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Pod;
use whittle_model::requirements::{from_labels, from_requirements};

/// An existing machine, as far as counting is concerned.
#[derive(Clone, Debug)]
pub(crate) struct CountedMachine {
    /// Its labels as requirements: those of its NodeClaim until it is registered, by which pods are placed, too. `None` if no Node has
    /// joined and no pods are bound to it.
    pub(crate) labels: Option<SetId>,
    /// What its claim requires, while no Node has joined: the labels that it lacks it may get among these values.
    pub(crate) open: Option<SetId>,
    pub(crate) taints: TaintsId,
    /// Whether the pass may place pods on it.
    pub(crate) offered: bool,
    /// Bound pods that count, by label set.
    pub(crate) pods: Vec<(LabelsId, u32)>,
    /// Bound pods that are terminating, by label set: they count for required anti-affinity alone.
    pub(crate) terminating: Vec<(LabelsId, u32)>,
    /// Required anti-affinity groups of bound pods.
    pub(crate) repels: Vec<GroupId>,
}

/// What each machine contributes to topology, without the pods that are being placed.
pub(crate) fn collect(builder: &mut ProblemBuilder<'_>, to_place: &IdVec<PodId, PodToPlace<'_>>) -> IdVec<HostId, CountedMachine> {
    let in_pass: BTreeSet<*const Pod> = to_place.iter().map(|p| std::ptr::from_ref(p.pod)).collect();
    let input = builder.input;
    let mut out = IdVec::with_capacity(input.nodes.len());
    for node in input.nodes {
        let counts = node.node.is_some() || !node.pods.is_empty();
        let labels = counts.then(|| builder.split(&from_labels(node.labels())).0);
        let joins = node.claim.as_ref().filter(|_| node.node.is_none());
        let open = joins.map(|claim| builder.split(&from_requirements(&claim.spec.requirements)).0);
        let taints = builder.taint_table.taints(&node.simulated_taints());
        let mut staying: BTreeMap<LabelsId, u32> = BTreeMap::new();
        let mut terminating: BTreeMap<LabelsId, u32> = BTreeMap::new();
        let mut repels = Vec::new();
        for pod in node.pods.iter().map(|&p| &input.objects.pods[p]) {
            if in_pass.contains(&std::ptr::from_ref(pod)) {
                continue;
            }
            // A terminating pod neither spreads nor attracts others, but they are kept apart until it is gone (scheduling 21).
            let by_labels = if pod.metadata.is_deleting() { &mut terminating } else { &mut staying };
            *by_labels.entry(builder.groups.labels(&pod.metadata.namespace, &pod.metadata.labels)).or_insert(0) += 1;
            let anti = pod.spec.affinity.as_ref().and_then(|a| a.pod_anti_affinity.as_ref());
            for term in anti.map(|a| &a.required[..]).unwrap_or_default() {
                let selects = PodSelection::of(term, &pod.metadata.namespace, &input.objects.namespaces);
                let place = (pod.metadata.namespace.as_str(), term.topology_key.as_str());
                let id = builder.groups.term(GroupKind::Inverse, place, selects, None, &mut builder.names);
                builder.groups.runs(id);
                repels.push(id);
            }
        }
        let (pods, terminating) = (staying.into_iter().collect(), terminating.into_iter().collect());
        out.push(CountedMachine { labels, open, taints, offered: builder.is_offered(node), pods, terminating, repels });
    }
    out
}
