//! Everything compared with everything: what was lost is sent again, what expired ends, what belongs to nobody goes.
//!
//! Contradictions are acted on only when two sweeps, at least half a minute apart, saw them. Machines are never ended here:
//! a claim that names them is made or found, and `terminate` drains it.

mod act;
mod collect;
mod health;
mod judge;
#[cfg(test)]
mod tests;

use act::Act;
use judge::{Seen, judge};
use whittle_claims::{Sighting, Stored};
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, DecisionLog, Fleets, HandleError, Instances, Leases, Mirrors, Nodes, Queues, Records, Report, Scope,
    Settings, StatusWriter, World,
};
use whittle_units::ClusterName;

/// Sweeps one cluster.
pub async fn handle<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<Report, HandleError>
where
    S: ClaimStore + Records + Leases + DecisionLog,
    C: Instances + Fleets,
    K: ClusterReader + Mirrors + Nodes + StatusWriter,
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
        repair: settings.node_repair,
        now,
    });
    if !unreadable.is_empty() {
        tracing::warn!(?unreadable, "claims cannot be read: orphans are not looked for");
        report.count("unreadable");
    }
    let act = Act { world, cluster, claims: &claims, objects: &objects, sightings: &sightings, failure: None };
    let outcome = act.run(findings, &mut report).await;
    if !report.decisions.is_empty() {
        world.store.append(cluster, &report.decisions).await?;
    }
    outcome.map(|()| report)
}
