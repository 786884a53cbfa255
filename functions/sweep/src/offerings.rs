//! Gauges about instance types and their offerings, of the types that the parameter `OfferingMetrics` names.

use crate::Rights;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::ClusterObjects;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::labels;
use whittle_claims::{Claim, NodeClassRecord, ShiftedZones, Stored};
use whittle_ec2::facts::Catalog;
use whittle_model::scheduling::InstanceTypes;
use whittle_ports::{HandleError, RegionStore, Report, Settings, metrics};
use whittle_snapshot::{instance_types, warm};
use whittle_units::{ClusterName, Price};

/// An offering's capacity type and zone.
type Place = (String, String);

/// What the gauges depend on, of one cluster.
pub(crate) type Facts<'a> = (&'a ClusterObjects, &'a [NodeClassRecord], &'a [Stored<Claim>]);

/// Emits the gauges. Without the setting nothing is read; if something cannot be read, the sweep goes on without them.
pub(crate) async fn report_offerings<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    facts: Facts<'_>,
    shifted: &ShiftedZones,
    report: &mut Report,
) {
    if settings.offering_metrics.is_empty() {
        return;
    }
    if let Err(error) = read_and_report(ports, settings, cluster, facts, shifted, report).await {
        tracing::warn!(%error, %cluster, "there are no gauges of offerings");
        report.count("offerings_unseen");
    }
}

async fn read_and_report<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    (objects, classes, claims): Facts<'_>,
    shifted: &ShiftedZones,
    report: &mut Report,
) -> Result<(), HandleError> {
    let Some(blob) = ports.store().catalog().await? else { return Ok(()) };
    let unreadable = |reason: String| HandleError::Unreadable { what: "the region's catalog".to_owned(), reason };
    let catalog = warm::catalog(&blob.value).map_err(|error| unreadable(error.to_string()))?;
    let pools = instance_types(ports, settings, cluster, (objects, classes, claims), shifted.clone()).await?;
    gauges(report, &settings.offering_metrics, &catalog, &pools);
    Ok(())
}

/// Whether one of the names is the type's own, or that of its family.
fn is_named(instance_type: &str, names: &BTreeSet<String>) -> bool {
    let family = instance_type.split('.').next().unwrap_or_default();
    names.contains(instance_type) || names.contains(family)
}

/// The gauges of the named types. Pure.
fn gauges(report: &mut Report, names: &BTreeSet<String>, catalog: &Catalog, pools: &BTreeMap<String, Arc<InstanceTypes>>) {
    let mut prices: BTreeMap<(String, Place), Price> = BTreeMap::new();
    for (instance_type, zones) in catalog.offered.iter().filter(|(name, _)| is_named(name, names)) {
        for zone in zones {
            let place = |capacity_type: &str| (instance_type.clone(), (capacity_type.to_owned(), zone.clone()));
            let spot = catalog.spot.get(instance_type).and_then(|zones| zones.get(zone)).copied();
            prices.extend(spot.map(|price| (place(labels::CAPACITY_SPOT), price)));
            prices.extend(catalog.on_demand_price(instance_type).map(|price| (place(labels::CAPACITY_ON_DEMAND), price)));
        }
    }
    let mut available: BTreeMap<(String, Place), bool> = prices.keys().map(|key| (key.clone(), false)).collect();
    let mut sizes: BTreeMap<&str, &InstanceType> = BTreeMap::new();
    for known in pools.values().flat_map(|types| types.iter()).filter(|known| is_named(&known.name, names)) {
        sizes.insert(&known.name, known);
        for offering in &known.offerings {
            let Some(place) = place_of(offering) else { continue };
            let key = (known.name.clone(), place);
            prices.entry(key.clone()).or_insert(offering.price);
            *available.entry(key).or_default() |= offering.available;
        }
    }
    for (name, known) in sizes {
        report.gauge(metrics::InstanceTypeCpuCores { instance_type: name }, known.capacity.get("cpu"));
        report.gauge(metrics::InstanceTypeMemoryBytes { instance_type: name }, known.capacity.get("memory"));
    }
    for ((instance_type, (capacity_type, zone)), available) in &available {
        report.gauge(metrics::OfferingAvailable { instance_type, capacity_type, zone }, u64::from(*available));
    }
    for ((instance_type, (capacity_type, zone)), price) in &prices {
        report.gauge(metrics::OfferingPrice { instance_type, capacity_type, zone }, *price);
    }
}

