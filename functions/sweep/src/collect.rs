//! Machines without a claim: those that serve get theirs back, orphans get one that is being deleted, so that `terminate` drains them.

use crate::Rights;
use crate::adopt::{Adoptable, Place};
use crate::execute::Executor;
use std::collections::BTreeSet;
use std::sync::Arc;
use whittle_api::labels;
use whittle_api::runtime::is_subdomain;
use whittle_claims::{
    Claim, ClaimKey, ClaimSpec, DecisionKind, Deletion, DeletionReason, Doorbell, Event, Lease, Phase, Revision, Stored, step,
};
use whittle_ec2::facts::Catalog;
use whittle_ec2::instance::Instance;
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, HandleError, InstanceTags, Leases, ObjectKind, Presence, Queues, RegionStore, Report, StoreError,
    concurrently, machine_to_terminate, metrics, release_lease, save, unless_conflict,
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

/// A claim that is restored for its machine.
struct Restored<'f> {
    found: &'f Adoptable,
    claim: Claim,
    /// The revision of the stored claim that it replaces.
    replaces: Option<Revision>,
}

impl Restored<'_> {
    /// The revision that the table is to have before it is stored.
    fn expected(&self) -> Revision {
        self.replaces.unwrap_or(Revision::ABSENT)
    }

    /// Whether what the table has was stored as this. The uid of a claim that replaces another, or is of a standalone NodeClaim, is not its
    /// own: another sweep may have stored one with it.
    fn is_stored_as(&self, stored: &Stored<Claim>) -> bool {
        let has_own_uid = self.replaces.is_none() && self.claim.spec.standalone_uid.is_none();
        let is_unchanged = stored.revision == self.expected().next() && stored.value.phase == self.claim.phase;
        stored.value.uid == self.claim.uid && (has_own_uid || is_unchanged)
    }
}

/// Reports a claim that was restored.
fn report_adopted(restored: &Restored<'_>, now: Timestamp, report: &mut Report) {
    let (instance, name) = (&restored.found.instance, &restored.claim.key.name);
    report.count("adopted");
    let nodepool = instance.tags.get(labels::NODE_POOL).map_or("", String::as_str);
    report.metric(metrics::NodeClaimsAdopted { nodepool });
    let message = format!("adopted instance {}, which serves without a claim", instance.id);
    report.decide(now, DecisionKind::Kept, format!("nodeclaim/{name}"), message);
}

impl<P: Rights> Executor<'_, P> {
    /// Restores the claims of serving machines: ones that wait for them, ones in place of ended ones of the same name, or ones under new
    /// names. New ones are stored together: of requests that check one lease at the same time, the table refuses all but one.
    pub(crate) async fn adopt_machines(&mut self, lease: &Lease, found: &[Adoptable], prices: Option<&Catalog>, report: &mut Report) {
        let ports = self.ports;
        let (mut known, mut new, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        let restored = concurrently(found.iter().map(|one| self.restore(lease, one, prices))).await;
        for restored in restored {
            match self.keep_failure(restored).flatten() {
                Some(restored) if restored.replaces.is_some() => known.push(restored),
                // One request stores a name once: the next sweep finds the other one.
                Some(restored) if names.insert(restored.claim.key.name.clone()) => new.push(restored),
                _ => {}
            }
        }
        let updated = concurrently(known.iter().map(|one| ports.store().update(&one.claim, one.expected()))).await;
        for (restored, updated) in known.iter().zip(updated) {
            if self.is_restored(restored, updated).await {
                report_adopted(restored, ports.clock().now(), report);
            }
        }
        self.create_adopted(lease, &new, report).await;
    }

    /// Stores new claims of serving machines. If one of them has been stored meanwhile, or the table refuses it, each of the others by
    /// itself.
    async fn create_adopted(&mut self, lease: &Lease, new: &[Restored<'_>], report: &mut Report) {
        let ports = self.ports;
        let claims: Vec<Claim> = new.iter().map(|restored| restored.claim.clone()).collect();
        let Err(error) = ports.store().create_all(lease, &claims).await else {
            new.iter().for_each(|restored| report_adopted(restored, ports.clock().now(), report));
            return;
        };
        // Some may be stored all the same: those of earlier requests, and those of one whose answer was lost.
        let (mut left, stored) = (Vec::new(), concurrently(new.iter().map(|restored| self.is_stored(restored))).await);
        for (restored, is_stored) in new.iter().zip(stored) {
            if is_stored {
                report_adopted(restored, ports.clock().now(), report);
            } else {
                left.push(restored);
            }
        }
        if !matches!(error, StoreError::Conflict { .. } | StoreError::Unavailable { .. }) {
            self.keep_failure(Err::<(), _>(error));
            return;
        }
        for restored in left {
            if !self.has_time() {
                return;
            }
            let created = ports.store().create(lease, &restored.claim).await;
            if self.is_restored(restored, created).await {
                report_adopted(restored, ports.clock().now(), report);
            }
        }
    }

    /// Whether a claim is restored after a write that ended like this. One whose answer was lost may have been executed, and finds itself
    /// when it is repeated: no later sweep would report the adoption.
    async fn is_restored(&mut self, restored: &Restored<'_>, written: Result<Revision, StoreError>) -> bool {
        let Err(error) = written else { return true };
        if self.is_stored(restored).await {
            return true;
        }
        // After another conflict the next sweep continues.
        self.keep_failure(unless_conflict(Err::<Revision, _>(error)));
        false
    }

    /// Whether the table has this claim, as far as there is an answer and time for it.
    async fn is_stored(&self, restored: &Restored<'_>) -> bool {
        if !self.has_time() {
            return false;
        }
        let stored = self.ports.store().get(&restored.claim.key).await;
        stored.is_ok_and(|stored| stored.is_some_and(|stored| restored.is_stored_as(&stored)))
    }

    /// The claim of a serving machine, which may be terminated once it has one. `None` if there is no time for that.
    async fn restore<'f>(
        &self,
        lease: &Lease,
        found: &'f Adoptable,
        prices: Option<&Catalog>,
    ) -> Result<Option<Restored<'f>>, HandleError> {
        if !self.has_time() {
            return Ok(None);
        }
        let ports = self.ports;
        if found.instance.tags.get(labels::TAG_LAUNCH).is_none_or(String::is_empty) {
            // Before the claim: without permission to terminate its instance, a claim would drain it and get stuck.
            ports.cloud().tag(&found.instance.id, &[(labels::TAG_LAUNCH.to_owned(), ADOPTED.to_owned())]).await?;
        }
        let mut shown = found.clone();
        // Lists may lack the Node that the NodeClaim names, and whoever may write its status may name any.
        if let Some(object) = shown.object.as_mut().filter(|object| found.node.is_none() && !object.status.node_name.is_empty())
            && !is_own_node(ports, &lease.cluster, &object.status.node_name, found.instance.provider_id().as_str()).await?
        {
            object.status.node_name.clear();
        }
        let now = ports.clock().now();
        let named = self.index.claim(&shown.name());
        let place = shown.place(named.map(|claim| &claim.value));
        let name = if named.is_some() && place == Place::New { shown.own_name() } else { shown.name() };
        let key = ClaimKey { cluster: lease.cluster.clone(), name };
        let replaced = named.filter(|_| place != Place::New);
        let claim = match replaced {
            Some(claim) if place == Place::Waiting => shown.join(&claim.value, prices, now)?,
            _ => shown.claim(key, ports.clock().unique(), self.index.objects, prices, now)?,
        };
        Ok(Some(Restored { found, claim, replaces: replaced.map(|claim| claim.revision) }))
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
