//! What follows from a fleet's errors: unavailable pools, and the outcome for the claim (aws 6, 7.6).

use super::{FleetAnswer, FleetPoolError, FleetRequest, Launch};
use crate::errors::{ApiError, CreateReason};
use crate::instance_types::{Context, Pool};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::labels;

/// The unavailable pools after a fleet, even if machines were started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Pools without capacity.
    pub pools: BTreeSet<Pool>,
    /// Capacity types that the account cannot use.
    pub capacity_types: BTreeSet<String>,
    /// Subnets without addresses.
    pub subnets: BTreeSet<String>,
    /// Exhausted reservations.
    pub reservations: BTreeSet<String>,
}

/// Why a fleet started nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetFailure {
    /// Other offerings may work: the claim is given up and its pods are planned again.
    #[error("no capacity: {0}")]
    InsufficientCapacity(String),
    /// Retried later; the reason goes into the claim's condition.
    #[error("{reason}: {message}")]
    Create { reason: CreateReason, message: String },
}

fn api_error(error: &FleetPoolError) -> ApiError {
    ApiError::client(&error.code, &error.message)
}

/// The pools that the errors of a fleet make unavailable.
pub fn marks(launch: &Launch, answer: &FleetAnswer, context: &Context<'_>) -> Marks {
    let request = &launch.request;
    let mut marks = Marks::default();
    for error in &answer.errors {
        let known = api_error(error);
        if known.is_service_linked_role_missing() {
            marks.capacity_types.insert(labels::CAPACITY_SPOT.to_owned());
        }
        if known.is_subnet_full() {
            marks.subnets.extend(subnets_of(request, error));
        }
        let closed = known.is_unfulfillable();
        if request.capacity_type == labels::CAPACITY_RESERVED {
            if closed {
                let key = (error.instance_type.clone(), error.zone.clone());
                marks.reservations.extend(launch.reservations.get(&key).cloned());
            }
        } else if known.is_spread_group_limit() {
            let types: BTreeSet<&str> = overrides(request).map(|entry| entry.instance_type.as_str()).collect();
            marks.pools.extend(types.iter().map(|name| pool(launch, name, &error.zone, context)));
        } else if closed {
            marks.pools.insert(pool(launch, &error.instance_type, &error.zone, context));
        }
    }
    marks
}

fn overrides(request: &FleetRequest) -> impl Iterator<Item = &super::FleetOverride> {
    request.configs.iter().flat_map(|config| &config.overrides)
}

fn subnets_of(request: &FleetRequest, error: &FleetPoolError) -> impl Iterator<Item = String> {
    overrides(request).filter(|entry| entry.zone == error.zone).map(|entry| entry.subnet_id.clone())
}

fn pool(launch: &Launch, instance_type: &str, zone: &str, context: &Context<'_>) -> Pool {
    Pool {
        capacity_type: launch.request.capacity_type.clone(),
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        placement_group: context.placement_group.map(|group| group.id.clone()),
        partition: launch.partition,
    }
}

/// How many errors of one code are listed: a fleet has one for each type and zone that it tried, and there may be hundreds.
const LISTED_MAX: usize = 3;

/// The errors of a fleet, of each code the first and how many more there are.
fn summary(errors: &[FleetPoolError]) -> String {
    let mut by_code: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for error in errors {
        by_code.entry(&error.code).or_default().insert(api_error(error).to_string());
    }
    let of_code = |(code, texts): (&str, BTreeSet<String>)| {
        let shown = texts.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join("; ");
        match texts.len().saturating_sub(LISTED_MAX) {
            0 => shown,
            more => format!("{shown}; and {more} more of {code}"),
        }
    };
    by_code.into_iter().map(of_code).collect::<Vec<_>>().join("; ")
}

/// The failure of a claim without a machine, from the errors of its fleet.
pub fn failure(errors: &[FleetPoolError]) -> FleetFailure {
    let message = summary(errors);
    let means_elsewhere = |error: &FleetPoolError| {
        let known = api_error(error);
        known.is_unfulfillable() || known.is_spread_group_limit() || known.is_service_linked_role_missing()
    };
    if errors.is_empty() {
        let message = "the fleet started fewer machines than asked for and does not say why".to_owned();
        return FleetFailure::Create { reason: CreateReason::InternalError, message };
    }
    if errors.iter().all(means_elsewhere) {
        return FleetFailure::InsufficientCapacity(message);
    }
    let texts: Vec<String> = errors.iter().map(|error| api_error(error).to_string()).collect();
    let reason = match CreateReason::of(&texts.join("; ")) {
        // Of an EC2 in trouble, unless another pool's error is a refusal: that is the greatest reason of them.
        CreateReason::LaunchFailed => {
            let own = errors.iter().filter(|error| !means_elsewhere(error));
            own.map(|error| api_error(error).launch_reason()).max().unwrap_or(CreateReason::LaunchFailed)
        }
        reason => reason,
    };
    FleetFailure::Create { reason, message: format!("{}: {message}", reason.advice()) }
}
