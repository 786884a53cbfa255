use super::*;
use crate::{Ec2Discovery, Isolation};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use whittle_ec2::facts::{CardEfa, Catalog};
use whittle_ec2::network::{ImageVariant, PlacementGroup};
use whittle_ports::{CloudError, CloudErrorKind, Discovery};
use whittle_units::Price;

fn discovery(wire: &Wire, isolation: Isolation) -> Ec2Discovery {
    Ec2Discovery::new(&wire.config(), "us-east-1".into(), isolation, clock())
}

fn terms<T: DeserializeOwned>(value: Value) -> Vec<T> {
    serde_json::from_value(value).unwrap()
}

#[test]
fn subnets_of_all_terms_are_merged_and_wildcard_tags_are_filtered_locally() {
    let subnet = |id: &str, tags: &str| {
        format!(
            "<item><subnetId>{id}</subnetId><availabilityZone>us-east-1a</availabilityZone><availabilityZoneId>use1-az1</availabilityZoneId><availableIpAddressCount>7</availableIpAddressCount><tagSet>{tags}</tagSet></item>"
        )
    };
    let tag = |key: &str| format!("<item><key>{key}</key><value>x</value></item>");
    let page = |items: &str, next: &str| {
        format!("<DescribeSubnetsResponse><subnetSet>{items}</subnetSet><nextToken>{next}</nextToken></DescribeSubnetsResponse>")
    };
    let both = tag("a") + &tag("b");
    let wire = Wire::answering([
        (200, &page(&subnet("subnet-1", ""), "")),
        (200, &page(&subnet("subnet-2", &both), "more")),
        (200, &page(&(subnet("subnet-3", &tag("a")) + &subnet("subnet-1", &both)), "")),
    ]);
    let wanted = terms(json!([{"id": "subnet-1"}, {"tags": {"a": "*", "b": "*"}}]));
    let found = run(discovery(&wire, Isolation::Isolated).subnets(&wanted)).unwrap();
    assert_eq!(
        found.iter().map(|subnet| (subnet.id.as_str(), subnet.free_addresses)).collect::<Vec<_>>(),
        [("subnet-1", 7), ("subnet-2", 7)]
    );
    assert_eq!(wire.form(0)["Filter.1.Name"], "subnet-id");
    assert_eq!((wire.form(1)["Filter.1.Name"].as_str(), wire.form(2)["NextToken"].as_str()), ("tag-key", "more"));
}

fn reservation(id: &str, more: &str) -> String {
    format!(
        "<item><capacityReservationId>{id}</capacityReservationId><ownerId>111122223333</ownerId><instanceType>m5.large</instanceType>\
         <availabilityZone>us-east-1a</availabilityZone><availableInstanceCount>2</availableInstanceCount><totalInstanceCount>5</totalInstanceCount>\
         <state>active</state><instanceMatchCriteria>targeted</instanceMatchCriteria>{more}</item>"
    )
}

