//! Static pools hold their `replicas`: what is missing is launched, what is too many goes (disruption 16).
//!
//! Only the holder of the cluster's lease creates claims, and each creation is fenced, so that of two runs at once one
//! alone fills a pool up. What is to go is stored before it is ended: two runs never choose different machines.

use crate::state::{Disruptions, Leaving};
use crate::{Rights, Run};
use crate::{rules, time_left};
use std::collections::BTreeSet;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimKey, DecisionKind, DeletionReason, Doorbell, Event, Phase, Stored, mirror};
use whittle_core::disruption::{self, Gate, StaticChange, static_changes};
use whittle_ports::{ClaimStore, Clock, HandleError, Mirrors, Queues, Records, Report, Safeguard, Settings, StoreError, advance};
use whittle_snapshot::{Snapshot, claim_of};
use whittle_units::{ClaimName, SignedDuration, Timestamp};

/// A pool whose launch failed is not tried again before this has passed: what was missing then is likely missing still.
const FAILED_AGAIN: SignedDuration = SignedDuration::from_mins(1);

impl<P: Rights> Run<'_, P> {
    /// Brings every static pool closer to its `replicas`. Answers whether claims were made or ended, so that the snapshot
    /// shows them no more as they are.
    pub(crate) async fn balance(&mut self, seen: &Snapshot, stored: &mut Stored<Disruptions>) -> Result<bool, HandleError> {
        let shadowed = |pool: &str| self.settings.shadow || shadow_pools(seen).any(|name| name == pool);
        // Decided before shadow mode was switched on: it is not to be done any more.
        stored.value.leaving.retain(|leaving| !shadowed(&leaving.node_pool));
        if !stored.value.leaving.is_empty() {
            // What is too many besides is decided on what is read after these have gone.
            return self.let_go(seen, stored).await;
        }
        let changes = changes(self.settings, seen, &stored.value);
        stored.value.statics_told.retain(|pool, _| changes.iter().any(|change| change.node_pool == *pool));
        let mut created = Vec::new();
        let mut leaving = Vec::new();
        for change in &changes {
            if let Some(why) = held(self.settings, change, &seen.hidden) {
                told(stored, &mut self.report, change, why, seen.now);
                continue;
            }
            leaving.extend(change.delete.iter().map(|claim| leave(seen, change, claim)));
            if change.at_limit {
                told(stored, &mut self.report, change, "its limits.nodes is reached".to_owned(), seen.now);
            } else {
                stored.value.statics_told.remove(&change.node_pool);
            }
            created.extend(self.launch_replicas(seen, change).await?);
        }
        self.announce(&created).await?;
        if leaving.is_empty() {
            return Ok(!created.is_empty());
        }
        stored.value.leaving = leaving;
        stored.revision = self.ports.store().write(&self.lease.cluster, &stored.value, stored.revision).await?;
        self.let_go(seen, stored).await
    }

    /// Stores the claims that a pool lacks. Each is fenced: a run whose lease has passed on makes none.
    async fn launch_replicas(&mut self, seen: &Snapshot, change: &StaticChange) -> Result<Vec<Claim>, HandleError> {
        let mut created = Vec::new();
        if change.launch.is_empty() {
            return Ok(created);
        }
        if Safeguard::StaticsRest.stops(rests_until(seen, &change.node_pool).is_some()) {
            self.report.count("statics_rest");
            return Ok(created);
        }
        for new in &change.launch {
            if time_left(self.ports.clock()).is_zero() {
                self.hand_over();
                break;
            }
            let claim = claim_of(new, seen, &self.lease.cluster, &self.ports.clock().unique(), self.ports.clock().unique(), None);
            self.ports.store().create(self.lease, &claim).await?;
            let message = format!("one of the {} that NodePool {} lacks of its replicas", change.launch.len(), change.node_pool);
            self.report.decide(seen.now, DecisionKind::Planned, format!("nodeclaim/{}", claim.key.name), message);
            self.report.count("planned");
            crate::counts::created(&mut self.report, "provisioned", &change.node_pool, None);
            created.push(claim);
        }
        Ok(created)
    }

    /// Tells everybody of claims that were made: the launch function first, because all else is shown again by `sweep`.
    async fn announce(&self, created: &[Claim]) -> Result<(), HandleError> {
        if created.is_empty() {
            return Ok(());
        }
        let claims: Vec<ClaimName> = created.iter().map(|claim| claim.key.name.clone()).collect();
        self.ports.queues().ring(Doorbell::Launch { cluster: self.lease.cluster.clone(), claims }, SignedDuration::ZERO).await?;
        for claim in created {
            let _ = self.ports.cluster().apply_mirror(&self.lease.cluster, &mirror(claim)).await;
        }
        Ok(())
    }

    /// Asks for the end of what the record says is to go; what somebody changed meanwhile stays in the record for the next run.
    /// Draining honours budgets and protected pods.
    async fn let_go(&mut self, seen: &Snapshot, stored: &mut Stored<Disruptions>) -> Result<bool, HandleError> {
        let mut done = BTreeSet::new();
        for leaving in &stored.value.leaving {
            if time_left(self.ports.clock()).is_zero() {
                self.hand_over();
                break;
            }
            let key = ClaimKey { cluster: self.lease.cluster.clone(), name: leaving.claim.clone() };
            let found = match self.ports.store().get(&key).await {
                Err(StoreError::Unreadable { .. }) => continue,
                found => found?,
            };
            if let Some(claim) = found.filter(|claim| !claim.value.is_ending()) {
                let deletion = claim.value.deletion_for(DeletionReason::ScaledDown, leaving.message.clone(), seen.now);
                match advance(self.ports.store(), &claim, &Event::DeletionAsked(deletion), seen.now).await {
                    Ok(_) => {
                        self.report.decide(
                            seen.now,
                            DecisionKind::Disrupted,
                            format!("nodeclaim/{}", leaving.claim),
                            leaving.message.clone(),
                        );
                        self.report.count("scaled_down");
                    }
                    Err(HandleError::Store(StoreError::Conflict { .. })) => continue,
                    Err(error) => return Err(error),
                }
            }
            let bell = Doorbell::Terminate { cluster: self.lease.cluster.clone(), claim: leaving.claim.clone() };
            self.ports.queues().ring(bell, SignedDuration::ZERO).await?;
            done.insert(leaving.claim.clone());
        }
        stored.value.leaving.retain(|leaving| !done.contains(&leaving.claim));
        Ok(!done.is_empty())
    }
}

