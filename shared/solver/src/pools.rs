//! NodePools as templates of machines.

use super::avoided_daemons::{self, AvoidedDaemon};
use super::bits::Bits;
use super::builder::{ProblemBuilder, Questions};
use super::catalog::{Catalog, Dims, Reservations, View};
use super::catalog_index::index_of;
use super::future_daemons::FutureDaemons;
use super::hash::Map;
use super::ids::{CatalogId, DimId, IdVec, Key, PoolId, SetId, TaintsId, TypeId};
use super::objective::cost_per_machine;
use super::pod::allows_unnamed_host;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Pod, TaintEffect};
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::pods::{self, HostPort};
use whittle_model::requirements::{Allowed, from_labels, from_requirements};
use whittle_model::scheduling::MinValuesPolicy;
use whittle_units::Resources;

/// Types on which the same daemons run.
#[derive(Clone, Debug)]
pub(crate) struct DaemonGroup {
    pub(crate) types: Bits,
    pub(crate) overhead: IdVec<DimId, i64>,
    pub(crate) resources: Resources,
    pub(crate) ports: Vec<HostPort>,
}

/// A NodePool that can create nodes.
#[derive(Clone, Debug)]
pub(crate) struct Pool<'a> {
    pub(crate) source: &'a NodePool,
    pub(crate) catalog: CatalogId,
    /// Its requirements and labels.
    pub(crate) set: SetId,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: TaintsId,
    /// Types that its own requirements allow.
    pub(crate) types: Bits,
    /// How many these are.
    pub(crate) type_count: usize,
    pub(crate) daemons: Vec<DaemonGroup>,
    /// Of the DaemonSets that some pod must not be beside, those that run on its machines.
    pub(crate) avoided: Vec<AvoidedDaemon>,
    /// What remains of its limits; `None` without a limit.
    pub(crate) limits: IdVec<DimId, Option<i64>>,
    /// How many more machines it may have.
    pub(crate) node_limit: Option<i64>,
    /// What each machine costs on top of its price, in billionths of a dollar per hour.
    pub(crate) machine_cost: u64,
}

impl Pool<'_> {
    /// Whether it limits a resource that machines have.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits.iter().any(Option::is_some)
    }
}

/// What the machines of a NodePool could be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    pub(crate) catalog: CatalogId,
    /// The NodePool's requirements and labels.
    pub(crate) set: SetId,
    pub(crate) taints: TaintsId,
}

/// A NodePool without a usable instance type.
#[derive(Clone, Debug)]
pub(crate) struct UnusablePool<'a> {
    pub(crate) source: &'a NodePool,
    /// `None` without any instance types.
    pub(crate) template: Option<Template>,
}

pub(crate) struct Pools<'a> {
    pub(crate) list: IdVec<PoolId, Pool<'a>>,
    /// In trial order.
    pub(crate) unusable: Vec<UnusablePool<'a>>,
    /// NodePools with the same list of types share one.
    pub(crate) catalogs: IdVec<CatalogId, Catalog>,
    pub(crate) reservations: Reservations,
}

/// Builds the templates. A NodePool whose own requirements allow no type is unusable. `to_avoid` are the future daemons, by their place,
/// that some pod must not be beside.
pub(crate) fn build<'a>(
    builder: &mut ProblemBuilder<'a>,
    dims: &Dims,
    (daemons, future_daemons): (&[Pod], &FutureDaemons),
    to_avoid: &BTreeSet<usize>,
) -> Pools<'a> {
    let mut list = IdVec::new();
    let mut unusable = Vec::new();
    let mut catalogs: IdVec<CatalogId, Catalog> = IdVec::new();
    let mut catalog_of: BTreeMap<usize, CatalogId> = BTreeMap::new();
    let mut reservations = Reservations::default();
    let ProblemBuilder { well_known, names, .. } = builder;
    let well_known: BTreeSet<Key> = well_known.iter().map(|key| names.key(key)).collect();
    for source in builder.node_pools.clone() {
        let Some(types) = builder.input.catalog.get(&source.metadata.name).filter(|t| !t.is_empty()) else {
            unusable.push(UnusablePool { source, template: None });
            continue;
        };
        let at = std::sync::Arc::as_ptr(types) as usize;
        let catalog = *catalog_of
            .entry(at)
            .or_insert_with(|| catalogs.push(Catalog::of(&index_of(types), &mut builder.names, dims, &mut reservations)));
        let mut labels = source.spec.template.metadata.labels.clone();
        labels.insert(labels::NODE_POOL.to_owned(), source.metadata.name.clone());
        if source.is_converted_provisioner() {
            labels.insert(labels::PROVISIONER_NAME.to_owned(), NodePool::given_name(&source.metadata.name).to_owned());
        }
        let class = &source.spec.template.spec.node_class_ref;
        if !class.name.is_empty() {
            labels.insert(format!("{}/{}", class.group, class.kind.to_lowercase()), class.name.clone());
        }
        let mut reqs = from_requirements(&source.spec.template.spec.requirements);
        reqs.add_all(&from_labels(&labels));
        for only_while_scheduling in [labels::REGISTERED, labels::INITIALIZED] {
            reqs.add(only_while_scheduling.to_owned(), Allowed::one("true".to_owned()));
        }
        let (set, _) = builder.split(&reqs);
        let catalog_of_pool = &mut catalogs[catalog];
        let view = catalog_of_pool.view(builder.sets.get(set), |k| well_known.contains(k));
        let strict = builder.options.min_values == MinValuesPolicy::Strict;
        let taints = builder.taint_table.taints(&source.spec.template.spec.taints);
        if view.usable.is_empty() || strict && !min_values_met(catalog_of_pool, &view, &view.usable) {
            unusable.push(UnusablePool { source, template: Some(Template { catalog, set, taints }) });
            continue;
        }
        let types = view.usable;
        let running = running_daemons(builder, daemons, (set, &source.spec.template.spec.taints), catalog_of_pool, &types);
        let template = (source, set, &*catalog_of_pool);
        let avoided = avoided_daemons::of_template(builder, (daemons, future_daemons), to_avoid, template, &running);
        let daemons = daemon_groups(&running, daemons, catalog_of_pool, &types, dims);
        let (limits, node_limit) = remaining_limits(builder, source, dims);
        let machine_cost = cost_per_machine(builder.input, builder.options, source).nanos();
        let type_count = types.count();
        list.push(Pool { source, catalog, set, labels, taints, types, type_count, daemons, avoided, limits, node_limit, machine_cost });
    }
    Pools { list, unusable, catalogs, reservations }
}

