//! Claims and machines for tests (feature `fixtures`).

use crate::{Claim, ClaimKey, ClaimSpec, Deletion, DeletionReason, Event, Machine, step};
use std::collections::BTreeMap;
use whittle_units::{InstanceId, Price, ProviderId, Resources, Timestamp};

/// `seconds` after the time at which the claims of tests are planned.
#[must_use]
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time of this century")
}

/// The key of a claim in cluster `c`.
#[must_use]
pub fn key(name: &str) -> ClaimKey {
    ClaimKey { cluster: "c".into(), name: name.into() }
}

/// A claim in its first phase: planned at second 0, with the uid `uid`.
#[must_use]
pub fn planned(name: &str, spec: ClaimSpec) -> Claim {
    Claim::planned(key(name), "uid".into(), spec, at(0))
}

/// The spec of a claim of pool `default`.
#[must_use]
pub fn default_spec() -> ClaimSpec {
    ClaimSpec { node_pool: "default".into(), ..ClaimSpec::default() }
}

/// A spot m5.large in zone `z`, launched at second 0.
#[must_use]
pub fn machine(id: &str) -> Machine {
    let id = InstanceId::new(id);
    Machine {
        provider_id: ProviderId::of_instance("z", &id),
        instance_id: id,
        instance_type: "m5.large".into(),
        zone: "z".into(),
        capacity_type: "spot".into(),
        image_id: "ami".into(),
        price: Price::ZERO,
        capacity: Resources::new(),
        allocatable: Resources::new(),
        labels: BTreeMap::new(),
        launched_at: at(0),
    }
}

/// The claim after these events, all at one time.
///
/// # Panics If one of them contradicts the claim.
#[must_use]
#[track_caller]
pub fn after(claim: &Claim, events: &[Event], now: Timestamp) -> Claim {
    let take = |claim: Claim, event: &Event| match step(&claim, event, now) {
        Ok(next) => next,
        Err(error) => panic!("{error}"),
    };
    events.iter().fold(claim.clone(), take)
}

/// The event that the call with this token is about to be made.
#[must_use]
pub fn begun(token: &str) -> Event {
    Event::LaunchBegun { client_token: token.into() }
}

/// The event that the machine's Node has joined.
#[must_use]
pub fn joined(node: &str) -> Event {
    Event::NodeJoined { node_name: node.into() }
}

/// The deletion of a claim, requested at `asked_at` without a deadline.
#[must_use]
pub fn deletion(reason: DeletionReason, asked_at: Timestamp) -> Deletion {
    Deletion::without_deadline(reason, asked_at, "")
}

/// The event that the launch failed because EC2 lacks capacity.
#[must_use]
pub fn out_of_capacity() -> Event {
    Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: String::new() }
}
