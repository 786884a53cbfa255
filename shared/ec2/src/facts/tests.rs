use super::describe::from_describe;
use super::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_units::Price;

#[test]
fn the_catalog_of_every_region_fits_into_one_item() {
    for region in offline::REGIONS {
        let catalog = offline::catalog(region).unwrap();
        assert!(catalog.types.len() > if offline::has_zones(region) { 800 } else { 300 }, "{region}: {}", catalog.types.len());
        let blob = catalog.encode();
        assert!(blob.len() < 400 * 1024, "{region}: {} bytes", blob.len());
        assert_eq!(blob, catalog.encode(), "encoding is deterministic");
        assert_eq!(Catalog::decode(&blob).unwrap(), catalog);
    }
}

#[test]
fn spot_prices_change_the_end_of_a_catalog_alone() {
    let catalog = offline::catalog("us-east-1").unwrap();
    let mut changed = catalog.clone();
    let price = changed.spot.get_mut("m5.large").unwrap().values_mut().next().unwrap();
    *price = Price::from_nanos(41_200_000);
    let (one, other) = (catalog.encode(), changed.encode());
    let common = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    assert_ne!(one, other);
    assert!(2 * common > 3 * one.len() / 4, "{common} of {} bytes stay the same", one.len());
    assert_eq!(Catalog::decode(&other).unwrap(), changed);
    let without = Catalog::default();
    assert_eq!(Catalog::decode(&without.encode()).unwrap(), without);
}

#[test]
fn a_catalog_of_one_stream_as_earlier_releases_wrote_it_is_read() {
    let catalog = offline::catalog("us-east-1").unwrap();
    let json = json!({"version": 1, "catalog": catalog});
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut gzip, json.to_string().as_bytes()).unwrap();
    assert_eq!(Catalog::decode(&gzip.finish().unwrap()).unwrap(), catalog);
}

#[test]
fn a_region_with_prices_of_its_own_and_no_table_of_zones_sells_in_three() {
    for (region, m5, zone) in [("cn-north-1", 1.013, "cnn1-az2"), ("us-gov-west-1", 0.121, "usgw1-az2")] {
        let catalog = offline::catalog(region).unwrap();
        assert_eq!(catalog.on_demand["m5.large"], Price::from_dollars(m5));
        let (zones, names) = (&catalog.zones, ["a", "b", "c"].map(|letter| format!("{region}{letter}")));
        assert!(zones.iter().map(|zone| &zone.name).eq(&names) && zones.iter().any(|known| known.id == zone), "{zones:?}");
        assert!(catalog.offered["m5.large"] == names && catalog.spot["m5.large"].len() == 3, "{region}");
        assert!(catalog.types.iter().all(|facts| catalog.on_demand.contains_key(&facts.name)), "all have a price");
    }
    assert_eq!(offline::catalog("eu-central-1"), None);
    assert_eq!(offline::assumed("eu-central-1").on_demand["m5.large"], Price::from_dollars(0.096));
}

#[test]
fn a_damaged_blob_is_an_error() {
    assert!(matches!(Catalog::decode(b"not gzip"), Err(CatalogError::Gzip(_))));
    assert!(matches!(Catalog::decode(&[]), Err(CatalogError::PartsMissing)));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, br#"{"version":9,"catalog":{}}"#).unwrap();
    assert!(matches!(Catalog::decode(&gzip.finish().unwrap()), Err(CatalogError::Version(9))));
}

#[test]
fn the_offline_tables_equal_the_facts_of_ec2() {
    let golden: Vec<Value> = serde_json::from_str(include_str!("../../../../tests/golden/cloud/types/facts.json")).unwrap();
    let types = offline::types();
    let mut compared = 0;
    for entry in &golden {
        let live = from_describe(entry);
        // Edited manually in the golden file.
        if live.name == "g4ad.4xlarge" || live.name.starts_with("x9gg") {
            continue;
        }
        let table = types.iter().find(|facts| facts.name == live.name).unwrap_or_else(|| panic!("{} has no row", live.name));
        // The golden file says nothing of them.
        let table = InstanceTypeFacts { ebs_attachments: None, attachment_limit: String::new(), ..table.clone() };
        assert_eq!(table, live);
        compared += 1;
    }
    assert_eq!(compared, 69);
}

