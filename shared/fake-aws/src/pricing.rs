//! The Price List API: on-demand prices of the region's types.

use crate::errors::Fault;
use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The maximum page size, which is the default.
const PAGE: usize = 100;
/// Attributes that requests filter by and that are equal for all products here.
const COMMON: &[(&str, &str)] = &[
    ("serviceCode", "AmazonEC2"),
    ("preInstalledSw", "NA"),
    ("operatingSystem", "Linux"),
    ("capacitystatus", "Used"),
    ("marketoption", "OnDemand"),
];

pub(crate) fn call(place: &mut dyn Place, action: &str, mut body: Value) -> Result<Value, Fault> {
    if action != "GetProducts" {
        return Err(Fault::new("UnknownOperationException", format!("{action} is not known here")));
    }
    let mut take = |name: &str| body.as_object_mut().and_then(|fields| fields.remove(name)).unwrap_or(Value::Null);
    let (service, filters, size, token) = (take("ServiceCode"), take("Filters"), take("MaxResults"), take("NextToken"));
    let _ = take("FormatVersion");
    if let Some((unknown, _)) = body.as_object().and_then(|fields| fields.iter().next()) {
        return Err(Fault::new("InvalidParameterException", format!("{unknown} is not known")));
    }
    if service != "AmazonEC2" {
        return Err(Fault::new("InvalidParameterException", "Input Parameters are invalid"));
    }
    let size = size.as_u64().map_or(PAGE, |size| usize::try_from(size).unwrap_or(usize::MAX));
    let start = token.as_str().map_or(Ok(0), str::parse::<usize>).map_err(|_| Fault::new("InvalidNextTokenException", "it is no token"))?;
    if !(1..=PAGE).contains(&size) {
        return Err(Fault::new("InvalidParameterException", format!("MaxResults is 1 to {PAGE}")));
    }
    let wanted = filters_of(&filters)?;
    let all = products(place);
    let found: Vec<&Value> = all.iter().filter(|product| wanted.iter().all(|(field, value)| attribute(product, field) == *value)).collect();
    let page: Vec<Value> = found.iter().skip(start).take(size).map(|product| Value::String(product.to_string())).collect();
    let next = (start + page.len() < found.len()).then(|| (start + page.len()).to_string());
    let mut answer = json!({"FormatVersion": "aws_v1", "PriceList": page});
    if let Some(next) = next {
        answer["NextToken"] = json!(next);
    }
    Ok(answer)
}

fn filters_of(filters: &Value) -> Result<BTreeMap<&str, &str>, Fault> {
    let mut found = BTreeMap::new();
    for filter in filters.as_array().into_iter().flatten() {
        match (filter["Type"].as_str(), filter["Field"].as_str(), filter["Value"].as_str()) {
            (Some("TERM_MATCH"), Some(field), Some(value)) => found.insert(field, value),
            _ => return Err(Fault::new("InvalidParameterException", format!("the filter {filter} is invalid"))),
        };
    }
    Ok(found)
}

/// An attribute by which products are filtered.
fn attribute<'a>(product: &'a Value, field: &str) -> &'a str {
    let of = &product["product"];
    let value = if field == "productFamily" { &of["productFamily"] } else { &of["attributes"][field] };
    value.as_str().unwrap_or_default()
}

/// One product for each type that has a price.
fn products(place: &mut dyn Place) -> Vec<Value> {
    let region = place.region();
    let currency = if region.partition() == "aws-cn" { "CNY" } else { "USD" };
    let product = |(name, price): (&String, &whittle_units::Price)| {
        let metal = name.contains(".metal");
        let family = if metal { "Compute Instance (bare metal)" } else { "Compute Instance" };
        let tenancy = if metal { "Dedicated" } else { "Shared" };
        let mut attributes: BTreeMap<&str, &str> = COMMON.iter().copied().collect();
        attributes.extend([("instanceType", name.as_str()), ("regionCode", region.name()), ("tenancy", tenancy)]);
        let dimension = json!({"unit": "Hrs", "pricePerUnit": {currency: format!("{:.10}", price.dollars())}});
        json!({
            "product": {"productFamily": family, "attributes": attributes, "sku": name},
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {format!("{name}.T"): {"priceDimensions": {format!("{name}.T.D"): dimension}}}},
        })
    };
    region.catalog.on_demand.iter().map(product).collect()
}
