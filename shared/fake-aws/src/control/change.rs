//! Changes to a region and to AWS's side of calls.

use super::ChangeError;
use crate::access;
use crate::api::{Api, NextError};
use crate::limits::Limits;
use crate::place::{Lone, Place};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::labels;
use whittle_claims::{ShiftState, ZoneShift};
use whittle_ec2::facts::Catalog;
use whittle_ec2::instance_types::quota_of;
use whittle_ec2::interruption::InstanceStatus;
use whittle_sim::region::PoolRefusal;
use whittle_units::{InstanceId, Price, SignedDuration, Timestamp};

/// A machine costs at most this, in dollars per hour.
const PRICE_MAX: f64 = 10_000.0;
/// The longest lag, and the furthest that the clock is put on at once: ten years.
const SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;
const CAPACITY_TYPES: &[&str] = &[labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND, labels::CAPACITY_RESERVED];

/// What is to be different from now on. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Change {
    /// Dollars per hour by instance type and zone.
    pub spot_prices: BTreeMap<String, BTreeMap<String, f64>>,
    /// Dollars per hour by instance type.
    pub on_demand_prices: BTreeMap<String, f64>,
    /// How many machines pools still have.
    pub pools: Vec<PoolSize>,
    /// vCPUs that may run at once.
    pub quotas: Vec<Quota>,
    /// Errors of pools; replaces those before.
    pub refusals: Option<Vec<Refusal>>,
    /// The next answers to actions, by action; they are added to those that wait.
    pub next_answers: BTreeMap<String, Vec<Answer>>,
    pub request_limits: Option<RequestLimits>,
    /// Whether machines use up the addresses of their subnets.
    pub counts_addresses: Option<bool>,
    /// Whether EC2 ranks pools by its own prices rather than by the priorities of requests.
    pub own_prices: Option<bool>,
    /// How long Describe calls do not show a new machine.
    pub describe_lag_seconds: Option<u64>,
    /// How long EC2 does not know a new instance profile.
    pub profile_lag_seconds: Option<u64>,
    /// How long IAM itself does not show a new instance profile.
    pub iam_lag_seconds: Option<u64>,
    /// The policy documents of principals, by access key, in place of those before; `null` for an administrator.
    pub policies: BTreeMap<String, Option<Vec<Value>>>,
    /// Spot instances that are warned of their interruption, two minutes before it.
    pub interrupt: Vec<String>,
    /// Spot instances that are said to be at risk.
    pub rebalance: Vec<String>,
    /// What EC2's checks say of instances from now on.
    pub checks: Vec<Check>,
    /// Zonal shifts of the region's clusters; replaces those before.
    pub zonal_shifts: Option<Vec<Shift>>,
    /// How far the clock goes on, after everything else.
    pub advance_seconds: u64,
}

/// The size of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolSize {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    /// `null` for a pool that never runs dry.
    pub left: Option<u32>,
}

/// A limit of the account.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Quota {
    /// A type that counts against it, which stands for its group of families.
    pub instance_type: String,
    pub capacity_type: String,
    /// `null` for no limit.
    pub vcpus: Option<u32>,
}

/// The error of pools.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusal {
    /// Empty for every type.
    #[serde(default)]
    pub instance_type: String,
    /// Empty for every zone.
    #[serde(default)]
    pub zone: String,
    /// As in a fleet's errors: `InsufficientInstanceCapacity`.
    pub code: String,
    #[serde(default)]
    pub message: String,
    /// How many machines the pools still start before: with some, a fleet is filled in part.
    #[serde(default)]
    pub after: u32,
}

/// A refusal in place of an action's own answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Answer {
    /// The status of HTTP, 400 to 599.
    pub status: u16,
    pub code: String,
    #[serde(default)]
    pub message: String,
}

/// The checks of an instance, and whether an event is scheduled for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    pub instance_id: String,
    pub instance: Health,
    pub system: Health,
    /// Whether EC2 is to retire the instance.
    #[serde(default)]
    pub scheduled_event: bool,
}

/// A zonal shift.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Shift {
    /// The id of a zone: `use1-az1`.
    pub away_from: String,
    pub ends_at: Timestamp,
    /// Whether it has an effect; a practice run that another shift has replaced has none.
    #[serde(default = "applied")]
    pub applied: bool,
}

fn applied() -> bool {
    true
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    Ok,
    Impaired,
}

/// Which request limits hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestLimits {
    /// Those that AWS documents, with full buckets.
    Documented,
    None,
}

impl Shift {
    fn zone_shift(&self) -> ZoneShift {
        let state = if self.applied { ShiftState::Applied } else { ShiftState::NotApplied };
        ZoneShift { away_from: self.away_from.clone(), ends_at: self.ends_at, state }
    }
}

