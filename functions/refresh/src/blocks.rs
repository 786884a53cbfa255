//! Looks up the capacity blocks that claims run in, by the ids on their labels: a class may select others since, or be gone
//! (lifecycle 10).

use crate::{Done, Rights, Run};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::CapacityReservationSelectorTerm;
use whittle_claims::{BlockEnds, Claim, Stored};
use whittle_ports::{CloudErrorKind, Discovery, HandleError, update_record};

impl<P: Rights> Run<'_, P> {
    /// Stores when the blocks end that claims name. Without such a claim nothing is asked, read or written.
    pub(crate) async fn look_up_blocks(&self, claims: &[Stored<Claim>], done: &mut Done) -> Result<(), HandleError> {
        let named: BTreeSet<&str> = claims.iter().filter_map(|claim| BlockEnds::block_of(&claim.value)).collect();
        if named.is_empty() {
            return Ok(());
        }
        let (mut found, mut failure) = (BTreeMap::new(), None);
        // Each by itself: an id that EC2 refuses must not hide the end of the others.
        for id in &named {
            let term = CapacityReservationSelectorTerm { id: Some((*id).to_owned()), ..CapacityReservationSelectorTerm::default() };
            match self.ports.cloud().capacity_reservations(&[term]).await {
                Ok(shown) => {
                    let block = shown.iter().find(|shown| shown.kind == BlockEnds::CAPACITY_BLOCK);
                    found.insert((*id).to_owned(), block.and_then(|block| block.ends_at));
                }
                // No id of a reservation: somebody changed the label of a NodeClaim that was adopted.
                Err(error) if error.kind == CloudErrorKind::Invalid => {
                    tracing::warn!(%error, %id, "a claim's capacity reservation cannot be looked up");
                    found.insert((*id).to_owned(), None);
                }
                // The last known end stays; the next run asks again.
                Err(error) => {
                    done.report.count("blocks_failed");
                    failure.get_or_insert(HandleError::Cloud(error));
                }
            }
        }
        // Also after a failure: `sweep` asks for the next look once this one is old.
        let next = |known: Option<BlockEnds>, now| Some(BlockEnds::after(known, &found, &named, now));
        update_record(self.ports, self.cluster, BlockEnds::NAME, 1, next).await?;
        failure.map_or(Ok(()), Err)
    }
}
