//! Partitions of AWS: groups of regions with endpoints, accounts and ARNs of their own.

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As in ARNs, such as `aws-cn`.
    pub name: &'static str,
    /// The domain of its endpoints, such as `amazonaws.com.cn`.
    pub dns_suffix: &'static str,
}

/// How the regions of each partition but `aws` begin, from the partitions of AWS's SDKs.
const PARTITIONS: &[(&str, Partition)] = &[
    ("cn-", Partition { name: "aws-cn", dns_suffix: "amazonaws.com.cn" }),
    ("us-gov-", Partition { name: "aws-us-gov", dns_suffix: "amazonaws.com" }),
    ("us-iso-", Partition { name: "aws-iso", dns_suffix: "c2s.ic.gov" }),
    ("us-isob-", Partition { name: "aws-iso-b", dns_suffix: "sc2s.sgov.gov" }),
    ("eu-isoe-", Partition { name: "aws-iso-e", dns_suffix: "cloud.adc-e.uk" }),
    ("us-isof-", Partition { name: "aws-iso-f", dns_suffix: "csp.hci.ic.gov" }),
    ("eusc-", Partition { name: "aws-eusc", dns_suffix: "amazonaws.eu" }),
];

impl Partition {
    /// The partition of a region, by the region's name.
    pub fn of(region: &str) -> Self {
        let found = PARTITIONS.iter().find(|(start, _)| region.starts_with(start));
        found.map_or(Self { name: "aws", dns_suffix: "amazonaws.com" }, |(_, partition)| *partition)
    }
}
