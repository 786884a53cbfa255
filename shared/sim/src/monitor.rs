//! Invariants that must hold at all times, checked from outside at each write and each call that cannot be undone.

mod rates;
mod termination;

use crate::check::{is_managed_elsewhere, is_standalone};
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Node, Pod};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_claims::{Claim, DecisionRecord, Deletion, DeletionReason, Lease, LeftNodes, Phase, Record as _, Sighting, Uninstall};
use whittle_disruption::LedgerEntry;
use whittle_ec2::fleet::FleetRequest;
use whittle_ec2::instance::InstanceState;
use whittle_model::pods::is_daemon_owned;
use whittle_units::{ClaimName, ClusterName, InstanceId, Price, ProviderId};

/// A contradiction has to be seen again this long after it was first seen, less the clock skew.
const BETWEEN_SIGHTINGS: SignedDuration = SignedDuration::from_secs(26);
/// How long a sighting counts.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);
/// The clock skew between two runs, plus some time for the call itself.
const SLACK: SignedDuration = SignedDuration::from_secs(5);

/// The state of the checkers.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    /// When a listing first showed a machine without a claim.
    unclaimed: BTreeMap<InstanceId, Timestamp>,
    /// The newest lease that was acquired and not released.
    lease: Option<Lease>,
    /// When EC2 sent the spot interruption warning for a machine.
    noticed: BTreeMap<InstanceId, Timestamp>,
    /// When a sweep was first shown a standalone NodeClaim, by uid.
    waiting: BTreeMap<String, Timestamp>,
    /// The standalone NodeClaims that got a claim.
    adopted: BTreeSet<String>,
    /// The claims of each launch that EC2 started machines for.
    launched_for: BTreeMap<String, BTreeSet<ClaimName>>,
    /// The last known state of each Node.
    node_states: BTreeMap<String, termination::NodeState>,
    rates: rates::Rates,
    /// Machines that Karpenter started.
    karpenter_machines: BTreeSet<InstanceId>,
    /// When an uninstallation that keeps the nodes began.
    kept_since: Option<Timestamp>,
    /// Machines whose Node was deleted by somebody before their termination was decided.
    without_node: BTreeSet<InstanceId>,
    /// When the table was replaced by another.
    table_lost: Option<Timestamp>,
    /// The sightings in the new table.
    remembered: Vec<String>,
}

impl World {
    pub(crate) fn report_violation(&mut self, text: String) {
        if !self.violations.contains(&text) {
            self.violations.push(text);
        }
    }

    /// Whether EC2 has not terminated a machine yet.
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

    /// Whether the table has been replaced, so that its history is incomplete.
    pub fn has_lost_its_table(&self) -> bool {
        self.monitor.table_lost.is_some()
    }

    /// The table was replaced by another: what only the old one recorded (leases, notices that were read, the claims of a call)
    /// cannot be required any more.
    pub(crate) fn observe_table_replaced(&mut self) {
        self.monitor.table_lost = Some(self.now());
        self.monitor.remembered = self.store.names_of(&self.cluster.name, Sighting::KIND).map(str::to_owned).collect();
        self.monitor.lease = None;
        self.monitor.adopted.clear();
        self.monitor.noticed.clear();
        self.monitor.launched_for.clear();
        self.monitor.kept_since = None;
        // Of a hand-over that had ended the claim alone nobody knows any more: the machine is Whittle's again.
        let machines = &self.region.machines;
        let launch = |id: &InstanceId| machines.get(id).and_then(|machine| machine.instance.tags.get(labels::TAG_LAUNCH));
        self.monitor.karpenter_machines.retain(|id| launch(id).is_none_or(String::is_empty));
        let forgotten = self.forgotten_adoptions();
        self.monitor.karpenter_machines.extend(forgotten);
    }

    /// Machines that were adopted, whose claim the table does not have and whose NodeClaim was not marked yet: they are Karpenter's
    /// again, until they are adopted once more.
    fn forgotten_adoptions(&self) -> Vec<InstanceId> {
        let claims = self.store.claims(&self.cluster.name).filter_map(|stored| stored.value.machine());
        let known: BTreeSet<&InstanceId> = claims.map(|machine| &machine.instance_id).collect();
        let unmarked = self.cluster.objects.node_claims.values().filter(|object| object.metadata.annotation(labels::MANAGED).is_none());
        let machines = unmarked.filter_map(|object| self.machine_of_provider(&object.status.provider_id));
        machines.filter(|id| !known.contains(id)).collect()
    }

