//! Pending pods become NodeClaims: under the cluster's lease, read everything, solve, check, store.

mod catalog;
mod inflight;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use whittle_api::ClusterObjects;
use whittle_api::catalog::InstanceType;
use whittle_claims::{Claim, Doorbell, Lease, NodeClassRecord, StockOut, Stored, mirror};
use whittle_core::schedule::{self, Input, Options, Plan, Workloads};
use whittle_core::state::ClusterState;
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, DecisionLog, HandleError, Leases, Mirrors, Queues, Records, RegionStore, Report, Scope, Settings,
    StatusWriter, World,
};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Long enough for the largest plan, short enough that a crashed run delays the next by less than a tick.
const LEASE: SignedDuration = SignedDuration::from_secs(30);

/// Plans for a cluster's pending pods. Only one run decides for a cluster at a time; a later one ends with `Held`.
pub async fn handle<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Report, HandleError>
where
    S: ClaimStore + Leases + Records + RegionStore + DecisionLog,
    C: Sync,
    K: ClusterReader + Mirrors + StatusWriter,
    Q: Queues,
    T: Clock,
{
    let lease = world.store.acquire(cluster, &world.clock.unique(), world.clock.now(), LEASE).await?;
    let outcome = under_lease(world, settings, cluster, &lease).await;
    // A lease that cannot be given back runs out by itself.
    let _ = world.store.release(&lease).await;
    outcome
}

async fn under_lease<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    settings: &Settings,
    cluster: &ClusterName,
    lease: &Lease,
) -> Result<Report, HandleError>
where
    S: ClaimStore + Leases + Records + RegionStore + DecisionLog,
    C: Sync,
    K: ClusterReader + Mirrors + StatusWriter,
    Q: Queues,
    T: Clock,
{
    let loaded = load(world, cluster).await?;
    let now = world.clock.now();
    let plan = loaded.decide(now)?;
    let mut report = Report::default();
    let mut created = Vec::new();
    for new in &plan.claims {
        let claim = write::claim_of(new, &loaded.objects, cluster, &world.clock.unique(), world.clock.unique(), now);
        if !settings.shadow {
            world.store.create(lease, &claim).await?;
        }
        write::explain_claim(&mut report, &claim, new, now);
        created.push(claim);
    }
    for left in &plan.left_out {
        write::explain_left_out(&mut report, left, now);
    }
    if !settings.shadow {
        announce(world, cluster, &loaded.claims, &plan, &created, &mut report).await?;
    }
    world.store.append(cluster, &report.decisions).await?;
    Ok(report)
}

/// Tells everybody: the launch function first, because all else is shown again by later runs.
async fn announce<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    claims: &[Stored<Claim>],
    plan: &Plan,
    created: &[Claim],
    report: &mut Report,
) -> Result<(), HandleError>
where
    K: Mirrors + StatusWriter,
    Q: Queues,
{
    if !created.is_empty() {
        let claims = created.iter().map(|claim| claim.key.name.clone()).collect();
        world.queues.ring(Doorbell::Launch { cluster: cluster.clone(), claims }, SignedDuration::ZERO).await?;
    }
    if plan.cursor.is_some() {
        world.queues.ring(Doorbell::Schedule { cluster: cluster.clone() }, SignedDuration::ZERO).await?;
    }
    for claim in created {
        // `sweep` shows what could not be shown now.
        if world.cluster.apply_mirror(cluster, &mirror(claim)).await.is_err() {
            report.count("mirrors_failed");
        }
    }
    for event in write::events(plan, created, claims).into_iter().take(write::EVENTS_MAX) {
        if world.cluster.publish(cluster, &event).await.is_err() {
            report.count("events_failed");
        }
    }
    Ok(())
}

/// All that a plan looks at.
struct Loaded {
    objects: ClusterObjects,
    claims: Vec<Stored<Claim>>,
    classes: Vec<NodeClassRecord>,
    stock_outs: Vec<StockOut>,
    catalog: Option<Vec<u8>>,
}

async fn load<S, C, K, Q, T>(world: World<'_, S, C, K, Q, T>, cluster: &ClusterName) -> Result<Loaded, HandleError>
where
    S: ClaimStore + Records + RegionStore,
    K: ClusterReader,
    T: Clock,
{
    // Claims first: only a lease holder makes new ones, and what moves on meanwhile counts as capacity before and after.
    let claims = world.store.list(cluster).await?;
    let objects = world.cluster.read(cluster, Scope::All, None).await?;
    let classes = world.store.read_all::<NodeClassRecord>(cluster).await?.into_iter().map(|stored| stored.value).collect();
    let stock_outs = world.store.stock_outs(world.clock.now()).await?;
    let catalog = world.store.catalog().await?.map(|stored| stored.value);
    Ok(Loaded { objects, claims, classes, stock_outs, catalog })
}

impl Loaded {
    /// The plan for what was loaded. Pure.
    fn decide(&self, now: Timestamp) -> Result<Plan, HandleError> {
        let catalog = catalog::of_pools(&self.objects.node_pools, &self.classes, &self.stock_outs, self.catalog.as_deref())?;
        let by_name: BTreeMap<&str, &InstanceType> =
            catalog.values().flat_map(|types| types.iter()).map(|instance_type| (instance_type.name.as_str(), instance_type)).collect();
        let objects = inflight::as_decided(&self.objects, &self.claims, &by_name);
        let state = ClusterState::of(&objects);
        let workloads = Workloads::default();
        let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
        Ok(schedule::solve(&input, &Options::provisioning()))
    }
}
