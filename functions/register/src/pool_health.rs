//! What launches say about their pool (disruption 17.5): remembered, and shown on the NodePool.

use crate::{Rights, Run};
use whittle_api::ClusterObjects;
use whittle_api::conditions::{REGISTERED, is_true};
use whittle_api::karpenter::NodePool;
use whittle_claims::{Claim, DeletionReason, LaunchOutcome, PoolHealth, Revision, show_health};
use whittle_ports::{Clock, HandleError, Records, Report, StatusWriter, StoreError};
use whittle_snapshot::class_generation;

/// Of two runs that remember at once, one does so after the other; more often than this the memory is not worth it.
const TRIES: usize = 3;

/// What a pass over a claim says about its pool.
pub(crate) fn outcome(before: &Claim, after: &Claim) -> Option<LaunchOutcome> {
    if !is_true(&before.conditions, REGISTERED) && is_true(&after.conditions, REGISTERED) {
        return Some(LaunchOutcome::Registered);
    }
    let given_up = before.deletion.is_none()
        && after
            .deletion
            .as_ref()
            .is_some_and(|deletion| matches!(deletion.reason, DeletionReason::LaunchTimeout | DeletionReason::RegistrationTimeout));
    given_up.then(|| LaunchOutcome::given_up(after))
}

/// The pool that a claim speaks for: the one that owns it. One of the same name that was made later is another.
pub(crate) fn pool_of<'a>(claim: &Claim, objects: &'a ClusterObjects) -> Option<&'a NodePool> {
    let owner = &claim.spec.owner;
    let owns = |pool: &&NodePool| pool.metadata.name == owner.name && !owner.uid.is_empty() && pool.metadata.uid == owner.uid;
    objects.node_pools.iter().find(owns)
}

impl<P: Rights> Run<'_, P> {
    /// Remembers the outcomes of a run and shows what follows. That it cannot be shown stops nothing: the next sweep shows it.
    pub(crate) async fn remember(&self, outcomes: Vec<(&NodePool, LaunchOutcome)>, report: &mut Report) -> Result<(), HandleError> {
        for pool in &self.objects.node_pools {
            let of_pool = outcomes.iter().filter(|(of, _)| of.metadata.uid == pool.metadata.uid);
            let new: Vec<LaunchOutcome> = of_pool.map(|(_, outcome)| outcome.clone()).collect();
            if new.is_empty() {
                continue;
            }
            let Some(health) = self.keep_health(pool, class_generation(pool, self.objects), &new).await? else { continue };
            let mut shown = pool.clone();
            show_health(&mut shown, class_generation(pool, self.objects), Some(&health), self.ports.clock().now());
            if shown.status != pool.status && self.ports.cluster().write_node_pool_status(self.cluster, &shown).await.is_err() {
                report.count("statuses_failed");
            }
        }
        Ok(())
    }

    async fn keep_health(
        &self,
        pool: &NodePool,
        class_generation: Option<i64>,
        new: &[LaunchOutcome],
    ) -> Result<Option<PoolHealth>, HandleError> {
        for _ in 0..TRIES {
            let known = self.ports.store().read::<PoolHealth>(self.cluster, &pool.metadata.name).await?;
            let next = PoolHealth::after(known.as_ref().map(|known| &known.value), pool, class_generation, new);
            let expected = known.map_or(Revision::ABSENT, |known| known.revision);
            match self.ports.store().write(self.cluster, &next, expected).await {
                Ok(_) => return Ok(Some(next)),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
