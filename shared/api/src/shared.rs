//! Values that equal objects share: the pods of a workload have the same labels, containers and constraints, 100,000 times.

use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The name of the newtype that the deserializers see.
pub(crate) const NAME: &str = "$whittle::Shared";
/// Values of one type that a pool keeps; beyond that they are not shared.
const VALUES_MAX: usize = 1 << 16;

/// A collection behind a reference count. It is cloned when one of its holders changes it, so that it is a plain value for everybody.
/// An empty one needs no memory.
pub struct Shared<T>(Option<Arc<T>>);

/// A collection with a constant empty value.
pub trait Collection: Default + 'static {
    /// The empty collection.
    const EMPTY: &'static Self;
    /// Whether it is empty.
    fn has_none(&self) -> bool;
}

impl<T: 'static> Collection for Vec<T> {
    const EMPTY: &'static Self = &Self::new();
    fn has_none(&self) -> bool {
        self.is_empty()
    }
}

impl<K: 'static, V: 'static> Collection for BTreeMap<K, V> {
    const EMPTY: &'static Self = &Self::new();
    fn has_none(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Shared<T> {
    /// An empty collection.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }
}

impl<T: Collection + Clone> Shared<T> {
    /// The collection itself, cloned if others hold it.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0.map(Arc::unwrap_or_clone).unwrap_or_default()
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Collection> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Collection + Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: Collection + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Collection + PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => true,
            _ => **self == **other,
        }
    }
}

impl<T: Collection + Eq> Eq for Shared<T> {}

impl<T: Collection + PartialEq> PartialEq<T> for Shared<T> {
    fn eq(&self, other: &T) -> bool {
        **self == *other
    }
}

impl<T: PartialEq + 'static, const N: usize> PartialEq<[T; N]> for Shared<Vec<T>> {
    fn eq(&self, other: &[T; N]) -> bool {
        ***self == *other
    }
}

impl<T: Collection + PartialOrd> PartialOrd for Shared<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Collection + Ord> Ord for Shared<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: Collection + Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: Collection> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self((!value.has_none()).then(|| Arc::new(value)))
    }
}

impl<K: Ord + 'static, V: 'static, const N: usize> From<[(K, V); N]> for Shared<BTreeMap<K, V>> {
    fn from(entries: [(K, V); N]) -> Self {
        BTreeMap::from(entries).into()
    }
}

impl<I, T: Collection + FromIterator<I>> FromIterator<I> for Shared<T> {
    fn from_iter<S: IntoIterator<Item = I>>(items: S) -> Self {
        T::from_iter(items).into()
    }
}

impl<'a, T: Collection> IntoIterator for &'a Shared<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;
    fn into_iter(self) -> Self::IntoIter {
        (**self).into_iter()
    }
}

impl<'a, T: Collection + Clone> IntoIterator for &'a mut Shared<T>
where
    &'a mut T: IntoIterator,
{
    type Item = <&'a mut T as IntoIterator>::Item;
    type IntoIter = <&'a mut T as IntoIterator>::IntoIter;
    fn into_iter(self) -> Self::IntoIter {
        (**self).into_iter()
    }
}

impl<T: Collection + Clone + IntoIterator> IntoIterator for Shared<T> {
    type Item = T::Item;
    type IntoIter = T::IntoIter;
    fn into_iter(self) -> Self::IntoIter {
        self.into_inner().into_iter()
    }
}

impl<T: Collection + Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

/// A collection that can be deserialized into a [`Shared`].
pub trait Poolable: Collection + Hash + Eq + Send + Sync {}
impl<T: Collection + Hash + Eq + Send + Sync> Poolable for T {}

impl<'de, T: Poolable + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(NAME, SharedVisitor(PhantomData))
    }
}

/// Deserializes a collection that equal ones need not share.
///
/// # Errors The collection cannot be deserialized.
pub(crate) fn unpooled<'de, D: Deserializer<'de>, T: Collection + Deserialize<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
    T::deserialize(deserializer).map(Shared::from)
}

struct SharedVisitor<T>(PhantomData<T>);

impl<'de, T: Poolable + Deserialize<'de>> Visitor<'de> for SharedVisitor<T> {
    type Value = Shared<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a collection")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shared<T>, D::Error> {
        T::deserialize(deserializer).map(pooled)
    }

    /// From protobuf: the bytes that make the value what it is, then the value, which is not read if the bytes were seen before. Within a
    /// list of one kind, equal bytes of one type mean the same.
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shared<T>, A::Error> {
        let missing = || de::Error::custom("a shared value has two elements");
        let bytes = match access.next_element_seed(ByBytes(PhantomData))?.ok_or_else(missing)? {
            Ok(known) => return Ok(known),
            Err(new) => new,
        };
        let value = pooled(access.next_element::<T>()?.ok_or_else(missing)?);
        with_values::<T, _>(|values| {
            if values.by_bytes.len() < VALUES_MAX {
                values.by_bytes.insert(bytes, value.clone());
            }
        });
        Ok(value)
    }
}

