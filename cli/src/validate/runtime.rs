//! What only those find who use an object: a server accepts it, and it does not work, or not as it reads.

use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClassSpec, NodeClaim, NodeOverlay, NodePool, Requirement};
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
        Object::NodeClass(class) => node_class(&class.spec),
        Object::NodeOverlay(overlay) => node_overlay(overlay),
        Object::CapacityBuffer(buffer) => capacity_buffer(buffer),
        _ => Findings::default(),
    }
}

/// The findings about a NodePool.
pub(crate) fn node_pool(pool: &NodePool) -> Findings {
    let mut found = runtime::node_pool(pool);
    found.errors.extend(schedules(pool));
    found.notes.extend(idle_schedules(pool));
    found.notes.extend(unknown_limits(pool));
    if let Some(fault) = whittle_solver::machine_cost_fault(pool) {
        // It begins with the field.
        let message = fault.split_once(": ").map_or(fault.as_str(), |(_, message)| message);
        found.errors.push(FieldError::new(FieldPath::of("metadata.annotations").key(labels::MACHINE_COST), message));
    }
    found
}

fn node_class(spec: &Ec2NodeClassSpec) -> Findings {
    let mut errors = runtime::kubelet_violations(spec.kubelet.as_ref());
    errors.extend(runtime::disk_violations(spec.block_device_mappings.as_deref()));
    Findings { errors, notes: Vec::new() }
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

/// The schedules of a pool's budgets that name no day of any year.
fn idle_schedules(pool: &NodePool) -> Vec<FieldError> {
    let budgets = FieldPath::of("spec.disruption.budgets");
    let all = pool.spec.disruption.budgets.iter().enumerate();
    let scheduled = all.filter_map(|(index, budget)| Some((index, budget.schedule.as_deref()?)));
    let idle = scheduled.filter(|(_, text)| Schedule::parse(text).is_ok_and(|schedule| schedule.next(Timestamp::UNIX_EPOCH).is_none()));
    let told = |(index, text)| {
        let message = format!("{text:?} names a day that no year has, so that the budget never holds: correct it, or leave the budget out");
        FieldError::new(budgets.index(index).key("schedule"), message)
    };
    idle.map(told).collect()
}

/// The limits of a pool on what no node has by such a name.
fn unknown_limits(pool: &NodePool) -> Vec<FieldError> {
    const KNOWN: [&str; 5] = ["cpu", "memory", "ephemeral-storage", "pods", "nodes"];
    let is_known = |name: &str| KNOWN.contains(&name) || name.contains('/') || name.starts_with("hugepages-");
    let odd = pool.spec.limits.iter().map(|(name, _)| name).filter(|name| !is_known(name));
    let told = |name: &str| {
        let message = format!("no node has a resource {name:?}, so that this limits nothing: there are {}", KNOWN.join(", "));
        FieldError::new(FieldPath::of("spec.limits").key(name), message)
    };
    odd.map(told).collect()
}

fn node_claim(claim: &NodeClaim) -> Findings {
    let mut found = Findings::default();
    // Who plans a NodeClaim names its class so.
    let of_users = |requirement: &&Requirement| requirement.key != labels::EC2_NODE_CLASS;
    for (index, requirement) in claim.spec.requirements.iter().enumerate().filter(|(_, requirement)| of_users(requirement)) {
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
