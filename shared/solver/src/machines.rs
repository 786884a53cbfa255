//! Existing machines and their free resources.

use super::builder::ProblemBuilder;
use super::catalog::Dims;
use super::ids::{ClassId, GroupId, HostId, Id as _, IdVec, Key, MachineId, SetId};
use super::pod::Class;
use super::pod_classes::Classes;
use super::problem::{Machine, MachineNow};
use super::topology::Group;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Pod, Taint, TaintEffect};
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::{conditions, labels};
use whittle_model::pods::{self, HostPort};
use whittle_model::requirements::{Allowed, Requirements, from_labels, from_requirements};
use whittle_model::scheduling::Input;
use whittle_model::state::StateNode;
use whittle_units::{Resources, SignedDuration, Timestamp};

/// The label keys that some constraint mentions; others make no difference between machines.
fn relevant_keys(builder: &ProblemBuilder<'_>, classes: &IdVec<ClassId, Class>, groups: &IdVec<GroupId, Group>) -> BTreeSet<Key> {
    let mut sets: BTreeSet<SetId> = BTreeSet::new();
    for class in classes {
        sets.extend(class.relaxations.iter().flat_map(|f| [f.full, f.strict]));
        sets.extend(class.places.iter().map(|p| p.set));
    }
    sets.extend(groups.iter().flat_map(|g| g.filter.any_of.iter().copied()));
    let mentioned = sets.iter().flat_map(|s| builder.sets.get(*s).iter().map(|(k, _)| *k));
    mentioned.chain(groups.iter().map(|g| g.key)).collect()
}

/// The machines that accept pods, initialized ones first, then by name.
pub(crate) fn build(
    builder: &mut ProblemBuilder<'_>,
    classes: &Classes,
    groups: &IdVec<GroupId, Group>,
    daemons: &[Pod],
) -> IdVec<MachineId, Machine> {
    let relevant = relevant_keys(builder, &classes.list, groups);
    let input = builder.input;
    let mut order: Vec<usize> = (0..input.nodes.len()).filter(|n| builder.is_offered(&input.nodes[*n])).collect();
    order.sort_by_key(|n| (!input.nodes[*n].initialized(), input.nodes[*n].name()));
    let daemons: Vec<Daemon<'_>> = daemons.iter().map(|d| (d, pods::daemon_terms(d), pods::effective_requests(d))).collect();
    let mut machines: IdVec<MachineId, Machine> =
        order.into_iter().map(|at| machine(builder, &classes.dims, &daemons, &relevant, at)).collect();
    if classes.list.iter().any(|class| class.ebs_volumes() > 0) {
        machines.iter_mut().for_each(|machine| expect_attach_limit(builder, machine));
    }
    let missed: BTreeSet<&String> = classes.list.iter().flat_map(|class| &class.missed_drivers).collect();
    if !missed.is_empty() {
        machines.iter_mut().for_each(|machine| note_missing_drivers(builder, machine, &missed));
    }
    machines
}

/// Notes which of the drivers do not run on a node that is not of a NodePool. One that is of a NodePool is expected to start them: if it
/// counted as without them, a driver that runs nowhere would have machine after machine launched (scheduling 8.5).
fn note_missing_drivers(builder: &ProblemBuilder<'_>, machine: &mut Machine, missed: &BTreeSet<&String>) {
    let state = &builder.input.nodes[machine.host.position()];
    if let (None, Some(node)) = (&state.claim, &state.node) {
        let lacks = missed.iter().filter(|driver| !builder.volumes.has_driver(&node.metadata.name, driver));
        machine.lacks_drivers = lacks.map(|driver| (*driver).clone()).collect();
    }
}

/// Gives a machine on which the EBS CSI driver does not run yet the limit that its type had when it was planned: it would get more pods
/// than it was planned for until then.
fn expect_attach_limit(builder: &ProblemBuilder<'_>, machine: &mut Machine) {
    let node = &builder.input.nodes[machine.host.position()];
    let is_reported = node.node.as_ref().is_some_and(|node| builder.volumes.has_driver(&node.metadata.name, pods::EBS_DRIVER));
    if let (false, Some(most)) = (is_reported, builder.input.expected_attachments(node)) {
        machine.attach_limits.insert(pods::EBS_DRIVER.to_owned(), most);
    }
}

