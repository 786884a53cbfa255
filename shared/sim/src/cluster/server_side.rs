//! Server-side apply of NodeClaims: fields that were applied before and are left out now are removed, and those of others stay.

use super::Cluster;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions;
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus};

/// Which entries of an object's metadata were applied last: managed fields, as far as they matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managed {
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
    finalizers: BTreeSet<String>,
    owners: BTreeSet<String>,
}

impl Managed {
    fn of(applied: &NodeClaim) -> Self {
        let meta = &applied.metadata;
        Self {
            labels: meta.labels.keys().cloned().collect(),
            annotations: meta.annotations.keys().cloned().collect(),
            finalizers: meta.finalizers.iter().cloned().collect(),
            owners: meta.owner_references.iter().map(|owner| owner.uid.clone()).collect(),
        }
    }
}

/// The entries of others, and those that are applied now.
fn merge(known: &mut BTreeMap<String, String>, applied: &BTreeMap<String, String>, before: &BTreeSet<String>) {
    known.retain(|key, _| !before.contains(key));
    known.extend(applied.clone());
}

impl Cluster {
    /// Creates a mirror, or updates metadata and status (unless it is empty) of the NodeClaim of its name.
    pub(crate) fn apply_mirror(&mut self, mirror: &NodeClaim, now: Timestamp) {
        let key = mirror.metadata.key();
        let mut applied = mirror.clone();
        applied.metadata.deletion_timestamp = None;
        // The garbage collector would take an owner without uid for one that is gone.
        applied.metadata.owner_references.retain(|owner| !owner.uid.is_empty());
        let fields = Managed::of(&applied);
        let Some(uid) = self.objects.get::<NodeClaim>(&key).map(|known| known.metadata.uid.clone()) else {
            conditions::observe(&mut applied.status.conditions, Some(1));
            self.objects.create(applied, now);
            let made = self.objects.get::<NodeClaim>(&key).map(|made| made.metadata.uid.clone()).unwrap_or_default();
            self.forget_managed();
            self.managed.insert(made, fields);
            return;
        };
        let before = self.managed.insert(uid, fields).unwrap_or_default();
        self.objects.change::<NodeClaim>(&key, |known| {
            let meta = &mut known.metadata;
            merge(&mut meta.labels, &applied.metadata.labels, &before.labels);
            merge(&mut meta.annotations, &applied.metadata.annotations, &before.annotations);
            let wanted = &applied.metadata.finalizers;
            meta.finalizers.retain(|held| !before.finalizers.contains(held) || wanted.contains(held));
            // Nothing is added to an object that is being deleted.
            if !meta.is_deleting() {
                let missing: Vec<String> = wanted.iter().filter(|one| !meta.finalizers.contains(one)).cloned().collect();
                meta.finalizers.extend(missing);
            }
            meta.owner_references.retain(|owner| !before.owners.contains(&owner.uid));
            for owner in applied.metadata.owner_references.iter() {
                meta.owner_references.retain(|known| known.uid != owner.uid);
                meta.owner_references.push(owner.clone());
            }
            if applied.status != NodeClaimStatus::default() {
                known.status = applied.status;
            }
            conditions::observe(&mut known.status.conditions, known.metadata.generation);
        });
    }

    /// Drops what is known of objects that are gone, now and then.
    fn forget_managed(&mut self) {
        const SLACK: usize = 64;
        let claims = &self.objects.node_claims;
        if self.managed.len() > 2 * claims.len() + SLACK {
            let uids: BTreeSet<&str> = claims.values().map(|claim| claim.metadata.uid.as_str()).collect();
            self.managed.retain(|uid, _| uids.contains(uid.as_str()));
        }
    }
}
