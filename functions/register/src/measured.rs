//! Stores how much memory new nodes report, and which of their resources are smaller than planned, for the types of the catalog (aws 3.8).

use crate::{Rights, Run};
use std::collections::BTreeSet;
use whittle_api::k8s::Node;
use whittle_claims::{Claim, DecisionKind, MeasuredMemory, Measurement, Phase, ShortAmount, Shortfall};
use whittle_ports::{ClusterEvent, HandleError, Involved, Report, Update, update_record};
use whittle_units::{Quantity, Resources, Timestamp};

/// Attempts to store measurements against concurrent runs; after that they are dropped: the next node reports the same.
const WRITE_ATTEMPTS_MAX: usize = 3;

/// The node of a claim, among those of its machine, if the claim has just been initialized: its kubelet has then reported all that it has.
fn initialized_node<'a>(before: &Claim, after: &Claim, nodes: &[&'a Node]) -> Option<&'a Node> {
    let is_new = !matches!(before.phase, Phase::Initialized { .. }) && matches!(after.phase, Phase::Initialized { .. });
    nodes.iter().copied().find(|node| is_new && Some(node.metadata.name.as_str()) == after.node_name())
}

/// The memory of the node of a claim that has just been initialized.
pub(crate) fn measurement(before: &Claim, after: &Claim, nodes: &[&Node]) -> Option<Measurement> {
    let status = &initialized_node(before, after, nodes)?.status;
    Measurement::of(after, status.capacity.get("memory"), &status.allocatable)
}

/// Of what the node of a claim that has just been initialized has too little for the pods that it was launched for.
pub(crate) fn shortfall(before: &Claim, after: &Claim, nodes: &[&Node]) -> Option<Shortfall> {
    Shortfall::of(after, &initialized_node(before, after, nodes)?.status.allocatable)
}

/// What the type of a node that is too small is planned with from now on, because another node confirms it. Pure.
fn learned(written: &[MeasuredMemory], short: &Shortfall, now: Timestamp) -> Resources {
    let of_image = written.iter().find(|known| known.image_id == short.image_id);
    let most = of_image.and_then(|known| known.too_little_of(&short.class_hash, now).remove(&short.instance_type)).unwrap_or_default();
    let is_less = |resource: &str, most: Quantity| {
        let planned = |one: &ShortAmount| one.planned.plus(one.of_types).minus(one.found);
        short.amounts.iter().any(|one| one.resource == resource && most < planned(one))
    };
    most.iter().filter(|(resource, most)| is_less(resource, *most)).map(|(resource, most)| (resource.to_owned(), most)).collect()
}

/// A shortfall in words, with what is learned from it and what helps. Pure.
fn message(claim: &Claim, short: &Shortfall, learned: &Resources) -> String {
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
    let most: Vec<String> = learned.iter().map(|(resource, most)| format!("{resource} {}", most.text_of(resource))).collect();
    let then = if !most.is_empty() {
        let most = most.join(", ");
        format!("Another node of this type was too small as well: it is planned with at most {most} from now on, for a day")
    } else if short.is_believed() {
        "If a second node of this type is as small within two days, the type is planned with that for a day".to_owned()
    } else {
        "So little is not used for plans, and more of these machines may be launched for the same pods".to_owned()
    };
    format!(
        "Node {node} ({}) is smaller than planned, and pods that it was launched for do not fit: {}. {then}, unless the EC2NodeClass or \
         its image changes. Settings outside of the EC2NodeClass are the usual cause, such as kubelet settings in spec.userData or in the \
         AMI: say the same in spec.kubelet (kubeReserved, systemReserved, maxPods) and spec.blockDeviceMappings of EC2NodeClass {class}",
        short.instance_type,
        amounts.collect::<Vec<_>>().join("; ")
    )
}

/// The Events that machines are too small for the pods that they were launched for: on the NodeClaim, and on the NodePool, which stays when
/// the machine has gone as empty. Of the nodes of one pool and type that came together the pool tells of the first. `written` has what is
/// known of such machines by now.
pub(crate) fn events_of(
    short: &[(Claim, Shortfall)],
    written: &[MeasuredMemory],
    now: Timestamp,
    report: &mut Report,
) -> Vec<ClusterEvent> {
    let (mut events, mut told) = (Vec::new(), BTreeSet::new());
    for (claim, short) in short {
        let message = message(claim, short, &learned(written, short, now));
        report.count("too_small");
        report.decide(now, DecisionKind::Initialized, format!("nodeclaim/{}", claim.key.name), message.clone());
        let (of_claim, of_owner) = (Involved::claim(claim), Involved::owner(claim));
        if of_owner != of_claim && told.insert((&claim.spec.owner.uid, &short.instance_type)) {
            events.push(ClusterEvent::warning(of_owner, "NodeTooSmall", message.clone()));
        }
        events.push(ClusterEvent::warning(of_claim, "NodeTooSmall", message));
    }
    events
}

impl<P: Rights> Run<'_, P> {
    /// Stores the measurements of a run, by image. What was written.
    pub(crate) async fn store_measurements(
        &self,
        new: &[Measurement],
        short: &[(Claim, Shortfall)],
        report: &mut Report,
    ) -> Result<Vec<MeasuredMemory>, HandleError> {
        let short: Vec<Shortfall> = short.iter().map(|(_, short)| short.clone()).collect();
        let mut all = Vec::new();
        let of_short = short.iter().filter(|one| one.is_believed()).map(|one| one.image_id.as_str());
        let images: BTreeSet<&str> = new.iter().map(|one| one.image_id.as_str()).chain(of_short).collect();
        for image in images {
            let next = |known: Option<MeasuredMemory>, now| MeasuredMemory::after(known.as_ref(), image, new, &short, now);
            if let Update::Written(written) = update_record(self.ports, self.cluster, image, WRITE_ATTEMPTS_MAX, next).await? {
                report.count("measured");
                all.push(written);
            }
        }
        Ok(all)
    }
}
