use crate::unavailable;
use whittle_claims::{OfferingKey, StockOut};
use whittle_testkit::at;

#[test]
fn an_ended_stock_out_makes_nothing_unavailable() {
    let out = |instance_type: &str, until| StockOut {
        offering: OfferingKey {
            instance_type: instance_type.into(),
            zone: "z".into(),
            capacity_type: "spot".into(),
            ..OfferingKey::default()
        },
        code: "ICE".into(),
        until: at(until),
        strikes: 1,
    };
    let outs = [out("a", 10), out("b", 20), out("*", 10)];
    let now = |second| unavailable(&outs, at(second));
    assert_eq!((now(9).pools.len(), now(9).capacity_types.len()), (2, 1));
    assert_eq!((now(10).pools.len(), now(10).capacity_types.len()), (1, 0));
    assert_eq!(now(20).pools.len(), 0);
}

#[test]
fn full_subnets_and_exhausted_quotas_are_distinguished_from_offerings() {
    let now = at(0);
    let keys = [OfferingKey::of_subnet("subnet-1"), OfferingKey::of_quota("standard", "on-demand"), OfferingKey::of_reservation("cr-1")];
    let outs = keys.map(|key| StockOut::with_fixed_wait(key, "code", now));
    let closed = unavailable(&outs, now);
    assert!(closed.pools.is_empty() && closed.capacity_types.is_empty(), "{closed:?}");
    assert_eq!(closed.subnets, ["subnet-1".to_owned()].into());
    assert_eq!(closed.quotas, [("standard".to_owned(), "on-demand".to_owned())].into());
    assert_eq!(unavailable(&outs, now + whittle_units::SignedDuration::from_mins(4)), whittle_ec2::instance_types::Unavailable::default());
}

#[test]
fn what_ec2_refuses_to_one_class_is_unavailable_to_that_class_only() {
    let place = OfferingKey { instance_type: "a".into(), zone: "z".into(), capacity_type: "spot".into(), ..OfferingKey::default() };
    let of_class = OfferingKey { node_class: Some("u-1".into()), ..place };
    let closed = unavailable(&[StockOut::after_failure(None, of_class, "Unsupported", at(0))], at(0));
    assert!(closed.pools.is_empty(), "{closed:?}");
    let refused: Vec<_> = closed.refused.iter().map(|(class, pools)| (class.as_str(), pools.len())).collect();
    assert_eq!(refused, [("u-1", 1)]);
}
