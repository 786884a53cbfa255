//! Whether `schedule` and `refresh` still serve the cluster. A run that ends before it has printed anything cannot report that, and
//! failures that are too rare for an alarm of their own would never be reported.

use crate::Rights;
use whittle_claims::{Function, FunctionHealth, Revision, Stored};
use whittle_ports::{Clock, HandleError, RecordReader, Records, Report, metrics};
use whittle_units::ClusterName;

/// Emits which of them no longer serve the cluster.
pub(crate) async fn report_failing<P: Rights>(ports: P, cluster: &ClusterName, report: &mut Report) -> Result<(), HandleError> {
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
