//! Whether the window of a cron schedule is open, by trying every minute at which it could have opened.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, ToSpan as _, tz::TimeZone};
use std::collections::BTreeSet;

/// Every day of a schedule occurs within this time: 29 February, except around most turns of a century.
const DAYS_AHEAD: i32 = 5 * 366;

/// The fire times of a schedule, field by field.
struct FireTimes {
    minutes: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    days: BTreeSet<i8>,
    months: BTreeSet<i8>,
    weekdays: BTreeSet<i8>,
    either_day: bool,
}

/// Whether a window of this length that opens at a fire time of the schedule is open now; always if it never fires.
/// `None` when the schedule cannot be parsed.
pub(super) fn is_open(schedule: &str, length: SignedDuration, now: Timestamp) -> Option<bool> {
    let moments = read(schedule)?;
    let now = now.to_zoned(TimeZone::UTC).datetime();
    let this_minute = now.date().at(now.hour(), now.minute(), 0, 0);
    // A window of more than a year is always open.
    let minutes = i32::try_from(length.as_mins()).unwrap_or(i32::MAX).min(527_040);
    let began = |back: i32| {
        this_minute.checked_sub(i64::from(back).minutes()).is_ok_and(|minute| moments.hold(minute) && open(now, minute, length))
    };
    Some((0..=minutes).any(began) || !moments.ever(this_minute))
}

fn open(now: DateTime, since: DateTime, length: SignedDuration) -> bool {
    now.duration_since(since) < length
}

impl FireTimes {
    fn hold(&self, at: DateTime) -> bool {
        self.minutes.contains(&at.minute()) && self.hours.contains(&at.hour()) && self.day(at)
    }
    fn day(&self, at: DateTime) -> bool {
        let weekday = self.weekdays.contains(&at.date().weekday().to_sunday_zero_offset());
        let day = self.days.contains(&at.day());
        self.months.contains(&at.month()) && if self.either_day { day || weekday } else { day && weekday }
    }
    fn ever(&self, from: DateTime) -> bool {
        !self.minutes.is_empty()
            && !self.hours.is_empty()
            && (0..DAYS_AHEAD).any(|days| from.checked_add(days.days()).is_ok_and(|at| self.day(at)))
    }
}

fn read(schedule: &str) -> Option<FireTimes> {
    let text = match schedule {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    };
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields.as_slice() else { return None };
    let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let weekdays = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    // If one of the two day fields is a star, the other decides alone.
    let star = |field: &str| field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"));
    Some(FireTimes {
        minutes: values(minute, 0, 59, &[])?,
        hours: values(hour, 0, 23, &[])?,
        days: values(day, 1, 31, &[])?,
        months: values(month, 1, 12, &months)?,
        weekdays: values(weekday, 0, 6, &weekdays)?,
        either_day: !star(day) && !star(weekday),
    })
}

fn values(field: &str, first: i8, last: i8, names: &[&str]) -> Option<BTreeSet<i8>> {
    let number = |text: &str| -> Option<i8> {
        match names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            Some(at) => Some(first + i8::try_from(at).ok()?),
            None => text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())),
        }
    };
    let mut all = BTreeSet::new();
    for part in field.split(',').filter(|part| !part.is_empty()) {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        let (low, high) = match (span, span.split_once('-'), step) {
            ("*" | "?", ..) => (first, last),
            (_, Some((low, high)), _) => (number(low)?, number(high)?),
            (only, None, Some(_)) => (number(only)?, last),
            (only, None, None) => (number(only)?, number(only)?),
        };
        let step: usize = step.map_or(Some(1), |step| step.parse().ok()).filter(|step| *step > 0)?;
        if low < first || high > last || low > high {
            return None;
        }
        all.extend((low..=high).step_by(step));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_disruption::Schedule;

    #[test]
    fn windows_agree_with_those_of_the_deciding_code() {
        let schedules = [
            "0 9 * * *",
            "*/15 * * * *",
            "5/20 3 * * *",
            "0 0 29 2 *",
            "0 0 31 2 *",
            "@weekly",
            "@daily",
            "@hourly",
            "0 0 1 JAN-mar,? *",
            "0 0 13 * fri",
            "0 0 * * 1-5",
            "0 0 */2 * 1",
            "30 22 1-7,15 */3 *",
            "59 23 31 12 ?",
            "0 8-17/3 * * mon,wed",
            ",,, * * * *",
        ];
        let lengths = [1, 60, 300, 1_500];
        let begin: Timestamp = "2026-02-26T21:57:30Z".parse().unwrap();
        for schedule in schedules {
            let parsed = Schedule::parse(schedule).unwrap();
            for minutes in lengths {
                let length = SignedDuration::from_mins(minutes);
                for step in 0..12 {
                    let now = begin + SignedDuration::from_secs(step * 14_130);
                    assert_eq!(
                        is_open(schedule, length, now),
                        Some(parsed.is_active(now, length)),
                        "{schedule} for {minutes} min at {now}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_invalid_schedule_is_not_parsed() {
        for broken in ["* * * *", "60 * * * *", "* * 0 * *", "* * * * 7", "5-1 * * * *", "*/0 * * * *", "@often", "a * * * *", "1- * * * *"]
        {
            assert_eq!(is_open(broken, SignedDuration::from_mins(5), Timestamp::UNIX_EPOCH), None, "{broken}");
        }
    }
}
