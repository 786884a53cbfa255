//! Offerings of the whole catalog by what they ask for: a few kinds (a zone, a capacity type) for thousands of offerings.

use crate::requirements::{Requirements, from_requirements};
use crate::schedule::InstanceTypes;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::Requirement;
use whittle_api::labels;

/// What the offerings of one list ask for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// By kind.
    kinds: Vec<Requirements>,
    /// By type: the kind of each of its offerings.
    of: Vec<Vec<usize>>,
}

impl Asked {
    pub(crate) fn of(types: &[InstanceType]) -> Self {
        let mut written: Vec<&[Requirement]> = Vec::new();
        let mut of = Vec::with_capacity(types.len());
        for instance_type in types {
            let mut kinds = Vec::with_capacity(instance_type.offerings.len());
            for offering in &instance_type.offerings {
                let known = written.iter().position(|known| *known == &offering.requirements[..]);
                kinds.push(known.unwrap_or_else(|| {
                    written.push(&offering.requirements);
                    written.len() - 1
                }));
            }
            of.push(kinds);
        }
        Self { kinds: written.into_iter().map(from_requirements).collect(), of }
    }
}

/// The kinds of offerings of all lists.
pub(crate) struct Offers {
    lists: Vec<Listed>,
    kinds: usize,
}

/// A list of types, by where it lies: NodePools share lists, and a list lives as long as the decision.
struct Listed {
    begins: usize,
    ends: usize,
    /// The number of its first kind among those of all lists.
    first: usize,
    asked: Arc<Asked>,
}

impl Offers {
    pub(crate) fn of(catalog: &BTreeMap<String, Arc<InstanceTypes>>) -> Self {
        let mut out = Self { lists: Vec::new(), kinds: 0 };
        for types in catalog.values().filter(|types| !types.is_empty()) {
            let begins = types.as_ptr() as usize;
            if out.lists.iter().any(|list| list.begins == begins) {
                continue;
            }
            let asked = Arc::clone(types.asked());
            let first = out.kinds;
            out.kinds += asked.kinds.len();
            out.lists.push(Listed { begins, ends: begins + size_of_val(&types[..]), first, asked });
        }
        out.lists.sort_by_key(|list| list.begins);
        out
    }

    /// By kind: whether the requirements, of a claim or of a node's labels, admit it.
    pub(crate) fn admitted(&self, requirements: &Requirements) -> Vec<bool> {
        let open = |key: &String| labels::WELL_KNOWN.contains(&key.as_str());
        let mut out = vec![false; self.kinds];
        for list in &self.lists {
            for (at, kind) in list.asked.kinds.iter().enumerate() {
                out[list.first + at] = requirements.compatible(kind, open).is_ok();
            }
        }
        out
    }

    /// The offerings of a type with their kinds.
    pub(crate) fn kinds_of<'t>(&self, instance_type: &'t InstanceType) -> impl Iterator<Item = (usize, &'t Offering)> {
        let lies = std::ptr::from_ref(instance_type) as usize;
        let list = self.lists[..self.lists.partition_point(|list| list.begins <= lies)].last().filter(|list| lies < list.ends);
        let kinds = list.map_or((0, &[][..]), |list| (list.first, &list.asked.of[(lies - list.begins) / size_of::<InstanceType>()][..]));
        kinds.1.iter().map(move |kind| kinds.0 + kind).zip(&instance_type.offerings)
    }
}
