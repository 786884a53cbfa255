//! What there is to say of the objects of an input: what has no effect, what is refused, and what is assumed.

use super::manifests::Manifests;
use super::remarks::Remark;
use super::{buffers, classes, complete, daemons, left_aside, protections, requirements};
use crate::validate;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;

/// Of the objects, whatever may be bought for them.
pub(super) fn of_objects(read: &Manifests) -> Vec<Remark> {
    let mut remarks = ignored(read);
    remarks.extend(read.others.values().cloned().map(Remark::note));
    remarks.extend(gated(read));
    remarks.extend(other_schedulers(read));
    remarks.extend(unknown_priorities(read));
    remarks.extend(protections::remarks(&read.objects.pods, read.settings.now));
    remarks.extend(read.workloads.runtime_classes.remarks(&read.objects.pods));
    remarks.extend(left_aside::remarks(&read.objects));
    remarks.extend(daemons::remarks(&read.objects));
    remarks
}

/// Of node classes that are missing, or partly without effect.
pub(super) fn of_classes(read: &Manifests) -> Vec<Remark> {
    let assumed = |missing: String| Remark::warning(format!("{missing}; here it is taken to have all defaults"));
    let missing = classes::dangling(&read.objects.node_pools, &read.node_classes);
    let missing = missing.iter().map(|missing| missing.beside(read.refused.iter())).map(assumed);
    missing.chain(classes::without_effect(&read.node_classes)).collect()
}

/// Of classes of a cluster that no function has resolved yet.
pub(super) fn assumed_subnets(read: &Manifests) -> Vec<Remark> {
    let unresolved = read.node_classes.iter().filter(|class| class.status.subnets.is_empty());
    let remark =
        |name: &String| Remark::note(format!("EC2NodeClass {name}: no subnets are in its status, so that one in every zone is assumed"));
    unresolved.map(|class| remark(&class.metadata.name)).collect()
}

/// Of classes beside a catalog, which has what they make of its types already.
pub(super) fn skipped_classes(read: &Manifests) -> Vec<Remark> {
    let remark = |name: &String| Remark::note(format!("skipped EC2NodeClass {name}: its effect is in the catalog"));
    read.node_classes.iter().map(|class| remark(&class.metadata.name)).collect()
}

/// Of what is wrong with NodePools beyond their schema.
pub(super) fn of_pools(pools: &[NodePool]) -> Vec<Remark> {
    let of_pool = |pool: &NodePool| {
        let name = NodePool::given_name(&pool.metadata.name);
        let faults = validate::runtime::schedules(pool).into_iter().chain(requirements::faults(pool));
        faults.map(|fault| Remark::warning(format!("NodePool {name:?}, {fault}"))).collect::<Vec<_>>()
    };
    pools.iter().flat_map(of_pool).collect()
}

/// Which parts of the input have no effect, and why.
fn ignored(read: &Manifests) -> Vec<Remark> {
    let (_, unresolved) = buffers(read);
    let list = |of: fn(String) -> Remark, what: &str, lines: &[String]| -> Vec<Remark> {
        lines.iter().map(|line| of(format!("{what}{line}"))).collect()
    };
    [
        list(Remark::note, "", &read.notes),
        list(Remark::note, "skipped ", &grouped(&read.skipped)),
        list(Remark::warning, "", &read.misspelt),
        read.workloads.unplanned.remarks().collect(),
        list(Remark::error, "refused: ", &read.refused),
        list(Remark::error, "an API server would refuse: ", &read.warnings),
        list(Remark::warning, "", &unresolved),
        list(Remark::warning, "has no effect: ", &invalid_machine_costs(read)),
        list(Remark::warning, "has no effect: ", &read.settings.unheeded_gates()),
    ]
    .concat()
}

/// How many objects of one kind are named; more are counted.
const SKIPPED_NAMED: usize = 3;

/// Objects by version, kind and name; if there are many of a kind, only their number.
fn grouped(skipped: &[String]) -> Vec<String> {
    let kind_of = |line: &str| line.rsplit_once(' ').map_or_else(|| line.to_owned(), |(kind, _)| kind.to_owned());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    skipped.iter().for_each(|line| *counts.entry(kind_of(line)).or_default() += 1);
    let mut told = BTreeSet::new();
    let shown = |line: &String| match counts.get(&kind_of(line)) {
        Some(count) if SKIPPED_NAMED < *count => told.insert(kind_of(line)).then(|| format!("{count} objects of {}", kind_of(line))),
        _ => Some(line.clone()),
    };
    skipped.iter().filter_map(shown).collect()
}

/// That nothing is planned for pods with scheduling gates.
fn gated(read: &Manifests) -> Option<Remark> {
    let waits = |pod: &&Pod| !pod.is_bound() && !pod.is_terminal() && !pod.spec.scheduling_gates.is_empty();
    let pods = read.objects.pods.iter().filter(waits).count();
    let are = if pods == 1 { "1 pod is".to_owned() } else { format!("{pods} pods are") };
    (0 < pods).then(|| {
        Remark::note(format!("{are} held back by spec.schedulingGates: nothing is planned for what waits so until they are removed"))
    })
}

/// That pods which wait are those of another scheduler, whose rules nobody here knows.
fn other_schedulers(read: &Manifests) -> Vec<Remark> {
    let is_other = |pod: &&Pod| !matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler");
    let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in read.objects.pods.iter().filter(|pod| !pod.is_bound() && !pod.is_terminal()).filter(is_other) {
        *pods.entry(&pod.spec.scheduler_name).or_default() += 1;
    }
    let remark = |(name, pods): (&str, usize)| {
        let wait = if pods == 1 { "1 pod waits".to_owned() } else { format!("{pods} pods wait") };
        Remark::note(format!("{wait} for the scheduler {name:?} (spec.schedulerName): planned as if it bound pods as Kubernetes' own does"))
    };
    pods.into_iter().map(remark).collect()
}

/// PriorityClasses that pods name and that are not given, if nothing else says what they are worth.
fn unknown_priorities(read: &Manifests) -> Vec<Remark> {
    let given = read.objects.priority_classes.iter().map(|class| class.metadata.name.as_str());
    let known: BTreeSet<&str> = given.chain(complete::BUILT_IN_PRIORITIES.map(|(name, _)| name)).chain([""]).collect();
    let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in read.objects.pods.iter().filter(|pod| pod.spec.priority == Some(0) && !pod.is_terminal()) {
        *pods.entry(&pod.spec.priority_class_name).or_default() += 1;
    }
    let unknown = pods.into_iter().filter(|(name, _)| !known.contains(name));
    let remark = |(name, pods)| {
        let count = if pods == 1 { "1 pod that names it counts".to_owned() } else { format!("{pods} pods that name it count") };
        Remark::note(format!("PriorityClass {name:?} is not given: {count} as of priority 0"))
    };
    unknown.map(remark).collect()
}

/// NodePools whose machine cost is invalid.
fn invalid_machine_costs(read: &Manifests) -> Vec<String> {
    let odd = |pool: &NodePool| Some(format!("NodePool {}: {}", pool.metadata.name, whittle_solver::machine_cost_fault(pool)?));
    read.objects.node_pools.iter().filter_map(odd).collect()
}
