//! Pods of workloads whose pods are not among the manifests, as the controllers of a cluster would create them.
//!
//! A dump has both a Deployment and its pods; a file that is still to be applied has the Deployment alone. Pods count by their
//! ownerReferences, and only the missing ones are added. DaemonSets are left to the solver, which counts them on every machine.

use super::acceptance::{REPLICAS_MAX, replicas_fault};
use super::error::ReadError;
use super::remarks::{NAMED_MAX, TOLD_EACH_MAX};
use super::stateful::Storage;
use crate::listing::first_named;
use crate::money::counted;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use whittle_api::k8s::{Container, PersistentVolumeClaim, Pod, PodTemplate, ResourceRequirements};
use whittle_api::{LabelSelector, ObjectMeta, OwnerReference, words};
use whittle_model::pods::deletion_ranks;
use whittle_units::{Quantity, Timestamp};

/// A workload that creates pods.
#[derive(Clone, Debug)]
pub(super) struct PodMaker {
    pub(super) kind: &'static str,
    pub(super) metadata: ObjectMeta,
    /// How many pods it should have.
    pub(super) replicas: i32,
    pub(super) template: PodTemplate,
    pub(super) selector: LabelSelector,
    /// The number of the first pod of a StatefulSet.
    pub(super) first: u32,
    /// What it claims for each pod.
    pub(super) volume_claims: Vec<PersistentVolumeClaim>,
    /// Resources that containers of its namespace request by default, although its template does not name them.
    pub(super) given: BTreeSet<String>,
    /// Whether a cluster has it, whose controllers make its pods: none is missing.
    pub(super) live: bool,
    /// Whether an autoscaler has set its number of replicas.
    pub(super) autoscaled: bool,
    /// Whether it is what it would be after a change, so that its pods are those after its rollout.
    pub(super) changed: bool,
}

/// `1 replica`, `2 replicas`.
pub(super) fn replicas_of(count: i32) -> String {
    counted(usize::try_from(count).unwrap_or(0), "replica")
}

/// The label by which the pods of a Deployment's ReplicaSets differ.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// How the uid of the ReplicaSet ends that a Deployment has if its pods are only planned. No cluster's uid ends so.
const PLANNED_SET: &str = "-replicas";

/// The Deployment of a pod that is only planned, by the reference to its ReplicaSet.
pub(crate) fn planned_deployment(owner: &OwnerReference) -> Option<&str> {
    (owner.kind == "ReplicaSet" && owner.uid.ends_with(PLANNED_SET)).then_some(owner.name.as_str())
}

/// `--replicas NAME=N`: another number of replicas for a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// NAME, NAMESPACE/NAME or KIND/NAME.
    name: String,
    count: i32,
    /// Whether there need be no workload of this name.
    is_optional: bool,
}

impl FromStr for Replicas {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is not of the form NAME=N or NAMESPACE/NAME=N, such as web=20");
        let (name, count) = text.split_once('=').filter(|(name, _)| !name.is_empty() && words::is_printable(name)).ok_or_else(form)?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let much = |count: &str| {
            if is_number(count) { format!("{count} is more than the {REPLICAS_MAX} replicas that are planned for") } else { form() }
        };
        let count: i32 = count.parse().map_err(|_| much(count))?;
        replicas_fault(count, REPLICAS_MAX).map_or(Ok(Self { name: name.to_owned(), count, is_optional: false }), Err)
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.count)
    }
}

impl Replicas {
    /// The same, of a workload that there need not be.
    pub(super) fn if_there(&self) -> Self {
        Self { is_optional: true, ..self.clone() }
    }

    pub(super) fn means(&self, maker: &PodMaker) -> bool {
        let PodMaker { kind, metadata, .. } = maker;
        let means_kind = |of: &str| [*kind, short(kind)].iter().any(|name| is_name_or_plural(of, name));
        let is_of_kind = |(of, name): (&str, &str)| means_kind(of) && (name == metadata.name || name == metadata.key());
        self.name == metadata.name || self.name == metadata.key() || self.name.split_once('/').is_some_and(is_of_kind)
    }
}

/// kubectl's short name of a kind of workload; its own name if it has none.
fn short(kind: &str) -> &str {
    match kind {
        "Deployment" => "deploy",
        "StatefulSet" => "sts",
        "ReplicaSet" => "rs",
        _ => kind,
    }
}

