//! Executes the findings, one step at a time: a failed step blocks no other.

use crate::Rights;
use crate::adopt::Adoptable;
use crate::collect;
use crate::compare::{Ending, Findings, Missing};
use crate::health::Consistency;
use crate::index::Index;
use crate::templates;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions::CONSISTENT_STATE_FOUND;
use whittle_api::{ConditionStatus, labels};
use whittle_claims::{Claim, DecisionKind, DeletionReason, Doorbell, Event, Machine, Revision, Sighting, Stored, step};
use whittle_ec2::instance::Instance;
use whittle_ports::{
    BestEffort, CLAIMS_PER_REQUEST, CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterEvent, ClusterReader, HandleError, Instances, Involved,
    LaunchTemplateCleanup, Leases, NodePatch, Nodes, ObjectKind, Presence, Queues, RecordRemoval, Records, Report, Safeguard, advance,
    concurrently, metrics, publish_event, release_lease, save, unless_conflict, unless_outdated, write_mirror,
};
use whittle_units::{ClaimName, ClusterName, InstanceId, SignedDuration, Timestamp};

/// Mirrors written in one run; the next tick writes the rest.
pub(crate) const MIRRORS_PER_RUN_MAX: usize = 1000;
/// Claims whose missing objects are looked up together, before the claims are ended: few enough that the look-ups never take all the time.
const ENDINGS_PER_BATCH: usize = 16 * CONCURRENT_REQUESTS;
/// A step is only begun with this much time left; the next tick finds the rest again.
pub(crate) const TIME_PER_STEP: SignedDuration = SignedDuration::from_secs(2);

/// Everything that was read, and the ports to act through.
pub(crate) struct Executor<'a, P> {
    pub(crate) ports: P,
    pub(crate) cluster: &'a ClusterName,
    pub(crate) index: &'a Index<'a>,
    pub(crate) sightings: &'a [Stored<Sighting>],
    /// The first failure: returned when everything else has been tried.
    pub(crate) failure: Option<HandleError>,
}