/// Whether `types` have the distinct values that every `minValues` requires.
pub(crate) fn min_values_met(catalog: &Catalog, view: &View, types: &Bits) -> bool {
    view.min_values.iter().all(|(key, wanted)| catalog.distinct(*key, types) >= *wanted)
}

/// The daemons that would run on each type of a NodePool with these requirements and taints. They are assumed to tolerate soft taints.
fn running_daemons(
    builder: &mut ProblemBuilder<'_>,
    daemons: &[Pod],
    (template, taints): (SetId, &[whittle_api::k8s::Taint]),
    catalog: &Catalog,
    types: &Bits,
) -> IdVec<TypeId, Vec<usize>> {
    let mut running: IdVec<TypeId, Vec<usize>> = IdVec::filled(Vec::new(), &catalog.names);
    for (daemon, pod) in daemons.iter().enumerate() {
        let hard: Vec<_> = taints.iter().filter(|t| t.effect != TaintEffect::PreferNoSchedule).cloned().collect();
        if !pods::untolerated(&pod.spec.tolerations, &hard).is_empty() {
            continue;
        }
        let terms: Vec<_> = pods::daemon_terms(pod).iter().map(|t| builder.split(t)).collect();
        let fits: Vec<SetId> = terms
            .into_iter()
            .filter(|(t, host)| {
                let known = |k: &Key| builder.well_known.contains(builder.names.key_name(*k));
                allows_unnamed_host(host.as_ref()) && builder.sets.get(template).compatible(builder.sets.get(*t), known).is_ok()
            })
            .map(|(t, _)| t)
            .collect();
        for t in types.iter() {
            if fits.iter().any(|asked| catalog.sets[t].intersects(builder.sets.get(*asked)).is_ok()) {
                running[t].push(daemon);
            }
        }
    }
    running
}

/// Groups the types by the daemons that would run on them.
fn daemon_groups(running: &IdVec<TypeId, Vec<usize>>, daemons: &[Pod], catalog: &Catalog, types: &Bits, dims: &Dims) -> Vec<DaemonGroup> {
    let mut at: Map<&[usize], usize> = Map::default();
    let mut out: Vec<DaemonGroup> = Vec::new();
    // Groups follow the order of the list of types, as the types of a claim do.
    let mut listed: Vec<TypeId> = types.iter().collect();
    listed.sort_by_key(|t| catalog.place[*t]);
    for t in listed {
        let group = *at.entry(&running[t]).or_insert_with(|| {
            let here = running[t].iter().map(|daemon| &daemons[*daemon]);
            let resources = pods::total_requests(here.clone());
            out.push(DaemonGroup {
                types: Bits::none(catalog.len()),
                overhead: dims.vector(&resources),
                resources,
                ports: here.flat_map(pods::host_ports).collect(),
            });
            out.len() - 1
        });
        out[group].types.insert(t);
    }
    out
}

/// What remains of a NodePool's limits after its machines that stay.
fn remaining_limits(builder: &ProblemBuilder<'_>, pool: &NodePool, dims: &Dims) -> (IdVec<DimId, Option<i64>>, Option<i64>) {
    let input = builder.input;
    let mut left = pool.spec.limits.clone();
    let limited = left.clone();
    let candidates = builder.options.simulation.as_ref().map(|s| &s.candidates).filter(|_| builder.questions == Questions::One);
    let staying = input.nodes.iter().filter(|n| !n.marked_for_deletion && candidates.is_none_or(|c| !c.contains(n.name())));
    for node in staying.filter(|n| n.limited_by() == Some(&pool.metadata.name)) {
        left.subtract(&node.capacity());
    }
    let of = |name: &str| limited.0.contains_key(name).then(|| left.get(name).milli());
    (dims.names.iter().map(|n| of(n).filter(|_| n != "nodes")).collect(), of("nodes"))
}
