//! What a fleet's answer means for the claims it was asked for.

use crate::batch::Batch;
use crate::plan::{self, Facts};
use crate::{FIRST_LOOK, LATER, SOON, machine};
use crate::{Rights, Run};
use futures::future::{join_all, try_join_all};
use std::collections::BTreeSet;
use whittle_api::{hashes, labels};
use whittle_claims::{Claim, ClaimKey, DecisionKind, DeletionReason, Doorbell, Event, Phase, Stored, mirror, step};
use whittle_ec2::errors::{ApiError, CreateReason};
use whittle_ec2::fleet::{FleetAnswer, FleetFailure, FleetInstance, FleetPoolError, failure};
use whittle_ports::{
    ClaimStore, Clock, CloudError, CloudErrorKind, ClusterEvent, HandleError, Involved, Mirrors, Queues, RegionStore, Safeguard,
    StatusWriter, StoreError, is_owned, metrics, readable, save,
};
use whittle_units::{ClaimName, InstanceId, SignedDuration, Timestamp};

/// Claims that are read or written at once.
pub(crate) const AT_ONCE: usize = 16;
/// What it takes to show some claims.
const MIRRORED: SignedDuration = SignedDuration::from_secs(3);
/// How soon EC2 is asked again what became of a fleet.
const ASKED_AGAIN: SignedDuration = SignedDuration::from_secs(15);
/// How long a call may stay without any word of its machines: EC2 shows what it has started much sooner.
const UNTOLD_FOR: SignedDuration = SignedDuration::from_mins(2);
/// How often a claim is asked to take a machine that others write at the same time.
const TRIES: usize = 3;