    /// An uninstallation that keeps the nodes begins.
    pub(crate) fn observe_nodes_kept(&mut self) {
        self.monitor.kept_since = Some(self.now());
    }

    /// Whether the cluster is being uninstalled.
    pub(crate) fn is_uninstalling(&self) -> bool {
        self.store.record(&self.cluster.name, Uninstall::KIND, Uninstall::NAME).is_some()
    }

    /// Whether Whittle has released a machine, so that it keeps running unmanaged.
    pub(crate) fn was_released(&self, id: &InstanceId) -> bool {
        self.region.machines.get(id).is_some_and(|machine| machine.instance.tags.contains_key(labels::TAG_LET_GO))
    }

    /// Whether the user hands the cluster over to Karpenter, and the machine of this claim is not being drained.
    fn may_be_handed_over(&self, claim: &Claim) -> bool {
        let record = self.store.read::<Uninstall>(&self.cluster.name, Uninstall::NAME, self.now()).ok().flatten();
        claim.deletion.is_none() && record.is_some_and(|record| record.value.nodes == LeftNodes::HandOver)
    }

    /// Whether an uninstallation lets go a machine that has no claim: its tag comes after its Node.
    fn is_let_go_unclaimed(&self, id: &InstanceId) -> bool {
        let record = self.store.read::<Uninstall>(&self.cluster.name, Uninstall::NAME, self.now()).ok().flatten();
        self.store.owner(id).is_none() && record.is_some_and(|record| record.value.nodes == LeftNodes::Keep)
    }

    /// A machine belongs to Karpenter from now on.
    pub(crate) fn observe_karpenter(&mut self, id: InstanceId) {
        self.monitor.karpenter_machines.insert(id);
    }

    /// Whether Karpenter's machine is the one of a provider id.
    pub(crate) fn is_karpenter_machine(&self, provider_id: &str) -> bool {
        self.monitor.karpenter_machines.iter().any(|id| provider_id.ends_with(id.as_str()))
    }

    /// Whether the user asks for the adoption of Karpenter's machine, by its NodeClaim or its pool.
    fn is_to_be_adopted(&self, provider_id: &ProviderId) -> bool {
        let objects = &self.cluster.objects;
        let asks = |meta: &ObjectMeta| meta.annotation(labels::ADOPT) == Some("true");
        let pool =
            |object: &NodeClaim| object.node_pool().and_then(|name| objects.get::<NodePool>(name)).is_some_and(|pool| asks(&pool.metadata));
        let shown = objects.node_claims.values().find(|object| object.status.provider_id == provider_id.as_str());
        shown.is_some_and(|object| asks(&object.metadata) || pool(object))
    }

    pub(crate) fn observe_created(&mut self, claim: &Claim) {
        if let Some(machine) = claim.machine() {
            let id = machine.instance_id.clone();
            if self.monitor.karpenter_machines.contains(&id) && !self.is_to_be_adopted(&machine.provider_id) {
                self.report_violation(format!("machine {id} is Karpenter's and was adopted"));
            }
            self.monitor.karpenter_machines.remove(&id);
            self.observe_orphan(&id);
            self.observe_orphan_adopted(&id);
        }
        if claim.spec.replaces.is_none() && claim.deletion.is_none() {
            self.observe_planned_twice(claim);
        }
        // A claim that is created with a machine launches nothing.
        if claim.deletion.is_none() && claim.machine().is_none() {
            self.observe_static(claim);
        }
        self.observe_standalone_adopted(claim);
    }

    /// A sweep was shown the cluster.
    pub(crate) fn observe_standalone_listed(&mut self, shown: &ClusterObjects) {
        let now = self.now();
        for object in shown.node_claims.iter().filter(|object| is_standalone(object)) {
            self.monitor.waiting.entry(object.metadata.uid.clone()).or_insert(now);
        }
    }

