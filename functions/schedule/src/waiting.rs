//! Whether anything waits for a plan. Mostly nothing does, and then a run reads neither nodes nor bound pods.

use crate::state::{self, RoundPage, ShadowPlan, Unplaced};
use crate::{Rights, Run, write};
use futures::join;
use std::collections::BTreeMap;
use whittle_api::{ClusterObjects, conditions};
use whittle_claims::{Claim, Expectation, ExpectedPage, Phase, Stored, expected_after};
use whittle_model::pods::is_active;
use whittle_model::scheduling::Plan;
use whittle_ports::{ClaimStore, Clock, HandleError, Listing, Report};
use whittle_units::{SignedDuration, Timestamp};

impl<P: Rights> Run<'_, P> {
    /// Whether a plan would be empty: no pod is unbound, nothing asks for spare capacity, and no machine is about to go whose pods
    /// need another.
    pub(crate) async fn nothing_waits(&self, unbound: &ClusterObjects) -> Result<bool, HandleError> {
        if !is_empty(unbound) {
            return Ok(false);
        }
        let Listing { claims, unreadable } = self.ports.store().listing(self.cluster).await?;
        Ok(unreadable.is_empty() && claims.iter().all(|claim| is_at_rest(&claim.value)))
    }

    /// What earlier runs left to this one.
    pub(crate) async fn memory(&self) -> StoredMemory {
        let (store, cluster) = (self.ports.store(), self.cluster);
        let shadow = async { if self.settings.is_shadow() { Some(state::read::<ShadowPlan>(store, cluster).await) } else { None } };
        let (expected, unplaced, round, shadow) = join!(
            state::read_pages::<ExpectedPage>(store, cluster),
            state::read::<Unplaced>(store, cluster),
            state::read_pages::<RoundPage>(store, cluster),
            shadow,
        );
        StoredMemory { expected, unplaced, round, shadow }
    }

    /// What a run with an empty plan leaves behind.
    pub(crate) async fn finish_empty(&self) -> Report {
        let mut report = empty_report();
        let (store, cluster) = (self.ports.store(), self.cluster);
        let memory = self.memory().await;
        let (before, after) = memory.expectations(self.ports.clock().now());
        if after != before {
            state::write_pages(store, cluster, memory.expected, &ExpectedPage::of(after), &mut report).await;
        }
        state::write_if_changed(store, cluster, &memory.unplaced, &Unplaced::default(), &mut report).await;
        if let Some(shadow) = &memory.shadow {
            state::write_if_changed(store, cluster, shadow, &ShadowPlan::default(), &mut report).await;
        }
        state::write_pages(store, cluster, memory.round, &[], &mut report).await;
        report
    }
}

/// What runs pass to each other, as it is stored.
pub(crate) struct StoredMemory {
    expected: Vec<Stored<ExpectedPage>>,
    unplaced: Stored<Unplaced>,
    round: Vec<Stored<RoundPage>>,
    /// In shadow mode.
    shadow: Option<Stored<ShadowPlan>>,
}

impl StoredMemory {
    /// What is expected on machines, and what of it an empty plan at `now` leaves.
    fn expectations(&self, now: Timestamp) -> (BTreeMap<String, Expectation>, BTreeMap<String, Expectation>) {
        let before = ExpectedPage::joined(self.expected.iter().map(|page| page.value.clone()));
        let after = expected_after(&before, &BTreeMap::new(), &BTreeMap::new(), now);
        (before, after)
    }

    /// Whether it is what an empty plan at `now` leaves, so that nothing has to be stored. Pure.
    pub(crate) fn is_of_empty_plan(&self, now: Timestamp) -> bool {
        let (before, after) = self.expectations(now);
        before == after
            && self.unplaced.value == Unplaced::default()
            && self.round.is_empty()
            && self.shadow.as_ref().is_none_or(|shadow| shadow.value == ShadowPlan::default())
    }
}

/// The report of a run with an empty plan.
pub(crate) fn empty_report() -> Report {
    let mut report = Report::default();
    report.count("nothing_pending");
    write::gauges(&mut report, &Plan::default(), SignedDuration::ZERO);
    report
}

/// Whether there is none of the objects that plans are made for. An object that cannot be read might be one. Overlays count, because a
/// plan writes their status. Pure.
fn is_empty(seen: &ClusterObjects) -> bool {
    seen.pods.iter().all(|pod| !is_active(pod) || pod.is_bound())
        && seen.capacity_buffers.is_empty()
        && seen.node_overlays.is_empty()
        && seen.unreadable.is_empty()
}

/// Whether a claim has ended, or serves and is to stay: no pod waits for it, and none has to leave it. Pure.
fn is_at_rest(claim: &Claim) -> bool {
    let stays = claim.deletion.is_none() && !conditions::is_true(&claim.conditions, conditions::DISRUPTION_REASON);
    !claim.is_live() || (stays && matches!(claim.phase, Phase::Initialized { .. }))
}
