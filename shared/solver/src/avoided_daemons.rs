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

/// The pod's priority, if its rules may concern daemons: whether they do depends on it. Who evicts nobody has the least, since daemons are
/// on a node before it is ready.
pub(crate) fn priority_towards(pod: &Pod, input: &Input<'_>, daemons: &[Pod]) -> Option<i32> {
    let classes = &input.objects.priority_classes;
    let is_kept_away = || daemons.iter().any(|daemon| keeps_away(daemon, pod, &input.objects.namespaces));
    let may_avoid = !daemons.is_empty() && (terms_by_host(pod).next().is_some() || is_kept_away());
    may_avoid.then(|| if evicts_nobody(pod, classes) { i32::MIN } else { priority(pod, classes) })
}

/// Whether the required anti-affinity by host of a daemon's pods keeps the pod away. Those that tolerate everything are bound to a node
/// before it is ready, and so before other pods, but for one that tolerates that as well: it may be bound as soon as the node joins, before
/// the daemon is made. Where others come after the pod, it keeps them away.
fn keeps_away(daemon: &Pod, pod: &Pod, namespaces: &[Namespace]) -> bool {
    let Pod { metadata, .. } = pod;
    let selects = |term: &PodAffinityTerm| {
        let selection = PodSelection::of(term, &daemon.metadata.namespace, namespaces);
        selection.selects(&metadata.namespace, &metadata.labels)
    };
    let waits = || !pods::untolerated(&pod.spec.tolerations, &joining_taints()).is_empty();
    tolerates_everything(&daemon.spec.tolerations) && terms_by_host(daemon).any(selects) && waits()
}

/// The taints that every node of a NodeClaim joins with.
fn joining_taints() -> [Taint; 2] {
    let unregistered = Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute);
    [unregistered, Taint::new("node.kubernetes.io/not-ready", TaintEffect::NoSchedule)]
}

/// The daemons, by their place among the future ones, that the pod must not be beside, each with whether the pod's own anti-affinity says
/// so. Those of lower priority are not among them: kube-scheduler places the pod first, or evicts them for it.
pub(crate) fn avoided_by(pod: &Pod, builder: &ProblemBuilder<'_>, (daemons, future): (&[Pod], &FutureDaemons)) -> BTreeMap<usize, bool> {
    let input = builder.input;
    let Some(own) = priority_towards(pod, input, daemons) else { return BTreeMap::new() };
    let selections = terms_by_host(pod).map(|term| PodSelection::of(term, &pod.metadata.namespace, &input.objects.namespaces));
    let selections: Vec<PodSelection> = selections.collect();
    let is_selected = |template: &Pod| {
        let Pod { metadata, .. } = template;
        selections.iter().any(|selection| selection.selects(&metadata.namespace, &metadata.labels))
    };
    let concerns = |template: &Pod| is_selected(template) || keeps_away(template, pod, &input.objects.namespaces);
    // The template names a class alone; the pods that run have its value.
    let is_avoided = |template: &Pod| {
        let counted = place_of(daemons, template);
        counted.is_some_and(|at| own <= priority(&daemons[at], &input.objects.priority_classes))
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

/// Pods of a higher priority are placed first, and may have others evicted. The template of a DaemonSet names its class alone.
fn priority(pod: &Pod, classes: &[PriorityClass]) -> i32 {
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
    let is_it = |daemon: &Pod| {
        let owner = daemon.metadata.controller().or_else(|| daemon.metadata.owner_references.first());
        let name = owner.map_or(daemon.metadata.name.as_str(), |owner| owner.name.as_str());
        daemon.metadata.namespace == template.metadata.namespace && name == template.metadata.name
    };
    daemons.iter().position(is_it)
}
