//! What the SDK is told to try again, besides its own list: writes that met a transaction on the same item.
//!
//! The SDK waits with jitter, in bounds that come from the invocation's deadline, and repeats a transaction under its own
//! token, so that one that happened unheard does not happen twice.

use crate::errors::{self, Class};
use aws_sdk_dynamodb::config::interceptors::InterceptorContext;
use aws_sdk_dynamodb::config::retry::{ClassifyRetry, RetryAction, RetryConfig};
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use std::time::Duration;

/// Tries of a call. Creations under one lease meet on the lease.
const ATTEMPTS_MAX: u32 = 6;
/// The longest pause before the second try; it doubles. A transaction takes some 10 ms.
const PAUSE: Duration = Duration::from_millis(25);

/// How often, and after which pauses, a call is tried.
pub(crate) fn tries() -> RetryConfig {
    RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX).with_initial_backoff(PAUSE)
}

/// Knows a write that met a transaction.
#[derive(Debug)]
pub(crate) struct Contention;

impl ClassifyRetry for Contention {
    fn name(&self) -> &'static str {
        "contention of transactions"
    }

    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let failed = context.output_or_error().and_then(Result::err).and_then(|error| error.as_operation_error());
        let Some(error) = failed else { return RetryAction::NoActionIndicated };
        let code = error
            .downcast_ref::<PutItemError>()
            .and_then(ProvideErrorMetadata::code)
            .or_else(|| error.downcast_ref::<DeleteItemError>().and_then(ProvideErrorMetadata::code));
        let met = match error.downcast_ref::<TransactWriteItemsError>() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => is_contention(&errors::reasons(cancelled)),
            _ => code.is_some_and(|code| errors::class_of(code) == Class::Throttled),
        };
        if met { RetryAction::throttling_error() } else { RetryAction::NoActionIndicated }
    }
}

/// Nothing but contention stopped the transaction: where a condition failed as well, trying again changes nothing.
fn is_contention(reasons: &[Option<Class>]) -> bool {
    reasons.contains(&Some(Class::Throttled)) && reasons.iter().flatten().all(|reason| *reason == Class::Throttled)
}

#[cfg(test)]
mod tests {
    use super::is_contention;
    use crate::errors::Class::{ConditionFailed, Throttled, Unknown};

    #[test]
    fn a_failed_condition_is_not_tried_again() {
        assert!(is_contention(&[None, Some(Throttled)]));
        assert!(!is_contention(&[Some(ConditionFailed), Some(Throttled)]));
        assert!(!is_contention(&[Some(Unknown), Some(Throttled)]));
        assert!(!is_contention(&[None, None]));
    }
}
