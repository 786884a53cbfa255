//! What a pod requests, and whether it is to be scheduled.

mod budgets;
mod buffers;
mod daemons;
mod deletion;
mod eligibility;
mod ports;
mod requests;
mod static_volumes;
mod tolerations;
mod validation;
mod volume_place;
mod volumes;

pub use budgets::{Covered, budget_covers, budget_status, is_ready, never_allows};
pub use buffers::{BUFFER_NAME, BUFFER_NAMESPACE, FAKE_POD, is_virtual, virtual_pods};
pub use daemons::{daemon_pods, daemon_set_of, daemon_terms};
pub use deletion::{DELETION_COST, DeletionRank, deletion_ranks};
pub use eligibility::{
    Protection, do_not_disrupt, is_active, is_daemon_owned, is_provisionable, is_reschedulable, moves_with_its_node, needs_resource_claims,
};
pub use ports::{HostPort, host_ports};
pub use requests::{effective_requests, limits_of_whole_become_requests, negative_requests, total_requests};
pub use tolerations::{tolerates, untolerated};
pub use validation::{empty_affinity, is_restricted, node_constraint_errors, requirement_errors};
pub use volumes::{EBS_DRIVER, SELECTED_NODE, VolumeUse, Volumes, planned_for_another};
