//! Reads a catalog of instance types.

use super::error::ReadError;
use super::{files, unique};
use crate::money::Currency;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::meta::null_as_default;
use whittle_api::{ClusterObjects, labels, words};
use whittle_model::scheduling::InstanceTypes;
use whittle_units::{Partition, Price, Quantity, Resources};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TypeEntry {
    name: String,
    architecture: String,
    // Programs in Go write null for an empty list or map.
    #[serde(default, deserialize_with = "null_as_default")]
    operating_systems: Vec<String>,
    resources: Resources,
    #[serde(default, deserialize_with = "null_as_default")]
    offerings: Vec<OfferingEntry>,
    #[serde(default)]
    overhead: Option<Resources>,
    #[serde(default, deserialize_with = "null_as_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    requirements: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct OfferingEntry {
    /// Unknown if missing.
    #[serde(default)]
    price: Option<f64>,
    /// True if missing.
    #[serde(default)]
    available: Option<bool>,
    #[serde(default)]
    reservation_capacity: Option<u32>,
    #[serde(default, deserialize_with = "null_as_default")]
    requirements: Vec<Requirement>,
}

impl OfferingEntry {
    fn is_available(&self) -> bool {
        self.available.unwrap_or(true)
    }

    fn is_reserved(&self) -> bool {
        let is_so =
            |rule: &Requirement| rule.key == labels::CAPACITY_TYPE && rule.values.iter().any(|value| value == labels::CAPACITY_RESERVED);
        self.requirements.iter().any(is_so)
    }
}

/// Reads the instance types of a catalog file.
///
/// # Errors
/// A file that is unreadable or not a catalog.
pub fn read(path: &Path) -> Result<Vec<InstanceType>, ReadError> {
    let fail = |message: String| ReadError::Catalog { path: files::shown(path), message };
    let text = files::text(path).map_err(|error| fail(error.fault.reason()))?;
    let types = parse(&text).map_err(fail)?;
    if types.is_empty() {
        return Err(fail("it has no instance type".to_owned()));
    }
    Ok(types)
}

/// Reads the instance types of a catalog text.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Vec<InstanceType>, String> {
    // What editors of Windows write before the text.
    let entries = entries(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let mut names = BTreeSet::new();
    if let Some(fault) = entries.iter().find_map(|entry| fault(entry).or_else(|| twice(entry, &mut names))) {
        return Err(fault);
    }
    if let Some(fault) = two_partitions(&entries) {
        return Err(fault);
    }
    let keys = keys_of(&entries);
    Ok(entries.into_iter().map(|entry| instance_type(entry, &keys)).collect())
}

/// The entries of a text, or where and why it has none.
fn entries(text: &str) -> Result<Vec<TypeEntry>, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let entries = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let at = error.path().to_string();
        let said = words::plain(&error.into_inner().to_string());
        if at == "." { format!("it is no JSON list of instance types: {said}") } else { format!("{}: {said}", words::printable(&at)) }
    })?;
    json.end().map_err(|error| format!("it is no JSON list of instance types: {}", words::plain(&error.to_string())))?;
    unique::json(text).map_err(|error| words::plain(&error.to_string()))?;
    Ok(entries)
}

/// What an hour of no machine costs: far more than that of the dearest one.
const TOO_DEAR: f64 = 1e6;

/// What is wrong with a type: a word, an offering, an amount or a price. On one that costs nothing everything would be placed, and no sum
/// would mean anything.
fn fault(entry: &TypeEntry) -> Option<String> {
    let name = &entry.name;
    if name.is_empty() {
        return Some("an instance type has no name: write that of EC2".to_owned());
    }
    if let Some(word) = words_of(entry).find(|word| !words::is_printable(word)) {
        return Some(format!("{name:?}: {word:?} has letters that cannot be printed: write letters, digits, - and ."));
    }
    unknown_word(entry)
        .or_else(|| repeated_offering(entry))
        .or_else(|| nowhere(entry))
        .or_else(|| of_amounts(entry))
        .or_else(|| of_prices(entry))
}

