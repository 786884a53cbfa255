//! What it would take: for each reason that `explain` gives, what its reader can change so that it holds no more. Nothing is said of what
//! passes by itself, and of what nobody can change.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use whittle_api::labels;
use whittle_api::words;
use whittle_disruption::{Blocker, KeepReason, PdbBlock, VerdictReason};
use whittle_model::scheduling::{Cause, Finding, PoolRejection, Reason};
use whittle_units::Quantity;

/// For how many NodePools it is said what would help: a reason names as many.
const POOLS_MAX: usize = 10;

/// What would help, and the NodePool that it is about, if it is about one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Remedy {
    node_pool: Option<String>,
    text: String,
}

impl Remedy {
    fn of_pod(text: impl Into<String>) -> Vec<Self> {
        vec![Self { node_pool: None, text: text.into() }]
    }

    /// A line for people.
    pub(super) fn line(&self) -> String {
        let of = self.node_pool.as_ref().map_or_else(String::new, |pool| format!(" (nodepool {pool})"));
        format!("  what it would take{of}: {}\n", words::printable(&self.text))
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        json!({"nodePool": self.node_pool, "remedy": self.text})
    }
}

/// What would give a pod a place.
pub(super) fn of_unplaced(reason: &Reason) -> Vec<Remedy> {
    match reason {
        Reason::Pools(rejections) | Reason::NoTemplates(rejections) => rejections.iter().filter_map(of_rejection).take(POOLS_MAX).collect(),
        Reason::Truncated { node_pool, labels } => {
            let text = format!("a lower minValues for {} in spec.template.spec.requirements", labels.join(", "));
            vec![Remedy { node_pool: Some(node_pool.clone()), text }]
        }
        Reason::OptedOut => Remedy::of_pod(format!("a pod without the requirement that {} does not exist", labels::NODE_POOL)),
        Reason::NoNodePools => Remedy::of_pod("a NodePool without replicas"),
        Reason::ResourceClaims => Remedy::of_pod("an extended resource of a device plugin in place of resourceClaims"),
        // Faults say what is wrong themselves; the others pass.
        Reason::Ignored(_)
        | Reason::Reserved(_)
        | Reason::Unchanged { .. }
        | Reason::OutOfBudget
        | Reason::RejectedByChecker(_)
        | Reason::Uninitialized { .. } => Vec::new(),
    }
}

/// What would let a NodePool take a pod.
pub(super) fn of_rejection(rejection: &PoolRejection) -> Option<Remedy> {
    let text = of_cause(rejection, &rejection.cause, "the pod's node selector or affinity")?;
    Some(Remedy { node_pool: Some(rejection.node_pool.clone()), text })
}

/// What would remove a cause; `asks` is what of the pod asks for it.
fn of_cause(rejection: &PoolRejection, cause: &Cause, asks: &str) -> Option<String> {
    Some(match cause {
        Cause::Taints(taints) => {
            let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
            format!("a pod that tolerates {}, or its spec.template.spec.taints without it", taints.join(", "))
        }
        Cause::UndefinedLabel { meant: Some(meant), .. } => format!("{meant} in {asks}"),
        Cause::UndefinedLabel { key, meant: None } if key == labels::HOSTNAME => {
            format!("{asks} without {key}: the name of a new node is not known before it is there")
        }
        Cause::UndefinedLabel { key, meant: None } => {
            format!("the label {key} in its spec.template.metadata.labels or spec.template.spec.requirements, or {asks} without it")
        }
        // Who names another NodePool means it.
        Cause::Disjoint(keys) if keys.iter().all(|(key, ..)| key == labels::NODE_POOL) => return None,
        Cause::Disjoint(keys) => {
            let keys: Vec<String> = keys.iter().map(|(key, required, _)| format!("{key} {required}")).collect();
            format!("its spec.template allowing {}, or {asks} without it", keys.join(" and "))
        }
        Cause::Volumes(inner) => of_cause(rejection, inner, "volumes elsewhere: the pod")?,
        Cause::Topology { kind, key, .. } => match *kind {
            "topology spread" => {
                format!("another domain of {key} in its requirements, a larger maxSkew, or whenUnsatisfiable: ScheduleAnyway")
            }
            "pod affinity" => format!("a pod that the affinity selects in a domain of {key} that its requirements allow"),
            _ => format!("another domain of {key} in its requirements, or preferredDuringScheduling in the pod's anti-affinity"),
        },
        Cause::InstanceTypes { finding, port, .. } => return of_types(rejection, *finding, port.is_some()),
        Cause::MinValues { labels, .. } => format!("a lower minValues for {}, or requirements that more types meet", labels.join(", ")),
        Cause::NothingOffered { why: None, node_class } => format!("{node_class}, ready, or requirements that some type meets"),
        Cause::NothingOffered { why: Some(why), .. } | Cause::Unready(why) if why.is_new() => return None,
        Cause::NothingOffered { why: Some(_), .. } | Cause::Unready(_) => "a correction of what its conditions name".to_owned(),
        Cause::LimitsExceeded { .. } => "higher spec.limits".to_owned(),
        Cause::NodeLimit { .. } => "a higher spec.limits.nodes".to_owned(),
        Cause::TransientDuringPass | Cause::ReservedUnavailable | Cause::ReservedLost => return None,
    })
}

