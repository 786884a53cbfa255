//! Resources and prices of NodeOverlays: EC2 does not know them, only the plan does.

use super::over_sim::{keep_as, run_over};
use super::repeated::with_class;
use crate::batch::Batch;
use futures::executor::block_on;
use std::collections::BTreeSet;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Claim, DeletionReason, ExtraCapacity, OverlaidPrice, Phase, mirror};
use whittle_ec2::facts::Catalog;
use whittle_ports::{CatalogWriter, RecordReader, RegionStore};
use whittle_testkit::TestWorld;
use whittle_units::{Quantity, Resources};

const DEVICE: &str = "example.com/device";

fn of(name: &str, amount: i64) -> Resources {
    Resources::from([(name, Quantity::from_units(amount))])
}

/// A claim that requests a device and allows two types; an overlay adds devices to those in `extra`.
fn requesting_device(simulation: &TestWorld, extra: &[&str]) -> Claim {
    keep_as(simulation, 1, |claim| {
        let types = ["m5.large", "m5.xlarge"];
        claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, types)];
        claim.spec.instance_types = types.map(str::to_owned).to_vec();
        claim.spec.requests = of(DEVICE, 2);
        let instance_types = extra.iter().map(|name| (*name).to_owned()).collect();
        claim.spec.extra_capacity = vec![ExtraCapacity { instance_types, resources: of(DEVICE, 4) }];
    })
}

#[test]
fn overlay_capacity_of_the_plan_is_kept_on_the_claim() {
    let simulation = with_class();
    let claim = requesting_device(&simulation, &["m5.large", "m5.xlarge"]);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    let status = mirror(&simulation.claim(&claim.key)).status;
    let has = [status.capacity.get(DEVICE), status.allocatable.get(DEVICE)].map(Quantity::units_floor);
    assert_eq!(has, [4, 4], "{status:?}");
    assert!(status.allocatable.get("cpu").units_floor() > 0, "besides EC2's own resources");
}

#[test]
fn a_type_without_the_planned_capacity_is_never_launched() {
    for (extra, launched) in [(&["m5.xlarge"][..], Some("m5.xlarge")), (&[], None)] {
        let simulation = with_class();
        let claim = requesting_device(&simulation, extra);
        run_over(&simulation.ports(), &[]);
        let after = simulation.claim(&claim.key);
        assert_eq!(after.machine().map(|machine| machine.instance_type.as_str()), launched, "{:?}", after.phase);
        assert_eq!(matches!(after.phase, Phase::Failed { .. }), launched.is_none());
        let reason = after.deletion.map(|deletion| deletion.reason);
        assert_eq!(reason, launched.is_none().then_some(DeletionReason::InsufficientCapacity), "its pods are replanned");
        assert_eq!(simulation.world().region.machines.len(), usize::from(launched.is_some()));
    }
}

#[test]
fn overlay_huge_pages_reduce_memory_and_overlays_may_reduce_capacity() {
    let simulation = with_class();
    let claim = keep_as(&simulation, 1, |claim| {
        claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["g4dn.xlarge"])];
        let resources = Resources::from([("hugepages-2Mi", Quantity::from_units(1 << 30)), ("nvidia.com/gpu", Quantity::ZERO)]);
        claim.spec.extra_capacity = vec![ExtraCapacity { instance_types: vec!["g4dn.xlarge".to_owned()], resources }];
    });
    let plain = keep_as(&simulation, 2, |claim| {
        claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["g4dn.xlarge"])];
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
    let [changed, plain] = [claim, plain].map(|claim| simulation.claim(&claim.key).machine().unwrap().clone());
    let memory = |machine: &whittle_claims::Machine| machine.allocatable.get("memory").units_floor();
    assert_eq!(memory(&plain) - memory(&changed), 1 << 30);
    let gpus = |machine: &whittle_claims::Machine| machine.capacity.get("nvidia.com/gpu").units_floor();
    assert_eq!((gpus(&plain), gpus(&changed)), (1, 0));
}

/// The type that is launched for a claim that allows two, and the price that the claim records for it.
fn launched(capacity_type: &str, overlaid_prices: Vec<OverlaidPrice>) -> (String, f64) {
    let simulation = with_class();
    let claim = keep_as(&simulation, 1, |claim| {
        claim.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type])];
        claim.spec.instance_types = ["c5.large", "m5.large"].map(str::to_owned).to_vec();
        if !overlaid_prices.is_empty() {
            claim.spec.annotations.insert(labels::PRICE_OVERLAY_APPLIED.to_owned(), "true".to_owned());
        }
        claim.spec.overlaid_prices = overlaid_prices;
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    let machine = simulation.claim(&claim.key).machine().unwrap().clone();
    (machine.instance_type, machine.price.dollars())
}

