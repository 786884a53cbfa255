//! Verdicts for people who ask why a node is still there: short, and naming what would have to change.

use super::pdb::PdbBlock;
use super::verdict::{Blocker, KeepReason, SPOT_TYPES_MIN, VerdictReason};
use std::fmt;
use whittle_api::labels;

impl fmt::Display for VerdictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { reason, action, savings } => write!(f, "{}: {reason} (savings: {savings} an hour)", action.as_str()),
            Self::Blocked(blocker) => {
                f.write_str("kept: ")?;
                blocked(blocker, f)
            }
            Self::Kept(reason) => {
                f.write_str("kept: ")?;
                kept(reason, f)
            }
        }
    }
}

fn blocked(blocker: &Blocker, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match blocker {
        Blocker::InCommand => f.write_str("being disrupted already"),
        Blocker::NotManaged => f.write_str("no NodeClaim of ours stands behind it"),
        Blocker::NoNode => f.write_str("its machine has not joined the cluster"),
        Blocker::NotInitialized => f.write_str("not initialized yet"),
        Blocker::Deleting => f.write_str("being deleted already"),
        Blocker::Nominated { until } => write!(f, "pending pods are expected on it until {until}"),
        Blocker::NodeAnnotation(key) => write!(f, "its annotation {key} is \"true\""),
        Blocker::NoNodePoolLabel => write!(f, "it has no label {}", labels::NODE_POOL),
        Blocker::Unreadable(object) => write!(f, "{object} cannot be read: its events say which field, and what to do"),
        Blocker::NodePoolUnknown(pool) => write!(f, "NodePool {pool} is not there, or has no instance types"),
        Blocker::PodAnnotation { pod, key, until: Some(until) } => write!(f, "annotation {key} of pod {pod} protects it until {until}"),
        Blocker::PodAnnotation { pod, key, until: None } => write!(f, "annotation {key} of pod {pod} protects it"),
        Blocker::Pdb(PdbBlock::Exhausted(budget)) => write!(f, "PDB {budget} allows 0 disruptions"),
        Blocker::Pdb(PdbBlock::Several(budgets)) => {
            write!(f, "PDBs {} select the same pod, and Kubernetes evicts no pod of several", budgets.join(" and "))
        }
        Blocker::NoProviderId => f.write_str("it has no provider ID yet"),
        Blocker::DuplicateProviderId(id) => write!(f, "more than one Node or NodeClaim has its provider ID {id}"),
    }
}

fn kept(reason: &KeepReason, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match reason {
        KeepReason::NothingCheaper => f.write_str("cheapest already"),
        KeepReason::PriceUnknown => f.write_str("its price is not known, so nothing is known to be cheaper"),
        KeepReason::SavesTooLittle { savings, minimum } => {
            write!(f, "saves {} a day, under the minimum of {}", dollars_per_day(savings.dollars()), dollars_per_day(minimum.dollars()))
        }
        KeepReason::WaitsTurn { savings } => write!(f, "could go (saves {savings} an hour), after the move that is under way"),
        KeepReason::PendingPods { pods } => write!(f, "empty, but pending pods fit on it: {}", pods.join(", ")),
        KeepReason::BudgetExhausted { pool, reason } => {
            write!(f, "the budgets of NodePool {pool} allow no more disruptions for {reason} now")
        }
        KeepReason::BudgetInvalid { pool, why } => write!(f, "NodePool {pool} allows no disruptions: {why}"),
        KeepReason::ConsolidateAfter { until: Some(until) } => write!(f, "pods came or went lately, not before {until} (consolidateAfter)"),
        KeepReason::ConsolidateAfter { until: None } => f.write_str("it is not known since when it has been quiet (consolidateAfter)"),
        KeepReason::ConsolidationDisabled { pool } => write!(f, "consolidateAfter of NodePool {pool} is Never"),
        KeepReason::NotEmpty { pool } => write!(f, "not empty, and consolidationPolicy of NodePool {pool} is WhenEmpty"),
        KeepReason::SpotToSpotDisabled => f.write_str("a spot node is not replaced by spot while SpotToSpotConsolidation is off"),
        KeepReason::SpotToSpotTooFewTypes { found } => {
            write!(f, "{found} cheaper spot types fit, and replacing spot by spot takes {}", SPOT_TYPES_MIN)
        }
        KeepReason::NeedsSeveralNodes(count) => write!(f, "its pods would need {count} new nodes"),
        // People and events read the same text, except for the first letter.
        KeepReason::StaticPool
        | KeepReason::InstanceTypeUnknown(_)
        | KeepReason::LabelMissing(_)
        | KeepReason::BufferPods { .. }
        | KeepReason::PodsWouldNotSchedule { .. }
        | KeepReason::MinValues(_)
        | KeepReason::PoorScore { .. }
        | KeepReason::UndoesRecentMove { .. }
        | KeepReason::MovedTooOften { .. }
        | KeepReason::DriftWaits
        | KeepReason::NoRoomToReplace { .. }
        | KeepReason::NotReached
        | KeepReason::Unchanged => {
            let text = reason.to_string();
            let mut letters = text.chars();
            let first = letters.next().map(|letter| if text.starts_with("NodePool") { letter } else { letter.to_ascii_lowercase() });
            write!(f, "{}{}", first.map(String::from).unwrap_or_default(), letters.as_str())
        }
    }
}

/// Dollars per day from dollars per hour: cents, or four digits below one cent.
fn dollars_per_day(per_hour: f64) -> String {
    let day = per_hour * 24.0;
    if day.abs() < 0.01 { format!("${day:.4}") } else { format!("${day:.2}") }
}

#[cfg(test)]
mod tests {
    use super::super::command::{Action, Reason, Savings};
    use super::*;
    use whittle_units::Price;

    #[track_caller]
    fn check(reason: VerdictReason, want: &str) {
        assert_eq!(reason.to_string(), want);
    }

    #[test]
    fn verdicts_say_what_blocks_a_node() {
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
    fn verdicts_say_what_would_not_be_gained() {
        check(VerdictReason::Kept(KeepReason::NothingCheaper), "kept: cheapest already");
        let savings = Savings::between(Price::from_dollars(0.0167), Price::ZERO);
        let small = KeepReason::SavesTooLittle { savings, minimum: Price::from_dollars(0.05) };
        check(VerdictReason::Kept(small), "kept: saves $0.40 a day, under the minimum of $1.20");
        check(VerdictReason::Kept(KeepReason::InstanceTypeUnknown("zz".to_owned())), "kept: instance Type \"zz\" not found");
        check(
            VerdictReason::Kept(KeepReason::NoRoomToReplace { pool: "s".to_owned() }),
            "kept: drifted; NodePool \"s\" has no room for a replacement",
        );
        check(VerdictReason::Kept(KeepReason::StaticPool), "kept: NodePool is static");
        let savings = Savings::between(Price::from_dollars(0.5), Price::from_dollars(0.25));
        let chosen = VerdictReason::Chosen { reason: Reason::Underutilized, action: Action::Replace, savings };
        check(chosen, "replace: Underutilized (savings: $0.25 an hour)");
    }
}
