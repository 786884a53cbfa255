//! The contracts of discovery, but for the network and instance profiles: the cluster, images, reservations, placement groups, the catalog.

use crate::{CloudErrorKind, Discovery};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{AmiSelectorTerm, CapacityReservationSelectorTerm, PlacementGroupSelector};
use whittle_ec2::facts::Catalog;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, ImageVariant, PlacementGroup};
use whittle_units::{ClusterName, Timestamp};

/// A cluster is described as it is, and one that does not exist is not found.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn cluster_info(cloud: &impl Discovery, known: &ClusterInfo) {
    assert_eq!(cloud.cluster_info(&known.name).await.expect("the cluster is described"), *known);
    let missing = cloud.cluster_info(&ClusterName::new("another-cluster")).await.expect_err("there is no such cluster");
    // The kind decides which remedy a user is told.
    assert_eq!((missing.kind, missing.code.as_str()), (CloudErrorKind::NotFound, "ResourceNotFoundException"), "{missing}");
}

/// An image of the account that asks, which alone in its region has this name and the keys of its tags.
#[derive(Clone, Debug)]
pub struct OwnImage {
    pub image: Image,
    /// An SSM parameter that holds its id.
    pub parameter: String,
    /// An SSM parameter that holds something else.
    pub text_parameter: String,
}

impl OwnImage {
    /// The image of this id, owned by this account, for a region that is made for a test.
    #[must_use]
    pub fn of_account(account: &str, id: &str) -> Self {
        let image = Image {
            id: id.to_owned(),
            name: "contract-image-1".to_owned(),
            owner: account.to_owned(),
            architecture: "x86_64".to_owned(),
            created_at: Timestamp::from_second(1_700_000_000).expect("in range"),
            deprecated: false,
            variant: ImageVariant::Any,
            tags: [("contract/image".to_owned(), "own".to_owned())].into(),
        };
        Self { image, parameter: "/contract/image".to_owned(), text_parameter: "/contract/text".to_owned() }
    }
}

/// A capacity reservation of this account, for a region that is made for a test.
#[must_use]
pub fn reservation_of_account(account: &str, zone: &str) -> CapacityReservation {
    CapacityReservation {
        id: "cr-0123456789abcdef0".to_owned(),
        zone: zone.to_owned(),
        instance_type: "m5.large".to_owned(),
        owner: account.to_owned(),
        match_criteria: "targeted".to_owned(),
        kind: "default".to_owned(),
        interruptible: true,
        platform: "Linux/UNIX".to_owned(),
        tenancy: "default".to_owned(),
        placement_group: None,
        outpost: None,
        state: "active".to_owned(),
        ends_at: Some(Timestamp::from_second(1_900_000_000).expect("in range")),
        free: 3,
        tags: [("contract/reservation".to_owned(), "own".to_owned())].into(),
    }
}

/// A placement group, for a region that is made for a test.
#[must_use]
pub fn partition_group() -> PlacementGroup {
    PlacementGroup {
        id: "pg-0123456789abcdef0".to_owned(),
        name: "wide".to_owned(),
        strategy: "partition".to_owned(),
        partition_count: 3,
        state: "available".to_owned(),
    }
}

/// Images by each kind of term but aliases.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn images(cloud: &impl Discovery, own: &OwnImage) {
    let OwnImage { image, parameter, text_parameter } = own;
    let (key, value) = image.tags.iter().next().expect("the image has a tag");
    let id = |id: &str| AmiSelectorTerm { id: Some(id.to_owned()), ..AmiSelectorTerm::default() };
    let tagged = |value: &str| AmiSelectorTerm { tags: Some([(key.clone(), value.to_owned())].into()), ..AmiSelectorTerm::default() };
    let in_parameter = |name: &str| AmiSelectorTerm { ssm_parameter: Some(name.to_owned()), ..AmiSelectorTerm::default() };
    let both = |image: &str, parameter: &str| AmiSelectorTerm { id: Some(image.to_owned()), ..in_parameter(parameter) };
    let named = |name: &str, owner: Option<&str>| AmiSelectorTerm {
        name: Some(name.to_owned()),
        owner: owner.map(str::to_owned),
        ..AmiSelectorTerm::default()
    };
    let pattern = format!("{}*", &image.name[..image.name.len() - 1]);
    let found = [
        vec![id(&image.id)],
        vec![named(&image.name, None)],
        vec![named(&pattern, None)],
        vec![named(&pattern, Some("self"))],
        vec![named(&pattern, Some(&image.owner))],
        vec![tagged(value)],
        vec![tagged("*")],
        vec![in_parameter(parameter)],
        vec![both(&image.id, "/contract/none")],
        // However many terms select it, it is one image.
        vec![id(&image.id), tagged(value), in_parameter(parameter), in_parameter("/contract/none")],
    ];
    for terms in found {
        let images = cloud.images(&terms, "1.33").await.expect("images are described");
        assert_eq!(images, std::slice::from_ref(image), "{terms:?}");
    }
    for term in [
        id("ami-0123456789abcdef0"),
        named("no such image", None),
        named(&image.name, Some("amazon")),
        named(&image.name, Some("999999999999")),
        tagged("no such value"),
        in_parameter("/contract/none"),
        in_parameter(text_parameter),
        both("ami-0123456789abcdef0", parameter),
    ] {
        let images = cloud.images(std::slice::from_ref(&term), "1.33").await.expect("what selects nothing is no failure");
        assert_eq!(images, [], "{term:?}");
    }
}

