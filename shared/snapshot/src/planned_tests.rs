//! What a claim contains of its plan.

use crate::{Snapshot, claim_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::Requirement;
use whittle_api::{ClusterObjects, labels};
use whittle_claims::ClaimSpec;
use whittle_model::scheduling::NewClaim;
use whittle_units::{ClusterName, Quantity, Resources, Timestamp};

/// The claim of a machine of these types, of which an overlay changes `a`.
fn planned(overlay: &serde_json::Value, types: &[&str]) -> ClaimSpec {
    let pool = serde_json::json!({"metadata": {"name": "one"},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}}});
    let mut overlay = serde_json::json!({"metadata": {"name": "o"}, "spec": overlay});
    overlay["spec"]["requirements"] = serde_json::json!([{"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["a"]}]);
    let read = ClusterObjects {
        node_pools: vec![serde_json::from_value(pool).unwrap()],
        node_overlays: vec![serde_json::from_value(overlay).unwrap()],
        ..ClusterObjects::default()
    };
    let of_type = |name: &str| InstanceType {
        name: name.into(),
        requirements: vec![Requirement::is_in(labels::INSTANCE_TYPE, [name])],
        offerings: vec![Offering { available: true, ..Offering::default() }],
        ..InstanceType::default()
    };
    let catalog = BTreeMap::from([("one".to_owned(), Arc::new(vec![of_type("a"), of_type("b")].into()))]);
    let seen = Snapshot::of(Timestamp::UNIX_EPOCH, read, Vec::new(), Vec::new(), catalog);
    let instance_types = types.iter().map(|name| (*name).to_owned()).collect();
    let new = NewClaim { node_pool: "one".into(), instance_types, ..NewClaim::default() };
    claim_of(&new, &seen, &ClusterName::new("c"), || "x".to_owned()).spec
}

#[test]
fn a_claim_stores_the_prices_that_overlays_gave_its_types() {
    let overlay = serde_json::json!({"priceAdjustment": "-10%"});
    let spec = planned(&overlay, &["a", "b"]);
    assert_eq!((spec.overlaid_price("a", "spot", "x"), spec.overlaid_price("b", "spot", "x")), (Some("-10%"), None));
    assert_eq!(spec.annotations[labels::PRICE_OVERLAY_APPLIED], "true");
    let written = serde_json::to_value(&spec).unwrap();
    assert_eq!(serde_json::from_value::<ClaimSpec>(written).unwrap(), spec);
    let other = serde_json::to_string(&planned(&overlay, &["b"])).unwrap();
    assert!(!other.contains("overlaid_prices") && !other.contains("price-overlay"), "{other}");
}

#[test]
fn a_claim_stores_the_extra_capacity_that_overlays_gave_its_types() {
    let overlay = serde_json::json!({"capacity": {"example.com/device": "4"}});
    let spec = planned(&overlay, &["a", "b"]);
    assert_eq!(spec.extra_of("a").unwrap().get("example.com/device"), Quantity::from_units(4));
    assert_eq!((spec.extra_of("b"), spec.annotations[labels::CAPACITY_OVERLAY_APPLIED].as_str()), (None, "true"));
    let written = serde_json::to_value(&spec).unwrap();
    assert_eq!(serde_json::from_value::<ClaimSpec>(written).unwrap(), spec);
    let other = planned(&overlay, &["b"]);
    assert!(other.extra_capacity.is_empty() && other.annotations.is_empty());
    assert!(!serde_json::to_string(&other).unwrap().contains("extra_capacity"), "without extra capacity the field is omitted");
}

#[test]
fn a_claim_requests_nothing_of_which_its_pods_ask_for_none() {
    let names = (0..20_000).map(|n| (format!("example.com/r{n}"), Quantity::ZERO));
    let requests = names.chain([("cpu".to_owned(), Quantity::from_units(2))]).collect();
    let new = NewClaim { node_pool: "one".into(), requests, ..NewClaim::default() };
    let seen = Snapshot::of(Timestamp::UNIX_EPOCH, ClusterObjects::default(), Vec::new(), Vec::new(), BTreeMap::new());
    let spec = claim_of(&new, &seen, &ClusterName::new("c"), || "x".to_owned()).spec;
    assert_eq!(spec.requests, Resources::from([("cpu", Quantity::from_units(2))]));
}