#[test]
fn reservations_are_found_by_id_and_by_tag_and_a_missing_one_is_skipped() {
    let page = |items: &str, next: &str| {
        format!(
            "<DescribeCapacityReservationsResponse><capacityReservationSet>{items}</capacityReservationSet><nextToken>{next}</nextToken></DescribeCapacityReservationsResponse>"
        )
    };
    let block =
        "<reservationType>capacity-block</reservationType><endDate>2026-03-02T11:30:00.000Z</endDate><interruptible>true</interruptible>";
    let tagged = "<tagSet><item><key>a</key><value>x</value></item></tagSet>";
    let wire = Wire::answering([
        (400, &refusal("InvalidCapacityReservationId.NotFound")),
        (200, &page(&reservation("cr-2", block), "more")),
        (200, &page(&(reservation("cr-3", tagged) + &reservation("cr-2", block)), "")),
    ]);
    let wanted = terms(json!([{"id": "cr-missing"}, {"tags": {"a": "*"}, "ownerID": "111122223333"}]));
    let found = run(discovery(&wire, Isolation::Isolated).capacity_reservations(&wanted)).unwrap();
    // A wildcard term requires the tag, whatever its value; EC2 cannot filter for that.
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((only.id.as_str(), only.free, only.state.as_str(), only.kind.as_str()), ("cr-3", 2, "active", ""));
    assert_eq!((only.zone.as_str(), only.instance_type.as_str(), only.match_criteria.as_str()), ("us-east-1a", "m5.large", "targeted"));
    let (by_id, by_tag, more) = (wire.form(0), wire.form(1), wire.form(2));
    assert_eq!((by_id["Action"].as_str(), by_id["CapacityReservationId.1"].as_str()), ("DescribeCapacityReservations", "cr-missing"));
    assert_eq!((by_id.get("MaxResults"), by_id["Filter.1.Name"].as_str(), by_id["Filter.1.Value.1"].as_str()), (None, "state", "active"));
    assert_eq!((by_tag["MaxResults"].as_str(), by_tag["Filter.1.Name"].as_str(), more["NextToken"].as_str()), ("1000", "owner-id", "more"));
}

/// EC2 starts only machines that match these.
#[test]
fn a_reservation_has_what_its_machines_must_match() {
    let group = "arn:aws:ec2:us-east-1:111122223333:placement-group/wide";
    let outpost = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1";
    let more = format!(
        "<instancePlatform>Windows</instancePlatform><tenancy>dedicated</tenancy><placementGroupArn>{group}</placementGroupArn>\
         <outpostArn>{outpost}</outpostArn>"
    );
    let page = format!(
        "<DescribeCapacityReservationsResponse><capacityReservationSet>{}{}</capacityReservationSet></DescribeCapacityReservationsResponse>",
        reservation("cr-1", &more),
        reservation("cr-2", "")
    );
    let wire = Wire::answering([(200, &page)]);
    let found = run(discovery(&wire, Isolation::Isolated).capacity_reservations(&terms(json!([{"id": "cr-1"}])))).unwrap();
    assert_eq!((found[0].platform.as_str(), found[0].tenancy.as_str()), ("Windows", "dedicated"));
    assert_eq!((found[0].placement_group.as_deref(), found[0].outpost.as_deref()), (Some(group), Some(outpost)));
    assert_eq!((found[1].platform.as_str(), found[1].tenancy.as_str()), ("", ""));
    assert_eq!((found[1].placement_group.as_deref(), found[1].outpost.as_deref()), (None, None));
}

#[test]
fn a_capacity_block_has_its_end_date_and_a_denied_call_is_an_error() {
    let one = "<DescribeCapacityReservationsResponse><capacityReservationSet>".to_owned()
        + &reservation(
            "cr-2",
            "<reservationType>capacity-block</reservationType><endDate>2026-03-02T11:30:00.000Z</endDate><interruptible>true</interruptible>",
        )
        + "</capacityReservationSet></DescribeCapacityReservationsResponse>";
    let wire = Wire::answering([(200, &one), (403, &refusal("UnauthorizedOperation"))]);
    let discovery = discovery(&wire, Isolation::Isolated);
    let found = run(discovery.capacity_reservations(&terms(json!([{"id": "cr-2"}])))).unwrap();
    assert_eq!((found[0].kind.as_str(), found[0].interruptible), ("capacity-block", true));
    assert_eq!(found[0].ends_at, Some("2026-03-02T11:30:00Z".parse().unwrap()));
    assert_eq!(run(discovery.capacity_reservations(&terms(json!([{"id": "cr-2"}])))).unwrap_err().kind, CloudErrorKind::Unauthorized);
    assert!(run(discovery.capacity_reservations(&[])).unwrap().is_empty(), "without terms there is no call");
}

