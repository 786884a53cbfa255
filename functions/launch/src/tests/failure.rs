//! What EC2's errors mean for the claims of a call: a row for each kind of error.

use crate::failure::{CallDisposition, CallFailure, Notice, Shortfall};
use whittle_ec2::errors::CreateReason;
use whittle_ec2::fleet::{FleetFailure, FleetPoolError};
use whittle_ports::{CloudError, CloudErrorKind};
use whittle_units::SignedDuration;

const EMPTY_PROFILE: &str = "IAM Instance Profile \"p\" has no associated IAM Roles";
const ROLE_MISSING: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";

fn call_failure(kind: CloudErrorKind, code: &str, message: &str, waited: i64) -> CallFailure {
    let error = CloudError { kind, call: "CreateFleet", code: code.to_owned(), message: message.to_owned() };
    CallFailure::of(&error, SignedDuration::from_secs(waited))
}

fn retry(seconds: i64) -> CallDisposition {
    CallDisposition::Retry(SignedDuration::from_secs(seconds))
}

#[track_caller]
fn check_call(kind: CloudErrorKind, (code, message): (&str, &str), disposition: CallDisposition, notice: Option<Notice>) {
    let failure = call_failure(kind, code, message, 0);
    assert_eq!((failure.disposition, failure.notice), (disposition, notice), "{kind:?} {code} {message}");
}

#[test]
fn claims_of_a_call_are_given_up_only_where_what_they_ask_for_is_not_to_be_had() {
    use CloudErrorKind::{InsufficientCapacity, Invalid, Throttled, Unauthorized, Unknown};
    check_call(InsufficientCapacity, ("InsufficientInstanceCapacity", ""), CallDisposition::GiveUp, None);
    check_call(InsufficientCapacity, ("VcpuLimitExceeded", ""), CallDisposition::GiveUp, Some(Notice::Quota));
    check_call(Unauthorized, (ROLE_MISSING, ""), CallDisposition::GiveUp, Some(Notice::Refusal));
    check_call(InsufficientCapacity, ("MaxFleetCountExceeded", ""), retry(30), Some(Notice::Quota));
    check_call(Throttled, ("RequestLimitExceeded", ""), retry(2), None);
    check_call(Unknown, ("InternalError", ""), retry(2), None);
    check_call(Unknown, ("", "connection reset"), retry(2), None);
    check_call(Unauthorized, ("UnauthorizedOperation", ""), retry(30), Some(Notice::Refusal));
    check_call(Invalid, ("InvalidParameterValue", "something new"), retry(30), Some(Notice::Refusal));
    check_call(Invalid, ("InvalidParameterValue", EMPTY_PROFILE), retry(5), None);
}

#[test]
fn an_instance_profile_is_refused_only_once_ec2_would_know_it() {
    let after = |waited: i64| {
        let failure = call_failure(CloudErrorKind::Invalid, "InvalidParameterValue", EMPTY_PROFILE, waited);
        assert_eq!(failure.reason, CreateReason::InstanceProfileEmpty);
        (failure.disposition, failure.notice)
    };
    assert_eq!(after(59), (retry(5), None));
    assert_eq!(after(60), (retry(30), Some(Notice::Refusal)));
}

#[test]
fn a_call_that_ec2_may_have_carried_out_is_never_given_up() {
    for code in ["", "InternalError", "InsufficientInstanceCapacity", "VcpuLimitExceeded", "InvalidParameterValue", "RequestTimeout"] {
        let failure = call_failure(CloudErrorKind::Unknown, code, "no response", 600);
        assert_ne!(failure.disposition, CallDisposition::GiveUp, "{code}");
    }
}

fn pool_errors(codes: &[&str]) -> Vec<FleetPoolError> {
    let error = |code: &&str| FleetPoolError {
        code: (*code).to_owned(),
        message: "text".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "a".to_owned(),
    };
    codes.iter().map(error).collect()
}

/// `reason_and_delay` of the call that is made in place of this one, in seconds; `None` if the claims are given up.
#[track_caller]
fn check_response(codes: &[&str], reason_and_delay: Option<(CreateReason, i64)>, quota: Option<&str>, refusal: Option<&str>) {
    let errors = pool_errors(codes);
    let shortfall = Shortfall::of(&errors, SignedDuration::ZERO);
    let code_of = |error: Option<&FleetPoolError>| error.map(|error| error.code.clone());
    let found = match &shortfall.failure {
        FleetFailure::InsufficientCapacity(_) => None,
        FleetFailure::Create { reason, .. } => Some((*reason, shortfall.retry_delay.as_secs())),
    };
    let expected = (reason_and_delay, quota.map(str::to_owned), refusal.map(str::to_owned));
    assert_eq!((found, code_of(shortfall.quota), code_of(shortfall.refusal)), expected, "{codes:?}");
}

#[test]
fn claims_that_a_response_has_no_instance_for_are_given_up_if_every_error_is_about_its_offering() {
    check_response(&["InsufficientInstanceCapacity", "UnfulfillableCapacity"], None, None, None);
    check_response(&["VcpuLimitExceeded", "InsufficientInstanceCapacity"], None, Some("VcpuLimitExceeded"), None);
    let throttled = Some((CreateReason::RequestLimitExceeded, 5));
    check_response(&["InsufficientInstanceCapacity", "RequestLimitExceeded"], throttled, None, None);
    let used_up = Some((CreateReason::FleetQuotaExceeded, 30));
    check_response(&["InsufficientInstanceCapacity", "MaxFleetCountExceeded"], used_up, Some("MaxFleetCountExceeded"), None);
    let refused = Some((CreateReason::Unauthorized, 30));
    check_response(&["RequestLimitExceeded", "UnauthorizedOperation"], refused, None, Some("UnauthorizedOperation"));
    check_response(&[], Some((CreateReason::InternalError, 30)), None, None);
}
