//! What is kept between looks and brought up to date, against an API server with a history, whose watches may lag.

use super::{Access, access_to, clusters};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_ports::{ClusterReader, Scope};

/// Name and version of each object.
type Seen = BTreeSet<(String, String)>;

/// A kind that is followed: its collection, an object of it with this metadata and a number by chance, and its objects in a look.
#[derive(Clone, Copy)]
struct FollowedKind {
    path: &'static str,
    object: fn(Value, u64) -> Value,
    found: fn(&ClusterObjects) -> Vec<&ObjectMeta>,
}

const PODS: FollowedKind = FollowedKind {
    path: "/api/v1/pods",
    object: |metadata, number| {
        let node = if number == 0 { "" } else { "n" };
        json!({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Pending"}})
    },
    found: |objects| objects.pods.iter().map(|pod| &pod.metadata).collect(),
};

const OTHERS: [FollowedKind; 4] = [
    FollowedKind {
        path: "/api/v1/nodes",
        object: |metadata, number| json!({"metadata": metadata, "spec": {"unschedulable": number == 0}}),
        found: |objects| objects.nodes.iter().map(|node| &node.metadata).collect(),
    },
    FollowedKind {
        path: "/apis/policy/v1/poddisruptionbudgets",
        object: |metadata, number| json!({"metadata": metadata, "status": {"disruptionsAllowed": number}}),
        found: |objects| objects.disruption_budgets.iter().map(|budget| &budget.metadata).collect(),
    },
    FollowedKind {
        path: "/apis/storage.k8s.io/v1/csinodes",
        object: |metadata, number| json!({"metadata": metadata, "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": number}}]}}),
        found: |objects| objects.csi_nodes.iter().map(|node| &node.metadata).collect(),
    },
    FollowedKind {
        path: "/apis/karpenter.sh/v1/nodeclaims",
        object: |metadata, number| {
            // One of three was written as v1beta1, which has no group.
            let group = if number == 0 { Value::Null } else { "karpenter.k8s.aws".into() };
            let mut class = json!({"kind": "EC2NodeClass", "name": "default"});
            if !group.is_null() {
                class["group"] = group;
            }
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": {"requirements": [], "nodeClassRef": class}})
        },
        found: |objects| objects.node_claims.iter().map(|claim| &claim.metadata).collect(),
    },
];

/// Looked at by node, and not with everything else.
const ATTACHMENTS: FollowedKind = FollowedKind {
    path: "/apis/storage.k8s.io/v1/volumeattachments",
    object: |metadata, number| {
        let node = if number == 0 { "other" } else { "n" };
        json!({"metadata": metadata, "spec": {"nodeName": node, "source": {"persistentVolumeName": "pv"}}})
    },
    found: |objects| objects.volume_attachments.iter().map(|one| &one.metadata).collect(),
};

struct Pods {
    kind: FollowedKind,
    version: u64,
    by_name: BTreeMap<String, Value>,
    history: Vec<(u64, &'static str, Value)>,
    /// What there was at each version.
    states: BTreeMap<u64, Seen>,
    /// Watches from before this version are refused.
    compacted: u64,
    /// The last changes, which watches do not tell.
    lag: usize,
    /// Pods change while requests are answered.
    is_busy: bool,
    /// Connections break.
    is_down: bool,
    /// Instead of changes, a watch says this.
    says: Option<&'static str>,
    /// The server does not know how many objects there are.
    counts_nothing: bool,
    /// There are Nodes, which do not change, and all other kinds are served without objects.
    has_nodes: bool,
    /// The collection whose lists fail, after what else was asked for at the same time was answered.
    refuses: Option<&'static str>,
    random: u64,
    whole_lists: usize,
}

impl Pods {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn change(&mut self) {
        // Other kinds have changes too.
        self.version += 1 + self.random(3);
        let name = format!("p{}", self.random(12));
        let version = self.version.to_string();
        let number = self.random(3);
        let metadata = json!({"name": name, "namespace": "a", "resourceVersion": version, "labels": {"at": version}});
        let labels = if self.random(10) == 0 { json!([]) } else { metadata["labels"].clone() };
        let mut pod = (self.kind.object)(metadata, number);
        pod["metadata"]["labels"] = labels;
        let kind = match (self.by_name.contains_key(&name), self.random(4)) {
            (true, 0) => "DELETED",
            (true, _) => "MODIFIED",
            (false, _) => "ADDED",
        };
        if kind == "DELETED" {
            self.by_name.remove(&name);
        } else {
            self.by_name.insert(name, pod.clone());
        }
        self.history.push((self.version, kind, pod));
        self.states.insert(self.version, self.seen());
    }

