//! The region's instance types, zones and prices (aws 3.1, 5).

use crate::budget::send;
use crate::discovery::Ec2Discovery;
use crate::errors::incomplete;
use crate::facts;
use crate::machines::filter;
use aws_sdk_ec2::types as sdk;
use aws_sdk_pricing::types as prices;
use std::collections::{BTreeMap, BTreeSet};
use whittle_ec2::facts::{Catalog, Zone, tables};
use whittle_ports::CloudError;
use whittle_units::Price;

/// The largest page sizes that the API accepts.
const TYPE_PAGE: i32 = 100;
const OFFERING_PAGE: i32 = 1000;
const SPOT_PAGE: i32 = 2000;
const PRICE_PAGE: i32 = 100;

impl Ec2Discovery {
    /// Reads the region's catalog but for its spot prices, which are those of `known`. An empty response is an error, so that it never replaces a complete catalog.
    pub(crate) async fn read_catalog(&self, known: Option<&Catalog>) -> Result<Catalog, CloudError> {
        let types = self.types().await?;
        if types.is_empty() {
            return Err(incomplete("DescribeInstanceTypes", "the response contains no types"));
        }
        let offered = self.offered().await?;
        if offered.is_empty() {
            return Err(incomplete("DescribeInstanceTypeOfferings", "the response contains no offerings"));
        }
        let zones: BTreeSet<&String> = offered.values().flatten().collect();
        let zones = zones.into_iter().map(|name| Zone { name: name.clone(), id: String::new() }).collect();
        let spot = known.filter(|known| known.region == self.region).map(|known| known.spot.clone()).unwrap_or_default();
        let on_demand = on_demand(self.region.as_str(), self.on_demand_prices().await, known);
        Ok(Catalog { region: self.region.clone(), zones, types, offered, on_demand, spot }.normalized())
    }

