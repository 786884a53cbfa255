//! Starting a command: store it, mark the nodes, store the replacements, ring launch.

use crate::observe::keep;
use crate::state::{Disruptions, Going, Running, command_timeout};
use crate::{Rights, Run};
use crate::{counts, progress};
use futures::future::try_join_all;
use std::collections::BTreeMap;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::{ConditionStatus, conditions, labels};
use whittle_claims::{Claim, ClaimKey, DecisionKind, Doorbell, NOMINATION, Stored};
use whittle_core::disruption::{Command, LedgerEntry, Reason, Removal, without_arrivals};
use whittle_core::state::StateNode;
use whittle_ports::{
    ClaimStore, Clock, ClusterError, ClusterReader, HandleError, Mirrors, NodePatch, Nodes, Queues, Records, Report, Safeguard, Scope,
    StoreError,
};
use whittle_snapshot::{Snapshot, claim_of, machine_key};
use whittle_units::{ClaimName, SignedDuration, Timestamp};

/// Calls to the API server at the same time.
const READS_AT_ONCE: usize = 10;

/// The taint that keeps new pods off a node that is to go.
pub(crate) fn disrupted() -> Taint {
    Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule)
}

impl<P: Rights> Run<'_, P> {
    /// Executes a command that still holds, and answers whether it did. Its nodes are closed first, and what came to them since the
    /// decision speaks against it. Then its record is stored: whatever dies after that is gone on with.
    pub(crate) async fn start(
        &mut self,
        seen: &Snapshot,
        command: &Command,
        stored: &mut Stored<Disruptions>,
    ) -> Result<bool, HandleError> {
        let Some(command) = &self.close(seen, command).await? else { return Ok(false) };
        let id = self.ports.clock().unique();
        let claim =
            |new| claim_of(new, seen, &self.lease.cluster, &self.ports.clock().unique(), self.ports.clock().unique(), Some(id.clone()));
        let replacements: Vec<Claim> = command.replacements.iter().map(claim).collect();
        let launched = replacements.iter().map(|claim| claim.key.name.as_str().to_owned()).collect();
        let removals =
            command.removals.iter().map(|removal| Going { claim: removal.node_claim.as_str().into(), node: removal.node.clone() });
        let running = Running {
            ledger: LedgerEntry::of(command, &id, seen.now),
            id,
            method: command.method,
            started_at: seen.now,
            removals: removals.collect(),
            replacements,
            closed: true,
            stored: false,
        };
        stored.value.nominated.extend(nominations(command, seen));
        stored.value.memory.record(command, launched, &seen.read, seen.now);
        stored.value.running.push(running);
        stored.revision = self.ports.store().write(&self.lease.cluster, &stored.value, stored.revision).await?;
        self.report.count("commands");
        counts::started(&mut self.report, seen, command);
        let last = stored.value.running.len() - 1;
        let mut running = stored.value.running[last].clone();
        let patience = command_timeout(stored.value.removals().count());
        let outcome = self.step(seen, &mut running, patience).await?;
        progress::settle(&mut stored.value, last, running, outcome);
        told(&mut self.report, command, seen);
        Ok(true)
    }

    /// Keeps new pods off the nodes of a command, then looks at them once more: between the decision and the taint the scheduler
    /// may have bound pods that nobody looked at. Answers what is left of the command. The taints of a run that dies in here are
    /// taken off again as those of no command.
    async fn close(&mut self, seen: &Snapshot, command: &Command) -> Result<Option<Command>, HandleError> {
        for removal in command.removals.iter().filter(|_| Safeguard::ClosedBeforeCommand.stops(true)) {
            self.taint(&removal.node).await?;
        }
        let looks = Safeguard::LookedAtClosed.stops(command.method.reason() != Reason::Drifted);
        let looked_at = if looks { &command.removals } else { &[][..] };
        let mut pods = Vec::new();
        for some in looked_at.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|removal| self.ports.cluster().read(&self.lease.cluster, Scope::Pods, Some(&removal.node)));
            for read in try_join_all(reads).await? {
                pods.extend(read.unreadable_pods().cloned());
                pods.extend(read.pods);
            }
        }
        let (left, arrivals) = without_arrivals(command, &pods);
        let stays = |removal: &&Removal| left.as_ref().is_none_or(|left| left.removals.iter().all(|one| one.node != removal.node));
        for removal in command.removals.iter().filter(stays) {
            self.unmark(&removal.node).await?;
        }
        for arrival in &arrivals {
            let message = format!("Kept after all: pod {} has come since", arrival.pod);
            self.report.decide(seen.now, DecisionKind::Kept, format!("node/{}", arrival.node), message);
        }
        counts::dropped(&mut self.report, command.method, arrivals.len());
        Ok(left)
    }

    /// A node that is gone needs no mark.
    async fn taint(&self, node: &str) -> Result<(), HandleError> {
        let patch = NodePatch { add_taints: vec![disrupted()], ..NodePatch::default() };
        match self.ports.cluster().patch_node(&self.lease.cluster, node, "", &patch).await {
            Ok(()) | Err(ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps new pods off the nodes, unless that is done, and says why on the claims. Answers which of them cannot be read: what becomes
    /// of its machine nobody can say.
    pub(crate) async fn mark(&self, seen: &Snapshot, running: &Running) -> Result<Option<ClaimName>, HandleError> {
        for going in &running.removals {
            if !running.closed {
                self.taint(&going.node).await?;
            }
            // Read anew: its conditions were written a moment ago.
            let key = ClaimKey { cluster: self.lease.cluster.clone(), name: going.claim.clone() };
            let claim = match self.ports.store().get(&key).await {
                Ok(Some(claim)) => claim,
                Ok(None) => continue,
                Err(StoreError::Unreadable { .. }) => return Ok(Some(going.claim.clone())),
                Err(error) => return Err(error.into()),
            };
            let mut next = claim.value.clone();
            let reason = running.method.reason().as_str();
            conditions::set(&mut next.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, reason, reason, seen.now);
            keep(self.ports.store(), &claim, next).await?;
        }
        Ok(None)
    }

    /// Stores the replacements under the lease and rings launch. One that is stored already is left alone.
    pub(crate) async fn launch(&self, running: &Running) -> Result<(), HandleError> {
        for claim in &running.replacements {
            match self.ports.store().create(self.lease, claim).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !running.replacements.is_empty() {
            let claims = running.replacements.iter().map(|claim| claim.key.name.clone()).collect();
            self.ports.queues().ring(Doorbell::Launch { cluster: self.lease.cluster.clone(), claims }, SignedDuration::ZERO).await?;
        }
        for claim in &running.replacements {
            // `sweep` shows what could not be shown now.
            let _ = self.ports.cluster().apply_mirror(&self.lease.cluster, &whittle_claims::mirror(claim)).await;
        }
        Ok(())
    }
}

/// Machines that stay and take pods of the command. Pure.
pub(crate) fn nominations(command: &Command, seen: &Snapshot) -> BTreeMap<String, Timestamp> {
    let until = seen.now.checked_add(NOMINATION).unwrap_or(seen.now);
    let takes = |node: &&StateNode| command.destinations.iter().any(|name| name == node.name());
    seen.nodes.iter().filter(takes).map(|node| (machine_key(node).to_owned(), until)).collect()
}

/// Tells each node's part in a command.
fn told(report: &mut Report, command: &Command, seen: &Snapshot) {
    for removal in &command.removals {
        let subject = format!("node/{}", removal.node);
        let kind = format!("{}/{}", removal.instance_type, removal.capacity_type);
        let message = format!("{}: {} ({kind})", command.method.reason(), command.text_for(&removal.node));
        report.decide(seen.now, DecisionKind::Disrupted, subject, message);
    }
}

pub(crate) fn find<'a>(seen: &'a Snapshot, name: &ClaimName) -> Option<&'a Stored<Claim>> {
    seen.claims.iter().find(|claim| claim.value.key.name == *name)
}
