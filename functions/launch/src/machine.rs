//! What a claim records of its instance. Pure.

use crate::batch::Batch;
use crate::plan::{self, Facts};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::labels;
use whittle_claims::{ClaimSpec, Machine, OfferingKey, StockOut};
use whittle_ec2::errors::ApiError;
use whittle_ec2::fleet::{FleetAnswer, FleetConfig, FleetInstance, FleetPoolError, FleetRequest, Marks, Purchase, machine_facts, marks};
use whittle_ec2::instance::Instance;
use whittle_ec2::instance_types::{instance_type, quota_of};
use whittle_snapshot::{EVERY, unavailable};
use whittle_units::{Price, ProviderId, Resources, Timestamp};

/// The resources of a machine that its description names.
const SHOWN: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// The machine as the claim stores it. A type that the catalog no longer has gets no capacity here; the Node reports it.
pub(crate) fn machine(facts: &Facts, batch: &Batch, instance: &FleetInstance, planned: &ClaimSpec, now: Timestamp) -> Machine {
    let mut overrides = batch.request.configs.iter().flat_map(|config| &config.overrides);
    let price = overrides.find(|each| each.instance_type == instance.instance_type && each.zone == instance.zone).map(|each| each.price);
    let capacity_type = if instance.capacity_type.is_empty() { &batch.request.capacity_type } else { &instance.capacity_type };
    let mut out = Machine {
        instance_id: instance.id.clone(),
        provider_id: ProviderId::of_instance(&instance.zone, &instance.id),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        capacity_type: capacity_type.clone(),
        image_id: instance.image_id.clone(),
        price: price.unwrap_or(Price::ZERO),
        capacity: Resources::new(),
        allocatable: Resources::new(),
        labels: BTreeMap::from([
            (labels::INSTANCE_TYPE.to_owned(), instance.instance_type.clone()),
            (labels::ZONE.to_owned(), instance.zone.clone()),
            (labels::CAPACITY_TYPE.to_owned(), capacity_type.clone()),
        ]),
        launched_at: now,
    };
    let known = unavailable(&[], facts.now);
    let Some(parts) = facts.parts(&batch.node_class) else { return out };
    let context = parts.context(&known);
    let Some(found) = facts.catalog.facts(&instance.instance_type) else { return out };
    let Ok(mut resolved) = instance_type(found, &facts.catalog, &context) else { return out };
    plan::apply_overlays(&mut resolved, planned);
    let reservations = &batch.reservations;
    let reservation = reservations.iter().find(|(name, zone, _)| *name == instance.instance_type && *zone == instance.zone);
    let purchase = Purchase {
        capacity_type: capacity_type.clone(),
        reservation: reservation.map(|(_, _, id)| id.clone()),
        tenancy: batch.tenancy.clone(),
        partition: batch.partition,
        efa: batch.has_efa(),
    };
    let learned = machine_facts(&resolved, &instance.id, &instance.zone, &purchase, &context);
    out.labels.extend(learned.labels);
    out.capacity = learned.capacity;
    out.allocatable = learned.allocatable;
    out
}

/// What was launched, in a sentence.
pub(crate) fn description(machine: &Machine, batch: &Batch, node_pool: &str) -> String {
    let of_machine = |config: &&FleetConfig| {
        config.overrides.iter().any(|each| each.instance_type == machine.instance_type && each.zone == machine.zone)
    };
    let template = batch.request.configs.iter().find(of_machine);
    let template = template.map(|config| format!(", launch template {}", config.launch_template)).unwrap_or_default();
    let amount = |name: &str| Some(machine.allocatable.get(name)).filter(|amount| !amount.is_zero());
    let amounts: Vec<String> = SHOWN.into_iter().filter_map(|name| Some(format!("{name} {}", amount(name)?.text_of(name)))).collect();
    let allocatable = if amounts.is_empty() { String::new() } else { format!(", allocatable {}", amounts.join(" ")) };
    format!(
        "{} is {} {} in {} at {}; nodepool {node_pool}{template}{allocatable}, provider id {}",
        machine.instance_id, machine.capacity_type, machine.instance_type, machine.zone, machine.price, machine.provider_id
    )
}

