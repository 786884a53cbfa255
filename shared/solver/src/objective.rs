//! The objective of a plan: the hourly price of its machines, and the cost of each machine on top of that (ADR 0030).

use whittle_api::karpenter::{BlockDevice, Ec2NodeClass, NodePool};
use whittle_api::labels;
use whittle_api::objective::{Objective, machine_cost};
use whittle_model::scheduling::{Input, Options, Packing};
use whittle_units::{Price, Quantity};

/// More than the price of any machine.
const ABOVE_ANY_PRICE: Price = Price::from_nanos(1_000_000_000_000);
/// The risk of a claim with hardly any types left, as a share of its price: its launch may fail, or it may be interrupted.
const RISK: f64 = 0.25;
/// Hours in a month, as EC2's price list counts them.
const HOURS: f64 = 730.0;
/// The size, in GiB, of a volume for which the node class leaves the size to its image.
const DEFAULT_SIZE: f64 = 20.0;
/// The monthly price of a GiB by volume type in us-east-1; other regions differ by less than half.
const GIB_MONTH: [(&str, f64); 7] =
    [("gp3", 0.08), ("gp2", 0.10), ("io1", 0.125), ("io2", 0.125), ("st1", 0.045), ("sc1", 0.015), ("standard", 0.05)];
/// IOPS and MiB/s included in the price of a gp3 volume, and the monthly price of each beyond that.
const GP3_IOPS: (i64, f64) = (3_000, 0.005);
const GP3_THROUGHPUT: (i64, f64) = (125, 0.04);
/// The monthly price of one provisioned IOPS of io1 and io2.
const IO_IOPS: f64 = 0.065;

/// What each machine of a NodePool costs on top of its price.
pub(crate) fn cost_per_machine(input: &Input<'_>, options: &Options, pool: &NodePool) -> Price {
    match options.objective {
        _ if options.packing == Packing::Reference => Price::ZERO,
        Objective::Cheapest => Price::ZERO,
        Objective::Balanced => {
            let class = &pool.spec.template.spec.node_class_ref.name;
            let class = input.objects.node_classes.iter().find(|known| known.metadata.name == *class);
            volumes(class) + cost_by_annotation(pool).unwrap_or(options.machine_cost)
        }
        Objective::Fewest => ABOVE_ANY_PRICE,
    }
}

/// What the objective `balanced` adds to the price of a claim that has `types` of the `keep` types that it should keep.
pub(crate) fn risk(price: u64, types: usize, keep: usize) -> u64 {
    let missing = keep.saturating_sub(types) as f64 / keep.max(1) as f64;
    (RISK * missing * price as f64) as u64
}

/// Why a NodePool's machine cost is invalid, naming the field; such a value is ignored.
#[must_use]
pub fn machine_cost_fault(pool: &NodePool) -> Option<String> {
    let error = machine_cost(pool.metadata.annotation(labels::MACHINE_COST)?).err()?;
    Some(format!("metadata.annotations[{}]: {error}", labels::MACHINE_COST))
}

/// The machine cost that the NodePool sets; `None` if it sets none or an invalid one.
fn cost_by_annotation(pool: &NodePool) -> Option<Price> {
    machine_cost(pool.metadata.annotation(labels::MACHINE_COST)?).ok()
}

/// What the volumes of one machine of a class cost by the hour, at EC2's public prices in us-east-1.
#[must_use]
pub fn volume_cost(class: &Ec2NodeClass) -> Price {
    volumes(Some(class))
}

/// The hourly price of the volumes of one machine; a node class without volumes counts as one default volume.
fn volumes(class: Option<&Ec2NodeClass>) -> Price {
    let named = class.and_then(|class| class.spec.block_device_mappings.as_deref()).unwrap_or_default();
    let devices: Vec<&BlockDevice> = named.iter().filter_map(|mapping| mapping.ebs.as_ref()).collect();
    let default = BlockDevice::default();
    let devices = if named.is_empty() { vec![&default] } else { devices };
    Price::from_dollars(devices.into_iter().map(monthly_price).sum::<f64>() / HOURS)
}

