//! The snapshot for one decision: cluster objects, claims, catalog and records, read together and joined.
//!
//! `schedule` and `consolidate` decide from the same snapshot. [`load`] and [`load_for_pods`] do the reading; the rest is pure.

mod inflight; // earlier decisions: claims as capacity, and their pods
mod catalog; // the instance types that each NodePool can launch now
mod reservations; // free instances of capacity reservations
mod quotas; // what quotas of the account may have left
mod shifted; // zones under a zonal shift
mod buffers; // capacity buffers and their virtual pods
mod name_clashes; // a Provisioner and a NodePool of one name
pub mod warm; // caches of an execution environment

// From decisions back to what is stored and shown.
mod planned; // a planned machine as a claim
mod pool_status; // of NodePools
mod templates; // conditions of AWSNodeTemplates

#[cfg(test)]
mod buffers_tests;
#[cfg(test)]
mod catalog_tests;
#[cfg(test)]
mod hidden_tests;
#[cfg(test)]
mod inflight_tests;
#[cfg(test)]
mod name_clashes_tests;
#[cfg(test)]
mod paused_tests;
#[cfg(test)]
mod planned_tests;
#[cfg(test)]
mod reservations_tests;

pub use buffers::{Buffers, Unanswered};
pub use catalog::{ClassParts, EVERY, TypeInputs, every_type, unavailable};
pub use inflight::{nominate_chosen, with_chosen_nodes};
pub use name_clashes::rename_provisioners;
pub use planned::{claim_of, pod_key};
pub use pool_status::{NodesByMachine, PoolFacts, class_generation, nodes_by_machine, pool_status};
pub use quotas::{QuotaFit, QuotaRoom, hold_to, is_over_quota};
pub use reservations::Reserved;
pub use shifted::shifted_zones;

use futures::future::TryFutureExt;
use futures::try_join;
use inflight::Deleted;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::Workloads;
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, hashes, labels};
use whittle_claims::{
    Claim, Expectation, ExpectedPage, LeftNodes, MeasuredMemory, NodeClassRecord, Phase, ShiftedZones, Sighting, StockOut, Stored,
    Uninstall,
};
use whittle_model::scheduling::{Input, InstanceTypes, MinValuesPolicy, Options, Packing, PreferencePolicy};
use whittle_model::state::{ClusterState, StateNode};
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, HandleError, Listing, Ports, RecordReader, Records, RegionStore, Scope, Settings, WorkloadReader,
};
use whittle_solver::buffers::Buffer;
use whittle_solver::overlays::{self, Overlaid};
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

/// How long plans wait for the adoption of a NodeClaim: three times what it takes.
const ADOPTION_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// The state of a cluster at one time. Nothing in it changes while a decision is made.
#[derive(Debug)]
pub struct Snapshot {
    pub now: Timestamp,
    /// As read: all pods, and NodeClaims as they are in the cluster.
    pub read: ClusterObjects,
    /// As decisions need them: NodeClaims made from the claims, without pods whose machine is being launched.
    pub objects: ClusterObjects,
    pub nodes: Vec<StateNode>,
    /// All claims, including ended ones until they expire.
    pub claims: Vec<Stored<Claim>>,
    pub classes: Vec<NodeClassRecord>,
    /// Instance types by NodePool.
    pub catalog: BTreeMap<String, Arc<InstanceTypes>>,
    /// What NodeOverlays changed in the catalog, and the result of each.
    pub overlaid: Overlaid,
    /// Claims that a disruption command deletes once their replacements are initialized.
    deleting: BTreeSet<ClaimName>,
    /// What the latest planning run expects of machines, by [`machine_key`].
    pub expected: BTreeMap<String, Expectation>,
    /// Names of claims that cannot be read: their machines exist and take pods, and are not changed.
    pub hidden: Vec<String>,
    /// Managed NodeClaims without a claim in the table (as after a restore): `sweep` has to adopt them first.
    pub unclaimed: Vec<String>,
    /// Resolved capacity buffers; none in a cluster from which Whittle is being uninstalled.
    pub buffers: Buffers,
    /// Zones under a zonal shift, in which nothing is launched or disrupted.
    pub shifted: ShiftedZones,
    /// What EC2 could not deliver in the region.
    pub stock_outs: Vec<StockOut>,
    /// Whittle is being uninstalled from the cluster, and what happens to its machines.
    pub uninstalling: Option<LeftNodes>,
    workloads: Workloads,
}

