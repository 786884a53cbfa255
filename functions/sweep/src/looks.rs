//! Asks EC2 less often about a cluster without machines, because a tick waits longer for EC2 than for everything else (ADR 0071). If
//! neither table nor cluster has anything of ours, EC2 could only show a machine that both have lost.

use crate::templates::InUse;
use crate::{Freshness, ObjectsRead, Read, Rights, read_objects};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{NodeClassRecord, PoolHealth, Sighting, Stored};
use whittle_ports::{ClaimStore, Clock, HandleError, Listing, RecordReader};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// For how long EC2 is not asked again after it had nothing. Ticks come each minute: every fifth one asks, also if it comes early.
const REPEATED_AFTER: SignedDuration = SignedDuration::from_secs(270);

/// For each cluster without machines, when this execution environment last asked EC2, which had none either. A new environment asks again.
#[derive(Debug, Default)]
pub struct Looks(Mutex<BTreeMap<ClusterName, Timestamp>>);

impl Looks {
    /// No cluster is known to be without machines.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether EC2 had nothing of a cluster a short while ago. A time in the future comes from a wrong clock, and does not count.
    fn are_recent(&self, cluster: &ClusterName, now: Timestamp) -> bool {
        let seen = self.lock().get(cluster).copied();
        seen.is_some_and(|seen| seen <= now && now.duration_since(seen) < REPEATED_AFTER)
    }

    /// Makes the next tick ask EC2 about a cluster.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.lock().remove(cluster);
    }

    /// Remembers the result of a read that began at `at`.
    pub(crate) fn note(&self, cluster: &ClusterName, at: Timestamp, read: &Read, objects: &ClusterObjects) {
        let ec2_has_nothing = read.ec2_listed_all && read.instances.is_empty() && read.templates.is_empty();
        if ec2_has_nothing && has_nothing(&read.listing, &read.sightings, objects) {
            self.lock().insert(cluster.clone(), at);
        } else {
            self.forget(cluster);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether table and cluster have nothing that EC2 could contradict: no claim, no contradiction that was seen, no NodeClaim, and no Node of
/// a NodePool. What cannot be read may be one.
fn has_nothing(listing: &Listing, sightings: &[Stored<Sighting>], objects: &ClusterObjects) -> bool {
    listing.claims.is_empty() && listing.unreadable.is_empty() && sightings.is_empty() && shows_nothing(objects)
}

/// The same of a cluster's objects.
pub(crate) fn shows_nothing(objects: &ClusterObjects) -> bool {
    let is_ours = |node: &Node| [labels::NODE_POOL, labels::PROVISIONER_NAME].iter().any(|key| node.metadata.label(key).is_some());
    let is_whole = objects.unreadable.is_empty() && !objects.lacks_kind(NodeClaim::KIND) && !objects.lacks_kind(Node::KIND);
    is_whole && objects.node_claims.is_empty() && !objects.nodes.iter().any(is_ours)
}

/// Reads everything but EC2, if that had nothing a short while ago and there is still nothing that it could contradict. `None` if EC2 is to
/// be asked.
pub(crate) async fn read_without_ec2<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    freshness: Freshness,
    looks: &Looks,
) -> Result<Option<(Read, ObjectsRead)>, HandleError> {
    if !looks.are_recent(cluster, ports.clock().now()) {
        looks.forget(cluster);
        return Ok(None);
    }
    let store = ports.store();
    let (listing, seen, sightings, classes, health) = futures::join!(
        store.listing(cluster),
        read_objects(ports, cluster, freshness),
        store.read_all::<Sighting>(cluster),
        store.read_all::<NodeClassRecord>(cluster),
        store.read_all::<PoolHealth>(cluster),
    );
    let (listing, seen, sightings) = (listing?, seen?, sightings?);
    if !has_nothing(&listing, &sightings, &seen.objects) {
        looks.forget(cluster);
        return Ok(None);
    }
    let read = Read {
        instances: Vec::new(),
        statuses: Vec::new(),
        templates: Vec::new(),
        asked_ec2: false,
        ec2_listed_all: false,
        listing,
        in_use: InUse { is_whole: true, ..InUse::default() },
        sightings,
        classes: classes?.into_iter().map(|stored| stored.value).collect(),
        health: health?.into_iter().map(|stored| stored.value).collect(),
    };
    Ok(Some((read, seen)))
}