/// The monthly price of a volume, in dollars. An invalid size counts as the default size: a class with one launches nothing.
fn monthly_price(device: &BlockDevice) -> f64 {
    let size = device.volume_size.as_deref().and_then(|text| text.parse::<Quantity>().ok());
    let gib = size.map_or(DEFAULT_SIZE, |size| size.units_ceil() as f64 / f64::from(1 << 30));
    let kind = device.volume_type.as_deref().unwrap_or("gp3");
    let each = GIB_MONTH.iter().find(|(name, _)| *name == kind).map_or(GIB_MONTH[0].1, |(_, dollars)| *dollars);
    let beyond = |asked: Option<i64>, (free, each): (i64, f64)| asked.unwrap_or(0).saturating_sub(free).max(0) as f64 * each;
    let speed = match kind {
        "gp3" => beyond(device.iops, GP3_IOPS) + beyond(device.throughput, GP3_THROUGHPUT),
        "io1" | "io2" => beyond(device.iops, (0, IO_IOPS)),
        _ => 0.0,
    };
    (gib * each + speed).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::karpenter::BlockDeviceMapping;

    fn class(devices: &[(&str, &str, i64)]) -> Ec2NodeClass {
        let mapping = |(size, kind, iops): &(&str, &str, i64)| {
            let ebs = BlockDevice {
                volume_size: Some((*size).to_owned()),
                volume_type: Some((*kind).to_owned()),
                iops: (*iops > 0).then_some(*iops),
                ..BlockDevice::default()
            };
            BlockDeviceMapping { ebs: Some(ebs), ..BlockDeviceMapping::default() }
        };
        let mut out = Ec2NodeClass::default();
        out.spec.block_device_mappings = Some(devices.iter().map(mapping).collect());
        out
    }

    #[test]
    fn volumes_cost_what_their_class_says_of_them() {
        let hourly = |dollars: f64| Price::from_dollars(dollars / 730.0);
        assert_eq!(volumes(None), hourly(1.6));
        assert_eq!(volumes(Some(&Ec2NodeClass::default())), hourly(1.6));
        assert_eq!(volumes(Some(&class(&[("100Gi", "gp3", 0)]))), hourly(8.0));
        assert_eq!(volumes(Some(&class(&[("100Gi", "gp3", 4_000), ("50Gi", "gp2", 0)]))), hourly(8.0 + 5.0 + 5.0));
        assert_eq!(volumes(Some(&class(&[("8Gi", "io2", 1_000)]))), hourly(66.0));
        assert_eq!(volumes(Some(&class(&[("a lot", "fast", 0)]))), hourly(1.6), "the launch refuses it");
        assert_eq!(volumes(Some(&class(&[("-5Gi", "gp3", -7)]))), Price::ZERO);
    }

    #[test]
    fn a_node_pool_may_say_what_its_machines_cost_besides() {
        let pool = |text: &str| {
            let mut pool = NodePool::default();
            pool.metadata.annotations.insert(labels::MACHINE_COST.to_owned(), text.to_owned());
            pool
        };
        assert_eq!(cost_by_annotation(&pool(" 0.2 ")), Some(Price::from_dollars(0.2)));
        assert_eq!(cost_by_annotation(&pool("much")), None);
        assert_eq!((machine_cost_fault(&pool(" 0.2 ")), machine_cost_fault(&NodePool::default())), (None, None));
        let fault = machine_cost_fault(&pool("much")).unwrap();
        assert!(fault.starts_with("metadata.annotations[whittle.dev/machine-cost]: ") && fault.contains("\"much\""), "{fault}");
        assert_eq!(cost_by_annotation(&NodePool::default()), None);
    }
}
