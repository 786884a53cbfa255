//! `explain`: why an object is as it is, or why it went.

use super::get::same_name;
use crate::explain::besides;
use crate::explain::history::other_name;
use crate::local::kinds::{self, KINDS, KindEntry};
use crate::local::report::{clock, on_clock};
use crate::local::rows::pool_of;
use crate::money::counted;
use crate::source::preferences;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Node, Pod};
use whittle_api::{labels, words};
use whittle_claims::{DecisionKind, DecisionRecord};
use whittle_disruption::{COMMAND_EVENTS, VERDICT_EVENTS};
use whittle_sim::cluster::KeptEvent;
use whittle_sim::{Line, LineKind, World};

/// Kinds and names of what is there.
fn living(world: &World) -> BTreeSet<(&'static str, String)> {
    let objects = &world.cluster.objects;
    let pods = objects.pods.values().map(|pod| ("Pod", pod.metadata.name.clone()));
    let nodes = objects.nodes.keys().map(|name| ("Node", name.clone()));
    pods.chain(nodes).chain(objects.node_claims.keys().map(|name| ("NodeClaim", name.clone()))).collect()
}

/// Kinds and names of what was there.
fn past(world: &World) -> BTreeSet<(&'static str, String)> {
    const KINDS: [(&str, &str); 3] = [("Pod", "pod/"), ("Node", "node/"), ("NodeClaim", "nodeclaim/")];
    let last = |text: &str| text.rsplit('/').next().unwrap_or(text).to_owned();
    let decided = world.store.decisions(&world.name()).iter().filter_map(|decision| {
        let (kind, _) = KINDS.iter().find(|(_, prefix)| decision.subject.starts_with(prefix))?;
        Some((*kind, last(&decision.subject)))
    });
    let published = world.cluster.events.iter().filter_map(|kept| {
        let (kind, _) = KINDS.iter().find(|(kind, _)| *kind == kept.event.kind)?;
        Some((*kind, last(&kept.event.name)))
    });
    let joined = world.story.lines().iter().filter_map(joined_node).map(|name| ("Node", name.to_owned()));
    decided.chain(published).chain(joined).collect()
}

/// The object that a name, or its beginning, means, and a remark if it may mean others too. Objects that are gone are known by what
/// was decided and published about them.
fn meant(world: &World, name: &str) -> Result<(String, Option<String>), String> {
    let objects = &world.cluster.objects;
    let bare = name.rsplit('/').next().unwrap_or(name);
    if bare.is_empty() {
        return Err("name a pod, a node or a nodeclaim".to_owned());
    }
    let (living, past) = (living(world), past(world));
    if living.iter().chain(&past).any(|(_, known)| known == bare) {
        return Ok((bare.to_owned(), None));
    }
    let kind = name.split_once('/').and_then(|(kind, _)| kinds::find(kind).ok()).map(|entry| entry.kind);
    let begun = |known: BTreeSet<(&str, String)>| -> Vec<String> {
        let begins = known.into_iter().filter(|(of, known)| kind.is_none_or(|kind| kind == *of) && known.starts_with(bare));
        begins.map(|(_, known)| known).collect::<BTreeSet<String>>().into_iter().collect()
    };
    let mut matching = begun(living);
    if matching.is_empty() {
        matching = begun(past);
    }
    // What waits is what is asked about; the order stays otherwise.
    let waits = |known: &String| objects.pods.values().any(|pod| pod.metadata.name == *known && !pod.is_bound() && !pod.is_terminal());
    let waiting: BTreeSet<String> = matching.iter().filter(|known| waits(known)).cloned().collect();
    matching.sort_by_key(|known| !waiting.contains(known));
    let others = matching.iter().skip(1).take(5).cloned().collect::<Vec<_>>().join(", ");
    let chosen = match waiting.len() {
        0 => "the first".to_owned(),
        all if all == matching.len() => "the first".to_owned(),
        _ => "one that waits".to_owned(),
    };
    let more = if matching.len() > 6 { ", …" } else { "" };
    let remark =
        (1 < matching.len()).then(|| format!("{chosen} of {} whose names begin with {bare:?}; others are {others}{more}", matching.len()));
    let first = matching.into_iter().next();
    first.map(|first| (first, remark)).ok_or_else(|| {
        let other = if name.contains('/') { None } else { of_other_kind(world, name) };
        let remedy = other.map(|other| format!("; there is {other}")).unwrap_or_else(|| near_name(world, name));
        format!("there is no pod, node or nodeclaim {name:?}, and there was none{remedy}")
    })
}

