//! What the response of CreateFleet, or its failure, means for the claims of the call.

use crate::batch::Batch;
use crate::failure::{CallDisposition, CallFailure, Notice, Shortfall, api_error, reason_of};
use crate::{RETRY_DELAY, Rights, Run, USER_ACTION_RETRY_DELAY, machine, oldest};
use whittle_claims::{Claim, DeletionReason, Event, Phase, Stored};
use whittle_ec2::errors::CreateReason;
use whittle_ec2::fleet::{FleetAnswer, FleetFailure, FleetInstance};
use whittle_ports::{Clock, CloudError, CloudErrorKind, HandleError, RegionStore, Safeguard, metrics};
use whittle_units::{SignedDuration, Timestamp};

/// Delay before the instances of a fleet are looked up again.
const FLEET_POLL_DELAY: SignedDuration = SignedDuration::from_secs(15);
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
        let waited = oldest(&waiting, now);
        let Shortfall { quota, refusal, failure, retry_delay } = Shortfall::of(&answer.errors, waited);
        if let (Some(error), Some(claim)) = (quota, waiting.first()) {
            self.publish_quota(&claim.value, &error.code, &error.message).await;
        }
        if let (Some(error), Some(claim)) = (refusal, waiting.first()) {
            self.publish_refusal(&claim.value, reason_of(error), batch, &api_error(error).to_string()).await;
            self.look_at_profile(&api_error(error), batch, waited).await?;
        }
        match failure {
            FleetFailure::InsufficientCapacity(message) => self.give_up(waiting, DeletionReason::InsufficientCapacity, &message).await,
            FleetFailure::Create { reason, message } => {
                // The same client token would return the same response, so the next attempt is a new call.
                waiting.iter().for_each(|_| self.report.count("retried"));
                let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message };
                self.replace_token(waiting, &batch.id, Some(&erred), retry_delay).await
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

    /// A call that failed as a whole. `alive` are instances that it started when it was made before; `just_stored` as for [`Run::call`].
    pub(crate) async fn failed(
        &mut self,
        batch: &Batch,
        error: CloudError,
        alive: &[FleetInstance],
        just_stored: Option<&[Stored<Claim>]>,
    ) -> Result<(), HandleError> {
        if !alive.is_empty() {
            // They run and cost money, whatever becomes of the others.
            self.assign_instances(batch, alive, None).await?;
        }
        let now = self.ports.clock().now();
        let waiting = self.waiting(batch).await?;
        let waited = oldest(&waiting, now);
        let failure = CallFailure::of(&error, waited);
        let delay = match failure.disposition {
            CallDisposition::GiveUp => {
                let outs = machine::whole_call_stock_outs(&self.facts, batch, &error.code, &error.message, now);
                self.ports.store().put_stock_outs(&outs).await?;
                self.publish_failure_of_call(batch, &failure, &error, waiting.first()).await;
                return self.give_up(waiting, DeletionReason::InsufficientCapacity, &error.to_string()).await;
            }
            CallDisposition::Retry(delay) => delay,
        };
        self.report.count(if error.kind == CloudErrorKind::Throttled { "throttled" } else { "retried" });
        self.publish_failure_of_call(batch, &failure, &error, waiting.first()).await;
        if failure.notice == Some(Notice::Refusal) && !waiting.is_empty() {
            self.look_at_profile(&failure.error, batch, waited).await?;
        }
        let message = format!("{}: {error}", failure.reason.advice());
        if self.has_started_nothing(batch, &error, &waiting, just_stored).await? {
            // Another call, by what the class and EC2's capacity are then: the class may not be ready any more, or have been corrected.
            let erred = Event::LaunchErred { reason: failure.reason.as_str().to_owned(), message };
            return self.replace_token(waiting, &batch.id, Some(&erred), delay).await;
        }
        self.keep_waiting(waiting, failure.reason, &message, delay).await
    }
}
