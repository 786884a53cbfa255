//! The garbage collector: NodeClaims are deleted with the pool that owns them, and owners that wait for what they own.

use super::objects::key_of;
use super::{Cluster, NoSuchObject, Tabled};
use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_api::ObjectMeta;
use whittle_api::k8s::{DaemonSet, Deployment};
use whittle_api::karpenter::{NodeClaim, NodePool};

/// Keeps an owner until its dependents are deleted (`kubectl delete --cascade=foreground`).
const FOREGROUND: &str = "foregroundDeletion";

impl Cluster {
    /// Deletes an object in the foreground: it stays, marked, until the last NodeClaim or pod that it owns is deleted.
    pub fn remove_in_foreground<T: Tabled>(&mut self, key: &str, now: Timestamp) -> Result<(), NoSuchObject> {
        self.objects.change::<T>(key, |owner| {
            let finalizers = &mut owner.meta_mut().finalizers;
            if !finalizers.iter().any(|finalizer| finalizer == FOREGROUND) {
                finalizers.push(FOREGROUND.to_owned());
            }
        });
        self.remove::<T>(key, now)
    }

    /// Deletes the claims of pools that are deleted or being deleted in the foreground, and finalizes pools without claims.
    pub(super) fn collect_garbage(&mut self, now: Timestamp) {
        let waiting = |pool: &NodePool| waits_for_owned(&pool.metadata);
        let owners: BTreeMap<String, bool> =
            self.objects.node_pools.values().map(|pool| (pool.metadata.uid.clone(), waiting(pool))).collect();
        let of_gone = |claim: &&NodeClaim| {
            let mut uids = claim.metadata.owner_references.iter().map(|owner| &owner.uid).filter(|uid| !uid.is_empty());
            uids.any(|uid| owners.get(uid).copied().unwrap_or(true))
        };
        let claims: Vec<String> = self.objects.node_claims.values().filter(of_gone).map(|claim| claim.metadata.name.clone()).collect();
        for claim in claims {
            self.objects.delete::<NodeClaim>(&claim, now);
        }
        let owned = |pool: &NodePool| {
            let mut owners = self.objects.node_claims.values().flat_map(|claim| &claim.metadata.owner_references);
            owners.any(|owner| owner.uid == pool.metadata.uid)
        };
        let free: Vec<String> = self.objects.node_pools.values().filter(|pool| waiting(pool) && !owned(pool)).map(key_of).collect();
        for key in free {
            self.objects.change::<NodePool>(&key, |pool| pool.metadata.finalizers.retain(|one| one != FOREGROUND));
        }
    }

    /// Workloads that wait for their pods go when the last has ended.
    pub(super) fn finalize_workloads(&mut self) {
        self.finalize_owners::<Deployment>();
        self.finalize_owners::<DaemonSet>();
    }

    fn finalize_owners<T: Tabled>(&mut self) {
        let waiting = T::table(&self.objects).iter().filter(|(_, owner)| waits_for_owned(owner.meta()));
        let free: Vec<String> = waiting.filter(|(key, _)| self.pods_of(T::KIND, key).is_empty()).map(|(key, _)| key.clone()).collect();
        for key in free {
            self.objects.change::<T>(&key, |owner| owner.meta_mut().finalizers.retain(|one| one != FOREGROUND));
        }
    }
}

/// Whether an object that is being deleted stays until what it owns is gone.
fn waits_for_owned(meta: &ObjectMeta) -> bool {
    meta.is_deleting() && meta.finalizers.iter().any(|one| one == FOREGROUND)
}