/// Whether a word is the name, or its plural, in any case, with its group or without, as `jobs.batch` is of `Job`.
fn is_name_or_plural(word: &str, name: &str) -> bool {
    let word = word.strip_suffix(".apps").or_else(|| word.strip_suffix(".batch")).unwrap_or(word);
    let rest = word.get(..name.len()).filter(|begin| begin.eq_ignore_ascii_case(name)).map(|_| &word[name.len()..]);
    rest.is_some_and(|rest| rest.is_empty() || rest.eq_ignore_ascii_case("s"))
}

/// What became of the workloads.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    pub(super) pods: Vec<Pod>,
    /// Selectors of the ReplicaSets that the Deployments would have, by uid.
    pub(super) owners: BTreeMap<String, LabelSelector>,
    pub(super) notes: Vec<String>,
    pub(super) added: Added,
    planned: Vec<Planned>,
}

/// A workload of which pods are planned.
#[derive(Debug)]
struct Planned {
    workload: String,
    pods: usize,
    lacks_volumes: bool,
    /// The index of its note in `notes`.
    note: usize,
}

/// One note in the place of those about single workloads, if these are many.
fn sum_up(notes: &mut Vec<String>, planned: &[Planned]) {
    let Some(first) = planned.first().filter(|_| TOLD_EACH_MAX < planned.len()) else { return };
    let pods: usize = planned.iter().map(|one| one.pods).sum();
    let workloads: Vec<&str> = planned.iter().map(|one| one.workload.as_str()).collect();
    let named = first_named(&workloads, NAMED_MAX);
    let lack = planned.iter().any(|one| one.lacks_volumes);
    let volumes = if lack { "; those of StatefulSets without the volumes that these claim for each" } else { "" };
    notes[first.note] = format!("{named}: {pods} pods that are not among the manifests, planned as pending{volumes}");
    let others: BTreeSet<usize> = planned.iter().skip(1).map(|one| one.note).collect();
    let mut position = 0;
    notes.retain(|_| {
        position += 1;
        !others.contains(&(position - 1))
    });
}

/// The names of pods that were added.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// Those that do not take the place of others.
    pub(crate) missing: BTreeSet<String>,
    /// Those of changed workloads.
    pub(crate) of_change: BTreeSet<String>,
}

/// The pods that are missing. Those that a changed workload would not have any more are taken away.
///
/// # Errors
/// A name in `asked` that no workload has, or several.
pub(super) fn expand(
    mut makers: Vec<PodMaker>,
    pods: &mut Vec<Pod>,
    asked: &[Replicas],
    storage: &mut Storage,
    now: Timestamp,
) -> Result<Expanded, ReadError> {
    let sets = owned_sets(&makers);
    makers.retain(|maker| maker.kind != "ReplicaSet" || !sets.contains_key(&key(maker)));
    makers.sort_by_key(|maker| (maker.metadata.key(), maker.kind));
    let scaled = scale(&mut makers, asked)?;
    let mut out = Expanded { notes: roll_out(&makers, &sets, pods, now), ..Expanded::default() };
    let present = present(pods, &sets, &makers);
    let count = |key: &Key| present.get(key).map_or(0, Vec::len);
    let mut names: BTreeSet<String> = pods.iter().map(|pod| pod.metadata.key()).collect();
    let mut idle = Vec::new();
    for (at, maker) in makers.iter().enumerate() {
        let what = format!("{} {}", maker.kind, maker.metadata.key());
        let there = count(&key(maker));
        let wanted = usize::try_from(maker.replicas).unwrap_or(0);
        if maker.live && !scaled.contains(&at) {
            continue;
        }
        if let Some(others) = other_template(maker, &present).filter(|_| !maker.metadata.is_deleting()) {
            let new = wanted.saturating_sub(there);
            out.notes.push(format!(
                "{others}; planned as if only {new} of its {wanted} were new, and not as after the rollout that replaces them: leave these \
                 pods out to plan that"
            ));
        }
        if maker.metadata.is_deleting() {
            out.notes.push(format!("{what} is being deleted: no pod is planned for it"));
        } else if wanted == 0 && there == 0 {
            idle.push(what);
        } else if (scaled.contains(&at) || maker.autoscaled) && wanted < there {
            let (has, take) = (counted(there, "pod"), if wanted == 1 { "takes" } else { "take" });
            let replicas = counted(wanted, "replica");
            out.notes.push(format!("{what} has {has} among the manifests: {replicas} {take} none of them away"));
        } else if there < wanted {
            let own = present.get(&key(maker)).map(Vec::as_slice).unwrap_or_default();
            add(maker, (wanted - there, own), &mut names, storage, &mut out);
        }
    }
    sum_up(&mut out.notes, &out.planned);
    out.notes.extend(without_replicas(&idle));
    Ok(out)
}

