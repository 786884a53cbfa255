//! Launches instances for planned claims: one fleet call for claims with equal requests, at most once for each claim.
//!
//! The order makes crashes harmless: claims move to `Launching` with the batch's token, then the call is stored with all its
//! parameters, then it is made. A later run that finds abandoned claims makes the same call again.

// From planned claims to machines, in this order.
mod plan; // claims with equal requests become one call
mod batch; // a call with its parameters and outcome, as it is stored
mod groups; // several new calls at once
mod call; // one call, and what happens before it is repeated
mod failure; // what its errors mean: whether claims are given up, and who is told
mod answer; // what its response means for the claims
mod assign; // which claim gets which instance
mod machine; // what a claim records of its instance
mod refusals; // what only users can mend, and how they hear of it
mod retry; // claims without an instance wait for a call, with one doorbell for all

// What launches need to know.
mod addresses; // those that launches have used since EC2 counted them
mod classes; // whether stored node classes are still those of the cluster
mod dry_runs; // whether this function's role may launch with a class

#[cfg(test)]
mod tests;

use addresses::{SubnetUse, has_choice};
use batch::Batch;
use call::Call;
use futures::future::{TryFutureExt, join_all, try_join_all};
use futures::try_join;
use plan::Facts;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use whittle_claims::{
    Claim, ClaimKey, ClassDryRun, DecisionKind, DeletionReason, Doorbell, Event, MeasuredMemory, NodeClassRecord, Phase, StockOut, Stored,
};
use whittle_ec2::fleet::{LaunchDisposition, LaunchError, MinValuesPolicy};
use whittle_ports::{
    ClaimStore, Clock, CloudError, ClusterEvent, ClusterReader, ClusterRecord, DecisionLog, DryRuns, Fleets, HandleError, Instances,
    Involved, LaunchTemplates, Mirrors, Queues, RecordReader, Records, RegionStore, Report, Settings, StatusWriter, TokenBuckets, advance,
    concurrently, error_chain, metrics, publish_event, readable, record_decisions, rights, save, unless_outdated, write_mirror,
};
use whittle_snapshot::{Reserved, TypeInputs, shifted_zones, warm};
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

rights! {
    /// What `launch` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Records + RegionStore + TokenBuckets + DecisionLog,
    Cloud: LaunchTemplates + Fleets + DryRuns + Instances,
    Cluster: ClusterReader + Mirrors + StatusWriter,
    Queues: Queues,
}

/// Claims that are read or written concurrently.
const CONCURRENCY: usize = 16;
/// After this an unfinished launch is resumed: longer than a call and handling its response take.
const ABANDONED_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// No call is retried this late without having been stored: a restored table is older than this.
const RESTORED_TABLE_AGE: SignedDuration = SignedDuration::from_mins(4);
/// Delay before retrying a call that was throttled or failed transiently.
const RETRY_DELAY: SignedDuration = SignedDuration::from_secs(2);
/// Delay before retrying a launch whose failure needs user action.
const USER_ACTION_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(30);
/// After this time EC2 knows a new instance profile and its role: an error about them then needs a person.
const PROFILE_KNOWN_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// Delay before checking whether a changed class has been refreshed.
const CLASS_REFRESH_DELAY: SignedDuration = SignedDuration::from_secs(5);
/// Time for a fleet call with its templates and the handling of its response.
const TIME_PER_CALL: SignedDuration = SignedDuration::from_secs(10);
/// Time to give up one claim and report it.
const TIME_PER_REFUSAL: SignedDuration = SignedDuration::from_secs(1);
/// Claims that are read one by one. More of them are looked for in the list of all, which takes a request for each shard: a plan may have
/// thousands, which would take the time for their calls.
const NAMED_MAX: usize = 64;
/// Nodes never join faster.
const FIRST_REGISTER_DELAY: SignedDuration = SignedDuration::from_secs(10);
/// Milliseconds for which machines need no doorbell of their own after one was sent, which arrives later.
const REGISTER_RUNG_FOR: i64 = 5_000;

/// One run for a cluster: its ports, the facts for its decisions, and its report.
pub(crate) struct Run<'a, P> {
    ports: P,
    cluster: &'a ClusterName,
    facts: Arc<Facts>,
    /// Names of the launch templates that this run has found or made: batches of equal claims share theirs.
    templates: BTreeSet<String>,
    /// When the Nodes of launched machines were rung for, in milliseconds since 1970.
    register_rung_at: Arc<AtomicI64>,
    /// Whether EC2 has throttled a fleet: what follows would be throttled too, and keep others from theirs.
    is_throttled: bool,
    /// How EC2 has throttled the creation of a launch template. It counts each action by itself: fleets whose templates are there go on.
    templates_throttled: Option<CloudError>,
    report: Report,
}