fn place_of(offering: &Offering) -> Option<Place> {
    let one = |key: &str| {
        let requirement = offering.requirements.iter().find(|requirement| requirement.key == key)?;
        requirement.values.first().cloned()
    };
    Some((one(labels::CAPACITY_TYPE)?, one(labels::ZONE)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::karpenter::Requirement;
    use whittle_ports::Amount;

    fn price(dollars: f64) -> Price {
        Price::from_dollars(dollars)
    }

    fn offering(capacity_type: &str, zone: &str, available: bool) -> Offering {
        let one = |key: &str, value: &str| Requirement::is_in(key, [value]);
        Offering {
            requirements: vec![one(labels::CAPACITY_TYPE, capacity_type), one(labels::ZONE, zone)],
            price: price(0.1),
            available,
            ..Offering::default()
        }
    }

    fn known(name: &str, offerings: Vec<Offering>) -> Arc<InstanceTypes> {
        let capacity =
            [("cpu", "2"), ("memory", "8Gi")].into_iter().map(|(name, amount)| (name.to_owned(), amount.parse().unwrap())).collect();
        Arc::new(InstanceTypes::from(vec![InstanceType { name: name.to_owned(), offerings, capacity, ..InstanceType::default() }]))
    }

    /// Each gauge as text: the end of its name, its labels, its value.
    fn reported(names: &[&str]) -> Vec<String> {
        let offered = |zones: &[&str]| zones.iter().map(|zone| (*zone).to_owned()).collect::<Vec<_>>();
        let catalog = Catalog {
            offered: [("m5.large", ["a", "b"].as_slice()), ("m5.xlarge", &["a"]), ("m5d.large", &["a"])]
                .map(|(name, zones)| (name.to_owned(), offered(zones)))
                .into(),
            on_demand: ["m5.large", "m5.xlarge", "m5d.large"].map(|name| (name.to_owned(), price(0.1))).into(),
            spot: [("m5.large".to_owned(), [("a".to_owned(), price(0.03))].into())].into(),
            ..Catalog::default()
        };
        let closed = known("m5.large", vec![offering("on-demand", "a", false), offering("spot", "a", false)]);
        let open = known("m5.large", vec![offering("on-demand", "a", true)]);
        let pools = [("closed".to_owned(), closed), ("open".to_owned(), open)].into();
        let mut report = Report::default();
        gauges(&mut report, &names.iter().map(|name| (*name).to_owned()).collect(), &catalog, &pools);
        let text = |gauge: &whittle_ports::Measured| {
            let labels: Vec<&str> = gauge.labels.values().map(String::as_str).collect();
            let amount = match gauge.amount {
                Amount::Count(count) => count.to_string(),
                Amount::Quantity(quantity) => quantity.to_string(),
                Amount::Dollars(price) => format!("{:.2}", price.dollars()),
                Amount::Time(_) => unreachable!("no gauge here is a time"),
            };
            format!("{} {} {amount}", gauge.metric.rsplit('_').next().unwrap(), labels.join(" "))
        };
        report.gauges.iter().map(text).collect()
    }

    #[test]
    fn offerings_of_named_types_are_reported_in_all_zones_and_available_if_to_one_pool() {
        assert_eq!(
            reported(&["m5.large"]),
            [
                "cores m5.large 2",
                "bytes m5.large 8Gi",
                "available on-demand m5.large a 1",
                "available on-demand m5.large b 0",
                "available spot m5.large a 0",
                "estimate on-demand m5.large a 0.10",
                "estimate on-demand m5.large b 0.10",
                "estimate spot m5.large a 0.03",
            ]
        );
    }

    #[test]
    fn a_family_stands_for_its_types_and_not_for_those_that_begin_alike() {
        let of_family = reported(&["m5"]);
        assert!(
            of_family.iter().any(|line| line.contains("m5.xlarge")) && of_family.iter().all(|line| !line.contains("m5d")),
            "{of_family:?}"
        );
        assert_eq!(reported(&["m"]), [""; 0]);
    }
}