impl Snapshot {
    /// Joins the parts that were read. Pure.
    pub fn of(
        now: Timestamp,
        read: ClusterObjects,
        claims: Vec<Stored<Claim>>,
        classes: Vec<NodeClassRecord>,
        catalog: BTreeMap<String, Arc<InstanceTypes>>,
    ) -> Self {
        let mut overlaid = overlays::apply(&read.node_overlays, &read.node_pools, catalog);
        let catalog = std::mem::take(&mut overlaid.catalog);
        let deleting = inflight::being_replaced(&claims);
        let (objects, nodes, expected, hidden, unclaimed, buffers, shifted, stock_outs, uninstalling, workloads) = Default::default();
        let mut out = Self {
            now,
            read,
            objects,
            nodes,
            claims,
            classes,
            catalog,
            overlaid,
            deleting,
            expected,
            hidden,
            unclaimed,
            buffers,
            shifted,
            stock_outs,
            uninstalling,
            workloads,
        };
        out.join();
        out
    }

    /// Sets the names of claims that cannot be read.
    #[must_use]
    pub fn hiding(mut self, claims: Vec<String>) -> Self {
        self.hidden = claims;
        if !self.hidden.is_empty() {
            self.join();
        }
        self
    }

    /// Whether a claim exists and cannot be read.
    #[must_use]
    pub fn is_hidden(&self, claim: &ClaimName) -> bool {
        self.hidden.iter().any(|name| name == claim.as_str())
    }

    /// Sets what the latest planning run expects of machines.
    #[must_use]
    pub fn expecting(mut self, expected: BTreeMap<String, Expectation>) -> Self {
        self.expected = expected;
        self.nominate();
        self
    }

    /// Nominates further machines, by [`machine_key`], until the given times.
    pub fn expect_also<'n>(&mut self, nominated: impl IntoIterator<Item = (&'n String, &'n Timestamp)>) {
        for (machine, until) in nominated {
            let expected = self.expected.entry(machine.clone()).or_default();
            expected.nominated_until = expected.nominated_until.max(Some(*until));
        }
        self.nominate();
    }

    /// Adds the virtual pods of capacity buffers.
    #[must_use]
    pub fn with_buffers(mut self, buffers: Vec<Buffer>) -> Self {
        self.buffers = Buffers::of(buffers, &self.read, &self.claims, self.now);
        if !self.buffers.on_the_way.is_empty() {
            self.join();
        }
        self
    }

    /// Sets the workloads, whose selectors show which pods belong together.
    #[must_use]
    fn with_workloads(self, workloads: Workloads) -> Self {
        Self { workloads, ..self }
    }

    fn join(&mut self) {
        // Only a claim without a machine needs them, and mostly there is none.
        let needed = self.claims.iter().any(|claim| matches!(claim.value.phase, Phase::Planned | Phase::Launching { .. }));
        let types = self.catalog.values().filter(|_| needed).flat_map(|types| types.iter());
        let by_name: BTreeMap<&str, &InstanceType> = types.map(|instance_type| (instance_type.name.as_str(), instance_type)).collect();
        self.objects = inflight::decision_view(&self.read, &self.claims, &self.deleting, &by_name);
        inflight::list_open(&mut self.objects, &self.claims, &self.catalog);
        inflight::include_unreadable(&mut self.objects, &self.read, &self.hidden);
        let promised: Vec<_> = self.buffers.promised().collect();
        inflight::reserve_planned(&mut self.objects, &self.claims, &promised);
        self.rebuild_nodes();
    }

    /// Rebuilds the nodes after the objects changed.
    fn rebuild_nodes(&mut self) {
        name_clashes::relabel(&mut self.objects);
        self.nodes = ClusterState::of(&self.objects).nodes;
        let is_deleting = |node: &StateNode| {
            node.claim.as_ref().is_some_and(|claim| self.deleting.contains(&ClaimName::new(claim.metadata.name.as_str())))
        };
        self.nodes.iter_mut().for_each(|node| node.marked_for_deletion |= is_deleting(node));
        inflight::mark_unreadable(&mut self.nodes, &self.hidden);
        inflight::mark_ended(&mut self.nodes, &self.claims);
        self.nominate();
    }

    /// By the latest planning run, and by kube-scheduler.
    fn nominate(&mut self) {
        for node in &mut self.nodes {
            node.nominated_until = self.expected.get(machine_key(node)).and_then(|expected| expected.nominated_until);
        }
        nominate_chosen(&mut self.nodes, &self.read, self.now);
    }

    /// Pods, by uid, that wait for a machine that is launched and not yet initialized, with the name of its claim.
    #[must_use]
    pub fn promises(&self) -> BTreeMap<String, String> {
        inflight::promises(&self.claims)
    }

    /// Marks claims that a disruption command is about to delete: they count as deleting, and their pods have to be rescheduled.
    pub fn mark_deleting(&mut self, claims: impl IntoIterator<Item = ClaimName>) {
        let before = self.deleting.len();
        self.deleting.extend(claims);
        if self.deleting.len() > before {
            self.join();
        }
    }

    /// Why no decision may be made for the cluster now, as a counter's name. Otherwise machines without a claim would be launched
    /// twice, and nodes of another controller disrupted.
    #[must_use]
    pub fn why_paused(&self, settings: &Settings) -> Option<&'static str> {
        if settings.is_shadow() {
            return None;
        }
        if self.read.running_karpenter(self.now).is_some() {
            return Some("held_by_karpenter");
        }
        self.unclaimed.first()?;
        Some("held_for_adoption")
    }

    /// Whether Whittle is being uninstalled and its machines go on running: none of them is disrupted any more.
    #[must_use]
    pub fn is_left_running(&self) -> bool {
        self.uninstalling.is_some_and(LeftNodes::keep_running)
    }

    /// Whether somebody deleted a claim's NodeClaim or Node, even if `sweep` has not recorded it on the claim yet.
    pub fn is_deleted_by_user(&self, claim: &Claim) -> bool {
        Deleted::of(&self.read).requested_at(claim).is_some()
    }

    /// Updates the NodeClaims of changed claims, all at once: each time all nodes are made again.
    pub fn show<'c>(&mut self, claims: impl IntoIterator<Item = &'c Claim>) {
        let deleted = Deleted::of(&self.read);
        let mirrors = claims.into_iter().map(|claim| deleted.mirror_of(claim));
        let mut by_name: BTreeMap<String, _> = mirrors.map(|mirror| (mirror.metadata.name.clone(), mirror)).collect();
        if by_name.is_empty() {
            return;
        }
        for object in &mut self.objects.node_claims {
            if let Some(mirror) = by_name.remove(&object.metadata.name) {
                *object = mirror;
            }
        }
        self.rebuild_nodes();
    }

    /// The solver's input.
    pub fn input(&self) -> Input<'_> {
        Input {
            now: self.now,
            objects: &self.objects,
            nodes: &self.nodes,
            catalog: &self.catalog,
            virtual_pods: &self.buffers.pods,
            workloads: &self.workloads,
        }
    }
}

