use crate::karpenter::NodePool;
use crate::{GoDuration, LabelSelector, NillableDuration};

#[track_caller]
fn check_duration(text: &str, seconds: i64, canonical: &str) {
    let duration: GoDuration = text.parse().unwrap();
    assert_eq!(duration.span().as_secs(), seconds, "{text}");
    assert_eq!(duration.canonical().to_string(), canonical, "{text}");
    assert_eq!(duration.to_string(), text, "the text survives");
}

#[test]
fn durations_are_parsed_in_gos_notation() {
    check_duration("30s", 30, "30s");
    check_duration("90s", 90, "1m30s");
    check_duration("10m", 600, "10m0s");
    check_duration("720h", 2_592_000, "720h0m0s");
    check_duration("1h30m", 5400, "1h30m0s");
    check_duration("1.5h", 5400, "1h30m0s");
    check_duration("0s", 0, "0s");
    check_duration("+5m", 300, "5m0s");
    check_duration("-5m", -300, "-5m0s");
    for zero in ["0", "+0", "-0"] {
        check_duration(zero, 0, "0s");
    }
    check_duration("1500000\u{b5}s", 1, "1.5s");
    check_duration("1500000\u{3bc}s", 1, "1.5s");
}

#[test]
fn durations_out_of_range_saturate() {
    for text in ["2562048h", "99999999999h", "9223372036854775807h", "999999999999999999999999999h", "99999999999h59m"] {
        let duration: GoDuration = text.parse().unwrap();
        assert_eq!(duration.span().as_nanos(), i128::from(i64::MAX), "{text}");
        assert_eq!(duration.to_string(), text, "the text survives");
    }
    assert_eq!("-99999999999h".parse::<GoDuration>().unwrap().span().as_nanos(), i128::from(i64::MIN));
    assert_eq!("000000000000000000000000000030s".parse::<GoDuration>().unwrap().span().as_secs(), 30);
    assert_eq!("0.33333333333333333333h".parse::<GoDuration>().unwrap().span().as_secs(), 1199);
}

#[test]
fn text_that_is_no_duration_is_rejected() {
    for text in ["", "30", "s", "1x", "h1", "-", "1hour", "Never", "1.2.3h", ".h", "+", "+-5m", "-+5m", "++5m"] {
        assert!(text.parse::<GoDuration>().is_err(), "{text}");
    }
    assert_eq!("Never".parse(), Ok(NillableDuration::Never));
}

#[test]
fn an_absent_disruption_block_has_the_documented_defaults() {
    let pool: NodePool = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}, "disruption": null}
    }))
    .unwrap();
    assert_eq!(pool.spec.disruption.budgets.len(), 1);
    assert_eq!(pool.spec.disruption.consolidate_after.to_string(), "0s");
    assert_eq!(pool.spec.template.spec.expire_after.to_string(), "720h");
}

#[test]
fn an_empty_selector_matches_everything_and_an_unknown_operator_nothing() {
    assert!(LabelSelector::default().matches(&Default::default()));
    let odd: LabelSelector = serde_json::from_value(serde_json::json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})).unwrap();
    assert!(!odd.matches(&Default::default()));
}
