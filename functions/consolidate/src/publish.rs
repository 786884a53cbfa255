//! What a pass publishes: verdicts, decisions, events.

use crate::Rights;
use crate::state::{DeletingMachine, Running};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::NodePool;
use whittle_checker::Violation;
use whittle_claims::{DecisionKind, NodeVerdict, Revision, Stored, VerdictPage};
use whittle_disruption::{
    DISRUPTION_BLOCKED, DISRUPTION_LAUNCHING, DISRUPTION_TERMINATING, DISRUPTION_WAITING_READINESS, Decision, DisruptionEvent, KeepReason,
    Rejection, Verdict, VerdictReason,
};
use whittle_model::disruption::{Command, Method, Proposal};
use whittle_ports::{
    CONCURRENT_REQUESTS, ClusterEvent, HandleError, Involved, Mode, RecordReader, Records, Report, concurrently, metrics, publish_event,
    unless_conflict,
};
use whittle_snapshot::Snapshot;
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

/// Events of one pass; verdicts cover the rest.
pub(crate) const EVENTS_MAX: usize = 100;
/// Events of one pass about objects that cannot be read: they often share one cause.
const UNREADABLE_MAX: usize = 20;
/// Kinds that `sweep` reads and reports.
const KINDS_OF_SWEEP: [&str; 6] = ["NodePool", "NodeClaim", "EC2NodeClass", "Provisioner", "AWSNodeTemplate", "Node"];
/// An unchanged verdict is written again before it is five minutes old.
const REFRESH_AFTER: SignedDuration = SignedDuration::from_mins(4);

/// Events of an unchanged verdict are sent again after this, since a cluster deletes its events within an hour.
const REPUBLISH_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// Stores every verdict that changed or aged, and publishes Events for those that changed; in shadow mode it only logs them.
pub(crate) async fn store_verdicts<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    snapshot: &Snapshot,
    decision: &Decision,
    mode: Mode,
    report: &mut Report,
) -> Result<(), HandleError> {
    let now = snapshot.now;
    let stored: BTreeMap<u8, Stored<VerdictPage>> =
        ports.store().read_all::<VerdictPage>(cluster).await?.into_iter().map(|page| (page.value.page, page)).collect();
    let mut new = NewVerdicts::default();
    let pages = changed_pages(decision, &stored, now, &mut new);
    let revision = |number: &u8| stored.get(number).map_or(Revision::ABSENT, |old| old.revision);
    let writes = pages.iter().map(|(number, page)| ports.store().write(cluster, page, revision(number)));
    for written in concurrently(writes).await {
        unless_conflict(written)?;
    }
    for verdict in decision.verdicts.iter().filter(|verdict| new.changed.contains(verdict.node.as_str())) {
        let remedies: Vec<String> = verdict.remedy(&snapshot.objects.node_pools).iter().map(ToString::to_string).collect();
        let detail = if remedies.is_empty() { serde_json::Value::Null } else { serde_json::json!({ "remedies": remedies }) };
        report.explain(now, DecisionKind::Kept, format!("node/{}", verdict.node), verdict_text(decision, verdict, mode), detail);
    }
    if mode == Mode::Shadow {
        return Ok(());
    }
    let to_publish = decision.verdicts.iter().filter(|verdict| new.to_publish.contains(verdict.node.as_str()));
    let claims: BTreeSet<&str> = to_publish.map(|verdict| verdict.node_claim.as_str()).collect();
    // Those for which there is no time are in the stored verdicts.
    let notes = decision.events.iter().filter(|note| is_new(note, &new.to_publish, &claims)).take(EVENTS_MAX);
    let events: Vec<ClusterEvent> = notes.map(|note| event_of(note, &snapshot.read)).collect();
    publish_in_time(ports, cluster, &events, report).await;
    Ok(())
}

