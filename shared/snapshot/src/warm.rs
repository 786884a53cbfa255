//! Caches of a warm execution environment: decoded catalogs, and the instance types resolved from them.
//!
//! The key of an entry is everything that it depends on, so a hit always equals a new computation. The caches are bounded:
//! the oldest entry is evicted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use whittle_claims::NodeClassRecord;
use whittle_ec2::facts::{Catalog, CatalogError};
use whittle_model::scheduling::InstanceTypes;

/// The current catalog and the previous one, which an invocation may still use.
const CATALOGS_MAX: usize = 2;
/// Node classes of all clusters that one environment usually serves, with a few states of stock-outs each.
const CLASSES_MAX: usize = 32;

type Cache<K, V> = Mutex<VecDeque<(K, Arc<V>)>>;

static CATALOGS: Cache<Vec<u8>, Catalog> = Mutex::new(VecDeque::new());
static CLASSES: Cache<TypesKey, InstanceTypes> = Mutex::new(VecDeque::new());

/// What the instance types of a class depend on.
#[derive(Debug)]
pub(crate) struct TypesKey {
    /// Weak, so that it does not outlive its own cache; its address is not used again meanwhile.
    pub(crate) catalog: Weak<Catalog>,
    pub(crate) class: NodeClassRecord,
    /// Everything else, as text.
    pub(crate) rest: String,
}

impl TypesKey {
    /// Whether the types are those of a class in a catalog. It does not matter when the class was resolved, how much was free
    /// then, nor what it selects and does not use.
    fn is_of(&self, catalog: &Arc<Catalog>, record: &NodeClassRecord, rest: &str) -> bool {
        let NodeClassRecord {
            class,
            subnets,
            security_groups,
            amis,
            instance_profile,
            hash,
            problems,
            free_addresses: _,
            free_reserved: _,
            reservation_tenancies,
            unused_reservations: _,
            placement_group,
            ipv6,
            fence,
            resolved_at: _,
        } = &self.class;
        std::ptr::eq(self.catalog.as_ptr(), Arc::as_ptr(catalog))
            && self.rest == rest
            && *hash == record.hash
            && *class == record.class
            && (subnets, security_groups, amis) == (&record.subnets, &record.security_groups, &record.amis)
            && (instance_profile, problems) == (&record.instance_profile, &record.problems)
            && (placement_group, ipv6, fence) == (&record.placement_group, &record.ipv6, &record.fence)
            && *reservation_tenancies == record.reservation_tenancies
    }
}

/// The region's catalog that a blob holds. As long as it is cached, equal blobs give the same one.
pub fn catalog(blob: &[u8]) -> Result<Arc<Catalog>, CatalogError> {
    if let Some(known) = find(&CATALOGS, |key: &Vec<u8>| key.as_slice() == blob) {
        return Ok(known);
    }
    let decoded = Arc::new(Catalog::decode(blob)?);
    add(&CATALOGS, blob.to_vec(), &decoded, CATALOGS_MAX);
    Ok(decoded)
}

/// The instance types of a class; `rest` contains what they depend on besides class and catalog.
pub(crate) fn instance_types(
    catalog: &Arc<Catalog>,
    record: &NodeClassRecord,
    rest: String,
    resolve: impl FnOnce() -> Option<InstanceTypes>,
) -> Option<Arc<InstanceTypes>> {
    if let Some(known) = find(&CLASSES, |known: &TypesKey| known.is_of(catalog, record, &rest)) {
        return Some(known);
    }
    let resolved = Arc::new(resolve()?);
    let key = TypesKey { catalog: Arc::downgrade(catalog), class: record.clone(), rest };
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
    use whittle_units::Timestamp;

    fn record(name: &str) -> NodeClassRecord {
        serde_json::from_value(serde_json::json!({
            "class": {"metadata": {"name": name}, "spec": {}}, "subnets": [], "security_groups": [], "amis": [], "instance_profile": "p",
            "hash": "1", "problems": [], "resolved_at": "2026-01-05T09:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn a_second_request_for_the_same_class_hits_the_cache() {
        let named = |name: &str| InstanceType { name: name.to_owned(), ..InstanceType::default() };
        let types = || Some(InstanceTypes::from(vec![named("m5.large")]));
        let (catalog, other) = (Arc::new(Catalog::default()), Arc::new(Catalog::default()));
        let of = |catalog: &Arc<Catalog>, record: &NodeClassRecord, rest: &str| instance_types(catalog, record, rest.to_owned(), types);
        let class = record("a-class-of-this-test");
        let first = of(&catalog, &class, "").unwrap();
        let mut later = class.clone();
        later.resolved_at = Timestamp::MAX;
        later.free_addresses = [("subnet-1".to_owned(), 5)].into();
        later.free_reserved = [("cr-1".to_owned(), 5)].into();
        let second = instance_types(&catalog, &later, String::new(), || panic!("it is cached")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let mut changes = vec![class.clone(); 5];
        changes[0].instance_profile.push('x');
        changes[1].problems.push("x".to_owned());
        changes[2].class.metadata.name.push('x');
        changes[3].fence = Some(whittle_claims::FenceFacts::default());
        changes[4].ipv6 = true;
        let resolved = changes.iter().map(|changed| of(&catalog, changed, "").unwrap());
        let resolved = resolved.chain([of(&other, &class, "").unwrap(), of(&catalog, &class, "a stock-out").unwrap()]);
        assert!(resolved.into_iter().all(|types| !Arc::ptr_eq(&first, &types)), "each of them matters");
        assert!(instance_types(&catalog, &record("another"), String::new(), || None).is_none(), "failures are not cached");
        assert!(of(&catalog, &record("another"), "").is_some());
    }

    #[test]
    fn errors_are_not_cached() {
        assert!(catalog(b"no catalog").is_err());
        assert!(catalog(b"no catalog").is_err());
    }
}
