//! Exhausted subnets and quotas, which say nothing about EC2's capacity.

use super::over_sim::{class_in, keep, keep_as, know, run_over};
use super::repeated::with_class;
use crate::addresses::{SubnetUse, Use, free_addresses};
use crate::machine::with_pools;
use futures::executor::block_on;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{Requirement, ResolvedSubnet};
use whittle_api::labels;
use whittle_claims::{Claim, NodeClassRecord, OfferingKey, Phase, StockOut};
use whittle_ec2::fleet::{FleetConfig, FleetOverride, FleetPoolError, FleetRequest};
use whittle_ec2::network::Subnet;
use whittle_ports::metrics::Metric;
use whittle_ports::{Amount, RecordReader, Records, RegionStore, metrics};
use whittle_sim::Simulation;
use whittle_snapshot::unavailable;
use whittle_testkit::{TestWorld, at};
use whittle_units::{ClusterName, Price};

const ZONE: &str = "us-west-2a";

/// A class with two subnets in each zone: the first has `addresses` free addresses, the second a few less.
fn with_two_subnets(addresses: u32) -> TestWorld {
    let simulation = with_class();
    change_class(&simulation, |class| {
        let zones = class.subnets.clone();
        class.subnets.extend(zones.iter().map(|subnet| ResolvedSubnet { id: format!("{}-second", subnet.id), ..subnet.clone() }));
        class.free_addresses = class.subnets.iter().map(|subnet| (subnet.id.clone(), addresses)).collect();
        class.free_addresses.iter_mut().filter(|(id, _)| id.ends_with("-second")).for_each(|(_, free)| *free -= 10);
    });
    simulation
}

/// Changes the class as it is stored.
fn change_class(simulation: &Simulation, change: impl FnOnce(&mut NodeClassRecord)) {
    let (cluster, ports) = (ClusterName::new("c"), simulation.ports());
    let stored = block_on(ports.read::<NodeClassRecord>(&cluster, "gone")).unwrap().unwrap();
    let mut class = stored.value;
    change(&mut class);
    block_on(ports.write(&cluster, &class, stored.revision)).unwrap();
}

fn in_zone(claim: &mut Claim) {
    claim.spec.requirements.push(Requirement::is_in(labels::ZONE, [ZONE]));
}

fn known(simulation: &Simulation) -> Vec<StockOut> {
    let now = simulation.world().now();
    block_on(simulation.ports().stock_outs(now)).unwrap()
}

/// The number of instances by subnet.
fn subnets_of(simulation: &Simulation) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for machine in simulation.world().region.machines.values() {
        *found.entry(machine.instance.subnet_id.clone()).or_default() += 1;
    }
    found
}

#[test]
fn a_full_subnet_blocks_no_type_of_its_zone_and_the_next_launch_uses_another() {
    let simulation = with_two_subnets(100);
    let first = format!("subnet-{ZONE}");
    let full = Subnet { id: first.clone(), zone: ZONE.into(), ..Subnet::default() };
    simulation.world().region.network.subnets.push(full);
    let refused = keep_as(&simulation, 1, in_zone);
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!(report.counted("failed"), 1);
    let failure = report.metrics.iter().find(|metric| metric.metric == metrics::InstanceLaunchFailures::ENTRY.name).unwrap();
    let zone_id = simulation.world().region.catalog.zone_id(ZONE).to_owned();
    assert_eq!((failure.labels["zone"].as_str(), &failure.labels["zone_id"]), (ZONE, &zone_id));
    assert!(matches!(simulation.claim(&refused.key).phase, Phase::Failed { .. }));
    let outs = known(&simulation);
    assert_eq!(outs.iter().map(|out| &out.offering).collect::<Vec<_>>(), [&OfferingKey::of_subnet(&first)], "the subnet, and nothing else");
    assert_eq!(outs[0].until, at(180));
    let closed = unavailable(&outs, at(0));
    assert!(closed.pools.is_empty() && closed.capacity_types.is_empty() && closed.quotas.is_empty());
    let next = keep_as(&simulation, 2, in_zone);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    assert!(simulation.claim(&next.key).machine().is_some());
    assert_eq!(subnets_of(&simulation), [(format!("{first}-second"), 1)].into());
}

