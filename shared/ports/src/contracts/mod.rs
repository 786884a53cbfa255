//! What every adapter of a port must do, as functions that its tests call.
//!
//! A suite takes a fresh store (or at least an unused cluster name) and panics with a sentence if the adapter
//! violates its port's contract. `now` is the store's own time: nothing here waits.

mod claims;
mod cloud;
mod cluster;
mod decisions;
mod discovery;
mod erase;
mod faults;
mod leases;
mod lost;
mod records;
mod region;
mod steady;

pub use claims::{claim_store, many_claims};
pub use cloud::{
    CloudPlace, Machinery, a_fleet_launches_what_it_returns, a_template_is_created_once_and_deleted_once,
    an_instance_takes_tags_and_terminates, dry_runs, fleet_tokens, instance_checks, instance_profiles, machinery,
    missing_instances_are_no_failure, network, zonal_shifts,
};
pub use cluster::{
    ClusterPlace, POOL_AND_CLASS, class_status, cluster_reader, events, evictions, mirrors, nodes, plan_status, pool_status,
    workload_reader,
};
pub use decisions::decision_log;
pub use discovery::{
    OwnImage, aliases, capacity_reservations, catalog, cluster_info, images, partition_group, placement_groups, reservation_of_account,
};
pub use erase::erase;
pub use faults::{Fault, Faulty};
pub use leases::leases;
pub use lost::{lost_replies, suites_under_faults};
pub use records::records;
pub use region::{region_store, region_store_with_lost_responses};
pub use steady::Steady;

use whittle_claims::{Claim, ClaimKey, ClaimSpec, Machine, Phase, fixtures};
use whittle_units::{ClaimName, ClusterName, InstanceId, ProviderId, Timestamp};

/// A claim in its first phase.
#[must_use]
pub fn planned_claim(cluster: &ClusterName, name: &str, now: Timestamp) -> Claim {
    Claim {
        key: ClaimKey { cluster: cluster.clone(), name: ClaimName::new(name) },
        uid: format!("uid-of-{name}"),
        created_at: now,
        spec: ClaimSpec { node_pool: "default".to_owned(), instance_types: vec!["m5.large".to_owned()], ..ClaimSpec::default() },
        phase: Phase::Planned,
        deletion: None,
        conditions: Vec::new(),
        annotations: [("whittle.dev/note".to_owned(), "ünïcode \"quoted\"\n".to_owned())].into(),
        last_pod_event_at: None,
        look_again_at: None,
        node_missing_since: None,
        instance_missing_since: None,
        drain_moved_at: None,
        pods_fingerprint: None,
    }
}

/// A machine of this instance id.
#[must_use]
pub fn machine_launched_at(id: &InstanceId, now: Timestamp) -> Machine {
    let (zone, image_id) = ("us-west-2a".to_owned(), "ami-0123456789abcdef0".to_owned());
    Machine { provider_id: ProviderId::of_instance(&zone, id), zone, image_id, launched_at: now, ..fixtures::machine(id.as_str()) }
}
