//! CloudWatch's alarms: which metrics those of a template watch, and which of them are in alarm by points that were observed.
//!
//! Only what our template uses: the statistics Sum and Maximum, two forms of metric math, one form of Metrics Insights query, and missing
//! data that breach or do not. Everything else is an error, so that an alarm of another form is noticed here.
//!
//! An alarm is evaluated over its periods alone, which slide. CloudWatch also looks at some points before them while newer ones are
//! missing, so that an alarm on a metric with gaps may end later than here.

mod alarm;
mod expression;
mod point;

pub use alarm::{Alarm, Names};
pub use point::Point;