/// Publishes Events and a count of objects that cannot be read; `sweep` does so for the kinds that it reads.
pub(crate) async fn unreadable_objects<P: Rights>(ports: P, cluster: &ClusterName, snapshot: &Snapshot, mode: Mode, report: &mut Report) {
    let odd = || snapshot.read.unreadable.iter().filter(|odd| !KINDS_OF_SWEEP.contains(&odd.kind.as_str()));
    let most = match mode {
        Mode::Active => UNREADABLE_MAX,
        Mode::Shadow => 0,
    };
    let events: Vec<ClusterEvent> = odd().take(most).map(ClusterEvent::unreadable).collect();
    publish_in_time(ports, cluster, &events, report).await;
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for odd in odd() {
        *counted.entry(odd.kind.as_str()).or_default() += 1;
    }
    for (kind, count) in counted {
        report.gauge(metrics::ObjectsUnreadable { kind }, count);
    }
}

/// A verdict for the log, marked if shadow mode holds it back. Pure.
pub(crate) fn verdict_text(decision: &Decision, verdict: &Verdict, mode: Mode) -> String {
    let is_held_back = || decision.shadow.iter().flat_map(|command| &command.removals).any(|removal| removal.node == verdict.node);
    match &verdict.reason {
        VerdictReason::Chosen { .. } if mode == Mode::Shadow || is_held_back() => format!("would (shadow mode) {}", verdict.reason),
        why => why.to_string(),
    }
}

/// Names of nodes.
#[derive(Debug, Default)]
pub(crate) struct NewVerdicts<'d> {
    /// Nodes whose verdict differs from the stored one.
    pub(crate) changed: BTreeSet<&'d str>,
    /// Nodes whose verdict changed or was last published long ago.
    pub(crate) to_publish: BTreeSet<&'d str>,
}

/// The pages that have to be written, and which verdicts are new. Pure.
pub(crate) fn changed_pages<'d>(
    decision: &'d Decision,
    stored: &BTreeMap<u8, Stored<VerdictPage>>,
    now: Timestamp,
    new: &mut NewVerdicts<'d>,
) -> BTreeMap<u8, VerdictPage> {
    let mut pages: BTreeMap<u8, VerdictPage> = BTreeMap::new();
    let mut dirty = BTreeSet::new();
    let noted: BTreeSet<&str> = decision.events.iter().filter_map(|note| note.object.strip_prefix("node/")).collect();
    let of_machines = decision.verdicts.iter().filter(|verdict| !verdict.node.is_empty() && !verdict.node_claim.is_empty());
    let of_machines: Vec<&'d Verdict> = of_machines.collect();
    let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
    for verdict in &of_machines {
        *counts.entry(VerdictPage::page_of(&verdict.node)).or_default() += 1;
    }
    for verdict in of_machines {
        let number = VerdictPage::page_of(&verdict.node);
        let old = stored.get(&number).and_then(|page| page.value.verdicts.get(&verdict.node));
        let text = cut(verdict.reason.to_string(), VerdictPage::text_max(counts.get(&number).copied().unwrap_or_default()));
        let fresh = NodeVerdict { code: verdict.reason.code().to_owned(), text, at: now, told_at: None };
        let page = pages.entry(number).or_insert_with(|| VerdictPage::empty(number));
        let mut kept = match old {
            Some(old) if verdict.reason.is_stale() || old.code == fresh.code && old.text == fresh.text => {
                // A node that was not evaluated keeps the age of its verdict.
                let is_evaluated = !matches!(verdict.reason, VerdictReason::Kept(KeepReason::NotReached));
                if is_evaluated && now.duration_since(old.at) >= REFRESH_AFTER {
                    dirty.insert(number);
                    NodeVerdict { at: now, ..old.clone() }
                } else {
                    old.clone()
                }
            }
            Some(_) | None => {
                dirty.insert(number);
                new.changed.insert(verdict.node.as_str());
                fresh
            }
        };
        let is_due = kept.told_at.is_none_or(|at| now.duration_since(at).abs() >= REPUBLISH_AFTER);
        if is_due && noted.contains(verdict.node.as_str()) {
            dirty.insert(number);
            new.to_publish.insert(verdict.node.as_str());
            kept.told_at = Some(now);
        }
        page.verdicts.insert(verdict.node.clone(), kept);
    }
    for (number, old) in stored {
        // Verdicts of deleted nodes are removed.
        if pages.get(number).is_none_or(|page| page.verdicts.len() < old.value.verdicts.len()) {
            pages.entry(*number).or_insert_with(|| VerdictPage::empty(*number));
            dirty.insert(*number);
        }
    }
    pages.retain(|number, page| dirty.contains(number) && stored.get(number).is_none_or(|old| old.value != *page));
    pages
}

