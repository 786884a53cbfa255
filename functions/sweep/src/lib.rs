//! Reconciles claims, instances and objects: resends lost doorbells, deletes expired claims, collects orphans.
//!
//! Contradictions are acted on only when two sweeps, at least half a minute apart, saw them. Instances are never terminated here:
//! a claim for them is created or found, and `terminate` drains it.

// What is due, lost or without an owner, and what is done about it.
mod compare; // claims, instances and objects, beside each other
mod index; // all of them by their names
mod sightings; // contradictions, until they are seen again
mod execute; // one finding after another
mod collect; // machines without a claim get theirs back, or one that is being deleted
mod adopt; // machines and NodeClaims of ours that the table does not know
mod orphans; // machines without a claim, and objects without either
mod release; // objects whose machine has ended
mod standalone; // NodeClaims that users made
mod unreadable; // what cannot be read counts as existing
mod without_ec2; // what is done while EC2 does not answer
mod looks; // where there is nothing, EC2 is not asked each minute

// Leaving a cluster.
mod uninstall; // machines are drained or released, objects released
mod hand_over; // machines are left to Karpenter

// What else is looked at in each sweep.
mod drift; // of a machine from its node class
mod health; // nodes that are unhealthy, or smaller than expected
mod karpenter; // a Karpenter in the same cluster
mod others; // functions that no longer serve the cluster
mod reservations; // machines in capacity reservations
mod static_pools; // NodePools with `replicas` in a cluster without claims
mod templates; // launch templates that a call may still use
mod zonal_shift; // zones that traffic is shifted away from

// What is reported.
mod gauges; // about pools and claims
mod offerings; // about instance types and their offerings
mod reports; // Events on NodeClaims that have no machine

#[cfg(test)]
mod tests;

pub use looks::Looks;
pub use uninstall::uninstall;

use compare::{Findings, SweepInput, compare};
use execute::Executor;
use index::Index;
use templates::InUse;
use whittle_api::ClusterObjects;
use whittle_api::karpenter::NodePool;
use whittle_claims::{BlockEnds, Claim, LeftNodes, NodeClassRecord, PoolHealth, ShiftedZones, Sighting, Stored, Uninstall};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ec2::interruption::InstanceStatus;
use whittle_ports::{
    CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterReader, DecisionLog, Erase, HandleError, InstanceChecks, InstanceTags, Instances,
    LaunchTemplateCleanup, Leases, Listing, Mirrors, Nodes, Queues, RecordReader, RecordRemoval, Records, RegionStore, Report, Safeguard,
    Scope, Settings, StatusWriter, ZonalShifts, concurrently, rights, save, unless_conflict, write_mirror, write_pool_statuses,
};
use whittle_snapshot::{PoolFacts, nodes_by_machine, pool_status};
use whittle_units::{ClusterName, InstanceId, Timestamp};

rights! {
    /// What `sweep` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Leases + Records + RecordRemoval + RegionStore + DecisionLog + Erase,
    Cloud: Instances + InstanceChecks + ZonalShifts + InstanceTags + LaunchTemplateCleanup,
    Cluster: ClusterReader + Mirrors + Nodes + StatusWriter,
    Queues: Queues,
}

/// Sweeps one cluster, as it is now.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    sweep(ports, settings, cluster, Freshness::Newest, None).await
}

/// The same when nothing is known to have happened (ADR 0059), in an execution environment with these earlier looks.
pub async fn tick<P: Rights>(ports: P, settings: &Settings, looks: &Looks, cluster: &ClusterName) -> Result<Report, HandleError> {
    sweep(ports, settings, cluster, Freshness::Kept, Some(looks)).await
}

