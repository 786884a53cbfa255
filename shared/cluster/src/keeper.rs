//! What an execution environment keeps of its clusters between invocations, within a bound.

use crate::kept::KeptKinds;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use whittle_units::ClusterName;

/// Objects that are kept of all clusters together: of 150,000 pods, about 300 MB.
const OBJECTS_MAX: usize = 150_000;

/// The kept objects of all clusters.
#[derive(Default)]
pub(crate) struct Keeper {
    clusters: Mutex<Clusters>,
    /// Lists of a kind that were read as a whole, and those that were caught up.
    pub(crate) whole: AtomicU64,
    pub(crate) caught_up: AtomicU64,
}

#[derive(Default)]
struct Clusters {
    by_name: BTreeMap<ClusterName, Entry>,
    /// Counts uses, to know which came last.
    uses: u64,
}

#[derive(Default)]
struct Entry {
    kinds: Arc<KeptKinds>,
    /// Objects by kind.
    sizes: BTreeMap<&'static str, usize>,
    used: u64,
}

impl Clusters {
    fn total(&self) -> usize {
        self.by_name.values().flat_map(|entry| entry.sizes.values()).sum()
    }
}

impl Keeper {
    /// What is kept of a cluster.
    pub(crate) fn of(&self, cluster: &ClusterName) -> Arc<KeptKinds> {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.uses += 1;
        let used = clusters.uses;
        let entry = clusters.by_name.entry(cluster.clone()).or_default();
        entry.used = used;
        Arc::clone(&entry.kinds)
    }

    /// Notes how many objects of a kind are to be kept of a cluster; returns whether they may be. Other clusters, those that were
    /// not used for longest first, are forgotten for it.
    pub(crate) fn admits(&self, cluster: &ClusterName, kind: &'static str, objects: usize) -> bool {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = clusters.by_name.entry(cluster.clone()).or_default();
        entry.sizes.insert(kind, objects);
        if entry.sizes.values().sum::<usize>() > OBJECTS_MAX {
            entry.sizes.remove(kind);
            return false;
        }
        while clusters.total() > OBJECTS_MAX {
            let others = clusters.by_name.iter().filter(|(name, _)| *name != cluster);
            let Some(last) = others.min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone()) else {
                clusters.by_name.entry(cluster.clone()).or_default().sizes.remove(kind);
                return false;
            };
            clusters.by_name.remove(&last);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_a_bound_and_the_cluster_in_use_comes_first() {
        let keeper = Keeper::default();
        let (a, b, c): (ClusterName, ClusterName, ClusterName) = ("a".into(), "b".into(), "c".into());
        let kept = |name: &ClusterName| keeper.clusters.lock().expect("the lock is not poisoned").by_name.contains_key(name);
        for (cluster, pods) in [(&a, 60_000), (&b, 60_000)] {
            let _ = keeper.of(cluster);
            assert!(keeper.admits(cluster, "pods", pods));
        }
        let _ = keeper.of(&a);
        let _ = keeper.of(&c);
        assert!(keeper.admits(&c, "pods", 80_000));
        assert_eq!((kept(&a), kept(&b), kept(&c)), (true, false, true), "b was not used for longest");
        assert!(keeper.admits(&a, "pods", 70_000), "the same kind again counts once");
        assert!(!keeper.admits(&a, "pods", OBJECTS_MAX + 1), "a cluster that is too large is not kept");
        let total = keeper.clusters.lock().expect("the lock is not poisoned").total();
        assert_eq!((kept(&c), total), (true, 80_000), "and no other is forgotten for it");
    }
}
