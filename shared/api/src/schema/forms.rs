//! What to write where a text does not match a pattern: nobody reads a pattern to learn that a size needs its unit.

use super::node_class::VOLUME_SIZE;
use super::node_overlay::{ADJUSTMENT, PRICE};
use super::node_pool::{BUDGET_DURATION, BUDGET_NODES, SCHEDULE};
use super::parts::{DURATION, KEY_PATTERN, LABEL_VALUE_PATTERN, NILLABLE_DURATION};
use crate::runtime::LABEL_VALUE_FORM;

/// What is to be written instead of a text that does not match; none for patterns that say it themselves.
pub(super) fn remedy(pattern: &str, text: &str) -> Option<String> {
    let is_duration = [NILLABLE_DURATION, DURATION, BUDGET_DURATION].contains(&pattern);
    if let Some(hours) = days(text).filter(|_| is_duration) {
        return Some(format!("days are written as hours, {hours}h"));
    }
    let form = match pattern {
        LABEL_VALUE_PATTERN => return Some(format!("write {LABEL_VALUE_FORM}")),
        // Of taints, values have it as well.
        KEY_PATTERN => return Some(format!("write {LABEL_VALUE_FORM}; a key may have a DNS domain and a slash in front")),
        NILLABLE_DURATION => "write hours, minutes and seconds, such as 720h or 1h30m, or Never",
        DURATION => "write hours, minutes and seconds, such as 24h or 1h30m",
        BUDGET_DURATION => "write hours and minutes, such as 8h or 1h30m",
        BUDGET_NODES => "write a number, such as \"5\", or a percentage from 0% to 100%",
        SCHEDULE => "write five fields, such as 0 9 * * mon-fri, or one of @hourly, @daily, @weekly, @monthly, @yearly",
        VOLUME_SIZE => "write a size with its unit, such as 20Gi, from 1Gi to 64T",
        PRICE => "write an amount, such as \"0.05\"",
        ADJUSTMENT => "write a signed amount or percentage, such as \"+0.1\" or \"-10%\"",
        _ => return None,
    };
    Some(form.to_owned())
}

/// The hours of a text such as `30d`.
fn days(text: &str) -> Option<u64> {
    text.strip_suffix('d')?.parse::<u32>().ok().map(|days| u64::from(days) * 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::matches;

    #[test]
    fn a_size_or_a_time_is_told_as_it_is_written() {
        let said = |pattern: &'static str, text: &str| {
            assert!(!matches(pattern, text), "{text}");
            remedy(pattern, text).unwrap_or_default()
        };
        assert!(said(VOLUME_SIZE, "20").contains("such as 20Gi"));
        assert!(said(VOLUME_SIZE, "20GB").contains("such as 20Gi"));
        assert_eq!(said(NILLABLE_DURATION, "30d"), "days are written as hours, 720h");
        assert_eq!(said(DURATION, "2d"), "days are written as hours, 48h");
        assert!(said(NILLABLE_DURATION, "30").contains("or Never"));
        assert!(!said(DURATION, "Never").contains("Never"));
        assert!(said(BUDGET_DURATION, "30s").contains("8h"));
        assert!(said(BUDGET_NODES, "110%").contains("0% to 100%"));
        assert_eq!(said(LABEL_VALUE_PATTERN, "a b"), "write at most 63 letters, digits, -, _ and ., letters or digits at both ends");
        assert!(said(KEY_PATTERN, "a b").ends_with("at both ends; a key may have a DNS domain and a slash in front"));
        assert_eq!(remedy("^cr-[0-9a-z]+$", "30d"), None);
    }

    /// What is told to be written is accepted.
    #[test]
    fn what_is_told_to_be_written_matches() {
        for (pattern, texts) in [
            (NILLABLE_DURATION, &["720h", "1h30m", "Never"][..]),
            (DURATION, &["24h", "1h30m"][..]),
            (BUDGET_DURATION, &["8h", "1h30m"][..]),
            (BUDGET_NODES, &["5", "0%", "100%"][..]),
            (SCHEDULE, &["0 9 * * mon-fri", "@hourly", "@yearly"][..]),
            (VOLUME_SIZE, &["20Gi", "1Gi", "64T"][..]),
            (PRICE, &["0.05"][..]),
            (ADJUSTMENT, &["+0.1", "-10%"][..]),
            (LABEL_VALUE_PATTERN, &["a", "a-b_c.d"][..]),
            (KEY_PATTERN, &["team", "example.com/team"][..]),
        ] {
            texts.iter().for_each(|text| assert!(matches(pattern, text), "{text} is not of the form {pattern}"));
        }
    }
}
