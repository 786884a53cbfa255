//! What a NodePool can buy, with what follows from that alone: worked out once, however many decisions look at it.

use super::stock::Stock;
use crate::disruption::OfferingIndex;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use whittle_api::catalog::InstanceType;

/// A list of instance types. It reads as a slice; whoever changes it makes it forget what had been worked out, so that a
/// decision never sees anything but what follows from the types as they are.
#[derive(Clone, Default)]
pub struct Assortment {
    types: Vec<InstanceType>,
    stock: OnceLock<Arc<Stock>>,
    offering_index: OnceLock<Arc<OfferingIndex>>,
}

impl Assortment {
    /// The types, to be changed.
    pub fn change(&mut self) -> &mut Vec<InstanceType> {
        self.stock.take();
        self.offering_index.take();
        &mut self.types
    }

    /// The type of a name.
    pub(crate) fn find(&self, name: &str) -> Option<&InstanceType> {
        self.types.get(self.stock().position(name, &self.types)?)
    }

    /// What the offerings of the types ask for.
    pub(crate) fn offering_index(&self) -> &Arc<OfferingIndex> {
        self.offering_index.get_or_init(|| Arc::new(OfferingIndex::new(&self.types)))
    }

    /// The types as the solver tries them, in numbers.
    pub(crate) fn stock(&self) -> &Arc<Stock> {
        self.stock.get_or_init(|| Arc::new(Stock::of(&self.types)))
    }
}

impl Deref for Assortment {
    type Target = [InstanceType];

    fn deref(&self) -> &[InstanceType] {
        &self.types
    }
}

impl From<Vec<InstanceType>> for Assortment {
    fn from(types: Vec<InstanceType>) -> Self {
        Self { types, ..Self::default() }
    }
}

impl FromIterator<InstanceType> for Assortment {
    fn from_iter<I: IntoIterator<Item = InstanceType>>(types: I) -> Self {
        types.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for Assortment {
    fn eq(&self, other: &Self) -> bool {
        self.types == other.types
    }
}

impl fmt::Debug for Assortment {
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
        let mut types: Assortment = [2, 3].map(of_cores).into_iter().collect();
        let before = Arc::clone(types.stock());
        assert!(Arc::ptr_eq(&before, types.stock()) && Arc::ptr_eq(&before, types.clone().stock()));
        types.change()[0].capacity.set("cpu", Quantity::from_units(4));
        assert!(!Arc::ptr_eq(&before, types.stock()));
        assert_eq!(types.stock().capacity("cpu"), [4_000, 3_000], "by name, as nothing has a price");
    }
}