/// A pool or a class of this name.
fn of_other_kind(world: &World, name: &str) -> Option<String> {
    Some(format!("{}/{name}", entry_of_pool_or_class(world, name)?.singular()))
}

fn entry_of_pool_or_class(world: &World, name: &str) -> Option<&'static KindEntry> {
    let mut entries = POOLS_AND_CLASSES.iter().filter_map(|kind| kinds::find(kind).ok());
    entries.find(|entry| (entry.list)(world).iter().any(|row| row.name == name))
}

/// A hint at something whose name is similar, workloads first.
fn near_name(world: &World, name: &str) -> String {
    let (kind, bare) = name.rsplit_once('/').unwrap_or(("", name));
    let kinds: Vec<&str> = WORKLOADS.into_iter().chain(["Node", "NodeClaim", "Pod"]).chain(POOLS_AND_CLASSES).collect();
    let entries = kinds.iter().filter_map(|kind| kinds::find(kind).ok());
    let of_kind = kinds::find(kind).ok().map(|entry| entry.kind);
    let mut hints =
        entries.filter(|entry| of_kind.is_none_or(|kind| kind == entry.kind)).map(|entry| kinds::did_you_mean(world, entry, bare));
    hints.find(|hint| !hint.is_empty()).unwrap_or_default()
}

/// What is explained under its kind and its name alone.
const POOLS_AND_CLASSES: [&str; 4] = ["nodepool", "provisioner", "ec2nodeclass", "awsnodetemplate"];

/// What a node is.
fn described(world: &World, node: &Node) -> String {
    let label = |key: &str| node.metadata.label(key).unwrap_or("-");
    let pods = world.cluster.objects.pods_on(&node.metadata.name).filter(|pod| !pod.is_daemon()).count();
    let pods = counted(pods, "pod");
    let machine = format!("{}, {}, {}", label(labels::INSTANCE_TYPE), label(labels::CAPACITY_TYPE), label(labels::ZONE));
    match node.metadata.label(labels::NODE_POOL) {
        Some(_) => format!("  {machine}; {pods}; of nodepool {}\n", pool_of(node)),
        None => format!("  {machine}; {pods}; it is no node of Whittle's, which neither launched it nor removes it\n"),
    }
}

/// The node that a line of the timeline says has joined.
fn joined_node(line: &Line) -> Option<&str> {
    line.text.strip_prefix("node ")?.strip_suffix(" joined").filter(|_| line.kind == LineKind::Cluster)
}

/// When and how often the same was said, by the name of the object.
type Sayings<'a> = BTreeMap<&'a str, Vec<(Timestamp, Timestamp, u32)>>;

/// What was decided and published about an object that may have two names, a node and its NodeClaim.
struct Past<'a> {
    names: Vec<String>,
    decisions: Vec<&'a DecisionRecord>,
    events: Vec<&'a KeptEvent>,
}

impl<'a> Past<'a> {
    fn of(world: &'a World, subject: &str) -> Self {
        let all = world.store.decisions(&world.name());
        let mut names = vec![subject.to_owned()];
        names.extend(other_name(all, subject));
        // A command names all its nodes.
        let about =
            |text: &str| text.rsplit('/').next().is_some_and(|last| last.split(',').any(|one| names.iter().any(|name| name == one)));
        let decisions = all.iter().filter(|decision| about(&decision.subject) || is_shadowed_for(decision, subject)).collect();
        let events = world.cluster.events.iter().filter(|kept| about(&kept.event.name)).collect();
        Self { names, decisions, events }
    }