/// The solver's options, from the deployment's settings.
#[must_use]
pub fn options(settings: &Settings) -> Options {
    let set = &settings.scheduling;
    Options {
        packing: if set.reference_packing { Packing::Reference } else { Packing::Best },
        preferences: if set.ignore_preferences { PreferencePolicy::Ignore } else { PreferencePolicy::Respect },
        min_values: if set.lower_min_values { MinValuesPolicy::BestEffort } else { MinValuesPolicy::Strict },
        reserved_capacity: set.reserved_capacity,
        default_spread: set.default_spread.clone(),
        objective: set.objective,
        machine_cost: set.machine_cost,
        ..Options::provisioning()
    }
}

/// The key of a machine's expectations: the name of its claim, which does not change when its Node joins, or of its Node.
#[must_use]
pub fn machine_key(node: &StateNode) -> &str {
    match (&node.claim, &node.node) {
        (Some(claim), _) => &claim.metadata.name,
        (None, Some(node)) => &node.metadata.name,
        (None, None) => "",
    }
}

/// Reads everything that a decision needs.
pub async fn load<P: Ports<Store: ClaimStore + Records + RegionStore, Cluster: ClusterReader + WorkloadReader>>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Snapshot, HandleError> {
    load_all(ports, settings, cluster, Purpose::Nodes).await
}

/// The same to plan for pods that wait for a machine. For them, an offering that EC2 could not deliver is tried again after three minutes,
/// however often that has failed. Replacements of nodes that serve wait for longer after each failure (ADR 0073). Buffers for which the API
/// server does not answer are left out (ADR 0020).
pub async fn load_for_pods<P: Ports<Store: ClaimStore + Records + RegionStore, Cluster: ClusterReader + WorkloadReader>>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Snapshot, HandleError> {
    load_all(ports, settings, cluster, Purpose::Pods).await
}