fn changes(settings: &Settings, seen: &Snapshot, known: &Disruptions) -> Vec<StaticChange> {
    let rules = rules(settings, seen);
    if rules.static_capacity == Gate::Off {
        return Vec::new();
    }
    let facts = known.facts(seen);
    static_changes(disruption::Input { cluster: seen.input(), facts: &facts, memory: &known.memory, settings: &rules })
}

/// Why nothing is done for a pool now. Pure.
pub(crate) fn held(settings: &Settings, change: &StaticChange, hidden: &[String]) -> Option<String> {
    if settings.shadow || change.shadow {
        let (more, fewer) = (change.launch.len(), change.delete.len());
        return Some(format!("would (shadow mode) launch {more} machines and end {fewer}"));
    }
    // A claim that cannot be read has its machine all the same: it must not be launched a second time.
    let of_pool = |name: &&String| name.starts_with(&format!("{}-", change.node_pool));
    hidden
        .iter()
        .find(of_pool)
        .filter(|_| Safeguard::StaticsCounted.stops(true))
        .map(|name| format!("its machines cannot be counted: NodeClaim {name} cannot be read"))
}

/// Says once why a pool does not hold its `replicas`.
fn told(stored: &mut Stored<Disruptions>, report: &mut Report, change: &StaticChange, why: String, now: Timestamp) {
    report.count("statics_held");
    let known = stored.value.statics_told.insert(change.node_pool.clone(), why.clone());
    if known.as_ref() != Some(&why) {
        report.decide(now, DecisionKind::Kept, format!("nodepool/{}", change.node_pool), why);
    }
}

fn leave(seen: &Snapshot, change: &StaticChange, claim: &str) -> Leaving {
    let node_pool = change.node_pool.clone();
    let pool = seen.objects.node_pools.iter().find(|pool| pool.metadata.name == node_pool);
    let replicas = pool.and_then(|pool| pool.spec.replicas).unwrap_or(0);
    let message = format!("NodePool {node_pool} is to have {replicas} nodes, which are {} fewer", change.delete.len());
    Leaving { claim: claim.into(), node_pool, message }
}

/// Pools in shadow mode.
pub(crate) fn shadow_pools(seen: &Snapshot) -> impl Iterator<Item = &str> {
    let hidden = seen.objects.unreadable_of(NodePool::KIND).map(|odd| &odd.metadata);
    let pools = seen.objects.node_pools.iter().map(|pool| &pool.metadata).chain(hidden);
    pools.filter(|meta| meta.annotation(labels::SHADOW) == Some("true")).map(|meta| meta.name.as_str())
}

/// When a pool may be tried again whose launches failed lately; `None` when it may be now. Pure.
pub(crate) fn rests_until(seen: &Snapshot, pool: &str) -> Option<Timestamp> {
    let failed = seen.claims.iter().map(|stored| &stored.value).filter(|claim| claim.spec.node_pool == pool);
    let failed = failed.filter_map(|claim| match &claim.phase {
        Phase::Failed { since, .. } => since.checked_add(FAILED_AGAIN).ok(),
        _ => None,
    });
    failed.max().filter(|until| *until > seen.now)
}