    /// Without what only repeats a decision: the verdict beside a command, the command beside its start, and the Events of both.
    fn without_repeats(mut self) -> Self {
        let verdicts: Vec<Timestamp> = self.decisions.iter().filter(|decision| is_verdict(decision)).map(|decision| decision.at).collect();
        let beside = |kept: &KeptEvent| verdicts.iter().any(|at| kept.at.duration_since(*at).abs() < EVENT_DELAY);
        let of_verdict = |kept: &KeptEvent| VERDICT_EVENTS.contains(&kept.event.reason.as_str());
        let of_command = |kept: &KeptEvent| COMMAND_EVENTS.contains(&kept.event.reason.as_str());
        // One that was published again later says that it still holds.
        let again: BTreeSet<&str> = self.events.iter().filter(|kept| !beside(kept)).map(|kept| kept.event.message.as_str()).collect();
        let decided: BTreeSet<&str> = self.decisions.iter().map(|decision| decision.message.as_str()).collect();
        self.events.retain(|kept| {
            let why = kept.event.message.strip_prefix(FAILED);
            let repeats = of_verdict(kept) && !again.contains(kept.event.message.as_str());
            // A long Event ends where the API server's limit is.
            let is_decided = |why: &str| match why.len() + FAILED.len() < EVENT_CUT {
                true => decided.contains(why),
                false => decided.iter().any(|message| message.starts_with(why)),
            };
            !repeats && !of_command(kept) && !why.is_some_and(is_decided)
        });
        let all = self.decisions.clone();
        self.decisions.retain(|decision| !is_repeated(decision, &all));
        self
    }

    /// Why a machine was given up, and when that was decided.
    fn cause(&self) -> Option<&'a DecisionRecord> {
        let causes = [DecisionKind::Disrupted, DecisionKind::Interrupted, DecisionKind::LaunchFailed];
        // What came after that only follows from it.
        let ends = [DecisionKind::Drained, DecisionKind::Terminated, DecisionKind::Collected];
        let end = self.decisions.iter().position(|decision| ends.contains(&decision.kind)).unwrap_or(self.decisions.len());
        let before = self.decisions.iter().take(end).rev().find(|decision| causes.contains(&decision.kind));
        before.or_else(|| self.decisions.iter().rev().find(|decision| ends.contains(&decision.kind))).copied()
    }

    /// When and why a node or NodeClaim went, after its name.
    fn end(&self, world: &World, begun: Timestamp) -> String {
        let lines = world.story.lines();
        let says = |line: &&Line, end: &str| self.names.iter().any(|name| line.text == format!("node {name} {end}"));
        let existed = lines.iter().any(|line| says(&line, "joined"));
        let went = lines.iter().rev().find(|line| line.kind == LineKind::Cluster && says(line, "is gone")).map(|line| line.at);
        let is_end = |decision: &&&DecisionRecord| decision.kind == DecisionKind::Terminated;
        let went = went.or_else(|| self.decisions.iter().rev().find(is_end).map(|decision| decision.at));
        let when = went.map(|at| format!(" since {}", clock(begun, at))).unwrap_or_default();
        if let Some(cause) = self.cause() {
            let successor = self.successor(world).map(|claim| format!("; {claim} takes its place")).unwrap_or_default();
            return format!(" is gone{when}: {} (decided at {}){successor}", on_clock(&cause.message, begun), clock(begun, cause.at));
        }
        let owned = self.decisions.iter().any(|decision| decision.subject.starts_with("nodeclaim/"));
        let group = lines.iter().rev().find_map(|line| {
            let (group, node) = line.text.strip_prefix("node group ")?.split_once(" gives up ")?;
            self.names.iter().any(|name| node.starts_with(&format!("{name}:"))).then_some(group)
        });
        match group {
            Some(group) => format!(" is gone{when}: given up by its node group {group}; it was no node of Whittle's"),
            None if existed && !owned => format!(" is gone{when}: it was deleted; it was no node of Whittle's"),
            None => format!(" is gone{when}"),
        }
    }

    /// The NodeClaim of the machine that was planned in the place of this one.
    fn successor(&self, world: &World) -> Option<String> {
        let replaces = |decision: &&DecisionRecord| {
            let nodes = decision.message.strip_prefix("replaces ").and_then(|rest| rest.split(" (").next());
            nodes.is_some_and(|nodes| nodes.split(", ").any(|node| self.names.iter().any(|name| name == node)))
        };
        world.store.decisions(&world.name()).iter().rev().find(replaces).map(|decision| decision.subject.clone())
    }

    /// What was said, oldest first: the same once, with how often it was said and when last. A node and its NodeClaim get the same
    /// Events, which count once.
    fn said_lines(&self, begun: Timestamp) -> Vec<String> {
        let mut said: BTreeMap<String, Sayings<'_>> = BTreeMap::new();
        for decision in &self.decisions {
            let text = format!("{} ({})", decision.message, decision.subject);
            said.entry(text).or_default().entry(&decision.subject).or_default().push((decision.at, decision.at, 1));
        }
        for kept in &self.events {
            let text = format!("{}: {}", kept.event.reason, kept.event.message);
            said.entry(text).or_default().entry(&kept.event.name).or_default().push((kept.at, kept.last, kept.count));
        }
        let line = |(text, by_object): (String, Sayings<'_>)| {
            let times = by_object.values().map(|all| all.iter().map(|(.., count)| *count).sum::<u32>()).max().unwrap_or(1);
            let first = by_object.values().flatten().map(|(first, ..)| *first).min()?;
            let last = by_object.values().flatten().map(|(_, last, _)| *last).max()?;
            let text = on_clock(&text, begun);
            let often = if times > 1 { format!(" ({times} times, the last at {})", clock(begun, last)) } else { String::new() };
            Some((first, format!("  {}  {text}{often}\n", clock(begun, first))))
        };
        let mut lines: Vec<(Timestamp, String)> = said.into_iter().filter_map(line).collect();
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// NodePools that come before the machine's own, and why they did not take its pods.
    fn passed_over(&self) -> String {
        let planned = self.decisions.iter().filter(|decision| decision.kind == DecisionKind::Planned);
        let passed = planned.filter_map(|decision| decision.detail["passedOver"].as_array()).flatten().filter_map(|why| why.as_str());
        let lines: BTreeSet<&str> = passed.collect();
        lines.into_iter().map(|why| format!("  passed over: nodepool {}\n", words::printable(why))).collect()
    }

    /// What would help a pod that waits, if the last decision about it says that it has no place.
    fn remedies_of_pod(&self) -> String {
        remedies(self.decisions.last().filter(|decision| decision.kind == DecisionKind::Unschedulable))
    }

    /// What would let a node go, if it was decided last that it is kept.
    fn remedies_of_node(&self) -> String {
        use DecisionKind::{Disrupted, Drained, Interrupted, Terminated};
        let ends = |decision: &DecisionRecord| matches!(decision.kind, Disrupted | Drained | Interrupted | Terminated);
        let decides = |decision: &&&DecisionRecord| is_verdict(decision) || ends(decision);
        remedies(self.decisions.iter().rev().find(decides).filter(|decision| is_verdict(decision)))
    }
}

