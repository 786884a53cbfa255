//! Whether `schedule` and `refresh` still serve the cluster. A run that ends before it has printed anything cannot report that, and
//! failures that are too rare for an alarm of their own would never be reported.

use crate::Rights;
use whittle_claims::{Function, FunctionHealth, Revision, Stored};
use whittle_ports::{Clock, HandleError, RecordReader, Records, Report, WriteError, metrics};
use whittle_units::{ClusterName, Timestamp};

/// Emits which of them no longer serve the cluster.
pub(crate) async fn report_failing<P: Rights>(ports: P, cluster: &ClusterName, report: &mut Report) -> Result<(), HandleError> {
    let known: Vec<Stored<FunctionHealth>> = ports.store().read_all(cluster).await?;
    let now = ports.clock().now();
    let of = |function: Function| known.iter().find(|stored| stored.value.function == function.name());
    let schedule = look_at(ports, cluster, of(Function::Schedule), now, report).await;
    if let Some(health) = schedule.filter(|health| health.is_silent(now)) {
        tracing::warn!(%cluster, well_at = %health.well_at, "schedule does not end well any more");
        report.gauge(metrics::ScheduleSilent, 1);
    }
    if let Some(failing) = of(Function::Refresh).map(|stored| &stored.value).filter(|health| health.has_failed_for_long(now)) {
        tracing::warn!(%cluster, failing_since = ?failing.failing_since, "refresh keeps failing");
        report.gauge(metrics::RefreshFails, 1);
    }
    Ok(())
}

/// The record of `schedule` with this look at it; `None` if `schedule` has just written another.
async fn look_at<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    known: Option<&Stored<FunctionHealth>>,
    now: Timestamp,
    report: &mut Report,
) -> Option<FunctionHealth> {
    let expected = known.map_or(Revision::ABSENT, |stored| stored.revision);
    let next = match known {
        Some(stored) => stored.value.seen(now),
        // It is waited for from now on.
        None => Some(FunctionHealth::well(Function::Schedule, now)),
    };
    let Some(next) = next else { return known.map(|stored| stored.value.clone()) };
    match ports.store().write(cluster, &next, expected).await {
        Ok(_) => Some(next),
        Err(error) if error.is_conflict() && known.is_some() => None,
        Err(_) => {
            report.count("health_not_kept");
            Some(next)
        }
    }
}
