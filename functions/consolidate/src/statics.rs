//! Static pools keep their `replicas`: missing machines are launched, surplus ones deleted (disruption 16).
//!
//! Only the holder of the cluster's lease creates claims, and each creation is fenced, so that only one of two concurrent runs
//! fills a pool up. Surplus claims are stored before they are deleted, so that two runs never choose different machines. A run that finds
//! stored ones deletes them only as far as the pool still has a surplus.

use crate::execute::find_claim;
use crate::progress::deletion_of;
use crate::quotas::launches_within_quotas;
use crate::state::{Disruptions, SurplusClaim};
use crate::{Rights, Run};
use crate::{rules, time_left};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Kind;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimKey, DecisionKind, DeletionReason, Doorbell, Event, Stored};
use whittle_disruption::{DisruptionEvent, StaticChange, static_changes};
use whittle_model::disruption::{self, Gate};
use whittle_ports::{
    CLAIMS_PER_REQUEST, ClaimStore, Clock, HandleError, Queues, Records, Report, Safeguard, Settings, StoreError, advance, concurrently,
    unless_conflict, write_mirror,
};
use whittle_snapshot::{QuotaRoom, Snapshot, claim_of};
use whittle_units::{ClaimName, Timestamp};

/// The reason of an Event that a static pool waits before the next attempt to launch machines.
const REPLICAS_DELAYED: &str = "ReplicasDelayed";

/// Why a pool has fewer machines than its `replicas` after EC2 has refused one for a quota (ADR 0024).
const OVER_QUOTA: &str = "the account's quota of vCPUs, for which EC2 has just refused a machine, has no room for all of its replicas: \
                          request an increase in Service Quotas";

