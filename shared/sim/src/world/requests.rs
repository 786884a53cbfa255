//! Requests of functions: records, machines, evictions, Events.

use super::{World, background_faults};
use crate::cluster::Eviction;
use crate::mutants::Mutant;
use crate::region::Allocation;
use crate::story::LineKind;
use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_claims::{Claim, DecisionKind, DecisionRecord, Lease, Revision};
use whittle_disruption::{COMMAND_EVENTS, LedgerEntry, VERDICT_EVENTS};
use whittle_ec2::fleet::{FleetAnswer, FleetPoolError, FleetRequest};
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{CloudError, CloudErrorKind, ClusterEvent, StoreError};
use whittle_units::{ClusterName, InstanceId, Price};

/// The timeline names so many types and zones of which a fleet got nothing, and counts the others.
const FLEET_ERRORS_TOLD: usize = 3;

/// Whether the timeline has a decision in another line: that a node was chosen is in that of its command, what a command saves in those
/// of its nodes, and a node that goes is no longer kept for any other reason.
fn is_told_elsewhere(decision: &DecisionRecord, all: &[DecisionRecord]) -> bool {
    let chosen = |node: &str| {
        let commands = all.iter().filter_map(|other| other.subject.strip_prefix("command/"));
        decision.kind == DecisionKind::Kept
            && !decision.message.starts_with("kept: ")
            && commands.into_iter().any(|nodes| nodes.split(',').any(|one| one == node))
    };
    let goes = ["kept: being deleted already", "kept: being disrupted already"].contains(&decision.message.as_str());
    decision.subject == LedgerEntry::KEY || goes || decision.subject.strip_prefix("node/").is_some_and(chosen)
}

impl World {
    /// Stores decisions and logs them, unless the last message about their subject was the same. A message about several
    /// subjects is logged once.
    pub(crate) fn record_decisions(&mut self, cluster: &ClusterName, decisions: &[DecisionRecord]) {
        let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
        for decision in decisions.iter().filter(|decision| !is_told_elsewhere(decision, decisions)) {
            if self.last_messages.insert(decision.subject.clone(), decision.message.clone()).as_ref() == Some(&decision.message) {
                continue;
            }
            match lines.iter_mut().find(|(message, _)| *message == decision.message) {
                Some((_, subjects)) => subjects.push(&decision.subject),
                None => lines.push((&decision.message, vec![&decision.subject])),
            }
        }
        for (message, subjects) in lines {
            let who = match subjects[..] {
                [only] => only.to_owned(),
                [first, ref rest @ ..] => format!("{first} and {} more", rest.len()),
                [] => continue,
            };
            self.log(LineKind::Decision, format!("{who}: {message}"));
        }
        self.observe_cost(cluster, decisions);
        self.store.append(cluster, decisions);
    }

    /// Creates all claims of one request, or none.
    pub(crate) fn create_claims(&mut self, lease: &Lease, claims: &[Claim]) -> Result<(), StoreError> {
        self.store.pass(self.agenda.now());
        if let Some(large) = claims.iter().find(|claim| background_faults::is_too_large_claim(claim)) {
            // As DynamoDB does: the whole request.
            let reason = "Item size has exceeded the maximum allowed size".to_owned();
            return Err(StoreError::Unavailable { what: format!("claim {}", large.key), reason });
        }
        self.store.create(lease, claims)?;
        for claim in claims {
            if self.store.is_stale(lease) {
                self.violations.push(format!("claim {} was created under an outdated lease", claim.key));
            }
            self.observe_created(claim);
        }
        self.remember_claims();
        Ok(())
    }

    pub(crate) fn update_claim(&mut self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        self.store.pass(self.agenda.now());
        let old = self.store.claim(&claim.key).cloned();
        let there = old.as_ref().map_or(expected, |old| old.revision);
        let answer = self.store.update(claim, if self.is(Mutant::RevisionIgnored) { there } else { expected });
        if let (Ok(_), Some(old)) = (&answer, old) {
            self.observe_changed(&old.value, claim, there == expected);
            self.remember_claims();
        }
        self.observe_limits();
        answer
    }

    /// The answer of EKS about a cluster; `None` for any other than this one.
    pub fn cluster_info(&self, name: &ClusterName) -> Option<ClusterInfo> {
        (*name == self.cluster.name)
            .then(|| self.cluster.info.clone().unwrap_or_else(|| self.region.cluster_info(name, &self.cluster.version)))
    }

    /// CreateFleet, as a caller outside sees it.
    pub fn start_fleet(&mut self, request: &FleetRequest, allocation: Allocation) -> Result<FleetAnswer, CloudError> {
        self.observe_fleet_call();
        self.create_fleet(request, allocation)
    }

    /// TerminateInstances, as a caller outside sees it.
    pub fn terminate_on_request(&mut self, id: &InstanceId) -> Result<(), CloudError> {
        if let Some(refused) = self.termination_protection_error(id) {
            return Err(refused);
        }
        if self.is_not_yet_visible(id) {
            return Err(CloudError {
                kind: CloudErrorKind::NotFound,
                call: "TerminateInstances",
                code: "InvalidInstanceID.NotFound".to_owned(),
                message: format!("The instance ID '{id}' does not exist"),
            });
        }
        self.observe_terminated(id);
        self.terminate(id);
        if self.is(Mutant::FinalizersRemovedEarly) {
            self.remove_finalizers(id);
        }
        Ok(())
    }