/// The first word of EC2's or Kubernetes' that is none: with it, no pod would ever fit.
fn unknown_word(entry: &TypeEntry) -> Option<String> {
    let name = &entry.name;
    let none_of = |word: &str, known: &[&str]| !known.contains(&word);
    if name.contains(char::is_whitespace) {
        return Some(format!("{name:?} is no name of an instance type: write it without spaces"));
    }
    if none_of(&entry.architecture, &ARCHITECTURES) {
        return Some(format!("{name}, architecture: {:?} is none: write one of {}", entry.architecture, ARCHITECTURES.join(", ")));
    }
    if let Some(odd) = entry.operating_systems.iter().find(|system| none_of(system, &SYSTEMS)) {
        return Some(format!("{name}, operatingSystems: {odd:?} is none: write some of {}", SYSTEMS.join(", ")));
    }
    entry.offerings.iter().enumerate().find_map(|(at, offering)| {
        let sold_as = offering.requirements.iter().filter(|rule| rule.key == labels::CAPACITY_TYPE);
        let odd = sold_as.flat_map(|rule| &rule.values).find(|word| none_of(word, &CAPACITY_TYPES))?;
        Some(format!("{name}, offerings[{at}]: {odd:?} is no capacity type: write one of {}", CAPACITY_TYPES.join(", ")))
    })
}

const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const SYSTEMS: [&str; 2] = ["linux", "windows"];
const CAPACITY_TYPES: [&str; 3] = ["on-demand", "reserved", "spot"];

/// Names, keys and values, which messages show as they are.
fn words_of(entry: &TypeEntry) -> impl Iterator<Item = &str> {
    let rules = entry.offerings.iter().flat_map(|offering| &offering.requirements).chain(&entry.requirements);
    let of_rules = rules.flat_map(|rule| iter::once(&rule.key).chain(&rule.values));
    let of_labels = entry.labels.iter().flat_map(|(key, value)| [key, value]);
    [&entry.name, &entry.architecture].into_iter().chain(&entry.operating_systems).chain(of_labels).chain(of_rules).map(String::as_str)
}

/// The first offering that does not say where it is sold, or as what.
fn nowhere(entry: &TypeEntry) -> Option<String> {
    let lacks =
        |offering: &OfferingEntry, key: &&str| !offering.requirements.iter().any(|rule| rule.key == *key && rule.operator == Operator::In);
    entry.offerings.iter().enumerate().find_map(|(at, offering)| {
        let key = [labels::CAPACITY_TYPE, labels::ZONE].into_iter().find(|key| lacks(offering, key))?;
        Some(format!("{}, offerings[{at}]: Requirements lack {key}: write it with operator In", entry.name))
    })
}

/// The first offering that cannot be told from another one of the type.
fn repeated_offering(entry: &TypeEntry) -> Option<String> {
    let key = |offering: &OfferingEntry| {
        let mut rules: Vec<_> = offering.requirements.iter().map(|rule| (rule.key.clone(), rule.operator, rule.values.clone())).collect();
        rules.iter_mut().for_each(|(_, _, values)| values.sort());
        rules.sort();
        rules
    };
    let mut known = BTreeMap::new();
    entry.offerings.iter().enumerate().find_map(|(at, offering)| {
        let before = known.insert(key(offering), at)?;
        let name = &entry.name;
        Some(format!("{name}, offerings[{at}]: Requirements are those of offerings[{before}]: keep the one whose price is true"))
    })
}

fn of_amounts(entry: &TypeEntry) -> Option<String> {
    let name = &entry.name;
    let fields = [("resources", Some(&entry.resources)), ("overhead", entry.overhead.as_ref())];
    fields.into_iter().find_map(|(field, amounts)| {
        let (resource, amount) = amounts?.iter().find(|(_, amount)| *amount < Quantity::ZERO)?;
        let amount = amount.text_of(resource);
        Some(format!("{name}, {field}.{resource}: {amount} is less than nothing: write 0 or more"))
    })
}

