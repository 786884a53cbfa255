//! Durations in Go's notation (`1h30m`, `720h0m0s`), as Karpenter's fields write them.

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A span with the text as the user wrote it: compared and hashed by the span, printed as the text.
#[derive(Clone, Debug)]
pub struct GoDuration {
    span: SignedDuration,
    text: String,
}

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write numbers with units such as 30s, 15m or 1h30m")]
pub struct ParseDurationError(pub String);

impl GoDuration {
    /// A duration in Go's canonical notation.
    pub fn new(span: SignedDuration) -> Self {
        Self { span, text: canonical(span) }
    }
    /// Whole seconds, in Go's canonical notation.
    pub fn from_secs(seconds: i64) -> Self {
        Self::new(SignedDuration::from_secs(seconds))
    }
    /// The span.
    pub const fn span(&self) -> SignedDuration {
        self.span
    }
    /// The same span in Go's canonical notation (`90s` becomes `1m30s`).
    #[must_use]
    pub fn canonical(&self) -> Self {
        Self::new(self.span)
    }
}

/// Go's `Duration.String()` for spans of whole milliseconds and more.
fn canonical(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let (sign, seconds) = if seconds < 0 { ("-", seconds.unsigned_abs()) } else { ("", seconds.unsigned_abs()) };
    let millis = span.subsec_millis().unsigned_abs();
    if seconds == 0 && millis > 0 {
        return format!("{sign}{millis}ms");
    }
    let rest = seconds % 60;
    let tail = if millis == 0 { format!("{rest}s") } else { format!("{rest}.{}s", format!("{millis:03}").trim_end_matches('0')) };
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{sign}{tail}"),
        (0, minutes) => format!("{sign}{minutes}m{tail}"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{tail}"),
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseDurationError(text.to_owned());
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self { span: SignedDuration::ZERO, text: text.to_owned() });
        }
        if rest.is_empty() {
            return Err(fail());
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?;
            let (number, tail) = rest.split_at(number_end);
            let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, next) = tail.split_at(unit_end);
            nanos = nanos.saturating_add(part(number, unit).ok_or_else(fail)?);
            rest = next;
        }
        if negative {
            nanos = -nanos;
        }
        // The API server accepts numbers of any length: durations saturate at about 292 years.
        let nanos = i64::try_from(nanos).unwrap_or(if negative { i64::MIN } else { i64::MAX });
        Ok(Self { span: SignedDuration::from_nanos(nanos), text: text.to_owned() })
    }
}

/// Numbers with more digits saturate in every unit.
const DIGITS_MAX: usize = 20;

/// Nanoseconds of one `number unit` pair.
fn part(number: &str, unit: &str) -> Option<i128> {
    let scale: i128 = match unit {
        "ns" => 1,
        // The micro sign, and the Greek letter that looks like it.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > DIGITS_MAX {
        return Some(i128::from(i64::MAX));
    }
    // Digits below a picosecond are ignored.
    let fraction = &fraction[..fraction.len().min(12)];
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let below: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    Some(whole * scale + below * scale / 10i128.pow(u32::try_from(fraction.len()).ok()?))
}

impl PartialEq for GoDuration {
    fn eq(&self, other: &Self) -> bool {
        self.span == other.span
    }
}
impl Eq for GoDuration {}
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A duration or `Never`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum NillableDuration {
    #[default]
    Never,
    After(GoDuration),
}

impl NillableDuration {
    /// The span; `None` for Never.
    pub fn span(&self) -> Option<SignedDuration> {
        match self {
            Self::Never => None,
            Self::After(duration) => Some(duration.span()),
        }
    }
    /// After a number of whole seconds.
    pub fn from_secs(seconds: i64) -> Self {
        Self::After(GoDuration::from_secs(seconds))
    }
}
impl FromStr for NillableDuration {
    type Err = ParseDurationError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "Never" { Ok(Self::Never) } else { text.parse().map(Self::After) }
    }
}
impl fmt::Display for NillableDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("Never"),
            Self::After(duration) => duration.fmt(f),
        }
    }
}
impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