impl<P: Rights> Run<'_, P> {
    /// Brings every static pool closer to its `replicas`. Returns whether claims were created or deleted, so that the snapshot is
    /// out of date.
    pub(crate) async fn reconcile_static_pools(
        &mut self,
        snapshot: &Snapshot,
        stored: &mut Stored<Disruptions>,
    ) -> Result<bool, HandleError> {
        stored.value.track_failed_launches(snapshot);
        let is_shadowed = |pool: &str| self.settings.is_shadow() || shadow_pools(snapshot).any(|name| name == pool);
        // Decided before shadow mode was switched on: it must no longer be done.
        stored.value.surplus.retain(|surplus| !is_shadowed(&surplus.node_pool));
        stored.value.surplus = still_surplus(snapshot, &stored.value);
        if !stored.value.surplus.is_empty() {
            // Any further surplus is decided on a snapshot read after these were deleted.
            return self.delete_surplus(snapshot, stored).await;
        }
        let changes = static_pool_changes(self.settings, snapshot, &stored.value);
        stored.value.static_reasons.retain(|pool, _| changes.iter().any(|change| change.node_pool == *pool));
        let mut created = Vec::new();
        let mut surplus = Vec::new();
        let mut room = QuotaRoom::of(snapshot);
        for change in &changes {
            if let Some(why) = blocked_reason(self.settings, change, &snapshot.hidden) {
                record_blocked(stored, &mut self.report, change, why, snapshot.now);
                continue;
            }
            let waits = stored.value.launch_wait(&change.node_pool, snapshot.now).filter(|_| !change.launch.is_empty());
            if let Some(why) = waits.filter(|_| Safeguard::StaticsRest.stops(true)) {
                self.report.count("statics_rest");
                if record_blocked(stored, &mut self.report, change, why.clone(), snapshot.now) {
                    self.notes.push(delayed(change, why));
                }
                continue;
            }
            surplus.extend(change.delete.iter().map(|claim| surplus_claim(snapshot, change, claim)));
            let (fitting, over_quota) = launches_within_quotas(change, snapshot, &mut room, &mut self.report);
            if over_quota > 0 {
                record_blocked(stored, &mut self.report, change, OVER_QUOTA.to_owned(), snapshot.now);
            } else if change.at_limit {
                record_blocked(stored, &mut self.report, change, "its limits.nodes is reached".to_owned(), snapshot.now);
            } else {
                stored.value.static_reasons.remove(&change.node_pool);
            }
            created.extend(self.launch_replicas(snapshot, &fitting).await?);
        }
        self.announce(&created).await?;
        if surplus.is_empty() {
            return Ok(!created.is_empty());
        }
        stored.value.surplus = surplus;
        stored.revision = self.ports.store().write(&self.lease.cluster, &stored.value, stored.revision).await?;
        self.delete_surplus(snapshot, stored).await
    }

    /// Stores the claims that a pool lacks. Each is fenced: a run that has lost its lease creates none.
    async fn launch_replicas(&mut self, snapshot: &Snapshot, change: &StaticChange) -> Result<Vec<Claim>, HandleError> {
        let mut created = Vec::new();
        if change.launch.is_empty() {
            return Ok(created);
        }
        for together in change.launch.chunks(CLAIMS_PER_REQUEST) {
            if time_left(self.ports.clock()).is_zero() {
                self.hand_over();
                break;
            }
            let unique = || self.ports.clock().unique();
            let claims: Vec<Claim> = together.iter().map(|new| claim_of(new, snapshot, &self.lease.cluster, unique)).collect();
            if let Err(error) = self.ports.store().create_all(self.lease, &claims).await {
                self.announce(&created).await?;
                return Err(error.into());
            }
            for claim in &claims {
                let message = format!("one of {} missing replicas of NodePool {}", change.launch.len(), change.node_pool);
                self.report.decide(snapshot.now, DecisionKind::Planned, format!("nodeclaim/{}", claim.key.name), message);
                self.report.count("planned");
                crate::metrics::claim_created(&mut self.report, "provisioned", &change.node_pool, None);
            }
            created.extend(claims);
        }
        Ok(created)
    }

    /// Announces new claims: to the launch function first, because `sweep` repeats all else.
    pub(crate) async fn announce(&self, created: &[Claim]) -> Result<(), HandleError> {
        if created.is_empty() {
            return Ok(());
        }
        let claims: Vec<ClaimName> = created.iter().map(|claim| claim.key.name.clone()).collect();
        self.ports.queues().send_now(Doorbell::Launch { cluster: self.lease.cluster.clone(), claims }).await?;
        concurrently(created.iter().map(|claim| write_mirror(self.ports.cluster(), claim))).await;
        Ok(())
    }

    /// Requests the deletion of the surplus claims in the record. One that was changed meanwhile stays in the record for the next run. One
    /// that cannot be read is removed from it, since it would block all static pools: its own pool is not changed until the claim can be
    /// read, and the surplus is then computed again. Draining honours budgets and protected pods. As for an expired machine, it begins once
    /// the pods have been planned for together.
    async fn delete_surplus(&mut self, snapshot: &Snapshot, stored: &mut Stored<Disruptions>) -> Result<bool, HandleError> {
        let (mut done, mut unreadable) = (BTreeSet::new(), BTreeSet::new());
        let mut pods_may_move = false;
        for surplus in &stored.value.surplus {
            if time_left(self.ports.clock()).is_zero() {
                self.hand_over();
                break;
            }
            let key = ClaimKey { cluster: self.lease.cluster.clone(), name: surplus.claim.clone() };
            let found = match self.ports.store().get(&key).await {
                Err(StoreError::Unreadable { .. }) => {
                    self.report.count("surplus_unreadable");
                    unreadable.insert(surplus.claim.clone());
                    continue;
                }
                found => found?,
            };
            if let Some(claim) = found.filter(|claim| !claim.value.is_ending()) {
                // Not when the snapshot was read, which may be seconds ago: its pods wait for a plan from now on.
                let now = self.ports.clock().now();
                let deletion = deletion_of(snapshot, &claim.value, DeletionReason::ScaledDown, surplus.message.clone(), now);
                let marked = advance(self.ports.store(), &claim, &Event::DeletionRequested(deletion), now).await;
                if unless_conflict(marked)?.is_none() {
                    continue;
                }
                pods_may_move |= claim.value.node_name().is_some();
                let subject = format!("nodeclaim/{}", surplus.claim);
                self.report.decide(now, DecisionKind::Disrupted, subject, surplus.message.clone());
                self.report.count("scaled_down");
            }
            let doorbell = Doorbell::Terminate { cluster: self.lease.cluster.clone(), claim: surplus.claim.clone() };
            self.ports.queues().send_now(doorbell).await?;
            done.insert(surplus.claim.clone());
        }
        stored.value.surplus.retain(|surplus| !done.contains(&surplus.claim) && !unreadable.contains(&surplus.claim));
        if pods_may_move {
            // The tick rings as well.
            let rung = self.ports.queues().send_now(Doorbell::Schedule { cluster: self.lease.cluster.clone() }).await;
            if rung.is_err() {
                self.report.count("plan_not_rung");
            }
        }
        Ok(!done.is_empty())
    }
}

pub(crate) fn static_pool_changes(settings: &Settings, snapshot: &Snapshot, known: &Disruptions) -> Vec<StaticChange> {
    let rules = rules(settings, snapshot);
    if rules.static_capacity == Gate::Off {
        return Vec::new();
    }
    let facts = known.facts(snapshot);
    static_changes(disruption::Input { cluster: snapshot.input(), facts: &facts, memory: &known.memory, settings: &rules })
}

