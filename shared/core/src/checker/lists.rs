//! The lists of instance types in a plan, each looked up in the catalogue once: many claims share one.

use crate::schedule::{Input, NewClaim, Plan};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use whittle_api::catalog::InstanceType;
use whittle_units::Quantity;

/// All lists of a plan, and which of them each claim has.
pub(crate) struct Lists<'a> {
    pub(crate) all: Vec<List<'a>>,
    of: Vec<usize>,
}

/// One list of a NodePool, with what the catalogue knows of it.
pub(crate) struct List<'a> {
    pub(crate) pool: &'a str,
    /// In the order of the list.
    pub(crate) types: Vec<(&'a str, Option<&'a InstanceType>)>,
    /// It names no type twice.
    pub(crate) distinct: bool,
    /// How many claims have it.
    pub(crate) claims: i128,
}

impl<'a> Lists<'a> {
    pub(crate) fn of(input: &Input<'a>, plan: &'a Plan) -> Self {
        let mut known: HashMap<(&str, &[String]), usize> = HashMap::new();
        let mut catalogs: BTreeMap<&str, HashMap<&str, &InstanceType>> = BTreeMap::new();
        let mut out = Self { all: Vec::new(), of: Vec::with_capacity(plan.claims.len()) };
        for claim in &plan.claims {
            let NewClaim { node_pool, instance_types, .. } = claim;
            let at = *known.entry((node_pool, &instance_types[..])).or_insert_with(|| {
                let catalog = catalogs.entry(node_pool).or_insert_with(|| {
                    // Of types with one name the first counts.
                    let types = input.catalog.get(node_pool).map(|c| &c[..]).unwrap_or_default();
                    types.iter().rev().map(|t| (t.name.as_str(), t)).collect()
                });
                let types = instance_types.iter().map(|name| (name.as_str(), catalog.get(name.as_str()).copied())).collect();
                let distinct = instance_types.iter().collect::<BTreeSet<_>>().len() == instance_types.len();
                out.all.push(List { pool: node_pool, types, distinct, claims: 0 });
                out.all.len() - 1
            });
            out.all[at].claims += 1;
            out.of.push(at);
        }
        out
    }

    /// The place in `all` of the list of the claim with this number.
    pub(crate) fn index(&self, claim: usize) -> usize {
        self.of[claim]
    }
}

impl<'a> List<'a> {
    pub(crate) fn known(&self) -> impl Iterator<Item = &'a InstanceType> {
        self.types.iter().filter_map(|(_, t)| *t)
    }

    /// The most of `resource` that a machine of this list has.
    pub(crate) fn largest(&self, resource: &str) -> Quantity {
        if resource == "nodes" {
            return Quantity::from_units(1);
        }
        self.known().map(|t| t.capacity.get(resource)).max().unwrap_or_default()
    }
}
