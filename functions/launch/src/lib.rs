//! Planned claims get their machines: one fleet call for claims that ask for the same, at most once for each.
//!
//! The order is what makes a crash harmless: claims are moved to `Launching` under the batch's name, then the call is
//! stored with all its parameters, then it is made. Whoever finds claims that were left behind makes the same call again.

mod addresses;
mod again;
mod answer;
mod batch;
mod call;
mod classes;
mod machine;
mod plan;
#[cfg(test)]
mod tests;

use addresses::{SubnetUse, has_choice};
use answer::AT_ONCE;
use batch::Batch;
use call::Call;
use futures::future::{join_all, try_join_all};
use plan::{Facts, Group};
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::{
    Bucket, BucketName, Claim, ClaimKey, DecisionKind, DeletionReason, Doorbell, Event, NodeClassRecord, Phase, Revision, Stored, mirror,
};
use whittle_ec2::fleet::{LaunchDisposition, LaunchError, MinValuesPolicy};
use whittle_ec2::user_data::ClusterAccess;
use whittle_ports::{
    ClaimStore, Clock, ClusterEvent, ClusterReader, ClusterRecord, DecisionLog, Fleets, HandleError, Instances, Involved, LaunchTemplates,
    Mirrors, Queues, Records, RegionStore, Report, Safeguard, Settings, StatusWriter, StoreError, advance, error_chain, metrics, readable,
    rights, save,
};
use whittle_snapshot::{Reserved, warm};
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

rights! {
    /// What `launch` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Records + RegionStore + DecisionLog,
    Cloud: LaunchTemplates + Fleets + Instances,
    Cluster: ClusterReader + Mirrors + StatusWriter,
    Queues: Queues,
}

/// CreateFleet's limits of an account and region: two a second, five at once.
const BUCKET: &str = "CreateFleet";
const BUCKET_SIZE: u32 = 5;
const BUCKET_RATE: u32 = 2;
/// After this a launch that nobody finished is taken up again: longer than a call and its answer take.
const ABANDONED: SignedDuration = SignedDuration::from_secs(30);
/// Nobody tries a call again so late without its having been stored: a table is older than that when it is restored.
const LONG_AGO: SignedDuration = SignedDuration::from_mins(4);
/// How soon a call is made again that was throttled, or failed in a way that may pass.
const SOON: SignedDuration = SignedDuration::from_secs(2);
/// How soon a launch is tried again whose cause a person has to mend.
const LATER: SignedDuration = SignedDuration::from_secs(30);
/// How soon it is looked whether a class that was changed has been looked up.
const LOOKED_UP: SignedDuration = SignedDuration::from_secs(5);
/// What a fleet call takes with its templates and its answer.
const ONE_CALL: SignedDuration = SignedDuration::from_secs(10);
/// What it takes to give a claim up and to say so.
const ONE_REFUSAL: SignedDuration = SignedDuration::from_secs(1);
/// Nodes never join faster.
const FIRST_LOOK: SignedDuration = SignedDuration::from_secs(10);

/// One run for a cluster: its ports, the facts that it decides by, and what it has done.
pub(crate) struct Run<'a, P> {
    ports: P,
    cluster: &'a ClusterName,
    facts: Facts,
    report: Report,
}

/// Launches the named claims, or all that are due when none is named.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName, claims: &[ClaimName]) -> Result<Report, HandleError> {
    let mut report = Report::default();
    if settings.shadow {
        return Ok(report);
    }
    let due = due(ports, cluster, claims).await?;
    if due.is_empty() {
        return Ok(report);
    }
    let facts = match load(ports, settings, cluster).await? {
        Some(facts) => facts,
        None => {
            // `refresh` has not run yet; the launch timeout bounds the wait.
            again::ring(ports, cluster, due.iter().map(|claim| claim.value.key.name.clone())).await?;
            report.count("facts_missing");
            return Ok(report);
        }
    };
    let mut run = Run { ports, cluster, facts, report };
    run.facts.changed = run.changed(&due).await;
    run.look(&due).await?;
    let outcome = run.launch_all(due).await;
    if !run.report.decisions.is_empty() {
        ports.store().append(cluster, &run.report.decisions).await?;
    }
    outcome.map(|()| run.report)
}

/// Claims that want a call now: new ones, and those whose call nobody has finished.
async fn due<P: Rights>(ports: P, cluster: &ClusterName, names: &[ClaimName]) -> Result<Vec<Stored<Claim>>, HandleError> {
    let mut found = Vec::new();
    if names.is_empty() {
        found = ports.store().list(cluster).await?;
    }
    for name in names {
        let key = ClaimKey { cluster: cluster.clone(), name: name.clone() };
        found.extend(readable(ports.store().get(&key).await)?);
    }
    let now = ports.clock().now();
    found.retain(|claim| is_due(&claim.value, now));
    Ok(found)
}

