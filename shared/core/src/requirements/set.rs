//! Requirements on many labels, and when an asking side and an offering side can agree.

use super::allowed::{Allowed, Value};

/// Label key to allowed values, at most one entry per key, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reqs<K, V> {
    entries: Vec<(K, Allowed<V>)>,
}

/// Why an asking side cannot be served by an offering one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict<K> {
    /// A key that the offering side does not define and that nothing will define later.
    Undefined(K),
    /// Keys whose values on the two sides have nothing in common.
    Disjoint(Vec<K>),
}

impl<K, V> Default for Reqs<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Ord + Clone, V: Value> Reqs<K, V> {
    /// No requirement at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The values allowed for `key`, if it is mentioned.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Allowed<V>>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.entries.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok().map(|at| &self.entries[at].1)
    }

    /// Narrows `key` to what it allowed before and `allowed`.
    pub fn add(&mut self, key: K, allowed: Allowed<V>) {
        match self.entries.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => self.entries[at].1 = allowed.intersect(&self.entries[at].1),
            Err(at) => self.entries.insert(at, (key, allowed)),
        }
    }

    /// Sets `key` to exactly `allowed`, whatever it was.
    pub fn replace(&mut self, key: K, allowed: Allowed<V>) {
        match self.entries.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => self.entries[at].1 = allowed,
            Err(at) => self.entries.insert(at, (key, allowed)),
        }
    }

    /// Forgets `key`.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<Allowed<V>>
    where
        K: std::borrow::Borrow<Q>,
    {
        let at = self.entries.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        Some(self.entries.remove(at).1)
    }

    /// Narrows by every entry of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for (key, allowed) in &other.entries {
            self.add(key.clone(), allowed.clone());
        }
    }

    /// The entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Allowed<V>)> {
        self.entries.iter().map(|(key, allowed)| (key, allowed))
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether some key demands a number of distinct values.
    #[must_use]
    pub fn has_min_values(&self) -> bool {
        self.entries.iter().any(|(_, allowed)| allowed.min_values().is_some())
    }

    /// Whether this side, which offers, can serve `asked`. A key that this side does not define is fine if absence is,
    /// or if `may_be_undefined` says that something else (the instance type) will define it.
    ///
    /// # Errors
    /// The first undefined key, or all keys with nothing in common.
    pub fn compatible(&self, asked: &Self, may_be_undefined: impl Fn(&K) -> bool) -> Result<(), Conflict<K>> {
        for (key, wanted) in &asked.entries {
            if wanted.is_contradiction() {
                return Err(Conflict::Disjoint(vec![key.clone()]));
            }
            if may_be_undefined(key) || wanted.allows_absence() || self.get(key).is_some() {
                continue;
            }
            return Err(Conflict::Undefined(key.clone()));
        }
        self.intersects(asked)
    }

    /// Whether all keys that both sides mention have something in common.
    ///
    /// # Errors
    /// The keys that have not.
    pub fn intersects(&self, asked: &Self) -> Result<(), Conflict<K>> {
        let mut apart = Vec::new();
        for (key, wanted) in &asked.entries {
            let Some(offered) = self.get(key) else { continue };
            let both_may_be_absent = wanted.allows_absence() && offered.allows_absence();
            if !both_may_be_absent && !offered.overlaps(wanted) {
                apart.push(key.clone());
            }
        }
        if apart.is_empty() { Ok(()) } else { Err(Conflict::Disjoint(apart)) }
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
