//! Stores launch outcomes per pool, and writes the health that follows to the NodePool (disruption 17.5).

use crate::index::Index;
use crate::{Rights, Run};
use whittle_api::OwnerReference;
use whittle_api::conditions::{REGISTERED, is_true};
use whittle_api::karpenter::NodePool;
use whittle_claims::{Claim, DeletionReason, LaunchOutcome, PoolHealth, update_health};
use whittle_ports::{Clock, ClusterReader, HandleError, Report, Scope, StatusWriter, Update, update_record};
use whittle_snapshot::class_generation;
use whittle_units::ClusterName;

/// Attempts to store the outcomes against concurrent runs; after that they are dropped.
const WRITE_ATTEMPTS_MAX: usize = 3;

/// The launch outcome that follows from a change of a claim.
pub(crate) fn outcome(before: &Claim, after: &Claim) -> Option<LaunchOutcome> {
    if !is_true(&before.conditions, REGISTERED) && is_true(&after.conditions, REGISTERED) {
        return Some(LaunchOutcome::Registered);
    }
    let given_up = before.deletion.is_none()
        && after
            .deletion
            .as_ref()
            .is_some_and(|deletion| matches!(deletion.reason, DeletionReason::LaunchTimeout | DeletionReason::RegistrationTimeout));
    given_up.then(|| LaunchOutcome::timed_out(after))
}

/// Whether a pool is that of an outcome. A later pool of the same name is another one.
fn owns(pool: &NodePool, owner: &OwnerReference) -> bool {
    pool.metadata.name == owner.name && !owner.uid.is_empty() && pool.metadata.uid == owner.uid
}

/// Stores the outcomes of a run and writes the resulting health. A failed status write is repaired by the next sweep.
pub(crate) async fn store_outcomes<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    outcomes: &[(OwnerReference, LaunchOutcome)],
    report: &mut Report,
) -> Result<(), HandleError> {
    if outcomes.is_empty() {
        return Ok(());
    }
    let objects = ports.cluster().read(cluster, Scope::Karpenter, None).await?;
    let run = Run { ports, cluster, objects: &objects, index: Index::default(), silence: None };
    for pool in &objects.node_pools {
        let of_pool = outcomes.iter().filter(|(owner, _)| owns(pool, owner));
        let new: Vec<LaunchOutcome> = of_pool.map(|(_, outcome)| outcome.clone()).collect();
        if new.is_empty() {
            continue;
        }
        let Some(health) = run.store_health(pool, class_generation(pool, &objects), &new).await? else { continue };
        let mut updated = pool.clone();
        update_health(&mut updated, class_generation(pool, &objects), Some(&health), ports.clock().now());
        if updated.status != pool.status && ports.cluster().write_node_pool_status(cluster, &updated).await.is_err() {
            report.count("statuses_failed");
        }
    }
    Ok(())
}

impl<P: Rights> Run<'_, P> {
    async fn store_health(
        &self,
        pool: &NodePool,
        class_generation: Option<i64>,
        new: &[LaunchOutcome],
    ) -> Result<Option<PoolHealth>, HandleError> {
        let next = |known: Option<PoolHealth>, _| Some(PoolHealth::after(known.as_ref(), pool, class_generation, new));
        match update_record(self.ports, self.cluster, &pool.metadata.name, WRITE_ATTEMPTS_MAX, next).await? {
            Update::Written(health) => Ok(Some(health)),
            Update::Unchanged | Update::Lost => Ok(None),
        }
    }
}
