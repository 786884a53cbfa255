//! What the adapter keeps between two looks and catches up by a watch is what a real API server lists.

use crate::cluster_api::Stage;
use std::fmt::Write as _;
use whittle_api::ClusterObjects;
use whittle_ports::{ClusterReader, Scope};
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{apply, clusters, kubectl};

/// Looks until nothing changed between the two that are compared.
const ATTEMPTS_MAX: usize = 10;
/// Followed kinds: pods, nodes, NodeClaims, CSINodes.
const KINDS: u64 = 4;

pub(crate) async fn a_kept_look_is_what_a_whole_list_says(stage: &Stage) {
    let plane = &stage.plane;
    let kept = clusters(plane);
    let look = async |of: &whittle_cluster::Clusters<_>| {
        let mut objects: ClusterObjects = of.read(&stage.name, Scope::All, None).await.expect("the API server answers");
        objects.sort();
        objects
    };
    let rounds: [fn(&ControlPlane); 6] = [
        |plane| apply(plane, &pods(0..40, "kept")),
        |plane| apply(plane, &nodes(&["kept-a", "kept-b"])),
        // Nothing changes in this round.
        |_| {},
        |plane| {
            apply(plane, &pods(20..60, "other"));
            drop(kubectl(plane, &["delete", "pod", "kept-3", "kept-4", "--grace-period=0", "--force"]));
            bind(plane, "kept-5", "kept-a");
        },
        |plane| {
            drop(kubectl(plane, &["label", "node", "kept-a", "zone=b"]));
            drop(kubectl(plane, &["delete", "node", "kept-b"]));
            apply(plane, "{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: kept-a}, spec: {drivers: []}}");
        },
        |plane| {
            drop(kubectl(plane, &["delete", "pods", "-l", "app in (kept, other)", "--grace-period=0", "--force"]));
            drop(kubectl(plane, &["delete", "csinode/kept-a", "node/kept-a"]));
        },
    ];
    for (number, change) in rounds.iter().enumerate() {
        change(plane);
        let mut equal = false;
        for _ in 0..ATTEMPTS_MAX {
            let whole = look(&clusters(plane)).await;
            let caught_up = look(&kept).await;
            equal = whole == look(&clusters(plane)).await;
            if equal {
                assert_eq!(caught_up.pods, whole.pods, "round {number}");
                assert_eq!(caught_up, whole, "round {number}");
                break;
            }
        }
        assert!(equal, "the cluster changed during each of {ATTEMPTS_MAX} looks");
    }
    let (whole, caught_up) = kept.looks();
    assert!(whole < 2 * KINDS, "each kind is listed once, or twice where its watch lagged: {whole}");
    assert!(caught_up >= KINDS * 5, "{caught_up}");
}

fn pods(numbers: std::ops::Range<usize>, app: &str) -> String {
    numbers.fold(String::new(), |mut all, number| {
        let containers = "containers: [{name: c, image: fake, resources: {requests: {cpu: 10m}}}]";
        let metadata = format!("metadata: {{name: kept-{number}, namespace: default, labels: {{app: {app}}}}}");
        let _ = writeln!(all, "{{apiVersion: v1, kind: Pod, {metadata}, spec: {{schedulerName: nobody, {containers}}}}}\n---");
        all
    })
}

fn nodes(names: &[&str]) -> String {
    names.iter().fold(String::new(), |mut all, name| {
        let _ = writeln!(all, "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, spec: {{unschedulable: true}}}}\n---");
        all
    })
}

/// Binds a pod to a node, as the scheduler does.
fn bind(plane: &ControlPlane, pod: &str, node: &str) {
    let file = std::env::temp_dir().join(format!("{pod}-{}.json", std::process::id()));
    let target = format!(r#"{{"apiVersion":"v1","kind":"Node","name":"{node}"}}"#);
    let binding = format!(r#"{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"{pod}"}},"target":{target}}}"#);
    std::fs::write(&file, binding).expect("the folder for temporary files can be written");
    let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
    drop(kubectl(plane, &["create", "--raw", &path, "-f", &file.to_string_lossy()]));
    std::fs::remove_file(file).expect("it is there");
}
