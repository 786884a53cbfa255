//! What it would take that a machine goes: for each reason why consolidation keeps it, what its reader can change so that it holds no
//! more. Nothing is said of what passes by itself, and of what nobody can change. Of pods: `remedy` of `whittle_model::scheduling`.

use super::pdb::PdbBlock;
use super::verdict::{Blocker, KeepReason, VerdictReason};
use whittle_api::labels;
use whittle_model::scheduling::Remedy;

impl VerdictReason {
    /// What would let consolidation remove or replace the machine.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        let text = match self {
            Self::Chosen { .. } => None,
            Self::Blocked(blocker) => of_blocker(blocker),
            Self::Kept(reason) => of_kept(reason),
        };
        text.map(|text| Remedy { node_pool: None, text })
    }
}

fn of_blocker(blocker: &Blocker) -> Option<String> {
    Some(match blocker {
        Blocker::NoNode => "that its machine joins: `kubectl describe nodeclaim` says how far it is".to_owned(),
        Blocker::NotInitialized => {
            "that the node is ready, without startup taints, and has all its resources: `kubectl describe nodeclaim` says which it lacks"
                .to_owned()
        }
        Blocker::NodeAnnotation(key) => format!("the node without the annotation {key}"),
        Blocker::NoNodePoolLabel => format!("the node's label {} as it was", labels::NODE_POOL),
        Blocker::NodePoolUnknown(pool) => format!("NodePool {pool} again, or the deletion of the NodeClaim"),
        Blocker::NodePoolEmpty(_) => "a node class that is ready".to_owned(),
        Blocker::PodAnnotation { pod, key, .. } => format!("pod {pod} without the annotation {key}"),
        Blocker::Pdb(PdbBlock::Exhausted(budget)) => {
            format!(
                "PodDisruptionBudget {budget} allowing a disruption (status.disruptionsAllowed): more ready pods, a higher maxUnavailable or a \
                 lower minAvailable"
            )
        }
        Blocker::Pdb(PdbBlock::Several(budgets)) => {
            format!("one PodDisruptionBudget of {} that selects the pod, not all", budgets.join(", "))
        }
        Blocker::DuplicateProviderId(_) => "the deletion of the Node or NodeClaim that is not the machine's".to_owned(),
        Blocker::ZoneShifted(zone) => format!("the end of the zonal shift of {zone}"),
        // What cannot be read says it itself; the others pass, or are nobody's to change.
        Blocker::Unreadable(_)
        | Blocker::InCommand
        | Blocker::NotManaged
        | Blocker::Deleting
        | Blocker::Nominated { .. }
        | Blocker::NoProviderId => return None,
    })
}

fn of_kept(reason: &KeepReason) -> Option<String> {
    Some(match reason {
        KeepReason::StaticPool => "fewer spec.replicas of its NodePool".to_owned(),
        KeepReason::InstanceTypeUnknown(name) => format!("a catalog that has {name}"),
        KeepReason::LabelMissing(key) => format!("the node's label {key} as it was"),
        KeepReason::ConsolidationDisabled { pool } => format!("a time such as 1m as spec.disruption.consolidateAfter of NodePool {pool}"),
        KeepReason::NotEmpty { pool } => {
            format!("WhenEmptyOrUnderutilized as spec.disruption.consolidationPolicy of NodePool {pool}")
        }
        KeepReason::ConsolidateAfter { .. } => "that time, or a shorter spec.disruption.consolidateAfter of its NodePool".to_owned(),
        KeepReason::BufferPods { .. } => "a smaller CapacityBuffer".to_owned(),
        KeepReason::BudgetExhausted { pool, reason } => {
            format!(
                "more nodes for {reason} in spec.disruption.budgets of NodePool {pool}, or the end of a budget's window or of disruptions under way"
            )
        }
        // It passes once the node is ready.
        KeepReason::PodsWouldNotSchedule { listed, .. } if listed.iter().all(|(_, why)| why.contains("uninitialized node/")) => {
            return None;
        }
        KeepReason::PodsWouldNotSchedule { .. } => "a place elsewhere for the pods that are named".to_owned(),
        KeepReason::NothingCheaper => "smaller requests of its pods, or requirements that cheaper types meet".to_owned(),
        KeepReason::PriceUnknown => "a catalog with its price".to_owned(),
        KeepReason::MinValues(keys) => format!("a lower minValues for {}", keys.join(", ")),
        KeepReason::SpotToSpotDisabled => "the stack's parameter SpotToSpot=true (Karpenter's gate SpotToSpotConsolidation)".to_owned(),
        KeepReason::SpotToSpotTooFewTypes { .. } => "requirements that more types meet".to_owned(),
        KeepReason::PoorScore { .. } => "WhenEmptyOrUnderutilized as spec.disruption.consolidationPolicy of its NodePool".to_owned(),
        KeepReason::SavesTooLittle { .. } => format!("a smaller annotation {} of its NodePool", labels::MINIMUM_SAVING),
        KeepReason::NoRoomToReplace { pool } => format!("a higher spec.limits.nodes of NodePool {pool}"),
        KeepReason::BudgetInvalid { .. }
        | KeepReason::NeedsSeveralNodes(_)
        | KeepReason::PendingPods { .. }
        | KeepReason::UndoesRecentMove { .. }
        | KeepReason::MovedTooOften { .. }
        | KeepReason::WaitsTurn { .. }
        | KeepReason::DriftWaits
        | KeepReason::NotReached
        | KeepReason::Unchanged => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_ready_yet_passes_and_a_disruption_budget_is_named() {
        let would_not = |why: &str| {
            let listed = vec![("default/p".to_owned(), why.to_owned())];
            VerdictReason::Kept(KeepReason::PodsWouldNotSchedule { listed, others: 0 }).remedy()
        };
        assert_eq!(would_not("would schedule against uninitialized node/n"), None);
        assert!(would_not("did not tolerate taint (taint=a:NoSchedule)").is_some());
        let pdb = VerdictReason::Blocked(Blocker::Pdb(PdbBlock::Exhausted("web/api".to_owned()))).remedy().unwrap();
        assert!(pdb.text.starts_with("PodDisruptionBudget web/api allowing a disruption (status.disruptionsAllowed)"), "{}", pdb.text);
    }
}