fn image(id: &str, architecture: &str, deprecated_at: &str) -> String {
    format!(
        "<item><imageId>{id}</imageId><name>{id}</name><architecture>{architecture}</architecture><creationDate>2026-01-01T00:00:00.000Z</creationDate><deprecationTime>{deprecated_at}</deprecationTime></item>"
    )
}

#[test]
fn an_alias_is_resolved_through_ssm_parameters_to_images_with_their_variants() {
    let parameter = |id: &str| json!({"Parameter": {"Value": id}}).to_string();
    let missing = json!({"__type": "ParameterNotFound", "message": "none"}).to_string();
    let images = format!(
        "<DescribeImagesResponse><imagesSet>{}{}</imagesSet></DescribeImagesResponse>",
        image("ami-std", "x86_64", "2028-01-01T00:00:00.000Z"),
        image("ami-gpu", "x86_64", "2026-02-01T00:00:00.000Z")
    );
    let wire = Wire::answering([(200, &parameter("ami-std")), (400, &missing), (200, &parameter("ami-gpu")), (200, &images)]);
    let found = run(discovery(&wire, Isolation::Isolated).images(&terms(json!([{"alias": "al2@latest"}])), "1.32")).unwrap();
    let images: Vec<_> = found.iter().map(|image| (image.id.as_str(), image.variant, image.deprecated)).collect();
    assert_eq!(images, [("ami-gpu", ImageVariant::Accelerated, true), ("ami-std", ImageVariant::Standard, false)]);
    let form = wire.form(3);
    assert_eq!(
        (form["IncludeDeprecated"].as_str(), form["Filter.2.Name"].as_str(), form["Filter.2.Value.1"].as_str()),
        ("true", "state", "available")
    );
    assert!(wire.bodies()[0].contains("/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id"));
}

#[test]
fn an_alias_without_images_is_invalid_and_sends_no_request() {
    let wire = Wire::default();
    let error = run(discovery(&wire, Isolation::Isolated).images(&terms(json!([{"alias": "al2@latest"}])), "1.33")).unwrap_err();
    assert_eq!((error.kind, error.code.as_str()), (CloudErrorKind::Invalid, "UnsupportedAlias"));
}

/// The reader of the error has to know which parameter to permit.
#[test]
fn the_error_of_a_denied_parameter_names_it() {
    let denied = json!({"__type": "AccessDeniedException", "message": "no"}).to_string();
    let wire = Wire::answering([(400, &denied)]);
    let error = run(discovery(&wire, Isolation::Isolated).images(&terms(json!([{"ssmParameter": "/images/web"}])), "1.33")).unwrap_err();
    assert!(error.kind == CloudErrorKind::Unauthorized && error.message.contains("/images/web"), "{error}");
}

const TYPES: &str = r"<DescribeInstanceTypesResponse><instanceTypeSet><item>
  <instanceType>m5.large</instanceType><hypervisor>nitro</hypervisor>
  <supportedUsageClasses><item>on-demand</item><item>spot</item></supportedUsageClasses>
  <processorInfo><supportedArchitectures><item>x86_64</item></supportedArchitectures><sustainedClockSpeedInGhz>3.1</sustainedClockSpeedInGhz><manufacturer>Intel</manufacturer></processorInfo>
  <vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>8192</sizeInMiB></memoryInfo>
  <ebsInfo><ebsOptimizedSupport>default</ebsOptimizedSupport><ebsOptimizedInfo><maximumBandwidthInMbps>4750</maximumBandwidthInMbps></ebsOptimizedInfo>
    <maximumEbsAttachments>27</maximumEbsAttachments><attachmentLimitType>shared</attachmentLimitType></ebsInfo>
  <networkInfo><defaultNetworkCardIndex>0</defaultNetworkCardIndex><networkCards><item><networkCardIndex>0</networkCardIndex><maximumNetworkInterfaces>3</maximumNetworkInterfaces></item></networkCards>
    <ipv4AddressesPerInterface>10</ipv4AddressesPerInterface><enaSupport>required</enaSupport></networkInfo>
  <placementGroupInfo><supportedStrategies><item>cluster</item><item>partition</item><item>spread</item></supportedStrategies></placementGroupInfo>
  <nitroEnclavesSupport>unsupported</nitroEnclavesSupport>