/// The first bytes of a text.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Events about nodes and their claims are published when the verdict changed, others always: the publisher sends each once in
/// two minutes. Pure.
pub(crate) fn is_new(note: &DisruptionEvent, nodes: &BTreeSet<&str>, claims: &BTreeSet<&str>) -> bool {
    match note.object.split_once('/') {
        Some(("node", name)) => nodes.contains(name),
        Some(("nodeclaim", name)) => claims.contains(name),
        _ => true,
    }
}

/// The Event of a note, about the object as it was read.
pub(crate) fn event_of(note: &DisruptionEvent, read: &ClusterObjects) -> ClusterEvent {
    fn find<'o, T: Kind>(objects: &'o [T], namespace: &str, name: &str) -> Option<&'o T> {
        objects.iter().find(|object| object.meta().name == name && object.meta().namespace == namespace)
    }
    let (kind, rest) = note.object.split_once('/').unwrap_or(("", &note.object));
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let found = match kind {
        "pod" => find(&read.pods, namespace, name).map(Involved::object),
        "nodepool" => find(&read.node_pools, "", name).map(Involved::object),
        "nodeclaim" => find(&read.node_claims, "", name).map(Involved::object),
        _ => find(&read.nodes, "", name).map(Involved::object),
    };
    let (api_version, kind) = match kind {
        "pod" => ("v1", "Pod"),
        "nodepool" => ("karpenter.sh/v1", "NodePool"),
        "nodeclaim" => ("karpenter.sh/v1", "NodeClaim"),
        _ => ("v1", "Node"),
    };
    let by_name = || Involved {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: String::new(),
    };
    let event = ClusterEvent::normal(found.unwrap_or_else(by_name), note.reason, note.message.clone());
    ClusterEvent { warning: note.warning, ..event }
}

/// The Events on the NodeClaims that a command launches, whose nodes it waits for. Pure.
pub(crate) fn launching(running: &Running) -> Vec<DisruptionEvent> {
    let note = |name: &ClaimName, reason: &'static str, message: String| DisruptionEvent {
        object: format!("nodeclaim/{name}"),
        reason,
        message,
        warning: false,
    };
    let of_claim = |name: &ClaimName| {
        let waiting = "Waiting on readiness to continue disruption".to_owned();
        [
            note(name, DISRUPTION_LAUNCHING, format!("Launching NodeClaim: {}", running.method.reason())),
            note(name, DISRUPTION_WAITING_READINESS, waiting),
        ]
    };
    running.replacements.iter().flat_map(|claim| of_claim(&claim.key.name)).collect()
}

/// The Events on a machine that a command does not end yet, although its replacements are ready. Its verdict says only that it is part of a
/// command. Pure.
pub(crate) fn held(machine: &DeletingMachine, why: &str) -> [DisruptionEvent; 2] {
    let message = format!("Disruption waits: {why}");
    let note = |object| DisruptionEvent { object, reason: DISRUPTION_BLOCKED, message: message.clone(), warning: false };
    [format!("node/{}", machine.node), format!("nodeclaim/{}", machine.claim)].map(note)
}

/// The Events on a machine that a command ends: on its Node, if it has one, and its NodeClaim. Pure.
pub(crate) fn terminating(method: Method, machine: &DeletingMachine) -> Vec<DisruptionEvent> {
    let objects = [("Node", "node", machine.node.as_str()), ("NodeClaim", "nodeclaim", machine.claim.as_str())];
    let named = objects.into_iter().filter(|(.., name)| !name.is_empty());
    let note = |(kind, prefix, name): (&str, &str, &str)| DisruptionEvent {
        object: format!("{prefix}/{name}"),
        reason: DISRUPTION_TERMINATING,
        message: format!("Disrupting {kind}: {}", method.reason()),
        warning: false,
    };
    named.map(note).collect()
}

