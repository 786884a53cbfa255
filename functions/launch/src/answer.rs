//! What the response of CreateFleet means for the claims of the call.

use crate::batch::Batch;
use crate::plan::{self, Facts};
use crate::{FIRST_REGISTER_DELAY, REGISTER_RUNG_FOR, RETRY_DELAY, USER_ACTION_RETRY_DELAY, machine};
use crate::{Rights, Run, oldest};
use futures::future::{join_all, try_join_all};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use whittle_api::{hashes, labels};
use whittle_claims::{Claim, ClaimKey, DecisionKind, DeletionReason, Doorbell, Event, NodeClassRecord, Phase, Stored, step};
use whittle_ec2::errors::{ApiError, CreateReason, Fault};
use whittle_ec2::fleet::{FleetAnswer, FleetFailure, FleetInstance, FleetPoolError, failure};
use whittle_ports::{
    BestEffort, ClaimStore, Clock, CloudError, CloudErrorKind, ClusterEvent, HandleError, Involved, Queues, RegionStore, Safeguard,
    WriteError, is_owned, metrics, publish_event, readable, save, unless_conflict, unless_outdated, write_mirror,
};
use whittle_units::{ClaimName, InstanceId, SignedDuration, Timestamp};

/// Claims that are read or written concurrently.
pub(crate) const CONCURRENCY: usize = 16;
/// Time to write the mirrors of one chunk of claims.
const TIME_PER_MIRRORS: SignedDuration = SignedDuration::from_secs(3);
/// Delay before the instances of a fleet are looked up again.
const FLEET_POLL_DELAY: SignedDuration = SignedDuration::from_secs(15);
/// Karpenter's name of the calls that launch, in metrics.
const CREATE_FLEET: &str = "create_fleet";
/// Delay before a call is made anew of which EC2 was too busy, or did not know something new such as the instance profile: IAM takes some
/// ten seconds to tell it.
const PASSING_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(5);
/// EC2 knows an instance profile and its role by then, if there are any: what it says of them is not over soon.
const PROFILE_KNOWN_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// How long the outcome of a call may stay unknown: EC2 shows the instances that it started much sooner.
pub(crate) const OUTCOME_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// Attempts to assign an instance to a claim that others write concurrently.
const ASSIGN_ATTEMPTS_MAX: usize = 3;

/// Whether EC2 has accounted for every instance of a call, if only by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    Incomplete {
        /// When the outcome was first found to be incomplete.
        since: Timestamp,
    },
}

