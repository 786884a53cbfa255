//! Pending pods become NodeClaims: under the cluster's lease, read everything, solve, check, store.

mod shown;
mod state;
#[cfg(test)]
mod tests;
mod write;

use state::{Turn, TurnPage, Unplaced};
use whittle_claims::{Claim, Doorbell, ExpectedPage, Lease, mirror};
use whittle_core::checker::{self, Violation};
use whittle_core::schedule::{self, Input, Memory, Options, Packing, Plan, Reason};
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, DecisionLog, HandleError, Leases, Mirrors, Queues, RecordRemoval, Records, RegionStore, Report,
    Settings, StatusWriter, WorkloadReader, end_turn, not_my_turn, rights, take_turn,
};
use whittle_snapshot::{Snapshot, claim_of, load};
use whittle_units::{ClusterName, SignedDuration};

rights! {
    /// What `schedule` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Leases + Records + RecordRemoval + RegionStore + DecisionLog,
    Cluster: ClusterReader + WorkloadReader + Mirrors + StatusWriter,
    Queues: Queues,
}

/// Long enough for the largest plan, short enough that a crashed run delays the next by less than a tick.
const LEASE: SignedDuration = SignedDuration::from_secs(30);
/// Kept of the time that is left for telling everybody of the claims that were made; the next run makes the others.
const ANNOUNCED: SignedDuration = SignedDuration::from_secs(5);
/// How soon a run looks again that found another one deciding for its cluster.
const HELD_AGAIN: SignedDuration = SignedDuration::from_secs(2);

/// One run for a cluster: its ports and settings.
pub(crate) struct Run<'a, P> {
    ports: P,
    settings: &'a Settings,
    cluster: &'a ClusterName,
}

/// Plans for a cluster's pending pods. Only one run decides for a cluster at a time; a later one ends with `Held`.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let bell = Doorbell::Schedule { cluster: cluster.clone() };
    let Some(lease) = take_turn(ports, bell, LEASE, HELD_AGAIN).await? else { return Ok(not_my_turn()) };
    let outcome = Run { ports, settings, cluster }.under_lease(&lease).await;
    end_turn(ports.store(), &lease).await;
    outcome
}

