//! The topology domains that new machines could provide.

use super::bits::Bits;
use super::builder::ProblemBuilder;
use super::catalog::Catalog;
use super::hash::Map;
use super::ids::{CatalogId, GroupId, IdVec, Key, PoolId, TolerationId};
use super::intern::{Set, Val};
use super::pools::{Pool, Template, UnusablePool};
use super::topology::{Filter, Group};
use std::collections::BTreeSet;
use whittle_model::requirements::{Allowed, Operator};
use whittle_model::scheduling::MinValuesPolicy;

/// What NodePools could launch, whether EC2 has it now or not.
pub(crate) struct TopologyDomains<'c> {
    catalogs: &'c IdVec<CatalogId, Catalog>,
    /// With the types that the template's requirements allow.
    templates: Vec<(Template, Bits)>,
}

impl<'c> TopologyDomains<'c> {
    /// Availability and limits are ignored, even of a NodePool without a usable type.
    pub(crate) fn of(
        pools: &IdVec<PoolId, Pool<'_>>,
        unusable: &[UnusablePool<'_>],
        catalogs: &'c IdVec<CatalogId, Catalog>,
        groups: &IdVec<GroupId, Group>,
        builder: &ProblemBuilder<'_>,
    ) -> Self {
        let mut out = Self { catalogs, templates: Vec::new() };
        if groups.iter().all(|group| group.by_host) {
            return out;
        }
        let usable = pools.iter().map(|pool| Template { catalog: pool.catalog, set: pool.set, taints: pool.taints });
        for template in usable.chain(unusable.iter().filter_map(|pool| pool.template)) {
            let types = catalogs[template.catalog].allowed_by(builder.sets.get(template.set));
            out.templates.push((template, types));
        }
        out
    }

    /// The values of `key` on nodes that could be launched, that count for `filter`, and whose taints a pod with the tolerations `reach`
    /// tolerates (scheduling 23).
    pub(crate) fn domains(&self, key: Key, filter: &Filter, reach: Option<TolerationId>, builder: &ProblemBuilder<'_>) -> BTreeSet<Val> {
        let may_be_undefined = |key: &Key| builder.well_known(builder.names.key_name(*key));
        let is_reached = |template: &Template| reach.is_none_or(|reach| builder.taint_table.tolerated(reach, template.taints));
        // As of a machine that exists: one without the label counts for nobody.
        let has_labels = |template: &Template| {
            let set = builder.sets.get(template.set);
            let gets = |key: &Key| set.get(key).is_some_and(|own| own.operator() != Operator::DoesNotExist);
            filter.labels.iter().all(|key| may_be_undefined(key) || gets(key))
        };
        let counts = |(template, _): &&(Template, Bits)| is_reached(template) && has_labels(template);
        let reached: Vec<&(Template, Bits)> = self.templates.iter().filter(counts).collect();
        let min_values = builder.options.min_values;
        let mut out = BTreeSet::new();
        if filter.any_of.is_empty() {
            for (template, types) in &reached {
                let (catalog, set) = (&self.catalogs[template.catalog], builder.sets.get(template.set));
                out.extend(values(catalog, set, key, &catalog.sold(set, types, may_be_undefined), min_values));
            }
        }
        for asked in filter.any_of.iter().map(|asked| builder.sets.get(*asked)) {
            let mut allowed: Map<CatalogId, Bits> = Map::default();
            for (template, types) in &reached {
                let (catalog, set) = (&self.catalogs[template.catalog], builder.sets.get(template.set));
                if set.compatible(asked, may_be_undefined).is_ok() {
                    let mut both = types.clone();
                    both.intersect_with(allowed.entry(template.catalog).or_insert_with(|| catalog.allowed_by(asked)));
                    let mut narrowed = set.clone();
                    narrowed.add_all(asked);
                    out.extend(values(catalog, set, key, &catalog.sold(&narrowed, &both, may_be_undefined), min_values));
                }
            }
        }
        out
    }
}

/// The values of `key` on nodes of a template with requirements `set` that could be launched by these offers: their requirements, and the
/// types that are sold so.
fn values(catalog: &Catalog, set: &Set, key: Key, offers: &[(&Set, Bits)], min_values: MinValuesPolicy) -> Vec<Val> {
    let own = set.get(&key);
    let mut sold = Bits::none(catalog.len());
    offers.iter().for_each(|(_, types)| sold.union_with(types));
    if sold.is_empty() {
        return Vec::new();
    }
    if let Some(mut values) = catalog.values(key, &sold) {
        // The types decide: what a NodePool lists besides, such as a zone without a subnet, no node will have. Nor will any be in a zone in
        // which they are only sold of another capacity type, or in which fewer are sold than its `minValues` ask for.
        let wanted: Vec<(Key, u32)> = match min_values {
            MinValuesPolicy::Strict => set.iter().filter_map(|(key, allowed)| Some((*key, allowed.min_values()?))).collect(),
            MinValuesPolicy::BestEffort => Vec::new(),
        };
        let is_offered = |val: &Val| offers.iter().any(|(kind, _)| kind.get(&key).is_none_or(|has| has.has(val)));
        let has_choice = |val: &Val| wanted.is_empty() || is_met(&wanted, catalog, &sold_with(catalog, key, offers, *val));
        values.retain(|val| own.is_none_or(|own| own.has(val)) && is_offered(val) && has_choice(val));
        return values;
    }
    let mut out = own.and_then(Allowed::members).unwrap_or_default().to_vec();
    for of_type in sold.iter().filter_map(|id| catalog.sets[id].get(&key)) {
        let both = own.map_or_else(|| of_type.clone(), |own| own.intersect(of_type));
        out.extend_from_slice(both.members().unwrap_or_default());
    }
    out
}

/// The types of these offers that are sold with this value of `key`.
fn sold_with(catalog: &Catalog, key: Key, offers: &[(&Set, Bits)], val: Val) -> Bits {
    let mut out = Bits::none(catalog.len());
    for (_, types) in offers.iter().filter(|(kind, _)| kind.get(&key).is_none_or(|has| has.has(&val))) {
        types.iter().filter(|id| catalog.sets[*id].get(&key).is_none_or(|has| has.has(&val))).for_each(|id| out.insert(id));
    }
    out
}

/// Whether types have as many distinct values of each key as are wanted.
fn is_met(wanted: &[(Key, u32)], catalog: &Catalog, types: &Bits) -> bool {
    wanted.iter().all(|(key, least)| *least <= catalog.distinct(*key, types))
}
