//! Errors of EC2 or the API server that persist until their cause is fixed: what is reported, where, and the remedy. And why EC2 ended an
//! instance.

use crate::{Rights, Run};
use whittle_api::conditions::{self, REGISTERED};
use whittle_api::labels;
use whittle_claims::{Claim, Function, Machine, OfferingKey, Phase, StockOut};
use whittle_ec2::errors::CreateReason;
use whittle_ec2::instance::StateReason;
use whittle_ports::{Clock, CloudError, CloudErrorKind, ClusterError, ClusterEvent, Involved, RegionStore, Report, metrics, publish_event};

/// EC2's error code for an instance with termination protection.
const TERMINATION_PROTECTED: &str = "OperationNotPermitted";
/// The call that may fail because of the instance's own attributes.
const TERMINATE_CALL: &str = "TerminateInstances";

/// The reason for the metric, and the remedy for the user.
fn cause(error: &CloudError) -> (&'static str, String) {
    let role = "allow this call for the role of terminate";
    match (&error.kind, error.code.as_str(), error.call) {
        (_, TERMINATION_PROTECTED, _) => ("TerminationProtection", "disable termination protection of the instance".to_owned()),
        (CloudErrorKind::Unauthorized, _, call) => {
            let advice = CreateReason::of(&format!("{}: {}", error.code, error.message)).advice();
            let tags = "; it may terminate instances with the tags eks:eks-cluster-name, karpenter.sh/nodepool and whittle.dev/launch: restore them";
            ("Unauthorized", format!("{advice}: {role}{}", if call == TERMINATE_CALL { tags } else { "" }))
        }
        _ => ("Refused", "see EC2's message, or terminate the instance manually".to_owned()),
    }
}

