//! What a claim learns from the machine that came for it. Pure.

use crate::batch::Batch;
use crate::plan::Facts;
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_claims::{Machine, OfferingKey, StockOut};
use whittle_ec2::fleet::{FleetAnswer, FleetInstance, Purchase, machine_facts, marks};
use whittle_ec2::instance::Instance;
use whittle_ec2::instance_types::instance_type;
use whittle_snapshot::{EVERY, unavailable};
use whittle_units::{Price, ProviderId, Resources, Timestamp};

/// The machine as the claim keeps it. A type that the catalog no longer knows has no size; the Node will tell.
pub(crate) fn machine(facts: &Facts, batch: &Batch, instance: &FleetInstance, now: Timestamp) -> Machine {
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
    let Ok(resolved) = instance_type(found, &facts.catalog, &context) else { return out };
    let reservations = &batch.reservations;
    let reservation = reservations.iter().find(|(name, zone, _)| *name == instance.instance_type && *zone == instance.zone);
    let purchase = Purchase {
        capacity_type: capacity_type.clone(),
        reservation: reservation.map(|(_, _, id)| id.clone()),
        tenancy: batch.tenancy.clone(),
        partition: batch.partition,
        efa: false,
    };
    let learned = machine_facts(&resolved, &instance.id, &instance.zone, &purchase, &context);
    out.labels.extend(learned.labels);
    out.capacity = learned.capacity;
    out.allocatable = learned.allocatable;
    out
}

/// A machine that was found by its tag, as the fleet would have answered it.
pub(crate) fn as_answered(instance: &Instance) -> FleetInstance {
    FleetInstance {
        id: instance.id.clone(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        subnet_id: instance.subnet_id.clone(),
        image_id: instance.image_id.clone(),
        capacity_type: instance.capacity_type.clone(),
    }
}

/// The offerings that an answer closes for a while, also where machines came.
pub(crate) fn stock_outs(facts: &Facts, batch: &Batch, answer: &FleetAnswer, known: &[StockOut], now: Timestamp) -> Vec<StockOut> {
    let Some(parts) = facts.parts(&batch.node_class) else { return Vec::new() };
    let none = unavailable(&[], facts.now);
    let closed = marks(&batch.launch(), answer, &parts.context(&none));
    let pools = closed.pools.into_iter().map(|pool| OfferingKey {
        instance_type: pool.instance_type,
        zone: pool.zone,
        capacity_type: pool.capacity_type,
    });
    let whole = closed.capacity_types.into_iter().map(|capacity_type| OfferingKey {
        instance_type: EVERY.to_owned(),
        zone: EVERY.to_owned(),
        capacity_type,
    });
    let code_of = |key: &OfferingKey| {
        let error = answer.errors.iter().find(|error| error.instance_type == key.instance_type && error.zone == key.zone);
        error.or(answer.errors.first()).map_or("", |error| error.code.as_str())
    };
    let reservations = closed.reservations.iter().map(|id| OfferingKey::of_reservation(id));
    pools.chain(whole).chain(reservations).map(|key| struck(key.clone(), code_of(&key), known, now)).collect()
}

/// All offerings of a call that EC2 refused as a whole for lack of capacity.
pub(crate) fn all_struck(batch: &Batch, code: &str, known: &[StockOut], now: Timestamp) -> Vec<StockOut> {
    if batch.request.capacity_type == labels::CAPACITY_RESERVED {
        let ids: std::collections::BTreeSet<&str> = batch.reservations.iter().map(|(_, _, id)| id.as_str()).collect();
        return ids.into_iter().map(|id| struck(OfferingKey::of_reservation(id), code, known, now)).collect();
    }
    let overrides = batch.request.configs.iter().flat_map(|config| &config.overrides);
    let keys: std::collections::BTreeSet<OfferingKey> = overrides
        .map(|each| OfferingKey {
            instance_type: each.instance_type.clone(),
            zone: each.zone.clone(),
            capacity_type: batch.request.capacity_type.clone(),
        })
        .collect();
    keys.into_iter().map(|key| struck(key, code, known, now)).collect()
}

fn struck(key: OfferingKey, code: &str, known: &[StockOut], now: Timestamp) -> StockOut {
    let old = known.iter().find(|out| out.offering == key);
    StockOut::struck(old, key.clone(), code, now)
}
