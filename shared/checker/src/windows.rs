//! Schedules of disruption budgets, implemented independently of the decision: minute by minute.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, ToSpan as _, tz::TimeZone};
use std::collections::BTreeSet;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Windows longer than this, over a year, count as always open.
const MINUTES_MAX: i64 = 530_000;

/// Allowed values of the five fields, and which day fields are plain stars.
struct Fields {
    sets: [BTreeSet<u32>; 5],
    day_is_star: bool,
    weekday_is_star: bool,
}

/// Whether `now` is in a window of this length opened by the schedule; `None` when the schedule cannot be parsed. A
/// schedule that never fires counts as always open.
pub(crate) fn is_open(schedule: &str, length: SignedDuration, now: Timestamp) -> Option<bool> {
    let fields = read(schedule)?;
    let minutes = length.as_secs().div_euclid(60) + 1;
    if minutes > MINUTES_MAX {
        return Some(true);
    }
    let utc = now.to_zoned(TimeZone::UTC).datetime();
    let minute = utc.date().at(utc.hour(), utc.minute(), 0, 0);
    for back in 0..=minutes {
        let Ok(at) = minute.checked_sub(back.minutes()) else { return Some(true) };
        let fired = at.to_zoned(TimeZone::UTC).ok()?.timestamp();
        if now.duration_since(fired) >= length {
            break;
        }
        if fires(&fields, at) {
            return Some(true);
        }
    }
    Some(never(&fields, minute))
}

fn read(schedule: &str) -> Option<Fields> {
    let plain = match schedule {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    };
    let parts: Vec<&str> = plain.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = parts[..] else { return None };
    Some(Fields {
        sets: [
            expand(minute, 0, 59, &[])?,
            expand(hour, 0, 23, &[])?,
            expand(day, 1, 31, &[])?,
            expand(month, 1, 12, &MONTHS)?,
            expand(weekday, 0, 6, &DAYS)?,
        ],
        day_is_star: is_star(day),
        weekday_is_star: is_star(weekday),
    })
}

fn is_star(field: &str) -> bool {
    field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"))
}

fn expand(field: &str, low: u32, high: u32, names: &[&str]) -> Option<BTreeSet<u32>> {
    let number = |text: &str| -> Option<u32> {
        if let Some(at) = names.iter().position(|name| *name == text.to_lowercase()) {
            return Some(u32::try_from(at).ok()? + low);
        }
        text.chars().all(|letter| letter.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    };
    let mut out = BTreeSet::new();
    for part in field.split(',').filter(|part| !part.is_empty()) {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        let step: u32 = step.map_or(Some(1), |step| step.parse().ok())?;
        let (from, to) = match (span, span.split_once('-')) {
            ("*" | "?", _) => (low, high),
            (_, Some((from, to))) => (number(from)?, number(to)?),
            (one, None) => (number(one)?, if part.contains('/') { high } else { number(one)? }),
        };
        if step == 0 || from < low || to > high || from > to {
            return None;
        }
        out.extend((from..=to).filter(|value| (value - from) % step == 0));
    }
    Some(out)
}

fn fires(fields: &Fields, at: DateTime) -> bool {
    let has = |set: usize, value: i8| u32::try_from(value).is_ok_and(|value| fields.sets[set].contains(&value));
    has(0, at.minute()) && has(1, at.hour()) && on_day(fields, at)
}

fn on_day(fields: &Fields, at: DateTime) -> bool {
    let has = |set: usize, value: i8| u32::try_from(value).is_ok_and(|value| fields.sets[set].contains(&value));
    let (day, weekday) = (has(2, at.day()), has(4, at.weekday().to_sunday_zero_offset()));
    let fits = if fields.day_is_star || fields.weekday_is_star { day && weekday } else { day || weekday };
    has(3, at.month()) && fits
}

/// Whether the schedule fires on no day of the next five years.
fn never(fields: &Fields, from: DateTime) -> bool {
    fields.sets[0].is_empty()
        || fields.sets[1].is_empty()
        || !(0..5 * 366).any(|day| from.checked_add(day.days()).is_ok_and(|at| on_day(fields, at)))
}
