//! What is behind "no instance type": refusals of EC2, and the images of the node class.

use super::{checked, four, now, pod, snapshot};
use crate::outside::Texts;
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::{Requirement, ResolvedAmi};
use whittle_api::labels;
use whittle_claims::{NodeClassRecord, OfferingKey, StockOut};
use whittle_model::scheduling::Options;
use whittle_snapshot::Snapshot;
use whittle_testkit::{node_class_reference, resolved_class};
use whittle_units::ClusterName;

/// What EC2's refusal of the only type is told as.
const REFUSED: &str = "EC2 answered InsufficientInstanceCapacity for on-demand four in a; tried again from ";

/// The text of the reason for which the only pod has no place.
#[track_caller]
fn text(snapshot: &Snapshot) -> String {
    let plan = checked(&snapshot.input(), &Options::provisioning(), &ClusterName::new("demo")).unwrap();
    let [left] = plan.left_out.as_slice() else { panic!("{plan:?}") };
    Texts::new(snapshot).of(&left.reason)
}

/// The pool can buy these types alone.
fn sell(snapshot: &mut Snapshot, types: Vec<InstanceType>) {
    snapshot.catalog = [("default".to_owned(), Arc::new(types.into()))].into();
}

/// The type of four CPUs, as the catalog has it while EC2 refuses it.
fn unavailable() -> InstanceType {
    let mut refused = four();
    refused.offerings.iter_mut().for_each(|offering| offering.available = false);
    refused
}

fn offering(zone: &str, capacity_type: &str) -> OfferingKey {
    OfferingKey { instance_type: "four".into(), zone: zone.into(), capacity_type: capacity_type.into(), ..OfferingKey::default() }
}

fn refusal(offering: OfferingKey, code: &str) -> StockOut {
    StockOut::after_failure(None, offering, code, now())
}

/// A pod whose only offering EC2 has just refused. It has also refused one that the type's requirements exclude.
fn refused() -> Snapshot {
    let mut snapshot = snapshot(vec![pod("web", 1)]);
    sell(&mut snapshot, vec![unavailable()]);
    snapshot.stock_outs =
        vec![refusal(offering("a", "on-demand"), "InsufficientInstanceCapacity"), refusal(offering("b", "spot"), "Unsupported")];
    snapshot
}

/// The pool uses this class, which is resolved.
fn use_class(snapshot: &mut Snapshot, class: NodeClassRecord) {
    snapshot.objects.node_pools[0].spec.template.spec.node_class_ref = node_class_reference(&class.class.metadata.name);
    snapshot.classes = vec![class];
}

#[test]
fn the_refusal_that_rules_out_the_type_comes_before_the_reason() {
    let text = text(&refused());
    assert!(text.starts_with(REFUSED) && text.contains("; nodepool default: "), "{text}");
    assert!(!text.contains("Unsupported"), "the type is not for that offering: {text}");
}

#[test]
fn a_refusal_that_has_passed_or_is_of_another_type_is_not_told() {
    let told = |change: fn(&mut StockOut)| {
        let mut snapshot = refused();
        snapshot.stock_outs.iter_mut().for_each(change);
        text(&snapshot)
    };
    for text in [told(|out| out.until = now()), told(|out| out.offering.instance_type = "five".into())] {
        assert!(!text.contains("EC2"), "{text}");
    }
}

#[test]
fn what_ec2_refuses_to_machines_of_one_class_is_told_to_pods_of_its_pools_only() {
    let told = |refused_class: &str| {
        let mut snapshot = refused();
        let mut class = resolved_class("main");
        class.class.metadata.uid = "u-1".into();
        use_class(&mut snapshot, class);
        let of_class = OfferingKey { node_class: Some(refused_class.into()), ..offering("a", "on-demand") };
        snapshot.stock_outs = vec![refusal(of_class, "Unsupported")];
        text(&snapshot)
    };
    let own = told("u-1");
    assert!(own.starts_with("EC2 answered Unsupported for on-demand four in a; tried again from "), "{own}");
    assert!(!told("u-2").contains("EC2 answered"));
}

#[test]
fn images_for_another_architecture_than_the_pod_asks_for_are_told() {
    let told = |architecture: &str, instance_type: &str| {
        let for_arm = || vec![Requirement::is_in(labels::ARCH, ["arm64"])];
        let mut asking = pod("web", 1);
        let selector = [(labels::ARCH, architecture), (labels::INSTANCE_TYPE, instance_type)];
        asking.spec.node_selector = selector.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let mut snapshot = snapshot(vec![asking]);
        let mut of_arm = four();
        of_arm.requirements.extend(for_arm());
        sell(&mut snapshot, vec![of_arm]);
        let amis = vec![ResolvedAmi { requirements: for_arm(), ..ResolvedAmi::default() }];
        use_class(&mut snapshot, NodeClassRecord { amis, ..resolved_class("main") });
        text(&snapshot)
    };
    let other = told("amd64", "four");
    assert!(other.ends_with("; the images of EC2NodeClass main are for arm64"), "{other}");
    let same = told("arm64", "six");
    assert!(!same.contains("images"), "something else rules the types out: {same}");
}

/// S1.22: the only type that a pod may have is out of stock, while the pool has others: that, and no requirement, is why the pod waits.
#[test]
fn a_pod_whose_only_type_is_out_of_stock_is_told_so() {
    let told = |cpu: i64, wanted: &str| {
        let mut asking = pod("web", cpu);
        asking.spec.node_selector = [(labels::INSTANCE_TYPE.to_owned(), wanted.to_owned())].into();
        let mut five = four();
        five.name = "five".into();
        five.requirements.retain(|requirement| requirement.key != labels::INSTANCE_TYPE);
        five.requirements.push(Requirement::is_in(labels::INSTANCE_TYPE, ["five"]));
        let mut snapshot = snapshot(vec![asking]);
        sell(&mut snapshot, vec![unavailable(), five]);
        snapshot.stock_outs = vec![refusal(offering("a", "on-demand"), "InsufficientInstanceCapacity")];
        text(&snapshot)
    };
    let waits = told(1, "four");
    assert!(waits.starts_with(REFUSED), "{waits}");
    for (cpu, wanted) in [(9, "four"), (9, "five"), (1, "six")] {
        let text = told(cpu, wanted);
        assert!(!text.contains("EC2"), "with stock it would not fit either: {text}");
    }
}