async fn load_all<P: Ports<Store: ClaimStore + Records + RegionStore, Cluster: ClusterReader + WorkloadReader>>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    purpose: Purpose,
) -> Result<Snapshot, HandleError> {
    // Claims first: only the lease holder creates new ones, and one that changes phase meanwhile counts as capacity either way.
    let listing = ports.store().listing(cluster).await?;
    let read = ports.cluster().read(cluster, Scope::All, None).await?;
    joined(ports, settings, cluster, (listing, read), purpose).await
}

/// The same as [`load`], with the Nodes of an earlier look; `None` if there are none that may be used. A run may conclude from it that
/// nothing is to be done, but not act by it (ADR 0059).
pub async fn load_kept<P: Ports<Store: ClaimStore + Records + RegionStore, Cluster: ClusterReader + WorkloadReader>>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Option<Snapshot>, HandleError> {
    let Some(read) = ports.cluster().read_kept(cluster, Scope::All).await? else { return Ok(None) };
    let listing = ports.store().listing(cluster).await?;
    joined(ports, settings, cluster, (listing, read), Purpose::Nodes).await.map(Some)
}

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To plan for pods that wait. An offering that EC2 could not deliver is not tried again for as long as after the first failure, and
    /// buffers for which the API server does not answer are left out: no pod waits for their sake.
    Pods,
    /// To decide about nodes. Such an offering is left aside for longer after each failure, and without such buffers nothing is decided:
    /// the room on nodes that is kept for them would not be seen.
    Nodes,
}

/// What was read of claims and objects, with everything else that a decision needs.
async fn joined<P: Ports<Store: ClaimStore + Records + RegionStore, Cluster: ClusterReader + WorkloadReader>>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    (Listing { claims, unreadable: hidden }, mut read): (Listing, ClusterObjects),
    purpose: Purpose,
) -> Result<Snapshot, HandleError> {
    let (store, spread) = (ports.store(), !settings.scheduling.default_spread.is_empty());
    // None of them depends on another.
    let (uninstall, classes, shifted, offers, expected, workloads) = try_join!(
        store.read::<Uninstall>(cluster, Uninstall::NAME).err_into::<HandleError>(),
        store.read_all::<NodeClassRecord>(cluster).err_into::<HandleError>(),
        shifted_zones(ports, settings, cluster),
        Offers::read(ports, cluster, purpose),
        store.read_all::<ExpectedPage>(cluster).err_into::<HandleError>(),
        async { Ok::<_, HandleError>(if spread { ports.cluster().selectors(cluster).await? } else { Workloads::default() }) },
    )?;
    let uninstalling = uninstall.map(|record| record.value.nodes);
    if uninstalling.is_some() {
        // A cluster from which Whittle is being uninstalled gets no new machine for any pool.
        read.node_pools.clear();
        read.capacity_buffers.clear();
    }
    // Pods that only another controller's pools suit are not ours to launch for.
    read.node_pools.retain(NodePool::is_managed);
    for pool in &mut read.node_pools {
        set_hash(pool);
    }
    name_clashes::rename_provisioners(&mut read);
    let mut classes: Vec<_> = classes.into_iter().map(|stored| stored.value).collect();
    classes.retain(|record| !record.is_replaced(&read.node_classes));
    templates::show_status(&mut read.node_classes, &classes, settings.mode);
    if settings.is_shadow() {
        // Shadow mode writes no conditions: those in the cluster are old.
        let now = ports.clock().now();
        let facts = PoolFacts { objects: &read, classes: &classes, claims: &claims, health: &[], nodes: None };
        let conditions: Vec<_> = read.node_pools.iter().map(|pool| pool_status(pool, facts, now).status.conditions).collect();
        read.node_pools.iter_mut().zip(conditions).for_each(|(pool, conditions)| pool.status.conditions = conditions);
    }
    let (unclaimed, (buffers, unanswered)) =
        try_join!(unclaimed(ports, cluster, (&claims, &hidden), &read), buffers::read(ports, cluster, &read.capacity_buffers, purpose))?;
    let now = ports.clock().now();
    let stock_outs = offers.stock_outs.clone();
    let catalog = offers.types(settings, (&read, &classes, &claims), shifted.clone(), now)?;
    let decided_on = Snapshot::of(now, read, claims, classes, catalog).hiding(hidden);
    let snapshot = Snapshot { unclaimed, shifted, stock_outs, uninstalling, ..decided_on };
    let expected = ExpectedPage::joined(expected.into_iter().map(|page| page.value));
    let mut snapshot = snapshot.expecting(expected).with_buffers(buffers).with_workloads(workloads);
    snapshot.buffers.unanswered = unanswered;
    Ok(snapshot)
}