fn is_due(claim: &Claim, now: Timestamp) -> bool {
    if claim.deletion.is_some() {
        return false;
    }
    match (&claim.phase, claim.look_again_at) {
        (Phase::Planned, _) => true,
        (Phase::Launching { .. }, Some(at)) => at <= now,
        (Phase::Launching { since, .. }, None) => now.duration_since(*since) >= ABANDONED,
        _ => false,
    }
}

async fn load<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Option<Facts>, HandleError> {
    let Some(blob) = ports.store().catalog().await? else { return Ok(None) };
    let Some(record) = ports.store().read::<ClusterRecord>(cluster, ClusterRecord::NAME).await? else { return Ok(None) };
    let catalog = warm::catalog(&blob.value)
        .map_err(|error| HandleError::Unreadable { what: "the region's catalog".to_owned(), reason: error.to_string() })?;
    let classes = ports.store().read_all::<NodeClassRecord>(cluster).await?.into_iter();
    let classes: Vec<_> = classes.map(|stored| fenced(stored.value, settings, cluster, &record.value)).collect();
    let now = ports.clock().now();
    let stock_outs = ports.store().stock_outs(now).await?;
    let enabled = settings.scheduling.reserved_capacity;
    let has_reservations = enabled && classes.iter().any(|class| !class.free_reserved.is_empty());
    // Machines of other claims may have taken places that EC2 counted as free.
    let others = if has_reservations { ports.store().list(cluster).await? } else { Vec::new() };
    let reserved = Reserved::for_launches(enabled, &classes, &others, &stock_outs, now);
    let uses = match classes.iter().any(|class| has_choice(&class.subnets)) {
        true => ports.store().read::<SubnetUse>(cluster, SubnetUse::NAME).await?.map(|known| known.value.recent).unwrap_or_default(),
        false => Vec::new(),
    };
    let min_values = if settings.scheduling.lower_min_values { MinValuesPolicy::BestEffort } else { MinValuesPolicy::Strict };
    let changed = BTreeSet::new();
    Ok(Some(Facts { catalog, classes, changed, stock_outs, uses, reserved, access: access_of(&record.value), min_values, now }))
}

/// The class, not ready if it reaches beyond its cluster: `refresh` says so too, but settings may be newer than its last look.
fn fenced(mut class: NodeClassRecord, settings: &Settings, cluster: &ClusterName, record: &ClusterRecord) -> NodeClassRecord {
    let refusals = settings.class_refusals(cluster, &record.info.vpc, &class);
    class.problems.extend(refusals.iter().map(ToString::to_string));
    class
}

fn access_of(record: &ClusterRecord) -> ClusterAccess {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let info = &record.info;
    ClusterAccess {
        name: info.name.as_str().to_owned(),
        endpoint: info.endpoint.clone(),
        ca_bundle: known(&info.certificate_authority),
        service_cidr: known(&info.service_cidr),
        dns_address: info.dns_address(),
    }
}

