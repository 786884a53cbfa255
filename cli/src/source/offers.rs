//! Instance types by NodePool: from a catalog file, or from a region's tables and the node classes among the manifests.

use super::catalog;
use super::error::ReadError;
use super::manifests::Manifests;
use super::market::{Market, PriceList};
use super::requirements;
use super::running::{self, OTHERS};
use super::settings::EXPRESSIONS;
use super::zones;
use crate::money::Currency;
use clap::Args;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{Kind as _, Node};
use whittle_api::karpenter::{Ec2NodeClass, NodePool, Operator, Requirement, ResolvedSubnet};
use whittle_api::{ConditionStatus, conditions, labels};
use whittle_claims::NodeClassRecord;
use whittle_ec2::facts::tables::{has_prices, price_stand_in};
use whittle_ec2::facts::{Catalog, offline};
use whittle_ec2::fleet::image_for;
use whittle_ec2::instance_types::{Context, Settings, Unavailable, relevant_settings, resolve};
use whittle_ec2::kubelet::{Expressions, Kubelet};
use whittle_ec2::node_class;
use whittle_model::scheduling::InstanceTypes;

/// The source of instance types.
#[derive(Args, Debug, Clone, Default)]
pub struct Offers {
    /// A file with what can be bought: instance types, zones and prices, as JSON.
    #[arg(long, value_name = "CATALOG.json", conflicts_with = "region")]
    pub instance_types: Option<PathBuf>,
    /// What this region sells, from built-in tables, as far as the EC2NodeClasses among the manifests admit it. On-demand prices
    /// are published ones, of another region where the tables have none of this one, which is said then; spot prices are made up, between
    /// 25 % and 60 % of these. Without this and --instance-types: the region that the nodes' labels name.
    #[arg(long, value_name = "REGION", value_parser = crate::place::region)]
    pub region: Option<String>,
}

/// Instance types by NodePool.
pub(crate) type InstanceTypesByPool = BTreeMap<String, Arc<InstanceTypes>>;

impl Offers {
    /// The instance types of each NodePool, and what any type costs.
    ///
    /// # Errors
    /// A catalog that cannot be read; no region named or found; a node class whose kubelet settings cannot be read.
    pub(crate) fn read(&self, manifests: &Manifests) -> Result<Market, ReadError> {
        self.read_of(manifests, || None)
    }

    /// The same; `elsewhere` is asked for the region if no node names it.
    ///
    /// # Errors
    /// As `read`.
    pub(crate) fn read_of(&self, manifests: &Manifests, elsewhere: impl Fn() -> Option<String>) -> Result<Market, ReadError> {
        let region_of = |manifests: &Manifests| region_of(manifests).or_else(&elsewhere);
        if let Some(path) = &self.instance_types {
            let types = catalog::read(path)?;
            let (prices, currency) = (PriceList::of_types(&types), currency_of(&types, || region_of(manifests)));
            return Ok(Market { types: catalog::for_all_pools(&manifests.objects, types), prices, currency, ..Market::default() });
        }
        let region = self.region.clone().or_else(|| region_of(manifests)).ok_or(ReadError::NoOffers { known: offline::REGIONS })?;
        let tables = offline::catalog(&region).ok_or(ReadError::NoTables { region, known: offline::REGIONS })?;
        let tables = running::with_zones_of(&manifests.objects, zones::named_as_in(manifests, tables));
        let unlisted = running::unlisted(&manifests.objects, &tables);
        let settings = settings(manifests);
        let mut by_class: BTreeMap<String, Arc<InstanceTypes>> = BTreeMap::new();
        // A list has megabytes, and most classes differ only in what no type depends on.
        let mut by_settings: BTreeMap<String, Arc<InstanceTypes>> = BTreeMap::new();
        let mut offered = InstanceTypesByPool::new();
        for pool in &manifests.objects.node_pools {
            let class = class_of(pool, &manifests.node_classes);
            let key = NodeClassRecord::name_of(&class);
            let types = match by_class.get(&key) {
                Some(types) => Arc::clone(types),
                // As the functions do; the reason is in its conditions.
                None if is_refused(&class) => Arc::new(InstanceTypes::default()),
                None => match by_settings.entry(relevant_settings(&class)) {
                    Entry::Occupied(known) => Arc::clone(known.get()),
                    Entry::Vacant(new) => Arc::clone(new.insert(Arc::new(types_of(&class, &tables, &settings)?.into()))),
                },
            };
            by_class.insert(key, Arc::clone(&types));
            offered.insert(pool.metadata.name.clone(), types);
        }
        let currency = Currency::of_region(tables.region.as_str());
        let mut assumptions = assumptions(tables.region.as_str());
        let abroad = elsewhere_than(tables.region.as_str(), manifests);
        assumptions.extend(abroad.map(|told| format!("{told}; whether something cheaper is sold there is not known")));
        assumptions.extend(manifests.objects.node_pools.iter().filter_map(|pool| unsold(pool, &tables)));
        assumptions.extend(running::assumption(&unlisted, tables.region.as_str()));
        if manifests.node_classes.iter().any(|class| class.spec.family().is_windows()) {
            assumptions.push("machines for Windows are counted at the price of Linux, without the licence, as Karpenter does".to_owned());
        }
        let unlisted = unlisted.into_keys().collect();
        Ok(Market { types: offered, prices: PriceList::of_tables(&tables), currency, assumptions, unlisted })
    }
}