    /// A standalone NodeClaim was adopted: once, at its second sighting, and only if no other controller manages it.
    fn observe_standalone_adopted(&mut self, claim: &Claim) {
        let Some(uid) = claim.spec.standalone_uid.clone() else { return };
        let name = claim.key.name.as_str();
        let object = self.cluster.objects.get::<NodeClaim>(name).filter(|object| object.metadata.uid == uid);
        // Those that we managed ourselves are adopted again after the table was lost.
        let ours = |object: &NodeClaim| object.metadata.annotation(labels::MANAGED) == Some("true");
        if object.is_some_and(|object| (!is_standalone(object) || is_managed_elsewhere(object)) && !ours(object)) {
            self.report_violation(format!("NodeClaim {name} was adopted although another controller manages it"));
        }
        if self.monitor.waiting.get(&uid).is_some_and(|since| self.now().duration_since(*since) < BETWEEN_SIGHTINGS) {
            self.report_violation(format!("NodeClaim {name} was adopted at first sight"));
        }
        if !self.monitor.adopted.insert(uid) {
            self.report_violation(format!("NodeClaim {name} was adopted twice"));
        }
    }

    /// Whether a claim is to be deleted, by the table or because somebody deleted its NodeClaim or Node.
    pub(crate) fn is_to_end(&self, claim: &Claim) -> bool {
        let objects = &self.cluster.objects;
        let object = objects.get::<NodeClaim>(claim.key.name.as_str()).filter(|shown| claim.is_mirrored_by(shown));
        let node = claim.node_name().and_then(|name| objects.get::<Node>(name));
        let deleted = object.is_some_and(|object| object.metadata.is_deleting()) || node.is_some_and(|node| node.metadata.is_deleting());
        claim.deletion.is_some() || deleted
    }

    /// Decisions were recorded. The replacements of a finished consolidation must cost less than the machines they replace, at the
    /// region's prices.
    pub(crate) fn observe_cost(&mut self, cluster: &ClusterName, decisions: &[DecisionRecord]) {
        let is_ledger = |decision: &&DecisionRecord| decision.subject == LedgerEntry::KEY;
        for decision in decisions.iter().filter(is_ledger) {
            let entry = decision.detail.get(LedgerEntry::KEY).and_then(|entry| LedgerEntry::deserialize(entry).ok());
            let Some(entry) = entry else {
                self.report_violation(format!("a ledger entry cannot be read: {}", decision.detail));
                continue;
            };
            if entry.reason == "Drifted" {
                continue;
            }
            let command = format!("command {}", entry.id);
            let is_removed = |claim: &Claim| claim.deletion.as_ref().is_some_and(|deletion| deletion.message.ends_with(&command));
            let is_replacement = |claim: &Claim| claim.spec.replaces.as_ref() == Some(&entry.id);
            let (removed, launched) = (self.prices(cluster, is_removed), self.prices(cluster, is_replacement));
            // The entry was repeated after a crash, when the removed machines had ended long before: it was compared the first time.
            if removed.len() < entry.nodes.len() {
                continue;
            }
            let (before, after): (Price, Price) = (removed.into_iter().sum(), launched.into_iter().sum());
            if after > before {
                self.report_violation(format!("{command} ({}) raised the cost: {before} to {after} an hour", entry.reason));
            }
        }
    }

    /// The prices of those machines of the claims that the region still knows.
    fn prices(&self, cluster: &ClusterName, of: impl Fn(&Claim) -> bool) -> Vec<Price> {
        let claims = self.store.claims_with_hidden(cluster).map(|stored| &stored.value).filter(|claim| of(claim));
        let machines = claims.filter_map(|claim| self.region.machines.get(&claim.machine()?.instance_id));
        machines.map(|machine| machine.price).collect()
    }

    fn live_claims<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Claim> {
        let cluster = &self.cluster.name;
        self.store.claims(cluster).map(|stored| &stored.value).filter(move |claim| claim.is_live() && claim.spec.node_pool == pool)
    }