impl Change {
    /// Reads a change.
    ///
    /// # Errors
    ///
    /// The first field that is not known or not of its kind.
    pub fn parse(text: &str) -> Result<Self, ChangeError> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let change: Self = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| ChangeError::new(error.path().to_string(), error.inner().to_string()))?;
        reader.end().map_err(|error| ChangeError::new(".", error.to_string()))?;
        Ok(change)
    }

    /// Applies the change.
    ///
    /// # Errors
    ///
    /// The first field that names what the region does not have, or a number that makes no sense. Then nothing has changed.
    pub fn apply(self, api: &mut Api, lone: &mut Lone) -> Result<(), ChangeError> {
        self.check(lone)?;
        self.set_prices(lone);
        self.set_supply(lone);
        for (principal, documents) in &self.policies {
            api.access.set_policies(principal, documents.as_deref())?;
        }
        for (action, answers) in self.next_answers {
            let answers = answers.into_iter().map(|Answer { status, code, message }| NextError { status, code, message });
            api.refusals.entry(action).or_default().extend(answers);
        }
        match self.request_limits {
            Some(RequestLimits::Documented) => api.limits = Limits::documented(),
            Some(RequestLimits::None) => api.limits = Limits::none(),
            None => {}
        }
        for id in &self.interrupt {
            lone.interrupt(&InstanceId::new(id.as_str()));
        }
        for id in &self.rebalance {
            lone.advise(&InstanceId::new(id.as_str()));
        }
        for check in &self.checks {
            check.apply(lone);
        }
        if let Some(shifts) = &self.zonal_shifts {
            lone.region.zone_shifts = shifts.iter().map(Shift::zone_shift).collect();
        }
        lone.set_time(lone.now() + seconds(self.advance_seconds));
        Ok(())
    }

    fn check(&self, lone: &Lone) -> Result<(), ChangeError> {
        let catalog = &lone.region.catalog;
        for (name, zones) in &self.spot_prices {
            let place = format!("spotPrices.{name}");
            known_type(catalog, &place, name)?;
            for (zone, price) in zones {
                let place = format!("{place}.{zone}");
                known_zone(catalog, &place, zone)?;
                checked_price(&place, *price)?;
            }
        }
        for (number, shift) in self.zonal_shifts.iter().flatten().enumerate() {
            if !catalog.zones.iter().any(|zone| zone.id == shift.away_from) {
                let ids: Vec<&str> = catalog.zones.iter().map(|zone| zone.id.as_str()).collect();
                let problem = format!("there is no zone with the id {}: {}", shift.away_from, ids.join(", "));
                return Err(ChangeError::new(format!("zonalShifts[{number}].awayFrom"), problem));
            }
        }
        for (name, price) in &self.on_demand_prices {
            let place = format!("onDemandPrices.{name}");
            known_type(catalog, &place, name)?;
            checked_price(&place, *price)?;
        }
        for (number, pool) in self.pools.iter().enumerate() {
            known_type(catalog, &format!("pools[{number}].instanceType"), &pool.instance_type)?;
            known_zone(catalog, &format!("pools[{number}].zone"), &pool.zone)?;
            known_capacity(&format!("pools[{number}].capacityType"), &pool.capacity_type)?;
        }
        for (number, quota) in self.quotas.iter().enumerate() {
            known_type(catalog, &format!("quotas[{number}].instanceType"), &quota.instance_type)?;
            known_capacity(&format!("quotas[{number}].capacityType"), &quota.capacity_type)?;
        }
        for (number, refusal) in self.refusals.iter().flatten().enumerate() {
            if !refusal.instance_type.is_empty() {
                known_type(catalog, &format!("refusals[{number}].instanceType"), &refusal.instance_type)?;
            }
            if !refusal.zone.is_empty() {
                known_zone(catalog, &format!("refusals[{number}].zone"), &refusal.zone)?;
            }
        }
        self.check_calls(lone)
    }

    fn check_calls(&self, lone: &Lone) -> Result<(), ChangeError> {
        for (principal, documents) in &self.policies {
            access::statements(principal, documents.as_deref().unwrap_or_default())?;
        }
        for (action, answers) in &self.next_answers {
            if !crate::api::is_known(action) {
                return Err(ChangeError::new(format!("nextAnswers.{action}"), "there is no such action here"));
            }
            if let Some(number) = answers.iter().position(|answer| !(400..600).contains(&answer.status) || answer.code.is_empty()) {
                let place = format!("nextAnswers.{action}[{number}]");
                return Err(ChangeError::new(place, "a refusal has a status of 400 to 599 and a code"));
            }
        }
        for (name, ids) in [("interrupt", &self.interrupt), ("rebalance", &self.rebalance)] {
            if let Some(number) = ids.iter().position(|id| !lone.runs_on_spot(&InstanceId::new(id.as_str()))) {
                return Err(ChangeError::new(format!("{name}[{number}]"), format!("no spot instance {} is running", ids[number])));
            }
        }
        if let Some(number) = self.checks.iter().position(|check| !check.is_of_one(lone)) {
            let id = &self.checks[number].instance_id;
            return Err(ChangeError::new(format!("checks[{number}].instanceId"), format!("there is no instance {id}")));
        }
        let spans = [
            ("describeLagSeconds", self.describe_lag_seconds.unwrap_or_default()),
            ("profileLagSeconds", self.profile_lag_seconds.unwrap_or_default()),
            ("iamLagSeconds", self.iam_lag_seconds.unwrap_or_default()),
            ("advanceSeconds", self.advance_seconds),
        ];
        match spans.iter().find(|(_, given)| *given > SECONDS_MAX) {
            Some((name, given)) => Err(ChangeError::new(*name, format!("{given} is more than ten years"))),
            None => Ok(()),
        }
    }

    fn set_prices(&self, lone: &mut Lone) {
        if self.spot_prices.is_empty() && self.on_demand_prices.is_empty() {
            return;
        }
        let catalog = Arc::make_mut(&mut lone.region.catalog);
        for (name, zones) in &self.spot_prices {
            let prices = zones.iter().map(|(zone, price)| (zone.clone(), Price::from_dollars(*price)));
            catalog.spot.entry(name.clone()).or_default().extend(prices);
        }
        let prices = self.on_demand_prices.iter().map(|(name, price)| (name.clone(), Price::from_dollars(*price)));
        catalog.on_demand.extend(prices);
    }

    fn set_supply(&self, lone: &mut Lone) {
        let supply = &mut lone.region.supply;
        for PoolSize { instance_type, zone, capacity_type, left } in &self.pools {
            let key = (instance_type.clone(), zone.clone(), capacity_type.clone());
            match left {
                Some(left) => supply.pools.insert(key, *left),
                None => supply.pools.remove(&key),
            };
        }
        for Quota { instance_type, capacity_type, vcpus } in &self.quotas {
            let key = (quota_of(instance_type).to_owned(), capacity_type.clone());
            match vcpus {
                Some(vcpus) => supply.vcpus.insert(key, *vcpus),
                None => supply.vcpus.remove(&key),
            };
        }
        if let Some(refusals) = &self.refusals {
            let known = |refusal: &Refusal| {
                let Refusal { instance_type, zone, code, message, after } = refusal.clone();
                PoolRefusal { instance_type, zone, code, message, after }
            };
            supply.refusals = refusals.iter().map(known).collect();
        }
        supply.counts_addresses = self.counts_addresses.unwrap_or(supply.counts_addresses);
        supply.own_prices = self.own_prices.unwrap_or(supply.own_prices);
        supply.describe_lag = self.describe_lag_seconds.map_or(supply.describe_lag, seconds);
        supply.profile_lag = self.profile_lag_seconds.map_or(supply.profile_lag, seconds);
        supply.iam_lag = self.iam_lag_seconds.map_or(supply.iam_lag, seconds);
    }
}

