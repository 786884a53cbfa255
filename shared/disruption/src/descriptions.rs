//! Everything that is reported about a reason, in one place: its code, its event, its explanation for people and its values.

use super::pdb::PdbBlock;
use super::verdict::{Blocker, KeepReason, SPOT_TYPES_MIN, VerdictReason};
use serde_json::{Value, json};
use std::fmt;
use whittle_api::labels;
use whittle_model::disruption::{NOT_INITIALIZED, Reason, Savings, TAKES_NO_PODS};
use whittle_units::{Price, SignedDuration, Timestamp};

/// How a reason is reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    /// One word for records and metrics.
    pub(crate) code: &'static str,
    /// Whether the machine gets an event.
    pub(crate) has_event: bool,
    /// The text of the event, Karpenter's where Karpenter has the reason.
    pub(crate) event: String,
    /// The explanation for people who ask why a node is still there, if it differs from the event's: short, and naming what
    /// would have to change.
    explanation: Option<String>,
    /// The values in it, as an object.
    pub(crate) values: Value,
}

impl Description {
    fn new(code: &'static str, event: impl Into<String>) -> Self {
        Self { code, has_event: true, event: event.into(), explanation: None, values: json!({}) }
    }
    fn without_event(self) -> Self {
        Self { has_event: false, ..self }
    }
    fn with_explanation(self, text: impl Into<String>) -> Self {
        Self { explanation: Some(text.into()), ..self }
    }
    fn values(self, values: Value) -> Self {
        Self { values, ..self }
    }

    pub(crate) fn explanation(self) -> String {
        self.explanation.unwrap_or_else(|| {
            let mut letters = self.event.chars();
            let first = letters.next().map(|letter| if self.event.starts_with("NodePool") { letter } else { letter.to_ascii_lowercase() });
            format!("{}{}", first.map(String::from).unwrap_or_default(), letters.as_str())
        })
    }
}

impl Blocker {
    pub(crate) fn describe(&self) -> Description {
        match self {
            // No event without a NodeClaim to report it on, or while a command is being executed.
            Self::InCommand => {
                Description::new("InCommand", "Node is being disrupted already").without_event().with_explanation("being disrupted already")
            }
            Self::NotManaged => Description::new("NotManaged", "Node has no NodeClaim of ours")
                .without_event()
                .with_explanation("it has no NodeClaim of ours"),
            Self::NoNode => Description::new("NoNode", "NodeClaim does not have an associated node")
                .with_explanation("its machine has not joined the cluster"),
            Self::NotInitialized => Description::new("NotInitialized", "Node isn't initialized").with_explanation("not initialized yet"),
            Self::Deleting => {
                Description::new("Deleting", "Node is deleting or marked for deletion").with_explanation("being deleted already")
            }
            Self::Nominated { until } => Description::new("Nominated", "Node is nominated for a pending pod")
                .with_explanation(format!("pending pods are expected on it until {until}"))
                .values(json!({ "until": until })),
            Self::NodeAnnotation(key) => {
                Description::new("NodeAnnotation", format!("Disruption is blocked through the \"{key}\" annotation"))
                    .with_explanation(format!("its annotation {key} is \"true\""))
                    .values(json!({ "annotation": key }))
            }
            Self::NoNodePoolLabel => {
                Description::new("NoNodePoolLabel", format!("Node doesn't have required label (label={})", labels::NODE_POOL))
                    .with_explanation(format!("it has no label {}", labels::NODE_POOL))
            }
            Self::NodePoolUnknown(pool) => Description::new("NodePoolUnknown", format!("NodePool not found (NodePool={pool})"))
                .with_explanation(format!("NodePool {pool} does not exist, or cannot be read"))
                .values(json!({ "nodePool": pool })),
            // Karpenter's Event is the same for both.
            Self::NodePoolEmpty { pool, why } => {
                let why = why.as_deref().unwrap_or("its node class may not be ready, see its conditions");
                Description::new("NodePoolUnknown", format!("NodePool not found (NodePool={pool})"))
                    .with_explanation(format!("NodePool {pool} has no instance types: {why}"))
                    .values(json!({ "nodePool": pool }))
            }
            Self::Unreadable(object) => Description::new("Unreadable", format!("{object} cannot be read"))
                .with_explanation(format!("{object} cannot be read: its events say which field, and what to do"))
                .values(json!({ "object": object })),
            Self::PodAnnotation { pod, key, until } => {
                let until_text = until.map(|until| format!(" until {until}")).unwrap_or_default();
                Description::new("PodAnnotation", format!("Pod has \"{key}\" annotation (Pod={pod}){until_text}"))
                    .with_explanation(format!("annotation {key} of pod {pod} protects it{until_text}"))
                    .values(json!({ "pod": pod, "annotation": key, "until": until }))
            }
            Self::Pdb(block) => block.describe(),
            Self::NoProviderId => {
                Description::new("NoProviderId", "Node has no provider ID yet").with_explanation("it has no provider ID yet")
            }
            Self::TaintRefused(why) => Description::new("TaintRefused", format!("The API server refuses its disruption taint: {why}"))
                .with_explanation(format!("the API server refuses its taint {}: {why}", labels::DISRUPTED_TAINT))
                .values(json!({ "message": why })),
            Self::ZoneShifted(zone) => Description::new("ZonalShift", format!("A zonal shift moves traffic away from zone \"{zone}\""))
                .with_explanation(format!("zone {zone} is under a zonal shift, and its machines are kept until that ends"))
                .values(json!({ "zone": zone })),
            Self::DuplicateProviderId(id) => {
                Description::new("ProviderIdTwice", format!("More than one Node or NodeClaim has this provider ID (ID={id})"))
                    .with_explanation(format!("more than one Node or NodeClaim has its provider ID {id}"))
                    .values(json!({ "providerID": id }))
            }
        }
    }
}