/// That workloads have no replicas; one note if these are many, as in a dump.
fn without_replicas(idle: &[String]) -> Vec<String> {
    let asks = "--replicas NAME=N asks what if";
    if idle.len() <= TOLD_EACH_MAX {
        return idle.iter().map(|what| format!("{what} has no replicas, so that there is nothing to plan for it; {asks}")).collect();
    }
    vec![format!("{} have no replicas, so that there is nothing to plan for them; {asks}", first_named(idle, NAMED_MAX))]
}

/// That pods ask for nothing: a machine seems to have room for as many as it may run.
pub(super) fn without_requests(pods: &[Pod]) -> Option<String> {
    // A server takes limits for requests.
    let names = |resources: &ResourceRequirements| {
        let amounts = [&resources.requests, &resources.limits];
        amounts.iter().any(|amounts| ["cpu", "memory"].iter().any(|name| amounts.0.contains_key(*name)))
    };
    let asks = |pod: &Pod| {
        let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers).filter_map(|container| container.resources.as_ref());
        containers.chain(pod.spec.resources.as_ref()).any(names)
    };
    let count = pods.iter().filter(|pod| !asks(pod)).count();
    (0 < count).then(|| {
        format!(
            "{} of workloads with neither CPU nor memory in resources.requests: no room is kept for what such pods use, as with Karpenter; \
             defaults of a LimitRange count if it is among the manifests, or in the cluster that is read",
            counted(count, "pod")
        )
    })
}

/// Less memory than any process has: `512m` of it are half a byte.
const MEMORY_MIN: Quantity = Quantity::from_units(1024);

/// That pods ask for almost no memory, as where `m` was written for `Mi`: a machine seems to have room for as many as it may run.
pub(super) fn almost_no_memory(pods: &[Pod]) -> Option<String> {
    let asked = |pod: &Pod| {
        let mut amounts = pod.spec.containers.iter().filter_map(|one| one.resources.as_ref()?.requests.0.get("memory").copied());
        amounts.find(|memory| !memory.is_zero() && *memory < MEMORY_MIN)
    };
    let mut tiny = pods.iter().filter_map(|pod| Some((pod, asked(pod)?)));
    let (first, memory) = tiny.next()?;
    let pods = counted(1 + tiny.count(), "pod");
    let name = first.metadata.key();
    Some(format!(
        "{pods} of workloads with less than 1Ki of memory in resources.requests, such as {name} with {memory}: write bytes with a suffix, \
         such as 512Mi; m stands for thousandths"
    ))
}

/// More CPUs than almost any container asks for: `500` of them are mostly `500m`.
const CPUS_MANY: Quantity = Quantity::from_units(100);

/// That pods ask for very many CPUs, as where `m` was left out: only the largest machines have as many.
pub(super) fn very_many_cpus(pods: &[Pod]) -> Option<String> {
    let asked = |pod: &Pod| {
        let mut amounts = pod.spec.containers.iter().filter_map(|one| one.resources.as_ref()?.requests.0.get("cpu").copied());
        amounts.find(|cpus| CPUS_MANY <= *cpus)
    };
    let mut large = pods.iter().filter_map(|pod| Some((pod, asked(pod)?)));
    let (first, cpus) = large.next()?;
    let pods = counted(1 + large.count(), "pod");
    let name = first.metadata.key();
    Some(format!(
        "{pods} of workloads with 100 CPUs or more in resources.requests of a container, such as {name} with {cpus}: if thousandths were \
         meant, write m behind the number, as in 500m"
    ))
}