#[test]
fn what_ec2_says_of_attachments_is_a_fact() {
    let info = json!({"EbsOptimizedSupport": "default", "MaximumEbsAttachments": 32, "AttachmentLimitType": "dedicated"});
    let facts = from_describe(&json!({"InstanceType": "m7i.large", "EbsInfo": info}));
    assert_eq!((facts.ebs_attachments, facts.attachment_limit.as_str()), (Some(32), "dedicated"));
    let types = offline::types();
    assert!(types.iter().all(|facts| facts.ebs_attachments > Some(0)), "the tables have it of all");
    assert!(types.iter().all(|facts| ["shared", "dedicated"].contains(&facts.attachment_limit.as_str())));
}

#[test]
fn what_ec2_says_of_network_cards_is_a_fact_of_types_with_efa() {
    let card = |index: u32, types: Value| json!({"NetworkCardIndex": index, "MaximumNetworkInterfaces": 2, "InterfaceTypes": types});
    let cards = |efa: u32| {
        let all = [json!(["interface"]), json!(["interface", "efa", "efa-only"]), json!(["efa-only"]), Value::Null];
        let all: Vec<Value> = (0..).zip(all).map(|(index, types)| card(index, types)).collect();
        let entry = json!({"InstanceType": "a.large", "NetworkInfo": {"NetworkCards": all, "EfaInfo": {"MaximumEfaInterfaces": efa}}});
        from_describe(&entry).network_cards.iter().map(|card| card.efa).collect::<Vec<_>>()
    };
    assert_eq!(cards(2), [CardEfa::None, CardEfa::Any, CardEfa::EfaOnly, CardEfa::Any]);
    assert_eq!(cards(0), [CardEfa::Any; 4], "of most types it says nothing");
    let first = |name: &str| offline::types().into_iter().find(|facts| facts.name == name).unwrap().network_cards[0].efa;
    assert_eq!((first("p6-b300.48xlarge"), first("p5en.48xlarge")), (CardEfa::None, CardEfa::Any));
}

/// The catalog in the table was written by the release before this one, or by one after it that was rolled back.
#[test]
fn a_network_card_that_takes_any_efa_interface_is_written_as_before() {
    let before = json!({"i": 1, "x": 4});
    let card = NetworkCard { index: 1, interfaces: 4, efa: CardEfa::Any };
    assert_eq!(serde_json::to_value(&card).unwrap(), before);
    assert_eq!(serde_json::from_value::<NetworkCard>(before).unwrap(), card);
    let card = NetworkCard { efa: CardEfa::EfaOnly, ..card };
    let written = serde_json::to_value(&card).unwrap();
    assert_eq!((&written["e"], serde_json::from_value::<NetworkCard>(written.clone()).unwrap()), (&json!("efa-only"), card));
}

/// The catalog in the table was written by the release before this one, or by one after it that was rolled back.
#[test]
fn facts_that_only_one_of_two_releases_knows_are_left_out() {
    let known = InstanceTypeFacts {
        name: "a".into(),
        ebs_attachments: Some(27),
        attachment_limit: "shared".into(),
        ..InstanceTypeFacts::default()
    };
    let mut written = serde_json::to_value(&known).unwrap();
    let entry = written.as_object_mut().unwrap();
    assert_eq!((entry.remove("ea"), entry.remove("el")), (Some(json!(27)), Some(json!("shared"))));
    let before = InstanceTypeFacts { ebs_attachments: None, attachment_limit: String::new(), ..known };
    assert_eq!(serde_json::to_value(&before).unwrap(), written, "what is not known is not written");
    written["fact-of-a-later-release"] = json!(1);
    assert_eq!(serde_json::from_value::<InstanceTypeFacts>(written).unwrap(), before);
}

