use crate::unavailable;
use whittle_claims::{OfferingKey, StockOut};
use whittle_units::Timestamp;

#[test]
fn a_stock_out_that_has_ended_keeps_nothing_from_being_bought() {
    let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
    let out = |instance_type: &str, until| StockOut {
        offering: OfferingKey { instance_type: instance_type.into(), zone: "z".into(), capacity_type: "spot".into() },
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