/// Takes away the pods that changed workloads have no more after their rollout: those of another template, and those beyond their replicas.
fn roll_out(makers: &[PodMaker], sets: &BTreeMap<Key, String>, pods: &mut Vec<Pod>, now: Timestamp) -> Vec<String> {
    let mut notes = Vec::new();
    let mut gone: BTreeSet<String> = BTreeSet::new();
    let present = present(pods, sets, makers);
    for maker in makers.iter().filter(|maker| maker.changed && maker.kind != "Job" && !maker.metadata.is_deleting()) {
        let mut own = present.get(&key(maker)).cloned().unwrap_or_default();
        keep_first(maker, &mut own, now);
        let same = own.iter().take_while(|pod| !has_other_template(pod, maker) && is_numbered(maker, pod)).count();
        let kept = usize::try_from(maker.replicas).unwrap_or(0).min(same);
        let taken: Vec<String> = own.iter().skip(kept).map(|pod| pod.metadata.key()).collect();
        if !taken.is_empty() {
            let pods = if taken.len() == 1 { "1 pod of before is".to_owned() } else { format!("{} pods of before are", taken.len()) };
            notes.push(format!("{} {}: as after its rollout: {pods} taken away", maker.kind, maker.metadata.key()));
        }
        gone.extend(taken);
    }
    pods.retain(|pod| gone.is_empty() || !gone.contains(&pod.metadata.key()));
    notes
}

/// The number at the end of a pod's name.
fn number_of(pod: &Pod) -> Option<u32> {
    pod.metadata.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok())
}

/// Whether a pod has a number that its StatefulSet numbers; pods of other workloads have none.
fn is_numbered(maker: &PodMaker, pod: &Pod) -> bool {
    let end = maker.first.saturating_add(u32::try_from(maker.replicas).unwrap_or(0));
    maker.kind != "StatefulSet" || number_of(pod).is_none_or(|number| (maker.first..end).contains(&number))
}

/// Sorts the pods of a workload: those that stay longest come first.
fn keep_first(maker: &PodMaker, own: &mut [&Pod], now: Timestamp) {
    if maker.kind == "StatefulSet" {
        // The last of its numbers ends first.
        own.sort_by_key(|pod| (has_other_template(pod, maker) || !is_numbered(maker, pod), number_of(pod), pod.metadata.key()));
        return;
    }
    let ranks = deletion_ranks(own.iter().copied(), Some(now));
    let mut ranked: Vec<_> = ranks.into_iter().zip(own.iter().copied()).collect();
    ranked.sort_by_key(|(rank, pod)| (has_other_template(pod, maker), Reverse(rank.clone())));
    own.iter_mut().zip(ranked).for_each(|(pod, (_, ranked))| *pod = ranked);
}

/// The workloads whose pods have another template than they have now, where none is planned.
pub(super) fn other_templates(makers: &[PodMaker], pods: &[Pod]) -> Vec<String> {
    let present = present(pods, &owned_sets(makers), makers);
    let makers = makers.iter().filter(|maker| !maker.live && !maker.metadata.is_deleting());
    makers.filter_map(|maker| other_template(maker, &present)).map(|others| format!("{others}; they count as they are")).collect()
}

/// How many pods of a workload have another template than it has now, if any has.
fn other_template(maker: &PodMaker, present: &BTreeMap<Key, Vec<&Pod>>) -> Option<String> {
    let what = format!("{} {}", maker.kind, maker.metadata.key());
    match present.get(&key(maker))?.iter().filter(|pod| has_other_template(pod, maker)).count() {
        0 => None,
        1 => Some(format!("{what}: 1 of its pods has another template than it has now")),
        others => Some(format!("{what}: {others} of its pods have another template than it has now")),
    }
}

/// Namespace, kind and name of a workload.
pub(super) type Key = (String, String, String);

pub(super) fn key(maker: &PodMaker) -> Key {
    (maker.metadata.namespace.clone(), maker.kind.to_owned(), maker.metadata.name.clone())
}

/// The ReplicaSets that belong to a Deployment among the manifests, with its name.
fn owned_sets(makers: &[PodMaker]) -> BTreeMap<Key, String> {
    let deployments: BTreeSet<(&str, &str)> = makers
        .iter()
        .filter(|maker| maker.kind == "Deployment")
        .map(|maker| (maker.metadata.namespace.as_str(), maker.metadata.name.as_str()))
        .collect();
    let owned = |maker: &PodMaker| {
        let owners = &maker.metadata.owner_references;
        let by_reference = owners.iter().filter(|owner| owner.kind == "Deployment").map(|owner| owner.name.as_str());
        // A dump may lack the reference: the name is that of the Deployment, and the hash that its pods have, too.
        let hash = maker.metadata.label(TEMPLATE_HASH).filter(|_| owners.is_empty());
        let by_hash = hash.and_then(|hash| maker.metadata.name.strip_suffix(hash)?.strip_suffix('-'));
        let name = by_reference.chain(by_hash).find(|name| deployments.contains(&(maker.metadata.namespace.as_str(), *name)))?;
        Some((key(maker), name.to_owned()))
    };
    makers.iter().filter(|maker| maker.kind == "ReplicaSet").filter_map(owned).collect()
}