impl Offers {
    /// What any type costs, for nodes that run, and what stands for prices that are not known; there is nothing to buy. Where no region is
    /// known, or it has no tables, no price is.
    ///
    /// # Errors
    /// A catalog that cannot be read, and a region that was asked for and has no tables.
    pub(crate) fn prices(&self, manifests: &Manifests, elsewhere: impl Fn() -> Option<String>) -> Result<Market, ReadError> {
        let found = || region_of(manifests).or_else(&elsewhere);
        if let Some(path) = &self.instance_types {
            let types = catalog::read(path)?;
            return Ok(Market { prices: PriceList::of_types(&types), currency: currency_of(&types, found), ..Market::default() });
        }
        let Some(region) = self.region.clone().or_else(found) else { return Ok(Market::default()) };
        let currency = Currency::of_region(&region);
        match offline::catalog(&region) {
            Some(tables) => {
                let missing = prices_missing(&region).map(|missing| format!("{missing}; {OTHERS}"));
                let assumptions = missing.into_iter().chain(elsewhere_than(&region, manifests)).collect();
                let tables = zones::named_as_in(manifests, tables);
                Ok(Market { prices: PriceList::of_tables(&tables), currency, assumptions, ..Market::default() })
            }
            None if self.region.is_some() => Err(ReadError::NoTables { region, known: offline::REGIONS }),
            None => Ok(Market { currency, ..Market::default() }),
        }
    }

    /// What the tables of a region have, as nodes of a class with all defaults.
    ///
    /// # Errors
    /// A region without tables.
    pub(crate) fn of_region(region: &str) -> Result<Vec<InstanceType>, ReadError> {
        Self::of_class(region, &Ec2NodeClass::default())
    }

    /// What the tables of a region have, as nodes of a class.
    ///
    /// # Errors
    /// A region without tables, and kubelet settings that cannot be read.
    pub(crate) fn of_class(region: &str, class: &Ec2NodeClass) -> Result<Vec<InstanceType>, ReadError> {
        let tables = offline::catalog(region).ok_or_else(|| ReadError::NoTables { region: region.to_owned(), known: offline::REGIONS })?;
        types_of(class, &tables, &Settings::standard())
    }
}

/// Instance types that a NodePool names and the tables do not have, except for those that are probably misspelt: another remark is about
/// these.
fn unsold(pool: &NodePool, tables: &Catalog) -> Option<String> {
    let by_type = |requirement: &&Requirement| requirement.key == labels::INSTANCE_TYPE && requirement.operator == Operator::In;
    let named = pool.spec.template.spec.requirements.iter().filter(by_type).flat_map(|requirement| &requirement.values);
    let is_sold = |name: &str| tables.on_demand.contains_key(name) || tables.spot.contains_key(name);
    let unsold: Vec<&str> =
        named.map(String::as_str).filter(|name| !is_sold(name) && !requirements::is_misspelt(labels::INSTANCE_TYPE, name)).collect();
    let sentence = || {
        format!(
            "{} {:?} names types that the built-in tables of {} do not have: {}; {OTHERS}",
            if pool.is_converted_provisioner() { "Provisioner" } else { NodePool::KIND },
            NodePool::given_name(&pool.metadata.name),
            tables.region,
            unsold.join(", ")
        )
    };
    (!unsold.is_empty()).then(sentence)
}

/// That the tables have no prices of a region, and which stand for them.
pub(crate) fn prices_missing(region: &str) -> Option<String> {
    let other = price_stand_in(region);
    let missing = || format!("the tables have no on-demand prices of {region}: those of {other} stand for them, and may differ");
    (!has_prices(region)).then(missing)
}

/// What the tables of a region lack.
fn assumptions(region: &str) -> Vec<String> {
    let prices = prices_missing(region).map(|missing| format!("{missing}; {OTHERS}"));
    let zones = || format!("the tables do not say which zones of {region} sell a type: {region}a, b and c are taken to sell all; {OTHERS}");
    prices.into_iter().chain((!offline::has_zones(region)).then(zones)).collect()
}

