//! What became of a node, NodeClaim or pod, as the decisions in the table of a deployment tell it.

use super::{ExplainArgs, ExplainError};
use crate::live::deployment::{Asked, Deployment, DeploymentError, shown};
use crate::printing::in_line;
use serde_json::{Value, json};
use std::fmt::Write as _;
use whittle_claims::{DecisionKind, DecisionRecord};

/// What was decided about one thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The oldest first.
    decisions: Vec<DecisionRecord>,
    /// Decisions that this version cannot read.
    unreadable: usize,
    /// The region of the deployment, which is that of its clusters.
    pub(super) region: String,
}

/// The history of what is called so, if a stack is named.
///
/// # Errors
/// The stack or its table cannot be read.
pub(super) fn of(args: &ExplainArgs, name: &str) -> Result<Option<History>, ExplainError> {
    let Some(deployment) = args.stack.deployment(args.source.offers.region.as_deref())? else { return Ok(None) };
    let clusters = deployment.clusters_of(args.source.cluster.live().and_then(|live| live.cluster_entry()).as_deref());
    Ok(Some(about(&deployment, &clusters, name)?))
}

/// What a deployment decided about something in some of its clusters.
///
/// # Errors
/// The table cannot be read.
pub(crate) fn about(deployment: &Deployment, clusters: &[String], name: &str) -> Result<History, DeploymentError> {
    let mut names = vec![bare(name).to_owned()];
    let mut found = deployment.decisions(clusters, Asked::About(&names))?;
    // A node and its NodeClaim are one machine, of which some decisions name only one.
    let other = other_name(&found.0, &names[0]);
    if let Some(other) = other {
        names.push(other);
        found = deployment.decisions(clusters, Asked::About(&names))?;
    }
    let (mut decisions, unreadable) = found;
    decisions.retain(|decision| names.iter().any(|name| is_about(decision, name)));
    Ok(History { decisions, unreadable, region: deployment.stack.region.clone() })
}

/// A name without its kind: `node/ip-10-0-1-7` and `pod/default/web` are written so.
fn bare(name: &str) -> &str {
    match name.split_once('/') {
        Some(("pod" | "node" | "nodeclaim" | "nodepool" | "deployment", rest)) => rest,
        _ => name,
    }
}

/// The other name of a machine: that of its Node, or of its NodeClaim.
pub(crate) fn other_name(decisions: &[DecisionRecord], name: &str) -> Option<String> {
    let joined = decisions.iter().filter(|decision| decision.kind == DecisionKind::Registered);
    joined.rev().find_map(|decision| {
        let claim = decision.subject.strip_prefix("nodeclaim/")?;
        let node = decision.message.strip_prefix("node ")?.strip_suffix(" joined")?;
        match name {
            _ if name == claim => Some(node.to_owned()),
            _ if name == node => Some(claim.to_owned()),
            _ => None,
        }
    })
}

/// Whether a decision names something, and not only something whose name begins so.
fn is_about(decision: &DecisionRecord, name: &str) -> bool {
    let inside = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let names = |text: &str| {
        text.match_indices(name).any(|(at, _)| {
            let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + name.len()..).unwrap_or_default());
            !inside(before.chars().next_back()) && !inside(after.chars().next())
        })
    };
    // A remedy names what would help, which the decision is not about.
    let facts = |(key, value): (&String, &Value)| key != "remedies" && names(&value.to_string());
    let detail = decision.detail.as_object().is_some_and(|detail| detail.iter().any(facts));
    names(&decision.subject) || names(&decision.message) || detail
}

/// How a decision is called.
fn kind(kind: DecisionKind) -> String {
    serde_json::to_value(kind).ok().and_then(|value| value.as_str().map(|text| text.replace('_', " "))).unwrap_or_default()
}

/// A decision, and how often it was repeated since, until when.
struct Repeated<'a> {
    decision: &'a DecisionRecord,
    last: &'a DecisionRecord,
    times: usize,
}

impl History {
    pub(super) fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// When a machine was given up, and why; `None` if it was not.
    fn end(&self) -> Option<(&DecisionRecord, Option<&DecisionRecord>)> {
        let ends = |kind| matches!(kind, DecisionKind::Drained | DecisionKind::Terminated | DecisionKind::Collected);
        let at = self.decisions.iter().rposition(|decision| ends(decision.kind))?;
        let is_cause = |decision: &&DecisionRecord| {
            matches!(decision.kind, DecisionKind::Disrupted | DecisionKind::Interrupted | DecisionKind::LaunchFailed)
                && decision.subject != "ledger"
        };
        let end = self.decisions.get(at)?;
        Some((end, self.decisions.iter().take(at).rev().find(is_cause)))
    }