/// Sets the numbers of replicas that were asked for; returns the positions of these workloads.
fn scale(makers: &mut [PodMaker], asked: &[Replicas]) -> Result<BTreeSet<usize>, ReadError> {
    let mut scaled = BTreeSet::new();
    for replicas in asked {
        let meant: Vec<usize> = (0..makers.len()).filter(|at| replicas.means(&makers[*at])).collect();
        let shown = |at: &usize| format!("{} {}", makers[*at].kind, makers[*at].metadata.key());
        let wrong = |message: String| ReadError::Replicas { name: replicas.to_string(), message };
        match meant[..] {
            [] if replicas.is_optional => {}
            [] => {
                let known: Vec<String> = (0..makers.len()).take(10).map(|at| shown(&at)).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(wrong(format!("no workload among the manifests has this name; there is {known}")));
            }
            [at] if scaled.contains(&at) && makers[at].replicas != replicas.count => {
                let before = replicas_of(makers[at].replicas);
                return Err(wrong(format!("{} is to have {before} already: write one number for it", shown(&at))));
            }
            [at] if makers[at].kind == "Job" => {
                return Err(wrong(format!("{} has no replicas: change its spec.parallelism or spec.completions", shown(&at))));
            }
            [at] => {
                makers[at].replicas = replicas.count;
                scaled.insert(at);
            }
            _ => {
                let several: Vec<String> = meant.iter().map(shown).collect();
                return Err(wrong(format!("it may be any of {}: write NAMESPACE/NAME, or leave a file out", several.join(", "))));
            }
        }
    }
    Ok(scaled)
}

/// Whether a pod was made from another template than its workload has now.
fn has_other_template(pod: &Pod, maker: &PodMaker) -> bool {
    differs(pod, &maker.template, &maker.given)
}

/// Whether a pod was made from another template: a container of the template has other requests there or is missing, or the pod
/// lacks a node selector of it. What admission adds, such as containers and tolerations, is no difference; nor are requests for what the
/// LimitRanges of the namespace give (`given`), whose amounts may have been others when the pod was made.
pub(super) fn differs(pod: &Pod, template: &PodTemplate, given: &BTreeSet<String>) -> bool {
    let selects = |(key, value): (&String, &String)| pod.spec.node_selector.get(key) == Some(value);
    if !template.spec.node_selector.iter().all(selects) {
        return true;
    }
    let requests = |container: &Container| {
        let resources = container.resources.clone().unwrap_or_default();
        let mut requests = resources.limits;
        requests.0.extend(resources.requests.0);
        requests.0.retain(|_, amount| !amount.is_zero());
        requests
    };
    template.spec.containers.iter().any(|container| {
        let Some(own) = pod.spec.containers.iter().find(|own| own.name == container.name) else { return true };
        let (wanted, mut own) = (requests(container), requests(own));
        own.0.retain(|name, _| wanted.0.contains_key(name) || !given.contains(name));
        // Without requests in the template, defaults of the namespace may have set those of the pod: LimitRanges need not be known.
        !wanted.0.is_empty() && own != wanted
    })
}

