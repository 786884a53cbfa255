//! Everything compared with everything: what was lost is sent again, what expired ends, what belongs to nobody goes.
//!
//! Contradictions are acted on only when two sweeps, at least half a minute apart, saw them. Machines are never ended here:
//! a claim that names them is made or found, and `terminate` drains it.

mod judge;
#[cfg(test)]
mod tests;

use judge::{Ending, Findings, Seen, judge};
use whittle_api::labels;
use whittle_claims::{
    Claim, ClaimKey, ClaimSpec, DecisionKind, Deletion, DeletionReason, Doorbell, Event, Lease, Machine, Phase, Sighting, Stored, mirror,
    step,
};
use whittle_ec2::instance::Instance;
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, DecisionLog, Fleets, HandleError, Instances, Leases, Mirrors, NodePatch, Nodes, Queues, Records,
    Report, Scope, Settings, StoreError, World, save,
};
use whittle_units::{ClaimName, ClusterName, Price, Resources, SignedDuration, Timestamp};

/// Making a claim for an orphan takes a moment under the cluster's lease.
const LEASE: SignedDuration = SignedDuration::from_secs(10);
/// Mirrors written in one run; the rest follows with the next tick.
const MIRRORS_PER_RUN: usize = 200;

/// Sweeps one cluster.
pub async fn handle<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Report, HandleError>
where
    S: ClaimStore + Records + Leases + DecisionLog,
    C: Instances + Fleets,
    K: ClusterReader + Mirrors + Nodes,
    Q: Queues,
    T: Clock,
{
    let mut report = Report::default();
    if settings.shadow {
        return Ok(report);
    }
    // Instances first: one that is launched while we read is then not seen without the claim that names it.
    let instances = world.cloud.of_cluster(cluster).await?;
    let templates = world.cloud.launch_templates(cluster).await?;
    let claims = world.store.list(cluster).await?;
    let unreadable = world.store.unreadable(cluster).await?;
    let objects = world.cluster.read(cluster, Scope::Nodes, None).await?;
    let sightings: Vec<Stored<Sighting>> = world.store.read_all::<Sighting>(cluster).await?;
    let known: Vec<Sighting> = sightings.iter().map(|stored| stored.value.clone()).collect();
    let now = world.clock.now();
    let findings = judge(&Seen {
        claims: &claims,
        unreadable: &unreadable,
        objects: &objects,
        instances: &instances,
        templates: &templates,
        sightings: &known,
        now,
    });
    if !unreadable.is_empty() {
        tracing::warn!(?unreadable, "claims cannot be read: orphans are not looked for");
        report.count("unreadable");
    }
    let outcome = act(world, cluster, &claims, &objects, findings, &sightings, &mut report).await;
    if !report.decisions.is_empty() {
        world.store.append(cluster, &report.decisions).await?;
    }
    outcome.map(|()| report)
}

async fn act<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    claims: &[Stored<Claim>],
    objects: &whittle_api::ClusterObjects,
    findings: Findings,
    sightings: &[Stored<Sighting>],
    report: &mut Report,
) -> Result<(), HandleError>
where
    S: ClaimStore + Records + Leases,
    C: Fleets,
    K: Mirrors + Nodes,
    Q: Queues,
    T: Clock,
{
    let find = |name: &ClaimName| claims.iter().find(|claim| claim.value.key.name == *name);
    let mut freed = false;
    for ending in &findings.end {
        if let Some(claim) = find(&ending.claim) {
            freed |= end(world, claim, ending, report).await?;
        }
    }
    if freed {
        world.queues.ring(Doorbell::Schedule { cluster: cluster.clone() }, SignedDuration::ZERO).await?;
    }
    if !findings.launch.is_empty() {
        report.count("launches_sent_again");
        world.queues.ring(Doorbell::Launch { cluster: cluster.clone(), claims: findings.launch }, SignedDuration::ZERO).await?;
    }
    for claim in findings.terminate {
        report.count("endings_sent_again");
        world.queues.ring(Doorbell::Terminate { cluster: cluster.clone(), claim }, SignedDuration::ZERO).await?;
    }
    for name in findings.mirrors.iter().take(MIRRORS_PER_RUN) {
        let Some(claim) = find(name) else { continue };
        let shown = world.cluster.apply_mirror(cluster, &mirror(&claim.value)).await.is_ok();
        report.count(if shown { "mirrors_applied" } else { "mirrors_failed" });
    }
    for instance in &findings.orphans {
        collect(world, cluster, claims, objects, instance, report).await?;
    }
    for name in &findings.release_mirrors {
        world.cluster.release_mirror(cluster, name).await?;
        report.count("mirrors_released");
    }
    for name in &findings.release_nodes {
        let patch = NodePatch { remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()), ..NodePatch::default() };
        world.cluster.patch_node(cluster, name, "", &patch).await?;
        report.count("nodes_released");
    }
    for name in &findings.delete_templates {
        if world.cloud.delete_launch_template(name).await.is_ok() {
            report.count("templates_deleted");
        }
    }
    remember(world, cluster, &findings.note, &findings.forget, sightings).await
}

