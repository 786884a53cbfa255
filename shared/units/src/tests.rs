use super::*;

#[track_caller]
fn check_quantity(text: &str, milli: i64, shown: &str) {
    let quantity: Quantity = text.parse().unwrap();
    assert_eq!(quantity.milli(), milli, "{text}");
    assert_eq!(quantity.to_string(), shown, "{text}");
}

#[test]
fn quantities_parse_and_print() {
    check_quantity("1930m", 1930, "1930m");
    check_quantity("2", 2000, "2");
    check_quantity("1.5", 1500, "1500m");
    check_quantity(".5Gi", (1 << 29) * 1000, "512Mi");
    check_quantity("5.", 5000, "5");
    check_quantity("1k", 1_000_000, "1k");
    check_quantity("1e3", 1_000_000, "1k");
    check_quantity("1E3", 1_000_000, "1k");
    check_quantity("-1", -1000, "-1");
    check_quantity("0", 0, "0");
    check_quantity("128Ti", 128i64 * (1 << 40) * 1000, "128Ti");
}

#[test]
fn about_as_much_is_between_half_and_twice() {
    let of_four = [(0, false), (1, false), (2, true), (4, true), (8, true), (9, false)];
    for (units, expected) in of_four {
        assert_eq!(Quantity::from_units(units).is_about(Quantity::from_units(4)), expected, "{units}");
    }
    assert!(!Quantity::MAX.is_about(Quantity::from_units(4)));
    assert!(Quantity::MAX.is_about(Quantity::MAX));
}

#[test]
fn amounts_are_printed_in_the_canonical_form_of_their_resource() {
    let check = |resource: &str, text: &str, shown: &str| {
        let quantity: Quantity = text.parse().unwrap();
        assert_eq!(quantity.text_of(resource), shown, "{resource} {text}");
        assert_eq!(shown.parse(), Ok(quantity), "nothing is lost: {shown}");
    };
    for (resource, text, shown) in [
        ("cpu", "1.5", "1500m"),
        ("cpu", "1000", "1k"),
        ("cpu", "1024", "1024"),
        ("cpu", "1500", "1500"),
        ("cpu", "0", "0"),
        ("pods", "110", "110"),
        ("nodes", "2048", "2048"),
        ("nvidia.com/gpu", "-2000", "-2k"),
        ("memory", "1024Mi", "1Gi"),
        ("memory", "1.5Gi", "1536Mi"),
        ("memory", "1000Gi", "1000Gi"),
        ("memory", "15625Mi", "15625Mi"),
        ("memory", "16393244Ki", "16393244Ki"),
        ("memory", "1000M", "1G"),
        ("memory", "1024M", "1024M"),
        ("memory", "1408250Ki", "1408250Ki"),
        ("memory", "128974848", "123Mi"),
        ("memory", "1000", "1k"),
        ("memory", "1001", "1001"),
        ("memory", "-1Gi", "-1Gi"),
        ("ephemeral-storage", "20Gi", "20Gi"),
        ("hugepages-2Mi", "4Mi", "4Mi"),
    ] {
        check(resource, text, shown);
    }
}

#[test]
fn quantities_round_up_to_the_next_thousandth() {
    check_quantity("1n", 1, "1m");
    check_quantity("1500u", 2, "2m");
    check_quantity("0.0001", 1, "1m");
}

#[test]
fn quantities_out_of_range_saturate() {
    check_quantity("100E", i64::MAX, &Quantity::MAX.to_string());
    check_quantity("99999999999999999999999999999999999999999999", i64::MAX, &Quantity::MAX.to_string());
    check_quantity("1e400", i64::MAX, &Quantity::MAX.to_string());
    check_quantity("1e99999999999", i64::MAX, &Quantity::MAX.to_string());
    check_quantity("1e+99999999999999999999", i64::MAX, &Quantity::MAX.to_string());
    check_quantity("0e99999999999", 0, "0");
    check_quantity("1e-99999999999", 1, "1m");
    check_quantity("-100Ei", i64::MIN, &Quantity::from_milli(i64::MIN).to_string());
}

#[test]
fn text_that_is_no_quantity_is_rejected() {
    for text in ["", "-", "5K", "10GB", "abc", "1 Gi", "1..2", "e5", "1e", "1e-", "1e0.5", "0x10", "."] {
        assert!(text.parse::<Quantity>().is_err(), "{text}");
    }
}

#[test]
fn provider_ids_name_instances() {
    let id = ProviderId::of_instance("us-east-1a", &InstanceId::new("i-0abc"));
    assert_eq!(id.as_str(), "aws:///us-east-1a/i-0abc");
    assert_eq!(id.instance_id().unwrap(), InstanceId::new("i-0abc"));
    assert!(ProviderId::new("kwok://x").instance_id().is_err());
    assert!(ProviderId::new("").instance_id().is_err());
}

#[test]
fn prices_are_exact_and_never_negative() {
    assert_eq!(Price::from_dollars(0.1 + 0.2), Price::from_nanos(300_000_000));
    assert_eq!(Price::from_dollars(-1.0), Price::ZERO);
    assert_eq!(Price::from_dollars(f64::NAN), Price::ZERO);
    assert_eq!(Price::from_dollars(0.096).to_string(), "$0.0960/h");
}

#[test]
fn resources_fit_when_every_entry_does() {
    let room = Resources::from([("cpu", Quantity::from_units(2))]);
    assert!(Resources::from([("cpu", Quantity::from_units(2)), ("x", Quantity::ZERO)]).fits(&room));
    assert!(!Resources::from([("x", Quantity::from_units(1))]).fits(&room));
}

#[test]
fn regions_belong_to_the_partition_that_their_name_begins_with() {
    let of = |region: &str| (Partition::of(region).name, Partition::of(region).dns_suffix);
    assert_eq!(of("us-east-1"), ("aws", "amazonaws.com"));
    assert_eq!(of("il-central-1"), ("aws", "amazonaws.com"));
    assert_eq!(of("cn-northwest-1"), ("aws-cn", "amazonaws.com.cn"));
    assert_eq!(of("us-gov-west-1"), ("aws-us-gov", "amazonaws.com"));
    assert_eq!(of("us-iso-east-1"), ("aws-iso", "c2s.ic.gov"));
    assert_eq!(of("us-isob-east-1"), ("aws-iso-b", "sc2s.sgov.gov"));
    assert_eq!(of("eu-isoe-west-1"), ("aws-iso-e", "cloud.adc-e.uk"));
    assert_eq!(of("us-isof-south-1"), ("aws-iso-f", "csp.hci.ic.gov"));
    assert_eq!(of("eusc-de-east-1"), ("aws-eusc", "amazonaws.eu"));
}
