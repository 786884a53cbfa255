//! Stores how much memory new nodes report, for the types of the catalog (aws 3.8).

use crate::{Rights, Run};
use std::collections::BTreeSet;
use whittle_api::k8s::Node;
use whittle_claims::{Claim, MeasuredMemory, Measurement, Phase};
use whittle_ports::{HandleError, Report, Update, update_record};

/// Attempts to store measurements against concurrent runs; after that they are dropped: the next node reports the same.
const WRITE_ATTEMPTS_MAX: usize = 3;

/// What the node of a claim reports, if the claim has just been initialized: its kubelet has then reported all of its capacity.
pub(crate) fn measurement(before: &Claim, after: &Claim, nodes: &[Node]) -> Option<Measurement> {
    let is_new = !matches!(before.phase, Phase::Initialized { .. }) && matches!(after.phase, Phase::Initialized { .. });
    let node = nodes.iter().find(|node| is_new && Some(node.metadata.name.as_str()) == after.node_name())?;
    Measurement::of(after.machine()?, node.status.capacity.get("memory"))
}

impl<P: Rights> Run<'_, P> {
    /// Stores the measurements of a run, by image.
    pub(crate) async fn store_measurements(&self, new: &[Measurement], report: &mut Report) -> Result<(), HandleError> {
        let images: BTreeSet<&str> = new.iter().map(|one| one.image_id.as_str()).collect();
        for image in images {
            let next = |known: Option<MeasuredMemory>, now| MeasuredMemory::after(known.as_ref(), image, new, now);
            if let Update::Written(_) = update_record(self.ports, self.cluster, image, WRITE_ATTEMPTS_MAX, next).await? {
                report.count("measured");
            }
        }
        Ok(())
    }
}
