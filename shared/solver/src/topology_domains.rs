//! The topology domains that new machines could provide.

use super::builder::ProblemBuilder;
use super::catalog::Catalog;
use super::ids::{CatalogId, GroupId, IdVec, Key, PoolId, TaintsId, TolerationId};
use super::intern::Val;
use super::pools::{Pool, Template, UnusablePool};
use super::taints::TaintTable;
use super::topology::Group;
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::requirements::{Allowed, Operator};

/// The values that topology keys could have on new machines, and the taints of the templates that provide them.
pub(crate) struct TopologyDomains {
    values: BTreeMap<Key, BTreeMap<Val, Vec<TaintsId>>>,
}

impl TopologyDomains {
    /// Availability and limits are ignored, even of a NodePool without a usable type.
    pub(crate) fn of(
        pools: &IdVec<PoolId, Pool<'_>>,
        unusable: &[UnusablePool<'_>],
        catalogs: &IdVec<CatalogId, Catalog>,
        groups: &IdVec<GroupId, Group>,
        builder: &ProblemBuilder<'_>,
    ) -> Self {
        let mut out = Self { values: BTreeMap::new() };
        let usable = pools.iter().map(|pool| Template { catalog: pool.catalog, set: pool.set, taints: pool.taints });
        let templates: Vec<_> = usable.chain(unusable.iter().filter_map(|pool| pool.template)).collect();
        let keys: BTreeSet<Key> = groups.iter().filter(|g| !g.by_host).map(|g| g.key).collect();
        for key in keys {
            let values = out.values.entry(key).or_default();
            for &Template { catalog, set, taints } in &templates {
                let free = builder.taint_table.taints[taints].is_empty();
                let mut put = |v: &Val| {
                    let list = values.entry(*v).or_default();
                    if free {
                        *list = vec![taints];
                    } else if list.iter().all(|t| !builder.taint_table.taints[*t].is_empty()) && !list.contains(&taints) {
                        list.push(taints);
                    }
                };
                let template = builder.sets.get(set).get(&key);
                if let Some(a) = template.filter(|a| a.operator() == Operator::In) {
                    a.listed().iter().for_each(&mut put);
                }
                let mut seen: BTreeSet<&Allowed<Val>> = BTreeSet::new();
                for allowed in catalogs[catalog].sets.iter().filter_map(|s| s.get(&key)) {
                    if !seen.insert(allowed) {
                        continue;
                    }
                    let both = template.map_or_else(|| allowed.clone(), |t| t.intersect(allowed));
                    both.members().unwrap_or_default().iter().for_each(&mut put);
                }
            }
        }
        out
    }

    /// The domains of `key` that a pod with these tolerations could reach.
    pub(crate) fn domains(&self, key: Key, reach: Option<TolerationId>, taint_table: &TaintTable) -> Vec<Val> {
        let reachable = |taints: &[TaintsId]| reach.is_none_or(|r| taints.iter().any(|t| taint_table.tolerated(r, *t)));
        self.values.get(&key).into_iter().flatten().filter(|(_, taints)| reachable(taints)).map(|(v, _)| *v).collect()
    }
}