    /// The decisions; one that is repeated counts once.
    fn without_repeats(&self) -> Vec<Repeated<'_>> {
        let mut out: Vec<Repeated<'_>> = Vec::new();
        for decision in &self.decisions {
            let key = |one: &DecisionRecord| (one.kind, one.subject.clone(), one.message.clone());
            match out.last_mut().filter(|former| key(former.last) == key(decision)) {
                Some(former) => (former.last, former.times) = (decision, former.times + 1),
                None => out.push(Repeated { decision, last: decision, times: 1 }),
            }
        }
        out
    }

    /// For people. `gone`: whether the thing is not there any more.
    pub(super) fn text(&self, name: &str, gone: bool) -> String {
        let mut out = String::new();
        if gone {
            let _ = match self.end() {
                Some((end, Some(cause))) => {
                    writeln!(
                        out,
                        "{name} went at {} UTC, because it was decided at {}: {}",
                        shown(end.at),
                        shown(cause.at),
                        in_line(&cause.message)
                    )
                }
                Some((end, None)) => writeln!(out, "{name} went at {} UTC: {}", shown(end.at), in_line(&end.message)),
                None => writeln!(out, "{name} is not there; what was decided about it:"),
            };
        } else {
            let _ = writeln!(out, "decided about it before (UTC):");
        }
        for Repeated { decision, last, times } in self.without_repeats() {
            let often = if times > 1 { format!(" ({times} times, the last at {})", shown(last.at)) } else { String::new() };
            let (kind, subject, message) = (kind(decision.kind), in_line(&decision.subject), in_line(&decision.message));
            let _ = writeln!(out, "  {}  {kind:<13}  {subject}: {message}{often}", shown(decision.at));
        }
        if self.unreadable > 0 {
            let _ = writeln!(out, "  and {} that another version wrote and this one cannot read", self.unreadable);
        }
        out
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        json!(self.decisions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Document;
    use crate::schema::tests::assert_valid;

    fn decision(at: &str, kind: DecisionKind, subject: &str, message: &str) -> DecisionRecord {
        let at = format!("2026-01-01T{at}Z").parse().unwrap();
        DecisionRecord { at, kind, subject: subject.to_owned(), message: message.to_owned(), detail: Value::Null }
    }

    fn history() -> History {
        let decisions = vec![
            decision("02:00:40", DecisionKind::Registered, "nodeclaim/default-1", "node ip-1.ec2.internal joined"),
            decision("03:00:00", DecisionKind::Kept, "node/ip-1.ec2.internal", "a budget\u{1b}[2J"),
            decision("03:01:00", DecisionKind::Kept, "node/ip-1.ec2.internal", "a budget\u{1b}[2J"),
            decision("03:12:03", DecisionKind::Disrupted, "node/ip-1.ec2.internal", "Underutilized: delete"),
            decision("03:12:03", DecisionKind::Disrupted, "ledger", "Underutilized: 1 node"),
            decision("03:13:10", DecisionKind::Terminated, "nodeclaim/default-1", "instance i-1 has terminated"),
        ];
        History { decisions, ..History::default() }
    }

    #[test]
    fn why_a_node_went_comes_first_and_what_repeats_once() {
        let text = history().text("ip-1.ec2.internal", true);
        let first =
            "ip-1.ec2.internal went at 2026-01-01 03:13:10 UTC, because it was decided at 2026-01-01 03:12:03: Underutilized: delete";
        assert_eq!(text.lines().next(), Some(first));
        assert!(text.contains("kept           node/ip-1.ec2.internal: a budget [2J (2 times, the last at 2026-01-01 03:01:00)"), "{text}");
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(history().text("ip-1.ec2.internal", false).starts_with("decided about it before"));
    }

    #[test]
    fn a_history_is_as_the_schema_says() {
        let value = json!({"name": "ip-1.ec2.internal", "history": history().json()});
        assert_valid(Document::Explain, &Document::Explain.versioned(value));
    }

    #[test]
    fn a_node_and_its_nodeclaim_are_one_machine() {
        let all = history().decisions;
        assert_eq!(other_name(&all, "default-1").as_deref(), Some("ip-1.ec2.internal"));
        assert_eq!(other_name(&all, "ip-1.ec2.internal").as_deref(), Some("default-1"));
        assert_eq!(other_name(&all, "default"), None);
    }

    #[test]
    fn names_that_only_begin_the_same_are_others() {
        let about = |subject: &str| is_about(&decision("00:00:00", DecisionKind::Planned, subject, ""), "default-1");
        assert!(about("nodeclaim/default-1") && about("command/default-1,default-2"));
        assert!(!about("nodeclaim/default-10") && !about("nodeclaim/my-default-1"));
        assert_eq!((bare("node/a"), bare("default/web"), bare("pod/default/web")), ("a", "default/web", "default/web"));
    }
}