impl<P: Rights> Run<'_, P> {
    /// Assigns the instances to claims, stores stock-outs, and gives up or retries the claims without an instance.
    pub(crate) async fn settle(
        &mut self,
        batch: &Batch,
        answer: &FleetAnswer,
        outcome: Outcome,
        fresh: Option<Vec<Stored<Claim>>>,
    ) -> Result<(), HandleError> {
        // Instances first: they run and cost money.
        let running = self.assign_instances(batch, &answer.instances, fresh).await?;
        self.record_addresses(batch, &answer.instances).await?;
        for error in &answer.errors {
            let (zone, capacity_type, reason) = (error.zone.as_str(), batch.request.capacity_type.as_str(), reason_of(error).as_str());
            let zone_id = self.facts.zone_id(&batch.node_class, zone);
            self.report.metric(metrics::InstanceLaunchFailures { zone, zone_id, capacity_type, reason });
        }
        let outs = machine::stock_outs(&self.facts, batch, answer, &self.facts.stock_outs, self.ports.clock().now());
        if !outs.is_empty() {
            self.report.count("stock_outs");
            self.ports.store().put_stock_outs(&outs).await?;
        }
        if running >= batch.members.len() {
            return Ok(());
        }
        let now = self.ports.clock().now();
        if let Outcome::Incomplete { since } = outcome
            && Safeguard::OpenCallsAwaited.stops(now.duration_since(since) < OUTCOME_TIMEOUT)
        {
            // Instances that no response listed may be running: look them up before others are launched.
            self.report.count("untold");
            let message = "EC2 has not reported the outcome of the fleet yet; it is checked again";
            let waiting = self.waiting(batch).await?;
            return self.keep_waiting(waiting, CreateReason::InternalError, message, FLEET_POLL_DELAY).await;
        }
        let waiting = self.waiting(batch).await?;
        let quota = answer.errors.iter().find(|error| is_quota(error));
        if let (Some(error), Some(claim)) = (quota, waiting.first()) {
            self.publish_quota(&claim.value, &error.code, &error.message).await;
        }
        let waited = oldest(&waiting, now);
        let refused = answer.errors.iter().find(|error| needs_user_action(&api_error(error), waited));
        if let (Some(error), Some(claim)) = (refused, waiting.first()) {
            self.publish_refusal(&claim.value, reason_of(error), batch, &api_error(error).to_string()).await;
            self.look_at_profile(&api_error(error), batch, waited).await?;
        }
        match failure_without_instances(&answer.errors) {
            FleetFailure::InsufficientCapacity(message) => self.give_up(waiting, DeletionReason::InsufficientCapacity, &message).await,
            FleetFailure::Create { reason, message } => {
                // The same client token would return the same response, so the next attempt is a new call.
                waiting.iter().for_each(|_| self.report.count("retried"));
                let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message };
                let passes = quota.is_none() && refused.is_none() && answer.errors.iter().any(|error| api_error(error).is_over_soon());
                let delay = if passes { PASSING_RETRY_DELAY } else { USER_ACTION_RETRY_DELAY };
                self.replace_token(waiting, &batch.id, Some(&erred), delay).await
            }
        }
    }

    /// Assigns the instances of a call that is not in the store. Members that get none are retried under a new client
    /// token.
    pub(crate) async fn adopt_unstored(&mut self, batch: &Batch, instances: &[FleetInstance]) -> Result<(), HandleError> {
        self.assign_instances(batch, instances, None).await?;
        let waiting = self.waiting(batch).await?;
        self.replace_token(waiting, &batch.id, None, RETRY_DELAY).await
    }

    /// Schedules a second lookup of the instances of a call that is not in the store, before it is made.
    pub(crate) async fn retry_lookup(&self, batch: &Batch) -> Result<(), HandleError> {
        let message = "the plan is older than its launch; EC2 is checked again for instances that were started already";
        self.keep_waiting(self.waiting(batch).await?, CreateReason::InternalError, message, USER_ACTION_RETRY_DELAY).await
    }

    /// Only a person can request a quota increase, so the NodePool gets an Event. Publishing is best effort.
    async fn publish_quota(&mut self, claim: &Claim, code: &str, message: &str) {
        self.report.count("quota");
        let (about, reason) = (Involved::owner(claim), CreateReason::of(&format!("{code}: {message}")));
        let advice = reason.advice();
        let text = format!("{advice}; request an increase in Service Quotas, or set limits on the pool. EC2 reports {code}: {message}");
        tracing::warn!(cluster = %claim.key.cluster, nodepool = %claim.spec.node_pool, code, "{advice}");
        publish_event(self.ports.cluster(), &claim.key.cluster, &ClusterEvent::warning(about, "QuotaExceeded", text)).await;
    }

    /// A launch that needs user action: an error in the log, a metric for an alarm, and an Event on the NodePool.
    async fn publish_refusal(&mut self, claim: &Claim, reason: CreateReason, batch: &Batch, error_text: &str) {
        let (about, advice, pool) = (Involved::owner(claim), reason.advice(), claim.spec.node_pool.as_str());
        let remedy = match reason {
            CreateReason::SpotSlrCreationFailed => ": aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
            CreateReason::InstanceProfileNameInvalid | CreateReason::InstanceProfileEmpty => {
                ". One that is made for spec.role is mended within minutes"
            }
            CreateReason::LaunchFailed => ": correct what it names, in the node class, the requirements of the NodePool or the account",
            _ => "",
        };
        tracing::error!(cluster = %claim.key.cluster, nodepool = pool, reason = reason.as_str(), "a launch was refused: {advice}{remedy}");
        self.report.count("refused");
        self.report.metric(metrics::LaunchesRefused { nodepool: pool, reason: reason.as_str() });
        let text = format!("{advice}{remedy}. Asked for {}. EC2 reports {error_text}", batch.asked());
        publish_event(self.ports.cluster(), &claim.key.cluster, &ClusterEvent::warning(about, "LaunchRefused", text)).await;
    }

    /// Has `refresh` look at a class whose instance profile EC2 cannot use, unless it has while the claims waited: if IAM says what is
    /// wrong, so does the class, and nothing is launched with it. Only the first refusal after a minute does: a class that `refresh` finds
    /// as it was keeps its time, and each look asks EC2 about all classes.
    async fn look_at_profile(&self, error: &ApiError, batch: &Batch, waited: SignedDuration) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let is_first = waited < PROFILE_KNOWN_AFTER + USER_ACTION_RETRY_DELAY;
        let is_older = |record: &NodeClassRecord| now.duration_since(record.resolved_at) > waited;
        if is_first && error.is_of_instance_profile() && self.facts.class(&batch.node_class).is_some_and(is_older) {
            self.ports.queues().send_now(Doorbell::Refresh { cluster: self.cluster.clone() }).await?;
        }
        Ok(())
    }

    /// The members that still wait for an instance of this batch.
    async fn waiting(&self, batch: &Batch) -> Result<Vec<Stored<Claim>>, HandleError> {
        let mut members = self.members(batch).await?;
        members.retain(|claim| matches!(&claim.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id));
        Ok(members)
    }

    /// Assigns each instance to a member that has none, and returns how many run. Every instance that can be assigned is
    /// assigned, even to a claim that is being deleted or has ended: then it is drained. An instance that has ended under its
    /// claim is not assigned again: a repeated call returns it for as long as EC2 remembers its token.
    ///
    /// What a first call started belongs to nobody yet, and its members are as this run stored them (`fresh`). Nothing is read then: a
    /// write loses to whoever changed a claim, or assigned an instance, meanwhile, and then both are read.
    async fn assign_instances(
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
        let mut launched = false;
        for claim in &taken {
            let (name, now) = (&claim.value.key.name, self.ports.clock().now());
            if claim.value.deletion.is_some() {
                self.report.count("came_too_late");
                self.ports.queues().send_now(Doorbell::Terminate { cluster: self.cluster.clone(), claim: name.clone() }).await?;
            } else {
                launched = true;
                self.report.count("launched");
            }
            if let Some(machine) = claim.value.machine() {
                let message = machine::description(machine, batch, &claim.value.spec.node_pool);
                self.report.decide(now, DecisionKind::Launched, format!("nodeclaim/{name}"), message);
            }
        }
        if launched {
            self.ring_register().await?;
        }
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

    /// A call that failed as a whole. `alive` are instances that it started when it was made before; `held` as for [`Run::call`].
    pub(crate) async fn failed(
        &mut self,
        batch: &Batch,
        error: CloudError,
        alive: &[FleetInstance],
        held: Option<&[Stored<Claim>]>,
    ) -> Result<(), HandleError> {
        if !alive.is_empty() {
            // They run and cost money, whatever becomes of the others.
            self.assign_instances(batch, alive, None).await?;
        }
        let now = self.ports.clock().now();
        let fault = if error.kind == CloudErrorKind::Unknown { Fault::Server } else { Fault::Client };
        let known = ApiError { fault, ..ApiError::client(&error.code, &error.message) };
        let is_elsewhere = error.kind == CloudErrorKind::InsufficientCapacity || known.is_service_linked_role_missing();
        let waiting = self.waiting(batch).await?;
        if is_elsewhere && !known.is_fleet_quota() {
            let outs = machine::whole_call_stock_outs(&self.facts, batch, &error.code, &error.message, now);
            self.ports.store().put_stock_outs(&outs).await?;
            match waiting.first() {
                Some(claim) if known.is_vcpu_quota() => self.publish_quota(&claim.value, &error.code, &error.message).await,
                Some(claim) if known.create_reason().needs_user_action() => {
                    self.publish_refusal(&claim.value, known.create_reason(), batch, &error.to_string()).await;
                }
                _ => {}
            }
            return self.give_up(waiting, DeletionReason::InsufficientCapacity, &error.to_string()).await;
        }
        // Since they were planned: this may not be their first call.
        let waited = oldest(&waiting, now);
        let is_refused = needs_user_action(&known, waited);
        let delay = match error.kind {
            _ if known.is_fleet_quota() => USER_ACTION_RETRY_DELAY,
            CloudErrorKind::Invalid if known.is_over_soon() && !is_refused => PASSING_RETRY_DELAY,
            CloudErrorKind::Unauthorized | CloudErrorKind::Invalid => USER_ACTION_RETRY_DELAY,
            _ => RETRY_DELAY,
        };
        self.report.count(if error.kind == CloudErrorKind::Throttled { "throttled" } else { "retried" });
        if let Some(claim) = waiting.first().filter(|_| known.is_fleet_quota()) {
            self.publish_quota(&claim.value, &error.code, &error.message).await;
        }
        let reason = match CreateReason::of(&error.to_string()) {
            CreateReason::LaunchFailed => known.launch_reason(),
            reason => reason,
        };
        if let Some(claim) = waiting.first().filter(|_| is_refused) {
            self.publish_refusal(&claim.value, reason, batch, &error.to_string()).await;
            self.look_at_profile(&known, batch, waited).await?;
        }
        let message = format!("{}: {error}", reason.advice());
        if self.has_started_nothing(batch, &error, &waiting, held).await? {
            // Another call, by what the class and EC2's capacity are then: the class may not be ready any more, or have been corrected.
            let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message };
            return self.replace_token(waiting, &batch.id, Some(&erred), delay).await;
        }
        self.keep_waiting(waiting, reason, &message, delay).await
    }

    /// These claims keep waiting for the same call, which is retried after `delay`.
    async fn keep_waiting(
        &self,
        waiting: Vec<Stored<Claim>>,
        reason: CreateReason,
        message: &str,
        delay: SignedDuration,
    ) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message: message.to_owned() };
        let mut changed = Vec::new();
        for claim in waiting {
            let mut next = step(&claim.value, &erred, now)?;
            next.look_again_at = now.checked_add(delay).ok();
            changed.push((claim, next));
        }
        let again = self.save_all(changed).await?;
        if again.is_empty() { Ok(()) } else { self.requeue(again, delay).await }
    }

    /// Stores changed claims and returns those that had not been changed since they were read.
    pub(crate) async fn save_all(&self, changed: Vec<(Stored<Claim>, Claim)>) -> Result<Vec<ClaimName>, HandleError> {
        let mut saved = Vec::new();
        for some in changed.chunks(CONCURRENCY) {
            let writes = some.iter().map(|(read, next)| async move { unless_outdated(save(self.ports.store(), read, next.clone()).await) });
            let written = try_join_all(writes).await?;
            saved.extend(written.into_iter().flatten().map(|claim| claim.value.key.name));
        }
        Ok(saved)
    }

    /// Sends a delayed doorbell for claims that this run has moved on, so that a concurrent run sends none for them, or that wait
    /// for user action: then rarely, and not beyond the launch timeout.
    pub(crate) async fn requeue(&self, claims: Vec<ClaimName>, delay: SignedDuration) -> Result<(), HandleError> {
        Ok(self.ports.queues().send(Doorbell::Launch { cluster: self.cluster.clone(), claims }, delay).await?)
    }

    /// Moves claims to one new batch: the call of their current one can launch nothing more for them.
    pub(crate) async fn replace_token(
        &self,
        claims: Vec<Stored<Claim>>,
        old: &str,
        why: Option<&Event>,
        delay: SignedDuration,
    ) -> Result<(), HandleError> {
        // The old token is part of the new one, so that no two attempts of a claim are ever the same call.
        let mut names: Vec<ClaimName> = claims.iter().map(|claim| claim.value.key.name.clone()).collect();
        names.push(ClaimName::new(old));
        let replaced = Event::TokenReplaced { from: old.to_owned(), to: plan::id_of(self.cluster, &names) };
        let now = self.ports.clock().now();
        let mut changed = Vec::new();
        for claim in claims {
            let erred = why.map_or_else(|| Ok(claim.value.clone()), |why| step(&claim.value, why, now));
            // A claim that moved on meanwhile needs no new token.
            let Ok(mut next) = erred.and_then(|claim| step(&claim, &replaced, now)) else { continue };
            next.look_again_at = now.checked_add(delay).ok();
            changed.push((claim, next));
        }
        let again = self.save_all(changed).await?;
        if again.is_empty() { Ok(()) } else { self.requeue(again, delay).await }
    }
}

