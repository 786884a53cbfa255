//! Which claim gets which instance. Instances come before all else: they run and cost money.

use crate::batch::{Batch, MadeFrom};
use crate::plan::Facts;
use crate::{CONCURRENCY, FIRST_REGISTER_DELAY, REGISTER_RUNG_FOR, Rights, Run, machine};
use futures::future::{join_all, try_join_all};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimKey, DecisionKind, Doorbell, Event, Phase, Stored, step};
use whittle_ec2::fleet::FleetInstance;
use whittle_ports::{
    BestEffort, ClaimStore, Clock, HandleError, Queues, Safeguard, WriteError, is_owned, metrics, readable, save, unless_conflict,
    write_mirror,
};
use whittle_units::{InstanceId, SignedDuration, Timestamp};

/// Time to write the mirrors of one chunk of claims.
const TIME_PER_MIRRORS: SignedDuration = SignedDuration::from_secs(3);
/// Karpenter's name of the calls that launch, in metrics.
const CREATE_FLEET: &str = "create_fleet";
/// Attempts to assign an instance to a claim that others write concurrently.
const ASSIGN_ATTEMPTS_MAX: usize = 3;

impl<P: Rights> Run<'_, P> {
    /// Assigns each instance to a member that has none, and returns how many run. Every instance that can be assigned is
    /// assigned, even to a claim that is being deleted or has ended: then it is drained. An instance that has ended under its
    /// claim is not assigned again: a repeated call returns it for as long as EC2 remembers its token.
    ///
    /// What a first call started belongs to nobody yet, and its members are as this run stored them (`fresh`). Nothing is read then: a
    /// write loses to whoever changed a claim, or assigned an instance, meanwhile, and then both are read.
    pub(crate) async fn assign_instances(
        &mut self,
        batch: &Batch,
        instances: &[FleetInstance],
        fresh: Option<Vec<Stored<Claim>>>,
    ) -> Result<usize, HandleError> {
        let mut instances: Vec<&FleetInstance> = instances.iter().collect();
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        let is_fresh = fresh.is_some();
        let mut members = match fresh {
            Some(members) => members,
            None => self.members(batch).await?,
        };
        let size = u64::try_from(batch.members.len()).unwrap_or(u64::MAX);
        self.report.observe(metrics::BatchSize { batcher: CREATE_FLEET }, size);
        if let Some(oldest) = members.iter().map(|claim| claim.value.created_at).min() {
            self.report
                .observe(metrics::BatchTime { batcher: CREATE_FLEET }, batch.created_at.duration_since(oldest).max(SignedDuration::ZERO));
        }
        let ended = |claim: &Stored<Claim>| match &claim.value.phase {
            Phase::Gone { machine: Some(machine), .. } => Some(machine.instance_id.clone()),
            _ => None,
        };
        let ended: BTreeSet<InstanceId> = members.iter().filter_map(ended).collect();
        instances.retain(|instance| !Safeguard::EndedGivenToNobody.stops(ended.contains(&instance.id)));
        let running = instances.len();
        // Assign all of them first: everything else takes longer and may fail.
        let unowned = if is_fresh { instances } else { self.unowned(&instances).await? };
        let taken = self.assign_all(batch, unowned, &mut members).await?;
        for claim in &taken {
            let (name, now) = (&claim.value.key.name, self.ports.clock().now());
            if claim.value.deletion.is_some() {
                self.report.count("came_too_late");
                self.ports.queues().send_now(Doorbell::Terminate { cluster: self.cluster.clone(), claim: name.clone() }).await?;
            } else {
                self.report.count("launched");
            }
            if let Some(machine) = claim.value.machine() {
                let message = machine::description(machine, batch, &claim.value.spec.node_pool);
                self.report.decide(now, DecisionKind::Launched, format!("nodeclaim/{name}"), message);
            }
        }
        self.ring_for(&taken).await?;
        for some in taken.chunks(CONCURRENCY) {
            if !self.ports.clock().has_time_for(TIME_PER_MIRRORS) {
                break; // `sweep` writes the missing ones
            }
            let written = join_all(some.iter().map(|claim| write_mirror(self.ports.cluster(), &claim.value))).await;
            if written.iter().all(|outcome| *outcome == BestEffort::Failed) {
                break;
            }
        }
        Ok(running)
    }

    /// Rings for pods that wait to know where these claims are launched, and for the Nodes of their machines.
    async fn ring_for(&self, taken: &[Stored<Claim>]) -> Result<(), HandleError> {
        let launched: Vec<&Claim> = taken.iter().map(|claim| &claim.value).filter(|claim| claim.deletion.is_none()).collect();
        if launched.iter().any(|claim| claim.spec.is_awaited)
            && let Err(error) = self.ports.queues().send_now(Doorbell::Schedule { cluster: self.cluster.clone() }).await
        {
            tracing::warn!(%error, "schedule could not be rung for pods that wait for a launch");
        }
        if launched.is_empty() { Ok(()) } else { self.ring_register().await }
    }

    /// Rings for the Nodes of machines that were launched, unless a doorbell is on its way that arrives after they were stored.
    async fn ring_register(&self) -> Result<(), HandleError> {
        let now = self.ports.clock().now().as_millisecond();
        let before = self.register_rung_at.load(Ordering::Relaxed);
        if now.saturating_sub(before) < REGISTER_RUNG_FOR {
            return Ok(());
        }
        // Before it is sent: others that end meanwhile leave it at this one.
        self.register_rung_at.store(now, Ordering::Relaxed);
        let rung =
            self.ports.queues().send(Doorbell::Register { cluster: self.cluster.clone(), is_tick: false }, FIRST_REGISTER_DELAY).await;
        if rung.is_err() {
            self.register_rung_at.store(before, Ordering::Relaxed);
        }
        Ok(rung?)
    }

    /// The instances that no claim owns yet.
    async fn unowned<'i>(&self, instances: &[&'i FleetInstance]) -> Result<Vec<&'i FleetInstance>, HandleError> {
        let mut unowned = Vec::with_capacity(instances.len());
        for some in instances.chunks(CONCURRENCY) {
            let owned = try_join_all(some.iter().map(|instance| is_owned(self.ports.store(), &instance.id))).await?;
            unowned.extend(some.iter().zip(owned).filter(|(_, owned)| !owned).map(|(instance, _)| *instance));
        }
        Ok(unowned)
    }

    /// Assigns instances: first concurrently, each to its own waiting member, then the remaining ones one by one.
    async fn assign_all(
        &mut self,
        batch: &Batch,
        mut instances: Vec<&FleetInstance>,
        members: &mut [Stored<Claim>],
    ) -> Result<Vec<Stored<Claim>>, HandleError> {
        let waits =
            |claim: &Stored<Claim>| matches!(&claim.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id);
        let waiting: Vec<usize> = members.iter().enumerate().filter(|(_, claim)| waits(claim)).map(|(at, _)| at).collect();
        let (mut taken, mut left) = (Vec::new(), instances.split_off(instances.len().min(waiting.len())));
        let pairs: Vec<(&FleetInstance, usize)> = instances.into_iter().zip(waiting).collect();
        for some in pairs.chunks(CONCURRENCY) {
            let mut nexts = Vec::new();
            for (instance, at) in some {
                nexts.push((*instance, *at, with_instance(&self.facts, batch, instance, &members[*at].value, self.ports.clock().now())?));
            }
            let writes = nexts.iter().map(|(_, at, next)| save(self.ports.store(), &members[*at], next.clone()));
            let written = join_all(writes).await;
            let mut failure = None;
            for ((instance, at, _), outcome) in nexts.iter().zip(written) {
                match outcome {
                    Ok(saved) => {
                        members[*at] = saved.clone();
                        taken.push(saved);
                    }
                    Err(error) if error.is_conflict() => left.push(*instance),
                    Err(error) => failure = Some(error),
                }
            }
            if let Some(error) = failure {
                return Err(error);
            }
        }
        for instance in left {
            match self.assign(batch, instance, members).await? {
                Some(claim) => taken.push(claim),
                None => {
                    // `sweep` terminates it after seeing it twice.
                    tracing::warn!(instance = %instance.id, batch = %batch.id, "surplus instance: no claim waits for it");
                    self.report.count("surplus");
                }
            }
        }
        Ok(taken)
    }

    /// The claims of a call that exist and can be read; instances of the others are recognized by their tags.
    pub(crate) async fn members(&self, batch: &Batch) -> Result<Vec<Stored<Claim>>, HandleError> {
        let mut members = Vec::new();
        for names in batch.members.chunks(CONCURRENCY) {
            let keys: Vec<ClaimKey> = names.iter().map(|name| ClaimKey { cluster: self.cluster.clone(), name: name.clone() }).collect();
            let found = join_all(keys.iter().map(|key| self.ports.store().get(key))).await;
            for claim in found {
                members.extend(readable(claim)?);
            }
        }
        Ok(members)
    }

    /// The member that gets the instance: one that waits for it, otherwise one that ended without any.
    async fn assign(
        &self,
        batch: &Batch,
        instance: &FleetInstance,
        members: &mut [Stored<Claim>],
    ) -> Result<Option<Stored<Claim>>, HandleError> {
        for wanted in [true, false] {
            for member in members.iter_mut() {
                for _ in 0..ASSIGN_ATTEMPTS_MAX {
                    let waits = matches!(&member.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id);
                    let ended = matches!(member.value.phase, Phase::Failed { .. } | Phase::Gone { machine: None, .. });
                    if !(if wanted { waits } else { ended }) {
                        break;
                    }
                    let next = with_instance(&self.facts, batch, instance, &member.value, self.ports.clock().now())?;
                    if let Some(saved) = unless_conflict(save(self.ports.store(), member, next).await)? {
                        *member = saved.clone();
                        return Ok(Some(saved));
                    }
                    // A concurrent run may have assigned the instance, or the claim was changed since it was read.
                    if let Some(known) = self.ports.store().by_instance(&instance.id).await? {
                        return Ok(Some(known));
                    }
                    let Some(now) = readable(self.ports.store().get(&member.value.key).await)? else { break };
                    *member = now;
                }
            }
        }
        Ok(None)
    }
}

/// The claim with the instance assigned to it. Pure.
fn with_instance(facts: &Facts, batch: &Batch, instance: &FleetInstance, claim: &Claim, now: Timestamp) -> Result<Claim, HandleError> {
    let machine = machine::machine(facts, batch, instance, &claim.spec, now);
    let mut next = step(claim, &Event::FleetAnswered(machine), now)?;
    next.look_again_at = None;
    // The class may have changed since: with its new hash the machine's drift would never be seen.
    if let Some(class) = batch.made_from.clone().or_else(|| facts.class(&batch.node_class).map(MadeFrom::of)) {
        next.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), class.hash);
        next.annotations.insert(labels::NODE_CLASS_HASH_VERSION.to_owned(), class.hash_version);
        next.annotations.insert(labels::INSTANCE_PROFILE_NAME.to_owned(), class.instance_profile);
    }
    Ok(next)
}