/// What would make an instance type fit.
fn of_types(rejection: &PoolRejection, finding: Finding, port: bool) -> Option<String> {
    let mut ways: Vec<String> = Vec::new();
    if let Some(limit) = rejection.limits.first() {
        let needed = rejection.nearest.as_ref().filter(|miss| miss.resource == limit.resource);
        let by = needed.map_or_else(String::new, |miss| {
            let more = miss.needed.minus(limit.left.max(Quantity::ZERO));
            format!(", by {} at least: a machine counts with all that it has", more.text_of(&limit.resource))
        });
        ways.push(format!("a higher spec.limits.{}{by}", limit.resource));
    } else if let Some(miss) = &rejection.nearest {
        let (resource, most) = (&miss.resource, miss.largest.text_of(&miss.resource));
        if miss.largest <= Quantity::ZERO {
            ways.push(format!("requirements that types with {resource} meet"));
        } else {
            ways.push(format!("requests of at most {most} {resource} with those of the daemons, or requirements that larger types meet"));
        }
    }
    if port {
        ways.push("another hostPort".to_owned());
    }
    let rules_out = rejection.ruled_out.iter().find(|ruled| ruled.constraint.contains(' '));
    if ways.is_empty()
        && let Some(ruled) = rules_out
    {
        ways.push(format!("not to ask for {}, which rules out {} of {} types", ruled.constraint, ruled.types, ruled.of));
    }
    if ways.is_empty() {
        ways.push(match finding {
            Finding::NoOffering | Finding::FitWithoutOffering => "other zones, capacity types or instance types".to_owned(),
            _ => return None,
        });
    }
    Some(ways.join(", or "))
}

/// What would let consolidation remove or replace a machine.
pub(super) fn of_verdict(reason: &VerdictReason) -> Option<String> {
    match reason {
        VerdictReason::Chosen { .. } => None,
        VerdictReason::Blocked(blocker) => of_blocker(blocker),
        VerdictReason::Kept(reason) => of_kept(reason),
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
            format!("more ready pods under PodDisruptionBudget {budget}, or a budget that allows a disruption")
        }
        Blocker::Pdb(PdbBlock::Several(budgets)) => {
            format!("one PodDisruptionBudget of {} that selects the pod, not all", budgets.join(", "))
        }
        Blocker::DuplicateProviderId(_) => "the deletion of the Node or NodeClaim that is not the machine's".to_owned(),
        Blocker::ZoneShifted(zone) => format!("the end of the zonal shift of {zone}"),
        // What cannot be read says it itself; the others pass, or are nobody's to change.
        Blocker::Unreadable(_) | Blocker::InCommand | Blocker::NotManaged | Blocker::Deleting | Blocker::Nominated { .. } => return None,
        Blocker::NoProviderId => return None,
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
            format!("the end of the disruptions under way, or more nodes in spec.disruption.budgets of NodePool {pool} for {reason}")
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