    async fn types(&self) -> Result<Vec<whittle_ec2::facts::InstanceTypeFacts>, CloudError> {
        let filters =
            vec![filter("supported-virtualization-type", &["hvm"]), filter("processor-info.supported-architecture", &["x86_64", "arm64"])];
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let request = self.ec2.describe_instance_types().set_filters(Some(filters.clone())).max_results(TYPE_PAGE).set_next_token(next);
            let page = send!(self, aws_sdk_ec2, "DescribeInstanceTypes", request)?;
            found.extend(page.instance_types().iter().filter_map(facts::of));
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Zones by instance type.
    async fn offered(&self) -> Result<BTreeMap<String, Vec<String>>, CloudError> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut next = None;
        loop {
            let request = self.ec2.describe_instance_type_offerings().location_type(sdk::LocationType::AvailabilityZone);
            let request = request.max_results(OFFERING_PAGE).set_next_token(next);
            let page = send!(self, aws_sdk_ec2, "DescribeInstanceTypeOfferings", request)?;
            for offering in page.instance_type_offerings() {
                if let (Some(name), Some(zone)) = (offering.instance_type(), offering.location()) {
                    found.entry(name.as_str().to_owned()).or_default().push(zone.to_owned());
                }
            }
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Current spot prices by instance type and zone. The last entry of a pair wins.
    pub(crate) async fn spot_prices(&self) -> Result<BTreeMap<String, BTreeMap<String, Price>>, CloudError> {
        let mut found: BTreeMap<String, BTreeMap<String, Price>> = BTreeMap::new();
        let start = aws_smithy_types::DateTime::from_secs(self.clock.now().as_second());
        let mut next = None;
        loop {
            let request = self
                .ec2
                .describe_spot_price_history()
                .set_product_descriptions(Some(vec!["Linux/UNIX".to_owned(), "Linux/UNIX (Amazon VPC)".to_owned()]))
                .start_time(start)
                .max_results(SPOT_PAGE)
                .set_next_token(next);
            let page = send!(self, aws_sdk_ec2, "DescribeSpotPriceHistory", request)?;
            for entry in page.spot_price_history() {
                let price = entry.spot_price().and_then(|text| text.parse::<f64>().ok()).filter(|_| entry.timestamp().is_some());
                if let (Some(name), Some(zone), Some(price)) = (entry.instance_type(), entry.availability_zone(), price) {
                    found.entry(name.as_str().to_owned()).or_default().insert(zone.to_owned(), Price::from_dollars(price));
                }
            }
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
        if found.is_empty() {
            return Err(incomplete("DescribeSpotPriceHistory", "the response contains no prices"));
        }
        Ok(found)
    }

    /// On-demand prices from the Price List API, bare metal included; empty where the API cannot be reached.
    async fn on_demand_prices(&self) -> Result<BTreeMap<String, Price>, CloudError> {
        let Some(client) = &self.pricing else { return Ok(BTreeMap::new()) };
        let currency = if self.region.as_str().starts_with("cn-") { "CNY" } else { "USD" };
        let mut found = BTreeMap::new();
        for (tenancy, family) in [("Shared", "Compute Instance"), ("Dedicated", "Compute Instance (bare metal)")] {
            let before = found.len();
            let mut next = None;
            loop {
                let request = client.get_products().service_code("AmazonEC2").max_results(PRICE_PAGE);
                let request = request.set_filters(Some(price_filters(self.region.as_str(), tenancy, family)?)).set_next_token(next);
                let page = send!(self, aws_sdk_pricing, "GetProducts", request)?;
                found.extend(page.price_list().iter().filter_map(|product| product_price(product, currency)));
                next = page.next_token.filter(|token| !token.is_empty());
                if next.is_none() {
                    break;
                }
            }
            if found.len() == before {
                return Err(incomplete("GetProducts", format!("the response for {family} contains no prices")));
            }
        }
        Ok(found)
    }
}

/// The on-demand prices to use. While the Price List API fails, the latest prices stay in effect, so that no node is consolidated
/// because of an outdated price. Before its first response, and in a VPC that cannot reach it, the built-in table is used.
fn on_demand(region: &str, fresh: Result<BTreeMap<String, Price>, CloudError>, known: Option<&Catalog>) -> BTreeMap<String, Price> {
    let failed = match fresh {
        Ok(fresh) if !fresh.is_empty() => {
            // Prices of another region are irrelevant.
            let table = if tables::has_prices(region) { tables::static_on_demand_prices(region) } else { BTreeMap::new() };
            return table.into_iter().chain(fresh).collect();
        }
        Ok(_) => None,
        Err(error) => Some(error),
    };
    let known = known.filter(|known| known.region.as_str() == region && !known.on_demand.is_empty());
    if let (Some(error), Some(known)) = (&failed, known) {
        tracing::warn!(%error, "the price list did not respond: the latest prices stay in effect");
        return known.on_demand.clone();
    }
    let reason = failed.map_or_else(|| "it cannot be reached".to_owned(), |error| error.to_string());
    if tables::has_prices(region) {
        tracing::warn!(reason, "no price list: using the built-in table of on-demand prices");
    } else {
        tracing::error!(region, reason, "no price list, and no built-in table of this region: using the on-demand prices of us-east-1");
    }
    tables::static_on_demand_prices(region)
}

fn price_filters(region: &str, tenancy: &str, family: &str) -> Result<Vec<prices::Filter>, CloudError> {
    let fields = [
        ("regionCode", region),
        ("serviceCode", "AmazonEC2"),
        ("preInstalledSw", "NA"),
        ("operatingSystem", "Linux"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
        ("tenancy", tenancy),
        ("productFamily", family),
    ];
    let one =
        |(field, value): (&str, &str)| prices::Filter::builder().r#type(prices::FilterType::TermMatch).field(field).value(value).build();
    fields.into_iter().map(one).collect::<Result<_, _>>().map_err(|error| incomplete("GetProducts", error.to_string()))
}

/// Instance type and price of one product of the price list; `None` for a free or unreadable one.
pub(crate) fn product_price(product: &str, currency: &str) -> Option<(String, Price)> {
    let product: serde_json::Value = serde_json::from_str(product).ok()?;
    let name = product["product"]["attributes"]["instanceType"].as_str()?;
    let terms = product["terms"]["OnDemand"].as_object()?;
    let dimensions = terms.values().filter_map(|term| term["priceDimensions"].as_object()).flat_map(serde_json::Map::values);
    let mut amounts = dimensions.filter_map(|dimension| dimension["pricePerUnit"][currency].as_str()?.parse::<f64>().ok());
    let price = amounts.find(|amount| *amount > 0.0)?;
    Some((name.to_owned(), Price::from_dollars(price)))
}