/// Losing a claim to another run, or finding it moved on, is a normal outcome.
pub(crate) fn unless_moved<V>(outcome: Result<V, HandleError>) -> Result<Option<V>, HandleError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(HandleError::Store(StoreError::Conflict { .. }) | HandleError::Illegal(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether EC2 has said what became of every machine of a call, and if only that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    InFull,
    InPart {
        /// When that was first so.
        since: Timestamp,
    },
}

impl<P: Rights> Run<'_, P> {
    /// Hands the machines out, remembers what was out of stock, and gives up or retries the claims that got none.
    pub(crate) async fn settle(&mut self, batch: &Batch, answer: &FleetAnswer, told: Told) -> Result<(), HandleError> {
        // Machines first: they run and cost.
        let running = self.hand_out(batch, &answer.instances).await?;
        self.note_addresses(batch, &answer.instances).await?;
        let outs = machine::stock_outs(&self.facts, batch, answer, &self.facts.stock_outs, self.ports.clock().now());
        if !outs.is_empty() {
            self.report.count("stock_outs");
            self.ports.store().put_stock_outs(&outs).await?;
        }
        if running >= batch.members.len() {
            return Ok(());
        }
        let now = self.ports.clock().now();
        if let Told::InPart { since } = told
            && Safeguard::OpenCallsAwaited.stops(now.duration_since(since) < UNTOLD_FOR)
        {
            // Machines may run that nobody has named yet: they are looked for before others are bought.
            self.report.count("untold");
            let message = "EC2 has not told what became of the fleet; it is asked again";
            return self.keep_waiting(batch, CreateReason::LaunchFailed, message, ASKED_AGAIN).await;
        }
        let waiting = self.waiting(batch).await?;
        let quota = answer.errors.iter().find(|error| is_quota(error));
        if let (Some(error), Some(claim)) = (quota, waiting.first()) {
            self.tell_quota(&claim.value, &error.code, &error.message).await;
        }
        let reason_of = |error: &FleetPoolError| CreateReason::of(&format!("{}: {}", error.code, error.message));
        let refused = answer.errors.iter().find(|error| is_a_persons(reason_of(error)));
        if let (Some(error), Some(claim)) = (refused, waiting.first()) {
            self.tell_refused(&claim.value, reason_of(error), &error.message).await;
        }
        match why_nothing(&answer.errors) {
            FleetFailure::InsufficientCapacity(message) => self.give_up(waiting, DeletionReason::InsufficientCapacity, &message).await,
            FleetFailure::Create { reason, message } => {
                // The same token would be given the same answer: the next try is a new call.
                waiting.iter().for_each(|_| self.report.count("retried"));
                let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message };
                self.under_new_name(waiting, &batch.id, Some(&erred), LATER).await
            }
        }
    }

    /// Hands out what came of a call that nobody remembers. The members that get nothing ask under a name of their own.
    pub(crate) async fn of_another(&mut self, batch: &Batch, instances: &[FleetInstance]) -> Result<(), HandleError> {
        self.hand_out(batch, instances).await?;
        let waiting = self.waiting(batch).await?;
        self.under_new_name(waiting, &batch.id, None, SOON).await
    }

    /// Has EC2 asked once more for the machines of a call that nobody remembers, before it is made.
    pub(crate) async fn look_again(&self, batch: &Batch) -> Result<(), HandleError> {
        let message = "the plan is older than its launch; EC2 is asked once more whether it has brought machines already";
        self.keep_waiting(batch, CreateReason::LaunchFailed, message, LATER).await
    }

    /// Only a person can ask AWS for more: the NodePool says so. That nobody can be told stops nothing.
    async fn tell_quota(&mut self, claim: &Claim, code: &str, message: &str) {
        self.report.count("quota");
        let (about, reason) = (Involved::owner(claim), CreateReason::of(&format!("{code}: {message}")));
        let advice = reason.advice();
        let text = format!("{advice}; ask for a higher one in Service Quotas, or limit the pool. EC2 says {code}: {message}");
        tracing::warn!(cluster = %claim.key.cluster, nodepool = %claim.spec.node_pool, code, "{advice}");
        let _ = self.ports.cluster().publish(&claim.key.cluster, &ClusterEvent::warning(about, "QuotaExceeded", text)).await;
    }

    /// A launch that a person has to make possible: an error in the log, a metric for an alarm, and an Event on the NodePool.
    async fn tell_refused(&mut self, claim: &Claim, reason: CreateReason, said: &str) {
        let (about, advice, pool) = (Involved::owner(claim), reason.advice(), claim.spec.node_pool.as_str());
        let remedy = match reason {
            CreateReason::SpotSlrCreationFailed => ": aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
            _ => "",
        };
        tracing::error!(cluster = %claim.key.cluster, nodepool = pool, reason = reason.as_str(), "a launch was refused: {advice}{remedy}");
        self.report.count("refused");
        self.report.metric(metrics::LaunchesRefused { nodepool: pool, reason: reason.as_str() });
        let text = format!("{advice}{remedy}. EC2 says {said}");
        let _ = self.ports.cluster().publish(&claim.key.cluster, &ClusterEvent::warning(about, "LaunchRefused", text)).await;
    }

    /// The members that still wait for a machine of this batch.
    async fn waiting(&self, batch: &Batch) -> Result<Vec<Stored<Claim>>, HandleError> {
        let mut members = self.members(batch).await?;
        members.retain(|claim| matches!(&claim.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id));
        Ok(members)
    }

    /// Gives each machine to a member that has none, and tells how many there are. Every machine that can be named is named, also
    /// by a claim that is to end or has ended: then it is drained. A machine that has ended under its claim is given to nobody: a
    /// call that is repeated answers with it for as long as EC2 remembers.
    async fn hand_out(&mut self, batch: &Batch, instances: &[FleetInstance]) -> Result<usize, HandleError> {
        let mut instances: Vec<&FleetInstance> = instances.iter().collect();
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        let mut members = self.members(batch).await?;
        let ended = |claim: &Stored<Claim>| match &claim.value.phase {
            Phase::Gone { machine: Some(machine), .. } => Some(machine.instance_id.clone()),
            _ => None,
        };
        let ended: BTreeSet<InstanceId> = members.iter().filter_map(ended).collect();
        instances.retain(|instance| !Safeguard::EndedGivenToNobody.stops(ended.contains(&instance.id)));
        let running = instances.len();
        // All of them first: what else there is to do about them takes longer, and may fail.
        let taken = self.give_all(batch, instances, &mut members).await?;
        let mut launched = false;
        for claim in &taken {
            let (name, now) = (&claim.value.key.name, self.ports.clock().now());
            if claim.value.deletion.is_some() {
                self.report.count("came_too_late");
                self.ports
                    .queues()
                    .ring(Doorbell::Terminate { cluster: self.cluster.clone(), claim: name.clone() }, SignedDuration::ZERO)
                    .await?;
            } else {
                launched = true;
                self.report.count("launched");
            }
            if let Some(machine) = claim.value.machine() {
                let message = format!(
                    "{} is {} {} in {} at {}",
                    machine.instance_id, machine.capacity_type, machine.instance_type, machine.zone, machine.price
                );
                self.report.decide(now, DecisionKind::Launched, format!("nodeclaim/{name}"), message);
            }
        }
        if launched {
            self.ports.queues().ring(Doorbell::Register { cluster: self.cluster.clone() }, FIRST_LOOK).await?;
        }
        for some in taken.chunks(AT_ONCE) {
            if !self.ports.clock().deadline().has(self.ports.clock().now(), MIRRORED) {
                break; // `sweep` shows what is missing
            }
            let mirrors: Vec<_> = some.iter().map(|claim| mirror(&claim.value)).collect();
            let shown = join_all(mirrors.iter().map(|mirror| self.ports.cluster().apply_mirror(self.cluster, mirror))).await;
            if shown.iter().all(Result::is_err) {
                break;
            }
        }
        Ok(running)
    }

    /// Gives the machines away that nobody names yet, many at once: each to a member of its own, and what that leaves one by one.
    async fn give_all(
        &mut self,
        batch: &Batch,
        instances: Vec<&FleetInstance>,
        members: &mut [Stored<Claim>],
    ) -> Result<Vec<Stored<Claim>>, HandleError> {
        let mut unnamed = Vec::new();
        for some in instances.chunks(AT_ONCE) {
            let owned = try_join_all(some.iter().map(|instance| is_owned(self.ports.store(), &instance.id))).await?;
            unnamed.extend(some.iter().zip(owned).filter(|(_, owned)| !owned).map(|(instance, _)| *instance));
        }
        let waits =
            |claim: &Stored<Claim>| matches!(&claim.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id);
        let waiting: Vec<usize> = members.iter().enumerate().filter(|(_, claim)| waits(claim)).map(|(at, _)| at).collect();
        let (mut taken, mut left) = (Vec::new(), unnamed.split_off(unnamed.len().min(waiting.len())));
        let pairs: Vec<(&FleetInstance, usize)> = unnamed.into_iter().zip(waiting).collect();
        for some in pairs.chunks(AT_ONCE) {
            let mut nexts = Vec::new();
            for (instance, at) in some {
                nexts.push((*instance, *at, taking(&self.facts, batch, instance, &members[*at].value, self.ports.clock().now())?));
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
                    Err(HandleError::Store(StoreError::Conflict { .. })) => left.push(*instance),
                    Err(error) => failure = Some(error),
                }
            }
            if let Some(error) = failure {
                return Err(error);
            }
        }
        for instance in left {
            match self.give(batch, instance, members).await? {
                Some(claim) => taken.push(claim),
                None => {
                    // `sweep` sees it twice and ends it.
                    tracing::warn!(instance = %instance.id, batch = %batch.id, "a machine came that no claim waits for");
                    self.report.count("surplus");
                }
            }
        }
        Ok(taken)
    }

    /// The claims of a call, as far as they are there and can be read: the machines of the others are told by their tags.
    async fn members(&self, batch: &Batch) -> Result<Vec<Stored<Claim>>, HandleError> {
        let mut members = Vec::new();
        for names in batch.members.chunks(AT_ONCE) {
            let keys: Vec<ClaimKey> = names.iter().map(|name| ClaimKey { cluster: self.cluster.clone(), name: name.clone() }).collect();
            let found = join_all(keys.iter().map(|key| self.ports.store().get(key))).await;
            for claim in found {
                members.extend(readable(claim)?);
            }
        }
        Ok(members)
    }

    /// The member that takes the machine: one that waits for it, else one that has ended without any.
    async fn give(
        &self,
        batch: &Batch,
        instance: &FleetInstance,
        members: &mut [Stored<Claim>],
    ) -> Result<Option<Stored<Claim>>, HandleError> {
        for wanted in [true, false] {
            for member in members.iter_mut() {
                for _ in 0..TRIES {
                    let waits = matches!(&member.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id);
                    let ended = matches!(member.value.phase, Phase::Failed { .. } | Phase::Gone { machine: None, .. });
                    if !(if wanted { waits } else { ended }) {
                        break;
                    }
                    match save(self.ports.store(), member, taking(&self.facts, batch, instance, &member.value, self.ports.clock().now())?)
                        .await
                    {
                        Ok(saved) => {
                            *member = saved.clone();
                            return Ok(Some(saved));
                        }
                        Err(HandleError::Store(StoreError::Conflict { .. })) => {}
                        Err(error) => return Err(error),
                    }
                    // A twin of this run may have given the machine away; or the claim was changed since it was read.
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

    /// A call that did not succeed as a whole.
    pub(crate) async fn failed(&mut self, batch: &Batch, error: CloudError) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let known = ApiError::client(&error.code, &error.message);
        if error.kind == CloudErrorKind::InsufficientCapacity && !known.is_fleet_quota() {
            let outs = machine::all_struck(batch, &error.code, &error.message, &self.facts.stock_outs, now);
            self.ports.store().put_stock_outs(&outs).await?;
            let waiting = self.waiting(batch).await?;
            if let Some(claim) = waiting.first().filter(|_| known.is_vcpu_quota()) {
                self.tell_quota(&claim.value, &error.code, &error.message).await;
            }
            return self.give_up(waiting, DeletionReason::InsufficientCapacity, &error.to_string()).await;
        }
        let delay = match error.kind {
            _ if known.is_fleet_quota() => LATER,
            CloudErrorKind::Unauthorized | CloudErrorKind::Invalid | CloudErrorKind::IdempotencyMismatch => LATER,
            _ => SOON,
        };
        self.report.count(if error.kind == CloudErrorKind::Throttled { "throttled" } else { "retried" });
        if let Some(name) = batch.members.first().filter(|_| known.is_fleet_quota()) {
            let key = ClaimKey { cluster: self.cluster.clone(), name: name.clone() };
            if let Some(claim) = readable(self.ports.store().get(&key).await)? {
                self.tell_quota(&claim.value, &error.code, &error.message).await;
            }
        }
        let reason = CreateReason::of(&error.to_string());
        if is_a_persons(reason)
            && let Some(claim) = self.waiting(batch).await?.first()
        {
            self.tell_refused(&claim.value, reason, &error.to_string()).await;
        }
        self.keep_waiting(batch, reason, &format!("{}: {error}", reason.advice()), delay).await
    }

    /// The members go on waiting for the same call, which is looked at again after `delay`.
    async fn keep_waiting(&self, batch: &Batch, reason: CreateReason, message: &str, delay: SignedDuration) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message: message.to_owned() };
        let mut changed = Vec::new();
        for claim in self.waiting(batch).await? {
            let mut next = step(&claim.value, &erred, now)?;
            next.look_again_at = now.checked_add(delay).ok();
            changed.push((claim, next));
        }
        let again = self.save_all(changed).await?;
        if again.is_empty() { Ok(()) } else { self.ring_again(again, delay).await }
    }

    /// Stores claims as they are to be, and tells which of them nobody else had changed meanwhile.
    pub(crate) async fn save_all(&self, changed: Vec<(Stored<Claim>, Claim)>) -> Result<Vec<ClaimName>, HandleError> {
        let mut saved = Vec::new();
        for some in changed.chunks(AT_ONCE) {
            let writes = some.iter().map(|(read, next)| async move { unless_moved(save(self.ports.store(), read, next.clone()).await) });
            let written = try_join_all(writes).await?;
            saved.extend(written.into_iter().flatten().map(|claim| claim.value.key.name));
        }
        Ok(saved)
    }

    /// Rings again for claims that this run has moved on, so that a twin of it rings for none of them, or that wait for a person:
    /// then seldom, and not beyond the launch timeout.
    pub(crate) async fn ring_again(&self, claims: Vec<ClaimName>, delay: SignedDuration) -> Result<(), HandleError> {
        Ok(self.ports.queues().ring(Doorbell::Launch { cluster: self.cluster.clone(), claims }, delay).await?)
    }

    /// Gives claims another batch, one for all of them: the one they have cannot bring them machines any more.
    pub(crate) async fn under_new_name(
        &self,
        claims: Vec<Stored<Claim>>,
        old: &str,
        why: Option<&Event>,
        delay: SignedDuration,
    ) -> Result<(), HandleError> {
        // The old name is part of the new one, so that no two tries of a claim are ever the same call.
        let mut names: Vec<ClaimName> = claims.iter().map(|claim| claim.value.key.name.clone()).collect();
        names.push(ClaimName::new(old));
        let replaced = Event::TokenReplaced { from: old.to_owned(), to: plan::id_of(self.cluster, &names) };
        let now = self.ports.clock().now();
        let mut changed = Vec::new();
        for claim in claims {
            let erred = why.map_or_else(|| Ok(claim.value.clone()), |why| step(&claim.value, why, now));
            // One that moved on meanwhile has no use for another name.
            let Ok(mut next) = erred.and_then(|claim| step(&claim, &replaced, now)) else { continue };
            next.look_again_at = now.checked_add(delay).ok();
            changed.push((claim, next));
        }
        let again = self.save_all(changed).await?;
        if again.is_empty() { Ok(()) } else { self.ring_again(again, delay).await }
    }
}

