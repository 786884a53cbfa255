//! Offerings of the whole catalog by what they ask for: a few kinds (a zone, a capacity type) for thousands of offerings.

use crate::requirements::{Requirements, from_requirements};
use crate::schedule::Assortment;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::Requirement;
use whittle_api::labels;

/// The kinds of offerings.
pub(crate) struct Offers {
    kinds: Vec<Requirements>,
    /// By the address of a type's offerings: the kind of each.
    of: BTreeMap<usize, Vec<usize>>,
}

impl Offers {
    pub(crate) fn of<'a>(catalog: &'a BTreeMap<String, Arc<Assortment>>) -> Self {
        let mut written: Vec<&'a [Requirement]> = Vec::new();
        let mut of = BTreeMap::new();
        for instance_type in catalog.values().flat_map(|types| types.iter()) {
            of.entry(address(instance_type)).or_insert_with(|| {
                let kind = |offering: &'a Offering| {
                    let known = written.iter().position(|known| *known == &offering.requirements[..]);
                    known.unwrap_or_else(|| {
                        written.push(&offering.requirements);
                        written.len() - 1
                    })
                };
                instance_type.offerings.iter().map(kind).collect::<Vec<usize>>()
            });
        }
        let kinds = written.into_iter().map(from_requirements).collect();
        Self { kinds, of }
    }

    /// By kind: whether the requirements, of a claim or of a node's labels, admit it.
    pub(crate) fn admitted(&self, requirements: &Requirements) -> Vec<bool> {
        let open = |key: &String| labels::WELL_KNOWN.contains(&key.as_str());
        self.kinds.iter().map(|kind| requirements.compatible(kind, open).is_ok()).collect()
    }

    /// The offerings of a type with their kinds.
    pub(crate) fn kinds_of<'t>(&self, instance_type: &'t InstanceType) -> impl Iterator<Item = (usize, &'t Offering)> {
        let kinds = self.of.get(&address(instance_type)).map_or(&[][..], Vec::as_slice);
        kinds.iter().copied().zip(&instance_type.offerings)
    }
}

/// NodePools share lists of types: where its offerings lie tells a type, which lives as long as the decision.
fn address(instance_type: &InstanceType) -> usize {
    instance_type.offerings.as_ptr() as usize
}