/// Whatever EC2 calls it: a launch that asked for an address alone may have found one.
#[test]
fn a_subnet_that_refuses_prefixes_is_closed_to_launches_with_prefixes_alone() {
    let (first, second) = (format!("subnet-{ZONE}"), format!("subnet-{ZONE}-second"));
    for (code, message) in [
        ("InsufficientCidrBlocks", "The specified subnet does not have enough free cidr blocks."),
        ("InvalidParameterValue", "There aren't sufficient free Ipv4 addresses or prefixes"),
        ("InsufficientFreeAddressesInSubnet", "There are not enough free addresses."),
    ] {
        let simulation = with_two_subnets(100);
        change_class(&simulation, |class| class.class.spec.ip_prefix_count = Some(2));
        simulation.world().region.refusal = Some((code.to_owned(), message.to_owned()));
        keep_as(&simulation, 1, in_zone);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1, "{code}");
        let outs = known(&simulation);
        let keys: Vec<&OfferingKey> = outs.iter().map(|out| &out.offering).collect();
        assert_eq!(keys, [&OfferingKey::of_subnet_prefixes(&first)], "{code}");
        simulation.world().region.refusal = None;
        keep_as(&simulation, 2, in_zone);
        run_over(&simulation.ports(), &[]);
        assert_eq!(subnets_of(&simulation), [(second.clone(), 1)].into(), "{code}");
        change_class(&simulation, |class| class.class.spec.ip_prefix_count = None);
        keep_as(&simulation, 3, in_zone);
        run_over(&simulation.ports(), &[]);
        assert_eq!(subnets_of(&simulation), [(first.clone(), 1), (second.clone(), 1)].into(), "{code}");
    }
}

#[test]
fn calls_of_one_run_do_not_all_use_the_same_subnet() {
    let simulation = with_two_subnets(2000);
    for number in 0..250 {
        keep_as(&simulation, number, in_zone);
    }
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 250);
    let used = subnets_of(&simulation);
    assert_eq!(used.len(), 2, "{used:?}");
    assert!(used.values().all(|machines| *machines >= 50), "{used:?}");
    let noted = block_on(simulation.ports().read::<SubnetUse>(&ClusterName::new("c"), SubnetUse::NAME)).unwrap().unwrap().value;
    let batches: BTreeSet<&String> = noted.recent.iter().map(|one| &one.batch).collect();
    assert_eq!(batches.len(), 3, "the next run knows what each call took");
}

#[test]
fn addresses_used_since_the_count_are_subtracted_once() {
    let simulation = with_class();
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let class =
        NodeClassRecord { free_addresses: [("a".to_owned(), 100), ("b".to_owned(), 10)].into(), resolved_at: at(60), ..class_in(&catalog) };
    let one = |subnet: &str, addresses, second| Use { batch: "x".into(), subnet: subnet.into(), addresses, at: at(second) };
    let uses = [one("a", 30, 50), one("a", 20, 58), one("a", 5, 70), one("b", 50, 70), one("elsewhere", 1, 70)];
    assert_eq!(free_addresses(&class, &uses), [("a".to_owned(), 75), ("b".to_owned(), 0)].into(), "EC2 had counted the first");
}

#[test]
fn an_exhausted_quota_is_one_stock_out_of_a_minute_and_an_event_on_the_pool() {
    let mut simulation = with_class();
    let message = "You have requested more vCPU capacity than your current vCPU limit of 32 allows";
    simulation.world().region.refusal = Some(("VcpuLimitExceeded".into(), message.into()));
    for (number, begun) in [(1, 0), (2, 60), (3, 121)] {
        simulation.run_until(at(begun));
        keep_as(&simulation, number, |claim| {
            claim.created_at = at(begun);
            claim.spec.node_pool = "default".into();
            claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large", "c5.large", "r5.xlarge"])];
        });
        assert_eq!(run_over(&simulation.ports(), &[]).counted("quota"), 1);
        let outs = known(&simulation);
        let held: Vec<_> = outs.iter().filter(|out| out.holds(at(begun))).collect();
        let [out] = held.as_slice() else { panic!("{held:?}") };
        assert_eq!((out.offering.quota(), out.offering.capacity_type.as_str()), (Some("standard"), "spot"));
        assert_eq!(out.offering.vcpus, Some(2), "what the smallest of them has");
        assert!(out.until.duration_since(at(begun)) <= whittle_units::SignedDuration::from_secs(61), "never longer: {}", out.until);
        let closed = unavailable(&outs, at(begun));
        assert!(closed.pools.is_empty() && closed.capacity_types.is_empty(), "other families and on-demand machines stay open");
    }
    let world = simulation.world();
    let event = world.cluster.events.iter().find(|kept| kept.event.reason == "QuotaExceeded").unwrap();
    assert_eq!((event.event.kind.as_str(), event.event.name.as_str(), event.event.warning), ("NodePool", "default", true));
    assert!(event.event.message.contains("Service Quotas") && event.event.message.contains(message), "{}", event.event.message);
}

