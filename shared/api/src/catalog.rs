//! Instance types and offerings of a NodePool, as decisions use them.
//!
//! Their JSON form is that of the catalog files of `whittle plan`. `whittle_ec2` builds them from EC2's facts for each node class.

use crate::karpenter::Requirement;
use serde::{Deserialize, Serialize};
use whittle_units::{Price, Resources};

/// An instance type, as nodes of one node class have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    pub name: String,
    /// Labels of the nodes as requirements: every well-known key is present, as `DoesNotExist` where it does not apply.
    /// Zone and capacity type are the union over all offerings, available or not.
    pub requirements: Vec<Requirement>,
    pub offerings: Vec<Offering>,
    pub capacity: Resources,
    /// Reserved for kubelet, system and eviction threshold; allocatable is capacity less overhead.
    pub overhead: Resources,
    /// How many volumes of pods the EBS CSI driver is expected to attach to a node; `None`: any number, or nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebs_attachments: Option<u32>,
}

/// An instance type in one zone with one capacity type at one price.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// Capacity type and zone at least; on AWS also zone id and the reservation's keys.
    pub requirements: Vec<Requirement>,
    pub price: Price,
    pub available: bool,
    /// Free instances of a reservation; `None` where the capacity is not reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_capacity: Option<u32>,
}

impl InstanceType {
    /// The single value of a label of the type, if it has exactly one.
    pub fn label(&self, key: &str) -> Option<&str> {
        single(&self.requirements, key)
    }
    /// Whether the capacity covers the overhead: otherwise the kubelet does not start.
    #[must_use]
    pub fn holds_its_overhead(&self) -> bool {
        self.capacity.iter().all(|(name, amount)| self.overhead.get(name) <= amount)
    }
    /// What is allocatable of one resource, as in [`InstanceType::allocatable`], without building the whole.
    pub fn allocatable_of(&self, name: &str) -> whittle_units::Quantity {
        let after = |name: &str| {
            let capacity = self.capacity.get(name);
            self.overhead.0.get(name).map_or(capacity, |overhead| capacity.minus(*overhead).max(whittle_units::Quantity::ZERO))
        };
        if name != "memory" {
            return after(name);
        }
        let huge = self.capacity.iter().map(|(name, _)| name).filter(|name| name.starts_with("hugepages-"));
        huge.fold(after(name), |left, page| left.minus(after(page)).max(whittle_units::Quantity::ZERO))
    }
    /// Allocatable (including daemons' share): capacity minus overhead, never below zero; huge pages are subtracted from memory.
    pub fn allocatable(&self) -> Resources {
        let mut left = self.capacity.clone();
        for (name, amount) in self.overhead.iter() {
            if let Some(entry) = left.0.get_mut(name) {
                *entry = entry.minus(amount).max(whittle_units::Quantity::ZERO);
            }
        }
        let huge: Vec<_> = left.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|(_, amount)| amount).collect();
        if let Some(memory) = left.0.get_mut("memory") {
            for amount in huge {
                *memory = memory.minus(amount).max(whittle_units::Quantity::ZERO);
            }
        }
        left
    }
}

impl Offering {
    /// The single value of a label of the offering.
    pub fn label(&self, key: &str) -> Option<&str> {
        single(&self.requirements, key)
    }
    /// Zone name; empty when the offering has none.
    pub fn zone(&self) -> &str {
        self.label(crate::labels::ZONE).unwrap_or_default()
    }
    /// Whether it can be launched when EC2 has capacity. What has no price, as spot in a zone without spot instances of the type, is not
    /// sold.
    #[must_use]
    pub fn is_sold(&self) -> bool {
        // That of a reservation is a tiny part of another price.
        self.available || self.price > Price::ZERO || self.reservation_capacity.is_some()
    }
    /// Whether it is in a reservation for dedicated machines. Only requirements that name the tenancy allow one: other machines are of
    /// default tenancy, since dedicated ones cost a fee in each region that has one.
    #[must_use]
    pub fn is_dedicated(&self) -> bool {
        self.label(crate::labels::INSTANCE_TENANCY) == Some("dedicated")
    }
    /// on-demand, spot or reserved; empty when the offering has none.
    pub fn capacity_type(&self) -> &str {
        self.label(crate::labels::CAPACITY_TYPE).unwrap_or_default()
    }
}

fn single<'a>(requirements: &'a [Requirement], key: &str) -> Option<&'a str> {
    let requirement = requirements.iter().find(|requirement| requirement.key == key)?;
    match (requirement.operator, requirement.values.as_slice()) {
        (crate::karpenter::Operator::In, [value]) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_volumes_is_written_only_where_there_is_one() {
        let unlimited = InstanceType::default();
        let mut written = serde_json::to_value(&unlimited).expect("a type");
        assert!(written.get("ebsAttachments").is_none());
        assert_eq!(serde_json::from_value::<InstanceType>(written.clone()).expect("a type"), unlimited);
        written["ebsAttachments"] = 25.into();
        assert_eq!(serde_json::from_value::<InstanceType>(written).expect("a type").ebs_attachments, Some(25));
    }

    #[test]
    fn what_is_out_of_stock_is_sold_and_what_has_no_price_is_not() {
        let unknown = Offering::default();
        assert!(!unknown.is_sold());
        assert!(Offering { available: true, ..unknown.clone() }.is_sold(), "as in a catalog that is given");
        assert!(Offering { price: Price::from_nanos(1), ..unknown.clone() }.is_sold());
        assert!(Offering { reservation_capacity: Some(0), ..unknown }.is_sold(), "a reservation that is full");
    }

    #[test]
    fn one_allocatable_amount_is_that_of_the_whole() {
        let of = |pairs: &[(&str, &str)]| {
            let mut all = Resources::new();
            pairs.iter().for_each(|(name, amount)| all.set(name, amount.parse().expect("a quantity")));
            all
        };
        let capacity = of(&[("cpu", "4"), ("memory", "16Gi"), ("hugepages-2Mi", "1Gi"), ("hugepages-1Gi", "2Gi"), ("pods", "58")]);
        for overhead in [
            of(&[]),
            of(&[("cpu", "90m"), ("memory", "1Gi"), ("ephemeral-storage", "1Gi")]),
            of(&[("cpu", "5"), ("memory", "20Gi"), ("hugepages-2Mi", "512Mi")]),
            of(&[("memory", "14Gi")]),
        ] {
            let instance_type = InstanceType { capacity: capacity.clone(), overhead, ..InstanceType::default() };
            let whole = instance_type.allocatable();
            for name in ["cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "pods", "ephemeral-storage", "nvidia.com/gpu"] {
                assert_eq!(instance_type.allocatable_of(name), whole.get(name), "{name} of {:?}", instance_type.overhead);
            }
        }
    }
}