impl<P: Rights> Run<'_, P> {
    async fn under_lease(&self, lease: &Lease) -> Result<Report, HandleError> {
        let seen = load(self.ports, self.settings, self.cluster).await?;
        if let Some(why) = seen.held(self.settings) {
            let mut report = Report::default();
            report.count(why);
            return Ok(report);
        }
        let now = seen.now;
        let input = seen.input();
        let unplaced = state::read::<Unplaced>(self.ports.store(), self.cluster).await;
        let turn = state::read_pages::<TurnPage>(self.ports.store(), self.cluster).await;
        let mut options = whittle_snapshot::options(self.settings);
        options.work_budget = Some(self.settings.scheduling.work_budget);
        options.cursor = Turn::joined(turn.iter().map(|page| &page.value)).cursor(input.objects.pods.iter().chain(input.virtual_pods));
        options.promised = seen.promises();
        options.settled = unplaced.value.0.settled(&input, &options);
        let begun = self.ports.clock().now();
        let plan = checked(&input, &options, self.cluster)?;
        let mut report = Report::default();
        write::gauges(&mut report, &plan, self.ports.clock().now().duration_since(begun));
        write::longest_wait(&mut report, &seen, &plan);
        let mut created = Vec::new();
        for new in &plan.claims {
            if !self.ports.clock().deadline().has(self.ports.clock().now(), ANNOUNCED) {
                report.count("handed_over");
                break;
            }
            let claim = claim_of(new, &seen, self.cluster, &self.ports.clock().unique(), self.ports.clock().unique(), None);
            if !self.settings.shadow {
                self.ports.store().create(lease, &claim).await?;
            }
            write::explain_claim(&mut report, &claim, new, now);
            created.push(claim);
        }
        for left in write::news(&plan, &seen.buffers).take(write::LEFT_OUT_MAX) {
            write::explain_left_out(&mut report, left, now);
        }
        self.expect(&seen, &plan, &mut report).await;
        if !self.settings.shadow {
            self.announce(&seen, &plan, &created, &mut report).await?;
            self.statuses(&seen, &plan, &mut report).await;
        }
        // Only now: what nobody has been told of yet must be found out again.
        state::keep(self.ports.store(), self.cluster, &unplaced, &Unplaced(Memory::after(&input, &options, &plan)), &mut report).await;
        state::keep_pages(self.ports.store(), self.cluster, turn, &Turn::after(&plan).pages(), &mut report).await;
        self.ports.store().append(self.cluster, &report.decisions).await?;
        Ok(report)
    }

    /// Notes on which machines pods are expected, so that none of these is taken away meanwhile.
    async fn expect(&self, seen: &Snapshot, plan: &Plan, report: &mut Report) {
        let expected = write::expected(seen, plan);
        if expected != seen.expected {
            let stored = state::read_pages::<ExpectedPage>(self.ports.store(), self.cluster).await;
            state::keep_pages(self.ports.store(), self.cluster, stored, &ExpectedPage::of(expected), report).await;
        }
    }

    /// Tells everybody: the launch function first, because all else is shown again by later runs.
    async fn announce(&self, seen: &Snapshot, plan: &Plan, created: &[Claim], report: &mut Report) -> Result<(), HandleError> {
        if !created.is_empty() {
            let claims = created.iter().map(|claim| claim.key.name.clone()).collect();
            self.ports.queues().ring(Doorbell::Launch { cluster: self.cluster.clone(), claims }, SignedDuration::ZERO).await?;
        }
        // Pods that a machine of this plan took the last reserved place from are planned for as soon as that place is gone.
        let deferred = !created.is_empty() && plan.left_out.iter().any(|left| matches!(left.reason, Reason::Reserved(_)));
        let handed_over = created.len() < plan.claims.len();
        if plan.cursor.is_some() || deferred || handed_over {
            self.ports.queues().ring(Doorbell::Schedule { cluster: self.cluster.clone() }, SignedDuration::ZERO).await?;
        }
        for claim in created {
            // `sweep` shows what could not be shown now.
            if self.ports.cluster().apply_mirror(self.cluster, &mirror(claim)).await.is_err() {
                report.count("mirrors_failed");
            }
        }
        for event in write::events(plan, created, seen).into_iter().take(write::EVENTS_MAX) {
            if self.ports.cluster().publish(self.cluster, &event).await.is_err() {
                report.count("events_failed");
            }
        }
        Ok(())
    }
}

/// The best plan that the checker accepts. Where it finds fault, what is right of the better packing is kept, or the plain
/// packing, should that have more pods in the right place.
fn checked(input: &Input<'_>, options: &Options, cluster: &ClusterName) -> Result<Plan, HandleError> {
    let plan = schedule::solve(input, options);
    let wrong = checker::check(input, options, &plan);
    if wrong.is_empty() {
        return Ok(plan);
    }
    let packing = plan.packing;
    tracing::error!(%cluster, packing, violation = %wrong[0], count = wrong.len(), "part of a plan was refused by the checker");
    let (rest, wrong) = checker::without_faults(input, options, plan);
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

/// A plan that is wrong as a whole is not executed at all: waiting for the next run costs less than a wrong machine.
fn refuse_wrong(violations: &[Violation], cluster: &ClusterName) -> Result<(), HandleError> {
    const SHOWN: usize = 5;
    if violations.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = violations.iter().take(SHOWN).map(ToString::to_string).collect();
    tracing::error!(%cluster, count = violations.len(), "the plan was refused by the checker");
    Err(HandleError::PlanRefused { cluster: cluster.as_str().to_owned(), reason: texts.join("; ") })
}