/// Publishes Events of commands, as far as there is time: the decision log has the same.
pub(crate) async fn publish_notes<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    notes: &[DisruptionEvent],
    read: &ClusterObjects,
    report: &mut Report,
) {
    let events: Vec<ClusterEvent> = notes.iter().map(|note| event_of(note, read)).collect();
    publish_in_time(ports, cluster, &events, report).await;
}

/// Publishes Events as far as there is time, many at once: planning waits for the lease meanwhile.
async fn publish_in_time<P: Rights>(ports: P, cluster: &ClusterName, events: &[ClusterEvent], report: &mut Report) {
    for some in events.chunks(CONCURRENT_REQUESTS) {
        if crate::time_left(ports.clock()).is_zero() {
            break;
        }
        let published = concurrently(some.iter().map(|event| publish_event(ports.cluster(), cluster, event))).await;
        published.into_iter().for_each(|one| one.count_failure(report, "events_failed"));
    }
}

/// Records that a command was found; it waits for its validation delay, or in shadow mode is never executed.
pub(crate) fn record_found(report: &mut Report, command: &Command, mode: Mode, snapshot: &Snapshot) {
    let (prefix, counter) = match mode {
        Mode::Active => ("", "found"),
        Mode::Shadow => ("would (shadow mode) ", "would_disrupt"),
    };
    let nodes: Vec<&str> = command.removals.iter().map(|removal| removal.node.as_str()).collect();
    let machines: Vec<String> =
        command.removals.iter().map(|removal| format!("{}/{}/{}", removal.node, removal.instance_type, removal.capacity_type)).collect();
    let noun = if nodes.len() == 1 { "machine" } else { "machines" };
    let message = format!(
        "{prefix}{} via {}, {} {noun}: {} (savings: {} an hour){}",
        command.action().as_str(),
        command.method.reason(),
        nodes.len(),
        machines.join(", "),
        command.savings,
        empty_for(command, snapshot)
    );
    let detail = serde_json::json!({"reason": command.method.reason().as_str(), "nodes": nodes, "machines": machines, "resting": true});
    report.explain(snapshot.now, DecisionKind::Disrupted, format!("command/{}", nodes.join(",")), message, detail);
    report.count(counter);
}

/// How long the nodes of a command have been empty, if that is why they go: the longest that their pools ask for. Pure.
fn empty_for(command: &Command, snapshot: &Snapshot) -> String {
    if command.method != Method::Emptiness {
        return String::new();
    }
    let is_its = |pool: &&NodePool| command.removals.iter().any(|removal| removal.node_pool == pool.metadata.name);
    let pools = snapshot.objects.node_pools.iter().filter(is_its);
    let longest = pools.filter_map(|pool| pool.spec.disruption.consolidate_after.span()).max();
    longest.filter(|span| span.is_positive()).map_or_else(String::new, |span| format!(", empty for {span:#} (consolidateAfter)"))
}

/// Records that a proposal is no longer valid.
pub(crate) fn record_rejected(report: &mut Report, proposal: &Proposal, rejection: &Rejection, now: Timestamp) {
    let subject = format!("command/{}", proposal.nodes.join(","));
    let message = format!("{} is no longer valid, {}", proposal.method.reason(), rejection.cause.explanation());
    report.decide(now, DecisionKind::Kept, subject, message);
    report.count("rejected");
}

/// Records a command that the checker rejects: a bug, or inconsistent input.
pub(crate) fn record_refused(report: &mut Report, command: &Command, wrong: &[Violation], now: Timestamp) {
    let Some(first) = wrong.first() else { return };
    let nodes: Vec<&str> = command.removals.iter().map(|removal| removal.node.as_str()).collect();
    let more = if wrong.len() > 1 { format!(" (and {} more)", wrong.len() - 1) } else { String::new() };
    let message = format!("{} is not executed, the checker rejects it: {first}{more}", command.method.reason());
    report.decide(now, DecisionKind::Kept, format!("command/{}", nodes.join(",")), message);
    report.count("refused");
}