/// Launches the named claims, or all due claims if none is named.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName, claims: &[ClaimName]) -> Result<Report, HandleError> {
    let mut report = Report::default();
    if settings.is_shadow() {
        return Ok(report);
    }
    // Launches come first, and do not look for dry runs.
    let dry_runs = async { if claims.is_empty() { pending_dry_runs(ports, settings, cluster).await } else { Ok(Vec::new()) } };
    let (due, dry_runs) = try_join!(due(ports, cluster, claims), dry_runs)?;
    if due.is_empty() && dry_runs.is_empty() {
        return Ok(report);
    }
    let facts = match load(ports, settings, cluster).await? {
        Some(facts) => facts,
        None => {
            // `refresh` has not run yet; the launch timeout bounds the wait.
            retry::requeue_once(ports, cluster, due.iter().map(|claim| claim.value.key.name.clone())).await?;
            report.count("facts_missing");
            return Ok(report);
        }
    };
    let changed = classes::changed(ports, cluster, &facts, &due, &mut report).await;
    let facts = Arc::new(Facts { changed, ..facts });
    let register_rung_at = Arc::new(AtomicI64::new(i64::MIN));
    let (templates, is_throttled, templates_throttled) = (BTreeSet::new(), false, None);
    let mut run = Run { ports, cluster, facts, templates, register_rung_at, is_throttled, templates_throttled, report };
    run.request_refresh(&due).await?;
    let outcome = run.launch_all(due).await;
    let recorded = record_decisions(ports.store(), cluster, &run.report.decisions).await;
    recorded.count_failure(&mut run.report, "decisions_unrecorded");
    outcome?;
    run.make_dry_runs(dry_runs).await?;
    Ok(run.report)
}

/// Dry runs of node classes that `refresh` has requested.
async fn pending_dry_runs<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Vec<Stored<ClassDryRun>>, HandleError> {
    if !settings.node_class_dry_runs {
        return Ok(Vec::new());
    }
    let mut known = ports.store().read_all::<ClassDryRun>(cluster).await?;
    known.retain(|stored| stored.value.is_pending());
    Ok(known)
}

/// Claims that are due for a call: new ones, and those whose call was left unfinished.
async fn due<P: Rights>(ports: P, cluster: &ClusterName, names: &[ClaimName]) -> Result<Vec<Stored<Claim>>, HandleError> {
    let mut found = if names.is_empty() || names.len() > NAMED_MAX {
        let named: BTreeSet<&ClaimName> = names.iter().collect();
        let mut all = ports.store().list(cluster).await?;
        all.retain(|claim| if named.is_empty() { !awaits_finalizer(&claim.value) } else { named.contains(&claim.value.key.name) });
        all
    } else {
        let keys: Vec<ClaimKey> = names.iter().map(|name| ClaimKey { cluster: cluster.clone(), name: name.clone() }).collect();
        let mut found = Vec::with_capacity(keys.len());
        for claim in concurrently(keys.iter().map(|key| ports.store().get(key))).await {
            found.extend(readable(claim)?);
        }
        found
    };
    let now = ports.clock().now();
    found.retain(|claim| is_due(&claim.value, now));
    Ok(found)
}

/// Whether the object that a user made may lack our finalizer, so that it could vanish while its machine runs. `sweep` names the claim once
/// it has the finalizer (ADR 0016).
fn awaits_finalizer(claim: &Claim) -> bool {
    claim.spec.standalone_uid.is_some() && matches!(claim.phase, Phase::Planned)
}

fn is_due(claim: &Claim, now: Timestamp) -> bool {
    if claim.deletion.is_some() {
        return false;
    }
    match (&claim.phase, claim.look_again_at) {
        (Phase::Planned, _) => true,
        (Phase::Launching { .. }, Some(at)) => at <= now,
        (Phase::Launching { since, .. }, None) => now.duration_since(*since) >= ABANDONED_AFTER,
        _ => false,
    }
}

