//! Whether anything waits for a plan. Mostly nothing does, and then a run reads neither nodes nor bound pods.

use crate::state::{self, RoundPage, ShadowPlan, Unplaced};
use crate::{Rights, Run, write};
use std::collections::BTreeMap;
use whittle_api::{ClusterObjects, conditions};
use whittle_claims::{Claim, ExpectedPage, Phase, expected_after};
use whittle_model::scheduling::Plan;
use whittle_ports::{ClaimStore, Clock, HandleError, Listing, Report};
use whittle_units::SignedDuration;

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

    /// What a run with an empty plan leaves behind.
    pub(crate) async fn finish_empty(&self) -> Result<Report, HandleError> {
        let mut report = Report::default();
        report.count("nothing_pending");
        write::gauges(&mut report, &Plan::default(), SignedDuration::ZERO);
        let store = self.ports.store();
        let pages = state::read_pages::<ExpectedPage>(store, self.cluster).await;
        let expected = ExpectedPage::joined(pages.iter().map(|page| page.value.clone()));
        let none = BTreeMap::new();
        let now = expected_after(&expected, &none, &BTreeMap::new(), self.ports.clock().now());
        if now != expected {
            state::write_pages(store, self.cluster, pages, &ExpectedPage::of(now), &mut report).await;
        }
        let unplaced = state::read::<Unplaced>(store, self.cluster).await;
        state::write_if_changed(store, self.cluster, &unplaced, &Unplaced::default(), &mut report).await;
        if self.settings.shadow {
            let shadow = state::read::<ShadowPlan>(store, self.cluster).await;
            state::write_if_changed(store, self.cluster, &shadow, &ShadowPlan::default(), &mut report).await;
        }
        let round = state::read_pages::<RoundPage>(store, self.cluster).await;
        state::write_pages(store, self.cluster, round, &[], &mut report).await;
        Ok(report)
    }
}

/// Whether none of the objects that a plan can be for is there. One that cannot be read may be one. Overlays count, because a plan
/// writes their status. Pure.
fn is_empty(seen: &ClusterObjects) -> bool {
    seen.pods.iter().all(|pod| pod.is_terminal() || pod.is_bound())
        && seen.capacity_buffers.is_empty()
        && seen.node_overlays.is_empty()
        && seen.unreadable.is_empty()
}

/// Whether a claim has ended, or serves and is to stay: no pod waits for it, and none has to leave it. Pure.
fn is_at_rest(claim: &Claim) -> bool {
    let stays = claim.deletion.is_none() && !conditions::is_true(&claim.conditions, conditions::DISRUPTION_REASON);
    !claim.is_live() || (stays && matches!(claim.phase, Phase::Initialized { .. }))
}