impl PdbBlock {
    fn describe(&self) -> Description {
        let code = "PodDisruptionBudget";
        match self {
            Self::Exhausted(budget) | Self::ExhaustedForUnready(budget) => {
                Description::new(code, format!("Pdb prevents pod evictions (PodDisruptionBudget=[{budget}])"))
                    .with_explanation(format!("PDB {budget} allows 0 disruptions"))
                    .values(json!({ "podDisruptionBudgets": [budget] }))
            }
            Self::Several(budgets) => {
                Description::new(code, format!("Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])", budgets.join(" ")))
                    .with_explanation(format!(
                        "PDBs {} select the same pod, and Kubernetes evicts no pod of several",
                        budgets.join(" and ")
                    ))
                    .values(json!({ "podDisruptionBudgets": budgets }))
            }
        }
    }
}

impl KeepReason {
    pub(crate) fn describe(&self) -> Description {
        match self {
            Self::StaticPool => Description::new("StaticNodePool", "NodePool is static").without_event(),
            Self::InstanceTypeUnknown(name) => Description::new("InstanceTypeUnknown", format!("Instance Type \"{name}\" not found"))
                .values(json!({ "instanceType": name })),
            Self::LabelMissing(key) => {
                Description::new("LabelMissing", format!("Node does not have label \"{key}\"")).values(json!({ "label": key }))
            }
            Self::ConsolidationDisabled { pool } => {
                Description::new("ConsolidationDisabled", format!("NodePool \"{pool}\" has consolidation disabled"))
                    .with_explanation(format!("consolidateAfter of NodePool {pool} is Never"))
            }
            Self::NotEmpty { pool } => not_empty(pool),
            Self::ConsolidateAfter { until, empty_for } => consolidate_after(*until, *empty_for),
            Self::BufferPods { node } => Description::new("BufferPods", format!("Node \"{node}\" has buffer pods")),
            Self::BudgetExhausted { pool, reason } => budget_exhausted(pool, *reason),
            Self::PodsWouldNotSchedule { listed, others } => pods_would_not_schedule(listed, *others),
            Self::NeedsSeveralNodes(count) => {
                Description::new("NeedsSeveralNodes", format!("Can't remove without creating {count} candidates"))
                    .with_explanation(format!("its pods would need {count} new nodes"))
                    .values(json!({ "nodes": count }))
            }
            Self::NothingCheaper => {
                Description::new("NothingCheaper", "Can't replace with a cheaper node").with_explanation("cheapest already")
            }
            Self::PriceUnknown => price_unknown(),
            Self::PendingPods { pods } => Description::new("PendingPods", format!("Pending pods fit on it: {}", pods.join(", ")))
                .with_explanation(format!("empty, but pending pods fit on it: {}", pods.join(", ")))
                .values(json!({ "pods": pods })),
            Self::BudgetInvalid { pool, why } => budget_invalid(pool, why),
            Self::MinValues(keys) => min_values(keys),
            Self::SpotToSpotDisabled => spot_to_spot_disabled(),
            Self::SpotToSpotTooFewTypes { found } => spot_to_spot_too_few_types(*found),
            Self::PoorScore { thousandths } => poor_score(*thousandths),
            Self::SavesTooLittle { savings, minimum } => saves_too_little(*savings, *minimum),
            Self::UndoesRecentMove { at } => {
                Description::new("UndoesRecentMove", format!("Would undo the consolidation of {at}")).values(json!({ "at": at }))
            }
            Self::MovedTooOften { workload } => {
                Description::new("MovedTooOften", format!("Pods of {workload} were moved twice within the hour already"))
                    .values(json!({ "workload": workload }))
            }
            Self::ReplacementRefused { until, message } => replacement_refused(*until, message.as_deref()),
            Self::WaitsTurn { savings } => waits_turn(*savings),
            Self::DriftWaits => Description::new("DriftWaits", "Drifted; other nodes are replaced first").without_event(),
            Self::DriftAwaitsJoin { pool } => {
                let why = "did not join, and its nodes are replaced one at a time until some do (NodeRegistrationHealthy)";
                Description::new("DriftAwaitsJoin", format!("Drifted; the latest machines of NodePool \"{pool}\" {why}"))
                    .without_event()
                    .values(json!({ "nodePool": pool }))
            }
            Self::NoRoomToReplace { pool } => {
                Description::new("NoRoomToReplace", format!("Drifted; NodePool \"{pool}\" has no room for a replacement")).without_event()
            }
            Self::SoldOut { pool } => {
                let text = format!("Drifted; no instance type that NodePool \"{pool}\" allows can be launched now");
                Description::new("SoldOut", text).without_event().values(json!({ "nodePool": pool }))
            }
            Self::NotReached => Description::new("NotReached", "Not evaluated in this pass; it comes first in the next").without_event(),
            Self::Unchanged => Description::new("Unchanged", "Nothing has changed since it was last evaluated").without_event(),
        }
    }
}