/// The facts for the decisions of a run; `None` if `refresh` has not stored them yet.
async fn load<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Option<Facts>, HandleError> {
    let (store, now) = (ports.store(), ports.clock().now());
    // None of them depends on another.
    let (blob, record, classes, stock_outs, measured, shifted) = try_join!(
        store.catalog().err_into::<HandleError>(),
        store.read::<ClusterRecord>(cluster, ClusterRecord::NAME).err_into::<HandleError>(),
        store.read_all::<NodeClassRecord>(cluster).err_into::<HandleError>(),
        store.stock_outs(now).err_into::<HandleError>(),
        store.read_all::<MeasuredMemory>(cluster).err_into::<HandleError>(),
        shifted_zones(ports, settings, cluster),
    )?;
    let (Some(blob), Some(record)) = (blob, record) else { return Ok(None) };
    let catalog = warm::catalog(&blob.value)
        .map_err(|error| HandleError::Unreadable { what: "the region's catalog".to_owned(), reason: error.to_string() })?;
    let classes: Vec<_> = classes.into_iter().map(|stored| with_refusals(stored.value, settings, cluster, &record.value)).collect();
    let enabled = settings.scheduling.reserved_capacity;
    let has_reservations = enabled && classes.iter().any(|class| !class.free_reserved.is_empty());
    let chooses = classes.iter().any(|class| has_choice(&class.subnets));
    let (others, uses) = try_join!(
        // Instances of other claims may use capacity that EC2 still counts as free.
        async { Ok::<_, HandleError>(if has_reservations { store.list(cluster).await? } else { Vec::new() }) },
        async { Ok::<_, HandleError>(if chooses { store.read::<SubnetUse>(cluster, SubnetUse::NAME).await? } else { None }) },
    )?;
    let closed: Vec<StockOut> = stock_outs.iter().map(StockOut::for_pods).collect();
    let reserved = Reserved::for_launches(&classes, &others, &closed, now);
    let uses = uses.map(|known| known.value.recent).unwrap_or_default();
    let min_values = if settings.scheduling.lower_min_values { MinValuesPolicy::BestEffort } else { MinValuesPolicy::Strict };
    let changed = BTreeSet::new();
    let measured = measured.into_iter().map(|stored| stored.value).collect();
    let inputs = TypeInputs { settings: settings.instance_types(), reserved, measured, now, shifted, prices: BTreeMap::new() };
    let left_to_others = if settings.clusters.len() > 1 { groups::LEFT_TO_OTHERS } else { 0 };
    let access = (&record.value.info).into();
    Ok(Some(Facts { catalog, classes, changed, stock_outs, uses, inputs, access, min_values, left_to_others, now }))
}

/// The class, not ready if it refers to another cluster's resources: `refresh` checks this too, but settings may be newer than
/// its last run.
fn with_refusals(mut class: NodeClassRecord, settings: &Settings, cluster: &ClusterName, record: &ClusterRecord) -> NodeClassRecord {
    let refusals = settings.class_refusals(cluster, &record.info.vpc, &class);
    class.problems.extend(refusals.iter().map(ToString::to_string));
    class
}

