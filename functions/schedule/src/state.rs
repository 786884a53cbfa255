//! The state that one planning run passes to the next, as records that only this function writes. Losing them costs time, not
//! correctness: everything is then considered again.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use whittle_api::k8s::Pod;
use whittle_claims::{Record, Revision, Stored};
use whittle_model::scheduling::{Cursor, NewClaim, Plan, Reason};
use whittle_ports::{RecordRemoval, Records, Report};
use whittle_solver::Memory;
use whittle_units::{ClusterName, fnv1a};

/// The name of a record of which a cluster has one.
pub(crate) const NAME: &str = "current";
/// Pods on one page: 16 bytes each, well below the size limit of an item.
const PODS_PER_PAGE: usize = 16_000;
/// Machines in the record of shadow mode: 21 bytes each at most.
const SHADOW_PLAN_MAX: usize = 10_000;

/// Unscheduled pods, and the cluster state for which that holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Unplaced(pub(crate) Memory);

impl Record for Unplaced {
    const KIND: &'static str = "unplaced";
    fn name(&self) -> String {
        NAME.to_owned()
    }
}

/// Where a run that was out of budget stopped: the pending pods that were considered in this round, as hashes of their uids. Two
/// pods with one hash count as one, which delays one of them by a round at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round(BTreeSet<u64>);

/// A part of a [`Round`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RoundPage {
    page: u16,
    /// Sixteen hexadecimal digits for each pod.
    considered: String,
}

impl Record for RoundPage {
    const KIND: &'static str = "planning-round";
    fn name(&self) -> String {
        format!("page-{:02}", self.page)
    }
}

impl Round {
    /// The round after `plan`: of the considered pods only those that are still pending are kept.
    pub(crate) fn after(plan: &Plan) -> Self {
        let Some(cursor) = &plan.cursor else { return Self::default() };
        let waiting = plan.left_out.iter().filter(|left| left.reason != Reason::OutOfBudget).map(|left| &left.pod.uid);
        Self(waiting.filter(|uid| cursor.considered.contains(*uid)).map(fnv1a).collect())
    }

    /// The round in the pages of an earlier run; invalid pages are ignored.
    pub(crate) fn joined<'p>(pages: impl IntoIterator<Item = &'p RoundPage>) -> Self {
        let parse = |digits: &[u8]| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        Self(pages.into_iter().flat_map(|page| page.considered.as_bytes().chunks(16)).filter_map(parse).collect())
    }

    pub(crate) fn pages(&self) -> Vec<RoundPage> {
        let all: Vec<u64> = self.0.iter().copied().collect();
        let page = |(n, hashes): (usize, &[u64])| {
            let mut considered = String::with_capacity(16 * hashes.len());
            for hash in hashes {
                let _ = write!(considered, "{hash:016x}");
            }
            RoundPage { page: u16::try_from(n).unwrap_or(u16::MAX), considered }
        };
        all.chunks(PODS_PER_PAGE).enumerate().map(page).collect()
    }

    /// Those of `pods` that were considered.
    pub(crate) fn cursor<'p>(&self, pods: impl IntoIterator<Item = &'p Pod>) -> Cursor {
        if self.0.is_empty() {
            return Cursor::default();
        }
        let had = pods.into_iter().map(|pod| &pod.metadata.uid).filter(|uid| self.0.contains(&fnv1a(uid)));
        Cursor { considered: had.cloned().collect() }
    }
}

/// The machines that shadow mode would launch, as they were last recorded, as hashes: they are planned again each time, and recorded once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ShadowPlan {
    machines: BTreeSet<u64>,
}

impl Record for ShadowPlan {
    const KIND: &'static str = "shadow-plan";
    fn name(&self) -> String {
        NAME.to_owned()
    }
}

impl ShadowPlan {
    /// Those of a plan. Beyond the limit of one item they are recorded again.
    pub(crate) fn of(claims: &[NewClaim]) -> Self {
        Self { machines: claims.iter().map(machine_hash).take(SHADOW_PLAN_MAX).collect() }
    }

    /// Whether the machine is one of them.
    pub(crate) fn has(&self, new: &NewClaim) -> bool {
        self.machines.contains(&machine_hash(new))
    }
}

/// A hash of a machine's pool, its pods, and the types that it may have. The order of types follows prices, which change all the time.
fn machine_hash(new: &NewClaim) -> u64 {
    let pods: BTreeSet<&str> = new.pods.iter().map(|pod| pod.uid.as_str()).collect();
    let types: BTreeSet<&str> = new.instance_types.iter().map(String::as_str).collect();
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(",");
    fnv1a(format!("{} {} {}", new.node_pool, list(pods), list(types)))
}

/// The stored record; a default one if there is none, or none that can be read.
pub(crate) async fn read<R: Record + Default>(store: &impl Records, cluster: &ClusterName) -> Stored<R> {
    let stored = store.read::<R>(cluster, NAME).await.ok().flatten();
    stored.unwrap_or_else(|| Stored { value: R::default(), revision: Revision::ABSENT })
}

/// The stored pages of a kind; none if they cannot be read.
pub(crate) async fn read_pages<R: Record>(store: &impl Records, cluster: &ClusterName) -> Vec<Stored<R>> {
    store.read_all::<R>(cluster).await.unwrap_or_default()
}

/// Writes the record if it changed. Nothing depends on it, so a failure is only counted.
pub(crate) async fn write_if_changed<R: Record + PartialEq>(
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

/// Updates the pages of a kind: writes those that changed, removes those that are no longer needed.
pub(crate) async fn write_pages<R: Record + PartialEq>(
    store: &(impl Records + RecordRemoval),
    cluster: &ClusterName,
    was: Vec<Stored<R>>,
    now: &[R],
    report: &mut Report,
) {
    let mut was: BTreeMap<String, Stored<R>> = was.into_iter().map(|page| (page.value.name(), page)).collect();
    for page in now {
        let old = was.remove(&page.name());
        let revision = old.as_ref().map_or(Revision::ABSENT, |old| old.revision);
        if old.is_none_or(|old| old.value != *page) && store.write(cluster, page, revision).await.is_err() {
            report.count("memory_not_kept");
        }
    }
    for (name, page) in was {
        if store.remove::<R>(cluster, &name, page.revision).await.is_err() {
            report.count("memory_not_kept");
        }
    }
}