/// An instance that was found by its tag, in the form of a CreateFleet response.
pub(crate) fn as_fleet_instance(instance: &Instance) -> FleetInstance {
    FleetInstance {
        id: instance.id.clone(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        subnet_id: instance.subnet_id.clone(),
        image_id: instance.image_id.clone(),
        capacity_type: instance.capacity_type.clone(),
    }
}

/// Offerings that a response marks as unavailable for a while, even if it launched instances.
pub(crate) fn stock_outs(facts: &Facts, batch: &Batch, answer: &FleetAnswer, known: &[StockOut], now: Timestamp) -> Vec<StockOut> {
    let Some(parts) = facts.parts(&batch.node_class) else { return Vec::new() };
    let none = unavailable(&[], facts.now);
    let passing = answer.errors.iter().flat_map(|error| shared_stock_outs(batch, error).into_iter().map(|key| (key, error.code.as_str())));
    let passing: BTreeMap<OfferingKey, &str> = passing.chain(exhausted_quotas(facts, batch, &answer.errors)).collect();
    let lasting = answer.errors.iter().filter(|error| lacks_capacity(batch, error)).flat_map(|error| with_pools(&batch.request, error));
    let (of_class, of_all): (Vec<FleetPoolError>, Vec<FleetPoolError>) = lasting.partition(|error| concerns_class(batch, &error.code));
    let mut outs: Vec<StockOut> = passing.into_iter().map(|(key, code)| StockOut::with_fixed_wait(key, code, now)).collect();
    for (errors, node_class) in [(of_all, None), (of_class, facts.class_uid(&batch.node_class))] {
        let lasting = FleetAnswer { errors, ..answer.clone() };
        let closed = marks(&batch.launch(), &lasting, &parts.context(&none));
        let code_of = |key: &OfferingKey| {
            let error = lasting.errors.iter().find(|error| error.instance_type == key.instance_type && error.zone == key.zone);
            error.or(lasting.errors.first()).map_or("", |error| error.code.as_str())
        };
        outs.extend(
            closed_offerings(closed, node_class.as_deref()).into_iter().map(|key| stock_out(key.clone(), code_of(&key), known, now)),
        );
    }
    outs
}

/// An error of each pool that it may be about: one without a type or a zone would close none, and the same request be made again at once.
pub(crate) fn with_pools(request: &FleetRequest, error: &FleetPoolError) -> Vec<FleetPoolError> {
    if !error.instance_type.is_empty() && !error.zone.is_empty() {
        return vec![error.clone()];
    }
    let may_be = |asked: &str, named: &str| named.is_empty() || named == asked;
    let overrides = request.configs.iter().flat_map(|config| &config.overrides);
    let concerned = overrides.filter(|each| may_be(&each.instance_type, &error.instance_type) && may_be(&each.zone, &error.zone));
    concerned.map(|each| FleetPoolError { instance_type: each.instance_type.clone(), zone: each.zone.clone(), ..error.clone() }).collect()
}

/// Whether an error concerns only machines of this class: EC2 does not support the type together with something in the request, such as the
/// image, or has no dedicated hardware for it. Other clusters of the account seldom request that, and would lose the type without need.
fn concerns_class(batch: &Batch, code: &str) -> bool {
    ApiError::client(code, "").is_unsupported() || batch.tenancy == "dedicated"
}

/// The keys of what is closed, of pools only for machines of a node class if one is given. Missing capacity within a placement group
/// does not affect launches outside of it.
fn closed_offerings(closed: Marks, node_class: Option<&str>) -> Vec<OfferingKey> {
    let pools = closed.pools.into_iter().map(|pool| OfferingKey {
        instance_type: pool.instance_type,
        zone: pool.zone,
        capacity_type: pool.capacity_type,
        placement_group: pool.placement_group,
        partition: pool.partition,
        node_class: node_class.map(str::to_owned),
        vcpus: None,
    });
    let whole = closed.capacity_types.iter().map(|capacity_type| whole_market(capacity_type));
    let reservations = closed.reservations.iter().map(|id| OfferingKey::of_reservation(id));
    pools.chain(whole).chain(reservations).collect()
}

/// The key of every offering of a capacity type.
fn whole_market(capacity_type: &str) -> OfferingKey {
    OfferingKey {
        instance_type: EVERY.to_owned(),
        zone: EVERY.to_owned(),
        capacity_type: capacity_type.to_owned(),
        ..OfferingKey::default()
    }
}

/// Whether an error means that EC2 lacks capacity: an account quota, subnet addresses and the rules of a placement group do not.
fn lacks_capacity(batch: &Batch, error: &FleetPoolError) -> bool {
    let known = ApiError::client(&error.code, &error.message);
    let quota = known.is_vcpu_quota() && batch.request.capacity_type != labels::CAPACITY_RESERVED;
    !known.is_subnet_full() && !quota && !known.is_fleet_quota() && !known.is_spread_group_limit()
}

/// The quotas that errors report as used up, each with its error code, and with the vCPUs of the smallest machine that was refused: for
/// less there may be room. An error without a type may concern any of the call.
fn exhausted_quotas<'e>(facts: &Facts, batch: &Batch, errors: &'e [FleetPoolError]) -> Vec<(OfferingKey, &'e str)> {
    let capacity_type = batch.request.capacity_type.as_str();
    if capacity_type == labels::CAPACITY_RESERVED {
        return Vec::new();
    }
    let mut refused: BTreeMap<&str, (u32, &str)> = BTreeMap::new();
    for error in errors.iter().filter(|error| ApiError::client(&error.code, &error.message).is_vcpu_quota()) {
        let pools = batch.request.configs.iter().flat_map(|config| &config.overrides);
        for pool in pools.filter(|pool| error.instance_type.is_empty() || pool.instance_type == error.instance_type) {
            let vcpus = facts.catalog.facts(&pool.instance_type).map_or(0, |known| known.vcpus);
            let smallest = refused.entry(quota_of(&pool.instance_type)).or_insert((vcpus, error.code.as_str()));
            smallest.0 = smallest.0.min(vcpus);
        }
    }
    refused.into_iter().map(|(quota, (vcpus, code))| (OfferingKey::of_quota(quota, capacity_type, vcpus), code)).collect()
}

