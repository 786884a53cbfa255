//! Kubernetes events that a decision wants published.

use super::candidates::Candidate;
use super::cluster_view::Machine;
use super::verdict::{Blocker, KeepReason};
use whittle_api::k8s::Pod;
use whittle_model::disruption::{Command, Reason};

/// An event about an object. The publisher drops an event that equals one of the last two minutes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DisruptionEvent {
    /// `node/<name>`, `nodeclaim/<name>`, `nodepool/<name>` or `pod/<namespace>/<name>`.
    pub object: String,
    pub reason: &'static str,
    pub message: String,
    pub warning: bool,
}

/// A node, or every node of a NodePool, is kept.
pub const DISRUPTION_BLOCKED: &str = "DisruptionBlocked";
pub(super) const UNCONSOLIDATABLE: &str = "Unconsolidatable";
pub(super) const CONSOLIDATION_CANDIDATE: &str = "ConsolidationCandidate";
pub(super) const CONSOLIDATION_REJECTED: &str = "ConsolidationRejected";
pub(super) const CONSOLIDATION_APPROVED: &str = "ConsolidationApproved";
const DO_NOT_DISRUPT_UNTIL: &str = "DoNotDisruptUntil";
const GRACE_ELAPSED: &str = "DoNotDisruptGracePeriodElapsed";
pub(super) const BUDGET_INVALID: &str = "BudgetInvalid";
const INVALID_ANNOTATION: &str = "InvalidDoNotDisruptAnnotation";
const DEPRECATED_ANNOTATION: &str = "DeprecatedAnnotation";

/// A NodeClaim is launched by a command.
pub const DISRUPTION_LAUNCHING: &str = "DisruptionLaunching";
/// A command waits for the node of a NodeClaim that it launched.
pub const DISRUPTION_WAITING_READINESS: &str = "DisruptionWaitingReadiness";
/// A command ends a machine.
pub const DISRUPTION_TERMINATING: &str = "DisruptionTerminating";

/// Reasons of the Events that tell what commands do; their decisions say more.
pub const COMMAND_EVENTS: [&str; 3] = [DISRUPTION_LAUNCHING, DISRUPTION_WAITING_READINESS, DISRUPTION_TERMINATING];
/// Reasons of the Events that tell why a node is kept; so does its verdict.
pub const VERDICT_EVENTS: [&str; 2] = [DISRUPTION_BLOCKED, UNCONSOLIDATABLE];

/// Collects events without duplicates.
#[derive(Debug, Default)]
pub(super) struct EventCollector(std::collections::BTreeSet<DisruptionEvent>);

impl EventCollector {
    pub(super) fn about(&mut self, object: String, reason: &'static str, message: String) {
        self.0.insert(DisruptionEvent { object, reason, message, warning: false });
    }
    pub(super) fn warn(&mut self, object: String, reason: &'static str, message: String) {
        self.0.insert(DisruptionEvent { object, reason, message, warning: true });
    }
    /// About the Node and its NodeClaim, whichever exist.
    pub(super) fn on_machine(&mut self, machine: &Machine<'_>, reason: &'static str, message: &str) {
        if !machine.node_name().is_empty() {
            self.about(format!("node/{}", machine.node_name()), reason, message.to_owned());
        }
        if !machine.claim_name().is_empty() {
            self.about(format!("nodeclaim/{}", machine.claim_name()), reason, message.to_owned());
        }
    }
    pub(super) fn blocked(&mut self, machine: &Machine<'_>, blocker: &Blocker) {
        let description = blocker.describe();
        if description.has_event {
            self.on_machine(machine, DISRUPTION_BLOCKED, &description.event);
        }
    }
    pub(super) fn kept(&mut self, candidate: &Candidate<'_>, keep: &KeepReason) {
        let description = keep.describe();
        if description.has_event {
            self.on_machine(candidate.machine, UNCONSOLIDATABLE, &description.event);
        }
    }
    pub(super) fn chosen(&mut self, command: &Command) {
        for removal in &command.removals {
            let message = format!("Consolidation candidate: {}", command.text_for(&removal.node));
            self.about(format!("node/{}", removal.node), CONSOLIDATION_CANDIDATE, message.clone());
            self.about(format!("nodeclaim/{}", removal.node_claim), CONSOLIDATION_CANDIDATE, message);
        }
    }
    pub(super) fn budget_blocks(&mut self, pool: &str, reason: Reason) {
        let message = format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
        self.about(format!("nodepool/{pool}"), DISRUPTION_BLOCKED, message);
    }
    /// Reports on the disruption annotations of a pod on a managed node.
    pub(super) fn protection(&mut self, pod: &Pod, now: whittle_units::Timestamp) {
        use super::protection::{Protection, protection};
        use whittle_api::labels;
        let object = || format!("pod/{}", pod.metadata.key());
        let key = labels::DO_NOT_DISRUPT;
        match protection(pod, now) {
            Protection::None | Protection::Until(None) => {}
            Protection::Always(annotation) if annotation != key => {
                self.warn(object(), DEPRECATED_ANNOTATION, format!("Annotation {annotation} is honoured but old, use {key}"));
            }
            Protection::Always(_) => {}
            Protection::Until(Some(until)) => {
                self.about(object(), DO_NOT_DISRUPT_UNTIL, format!("The {key} annotation protects the pod until {until}"));
            }
            Protection::Elapsed => {
                self.about(object(), GRACE_ELAPSED, format!("The {key} grace period has elapsed, pod is now disruptable"));
            }
            Protection::Invalid(value) => {
                let message =
                    format!("Annotation {key} has value {value:?}: write \"true\" or a positive duration such as 4h; it is ignored");
                self.warn(object(), INVALID_ANNOTATION, message);
            }
        }
    }
    pub(super) fn into_sorted(self) -> Vec<DisruptionEvent> {
        self.0.into_iter().collect()
    }
}