/// A line for each remedy that was recorded with a decision.
fn remedies(last: Option<&&DecisionRecord>) -> String {
    let remedies = last.and_then(|decision| decision.detail["remedies"].as_array()).into_iter().flatten();
    remedies.filter_map(|remedy| remedy.as_str()).map(|remedy| format!("  {}\n", words::printable(remedy))).collect()
}

/// How Whittle's Event about a pod begins that has no place; the reason after it is that of the decision.
const FAILED: &str = "Failed to schedule pod, ";

/// Events of this length, or nearly, may have been cut.
const EVENT_CUT: usize = 1_020;

/// How long after a decision its Events are published at the latest.
const EVENT_DELAY: SignedDuration = SignedDuration::from_secs(2);

/// Whether it says why a node is kept, or that it goes.
fn is_verdict(decision: &DecisionRecord) -> bool {
    decision.kind == DecisionKind::Kept && decision.subject.starts_with("node/")
}

/// Whether another decision of the same moment says the same.
fn is_repeated(decision: &DecisionRecord, all: &[&DecisionRecord]) -> bool {
    let beside = |prefix: &str| {
        let same = |other: &&&DecisionRecord| other.at == decision.at && other.kind == DecisionKind::Disrupted;
        all.iter().filter(same).any(|other| other.subject.starts_with(prefix))
    };
    match decision.kind {
        DecisionKind::Kept if is_verdict(decision) => {
            let goes = ["kept: being deleted already", "kept: being disrupted already"].contains(&decision.message.as_str());
            goes || !decision.message.starts_with("kept: ") && beside("command/")
        }
        DecisionKind::Disrupted => decision.subject.starts_with("command/") && beside("node/"),
        _ => false,
    }
}

