//! Retries, beyond those of the SDK, of writes that conflicted with a transaction on the same item.
//!
//! The SDK backs off with jitter within the invocation's deadline, and repeats a transaction with the same token, so that one
//! whose response was lost is not executed twice.

use crate::errors::{self, Class};
use aws_sdk_dynamodb::config::interceptors::InterceptorContext;
use aws_sdk_dynamodb::config::retry::{ClassifyRetry, RetryAction, RetryConfig};
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use std::time::Duration;

/// Attempts of a call. Concurrent creations of claims contend for the lease's item.
const ATTEMPTS_MAX: u32 = 6;
/// The initial backoff, which doubles. A transaction takes about 10 ms.
const INITIAL_BACKOFF: Duration = Duration::from_millis(25);

/// The number of attempts of a call and their backoff.
pub(crate) fn retry_config() -> RetryConfig {
    RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX).with_initial_backoff(INITIAL_BACKOFF)
}

/// Recognizes a write that conflicted with a transaction.
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
        let conflicted = match error.downcast_ref::<TransactWriteItemsError>() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => is_contention(&errors::reasons(cancelled)),
            _ => code.is_some_and(|code| errors::class_of(code) == Class::Throttled),
        };
        if conflicted { RetryAction::throttling_error() } else { RetryAction::NoActionIndicated }
    }
}

/// Whether contention alone cancelled the transaction: if a condition failed as well, a retry would fail again.
fn is_contention(reasons: &[Option<Class>]) -> bool {
    reasons.contains(&Some(Class::Throttled)) && reasons.iter().flatten().all(|reason| *reason == Class::Throttled)
}

#[cfg(test)]
mod tests {
    use super::is_contention;
    use crate::errors::Class::{ConditionFailed, Throttled, Unknown};

    #[test]
    fn a_failed_condition_is_not_retried() {
        assert!(is_contention(&[None, Some(Throttled)]));
        assert!(!is_contention(&[Some(ConditionFailed), Some(Throttled)]));
        assert!(!is_contention(&[Some(Unknown), Some(Throttled)]));
        assert!(!is_contention(&[None, None]));
    }
}
