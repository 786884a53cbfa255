//! Karpenter runs in the cluster. Two autoscalers for the same pools launch everything twice and terminate what the other one
//! needs: Whittle changes nothing there until it is alone, and reports it (ADR 0026).

use crate::Rights;
use whittle_api::ClusterObjects;
use whittle_ports::{ClusterEvent, Involved, Report, metrics, publish_event};
use whittle_units::ClusterName;

/// NodePools that get an Event; one would do, but users look at their own.
const EVENTS_MAX: usize = 10;

/// Reports that nothing is done for the cluster, and why. `object` is the evidence that Karpenter runs.
pub(crate) async fn refuse<P: Rights>(ports: P, cluster: &ClusterName, objects: &ClusterObjects, object: &str, report: &mut Report) {
    let message = format!(
        "Karpenter runs in this cluster ({object}): Whittle changes nothing here. Scale Karpenter to zero, or set the stack's \
         parameter Mode to shadow, to see what Whittle would do"
    );
    tracing::error!(%cluster, "{message}");
    report.count("held_by_karpenter");
    report.metric(metrics::HeldByKarpenter);
    for pool in objects.node_pools.iter().take(EVENTS_MAX) {
        let event = ClusterEvent::warning(Involved::object(pool), "KarpenterRuns", message.clone());
        publish_event(ports.cluster(), cluster, &event).await;
    }
}
