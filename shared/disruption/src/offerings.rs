//! Groups the offerings of all catalogs by their requirements: a few kinds, such as zone and capacity type, cover
//! thousands of offerings.

use super::offering_index::OfferingIndex;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::labels;
use whittle_model::requirements::Requirements;
use whittle_model::scheduling::InstanceTypes;

/// The kinds of all lists.
pub(crate) struct Offerings {
    lists: Vec<TypeList>,
    kinds: usize,
}

/// A list of types, identified by its address: NodePools share lists, and every list outlives the decision.
struct TypeList {
    start: usize,
    end: usize,
    /// Number of its first kind among those of all lists.
    first: usize,
    index: Arc<OfferingIndex>,
}

impl Offerings {
    pub(crate) fn new(catalog: &BTreeMap<String, Arc<InstanceTypes>>) -> Self {
        let mut out = Self { lists: Vec::new(), kinds: 0 };
        for types in catalog.values().filter(|types| !types.is_empty()) {
            let start = types.as_ptr() as usize;
            if out.lists.iter().any(|list| list.start == start) {
                continue;
            }
            let index = types.derived(OfferingIndex::new);
            let first = out.kinds;
            out.kinds += index.kinds.len();
            out.lists.push(TypeList { start, end: start + size_of_val(&types[..]), first, index });
        }
        out.lists.sort_by_key(|list| list.start);
        out
    }

    /// For each kind, whether it is compatible with the requirements of a claim or of a node's labels.
    pub(crate) fn admitted(&self, requirements: &Requirements) -> Vec<bool> {
        let may_be_undefined = |key: &String| labels::WELL_KNOWN.contains(&key.as_str());
        let names_tenancy = requirements.get(labels::INSTANCE_TENANCY).is_some();
        let mut out = vec![false; self.kinds];
        for list in &self.lists {
            for (at, kind) in list.index.kinds.iter().enumerate() {
                let is_open = names_tenancy || !list.index.dedicated[at];
                out[list.first + at] = is_open && requirements.compatible(kind, may_be_undefined).is_ok();
            }
        }
        out
    }

    pub(crate) fn kinds_of<'t>(&self, instance_type: &'t InstanceType) -> impl Iterator<Item = (usize, &'t Offering)> {
        let address = std::ptr::from_ref(instance_type) as usize;
        let list = self.lists[..self.lists.partition_point(|list| list.start <= address)].last().filter(|list| address < list.end);
        let kinds = list
            .map_or((0, &[][..]), |list| (list.first, &list.index.kinds_of_type[(address - list.start) / size_of::<InstanceType>()][..]));
        kinds.1.iter().map(move |kind| kinds.0 + kind).zip(&instance_type.offerings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::karpenter::Requirement;
    use whittle_model::requirements::from_requirements;

    /// Otherwise a machine would be replaced for a price at which its claim cannot be launched.
    #[test]
    fn what_is_for_dedicated_machines_is_for_requirements_that_name_the_tenancy() {
        let of_tenancy = |tenancy: &str| vec![Requirement::is_in(labels::INSTANCE_TENANCY, [tenancy])];
        let offering = |tenancy: &str| Offering { requirements: of_tenancy(tenancy), ..Offering::default() };
        let offered = vec![offering("dedicated"), offering("default"), Offering::default()];
        let instance_type = InstanceType { offerings: offered, ..InstanceType::default() };
        let types: InstanceTypes = vec![instance_type].into();
        let offerings = Offerings::new(&BTreeMap::from([("pool".to_owned(), Arc::new(types))]));
        assert_eq!(offerings.admitted(&Requirements::new()), [false, true, true]);
        assert_eq!(offerings.admitted(&from_requirements(&of_tenancy("dedicated"))), [true, false, true]);
        assert_eq!(offerings.admitted(&from_requirements(&of_tenancy("default"))), [false, true, true]);
    }
}