impl<P: Rights> Executor<'_, P> {
    fn find(&self, name: &ClaimName) -> Option<&Stored<Claim>> {
        self.index.claim(name)
    }

    /// Keeps the first failure; `None` for a failed step.
    pub(crate) fn keep_failure<V>(&mut self, outcome: Result<V, impl Into<HandleError>>) -> Option<V> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                let error = error.into();
                tracing::warn!(%error, "left for the next sweep");
                self.failure.get_or_insert(error);
                None
            }
        }
    }

    pub(crate) fn has_time(&self) -> bool {
        self.ports.clock().has_time_for(TIME_PER_STEP)
    }

    /// Executes all findings, those first whose delay costs most.
    pub(crate) async fn run(mut self, findings: Findings, report: &mut Report) -> Result<(), HandleError> {
        self.delete_claims(&findings.end, report).await;
        self.send_doorbells(&findings, report).await;
        for instance in &findings.orphans {
            if self.has_time() && self.is_unclaimed(instance).await {
                let outcome = self.collect(instance, report).await;
                self.keep_failure(outcome);
            }
        }
        self.adopt_all(&findings.adopt, report).await;
        self.record_nodes(&findings.join, report).await;
        for object in &findings.answer {
            if self.has_time() {
                let outcome = self.create_claim(object, report).await;
                self.keep_failure(outcome);
            }
        }
        // Before the slow steps: two sightings must not need two complete sweeps.
        let outcome = store_sightings(self.ports, self.cluster, &findings, self.sightings).await;
        self.keep_failure(outcome);
        self.write_objects(&findings, report).await;
        self.record_notes(&findings, report).await;
        self.failure.map_or(Ok(()), Err)
    }

    /// Executes what needs no answer of EC2: deletions that were requested, and lost doorbells.
    pub(crate) async fn run_requests(mut self, findings: &Findings, report: &mut Report) -> Result<(), HandleError> {
        self.delete_claims(&findings.end, report).await;
        self.send_doorbells(findings, report).await;
        self.failure.map_or(Ok(()), Err)
    }

    /// Records on claims the Nodes that their NodeClaims name, if the API server has them with the machine's provider id: a machine whose
    /// Node seems to be gone is not drained.
    async fn record_nodes(&mut self, found: &[(ClaimName, String)], report: &mut Report) {
        for (name, node) in found {
            let Some(claim) = self.find(name).filter(|_| self.has_time()).cloned() else { continue };
            let id = claim.value.machine().map_or("", |machine| machine.provider_id.as_str());
            let is_own = collect::is_own_node(self.ports, self.cluster, node, id).await;
            if self.keep_failure(is_own) != Some(true) {
                continue;
            }
            let joined = Event::NodeJoined { node_name: node.clone() };
            let outcome = advance(self.ports.store(), &claim, &joined, self.ports.clock().now()).await;
            if self.keep_failure(unless_outdated(outcome)).flatten().is_some() {
                report.count("joined_again");
            }
        }
    }

    /// Restores the claims of machines without one, all under one lease and many at once: a table that was lost may have had thousands.
    async fn adopt_all(&mut self, found: &[Adoptable], report: &mut Report) {
        if found.is_empty() {
            return;
        }
        let (ports, cluster) = (self.ports, self.cluster);
        let prices = collect::prices(ports).await;
        let lease = ports.store().acquire(cluster, &ports.clock().unique(), ports.clock().now(), collect::ADOPTION_LEASE).await;
        let Some(lease) = self.keep_failure(lease) else { return };
        for some in found.chunks(CLAIMS_PER_REQUEST) {
            if !self.has_time() {
                break; // the next sweep finds the others again
            }
            self.adopt_machines(&lease, some, prices.as_deref(), report).await;
        }
        release_lease(ports.store(), &lease).await;
    }

    /// Requests the deletion of claims, many at once, while there is time. Reports are in the order of the findings.
    async fn delete_claims(&mut self, endings: &[Ending], report: &mut Report) {
        let (mut freed, mut looked_up) = (false, BTreeMap::new());
        for some in endings.chunks(ENDINGS_PER_BATCH) {
            self.look_up_missing(some, &mut looked_up).await;
            let ended = concurrently(some.iter().map(|ending| self.end_reporting(ending, &looked_up))).await;
            for (outcome, part) in ended {
                report.absorb(part);
                freed |= self.keep_failure(outcome).unwrap_or(false);
            }
        }
        if freed {
            let outcome = self.ports.queues().send_now(Doorbell::Schedule { cluster: self.cluster.clone() }).await;
            self.keep_failure(outcome);
        }
    }

    /// Looks up by name what these endings take to be gone, each object once: whether it is. One for which there is no time stays unknown.
    async fn look_up_missing(&mut self, endings: &[Ending], looked_up: &mut BTreeMap<Missing, bool>) {
        let missing = endings.iter().filter_map(|ending| ending.gone.as_ref());
        let unknown: BTreeSet<&Missing> = missing.filter(|missing| !looked_up.contains_key(*missing)).collect();
        let answers = concurrently(unknown.iter().map(|missing| self.is_gone_in_time(missing))).await;
        for (missing, answer) in unknown.into_iter().zip(answers) {
            // Without an answer it is not gone.
            if let Some(is_gone) = self.keep_failure(answer).unwrap_or(Some(false)) {
                looked_up.insert(missing.clone(), is_gone);
            }
        }
    }

    async fn is_gone_in_time(&self, missing: &Missing) -> Result<Option<bool>, HandleError> {
        if self.has_time() { self.is_gone(missing).await.map(Some) } else { Ok(None) }
    }

    /// Ends a claim, with a report of its own.
    async fn end_reporting(&self, ending: &Ending, looked_up: &BTreeMap<Missing, bool>) -> (Result<bool, HandleError>, Report) {
        let mut report = Report::default();
        (self.end_claim(ending, looked_up, &mut report).await, report)
    }

    /// Requests the deletion of a claim, unless what speaks for it is in doubt or there is no time. Returns whether its pods have to be
    /// scheduled again.
    async fn end_claim(&self, ending: &Ending, looked_up: &BTreeMap<Missing, bool>, report: &mut Report) -> Result<bool, HandleError> {
        let is_gone = ending.gone.as_ref().map_or(Some(true), |missing| looked_up.get(missing).copied());
        let Some(is_gone) = is_gone.filter(|_| self.has_time()) else { return Ok(false) };
        if !is_gone {
            report.count("endings_doubted");
            return Ok(false);
        }
        let Some(claim) = self.find(&ending.claim) else { return Ok(false) };
        if ending.reason == DeletionReason::InstanceGone
            && let Some(machine) = claim.value.machine()
        {
            match self.may_run(&machine.instance_id, claim.value.node_name()).await {
                Ok(may_run) if !Safeguard::LossAskedByName.stops(may_run) => {}
                doubt => {
                    report.count("endings_doubted");
                    return doubt.map(|_| false);
                }
            }
        }
        delete_claim(self.ports, claim, ending, report).await
    }

    /// Whether an instance that the listing lacks may run after a request by id. If EC2 does not know it, that says something only of one
    /// that was there: whose Node has joined.
    async fn may_run(&self, id: &InstanceId, node: Option<&str>) -> Result<bool, HandleError> {
        let instance = self.ports.cloud().instance(id).await?;
        Ok(instance.map_or(node.is_none(), |instance| instance.is_alive()))
    }

    /// Whether an object that lists lack is gone according to a request by name.
    pub(crate) async fn is_gone(&self, missing: &Missing) -> Result<bool, HandleError> {
        Ok(match self.ports.cluster().look_up(self.cluster, missing.kind, &missing.name).await? {
            Presence::NotFound => true,
            // Another object of the same name.
            Presence::Exists { uid, provider_id, .. } => is_another(&uid, &missing.uid) || is_another(&provider_id, &missing.provider_id),
            Presence::KindNotServed => false,
        })
    }

    /// Whether no NodeClaim names an instance: that of another controller may be missing from a list.
    async fn is_unclaimed(&mut self, instance: &Instance) -> bool {
        let Some(name) = instance.tags.get(labels::TAG_NODE_CLAIM) else { return true };
        if self.index.claim_named(name).is_some() {
            return true; // its claim exists
        }
        let missing = Missing { kind: ObjectKind::NodeClaim, name: name.clone(), uid: String::new(), provider_id: String::new() };
        let answer = self.is_gone(&missing).await;
        self.keep_failure(answer).unwrap_or(false)
    }

    async fn send_doorbells(&mut self, findings: &Findings, report: &mut Report) {
        let cluster = self.cluster.clone();
        if !findings.launch.is_empty() {
            report.count("launches_sent_again");
            let doorbell = Doorbell::Launch { cluster: cluster.clone(), claims: findings.launch.clone() };
            let outcome = self.ports.queues().send_now(doorbell).await;
            self.keep_failure(outcome);
        }
        if findings.refresh {
            let outcome = self.ports.queues().send_now(Doorbell::Refresh { cluster: cluster.clone() }).await;
            self.keep_failure(outcome);
        }
        for some in findings.terminate.chunks(CONCURRENT_REQUESTS) {
            if !self.has_time() {
                return;
            }
            let doorbell = |claim: &ClaimName| Doorbell::Terminate { cluster: cluster.clone(), claim: claim.clone() };
            let sent = concurrently(some.iter().map(|claim| self.ports.queues().send_now(doorbell(claim)))).await;
            for outcome in sent {
                report.count("endings_sent_again");
                self.keep_failure(outcome);
            }
        }
    }

    /// The uid of the Node that was found under a name: a later one of that name is another machine's.
    fn uid_of_node(&self, name: &str) -> String {
        let found = self.index.objects.nodes.iter().find(|node| node.metadata.name == name);
        found.map(|node| node.metadata.uid.clone()).unwrap_or_default()
    }

    async fn write_objects(&mut self, findings: &Findings, report: &mut Report) {
        let (ports, cluster) = (self.ports, self.cluster);
        let has_time = || ports.clock().has_time_for(TIME_PER_STEP);
        self.release_objects(findings, report).await;
        for node in findings.demote_nodes.iter().take_while(|_| has_time()) {
            let on_demand = (labels::CAPACITY_TYPE.to_owned(), labels::CAPACITY_ON_DEMAND.to_owned());
            let remove_labels = labels::OF_RESERVATIONS.iter().map(|label| (*label).to_owned()).collect();
            let patch = NodePatch { uid: self.uid_of_node(node), labels: [on_demand].into(), remove_labels, ..NodePatch::default() };
            let demoted = ports.cluster().patch_node(cluster, node, "", &patch).await.is_ok();
            report.count(if demoted { "nodes_demoted" } else { "demotions_failed" });
        }
        for (node, class) in findings.hydrate.iter().take_while(|_| has_time()) {
            let label = (labels::EC2_NODE_CLASS.to_owned(), class.clone());
            let patch = NodePatch { uid: self.uid_of_node(node), labels: [label].into(), ..NodePatch::default() };
            let hydrated = ports.cluster().patch_node(cluster, node, "", &patch).await.is_ok();
            report.count(if hydrated { "nodes_hydrated" } else { "hydrations_failed" });
        }
        self.write_mirrors(&findings.mirrors, report).await;
        for name in &findings.delete_templates {
            if self.has_time() {
                self.delete_template(name, report).await;
            }
        }
    }

    /// Deletes a launch template that no call uses. What was seen of it is forgotten before: one that is made again under its name, be it
    /// within the same minute, is new, and `launch` takes it to be there for some minutes.
    async fn delete_template(&self, name: &str, report: &mut Report) {
        let subject = templates::unused(name);
        let Some(known) = self.sightings.iter().find(|stored| stored.value.subject == subject) else { return };
        let forgotten = self.ports.store().remove::<Sighting>(self.cluster, &subject, known.revision).await;
        if forgotten.is_ok() && self.ports.cloud().delete_launch_template(name).await.is_ok() {
            report.count("templates_deleted");
        }
    }

    /// Writes mirrors, many at once: after an upgrade they may be those of all claims.
    async fn write_mirrors(&self, names: &[ClaimName], report: &mut Report) {
        let names = in_turn(names, self.ports.clock().now());
        for some in names.chunks(CONCURRENT_REQUESTS) {
            if !self.has_time() {
                return;
            }
            let written = concurrently(some.iter().map(|name| self.write_newest_mirror(name))).await;
            for outcome in written {
                match outcome {
                    Some(BestEffort::Done) => report.count("mirrors_applied"),
                    Some(BestEffort::Failed) => report.count("mirrors_failed"),
                    None => {}
                }
            }
        }
    }

    /// Writes the mirror of a claim as it is now: it may have been launched since it was listed, and its mirror been written. `None` if it
    /// needs none, or cannot be read.
    async fn write_newest_mirror(&self, name: &ClaimName) -> Option<BestEffort> {
        let claim = self.find(name)?;
        let newest = self.ports.store().get(&claim.value.key).await.ok().flatten()?;
        if newest.value.is_live() { Some(write_mirror(self.ports.cluster(), &newest.value).await) } else { None }
    }

    /// Records whether a node is as its machine should be, with a report of its own.
    async fn note_reporting(&self, found: &Consistency) -> (Result<(), HandleError>, Report) {
        let mut report = Report::default();
        let Some(claim) = self.find(&found.claim) else { return (Ok(()), report) };
        let outcome = note_consistency(self.ports, claim, found, &mut report).await;
        (outcome, report)
    }

    async fn record_notes(&mut self, findings: &Findings, report: &mut Report) {
        // Each node has one when it has joined: of thousands, one after another would take the time of several runs from all that follows.
        for some in findings.consistency.chunks(CONCURRENT_REQUESTS) {
            if !self.has_time() {
                break;
            }
            let noted = concurrently(some.iter().map(|found| self.note_reporting(found))).await;
            for (outcome, part) in noted {
                report.absorb(part);
                self.keep_failure(outcome);
            }
        }
        for name in &findings.demote {
            let Some(claim) = self.find(name).filter(|_| self.has_time()) else { continue };
            let outcome = demote(self.ports, claim, report).await;
            self.keep_failure(outcome);
        }
        for some in findings.events.chunks(CONCURRENT_REQUESTS) {
            if !self.has_time() {
                report.count("events_failed");
                return;
            }
            for published in concurrently(some.iter().map(|event| publish_event(self.ports.cluster(), self.cluster, event))).await {
                report.count(match published {
                    BestEffort::Done => "warned",
                    BestEffort::Failed => "events_failed",
                });
            }
        }
    }
}

