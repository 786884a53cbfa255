//! The watcher on a real API server and scheduler, with the rights of its own service account, and the relay's handler behind an HTTP
//! server: what rings, how often, and what the watcher may not do.

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use whittle_claims::{Doorbell, PLAN_DELAY};
use whittle_ports::{Adapters, Clock, Deadline, QueueError, Queues, Settings};
use whittle_relay::{Recent, Request};
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::etcd::Etcd;
use whittle_tests::kubernetes::client;
use whittle_units::{SignedDuration, Timestamp};
use whittle_watcher::post::Poster;

pub(crate) const CLUSTER: &str = "demo";
const ACCOUNT: &str = "system:serviceaccount:whittle:whittle-watcher";
/// What rings at once does so within this, also on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The manifest as applied, without pods of its own: there is no kubelet.
fn manifest() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/watcher/watcher.yaml");
    let text = std::fs::read_to_string(file).expect("the manifest exists");
    assert!(text.contains("  replicas: 2\n"), "two watchers are the default");
    text.replace("  replicas: 2\n", "  replicas: 0\n").replace("RELAY-URL", "https://a.lambda-url.us-west-2.on.aws/")
}

pub(crate) fn kubectl(plane: &ControlPlane, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = plane.kubectl();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kubectl runs");
    child.stdin.take().expect("its input is a pipe").write_all(input.as_bytes()).expect("kubectl reads");
    let output = child.wait_with_output().expect("kubectl ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A control plane with the watcher's manifest.
pub(crate) fn plane(parts: &str) -> Option<ControlPlane> {
    let plane = ControlPlane::with_parts(parts)?;
    kubectl(&plane, &["apply", "-f", "-"], &manifest()).expect("the manifest is valid");
    Some(plane)
}

/// The queues behind the relay: every doorbell, and the messages that a FIFO queue makes of those for plans.
#[derive(Default)]
pub(crate) struct Rung {
    pub(crate) doorbells: Mutex<Vec<Doorbell>>,
    plan_messages: Mutex<BTreeSet<String>>,
    /// The messages of a queue without a delay.
    pub(crate) undelayed_messages: Mutex<BTreeSet<String>>,
    /// When each doorbell for plans was sent.
    pub(crate) plans_at: Mutex<Vec<Instant>>,
    /// The relay takes posts and does not answer.
    hangs: AtomicBool,
    /// It answers after so many milliseconds.
    slow: AtomicU64,
}

pub(crate) struct Now;

impl Clock for Now {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
    fn deadline(&self) -> Deadline {
        Deadline(Timestamp::now() + SignedDuration::from_secs(4))
    }
    fn unique(&self) -> String {
        "unique".to_owned()
    }
}

impl Queues for Rung {
    async fn send(&self, doorbell: Doorbell, _: SignedDuration) -> Result<(), QueueError> {
        if matches!(doorbell, Doorbell::Schedule { .. }) {
            let id = doorbell.deduplication_id(PLAN_DELAY, Timestamp::now(), || Now.unique());
            self.plan_messages.lock().unwrap().insert(id);
            self.plans_at.lock().unwrap().push(Instant::now());
        }
        self.doorbells.lock().unwrap().push(doorbell);
        Ok(())
    }

    async fn send_seen(&self, doorbell: Doorbell, seen: &str) -> Result<(), QueueError> {
        let id = doorbell.deduplication_id_of(seen, SignedDuration::ZERO, Timestamp::now());
        self.undelayed_messages.lock().unwrap().insert(id);
        self.send_now(doorbell).await
    }
}

impl Rung {
    pub(crate) fn count(&self, doorbell: &Doorbell) -> usize {
        self.doorbells.lock().unwrap().iter().filter(|rung| *rung == doorbell).count()
    }

    /// Waits until the doorbell has rung more often than `before`.
    pub(crate) async fn wait(&self, doorbell: &Doorbell, before: usize) {
        let start = Instant::now();
        while self.count(doorbell) <= before {
            assert!(start.elapsed() < SOON, "{doorbell:?} has not rung since: {:?}", self.doorbells.lock().unwrap());
            // tidy: allow(sleep), because the API server and the watcher run in real time
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Answers a post as the function behind its URL would: Lambda has verified its signature.
    async fn answer(&self, request: http::Request<Incoming>) -> http::Response<Full<Bytes>> {
        let is_signed = request.headers().get("authorization").is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256 "));
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.expect("the body arrives").to_bytes();
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        // tidy: allow(sleep), because the relay is slow
        tokio::time::sleep(Duration::from_millis(self.slow.load(Ordering::Relaxed))).await;
        // For one alone, deletions ring `register`.
        let settings = Settings { clusters: vec![CLUSTER.into(), "second".into()], ..Settings::default() };
        let ports = Adapters { store: &(), cloud: &(), cluster: &(), queues: self, clock: &Now };
        let signed_by = is_signed.then_some("arn:aws:sts::111122223333:assumed-role/watcher/pod");
        let request = Request { path: &path, body: &body, signed_by, alias: Some(CLUSTER) };
        let (response, _) = whittle_relay::handle(ports, &settings, &Recent::new(), request).await.expect("the handler answers");
        let mut answer = http::Response::new(Full::from(response.body));
        *answer.status_mut() = http::StatusCode::from_u16(response.status).expect("it is a status");
        answer
    }

    /// Serves the relay; returns its address.
    pub(crate) async fn serve(self: &Arc<Self>) -> String {
        self.serve_on(TcpListener::bind("127.0.0.1:0").await.expect("a port is free"))
    }

    fn serve_on(self: &Arc<Self>, listener: TcpListener) -> String {
        let address = listener.local_addr().expect("it listens");
        let rung = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("it accepts");
                let rung = Arc::clone(&rung);
                tokio::spawn(async move {
                    let service = service_fn(|request| {
                        let rung = Arc::clone(&rung);
                        async move { Ok::<_, Infallible>(rung.answer(request).await) }
                    });
                    drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        format!("http://{address}/{CLUSTER}")
    }
}

/// A watcher with the token of its service account.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn start(plane: &ControlPlane, url: &str) -> Self {
        let token = kubectl(plane, &["create", "token", "whittle-watcher", "--namespace=whittle"], "").expect("the account exists");
        let credentials = SharedCredentialsProvider::new(Credentials::new("AKIDEXAMPLE", "secret", None, None, "tests"));
        let poster = Poster::new(url.parse().expect("a URL"), CLUSTER.into(), "us-west-2".into(), credentials).expect("certificates");
        let client = client(plane, &token).await;
        let (stop, stopped) = oneshot::channel();
        let listen = "127.0.0.1:0".parse().expect("an address");
        let stopped = Box::pin(async move { stopped.await.unwrap_or_default() });
        Self { stop, task: tokio::spawn(whittle_watcher::run(client, poster, listen, stopped)) }
    }

    pub(crate) async fn end(self) {
        self.stop.send(()).expect("it runs");
        tokio::time::timeout(SOON, self.task).await.expect("it stops").expect("it did not panic").expect("it had no error");
    }
}

pub(crate) fn pod(name: &str, extra: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {{{extra} containers: [{{name: c, image: i, \
         resources: {{requests: {{cpu: 10m}}}}}}]}}}}"
    )
}

pub(crate) fn node(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, finalizers: [karpenter.sh/termination]}}, status: {{capacity: {{cpu: '4', \
         memory: 8Gi, pods: '20'}}, allocatable: {{cpu: '4', memory: 8Gi, pods: '20'}}}}}}"
    )
}

