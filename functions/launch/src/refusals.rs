//! What is done about launches that fail until a person changes something: users are told, and a class is looked at again.

use crate::batch::Batch;
use crate::failure::{CallFailure, Notice};
use crate::{PROFILE_KNOWN_AFTER, Rights, Run, USER_ACTION_RETRY_DELAY};
use whittle_claims::{Claim, Doorbell, NodeClassRecord, Stored};
use whittle_ec2::errors::{ApiError, CreateReason};
use whittle_ports::{Clock, CloudError, ClusterEvent, HandleError, Involved, Queues, metrics, publish_event};
use whittle_units::SignedDuration;

impl<P: Rights> Run<'_, P> {
    /// Tells users of a call that failed as a whole, if they have to act and a claim still waits for it. Best effort.
    pub(crate) async fn publish_failure_of_call(
        &mut self,
        batch: &Batch,
        failure: &CallFailure,
        error: &CloudError,
        waiting: Option<&Stored<Claim>>,
    ) {
        match (failure.notice, waiting) {
            (Some(Notice::Quota), Some(claim)) => self.publish_quota(&claim.value, &error.code, &error.message).await,
            (Some(Notice::Refusal), Some(claim)) => {
                self.publish_refusal(&claim.value, failure.reason, batch, &error.to_string()).await;
            }
            (None, _) | (_, None) => {}
        }
    }

    /// Only a person can request a quota increase, so the NodePool gets an Event. Publishing is best effort.
    pub(crate) async fn publish_quota(&mut self, claim: &Claim, code: &str, message: &str) {
        self.report.count("quota");
        let (about, reason) = (Involved::owner(claim), CreateReason::of(&format!("{code}: {message}")));
        let advice = reason.advice();
        let text = format!("{advice}; request an increase in Service Quotas, or set limits on the pool. EC2 reports {code}: {message}");
        tracing::warn!(cluster = %claim.key.cluster, nodepool = %claim.spec.node_pool, code, "{advice}");
        publish_event(self.ports.cluster(), &claim.key.cluster, &ClusterEvent::warning(about, "QuotaExceeded", text)).await;
    }

    /// A launch that needs user action: an error in the log, a metric for an alarm, and an Event on the NodePool.
    pub(crate) async fn publish_refusal(&mut self, claim: &Claim, reason: CreateReason, batch: &Batch, error_text: &str) {
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
    pub(crate) async fn look_at_profile(&self, error: &ApiError, batch: &Batch, waited: SignedDuration) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let is_first = waited < PROFILE_KNOWN_AFTER + USER_ACTION_RETRY_DELAY;
        let is_older = |record: &NodeClassRecord| now.duration_since(record.resolved_at) > waited;
        if is_first && error.is_of_instance_profile() && self.facts.class(&batch.node_class).is_some_and(is_older) {
            self.ports.queues().send_now(Doorbell::Refresh { cluster: self.cluster.clone() }).await?;
        }
        Ok(())
    }
}
