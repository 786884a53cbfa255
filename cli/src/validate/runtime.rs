//! What only those find who use an object: a server accepts it, and it does not work, or not as it reads.

use std::collections::BTreeMap;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::karpenter::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use whittle_api::labels;
use whittle_api::manifest::Object;
use whittle_api::runtime::{self, Findings};
use whittle_disruption::Schedule;
use whittle_solver::buffers;
use whittle_solver::overlays::{self, OverlayStatus};

/// The findings of the functions that read the object.
pub(crate) fn findings(object: &Object) -> Findings {
    match object {
        Object::NodePool(pool) => node_pool(pool),
        Object::NodeClaim(claim) => node_claim(claim),
        Object::NodeClass(class) => Findings { errors: runtime::kubelet_violations(class.spec.kubelet.as_ref()), notes: Vec::new() },
        Object::NodeOverlay(overlay) => node_overlay(overlay),
        Object::CapacityBuffer(buffer) => capacity_buffer(buffer),
        _ => Findings::default(),
    }
}

/// The findings about a NodePool.
pub(crate) fn node_pool(pool: &NodePool) -> Findings {
    let mut found = runtime::node_pool(pool);
    found.errors.extend(schedules(pool));
    if let Some(fault) = whittle_solver::machine_cost_fault(pool) {
        // It begins with the field.
        let message = fault.split_once(": ").map_or(fault.as_str(), |(_, message)| message);
        found.errors.push(FieldError::new(FieldPath::of("metadata.annotations").key(labels::MACHINE_COST), message));
    }
    found
}

/// The schedules of a pool's budgets that are none.
pub(crate) fn schedules(pool: &NodePool) -> Vec<FieldError> {
    let budgets = FieldPath::of("spec.disruption.budgets");
    let mut faults = Vec::new();
    for (index, budget) in pool.spec.disruption.budgets.iter().enumerate() {
        if let Some(Err(error)) = budget.schedule.as_deref().map(Schedule::parse) {
            let message = format!("{error}; no node of the pool is disrupted until this is corrected");
            faults.push(FieldError::new(budgets.index(index).key("schedule"), message));
        }
    }
    faults
}

fn node_claim(claim: &NodeClaim) -> Findings {
    let mut found = Findings::default();
    for (index, requirement) in claim.spec.requirements.iter().enumerate() {
        runtime::check_requirement(requirement, &FieldPath::of("spec.requirements").index(index), &mut found);
    }
    found
}

fn node_overlay(overlay: &NodeOverlay) -> Findings {
    let statuses = overlays::apply(std::slice::from_ref(overlay), &[], BTreeMap::new()).statuses;
    let fault =
        |status| if let OverlayStatus::Invalid(fault) = status { Some(FieldError::new(FieldPath::of("spec"), fault)) } else { None };
    Findings { errors: statuses.into_values().filter_map(fault).collect(), notes: Vec::new() }
}

fn capacity_buffer(buffer: &CapacityBuffer) -> Findings {
    let fault = buffers::source_of(buffer).err().map(|unresolved| FieldError::new(FieldPath::of("spec"), unresolved.message));
    Findings { errors: fault.into_iter().collect(), notes: Vec::new() }
}