/// That nodes are in another region than the one whose prices count.
fn elsewhere_than(region: &str, manifests: &Manifests) -> Option<String> {
    let of = |node: &Node| node.metadata.label(labels::REGION).filter(|of| *of != region).map(str::to_owned);
    let others: BTreeSet<String> = manifests.objects.nodes.iter().filter_map(of).collect();
    let named = others.into_iter().collect::<Vec<_>>().join(", ");
    let said = || format!("there are nodes in {named}: the prices of {region} count for them, and may differ");
    (!named.is_empty()).then(said)
}

/// The currency of a catalog, which names its region; if it does not, that of the nodes' region.
fn currency_of(types: &[InstanceType], elsewhere: impl Fn() -> Option<String>) -> Currency {
    catalog::currency(types).or_else(|| elsewhere().as_deref().map(Currency::of_region)).unwrap_or_default()
}

/// The region in the nodes' labels.
fn region_of(manifests: &Manifests) -> Option<String> {
    manifests.objects.nodes.iter().find_map(|node| node.metadata.labels.get(labels::REGION).cloned())
}

/// Whether a class says of itself that it is not ready. One without conditions was never looked up, and is taken to be.
fn is_refused(class: &Ec2NodeClass) -> bool {
    conditions::find(&class.status.conditions, conditions::READY).is_some_and(|ready| ready.status == ConditionStatus::False)
}

/// The class that a pool refers to. One that is not among the manifests is assumed to have all defaults.
fn class_of(pool: &NodePool, classes: &[Ec2NodeClass]) -> Ec2NodeClass {
    let name = &pool.spec.template.spec.node_class_ref.name;
    let named = || classes.iter().filter(|class| class.metadata.name == *name);
    let corrected = named().find(|class| class.is_converted_template() == pool.is_converted_provisioner()).or_else(|| named().next());
    corrected.cloned().unwrap_or_else(|| {
        let mut class = Ec2NodeClass::default();
        class.metadata.name.clone_from(name);
        class
    })
}

/// The settings of a stack that a plan depends on: all defaults, but for the feature gates that are set.
fn settings(manifests: &Manifests) -> Settings {
    let on = manifests.settings.gate(EXPRESSIONS, false);
    Settings { expressions: if on { Expressions::Evaluated } else { Expressions::Ignored }, ..Settings::standard() }
}

/// Marks classes of which nothing is launched, whatever is found for them in EC2, as the functions do. Returns which, and why.
pub(super) fn refuse_classes(manifests: &mut Manifests) -> Vec<String> {
    let (settings, now) = (settings(manifests), manifests.settings.now);
    let mut refused = Vec::new();
    for class in &mut manifests.node_classes {
        if let Some(why) = node_class::refusal(class, &settings).filter(|_| !is_refused(class)) {
            conditions::set(&mut class.status.conditions, conditions::READY, ConditionStatus::False, "UnhealthyDependents", &why, now);
            refused.push(format!("EC2NodeClass {:?}, {why}; until then nothing is launched for its NodePools", class.metadata.name));
        }
    }
    manifests.objects.node_classes.clone_from(&manifests.node_classes);
    refused
}

/// A class without subnets in its status is assumed to have one in every zone.
fn types_of(class: &Ec2NodeClass, tables: &Catalog, settings: &Settings) -> Result<Vec<InstanceType>, ReadError> {
    let mut class = class.clone();
    if class.status.subnets.is_empty() {
        let subnet = |zone: &whittle_ec2::facts::Zone| ResolvedSubnet {
            zone: zone.name.clone(),
            zone_id: zone.id.clone(),
            ..ResolvedSubnet::default()
        };
        class.status.subnets = tables.zones.iter().map(subnet).collect();
    }
    let wrong = |message: String| ReadError::NodeClass { name: class.metadata.name.clone(), message };
    let kubelet = Kubelet::parse(class.spec.kubelet.as_ref()).map_err(|error| wrong(error.to_string()))?;
    let unavailable = Unavailable::default();
    let context = Context {
        family: class.spec.family(),
        class: &class,
        kubelet: &kubelet,
        settings,
        unavailable: &unavailable,
        reservation_capacity: &BTreeMap::new(),
        reservation_tenancies: &BTreeMap::new(),
        placement_group: None,
        ipv6: false,
        measured_memory: &BTreeMap::new(),
        measured_allocatable: &BTreeMap::new(),
    };
    let mut types = resolve(tables, &context).map_err(|error| wrong(error.to_string()))?;
    types.retain(|one| boots(&class, one));
    Ok(types)
}

/// Whether an image of a class is for a type, as the functions ask. Before images are found, those of Windows are for amd64 alone.
fn boots(class: &Ec2NodeClass, instance_type: &InstanceType) -> bool {
    if !class.status.amis.is_empty() {
        return image_for(&class.status.amis, instance_type).is_some();
    }
    let amd64 = || instance_type.requirements.iter().any(|one| one.key == labels::ARCH && one.values == ["amd64"]);
    !class.spec.family().is_windows() || amd64()
}

#[cfg(test)]
#[path = "offers_tests.rs"]
mod tests;