</item></instanceTypeSet></DescribeInstanceTypesResponse>";
const OFFERINGS: &str = r"<DescribeInstanceTypeOfferingsResponse><instanceTypeOfferingSet>
  <item><instanceType>m5.large</instanceType><location>us-east-1b</location></item><item><instanceType>m5.large</instanceType><location>us-east-1a</location></item>
</instanceTypeOfferingSet></DescribeInstanceTypeOfferingsResponse>";
const SPOT: &str = r"<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>
  <item><instanceType>m5.large</instanceType><availabilityZone>us-east-1a</availabilityZone><spotPrice>0.04</spotPrice><timestamp>2026-03-01T11:00:00.000Z</timestamp></item>
  <item><instanceType>m5.large</instanceType><availabilityZone>us-east-1b</availabilityZone><spotPrice>much</spotPrice><timestamp>2026-03-01T11:00:00.000Z</timestamp></item>
</spotPriceHistorySet></DescribeSpotPriceHistoryResponse>";

fn price_list(name: &str, dollars: &str) -> String {
    let product = json!({
        "product": {"attributes": {"instanceType": name}},
        "terms": {"OnDemand": {"t": {"priceDimensions": {"d": {"pricePerUnit": {"USD": dollars}}}}}},
    });
    json!({"PriceList": [product.to_string()]}).to_string()
}

#[test]
fn a_price_is_read_in_the_currency_of_the_partition_or_in_the_only_one_there_is() {
    let price = |rates: Value, currency: &str| {
        let product = json!({
            "product": {"attributes": {"instanceType": "m5.large"}},
            "terms": {"OnDemand": {"t": {"priceDimensions": {"d": {"pricePerUnit": rates}}}}},
        });
        crate::catalog::product_price(&product.to_string(), currency).map(|(_, price)| price)
    };
    let dollars = |amount| Some(Price::from_dollars(amount));
    assert_eq!(price(json!({"USD": "0.1"}), "USD"), dollars(0.1));
    assert_eq!(price(json!({"CNY": "0.7", "USD": "0.0000000000"}), "CNY"), dollars(0.7));
    assert_eq!(price(json!({"EUR": "0.2"}), "USD"), dollars(0.2));
    for rates in [json!({"EUR": "0.2", "GBP": "0.1"}), json!({"USD": "0.0000000000"}), json!({"EUR": "much"}), json!({})] {
        assert_eq!(price(rates.clone(), "USD"), None, "{rates}");
    }
}

#[test]
fn the_catalog_holds_types_zones_and_prices() {
    let wire = Wire::answering([
        (200, TYPES),
        (200, OFFERINGS),
        (200, &price_list("m5.large", "0.1230000000")),
        (200, &price_list("m5.metal", "5")),
        (200, SPOT),
    ]);
    let discovery = discovery(&wire, Isolation::Reachable);
    let blob = run(discovery.catalog(None)).unwrap().blob;
    let on_demand = Catalog::decode(&blob).unwrap();
    assert_eq!(on_demand.spot_price("m5.large", "us-east-1a"), on_demand.on_demand_price("m5.large"), "until spot prices are read");
    let blob = run(discovery.with_spot_prices(&blob)).unwrap();
    let catalog = Catalog::decode(&blob).unwrap();
    let live = catalog.facts("m5.large").unwrap();
    let table = whittle_ec2::facts::offline::types().into_iter().find(|facts| facts.name == "m5.large").unwrap();
    assert_eq!(*live, table, "facts from EC2 equal those of the built-in table");
    assert_eq!(catalog.offered["m5.large"], ["us-east-1a", "us-east-1b"]);
    assert_eq!(catalog.on_demand_price("m5.large"), Some(Price::from_dollars(0.123)));
    assert_eq!(catalog.spot_price("m5.large", "us-east-1a"), Some(Price::from_dollars(0.04)));
    assert_eq!(catalog.spot_price("m5.large", "us-east-1b"), None, "a price that cannot be parsed is skipped");
    assert_eq!(wire.form(0)["Filter.2.Value.2"], "arm64");
    assert_eq!(wire.form(1)["LocationType"], "availability-zone");
    assert!(wire.bodies()[2].contains("Compute Instance") && wire.bodies()[3].contains("bare metal"));
}