    pub(crate) fn create_fleet(&mut self, request: &FleetRequest, allocation: Allocation) -> Result<FleetAnswer, CloudError> {
        let now = self.now();
        let known: usize = self.region.machines.len();
        let partial = self.fault_occurs(self.faults.partial_fleets);
        let empty = self.region.repeats(&request.client_token, now) && self.fault_occurs(self.faults.empty_repeats);
        let mut answer = self.region.create_fleet(request, allocation, partial, now, &mut self.dice)?;
        if empty {
            answer = FleetAnswer { fleet_id: answer.fleet_id, ..FleetAnswer::default() };
        }
        self.observe_fleet(request);
        if self.region.machines.len() > known {
            self.observe_launched(request);
            let started: Vec<InstanceId> = answer.instances.iter().map(|instance| instance.id.clone()).collect();
            self.observe_still_needed(request, &started);
            for instance in &answer.instances {
                self.maybe_protect(&instance.id);
                self.maybe_hide_new_machine(&instance.id);
                self.maybe_rename(&instance.id);
                let price = self.region.machines.get(&instance.id).map_or(Price::ZERO, |machine| machine.price);
                let text = format!(
                    "EC2 starts {}: {} {} in {} at {price}",
                    instance.id, instance.capacity_type, instance.instance_type, instance.zone
                );
                self.log(LineKind::Cloud, text);
            }
        }
        self.log_errors(&answer.errors);
        self.touch_region();
        Ok(answer)
    }

    /// What a fleet could not start: a few lines, however many types and zones it tried.
    fn log_errors(&mut self, errors: &[FleetPoolError]) {
        let mut more: BTreeMap<&str, usize> = BTreeMap::new();
        for error in errors {
            let seen = more.entry(&error.code).or_default();
            *seen += 1;
            if *seen <= FLEET_ERRORS_TOLD {
                self.log(LineKind::Cloud, format!("EC2 has no {} in {}: {}", error.instance_type, error.zone, error.code));
            }
        }
        for (code, seen) in more {
            if let Some(more) = seen.checked_sub(FLEET_ERRORS_TOLD).filter(|more| 0 < *more) {
                self.log(LineKind::Cloud, format!("EC2 has nothing of {more} more types and zones: {code}"));
            }
        }
    }

    /// Terminates a machine as EC2 does on request.
    pub fn terminate(&mut self, id: &InstanceId) {
        let now = self.now();
        let (_, effects) = self.region.terminate(id, now, &mut self.dice);
        self.settle_region(effects);
        self.touch_region();
    }

    /// Somebody stops a machine.
    pub fn stop(&mut self, id: &InstanceId) {
        let now = self.now();
        let effects = self.region.stop(id, now, &mut self.dice);
        self.settle_region(effects);
        self.touch_region();
    }

    /// Evicts a pod through the eviction API, and checks that this violates no budget.
    pub(crate) fn evict(&mut self, key: &str, uid: &str, now: Timestamp) -> Eviction {
        let before = self.cluster.violated_budgets();
        let faults = self.eviction_faults(key);
        let verdict = self.cluster.evict(key, uid, now);
        let requests = self.evictions.entry(now.as_second()).or_default();
        *(if verdict == Eviction::Granted { &mut requests.granted } else { &mut requests.refused }) += 1;
        if verdict == Eviction::Granted {
            faults.into_iter().for_each(|fault| self.report_violation(fault));
            for budget in self.cluster.violated_budgets().into_iter().filter(|budget| !before.contains(budget)) {
                self.violations.push(format!("eviction of pod {key} violated the disruption budget {budget}"));
            }
        }
        verdict
    }

    /// Deletes a pod without respecting budgets.
    pub(crate) fn force(&mut self, key: &str, grace_seconds: i64, now: Timestamp) {
        self.observe_forced_deletion(key);
        if let Some(uid) = self.cluster.objects.pods.get(key).map(|pod| pod.metadata.uid.clone()) {
            self.cluster.forced.insert(uid);
        }
        self.cluster.delete_pod(key, Some(grace_seconds), now);
    }

    /// Publishes an Event of Whittle.
    pub(crate) fn publish(&mut self, event: &ClusterEvent) {
        let (now, reason) = (self.now(), event.reason.as_str());
        // Why nodes are kept, and what commands do, is among the decisions too, as are Events about pods.
        let decided = event.kind == "Pod" || VERDICT_EVENTS.contains(&reason) || COMMAND_EVENTS.contains(&reason);
        // As Karpenter, Whittle publishes it in every drain: nothing failed while pods are merely on their way.
        let usual = reason == "FailedDraining" && event.message.ends_with("are waiting to be evicted");
        // The status itself says so.
        let repeats = event.message.starts_with("Status condition transitioned") || reason == "Finalized";
        if self.cluster.publish(event.clone(), now) && !decided && !usual && !repeats {
            let object = if event.namespace.is_empty() { event.name.clone() } else { format!("{}/{}", event.namespace, event.name) };
            self.log(LineKind::Event, format!("{} {object}: {}: {}", event.kind.to_lowercase(), event.reason, event.message));
        }
    }
}
