//! What must never happen on the way, looked at from outside at each write and each call that cannot be taken back.

mod ends;
mod rates;

use crate::check::{is_by_hand, is_in_hand};
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Node, Pod};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{Claim, DecisionRecord, DeletionReason, Lease, Phase, Record as _, Sighting, Uninstall};
use whittle_core::disruption::LedgerEntry;
use whittle_core::pods::is_daemon_owned;
use whittle_ec2::fleet::FleetRequest;
use whittle_ec2::instance::InstanceState;
use whittle_units::{ClaimName, ClusterName, InstanceId, Price, ProviderId};

/// A contradiction has to be seen again this long after it was first seen, less what clocks may differ.
const BETWEEN_SIGHTINGS: SignedDuration = SignedDuration::from_secs(26);
/// A sighting counts for so long.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);
/// What two clocks may differ by, and a little for the call itself.
const SLACK: SignedDuration = SignedDuration::from_secs(5);

/// What the checkers remember.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Since when a listing showed a machine that no claim named.
    unclaimed: BTreeMap<InstanceId, Timestamp>,
    /// The newest lease that was given and not given back.
    lease: Option<Lease>,
    /// When EC2 announced that it takes a machine back.
    noticed: BTreeMap<InstanceId, Timestamp>,
    /// Since when sweeps are shown a NodeClaim that was made by hand, by uid.
    waiting: BTreeMap<String, Timestamp>,
    /// Those that got a claim.
    answered: BTreeSet<String>,
    /// The claims of each launch that EC2 started machines for.
    bought_for: BTreeMap<String, BTreeSet<ClaimName>>,
    /// Nodes as they were last.
    marks: BTreeMap<String, ends::Mark>,
    rates: rates::Rates,
    /// Machines that are Karpenter's.
    karpenters: BTreeSet<InstanceId>,
    /// Since when machines are to be left to run without Whittle.
    kept_since: Option<Timestamp>,
    /// Machines whose Node somebody had deleted before their end was decided.
    without_node: BTreeSet<InstanceId>,
    /// When the table was replaced by another.
    table_lost: Option<Timestamp>,
    /// What that one remembered to have seen.
    remembered: Vec<String>,
}

impl World {
    pub(crate) fn broke(&mut self, text: String) {
        if !self.violations.contains(&text) {
            self.violations.push(text);
        }
    }

    /// A machine that EC2 has not ended yet.
    fn lives(&self, id: &InstanceId) -> bool {
        self.region.machines.get(id).is_some_and(|machine| machine.instance.state != InstanceState::Terminated)
    }

    /// The claim that had a machine until it ended.
    fn ended_under(&self, id: &InstanceId) -> Option<ClaimName> {
        let had = |claim: &&Claim| matches!(&claim.phase, Phase::Gone { machine: Some(machine), .. } if machine.instance_id == *id);
        let claims = self.store.claims(&self.cluster.name);
        claims.map(|stored| &stored.value).find(had).map(|claim| claim.key.name.clone())
    }

    pub(crate) fn machine_of_provider(&self, id: &str) -> Option<InstanceId> {
        let of_id = |machine: &&crate::region::Machine| machine.instance.provider_id().as_str() == id;
        self.region.machines.values().find(of_id).map(|machine| machine.instance.id.clone())
    }

    /// Whether the table is not the one that the world began with: what it says of the past is not all of it.
    pub fn has_lost_its_table(&self) -> bool {
        self.watched.table_lost.is_some()
    }

    /// The table was replaced by another: what only it knew (leases, notices that were read, what a call was made for) nobody can
    /// be held to any more.
    pub(crate) fn watch_other_table(&mut self) {
        self.watched.table_lost = Some(self.now());
        self.watched.remembered = self.store.names_of(&self.cluster.name, Sighting::KIND).map(str::to_owned).collect();
        self.watched.lease = None;
        self.watched.answered.clear();
        self.watched.noticed.clear();
        self.watched.bought_for.clear();
        self.watched.kept_since = None;
    }

    /// From now on machines are to be left to run without Whittle.
    pub(crate) fn watch_kept(&mut self) {
        self.watched.kept_since = Some(self.now());
    }

    /// Whether Whittle was asked to leave the cluster.
    pub(crate) fn is_left(&self) -> bool {
        self.store.record(&self.cluster.name, Uninstall::KIND, Uninstall::NAME).is_some()
    }

