//! Kubernetes quantities in integers.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// An amount of a resource in thousandths of its unit (millicores, milli-bytes, milli-pods).
///
/// Parsing rounds up to the next thousandth, as Kubernetes' `MilliValue` does. Amounts beyond about 9 × 10^15 units
/// saturate: they are larger than any real amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i64);

/// Text that is not a Kubernetes quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity: write a number with an optional suffix such as 500m, 2, 1.5Gi or 3e6")]
pub struct ParseQuantityError(pub String);

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The maximum.
    pub const MAX: Self = Self(i64::MAX);

    /// From thousandths of a unit.
    pub const fn from_milli(milli: i64) -> Self {
        Self(milli)
    }
    /// From whole units (cores, bytes, pods).
    pub const fn from_units(units: i64) -> Self {
        Self(units.saturating_mul(1000))
    }
    /// From binary mebibytes.
    pub const fn from_mebibytes(mebibytes: i64) -> Self {
        Self::from_units(mebibytes.saturating_mul(1 << 20))
    }
    /// Thousandths of a unit.
    pub const fn milli(self) -> i64 {
        self.0
    }
    /// Whole units, rounded up.
    pub const fn units_ceil(self) -> i64 {
        self.0.div_euclid(1000) + if self.0.rem_euclid(1000) == 0 { 0 } else { 1 }
    }
    /// Whole units, rounded down.
    pub const fn units_floor(self) -> i64 {
        self.0.div_euclid(1000)
    }
    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// Whether it is at least half and at most twice as much as what was expected.
    #[must_use]
    pub const fn is_about(self, expected: Self) -> bool {
        self.0.saturating_mul(2) >= expected.0 && self.0 <= expected.0.saturating_mul(2)
    }
    /// Sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
    /// Difference, saturating; may be negative.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// Product with a whole number, saturating.
    #[must_use]
    pub const fn times(self, count: i64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseQuantityError(text.to_owned()))
    }
}

/// Numerator and denominator of a suffix, in thousandths of a unit; `None` for an unknown one.
fn suffix_scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (10i128.pow(12), 1),
        "T" => (10i128.pow(15), 1),
        "P" => (10i128.pow(18), 1),
        "E" => (10i128.pow(21), 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        "Ei" => (1_000i128 << 60, 1),
        _ => return None,
    })
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (mut numerator, mut denominator) = match suffix.strip_prefix(['e', 'E']) {
        Some(exponent) if !exponent.is_empty() && exponent != "i" => {
            let exponent = exponent_of(exponent)?;
            let power = 10i128.pow(exponent.unsigned_abs().min(24));
            if exponent < 0 { (1_000, power) } else { (1_000i128.saturating_mul(power), 1) }
        }
        _ => suffix_scale(suffix)?,
    };
    // Digits beyond the 18th after the point are ignored, except that they still round up.
    let (kept, lost) = fraction.split_at(fraction.len().min(18));
    let digits: i128 = parse_digits(whole)?.saturating_mul(10i128.pow(u32::try_from(kept.len()).ok()?)).saturating_add(parse_digits(kept)?);
    denominator = denominator.saturating_mul(10i128.pow(u32::try_from(kept.len()).ok()?));
    numerator = numerator.saturating_mul(digits);
    let magnitude = numerator.div_euclid(denominator);
    let inexact = numerator.rem_euclid(denominator) != 0 || lost.bytes().any(|b| b != b'0');
    let rounded = if negative {
        -magnitude // rounding up means toward zero here
    } else {
        magnitude.saturating_add(i128::from(inexact))
    };
    Some(Quantity(i64::try_from(rounded).unwrap_or(if negative { i64::MIN } else { i64::MAX })))
}

/// A decimal exponent. The API server accepts any length: beyond these bounds the result is the same.
fn exponent_of(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse().unwrap_or(i32::MAX);
    Some(if text.starts_with('-') { -size } else { size })
}

fn parse_digits(digits: &str) -> Option<i128> {
    if digits.is_empty() {
        return Some(0);
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // More than 20 significant digits exceed every limit anyway.
    let significant = digits.trim_start_matches('0');
    if significant.len() > 20 {
        Some(10i128.pow(20))
    } else if significant.is_empty() {
        Some(0)
    } else {
        significant.parse().ok()
    }
}

const BINARY: [(i64, &str); 5] = [(1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
const DECIMAL: [(i64, &str); 5] =
    [(10i64.pow(15), "P"), (10i64.pow(12), "T"), (10i64.pow(9), "G"), (10i64.pow(6), "M"), (10i64.pow(3), "k")];
/// Multiples of a mebibyte were given with a binary suffix, and multiples of a million that are none with a decimal one.
const OF_BYTES: [(i64, &str); 10] =
    [BINARY[0], BINARY[1], BINARY[2], BINARY[3], DECIMAL[0], DECIMAL[1], DECIMAL[2], DECIMAL[3], BINARY[4], DECIMAL[4]];

/// Whether amounts of a resource are bytes.
fn is_of_bytes(resource: &str) -> bool {
    resource.ends_with("memory") || resource.ends_with("storage") || resource.starts_with("hugepages-")
}

impl Quantity {
    /// The text of an amount of this resource in Kubernetes' canonical form: no fraction, and the largest suffix that leaves none. Binary
    /// suffixes are for bytes, so that 1,024 cores are `1024`, and 1,024 bytes `1Ki`.
    pub fn text_of(self, resource: &str) -> String {
        if is_of_bytes(resource) { self.to_string() } else { self.text(&DECIMAL) }
    }

    fn text(self, suffixes: &[(i64, &str)]) -> String {
        if self.0 % 1000 != 0 {
            return format!("{}m", self.0);
        }
        let units = self.0 / 1000;
        match suffixes.iter().find(|(scale, _)| units != 0 && units % scale == 0) {
            Some((scale, suffix)) => format!("{}{suffix}", units / scale),
            None => units.to_string(),
        }
    }
}

impl fmt::Display for Quantity {
    /// The canonical form of an amount of bytes; for amounts of a known resource there is [`Quantity::text_of`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&OF_BYTES))
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as 500m, 2 or 1.5Gi")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }
    fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(units))
    }
    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
        Ok(i64::try_from(units).map_or(Quantity::MAX, Quantity::from_units))
    }
    fn visit_f64<E: de::Error>(self, units: f64) -> Result<Quantity, E> {
        // The API server accepts a fraction only as a string; files are read more leniently.
        format!("{units}").parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}
