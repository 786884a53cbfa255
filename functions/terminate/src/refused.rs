//! EC2 or the API server refuses, and goes on refusing until somebody mends it: what is said, to whom, and what they can do.

use crate::{Rights, Run};
use whittle_claims::Claim;
use whittle_ec2::errors::CreateReason;
use whittle_ports::{CloudError, CloudErrorKind, ClusterError, ClusterEvent, Involved, Report, StatusWriter, metrics};

/// EC2's code where an instance has termination protection.
const PROTECTED: &str = "OperationNotPermitted";
/// The call whose refusal the instance itself may be the cause of.
const END: &str = "TerminateInstances";

/// Why, as the metric has it, and what a person can do about it.
fn cause(error: &CloudError) -> (&'static str, String) {
    let role = "let the role of terminate make this call";
    match (&error.kind, error.code.as_str(), error.call) {
        (_, PROTECTED, _) => ("TerminationProtection", "switch the instance's termination protection off".to_owned()),
        (CloudErrorKind::Unauthorized, _, call) => {
            let said = CreateReason::of(&format!("{}: {}", error.code, error.message)).advice();
            let tags = "; it may end what has the tags eks:eks-cluster-name, karpenter.sh/nodepool and whittle.dev/launch: put them back";
            ("Unauthorized", format!("{said}: {role}{}", if call == END { tags } else { "" }))
        }
        _ => ("Refused", "see what EC2 says, or end the instance by hand".to_owned()),
    }
}

impl<P: Rights> Run<P> {
    /// Tells people that EC2 does not let the machine of a claim end: an error in the log, a metric for an alarm, and an Event on
    /// NodeClaim and Node. That they cannot be told stops nothing.
    pub(crate) async fn tell(&mut self, error: &CloudError) {
        let claim = &self.claim.value;
        let machine = claim.machine().map(|machine| format!("instance {}", machine.instance_id));
        let what = machine.unwrap_or_else(|| format!("what was launched for NodeClaim {}", claim.key.name));
        let (reason, remedy) = cause(error);
        tracing::error!(claim = %claim.key, what, reason, %error, remedy, "EC2 refuses to end the machine");
        self.report.count("refused");
        self.report.metric(metrics::TerminationsRefused { nodepool: &claim.spec.node_pool, reason });
        let message = format!("EC2 refuses the end of {what}: {error}. To do: {remedy}");
        for about in [Some(Involved::claim(claim)), claim.node_name().map(Involved::node)].into_iter().flatten() {
            let _ =
                self.ports.cluster().publish(&claim.key.cluster, &ClusterEvent::warning(about, "FailedTermination", message.clone())).await;
        }
    }
}

/// The API server stopped the work on a claim. That somebody was quicker is nobody's business; that it does not answer, or lets
/// nobody in, holds up every drain, and counts as a failed run for the alarm, although the claim is looked at again soon.
pub(crate) fn by_cluster(claim: &Claim, error: &ClusterError, report: &mut Report) {
    if matches!(error, ClusterError::Conflict { .. } | ClusterError::NotFound { .. } | ClusterError::EvictionForbidden { .. }) {
        return;
    }
    tracing::error!(claim = %claim.key, %error, "the API server stops the end of a NodeClaim");
    report.metric(metrics::FailedRuns);
}