type Daemon<'a> = (&'a Pod, Vec<Requirements>, Resources);

/// What pods of DaemonSets take of a node that are not there yet.
#[derive(Default)]
struct Awaited {
    room: Resources,
    /// Those of daemons without any pod there: the ports of the others count with their pods.
    ports: Vec<HostPort>,
}

/// What daemons still take of a node: each that runs there, less what its own pods have there already. What a pod of another has, as of an
/// older template or of a DaemonSet that no longer exists, makes no room for it, nor does one of its own that has failed (scheduling 13.4).
fn awaited(input: &Input<'_>, node: &StateNode, known: &Requirements, daemons: &[Daemon<'_>]) -> Awaited {
    let mut out = Awaited::default();
    if daemons.is_empty() {
        return out;
    }
    let mut own: BTreeMap<(&str, &str), Resources> = BTreeMap::new();
    for pod in node.pods.iter().map(|&at| &input.objects.pods[at]).filter(|pod| pods::is_daemon_owned(pod)) {
        own.entry(pods::daemon_set_of(pod)).or_default().add(&pods::effective_requests(pod));
    }
    // As on new machines: a daemon runs wherever the kube-scheduler may place it. Its controller lets it tolerate a cordon.
    let is_hard = |taint: &Taint| taint.effect != TaintEffect::PreferNoSchedule && taint.key != labels::UNSCHEDULABLE_TAINT;
    let hard: Vec<Taint> = node.simulated_taints().into_iter().filter(is_hard).collect();
    let open = open_labels(node, known, daemons);
    let expected = expected_labels(node, known, &open);
    for (pod, terms, resources) in daemons {
        let runs = |term: &Requirements| runs_on_all_types(term, &open) && expected.compatible(term, |_| false).is_ok();
        if !pods::untolerated(&pod.spec.tolerations, &hard).is_empty() || !terms.iter().any(runs) {
            continue;
        }
        let Some(has) = own.get(&pods::daemon_set_of(pod)) else {
            out.room.add_demand(resources);
            out.ports.extend(pods::host_ports(pod));
            continue;
        };
        for (name, amount) in resources.iter().filter(|(name, amount)| has.get(name) < *amount) {
            out.room.set(name, out.room.get(name).plus(amount.minus(has.get(name))));
        }
    }
    out
}

/// Labels that the offerings of a type decide, not the type. The requests of a claim count the daemons for each of their values.
const OF_OFFERINGS: [&str; 3] = [labels::ZONE, labels::ZONE_ID, labels::CAPACITY_TYPE];

/// What the claim of a machine that is still to be launched states of labels that it will get, as far as daemons select them: a claim lists
/// up to hundreds of instance types.
fn open_labels<'n>(node: &'n StateNode, known: &Requirements, daemons: &[Daemon<'_>]) -> Vec<&'n Requirement> {
    let Some(claim) = node.claim.as_ref().filter(|_| node.node.is_none()) else { return Vec::new() };
    let is_selected = |key: &str| daemons.iter().flat_map(|(_, terms, _)| terms).any(|term| term.get(key).is_some());
    let is_open = |stated: &&Requirement| {
        let key = labels::normalized(&stated.key);
        (stated.operator == Operator::In || OF_OFFERINGS.contains(&key)) && known.get(key).is_none() && is_selected(key)
    };
    claim.spec.requirements.iter().filter(is_open).collect()
}

/// Whether a term admits each type that a claim states. With a daemon that only some types run it was not planned.
fn runs_on_all_types(term: &Requirements, open: &[&Requirement]) -> bool {
    open.iter().all(|stated| {
        let key = labels::normalized(&stated.key);
        let admits_all = |allowed: &Allowed<String>| stated.values.iter().all(|value| allowed.has(value));
        OF_OFFERINGS.contains(&key) || term.get(key).is_none_or(admits_all)
    })
}

/// The labels that decide which daemons run on a node. One that starts will be registered and initialized, as a new machine is in a plan;
/// one that is still to be launched may get any of what is `open`, such as one of several zones.
fn expected_labels<'l>(node: &StateNode, known: &'l Requirements, open: &[&Requirement]) -> Cow<'l, Requirements> {
    if node.initialized() {
        return Cow::Borrowed(known);
    }
    let mut out = known.clone();
    for key in [labels::REGISTERED, labels::INITIALIZED] {
        out.replace(key.to_owned(), Allowed::one("true".to_owned()));
    }
    for stated in open {
        for (key, allowed) in from_requirements(std::slice::from_ref(*stated)).iter() {
            out.add(key.clone(), allowed.clone());
        }
    }
    Cow::Owned(out)
}