/// What a region's catalog is read as, with these responses of the price list.
fn read<const N: usize>(types: &str, list: [(u16, String); N], known: Option<&Catalog>) -> (Catalog, Option<CloudError>) {
    let wire = Wire::answering([(200, types), (200, OFFERINGS)]);
    wire.answers.lock().unwrap().extend(list);
    let known = known.map(Catalog::encode);
    let read = run(discovery(&wire, Isolation::Reachable).catalog(known.as_deref())).unwrap();
    assert!(wire.answers.lock().unwrap().is_empty(), "each response is asked for");
    (Catalog::decode(&read.blob).unwrap(), read.prices_failed)
}

#[test]
fn what_a_network_card_takes_is_read_of_types_with_efa() {
    const SLOTS: &str = "<maximumNetworkInterfaces>3</maximumNetworkInterfaces>";
    let first_card = |efa: &str| {
        let types = TYPES.replace(SLOTS, &format!("{SLOTS}<interfaceTypeSet><item>interface</item></interfaceTypeSet>"));
        let types = types.replace("<enaSupport>", &format!("{efa}<enaSupport>"));
        let (catalog, _) = read(&types, [no_access()], None);
        let facts = catalog.facts("m5.large").unwrap();
        (facts.efa_interfaces, facts.network_cards[0].efa)
    };
    assert_eq!(first_card("<efaInfo><maximumEfaInterfaces>1</maximumEfaInterfaces></efaInfo>"), (1, CardEfa::None));
    assert_eq!(first_card(""), (0, CardEfa::Any), "of most types it says nothing");
}

fn no_access() -> (u16, String) {
    (400, json!({"__type": "AccessDeniedException", "message": "no"}).to_string())
}

fn no_products() -> (u16, String) {
    (200, json!({"PriceList": []}).to_string())
}

/// A catalog with one price.
fn priced(region: &str, name: &str, dollars: f64) -> Catalog {
    let on_demand = [(name.to_owned(), Price::from_dollars(dollars))].into();
    Catalog { region: region.into(), on_demand, ..Catalog::default() }
}

/// The types with one of bare metal besides.
fn with_bare_metal() -> String {
    let (start, end) = TYPES.split_once("<item>").unwrap();
    let virtual_one = format!("<item>{}</item>", end.rsplit_once("</item></instanceTypeSet>").unwrap().0);
    let metal = virtual_one.replace("m5.large", "m5.metal").replace("<hypervisor>nitro</hypervisor>", "");
    format!("{start}{virtual_one}{metal}</instanceTypeSet></DescribeInstanceTypesResponse>")
}

#[test]
fn without_the_price_list_the_built_in_prices_are_used_and_the_cause_is_known() {
    let (catalog, failed) = read(TYPES, [no_access()], None);
    let table = whittle_ec2::facts::tables::static_on_demand_prices("us-east-1");
    assert_eq!(catalog.on_demand_price("m5.large"), table.get("m5.large").copied());
    let failed = failed.unwrap();
    assert_eq!((failed.call, failed.kind), ("GetProducts", CloudErrorKind::Unauthorized));
    let isolated = discovery(&Wire::answering([(200, TYPES), (200, OFFERINGS)]), Isolation::Isolated);
    assert_eq!(run(isolated.catalog(None)).unwrap().prices_failed, None, "the price list is not asked by intent");
}

