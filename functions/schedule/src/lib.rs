//! Plans NodeClaims for pending pods: under the cluster's lease, read everything, solve, check, store.

// Whether to plan now.
mod waiting; // whether any pod waits
mod arrivals; // whether more pods of a burst are coming
mod state; // what a run passes to the next

// From a plan to what is stored.
mod set_aside; // machines that are launched in another way, or not at all
mod oversize; // claims that are too large to be stored
mod awaited_launches; // claims whose launch other pods wait for
mod write; // claims, Events and decisions of the others
mod outside; // refusals of EC2, behind "no instance type"
mod status_writes; // the status of pools, overlays and buffers

#[cfg(test)]
mod tests;

use futures::join;
use state::{Round, RoundPage, ShadowPlan, Unplaced};
use whittle_api::ClusterObjects;
use whittle_checker::Violation;
use whittle_claims::{Claim, Doorbell, ExpectedPage, Function, FunctionHealth, Lease, Stored};
use whittle_model::scheduling::{Input, Options, Packing, Plan, Reason};
use whittle_ports::{
    CLAIMS_PER_REQUEST, CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterEvent, ClusterReader, DecisionLog, HandleError, Leases, Mirrors,
    Queues, RecordRemoval, Records, RegionStore, Report, Scope, Settings, StatusWriter, WorkloadReader, acquire_lease, concurrently,
    lease_held_report, note_health, publish_event, record_decisions, release_lease, rights, write_planned_mirror,
};
use whittle_snapshot::{Snapshot, Unanswered, claim_of, load_for_pods};
use whittle_solver::Memory;
use whittle_units::{ClusterName, SignedDuration};

rights! {
    /// What `schedule` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Leases + Records + RecordRemoval + RegionStore + DecisionLog,
    Cluster: ClusterReader + WorkloadReader + Mirrors + StatusWriter,
    Queues: Queues,
}

/// Long enough for the largest plan, short enough that a crashed run delays the next by less than a tick.
const LEASE: SignedDuration = SignedDuration::from_secs(30);
/// Reserved of the remaining time for announcing the created claims; the next run creates the others.
const RESERVE_FOR_ANNOUNCE: SignedDuration = SignedDuration::from_secs(5);
/// Reserved of the remaining time for what the next run remembers of this one, after the plan was shown in the cluster.
const RESERVE_FOR_MEMORY: SignedDuration = SignedDuration::from_secs(3);
/// Retry delay when another run holds the lease of the cluster.
const RETRY_WHEN_HELD: SignedDuration = SignedDuration::from_secs(2);

/// One run for a cluster: its ports and settings.
pub(crate) struct Run<'a, P> {
    ports: P,
    settings: &'a Settings,
    cluster: &'a ClusterName,
}

/// Plans for a cluster's pending pods. Only one run decides for a cluster at a time; another one retries later. A run that has nothing to
/// decide and nothing to store needs no lease.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let mut report = plan(ports, settings, cluster).await?;
    // `sweep` misses runs that end before they have printed anything.
    let next = |known: Option<&FunctionHealth>, now| FunctionHealth::renewed(known, Function::Schedule, now);
    note_health(ports, cluster, Function::Schedule, next).await.count_failure(&mut report, "health_not_kept");
    Ok(report)
}

async fn plan<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let run = Run { ports, settings, cluster };
    let unbound = ports.cluster().read(cluster, Scope::Unbound, None).await?;
    let nothing_waits = run.nothing_waits(&unbound).await?;
    if nothing_waits && run.memory().await.is_of_empty_plan(ports.clock().now()) {
        return Ok(waiting::empty_report());
    }
    let doorbell = Doorbell::Schedule { cluster: cluster.clone() };
    let Some(lease) = acquire_lease(ports, doorbell, LEASE, RETRY_WHEN_HELD).await? else { return Ok(lease_held_report()) };
    let outcome = if nothing_waits { run.forget(&lease).await } else { run.under_lease(&lease, unbound).await };
    release_lease(ports.store(), &lease).await;
    outcome
}

