//! The Node of a machine that is to end. A machine whose Node is there is drained, whether or not its claim knows the Node;
//! one whose Node is not there is ended only when several looks missed it.

use crate::steps::is_overdue;
use crate::{LATER, Next, SOON, is_ours};
use crate::{Rights, Run};
use whittle_api::Unreadable;
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::NodeClaim;
use whittle_claims::{Claim, Event, step};
use whittle_ports::{Clock, ClusterReader, HandleError, Instances, Presence, Safeguard, Scope, Sought, save};
use whittle_units::SignedDuration;

/// A Node that no look saw for this long is not there: an answer of the API server may be stale or incomplete.
const MISSED_FOR: SignedDuration = SignedDuration::from_secs(10);

/// The same where EC2, which may leave a machine out of its answers for a while, does not tell the Node's name either.
const UNSHOWN_FOR: SignedDuration = SignedDuration::from_mins(1);

impl<P: Rights> Run<P> {
    /// Drains a machine whose Node the claim does not know: a machine that came late, or was found without a claim.
    pub(crate) async fn drain_unnamed(&mut self) -> Result<Next, HandleError> {
        let objects = self.ports.cluster().read(&self.claim.value.key.cluster, Scope::Nodes, None).await?;
        let found = objects.nodes.iter().find(|node| is_ours(&self.claim.value, node));
        if let Some(node) = found.filter(|_| Safeguard::NodeLookedFor.stops(true)) {
            let joined = Event::NodeJoined { node_name: node.metadata.name.clone() };
            let next = Claim { node_missing_since: None, ..step(&self.claim.value, &joined, self.ports.clock().now())? };
            self.claim = save(self.ports.store(), &self.claim, next).await?;
            self.report.count("node_found");
            return Ok(Next::Again(SOON));
        }
        // A claim that is older than its NodeClaim knows less than that shows of the same machine.
        let of_claim = |shown: &&NodeClaim| {
            let machine = self.claim.value.machine().map(|machine| machine.provider_id.as_str());
            self.claim.value.is_shown_by(shown) && machine == Some(shown.status.provider_id.as_str())
        };
        let mut named = objects.node_claims.iter().filter(of_claim).map(|shown| &shown.status.node_name);
        if let Some(node) = named.find(|node| !node.is_empty()).filter(|_| Safeguard::NodeLookedFor.stops(true)) {
            let joined = Event::NodeJoined { node_name: node.clone() };
            let next = step(&self.claim.value, &joined, self.ports.clock().now())?;
            self.claim = save(self.ports.store(), &self.claim, next).await?;
            self.report.count("node_found");
            return Ok(Next::Again(SOON));
        }
        let asked = self.ask_by_name().await?;
        if let Asked::There(node_name) = asked {
            let next = step(&self.claim.value, &Event::NodeJoined { node_name }, self.ports.clock().now())?;
            self.claim = save(self.ports.store(), &self.claim, next).await?;
            self.report.count("node_found");
            return Ok(Next::Again(SOON));
        }
        // One that cannot be read is there, and may be this machine's.
        let of_machine = |odd: &Unreadable| {
            odd.provider_id.is_empty() || self.claim.value.machine().is_some_and(|machine| odd.provider_id == machine.provider_id.as_str())
        };
        let hidden = objects.lacks_kind(Node::KIND) || objects.unreadable_of(Node::KIND).any(of_machine);
        let patience = if asked == Asked::Unanswered { UNSHOWN_FOR } else { MISSED_FOR };
        let missed = self.is_gone_for(patience).await?;
        if hidden && !is_overdue(&self.claim.value, self.ports.clock().now()) || Safeguard::NodeLookedFor.stops(!missed) {
            self.report.count("node_not_seen");
            return Ok(Next::Again(LATER));
        }
        self.end_machine().await
    }

    /// Asks for the Node of a machine by the name that EC2 gave the machine.
    async fn ask_by_name(&self) -> Result<Asked, HandleError> {
        let claim = &self.claim.value;
        let Some(machine) = claim.machine().filter(|_| Safeguard::NodeAskedByName.stops(!is_overdue(claim, self.ports.clock().now())))
        else {
            return Ok(Asked::NotThere);
        };
        let Some(instance) = self.ports.cloud().instance(&machine.instance_id).await? else { return Ok(Asked::Unanswered) };
        if instance.private_dns_name.is_empty() {
            return Ok(Asked::NotThere);
        }
        let found = self.ports.cluster().seek(&claim.key.cluster, Sought::Node, &instance.private_dns_name).await?;
        let is_its = matches!(found, Presence::There { provider_id, .. } if provider_id == machine.provider_id.as_str());
        Ok(if is_its { Asked::There(instance.private_dns_name) } else { Asked::NotThere })
    }

    /// This look missed the Node; true when those before it did as well, for long enough.
    pub(crate) async fn is_gone(&mut self) -> Result<bool, HandleError> {
        self.is_gone_for(MISSED_FOR).await
    }

    async fn is_gone_for(&mut self, patience: SignedDuration) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        if let Some(since) = self.claim.value.node_missing_since {
            return Ok(now.duration_since(since) >= patience);
        }
        let next = Claim { node_missing_since: Some(now), ..self.claim.value.clone() };
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        Ok(false)
    }

    /// This look saw the Node: those before it that missed it were wrong.
    pub(crate) async fn seen(&mut self) -> Result<(), HandleError> {
        let next = Claim { node_missing_since: None, ..self.claim.value.clone() };
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        Ok(())
    }
}

/// What the API server says of the Node of a machine that no list shows.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    There(String),
    /// EC2 does not show the machine now, and so not its name either.
    Unanswered,
    /// Nothing has its name, or the Node of another machine.
    NotThere,
}