impl<P: Rights> Run<'_, P> {
    async fn launch_all(&mut self, due: Vec<Stored<Claim>>) -> Result<(), HandleError> {
        let (fresh, begun): (Vec<_>, Vec<_>) = due.into_iter().partition(|claim| matches!(claim.value.phase, Phase::Planned));
        let mut remaining: Vec<ClaimName> = Vec::new();
        let mut requeues = Requeues::new();
        let mut by_batch: BTreeMap<String, Vec<Stored<Claim>>> = BTreeMap::new();
        for claim in begun {
            if let Phase::Launching { client_token, .. } = &claim.value.phase {
                by_batch.entry(client_token.clone()).or_default().push(claim);
            }
        }
        for (id, claims) in by_batch {
            let is_in_time = has_time(self.ports.clock());
            if is_in_time && !self.is_throttled {
                remaining.extend(self.resume(&id, claims, &mut requeues).await?);
                if self.is_throttled {
                    self.empty_bucket().await;
                }
                continue;
            }
            if is_in_time {
                self.report.count("no_token");
            } else {
                self.report.hand_over();
            }
            remaining.extend(claims.into_iter().map(|claim| claim.value.key.name));
        }
        let plan = self.facts.plan(fresh);
        for (claim, error) in plan.refused {
            if self.ports.clock().has_time_for(TIME_PER_REFUSAL) {
                self.refuse(claim, &error, &mut requeues).await?;
            } else {
                self.report.hand_over();
                remaining.push(claim.value.key.name);
            }
        }
        remaining.extend(self.launch_groups(plan.groups).await?);
        for (delay, names) in requeues {
            self.requeue(names, delay).await?;
        }
        if !remaining.is_empty() {
            retry::requeue_once(self.ports, self.cluster, remaining).await?;
        }
        Ok(())
    }

    /// Resumes an abandoned launch: the same call again, or a new one if it was never stored. Returns the claims that have to
    /// wait for a rate limit token, or for launch templates.
    async fn resume(&mut self, id: &str, claims: Vec<Stored<Claim>>, requeues: &mut Requeues) -> Result<Vec<ClaimName>, HandleError> {
        let names: Vec<ClaimName> = claims.iter().map(|claim| claim.value.key.name.clone()).collect();
        if self.waits_for_templates(id).await? || !self.take_token().await? {
            self.report.count("no_token");
            return Ok(names);
        }
        // Recording the attempt first stops a concurrent run for the same doorbell.
        let (begun, now) = (Event::LaunchBegun { client_token: id.to_owned() }, self.ports.clock().now());
        let mut writes = Vec::new();
        for claim in &claims {
            let mut next = whittle_claims::step(&claim.value, &begun, now)?;
            next.look_again_at = now.checked_add(ABANDONED_AFTER).ok();
            writes.push(save(self.ports.store(), claim, next));
        }
        let taken = complete_writes(writes, &mut self.report).await?;
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let ages = claims.iter().filter_map(|claim| match &claim.value.phase {
            Phase::Launching { since, .. } => Some(now.duration_since(*since)),
            _ => None,
        });
        let age = ages.max().unwrap_or_default();
        if let Some(batch) = self.ports.store().read::<Batch>(self.cluster, id).await? {
            let (members, strays): (Vec<_>, Vec<_>) =
                taken.into_iter().partition(|claim| batch.value.members.contains(&claim.value.key.name));
            // The call was stored without these, so none of its instances is theirs.
            self.replace_token(strays, id, None, RETRY_DELAY).await?;
            if !members.is_empty() {
                let which = match (batch.value.looked_at, batch.value.looks_first) {
                    (Some(_), _) => Call::Lost,
                    // The run that stored it ended before it found the instances of another call.
                    (None, true) => unstored_call(oldest(&claims, now)),
                    (None, false) => Call::Repeat,
                };
                let just_stored = (which != Call::Repeat).then_some(members);
                self.call(&batch.value, which, just_stored).await?;
            }
            return Ok(Vec::new());
        }
        let which = unstored_call(age);
        let plan = self.facts.plan(taken);
        for (claim, error) in plan.refused {
            self.refuse(claim, &error, requeues).await?;
        }
        let mut groups = plan.groups.into_iter();
        if let Some(group) = groups.next() {
            let members = group.claims.iter().map(|claim| claim.value.key.name.clone()).collect();
            let batch = plan::batch(id, members, &group.node_class, &group.launch, self.ports.clock().now());
            if let Some(batch) = self.store_batch(batch, which).await? {
                self.call(&batch, which, Some(group.claims)).await?;
            }
        }
        // Claims whose requests have diverged wait for their own call.
        for group in groups {
            self.replace_token(group.claims, id, None, RETRY_DELAY).await?;
        }
        Ok(Vec::new())
    }

    /// Handles a claim for which no call can be made.
    async fn refuse(&mut self, claim: Stored<Claim>, error: &LaunchError, requeues: &mut Requeues) -> Result<(), HandleError> {
        let message = error_chain(error);
        match error.disposition() {
            LaunchDisposition::InsufficientCapacity => {
                let reason = DeletionReason::InsufficientCapacity;
                if matches!(error, LaunchError::NodeClassGone(_)) {
                    self.publish(&claim.value, "", "Failed resolving NodeClass").await;
                }
                self.give_up(vec![claim], reason, &message).await
            }
            LaunchDisposition::NodeClassNotReady => self.give_up(vec![claim], DeletionReason::NodeClassNotReady, &message).await,
            LaunchDisposition::Retry(reason) => {
                let (name, now) = (claim.value.key.name.clone(), self.ports.clock().now());
                let delay = if matches!(error, LaunchError::NodeClassChanged(_)) { CLASS_REFRESH_DELAY } else { USER_ACTION_RETRY_DELAY };
                let event = Event::LaunchErred { reason: reason.as_str().to_owned(), message: message.clone() };
                let mut next = whittle_claims::step(&claim.value, &event, now)?;
                if matches!(next.phase, Phase::Launching { .. }) {
                    next.look_again_at = now.checked_add(delay).ok();
                }
                unless_outdated(save(self.ports.store(), &claim, next).await)?;
                self.report.count("retried");
                if matches!(error, LaunchError::Taint(_)) {
                    self.publish(&claim.value, "LaunchRefused", &message).await;
                }
                requeues.entry(delay).or_default().push(name);
                Ok(())
            }
        }
    }

    /// Fails claims that get no instance; their pods are scheduled again.
    pub(crate) async fn give_up(&mut self, claims: Vec<Stored<Claim>>, reason: DeletionReason, message: &str) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let event = Event::LaunchFailed { reason, message: message.to_owned() };
        for some in claims.chunks(CONCURRENCY) {
            let mut failure = None;
            let mut failed = Vec::new();
            for outcome in join_all(some.iter().map(|claim| advance(self.ports.store(), claim, &event, now))).await {
                match unless_outdated(outcome) {
                    Ok(moved) => failed.extend(moved.filter(|claim| matches!(claim.value.phase, Phase::Failed { .. }))),
                    Err(error) => failure = Some(error),
                }
            }
            failed.iter().for_each(|claim| report_failure(&claim.value, reason, message, now, &mut self.report));
            if let Some(first) = failed.first() {
                self.ports.queues().send_now(Doorbell::Schedule { cluster: first.value.key.cluster.clone() }).await?;
            }
            let ended = failed.iter().map(|claim| {
                let ClaimKey { cluster, name } = claim.value.key.clone();
                self.ports.queues().send_now(Doorbell::Terminate { cluster, claim: name })
            });
            try_join_all(ended).await?;
            join_all(failed.iter().map(|claim| self.publish_failure(&claim.value, reason, message))).await;
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Shows the failure in the cluster. Best effort.
    async fn publish_failure(&self, claim: &Claim, reason: DeletionReason, message: &str) {
        if reason == DeletionReason::InsufficientCapacity {
            let message = format!("NodeClaim {} event: {}", claim.key.name, truncate(message));
            self.publish(claim, "InsufficientCapacityError", &message).await;
        }
        write_mirror(self.ports.cluster(), claim).await;
    }

    /// Publishes a warning on the claim. Best effort.
    async fn publish(&self, claim: &Claim, reason: &str, message: &str) {
        let event = ClusterEvent::warning(Involved::claim(claim), reason, message);
        publish_event(self.ports.cluster(), &claim.key.cluster, &event).await;
    }
}

