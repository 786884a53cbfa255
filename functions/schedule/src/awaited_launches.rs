//! Claims whose launch pods without a place wait for: it decides where these may go. Pure.

use std::collections::BTreeSet;
use whittle_api::karpenter::Operator;
use whittle_api::labels;
use whittle_claims::ClaimSpec;
use whittle_model::scheduling::{Cause, Plan, Reason};

/// Labels that a launch decides, whether or not the claim states them.
const OF_LAUNCHES: [&str; 3] = [labels::ZONE, labels::ZONE_ID, labels::CAPACITY_TYPE];

/// The labels of other machines on which it depends whether the pods of a plan that have no place can have one.
pub(crate) fn awaited_labels(plan: &Plan) -> BTreeSet<&str> {
    let mut out = BTreeSet::new();
    for left in &plan.left_out {
        if let Reason::Pools(rejections) = &left.reason {
            out.extend(rejections.iter().filter_map(|rejection| topology_key(&rejection.cause)));
        }
        // The checker considers every zone in which the machine of another pod may be launched (ADR 0019).
        if matches!(left.reason, Reason::RejectedByChecker(_)) {
            out.insert(labels::ZONE);
        }
    }
    // Every machine has a host of its own.
    out.remove(labels::HOSTNAME);
    out
}

fn topology_key(cause: &Cause) -> Option<&str> {
    if let Cause::Volumes(inner) = cause {
        return topology_key(inner);
    }
    if let Cause::Topology { key, .. } = cause { Some(key.as_str()) } else { None }
}

/// Whether the launch of a claim decides one of these labels.
pub(crate) fn decides(spec: &ClaimSpec, keys: &BTreeSet<&str>) -> bool {
    keys.iter().any(|key| {
        let stated = || spec.requirements.iter().filter(|stated| labels::normalized(&stated.key) == *key);
        let is_fixed = stated().any(|stated| stated.operator == Operator::In && stated.values.len() == 1);
        let is_decided = OF_LAUNCHES.contains(key) || stated().next().is_some();
        is_decided && !is_fixed && !spec.labels.contains_key(*key)
    })
}
