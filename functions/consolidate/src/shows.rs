//! What people see of a pass: verdicts, decisions, events.

use crate::Rights;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::Kind;
use whittle_claims::{DecisionKind, NodeVerdict, Revision, Stored, VerdictPage};
use whittle_core::checker::Violation;
use whittle_core::disruption::{Command, Decision, Keep, Note, Proposal, Rejection, Verdict, Why};
use whittle_ports::{ClusterEvent, HandleError, Involved, Records, Report, StatusWriter, StoreError, metrics};
use whittle_snapshot::Snapshot;
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Events of one pass; the rest is in the verdicts.
pub(crate) const EVENTS_MAX: usize = 100;
/// Events of one pass about objects that cannot be read: they are often of one making.
const UNREADABLE_MAX: usize = 20;
/// Kinds that `sweep` reads.
const SWEPT: [&str; 6] = ["NodePool", "NodeClaim", "EC2NodeClass", "Provisioner", "AWSNodeTemplate", "Node"];
/// A verdict that still stands is written again before it is five minutes old.
const REFRESH_AFTER: SignedDuration = SignedDuration::from_mins(4);

/// Events of a verdict that still stands are sent again after this, since a cluster forgets its events within an hour.
const TOLD_AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// Stores the verdict of every node whose verdict changed or aged, and tells the owners of those that changed; in shadow
/// mode only the log is told.
pub(crate) async fn verdicts<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    seen: &Snapshot,
    decision: &Decision,
    shadow: bool,
    report: &mut Report,
) -> Result<(), HandleError> {
    let now = seen.now;
    let stored: BTreeMap<u8, Stored<VerdictPage>> =
        ports.store().read_all::<VerdictPage>(cluster).await?.into_iter().map(|page| (page.value.page, page)).collect();
    let mut news = News::default();
    for (number, page) in pages(decision, &stored, now, &mut news) {
        let revision = stored.get(&number).map_or(Revision::ABSENT, |old| old.revision);
        match ports.store().write(cluster, &page, revision).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for verdict in decision.verdicts.iter().filter(|verdict| news.changed.contains(verdict.node.as_str())) {
        report.decide(now, DecisionKind::Kept, format!("node/{}", verdict.node), said(decision, verdict, shadow));
    }
    if shadow {
        return Ok(());
    }
    let to_tell = decision.verdicts.iter().filter(|verdict| news.to_tell.contains(verdict.node.as_str()));
    let claims: BTreeSet<&str> = to_tell.map(|verdict| verdict.node_claim.as_str()).collect();
    for note in decision.notes.iter().filter(|note| is_news(note, &news.to_tell, &claims)).take(EVENTS_MAX) {
        if crate::time_left(ports.clock()).is_zero() {
            break; // the verdict says the same
        }
        if ports.cluster().publish(cluster, &event_of(note, &seen.read)).await.is_err() {
            report.count("events_failed");
        }
    }
    Ok(())
}

/// Says of what cannot be read that it is left alone, and of how much there is; `sweep` does so for the kinds that it reads.
pub(crate) async fn unreadable<P: Rights>(ports: P, cluster: &ClusterName, seen: &Snapshot, shadow: bool, report: &mut Report) {
    let odd = seen.read.unreadable.iter().filter(|odd| !SWEPT.contains(&odd.kind.as_str()));
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, odd) in odd.enumerate() {
        *counted.entry(odd.kind.as_str()).or_default() += 1;
        let told = !shadow && at < UNREADABLE_MAX && !crate::time_left(ports.clock()).is_zero();
        if told && ports.cluster().publish(cluster, &ClusterEvent::unreadable(odd)).await.is_err() {
            report.count("events_failed");
        }
    }
    for (kind, count) in counted {
        report.gauge(metrics::ObjectsUnreadable { kind }, count);
    }
}

/// A verdict for the log. What shadow mode only imagines says so. Pure.
pub(crate) fn said(decision: &Decision, verdict: &Verdict, shadow: bool) -> String {
    let imagined = || decision.shadow.iter().flat_map(|command| &command.removals).any(|removal| removal.node == verdict.node);
    match &verdict.why {
        Why::Chosen { .. } if shadow || imagined() => format!("would (shadow mode) {}", verdict.why),
        why => why.to_string(),
    }
}

/// Nodes by name.
#[derive(Debug, Default)]
pub(crate) struct News<'d> {
    /// Their verdict says something else than before.
    pub(crate) changed: BTreeSet<&'d str>,
    /// These, and those whose verdict was told long ago.
    pub(crate) to_tell: BTreeSet<&'d str>,
}