fn of_prices(entry: &TypeEntry) -> Option<String> {
    let name = &entry.name;
    let mut prices = entry.offerings.iter().enumerate().filter_map(|(at, offering)| Some((at, offering.price?, offering)));
    prices.find_map(|(at, price, offering)| {
        let remedy = "write what an hour costs, or leave Price out of what is not to be launched";
        let wrong = match price {
            price if price < 0.0 => format!("is {price}, and nothing costs less than nothing"),
            // Earlier releases printed such prices where nothing is sold.
            price if price >= TOO_DEAR && offering.is_available() => format!("is {price}, and no machine costs that much an hour"),
            // What is reserved is paid for: Karpenter's price of it is a ten-millionth of that on demand.
            price if Price::from_dollars(price) == Price::ZERO && offering.is_available() && !offering.is_reserved() => {
                "is 0, or too small to differ from it, and nothing is for free".to_owned()
            }
            _ => return None,
        };
        Some(format!("{name}, offerings[{at}]: Price {wrong}: {remedy}"))
    })
}
/// The fault of a type that was there before.
fn twice<'a>(entry: &'a TypeEntry, names: &mut BTreeSet<&'a str>) -> Option<String> {
    let name = entry.name.as_str();
    (!names.insert(name)).then(|| format!("{name} is there twice: keep one of them, with all its offerings"))
}

/// The fault of a catalog with zones, or regions, of two partitions, whose prices may be in two currencies.
fn two_partitions(entries: &[TypeEntry]) -> Option<String> {
    let two = |key: &'static str| {
        let rules = entries.iter().flat_map(|entry| entry.offerings.iter().flat_map(|sold| &sold.requirements).chain(&entry.requirements));
        let of_rules = rules.filter(move |rule| rule.key == key && rule.operator == Operator::In).flat_map(|rule| &rule.values);
        let mut places = of_rules.chain(entries.iter().filter_map(move |entry| entry.labels.get(key)));
        let first = places.next()?;
        let other = places.find(|place| Partition::of(place) != Partition::of(first))?;
        Some((first, other))
    };
    let (kind, (first, other)) =
        two(labels::ZONE).map(|found| ("zones", found)).or_else(|| two(labels::REGION).map(|found| ("regions", found)))?;
    Some(format!("{kind} {first} and {other} are of two partitions of AWS, which no account has together: keep those of one region"))
}

/// The currency in which a catalog has its prices, by the region or the zone that its types name.
pub(crate) fn currency(types: &[InstanceType]) -> Option<Currency> {
    let named = |key: &str| {
        let of_types = types.iter().flat_map(|one| &one.requirements);
        of_types.filter(|rule| rule.key == key && rule.operator == Operator::In).flat_map(|rule| &rule.values).next()
    };
    // The name of a zone begins with that of its region.
    named(labels::REGION).or_else(|| named(labels::ZONE)).map(|place| Currency::of_region(place))
}

/// Offers the same types to every NodePool.
#[must_use]
pub fn for_all_pools(objects: &ClusterObjects, types: Vec<InstanceType>) -> BTreeMap<String, Arc<InstanceTypes>> {
    let types = Arc::new(types.into());
    objects.node_pools.iter().map(|p| (p.metadata.name.clone(), Arc::clone(&types))).collect()
}

/// All keys that instance types define: the provider's, and any that the catalog uses.
fn keys_of(entries: &[TypeEntry]) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> =
        labels::WELL_KNOWN.iter().filter(|k| k.starts_with(labels::AWS_DOMAIN)).map(|k| (*k).to_owned()).collect();
    for entry in entries {
        keys.extend(entry.labels.keys().cloned());
        keys.extend(entry.requirements.iter().map(|r| r.key.clone()));
        keys.extend(entry.offerings.iter().flat_map(|o| o.requirements.iter().map(|r| r.key.clone())));
    }
    keys
}

