//! The instance types that each NodePool can launch now. Pure.

use crate::reservations::Reserved;
use crate::warm;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::karpenter::{Ec2NodeClass, NodePool, ResolvedAmi, ResolvedPlacementGroup};
use whittle_claims::{MeasuredMemory, NodeClassRecord, Record, ShiftedZones, StockOut};
use whittle_ec2::facts::Catalog;
use whittle_ec2::fleet::image_for;
use whittle_ec2::instance_types::{Context, Pool, Settings, Unavailable, relevant_settings, resolve, resolve_some};
use whittle_ec2::kubelet::{Kubelet, KubeletError};
use whittle_model::scheduling::InstanceTypes;
use whittle_ports::HandleError;
use whittle_units::{Price, Quantity, Resources, Timestamp};

/// Instance types by NodePool; NodePools of one class share a list, and so do those of classes that differ in nothing that it depends on. A
/// pool whose class is not ready, or whose template is not valid, has none, nor has the pool of another controller.
///
/// Without a catalog nothing can be launched, which is not an error: `refresh` has not run yet.
pub(crate) fn of_pools(
    pools: &[NodePool],
    classes: &[NodeClassRecord],
    stock_outs: &[StockOut],
    inputs: &TypeInputs,
    blob: Option<&[u8]>,
    now: Timestamp,
) -> Result<BTreeMap<String, Arc<InstanceTypes>>, HandleError> {
    let Some(blob) = blob else { return Ok(BTreeMap::new()) };
    let catalog = warm::catalog(blob)
        .map_err(|error| HandleError::Unreadable { what: "the region's catalog".to_owned(), reason: error.to_string() })?;
    let priced = catalog.with_missing_prices(&inputs.prices);
    let unavailable = inputs.unavailable(stock_outs, now);
    let stock_outs = stock_out_key(stock_outs, now);
    let managed = pools.iter().filter(|pool| pool.is_managed());
    let wanted: BTreeSet<&str> = managed.map(|pool| pool.spec.template.spec.node_class_ref.name.as_str()).collect();
    let ready = classes.iter().filter(|record| record.is_ready() && !record.lacks_placement_group());
    let ready = ready.filter(|record| wanted.contains(record.class.metadata.name.as_str()));
    let mut by_class: BTreeMap<String, Arc<InstanceTypes>> = BTreeMap::new();
    // A list has megabytes, which are indexed for each plan, and most classes differ in roles, tags and selectors.
    let mut shared: BTreeMap<String, Option<Arc<InstanceTypes>>> = BTreeMap::new();
    for record in ready {
        let inputs_key = inputs_key(record, inputs);
        let types = shared.entry(shared_key(record, &inputs_key, &unavailable)).or_insert_with(|| {
            let rest = format!("{stock_outs} {inputs_key}");
            warm::instance_types(&catalog, record, rest, || of_class(record, inputs, &priced, &unavailable))
        });
        if let Some(types) = types {
            by_class.insert(record.name(), Arc::clone(types));
        }
    }
    let of_pool = |pool: &NodePool| {
        let class = &pool.spec.template.spec.node_class_ref.name;
        let record = NodeClassRecord::referenced(classes, class, pool.is_converted_provisioner())?;
        Some((pool.metadata.name.clone(), by_class.get(&record.name())?.clone()))
    };
    let usable = |pool: &&NodePool| pool.is_managed() && whittle_api::runtime::node_pool(pool).errors.is_empty();
    Ok(pools.iter().filter(usable).filter_map(of_pool).collect())
}

/// What the types of a class depend on, beside what is the same for all classes of one decision.
fn shared_key(record: &NodeClassRecord, inputs_key: &str, unavailable: &Unavailable) -> String {
    let class = record.resolved_class();
    let refused = unavailable.refused.get(&class.metadata.uid);
    format!("{} {:?} {} {refused:?} {inputs_key}", relevant_settings(&class), record.placement_group, record.ipv6)
}

/// The cache key of what a class's types depend on besides the class: settings, the free instances in its reservations and their tenancies,
/// and what nodes of its images reported.
fn inputs_key(record: &NodeClassRecord, inputs: &TypeInputs) -> String {
    let ids = record.class.status.capacity_reservations.iter().map(|known| known.id.as_str());
    let tenancy = |id: &str| record.reservation_tenancies.get(id).map_or("", String::as_str);
    let free = ids.map(|id| format!("{id}={} {}", inputs.reserved.free.get(id).copied().unwrap_or_default(), tenancy(id)));
    let of_image = |ami: &ResolvedAmi| Some((ami.id.clone(), inputs.measured_of(&ami.id)?, inputs.too_little_of(&ami.id, record)));
    let measured: Vec<_> = record.amis.iter().filter_map(of_image).collect();
    format!("{:?}:{}:{measured:?}:{:?}:{:?}", inputs.settings, free.collect::<Vec<_>>().join(","), inputs.shifted.ids, inputs.prices)
}