#[test]
fn what_a_quota_has_left_is_open_to_smaller_machines() {
    let simulation = with_class();
    simulation.world().region.supply.vcpus.insert(("standard".into(), "on-demand".into()), 5);
    let of_type = |number: usize, name: &'static str| {
        keep_as(&simulation, number, |claim| {
            let kind = Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]);
            claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, [name]), kind];
        })
    };
    of_type(1, "m5.4xlarge");
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("failed"), report.counted("quota")), (1, 1));
    let outs = known(&simulation);
    let sizes: Vec<_> = outs.iter().map(|out| (out.offering.quota(), out.offering.vcpus)).collect();
    assert_eq!(sizes, [(Some("standard"), Some(16))]);
    let (small, large) = (of_type(2, "m5.xlarge"), of_type(3, "c5.4xlarge"));
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("launched"), report.counted("failed"), report.counted("quota")), (1, 1, 0), "EC2 is asked for one of them");
    assert!(simulation.claim(&small.key).machine().is_some() && simulation.claim(&large.key).machine().is_none());
}

#[test]
fn the_fleet_quota_blocks_no_offering_and_fails_no_claim() {
    let mut simulation = with_class();
    simulation.world().region.refusal = Some(("MaxFleetCountExceeded".into(), "too many fleets".into()));
    let claim = keep(&simulation, 1);
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("failed"), report.counted("quota"), report.counted("retried")), (0, 1, 1));
    assert_eq!(known(&simulation), []);
    assert!(matches!(simulation.claim(&claim.key).phase, Phase::Launching { .. }));
    simulation.world().region.refusal = None;
    simulation.run_until(at(40));
    assert_eq!(run_over(&simulation.ports(), &[claim.key.name]).counted("launched"), 1);
}

#[test]
fn a_launch_that_needs_user_action_is_reported() {
    for (code, message, reason, words) in [
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no role", "SpotSLRCreationFailed", "create-service-linked-role"),
        ("UnauthorizedOperation", "with an explicit deny in a service control policy", "Unauthorized", "service control policy"),
        (
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.",
            "LaunchFailed",
            "spec.associatePublicIPAddress of the node class",
        ),
        ("UnauthorizedOperation", "with an explicit deny in an identity-based policy", "Unauthorized", "a statement of a policy denies"),
        (
            "InvalidBlockDeviceMapping",
            "Volume of size 8GB is smaller than snapshot 'snap-1', expect size >= 20GB",
            "LaunchFailed",
            "raise volumeSize in spec.blockDeviceMappings",
        ),
        (
            "VolumeTypeNotAvailableInZone",
            "The zone does not support it.",
            "LaunchFailed",
            "volumeType in spec.blockDeviceMappings of a node class",
        ),
        ("InvalidParameterCombination", "The parameter iops is not supported for gp2 volumes.", "LaunchFailed", "iops is not supported"),
        ("SomethingNew", "EC2 has a new reason.", "LaunchFailed", "correct what it names, in the node class"),
    ] {
        let simulation = with_class();
        simulation.world().region.refusal = Some((code.into(), message.into()));
        keep_as(&simulation, 1, |claim| claim.spec.node_pool = "default".into());
        let report = run_over(&simulation.ports(), &[]);
        assert_eq!(report.counted("refused"), 1, "{code}");
        let counted = report.metrics.iter().find(|metric| metric.metric == "whittle_launches_refused_total").unwrap();
        assert_eq!((counted.labels["reason"].as_str(), counted.labels["nodepool"].as_str()), (reason, "default"));
        let world = simulation.world();
        let event = world.cluster.events.iter().find(|kept| kept.event.reason == "LaunchRefused").unwrap();
        assert_eq!((event.event.kind.as_str(), event.event.warning), ("NodePool", true));
        let message = &event.event.message;
        assert!(message.contains(words) && message.contains(code), "{message}");
        assert!(message.contains("Asked for 1 of ") && message.contains(" in us-west-2a"), "{message}");
        assert!(message.contains("by node class gone"), "{message}");
    }
    // What passes by itself is not reported, and neither is a transient failure.
    for (code, message) in [("InvalidParameterValue", "Invalid IAM Instance Profile name"), ("Unavailable", "overloaded")] {
        let simulation = with_class();
        simulation.world().region.refusal = Some((code.into(), message.into()));
        keep(&simulation, 1);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("refused"), 0, "{code}");
    }
    let simulation = with_class();
    simulation.world().region.refusal = Some(("InsufficientInstanceCapacity".into(), "none left".into()));
    keep(&simulation, 1);
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!(report.counted("refused"), 0);
    // But it counts as a failure of its pool.
    let of_pools = report.metrics.iter().filter(|metric| metric.metric == "karpenter_cloudprovider_instance_launch_failures_total");
    let failures: Vec<_> = of_pools.map(|metric| (metric.labels["capacity_type"].as_str(), metric.labels["reason"].as_str())).collect();
    assert!(!failures.is_empty() && failures.iter().all(|(_, reason)| *reason == "LaunchFailed"), "{failures:?}");
    let observed = |name: &str| report.observations.iter().find(|value| value.metric.ends_with(name)).unwrap();
    assert_eq!((&observed("batch_size").amount, observed("batch_size").labels["batcher"].as_str()), (&Amount::Count(1), "create_fleet"));
    assert!(matches!(observed("batch_time_seconds").amount, Amount::Time(waited) if !waited.is_negative()));
    let bytes = report.gauges.iter().find(|gauge| gauge.metric.ends_with("userdata_bytes")).unwrap();
    assert!(matches!(bytes.amount, Amount::Count(1..)) && bytes.labels["nodeclass"] == "gone", "{bytes:?}");
}

