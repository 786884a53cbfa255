//! The whole handler while others write the same claim.

use futures::executor::block_on;
use std::sync::atomic::{AtomicU32, Ordering};
use whittle_claims::{Claim, ClaimKey, DecisionRecord, Deletion, DeletionReason, Event, Lease, Machine, Revision, StockOut, Stored, step};
use whittle_ports::{
    Adapters, Answer, ClaimStore, DecisionLog, Disposition, HandleError, Listing, Once, RegionStore, Report, Settings, StoreError,
};
use whittle_sim::region::notices::Subject;
use whittle_sim::{Function, SimPorts};
use whittle_testkit::{TestWorld, after, at, default_spec, deletion, joined, machine};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

/// The instance that notices are about.
pub(super) const SUBJECT: Subject<'static> = Subject { partition: "aws", region: "us-east-1", zone: "us-east-1a", instance: "i-1" };

/// A claim store in which another writer changes the claim before each of its first `busy` updates.
pub(super) struct Busy {
    inner: SimPorts,
    busy: AtomicU32,
    theirs: fn(&Claim) -> Claim,
    /// How often all claims of a cluster were read.
    pub(super) listings: AtomicU32,
    refuses_decisions: bool,
    /// Whether it cannot tell whose an instance is.
    is_down: bool,
    /// Whether the launch of the claim is answered just before all claims of its cluster are read.
    answers_launch: bool,
}

impl Busy {
    pub(super) fn new(inner: SimPorts, busy: u32, theirs: fn(&Claim) -> Claim) -> Self {
        Self {
            inner,
            busy: AtomicU32::new(busy),
            theirs,
            listings: AtomicU32::new(0),
            refuses_decisions: false,
            is_down: false,
            answers_launch: false,
        }
    }

    /// One that does not answer.
    pub(super) fn down(inner: SimPorts) -> Self {
        Self { is_down: true, ..Self::new(inner, 0, Claim::clone) }
    }

    /// One in which the launch of the claim is answered before the others are looked at.
    pub(super) fn answering(inner: SimPorts) -> Self {
        Self { answers_launch: true, ..Self::new(inner, 0, Claim::clone) }
    }
}

impl ClaimStore for Busy {
    fn get(&self, key: &ClaimKey) -> impl Answer<Option<Stored<Claim>>, StoreError> {
        self.inner.get(key)
    }
    async fn listing(&self, cluster: &ClusterName) -> Result<Listing, StoreError> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        if self.answers_launch {
            let there = self.inner.get(&key()).await?.expect("the claim exists");
            let answered = after(&there.value, &[Event::FleetAnswered(machine("i-1"))], at(0));
            self.inner.update(&answered, there.revision).await?;
        }
        self.inner.listing(cluster).await
    }
    async fn by_instance(&self, id: &InstanceId) -> Result<Option<Stored<Claim>>, StoreError> {
        if self.is_down {
            return Err(StoreError::Throttled { what: "the table".to_owned() });
        }
        self.inner.by_instance(id).await
    }
    fn create(&self, lease: &Lease, claim: &Claim) -> impl Answer<Revision, StoreError> {
        self.inner.create(lease, claim)
    }
    async fn update(&self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        if self.busy.load(Ordering::Relaxed) > 0 {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            let there = self.inner.get(&claim.key).await?.expect("the claim exists");
            self.inner.update(&(self.theirs)(&there.value), there.revision).await?;
        }
        self.inner.update(claim, expected).await
    }
}

impl RegionStore for Busy {
    fn stock_outs(&self, now: Timestamp) -> impl Answer<Vec<StockOut>, StoreError> {
        self.inner.stock_outs(now)
    }
    fn put_stock_outs(&self, stock_outs: &[StockOut]) -> impl Answer<(), StoreError> {
        self.inner.put_stock_outs(stock_outs)
    }
    fn catalog(&self) -> impl Answer<Option<Stored<Vec<u8>>>, StoreError> {
        RegionStore::catalog(&self.inner)
    }
}

