//! Money per hour.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// A rate in billionths of a US dollar per hour (or of the partition's currency).
///
/// Integers, so that prices sort totally and sums are exact. Billionths rather than millionths, because a reserved
/// offering is priced at a ten-millionth of its on-demand price and must still be ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(u64);

impl Price {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The maximum.
    pub const MAX: Self = Self(u64::MAX);

    /// From billionths of a dollar per hour.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From dollars per hour, rounded to the nearest billionth; negative and non-finite numbers give zero.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range of u64 first")]
    pub fn from_dollars(dollars: f64) -> Self {
        if !dollars.is_finite() || dollars <= 0.0 {
            return Self::ZERO;
        }
        let nanos = (dollars * 1e9).round();
        if nanos >= 1.8e19 { Self::MAX } else { Self(nanos as u64) }
    }

    /// Billionths of a dollar per hour.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Dollars per hour, for output only.
    #[expect(clippy::cast_precision_loss, reason = "output; decisions compare the integers")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The difference, or zero when `other` costs more.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The price of `count` equal units.
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl Add for Price {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Price {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        prices.fold(Self::ZERO, Add::add)
    }
}
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded to the fourth decimal, as price lists print it.
        let ten_thousandths = self.0.saturating_add(50_000) / 100_000;
        write!(f, "${}.{:04}/h", ten_thousandths / 10_000, ten_thousandths % 10_000)
    }
}
impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}
impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self)
    }
}
