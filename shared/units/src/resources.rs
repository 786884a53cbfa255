//! Lists of resources.

use crate::Quantity;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Amounts by resource name (`cpu`, `memory`, `pods`, `nvidia.com/gpu`, …); what is not listed is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(transparent)]
pub struct Resources(pub BTreeMap<String, Quantity>);

impl Resources {
    /// No resources.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }
    /// The amount of `name`, zero when absent.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }
    /// Sets the amount of `name`.
    pub fn set(&mut self, name: &str, amount: Quantity) {
        self.0.insert(name.to_owned(), amount);
    }
    /// Adds every entry of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            // A name is only copied when it is new: sums over many pods name the same few.
            match self.0.get_mut(name) {
                Some(sum) => *sum = sum.plus(*amount),
                None => self.set(name, *amount),
            }
        }
    }
    /// Adds every positive entry of `other`: negative requests do not free resources.
    pub fn add_demand(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let amount = (*amount).max(Quantity::ZERO);
            match self.0.get_mut(name) {
                Some(sum) => *sum = sum.plus(amount),
                None => self.set(name, amount),
            }
        }
    }
    /// Subtracts every entry of `other`; entries may become negative.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_default();
            *entry = entry.minus(*amount);
        }
    }
    /// Raises every entry to at least that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_insert(*amount);
            *entry = (*entry).max(*amount);
        }
    }
    /// True when every entry is at most that of `room`. A zero entry fits even where `room` lacks the name.
    pub fn fits(&self, room: &Self) -> bool {
        self.0.iter().all(|(name, amount)| *amount <= room.get(name) || amount.is_zero())
    }
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Entries in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, amount)| (name, amount.text_of(name))))
    }
}

impl<const N: usize> From<[(&str, Quantity); N]> for Resources {
    fn from(entries: [(&str, Quantity); N]) -> Self {
        Self(entries.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect())
    }
}

impl FromIterator<(String, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (String, Quantity)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}
