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
    /// Reads the region's catalog but for its spot prices, which are those of `known`, and why on-demand prices could not be read. An empty
    /// response is an error, so that it never replaces a complete catalog.
    pub(crate) async fn read_catalog(&self, known: Option<&Catalog>) -> Result<(Catalog, Option<CloudError>), CloudError> {
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
        let sells_bare_metal = types.iter().any(|facts| facts.hypervisor.is_empty());
        let list = self.price_list(sells_bare_metal).await;
        let on_demand = on_demand(self.region.as_str(), &list, known);
        Ok((Catalog { region: self.region.clone(), zones, types, offered, on_demand, spot }.normalized(), list.failed))
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
    pub(crate) async fn spot_prices(&self) -> Result<SpotPrices, CloudError> {
        let mut found = SpotPrices::new();
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

    /// On-demand prices from the Price List API, bare metal included. What was read stays when something else cannot be.
    async fn price_list(&self, sells_bare_metal: bool) -> PriceList {
        let mut list = PriceList::default();
        let Some(client) = &self.pricing else { return list };
        let families = [("Shared", "Compute Instance", true), ("Dedicated", "Compute Instance (bare metal)", sells_bare_metal)];
        for (tenancy, family, is_sold) in families {
            let before = list.prices.len();
            if let Err(error) = self.read_family(client, (tenancy, family), &mut list.prices).await {
                // Whatever else is asked for is answered alike.
                list.failed.get_or_insert(error);
                break;
            }
            if is_sold && list.prices.len() == before {
                list.failed.get_or_insert(incomplete("GetProducts", format!("the response for {family} contains no prices")));
            }
        }
        list
    }

    /// Adds the prices of a product family.
    async fn read_family(
        &self,
        client: &aws_sdk_pricing::Client,
        (tenancy, family): (&str, &str),
        found: &mut BTreeMap<String, Price>,
    ) -> Result<(), CloudError> {
        let currency = if self.region.as_str().starts_with("cn-") { "CNY" } else { "USD" };
        let mut next = None;
        loop {
            let request = client.get_products().service_code("AmazonEC2").max_results(PRICE_PAGE);
            let request = request.set_filters(Some(price_filters(self.region.as_str(), tenancy, family)?)).set_next_token(next);
            let page = send!(self, aws_sdk_pricing, "GetProducts", request)?;
            found.extend(page.price_list().iter().filter_map(|product| product_price(product, currency)));
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(());
            }
        }
    }
}

/// Prices of the spot market by instance type and zone.
pub(crate) type SpotPrices = BTreeMap<String, BTreeMap<String, Price>>;

/// The spot prices that were read, with the latest of those that the response lacks, where the type is still sold: it may be partial, and
/// what has no price is not launched.
pub(crate) fn with_latest(mut read: SpotPrices, known: &Catalog) -> SpotPrices {
    for (name, zones) in &known.spot {
        let offered = known.offered.get(name).map(Vec::as_slice).unwrap_or_default();
        for (zone, price) in zones.iter().filter(|(zone, _)| offered.contains(*zone)) {
            read.entry(name.clone()).or_default().entry(zone.clone()).or_insert(*price);
        }
    }
    read
}

/// On-demand prices of the Price List API; none where it cannot be reached by intent.
#[derive(Default)]
struct PriceList {
    prices: BTreeMap<String, Price>,
    /// Why others could not be read.
    failed: Option<CloudError>,
}

/// The on-demand prices to use. What the Price List API does not say is as it was latest, so that no node is consolidated because of an
/// outdated price. Before its first response, and in a VPC that cannot reach it, the built-in table is used.
fn on_demand(region: &str, list: &PriceList, known: Option<&Catalog>) -> BTreeMap<String, Price> {
    let known = known.filter(|known| known.region.as_str() == region && !known.on_demand.is_empty());
    let prices = list.prices.clone();
    match (&list.failed, known) {
        (None, known) if !prices.is_empty() => {
            let (table, is_own) = (tables::static_on_demand_prices(region), tables::has_prices(region));
            // Those of another region, which stood in, are irrelevant now.
            let latest = known.into_iter().flat_map(|known| &known.on_demand);
            let latest = latest.filter(|(name, price)| is_own || table.get(*name) != Some(*price));
            let kept: BTreeMap<String, Price> = latest.map(|(name, price)| (name.clone(), *price)).collect();
            let own = if is_own { table } else { BTreeMap::new() };
            own.into_iter().chain(kept).chain(prices).collect()
        }
        (Some(error), Some(known)) => {
            let read = prices.len();
            tracing::warn!(%error, read, "the price list did not respond: the latest prices stay in effect where none were read");
            known.on_demand.clone().into_iter().chain(prices).collect()
        }
        (failed, _) => {
            let (read, reason) = (prices.len(), failed.as_ref().map_or_else(|| "it cannot be reached".to_owned(), ToString::to_string));
            if tables::has_prices(region) {
                tracing::warn!(reason, read, "no price list: using the built-in table of on-demand prices");
            } else {
                let others = tables::price_stand_in(region);
                tracing::error!(region, reason, read, "no price list, and no built-in table of this region: using the prices of {others}");
            }
            tables::static_on_demand_prices(region).into_iter().chain(prices).collect()
        }
    }
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

/// Instance type and price of one product of the price list; `None` for a free or unreadable one. Partitions have prices in one currency,
/// which need not be the expected one.
pub(crate) fn product_price(product: &str, currency: &str) -> Option<(String, Price)> {
    let product: serde_json::Value = serde_json::from_str(product).ok()?;
    let name = product["product"]["attributes"]["instanceType"].as_str()?;
    let terms = product["terms"]["OnDemand"].as_object()?;
    let dimensions = terms.values().filter_map(|term| term["priceDimensions"].as_object()).flat_map(serde_json::Map::values);
    let amount = |dimension: &serde_json::Value| -> Option<f64> {
        let rates = dimension["pricePerUnit"].as_object()?;
        let rate = rates.get(currency).or_else(|| rates.values().next().filter(|_| rates.len() == 1))?;
        rate.as_str()?.parse().ok()
    };
    let mut amounts = dimensions.filter_map(amount);
    let price = amounts.find(|amount| *amount > 0.0)?;
    Some((name.to_owned(), Price::from_dollars(price)))
}