#[test]
fn when_the_price_list_fails_the_latest_prices_are_kept() {
    let table = whittle_ec2::facts::tables::static_on_demand_prices("us-east-1");
    for (region, expected) in [("us-east-1", Some(Price::from_dollars(0.5))), ("eu-west-1", table.get("m5.large").copied())] {
        let (catalog, failed) = read(TYPES, [no_access()], Some(&priced(region, "m5.large", 0.5)));
        assert_eq!(catalog.on_demand_price("m5.large"), expected, "latest prices of {region}");
        assert!(failed.is_some());
    }
}

#[test]
fn prices_that_were_read_are_used_when_others_could_not_be() {
    let metal = with_bare_metal();
    let virtual_one = || (200, price_list("m5.large", "0.1230000000"));
    let known = priced("us-east-1", "m5.metal", 7.0);
    for last in [no_products(), no_access()] {
        let (catalog, failed) = read(&metal, [virtual_one(), last], Some(&known));
        assert_eq!(catalog.on_demand_price("m5.large"), Some(Price::from_dollars(0.123)));
        assert_eq!(catalog.on_demand_price("m5.metal"), Some(Price::from_dollars(7.0)), "the latest");
        assert_eq!(failed.unwrap().call, "GetProducts");
    }
    let (catalog, failed) = read(&metal, [no_products(), (200, price_list("m5.metal", "5"))], Some(&known));
    assert_eq!(catalog.on_demand_price("m5.metal"), Some(Price::from_dollars(5.0)));
    assert!(failed.unwrap().message.contains("Compute Instance"));
}

#[test]
fn a_region_without_bare_metal_needs_no_prices_of_it() {
    let (catalog, failed) = read(TYPES, [(200, price_list("m5.large", "0.1230000000")), no_products()], None);
    assert_eq!((catalog.on_demand_price("m5.large"), failed), (Some(Price::from_dollars(0.123)), None));
}

#[test]
fn a_price_list_that_lacks_a_type_leaves_its_latest_price() {
    let list = || [(200, price_list("c5.large", "0.085")), no_products()];
    let (catalog, failed) = read(TYPES, list(), Some(&priced("us-east-1", "m5.large", 0.5)));
    assert_eq!((catalog.on_demand_price("m5.large"), failed), (Some(Price::from_dollars(0.5)), None));
    // In a region without a table that of another stands in, until the list has answered.
    let of = |latest: Price| {
        let wire = Wire::answering([(200, TYPES), (200, OFFERINGS)]);
        wire.answers.lock().unwrap().extend(list());
        let region = "ap-southeast-3";
        let known = Catalog { region: region.into(), on_demand: [("m5.large".to_owned(), latest)].into(), ..Catalog::default() };
        let discovery = Ec2Discovery::new(&wire.config(), region.into(), Isolation::Reachable, clock());
        let read = run(discovery.catalog(Some(&known.encode()))).unwrap();
        Catalog::decode(&read.blob).unwrap().on_demand_price("m5.large")
    };
    let stands_in = whittle_ec2::facts::tables::static_on_demand_prices("ap-southeast-3")["m5.large"];
    assert_eq!(of(Price::from_dollars(0.5)), Some(Price::from_dollars(0.5)));
    assert_eq!(of(stands_in), None, "it is the price of another region");
}

#[test]
fn a_spot_market_that_lacks_a_pool_leaves_its_latest_price() {
    let wire = Wire::answering([(200, TYPES), (200, OFFERINGS), (200, SPOT)]);
    let discovery = discovery(&wire, Isolation::Isolated);
    let mut known = Catalog::decode(&run(discovery.catalog(None)).unwrap().blob).unwrap();
    let latest = Price::from_dollars(0.03);
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c"].map(|zone| (zone.to_owned(), latest));
    known.spot.insert("m5.large".to_owned(), zones.into());
    let read = Catalog::decode(&run(discovery.with_spot_prices(&known.encode())).unwrap()).unwrap();
    assert_eq!(read.spot_price("m5.large", "us-east-1a"), Some(Price::from_dollars(0.04)), "it was read");
    assert_eq!(read.spot_price("m5.large", "us-east-1b"), Some(latest));
    assert_eq!(read.spot_price("m5.large", "us-east-1c"), None, "the type is not sold there");
}