    /// Whether Whittle has marked a machine as nobody's, so that it runs on.
    pub(crate) fn was_let_go(&self, id: &InstanceId) -> bool {
        self.region.machines.get(id).is_some_and(|machine| machine.instance.tags.contains_key(labels::TAG_LET_GO))
    }

    /// A machine is Karpenter's from now on.
    pub(crate) fn watch_karpenter(&mut self, id: InstanceId) {
        self.watched.karpenters.insert(id);
    }

    /// Whether Karpenter's machine is the one of a provider id.
    pub(crate) fn is_karpenters(&self, provider_id: &str) -> bool {
        self.watched.karpenters.iter().any(|id| provider_id.ends_with(id.as_str()))
    }

    /// A claim was created.
    pub(crate) fn watch_created(&mut self, claim: &Claim) {
        if let Some(machine) = claim.machine() {
            let id = machine.instance_id.clone();
            if self.watched.karpenters.contains(&id) {
                self.broke(format!("machine {id} is Karpenter's and was taken over"));
            }
            self.watch_orphan(&id);
            self.watch_collected(&id);
        }
        if claim.spec.replaces.is_none() && claim.deletion.is_none() {
            self.watch_planned_twice(claim);
        }
        // A claim that names a machine from its beginning buys nothing: the machine was there.
        if claim.deletion.is_none() && claim.machine().is_none() {
            self.watch_static(claim);
        }
        self.watch_answered(claim);
    }

    /// A sweep was shown the cluster.
    pub(crate) fn watch_waiting(&mut self, shown: &ClusterObjects) {
        let now = self.now();
        for object in shown.node_claims.iter().filter(|object| is_by_hand(object)) {
            self.watched.waiting.entry(object.metadata.uid.clone()).or_insert(now);
        }
    }

    /// A NodeClaim that somebody made by hand got a claim: once, at its second sight, and only if no controller has it in hand.
    fn watch_answered(&mut self, claim: &Claim) {
        let Some(uid) = claim.spec.standalone_uid.clone() else { return };
        let name = claim.key.name.as_str();
        let object = self.cluster.objects.get::<NodeClaim>(name).filter(|object| object.metadata.uid == uid);
        // What we had in hand ourselves is answered again after the table was lost.
        let ours = |object: &NodeClaim| object.metadata.annotation(labels::MANAGED) == Some("true");
        if object.is_some_and(|object| (!is_by_hand(object) || is_in_hand(object)) && !ours(object)) {
            self.broke(format!("NodeClaim {name} was answered although another controller has it in hand"));
        }
        if self.watched.waiting.get(&uid).is_some_and(|since| self.now().duration_since(*since) < BETWEEN_SIGHTINGS) {
            self.broke(format!("NodeClaim {name} was answered at first sight"));
        }
        if !self.watched.answered.insert(uid) {
            self.broke(format!("NodeClaim {name} was answered twice"));
        }
    }

    /// Whether a claim is to end, as the table says or as somebody asked who deleted what stands for it.
    pub(crate) fn is_to_end(&self, claim: &Claim) -> bool {
        let objects = &self.cluster.objects;
        let object = objects.get::<NodeClaim>(claim.key.name.as_str()).filter(|shown| claim.is_shown_by(shown));
        let node = claim.node_name().and_then(|name| objects.get::<Node>(name));
        let deleted = object.is_some_and(|object| object.metadata.is_deleting()) || node.is_some_and(|node| node.metadata.is_deleting());
        claim.deletion.is_some() || deleted
    }

    /// Decisions were recorded. Where a consolidation is through, what came must cost less than what goes, by what the region
    /// charges.
    pub(crate) fn watch_bill(&mut self, cluster: &ClusterName, decisions: &[DecisionRecord]) {
        let is_ledger = |decision: &&DecisionRecord| decision.subject == LedgerEntry::KEY;
        for decision in decisions.iter().filter(is_ledger) {
            let entry = decision.detail.get(LedgerEntry::KEY).and_then(|entry| LedgerEntry::deserialize(entry).ok());
            let Some(entry) = entry else {
                self.broke(format!("an entry of the ledger cannot be read: {}", decision.detail));
                continue;
            };
            if entry.reason == "Drifted" {
                continue;
            }
            let command = format!("command {}", entry.id);
            let goes = |claim: &Claim| claim.deletion.as_ref().is_some_and(|deletion| deletion.message.ends_with(&command));
            let comes = |claim: &Claim| claim.spec.replaces.as_ref() == Some(&entry.id);
            let (going, coming) = (self.charged(cluster, goes), self.charged(cluster, comes));
            // Entered again after a crash, when what went has ended long since: it was compared the first time.
            if going.len() < entry.nodes.len() {
                continue;
            }
            let (before, after): (Price, Price) = (going.into_iter().sum(), coming.into_iter().sum());
            if after > before {
                self.broke(format!("{command} ({}) made the bill larger: {before} to {after} an hour", entry.reason));
            }
        }
    }

