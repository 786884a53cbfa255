//! DaemonSets whose pods a pod must not be beside, or that must not be beside it: no new machine takes it on which they are sure to run
//! (scheduling 21).

use super::bits::Bits;
use super::builder::ProblemBuilder;
use super::catalog::Catalog;
use super::future_daemons::{FutureDaemons, tolerates_everything};
use super::groups::PodSelection;
use super::ids::{IdVec, SetId, TypeId};
use super::intern::Vals;
use super::pod::allows_unnamed_host;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Namespace, Pod, PodAffinityTerm, PriorityClass, Taint, TaintEffect};
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::pods;
use whittle_model::scheduling::Input;

/// A DaemonSet that some pod must not be beside, on the machines of one NodePool.
#[derive(Clone, Debug)]
pub(crate) struct AvoidedDaemon {
    /// Its place among the future daemons.
    pub(crate) at: usize,
    /// `namespace/name`.
    pub(crate) name: String,
    /// The types on which it runs, in whichever zone and of whichever capacity type a machine is launched.
    pub(crate) types: Bits,
}

/// What decides between a pod and a daemon that must not be on one node, besides which of them is there first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rank {
    priority: i32,
    /// Kube-scheduler evicts pods of lower priority for it.
    preempts: bool,
}

impl Rank {
    fn of(pod: &Pod, classes: &[PriorityClass]) -> Self {
        Self { priority: priority(pod, classes), preempts: !evicts_nobody(pod, classes) }
    }

    fn evicts(self, other: Self) -> bool {
        self.preempts && self.priority > other.priority
    }
}

/// Which pods may have to avoid daemons. Each pod is asked, so what daemons keep away is read once.
pub(crate) struct Avoiding {
    has_daemons: bool,
    /// What the required anti-affinity by host of daemons selects that tolerate everything.
    kept_away: Vec<PodSelection>,
}

impl Avoiding {
    pub(crate) fn of(daemons: &[Pod], input: &Input<'_>) -> Self {
        let first = daemons.iter().filter(|daemon| tolerates_everything(&daemon.spec.tolerations));
        let kept_away = first.flat_map(|daemon| apart_from(daemon, &input.objects.namespaces)).collect();
        Self { has_daemons: !daemons.is_empty(), kept_away }
    }

    /// The rank of a pod whose rules, or those of daemons, may keep both apart: whether they do depends on it.
    pub(crate) fn rank(&self, pod: &Pod, input: &Input<'_>) -> Option<Rank> {
        let is_kept_away = || self.kept_away.iter().any(|selection| selects(selection, pod));
        let may_avoid = self.has_daemons && (terms_by_host(pod).next().is_some() || is_kept_away());
        may_avoid.then(|| Rank::of(pod, &input.objects.priority_classes))
    }
}

/// Whether a daemon's pods are bound to a node before the pod. Those that tolerate everything are, before the node is ready, but for a pod
/// that tolerates that as well: it may be bound as soon as the node joins. The pods of others are made when the taints are gone that they
/// do not tolerate, by which time kube-scheduler may have bound the pod: then it keeps them away.
fn is_there_first(daemon: &Pod, pod: &Pod) -> bool {
    tolerates_everything(&daemon.spec.tolerations) && !pods::untolerated(&pod.spec.tolerations, &joining_taints()).is_empty()
}

/// Whether the required anti-affinity by host of a daemon's pods, which are there first, keeps the pod away.
fn keeps_away(daemon: &Pod, pod: &Pod, namespaces: &[Namespace]) -> bool {
    is_there_first(daemon, pod) && apart_from(daemon, namespaces).any(|selection| selects(&selection, pod))
}

/// The taints that every node of a NodeClaim joins with.
fn joining_taints() -> [Taint; 2] {
    let unregistered = Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute);
    [unregistered, Taint::new("node.kubernetes.io/not-ready", TaintEffect::NoSchedule)]
}

/// The daemons, by their place among the future ones, that the pod must not be beside, each with whether the pod's own anti-affinity says
/// so: those that are there first, unless kube-scheduler evicts them for it, and those for which it evicts the pod.
pub(crate) fn avoided_by(
    (pod, rank): (&Pod, Option<Rank>),
    builder: &ProblemBuilder<'_>,
    (daemons, future): (&[Pod], &FutureDaemons),
) -> BTreeMap<usize, bool> {
    let input = builder.input;
    let Some(own) = rank else { return BTreeMap::new() };
    let selections: Vec<PodSelection> = apart_from(pod, &input.objects.namespaces).collect();
    let is_selected = |template: &Pod| selections.iter().any(|selection| selects(selection, template));
    let concerns = |template: &Pod| is_selected(template) || keeps_away(template, pod, &input.objects.namespaces);
    let is_avoided = |template: &Pod| {
        let Some(at) = place_of(daemons, template) else { return false };
        // The template names a class alone; the pods that run have its value.
        let daemon = Rank::of(&daemons[at], &input.objects.priority_classes);
        is_there_first(template, pod) && !own.evicts(daemon) || is_selected(template) && daemon.evicts(own)
    };
    let found = future.selected(builder, concerns).into_iter();
    found.filter(|(_, template)| is_avoided(template)).map(|(at, template)| (at, is_selected(template))).collect()
}

