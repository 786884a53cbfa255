//! Cron expressions of disruption budgets (disruption 5.3), in UTC.
//!
//! The dialect is the one that existing budgets are written in: five fields, Sunday is 0 only, and a day matches either
//! day field when both are restricted. No published parser accepts exactly this dialect.

use jiff::civil::{Date, Weekday};
use jiff::{SignedDuration, Timestamp, ToSpan as _, tz::TimeZone};

/// A parsed schedule: one bit per allowed value of each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both day fields must match, because one of them is a plain star.
    both_days: bool,
}

/// Why a schedule cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("schedule {0:?} has {1} fields: write minute, hour, day of month, month and day of week")]
    Fields(String, usize),
    #[error("schedule {0:?} is not one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly")]
    Macro(String),
    #[error("schedule field {field:?} does not fit {low} to {high}")]
    Field { field: String, low: u32, high: u32 },
}

struct FieldRule {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MINUTE: FieldRule = FieldRule { low: 0, high: 59, names: &[] };
const HOUR: FieldRule = FieldRule { low: 0, high: 23, names: &[] };
const DAY: FieldRule = FieldRule { low: 1, high: 31, names: &[] };
const MONTH: FieldRule =
    FieldRule { low: 1, high: 12, names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"] };
const WEEKDAY: FieldRule = FieldRule { low: 0, high: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// How many years ahead to search: 29 February recurs every four years except around most turns of a century.
const YEARS_AHEAD: i16 = 5;

impl Schedule {
    /// Parses the schedule of a budget (disruption 5.3): five fields, or `@hourly` to `@yearly`. The error names the field and its range.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let fields = match text.strip_prefix('@') {
            Some(_) => macro_fields(text).ok_or_else(|| ScheduleError::Macro(text.to_owned()))?,
            None => text,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(ScheduleError::Fields(text.to_owned(), fields.len()));
        };
        let (days, any_day) = field(day, &DAY)?;
        let (weekdays, any_weekday) = field(weekday, &WEEKDAY)?;
        Ok(Self {
            minutes: field(minute, &MINUTE)?.0,
            hours: field(hour, &HOUR)?.0,
            days,
            months: field(month, &MONTH)?.0,
            weekdays,
            both_days: any_day || any_weekday,
        })
    }

    /// The first fire time strictly after `after`; `None` when there is none within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let start = after.to_zoned(TimeZone::UTC).datetime();
        let from_minute = u32::try_from(start.minute()).unwrap_or(0);
        let from_hour = u32::try_from(start.hour()).unwrap_or(0);
        let mut date = start.date();
        let mut first_day = true;
        while date.year() <= start.year().saturating_add(YEARS_AHEAD) {
            if self.matches_day(date) {
                let found = if first_day { self.time_after(from_hour, from_minute) } else { self.time_from(0, 0) };
                if let Some((hour, minute)) = found {
                    let at = date.at(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0);
                    return at.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
                }
            }
            first_day = false;
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }

    /// Whether `now` lies in `[fire, fire + duration)` of some fire time. A schedule that never fires counts as active,
    /// so that a typing error blocks disruption instead of allowing it.
    pub fn is_active(&self, now: Timestamp, duration: SignedDuration) -> bool {
        let Ok(start) = now.checked_sub(duration) else { return true };
        self.next(start).is_none_or(|fire| fire <= now)
    }

    fn matches_day(&self, date: Date) -> bool {
        if !has(self.months, u32::try_from(date.month()).unwrap_or(0)) {
            return false;
        }
        let by_day = has(self.days, u32::try_from(date.day()).unwrap_or(0));
        let by_weekday = has(self.weekdays, weekday_number(date.weekday()));
        if self.both_days { by_day && by_weekday } else { by_day || by_weekday }
    }

    /// Fire times are whole minutes: after 09:30:00 and after 09:30:59 alike the next candidate is 09:31.
    fn time_after(&self, hour: u32, minute: u32) -> Option<(u32, u32)> {
        if minute == 59 { self.time_from(hour + 1, 0) } else { self.time_from(hour, minute + 1) }
    }

    fn time_from(&self, hour: u32, minute: u32) -> Option<(u32, u32)> {
        let in_hour = |low: u32| (low..=59).find(|minute| has(self.minutes, *minute));
        if hour <= 23
            && has(self.hours, hour)
            && let Some(minute) = in_hour(minute)
        {
            return Some((hour, minute));
        }
        let hour = (hour + 1..=23).find(|hour| has(self.hours, *hour))?;
        in_hour(0).map(|minute| (hour, minute))
    }
}

fn has(bits: u64, value: u32) -> bool {
    bits & (1 << value) != 0
}

fn weekday_number(weekday: Weekday) -> u32 {
    u32::try_from(weekday.to_sunday_zero_offset()).unwrap_or(0)
}

fn macro_fields(text: &str) -> Option<&'static str> {
    Some(match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return None,
    })
}