/// The shared resource that an error reports as used up: a subnet of the call, or its spread placement group in a zone. An error without
/// a capacity pool may concern any of the call.
fn shared_stock_outs(batch: &Batch, error: &FleetPoolError) -> Vec<OfferingKey> {
    let known = ApiError::client(&error.code, &error.message);
    let overrides = || batch.request.configs.iter().flat_map(|config| &config.overrides);
    if known.is_subnet_full() {
        let of_zone = overrides().filter(|entry| error.zone.is_empty() || entry.zone == error.zone);
        let subnets: BTreeSet<&str> = of_zone.map(|entry| entry.subnet_id.as_str()).collect();
        let named: Vec<&str> = subnets.iter().copied().filter(|id| error.message.contains(*id)).collect();
        let full = if named.is_empty() { subnets.into_iter().collect() } else { named };
        // EC2 does not say whether prefixes or the address were missing. A launch without prefixes finds that out itself, by one call.
        let key = if batch.takes_prefixes() { OfferingKey::of_subnet_prefixes } else { OfferingKey::of_subnet };
        return full.into_iter().map(key).collect();
    }
    if known.is_spread_group_limit() {
        let of_zone = overrides().filter(|entry| error.zone.is_empty() || entry.zone == error.zone);
        let zones: BTreeSet<&str> = of_zone.map(|entry| entry.zone.as_str()).collect();
        let full = |group: &str| zones.iter().map(|zone| OfferingKey::of_full_group(group, zone)).collect();
        return batch.placement_group().map(full).unwrap_or_default();
    }
    Vec::new()
}

/// Offerings that are unavailable after a call that EC2 rejected as a whole.
pub(crate) fn whole_call_stock_outs(facts: &Facts, batch: &Batch, code: &str, message: &str, now: Timestamp) -> Vec<StockOut> {
    let known = facts.stock_outs.as_slice();
    let error = FleetPoolError { code: code.to_owned(), message: message.to_owned(), instance_type: String::new(), zone: String::new() };
    if !lacks_capacity(batch, &error) {
        let quotas = exhausted_quotas(facts, batch, std::slice::from_ref(&error)).into_iter().map(|(key, _)| key);
        let shared = shared_stock_outs(batch, &error).into_iter().chain(quotas);
        return shared.map(|key| StockOut::with_fixed_wait(key, code, now)).collect();
    }
    if ApiError::client(code, message).is_service_linked_role_missing() {
        return vec![stock_out(whole_market(labels::CAPACITY_SPOT), code, known, now)];
    }
    if batch.request.capacity_type == labels::CAPACITY_RESERVED {
        let ids: BTreeSet<&str> = batch.reservations.iter().map(|(_, _, id)| id.as_str()).collect();
        return ids.into_iter().map(|id| stock_out(OfferingKey::of_reservation(id), code, known, now)).collect();
    }
    let node_class = if concerns_class(batch, code) { facts.class_uid(&batch.node_class) } else { None };
    let overrides = batch.request.configs.iter().flat_map(|config| &config.overrides);
    let keys: BTreeSet<OfferingKey> = overrides
        .map(|each| OfferingKey {
            instance_type: each.instance_type.clone(),
            zone: each.zone.clone(),
            capacity_type: batch.request.capacity_type.clone(),
            placement_group: batch.placement_group().map(str::to_owned),
            partition: batch.partition,
            node_class: node_class.clone(),
            vcpus: None,
        })
        .collect();
    keys.into_iter().map(|key| stock_out(key, code, known, now)).collect()
}

fn stock_out(key: OfferingKey, code: &str, known: &[StockOut], now: Timestamp) -> StockOut {
    // A whole market is unavailable until a person has done something, and available right after that: the wait does not grow.
    if key.instance_type == EVERY {
        return StockOut::with_fixed_wait(key, code, now);
    }
    let old = known.iter().find(|out| out.offering == key);
    StockOut::after_failure(old, key.clone(), code, now)
}
