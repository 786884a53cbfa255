//! What it would take that a machine goes: for each reason why consolidation keeps it, what its reader can change so that it holds no
//! more. Nothing is said of what passes by itself, and of what nobody can change. Of pods: `remedy` of `whittle_model::scheduling`.

use super::pdb::PdbBlock;
use super::verdict::{Blocker, KeepReason, Verdict, VerdictReason};
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::disruption::{NOT_INITIALIZED, TAKES_NO_PODS};
use whittle_model::scheduling::Remedy;

impl Verdict {
    /// What would let consolidation remove or replace the machine; `pools` tell which of them are Provisioners in the cluster, whose
    /// fields have other names.
    #[must_use]
    pub fn remedy(&self, pools: &[NodePool]) -> Option<Remedy> {
        let of_provisioner = || pools.iter().any(|pool| pool.metadata.name == self.node_pool && pool.is_converted_provisioner());
        let text = match &self.reason {
            VerdictReason::Chosen { .. } => None,
            VerdictReason::Blocked(blocker) => of_blocker(blocker),
            VerdictReason::Kept(reason) if of_provisioner() => of_kept_by_provisioner(reason),
            VerdictReason::Kept(reason) => of_kept(reason),
        };
        text.map(|text| Remedy { node_pool: None, text })
    }
}

/// In the fields of a Provisioner, which has neither budgets nor a time to wait, but for empty nodes.
fn of_kept_by_provisioner(reason: &KeepReason) -> Option<String> {
    Some(match reason {
        KeepReason::ConsolidationDisabled { pool } => {
            format!("spec.consolidation.enabled: true, or spec.ttlSecondsAfterEmpty, in Provisioner {pool}")
        }
        KeepReason::NotEmpty { pool } => {
            format!("spec.consolidation.enabled: true instead of spec.ttlSecondsAfterEmpty in Provisioner {pool}")
        }
        KeepReason::ConsolidateAfter { empty_for: Some(_), .. } => "that time, or a smaller spec.ttlSecondsAfterEmpty".to_owned(),
        KeepReason::ConsolidateAfter { .. } => "that time".to_owned(),
        KeepReason::BudgetExhausted { .. } => "the end of disruptions under way".to_owned(),
        other => return of_kept(other),
    })
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
        Blocker::NodePoolUnknown(pool) => {
            format!("NodePool {pool} again, corrected if it was refused; without it, the deletion of the NodeClaim")
        }
        Blocker::NodePoolEmpty { .. } => "a node class that is ready".to_owned(),
        Blocker::PodAnnotation { pod, key, .. } => format!("pod {pod} without the annotation {key}"),
        Blocker::Pdb(PdbBlock::Exhausted(budget)) => of_budget(budget),
        Blocker::Pdb(PdbBlock::ExhaustedForUnready(budget)) => {
            format!("{}; or unhealthyPodEvictionPolicy: AlwaysAllow in its spec, since its pod here is not ready", of_budget(budget))
        }
        Blocker::Pdb(PdbBlock::Several(budgets)) => {
            format!("one PodDisruptionBudget of {} that selects the pod, not all", budgets.join(", "))
        }
        Blocker::DuplicateProviderId(_) => "the deletion of the Node or NodeClaim that is not the machine's".to_owned(),
        Blocker::TaintRefused(_) => {
            "a policy, webhook or role by which Whittle may change the Node: it is tried again in minutes".to_owned()
        }
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

/// By what was said of the last replacement; `None`: a quota is used up.
fn of_replacement(message: Option<&str>) -> &'static str {
    match message {
        None => "a higher quota of vCPUs of the account, in Service Quotas",
        Some(TAKES_NO_PODS) => {
            "nodes of its NodePool that stay ready and are not cordoned: after a change of NodePool or EC2NodeClass it is tried again at once"
        }
        Some(NOT_INITIALIZED) => {
            "nodes of its NodePool that become ready within minutes, without startup taints that nobody removes and with all their \
             resources: after a change of NodePool or EC2NodeClass it is tried again at once"
        }
        Some(_) => {
            "what EC2 names corrected, in the EC2NodeClass, the NodePool (its Events LaunchRefused say more) or the account: after a \
             change of NodePool or EC2NodeClass it is tried again at once"
        }
    }
}

