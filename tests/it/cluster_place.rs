//! A real control plane as the contracts of the cluster's ports need it.

use serde_json::{Value, json};
use std::time::Duration;
use whittle_ports::ClusterEvent;
use whittle_ports::contracts::ClusterPlace;
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::client;
use whittle_units::{ClusterName, Timestamp};

/// The moment in which controllers work.
const MOMENT: Duration = Duration::from_millis(100);

/// The collections of the kinds that the contracts create or change.
const KINDS: &[(&str, &str)] = &[
    ("Node", "/api/v1/nodes"),
    ("Pod", "/api/v1/namespaces/default/pods"),
    ("Service", "/api/v1/namespaces/default/services"),
    ("PodTemplate", "/api/v1/namespaces/default/podtemplates"),
    ("Deployment", "/apis/apps/v1/namespaces/default/deployments"),
    ("DaemonSet", "/apis/apps/v1/namespaces/default/daemonsets"),
    ("ReplicaSet", "/apis/apps/v1/namespaces/default/replicasets"),
    ("StatefulSet", "/apis/apps/v1/namespaces/default/statefulsets"),
    ("PodDisruptionBudget", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"),
    ("NodePool", "/apis/karpenter.sh/v1/nodepools"),
    ("NodeClaim", "/apis/karpenter.sh/v1/nodeclaims"),
    ("NodeOverlay", "/apis/karpenter.sh/v1alpha1/nodeoverlays"),
    ("EC2NodeClass", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"),
    ("CapacityBuffer", "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"),
];
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn path_of(kind: &str) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).unwrap_or_else(|| panic!("no contract creates a {kind}")).1
}

/// The control plane, used by an administrator.
pub(crate) struct Place {
    admin: kube::Client,
    cluster: ClusterName,
}

impl Place {
    pub(crate) async fn new(plane: &ControlPlane, cluster: ClusterName) -> Self {
        Self { admin: client(plane, plane.token()).await, cluster }
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.body(body.map(Value::to_string).unwrap_or_default().into_bytes()).expect("it is a request");
        self.admin.request(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }
}

impl ClusterPlace for Place {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    fn now(&self) -> Timestamp {
        FixedClock::new().now
    }

    async fn create(&self, object: Value) {
        self.ask("POST", path_of(object["kind"].as_str().expect("it has a kind")), Some(&object)).await;
    }

    async fn delete(&self, kind: &'static str, _: &str, name: &str) {
        self.ask("DELETE", &format!("{}/{name}", path_of(kind)), None).await;
    }

    async fn change_claim(&self, name: &str, change: Value) {
        self.ask("PATCH", &format!("{}/{name}", path_of("NodeClaim")), Some(&change)).await;
    }

    async fn change_status(&self, kind: &'static str, name: &str, status: Value) {
        self.ask("PATCH", &format!("{}/{name}/status", path_of(kind)), Some(&json!({ "status": status }))).await;
    }

    async fn events(&self, reason: &str) -> Vec<ClusterEvent> {
        let list = self.ask("GET", &format!("/api/v1/events?fieldSelector=reason%3D{reason}"), None).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |event: &Value| {
            let about = &event["involvedObject"];
            ClusterEvent {
                api_version: text(&about["apiVersion"]),
                kind: text(&about["kind"]),
                namespace: text(&about["namespace"]),
                name: text(&about["name"]),
                uid: text(&about["uid"]),
                warning: event["type"] == "Warning",
                reason: text(&event["reason"]),
                message: text(&event["message"]),
            }
        };
        list["items"].as_array().expect("it is a list").iter().map(of).collect()
    }

    async fn run_karpenter(&self, runs: bool) {
        const NAME: &str = "karpenter-leader-election";
        if !runs {
            self.ask("DELETE", &format!("{LEASES}/{NAME}"), None).await;
            return;
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "namespace": "kube-system"},
            "spec": {"holderIdentity": "karpenter-0", "leaseDurationSeconds": 15, "renewTime": "2026-11-26T08:00:00.000000Z"},
        });
        self.ask("POST", LEASES, Some(&lease)).await;
    }

    async fn pass(&self) {
        // tidy: allow(sleep), because the controllers run in real time
        tokio::time::sleep(MOMENT).await;
    }
}