#[test]
fn an_empty_response_is_an_error_and_never_replaces_a_catalog() {
    let none = "<DescribeInstanceTypesResponse><instanceTypeSet/></DescribeInstanceTypesResponse>";
    let wire = Wire::answering([(200, none)]);
    assert_eq!(run(discovery(&wire, Isolation::Isolated).catalog(None)).unwrap_err().kind, CloudErrorKind::Unknown);
    let no_prices = "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet/></DescribeSpotPriceHistoryResponse>";
    let wire = Wire::answering([(200, TYPES), (200, OFFERINGS), (200, no_prices)]);
    let discovery = discovery(&wire, Isolation::Isolated);
    let known = run(discovery.catalog(None)).unwrap().blob;
    assert_eq!(run(discovery.with_spot_prices(&known)).unwrap_err().call, "DescribeSpotPriceHistory");
}

#[test]
fn reading_types_keeps_the_spot_prices_of_the_same_region() {
    let spot: std::collections::BTreeMap<_, _> =
        [("m5.large".to_owned(), [("us-east-1a".to_owned(), Price::from_dollars(0.03))].into())].into();
    for (region, kept) in [("us-east-1", true), ("eu-west-1", false)] {
        let wire = Wire::answering([(200, TYPES), (200, OFFERINGS)]);
        let known = Catalog { region: region.into(), spot: spot.clone(), ..Catalog::default() };
        let blob = run(discovery(&wire, Isolation::Isolated).catalog(Some(&known.encode()))).unwrap().blob;
        assert_eq!(Catalog::decode(&blob).unwrap().spot, if kept { spot.clone() } else { Default::default() }, "{region}");
    }
}

#[test]
fn a_placement_group_is_looked_up_by_id_or_name_and_a_missing_one_is_none() {
    let page = "<DescribePlacementGroupsResponse><placementGroupSet><item><groupName>web</groupName><groupId>pg-1</groupId>\
        <strategy>partition</strategy><partitionCount>3</partitionCount><state>deleting</state></item></placementGroupSet>\
        </DescribePlacementGroupsResponse>";
    let (unknown, refused) = (refusal("InvalidPlacementGroup.Unknown"), refusal("UnauthorizedOperation"));
    let wire = Wire::answering([(200, page), (200, page), (400, &unknown), (403, &refused)]);
    let explorer = discovery(&wire, Isolation::Isolated);
    let ask = |selector: Value| run(explorer.placement_groups(&serde_json::from_value(selector).unwrap()));
    let found = ask(json!({"id": "pg-1"})).unwrap();
    let expected = PlacementGroup {
        id: "pg-1".into(),
        name: "web".into(),
        strategy: "partition".into(),
        partition_count: 3,
        state: "deleting".into(),
    };
    assert_eq!(found, [expected], "unusable groups are included");
    // A name may look like an id.
    ask(json!({"name": "pg-web"})).unwrap();
    assert_eq!(ask(json!({"name": "web"})).unwrap(), []);
    assert_eq!(ask(json!({"name": "web"})).unwrap_err().kind, CloudErrorKind::Unauthorized);
    let fields = |index: usize| wire.form(index).into_iter().filter(|(key, _)| key.starts_with("Group")).collect::<Vec<_>>();
    assert_eq!(fields(0), [("GroupId.1".to_owned(), "pg-1".to_owned())]);
    assert_eq!(fields(1), [("GroupName.1".to_owned(), "pg-web".to_owned())]);
}
