//! Label keys, label values and requirement sets as small numbers.

use super::hash::Map;
use super::ids::{Id as _, IdVec, Key, SetId, ValId};
use std::sync::Arc;
use whittle_model::requirements::{Allowed, Operator, Reqs, Value};

/// A label value, with its interpretation as an integer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Val {
    pub(crate) id: ValId,
    int: Option<i64>,
}

impl PartialEq for Val {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl Eq for Val {}
impl PartialOrd for Val {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Val {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.id.cmp(&other.id)
    }
}
impl std::hash::Hash for Val {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}
impl Value for Val {
    fn as_int(&self) -> Option<i64> {
        self.int
    }
}

/// Requirements over interned keys and values.
pub(crate) type Set = Reqs<Key, Val>;
/// Allowed interned values.
pub(crate) type Vals = Allowed<Val>;

/// Keys and values with their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NameTable {
    keys: Vec<String>,
    key_of: Map<String, Key>,
    vals: Vec<String>,
    val_of: Map<String, Val>,
}

/// The names behind the numbers: those of a list of instance types, which are shared, and additional ones.
#[derive(Debug, Default)]
pub(crate) struct Names {
    base: Arc<NameTable>,
    own: NameTable,
}

/// The numbers of one name table in another.
pub(crate) struct Renumbering {
    keys: IdVec<Key, Key>,
    vals: IdVec<ValId, Val>,
}

impl Renumbering {
    pub(crate) fn key(&self, key: Key) -> Key {
        self.keys[key]
    }
    pub(crate) fn vals(&self, vals: &Vals) -> Vals {
        vals.map(|val| self.vals[val.id])
    }
}

impl Names {
    /// Names that share `base` and its numbers.
    pub(crate) fn based_on(base: &Arc<NameTable>) -> Self {
        Self { base: Arc::clone(base), own: NameTable::default() }
    }

    /// The name table, to be shared as the base of others. There must be no base yet.
    pub(crate) fn into_table(self) -> NameTable {
        debug_assert!(self.base.keys.is_empty() && self.base.vals.is_empty(), "names on a base are no base");
        self.own
    }

    /// Adds all names of `table` and returns their numbers here, or `None` if the numbers are the same.
    pub(crate) fn adopt(&mut self, table: &Arc<NameTable>) -> Option<Renumbering> {
        if Arc::ptr_eq(&self.base, table) || (self.base.keys == table.keys && self.base.vals == table.vals) {
            return None;
        }
        let keys = table.keys.iter().map(|name| self.key(name)).collect();
        Some(Renumbering { keys, vals: table.vals.iter().map(|name| self.val(name)).collect() })
    }

    pub(crate) fn key(&mut self, name: &str) -> Key {
        if let Some(key) = self.known_key(name) {
            return key;
        }
        let key = Key::at(self.base.keys.len() + self.own.keys.len());
        self.own.keys.push(name.to_owned());
        self.own.key_of.insert(name.to_owned(), key);
        key
    }

    pub(crate) fn val(&mut self, name: &str) -> Val {
        if let Some(val) = self.base.val_of.get(name).or_else(|| self.own.val_of.get(name)) {
            return *val;
        }
        let id = ValId::at(self.base.vals.len() + self.own.vals.len());
        let val = Val { id, int: name.parse().ok() };
        self.own.vals.push(name.to_owned());
        self.own.val_of.insert(name.to_owned(), val);
        val
    }

    pub(crate) fn known_key(&self, name: &str) -> Option<Key> {
        self.base.key_of.get(name).or_else(|| self.own.key_of.get(name)).copied()
    }

    pub(crate) fn key_name(&self, key: Key) -> &str {
        let at = key.position();
        self.base.keys.get(at).unwrap_or_else(|| &self.own.keys[at - self.base.keys.len()])
    }

    pub(crate) fn val_name(&self, val: Val) -> &str {
        let at = val.id.position();
        self.base.vals.get(at).unwrap_or_else(|| &self.own.vals[at - self.base.vals.len()])
    }

