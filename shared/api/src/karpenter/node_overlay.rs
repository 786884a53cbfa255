//! NodeOverlay `karpenter.sh/v1alpha1` (api 7).

use super::node_pool::Requirement;
use crate::meta::{Condition, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use whittle_units::{Price, Resources};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOverlay {
    pub metadata: ObjectMeta,
    pub spec: NodeOverlaySpec,
    #[serde(default)]
    pub status: NodeOverlayStatus,
}
crate::k8s::kind!(NodeOverlay, "karpenter.sh/v1alpha1", "NodeOverlay", "nodeoverlays", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlaySpec {
    #[serde(deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    /// Absolute price per hour, decimal text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// `+0.1`, `-10%`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub capacity: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeOverlayStatus {
    pub conditions: Vec<Condition>,
}

/// The price of an offering under an overlay's `price` or `priceAdjustment`: an empty text keeps it, `0.5` replaces it, and `+0.1`, `-0.1`,
/// `+10%` and `-10%` change it, but not below zero. `None` for any other text, and for amounts beyond a million dollars.
#[must_use]
pub fn adjusted_price(price: Price, text: &str) -> Option<Price> {
    if text.is_empty() {
        return Some(price);
    }
    let (sign, rest) = match text.as_bytes()[0] {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => (0, text),
    };
    let (number, percent) = rest.strip_suffix('%').map_or((rest, false), |number| (number, true));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) || (percent && sign == 0) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    // In billionths, of a dollar or of a per cent; smaller fractions are truncated.
    let nanos: i128 = format!("{whole}{fraction:0<9.9}").parse().ok()?;
    let (before, most) = (i128::from(price.nanos()), i128::from(PRICE_MAX.nanos()));
    if nanos > if percent { 100 * most } else { most } {
        return None;
    }
    let after = match (sign, percent) {
        (0, _) => nanos,
        (sign, false) => before + sign * nanos,
        (sign, true) => before + sign * (before * nanos / 100_000_000_000),
    };
    Some(Price::from_nanos(u64::try_from(after.clamp(0, most)).unwrap_or_default()))
}

/// The most that a machine may cost an hour: far more than the dearest one does, and so little that the sum over a cluster is a price.
const PRICE_MAX: Price = Price::from_nanos(1_000_000_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_replaced_or_changed_and_never_negative() {
        let of = |text: &str| adjusted_price(Price::from_dollars(2.0), text).map(Price::dollars);
        for (text, expected) in [
            ("", 2.0),
            ("0.5", 0.5),
            ("3", 3.0),
            ("+0.1", 2.1),
            ("-0.1", 1.9),
            ("-5", 0.0),
            ("+10%", 2.2),
            ("-10%", 1.8),
            ("-100%", 0.0),
            ("+.5", 2.5),
            ("-12.5%", 1.75),
            ("1000000", 1e6),
            ("0.0416666666666666666666", 0.041_666_666),
            ("00000000000000000000001.5", 1.5),
            ("0", 0.0),
            ("+100000000%", 1e6),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
        for text in ["x", "1%", "+", "-%", "1.2.3", "+1e3", "9999999999999999999", "99999999999999999999999999999999999999999.5"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
