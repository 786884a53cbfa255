//! The backends that other tests use start, answer and stop.

use std::net::TcpStream;
use std::path::Path;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::ministack::Ministack;

#[test]
fn ministack_starts_on_loopback_and_stops() {
    let Some(ministack) = Ministack::start() else { return };
    let process = Path::new("/proc").join(ministack.process().to_string());
    assert!(TcpStream::connect(("127.0.0.1", ministack.port())).is_ok());
    assert!(process.exists());
    drop(ministack);
    assert!(!process.exists());
}

#[test]
fn the_control_plane_schedules_a_pod_onto_a_fake_node() {
    let Some(cluster) = ControlPlane::start() else { return };
    let apply = |manifest: &str| {
        let folder = cluster.kubeconfig().with_file_name("manifest.yaml");
        std::fs::write(&folder, manifest).expect("the cluster's folder can be written");
        let status = cluster.kubectl().args(["apply", "-f"]).arg(&folder).status().expect("kubectl runs");
        assert!(status.success());
    };
    apply("{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}}");
    apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: p1, namespace: default}, \
         spec: {containers: [{name: c, image: fake}]}}",
    );
    let status = cluster
        .kubectl()
        .args(["wait", "pod/p1", "--for=jsonpath={.status.phase}=Running", "--timeout=60s"])
        .status()
        .expect("kubectl runs");
    assert!(status.success());
}