/// As many of these claims as one run writes mirrors of, beginning with others in each minute: those that a policy refuses are found again
/// each time, and would keep all others back. A run may have time for a few alone, where a webhook takes long to refuse them.
pub(crate) fn in_turn(names: &[ClaimName], now: Timestamp) -> Vec<&ClaimName> {
    /// 2^64 divided by the golden ratio: its multiples are spread evenly, however many names there are.
    const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
    let share = u128::from(now.as_second().div_euclid(60).unsigned_abs().wrapping_mul(STRIDE));
    let first = (share * names.len() as u128) >> u64::BITS;
    let (earlier, later) = names.split_at(usize::try_from(first).unwrap_or_default());
    later.iter().chain(earlier).take(MIRRORS_PER_RUN_MAX).collect()
}

/// Requests the deletion of a claim and sends the doorbell. Returns whether its pods have to be scheduled again.
async fn delete_claim<P: Rights>(ports: P, claim: &Stored<Claim>, ending: &Ending, report: &mut Report) -> Result<bool, HandleError> {
    let now = ports.clock().now();
    let requested_at = ending.requested_at.map_or(now, |requested| requested.min(now));
    let deletion = claim.value.deletion_for(ending.reason, ending.message.clone(), requested_at).with_stated_deadline(ending.stated);
    let next = step(&claim.value, &Event::DeletionRequested(deletion), now)?;
    let Some(ended) = unless_conflict(save(ports.store(), claim, next).await)? else {
        return Ok(false); // the next sweep checks it again
    };
    let key = ended.value.key.clone();
    report.decide(now, DecisionKind::Disrupted, format!("nodeclaim/{}", key.name), ending.message.clone());
    report.count("ended");
    if let Some(category) = ending.check {
        report.metric(metrics::InstanceStatusUnhealthy { category });
    }
    if claim.value.deletion.is_none() {
        count_disruption(report, &claim.value, ending);
    }
    ports.queues().send_now(Doorbell::Terminate { cluster: key.cluster.clone(), claim: key.name }).await?;
    write_mirror(ports.cluster(), &ended.value).await;
    Ok(true)
}

