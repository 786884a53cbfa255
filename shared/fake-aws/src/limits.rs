//! Request limits: token buckets per action, refilled by the region's clock.

use std::collections::BTreeMap;
use whittle_units::Timestamp;

/// Actions that have a smaller bucket for calls with neither a filter nor a page size, and that bucket.
const UNFILTERED: (&[&str], Rate) = (
    &[
        "DescribeInstances",
        "DescribeInstanceStatus",
        "DescribeNetworkInterfaces",
        "DescribeSecurityGroups",
        "DescribeSnapshots",
        "DescribeSpotInstanceRequests",
        "DescribeVolumes",
    ],
    Rate { size: 50, per_second: 10 },
);

/// Size of a bucket and tokens per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    size: u32,
    per_second: u32,
}

/// The request limits of an account.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    rates: Vec<(&'static str, Rate)>,
    /// Remaining tokens in thousandths, and when they were computed.
    left: BTreeMap<String, (u64, Timestamp)>,
}

impl Limits {
    /// No limit.
    pub fn none() -> Self {
        Self::default()
    }

    /// The limits that AWS documents for EC2. CreateFleet is a mutating action without a limit of its own, unlike RunInstances.
    pub fn documented() -> Self {
        let of = |action, size, per_second| (action, Rate { size, per_second });
        let rates = vec![
            of("TerminateInstances", 100, 5),
            of("CreateTags", 100, 10),
            of("DescribeSpotPriceHistory", 50, 10),
            of("Describe", 100, 20),
            of("", 50, 5),
        ];
        Self { rates, left: BTreeMap::new() }
    }

    /// Takes a token for a call with these parameters. False if there is none.
    pub(crate) fn grants(&mut self, action: &str, fields: &BTreeMap<String, String>, now: Timestamp) -> bool {
        let Some((_, rate)) = self.rates.iter().find(|(start, _)| action.starts_with(start)) else { return true };
        let is_filtered = fields.keys().any(|field| field == "MaxResults" || field.starts_with("Filter."));
        let (unfiltered, smaller) = UNFILTERED;
        let is_smaller = !is_filtered && unfiltered.contains(&action);
        let bucket = if is_smaller { format!("{action}, unfiltered") } else { action.to_owned() };
        let rate = if is_smaller { smaller } else { *rate };
        let full = u64::from(rate.size) * 1000;
        let (left, since) = self.left.get(&bucket).copied().unwrap_or((full, now));
        let passed = u64::try_from(now.duration_since(since).as_millis()).unwrap_or(0);
        let left = left.saturating_add(passed.saturating_mul(u64::from(rate.per_second))).min(full);
        let granted = left >= 1000;
        self.left.insert(bucket, (if granted { left - 1000 } else { left }, now));
        granted
    }
}
