//! Stores how much memory new nodes report, and of what they have too little, for the types of the catalog (aws 3.8).

use crate::{Rights, Run};
use std::collections::BTreeSet;
use whittle_api::k8s::Node;
use whittle_claims::{Claim, DecisionKind, MeasuredMemory, Measurement, Phase, Shortfall};
use whittle_ports::{ClusterEvent, HandleError, Involved, Report, Update, publish_event, update_record};
use whittle_units::{Quantity, Timestamp};

/// Attempts to store measurements against concurrent runs; after that they are dropped: the next node reports the same.
const WRITE_ATTEMPTS_MAX: usize = 3;

/// The node of a claim, if the claim has just been initialized: its kubelet has then reported all that it has.
fn initialized_node<'a>(before: &Claim, after: &Claim, nodes: &'a [Node]) -> Option<&'a Node> {
    let is_new = !matches!(before.phase, Phase::Initialized { .. }) && matches!(after.phase, Phase::Initialized { .. });
    nodes.iter().find(|node| is_new && Some(node.metadata.name.as_str()) == after.node_name())
}

/// The memory of the node of a claim that has just been initialized.
pub(crate) fn measurement(before: &Claim, after: &Claim, nodes: &[Node]) -> Option<Measurement> {
    Measurement::of(after.machine()?, initialized_node(before, after, nodes)?.status.capacity.get("memory"))
}

/// Of what the node of a claim that has just been initialized has too little for the pods that it was launched for.
pub(crate) fn shortfall(before: &Claim, after: &Claim, nodes: &[Node]) -> Option<Shortfall> {
    Shortfall::of(after, &initialized_node(before, after, nodes)?.status.allocatable)
}

/// A shortfall in words, with what helps. Pure.
fn message(claim: &Claim, short: &Shortfall) -> String {
    let amounts = short.amounts.iter().map(|short| {
        let text = |amount: Quantity| amount.text_of(short.resource);
        format!(
            "{} {} allocatable instead of {}, of which its pods need {}",
            short.resource,
            text(short.found),
            text(short.planned),
            text(short.requested)
        )
    });
    let node = claim.node_name().unwrap_or_default();
    let class = &claim.spec.node_class.name;
    let then = if short.is_believed() {
        "Machines of this type are planned with that from now on"
    } else {
        "So little is not used for plans, and more of these machines may be launched for the same pods"
    };
    format!(
        "Node {node} ({}) is smaller than planned, and pods that it was launched for do not fit: {}. {then}, until the EC2NodeClass or its \
         image changes. Settings outside of the EC2NodeClass are the usual cause, such as kubelet settings in spec.userData or in the AMI: \
         say the same in spec.kubelet (kubeReserved, systemReserved, maxPods) and spec.blockDeviceMappings of EC2NodeClass {class}",
        short.instance_type,
        amounts.collect::<Vec<_>>().join("; ")
    )
}

impl<P: Rights> Run<'_, P> {
    /// Tells that a machine is too small for the pods that it was launched for: on the NodeClaim, and on the NodePool, which stays when the
    /// machine has gone as empty. Best effort.
    pub(crate) async fn report_shortfall(&self, claim: &Claim, short: &Shortfall, now: Timestamp, report: &mut Report) {
        let message = message(claim, short);
        report.count("too_small");
        report.decide(now, DecisionKind::Initialized, format!("nodeclaim/{}", claim.key.name), message.clone());
        let mut objects = vec![Involved::claim(claim), Involved::owner(claim)];
        objects.dedup();
        for about in objects {
            publish_event(self.ports.cluster(), self.cluster, &ClusterEvent::warning(about, "NodeTooSmall", message.clone())).await;
        }
    }

    /// Stores the measurements of a run, by image.
    pub(crate) async fn store_measurements(
        &self,
        new: &[Measurement],
        short: &[Shortfall],
        report: &mut Report,
    ) -> Result<(), HandleError> {
        let of_short = short.iter().filter(|one| one.is_believed()).map(|one| one.image_id.as_str());
        let images: BTreeSet<&str> = new.iter().map(|one| one.image_id.as_str()).chain(of_short).collect();
        for image in images {
            let next = |known: Option<MeasuredMemory>, now| MeasuredMemory::after(known.as_ref(), image, new, short, now);
            if let Update::Written(_) = update_record(self.ports, self.cluster, image, WRITE_ATTEMPTS_MAX, next).await? {
                report.count("measured");
            }
        }
        Ok(())
    }
}