pub(crate) fn node_claim(name: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: {name}, finalizers: [karpenter.sh/termination]}}, spec: \
         {{requirements: [], nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}}"
    )
}

/// A NodePool, static if it has replicas.
pub(crate) fn node_pool(name: &str, replicas: Option<u32>) -> String {
    let replicas = replicas.map(|count| format!("replicas: {count}, ")).unwrap_or_default();
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}}}, spec: {{{replicas}template: {{spec: {{requirements: [], \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}}}}}}"
    )
}

/// Writes a condition to the status of a NodePool, as `refresh` does.
pub(crate) fn write_pool_status(plane: &ControlPlane, name: &str, reason: &str) {
    let condition = format!(
        r#"{{"status":{{"conditions":[{{"type":"Ready","status":"True","reason":"{reason}","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}]}}}}"#
    );
    kubectl(plane, &["patch", "nodepool", name, "--subresource=status", "--type=merge", "-p", &condition], "").expect("it is written");
}

/// A doorbell of the cluster.
pub(crate) fn doorbell(of: impl FnOnce(whittle_units::ClusterName) -> Doorbell) -> Doorbell {
    of(CLUSTER.into())
}

/// Long enough for whatever would ring to have rung.
async fn leave_time_to_ring() {
    // tidy: allow(sleep), because what is checked is that nothing comes
    tokio::time::sleep(Duration::from_secs(3)).await;
}