/// Whether a decision is for a machine that shadow mode did not launch for this pod; nothing else names the pod then.
fn is_shadowed_for(decision: &DecisionRecord, pod: &str) -> bool {
    let is_it = |key: &serde_json::Value| key.as_str().and_then(|key| key.rsplit('/').next()) == Some(pod);
    let pods = decision.detail["pods"].as_array().filter(|_| decision.message.starts_with("would launch "));
    pods.is_some_and(|pods| pods.iter().any(is_it))
}

/// The same as [`explain`], of what is in a namespace. Nodes, NodeClaims and the like are in none, and are found with any.
pub(super) fn explain_in(world: &World, namespace: &str, name: &str) -> Result<String, String> {
    let (kind, bare) = name.split_once('/').map_or((None, name), |(kind, bare)| (kinds::find(kind).ok().map(|entry| entry.kind), bare));
    let workload_kinds =
        kind.map_or(&WORKLOADS[..1], |kind| WORKLOADS.iter().position(|one| *one == kind).map_or(&[], |at| &WORKLOADS[at..=at]));
    if let Some(workload) = workloads(world, workload_kinds, &format!("{namespace}/{bare}")).first() {
        return of_workload(world, workload);
    }
    let is_elsewhere = |kind: &str| kind == "Pod" || WORKLOADS.contains(&kind);
    let others = || living(world).into_iter().any(|(of, known)| of != "Pod" && known.starts_with(bare));
    if kind.is_some_and(|kind| !is_elsewhere(kind)) || kind.is_none() && others() {
        return explain(world, name);
    }
    let begins = |key: &str| key.strip_prefix(namespace).and_then(|key| key.strip_prefix('/')).is_some_and(|name| name.starts_with(bare));
    let living = world.cluster.objects.pods.keys().find(|key| begins(key)).cloned();
    let gone = || {
        let decisions = world.store.decisions(&world.name()).iter();
        decisions.filter_map(|decision| decision.subject.strip_prefix("pod/")).find(|key| begins(key)).map(str::to_owned)
    };
    match living.or_else(gone) {
        Some(key) if kind.is_none_or(|kind| kind == "Pod") => of_machine_or_pod(world, &key),
        _ => {
            let near = near_name(world, name);
            Err(format!("there is no {} {bare:?} in namespace {namespace}{near}", kind.unwrap_or("Pod").to_lowercase()))
        }
    }
}

/// Whether a namespace has pods, or had some.
fn has_pods(world: &World, namespace: &str) -> bool {
    let decided = world.store.decisions(&world.name()).iter().filter_map(|decision| decision.subject.strip_prefix("pod/"));
    let mut gone = decided.filter_map(|key| key.split_once('/')).map(|(namespace, _)| namespace);
    world.cluster.objects.pods.values().any(|pod| pod.metadata.namespace == namespace) || gone.any(|of| of == namespace)
}

/// The Node, or the NodeClaim, of a machine that is named by its id, or by its provider id.
fn node_of_machine(world: &World, id: &str) -> Option<String> {
    let id = id.strip_prefix("aws:///").and_then(|rest| rest.rsplit('/').next()).unwrap_or(id);
    let of = |provider_id: &str| id.starts_with("i-") && provider_id.rsplit('/').next() == Some(id);
    let objects = &world.cluster.objects;
    let node = objects.nodes.values().find(|node| of(&node.spec.provider_id)).map(|node| node.metadata.name.clone());
    let claim = || objects.node_claims.values().find(|claim| of(&claim.status.provider_id)).map(|claim| claim.metadata.name.clone());
    let launched = || {
        let about = world.store.decisions(&world.name()).iter().filter(|decision| decision.kind == DecisionKind::Launched);
        let begins = |decision: &&DecisionRecord| decision.message.strip_prefix(id).is_some_and(|rest| rest.starts_with(' '));
        about.into_iter().find(begins).and_then(|decision| decision.subject.strip_prefix("nodeclaim/")).map(str::to_owned)
    };
    node.or_else(claim).or_else(|| launched().filter(|_| id.starts_with("i-")))
}

