//! What EC2's errors mean for the claims that a call has started nothing for. Pure: `answer.rs` does what is decided here.

use crate::{PROFILE_KNOWN_AFTER, RETRY_DELAY, USER_ACTION_RETRY_DELAY};
use whittle_ec2::errors::{ApiError, CreateReason, Fault};
use whittle_ec2::fleet::{FleetFailure, FleetPoolError, failure};
use whittle_ports::{CloudError, CloudErrorKind};
use whittle_units::SignedDuration;

/// Delay before a call is repeated that failed because EC2 was busy, or did not know something new yet, such as an instance profile: it
/// takes about ten seconds until EC2 sees a change of IAM.
const PASSING_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// What becomes of the claims of a call that failed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallDisposition {
    /// They are given up, and their pods planned anew: no call for what they ask for would do better.
    GiveUp,
    /// The same call is made after this delay, or another in its place.
    Retry(SignedDuration),
}

/// What users hear of a failure, besides the conditions of its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A quota of the account is used up.
    Quota,
    /// Every attempt fails until a person changes something.
    Refusal,
}

/// A call that failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallFailure {
    /// As the table of error codes knows it.
    pub(crate) error: ApiError,
    pub(crate) reason: CreateReason,
    pub(crate) disposition: CallDisposition,
    pub(crate) notice: Option<Notice>,
}

impl CallFailure {
    /// The failure of a call whose oldest claim has `waited` since it was planned: this may not be its first call.
    pub(crate) fn of(error: &CloudError, waited: SignedDuration) -> Self {
        let fault = if error.kind == CloudErrorKind::Unknown { Fault::Server } else { Fault::Client };
        let known = ApiError { fault, ..ApiError::client(&error.code, &error.message) };
        let is_fleet_quota = known.is_fleet_quota();
        let is_unavailable = error.kind == CloudErrorKind::InsufficientCapacity || known.is_service_linked_role_missing();
        let gives_up = is_unavailable && !is_fleet_quota;
        let is_refused = if gives_up { known.create_reason().needs_user_action() } else { needs_user_action(&known, waited) };
        let disposition = match error.kind {
            _ if gives_up => CallDisposition::GiveUp,
            _ if is_fleet_quota => CallDisposition::Retry(USER_ACTION_RETRY_DELAY),
            CloudErrorKind::Invalid if known.is_over_soon() && !is_refused => CallDisposition::Retry(PASSING_RETRY_DELAY),
            CloudErrorKind::Unauthorized | CloudErrorKind::Invalid => CallDisposition::Retry(USER_ACTION_RETRY_DELAY),
            _ => CallDisposition::Retry(RETRY_DELAY),
        };
        let notice = match () {
            () if is_fleet_quota || (gives_up && known.is_vcpu_quota()) => Some(Notice::Quota),
            () if is_refused => Some(Notice::Refusal),
            () => None,
        };
        Self { reason: known.launch_reason(), disposition, notice, error: known }
    }
}

/// A response without an instance for some claims.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortfall<'e> {
    /// A used-up quota of the account.
    pub(crate) quota: Option<&'e FleetPoolError>,
    /// An error of every attempt, until a person changes something.
    pub(crate) refusal: Option<&'e FleetPoolError>,
    /// Whether the claims are given up, or another call is made for them after `retry_delay`.
    pub(crate) failure: FleetFailure,
    pub(crate) retry_delay: SignedDuration,
}

impl<'e> Shortfall<'e> {
    /// What these errors say; `waited` as for [`CallFailure::of`].
    pub(crate) fn of(errors: &'e [FleetPoolError], waited: SignedDuration) -> Self {
        let quota = errors.iter().find(|error| is_quota(error));
        let refusal = errors.iter().find(|error| needs_user_action(&api_error(error), waited));
        let passes = quota.is_none() && refusal.is_none() && errors.iter().any(|error| api_error(error).is_over_soon());
        let retry_delay = if passes { PASSING_RETRY_DELAY } else { USER_ACTION_RETRY_DELAY };
        Self { quota, refusal, failure: failure_without_instances(errors), retry_delay }
    }
}

pub(crate) fn api_error(error: &FleetPoolError) -> ApiError {
    ApiError::client(&error.code, &error.message)
}

pub(crate) fn reason_of(error: &FleetPoolError) -> CreateReason {
    api_error(error).launch_reason()
}

fn is_quota(error: &FleetPoolError) -> bool {
    let known = api_error(error);
    known.is_vcpu_quota() || known.is_fleet_quota()
}

/// What the errors of a fleet mean for the claims without an instance. When the fleet quota is used up, no other offering would
/// do better.
fn failure_without_instances(errors: &[FleetPoolError]) -> FleetFailure {
    match errors.iter().find(|error| api_error(error).is_fleet_quota()) {
        Some(error) => {
            let reason = CreateReason::FleetQuotaExceeded;
            FleetFailure::Create { reason, message: format!("{}: {}", reason.advice(), error.message) }
        }
        None => failure(errors),
    }
}

/// Whether retries are futile until the account, its permissions or the node class are changed. That EC2 does not know an instance profile
/// says so only if a launch has waited for longer than it takes to learn of one.
fn needs_user_action(error: &ApiError, waited: SignedDuration) -> bool {
    let is_unusable = error.is_of_instance_profile() && waited >= PROFILE_KNOWN_AFTER;
    error.create_reason().needs_user_action() || error.is_rejected() || is_unusable
}
