//! Resources that Nodes do not report, because DRA drivers have them.

use super::over_sim::{owned, run_over, still};
use super::{claim, node, ready};
use futures::executor::block_on;
use std::sync::atomic::{AtomicU32, Ordering};
use whittle_api::ConditionStatus;
use whittle_api::conditions::{self, INITIALIZED};
use whittle_api::k8s::Pod;
use whittle_ports::{ClusterError, Scope, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor};
use whittle_units::{ClusterName, SignedDuration};

/// A pod that runs on the tests' Node, with an extended resource from a DRA driver.
fn with_device(resource: &str) -> Pod {
    let claimed = serde_json::json!({"requestMappings": [{"containerName": "c", "requestName": "r", "resourceName": resource}]});
    let pod = serde_json::json!({
        "metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "n"},
        "status": {"phase": "Succeeded", "extendedResourceClaimStatus": claimed},
    });
    serde_json::from_value(pod).unwrap()
}

/// The phase of a claim for `gpu` whose Node never reports one, once it has waited for so long and this pod has run there, and how often
/// pods were read.
fn without_device_plugin(waited: SignedDuration, pod: Option<Pod>) -> (&'static str, u32) {
    let mut simulation = still();
    let mut own = owned(claim(), "a");
    own.spec.startup_taints.clear();
    simulation.store(&own);
    let mut node = ready(node());
    node.status.allocatable.0.remove("gpu");
    simulation.create(node);
    assert_eq!(run_over(&simulation.ports()).counted("registered"), 1);
    simulation.run_for(waited);
    if let Some(pod) = pod {
        simulation.create(pod);
    }
    let ports = simulation.ports();
    let counting = InterceptedApiServer { ports: &ports, interceptor: PodReads::default() };
    block_on(crate::handle(counting.adapters(), &Settings::default(), &ClusterName::new("c"))).unwrap();
    let after = simulation.claim(&own.key);
    assert_eq!(after.deletion, None);
    let shown = conditions::find(&after.conditions, INITIALIZED).unwrap();
    assert_eq!(shown.status == ConditionStatus::True, after.phase.name() == "Initialized", "{shown:?}");
    assert!(shown.status == ConditionStatus::True || shown.reason == "ResourceNotRegistered", "{shown:?}");
    (after.phase.name(), counting.interceptor.0.into_inner())
}

/// How often the pods of a node were read.
#[derive(Default)]
struct PodReads(AtomicU32);

impl Interceptor for PodReads {
    async fn read(&self, _: &ClusterName, scope: Scope) -> Result<(), ClusterError> {
        if scope == Scope::Pods {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[test]
fn a_node_whose_pods_have_a_resource_from_a_dra_driver_is_initialized() {
    let seconds = SignedDuration::from_secs;
    let late = SignedDuration::from_mins(15) + seconds(30);
    for waited in [seconds(120), seconds(301), late] {
        assert_eq!(without_device_plugin(waited, Some(with_device("gpu"))), ("Initialized", 1), "{waited}");
    }
    assert_eq!(without_device_plugin(late, Some(with_device("nic"))), ("Registered", 1), "it is another resource");
    assert_eq!(without_device_plugin(late, None), ("Registered", 1));
    assert_eq!(without_device_plugin(seconds(60), Some(with_device("gpu"))), ("Registered", 0), "a device plugin may still be starting");
    assert_eq!(without_device_plugin(seconds(330), Some(with_device("gpu"))), ("Registered", 0), "not with every look");
}
