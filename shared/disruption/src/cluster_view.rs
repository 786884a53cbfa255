//! The cluster indexed for one decision: machines with their pods, NodePools, and the offerings of their catalogs.

use super::offerings::Offerings;
use super::pdb::Pdbs;
use super::verdict::{Blocker, Verdict, VerdictReason};
use super::workload::workload_of;
use jiff::Timestamp;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::{NodeClaim, NodeClassReference, NodePool};
use whittle_api::{ClusterObjects, conditions, labels};
use whittle_model::disruption::{ClaimFacts, Input, Settings};
use whittle_model::scheduling::{Cursor, Options, Packing, ReservedMode, Simulation};
use whittle_model::state::StateNode;
use whittle_units::Price;

/// Group and kind of the node classes that this controller manages.
const NODE_CLASS: (&str, &str) = (labels::AWS_DOMAIN, "EC2NodeClass");

static NO_FACTS: ClaimFacts = ClaimFacts {
    in_command: false,
    is_held: false,
    taint_refused: None,
    replacement_refused: None,
    was_refused_replacement: false,
    pool_of_pending_launch: None,
    buffer_pods: 0,
    type_seen_at: None,
    cloud_drift: None,
    launch_price: Price::ZERO,
};

#[derive(Clone, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) state: &'a StateNode,
    pub(crate) facts: &'a ClaimFacts,
    /// Bound to the node and not finished, sorted by namespace and name.
    pub(crate) pods: Vec<&'a Pod>,
}

impl<'a> Machine<'a> {
    /// Name of the state node, which simulations and commands use.
    pub(crate) fn name(&self) -> &'a str {
        self.state.name()
    }
    pub(crate) fn claim(&self) -> Option<&'a NodeClaim> {
        self.state.claim.as_deref()
    }
    /// Name of the Node; empty while there is none.
    pub(crate) fn node_name(&self) -> &'a str {
        self.state.node.as_ref().map_or("", |node| node.metadata.name.as_str())
    }
    pub(crate) fn claim_name(&self) -> &'a str {
        self.claim().map_or("", |claim| claim.metadata.name.as_str())
    }
    pub(crate) fn label(&self, key: &str) -> Option<&'a str> {
        self.state.labels().get(key).map(String::as_str)
    }
    /// The NodeClaim's annotation until registered, then the Node's.
    pub(crate) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.state.annotations().get(key).map(String::as_str)
    }
    /// Name of the pool, from the node's label.
    pub(crate) fn pool(&self) -> Option<&'a str> {
        self.label(labels::NODE_POOL)
    }
    /// Has a NodeClaim whose node class is managed by this controller.
    pub(crate) fn is_managed(&self) -> bool {
        self.claim().is_some_and(|claim| is_managed_class(&claim.spec.node_class_ref))
    }
    /// The Node has the label `karpenter.sh/initialized`.
    pub(crate) fn is_initialized(&self) -> bool {
        self.state.node.as_ref().is_some_and(|node| node.metadata.label(labels::INITIALIZED) == Some("true"))
    }
    pub(crate) fn is_ready(&self) -> bool {
        self.state.node.as_ref().is_some_and(|node| node.is_ready())
    }
    /// The Node or NodeClaim is being deleted, marked for deletion or terminating, whoever requested it.
    pub(crate) fn is_deleting(&self) -> bool {
        self.state.marked_for_deletion
            || self.is_terminating()
            || self.claim().is_some_and(|claim| claim.metadata.is_deleting())
            || self.state.node.as_ref().is_some_and(|node| node.metadata.is_deleting())
    }
    /// The instance is being terminated.
    pub(crate) fn is_terminating(&self) -> bool {
        self.claim().is_some_and(|claim| conditions::is_true(&claim.status.conditions, conditions::INSTANCE_TERMINATING))
    }
    /// Until when the node is nominated for pending pods.
    pub(crate) fn nominated_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.state.nominated_until.filter(|until| now < *until)
    }
}

/// Whether the referenced node class is managed by this controller.
pub(crate) fn is_managed_class(reference: &NodeClassReference) -> bool {
    (reference.group.as_str(), reference.kind.as_str()) == NODE_CLASS
}

/// The state of the cluster that all methods read.
pub(crate) struct ClusterView<'a> {
    pub(crate) input: Input<'a>,
    /// Sorted by name.
    pub(crate) machines: Vec<Machine<'a>>,
    pools: BTreeMap<&'a str, &'a NodePool>,
    pub(crate) pdbs: Pdbs<'a>,
    /// Provider IDs that two Nodes or two NodeClaims have.
    duplicate_provider_ids: BTreeSet<&'a str>,
    /// An object that cannot be read and that would affect every decision.
    pub(crate) unreadable: Option<String>,
    /// Options of every simulation, without its candidates.
    pub(crate) simulation_options: Options,
    pub(crate) offerings: Offerings,
    /// Number of pods that have not finished, by workload; counted on first use.
    live_pods: OnceCell<BTreeMap<String, u64>>,
}