    /// What each machine of these claims costs that the region still knows.
    fn charged(&self, cluster: &ClusterName, of: impl Fn(&Claim) -> bool) -> Vec<Price> {
        let claims = self.store.claims_with_hidden(cluster).map(|stored| &stored.value).filter(|claim| of(claim));
        let machines = claims.filter_map(|claim| self.region.machines.get(&claim.machine()?.instance_id));
        machines.map(|machine| machine.price).collect()
    }

    fn live_claims<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Claim> {
        let cluster = &self.cluster.name;
        self.store.claims(cluster).map(|stored| &stored.value).filter(move |claim| claim.is_live() && claim.spec.node_pool == pool)
    }

    /// Pods that wait and that machines under way were planned for must not get another one.
    fn watch_planned_twice(&mut self, claim: &Claim) {
        let under_way: BTreeSet<&str> = self
            .live_claims(&claim.spec.node_pool)
            .filter(|other| other.key != claim.key && !self.is_to_end(other))
            .filter(|other| matches!(other.phase, Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. }))
            .filter(|other| !self.has_taken_others(other))
            .filter(|other| self.store.shown_at(&other.key).is_none_or(|at| at < self.ago(ends::RUN_MAX)))
            .flat_map(|other| other.spec.pods.iter().map(|pod| pod.uid.as_str()))
            .collect();
        let waits = |pod: &&Pod| !pod.is_bound() && !pod.metadata.is_deleting() && pod.metadata.controller().is_some();
        let waiting: BTreeSet<&str> = self.cluster.objects.pods.values().filter(waits).map(|pod| pod.metadata.uid.as_str()).collect();
        let planned = |uid: &str| under_way.contains(uid) && waiting.contains(uid);
        // Where other pods wait as well, or run on nodes that are going, the machines under way may have been given to them.
        let going = self.live_claims(&claim.spec.node_pool).filter(|other| self.is_to_end(other));
        let mut going: BTreeSet<&str> = going.filter_map(|other| other.node_name()).collect();
        // Also of a claim that a restored table does not have.
        let deleted = self.cluster.objects.nodes.values().filter(|node| node.metadata.is_deleting());
        going.extend(deleted.map(|node| node.metadata.name.as_str()));
        let leaving = self.cluster.objects.pods.values().any(|pod| going.contains(pod.spec.node_name.as_str()));
        let all_planned = !leaving && !claim.spec.pods.is_empty() && waiting.iter().all(|uid| planned(uid));
        if all_planned && claim.spec.pods.iter().all(|pod| planned(&pod.uid)) {
            self.broke(format!("the pods of claim {} were planned for already", claim.key.name));
        }
    }

    /// Whether pods run on the machine of a claim that it was not planned for: they may have taken the room of those that it was.
    fn has_taken_others(&self, claim: &Claim) -> bool {
        let Some(machine) = claim.machine() else { return false };
        let nodes = self.cluster.objects.nodes.values();
        let node = nodes.filter(|node| node.spec.provider_id == machine.provider_id.as_str()).map(|node| &node.metadata.name).next();
        let planned = |pod: &Pod| claim.spec.pods.iter().any(|planned| planned.uid == pod.metadata.uid);
        let stranger = |pod: &Pod| !is_daemon_owned(pod) && !planned(pod);
        node.is_some_and(|node| self.cluster.objects.pods.values().any(|pod| pod.spec.node_name == *node && stranger(pod)))
    }

    /// A claim was changed. `over` is the revision that was there, `expected` the one that the writer had read.
    pub(crate) fn watch_changed(&mut self, old: &Claim, new: &Claim, was_current: bool) {
        self.watch_disruption(old, new);
        self.watch_abandoned(old, new);
        self.watch_deleted_node(old, new);
        if let (Phase::Registered { .. }, Phase::Initialized { .. }) = (&old.phase, &new.phase) {
            self.watch_initialized(new);
        }
        let name = &new.key.name;
        if !was_current {
            self.broke(format!("claim {name} was written over a state that the writer had not seen"));
        }
        if let (Some(before), Some(after)) = (old.machine(), new.machine())
            && before.instance_id != after.instance_id
        {
            self.broke(format!("claim {name} changed its machine from {} to {}", before.instance_id, after.instance_id));
        }
        if let (None, Some(machine), None) = (old.machine(), new.machine(), &new.deletion)
            && let Some(other) = self.ended_under(&machine.instance_id)
        {
            self.broke(format!("claim {name} got {}, which had ended under {other}", machine.instance_id));
        }
        self.watch_given(old, new);
        if let Phase::Gone { .. } = new.phase
            && let Some(machine) =
                old.machine().filter(|machine| self.lives(&machine.instance_id) && !self.was_let_go(&machine.instance_id))
        {
            self.broke(format!("claim {name} is gone although {} was not seen to have ended", machine.instance_id));
        }
        if !old.is_live()
            && new.is_live()
            && let Some(machine) = new.machine()
        {
            let id = machine.instance_id.clone();
            // Its own call's machine, which came too late, is no orphan.
            if !self.was_called_for(&id, &new.key.name) {
                self.watch_orphan(&id);
            }
        }
        if old.uid != new.uid {
            if old.is_live() {
                self.broke(format!("claim {name} lost its place to another of its name while it lived"));
            }
            self.watch_answered(new);
        }
        if old.deletion.is_none()
            && let Some(deletion) = &new.deletion
        {
            let reason = deletion.reason;
            self.watch_ending(new, deletion);
            if let Some(wrong) = self.unfounded(new, reason) {
                self.broke(format!("claim {name} was ended ({reason:?}) although {wrong}"));
            }
        }
    }

    /// What contradicts the reason that a claim is ended for.
    fn unfounded(&self, claim: &Claim, reason: DeletionReason) -> Option<&'static str> {
        let now = self.now();
        let machine = claim.machine();
        let overdue = |since: Timestamp, after: SignedDuration| now.duration_since(since) + SLACK >= after;
        match reason {
            DeletionReason::InstanceGone => {
                let runs = |id: &InstanceId| self.region.machines.get(id).is_some_and(|machine| machine.instance.is_alive());
                let id = machine.map(|machine| &machine.instance_id).filter(|id| runs(id))?;
                // Nobody can know better who asks everybody: listings lack it, EC2 does not know it by its id, its kubelet is silent.
                let speaks = claim.node_name().is_some_and(|node| self.speaks(node));
                (speaks || !self.lag.denies(id, now)).then_some("its machine runs")
            }
            DeletionReason::NodePoolDeleted => {
                let there = |pool: &&NodePool| pool.metadata.name == claim.spec.owner.name && !pool.metadata.is_deleting();
                let same = self.cluster.objects.node_pools.values().find(there)?;
                let uid = &claim.spec.owner.uid;
                (uid.is_empty() || *uid == same.metadata.uid).then_some("its NodePool is there")
            }
            // A capacity block ends in truth, whatever its class says.
            DeletionReason::Requested
                if machine.is_some_and(|machine| self.region.is_to_leave_its_block(&machine.instance_id, now + SLACK)) =>
            {
                None
            }
            DeletionReason::Requested if self.is_left() => None,
            DeletionReason::Requested => {
                let shown = self.cluster.objects.get::<NodeClaim>(claim.key.name.as_str()).filter(|shown| claim.is_shown_by(shown));
                let node = claim.node_name().and_then(|name| self.cluster.objects.get::<Node>(name));
                let stays = shown.is_some_and(|shown| !shown.metadata.is_deleting());
                (stays && node.is_none_or(|node| !node.metadata.is_deleting()) && (node.is_some() || claim.node_name().is_none()))
                    .then_some("nobody deleted its Node or its NodeClaim")
            }
            DeletionReason::Expired => claim.expires_at().is_none_or(|at| at > now + SLACK).then_some("its time has not come"),
            DeletionReason::RegistrationTimeout => {
                (!overdue(claim.created_at, SignedDuration::from_mins(15))).then_some("it still had time to register")
            }
            DeletionReason::LaunchTimeout => {
                (!overdue(claim.created_at, SignedDuration::from_mins(5))).then_some("it still had time to launch")
            }
            _ => None,
        }
    }

    /// A listing of machines was given to somebody.
    pub(crate) fn watch_listed(&mut self) {
        let now = self.now();
        let cluster = self.name();
        let named: BTreeSet<InstanceId> = self
            .store
            .claims_with_hidden(&cluster)
            .filter_map(|stored| stored.value.machine())
            .map(|machine| machine.instance_id.clone())
            .collect();
        let alive: Vec<InstanceId> =
            self.region.machines.iter().filter(|(_, machine)| machine.instance.is_alive()).map(|(id, _)| id.clone()).collect();
        self.watched.unclaimed.retain(|id, _| !named.contains(id));
        for id in alive.into_iter().filter(|id| !named.contains(id)) {
            self.watched.unclaimed.entry(id).or_insert(now);
        }
    }

    /// Whether a machine came of a call that was stored for a claim.
    fn was_called_for(&self, id: &InstanceId, claim: &ClaimName) -> bool {
        let call = self.region.machines.get(id).and_then(|machine| machine.instance.tags.get(labels::TAG_LAUNCH));
        let stored = call.and_then(|call| self.store.record(&self.cluster.name, "launch", call));
        let members = stored.and_then(|call| call["members"].as_array());
        members.is_some_and(|members| members.iter().any(|member| member == claim.as_str()))
    }

    /// A claim was made, or woken, only to end a machine that had none.
    fn watch_orphan(&mut self, id: &InstanceId) {
        // EC2 may still show what has ended.
        if !self.lives(id) {
            return;
        }
        // Another table may remember that it was seen before.
        let remembered = || self.watched.remembered.iter().any(|subject| subject.contains(id.as_str()));
        if self.watched.table_lost.is_some_and(|at| self.now().duration_since(at) < REMEMBERED) && remembered() {
            return;
        }
        let seen = self.watched.unclaimed.get(id).copied();
        if seen.is_none_or(|since| self.now().duration_since(since) < BETWEEN_SIGHTINGS) {
            self.broke(format!("machine {id} was taken for an orphan at first sight"));
        }
    }

    /// Somebody was given the lease.
    pub(crate) fn watch_lease(&mut self, lease: &Lease) {
        let now = self.now();
        if let Some(held) = &self.watched.lease
            && held.owner != lease.owner
            && held.expires_at > now + SLACK
        {
            let text = format!("the lease of {} was given to two at once", lease.cluster);
            self.broke(text);
        }
        self.watched.lease = Some(lease.clone());
    }

    /// Somebody gave the lease back.
    pub(crate) fn watch_release(&mut self, lease: &Lease) {
        if self.watched.lease.as_ref().is_some_and(|held| held.token == lease.token) {
            self.watched.lease = None;
        }
    }

    /// A fleet was started: no launch may bring more machines than it has claims.
    pub(crate) fn watch_fleet(&mut self, request: &FleetRequest) {
        let Some(launch) = request.tags.get(labels::TAG_LAUNCH) else { return };
        let of_launch = |machine: &&crate::region::Machine| machine.instance.tags.get(labels::TAG_LAUNCH) == Some(launch);
        let machines = self.region.machines.values().filter(of_launch).count();
        if machines > usize::try_from(request.target_capacity).unwrap_or(0) {
            self.broke(format!("launch {launch} of {} brought {machines} machines", request.target_capacity));
        }
    }

    /// A fleet started machines: the claims that wait for them must not have one already that nobody noticed.
    pub(crate) fn watch_bought(&mut self, request: &FleetRequest) {
        let Some(launch) = request.tags.get(labels::TAG_LAUNCH) else { return };
        let waits = |claim: &&Claim| matches!(&claim.phase, Phase::Launching { client_token, .. } if client_token == launch);
        // A claim may wait under the name of a call that was stored without it: no machine of it is that claim's.
        let stored = self.store.record(&self.cluster.name, "launch", launch).and_then(|call| call["members"].as_array());
        let is_member = |name: &ClaimName| stored.is_none_or(|all| all.iter().any(|member| member == name.as_str()));
        let claims = self.store.claims(&self.cluster.name).map(|stored| &stored.value);
        let members = claims.filter(waits).map(|claim| claim.key.name.clone()).filter(is_member);
        let members: BTreeSet<ClaimName> = members.collect();
        let earlier = |old: &&String| self.watched.bought_for.get(*old).is_some_and(|known| !known.is_disjoint(&members));
        let unnoticed = self.region.machines.values().map(|machine| &machine.instance).find(|instance| {
            let old = instance.tags.get(labels::TAG_LAUNCH).filter(|old| *old != launch).filter(earlier);
            old.is_some() && instance.is_alive() && self.store.owner(&instance.id).is_none()
        });
        if let Some(id) = unnoticed.map(|instance| instance.id.clone()) {
            self.broke(format!("launch {launch} bought machines anew while {id} of an earlier call for its claims ran unnoticed"));
        }
        self.watched.bought_for.insert(launch.clone(), members);
    }

    /// Our finalizer is taken off an object that stands for a machine.
    pub(crate) fn watch_let_go(&mut self, what: &str, provider: &ProviderId) {
        let alive = self.machine_of_provider(provider.as_str()).filter(|id| self.lives(id));
        if let Some(id) = alive.filter(|id| !self.was_let_go(id)) {
            self.broke(format!("{what} lost its finalizer before {id} had ended"));
        }
    }

    /// A pod is deleted without asking its budget.
    pub(crate) fn watch_forced(&mut self, key: &str) {
        let Some(pod) = self.cluster.objects.pods.get(key) else { return };
        let (node, grace) = (pod.spec.node_name.clone(), pod.spec.termination_grace_period_seconds.unwrap_or(30));
        let cluster = self.name();
        let claim =
            self.store.claims(&cluster).map(|stored| &stored.value).find(|claim| claim.is_live() && claim.node_name() == Some(&node));
        let Some(claim) = claim else { return };
        let deadline = claim.deletion.as_ref().and_then(|deletion| deletion.deadline);
        let latest = deadline.and_then(|deadline| deadline.checked_sub(SignedDuration::from_secs(grace)).ok());
        let machine = claim.machine().map(|machine| machine.instance_id.clone());
        if latest.is_none_or(|latest| latest > self.now() + SLACK) {
            self.broke(format!("pod {key} was deleted by force before any deadline asked for it"));
        }
        let Some(noticed) = machine.and_then(|id| self.watched.noticed.get(&id).copied()) else { return };
        if self.faults == crate::world::Faults::default() && !self.planned_since(noticed) {
            self.broke(format!("pod {key} lost its place before another was planned"));
        }
    }

    fn planned_since(&self, since: Timestamp) -> bool {
        self.store.claims(&self.cluster.name).any(|stored| stored.value.created_at >= since)
    }

    /// EC2 announced that it takes a machine back. One that nobody names yet concerns nobody.
    pub(crate) fn watch_noticed(&mut self, id: &InstanceId) {
        let now = self.now();
        if self.store.by_instance(id).is_some() {
            self.watched.noticed.entry(id.clone()).or_insert(now);
        }
    }

    /// EC2 takes a machine back: two minutes after the notice its claim is on its way out and knows by when, whoever died
    /// meanwhile, unless the notice is still to be read.
    pub(crate) fn watch_reclaimed(&mut self, id: &InstanceId) {
        let Some(noticed) = self.watched.noticed.get(id).copied() else { return };
        let claim = self.store.owner(id).cloned();
        if let Some(claim) = claim.as_ref().filter(|_| !self.queues.hold_notice_of(id)) {
            let by = self.now() + SLACK;
            match &claim.deletion {
                None => self.broke(format!("machine {id} was taken back and nobody had acted on the notice")),
                Some(deletion) if deletion.deadline.is_none_or(|deadline| deadline > by) => {
                    self.broke(format!("machine {id} was taken back and claim {}, which ends, did not know when", claim.key.name));
                }
                Some(_) => {}
            }
        }
        // Under other faults a plan may take longer than two minutes.
        if !self.faults.are_calm() {
            return;
        }
        let node = claim.and_then(|claim| claim.node_name().map(str::to_owned)).unwrap_or_default();
        let loses =
            self.cluster.objects.pods_on(&node).find(|pod| pod.metadata.controller().is_some_and(|owner| owner.kind == "ReplicaSet"));
        if let Some(pod) = loses.map(|pod| pod.metadata.key()).filter(|_| !self.planned_since(noticed)) {
            self.broke(format!("pod {pod} lost its place before another was planned"));
        }
    }
}