/// The value that was read from the same bytes; the bytes, if there is none.
struct ByBytes<T>(PhantomData<T>);

impl<'de, T: Poolable> DeserializeSeed<'de> for ByBytes<T> {
    type Value = Result<Shared<T>, Box<[u8]>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<T: Poolable> Visitor<'_> for ByBytes<T> {
    type Value = Result<Shared<T>, Box<[u8]>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        let known = with_values::<T, _>(|values| values.by_bytes.get(bytes).cloned()).flatten();
        Ok(known.ok_or_else(|| bytes.into()))
    }
}

/// The value, or an equal one that is in the pool.
fn pooled<T: Poolable>(value: T) -> Shared<T> {
    if value.has_none() {
        return Shared::new();
    }
    let known = with_values::<T, _>(|values| values.all.get(&value).cloned()).flatten();
    if known.is_some() {
        return Shared(known);
    }
    let value = Arc::new(value);
    with_values::<T, _>(|values| {
        if values.all.len() < VALUES_MAX {
            values.all.insert(Arc::clone(&value));
        }
    });
    Shared(Some(value))
}

/// The values of one type.
struct Values<T> {
    all: HashSet<Arc<T>>,
    by_bytes: HashMap<Box<[u8]>, Shared<T>>,
}

/// Values that were deserialized so far, so that equal ones are shared. For one list: its objects are alike.
#[derive(Default)]
pub struct Pool(HashMap<TypeId, Box<dyn Any + Send>>);

thread_local! {
    static CURRENT: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

impl Pool {
    /// What `read` deserializes shares its values with what was read with this pool before.
    pub fn during<R>(&mut self, read: impl FnOnce() -> R) -> R {
        let outer = CURRENT.replace(Some(std::mem::take(self)));
        let result = read();
        *self = CURRENT.replace(outer).unwrap_or_default();
        result
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("types", &self.0.len()).finish()
    }
}

/// The values of a type in the current pool; `None` if there is no pool.
fn with_values<T: Poolable, R>(of: impl FnOnce(&mut Values<T>) -> R) -> Option<R> {
    CURRENT.with_borrow_mut(|pool| {
        let values = pool
            .as_mut()?
            .0
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Box::new(Values::<T> { all: HashSet::new(), by_bytes: HashMap::new() }));
        values.downcast_mut().map(of)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Labels = Shared<BTreeMap<String, String>>;

    fn is_same(a: &Labels, b: &Labels) -> bool {
        matches!((&a.0, &b.0), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
    }

    #[test]
    fn equal_values_are_shared_within_a_pool_and_changed_alone() {
        let texts = [r#"{"a":"1"}"#, r#"{"a":"2"}"#, r#"{ "a": "1" }"#, "{}"];
        let mut pool = Pool::default();
        let read = |text: &str| serde_json::from_str::<Labels>(text).unwrap();
        let [first, other, mut again, empty] = texts.map(|text| pool.during(|| read(text)));
        assert!(is_same(&first, &again) && !is_same(&first, &other) && empty.0.is_none());
        assert!(!is_same(&first, &read(texts[0])), "there is no pool");
        again.insert("b".to_owned(), "3".to_owned());
        assert_eq!((first.len(), again.len()), (1, 2));
        assert!(is_same(&first, &pool.during(|| read(texts[0]))), "the pool has the value as it was read");
        assert_ne!(first, again);
    }

    #[test]
    fn it_is_a_plain_value_for_everybody() {
        let mut list: Shared<Vec<u8>> = Shared::new();
        let [empty, other] = [vec![], vec![0]].map(Shared::from);
        assert!(list.is_empty() && list == empty && list < other);
        list.push(1);
        list.extend([2, 3]);
        assert_eq!(list, [1, 2, 3]);
        assert_eq!((&list).into_iter().copied().collect::<Shared<Vec<u8>>>(), list);
        assert_eq!(list.clone().into_iter().collect::<Vec<_>>(), vec![1, 2, 3]);
        assert_eq!(serde_json::to_string(&list).unwrap(), "[1,2,3]");
        assert_eq!(format!("{list:?}"), "[1, 2, 3]");
        let hash = |value: &dyn Fn(&mut std::hash::DefaultHasher)| {
            let mut hasher = std::hash::DefaultHasher::new();
            value(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&|hasher| list.hash(hasher)), hash(&|hasher| vec![1_u8, 2, 3].hash(hasher)));
    }
}