impl<P: Rights> Run<'_, P> {
    /// Forgets what earlier runs have stored, unless something waits by now.
    async fn forget(&self, lease: &Lease) -> Result<Report, HandleError> {
        let unbound = self.ports.cluster().read(self.cluster, Scope::Unbound, None).await?;
        if self.nothing_waits(&unbound).await? { Ok(self.finish_empty().await) } else { self.under_lease(lease, unbound).await }
    }

    async fn under_lease(&self, lease: &Lease, unbound: ClusterObjects) -> Result<Report, HandleError> {
        let mut waiting = Report::default();
        if self.waits_for_more(&unbound.pods, &mut waiting).await? {
            return Ok(waiting);
        }
        let has_unreadable = !unbound.unreadable.is_empty();
        // The snapshot has the same pods. Those of a burst may be 100,000 of 2.5 kB each, and a plan needs the room.
        drop(unbound);
        // What the last run remembers is written under the lease alone.
        let store = self.ports.store();
        let (snapshot, unplaced, round) = join!(
            load_for_pods(self.ports, self.settings, self.cluster),
            state::read::<Unplaced>(store, self.cluster),
            state::read_pages::<RoundPage>(store, self.cluster),
        );
        let snapshot = snapshot?;
        if let Some(why) = snapshot.why_paused(self.settings) {
            let mut report = Report::default();
            report.count(why);
            return Ok(report);
        }
        let input = snapshot.input();
        let mut options = whittle_snapshot::options(self.settings);
        options.work_budget = Some(self.settings.scheduling.work_budget);
        options.cursor = Round::joined(round.iter().map(|page| &page.value)).cursor(input.objects.pods.iter().chain(input.virtual_pods));
        options.promised = snapshot.promises();
        options.settled = unplaced.value.0.settled(&input, &options);
        let begun = self.ports.clock().now();
        let mut plan = checked(&input, &options, self.cluster)?;
        let mut report = Report::default();
        oversize::too_large(&mut plan, &snapshot, self.cluster, &mut report);
        set_aside::over_quota(&mut plan, &snapshot, &mut report);
        write::gauges(&mut report, &plan, self.ports.clock().now().duration_since(begun));
        write::longest_wait(&mut report, &snapshot, &plan);
        self.report_unanswered(&snapshot, &mut report);
        let created = if self.settings.is_shadow() {
            self.record_shadow_plan(&snapshot, &plan, &mut report).await;
            Vec::new()
        } else {
            self.create_claims(lease, &snapshot, &plan, &mut report).await?
        };
        write::record_all_left_out(&mut report, &plan, &snapshot, &unplaced.value.0);
        let mut published = true;
        if self.settings.is_shadow() {
            self.store_expected(&snapshot, &plan, &mut report).await;
        } else {
            let (announced, ()) = join!(self.announce(&plan, &created), self.store_expected(&snapshot, &plan, &mut report));
            announced?;
            self.mark_awaited(&snapshot, &plan).await;
            published = self.publish(&snapshot, &plan, &created, &mut report).await;
        }
        // Only now, and only if all of it was published: the reasons of remembered pods are not published again.
        let after = published.then(|| Unplaced(Memory::after(&input, &options, &plan)));
        self.remember((&unplaced, after.as_ref()), (round, &Round::after(&plan)), &mut report).await;
        if has_unreadable {
            self.ring_for_unreadable(&snapshot).await;
        }
        Ok(report)
    }

    /// Stores what the next run remembers of this one, and the decisions. None of them depends on another.
    async fn remember(
        &self,
        (unplaced, after): (&Stored<Unplaced>, Option<&Unplaced>),
        (round, next): (Vec<Stored<RoundPage>>, &Round),
        report: &mut Report,
    ) {
        let (store, pages) = (self.ports.store(), next.pages());
        let (mut of_pods, mut of_round) = (Report::default(), Report::default());
        let memory = async {
            if let Some(after) = after {
                state::write_if_changed(store, self.cluster, unplaced, after, &mut of_pods).await;
            }
        };
        let written = state::write_pages(store, self.cluster, round, &pages, &mut of_round);
        let ((), (), recorded) = join!(memory, written, record_decisions(store, self.cluster, &report.decisions));
        report.absorb(of_pods);
        report.absorb(of_round);
        recorded.count_failure(report, "decisions_unrecorded");
    }

    /// Rings `consolidate`, which reports objects that cannot be read: in a cluster without claims no tick rings it (ADR 0065). If the
    /// doorbell cannot be sent, the next run sends it.
    async fn ring_for_unreadable(&self, snapshot: &Snapshot) {
        let is_rung_by_ticks = self.settings.is_shadow() || !snapshot.claims.is_empty() || !snapshot.hidden.is_empty();
        if is_rung_by_ticks {
            return;
        }
        if let Err(error) = self.ports.queues().send_now(Doorbell::Consolidate { cluster: self.cluster.clone() }).await {
            tracing::warn!(%error, "consolidate could not be rung for objects that cannot be read");
        }
    }

    /// Reports buffers about which nothing is known in this run.
    fn report_unanswered(&self, snapshot: &Snapshot, report: &mut Report) {
        if let Some(Unanswered { buffers, why }) = &snapshot.buffers.unanswered {
            tracing::warn!(cluster = %self.cluster, buffers, error = %why, "the API server does not answer for capacity buffers");
            report.count("buffers_unanswered");
        }
    }

    /// Stores the planned claims, as far as there is time. Those that are stored before a request fails are launched all the same.
    async fn create_claims(&self, lease: &Lease, snapshot: &Snapshot, plan: &Plan, report: &mut Report) -> Result<Vec<Claim>, HandleError> {
        let mut created = Vec::with_capacity(plan.claims.len());
        let awaited = awaited_launches::awaited_labels(plan);
        for together in plan.claims.chunks(CLAIMS_PER_REQUEST) {
            if !self.ports.clock().has_time_for(RESERVE_FOR_ANNOUNCE) {
                report.hand_over();
                break;
            }
            let unique = || self.ports.clock().unique();
            let mut claims: Vec<Claim> = together.iter().map(|new| claim_of(new, snapshot, self.cluster, unique)).collect();
            claims.iter_mut().for_each(|claim| claim.spec.is_awaited = awaited_launches::decides(&claim.spec, &awaited));
            if let Err(error) = self.ports.store().create_all(lease, &claims).await {
                self.keep(&created, report).await;
                return Err(error.into());
            }
            for (claim, new) in claims.iter().zip(together) {
                write::record_claim(report, claim, new, snapshot.now);
            }
            created.extend(claims);
        }
        Ok(created)
    }

    /// Announces and records what a run has stored before it failed. Its failure is what counts: `sweep` repeats lost doorbells.
    async fn keep(&self, created: &[Claim], report: &Report) {
        if created.is_empty() {
            return;
        }
        if let Err(error) = self.send_launch(created).await {
            tracing::warn!(%error, claims = created.len(), "claims were stored and could not be announced");
        }
        if let Err(error) = self.ports.store().append(self.cluster, &report.decisions).await {
            tracing::warn!(%error, "the decisions of a failed run could not be recorded");
        }
    }

    /// Records what shadow mode does not launch: each machine once, until other pods or types would make it another one.
    async fn record_shadow_plan(&self, snapshot: &Snapshot, plan: &Plan, report: &mut Report) {
        let known = state::read::<ShadowPlan>(self.ports.store(), self.cluster).await;
        for new in plan.claims.iter().filter(|new| !known.value.has(new)) {
            let claim = claim_of(new, snapshot, self.cluster, || self.ports.clock().unique());
            write::record_shadowed(report, &claim, new, snapshot.now);
        }
        state::write_if_changed(self.ports.store(), self.cluster, &known, &ShadowPlan::of(&plan.claims), report).await;
    }

    /// Stores on which machines pods are expected, so that these are not disrupted meanwhile.
    async fn store_expected(&self, snapshot: &Snapshot, plan: &Plan, report: &mut Report) {
        let expected = write::expected(snapshot, plan);
        if expected != snapshot.expected {
            let stored = state::read_pages::<ExpectedPage>(self.ports.store(), self.cluster).await;
            state::write_pages(self.ports.store(), self.cluster, stored, &ExpectedPage::of(expected), report).await;
        }
    }

    /// Sends the doorbells of the plan: to the launch function first, because later runs repeat all else.
    async fn announce(&self, plan: &Plan, created: &[Claim]) -> Result<(), HandleError> {
        if !created.is_empty() {
            self.send_launch(created).await?;
        }
        // Pods that lost the last reserved capacity to a machine of this plan are planned again as soon as it is used.
        let deferred = !created.is_empty() && plan.left_out.iter().any(|left| matches!(left.reason, Reason::Reserved(_)));
        let handed_over = created.len() < plan.claims.len();
        if plan.cursor.is_some() || deferred || handed_over {
            self.ports.queues().send_now(Doorbell::Schedule { cluster: self.cluster.clone() }).await?;
        }
        Ok(())
    }

    async fn send_launch(&self, created: &[Claim]) -> Result<(), HandleError> {
        let claims = created.iter().map(|claim| claim.key.name.clone()).collect();
        Ok(self.ports.queues().send_now(Doorbell::Launch { cluster: self.cluster.clone(), claims }).await?)
    }

    /// Shows the plan in the cluster: NodeClaims, Events, statuses. Nothing depends on it, so no failure ends the run. Returns whether
    /// there was time for all of it; `sweep` writes missing NodeClaims.
    async fn publish(&self, snapshot: &Snapshot, plan: &Plan, created: &[Claim], report: &mut Report) -> bool {
        let has_time = || self.ports.clock().has_time_for(RESERVE_FOR_MEMORY);
        for some in created.chunks(CONCURRENT_REQUESTS) {
            if !has_time() {
                report.count("mirrors_postponed");
                return false;
            }
            for written in concurrently(some.iter().map(|claim| write_planned_mirror(self.ports.cluster(), claim))).await {
                written.count_failure(report, "mirrors_failed");
            }
        }
        let events: Vec<ClusterEvent> = write::events(plan, created, snapshot);
        for some in events.chunks(CONCURRENT_REQUESTS) {
            if !has_time() {
                report.count("events_postponed");
                return false;
            }
            for published in concurrently(some.iter().map(|event| publish_event(self.ports.cluster(), self.cluster, event))).await {
                published.count_failure(report, "events_failed");
            }
        }
        self.write_statuses(snapshot, plan, report).await;
        true
    }
}