fn is_quota(error: &FleetPoolError) -> bool {
    let known = ApiError::client(&error.code, &error.message);
    known.is_vcpu_quota() || known.is_fleet_quota()
}

/// What the errors of a fleet mean for the claims that it brought nothing. Without room for another fleet no other offering
/// would do better.
fn why_nothing(errors: &[FleetPoolError]) -> FleetFailure {
    match errors.iter().find(|error| ApiError::client(&error.code, &error.message).is_fleet_quota()) {
        Some(error) => {
            let reason = CreateReason::FleetQuotaExceeded;
            FleetFailure::Create { reason, message: format!("{}: {}", reason.advice(), error.message) }
        }
        None => failure(errors),
    }
}

/// Whether trying again helps nothing before somebody has changed the account, its rights or the node class.
const fn is_a_persons(reason: CreateReason) -> bool {
    matches!(
        reason,
        CreateReason::SpotSlrCreationFailed
            | CreateReason::UnauthorizedByBoundary
            | CreateReason::UnauthorizedByServiceControlPolicy
            | CreateReason::Unauthorized
            | CreateReason::AmiAuthorizationFailure
            | CreateReason::SecurityGroupSubnetVpcMismatch
            | CreateReason::UserDataSizeLimitExceeded
            | CreateReason::InvalidAmiId
            | CreateReason::AmiNotFound
            | CreateReason::FreeTierIneligible
            | CreateReason::AccountPendingVerification
    )
}

/// A claim as it is with a machine. Pure.
fn taking(facts: &Facts, batch: &Batch, instance: &FleetInstance, claim: &Claim, now: Timestamp) -> Result<Claim, HandleError> {
    let machine = machine::machine(facts, batch, instance, &claim.spec, now);
    let mut next = step(claim, &Event::FleetAnswered(machine), now)?;
    next.look_again_at = None;
    if let Some(record) = facts.class(&batch.node_class) {
        next.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), record.hash.clone());
        next.annotations.insert(labels::NODE_CLASS_HASH_VERSION.to_owned(), hashes::NODE_CLASS_VERSION.to_owned());
        next.annotations.insert(labels::INSTANCE_PROFILE_NAME.to_owned(), record.instance_profile.clone());
    }
    Ok(next)
}