fn changed(price: &str, instance_type: &str, offerings: &[(&str, &str)]) -> OverlaidPrice {
    let offerings = offerings.iter().map(|(capacity_type, zone)| ((*capacity_type).to_owned(), (*zone).to_owned()));
    OverlaidPrice { price: price.to_owned(), instance_types: vec![instance_type.to_owned()], offerings: offerings.collect::<BTreeSet<_>>() }
}

#[test]
fn the_type_that_overlays_make_cheapest_is_launched_at_their_price() {
    for capacity_type in [labels::CAPACITY_ON_DEMAND, labels::CAPACITY_SPOT] {
        let (own, price) = launched(capacity_type, Vec::new());
        assert_eq!(own, "c5.large", "by EC2's own prices");
        let everywhere = launched(capacity_type, vec![changed("0.001", "m5.large", &[])]);
        assert_eq!(everywhere, ("m5.large".to_owned(), 0.001));
        let dearer = launched(capacity_type, vec![changed("+10", "c5.large", &[])]);
        assert_eq!(dearer.0, "m5.large");
        let elsewhere = launched(capacity_type, vec![changed("0.001", "m5.large", &[(capacity_type, "elsewhere")])]);
        assert_eq!(elsewhere, ("c5.large".to_owned(), price), "a price of another zone changes nothing here");
    }
}

/// The strategy of a spot launch under a changed price of these offerings.
fn spot_strategy(instance_type: &str, offerings: &[(&str, &str)]) -> Option<String> {
    let simulation = with_class();
    let claim = keep_as(&simulation, 1, |claim| {
        claim.spec.annotations.insert(labels::PRICE_OVERLAY_APPLIED.to_owned(), "true".to_owned());
        claim.spec.instance_types = vec!["c5.large".to_owned(), "m5.large".to_owned()];
        claim.spec.overlaid_prices = vec![changed("-10%", instance_type, offerings)];
    });
    run_over(&simulation.ports(), &[]);
    let token = simulation.world().region.machines.values().next().unwrap().instance.tags[labels::TAG_LAUNCH].clone();
    let batch = block_on(simulation.ports().read::<Batch>(&claim.key.cluster, &token)).unwrap().unwrap().value;
    assert_eq!(batch.request.capacity_type, labels::CAPACITY_SPOT);
    batch.request.spot_strategy().map(str::to_owned)
}

#[test]
fn ec2_chooses_among_spot_pools_unless_an_overlay_changes_their_prices() {
    let simulation = with_class();
    let zone = simulation.world().region.network.subnets[0].zone.clone();
    let [spot, on_demand] = [labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND];
    assert_eq!(spot_strategy("m5.large", &[]).as_deref(), Some("capacity-optimized-prioritized"));
    assert_eq!(spot_strategy("m5.large", &[(spot, &zone)]).as_deref(), Some("capacity-optimized-prioritized"));
    for (instance_type, offerings) in
        [("m5.large", [(on_demand, zone.as_str())]), ("m5.large", [(spot, "elsewhere")]), ("r5.large", [(spot, &zone)])]
    {
        assert_eq!(spot_strategy(instance_type, &offerings).as_deref(), Some("price-capacity-optimized"), "{instance_type} {offerings:?}");
    }
}

/// The type that is launched for a claim of a type of which EC2 publishes no price.
fn launched_without_price(overlaid_prices: Vec<OverlaidPrice>) -> Option<String> {
    let simulation = with_class();
    let ports = simulation.ports();
    block_on(async {
        let stored = ports.catalog().await.unwrap().unwrap();
        let mut catalog = Catalog::decode(&stored.value).unwrap();
        catalog.on_demand.remove("m5.large");
        catalog.spot.remove("m5.large");
        ports.put_catalog(&catalog.encode(), stored.revision).await.unwrap();
    });
    let claim = keep_as(&simulation, 1, |claim| {
        claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large"])];
        claim.spec.overlaid_prices = overlaid_prices;
    });
    run_over(&simulation.ports(), &[]);
    simulation.claim(&claim.key).machine().map(|machine| machine.instance_type.clone())
}

#[test]
fn a_type_without_a_price_is_launched_at_that_of_an_absolute_overlay_and_else_never() {
    assert_eq!(launched_without_price(vec![changed("0.2", "m5.large", &[])]).as_deref(), Some("m5.large"));
    assert_eq!(launched_without_price(vec![changed("+0.2", "m5.large", &[])]), None);
    assert_eq!(launched_without_price(Vec::new()), None);
}