fn count_disruption(report: &mut Report, claim: &Claim, ending: &Ending) {
    // What EC2 reports of an instance has Karpenter's word for it, as by a notice.
    if let Some(reason) = ending.check.or_else(|| metric_reason(ending.reason)) {
        report.metric(metrics::NodeClaimsDisrupted::of(claim, reason));
    }
    if let Some(condition) = ending.condition {
        let machine = |of: fn(&Machine) -> &String| claim.machine().map_or("", |machine| of(machine).as_str());
        let (capacity_type, image_id) = (machine(|machine| &machine.capacity_type), machine(|machine| &machine.image_id));
        let condition = &snake_case(condition);
        report.metric(metrics::NodeClaimsUnhealthyDisrupted { condition, nodepool: &claim.spec.node_pool, capacity_type, image_id });
    }
}

/// `AcceleratedHardwareReady` as `accelerated_hardware_ready`.
pub(crate) fn snake_case(word: &str) -> String {
    let mut out = String::new();
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// A lost instance that was found by comparison, not by an interruption notice, counts as garbage collected.
const fn metric_reason(reason: DeletionReason) -> Option<&'static str> {
    match reason {
        DeletionReason::InstanceGone => Some("garbage_collected"),
        other => other.metric_reason(),
    }
}

/// Records on a claim that its instance has left its capacity reservation.
async fn demote<P: Rights>(ports: P, claim: &Stored<Claim>, report: &mut Report) -> Result<(), HandleError> {
    let now = ports.clock().now();
    let Some(saved) = unless_conflict(advance(ports.store(), claim, &Event::ReservationLeft, now).await)? else {
        return Ok(()); // the next sweep checks it again
    };
    report.count("demoted");
    let message = "its instance has left its capacity reservation and continues as on-demand";
    report.decide(now, DecisionKind::Kept, format!("nodeclaim/{}", saved.value.key.name), message);
    write_mirror(ports.cluster(), &saved.value).await;
    Ok(())
}