fn of_budget(budget: &str) -> String {
    format!(
        "PodDisruptionBudget {budget} allowing a disruption (status.disruptionsAllowed): more ready pods, a higher maxUnavailable or a \
         lower minAvailable"
    )
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
        KeepReason::NothingCheaper => {
            "smaller requests of its pods or requirements that cheaper types meet; a place elsewhere for pods that wait now, which its \
             replacement would have to take; or budgets that let it go together with other nodes"
                .to_owned()
        }
        KeepReason::PriceUnknown => "a catalog with its price".to_owned(),
        KeepReason::MinValues(keys) => format!("a lower minValues for {}", keys.join(", ")),
        KeepReason::SpotToSpotDisabled => "the stack's parameter SpotToSpot=true (Karpenter's gate SpotToSpotConsolidation)".to_owned(),
        KeepReason::SpotToSpotTooFewTypes { .. } => "requirements that more types meet".to_owned(),
        KeepReason::PoorScore { .. } => "WhenEmptyOrUnderutilized as spec.disruption.consolidationPolicy of its NodePool".to_owned(),
        KeepReason::SavesTooLittle { .. } => format!("a smaller annotation {} of its NodePool", labels::MINIMUM_SAVING),
        KeepReason::ReplacementRefused { message, .. } => of_replacement(message.as_deref()).to_owned(),
        KeepReason::DriftAwaitsJoin { pool } => {
            format!("machines of NodePool {pool} that join: its condition NodeRegistrationHealthy says why the latest did not")
        }
        KeepReason::NoRoomToReplace { pool } => format!("a higher spec.limits.nodes of NodePool {pool}"),
        KeepReason::SoldOut { pool } => format!("capacity of EC2, or requirements of NodePool {pool} that other types or zones meet"),
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
    use whittle_api::meta::ObjectMeta;

    fn remedy(reason: VerdictReason, pools: &[NodePool]) -> Option<String> {
        let verdict = Verdict { node: "n".to_owned(), node_claim: "c".to_owned(), node_pool: "default".to_owned(), reason };
        verdict.remedy(pools).map(|remedy| remedy.text)
    }

    #[test]
    fn a_node_that_is_not_ready_yet_passes_and_a_disruption_budget_is_named() {
        let would_not = |why: &str| {
            let listed = vec![("default/p".to_owned(), why.to_owned())];
            remedy(VerdictReason::Kept(KeepReason::PodsWouldNotSchedule { listed, others: 0 }), &[])
        };
        assert_eq!(would_not("would schedule against uninitialized node/n"), None);
        assert!(would_not("did not tolerate taint (taint=a:NoSchedule)").is_some());
        let pdb = remedy(VerdictReason::Blocked(Blocker::Pdb(PdbBlock::Exhausted("web/api".to_owned()))), &[]).unwrap();
        assert!(pdb.starts_with("PodDisruptionBudget web/api allowing a disruption (status.disruptionsAllowed)"), "{pdb}");
        let unready = remedy(VerdictReason::Blocked(Blocker::Pdb(PdbBlock::ExhaustedForUnready("web/api".to_owned()))), &[]).unwrap();
        assert!(unready.starts_with(&pdb) && unready.contains("unhealthyPodEvictionPolicy: AlwaysAllow"), "{unready}");
        assert!(!pdb.contains("unhealthyPodEvictionPolicy"), "it is of no use to pods that are ready: {pdb}");
    }

    #[test]
    fn a_provisioner_is_corrected_by_its_own_fields() {
        let pool = |annotations: &[&str]| {
            let mut metadata = ObjectMeta::named("default");
            metadata.annotations = annotations.iter().map(|&key| (key.to_owned(), "Provisioner".to_owned())).collect();
            NodePool { metadata, ..NodePool::default() }
        };
        let told = |pool: NodePool| remedy(VerdictReason::Kept(KeepReason::NotEmpty { pool: "default".to_owned() }), &[pool]).unwrap();
        assert!(told(pool(&[labels::CONVERTED_FROM])).starts_with("spec.consolidation.enabled: true instead of"));
        assert!(told(pool(&[])).starts_with("WhenEmptyOrUnderutilized as spec.disruption.consolidationPolicy"));
    }
}
