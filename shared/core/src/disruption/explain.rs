//! Verdicts for people who ask why a node is still there: short, and naming what would have to change.

use super::pdb::PdbBlock;
use super::verdict::{Blocker, Keep, SPOT_TYPES_MIN, Why};
use std::fmt;
use whittle_api::labels;

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { reason, action, savings } => write!(f, "{}: {reason} (savings: {savings} an hour)", action.as_str()),
            Self::Blocked(blocker) => {
                f.write_str("kept: ")?;
                blocked(blocker, f)
            }
            Self::Kept(keep) => {
                f.write_str("kept: ")?;
                kept(keep, f)
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
        Blocker::Going => f.write_str("being deleted already"),
        Blocker::Nominated { until } => write!(f, "pending pods are expected on it until {until}"),
        Blocker::NodeAnnotation(key) => write!(f, "its annotation {key} is \"true\""),
        Blocker::NoPoolLabel => write!(f, "it has no label {}", labels::NODE_POOL),
        Blocker::Unreadable(object) => write!(f, "{object} cannot be read: its events say which field, and what to do"),
        Blocker::PoolUnknown(pool) => write!(f, "NodePool {pool} is not there, or has no instance types"),
        Blocker::PodAnnotation { pod, key, until: Some(until) } => write!(f, "annotation {key} of pod {pod} protects it until {until}"),
        Blocker::PodAnnotation { pod, key, until: None } => write!(f, "annotation {key} of pod {pod} protects it"),
        Blocker::Pdb(PdbBlock::Spent(budget)) => write!(f, "PDB {budget} allows 0 disruptions"),
        Blocker::Pdb(PdbBlock::Several(budgets)) => {
            write!(f, "PDBs {} select the same pod, and Kubernetes evicts no pod of several", budgets.join(" and "))
        }
        Blocker::NoProviderId => f.write_str("it has no provider ID yet"),
        Blocker::ProviderIdTwice(id) => write!(f, "more than one Node or NodeClaim has its provider ID {id}"),
    }
}

fn kept(keep: &Keep, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match keep {
        Keep::NothingCheaper => f.write_str("cheapest already"),
        Keep::PriceUnknown => f.write_str("its price is not known, so nothing is known to be cheaper"),
        Keep::SavesTooLittle { savings, minimum } => {
            write!(f, "saves {} a day, under the minimum of {}", dollars_per_day(savings.dollars()), dollars_per_day(minimum.dollars()))
        }
        Keep::WaitsTurn { savings } => write!(f, "could go (saves {savings} an hour), after the move that is under way"),
        Keep::WantedByPods { pods } => write!(f, "empty, but pending pods fit on it: {}", pods.join(", ")),
        Keep::BudgetSpent { pool, reason } => write!(f, "the budgets of NodePool {pool} allow no more disruptions for {reason} now"),
        Keep::BudgetBroken { pool, why } => write!(f, "NodePool {pool} allows no disruptions: {why}"),
        Keep::NotQuiet { until: Some(until) } => write!(f, "pods came or went lately, not before {until} (consolidateAfter)"),
        Keep::NotQuiet { until: None } => f.write_str("it is not known since when it has been quiet (consolidateAfter)"),
        Keep::ConsolidationOff { pool } => write!(f, "consolidateAfter of NodePool {pool} is Never"),
        Keep::OnlyWhenEmpty { pool } => write!(f, "not empty, and consolidationPolicy of NodePool {pool} is WhenEmpty"),
        Keep::SpotToSpotOff => f.write_str("a spot node is not replaced by spot while SpotToSpotConsolidation is off"),
        Keep::SpotToSpotFew { found } => {
            write!(f, "{found} cheaper spot types fit, and replacing spot by spot takes {}", SPOT_TYPES_MIN)
        }
        Keep::NeedsSeveral(count) => write!(f, "its pods would need {count} new nodes"),
        // People and events read the same text, except for the first letter.
        Keep::StaticPool
        | Keep::TypeUnknown(_)
        | Keep::LabelMissing(_)
        | Keep::BufferPods { .. }
        | Keep::PodsStay { .. }
        | Keep::MinValues(_)
        | Keep::PoorScore { .. }
        | Keep::UndoesMove { .. }
        | Keep::MovedTooOften { .. }
        | Keep::DriftWaits
        | Keep::NoRoomToReplace { .. }
        | Keep::NotReached
        | Keep::Unchanged => {
            let text = keep.to_string();
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
    fn check(why: Why, want: &str) {
        assert_eq!(why.to_string(), want);
    }

    #[test]
    fn verdicts_say_what_holds_a_node() {
        let at = whittle_units::Timestamp::UNIX_EPOCH;
        let blocked = |blocker| Why::Blocked(blocker);
        check(blocked(Blocker::Pdb(PdbBlock::Spent("web/api".to_owned()))), "kept: PDB web/api allows 0 disruptions");
        let both = PdbBlock::Several(vec!["web/a".to_owned(), "web/b".to_owned()]);
        check(blocked(Blocker::Pdb(both)), "kept: PDBs web/a and web/b select the same pod, and Kubernetes evicts no pod of several");
        check(blocked(Blocker::NodeAnnotation(labels::DO_NOT_DISRUPT)), "kept: its annotation karpenter.sh/do-not-disrupt is \"true\"");
        let pod = Blocker::PodAnnotation { pod: "web/p".to_owned(), key: labels::DO_NOT_DISRUPT, until: Some(at) };
        check(blocked(pod), "kept: annotation karpenter.sh/do-not-disrupt of pod web/p protects it until 1970-01-01T00:00:00Z");
    }

    #[test]
    fn verdicts_say_what_would_not_be_gained() {
        check(Why::Kept(Keep::NothingCheaper), "kept: cheapest already");
        let savings = Savings::between(Price::from_dollars(0.0167), Price::ZERO);
        let small = Keep::SavesTooLittle { savings, minimum: Price::from_dollars(0.05) };
        check(Why::Kept(small), "kept: saves $0.40 a day, under the minimum of $1.20");
        check(Why::Kept(Keep::TypeUnknown("zz".to_owned())), "kept: instance Type \"zz\" not found");
        check(Why::Kept(Keep::NoRoomToReplace { pool: "s".to_owned() }), "kept: drifted; NodePool \"s\" has no room for a replacement");
        check(Why::Kept(Keep::StaticPool), "kept: NodePool is static");
        let savings = Savings::between(Price::from_dollars(0.5), Price::from_dollars(0.25));
        let chosen = Why::Chosen { reason: Reason::Underutilized, action: Action::Replace, savings };
        check(chosen, "replace: Underutilized (savings: $0.25 an hour)");
    }
}
