//! The instance types of a NodePool, with what is derived from them alone: computed once for any number of decisions.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use whittle_api::catalog::InstanceType;

/// A list of instance types. It reads as a slice; changing it discards everything derived from it, so that a decision never
/// sees stale data.
#[derive(Clone, Default)]
pub struct InstanceTypes {
    types: Vec<InstanceType>,
    derived: Arc<Derived>,
}

/// What was derived from a list, one value of each type, in the order of their first use.
#[derive(Default)]
struct Derived(OnceLock<(Arc<dyn Any + Send + Sync>, Box<Derived>)>);

impl InstanceTypes {
    /// The types, for changing them.
    pub fn change(&mut self) -> &mut Vec<InstanceType> {
        self.derived = Arc::default();
        &mut self.types
    }

    /// The type with this name; of several, the last.
    pub fn find(&self, name: &str) -> Option<&InstanceType> {
        let by_name = self.derived(ByName::of);
        let after = by_name.0.partition_point(|at| self.types[*at].name.as_str() <= name);
        by_name.0[..after].last().map(|at| &self.types[*at]).filter(|found| found.name == name)
    }

    /// What `derive` makes of the types. It is computed once, and kept for this list and its clones until the types change:
    /// there must be one function for each type of value, and it must not derive another value from this list.
    pub fn derived<T: Any + Send + Sync>(&self, derive: fn(&[InstanceType]) -> T) -> Arc<T> {
        let mut link = &*self.derived;
        loop {
            let (value, next) = link.0.get_or_init(|| (Arc::new(derive(&self.types)), Box::default()));
            match Arc::clone(value).downcast() {
                Ok(found) => return found,
                Err(_) => link = next,
            }
        }
    }
}

/// Positions in a list, by name.
struct ByName(Vec<usize>);

impl ByName {
    fn of(types: &[InstanceType]) -> Self {
        let mut out: Vec<usize> = (0..types.len()).collect();
        out.sort_by(|a, b| types[*a].name.cmp(&types[*b].name));
        Self(out)
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

    /// Two values derived from a list.
    fn cores(types: &[InstanceType]) -> Vec<Quantity> {
        types.iter().map(|instance_type| instance_type.capacity.get("cpu")).collect()
    }
    fn count(types: &[InstanceType]) -> usize {
        types.len()
    }

    #[test]
    fn derived_values_are_cached_until_the_types_change() {
        let mut types: InstanceTypes = [2, 3].map(of_cores).into_iter().collect();
        let before = types.derived(cores);
        assert_eq!((*types.derived(count), &**before), (2, &[2, 3].map(Quantity::from_units)[..]));
        assert!(Arc::ptr_eq(&before, &types.derived(cores)) && Arc::ptr_eq(&before, &types.clone().derived(cores)));
        types.change()[0].capacity.set("cpu", Quantity::from_units(4));
        assert_eq!(*types.derived(cores), [4, 3].map(Quantity::from_units));
    }

    #[test]
    fn a_type_is_found_by_its_name() {
        let types: InstanceTypes = [8, 2, 16].map(of_cores).into_iter().collect();
        let cores = |name: &str| types.find(name).map(|found| found.capacity.get("cpu"));
        assert_eq!(["x2", "x16", "x4", ""].map(cores), [Some(2), Some(16), None, None].map(|n| n.map(Quantity::from_units)));
    }
}