/// A class that has just been made has an instance profile that EC2 learns of some seconds later.
#[test]
fn a_launch_that_something_new_holds_up_is_tried_again_soon_and_others_are_not() {
    for (code, message, seconds) in [
        ("InvalidParameterValue", "Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", 5),
        ("RequestLimitExceeded", "Request limit exceeded.", 5),
        ("UnauthorizedOperation", "You are not authorized to perform this operation.", 30),
        ("MaxFleetCountExceeded", "too many fleets", 30),
        ("InvalidParameterCombination", "The parameter iops is not supported for gp2 volumes.", 30),
    ] {
        let mut simulation = with_class();
        simulation.world().region.refusal = Some((code.into(), message.into()));
        let claim = keep(&simulation, 1);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("retried"), 1, "{code}");
        assert_eq!(simulation.claim(&claim.key).look_again_at, Some(at(seconds)), "{code}");
        simulation.world().region.refusal = None;
        simulation.run_until(at(seconds));
        assert_eq!(run_over(&simulation.ports(), &[claim.key.name]).counted("launched"), 1, "{code}");
    }
}

/// Whoever creates the role does not wait until half an hour has passed.
#[test]
fn a_missing_role_for_spot_closes_that_market_for_three_minutes_each_time() {
    let mut simulation = with_class();
    simulation.world().region.refusal = Some(("AuthFailure.ServiceLinkedRoleCreationNotPermitted".into(), "no role".into()));
    for (number, begun) in [(1, 0), (2, 181), (3, 362)] {
        simulation.run_until(at(begun));
        keep_as(&simulation, number, |claim| claim.created_at = at(begun));
        assert_eq!(run_over(&simulation.ports(), &[]).counted("refused"), 1, "at {begun}");
        let held: Vec<StockOut> = known(&simulation).into_iter().filter(|out| out.holds(at(begun))).collect();
        let closed: Vec<_> = held.iter().map(|out| (out.offering.to_string(), out.until)).collect();
        assert_eq!(closed, [("spot * in *".to_owned(), at(begun + 180))]);
    }
}

#[test]
fn a_full_spread_group_blocks_nothing_for_others() {
    let simulation = with_class();
    let message = "You have reached the limit of instances in this spread placement group";
    simulation.world().region.refusal = Some(("InsufficientInstanceCapacity".into(), message.into()));
    keep(&simulation, 1);
    run_over(&simulation.ports(), &[]);
    assert_eq!(known(&simulation), []);
}

