//! What each NodePool can buy now. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::NodePool;
use whittle_claims::{NodeClassRecord, StockOut};
use whittle_ec2::facts::Catalog;
use whittle_ec2::family::Family;
use whittle_ec2::instance_types::{Context, Pool, Settings, Unavailable, resolve};
use whittle_ec2::kubelet::Kubelet;
use whittle_ports::HandleError;

/// Instance types by NodePool; NodePools of one class share a list. A pool whose class is not ready has none.
///
/// Without a catalog nothing can be bought, which is not an error: `refresh` has not run yet.
pub(crate) fn of_pools(
    pools: &[NodePool],
    classes: &[NodeClassRecord],
    stock_outs: &[StockOut],
    blob: Option<&[u8]>,
) -> Result<BTreeMap<String, Arc<Vec<InstanceType>>>, HandleError> {
    let Some(blob) = blob else { return Ok(BTreeMap::new()) };
    let catalog = Catalog::decode(blob)
        .map_err(|error| HandleError::Unreadable { what: "the region's catalog".to_owned(), reason: error.to_string() })?;
    let unavailable = unavailable(stock_outs);
    let wanted: BTreeSet<&str> = pools.iter().map(|pool| pool.spec.template.spec.node_class_ref.name.as_str()).collect();
    let ready = classes.iter().filter(|record| record.problems.is_empty() && wanted.contains(record.class.metadata.name.as_str()));
    let by_class: BTreeMap<&str, Arc<Vec<InstanceType>>> = ready
        .filter_map(|record| Some((record.class.metadata.name.as_str(), Arc::new(of_class(record, &catalog, &unavailable)?))))
        .collect();
    let of_pool =
        |pool: &NodePool| Some((pool.metadata.name.clone(), by_class.get(pool.spec.template.spec.node_class_ref.name.as_str())?.clone()));
    Ok(pools.iter().filter_map(of_pool).collect())
}

/// The stock-outs as the catalog asks for them.
fn unavailable(stock_outs: &[StockOut]) -> Unavailable {
    let pool = |out: &StockOut| Pool {
        capacity_type: out.offering.capacity_type.clone(),
        instance_type: out.offering.instance_type.clone(),
        zone: out.offering.zone.clone(),
        ..Pool::default()
    };
    Unavailable { pools: stock_outs.iter().map(pool).collect(), ..Unavailable::default() }
}

/// `None` for a class whose kubelet settings cannot be read or whose types cannot be resolved; `refresh` tells its owner.
fn of_class(record: &NodeClassRecord, catalog: &Catalog, unavailable: &Unavailable) -> Option<Vec<InstanceType>> {
    let class = record.resolved_class();
    let kubelet = Kubelet::parse(class.spec.kubelet.as_ref()).ok()?;
    let context = Context {
        family: Family::of(&class.spec),
        class: &class,
        kubelet: &kubelet,
        settings: &Settings::standard(),
        unavailable,
        reservation_capacity: &BTreeMap::new(),
        placement_group: None,
        measured_memory: &BTreeMap::new(),
    };
    resolve(catalog, &context).ok()
}