impl<'a> ClusterView<'a> {
    pub(crate) fn new(input: Input<'a>) -> Self {
        let objects = input.cluster.objects;
        let pools = objects.node_pools.iter().filter(|pool| is_managed_class(&pool.spec.template.spec.node_class_ref));
        let mut machines: Vec<Machine<'a>> = input.cluster.nodes.iter().map(|state| machine(&input, state)).collect();
        machines.sort_by(|a, b| a.name().cmp(b.name()));
        Self {
            input,
            machines,
            pools: pools.map(|pool| (pool.metadata.name.as_str(), pool)).collect(),
            pdbs: Pdbs::new(&objects.disruption_budgets),
            duplicate_provider_ids: duplicate_provider_ids(objects),
            unreadable: unreadable(objects),
            simulation_options: simulation_options(input.settings),
            offerings: Offerings::new(input.cluster.catalog),
            live_pods: OnceCell::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.input.cluster.now
    }
    /// A managed pool.
    pub(crate) fn pool(&self, name: &str) -> Option<&'a NodePool> {
        self.pools.get(name).copied()
    }
    /// All managed pools, by name.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &'a NodePool> + '_ {
        self.pools.values().copied()
    }
    /// Whether the pool has any instance type.
    pub(crate) fn has_types(&self, pool: &str) -> bool {
        self.input.cluster.catalog.get(pool).is_some_and(|types| !types.is_empty())
    }
    pub(crate) fn instance_type(&self, pool: &str, name: &str) -> Option<&'a InstanceType> {
        self.input.cluster.catalog.get(pool)?.find(name)
    }
    /// Whether the machine's provider ID matches more than one Node or NodeClaim.
    pub(crate) fn is_ambiguous(&self, machine: &Machine<'_>) -> bool {
        machine.state.node.as_ref().is_some_and(|node| self.duplicate_provider_ids.contains(node.spec.provider_id.as_str()))
    }
    /// Verdicts for Nodes that belong to no machine.
    pub(crate) fn verdicts_without_machine(&self) -> impl Iterator<Item = Verdict> + '_ {
        let known: BTreeSet<&str> = self.machines.iter().map(Machine::node_name).collect();
        let nodes = self.input.cluster.objects.nodes.iter().filter(move |node| !known.contains(node.metadata.name.as_str()));
        nodes.map(|node| {
            let blocker = match node.spec.provider_id.as_str() {
                "" => Blocker::NoProviderId,
                id if self.duplicate_provider_ids.contains(id) => Blocker::DuplicateProviderId(id.to_owned()),
                _ => Blocker::NotInitialized,
            };
            Verdict {
                node: node.metadata.name.clone(),
                node_claim: String::new(),
                node_pool: node.metadata.label(labels::NODE_POOL).unwrap_or_default().to_owned(),
                reason: VerdictReason::Blocked(blocker),
            }
        })
    }
    /// How many pods of a workload have not finished.
    pub(crate) fn live_pods(&self, workload: &str) -> u64 {
        let count = || {
            let mut counted: BTreeMap<String, u64> = BTreeMap::new();
            for pod in self.input.cluster.objects.pods.iter().filter(|pod| !pod.is_terminal()) {
                *counted.entry(workload_of(pod)).or_default() += 1;
            }
            counted
        };
        self.live_pods.get_or_init(count).get(workload).copied().unwrap_or(0)
    }
    /// Price of the machine: that of the first offering with its type, zone and capacity type, available or not; zero
    /// when unknown.
    pub(crate) fn price(&self, machine: &Machine<'_>) -> Price {
        let offering = (|| {
            let instance_type = self.instance_type(machine.pool()?, machine.label(labels::INSTANCE_TYPE)?)?;
            let (zone, capacity_type) = (machine.label(labels::ZONE)?, machine.label(labels::CAPACITY_TYPE)?);
            instance_type.offerings.iter().find(|offering| offering.zone() == zone && offering.capacity_type() == capacity_type)
        })();
        offering.map_or(Price::ZERO, |offering| offering.price)
    }
}

/// Kinds that affect every machine: its price and its daemons. Without one of these objects a machine may look dearer or larger than it
/// is. No room is kept for a CapacityBuffer that cannot be read: any tenant may create one, and it is his alone.
const CLUSTER_WIDE_KINDS: [&str; 2] = ["NodeOverlay", "DaemonSet"];

fn unreadable(objects: &ClusterObjects) -> Option<String> {
    let object = objects.unreadable.iter().find(|object| CLUSTER_WIDE_KINDS.contains(&object.kind.as_str()))?;
    Some(format!("{} {}", object.kind, object.metadata.key()))
}

/// Provider IDs that identify no single machine.
fn duplicate_provider_ids(objects: &ClusterObjects) -> BTreeSet<&str> {
    fn twice<'a>(ids: impl Iterator<Item = &'a String>, into: &mut BTreeSet<&'a str>) {
        let mut seen = BTreeSet::new();
        into.extend(ids.map(String::as_str).filter(|id| !id.is_empty() && !seen.insert(*id)));
    }
    let mut shared = BTreeSet::new();
    twice(objects.nodes.iter().map(|node| &node.spec.provider_id), &mut shared);
    twice(objects.node_claims.iter().map(|claim| &claim.status.provider_id), &mut shared);
    shared
}

fn simulation_options(settings: &Settings) -> Options {
    let simulation = Simulation { spare_recent: true, ..Simulation::default() };
    let base = settings.solve.clone();
    let (reserved, simulation) = (ReservedMode::Fallback, Some(simulation));
    Options { packing: Packing::Reference, reserved, work_budget: None, cursor: Cursor::default(), simulation, ..base }
}

fn machine<'a>(input: &Input<'a>, state: &'a StateNode) -> Machine<'a> {
    let claim = state.claim.as_ref().map(|claim| claim.metadata.name.as_str());
    let facts = claim.and_then(|claim| input.facts.get(claim)).unwrap_or(&NO_FACTS);
    let mut pods: Vec<&Pod> = state.pods.iter().filter_map(|at| input.cluster.objects.pods.get(*at)).collect();
    pods.sort_by(|a, b| (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name)));
    Machine { state, facts, pods }
}
