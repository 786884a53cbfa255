//! What one planning run leaves to the next, as records that only this function writes. Losing them costs time, not
//! correctness: everything is then considered anew.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_claims::{Record, Revision, Stored};
use whittle_core::schedule::{Cursor, Memory, Plan, Reason};
use whittle_ports::{Records, Report};
use whittle_units::ClusterName;

/// There is one record of each kind in a cluster.
const NAME: &str = "current";
/// Uids that fit into a record; the rest is considered twice in a round.
const CONSIDERED_MAX: usize = 8000;

/// Pods without a place, and the world that left them without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Unplaced(pub(crate) Memory);

impl Record for Unplaced {
    const KIND: &'static str = "unplaced";
    fn name(&self) -> String {
        NAME.to_owned()
    }
}

/// Where a run that was out of budget stopped: uids of the waiting pods that had their turn in this round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Turn(pub(crate) BTreeSet<String>);

impl Record for Turn {
    const KIND: &'static str = "planning-turn";
    fn name(&self) -> String {
        NAME.to_owned()
    }
}

impl Turn {
    /// After `plan`: of those that had their turn only the ones that still wait are asked about again.
    pub(crate) fn after(plan: &Plan) -> Self {
        let Some(cursor) = &plan.cursor else { return Self::default() };
        let waiting = plan.left_out.iter().filter(|left| left.reason != Reason::OutOfBudget).map(|left| &left.pod.uid);
        Self(waiting.filter(|uid| cursor.considered.contains(*uid)).take(CONSIDERED_MAX).cloned().collect())
    }

    pub(crate) fn cursor(&self) -> Cursor {
        Cursor { considered: self.0.clone() }
    }
}

/// The record as it was left; a new one where there is none, or none that can be read.
pub(crate) async fn read<R: Record + Default>(store: &impl Records, cluster: &ClusterName) -> Stored<R> {
    let stored = store.read::<R>(cluster, NAME).await.ok().flatten();
    stored.unwrap_or_else(|| Stored { value: R::default(), revision: Revision::ABSENT })
}

/// Writes the record if it changed. Nothing depends on it, so a failure is only counted.
pub(crate) async fn keep<R: Record + PartialEq>(
    store: &impl Records,
    cluster: &ClusterName,
    was: &Stored<R>,
    now: &R,
    report: &mut Report,
) {
    if was.value != *now && store.write(cluster, now, was.revision).await.is_err() {
        report.count("memory_not_kept");
    }
}