    pub(crate) fn vals(&mut self, allowed: &Allowed<String>) -> Vals {
        allowed.map(|v| self.val(v))
    }

    pub(crate) fn set(&mut self, reqs: &Reqs<String, String>) -> Set {
        reqs.iter().map(|(key, allowed)| (self.key(key), self.vals(allowed))).collect()
    }

    /// Back to strings.
    pub(crate) fn spell(&self, set: &Set) -> Reqs<String, String> {
        set.iter().map(|(key, allowed)| (self.key_name(*key).to_owned(), self.spell_vals(allowed))).collect()
    }

    pub(crate) fn spell_vals(&self, allowed: &Vals) -> Allowed<String> {
        allowed.map(|v| self.val_name(*v).to_owned())
    }
}

/// Whose labels a requirement set describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LabelsOf {
    /// They are fixed.
    ExistingNode,
    /// Its type may define more, and its claim may get custom ones.
    NewNode,
}

/// All requirement sets seen so far, each stored once.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: IdVec<SetId, Set>,
    id_of: Map<Set, SetId>,
    merged: Map<(SetId, SetId, LabelsOf), Option<SetId>>,
    pinned: Map<(SetId, Key, Vals), SetId>,
}

/// How many labels the pods of a claim may constrain beyond its NodePool: a NodeClaim takes 100 requirements, and its claim has to fit into
/// an item of the table. Real pods constrain a handful.
pub(crate) const LABELS_MAX: usize = 64;
/// How many values these constraints may list.
pub(crate) const VALUES_MAX: usize = 3000;

impl Sets {
    /// Whether pods have added more to a NodePool's own requirements than a claim can hold.
    pub(crate) fn is_overgrown(&self, own: SetId, set: SetId) -> bool {
        let extent = |set: SetId| {
            let entries = self.get(set).iter();
            entries.fold((0, 0), |(keys, values), (_, allowed)| (keys + 1, values + allowed.listed().len()))
        };
        let ((keys, values), (own_keys, own_values)) = (extent(set), extent(own));
        keys > own_keys + LABELS_MAX || values > own_values + VALUES_MAX
    }

    pub(crate) fn id(&mut self, set: Set) -> SetId {
        if let Some(id) = self.id_of.get(&set) {
            return *id;
        }
        let id = self.sets.push(set.clone());
        self.id_of.insert(set, id);
        id
    }

    pub(crate) fn get(&self, id: SetId) -> &Set {
        &self.sets[id]
    }

    /// `offered` narrowed by `required`, or `None` if they are incompatible. For a new node, instance types define the keys
    /// for which `well_known` holds, and a `NotIn` requirement on any other key is satisfied by giving the claim such a label.
    pub(crate) fn merge(
        &mut self,
        offered: SetId,
        required: SetId,
        labels_of: LabelsOf,
        well_known: impl Fn(&Key) -> bool,
    ) -> Option<SetId> {
        if let Some(known) = self.merged.get(&(offered, required, labels_of)) {
            return *known;
        }
        let (a, b) = (self.get(offered), self.get(required));
        let is_negated = |key: &Key| b.get(key).is_some_and(|wanted| wanted.operator() == Operator::NotIn);
        let compatible = a.compatible(b, |key| labels_of == LabelsOf::NewNode && (well_known(key) || is_negated(key))).is_ok();
        let out = match (compatible, labels_of) {
            (false, _) => None,
            (true, LabelsOf::ExistingNode) => Some(offered),
            (true, LabelsOf::NewNode) => {
                let mut set = a.clone();
                set.add_all(b);
                Some(self.id(set))
            }
        };
        self.merged.insert((offered, required, labels_of), out);
        out
    }

    /// `set` with `key` narrowed to `allowed`.
    pub(crate) fn narrow(&mut self, set: SetId, key: Key, allowed: &Vals) -> SetId {
        let at = (set, key, allowed.clone());
        if let Some(id) = self.pinned.get(&at) {
            return *id;
        }
        let mut narrowed = self.get(set).clone();
        narrowed.add(key, allowed.clone());
        let id = self.id(narrowed);
        self.pinned.insert(at, id);
        id
    }
}