impl<P: Rights> Run<'_, P> {
    /// Reports that EC2 refuses to terminate the instance of a claim: an error in the log, a metric for an alarm, and an Event on
    /// NodeClaim and Node. Best effort.
    pub(crate) async fn report_refusal(&mut self, error: &CloudError) {
        let claim = &self.claim.value;
        let machine = claim.machine().map(|machine| format!("instance {}", machine.instance_id));
        let what = machine.unwrap_or_else(|| format!("what was launched for NodeClaim {}", claim.key.name));
        let (reason, remedy) = cause(error);
        tracing::error!(claim = %claim.key, what, reason, %error, remedy, "EC2 refuses to terminate the instance");
        self.report.count("refused");
        self.report.metric(metrics::TerminationsRefused { nodepool: &claim.spec.node_pool, reason });
        let message = format!("EC2 refuses to terminate {what}: {error}. Remedy: {remedy}");
        for about in [Some(Involved::claim(claim)), claim.node_name().map(Involved::node)].into_iter().flatten() {
            let event = ClusterEvent::warning(about, "FailedTermination", message.clone());
            publish_event(self.ports.cluster(), &claim.key.cluster, &event).await;
        }
    }

    /// Reports that the API server does not let the Node of an instance go that has terminated: a metric for an alarm, and an Event on the
    /// Node. Best effort.
    pub(crate) async fn report_kept_node(&mut self, node: &str, machine: &Machine, error: &ClusterError) {
        let claim = &self.claim.value;
        report_cluster_error(claim, error, &mut self.report);
        self.report.count("node_kept");
        let message = format!(
            "Instance {} has terminated, and the API server does not let its Node go: {error}. Remedy: have the policy or webhook take the \
             deletion of Nodes and the removal of the finalizer {}; it is tried again",
            machine.instance_id,
            labels::TERMINATION_FINALIZER
        );
        let event = ClusterEvent::warning(Involved::node(node), "FailedReleasing", message);
        publish_event(self.ports.cluster(), &claim.key.cluster, &event).await;
    }

    /// Reports that the API server refuses to let the NodeClaim of an ended claim go: an Event on it. Best effort.
    pub(crate) async fn report_kept_mirror(&self, error: &ClusterError) {
        let claim = &self.claim.value;
        let (ClusterError::Invalid { .. }, Phase::Failed { .. } | Phase::Gone { .. }) = (error, &claim.phase) else { return };
        let message = format!(
            "There is no machine any more, and the API server refuses to let the NodeClaim go: {error}. Remedy: have the policy take the \
             deletion of NodeClaims and the removal of the finalizer {}; it is tried again every minute",
            labels::TERMINATION_FINALIZER
        );
        let event = ClusterEvent::warning(Involved::claim(claim), "FailedReleasing", message);
        publish_event(self.ports.cluster(), &claim.key.cluster, &event).await;
    }

    /// Reports that EC2 ended an instance before its Node joined, for a reason that will end the next one as well: EC2 takes the launch,
    /// and refuses its volumes afterwards. As `launch` reports what EC2 refuses at once. Best effort.
    pub(crate) async fn report_early_end(&mut self, machine: &Machine, cause: &StateReason) {
        let claim = &self.claim.value;
        let Some(remedy) = cause.remedy().filter(|_| !conditions::is_true(&claim.conditions, REGISTERED)) else { return };
        let (id, nodepool) = (&machine.instance_id, claim.spec.node_pool.as_str());
        tracing::error!(claim = %claim.key, instance = %id, nodepool, %cause, remedy, "EC2 ended an instance before its node joined");
        self.report.count("ended_early");
        self.report.metric(metrics::LaunchesRefused { nodepool, reason: CreateReason::LaunchFailed.as_str() });
        let message = format!(
            "EC2 started {id} ({} in {}) and ended it before its node joined: {remedy}. EC2 reports {cause}",
            machine.instance_type, machine.zone
        );
        let event = ClusterEvent::warning(Involved::owner(claim), "LaunchRefused", message);
        publish_event(self.ports.cluster(), &claim.key.cluster, &event).await;
    }

    /// Remembers that EC2 has no capacity for an instance that it took and then ended for that: the next one would be of the same offering.
    /// Best effort.
    pub(crate) async fn store_stock_out(&mut self, machine: &Machine, cause: &StateReason) {
        if !cause.is_stock_out() {
            return;
        }
        let reservation = machine.labels.get(labels::RESERVATION_ID);
        let offering = reservation.map_or_else(|| offering_of(machine), |id| OfferingKey::of_reservation(id));
        let (store, now) = (self.ports.store(), self.ports.clock().now());
        let stored = match store.stock_outs(now).await {
            Ok(known) => {
                let old = known.iter().find(|out| out.offering == offering);
                store.put_stock_outs(&[StockOut::after_failure(old, offering, &cause.code, now)]).await
            }
            Err(error) => Err(error),
        };
        match stored {
            Ok(()) => self.report.count("stock_outs"),
            Err(error) => tracing::warn!(%error, claim = %self.claim.value.key, "a stock-out could not be stored"),
        }
    }
}

fn offering_of(machine: &Machine) -> OfferingKey {
    OfferingKey {
        instance_type: machine.instance_type.clone(),
        zone: machine.zone.clone(),
        capacity_type: machine.capacity_type.clone(),
        placement_group: machine.labels.get(labels::PLACEMENT_GROUP_ID).cloned(),
        partition: machine.labels.get(labels::PLACEMENT_GROUP_PARTITION).and_then(|partition| partition.parse().ok()),
        ..OfferingKey::default()
    }
}

/// Reports an error of the API server. A lost race is not worth a report; an API server that does not respond or denies access
/// holds up every drain, and counts as a failed run for the alarm, although the claim is retried soon.
pub(crate) fn report_cluster_error(claim: &Claim, error: &ClusterError, report: &mut Report) {
    if matches!(error, ClusterError::Conflict { .. } | ClusterError::NotFound { .. } | ClusterError::EvictionForbidden { .. }) {
        return;
    }
    tracing::error!(claim = %claim.key, %error, "the API server blocks the termination of a NodeClaim");
    report.metric(metrics::FailedRuns { function: Function::Terminate.name() });
}
