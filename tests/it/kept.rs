//! What the adapter keeps between two looks and catches up by a watch is what a real API server lists.

use crate::cluster_api::Stage;
use std::fmt::Write as _;
use std::sync::Arc;
use whittle_api::ClusterObjects;
use whittle_ports::{ClusterReader, Scope};
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{apply, clusters, kubectl};
use whittle_units::SignedDuration;

/// Looks until nothing changed between the two that are compared.
const ATTEMPTS_MAX: usize = 10;
/// Followed kinds: pods, nodes, NodeClaims, CSINodes, budgets.
const KINDS: u64 = 5;
/// As many as are kept for longer than a minute.
const QUIET_NODES: usize = 20;

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
    let lists = kept.lists_read();
    assert!(lists.whole < 2 * KINDS, "each kind is listed once, or twice where its watch lagged: {lists:?}");
    assert!(lists.caught_up >= KINDS * 5, "{lists:?}");
}

/// What happens, how many seconds later it is looked again, whether what is kept will do then, and how it happens.
type QuietChange = (&'static str, i64, bool, fn(&ControlPlane));

fn quiet_changes() -> [QuietChange; 9] {
    [
        ("nothing", 60, true, |_| {}),
        ("an edited NodePool", 60, true, |plane| drop(kubectl(plane, &["annotate", "--overwrite", "nodepool", "default", "quiet=yes"]))),
        ("a heartbeat", 60, true, |plane| {
            drop(kubectl(plane, &["patch", "node", "quiet-00", "--subresource=status", "-p", &SERVES.replace("08:00", "08:05")]));
        }),
        ("nothing, after too long", 180, false, |_| {}),
        ("an annotation", 60, false, |plane| drop(kubectl(plane, &["annotate", "node", "quiet-01", "karpenter.sh/do-not-disrupt=true"]))),
        ("another Node in place of one", 60, false, |plane| {
            drop(kubectl(plane, &["delete", "node", "quiet-02"]));
            apply(plane, &nodes(&["quiet-other"]));
        }),
        ("one Node less", 60, false, |plane| drop(kubectl(plane, &["delete", "node", "quiet-03"]))),
        ("a pod", 60, false, |plane| apply(plane, &pods(0..1, "quiet"))),
        ("a budget", 60, false, |plane| drop(kubectl(plane, &["create", "pdb", "quiet", "--selector=app=quiet", "--min-available=1"]))),
    ]
}

/// A kubelet's heartbeat.
const SERVES: &str = r#"{"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2027-01-15T08:00:00Z"}]}}"#;

/// What is kept shows old Nodes only while nobody has changed anything that counts.
pub(crate) async fn a_quiet_look_is_old_only_in_what_it_may_be(stage: &Stage) {
    let plane = &stage.plane;
    let names: Vec<String> = (0..QUIET_NODES).map(|number| format!("quiet-{number:02}")).collect();
    apply(plane, &nodes(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    for name in &names {
        drop(kubectl(plane, &["patch", "node", name, "--subresource=status", "-p", SERVES]));
    }
    for (what, seconds, will_do, change) in quiet_changes() {
        let mut answers = Vec::new();
        // Controllers may change something too.
        for _ in 0..if will_do { ATTEMPTS_MAX } else { 1 } {
            let kept = clusters(plane);
            let at = async |seconds: i64| {
                let begun = FixedClock::new();
                kept.with_clock(Arc::new(FixedClock { now: begun.now.checked_add(SignedDuration::from_secs(seconds)).unwrap(), ..begun }))
            };
            let _ = at(0).await.read(&stage.name, Scope::All, None).await.expect("the API server answers");
            let first = at(0).await.read_kept(&stage.name, Scope::All).await.expect("the API server answers");
            change(plane);
            let then = at(seconds).await.read_kept(&stage.name, Scope::All).await.expect("the API server answers");
            answers.push(first.is_some() && then.is_some());
            let Some(seen) = then.filter(|_| first.is_some()) else { continue };
            assert_eq!(seen.nodes.iter().filter(|node| node.metadata.name.starts_with("quiet-")).count(), QUIET_NODES, "{what}");
            let is_edited = seen.node_pools.iter().any(|pool| pool.metadata.annotation("quiet") == Some("yes"));
            assert!(is_edited || what == "nothing", "{what}");
            break;
        }
        assert_eq!(answers.last(), Some(&will_do), "{what}: {}", kubectl(plane, &["get", "nodes"]));
        let whole = clusters(plane).read_kept(&stage.name, Scope::All).await.expect("the API server answers");
        assert!(whole.is_none(), "nothing is kept yet");
    }
    drop(kubectl(plane, &["delete", "pdb/quiet", "pod/kept-0", "--force", "--grace-period=0"]));
    let left = kubectl(plane, &["get", "nodes", "-o", "name"]);
    let left: Vec<&str> = left.lines().filter(|name| name.starts_with("node/quiet-")).collect();
    drop(kubectl(plane, &[&["delete"], &left[..]].concat()));
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