fn replacement_refused(until: Timestamp, message: Option<&str>) -> Description {
    let (text, values) = match message {
        None => {
            let text = format!("EC2 refused its replacement for a quota of vCPUs of the account; no other is tried before {until}");
            (text, json!({ "until": until }))
        }
        Some(why @ (TAKES_NO_PODS | NOT_INITIALIZED)) => {
            let text = format!("EC2 launched what replaces it in vain, and launches no other before {until}: {why}");
            (text, json!({ "until": until, "message": why }))
        }
        Some(message) => {
            let text = format!("EC2 refuses what would replace it; nothing is launched for that before {until}: {message}");
            (text, json!({ "until": until, "message": message }))
        }
    };
    // It begins with a name, whose letters stay as they are.
    Description::new("ReplacementRefused", text.clone()).with_explanation(text).values(values)
}

fn not_empty(pool: &str) -> Description {
    Description::new("NotEmpty", format!("NodePool \"{pool}\" has consolidation policy WhenEmpty, but node is not empty"))
        .with_explanation(format!("not empty, and consolidationPolicy of NodePool {pool} is WhenEmpty"))
}

fn consolidate_after(until: Option<Timestamp>, empty_for: Option<SignedDuration>) -> Description {
    let (event, explanation) = match (until, empty_for) {
        (Some(until), Some(span)) => (
            format!("Empty: removed after {span:#} (consolidateAfter), not before {until}"),
            format!("empty, and removed once it has been for {span:#} (consolidateAfter), not before {until}"),
        ),
        (Some(until), None) => (
            format!("Its pods changed recently: not before {until} (consolidateAfter)"),
            format!("its pods changed recently, not before {until} (consolidateAfter)"),
        ),
        (None, _) => (
            "The time of the node's last pod event is not known (consolidateAfter)".to_owned(),
            "the time of its last pod event is not known (consolidateAfter)".to_owned(),
        ),
    };
    Description::new("ConsolidateAfter", event).without_event().with_explanation(explanation).values(json!({ "until": until }))
}

fn budget_exhausted(pool: &str, reason: Reason) -> Description {
    Description::new("Budget", format!("NodePool \"{pool}\" allows no more disruptions for reason {reason} now"))
        .without_event()
        .with_explanation(format!("the budgets of NodePool {pool} allow no more disruptions for {reason} now"))
        .values(json!({ "nodePool": pool, "reason": reason.as_str() }))
}

