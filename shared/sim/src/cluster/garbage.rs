//! The garbage collector: NodeClaims are deleted with the pool that owns them.

use super::Cluster;
use super::objects::key_of;
use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_api::karpenter::{NodeClaim, NodePool};

/// Keeps an owner until its dependents are deleted (`kubectl delete --cascade=foreground`).
const FOREGROUND: &str = "foregroundDeletion";

impl Cluster {
    /// Deletes a pool in the foreground: it stays, marked, until its last NodeClaim is deleted.
    pub fn remove_pool_in_foreground(&mut self, key: &str, now: Timestamp) -> Result<(), super::NoSuchObject> {
        self.objects.change::<NodePool>(key, |pool| {
            if !pool.metadata.finalizers.iter().any(|finalizer| finalizer == FOREGROUND) {
                pool.metadata.finalizers.push(FOREGROUND.to_owned());
            }
        });
        self.remove::<NodePool>(key, now)
    }

    /// Deletes the claims of pools that are deleted or being deleted in the foreground, and finalizes pools without claims.
    pub(super) fn collect_garbage(&mut self, now: Timestamp) {
        let waiting = |pool: &NodePool| pool.metadata.is_deleting() && pool.metadata.finalizers.iter().any(|one| one == FOREGROUND);
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
}