/// The cache key of the unavailable offerings.
fn stock_out_key(stock_outs: &[StockOut], now: Timestamp) -> String {
    let names: BTreeSet<String> = stock_outs.iter().filter(|out| out.holds(now)).map(|out| out.offering.to_string()).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

/// In a stock-out: every instance type or zone.
pub const EVERY: &str = "*";

/// The offerings that stock-outs make unavailable at `now`.
pub fn unavailable(stock_outs: &[StockOut], now: Timestamp) -> Unavailable {
    let current = || stock_outs.iter().filter(|out| out.holds(now));
    // Reservations are counted instead: see `Reserved`.
    let is_pool = |out: &&StockOut| out.offering.is_pool();
    let (whole, single): (Vec<&StockOut>, Vec<&StockOut>) = current().filter(is_pool).partition(|out| out.offering.instance_type == EVERY);
    let pool = |out: &&StockOut| Pool {
        capacity_type: out.offering.capacity_type.clone(),
        instance_type: out.offering.instance_type.clone(),
        zone: out.offering.zone.clone(),
        placement_group: out.offering.placement_group.clone(),
        partition: out.offering.partition,
    };
    let mut quotas = BTreeMap::new();
    for out in current() {
        let Some(quota) = out.offering.quota() else { continue };
        // Without a size, as an earlier release wrote it: of any.
        let vcpus = out.offering.vcpus.unwrap_or_default();
        let least = quotas.entry((quota.to_owned(), out.offering.capacity_type.clone())).or_insert(vcpus);
        *least = vcpus.min(*least);
    }
    let (refused, shared): (Vec<&StockOut>, Vec<&StockOut>) = single.into_iter().partition(|out| out.offering.node_class.is_some());
    let mut by_class: BTreeMap<String, BTreeSet<Pool>> = BTreeMap::new();
    for out in &refused {
        by_class.entry(out.offering.node_class.clone().unwrap_or_default()).or_default().insert(pool(out));
    }
    Unavailable {
        pools: shared.iter().map(pool).collect(),
        refused: by_class,
        capacity_types: whole.iter().map(|out| out.offering.capacity_type.clone()).collect(),
        subnets: current().filter_map(|out| out.offering.subnet().map(str::to_owned)).collect(),
        subnets_without_prefixes: current().filter_map(|out| out.offering.subnet_prefixes().map(str::to_owned)).collect(),
        quotas,
        full_groups: current().filter_map(|out| Some((out.offering.full_group()?.to_owned(), out.offering.zone.clone()))).collect(),
        ..Unavailable::default()
    }
}

/// What the instance types of every class of a cluster depend on, besides the catalog and what is unavailable.
#[derive(Clone, Debug)]
pub struct TypeInputs {
    pub settings: Settings,
    pub reserved: Reserved,
    /// What nodes of each image reported.
    pub measured: Vec<MeasuredMemory>,
    /// The time of the decision: what nodes had too little of counts for a day.
    pub now: Timestamp,
    /// Zones in which nothing is launched.
    pub shifted: ShiftedZones,
    /// Prices of types of which EC2 publishes none: see [`whittle_solver::overlays::missing_prices`].
    pub prices: BTreeMap<String, Price>,
}

impl TypeInputs {
    /// The offerings that stock-outs and zonal shifts make unavailable at `now`.
    #[must_use]
    pub fn unavailable(&self, stock_outs: &[StockOut], now: Timestamp) -> Unavailable {
        Unavailable { shifted_zone_ids: self.shifted.ids.clone(), ..unavailable(stock_outs, now) }
    }
    /// Of what nodes of an image had too little with the settings of the class, by type.
    fn too_little_of(&self, image_id: &str, class: &NodeClassRecord) -> Option<BTreeMap<String, Resources>> {
        let measured = self.measured.iter().find(|measured| measured.image_id == image_id)?;
        Some(measured.too_little_of(&class.hash, self.now))
    }
    /// The memory that nodes of an image of the class reported, by type.
    fn measured_of(&self, image_id: &str) -> Option<&BTreeMap<String, Quantity>> {
        self.measured.iter().find(|measured| measured.image_id == image_id).map(|measured| &measured.by_type)
    }
}

/// A node class with everything that a [`Context`] borrows to resolve its instance types.
#[derive(Clone, Debug)]
pub struct ClassParts {
    class: Ec2NodeClass,
    kubelet: Kubelet,
    settings: Settings,
    reservation_capacity: BTreeMap<String, u32>,
    reservation_tenancies: BTreeMap<String, String>,
    placement_group: Option<ResolvedPlacementGroup>,
    ipv6: bool,
    measured_memory: BTreeMap<String, Quantity>,
    measured_allocatable: BTreeMap<String, Resources>,
}

impl ClassParts {
    /// The parts of a stored class; an error if its kubelet settings are invalid.
    pub fn of(record: &NodeClassRecord, inputs: &TypeInputs, catalog: &Catalog) -> Result<Self, KubeletError> {
        let class = record.resolved_class();
        let kubelet = Kubelet::parse(class.spec.kubelet.as_ref())?;
        let settings = inputs.settings.clone();
        let (reservation_capacity, placement_group) = (inputs.reserved.free.clone(), record.placement_group.clone());
        let mut parts = Self {
            class,
            kubelet,
            settings,
            reservation_capacity,
            reservation_tenancies: record.reservation_tenancies.clone(),
            placement_group,
            ipv6: record.ipv6,
            measured_memory: BTreeMap::new(),
            measured_allocatable: BTreeMap::new(),
        };
        parts.measure(record, inputs, catalog);
        Ok(parts)
    }
    /// Adds what nodes of each type reported with the image that the class gives the type now.
    fn measure(&mut self, record: &NodeClassRecord, inputs: &TypeInputs, catalog: &Catalog) {
        let of_images = record.amis.iter().filter_map(|ami| inputs.measured_of(&ami.id));
        let short = |ami: &ResolvedAmi| Some((ami.id.clone(), inputs.too_little_of(&ami.id, record)?));
        let short: BTreeMap<String, BTreeMap<String, Resources>> = record.amis.iter().filter_map(short).collect();
        let names = of_images.flat_map(BTreeMap::keys).chain(short.values().flat_map(BTreeMap::keys));
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        if names.is_empty() {
            return;
        }
        let anything = Unavailable::default();
        let types = resolve_some(catalog, &self.context(&anything), |name| names.contains(name)).unwrap_or_default();
        for instance_type in &types {
            let (name, image) = (&instance_type.name, image_for(&record.amis, instance_type));
            let Some(image) = image.map(|image| image.id.as_str()) else { continue };
            if let Some(memory) = inputs.measured_of(image).and_then(|by_type| by_type.get(name)) {
                self.measured_memory.insert(name.clone(), *memory);
            }
            if let Some(short) = short.get(image).and_then(|by_type| by_type.get(name)) {
                self.measured_allocatable.insert(name.clone(), short.clone());
            }
        }
    }
    /// The context in which the class's instance types are resolved.
    pub fn context<'a>(&'a self, unavailable: &'a Unavailable) -> Context<'a> {
        Context {
            family: self.class.spec.family(),
            class: &self.class,
            kubelet: &self.kubelet,
            settings: &self.settings,
            unavailable,
            reservation_capacity: &self.reservation_capacity,
            reservation_tenancies: &self.reservation_tenancies,
            placement_group: self.placement_group.as_ref(),
            ipv6: self.ipv6,
            measured_memory: &self.measured_memory,
            measured_allocatable: &self.measured_allocatable,
        }
    }
}

/// All types of a class, as if everything were available; none if its kubelet settings cannot be read or its types cannot be resolved.
#[must_use]
pub fn every_type(record: &NodeClassRecord, inputs: &TypeInputs, catalog: &Arc<Catalog>) -> Arc<InstanceTypes> {
    let rest = format!("everything is available {}", inputs_key(record, inputs));
    let anything = Unavailable::default();
    let all = || {
        let parts = ClassParts::of(record, inputs, catalog).ok()?;
        Some(resolve(catalog, &parts.context(&anything)).ok()?.into())
    };
    warm::instance_types(catalog, record, rest, all).unwrap_or_default()
}

/// `None` for a class whose kubelet settings cannot be read or whose types cannot be resolved; `refresh` reports it in the class's status.
///
/// A type that none of the class's images can boot is dropped: its launch would be refused and planned again forever.
fn of_class(record: &NodeClassRecord, inputs: &TypeInputs, catalog: &Catalog, unavailable: &Unavailable) -> Option<InstanceTypes> {
    let parts = ClassParts::of(record, inputs, catalog).ok()?;
    let mut types = resolve(catalog, &parts.context(unavailable)).ok()?;
    types.retain(|instance_type| image_for(&record.amis, instance_type).is_some());
    Some(types.into())
}