/// EC2 says either of a spot market, not of the type: on-demand machines are started where the claim allows them, and nobody asks for the
/// same at once.
#[test]
fn a_spot_market_that_is_too_dear_or_that_a_zone_lacks_is_closed_and_on_demand_is_taken() {
    let price = "Your Spot request price of 0.096 is lower than the minimum required Spot request fulfillment price of 0.0961.";
    let zone = "Your requested instance type (m5.large) is not supported in your requested Availability Zone (us-west-2a).";
    let of_either = |claim: &mut Claim| {
        let kinds = Requirement::is_in(labels::CAPACITY_TYPE, ["spot", "on-demand"]);
        claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large"]), kinds];
    };
    for (code, message) in [("SpotMaxPriceTooLow", price), ("InvalidFleetConfiguration", zone)] {
        let simulation = with_class();
        simulation.world().region.refusal = Some((code.into(), message.into()));
        let refused = keep_as(&simulation, 1, of_either);
        let report = run_over(&simulation.ports(), &[]);
        assert_eq!((report.counted("failed"), report.counted("refused"), report.counted("quota")), (1, 0, 0), "{code}");
        assert!(matches!(simulation.claim(&refused.key).phase, Phase::Failed { .. }), "its pods are planned again");
        let outs = known(&simulation);
        let is_market = |out: &StockOut| out.offering.capacity_type == "spot" && out.offering.node_class.is_none() && out.until == at(180);
        assert!(!outs.is_empty() && outs.iter().all(is_market), "{code}: {outs:?}");
        assert_eq!(unavailable(&outs, at(0)).pools.len(), outs.len(), "each is a type in a zone: {outs:?}");
        simulation.world().region.refusal = None;
        let next = keep_as(&simulation, 2, of_either);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1, "{code}");
        assert_eq!(simulation.claim(&next.key).machine().map(|machine| machine.capacity_type.as_str()), Some("on-demand"));
    }
}

/// A second class in the world of `with_class`.
fn with_other_class() -> TestWorld {
    let simulation = with_class();
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let mut other = class_in(&catalog);
    other.class.metadata.name = "other".into();
    know(&simulation, other);
    simulation
}

fn of_one_type(claim: &mut Claim) {
    claim.spec.requirements =
        vec![Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large"]), Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"])];
}

/// Pods would wait for up to half an hour after EC2 has capacity again.
#[test]
fn what_was_out_of_stock_many_times_is_tried_again_three_minutes_after_the_last() {
    let mut simulation = with_class();
    simulation.world().region.refusal = Some(("InsufficientInstanceCapacity".into(), "none left".into()));
    let keep_at = |simulation: &TestWorld, number, begun| {
        keep_as(simulation, number, |claim| {
            of_one_type(claim);
            claim.created_at = at(begun);
        });
    };
    for (number, begun) in [(1, 0), (2, 181), (3, 362), (4, 543)] {
        simulation.run_until(at(begun));
        keep_at(&simulation, number, begun);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1, "at {begun}");
    }
    let outs = known(&simulation);
    let is_fourth = |out: &StockOut| out.strikes == 4 && out.until == at(543 + 24 * 60);
    assert!(!outs.is_empty() && outs.iter().all(is_fourth), "EC2 was asked each time: {outs:?}");
    simulation.world().region.refusal = None;
    for (number, begun, launched) in [(5, 600, 0), (6, 724, 1)] {
        simulation.run_until(at(begun));
        keep_at(&simulation, number, begun);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), launched, "at {begun}");
    }
}

#[test]
fn a_type_that_ec2_does_not_support_is_refused_to_its_own_class_only() {
    let mut simulation = with_other_class();
    simulation.world().region.refusal = Some(("Unsupported".into(), "The requested configuration is currently not supported.".into()));
    let refused = keep_as(&simulation, 1, of_one_type);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1);
    assert!(matches!(simulation.claim(&refused.key).phase, Phase::Failed { .. }), "its pods are replanned, on other types");
    let uid =
        block_on(simulation.ports().read::<NodeClassRecord>(&ClusterName::new("c"), "gone")).unwrap().unwrap().value.class.metadata.uid;
    let outs = known(&simulation);
    assert!(!outs.is_empty() && outs.iter().all(|out| out.offering.node_class.as_ref() == Some(&uid) && out.until == at(180)), "{outs:?}");
    assert!(unavailable(&outs, at(0)).pools.is_empty(), "other classes and clusters may use the type");
    simulation.world().region.refusal = None;
    let again = keep_as(&simulation, 2, of_one_type);
    let elsewhere = keep_as(&simulation, 3, |claim| {
        of_one_type(claim);
        claim.spec.node_class.name = "other".into();
    });
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("launched"), report.counted("failed")), (1, 1));
    assert!(simulation.claim(&elsewhere.key).machine().is_some());
    assert!(simulation.claim(&again.key).machine().is_none(), "its own class waits");
    simulation.run_until(at(181));
    keep_as(&simulation, 4, |claim| {
        of_one_type(claim);
        claim.created_at = at(181);
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1, "after three minutes it is tried again");
}