/// The bits of a field, and whether one of its parts is a plain star.
fn field(text: &str, rule: &FieldRule) -> Result<(u64, bool), ScheduleError> {
    let fail = || ScheduleError::Field { field: text.to_owned(), low: rule.low, high: rule.high };
    let (mut bits, mut star) = (0, false);
    // Empty parts are skipped, as in `1,,2`; a field of commas alone allows nothing.
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (part_bits, part_star) = range(part, rule).ok_or_else(fail)?;
        bits |= part_bits;
        star |= part_star;
    }
    Ok((bits, star))
}

fn range(part: &str, rule: &FieldRule) -> Option<(u64, bool)> {
    let (span, step) = match part.split_once('/') {
        Some((span, step)) => (span, Some(number(step)?)),
        None => (part, None),
    };
    let (low, mut high, star) = match span.split_once('-') {
        Some((low, high)) => (value(low, rule)?, value(high, rule)?, false),
        None if span == "*" || span == "?" => (rule.low, rule.high, true),
        None => {
            let only = value(span, rule)?;
            (only, only, false)
        }
    };
    // `5/15` counts from 5 to the end of the field.
    if step.is_some() && !star && !span.contains('-') {
        high = rule.high;
    }
    let step = step.unwrap_or(1);
    if low < rule.low || high > rule.high || low > high || step == 0 {
        return None;
    }
    let bits = (low..=high).step_by(usize::try_from(step).ok()?).fold(0, |bits, value| bits | 1 << value);
    Some((bits, star && step == 1))
}

fn value(text: &str, rule: &FieldRule) -> Option<u32> {
    let named = rule.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match named {
        Some(index) => Some(u32::try_from(index).ok()? + rule.low),
        None => number(text),
    }
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_next(schedule: &str, after: &str, want: Option<&str>) {
        let next = Schedule::parse(schedule).unwrap().next(after.parse().unwrap());
        assert_eq!(next.map(|at| at.to_string()).as_deref(), want, "{schedule} after {after}");
    }

    #[test]
    fn the_next_fire_time_is_strictly_later() {
        check_next("0 9 * * *", "2026-01-01T09:00:00Z", Some("2026-01-02T09:00:00Z"));
        check_next("0 9 * * *", "2026-01-01T08:59:59.5Z", Some("2026-01-01T09:00:00Z"));
        check_next("*/15 * * * *", "2026-01-01T23:59:59Z", Some("2026-01-02T00:00:00Z"));
        check_next("5/20 3 * * *", "2026-01-01T03:25:00Z", Some("2026-01-01T03:45:00Z"));
        check_next("0 0 29 2 *", "2026-01-01T00:00:00Z", Some("2028-02-29T00:00:00Z"));
        check_next("0 0 31 2 *", "2026-01-01T00:00:00Z", None);
        check_next("@weekly", "2026-01-01T00:00:00Z", Some("2026-01-04T00:00:00Z"));
        check_next("@yearly", "2026-01-01T00:00:00Z", Some("2027-01-01T00:00:00Z"));
        check_next("0 0 1 JAN-mar,? *", "2026-01-01T00:00:00Z", Some("2026-02-01T00:00:00Z"));
    }

    #[test]
    fn two_restricted_day_fields_are_alternatives() {
        // 2026-01-01 is a Thursday.
        check_next("0 0 13 * fri", "2026-01-01T00:00:00Z", Some("2026-01-02T00:00:00Z"));
        check_next("0 0 13 * *", "2026-01-01T00:00:00Z", Some("2026-01-13T00:00:00Z"));
        check_next("0 0 * * 1-5", "2026-01-02T00:00:00Z", Some("2026-01-05T00:00:00Z"));
        // A star with a step restricts: every second day, or a Monday.
        check_next("0 0 */2 * 1", "2026-01-03T00:00:00Z", Some("2026-01-05T00:00:00Z"));
        check_next("0 0 */2 * 2", "2026-01-05T00:00:00Z", Some("2026-01-06T00:00:00Z"));
    }

    #[track_caller]
    fn check_active(schedule: &str, hours: i64, now: &str, want: bool) {
        let schedule = Schedule::parse(schedule).unwrap();
        assert_eq!(schedule.is_active(now.parse().unwrap(), SignedDuration::from_hours(hours)), want, "at {now}");
    }

    #[test]
    fn a_window_is_half_open() {
        check_active("0 9 * * *", 8, "2026-01-01T08:59:59Z", false);
        check_active("0 9 * * *", 8, "2026-01-01T09:00:00Z", true);
        check_active("0 9 * * *", 8, "2026-01-01T16:59:59Z", true);
        check_active("0 9 * * *", 8, "2026-01-01T17:00:00Z", false);
        check_active("@daily", 48, "2026-01-01T13:00:00Z", true);
        check_active("0 0 31 2 *", 1, "2026-01-01T13:00:00Z", true);
    }

    #[test]
    fn expressions_outside_the_dialect_are_rejected() {
        for broken in [
            "* * * *",
            "*",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "@often",
            "a * * * *",
            "TZ=UTC 0 9 * * *",
            "-1 * * * *",
            "1- * * * *",
        ] {
            assert!(Schedule::parse(broken).is_err(), "{broken} was read");
        }
    }
}