impl DecisionLog for Busy {
    async fn append(&self, cluster: &ClusterName, decisions: &[DecisionRecord]) -> Result<(), StoreError> {
        if self.refuses_decisions {
            return Err(StoreError::Throttled { what: "the decision log".to_owned() });
        }
        self.inner.append(cluster, decisions).await
    }
    fn recent(&self, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> impl Answer<Vec<DecisionRecord>, StoreError> {
        self.inner.recent(cluster, subject, limit)
    }
}

pub(super) fn key() -> ClaimKey {
    whittle_testkit::key("default-1")
}

pub(super) fn serving() -> Claim {
    let planned = Claim::planned(key(), "uid".into(), default_spec(), at(-3600));
    let machine = Machine { launched_at: at(-3600), ..machine("i-1") };
    after(&planned, &[Event::FleetAnswered(machine), joined("node-1")], at(-3600))
}

/// A write as `consolidate` and `terminate` make in every run.
fn stamped(claim: &Claim) -> Claim {
    let last = claim.last_pod_event_at.unwrap_or(at(0));
    Claim { last_pod_event_at: last.checked_add(SignedDuration::from_secs(1)).ok(), ..claim.clone() }
}

/// A concurrent deletion of the claim, without a deadline.
fn drained(claim: &Claim) -> Claim {
    after(claim, &[Event::DeletionRequested(deletion(DeletionReason::Underutilized, at(0)))], at(0))
}

/// Handles a spot notice of a claim that is written `busy` times meanwhile: the outcome, the claim, and the doorbells.
fn notice(claim: &Claim, busy: u32, theirs: fn(&Claim) -> Claim) -> (Result<Report, HandleError>, Claim, Vec<Function>) {
    notice_sent_at(0, claim, busy, theirs)
}

/// The same at second 0 of a notice that was sent at another.
fn notice_sent_at(
    seconds: i64,
    claim: &Claim,
    busy: u32,
    theirs: fn(&Claim) -> Claim,
) -> (Result<Report, HandleError>, Claim, Vec<Function>) {
    let simulation = TestWorld::still(at(0));
    simulation.store(claim);
    let ports = simulation.ports();
    let store = Busy::new(ports.clone(), busy, theirs);
    let adapters = Adapters { store: &store, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let body = SUBJECT.spot_interruption(at(seconds));
    let outcome = block_on(crate::handle(adapters, &Settings::default(), &Once::default(), &body));
    (outcome, simulation.claim(&key()), simulation.doorbells())
}

#[test]
fn a_notice_survives_concurrent_writes_of_its_claim() {
    for busy in 0..=4 {
        let (outcome, claim, doorbells) = notice(&serving(), busy, stamped);
        assert_eq!(outcome.unwrap().counted("ended"), 1, "{busy} concurrent writes");
        let deletion = claim.deletion.unwrap();
        assert_eq!((deletion.reason, deletion.deadline), (DeletionReason::SpotInterruption, Some(at(120))));
        assert_eq!(doorbells, [Function::Schedule, Function::Terminate]);
    }
}

#[test]
fn a_notice_out_of_attempts_is_redelivered() {
    let (outcome, claim, doorbells) = notice(&serving(), 5, stamped);
    assert_eq!(outcome.unwrap_err().disposition(), Disposition::RetryLater);
    assert_eq!((claim.deletion, doorbells), (None, Vec::new()), "nothing was done that the next attempt would not do");
}

#[test]
fn the_deadline_of_a_notice_survives_a_drain_in_progress() {
    let draining = drained(&serving());
    for busy in 0..=4 {
        let (outcome, claim, _) = notice(&draining, busy, stamped);
        assert_eq!(outcome.unwrap().counted("ended"), 1, "{busy} concurrent writes");
        let deletion = claim.deletion.unwrap();
        assert_eq!((deletion.reason, deletion.deadline, deletion.deadline_is_notice), (DeletionReason::Underutilized, Some(at(120)), true));
    }
}

/// How often a notice counts the disruption of a claim that it ends, or leaves less time.
fn disruptions_counted(claim: &Claim, busy: u32, theirs: fn(&Claim) -> Claim) -> u64 {
    let report = notice(claim, busy, theirs).0.unwrap();
    assert_eq!(report.counted("ended"), 1);
    let disrupted = report.metrics.iter().filter(|metric| metric.metric == "karpenter_nodeclaims_disrupted_total");
    disrupted.map(|metric| metric.by).sum()
}

#[test]
fn a_notice_counts_the_disruption_of_a_claim_unless_it_is_being_deleted() {
    assert_eq!(disruptions_counted(&serving(), 0, stamped), 1);
    assert_eq!(disruptions_counted(&serving(), 4, stamped), 1);
    assert_eq!(disruptions_counted(&drained(&serving()), 0, stamped), 0, "its command has");
    assert_eq!(disruptions_counted(&serving(), 1, drained), 0, "a command was faster");
}

/// Its message was redelivered, or waited: EC2 takes the machine two minutes after it was sent.
#[test]
fn a_late_notice_leaves_a_drain_the_time_since_it_was_sent() {
    let due_at = |seconds: i64| {
        let known = Deletion { deadline: Some(at(seconds)), ..deletion(DeletionReason::Drifted, at(-600)) };
        after(&serving(), &[Event::DeletionRequested(known)], at(-600))
    };
    let (outcome, claim, _) = notice_sent_at(-60, &due_at(90), 0, stamped);
    assert_eq!(outcome.unwrap().counted("ended"), 1);
    let deletion = claim.deletion.clone().unwrap();
    assert_eq!((deletion.deadline, deletion.deadline_is_notice), (Some(at(60)), true));
    for known in [claim, due_at(60), due_at(50)] {
        let (outcome, next, _) = notice_sent_at(-60, &known, 0, stamped);
        assert_eq!((outcome.unwrap().counted("repeats"), next.deletion), (1, known.deletion), "it leaves no less");
    }
}

#[test]
fn a_notice_applies_despite_a_concurrent_deletion() {
    let (outcome, claim, _) = notice(&serving(), 1, drained);
    assert_eq!(outcome.unwrap().counted("ended"), 1);
    let deletion = claim.deletion.unwrap();
    assert_eq!((deletion.reason, deletion.deadline), (DeletionReason::Underutilized, Some(at(120))));
}

#[test]
fn a_redelivered_notice_sends_missing_doorbells() {
    let deletion = serving().deletion_for(DeletionReason::SpotInterruption, "", at(0));
    let deleted = step(&serving(), &Event::DeletionRequested(deletion), at(0)).unwrap();
    let (outcome, _, doorbells) = notice(&deleted, 0, stamped);
    assert_eq!((outcome.unwrap().counted("repeats"), doorbells), (1, vec![Function::Schedule, Function::Terminate]));
    // Its termination rings for itself by now, and nobody for the plan, whose queue may have refused the doorbell.
    let with_next_run = Claim { look_again_at: Some(at(1)), ..deleted };
    let (outcome, _, doorbells) = notice(&with_next_run, 0, stamped);
    assert_eq!((outcome.unwrap().counted("repeats"), doorbells), (1, vec![Function::Schedule]));
    let tightened = Deletion { at: at(-600), reason: DeletionReason::Drifted, ..with_next_run.deletion.clone().unwrap() };
    let (outcome, _, doorbells) = notice(&Claim { deletion: Some(tightened), ..with_next_run }, 0, stamped);
    assert_eq!((outcome.unwrap().counted("repeats"), doorbells), (1, vec![Function::Schedule]), "a drain that it left less time");
}

/// Each machine that ends has notices of its state, and a plan for each of them would be one for nobody.
#[test]
fn another_notice_of_a_claim_whose_termination_goes_on_rings_for_nothing() {
    let earlier = serving().deletion_for(DeletionReason::SpotInterruption, "", at(-5));
    for known in [earlier, deletion(DeletionReason::Drifted, at(-5))] {
        let ending = after(&serving(), &[Event::DeletionRequested(known)], at(-5));
        let simulation = TestWorld::still(at(0));
        simulation.store(&Claim { look_again_at: Some(at(1)), ..ending });
        let ports = simulation.ports();
        let adapters = Adapters { store: &ports, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
        let body = SUBJECT.state_change("terminated", at(0));
        let outcome = block_on(crate::handle(adapters, &Settings::default(), &Once::default(), &body));
        assert_eq!((outcome.unwrap().counted("repeats"), simulation.doorbells()), (1, Vec::new()));
    }
}

/// The notice would come again, but as a repeat: what it did is shown now or never.
#[test]
fn a_notice_is_shown_and_counted_although_it_cannot_be_recorded() {
    let simulation = TestWorld::still(at(0));
    simulation.store(&serving());
    let ports = simulation.ports();
    let store = Busy { refuses_decisions: true, ..Busy::new(ports.clone(), 0, stamped) };
    let adapters = Adapters { store: &store, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let body = SUBJECT.spot_interruption(at(0));
    let report = block_on(crate::handle(adapters, &Settings::default(), &Once::default(), &body)).unwrap();
    assert_eq!((report.counted("ended"), report.counted("decisions_unrecorded")), (1, 1));
    let world = simulation.world();
    assert!(world.cluster.events.iter().any(|kept| kept.event.reason == "SpotInterrupted"));
}