/// Everything that was decided and published about an object, oldest first; of a workload, about one of its pods.
pub(in crate::local) fn explain(world: &World, name: &str) -> Result<String, String> {
    if let Some(node) = node_of_machine(world, name) {
        return of_machine_or_pod(world, &node);
    }
    let Some((kind, bare)) = name.split_once('/').filter(|(_, bare)| !bare.is_empty()) else {
        let workload = workloads(world, &[WORKLOADS[0]], name).into_iter().next();
        let exists = world.cluster.objects.pods.values().any(|pod| pod.metadata.name == name);
        // Names of machines begin with those of their pools.
        let is_machine = living(world).iter().chain(&past(world)).any(|(_, known)| known == name);
        if workload.is_none()
            && !is_machine
            && let Some(entry) = entry_of_pool_or_class(world, name)
        {
            return of_other(world, entry, name).ok_or_else(|| format!("there is no {} {name:?}", entry.singular()));
        }
        return workload.filter(|_| !exists).map_or_else(|| of_machine_or_pod(world, name), |workload| of_workload(world, &workload));
    };
    let entry = match kinds::find(kind) {
        Ok(entry) => entry,
        Err(_) if has_pods(world, kind) || world.cluster.objects.namespaces.contains_key(kind) => return of_machine_or_pod(world, name),
        Err(error) => return Err(error),
    };
    let missing = || {
        let other = same_name(world, entry, bare).map(|other| format!("; there is {other}"));
        format!("there is no {} {bare:?}{}", entry.singular(), other.unwrap_or_else(|| kinds::did_you_mean(world, entry, bare)))
    };
    match entry.kind {
        "Pod" | "Node" | "NodeClaim" => of_machine_or_pod(world, name),
        kind if WORKLOADS.contains(&kind) => of_workload(world, workloads(world, &[kind], bare).first().ok_or_else(missing)?),
        _ => of_other(world, entry, bare).ok_or_else(missing),
    }
}

const WORKLOADS: [&str; 4] = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"];