/// Why a pool is not changed now, if so. Pure.
pub(crate) fn blocked_reason(settings: &Settings, change: &StaticChange, hidden: &[String]) -> Option<String> {
    if settings.is_shadow() || change.shadow {
        let (more, fewer) = (change.launch.len(), change.delete.len());
        return Some(format!("would (shadow mode) launch {more} machines and delete {fewer}"));
    }
    // A claim that cannot be read still has its machine: it must not be launched a second time.
    let of_pool = |name: &&String| name.starts_with(&format!("{}-", change.node_pool));
    hidden
        .iter()
        .find(of_pool)
        .filter(|_| Safeguard::StaticsCounted.stops(true))
        .map(|name| format!("its machines cannot be counted: NodeClaim {name} cannot be read"))
}

/// Records once why a pool does not have its `replicas`. Returns whether that is new.
fn record_blocked(stored: &mut Stored<Disruptions>, report: &mut Report, change: &StaticChange, why: String, now: Timestamp) -> bool {
    report.count("statics_held");
    let known = stored.value.static_reasons.insert(change.node_pool.clone(), why.clone());
    let is_new = known.as_ref() != Some(&why);
    if is_new {
        report.decide(now, DecisionKind::Kept, format!("nodepool/{}", change.node_pool), why);
    }
    is_new
}

/// The Event about a pool that waits. Pure.
fn delayed(change: &StaticChange, why: String) -> DisruptionEvent {
    let count = change.launch.len();
    let missing = if count == 1 { "1 replica is missing".to_owned() } else { format!("{count} replicas are missing") };
    DisruptionEvent {
        object: format!("nodepool/{}", change.node_pool),
        reason: REPLICAS_DELAYED,
        message: format!("{missing}: {why}"),
        warning: true,
    }
}

/// The claims chosen as surplus that still are. A pool may have been scaled up since. Of its claims that no run has marked yet, only as
/// many stay chosen as the pool has too many; more would be deleted and then launched again. Pure.
pub(crate) fn still_surplus(snapshot: &Snapshot, known: &Disruptions) -> Vec<SurplusClaim> {
    if known.surplus.is_empty() {
        return Vec::new();
    }
    let going: BTreeSet<&ClaimName> = known.removals().map(|removal| &removal.claim).collect();
    let is_ending = |claim: &Claim| claim.is_ending() || snapshot.is_deleted_by_user(claim);
    let mut excess: BTreeMap<&str, usize> = BTreeMap::new();
    for pool in &snapshot.objects.node_pools {
        let Some(replicas) = pool.spec.replicas else { continue };
        let name = pool.metadata.name.as_str();
        let of_pool = |claim: &&Claim| claim.spec.node_pool == name && claim.spec.owner.kind != "Provisioner";
        let claims = snapshot.claims.iter().map(|stored| &stored.value).filter(of_pool);
        let active = claims.filter(|claim| claim.is_live() && !going.contains(&claim.key.name) && !is_ending(claim)).count();
        excess.insert(name, active.saturating_sub(usize::try_from(replicas).unwrap_or(0)));
    }
    // Whether one that cannot be read was scaled up is unknown: what is too many of it is chosen again once it can be. One that is not in
    // the list may be it, whose name cannot be read, or the API server serves no NodePools for a moment.
    let objects = &snapshot.objects;
    let may_be_hidden = |pool: &str| objects.lacks_kind(NodePool::KIND) || objects.is_unreadable(NodePool::KIND, pool);
    let mut chosen = known.surplus.clone();
    chosen.retain(|surplus| {
        if find_claim(snapshot, &surplus.claim).is_none_or(|claim| is_ending(&claim.value)) {
            return true;
        }
        let pool = surplus.node_pool.as_str();
        let Some(left) = excess.get_mut(pool) else { return !may_be_hidden(pool) };
        let is_one = *left > 0;
        *left = left.saturating_sub(1);
        is_one
    });
    chosen
}

fn surplus_claim(snapshot: &Snapshot, change: &StaticChange, claim: &str) -> SurplusClaim {
    let node_pool = change.node_pool.clone();
    let pool = snapshot.objects.node_pools.iter().find(|pool| pool.metadata.name == node_pool);
    let replicas = pool.and_then(|pool| pool.spec.replicas).unwrap_or(0);
    let message = format!("NodePool {node_pool} has {replicas} replicas, {} fewer than nodes", change.delete.len());
    SurplusClaim { claim: claim.into(), node_pool, message }
}

/// Pools in shadow mode.
pub(crate) fn shadow_pools(snapshot: &Snapshot) -> impl Iterator<Item = &str> {
    let hidden = snapshot.objects.unreadable_of(NodePool::KIND).map(|odd| &odd.metadata);
    let pools = snapshot.objects.node_pools.iter().map(|pool| &pool.metadata).chain(hidden);
    pools.filter(|meta| meta.annotation(labels::SHADOW) == Some("true")).map(|meta| meta.name.as_str())
}
