//! Classifies DynamoDB's errors: the only module that reads error codes.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::error::TransactionCanceledException;
use std::error::Error;
use whittle_ports::StoreError;

/// What a failed call says about the requested write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A condition did not hold: nothing was written.
    ConditionFailed,
    /// The table is throttled: nothing was written.
    Throttled,
    /// Everything else: the write may have happened, or the table is configured wrongly.
    Unknown,
}

/// The class of DynamoDB's error code.
pub(crate) fn class_of(code: &str) -> Class {
    match code {
        "ConditionalCheckFailedException" | "ConditionalCheckFailed" => Class::ConditionFailed,
        "ProvisionedThroughputExceededException"
        | "ProvisionedThroughputExceeded"
        | "ThrottlingException"
        | "ThrottlingError"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "TransactionConflictException"
        | "TransactionConflict"
        | "TransactionInProgressException" => Class::Throttled,
        _ => Class::Unknown,
    }
}

/// The class of a failed call; failures below the service (timeouts, connections) are unknown.
pub(crate) fn class<E, R>(error: &SdkError<E, R>) -> Class
where
    E: ProvideErrorMetadata,
{
    error.as_service_error().and_then(ProvideErrorMetadata::code).map_or(Class::Unknown, class_of)
}

/// Whether DynamoDB refused a whole request for what is in it or who sent it, so that nothing was written. The role may still be that of
/// an earlier release, while a deployment is rolled back.
pub(crate) fn is_refused<E, R>(error: &SdkError<E, R>) -> bool
where
    E: ProvideErrorMetadata,
{
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    code.is_some_and(|code| matches!(code, "ValidationException" | "AccessDeniedException"))
}

/// The port's error for a failed call. `what` names the object, such as `claim prod/default-x7k2p`.
pub(crate) fn store_error<E, R>(error: SdkError<E, R>, what: &str) -> StoreError
where
    E: ProvideErrorMetadata + Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let what = what.to_owned();
    match class(&error) {
        Class::ConditionFailed => StoreError::Conflict { what },
        Class::Throttled => StoreError::Throttled { what },
        Class::Unknown => {
            let remedy = match error.as_service_error().and_then(ProvideErrorMetadata::code) {
                Some("ResourceNotFoundException") => " (does the table that WHITTLE_TABLE names exist?)",
                Some("AccessDeniedException") => " (does the function's role allow the call on the table?)",
                _ => "",
            };
            StoreError::Unavailable { what, reason: format!("{}{remedy}", DisplayErrorContext(&error)) }
        }
    }
}

/// Why a transaction was cancelled: the class of each action, in the order of the request; `None` when the call failed in
/// another way.
pub(crate) fn cancellation<R>(error: &SdkError<TransactWriteItemsError, R>) -> Option<Vec<Option<Class>>> {
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error.as_service_error()? else { return None };
    Some(reasons(cancelled))
}

/// The class of each action of a cancelled transaction; `None` for an action that did not cause it.
pub(crate) fn reasons(cancelled: &TransactionCanceledException) -> Vec<Option<Class>> {
    let class_of_reason = |code: Option<&str>| match code {
        None | Some("None") => None,
        Some(code) => Some(class_of(code)),
    };
    cancelled.cancellation_reasons().iter().map(|reason| class_of_reason(reason.code())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::{ConditionFailed, Throttled, Unknown};

    #[track_caller]
    fn check(code: &str, expected: Class) {
        assert_eq!(class_of(code), expected, "{code}");
    }

    #[test]
    fn only_a_failed_condition_means_a_concurrent_write() {
        check("ConditionalCheckFailedException", ConditionFailed);
        check("ConditionalCheckFailed", ConditionFailed);
        check("ProvisionedThroughputExceededException", Throttled);
        check("ProvisionedThroughputExceeded", Throttled);
        check("ThrottlingException", Throttled);
        check("ThrottlingError", Throttled);
        check("RequestLimitExceeded", Throttled);
        check("LimitExceededException", Throttled);
        check("TransactionConflictException", Throttled);
        check("TransactionConflict", Throttled);
        check("TransactionInProgressException", Throttled);
        check("TransactionCanceledException", Unknown);
        check("InternalServerError", Unknown);
        check("ResourceNotFoundException", Unknown);
        check("AccessDeniedException", Unknown);
        check("ValidationException", Unknown);
        check("ItemCollectionSizeLimitExceededException", Unknown);
        check("IdempotentParameterMismatchException", Unknown);
        check("SomethingNew", Unknown);
    }
}
