//! Converts the SDK's errors to the port's.

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::display::DisplayErrorContext;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use std::error::Error;
use whittle_ec2::errors::{ApiError, Fault};
use whittle_ports::{CloudError, CloudErrorKind};

/// Reduces an SDK's error to code, message and fault. A request that never reached the service has no code.
fn api_error<E>(error: &SdkError<E, Response>) -> ApiError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let SdkError::ServiceError(response) = error else {
        return ApiError { message: DisplayErrorContext(error).to_string(), ..ApiError::default() };
    };
    let fault = if response.raw().status().is_server_error() { Fault::Server } else { Fault::Client };
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    ApiError { code: text(response.err().code()), message: text(response.err().message()), fault }
}

/// The port's class of an error, which decides how a handler reacts (aws 8).
pub(crate) fn kind(error: &ApiError) -> CloudErrorKind {
    match error {
        _ if error.is_not_found() => CloudErrorKind::NotFound,
        _ if error.is_already_exists() => CloudErrorKind::AlreadyExists,
        _ if error.is_throttle() => CloudErrorKind::Throttled,
        _ if error.is_refused() => CloudErrorKind::Unauthorized,
        _ if error.is_unfulfillable() => CloudErrorKind::InsufficientCapacity,
        _ if error.is_idempotency_mismatch() => CloudErrorKind::IdempotencyMismatch,
        _ if error.is_transient() => CloudErrorKind::Unknown,
        _ => CloudErrorKind::Invalid,
    }
}

/// The port's error for a failed call.
pub(crate) fn cloud_error<E>(call: &'static str, error: SdkError<E, Response>) -> CloudError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let error = api_error(&error);
    CloudError { kind: kind(&error), call, code: error.code, message: error.message }
}

/// An error of a service that has one code for every resource that does not exist: EKS and Application Recovery Controller. In others
/// it may be about a table.
pub(crate) fn of_resource(error: CloudError) -> CloudError {
    match error.code.as_str() {
        "ResourceNotFoundException" => CloudError { kind: CloudErrorKind::NotFound, ..error },
        _ => error,
    }
}

/// The error for a response that lacks a required part.
pub(crate) fn incomplete(call: &'static str, message: impl Into<String>) -> CloudError {
    CloudError { kind: CloudErrorKind::Unknown, call, code: String::new(), message: message.into() }
}