/// Where the daemons that some pod must not be beside run, of those that run on the types of a NodePool at all. One that does not tolerate
/// its startup taints may come later than the pod, and then not at all.
pub(crate) fn of_template(
    builder: &mut ProblemBuilder<'_>,
    (daemons, future): (&[Pod], &FutureDaemons),
    avoided: &BTreeSet<usize>,
    (pool, template, catalog): (&NodePool, SetId, &Catalog),
    running: &IdVec<TypeId, Vec<usize>>,
) -> Vec<AvoidedDaemon> {
    let spec = &pool.spec.template.spec;
    let is_hard = |taint: &&Taint| taint.effect != TaintEffect::PreferNoSchedule;
    let taints: Vec<Taint> = spec.taints.iter().chain(&spec.startup_taints).filter(is_hard).cloned().collect();
    let of_daemon = |&at: &usize| {
        let daemon = future.pod(at).filter(|daemon| pods::untolerated(&daemon.spec.tolerations, &taints).is_empty())?;
        let counted = place_of(daemons, daemon)?;
        let terms: Vec<_> = pods::daemon_terms(daemon).iter().map(|term| builder.split(term)).collect();
        let sets = &builder.sets;
        let is_sure = |t: TypeId| {
            let is_met_by = |asked: SetId| {
                let mut asked = sets.get(asked).iter();
                asked.all(|(key, wanted)| is_met(wanted, sets.get(template).get(key), catalog.sets[t].get(key)))
            };
            terms.iter().any(|(asked, host)| allows_unnamed_host(host.as_ref()) && is_met_by(*asked))
        };
        let mut types = Bits::none(catalog.len());
        for (t, _) in running.enumerate().filter(|(t, here)| here.contains(&counted) && is_sure(*t)) {
            types.insert(t);
        }
        let name = daemon.metadata.key();
        (!types.is_empty()).then_some(AvoidedDaemon { at, name, types })
    };
    avoided.iter().filter_map(of_daemon).collect()
}

/// Whether every machine has a value that is wanted, or lacks the label if that is. A machine has one of the values that both its NodePool
/// and its type allow.
fn is_met(wanted: &Vals, of_pool: Option<&Vals>, of_type: Option<&Vals>) -> bool {
    let both = match (of_pool, of_type) {
        (None, None) => return wanted.allows_absence(),
        (Some(one), Some(other)) => one.intersect(other),
        (Some(one), None) | (None, Some(one)) => one.clone(),
    };
    match both.members() {
        Some([]) => wanted.allows_absence(),
        Some(all) => all.iter().all(|value| wanted.has(value)),
        None => false,
    }
}

/// The required terms of anti-affinity whose domains are machines.
fn terms_by_host(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let anti = pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    anti.map(|anti| &anti.required[..]).unwrap_or_default().iter().filter(|term| term.topology_key == labels::HOSTNAME)
}

/// What these terms select, one by one.
fn apart_from(pod: &Pod, namespaces: &[Namespace]) -> impl Iterator<Item = PodSelection> {
    terms_by_host(pod).map(move |term| PodSelection::of(term, &pod.metadata.namespace, namespaces))
}

fn selects(selection: &PodSelection, pod: &Pod) -> bool {
    selection.selects(&pod.metadata.namespace, &pod.metadata.labels)
}

/// Pods of a higher priority are placed first, and may have others evicted. The template of a DaemonSet names its class alone.
pub(crate) fn priority(pod: &Pod, classes: &[PriorityClass]) -> i32 {
    let of_class = || match pod.spec.priority_class_name.as_str() {
        "system-node-critical" => Some(2_000_001_000),
        "system-cluster-critical" => Some(2_000_000_000),
        "" => classes.iter().find(|class| class.global_default).map(|class| class.value),
        name => classes.iter().find(|class| class.metadata.name == name).map(|class| class.value),
    };
    pod.spec.priority.or_else(of_class).unwrap_or_default()
}

/// Whether kube-scheduler evicts no pods for it. Manifests name a class alone.
fn evicts_nobody(pod: &Pod, classes: &[PriorityClass]) -> bool {
    let of_class = |class: &PriorityClass| class.metadata.name == pod.spec.priority_class_name && class.preemption_policy == "Never";
    match pod.spec.preemption_policy.as_str() {
        "" => classes.iter().any(of_class),
        own => own == "Never",
    }
}

/// The place of a DaemonSet in the list of daemons. What stands for it there may be one of its live pods.
fn place_of(daemons: &[Pod], template: &Pod) -> Option<usize> {
    daemons.iter().position(|daemon| pods::daemon_set_of(daemon) == pods::daemon_set_of(template))
}
