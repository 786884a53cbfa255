//! Caches of a warm execution environment: decoded catalogs, and the instance types resolved from them.
//!
//! The key of an entry is everything that it depends on, so a hit always equals a new computation. The caches are bounded:
//! the oldest entry is evicted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use whittle_ec2::facts::{Catalog, CatalogError};
use whittle_model::scheduling::InstanceTypes;

/// The current catalog and the previous one, which an invocation may still use.
const CATALOGS_MAX: usize = 2;
/// Node classes of all clusters that one environment usually serves, with a few states of stock-outs each.
const CLASSES_MAX: usize = 32;

type Cache<K, V> = Mutex<VecDeque<(K, Arc<V>)>>;

static CATALOGS: Cache<Vec<u8>, Catalog> = Mutex::new(VecDeque::new());
static CLASSES: Cache<String, InstanceTypes> = Mutex::new(VecDeque::new());

/// The region's catalog that a blob holds.
pub fn catalog(blob: &[u8]) -> Result<Arc<Catalog>, CatalogError> {
    if let Some(known) = find(&CATALOGS, |key: &Vec<u8>| key.as_slice() == blob) {
        return Ok(known);
    }
    let decoded = Arc::new(Catalog::decode(blob)?);
    add(&CATALOGS, blob.to_vec(), &decoded, CATALOGS_MAX);
    Ok(decoded)
}

/// The instance types of a class. The key contains everything that they depend on.
pub(crate) fn instance_types(key: String, resolve: impl FnOnce() -> Option<InstanceTypes>) -> Option<Arc<InstanceTypes>> {
    if let Some(known) = find(&CLASSES, |known: &String| *known == key) {
        return Some(known);
    }
    let resolved = Arc::new(resolve()?);
    add(&CLASSES, key, &resolved, CLASSES_MAX);
    Some(resolved)
}

fn find<K, V>(cache: &Cache<K, V>, matches: impl Fn(&K) -> bool) -> Option<Arc<V>> {
    // A panic elsewhere cannot leave a partial entry, so a poisoned lock is safe to use.
    let entries = cache.lock().unwrap_or_else(PoisonError::into_inner);
    entries.iter().find(|(key, _)| matches(key)).map(|(_, value)| Arc::clone(value))
}

fn add<K, V>(cache: &Cache<K, V>, key: K, value: &Arc<V>, max: usize) {
    let mut entries = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if entries.len() >= max {
        entries.pop_front();
    }
    entries.push_back((key, Arc::clone(value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::catalog::InstanceType;

    #[test]
    fn a_second_request_with_the_same_key_hits_the_cache() {
        let types = || Some(InstanceTypes::from(vec![InstanceType { name: "m5.large".to_owned(), ..InstanceType::default() }]));
        let first = instance_types("a-key-of-this-test".to_owned(), types).unwrap();
        let second = instance_types("a-key-of-this-test".to_owned(), || panic!("it is cached")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert!(instance_types("another-key-of-this-test".to_owned(), || None).is_none(), "failures are not cached");
        assert!(instance_types("another-key-of-this-test".to_owned(), types).is_some());
    }

    #[test]
    fn errors_are_not_cached() {
        assert!(catalog(b"no catalog").is_err());
        assert!(catalog(b"no catalog").is_err());
    }
}