async fn note_consistency<P: Rights>(ports: P, claim: &Stored<Claim>, found: &Consistency, report: &mut Report) -> Result<(), HandleError> {
    let now = ports.clock().now();
    let mut next = claim.value.clone();
    if found.issues.is_empty() {
        next.note(CONSISTENT_STATE_FOUND, ConditionStatus::True, CONSISTENT_STATE_FOUND, "", now);
    } else {
        next.note(CONSISTENT_STATE_FOUND, ConditionStatus::False, "ConsistencyCheckFailed", &found.issues.join("; "), now);
    }
    let Some(saved) = unless_conflict(save(ports.store(), claim, next).await)? else { return Ok(()) };
    report.count("consistency_noted");
    for issue in &found.issues {
        let event = ClusterEvent::warning(Involved::claim(&saved.value), "FailedConsistencyCheck", issue.clone());
        publish_event(ports.cluster(), &saved.value.key.cluster, &event).await;
    }
    write_mirror(ports.cluster(), &saved.value).await;
    Ok(())
}

/// Whether two known ids differ.
fn is_another(there: &str, meant: &str) -> bool {
    !there.is_empty() && !meant.is_empty() && there != meant
}

/// Stores new sightings for the next sweep, and removes those that no longer hold.
async fn store_sightings<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    findings: &Findings,
    known: &[Stored<Sighting>],
) -> Result<(), HandleError> {
    let revisions: BTreeMap<&str, Revision> = known.iter().map(|stored| (stored.value.subject.as_str(), stored.revision)).collect();
    let expected = |sighting: &Sighting| revisions.get(sighting.subject.as_str()).copied().unwrap_or(Revision::ABSENT);
    let noted = concurrently(findings.note.iter().map(|sighting| ports.store().write(cluster, sighting, expected(sighting)))).await;
    let forget: BTreeSet<&str> = findings.forget.iter().map(String::as_str).collect();
    let resolved = known.iter().filter(|stored| forget.contains(stored.value.subject.as_str()));
    let removals = resolved.map(|stored| ports.store().remove::<Sighting>(cluster, &stored.value.subject, stored.revision));
    let removed = concurrently(removals).await;
    for written in noted.into_iter().map(|written| written.map(|_| ())).chain(removed) {
        unless_conflict(written)?;
    }
    Ok(())
}
