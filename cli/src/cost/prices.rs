//! What AWS charges for what Whittle uses: list prices, and what its always-free tier gives.
//!
//! From AWS's public price pages of Lambda, SQS, DynamoDB, CloudWatch and EventBridge Scheduler, as known in November 2026. The regions of
//! [`REGIONS`] have the same prices of all of them.

/// The date of the prices.
pub(super) const DATE: &str = "November 2026";

/// Regions with these prices.
pub(super) const REGIONS: [&str; 3] = ["us-east-1", "us-east-2", "us-west-2"];

/// Dollars for a gigabyte-second on arm64.
pub(super) const GB_SECOND_ARM: f64 = 0.000_013_333_4;
/// Dollars for a gigabyte-second on `x86_64`.
pub(super) const GB_SECOND_X86: f64 = 0.000_016_666_7;
/// Dollars for an invocation.
pub(super) const INVOCATION: f64 = 0.2e-6;
/// Dollars for a request to a standard queue.
pub(super) const SQS_STANDARD: f64 = 0.4e-6;
/// Dollars more for one about a message that has a group (fair queues).
pub(super) const SQS_FAIR: f64 = 0.1e-6;
/// Dollars for a request to a FIFO queue.
pub(super) const SQS_FIFO: f64 = 0.5e-6;
/// Dollars for a unit of reading.
pub(super) const READ_UNIT: f64 = 0.125e-6;
/// Dollars for a unit of writing.
pub(super) const WRITE_UNIT: f64 = 0.625e-6;
/// Dollars for a gigabyte in the table, a month.
pub(super) const TABLE_GB: f64 = 0.25;
/// Dollars for a gigabyte of the table that can be restored to any point in time, a month.
pub(super) const RECOVERY_GB: f64 = 0.20;
/// Dollars for a gigabyte of logs that is taken in.
pub(super) const LOG_GB: f64 = 0.50;
/// Dollars for a gigabyte of logs that is kept, a month, and how much of it is left once it is compressed.
pub(super) const LOG_KEPT_GB: f64 = 0.03 * 0.15;
/// Dollars for a metric that is reported all month.
pub(super) const METRIC: f64 = 0.30;
/// Dollars for a metric that an alarm watches, a month.
pub(super) const ALARM: f64 = 0.10;
/// Dollars for a dashboard, a month.
pub(super) const DASHBOARD: f64 = 3.0;
/// Dollars for an invocation by a schedule.
pub(super) const SCHEDULED: f64 = 1e-6;

/// What the always-free tier gives an account each month.
pub(super) mod free {
    pub(in crate::cost) const INVOCATIONS: f64 = 1e6;
    pub(in crate::cost) const GB_SECONDS: f64 = 400_000.0;
    /// Requests to queues of both kinds.
    pub(in crate::cost) const SQS: f64 = 1e6;
    /// Of the table; units of on-demand tables are never free.
    pub(in crate::cost) const TABLE_GB: f64 = 25.0;
    pub(in crate::cost) const METRICS: f64 = 10.0;
    /// Metrics that alarms watch.
    pub(in crate::cost) const ALARMS: f64 = 10.0;
    /// Of logs, taken in and kept.
    pub(in crate::cost) const LOG_GB: f64 = 5.0;
    pub(in crate::cost) const SCHEDULED: f64 = 14e6;
}