#[tokio::test]
async fn pods_nodes_and_deletions_ring_with_the_rights_of_the_service_account() {
    let Some(plane) = plane("kcm scheduler") else { return };
    for crd in [include_str!("../../infra/crds/karpenter.sh_nodeclaims.yaml"), include_str!("../../infra/crds/karpenter.sh_nodepools.yaml")]
    {
        kubectl(&plane, &["apply", "--server-side", "-f", "-"], crd).expect("it is applied");
    }
    kubectl(&plane, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "").expect("it is served");
    let rung = Arc::new(Rung::default());
    let watcher = Running::start(&plane, &rung.serve().await).await;
    let schedule = doorbell(|cluster| Doorbell::Schedule { cluster });
    let register = doorbell(Doorbell::register);
    let sweep = doorbell(Doorbell::sweep);
    let create = |object: String| kubectl(&plane, &["create", "-f", "-"], &object).expect("it is created");

    create(pod("gated", "schedulingGates: [{name: a.example/b}],"));
    create(pod("first", ""));
    rung.wait(&schedule, 0).await;
    leave_time_to_ring().await;
    assert_eq!(rung.count(&schedule), 1, "neither a gated pod nor a retry rings");
    create(pod("second", ""));
    rung.wait(&schedule, 1).await;

    assert_eq!(rung.count(&register), 0);
    create(node("n1"));
    rung.wait(&register, 0).await;
    assert_eq!(rung.count(&sweep), 0);
    kubectl(&plane, &["delete", "node", "n1", "--wait=false"], "").expect("it is marked");
    rung.wait(&sweep, 0).await;
    kubectl(&plane, &["patch", "node", "n1", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#], "").expect("it is let go");
    rung.wait(&sweep, 1).await;
    let before = rung.count(&sweep);
    create(node_claim("c1"));
    leave_time_to_ring().await;
    assert_eq!(rung.count(&sweep), before, "a new NodeClaim rings nothing");
    kubectl(&plane, &["delete", "nodeclaim", "c1", "--wait=false"], "").expect("it is marked");
    rung.wait(&sweep, before).await;
    let refresh = doorbell(|cluster| Doorbell::Refresh { cluster });
    assert_eq!(rung.count(&refresh), 0);
    create(node_pool("p1", None));
    rung.wait(&refresh, 0).await;
    write_pool_status(&plane, "p1", "Fine");
    leave_time_to_ring().await;
    assert_eq!(rung.count(&refresh), 1, "what is written to its status rings nothing");
    kubectl(&plane, &["patch", "nodepool", "p1", "--type=merge", "-p", r#"{"spec":{"limits":{"cpu":"10"}}}"#], "").expect("it is edited");
    rung.wait(&refresh, 1).await;
    watcher.end().await;

    check_rights(&plane);
}

/// The service account may watch what rings, and nothing else.
#[track_caller]
fn check_rights(plane: &ControlPlane) {
    for (verb, resource, subresource, expected) in [
        ("list", "pods", "", true),
        ("watch", "nodes", "", true),
        ("watch", "nodeclaims.karpenter.sh", "", true),
        ("watch", "nodepools.karpenter.sh", "", true),
        ("patch", "nodepools.karpenter.sh", "", false),
        ("get", "nodeclaims.karpenter.sh", "", false),
        ("patch", "nodeclaims.karpenter.sh", "", false),
        ("delete", "nodeclaims.karpenter.sh", "", false),
        ("get", "secrets", "", false),
        ("list", "secrets", "", false),
        ("list", "configmaps", "", false),
        ("get", "pods", "", false),
        ("get", "pods", "log", false),
        ("create", "pods", "", false),
        ("create", "pods", "exec", false),
        ("delete", "pods", "", false),
        ("patch", "nodes", "", false),
        ("get", "nodes", "proxy", false),
        ("create", "events", "", false),
        ("create", "serviceaccounts", "token", false),
        ("impersonate", "users", "", false),
    ] {
        assert_eq!(may(plane, verb, resource, subresource), expected, "{verb} {resource} {subresource}");
    }
}

/// Whether the watcher's service account may do this in any namespace.
fn may(plane: &ControlPlane, verb: &str, resource: &str, subresource: &str) -> bool {
    let subresource = format!("--subresource={subresource}");
    let mut command = plane.kubectl();
    command.args(["auth", "can-i", verb, resource, &subresource, "--all-namespaces", "--as", ACCOUNT]);
    let output = command.output().expect("kubectl runs");
    match String::from_utf8_lossy(&output.stdout).trim() {
        "yes" => true,
        "no" => false,
        _ => panic!("{verb} {resource}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Its namespace takes no pod that is not restricted: the watcher's is, and one that is nearly it is not.
#[test]
fn its_pod_is_admitted_to_a_restricted_namespace() {
    let Some(plane) = plane("kcm") else { return };
    let text = manifest();
    let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<serde_json::Value>(document).expect("it is YAML"));
    let deployment = documents.into_iter().find(|object| object["kind"] == "Deployment").expect("it has one");
    let create = |change: fn(&mut serde_json::Value)| {
        let mut pod = deployment["spec"]["template"].clone();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["namespace"] = "whittle".into();
        pod["metadata"]["generateName"] = "watcher-".into();
        change(&mut pod["spec"]);
        kubectl(&plane, &["create", "-f", "-", "--warnings-as-errors"], &pod.to_string())
    };
    create(|_| ()).expect("it is admitted, without a warning");
    let refused = [
        create(|spec| spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = true.into()),
        create(|spec| spec["containers"][0]["securityContext"]["capabilities"] = serde_json::json!({})),
        create(|spec| spec["securityContext"]["runAsNonRoot"] = false.into()),
        create(|spec| spec["hostNetwork"] = true.into()),
    ];
    for answer in refused {
        let error = answer.expect_err("it is refused");
        assert!(error.contains("violates PodSecurity \"restricted:latest\""), "{error}");
    }
}

/// These pods with a condition, as they are stored.
fn with_condition<'a>(pods: &'a [serde_json::Value], reason: &'a str) -> impl Iterator<Item = (String, serde_json::Value)> + 'a {
    pods.iter().map(move |pod| {
        let mut pod = pod.clone();
        pod["status"]["conditions"] = serde_json::json!([{"type": "PodScheduled", "status": "False", "reason": reason}]);
        (format!("/registry/pods/default/{}", pod["metadata"]["name"].as_str().expect("it has a name")), pod)
    })
}

const PODS: usize = 500;
const CHANGES: usize = 10_000;
const STORM: Duration = Duration::from_secs(10);
/// As many changes as are written at once.
const AT_ONCE: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_changes_in_ten_seconds_are_few_messages_though_two_watchers_see_them() {
    let Some(plane) = plane("kcm") else { return };
    let created: Vec<String> = (0..PODS).map(|number| pod(&format!("p{number}"), "")).collect();
    kubectl(&plane, &["create", "-f", "-"], &created.join("\n---\n")).expect("they are created");
    let stored = kubectl(&plane, &["get", "pods", "--output=json"], "").expect("they are listed");
    let mut stored: serde_json::Value = serde_json::from_str(&stored).expect("it is JSON");
    let pods: Vec<serde_json::Value> = stored["items"].as_array_mut().expect("it is a list").drain(..).collect();
    let rung = Arc::new(Rung::default());
    let url = rung.serve().await;
    let watchers = [Running::start(&plane, &url).await, Running::start(&plane, &url).await];
    // Both watch once both have told of one pod.
    let etcd = Etcd::of(&plane);
    etcd.put(with_condition(&pods[..1], "Unschedulable")).await;
    rung.wait(&doorbell(|cluster| Doorbell::Schedule { cluster }), 1).await;
    // tidy: allow(sleep), because the messages of the first lists do not count
    tokio::time::sleep(Duration::from_secs(3)).await;
    rung.plan_messages.lock().unwrap().clear();

    let (start, posts) = (Instant::now(), rung.plans_at.lock().unwrap().len());
    for change in 0..CHANGES / AT_ONCE {
        let (round, part) = (change / (PODS / AT_ONCE), change % (PODS / AT_ONCE));
        let reason = if round.is_multiple_of(2) { "SchedulerError" } else { "Unschedulable" };
        etcd.put(with_condition(&pods[part * AT_ONCE..(part + 1) * AT_ONCE], reason)).await;
        let until = STORM * u32::try_from(change + 1).unwrap() / u32::try_from(CHANGES / AT_ONCE).unwrap();
        // tidy: allow(sleep), because changes arrive over time
        tokio::time::sleep(until.saturating_sub(start.elapsed())).await;
    }
    let took = start.elapsed();
    for watcher in watchers {
        watcher.end().await;
    }
    let (messages, posts) = (rung.plan_messages.lock().unwrap().len(), rung.plans_at.lock().unwrap().len() - posts);
    println!("{CHANGES} changes in {took:.1?}: {posts} posts of two watchers, {messages} plan messages");
    // Fifteen for ten seconds.
    let allowed = usize::try_from(took.as_millis() * 15 / 10_000).unwrap();
    assert!((2..=allowed).contains(&messages), "{messages} of {allowed}: {:?}", rung.plan_messages.lock().unwrap());
}

/// Creates thirty pods that fit nowhere, and one behind them that fits and must not wait.
fn check_that_one_behind_thirty_is_bound(plane: &ControlPlane, round: &str) {
    let create = |object: String| kubectl(plane, &["create", "-f", "-"], &object).expect("it is created");
    create(node(&format!("{round}-node")));
    let nowhere: Vec<String> = (0..30).map(|number| pod(&format!("{round}-nowhere-{number}"), "nodeSelector: {nowhere: here},")).collect();
    create(nowhere.join("\n---\n"));
    let start = Instant::now();
    // No kubelet makes the node ready.
    create(pod(&format!("{round}-fits"), "tolerations: [{operator: Exists}],"));
    kubectl(plane, &["wait", "--for=condition=PodScheduled", &format!("pod/{round}-fits"), "--timeout=60s"], "").expect("it is bound");
    assert!(start.elapsed() < Duration::from_secs(5), "{round}: bound after {:?}", start.elapsed());
}

#[tokio::test]
async fn a_relay_that_hangs_is_dead_or_is_slow_delays_no_pod_and_loses_no_bell() {
    let Some(plane) = plane("kcm scheduler") else { return };
    let told = async |rung: &Rung| {
        rung.wait(&doorbell(|cluster| Doorbell::Schedule { cluster }), 0).await;
        rung.wait(&doorbell(Doorbell::register), 0).await;
    };

    let rung = Arc::new(Rung::default());
    rung.hangs.store(true, Ordering::Relaxed);
    let watcher = Running::start(&plane, &rung.serve().await).await;
    check_that_one_behind_thirty_is_bound(&plane, "hanging");
    assert_eq!(rung.doorbells.lock().unwrap().len(), 0, "the relay hangs");
    rung.hangs.store(false, Ordering::Relaxed);
    told(&rung).await;
    watcher.end().await;

    let rung = Arc::new(Rung::default());
    // Bound, so that nobody else listens there, and closed to all.
    let closed = TcpSocket::new_v4().expect("there are sockets");
    closed.bind("127.0.0.1:0".parse().expect("an address")).expect("a port is free");
    let address = closed.local_addr().expect("it is bound");
    let watcher = Running::start(&plane, &format!("http://{address}/{CLUSTER}")).await;
    check_that_one_behind_thirty_is_bound(&plane, "dead");
    rung.serve_on(closed.listen(16).expect("it is bound"));
    told(&rung).await;
    watcher.end().await;

    let rung = Arc::new(Rung::default());
    rung.slow.store(4_000, Ordering::Relaxed);
    let watcher = Running::start(&plane, &rung.serve().await).await;
    check_that_one_behind_thirty_is_bound(&plane, "slow");
    told(&rung).await;
    watcher.end().await;
}

/// `PlanDelaySeconds=0`: there a queue drops nothing for the time at which it was sent.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_delay_two_watchers_are_one_message_for_each_pod() {
    const PODS: usize = 15;
    let Some(plane) = plane("kcm scheduler") else { return };
    let rung = Arc::new(Rung::default());
    let url = rung.serve().await;
    let watchers = [Running::start(&plane, &url).await, Running::start(&plane, &url).await];
    // Both have listed their objects when both have told of a node.
    kubectl(&plane, &["create", "-f", "-"], &node("n1")).expect("it is created");
    rung.wait(&doorbell(Doorbell::register), 1).await;
    let schedule = doorbell(|cluster| Doorbell::Schedule { cluster });
    for number in 0..PODS {
        let object = pod(&format!("p{number}"), "nodeSelector: {nowhere: here},");
        kubectl(&plane, &["create", "-f", "-"], &object).expect("it is created");
        // Both have told of it before the next one comes.
        rung.wait(&schedule, 2 * number + 1).await;
    }
    let (messages, posts) = (rung.undelayed_messages.lock().unwrap().len(), rung.count(&schedule));
    println!("{PODS} pods, one after another: {posts} posts of two watchers, {messages} messages");
    assert_eq!((messages, posts), (PODS, 2 * PODS));
    for watcher in watchers {
        watcher.end().await;
    }
}