impl<P: Rights> Run<'_, P> {
    async fn launch_all(&mut self, due: Vec<Stored<Claim>>) -> Result<(), HandleError> {
        let (fresh, begun): (Vec<_>, Vec<_>) = due.into_iter().partition(|claim| matches!(claim.value.phase, Phase::Planned));
        let mut left: Vec<ClaimName> = Vec::new();
        let mut later = Later::new();
        let mut by_batch: BTreeMap<String, Vec<Stored<Claim>>> = BTreeMap::new();
        for claim in begun {
            if let Phase::Launching { client_token, .. } = &claim.value.phase {
                by_batch.entry(client_token.clone()).or_default().push(claim);
            }
        }
        for (id, claims) in by_batch {
            if !has_time(self.ports.clock()) {
                self.report.count("handed_over");
                left.extend(claims.into_iter().map(|claim| claim.value.key.name));
                continue;
            }
            left.extend(self.resume(&id, claims, &mut later).await?);
        }
        let plan = self.facts.plan(fresh);
        for (claim, error) in plan.refused {
            if self.ports.clock().deadline().has(self.ports.clock().now(), ONE_REFUSAL) {
                self.refuse(claim, &error, &mut later).await?;
            } else {
                self.report.count("handed_over");
                left.push(claim.value.key.name);
            }
        }
        for group in plan.groups {
            if !has_time(self.ports.clock()) {
                self.report.count("handed_over");
                left.extend(group.claims.into_iter().map(|claim| claim.value.key.name));
            } else if self.take_token().await? {
                self.begin(group).await?;
            } else {
                self.report.count("no_token");
                left.extend(group.claims.into_iter().map(|claim| claim.value.key.name));
            }
        }
        for (delay, names) in later {
            self.ring_again(names, delay).await?;
        }
        if !left.is_empty() {
            again::ring(self.ports, self.cluster, left).await?;
        }
        Ok(())
    }

    /// A rate cap: all invocations of the account share the bucket, however many run.
    async fn take_token(&self) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        let full = Bucket::full(BUCKET_SIZE, BUCKET_RATE, now);
        match self.ports.store().take_tokens(&BucketName(BUCKET.to_owned()), &full, 1, now).await {
            Ok(taken) => Ok(Safeguard::CallsRated.permits(taken)),
            // Others took theirs at the same moment: ours comes later.
            Err(StoreError::Conflict { .. } | StoreError::Throttled { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the intent for a new group, then makes the call.
    async fn begin(&mut self, group: Group) -> Result<(), HandleError> {
        let tokens: Vec<ClaimName> = group.claims.iter().map(|claim| plan::token_of(&claim.value)).collect();
        let id = plan::id_of(self.cluster, &tokens);
        let begun = Event::LaunchBegun { client_token: id.clone() };
        let now = self.ports.clock().now();
        let moved = group.claims.iter().map(|claim| advance(self.ports.store(), claim, &begun, now)).collect();
        // Deleted meanwhile, or another run has it: the call goes without it.
        let members: Vec<ClaimName> = at_once(moved, &mut self.report).await?.into_iter().map(|claim| claim.value.key.name).collect();
        if members.is_empty() {
            return Ok(());
        }
        let batch = plan::batch(&id, members, &group.node_class, &group.launch, self.ports.clock().now());
        let Some(batch) = self.store_batch(batch).await? else { return Ok(()) };
        // A claim is launched within seconds of its plan. One that waited longer may have been launched before the table was restored.
        let oldest = group.claims.iter().map(|claim| now.duration_since(claim.value.created_at)).max().unwrap_or_default();
        let which = if Safeguard::OldPlansLookFirst.stops(oldest >= ABANDONED) { unstored(oldest) } else { Call::First };
        self.call(&batch, which).await
    }

    /// Stores a call that nobody has made yet. If another run stored it first, theirs is the one to make; they make it.
    async fn store_batch(&self, batch: Batch) -> Result<Option<Batch>, HandleError> {
        match self.ports.store().write(self.cluster, &batch, Revision::ABSENT).await {
            Ok(_) => Ok(Some(batch)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes up a launch that was left behind: the same call again, or, where it was never stored, a new one.
    /// Returns the claims that have to wait for a token.
    async fn resume(&mut self, id: &str, claims: Vec<Stored<Claim>>, later: &mut Later) -> Result<Vec<ClaimName>, HandleError> {
        let names: Vec<ClaimName> = claims.iter().map(|claim| claim.value.key.name.clone()).collect();
        if !self.take_token().await? {
            self.report.count("no_token");
            return Ok(names);
        }
        // Counting the attempt first keeps a second run of the same doorbell off.
        let (begun, now) = (Event::LaunchBegun { client_token: id.to_owned() }, self.ports.clock().now());
        let mut writes = Vec::new();
        for claim in &claims {
            let mut next = whittle_claims::step(&claim.value, &begun, now)?;
            next.look_again_at = now.checked_add(ABANDONED).ok();
            writes.push(save(self.ports.store(), claim, next));
        }
        let taken = at_once(writes, &mut self.report).await?;
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(batch) = self.ports.store().read::<Batch>(self.cluster, id).await? {
            let (members, strays): (Vec<_>, Vec<_>) =
                taken.into_iter().partition(|claim| batch.value.members.contains(&claim.value.key.name));
            // The call was stored without these, so that no machine of it is theirs.
            self.under_new_name(strays, id, None, SOON).await?;
            if !members.is_empty() {
                let which = if batch.value.looked_at.is_some() { Call::Lost } else { Call::Repeat };
                self.call(&batch.value, which).await?;
            }
            return Ok(Vec::new());
        }
        let ages = claims.iter().filter_map(|claim| match &claim.value.phase {
            Phase::Launching { since, .. } => Some(now.duration_since(*since)),
            _ => None,
        });
        let which = unstored(ages.max().unwrap_or_default());
        let plan = self.facts.plan(taken);
        for (claim, error) in plan.refused {
            self.refuse(claim, &error, later).await?;
        }
        let mut groups = plan.groups.into_iter();
        if let Some(group) = groups.next() {
            let members = group.claims.iter().map(|claim| claim.value.key.name.clone()).collect();
            let batch = plan::batch(id, members, &group.node_class, &group.launch, self.ports.clock().now());
            if let Some(batch) = self.store_batch(batch).await? {
                self.call(&batch, which).await?;
            }
        }
        // What no longer asks for the same waits for its own call.
        for group in groups {
            self.under_new_name(group.claims, id, None, SOON).await?;
        }
        Ok(Vec::new())
    }

    /// A claim for which no call can be made.
    async fn refuse(&mut self, claim: Stored<Claim>, error: &LaunchError, later: &mut Later) -> Result<(), HandleError> {
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
                let name = claim.value.key.name.clone();
                let event = Event::LaunchErred { reason: reason.as_str().to_owned(), message };
                answer::unless_moved(advance(self.ports.store(), &claim, &event, self.ports.clock().now()).await)?;
                self.report.count("retried");
                let delay = if matches!(error, LaunchError::NodeClassChanged(_)) { LOOKED_UP } else { LATER };
                later.entry(delay).or_default().push(name);
                Ok(())
            }
        }
    }

    /// Ends claims that get no machine; their pods are planned anew.
    pub(crate) async fn give_up(&mut self, claims: Vec<Stored<Claim>>, reason: DeletionReason, message: &str) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let event = Event::LaunchFailed { reason, message: message.to_owned() };
        for some in claims.chunks(AT_ONCE) {
            let mut failure = None;
            let mut failed = Vec::new();
            for outcome in join_all(some.iter().map(|claim| advance(self.ports.store(), claim, &event, now))).await {
                match answer::unless_moved(outcome) {
                    Ok(moved) => failed.extend(moved.filter(|claim| matches!(claim.value.phase, Phase::Failed { .. }))),
                    Err(error) => failure = Some(error),
                }
            }
            failed.iter().for_each(|claim| tell_failed(&claim.value, reason, message, now, &mut self.report));
            if let Some(first) = failed.first() {
                self.ports.queues().ring(Doorbell::Schedule { cluster: first.value.key.cluster.clone() }, SignedDuration::ZERO).await?;
            }
            let ended = failed.iter().map(|claim| {
                let ClaimKey { cluster, name } = claim.value.key.clone();
                self.ports.queues().ring(Doorbell::Terminate { cluster, claim: name }, SignedDuration::ZERO)
            });
            try_join_all(ended).await?;
            join_all(failed.iter().map(|claim| self.show_failed(&claim.value, reason, message))).await;
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(())
    }

    /// In the cluster; that it cannot be shown stops nothing.
    async fn show_failed(&self, claim: &Claim, reason: DeletionReason, message: &str) {
        if reason == DeletionReason::InsufficientCapacity {
            let message = format!("NodeClaim {} event: {}", claim.key.name, cut(message));
            self.publish(claim, "InsufficientCapacityError", &message).await;
        }
        let _ = self.ports.cluster().apply_mirror(&claim.key.cluster, &mirror(claim)).await;
    }

    /// Warns on the claim; that nobody can be told stops nothing.
    async fn publish(&self, claim: &Claim, reason: &str, message: &str) {
        let event = ClusterEvent::warning(Involved::claim(claim), reason, message);
        let _ = self.ports.cluster().publish(&claim.key.cluster, &event).await;
    }
}

/// Claims that are tried again, by when.
type Later = BTreeMap<SignedDuration, Vec<ClaimName>>;

/// A call is begun only if its answer can still be handed out; what is left goes to the next invocation.
fn has_time(clock: &impl Clock) -> bool {
    clock.deadline().has(clock.now(), ONE_CALL)
}

/// Claims that are written for one call, some at a time. Those that others have moved are counted and left out; every write
/// that was begun has ended before an error is told.
async fn at_once(
    writes: Vec<impl Future<Output = Result<Stored<Claim>, HandleError>>>,
    report: &mut Report,
) -> Result<Vec<Stored<Claim>>, HandleError> {
    let mut done = Vec::new();
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        let mut failure = None;
        for outcome in join_all(writes.by_ref().take(AT_ONCE)).await {
            match answer::unless_moved(outcome) {
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

/// What a call is of which nothing is stored, by the age of what it is for.
fn unstored(age: SignedDuration) -> Call {
    if age >= LONG_AGO { Call::Lost } else { Call::New }
}

fn tell_failed(claim: &Claim, reason: DeletionReason, message: &str, now: Timestamp, report: &mut Report) {
    report.decide(now, DecisionKind::LaunchFailed, format!("nodeclaim/{}", claim.key.name), message);
    report.count("failed");
    report.metric(metrics::NodeClaimsDisrupted {
        reason: reason.metric_reason().unwrap_or_default(),
        nodepool: &claim.spec.node_pool,
        capacity_type: "",
        consolidation_policy: "",
        termination_mode: claim.termination_mode(),
    });
}

/// Longest text of a failed launch in an event; more is cut off (lifecycle 20).
const MESSAGE_MAX: usize = 300;

fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message.to_owned(),
    }
}