#[test]
fn an_error_without_a_pool_is_one_of_each_pool_that_it_may_be_about() {
    let pool = |instance_type: &str, zone: &str| FleetOverride {
        instance_type: instance_type.into(),
        zone: zone.into(),
        subnet_id: String::new(),
        image_id: String::new(),
        price: Price::ZERO,
    };
    let request = FleetRequest {
        client_token: String::new(),
        target_capacity: 1,
        capacity_type: "spot".into(),
        reservation: None,
        configs: vec![
            FleetConfig { launch_template: "one".into(), overrides: vec![pool("m5.large", "a"), pool("m5.large", "b")] },
            FleetConfig { launch_template: "two".into(), overrides: vec![pool("c5.large", "b")] },
        ],
        tags: BTreeMap::new(),
        prioritized: false,
        context: None,
    };
    let pools = |instance_type: &str, zone: &str| {
        let (code, message) = ("UnfulfillableCapacity".to_owned(), String::new());
        let error = FleetPoolError { code, message, instance_type: instance_type.into(), zone: zone.into() };
        let found = with_pools(&request, &error);
        assert!(found.iter().all(|each| each.code == error.code));
        found.iter().map(|each| format!("{} {}", each.instance_type, each.zone)).collect::<Vec<_>>()
    };
    assert_eq!(pools("m5.large", "a"), ["m5.large a"]);
    assert_eq!(pools("", ""), ["m5.large a", "m5.large b", "c5.large b"]);
    assert_eq!(pools("m5.large", ""), ["m5.large a", "m5.large b"]);
    assert_eq!(pools("", "b"), ["m5.large b", "c5.large b"]);
}

#[test]
fn a_type_without_capacity_is_refused_to_all_classes() {
    let simulation = with_other_class();
    simulation.world().region.refusal = Some(("InsufficientInstanceCapacity".into(), "none left".into()));
    keep_as(&simulation, 1, of_one_type);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1);
    let outs = known(&simulation);
    assert!(!outs.is_empty() && outs.iter().all(|out| out.offering.node_class.is_none()), "{outs:?}");
    simulation.world().region.refusal = None;
    keep_as(&simulation, 2, |claim| {
        of_one_type(claim);
        claim.spec.node_class.name = "other".into();
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1, "no call is made");
}

/// Some Local Zones lack gp3: pods go to another zone, and machines with gp2 start there.
#[test]
fn a_zone_without_the_volume_type_is_closed_to_the_class_only() {
    let simulation = with_other_class();
    simulation.world().region.refusal = Some(("VolumeTypeNotAvailableInZone".into(), "The zone does not support it.".into()));
    keep_as(&simulation, 1, of_one_type);
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("failed"), report.counted("retried")), (1, 0), "its pods are planned again");
    let outs = known(&simulation);
    assert!(!outs.is_empty() && outs.iter().all(|out| out.offering.node_class.is_some()), "{outs:?}");
    simulation.world().region.refusal = None;
    let with_gp2 = keep_as(&simulation, 2, |claim| {
        of_one_type(claim);
        claim.spec.node_class.name = "other".into();
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    assert!(simulation.claim(&with_gp2.key).machine().is_some());
}

#[test]
fn a_type_without_dedicated_hardware_is_refused_to_its_own_class_only() {
    let simulation = with_other_class();
    simulation.world().region.refusal = Some(("InsufficientInstanceCapacity".into(), "none left".into()));
    keep_as(&simulation, 1, |claim| {
        of_one_type(claim);
        claim.spec.requirements.push(Requirement::is_in(labels::INSTANCE_TENANCY, ["dedicated"]));
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1);
    let outs = known(&simulation);
    assert!(!outs.is_empty() && outs.iter().all(|out| out.offering.node_class.is_some()), "{outs:?}");
    simulation.world().region.refusal = None;
    let shared = keep_as(&simulation, 2, |claim| {
        of_one_type(claim);
        claim.spec.node_class.name = "other".into();
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    assert!(simulation.claim(&shared.key).machine().is_some(), "on hardware that all accounts share");
}