fn api_error(error: &FleetPoolError) -> ApiError {
    ApiError::client(&error.code, &error.message)
}

fn reason_of(error: &FleetPoolError) -> CreateReason {
    api_error(error).launch_reason()
}

fn is_quota(error: &FleetPoolError) -> bool {
    let known = api_error(error);
    known.is_vcpu_quota() || known.is_fleet_quota()
}

/// What the errors of a fleet mean for the claims without an instance. When the fleet quota is used up, no other offering would
/// do better.
fn failure_without_instances(errors: &[FleetPoolError]) -> FleetFailure {
    match errors.iter().find(|error| api_error(error).is_fleet_quota()) {
        Some(error) => {
            let reason = CreateReason::FleetQuotaExceeded;
            FleetFailure::Create { reason, message: format!("{}: {}", reason.advice(), error.message) }
        }
        None => failure(errors),
    }
}

/// Whether retries are futile until the account, its permissions or the node class are changed. That EC2 does not know an instance profile
/// says so only if a launch has waited for longer than it takes to learn of one.
fn needs_user_action(error: &ApiError, waited: SignedDuration) -> bool {
    let is_unusable = error.is_of_instance_profile() && waited >= PROFILE_KNOWN_AFTER;
    error.create_reason().needs_user_action() || error.is_rejected() || is_unusable
}

/// The claim with the instance assigned to it. Pure.
fn with_instance(facts: &Facts, batch: &Batch, instance: &FleetInstance, claim: &Claim, now: Timestamp) -> Result<Claim, HandleError> {
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
