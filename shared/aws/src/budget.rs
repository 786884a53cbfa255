//! Timeouts of AWS calls, from the time that the invocation has left.

use aws_smithy_types::timeout::TimeoutConfig;
use std::time::Duration;
use whittle_ports::{Clock, CloudError, CloudErrorKind};

/// The longest that a call with its retries may take: EC2's describe calls take seconds, never this long.
const CALL_MAX: Duration = Duration::from_secs(30);
/// The longest that one attempt may take, so that a lost response leaves time for another attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(12);
/// The same of a message to a queue: SQS takes it within some ten milliseconds.
const MESSAGE_ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// The longest that a call may take which others must not wait for.
const BRIEF_MAX: Duration = Duration::from_secs(5);

/// The timeouts of the next call; an error when no time is left, so that no call starts that cannot finish.
pub(crate) fn limits(clock: &dyn Clock, call: &'static str) -> Result<TimeoutConfig, CloudError> {
    let left = clock.time_left().unsigned_abs();
    if left.is_zero() {
        let message = "the invocation has no time left".to_owned();
        return Err(CloudError { kind: CloudErrorKind::Unknown, call, code: String::new(), message });
    }
    let operation = left.min(CALL_MAX);
    Ok(TimeoutConfig::builder().operation_timeout(operation).operation_attempt_timeout(operation.min(ATTEMPT_MAX)).build())
}

/// The same for a call that others must not wait for: one attempt, which the next run repeats.
pub(crate) fn brief_limits(clock: &dyn Clock, call: &'static str) -> Result<TimeoutConfig, CloudError> {
    let limits = limits(clock, call)?;
    let most = limits.operation_timeout().unwrap_or(BRIEF_MAX).min(BRIEF_MAX);
    Ok(limits.to_builder().operation_timeout(most).operation_attempt_timeout(most).build())
}

/// The same for a message to a queue. What an environment has kept of connections may be gone when Lambda wakes it, and `relay` has five
/// seconds for all that it does: an attempt without an answer leaves time for another. A message that came twice is harmless.
pub(crate) fn message_limits(clock: &dyn Clock, call: &'static str) -> Result<TimeoutConfig, CloudError> {
    let limits = limits(clock, call)?;
    let most = limits.operation_attempt_timeout().unwrap_or(MESSAGE_ATTEMPT_MAX).min(MESSAGE_ATTEMPT_MAX);
    Ok(limits.to_builder().operation_attempt_timeout(most).build())
}

/// Sends a request within the invocation's time: `send!(self, aws_sdk_ec2, "DescribeSubnets", builder)`.
macro_rules! send {
    ($adapter:expr, $service:ident, $call:literal, $builder:expr) => {
        $builder
            .customize()
            .config_override($service::config::Builder::new().timeout_config(crate::budget::limits(&*$adapter.clock, $call)?))
            .send()
            .await
            .map_err(|error| crate::errors::cloud_error($call, error))
    };
}
pub(crate) use send;
