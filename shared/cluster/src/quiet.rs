//! What is seen of a cluster in which nothing happens: what is kept, if nothing says that it is out of date (ADR 0059).

use crate::Clusters;
use crate::catch_up::All;
use crate::connection::ApiRequest;
use crate::kept::{Followed, Seldom};
use crate::pages::{Consistency, parse};
use crate::path;
use futures::try_join;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::k8s::{Node, NodeMetadata, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget};
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_ports::{ClusterAccess, ClusterError, confirmed_for, kept_for};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// What a look reads each time.
pub(crate) struct Often {
    pub(crate) objects: ClusterObjects,
    /// Pods and their budgets are those of the look before.
    pub(crate) is_unchanged: bool,
}

/// Everything that a decision needs.
pub(crate) fn together(nodes: All<Node>, seldom: ClusterObjects, often: ClusterObjects) -> ClusterObjects {
    let mut unreadable = often.unreadable;
    unreadable.extend(seldom.unreadable);
    ClusterObjects {
        nodes: nodes.into_items(&mut unreadable).into_inner(),
        daemon_sets: seldom.daemon_sets,
        namespaces: seldom.namespaces,
        priority_classes: seldom.priority_classes,
        volume_claims: seldom.volume_claims,
        volumes: seldom.volumes,
        storage_classes: seldom.storage_classes,
        csi_nodes: seldom.csi_nodes,
        unreadable,
        ..often
    }
}

impl<A: ClusterAccess> Clusters<A> {
    /// Pods, their budgets, and what users write for Whittle.
    pub(crate) async fn read_often(&self, cluster: &ClusterName) -> Result<Often, ClusterError> {
        let newest = Consistency::Newest;
        let (pods, budgets, node_overlays, capacity_buffers, mut objects) = try_join!(
            self.followed::<Pod>(cluster),
            self.followed::<PodDisruptionBudget>(cluster),
            // Custom resources are not cached right after their definition, and are few.
            self.list(cluster, newest, None),
            self.list(cluster, newest, None),
            self.read_karpenter(cluster),
        )?;
        let is_unchanged = pods.is_unchanged && budgets.is_unchanged;
        let unreadable = &mut objects.unreadable;
        objects.pods = pods.into_items(unreadable);
        objects.disruption_budgets = budgets.into_items(unreadable).into_inner();
        objects.node_overlays = node_overlays.into_items(unreadable);
        objects.capacity_buffers = capacity_buffers.into_items(unreadable);
        Ok(Often { objects, is_unchanged })
    }

    /// What is not followed, and is no reason for a look of its own. Attached volumes are not among it: the drain of a node needs its own,
    /// and a decision none of the tens of thousands in a large cluster.
    pub(crate) async fn read_seldom(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let (newest, cached) = (Consistency::Newest, Consistency::Cached);
        let (daemon_sets, namespaces, priority_classes, volume_claims, volumes, storage_classes, csi_nodes) = try_join!(
            self.list(cluster, cached, None),
            self.list(cluster, cached, None),
            self.list(cluster, cached, None),
            // A volume claim that was just bound determines a zone.
            self.list::<PersistentVolumeClaim>(cluster, newest, None),
            self.list::<PersistentVolume>(cluster, newest, None),
            self.list(cluster, cached, None),
            self.followed(cluster),
        )?;
        let mut unreadable = Vec::new();
        Ok(ClusterObjects {
            daemon_sets: daemon_sets.into_items(&mut unreadable),
            namespaces: namespaces.into_items(&mut unreadable),
            priority_classes: priority_classes.into_items(&mut unreadable),
            volume_claims: volume_claims.into_items(&mut unreadable).into(),
            volumes: volumes.into_items(&mut unreadable).into(),
            storage_classes: storage_classes.into_items(&mut unreadable),
            csi_nodes: csi_nodes.into_items(&mut unreadable).into_inner(),
            unreadable,
            ..ClusterObjects::default()
        })
    }

    /// A look that fails may have been told of pods already, which nobody tells again: what is kept would seem to be up to date.
    pub(crate) async fn forget_seldom(&self, cluster: &ClusterName) {
        *self.keeper.of(cluster).seldom.lock().await = None;
    }

    /// Keeps what was read at this time for quiet looks.
    pub(crate) async fn keep_seldom(&self, cluster: &ClusterName, seen_at: Timestamp, read: &ClusterObjects) {
        let Ok(endpoint) = self.endpoint(cluster).await else { return };
        let volumes = read.volume_claims.len() + read.volumes.len() + read.csi_nodes.len();
        let others = read.daemon_sets.len() + read.namespaces.len() + read.priority_classes.len() + read.storage_classes.len();
        // What cannot be read now may be readable at any time.
        let is_kept = read.unreadable.is_empty() && self.keeper.admits(cluster, "seldom", volumes + others);
        let seldom = is_kept.then(|| Seldom { objects: Arc::new(read.clone()), seen_at, endpoint });
        *self.keeper.of(cluster).seldom.lock().await = seldom;
    }

