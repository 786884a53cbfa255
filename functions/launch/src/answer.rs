//! What the response of CreateFleet, or its failure, means for the claims of the call.

use crate::batch::Batch;
use crate::refusals::PROFILE_KNOWN_AFTER;
use crate::{RETRY_DELAY, Rights, Run, USER_ACTION_RETRY_DELAY, machine, oldest};
use whittle_claims::{Claim, DeletionReason, Event, Phase, Stored};
use whittle_ec2::errors::{ApiError, CreateReason, Fault};
use whittle_ec2::fleet::{FleetAnswer, FleetFailure, FleetInstance, FleetPoolError, failure};
use whittle_ports::{Clock, CloudError, CloudErrorKind, HandleError, RegionStore, Safeguard, metrics};
use whittle_units::{SignedDuration, Timestamp};

/// Delay before the instances of a fleet are looked up again.
const FLEET_POLL_DELAY: SignedDuration = SignedDuration::from_secs(15);
/// Delay before a call is made anew of which EC2 was too busy, or did not know something new such as the instance profile: IAM takes some
/// ten seconds to tell it.
const PASSING_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(5);
/// How long the outcome of a call may stay unknown: EC2 shows the instances that it started much sooner.
pub(crate) const OUTCOME_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

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

    /// The members that still wait for an instance of this batch.
    async fn waiting(&self, batch: &Batch) -> Result<Vec<Stored<Claim>>, HandleError> {
        let mut members = self.members(batch).await?;
        members.retain(|claim| matches!(&claim.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id));
        Ok(members)
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