/// The instance types that each pool can launch for pods now. Types, prices and stock-outs are read; the other facts are given.
///
/// # Errors The store failed, or the catalog is unreadable.
pub async fn instance_types<P: Ports<Store: RecordReader + RegionStore>>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    read: (&ClusterObjects, &[NodeClassRecord], &[Stored<Claim>]),
    shifted: ShiftedZones,
) -> Result<BTreeMap<String, Arc<InstanceTypes>>, HandleError> {
    Offers::read(ports, cluster, Purpose::Pods).await?.types(settings, read, shifted, ports.clock().now())
}

/// What the table knows of a region's types and prices, of what EC2 could not deliver there, and of the memory of a cluster's nodes.
struct Offers {
    stock_outs: Vec<StockOut>,
    catalog: Option<Vec<u8>>,
    measured: Vec<MeasuredMemory>,
}

impl Offers {
    async fn read<P: Ports<Store: RecordReader + RegionStore>>(
        ports: P,
        cluster: &ClusterName,
        purpose: Purpose,
    ) -> Result<Self, HandleError> {
        let store = ports.store();
        let (stock_outs, catalog, measured) =
            try_join!(store.stock_outs(ports.clock().now()), store.catalog(), store.read_all::<MeasuredMemory>(cluster))?;
        let measured = measured.into_iter().map(|stored| stored.value).collect();
        let stock_outs = if purpose == Purpose::Pods { stock_outs.iter().map(StockOut::for_pods).collect() } else { stock_outs };
        Ok(Self { stock_outs, catalog: catalog.map(|stored| stored.value), measured })
    }

    /// The instance types that each pool can launch.
    fn types(
        self,
        settings: &Settings,
        (objects, classes, claims): (&ClusterObjects, &[NodeClassRecord], &[Stored<Claim>]),
        shifted: ShiftedZones,
        now: Timestamp,
    ) -> Result<BTreeMap<String, Arc<InstanceTypes>>, HandleError> {
        let Self { stock_outs, catalog, measured } = self;
        let reserved = Reserved::for_plans(classes, claims, &stock_outs, now);
        let prices = overlays::missing_prices(&objects.node_overlays);
        let inputs = TypeInputs { settings: settings.instance_types(), reserved, measured, now, shifted, prices };
        catalog::of_pools(&objects.node_pools, classes, &stock_outs, &inputs, catalog.as_deref(), now)
    }
}

/// NodeClaims that Whittle created and that have no claim in the table, not even an unreadable one. NodeClaims that are being
/// deleted do not count, nor do those that `sweep` could not adopt in ten minutes: a surplus machine is consolidated later, while a
/// cluster without plans gets no machines.
async fn unclaimed<P: Ports<Store: ClaimStore + Records>>(
    ports: P,
    cluster: &ClusterName,
    (claims, hidden): (&[Stored<Claim>], &[String]),
    read: &ClusterObjects,
) -> Result<Vec<String>, HandleError> {
    let readable = claims.iter().map(|claim| claim.value.key.name.as_str());
    let known: BTreeSet<&str> = readable.chain(hidden.iter().map(String::as_str)).collect();
    let ours =
        read.node_claims.iter().map(|node_claim| &node_claim.metadata).filter(|meta| meta.annotation(labels::MANAGED) == Some("true"));
    let ours = ours.filter(|meta| !meta.is_deleting());
    let mut names: Vec<String> = ours.map(|meta| meta.name.clone()).filter(|name| !known.contains(name.as_str())).collect();
    if !names.is_empty() {
        let now = ports.clock().now();
        let sightings: Vec<Sighting> = ports.store().read_all(cluster).await?.into_iter().map(|stored| stored.value).collect();
        names.retain(|name| !is_overdue(&Sighting::unclaimed(name), &sightings, now));
    }
    Ok(names)
}

/// Whether something was first seen longer ago than [`ADOPTION_WAIT`].
fn is_overdue(subject: &str, sightings: &[Sighting], now: Timestamp) -> bool {
    sightings.iter().any(|sighting| sighting.subject == subject && now.duration_since(sighting.first_seen_at) >= ADOPTION_WAIT)
}

/// Sets the hash annotation, which follows from the template alone, so that decisions need not wait until it is written.
fn set_hash(pool: &mut NodePool) {
    let hash = hashes::node_pool(pool);
    let annotations = &mut pool.metadata.annotations;
    annotations.insert(labels::NODE_POOL_HASH.to_owned(), hash);
    annotations.insert(labels::NODE_POOL_HASH_VERSION.to_owned(), hashes::NODE_POOL_VERSION.to_owned());
}
