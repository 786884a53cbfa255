//! Whether `schedule` and `refresh` go on serving the cluster: they cannot tell that they end before they have printed anything, and none of
//! their failures is told that comes too seldom for an alarm of its own.

use crate::Rights;
use whittle_claims::{Function, FunctionHealth, Revision, Stored};
use whittle_ports::{Clock, HandleError, RecordReader, Records, Report, metrics};
use whittle_units::ClusterName;

/// Emits that a function does not go on.
pub(crate) async fn tell<P: Rights>(ports: P, cluster: &ClusterName, report: &mut Report) -> Result<(), HandleError> {
    let known: Vec<Stored<FunctionHealth>> = ports.store().read_all(cluster).await?;
    let now = ports.clock().now();
    let of = |function: Function| known.iter().map(|stored| &stored.value).find(|health| health.function == function.name());
    match of(Function::Schedule) {
        Some(health) if health.is_silent(now) => {
            tracing::warn!(%cluster, well_at = %health.well_at, "schedule does not end well any more");
            report.gauge(metrics::ScheduleSilent, 1);
        }
        Some(_) => {}
        // It is waited for from now on.
        None => {
            let begun = FunctionHealth::well(Function::Schedule, now);
            if ports.store().write(cluster, &begun, Revision::ABSENT).await.is_err() {
                report.count("health_not_kept");
            }
        }
    }
    if let Some(failing) = of(Function::Refresh).filter(|health| health.has_failed_for_long(now)) {
        tracing::warn!(%cluster, failing_since = ?failing.failing_since, "refresh keeps failing");
        report.gauge(metrics::RefreshFails, 1);
    }
    Ok(())
}
