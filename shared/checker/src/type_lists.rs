//! The lists of instance types in a plan, each looked up in the catalog once, since many claims share one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use whittle_api::catalog::InstanceType;
use whittle_model::scheduling::{Input, NewClaim, Plan};
use whittle_units::Quantity;

/// All type lists of a plan, and the list of each claim.
pub(crate) struct TypeLists<'a> {
    pub(crate) all: Vec<TypeList<'a>>,
    of: Vec<usize>,
}

/// One list of a NodePool, with the types that the catalog has.
pub(crate) struct TypeList<'a> {
    pub(crate) pool: &'a str,
    /// In the order of the list.
    pub(crate) types: Vec<(&'a str, Option<&'a InstanceType>)>,
    /// It lists no type twice.
    pub(crate) distinct: bool,
    /// How many claims have this list.
    pub(crate) claims: i128,
}

impl<'a> TypeLists<'a> {
    pub(crate) fn of(input: &Input<'a>, plan: &'a Plan) -> Self {
        let mut indices: HashMap<(&str, &[String]), usize> = HashMap::new();
        let mut catalogs: BTreeMap<&str, HashMap<&str, &InstanceType>> = BTreeMap::new();
        let mut out = Self { all: Vec::new(), of: Vec::with_capacity(plan.claims.len()) };
        for claim in &plan.claims {
            let NewClaim { node_pool, instance_types, .. } = claim;
            let at = *indices.entry((node_pool, &instance_types[..])).or_insert_with(|| {
                let catalog = catalogs.entry(node_pool).or_insert_with(|| {
                    // The first of several types with the same name counts.
                    let types = input.catalog.get(node_pool).map(|c| &c[..]).unwrap_or_default();
                    types.iter().rev().map(|t| (t.name.as_str(), t)).collect()
                });
                let types = instance_types.iter().map(|name| (name.as_str(), catalog.get(name.as_str()).copied())).collect();
                let distinct = instance_types.iter().collect::<BTreeSet<_>>().len() == instance_types.len();
                out.all.push(TypeList { pool: node_pool, types, distinct, claims: 0 });
                out.all.len() - 1
            });
            out.all[at].claims += 1;
            out.of.push(at);
        }
        out
    }

    /// Index in `all` of the list of a claim.
    pub(crate) fn index(&self, claim: usize) -> usize {
        self.of[claim]
    }
}

impl<'a> TypeList<'a> {
    pub(crate) fn known(&self) -> impl Iterator<Item = &'a InstanceType> {
        self.types.iter().filter_map(|(_, t)| *t)
    }

    /// The largest capacity for `resource` of any type in the list.
    pub(crate) fn largest(&self, resource: &str) -> Quantity {
        if resource == "nodes" {
            return Quantity::from_units(1);
        }
        self.known().map(|t| t.capacity.get(resource)).max().unwrap_or_default()
    }
}