fn instance_type(entry: TypeEntry, keys: &BTreeSet<String>) -> InstanceType {
    let mut requirements = vec![
        Requirement::is_in(labels::INSTANCE_TYPE, [entry.name.clone()]),
        Requirement::is_in(labels::ARCH, [entry.architecture]),
        Requirement::is_in(labels::OS, entry.operating_systems),
    ];
    requirements.extend(entry.labels.into_iter().map(|(key, value)| Requirement::is_in(&key, [value])));
    requirements.extend(entry.requirements);
    let offered: BTreeSet<&str> = entry.offerings.iter().flat_map(|o| o.requirements.iter().map(|r| r.key.as_str())).collect();
    for key in offered {
        let named = entry.offerings.iter().flat_map(|o| &o.requirements).filter(|r| r.key == key && r.operator == Operator::In);
        let values: BTreeSet<String> = named.flat_map(|r| r.values.iter().cloned()).collect();
        if !requirements.iter().any(|r| r.key == key) {
            requirements.push(Requirement::is_in(key, values));
        }
    }
    let defined: BTreeSet<String> = requirements.iter().map(|r| r.key.clone()).collect();
    requirements.extend(keys.difference(&defined).map(|key| Requirement {
        key: key.clone(),
        operator: Operator::DoesNotExist,
        values: Vec::new(),
        min_values: None,
    }));
    let mut capacity = entry.resources;
    if !capacity.0.contains_key("pods") {
        capacity.set("pods", Quantity::from_units(110));
    }
    let default_overhead = || Resources::from([("cpu", Quantity::from_milli(100)), ("memory", Quantity::from_mebibytes(10))]);
    InstanceType {
        name: entry.name,
        requirements,
        offerings: entry
            .offerings
            .into_iter()
            .map(|o| Offering {
                price: o.price.filter(|price| *price < TOO_DEAR).map_or(Price::ZERO, Price::from_dollars),
                // An offering without a price is never launched, because it might cost anything.
                available: o.is_available() && o.price.is_some_and(|price| price >= 0.0),
                requirements: o.requirements,
                reservation_capacity: o.reservation_capacity,
            })
            .collect(),
        capacity,
        overhead: entry.overhead.unwrap_or_else(default_overhead),
        ebs_attachments: None,
    }
}

/// Instance types in the form that [`parse`] reads, with the zones of one region named after another.
pub(crate) fn written(types: &[InstanceType], renamed: Option<(&str, &str)>) -> Value {
    Value::Array(types.iter().map(|one| entry(one, renamed)).collect())
}

fn entry(one: &InstanceType, renamed: Option<(&str, &str)>) -> Value {
    let of_offerings: BTreeSet<&str> = one.offerings.iter().flat_map(|o| o.requirements.iter().map(|r| r.key.as_str())).collect();
    // The others follow: from the fields of the entry, from its offerings, or by being absent.
    let is_own = |r: &&Requirement| {
        let from_field = [labels::INSTANCE_TYPE, labels::ARCH, labels::OS].contains(&r.key.as_str());
        !from_field && !of_offerings.contains(r.key.as_str()) && r.operator != Operator::DoesNotExist
    };
    let (single, other): (Vec<&Requirement>, Vec<&Requirement>) =
        one.requirements.iter().filter(is_own).partition(|r| r.operator == Operator::In && r.values.len() == 1);
    let mut own_labels: BTreeMap<&str, &str> = single.iter().filter_map(|r| Some((r.key.as_str(), r.values.first()?.as_str()))).collect();
    if let (Some(region), Some((_, to))) = (own_labels.get_mut(labels::REGION), renamed) {
        *region = to;
    }
    let systems = one.requirements.iter().find(|r| r.key == labels::OS).map(|r| r.values.clone()).unwrap_or_default();
    let resources = |all: &Resources| -> Value {
        all.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, amount)| (name.to_owned(), json!(amount.text_of(name)))).collect()
    };
    let mut out = json!({
        "name": one.name,
        "architecture": one.label(labels::ARCH).unwrap_or_default(),
        "operatingSystems": systems,
        "resources": resources(&one.capacity),
        "overhead": resources(&one.overhead),
        "labels": own_labels,
        "offerings": one.offerings.iter().map(|offering| written_offering(offering, renamed)).collect::<Vec<_>>(),
    });
    if !other.is_empty() {
        out["requirements"] = json!(other);
    }
    out
}