impl Check {
    fn is_of_one(&self, lone: &Lone) -> bool {
        lone.region.machines.contains_key(&InstanceId::new(self.instance_id.as_str()))
    }

    /// A check that goes on failing has failed since it began to.
    fn apply(&self, lone: &mut Lone) {
        let (id, now) = (InstanceId::new(self.instance_id.as_str()), lone.now());
        let before = lone.region.statuses.get(&id).cloned();
        let since = |health: Health, field: fn(&InstanceStatus) -> Option<Timestamp>| match health {
            Health::Ok => None,
            Health::Impaired => before.as_ref().and_then(field).or(Some(now)),
        };
        let status = InstanceStatus {
            instance: id.clone(),
            instance_impaired_since: since(self.instance, |status| status.instance_impaired_since),
            system_impaired_since: since(self.system, |status| status.system_impaired_since),
            has_scheduled_event: self.scheduled_event,
        };
        lone.region.statuses.insert(id, status);
    }
}

fn seconds(count: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(count).unwrap_or(i64::MAX))
}

fn known_type(catalog: &Catalog, field: &str, name: &str) -> Result<(), ChangeError> {
    match catalog.facts(name) {
        Some(_) => Ok(()),
        None => Err(ChangeError::new(field, format!("the region has no instance type {name:?}"))),
    }
}

fn known_zone(catalog: &Catalog, field: &str, name: &str) -> Result<(), ChangeError> {
    if catalog.zones.iter().any(|zone| zone.name == name) {
        return Ok(());
    }
    let zones: Vec<&str> = catalog.zones.iter().map(|zone| zone.name.as_str()).collect();
    Err(ChangeError::new(field, format!("there is no zone {name:?}; the region has {}", zones.join(", "))))
}

fn known_capacity(field: &str, name: &str) -> Result<(), ChangeError> {
    if CAPACITY_TYPES.contains(&name) {
        return Ok(());
    }
    Err(ChangeError::new(field, format!("there is no capacity type {name:?}; use one of {}", CAPACITY_TYPES.join(", "))))
}

fn checked_price(field: &str, price: f64) -> Result<(), ChangeError> {
    if (0.0..=PRICE_MAX).contains(&price) {
        return Ok(());
    }
    Err(ChangeError::new(field, format!("{price} is no price in dollars per hour")))
}