/// A workload: its kind, namespace and name.
type Workload = (&'static str, String, String);

/// The workloads of some kinds that a name means, with or without its namespace; those of namespace `default` first.
fn workloads(world: &World, of: &[&'static str], name: &str) -> Vec<Workload> {
    let (namespace, name) = name.rsplit_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    let entries = KINDS.iter().filter(|entry| of.contains(&entry.kind));
    let listed = entries.flat_map(|entry| (entry.list)(world).into_iter().map(|row| (entry.kind, row.namespace, row.name)));
    let mut found: Vec<Workload> = listed.filter(|(_, space, own)| own == name && namespace.is_none_or(|wanted| wanted == space)).collect();
    found.sort_by_key(|(_, space, _)| space != "default");
    found
}

/// How many pods of a workload run and wait, and one of them: one that waits if any does.
fn of_workload(world: &World, (kind, namespace, name): &Workload) -> Result<String, String> {
    let cluster = &world.cluster;
    let is_own = |pod: &&Pod| {
        let owner = pod.metadata.controller().is_some_and(|owner| owner.kind == *kind && owner.name == *name);
        let deployment = *kind == "Deployment" && cluster.deployment_of(pod).is_some_and(|owner| owner.metadata.name == *name);
        pod.metadata.namespace == *namespace && !pod.is_terminal() && (owner || deployment)
    };
    let (bound, waiting): (Vec<&Pod>, Vec<&Pod>) = cluster.objects.pods.values().filter(is_own).partition(|pod| pod.is_bound());
    let verb = |count: usize, one: &'static str, several: &'static str| if count == 1 { one } else { several };
    let (runs, waits) = (verb(bound.len(), "has", "have"), verb(waiting.len(), "waits", "wait"));
    let mut text = format!("{}/{namespace}/{name}: ", kind.to_lowercase());
    let Some(shown) = waiting.first().or_else(|| bound.first()) else { return Ok(text + "it has no pods\n") };
    text.push_str(&format!("{} {runs} a node, {} {waits} for one; one of them:\n", counted(bound.len(), "pod"), waiting.len()));
    Ok(text + &of_machine_or_pod(world, &shown.metadata.name)?)
}

/// An object that is no pod or machine, such as a NodePool: its columns, and what was decided and published about it.
fn of_other(world: &World, entry: &KindEntry, name: &str) -> Option<String> {
    let bare = name.rsplit('/').next().unwrap_or(name);
    let row = (entry.list)(world).into_iter().find(|row| row.name == bare)?;
    let mut text = format!("{}/{}\n", entry.singular(), row.name);
    let (cells, wide) = (row.cells)();
    for (column, cell) in entry.columns.iter().chain(entry.wide).zip(cells.iter().chain(&wide)).filter(|(_, cell)| *cell != "-") {
        text.push_str(&format!("  {:<10}  {cell}\n", column.to_lowercase()));
    }
    // A pool or class that was converted publishes as what it became.
    let kinds = match entry.kind {
        "Provisioner" => ["Provisioner", "NodePool"],
        "AWSNodeTemplate" => ["AWSNodeTemplate", "EC2NodeClass"],
        kind => [kind, kind],
    };
    let mut past = Past::of(world, bare);
    past.decisions.retain(|decision| kinds.iter().any(|kind| decision.subject == format!("{}/{bare}", kind.to_lowercase())));
    past.events.retain(|kept| kinds.contains(&kept.event.kind.as_str()));
    let begun = world.story.lines().first().map_or(world.now(), |line| line.at);
    text.extend(past.said_lines(begun));
    Some(text)
}

/// Everything that was decided and published about a pod, a node or a claim, oldest first.
fn of_machine_or_pod(world: &World, name: &str) -> Result<String, String> {
    let objects = &world.cluster.objects;
    let (subject, remark) = meant(world, name)?;
    let begun = world.story.lines().first().map_or(world.now(), |line| line.at);
    let mut past = Past::of(world, &subject).without_repeats();
    let pod = objects.pods.values().find(|pod| pod.metadata.name == subject);
    let node = objects.nodes.get(&subject);
    let mut text = remark.map_or_else(|| subject.clone(), |remark| format!("{subject} ({remark})"));
    if node.is_none() && pod.is_none() && !objects.node_claims.contains_key(&subject) {
        text.push_str(&past.end(world, begun));
    }
    text.push('\n');
    text.extend(node.map(|node| described(world, node)));
    text.extend(pod.map(pod_described));
    let waits = pod.and_then(|pod| pod.condition("PodScheduled")).filter(|condition| condition.status == "False");
    past.events.retain(|kept| waits.is_none_or(|waits| waits.message != kept.event.message));
    text.extend(past.said_lines(begun));
    text.push_str(&past.passed_over());
    text.extend(pod.filter(|pod| !pod.is_bound()).map(|_| past.remedies_of_pod()));
    let besides = pod
        .filter(|pod| !pod.is_bound() && pod.spec.scheduling_gates.is_empty())
        .map(|pod| besides::lines(pod, &world.cluster.objects.snapshot(), &BTreeMap::new(), &text));
    text.extend(besides);
    let startup = pod.map(|pod| besides::startup_taints(pod, &objects.snapshot(), &text));
    text.extend(startup);
    text.extend(node.map(|node| besides::startup_taints_line(node, &objects.snapshot())));
    text.extend(node.filter(|node| !node.metadata.is_deleting()).map(|_| past.remedies_of_node()));
    Ok(text)
}

/// Where a pod is, or why it has no place.
fn pod_described(pod: &Pod) -> String {
    let place = match &pod.spec {
        spec if pod.is_bound() => format!("runs on {}", spec.node_name),
        spec if !spec.scheduling_gates.is_empty() => {
            "held back by its spec.schedulingGates: it gets a node once they are removed".to_owned()
        }
        spec if !matches!(spec.scheduler_name.as_str(), "" | "default-scheduler") => {
            format!("waits for its scheduler {:?}, of which there is none here", spec.scheduler_name)
        }
        _ => "waits for a node".to_owned(),
    };
    let phase = pod.status.phase.to_lowercase();
    let mut text = if phase == "running" && pod.is_bound() { format!("  {place}\n") } else { format!("  {phase} and {place}\n") };
    if let Some(condition) = pod.condition("PodScheduled").filter(|condition| condition.status == "False") {
        text.push_str(&format!("  the scheduler says: {}\n", condition.message));
        if let Some(dropped) = preferences::dropped(pod) {
            text.push_str(&format!("  it has no place, {dropped}\n"));
        }
    }
    text
}