fn machine(builder: &mut ProblemBuilder<'_>, dims: &Dims, daemons: &[Daemon<'_>], relevant: &BTreeSet<Key>, at: usize) -> Machine {
    let input = builder.input;
    let node = &input.nodes[at];
    let mut all = from_labels(node.labels());
    all.replace(labels::HOSTNAME.to_owned(), Allowed::one(node.hostname().to_owned()));
    let taints = node.simulated_taints();
    let mut left = node.allocatable();
    let Awaited { room, mut ports } = awaited(input, node, &all, daemons);
    left.subtract(&room);
    let mut volumes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in node.pods.iter().map(|&p| &input.objects.pods[p]) {
        left.subtract(&pods::effective_requests(pod));
        ports.extend(pods::host_ports(pod));
        for volume in builder.volumes.uses(pod) {
            volumes.entry(volume.driver).or_default().insert(volume.claim);
        }
    }
    let mut set = builder.names.set(&all);
    let unasked: Vec<Key> = set.iter().map(|(k, _)| *k).filter(|k| !relevant.contains(k)).collect();
    for key in unasked {
        set.remove(&key);
    }
    set.remove(&builder.names.key(labels::HOSTNAME));
    let name = node.node.as_ref().map(|n| n.metadata.name.as_str()).unwrap_or_default();
    Machine {
        host: HostId::at(at),
        hostname: builder.names.val(node.hostname()),
        taints: builder.taint_table.taints(&taints),
        start: MachineNow { remaining: dims.vector(&left), set: builder.sets.id(set), ports, volumes, pods: Vec::new() },
        attach_limits: builder.volumes.attach_limits(name),
        lacks_drivers: BTreeSet::new(),
        open: open_set(builder, node),
        spared: is_spared(builder, node),
    }
}

/// What the claim of a machine requires that is still to be launched. One that is launched has all labels that it will get.
fn open_set(builder: &mut ProblemBuilder<'_>, node: &StateNode) -> Option<SetId> {
    let claim = node.claim.as_ref().filter(|_| node.node.is_none())?;
    let is_launched = conditions::is_true(&claim.status.conditions, conditions::LAUNCHED);
    (!is_launched).then(|| builder.split(&from_requirements(&claim.spec.requirements)).0)
}

/// How old a machine is that has not initialized and is still expected to: one that takes longer may never accept a pod.
const YOUNG: SignedDuration = SignedDuration::from_mins(5);

/// Whether a simulation spares the node: because it has not initialized yet, or because `consolidateAfter` has not passed since its
/// last pod event.
fn is_spared(builder: &ProblemBuilder<'_>, node: &StateNode) -> bool {
    let input = builder.input;
    let Some(simulation) = &builder.options.simulation else { return false };
    if !node.initialized() {
        return simulation.spare_young && is_young(node, input.now);
    }
    let (true, Some(claim)) = (simulation.spare_recent, &node.claim) else { return false };
    // Only that of a pool that gets nodes for pods counts, as in Karpenter: not that of a static one, nor of one that is not ready.
    let pool = input.objects.node_pools.iter().find(|p| Some(p.metadata.name.as_str()) == node.node_pool() && p.serves_pods());
    let Some(wait) = pool.and_then(|p| p.spec.disruption.consolidate_after.span()).filter(|w| *w > SignedDuration::ZERO) else {
        return false;
    };
    let initialized = conditions::find(&claim.status.conditions, conditions::INITIALIZED).and_then(|c| c.last_transition_time);
    claim.status.last_pod_event_time.or(initialized).is_some_and(|since| input.now.duration_since(since) < wait)
}

fn is_young(node: &StateNode, now: Timestamp) -> bool {
    let created = node.claim.as_ref().and_then(|claim| claim.metadata.creation_timestamp);
    created.is_some_and(|created| now.duration_since(created) < YOUNG)
}