async fn sweep<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    freshness: Freshness,
    looks: Option<&Looks>,
) -> Result<Report, HandleError> {
    let mut report = Report::default();
    // In shadow mode as well: plans and what they would launch depend on it.
    let shifted = before_all(ports, settings, cluster, &mut report).await?;
    if settings.is_shadow() {
        return Ok(report);
    }
    let uninstalled = go_on_uninstalling(ports, cluster, &shifted, &mut report).await?;
    // Only Nodes that are read anew show whether they are unhealthy.
    let freshness = if settings.node_repair || uninstalled.is_some() { Freshness::Newest } else { freshness };
    // What is left of an uninstallation is asked for each time.
    let looks = looks.filter(|_| uninstalled.is_none());
    let (read, seen) = match looks {
        Some(looks) => read_as_due(ports, cluster, freshness, looks, &mut report).await?,
        None if uninstalled.is_some() => read(ports, cluster, freshness, &mut report).await?,
        None => read_or_honour(ports, cluster, freshness, &mut report).await?,
    };
    if let Some(object) = seen.objects.running_karpenter(ports.clock().now()) {
        karpenter::refuse(ports, cluster, &seen.objects, object, &mut report).await;
        return Ok(report);
    }
    let Listing { claims, unreadable } = &read.listing;
    if uninstalled.is_none() && claims.is_empty() && unreadable.is_empty() {
        static_pools::ring(ports, settings, cluster, &seen.objects, &mut report).await;
    }
    let known = read.sightings.iter().map(|stored| stored.value.clone()).collect();
    let blocks = reservations::known_ends(ports, cluster, claims).await?;
    zonal_shift::announce(ports, settings, cluster, (&seen.objects, &read.classes), &mut report).await?;
    let facts = SweepFacts { read, known, blocks, shifted, repair: settings.node_repair, uninstalled, now: ports.clock().now() };
    let find = |objects: &ClusterObjects, nodes: Freshness| compare(&facts.beside(objects, nodes));
    let (objects, mut findings) = seen.compared(ports, cluster, find).await?;
    if let Some(looks) = looks
        && !looks::shows_nothing(&objects)
        && !facts.read.asked_ec2
    {
        // Read once more, there is something: it is compared with EC2 by the next tick.
        looks.forget(cluster);
        findings = Findings { refresh: findings.refresh, ..Findings::default() };
    }
    if let Some(left) = uninstalled
        && Safeguard::LeftUnjudged.stops(left.keep_running())
    {
        findings = findings.while_leaving(left, &objects);
    }
    act_on(ports, settings, cluster, &facts, &objects, findings, &mut report).await?;
    Ok(report)
}

/// Does what was found to be due, and reports how claims and pools are.
async fn act_on<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    facts: &SweepFacts,
    objects: &ClusterObjects,
    findings: Findings,
    report: &mut Report,
) -> Result<(), HandleError> {
    let SweepFacts { read, shifted, uninstalled, now, .. } = facts;
    let Read { instances, listing: Listing { claims, unreadable }, sightings, classes, health, .. } = read;
    log_unreadable(unreadable, report);
    gauges::unreadable(report, objects, unreadable.len(), &findings.missing_pool);
    gauges::stuck(report, claims, shifted, *now);
    gauges::stalled(report, claims, &findings, shifted, *now);
    let index = Index::of(claims, unreadable, objects, instances);
    let executor = Executor { ports, cluster, index: &index, sightings, failure: None };
    let outcome = executor.run(findings, report).await;
    let stored_drift = store_drift(ports, &drift::find_drift(claims, objects, classes, instances, *now), report).await;
    let nodes = nodes_by_machine(objects);
    let facts = PoolFacts { objects, classes, claims, health, nodes: Some(&nodes) };
    let pools = report_pools(ports, settings, cluster, facts, shifted, report).await;
    // An ended uninstallation has deleted the records: without them every pool would be called not ready, to Karpenter as well.
    if uninstalled.is_none() || !classes.is_empty() {
        write_statuses(ports, cluster, &pools, objects, report).await;
    }
    if !report.decisions.is_empty() {
        ports.store().append(cluster, &report.decisions).await?;
    }
    outcome.and(stored_drift)
}

/// What is done in shadow mode too: reports functions that no longer serve the cluster, and polls zonal shifts.
async fn before_all<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    report: &mut Report,
) -> Result<ShiftedZones, HandleError> {
    let mut of_others = Report::default();
    let (others, shifted) =
        futures::join!(others::report_failing(ports, cluster, &mut of_others), zonal_shift::poll(ports, settings, cluster, report));
    report.absorb(of_others);
    others.and(shifted)
}

/// Goes on with the uninstallation of the cluster. Returns what becomes of its machines; `None` if it is not uninstalled.
async fn go_on_uninstalling<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    shifted: &ShiftedZones,
    report: &mut Report,
) -> Result<Option<LeftNodes>, HandleError> {
    let Some(stored) = ports.store().read::<Uninstall>(cluster, Uninstall::NAME).await? else { return Ok(None) };
    report.absorb(uninstall::continue_uninstall(ports, cluster, &stored.value, shifted).await?);
    Ok(Some(stored.value.nodes))
}

