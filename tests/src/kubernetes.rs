//! The cluster adapter on a real control plane.

use crate::clock::FixedClock;
use crate::control_plane::ControlPlane;
use base64::Engine;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use whittle_api::legacy::{ConvertOptions, Purpose};
use whittle_cluster::Clusters;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{CloudError, ClusterAccess};
use whittle_units::ClusterName;

/// Our CRDs from `infra/crds`.
pub const CRDS: [&str; 5] = [
    include_str!("../../infra/crds/autoscaling.x-k8s.io_capacitybuffers.yaml"),
    include_str!("../../infra/crds/karpenter.k8s.aws_ec2nodeclasses.yaml"),
    include_str!("../../infra/crds/karpenter.sh_nodeclaims.yaml"),
    include_str!("../../infra/crds/karpenter.sh_nodeoverlays.yaml"),
    include_str!("../../infra/crds/karpenter.sh_nodepools.yaml"),
];

/// The control plane's endpoint and credentials, as EKS would provide them.
pub struct TestAccess {
    endpoint: String,
    authority: String,
    token: String,
}

impl ClusterAccess for TestAccess {
    async fn endpoint(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        Ok(ClusterInfo {
            name: cluster.clone(),
            endpoint: self.endpoint.clone(),
            certificate_authority: self.authority.clone(),
            ..ClusterInfo::default()
        })
    }

    async fn bearer_token(&self, _cluster: &ClusterName) -> Result<String, CloudError> {
        Ok(self.token.clone())
    }
}

/// The adapter, with all rights on the control plane.
///
/// # Panics
///
/// When the control plane's certificate cannot be read.
#[must_use]
pub fn clusters(control_plane: &ControlPlane) -> Clusters<TestAccess> {
    clusters_as(control_plane, control_plane.token())
}

/// The adapter with another token.
///
/// # Panics
///
/// As [`clusters`].
#[must_use]
pub fn clusters_as(control_plane: &ControlPlane, token: &str) -> Clusters<TestAccess> {
    clusters_at(control_plane, control_plane.server(), token)
}

/// The same through another address of the API server.
///
/// # Panics
///
/// As [`clusters`].
#[must_use]
pub fn clusters_at(control_plane: &ControlPlane, address: &str, token: &str) -> Clusters<TestAccess> {
    let pem = std::fs::read(control_plane.ca()).expect("the control plane wrote its certificate");
    let access = TestAccess {
        endpoint: address.to_owned(),
        authority: base64::engine::general_purpose::STANDARD.encode(pem),
        token: token.to_owned(),
    };
    Clusters::new(access, ConvertOptions::new(Purpose::OnRead), Arc::new(FixedClock::new()))
}

/// A client for requests of any kind.
///
/// # Panics
///
/// When the control plane's certificate cannot be read.
pub async fn client(control_plane: &ControlPlane, token: &str) -> kube::Client {
    let text = serde_json::json!({
        "clusters": [{"name": "c", "cluster": {"server": control_plane.server(), "certificate-authority": control_plane.ca()}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text.to_string()).expect("JSON is YAML");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await;
    kube::Client::try_from(config.expect("it is complete")).expect("it has a client")
}

/// `kubectl apply` of a manifest.
///
/// # Panics
///
/// When it is refused.
pub fn apply(control_plane: &ControlPlane, manifest: &str) {
    let mut kubectl =
        control_plane.kubectl().args(["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("kubectl runs");
    kubectl.stdin.take().expect("its input is a pipe").write_all(manifest.as_bytes()).expect("kubectl reads");
    assert!(kubectl.wait().expect("kubectl ends").success(), "{manifest}");
}

/// Creates our CRDs, and waits until they are served.
///
/// # Panics
///
/// When they are refused, or not served in time.
pub fn install_crds(control_plane: &ControlPlane) {
    for crd in CRDS {
        apply(control_plane, crd);
    }
    await_crds(control_plane);
}

/// Waits until all CRDs are served.
///
/// # Panics
///
/// When they are not in time.
pub fn await_crds(control_plane: &ControlPlane) {
    let _ = kubectl(control_plane, &["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
}

/// The output of `kubectl` with these arguments.
///
/// # Panics
///
/// When it fails.
#[must_use]
pub fn kubectl(control_plane: &ControlPlane, arguments: &[&str]) -> String {
    let output = control_plane.kubectl().args(arguments).output().expect("kubectl runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
