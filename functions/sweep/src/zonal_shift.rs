//! Zonal shifts of the cluster: polled, stored, and reported on the pools that they concern (aws 23).

use crate::Rights;
use std::collections::BTreeMap;
use whittle_api::ClusterObjects;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_claims::{NodeClassRecord, Revision, ShiftChange, ShiftedZones, Stored, ZoneShifts, ZoneTraffic};
use whittle_model::requirements::{from_labels, from_requirements};
use whittle_ports::{
    Clock, CloudErrorKind, ClusterEvent, ClusterRecord, HandleError, Involved, RecordReader, Records, Report, Settings, ZonalShifts,
    publish_event, unless_conflict,
};
use whittle_snapshot::shifted_zones;
use whittle_units::ClusterName;

/// Asks for the cluster's zonal shifts and stores them; returns the zones that are shifted now. A failed poll leaves what is stored as
/// it was and fails nothing else.
///
/// # Errors What is stored cannot be read: without it a machine of a shifted zone could be taken for gone.
pub(crate) async fn poll<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    report: &mut Report,
) -> Result<ShiftedZones, HandleError> {
    if !settings.zonal_shift {
        return Ok(ShiftedZones::default());
    }
    if let Err(error) = refresh(ports, cluster, report).await {
        tracing::warn!(%error, %cluster, "the cluster's zonal shifts are unknown: those that were known stay in force until they end");
        report.count("zonal_shifts_unseen");
    }
    shifted_zones(ports, settings, cluster).await
}

async fn refresh<P: Rights>(ports: P, cluster: &ClusterName, report: &mut Report) -> Result<(), HandleError> {
    let record = ports.store().read::<ClusterRecord>(cluster, ClusterRecord::NAME).await?;
    // `refresh` has not run yet, or not since the release that stores the ARN.
    let Some(arn) = record.map(|record| record.value.info.arn).filter(|arn| !arn.is_empty()) else {
        report.count("cluster_arn_unknown");
        return Ok(());
    };
    let answer = match ports.cloud().zone_shifts(&arn).await {
        // Without a registration there are no shifts, nor any that were known before it was taken back.
        Err(error) if error.kind == CloudErrorKind::NotFound => {
            tracing::warn!(%error, %cluster, "the cluster is not registered with Application Recovery Controller: it has no zonal shifts");
            report.count("not_registered_for_shifts");
            Vec::new()
        }
        answer => answer?,
    };
    let known = ports.store().read::<ZoneShifts>(cluster, ZoneShifts::NAME).await?;
    let next = ZoneShifts::after(known.as_ref().map(|known| &known.value), &answer, &names(ports, cluster).await?);
    let (before, revision) = known.map_or((ZoneShifts::default(), Revision::ABSENT), |Stored { value, revision }| (value, revision));
    if next != before {
        unless_conflict(ports.store().write(cluster, &next, revision).await)?;
    }
    Ok(())
}

/// Names of the zones in which classes have subnets, by id: which zone an id stands for differs between accounts.
async fn names<P: Rights>(ports: P, cluster: &ClusterName) -> Result<BTreeMap<String, String>, HandleError> {
    let classes = ports.store().read_all::<NodeClassRecord>(cluster).await?;
    let subnets = classes.into_iter().flat_map(|class| class.value.subnets);
    Ok(subnets.filter(|subnet| !subnet.zone_id.is_empty()).map(|subnet| (subnet.zone_id, subnet.zone)).collect())
}

/// Publishes an Event for each shift that has begun or ended on every pool that could launch in the zone. They are published before
/// that is stored: a run that dies in between repeats them.
pub(crate) async fn announce<P: Rights>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
    (objects, classes): (&ClusterObjects, &[NodeClassRecord]),
    report: &mut Report,
) -> Result<(), HandleError> {
    if !settings.zonal_shift {
        return Ok(());
    }
    let Some(known) = ports.store().read::<ZoneShifts>(cluster, ZoneShifts::NAME).await? else { return Ok(()) };
    let now = ports.clock().now();
    let (next, changes) = known.value.announce(now);
    if changes.is_empty() {
        return Ok(());
    }
    for event in events(&changes, &objects.node_pools, classes) {
        publish_event(ports.cluster(), cluster, &event).await;
    }
    report.count("zonal_shift_changes");
    unless_conflict(ports.store().write(cluster, &next, known.revision).await)?;
    Ok(())
}

/// The Events for changes, on the pools that they concern. Pure.
fn events(changes: &[ShiftChange], pools: &[NodePool], classes: &[NodeClassRecord]) -> Vec<ClusterEvent> {
    let concerned = |change: &ShiftChange| {
        let change = change.clone();
        pools.iter().filter(move |pool| pool.is_managed() && may_launch_in(pool, &change, classes))
    };
    let event = |change: &ShiftChange, pool: &NodePool| {
        let (zone, id) = (&change.zone, &change.zone_id);
        let about = Involved::object(pool);
        match change.now {
            ZoneTraffic::Shifted => {
                let message = format!("A zonal shift moves traffic away from zone {zone} ({id}): nothing is launched or terminated there");
                ClusterEvent::warning(about, "ZonalShiftActive", message)
            }
            ZoneTraffic::Normal => {
                ClusterEvent::normal(about, "ZonalShiftCleared", format!("The zonal shift away from zone {zone} ({id}) has ended"))
            }
        }
    };
    changes.iter().flat_map(|change| concerned(change).map(move |pool| event(change, pool))).collect()
}

/// Whether the pool's class has a subnet in the zone, and the pool allows the zone.
fn may_launch_in(pool: &NodePool, change: &ShiftChange, classes: &[NodeClassRecord]) -> bool {
    let class = &pool.spec.template.spec.node_class_ref.name;
    let Some(record) = NodeClassRecord::referenced(classes, class, pool.is_converted_provisioner()) else { return false };
    let allows = |key: &str, value: &str| allows(pool, key, value);
    record.subnets.iter().any(|subnet| subnet.zone_id == change.zone_id && allows(labels::ZONE, &subnet.zone))
        && allows(labels::ZONE_ID, &change.zone_id)
}

/// Whether neither requirements nor labels of the pool's template exclude the value.
fn allows(pool: &NodePool, key: &str, value: &str) -> bool {
    let template = &pool.spec.template;
    let mut wanted = from_requirements(&template.spec.requirements);
    wanted.add_all(&from_labels(&template.metadata.labels));
    wanted.get(key).is_none_or(|allowed| allowed.has(&value.to_owned()))
}
