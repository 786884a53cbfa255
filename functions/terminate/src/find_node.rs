//! The Node of a machine that is being terminated. A machine with a Node is drained, whether or not its claim knows the Node; one
//! without is terminated only after the Node was missing in several reads.

use crate::steps::is_overdue;
use crate::{Next, POLL_DELAY, SHORT_DELAY, is_ours};
use crate::{Rights, Run};
use whittle_api::Unreadable;
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::NodeClaim;
use whittle_api::runtime::is_subdomain;
use whittle_claims::{Claim, Event, step};
use whittle_ports::{Clock, ClusterReader, HandleError, Instances, ObjectKind, Presence, Safeguard, Scope, save};
use whittle_units::SignedDuration;

/// How long a Node has to be missing: a response of the API server may be stale or incomplete.
const NODE_MISSING_FOR: SignedDuration = SignedDuration::from_secs(10);

/// The same if EC2, which may omit an instance from its responses for a while, does not report the Node's name either.
const INSTANCE_MISSING_FOR: SignedDuration = SignedDuration::from_mins(1);

impl<P: Rights> Run<'_, P> {
    /// Drains a machine whose Node the claim does not know: one that launched late, or was found without a claim.
    pub(crate) async fn drain_unnamed(&mut self) -> Result<Next, HandleError> {
        let Look { own, named, hides_nodes } = self.look_for_node().await?;
        if let Some(node_name) = own.filter(|_| Safeguard::NodeLookedFor.stops(true)) {
            return self.store_node(node_name).await;
        }
        // Whoever may write the status may name any Node, and a machine whose Node seems to be gone is not drained.
        if let Some(node_name) = named.filter(|_| Safeguard::NodeLookedFor.stops(true))
            && self.is_own_node(&node_name).await?
        {
            return self.store_node(node_name).await;
        }
        let by_name = self.find_by_dns_name().await?;
        if let NodeByName::Found(node_name) = by_name {
            return self.store_node(node_name).await;
        }
        let patience = if by_name == NodeByName::InstanceNotShown { INSTANCE_MISSING_FOR } else { NODE_MISSING_FOR };
        let missing = self.is_missing_for(patience).await?;
        if hides_nodes && !is_overdue(&self.claim.value, self.ports.clock().now()) || Safeguard::NodeLookedFor.stops(!missing) {
            self.report.count("node_not_seen");
            return Ok(Next::RequeueAfter(POLL_DELAY));
        }
        self.end_machine().await
    }

    /// Stores the Node that was found, by a list or by its name. What earlier reads lacked counts no more: another one that lacks it would
    /// end the machine at once.
    async fn store_node(&mut self, node_name: String) -> Result<Next, HandleError> {
        let joined = Event::NodeJoined { node_name };
        let next = Claim { node_missing_since: None, ..step(&self.claim.value, &joined, self.ports.clock().now())? };
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        self.report.count("node_found");
        Ok(Next::RequeueAfter(SHORT_DELAY))
    }

    /// Looks for the machine's Node among all of the cluster. The objects are not kept: each claim of an invocation would hold thousands of
    /// Nodes and NodeClaims while it waits for EC2.
    async fn look_for_node(&self) -> Result<Look, HandleError> {
        let claim = &self.claim.value;
        let objects = self.ports.cluster().read(&claim.key.cluster, Scope::Nodes, None).await?;
        let own = objects.nodes.iter().find(|node| is_ours(claim, node)).map(|node| node.metadata.name.clone());
        // A claim that is older than its NodeClaim knows less about the machine than the NodeClaim does.
        let machine = claim.machine().map(|machine| machine.provider_id.as_str());
        let of_claim = |mirror: &&NodeClaim| claim.is_mirrored_by(mirror) && machine == Some(mirror.status.provider_id.as_str());
        let named = objects.node_claims.iter().filter(of_claim).map(|mirror| mirror.status.node_name.clone()).find(|name| !name.is_empty());
        // A Node that cannot be read exists, and may be this machine's.
        let of_machine = |odd: &Unreadable| odd.provider_id.is_empty() || machine == Some(odd.provider_id.as_str());
        let hides_nodes = objects.lacks_kind(Node::KIND) || objects.unreadable_of(Node::KIND).any(of_machine);
        Ok(Look { own, named, hides_nodes })
    }

    /// Reads the Node of a machine by its private DNS name in EC2.
    async fn find_by_dns_name(&self) -> Result<NodeByName, HandleError> {
        let claim = &self.claim.value;
        let Some(machine) = claim.machine().filter(|_| Safeguard::NodeAskedByName.stops(!is_overdue(claim, self.ports.clock().now())))
        else {
            return Ok(NodeByName::NotFound);
        };
        let Some(instance) = self.ports.cloud().instance(&machine.instance_id).await? else { return Ok(NodeByName::InstanceNotShown) };
        if instance.private_dns_name.is_empty() {
            return Ok(NodeByName::NotFound);
        }
        let is_own = self.is_own_node(&instance.private_dns_name).await?;
        Ok(if is_own { NodeByName::Found(instance.private_dns_name) } else { NodeByName::NotFound })
    }

    /// Whether the API server has a Node of this name, and it is this machine's.
    async fn is_own_node(&self, name: &str) -> Result<bool, HandleError> {
        if !is_subdomain(name) {
            return Ok(false); // no Node is called so, and a request for it might fail for ever
        }
        let claim = &self.claim.value;
        let found = self.ports.cluster().look_up(&claim.key.cluster, ObjectKind::Node, name).await?;
        let own = claim.machine().map(|machine| machine.provider_id.as_str());
        Ok(matches!(&found, Presence::Exists { provider_id, .. } if own == Some(provider_id.as_str())))
    }

    /// Records that this read did not find the Node; true if earlier reads did not either, for long enough.
    pub(crate) async fn is_node_missing(&mut self) -> Result<bool, HandleError> {
        self.is_missing_for(NODE_MISSING_FOR).await
    }

    async fn is_missing_for(&mut self, patience: SignedDuration) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        if let Some(since) = self.claim.value.node_missing_since {
            return Ok(now.duration_since(since) >= patience);
        }
        let next = Claim { node_missing_since: Some(now), ..self.claim.value.clone() };
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        Ok(false)
    }

    /// Records that this read found the Node: earlier reads were incomplete.
    pub(crate) async fn record_node_found(&mut self) -> Result<(), HandleError> {
        let next = Claim { node_missing_since: None, ..self.claim.value.clone() };
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        Ok(())
    }
}

/// What the Nodes and NodeClaims of a cluster tell about the Node of a machine.
struct Look {
    /// The name of the Node with the machine's provider id.
    own: Option<String>,
    /// The Node that the NodeClaim names.
    named: Option<String>,
    /// Whether there may be a Node of the machine that cannot be read.
    hides_nodes: bool,
}

/// The API server's answer about a Node that no list contains.
#[derive(Debug, PartialEq, Eq)]
enum NodeByName {
    Found(String),
    /// EC2 does not show the instance now, so its name is unknown.
    InstanceNotShown,
    /// No Node has its name, or only that of another machine.
    NotFound,
}