    /// Everything that a decision needs, where what is kept will do.
    pub(crate) async fn read_all_kept(&self, cluster: &ClusterName) -> Result<Option<ClusterObjects>, ClusterError> {
        let Some(nodes) = self.kept_nodes(cluster).await? else { return Ok(None) };
        // Taken out: whatever changed meanwhile is known from then on, so that it cannot be asked for again.
        let Some(seldom) = self.take_seldom(cluster, nodes.items.len()).await? else { return Ok(None) };
        let often = self.read_often(cluster).await?;
        if !often.is_unchanged {
            return Ok(None);
        }
        let objects = ClusterObjects::clone(&seldom.objects);
        *self.keeper.of(cluster).seldom.lock().await = Some(seldom);
        Ok(Some(together(nodes, objects, often.objects)))
    }

    /// Nodes and what is Karpenter's, where the Nodes that are kept will do.
    pub(crate) async fn read_nodes_kept(&self, cluster: &ClusterName) -> Result<Option<ClusterObjects>, ClusterError> {
        let Some(nodes) = self.kept_nodes(cluster).await? else { return Ok(None) };
        let objects = self.read_karpenter(cluster).await?;
        Ok(Some(together(nodes, ClusterObjects::default(), objects)))
    }

    /// The Nodes that are kept, if they are not too old, there are still as many, and nobody has changed their metadata.
    async fn kept_nodes(&self, cluster: &ClusterName) -> Result<Option<All<Node>>, ClusterError> {
        let (endpoint, now) = (self.endpoint(cluster).await?, self.clock.now());
        let kinds = self.keeper.of(cluster);
        let kept =
            Node::slot(&kinds).lock().await.as_ref().filter(|kept| kept.endpoint == *endpoint && kept.unreadable.is_empty()).map(|kept| {
                let all = All { items: kept.items.clone(), unreadable: Vec::new(), is_unchanged: true };
                (all, kept.version, [kept.seen_at, kept.confirmed_at])
            });
        let Some((nodes, version, [seen_at, confirmed_at])) = kept else { return Ok(None) };
        // One that has stopped, or is on its way out, is not quiet: it may serve again, and counts in budgets.
        if !nodes.items.iter().all(Node::serves) {
            return Ok(None);
        }
        let count = nodes.items.len();
        if !is_younger(seen_at, now, kept_for(count)) {
            return Ok(None);
        }
        if is_younger(confirmed_at, now, confirmed_for(count)) {
            let newest = self.newest::<Node>(cluster).await;
            let is_same = newest.is_ok_and(|newest| newest.count == count && newest.version >= version);
            return Ok(is_same.then_some(nodes));
        }
        let is_same = self.node_metadata(cluster).await.is_ok_and(|metadata| has_metadata(&nodes, &metadata));
        if !is_same {
            return Ok(None);
        }
        if let Some(kept) = Node::slot(&kinds).lock().await.as_mut().filter(|kept| kept.version == version) {
            kept.confirmed_at = now;
        }
        Ok(Some(nodes))
    }

    /// The metadata of all Nodes: a third of their whole list, compressed.
    async fn node_metadata(&self, cluster: &ClusterName) -> Result<Vec<NodeMetadata>, ClusterError> {
        let unavailable = |message| ClusterError::Unavailable { cluster: cluster.clone(), what: "metadata of Nodes".to_owned(), message };
        let request = ApiRequest::get(format!("{}?resourceVersion=0", path::collection::<NodeMetadata>(""))).for_metadata_in_protobuf();
        let list = self.send_bytes(cluster, &request).await.map_err(|failed| failed.into_error(cluster, "metadata of Nodes"))?;
        Ok(parse::<NodeMetadata>(&list, cluster).map_err(unavailable)?.into_items(&mut Vec::new()))
    }

    async fn take_seldom(&self, cluster: &ClusterName, nodes: usize) -> Result<Option<Seldom>, ClusterError> {
        let (endpoint, now) = (self.endpoint(cluster).await?, self.clock.now());
        let taken = self.keeper.of(cluster).seldom.lock().await.take();
        Ok(taken.filter(|kept| kept.endpoint == endpoint && is_younger(kept.seen_at, now, kept_for(nodes))))
    }
}

fn is_younger(since: Timestamp, now: Timestamp, than: SignedDuration) -> bool {
    let age = now.duration_since(since);
    !age.is_negative() && age < than
}

/// Whether these are the Nodes, and what users and controllers write into their metadata.
fn has_metadata(nodes: &All<Node>, metadata: &[NodeMetadata]) -> bool {
    let kept: BTreeMap<&str, &ObjectMeta> = nodes.items.iter().map(|node| (node.metadata.name.as_str(), &node.metadata)).collect();
    let is_same = |new: &ObjectMeta, old: &ObjectMeta| {
        let is_that = new.uid == old.uid && new.deletion_timestamp == old.deletion_timestamp;
        is_that && new.labels == old.labels && new.annotations == old.annotations && new.finalizers == old.finalizers
    };
    let is_kept = |new: &ObjectMeta| kept.get(new.name.as_str()).is_some_and(|old| is_same(new, old));
    metadata.len() == kept.len() && metadata.iter().all(|new| is_kept(&new.metadata))
}