/// The pages that have to be written anew, and what is new about them. Pure.
pub(crate) fn pages<'d>(
    decision: &'d Decision,
    stored: &BTreeMap<u8, Stored<VerdictPage>>,
    now: Timestamp,
    news: &mut News<'d>,
) -> BTreeMap<u8, VerdictPage> {
    let mut pages: BTreeMap<u8, VerdictPage> = BTreeMap::new();
    let mut dirty = BTreeSet::new();
    let noted: BTreeSet<&str> = decision.notes.iter().filter_map(|note| note.object.strip_prefix("node/")).collect();
    for verdict in decision.verdicts.iter().filter(|verdict| !verdict.node.is_empty() && !verdict.node_claim.is_empty()) {
        let number = VerdictPage::page_of(&verdict.node);
        let old = stored.get(&number).and_then(|page| page.value.verdicts.get(&verdict.node));
        let fresh = NodeVerdict { code: verdict.why.code().to_owned(), text: verdict.why.to_string(), at: now, told_at: None };
        let page = pages.entry(number).or_insert_with(|| VerdictPage::empty(number));
        let mut kept = match old {
            Some(old) if verdict.why.is_stale() || old.code == fresh.code && old.text == fresh.text => {
                // A node that was not reached was not looked at: its verdict grows old, for all to see.
                let looked_at = !matches!(verdict.why, Why::Kept(Keep::NotReached));
                if looked_at && now.duration_since(old.at) >= REFRESH_AFTER {
                    dirty.insert(number);
                    NodeVerdict { at: now, ..old.clone() }
                } else {
                    old.clone()
                }
            }
            Some(_) | None => {
                dirty.insert(number);
                news.changed.insert(verdict.node.as_str());
                fresh
            }
        };
        let long_ago = kept.told_at.is_none_or(|told| now.duration_since(told).abs() >= TOLD_AGAIN_AFTER);
        if long_ago && noted.contains(verdict.node.as_str()) {
            dirty.insert(number);
            news.to_tell.insert(verdict.node.as_str());
            kept.told_at = Some(now);
        }
        page.verdicts.insert(verdict.node.clone(), kept);
    }
    for (number, old) in stored {
        // Nodes that are gone are forgotten.
        if pages.get(number).is_none_or(|page| page.verdicts.len() < old.value.verdicts.len()) {
            pages.entry(*number).or_insert_with(|| VerdictPage::empty(*number));
            dirty.insert(*number);
        }
    }
    pages.retain(|number, page| dirty.contains(number) && stored.get(number).is_none_or(|old| old.value != *page));
    pages
}

/// Events about nodes and their claims are told when the verdict changed, others always: whoever publishes them tells each
/// once in two minutes. Pure.
pub(crate) fn is_news(note: &Note, nodes: &BTreeSet<&str>, claims: &BTreeSet<&str>) -> bool {
    match note.object.split_once('/') {
        Some(("node", name)) => nodes.contains(name),
        Some(("nodeclaim", name)) => claims.contains(name),
        _ => true,
    }
}

/// The event that tells a note, about the object as it was read.
pub(crate) fn event_of(note: &Note, read: &ClusterObjects) -> ClusterEvent {
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
    let unseen = || Involved {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: String::new(),
    };
    let event = ClusterEvent::normal(found.unwrap_or_else(unseen), note.reason, note.message.clone());
    ClusterEvent { warning: note.warning, ..event }
}

/// A command was found; it rests, or in shadow mode stays a thought.
pub(crate) fn found(report: &mut Report, command: &Command, shadow: bool, now: Timestamp) {
    let prefix = if shadow { "would (shadow mode) " } else { "" };
    let nodes: Vec<&str> = command.removals.iter().map(|removal| removal.node.as_str()).collect();
    let machines: Vec<String> =
        command.removals.iter().map(|removal| format!("{}/{}/{}", removal.node, removal.instance_type, removal.capacity_type)).collect();
    let message = format!(
        "{prefix}{} via {}, {} machines: {} (savings: {} an hour)",
        command.action().as_str(),
        command.method.reason(),
        nodes.len(),
        machines.join(", "),
        command.savings
    );
    let detail = serde_json::json!({"reason": command.method.reason().as_str(), "nodes": nodes, "machines": machines, "resting": true});
    report.explain(now, DecisionKind::Disrupted, format!("command/{}", nodes.join(",")), message, detail);
    report.count(if shadow { "would_disrupt" } else { "found" });
}

/// A command no longer holds.
pub(crate) fn rejected(report: &mut Report, proposal: &Proposal, rejection: &Rejection, now: Timestamp) {
    let subject = format!("command/{}", proposal.nodes.join(","));
    report.decide(now, DecisionKind::Kept, subject, format!("{} no longer holds: {}", proposal.method.reason(), rejection.cause));
    report.count("rejected");
}

/// A command that a second opinion forbids: a fault of ours, or of what was read.
pub(crate) fn refused(report: &mut Report, command: &Command, wrong: &[Violation], now: Timestamp) {
    let Some(first) = wrong.first() else { return };
    let nodes: Vec<&str> = command.removals.iter().map(|removal| removal.node.as_str()).collect();
    let more = if wrong.len() > 1 { format!(" (and {} more)", wrong.len() - 1) } else { String::new() };
    let message = format!("{} is not carried out, a check forbids it: {first}{more}", command.method.reason());
    report.decide(now, DecisionKind::Kept, format!("command/{}", nodes.join(",")), message);
    report.count("refused");
}