/// What a sweep compares with the objects of the cluster, as EC2 and the table have it.
struct Read {
    instances: Vec<Instance>,
    /// Those of them that fail EC2's checks; none while these are unavailable.
    statuses: Vec<InstanceStatus>,
    templates: Vec<String>,
    /// Whether EC2 was asked, and whether it listed all of this.
    asked_ec2: bool,
    ec2_listed_all: bool,
    listing: Listing,
    in_use: InUse,
    sightings: Vec<Stored<Sighting>>,
    classes: Vec<NodeClassRecord>,
    health: Vec<PoolHealth>,
}

/// All that a sweep compares with the objects of the cluster: these may be read twice.
struct SweepFacts {
    read: Read,
    /// The values of its sightings.
    known: Vec<Sighting>,
    blocks: Option<BlockEnds>,
    shifted: ShiftedZones,
    repair: bool,
    /// What becomes of the machines; `None` if the cluster is not uninstalled.
    uninstalled: Option<LeftNodes>,
    now: Timestamp,
}

impl SweepFacts {
    fn beside<'a>(&'a self, objects: &'a ClusterObjects, nodes: Freshness) -> SweepInput<'a> {
        let Read { instances, statuses, templates, listing: Listing { claims, unreadable }, in_use, classes, .. } = &self.read;
        SweepInput {
            claims,
            unreadable,
            objects,
            nodes,
            instances,
            index: Index::of(claims, unreadable, objects, instances),
            statuses,
            templates,
            in_use,
            sightings: &self.known,
            classes,
            blocks: self.blocks.as_ref(),
            shifted: &self.shifted,
            repair: self.repair,
            uninstalling: self.uninstalled.is_some(),
            now: self.now,
        }
    }
}

/// Reads what is compared, EC2 only as often as it may have something.
async fn read_as_due<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    freshness: Freshness,
    looks: &Looks,
    report: &mut Report,
) -> Result<(Read, ObjectsRead), HandleError> {
    if let Some(found) = looks::read_without_ec2(ports, cluster, freshness, looks).await? {
        report.count("ec2_not_asked");
        return Ok(found);
    }
    let begun = ports.clock().now();
    let (read, seen) = read_or_honour(ports, cluster, freshness, report).await?;
    looks.note(cluster, begun, &read, &seen.objects);
    Ok((read, seen))
}

/// Reads what is compared. While EC2 does not answer, what users have deleted is drained all the same.
async fn read_or_honour<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    freshness: Freshness,
    report: &mut Report,
) -> Result<(Read, ObjectsRead), HandleError> {
    let found = read(ports, cluster, freshness, report).await;
    if matches!(found, Err(HandleError::Cloud(_))) {
        without_ec2::sweep(ports, cluster).await;
    }
    found
}

/// Reads EC2, the claims, and then everything else at once.
async fn read<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    freshness: Freshness,
    report: &mut Report,
) -> Result<(Read, ObjectsRead), HandleError> {
    // Instances first: one that is launched while we read is then not seen without its claim.
    let cloud = ports.cloud();
    let (instances, templates) = futures::join!(cloud.of_cluster(cluster), cloud.launch_templates(cluster));
    let ec2_listed_all = templates.is_ok();
    let (instances, templates) = (instances?, without_ec2::templates(templates)?);
    let listing = ports.store().listing(cluster).await?;
    let store = ports.store();
    // Others are not checked.
    let running = instances.iter().filter(|instance| instance.state == InstanceState::Running);
    let running: Vec<InstanceId> = running.map(|instance| instance.id.clone()).collect();
    let (statuses, in_use, seen, sightings, classes, health) = futures::join!(
        failing(ports, &running, report),
        templates::in_use(ports, cluster, &listing.claims, &listing.unreadable),
        read_objects(ports, cluster, freshness),
        store.read_all::<Sighting>(cluster),
        store.read_all::<NodeClassRecord>(cluster),
        store.read_all::<PoolHealth>(cluster),
    );
    let classes = classes?.into_iter().map(|stored| stored.value).collect();
    let health = health?.into_iter().map(|stored| stored.value).collect();
    let (in_use, seen) = (in_use?, seen?);
    let sightings = sightings?;
    let read = Read { instances, statuses, templates, asked_ec2: true, ec2_listed_all, listing, in_use, sightings, classes, health };
    Ok((read, seen))
}

/// Logs the names of stored claims that cannot be read.
fn log_unreadable(claims: &[String], report: &mut Report) {
    if !claims.is_empty() {
        tracing::warn!(unreadable = ?claims, "claims cannot be read: orphans are not looked for");
        report.count("unreadable");
    }
}