#[test]
fn synthetic_spot_prices_are_a_quarter_to_six_tenths_of_on_demand() {
    let catalog = offline::catalog("us-east-1").unwrap();
    let mut pairs = 0;
    for (name, zones) in &catalog.spot {
        let on_demand = catalog.on_demand_price(name).unwrap();
        for price in zones.values() {
            assert!(price.nanos() * 100 >= on_demand.nanos() * 24 && price.nanos() * 100 <= on_demand.nanos() * 60, "{name}");
            pairs += 1;
        }
    }
    assert!(pairs > 4000, "{pairs}");
}

#[test]
fn regions_without_a_price_table_use_that_of_us_east_1() {
    assert_eq!(tables::static_on_demand_prices("eu-north-1"), tables::static_on_demand_prices("us-east-1"));
    // In the currency of the partition.
    assert_eq!(tables::static_on_demand_prices("cn-northwest-1"), tables::static_on_demand_prices("cn-north-1"));
    assert_ne!(tables::static_on_demand_prices("cn-northwest-1"), tables::static_on_demand_prices("us-east-1"));
    assert_ne!(tables::static_on_demand_prices("us-gov-west-1"), tables::static_on_demand_prices("us-east-1"));
}

#[test]
fn the_price_list_of_a_region_is_one_of_its_partition() {
    for (region, expected) in [
        ("us-west-2", Some("us-east-1")),
        ("sa-east-1", Some("us-east-1")),
        ("eu-north-1", Some("eu-central-1")),
        ("ap-south-2", Some("ap-south-1")),
        ("cn-north-1", Some("cn-northwest-1")),
        ("us-gov-east-1", None),
        ("us-iso-west-1", Some("us-iso-east-1")),
        ("us-isob-east-1", Some("us-isob-east-1")),
        ("us-isof-east-1", Some("us-isof-south-1")),
        ("eu-isoe-west-1", Some("eu-isoe-west-1")),
        ("eusc-de-east-1", Some("eusc-de-east-1")),
    ] {
        let found = tables::pricing_region(region);
        assert_eq!(found, expected, "{region}");
        let partition = |region: &str| whittle_units::Partition::of(region).name;
        assert!(found.is_none_or(|found| partition(found) == partition(region)), "{region}");
    }
}

#[test]
fn clock_speeds_round_to_whole_megahertz() {
    for (text, mhz) in [("2.3", Some(2300)), ("2.3456", Some(2346)), ("3", Some(3000)), ("", None), ("x", None)] {
        assert_eq!(clock_mhz(text), mhz, "{text}");
    }
}

#[test]
fn only_types_without_a_price_get_one() {
    let mut catalog = offline::catalog("us-east-1").unwrap();
    let prices = BTreeMap::from([("m5.large".to_owned(), Price::from_dollars(9.0)), ("unknown".to_owned(), Price::from_dollars(9.0))]);
    let known = catalog.with_missing_prices(&prices);
    assert_eq!(known.on_demand_price("m5.large"), catalog.on_demand_price("m5.large"));
    catalog.on_demand.remove("m5.large");
    let zones = catalog.offered["m5.large"].clone();
    catalog.spot.get_mut("m5.large").unwrap().remove(&zones[0]);
    let priced = catalog.with_missing_prices(&prices);
    assert_eq!(priced.on_demand_price("m5.large"), Some(Price::from_dollars(9.0)));
    assert_eq!(priced.spot_price("m5.large", &zones[0]), Some(Price::from_dollars(9.0)));
    assert_eq!(priced.spot_price("m5.large", &zones[1]), catalog.spot_price("m5.large", &zones[1]));
    assert!(matches!(catalog.with_missing_prices(&BTreeMap::new()), std::borrow::Cow::Borrowed(_)), "nothing is copied");
}

#[test]
fn spot_prices_fall_back_to_on_demand_until_the_first_refresh() {
    let mut catalog = offline::catalog("us-east-1").unwrap();
    assert_eq!(catalog.spot_price("m5.large", "us-east-1zz"), None);
    catalog.spot.clear();
    assert_eq!(catalog.spot_price("m5.large", "us-east-1zz"), catalog.on_demand_price("m5.large"));
}
