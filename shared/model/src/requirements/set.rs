//! Requirements on several labels, and when they are compatible with what a node or instance type offers.

use super::allowed::{Allowed, Value};

/// Label key to allowed values, at most one entry per key, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reqs<K, V> {
    entries: Vec<(K, Allowed<V>)>,
}

/// Why requirements are incompatible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict<K> {
    /// A required key that the offering side does not define.
    Undefined(K),
    /// Keys without a common value.
    Disjoint(Vec<K>),
}

impl<K, V> Default for Reqs<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Ord + Clone, V: Value> Reqs<K, V> {
    /// No requirements.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The values allowed for `key`, if it has an entry.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Allowed<V>>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.entries.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok().map(|at| &self.entries[at].1)
    }

    /// Intersects the entry of `key` with `allowed`.
    pub fn add(&mut self, key: K, allowed: Allowed<V>) {
        match self.entries.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => self.entries[at].1 = allowed.intersect(&self.entries[at].1),
            Err(at) => self.entries.insert(at, (key, allowed)),
        }
    }

    /// Sets the entry of `key` to `allowed`.
    pub fn replace(&mut self, key: K, allowed: Allowed<V>) {
        match self.entries.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => self.entries[at].1 = allowed,
            Err(at) => self.entries.insert(at, (key, allowed)),
        }
    }

    /// Removes the entry of `key`. Returns what it allowed; `None` if there was none.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<Allowed<V>>
    where
        K: std::borrow::Borrow<Q>,
    {
        let at = self.entries.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        Some(self.entries.remove(at).1)
    }

    /// Intersects with every entry of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for (key, allowed) in &other.entries {
            self.add(key.clone(), allowed.clone());
        }
    }

    /// The entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Allowed<V>)> {
        self.entries.iter().map(|(key, allowed)| (key, allowed))
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether any entry has `minValues`.
    #[must_use]
    pub fn has_min_values(&self) -> bool {
        self.entries.iter().any(|(_, allowed)| allowed.min_values().is_some())
    }

    /// Whether this side satisfies `required`. It need not define a key whose absence is allowed, or for which
    /// `may_be_undefined` says that something else, such as the instance type, defines it later.
    ///
    /// # Errors
    ///
    /// The first undefined key, or all keys without a common value.
    pub fn compatible(&self, required: &Self, may_be_undefined: impl Fn(&K) -> bool) -> Result<(), Conflict<K>> {
        for (key, allowed) in &required.entries {
            if allowed.is_contradiction() {
                return Err(Conflict::Disjoint(vec![key.clone()]));
            }
            if may_be_undefined(key) || allowed.allows_absence() || self.get(key).is_some() {
                continue;
            }
            return Err(Conflict::Undefined(key.clone()));
        }
        self.intersects(required)
    }

    /// Whether the entries of both sides have a common value for every shared key.
    ///
    /// # Errors
    ///
    /// The keys without one.
    pub fn intersects(&self, required: &Self) -> Result<(), Conflict<K>> {
        let mut disjoint = Vec::new();
        for (key, allowed) in &required.entries {
            let Some(offered) = self.get(key) else { continue };
            let both_may_be_absent = allowed.allows_absence() && offered.allows_absence();
            if !both_may_be_absent && !offered.overlaps(allowed) {
                disjoint.push(key.clone());
            }
        }
        if disjoint.is_empty() { Ok(()) } else { Err(Conflict::Disjoint(disjoint)) }
    }
}

impl<K: Ord + Clone, V: Value> FromIterator<(K, Allowed<V>)> for Reqs<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, Allowed<V>)>>(iter: I) -> Self {
        let mut out = Self::new();
        for (key, allowed) in iter {
            out.add(key, allowed);
        }
        out
    }
}
