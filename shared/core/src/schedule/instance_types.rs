//! The instance types of a NodePool, with what follows from them alone: computed once for any number of decisions.

use super::catalog_index::CatalogIndex;
use super::offering_index::OfferingIndex;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use whittle_api::catalog::InstanceType;

/// A list of instance types. It reads as a slice; changing it discards everything computed from it, so that a decision never
/// sees stale data.
#[derive(Clone, Default)]
pub struct InstanceTypes {
    types: Vec<InstanceType>,
    index: OnceLock<Arc<CatalogIndex>>,
    offering_index: OnceLock<Arc<OfferingIndex>>,
}

impl InstanceTypes {
    /// The types, for changing them.
    pub fn change(&mut self) -> &mut Vec<InstanceType> {
        self.index.take();
        self.offering_index.take();
        &mut self.types
    }

    /// The type with this name.
    pub(crate) fn find(&self, name: &str) -> Option<&InstanceType> {
        self.types.get(self.index().position(name, &self.types)?)
    }

    /// The requirements of the offerings.
    pub(crate) fn offering_index(&self) -> &Arc<OfferingIndex> {
        self.offering_index.get_or_init(|| Arc::new(OfferingIndex::new(&self.types)))
    }

    /// The types as the solver tries them, with numbers.
    pub(crate) fn index(&self) -> &Arc<CatalogIndex> {
        self.index.get_or_init(|| Arc::new(CatalogIndex::of(&self.types)))
    }
}

impl Deref for InstanceTypes {
    type Target = [InstanceType];

    fn deref(&self) -> &[InstanceType] {
        &self.types
    }
}

impl From<Vec<InstanceType>> for InstanceTypes {
    fn from(types: Vec<InstanceType>) -> Self {
        Self { types, ..Self::default() }
    }
}

impl FromIterator<InstanceType> for InstanceTypes {
    fn from_iter<I: IntoIterator<Item = InstanceType>>(types: I) -> Self {
        types.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for InstanceTypes {
    fn eq(&self, other: &Self) -> bool {
        self.types == other.types
    }
}

impl fmt::Debug for InstanceTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.types.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_units::Quantity;

    fn of_cores(cores: i64) -> InstanceType {
        let capacity = [("cpu", Quantity::from_units(cores))].into();
        InstanceType { name: format!("x{cores}"), capacity, ..InstanceType::default() }
    }

    #[test]
    fn what_was_worked_out_is_kept_until_the_types_change() {
        let mut types: InstanceTypes = [2, 3].map(of_cores).into_iter().collect();
        let before = Arc::clone(types.index());
        assert!(Arc::ptr_eq(&before, types.index()) && Arc::ptr_eq(&before, types.clone().index()));
        types.change()[0].capacity.set("cpu", Quantity::from_units(4));
        assert!(!Arc::ptr_eq(&before, types.index()));
        assert_eq!(types.index().capacity("cpu"), [4_000, 3_000], "by name, as nothing has a price");
    }
}
