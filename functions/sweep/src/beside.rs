//! A Karpenter runs in the cluster. Two that decide for the same pools buy everything twice and end what the other one
//! needs: Whittle changes nothing there until it is alone, and says so (ADR 0026).

use crate::Rights;
use whittle_api::ClusterObjects;
use whittle_ports::{ClusterEvent, Involved, Report, StatusWriter, metrics};
use whittle_units::ClusterName;

/// NodePools that are told of it; one would do, but people look at their own.
const TOLD_MAX: usize = 10;

/// Says loudly that nothing is done for the cluster, and why. `object` shows that Karpenter runs.
pub(crate) async fn refuse<P: Rights>(ports: P, cluster: &ClusterName, objects: &ClusterObjects, object: &str, report: &mut Report) {
    let message = format!(
        "Karpenter runs in this cluster ({object}): Whittle changes nothing here. Scale Karpenter to zero, or set the stack's \
         parameter Mode to shadow, to see what Whittle would do"
    );
    tracing::error!(%cluster, "{message}");
    report.count("held_by_karpenter");
    report.metric(metrics::HeldByKarpenter);
    for pool in objects.node_pools.iter().take(TOLD_MAX) {
        let event = ClusterEvent::warning(Involved::object(pool), "KarpenterRuns", message.clone());
        // That somebody cannot be told stops nothing.
        let _ = ports.cluster().publish(cluster, &event).await;
    }
}