fn budget_invalid(pool: &str, why: &str) -> Description {
    Description::new("BudgetInvalid", format!("NodePool \"{pool}\" allows no disruptions: {why}"))
        .without_event()
        .with_explanation(format!("NodePool {pool} allows no disruptions: {why}"))
        .values(json!({ "nodePool": pool, "fault": why }))
}

fn pods_would_not_schedule(listed: &[(String, String)], others: usize) -> Description {
    let pods: Vec<String> = listed.iter().map(|(pod, reason)| format!("{pod} => {reason}")).collect();
    let more = if others > 0 { format!(" and {others} other(s)") } else { String::new() };
    let values: Vec<Value> = listed.iter().map(|(pod, reason)| json!({ "pod": pod, "message": reason })).collect();
    Description::new("PodsWouldNotSchedule", format!("Not all pods would schedule, {}{more}", pods.join("; ")))
        .values(json!({ "pods": values, "others": others }))
}

fn price_unknown() -> Description {
    Description::new("PriceUnknown", "Can't replace with a cheaper node, as the price of this one is not known")
        .with_explanation("its price is not known, so nothing is known to be cheaper")
}

fn min_values(keys: &[String]) -> Description {
    let event = format!("Filtering by price: minValues requirement is not met for label(s) (label(s)=[{}])", keys.join(" "));
    Description::new("MinValues", event).values(json!({ "labels": keys }))
}

fn spot_to_spot_disabled() -> Description {
    Description::new("SpotToSpotDisabled", "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
        .with_explanation("a spot node is not replaced by spot while SpotToSpotConsolidation is off")
}

fn spot_to_spot_too_few_types(found: usize) -> Description {
    let required = format!("SpotToSpotConsolidation requires {SPOT_TYPES_MIN} cheaper instance type options");
    Description::new("SpotToSpotTooFewTypes", format!("{required} than the current candidate to consolidate, got {found}"))
        .with_explanation(format!("{found} cheaper spot types fit, and replacing spot by spot takes {SPOT_TYPES_MIN}"))
        .values(json!({ "found": found }))
}

fn poor_score(thousandths: u64) -> Description {
    let score = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    Description::new("PoorScore", format!("Saves too little for the pods it moves: score {score} is below 0.5"))
        .without_event()
        .values(json!({ "scoreThousandths": thousandths }))
}

fn saves_too_little(savings: Savings, minimum: Price) -> Description {
    let event = format!("Saves ${:.4} an hour, under the minimum of ${:.4}", savings.dollars(), minimum.dollars());
    let per_day = (dollars(savings.dollars() * 24.0), dollars(minimum.dollars() * 24.0));
    Description::new("SavesTooLittle", event)
        .with_explanation(format!("saves {} a day, under the minimum of {}", per_day.0, per_day.1))
        .values(json!({ "savings": rounded(savings), "minimum": minimum.dollars() }))
}

fn waits_turn(savings: Savings) -> Description {
    Description::new(
        "WaitsTurn",
        format!(
            "Could be removed or replaced (saves up to {savings} an hour), looked at again once the command of this pass is done",
            savings = dollars(savings.dollars())
        ),
    )
    .without_event()
    .values(json!({ "savings": rounded(savings) }))
}

impl VerdictReason {
    /// One word for records and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Chosen { reason, .. } => reason.as_str(),
            Self::Blocked(blocker) => blocker.describe().code,
            Self::Kept(reason) => reason.describe().code,
        }
    }

    /// The values behind the text, as a JSON object.
    #[must_use]
    pub fn values(&self) -> Value {
        match self {
            Self::Chosen { savings, nodes, .. } => json!({ "savings": savings.map(rounded), "nodes": nodes }),
            Self::Blocked(blocker) => blocker.describe().values,
            Self::Kept(reason) => reason.describe().values,
        }
    }
}

/// The text of its event.
impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe().event)
    }
}

/// The text for people who ask why a node is still there.
impl fmt::Display for VerdictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { reason, action, savings, nodes } => {
                let together = if *nodes > 1 { format!(", of {nodes} nodes together") } else { String::new() };
                let savings = match savings {
                    Some(savings) if savings.nanos() < 0 => format!("costs {} an hour more", dollars(-savings.dollars())),
                    Some(savings) => format!("savings: {} an hour", dollars(savings.dollars())),
                    None => "what it saves is not known: a price is not".to_owned(),
                };
                write!(f, "{}: {reason} ({savings}{together})", action.as_str())
            }
            Self::Blocked(blocker) => write!(f, "kept: {}", blocker.describe().explanation()),
            Self::Kept(reason) => write!(f, "kept: {}", reason.describe().explanation()),
        }
    }
}