    fn seen(&self) -> Seen {
        let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.by_name.values().map(|pod| (text(pod, "name"), text(pod, "resourceVersion"))).collect()
    }

    /// Names and versions of the readable pods without a node.
    fn waiting(&self) -> Seen {
        let waits = |pod: &Value| pod["spec"]["nodeName"] == "" && pod["metadata"]["labels"].is_object();
        let all = self.by_name.values().filter(|pod| waits(pod));
        all.map(|pod| (pod["metadata"]["name"].to_string(), pod["metadata"]["resourceVersion"].to_string())).collect()
    }
}

/// A server, of which each request has a thread.
#[derive(Clone)]
struct History(Arc<Mutex<Pods>>);

impl History {
    fn start(seed: u64) -> (Self, String) {
        Self::start_with(PODS, seed)
    }

    /// A server that has objects of this kind alone.
    fn start_with(kind: FollowedKind, seed: u64) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let mut pods = Pods {
            kind,
            version: 100,
            by_name: BTreeMap::new(),
            history: Vec::new(),
            states: BTreeMap::from([(0, Seen::new())]),
            compacted: 0,
            lag: 0,
            is_busy: false,
            is_down: false,
            says: None,
            counts_nothing: false,
            has_nodes: false,
            refuses: None,
            random: seed,
            whole_lists: 0,
        };
        (0..20).for_each(|_| pods.change());
        let history = Self(Arc::new(Mutex::new(pods)));
        let served = history.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let served = served.clone();
                std::thread::spawn(move || served.answer(&stream.expect("a connection")));
            }
        });
        (history, url)
    }

    fn pods(&self) -> MutexGuard<'_, Pods> {
        self.0.lock().expect("the lock is not poisoned")
    }

    fn answer(&self, mut stream: &TcpStream) {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
        let Some(request) = lines.next() else { return };
        lines.for_each(drop);
        if self.pods().is_down {
            return;
        }
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let kind = self.pods().kind;
        let body = match path.strip_prefix(kind.path).and_then(|rest| rest.strip_prefix('?')) {
            Some(query) if query.contains("watch=true") => return self.watch(stream, query),
            Some(query) => self.list(query),
            None if self.pods().refuses.is_some_and(|refused| path.starts_with(refused)) => {
                std::thread::sleep(Duration::from_millis(300)); // tidy: allow(sleep), because other requests are to be answered before
                None
            }
            None if self.pods().has_nodes && path.contains("watch=true") => {
                let _ = write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                return std::thread::sleep(Duration::from_secs(1)); // tidy: allow(sleep), because a watch stays open
            }
            None => self.pods().has_nodes.then(|| unchanging(&path)),
        };
        let missing = if self.pods().refuses.is_some() { 403 } else { 404 };
        let (code, body) = body.map_or((missing, "{}".to_owned()), |body| (200, body.to_string()));
        let _ = write!(stream, "HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    }

    fn list(&self, query: &str) -> Option<Value> {
        let mut pods = self.pods();
        if pods.is_busy && pods.random(2) == 0 {
            pods.change();
        }
        let version = pods.version.to_string();
        let items: Vec<&Value> = pods.by_name.values().collect();
        if query == "limit=1" {
            let left = if pods.counts_nothing { Value::Null } else { (items.len().max(1) - 1).into() };
            let token = if items.len() > 1 { "next" } else { "" };
            let metadata = json!({"resourceVersion": version, "continue": token, "remainingItemCount": left});
            let first = items.first().map_or(Value::Null, |first| json!([first]));
            return Some(json!({"metadata": metadata, "items": first}));
        }
        if query.contains("fieldSelector=spec.nodeName%3D%2C") {
            let waiting: Vec<&&Value> = items.iter().filter(|pod| pod["spec"]["nodeName"] == "").collect();
            return Some(json!({"metadata": {"resourceVersion": version}, "items": waiting}));
        }
        let list = json!({"metadata": {"resourceVersion": version}, "items": items});
        pods.whole_lists += 1;
        Some(list)
    }

    fn watch(&self, mut stream: &TcpStream, query: &str) {
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).and_then(|version| version.parse().ok());
        let mut since: u64 = since.expect("a watch has a version");
        if since < self.pods().compacted {
            let _ = write!(stream, "HTTP/1.1 410 Gone\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            return;
        }
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        if let Some(line) = self.pods().says {
            let _ = write!(stream, "{:x}\r\n{line}\r\n0\r\n\r\n", line.len());
            return;
        }
        for _ in 0..200 {
            let told: Vec<(u64, &str, Value)> = {
                let pods = self.pods();
                let known = pods.history.len().saturating_sub(pods.lag);
                pods.history[..known].iter().filter(|(version, ..)| *version > since).cloned().collect()
            };
            for (version, kind, mut pod) in told {
                pod["metadata"]["resourceVersion"] = version.to_string().into();
                let line = json!({"type": kind, "object": pod}).to_string() + "\n";
                if write!(stream, "{:x}\r\n{line}\r\n", line.len()).is_err() {
                    return;
                }
                since = version;
            }
            std::thread::sleep(Duration::from_millis(5)); // tidy: allow(sleep), because a watch stays open
        }
    }
}

/// The list of a kind whose objects do not change: there are twenty Nodes.
fn unchanging(path: &str) -> Value {
    let node = |number: usize| {
        let metadata = json!({"name": format!("n{number}"), "uid": format!("u{number}"), "resourceVersion": "7"});
        json!({"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let all = if path.starts_with("/api/v1/nodes?") { 20 } else { 0 };
    let is_counted = path.ends_with("?limit=1") && all > 0;
    let items: Vec<Value> = (0..if is_counted { 1 } else { all }).map(node).collect();
    let left = if is_counted { (all - 1).into() } else { Value::Null };
    let token = if is_counted { "next" } else { "" };
    json!({"metadata": {"resourceVersion": "100", "continue": token, "remainingItemCount": left}, "items": items})
}

fn seen(objects: &ClusterObjects) -> Seen {
    seen_of(PODS, objects)
}

fn seen_of(kind: FollowedKind, objects: &ClusterObjects) -> Seen {
    let odd = objects.unreadable.iter().map(|odd| &odd.metadata);
    let all = (kind.found)(objects).into_iter().chain(odd);
    all.map(|meta| (meta.name.clone(), meta.resource_version.clone())).collect()
}

async fn look(clusters: &crate::Clusters<super::Shared>) -> ClusterObjects {
    clusters.read(&"demo".into(), Scope::All, None).await.expect("the server answers")
}

#[tokio::test]
async fn what_is_kept_is_what_a_whole_list_says_at_some_time_of_the_look() {
    check_against_whole_lists(PODS, 0..12).await;
}

#[tokio::test]
async fn so_it_is_of_every_other_kind_that_is_followed() {
    for kind in OTHERS {
        check_against_whole_lists(kind, 0..6).await;
    }
}

async fn check_against_whole_lists(kind: FollowedKind, seeds: std::ops::Range<u64>) {
    let (mut looks, mut whole) = (0, 0);
    for seed in seeds {
        let (history, url) = History::start_with(kind, seed);
        let clusters = clusters(&access_to(&[&url]));
        history.pods().is_busy = seed % 2 == 0;
        for _ in 0..12 {
            let changes = history.pods().random(6);
            (0..changes).for_each(|_| history.pods().change());
            let from = history.pods().version;
            let found = seen_of(kind, &look(&clusters).await);
            let pods = history.pods();
            let mut then = pods.states.range(..=from).next_back().into_iter().chain(pods.states.range(from..));
            assert!(then.any(|(_, state)| *state == found), "{}, seed {seed}: {found:?}", kind.path);
            looks += 1;
        }
        whole += history.pods().whole_lists;
    }
    assert!(whole * 4 < looks, "{}: {whole} of {looks} looks read the whole list", kind.path);
}

#[tokio::test]
async fn attachments_of_a_node_that_is_drained_are_caught_up() {
    let (history, url) = History::start_with(ATTACHMENTS, 3);
    let clusters = clusters(&access_to(&[&url]));
    for look in 0..6 {
        let objects = clusters.read(&"demo".into(), Scope::Volumes, Some("n")).await.expect("the server answers");
        let mut pods = history.pods();
        let text = |one: &Value, field: &str| one["metadata"][field].as_str().unwrap_or_default().to_owned();
        let of_node = pods.by_name.values().filter(|one| one["spec"]["nodeName"] == "n");
        let expected: Seen = of_node.map(|one| (text(one, "name"), text(one, "resourceVersion"))).collect();
        assert_eq!(seen_of(ATTACHMENTS, &objects), expected, "look {look}");
        (0..look).for_each(|_| pods.change());
    }
    assert_eq!(history.pods().whole_lists, 1, "there are those of thousands of nodes");
}

#[tokio::test]
async fn a_watch_that_lags_hides_no_pod_and_nothing_of_a_waiting_one() {
    for seed in 0..8 {
        let (history, url) = History::start(seed);
        let clusters = clusters(&access_to(&[&url]));
        look(&clusters).await;
        for _ in 0..4 {
            let lag = history.pods().random(3);
            history.pods().lag = usize::try_from(lag).expect("a small number");
            let changes = history.pods().random(5);
            (0..changes).for_each(|_| history.pods().change());
            let objects = look(&clusters).await;
            let pods = history.pods();
            let quoted = |text: &str| format!("{text:?}");
            let waiting = objects.pods.iter().filter(|pod| !pod.is_bound());
            let waiting: Seen = waiting.map(|pod| (quoted(&pod.metadata.name), quoted(&pod.metadata.resource_version))).collect();
            assert_eq!(waiting, pods.waiting(), "seed {seed}, lag {lag}");
            assert_eq!(seen(&objects).len(), pods.by_name.len(), "seed {seed}, lag {lag}");
        }
    }
}

#[tokio::test]
async fn whatever_is_odd_about_a_watch_leads_to_a_whole_list() {
    type Odd = (&'static str, fn(&mut Pods));
    let odd: [Odd; 7] = [
        ("its version is gone", |pods| pods.compacted = pods.version + 1),
        ("its version has expired meanwhile", |pods| {
            pods.says = Some("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"message\":\"too old\"}}\n");
        }),
        ("it ends", |pods| pods.says = Some("\n")),
        ("it is no watch", |pods| pods.says = Some("<html>busy</html>\n")),
        ("a restored etcd is older", |pods| pods.version = 10),
        ("the server does not count", |pods| pods.counts_nothing = true),
        ("it never tells the last changes", |pods| {
            let names: Vec<String> = pods.by_name.keys().cloned().collect();
            names.iter().for_each(|name| drop(pods.by_name.remove(name)));
            pods.version += 1;
        }),
    ];
    for (what, becomes) in odd {
        let (history, url) = History::start(7);
        let clusters = clusters(&access_to(&[&url]));
        look(&clusters).await;
        look(&clusters).await;
        assert_eq!(history.pods().whole_lists, 1, "the second look is caught up");
        history.pods().change();
        becomes(&mut history.pods());
        let found = seen(&look(&clusters).await);
        assert_eq!(found, history.pods().seen(), "{what}");
        assert_eq!(history.pods().whole_lists, 2, "{what}");
    }
}

#[tokio::test]
async fn a_kind_without_objects_is_caught_up_too() {
    let (history, url) = History::start(3);
    history.pods().by_name.clear();
    let clusters = clusters(&access_to(&[&url]));
    for _ in 0..3 {
        assert_eq!(seen(&look(&clusters).await), Seen::new());
    }
    history.pods().change();
    assert_eq!(seen(&look(&clusters).await), history.pods().seen());
    assert_eq!(history.pods().whole_lists, 1);
}

#[tokio::test]
async fn another_endpoint_is_another_cluster() {
    let ((first, url), (second, other)) = (History::start(1), History::start(1));
    let access: Arc<Access> = access_to(&[&url, &other]);
    let clusters = clusters(&access);
    look(&clusters).await;
    look(&clusters).await;
    first.pods().is_down = true;
    second.pods().change();
    assert_eq!(seen(&look(&clusters).await), second.pods().seen());
    assert_eq!(seen(&look(&clusters).await), second.pods().seen());
    assert_eq!((first.pods().whole_lists, second.pods().whole_lists > 0), (1, true), "nothing of the first is caught up with the second");
}

/// The look that failed was told of the change, and nobody is told of it again.
#[tokio::test]
async fn after_a_look_that_failed_nothing_is_quiet_until_another_has_succeeded() {
    let (history, url) = History::start(5);
    history.pods().has_nodes = true;
    let clusters = clusters(&access_to(&[&url]));
    let quiet = async || clusters.read_kept(&"demo".into(), Scope::All).await.expect("the server answers");
    look(&clusters).await;
    assert!(quiet().await.is_some(), "nothing has changed");
    history.pods().change();
    history.pods().refuses = Some("/api/v1/namespaces");
    clusters.read(&"demo".into(), Scope::All, None).await.expect_err("namespaces cannot be listed");
    history.pods().refuses = None;
    assert!(quiet().await.is_none(), "DaemonSets, volumes and the like may be others");
    let newest = seen(&look(&clusters).await);
    assert_eq!(quiet().await.map(|objects| seen(&objects)), Some(newest));
}

#[tokio::test]
async fn pods_that_came_and_went_between_two_looks_are_told_of() {
    let (history, url) = History::start(3);
    let clusters = clusters(&access_to(&[&url]));
    look(&clusters).await;
    let pod = |name: &str, owner: &str, node: &str, bound: &str| {
        let owners = json!([{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": true}]);
        let conditions = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}]);
        let metadata = json!({"name": name, "namespace": "b", "ownerReferences": owners});
        json!({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": conditions}})
    };
    let short = [
        pod("late", "Job", "n1", "2027-01-15T08:00:20Z"),
        pod("early", "Job", "n1", "2027-01-15T08:00:10Z"),
        pod("other", "ReplicaSet", "n2", "2027-01-15T08:00:15Z"),
        pod("daemon", "DaemonSet", "n3", "2027-01-15T08:00:15Z"),
        pod("unbound", "Job", "", "2027-01-15T08:00:15Z"),
    ];
    for kind in ["ADDED", "DELETED"] {
        for pod in &short {
            let mut pods = history.pods();
            pods.version += 1;
            let version = pods.version;
            pods.history.push((version, kind, pod.clone()));
        }
    }
    let time = |text: &str| text.parse::<whittle_units::Timestamp>().expect("a time");
    let expected = [("n1".to_owned(), time("2027-01-15T08:00:20Z")), ("n2".to_owned(), time("2027-01-15T08:00:15Z"))];
    for number in 0..3 {
        assert_eq!(seen(&look(&clusters).await), history.pods().seen());
        assert_eq!(clusters.departures(&"demo".into()).await, BTreeMap::from(expected.clone()), "look {number} after it");
    }
    assert_eq!(history.pods().whole_lists, 1, "a whole list tells of none");
}