/// The best plan that the checker accepts. If it finds violations, the valid part of the better packing is kept, or Karpenter's
/// packing, if that schedules more pods.
fn checked(input: &Input<'_>, options: &Options, cluster: &ClusterName) -> Result<Plan, HandleError> {
    let plan = whittle_solver::solve(input, options);
    let wrong = whittle_checker::check(input, options, &plan);
    if wrong.is_empty() {
        return Ok(plan);
    }
    let packing = plan.packing;
    tracing::error!(%cluster, packing, violation = %wrong[0], count = wrong.len(), "the checker rejected part of a plan");
    let (rest, wrong) = whittle_checker::without_violations(input, options, plan);
    let rest = refuse_wrong(&wrong, cluster).map(|()| rest);
    if options.packing == Packing::Reference {
        return rest;
    }
    let plain = checked(input, &Options { packing: Packing::Reference, ..options.clone() }, cluster);
    match (rest, plain) {
        (Ok(rest), Ok(plain)) if plain.scheduled() > rest.scheduled() => Ok(plain),
        (Ok(rest), _) => Ok(rest),
        (Err(_), plain) => plain,
    }
}

/// A plan that is invalid as a whole is not executed: waiting for the next run costs less than a wrong machine.
fn refuse_wrong(violations: &[Violation], cluster: &ClusterName) -> Result<(), HandleError> {
    const SHOWN: usize = 5;
    if violations.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = violations.iter().take(SHOWN).map(ToString::to_string).collect();
    tracing::error!(%cluster, count = violations.len(), "the checker rejected the plan");
    Err(HandleError::PlanRefused { cluster: cluster.as_str().to_owned(), reason: texts.join("; ") })
}