/// Dollars per hour, to a millionth.
fn rounded(savings: Savings) -> f64 {
    (savings.dollars() * 1e6).round() / 1e6
}

/// Dollars with cents, or with four digits below one cent.
fn dollars(amount: f64) -> String {
    if amount != 0.0 && amount.abs() < 0.01 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_model::disruption::Action;

    #[track_caller]
    fn check(reason: VerdictReason, want: &str) {
        assert_eq!(reason.to_string(), want);
    }

    #[test]
    fn verdicts_name_what_blocks_a_node() {
        let at = whittle_units::Timestamp::UNIX_EPOCH;
        let blocked = |blocker| VerdictReason::Blocked(blocker);
        check(blocked(Blocker::Pdb(PdbBlock::Exhausted("web/api".to_owned()))), "kept: PDB web/api allows 0 disruptions");
        let both = PdbBlock::Several(vec!["web/a".to_owned(), "web/b".to_owned()]);
        check(blocked(Blocker::Pdb(both)), "kept: PDBs web/a and web/b select the same pod, and Kubernetes evicts no pod of several");
        check(blocked(Blocker::NodeAnnotation(labels::DO_NOT_DISRUPT)), "kept: its annotation karpenter.sh/do-not-disrupt is \"true\"");
        let pod = Blocker::PodAnnotation { pod: "web/p".to_owned(), key: labels::DO_NOT_DISRUPT, until: Some(at) };
        check(blocked(pod), "kept: annotation karpenter.sh/do-not-disrupt of pod web/p protects it until 1970-01-01T00:00:00Z");
    }

    #[test]
    fn the_wait_of_an_empty_node_says_that_it_is_empty_and_for_how_long() {
        let at = whittle_units::Timestamp::UNIX_EPOCH;
        let waits = |until, empty_for| VerdictReason::Kept(KeepReason::ConsolidateAfter { until, empty_for });
        let half_a_minute = Some(SignedDuration::from_secs(30));
        let empty = "kept: empty, and removed once it has been for 30s (consolidateAfter), not before 1970-01-01T00:00:00Z";
        check(waits(Some(at), half_a_minute), empty);
        check(waits(Some(at), None), "kept: its pods changed recently, not before 1970-01-01T00:00:00Z (consolidateAfter)");
        check(waits(None, half_a_minute), "kept: the time of its last pod event is not known (consolidateAfter)");
    }

    #[test]
    fn verdicts_explain_why_a_move_is_not_worthwhile() {
        check(VerdictReason::Kept(KeepReason::NothingCheaper), "kept: cheapest already");
        let savings = Savings::between(Price::from_dollars(0.0167), Price::ZERO);
        let small = KeepReason::SavesTooLittle { savings, minimum: Price::from_dollars(0.05) };
        check(VerdictReason::Kept(small), "kept: saves $0.40 a day, under the minimum of $1.20");
        check(VerdictReason::Kept(KeepReason::InstanceTypeUnknown("zz".to_owned())), "kept: instance Type \"zz\" not found");
        check(
            VerdictReason::Kept(KeepReason::NoRoomToReplace { pool: "s".to_owned() }),
            "kept: drifted; NodePool \"s\" has no room for a replacement",
        );
        check(
            VerdictReason::Kept(KeepReason::SoldOut { pool: "s".to_owned() }),
            "kept: drifted; no instance type that NodePool \"s\" allows can be launched now",
        );
        check(VerdictReason::Kept(KeepReason::StaticPool), "kept: NodePool is static");
        let savings = Savings::between(Price::from_dollars(0.5), Price::from_dollars(0.25));
        let chosen =
            |nodes| VerdictReason::Chosen { reason: Reason::Underutilized, action: Action::Replace, savings: Some(savings), nodes };
        let of = |savings| VerdictReason::Chosen { reason: Reason::Drifted, action: Action::Replace, savings, nodes: 1 };
        check(of(None), "replace: Drifted (what it saves is not known: a price is not)");
        let dearer = Savings::between(Price::from_dollars(0.25), Price::from_dollars(0.5));
        check(of(Some(dearer)), "replace: Drifted (costs $0.25 an hour more)");
        check(chosen(1), "replace: Underutilized (savings: $0.25 an hour)");
        check(chosen(2), "replace: Underutilized (savings: $0.25 an hour, of 2 nodes together)");
    }
}