/// Marks a claim and rings for its end. Returns whether its pods have to be planned anew.
async fn end<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    claim: &Stored<Claim>,
    ending: &Ending,
    report: &mut Report,
) -> Result<bool, HandleError>
where
    S: ClaimStore,
    K: Mirrors,
    Q: Queues,
    T: Clock,
{
    let now = world.clock.now();
    let deletion = claim.value.deletion_for(ending.reason, ending.message.clone(), now);
    let next = step(&claim.value, &Event::DeletionAsked(deletion), now)?;
    let ended = match save(world.store, claim, next).await {
        Ok(ended) => ended,
        // Moved on meanwhile: the next sweep looks again.
        Err(HandleError::Store(StoreError::Conflict { .. })) => return Ok(false),
        Err(error) => return Err(error),
    };
    let key = ended.value.key.clone();
    report.decide(now, DecisionKind::Disrupted, format!("nodeclaim/{}", key.name), ending.message.clone());
    report.count("ended");
    if let Some(reason) = metric_reason(ending.reason) {
        let capacity_type = claim.value.machine().map_or("", |machine| machine.capacity_type.as_str());
        let labels = [
            ("reason", reason),
            ("nodepool", &claim.value.spec.node_pool),
            ("capacity_type", capacity_type),
            ("consolidation_policy", ""),
            ("termination_mode", claim.value.termination_mode()),
        ];
        report.metric("karpenter_nodeclaims_disrupted_total", labels);
    }
    world.queues.ring(Doorbell::Terminate { cluster: key.cluster.clone(), claim: key.name }, SignedDuration::ZERO).await?;
    let _ = world.cluster.apply_mirror(&key.cluster, &mirror(&ended.value)).await;
    Ok(true)
}

/// Here a lost instance was found by comparing, not by a notice.
const fn metric_reason(reason: DeletionReason) -> Option<&'static str> {
    match reason {
        DeletionReason::InstanceGone => Some("garbage_collected"),
        other => other.metric_reason(),
    }
}

/// Gives an orphan a claim that is to end: the one that it came for, if that has ended without it, else one of its own.
async fn collect<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    claims: &[Stored<Claim>],
    objects: &whittle_api::ClusterObjects,
    instance: &Instance,
    report: &mut Report,
) -> Result<(), HandleError>
where
    S: ClaimStore + Leases,
    Q: Queues,
    T: Clock,
{
    let now = world.clock.now();
    let ended_without = |claim: &&Stored<Claim>| {
        instance.tags.get(labels::TAG_NODE_CLAIM).is_some_and(|name| name == claim.value.key.name.as_str()) && !claim.value.is_live()
    };
    let machine = machine(instance);
    let name = if let Some(claim) = claims.iter().find(ended_without) {
        let next = step(&claim.value, &Event::FleetAnswered(machine), now)?;
        if next.machine().is_none() {
            // The claim says that this machine has ended, EC2 that it runs: a claim of its own asks again.
            adopt(world, cluster, objects, instance, now).await?
        } else {
            save(world.store, claim, next).await?;
            claim.value.key.name.clone()
        }
    } else {
        adopt(world, cluster, objects, instance, now).await?
    };
    let message = format!("instance {} belongs to no claim and was seen twice", instance.id);
    report.decide(now, DecisionKind::Collected, format!("nodeclaim/{name}"), message);
    report.count("collected");
    world.queues.ring(Doorbell::Terminate { cluster: cluster.clone(), claim: name }, SignedDuration::ZERO).await?;
    Ok(())
}

/// A claim for a machine that has none; it is to end from its beginning.
async fn adopt<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    objects: &whittle_api::ClusterObjects,
    instance: &Instance,
    now: Timestamp,
) -> Result<ClaimName, HandleError>
where
    S: ClaimStore + Leases,
    T: Clock,
{
    let name = ClaimName::new(format!("orphan-{}", instance.id));
    let spec = ClaimSpec { node_pool: instance.tags.get(labels::NODE_POOL).cloned().unwrap_or_default(), ..ClaimSpec::default() };
    let mut claim = Claim::planned(ClaimKey { cluster: cluster.clone(), name: name.clone() }, world.clock.unique(), spec, now);
    let machine = machine(instance);
    let node = objects.nodes.iter().find(|node| node.spec.provider_id == machine.provider_id.as_str());
    claim.phase = Phase::Draining { machine, node_name: node.map(|node| node.metadata.name.clone()), since: now };
    claim.deletion = Some(Deletion {
        reason: DeletionReason::RolledBack,
        at: now,
        deadline: None,
        message: "the instance belonged to no claim".to_owned(),
    });
    let lease: Lease = world.store.acquire(cluster, &world.clock.unique(), now, LEASE).await?;
    let created = world.store.create(&lease, &claim).await;
    let _ = world.store.release(&lease).await;
    match created {
        // A sweep before us made it; its doorbell may have been lost.
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(name),
        Err(error) => Err(error.into()),
    }
}

/// A machine that is only known to be ended.
fn machine(instance: &Instance) -> Machine {
    Machine {
        instance_id: instance.id.clone(),
        provider_id: instance.provider_id(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        capacity_type: instance.capacity_type.clone(),
        image_id: instance.image_id.clone(),
        price: Price::ZERO,
        capacity: Resources::new(),
        allocatable: Resources::new(),
        labels: std::collections::BTreeMap::new(),
        launched_at: instance.launched_at,
    }
}

/// Keeps what was seen for the next sweep, and drops what is not so any more.
async fn remember<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    note: &[Sighting],
    forget: &[String],
    known: &[Stored<Sighting>],
) -> Result<(), HandleError>
where
    S: Records,
{
    for sighting in note {
        let revision = known
            .iter()
            .find(|stored| stored.value.subject == sighting.subject)
            .map_or(whittle_claims::Revision::ABSENT, |stored| stored.revision);
        match world.store.write(cluster, sighting, revision).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for stored in known.iter().filter(|stored| forget.contains(&stored.value.subject)) {
        match world.store.remove::<Sighting>(cluster, &stored.value.subject, stored.revision).await {
            Ok(()) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
