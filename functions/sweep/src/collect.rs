//! Machines without a claim: those that serve get theirs back, orphans get one that is being deleted, so that `terminate` drains them.

use crate::Rights;
use crate::adopt::{Adoptable, Place};
use crate::execute::Executor;
use std::sync::Arc;
use whittle_api::labels;
use whittle_api::runtime::is_subdomain;
use whittle_claims::{Claim, ClaimKey, ClaimSpec, DecisionKind, Deletion, DeletionReason, Doorbell, Event, Lease, Phase, step};
use whittle_ec2::facts::Catalog;
use whittle_ec2::instance::Instance;
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, HandleError, InstanceTags, Leases, ObjectKind, Presence, Queues, RegionStore, Report,
    machine_to_terminate, metrics, release_lease, save, unless_conflict,
};
use whittle_snapshot::warm;
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

/// Creating one claim takes a moment under the cluster's lease.
pub(crate) const CLAIM_LEASE: SignedDuration = SignedDuration::from_secs(10);

/// Restoring claims takes one lease; what takes longer is left to the next sweep.
pub(crate) const ADOPTION_LEASE: SignedDuration = SignedDuration::from_secs(30);

/// The value of the launch tag on instances that Whittle did not start: `terminate` may not terminate any without that tag.
const ADOPTED: &str = "adopted";

/// Current prices, as far as known.
pub(crate) async fn prices<P: Rights>(ports: P) -> Option<Arc<Catalog>> {
    let blob = ports.store().catalog().await.ok().flatten()?;
    warm::catalog(&blob.value).ok()
}

/// Whether the API server has a Node of this name, and it is that of the machine.
pub(crate) async fn is_own_node<P: Rights>(ports: P, cluster: &ClusterName, name: &str, provider_id: &str) -> Result<bool, HandleError> {
    if !is_subdomain(name) {
        return Ok(false); // no Node is called so, and a request for it might fail for ever
    }
    let found = ports.cluster().look_up(cluster, ObjectKind::Node, name).await?;
    Ok(matches!(&found, Presence::Exists { provider_id: known, .. } if known == provider_id))
}

impl<P: Rights> Executor<'_, P> {
    /// Restores the claim of a serving machine: the one that waits for it, one in place of an ended one of the same name, or one
    /// under a new name.
    pub(crate) async fn adopt_machine(
        &self,
        lease: &Lease,
        found: &Adoptable,
        prices: Option<&Catalog>,
        report: &mut Report,
    ) -> Result<(), HandleError> {
        let ports = self.ports;
        let id = &found.instance.id;
        if found.instance.tags.get(labels::TAG_LAUNCH).is_none_or(String::is_empty) {
            // Before the claim: without permission to terminate its instance, a claim would drain it and get stuck.
            ports.cloud().tag(id, &[(labels::TAG_LAUNCH.to_owned(), ADOPTED.to_owned())]).await?;
        }
        let mut found = found.clone();
        // Lists may lack the Node that the NodeClaim names, and whoever may write its status may name any.
        if let Some(object) = found.object.as_mut().filter(|object| found.node.is_none() && !object.status.node_name.is_empty())
            && !is_own_node(ports, &lease.cluster, &object.status.node_name, found.instance.provider_id().as_str()).await?
        {
            object.status.node_name.clear();
        }
        let now = ports.clock().now();
        let named = self.index.claim(&found.name());
        let place = found.place(named.map(|claim| &claim.value));
        let name = if named.is_some() && place == Place::New { found.own_name() } else { found.name() };
        let key = ClaimKey { cluster: lease.cluster.clone(), name: name.clone() };
        let fresh = || found.claim(key.clone(), ports.clock().unique(), self.index.objects, prices, now);
        let kept = match named.filter(|_| place != Place::New) {
            Some(claim) if place == Place::Waiting => ports.store().update(&found.join(&claim.value, prices, now)?, claim.revision).await,
            Some(claim) => ports.store().update(&fresh()?, claim.revision).await,
            None => ports.store().create(lease, &fresh()?).await,
        };
        if unless_conflict(kept)?.is_none() {
            return Ok(()); // the next sweep continues
        }
        report.count("adopted");
        let nodepool = found.instance.tags.get(labels::NODE_POOL).map_or("", String::as_str);
        report.metric(metrics::NodeClaimsAdopted { nodepool });
        report.decide(now, DecisionKind::Kept, format!("nodeclaim/{name}"), format!("adopted instance {id}, which serves without a claim"));
        Ok(())
    }

    /// Gives an orphan a claim that is being deleted: the one that it was launched for, if that has ended without it, otherwise
    /// a new one.
    pub(crate) async fn collect(&self, instance: &Instance, report: &mut Report) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let tagged = instance.tags.get(labels::TAG_NODE_CLAIM).and_then(|name| self.index.claim_named(name));
        let machine = machine_to_terminate(instance);
        let name = if let Some(claim) = tagged.filter(|claim| !claim.value.is_live()) {
            let next = step(&claim.value, &Event::FleetAnswered(machine), now)?;
            if next.machine().is_none() {
                // By its claim this machine has ended, but EC2 shows it running: a new claim terminates it again.
                self.adopt_orphan(instance, now).await?
            } else {
                save(self.ports.store(), claim, next).await?;
                claim.value.key.name.clone()
            }
        } else {
            self.adopt_orphan(instance, now).await?
        };
        let message = format!("instance {} belongs to no claim and was seen twice", instance.id);
        report.decide(now, DecisionKind::Collected, format!("nodeclaim/{name}"), message);
        report.count("collected");
        self.ports.queues().send_now(Doorbell::Terminate { cluster: self.cluster.clone(), claim: name }).await?;
        Ok(())
    }

    /// A claim for a machine that has none; it is created as draining.
    async fn adopt_orphan(&self, instance: &Instance, now: Timestamp) -> Result<ClaimName, HandleError> {
        let name = ClaimName::new(format!("orphan-{}", instance.id));
        let spec = ClaimSpec { node_pool: instance.tags.get(labels::NODE_POOL).cloned().unwrap_or_default(), ..ClaimSpec::default() };
        let mut claim =
            Claim::planned(ClaimKey { cluster: self.cluster.clone(), name: name.clone() }, self.ports.clock().unique(), spec, now);
        let machine = machine_to_terminate(instance);
        let node = self.index.nodes_at(machine.provider_id.as_str()).first();
        claim.phase = Phase::Draining { machine, node_name: node.map(|node| node.metadata.name.clone()), since: now };
        claim.deletion = Some(Deletion::without_deadline(DeletionReason::RolledBack, now, "the instance belonged to no claim"));
        let lease: Lease = self.ports.store().acquire(self.cluster, &self.ports.clock().unique(), now, CLAIM_LEASE).await?;
        let created = self.ports.store().create(&lease, &claim).await;
        release_lease(self.ports.store(), &lease).await;
        // If an earlier sweep created it, its doorbell may have been lost.
        unless_conflict(created)?;
        Ok(name)
    }
}
