//! How often EC2 is asked for a cluster that has nothing: a tick waits longer for EC2 than for everything else (ADR 0071). Where neither
//! the table nor the cluster shows anything of ours, only a machine that both have forgotten could run.

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

/// For how long a look that found nothing is not repeated: EC2 is asked by each fifth tick of a minute, also if one comes early.
const REPEATED_AFTER: SignedDuration = SignedDuration::from_secs(270);

/// When this execution environment last saw that a cluster has nothing, in EC2 neither. One that forgets asks EC2 again.
#[derive(Debug, Default)]
pub struct Looks(Mutex<BTreeMap<ClusterName, Timestamp>>);

impl Looks {
    /// Nothing was looked at yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether EC2 had nothing of a cluster a short while ago. A clock that was set back says nothing.
    fn are_recent(&self, cluster: &ClusterName, now: Timestamp) -> bool {
        let seen = self.lock().get(cluster).copied();
        seen.is_some_and(|seen| seen <= now && now.duration_since(seen) < REPEATED_AFTER)
    }

    /// What is known of a cluster is no longer believed.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.lock().remove(cluster);
    }

    /// Notes what a look showed that began at this time.
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