/// Claims to retry, by delay.
type Requeues = BTreeMap<SignedDuration, Vec<ClaimName>>;

/// A call is begun only if there is time to handle its response; the rest is left to the next invocation.
fn has_time(clock: &impl Clock) -> bool {
    clock.has_time_for(TIME_PER_CALL)
}

/// Completes the writes of one call, a chunk at a time. Claims that other runs have changed are counted and left out; every write that
/// was begun has completed before an error is returned.
async fn complete_writes(
    writes: Vec<impl Future<Output = Result<Stored<Claim>, HandleError>>>,
    report: &mut Report,
) -> Result<Vec<Stored<Claim>>, HandleError> {
    let mut done = Vec::new();
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        let mut failure = None;
        for outcome in join_all(writes.by_ref().take(CONCURRENCY)).await {
            match unless_outdated(outcome) {
                Ok(Some(claim)) => done.push(claim),
                Ok(None) => report.count("lost_to_others"),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
    }
    Ok(done)
}

/// How long ago the oldest of some claims was planned.
fn oldest(claims: &[Stored<Claim>], now: Timestamp) -> SignedDuration {
    claims.iter().map(|claim| now.duration_since(claim.value.created_at)).max().unwrap_or_default()
}

/// The kind of a call that is not in the store, by the age of its claims.
fn unstored_call(age: SignedDuration) -> Call {
    if age >= RESTORED_TABLE_AGE { Call::Lost } else { Call::New }
}

fn report_failure(claim: &Claim, reason: DeletionReason, message: &str, now: Timestamp, report: &mut Report) {
    report.decide(now, DecisionKind::LaunchFailed, format!("nodeclaim/{}", claim.key.name), message);
    report.count("failed");
    report.metric(metrics::NodeClaimsDisrupted::of(claim, reason.metric_reason().unwrap_or_default()));
}

/// Longest failure text in an Event; the rest is truncated (lifecycle 20).
const MESSAGE_MAX: usize = 300;

fn truncate(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message.to_owned(),
    }
}