fn written_offering(offering: &Offering, renamed: Option<(&str, &str)>) -> Value {
    let mut requirements = offering.requirements.clone();
    // A label that no offering has is absent without being written.
    requirements.retain(|r| r.operator != Operator::DoesNotExist);
    if let Some((from, to)) = renamed {
        // Ids of zones are those of their region.
        requirements.retain(|r| r.key != labels::ZONE_ID);
        for value in requirements.iter_mut().filter(|r| r.key == labels::ZONE).flat_map(|r| &mut r.values) {
            *value = value.replacen(from, to, 1);
        }
    }
    // Without a price it is not to be launched.
    let price = (offering.price > Price::ZERO).then(|| offering.price.dollars());
    json!({"Price": price, "Available": offering.available, "Requirements": requirements})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Offers;

    /// With the requirements in one order, and without what a catalog's format does not have: requirements that say that a label is absent,
    /// and how many volumes a type attaches.
    fn comparable(mut types: Vec<InstanceType>) -> Vec<InstanceType> {
        for one in &mut types {
            one.requirements.retain(|r| r.operator != Operator::DoesNotExist);
            one.ebs_attachments = None;
            one.requirements.iter_mut().for_each(|r| r.values.sort());
            one.requirements.sort_by(|a, b| a.key.cmp(&b.key));
            one.offerings.iter_mut().for_each(|o| o.requirements.retain(|r| r.operator != Operator::DoesNotExist));
            one.capacity.0.retain(|_, amount| !amount.is_zero());
            one.overhead.0.retain(|_, amount| !amount.is_zero());
        }
        types
    }

    #[test]
    fn what_is_written_is_read_again() {
        let types = Offers::of_region("eu-west-1").unwrap();
        let again = parse(&written(&types, None).to_string()).unwrap();
        assert!(500 < types.len());
        for (one, again) in comparable(types).into_iter().zip(comparable(again)) {
            assert_eq!(one, again);
        }
    }

    fn sold(price: &str, zone: &str) -> String {
        let offering = |price: &str, of: &str| {
            format!(
                r#"{{"Price": {price}, "Requirements": [{{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["{zone}"]}},
                    {{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["{of}"]}}]}}"#
            )
        };
        let offerings = [offering("0.1", "on-demand"), offering(price, "spot")].join(", ");
        format!(r#"[{{"name": "m5.large", "architecture": "amd64", "resources": {{"cpu": "2"}}, "offerings": [{offerings}]}}]"#)
    }

    #[test]
    fn words_that_neither_ec2_nor_kubernetes_has_are_refused() {
        let good = sold("0.05", "us-east-1a");
        assert!(parse(&good).is_ok());
        let refused = |from: &str, to: &str| parse(&good.replacen(from, to, 1)).unwrap_err();
        assert!(refused("amd64", "sparc").starts_with("m5.large, architecture: \"sparc\" is none: write one of amd64, arm64"));
        assert!(refused("\"resources\"", "\"operatingSystems\": [\"beos\"], \"resources\"").contains("operatingSystems: \"beos\" is none"));
        assert!(refused("on-demand", "free").starts_with("m5.large, offerings[0]: \"free\" is no capacity type"));
        assert!(refused("m5.large", "m5 large").contains("without spaces"));
    }

    #[test]
    fn nothing_is_for_free() {
        for price in ["0", "0.0", "-0.0", "1e-12"] {
            let error = parse(&sold(price, "a")).unwrap_err();
            assert!(error.starts_with("m5.large, offerings[1]: Price is 0") && error.contains("leave Price out"), "{price}: {error}");
        }
        for (price, available) in [("0.001", true), ("999999", true), ("null", false)] {
            assert_eq!(parse(&sold(price, "a")).unwrap()[0].offerings[1].available, available, "{price}");
        }
    }

    #[test]
    fn what_is_reserved_or_not_for_sale_may_have_no_price_to_speak_of() {
        let reserved = |price: &str| sold(price, "a").replacen("spot", "reserved", 1);
        for price in ["0", "4.2e-10", "3.84e-8"] {
            let types = parse(&reserved(price)).unwrap();
            let offering = &types[0].offerings[1];
            assert!(offering.available && offering.price < Price::from_dollars(1e-6), "{price}: {}", offering.price);
        }
        assert!(parse(&reserved("-1")).unwrap_err().contains("less than nothing"));
        let closed = sold("0", "a").replacen("{\"Price\": 0,", "{\"Price\": 0, \"Available\": false,", 1);
        assert!(!parse(&closed).unwrap()[0].offerings[1].available, "{closed}");
    }

    #[test]
    fn null_is_what_a_missing_field_is() {
        let good = sold("0.05", "us-east-1a");
        let with = |from: &str, to: &str| parse(&good.replacen(from, &format!("{to}{from}"), 1)).unwrap();
        let plain = parse(&good).unwrap();
        for field in ["operatingSystems", "overhead", "labels", "requirements"] {
            assert_eq!(with("\"resources\"", &format!("\"{field}\": null, ")), plain, "{field}");
        }
        for field in ["Available", "ReservationCapacity"] {
            assert_eq!(with("\"Price\"", &format!("\"{field}\": null, ")), plain, "{field}");
        }
        let unsold = r#"[{"name": "m5.large", "architecture": "amd64", "resources": {"cpu": "2"}, "offerings": null}]"#;
        assert!(parse(unsold).unwrap()[0].offerings.is_empty());
    }

    /// A machine that runs was to cost eighteen billions an hour, and to be replaced.
    #[test]
    fn the_price_that_earlier_releases_printed_where_there_is_none_is_unknown() {
        let printed = r#""Price": 18446744073.709553"#;
        let text = sold("18446744073.709553", "a").replacen(printed, &format!("\"Available\": false, {printed}"), 1);
        let offering = &parse(&text).unwrap()[0].offerings[1];
        assert_eq!((offering.price, offering.available), (Price::ZERO, false));
        let types = Offers::of_region("us-east-1").unwrap();
        let of_all = written(&types, None);
        let prices: Vec<f64> = offerings_in(&of_all).filter_map(|offering| offering["Price"].as_f64()).collect();
        assert!(1000 < prices.len() && prices.iter().all(|price| *price < TOO_DEAR));
    }

    fn offerings_in(catalog: &Value) -> impl Iterator<Item = &Value> {
        let types = catalog.as_array().into_iter().flatten();
        types.flat_map(|one| one["offerings"].as_array().into_iter().flatten())
    }

    #[test]
    fn what_no_machine_has_is_refused_with_type_and_field() {
        for (price, wanted) in [("-1", "Price is -1,"), ("1e6", "Price is 1000000,"), ("1e13", "Price is 1")] {
            let error = parse(&sold(price, "a")).unwrap_err();
            assert!(error.starts_with("m5.large, offerings[1]: ") && error.contains(wanted), "{price}: {error}");
        }
        let of = |fields: &str| format!(r#"{{"name": "m5.large", "architecture": "amd64", {fields}}}"#);
        let cases = [
            (r#""resources": {"cpu": "-2"}"#, "m5.large, resources.cpu: -2 is less than nothing"),
            (r#""resources": {"cpu": "2"}, "overhead": {"memory": "-1Gi"}"#, "m5.large, overhead.memory: -1Gi is less than nothing"),
            (r#""resources": {"cpu": "2"}, "ofeerings": []"#, "ofeerings"),
            (r#""resources": {"cpu": "2"}, "offerings": [{"price": 1}]"#, "price"),
        ];
        for (fields, wanted) in cases {
            let error = parse(&format!("[{}]", of(fields))).err().unwrap_or_default();
            assert!(error.contains(wanted), "{fields}: {error}");
        }
        let one = of(r#""resources": {"cpu": "2"}"#);
        assert!(parse(&format!("[{one}, {one}]")).unwrap_err().starts_with("m5.large is there twice"));
    }

    #[test]
    fn offerings_say_where_they_are_sold_and_each_is_there_once() {
        let fault = |text: &str| parse(text).err().unwrap_or_default();
        let sold = sold("0.2", "a");
        assert_eq!(fault(&sold), "");
        let twice = fault(&sold.replace("\"spot\"", "\"on-demand\""));
        assert!(twice.starts_with("m5.large, offerings[1]: Requirements are those of offerings[0]: keep the one"), "{twice}");
        for (key, odd) in [("topology.kubernetes.io/zone", "zone"), ("karpenter.sh/capacity-type", "kind")] {
            let lacks = fault(&sold.replace(key, odd));
            assert!(lacks.starts_with(&format!("m5.large, offerings[0]: Requirements lack {key}: ")), "{lacks}");
        }
    }

    #[test]
    fn zones_of_two_partitions_are_refused_by_their_names() {
        let mixed = |first: &str, other: &str| {
            let two = sold("0.2", first).replacen(first, "MARK", 1).replace(first, other).replace("MARK", first);
            parse(&two).err().unwrap_or_default()
        };
        let said = mixed("cn-north-1a", "us-east-1a");
        assert!(
            said.starts_with("zones cn-north-1a and us-east-1a are of two partitions") && said.contains("keep those of one region"),
            "{said}"
        );
        assert!(mixed("us-gov-west-1a", "us-west-2a").contains("us-gov-west-1a and us-west-2a"));
        assert_eq!([mixed("us-east-1a", "us-east-1b"), mixed("cn-north-1a", "cn-northwest-1a")], ["", ""]);
        let regions = |first: &str, other: &str| {
            let of = |name: &str, region: &str| {
                format!(
                    r#"{{"name": "{name}", "architecture": "amd64", "resources": {{"cpu": "2"}}, "labels": {{"topology.kubernetes.io/region": "{region}"}}}}"#
                )
            };
            parse(&format!("[{}, {}]", of("a", first), of("b", other))).err().unwrap_or_default()
        };
        assert!(regions("eu-west-1", "cn-north-1").starts_with("regions eu-west-1 and cn-north-1 are of two partitions"));
        assert_eq!(regions("eu-west-1", "eu-west-2"), "");
        // Also where each type has zones of one alone.
        let (one, other) = (sold("0.2", "cn-north-1a"), sold("0.2", "eu-west-1a").replace("m5.large", "m5.xlarge"));
        let both = format!("{}, {}", one.trim_end_matches(']'), other.trim_start_matches('['));
        assert!(parse(&both).unwrap_err().starts_with("zones cn-north-1a and eu-west-1a are of two partitions"));
    }

    #[test]
    fn words_that_no_line_can_hold_are_refused() {
        let key = parse(&sold("0.2", "a").replace("resources", "x\\nFORGED")).unwrap_err();
        assert!(!key.contains('\n') && key.contains("FORGED"), "{key}");
        for word in ["m5.large", "amd64", "spot", "topology.kubernetes.io/zone"] {
            let error = parse(&sold("0.2", "a").replace(word, "x\\nFORGED")).unwrap_err();
            assert!(error.contains(r#""x\nFORGED" has letters that cannot be printed"#) && !error.contains('\n'), "{word}: {error}");
        }
    }

    #[test]
    fn the_currency_is_that_of_the_place() {
        let of = |zone| currency(&parse(&sold("1", zone)).unwrap());
        assert_eq!([of("cn-north-1a"), of("eu-west-1a")], [Some(Currency::Cny), Some(Currency::Usd)]);
        assert_eq!(currency(&[]), None);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_catalog() {
        assert!(parse("\u{feff}[]").is_ok_and(|types| types.is_empty()));
    }

    #[test]
    fn zones_are_named_after_another_region() {
        let types: Vec<InstanceType> = Offers::of_region("eu-west-1").unwrap().into_iter().take(3).collect();
        let text = written(&types, Some(("eu-west-1", "eu-central-1"))).to_string();
        assert!(text.contains("eu-central-1a") && !text.contains("eu-west-1") && !text.contains("euw1-az"), "{text}");
    }
}