/// How new Nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Newest,
    /// Those of an earlier look, where these will do.
    Kept,
}

/// The objects of the cluster, and how new its Nodes are.
struct ObjectsRead {
    objects: ClusterObjects,
    nodes: Freshness,
}

async fn read_objects<P: Rights>(ports: P, cluster: &ClusterName, freshness: Freshness) -> Result<ObjectsRead, HandleError> {
    let kept = if freshness == Freshness::Kept { ports.cluster().read_kept(cluster, Scope::Nodes).await? } else { None };
    match kept {
        Some(objects) => Ok(ObjectsRead { objects, nodes: Freshness::Kept }),
        None => Ok(ObjectsRead { objects: ports.cluster().read(cluster, Scope::Nodes, None).await?, nodes: Freshness::Newest }),
    }
}

impl ObjectsRead {
    /// The objects, and what is found in them. Nothing is done on the strength of old Nodes: where they show anything, new ones are read.
    async fn compared<P: Rights>(
        self,
        ports: P,
        cluster: &ClusterName,
        find: impl Fn(&ClusterObjects, Freshness) -> Findings,
    ) -> Result<(ClusterObjects, Findings), HandleError> {
        let found = find(&self.objects, self.nodes);
        if self.nodes == Freshness::Newest || found == Findings::default() {
            return Ok((self.objects, found));
        }
        let newest = ports.cluster().read(cluster, Scope::Nodes, None).await?;
        let found = find(&newest, Freshness::Newest);
        Ok((newest, found))
    }
}

/// Those whose statuses no other controller writes.
fn managed_pools(objects: &ClusterObjects) -> impl Iterator<Item = &NodePool> {
    objects.node_pools.iter().filter(|pool| pool.is_managed())
}

/// Reports how the managed pools are. Returns them with the statuses that they should have.
async fn report_pools<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    facts: PoolFacts<'_>,
    shifted: &ShiftedZones,
    report: &mut Report,
) -> Vec<NodePool> {
    let PoolFacts { objects, classes, claims, .. } = facts;
    let now = ports.clock().now();
    let pools: Vec<_> = managed_pools(objects).map(|pool| pool_status(pool, facts, now)).collect();
    gauges::pools(report, &pools, claims);
    offerings::report_offerings(ports, settings, cluster, (objects, classes, claims), shifted, report).await;
    pools
}

/// Writes the statuses of NodePools that changed. `refresh` does as well when the class changes; a failed write, and what there is no time
/// for, is left to the next tick.
async fn write_statuses<P: Rights>(ports: P, cluster: &ClusterName, wanted: &[NodePool], objects: &ClusterObjects, report: &mut Report) {
    let all = wanted.iter().zip(managed_pools(objects));
    let changed: Vec<(&NodePool, &NodePool)> = all.filter(|(wanted, pool)| wanted.status != pool.status).collect();
    write_pool_statuses(ports, cluster, &changed, report).await;
}

/// Results of EC2's status checks of machines. While they are unavailable the sweep continues without them.
async fn failing<P: Rights>(ports: P, machines: &[InstanceId], report: &mut Report) -> Vec<InstanceStatus> {
    ports.cloud().failing(machines).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "EC2's status checks are unavailable");
        report.count("checks_unseen");
        Vec::new()
    })
}

/// Stores drift conditions on claims, many at once; a claim that was changed meanwhile is checked again by the next sweep.
async fn store_drift<P: Rights>(ports: P, changed: &[(&Stored<Claim>, Claim)], report: &mut Report) -> Result<(), HandleError> {
    for some in changed.chunks(CONCURRENT_REQUESTS) {
        if !ports.clock().has_time_for(execute::TIME_PER_STEP) {
            report.hand_over();
            break;
        }
        let mut outcome = Ok(());
        for is_stored in concurrently(some.iter().map(|(claim, next)| store_drift_of(ports, claim, next))).await {
            match is_stored {
                Ok(true) => report.count("drift_noted"),
                Ok(false) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome?;
    }
    Ok(())
}

/// The same of one claim. False if it was changed meanwhile.
async fn store_drift_of<P: Rights>(ports: P, claim: &Stored<Claim>, next: &Claim) -> Result<bool, HandleError> {
    let Some(saved) = unless_conflict(save(ports.store(), claim, next.clone()).await)? else { return Ok(false) };
    write_mirror(ports.cluster(), &saved.value).await;
    Ok(true)
}