/// The pods that the workloads have.
fn present<'a>(pods: &'a [Pod], sets: &BTreeMap<Key, String>, makers: &[PodMaker]) -> BTreeMap<Key, Vec<&'a Pod>> {
    let known: BTreeSet<Key> = makers.iter().map(key).collect();
    let mut out = BTreeMap::new();
    let lives = |pod: &&Pod| !pod.metadata.is_deleting() && !["Succeeded", "Failed"].contains(&pod.status.phase.as_str());
    for pod in pods.iter().filter(lives) {
        let owners = &pod.metadata.owner_references;
        let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first()) else { continue };
        // A pod without a namespace is in the default one, as everything here.
        let namespace = if pod.metadata.namespace.is_empty() { "default" } else { &pod.metadata.namespace }.to_owned();
        let direct = (namespace.clone(), owner.kind.clone(), owner.name.clone());
        let of_deployment = |name: &str| (namespace.clone(), "Deployment".to_owned(), name.to_owned());
        let by_set = sets.get(&direct).map(|name| of_deployment(name));
        // A ReplicaSet that is not among the manifests has the name of its Deployment and a hash.
        let by_name = || {
            let is_unknown = owner.kind == "ReplicaSet" && !known.contains(&direct);
            let (name, _) = owner.name.rsplit_once('-').filter(|_| is_unknown)?;
            Some(of_deployment(name)).filter(|key| known.contains(key))
        };
        out.entry(by_set.or_else(by_name).unwrap_or(direct)).or_insert_with(Vec::new).push(pod);
    }
    out
}

/// The pods of each controller, and how many it is to have: of one that is not among the manifests, as many as there are.
pub(super) fn scales<'a>(makers: &[PodMaker], pods: &'a [Pod]) -> Vec<(i64, Vec<&'a Pod>)> {
    let wanted: BTreeMap<Key, i32> = makers.iter().map(|maker| (key(maker), maker.replicas)).collect();
    // Budgets know no scale of DaemonSets, nor of the pods that a node makes itself.
    let owned =
        present(pods, &owned_sets(makers), makers).into_iter().filter(|((_, kind, _), _)| !["DaemonSet", "Node"].contains(&kind.as_str()));
    let scale = |(key, pods): (Key, Vec<&'a Pod>)| {
        let there = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        (wanted.get(&key).map_or(there, |wanted| i64::from(*wanted)), pods)
    };
    owned.map(scale).collect()
}

/// Adds `count` pods of a workload beside its own among the manifests.
fn add(maker: &PodMaker, (count, own): (usize, &[&Pod]), names: &mut BTreeSet<String>, storage: &mut Storage, out: &mut Expanded) {
    let metadata = &maker.metadata;
    let mut owner = OwnerReference {
        kind: maker.kind.to_owned(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    if maker.kind == "Deployment" {
        owner = OwnerReference { kind: "ReplicaSet".to_owned(), uid: format!("{}{PLANNED_SET}", owner.uid), ..owner };
        out.owners.insert(owner.uid.clone(), maker.selector.clone());
    }
    // StatefulSets count from zero, if they do not say otherwise.
    let mut number = if maker.kind == "StatefulSet" { usize::try_from(maker.first).unwrap_or(0) } else { 1 };
    // One that is ending has its name still, and leaves its claims to the next of its number.
    let held: BTreeSet<u64> = own.iter().filter_map(|pod| number_of(pod)).map(u64::from).collect();
    let free = (u64::from(maker.first)..).filter(|number| !held.contains(number));
    let mut lacks_volumes = false;
    for ordinal in free.take(count) {
        let mut meta = ObjectMeta { owner_references: vec![owner.clone()].into(), ..maker.template.metadata.clone() };
        meta.namespace.clone_from(&metadata.namespace);
        loop {
            meta.name = format!("{}-{number}", metadata.name);
            number += 1;
            if names.insert(meta.key()) {
                break;
            }
        }
        meta.uid = format!("{}-{}", metadata.uid, meta.name);
        meta.creation_timestamp = metadata.creation_timestamp;
        let added = if maker.changed { &mut out.added.of_change } else { &mut out.added.missing };
        added.insert(meta.key());
        let mut pod = Pod { metadata: meta, spec: maker.template.spec.clone(), ..Pod::default() };
        lacks_volumes |= !storage.give_volumes(&mut pod, &format!("{}-{ordinal}", metadata.name), &maker.volume_claims);
        out.pods.push(pod);
    }
    let besides = match own.len() {
        0 => String::new(),
        1 => " besides the 1 that is".to_owned(),
        many => format!(" besides the {many} that are"),
    };
    let volumes = if lacks_volumes { "; without the volumes that it claims for each" } else { "" };
    let pods = if count == 1 { "1 pod that is".to_owned() } else { format!("{count} pods that are") };
    let workload = format!("{} {}", maker.kind, metadata.key());
    let note = format!("{workload}: {pods} not among the manifests{besides}, planned as pending{volumes}");
    out.planned.push(Planned { workload, pods: count, lacks_volumes, note: out.notes.len() });
    out.notes.push(note);
}