    /// Pending pods with a machine on its way must not get another one.
    fn observe_planned_twice(&mut self, claim: &Claim) {
        let under_way: BTreeSet<&str> = self
            .live_claims(&claim.spec.node_pool)
            .filter(|other| other.key != claim.key && !self.is_to_end(other))
            .filter(|other| matches!(other.phase, Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. }))
            .filter(|other| !self.runs_other_pods(other))
            .filter(|other| self.store.shown_at(&other.key).is_none_or(|at| at < self.ago(termination::RUN_MAX)))
            .flat_map(|other| other.spec.pods.iter().map(|pod| pod.uid.as_str()))
            .collect();
        let waits = |pod: &&Pod| !pod.is_bound() && !pod.metadata.is_deleting() && pod.metadata.controller().is_some();
        let waiting: BTreeSet<&str> = self.cluster.objects.pods.values().filter(waits).map(|pod| pod.metadata.uid.as_str()).collect();
        let planned = |uid: &str| under_way.contains(uid) && waiting.contains(uid);
        // If other pods are pending as well, or run on nodes that are being deleted, they may use the machines under way.
        let deleting = self.live_claims(&claim.spec.node_pool).filter(|other| self.is_to_end(other));
        let mut deleting: BTreeSet<&str> = deleting.filter_map(|other| other.node_name()).collect();
        // Including nodes of claims that a restored table lacks.
        let deleted = self.cluster.objects.nodes.values().filter(|node| node.metadata.is_deleting());
        deleting.extend(deleted.map(|node| node.metadata.name.as_str()));
        let displaced = self.cluster.objects.pods.values().any(|pod| deleting.contains(pod.spec.node_name.as_str()));
        let all_planned = !displaced && !claim.spec.pods.is_empty() && waiting.iter().all(|uid| planned(uid));
        if all_planned && claim.spec.pods.iter().all(|pod| planned(&pod.uid)) {
            self.report_violation(format!("the pods of claim {} were planned already", claim.key.name));
        }
    }

    /// Whether other pods than planned run on the machine of a claim: they may use the capacity of the planned ones.
    fn runs_other_pods(&self, claim: &Claim) -> bool {
        let Some(machine) = claim.machine() else { return false };
        let nodes = self.cluster.objects.nodes.values();
        let node = nodes.filter(|node| node.spec.provider_id == machine.provider_id.as_str()).map(|node| &node.metadata.name).next();
        let planned = |pod: &Pod| claim.spec.pods.iter().any(|planned| planned.uid == pod.metadata.uid);
        let stranger = |pod: &Pod| !is_daemon_owned(pod) && !planned(pod);
        node.is_some_and(|node| self.cluster.objects.pods.values().any(|pod| pod.spec.node_name == *node && stranger(pod)))
    }

    /// A claim was changed. `over` is the revision that was there, `expected` the one that the writer had read.
    pub(crate) fn observe_changed(&mut self, old: &Claim, new: &Claim, was_current: bool) {
        self.observe_disruption(old, new);
        self.observe_abandoned(old, new);
        self.observe_deleted_node(old, new);
        if let (Phase::Launched { .. } | Phase::Registered { .. }, Phase::Initialized { .. }) = (&old.phase, &new.phase) {
            self.observe_initialized(new);
        }
        let name = &new.key.name;
        if !was_current {
            self.report_violation(format!("claim {name} was overwritten at a revision that the writer had not read"));
        }
        if let (Some(before), Some(after)) = (old.machine(), new.machine())
            && before.instance_id != after.instance_id
        {
            self.report_violation(format!("claim {name} changed its machine from {} to {}", before.instance_id, after.instance_id));
        }
        if let (None, Some(machine), None) = (old.machine(), new.machine(), &new.deletion)
            && let Some(other) = self.ended_under(&machine.instance_id)
        {
            self.report_violation(format!("claim {name} got {}, which was terminated under {other}", machine.instance_id));
        }
        self.observe_machine_assigned(old, new);
        if let Phase::Gone { .. } = new.phase
            && let Some(machine) =
                old.machine().filter(|machine| self.lives(&machine.instance_id) && !self.was_released(&machine.instance_id))
        {
            if self.may_be_handed_over(old) && new.annotations.contains_key(labels::HANDED_OVER) {
                // From now on it is Karpenter's, whatever is left to do.
                self.observe_karpenter(machine.instance_id.clone());
                return;
            }
            self.report_violation(format!("claim {name} is Gone although {} was not confirmed to be terminated", machine.instance_id));
        }
        if !old.is_live()
            && new.is_live()
            && let Some(machine) = new.machine()
        {
            let id = machine.instance_id.clone();
            // A machine that its own call started too late is no orphan.
            if !self.was_called_for(&id, &new.key.name) {
                self.observe_orphan(&id);
            }
        }
        if old.uid != new.uid {
            if old.is_live() {
                self.report_violation(format!("claim {name} was replaced by another of its name while it was live"));
            }
            self.observe_standalone_adopted(new);
        }
        if old.deletion.is_none()
            && let Some(deletion) = &new.deletion
        {
            let reason = deletion.reason;
            self.observe_ending(new, deletion);
            if let Some(wrong) = self.contradiction(new, reason) {
                self.report_violation(format!("claim {name} was ended ({reason:?}) although {wrong}"));
            }
        }
    }

    /// What contradicts a claim's deletion reason.
    fn contradiction(&self, claim: &Claim, reason: DeletionReason) -> Option<&'static str> {
        let now = self.now();
        let machine = claim.machine();
        let overdue = |since: Timestamp, after: SignedDuration| now.duration_since(since) + SLACK >= after;
        match reason {
            DeletionReason::InstanceGone => {
                let runs = |id: &InstanceId| self.region.machines.get(id).is_some_and(|machine| machine.instance.is_alive());
                let id = machine.map(|machine| &machine.instance_id).filter(|id| runs(id))?;
                // No caller can know better: listings lack it, EC2 does not know it by its id, and its kubelet does not report.
                let is_kubelet_responsive = claim.node_name().is_some_and(|node| self.is_kubelet_responsive(node));
                let remembered = || self.is_remembered(&format!("claim/{} without instance", claim.key.name));
                let denied = self.lag.reports_nonexistent(id, now) || self.lag.hides(id, now) && remembered();
                (is_kubelet_responsive || !denied).then_some("its machine runs")
            }
            DeletionReason::NodePoolDeleted => {
                let there = |pool: &&NodePool| pool.metadata.name == claim.spec.owner.name && !pool.metadata.is_deleting();
                let same = self.cluster.objects.node_pools.values().find(there)?;
                let uid = &claim.spec.owner.uid;
                (uid.is_empty() || *uid == same.metadata.uid).then_some("its NodePool exists")
            }
            // A capacity block ends regardless of the record of its class.
            DeletionReason::Requested if machine.is_some_and(|machine| self.region.must_leave_block(&machine.instance_id, now + SLACK)) => {
                None
            }
            DeletionReason::Requested if self.is_uninstalling() => None,
            DeletionReason::Requested => {
                let shown = self.cluster.objects.get::<NodeClaim>(claim.key.name.as_str()).filter(|shown| claim.is_mirrored_by(shown));
                let node = claim.node_name().and_then(|name| self.cluster.objects.get::<Node>(name));
                let stays = shown.is_some_and(|shown| !shown.metadata.is_deleting());
                (stays && node.is_none_or(|node| !node.metadata.is_deleting()) && (node.is_some() || claim.node_name().is_none()))
                    .then_some("neither its Node nor its NodeClaim was deleted")
            }
            DeletionReason::Expired => claim.expires_at().is_none_or(|at| at > now + SLACK).then_some("it has not expired yet"),
            DeletionReason::RegistrationTimeout => {
                (!overdue(claim.created_at, SignedDuration::from_mins(15))).then_some("it still had time to register")
            }
            DeletionReason::LaunchTimeout => {
                (!overdue(claim.created_at, SignedDuration::from_mins(5))).then_some("it still had time to launch")
            }
            _ => None,
        }
    }

    /// A caller listed the machines.
    pub(crate) fn observe_listed(&mut self) {
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
        self.monitor.unclaimed.retain(|id, _| !named.contains(id));
        for id in alive.into_iter().filter(|id| !named.contains(id)) {
            self.monitor.unclaimed.entry(id).or_insert(now);
        }
    }

    /// Whether a machine was launched by a call that is stored for a claim.
    fn was_called_for(&self, id: &InstanceId, claim: &ClaimName) -> bool {
        let call = self.region.machines.get(id).and_then(|machine| machine.instance.tags.get(labels::TAG_LAUNCH));
        let stored = call.and_then(|call| self.store.record(&self.cluster.name, "launch", call));
        let members = stored.and_then(|call| call["members"].as_array());
        members.is_some_and(|members| members.iter().any(|member| member == claim.as_str()))
    }

    /// Whether the table that replaced another one had an earlier sighting of this.
    fn is_remembered(&self, what: &str) -> bool {
        let counts = self.monitor.table_lost.is_some_and(|at| self.now().duration_since(at) < REMEMBERED);
        counts && self.monitor.remembered.iter().any(|subject| subject.contains(what))
    }

    /// A claim was created or revived only to terminate an orphaned machine.
    fn observe_orphan(&mut self, id: &InstanceId) {
        // EC2 may still show terminated machines.
        if !self.lives(id) {
            return;
        }
        if self.is_remembered(id.as_str()) {
            return;
        }
        let seen = self.monitor.unclaimed.get(id).copied();
        if seen.is_none_or(|since| self.now().duration_since(since) < BETWEEN_SIGHTINGS) {
            self.report_violation(format!("machine {id} was treated as an orphan at first sight"));
        }
    }

    /// The lease was acquired.
    pub(crate) fn observe_lease(&mut self, lease: &Lease) {
        let now = self.now();
        if let Some(held) = &self.monitor.lease
            && held.owner != lease.owner
            && held.expires_at > now + SLACK
        {
            let text = format!("the lease of {} was held by two owners at once", lease.cluster);
            self.report_violation(text);
        }
        self.monitor.lease = Some(lease.clone());
    }

    /// The lease was released.
    pub(crate) fn observe_release(&mut self, lease: &Lease) {
        if self.monitor.lease.as_ref().is_some_and(|held| held.token == lease.token) {
            self.monitor.lease = None;
        }
    }

    /// A fleet was created: no launch may start more machines than it has claims.
    pub(crate) fn observe_fleet(&mut self, request: &FleetRequest) {
        let Some(launch) = request.tags.get(labels::TAG_LAUNCH) else { return };
        let of_launch = |machine: &&crate::region::Machine| machine.instance.tags.get(labels::TAG_LAUNCH) == Some(launch);
        let machines = self.region.machines.values().filter(of_launch).count();
        if machines > usize::try_from(request.target_capacity).unwrap_or(0) {
            self.report_violation(format!("launch {launch} of {} brought {machines} machines", request.target_capacity));
        }
    }

    /// A fleet started machines: its claims must not have an unnoticed machine of an earlier call.
    pub(crate) fn observe_launched(&mut self, request: &FleetRequest) {
        let Some(launch) = request.tags.get(labels::TAG_LAUNCH) else { return };
        let waits = |claim: &&Claim| matches!(&claim.phase, Phase::Launching { client_token, .. } if client_token == launch);
        // A claim may wait for a call that was stored without it: no machine of that call belongs to it.
        let stored = self.store.record(&self.cluster.name, "launch", launch).and_then(|call| call["members"].as_array());
        let is_member = |name: &ClaimName| stored.is_none_or(|all| all.iter().any(|member| member == name.as_str()));
        let claims = self.store.claims(&self.cluster.name).map(|stored| &stored.value);
        let members = claims.filter(waits).map(|claim| claim.key.name.clone()).filter(is_member);
        let members: BTreeSet<ClaimName> = members.collect();
        let earlier = |old: &&String| self.monitor.launched_for.get(*old).is_some_and(|known| !known.is_disjoint(&members));
        let unnoticed = self.region.machines.values().map(|machine| &machine.instance).find(|instance| {
            let old = instance.tags.get(labels::TAG_LAUNCH).filter(|old| *old != launch).filter(earlier);
            old.is_some() && instance.is_alive() && self.store.owner(&instance.id).is_none()
        });
        if let Some(id) = unnoticed.map(|instance| instance.id.clone()) {
            self.report_violation(format!(
                "launch {launch} started machines again while {id} of an earlier call for its claims ran unnoticed"
            ));
        }
        self.monitor.launched_for.insert(launch.clone(), members);
    }

    /// Whittle deletes a NodeClaim.
    pub(crate) fn observe_node_claim_deleted(&mut self, name: &str) {
        let id = self.cluster.objects.get::<NodeClaim>(name).map(|object| object.status.provider_id.clone());
        if id.is_some_and(|id| !id.is_empty() && self.is_karpenter_machine(&id)) {
            self.report_violation(format!("NodeClaim {name} is Karpenter's and was deleted"));
        }
    }

    /// Our finalizer is removed from the Node or NodeClaim of a machine.
    pub(crate) fn observe_finalizer_removed(&mut self, what: &str, provider: &ProviderId) {
        let alive = self.machine_of_provider(provider.as_str()).filter(|id| self.lives(id));
        if let Some(id) = alive.filter(|id| !self.was_released(id) && !self.is_let_go_unclaimed(id)) {
            self.report_violation(format!("{what} lost its finalizer before {id} was terminated"));
        }
    }

    /// A pod is deleted without respecting its budget.
    pub(crate) fn observe_forced_deletion(&mut self, key: &str) {
        let Some(pod) = self.cluster.objects.pods.get(key) else { return };
        let (node, grace) = (pod.spec.node_name.clone(), pod.spec.termination_grace_period_seconds.unwrap_or(30));
        let cluster = self.name();
        let claim =
            self.store.claims(&cluster).map(|stored| &stored.value).find(|claim| claim.is_live() && claim.node_name() == Some(&node));
        let Some(claim) = claim else { return };
        let deadline = claim.deletion.as_ref().and_then(|deletion| deletion.deadline);
        let latest = deadline.and_then(|deadline| deadline.checked_sub(SignedDuration::from_secs(grace)).ok());
        let machine = claim.machine().map(|machine| machine.instance_id.clone());
        let deletion = claim.deletion.clone();
        if latest.is_none_or(|latest| latest > self.now() + SLACK) {
            self.report_violation(format!("pod {key} was force-deleted before any deadline required it"));
        }
        let Some(noticed) = machine.and_then(|id| self.monitor.noticed.get(&id).copied()) else { return };
        if self.faults == crate::world::Faults::default() && !self.planned_since(ends_since(noticed, deletion.as_ref())) {
            self.report_violation(format!("pod {key} was evicted before a replacement was planned"));
        }
    }

    fn planned_since(&self, since: Timestamp) -> bool {
        self.store.claims(&self.cluster.name).any(|stored| stored.value.created_at >= since)
    }

    /// EC2 sent a spot interruption warning. Machines without a claim do not matter.
    pub(crate) fn observe_noticed(&mut self, id: &InstanceId) {
        let now = self.now();
        if self.store.by_instance(id).is_some() {
            self.monitor.noticed.entry(id.clone()).or_insert(now);
        }
    }

    /// EC2 reclaims a machine: two minutes after the notice its claim is being deleted with a deadline, whatever crashed
    /// meanwhile, unless the notice has not been processed yet.
    pub(crate) fn observe_reclaimed(&mut self, id: &InstanceId) {
        let Some(noticed) = self.monitor.noticed.get(id).copied() else { return };
        let claim = self.store.owner(id).cloned();
        if let Some(claim) = claim.as_ref().filter(|_| !self.queues.holds_notice_of(id)) {
            let by = self.now() + SLACK;
            match &claim.deletion {
                None => self.report_violation(format!("machine {id} was reclaimed and the notice had no effect")),
                Some(deletion) if deletion.deadline.is_none_or(|deadline| deadline > by) => {
                    self.report_violation(format!(
                        "machine {id} was reclaimed and claim {}, which is being deleted, had no deadline",
                        claim.key.name
                    ));
                }
                Some(_) => {}
            }
        }
        // With other faults planning may take longer than two minutes.
        if !self.faults.are_calm() {
            return;
        }
        let since = ends_since(noticed, claim.as_ref().and_then(|claim| claim.deletion.as_ref()));
        let node = claim.and_then(|claim| claim.node_name().map(str::to_owned)).unwrap_or_default();
        let loses =
            self.cluster.objects.pods_on(&node).find(|pod| pod.metadata.controller().is_some_and(|owner| owner.kind == "ReplicaSet"));
        if let Some(pod) = loses.map(|pod| pod.metadata.key()).filter(|_| !self.planned_since(since)) {
            self.report_violation(format!("pod {pod} was evicted before a replacement was planned"));
        }
    }
}

/// Since when it is known that a machine ends. A replacement may have been planned when its deletion was requested, before EC2's
/// notice, with room for all of its pods.
fn ends_since(noticed: Timestamp, deletion: Option<&Deletion>) -> Timestamp {
    deletion.map_or(noticed, |deletion| deletion.at.min(noticed))
}