/// Images by aliases, for clusters of Kubernetes 1.33: `published` has the ids of the images of each.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn aliases(cloud: &impl Discovery, published: &[(&str, &[&str])]) {
    let by_alias = async |alias: &str| {
        let term = AmiSelectorTerm { alias: Some(alias.to_owned()), ..AmiSelectorTerm::default() };
        cloud.images(&[term], "1.33").await
    };
    for (alias, ids) in published {
        let images = by_alias(alias).await.expect("images are described");
        let found: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        assert_eq!(found, ids.iter().copied().collect(), "{alias}: {images:?}");
    }
    for unpublished in ["al2023@v19990101", "bottlerocket@v0.1.0"] {
        assert_eq!(by_alias(unpublished).await.expect("a release that was not published is no failure"), [], "{unpublished}");
    }
    for refused in ["al2@latest", "al2023x@latest"] {
        let error = by_alias(refused).await.expect_err("an alias without images for this version is an error");
        assert_eq!((error.kind, error.code.as_str()), (CloudErrorKind::Invalid, "UnsupportedAlias"), "{refused}: {error}");
    }
}

/// Capacity reservations by id and by tag. `known` is the region's only one, active, with a tag, and used by nothing.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn capacity_reservations(cloud: &impl Discovery, known: &CapacityReservation) {
    let (key, value) = known.tags.iter().next().expect("the reservation has a tag");
    let by_id = |id: &str| CapacityReservationSelectorTerm { id: Some(id.to_owned()), ..CapacityReservationSelectorTerm::default() };
    let by_tag = |value: &str| {
        let tags = Some(BTreeMap::from([(key.clone(), value.to_owned())]));
        CapacityReservationSelectorTerm { tags, ..CapacityReservationSelectorTerm::default() }
    };
    for (terms, is_found) in [
        (vec![by_tag(value)], true),
        (vec![by_tag("*")], true),
        (vec![by_tag("no such value")], false),
        (vec![by_id(&known.id)], true),
        (vec![by_id("cr-0fedcba9876543210")], false),
        (vec![by_id(&known.id), by_tag(value)], true),
        (Vec::new(), false),
    ] {
        let found = cloud.capacity_reservations(&terms).await.expect("reservations are described");
        assert_eq!(found, if is_found { vec![known.clone()] } else { Vec::new() }, "{terms:?}");
    }
}

/// Placement groups by id and by name. `known` is the region's only one.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn placement_groups(cloud: &impl Discovery, known: &PlacementGroup) {
    let by_id = |id: &str| PlacementGroupSelector { id: Some(id.to_owned()), ..PlacementGroupSelector::default() };
    let by_name = |name: &str| PlacementGroupSelector { name: Some(name.to_owned()), ..PlacementGroupSelector::default() };
    for (selector, is_found) in [
        (by_id(&known.id), true),
        (by_name(&known.name), true),
        (by_id("pg-0fedcba9876543210"), false),
        (by_name("no such group"), false),
        (PlacementGroupSelector::default(), false),
    ] {
        let found = cloud.placement_groups(&selector).await.expect("placement groups are described");
        assert_eq!(found, if is_found { vec![known.clone()] } else { Vec::new() }, "{selector:?}");
    }
}

/// The catalog and its spot prices, of which every read gives the same bytes. Returns it with spot prices.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn catalog(cloud: &impl Discovery) -> Catalog {
    let decode = |blob: &[u8]| Catalog::decode(blob).expect("a catalog is read as it was written");
    let read = async |known: Option<&[u8]>| cloud.catalog(known).await.expect("the catalog is read").blob;
    let first = read(None).await;
    assert!(read(None).await == first, "what did not change is the same bytes");
    let unpriced = decode(&first);
    assert!(unpriced.spot.is_empty(), "spot prices are not read with the catalog");
    let described: BTreeSet<&str> = unpriced.types.iter().map(|facts| facts.name.as_str()).collect();
    let zones: BTreeSet<&str> = unpriced.zones.iter().map(|zone| zone.name.as_str()).collect();
    assert!(!described.is_empty() && !unpriced.offered.is_empty() && !unpriced.on_demand.is_empty());
    assert!(unpriced.types.iter().all(|facts| facts.vcpus > 0 && facts.memory_mib > 0 && !facts.architectures.is_empty()));
    for (name, offered) in &unpriced.offered {
        assert!(described.contains(name.as_str()), "{name} is offered and not described");
        assert!(offered.iter().all(|zone| zones.contains(zone.as_str())), "{name} is offered in {offered:?}, and the zones are {zones:?}");
    }
    let blob = cloud.with_spot_prices(&first).await.expect("spot prices are read");
    let priced = decode(&blob);
    assert!(!priced.spot.is_empty());
    assert!(priced.spot.keys().all(|name| described.contains(name.as_str())), "what is not described has no price");
    assert!(Catalog { spot: BTreeMap::new(), ..priced.clone() } == unpriced, "spot prices change nothing else");
    assert!(read(Some(&blob)).await == blob, "the known spot prices stay when the rest is read again");
    cloud.with_spot_prices(b"no catalog").await.expect_err("there are no spot prices without a catalog");
    priced
}
